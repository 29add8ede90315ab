//! Mail for an address literal of this machine is for people here (RFC 5321 §4.1.3, §4.5.1).

use config::{DomainPattern, Settings};
use mail::{ForwardPath, Mailbox};
use std::net::IpAddr;

/// Returns the recipient that is meant by `user@[192.0.2.1]`, where that is an address of this machine: the user
/// at our hostname, and for postmaster the one that needs no domain. `connected_to` is the address at which the
/// client reached us. A route for the literal itself comes first.
pub fn resolve(path: &ForwardPath, settings: &Settings, connected_to: Option<IpAddr>) -> Option<ForwardPath> {
    let mailbox = path.mailbox()?;
    let ip = mailbox.domain().literal()?.to_canonical();
    let key = mailbox.domain().key();
    let has_route = settings.route(&key).is_some_and(|(_, route)| {
        let is_this = |pattern: &DomainPattern| matches!(pattern, DomainPattern::Exact(name) if *name == key);
        route.domains.iter().any(is_this)
    });
    let is_own = connected_to.is_some_and(|own| own.to_canonical() == ip)
        || !ip.is_unspecified() && !ip.is_multicast() && route::is_this_machines(ip);
    if has_route || !is_own {
        return None;
    }
    if mailbox.local_unquoted().eq_ignore_ascii_case("postmaster") {
        return Some(ForwardPath::Postmaster);
    }
    let named = Mailbox::parse(&format!("{}@{}", mailbox.local(), settings.hostname), true);
    named.ok().map(ForwardPath::Mailbox)
}

/// Returns whether maps of addresses may have the name of this mailbox without its domain: it is the host name, or a local
/// domain that is listed by name.
pub fn has_own_domain(mailbox: &Mailbox, settings: &Settings) -> bool {
    let key = mailbox.domain().key();
    *key == *settings.hostname || settings.is_local(&key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_this_machine_stands_for_its_name() {
        let mut settings = config::load(None).unwrap();
        settings.hostname = "mx.test".to_owned();
        let resolve = |recipient: &str, connected_to: Option<&str>| {
            let path = ForwardPath::parse(recipient, true).unwrap();
            let resolved = super::resolve(&path, &settings, connected_to.map(|ip| ip.parse().unwrap()));
            resolved.map(|path| path.as_str().to_owned())
        };
        for (recipient, connected_to, resolved) in [
            ("jane+x@[127.0.0.1]", None, Some("jane+x@mx.test")),
            ("\"ja ne\"@[127.9.9.9]", None, Some("\"ja ne\"@mx.test")),
            ("Postmaster@[127.0.0.1]", None, Some("postmaster")),
            ("jane@[IPv6:::ffff:127.0.0.1]", None, Some("jane@mx.test")),
            ("jane@[192.0.2.1]", None, None),
            ("jane@[192.0.2.1]", Some("192.0.2.1"), Some("jane@mx.test")),
            ("jane@[192.0.2.1]", Some("::ffff:192.0.2.1"), Some("jane@mx.test")),
            ("postmaster@[IPv6:2001:db8::1]", Some("2001:db8::1"), Some("postmaster")),
            ("jane@[IPv6:2001:db8::1]", Some("2001:db8::2"), None),
            ("jane@[0.0.0.0]", None, None),
            ("jane@mx.test", Some("127.0.0.1"), None),
            ("postmaster", Some("127.0.0.1"), None),
        ] {
            assert_eq!(resolve(recipient, connected_to).as_deref(), resolved, "{recipient} {connected_to:?}");
        }
    }

    #[test]
    fn a_route_for_an_address_literal_comes_first() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("postrider.toml");
        let route = |domain: &str| {
            let text = format!("[[route]]\ndomains = [\"{domain}\"]\nsmarthost = \"relay.test:25\"\n");
            std::fs::write(&file, text).unwrap();
            let settings = config::load_with_origins(Some(&file), config::Purpose::Ask).unwrap().settings;
            resolve(&ForwardPath::parse("jane@[127.0.0.1]", false).unwrap(), &settings, None)
        };
        assert_eq!(route("[127.0.0.1]"), None);
        assert!(route("*").is_some());
    }
}
