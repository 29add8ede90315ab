//! Connections that are given up before they end by themselves: those whose mail was deleted or held meanwhile, and those
//! that get no answer while other destinations wait for a connection.

use crate::{ConnectionId, Effect, Engine, event::Context};
use mail::QueueId;
use queue::{DestinationId, Millis, Share};
use std::collections::VecDeque;

/// How long a destination that has not taken mail yet may keep a connection while others wait for one. Nearly all servers that
/// answer do so within this time; without competition they have the five minutes of RFC 5321 §4.5.3.2.
const NEWCOMER_TIMEOUT: Millis = 10_000;

/// The reason why a connection is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Abandoned {
    /// All of its mail was deleted, held, or goes another way.
    Unwanted,
    /// It has had no answer for a while, and other destinations wait for a connection.
    Crowded,
}

/// Connections to newcomers in the order in which they were opened, with their serial numbers.
#[derive(Debug, Default)]
pub(crate) struct NewcomerConnections(VecDeque<(Millis, ConnectionId, u64)>);

impl Engine {
    /// Notes a connection that is being opened.
    pub(crate) fn watch(&mut self, context: Context, id: ConnectionId, destination: DestinationId) {
        if self.queue.share_of(destination) != Share::Newcomers {
            return;
        }
        let newcomers = &mut self.newcomers.0;
        // Most are gone when they get here; the others are looked at in their turn.
        while let Some((_, front, serial)) = newcomers.front()
            && !self.connections.is_open(*front, *serial)
        {
            newcomers.pop_front();
        }
        newcomers.push_back((context.now, id, self.connections.get(id).serial));
    }

    /// Gives up the connections to newcomers that have had no answer for long, one for each destination that waits.
    pub(crate) fn abandon_slow(&mut self, context: Context, effects: &mut Vec<Effect>) {
        let waiting = self.queue.waiting_newcomer_count();
        #[cfg(feature = "mutants")]
        if self.mutant == crate::Mutant::KeepSilent {
            return;
        }
        while (self.connections.abandoned_count() as usize) < waiting {
            let Some((opened, id, serial)) = self.newcomers.0.front().copied() else { return };
            let is_slow = self.connections.is_open(id, serial) && {
                let destination = self.connections.get(id).destination;
                self.queue.share_of(destination) == Share::Newcomers
            };
            if is_slow && context.now < opened + NEWCOMER_TIMEOUT {
                return self.wake_by(opened + NEWCOMER_TIMEOUT, effects);
            }
            self.newcomers.0.pop_front();
            if is_slow {
                self.abandon(id, Abandoned::Crowded, effects);
            }
        }
    }

    /// Gives up the connections of these destinations that have nothing to do any more.
    pub(crate) fn abandon_unwanted(&mut self, destinations: &[DestinationId], effects: &mut Vec<Effect>) {
        for destination in destinations {
            if self.queue.connections_of(*destination).open == 0 {
                continue;
            }
            let has_ready = self.queue.ready_count(*destination) > 0;
            for id in self.connections.of(*destination) {
                let connection = self.connections.get(id);
                let is_unwanted = match &connection.leases[..] {
                    [] => !has_ready && !connection.was_used,
                    leases => leases.iter().all(|job| self.queue.is_unwanted(*job)),
                };
                if is_unwanted {
                    self.abandon(id, Abandoned::Unwanted, effects);
                }
            }
        }
    }

    /// Returns the destinations of a message.
    pub(crate) fn destinations_of(&self, id: QueueId) -> Vec<DestinationId> {
        let jobs = self.queue.message(id).map_or(Vec::new(), |message| message.jobs);
        jobs.iter().map(|job| job.destination_id).collect()
    }

    fn abandon(&mut self, connection: ConnectionId, why: Abandoned, effects: &mut Vec<Effect>) {
        if self.connections.set_abandoned(connection) {
            effects.push(Effect::AbandonConnection { connection, why });
        }
    }
}
