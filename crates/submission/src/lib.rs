//! Mail from this machine: the sendmail interface ([`sendmail`]), the submit socket that it hands messages to
//! ([`submit_client`], [`submit_socket`]), and the maildrop for the time when the daemon does not run ([`maildrop`], [`maildrop_scanner`]).
//! An envelope is written down in the same way for both ([`envelope`]).
//!
//! The daemon implements [`Acceptor`].

pub mod envelope;
#[cfg(test)]
mod fake;
#[cfg(test)]
mod fuzz;
pub mod maildrop;
pub mod maildrop_scanner;
mod repeats;
pub mod sendmail;
pub mod submit_client;
pub mod submit_socket;
#[cfg(test)]
mod tests;

pub use envelope::{Refusal, Submission};
pub use maildrop_scanner::{MaildropScanner, Waiting};
pub use submit_socket::serve_submit;

use mail::QueueId;
use std::future::Future;

/// The acceptance of mail from this machine, which the daemon implements.
pub trait Acceptor: Send + Sync + 'static {
    /// Accepts a message durably, as after the end of data.
    fn submit(&self, submission: Submission) -> impl Future<Output = Result<QueueId, Refusal>> + Send;

    /// Returns a message to its sender that was refused for good, with the reason.
    fn give_back(
        &self,
        submission: Submission,
        why: &str,
    ) -> impl Future<Output = Result<QueueId, Refusal>> + Send;
}
