//! The client's side of an exchange.

use crate::{
    channel::ChannelBindings,
    mechanism::Mechanism,
    oauth, plain,
    scram::client::{First, Last},
    secret::Secret,
};
use std::str;
use thiserror::Error;

/// The name of a client, and its secret: a password, or a token for OAUTHBEARER and XOAUTH2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCredentials {
    /// User name to log in with.
    pub user: Box<str>,
    /// His password or token; of EXTERNAL it is not used.
    pub secret: Secret,
}

/// The client's side of one SASL exchange.
#[derive(Debug)]
pub struct ClientExchange {
    state: State,
}

#[derive(Debug)]
enum State {
    /// LOGIN asks for these, in turn.
    Lines(Vec<Vec<u8>>),
    ScramFirst(Box<First>),
    ScramLast(Last),
    /// Nothing more is to be said; the server may succeed.
    Sent,
    /// A reason for the failure was answered; the server has to fail.
    Refused,
}

/// Why a client ends an exchange by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ClientFailure {
    /// Forbidden characters (RFC 4013), or bytes that are no UTF-8.
    #[error("user name or password have characters that are not allowed")]
    Characters,
    /// A mechanism with channel binding, and a connection without.
    #[error("the connection has no channel binding")]
    NoChannel,
    /// The server's message is not one of the mechanism's.
    #[error("the server sent a challenge that is none of the mechanism's")]
    Challenge,
    /// The server cannot prove that it knows the user.
    #[error("the server did not prove that it knows the user")]
    Server,
}

impl ClientExchange {
    /// Begins an exchange: the initial response, if the mechanism has one.
    ///
    /// # Errors
    /// The credentials or the connection do not fit the mechanism.
    pub fn begin(
        mechanism: Mechanism,
        credentials: &ClientCredentials,
        bindings: &ChannelBindings,
        nonce: &str,
    ) -> Result<(Self, Option<Vec<u8>>), ClientFailure> {
        let ClientCredentials { user, secret } = credentials;
        let said = |message: Vec<u8>| (State::Sent, Some(message));
        let (state, initial) = match mechanism {
            Mechanism::Plain => said(plain::write(user, secret)),
            Mechanism::Login => (State::Lines(vec![secret.bytes().to_vec(), user.as_bytes().to_vec()]), None),
            Mechanism::External => said(Vec::new()),
            Mechanism::OauthBearer => said(oauth::write_bearer(user, secret)),
            Mechanism::Xoauth2 => said(oauth::write_xoauth2(user, secret)),
            Mechanism::ScramSha256Plus
            | Mechanism::ScramSha256
            | Mechanism::ScramSha1Plus
            | Mechanism::ScramSha1 => {
                let hash = mechanism.scram_hash().ok_or(ClientFailure::Challenge)?;
                let channel = bindings.best().filter(|_| mechanism.is_plus());
                if mechanism.is_plus() && channel.is_none() {
                    return Err(ClientFailure::NoChannel);
                }
                let password = str::from_utf8(secret.bytes()).map_err(|_| ClientFailure::Characters)?;
                // `y` would say that the server offered no -PLUS, which only the caller knows.
                let (first, message) =
                    First::begin(hash, (user, password), channel, nonce).ok_or(ClientFailure::Characters)?;
                (State::ScramFirst(Box::new(first)), Some(message))
            }
        };
        Ok((Self { state }, initial))
    }

    /// Answers a challenge.
    ///
    /// # Errors
    /// The challenge is none of the mechanism's, or the server's proof is wrong: the client shall cancel (`*`).
    pub fn respond(&mut self, challenge: &[u8]) -> Result<Vec<u8>, ClientFailure> {
        match std::mem::replace(&mut self.state, State::Refused) {
            State::Lines(mut lines) => {
                let line = lines.pop().ok_or(ClientFailure::Challenge)?;
                self.state = if lines.is_empty() { State::Sent } else { State::Lines(lines) };
                Ok(line)
            }
            State::ScramFirst(first) => {
                let (last, message) = first.prove(challenge).ok_or(ClientFailure::Challenge)?;
                self.state = State::ScramLast(last);
                Ok(message)
            }
            State::ScramLast(last) if last.is_proved_by(challenge) => {
                self.state = State::Sent;
                Ok(Vec::new())
            }
            State::ScramLast(_) => Err(ClientFailure::Server),
            // A token was refused, and the server says why (RFC 7628 §3.2.3).
            State::Sent if !challenge.is_empty() => Ok(oauth::DUMMY.to_vec()),
            State::Sent | State::Refused => Err(ClientFailure::Challenge),
        }
    }

    /// Returns whether the client takes a success of the server for one.
    pub fn may_succeed(&self) -> bool {
        matches!(self.state, State::Sent)
    }
}
