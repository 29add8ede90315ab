//! Invariants that hold between any two calls.

use crate::{
    DestinationId, Queue,
    destination::{Health, Site},
    message::{Age, Place, UnitId},
};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Jobs and connections of one destination, counted anew.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counted {
    ready: u32,
    in_flight: u32,
    waiting: u32,
    all: u32,
}

impl Queue {
    /// Checks that each job is in exactly one place and that every counter is what it counts. Looks at everything:
    /// for simulators, tests and debug builds.
    ///
    /// # Panics
    /// When something does not hold.
    pub fn check_invariants(&self) {
        let by_site = self.check_jobs();
        assert_eq!(self.wheel.len(), by_site.values().map(|counted| counted.waiting as usize).sum::<usize>());
        for (at, site) in (0..).zip(&self.sites) {
            let counted = by_site.get(&at);
            self.check_site(DestinationId(at), site, counted.unwrap_or(&Counted::default()));
        }
        self.check_connections();
        self.check_messages();
        self.check_names();
        for unit in self.verdicts.keys() {
            assert_eq!(self.units[*unit].place(), Place::InFlight, "what is cancelled later is in flight");
        }
    }

    /// Each job belongs to one message, and its place is one that its message permits.
    fn check_jobs(&self) -> HashMap<u32, Counted> {
        let mut by_site: HashMap<u32, Counted> = HashMap::new();
        let (mut seen, mut job_count) = (BTreeSet::new(), 0);
        for (message, entry) in self.messages.iter() {
            let mut recipients = BTreeSet::new();
            for unit in self.units_of(message) {
                assert!(seen.insert(unit), "a job is in one message's list, once");
                let unit = &self.units[unit];
                assert_eq!(unit.message, message);
                for index in unit.recipients.as_slice() {
                    assert!(recipients.insert(*index), "{}: recipient {index} is in two jobs", entry.id);
                }
                assert!(!unit.recipients.as_slice().is_empty(), "{}: a job without recipients", entry.id);
                let counted = by_site.entry(unit.destination).or_default();
                counted.all += 1;
                match unit.place() {
                    Place::Ready => counted.ready += 1,
                    Place::InFlight => counted.in_flight += 1,
                    Place::Waiting => counted.waiting += 1,
                    Place::Held => assert!(entry.held, "{}: a job is in no list", entry.id),
                }
                let is_idle = matches!(unit.place(), Place::Held | Place::InFlight);
                assert!(!entry.held || is_idle, "{} is held and to be tried", entry.id);
                job_count += 1;
            }
            assert!(!recipients.is_empty(), "{}: a message without jobs", entry.id);
        }
        assert_eq!(job_count, self.units.len(), "each job has a message");
        by_site
    }

    fn check_site(&self, id: DestinationId, site: &Site, counted: &Counted) {
        let counters = Counted {
            ready: site.ready_count,
            in_flight: site.in_flight_count,
            waiting: site.waiting_count,
            all: site.unit_count,
        };
        assert_eq!(counters, *counted, "counters of {id:?}, {}", site.name);
        let listed = site.ready.all(&self.units);
        assert_eq!(listed.len(), site.ready_count as usize, "ready list of {id:?}");
        for unit in listed {
            let unit = &self.units[unit];
            assert!(unit.place() == Place::Ready && unit.destination == id.0, "ready list of {id:?}");
        }
        assert!(site.idle_count <= site.connection_count, "idle connections of {id:?} are open");
        assert!(site.fresh_count <= site.connection_count, "unused connections of {id:?} are open");
        assert!(!site.is_vacant || site.is_unused(), "{id:?} is vacant and used");
        if let Some(at) = site.timer {
            assert!(self.timers.contains(&(at, id)), "the timer of {id:?} is set");
        }
        if let Health::Suspended { until, .. } = site.health {
            assert!(site.timer.is_some_and(|at| at <= until), "{id:?} is suspended for ever");
        }
    }

    fn check_connections(&self) {
        let (mut open, mut by_group) = (0, BTreeMap::<u8, (u32, u32)>::new());
        for site in &self.sites {
            open += site.connection_count;
            let group = by_group.entry(site.group.0).or_default();
            group.0 += site.connection_count;
            group.1 += site.idle_count;
        }
        assert_eq!(open, self.connection_count, "no connection slot is lost");
        self.rings.check_invariants(&by_group, |id| self.site(id).in_ring);
        let in_ring = self.sites.iter().filter(|site| site.in_ring).count();
        assert_eq!(in_ring, self.rings.len(), "each destination that wants a connection is listed once");
    }

    /// Each message is in the list that its age says.
    fn check_messages(&self) {
        assert_eq!(self.by_id.len(), self.messages.len(), "each message is found by its id");
        let (mut young, mut old) = (0, 0);
        for (at, entry) in self.messages.iter() {
            assert_eq!(self.by_id.get(&self.messages, entry.id), Some(at));
            match entry.age {
                Age::Young => young += 1,
                Age::Old => old += 1,
                Age::Unlisted => {}
            }
        }
        assert_eq!(self.ages.counts(&self.messages), (young, old), "messages by age");
    }

    fn check_names(&self) {
        for (group, names) in self.by_name.iter().enumerate() {
            for (name, id) in names {
                let site = self.site(*id);
                assert!(
                    site.name == *name && usize::from(site.group.0) == group && !site.is_vacant,
                    "{id:?} has the name {name}"
                );
            }
        }
        let vacant = self.sites.iter().filter(|site| site.is_vacant).count();
        assert_eq!(vacant, self.vacant.len(), "vacant numbers");
        assert_eq!(self.timers.len(), self.sites.iter().filter(|site| site.timer.is_some()).count());
    }

    // ---- for those who check more ----

    /// Recipients in the queue.
    pub fn recipient_count(&self) -> u64 {
        self.units.iter().map(|(_, unit)| unit.recipients.as_slice().len() as u64).sum()
    }

    /// Jobs in flight.
    pub fn in_flight_count(&self) -> u64 {
        self.sites.iter().map(|site| u64::from(site.in_flight_count)).sum()
    }

    /// Open and idle connections of a destination.
    pub fn connections_of(&self, id: DestinationId) -> (u32, u32) {
        let site = self.site(id);
        (site.connection_count, site.idle_count)
    }
}

impl crate::ready::Ready {
    /// All jobs in the list.
    fn all(&self, units: &crate::slab::Slab<crate::message::Unit>) -> Vec<UnitId> {
        match self {
            Self::Fair { small, bulk, .. } => small.iter(units).chain(bulk.iter(units)).collect(),
            Self::Line(list) => list.iter(units).collect(),
            Self::By(_, sorted) => sorted.iter().map(|(_, _, unit)| *unit).collect(),
        }
    }
}
