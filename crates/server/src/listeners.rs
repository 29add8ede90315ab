//! Listeners of the start, and those that a reload adds, changes and removes.

use super::{Daemon, sockets, wiring};
use config::{Listen, ListenAt};
use control::socket;
use delivery::helper::Helper;
use inbound::{ListenSocket, Listener, ListenerOptions};
use std::{io, net::SocketAddr, path::PathBuf};

/// The listeners of a new configuration that those of the old one are not.
#[derive(Default)]
pub(super) struct ListenerChanges {
    added: Vec<Listener>,
    /// Labels with other settings; their sockets stay.
    changed: Vec<(String, ListenerOptions)>,
    removed: Vec<Removed>,
}

struct Removed {
    label: String,
    /// Of a Unix socket, to be removed with it; `None` over TCP.
    path: Option<PathBuf>,
}

/// Returns the settings of a listener as its sessions use them.
pub(super) fn options_of(listen: &Listen) -> ListenerOptions {
    ListenerOptions {
        kind: listen.kind,
        tls: listen.tls,
        client_certificates: listen.client_certificates,
        hide_client: listen.hide_client,
        has_auth: listen.auth,
        bare_lf: listen.bare_lf,
        withheld: listen.discard_ehlo_keywords.iter().map(|one| wiring::keyword(*one)).collect(),
        message_bytes: listen.max_message_size.map(|size| size.0),
        proxies: listen.proxy.clone(),
        greeting_delay: listen.greeting_delay,
        sessions_max: listen.max_sessions,
        xclient: listen.xclient.clone(),
        xforward: listen.xforward.clone(),
    }
}

/// Returns the TCP addresses; Unix sockets have none.
pub(super) fn addresses(listen: &[Listen]) -> Vec<SocketAddr> {
    listen.iter().filter_map(|listen| listen.address.ip()).collect()
}

impl ListenerChanges {
    /// Opens the sockets of new listeners. Needs the context of a runtime.
    ///
    /// # Errors
    /// A socket cannot be opened without a restart; nothing has changed.
    pub(super) fn prepare(old: &[Listen], new: &[Listen], helper: Option<&Helper>) -> Result<Self, String> {
        let all = addresses(new);
        let mut changes = Self::default();
        // Last what cannot be taken back: a Unix socket has a file.
        for listen in new {
            let label = listen.address.to_string();
            match old.iter().find(|own| own.address.to_string() == label) {
                Some(own) => {
                    check_kept(own, listen, &addresses(old), &all)?;
                    if (Listen { number: own.number, ..listen.clone() }) != *own {
                        changes.changed.push((label, options_of(listen)));
                    }
                }
                None => {
                    let socket = open(&listen.address, &all, helper)?;
                    let options = options_of(listen);
                    changes.added.push(Listener { label, socket, options, is_drained: false });
                }
            }
        }
        let is_removed =
            |own: &&Listen| new.iter().all(|listen| listen.address.to_string() != own.address.to_string());
        changes.removed = old.iter().filter(is_removed).map(Removed::of).collect();
        Ok(changes)
    }
}

impl Removed {
    fn of(listen: &Listen) -> Self {
        let path = match &listen.address {
            ListenAt::Unix { path, .. } => Some(path.clone()),
            ListenAt::Ip(_) | ListenAt::Systemd(_) => None,
        };
        Self { label: listen.address.to_string(), path }
    }
}

/// Refuses what the socket of a listener that stays cannot become.
fn check_kept(old: &Listen, new: &Listen, before: &[SocketAddr], after: &[SocketAddr]) -> Result<(), String> {
    let label = &new.address;
    if old.address != new.address {
        return Err(format!("the mode, owner or group of {label} has changed, which needs a restart"));
    }
    let Some(address) = label.ip().filter(SocketAddr::is_ipv6) else { return Ok(()) };
    let is_shared = |all: &[SocketAddr]| all.iter().any(|one| one.is_ipv4() && one.port() == address.port());
    if is_shared(before) == is_shared(after) {
        return Ok(());
    }
    Err(format!(
        "listen on {address}: with another listener for IPv4 at this port, the socket has to be opened anew, which needs a restart"
    ))
}

fn open(at: &ListenAt, all: &[SocketAddr], helper: Option<&Helper>) -> Result<ListenSocket, String> {
    let address = match at {
        ListenAt::Ip(address) => *address,
        ListenAt::Unix { path, mode, owner, group } => {
            let owner = owner.as_ref().map(|user| user.uid);
            let group = group.as_ref().map(|group| group.gid);
            let socket = socket::bind_in_sandbox(path, mode.0, owner, group)
                .map_err(|e| format!("{}; a restart as root may", sockets::not_bound(at, &e)))?;
            return Ok(ListenSocket::Unix { socket, path: Some(path.clone()) });
        }
        ListenAt::Systemd(_) => {
            return Err(format!(
                "listen on {at}: systemd passes its sockets at the start: restart the service"
            ));
        }
    };
    match (sockets::bind(address, all), helper) {
        (Ok(socket), _) => Ok(socket.into()),
        (Err(e), Some(helper)) if e.kind() == io::ErrorKind::PermissionDenied => {
            helper.listen(address).map(Into::into)
        }
        (Err(e), None) if e.kind() == io::ErrorKind::PermissionDenied => {
            let why = match address.port() {
                1..1024 => {
                    "ports below 1024 need root, and the running daemon has given it up or never had it"
                }
                _ => "the sandbox of the running daemon permits the listeners of its start only",
            };
            Err(format!(
                "listen on {address}: {why}. Restart the daemon, or let systemd open the socket (`address = \"systemd:NAME\"`)"
            ))
        }
        (Err(e), _) => Err(sockets::not_bound(at, &e)),
    }
}

impl Daemon {
    /// Accepts connections in a task of its own.
    pub(super) fn listen(&self, listener: Listener) {
        let address = listener.socket.to_string();
        tracing::info!("listening on {address}");
        let listening = self.inbound.clone().listen(listener);
        tokio::spawn(async move {
            if let Err(e) = listening.await {
                tracing::error!("listen on {address}: {e}");
            }
        });
    }

    /// Puts the listeners of a new configuration in use. Sessions that have begun go on.
    pub(super) fn change_listeners(&self, changes: ListenerChanges) {
        let ListenerChanges { added, changed, removed } = changes;
        for Removed { label, path } in removed {
            drop(self.inbound.take(&label));
            path.iter().for_each(|path| socket::remove(path));
            tracing::info!("{label} is closed for new sessions");
        }
        for (label, options) in changed {
            for taken in self.inbound.take(&label) {
                let (socket, is_drained) = (taken.socket, taken.is_drained);
                self.listen(Listener { label: label.clone(), socket, options: options.clone(), is_drained });
            }
        }
        added.into_iter().for_each(|listener| self.listen(listener));
    }
}
