//! Requests and answers, as JSON.

use crate::local::{Parcel, Place};
use mail::{Argument, Disposition, Enhanced, ForwardPath, Outcome, Program, QueueId, ReversePath};
use serde::{Deserialize, Serialize};

/// What the daemon sends to the helper. The helper trusts none of it: it looks up paths and users itself.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) enum ToHelper {
    /// Deliver the content of the descriptor to one recipient.
    Deliver(Request),
    /// Read the configuration again.
    Reload,
    /// Open a listening socket at this address, if the configuration names it.
    Listen(std::net::SocketAddr),
    /// A call of the program for certificates, with these arguments behind its own.
    Hook(Vec<String>),
    /// The content of `.forward` of the user with this name.
    Forward(String),
    /// A question about an account that the daemon does not find in the files, or cannot read any more.
    Account(machine::accounts::Question),
}

/// What the supervisor tells the daemon about the helper.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) enum FromSupervisor {
    /// The helper runs: for the first time, or again.
    Started,
    /// The helper has ended in this way, and starts again after the pause.
    Ended { how: String, pause_ms: u64 },
}

/// The delivery of a message to one recipient.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
    pub(super) place: RequestedPlace,
    /// The name of the route, if it writes files as another user.
    pub(super) route: Option<String>,
    pub(super) envelope: Addresses,
}

/// The envelope of one recipient's copy, as text: the helper parses it again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Addresses {
    id: u64,
    sender: String,
    recipient: String,
}

/// Where to deliver, in the form of the configuration, which has to contain it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) enum RequestedPlace {
    Maildir(String),
    Mbox(String),
    Program(RequestedProgram),
}

/// A program, as the configuration or an alias writes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RequestedProgram {
    pub(super) argv: Vec<String>,
    pub(super) user: Option<String>,
}

impl RequestedProgram {
    pub(super) fn of(program: &Program) -> Self {
        let argv = program.argv.iter().map(|argument: &Argument| argument.as_str().to_owned()).collect();
        Self { argv, user: program.user.as_ref().map(|user| user.name.to_string()) }
    }
}

impl Request {
    pub(super) fn is_program(&self) -> bool {
        matches!(self.place, RequestedPlace::Program(_))
    }

    pub(super) fn recipient(&self) -> &str {
        &self.envelope.recipient
    }

    pub(crate) fn new<S>(place: Place<'_>, route: Option<&str>, parcel: &Parcel<'_, S>) -> Self {
        let place = match place {
            Place::Maildir(template) => RequestedPlace::Maildir(template.to_owned()),
            Place::Mbox(template) => RequestedPlace::Mbox(template.to_owned()),
            Place::Program(program) => RequestedPlace::Program(RequestedProgram::of(program)),
        };
        let envelope = Addresses {
            id: parcel.id.0,
            sender: parcel.sender.as_str().to_owned(),
            recipient: parcel.recipient.as_str().to_owned(),
        };
        Self { place, route: route.map(str::to_owned), envelope }
    }
}

/// Addresses that the helper has parsed.
#[derive(Debug)]
pub(super) struct CheckedAddresses {
    pub(super) id: QueueId,
    pub(super) sender: ReversePath,
    pub(super) recipient: ForwardPath,
}

impl Addresses {
    /// Reads the addresses, as the daemon has accepted them.
    pub(super) fn check(&self) -> Option<CheckedAddresses> {
        let sender = ReversePath::parse(&self.sender, true).ok()?;
        let recipient = ForwardPath::parse(&self.recipient, true).ok()?;
        Some(CheckedAddresses { id: QueueId(self.id), sender, recipient })
    }
}

/// The outcome of a request, as the helper sends it to the daemon.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Answer {
    /// `2.0.0`: the class is that of the outcome.
    status: String,
    text: String,
}

impl From<&Outcome> for Answer {
    fn from(outcome: &Outcome) -> Self {
        let class = match outcome.disposition {
            Disposition::Delivered => 2,
            Disposition::Deferred => 4,
            Disposition::Failed => 5,
        };
        let Enhanced(_, subject, detail) = outcome.status;
        Self { status: Enhanced(class, subject, detail).to_string(), text: outcome.text.to_string() }
    }
}

impl Answer {
    /// Returns the outcome; none for an answer that has none.
    pub(super) fn outcome(self) -> Option<Outcome> {
        let (status, _) = Enhanced::parse_prefix(&self.status)?;
        Some(match status.0 {
            2 => Outcome::delivered(status, self.text),
            4 => Outcome::deferred(status, self.text),
            5 => Outcome::failed(status, self.text),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_comes_back_as_it_was() {
        for outcome in [
            Outcome::delivered(Enhanced(2, 0, 0), "delivered to Maildir joe"),
            Outcome::deferred(Enhanced(4, 3, 5), "x"),
            Outcome::failed(Enhanced(5, 1, 1), ""),
        ] {
            let text = serde_json::to_vec(&Answer::from(&outcome)).unwrap();
            let answer: Answer = serde_json::from_slice(&text).unwrap();
            assert_eq!(answer.outcome(), Some(outcome));
        }
    }
}
