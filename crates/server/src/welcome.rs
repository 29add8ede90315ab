//! The lines that the daemon writes when it is ready: the place of the data, who may relay, and the next commands.

use super::capture::Viewer;
use config::{ListenAt, Settings};
use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::absolute,
};

/// The lines, made before the settings are used.
pub(super) struct Welcome(Vec<String>);

impl Welcome {
    pub(super) fn new(settings: &Settings, viewer: Option<&Viewer>) -> Self {
        let data = absolute(&settings.data_dir).unwrap_or_else(|_| settings.data_dir.clone());
        let mut lines = vec![format!("data directory: {}", data.display())];
        if let Some(viewer) = viewer {
            let folder = absolute(viewer.folder()).unwrap_or_else(|_| viewer.folder().to_owned());
            lines.push(format!(
                "all mail is captured in {}/ID.eml; none is sent, and any login by PLAIN or LOGIN is accepted",
                folder.display()
            ));
        } else {
            lines.push(who_may_send(settings));
        }
        let address = settings.listen.iter().find_map(|listen| match &listen.address {
            ListenAt::Ip(address) => Some(*address),
            ListenAt::Unix { .. } | ListenAt::Systemd(_) => None,
        });
        if let Some(address) = address.filter(|address| address.port() != 25) {
            let (address, recipient) = (reachable(address), recipient(settings, viewer.is_some()));
            lines.push(format!(
                "to try it: curl smtp://{address} --mail-from me@{} --mail-rcpt {recipient} -T FILE",
                settings.hostname
            ));
        }
        if viewer.is_none() {
            lines.push(
                "to look at the queue: postrider queue list; to see totals: postrider status".to_owned(),
            );
        }
        Self(lines)
    }

    pub(super) fn lines(&self) -> impl Iterator<Item = &String> {
        self.0.iter()
    }
}

/// Returns an address whose mail arrives here, for an example.
fn recipient(settings: &Settings, is_capture: bool) -> String {
    let local = &settings.local;
    let localhost = "localhost".to_owned();
    if is_capture || local.domains.contains(&localhost) && local.users.is_none() {
        return "you@localhost".to_owned();
    }
    let domain = local.domains.iter().find(|domain| **domain == localhost).or(local.domains.first());
    // The bare postmaster is everybody's (RFC 5321 §4.5.1).
    domain.map_or("postmaster".to_owned(), |domain| format!("postmaster@{domain}"))
}

/// `clients of 127.0.0.0/8 may send to all domains, other clients to local domains`.
fn who_may_send(settings: &Settings) -> String {
    let relay = &settings.relay;
    let files = relay.network_maps.iter().map(ToString::to_string);
    let networks: Vec<String> = relay.networks.iter().map(ToString::to_string).chain(files).collect();
    let clients = (!networks.is_empty()).then(|| format!("clients of {}", networks.join(", ")));
    let users = settings.auth.users.is_some().then(|| "users with a login".to_owned());
    match clients.into_iter().chain(users).collect::<Vec<_>>().join(" and ") {
        senders if senders.is_empty() => {
            "all clients may send to local domains, and none to other domains".to_owned()
        }
        senders => format!("{senders} may send to all domains, other clients to local domains"),
    }
}

/// Returns the address at which this machine reaches a listener.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    address
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_name_an_address_that_can_be_reached_and_who_may_send() {
        let of = |text: &str| {
            let settings = config::load_built_in(text, "a test").unwrap();
            Welcome::new(&settings, None).0.join("\n")
        };
        for (listen, reached) in
            [("0.0.0.0", "127.0.0.1"), ("[::]", "[::1]"), ("192.0.2.1", "192.0.2.1"), ("[::1]", "[::1]")]
        {
            let said = of(&format!("[[listen]]\naddress = \"{listen}:2525\"\n"));
            assert!(said.contains(&format!("curl smtp://{reached}:2525 ")), "{said}");
        }
        let nobody = of("[relay]\nnetworks = []\n");
        assert!(nobody.contains("\nall clients may send to local domains, and none to other"), "{nobody}");
    }

    #[test]
    fn the_recipient_to_try_is_one_that_exists() {
        let of = |text: &str| {
            let settings = config::load_built_in(text, "a test").unwrap();
            recipient(&settings, false)
        };
        assert_eq!(of(""), "you@localhost");
        assert_eq!(of("[local]\nusers = [\"ann\"]\n"), "postmaster@localhost");
        let named = "hostname = \"b.test\"\n[local]\ndomains = [\"a.test\", \"b.test\"]\n";
        assert_eq!(of(named), "postmaster@a.test");
        let elsewhere = "[local]\ndomains = []\n[[route]]\ndomains = [\"*\"]\nsmarthost = \"hub.test:25\"\n";
        assert_eq!(of(elsewhere), "postmaster");
    }
}
