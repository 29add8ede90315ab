//! What became of the recipients of a backup after it, as far as a history knows.

use history::{DiskFolder, Reader};
use mail::{AliasTarget, Enhanced, Outcome, QueueId, Recipient, UnixMillis};
use report::{
    Event,
    event::{Attempted, Status},
};
use spool::Recovered;
use std::{collections::BTreeSet, path::Path};

/// The history that the configuration names, if it is there.
pub(super) struct Since(Option<Reader>);

/// What an event says about a recipient.
#[derive(Debug, PartialEq, Eq)]
enum Disposition {
    /// The mail is with the next hop or in the mailbox.
    Delivered(Outcome),
    /// An operator deleted the recipient.
    Deleted(Outcome),
    /// The recipient has failed. Its notification was in the spool that is lost, unless it had left already.
    Returned(Outcome),
}

impl Since {
    /// Opens the history in this folder. Without one, nothing is known: the mail of another machine.
    pub(super) fn open(folder: Option<&Path>) -> Self {
        let reader = folder.and_then(|folder| Reader::open(&DiskFolder::new(folder)).ok());
        Self(reader.filter(|reader| !reader.is_empty()))
    }

    /// Settles the recipients that were delivered or deleted, and returns their number. Those that have failed keep the outcome.
    /// Whoever is in doubt stays: mail that comes twice is better than mail that is lost.
    pub(super) fn settle(&self, found: &mut Recovered) -> u64 {
        let Some(reader) = &self.0 else { return 0 };
        let mut count = 0;
        // A part that cannot be read knows nothing, and the mail waits for the operator.
        for stored in reader.timeline(found.message.id, &mut BTreeSet::new()) {
            let Some(event) = stored.event() else { continue };
            // The message that took the recipient's place may be newer than the backup, and lost with the spool.
            if !is_replaced(&event) || is_replacement_finished(reader, &event, REDIRECTIONS_MAX) {
                count += u64::from(apply(&event, stored.at.millis(), found));
            }
        }
        count
    }
}

/// Returns whether another message took the place of a recipient, by an operator or by a late expansion.
fn is_replaced(event: &Event<'_>) -> bool {
    let Event::Attempt(Attempted { status, reply, .. }) = event else { return false };
    *status == Status::Redirected || (*status == Status::Sent && reply.starts_with("expanded, queued as "))
}

/// Returns whether the message that took the place of a recipient was delivered or deleted, to the last recipient.
fn is_replacement_finished(reader: &Reader, replaced: &Event<'_>, redirections_max: u32) -> bool {
    let Event::Attempt(Attempted { reply, .. }) = replaced else { return false };
    let id = reply.rsplit_once("queued as ").and_then(|(_, id)| id.trim().parse::<QueueId>().ok());
    let (Some(id), 1..) = (id, redirections_max) else { return false };
    let mut is_completed = false;
    for stored in reader.timeline(id, &mut BTreeSet::new()) {
        match stored.event() {
            Some(Event::Completed(_)) => is_completed = true,
            Some(event)
                if is_replaced(&event) && !is_replacement_finished(reader, &event, redirections_max - 1) =>
            {
                return false;
            }
            Some(Event::Attempt(Attempted { status: Status::Bounced | Status::Expired, .. })) => {
                return false;
            }
            _ => {}
        }
    }
    is_completed
}

/// Redirections of a message, and of the one in its place, that are followed.
const REDIRECTIONS_MAX: u32 = 10;

/// Notes an event at the recipient that it names by its index. Returns whether the event has settled it. The address names none:
/// all targets of an alias have the same one. Events of earlier builds have no index.
fn apply(event: &Event<'_>, at: UnixMillis, found: &mut Recovered) -> bool {
    let Some((index, fate)) = fate_of(event) else { return false };
    let Some(state) = found.recipients.get_mut(index as usize).filter(|state| !state.settled) else {
        return false;
    };
    let recipient = found.message.envelope.recipients.get(index as usize);
    let (outcome, is_finished) = match fate {
        // The mail went into another message of the same spool.
        Disposition::Delivered(_) if recipient.is_some_and(is_expanded_later) => return false,
        Disposition::Delivered(outcome) | Disposition::Deleted(outcome) => (outcome, true),
        Disposition::Returned(outcome) => (outcome, false),
    };
    state.settled = is_finished;
    state.attempt_count = state.attempt_count.max(1);
    state.last = Some((at, outcome));
    is_finished
}

fn is_expanded_later(recipient: &Recipient) -> bool {
    matches!(recipient.target(), Some(AliasTarget::Later))
}

/// Returns the index of the recipient whom an event has ended, and how.
fn fate_of(event: &Event<'_>) -> Option<(u32, Disposition)> {
    match *event {
        Event::Attempt(Attempted { index: Some(index), status, dsn, reply, .. }) => match status {
            Status::Sent | Status::Redirected => {
                Some((index, Disposition::Delivered(Outcome::delivered(dsn, reply))))
            }
            Status::Bounced | Status::Expired => {
                Some((index, Disposition::Returned(Outcome::failed(dsn, reply))))
            }
            Status::Deferred => None,
        },
        Event::Deleted { index: Some(index), .. } => {
            Some((index, Disposition::Deleted(Outcome::failed(Enhanced(5, 7, 0), "deleted by an operator"))))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use history::{Addresses, Settings, Store};
    use mail::{
        Attempt, Cause, Content, Envelope, ForwardPath, IdSource, Message, RecipientOptions, ReversePath,
    };
    use report::{EventStream, Sink, UnixMicros};
    use server::DeliveryLog;
    use spool::RecipientState;
    use std::time::Duration;

    /// A generator of random numbers that is always the same for a seed.
    struct Random(u64);

    impl Random {
        fn below(&mut self, end: u64) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 >> 16) % end
        }
    }

    /// The end of a recipient, as somebody outside sees it.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Oracle {
        Queued,
        Delivered,
        Deleted,
        /// The notification was in the spool.
        Failed,
        /// The message of the expansion was in the spool.
        Expanded,
        /// The message in its place was in the spool, or has failed.
        Redirected,
    }

    /// A message to few addresses, of which several targets can have one.
    fn message(id: QueueId, random: &mut Random) -> Message {
        let mut envelope = Envelope::new(ReversePath::Null);
        for _ in 0..=random.below(7) {
            let address = ["list@x.test", "ann@x.test", "ann@y.test"][random.below(3) as usize];
            let target = match random.below(8) {
                0 => Some(AliasTarget::Program("/bin/true".into())),
                1 => Some(AliasTarget::File("/var/mail/list".into())),
                2 => Some(AliasTarget::Route("hub".into())),
                3 => Some(AliasTarget::Later),
                _ => None,
            };
            let options = RecipientOptions { target, ..RecipientOptions::default() }.boxed();
            let path = ForwardPath::parse(address, false).unwrap();
            envelope.recipients.push(Recipient { options, ..Recipient::new(path) });
        }
        let content = Content::from_bytes("Subject: x\r\n\r\n");
        Message { id, arrived: UnixMillis(9), origin: "x".into(), envelope, content }
    }

    fn store(folder: &Path, addresses: Addresses) -> Store<DiskFolder> {
        let settings = Settings { keep: Duration::from_secs(86_400), max_bytes: 1 << 30, addresses };
        let new_key = Box::new(|| [7; 32]);
        Store::open(DiskFolder::new(folder), settings, Box::new(UnixMicros::now), new_key).unwrap()
    }

    fn backup_of(message: &Message) -> Recovered {
        let recipients = vec![RecipientState::default(); message.envelope.recipients.len()];
        Recovered { message: message.clone().into(), recipients, held: None }
    }

    /// Ends a recipient, or not, and logs that as the daemon does.
    fn end(log: &DeliveryLog, ids: &IdSource, message: &Message, index: u32, random: &mut Random) -> Oracle {
        let attempt = Attempt::default();
        let is_later = is_expanded_later(&message.envelope.recipients[index as usize]);
        let log_outcome = |outcome: Outcome| log.attempt(message, &[(index, outcome)], &attempt);
        for _ in 0..random.below(3) {
            log_outcome(Outcome::deferred(Enhanced(4, 4, 1), "refused"));
        }
        match random.below(7) {
            0 => return Oracle::Queued,
            6 if !is_later => {
                let id = ids.next(UnixMillis::now().0);
                let text = format!("redirected to x@z.test by root, queued as {id}");
                log_outcome(Outcome::delivered(Enhanced(2, 0, 0), text).because(Cause::Redirected));
                let mut other = self::message(id, random);
                other.envelope.recipients.truncate(1);
                let ends = end(log, ids, &other, 0, random);
                if !matches!(ends, Oracle::Queued) {
                    log.completed(id);
                }
                let is_finished = matches!(ends, Oracle::Delivered | Oracle::Deleted);
                return if is_finished { ends } else { Oracle::Redirected };
            }
            1 => {
                let outcome = Outcome::failed(Enhanced(5, 7, 0), "deleted");
                log.deleted(message, &[(index, outcome)]);
                return Oracle::Deleted;
            }
            2 => log_outcome(Outcome::failed(Enhanced(5, 1, 1), "no such user")),
            3 => log_outcome(Outcome { cause: Cause::Expired, ..Outcome::failed(Enhanced(4, 4, 7), "late") }),
            _ => {
                let text =
                    if is_later { format!("expanded, queued as {}", ids.next(1)) } else { "ok".into() };
                log_outcome(Outcome::delivered(Enhanced(2, 0, 0), text));
                return if is_later { Oracle::Expanded } else { Oracle::Delivered };
            }
        }
        Oracle::Failed
    }

    #[test]
    fn in_random_histories_nobody_is_left_out_who_did_not_get_the_mail() {
        for (seed, addresses) in (1..).zip([Addresses::Full, Addresses::Domain, Addresses::Hashed]) {
            let folder = tempfile::tempdir().unwrap();
            let (mut random, ids) = (Random(seed), IdSource::default());
            let stream = EventStream::start(vec![Box::new(store(folder.path(), addresses))]).unwrap();
            let log = DeliveryLog::new(stream, false);
            let mut messages = Vec::new();
            for _ in 0..1000 {
                let message = message(ids.next(UnixMillis::now().0), &mut random);
                log.accepted(&message);
                let mut backup = backup_of(&message);
                let mut truth = vec![Oracle::Queued; backup.recipients.len()];
                // Some recipients end before the backup, the others after it, in any order.
                let mut order: Vec<u32> = (0..truth.len() as u32).collect();
                order.sort_by_cached_key(|_| random.below(1 << 20));
                let backup_at = random.below(truth.len() as u64 + 1);
                for (number, index) in (0..).zip(order) {
                    let end = end(&log, &ids, &message, index, &mut random);
                    truth[index as usize] = end;
                    let is_settled = number < backup_at && end != Oracle::Queued;
                    backup.recipients[index as usize].settled = is_settled;
                }
                messages.push((backup, truth));
            }
            drop(log);
            let since = Since::open(Some(folder.path()));
            let mut left_out_count = 0;
            for (mut backup, truth) in messages {
                let before: Vec<bool> = backup.recipients.iter().map(|state| state.settled).collect();
                let count = since.settle(&mut backup);
                let mut own_count = 0;
                for ((state, was_settled), truth) in backup.recipients.iter().zip(before).zip(&truth) {
                    let is_finished = matches!(truth, Oracle::Delivered | Oracle::Deleted);
                    assert_eq!(state.settled, was_settled || is_finished, "{truth:?} of {backup:?}");
                    own_count += u64::from(state.settled && !was_settled);
                }
                assert_eq!(count, own_count);
                left_out_count += count;
            }
            assert!(left_out_count > 500, "{left_out_count}");
        }
    }

    #[test]
    fn a_history_of_an_earlier_build_leaves_nobody_out() {
        let folder = tempfile::tempdir().unwrap();
        let mut random = Random(7);
        let message = message(IdSource::default().next(UnixMillis::now().0), &mut random);
        let mut backup = backup_of(&message);
        let (id, from) = (message.id, "");
        let mut store = store(folder.path(), Addresses::Full);
        for recipient in &message.envelope.recipients {
            let to = recipient.path.as_str();
            store.write(UnixMicros::now(), &Event::Deleted { id, from, to, index: None });
        }
        drop(store);
        assert_eq!(Since::open(Some(folder.path())).settle(&mut backup), 0);
        assert_eq!(backup.recipients, backup_of(&message).recipients);
    }
}
