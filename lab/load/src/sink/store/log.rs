//! Postrider's spool log: messages of concurrent sessions share a write and a sync.

use super::{Stored, files::now};
use bytes::Bytes;
use mail::{Content, Envelope, IdSource, Message, Origin, SharedMessage};
use spool::{DiskCallCounter, Entry, LogSettings, LogSpool, Spool as _, disk::RealDisk};
use std::{path::Path, sync::Arc};

/// A store in the log of the spool: concurrent sessions share a write and a sync.
pub(crate) struct Log {
    spool: Arc<LogSpool>,
    ids: IdSource,
}

impl Log {
    /// Opens a new log.
    pub(crate) fn open(path: &Path, calls: &DiskCallCounter) -> Result<Self, String> {
        let disk = RealDisk::new(path).map_err(|e| format!("create {}: {e}", path.display()))?;
        let say = |e| format!("open the log {}: {e}", path.display());
        let mut spool =
            LogSpool::on(Arc::new(calls.count(Arc::new(disk))), LogSettings::default()).map_err(say)?;
        spool.recover(&mut |_| {}).map_err(say)?;
        Ok(Self { spool: Arc::new(spool), ids: IdSource::default() })
    }

    /// Queues a message for the next commit, and begins that commit with the first wait.
    pub(crate) fn store(&self, envelope: Envelope, content: Bytes) -> Stored {
        let arrived = now();
        let message = SharedMessage::new(Message {
            id: self.ids.next(arrived.0),
            arrived,
            origin: Origin::Other("postlab-sink".into()),
            envelope,
            content: Content::from_bytes(content),
        });
        let submitted = self.spool.submit(vec![Entry::Accept(message)]);
        let spool = self.spool.clone();
        Box::pin(async move {
            let say = |e: &dyn std::fmt::Display| format!("store a message in the log: {e}");
            let commit_seq = submitted.map_err(|e| say(&e))?;
            spool.durable(commit_seq).await.map_err(|e| say(&e))
        })
    }

    /// Returns how many commits the log has made.
    pub(crate) fn commit_count(&self) -> u64 {
        self.spool.pressure().commit_count
    }

    /// Commits what is queued, and ends.
    pub(crate) fn close(&self) {
        self.spool.close();
    }
}
