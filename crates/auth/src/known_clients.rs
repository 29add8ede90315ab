//! Clients that have logged in before: their logins are checked although many strangers try to guess passwords.

use std::{
    collections::HashMap,
    net::IpAddr,
    time::{Duration, Instant},
};

/// Time for which a client is known after its last login.
const KEPT: Duration = Duration::from_secs(30 * 86400);
/// Time after which the clients that did not come back are forgotten, when there are too many.
const KEPT_WHEN_FULL: Duration = Duration::from_secs(86400);
/// Clients that are known at most.
const MOST: usize = 100_000;

/// The clients whose login was right in the last thirty days: IPv4 addresses, and IPv6 networks /64.
#[derive(Debug, Default)]
pub struct KnownClients {
    last: HashMap<IpAddr, Instant>,
}

impl KnownClients {
    /// Returns whether somebody logged in from there.
    pub fn knows(&self, client: IpAddr, now: Instant) -> bool {
        self.last.get(&limits::network(client)).is_some_and(|last| now < *last + KEPT)
    }

    /// Remembers that somebody logged in from there.
    pub fn remember(&mut self, client: IpAddr, now: Instant) {
        let client = limits::network(client);
        if self.last.len() >= MOST && !self.last.contains_key(&client) {
            self.last.retain(|_, last| now < *last + KEPT_WHEN_FULL);
            if self.last.len() >= MOST {
                return;
            }
        }
        self.last.insert(client, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_client_is_known_by_its_address_or_network_for_thirty_days() {
        let (mut known, now) = (KnownClients::default(), Instant::now());
        assert!(!known.knows(ip("192.0.2.1"), now));
        known.remember(ip("192.0.2.1"), now);
        known.remember(ip("2001:db8::1"), now);
        let later = now + KEPT - Duration::from_secs(1);
        assert!(known.knows(ip("::ffff:192.0.2.1"), later) && known.knows(ip("2001:db8::2"), later));
        assert!(!known.knows(ip("192.0.2.2"), later) && !known.knows(ip("2001:db8:0:1::1"), later));
        assert!(!known.knows(ip("192.0.2.1"), now + KEPT));
    }

    #[test]
    fn those_who_come_back_are_not_forgotten_for_new_ones() {
        let (mut known, now) = (KnownClients::default(), Instant::now());
        for number in 0..MOST as u32 {
            known.remember(IpAddr::V4(number.into()), now);
        }
        let next_day = now + KEPT_WHEN_FULL - Duration::from_secs(1);
        known.remember(ip("0.0.0.1"), next_day);
        known.remember(ip("192.0.2.1"), next_day);
        assert!(!known.knows(ip("192.0.2.1"), next_day) && known.knows(ip("0.0.0.2"), next_day));
        known.remember(ip("192.0.2.1"), next_day + Duration::from_secs(1));
        assert!(known.knows(ip("192.0.2.1"), next_day) && known.knows(ip("0.0.0.1"), next_day));
        assert!(!known.knows(ip("0.0.0.2"), next_day));
    }
}
