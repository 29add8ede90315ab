//! The records that the queue keeps of a message, and of its recipients at one destination.

use crate::{
    Millis,
    list::{Link, Linked, NONE},
};
use mail::QueueId;
use std::num::NonZeroU16;

/// The number of a job: valid from [`crate::Queue::lease_next`] until the job is completed.
pub type JobId = u32;

/// Indexes of recipients in the envelope. Most jobs have one recipient.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recipients {
    /// Most jobs have one recipient, which needs no allocation.
    One(u32),
    /// Several, in ascending order.
    Several(Box<[u32]>),
}

impl Recipients {
    /// Returns the recipients with these indexes, which must be in ascending order.
    pub fn new(indexes: &[u32]) -> Self {
        match indexes {
            [one] => Self::One(*one),
            several => Self::Several(several.into()),
        }
    }

    /// Returns the indexes, in ascending order.
    pub fn as_slice(&self) -> &[u32] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Several(several) => several,
        }
    }
}

/// Which list a job is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JobState {
    Ready,
    InFlight,
    Waiting,
    Held,
}

/// The attempts and the state of a job in 16 bits, never zero: there are as many of these as of jobs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PackedState(NonZeroU16);

impl PackedState {
    const ATTEMPTS_MAX: u16 = u16::MAX >> 3;

    pub(crate) fn new(state: JobState, attempt_count: u16) -> Self {
        let number = match state {
            JobState::Ready => NonZeroU16::MIN,
            JobState::InFlight => NonZeroU16::MIN | 1 << 1,
            JobState::Waiting => NonZeroU16::MIN | 2 << 1,
            JobState::Held => NonZeroU16::MIN | 3 << 1,
        };
        Self(number | attempt_count.min(Self::ATTEMPTS_MAX) << 3)
    }

    fn state(self) -> JobState {
        match self.0.get() >> 1 & 3 {
            0 => JobState::Ready,
            1 => JobState::InFlight,
            2 => JobState::Waiting,
            _ => JobState::Held,
        }
    }
}

/// The recipients of one message at one destination.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) recipients: Recipients,
    /// Waiting: when the next attempt is due. Ready: since when.
    pub(crate) due: Millis,
    pub(crate) message: u32,
    pub(crate) destination: u32,
    /// The next job of the same message; [`NONE`] in the last one.
    pub(crate) sibling: u32,
    pub(crate) link: Link,
    /// Waiting: its slot on the wheel.
    pub(crate) slot: u16,
    pub(crate) packed_state: PackedState,
}

impl Job {
    pub(crate) fn state(&self) -> JobState {
        self.packed_state.state()
    }

    pub(crate) fn set_state(&mut self, state: JobState) {
        self.packed_state = PackedState::new(state, self.attempt_count());
    }

    /// Attempts so far; it stops counting at some thousands.
    pub(crate) fn attempt_count(&self) -> u16 {
        self.packed_state.0.get() >> 3
    }

    pub(crate) fn count_attempt(&mut self) {
        self.packed_state = PackedState::new(self.state(), self.attempt_count() + 1);
    }
}

impl Linked for Job {
    fn link(&mut self) -> &mut Link {
        &mut self.link
    }

    fn next(&self) -> u32 {
        self.link.next
    }
}

#[cfg(test)]
impl Job {
    pub(crate) fn for_test() -> Self {
        Self {
            recipients: Recipients::One(0),
            due: 0,
            message: 0,
            destination: 0,
            sibling: NONE,
            link: Link::default(),
            slot: 0,
            packed_state: PackedState::new(JobState::Waiting, 0),
        }
    }
}

/// The next deadline of a message, by its age.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NextDeadline {
    /// Its sender is warned of the delay then.
    Warning,
    /// What is left is returned then.
    Expiry,
    /// None: the message is held beyond its lifetime, or expired with attempts in flight.
    None,
}

#[derive(Debug)]
pub(crate) struct QueuedMessage {
    pub(crate) id: QueueId,
    /// The time of acceptance; of a message that is held until its release (RFC 4865), the time of the release.
    pub(crate) arrived: Millis,
    pub(crate) size_bytes: u32,
    /// The others follow by [`Job::sibling`].
    pub(crate) jobs: u32,
    pub(crate) link: Link,
    pub(crate) next_deadline: NextDeadline,
    pub(crate) held: bool,
    /// The message is larger than the size up to which small messages go first.
    pub(crate) is_bulk: bool,
    /// It has a priority or a deadline, and so a place in [`crate::ranked_jobs`].
    pub(crate) is_ranked: bool,
    pub(crate) priority: i8,
}

impl Linked for QueuedMessage {
    fn link(&mut self) -> &mut Link {
        &mut self.link
    }

    fn next(&self) -> u32 {
        self.link.next
    }
}

impl QueuedMessage {
    pub(crate) fn new(id: QueueId, arrived: Millis, size_bytes: u64) -> Self {
        Self {
            id,
            arrived,
            size_bytes: u32::try_from(size_bytes).unwrap_or(u32::MAX),
            jobs: NONE,
            link: Link::default(),
            next_deadline: NextDeadline::None,
            held: false,
            is_bulk: false,
            is_ranked: false,
            priority: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_and_its_unit_are_small() {
        assert_eq!((size_of::<Option<QueuedMessage>>(), size_of::<Option<Job>>()), (40, 48));
    }

    #[test]
    fn attempts_and_place_do_not_disturb_each_other() {
        let mut job = Job::for_test();
        for state in [JobState::Ready, JobState::InFlight, JobState::Waiting, JobState::Held] {
            job.set_state(state);
            job.count_attempt();
            assert_eq!(job.state(), state);
        }
        assert_eq!(job.attempt_count(), 4);
        job.packed_state = PackedState::new(JobState::Held, u16::MAX);
        job.count_attempt();
        assert_eq!((job.attempt_count(), job.state()), (PackedState::ATTEMPTS_MAX, JobState::Held));
    }
}
