//! Patterns of client certificates.

use crate::{AddressPattern, DomainPattern};
use mail::{ClientCertificate, Mailbox};
use std::fmt;

/// A pattern over client certificates. Names count only in certificates of trusted authorities.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum CertificatePattern {
    /// `*`: every trusted certificate.
    Trusted,
    /// `none`: the client has shown no certificate.
    None,
    /// `sha256:…`, as [`ClientCertificate::fingerprint`] has it. The certificate need not be trusted.
    Fingerprint(Box<str>),
    /// `cn:NAME`: the common name of the subject, in lower case.
    CommonName(Box<str>),
    /// `user@example.com` or `user@*`: an e-mail address.
    Address(AddressPattern),
    /// `example.com` or `*.example.com`: a host name.
    Host(DomainPattern),
}

impl CertificatePattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// The correct form.
    pub fn parse(text: &str) -> Result<Self, String> {
        const FORMS: &str = "write \"*\", \"none\", \"sha256:FINGERPRINT\", \"jane@example.com\", \"mx.example.com\", \"*.example.com\" or \"cn:NAME\"";
        let forms = || FORMS.to_owned();
        match text {
            "*" => return Ok(Self::Trusted),
            "none" => return Ok(Self::None),
            _ => {}
        }
        if text.starts_with("sha256:") {
            let help = "write sha256: and 64 hexadecimal digits, as `openssl x509 -noout -fingerprint -sha256` shows them";
            return ClientCertificate::read_fingerprint(text).map(Self::Fingerprint).ok_or(help.to_owned());
        }
        if let Some(name) = text.strip_prefix("cn:") {
            let is_name = !name.is_empty() && !name.contains(char::is_control);
            return if is_name { Ok(Self::CommonName(name.to_lowercase().into())) } else { Err(forms()) };
        }
        if text.contains('@') {
            return AddressPattern::parse(text).map(Self::Address).map_err(|_| forms());
        }
        DomainPattern::parse(text).map(Self::Host).map_err(|_| forms())
    }

    /// Returns whether the pattern matches the certificate that the client showed, if it showed one.
    pub fn matches(&self, shown: Option<&ClientCertificate>) -> bool {
        let trusted = shown.filter(|certificate| certificate.is_trusted);
        match self {
            Self::Trusted => trusted.is_some(),
            Self::None => shown.is_none(),
            Self::Fingerprint(fingerprint) => {
                shown.is_some_and(|certificate| certificate.fingerprint == *fingerprint)
            }
            Self::CommonName(name) => trusted
                .and_then(|certificate| certificate.common_name.as_deref())
                .is_some_and(|own| own.to_lowercase() == **name),
            Self::Address(pattern) => trusted.is_some_and(|certificate| {
                let mailboxes =
                    certificate.addresses.iter().filter_map(|text| Mailbox::parse(text, true).ok());
                mailboxes.into_iter().any(|mailbox| pattern.matches(&mailbox))
            }),
            Self::Host(pattern) => {
                trusted.is_some_and(|certificate| certificate.hosts.iter().any(|host| pattern.matches(host)))
            }
        }
    }

    /// Returns whether the pattern matches everything that `other` matches.
    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Trusted, Self::CommonName(_) | Self::Address(_) | Self::Host(_)) => true,
            (Self::Address(wide), Self::Address(narrow)) => wide.covers(narrow),
            (Self::Host(wide), Self::Host(narrow)) => wide.covers(narrow),
            _ => self == other,
        }
    }
}

impl fmt::Display for CertificatePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Trusted => f.write_str("*"),
            Self::None => f.write_str("none"),
            Self::Fingerprint(fingerprint) => write!(f, "sha256:{fingerprint}"),
            Self::CommonName(name) => write!(f, "cn:{name}"),
            Self::Address(pattern) => pattern.fmt(f),
            Self::Host(pattern) => pattern.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> CertificatePattern {
        CertificatePattern::parse(text).unwrap_or_else(|why| panic!("{text}: {why}"))
    }

    #[test]
    fn names_count_in_trusted_certificates_only_and_fingerprints_in_all() {
        let mut certificate = ClientCertificate {
            fingerprint: "ab".repeat(32).into(),
            is_trusted: true,
            addresses: vec!["Jane@example.com".into()],
            hosts: vec!["mx.example.com".into()],
            common_name: Some("Jane Doe".into()),
            issuer: None,
        };
        let fingerprint = format!("sha256:{}", ["AB"; 32].join(":"));
        let by_name = ["*", "jane@example.com", "jane@*", "*.example.com", "mx.example.com", "cn:jane doe"];
        for text in by_name.into_iter().chain([&*fingerprint]) {
            assert!(pattern(text).matches(Some(&certificate)), "{text}");
            assert!(!pattern(text).matches(None), "{text}");
        }
        for text in
            ["none", "joe@example.com", "example.com", "cn:jane", &format!("sha256:{}", "ac".repeat(32))]
        {
            assert!(!pattern(text).matches(Some(&certificate)), "{text}");
        }
        certificate.is_trusted = false;
        assert!(by_name.iter().all(|text| !pattern(text).matches(Some(&certificate))));
        assert!(pattern(&fingerprint).matches(Some(&certificate)) && pattern("none").matches(None));
    }

    #[test]
    fn patterns_print_as_they_are_read_and_wide_ones_cover_narrow_ones() {
        for text in ["*", "none", "jane@example.com", "*.example.com", "cn:jane doe"] {
            assert_eq!(pattern(text).to_string(), text);
        }
        for bad in ["", "sha256:ab", "cn:", "a b", "<>"] {
            assert!(CertificatePattern::parse(bad).is_err(), "{bad}");
        }
        assert!(
            pattern("*").covers(&pattern("jane@example.com"))
                && pattern("jane@*").covers(&pattern("jane@a.test"))
        );
        let fingerprint = pattern(&format!("sha256:{}", "ab".repeat(32)));
        assert!(!pattern("*").covers(&fingerprint) && fingerprint.covers(&fingerprint));
    }
}
