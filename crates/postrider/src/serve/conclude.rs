//! What follows from outcomes: the queue, the spool, the ledger and the journal learn of them, and
//! senders of what failed get a DSN. A permanent failure commits {outcome, DSN} in one transaction,
//! so that neither exists without the other after a crash.

use super::{
    engine::{Engine, State},
    held::Held,
};
use mail::{Attempt, Enhanced, Fate, Handover, Message, Outcome, QueueId, SharedMessage, UnixMillis};
use queue::{Aged, DestinationId, Millis, Settlement, Taken, Verdict};
use report::dsn;
use spool::{Change, Entry, Refused, SpoolFailure, Ticket, Transaction};
use std::sync::Arc;
use tokio::sync::{Semaphore, oneshot};

/// Who may hold a message that is concluded: thousands that expire together, or fail together, are not in
/// memory together. Each kind has turns of its own. Reading never waits for the spool: what needs no report,
/// and frees room, is never behind what waits for room.
pub(crate) struct Turns {
    reading: Semaphore,
    reporting: Arc<Semaphore>,
    warning: Semaphore,
    /// What is decided and the spool may not know yet.
    open: Held,
}

impl Turns {
    /// What the daemon would forget if it ended now.
    pub(crate) fn open_count(&self) -> usize {
        self.open.count()
    }
}

/// Goes on with what is decided by itself; the daemon waits for it before it ends.
fn go_on(engine: &Arc<Engine>, work: impl Future<Output = ()> + Send + 'static) {
    let open = engine.turns.open.hold();
    tokio::spawn(async move {
        work.await;
        drop(open);
    });
}

impl Default for Turns {
    fn default() -> Self {
        // As many reports as share a commit with profit; the content of each is a megabyte at most.
        let reporting = Arc::new(Semaphore::new(32));
        let (reading, warning) = (Semaphore::new(16), Semaphore::new(16));
        Self { reading, reporting, warning, open: Held::default() }
    }
}

/// Why a unit is concluded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// An attempt ended.
    Tried,
    /// Its time is over, or an operator returned it to its sender.
    Ended,
    /// An operator threw it away.
    Deleted,
}

/// Units of one message that end together, and what became of their recipients: its sender hears of all in one
/// report.
struct Conclusion {
    id: QueueId,
    taken: Vec<Taken>,
    results: Vec<(u32, Outcome)>,
    attempt: Attempt,
    cause: Cause,
    /// For an operator who waits.
    answer: Answer,
}

/// Tells an operator who waits for it that a decision is durable, or why it is not.
#[derive(Default)]
struct Answer(Option<oneshot::Sender<Result<(), SpoolFailure>>>);

/// Resolves when a decision of an operator is durable.
pub(crate) type Decided = oneshot::Receiver<Result<(), SpoolFailure>>;

impl Answer {
    fn send(self, stored: Result<(), SpoolFailure>) {
        if let Some(waiting) = self.0 {
            // An operator who has gone away needs no answer.
            let _ = waiting.send(stored);
        }
    }

    /// Answers once the transaction of this ticket is durable.
    fn send_when_durable(self, engine: &Arc<Engine>, ticket: Ticket) {
        if self.0.is_some() {
            let own = engine.clone();
            go_on(engine, async move { self.send(own.spool.durable(ticket).await) });
        }
    }
}

/// An attempt ended with these outcomes.
pub(crate) fn tried(
    engine: &Arc<Engine>,
    taken: Taken,
    message: Option<SharedMessage>,
    results: Vec<(u32, Outcome)>,
    attempt: Attempt,
) {
    let (id, taken, answer) = (taken.id, vec![taken], Answer::default());
    let conclusion = Conclusion { id, taken, results, attempt, cause: Cause::Tried, answer };
    match message {
        Some(message) => conclude(engine, conclusion, message),
        None => later(engine, conclusion),
    }
}

/// Hands to the spool what followed from its recovery, see [`super::recovery`]. Returns at once.
pub(crate) fn store_recovered(engine: &Arc<Engine>, entries: Vec<Entry>) {
    if entries.is_empty() {
        return;
    }
    let own = engine.clone();
    go_on(engine, async move {
        for entry in entries {
            // One transaction each: messages of one transaction must be in the same spool.
            let submit = || own.spool.submit(vec![entry.clone()]).map(Some);
            if let Err(failure) = own.submit_when_possible(submit).await {
                // The daemon watches the spool, and ends.
                tracing::error!("store what followed from the recovery: {failure}");
                return;
            }
            if let Entry::Outcome { id, last: true, .. } = entry {
                own.journal.removed(id);
            }
        }
    });
}

/// Null MX, or no such domain: every recipient that waits for the destination fails.
pub(crate) fn all_failed(engine: &Arc<Engine>, site: DestinationId, outcome: &Outcome, attempt: &Attempt) {
    let now = engine.now();
    engine.lock().queue.is_no_destination(site);
    loop {
        let taken = engine.lock().queue.take(site, now);
        let Some(taken) = taken else { return };
        let results = all(&taken, outcome);
        let (id, taken, attempt) = (taken.id, vec![taken], attempt.clone());
        let answer = Answer::default();
        later(engine, Conclusion { id, taken, results, attempt, cause: Cause::Tried, answer });
    }
}

/// A message has grown old.
pub(crate) fn aged(engine: &Arc<Engine>, aged: Aged) {
    match aged {
        Aged::Expired(units) => {
            let outcome_of = |taken: &Taken| expired(last_words(&engine.lock(), taken).as_deref());
            drop(fail(engine, units, outcome_of, Cause::Ended));
        }
        Aged::Delayed(id, recipients) => {
            let engine = engine.clone();
            tokio::spawn(async move { report_delay(&engine, id, recipients).await });
        }
    }
}

/// What an operator decided of recipients is done. What is returned resolves when it is durable; the work goes
/// on if it is dropped.
pub(crate) fn condemned(engine: &Arc<Engine>, mut seized: Vec<(Taken, Verdict)>) -> Vec<Decided> {
    let mut all = Vec::new();
    let which = |(taken, verdict): &(Taken, Verdict)| (taken.id, *verdict == Verdict::Deleted);
    seized.sort_by_key(which);
    let mut rest = seized.into_iter().peekable();
    while let Some((first, verdict)) = rest.next() {
        let id = first.id;
        let together = std::iter::from_fn(|| rest.next_if(|next| (next.0.id, next.1) == (id, verdict)));
        let taken = std::iter::once(first).chain(together.map(|next| next.0)).collect();
        let (text, cause) = match verdict {
            Verdict::Returned => ("returned by the postmaster", Cause::Ended),
            Verdict::Deleted => ("deleted by the postmaster", Cause::Deleted),
        };
        all.extend(fail(engine, taken, |_| Outcome::failed(Enhanced(5, 7, 0), text), cause));
    }
    all
}

/// These units of one message fail, each with its outcome.
fn fail(
    engine: &Arc<Engine>,
    taken: Vec<Taken>,
    outcome_of: impl Fn(&Taken) -> Outcome,
    cause: Cause,
) -> Option<Decided> {
    let id = taken.first()?.id;
    let results = taken.iter().flat_map(|taken| all(taken, &outcome_of(taken))).collect();
    let (answer, decided) = oneshot::channel();
    let (attempt, answer) = (Attempt::default(), Answer(Some(answer)));
    later(engine, Conclusion { id, taken, results, attempt, cause, answer });
    Some(decided)
}

fn all(taken: &Taken, outcome: &Outcome) -> Vec<(u32, Outcome)> {
    taken.recipients.as_slice().iter().map(|index| (*index, outcome.clone())).collect()
}

/// Delivery time expired (RFC 3463 §3.5).
const EXPIRED: Enhanced = Enhanced(5, 4, 7);

/// It, with what was last heard.
fn expired(last: Option<&Outcome>) -> Outcome {
    let text = match last {
        Some(last) => format!("could not be delivered in time; the last attempt: {}", last.text),
        None => "could not be delivered in time".to_owned(),
    };
    Outcome::failed(EXPIRED, text)
}

fn last_words(state: &State, taken: &Taken) -> Option<Arc<Outcome>> {
    let first = *taken.recipients.as_slice().first()?;
    let notes = state.notes.get(&taken.id);
    let own = notes.and_then(|n| n.iter().find(|note| note.0 == first)).map(|note| note.1.clone());
    own.or_else(|| {
        let view = state.queue.message(taken.id)?;
        let unit = view.units.iter().find(|u| u.recipients.contains(&first))?;
        state.queue.suspension(unit.site).cloned().map(Arc::new)
    })
}

/// The message has to be read back first.
fn later(engine: &Arc<Engine>, conclusion: Conclusion) {
    let own = engine.clone();
    go_on(engine, async move {
        let _turn = own.turns.reading.acquire().await;
        match own.read(conclusion.id).await {
            Ok(message) => conclude(&own, conclusion, message),
            Err(failure) => unread(&own, conclusion, &failure),
        }
    });
}

/// Without its envelope nothing can be concluded: it stays, and is tried again. But to delete it needs none.
fn unread(engine: &Arc<Engine>, mut conclusion: Conclusion, failure: &SpoolFailure) {
    let (id, answer) = (conclusion.id, std::mem::take(&mut conclusion.answer));
    tracing::error!("read {id} from the spool: {failure}");
    let is_deleted = conclusion.cause == Cause::Deleted;
    let results = if is_deleted {
        conclusion.results.clone()
    } else {
        let text = format!("read from the spool: {failure}");
        let outcome = Outcome::deferred(Enhanced(4, 3, 0), text);
        conclusion.taken.iter().flat_map(|taken| all(taken, &outcome)).collect()
    };
    let now = engine.now();
    let recipient_count = results.len() as u64;
    let mut state = engine.lock();
    let settlement = settle_units(&mut state, &conclusion.taken, &results, false, now);
    state.remember(id, &results, settlement.last);
    let transaction = is_deleted.then(|| vec![ending(id, conclusion.cause, results, settlement.last)]);
    let submitted = transaction.map(|t| engine.spool.submit(t.clone()).map_err(|_| t));
    engine.follow_orders(state, now);
    if is_deleted {
        engine.ledger.deleted(recipient_count);
    }
    match submitted {
        Some(Ok(ticket)) => answer.send_when_durable(engine, ticket),
        Some(Err(transaction)) => offer_again(engine, transaction, answer),
        None => answer.send(Err(failure.clone())),
    }
    if settlement.last {
        engine.journal.removed(id);
    }
    drop(condemned(engine, settlement.seized));
}

fn conclude(engine: &Arc<Engine>, mut conclusion: Conclusion, message: SharedMessage) {
    if conclusion.results.iter().any(|(_, outcome)| outcome.fate == Fate::Deferred) {
        give_up_on_the_old(engine, &mut conclusion);
    }
    if conclusion.cause != Cause::Deleted && wants_report(&message, &conclusion) {
        report_in_turn(engine, conclusion, message);
        return;
    }
    match settle(engine, &conclusion, &message, &[]) {
        Ok(ticket) => conclusion.answer.send_when_durable(engine, ticket),
        // It would wait for room in memory.
        Err((Refused::Full, transaction)) if transaction.iter().all(Entry::is_in_vain) => {}
        Err((_, transaction)) => offer_again(engine, transaction, conclusion.answer),
    }
}

/// At once if there is a turn; else the message is let go, and read back when there is. What was delivered
/// does not wait: stopped before the spool knows of it, we would deliver it again.
fn report_in_turn(engine: &Arc<Engine>, conclusion: Conclusion, message: SharedMessage) {
    let own = engine.clone();
    let turn = engine.turns.reporting.clone().try_acquire_owned().ok();
    if turn.is_some() || conclusion.results.iter().any(|(_, outcome)| outcome.fate == Fate::Delivered) {
        go_on(engine, async move {
            conclude_with_report(&own, conclusion, message).await;
            drop(turn);
        });
        return;
    }
    go_on(engine, async move {
        let _turn = own.turns.reporting.acquire().await;
        match own.read(conclusion.id).await {
            Ok(message) => conclude_with_report(&own, conclusion, message).await,
            Err(failure) => unread(&own, conclusion, &failure),
        }
    });
}

/// A deferral beyond the message's time is a failure.
fn give_up_on_the_old(engine: &Engine, conclusion: &mut Conclusion) {
    if !engine.lock().queue.is_over(conclusion.taken[0].unit, engine.now()) {
        return;
    }
    for (_, outcome) in &mut conclusion.results {
        if outcome.fate == Fate::Deferred {
            *outcome = expired(Some(outcome));
        }
    }
}

/// Does the sender hear of any of these (RFC 3461 §4.1)?
fn wants_report(message: &Message, conclusion: &Conclusion) -> bool {
    !message.envelope.reverse_path.is_null()
        && conclusion.results.iter().any(|(index, outcome)| {
            let notify = message.envelope.recipients[*index as usize].notify;
            match outcome.fate {
                Fate::Failed => notify.failure,
                Fate::Delivered => notify.success && conclusion.attempt.handover != Handover::Passed,
                Fate::Deferred => false,
            }
        })
}

async fn conclude_with_report(engine: &Arc<Engine>, conclusion: Conclusion, message: SharedMessage) {
    let content = content_up_to(engine, &message, dsn::RETURNED_MAX_BYTES).await;
    let mut reports = Vec::new();
    let success = match conclusion.attempt.handover {
        Handover::Arrived => Some((Fate::Delivered, dsn::Kind::Delivered)),
        Handover::Relayed => Some((Fate::Delivered, dsn::Kind::Relayed)),
        Handover::Passed => None,
    };
    for (fate, kind) in [(Fate::Failed, dsn::Kind::Failed)].into_iter().chain(success) {
        let affected: Vec<_> = conclusion.results.iter().filter(|(_, o)| o.fate == fate).cloned().collect();
        if !affected.is_empty() {
            reports.extend(compose(engine, kind, &message, &affected, &conclusion.attempt, &content));
        }
    }
    let stored = match settle(engine, &conclusion, &message, &reports) {
        Ok(ticket) => engine.spool.durable(ticket).await,
        Err((_, transaction)) => engine.persist(transaction).await,
    };
    conclusion.answer.send(stored.clone());
    if let Err(failure) = stored {
        tracing::error!("store a delivery status notification: {failure}");
        return;
    }
    for report in reports {
        engine.journal.accepted(&report);
        engine.enqueue(&report);
    }
}

fn compose(
    engine: &Engine,
    kind: dsn::Kind,
    message: &Message,
    affected: &[(u32, Outcome)],
    attempt: &Attempt,
    content: &[u8],
) -> Option<SharedMessage> {
    let current = engine.current();
    let now = UnixMillis::now();
    let facts = dsn::Facts {
        reporting_mta: &current.settings.hostname,
        relay: &attempt.relay,
        now,
        gives_up: UnixMillis(message.arrived.0 + current.settings.queue.expire.as_millis() as u64),
        content,
    };
    let mut report = dsn::compose(kind, message, affected, &facts, engine.ids.next(now.0))?;
    current.name_postmaster_and_root(&mut report.envelope);
    Some(SharedMessage::new(report))
}

/// The beginning of a message's content, in whole parts.
pub(crate) async fn content_up_to(engine: &Engine, message: &Message, max_bytes: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for part in message.content.parts() {
        if out.len() >= max_bytes {
            break;
        }
        match part {
            mail::Part::Memory(bytes) => out.extend_from_slice(bytes),
            mail::Part::Stored { place, .. } => {
                let Ok(bytes) = engine.load(*place).await else { break };
                out.extend_from_slice(&bytes);
            }
        }
    }
    out
}

/// Tells the queue and the spool, both under the queue's lock: so the spool sees the outcomes of one
/// message in the order in which the last one is known. The transaction comes back when the spool has no
/// room for it.
fn settle(
    engine: &Arc<Engine>,
    conclusion: &Conclusion,
    message: &SharedMessage,
    reports: &[SharedMessage],
) -> Result<Ticket, (Refused, Transaction)> {
    let now = engine.now();
    let id = message.id;
    let reached = conclusion.cause == Cause::Tried && !conclusion.attempt.relay.is_empty();
    let mut state = engine.lock();
    let settlement = settle_units(&mut state, &conclusion.taken, &conclusion.results, reached, now);
    state.remember(id, &conclusion.results, settlement.last);
    // Its content is wanted again only after a while, and can be read back.
    if settlement.last || settlement.retry_at.is_some() {
        state.residents.remove(id);
    }
    let mut transaction = vec![ending(id, conclusion.cause, conclusion.results.clone(), settlement.last)];
    transaction.extend(reports.iter().cloned().map(Entry::Accept));
    let submitted = engine.spool.submit(transaction.clone()).map_err(|refused| (refused, transaction));
    engine.follow_orders(state, now);
    record(engine, conclusion, message, settlement.last);
    drop(condemned(engine, settlement.seized));
    submitted
}

/// Each unit learns of its own recipients.
fn settle_units(
    state: &mut State,
    taken: &[Taken],
    results: &[(u32, Outcome)],
    reached: bool,
    now: Millis,
) -> Settlement {
    let mut fates: Vec<(u32, Fate)> = results.iter().map(|(index, o)| (*index, o.fate)).collect();
    if let [one] = taken {
        return state.queue.settle(one.unit, &fates, reached, now);
    }
    fates.sort_unstable_by_key(|fate| fate.0);
    let fate_of = |index: &u32| Some(fates[fates.binary_search_by_key(index, |fate| fate.0).ok()?]);
    let mut whole = Settlement::default();
    for one in taken {
        let own: Vec<_> = one.recipients.as_slice().iter().filter_map(fate_of).collect();
        let settlement = state.queue.settle(one.unit, &own, reached, now);
        whole.last = settlement.last;
        whole.retry_at = whole.retry_at.or(settlement.retry_at);
        whole.seized.extend(settlement.seized);
    }
    whole
}

/// What the spool is told.
fn ending(id: QueueId, cause: Cause, results: Vec<(u32, Outcome)>, last: bool) -> Entry {
    match (cause, last) {
        (Cause::Deleted, true) => Entry::Amend { id, change: Change::Delete },
        _ => Entry::Outcome { id, results, last },
    }
}

/// An outcome the spool had no room for: losing it would only repeat an attempt after a crash, but
/// its message would stay in the spool.
fn offer_again(engine: &Arc<Engine>, transaction: Transaction, answer: Answer) {
    let own = engine.clone();
    go_on(engine, async move {
        let stored = own.persist(transaction).await;
        if let Err(failure) = &stored {
            tracing::error!("store an outcome: {failure}");
        }
        answer.send(stored);
    });
}

/// Ledger and journal.
fn record(engine: &Engine, conclusion: &Conclusion, message: &SharedMessage, last: bool) {
    for (_, outcome) in &conclusion.results {
        match (conclusion.cause, outcome.fate) {
            (_, Fate::Deferred) => {}
            (Cause::Deleted, _) => engine.ledger.deleted(1),
            // Some may have expired in the attempt that failed for others.
            (_, Fate::Failed) if outcome.status == EXPIRED && !outcome.from_remote => {
                engine.ledger.expired(1);
            }
            (_, Fate::Failed) => engine.ledger.bounced(1),
            (_, Fate::Delivered) => engine.ledger.delivered(1),
        }
    }
    match conclusion.cause {
        Cause::Deleted => engine.journal.deleted(message, &conclusion.results),
        _ => engine.journal.attempt(message, &conclusion.results, &conclusion.attempt),
    }
    if last {
        engine.journal.removed(message.id);
    }
}

async fn report_delay(engine: &Arc<Engine>, id: QueueId, recipients: Vec<u32>) {
    let _turn = engine.turns.warning.acquire().await;
    let Ok(message) = engine.read(id).await else { return };
    let wants = |index: &u32| message.envelope.recipients[*index as usize].notify.delay;
    if message.envelope.reverse_path.is_null() || !recipients.iter().any(wants) {
        return;
    }
    let affected: Vec<(u32, Outcome)> = {
        let state = engine.lock();
        let known = |index: u32| {
            let notes = state.notes.get(&id)?;
            notes.iter().find(|note| note.0 == index).map(|note| (*note.1).clone())
        };
        let unknown = || Outcome::deferred(Enhanced(4, 4, 7), "not delivered yet");
        recipients.iter().map(|index| (*index, known(*index).unwrap_or_else(unknown))).collect()
    };
    let content = content_up_to(engine, &message, dsn::RETURNED_MAX_BYTES).await;
    let report = compose(engine, dsn::Kind::Delayed, &message, &affected, &Attempt::default(), &content);
    let Some(report) = report else { return };
    if let Err(failure) = engine.accept_own((*report).clone()).await {
        tracing::error!("store a delay notification: {failure}");
    }
}
