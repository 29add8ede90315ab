//! The server's certificate: the operator's, or one made for the embedded default.

use aws_lc_rs::digest;
use config::certificate::{self, Unusable};
use rustls::{
    ServerConfig, SupportedProtocolVersion,
    crypto::CryptoProvider,
    pki_types::PrivateKeyDer,
    sign::{CertifiedKey, SingleCertAndKey},
};
use std::{path::Path, sync::Arc};

/// The only provider in the tree, named wherever a configuration is built.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// The TLS settings of listeners, and the channel binding `tls-server-end-point` of their certificate.
pub(crate) type ServerTls = (Arc<ServerConfig>, Option<Arc<[u8]>>);

/// Returns the TLS settings of listeners.
///
/// # Errors
/// In words, naming the file.
pub(crate) fn server_config(settings: &config::Settings) -> Result<ServerTls, String> {
    let pair = match (&settings.tls.certificate, &settings.tls.key) {
        (Some(certificate), Some(key)) => read(certificate, key).map_err(|e| e.to_string())?,
        _ => self_signed(&settings.hostname)?,
    };
    let end_point = pair.cert.first().and_then(|certificate| end_point(certificate));
    let config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(versions(settings))
        .map_err(|e| format!("set up TLS: {e}"))?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(pair)));
    Ok((Arc::new(config), end_point))
}

/// Returns the channel binding of a certificate (RFC 5929 §4.1): its hash by the function of its signature, and by SHA-256 in place of MD5
/// and SHA-1. None if that function is not known, as with Ed25519.
fn end_point(certificate: &[u8]) -> Option<Arc<[u8]>> {
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

/// Returns the TLS versions for inbound and outbound connections.
pub(crate) fn versions(settings: &config::Settings) -> &'static [&'static SupportedProtocolVersion] {
    static FROM_12: &[&SupportedProtocolVersion] = &[&rustls::version::TLS12, &rustls::version::TLS13];
    static FROM_13: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13];
    match settings.tls.min_version {
        config::TlsVersion::V12 => FROM_12,
        config::TlsVersion::V13 => FROM_13,
    }
}

fn read(certificate: &Path, key: &Path) -> Result<CertifiedKey, Unusable> {
    certificate::pair(certificate::chain(certificate)?, certificate::key(key)?, key)
}

/// Good enough for opportunistic TLS, which asks for no name.
fn self_signed(hostname: &str) -> Result<CertifiedKey, String> {
    let made = rcgen::generate_simple_self_signed([hostname.to_owned()]);
    let made = made.map_err(|e| format!("make a self-signed certificate: {e}"))?;
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    CertifiedKey::from_der(vec![made.cert.der().clone()], key, &provider())
        .map_err(|e| format!("use a self-signed certificate: {e}"))
}
