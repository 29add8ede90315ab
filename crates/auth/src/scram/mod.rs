//! SCRAM (RFC 5802, RFC 7677): the server never learns the password, and the client learns that the server knows it.

pub(crate) mod client;
pub(crate) mod gs2;
pub(crate) mod server;
#[cfg(test)]
mod tests;

use crate::{prep::prepared, secret::Secret};
use aws_lc_rs::{digest, hmac, pbkdf2};
use data_encoding::BASE64;
use std::num::NonZeroU32;

/// Iterations at least (RFC 7677 §4): a server with fewer makes a stolen exchange cheap to search.
pub(crate) const FEWEST_ITERATIONS: u32 = 4096;
/// Iterations of keys that are made here.
pub(crate) const ITERATIONS: NonZeroU32 = NonZeroU32::new(FEWEST_ITERATIONS).unwrap();
/// Iterations at most that a client computes: a server shall not keep it busy for minutes.
pub(crate) const MOST_ITERATIONS: u32 = 1_000_000;

/// The hash function of a SCRAM mechanism.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ScramHash {
    /// Of SCRAM-SHA-1: 20 octets.
    Sha1,
    /// Of SCRAM-SHA-256: 32 octets.
    Sha256,
}

impl ScramHash {
    /// Returns how many octets a key has.
    pub fn key_bytes(self) -> usize {
        match self {
            Self::Sha1 => 20,
            Self::Sha256 => 32,
        }
    }

    /// Returns the hash of some bytes.
    pub(crate) fn of(self, bytes: &[u8]) -> Vec<u8> {
        let algorithm = match self {
            Self::Sha1 => &digest::SHA1_FOR_LEGACY_USE_ONLY,
            Self::Sha256 => &digest::SHA256,
        };
        digest::digest(algorithm, bytes).as_ref().to_vec()
    }

    pub(crate) fn hmac(self, key: &[u8], bytes: &[u8]) -> Vec<u8> {
        let algorithm = match self {
            Self::Sha1 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
            Self::Sha256 => hmac::HMAC_SHA256,
        };
        hmac::sign(&hmac::Key::new(algorithm, key), bytes).as_ref().to_vec()
    }

    /// `Hi()` of RFC 5802 §2.2.
    pub(crate) fn salted_password(self, password: &Secret, salt: &[u8], iterations: NonZeroU32) -> Secret {
        let algorithm = match self {
            Self::Sha1 => pbkdf2::PBKDF2_HMAC_SHA1,
            Self::Sha256 => pbkdf2::PBKDF2_HMAC_SHA256,
        };
        let mut out = vec![0; self.key_bytes()];
        pbkdf2::derive(algorithm, iterations, salt, password.bytes(), &mut out);
        Secret::new(out)
    }
}

/// The data that a server stores of a user instead of the password (RFC 5802 §3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScramKeys {
    /// The hash function that the keys were made with.
    pub hash: ScramHash,
    /// Salt of the password hash, which the server sends to the client (RFC 5802 §3).
    pub salt: Box<[u8]>,
    /// Iteration count, which the server sends to the client (RFC 5802 §3).
    pub iterations: NonZeroU32,
    /// `H(ClientKey)`.
    pub stored_key: Box<[u8]>,
    /// Proves to the client that the server knows the user.
    pub server_key: Secret,
}

impl ScramKeys {
    /// Makes the keys from a password. Takes as long as the iterations do: milliseconds.
    ///
    /// None if the password has forbidden characters (RFC 4013).
    pub fn derive(hash: ScramHash, password: &str, salt: &[u8], iterations: NonZeroU32) -> Option<Self> {
        let password = Secret::new(prepared(password)?.as_bytes());
        let salted = hash.salted_password(&password, salt, iterations);
        Some(Self {
            hash,
            salt: salt.into(),
            iterations,
            stored_key: hash.of(&hash.hmac(salted.bytes(), b"Client Key")).into(),
            server_key: Secret::new(hash.hmac(salted.bytes(), b"Server Key")),
        })
    }

    /// Reads Dovecot's form, `4096,SALT,STORED-KEY,SERVER-KEY`, each but the first in base64.
    ///
    /// # Errors
    /// The wrong part, such as `the salt is no base64`. The text quotes none of the secrets.
    pub fn parse(hash: ScramHash, text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split(',').collect();
        let [iterations, salt, stored_key, server_key] = parts[..] else {
            return Err("write ITERATIONS,SALT,STORED-KEY,SERVER-KEY".to_owned());
        };
        let decode = |what: &str, part: &str| {
            BASE64.decode(part.as_bytes()).map_err(|_| format!("the {what} is no base64"))
        };
        let key = |what: &str, part: &str| match decode(what, part)? {
            key if key.len() == hash.key_bytes() => Ok(key),
            key => Err(format!("the {what} has {} octets, not {}", key.len(), hash.key_bytes())),
        };
        Ok(Self {
            hash,
            iterations: iterations
                .parse()
                .map_err(|_| "the number of iterations is not a number".to_owned())?,
            salt: decode("salt", salt)?.into(),
            stored_key: key("stored key", stored_key)?.into(),
            server_key: Secret::new(key("server key", server_key)?),
        })
    }

    /// Writes the form that [`ScramKeys::parse`] reads.
    pub fn to_text(&self) -> String {
        let encode = |bytes: &[u8]| BASE64.encode(bytes);
        format!(
            "{},{},{},{}",
            self.iterations,
            encode(&self.salt),
            encode(&self.stored_key),
            encode(self.server_key.bytes())
        )
    }

    /// Returns whether the keys are derived from this password. Takes as long as a derivation.
    pub fn is_of(&self, password: &str) -> bool {
        Self::derive(self.hash, password, &self.salt, self.iterations)
            .is_some_and(|other| Secret::new(&*other.stored_key).is(&self.stored_key))
    }

    /// Makes keys of nobody: a client cannot tell an unknown user from a wrong password. Equal for equal names and secrets.
    pub(crate) fn decoy(hash: ScramHash, user: &str, secret: &[u8], iterations: NonZeroU32) -> Self {
        let of = |what: &str| hash.hmac(secret, format!("{what} {user}").as_bytes());
        let mut salt = of("salt");
        salt.truncate(SALT_BYTES);
        Self {
            hash,
            salt: salt.into(),
            iterations,
            stored_key: of("stored key").into(),
            server_key: Secret::new(of("server key")),
        }
    }
}

/// Returns the salt for a user whose password is stored in clear text: the same for as long as the secret is.
pub fn salt_of(secret: &Secret, user: &str) -> Vec<u8> {
    let mut salt = ScramHash::Sha256.hmac(secret.bytes(), format!("salt {user}").as_bytes());
    salt.truncate(SALT_BYTES);
    salt
}

/// Octets of a salt that is made here.
const SALT_BYTES: usize = 16;

/// Combines two keys of the same length.
pub(crate) fn xor(a: &[u8], b: &[u8]) -> Vec<u8> {
    a.iter().zip(b).map(|(a, b)| a ^ b).collect()
}

/// Returns the value of the attribute that comes next in a message, such as `r=abc`, and the rest behind its comma.
pub(crate) fn attribute(text: &str, name: char) -> Option<(&str, &str)> {
    let value = text.strip_prefix(name)?.strip_prefix('=')?;
    Some(value.split_once(',').unwrap_or((value, "")))
}

/// Returns whether a nonce has only printable characters and no comma (RFC 5802 §7).
pub(crate) fn is_nonce(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic() && b != b',')
}
