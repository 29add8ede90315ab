//! The key file: a private key and a certificate that it signed itself, in PEM. A side takes a peer that proves to have the
//! same.

use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    client::WebPkiServerVerifier,
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
    server::WebPkiClientVerifier,
};
use std::{
    fs::{File, OpenOptions},
    io::Write as _,
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::Path,
    sync::Arc,
};

/// The name in the certificate of a key; no host has it.
const NAME: &str = "agent.postlab.invalid";
/// Permissions of others than the owner.
const OTHERS: u32 = 0o077;

/// Makes a key file that only its owner can read.
///
/// # Errors
/// It exists, or cannot be written.
pub(super) fn create(path: &Path) -> Result<(), String> {
    let made = rcgen::generate_simple_self_signed([NAME.to_owned()]);
    let made = made.map_err(|e| format!("make a key: {e}"))?;
    let text = made.signing_key.serialize_pem() + &made.cert.pem();
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|e| format!("write {}: {e}", path.display()))
}

/// What a key file has.
#[derive(Debug)]
pub(super) struct Key {
    certificate: CertificateDer<'static>,
    private: PrivateKeyDer<'static>,
}

impl Key {
    /// Reads a key file.
    ///
    /// # Errors
    /// It cannot be read, others can read it, or it has no key.
    pub(super) fn read(path: &Path) -> Result<Self, String> {
        let failed = |e: &dyn std::fmt::Display| format!("read {}: {e}", path.display());
        let mode = File::open(path).and_then(|file| file.metadata()).map_err(|e| failed(&e))?.mode();
        if mode & OTHERS != 0 {
            return Err(failed(&"others can read it; run chmod 600"));
        }
        let hint =
            |e: rustls::pki_types::pem::Error| failed(&format!("{e}; `postlab agent key` makes such a file"));
        Ok(Self {
            certificate: CertificateDer::from_pem_file(path).map_err(hint)?,
            private: PrivateKeyDer::from_pem_file(path).map_err(hint)?,
        })
    }

    fn roots(&self) -> Result<Arc<RootCertStore>, String> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).map_err(|e| format!("use the key: {e}"))?;
        Ok(Arc::new(roots))
    }

    /// TLS 1.3 of an agent.
    ///
    /// # Errors
    /// The key cannot be used.
    pub(super) fn server(&self) -> Result<Arc<ServerConfig>, String> {
        let unusable = |e: &dyn std::fmt::Display| format!("use the key: {e}");
        let verifier = WebPkiClientVerifier::builder_with_provider(self.roots()?, provider()).build();
        let config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|e| unusable(&e))?
            .with_client_cert_verifier(verifier.map_err(|e| unusable(&e))?)
            .with_single_cert(vec![self.certificate.clone()], self.private.clone_key());
        config.map(Arc::new).map_err(|e| unusable(&e))
    }

    /// TLS 1.3 of a controller, and the name that an agent's certificate has.
    ///
    /// # Errors
    /// The key cannot be used.
    pub(super) fn client(&self) -> Result<(Arc<ClientConfig>, ServerName<'static>), String> {
        let unusable = |e: &dyn std::fmt::Display| format!("use the key: {e}");
        let verifier = WebPkiServerVerifier::builder_with_provider(self.roots()?, provider()).build();
        let config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|e| unusable(&e))?
            .with_webpki_verifier(verifier.map_err(|e| unusable(&e))?)
            .with_client_auth_cert(vec![self.certificate.clone()], self.private.clone_key());
        let name = ServerName::try_from(NAME).map_err(|e| unusable(&e))?;
        Ok((Arc::new(config.map_err(|e| unusable(&e))?), name))
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}
