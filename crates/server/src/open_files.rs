//! Connections for which the limit of open files (RLIMIT_NOFILE, getrlimit(2)) has room. A spool that cannot open a segment
//! ends the daemon, so connections leave it some.

use config::Settings;
use rustix::process::{Resource, getrlimit};

/// Descriptors that are no connections: logs, segments of the spool, maps, sockets.
const OTHER_FILES: u64 = 256;

/// Of so many files one question of DNS on the way to destinations may be asked at a time, which takes up to two; of twice as many
/// one about clients.
const FILES_PER_QUESTION: u64 = 32;
/// More questions at a time than any server needs.
const QUESTIONS_MAX: u64 = 4096;

/// Returns the most questions of DNS at a time on the way to destinations, and about clients.
pub fn dns_questions() -> [usize; 2] {
    let most = questions_within(getrlimit(Resource::Nofile).maximum);
    [most, most / 2].map(|most| usize::try_from(most).unwrap_or(usize::MAX).max(2))
}

fn questions_within(files_max: Option<u64>) -> u64 {
    files_max.map_or(QUESTIONS_MAX, |limit| (limit / FILES_PER_QUESTION).min(QUESTIONS_MAX))
}

/// Concurrent connections, each of which is an open file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connections {
    /// Sessions of clients.
    pub inbound: usize,
    /// Connections to next hops.
    pub outbound: usize,
    /// Files of an inbound session: its own connection, and one to each filter.
    files_per_session: usize,
}

impl Connections {
    /// Returns those that a configuration permits.
    pub fn configured(settings: &Settings) -> Self {
        Self {
            inbound: settings.inbound.max_sessions,
            outbound: settings.delivery.max_connections,
            files_per_session: 1 + settings.filters.len(),
        }
    }

    /// Returns those that a configuration permits and the process has room for. The daemon raises its limit to the maximum.
    pub fn possible(settings: &Settings) -> Self {
        Self::configured(settings).within(getrlimit(Resource::Nofile).maximum)
    }

    /// Outbound connections come first, as mail that is not delivered takes room; but they get half at most.
    fn within(self, files_max: Option<u64>) -> Self {
        let Some(limit) = files_max else { return self };
        // Two for each question on the way to destinations, and one in addition for those about clients, of which there are half as many.
        let questions = questions_within(files_max) * 3;
        let room = usize::try_from(limit - (OTHER_FILES + questions).min(limit / 2)).unwrap_or(usize::MAX);
        let outbound = self.outbound.min((room / 2).max(1));
        let inbound = room.saturating_sub(outbound) / self.files_per_session;
        Self { inbound: self.inbound.min(inbound.max(1)), outbound, ..self }
    }

    /// Returns the limit of open files that has room for all of them.
    pub fn files_needed(self) -> u64 {
        let connections = (self.inbound * self.files_per_session + self.outbound) as u64 + OTHER_FILES;
        // Three of 32 files are for questions.
        let limit = (connections * FILES_PER_QUESTION).div_ceil(FILES_PER_QUESTION - 3);
        connections + questions_within(Some(limit)) * 3
    }

    /// Returns a warning if not all connections that the configuration permits are possible.
    pub fn warning(settings: &Settings) -> Option<String> {
        let (wanted, possible) = (Self::configured(settings), Self::possible(settings));
        (wanted != possible).then(|| {
            let Self { inbound, outbound, .. } = possible;
            format!(
                "the limit of open files has room for {inbound} of {} inbound sessions and {outbound} of {} outbound \
                 connections, and no more are opened: raise it to {} (LimitNOFILE= in the unit), or lower \
                 `inbound.max_sessions` and `delivery.max_connections`",
                wanted.inbound,
                wanted.outbound,
                wanted.files_needed()
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_descriptors_for_the_spool_whatever_the_limit_is() {
        let wanted = Connections { inbound: 10_000, outbound: 1000, files_per_session: 1 };
        let within = |limit| {
            let Connections { inbound, outbound, .. } = wanted.within(limit);
            (inbound, outbound)
        };
        assert_eq!(within(None), (10_000, 1000));
        assert_eq!(within(Some(wanted.files_needed())), (10_000, 1000));
        assert_eq!(within(Some(8192)), (6168, 1000));
        assert_eq!(within(Some(1024)), (336, 336));
        assert_eq!(within(Some(64)), (16, 16));
        assert_eq!(within(Some(0)), (1, 1));
        let filtered = Connections { files_per_session: 3, ..wanted };
        assert_eq!(filtered.within(Some(filtered.files_needed())), filtered);
        assert_eq!(filtered.within(Some(8192)).inbound, 6168 / 3);
    }
}
