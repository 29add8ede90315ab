//! The table of destinations. The numbers of unused destinations are given to others, so that the table stays bounded
//! by what is queued.

use crate::{DestinationId, GroupId, Queue, destination_queue::DestinationQueue, shares::Share};
use mail::{Destination, NextHop, TlsMode};
use std::collections::HashMap;

/// Unused destinations that are kept with their windows.
const DESTINATIONS_KEPT: usize = 1024;
/// Domains that are remembered because they take mail, also while nothing is queued for them.
const PROVEN_MAX: usize = 20_000;

impl Queue {
    pub(crate) fn add_destination(&mut self, name: &Destination, group: GroupId) -> DestinationId {
        let mut destination = DestinationQueue::new(name.clone(), group, &self.settings);
        if let NextHop::Mx(domain) = &name.next_hop
            && self.proven.contains(domain)
        {
            destination.share = Share::Remote;
        }
        let free = self.vacant.pop().or_else(|| self.find_unused());
        let id = match free {
            Some(id) => {
                self.remove_name(id);
                self.destinations[id.0 as usize] = destination;
                id
            }
            None => {
                self.destinations.push(destination);
                DestinationId(self.destinations.len() as u32 - 1)
            }
        };
        if self.by_name.len() <= usize::from(group.0) {
            self.by_name.resize_with(usize::from(group.0) + 1, HashMap::new);
        }
        self.by_name[usize::from(group.0)].insert(name.clone(), id);
        id
    }

    /// Notes whether the domain of a destination takes mail, for the time when the destination is used again.
    pub(crate) fn remember_proven(&mut self, id: DestinationId, is_proven: bool) {
        let NextHop::Mx(domain) = &self.destinations[id.0 as usize].name.next_hop else { return };
        if !is_proven {
            self.proven.remove(domain);
            return;
        }
        if self.proven.len() >= PROVEN_MAX {
            // Those that have mail now stay.
            let used = self.destinations.iter().filter(|one| one.share == Share::Remote && !one.is_unused());
            self.proven = used
                .filter_map(|one| match &one.name.next_hop {
                    NextHop::Mx(domain) => Some(domain.clone()),
                    _ => None,
                })
                .take(PROVEN_MAX / 2)
                .collect();
        }
        self.proven.insert(domain.clone());
    }

    /// Releases the numbers that were given out: what they were given out for is queued, or will not be.
    pub(crate) fn release_reservations(&mut self) {
        while let Some(id) = self.reserved.pop() {
            self.destinations[id.0 as usize].is_reserved = false;
            self.remove_if_unused(id);
        }
    }

    /// Looks for an unused destination among a few, not among all of them.
    fn find_unused(&mut self) -> Option<DestinationId> {
        if self.destinations.len() < DESTINATIONS_KEPT {
            return None;
        }
        let start = self.next_random_u64() as usize % self.destinations.len();
        let mut near = (0..16).map(|i| (start + i) % self.destinations.len());
        near.find(|at| self.destinations[*at].is_unused()).map(|at| DestinationId(at as u32))
    }

    /// Starts a probe of a destination: see [`DestinationQueue::resume`].
    pub(crate) fn resume(&mut self, id: DestinationId) {
        self.destinations[id.0 as usize].resume(&self.settings);
    }

    /// Counts a job that has left; a destination without jobs may be removed.
    pub(crate) fn count_removed_job(&mut self, id: DestinationId) {
        let destination = &mut self.destinations[id.0 as usize];
        destination.job_count -= 1;
        if destination.job_count == 0 {
            destination.end_probe_without_mail(&self.settings);
            self.remove_if_unused(id);
        }
    }

    /// Removes a destination without use, if there are many destinations.
    pub(crate) fn remove_if_unused(&mut self, id: DestinationId) {
        if self.destinations.len() <= DESTINATIONS_KEPT {
            return;
        }
        let destination = &self.destinations[id.0 as usize];
        if destination.is_vacant || !destination.is_unused() {
            return;
        }
        self.remove_name(id);
        let nowhere = Destination::mx("", TlsMode::Off);
        let mut vacant = DestinationQueue::new(nowhere, GroupId::default(), &self.settings);
        vacant.is_vacant = true;
        self.destinations[id.0 as usize] = vacant;
        self.vacant.push(id);
        self.shrink();
    }

    fn remove_name(&mut self, id: DestinationId) {
        let destination = &self.destinations[id.0 as usize];
        if !destination.is_vacant {
            self.by_name[usize::from(destination.group.0)].remove(&destination.name);
        }
    }

    /// Frees memory when most numbers are vacant.
    fn shrink(&mut self) {
        if self.vacant.len() < self.destinations.len() / 2 + DESTINATIONS_KEPT {
            return;
        }
        while self.destinations.last().is_some_and(|destination| destination.is_vacant) {
            self.destinations.pop();
        }
        let destination_count = self.destinations.len();
        self.vacant.retain(|id| (id.0 as usize) < destination_count);
        self.vacant.shrink_to(2 * self.vacant.len());
        self.destinations.shrink_to(destination_count + DESTINATIONS_KEPT);
        self.by_name.iter_mut().for_each(|names| names.shrink_to(2 * names.len()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Arrival, ArrivingRecipient, CancelAs, ConnectionRequest, Millis, QueueSettings};
    use mail::{Disposition, Enhanced, Outcome, QueueId};

    fn name(number: u64) -> Destination {
        Destination::mx(format!("d{number}.test"), TlsMode::May)
    }

    /// Queues a message for each of so many destinations, none of which answers.
    fn with_dead_ones(count: u64) -> Queue {
        let mut queue =
            Queue::new(QueueSettings { connections_max: 100_000, ..QueueSettings::default() }, 7, 0);
        for number in 0..count {
            let to = queue.destination(&name(number));
            let recipients = [ArrivingRecipient::new(0, to)];
            let id = QueueId(number);
            queue.insert(
                &Arrival {
                    id,
                    arrived: 0,
                    size_bytes: 9,
                    held: false,
                    recipients: &recipients,
                    schedule: None,
                },
                0,
            );
            assert_eq!(queue.next_connection_request(0), Some(ConnectionRequest::Open(to)));
            queue.connection_used(to);
            queue.unreachable(to, Outcome::deferred(Enhanced(4, 4, 1), "down"), 0);
            queue.connection_closed(to, true, 0);
        }
        queue
    }

    fn delete_all(queue: &mut Queue, count: u64) {
        for number in 0..count {
            for lease in queue.cancel(QueueId(number), |_| true, CancelAs::Delete, 0).unwrap() {
                queue.complete(lease.job, &[(0, Disposition::Failed)], false, 0);
            }
        }
    }

    const COUNT: u64 = 20_000;
    const HOUR: Millis = 3_600_000;

    #[test]
    fn dead_destinations_without_mail_are_forgotten_when_their_probe_is_due() {
        let mut queue = with_dead_ones(COUNT);
        assert_eq!(queue.destinations.len(), COUNT as usize);
        delete_all(&mut queue, COUNT);
        assert_eq!(queue.destinations().len(), COUNT as usize, "until then they are left alone");
        queue.advance(24 * HOUR);
        assert_eq!(queue.destinations(), []);
        assert!(queue.destinations.len() <= DESTINATIONS_KEPT, "{}", queue.destinations.len());
        let name_count: usize = queue.by_name.iter().map(HashMap::len).sum();
        assert!(name_count <= DESTINATIONS_KEPT, "{name_count}");
        assert_eq!(queue.next_wake(), None);
    }

    #[test]
    fn the_last_job_of_a_destination_without_connections_is_completed() {
        let mut queue = Queue::new(QueueSettings::default(), 7, 0);
        for number in 0..COUNT {
            let to = queue.destination(&name(number));
            let recipients = [ArrivingRecipient::new(0, to)];
            let id = QueueId(number);
            queue.insert(
                &Arrival {
                    id,
                    arrived: 0,
                    size_bytes: 9,
                    held: false,
                    recipients: &recipients,
                    schedule: None,
                },
                0,
            );
        }
        let cancel = |number| queue.cancel(QueueId(number), |_| true, CancelAs::Delete, 0).unwrap();
        let lease: Vec<_> = (0..COUNT).flat_map(cancel).collect();
        // No destination wants a connection any more.
        assert_eq!(queue.next_connection_request(0), None);
        // The places at the end of the table are given back first.
        for lease in lease.into_iter().rev() {
            queue.complete(lease.job, &[(0, Disposition::Failed)], false, 0);
        }
        queue.check_invariants();
        assert!(queue.is_empty());
    }

    #[test]
    fn a_flush_of_dead_destinations_without_mail_forgets_them() {
        let mut queue = with_dead_ones(COUNT);
        delete_all(&mut queue, COUNT);
        queue.flush(1);
        queue.advance(24 * HOUR);
        assert_eq!(queue.destinations(), []);
        assert!(queue.destinations.len() <= DESTINATIONS_KEPT, "{}", queue.destinations.len());
    }

    #[test]
    fn destinations_whose_mail_goes_while_they_are_to_be_probed_are_forgotten() {
        let mut queue = with_dead_ones(2000);
        queue.advance(24 * HOUR);
        delete_all(&mut queue, 2000);
        while queue.next_connection_request(24 * HOUR).is_some() {}
        assert_eq!(queue.destinations(), []);
        assert!(
            queue.destinations.len() <= 2000
                && queue.destinations.len() - queue.vacant.len() <= DESTINATIONS_KEPT
        );
    }

    #[test]
    fn a_forgotten_place_serves_another_destination() {
        let mut queue = with_dead_ones(3000);
        delete_all(&mut queue, 3000);
        queue.advance(24 * HOUR);
        let (now, number) = (24 * HOUR, 77_777);
        for id in number..number + 3000 {
            let to = queue.destination(&name(id));
            let recipients = [ArrivingRecipient::new(0, to)];
            let arrival = Arrival {
                id: QueueId(id),
                arrived: now,
                size_bytes: 9,
                held: false,
                recipients: &recipients,
                schedule: None,
            };
            queue.insert(&arrival, now);
            assert_eq!(queue.next_connection_request(now), Some(ConnectionRequest::Open(to)));
            assert_eq!(queue.lease_next(to, now).map(|lease| lease.id), Some(QueueId(id)));
            assert_eq!(queue.destination_name(to), &name(id));
        }
        assert!(queue.destinations.len() <= 3000 + DESTINATIONS_KEPT, "{}", queue.destinations.len());
    }
}
