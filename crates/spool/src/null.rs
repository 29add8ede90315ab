//! Keeps everything in memory and calls it durable at once: the laboratory's ceiling, never for mail.

use crate::{
    Change, Durable, Entry, Failed, Pressure, Recovered, RecoveryReport, Refused, Spool, SpoolFailure,
    Ticket, Transaction,
};
use bytes::Bytes;
use mail::{Place, QueueId, SharedMessage};
use std::{
    collections::HashMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

/// See the module's text.
#[derive(Debug, Default)]
pub struct NullSpool {
    kept: Mutex<Kept>,
    ticket: AtomicU64,
}

#[derive(Debug, Default)]
struct Kept {
    messages: HashMap<QueueId, SharedMessage>,
    chunks: HashMap<Place, Bytes>,
    next_place: u64,
    closed: bool,
}

impl Kept {
    fn forget(&mut self, id: QueueId) {
        let Some(message) = self.messages.remove(&id) else { return };
        for part in message.content.parts() {
            if let mail::Part::Stored { place, .. } = part {
                self.chunks.remove(place);
            }
        }
    }
}

impl NullSpool {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Spool for NullSpool {
    fn submit(&self, transaction: Transaction) -> Result<Ticket, Refused> {
        let mut kept = self.kept();
        if kept.closed {
            return Err(Refused::Poisoned);
        }
        for entry in transaction {
            match entry {
                Entry::Accept(message) => drop(kept.messages.insert(message.id, message)),
                Entry::Adopt(found) => drop(kept.messages.insert(found.message.id, found.message)),
                Entry::Outcome { id, last: true, .. } | Entry::Amend { id, change: Change::Delete } => {
                    kept.forget(id);
                }
                Entry::Outcome { .. } | Entry::Amend { .. } => {}
            }
        }
        Ok(Ticket(self.ticket.fetch_add(1, Ordering::Relaxed) + 1))
    }

    fn store(&self, chunk: Bytes) -> Result<Place, Refused> {
        let mut kept = self.kept();
        kept.next_place += 1;
        let place = Place(kept.next_place);
        kept.chunks.insert(place, chunk);
        Ok(place)
    }

    fn abandon(&self, places: &[Place]) {
        let mut kept = self.kept();
        places.iter().for_each(|place| drop(kept.chunks.remove(place)));
    }

    fn durable(&self, _: Ticket) -> Durable {
        Box::pin(std::future::ready(Ok(())))
    }

    fn reached(&self, _: Ticket) -> Option<Result<(), SpoolFailure>> {
        Some(Ok(()))
    }

    fn failed(&self) -> Failed {
        Box::pin(std::future::pending())
    }

    fn read(&self, id: QueueId) -> Result<SharedMessage, SpoolFailure> {
        self.kept().messages.get(&id).cloned().ok_or(SpoolFailure::Missing)
    }

    fn load(&self, place: Place) -> Result<Bytes, SpoolFailure> {
        self.kept().chunks.get(&place).cloned().ok_or(SpoolFailure::Missing)
    }

    fn recover(&mut self, _: &mut dyn FnMut(Recovered)) -> Result<RecoveryReport, SpoolFailure> {
        Ok(RecoveryReport::default())
    }

    fn pressure(&self) -> Pressure {
        let message_count = self.kept().messages.len() as u64;
        let transaction_count = self.ticket.load(Ordering::Relaxed);
        Pressure { message_count, transaction_count, free_bytes: u64::MAX, ..Pressure::default() }
    }

    fn close(&self) {
        self.kept().closed = true;
    }
}
