//! TLS towards next hops: opportunistic, required, or verified.

use mail::TlsMode;
use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme, SupportedProtocolVersion,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

/// Makes handshakes.
#[derive(Clone)]
pub struct TlsClient {
    any: TlsConnector,
    verifying: TlsConnector,
}

impl TlsClient {
    /// Who may vouch for a next hop where verification is asked for: Mozilla's list, or these.
    ///
    /// # Errors
    /// In words, when an authority's certificate cannot be used.
    pub fn new(
        authorities: Option<Vec<CertificateDer<'static>>>,
        versions: &[&'static SupportedProtocolVersion],
    ) -> Result<Self, String> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut roots = RootCertStore::empty();
        match authorities {
            None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
            Some(own) => {
                for certificate in own {
                    roots.add(certificate).map_err(|e| format!("use an authority's certificate: {e}"))?;
                }
            }
        }
        let builder = || {
            ClientConfig::builder_with_provider(provider.clone())
                .with_protocol_versions(versions)
                .map_err(|e| format!("set up TLS: {e}"))
        };
        let verifying = builder()?.with_root_certificates(roots).with_no_client_auth();
        let anyone = Arc::new(Anyone { provider: provider.clone() });
        let any = builder()?.dangerous().with_custom_certificate_verifier(anyone).with_no_client_auth();
        Ok(Self { any: Arc::new(any).into(), verifying: Arc::new(verifying).into() })
    }

    /// The handshake; how the connection is secured, for the log.
    ///
    /// # Errors
    /// In words.
    pub(crate) async fn handshake(
        &self,
        stream: TcpStream,
        host: &str,
        mode: TlsMode,
    ) -> Result<(TlsStream<TcpStream>, Box<str>), String> {
        let name = ServerName::try_from(host.to_owned()).map_err(|e| format!("{host}: {e}"))?;
        let (connector, word) =
            if mode == TlsMode::Verify { (&self.verifying, ":verified") } else { (&self.any, "") };
        let stream = connector.connect(name, stream).await.map_err(|e| e.to_string())?;
        let (_, session) = stream.get_ref();
        let version = session.protocol_version().and_then(|v| v.as_str()).unwrap_or("TLS");
        let suite = session.negotiated_cipher_suite().and_then(|s| s.suite().as_str()).unwrap_or("unknown");
        let described =
            format!("{}:{}{word}", version.replace("TLSv1_", "TLSv1."), suite.replace("TLS13_", "TLS_"));
        Ok((stream, described.into()))
    }
}

/// Takes any certificate: encryption without knowing to whom beats clear text (RFC 7435 §3). The
/// handshake's signature is still checked.
#[derive(Debug)]
struct Anyone {
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
