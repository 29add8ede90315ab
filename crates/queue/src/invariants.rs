//! Invariants that hold between any two calls.

use crate::{
    DestinationId, Millis, Queue,
    destination_queue::{DestinationQueue, Health},
    message::{JobId, JobState, NextDeadline},
    ready_list::UsualList,
    shares::Shares,
};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Compared with the counters that the queue keeps.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counted {
    ready: u32,
    in_flight: u32,
    waiting: u32,
    all: u32,
}

impl Queue {
    /// Checks that each job is in exactly one list and that every counter is what it counts. Looks at everything: for
    /// simulators, tests and debug builds.
    ///
    /// # Panics
    /// When an invariant does not hold.
    pub fn check_invariants(&self) {
        let by_destination = self.check_jobs();
        assert_eq!(
            self.wheel.len(),
            by_destination.values().map(|counted| counted.waiting as usize).sum::<usize>()
        );
        for (at, destination) in (0..).zip(&self.destinations) {
            let counted = by_destination.get(&at);
            self.check_destination(DestinationId(at), destination, counted.unwrap_or(&Counted::default()));
        }
        self.check_connections();
        self.check_messages();
        self.check_names();
        for job in self.cancellations.keys() {
            assert_eq!(self.jobs[*job].state(), JobState::InFlight, "what is cancelled later is in flight");
        }
    }

    /// Checks that each job belongs to one message, and that its state is one that the message permits.
    fn check_jobs(&self) -> HashMap<u32, Counted> {
        let mut by_destination: HashMap<u32, Counted> = HashMap::new();
        let (mut seen, mut job_count) = (BTreeSet::new(), 0);
        for (message, entry) in self.messages.iter() {
            let mut recipients = BTreeSet::new();
            for job in self.jobs_of(message) {
                assert!(seen.insert(job), "a job is in one message's list, once");
                let job = &self.jobs[job];
                assert_eq!(job.message, message);
                for index in job.recipients.as_slice() {
                    assert!(recipients.insert(*index), "{}: recipient {index} is in two jobs", entry.id);
                }
                assert!(!job.recipients.as_slice().is_empty(), "{}: a job without recipients", entry.id);
                let counted = by_destination.entry(job.destination).or_default();
                counted.all += 1;
                match job.state() {
                    JobState::Ready => counted.ready += 1,
                    JobState::InFlight => counted.in_flight += 1,
                    JobState::Waiting => counted.waiting += 1,
                    JobState::Held => assert!(entry.held, "{}: a job is in no list", entry.id),
                }
                let is_idle = matches!(job.state(), JobState::Held | JobState::InFlight);
                assert!(!entry.held || is_idle, "{} is held and to be tried", entry.id);
                job_count += 1;
            }
            assert!(!recipients.is_empty(), "{}: a message without jobs", entry.id);
        }
        assert_eq!(job_count, self.jobs.len(), "each job has a message");
        let held_count = self.messages.iter().filter(|(_, entry)| entry.held).count();
        assert_eq!(self.held_count, held_count, "each held message is counted");
        by_destination
    }

    fn check_destination(&self, id: DestinationId, destination: &DestinationQueue, counted: &Counted) {
        let counters = Counted {
            ready: destination.ready_count,
            in_flight: destination.in_flight_count,
            waiting: destination.waiting_count,
            all: destination.job_count,
        };
        assert_eq!(counters, *counted, "counters of {id:?}, {}", destination.name);
        let listed = destination.ready.all(&self.jobs);
        assert_eq!(listed.len(), destination.ready_count as usize, "ready list of {id:?}");
        for job in listed {
            let job = &self.jobs[job];
            assert!(job.state() == JobState::Ready && job.destination == id.0, "ready list of {id:?}");
        }
        assert!(
            destination.idle_count <= destination.connection_count,
            "idle connections of {id:?} are open"
        );
        assert!(
            destination.unused_connection_count <= destination.connection_count,
            "unused connections of {id:?} are open"
        );
        assert!(!destination.is_vacant || destination.is_unused(), "{id:?} is vacant and used");
        if let Some(at) = destination.timer {
            assert!(self.timers.contains(&(at, id)), "the timer of {id:?} is set");
        }
        if let Health::Suspended { until, .. } = destination.health {
            assert!(destination.timer.is_some_and(|at| at <= until), "{id:?} is suspended for ever");
        }
    }

    fn check_connections(&self) {
        let mut shares = Shares::default();
        let (mut open, mut by_group) = (0, BTreeMap::<u8, (u32, u32)>::new());
        for destination in &self.destinations {
            open += destination.connection_count;
            let group = by_group.entry(destination.group.0).or_default();
            group.0 += destination.connection_count;
            group.1 += destination.idle_count;
            let share = destination.share as usize;
            shares.used[share] += destination.connection_count;
            shares.idle[share] += destination.idle_count;
        }
        assert_eq!(open, self.connections.count, "no connection slot is lost");
        assert_eq!(shares.used, self.connections.shares.used, "connections by share");
        assert_eq!(shares.idle, self.connections.shares.idle, "idle connections by share");
        let idle: u32 = by_group.values().map(|counts| counts.1).sum();
        assert!(
            self.connections.evicting_count <= open - idle,
            "a connection that is evicted is open and not idle"
        );
        self.connections.scheduler.check_invariants(&by_group, |id| self.destination_at(id).is_scheduled);
        let with_exchangers =
            self.destinations.iter().filter_map(|one| Some((one.exchangers.as_ref()?, one.connection_count)));
        self.connections.exchangers.check_invariants(with_exchangers);
        let is_scheduled = self.destinations.iter().filter(|destination| destination.is_scheduled).count();
        assert_eq!(
            is_scheduled,
            self.connections.scheduler.len() + self.connections.exchangers.waiting_count(),
            "each destination that wants a connection is listed once"
        );
    }

    /// Checks that each message is in the list of its next deadline.
    fn check_messages(&self) {
        assert_eq!(self.by_id.len(), self.messages.len(), "each message is found by its id");
        let (mut young, mut old) = (0, 0);
        for (at, entry) in self.messages.iter() {
            assert_eq!(self.by_id.get(&self.messages, entry.id), Some(at));
            match entry.next_deadline {
                NextDeadline::Warning => young += 1,
                NextDeadline::Expiry => old += 1,
                NextDeadline::None => {}
            }
        }
        assert_eq!(self.ages.counts(&self.messages), (young, old), "messages by age");
        if !self.timetable.is_empty() {
            let arrived: HashMap<u32, Millis> =
                self.messages.iter().map(|(at, entry)| (at, entry.arrived)).collect();
            self.timetable.check_invariants(|at| arrived.get(&at).copied());
        }
    }

    fn check_names(&self) {
        for (group, names) in self.by_name.iter().enumerate() {
            for (name, id) in names {
                let destination = self.destination_at(*id);
                assert!(
                    destination.name == *name
                        && usize::from(destination.group.0) == group
                        && !destination.is_vacant,
                    "{id:?} has the name {name}"
                );
            }
        }
        let vacant = self.destinations.iter().filter(|destination| destination.is_vacant).count();
        assert_eq!(vacant, self.vacant.len(), "vacant numbers");
        assert_eq!(
            self.timers.len(),
            self.destinations.iter().filter(|destination| destination.timer.is_some()).count()
        );
    }

    // ---- for those who check more ----

    /// Returns the number of recipients in the queue.
    pub fn recipient_count(&self) -> u64 {
        self.jobs.iter().map(|(_, job)| job.recipients.as_slice().len() as u64).sum()
    }

    /// Returns the number of jobs in flight.
    pub fn in_flight_count(&self) -> u64 {
        self.destinations.iter().map(|destination| u64::from(destination.in_flight_count)).sum()
    }
}

impl crate::ready_list::ReadyList {
    /// Returns the jobs in the order of the list, those with a rank behind them.
    fn all(&self, jobs: &crate::slab::Slab<crate::message::Job>) -> Vec<JobId> {
        let mut all: Vec<JobId> = match &self.usual {
            UsualList::Fair { small, bulk, .. } => small.iter(jobs).chain(bulk.iter(jobs)).collect(),
            UsualList::Fifo(list) => list.iter(jobs).collect(),
            UsualList::Sorted(_, sorted) => sorted.iter().map(|(_, _, job)| *job).collect(),
        };
        all.extend(self.ranked.iter().flat_map(|ranked| ranked.iter()));
        all
    }
}
