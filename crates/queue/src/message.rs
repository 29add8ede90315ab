//! What the queue keeps of a message, and of its recipients at one destination.

use crate::{
    Millis,
    list::{Link, Linked, NONE},
};
use mail::QueueId;
use std::num::NonZeroU16;

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

/// Attempts and place in 16 bits, never zero, since there are as many of these as of messages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Standing(NonZeroU16);

impl Standing {
    const ATTEMPTS_MAX: u16 = u16::MAX >> 3;

    pub(crate) fn new(place: Place, attempt_count: u16) -> Self {
        let number = match place {
            Place::Ready => NonZeroU16::MIN,
            Place::InFlight => NonZeroU16::MIN | 1 << 1,
            Place::Waiting => NonZeroU16::MIN | 2 << 1,
            Place::Held => NonZeroU16::MIN | 3 << 1,
        };
        Self(number | attempt_count.min(Self::ATTEMPTS_MAX) << 3)
    }

    fn place(self) -> Place {
        match self.0.get() >> 1 & 3 {
            0 => Place::Ready,
            1 => Place::InFlight,
            2 => Place::Waiting,
            _ => Place::Held,
        }
    }
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
    pub(crate) slot: u16,
    pub(crate) standing: Standing,
}

impl Unit {
    pub(crate) fn place(&self) -> Place {
        self.standing.place()
    }

    pub(crate) fn set_place(&mut self, place: Place) {
        self.standing = Standing::new(place, self.attempt_count());
    }

    /// Attempts so far; it stops counting at some thousands.
    pub(crate) fn attempt_count(&self) -> u16 {
        self.standing.0.get() >> 3
    }

    pub(crate) fn count_attempt(&mut self) {
        self.standing = Standing::new(self.place(), self.attempt_count() + 1);
    }
}

impl Linked for Unit {
    fn link(&mut self) -> &mut Link {
        &mut self.link
    }

    fn next(&self) -> u32 {
        self.link.next
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
            standing: Standing::new(Place::Waiting, 0),
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
    /// Over the size up to which small messages go first.
    pub(crate) is_bulk: bool,
}

impl Linked for Entry {
    fn link(&mut self) -> &mut Link {
        &mut self.link
    }

    fn next(&self) -> u32 {
        self.link.next
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
            is_bulk: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_and_its_unit_are_small() {
        assert_eq!((size_of::<Option<Entry>>(), size_of::<Option<Unit>>()), (40, 48));
    }

    #[test]
    fn attempts_and_place_do_not_disturb_each_other() {
        let mut unit = Unit::for_test();
        for place in [Place::Ready, Place::InFlight, Place::Waiting, Place::Held] {
            unit.set_place(place);
            unit.count_attempt();
            assert_eq!(unit.place(), place);
        }
        assert_eq!(unit.attempt_count(), 4);
        unit.standing = Standing::new(Place::Held, u16::MAX);
        unit.count_attempt();
        assert_eq!((unit.attempt_count(), unit.place()), (Standing::ATTEMPTS_MAX, Place::Held));
    }
}
