//! Collects a message's content as it arrives: in memory while small, in the spool when not. The header stays in
//! memory and is a part of its own.

use crate::{Budget, Service, Settings, StoreError, trace::Received};
use bytes::Bytes;
use mail::{Envelope, Part, QueueId, ReceivedContent, content::chunk_ids, header::ContentScanner};
use smtp::server::replies;
use std::sync::Arc;

/// Pieces that go to the spool when memory is short.
const SMALL_CHUNK_BYTES: usize = 16 * 1024;

/// Longest header that is kept when memory is short.
const SMALL_HEADER_BYTES: usize = 64 * 1024;

/// The content of a message that arrives. Dropped before [`ContentReceiver::finish`], it gives back what it took.
pub(crate) struct ContentReceiver<S: Service> {
    pub(crate) id: QueueId,
    /// Content that is not in `parts` yet.
    buffer: Vec<u8>,
    /// The header, once it was cut from the buffer, and chunks in the spool.
    parts: Vec<Part>,
    /// Waits until the spool has room for it; no further input is read.
    pending: Option<Bytes>,
    scanner: ContentScanner,
    /// The trace field, at the front of the header.
    trace_bytes: usize,
    /// The service has seen the header, or need not see it.
    is_header_judged: bool,
    budget: Arc<Budget>,
    service: Arc<S>,
    /// Octets that the budget counts for this message, to be given back.
    counted_bytes: usize,
}

impl<S: Service> ContentReceiver<S> {
    /// Begins with the trace header.
    pub(crate) fn begin(received: &Received<'_>, budget: &Arc<Budget>, service: &Arc<S>) -> Self {
        let mut buffer = Vec::with_capacity(2048);
        received.write_to(&mut buffer);
        Self {
            id: received.id,
            trace_bytes: buffer.len(),
            buffer,
            parts: Vec::new(),
            pending: None,
            scanner: ContentScanner::default(),
            is_header_judged: false,
            budget: budget.clone(),
            service: service.clone(),
            counted_bytes: 0,
        }
    }

    /// Appends octets in memory. [`ContentReceiver::store`] has to follow.
    ///
    /// # Errors
    /// The refusal of the message.
    pub(crate) fn append(&mut self, bytes: &[u8], settings: &Settings) -> Result<(), StoreError> {
        debug_assert!(self.pending.is_none(), "the disk is behind");
        self.scanner.scan(bytes);
        settings.limits.check_header(&self.scanner).map_err(StoreError::Refused)?;
        self.buffer.extend_from_slice(bytes);
        self.count();
        Ok(())
    }

    /// Hands a full buffer to the spool. A header stays in memory.
    ///
    /// # Errors
    /// A refusal of the message; or the disk is behind, and [`ContentReceiver::retry_store`] has to follow.
    pub(crate) fn store(
        &mut self,
        context: &S::Context,
        envelope: &Envelope,
        settings: &Settings,
    ) -> Result<(), StoreError> {
        let is_short = self.budget.content_bytes() > settings.memory_bytes;
        let limit = if is_short { SMALL_CHUNK_BYTES.min(settings.chunk_bytes) } else { settings.chunk_bytes };
        if self.buffer.len() <= limit {
            return Ok(());
        }
        if !self.scanner.has_whole_header() {
            let is_large = is_short && self.buffer.len() > SMALL_HEADER_BYTES;
            return if is_large { Err(StoreError::Refused(replies::NO_ROOM)) } else { Ok(()) };
        }
        let mut chunk = Bytes::from(std::mem::take(&mut self.buffer));
        if self.parts.is_empty() {
            // A copy, so that the header does not keep the memory of the chunk.
            let header = Bytes::copy_from_slice(&chunk.split_to(self.header_bytes()));
            self.parts.push(Part::Memory(header));
        }
        self.pending = Some(chunk).filter(|chunk| !chunk.is_empty());
        self.retry_store(context, envelope)
    }

    /// Offers the spool the piece it had no room for, if there is one.
    ///
    /// # Errors
    /// As for [`ContentReceiver::store`].
    pub(crate) fn retry_store(
        &mut self,
        context: &S::Context,
        envelope: &Envelope,
    ) -> Result<(), StoreError> {
        if let Some(chunk) = &self.pending {
            let length_bytes = u32::try_from(chunk.len()).expect("a chunk is far below 4 GiB");
            let chunk_id = self.service.store(context, envelope, chunk.clone())?;
            self.pending = None;
            self.parts.push(Part::Stored { chunk_id, length_bytes });
        }
        self.count();
        Ok(())
    }

    /// The header's length with the trace field, once the header is complete.
    fn header_bytes(&self) -> usize {
        self.trace_bytes + self.scanner.final_header_bytes()
    }

    /// Tells the budget what is in memory.
    fn count(&mut self) {
        let pending_bytes = self.pending.as_ref().map_or(0, Bytes::len);
        let header_bytes = if self.parts.is_empty() { 0 } else { self.header_bytes() };
        let bytes = self.buffer.len() + pending_bytes + header_bytes;
        self.budget.add_content(bytes);
        self.budget.release_content(self.counted_bytes);
        self.counted_bytes = bytes;
    }

    /// Returns whether the service must judge the header now: once, when the header is complete or the content ends without
    /// an empty line.
    pub(crate) fn has_unjudged_header(&self, is_end: bool) -> bool {
        !self.is_header_judged && (is_end || self.scanner.has_whole_header())
    }

    /// Returns the header as the client sent it, and notes that the service has seen it.
    pub(crate) fn take_unjudged_header(&mut self) -> &[u8] {
        self.is_header_judged = true;
        &self.buffer[self.trace_bytes..self.header_bytes()]
    }

    /// Returns whether the end of the header has come.
    pub(crate) fn has_whole_header(&self) -> bool {
        self.scanner.has_whole_header()
    }

    /// The beginning of the body, before anything was handed to the spool.
    pub(crate) fn first_body(&self) -> &[u8] {
        &self.buffer[self.header_bytes()..]
    }

    /// The whole content. An empty line ends the header: the trace field must not run into a body without one. The
    /// budget is notified when the permit is dropped.
    pub(crate) fn finish(mut self) -> (ReceivedContent, MemoryPermit) {
        let buffer = std::mem::take(&mut self.buffer);
        if !buffer.is_empty() {
            self.parts.push(Part::Memory(buffer.into()));
        }
        let permit =
            MemoryPermit { budget: self.budget.clone(), bytes: std::mem::take(&mut self.counted_bytes) };
        let parts = std::mem::take(&mut self.parts);
        let mut content = ReceivedContent::scanned(&self.scanner, self.trace_bytes, parts);
        content.separate_body();
        (content, permit)
    }
}

impl<S: Service> Drop for ContentReceiver<S> {
    fn drop(&mut self) {
        self.budget.release_content(self.counted_bytes);
        let chunk_ids = chunk_ids(&self.parts);
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
