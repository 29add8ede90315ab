//! Our own log: each record is a message with one recipient, as the daemon accepts it.

use super::engine::{Engine, Maker};
use mail::{
    Content, Enhanced, Envelope, Fate, ForwardPath, IdSource, Message, Outcome, QueueId, Recipient,
    ReversePath, SharedMessage, UnixMillis,
};
use spool::{Entry, LogSettings, LogSpool, Refused, Spool, Ticket};
use std::{ops::Range, path::Path, sync::Arc};
use tokio::runtime::Runtime;

pub(super) const MAKER: Maker =
    Maker { name: "log", durability: "synced after each group, envelope included", open };

struct Log {
    spool: LogSpool,
    runtime: Runtime,
    ids: IdSource,
    envelope: Envelope,
    /// Since the last checkpoint.
    live: Vec<QueueId>,
}

fn open(path: &Path) -> Result<Box<dyn Engine>, String> {
    let settings = LogSettings { min_free_bytes: 0, ..LogSettings::default() };
    let mut spool = LogSpool::open(path, settings).map_err(|e| e.to_string())?;
    spool.recover(&mut |_| {}).map_err(|e| e.to_string())?;
    let runtime = tokio::runtime::Builder::new_current_thread().build().map_err(|e| e.to_string())?;
    let from = ReversePath::parse("a@b.test", true).map_err(|e| e.to_string())?;
    let to = ForwardPath::parse("c@d.test", true).map_err(|e| e.to_string())?;
    let mut envelope = Envelope::new(from);
    envelope.recipients.push(Recipient::new(to));
    Ok(Box::new(Log { spool, runtime, ids: IdSource::default(), envelope, live: Vec::new() }))
}

impl Log {
    fn message(&mut self, value: &[u8]) -> SharedMessage {
        let arrived = UnixMillis::now();
        let id = self.ids.next(arrived.0);
        self.live.push(id);
        let content = Content::from_bytes(value.to_vec());
        Arc::new(Message { id, arrived, origin: "kv".into(), envelope: self.envelope.clone(), content })
    }

    /// What has no room in the commit queue waits for what is there.
    fn submit(&self, entry: &Entry, last: &mut Option<Ticket>) -> Result<(), String> {
        loop {
            match self.spool.submit(vec![entry.clone()]) {
                Ok(ticket) => {
                    *last = Some(ticket);
                    return Ok(());
                }
                Err(Refused::Busy) => self.wait(*last)?,
                Err(refused) => return Err(refused.to_string()),
            }
        }
    }

    fn wait(&self, ticket: Option<Ticket>) -> Result<(), String> {
        let Some(ticket) = ticket else { return Ok(()) };
        self.runtime.block_on(self.spool.durable(ticket)).map_err(|e| e.to_string())
    }
}

impl Engine for Log {
    fn put(&mut self, keys: Range<u32>, value: &[u8]) -> Result<(), String> {
        let mut last = None;
        for _ in keys {
            let message = self.message(value);
            self.submit(&Entry::Accept(message), &mut last)?;
        }
        self.wait(last)
    }

    /// Delivered messages free their segments.
    fn checkpoint(&mut self) -> Result<(), String> {
        let outcome = Outcome {
            fate: Fate::Delivered,
            status: Enhanced(2, 0, 0),
            text: "2.0.0 ok".into(),
            from_remote: true,
        };
        let mut last = None;
        for id in std::mem::take(&mut self.live) {
            let results = vec![(0, outcome.clone())];
            self.submit(&Entry::Outcome { id, results, last: true }, &mut last)?;
        }
        self.wait(last)
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.spool.close();
    }
}
