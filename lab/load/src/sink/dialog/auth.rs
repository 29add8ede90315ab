//! AUTH of a sink (RFC 4954): PLAIN and LOGIN with any name and password; with one that is set, SCRAM too.

use super::{Dialog, Verb, line::text_of};
use auth::{Answer, ChannelBindings, Failure, Mechanism, Secret, ServerExchange, ServerFacts, Step};
use data_encoding::BASE64;

impl Dialog {
    /// Returns whether the client has to authenticate before it sends mail.
    pub(super) fn lacks_auth(&self) -> bool {
        self.rules.known_user.is_some() && !self.is_authenticated
    }

    pub(super) fn begin_auth(&mut self, line: &[u8]) {
        let text = text_of(line);
        let mut words = text.split_ascii_whitespace().skip(1);
        let mechanism = words.next().and_then(|word| word.parse::<Mechanism>().ok());
        let Some(mechanism) = mechanism.filter(|one| self.rules.mechanisms().contains(one)) else {
            return self.say("504 5.5.4 Error: mechanism not supported");
        };
        let initial = match words.next() {
            // An empty initial response (RFC 4954 §4).
            Some("=") => Some(Vec::new()),
            Some(initial) => match BASE64.decode(initial.as_bytes()) {
                Ok(initial) => Some(initial),
                Err(_) => return self.say(NO_BASE64),
            },
            None => None,
        };
        let (exchange, step) = ServerExchange::begin(mechanism, facts(), initial.as_deref());
        self.auth = Some(exchange);
        self.go_on(step);
    }

    pub(super) fn go_on_with_auth(&mut self, line: &[u8]) {
        self.answered = Some(Verb::Auth);
        let response = BASE64.decode(text_of(line).as_bytes());
        let (Some(exchange), Ok(response)) = (&mut self.auth, response) else {
            self.auth = None;
            // `*` cancels, and is no base64 either.
            return self.say(NO_BASE64);
        };
        let step = exchange.respond(&response);
        self.go_on(step);
    }

    fn go_on(&mut self, mut step: Step) {
        while let (Step::Ask(question), Some(exchange)) = (&step, &mut self.auth) {
            step = exchange.answer(match &self.rules.known_user {
                Some(user) => user.answer(question),
                None => Answer::Right("anybody".into()),
            });
        }
        if let Step::Challenge(challenge) = &step {
            return self.say(&format!("334 {}", BASE64.encode(challenge)));
        }
        self.auth = None;
        self.is_authenticated = matches!(step, Step::Authenticated(_));
        self.say(match step {
            Step::Authenticated(_) => "235 2.7.0 Authentication successful",
            Step::Failed(Failure::Malformed) => "501 5.5.2 Error: no message of the mechanism",
            _ => "535 5.7.8 Error: authentication failed",
        });
    }
}

const NO_BASE64: &str = "501 5.5.2 Error: no base64, or cancelled";

/// The facts of an exchange. A sink has no secrets to keep: its nonces need not be hard to guess.
fn facts() -> ServerFacts {
    ServerFacts {
        bindings: ChannelBindings::default(),
        offers_plus: false,
        certificate: Vec::new(),
        token_advice: auth::TokenAdvice::default(),
        nonce: format!("{:032x}", fastrand::u128(..)).into(),
        decoy: Secret::new("sink"),
    }
}
