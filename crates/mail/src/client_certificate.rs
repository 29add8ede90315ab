//! The certificate that a client showed in its TLS handshake.

/// A client's certificate. The handshake has proved that the client has its private key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClientCertificate {
    /// The SHA-256 of the certificate, in lower-case hexadecimal digits without colons. Empty where it is
    /// not known, as in a rehearsal.
    pub fingerprint: Box<str>,
    /// True if a trusted authority has signed the certificate, and it is valid now. Names of other certificates are what their
    /// owners say.
    pub is_trusted: bool,
    /// The e-mail addresses in the certificate (RFC 5280 §4.2.1.6).
    pub addresses: Vec<Box<str>>,
    /// The host names in the certificate, in lower case.
    pub hosts: Vec<Box<str>>,
    /// CN of the subject; `None` if it has none.
    pub common_name: Option<Box<str>>,
    /// CN of the issuer; `None` if it has none.
    pub issuer: Option<Box<str>>,
}

impl ClientCertificate {
    /// Returns the keys by which maps are asked about the certificate, in their order: the fingerprint as
    /// `sha256:hexadecimal`, and of a trusted certificate its addresses, its host names, and `cn:` with the common name.
    /// All are in lower case.
    pub fn keys(&self) -> Vec<Box<str>> {
        let known =
            (!self.fingerprint.is_empty()).then(|| format!("{FINGERPRINT}{}", self.fingerprint).into());
        let mut keys: Vec<Box<str>> = known.into_iter().collect();
        if self.is_trusted {
            keys.extend(self.addresses.iter().map(|address| address.to_lowercase().into()));
            keys.extend(self.hosts.iter().cloned());
            keys.extend(self.common_name.iter().map(|name| format!("cn:{}", name.to_lowercase()).into()));
        }
        keys
    }

    /// Returns a fingerprint in the form of [`ClientCertificate::fingerprint`], from text with or without colons and behind
    /// `sha256:`; `None` if it is none.
    pub fn read_fingerprint(text: &str) -> Option<Box<str>> {
        let digits: String = text.strip_prefix(FINGERPRINT)?.split(':').collect();
        let is_digest = digits.len() == 64 && digits.bytes().all(|b| b.is_ascii_hexdigit());
        is_digest.then(|| digits.to_ascii_lowercase().into())
    }
}

/// The prefix of fingerprints in keys and in what operators write.
const FINGERPRINT: &str = "sha256:";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_an_untrusted_certificate_are_no_keys() {
        let mut certificate = ClientCertificate {
            fingerprint: "ab".repeat(32).into(),
            addresses: vec!["Jane@example.com".into()],
            hosts: vec!["mx.example.com".into()],
            common_name: Some("Jane".into()),
            ..ClientCertificate::default()
        };
        let fingerprint = format!("sha256:{}", "ab".repeat(32));
        assert_eq!(certificate.keys(), [fingerprint.as_str().into()]);
        certificate.is_trusted = true;
        assert_eq!(
            certificate.keys(),
            [&*fingerprint, "jane@example.com", "mx.example.com", "cn:jane"].map(Box::from)
        );
    }

    #[test]
    fn fingerprints_are_read_as_openssl_writes_them() {
        let colons = ["AB"; 32].join(":");
        let expected: Box<str> = "ab".repeat(32).into();
        for text in [format!("sha256:{colons}"), format!("sha256:{expected}")] {
            assert_eq!(ClientCertificate::read_fingerprint(&text), Some(expected.clone()));
        }
        for bad in ["", "sha256:", "sha256:ab", &*expected, &format!("sha256:{}", "xy".repeat(32))] {
            assert_eq!(ClientCertificate::read_fingerprint(bad), None, "{bad}");
        }
    }
}
