//! What stands between sessions, spool and queue. The daemon's own glue waits on a runtime and cannot be
//! driven by hand; this follows it rule by rule: 250 and the queue only after durable, outcomes and
//! reports in one transaction, what the spool has no room for is offered again.

use super::{
    Slip,
    line::Line,
    source::{Source, refusal},
    truth::{self, Truth, Who},
};
use crate::seed::Rng;
use bytes::Bytes;
use mail::{
    Content, Destination, Enhanced, Envelope, Fate, ForwardPath, Message, Outcome, Part, Place, QueueId,
    Recipient, Reply, ReversePath, SharedMessage, Transport, UnixMillis,
};
use queue::{Aged, Arrival, DestinationId, GroupId, Millis, Order, Queue, Status, Taken, Verdict};
use smtp::server::replies;
use spool::{Change, Entry, LogSpool, Recovered, Refused, Spool, Ticket, Transaction};
use std::collections::{BTreeSet, HashMap};
use std::task::{Context, Poll, Waker};

/// The ledger the daemon shows: accepted is the sum of the others and of what is queued.
#[derive(Debug, Default)]
pub(super) struct Columns {
    accepted: u64,
    delivered: u64,
    bounced: u64,
    expired: u64,
    deleted: u64,
}

/// Why a unit is concluded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    Tried,
    Expired,
    Bounced,
    Deleted,
}

/// What the spool is told.
fn ending(id: QueueId, cause: Cause, results: Vec<(u32, Outcome)>, last: bool) -> Entry {
    match (cause, last) {
        (Cause::Deleted, true) => Entry::Amend { id, change: Change::Delete },
        _ => Entry::Outcome { id, results, last },
    }
}

/// What happens once a transaction is durable.
#[derive(Default)]
struct After {
    /// Who is told 250.
    answer: Option<(usize, u64, QueueId)>,
    enqueue: Vec<SharedMessage>,
    settled: Vec<(QueueId, u32)>,
}

pub(super) struct Office {
    pub(super) spool: LogSpool,
    pub(super) queue: Queue,
    pub(super) lines: Vec<Line>,
    columns: Columns,
    waiting: Vec<(Ticket, After)>,
    offers: Vec<(Transaction, After)>,
    next_id: u64,
    now: Millis,
    settings: queue::Settings,
    /// What the wall clock showed at the start, and shows now.
    started_wall: u64,
    wall: u64,
    slip: Slip,
    /// When messages came that are still to be stored; that may take a while.
    made: HashMap<QueueId, Millis>,
    /// [`Slip::KeepNumbers`].
    kept: HashMap<Destination, DestinationId>,
}

/// When a relay begins, by both of its clocks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    pub(super) now: Millis,
    pub(super) wall: u64,
}

fn destination(path: &ForwardPath) -> Destination {
    let target = path.mailbox().map_or("localhost".into(), |mailbox| mailbox.domain().key());
    Destination { transport: Transport::Mx, tls: mail::TlsMode::May, target: target.as_ref().into() }
}

impl Office {
    /// Ids below `next_id` were given before.
    pub(super) fn new(
        spool: LogSpool,
        settings: queue::Settings,
        seed: u64,
        Times { now, wall }: Times,
        next_id: u64,
        slip: Slip,
    ) -> Self {
        Self {
            spool,
            queue: Queue::new(settings.clone(), seed, now),
            lines: Vec::new(),
            columns: Columns::default(),
            waiting: Vec::new(),
            offers: Vec::new(),
            next_id,
            now,
            settings,
            started_wall: wall,
            wall,
            slip,
            made: HashMap::new(),
            kept: HashMap::new(),
        }
    }

    /// The number of a recipient's destination.
    fn number(&mut self, path: &ForwardPath) -> DestinationId {
        let name = destination(path);
        if self.slip != Slip::KeepNumbers {
            return self.queue.destination(&name);
        }
        let queue = &mut self.queue;
        *self.kept.entry(name).or_insert_with_key(|name| queue.destination(name))
    }

    /// A time of the wall clock on the queue's, as it was at the start; not one to come.
    fn of_wall(&self, at: UnixMillis) -> Millis {
        let shown = self.now + (at.0 as Millis - self.started_wall as Millis);
        if self.slip == Slip::BelieveClock { shown } else { shown.min(self.now) }
    }

    pub(super) fn next_id(&self) -> u64 {
        self.next_id
    }

    /// What recovery found goes back to the queue.
    pub(super) fn restore(&mut self, found: &Recovered) {
        let message = &found.message;
        let arrived = self.of_wall(message.arrived);
        let mut rows = Vec::new();
        for (index, (recipient, past)) in (0..).zip(message.envelope.recipients.iter().zip(&found.recipients))
        {
            if !past.settled {
                let site = self.number(&recipient.path);
                let spread = (message.id.0 % 1000) as f64 / 1000.0;
                let due = past.last.as_ref().map(|(at, _)| {
                    let tried = self.of_wall(*at);
                    tried + self.settings.retry_after(GroupId::default(), tried - arrived, spread)
                });
                rows.push((index, site, past.attempt_count.min(9) as u16, due));
            }
        }
        if rows.is_empty() {
            // Its last outcome was stored without the word that it was the last.
            let _ = self.spool.submit(vec![Entry::Amend { id: message.id, change: Change::Delete }]);
            return;
        }
        self.columns.accepted += rows.len() as u64;
        let size_bytes = message.content.size_bytes();
        let arrival = Arrival { id: message.id, arrived, size_bytes, held: found.held, recipients: &rows };
        self.queue.insert(&arrival, self.now);
    }

    // ---- in ----

    pub(super) fn judge_sender(&self) -> Reply {
        if self.spool.pressure().poisoned { replies::LOCAL_ERROR } else { replies::SENDER_OK }
    }

    pub(super) fn store(&self, chunk: Bytes) -> Result<Part, Reply> {
        let length_bytes = chunk.len() as u32;
        let place = self.spool.store(chunk).map_err(refusal)?;
        Ok(Part::Stored { place, length_bytes })
    }

    pub(super) fn abandon(&self, parts: &[Part]) {
        let places: Vec<Place> = parts.iter().filter_map(Part::place).collect();
        self.spool.abandon(&places);
    }

    fn message(&mut self, envelope: Envelope, content: Content) -> SharedMessage {
        self.next_id += 1;
        self.made.insert(QueueId(self.next_id), self.now);
        let (id, arrived) = (QueueId(self.next_id), UnixMillis(self.wall));
        SharedMessage::new(Message { id, arrived, origin: "mx.test".into(), envelope, content })
    }

    /// The end of a transaction: whoever sent it waits for its answer.
    pub(super) fn accept(
        &mut self,
        envelope: Envelope,
        content: Content,
        (place, turn): (usize, u64),
    ) -> Result<QueueId, Reply> {
        let message = self.message(envelope, content);
        let id = message.id;
        let ticket = self.spool.submit(vec![Entry::Accept(message.clone())]).map_err(refusal)?;
        let answer = Some((place, turn, id));
        self.waiting.push((ticket, After { answer, enqueue: vec![message], settled: Vec::new() }));
        Ok(id)
    }

    /// Everything that has become durable, and everything there was no room for.
    pub(super) fn poll(&mut self, sources: &mut [Source], truth: &mut Truth) {
        for (transaction, after) in std::mem::take(&mut self.offers) {
            self.submit(transaction, after);
        }
        for (ticket, after) in std::mem::take(&mut self.waiting) {
            let durable = self.spool.durable(ticket).as_mut().poll(&mut Context::from_waker(Waker::noop()));
            match durable {
                Poll::Pending => self.waiting.push((ticket, after)),
                Poll::Ready(Ok(())) => self.follow(after, sources, truth),
                Poll::Ready(Err(_)) => {
                    if let Some((place, turn, _)) = after.answer {
                        sources[place].answer(turn, replies::LOCAL_ERROR);
                    }
                }
            }
        }
    }

    fn follow(&mut self, after: After, sources: &mut [Source], truth: &mut Truth) {
        truth.concluded.extend(after.settled);
        if let Some((place, turn, id)) = after.answer {
            sources[place].answer(turn, Reply::new(250, Enhanced(2, 0, 0), format!("Ok: queued as {id}")));
        }
        for message in after.enqueue {
            let mut rows = Vec::new();
            for (index, recipient) in (0..).zip(&message.envelope.recipients) {
                rows.push((index, self.number(&recipient.path), 0, None));
            }
            truth.accepted.insert(message.id, self.made.remove(&message.id).unwrap_or(self.now));
            self.columns.accepted += rows.len() as u64;
            let (id, size_bytes) = (message.id, message.content.size_bytes());
            let arrival = Arrival { id, arrived: self.now, size_bytes, held: false, recipients: &rows };
            self.queue.insert(&arrival, self.now);
        }
    }

    fn submit(&mut self, transaction: Transaction, after: After) {
        match self.spool.submit(transaction.clone()) {
            Ok(ticket) => self.waiting.push((ticket, after)),
            // That an attempt was in vain needs no room.
            Err(Refused::Full) if transaction.iter().all(Entry::is_in_vain) => {}
            Err(Refused::Busy | Refused::Full) => self.offers.push((transaction, after)),
            Err(Refused::Poisoned) => {}
        }
    }

    // ---- out ----

    /// An attempt ended, or an operator or the clock ended it.
    pub(super) fn conclude(
        &mut self,
        taken: &Taken,
        mut results: Vec<(u32, Outcome)>,
        mut cause: Cause,
        message: Option<SharedMessage>,
        truth: &mut Truth,
    ) {
        let Some(message) = message.or_else(|| self.spool.read(taken.id).ok()) else {
            self.unread(taken, results, cause, truth);
            return;
        };
        if results.iter().any(|(_, o)| o.fate == Fate::Deferred) && self.queue.is_over(taken.unit, self.now) {
            for (_, outcome) in results.iter_mut().filter(|(_, o)| o.fate == Fate::Deferred) {
                *outcome = Outcome::failed(Enhanced(5, 4, 7), "could not be delivered in time");
                cause = Cause::Expired;
            }
        }
        if cause == Cause::Expired {
            truth.expired(message.id, self.now, self.settings.expire.as_millis() as Millis);
        }
        let failed: Vec<u32> = results.iter().filter(|(_, o)| o.fate == Fate::Failed).map(|r| r.0).collect();
        let wants_report = cause != Cause::Deleted && !failed.is_empty();
        let reports: Vec<SharedMessage> = (wants_report && !message.envelope.reverse_path.is_null())
            .then(|| self.report(&message, &failed, truth))
            .into_iter()
            .collect();
        let id = message.id;
        let fates: Vec<_> = results.iter().map(|(index, outcome)| (*index, outcome.fate)).collect();
        let settlement = self.queue.settle(taken.unit, &fates, cause == Cause::Tried, self.now);
        for (index, outcome) in &results {
            match (cause, outcome.fate) {
                (_, Fate::Deferred) => {}
                (Cause::Deleted, _) => {
                    self.columns.deleted += 1;
                    truth.deleted.extend(truth::who_of(&message, *index));
                }
                (Cause::Expired, Fate::Failed) => self.columns.expired += 1,
                (_, Fate::Failed) => self.columns.bounced += 1,
                (_, Fate::Delivered) => self.columns.delivered += 1,
            }
        }
        // Nobody is told that a report could not be delivered (RFC 5321 §4.5.5).
        if results.iter().any(|(_, o)| o.fate == Fate::Failed) {
            truth.deleted.extend(truth.reports.get(&id).into_iter().flatten());
        }
        let is_settled = |outcome: &Outcome| outcome.fate != Fate::Deferred;
        let settled = results.iter().filter(|(_, o)| is_settled(o)).map(|(index, _)| (id, *index)).collect();
        let mut transaction = vec![ending(id, cause, results, settlement.last)];
        transaction.extend(reports.iter().cloned().map(Entry::Accept));
        self.submit(transaction, After { answer: None, enqueue: reports, settled });
        self.condemned(settlement.seized, truth);
    }

    /// Without its envelope nothing can be concluded: it stays, and is tried again. But to delete it needs none.
    fn unread(&mut self, taken: &Taken, results: Vec<(u32, Outcome)>, cause: Cause, truth: &mut Truth) {
        let is_deleted = cause == Cause::Deleted;
        let fate = |outcome: &Outcome| if is_deleted { outcome.fate } else { Fate::Deferred };
        let fates: Vec<_> = results.iter().map(|(index, outcome)| (*index, fate(outcome))).collect();
        let settlement = self.queue.settle(taken.unit, &fates, false, self.now);
        if is_deleted {
            self.columns.deleted += fates.len() as u64;
            let n = truth.ids.get(&taken.id).copied();
            truth.deleted.extend(fates.iter().filter_map(|(k, _)| Some((n?, *k))));
            truth.deleted.extend(truth.reports.get(&taken.id).into_iter().flatten());
            let settled = fates.iter().map(|(index, _)| (taken.id, *index)).collect();
            let transaction = vec![ending(taken.id, cause, results, settlement.last)];
            self.submit(transaction, After { answer: None, enqueue: Vec::new(), settled });
        }
        self.condemned(settlement.seized, truth);
    }

    /// What an operator decided of recipients is done.
    pub(super) fn condemned(&mut self, seized: Vec<(Taken, Verdict)>, truth: &mut Truth) {
        for (taken, verdict) in seized {
            let (text, cause) = match verdict {
                Verdict::Returned => ("returned", Cause::Bounced),
                Verdict::Deleted => ("deleted", Cause::Deleted),
            };
            self.conclude_all(&taken, &Outcome::failed(Enhanced(5, 7, 0), text), cause, truth);
        }
    }

    fn report(&mut self, message: &Message, failed: &[u32], truth: &mut Truth) -> SharedMessage {
        let affected: Vec<Who> = failed.iter().filter_map(|k| truth::who_of(message, *k)).collect();
        let mut envelope = Envelope::new(ReversePath::parse("", false).expect("null"));
        let to =
            ForwardPath::parse(message.envelope.reverse_path.as_str(), false).expect("a sender's address");
        envelope.recipients = vec![Recipient::new(to)];
        let report = self.message(envelope, Content::from_bytes(truth::report(&affected).into_bytes()));
        truth.reports.insert(report.id, affected);
        report
    }

    // ---- time and operators ----

    pub(super) fn advance(&mut self, Times { now, wall }: Times, truth: &mut Truth) {
        (self.now, self.wall) = (now, wall);
        self.queue.advance(now);
        while let Some(aged) = self.queue.next_aged(now) {
            let Aged::Expired(units) = aged else { continue };
            for taken in units {
                let outcome = Outcome::failed(Enhanced(5, 4, 7), "could not be delivered in time");
                self.conclude_all(&taken, &outcome, Cause::Expired, truth);
            }
        }
    }

    fn conclude_all(&mut self, taken: &Taken, outcome: &Outcome, cause: Cause, truth: &mut Truth) {
        let results = taken.recipients.as_slice().iter().map(|index| (*index, outcome.clone())).collect();
        self.conclude(taken, results, cause, None, truth);
    }

    /// Something operators do to one message.
    pub(super) fn operate(&mut self, rng: &mut Rng, truth: &mut Truth) {
        let ids = self.queue.ids();
        let Some(id) = (!ids.is_empty()).then(|| ids[rng.index(ids.len())]) else { return };
        match rng.below(5) {
            0 if self.spool.submit(vec![Entry::Amend { id, change: Change::Hold }]).is_ok() => {
                self.queue.hold(id);
            }
            1 | 2 if self.spool.submit(vec![Entry::Amend { id, change: Change::Release }]).is_ok() => {
                self.queue.release(id, self.now);
            }
            3 => self.queue.flush(self.now),
            _ => {
                let verdict = if rng.chance(30) { Verdict::Returned } else { Verdict::Deleted };
                // All of its recipients, or every second.
                let (step, first) = if rng.chance(50) { (1, 0) } else { (2, rng.below(2) as u32) };
                let taken = self.queue.seize(id, |index| index % step == first, verdict, self.now);
                let seized = taken.unwrap_or_default().into_iter().map(|taken| (taken, verdict)).collect();
                self.condemned(seized, truth);
            }
        }
    }

    /// Nothing is held any more.
    pub(super) fn release_all(&mut self) {
        for id in self.queue.ids() {
            self.queue.release(id, self.now);
        }
    }

    /// Does what the queue orders.
    pub(super) fn follow_orders(&mut self, is_well: bool, rng: &mut Rng) {
        while let Some(order) = self.queue.next_order(self.now) {
            match order {
                Order::Open(site) => self.open(site, is_well, rng),
                Order::Wake(site) => {
                    let resting = self.lines.iter_mut().find(|line| line.site == site && line.rests);
                    resting.expect("the queue counts who rests").rests = false;
                }
            }
        }
    }

    fn open(&mut self, site: DestinationId, is_well: bool, rng: &mut Rng) {
        if rng.chance(5) && !is_well {
            let refused = Outcome::deferred(Enhanced(4, 4, 1), "connection refused");
            self.queue.unreachable(site, refused, self.now);
            self.queue.connection_closed(site, true, self.now);
            return;
        }
        let domain = self.queue.destination_name(site).target.as_ref().into();
        self.lines.push(Line::new(site, domain, is_well, self.now, rng));
    }

    // ---- what is there ----

    /// Accepted is the sum of everything else.
    pub(super) fn judge(&self) -> Result<(), String> {
        let Columns { accepted, delivered, bounced, expired, deleted } = &self.columns;
        let messages = self.queue.ids().into_iter().filter_map(|id| self.queue.message(id));
        let queued: u64 = messages.flat_map(|m| m.units).map(|unit| unit.recipients.len() as u64).sum();
        if *accepted == delivered + bounced + expired + deleted + queued {
            return Ok(());
        }
        Err(format!("the ledger does not add up: {:?}, {queued} queued", self.columns))
    }

    /// Nothing waits longer than the longest wait, whatever the wall clock shows or has shown.
    pub(super) fn judge_waits(&self) -> Result<(), String> {
        let longest = self.settings.group(GroupId::default()).retry_max.as_secs_f64() * 1000.0;
        let latest = self.now + (longest * (1.0 + self.settings.jitter)) as Millis;
        for message in self.queue.ids().into_iter().filter_map(|id| self.queue.message(id)) {
            for unit in message.units {
                if let Status::Waiting(until) | Status::Suspended(until, _) = unit.status
                    && until > latest
                {
                    return Err(format!("{} waits for another {} ms", message.id, until - self.now));
                }
            }
        }
        Ok(())
    }

    /// Everybody for whom something is left to do: a delivery, or a report to the sender.
    pub(super) fn queued(&self, truth: &Truth) -> BTreeSet<Who> {
        let mut everybody = BTreeSet::new();
        for message in self.queue.ids().into_iter().filter_map(|id| self.queue.message(id)) {
            let indexes = message.units.iter().flat_map(|unit| &unit.recipients);
            let n = truth.ids.get(&message.id);
            everybody.extend(indexes.filter_map(|k| Some((*n?, *k))));
            everybody.extend(truth.reports.get(&message.id).into_iter().flatten());
        }
        let afters = self.waiting.iter().map(|w| &w.1).chain(self.offers.iter().map(|o| &o.1));
        for report in afters.flat_map(|after| &after.enqueue) {
            everybody.extend(truth.reports.get(&report.id).into_iter().flatten());
        }
        everybody
    }

    pub(super) fn is_done(&self) -> bool {
        self.queue.is_empty() && self.waiting.is_empty() && self.offers.is_empty()
    }
}
