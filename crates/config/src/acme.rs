//! `[acme]`: a certificate that the daemon obtains and renews itself.

use crate::{
    choice::{choice, words},
    listen_address::ListenAddress,
    route::SecretSource,
    section::section,
    value::{Context, Found, Value, Word, text, text_value},
};
use mail::{Domain, HostPort, Mailbox, Program};
use std::{
    fmt,
    net::{IpAddr, Ipv6Addr},
    path::{Path, PathBuf},
};

section! {
    /// A certificate from an authority that speaks ACME (RFC 8555), such as Let's Encrypt. The daemon obtains it and
    /// renews it in time. Clients that ask for one of its names get it, and all others if `[tls]` has no certificate.
    pub Acme = "acme" {
        /// The names of the certificate, which must include the name of this server (`hostname`). Without this key, no
        /// certificate is requested. A wildcard, such as `*.example.com`, needs `challenge = "dns-01"`.
        names: Vec<CertificateName> = "[]",
        /// The URL of the authority's directory.
        directory: AcmeDirectory = "\"https://acme-v02.api.letsencrypt.org/directory\"",
        /// Set this to true if you accept the authority's terms of service. Otherwise, no certificate is requested.
        agree_to_terms: bool = "false",
        /// The mail address to which the authority sends notices about its service.
        contact: Option<Mailbox> = "",
        /// How the authority verifies that the names are yours: `http-01`, by a file at port 80; `tls-alpn-01`, by a
        /// certificate at port 443; or `dns-01`, by a DNS record that the program of `hook` makes.
        challenge: AcmeChallenge = "\"http-01\"",
        /// The address that answers the authority. The authority always connects to port 80 (`http-01`) or 443
        /// (`tls-alpn-01`) of the names, so use another port only if a proxy forwards it. `systemd:NAME` is a socket that
        /// systemd has opened. Default: all addresses of this machine, with that port. Not used with `dns-01`.
        listen: Option<ListenAddress> = "",
        /// The program for `dns-01`: a list of the program and its arguments, or a table as for `pipe` in `[[route]]`.
        /// Three arguments are appended: `present` or `cleanup`, the name of the TXT record, and its text. The program
        /// must exit with 0 when the name servers have the record, or no longer have it. The delivery helper runs it.
        hook: Option<Program> = "",
        /// The identifier of the key from the authority's website, if the authority requires an account there (external
        /// account binding), as Sectigo, HARICA and ZeroSSL do.
        external_account: Option<Word> = "",
        /// The key of `external_account`, in base64url: `file:FILE`, `credential:NAME` for a systemd
        /// credential, or `env:NAME` for a variable of the environment.
        external_key: Option<SecretSource> = "",
        /// PEM file with the certification authorities to trust for the HTTPS of the directory. Without this key,
        /// Mozilla's are used.
        ca_file: Option<PathBuf> = "",
    }
}

impl Acme {
    /// Returns whether a certificate is asked for.
    pub fn is_used(&self) -> bool {
        !self.names.is_empty()
    }

    /// Returns where the authority is answered; none for `dns-01`.
    pub fn listen_address(&self) -> Option<ListenAddress> {
        let port = self.challenge.port()?;
        Some(match &self.listen {
            None => ListenAddress::Ip(IpAddr::V6(Ipv6Addr::UNSPECIFIED), Some(port)),
            Some(ListenAddress::Ip(ip, None)) => ListenAddress::Ip(*ip, Some(port)),
            Some(other) => other.clone(),
        })
    }
}

choice! {
    /// The way in which an authority sees that a name is this server's.
    AcmeChallenge: "one of \"http-01\", \"tls-alpn-01\" and \"dns-01\"" {
        /// A file (RFC 8555 §8.3).
        Http = "http-01",
        /// A certificate (RFC 8737).
        TlsAlpn = "tls-alpn-01",
        /// A record (RFC 8555 §8.4).
        Dns = "dns-01",
    }
}

impl AcmeChallenge {
    /// Returns the port to which the authority comes; none for records.
    pub fn port(self) -> Option<u16> {
        match self {
            Self::Http => Some(80),
            Self::TlsAlpn => Some(443),
            Self::Dns => None,
        }
    }
}

/// A name in a certificate, in lower case: a host name, or a wildcard for one label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateName(pub String);

text_value!(
    CertificateName,
    "a host name",
    "a name such as \"mail.example.com\", or \"*.example.com\"",
    parse_name,
    |name| name.0.clone()
);

fn parse_name(text: &str, _: &Path) -> Result<CertificateName, (String, Option<String>)> {
    let (wildcard, host) = match text.strip_prefix("*.") {
        Some(host) => ("*.", host),
        None => ("", text),
    };
    match Domain::parse(host) {
        Ok(_) if host.rsplit('.').next().is_some_and(|last| last.bytes().all(|b| b.is_ascii_digit())) => {
            Err(("an address: authorities certify names".to_owned(), None))
        }
        Ok(domain) if !host.starts_with('[') && host.contains('.') => {
            Ok(CertificateName(format!("{wildcard}{}", domain.key())))
        }
        Ok(_) => Err(("a name without a dot: no authority certifies it".to_owned(), None)),
        Err(_) => Err(("not a host name".to_owned(), None)),
    }
}

/// The directory of an authority.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcmeDirectory {
    /// Host and port of the ACME server.
    pub server: HostPort,
    /// URL of the directory, as it was written.
    pub url: String,
}

impl fmt::Display for AcmeDirectory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}

text_value!(
    AcmeDirectory,
    "an https URL",
    "the address that the authority gives, such as \"https://acme-v02.api.letsencrypt.org/directory\"",
    parse_directory,
    AcmeDirectory::to_string
);

fn parse_directory(text: &str, _: &Path) -> Result<AcmeDirectory, (String, Option<String>)> {
    let bad = |label: &str| Err((label.to_owned(), None));
    let Some(rest) = text.strip_prefix("https://") else { return bad("does not begin with https://") };
    if !rest.bytes().all(|b| b.is_ascii_graphic()) || rest.contains(['#', '@']) {
        return bad("has a character that is not allowed there");
    }
    let authority = &rest[..rest.find(['/', '?']).unwrap_or(rest.len())];
    let has_port = !authority.ends_with(']') && authority.contains(':');
    let server = if has_port { authority.to_owned() } else { format!("{authority}:443") };
    let server = HostPort::parse(&server).map_err(|label| (label.to_owned(), None))?;
    Ok(AcmeDirectory { server, url: text.to_owned() })
}

/// Reads the key of an external account.
///
/// # Errors
/// The source cannot be read, or does not hold base64url; the text names the source.
pub fn acme_key(source: &SecretSource) -> Result<Vec<u8>, String> {
    let secret = source.secret()?;
    let text = secret.bytes().trim_ascii();
    let text = &text[..text.len() - text.iter().rev().take_while(|octet| **octet == b'=').count()];
    data_encoding::BASE64URL_NOPAD.decode(text).map_err(|_| format!("the key in {source} is not base64url"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_host_names_or_wildcards() {
        let read =
            |text: &str| parse_name(text, Path::new("")).map(|name| name.0).map_err(|(label, _)| label);
        assert_eq!(read("MX.Example.com"), Ok("mx.example.com".to_owned()));
        assert_eq!(read("*.example.com"), Ok("*.example.com".to_owned()));
        assert_eq!(read("bücher.example"), Ok("xn--bcher-kva.example".to_owned()));
        assert_eq!(read("mx"), Err("a name without a dot: no authority certifies it".to_owned()));
        for bad in [
            "",
            "*.",
            "*",
            "a.*.example.com",
            "a b.example.com",
            "[192.0.2.1]",
            "192.0.2.1",
            "user@example.com",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_directory_is_found_by_https_only() {
        let read = |text: &str| parse_directory(text, Path::new(""));
        for (text, server) in [
            ("https://acme-v02.api.letsencrypt.org/directory", "acme-v02.api.letsencrypt.org:443"),
            ("https://127.0.0.1:14000/dir", "127.0.0.1:14000"),
            ("https://[::1]:14000/dir", "[::1]:14000"),
        ] {
            assert_eq!(read(text).unwrap().server.to_string(), server, "{text}");
        }
        for bad in ["http://a.test/dir", "a.test", "https://", "https://u@a.test/", "https://a.test/ b"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
