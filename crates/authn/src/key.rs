//! Private keys of signers, and the DNS records that publish their public halves (RFC 6376 §3.6.1, RFC 8463 §4).

use aws_lc_rs::{
    digest::{SHA256, digest},
    encoding::{AsBigEndian as _, AsDer, Curve25519SeedBin, Pkcs8V1Der, PublicKeyX509Der},
    rand::SystemRandom,
    rsa::KeySize,
    signature::{Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair},
};
use data_encoding::BASE64;
use rustls_pki_types::{PrivateKeyDer, pem::PemObject as _};
use std::fmt;

/// How a signature is made (`a=` of DKIM).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// RSA with SHA-256 (RFC 8301).
    RsaSha256,
    /// Ed25519 with SHA-256 (RFC 8463). Some receivers do not know it: sign with RSA as well.
    Ed25519Sha256,
}

impl Algorithm {
    /// Returns the name for the `a=` of a signature, such as `rsa-sha256`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RsaSha256 => "rsa-sha256",
            Self::Ed25519Sha256 => "ed25519-sha256",
        }
    }
}

/// The reason why a private key cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyError {
    /// There is no private key in PEM.
    NoKey,
    /// An encrypted file: the server would have to know its password.
    Encrypted,
    /// An RSA key has less than 2,048 bits, or more than 8,192, or is damaged.
    Rsa(String),
    /// Neither RSA nor Ed25519, or damaged.
    Unknown,
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoKey => f.write_str("no private key in PEM is in it"),
            Self::Encrypted => f.write_str("the private key in it is encrypted"),
            Self::Rsa(why) => write!(f, "an RSA key needs 2048 to 8192 bits: {why}"),
            Self::Unknown => f.write_str("the private key is neither RSA nor Ed25519"),
        }
    }
}

impl std::error::Error for KeyError {}

enum Pair {
    Rsa(Box<RsaKeyPair>),
    Ed25519(Ed25519KeyPair),
}

/// Returns the name of the TXT record that publishes a key (RFC 6376 §3.6.2.1).
pub fn key_name(selector: impl fmt::Display, domain: impl fmt::Display) -> String {
    format!("{selector}._domainkey.{domain}")
}

/// A private key with which messages are signed.
pub struct SigningKey(Pair);

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({})", self.algorithm().as_str())
    }
}

impl SigningKey {
    /// Reads a private key in PEM: PKCS #8, or PKCS #1 for RSA.
    ///
    /// # Errors
    /// There is none, or one that cannot be used.
    pub fn from_pem(pem: &[u8]) -> Result<Self, KeyError> {
        if memchr::memmem::find(pem, b"BEGIN ENCRYPTED PRIVATE KEY").is_some() {
            return Err(KeyError::Encrypted);
        }
        match PrivateKeyDer::from_pem_slice(pem).map_err(|_| KeyError::NoKey)? {
            PrivateKeyDer::Pkcs1(der) => {
                let pair = RsaKeyPair::from_der(der.secret_pkcs1_der());
                pair.map(|pair| Self(Pair::Rsa(Box::new(pair)))).map_err(|e| KeyError::Rsa(e.to_string()))
            }
            PrivateKeyDer::Pkcs8(der) => Self::from_pkcs8(der.secret_pkcs8_der()),
            _ => Err(KeyError::Unknown),
        }
    }

    /// Reads a private key in PKCS #8.
    ///
    /// # Errors
    /// The key cannot be used.
    pub fn from_pkcs8(der: &[u8]) -> Result<Self, KeyError> {
        if let Ok(pair) = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der) {
            return Ok(Self(Pair::Ed25519(pair)));
        }
        match RsaKeyPair::from_pkcs8(der) {
            Ok(pair) => Ok(Self(Pair::Rsa(Box::new(pair)))),
            // The object identifier of rsaEncryption.
            Err(e) if memchr::memmem::find(der, b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01").is_some() => {
                Err(KeyError::Rsa(e.to_string()))
            }
            Err(_) => Err(KeyError::Unknown),
        }
    }

    /// Makes a key: RSA with 2,048 bits, or Ed25519. Returns it in PEM.
    ///
    /// # Errors
    /// The operating system gives no random numbers.
    pub fn generate(algorithm: Algorithm) -> Result<String, &'static str> {
        const NO_RANDOM: &str = "there are no random numbers";
        let der = match algorithm {
            Algorithm::RsaSha256 => {
                let pair = aws_lc_rs::rsa::KeyPair::generate(KeySize::Rsa2048).map_err(|_| NO_RANDOM)?;
                let der = AsDer::<Pkcs8V1Der<'_>>::as_der(&pair).map_err(|_| NO_RANDOM)?;
                der.as_ref().to_vec()
            }
            Algorithm::Ed25519Sha256 => {
                let pair = Ed25519KeyPair::generate().map_err(|_| NO_RANDOM)?;
                let seed: Curve25519SeedBin<'_> =
                    pair.seed().map_err(|_| NO_RANDOM)?.as_be_bytes().map_err(|_| NO_RANDOM)?;
                // RFC 8410 §7: version 0, the object identifier of Ed25519, and the seed.
                [b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20", seed.as_ref()].concat()
            }
        };
        let text = BASE64.encode(&der);
        let lines = text.as_bytes().chunks(64).map(|line| String::from_utf8_lossy(line) + "\n");
        Ok(format!("-----BEGIN PRIVATE KEY-----\n{}-----END PRIVATE KEY-----\n", lines.collect::<String>()))
    }

    /// Returns the algorithm of the key's signatures.
    pub fn algorithm(&self) -> Algorithm {
        match &self.0 {
            Pair::Rsa(_) => Algorithm::RsaSha256,
            Pair::Ed25519(_) => Algorithm::Ed25519Sha256,
        }
    }

    /// Returns the text of the TXT record that publishes the key, at `SELECTOR._domainkey.DOMAIN`.
    pub fn record(&self) -> String {
        match &self.0 {
            Pair::Rsa(pair) => {
                let der: PublicKeyX509Der<'_> =
                    pair.public_key().as_der().expect("a public key that was read can be written");
                format!("v=DKIM1; k=rsa; p={}", BASE64.encode(der.as_ref()))
            }
            Pair::Ed25519(pair) => {
                format!("v=DKIM1; k=ed25519; p={}", BASE64.encode(pair.public_key().as_ref()))
            }
        }
    }

    /// Signs data: the canonical header of a message.
    pub(crate) fn sign(&self, data: &[u8]) -> Vec<u8> {
        match &self.0 {
            Pair::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), data, &mut signature)
                    .expect("a key that was read signs any data");
                signature
            }
            // RFC 8463 §3: the hash is what is signed.
            Pair::Ed25519(pair) => pair.sign(digest(&SHA256, data).as_ref()).as_ref().to_vec(),
        }
    }
}
