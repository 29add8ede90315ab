//! AUTH (RFC 4954): one exchange after another, until one succeeds or too many have failed.

use crate::{
    accept_config::AcceptConfig,
    acceptor::{Acceptor, SessionContext},
    intake::Intake,
    logins::{DovecotExchange, LoginSettings, Store, logins_of},
};
use auth::{
    ChannelBindings, Failure, Mechanism, Question, ServerExchange, ServerFacts, Step, dovecot::ClientFacts,
};
use inbound::{Answer, AuthAnswer, UNIX_CLIENT};
use mail::Reply;
use policy::{Source, Stage};
use smtp::server::{AuthInput, replies};
use std::{net::SocketAddr, sync::Arc};

/// Failed logins of a session; the last one ends it.
const FAILURES_MAX: u32 = 5;

/// The attempts of a session to log in.
pub(super) struct LoginSession {
    failures: u32,
    open: Option<OpenExchange>,
}

/// Lives from AUTH to the last response, or until the client cancels.
struct OpenExchange {
    /// By which it began, whatever is reloaded meanwhile.
    config: Arc<AcceptConfig>,
    exchange: Exchange,
    mechanism: Box<str>,
    /// For the log; `None` as long as the mechanism has not told it.
    user: Option<Box<str>>,
}

/// Who verifies the credentials.
enum Exchange {
    /// A map is asked for the logins of the client's certificate.
    NotBegun,
    Own(ServerExchange),
    /// Dovecot, to which there is no connection before the client's first message.
    Dovecot(Option<DovecotExchange>),
}

/// A step of the exchange that is still to be made.
enum Todo {
    /// What our own exchange asks for next.
    Step(Step),
    /// Dovecot verifies this response; `None` without an initial one.
    PassOn(Option<Vec<u8>>),
    /// Find the logins of the client's certificate, and begin EXTERNAL with this initial response.
    Certificate(Option<Vec<u8>>),
}

impl<I: Intake> Acceptor<I> {
    pub(super) fn log_in<'a>(
        &'a self,
        context: &'a mut SessionContext,
        input: AuthInput,
    ) -> Answer<'a, AuthAnswer> {
        let todo = match input {
            AuthInput::Begin { mechanism, initial } => match self.begin_login(context, mechanism, initial) {
                Ok(todo) => todo,
                Err(reply) => return Answer::Ready(AuthAnswer::Done(reply)),
            },
            AuthInput::Response(response) => match open_exchange(context).map(|open| &mut open.exchange) {
                Some(Exchange::Own(exchange)) => Todo::Step(exchange.respond(&response)),
                Some(Exchange::Dovecot(_)) => Todo::PassOn(Some(response)),
                Some(Exchange::NotBegun) | None => Todo::Step(Step::Failed(Failure::Malformed)),
            },
        };
        match todo {
            Todo::Step(Step::Challenge(challenge)) => Answer::Ready(AuthAnswer::Challenge(challenge)),
            todo => Answer::later(self.finish_login(context, todo)),
        }
    }

    fn begin_login(
        &self,
        context: &mut SessionContext,
        mechanism: Box<str>,
        initial: Option<Vec<u8>>,
    ) -> Result<Todo, Reply> {
        let config = self.intake.config();
        // A reload may have taken logins away since EHLO.
        let Some(settings) = &config.logins else { return Err(replies::AUTH_FAILED_FOR_NOW) };
        let client = client_of(context);
        if self.logins.is_blocked(client.ip(), settings.failures_max) {
            let reply = replies::AUTH_FAILED_FOR_NOW;
            self.intake.log().login_failed(client, None, &mechanism, &reply);
            return Err(reply);
        }
        let (exchange, todo) = match (&settings.store, &settings.tokens, mechanism.parse::<Mechanism>()) {
            (_, _, Ok(Mechanism::External)) => (Exchange::NotBegun, Todo::Certificate(initial)),
            (_, Some(tokens), Ok(mechanism)) if mechanism.takes_token() => {
                let token_advice = tokens.advice().clone();
                let facts = ServerFacts { token_advice, ..self.facts(context, settings) };
                let (exchange, step) = ServerExchange::begin(mechanism, facts, initial.as_deref());
                (Exchange::Own(exchange), Todo::Step(step))
            }
            (Store::Dovecot(_), ..) => (Exchange::Dovecot(None), Todo::PassOn(initial)),
            (Store::File(_) | Store::Map(_) | Store::Directory(..) | Store::Anybody, _, Ok(mechanism))
                if !mechanism.takes_token() =>
            {
                let facts = self.facts(context, settings);
                let (exchange, step) = ServerExchange::begin(mechanism, facts, initial.as_deref());
                (Exchange::Own(exchange), Todo::Step(step))
            }
            (Store::File(_) | Store::Map(_) | Store::Directory(..) | Store::None | Store::Anybody, ..) => {
                return Err(replies::UNKNOWN_MECHANISM);
            }
        };
        let login = context.login.get_or_insert_with(|| Box::new(LoginSession { failures: 0, open: None }));
        login.open = Some(OpenExchange { config, exchange, mechanism, user: None });
        Ok(todo)
    }

    fn facts(&self, context: &SessionContext, settings: &LoginSettings) -> ServerFacts {
        let bindings = context.bindings.as_deref().cloned().unwrap_or_default();
        let offers_plus = context.facts.tls.is_some() && settings.offers_plus();
        self.logins.facts(bindings, offers_plus)
    }

    /// Finds the logins of the client's certificate, and begins EXTERNAL (RFC 4422, appendix A).
    async fn begin_external(&self, context: &mut SessionContext, initial: Option<Vec<u8>>) -> Step {
        let Some(config) = open_exchange(context).map(|open| open.config.clone()) else {
            return Step::Failed(Failure::Malformed);
        };
        let certificate = match &context.facts.certificate {
            Some(shown) => match logins_of(shown, &config.settings.auth, &config.maps).await {
                Ok(logins) => logins,
                Err(failure) => return Step::Failed(failure),
            },
            None => Vec::new(),
        };
        let user = certificate.first().cloned();
        let facts = ServerFacts { certificate, ..self.logins.facts(ChannelBindings::default(), false) };
        let (exchange, step) = ServerExchange::begin(Mechanism::External, facts, initial.as_deref());
        if let Some(open) = open_exchange(context) {
            open.exchange = Exchange::Own(exchange);
            open.user = user;
        }
        step
    }

    /// Passes on to Dovecot what the client sent.
    async fn pass_on(&self, context: &mut SessionContext, message: Option<Vec<u8>>) -> Step {
        let Source::Smtp { peer, local, .. } = context.facts.source else {
            return Step::Failed(Failure::Unavailable);
        };
        let client =
            ClientFacts { peer, local, is_secured: context.facts.tls.is_some() || peer == UNIX_CLIENT };
        let Some(OpenExchange { config, exchange: Exchange::Dovecot(exchange), mechanism, user }) =
            open_exchange(context)
        else {
            return Step::Failed(Failure::Malformed);
        };
        let exchange = match (exchange, config.logins.as_ref().map(|settings| &settings.store)) {
            (Some(exchange), _) => exchange,
            (none, Some(Store::Dovecot(dovecot))) => match dovecot.begin(mechanism, client).await {
                Ok(begun) => none.insert(begun),
                Err(failure) => return Step::Failed(failure),
            },
            (None, _) => return Step::Failed(Failure::Unavailable),
        };
        let (step, named) = exchange.step(message.as_deref()).await;
        *user = named;
        step
    }

    async fn finish_login(&self, context: &mut SessionContext, todo: Todo) -> AuthAnswer {
        let mut step = match todo {
            Todo::Step(step) => step,
            Todo::PassOn(message) => self.pass_on(context, message).await,
            Todo::Certificate(initial) => self.begin_external(context, initial).await,
        };
        let client = client_of(context);
        while let Step::Ask(question) = step {
            let Some(OpenExchange { config, exchange: Exchange::Own(exchange), user, .. }) =
                open_exchange(context)
            else {
                return AuthAnswer::Done(replies::AUTH_FAILED_FOR_NOW);
            };
            *user = user_of(&question);
            let answer = match (config.logins.as_ref(), question) {
                (Some(LoginSettings { tokens: Some(tokens), .. }), Question::Token { user, token }) => {
                    tokens.verify(user.as_deref(), &token).await
                }
                (Some(LoginSettings { store, .. }), question) => {
                    self.logins.answer(store, client.ip(), question).await
                }
                (None, _) => auth::Answer::Unavailable,
            };
            step = exchange.answer(answer);
        }
        match step {
            Step::Challenge(challenge) => AuthAnswer::Challenge(challenge),
            // Others of the client failed while this attempt was under way.
            Step::Authenticated(_) if self.is_blocked(context) => {
                AuthAnswer::Done(self.login_failed(context, Failure::Unavailable).await)
            }
            Step::Authenticated(login) => {
                self.logins.succeeded(client.ip());
                context.facts.login = Some(login);
                let open = context.login.as_mut().and_then(|session| session.open.take());
                context.facts.mechanism = open.map(|open| open.mechanism);
                let judged = context.run(Stage::Auth, |view| view).wait().await;
                if let (Ok(_), Some(login), Some(mechanism)) =
                    (&judged, &context.facts.login, &context.facts.mechanism)
                {
                    self.intake.log().logged_in(client, login, mechanism);
                }
                AuthAnswer::Done(judged.err().unwrap_or(replies::AUTHENTICATED))
            }
            Step::Failed(failure) => AuthAnswer::Done(self.login_failed(context, failure).await),
            Step::Ask(_) => unreachable!("every question was answered"),
        }
    }

    /// Returns whether the client has failed too often, in attempts that may have been under way at the same time.
    fn is_blocked(&self, context: &mut SessionContext) -> bool {
        let client = client_of(context).ip();
        self.logins.is_blocked(client, failures_max(open_exchange(context).as_deref()))
    }

    /// Counts and logs a failure, waits, and returns the reply.
    async fn login_failed(&self, context: &mut SessionContext, failure: Failure) -> Reply {
        let client = client_of(context);
        let Some(session) = &mut context.login else { return replies::BAD_CREDENTIALS };
        let open = session.open.take();
        let (user, mechanism) = match &open {
            Some(open) => (open.user.as_deref(), &*open.mechanism),
            None => (None, ""),
        };
        let reply = match failure {
            Failure::Unavailable => replies::AUTH_FAILED_FOR_NOW,
            Failure::Malformed => replies::BAD_AUTH_MESSAGE,
            Failure::Wrong => {
                session.failures += 1;
                let counted = self.logins.failed(client.ip(), user, session.failures);
                let is_last = session.failures >= FAILURES_MAX;
                tokio::time::sleep(counted.delay).await;
                match () {
                    () if is_last => replies::TOO_MANY_FAILED_LOGINS,
                    // One of many attempts at the same time: nobody learns whether it was right.
                    () if counted.of_client > failures_max(open.as_ref()) => replies::AUTH_FAILED_FOR_NOW,
                    () => replies::BAD_CREDENTIALS,
                }
            }
        };
        self.intake.log().login_failed(client, user, mechanism, &reply);
        self.count_failure(&context.facts);
        reply
    }
}

fn open_exchange(context: &mut SessionContext) -> Option<&mut OpenExchange> {
    context.login.as_mut().and_then(|login| login.open.as_mut())
}

/// The failures of a client after which it cannot log in, by the configuration of the exchange.
fn failures_max(open: Option<&OpenExchange>) -> u32 {
    let settings = open.and_then(|open| open.config.logins.as_ref());
    settings.map_or(0, |settings| settings.failures_max)
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
