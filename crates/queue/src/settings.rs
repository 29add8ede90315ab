//! The settings of the queue.

use crate::{Millis, SortOrder};
use mail::Destination;
use std::{collections::HashMap, sync::Arc, time::Duration};

/// The number of a queue group; 0 is the group for all other mail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct GroupId(pub u8);

/// The scheduling of the messages of one group.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// As the configuration names it; for status and metrics.
    pub name: String,
    /// In which order a destination takes its messages.
    pub order: SortOrder,
    /// Groups of a higher priority get connections first.
    pub priority: i32,
    /// Connections of all destinations of the group together.
    pub connections_max: u32,
    /// Shortest wait before the next attempt.
    pub retry_min: Duration,
    /// Longest wait. Between the two a message waits as long as its age, so that attempts get rarer.
    pub retry_max: Duration,
    /// Connections a destination starts with.
    pub initial_concurrency: u32,
    /// Connections a destination may grow to.
    pub concurrency_limit: u32,
}

impl Default for Group {
    fn default() -> Self {
        Self {
            name: "default".to_owned(),
            order: SortOrder::default(),
            priority: 0,
            connections_max: u32::MAX,
            retry_min: Duration::from_secs(300),
            retry_max: Duration::from_secs(4000),
            initial_concurrency: 5,
            concurrency_limit: 20,
        }
    }
}

/// The retries of the mail of one route, where they differ from those of its group.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RouteSchedule {
    /// The wait after each attempt; the last one repeats. Empty: by the age of the message.
    pub intervals: Vec<Duration>,
    /// Shortest wait before the next attempt.
    pub retry_min: Option<Duration>,
    /// Longest wait before the next attempt.
    pub retry_max: Option<Duration>,
    /// Age at which recipients fail.
    pub lifetime: Option<Duration>,
}

/// Retry, expiry and concurrency. Most defaults are those of Postfix.
#[derive(Debug, Clone, PartialEq)]
pub struct QueueSettings {
    /// By number. The first group is for all other mail, and is never missing.
    pub groups: Vec<Group>,
    /// Routes with a schedule of their own, by the name that destinations have ([`Destination::route`]).
    pub routes: HashMap<Arc<str>, RouteSchedule>,
    /// Each wait is multiplied by a random factor of 1 ± this, so that attempts spread.
    pub jitter: f64,
    /// Age at which recipients fail (RFC 5321 §4.5.4.1: four to five days).
    pub expire: Duration,
    /// Age at which the sender gets a delay warning; zero for never.
    pub delay_warning: Duration,
    /// Connections of all destinations together.
    pub connections_max: u32,
    /// Up to this size a message counts as small and goes before bulk.
    pub small_bytes: u64,
    /// Small messages that go before one large message.
    pub small_per_bulk: u8,
    /// Bytes that a connection may send while other destinations wait for a connection.
    pub quantum_bytes: u64,
    /// Ready jobs for each open connection above which another connection is opened at once.
    pub backlog_per_connection: u32,
    /// Waiting time of the first ready job after which another connection is opened.
    pub max_head_wait: Duration,
}

impl Default for QueueSettings {
    fn default() -> Self {
        Self {
            groups: vec![Group::default()],
            routes: HashMap::new(),
            jitter: 0.2,
            expire: Duration::from_secs(5 * 86400),
            delay_warning: Duration::from_secs(4 * 3600),
            connections_max: 1000,
            small_bytes: 64 * 1024,
            small_per_bulk: 4,
            quantum_bytes: 1024 * 1024,
            backlog_per_connection: 8,
            max_head_wait: Duration::from_millis(50),
        }
    }
}

impl QueueSettings {
    /// Returns a group, or the first group if a reload removed the group.
    ///
    /// # Panics
    /// If there is no group.
    pub fn group(&self, id: GroupId) -> &Group {
        self.groups.get(usize::from(id.0)).unwrap_or(&self.groups[0])
    }

    /// Returns the schedule of the route of a destination, if it has one of its own.
    pub(crate) fn schedule_of(&self, destination: &Destination) -> Option<&RouteSchedule> {
        destination.route.as_ref().and_then(|route| self.routes.get(route))
    }

    /// Returns the wait after a failure at this age: clamp(age, min, max) × (1 ± jitter), or an interval of the route.
    /// `random` is uniform in 0..1. `attempt_count` counts the attempts before the one that failed.
    pub fn retry_after(
        &self,
        (destination, group): (&Destination, GroupId),
        attempt_count: u16,
        age: Millis,
        random: f64,
    ) -> Millis {
        let intervals = self.schedule_of(destination).map_or(&[][..], |schedule| &schedule.intervals);
        if let Some(last) = intervals.last() {
            let interval = millis(*intervals.get(usize::from(attempt_count)).unwrap_or(last));
            return self.wait(interval, (interval, interval), random);
        }
        self.wait(age, self.bounds(destination, group), random)
    }

    /// Returns the wait before the next probe of a destination that has been down for a time: from a thirtieth of the
    /// shortest retry wait on. A probe is one connection for all messages, and most outages are restarts.
    pub fn probe_after(
        &self,
        (destination, group): (&Destination, GroupId),
        down: Millis,
        random: f64,
    ) -> Millis {
        let (least, most) = self.bounds(destination, group);
        self.wait(down, (least / 30, most), random)
    }

    /// Returns a time that no wait between two probes exceeds.
    pub(crate) fn longest_wait(&self, (destination, group): (&Destination, GroupId)) -> Millis {
        let most = self.bounds(destination, group).1;
        most + most / 4
    }

    /// Returns the shortest and the longest wait.
    fn bounds(&self, destination: &Destination, group: GroupId) -> (Millis, Millis) {
        let group = self.group(group);
        let own = self.schedule_of(destination);
        let first = |schedule: &RouteSchedule| schedule.intervals.iter().min().copied();
        let last = |schedule: &RouteSchedule| schedule.intervals.iter().max().copied();
        let least = own.and_then(|own| own.retry_min.or_else(|| first(own))).unwrap_or(group.retry_min);
        let most = own.and_then(|own| own.retry_max.or_else(|| last(own))).unwrap_or(group.retry_max);
        (millis(least), millis(most))
    }

    fn wait(&self, age: Millis, (least, most): (Millis, Millis), random: f64) -> Millis {
        (age.clamp(least, most.max(least)) as f64 * (1.0 + self.jitter * (2.0 * random - 1.0))) as Millis
    }
}

pub(crate) fn millis(duration: Duration) -> Millis {
    Millis::try_from(duration.as_millis()).unwrap_or(Millis::MAX / 4)
}
