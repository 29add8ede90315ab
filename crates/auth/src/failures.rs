//! Counts of failed logins, by client and by user.

use std::{
    collections::HashMap,
    net::IpAddr,
    time::{Duration, Instant},
};

/// Time for which failures are counted together.
const WINDOW: Duration = Duration::from_secs(600);
/// Clients and users that are counted at most.
const MOST: usize = 100_000;
/// No reply is delayed longer.
const LONGEST_DELAY: Duration = Duration::from_secs(8);
/// Failures of a user in the window before replies to others become slower, too.
const USUAL_FAILURES: u32 = 5;

#[derive(Debug, PartialEq, Eq, Hash)]
enum Key {
    /// IPv6 addresses are counted by their network /64.
    Client(IpAddr),
    /// In lower case.
    User(Box<str>),
}

#[derive(Debug)]
struct Count {
    failures: u32,
    until: Instant,
}

/// What follows from one more failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counted {
    /// In the window, with this one.
    pub of_client: u32,
    /// The delay of the reply: a second for the first failure, more for each further one, and for users whose password
    /// many try to guess.
    pub delay: Duration,
}

/// Failed logins of the last ten minutes.
#[derive(Debug, Default)]
pub struct FailedLogins {
    counts: HashMap<Key, Count>,
}

impl FailedLogins {
    /// Returns the failures of a client: an IPv4 address, or an IPv6 network /64.
    pub fn of_client(&self, client: IpAddr, now: Instant) -> u32 {
        self.get(&Key::Client(limits::network(client)), now)
    }

    /// Counts a failure. `in_session`: the failures of the session, with this one.
    pub fn count(&mut self, client: IpAddr, user: Option<&str>, in_session: u32, now: Instant) -> Counted {
        let of_client = self.add(Key::Client(limits::network(client)), now);
        let of_user = user.map_or(0, |user| self.add(Key::User(user.to_lowercase().into()), now));
        let seconds = in_session.max(of_user.saturating_sub(USUAL_FAILURES));
        Counted { of_client, delay: Duration::from_secs(seconds.into()).min(LONGEST_DELAY) }
    }

    fn get(&self, key: &Key, now: Instant) -> u32 {
        self.counts.get(key).filter(|count| count.until > now).map_or(0, |count| count.failures)
    }

    fn add(&mut self, key: Key, now: Instant) -> u32 {
        if self.counts.len() >= MOST {
            self.counts.retain(|_, count| count.until > now);
        }
        // With this many attackers counting does not help; what is known of the others is kept.
        if self.counts.len() >= MOST && !self.counts.contains_key(&key) {
            return 1;
        }
        let count = self.counts.entry(key).or_insert(Count { failures: 0, until: now + WINDOW });
        if count.until <= now {
            *count = Count { failures: 0, until: now + WINDOW };
        }
        count.failures += 1;
        count.failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn clients_are_counted_by_address_or_network_for_ten_minutes() {
        let (mut failed, now) = (FailedLogins::default(), Instant::now());
        for client in ["192.0.2.1", "::ffff:192.0.2.1", "2001:db8:0:1::1", "2001:db8:0:1::2"] {
            failed.count(ip(client), None, 1, now);
        }
        assert_eq!(failed.of_client(ip("192.0.2.1"), now), 2);
        assert_eq!(failed.of_client(ip("2001:db8:0:1:ffff::"), now), 2);
        assert_eq!(failed.of_client(ip("192.0.2.2"), now), 0);
        assert_eq!(failed.of_client(ip("2001:db8:0:2::1"), now), 0);
        assert_eq!(failed.of_client(ip("192.0.2.1"), now + WINDOW), 0);
        failed.count(ip("192.0.2.1"), None, 1, now + WINDOW);
        assert_eq!(failed.of_client(ip("192.0.2.1"), now + WINDOW), 1);
    }

    #[test]
    fn each_failure_takes_longer_and_so_do_those_of_a_user_whom_many_try() {
        let (mut failed, now) = (FailedLogins::default(), Instant::now());
        let seconds = |counted: Counted| counted.delay.as_secs();
        assert_eq!(seconds(failed.count(ip("192.0.2.1"), Some("joe"), 1, now)), 1);
        assert_eq!(seconds(failed.count(ip("192.0.2.1"), Some("ann"), 2, now)), 2);
        let last = (2..=9).map(|n| failed.count(ip(&format!("192.0.2.{n}")), Some("JOE"), 1, now)).last();
        assert_eq!(last.map(seconds), Some(4));
        assert_eq!(seconds(failed.count(ip("192.0.2.1"), Some("ann"), 99, now)), 8);
    }

    #[test]
    fn the_table_has_a_size() {
        let (mut failed, now) = (FailedLogins::default(), Instant::now());
        for number in 0..=MOST as u32 {
            failed.count(IpAddr::V4(number.into()), None, 1, now);
        }
        assert_eq!(failed.counts.len(), MOST);
        failed.count(ip("192.0.2.1"), None, 1, now + WINDOW);
        assert_eq!(failed.counts.len(), 1);
    }
}
