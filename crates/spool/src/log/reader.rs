//! A log that is read and never changed.

use super::{LogSettings, LogSpool, Shared, read::Source, recover, recover::Reading};
use crate::{Recovered, RecoveryReport, SpoolFailure, disk::RealDisk, mutant::ActiveMutant};
use bytes::Bytes;
use mail::{ChunkId, QueueId, SharedMessage};
use std::sync::Arc;

/// A log with everything in place and nothing started.
pub(crate) struct LogReader(Shared);

impl LogReader {
    /// Passes on each live message. With `indexes`, what is known of sealed segments is believed.
    pub(crate) fn open(
        disk: RealDisk,
        indexes: bool,
        visit: &mut dyn FnMut(Recovered),
    ) -> Result<(Self, RecoveryReport), SpoolFailure> {
        let settings = LogSettings::default();
        let reading = Reading { indexes, ..Reading::on(settings.read_threads) };
        let mut found = recover::scan(&disk, ActiveMutant::default(), reading)?;
        recover::settle_last(&mut found);
        found.index.forget_orphans();
        let shared = LogSpool::shared(Arc::new(disk), settings, ActiveMutant::default(), false, &mut found);
        shared.replay_with_totals(&mut found, visit);
        Ok((Self(shared), found.report))
    }

    pub(crate) fn read(&self, id: QueueId) -> Result<SharedMessage, SpoolFailure> {
        self.0.message(Source::Disk, id)
    }

    pub(crate) fn load(&self, chunk_id: ChunkId) -> Result<Bytes, SpoolFailure> {
        self.0.chunk(Source::Disk, chunk_id)
    }
}
