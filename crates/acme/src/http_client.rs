//! HTTPS to the authority, with a limit of time and of size.

use bytes::Bytes;
use http_body_util::Limited;
use hyper::Request;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs::default_provider};
use std::{future::Future, io, pin::Pin, sync::Arc, time::Duration};
use tokio::time::timeout;

/// Time of one request, with connecting.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Octets of an answer: a chain of certificates has some thousands.
const ANSWER_MAX_BYTES: usize = 256 * 1024;

/// Asks the authority, whose certificate one of `roots` must have signed.
#[derive(Clone)]
pub(crate) struct Https(Client<HttpsConnector<HttpConnector>, BodyWrapper<Bytes>>);

impl Https {
    pub(crate) fn new(roots: RootCertStore) -> Result<Self, String> {
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()));
        let config = config.with_safe_default_protocol_versions().map_err(|e| format!("set up TLS: {e}"))?;
        let config = config.with_root_certificates(roots).with_no_client_auth();
        let connector = HttpsConnectorBuilder::new().with_tls_config(config).https_only().enable_http1();
        // Requests are hours apart: a connection that is kept would be one that has ended.
        let client = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(1).build(connector.build());
        Ok(Self(client))
    }
}

impl HttpClient for Https {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let host = request.uri().authority().map(ToString::to_string).unwrap_or_default();
        let asked = self.0.request(request);
        Box::pin(async move {
            let failed = |why: String| Error::Other(format!("ask {host}: {why}").into());
            let answer = timeout(REQUEST_TIMEOUT, asked).await;
            let answer = answer.map_err(|_| failed(format!("no answer within {REQUEST_TIMEOUT:?}")))?;
            let answer = answer.map_err(|e| failed(innermost(&e)))?;
            Ok(BytesResponse::from(answer.map(|body| Limited::new(body, ANSWER_MAX_BYTES))))
        })
    }
}

/// Returns the last reason: those above it say that connecting failed, and no more.
fn innermost(error: &hyper_util::client::legacy::Error) -> String {
    let mut last: &dyn std::error::Error = error;
    while let Some(source) = last.source() {
        last = source;
    }
    let is_forbidden =
        last.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::PermissionDenied);
    if is_forbidden {
        return format!("{last}: if it is at another port than `directory`, add that to process.extra_ports");
    }
    last.to_string()
}
