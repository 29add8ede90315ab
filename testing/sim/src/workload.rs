//! The changes that a mail server makes to its spool, at random: accepts of all sizes, outcomes, holds, bounces.

use crate::{
    model::{Live, Model},
    seed::Rng,
};
use bytes::Bytes;
use mail::{
    Cause, ChunkId, Content, ContentTraits, DeliveryOptions, Enhanced, Envelope, Expansion, ForwardPath,
    Mailbox, Message, Outcome, Part, QueueId, Recipient, ReversePath, SharedMessage, UnixMillis,
};
use spool::{CommitSeq, ControlOp, Entry, Refused, Spool, Totals, Transaction};

/// Above so many live messages they are finished rather than accepted.
const LIVE_MAX: usize = 14;

/// Makes transactions and submits them.
#[derive(Debug)]
pub struct Workload {
    rng: Rng,
    next_id: u64,
    /// Transactions over several messages often come with outcomes that are not the last.
    is_joint: bool,
    /// Large content comes piece by piece, with other things in between.
    is_slow: bool,
    transfers: Vec<Transfer>,
    /// Most messages are large ones.
    is_large: bool,
    attempt_count: u64,
}

/// Content that has come so far.
#[derive(Debug)]
struct Transfer {
    envelope: Envelope,
    chunk_ids: Vec<ChunkId>,
    parts: Vec<Part>,
    all: Vec<u8>,
    /// Pieces to come.
    left: usize,
}

fn path(n: usize) -> ForwardPath {
    ForwardPath::parse(&format!("r{n}@there.test"), false).expect("an address")
}

fn mailbox(text: &str) -> Mailbox {
    Mailbox::parse(text, false).expect("an address")
}

fn envelope(sender: &str, recipient_count: usize) -> Envelope {
    let mut envelope = Envelope::new(ReversePath::parse(sender, false).expect("an address"));
    envelope.recipients = (0..recipient_count).map(|n| Recipient::new(path(n))).collect();
    // Some have what few messages have.
    if recipient_count == 3 {
        let (original, through) = (mailbox("list@here.test"), vec![mailbox("all@here.test")]);
        envelope.recipients[1].options.get_or_insert_default().expansion =
            Some(Expansion { original, through });
        let login = Some("alice".into());
        envelope.options = DeliveryOptions { login, requiretls: true, ..DeliveryOptions::default() }.boxed();
    }
    envelope
}

/// The end of a message: each recipient that is left is delivered, fails or expires.
pub(crate) fn finished(model: &Model, id: QueueId) -> Entry {
    let outcome = |index: u32| match (id.0 * 7 + u64::from(index)) % 5 {
        0 => Outcome::failed(Enhanced(5, 1, 1), "unknown"),
        1 => Outcome::failed(Enhanced(5, 4, 7), "expired").because(Cause::Expired),
        _ => Outcome::delivered(Enhanced(2, 0, 0), "ok"),
    };
    let open = model.latest().get(&id.0).map(Live::open_recipients).unwrap_or_default();
    let results = open.into_iter().map(|index| (index, outcome(index))).collect();
    Entry::Outcome { id, results, last: true }
}

/// Returns the transaction with which an operator deletes a message.
pub(crate) fn deleted(model: &Model, id: QueueId) -> Transaction {
    let open = model.latest().get(&id.0).map(Live::open_recipients).unwrap_or_default();
    let count = Totals { deleted: open.len() as u64, ..Totals::default() };
    vec![Entry::Control { id, op: ControlOp::Delete }, Entry::Count(count)]
}

impl Workload {
    /// Creates a workload: with equal seeds and equal answers of the spool, the transactions are equal.
    pub fn new(seed: u64, is_joint: bool) -> Self {
        Self {
            rng: Rng::new(seed),
            next_id: 1,
            is_joint,
            is_slow: false,
            transfers: Vec::new(),
            is_large: false,
            attempt_count: 0,
        }
    }

    /// Large content comes piece by piece from now on.
    pub fn slow(mut self) -> Self {
        self.is_slow = true;
        self
    }

    /// Most messages are large from now on.
    pub fn large(mut self) -> Self {
        self.is_large = true;
        self
    }

    /// Abandons all transfers that are under way.
    pub fn abandon_all(&mut self, spool: &dyn Spool) {
        self.transfers.drain(..).for_each(|transfer| spool.discard_chunks(&transfer.chunk_ids));
    }

    /// Mail comes, or more of what is coming.
    pub fn offer(&mut self, spool: &dyn Spool, model: &mut Model) -> Result<(), Refused> {
        let is_piece = !self.transfers.is_empty() && self.rng.chance(40);
        if is_piece { self.go_on(spool, model) } else { self.accept(spool, model) }.map(drop)
    }

    /// Submits the delivery of the oldest message, if there is one.
    pub fn finish_one(&mut self, spool: &dyn Spool, model: &mut Model) -> Result<(), Refused> {
        let Some(id) = model.latest().keys().next().copied() else { return Ok(()) };
        let done = finished(model, QueueId(id));
        Self::submit(spool, model, vec![done]).map(drop)
    }

    /// The connections are gone, and with them what had come over them.
    pub fn hang_up(&mut self) {
        self.transfers.clear();
    }

    /// One thing a mail server does, and the commit sequence number of what it submitted.
    pub fn step(&mut self, spool: &dyn Spool, model: &mut Model) -> Result<Option<CommitSeq>, Refused> {
        if !self.transfers.is_empty() && self.rng.chance(40) {
            return self.go_on(spool, model);
        }
        let live = model.latest().len();
        let live_max = if self.is_large { usize::MAX } else { LIVE_MAX };
        let finish = if live > live_max { 60 } else { 15 };
        match self.rng.below(100) {
            n if n < finish || live == 0 && n < 30 => match self.some(model) {
                Some(id) => self.finish(spool, model, id),
                None => self.accept(spool, model),
            },
            n if n < finish + 15 => self.outcome(spool, model),
            n if n < finish + 20 => self.amend(spool, model),
            n if n < finish + 28 => self.accept_chunks(spool, model),
            _ => self.accept(spool, model),
        }
    }

    /// A message for each of several spools, as [`crate::backend::chooser`] divides them.
    pub fn one_each(&mut self, spool: &dyn Spool, model: &mut Model) -> Result<(), Refused> {
        for recipient_count in 1..=spool.shard_count() {
            let message =
                self.message(envelope("sender@here.test", recipient_count), Content::from_bytes("last\r\n"));
            model.sent(message.clone(), "last\r\n".into());
            Self::submit(spool, model, vec![Entry::Accept(message)])?;
        }
        Ok(())
    }

    /// A message that comes and goes, through each of several spools; `step` does what their threads do.
    pub fn pass_through(
        &mut self,
        spool: &dyn Spool,
        model: &mut Model,
        step: &dyn Fn(),
    ) -> Result<(), Refused> {
        for recipient_count in 1..=spool.shard_count() {
            let bytes = self.bytes(4000);
            let content = Content::from_bytes(bytes.clone());
            let message = self.message(envelope("sender@here.test", recipient_count), content);
            let id = message.id;
            model.sent(message.clone(), bytes);
            Self::submit(spool, model, vec![Entry::Accept(message)])?;
            step();
            let done = finished(model, id);
            Self::submit(spool, model, vec![done])?;
            step();
        }
        Ok(())
    }

    fn some(&mut self, model: &Model) -> Option<QueueId> {
        let count = model.latest().len();
        // The oldest often stays: it has to be moved out of segments that are used again.
        let skip = usize::from(self.rng.chance(70));
        if count <= skip {
            return None;
        }
        let at = skip + self.rng.index(count - skip);
        model.latest().keys().nth(at).map(|id| QueueId(*id))
    }

    fn submit(
        spool: &dyn Spool,
        model: &mut Model,
        transaction: Transaction,
    ) -> Result<Option<CommitSeq>, Refused> {
        let commit_seq = spool.submit(transaction.clone())?;
        model.submitted(spool.shard(commit_seq), commit_seq, transaction);
        Ok(Some(commit_seq))
    }

    fn bytes(&mut self, count: usize) -> Bytes {
        let mut rng = self.rng.fork();
        (0..count).map(|_| b'a' + rng.below(26) as u8).collect()
    }

    fn envelope(&mut self, sender: &str) -> Envelope {
        envelope(sender, if self.rng.chance(5) { 40 } else { 1 + self.rng.index(3) })
    }

    fn message(&mut self, envelope: Envelope, content: Content) -> SharedMessage {
        let id = self.next_id;
        self.next_id += 1;
        SharedMessage::new(Message {
            id: QueueId(id),
            arrived: UnixMillis(id * 1000),
            origin: "here.test".into(),
            envelope,
            content,
        })
    }

    fn mail(&mut self, model: &mut Model, sender: &str, size_bytes: usize) -> Entry {
        let bytes = self.bytes(size_bytes);
        let envelope = self.envelope(sender);
        let message = self.message(envelope, Content::from_bytes(bytes.clone()));
        model.sent(message.clone(), bytes);
        Entry::Accept(message)
    }

    fn accept(&mut self, spool: &dyn Spool, model: &mut Model) -> Result<Option<CommitSeq>, Refused> {
        let size_bytes = match self.rng.below(200) {
            1.. if self.is_large => self.rng.index(30_000),
            // Some are larger than a segment.
            0 => self.rng.index(70_000),
            1..30 => self.rng.index(9000),
            _ => self.rng.index(900),
        };
        let count = if self.rng.chance(10) { 2 } else { 1 };
        let entries = (0..count).map(|_| self.mail(model, "sender@here.test", size_bytes)).collect();
        Self::submit(spool, model, entries)
    }

    /// Content that came in pieces; now and then its sender goes away before the end.
    fn accept_chunks(&mut self, spool: &dyn Spool, model: &mut Model) -> Result<Option<CommitSeq>, Refused> {
        if self.is_slow {
            let (envelope, left) = (self.envelope("sender@here.test"), 1 + self.rng.index(4));
            let (chunk_ids, parts, all) = (Vec::new(), Vec::new(), Vec::new());
            self.transfers.push(Transfer { envelope, chunk_ids, parts, all, left });
            return self.go_on(spool, model);
        }
        let (mut parts, mut chunk_ids, mut all) = (Vec::new(), Vec::new(), Vec::new());
        let envelope = self.envelope("sender@here.test");
        for _ in 0..1 + self.rng.index(3) {
            let size_bytes = 1 + self.rng.index(5000);
            let bytes = self.bytes(size_bytes);
            all.extend_from_slice(&bytes);
            let chunk_id =
                spool.store_for(&envelope, bytes).inspect_err(|_| spool.discard_chunks(&chunk_ids))?;
            chunk_ids.push(chunk_id);
            parts.push(Part::Stored { chunk_id, length_bytes: size_bytes as u32 });
        }
        if self.rng.chance(20) {
            spool.discard_chunks(&chunk_ids);
            return Ok(None);
        }
        let tail = self.bytes(50);
        all.extend_from_slice(&tail);
        parts.push(Part::Memory(tail));
        let message = self.message(envelope, Content::new(ContentTraits::default(), parts));
        model.sent(message.clone(), all.into());
        Self::submit(spool, model, vec![Entry::Accept(message)])
    }

    /// The next piece of some content, or its end.
    fn go_on(&mut self, spool: &dyn Spool, model: &mut Model) -> Result<Option<CommitSeq>, Refused> {
        let mut transfer = self.transfers.swap_remove(self.rng.index(self.transfers.len()));
        if self.rng.chance(5) {
            spool.discard_chunks(&transfer.chunk_ids);
            return Ok(None);
        }
        let size_bytes = 1 + self.rng.index(5000);
        let bytes = self.bytes(size_bytes);
        transfer.all.extend_from_slice(&bytes);
        if transfer.left > 0 {
            transfer.left -= 1;
            let stored = spool.store_for(&transfer.envelope, bytes);
            let chunk_id = stored.inspect_err(|_| spool.discard_chunks(&transfer.chunk_ids))?;
            transfer.chunk_ids.push(chunk_id);
            transfer.parts.push(Part::Stored { chunk_id, length_bytes: size_bytes as u32 });
            self.transfers.push(transfer);
            return Ok(None);
        }
        transfer.parts.push(Part::Memory(bytes));
        let message = self.message(transfer.envelope, Content::new(ContentTraits::default(), transfer.parts));
        model.sent(message.clone(), transfer.all.into());
        let submitted = Self::submit(spool, model, vec![Entry::Accept(message)]);
        submitted.inspect_err(|_| spool.discard_chunks(&transfer.chunk_ids))
    }

    fn outcome(&mut self, spool: &dyn Spool, model: &mut Model) -> Result<Option<CommitSeq>, Refused> {
        let Some(id) = self.some(model) else { return Ok(None) };
        let open = model.latest()[&id.0].open_recipients();
        let mut results = Vec::new();
        for index in open {
            // No two say the same.
            self.attempt_count += 1;
            let attempt = self.attempt_count;
            match self.rng.below(4) {
                0 => results.push((index, Outcome::delivered(Enhanced(2, 0, 0), "ok"))),
                1 => {}
                _ => {
                    // Long enough that an append is torn in the middle.
                    let padding = if self.is_joint { self.rng.index(600) } else { 0 };
                    let text = format!("busy {attempt}{}", "!".repeat(padding));
                    results.push((index, Outcome::deferred(Enhanced(4, 2, 1), text)));
                }
            }
        }
        let mut entries = vec![Entry::Outcome { id, results, last: false }];
        if self.is_joint && self.rng.chance(40) {
            let size_bytes = self.rng.index(1500);
            entries.push(match self.some(model) {
                Some(other) if other != id && self.rng.chance(50) => {
                    Entry::Control { id: other, op: ControlOp::Hold("by root: a drill".into()) }
                }
                _ => self.mail(model, "", size_bytes),
            });
        }
        Self::submit(spool, model, entries)
    }

    /// Delivered, or failed with a report to the sender; never the one without the other.
    fn finish(
        &mut self,
        spool: &dyn Spool,
        model: &mut Model,
        id: QueueId,
    ) -> Result<Option<CommitSeq>, Refused> {
        let mut entries = vec![finished(model, id)];
        match self.rng.below(10) {
            0..3 => {
                let size_bytes = self.rng.index(1500);
                entries.push(self.mail(model, "", size_bytes));
            }
            3 => entries = deleted(model, id),
            _ => {}
        }
        Self::submit(spool, model, entries)
    }

    fn amend(&mut self, spool: &dyn Spool, model: &mut Model) -> Result<Option<CommitSeq>, Refused> {
        let Some(id) = self.some(model) else { return Ok(None) };
        let change = if self.rng.chance(50) { ControlOp::Hold("by root".into()) } else { ControlOp::Release };
        Self::submit(spool, model, vec![Entry::Control { id, op: change }])
    }
}
