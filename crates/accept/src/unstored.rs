//! Messages that are offered to their next hop before they are stored (`deliver-first`). What the next hop takes at once is
//! never written. Everything else is stored before anything about it is.

use mail::{FinishedAs, QueueId, SharedMessage};
use spool::{CommitSeq, ControlOp, Entry, Refused, Spool, Totals, Transaction};
use std::{
    collections::HashMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};
use tokio::sync::oneshot;

/// The end of a message's time without a place in the spool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// The next hop has it for all recipients.
    Delivered,
    /// An operator has deleted the message.
    Deleted,
    /// It was submitted, because not everything about it is settled.
    Submitted(CommitSeq),
}

/// The messages that are queued and not submitted to the spool.
#[derive(Debug, Default)]
pub struct UnstoredMessages {
    kept: Mutex<HashMap<QueueId, Unstored>>,
    /// Read without the lock: nearly always there are none.
    count: AtomicUsize,
    /// Those that were delivered.
    delivered_count: AtomicU64,
}

#[derive(Debug)]
struct Unstored {
    message: SharedMessage,
    settled: oneshot::Sender<Settled>,
}

impl UnstoredMessages {
    fn lock(&self) -> MutexGuard<'_, HashMap<QueueId, Unstored>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Messages that were delivered without being stored, since the start.
    pub fn delivered_count(&self) -> u64 {
        self.delivered_count.load(Ordering::Relaxed)
    }

    /// Keeps a message, which is to be queued next. The receiver gets what becomes of it.
    pub fn keep(&self, message: SharedMessage) -> oneshot::Receiver<Settled> {
        let (settled, receiver) = oneshot::channel();
        let mut kept = self.lock();
        kept.insert(message.id, Unstored { message, settled });
        self.count.store(kept.len(), Ordering::Release);
        receiver
    }

    /// Returns a message that is not in the spool.
    pub fn get(&self, id: QueueId) -> Option<SharedMessage> {
        if self.is_empty() {
            return None;
        }
        self.lock().get(&id).map(|one| one.message.clone())
    }

    /// Submits a message if that was not done, and it was not delivered.
    ///
    /// # Errors
    /// As for [`Spool::submit`]. The message is still kept.
    pub fn store(&self, spool: &dyn Spool, id: QueueId) -> Result<(), Refused> {
        if self.is_empty() {
            return Ok(());
        }
        self.store_locked(&mut self.lock(), spool, id)
    }

    /// Submits a transaction to the spool, as [`Spool::submit_or_keep`] does, and before it what it is about.
    ///
    /// # Errors
    /// As for [`Spool::submit_or_keep`].
    pub fn submit(&self, spool: &dyn Spool, transaction: &mut Transaction) -> Result<CommitSeq, Refused> {
        if self.is_empty() {
            return spool.submit_or_keep(transaction);
        }
        // Others see neither a result without its message nor a message without its result.
        let mut kept = self.lock();
        // A report on the delivery, or the message in place of a redirected one, is not durable yet: whoever hears of a delivery now
        // would not send again what a power cut takes.
        let has_more = transaction.iter().any(|entry| matches!(entry, Entry::Accept(_) | Entry::Import(_)));
        for entry in transaction.iter_mut() {
            let (Entry::Outcome { id, .. } | Entry::Control { id, .. }) = *entry else { continue };
            let Some(one) = kept.get(&id) else { continue };
            let is_delivered = !has_more && is_delivered(entry, &one.message);
            // Its client was told to send it again, or an operator does not want it.
            let is_deleted = matches!(entry, Entry::Control { op: ControlOp::Delete, .. });
            if !is_delivered && !is_deleted {
                self.store_locked(&mut kept, spool, id)?;
                continue;
            }
            let mut totals = Totals::default();
            totals.count(&Entry::Accept(one.message.clone()));
            totals.count(entry);
            *entry = Entry::Count(totals);
            self.delivered_count.fetch_add(u64::from(is_delivered), Ordering::Relaxed);
            self.settle(&mut kept, id, if is_delivered { Settled::Delivered } else { Settled::Deleted });
        }
        spool.submit_or_keep(transaction)
    }

    fn store_locked(
        &self,
        kept: &mut HashMap<QueueId, Unstored>,
        spool: &dyn Spool,
        id: QueueId,
    ) -> Result<(), Refused> {
        if let Some(one) = kept.get(&id) {
            let commit_seq = spool.submit(vec![Entry::Accept(one.message.clone())])?;
            self.settle(kept, id, Settled::Submitted(commit_seq));
        }
        Ok(())
    }

    fn settle(&self, kept: &mut HashMap<QueueId, Unstored>, id: QueueId, how: Settled) {
        if let Some(one) = kept.remove(&id) {
            self.count.store(kept.len(), Ordering::Release);
            // Its client may be gone.
            let _ = one.settled.send(how);
        }
    }
}

/// Returns whether an entry says that every recipient of a message was delivered to.
fn is_delivered(entry: &Entry, message: &SharedMessage) -> bool {
    let Entry::Outcome { results, last: true, .. } = entry else { return false };
    results.len() == message.envelope.recipients.len()
        && results.iter().all(|(_, outcome)| outcome.finished_as() == Some(FinishedAs::Delivered))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mail::{
        Cause, Content, ContentTraits, Enhanced, Envelope, Message, Origin, Outcome, Part, Recipient,
        ReversePath, UnixMillis,
    };
    use spool::NullSpool;

    fn message(id: u64) -> SharedMessage {
        let mut envelope = Envelope::new(ReversePath::parse("a@a.test", false).unwrap());
        for to in ["x@b.test", "y@b.test"] {
            envelope.recipients.push(Recipient::new(mail::ForwardPath::parse(to, false).unwrap()));
        }
        let content = Content::new(ContentTraits::default(), vec![Part::Memory("hi\r\n".into())]);
        let (id, arrived) = (QueueId(id), UnixMillis(1));
        SharedMessage::new(Message { id, arrived, origin: Origin::Local { uid: 0 }, envelope, content })
    }

    fn outcome(id: u64, recipients: &[u32], last: bool, make: fn(Enhanced, String) -> Outcome) -> Entry {
        let result = |at: &u32| (*at, make(Enhanced(2, 0, 0), String::new()));
        Entry::Outcome { id: QueueId(id), results: recipients.iter().map(result).collect(), last }
    }

    fn totals(transaction: &Transaction) -> Vec<Totals> {
        let count = |entry: &Entry| if let Entry::Count(totals) = entry { Some(*totals) } else { None };
        transaction.iter().filter_map(count).collect()
    }

    #[test]
    fn a_message_is_written_before_everything_that_is_said_about_it_but_its_delivery_to_all() {
        let delivered = |recipients, last| outcome(1, recipients, last, Outcome::delivered);
        for (entry, is_written) in [
            (delivered(&[0, 1], true), false),
            (delivered(&[0], false), true),
            // The other recipient was settled before: an operator deleted it, for instance.
            (delivered(&[1], true), true),
            (outcome(1, &[0, 1], false, Outcome::deferred), true),
            (outcome(1, &[0, 1], true, Outcome::failed), true),
            (Entry::Control { id: QueueId(1), op: ControlOp::Hold("why".into()) }, true),
            (Entry::Control { id: QueueId(1), op: ControlOp::Delete }, false),
            (
                outcome(1, &[0, 1], true, |code, text| {
                    Outcome::delivered(code, text).because(Cause::Redirected)
                }),
                true,
            ),
            (outcome(2, &[0], false, Outcome::deferred), false),
        ] {
            let (unstored, spool) = (UnstoredMessages::default(), NullSpool::default());
            let mut settled = unstored.keep(message(1));
            let is_about_it = !matches!(&entry, Entry::Outcome { id: QueueId(2), .. });
            unstored.submit(&spool, &mut vec![entry.clone()]).unwrap();
            let known = settled.try_recv().ok();
            assert_eq!(known.is_some(), is_about_it, "{entry:?}");
            assert_eq!(matches!(known, Some(Settled::Submitted(_))), is_written, "{entry:?}");
            assert_eq!(unstored.get(QueueId(1)).is_none(), is_about_it, "{entry:?}");
        }
    }

    #[test]
    fn a_message_is_written_before_a_report_on_its_delivery() {
        let (unstored, spool) = (UnstoredMessages::default(), NullSpool::default());
        let mut settled = unstored.keep(message(1));
        let delivered = outcome(1, &[0, 1], true, Outcome::delivered);
        unstored.submit(&spool, &mut vec![delivered, Entry::Accept(message(2))]).unwrap();
        assert!(matches!(settled.try_recv(), Ok(Settled::Submitted(_))));
    }

    #[test]
    fn the_totals_of_what_was_not_written_are() {
        let (unstored, spool) = (UnstoredMessages::default(), NullSpool::default());
        let _settled = unstored.keep(message(1));
        spool.close();
        let mut transaction = vec![outcome(1, &[0, 1], true, Outcome::delivered)];
        // Refused, it stays with the caller, who submits it again.
        assert_eq!(unstored.submit(&spool, &mut transaction), Err(Refused::Poisoned));
        assert_eq!(totals(&transaction), [Totals { accepted: 2, delivered: 2, ..Totals::default() }]);
    }

    #[test]
    fn what_the_spool_has_no_room_for_stays_in_memory() {
        let (unstored, spool) = (UnstoredMessages::default(), NullSpool::default());
        let mut settled = unstored.keep(message(1));
        spool.close();
        assert_eq!(unstored.store(&spool, QueueId(1)), Err(Refused::Poisoned));
        let mut transaction = vec![outcome(1, &[0], false, Outcome::deferred)];
        assert_eq!(unstored.submit(&spool, &mut transaction), Err(Refused::Poisoned));
        assert_eq!(transaction.len(), 1);
        assert!(unstored.get(QueueId(1)).is_some() && settled.try_recv().is_err());
        let spool = NullSpool::default();
        unstored.store(&spool, QueueId(1)).unwrap();
        assert!(matches!(settled.try_recv(), Ok(Settled::Submitted(_))));
        assert!(spool.read(QueueId(1)).is_ok() && unstored.get(QueueId(1)).is_none());
        // Twice does nothing.
        unstored.store(&spool, QueueId(1)).unwrap();
    }
}
