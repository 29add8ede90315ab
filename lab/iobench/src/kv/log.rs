//! Our own log: each record is a message with one recipient, as the daemon accepts it. Segments are ready before the
//! first record, as they are in a daemon that runs; those that follow are prepared meanwhile.

use super::backend::{Backend, Options, StepFactory};
use crate::message_factory::{MessageFactory, delivered};
use mail::{Content, QueueId};
use spool::{CommitSeq, Entry, LogSettings, LogSpool, Refused, Spool};
use std::{ops::Range, path::Path};
use tokio::runtime::Runtime;

pub(super) const MAKER: StepFactory = StepFactory {
    name: "log",
    durability: "synced after each group, envelope included, segments ready",
    has_own_log: false,
    open,
};

/// A transaction must fit into a batch of the log, and its records have headers.
const TRANSACTION_BYTES: usize = 1 << 20;
const OVERHEAD_BYTES: usize = 256;

struct Log {
    spool: LogSpool,
    runtime: Runtime,
    mint: MessageFactory,
    /// Since the last checkpoint.
    live: Vec<QueueId>,
}

fn open(path: &Path, _: &Options<'_>) -> Result<Box<dyn Backend>, String> {
    let settings = LogSettings { min_free_bytes: 0, ..LogSettings::default() };
    let mut spool = LogSpool::open(path, settings).map_err(|e| e.to_string())?;
    spool.recover(&mut |_| {}).map_err(|e| e.to_string())?;
    spool.make_segments_ready();
    let runtime = tokio::runtime::Builder::new_current_thread().build().map_err(|e| e.to_string())?;
    Ok(Box::new(Log { spool, runtime, mint: MessageFactory::new()?, live: Vec::new() }))
}

impl Log {
    fn accept(&mut self, value: &Content) -> Entry {
        let message = self.mint.message(value.clone());
        self.live.push(message.id);
        Entry::Accept(message)
    }

    /// A group is one transaction, or several where it is large. What has no room in the commit queue waits for
    /// what is there.
    fn submit(&self, entries: &[Entry], last: &mut Option<CommitSeq>) -> Result<(), String> {
        loop {
            match self.spool.submit(entries.to_vec()) {
                Ok(commit_seq) => {
                    *last = Some(commit_seq);
                    return Ok(());
                }
                Err(Refused::Busy) => self.wait(*last)?,
                Err(refused) => return Err(refused.to_string()),
            }
        }
    }

    fn submit_all(&self, mut entries: Vec<Entry>, each: usize) -> Result<(), String> {
        let (count, mut last) = ((TRANSACTION_BYTES / each.max(1)).max(1), None);
        while !entries.is_empty() {
            let rest = entries.split_off(count.min(entries.len()));
            self.submit(&std::mem::replace(&mut entries, rest), &mut last)?;
        }
        self.wait(last)
    }

    fn wait(&self, commit_seq: Option<CommitSeq>) -> Result<(), String> {
        let Some(commit_seq) = commit_seq else { return Ok(()) };
        self.runtime.block_on(self.spool.durable(commit_seq)).map_err(|e| e.to_string())
    }
}

impl Backend for Log {
    fn put(&mut self, keys: Range<u32>, value: &[u8]) -> Result<(), String> {
        let content = Content::from_bytes(value.to_vec());
        let entries = keys.map(|_| self.accept(&content)).collect();
        self.submit_all(entries, value.len() + OVERHEAD_BYTES)
    }

    /// Delivered messages free their segments.
    fn checkpoint(&mut self) -> Result<(), String> {
        let entries = std::mem::take(&mut self.live).into_iter().map(delivered).collect();
        self.submit_all(entries, OVERHEAD_BYTES)
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.spool.close();
    }
}
