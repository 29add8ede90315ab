//! Collects a message's content as it arrives: in memory while small, in the spool when not.

use crate::{Budget, Service, Settings, StoreError, trace::Received};
use bytes::Bytes;
use mail::{ChunkId, Content, Envelope, Part, QueueId, header::ContentScanner};
use smtp::server::replies;
use std::sync::Arc;

/// Pieces that go to the spool when memory is short.
const SMALL_CHUNK_BYTES: usize = 16 * 1024;

/// The content of the message in hand. Dropped before [`ContentReceiver::finish`], it gives back what it took.
pub(crate) struct ContentReceiver<S: Service> {
    pub(crate) id: QueueId,
    buffer: Vec<u8>,
    parts: Vec<Part>,
    /// A piece the spool had no room for.
    pending: Option<Bytes>,
    scanner: ContentScanner,
    budget: Arc<Budget>,
    service: Arc<S>,
    /// What the budget was told of.
    counted_bytes: usize,
}

impl<S: Service> ContentReceiver<S> {
    /// Begins with the trace header.
    pub(crate) fn begin(received: &Received<'_>, budget: &Arc<Budget>, service: &Arc<S>) -> Self {
        let mut buffer = Vec::with_capacity(2048);
        received.write_to(&mut buffer);
        Self {
            id: received.id,
            buffer,
            parts: Vec::new(),
            pending: None,
            scanner: ContentScanner::default(),
            budget: budget.clone(),
            service: service.clone(),
            counted_bytes: 0,
        }
    }

    /// Takes the next octets. A refusal is of the message; one that is busy has taken them, and is to be
    /// asked with [`ContentReceiver::again`] before it takes more.
    pub(crate) fn append(
        &mut self,
        bytes: &[u8],
        envelope: &Envelope,
        settings: &Settings,
    ) -> Result<(), StoreError> {
        debug_assert!(self.pending.is_none(), "the disk is behind");
        self.scanner.scan(bytes);
        if self.scanner.header_bytes() > settings.limits.header_bytes {
            return Err(StoreError::Refused(replies::HEADER_TOO_LARGE));
        }
        if self.scanner.summary().received_count > settings.limits.hops {
            return Err(StoreError::Refused(replies::TOO_MANY_HOPS));
        }
        self.buffer.extend_from_slice(bytes);
        self.count(self.buffer.len());
        let short = self.budget.content_bytes() > settings.memory_bytes;
        let limit = if short { SMALL_CHUNK_BYTES.min(settings.chunk_bytes) } else { settings.chunk_bytes };
        if self.buffer.len() > limit {
            self.pending = Some(Bytes::from(std::mem::take(&mut self.buffer)));
        }
        self.retry_store(envelope)
    }

    fn count(&mut self, bytes: usize) {
        self.budget.add_content(bytes);
        self.budget.release_content(self.counted_bytes);
        self.counted_bytes = bytes;
    }

    /// Offers the spool the piece it had no room for, if there is one.
    pub(crate) fn retry_store(&mut self, envelope: &Envelope) -> Result<(), StoreError> {
        let Some(chunk) = &self.pending else { return Ok(()) };
        let length_bytes = u32::try_from(chunk.len()).expect("a chunk is far below 4 GiB");
        let chunk_id = self.service.store(envelope, chunk.clone())?;
        self.pending = None;
        self.parts.push(Part::Stored { chunk_id, length_bytes });
        self.count(0);
        Ok(())
    }

    /// The whole content. The budget is told when the message is committed, with [`MemoryPermit`].
    pub(crate) fn finish(mut self) -> (Content, MemoryPermit) {
        if !self.buffer.is_empty() {
            self.parts.push(Part::Memory(std::mem::take(&mut self.buffer).into()));
        }
        let permit =
            MemoryPermit { budget: self.budget.clone(), bytes: std::mem::take(&mut self.counted_bytes) };
        (Content::new(self.scanner.traits(), std::mem::take(&mut self.parts)), permit)
    }
}

impl<S: Service> Drop for ContentReceiver<S> {
    fn drop(&mut self) {
        self.budget.release_content(self.counted_bytes);
        let chunk_ids: Vec<ChunkId> = self
            .parts
            .iter()
            .filter_map(|part| match part {
                Part::Stored { chunk_id, .. } => Some(*chunk_id),
                Part::Memory(_) => None,
            })
            .collect();
        if !chunk_ids.is_empty() {
            self.service.discard_chunks(&chunk_ids);
        }
    }
}

/// Bytes in the budget until dropped.
pub(crate) struct MemoryPermit {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Drop for MemoryPermit {
    fn drop(&mut self) {
        self.budget.release_content(self.bytes);
    }
}
