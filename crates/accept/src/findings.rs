//! What checks found of a message, for checks that are asked later.

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, Ordering::Relaxed},
};

/// What checks tell those that are asked later about the open transaction.
#[derive(Debug, Default)]
pub struct Findings {
    /// Rules at the content can ask for them as for those that other rules have set.
    tags: Mutex<Vec<Box<str>>>,
    /// A rule accepts the recipient that is judged, or trusts the client.
    is_spared: AtomicBool,
}

impl Findings {
    fn tags_mut(&self) -> MutexGuard<'_, Vec<Box<str>>> {
        self.tags.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets everything, as a new transaction does.
    pub(crate) fn clear(&self) {
        self.tags_mut().clear();
        self.spare(false);
    }

    /// Adds a tag of the message.
    pub(crate) fn tag(&self, tag: impl Into<Box<str>>) {
        self.tags_mut().push(tag.into());
    }

    pub(crate) fn tags(&self) -> Vec<Box<str>> {
        self.tags_mut().clone()
    }

    /// Notes whether the rules spare the recipient that is judged from checks of suspicious mail.
    pub(crate) fn spare(&self, is_spared: bool) {
        self.is_spared.store(is_spared, Relaxed);
    }

    /// Returns whether the rules spare the recipient that is judged.
    pub(crate) fn is_spared(&self) -> bool {
        self.is_spared.load(Relaxed)
    }
}
