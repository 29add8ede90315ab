//! The table of destinations: its places are given to others once nothing is known of a destination that is
//! worth keeping, so that the table stays bounded by what is queued.

use crate::{DestinationId, GroupId, Queue, destination::Site};
use mail::{Destination, TlsMode, Transport};
use std::collections::HashMap;

/// So many destinations without mail are remembered, with the connections they were found to bear.
const PLACES_KEPT: usize = 1024;

impl Queue {
    pub(crate) fn new_site(&mut self, name: &Destination, group: GroupId) -> DestinationId {
        let site = Site::new(name.clone(), group, &self.settings);
        let free = self.vacant.pop().or_else(|| self.unused_site());
        let id = match free {
            Some(id) => {
                self.forget_name(id);
                self.sites[id.0 as usize] = site;
                id
            }
            None => {
                self.sites.push(site);
                DestinationId(self.sites.len() as u32 - 1)
            }
        };
        if self.by_name.len() <= usize::from(group.0) {
            self.by_name.resize_with(usize::from(group.0) + 1, HashMap::new);
        }
        self.by_name[usize::from(group.0)].insert(name.clone(), id);
        id
    }

    /// What the numbers were given out for is queued, or will not be.
    pub(crate) fn promises_are_kept(&mut self) {
        while let Some(id) = self.promised.pop() {
            self.sites[id.0 as usize].is_promised = false;
            self.forget_if_unused(id);
        }
    }

    /// Looks at a few places, not at all of them.
    fn unused_site(&mut self) -> Option<DestinationId> {
        if self.sites.len() < PLACES_KEPT {
            return None;
        }
        let start = self.next_random_u64() as usize % self.sites.len();
        let mut near = (0..16).map(|i| (start + i) % self.sites.len());
        near.find(|at| self.sites[*at].is_unused()).map(|at| DestinationId(at as u32))
    }

    /// One of its probes is due. See [`Site::resume`].
    pub(crate) fn resume(&mut self, id: DestinationId) {
        self.sites[id.0 as usize].resume(&self.settings);
    }

    /// One of its units is gone.
    pub(crate) fn count_out(&mut self, id: DestinationId) {
        let site = &mut self.sites[id.0 as usize];
        site.unit_count -= 1;
        if site.unit_count == 0 {
            site.forget_probe(&self.settings);
            self.forget_if_unused(id);
        }
    }

    /// Forgets a destination that nothing is queued for, where there are many.
    pub(crate) fn forget_if_unused(&mut self, id: DestinationId) {
        if self.sites.len() <= PLACES_KEPT {
            return;
        }
        let site = &self.sites[id.0 as usize];
        if site.is_vacant || !site.is_unused() {
            return;
        }
        self.forget_name(id);
        let nowhere = Destination { transport: Transport::Mx, tls: TlsMode::Off, target: "".into() };
        let mut vacant = Site::new(nowhere, GroupId::default(), &self.settings);
        vacant.is_vacant = true;
        self.sites[id.0 as usize] = vacant;
        self.vacant.push(id);
        self.shrink();
    }

    fn forget_name(&mut self, id: DestinationId) {
        let site = &self.sites[id.0 as usize];
        if !site.is_vacant {
            self.by_name[usize::from(site.group.0)].remove(&site.name);
        }
    }

    /// Gives memory back once most places are vacant.
    fn shrink(&mut self) {
        if self.vacant.len() < self.sites.len() / 2 + PLACES_KEPT {
            return;
        }
        while self.sites.last().is_some_and(|site| site.is_vacant) {
            self.sites.pop();
        }
        let place_count = self.sites.len();
        self.vacant.retain(|id| (id.0 as usize) < place_count);
        self.vacant.shrink_to(2 * self.vacant.len());
        self.sites.shrink_to(place_count + PLACES_KEPT);
        self.by_name.iter_mut().for_each(|names| names.shrink_to(2 * names.len()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Arrival, Millis, Order, Settings, Verdict};
    use mail::{Disposition, Enhanced, Outcome, QueueId};

    fn name(number: u64) -> Destination {
        let target = format!("d{number}.test").into();
        Destination { transport: Transport::Mx, tls: TlsMode::May, target }
    }

    /// Queues a message for each of so many destinations, none of which answers.
    fn with_dead_ones(count: u64) -> Queue {
        let mut queue = Queue::new(Settings { connections_max: 100_000, ..Settings::default() }, 7, 0);
        for number in 0..count {
            let to = queue.destination(&name(number));
            let recipients = [(0, to, 0, None)];
            let id = QueueId(number);
            queue.insert(&Arrival { id, arrived: 0, size_bytes: 9, held: false, recipients: &recipients }, 0);
            assert_eq!(queue.next_order(0), Some(Order::Open(to)));
            queue.unreachable(to, Outcome::deferred(Enhanced(4, 4, 1), "down"), 0);
            queue.connection_closed(to, true, 0);
        }
        queue
    }

    fn delete_all(queue: &mut Queue, count: u64) {
        for number in 0..count {
            for taken in queue.seize(QueueId(number), |_| true, Verdict::Deleted, 0).unwrap() {
                queue.settle(taken.unit, &[(0, Disposition::Failed)], false, 0);
            }
        }
    }

    const COUNT: u64 = 20_000;
    const HOUR: Millis = 3_600_000;

    #[test]
    fn dead_destinations_without_mail_are_forgotten_when_their_probe_is_due() {
        let mut queue = with_dead_ones(COUNT);
        assert_eq!(queue.sites.len(), COUNT as usize);
        delete_all(&mut queue, COUNT);
        assert_eq!(queue.destinations().len(), COUNT as usize, "until then they are left alone");
        queue.advance(24 * HOUR);
        assert_eq!(queue.destinations(), []);
        assert!(queue.sites.len() <= PLACES_KEPT, "{}", queue.sites.len());
        let name_count: usize = queue.by_name.iter().map(HashMap::len).sum();
        assert!(name_count <= PLACES_KEPT, "{name_count}");
        assert_eq!(queue.next_wake(), None);
    }

    #[test]
    fn the_last_job_of_a_destination_without_connections_is_completed() {
        let mut queue = Queue::new(Settings::default(), 7, 0);
        for number in 0..COUNT {
            let to = queue.destination(&name(number));
            let recipients = [(0, to, 0, None)];
            let id = QueueId(number);
            queue.insert(&Arrival { id, arrived: 0, size_bytes: 9, held: false, recipients: &recipients }, 0);
        }
        let cancel = |number| queue.seize(QueueId(number), |_| true, Verdict::Deleted, 0).unwrap();
        let taken: Vec<_> = (0..COUNT).flat_map(cancel).collect();
        // No destination wants a connection any more.
        assert_eq!(queue.next_order(0), None);
        // The places at the end of the table are given back first.
        for taken in taken.into_iter().rev() {
            queue.settle(taken.unit, &[(0, Disposition::Failed)], false, 0);
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
        assert!(queue.sites.len() <= PLACES_KEPT, "{}", queue.sites.len());
    }

    #[test]
    fn destinations_whose_mail_goes_while_they_are_to_be_probed_are_forgotten() {
        let mut queue = with_dead_ones(2000);
        queue.advance(24 * HOUR);
        delete_all(&mut queue, 2000);
        while queue.next_order(24 * HOUR).is_some() {}
        assert_eq!(queue.destinations(), []);
        assert!(queue.sites.len() <= 2000 && queue.sites.len() - queue.vacant.len() <= PLACES_KEPT);
    }

    #[test]
    fn a_forgotten_place_serves_another_destination() {
        let mut queue = with_dead_ones(3000);
        delete_all(&mut queue, 3000);
        queue.advance(24 * HOUR);
        let (now, number) = (24 * HOUR, 77_777);
        for id in number..number + 3000 {
            let to = queue.destination(&name(id));
            let recipients = [(0, to, 0, None)];
            let arrival = Arrival {
                id: QueueId(id),
                arrived: now,
                size_bytes: 9,
                held: false,
                recipients: &recipients,
            };
            queue.insert(&arrival, now);
            assert_eq!(queue.next_order(now), Some(Order::Open(to)));
            assert_eq!(queue.take(to, now).map(|taken| taken.id), Some(QueueId(id)));
            assert_eq!(queue.destination_name(to), &name(id));
        }
        assert!(queue.sites.len() <= 3000 + PLACES_KEPT, "{}", queue.sites.len());
    }
}
