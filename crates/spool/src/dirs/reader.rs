//! Queue directories that are read and never changed.

use super::{DirSettings, Placement, QueueDirectory, queues::Queues, recover, shared::Shared};
use crate::{Recovered, RecoveryReport, SpoolFailure, mutant::ActiveMutant};
use bytes::Bytes;
use mail::{ChunkId, QueueId, SharedMessage};

/// Queue directories with everything in place, and nothing started or changed.
pub(crate) struct DirReader(Shared);

impl DirReader {
    /// Passes on each live message.
    pub(crate) fn open(
        queues: Vec<QueueDirectory>,
        visit: &mut dyn FnMut(Recovered),
    ) -> Result<(Self, RecoveryReport), SpoolFailure> {
        let queues = Queues::new(queues, Placement::default())?;
        let shared = Shared::new(DirSettings::default(), queues, ActiveMutant::default());
        let report = recover::inspect(&shared, visit)?;
        Ok((Self(shared), report))
    }

    pub(crate) fn read(&self, id: QueueId) -> Result<SharedMessage, SpoolFailure> {
        self.0.read(id).map(SharedMessage::new)
    }

    pub(crate) fn load(&self, chunk_id: ChunkId) -> Result<Bytes, SpoolFailure> {
        self.0.load(chunk_id)
    }
}
