//! The queue manager.

use mail::{Destination, Fate, QueueId, Transport};
use queue::{Arrival, DestinationId, Millis, Queue, Settings, Taken};

/// Destinations the messages go to in turn.
const SITES: u32 = 100;

fn destination(number: u32) -> Destination {
    Destination {
        transport: Transport::Mx,
        tls: mail::TlsMode::May,
        target: format!("d{number}.test").into(),
    }
}

/// A queue and its destinations.
pub struct Office {
    queue: Queue,
    sites: Vec<DestinationId>,
}

impl Default for Office {
    fn default() -> Self {
        let mut queue = Queue::new(Settings::default(), 1, 0);
        let sites = (0..SITES).map(|number| queue.destination(&destination(number))).collect();
        Self { queue, sites }
    }
}

impl Office {
    /// A message with one recipient.
    pub fn insert(&mut self, number: u64, now: Millis) -> DestinationId {
        let site = self.sites[number as usize % self.sites.len()];
        let recipients = [(0, site, 0, None)];
        let id = QueueId(number);
        self.queue.insert(
            &Arrival { id, arrived: now, size_bytes: 1024, held: false, recipients: &recipients },
            now,
        );
        site
    }

    /// The next unit of a destination, by the connection that the queue orders when it has none.
    pub fn take(&mut self, site: DestinationId, now: Millis) -> Taken {
        while self.queue.next_order(now).is_some() {}
        self.queue.take(site, now).expect("there is one")
    }

    /// What became of it; whether the message is at its end.
    pub fn settle(&mut self, taken: &Taken, fate: Fate, now: Millis) -> bool {
        self.queue.settle(taken.unit, &[(0, fate)], true, now).last
    }
}

/// So many messages that are delivered at once.
pub fn deliver(count: u64) {
    let mut office = Office::default();
    for number in 0..count {
        let now = number as Millis / 10;
        let site = office.insert(number, now);
        let taken = office.take(site, now);
        assert!(office.settle(&taken, Fate::Delivered, now));
    }
}

/// So many messages that are deferred once.
pub fn defer(count: u64) {
    let mut office = Office::default();
    for number in 0..count {
        let now = number as Millis / 10;
        let site = office.insert(number, now);
        let taken = office.take(site, now);
        assert!(!office.settle(&taken, Fate::Deferred, now));
    }
    // An hour later all of them are due again.
    let later = count as Millis / 10 + 3_600_000;
    office.queue.advance(later);
    let mut open = count;
    for at in 0..office.sites.len() {
        let site = office.sites[at];
        while office.queue.next_order(later).is_some() {}
        while let Some(taken) = office.queue.take(site, later) {
            assert!(office.settle(&taken, Fate::Delivered, later));
            open -= 1;
        }
    }
    assert_eq!(open, 0, "all were due");
}
