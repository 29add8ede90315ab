//! A count of activities, each counted as long as its guard is not dropped.

use std::sync::Arc;

/// Gives out guards and counts those that are not dropped.
#[derive(Debug, Default)]
pub(super) struct ActiveCount(Arc<()>);

/// Counts as one activity until it is dropped.
#[derive(Debug)]
pub(super) struct ActiveGuard {
    _one: Arc<()>,
}

impl ActiveCount {
    pub(super) fn guard(&self) -> ActiveGuard {
        ActiveGuard { _one: self.0.clone() }
    }

    pub(super) fn count(&self) -> usize {
        Arc::strong_count(&self.0) - 1
    }
}
