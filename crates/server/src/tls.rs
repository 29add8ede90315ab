//! The server's certificate: the operator's, or one made for the embedded default.

mod clients;

use super::acme::ObtainedCertificate;
use aws_lc_rs::digest;
use clients::ClientAuthorities;
use config::certificate;
use control::{CertificateInfo, CertificateOrigin};
use inbound::{CertificateTls, EndPoints};
use mail::UnixMillis;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use rustls::{
    ServerConfig,
    pki_types::PrivateKeyDer,
    server::{ClientHello, ResolvesServerCert, danger::ClientCertVerifier},
    sign::CertifiedKey,
};
use std::{collections::HashMap, sync::Arc, time::Duration};

/// The validity of a self-signed certificate, and the time by which it begins before it is made.
const SELF_SIGNED_FOR: Duration = Duration::from_secs(2 * 365 * 86_400);
const SELF_SIGNED_EARLIER: Duration = Duration::from_secs(86_400);

/// How listeners do TLS, with the certificates of one configuration.
pub(crate) struct ServerTls {
    /// For listeners that ask for no certificate.
    pub(crate) plain: Arc<ServerConfig>,
    /// For those that do.
    pub(crate) certificates: Arc<CertificateTls>,
    /// The channel bindings `tls-server-end-point` of the server's certificates.
    pub(crate) end_points: EndPoints,
    shown: Arc<Certificates>,
}

impl ServerTls {
    /// Returns the certificates that clients are shown.
    pub(crate) fn describe(&self) -> Vec<CertificateInfo> {
        self.shown.describe()
    }

    /// Returns the expiry of the certificate that expires first, in seconds since 1970; zero if none can be read.
    pub(crate) fn expires_seconds(&self) -> u64 {
        self.describe().iter().map(|one| one.expires_seconds).min().unwrap_or_default()
    }
}

/// Returns the TLS settings of listeners.
///
/// # Errors
/// A file that cannot be used; the text names it.
pub(crate) fn server_config(
    settings: &config::Settings,
    obtained: &ObtainedCertificate,
) -> Result<ServerTls, String> {
    let certificates = Certificates::read(settings, obtained)?;
    let authorities = ClientAuthorities::read(settings, certificate::provider())?;
    // Each has TLS sessions of its own: one that began without a certificate is not resumed where one is required.
    let config = |client: Option<Arc<dyn ClientCertVerifier>>| {
        let builder = ServerConfig::builder_with_provider(certificate::provider())
            .with_protocol_versions(certificate::versions(settings));
        let builder = builder.map_err(|e| format!("set up TLS: {e}"))?;
        let builder = match client {
            Some(verifier) => builder.with_client_cert_verifier(verifier),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_cert_resolver(certificates.clone());
        // The strongest cipher suite that both know, and not the first that the client likes.
        config.ignore_client_order = true;
        Ok::<_, String>(Arc::new(config))
    };
    let (ask, require) =
        (config(Some(authorities.verifier(false)))?, config(Some(authorities.verifier(true)))?);
    Ok(ServerTls {
        plain: config(None)?,
        certificates: Arc::new(CertificateTls::new(ask, require, move |shown| authorities.identify(shown))),
        end_points: certificates.clone().end_points(),
        shown: certificates,
    })
}

/// The certificates that clients are shown, chosen by the name that they ask for.
#[derive(Debug)]
struct Certificates {
    /// For clients that ask for no name, or for one that no certificate has.
    default: Arc<CertifiedKey>,
    /// The default was made by this process: any other certificate is better.
    is_self_signed: bool,
    /// The one that the daemon obtains, and may obtain again at any time.
    obtained: ObtainedCertificate,
    /// By name in lower case; a wildcard as it stands in the certificate.
    by_name: HashMap<String, Arc<CertifiedKey>>,
}

impl Certificates {
    fn read(settings: &config::Settings, obtained: &ObtainedCertificate) -> Result<Arc<Self>, String> {
        let (pair, is_self_signed) = match (&settings.tls.certificate, &settings.tls.key) {
            (Some(certificate), Some(key)) => {
                (certificate::read_pair(certificate, key).map_err(|e| e.to_string())?, false)
            }
            _ => (self_signed(&settings.hostname)?, true),
        };
        let obtained = obtained.clone();
        let mut certificates =
            Self { default: Arc::new(pair), is_self_signed, obtained, by_name: HashMap::new() };
        for certificate in &settings.certificates {
            let pair = certificate::read_pair(&certificate.chain, &certificate.key);
            let pair = Arc::new(pair.map_err(|e| e.to_string())?);
            for name in certificate::names(&pair.cert[0]) {
                // The first section with a name has it.
                certificates.by_name.entry(name).or_insert_with(|| pair.clone());
            }
        }
        Ok(Arc::new(certificates))
    }

    fn of(&self, name: Option<&str>) -> Arc<CertifiedKey> {
        let name = name.map(str::to_ascii_lowercase);
        let wildcard =
            name.as_ref().and_then(|name| name.split_once('.')).map(|(_, domain)| format!("*.{domain}"));
        let names = || [&name, &wildcard].into_iter().flatten();
        if let Some(found) = names().find_map(|name| self.by_name.get(name)) {
            return found.clone();
        }
        match self.obtained.get() {
            Some(own) if self.is_self_signed || names().any(|name| own.names.contains(name)) => own.pair,
            _ => self.default.clone(),
        }
    }

    fn describe(&self) -> Vec<CertificateInfo> {
        let obtained = self.obtained.get().map(|own| (own.pair, CertificateOrigin::Acme));
        let default = match (self.is_self_signed, &obtained) {
            // In its place stands the one that was obtained.
            (true, Some(_)) => None,
            (true, None) => Some((self.default.clone(), CertificateOrigin::SelfSigned)),
            (false, _) => Some((self.default.clone(), CertificateOrigin::File)),
        };
        let others = self.by_name.values().map(|pair| (pair.clone(), CertificateOrigin::File));
        let mut all: Vec<CertificateInfo> = Vec::new();
        for (pair, origin) in default.into_iter().chain(obtained).chain(others) {
            let Some(own) = pair.cert.first() else { continue };
            let Some(expires_seconds) = expires_seconds(own) else { continue };
            let info = CertificateInfo { names: certificate::names(own), expires_seconds, origin };
            // One with several names is found by each.
            if !all.contains(&info) {
                all.push(info);
            }
        }
        all
    }

    fn end_points(self: Arc<Self>) -> EndPoints {
        EndPoints::new(move |name| self.of(name).cert.first().and_then(|certificate| end_point(certificate)))
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.of(hello.server_name()))
    }
}

pub(super) fn expires_seconds(certificate: &[u8]) -> Option<u64> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    u64::try_from(parsed.validity().not_after.timestamp()).ok()
}

/// Returns the channel binding of a certificate (RFC 5929 §4.1): its hash by the function of its signature, and by SHA-256 in place of MD5
/// and SHA-1. None if that function is not known, as with Ed25519.
fn end_point(certificate: &[u8]) -> Option<Box<[u8]>> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    let algorithm = match parsed.signature_algorithm.algorithm.to_id_string().as_str() {
        // MD5, SHA-1 and SHA-256 with RSA; SHA-1 and SHA-256 with ECDSA.
        "1.2.840.113549.1.1.4"
        | "1.2.840.113549.1.1.5"
        | "1.2.840.113549.1.1.11"
        | "1.2.840.10045.4.1"
        | "1.2.840.10045.4.3.2" => &digest::SHA256,
        // SHA-384 with RSA and ECDSA.
        "1.2.840.113549.1.1.12" | "1.2.840.10045.4.3.3" => &digest::SHA384,
        // SHA-512 with RSA and ECDSA.
        "1.2.840.113549.1.1.13" | "1.2.840.10045.4.3.4" => &digest::SHA512,
        _ => return None,
    };
    Some(digest::digest(algorithm, certificate).as_ref().into())
}

/// Good enough for opportunistic TLS, which asks for no name.
fn self_signed(hostname: &str) -> Result<CertifiedKey, String> {
    let failed = |e: rcgen::Error| format!("make a self-signed certificate: {e}");
    let mut parameters = CertificateParams::new([hostname.to_owned()]).map_err(failed)?;
    parameters.distinguished_name = DistinguishedName::new();
    parameters.distinguished_name.push(DnType::CommonName, hostname);
    let now = rcgen::date_time_ymd(1970, 1, 1) + Duration::from_millis(UnixMillis::now().0);
    // Clocks of clients may be behind.
    (parameters.not_before, parameters.not_after) = (now - SELF_SIGNED_EARLIER, now + SELF_SIGNED_FOR);
    let pair = KeyPair::generate().map_err(failed)?;
    let made = parameters.self_signed(&pair).map_err(failed)?;
    let key = PrivateKeyDer::Pkcs8(pair.serialize_der().into());
    CertifiedKey::from_der(vec![made.der().clone()], key, &certificate::provider())
        .map_err(|e| format!("use a self-signed certificate: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// Writes a certificate for these names, and its key.
    fn certify(dir: &Path, file: &str, names: &[&str]) {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        std::fs::write(dir.join(format!("{file}.pem")), made.cert.pem()).unwrap();
        std::fs::write(dir.join(format!("{file}.key")), made.signing_key.serialize_pem()).unwrap();
    }

    #[test]
    fn a_self_signed_certificate_names_the_host_and_is_valid_for_two_years() {
        let made = self_signed("mx.test").unwrap();
        let (_, parsed) = x509_parser::parse_x509_certificate(&made.cert[0]).unwrap();
        assert_eq!(parsed.subject().to_string(), "CN=mx.test");
        assert_eq!(certificate::names(&made.cert[0]), ["mx.test"]);
        let now = UnixMillis::now().0 / 1000;
        let days = (expires_seconds(&made.cert[0]).unwrap() - now + 3600) / 86_400;
        assert_eq!(days, 2 * 365);
    }

    #[test]
    fn a_client_gets_the_certificate_of_the_name_that_it_asks_for() {
        let dir = tempfile::tempdir().unwrap();
        certify(dir.path(), "default", &["mx.test"]);
        certify(dir.path(), "a", &["a.test", "*.a.test", "mx.test"]);
        certify(dir.path(), "b", &["B.test", "x.a.test"]);
        let mut text =
            "hostname = \"mx.test\"\n[tls]\ncertificate = \"default.pem\"\nkey = \"default.key\"\n"
                .to_owned();
        for file in ["a", "b"] {
            text += &format!("[[certificate]]\nchain = \"{file}.pem\"\nkey = \"{file}.key\"\n");
        }
        let path = dir.path().join("postrider.toml");
        std::fs::write(&path, text).unwrap();
        let settings = config::load(Some(&path)).unwrap_or_else(|problems| panic!("{problems}"));
        let certificates = Certificates::read(&settings, &ObtainedCertificate::default()).unwrap();
        for (name, file) in [
            (None, "default"),
            (Some("else.test"), "default"),
            (Some("a.test"), "a"),
            (Some("mx.test"), "a"),
            (Some("Y.A.Test"), "a"),
            (Some("x.y.a.test"), "default"),
            (Some("x.a.test"), "b"),
            (Some("b.test"), "b"),
            (Some("test"), "default"),
        ] {
            let expected = certificate::chain(&dir.path().join(format!("{file}.pem"))).unwrap();
            assert_eq!(certificates.of(name).cert[0], expected[0], "{name:?}");
        }
    }
}
