//! The server's certificate: the operator's, or one made for the embedded default.

use rustls::{
    ServerConfig, SupportedProtocolVersion,
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use std::{path::Path, sync::Arc};

/// The only provider in the tree, named wherever a configuration is built.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

/// What listeners speak TLS with.
///
/// # Errors
/// In words, naming the file.
pub(crate) fn server_config(settings: &config::Settings) -> Result<Arc<ServerConfig>, String> {
    let (chain, key) = match (&settings.tls.certificate, &settings.tls.key) {
        (Some(certificate), Some(key)) => (read_chain(certificate)?, read_key(key)?),
        _ => self_signed(&settings.hostname)?,
    };
    let config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(versions(settings))
        .map_err(|e| format!("set up TLS: {e}"))?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|e| format!("use the certificate and key: {e}"))?;
    Ok(Arc::new(config))
}

/// What is spoken, in and out.
pub(crate) fn versions(settings: &config::Settings) -> &'static [&'static SupportedProtocolVersion] {
    static FROM_12: &[&SupportedProtocolVersion] = &[&rustls::version::TLS12, &rustls::version::TLS13];
    static FROM_13: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13];
    match settings.tls.min_version {
        config::TlsVersion::V12 => FROM_12,
        config::TlsVersion::V13 => FROM_13,
    }
}

type Pair = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// Certificates of a PEM file.
///
/// # Errors
/// In words, naming the file.
pub(crate) fn read_chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let say = |e: rustls::pki_types::pem::Error| format!("read the certificate {}: {e}", path.display());
    let chain: Vec<_> =
        CertificateDer::pem_file_iter(path).map_err(say)?.collect::<Result<_, _>>().map_err(say)?;
    if chain.is_empty() {
        Err(format!("read the certificate {}: there is none in it", path.display()))
    } else {
        Ok(chain)
    }
}

fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_file(path).map_err(|e| format!("read the private key {}: {e}", path.display()))
}

/// Good enough for opportunistic TLS, which asks for no name.
fn self_signed(hostname: &str) -> Result<Pair, String> {
    let made = rcgen::generate_simple_self_signed([hostname.to_owned()]);
    let made = made.map_err(|e| format!("make a self-signed certificate: {e}"))?;
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    Ok((vec![made.cert.der().clone()], key))
}
