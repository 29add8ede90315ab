//! AUTH (RFC 4954): one exchange after another, until one succeeds or too many have failed.

use super::{Acceptor, SessionContext};
use crate::serve::snapshot::ConfigSnapshot;
use auth::{Failure, Mechanism, Question, ServerExchange, Step};
use engine::accept::{Source, Stage};
use inbound::{Answer, AuthAnswer};
use mail::Reply;
use smtp::server::{AuthInput, replies};
use std::{net::SocketAddr, sync::Arc};

/// Failed logins of a session; the last one ends it.
const FAILURES_MAX: u32 = 5;

/// The attempts of a session to log in.
pub(super) struct LoginSession {
    failures: u32,
    open: Option<OpenExchange>,
}

/// An exchange that is not over.
struct OpenExchange {
    /// By which it began, whatever is reloaded meanwhile.
    config: Arc<ConfigSnapshot>,
    exchange: ServerExchange,
    mechanism: Mechanism,
    /// The name that the client gave.
    user: Option<Box<str>>,
}

impl Acceptor {
    pub(super) fn log_in<'a>(
        &'a self,
        context: &'a mut SessionContext,
        input: AuthInput,
    ) -> Answer<'a, AuthAnswer> {
        let step = match input {
            AuthInput::Begin { mechanism, initial } => {
                match self.begin_login(context, &mechanism, initial.as_deref()) {
                    Ok(step) => step,
                    Err(reply) => return Answer::Ready(AuthAnswer::Done(reply)),
                }
            }
            AuthInput::Response(response) => match open_exchange(context) {
                Some(open) => open.exchange.respond(&response),
                None => Step::Failed(Failure::Malformed),
            },
        };
        match step {
            Step::Challenge(challenge) => Answer::Ready(AuthAnswer::Challenge(challenge)),
            step => Answer::later(self.finish_login(context, step)),
        }
    }

    fn begin_login(
        &self,
        context: &mut SessionContext,
        mechanism: &str,
        initial: Option<&[u8]>,
    ) -> Result<Step, Reply> {
        let config = self.driver.current();
        let (Some(settings), Ok(mechanism)) = (&config.logins, mechanism.parse::<Mechanism>()) else {
            // A reload has taken logins away since EHLO.
            return Err(replies::AUTH_FAILED_FOR_NOW);
        };
        let client = client_of(context);
        if self.logins.is_blocked(client.ip(), settings.failures_max) {
            self.driver.delivery_log.login_failed(
                client,
                None,
                mechanism.as_str(),
                &replies::AUTH_FAILED_FOR_NOW,
            );
            return Err(replies::AUTH_FAILED_FOR_NOW);
        }
        let bindings = context.bindings.as_deref().cloned().unwrap_or_default();
        let offers_plus = context.facts.tls.is_some() && settings.offers_plus();
        let facts = self.logins.facts(bindings, offers_plus);
        let (exchange, step) = ServerExchange::begin(mechanism, facts, initial);
        let login = context.login.get_or_insert_with(|| Box::new(LoginSession { failures: 0, open: None }));
        login.open = Some(OpenExchange { config, exchange, mechanism, user: None });
        Ok(step)
    }

    async fn finish_login(&self, context: &mut SessionContext, mut step: Step) -> AuthAnswer {
        while let Step::Ask(question) = step {
            let Some(open) = open_exchange(context) else {
                return AuthAnswer::Done(replies::AUTH_FAILED_FOR_NOW);
            };
            open.user = user_of(&question);
            let answer = match &open.config.logins {
                Some(settings) => self.logins.answer(settings, question).await,
                None => auth::Answer::Unavailable,
            };
            step = open.exchange.answer(answer);
        }
        match step {
            Step::Challenge(challenge) => AuthAnswer::Challenge(challenge),
            Step::Authenticated(login) => {
                context.facts.login = Some(login);
                if let Some(session) = &mut context.login {
                    session.open = None;
                }
                let judged = context.run(Stage::Auth, |view| view).wait().await;
                AuthAnswer::Done(judged.err().unwrap_or(replies::AUTHENTICATED))
            }
            Step::Failed(failure) => AuthAnswer::Done(self.login_failed(context, failure).await),
            Step::Ask(_) => unreachable!("every question was answered"),
        }
    }

    /// Counts and logs a failure, waits, and returns the reply.
    async fn login_failed(&self, context: &mut SessionContext, failure: Failure) -> Reply {
        let client = client_of(context);
        let Some(session) = &mut context.login else { return replies::BAD_CREDENTIALS };
        let open = session.open.take();
        let (user, mechanism) = match &open {
            Some(open) => (open.user.as_deref(), open.mechanism.as_str()),
            None => (None, ""),
        };
        let reply = match failure {
            Failure::Unavailable => replies::AUTH_FAILED_FOR_NOW,
            Failure::Malformed => replies::BAD_AUTH_MESSAGE,
            Failure::Wrong => {
                session.failures += 1;
                let delay = self.logins.failed(client.ip(), user, session.failures);
                let is_last = session.failures >= FAILURES_MAX;
                tokio::time::sleep(delay).await;
                if is_last { replies::TOO_MANY_FAILED_LOGINS } else { replies::BAD_CREDENTIALS }
            }
        };
        self.driver.delivery_log.login_failed(client, user, mechanism, &reply);
        reply
    }
}

fn open_exchange(context: &mut SessionContext) -> Option<&mut OpenExchange> {
    context.login.as_mut().and_then(|login| login.open.as_mut())
}

fn client_of(context: &SessionContext) -> SocketAddr {
    match context.facts.source {
        Source::Smtp { peer, .. } => peer,
        Source::Local { .. } | Source::Report => unreachable!("a session has a client"),
    }
}

fn user_of(question: &Question) -> Option<Box<str>> {
    match question {
        Question::Password { user, .. } | Question::Keys { user, .. } => Some(user.clone()),
        Question::Token { user, .. } => user.clone(),
    }
}
