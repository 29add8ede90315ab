//! Builds the engine and its driver, and hands recovered messages to the engine.

use super::{
    clock::Clock, connection, delivery_log::DeliveryLog, driver::Driver, snapshot::ConfigSnapshot,
    unreachable::Outage,
};
use crate::imported;
use engine::{Effect, Engine, Event};
use mail::{Enhanced, IdSource, Outcome, UnixMillis};
use spool::{Recovered, SecondCopy, Spool, Totals};
use std::{collections::BTreeMap, sync::Arc};

/// An engine before its spool is recovered. The spool takes no transaction before that: the effects are performed
/// afterwards, by [`Driver::begin`].
pub(super) struct EngineSetup {
    engine: Engine,
    pub(super) ids: Arc<IdSource>,
    current: Arc<ConfigSnapshot>,
    clock: Clock,
    effects: Vec<Effect>,
    /// Keys of messages that were imported from another server's queue.
    imported: Vec<String>,
}

impl EngineSetup {
    /// An engine with an empty queue, whose clock starts now.
    pub(super) fn new(settings: engine::EngineSettings, current: Arc<ConfigSnapshot>) -> Self {
        let (clock, ids) = (Clock::start(), Arc::<IdSource>::default());
        let start = clock.start_context();
        let engine = Engine::new(settings, current.clone(), ids.clone(), start.wall.0, start);
        Self { engine, ids, current, clock, effects: Vec::new(), imported: Vec::new() }
    }

    /// Queues a message that recovery found.
    pub(super) fn recovered(&mut self, found: &Recovered) {
        self.imported.extend(imported::key_of(&found.message.origin).map(str::to_owned));
        self.engine.handle(Event::Recovered(found), self.clock.context(), &mut self.effects);
    }

    /// Returns the keys of the messages so far that were imported: [`imported::note_recovered`] must have them before a
    /// message is delivered.
    pub(super) fn take_imported(&mut self) -> Vec<String> {
        std::mem::take(&mut self.imported)
    }

    /// Applies what a second copy of a recovered message says.
    pub(super) fn second_copy(&mut self, copy: &SecondCopy) {
        self.engine.handle(Event::SecondCopy(copy), self.clock.context(), &mut self.effects);
    }

    /// Continues the outages of destinations that an earlier start has seen.
    pub(super) fn outages(&mut self, outages: BTreeMap<String, Outage>) {
        let context = self.clock.context();
        let monotonic = |ms| self.engine.monotonic(UnixMillis(ms), context.now);
        let continued = |(destination, outage): (String, Outage)| queue::Outage {
            destination,
            since: monotonic(outage.since_ms),
            failed: monotonic(outage.failed_ms),
            reason: Outcome::deferred(Enhanced(4, 4, 1), outage.reason),
        };
        let outages = outages.into_iter().map(continued).collect();
        self.engine.continue_outages(outages, context);
    }

    /// Continues the counters of earlier starts.
    pub(super) fn totals(&mut self, totals: &Totals) {
        self.engine.handle(Event::Totals(totals), self.clock.context(), &mut self.effects);
    }

    /// Returns the driver of the engine over a recovered spool, and the effects for [`Driver::begin`].
    pub(super) fn into_driver(
        self,
        spool: Arc<dyn Spool>,
        delivery_log: DeliveryLog,
    ) -> (Driver, Vec<Effect>) {
        let Self { engine, ids, current, clock, effects, imported: _ } = self;
        (Driver::new(spool, engine, ids, current, delivery_log, clock, connection::open), effects)
    }
}
