//! Tokens of OAUTHBEARER and XOAUTH2: another server says whether they are valid, and whose they are (RFC 7662).

use super::{lock, random};
use auth::{
    Answer, Introspected, Secret, TokenAdvice, TokenDemands, VerifiedToken, VerifiedTokens,
    basic_authorization, read_answer, request_form,
};
use bytes::Bytes;
use config::{HttpServer, IntrospectionUrl, Settings, certificate};
use http::{Https, exchange};
use http_body_util::Full;
use hyper::{Request, StatusCode, header};
use std::{
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
    time::timeout,
};

/// Answers that are waited for at the same time; the next login is told to try again.
const ASKING_MAX: usize = 64;
/// Octets of an answer at most.
const ANSWER_MAX: usize = 64 * 1024;

/// Verifies tokens by asking the introspection endpoint (RFC 7662); remembers those that were valid.
pub struct TokenVerifier {
    url: IntrospectionUrl,
    authority: String,
    authorization: Option<Secret>,
    /// `None` if the endpoint's URL has `http:`.
    tls: Option<Https>,
    demands: TokenDemands,
    advice: TokenAdvice,
    time_limit: Duration,
    known: Mutex<VerifiedTokens>,
    asking: AtomicUsize,
}

impl TokenVerifier {
    /// Makes the verifier of the settings; `None` if there is none.
    ///
    /// # Errors
    /// The client's secret or the file of authorities cannot be read; the text names its place.
    pub fn new(settings: &Settings) -> Result<Option<Self>, String> {
        let oauth = &settings.oauth;
        let Some(url) = oauth.introspection.clone() else { return Ok(None) };
        let secret = oauth.client_secret.as_ref().map(config::SecretSource::secret).transpose()?;
        let authorization = oauth.client_id.as_ref().zip(secret);
        let authorization = authorization.map(|(id, secret)| basic_authorization(&id.0, &secret));
        let (authority, tls) = match &url.server {
            HttpServer::Https(host) => (host.to_string(), Some(https(settings)?)),
            HttpServer::Loopback(host) => (host.to_string(), None),
            HttpServer::Unix(_) => ("localhost".to_owned(), None),
        };
        let demands = TokenDemands {
            claim: oauth.claim.0.as_str().into(),
            scopes: oauth.scope.iter().map(|scope| scope.0.as_str().into()).collect(),
            audience: oauth.audience.as_ref().map(|audience| audience.0.as_str().into()),
        };
        let scope = (!demands.scopes.is_empty()).then(|| demands.scopes.join(" ").into());
        let openid_configuration = oauth.openid_configuration.as_ref().map(|url| url.0.as_str().into());
        Ok(Some(Self {
            url,
            authority,
            authorization,
            tls,
            demands,
            advice: TokenAdvice { scope, openid_configuration },
            time_limit: oauth.timeout,
            known: Mutex::new(VerifiedTokens::new(&random())),
            asking: AtomicUsize::new(0),
        }))
    }

    /// Returns the address of the server that is asked.
    pub fn url(&self) -> &IntrospectionUrl {
        &self.url
    }

    /// Returns the advice for clients whose token is refused.
    pub fn advice(&self) -> &TokenAdvice {
        &self.advice
    }

    /// Returns whose a token is. `user`: whom the client named, who must be the same.
    pub async fn verify(&self, user: Option<&str>, token: &Secret) -> Answer {
        let known = lock(&self.known).find(token, Instant::now()).cloned();
        let verified = match known {
            Some(verified) => verified,
            None => match self.ask(token).await {
                Ok(Some(verified)) => verified,
                Ok(None) => return Answer::Wrong,
                Err(why) => {
                    tracing::error!("nobody can log in with a new token: ask {}: {why}", self.url);
                    return Answer::Unavailable;
                }
            },
        };
        if user.is_some_and(|user| user.to_lowercase() != verified.login.to_lowercase()) {
            return Answer::Wrong;
        }
        if verified.is_for_mail { Answer::Right(verified.login) } else { Answer::InsufficientScope }
    }

    /// Asks about a token, and remembers a valid one. `None`: the token is not valid here.
    ///
    /// # Errors
    /// There is no answer, in words.
    async fn ask(&self, token: &Secret) -> Result<Option<VerifiedToken>, String> {
        let _asking = Asking::begin(&self.asking).ok_or("too many logins wait for its answers")?;
        match self.introspect(token).await? {
            Introspected::Active { token: verified, expires_in } => {
                lock(&self.known).remember(token, verified.clone(), expires_in, Instant::now());
                Ok(Some(verified))
            }
            Introspected::Refused(why) => {
                tracing::info!("a token was refused: {why}");
                Ok(None)
            }
        }
    }

    /// Asks about a token, as `postrider auth test --token` does.
    ///
    /// # Errors
    /// There is no answer, in words.
    pub async fn introspect(&self, token: &Secret) -> Result<Introspected, String> {
        let answered = timeout(self.time_limit, self.post(request_form(token))).await;
        let body = answered.map_err(|_| format!("no answer within {:?}", self.time_limit))??;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        read_answer(&body, &self.demands, now)
    }

    async fn post(&self, form: Secret) -> Result<Bytes, String> {
        let mut request = Request::post(&self.url.target)
            .header(header::HOST, &self.authority)
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(header::ACCEPT, "application/json");
        if let Some(authorization) = &self.authorization {
            let value = header::HeaderValue::from_bytes(authorization.bytes());
            let mut value = value.map_err(|_| "the client id or its secret cannot be sent".to_owned())?;
            value.set_sensitive(true);
            request = request.header(header::AUTHORIZATION, value);
        }
        let body = Full::new(Bytes::copy_from_slice(form.bytes()));
        let request = request.body(body).map_err(|e| e.to_string())?;
        let connected = |e: std::io::Error| format!("connect: {e}");
        match &self.url.server {
            HttpServer::Unix(path) => ask(UnixStream::connect(path).await.map_err(connected)?, request).await,
            HttpServer::Loopback(host) => {
                let tcp = TcpStream::connect((host.host.as_str(), host.port)).await.map_err(connected)?;
                // A name may lead anywhere.
                if !tcp.peer_addr().map_err(connected)?.ip().is_loopback() {
                    return Err(format!("{} is not on this machine", host.host));
                }
                ask(tcp, request).await
            }
            HttpServer::Https(host) => {
                let https = self.tls.as_ref().ok_or("TLS is not set up")?;
                ask(https.connect(&host.host, host.port).await.map_err(connected)?, request).await
            }
        }
    }
}

/// TLS for servers that are named in the settings.
fn https(settings: &Settings) -> Result<Https, String> {
    let roots = certificate::roots(settings.oauth.ca_file.as_deref())?;
    Https::new(certificate::provider(), certificate::versions(settings), roots)
}

/// Sends a request, and returns the body of the answer.
async fn ask<S>(stream: S, request: Request<Full<Bytes>>) -> Result<Bytes, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let response = exchange(stream, request, ANSWER_MAX).await?;
    match response.status() {
        StatusCode::OK => Ok(response.into_body()),
        status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
            Err(format!("it answers {status}: `client_id` or `client_secret` is wrong"))
        }
        status => Err(format!("it answers {status}")),
    }
}

/// Counts a question that is under way until it is dropped.
struct Asking<'a>(&'a AtomicUsize);

impl<'a> Asking<'a> {
    fn begin(count: &'a AtomicUsize) -> Option<Self> {
        let asking = Self(count);
        (count.fetch_add(1, Ordering::Relaxed) < ASKING_MAX).then_some(asking)
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
