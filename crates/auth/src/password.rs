//! Stored passwords in the schemes of Dovecot: `{ARGON2ID}$argon2id$…`, `{SSHA256}…`, `{SCRAM-SHA-256}…`.

use crate::{
    scram::{ScramHash, ScramKeys},
    secret::Secret,
};
use argon2::{Argon2, PasswordVerifier as _, password_hash::phc::PasswordHash};
use aws_lc_rs::{digest, pbkdf2};
use data_encoding::{BASE64, Encoding, HEXLOWER_PERMISSIVE};
use sha_crypt::{PasswordHasher as _, ShaCrypt};
use std::num::NonZeroU32;

/// A password as a store has it: a hash with its scheme, or clear text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredPassword(Form);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Form {
    /// Clear text, as SCRAM can need it.
    Clear(Secret),
    /// A PHC string with the variant and its parameters.
    Argon2(Box<str>),
    Bcrypt(Box<str>),
    /// `$5$` or `$6$`.
    ShaCrypt(Box<str>),
    Digest {
        digest: Digest,
        value: Box<[u8]>,
        salt: Box<[u8]>,
    },
    Pbkdf2 {
        salt: Box<[u8]>,
        rounds: NonZeroU32,
        value: Box<[u8]>,
    },
    Scram(ScramKeys),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Digest {
    Sha1,
    Sha256,
    Sha512,
}

impl Digest {
    fn algorithm(self) -> &'static digest::Algorithm {
        match self {
            Self::Sha1 => &digest::SHA1_FOR_LEGACY_USE_ONLY,
            Self::Sha256 => &digest::SHA256,
            Self::Sha512 => &digest::SHA512,
        }
    }

    fn of(self, parts: [&[u8]; 2]) -> Secret {
        let mut context = digest::Context::new(self.algorithm());
        parts.into_iter().for_each(|part| context.update(part));
        Secret::new(context.finish().as_ref())
    }
}

/// How a stored password is to be checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scheme {
    Clear,
    Crypt,
    Argon2,
    Bcrypt,
    ShaCrypt,
    Digest(Digest, Salted),
    Pbkdf2,
    Scram(ScramHash),
}

/// Does a salt follow the digest?
type Salted = bool;

/// Names of schemes, in capitals.
const SCHEMES: [(&str, Scheme); 20] = [
    ("PLAIN", Scheme::Clear),
    ("CLEAR", Scheme::Clear),
    ("CLEARTEXT", Scheme::Clear),
    ("CRYPT", Scheme::Crypt),
    ("ARGON2", Scheme::Argon2),
    ("ARGON2I", Scheme::Argon2),
    ("ARGON2ID", Scheme::Argon2),
    ("BLF-CRYPT", Scheme::Bcrypt),
    ("SHA256-CRYPT", Scheme::ShaCrypt),
    ("SHA512-CRYPT", Scheme::ShaCrypt),
    ("SHA", Scheme::Digest(Digest::Sha1, false)),
    ("SHA1", Scheme::Digest(Digest::Sha1, false)),
    ("SHA256", Scheme::Digest(Digest::Sha256, false)),
    ("SHA512", Scheme::Digest(Digest::Sha512, false)),
    ("SSHA", Scheme::Digest(Digest::Sha1, true)),
    ("SSHA256", Scheme::Digest(Digest::Sha256, true)),
    ("SSHA512", Scheme::Digest(Digest::Sha512, true)),
    ("PBKDF2", Scheme::Pbkdf2),
    ("SCRAM-SHA-1", Scheme::Scram(ScramHash::Sha1)),
    ("SCRAM-SHA-256", Scheme::Scram(ScramHash::Sha256)),
];

/// Memory of an Argon2 hash at most, in KiB: a check must not take the memory that mail needs.
const ARGON2_MAX_KIB: u32 = 1 << 20;
/// The highest cost of a bcrypt hash: half a minute.
const BCRYPT_MAX_COST: u32 = 18;

impl StoredPassword {
    /// Reads a stored password. Without a scheme in braces it is one of crypt(3), as in Dovecot's passwd-file.
    ///
    /// # Errors
    /// What is wrong with it. The text never quotes the password or its hash.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (name, encoding, value) = split_scheme(text)?;
        let scheme = SCHEMES.iter().find(|(one, _)| name.eq_ignore_ascii_case(one));
        let Some((name, scheme)) = scheme else {
            let names: Vec<&str> = SCHEMES.iter().map(|(name, _)| *name).collect();
            return Err(format!("the scheme {{{name}}} is not supported; there are {}", names.join(", ")));
        };
        let bad = |why: &str| format!("{{{name}}}: {why}");
        let form = match scheme {
            Scheme::Clear => match encoding {
                Some(encoding) => Form::Clear(Secret::new(decode(&encoding, value).map_err(|e| bad(&e))?)),
                None => Form::Clear(Secret::new(value)),
            },
            Scheme::Crypt => crypt(value).map_err(|e| bad(&e))?,
            Scheme::Argon2 => argon2_form(value).map_err(|e| bad(&e))?,
            Scheme::Bcrypt => bcrypt_form(value).map_err(|e| bad(&e))?,
            Scheme::ShaCrypt => sha_crypt_form(value).map_err(|e| bad(&e))?,
            Scheme::Digest(digest, is_salted) => {
                let octets = digest.algorithm().output_len();
                let encoding = encoding.unwrap_or(BASE64);
                let mut value = decode(&encoding, value).map_err(|e| bad(&e))?;
                if value.len() < octets || (value.len() > octets) != *is_salted {
                    return Err(bad(&format!("it has {} octets, which do not fit", value.len())));
                }
                let salt = value.split_off(octets).into();
                Form::Digest { digest: *digest, value: value.into(), salt }
            }
            Scheme::Pbkdf2 => pbkdf2_form(value).map_err(|e| bad(&e))?,
            Scheme::Scram(hash) => Form::Scram(ScramKeys::parse(*hash, value).map_err(|e| bad(&e))?),
        };
        if matches!(&form, Form::Clear(secret) if secret.bytes().is_empty()) {
            return Err("the password is empty".to_owned());
        }
        Ok(Self(form))
    }

    /// Returns whether a password is the stored one. Takes the time that the scheme takes: microseconds of a digest, tens of
    /// milliseconds of Argon2.
    pub fn is(&self, password: &Secret) -> bool {
        let bytes = password.bytes();
        match &self.0 {
            Form::Clear(stored) => stored.is(bytes),
            Form::Argon2(hash) => Argon2::default().verify_password(bytes, &**hash).is_ok(),
            Form::Bcrypt(hash) => bcrypt::verify(bytes, hash).unwrap_or(false),
            Form::ShaCrypt(hash) => {
                sha_crypt::PasswordVerifier::<str>::verify_password(&ShaCrypt::default(), bytes, hash).is_ok()
            }
            Form::Digest { digest, value, salt } => digest.of([bytes, salt]).is(value),
            Form::Pbkdf2 { salt, rounds, value } => {
                pbkdf2::verify(pbkdf2::PBKDF2_HMAC_SHA1, *rounds, salt, bytes, value).is_ok()
            }
            Form::Scram(keys) => std::str::from_utf8(bytes).is_ok_and(|password| keys.is_of(password)),
        }
    }

    /// Returns the scheme with its costs: checks of passwords of one kind take the same time.
    pub fn kind(&self) -> String {
        // `$argon2id$v=19$m=19456,t=2,p=1$`, `$2y$10$`, `$6$rounds=5000$`.
        let front = |hash: &str, count: usize| hash.split('$').take(count).collect::<Vec<_>>().join("$");
        match &self.0 {
            Form::Clear(_) => "clear".to_owned(),
            Form::Argon2(hash) => front(hash, 4),
            Form::Bcrypt(hash) => front(hash, 3),
            Form::ShaCrypt(hash) if hash.contains("$rounds=") => front(hash, 3),
            Form::ShaCrypt(hash) => front(hash, 2),
            Form::Digest { digest, .. } => format!("{digest:?}"),
            Form::Pbkdf2 { rounds, .. } => format!("pbkdf2 {rounds}"),
            Form::Scram(keys) => format!("scram {:?} {}", keys.hash, keys.iterations),
        }
    }

    /// Returns whether checking a password takes milliseconds, so that it belongs on a thread of its own.
    pub fn is_slow(&self) -> bool {
        !matches!(self.0, Form::Clear(_) | Form::Digest { .. })
    }

    /// Returns the keys for a SCRAM mechanism; `None` if the password is stored as something else. Of a password in clear text they are
    /// made here, with the salt.
    pub fn scram_keys(&self, hash: ScramHash, salt: &[u8]) -> Option<ScramKeys> {
        match &self.0 {
            Form::Scram(keys) if keys.hash == hash => Some(keys.clone()),
            Form::Clear(secret) => {
                let password = std::str::from_utf8(secret.bytes()).ok()?;
                ScramKeys::derive(hash, password, salt, super::scram::ITERATIONS)
            }
            _ => None,
        }
    }

    /// Returns whether the password can be used with a SCRAM mechanism.
    pub fn has_scram(&self, hash: ScramHash) -> bool {
        match &self.0 {
            Form::Scram(keys) => keys.hash == hash,
            Form::Clear(_) => true,
            _ => false,
        }
    }
}

/// How a new password is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewScheme {
    /// Argon2id with the parameters of RFC 9106 §4 for little memory: for PLAIN and LOGIN.
    Argon2id,
    /// For SCRAM-SHA-256, PLAIN and LOGIN.
    ScramSha256,
    /// For SCRAM-SHA-1, PLAIN and LOGIN.
    ScramSha1,
    /// SHA-512 of crypt(3).
    Sha512Crypt,
    /// bcrypt, `{BLF-CRYPT}` in Dovecot's words.
    Bcrypt,
}

impl NewScheme {
    /// Returns the text to store for a password. `salt`: 16 random octets.
    ///
    /// # Errors
    /// The password cannot be used with the scheme.
    pub fn hash(self, password: &str, salt: [u8; 16]) -> Result<String, String> {
        let failed = |e: &dyn std::fmt::Display| format!("cannot make the hash: {e}");
        Ok(match self {
            Self::Argon2id => {
                let hash = argon2::PasswordHasher::hash_password_with_salt(
                    &Argon2::default(),
                    password.as_bytes(),
                    &salt,
                );
                format!("{{ARGON2ID}}{}", hash.map_err(|e| failed(&e))?)
            }
            Self::ScramSha256 => format!("{{SCRAM-SHA-256}}{}", new_keys(ScramHash::Sha256, password, salt)?),
            Self::ScramSha1 => format!("{{SCRAM-SHA-1}}{}", new_keys(ScramHash::Sha1, password, salt)?),
            Self::Sha512Crypt => {
                let hash = ShaCrypt::default().hash_password_with_salt(password.as_bytes(), &salt[..12]);
                format!("{{SHA512-CRYPT}}{}", hash.map_err(|e| failed(&e))?)
            }
            Self::Bcrypt => {
                if password.len() > 72 {
                    return Err(
                        "bcrypt uses no more than 72 octets of a password: take another scheme".to_owned()
                    );
                }
                let parts =
                    bcrypt::hash_with_salt(password, bcrypt::DEFAULT_COST, salt).map_err(|e| failed(&e))?;
                format!("{{BLF-CRYPT}}{}", parts.format_for_version(bcrypt::Version::TwoY))
            }
        })
    }
}

fn new_keys(hash: ScramHash, password: &str, salt: [u8; 16]) -> Result<String, String> {
    let keys = ScramKeys::derive(hash, password, &salt, super::scram::ITERATIONS);
    keys.map(|keys| keys.to_text())
        .ok_or_else(|| "the password has characters that RFC 4013 forbids".to_owned())
}

/// Splits `{SCHEME.ENCODING}value`; without braces, the scheme is CRYPT.
fn split_scheme(text: &str) -> Result<(&str, Option<Encoding>, &str), String> {
    let Some(rest) = text.strip_prefix('{') else { return Ok(("CRYPT", None, text)) };
    let (scheme, value) = rest.split_once('}').ok_or("a brace is missing: write {SCHEME}hash")?;
    let Some((name, encoding)) = scheme.split_once('.') else { return Ok((scheme, None, value)) };
    let encoding = match encoding.to_ascii_uppercase().as_str() {
        "HEX" => HEXLOWER_PERMISSIVE,
        "B64" | "BASE64" => BASE64,
        _ => return Err(format!("the encoding .{encoding} is none of .HEX and .B64")),
    };
    Ok((name, Some(encoding), value))
}

fn decode(encoding: &Encoding, value: &str) -> Result<Vec<u8>, String> {
    encoding.decode(value.as_bytes()).map_err(|_| "it cannot be decoded".to_owned())
}

fn crypt(value: &str) -> Result<Form, String> {
    match value.get(..3) {
        Some("$5$" | "$6$") => sha_crypt_form(value),
        Some("$2a" | "$2b" | "$2x" | "$2y") => bcrypt_form(value),
        Some("$ar") => argon2_form(value),
        Some("$y$" | "$7$") => Err("yescrypt and scrypt are not supported".to_owned()),
        Some("$1$") => Err("MD5 is not supported".to_owned()),
        _ if ["!", "*", "x"].contains(&value) || value.starts_with('!') => {
            Err("the account is locked, or its password is in another file".to_owned())
        }
        _ => Err("no hash of crypt(3) that is supported: write {SCHEME} before the hash".to_owned()),
    }
}

fn argon2_form(value: &str) -> Result<Form, String> {
    let hash = PasswordHash::new(value).map_err(|e| format!("no Argon2 hash: {e}"))?;
    let params = argon2::Params::try_from(&hash).map_err(|e| format!("no Argon2 hash: {e}"))?;
    if params.m_cost() > ARGON2_MAX_KIB {
        return Err("a check would take more than 1 GiB of memory".to_owned());
    }
    if hash.hash.is_none() || argon2::Algorithm::try_from(hash.algorithm.as_str()).is_err() {
        return Err("no Argon2 hash".to_owned());
    }
    Ok(Form::Argon2(value.into()))
}

fn bcrypt_form(value: &str) -> Result<Form, String> {
    let parts: bcrypt::HashParts = value.parse().map_err(|e| format!("no bcrypt hash: {e}"))?;
    if parts.get_cost() > BCRYPT_MAX_COST {
        return Err(format!("a cost of {} is too high: {BCRYPT_MAX_COST} or less", parts.get_cost()));
    }
    Ok(Form::Bcrypt(value.into()))
}

fn sha_crypt_form(value: &str) -> Result<Form, String> {
    let fields =
        value.strip_prefix("$5$").map(|rest| (rest, 43)).or(value.strip_prefix("$6$").map(|rest| (rest, 86)));
    let (rest, octets) = fields.ok_or("a hash of SHA-crypt begins with $5$ or $6$")?;
    let is_crypt = |b: u8| b.is_ascii_alphanumeric() || b == b'.' || b == b'/';
    match rest.rsplit_once('$') {
        Some((_, hash)) if hash.len() == octets && hash.bytes().all(is_crypt) => {
            Ok(Form::ShaCrypt(value.into()))
        }
        _ => Err("the hash is cut off".to_owned()),
    }
}

/// Dovecot's `$1$salt$rounds$hash`, the hash in hexadecimal.
fn pbkdf2_form(value: &str) -> Result<Form, String> {
    let parts: Vec<&str> = value.split('$').collect();
    let ["", "1", salt, rounds, hash] = parts[..] else { return Err("write $1$SALT$ROUNDS$HASH".to_owned()) };
    let rounds = rounds.parse().map_err(|_| "the number of rounds is not a number")?;
    let value = decode(&HEXLOWER_PERMISSIVE, hash)?.into();
    Ok(Form::Pbkdf2 { salt: salt.as_bytes().into(), rounds, value })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made by Python's hashlib and crypt, and by `openssl passwd`.
    const STORED: &[&str] = &[
        "{PLAIN}secret",
        "{plain}secret",
        "{CLEARTEXT.HEX}736563726574",
        "{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=",
        "{SHA.HEX}E5e9fa1ba31ecd1ae84f75caaa474f3a663f05f4",
        "{SHA256}K7gNU3sdo+OL0wNhqoVWhr3g6s1xYv72ol/pe/Unols=",
        "{SHA512.b64}vSsar3708Jvp9Szi2NWZZ02Bqp1qRCFpbcTZPdBhnWgs5WtNZKnvCXdhztmeD2cmW192CF5bDufKRpayrW/isg==",
        "{SSHA}UgCJjM+VJJYduihDuk0aPpDtY9RzYWx0eQ==",
        "{SSHA256}W2T0GtMfT9mqz2M6M2ugt7C4HxacLEVv3JHoqCU1LXpzYWx0eQ==",
        "{SSHA512}cRZVawawrjxEyxFRA5IQOfoJR5ixDDGC21An2/SCqd4g0ur+UDDKUeANewBNE6RQaXqEPXjVWqZu8Xmy/YU3V3NhbHR5",
        "{PBKDF2}$1$NaCl$5000$a67ce53690def3438a1fa9ec53b4261d1e1ee5c8",
        "{SHA256-CRYPT}$5$rounds=2000$saltsalt$z4uPO26lUGTrJq0TkvDSMVwA89yISrOuEF2WeLlRnpC",
        "$6$saltsalt$TVLlQcbpFVof5W3Yz4DTP6gRstiNuHwwTt6GLc1E5n0U0aDehy0S5knV8wiOQSpT0Y77vwPZN.Pq.H91p5hVO1",
        "{CRYPT}$6$abc$IdWKNKTJEb8LxY7CGg8YBXlvtfZzFw7Mp/r6niK9YB2mdvgY..TKjv1T..8RadRt2qvUHYRLr/TsVArtr91iR1",
    ];

    fn secret(text: &str) -> Secret {
        Secret::new(text)
    }

    #[test]
    fn vectors_of_argon2_and_bcrypt_hold() {
        for (text, password) in [
            (
                "{ARGON2ID}$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc",
                "password",
            ),
            ("{BLF-CRYPT}$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW", "U*U"),
        ] {
            let stored = StoredPassword::parse(text).unwrap();
            assert!(stored.is(&secret(password)) && !stored.is(&secret("U*V")), "{text}");
        }
    }

    #[test]
    fn passwords_that_other_programs_stored_are_known() {
        for text in STORED {
            let stored = StoredPassword::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert!(stored.is(&secret("secret")), "{text}");
            assert!(!stored.is(&secret("Secret")) && !stored.is(&secret("")), "{text}");
        }
    }

    #[test]
    fn new_passwords_are_known_and_wrong_ones_are_not() {
        use NewScheme::{Argon2id, Bcrypt, ScramSha1, ScramSha256, Sha512Crypt};
        for scheme in [Argon2id, ScramSha256, ScramSha1, Sha512Crypt, Bcrypt] {
            let text = scheme.hash("tr\u{e4}nen", *b"0123456789abcdef").unwrap();
            let stored = StoredPassword::parse(&text).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert!(stored.is(&secret("tr\u{e4}nen")) && !stored.is(&secret("tranen")), "{text}");
            assert!(stored.is_slow());
            // crypt(3) needs no braces.
            if let Some((_, crypt)) = text.split_once('}').filter(|(scheme, _)| !scheme.contains("SCRAM")) {
                assert_eq!(StoredPassword::parse(crypt), Ok(stored), "{crypt}");
            }
        }
        assert!(Bcrypt.hash(&"x".repeat(73), [0; 16]).unwrap_err().contains("72 octets"));
    }

    #[test]
    fn scram_keys_come_from_clear_text_or_from_their_own_scheme() {
        let of = |text: &str| StoredPassword::parse(text).unwrap();
        let scram = of(&NewScheme::ScramSha256.hash("pencil", [1; 16]).unwrap());
        assert!(scram.has_scram(ScramHash::Sha256) && !scram.has_scram(ScramHash::Sha1));
        assert!(scram.scram_keys(ScramHash::Sha256, b"ignored").unwrap().is_of("pencil"));
        assert_eq!(scram.scram_keys(ScramHash::Sha1, b"salt"), None);
        let clear = of("{PLAIN}pencil");
        for hash in [ScramHash::Sha1, ScramHash::Sha256] {
            assert!(clear.has_scram(hash) && clear.scram_keys(hash, b"salt").unwrap().is_of("pencil"));
        }
        assert!(!of(STORED[3]).has_scram(ScramHash::Sha256));
    }

    #[test]
    fn a_stored_password_that_cannot_be_used_says_why_and_does_not_show_it() {
        for (text, words) in [
            ("{MD5-CRYPT}$1$x$hushhush", "the scheme {MD5-CRYPT} is not supported; there are PLAIN, "),
            ("{SHA256hushhush", "a brace is missing"),
            ("{SHA256}hushhush", "{SHA256}: it has 6 octets"),
            ("{SSHA}5en6G6MezRroT3XKqkdPOmY/BfQ=", "{SSHA}: it has 20 octets"),
            ("{SHA256.OCT}hushhush", "the encoding .OCT is none"),
            ("{PLAIN}", "the password is empty"),
            ("hushhush", "write {SCHEME} before the hash"),
            ("$y$j9T$hushhush", "yescrypt"),
            ("$1$hushhush", "MD5 is not supported"),
            ("!$6$hushhush", "locked"),
            ("$6$salt$hushhush", "cut off"),
            ("{ARGON2ID}$argon2id$v=19$m=4194304,t=1,p=1$c2FsdHNhbHQ$aHVzaGh1c2hodXNo", "1 GiB"),
            ("{ARGON2ID}$argon2id$v=19$m=1,t=1$hushhush", "no Argon2 hash"),
            ("{BLF-CRYPT}$2y$31$hushhush", "no bcrypt hash"),
            ("{PBKDF2}$1$salt$x$00", "rounds"),
            ("{SCRAM-SHA-256}4096,hushhush", "ITERATIONS"),
        ] {
            let error = StoredPassword::parse(text).unwrap_err();
            assert!(error.contains(words) && !error.contains("hushhush"), "{text}: {error}");
        }
    }
}
