//! The answers that the authority gets at port 80 or 443 while it looks whether a name is this server's.

use hyper::{Method, Request, StatusCode, body::Incoming};
use rcgen::{CertificateParams, CustomExtension, KeyPair};
use rustls::{
    ServerConfig,
    crypto::aws_lc_rs::default_provider,
    pki_types::PrivateKeyDer,
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use std::{
    collections::HashMap,
    convert::Infallible,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// An authority may ask for all names at once, and a certificate has 100 at most. The newest may be the authority: silent clients
/// make room for it.
const LIMITS: http::Limits = http::Limits {
    connections: 512,
    connections_of_client: 128,
    time: Duration::from_secs(10),
    keeps_alive: false,
};
/// The path in front of the token of `http-01` (RFC 8555 §8.3).
const FOLDER: &str = "/.well-known/acme-challenge/";
/// The protocol of `tls-alpn-01` (RFC 8737 §6.2).
const ALPN: &[u8] = b"acme-tls/1";

/// Answers to open challenges, shared by the order that sets them and the listeners that give them.
#[derive(Debug, Clone, Default)]
pub struct Answers(Arc<RwLock<Open>>);

#[derive(Debug, Default)]
struct Open {
    /// Of `http-01`: the key authorization, by token.
    files: HashMap<String, String>,
    /// Of `tls-alpn-01`: the certificate to show, by host name.
    certificates: HashMap<String, Arc<CertifiedKey>>,
}

impl Answers {
    fn change<T>(&self, change: impl FnOnce(&mut Open) -> T) -> T {
        change(&mut self.0.write().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn add_file(&self, token: &str, text: &str) {
        self.change(|open| open.files.insert(token.to_owned(), text.to_owned()));
    }

    pub(crate) fn add_certificate(&self, name: &str, digest: &[u8]) -> Result<(), String> {
        let made = challenge_certificate(name, digest)?;
        self.change(|open| open.certificates.insert(name.to_ascii_lowercase(), Arc::new(made)));
        Ok(())
    }

    /// Forgets all: the order has ended.
    pub(crate) fn clear(&self) {
        self.change(|open| *open = Open::default());
    }

    fn file(&self, token: &str) -> Option<String> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).files.get(token).cloned()
    }
}

impl ResolvesServerCert for Answers {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        // Somebody who wants another protocol has come to the wrong port.
        hello.alpn()?.find(|protocol| *protocol == ALPN)?;
        let name = hello.server_name()?.to_ascii_lowercase();
        self.0.read().unwrap_or_else(PoisonError::into_inner).certificates.get(&name).cloned()
    }
}

/// Makes the certificate that tells the authority its own secret (RFC 8737 §3).
fn challenge_certificate(name: &str, digest: &[u8]) -> Result<CertifiedKey, String> {
    let failed = |e: rcgen::Error| format!("make the certificate for tls-alpn-01: {e}");
    let mut params = CertificateParams::new([name.to_owned()]).map_err(failed)?;
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    let key = KeyPair::generate().map_err(failed)?;
    let made = params.self_signed(&key).map_err(failed)?;
    let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    let key = default_provider().key_provider.load_private_key(key);
    let key = key.map_err(|e| format!("use the certificate for tls-alpn-01: {e}"))?;
    // Without a comparison of both: it would not know the critical extension.
    Ok(CertifiedKey::new(vec![made.der().clone()], key))
}

/// Serves `http-01` at this socket, for ever.
pub async fn serve_http(listener: TcpListener, answers: Answers) -> Infallible {
    http::answer_all(listener, LIMITS, move |_, request: &Request<Incoming>| {
        let (status, text) = page(&answers, request.method(), request.uri().path());
        http::text(status, text)
    })
    .await
}

/// Serves `tls-alpn-01` at this socket, for ever: the handshake is all.
///
/// # Errors
/// TLS cannot be set up. Connections that fail are ignored.
pub async fn serve_tls(listener: TcpListener, answers: Answers) -> Result<Infallible, String> {
    let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()));
    let builder = builder.with_safe_default_protocol_versions().map_err(|e| format!("set up TLS: {e}"))?;
    let mut config = builder.with_no_client_auth().with_cert_resolver(Arc::new(answers));
    config.alpn_protocols = vec![ALPN.to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let serving = http::accept_all(listener, LIMITS, move |stream, _| {
        let handshake = acceptor.accept(stream);
        async move {
            let _ = handshake.await;
        }
    });
    Ok(serving.await)
}

fn page(answers: &Answers, method: &Method, path: &str) -> (StatusCode, String) {
    if method != Method::GET && method != Method::HEAD {
        return (StatusCode::METHOD_NOT_ALLOWED, "only GET\n".to_owned());
    }
    match path.strip_prefix(FOLDER).and_then(|token| answers.file(token)) {
        Some(text) => (StatusCode::OK, text),
        None => (StatusCode::NOT_FOUND, "this server has no pages\n".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_open_challenges_are_served() {
        let answers = Answers::default();
        answers.add_file("a-token", "a-token.thumbprint");
        let get = |path: &str| page(&answers, &Method::GET, path);
        let there = "/.well-known/acme-challenge/a-token";
        assert_eq!(get(there), (StatusCode::OK, "a-token.thumbprint".to_owned()));
        for path in ["/", "/a-token", "/.well-known/acme-challenge/", "/.well-known/acme-challenge/b"] {
            assert_eq!(get(path).0, StatusCode::NOT_FOUND, "{path}");
        }
        assert_eq!(page(&answers, &Method::POST, there).0, StatusCode::METHOD_NOT_ALLOWED);
        answers.clear();
        assert_eq!(get(there).0, StatusCode::NOT_FOUND);
    }

    #[test]
    fn the_certificate_of_tls_alpn_has_the_name_and_the_digest() {
        let made = challenge_certificate("mx.test", &[7; 32]).unwrap();
        let (_, parsed) = x509_parser::parse_x509_certificate(&made.cert[0]).unwrap();
        let own = parsed.extensions().iter().find(|e| e.oid.to_id_string() == "1.3.6.1.5.5.7.1.31").unwrap();
        // An octet string with the digest, and critical (RFC 8737 §3).
        assert!(own.critical);
        assert_eq!(own.value, [&[4, 32][..], &[7; 32]].concat());
        let names = &parsed.subject_alternative_name().unwrap().unwrap().value.general_names;
        assert_eq!(names[..], [x509_parser::extensions::GeneralName::DNSName("mx.test")]);
    }
}
