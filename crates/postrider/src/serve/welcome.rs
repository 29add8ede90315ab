//! The lines that the daemon writes when it is ready: the place of the data, who may relay, and the next commands.

use super::capture::Viewer;
use config::{ListenAt, Settings};
use std::path::absolute;

/// The lines, made before the settings are used.
pub(super) struct Welcome(Vec<String>);

impl Welcome {
    pub(super) fn new(settings: &Settings, viewer: Option<&Viewer>) -> Self {
        let data = absolute(&settings.data_dir).unwrap_or_else(|_| settings.data_dir.clone());
        let mut lines = vec![format!("the data are in {}", data.display())];
        if let Some(viewer) = viewer {
            let folder = absolute(viewer.folder()).unwrap_or_else(|_| viewer.folder().to_owned());
            lines.push(format!(
                "all mail is captured in {}/ID.eml; none is sent, and any login is taken",
                folder.display()
            ));
        } else {
            lines.push(format!(
                "{} may send to all domains, other clients to local domains",
                senders(settings)
            ));
        }
        let address = settings.listen.iter().find_map(|listen| match &listen.address {
            ListenAt::Ip(address) => Some(*address),
            ListenAt::Unix { .. } | ListenAt::Systemd(_) => None,
        });
        if let Some(address) = address.filter(|address| address.port() != 25) {
            let recipient = recipient(settings, viewer.is_some());
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

/// An address to which mail arrives here.
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

fn senders(settings: &Settings) -> String {
    let relay = &settings.relay;
    let files = relay.network_maps.iter().map(ToString::to_string);
    let networks: Vec<String> = relay.networks.iter().map(ToString::to_string).chain(files).collect();
    let mut senders = match networks.as_slice() {
        [] => "nobody".to_owned(),
        networks => format!("clients of {}", networks.join(", ")),
    };
    if settings.auth.users.is_some() {
        senders = if networks.is_empty() {
            "users with a login".to_owned()
        } else {
            senders + " and users with a login"
        };
    }
    senders
}

#[cfg(test)]
mod tests {
    use super::*;

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
