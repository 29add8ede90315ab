//! Hands the messages that recovery finds in the spool to the engine.

use super::clock::Clock;
use engine::{Effect, Engine, Event};
use spool::{Recovered, SecondCopy};

/// Hands recovered messages to the engine. The spool takes no transaction before its recovery is complete: what
/// follows is performed afterwards, see [`super::driver::Driver::begin`].
pub(super) struct Recovery<'a> {
    pub(super) engine: &'a mut Engine,
    pub(super) clock: &'a Clock,
    pub(super) effects: Vec<Effect>,
}

impl<'a> Recovery<'a> {
    pub(super) fn new(engine: &'a mut Engine, clock: &'a Clock) -> Self {
        Self { engine, clock, effects: Vec::new() }
    }

    pub(super) fn take_in(&mut self, found: &Recovered) {
        self.engine.handle(Event::Recovered(found), self.clock.context(), &mut self.effects);
    }

    pub(super) fn merge(&mut self, copy: &SecondCopy) {
        self.engine.handle(Event::SecondCopy(copy), self.clock.context(), &mut self.effects);
    }
}
