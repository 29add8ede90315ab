//! Connections: which destination gets one, which idle connection is woken, and which one has to close.
//!
//! The queue counts connections. The caller keeps which of them were used and which are being evicted, and reports
//! each change once.

use crate::{
    DestinationId, JobId, Lease, Millis, Queue,
    connection_scheduler::ConnectionScheduler,
    destination_queue::Health,
    exchangers::ExchangerUses,
    ready_list::Tables,
    shares::{Share, ShareView, Shares},
};
use mail::Outcome;
use std::collections::VecDeque;

/// What the driver has to do with a connection.
#[derive(Debug, PartialEq, Eq)]
pub enum ConnectionRequest {
    /// Open a connection. [`Queue::connection_closed`] follows when it is gone, or was never made.
    Open(DestinationId),
    /// Wake an idle connection: there is work.
    Wake(DestinationId),
    /// Wake an idle connection, so that it closes if [`Queue::is_contended`]. [`Queue::eviction_ended`] follows when
    /// it leases a job, becomes idle again, or is closed.
    Evict(DestinationId),
}

/// Counts and limits connections, over all destinations.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    /// Destinations that want a connection.
    pub(crate) scheduler: ConnectionScheduler,
    wakes: VecDeque<DestinationId>,
    /// Open connections, and those that are being opened.
    pub(crate) count: u32,
    /// Split by share; the sum is `count`.
    pub(crate) shares: Shares,
    /// Connections that were asked to make room for other destinations and did not answer yet.
    pub(crate) evicting_count: u32,
    /// Counted for each mail exchanger, which may have a limit of its own.
    pub(crate) exchangers: ExchangerUses,
    /// The destination of the last of them: the search for the next one begins behind it.
    last_evicted: usize,
    /// No connection is opened any more.
    is_closed: bool,
}

/// How many connections a destination has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ConnectionCounts {
    /// Open, or being opened.
    pub open: u32,
    /// Of the open ones, those that wait for work.
    pub idle: u32,
    /// Of the open ones, those that have neither leased a job nor found that no host answers.
    pub unused: u32,
}

impl Queue {
    /// Returns the number of open connections of all destinations.
    pub fn connection_count(&self) -> u32 {
        self.connections.count
    }

    /// Returns the number of connections that were asked to make room and did not answer yet.
    pub fn evicting_count(&self) -> u32 {
        self.connections.evicting_count
    }

    /// Returns the counts of one destination.
    pub fn connections_of(&self, id: DestinationId) -> ConnectionCounts {
        let destination = self.destination_at(id);
        ConnectionCounts {
            open: destination.connection_count,
            idle: destination.idle_count,
            unused: destination.unused_connection_count,
        }
    }

    /// Wakes an idle connection if the destination has work; else lists the destination if it wants a connection, or
    /// sets its timer if it may want one later.
    pub(crate) fn update_connections(&mut self, id: DestinationId, now: Millis) {
        let destination = &mut self.destinations[id.0 as usize];
        // A listed destination may have got an idle connection since it was listed.
        if destination.idle_count > 0 && destination.has_work() {
            self.leave_idle(id);
            self.connections.wakes.push_back(id);
            return;
        }
        if destination.is_scheduled {
            return;
        }
        let oldest = destination.ready.waits_since(&self.jobs);
        match self.wants_connection(id, oldest, now) {
            Ok(true) => {
                let destination = &mut self.destinations[id.0 as usize];
                let is_first = destination.connection_count == 0;
                destination.is_scheduled = true;
                self.connections.scheduler.push(&self.settings, destination.group, is_first, id);
            }
            Ok(false) => {}
            Err(when) => self.set_timer(id, when),
        }
    }

    fn wants_connection(
        &self,
        id: DestinationId,
        oldest: Option<Millis>,
        now: Millis,
    ) -> Result<bool, Millis> {
        let destination = self.destination_at(id);
        let is_short =
            destination.share == Share::Newcomers && self.connections.shares.is_short(&self.settings);
        destination.wants_connection(&self.settings, oldest, is_short, now)
    }

    /// Chooses an idle connection to close where other destinations have none. There is at most one eviction for
    /// each of them.
    fn evict_idle(&mut self) -> Option<DestinationId> {
        let is_share_wanted =
            |share: Share| self.connections.shares.idle[share as usize] > 0 && self.is_share_contended(share);
        let scheduler = &self.connections.scheduler;
        if scheduler.first_count() == 0
            || !(Share::ALL.into_iter().any(is_share_wanted) || scheduler.is_any_group_contended())
            || self.connections.evicting_count as usize >= scheduler.first_count()
        {
            return None;
        }
        let count = self.destinations.len();
        let is_superfluous = |at: &usize| {
            self.destinations[*at].idle_count > 0 && self.is_contended(DestinationId(*at as u32))
        };
        let mut from_last = (0..count).map(|ahead| (self.connections.last_evicted + 1 + ahead) % count);
        let at = from_last.find(is_superfluous)?;
        let id = DestinationId(at as u32);
        self.connections.last_evicted = at;
        self.connections.evicting_count += 1;
        self.leave_idle(id);
        Some(id)
    }

    /// Returns whether a destination without a connection would get one if a connection of this share were closed.
    fn is_share_contended(&self, share: Share) -> bool {
        let connections = &self.connections;
        if connections.scheduler.is_nobody_waiting() {
            return false;
        }
        Share::ALL.into_iter().any(|wanted| {
            connections.scheduler.waiting_first_count(wanted) > 0
                && connections.shares.makes_room(&self.settings, share, wanted)
        })
    }

    /// Returns the share in which the connections of a destination are counted.
    pub fn share_of(&self, id: DestinationId) -> Share {
        self.destination_at(id).share
    }

    /// Returns whether a destination without a connection waits, because its share or its mail exchanger is.
    pub fn are_shares_short(&self) -> bool {
        Share::ALL.into_iter().any(|share| self.connections.scheduler.waiting_first_count(share) > 0)
            || self.connections.exchangers.waiting_count() > 0
    }

    /// Returns the number of remote destinations that wait for their first connection, because their share is full.
    pub fn waiting_remote_count(&self) -> usize {
        [Share::Remote, Share::Newcomers]
            .map(|share| self.connections.scheduler.waiting_first_count(share))
            .iter()
            .sum()
    }

    /// Returns whether a destination without a connection would get one if a connection of this destination were closed.
    pub fn would_make_room(&self, id: DestinationId) -> bool {
        self.is_share_contended(self.destination_at(id).share)
    }

    /// Returns the number of jobs of a destination that wait for a connection.
    pub fn ready_count(&self, id: DestinationId) -> u32 {
        self.destination_at(id).ready_count
    }

    /// Returns whether nobody wants the attempt of a job in flight any more: its message is held, or all of its recipients
    /// are cancelled.
    pub fn is_unwanted(&self, job: JobId) -> bool {
        let entry = &self.jobs[job];
        let cancelled = self.cancellations.get(&job).map_or(0, Vec::len);
        self.messages[entry.message].held || cancelled == entry.recipients.as_slice().len()
    }

    /// Breaks a rule on purpose: all destinations share the connections.
    #[cfg(feature = "mutants")]
    pub fn share_all_connections(&mut self) {
        self.connections.shares.is_one_budget = true;
    }

    /// Returns the use of the shares of the connections.
    pub fn shares(&self) -> [ShareView; 4] {
        Share::ALL.map(|share| ShareView {
            share,
            used: self.connections.shares.used[share as usize],
            max: Shares::max(&self.settings, share),
            waiting: self.connections.scheduler.waiting_first_count(share),
        })
    }

    /// Notes whether a remote destination takes mail. Until it has taken some, it is a newcomer.
    pub(crate) fn set_proven(&mut self, id: DestinationId, is_proven: bool) {
        let destination = self.destination_at_mut(id);
        let from = destination.share;
        let to = if is_proven { Share::Remote } else { Share::Newcomers };
        if !from.is_remote() || from == to {
            return;
        }
        destination.share = to;
        self.remember_proven(id, is_proven);
        let destination = self.destination_at(id);
        let (open, idle) = (destination.connection_count, destination.idle_count);
        let is_scheduled = destination.is_scheduled;
        self.connections.shares.move_to(from, to, open, idle);
        if is_scheduled {
            self.connections.scheduler.leave_share(from, id);
        }
        self.resume_shares();
    }

    fn resume_shares(&mut self) {
        let (shares, settings) = (&self.connections.shares, &self.settings);
        self.connections.scheduler.resume_shares(|share| shares.is_full(settings, share));
    }

    /// Returns the next request to the driver, which asks until `None` after every other call.
    pub fn next_connection_request(&mut self, now: Millis) -> Option<ConnectionRequest> {
        loop {
            if let Some(id) = self.connections.wakes.pop_front() {
                return Some(ConnectionRequest::Wake(id));
            }
            if self.connections.is_closed {
                return None;
            }
            let (destinations, shares, settings) =
                (&self.destinations, &self.connections.shares, &self.settings);
            let next = self.connections.scheduler.pop(
                settings,
                |id| {
                    let destination = &destinations[id.0 as usize];
                    (destination.share, destination.health.down_since().is_some())
                },
                |share| shares.is_full(settings, share),
            );
            let Some(id) = next else { return self.evict_idle().map(ConnectionRequest::Evict) };
            let destination = self.destination_at_mut(id);
            destination.is_scheduled = false;
            let group = destination.group;
            let oldest = self.destination_at(id).ready.waits_since(&self.jobs);
            if self.wants_connection(id, oldest, now) != Ok(true) {
                // Another destination of the group is next, and this one may want a connection later.
                self.connections.scheduler.resume_deferred(&self.settings, group);
                self.resume_shares();
                let exchangers = self.destinations[id.0 as usize].exchangers.as_ref();
                let resumed = self.connections.exchangers.resume_one(exchangers);
                self.list_again(resumed.as_slice());
                self.update_connections(id, now);
                self.remove_if_unused(id);
                continue;
            }
            if let Some(exchanger) = self.full_exchanger(id) {
                self.connections.scheduler.resume_deferred(&self.settings, group);
                self.resume_shares();
                let destination = self.destination_at_mut(id);
                // One that has a connection asks again when that has news.
                if destination.connection_count == 0 {
                    destination.is_scheduled = true;
                    self.connections.exchangers.wait(&exchanger, id);
                    if let Some(idle) = self.take_idle_of(&exchanger) {
                        return Some(ConnectionRequest::Evict(idle));
                    }
                }
                continue;
            }
            self.connections.count += 1;
            self.connections.scheduler.opened(group);
            let share = self.destination_at(id).share;
            self.connections.shares.used[share as usize] += 1;
            let quantum = i64::try_from(self.settings.quantum_bytes).unwrap_or(i64::MAX);
            let destination = self.destination_at_mut(id);
            destination.connection_count += 1;
            destination.unused_connection_count += 1;
            destination.quantum_bytes = quantum;
            let exchangers = self.destinations[id.0 as usize].exchangers.as_ref();
            self.connections.exchangers.opened(exchangers, 1);
            self.update_connections(id, now);
            return Some(ConnectionRequest::Open(id));
        }
    }

    /// Requests no connection from now on. Open connections may end their work.
    pub fn close(&mut self) {
        self.connections.is_closed = true;
    }

    /// Counts a connection that waits for work as idle. Returns false if there is work, so that it need not wait.
    pub fn enter_idle(&mut self, id: DestinationId) -> bool {
        let destination = self.destination_at_mut(id);
        if destination.has_work() {
            return false;
        }
        assert!(destination.idle_count < destination.connection_count, "an idle connection is open");
        destination.idle_count += 1;
        let (group, share) = (destination.group, destination.share);
        self.connections.shares.idle[share as usize] += 1;
        self.connections.scheduler.enter_idle(group);
        true
    }

    /// Counts an idle connection that stopped waiting by itself.
    pub fn leave_idle(&mut self, id: DestinationId) {
        let destination = self.destination_at_mut(id);
        assert!(destination.idle_count > 0, "an idle connection is counted");
        destination.idle_count -= 1;
        let (group, share) = (destination.group, destination.share);
        self.connections.shares.idle[share as usize] -= 1;
        self.connections.scheduler.leave_idle(group);
    }

    /// Counts the first use of a connection: it has leased a job, or found that no host answers. Until then it counts
    /// as a connection that will lease a job.
    pub fn connection_used(&mut self, id: DestinationId) {
        let destination = self.destination_at_mut(id);
        assert!(destination.unused_connection_count > 0, "a connection is used for the first time once");
        destination.unused_connection_count -= 1;
    }

    /// Counts the end of an eviction: see [`ConnectionRequest::Evict`].
    pub fn eviction_ended(&mut self) {
        assert!(self.connections.evicting_count > 0, "an eviction that ended has begun");
        self.connections.evicting_count -= 1;
    }

    /// Returns whether another destination wants its first connection and cannot have one. A connection of this
    /// destination without work should close then.
    pub fn is_contended(&self, id: DestinationId) -> bool {
        let destination = self.destination_at(id);
        self.connections.scheduler.is_group_contended(destination.group)
            || self.is_share_contended(destination.share)
            || self.connections.exchangers.are_wanted(destination.exchangers.as_ref())
    }

    /// Counts a connection that is gone, or was never made, and is not idle. `was_used` tells whether
    /// [`Queue::connection_used`] was called for it.
    pub fn connection_closed(&mut self, id: DestinationId, was_used: bool, now: Millis) {
        self.connections.count -= 1;
        let group = self.destination_at(id).group;
        let share = self.destination_at(id).share;
        self.connections.shares.used[share as usize] -= 1;
        self.connections.scheduler.closed(&self.settings, group);
        let exchangers = self.destinations[id.0 as usize].exchangers.as_ref();
        let resumed = self.connections.exchangers.closed(exchangers, 1);
        self.list_again(&resumed);
        self.resume_shares();
        let destination = self.destination_at_mut(id);
        destination.connection_count -= 1;
        if !was_used {
            assert!(destination.unused_connection_count > 0, "an unused connection is counted");
            destination.unused_connection_count -= 1;
        }
        if destination.connection_count == 0
            && matches!(destination.health, Health::Probing { .. })
            && destination.job_count == 0
        {
            // The probe found nothing to try, and nothing is left.
            destination.health = Health::Up;
            destination.window = 1.0;
        }
        if destination.connection_count == 0 && destination.is_scheduled {
            self.connections.scheduler.wants_first_now(&self.settings, group, id);
        }
        self.update_connections(id, now);
        self.remove_if_unused(id);
    }

    /// Leases the next job of a destination to a connection: small messages first, but not for ever.
    pub fn lease_next(&mut self, id: DestinationId, now: Millis) -> Option<Lease> {
        let contended = self.is_contended(id);
        let per_bulk = self.settings.small_per_bulk;
        let destination = &mut self.destinations[id.0 as usize];
        let may = match destination.health {
            Health::Up => destination.connection_count <= destination.window.ceil() as u32,
            Health::Probing { .. } => destination.in_flight_count == 0,
            Health::Suspended { .. } => false,
        };
        if !may || (contended && destination.quantum_bytes <= 0) {
            return None;
        }
        let mut tables =
            Tables { jobs: &mut self.jobs, messages: &self.messages, timetable: &self.timetable };
        let job = destination.ready.pop(&mut tables, per_bulk)?;
        destination.ready_count -= 1;
        let message = self.jobs[job].message;
        destination.quantum_bytes -= i64::from(self.messages[message].size_bytes);
        Some(self.start_attempt(job, now))
    }

    /// Suspends a destination of which no host could be used, or narrows its window while other connections work.
    /// Returns when the destination is tried again.
    pub fn unreachable(&mut self, id: DestinationId, reason: Outcome, now: Millis) -> Option<Millis> {
        let random = self.next_random();
        let name = |queue: &Self| queue.destination_at(id).name.to_string();
        let earlier = if self.outages.is_empty() { None } else { self.outages.remove(&name(self)) };
        let earlier = earlier.filter(|outage| self.is_same_outage(id, outage, now));
        let since = earlier.map_or(now, |outage| outage.since);
        self.destinations[id.0 as usize].failed(&self.settings, (since, now), reason, random);
        self.set_proven(id, false);
        if let Health::Suspended { until, .. } = self.destination_at(id).health {
            self.set_timer(id, until);
            return Some(until);
        }
        None
    }

    /// Ends the suspension of a destination that takes no mail: its jobs are to be leased and failed.
    pub fn mark_undeliverable(&mut self, id: DestinationId) {
        self.destination_at_mut(id).health = Health::Up;
    }
}
