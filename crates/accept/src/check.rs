//! What a check is: who judges a draft at a stage of the pipeline, by what it sees.

use crate::{
    expansion::Expansion,
    findings::Findings,
    mailboxes::Mailboxes,
    memory::{CheckMemories, CheckMemory},
    observer::Observer,
    routes::Routes,
    sources::RuleSources,
};
use config::Settings;
use inbound::Answer;
use mail::{AliasTarget, Enhanced, Envelope, ReceivedContent, Recipient, Reply};
use maps::Maps;
use policy::{Policy, SessionFacts, Source, Stage, Verdict};
use std::time::Duration;

/// Time that a draft waits for a check; then its sender gets a temporary refusal.
pub const LOOKUP_TIMEOUT: Duration = Duration::from_secs(30);

/// A map does not answer (the log says why): the sender tries again.
pub const LOOKUP_FAILED: Reply =
    Reply::fixed(451, Enhanced(4, 3, 0), "Temporary lookup failure, try again later");

/// When a look-up for one of this server's own notifications is repeated. A client would send its mail again; nobody repeats these.
pub(crate) const REPORT_RETRIES: [Duration; 3] =
    [Duration::from_secs(1), Duration::from_secs(4), Duration::from_secs(12)];

/// The parts of a configuration that checks read.
#[derive(Clone, Copy)]
pub struct Rules<'a> {
    /// What the operator wrote.
    pub settings: &'a Settings,
    /// Who may relay, and which addresses are local.
    pub policy: &'a Policy,
    /// Where mail for an address goes.
    pub routes: &'a Routes,
    /// None: nothing is configured that changes addresses.
    pub expansion: Option<&'a Expansion>,
    /// The tables that settings refer to.
    pub maps: &'a Maps,
    /// What rules ask outside of the configuration.
    pub sources: &'a RuleSources,
    /// Returns why mail for a file or a program that aliases name would wait, if it would. Waits for the disk.
    pub target_fault: fn(&AliasTarget) -> Option<String>,
}

/// The input of a check. Parts that a stage does not have yet are empty.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// The command, or the end of the content, at which the checks are asked.
    pub stage: Stage,
    /// The rules that judge the whole transaction, from its first stage to its last.
    pub rules: Rules<'a>,
    /// What is known of the client, or of another source.
    pub facts: &'a SessionFacts,
    /// As the client gave it so far.
    pub envelope: Option<&'a Envelope>,
    /// At RCPT: the recipient, as earlier checks redirected it.
    pub recipient: Option<&'a Recipient>,
    /// At RCPT: the number of recipients that stand for the one that was given, the judged one among them.
    pub replacement_count: usize,
    /// From [`Stage::Header`] on: the header as it was received.
    pub header: &'a [u8],
    /// At [`Stage::Body`]: a piece of the body.
    pub body: &'a [u8],
    /// At [`Stage::Content`] and [`Stage::Seal`].
    pub content: Option<&'a ReceivedContent>,
    /// What checks have found of the transaction. None where one address is asked about.
    pub findings: Option<&'a Findings>,
    /// Collects what checks find, for `postrider test`; `None` in the daemon.
    pub observer: Option<&'a Observer>,
    /// True if the message is in the queue, and one of its recipients is expanded again.
    pub is_queued: bool,
}

impl<'a> View<'a> {
    /// Returns a view with nothing but the facts.
    pub fn new(stage: Stage, rules: Rules<'a>, facts: &'a SessionFacts) -> Self {
        Self {
            stage,
            rules,
            facts,
            envelope: None,
            recipient: None,
            replacement_count: 1,
            header: &[],
            body: &[],
            content: None,
            findings: None,
            observer: None,
            is_queued: false,
        }
    }

    /// Notes what a check found, for `postrider test`.
    pub fn note(&self, what: &str, text: impl FnOnce() -> String) {
        if let Some(observer) = self.observer {
            observer.with(|observed| observed.note(self.stage, what.to_owned(), text()));
        }
    }

    /// Logs why a check defers, and notes it for `postrider test`: the client's reply says nothing of maps and keys.
    pub fn failed(&self, what: &str, why: &dyn std::fmt::Display) {
        tracing::error!("{why}");
        self.note(what, || format!("failed: {why}"));
    }

    /// What delivery knows of the addresses of this machine, for the sender of the message.
    pub fn mailboxes(&self) -> Mailboxes<'a> {
        let Rules { settings, routes, .. } = self.rules;
        Mailboxes { settings, routes, sender: self.envelope.map(|envelope| &envelope.reverse_path) }
    }

    /// Adds the envelope as the client gave it so far.
    pub fn with_envelope(self, envelope: &'a Envelope) -> Self {
        Self { envelope: Some(envelope), ..self }
    }
}

/// One step of the pipeline, asked at the stages that it names.
pub trait Check: Send + Sync {
    /// At which stages the check is asked.
    fn stages(&self) -> Vec<Stage>;

    /// Begins a session, or a draft of its own; none for a check that remembers nothing. `before` has the memories of an older
    /// configuration, where the session goes on behind a reload: a check may take its own out.
    fn begin(&self, _before: &mut CheckMemories) -> Option<Box<dyn CheckMemory>> {
        None
    }

    /// Returns the verdict, now or later. `memory` is what [`Check::begin`] made.
    fn check<'a>(&'a self, memory: Option<&'a mut dyn CheckMemory>, view: View<'a>) -> Answer<'a, Verdict>;

    /// Returns true if the check may sign the content at [`Stage::Seal`]: nothing on its way may change it then, so that it becomes
    /// 7-bit text before (RFC 6376 §5.3).
    fn signs(&self, _: &View<'_>) -> bool {
        false
    }

    /// Returns true if the check judges a recipient by its address, whoever sends to it: VRFY and EXPN ask it, too.
    fn judges_addresses(&self) -> bool {
        false
    }
}

/// Returns whether a client is one of `relay.networks`, or has logged in.
pub fn is_trusted_client(facts: &SessionFacts, policy: &Policy) -> bool {
    let Source::Smtp { peer, .. } = facts.source else { return false };
    facts.login.is_some() || policy.may_relay(peer.ip())
}
