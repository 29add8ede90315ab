//! RSA signatures by keys under 2,048 bits (RFC 8017 §8), which aws-lc-rs does not verify in all of TLS' forms.
//!
//! Nothing here is secret: only public keys and signatures are computed with.

use aws_lc_rs::digest::{self, Algorithm, digest};
use der::{Decode as _, Reader as _, SliceReader, asn1::UintRef};
use num_bigint::BigUint;
use rustls::{
    SignatureScheme,
    pki_types::{AlgorithmIdentifier, InvalidSignature, SignatureVerificationAlgorithm, alg_id},
};

/// Keys outside of these sizes are refused: smaller ones have no room for a signature, larger ones are not small.
const MODULUS_BITS: std::ops::Range<u64> = 512..2048;
/// A public exponent: nearly all are 65,537; longer ones only cost time.
const EXPONENT_BITS_MAX: u64 = 64;

/// The padding of the digest (RFC 8017 §9).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Padding {
    /// EMSA-PKCS1-v1_5, with the DER prefix of the digest's algorithm.
    Pkcs1(&'static [u8]),
    /// EMSA-PSS with a salt as long as the digest (RFC 8446 §4.2.3).
    Pss,
}

#[derive(Debug)]
struct SmallRsa {
    digest: &'static Algorithm,
    padding: Padding,
}

const SHA256_PREFIX: &[u8] = &[
    0x30, 0x31, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01, 0x05, 0x00,
    0x04, 0x20,
];
const SHA384_PREFIX: &[u8] = &[
    0x30, 0x41, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x02, 0x05, 0x00,
    0x04, 0x30,
];
const SHA512_PREFIX: &[u8] = &[
    0x30, 0x51, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x03, 0x05, 0x00,
    0x04, 0x40,
];

static PKCS1_SHA256: SmallRsa = SmallRsa { digest: &digest::SHA256, padding: Padding::Pkcs1(SHA256_PREFIX) };
static PKCS1_SHA384: SmallRsa = SmallRsa { digest: &digest::SHA384, padding: Padding::Pkcs1(SHA384_PREFIX) };
static PKCS1_SHA512: SmallRsa = SmallRsa { digest: &digest::SHA512, padding: Padding::Pkcs1(SHA512_PREFIX) };
static PSS_SHA256: SmallRsa = SmallRsa { digest: &digest::SHA256, padding: Padding::Pss };
static PSS_SHA384: SmallRsa = SmallRsa { digest: &digest::SHA384, padding: Padding::Pss };
static PSS_SHA512: SmallRsa = SmallRsa { digest: &digest::SHA512, padding: Padding::Pss };

/// Verifies signatures of this scheme by small RSA keys; `None` if it is no RSA scheme.
pub(super) fn algorithm(scheme: SignatureScheme) -> Option<&'static dyn SignatureVerificationAlgorithm> {
    Some(match scheme {
        SignatureScheme::RSA_PKCS1_SHA256 => &PKCS1_SHA256,
        SignatureScheme::RSA_PKCS1_SHA384 => &PKCS1_SHA384,
        SignatureScheme::RSA_PKCS1_SHA512 => &PKCS1_SHA512,
        SignatureScheme::RSA_PSS_SHA256 => &PSS_SHA256,
        SignatureScheme::RSA_PSS_SHA384 => &PSS_SHA384,
        SignatureScheme::RSA_PSS_SHA512 => &PSS_SHA512,
        _ => return None,
    })
}

impl SignatureVerificationAlgorithm for SmallRsa {
    fn verify_signature(&self, key: &[u8], message: &[u8], signature: &[u8]) -> Result<(), InvalidSignature> {
        let (modulus, exponent) = read_key(key).map_err(|_| InvalidSignature)?;
        let bits = modulus.bits();
        let signature_value = BigUint::from_bytes_be(signature);
        let is_usable = MODULUS_BITS.contains(&bits)
            && (2..=EXPONENT_BITS_MAX).contains(&exponent.bits())
            && modulus.bit(0)
            && signature.len() as u64 == bits.div_ceil(8)
            && signature_value < modulus;
        if !is_usable {
            return Err(InvalidSignature);
        }
        let value = signature_value.modpow(&exponent, &modulus).to_bytes_be();
        let hash = digest(self.digest, message);
        let fits = match self.padding {
            Padding::Pkcs1(prefix) => is_pkcs1(&value, signature.len(), prefix, hash.as_ref()),
            Padding::Pss => is_pss(&value, bits, self.digest, hash.as_ref()),
        };
        if fits { Ok(()) } else { Err(InvalidSignature) }
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        alg_id::RSA_ENCRYPTION
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        let is_pss = self.padding == Padding::Pss;
        match (self.digest.output_len, is_pss) {
            (32, false) => alg_id::RSA_PKCS1_SHA256,
            (48, false) => alg_id::RSA_PKCS1_SHA384,
            (_, false) => alg_id::RSA_PKCS1_SHA512,
            (32, true) => alg_id::RSA_PSS_SHA256,
            (48, true) => alg_id::RSA_PSS_SHA384,
            (_, true) => alg_id::RSA_PSS_SHA512,
        }
    }
}

/// Modulus and exponent of an RSAPublicKey (RFC 8017 §A.1.1).
fn read_key(key: &[u8]) -> der::Result<(BigUint, BigUint)> {
    let mut outer = SliceReader::new(key)?;
    let (modulus, exponent) =
        outer.sequence(|inner| Ok((UintRef::decode(inner)?, UintRef::decode(inner)?)))?;
    let number = |bytes: UintRef<'_>| BigUint::from_bytes_be(bytes.as_bytes());
    outer.finish((number(modulus), number(exponent)))
}

/// EMSA-PKCS1-v1_5 (RFC 8017 §9.2): `00 01 FF … FF 00 prefix hash`, at least eight times FF. The value has lost
/// its leading zero.
fn is_pkcs1(value: &[u8], length: usize, prefix: &[u8], hash: &[u8]) -> bool {
    let Some(fill) = length.checked_sub(3 + prefix.len() + hash.len()).filter(|fill| *fill >= 8) else {
        return false;
    };
    let padding = [&[1][..], &vec![0xff; fill], &[0]].concat();
    value == [&padding[..], prefix, hash].concat()
}

/// EMSA-PSS-VERIFY (RFC 8017 §9.1.2) with MGF1 over the same digest.
fn is_pss(value: &[u8], modulus_bits: u64, algorithm: &'static Algorithm, hash: &[u8]) -> bool {
    let encoded_bits = (modulus_bits - 1) as usize;
    let length = encoded_bits.div_ceil(8);
    let hash_length = hash.len();
    // Steps 3 and 4, with a salt as long as the digest.
    if length < 2 * hash_length + 2 || value.len() > length {
        return false;
    }
    let encoded = [&vec![0; length - value.len()][..], value].concat();
    let (masked, rest) = encoded.split_at(length - hash_length - 1);
    let (seed, trailer) = rest.split_at(hash_length);
    let free_bits = 8 * length - encoded_bits;
    let top = 0xff_u8.checked_shr(free_bits as u32).unwrap_or(0);
    if trailer != [0xbc] || masked[0] & !top != 0 {
        return false;
    }
    let mut data: Vec<u8> =
        masked.iter().zip(mask(algorithm, seed, masked.len())).map(|(byte, mask)| byte ^ mask).collect();
    data[0] &= top;
    let (padding, salt) = data.split_at(data.len() - hash_length);
    let Some((one, zeros)) = padding.split_last() else { return false };
    if *one != 1 || zeros.iter().any(|byte| *byte != 0) {
        return false;
    }
    digest(algorithm, &[&[0; 8][..], hash, salt].concat()).as_ref() == seed
}

/// MGF1 (RFC 8017 §B.2.1).
fn mask(algorithm: &'static Algorithm, seed: &[u8], length: usize) -> Vec<u8> {
    let blocks = (0_u32..).map(|counter| digest(algorithm, &[seed, &counter.to_be_bytes()].concat()));
    let mut out = Vec::with_capacity(length + algorithm.output_len);
    for block in blocks {
        out.extend_from_slice(block.as_ref());
        if out.len() >= length {
            break;
        }
    }
    out.truncate(length);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::pki_types::{CertificateDer, pem::PemObject as _};

    /// Made by `openssl dgst -sign` with the key of tests/tls/v1-rsa1024.pem, over `what is signed`.
    const SIGNATURES: &str = include_str!("../../tests/tls/signatures.txt");

    fn key() -> Vec<u8> {
        let pem = include_bytes!("../../tests/tls/v1-rsa1024.pem");
        let certificate = CertificateDer::from_pem_slice(pem).unwrap();
        // The RSAPublicKey of 140 octets is the only sequence of its length.
        let at = certificate.windows(3).position(|w| w == [0x30, 0x81, 0x89]).unwrap();
        certificate[at..at + 140].to_vec()
    }

    fn signature(name: &str) -> Vec<u8> {
        let line = SIGNATURES.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim();
        (0..line.len()).step_by(2).map(|i| u8::from_str_radix(&line[i..i + 2], 16).unwrap()).collect()
    }

    #[test]
    fn signatures_of_another_implementation_are_verified_and_no_others() {
        let key = key();
        for (name, algorithm) in [
            ("p1_256", &PKCS1_SHA256),
            ("p1_384", &PKCS1_SHA384),
            ("p1_512", &PKCS1_SHA512),
            ("pss_256", &PSS_SHA256),
            ("pss_384", &PSS_SHA384),
        ] {
            let good = signature(name);
            assert!(algorithm.verify_signature(&key, b"what is signed", &good).is_ok(), "{name}");
            assert!(algorithm.verify_signature(&key, b"what is signed!", &good).is_err(), "{name}");
            assert!(algorithm.verify_signature(&key, b"what is signed", &good[1..]).is_err(), "{name}");
            for at in [0, 1, 60, 127] {
                let mut bad = good.clone();
                bad[at] ^= 4;
                assert!(algorithm.verify_signature(&key, b"what is signed", &bad).is_err(), "{name} {at}");
            }
            let others = [&PKCS1_SHA256, &PKCS1_SHA384, &PKCS1_SHA512, &PSS_SHA256, &PSS_SHA384, &PSS_SHA512];
            for other in others.into_iter().filter(|other| !std::ptr::eq(*other, algorithm)) {
                assert!(
                    other.verify_signature(&key, b"what is signed", &good).is_err(),
                    "{name} by {other:?}"
                );
            }
        }
    }

    #[test]
    fn keys_that_make_no_sense_are_refused() {
        let sequence = |content: &[u8]| [&[0x30, content.len() as u8][..], content].concat();
        for key in
            [vec![], sequence(&[]), sequence(&[2, 1, 0, 2, 1, 3]), sequence(&[2, 1, 15, 2, 1, 3, 5, 0])]
        {
            for signature in [&[][..], &[1], &[0; 128]] {
                assert!(PSS_SHA256.verify_signature(&key, b"", signature).is_err());
                assert!(PKCS1_SHA256.verify_signature(&key, b"", signature).is_err());
            }
        }
    }
}
