//! Puts whole messages into a spool that a command has opened.

use accept::CHUNK_BYTES;
use bytes::Bytes;
use mail::{ChunkId, Content, Envelope, Message, Part, header::ContentScanner};
use spool::{CommitSeq, Entry, RecipientState, Recovered, Refused, Spool, SpoolFailure, Totals};
use std::time::Duration;
use tokio::runtime::Runtime;

/// A disk that is behind is asked again after this.
const BEHIND: Duration = Duration::from_millis(5);

/// A message to be written, without its content.
pub struct NewMessage {
    /// Envelope and origin.
    pub message: Message,
    /// Parallel to the envelope's recipients.
    pub recipients: Vec<RecipientState>,
    /// Why it is held, if it is.
    pub held: Option<Box<str>>,
    /// Added to the totals of the spool in the same transaction.
    pub counts: Option<Totals>,
}

/// A recovered spool, and the last transaction that it has taken.
pub struct SpoolWriter<'a> {
    spool: &'a dyn Spool,
    runtime: &'a Runtime,
    last: Option<CommitSeq>,
}

impl<'a> SpoolWriter<'a> {
    /// Returns a writer to a spool that is recovered; `runtime` waits for it.
    pub fn new(spool: &'a dyn Spool, runtime: &'a Runtime) -> Self {
        Self { spool, runtime, last: None }
    }

    /// Hands a message over. It is durable after [`SpoolWriter::wait`].
    ///
    /// # Errors
    /// The spool has failed, or has no room.
    pub fn import(&mut self, new: NewMessage, content: Vec<u8>) -> Result<(), SpoolFailure> {
        let NewMessage { message, recipients, held, counts } = new;
        let mut chunk_ids = Vec::new();
        let content = self.content(content, &message.envelope, &mut chunk_ids)?;
        let message = Message { content, ..message }.into();
        let import = Entry::Import(Box::new(Recovered { message, recipients, held }));
        let transaction: Vec<Entry> = std::iter::once(import).chain(counts.map(Entry::Count)).collect();
        match self.until_room(&mut |spool| spool.submit(transaction.clone())) {
            Ok(commit_seq) => {
                self.last = Some(commit_seq);
                Ok(())
            }
            Err(failure) => {
                self.spool.discard_chunks(&chunk_ids);
                Err(failure)
            }
        }
    }

    /// The header stays in memory; a long body is stored in chunks, as that of a message from a client.
    fn content(
        &mut self,
        bytes: Vec<u8>,
        envelope: &Envelope,
        chunk_ids: &mut Vec<ChunkId>,
    ) -> Result<Content, SpoolFailure> {
        let bytes = Bytes::from(bytes);
        let mut scanner = ContentScanner::default();
        scanner.scan(&bytes);
        let header_bytes = scanner.final_header_bytes().min(bytes.len());
        if bytes.len() - header_bytes <= CHUNK_BYTES {
            return Ok(Content::from_bytes(bytes));
        }
        let mut parts = vec![Part::Memory(bytes.slice(..header_bytes))];
        let mut at = header_bytes;
        while at < bytes.len() {
            let chunk = bytes.slice(at..bytes.len().min(at + CHUNK_BYTES));
            at += chunk.len();
            let length_bytes = u32::try_from(chunk.len()).expect("a chunk has at most 256 KiB");
            let chunk_id = self.until_room(&mut |spool| spool.store_for(envelope, chunk.clone()))?;
            chunk_ids.push(chunk_id);
            parts.push(Part::Stored { chunk_id, length_bytes });
        }
        Ok(Content::new(scanner.traits(), parts))
    }

    /// Offers something to the spool until the spool has room for it.
    fn until_room<T>(
        &mut self,
        offer: &mut dyn FnMut(&dyn Spool) -> Result<T, Refused>,
    ) -> Result<T, SpoolFailure> {
        loop {
            match offer(self.spool) {
                Ok(done) => return Ok(done),
                Err(Refused::Busy) if self.last.is_some() => self.wait()?,
                Err(Refused::Busy) => std::thread::sleep(BEHIND),
                Err(refused) => return Err(SpoolFailure::Io(refused.to_string())),
            }
        }
    }

    /// Waits until everything that was handed over is durable.
    ///
    /// # Errors
    /// The spool has failed.
    pub fn wait(&mut self) -> Result<(), SpoolFailure> {
        self.last.take().map_or(Ok(()), |commit_seq| self.runtime.block_on(self.spool.durable(commit_seq)))
    }
}
