//! A bounded number of messages in memory for one purpose: thousands of messages that expire together are not read
//! back together.

use std::collections::VecDeque;

/// Permits, and a queue of what waits for one.
#[derive(Debug)]
pub(crate) struct Permits<T> {
    free: usize,
    total: usize,
    waiting: VecDeque<T>,
}

impl<T> Permits<T> {
    pub(crate) fn new(total: usize) -> Self {
        Self { free: total, total, waiting: VecDeque::new() }
    }

    /// Takes a permit if one is free.
    pub(crate) fn try_acquire(&mut self) -> bool {
        let is_free = self.free > 0;
        self.free -= usize::from(is_free);
        is_free
    }

    /// Returns `one` if there is a permit for it, which it then holds. Else it waits.
    pub(crate) fn acquire(&mut self, one: T) -> Option<T> {
        if self.try_acquire() {
            return Some(one);
        }
        self.waiting.push_back(one);
        None
    }

    /// Queues one that waits for a permit, behind those that wait already.
    pub(crate) fn wait(&mut self, one: T) {
        self.waiting.push_back(one);
    }

    /// Releases a permit. The first of the queue gets the permit and is returned.
    pub(crate) fn release(&mut self) -> Option<T> {
        let next = self.waiting.pop_front();
        if next.is_none() {
            self.free += 1;
            assert!(self.free <= self.total, "a permit is given back once");
        }
        next
    }

    pub(crate) fn waiting(&self) -> impl ExactSizeIterator<Item = &T> {
        self.waiting.iter()
    }

    pub(crate) fn used_count(&self) -> usize {
        self.total - self.free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_released_permit_goes_to_what_waited_longest() {
        let mut permits = Permits::new(1);
        assert_eq!(permits.acquire(1), Some(1));
        assert_eq!((permits.acquire(2), permits.acquire(3)), (None, None));
        assert_eq!((permits.release(), permits.release(), permits.release()), (Some(2), Some(3), None));
        assert_eq!(permits.used_count(), 0);
    }
}
