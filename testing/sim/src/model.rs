//! The transactions and the promises of a spool: after a crash the log must be as if exactly the first
//! `k` transactions had happened, with every one it called durable among them; queue directories as if
//! all of those had, and some others. Where there are several spools, each keeps its own promise.

mod damaged;
mod order;

use crate::{
    backend::{Backend, Survivors},
    expected_totals::{ExpectedTotals, counted},
};
use bytes::Bytes;
use damaged::Damaged;
use mail::{Disposition, Outcome, Part, QueueId, SharedMessage};
use spool::{CommitSeq, ControlOp, Entry, RecipientState, RecoveryReport, Spool, Totals, Transaction};
use std::collections::{BTreeMap, BTreeSet};

/// A live message's state, without the times at which the spool noted it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Live {
    recipients: Vec<Past>,
    held: Option<Box<str>>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Past {
    settled: bool,
    attempt_count: u32,
    last: Option<(Disposition, String)>,
}

/// Live messages, by queue id.
pub type Queue = BTreeMap<u64, Live>;

/// What has to come back of a message that was handed to the spool.
#[derive(Debug, Clone)]
struct Sent {
    message: SharedMessage,
    content: Bytes,
}

/// What the spool may have after a crash, from what was submitted and acknowledged.
#[derive(Debug)]
pub struct Model {
    sent: BTreeMap<u64, Sent>,
    shards: Vec<Shard>,
    /// With everything submitted.
    latest: Queue,
    damaged: Damaged,
    expected: ExpectedTotals,
    /// False after a start that could not know the totals: damage, or envelopes that were not read.
    has_expected: bool,
}

/// The transactions that become durable in one order.
#[derive(Debug)]
struct Shard {
    order: Survivors,
    /// The queue that the last recovery found: all of that is durable.
    proven: Queue,
    /// Since then, in the order of their commit sequence numbers.
    submitted: Vec<(CommitSeq, Transaction)>,
    /// So many of them were called durable.
    acknowledged: usize,
    /// Messages it was ever given.
    own: BTreeSet<u64>,
    /// The totals that the last recovery found, where this is the only one.
    totals: Totals,
}

fn apply(queue: &mut Queue, transaction: &Transaction) {
    for entry in transaction {
        match entry {
            Entry::Accept(message) => {
                let recipients = vec![Past::default(); message.envelope.recipients.len()];
                queue.insert(message.id.0, Live { recipients, held: None });
            }
            Entry::Import(found) => {
                queue.insert(found.message.id.0, Live::recovered(&found.recipients, found.held.clone()));
            }
            Entry::Outcome { id, last: true, .. } | Entry::Control { id, op: ControlOp::Delete } => {
                queue.remove(&id.0);
            }
            Entry::Outcome { id, results, last: false } => {
                let Some(live) = queue.get_mut(&id.0) else { continue };
                results.iter().for_each(|(index, outcome)| live.recipients[*index as usize].note(outcome));
            }
            Entry::Count(_) => {}
            Entry::Control { id, op: change } => {
                if let Some(live) = queue.get_mut(&id.0) {
                    live.held =
                        if let ControlOp::Hold(reason) = change { Some(reason.clone()) } else { None };
                }
            }
        }
    }
}

/// Returns the message that the entry accepts.
fn accepted(entry: &Entry) -> Option<u64> {
    match entry {
        Entry::Accept(message) => Some(message.id.0),
        Entry::Import(found) => Some(found.message.id.0),
        Entry::Outcome { .. } | Entry::Control { .. } | Entry::Count(_) => None,
    }
}

/// Returns the message that the entry ends.
fn ended(entry: &Entry) -> Option<u64> {
    match entry {
        Entry::Outcome { id, last: true, .. } | Entry::Control { id, op: ControlOp::Delete } => Some(id.0),
        _ => None,
    }
}

/// Only what waits keeps its text.
fn told(outcome: &Outcome) -> (Disposition, String) {
    let text = if outcome.disposition == Disposition::Deferred { &*outcome.text } else { "" };
    (outcome.disposition, text.to_owned())
}

impl Past {
    fn note(&mut self, outcome: &Outcome) {
        self.attempt_count += 1;
        self.settled |= outcome.disposition != Disposition::Deferred;
        self.last = Some(told(outcome));
    }
}

impl Live {
    /// Returns the message in the form in which recovery has it.
    pub fn recovered(states: &[RecipientState], held: Option<Box<str>>) -> Self {
        let past = |s: &RecipientState| Past {
            settled: s.settled,
            attempt_count: s.attempt_count,
            last: s.last.as_ref().map(|(_, outcome)| told(outcome)),
        };
        Self { recipients: states.iter().map(past).collect(), held }
    }

    /// Recipients something is left to do for.
    pub fn open_recipients(&self) -> Vec<u32> {
        (0u32..).zip(&self.recipients).filter(|(_, past)| !past.settled).map(|(n, _)| n).collect()
    }
}

impl Model {
    /// Of a spool with nothing in it.
    pub fn new(backend: Backend) -> Self {
        let shards = backend.survivors().iter().map(|order| Shard::new(*order)).collect();
        Self {
            sent: BTreeMap::new(),
            shards,
            latest: Queue::new(),
            damaged: Damaged::default(),
            expected: ExpectedTotals::default(),
            has_expected: true,
        }
    }

    /// Notes a transaction that the spool took; it may be lost until it is acknowledged.
    pub fn submitted(&mut self, shard: usize, commit_seq: CommitSeq, transaction: Transaction) {
        apply(&mut self.latest, &transaction);
        self.expected.submitted(&counted(&transaction));
        transaction.iter().for_each(|entry| self.damaged.submitted(entry));
        self.shards[shard].submit(commit_seq, transaction);
    }

    /// A message that may be submitted, and its content, which may be in chunks.
    pub fn sent(&mut self, message: SharedMessage, content: Bytes) {
        self.damaged.sent(&message);
        self.sent.insert(message.id.0, Sent { message, content });
    }

    /// The commit sequence numbers of a shard no one was called durable of yet.
    pub fn open_tickets(&self, shard: usize) -> impl Iterator<Item = CommitSeq> + '_ {
        self.shards[shard].open().iter().map(|(commit_seq, _)| *commit_seq)
    }

    /// Returns the transactions of all shards that may still be lost.
    pub fn open_count(&self) -> usize {
        self.shards.iter().map(|shard| shard.open().len()).sum()
    }

    /// A commit sequence number was called durable.
    pub fn acknowledged(&mut self, shard: usize, commit_seq: CommitSeq) {
        let shard = &mut self.shards[shard];
        let up_to = shard.submitted.iter().filter(|(t, _)| *t <= commit_seq).count();
        let from = shard.acknowledged;
        shard.acknowledged = from.max(up_to);
        let durable = shard.submitted[from..shard.acknowledged].iter();
        durable.for_each(|(_, transaction)| self.expected.durable(&counted(transaction)));
    }

    /// With everything that was submitted.
    pub fn latest(&self) -> &Queue {
        &self.latest
    }

    /// Messages whose acceptance is durable and whose end was not submitted: they can be read.
    pub fn readable(&self) -> Vec<QueueId> {
        let ids = self.shards.iter().flat_map(Shard::durable);
        ids.filter(|id| self.latest.contains_key(id)).map(QueueId).collect()
    }

    /// Messages ever handed to the spool.
    pub fn message_count(&self) -> u64 {
        self.sent.len() as u64
    }

    /// Checks that the queue that recovery found is one of the queues that may be, and that the totals are those of the
    /// queue; from now on both are durable. `has_totals` says that the totals can be known: all was read.
    pub fn settle(&mut self, found: Queue, report: &RecoveryReport, has_totals: bool) -> Result<(), String> {
        if let Some(id) = found.keys().find(|id| !self.shards.iter().any(|shard| shard.own.contains(id))) {
            return Err(format!("{id} was given to nobody"));
        }
        self.damaged.check(&found)?;
        let is_known = has_totals && self.has_expected;
        if is_known {
            let left = found.values().map(|live| live.open_recipients().len() as u64).sum();
            self.expected.check(report, left)?;
        }
        let is_alone = self.shards.len() == 1;
        let totals = (is_known && is_alone).then_some(&report.totals);
        self.shards.iter().try_for_each(|shard| shard.check(&shard.part(&found), totals, &self.damaged))?;
        self.adopt(found);
        self.has_expected = has_totals;
        self.expected.adopt(&report.totals);
        self.shards.iter_mut().for_each(|shard| shard.totals = report.totals);
        Ok(())
    }

    /// Something was damaged: what is left counts from now on.
    pub fn adopt(&mut self, found: Queue) {
        for shard in &mut self.shards {
            shard.submitted.clear();
            shard.acknowledged = 0;
            shard.proven = shard.part(&found);
        }
        self.latest = found;
        self.has_expected = false;
    }

    /// The message is what was handed to the spool, byte by byte; one that is damaged may be unreadable.
    pub fn compare(&self, spool: &dyn Spool, id: QueueId) -> Result<(), String> {
        match self.difference(spool, id) {
            Ok(None) => Ok(()),
            Ok(Some(_)) if self.damaged.has(id.0) => Ok(()),
            Ok(Some(unreadable)) => Err(unreadable),
            Err(other) => Err(other),
        }
    }

    /// Compares a message that can be read by now, whatever was damaged.
    pub fn compare_all(&self, spool: &dyn Spool, id: QueueId) -> Result<(), String> {
        self.difference(spool, id)?.map_or(Ok(()), Err)
    }

    /// Messages whose acceptance is durable.
    pub fn durable(&self) -> impl Iterator<Item = u64> + '_ {
        self.shards.iter().flat_map(Shard::durable)
    }

    /// Messages whose end was submitted since the last recovery, and those of them whose end is durable.
    pub fn ends(&self) -> (Vec<u64>, Vec<u64>) {
        let ends = |transactions: &[(CommitSeq, Transaction)]| -> Vec<u64> {
            transactions.iter().flat_map(|(_, t)| t).filter_map(ended).collect()
        };
        let all = self.shards.iter().flat_map(|shard| ends(&shard.submitted));
        let durable = self.shards.iter().flat_map(|shard| ends(&shard.submitted[..shard.acknowledged]));
        (all.collect(), durable.collect())
    }

    /// Returns the reason why a message cannot be read, if it cannot; an error when it can, and is another than it
    /// was.
    fn difference(&self, spool: &dyn Spool, id: QueueId) -> Result<Option<String>, String> {
        let sent = self.sent.get(&id.0).ok_or_else(|| format!("{}: nobody sent it", id.0))?;
        let read = match spool.read(id) {
            Ok(read) => read,
            Err(e) => return Ok(Some(format!("{}: {e}", id.0))),
        };
        let told = |m: &mail::Message| (m.envelope.clone(), m.arrived, m.origin.clone(), m.content.traits);
        if told(&read) != told(&sent.message) {
            return Err(format!("{}: another envelope", id.0));
        }
        let mut content = Vec::new();
        for part in read.content.parts() {
            match part {
                Part::Memory(bytes) => content.extend_from_slice(bytes),
                Part::Stored { chunk_id, .. } => match spool.load(*chunk_id) {
                    Ok(bytes) => content.extend_from_slice(&bytes),
                    Err(e) => return Ok(Some(format!("{}: {chunk_id:?}: {e}", id.0))),
                },
            }
        }
        if content == sent.content { Ok(None) } else { Err(format!("{}: another content", id.0)) }
    }
}

impl Shard {
    fn new(order: Survivors) -> Self {
        let (proven, own) = (Queue::new(), BTreeSet::new());
        Self { order, proven, submitted: Vec::new(), acknowledged: 0, own, totals: Totals::default() }
    }

    fn submit(&mut self, commit_seq: CommitSeq, transaction: Transaction) {
        self.own.extend(transaction.iter().filter_map(accepted));
        self.submitted.push((commit_seq, transaction));
    }

    fn open(&self) -> &[(CommitSeq, Transaction)] {
        &self.submitted[self.acknowledged..]
    }

    /// Messages whose acceptance is durable.
    fn durable(&self) -> impl Iterator<Item = u64> + '_ {
        let since = self.submitted[..self.acknowledged].iter().flat_map(|(_, t)| t).filter_map(accepted);
        self.proven.keys().copied().chain(since)
    }

    /// Returns the part that is this shard's.
    fn part(&self, found: &Queue) -> Queue {
        found.iter().filter(|(id, _)| self.own.contains(id)).map(|(id, live)| (*id, live.clone())).collect()
    }

    /// Checks that a recovery found one of the queues that are permitted.
    fn check(&self, found: &Queue, totals: Option<&Totals>, damaged: &Damaged) -> Result<(), String> {
        match self.order {
            Survivors::Prefix => self.check_prefix(found, totals, damaged),
            Survivors::Subset => self.check_subset(found, damaged),
        }
    }

    fn check_subset(&self, found: &Queue, damaged: &Damaged) -> Result<(), String> {
        let (durable, open) = self.submitted.split_at(self.acknowledged);
        let mut least = self.proven.clone();
        durable.iter().for_each(|(_, transaction)| apply(&mut least, transaction));
        let open: Vec<&Transaction> = open.iter().map(|(_, transaction)| transaction).collect();
        if order::is_some_of(&least, &open, found, damaged) {
            return Ok(());
        }
        let mut most = least.clone();
        open.into_iter().for_each(|transaction| apply(&mut most, transaction));
        Err(self.explain(&damaged.sound(found), &damaged.sound(&least), &damaged.sound(&most)))
    }

    fn check_prefix(&self, found: &Queue, totals: Option<&Totals>, damaged: &Damaged) -> Result<(), String> {
        let sound = damaged.sound(found);
        let (mut queue, mut sum) = (self.proven.clone(), self.totals);
        let (mut least, mut others) = (None, Vec::new());
        for count in 0..=self.submitted.len() {
            if count >= self.acknowledged {
                if queue == *found || !damaged.is_empty() && damaged.sound(&queue) == sound {
                    if totals.is_none_or(|totals| *totals == sum) {
                        return Ok(());
                    }
                    others.push(sum);
                }
                least.get_or_insert_with(|| queue.clone());
            }
            if let Some((_, transaction)) = self.submitted.get(count) {
                apply(&mut queue, transaction);
                sum.add(&counted(transaction));
            }
        }
        if !others.is_empty() {
            return Err(format!("the totals are {totals:?}, and not one of {others:?}"));
        }
        Err(self.explain(&sound, &damaged.sound(&least.unwrap_or_default()), &damaged.sound(&queue)))
    }

    /// Returns the differences from both the least and the most that may be there.
    fn explain(&self, found: &Queue, least: &Queue, most: &Queue) -> String {
        let mut words = Vec::new();
        let ids: BTreeSet<_> = found.keys().chain(least.keys()).chain(most.keys()).collect();
        for id in ids {
            let [f, l, m] = [found, least, most].map(|q| q.get(id));
            if f != l && f != m {
                words.push(format!("{id}: {f:?}, durable was {l:?}, submitted {m:?}"));
            } else if f != l || f != m {
                words.push(format!("{id}: as {}", if f == l { "acknowledged" } else { "submitted" }));
            }
        }
        let (acknowledged, submitted) = (self.acknowledged, self.submitted.len());
        format!("{acknowledged} of {submitted} transactions were durable; {}", words.join("; "))
    }
}
