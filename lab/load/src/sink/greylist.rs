//! Greylisting (RFC 6647): a recipient is refused for now until his first attempt is some time ago.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Recipients with the time of their first attempt. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Greylist(Arc<Mutex<HashMap<Box<[u8]>, Instant>>>);

impl Greylist {
    /// Notes an attempt, and returns whether it comes too early: less than `wait` behind the first one.
    pub(crate) fn is_early(&self, recipient: &[u8], wait: Duration, now: Instant) -> bool {
        let mut first_attempts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let first = *first_attempts.entry(recipient.to_ascii_lowercase().into()).or_insert(now);
        now < first + wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_recipient_waits_from_its_first_attempt_on() {
        let (list, start, wait) = (Greylist::default(), Instant::now(), Duration::from_secs(60));
        assert!(list.is_early(b"TO:<a@x>", wait, start));
        assert!(list.clone().is_early(b"TO:<A@x>", wait, start + wait / 2), "all sessions share it");
        assert!(list.is_early(b"TO:<b@x>", wait, start + wait));
        assert!(!list.is_early(b"TO:<a@x>", wait, start + wait), "an early attempt does not begin anew");
    }
}
