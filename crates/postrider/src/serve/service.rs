//! The daemon's answers to the inbound crate's questions.

#[cfg(test)]
mod tests;

use super::{
    active::{ActiveCount, ActiveGuard},
    driver::Driver,
    wiring::CHUNK_BYTES,
};
use crate::{control::Refusal, own_address};
use bytes::Bytes;
use inbound::{Client, Service, StoreError};
use mail::{ChunkId, Content, Envelope, Message, Part, QueueId, Recipient, Reply, SharedMessage, UnixMillis};
use smtp::server::replies;
use spool::{CommitSeq, Entry, Refused, SpoolFailure};
use std::{
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::time::timeout;

/// A disk that is behind is asked again after this.
const BEHIND: Duration = Duration::from_millis(5);

/// A client waits so long for a commit that waits for room on the disk.
const ROOM_PATIENCE: Duration = Duration::from_secs(2);

/// Policy, spool and queue as a session sees them.
pub(crate) struct Acceptor {
    pub(crate) driver: Arc<Driver>,
    /// Messages whose clients were told to try again and that may still be stored.
    late: ActiveCount,
}

impl Acceptor {
    pub(crate) fn new(driver: Arc<Driver>) -> Self {
        Self { driver, late: ActiveCount::default() }
    }

    fn patience(&self) -> Duration {
        self.driver.current().settings.spool.commit_timeout
    }

    /// Nobody waits for it any more. Until it is told apart from the others, mail is refused.
    fn late(&self, id: QueueId) -> ActiveGuard {
        tracing::warn!("{id}: the disk does not say that it is stored: its sender is told to try again");
        let late = self.late.guard();
        if self.late.count() == 1 {
            tracing::error!("the disk has not answered for {:?}: no mail is taken", self.patience());
        }
        late
    }

    /// A message that is stored after all is ours, and its client does not know it: better delivered
    /// twice than lost.
    fn finish_late(&self, commit_seq: CommitSeq, message: SharedMessage) {
        let (driver, late) = (self.driver.clone(), self.late(message.id));
        let durable = driver.spool.durable(commit_seq);
        tokio::spawn(async move {
            match durable.await {
                Ok(()) => {
                    tracing::warn!("{}: stored after its sender was told to try again", message.id);
                    driver.accept(message);
                }
                Err(failure) => driver.spool_failed(&failure),
            }
            drop(late);
        });
    }

    /// Takes a message from this machine, durably.
    pub(crate) async fn accept_local(&self, mut message: Message) -> Result<QueueId, Refusal> {
        self.driver.current().name_postmaster_and_root(&mut message.envelope);
        if let Err(reply) = self.room() {
            return Err(Refusal::temporary(reply.to_string()));
        }
        message.content = self.in_pieces(&message.envelope, message.content).await?;
        let (id, driver) = (message.id, self.driver.clone());
        let mut stored = tokio::spawn(async move { driver.accept_own(message).await.is_ok() });
        match timeout(self.patience(), &mut stored).await {
            Ok(Ok(true)) => Ok(id),
            Ok(_) => Err(Refusal::temporary(replies::LOCAL_ERROR.to_string())),
            Err(_) => {
                let late = self.late(id);
                tokio::spawn(async move {
                    let _ = stored.await;
                    drop(late);
                });
                Err(Refusal::temporary(replies::NOT_STORED_YET.to_string()))
            }
        }
    }

    /// Large content goes ahead of its message, as it does from a session.
    async fn in_pieces(&self, envelope: &Envelope, content: Content) -> Result<Content, Refusal> {
        if content.size_bytes() <= CHUNK_BYTES as u64 {
            return Ok(content);
        }
        let Some(mut rest) = content.in_memory() else { return Ok(content) };
        let mut parts = Vec::new();
        while !rest.is_empty() {
            let chunk = rest.split_to(rest.len().min(CHUNK_BYTES));
            let length_bytes = chunk.len() as u32;
            match self.in_time(|| self.driver.spool.store_for(envelope, chunk.clone())).await {
                Ok(chunk_id) => parts.push(Part::Stored { chunk_id, length_bytes }),
                Err(refused) => {
                    self.forget(&parts);
                    return Err(Refusal::temporary(Self::refusal(refused).to_string()));
                }
            }
        }
        Ok(Content::new(content.traits, parts))
    }

    /// Of a message that was given up: pieces that nobody names would lie there until the next start.
    fn forget(&self, parts: &[Part]) {
        let chunk_ids: Vec<ChunkId> = parts.iter().filter_map(Part::chunk_id).collect();
        if !chunk_ids.is_empty() {
            self.driver.spool.discard_chunks(&chunk_ids);
        }
    }

    /// Hands something to the spool; a disk that is behind is waited for, but not for ever.
    async fn in_time<T>(&self, mut offer: impl FnMut() -> Result<T, Refused>) -> Result<T, Refused> {
        let until = Instant::now() + self.patience();
        loop {
            match offer() {
                Err(Refused::Busy) if Instant::now() < until => tokio::time::sleep(BEHIND).await,
                answer => return answer,
            }
        }
    }

    /// Waits for the commit of a message. Returns the reply for a client that need not wait any longer.
    async fn stored(&self, commit_seq: CommitSeq) -> Result<Result<(), SpoolFailure>, Reply> {
        let until = Instant::now() + self.patience();
        let mut durable = pin!(self.driver.durable(commit_seq));
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if let Ok(stored) = timeout(left.min(ROOM_PATIENCE), durable.as_mut()).await {
                return Ok(stored);
            }
            if self.driver.spool.pressure().awaits_room {
                return Err(replies::NO_ROOM);
            }
            if Instant::now() >= until {
                return Err(replies::NOT_STORED_YET);
            }
        }
    }

    /// Is there room for one more?
    fn room(&self) -> Result<(), Reply> {
        let pressure = self.driver.spool.pressure();
        if pressure.poisoned {
            return Err(replies::LOCAL_ERROR);
        }
        let is_full = pressure.free_bytes == 0;
        let is_many = pressure.message_count >= self.driver.current().settings.queue.max_messages as u64;
        if is_full || is_many {
            // A full disk may be why others are late.
            Err(replies::NO_ROOM)
        } else if self.late.count() > 0 {
            Err(replies::SPOOL_BUSY)
        } else {
            Ok(())
        }
    }

    fn refusal(refused: Refused) -> Reply {
        match refused {
            Refused::Busy => replies::SPOOL_BUSY,
            Refused::Full => replies::NO_ROOM,
            Refused::Poisoned => replies::LOCAL_ERROR,
        }
    }
}

impl Service for Acceptor {
    fn client(&self, _client: &Client) -> Result<(), Reply> {
        if self.driver.spool.pressure().poisoned { Err(replies::LOCAL_ERROR_CLOSING) } else { Ok(()) }
    }

    fn is_trusted(&self, client: &Client) -> bool {
        self.driver.current().policy.may_relay(client.peer.ip())
    }

    fn sender(&self, _client: &Client, _envelope: &Envelope) -> Reply {
        match self.room() {
            Ok(()) => replies::SENDER_OK,
            Err(reply) => reply,
        }
    }

    fn recipient(&self, client: &Client, _envelope: &Envelope, recipient: &Recipient) -> Reply {
        let current = self.driver.current();
        let own = own_address::resolve(&recipient.path, &current.settings, Some(client.local.ip()));
        let path = own.as_ref().unwrap_or(&recipient.path);
        let verdict = current.policy.recipient(client.peer.ip(), path);
        match verdict.and_then(|()| current.is_deliverable(path)) {
            Ok(()) => replies::RECIPIENT_OK,
            Err(reply) => reply,
        }
    }

    fn next_id(&self) -> QueueId {
        self.driver.ids.next(UnixMillis::now().0)
    }

    fn store(&self, envelope: &Envelope, chunk: Bytes) -> Result<ChunkId, StoreError> {
        self.driver.spool.store_for(envelope, chunk).map_err(|refused| match refused {
            Refused::Busy => StoreError::Busy,
            refused => StoreError::Refused(Self::refusal(refused)),
        })
    }

    async fn wait_for_space(&self) {
        tokio::time::sleep(BEHIND).await;
    }

    fn discard_chunks(&self, chunk_ids: &[ChunkId]) {
        self.driver.spool.discard_chunks(chunk_ids);
    }

    async fn commit(&self, client: &Client, mut message: Message) -> Reply {
        self.driver.current().name_postmaster(&mut message.envelope, client.local.ip());
        let message = SharedMessage::new(message);
        let (id, size_bytes, begun) = (message.id.0, message.content.size_bytes(), Instant::now());
        probe::probe!(postrider, queue_create_start, id);
        let accept = || self.driver.spool.submit(vec![Entry::Accept(message.clone())]);
        let commit_seq = match self.in_time(accept).await {
            Ok(commit_seq) => commit_seq,
            Err(refused) => {
                self.forget(message.content.parts());
                if refused == Refused::Poisoned {
                    self.driver.failed.notify_one();
                }
                return Self::refusal(refused);
            }
        };
        match self.stored(commit_seq).await {
            Ok(Ok(())) => {}
            Ok(Err(failure)) => {
                self.driver.spool_failed(&failure);
                return replies::LOCAL_ERROR;
            }
            Err(reply) => {
                self.finish_late(commit_seq, message);
                return reply;
            }
        }
        probe::probe!(postrider, queue_create_done, id);
        self.driver.accept_latency.record(begun.elapsed());
        let queued_as = message.id;
        self.driver.accept(message);
        probe::probe!(postrider, message_accepted, id, size_bytes);
        Reply::new(250, mail::Enhanced(2, 0, 0), format!("Ok: queued as {queued_as}"))
    }

    fn log_reject(&self, client: &Client, stage: &'static str, envelope: Option<&Envelope>, reply: &Reply) {
        self.driver.delivery_log.rejected(client, stage, envelope, reply);
    }
}
