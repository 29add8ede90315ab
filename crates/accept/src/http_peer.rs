//! Servers of HTTP that the configuration names: over TLS, or on this machine.

use bytes::Bytes;
use config::{HttpServer, HttpUrl, Settings, certificate};
use http::{Https, exchange};
use hyper::{Method, Request, Response, body::Body, header::HOST, http::request::Builder};
use std::path::Path;
use tokio::net::{TcpStream, UnixStream};

/// A server that is asked again and again, over a connection for each question.
pub(crate) struct HttpPeer {
    url: HttpUrl,
    authority: String,
    /// `None` if the URL has `http:`.
    tls: Option<Https>,
}

impl HttpPeer {
    /// `ca_file`: the authorities to trust instead of Mozilla's.
    ///
    /// # Errors
    /// The file of authorities cannot be read; the text names it.
    pub(crate) fn new(url: HttpUrl, ca_file: Option<&Path>, settings: &Settings) -> Result<Self, String> {
        let (authority, tls) = match &url.server {
            HttpServer::Https(host) => {
                let roots = certificate::roots(ca_file)?;
                let https = Https::new(certificate::provider(), certificate::versions(settings), roots)?;
                (host.to_string(), Some(https))
            }
            HttpServer::Loopback(host) => (host.to_string(), None),
            HttpServer::Unix(_) => ("localhost".to_owned(), None),
        };
        Ok(Self { url, authority, tls })
    }

    pub(crate) fn url(&self) -> &HttpUrl {
        &self.url
    }

    /// Begins a request to the URL.
    pub(crate) fn begin(&self, method: Method) -> Builder {
        Request::builder().method(method).uri(&self.url.target).header(HOST, &self.authority)
    }

    /// Asks, and returns the answer, of which at most `max_bytes` are read. The caller limits the time.
    ///
    /// # Errors
    /// There is no connection, or it breaks.
    pub(crate) async fn ask<B>(
        &self,
        request: Request<B>,
        max_bytes: usize,
    ) -> Result<Response<Bytes>, String>
    where
        B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
    {
        let connected = |e: std::io::Error| format!("connect: {e}");
        match &self.url.server {
            HttpServer::Unix(path) => {
                exchange(UnixStream::connect(path).await.map_err(connected)?, request, max_bytes).await
            }
            HttpServer::Loopback(host) => {
                let tcp = TcpStream::connect((host.host.as_str(), host.port)).await.map_err(connected)?;
                // A name may lead anywhere.
                if !tcp.peer_addr().map_err(connected)?.ip().is_loopback() {
                    return Err(format!("{} is not on this machine", host.host));
                }
                exchange(tcp, request, max_bytes).await
            }
            HttpServer::Https(host) => {
                let https = self.tls.as_ref().ok_or("TLS is not set up")?;
                let stream = https.connect(&host.host, host.port).await.map_err(connected)?;
                exchange(stream, request, max_bytes).await
            }
        }
    }
}
