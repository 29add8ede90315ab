//! A monotonic clock for decisions, related once to the wall clock for output.

use super::workers;
use engine::Context;
use mail::UnixMillis;
use queue::Millis;
use std::time::Instant;

/// Counts from the daemon's start, and knows the wall clock then.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    started: Instant,
    wall: UnixMillis,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { started: Instant::now(), wall: UnixMillis::now() }
    }

    /// Milliseconds since the daemon's start: the time of queue and engine.
    pub(crate) fn now(&self) -> Millis {
        Millis::try_from(self.started.elapsed().as_millis()).unwrap_or(Millis::MAX)
    }

    /// Both clocks at the start.
    pub(crate) fn start_context(&self) -> Context {
        Context { now: 0, wall: self.wall, worker: None }
    }

    /// Both clocks now, and the worker that asks.
    pub(crate) fn context(&self) -> Context {
        Context { now: self.now(), wall: UnixMillis::now(), worker: workers::number() }
    }
}
