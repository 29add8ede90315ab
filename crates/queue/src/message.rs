//! What the queue keeps of a message, and of its recipients at one destination.

use crate::{
    Millis,
    list::{Link, Linked, NONE},
};
use mail::QueueId;

/// A unit's place in the queue's table: valid from [`crate::Queue::take`] until it is settled.
pub type UnitId = u32;

/// Indexes of recipients in the envelope; one is by far the most common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recipients {
    /// One recipient.
    One(u32),
    /// Several, in ascending order.
    Several(Box<[u32]>),
}

impl Recipients {
    /// From indexes.
    pub fn new(indexes: &[u32]) -> Self {
        match indexes {
            [one] => Self::One(*one),
            several => Self::Several(several.into()),
        }
    }

    /// As a slice.
    pub fn as_slice(&self) -> &[u32] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Several(several) => several,
        }
    }
}

/// Where a unit is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Ready,
    InFlight,
    Waiting,
    Held,
}

/// The recipients of one message at one destination.
#[derive(Debug)]
pub(crate) struct Unit {
    pub(crate) recipients: Recipients,
    /// Waiting: when the next attempt is due. Ready: since when.
    pub(crate) due: Millis,
    pub(crate) message: u32,
    pub(crate) destination: u32,
    /// The next unit of the same message.
    pub(crate) sibling: u32,
    pub(crate) link: Link,
    /// Waiting: its slot on the wheel.
    pub(crate) slot: u32,
    pub(crate) attempt_count: u16,
    pub(crate) place: Place,
    /// Over the size up to which small messages go first.
    pub(crate) is_bulk: bool,
}

impl Linked for Unit {
    fn link(&mut self) -> &mut Link {
        &mut self.link
    }
}

#[cfg(test)]
impl Unit {
    pub(crate) fn for_test() -> Self {
        Self {
            recipients: Recipients::One(0),
            due: 0,
            message: 0,
            destination: 0,
            sibling: NONE,
            link: Link::default(),
            slot: 0,
            attempt_count: 0,
            place: Place::Waiting,
            is_bulk: false,
        }
    }
}

/// Which list of ages a message is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Age {
    /// Waits for its delay warning.
    Young,
    /// Waits for its expiry.
    Old,
    /// In neither: held beyond its time, or expired with attempts in flight.
    Unlisted,
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) id: QueueId,
    pub(crate) arrived: Millis,
    pub(crate) size_bytes: u32,
    /// The first of its units.
    pub(crate) units: u32,
    pub(crate) link: Link,
    pub(crate) age: Age,
    pub(crate) held: bool,
    /// Deleted by an operator while an attempt is in flight: no further attempt.
    pub(crate) doomed: bool,
}

impl Linked for Entry {
    fn link(&mut self) -> &mut Link {
        &mut self.link
    }
}

impl Entry {
    pub(crate) fn new(id: QueueId, arrived: Millis, size_bytes: u64) -> Self {
        Self {
            id,
            arrived,
            size_bytes: u32::try_from(size_bytes).unwrap_or(u32::MAX),
            units: NONE,
            link: Link::default(),
            age: Age::Unlisted,
            held: false,
            doomed: false,
        }
    }
}
