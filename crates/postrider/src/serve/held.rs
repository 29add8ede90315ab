//! How many of something there are, each as long as somebody holds on to it.

use std::sync::Arc;

/// Gives out holds and counts those that are not dropped.
#[derive(Debug, Default)]
pub(super) struct Held(Arc<()>);

/// One of them.
#[derive(Debug)]
pub(super) struct Hold {
    _one: Arc<()>,
}

impl Held {
    pub(super) fn hold(&self) -> Hold {
        Hold { _one: self.0.clone() }
    }

    pub(super) fn count(&self) -> usize {
        Arc::strong_count(&self.0) - 1
    }
}
