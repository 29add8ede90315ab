//! SASL (RFC 4422) for SMTP AUTH (RFC 4954), without I/O: the exchanges of a server and of a client.
//!
//! A server's [`ServerExchange`] takes the client's responses and returns challenges and questions. Whoever drives it asks a
//! file, a map or another server for the answer, and may take its time. Nonces and channel bindings are arguments.

mod channel;
mod client;
pub mod dovecot;
mod failures;
mod introspection;
mod known_clients;
mod mechanism;
mod oauth;
mod passwd;
mod password;
mod plain;
mod prep;
mod scram;
mod secret;
mod server;
mod tokens;
mod verified;

pub use channel::{ChannelBindings, ChannelKind};
pub use client::{ClientCredentials, ClientExchange, ClientFailure};
pub use failures::{Counted, FailedLogins};
pub use introspection::{Introspected, TokenDemands, basic_authorization, read_answer, request_form};
pub use known_clients::KnownClients;
pub use mechanism::Mechanism;
pub use oauth::TokenAdvice;
pub use passwd::{KINDS_MAX, LineProblem, Login, PasswdFile};
pub use password::{NewScheme, StoredPassword};
pub use scram::{ScramHash, ScramKeys, salt_of};
pub use secret::Secret;
pub use server::{Answer, Failure, Question, ServerExchange, ServerFacts, Step};
pub use tokens::{VerifiedToken, VerifiedTokens};
pub use verified::VerifiedPasswords;
