//! A certificate with its key, and the tests that it must pass before it is used.

use aws_lc_rs::digest::{SHA256, digest};
use config::certificate;
use rustls::{
    crypto::aws_lc_rs::default_provider,
    pki_types::{CertificateDer, ServerName, UnixTime},
    sign::CertifiedKey,
};
use std::{fmt, fs, path::Path, sync::Arc, time::Duration};
use x509_parser::parse_x509_certificate;

/// A certificate with those that signed it, and its key.
#[derive(Clone)]
pub struct Bundle {
    /// The certificate chain and its key, for TLS.
    pub pair: Arc<CertifiedKey>,
    /// `notBefore`, in seconds since 1970.
    pub not_before: u64,
    /// `notAfter`, in seconds since 1970.
    pub not_after: u64,
    /// DNS names of the certificate, in lower case.
    pub names: Vec<String>,
}

impl fmt::Debug for Bundle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bundle").field("names", &self.names).field("not_after", &self.not_after).finish()
    }
}

impl Bundle {
    /// Reads a file with a certificate, those that signed it, and its key.
    ///
    /// # Errors
    /// The file cannot be read or used; the text names it.
    pub fn read(path: &Path) -> Result<Self, String> {
        let bytes = fs::read(path).map_err(|e| format!("read the certificate {}: {e}", path.display()))?;
        Self::of(&bytes, path)
    }

    /// Reads what is, or will be, the content of this file.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn of(bytes: &[u8], path: &Path) -> Result<Self, String> {
        let words = |unusable: certificate::Unusable| unusable.to_string();
        let chain = certificate::chain_in(bytes, path).map_err(words)?;
        let key = certificate::key_in(bytes, path).map_err(words)?;
        Self::new(certificate::pair(chain, key, path).map_err(words)?)
    }

    fn new(pair: CertifiedKey) -> Result<Self, String> {
        let own = pair.end_entity_cert().map_err(|e| format!("read the certificate: {e}"))?;
        let (_, parsed) = parse_x509_certificate(own).map_err(|e| format!("read the certificate: {e}"))?;
        let seconds = |time: x509_parser::time::ASN1Time| u64::try_from(time.timestamp()).unwrap_or_default();
        let validity = parsed.validity();
        let (not_before, not_after) = (seconds(validity.not_before), seconds(validity.not_after));
        let names = certificate::names(own);
        Ok(Self { pair: Arc::new(pair), not_before, not_after, names })
    }

    /// The certificate itself, without those that signed it.
    pub fn own(&self) -> &CertificateDer<'static> {
        &self.pair.cert[0]
    }

    /// A number from 0 to 1 that is always the same for this certificate, and another one for the next.
    pub fn spread(&self) -> f64 {
        let hash = digest(&SHA256, self.own());
        let first = hash.as_ref().iter().take(4).fold(0_u32, |sum, octet| sum << 8 | u32::from(*octet));
        f64::from(first) / f64::from(u32::MAX)
    }

    /// Returns whether the certificate has all these names. It may have more, which the authority added or the configuration had
    /// before.
    pub fn has_names(&self, names: &[String]) -> bool {
        names.iter().all(|name| self.names.contains(name))
    }

    /// Checks that clients can accept the certificate now: its names, its time, its key, and that each certificate of the
    /// chain was signed by the next one. The last one is trusted: whether clients know its signer is not known here.
    ///
    /// # Errors
    /// The first check that failed, such as `the new certificate does not have the name mx.example.com`.
    pub fn check(&self, names: &[String], now_seconds: u64) -> Result<(), String> {
        if let Some(name) = names.iter().find(|name| !self.names.contains(name)) {
            return Err(format!("the new certificate does not have the name {name}"));
        }
        if !(self.not_before..self.not_after).contains(&now_seconds) {
            return Err(
                "the new certificate is not valid now: is the clock of this machine right?".to_owned()
            );
        }
        self.pair.keys_match().map_err(|e| format!("the new certificate does not have the key: {e}"))?;
        self.check_chain(now_seconds).map_err(|e| format!("the chain of the new certificate is broken: {e}"))
    }

    fn check_chain(&self, now_seconds: u64) -> Result<(), webpki::Error> {
        let end = webpki::EndEntityCert::try_from(self.own())?;
        for name in self.names.iter().filter(|name| !name.starts_with("*.")) {
            let server =
                ServerName::try_from(name.as_str()).map_err(|_| webpki::Error::MalformedDnsIdentifier)?;
            end.verify_is_valid_for_subject_name(&server)?;
        }
        let [between @ .., last] = &self.pair.cert[1..] else { return Ok(()) };
        let anchor = webpki::anchor_from_trusted_cert(last)?;
        let now = UnixTime::since_unix_epoch(Duration::from_secs(now_seconds));
        let algorithms = default_provider().signature_verification_algorithms.all;
        let usage = webpki::KeyUsage::server_auth();
        end.verify_for_usage(algorithms, &[anchor], between, now, usage, None, None).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};

    /// 2026-06-01.
    const NOW: u64 = 1_780_272_000;

    struct Made {
        pem: String,
        issuer: Issuer<'static, KeyPair>,
    }

    fn params(names: &[&str]) -> CertificateParams {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        (params.not_before, params.not_after) = (date_time_ymd(2026, 5, 1), date_time_ymd(2026, 7, 30));
        params
    }

    fn authority(signer: Option<&Made>) -> Made {
        let mut params = params(&[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let made = match signer {
            Some(signer) => params.signed_by(&key, &signer.issuer),
            None => params.self_signed(&key),
        };
        Made { pem: made.unwrap().pem(), issuer: Issuer::new(params, key) }
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    /// A certificate of an intermediate authority with these names, with the chain and the key that are given, or its own.
    fn bundle(shown: &[&str], chain: Option<&str>, key: Option<&str>) -> Result<Bundle, String> {
        let root = authority(None);
        let between = authority(Some(&root));
        let own = KeyPair::generate().unwrap();
        let made = params(shown).signed_by(&own, &between.issuer).unwrap();
        let own_key = own.serialize_pem();
        let chain = chain.map_or(format!("{}{}", between.pem, root.pem), str::to_owned);
        let pem = format!("{}{chain}{}", made.pem(), key.unwrap_or(&own_key));
        Bundle::of(pem.as_bytes(), Path::new("certificate.pem"))
    }

    #[test]
    fn a_certificate_with_its_chain_and_key_is_good() {
        let good = bundle(&["mx.test", "Mail.test"], None, None).unwrap();
        assert_eq!(good.check(&names(&["mx.test", "mail.test"]), NOW), Ok(()));
        assert_eq!(good.check(&names(&["mx.test"]), NOW), Ok(()));
        assert!(good.has_names(&names(&["mail.test"])) && !good.has_names(&names(&["mail.test", "a.test"])));
        assert_eq!((good.not_before, good.not_after), (1_777_593_600, 1_785_369_600));
        assert!((0.0..=1.0).contains(&good.spread()));
    }

    #[test]
    fn what_clients_would_refuse_is_refused() {
        let good = bundle(&["mx.test"], None, None).unwrap();
        let not_there = good.check(&names(&["mx.test", "other.test"]), NOW).unwrap_err();
        assert!(not_there.contains("does not have the name other.test"), "{not_there}");
        for seconds in [good.not_before - 1, good.not_after] {
            assert!(good.check(&names(&["mx.test"]), seconds).unwrap_err().contains("not valid now"));
        }
        // The certificate of another authority behind it: both have the same name, and another key.
        let (first, second) = (authority(None), authority(None));
        let foreign = bundle(&["mx.test"], Some(&format!("{}{}", first.pem, second.pem)), None).unwrap();
        let broken = foreign.check(&names(&["mx.test"]), NOW).unwrap_err();
        assert!(broken.contains("chain of the new certificate is broken"), "{broken}");
        let key = KeyPair::generate().unwrap().serialize_pem();
        let mismatch = bundle(&["mx.test"], None, Some(&key)).unwrap_err();
        assert!(mismatch.contains("key of another certificate"), "{mismatch}");
    }
}
