//! One rule.

use crate::{Condition, ReplyText, ServiceId, Stage};
use mail::{Field, Mailbox};
use std::time::Duration;

/// Which clients a rule judges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Audience {
    /// Clients that may not relay.
    Untrusted,
    /// Clients in the relay networks, and logins.
    Users,
    /// All, and programs on this machine.
    All,
}

impl Audience {
    /// Returns the word in the configuration, such as `untrusted`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Untrusted => "untrusted",
            Self::Users => "users",
            Self::All => "all",
        }
    }

    /// Returns the clients in words: `clients that have logged in or are in relay.networks`.
    pub fn in_words(self) -> &'static str {
        match self {
            Self::Untrusted => "untrusted clients",
            Self::Users => "clients that have logged in or are in relay.networks",
            Self::All => "all clients",
        }
    }

    pub(crate) fn covers(self, other: Self) -> bool {
        self == Self::All || self == other
    }
}

/// What happens to the client's command if the rule holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// No rule below runs at this stage.
    Accept,
    /// Refuse with this 5yz reply.
    Reject(ReplyText),
    /// Refuse with this 4yz reply.
    Defer(ReplyText),
    /// Accepted, and not delivered. The text is the reason, for the log.
    Discard(Box<str>),
    /// Accepted, and held until an operator releases it. The text is the reason.
    Hold(Box<str>),
    /// A policy service decides.
    Ask(ServiceId),
}

/// Changes that a rule makes beside its verdict.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Modifiers {
    /// Words for later rules.
    pub tags: Vec<Box<str>>,
    /// Added to the score of the mail, for later rules.
    pub score: i32,
    /// Delay before the reply is sent.
    pub delay: Duration,
    /// Added to the header.
    pub fields: Vec<Field>,
    /// The recipients that take the place of those that were given; at RCPT of the one that is judged.
    pub redirect: Vec<Mailbox>,
    /// Further recipients, without notifications.
    pub bcc: Vec<Mailbox>,
    /// The name of the route by which the mail leaves; at RCPT of the recipient that is judged.
    pub route: Option<Box<str>>,
    /// The client counts as trusted for the rules below.
    pub is_trust: bool,
}

/// A line of the configuration; 0 for none. Where something stands does not change what it means, so that all are equal.
#[derive(Debug, Clone, Copy, Default)]
pub struct Line(pub usize);

impl PartialEq for Line {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Line {}

/// One rule: its verdict holds if all of its conditions hold, and none of `unless`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// `rule 3`, with its name if it has one, or the name of a check.
    pub name: Box<str>,
    /// The line of the configuration; 0 for a check.
    pub line: Line,
    /// The rule is passed by at other stages.
    pub stage: Stage,
    /// Other clients pass it by.
    pub audience: Audience,
    /// All have to hold.
    pub conditions: Vec<Condition>,
    /// None may hold.
    pub unless: Vec<Condition>,
    /// The verdict; without one, the rules below run.
    pub action: Option<Action>,
    /// Changes that the rule makes beside its verdict.
    pub modifiers: Modifiers,
}

impl Rule {
    /// Returns the stage at which a rule runs that does not say, from the earliest ones of its conditions: RCPT, or the content if one
    /// asks for that.
    pub fn usual_stage(earliest: impl IntoIterator<Item = Stage>) -> Stage {
        if earliest.into_iter().any(|stage| stage == Stage::Content) { Stage::Content } else { Stage::Rcpt }
    }

    /// Sorts the conditions: those without a look-up first, and what has side effects last.
    pub fn sort(&mut self) {
        self.conditions.sort_by_key(Condition::cost);
        self.unless.sort_by_key(Condition::cost);
    }

    /// Returns whether the rule spares mail the rules below, or its client the checks.
    pub(crate) fn spares(&self) -> bool {
        match self.action {
            Some(Action::Accept) => true,
            Some(Action::Reject(_) | Action::Defer(_) | Action::Discard(_) | Action::Hold(_)) => false,
            Some(Action::Ask(_)) | None => self.modifiers.is_trust,
        }
    }

    /// `rule 3, line 26`: for logs.
    pub fn place(&self) -> String {
        if self.line.0 == 0 { self.name.to_string() } else { format!("{}, line {}", self.name, self.line.0) }
    }
}
