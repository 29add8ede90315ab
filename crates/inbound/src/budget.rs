//! Sessions and bytes that are in use, and how many may be.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

/// Counts what all sessions of the process use together.
#[derive(Debug, Default)]
pub struct Budget {
    sessions: AtomicUsize,
    content_bytes: AtomicUsize,
    by_client: Mutex<HashMap<IpAddr, usize>>,
}

impl Budget {
    /// Returns how many sessions are open.
    pub fn session_count(&self) -> usize {
        self.sessions.load(Ordering::Relaxed)
    }

    /// Content in memory that is still arriving or waits for its commit.
    pub fn content_bytes(&self) -> usize {
        self.content_bytes.load(Ordering::Relaxed)
    }

    /// Counts a session in until the guard is dropped. `None`: the limit is reached. Only clients that are not trusted are counted by
    /// their address, or by their IPv6 network /64.
    pub fn enter(self: &Arc<Self>, max: usize, client: Option<(IpAddr, usize)>) -> Option<SessionPermit> {
        let client = client.map(|(ip, max)| (limits::network(ip), max));
        if self.sessions.fetch_add(1, Ordering::Relaxed) >= max {
            self.sessions.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let mut guard = SessionPermit { budget: self.clone(), client: None };
        if let Some((ip, max)) = client {
            let mut by_client = self.by_client.lock().unwrap_or_else(PoisonError::into_inner);
            let count = by_client.entry(ip).or_default();
            if *count >= max {
                drop(by_client);
                return None;
            }
            *count += 1;
            guard.client = Some(ip);
        }
        Some(guard)
    }

    pub(crate) fn add_content(&self, bytes: usize) {
        self.content_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn release_content(&self, bytes: usize) {
        self.content_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Counts a session in the budget until it is dropped.
#[derive(Debug)]
pub struct SessionPermit {
    budget: Arc<Budget>,
    client: Option<IpAddr>,
}

impl Drop for SessionPermit {
    fn drop(&mut self) {
        self.budget.sessions.fetch_sub(1, Ordering::Relaxed);
        let Some(ip) = self.client else { return };
        let mut by_client = self.budget.by_client.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = by_client.get_mut(&ip) {
            *count -= 1;
            if *count == 0 {
                by_client.remove(&ip);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_given_back_and_refusals_cost_none() {
        let budget = Arc::new(Budget::default());
        let ip: IpAddr = "192.0.2.1".parse().unwrap();
        let first = budget.enter(2, Some((ip, 1))).unwrap();
        assert!(budget.enter(2, Some((ip, 1))).is_none());
        assert_eq!(budget.session_count(), 1);
        let second = budget.enter(2, None).unwrap();
        assert!(budget.enter(2, None).is_none());
        drop((first, second));
        assert_eq!(budget.session_count(), 0);
        assert!(budget.enter(2, Some((ip, 1))).is_some());
    }

    #[test]
    fn who_has_one_ipv6_address_has_its_network() {
        let budget = Arc::new(Budget::default());
        let enter = |ip: &str| budget.enter(9, Some((ip.parse().unwrap(), 2)));
        let (first, second) = (enter("2001:db8::1").unwrap(), enter("2001:db8::2").unwrap());
        assert!(enter("2001:db8:0:0:ffff::3").is_none());
        assert!(enter("2001:db8:0:1::3").is_some());
        drop((first, second));
        assert!(enter("2001:db8::3").is_some());
    }
}
