//! Public keys of signers, as their TXT records have them (RFC 6376 §3.6.1, RFC 8463 §4).

use crate::{
    Algorithm,
    tags::{SPACE, Tags, has_word},
};
use aws_lc_rs::{
    digest::{SHA256, digest},
    signature::{ED25519, RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY, UnparsedPublicKey},
};
use data_encoding::BASE64;

/// Bits of an RSA key that are needed (RFC 8301 §3.2), and that are still read: verifying takes longer with each.
const RSA_BITS_MIN: usize = 1024;
const RSA_BITS_MAX: usize = 8192;

/// A key record of the DNS (RFC 6376 §3.6.1).
pub(super) struct KeyRecord {
    algorithm: Algorithm,
    /// Empty if it is revoked.
    key: Vec<u8>,
    /// `t=y`: the domain tests DKIM.
    pub(super) is_testing: bool,
    /// `t=s`: the domain of `i=` is that of `d=`.
    pub(super) is_strict: bool,
}

/// Why a key record cannot verify anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unusable {
    /// Nothing that the RFC permits.
    Invalid(&'static str),
    /// Shorter than a verifier may accept.
    Weak,
}

impl KeyRecord {
    /// Returns the first of a name's TXT records that is one. More than one is undefined (RFC 6376 §3.6.2.2).
    pub(super) fn find(records: &[Box<[u8]>]) -> Result<Self, Unusable> {
        let mut error = "there is no key";
        for record in records {
            match std::str::from_utf8(record).ok().and_then(Tags::parse).ok_or("the key record is invalid") {
                Ok(tags) => match Self::read(&tags) {
                    Ok(record) => return Ok(record),
                    Err(why) => error = why,
                },
                Err(why) => error = why,
            }
        }
        Err(Unusable::Invalid(error))
    }

    fn read(tags: &Tags<'_>) -> Result<Self, &'static str> {
        if tags.get("v").is_some_and(|version| version != "DKIM1" || tags.first() != Some("v")) {
            return Err("the key record has an unknown version");
        }
        if tags.get("s").is_some_and(|services| !has_word(services, "*") && !has_word(services, "email")) {
            return Err("the key is not for mail");
        }
        if tags.get("h").is_some_and(|hashes| !has_word(hashes, "sha256")) {
            return Err("the key is not for SHA-256");
        }
        let algorithm = match tags.get("k") {
            None | Some("rsa") => Algorithm::RsaSha256,
            Some("ed25519") => Algorithm::Ed25519Sha256,
            Some(_) => return Err("the key is of an unknown type"),
        };
        let text: String = tags.get("p").ok_or("the key record is invalid")?.split(SPACE).collect();
        let key = BASE64.decode(text.as_bytes()).map_err(|_| "the key is not base64")?;
        let has_flag = |flag| tags.get("t").is_some_and(|flags| has_word(flags, flag));
        Ok(Self { algorithm, key, is_testing: has_flag("y"), is_strict: has_flag("s") })
    }

    /// Returns whether the key may verify signatures of an algorithm.
    pub(super) fn check(&self, algorithm: Algorithm) -> Result<(), Unusable> {
        if self.key.is_empty() {
            return Err(Unusable::Invalid("the key is revoked"));
        }
        if algorithm != self.algorithm {
            return Err(Unusable::Invalid("the key is of another type than the signature"));
        }
        match algorithm {
            Algorithm::Ed25519Sha256 if self.key.len() == 32 => Ok(()),
            Algorithm::Ed25519Sha256 => Err(Unusable::Invalid("the key is damaged")),
            Algorithm::RsaSha256 => match modulus_bits(&self.key) {
                None => Err(Unusable::Invalid("the key is damaged")),
                Some(..RSA_BITS_MIN) => Err(Unusable::Weak),
                Some(RSA_BITS_MIN..=RSA_BITS_MAX) => Ok(()),
                Some(_) => Err(Unusable::Invalid("the key is too long")),
            },
        }
    }

    /// Returns whether a signature of the canonical header is right.
    pub(super) fn verifies(&self, data: &[u8], signature: &[u8]) -> bool {
        let verified = match self.algorithm {
            Algorithm::RsaSha256 => {
                let key = UnparsedPublicKey::new(&RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY, &self.key);
                key.verify(data, signature)
            }
            // RFC 8463 §3: the hash is what is signed.
            Algorithm::Ed25519Sha256 => {
                UnparsedPublicKey::new(&ED25519, &self.key).verify(digest(&SHA256, data).as_ref(), signature)
            }
        };
        verified.is_ok()
    }
}

/// The bits of the modulus of an RSA key: SubjectPublicKeyInfo, or RSAPublicKey alone (RFC 6376 §3.6.1, RFC 8017 §A.1.1).
fn modulus_bits(der: &[u8]) -> Option<usize> {
    const INTEGER: u8 = 0x02;
    const BIT_STRING: u8 = 0x03;
    const SEQUENCE: u8 = 0x30;
    let (SEQUENCE, content, _) = element(der)? else { return None };
    let integer = match element(content)? {
        (INTEGER, integer, _) => integer,
        (SEQUENCE, _, rest) => {
            let (BIT_STRING, [0, key @ ..], _) = element(rest)? else { return None };
            let (SEQUENCE, key, _) = element(key)? else { return None };
            let (INTEGER, integer, _) = element(key)? else { return None };
            integer
        }
        _ => return None,
    };
    let zeros = integer.iter().take_while(|byte| **byte == 0).count();
    let first = integer.get(zeros)?;
    Some((integer.len() - zeros) * 8 - first.leading_zeros() as usize)
}

/// The first element of DER: its tag, its content, and the rest.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let [tag, first, rest @ ..] = der else { return None };
    let (length, rest) = match *first {
        short @ ..=0x7f => (usize::from(short), rest),
        long @ 0x81..=0x83 => {
            let (octets, rest) = rest.split_at_checked(usize::from(long - 0x80))?;
            (octets.iter().fold(0, |length, octet| length << 8 | usize::from(*octet)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((*tag, content, rest))
}
