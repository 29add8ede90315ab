//! The step of an attempt that is under way, for operators who ask while it lasts.

use mail::Outcome;
use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// What a connection is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The server as in [`mail::Attempt::relay`]; empty while none is known.
    pub server: Box<str>,
    /// The step in words that follow "while": `receiving the initial server greeting`. Empty while a server that has taken
    /// mail answers soon, and for deliveries on this machine.
    pub name: &'static str,
    /// When the server was last heard, or the step began.
    pub since: Instant,
    /// The outcome of the server that was tried before, in the same attempt.
    pub earlier: Option<Box<str>>,
}

/// What a connection waits for now. The connection writes it; operators' lists read it.
#[derive(Debug, Default)]
pub struct Progress(Mutex<Option<Step>>);

impl Progress {
    /// Returns the step; none before the connection has begun.
    pub fn step(&self) -> Option<Step> {
        self.lock().clone()
    }

    /// Begins with a server, or with the search for one if `server` is empty.
    pub(crate) fn turn_to(&self, server: &str, name: &'static str) {
        let mut step = self.lock();
        let earlier = step.take().and_then(|step| step.earlier);
        *step = Some(Step { server: server.into(), name, since: Instant::now(), earlier });
    }

    /// Begins the next step with the same server, which has been silent for this time.
    pub(crate) fn wait(&self, name: &'static str, silence: Duration) {
        if let Some(step) = &mut *self.lock() {
            (step.name, step.since) = (name, Instant::now().checked_sub(silence).unwrap_or(step.since));
        }
    }

    /// The server answers, or is not waited for any more.
    pub(crate) fn clear(&self) {
        if let Some(step) = &mut *self.lock() {
            (step.name, step.earlier) = ("", None);
        }
    }

    /// Notes the outcome of the server, before the next one is tried.
    pub(crate) fn failed(&self, outcome: &Outcome) {
        if let Some(step) = &mut *self.lock() {
            step.earlier = Some((*outcome.text).into());
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Step>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
