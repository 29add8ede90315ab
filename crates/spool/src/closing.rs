//! A flag that says that a spool is being closed, and waits that end when the flag is set.

use std::{
    sync::{Condvar, Mutex, PoisonError},
    time::Duration,
};

/// Set once, when the spool is closed; never unset.
#[derive(Default)]
pub(crate) struct Closing {
    is_closing: Mutex<bool>,
    wakeup: Condvar,
}

impl Closing {
    /// Ends all waits.
    pub(crate) fn begin(&self) {
        *self.is_closing.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.wakeup.notify_all();
    }

    /// Is the spool being closed?
    pub(crate) fn is_begun(&self) -> bool {
        *self.is_closing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits so long; `false` when the spool is being closed.
    pub(crate) fn wait(&self, most: Duration) -> bool {
        let guard = self.is_closing.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.wakeup.wait_timeout_while(guard, most, |is_closing| !*is_closing);
        !*waited.unwrap_or_else(PoisonError::into_inner).0
    }
}
