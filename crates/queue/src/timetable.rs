//! Times that few messages have: the release of a held message (RFC 4865), and the deadline of a delivery (RFC 2852).

use crate::Millis;
use std::collections::{BTreeSet, HashMap};

/// The scheduling that the sender of a message asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Schedule {
    /// No attempt is made before this time, and the lifetime of the message begins then.
    pub release: Option<Millis>,
    /// `BY` of MAIL (RFC 2852); `None` without it.
    pub deadline: Option<Deadline>,
    /// The recipients whom the deadline does not concern.
    pub without_deadline: Box<[u32]>,
    /// The priority, from -9 to 9. Messages above 0 go before others, messages below 0 go behind them.
    pub priority: i8,
}

/// The deadline of a message. Messages with a deadline go before others, but not for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadline {
    /// In the clock of the queue.
    pub at: Millis,
    /// True if the message fails when the deadline is over; else its sender gets a warning.
    pub returns: bool,
}

/// Releases and deadlines, by message.
#[derive(Debug, Default)]
pub(crate) struct Timetable {
    /// The deadlines of queued messages, those that are over included.
    deadlines: HashMap<u32, Deadline>,
    /// Deadlines that nothing was done about yet.
    open_deadlines: BTreeSet<(Millis, u32)>,
    /// The recipients whom the deadline of their message does not concern. Few messages have some.
    without: HashMap<u32, Box<[u32]>>,
    /// Messages that are not released yet.
    releases: BTreeSet<(Millis, u32)>,
}

impl Timetable {
    pub(crate) fn add_release(&mut self, message: u32, at: Millis) {
        self.releases.insert((at, message));
    }

    /// `is_told`: the sender was warned of the deadline before.
    pub(crate) fn add_deadline(&mut self, message: u32, deadline: Deadline, without: &[u32], is_told: bool) {
        self.deadlines.insert(message, deadline);
        if !without.is_empty() {
            self.without.insert(message, without.into());
        }
        if !is_told {
            self.open_deadlines.insert((deadline.at, message));
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.deadlines.is_empty() && self.releases.is_empty()
    }

    /// Forgets a message that leaves the queue. `arrived` is the time of its release, if it has one.
    pub(crate) fn remove(&mut self, message: u32, arrived: Millis) {
        if !self.releases.is_empty() {
            self.releases.remove(&(arrived, message));
        }
        if !self.deadlines.is_empty()
            && let Some(deadline) = self.deadlines.remove(&message)
        {
            self.open_deadlines.remove(&(deadline.at, message));
            self.without.remove(&message);
        }
    }

    /// Returns whether the deadline of a message concerns a recipient.
    pub(crate) fn concerns(&self, message: u32, recipient: u32) -> bool {
        self.without.get(&message).is_none_or(|without| !without.contains(&recipient))
    }

    pub(crate) fn deadline(&self, message: u32) -> Option<Deadline> {
        self.deadlines.get(&message).copied()
    }

    /// Returns whether its deadline is over and asked for a return.
    pub(crate) fn is_to_be_returned(&self, message: u32, now: Millis) -> bool {
        // The usual queue has no deadlines.
        !self.deadlines.is_empty()
            && self.deadline(message).is_some_and(|deadline| deadline.returns && deadline.at <= now)
    }

    /// Takes out a message that is released at `now`.
    pub(crate) fn pop_released(&mut self, now: Millis) -> Option<u32> {
        self.releases.first().filter(|(at, _)| *at <= now)?;
        self.releases.pop_first().map(|(_, message)| message)
    }

    /// Takes out a message whose deadline is over at `now`.
    pub(crate) fn pop_overdue(&mut self, now: Millis) -> Option<(u32, Deadline)> {
        self.open_deadlines.first().filter(|(at, _)| *at <= now)?;
        let (_, message) = self.open_deadlines.pop_first()?;
        Some((message, self.deadlines[&message]))
    }

    /// Lists a deadline again that was over while the message was held or in flight. A deadline that only warns is not
    /// listed twice.
    pub(crate) fn reopen(&mut self, message: u32) -> Option<Millis> {
        let deadline = self.deadline(message).filter(|deadline| deadline.returns)?;
        self.open_deadlines.insert((deadline.at, message));
        Some(deadline.at)
    }

    /// Returns the next time at which something is due.
    pub(crate) fn next_due(&self) -> Option<Millis> {
        let first = |times: &BTreeSet<(Millis, u32)>| times.first().map(|(at, _)| *at);
        first(&self.releases).into_iter().chain(first(&self.open_deadlines)).min()
    }

    /// Panics when a message is listed that is not queued.
    pub(crate) fn check_invariants(&self, arrived: impl Fn(u32) -> Option<Millis>) {
        for (at, message) in &self.releases {
            assert_eq!(
                arrived(*message),
                Some(*at),
                "the lifetime of a held message begins with its release"
            );
        }
        assert!(self.without.keys().all(|message| self.deadlines.contains_key(message)));
        for message in self.deadlines.keys() {
            assert!(arrived(*message).is_some(), "a message with a deadline is queued");
        }
        for (at, message) in &self.open_deadlines {
            assert_eq!(
                self.deadline(*message).map(|deadline| deadline.at),
                Some(*at),
                "a deadline is listed once"
            );
        }
    }
}
