//! TLS of a sink, between the octets of the connection and those of the dialog: without I/O, as the dialog, so that each
//! model serves it alike.

use rustls::{
    ServerConfig, ServerConnection,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use std::{
    io::{Read as _, Write as _},
    path::Path,
    sync::Arc,
};

/// The settings of TLS.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) config: Arc<ServerConfig>,
    /// TLS begins with the connection, not with STARTTLS.
    pub(crate) is_implicit: bool,
}

/// Files with a certificate and its key, in PEM.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Files<'a> {
    pub(crate) certificate: &'a Path,
    pub(crate) key: &'a Path,
}

impl Settings {
    /// Reads the files; without files a certificate for `hostname` is made, signed by itself.
    ///
    /// # Errors
    /// A file cannot be read, or key and certificate do not fit.
    pub(crate) fn new(hostname: &str, files: Option<Files<'_>>, is_implicit: bool) -> Result<Self, String> {
        let (chain, key) = match files {
            Some(files) => read(files)?,
            None => make(hostname)?,
        };
        let builder = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
        let builder =
            builder.with_safe_default_protocol_versions().map_err(|e| format!("set up TLS: {e}"))?;
        let config = builder.with_no_client_auth().with_single_cert(chain, key);
        Ok(Self { config: Arc::new(config.map_err(|e| format!("set up TLS: {e}"))?), is_implicit })
    }
}

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn read(Files { certificate, key }: Files<'_>) -> Result<Identity, String> {
    let failed = |path: &Path, e: rustls::pki_types::pem::Error| format!("read {}: {e}", path.display());
    let chain = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let chain = chain.map_err(|e| failed(certificate, e))?;
    if chain.is_empty() {
        return Err(format!("read {}: it has no certificate in PEM", certificate.display()));
    }
    Ok((chain, PrivateKeyDer::from_pem_file(key).map_err(|e| failed(key, e))?))
}

fn make(hostname: &str) -> Result<Identity, String> {
    let made = rcgen::generate_simple_self_signed([hostname.to_owned()]);
    let made = made.map_err(|e| format!("make a certificate for {hostname}: {e}"))?;
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der());
    Ok((vec![made.cert.der().clone()], key.map_err(|e| format!("make a key: {e}"))?))
}

/// TLS of one connection, without I/O.
#[derive(Debug)]
pub(crate) struct Channel {
    connection: Box<ServerConnection>,
    /// Octets for the connection.
    output: Vec<u8>,
}

impl Channel {
    /// Begins TLS behind `output`, which is sent before it in the clear.
    ///
    /// # Errors
    /// The configuration cannot be used.
    pub(crate) fn new(settings: &Settings, output: Vec<u8>) -> Result<Self, rustls::Error> {
        Ok(Self { connection: Box::new(ServerConnection::new(settings.config.clone())?), output })
    }

    /// Octets to write; the model empties it.
    pub(crate) fn output(&mut self) -> &mut Vec<u8> {
        &mut self.output
    }

    /// Decrypts octets of the connection.
    ///
    /// # Errors
    /// They are no TLS; the output has the alert.
    pub(crate) fn open(&mut self, mut bytes: &[u8]) -> Result<Vec<u8>, rustls::Error> {
        let mut plain = Vec::new();
        while !bytes.is_empty() {
            // It reads from memory, and takes something as long as its plain text is taken out.
            let read = self.connection.read_tls(&mut bytes);
            let processed = self.connection.process_new_packets();
            self.flush();
            let state = processed?;
            let held = state.plaintext_bytes_to_read();
            let start = plain.len();
            plain.resize(start + held, 0);
            // It has so many octets, as it said.
            let _ = self.connection.reader().read_exact(&mut plain[start..]);
            if !matches!(read, Ok(1..)) {
                break;
            }
        }
        Ok(plain)
    }

    /// Encrypts what the dialog says; before the handshake is done it waits inside.
    pub(crate) fn seal(&mut self, plain: &mut Vec<u8>) {
        // It is written to memory.
        let _ = self.connection.writer().write_all(plain);
        plain.clear();
        self.flush();
    }

    /// Says that nothing follows.
    pub(crate) fn end(&mut self) {
        self.connection.send_close_notify();
        self.flush();
    }

    fn flush(&mut self) {
        while self.connection.wants_write() {
            // It is written to memory.
            let _ = self.connection.write_tls(&mut self.output);
        }
    }
}
