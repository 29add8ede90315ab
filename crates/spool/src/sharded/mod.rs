//! Several spools as one: queue groups may have a backend, and a disk, of their own.
//!
//! Nothing makes two stores durable in one moment, so a transaction goes to one of them whole. Where
//! messages are that it names, or chunks of its content, it follows them: a report lies where the message
//! lies that it tells of. Else the envelope of its first message decides. Each store is a shard of its own:
//! no shard waits for the disk of another.

mod shard_ids;

use crate::{
    CommitSeq, CommitStats, ControlOp, Durable, Entry, Failed, Pressure, Recovered, RecoveryReport, Refused,
    SecondCopy, Spool, SpoolFailure, Totals, Transaction, commit_progress::block_on, totals::open_recipients,
};
use bytes::Bytes;
use mail::{ChunkId, Envelope, QueueId, SharedMessage};
use std::{
    collections::HashMap,
    future::poll_fn,
    sync::{Mutex, MutexGuard, PoisonError},
    task::Poll,
};

/// A function that returns the index of the store for a new message, counted from 0.
pub type ShardSelector = Box<dyn Fn(&Envelope) -> usize + Send + Sync>;

/// A spool of several: a queue group may have a backend and a disk of its own.
pub struct ShardedSpool<S: Spool + ?Sized = dyn Spool> {
    /// The first one has all mail that none of the others is for.
    stores: Vec<Box<S>>,
    choose: ShardSelector,
    placement: Mutex<MessageShards>,
    /// Names of the stores, for messages to the operator.
    names: Vec<String>,
}

/// Store numbers of the messages that are not in the first store.
#[derive(Default)]
struct MessageShards(HashMap<QueueId, u8>);

impl<S: Spool + ?Sized> ShardedSpool<S> {
    /// Stores that are still to be recovered. At most 255, the first of them for what `choose` has
    /// nothing of; their order may change from start to start, as places do not outlive one.
    pub fn new(stores: Vec<Box<S>>, choose: ShardSelector) -> Self {
        assert!(
            (1..=shard_ids::STORES_MAX).contains(&stores.len()),
            "a chunk_id has no more room for its store"
        );
        let names = (0..stores.len()).map(|number| format!("spool {number}")).collect();
        Self { stores, choose, placement: Mutex::default(), names }
    }

    /// Gives the stores the names they have in messages, such as their paths.
    #[must_use]
    pub fn with_names(mut self, names: Vec<String>) -> Self {
        assert_eq!(names.len(), self.stores.len(), "each store has a name");
        self.names = names;
        self
    }

    /// In the order they were given.
    pub fn stores(&self) -> &[Box<S>] {
        &self.stores
    }

    fn placement(&self) -> MutexGuard<'_, MessageShards> {
        self.placement.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the store that a transaction goes to: the one that has its message, or the choice for a new
    /// one.
    fn shard_for(&self, transaction: &[Entry]) -> usize {
        let placement = self.placement();
        let mut bound = transaction.iter().filter_map(|entry| placement.bound(entry));
        if let Some(shard) = bound.next() {
            // A transaction is a message, or what became of one together with the reports on it.
            assert!(bound.all(|other| other == shard), "a transaction names what two stores keep");
            return shard;
        }
        let message = transaction.iter().find_map(message_of);
        message.map_or(0, |message| (self.choose)(&message.envelope))
    }

    fn store_of(&self, chunk_id: ChunkId) -> Option<(&S, ChunkId)> {
        let shard = shard_ids::shard_of(chunk_id);
        Some((self.stores.get(shard)?, shard_ids::inner(chunk_id, shard)?))
    }

    fn store_in(&self, shard: usize, chunk: Bytes) -> Result<ChunkId, Refused> {
        self.stores[shard].store(chunk).map(|chunk_id| shard_ids::outer(chunk_id, shard))
    }
}

/// Messages of a store whose ids another store has as well.
#[derive(Default)]
struct Twice {
    count: u64,
    copies: Vec<SecondCopy>,
    told: Vec<String>,
}

/// More of them are not reported one by one.
const TOLD_MAX: usize = 20;

impl Twice {
    fn note(&mut self, is_copy: bool, one: Recovered, first: &str, here: &str) {
        let id = one.message.id;
        self.count += 1;
        if is_copy {
            self.copies.push(SecondCopy { id, recipients: one.recipients });
        }
        if self.told.len() == TOLD_MAX {
            self.told.push(format!("{here}: more messages are in another spool, too"));
        } else if self.told.len() < TOLD_MAX {
            self.told.push(if is_copy {
                format!("{id} is in {first} and in {here}: it is delivered once, and the copy in {here} is removed")
            } else {
                format!(
                    "{here} has another message with the id {id} of one in {first}: it is left alone until a start \
                     after that one has ended"
                )
            });
        }
    }
}

/// Are these two copies of one message? Their content lies in different places.
fn is_same(one: &SharedMessage, other: &SharedMessage) -> bool {
    one.arrived == other.arrived
        && one.origin == other.origin
        && one.envelope == other.envelope
        && one.content.traits == other.content.traits
        && one.content.size_bytes() == other.content.size_bytes()
}

impl<S: Spool + ?Sized> ShardedSpool<S> {
    /// Ends copies in their stores, so that they do not come back at the next start.
    fn end_copies(&self, copies: &[(usize, QueueId, u64)]) -> Result<(), SpoolFailure> {
        let mut last = HashMap::new();
        for (shard, id, open_count) in copies {
            loop {
                let ended = Entry::Outcome { id: *id, results: Vec::new(), last: true };
                let moved = Totals { moved: *open_count, ..Totals::default() };
                match self.stores[*shard].submit(vec![ended, Entry::Count(moved)]) {
                    Ok(commit_seq) => drop(last.insert(*shard, commit_seq)),
                    Err(Refused::Busy) if last.contains_key(shard) => {
                        block_on(self.stores[*shard].durable(last[shard]))?;
                        continue;
                    }
                    Err(refused) => return Err(SpoolFailure::Io(format!("end the copy of {id}: {refused}"))),
                }
                break;
            }
        }
        Ok(())
    }
}

fn message_of(entry: &Entry) -> Option<&SharedMessage> {
    match entry {
        Entry::Accept(message) => Some(message),
        Entry::Import(found) => Some(&found.message),
        Entry::Outcome { .. } | Entry::Control { .. } | Entry::Count(_) => None,
    }
}

impl MessageShards {
    fn shard_of_message(&self, id: QueueId) -> usize {
        self.0.get(&id).map_or(0, |shard| usize::from(*shard))
    }

    /// The store an entry has to go to; none when it may go to any.
    fn bound(&self, entry: &Entry) -> Option<usize> {
        match entry {
            Entry::Outcome { id, .. } | Entry::Control { id, .. } => Some(self.shard_of_message(*id)),
            Entry::Accept(message) => shard_ids::shard_of_message(message),
            Entry::Import(found) => shard_ids::shard_of_message(&found.message),
            Entry::Count(_) => None,
        }
    }

    /// A store has taken a transaction that did this.
    fn note(&mut self, shard: usize, (id, what): (QueueId, Step)) {
        match what {
            Step::Begins if shard > 0 => drop(self.0.insert(id, shard as u8)),
            Step::Begins => {}
            Step::Ends => drop(self.0.remove(&id)),
        }
    }
}

/// The effect of an entry on the set of stored messages.
#[derive(Clone, Copy)]
enum Step {
    Begins,
    Ends,
}

fn step(entry: &Entry) -> Option<(QueueId, Step)> {
    match entry {
        Entry::Outcome { id, last: true, .. } | Entry::Control { id, op: ControlOp::Delete } => {
            Some((*id, Step::Ends))
        }
        Entry::Outcome { .. } | Entry::Control { .. } | Entry::Count(_) => None,
        Entry::Accept(_) | Entry::Import(_) => message_of(entry).map(|message| (message.id, Step::Begins)),
    }
}

impl<S: Spool + ?Sized> Spool for ShardedSpool<S> {
    fn submit_or_keep(&self, transaction: &mut Transaction) -> Result<CommitSeq, Refused> {
        let shard = self.shard_for(transaction);
        let steps: Vec<_> = transaction.iter().filter_map(step).collect();
        let inner = transaction.iter().cloned().map(|entry| shard_ids::inner_entry(entry, shard)).collect();
        let own = self.stores[shard].submit(inner)?;
        transaction.clear();
        if !steps.is_empty() {
            let mut placement = self.placement();
            steps.into_iter().for_each(|step| placement.note(shard, step));
        }
        Ok(shard_ids::outer_commit_seq(own, shard))
    }

    fn store(&self, chunk: Bytes) -> Result<ChunkId, Refused> {
        self.store_in(0, chunk)
    }

    fn store_for(&self, envelope: &Envelope, chunk: Bytes) -> Result<ChunkId, Refused> {
        self.store_in((self.choose)(envelope), chunk)
    }

    fn discard_chunks(&self, chunk_ids: &[ChunkId]) {
        for (shard, store) in self.stores.iter().enumerate() {
            let own: Vec<ChunkId> =
                chunk_ids.iter().filter_map(|chunk_id| shard_ids::inner(*chunk_id, shard)).collect();
            if !own.is_empty() {
                store.discard_chunks(&own);
            }
        }
    }

    fn shard_count(&self) -> usize {
        self.stores.len()
    }

    fn shard(&self, commit_seq: CommitSeq) -> usize {
        shard_ids::inner_commit_seq(commit_seq).0
    }

    fn durable(&self, commit_seq: CommitSeq) -> Durable {
        let (shard, own) = shard_ids::inner_commit_seq(commit_seq);
        self.stores[shard].durable(own)
    }

    fn poll_durable(&self, commit_seq: CommitSeq) -> Option<Result<(), SpoolFailure>> {
        let (shard, own) = shard_ids::inner_commit_seq(commit_seq);
        self.stores[shard].poll_durable(own)
    }

    /// Resolves to the failure of the first store that fails.
    fn failed(&self) -> Failed {
        let mut stores: Vec<Failed> = self.stores.iter().map(|store| store.failed()).collect();
        Box::pin(poll_fn(move |cx| {
            let first = stores.iter_mut().find_map(|store| match store.as_mut().poll(cx) {
                Poll::Ready(failure) => Some(failure),
                Poll::Pending => None,
            });
            first.map_or(Poll::Pending, Poll::Ready)
        }))
    }

    fn read(&self, id: QueueId) -> Result<SharedMessage, SpoolFailure> {
        let shard = self.placement().shard_of_message(id);
        Ok(shard_ids::outer_message(self.stores[shard].read(id)?, shard))
    }

    fn read_cached(&self, id: QueueId) -> Option<SharedMessage> {
        let shard = self.placement().shard_of_message(id);
        Some(shard_ids::outer_message(self.stores[shard].read_cached(id)?, shard))
    }

    fn load(&self, chunk_id: ChunkId) -> Result<Bytes, SpoolFailure> {
        self.store_of(chunk_id).map_or(Err(SpoolFailure::Missing), |(store, inner)| store.load(inner))
    }

    fn load_cached(&self, chunk_id: ChunkId) -> Option<Bytes> {
        let (store, inner) = self.store_of(chunk_id)?;
        store.load_cached(inner)
    }

    fn recover(&mut self, found: &mut dyn FnMut(Recovered)) -> Result<RecoveryReport, SpoolFailure> {
        let mut whole = RecoveryReport::default();
        let placement = self.placement.get_mut().unwrap_or_else(PoisonError::into_inner);
        let names = &self.names;
        let mut copies = Vec::new();
        // The first store comes last: the ids of the others are kept anyway, and tell what is there twice.
        for shard in (1..self.stores.len()).chain([0]) {
            let (before, rest) = self.stores.split_at_mut(shard);
            let Some((store, behind)) = rest.split_first_mut() else { continue };
            let mut twice = Twice::default();
            let mut report = store.recover(&mut |one| {
                let id = one.message.id;
                if let Some(first) = placement.0.get(&id).copied().map(usize::from) {
                    let earlier = if first < shard { &before[first] } else { &behind[first - shard - 1] };
                    let is_copy = earlier.read(id).is_ok_and(|message| is_same(&message, &one.message));
                    twice.note(is_copy, one, &names[first], &names[shard]);
                    return;
                }
                placement.note(shard, (id, Step::Begins));
                found(Recovered { message: shard_ids::outer_message(one.message, shard), ..one });
            })?;
            assert!(twice.count <= report.message_count, "a store counts each message that it passes on");
            report.message_count -= twice.count;
            report.corrupt.extend(twice.told);
            for copy in &twice.copies {
                let open_count = open_recipients(&copy.recipients);
                report.totals.moved += open_count;
                copies.push((shard, copy.id, open_count));
            }
            report.copies = twice.copies;
            whole.add(report);
        }
        self.end_copies(&copies)?;
        Ok(whole)
    }

    /// Sums. The fullest store says what is free, since the next message can go to any of them, and
    /// the slowest what a sync takes.
    fn pressure(&self) -> Pressure {
        let all = self.stores.iter().map(|store| store.pressure());
        let both = |a: Pressure, b: Pressure| Pressure {
            queued_bytes: a.queued_bytes + b.queued_bytes,
            free_bytes: a.free_bytes.min(b.free_bytes),
            message_count: a.message_count + b.message_count,
            commit_count: a.commit_count + b.commit_count,
            transaction_count: a.transaction_count + b.transaction_count,
            last_sync_us: a.last_sync_us.max(b.last_sync_us),
            poisoned: a.poisoned || b.poisoned,
            awaits_room: a.awaits_room || b.awaits_room,
        };
        all.reduce(both).unwrap_or_default()
    }

    fn commit_stats(&self) -> CommitStats {
        let mut whole = CommitStats::default();
        self.stores.iter().for_each(|store| whole.add(&store.commit_stats()));
        whole
    }

    fn faults(&self) -> Vec<String> {
        self.stores.iter().flat_map(|store| store.faults()).collect()
    }

    fn room_bytes(&self) -> u64 {
        self.stores.iter().map(|store| store.room_bytes()).min().unwrap_or(0)
    }

    fn close(&self) {
        self.stores.iter().for_each(|store| store.close());
    }
}
