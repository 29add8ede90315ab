//! The connections that the driver has open or is opening, and the events about them.

use crate::{Effect, Engine, LogEvent, event::Context};
use foldhash::HashMap;
use mail::{Attempt, Disposition, NextHop, Outcome};
use queue::{ConnectionCounts, ConnectionRequest, DestinationId, JobId, JobStatus, JobView, Millis};

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
    /// Jobs that were given to the connection and have no result yet.
    pub(crate) leases: Vec<JobId>,
    /// Tells connections of one number apart.
    pub(crate) serial: u64,
    /// The time of the last sign of the server: until there is one, that of the beginning.
    pub(crate) heard: Millis,
    pub(crate) is_abandoned: bool,
    is_idle: bool,
}

impl Connection {
    /// Returns since when the server owes an answer; none for a connection that is idle or given up.
    pub(crate) fn silent_since(&self) -> Option<Millis> {
        (!self.is_idle && !self.is_abandoned).then_some(self.heard)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Connections {
    slots: Vec<Option<Connection>>,
    free: Vec<u32>,
    serial: u64,
    /// Idle connections of each destination with the workers they are on, in the order in which they became idle.
    idle: HashMap<DestinationId, Vec<(Option<usize>, ConnectionId)>>,
}

impl Connections {
    pub(crate) fn open(&mut self, destination: DestinationId, now: Millis) -> ConnectionId {
        self.serial += 1;
        let connection = Connection {
            destination,
            was_used: false,
            is_evicting: false,
            leases: Vec::new(),
            serial: self.serial,
            heard: now,
            is_abandoned: false,
            is_idle: false,
        };
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

    /// Frees the slot for another connection. An idle connection has to leave the idle list first.
    pub(crate) fn close(&mut self, id: ConnectionId) -> Connection {
        let connection = self.slots[id.0 as usize].take().expect("a connection is closed once");
        assert!(!connection.is_idle, "an idle connection leaves the idle list first");
        self.free.push(id.0);
        connection
    }

    pub(crate) fn is_open(&self, id: ConnectionId, serial: u64) -> bool {
        let slot = self.slots.get(id.0 as usize).and_then(Option::as_ref);
        slot.is_some_and(|connection| connection.serial == serial)
    }

    /// Returns the connections of a destination that are not idle.
    pub(crate) fn of(&self, destination: DestinationId) -> Vec<ConnectionId> {
        let is_of = |slot: &Option<Connection>| {
            slot.as_ref().is_some_and(|one| one.destination == destination && !one.is_idle)
        };
        let slots = (0..).zip(&self.slots).filter(|(_, slot)| is_of(slot));
        slots.map(|(at, _)| ConnectionId(at)).collect()
    }

    /// Notes that a connection is given up. Returns false if it was before.
    pub(crate) fn set_abandoned(&mut self, id: ConnectionId) -> bool {
        !std::mem::replace(&mut self.get_mut(id).is_abandoned, true)
    }

    /// Returns open connections, and those that are being opened.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (ConnectionId, &Connection)> {
        let slots = (0..).map(ConnectionId).zip(&self.slots);
        slots.filter_map(|(id, slot)| Some((id, slot.as_ref()?)))
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
        self.slots.iter().flatten().map(|connection| connection.leases.len() as u64).sum()
    }

    /// Panics when a list does not agree with the connections. `counted` gives the connections of a destination as the
    /// queue counts them.
    pub(crate) fn check_invariants(
        &self,
        (open_count, evicting_count): (u32, u32),
        counted: impl Fn(DestinationId) -> ConnectionCounts,
    ) {
        let mut by_destination: HashMap<DestinationId, ConnectionCounts> = HashMap::default();
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

impl Engine {
    /// Returns the connection that carries a job; for a job that waits, the connection to its destination whose server has
    /// been silent for the longest time. With the time of the last sign of the server.
    pub fn connection_for(&self, job: &JobView) -> Option<(ConnectionId, Millis)> {
        if self.queue.connections_of(job.destination_id).open == 0 {
            return None;
        }
        let is_of = |one: &Connection| match job.status {
            JobStatus::InFlight => one.leases.contains(&job.id),
            JobStatus::Ready | JobStatus::Suspended(..) => one.destination == job.destination_id,
            JobStatus::Waiting(_) | JobStatus::Held => false,
        };
        let silent = self.connections.iter().filter(|(_, one)| is_of(one));
        let silent = silent.filter_map(|(id, one)| Some((id, one.silent_since()?)));
        silent.min_by_key(|(_, since)| *since)
    }

    /// Returns the connections that wait for their servers, each with the time of the last sign of its server.
    pub fn silent_connections(&self) -> impl Iterator<Item = (ConnectionId, Millis)> {
        let silent = self.connections.iter().filter_map(|(id, one)| Some((id, one.silent_since()?)));
        silent.filter(|(id, _)| !self.is_expansion(*id))
    }

    /// Returns the destination of an open connection.
    pub fn destination_of(&self, connection: ConnectionId) -> DestinationId {
        self.connections.get(connection).destination
    }

    /// Ends a lease: the job has a result, or comes back untried.
    pub(crate) fn take_lease(&mut self, context: Context, id: ConnectionId, job: JobId) {
        let connection = self.connections.get_mut(id);
        connection.heard = context.now;
        let leases = &mut connection.leases;
        let at = leases.iter().position(|leased| *leased == job).expect("a lease is given back once");
        leases.swap_remove(at);
    }

    pub(crate) fn on_ready(&mut self, context: Context, id: ConnectionId, effects: &mut Vec<Effect>) {
        let connection = self.connections.get_mut(id);
        if self.is_closed || connection.is_abandoned {
            return;
        }
        let Some(lease) = self.queue.lease_next(connection.destination, context.now) else { return };
        if connection.leases.is_empty() {
            connection.heard = context.now;
        }
        connection.leases.push(lease.job);
        self.mark_used(id);
        self.end_eviction(id);
        let message = self.cache.get(lease.id);
        effects.push(Effect::Deliver { connection: id, lease, message });
    }

    pub(crate) fn on_idle(&mut self, context: Context, id: ConnectionId, effects: &mut Vec<Effect>) {
        let destination = self.connections.get(id).destination;
        if self.is_closed || !self.queue.enter_idle(destination) {
            return effects.push(Effect::WakeConnection(id));
        }
        self.end_eviction(id);
        self.connections.set_idle(id, context.worker);
    }

    /// Counts the first use of a connection.
    fn mark_used(&mut self, id: ConnectionId) {
        let connection = self.connections.get_mut(id);
        if !std::mem::replace(&mut connection.was_used, true) {
            self.queue.connection_used(connection.destination);
        }
    }

    /// Ends the eviction of a connection, if it was asked to make room.
    fn end_eviction(&mut self, id: ConnectionId) {
        if std::mem::take(&mut self.connections.get_mut(id).is_evicting) {
            self.queue.eviction_ended();
        }
    }

    pub(crate) fn leave_idle(&mut self, id: ConnectionId) {
        if self.connections.remove_idle(id) {
            self.queue.leave_idle(self.connections.get(id).destination);
        }
    }

    pub(crate) fn on_closed(
        &mut self,
        context: Context,
        id: ConnectionId,
        leases: Vec<crate::Lease>,
        effects: &mut Vec<Effect>,
    ) {
        self.leave_idle(id);
        let mut cancelled = Vec::new();
        let lease_count = leases.len();
        for lease in leases {
            cancelled.extend(self.queue.return_lease(lease.job, context.now));
        }
        self.end_eviction(id);
        let connection = self.connections.close(id);
        assert_eq!(connection.leases.len(), lease_count, "a closed connection gives its leases back");
        #[cfg(feature = "mutants")]
        if self.mutant == crate::Mutant::LoseSlot && id.0 == 0 {
            return self.on_cancelled(cancelled, effects);
        }
        self.queue.connection_closed(connection.destination, connection.was_used, context.now);
        if !cancelled.is_empty() {
            self.on_cancelled(cancelled, effects);
        }
    }

    pub(crate) fn on_unreachable(
        &mut self,
        context: Context,
        id: ConnectionId,
        outcome: Outcome,
        attempt: &Attempt,
        effects: &mut Vec<Effect>,
    ) {
        self.mark_used(id);
        let destination = self.connections.get(id).destination;
        if outcome.disposition == Disposition::Failed {
            return self.on_undeliverable(context, destination, &outcome, attempt, effects);
        }
        let newly = self.queue.is_up(destination).then_some(destination);
        let was_suspended = self.queue.is_suspended(destination);
        let until = self.queue.unreachable(destination, outcome.clone(), context.now);
        // Connections that fail beside the one that ended in the suspension, or while others work, are no news.
        if let Some(until) = until.filter(|_| !was_suspended) {
            effects.push(Effect::Log(LogEvent::Suspended {
                newly,
                destination: self.queue.destination_name(destination).clone(),
                outcome,
                until: Some(self.on_wall(until)),
                since: self.on_wall(self.queue.down_since(destination).unwrap_or(context.now)),
            }));
        }
    }

    /// Returns whether a connection stands for the expansion of recipients.
    pub(crate) fn is_expansion(&self, id: ConnectionId) -> bool {
        let destination = self.connections.get(id).destination;
        self.queue.destination_name(destination).next_hop == NextHop::Expand
    }

    /// Expands the next job of a connection that stands for expansions, or closes it. Returns whether there was a job.
    pub(crate) fn expand_next(
        &mut self,
        context: Context,
        id: ConnectionId,
        effects: &mut Vec<Effect>,
    ) -> bool {
        let connection = self.connections.get(id);
        let may_go_on = !self.is_closed && !connection.is_abandoned;
        let destination = connection.destination;
        let lease = if may_go_on { self.queue.lease_next(destination, context.now) } else { None };
        let Some(lease) = lease else {
            self.expansion_count -= 1;
            self.on_closed(context, id, Vec::new(), effects);
            return false;
        };
        let connection = self.connections.get_mut(id);
        connection.heard = context.now;
        connection.leases.push(lease.job);
        self.mark_used(id);
        self.end_eviction(id);
        let message = self.cache.get(lease.id);
        effects.push(Effect::Expand { connection: id, lease, message });
        true
    }

    pub(crate) fn request_connections(&mut self, context: Context, effects: &mut Vec<Effect>) {
        while let Some(request) = self.queue.next_connection_request(context.now) {
            match request {
                ConnectionRequest::Open(destination) => {
                    let connection = self.connections.open(destination, context.now);
                    let destination = self.queue.destination_name(destination).clone();
                    if destination.next_hop != NextHop::Expand {
                        effects.push(Effect::OpenConnection { connection, destination });
                        continue;
                    }
                    self.expansion_count += 1;
                    if !self.expand_next(context, connection, effects) {
                        // It may want another one at once, for which there is as little to do.
                        break;
                    }
                }
                ConnectionRequest::Wake(destination) => {
                    let idle = self.connections.take_idle(destination, context.worker);
                    effects.push(Effect::WakeConnection(idle.expect("the queue counts idle connections")));
                }
                ConnectionRequest::Evict(destination) => {
                    let idle = self.connections.take_idle(destination, context.worker);
                    let idle = idle.expect("the queue counts idle connections");
                    self.connections.get_mut(idle).is_evicting = true;
                    effects.push(Effect::WakeConnection(idle));
                }
            }
        }
        self.abandon_silent(context, effects);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_connection_of_the_same_worker_is_woken_first_else_the_last_that_worked() {
        let (mut connections, to) = (Connections::default(), DestinationId(3));
        let ids: Vec<ConnectionId> = (0..4).map(|_| connections.open(to, 0)).collect();
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
        assert_eq!(connections.open(to, 0), ids[3], "numbers are given again");
    }
}
