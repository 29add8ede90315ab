//! Invariants that hold after every event.

use crate::{Engine, task::Permit};

impl Engine {
    /// Checks what must hold after every event: each job is in exactly one place, the counters agree with the queue,
    /// no connection slot and no lease is lost. Looks at everything: for the simulator, tests and debug builds.
    ///
    /// # Panics
    /// When something does not hold.
    pub fn check_invariants(&self) {
        self.queue.check_invariants();
        self.counters.check_invariants();
        let queued = self.queue.recipient_count();
        assert_eq!(self.counters.queued, queued, "the counters agree with the queue: {:?}", self.counters);
        let is_queued = |id| self.queue.contains(id);
        self.cache.check_invariants(is_queued);
        self.last_outcomes.check_invariants(is_queued);
        assert!(
            self.hold_reasons.keys().all(|id| self.queue.is_held(*id)),
            "only held messages have a reason"
        );
        self.refused.check_invariants();
        self.check_connections();
        self.check_leases();
        self.check_permits();
    }

    fn check_connections(&self) {
        let counted = |destination| self.queue.connections_of(destination);
        let counts = (self.queue.connection_count(), self.queue.evicting_count());
        self.connections.check_invariants(counts, counted);
    }

    /// Each job in flight is leased to a connection, or waits here to be completed.
    fn check_leases(&self) {
        let waiting = self.read_permits.waiting().chain(self.report_permits.waiting());
        let here: usize = self
            .tasks
            .all()
            .filter_map(|task| task.result())
            .chain(waiting)
            .map(|result| result.leases.len())
            .sum();
        let leased = self.connections.lease_count() + here as u64;
        assert_eq!(self.queue.in_flight_count(), leased, "each job in flight is leased once");
    }

    fn check_permits(&self) {
        let held = |permit| self.tasks.all().filter(|task| task.permit() == permit).count();
        assert_eq!(held(Permit::Report), self.report_permits.used_count(), "report permits");
        assert_eq!(held(Permit::Warning), self.warning_permits.used_count(), "warning permits");
        let rerouted = self.tasks.all().filter(|task| matches!(task, crate::task::Task::Reroute(_))).count();
        assert_eq!(rerouted, usize::from(self.reroute.is_reading()), "one message is routed again at a time");
    }
}
