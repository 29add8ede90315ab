//! Connections that are given up before they end by themselves: those whose mail was deleted or held meanwhile, and those
//! that get no answer while other destinations wait for a connection.

use crate::{ConnectionId, Effect, Engine, event::Context};
use mail::QueueId;
use queue::{DestinationId, Millis};
use std::collections::VecDeque;

/// How long a connection to a mail exchanger may go without an answer while other destinations wait for one. Nearly all servers
/// that answer do so within this time; without competition they have the five minutes of RFC 5321 §4.5.3.2.
const SILENCE_TIMEOUT: Millis = 10_000;
/// The time between two searches for silent connections that found some.
const SEARCH_INTERVAL: Millis = 500;

/// Why a connection is given up before it has ended by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Abandoned {
    /// All of its mail was deleted, held, or goes another way.
    Unwanted,
    /// It has had no answer for a while, and other destinations wait for a connection.
    Crowded,
}

/// Connections without an answer, as the last search found them. There is no search while no destination waits.
#[derive(Debug, Default)]
pub(crate) struct SilentConnections {
    /// The longest silence first; with serial numbers.
    found: VecDeque<(ConnectionId, u64)>,
    next_search: Millis,
    /// Connections that were given up since the last search. Those that send content go on for a while.
    given_up_count: usize,
}

impl Engine {
    /// Gives up connections to mail exchangers that have had no answer for long, one for each destination that waits.
    pub(crate) fn abandon_silent(&mut self, context: Context, effects: &mut Vec<Effect>) {
        #[cfg(feature = "mutants")]
        if self.mutant == crate::Mutant::KeepSilent {
            return;
        }
        let waiting = self.queue.waiting_remote_count();
        if waiting == 0 {
            return;
        }
        if context.now >= self.silent.next_search {
            self.find_silent(context.now);
        }
        while self.silent.given_up_count < waiting
            && let Some((id, serial)) = self.silent.found.pop_front()
        {
            let can_go = self.connections.is_open(id, serial) && {
                let connection = self.connections.get(id);
                connection.silent_since().is_some_and(|since| since + SILENCE_TIMEOUT <= context.now)
                    && self.queue.would_make_room(connection.destination)
            };
            if can_go {
                self.silent.given_up_count += 1;
                self.abandon(id, Abandoned::Crowded, effects);
            }
        }
        self.wake_by(self.silent.next_search, effects);
    }

    fn find_silent(&mut self, now: Millis) {
        let is_remote = |destination| self.queue.share_of(destination).is_remote();
        let mut all: Vec<(Millis, ConnectionId, u64)> = self
            .connections
            .iter()
            .filter(|(_, connection)| is_remote(connection.destination))
            .filter_map(|(id, connection)| Some((connection.silent_since()?, id, connection.serial)))
            .collect();
        all.sort_unstable();
        let later = all.partition_point(|(since, ..)| since + SILENCE_TIMEOUT <= now);
        let next = all.get(later).map_or(now, |(since, ..)| *since) + SILENCE_TIMEOUT;
        let next_search = if later > 0 { now + SEARCH_INTERVAL } else { next.max(now + SEARCH_INTERVAL) };
        let found = all[..later].iter().map(|(_, id, serial)| (*id, *serial)).collect();
        self.silent = SilentConnections { found, next_search, given_up_count: 0 };
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

    /// Returns where what is left of a message goes; nothing if it is not queued.
    pub(crate) fn destinations_of(&self, id: QueueId) -> Vec<DestinationId> {
        let jobs = self.queue.message(id).map_or(Vec::new(), |message| message.jobs);
        jobs.iter().map(|job| job.destination_id).collect()
    }

    fn abandon(&mut self, connection: ConnectionId, why: Abandoned, effects: &mut Vec<Effect>) {
        // An expansion ends by itself, and the driver has no connection for it.
        if !self.is_expansion(connection) && self.connections.set_abandoned(connection) {
            effects.push(Effect::AbandonConnection { connection, why });
        }
    }
}
