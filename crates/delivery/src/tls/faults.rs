//! Servers with which TLS broke behind a good handshake: opportunistic TLS is worth less than the mail.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Time in which a server gets clear text, from the first connection on.
const CLEAR_TEXT_FOR: Duration = Duration::from_secs(4 * 3600);
/// Servers that are remembered; behind that many the oldest use is forgotten first.
const SERVERS_MAX: usize = 10_000;

/// The servers that get clear text where TLS is opportunistic. Lives as long as the configuration.
#[derive(Debug, Default)]
pub(crate) struct TlsFaults {
    /// Time of the first connection in clear text to each server; `None` before it.
    servers: Mutex<HashMap<SocketAddr, Option<Instant>>>,
}

impl TlsFaults {
    fn servers(&self) -> MutexGuard<'_, HashMap<SocketAddr, Option<Instant>>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// TLS broke: the next connection to this server is made in clear text, however late it is.
    pub(crate) fn add(&self, server: SocketAddr) {
        let mut servers = self.servers();
        if servers.len() >= SERVERS_MAX {
            let oldest = servers.iter().min_by_key(|(_, used)| **used).map(|(server, _)| *server);
            oldest.and_then(|server| servers.remove(&server));
        }
        servers.insert(server, None);
    }

    /// Clear text does not work either.
    pub(crate) fn remove(&self, server: SocketAddr) {
        self.servers().remove(&server);
    }

    /// Is a connection to this server to be made in clear text?
    pub(crate) fn wants_clear_text(&self, server: SocketAddr, now: Instant) -> bool {
        let mut servers = self.servers();
        let Some(used) = servers.get_mut(&server) else { return false };
        let since = *used.get_or_insert(now);
        let is_over = now.saturating_duration_since(since) >= CLEAR_TEXT_FOR;
        if is_over {
            servers.remove(&server);
        }
        !is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clear_text_ends_some_hours_after_its_first_use() {
        let (faults, now) = (TlsFaults::default(), Instant::now());
        let server = |n: u16| SocketAddr::from(([127, 0, 0, 1], n));
        assert!(!faults.wants_clear_text(server(1), now));
        faults.add(server(1));
        let day = Duration::from_secs(86_400);
        assert!(faults.wants_clear_text(server(1), now + day), "the next attempt may be late");
        assert!(faults.wants_clear_text(server(1), now + day + CLEAR_TEXT_FOR / 2));
        assert!(!faults.wants_clear_text(server(1), now + day + CLEAR_TEXT_FOR));
        assert!(!faults.wants_clear_text(server(1), now + day));
        faults.add(server(2));
        faults.remove(server(2));
        assert!(!faults.wants_clear_text(server(2), now));
    }

    #[test]
    fn the_memory_is_bounded() {
        let (faults, now) = (TlsFaults::default(), Instant::now());
        let server = |n: u32| SocketAddr::from((n.to_be_bytes(), 25));
        for n in 0..SERVERS_MAX as u32 + 100 {
            faults.add(server(n));
            assert!(faults.wants_clear_text(server(n), now));
        }
        assert_eq!(faults.servers().len(), SERVERS_MAX);
    }
}
