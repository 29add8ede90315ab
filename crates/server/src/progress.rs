//! Attempts that are under way, as operators see them.

use super::driver::State;
use control::{AttemptInfo, SilentServers};
use engine::{ConnectionId, DestinationId};
use mail::UnixMillis;
use queue::{JobView, Millis};
use std::{collections::HashMap, time::Duration};

/// A server that has been silent for so long is shown to whoever asks for the state of the daemon.
const SILENCE: Duration = Duration::from_secs(10);

impl State {
    /// Returns what the connection is doing that carries a job, or that will.
    pub(super) fn attempt_for(&self, job: &JobView) -> Option<AttemptInfo> {
        let (connection, heard) = self.engine.connection_for(job)?;
        self.attempt_of(connection, heard)
    }

    /// Returns the connections whose servers are silent.
    pub(super) fn silent_servers(&self) -> Option<SilentServers> {
        let latest = UnixMillis::now().0.saturating_sub(SILENCE.as_millis() as u64);
        let attempts = self.engine.silent_connections().filter(|(_, heard)| self.on_wall(*heard) <= latest);
        let attempts = attempts.filter_map(|(connection, heard)| self.attempt_of(connection, heard));
        let (mut connections, mut longest) = (0, None);
        for attempt in attempts.filter(|attempt| attempt.since_ms <= latest) {
            connections += 1;
            if longest.as_ref().is_none_or(|other: &AttemptInfo| attempt.since_ms < other.since_ms) {
                longest = Some(attempt);
            }
        }
        longest.map(|longest| SilentServers { connections, longest })
    }

    /// Returns what is being done for each destination that has a connection whose server is silent.
    pub(super) fn silent_destinations(&self) -> HashMap<DestinationId, AttemptInfo> {
        let mut silent: Vec<_> = self.engine.silent_connections().collect();
        silent.sort_unstable_by_key(|(_, heard)| std::cmp::Reverse(*heard));
        let of_destination = |(connection, heard)| {
            let attempt = self.attempt_of(connection, heard)?;
            Some((self.engine.destination_of(connection), attempt))
        };
        silent.into_iter().filter_map(of_destination).collect()
    }

    fn attempt_of(&self, connection: ConnectionId, heard: Millis) -> Option<AttemptInfo> {
        let step = self.step(connection)?;
        let (name, since_ms) = if step.name.is_empty() {
            ("delivering", self.on_wall(heard))
        } else {
            let silence = u64::try_from(step.since.elapsed().as_millis()).unwrap_or(u64::MAX);
            (step.name, UnixMillis::now().0.saturating_sub(silence))
        };
        Some(AttemptInfo {
            server: step.server.into(),
            step: name.to_owned(),
            since_ms,
            earlier: step.earlier.map(Into::into),
        })
    }

    fn on_wall(&self, at: Millis) -> u64 {
        self.engine.on_wall(at).0
    }
}
