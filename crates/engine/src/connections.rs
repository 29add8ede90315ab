//! The connections that the driver has open or is opening.

use queue::{ConnectionCounts, DestinationId};
use std::collections::HashMap;

/// A connection's number, from [`crate::Effect::OpenConnection`] to [`crate::Event::ConnectionClosed`]. Numbers are
/// small, and given again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u32);

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) destination: DestinationId,
    /// The connection has leased a job, or found no host: see [`queue::Queue::connection_used`].
    pub(crate) was_used: bool,
    /// The connection was asked to make room: see [`queue::ConnectionRequest::Evict`].
    pub(crate) is_evicting: bool,
    pub(crate) lease_count: u32,
    is_idle: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Connections {
    slots: Vec<Option<Connection>>,
    free: Vec<u32>,
    /// Idle connections of each destination with the workers they are on, in the order in which they became idle.
    idle: HashMap<DestinationId, Vec<(Option<usize>, ConnectionId)>>,
}

impl Connections {
    pub(crate) fn open(&mut self, destination: DestinationId) -> ConnectionId {
        let connection =
            Connection { destination, was_used: false, is_evicting: false, lease_count: 0, is_idle: false };
        if let Some(at) = self.free.pop() {
            self.slots[at as usize] = Some(connection);
            return ConnectionId(at);
        }
        self.slots.push(Some(connection));
        ConnectionId(self.slots.len() as u32 - 1)
    }

    pub(crate) fn get(&self, id: ConnectionId) -> &Connection {
        self.slots[id.0 as usize].as_ref().expect("the connection is open")
    }

    pub(crate) fn get_mut(&mut self, id: ConnectionId) -> &mut Connection {
        self.slots[id.0 as usize].as_mut().expect("the connection is open")
    }

    /// The connection must not be idle.
    pub(crate) fn close(&mut self, id: ConnectionId) -> Connection {
        let connection = self.slots[id.0 as usize].take().expect("a connection is closed once");
        assert!(!connection.is_idle, "an idle connection leaves the idle list first");
        self.free.push(id.0);
        connection
    }

    pub(crate) fn set_idle(&mut self, id: ConnectionId, worker: Option<usize>) {
        let connection = self.get_mut(id);
        assert!(!connection.is_idle, "a connection becomes idle once");
        connection.is_idle = true;
        let destination = connection.destination;
        self.idle.entry(destination).or_default().push((worker, id));
    }

    /// Chooses an idle connection of a destination: one of this worker, which is woken without a system call, else
    /// any. The one that worked last comes first, so that superfluous connections stay idle and leave.
    pub(crate) fn take_idle(
        &mut self,
        destination: DestinationId,
        worker: Option<usize>,
    ) -> Option<ConnectionId> {
        let idle = self.idle.get_mut(&destination)?;
        let near = idle.iter().rposition(|(other, _)| *other == worker);
        let at = near.or(idle.len().checked_sub(1))?;
        let (_, id) = idle.remove(at);
        if idle.is_empty() {
            self.idle.remove(&destination);
        }
        self.get_mut(id).is_idle = false;
        Some(id)
    }

    /// Takes a connection out of the idle list; false if it is not there.
    pub(crate) fn remove_idle(&mut self, id: ConnectionId) -> bool {
        let connection = self.get_mut(id);
        if !std::mem::replace(&mut connection.is_idle, false) {
            return false;
        }
        let destination = connection.destination;
        let idle = self.idle.get_mut(&destination).expect("an idle connection is listed");
        idle.retain(|(_, other)| *other != id);
        if idle.is_empty() {
            self.idle.remove(&destination);
        }
        true
    }

    /// Takes every connection out of the idle lists.
    pub(crate) fn take_all_idle(&mut self) -> Vec<ConnectionId> {
        let mut all: Vec<ConnectionId> =
            self.idle.drain().flat_map(|(_, idle)| idle).map(|one| one.1).collect();
        all.sort_unstable();
        all.iter().for_each(|id| self.get_mut(*id).is_idle = false);
        all
    }

    /// Leases that connections have.
    pub(crate) fn lease_count(&self) -> u64 {
        self.slots.iter().flatten().map(|connection| u64::from(connection.lease_count)).sum()
    }

    /// Panics when a list does not agree with the connections. `counted` gives the connections of a destination as the
    /// queue counts them.
    pub(crate) fn check_invariants(
        &self,
        (open_count, evicting_count): (u32, u32),
        counted: impl Fn(DestinationId) -> ConnectionCounts,
    ) {
        let mut by_destination: HashMap<DestinationId, ConnectionCounts> = HashMap::new();
        let mut evicting = 0;
        for connection in self.slots.iter().flatten() {
            let counts = by_destination.entry(connection.destination).or_default();
            counts.open += 1;
            counts.idle += u32::from(connection.is_idle);
            counts.unused += u32::from(!connection.was_used);
            evicting += u32::from(connection.is_evicting);
            assert!(
                !(connection.is_idle && connection.is_evicting),
                "a connection that is evicted is not idle"
            );
        }
        let open: u32 = by_destination.values().map(|counts| counts.open).sum();
        assert_eq!(open, open_count, "no connection slot is lost");
        assert_eq!(evicting, evicting_count, "connections that are being evicted");
        for (destination, counts) in &by_destination {
            assert_eq!(*counts, counted(*destination), "connections of {destination:?}");
            let listed = self.idle.get(destination).map_or(0, Vec::len);
            assert_eq!(listed, counts.idle as usize, "idle connections of {destination:?} are listed");
        }
        let listed: usize = self.idle.values().map(Vec::len).sum();
        let idle: u32 = by_destination.values().map(|counts| counts.idle).sum();
        assert_eq!(listed, idle as usize, "each listed connection is open");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_connection_of_the_same_worker_is_woken_first_else_the_last_that_worked() {
        let (mut connections, to) = (Connections::default(), DestinationId(3));
        let ids: Vec<ConnectionId> = (0..4).map(|_| connections.open(to)).collect();
        for (id, worker) in ids.iter().zip([0, 1, 0, 1]) {
            connections.set_idle(*id, Some(worker));
        }
        connections.check_invariants((4, 0), |_| ConnectionCounts { open: 4, idle: 4, unused: 4 });
        assert_eq!(connections.take_idle(to, Some(0)), Some(ids[2]));
        assert_eq!(connections.take_idle(to, Some(2)), Some(ids[3]));
        assert!(connections.remove_idle(ids[1]) && !connections.remove_idle(ids[1]));
        assert_eq!(connections.take_all_idle(), [ids[0]]);
        assert_eq!(connections.take_idle(to, Some(0)), None);
        ids.iter().for_each(|id| _ = connections.close(*id));
        connections.check_invariants((0, 0), |_| ConnectionCounts::default());
        assert_eq!(connections.open(to), ids[3], "numbers are given again");
    }
}
