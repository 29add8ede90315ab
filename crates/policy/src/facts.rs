//! The facts that rules see, and the questions whose answers become facts.

use crate::{Listed, ServiceAction, SessionFacts};
use mail::{Recipient, ReversePath};

/// The facts of a session and its transaction, as far as they are known at a stage.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// What is known of the client, or of another source.
    pub session: &'a SessionFacts,
    /// `None` before MAIL.
    pub from: Option<&'a ReversePath>,
    /// At RCPT the recipient that is judged; at the content all.
    pub to: &'a [Recipient],
    /// Recipients so far, with the one that is judged.
    pub recipient_count: usize,
    /// `None` before the content.
    pub size_bytes: Option<u64>,
    /// Empty before the content.
    pub header: &'a [u8],
    /// Tags of rules at earlier stages; at the content also those of any recipient.
    pub tags: &'a [Box<str>],
    /// At the content: those of the tags that all recipients have.
    pub shared_tags: &'a [Box<str>],
    /// The score that rules at earlier stages have given; at the content with the highest of a recipient.
    pub score: i32,
    /// At the content: with the lowest of a recipient.
    pub least_score: i32,
    /// The client may relay, or a rule says that it counts as trusted.
    pub is_trusted: bool,
}

impl<'a> Facts<'a> {
    /// The facts before MAIL, of a client that is not trusted.
    pub fn new(session: &'a SessionFacts) -> Self {
        Self {
            session,
            from: None,
            to: &[],
            recipient_count: 0,
            size_bytes: None,
            header: &[],
            tags: &[],
            shared_tags: &[],
            score: 0,
            least_score: 0,
            is_trusted: false,
        }
    }
}

/// The number of a map among the maps of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MapId(pub u16);

/// The number of a limit among the limits of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LimitId(pub u16);

/// The number of a policy service of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServiceId(pub u16);

/// What a program has to know of a map to ask it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapInfo {
    /// `text:/etc/postrider/blocked`.
    pub name: Box<str>,
    /// True if only whole keys are looked up, and not parts of them: patterns match parts by themselves.
    pub has_patterns: bool,
}

/// A question that a program asks; the driver answers it, and evaluates again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Question {
    /// Look this key up in this map.
    Map(MapId, Box<str>),
    /// Find the client's name, and verify it.
    ClientName,
    /// Spend an amount of a key's rate.
    Spend(LimitId, Box<str>, u64),
    /// Ask this policy service for its action.
    Service(ServiceId),
    /// What the list with this domain says of another domain, or of the client's address.
    DnsList(Box<str>, Option<Box<str>>),
}

/// How long an answer stays valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Until the session ends.
    Session,
    /// Until the next MAIL.
    Transaction,
    /// Until the next RCPT.
    Recipient,
}

/// What the DNS says of the client's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientName {
    /// A name that its address leads to, and that leads back to its address.
    Verified(Box<str>),
    /// The address has no name, or none that leads back.
    None,
    /// DNS does not say now.
    Unknown(Box<str>),
}

/// The answer to a [`Question`] of the same kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fact {
    /// The value of a key, if the map has it; or the reason why the look-up failed.
    Map(Result<Option<Box<str>>, Box<str>>),
    /// What the DNS says of the client's name.
    ClientName(ClientName),
    /// True if the rate is exceeded; then nothing was spent.
    Over(bool),
    /// The action, or the reason why the service did not answer.
    Service(Result<ServiceAction, Box<str>>),
    /// What a list says, or the reason why it does not answer.
    DnsList(Result<Listed, Box<str>>),
}

/// Answers that are known. A question is asked once in its scope, however often a program is evaluated.
#[derive(Debug, Clone, Default)]
pub struct Answers(Vec<(Scope, Question, Fact)>);

impl Answers {
    /// Adds an answer, to be forgotten when its scope ends.
    pub fn add(&mut self, scope: Scope, question: Question, answer: Fact) {
        self.0.push((scope, question, answer));
    }

    /// Returns the answer if the question was answered and has not been forgotten.
    pub fn find(&self, question: &Question) -> Option<&Fact> {
        self.0.iter().find(|(_, known, _)| known == question).map(|(.., answer)| answer)
    }

    /// Returns the value of a key in a map, if that was asked.
    pub(crate) fn map(&self, map: MapId, key: &str) -> Option<&Result<Option<Box<str>>, Box<str>>> {
        self.0.iter().find_map(|(_, question, answer)| match (question, answer) {
            (Question::Map(asked, known), Fact::Map(value)) if *asked == map && **known == *key => {
                Some(value)
            }
            _ => None,
        })
    }

    /// Returns what a list says of a domain, or of the client's address, if it was asked.
    pub(crate) fn dns_list(&self, zone: &str, domain: Option<&str>) -> Option<&Result<Listed, Box<str>>> {
        self.0.iter().find_map(|(_, question, answer)| match (question, answer) {
            (Question::DnsList(asked, of), Fact::DnsList(listed))
                if **asked == *zone && of.as_deref() == domain =>
            {
                Some(listed)
            }
            _ => None,
        })
    }

    /// Forgets what lives no longer than this scope.
    pub fn forget(&mut self, scope: Scope) {
        self.0.retain(|(known, ..)| *known < scope);
    }
}
