//! The server's certificate: the operator's, or one made for the embedded default.

use config::certificate::{self, Unusable};
use rustls::{
    ServerConfig, SupportedProtocolVersion,
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::PrivateKeyDer,
    sign::{CertifiedKey, SingleCertAndKey},
};
use std::{path::Path, sync::Arc};

/// The only provider in the tree, named wherever a configuration is built.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

/// Returns the TLS settings of listeners.
///
/// # Errors
/// In words, naming the file.
pub(crate) fn server_config(settings: &config::Settings) -> Result<Arc<ServerConfig>, String> {
    let pair = match (&settings.tls.certificate, &settings.tls.key) {
        (Some(certificate), Some(key)) => read(certificate, key).map_err(|e| e.to_string())?,
        _ => self_signed(&settings.hostname)?,
    };
    let config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(versions(settings))
        .map_err(|e| format!("set up TLS: {e}"))?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(pair)));
    Ok(Arc::new(config))
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
