//! The accept pipeline: which checks are asked at which stage, and how a draft waits for them.

use crate::{
    check::{Check, LOOKUP_TIMEOUT, Rules, View},
    checks::filters::{FilterStates, Filters, ShownContent},
    decisions::{Decisions, Next},
    findings::Findings,
    memory::{CheckMemories, Memories},
};
use inbound::Answer;
use mail::{Envelope, Message, ReceivedContent, Recipient, Reply};
use policy::{SessionFacts, Source, Stage, Verdict};
use smtp::server::replies;
use std::{future::Future, pin::Pin};
use tokio::time::timeout;

/// What a session, or a draft, has been told and has found so far.
#[derive(Default)]
pub struct SessionMemory {
    checks: CheckMemories,
    findings: Findings,
    /// None without filters.
    filters: Option<FilterStates>,
}

impl SessionMemory {
    /// EHLO, or a TLS handshake: what the client said before does not count any more (RFC 3207 §4.2).
    pub fn begin_hello(&mut self) {
        self.findings.clear();
        self.checks.begin_hello();
        self.filters.iter_mut().for_each(FilterStates::begin_hello);
    }

    /// MAIL: the transaction before is over.
    pub fn begin_transaction(&mut self) {
        self.findings.clear();
        self.checks.begin_transaction();
        self.filters.iter_mut().for_each(FilterStates::begin_transaction);
    }

    fn lend(&mut self) -> (Memories<'_>, &Findings, Option<&mut FilterStates>) {
        (self.checks.lend(), &self.findings, self.filters.as_mut())
    }
}

/// The checks, and the table of who is asked when.
pub struct Pipeline {
    checks: Vec<Box<dyn Check>>,
    /// By stage, in the order in which they are asked.
    by_stage: [Vec<usize>; Stage::COUNT],
    /// The checks at RCPT that judge addresses.
    of_addresses: Vec<usize>,
    /// What sees the mail that all checks let pass.
    filters: Option<Filters>,
    #[cfg(feature = "mutants")]
    mutant: crate::Mutant,
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

    /// Stays if the mutant wants it, whatever comes of the stage.
    #[cfg(feature = "mutants")]
    fn keep_if(mut self, is_mutant: bool) -> Self {
        self.before = self.before.take().filter(|_| !is_mutant);
        self
    }
}

impl Drop for StageDecisions<'_> {
    fn drop(&mut self) {
        if let Some(before) = self.before.take() {
            *self.decisions = before;
        }
    }
}

type Verdicts<'a> = Pin<Box<dyn Future<Output = Verdict> + Send + 'a>>;

impl Pipeline {
    /// The checks are asked in this order, at each of their stages.
    pub fn new(checks: Vec<Box<dyn Check>>, filters: Option<Filters>) -> Self {
        let mut pipeline = Self {
            checks: Vec::new(),
            by_stage: Default::default(),
            of_addresses: Vec::new(),
            filters,
            #[cfg(feature = "mutants")]
            mutant: crate::Mutant::None,
        };
        checks.into_iter().for_each(|check| pipeline.add(check));
        pipeline
    }

    /// Adds a check, which is asked behind all others.
    pub fn add(&mut self, check: Box<dyn Check>) {
        let index = self.checks.len();
        let stages = check.stages();
        if stages.contains(&Stage::Rcpt) && check.judges_addresses() {
            self.of_addresses.push(index);
        }
        stages.into_iter().for_each(|stage| self.by_stage[stage as usize].push(index));
        self.checks.push(check);
    }

    /// Breaks a rule from now on.
    #[cfg(feature = "mutants")]
    pub fn set_mutant(&mut self, mutant: crate::Mutant) {
        self.mutant = mutant;
    }

    /// Is any check asked at this stage?
    pub fn has(&self, stage: Stage) -> bool {
        !self.by_stage[stage as usize].is_empty()
    }

    /// Returns whether any filter is configured.
    pub fn has_filters(&self) -> bool {
        self.filters.is_some()
    }

    /// Begins the memories of a session, or of a draft. A session that goes on after a reload brings those that it had.
    pub fn begin(&self, before: SessionMemory) -> SessionMemory {
        let SessionMemory { checks, findings, .. } = before;
        let checks = checks.renewed(self.checks.len(), |index, before| self.checks[index].begin(before));
        SessionMemory { checks, findings, filters: self.filters.as_ref().map(Filters::begin) }
    }

    /// Asks the checks of a stage, one after another. Nothing is allocated unless a check has to wait.
    ///
    /// # Errors
    /// The reply that refuses.
    pub fn run<'a>(
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
    pub fn run_for_address<'a>(
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
        #[cfg(feature = "mutants")]
        let judged = judged.keep_if(self.mutant == crate::Mutant::KeepVerdicts);
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
    pub async fn seal(
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
    pub async fn judge(
        &self,
        rules: Rules<'_>,
        facts: &SessionFacts,
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
    pub async fn judge_content(
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
        self.ask(View { content: Some(content), ..view(Stage::Content) }, memory, decisions).await
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
    pub async fn judge_report(&self, rules: Rules<'_>, report: Message) -> Option<Message> {
        let facts = SessionFacts::new(Source::Report);
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

    /// Returns the filters that fail now, with what is wrong.
    pub fn filter_faults(&self) -> Vec<String> {
        self.filters.as_ref().map(Filters::faults).unwrap_or_default()
    }

    /// Shows the filters the content of a message that all checks let pass.
    ///
    /// # Errors
    /// The reply that refuses the message.
    pub async fn filter(
        &self,
        view: View<'_>,
        memory: &mut SessionMemory,
        shown: &mut ShownContent<'_>,
        decisions: &mut Decisions,
    ) -> Result<(), Reply> {
        match self.filters.as_ref().zip(memory.filters.as_mut()) {
            Some((filters, states)) => filters.show_all(states, view, shown, decisions).await,
            None => Ok(()),
        }
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
