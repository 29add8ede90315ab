//! TLS to databases and directories; certificates are always verified.

#[cfg(feature = "postgres")]
pub(super) use postgres::MakeTls;

use rustls::{
    ClientConfig, RootCertStore,
    crypto::aws_lc_rs::default_provider,
    pki_types::{CertificateDer, pem::PemObject as _},
};
use std::{path::Path, sync::Arc};

/// Makes the settings of TLS: with the authorities of a PEM file, or with Mozilla's.
///
/// # Errors
/// The file cannot be read; the text names it.
pub(super) async fn client_config(ca_file: Option<&Path>) -> Result<Arc<ClientConfig>, String> {
    let file = ca_file.map(Path::to_owned);
    let made = tokio::task::spawn_blocking(move || {
        let roots = roots(file.as_deref())?;
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
        let builder =
            builder.with_safe_default_protocol_versions().map_err(|e| format!("set up TLS: {e}"))?;
        Ok(Arc::new(builder.with_root_certificates(roots).with_no_client_auth()))
    });
    made.await.unwrap_or_else(|_| Err("set up TLS: given up".to_owned()))
}

fn roots(file: Option<&Path>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    let Some(file) = file else {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        return Ok(roots);
    };
    let failed = |why: &dyn std::fmt::Display| format!("read {}: {why}", file.display());
    for certificate in CertificateDer::pem_file_iter(file).map_err(|e| failed(&e))? {
        let certificate = certificate.map_err(|e| failed(&e))?;
        roots.add(certificate).map_err(|e| failed(&e))?;
    }
    if roots.is_empty() { Err(failed(&"no certificate is in it")) } else { Ok(roots) }
}

#[cfg(feature = "postgres")]
mod postgres {
    use rustls::{ClientConfig, pki_types::ServerName};
    use std::{
        io,
        pin::Pin,
        sync::Arc,
        task::{Context, Poll},
    };
    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
    use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
    use tokio_rustls::{TlsConnector, client::TlsStream as Encrypted};

    /// Makes handshakes for connections to PostgreSQL.
    #[derive(Clone)]
    pub(in super::super) struct MakeTls(pub(in super::super) Arc<ClientConfig>);

    /// A handshake with a server of this name.
    pub(in super::super) struct Handshake(TlsConnector, ServerName<'static>);

    /// An encrypted connection.
    pub(in super::super) struct Stream<S>(Encrypted<S>);

    impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for MakeTls {
        type Stream = Stream<S>;
        type TlsConnect = Handshake;
        type Error = io::Error;

        fn make_tls_connect(&mut self, host: &str) -> io::Result<Handshake> {
            let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
            Ok(Handshake(self.0.clone().into(), name))
        }
    }

    impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for Handshake {
        type Stream = Stream<S>;
        type Error = io::Error;
        type Future = Pin<Box<dyn Future<Output = io::Result<Stream<S>>> + Send>>;

        fn connect(self, stream: S) -> Self::Future {
            Box::pin(async move { self.0.connect(self.1, stream).await.map(Stream) })
        }
    }

    impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Stream<S> {
        fn channel_binding(&self) -> ChannelBinding {
            ChannelBinding::none()
        }
    }

    impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Stream<S> {
        fn poll_read(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_read(cx, buffer)
        }
    }

    impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Stream<S> {
        fn poll_write(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            Pin::new(&mut self.0).poll_write(cx, bytes)
        }

        fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_flush(cx)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_shutdown(cx)
        }
    }
}
