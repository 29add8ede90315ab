//! One monotonic clock for deciding, tied once to the wall clock for what people read.

use mail::UnixMillis;
use queue::Millis;
use std::time::Instant;

/// The daemon's clock; its zero is its start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    started: Instant,
    wall: UnixMillis,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { started: Instant::now(), wall: UnixMillis::now() }
    }

    /// The queue's time now.
    pub(crate) fn now(&self) -> Millis {
        Millis::try_from(self.started.elapsed().as_millis()).unwrap_or(Millis::MAX)
    }

    /// A time read on the wall, on the queue's clock; negative before the start.
    pub(crate) fn of_wall(&self, at: UnixMillis) -> Millis {
        at.0 as Millis - self.wall.0 as Millis
    }

    /// A time of the queue's clock, for people.
    pub(crate) fn on_wall(&self, at: Millis) -> UnixMillis {
        UnixMillis((self.wall.0 as Millis).saturating_add(at).max(0) as u64)
    }
}
