//! Makes a recording of events and of the queue.

use crate::{End, FORMAT, Head, RecordedAttempt, RecordedMessage, RecordedRecipient, Recording};
use mail::{Origin, QueueId};
use report::{
    Event, UnixMicros,
    event::{Attempted, Status},
};
use std::collections::{BTreeMap, HashMap};

/// What the queue says of a recipient, in addition to the history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuedRecipient {
    /// The forward-path without brackets. It only finds the recipient in the history, and gives a number to its domain.
    pub address: String,
    /// Nothing is left to do; how it ended if that is known.
    pub ended: Option<End>,
    /// Attempts so far.
    pub attempt_count: u32,
}

/// Folds events. The recording has no address, name or text of them.
#[derive(Debug, Default)]
pub struct Recorder {
    messages: BTreeMap<QueueId, Draft>,
}

#[derive(Debug, Default)]
struct Draft {
    /// The arrival; none if neither the history nor the queue has it.
    arrived_ms: Option<u64>,
    size_bytes: u64,
    recipient_count: u64,
    is_notification: bool,
    is_held: bool,
    is_queued: bool,
    recipients: BTreeMap<String, DraftRecipient>,
}

#[derive(Debug, Default)]
struct DraftRecipient {
    attempts: Vec<RecordedAttempt>,
    end: Option<End>,
}

impl Recorder {
    /// Takes an event of the history.
    pub fn event(&mut self, at: UnixMicros, event: &Event<'_>) {
        match event {
            Event::Accepted(accepted) => {
                let draft = self.messages.entry(accepted.id).or_default();
                draft.arrived_ms = Some(at.millis().0);
                draft.size_bytes = accepted.size_bytes;
                draft.recipient_count = u64::from(accepted.recipient_count);
                draft.is_notification = Origin::parse(accepted.origin) == Origin::Dsn;
            }
            Event::Attempt(attempt) => self.attempt(attempt),
            Event::Waiting(waiting) => drop(self.recipient(waiting.id, waiting.to)),
            Event::Deleted { id, to, .. } => self.recipient(*id, to).end = Some(End::Deleted),
            _ => {}
        }
    }

    fn attempt(&mut self, attempt: &Attempted<'_>) {
        let recipient = self.recipient(attempt.id, attempt.to);
        let latency_ms = attempt.setup_ms + attempt.transfer_ms;
        recipient.attempts.push(RecordedAttempt { age_ms: attempt.age_ms, latency_ms });
        recipient.end = match attempt.status {
            Status::Sent => Some(End::Delivered),
            Status::Redirected => Some(End::Deleted),
            Status::Bounced | Status::Expired => Some(End::Bounced),
            Status::Deferred => None,
        };
    }

    fn recipient(&mut self, id: QueueId, address: &str) -> &mut DraftRecipient {
        self.messages.entry(id).or_default().recipients.entry(address.to_owned()).or_default()
    }

    /// Takes a message of the queue. `size_bytes` and the arrival are those of the queue.
    pub fn queued(
        &mut self,
        id: QueueId,
        arrived_ms: u64,
        size_bytes: u64,
        origin: &str,
        is_held: bool,
        recipients: Vec<QueuedRecipient>,
    ) {
        let draft = self.messages.entry(id).or_default();
        draft.arrived_ms = Some(arrived_ms);
        draft.size_bytes = size_bytes;
        draft.recipient_count = recipients.len() as u64;
        draft.is_notification |= Origin::parse(origin) == Origin::Dsn;
        (draft.is_held, draft.is_queued) = (is_held, true);
        for one in recipients {
            let recipient = draft.recipients.entry(one.address).or_default();
            recipient.end = match one.ended {
                None => Some(End::Queued),
                ended => recipient.end.or(ended),
            };
            // Attempts that the history does not have any more.
            let known = recipient.attempts.len();
            let missing = (one.attempt_count as usize).saturating_sub(known);
            let earlier = std::iter::repeat_n(RecordedAttempt { age_ms: 0, latency_ms: 0 }, missing);
            recipient.attempts.splice(0..0, earlier);
        }
    }

    /// Returns the recording. Messages whose arrival is not known are left out.
    pub fn finish(self) -> Recording {
        let mut drafts: Vec<(u64, Draft)> =
            self.messages.into_values().filter_map(|draft| Some((draft.arrived_ms?, draft))).collect();
        drafts.sort_by_key(|(arrived_ms, _)| *arrived_ms);
        let first = drafts.first().map_or(0, |(arrived_ms, _)| *arrived_ms);
        let (mut numbers, mut unknown_recipients) = (HashMap::new(), 0);
        let mut messages = Vec::with_capacity(drafts.len());
        for (arrived_ms, draft) in drafts {
            unknown_recipients += draft.recipient_count.saturating_sub(draft.recipients.len() as u64);
            let recipients = draft.recipients.into_iter().map(|(address, recipient)| {
                let domain = address.rsplit('@').next().unwrap_or_default().to_ascii_lowercase();
                let next = numbers.len() as u32;
                let destination = *numbers.entry(domain).or_insert(next);
                // What is not in the queue any more, and was neither delivered nor returned, was deleted.
                let left = if draft.is_queued { End::Queued } else { End::Deleted };
                RecordedRecipient {
                    destination,
                    attempts: recipient.attempts,
                    end: recipient.end.unwrap_or(left),
                }
            });
            let recipients: Vec<_> = recipients.collect();
            if recipients.is_empty() {
                continue;
            }
            messages.push(RecordedMessage {
                at_ms: arrived_ms - first,
                size_bytes: draft.size_bytes,
                is_notification: draft.is_notification,
                is_held: draft.is_held,
                recipients,
            });
        }
        let (count, destinations) = (messages.len() as u64, numbers.len() as u32);
        let head = Head { format: FORMAT, messages: count, destinations, unknown_recipients };
        Recording { head, messages }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mail::Enhanced;
    use report::event::Accepted;

    fn accepted(id: u64, recipient_count: u32, origin: &'static str) -> Event<'static> {
        Event::Accepted(Accepted {
            id: QueueId(id),
            from: "a@far.test",
            recipient_count,
            size_bytes: 500,
            origin,
            message_id: "",
            login: None,
            requires_tls: false,
            release: None,
            deliver_by: None,
            priority: None,
        })
    }

    fn attempt(id: u64, to: &'static str, status: Status) -> Event<'static> {
        Event::Attempt(Attempted {
            id: QueueId(id),
            from: "a@far.test",
            to,
            status,
            dsn: Enhanced(2, 0, 0),
            relay: "",
            tls: "",
            reply: "",
            age_ms: 40,
            queued_ms: 1,
            setup_ms: 10,
            transfer_ms: 20,
            index: Some(0),
        })
    }

    #[test]
    fn history_and_queue_make_one_recording_without_addresses() {
        let mut recorder = Recorder::default();
        let at = |seconds: u64| UnixMicros(seconds * 1_000_000);
        recorder.event(at(10), &accepted(1, 2, "client=[192.0.2.1]"));
        recorder.event(at(11), &attempt(1, "b@One.test", Status::Deferred));
        recorder.event(at(12), &attempt(1, "b@One.test", Status::Sent));
        recorder.event(at(12), &attempt(1, "c@two.test", Status::Bounced));
        recorder.event(at(13), &accepted(2, 1, "dsn"));
        recorder.event(at(14), &attempt(2, "a@one.test", Status::Deferred));
        // Its beginning is not in the history any more.
        recorder.event(at(14), &attempt(3, "x@three.test", Status::Sent));
        let waiting = QueuedRecipient { address: "a@one.test".into(), ended: None, attempt_count: 3 };
        recorder.queued(QueueId(2), 13_000, 700, "dsn", true, vec![waiting]);
        let recording = recorder.finish();
        assert_eq!((recording.head.messages, recording.head.destinations), (2, 2));
        let [first, second] = &recording.messages[..] else { panic!("{recording:?}") };
        assert_eq!((first.at_ms, second.at_ms, second.size_bytes), (0, 3000, 700));
        assert_eq!((first.is_notification, second.is_notification, second.is_held), (false, true, true));
        let ends: Vec<_> = first.recipients.iter().map(|one| (one.destination, one.end)).collect();
        assert_eq!(ends, [(0, End::Delivered), (1, End::Bounced)]);
        assert_eq!(first.recipients[0].attempts[1], RecordedAttempt { age_ms: 40, latency_ms: 30 });
        assert_eq!((second.recipients[0].end, second.recipients[0].attempts.len()), (End::Queued, 3));
        let mut file = Vec::new();
        recording.write(&mut file).unwrap();
        let text = String::from_utf8(file).unwrap();
        assert!(!text.contains("test") && !text.contains('@'), "{text}");
    }

    #[test]
    fn what_left_the_queue_without_an_outcome_was_deleted() {
        let mut recorder = Recorder::default();
        recorder.event(UnixMicros(0), &accepted(1, 3, "client=[192.0.2.1]"));
        recorder.event(UnixMicros(1), &attempt(1, "b@one.test", Status::Deferred));
        let recording = recorder.finish();
        assert_eq!(recording.messages[0].recipients[0].end, End::Deleted);
        assert_eq!(recording.head.unknown_recipients, 2);
    }
}
