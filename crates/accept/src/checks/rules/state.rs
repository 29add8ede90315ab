//! The memory of a session for its rules: answers, tags and trust.

use crate::{memory::CheckMemory, observer::duration};
use policy::{Answers, ClientName, Fact, Question, Scope, Stage};
use std::time::Duration;

/// What the rules remember between the stages of one session.
#[derive(Default)]
pub(super) struct Memory {
    pub(super) answers: Answers,
    /// Of the connection, and of the name in EHLO.
    pub(super) session_tags: Vec<(Stage, Box<str>)>,
    /// Set at MAIL; they end with the transaction.
    pub(super) mail_tags: Vec<Box<str>>,
    /// Of the recipients, by index. A refused one has none.
    pub(super) recipient_tags: Vec<Vec<Box<str>>>,
    /// What rules of the connection and of the name in EHLO have added to the score.
    session_scores: Vec<(Stage, i32)>,
    /// What rules of MAIL have added to it.
    mail_score: i32,
    /// What rules of RCPT have added to it for each recipient, by index.
    recipient_scores: Vec<i32>,
    /// The stage before RCPT at which the client began to count as trusted.
    trusted_since: Option<Stage>,
    /// Each recipient that was judged, by index, and whether a rule of RCPT trusts the client for it.
    recipient_trust: Vec<(usize, bool)>,
    /// A number for each transaction, for policy servers.
    pub(super) instance: u64,
}

impl CheckMemory for Memory {
    /// Forgets everything of a name in EHLO, as a new one does.
    fn begin_hello(&mut self) {
        self.session_tags.retain(|(stage, _)| *stage < Stage::Hello);
        self.session_scores.retain(|(stage, _)| *stage < Stage::Hello);
        self.forget_trust(Stage::Hello);
        self.begin_transaction();
    }

    /// Forgets everything of a transaction, as MAIL does.
    fn begin_transaction(&mut self) {
        self.answers.forget(Scope::Transaction);
        self.mail_tags.clear();
        self.recipient_tags.clear();
        self.mail_score = 0;
        self.recipient_scores.clear();
        self.recipient_trust.clear();
        self.forget_trust(Stage::Mail);
        self.instance = self.instance.wrapping_add(1);
    }
}

impl Memory {
    fn forget_trust(&mut self, from: Stage) {
        self.trusted_since = self.trusted_since.filter(|since| *since < from);
    }

    /// Forgets the recipient with this index, and those behind it.
    pub(super) fn begin_recipient(&mut self, index: usize) {
        self.answers.forget(Scope::Recipient);
        self.recipient_tags.truncate(index);
        self.recipient_scores.truncate(index);
        self.recipient_trust.retain(|(other, _)| *other < index);
        self.recipient_trust.push((index, false));
    }

    /// Notes that a rule trusts the client: for one recipient, where it is a rule of RCPT.
    pub(super) fn trust(&mut self, stage: Stage, recipient: usize) {
        if stage == Stage::Rcpt {
            let own = self.recipient_trust.iter_mut().filter(|(index, _)| *index == recipient);
            own.for_each(|(_, is_trusted)| *is_trusted = true);
        } else if self.trusted_since.is_none() {
            self.trusted_since = Some(stage);
        }
    }

    /// Returns whether the client counts as trusted at a stage. Trust for one recipient does not decide about the content that
    /// others get: each of the first `accepted` recipients has to have it. A refused one behind them does not count.
    pub(super) fn is_trusted(&self, stage: Stage, accepted: usize) -> bool {
        let mut of_recipients = self.recipient_trust.iter().filter(|(index, _)| *index < accepted).peekable();
        self.trusted_since.is_some()
            || stage == Stage::Content
                && of_recipients.peek().is_some()
                && of_recipients.all(|(_, is_trusted)| *is_trusted)
    }

    /// The tags that a stage sees: the content has those of the first `accepted` recipients.
    pub(super) fn tags(&self, stage: Stage, accepted: usize) -> Vec<Box<str>> {
        let session = self.session_tags.iter().map(|(_, tag)| tag);
        let accepted = if stage == Stage::Content { accepted } else { 0 };
        let recipients = self.recipient_tags.iter().take(accepted).flatten();
        session.chain(&self.mail_tags).chain(recipients).cloned().collect()
    }

    /// Those of the tags that are true of every recipient: a tag of one does not exempt the content that others get.
    pub(super) fn shared_tags(&self, stage: Stage, accepted: usize) -> Vec<Box<str>> {
        let mut tags = self.tags(stage, 0);
        if stage == Stage::Content
            && let (Some(first), Some(others)) =
                (self.recipient_tags.first(), self.recipient_tags.get(1..accepted))
        {
            tags.extend(first.iter().filter(|tag| others.iter().all(|tags| tags.contains(tag))).cloned());
        }
        tags
    }

    /// The score that a stage sees: the highest and the lowest one, since the content has those of the first `accepted` recipients.
    pub(super) fn scores(&self, stage: Stage, accepted: usize) -> (i32, i32) {
        let before =
            self.session_scores.iter().map(|(_, score)| *score).fold(self.mail_score, i32::saturating_add);
        let accepted = if stage == Stage::Content { accepted } else { 0 };
        // Those behind the last one that a rule has scored have none.
        let of = |index| self.recipient_scores.get(index).copied().unwrap_or(0);
        let total = |score: Option<i32>| before.saturating_add(score.unwrap_or(0));
        (total((0..accepted).map(of).max()), total((0..accepted).map(of).min()))
    }

    /// Notes what rules of a stage have added to the score.
    pub(super) fn add_score(&mut self, stage: Stage, recipient: usize, score: i32) {
        if score == 0 {
            return;
        }
        match stage {
            Stage::Connect | Stage::Hello => self.session_scores.push((stage, score)),
            Stage::Mail => self.mail_score = score,
            Stage::Rcpt => {
                self.recipient_scores.resize(recipient + 1, 0);
                self.recipient_scores[recipient] = score;
            }
            _ => {}
        }
    }

    /// Notes tags that rules of a stage have set.
    pub(super) fn add_tags(&mut self, stage: Stage, recipient: usize, tags: &[Box<str>]) {
        if tags.is_empty() {
            return;
        }
        match stage {
            Stage::Connect | Stage::Hello => {
                self.session_tags.extend(tags.iter().map(|tag| (stage, tag.clone())));
            }
            Stage::Mail => self.mail_tags.extend_from_slice(tags),
            Stage::Rcpt => {
                self.recipient_tags.resize_with(recipient + 1, Vec::new);
                self.recipient_tags[recipient] = tags.to_vec();
            }
            _ => {}
        }
    }

    /// Is the answer to a question still needed?
    pub(super) fn lacks(&self, question: &Question) -> bool {
        self.answers.find(question).is_none()
    }
}

/// The answer as an observer shows it, with the time that it took.
pub(super) fn shown(answer: &Fact, took: Duration) -> String {
    let text = match answer {
        Fact::Map(Ok(Some(value))) if value.is_empty() => "found".to_owned(),
        Fact::Map(Ok(Some(value))) => format!("\"{value}\""),
        Fact::Map(Ok(None)) => "not in it".to_owned(),
        Fact::Map(Err(why)) => format!("failed: {why}"),
        Fact::ClientName(ClientName::Verified(name)) => name.to_string(),
        Fact::ClientName(ClientName::None) => "no verified name".to_owned(),
        Fact::ClientName(ClientName::Unknown(why)) => format!("failed: {why}"),
        Fact::DnsList(Ok(listed)) if listed.codes.is_empty() => "not listed".to_owned(),
        Fact::DnsList(Ok(listed)) => {
            let codes: Vec<_> = listed.codes.iter().map(ToString::to_string).collect();
            format!("listed: {} {}", codes.join(", "), listed.text)
        }
        Fact::DnsList(Err(why)) => format!("failed: {why}"),
        Fact::Over(true) => "exceeded".to_owned(),
        Fact::Over(false) => "within the rate".to_owned(),
        Fact::Service(Ok(action)) => action.to_string(),
        Fact::Service(Err(why)) => format!("failed: {why}"),
    };
    format!("{text}, {}", duration(took))
}
