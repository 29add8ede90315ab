//! The accept pipeline: which checks are asked at which stage, and how a draft waits for them.

mod addresses;
mod authentication;
mod copies;
mod existence;
mod filters;
mod findings;
mod memory;
mod observer;
mod rules;
mod sign;
mod submission;
mod targets;

use crate::{expansion::Expansion, mailboxes::Mailboxes, routing::Routes};
use addresses::Addresses;
pub(crate) use authentication::Authenticated;
use config::Settings;
pub(crate) use copies::Copies;
use engine::accept::{Decisions, Facts, Next, Source, Stage, Verdict};
pub(crate) use existence::KnownToNextHop;
pub(crate) use filters::{Filters, ShownContent};
use findings::Findings;
use inbound::Answer;
use mail::{Enhanced, Envelope, Message, ReceivedContent, Recipient, Reply};
use maps::Maps;
use memory::Memories;
pub(crate) use memory::{CheckMemory, SessionMemory};
pub(crate) use observer::{Observer, duration};
use policy::Policy;
pub(crate) use rules::{RuleCheck, RuleSources};
pub(crate) use sign::Signatures;
use smtp::server::replies;
use std::{future::Future, pin::Pin, time::Duration};
pub(crate) use submission::{MissingFields, SenderOfLogin};
pub(crate) use targets::{MapsChooseRoute, RouteDecides};
use tokio::time::timeout;

/// Time that a draft waits for a check; then its sender gets a temporary refusal.
pub(crate) const LOOKUP_TIMEOUT: Duration = Duration::from_secs(30);

/// A map does not answer (the log says why): the sender tries again.
pub(crate) const LOOKUP_FAILED: Reply =
    Reply::fixed(451, Enhanced(4, 3, 0), "Temporary lookup failure, try again later");

/// Intervals after which a look-up for a notification of this server is repeated: nobody else would send it again.
const REPORT_RETRIES: [Duration; 3] =
    [Duration::from_secs(1), Duration::from_secs(4), Duration::from_secs(12)];

/// The configuration by which checks judge.
#[derive(Clone, Copy)]
pub(crate) struct Rules<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) policy: &'a Policy,
    pub(crate) routes: &'a Routes,
    /// None: nothing is configured that changes addresses.
    pub(crate) expansion: Option<&'a Expansion>,
    pub(crate) maps: &'a Maps,
    pub(crate) sources: &'a RuleSources,
}

/// The input of a check. Parts that a stage does not have yet are empty.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) stage: Stage,
    /// The rules that judge the whole transaction, from its first stage to its last.
    pub(crate) rules: Rules<'a>,
    pub(crate) facts: &'a Facts,
    /// As the client gave it so far.
    pub(crate) envelope: Option<&'a Envelope>,
    /// At RCPT: the recipient, as earlier checks redirected it.
    pub(crate) recipient: Option<&'a Recipient>,
    /// At RCPT: the number of recipients that stand for the one that was given, the judged one among them.
    pub(crate) replacement_count: usize,
    /// From [`Stage::Header`] on: the header as it was received.
    pub(crate) header: &'a [u8],
    /// At [`Stage::Body`]: a piece of the body.
    pub(crate) body: &'a [u8],
    /// At [`Stage::End`] and [`Stage::Seal`].
    pub(crate) content: Option<&'a ReceivedContent>,
    /// What checks have found of the transaction. None where one address is asked about.
    pub(crate) findings: Option<&'a Findings>,
    /// None: nobody looks.
    pub(crate) observer: Option<&'a Observer>,
    /// True if the message is in the queue, and one of its recipients is expanded again.
    pub(crate) is_queued: bool,
}

impl<'a> View<'a> {
    pub(crate) fn new(stage: Stage, rules: Rules<'a>, facts: &'a Facts) -> Self {
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
    pub(crate) fn note(&self, what: &str, text: impl FnOnce() -> String) {
        if let (Some(observer), Some(stage)) = (self.observer, observer::stage_of(self.stage)) {
            observer.with(|observed| observed.note(stage, what.to_owned(), text()));
        }
    }

    /// What delivery knows of the addresses of this machine, for the sender of the message.
    pub(crate) fn mailboxes(&self) -> Mailboxes<'a> {
        let Rules { settings, routes, .. } = self.rules;
        Mailboxes { settings, routes, sender: self.envelope.map(|envelope| &envelope.reverse_path) }
    }

    pub(crate) fn with_envelope(self, envelope: &'a Envelope) -> Self {
        Self { envelope: Some(envelope), ..self }
    }
}

/// One step of the pipeline.
pub(crate) trait Check: Send + Sync {
    /// At which stages the check is asked.
    fn stages(&self) -> Vec<Stage>;

    /// Begins a session, or a draft of its own; none for a check that remembers nothing. `before` has the memories of an older
    /// configuration, where the session goes on behind a reload: a check may take its own out.
    fn begin(&self, _before: &mut SessionMemory) -> Option<Box<dyn CheckMemory>> {
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

/// The checks, and the table of who is asked when.
pub(crate) struct Pipeline {
    checks: Vec<Box<dyn Check>>,
    /// By stage, in the order in which they are asked.
    by_stage: [Vec<usize>; Stage::COUNT],
    /// The checks at RCPT that judge addresses.
    of_addresses: Vec<usize>,
    /// What sees the mail that all checks let pass.
    filters: Option<Filters>,
}

/// The decisions of a stage that is not over. Dropped before [`StageDecisions::keep`], they are as before the stage: a
/// recipient that is refused, or whose check does not answer in time, decides nothing for the others.
struct StageDecisions<'a> {
    decisions: &'a mut Decisions,
    /// At RCPT, where more than one check is asked. A refusal at another stage ends the transaction.
    before: Option<Decisions>,
}

impl<'a> StageDecisions<'a> {
    fn begin(stage: Stage, check_count: usize, decisions: &'a mut Decisions) -> Self {
        let before = (stage == Stage::Rcpt && check_count > 1).then(|| decisions.clone());
        Self { decisions, before }
    }

    fn keep(mut self) {
        self.before = None;
    }
}

impl Drop for StageDecisions<'_> {
    fn drop(&mut self) {
        if let Some(before) = self.before.take() {
            *self.decisions = before;
        }
    }
}

/// Returns whether a client is one of `relay.networks`, or has logged in.
pub(crate) fn is_trusted_client(facts: &Facts, policy: &Policy) -> bool {
    let Source::Smtp { peer, .. } = facts.source else { return false };
    facts.login.is_some() || policy.may_relay(peer.ip())
}

/// Expands a recipient of a message that is queued. Routes by maps are chosen; no other check is asked again. `decisions` note the
/// targets that do not exist.
///
/// # Errors
/// The reply that would refuse the recipient, or ask to try again.
pub(crate) async fn expand(view: View<'_>, decisions: &mut Decisions) -> Result<Vec<Recipient>, Reply> {
    let (view, given) = (View { is_queued: true, ..view }, view.recipient.into_iter().cloned());
    let reply = |verdict| match verdict {
        Verdict::Reject(reply) | Verdict::Defer(reply) => reply,
        // The check of addresses has no other verdict on a recipient.
        _ => replies::LOCAL_ERROR,
    };
    let mut verdict = Addresses.check(None, view).wait().await;
    if let Verdict::All(verdicts) = verdict {
        verdict = Verdict::Pass;
        for one in verdicts {
            match one {
                Verdict::Missing(_) => _ = decisions.note(view.stage, one, 0),
                one => verdict = one,
            }
        }
    }
    let recipients = match verdict {
        Verdict::Pass => given.collect(),
        Verdict::Redirect(recipients) | Verdict::Settle(recipients) => recipients,
        refused => return Err(reply(refused)),
    };
    targets::choose_all(&view, recipients).await.map_err(reply)
}

type Verdicts<'a> = Pin<Box<dyn Future<Output = Verdict> + Send + 'a>>;

impl Pipeline {
    /// What rules ask for, the rules, if there are any, then the checks that every draft passes, and then `more`.
    pub(crate) fn new(
        authenticated: Option<Authenticated>,
        rules: Option<RuleCheck>,
        more: Vec<Box<dyn Check>>,
        filters: Option<Filters>,
    ) -> Self {
        let authenticated = authenticated.map(|check| Box::new(check) as Box<dyn Check>);
        let rules = rules.map(|rules| Box::new(rules) as Box<dyn Check>);
        let addresses: Box<dyn Check> = Box::new(Addresses);
        let checks: Vec<_> = authenticated.into_iter().chain(rules).chain([addresses]).chain(more).collect();
        let mut by_stage: [Vec<usize>; Stage::COUNT] = Default::default();
        for (index, check) in checks.iter().enumerate() {
            for stage in check.stages() {
                by_stage[stage as usize].push(index);
            }
        }
        let is_of_addresses = |index: &usize| checks[*index].judges_addresses();
        let of_addresses = by_stage[Stage::Rcpt as usize].iter().copied().filter(is_of_addresses).collect();
        Self { checks, by_stage, of_addresses, filters }
    }

    /// Is any check asked at this stage?
    pub(crate) fn has(&self, stage: Stage) -> bool {
        !self.by_stage[stage as usize].is_empty()
    }

    /// Are there filters?
    pub(crate) fn has_filters(&self) -> bool {
        self.filters.is_some()
    }

    /// Begins the memories of a session, or of a draft. A session that goes on after a reload brings those that it had.
    pub(crate) fn begin(&self, before: SessionMemory) -> SessionMemory {
        SessionMemory::begin(&self.checks, self.filters.as_ref().map(Filters::begin), before)
    }

    /// Asks the checks of a stage, one after another. Nothing is allocated unless a check has to wait.
    ///
    /// # Errors
    /// The reply that refuses.
    pub(crate) fn run<'a>(
        &'a self,
        view: View<'a>,
        memory: &'a mut SessionMemory,
        decisions: &'a mut Decisions,
    ) -> Answer<'a, Result<(), Reply>> {
        let (memories, findings, filter_states) = memory.lend();
        let (view, order) = (View { findings: Some(findings), ..view }, &self.by_stage[view.stage as usize]);
        match self.filters.as_ref().zip(filter_states) {
            Some((filters, filter_states)) if filters.are_told(filter_states, &view) => {
                Answer::later(async move {
                    let before = decisions.clone();
                    let mut judged = self.run_checks(order, view, memories, decisions).wait().await;
                    if judged.is_ok() {
                        judged = filters.tell(filter_states, &view).await;
                    }
                    // As a check that refuses: the refused recipient decides nothing for the others.
                    if judged.is_err() {
                        *decisions = before;
                    }
                    judged
                })
            }
            _ => self.run_checks(order, view, memories, decisions),
        }
    }

    /// As [`Self::run`] at RCPT, for what is known of an address: its route, users, aliases and next hop, but no rules.
    ///
    /// # Errors
    /// The reply that refuses.
    pub(crate) fn run_for_address<'a>(
        &'a self,
        view: View<'a>,
        decisions: &'a mut Decisions,
    ) -> Answer<'a, Result<(), Reply>> {
        self.run_checks(&self.of_addresses, view, Memories::default(), decisions)
    }

    fn run_checks<'a>(
        &'a self,
        order: &'a [usize],
        view: View<'a>,
        mut memories: Memories<'a>,
        decisions: &'a mut Decisions,
    ) -> Answer<'a, Result<(), Reply>> {
        let at = recipient_index(&view);
        let judged = StageDecisions::begin(view.stage, order.len(), decisions);
        for (number, index) in order.iter().enumerate() {
            let rest = &order[number + 1..];
            match self.checks[*index].check(memories.next(*index), view) {
                Answer::Pending(first) => {
                    return Answer::later(self.finish(first, rest, view, memories, judged));
                }
                Answer::Ready(verdict) => {
                    match judged.decisions.note(view.stage, allowed(&view, verdict), at) {
                        Next::Continue => {}
                        Next::StageOver => break,
                        Next::Refuse(reply) => return Answer::Ready(Err(reply)),
                        Next::ContinueWith(recipients) if rest.is_empty() => {
                            if let Err(reply) = within_limit(judged.decisions, &recipients) {
                                return Answer::Ready(Err(reply));
                            }
                            judged.decisions.redirect(at, recipients);
                        }
                        Next::ContinueWith(recipients) => {
                            return Answer::later(
                                self.finish_redirected(recipients, rest, view, memories, judged),
                            );
                        }
                    }
                }
            }
        }
        judged.keep();
        Answer::Ready(Ok(()))
    }

    /// The rest of a stage, from a check that has to wait.
    async fn finish<'a>(
        &'a self,
        first: Verdicts<'a>,
        mut rest: &'a [usize],
        view: View<'a>,
        mut memories: Memories<'a>,
        judged: StageDecisions<'a>,
    ) -> Result<(), Reply> {
        let at = recipient_index(&view);
        let mut verdict = first.await;
        loop {
            match judged.decisions.note(view.stage, allowed(&view, verdict), at) {
                Next::Continue => {}
                Next::StageOver => break,
                Next::Refuse(reply) => return Err(reply),
                Next::ContinueWith(recipients) => {
                    return self.finish_redirected(recipients, rest, view, memories, judged).await;
                }
            }
            let [next, behind @ ..] = rest else { break };
            rest = behind;
            verdict = self.checks[*next].check(memories.next(*next), view).wait().await;
        }
        judged.keep();
        Ok(())
    }

    /// The rest of RCPT for the recipients that take the place of one. If one of them is refused, the one that was
    /// given is.
    async fn finish_redirected<'a>(
        &'a self,
        recipients: Vec<Recipient>,
        rest: &'a [usize],
        view: View<'a>,
        mut memories: Memories<'a>,
        judged: StageDecisions<'a>,
    ) -> Result<(), Reply> {
        let at = recipient_index(&view);
        let (mut settled, mut open) = (Vec::new(), recipients);
        for index in rest {
            let (mut next, mut memory) = (Vec::new(), memories.next(*index));
            let replacement_count = open.len() + settled.len();
            for recipient in open {
                let view = View { recipient: Some(&recipient), replacement_count, ..view };
                let judged_recipient = self.checks[*index].check(memory.as_deref_mut(), view);
                match allowed(&view, judged_recipient.wait().await) {
                    Verdict::Pass => next.push(recipient),
                    Verdict::Accept => settled.push(recipient),
                    Verdict::Redirect(recipients) => next.extend(recipients),
                    Verdict::Discard(reason) => judged.decisions.discard_recipient(at, reason),
                    Verdict::Reject(reply) | Verdict::Defer(reply) => return Err(reply),
                    Verdict::Settle(recipients) => settled.extend(recipients),
                    verdict @ (Verdict::Hold(_)
                    | Verdict::Edit(_)
                    | Verdict::ReplaceBody(_)
                    | Verdict::ReplaceSender(_)
                    | Verdict::Route(_)
                    | Verdict::Bcc(_)
                    | Verdict::Missing(_)
                    | Verdict::All(_)) => {
                        judged.decisions.note(view.stage, verdict, at);
                        next.push(recipient);
                    }
                }
            }
            open = next;
        }
        settled.append(&mut open);
        within_limit(judged.decisions, &settled)?;
        judged.decisions.redirect(at, settled);
        judged.keep();
        Ok(())
    }

    /// Asks the checks that seal the content, when all other changes are made ([`Decisions::change`]): each sees what the one before
    /// has added.
    ///
    /// # Errors
    /// The reply that refuses the message.
    pub(crate) async fn seal(
        &self,
        view: View<'_>,
        memory: &mut SessionMemory,
        content: &mut ReceivedContent,
        decisions: &Decisions,
    ) -> Result<(), Reply> {
        if view.envelope.is_some_and(|envelope| decisions.is_discarded(envelope)) {
            return Ok(());
        }
        let order = &self.by_stage[Stage::Seal as usize];
        // A signature covers what is delivered: filters and rules put fields above the trace field, too.
        let signs =
            |index: &usize| self.checks[*index].signs(&View { header: content.whole_header(), ..view });
        if order.iter().any(signs) {
            content.convert_to_seven_bit();
        }
        let (mut memories, findings, _) = memory.lend();
        let view = View { findings: Some(findings), ..view };
        for index in order {
            let header = content.whole_header();
            let view = View { stage: Stage::Seal, header, content: Some(content), ..view };
            let asked = self.checks[*index].check(memories.next(*index), view).wait();
            let verdict = timeout(LOOKUP_TIMEOUT, asked).await;
            match allowed(&view, verdict.unwrap_or(Verdict::Defer(replies::LOOKUP_TIMEOUT))) {
                Verdict::Edit(edits) => content.edit(&edits),
                Verdict::Reject(reply) | Verdict::Defer(reply) => return Err(reply),
                _ => {}
            }
        }
        Ok(())
    }

    /// Takes a draft that is complete through all of its stages. [`Self::seal`] follows.
    ///
    /// # Errors
    /// The reply that refuses it.
    pub(crate) async fn judge(
        &self,
        rules: Rules<'_>,
        facts: &Facts,
        envelope: &Envelope,
        content: &ReceivedContent,
        memory: &mut SessionMemory,
        decisions: &mut Decisions,
    ) -> Result<(), Reply> {
        let view = |stage| View::new(stage, rules, facts);
        self.ask(view(Stage::Connect), memory, decisions).await?;
        let mut given = Envelope { recipients: Vec::new(), ..envelope.clone() };
        self.ask(view(Stage::Mail).with_envelope(&given), memory, decisions).await?;
        for recipient in &envelope.recipients {
            let view = View { recipient: Some(recipient), ..view(Stage::Rcpt) };
            self.ask(view.with_envelope(&given), memory, decisions).await?;
            given.recipients.push(recipient.clone());
        }
        self.judge_content(view(Stage::Header).with_envelope(envelope), content, memory, decisions).await
    }

    /// Takes content that is complete through its stages: the part of [`Self::judge`] behind the envelope.
    ///
    /// # Errors
    /// The reply that refuses it.
    pub(crate) async fn judge_content(
        &self,
        view: View<'_>,
        content: &ReceivedContent,
        memory: &mut SessionMemory,
        decisions: &mut Decisions,
    ) -> Result<(), Reply> {
        let view = |stage| View { stage, header: content.header(), ..view };
        self.ask(view(Stage::Header), memory, decisions).await?;
        if self.has(Stage::Body) {
            for body in content.body_in_memory() {
                self.ask(View { body, ..view(Stage::Body) }, memory, decisions).await?;
            }
        }
        self.ask(View { content: Some(content), ..view(Stage::End) }, memory, decisions).await
    }

    async fn ask(
        &self,
        view: View<'_>,
        memory: &mut SessionMemory,
        decisions: &mut Decisions,
    ) -> Result<(), Reply> {
        let judged = self.run(view, memory, decisions).wait();
        timeout(LOOKUP_TIMEOUT, judged).await.unwrap_or(Err(replies::LOOKUP_TIMEOUT))
    }

    /// Takes a report of this server through the pipeline. A refusal would reach no client, so that it has no effect.
    pub(crate) async fn judge_report(&self, rules: Rules<'_>, report: Message) -> Option<Message> {
        let facts = Facts::new(Source::Report);
        let (mut memory, mut decisions) = (self.begin(SessionMemory::default()), Decisions::default());
        let bytes = report.content.in_memory().unwrap_or_default();
        let mut content = ReceivedContent::from_bytes(bytes, 0);
        let judged = self.judge(rules, &facts, &report.envelope, &content, &mut memory, &mut decisions);
        let mut judged = judged.await;
        decisions.change(&mut content);
        if judged.is_ok() {
            let view = View::new(Stage::Seal, rules, &facts).with_envelope(&report.envelope);
            judged = self.seal(view, &mut memory, &mut content, &decisions).await;
        }
        // Only a check that does not answer in time is left to say no.
        if let Err(reply) = judged {
            tracing::warn!("{}: the notification is sent without further checks: {reply}", report.id);
        }
        decisions.finish_report(report, content)
    }
}

/// Recipients of a message that may take the place of those that were given, but for one list, which has a limit of its own:
/// another transaction would be refused as well.
const REPLACEMENTS_MAX: usize = 50_000;

/// Checks that a message does not get too many recipients by redirection.
fn within_limit(decisions: &Decisions, more: &[Recipient]) -> Result<(), Reply> {
    let before = decisions.replacement_count();
    // A single recipient for a given one is bounded by the limit of given ones.
    if before > 0 && more.len() > 1 && before + more.len() > REPLACEMENTS_MAX {
        return Err(replies::TOO_MANY_RECIPIENTS);
    }
    Ok(())
}

/// Returns what a check may say. A notification of this server is neither refused nor held back: nobody would hear of
/// it.
fn allowed(view: &View<'_>, verdict: Verdict) -> Verdict {
    if view.facts.can_be_refused() {
        return verdict;
    }
    let why = match verdict {
        Verdict::Reject(reply) | Verdict::Defer(reply) => reply.to_string(),
        Verdict::Discard(reason) => format!("discard: {reason}"),
        Verdict::Hold(reason) => format!("hold: {reason}"),
        other => return other,
    };
    tracing::warn!("a check rejects a notification from this server, which is sent anyway: {why}");
    Verdict::Pass
}

/// The index that the judged recipient has in the envelope if it is accepted.
fn recipient_index(view: &View<'_>) -> usize {
    view.envelope.map_or(0, |envelope| envelope.recipients.len())
}
