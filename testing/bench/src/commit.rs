//! The log's way from a submitted message to a durable one.

use crate::{memory::MemoryDisk, session::content};
use mail::{
    Content, Enhanced, Envelope, ForwardPath, Message, Origin, Outcome, QueueId, Recipient, ReversePath,
    SharedMessage, TransmissionType, UnixMillis,
};
use spool::{CommitSeq, Entry, LogSettings, LogSpool, Spool as _, Transaction, WorkStep};
use std::{net::Ipv4Addr, sync::Arc};

/// Messages of one commit.
const BATCH: u64 = 20;

/// The log on a disk in memory. [`Log`] has no threads: callers make its steps.
pub struct Log(LogSpool);

impl Default for Log {
    fn default() -> Self {
        let settings = LogSettings { segment_bytes: 4 << 20, ..LogSettings::default() };
        let disk = Arc::new(MemoryDisk::default());
        let mut log = LogSpool::single_stepped(disk, settings).expect("memory does not fail");
        log.recover(&mut |_| {}).expect("memory does not fail");
        Self(log)
    }
}

impl Log {
    /// Submits an entry as a transaction of its own.
    pub fn submit(&self, entry: Entry) -> CommitSeq {
        self.0.submit(vec![entry]).expect("there is room")
    }

    /// Submits several entries as one transaction.
    pub fn submit_all(&self, transaction: Transaction) -> CommitSeq {
        self.0.submit(transaction).expect("there is room")
    }

    /// Makes it durable.
    pub fn commit(&self, last: CommitSeq) {
        while self.0.step(WorkStep::Prepare) {}
        assert!(self.0.step(WorkStep::Commit));
        assert!(matches!(self.0.poll_durable(last), Some(Ok(()))));
    }
}

/// The outcome that ends a message with one recipient.
pub fn end(id: QueueId) -> Entry {
    let delivered = Outcome::delivered(Enhanced(2, 0, 0), "250 2.0.0 Ok");
    Entry::Outcome { id, results: vec![(0, delivered)], last: true }
}

/// Returns a message of 1 KiB with one recipient.
pub fn message(id: QueueId, content: &Content) -> SharedMessage {
    let mut envelope = Envelope::new(ReversePath::parse("sender@source.test", false).expect("a path"));
    let path = ForwardPath::parse("recipient@sink.test", false).expect("a path");
    envelope.recipients.push(Recipient::new(path));
    let origin = Origin::smtp(Ipv4Addr::LOCALHOST.into(), "source.test", TransmissionType::Esmtp);
    SharedMessage::new(Message { id, arrived: UnixMillis(1), origin, envelope, content: content.clone() })
}

/// So many messages, in commits of several; the outcomes of each ride with the next.
pub fn run(count: u64) {
    let (log, content) = (Log::default(), Content::from_bytes(content()));
    for number in 1..=count {
        let commit_seq = log.submit(Entry::Accept(message(QueueId(number), &content)));
        if number % BATCH == 0 {
            log.commit(commit_seq);
            for ended in number - BATCH + 1..=number {
                log.submit(end(QueueId(ended)));
            }
        }
    }
}
