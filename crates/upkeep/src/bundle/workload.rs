//! The workload: messages of the last hours, from the history and the queue.

use crate::ask;
use config::Settings;
use console::complain;
use control::{RecipientInfo, Selection, Status};
use history::{Entry, Query};
use mail::UnixMillis;
use recording::{End, QueuedRecipient, Recorder, Recording};
use report::UnixMicros;

/// Messages that are read at a time.
const PAGE: usize = 500;
/// Messages of the history that are recorded.
const MESSAGES_MAX: usize = 100_000;

/// Records the messages. What cannot be read is told, and left out.
pub(super) fn record(settings: &Settings, now: UnixMillis, hours: u64) -> Recording {
    let mut recorder = Recorder::default();
    from_history(settings, now, hours, &mut recorder);
    let queued = ask::list(settings, &Selection::all(), &mut |message| {
        let recipients = message.recipients.iter().map(queued_recipient).collect();
        let is_held = message.recipients.iter().any(|one| one.status == Status::Held);
        recorder.queued(
            message.id.0,
            message.arrived_ms,
            message.size_bytes,
            &message.origin,
            is_held,
            recipients,
        );
        Ok(())
    });
    if let Err(error) = queued {
        complain("postrider", &format!("the queue is not in the workload: {}", error.text));
    }
    recorder.finish()
}

fn from_history(settings: &Settings, now: UnixMillis, hours: u64, recorder: &mut Recorder) {
    let reader = match crate::open_history(settings) {
        Ok(reader) => reader,
        Err(error) => {
            return complain("postrider", &format!("the history is not in the workload: {}", error.text));
        }
    };
    let mut query = Query::new(Vec::new(), PAGE);
    query.from = UnixMicros(now.0.saturating_sub(hours.saturating_mul(3_600_000)).saturating_mul(1000));
    let mut count = 0;
    loop {
        let page = reader.query(&query);
        for entry in &page.entries {
            let Entry::Message(_, events) = entry else { continue };
            count += 1;
            for stored in events {
                if let Some(event) = stored.event() {
                    recorder.event(stored.at, &event);
                }
            }
        }
        query.cursor = page.next;
        if page.next.is_none() || count >= MESSAGES_MAX {
            return;
        }
    }
}

fn queued_recipient(recipient: &RecipientInfo) -> QueuedRecipient {
    // A finished recipient has "delivered" or "failed" as its last outcome, see `RecipientInfo::finished`.
    let is_delivered = || recipient.last.as_deref().is_none_or(|last| last.starts_with("delivered"));
    let ended = (recipient.status == Status::Done)
        .then(|| if is_delivered() { End::Delivered } else { End::Bounced });
    QueuedRecipient { address: recipient.address.clone(), ended, attempt_count: recipient.attempt_count }
}
