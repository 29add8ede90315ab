//! The daemon's answers to reception's questions.

use super::{engine::Engine, wiring};
use bytes::Bytes;
use mail::{Envelope, ForwardPath, Message, Place, QueueId, Recipient, Reply, SharedMessage, UnixMillis};
use policy::Policy;
use reception::{Client, Service};
use smtp::server::replies;
use spool::{Entry, Refused};
use std::sync::{Arc, PoisonError, RwLock};

/// Policy, spool and queue as a session sees them.
pub(crate) struct Desk {
    pub(crate) engine: Arc<Engine>,
    pub(crate) policy: RwLock<Arc<Policy>>,
}

impl Desk {
    fn policy(&self) -> Arc<Policy> {
        self.policy.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn refusal(refused: Refused) -> Reply {
        match refused {
            Refused::Busy => replies::SPOOL_BUSY,
            Refused::Full => replies::NO_ROOM,
            Refused::Poisoned => replies::LOCAL_ERROR,
        }
    }
}

impl Service for Desk {
    fn client(&self, _client: &Client) -> Result<(), Reply> {
        if self.engine.spool.pressure().poisoned { Err(replies::LOCAL_ERROR_CLOSING) } else { Ok(()) }
    }

    fn is_trusted(&self, client: &Client) -> bool {
        self.policy().may_relay(client.peer.ip())
    }

    fn sender(&self, _client: &Client, envelope: &Envelope) -> Reply {
        let pressure = self.engine.spool.pressure();
        let settings = &self.engine.current().settings;
        if pressure.poisoned {
            return replies::LOCAL_ERROR;
        }
        // A null reverse-path is a report on mail that left: it may use what is kept in reserve.
        if pressure.free_bytes == 0 && !envelope.reverse_path.is_null() {
            return replies::NO_ROOM;
        }
        if pressure.message_count >= settings.queue.max_messages as u64 {
            return replies::NO_ROOM;
        }
        replies::SENDER_OK
    }

    fn recipient(&self, client: &Client, envelope: &Envelope, recipient: &Recipient) -> Reply {
        match self.policy().recipient(&wiring::policy_client(client), &envelope.reverse_path, &recipient.path) {
            Ok(()) => replies::RECIPIENT_OK,
            Err(reply) => reply,
        }
    }

    fn next_id(&self) -> QueueId {
        self.engine.ids.next(UnixMillis::now().0)
    }

    fn store(&self, chunk: Bytes) -> Result<Place, Reply> {
        self.engine.spool.store(chunk).map_err(Self::refusal)
    }

    fn abandon(&self, places: &[Place]) {
        self.engine.spool.abandon(places);
    }

    async fn commit(&self, _client: &Client, mut message: Message) -> Reply {
        let current = self.engine.current();
        for recipient in &mut message.envelope.recipients {
            if recipient.path == ForwardPath::Postmaster {
                recipient.path = ForwardPath::Mailbox(current.settings.postmaster.clone());
            }
        }
        let message = SharedMessage::new(message);
        let ticket = match self.engine.spool.submit(vec![Entry::Accept(message.clone())]) {
            Ok(ticket) => ticket,
            Err(refused) => return Self::refusal(refused),
        };
        if let Err(failure) = self.engine.spool.durable(ticket).await {
            self.engine.spool_failed(&failure);
            return replies::LOCAL_ERROR;
        }
        self.engine.journal.accepted(&message);
        self.engine.enqueue(&message);
        Reply::new(250, mail::Enhanced(2, 0, 0), format!("Ok: queued as {}", message.id))
    }

    fn refused(&self, client: &Client, stage: &'static str, envelope: Option<&Envelope>, reply: &Reply) {
        self.engine.journal.refused(client, stage, envelope, reply);
    }
}
