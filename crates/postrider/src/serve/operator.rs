//! What operators and local users may ask of the running daemon.

use super::{
    Daemon, conclude,
    engine::{Engine, Notes},
};
use crate::control::{
    Action, Failure, Gauges, Id, Ledger, Listed, ListedRecipient, Meant, Refusal, Status, Submission, Target,
};
use mail::{Content, Message, QueueId, SharedMessage, UnixMillis};
use queue::{MessageView, UnitView, Verdict};
use spool::{Change, SpoolFailure};
use std::sync::Arc;

impl Target for Daemon {
    fn ids(&self) -> Vec<QueueId> {
        self.engine.lock().queue.ids()
    }

    async fn messages(&self, ids: &[QueueId]) -> Vec<Listed> {
        let mut all = Vec::with_capacity(ids.len());
        for id in ids {
            all.extend(listed(&self.engine, *id).await);
        }
        all
    }

    async fn header(&self, id: QueueId, max_bytes: usize) -> Result<Option<Vec<u8>>, Failure> {
        let message = match self.engine.read(id).await {
            Ok(message) => message,
            Err(SpoolFailure::Missing) => return Ok(None),
            Err(failure) => return Err(failed(&failure)),
        };
        let mut header = conclude::content_up_to(&self.engine, &message, max_bytes).await;
        if let Some(end) = header.windows(4).position(|w| w == b"\r\n\r\n") {
            header.truncate(end + 2);
        }
        header.truncate(max_bytes);
        Ok(Some(header))
    }

    async fn apply(&self, action: Action, meant: &[Meant]) -> Result<u64, Failure> {
        let mut decided = Vec::new();
        let mut count = 0;
        for one in meant {
            count += u64::from(self.apply_one(action, one, &mut decided).await?);
        }
        // After all of them were handed to the spool, so that they share its commits.
        for one in decided {
            // Without an answer the daemon ends.
            let stored = one.await.unwrap_or(Err(SpoolFailure::Io("the daemon ends".to_owned())));
            stored.map_err(|failure| failed(&failure))?;
        }
        Ok(count)
    }

    fn flush(&self) -> u64 {
        let now = self.engine.now();
        let mut state = self.engine.lock();
        state.queue.flush(now);
        let count = state.queue.len() as u64;
        self.engine.follow_orders(state, now);
        count
    }

    fn gauges(&self) -> Gauges {
        gauges(&self.engine)
    }

    fn ledger(&self) -> Ledger {
        let l = self.engine.ledger.snapshot();
        Ledger {
            accepted: l.accepted,
            delivered: l.delivered,
            bounced: l.bounced,
            expired: l.expired,
            deleted: l.deleted,
            queued: l.queued,
        }
    }

    async fn reload(&self) -> Result<Vec<String>, Failure> {
        self.reload_configuration()
    }

    async fn submit(&self, submission: Submission) -> Result<QueueId, Refusal> {
        let now = UnixMillis::now();
        let id = self.engine.ids.next(now.0);
        let message = Message {
            id,
            arrived: now,
            origin: submission.origin().into(),
            content: with_trace(&submission, self, id, now),
            envelope: submission.envelope,
        };
        self.desk.accept_local(message).await
    }
}

impl Daemon {
    /// True when the message was there. What is still to become durable is added to `decided`.
    async fn apply_one(
        &self,
        action: Action,
        meant: &Meant,
        decided: &mut Vec<conclude::Decided>,
    ) -> Result<bool, Failure> {
        let engine = &self.engine;
        let id = meant.id;
        let now = engine.now();
        let change = match action {
            Action::Retry => {
                let mut state = engine.lock();
                let found = state.queue.retry(id, now);
                engine.follow_orders(state, now);
                return Ok(found);
            }
            Action::Bounce => return Ok(self.seize(meant, Verdict::Returned, decided)),
            Action::Delete => return Ok(self.seize(meant, Verdict::Deleted, decided)),
            Action::Hold => Change::Hold,
            Action::Release => Change::Release,
        };
        engine.amend(id, change).await.map_err(|f| failed(&f))
    }

    /// What is in flight ends its attempt; the rest ends now.
    fn seize(&self, meant: &Meant, verdict: Verdict, decided: &mut Vec<conclude::Decided>) -> bool {
        let is_meant =
            |index: u32| meant.recipients.as_ref().is_none_or(|some| some.binary_search(&index).is_ok());
        let taken = self.engine.lock().queue.seize(meant.id, is_meant, verdict, self.engine.now());
        let Some(taken) = taken else { return false };
        let seized = taken.into_iter().map(|taken| (taken, verdict)).collect();
        decided.extend(conclude::condemned(&self.engine, seized));
        true
    }
}

/// Speed, room and health of the spool.
pub(super) fn gauges(engine: &Engine) -> Gauges {
    let pressure = engine.spool.pressure();
    let (queue_create_count, queue_create_mean_us, queue_create_max_us) = engine.queue_create.sums();
    Gauges {
        failure: engine.spool_failure(),
        faults: engine.spool.faults(),
        messages: pressure.message_count,
        transactions: pressure.transaction_count,
        commits: pressure.commit_count,
        last_sync_us: pressure.last_sync_us,
        queued_bytes: pressure.queued_bytes,
        free_bytes: engine.spool.room_bytes(),
        queue_create_count,
        queue_create_mean_us,
        queue_create_max_us,
        lock_conflicts: engine.conflict_count(),
    }
}

/// Local mail gets a `Received` field of its own (RFC 5321 §4.4).
fn with_trace(submission: &Submission, daemon: &Daemon, id: QueueId, now: UnixMillis) -> Content {
    let hostname = &daemon.engine.current().settings.hostname;
    let mut bytes = format!(
        "Received: by {hostname} (Postrider, from userid {})\r\n\tid {id}; {}\r\n",
        submission.uid,
        now.rfc5322()
    )
    .into_bytes();
    bytes.extend_from_slice(&submission.content);
    Content::from_bytes(bytes)
}

fn failed(failure: &SpoolFailure) -> Failure {
    Failure::Failed { text: failure.to_string() }
}

/// One message as the listing shows it; none when it is gone meanwhile.
async fn listed(engine: &Arc<Engine>, id: QueueId) -> Option<Listed> {
    let (view, notes) = {
        let state = engine.lock();
        (state.queue.message(id)?, state.notes.get(&id).cloned().unwrap_or_default())
    };
    match engine.read(id).await {
        Ok(message) => Some(describe(engine, &message, &view, &notes)),
        // What is in the queue is in the spool, or it is lost.
        Err(failure) if engine.lock().queue.message(id).is_some() => {
            Some(describe_damaged(engine, &view, &notes, &failure))
        }
        Err(_) => None,
    }
}

fn describe(engine: &Engine, message: &SharedMessage, view: &MessageView, notes: &Notes) -> Listed {
    let current = engine.current();
    let recipients = (0..).zip(&message.envelope.recipients).zip(current.ways(message));
    let recipients = recipients.map(|((index, recipient), (destination, _))| {
        let address = recipient.path.as_str().to_owned();
        match described(engine, view, notes, index) {
            Some(row) => ListedRecipient { address, ..row },
            None => {
                let end = notes.iter().find(|note| note.0 == index).map(|note| (&*note.1, note.2));
                ListedRecipient::finished(address, destination.to_string(), end)
            }
        }
    });
    Listed {
        id: Id(message.id),
        size_bytes: message.content.size_bytes(),
        arrived_ms: message.arrived.0,
        sender: message.envelope.reverse_path.as_str().to_owned(),
        origin: message.origin.to_string(),
        recipients: recipients.collect(),
        damaged: None,
    }
}

/// What the queue knows by itself: everything but addresses.
fn describe_damaged(engine: &Engine, view: &MessageView, notes: &Notes, failure: &SpoolFailure) -> Listed {
    let mut left: Vec<u32> = view.units.iter().flat_map(|unit| unit.recipients.iter().copied()).collect();
    left.sort_unstable();
    Listed {
        id: Id(view.id),
        size_bytes: u64::from(view.size_bytes),
        arrived_ms: engine.clock.on_wall(view.arrived).0,
        sender: String::new(),
        origin: String::new(),
        recipients: left.into_iter().filter_map(|index| described(engine, view, notes, index)).collect(),
        damaged: Some(failure.to_string()),
    }
}

/// One recipient that is left, still without its address.
fn described(engine: &Engine, view: &MessageView, notes: &Notes, index: u32) -> Option<ListedRecipient> {
    let mut row = placed(engine, view.units.iter().find(|unit| unit.recipients.contains(&index))?);
    if let Some((_, outcome, at)) = notes.iter().find(|note| note.0 == index) {
        row.last = Some(outcome.text.to_string());
        row.last_ms = Some(at.0);
    }
    Some(row)
}

/// Where a unit is, and why.
fn placed(engine: &Engine, unit: &UnitView) -> ListedRecipient {
    let mut row = ListedRecipient {
        address: String::new(),
        destination: unit.destination.to_string(),
        status: Status::Ready,
        attempt_count: u32::from(unit.attempt_count),
        last: None,
        last_ms: None,
        next_ms: None,
        why: None,
    };
    match &unit.status {
        queue::Status::Ready => {
            row.why = Some("it waits for a connection to its destination".to_owned());
        }
        queue::Status::Suspended(until, reason) => {
            row.status = Status::Suspended;
            row.next_ms = Some(engine.clock.on_wall(*until).0);
            row.last = Some(reason.text.to_string());
            row.why =
                Some(format!("its destination could not be reached and is probed then: {}", reason.text));
        }
        queue::Status::InFlight => row.status = Status::Inflight,
        queue::Status::Waiting(due) => {
            row.status = Status::Waiting;
            row.next_ms = Some(engine.clock.on_wall(*due).0);
            row.why = Some("its last attempt was deferred; the wait grows with its age".to_owned());
        }
        queue::Status::Held => {
            row.status = Status::Held;
            row.why = Some("an operator holds it: release it to go on".to_owned());
        }
    }
    row
}
