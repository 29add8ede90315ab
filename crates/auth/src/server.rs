//! The server's side of an exchange.

use crate::{
    channel::ChannelBindings,
    mechanism::Mechanism,
    oauth::{self, TokenAdvice, TokenFault},
    plain,
    scram::{
        ITERATIONS, ScramHash, ScramKeys,
        server::{First, Proof},
    },
    secret::Secret,
};

/// The facts that an exchange needs and that are not the client's to say.
#[derive(Debug, Clone)]
pub struct ServerFacts {
    /// Channel bindings of the TLS connection (RFC 5056).
    pub bindings: ChannelBindings,
    /// True if a mechanism that uses the bindings was offered (`-PLUS`, RFC 5802 §6).
    pub offers_plus: bool,
    /// The logins that the client's verified certificate stands for. The first is meant if the client names none.
    pub certificate: Vec<Box<str>>,
    /// The advice for clients whose token is refused.
    pub token_advice: TokenAdvice,
    /// Random and printable, without a comma; new for each exchange.
    pub nonce: Box<str>,
    /// Random, and the same for as long as the daemon runs: the keys of users who do not exist are made of it.
    pub decoy: Secret,
}

/// An exchange of SASL with one client (RFC 4422 §3).
#[derive(Debug)]
pub struct ServerExchange {
    mechanism: Mechanism,
    facts: ServerFacts,
    state: State,
}

/// The next action of whoever drives the exchange.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Send this, and hand over what the client answers.
    Challenge(Vec<u8>),
    /// Find the answer, and hand it over.
    Ask(Question),
    /// The exchange is over; this is the login.
    Authenticated(Box<str>),
    /// The client is not logged in, and is told why.
    Failed(Failure),
}

/// What an exchange asks the store of users. The caller brings the [`Answer`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Question {
    /// Verify the password.
    Password {
        /// User name as the client gave it.
        user: Box<str>,
        /// Password as the client gave it.
        password: Secret,
    },
    /// Find the SCRAM keys of the user.
    Keys {
        /// User name as the client gave it, prepared (RFC 4013).
        user: Box<str>,
        /// The hash function that the mechanism needs.
        hash: ScramHash,
    },
    /// Verify the token, and find its user.
    Token {
        /// `None` if the client named nobody, as OAUTHBEARER permits.
        user: Option<Box<str>>,
        /// Token as the client gave it.
        token: Secret,
    },
}

/// What the store says. Each variant fits some questions only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Password or token are right; the login that the store has for them.
    Right(Box<str>),
    /// The keys of the user; none if he does not exist or has none for this hash.
    Keys(Option<Box<ScramKeys>>),
    /// Wrong, or nobody has that name: the client learns no difference.
    Wrong,
    /// The token is valid, but was not issued for sending mail.
    InsufficientScope,
    /// The login could not be checked; the client may try again later.
    Unavailable,
}

/// Why an exchange failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// A response that the mechanism does not have.
    Malformed,
    /// Name or password are wrong.
    Wrong,
    /// The store could not be asked.
    Unavailable,
}

#[derive(Debug)]
enum State {
    /// Waits for the client's first message.
    First,
    /// LOGIN: the password of this user is awaited.
    Password(Box<str>),
    /// The store is asked. If the client wants to act as somebody else, even the right answer will not do.
    Asked {
        names_another: bool,
    },
    /// The store is asked for the keys.
    AskedKeys(Box<First>),
    /// Waits for the client's proof.
    Proof {
        proof: Box<Proof>,
        is_decoy: bool,
    },
    /// The client has to confirm that it has seen the server's proof.
    Confirm(Box<str>),
    /// The client has to confirm that it has seen why its token was refused.
    Refused(Failure),
    Over,
}

/// The challenges of LOGIN, as every server sends them.
const LOGIN: [&[u8]; 2] = [b"Username:", b"Password:"];

impl ServerExchange {
    /// Begins an exchange, with the initial response if the client sent one (RFC 4954 §4).
    pub fn begin(mechanism: Mechanism, facts: ServerFacts, initial: Option<&[u8]>) -> (Self, Step) {
        let mut exchange = Self { mechanism, facts, state: State::First };
        let step = match initial {
            Some(initial) => exchange.respond(initial),
            None if mechanism == Mechanism::Login => Step::Challenge(LOGIN[0].to_vec()),
            // Of a mechanism whose client speaks first the first challenge is empty.
            None => Step::Challenge(Vec::new()),
        };
        (exchange, step)
    }

    /// Takes the client's response to the last challenge.
    pub fn respond(&mut self, response: &[u8]) -> Step {
        match std::mem::replace(&mut self.state, State::Over) {
            State::First => self.first(response),
            State::Password(user) if (1..=plain::MAX_BYTES).contains(&response.len()) => {
                self.state = State::Asked { names_another: false };
                Step::Ask(Question::Password { user, password: Secret::new(response) })
            }
            State::Proof { proof, is_decoy } => match proof.judge(response) {
                Ok(message) if !is_decoy => {
                    self.state = State::Confirm(proof.user().into());
                    Step::Challenge(message)
                }
                Ok(_) => Step::Failed(Failure::Wrong),
                Err(failure) => Step::Failed(failure),
            },
            State::Confirm(user) if response.is_empty() => Step::Authenticated(user),
            State::Refused(failure) => Step::Failed(failure),
            _ => Step::Failed(Failure::Malformed),
        }
    }

    /// Takes the answer to the last question.
    pub fn answer(&mut self, answer: Answer) -> Step {
        match (std::mem::replace(&mut self.state, State::Over), answer) {
            (_, Answer::Unavailable) => Step::Failed(Failure::Unavailable),
            (State::Asked { names_another: false }, Answer::Right(login)) => Step::Authenticated(login),
            (State::AskedKeys(first), Answer::Keys(keys)) => self.prove(*first, keys),
            (State::AskedKeys(first), Answer::Wrong) => self.prove(*first, None),
            (State::Asked { .. }, answer) if self.mechanism.takes_token() => {
                let fault =
                    if answer == Answer::InsufficientScope { TokenFault::Scope } else { TokenFault::Invalid };
                let reason = self.facts.token_advice.reason(self.mechanism, fault);
                self.refuse(reason)
            }
            _ => Step::Failed(Failure::Wrong),
        }
    }

    fn first(&mut self, message: &[u8]) -> Step {
        let malformed = Step::Failed(Failure::Malformed);
        match self.mechanism {
            Mechanism::Plain => {
                let Some(plain) = plain::read(message) else { return malformed };
                let names_another = !plain.authzid.is_empty() && plain.authzid != plain.user;
                self.state = State::Asked { names_another };
                Step::Ask(Question::Password { user: plain.user.into(), password: plain.password })
            }
            Mechanism::Login => match std::str::from_utf8(message) {
                Ok(user) if (1..=plain::MAX_BYTES).contains(&user.len()) && !user.contains('\0') => {
                    self.state = State::Password(user.into());
                    Step::Challenge(LOGIN[1].to_vec())
                }
                _ => malformed,
            },
            Mechanism::External => match (&self.facts.certificate, std::str::from_utf8(message)) {
                (names, Ok(wanted)) => {
                    let found =
                        names.iter().find(|name| wanted.is_empty() || wanted.eq_ignore_ascii_case(name));
                    found.map_or(Step::Failed(Failure::Wrong), |name| Step::Authenticated(name.clone()))
                }
                (_, Err(_)) => malformed,
            },
            Mechanism::OauthBearer => self.token(oauth::read_bearer(message)),
            Mechanism::Xoauth2 => self.token(oauth::read_xoauth2(message)),
            Mechanism::ScramSha256Plus
            | Mechanism::ScramSha256
            | Mechanism::ScramSha1Plus
            | Mechanism::ScramSha1 => self.keys(message),
        }
    }

    fn token(&mut self, bearer: Option<oauth::Bearer>) -> Step {
        let Some(oauth::Bearer { user, token }) = bearer else { return Step::Failed(Failure::Malformed) };
        self.state = State::Asked { names_another: false };
        Step::Ask(Question::Token { user, token })
    }

    fn keys(&mut self, message: &[u8]) -> Step {
        let Some(hash) = self.mechanism.scram_hash() else { return Step::Failed(Failure::Malformed) };
        let ServerFacts { bindings, offers_plus, .. } = &self.facts;
        match First::read(message, self.mechanism.is_plus(), *offers_plus, bindings) {
            Ok(first) => {
                let user = first.user.clone();
                self.state = State::AskedKeys(Box::new(first));
                Step::Ask(Question::Keys { user, hash })
            }
            Err(failure) => Step::Failed(failure),
        }
    }

    fn prove(&mut self, first: First, keys: Option<Box<ScramKeys>>) -> Step {
        let Some(hash) = self.mechanism.scram_hash() else { return Step::Failed(Failure::Malformed) };
        let names_another = first.names_another;
        let known = keys.filter(|keys| keys.hash == hash);
        let is_decoy = names_another || known.is_none();
        let decoy = || ScramKeys::decoy(hash, &first.user, self.facts.decoy.bytes(), ITERATIONS);
        let keys = known.map_or_else(decoy, |keys| *keys);
        let (proof, message) = Proof::ask(first, keys, &self.facts.nonce);
        self.state = State::Proof { proof: Box::new(proof), is_decoy };
        Step::Challenge(message)
    }

    /// Tells the client why its token was refused; the exchange fails when it has answered.
    fn refuse(&mut self, reason: String) -> Step {
        self.state = State::Refused(Failure::Wrong);
        Step::Challenge(reason.into_bytes())
    }
}
