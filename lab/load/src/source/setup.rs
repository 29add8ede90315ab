//! Settings that all sessions of a source share; they do not change.

use super::{client::Style, counts::Fault, template::MessageTemplate, transcript::Transcript};
use crate::{
    address::{Family, Servers},
    sink::Credentials,
};
use rustix::net::SocketAddrAny;
use rustls::{ClientConfig, pki_types::ServerName};
use smtp::client::ClientSettings;
use std::{
    io::Write as _,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

/// Between two messages of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    /// `-w`: always this long.
    Fixed(Duration),
    /// -R: anything from nothing to this.
    Random(Duration),
}

/// Settings of a source that its sessions share.
#[derive(Debug)]
pub struct Setup {
    /// Before a loop sleeps, it looks for so long.
    pub(crate) spin: Duration,
    pub(crate) client: ClientSettings,
    pub(crate) style: Style,
    /// Send the next message over the same connection (-d).
    pub(crate) keeps: bool,
    /// And so often at most: a random number up to this for each connection.
    pub(crate) per_connection: Option<u32>,
    /// Connections with TLS, in percent.
    pub(crate) tls_percent: u8,
    /// TLS begins with the connection.
    pub(crate) is_tls_implicit: bool,
    /// Content goes with BDAT.
    pub(crate) is_chunking: bool,
    /// With which AUTH logs in; `None`: no AUTH.
    pub(crate) auth: Option<Credentials>,
    /// The mechanism of AUTH; none: PLAIN or LOGIN.
    pub(crate) auth_mechanism: Option<auth::Mechanism>,
    /// `NAME=value` for XCLIENT; empty: no XCLIENT.
    pub(crate) xclient: Vec<String>,
    /// TLS before the first message.
    pub(crate) tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    /// For each reply.
    pub(crate) timeout: Duration,
    /// Attempts at a connection that is reset (-C).
    pub(crate) connect_tries: u32,
    pub(crate) template: MessageTemplate,
    pub(crate) window_bytes: Option<usize>,
    pub(crate) rest: Option<Rest>,
    pub(crate) shows_count: bool,
    pub(crate) transcript: Transcript,
    /// Addresses from which connections are made; they take turns. None: as the system likes.
    pub(crate) locals: Vec<IpAddr>,
    pub(crate) next_local: AtomicUsize,
    pub(crate) addresses: Vec<SocketAddrAny>,
    /// The servers, if there are several, in the order of their addresses: the name of each, and the number of its addresses.
    pub(crate) servers: Vec<(String, usize)>,
    /// Names that are looked up for each connection.
    pub(crate) looks_up: Option<(Servers, Family)>,
    pub(crate) next_address: AtomicUsize,
}

impl Setup {
    /// Returns the number of the next connection: the server's addresses take turns, and the attempts of one go through all.
    pub(crate) fn next_turn(&self) -> usize {
        if self.addresses.len() > 1 || self.looks_up.is_some() {
            self.next_address.fetch_add(1, Relaxed)
        } else {
            0
        }
    }

    /// Returns the address of that turn. With a `+` before a server the names are looked up now, while other sessions
    /// of the loop wait.
    ///
    /// # Errors
    /// A name has no address any more.
    pub(crate) fn address(&self, turn: usize) -> Result<SocketAddrAny, Fault> {
        match &self.looks_up {
            None => Ok(self.addresses[turn % self.addresses.len()].clone()),
            Some((servers, family)) => {
                let mut found = servers.resolve(*family).map_err(Fault::System)?;
                Ok(found.swap_remove(turn % found.len()))
            }
        }
    }

    /// Returns the server of that turn, if there are several: its name, and the place of the address among so many of it.
    pub(crate) fn server(&self, turn: usize) -> Option<(&str, usize, usize)> {
        let all: usize = self.servers.iter().map(|(_, count)| count).sum();
        let mut place = turn % all.max(1);
        for (name, count) in &self.servers {
            if place < *count {
                return Some((name, place, *count));
            }
            place -= count;
        }
        None
    }

    /// Returns the largest number of messages for a new connection.
    pub(crate) fn messages_on_connection(&self) -> u32 {
        self.per_connection.map_or(u32::MAX, |most| fastrand::u32(1..=most))
    }

    /// Does a new connection use TLS?
    pub(crate) fn wants_tls(&self) -> bool {
        self.tls.is_some() && (self.tls_percent >= 100 || fastrand::u8(..100) < self.tls_percent)
    }

    /// Returns the local address of the next connection.
    pub(crate) fn local(&self) -> Option<SocketAddr> {
        let next = self.next_local.fetch_add(1, Relaxed);
        let address = self.locals.get(next % self.locals.len().max(1))?;
        Some(SocketAddr::new(*address, 0))
    }

    /// Returns the length of a session's pause.
    pub(crate) fn rest(&self) -> Option<Duration> {
        self.rest.map(|rest| match rest {
            Rest::Fixed(time) => time,
            Rest::Random(most) => most.mul_f64(fastrand::f64()),
        })
    }

    /// Writes the running counter of `-c`, if it is asked for.
    pub(crate) fn show_done(&self, count: u64) {
        if self.shows_count {
            let mut out = std::io::stdout().lock();
            // Nothing can be done where nobody can see it.
            let _ = write!(out, "{count}\r");
            let _ = out.flush();
        }
    }
}
