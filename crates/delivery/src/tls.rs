//! TLS towards next hops: opportunistic, required, or verified.

mod any_certificate;
mod faults;

use any_certificate::AnyCertificate;
use auth::ChannelBindings;
pub(crate) use faults::{TlsFault, TlsFaults};
use mail::TlsMode;
use rustls::{
    ClientConfig, ConfigBuilder, RootCertStore, SupportedProtocolVersion,
    client::WantsClientCert,
    crypto::aws_lc_rs,
    pki_types::ServerName,
    sign::{CertifiedKey, SingleCertAndKey},
};
use std::{io, sync::Arc};
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

/// The label of the channel binding `tls-exporter` (RFC 9266 §4).
const EXPORTER_LABEL: &[u8] = b"EXPORTER-Channel-Binding";
/// Octets of that channel binding.
const EXPORTER_BYTES: usize = 32;

/// What a handshake has agreed on.
#[derive(Debug, Default)]
pub(crate) struct Secured {
    /// TLS version, cipher suite and verification, for the log; empty in clear text.
    pub(crate) described: Box<str>,
    /// Channel bindings, for logins that use them.
    pub(crate) bindings: ChannelBindings,
}

/// Makes handshakes.
#[derive(Clone)]
pub struct TlsClient {
    any: TlsConnector,
    verifying: TlsConnector,
    shown: Option<Arc<CertifiedKey>>,
}

/// Why a handshake failed, for the log and for the choice between TLS and clear text.
#[derive(Debug)]
pub(crate) struct TlsError {
    pub(crate) text: String,
    /// The certificate is not trusted, or names another host.
    pub(crate) is_certificate: bool,
}

impl TlsError {
    pub(crate) fn other(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_certificate: false }
    }
}

impl From<&io::Error> for TlsError {
    fn from(error: &io::Error) -> Self {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        let is_certificate = matches!(inner, Some(rustls::Error::InvalidCertificate(_)));
        Self { text: error.to_string(), is_certificate }
    }
}

impl TlsClient {
    /// Makes a client that verifies next hops, where a route asks for it, by the authorities of `roots`, and shows those that ask the
    /// certificate `shown`.
    ///
    /// # Errors
    /// The provider of the cryptography has none of the versions, in words.
    pub fn new(
        roots: RootCertStore,
        versions: &[&'static SupportedProtocolVersion],
        shown: Option<Arc<CertifiedKey>>,
    ) -> Result<Self, String> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = || {
            ClientConfig::builder_with_provider(provider.clone())
                .with_protocol_versions(versions)
                .map_err(|e| format!("set up TLS: {e}"))
        };
        let finish = |builder: ConfigBuilder<ClientConfig, WantsClientCert>| match &shown {
            Some(pair) => builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(pair.clone()))),
            None => builder.with_no_client_auth(),
        };
        let verifying = finish(builder()?.with_root_certificates(roots));
        let anyone = Arc::new(AnyCertificate { algorithms: provider.signature_verification_algorithms });
        let any = finish(builder()?.dangerous().with_custom_certificate_verifier(anyone));
        Ok(Self { any: Arc::new(any).into(), verifying: Arc::new(verifying).into(), shown })
    }

    /// Returns the certificate that next hops are shown.
    #[must_use]
    pub fn shown(&self) -> Option<Arc<CertifiedKey>> {
        self.shown.clone()
    }

    /// The handshake, and how the connection is secured. Channel bindings are for logins.
    pub(crate) async fn handshake(
        &self,
        stream: TcpStream,
        host: &str,
        mode: TlsMode,
        is_for_login: bool,
    ) -> Result<(TlsStream<TcpStream>, Secured), TlsError> {
        let name =
            ServerName::try_from(host.to_owned()).map_err(|e| TlsError::other(format!("{host}: {e}")))?;
        let (connector, word) =
            if mode == TlsMode::Verify { (&self.verifying, ":verified") } else { (&self.any, "") };
        let stream = connector.connect(name, stream).await.map_err(|e| TlsError::from(&e))?;
        let (_, session) = stream.get_ref();
        let version = session.protocol_version().and_then(|v| v.as_str()).unwrap_or("TLS");
        let suite = session.negotiated_cipher_suite().and_then(|s| s.suite().as_str()).unwrap_or("unknown");
        let described =
            format!("{}:{}{word}", version.replace("TLSv1_", "TLSv1."), suite.replace("TLS13_", "TLS_"));
        let exported = || session.export_keying_material([0; EXPORTER_BYTES], EXPORTER_LABEL, Some(&[])).ok();
        let exporter = if is_for_login { exported().map(Box::from) } else { None };
        let bindings = ChannelBindings { exporter, end_point: None };
        Ok((stream, Secured { described: described.into(), bindings }))
    }
}
