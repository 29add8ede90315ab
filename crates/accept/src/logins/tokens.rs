//! Tokens of OAUTHBEARER and XOAUTH2: another server says whether they are valid, and whose they are (RFC 7662).

use super::{lock, random};
use crate::http_peer::HttpPeer;
use auth::{
    Answer, Introspected, Secret, TokenAdvice, TokenDemands, VerifiedToken, VerifiedTokens,
    basic_authorization, read_answer, request_form,
};
use bytes::Bytes;
use config::{HttpUrl, Settings};
use http_body_util::Full;
use hyper::{Method, StatusCode, header};
use std::{
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};
use tokio::time::timeout;

/// Answers that are waited for at the same time; the next login is told to try again.
const ASKING_MAX: usize = 64;
/// Octets of an answer at most.
const ANSWER_MAX: usize = 64 * 1024;

/// Verifies tokens by asking the introspection endpoint (RFC 7662); remembers those that were valid.
pub struct TokenVerifier {
    peer: HttpPeer,
    authorization: Option<Secret>,
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
        let peer = HttpPeer::new(url, oauth.ca_file.as_deref(), settings)?;
        let demands = TokenDemands {
            claim: oauth.claim.0.as_str().into(),
            scopes: oauth.scope.iter().map(|scope| scope.0.as_str().into()).collect(),
            audience: oauth.audience.as_ref().map(|audience| audience.0.as_str().into()),
        };
        let scope = (!demands.scopes.is_empty()).then(|| demands.scopes.join(" ").into());
        let openid_configuration = oauth.openid_configuration.as_ref().map(|url| url.0.as_str().into());
        Ok(Some(Self {
            peer,
            authorization,
            demands,
            advice: TokenAdvice { scope, openid_configuration },
            time_limit: oauth.timeout,
            known: Mutex::new(VerifiedTokens::new(&random())),
            asking: AtomicUsize::new(0),
        }))
    }

    /// Returns the address of the server that is asked.
    pub fn url(&self) -> &HttpUrl {
        self.peer.url()
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
                    tracing::error!("nobody can log in with a new token: ask {}: {why}", self.url());
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
        let mut request = self
            .peer
            .begin(Method::POST)
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
        let response = self.peer.ask(request, ANSWER_MAX).await?;
        match response.status() {
            StatusCode::OK => Ok(response.into_body()),
            status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
                Err(format!("it answers {status}: `client_id` or `client_secret` is wrong"))
            }
            status => Err(format!("it answers {status}")),
        }
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
