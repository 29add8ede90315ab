//! What checks found of a message, for checks that are asked later.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The findings of the open transaction: tags, for which rules at the content can ask as for those that other rules have set.
#[derive(Debug, Default)]
pub struct Findings(Mutex<Vec<Box<str>>>);

impl Findings {
    fn tags_mut(&self) -> MutexGuard<'_, Vec<Box<str>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets everything, as a new transaction does.
    pub(crate) fn clear(&self) {
        self.tags_mut().clear();
    }

    /// Adds a tag of the message.
    pub(crate) fn tag(&self, tag: impl Into<Box<str>>) {
        self.tags_mut().push(tag.into());
    }

    /// Returns the tags.
    pub(crate) fn tags(&self) -> Vec<Box<str>> {
        self.tags_mut().clone()
    }
}
