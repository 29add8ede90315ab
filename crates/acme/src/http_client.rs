//! HTTPS to the authority, with a limit of time and of size.

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, Response, Uri, header::HOST};
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use rustls::{DEFAULT_VERSIONS, RootCertStore};
use std::{future::Future, io, pin::Pin, time::Duration};
use tokio::time::timeout;

/// For one request, connecting included.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Octets of an answer: a chain of certificates has some thousands.
const ANSWER_MAX_BYTES: usize = 256 * 1024;

/// Asks the authority, whose certificate one of `roots` must have signed.
#[derive(Clone)]
pub(crate) struct Https(http::Https);

impl Https {
    pub(crate) fn new(roots: RootCertStore) -> Result<Self, String> {
        http::Https::new(config::certificate::provider(), DEFAULT_VERSIONS, roots).map(Self)
    }

    /// Requests are hours apart: each has a connection of its own.
    async fn ask(self, mut request: Request<BodyWrapper<Bytes>>) -> Result<Response<Bytes>, String> {
        let uri = std::mem::take(request.uri_mut());
        let authority = uri.authority().ok_or("its address has no host")?;
        if uri.scheme_str() != Some("https") {
            return Err(format!("{uri} is not https"));
        }
        let stream = self.0.connect(authority.host(), authority.port_u16().unwrap_or(443)).await;
        let stream = stream.map_err(|e| connect_words(&e))?;
        let host = authority.as_str().parse().map_err(|_| "its host cannot be sent".to_owned())?;
        request.headers_mut().insert(HOST, host);
        *request.uri_mut() = Uri::from(uri.path_and_query().cloned().ok_or("its address has no path")?);
        http::exchange(stream, request, ANSWER_MAX_BYTES).await
    }
}

impl HttpClient for Https {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let host = request.uri().authority().map(ToString::to_string).unwrap_or_default();
        let asked = self.clone().ask(request);
        Box::pin(async move {
            let answer = timeout(REQUEST_TIMEOUT, asked).await;
            let answer = answer.unwrap_or_else(|_| Err(format!("no answer within {REQUEST_TIMEOUT:?}")));
            let answer = answer.map_err(|why| Error::Other(format!("ask {host}: {why}").into()))?;
            Ok(BytesResponse::from(answer.map(Full::new)))
        })
    }
}

fn connect_words(error: &io::Error) -> String {
    if error.kind() == io::ErrorKind::PermissionDenied {
        return format!(
            "{error}: if it is at another port than `directory`, add that to process.extra_ports"
        );
    }
    error.to_string()
}
