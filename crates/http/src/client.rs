//! The client.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Limited};
use hyper::{Request, Response, body::Body, client::conn::http1};
use hyper_util::rt::TokioIo;
use rustls::{
    ClientConfig, RootCertStore, SupportedProtocolVersion, crypto::CryptoProvider, pki_types::ServerName,
};
use std::{io, sync::Arc};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

/// Connects to servers whose certificates one of some authorities has signed.
#[derive(Clone)]
pub struct Https(TlsConnector);

impl Https {
    /// # Errors
    /// The provider has none of the versions, in words.
    pub fn new(
        provider: Arc<CryptoProvider>,
        versions: &[&'static SupportedProtocolVersion],
        roots: RootCertStore,
    ) -> Result<Self, String> {
        let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(versions);
        let config = builder.map_err(|e| format!("set up TLS: {e}"))?.with_root_certificates(roots);
        Ok(Self(TlsConnector::from(Arc::new(config.with_no_client_auth()))))
    }

    /// Connects, and verifies the certificate for this host. The caller limits the time.
    ///
    /// # Errors
    /// There is no connection, or the certificate is not the host's.
    pub async fn connect(&self, host: &str, port: u16) -> io::Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned());
        let name = name.map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, format!("{host}: {e}")))?;
        let stream = TcpStream::connect((host, port)).await?;
        Box::pin(self.0.connect(name, stream)).await
    }
}

/// Sends a request over a connection of its own, and returns the response with its whole body, of at most `max_bytes`. The caller
/// limits the time.
///
/// # Errors
/// The connection breaks, or the body is too long.
pub async fn exchange<S, B>(
    stream: S,
    request: Request<B>,
    max_bytes: usize,
) -> Result<Response<Bytes>, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
    B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
{
    let begun = http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = begun.map_err(|e| e.to_string())?;
    let answered = async {
        let response = sender.send_request(request).await.map_err(|e| e.to_string())?;
        let (parts, body) = response.into_parts();
        let body = Limited::new(body, max_bytes).collect().await.map_err(|e| e.to_string())?;
        Ok(Response::from_parts(parts, body.to_bytes()))
    };
    tokio::pin!(answered, connection);
    // The connection ends with the answer. It may end before the last octets of the answer are read.
    tokio::select! {
        answer = &mut answered => answer,
        _ = &mut connection => answered.await,
    }
}
