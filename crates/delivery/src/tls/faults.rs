//! Servers with which TLS did not work: opportunistic TLS is worth less than the mail.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Time in which a server gets clear text, from the first connection on, where TLS did not begin.
const CLEAR_TEXT_FOR: Duration = Duration::from_secs(4 * 3600);
/// The same where a conversation broke that TLS protected: something else may have broken it.
const CLEAR_TEXT_BRIEFLY: Duration = Duration::from_secs(600);
/// Servers that are remembered; behind that many the oldest use is forgotten first.
const SERVERS_MAX: usize = 10_000;

/// The servers that get clear text where TLS is opportunistic. Lives as long as the configuration.
#[derive(Debug, Default)]
pub(crate) struct TlsFaults {
    servers: Mutex<HashMap<SocketAddr, Fault>>,
}

#[derive(Debug, Clone, Copy)]
struct Fault {
    /// Time of the first connection in clear text; `None` before it.
    used: Option<Instant>,
    lasts: Duration,
    /// Since when TLS is tried again, because the server may not want clear text.
    retried: Option<Instant>,
    /// TLS broke once more when it was tried again.
    is_confirmed: bool,
}

/// How TLS failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TlsFault {
    /// STARTTLS, or EHLO behind the handshake, had no answer.
    AtBegin,
    /// Behind the handshake and EHLO, the connection broke.
    Later,
}

impl TlsFaults {
    fn servers(&self) -> MutexGuard<'_, HashMap<SocketAddr, Fault>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// TLS broke: the next connection to this server is made in clear text, however late it is.
    pub(crate) fn add(&self, server: SocketAddr, fault: TlsFault, now: Instant) {
        let mut servers = self.servers();
        if servers.len() >= SERVERS_MAX {
            let oldest = servers.iter().min_by_key(|(_, fault)| fault.used).map(|(server, _)| *server);
            oldest.and_then(|server| servers.remove(&server));
        }
        let lasts = match fault {
            TlsFault::AtBegin => CLEAR_TEXT_FOR,
            TlsFault::Later => CLEAR_TEXT_BRIEFLY,
        };
        let is_recent = |at| now.saturating_duration_since(at) < CLEAR_TEXT_FOR;
        let is_confirmed = servers.get(&server).and_then(|fault| fault.retried).is_some_and(is_recent);
        servers.insert(server, Fault { used: None, lasts, retried: None, is_confirmed });
    }

    /// The server may want TLS: the next connection is made with it.
    pub(crate) fn retry(&self, server: SocketAddr, now: Instant) {
        if let Some(fault) = self.servers().get_mut(&server) {
            fault.retried = Some(now);
        }
    }

    /// Returns whether TLS broke when it was tried again: what the server says in clear text is to be believed.
    pub(crate) fn is_confirmed(&self, server: SocketAddr) -> bool {
        self.servers().get(&server).is_some_and(|fault| fault.is_confirmed)
    }

    /// Clear text does not work either.
    pub(crate) fn remove(&self, server: SocketAddr) {
        self.servers().remove(&server);
    }

    /// Is a connection to this server to be made in clear text?
    pub(crate) fn wants_clear_text(&self, server: SocketAddr, now: Instant) -> bool {
        let mut servers = self.servers();
        let Some(fault) = servers.get_mut(&server).filter(|fault| fault.retried.is_none()) else {
            return false;
        };
        let since = *fault.used.get_or_insert(now);
        let is_over = now.saturating_duration_since(since) >= fault.lasts;
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
        faults.add(server(1), TlsFault::AtBegin, now);
        let day = Duration::from_secs(86_400);
        assert!(faults.wants_clear_text(server(1), now + day), "the next attempt may be late");
        assert!(faults.wants_clear_text(server(1), now + day + CLEAR_TEXT_FOR / 2));
        assert!(!faults.wants_clear_text(server(1), now + day + CLEAR_TEXT_FOR));
        assert!(!faults.wants_clear_text(server(1), now + day));
        faults.add(server(2), TlsFault::AtBegin, now);
        faults.remove(server(2));
        assert!(!faults.wants_clear_text(server(2), now));
    }

    #[test]
    fn tls_that_breaks_when_it_is_tried_again_is_confirmed_to_be_broken() {
        let (faults, now) = (TlsFaults::default(), Instant::now());
        let server = SocketAddr::from(([127, 0, 0, 1], 25));
        faults.retry(server, now);
        assert!(!faults.is_confirmed(server));
        faults.add(server, TlsFault::Later, now);
        assert!(faults.wants_clear_text(server, now) && !faults.is_confirmed(server));
        faults.retry(server, now);
        assert!(!faults.wants_clear_text(server, now));
        faults.add(server, TlsFault::Later, now + Duration::from_secs(60));
        assert!(faults.wants_clear_text(server, now) && faults.is_confirmed(server));
        // Long afterwards it is a new fault.
        faults.retry(server, now);
        faults.add(server, TlsFault::Later, now + CLEAR_TEXT_FOR);
        assert!(!faults.is_confirmed(server));
    }

    #[test]
    fn the_memory_is_bounded() {
        let (faults, now) = (TlsFaults::default(), Instant::now());
        let server = |n: u32| SocketAddr::from((n.to_be_bytes(), 25));
        for n in 0..SERVERS_MAX as u32 + 100 {
            faults.add(server(n), TlsFault::AtBegin, now);
            assert!(faults.wants_clear_text(server(n), now));
        }
        assert_eq!(faults.servers().len(), SERVERS_MAX);
    }
}
