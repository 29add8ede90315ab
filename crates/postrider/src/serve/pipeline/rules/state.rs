//! The memory of a session for its rules: answers, tags, and what was observed.

use engine::accept;
use policy::{Answer, Answers, ClientName, Question, Scope, Stage, Trace};
use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// The memory of the rules of one session. Between two stages nobody holds it.
#[derive(Default)]
pub(crate) struct RuleState(Mutex<Memory>);

#[derive(Default)]
pub(super) struct Memory {
    pub(super) answers: Answers,
    /// Of the connection, and of the name in EHLO.
    pub(super) session_tags: Vec<(Stage, Box<str>)>,
    /// Of MAIL.
    pub(super) mail_tags: Vec<Box<str>>,
    /// Of the recipients, by index. A refused one has none.
    pub(super) recipient_tags: Vec<Vec<Box<str>>>,
    /// The stage before RCPT at which the client began to count as trusted.
    trusted_since: Option<Stage>,
    /// Each recipient that was judged, by index, and whether a rule of RCPT trusts the client for it.
    recipient_trust: Vec<(usize, bool)>,
    /// A number for each transaction, for policy servers.
    pub(super) instance: u64,
    /// None: nobody looks.
    pub(super) observed: Option<Observed>,
}

/// Findings that `postrider test` shows.
#[derive(Debug, Default)]
pub(crate) struct Observed {
    /// Rules of the evaluation that is under way, with what was found.
    rules: Vec<(String, String)>,
    /// Lines of stages that are over: stage, what, and what was found.
    pub(crate) lines: Vec<(Stage, String, String)>,
    stage: Option<Stage>,
}

impl Observed {
    /// Ends the evaluation that is under way: its rules are what is shown.
    fn keep(&mut self) {
        if let Some(stage) = self.stage.take() {
            self.lines.extend(self.rules.drain(..).map(|(place, text)| (stage, place, text)));
        }
    }
}

impl Trace for &mut Observed {
    const IS_ON: bool = true;

    fn begin(&mut self, stage: Stage) {
        self.stage = Some(stage);
        self.rules.clear();
    }

    fn judged(&mut self, place: &str, text: &str) {
        self.rules.push((place.to_owned(), text.to_owned()));
    }
}

impl RuleState {
    /// A memory that also notes what is evaluated.
    pub(crate) fn observed() -> Self {
        Self(Mutex::new(Memory { observed: Some(Observed::default()), ..Memory::default() }))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Memory> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets everything of a name in EHLO, as a new one does.
    pub(crate) fn begin_hello(&self) {
        let mut memory = self.lock();
        memory.session_tags.retain(|(stage, _)| *stage < Stage::Hello);
        memory.forget_trust(Stage::Hello);
        memory.begin_transaction();
    }

    /// Forgets everything of a transaction, as MAIL does. Answers to the questions of another program mean nothing to this
    /// one.
    pub(crate) fn begin_transaction(&self, is_reloaded: bool) {
        let mut memory = self.lock();
        if is_reloaded {
            memory.answers = Answers::default();
        }
        memory.begin_transaction();
    }

    /// Notes what another check than the rules found, if anybody looks.
    pub(crate) fn note(&self, stage: accept::Stage, what: &str, text: impl FnOnce() -> String) {
        let mut memory = self.lock();
        if let (Some(stage), true) = (stage_of(stage), memory.observed.is_some()) {
            memory.note(stage, what.to_owned(), text());
        }
    }

    /// Returns what was observed.
    pub(crate) fn take_observed(&self) -> Vec<(Stage, String, String)> {
        self.lock().observed.as_mut().map(|observed| std::mem::take(&mut observed.lines)).unwrap_or_default()
    }
}

impl Memory {
    fn begin_transaction(&mut self) {
        self.answers.forget(Scope::Transaction);
        self.mail_tags.clear();
        self.recipient_tags.clear();
        self.recipient_trust.clear();
        self.forget_trust(Stage::Mail);
        self.instance = self.instance.wrapping_add(1);
    }

    fn forget_trust(&mut self, from: Stage) {
        self.trusted_since = self.trusted_since.filter(|since| *since < from);
    }

    /// Forgets the recipient with this index, and those behind it.
    pub(super) fn begin_recipient(&mut self, index: usize) {
        self.answers.forget(Scope::Recipient);
        self.recipient_tags.truncate(index);
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
            Stage::Content => {}
        }
    }

    /// Notes an answer, and how long it took.
    pub(super) fn observe(&mut self, stage: Stage, what: String, answer: &Answer, took: Duration) {
        let Some(observed) = &mut self.observed else { return };
        let text = match answer {
            Answer::Map(Ok(Some(value))) if value.is_empty() => "found".to_owned(),
            Answer::Map(Ok(Some(value))) => format!("\"{value}\""),
            Answer::Map(Ok(None)) => "not in it".to_owned(),
            Answer::Map(Err(why)) => format!("failed: {why}"),
            Answer::ClientName(ClientName::Verified(name)) => name.to_string(),
            Answer::ClientName(ClientName::None) => "no verified name".to_owned(),
            Answer::ClientName(ClientName::Unknown(why)) => format!("failed: {why}"),
            Answer::Over(true) => "exceeded".to_owned(),
            Answer::Over(false) => "within the rate".to_owned(),
            Answer::Service(Ok(action)) => action.to_string(),
            Answer::Service(Err(why)) => format!("failed: {why}"),
        };
        observed.lines.push((stage, what, format!("{text}, {}", duration(took))));
    }

    /// Notes what another check than the rules found.
    pub(super) fn note(&mut self, stage: Stage, what: String, text: String) {
        if let Some(observed) = &mut self.observed {
            observed.lines.push((stage, what, text));
        }
    }

    /// Ends the evaluation of a stage.
    pub(super) fn keep_observed(&mut self) {
        if let Some(observed) = &mut self.observed {
            observed.keep();
        }
    }

    /// Is the answer to a question still needed?
    pub(super) fn lacks(&self, question: &Question) -> bool {
        self.answers.find(question).is_none()
    }
}

/// `120 µs`, `3 ms`.
pub(crate) fn duration(took: Duration) -> String {
    match took.as_micros() {
        us @ ..1000 => format!("{us} µs"),
        us => format!("{} ms", us / 1000),
    }
}

/// The stage of the rules at a stage of the pipeline.
pub(super) fn stage_of(stage: accept::Stage) -> Option<Stage> {
    match stage {
        accept::Stage::Connect => Some(Stage::Connect),
        accept::Stage::Hello => Some(Stage::Hello),
        accept::Stage::Mail => Some(Stage::Mail),
        accept::Stage::Rcpt => Some(Stage::Rcpt),
        accept::Stage::End => Some(Stage::Content),
        accept::Stage::Auth | accept::Stage::Header | accept::Stage::Body => None,
    }
}
