//! What earlier connections have shown about servers: which ones fail again and again, and which ones cannot cope with
//! pipelined commands.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Failures in a row after which a server stands behind the others.
const FAILURES_MAX: u32 = 3;
/// How long it stands behind them. Longer than the longest default wait between two attempts, so that the next attempt
/// begins with another server.
const BEHIND_FOR: Duration = Duration::from_secs(90 * 60);
/// How long a server is spoken to in lock step before PIPELINING is tried again.
const LOCK_STEP_FOR: Duration = Duration::from_secs(24 * 3600);
/// Servers that are remembered. Beyond this number an arbitrary one is forgotten: it costs one more failure.
const SERVERS_MAX: usize = 10_000;

/// The servers that failed lately. Lives as long as the configuration.
#[derive(Debug, Default)]
pub(crate) struct HostMemory {
    servers: Mutex<HashMap<SocketAddr, Known>>,
}

#[derive(Debug, Default)]
struct Known {
    /// Since the server last took mail.
    failure_count: u32,
    behind_until: Option<Instant>,
    /// Until then it stands behind the fallback, too.
    last_until: Option<Instant>,
    lock_step_until: Option<Instant>,
}

impl HostMemory {
    fn servers(&self) -> MutexGuard<'_, HashMap<SocketAddr, Known>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection failed, or carried no mail because the server deferred everything.
    pub(crate) fn failed(&self, server: SocketAddr, now: Instant) {
        self.change(server, |known| {
            known.failure_count = known.failure_count.saturating_add(1);
            if known.failure_count >= FAILURES_MAX {
                known.behind_until = Some(now + BEHIND_FOR);
            }
        });
    }

    /// The server took the end of the content and didn't answer. The message must wait, because the server may have it;
    /// the next attempt begins with another server.
    pub(crate) fn lost_after_content(&self, server: SocketAddr, now: Instant) {
        self.change(server, |known| {
            known.failure_count = FAILURES_MAX;
            known.behind_until = Some(now + BEHIND_FOR);
            known.last_until = known.behind_until;
        });
    }

    /// Forgets the failures of a server that took mail.
    pub(crate) fn worked(&self, server: SocketAddr) {
        let mut servers = self.servers();
        let Some(known) = servers.get_mut(&server) else { return };
        (known.failure_count, known.behind_until, known.last_until) = (0, None, None);
        if known.lock_step_until.is_none() {
            servers.remove(&server);
        }
    }

    /// The server offers PIPELINING, and lost commands that were pipelined. Returns false if that was known.
    pub(crate) fn lost_commands(&self, server: SocketAddr, now: Instant) -> bool {
        let until = now + LOCK_STEP_FOR;
        let before = self.change(server, |known| known.lock_step_until.replace(until));
        before.is_none_or(|before| before <= now)
    }

    /// Returns whether commands are sent one at a time, although the server offers PIPELINING.
    pub(crate) fn wants_lock_step(&self, server: SocketAddr, now: Instant) -> bool {
        let servers = self.servers();
        servers.get(&server).and_then(|known| known.lock_step_until).is_some_and(|until| now < until)
    }

    /// Moves the servers that failed lately behind the others, and changes no order apart from that.
    pub(crate) fn order<T>(&self, servers: &mut [T], address: impl Fn(&T) -> SocketAddr, now: Instant) {
        let known = self.servers();
        if known.is_empty() {
            return;
        }
        let is_behind = |one: &T| {
            let until = known.get(&address(one)).and_then(|known| known.behind_until);
            until.is_some_and(|until| now < until)
        };
        servers.sort_by_key(is_behind);
    }

    /// Returns whether the server is only tried when no other can be used.
    pub(crate) fn is_last_resort(&self, server: SocketAddr, now: Instant) -> bool {
        let servers = self.servers();
        servers.get(&server).and_then(|known| known.last_until).is_some_and(|until| now < until)
    }

    fn change<T>(&self, server: SocketAddr, change: impl FnOnce(&mut Known) -> T) -> T {
        let mut servers = self.servers();
        if servers.len() >= SERVERS_MAX && !servers.contains_key(&server) {
            let some = servers.keys().next().copied();
            some.and_then(|some| servers.remove(&some));
        }
        change(servers.entry(server).or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(n: u32) -> SocketAddr {
        SocketAddr::from((n.to_be_bytes(), 25))
    }

    fn ordered(memory: &HostMemory, now: Instant) -> Vec<u32> {
        let mut numbers = vec![1, 2, 3];
        memory.order(&mut numbers, |n| server(*n), now);
        numbers
    }

    #[test]
    fn a_server_that_fails_three_times_in_a_row_stands_behind_the_others_for_a_while() {
        let (memory, now) = (HostMemory::default(), Instant::now());
        for _ in 0..2 {
            memory.failed(server(1), now);
        }
        assert_eq!(ordered(&memory, now), [1, 2, 3]);
        memory.worked(server(1));
        memory.failed(server(1), now);
        assert_eq!(ordered(&memory, now), [1, 2, 3], "the failures were not in a row");
        memory.failed(server(1), now);
        memory.failed(server(1), now);
        assert_eq!(ordered(&memory, now), [2, 3, 1]);
        assert_eq!(ordered(&memory, now + BEHIND_FOR), [1, 2, 3]);
        memory.failed(server(1), now + BEHIND_FOR);
        assert_eq!(ordered(&memory, now + BEHIND_FOR), [2, 3, 1], "one more failure is enough");
        memory.worked(server(1));
        assert_eq!(ordered(&memory, now + BEHIND_FOR), [1, 2, 3]);
    }

    #[test]
    fn a_server_that_may_have_a_message_stands_behind_the_others_at_once() {
        let (memory, now) = (HostMemory::default(), Instant::now());
        memory.lost_after_content(server(2), now);
        assert_eq!(ordered(&memory, now), [1, 3, 2]);
        assert!(memory.is_last_resort(server(2), now));
        assert!(!memory.is_last_resort(server(2), now + BEHIND_FOR));
        memory.worked(server(2));
        assert!(!memory.is_last_resort(server(2), now));
    }

    #[test]
    fn lock_step_is_remembered_for_a_day_whether_the_server_works_or_not() {
        let (memory, now) = (HostMemory::default(), Instant::now());
        assert!(!memory.wants_lock_step(server(1), now));
        assert!(memory.lost_commands(server(1), now));
        assert!(!memory.lost_commands(server(1), now), "it was known");
        memory.worked(server(1));
        assert!(memory.wants_lock_step(server(1), now));
        assert!(!memory.wants_lock_step(server(1), now + LOCK_STEP_FOR));
    }

    #[test]
    fn the_memory_is_bounded() {
        let (memory, now) = (HostMemory::default(), Instant::now());
        for n in 0..SERVERS_MAX as u32 + 100 {
            memory.failed(server(n), now);
        }
        assert_eq!(memory.servers().len(), SERVERS_MAX);
    }
}
