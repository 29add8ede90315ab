//! AUTH PLAIN and LOGIN of a sink (RFC 4954): any name and password will do, unless some are set.

use super::{Dialog, Verb, line::text_of};
use crate::sink::rules::Credentials;
use data_encoding::BASE64;

/// An exchange under way.
#[derive(Debug)]
pub(super) struct Exchange {
    mechanism: Mechanism,
    /// The client's responses so far, decoded.
    responses: Vec<Vec<u8>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mechanism {
    Plain,
    Login,
}

impl Mechanism {
    fn parse(word: &str) -> Option<Self> {
        match word {
            _ if word.eq_ignore_ascii_case("PLAIN") => Some(Self::Plain),
            _ if word.eq_ignore_ascii_case("LOGIN") => Some(Self::Login),
            _ => None,
        }
    }

    /// Returns the challenge for each response, in base64.
    fn challenges(self) -> &'static [&'static str] {
        match self {
            Self::Plain => &[""],
            Self::Login => &["VXNlcm5hbWU6", "UGFzc3dvcmQ6"],
        }
    }
}

impl Exchange {
    /// Returns whether the client has the right name and password.
    fn proves(&self, wanted: Option<&Credentials>) -> bool {
        let Some(Credentials { user, password }) = wanted else { return true };
        let given: Vec<&[u8]> = match (self.mechanism, &self.responses[..]) {
            // An identity to act for, a name and a password (RFC 4616 §2).
            (Mechanism::Plain, [response]) => response.split(|b| *b == 0).skip(1).collect(),
            (_, responses) => responses.iter().map(Vec::as_slice).collect(),
        };
        given == [user.as_bytes(), password.as_bytes()]
    }
}

impl Dialog {
    /// Returns whether the client has to authenticate before it sends mail.
    pub(super) fn lacks_auth(&self) -> bool {
        self.rules.credentials.is_some() && !self.is_authenticated
    }

    pub(super) fn begin_auth(&mut self, line: &[u8]) {
        let text = text_of(line);
        let mut words = text.split_ascii_whitespace().skip(1);
        let Some(mechanism) = words.next().and_then(Mechanism::parse) else {
            return self.say("504 5.5.4 Error: mechanism not supported");
        };
        self.auth = Some(Exchange { mechanism, responses: Vec::new() });
        match words.next() {
            // An empty initial response (RFC 4954 §4).
            Some("=") => self.take_response(""),
            Some(initial) => self.take_response(initial),
            None => self.ask_for_auth(),
        }
    }

    pub(super) fn go_on_with_auth(&mut self, line: &[u8]) {
        self.answered = Some(Verb::Auth);
        let response = text_of(line);
        self.take_response(&response);
    }

    fn take_response(&mut self, response: &str) {
        let decoded = BASE64.decode(response.as_bytes());
        let (Some(exchange), Ok(decoded)) = (&mut self.auth, decoded) else {
            self.auth = None;
            // `*` cancels, and is no base64 either.
            return self.say("501 5.5.2 Error: no base64, or cancelled");
        };
        exchange.responses.push(decoded);
        self.ask_for_auth();
    }

    fn ask_for_auth(&mut self) {
        let Some(exchange) = &self.auth else { return };
        if let Some(challenge) = exchange.mechanism.challenges().get(exchange.responses.len()) {
            return self.say(&format!("334 {challenge}"));
        }
        self.is_authenticated = exchange.proves(self.rules.credentials.as_ref());
        self.auth = None;
        self.say(if self.is_authenticated {
            "235 2.7.0 Authentication successful"
        } else {
            "535 5.7.8 Error: authentication failed"
        });
    }
}
