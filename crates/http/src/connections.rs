//! Open connections of a listener that closes old ones for new ones.

use limits::network;
use std::{collections::VecDeque, net::IpAddr};

/// The open connections of a listener, the oldest first. `H` is what closes a connection.
///
/// A new connection is never refused: clients that send nothing must not keep others out. A client that has too many
/// loses its own oldest connection; when the listener has too many, the oldest of all is closed.
#[derive(Debug)]
pub struct OpenConnections<H> {
    open: VecDeque<(Option<IpAddr>, H)>,
    max: usize,
    max_per_client: usize,
}

impl<H> OpenConnections<H> {
    /// Returns an empty list for `max` connections at a time, and `max_per_client` of one client.
    pub fn new(max: usize, max_per_client: usize) -> Self {
        assert!(max > 0 && max_per_client > 0, "a listener has room for a connection");
        Self { open: VecDeque::new(), max, max_per_client }
    }

    /// Forgets the connections that have ended, and returns the one that has to be closed for a new one of this client.
    /// A client is an IPv4 address or an IPv6 network /64. Clients without an address are counted in the total only.
    pub fn make_room(&mut self, client: Option<IpAddr>, has_ended: impl Fn(&H) -> bool) -> Option<H> {
        self.open.retain(|(_, connection)| !has_ended(connection));
        let client = client.map(network);
        let is_own = |(other, _): &&(Option<IpAddr>, H)| client.is_some() && *other == client;
        let oldest = if self.open.iter().filter(is_own).count() >= self.max_per_client {
            self.open.iter().position(|entry| is_own(&entry))
        } else {
            (self.open.len() >= self.max).then_some(0)
        };
        oldest.and_then(|number| self.open.remove(number)).map(|(_, connection)| connection)
    }

    /// Adds a connection, for which [`make_room`](Self::make_room) has made room.
    pub fn add(&mut self, client: Option<IpAddr>, connection: H) {
        self.open.push_back((client.map(network), connection));
        assert!(self.open.len() <= self.max, "room is made before a connection is added");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connect(open: &mut OpenConnections<u32>, ip: &str, number: u32) -> Option<u32> {
        let client = Some(ip.parse().unwrap());
        let closed = open.make_room(client, |_| false);
        open.add(client, number);
        closed
    }

    #[test]
    fn a_client_with_too_many_connections_loses_its_own_oldest() {
        let mut open = OpenConnections::new(100, 2);
        assert_eq!(connect(&mut open, "192.0.2.9", 0), None);
        assert_eq!(connect(&mut open, "192.0.2.1", 1), None);
        assert_eq!(connect(&mut open, "::ffff:192.0.2.1", 2), None);
        assert_eq!(connect(&mut open, "192.0.2.1", 3), Some(1));
        assert_eq!(connect(&mut open, "2001:db8::1", 4), None);
        assert_eq!(connect(&mut open, "2001:db8::2", 5), None);
        assert_eq!(connect(&mut open, "2001:db8::3", 6), Some(4));
        assert_eq!(connect(&mut open, "2001:db8:0:1::1", 7), None);
    }

    #[test]
    fn the_oldest_of_all_is_closed_when_a_listener_is_full() {
        let mut open = OpenConnections::new(3, 2);
        for number in 0..3 {
            assert_eq!(connect(&mut open, &format!("192.0.2.{number}"), number), None);
        }
        assert_eq!(connect(&mut open, "192.0.2.3", 3), Some(0));
        // Without an address: connections of a Unix socket.
        assert_eq!(open.make_room(None, |_| false), Some(1));
    }

    #[test]
    fn connections_that_have_ended_need_no_room() {
        let mut open = OpenConnections::new(2, 1);
        connect(&mut open, "192.0.2.1", 1);
        connect(&mut open, "192.0.2.2", 2);
        let client = Some("192.0.2.1".parse().unwrap());
        assert_eq!(open.make_room(client, |number| *number == 1), None);
    }
}
