//! What all sessions of a source share, and nobody changes.

use super::{caller::Style, letter::Letters};
use rustix::net::SocketAddrAny;
use rustls::{ClientConfig, pki_types::ServerName};
use smtp::client::Settings;
use std::{
    io::Write as _,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

/// Between two messages of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    /// -w
    Fixed(Duration),
    /// -R: anything from nothing to this.
    Random(Duration),
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) client: Settings,
    pub(crate) style: Style,
    /// Send the next message over the same connection (-d).
    pub(crate) keeps: bool,
    /// TLS before the first message, by STARTTLS.
    pub(crate) tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    /// For each answer.
    pub(crate) timeout: Duration,
    /// Attempts at a connection that is reset (-C).
    pub(crate) connect_tries: u32,
    pub(crate) letters: Letters,
    pub(crate) window_bytes: Option<usize>,
    pub(crate) rest: Option<Rest>,
    pub(crate) shows_count: bool,
    pub(crate) verbose: bool,
    pub(crate) addresses: Vec<SocketAddrAny>,
    pub(crate) next_address: AtomicUsize,
}

impl Setup {
    /// Where the next connection goes: the server's addresses take turns.
    pub(crate) fn address(&self) -> &SocketAddrAny {
        let next = if self.addresses.len() > 1 { self.next_address.fetch_add(1, Relaxed) } else { 0 };
        &self.addresses[next % self.addresses.len()]
    }

    /// How long a session rests now.
    pub(crate) fn rest(&self) -> Option<Duration> {
        self.rest.map(|rest| match rest {
            Rest::Fixed(time) => time,
            Rest::Random(most) => most.mul_f64(fastrand::f64()),
        })
    }

    /// The running counter of -c.
    pub(crate) fn show_done(&self, count: u64) {
        if self.shows_count {
            let mut out = std::io::stdout().lock();
            // Nothing can be done where nobody can see it.
            let _ = write!(out, "{count}\r");
            let _ = out.flush();
        }
    }
}
