//! The totals: how many recipients the spool was given since it was made, and what became of them. They are stored with
//! the transactions that change them, so a crash changes neither.

use crate::{Entry, RecipientState};
use mail::FinishedAs;
use std::fmt;

/// Numbers of recipients. Those of copies and of messages from other spools are counted, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Recipients of accepted messages.
    pub accepted: u64,
    /// The next hop or the mailbox has the message.
    pub delivered: u64,
    /// Recipients that failed.
    pub bounced: u64,
    /// Failed because the lifetime of the message was over.
    pub expired: u64,
    /// Deleted by an operator.
    pub deleted: u64,
    /// Ended here because another message, or another spool, has the recipient.
    pub moved: u64,
}

/// A stored number is not above this, so that sums of a few do not overflow.
const TOTAL_MAX: u64 = 1 << 56;

impl Totals {
    /// Number of numbers.
    pub(crate) const COUNT: usize = 6;

    /// All numbers, in the order in which they are stored.
    pub(crate) fn numbers(&self) -> [u64; Self::COUNT] {
        let Self { accepted, delivered, bounced, expired, deleted, moved } = *self;
        [accepted, delivered, bounced, expired, deleted, moved]
    }

    /// Returns the totals of these numbers; `None` if one is too high.
    pub(crate) fn from_numbers(numbers: [u64; Self::COUNT]) -> Option<Self> {
        let [accepted, delivered, bounced, expired, deleted, moved] = numbers;
        let totals = Self { accepted, delivered, bounced, expired, deleted, moved };
        numbers.iter().all(|number| *number <= TOTAL_MAX).then_some(totals)
    }

    /// Adds what an entry accepts, and what it ends.
    pub fn count(&mut self, entry: &Entry) {
        match entry {
            Entry::Accept(message) => self.accepted += message.envelope.recipients.len() as u64,
            Entry::Import(found) => self.accepted += open_recipients(&found.recipients),
            Entry::Outcome { results, .. } => {
                results
                    .iter()
                    .filter_map(|(_, outcome)| outcome.finished_as())
                    .for_each(|as_| self.finish(as_));
            }
            // The spool does not know how many recipients are left: a deletion comes with a count.
            Entry::Control { .. } => {}
            Entry::Count(totals) => self.add(totals),
        }
    }

    fn finish(&mut self, finished_as: FinishedAs) {
        *match finished_as {
            FinishedAs::Delivered => &mut self.delivered,
            FinishedAs::Bounced => &mut self.bounced,
            FinishedAs::Expired => &mut self.expired,
            FinishedAs::Deleted => &mut self.deleted,
            FinishedAs::Moved => &mut self.moved,
        } += 1;
    }

    /// Adds field by field.
    pub fn add(&mut self, other: &Self) {
        self.accepted += other.accepted;
        self.delivered += other.delivered;
        self.bounced += other.bounced;
        self.expired += other.expired;
        self.deleted += other.deleted;
        self.moved += other.moved;
    }

    /// Returns the number of recipients that are finished here.
    pub fn finished(&self) -> u64 {
        self.delivered + self.bounced + self.expired + self.deleted + self.moved
    }

    /// Returns the number of recipients that must be left; `None` if more are finished than were accepted.
    pub fn left(&self) -> Option<u64> {
        self.accepted.checked_sub(self.finished())
    }

    /// Compares the totals with the number of recipients that recovery found. If they differ, as many are counted as
    /// accepted as there are, so that the next start does not report the difference again.
    pub(crate) fn agree(&mut self, found: u64) -> Option<Imbalance> {
        if self.left() == Some(found) {
            return None;
        }
        let imbalance = Imbalance { totals: *self, found };
        self.accepted = self.finished() + found;
        Some(imbalance)
    }
}

/// Returns the number of recipients that are left.
pub(crate) fn open_recipients(states: &[RecipientState]) -> u64 {
    states.iter().filter(|state| !state.settled).count() as u64
}

/// A difference between the totals and the recipients that recovery found: lost or invented mail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Imbalance {
    /// As the spool has counted them.
    pub totals: Totals,
    /// Recipients that are left according to the messages.
    pub found: u64,
}

impl fmt::Display for Imbalance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (accepted, finished) = (self.totals.accepted, self.totals.finished());
        let left = i128::from(accepted) - i128::from(finished);
        write!(
            f,
            "according to the totals {left} recipients are left ({accepted} accepted, {finished} finished), but {} \
             were found",
            self.found
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mail::{Cause, Enhanced, Outcome, QueueId};

    fn outcome(results: Vec<Outcome>) -> Entry {
        Entry::Outcome { id: QueueId(1), results: (0..).zip(results).collect(), last: true }
    }

    #[test]
    fn each_finished_recipient_is_counted_once_and_a_deferred_one_is_not() {
        let failed = |cause| Outcome::failed(Enhanced(5, 0, 0), "x").because(cause);
        let mut totals = Totals { accepted: 9, ..Totals::default() };
        totals.count(&outcome(vec![
            Outcome::delivered(Enhanced(2, 0, 0), "x"),
            Outcome::deferred(Enhanced(4, 0, 0), "x"),
            failed(Cause::Local),
            failed(Cause::Returned),
            failed(Cause::Expired),
            failed(Cause::Deleted),
        ]));
        totals.count(&Entry::Count(Totals { deleted: 2, moved: 1, ..Totals::default() }));
        let numbers = [9, 1, 2, 1, 3, 1];
        assert_eq!((totals.numbers(), totals.left()), (numbers, Some(1)));
        assert_eq!(Totals::from_numbers(numbers), Some(totals));
    }

    #[test]
    fn a_difference_names_both_numbers_and_is_told_once() {
        let mut totals = Totals { accepted: 10, delivered: 4, ..Totals::default() };
        assert_eq!(totals.agree(6), None);
        let told = totals.agree(5).unwrap().to_string();
        assert_eq!(
            told,
            "according to the totals 6 recipients are left (10 accepted, 4 finished), but 5 were found"
        );
        assert_eq!((totals.agree(5), totals.accepted), (None, 9));
    }

    #[test]
    fn numbers_that_no_spool_can_have_reached_are_refused() {
        assert_eq!(Totals::from_numbers([0, 0, 0, TOTAL_MAX + 1, 0, 0]), None);
    }
}
