//! Checks of listeners: each has its own place, and keys that mean something there.

use super::{Check, GREETING_DELAY_MAX, clash, too_long};
use crate::{
    listen_address::{ListenAddress, ListenAt},
    settings::{Listen, Settings},
    units::ByteSize,
};
use inbound::{ClientCertificates, ListenTls};
use mail::ListenerKind;
use std::net::SocketAddr;

impl Check<'_, '_> {
    pub(super) fn listeners(&mut self, s: &Settings) {
        for (number, later) in s.listen.iter().enumerate() {
            if let Some(first) =
                s.listen[..number].iter().find(|first| is_same(&first.address, &later.address))
            {
                let path = format!("listen[{}].address", later.number);
                let what = format!("two listeners use {}", later.address);
                let label = format!("another [[listen]] has {}", first.address);
                self.problem(&path, what, &label, "give each its own address or port");
            }
        }
        for listen in &s.listen {
            self.listener(s, listen);
        }
        self.ports_of_others(s);
        if s.listen.is_empty() && self.reading.cx.problems.is_empty() {
            self.problem("listen", "nothing to listen on".to_owned(), "", "add [[listen]] with an address");
        }
    }

    /// Metrics and the answers to the authority of certificates have ports, too.
    fn ports_of_others(&mut self, s: &Settings) {
        let socket = |address: &ListenAddress| match address {
            ListenAddress::Ip(ip, Some(port)) => Some(SocketAddr::new(*ip, *port)),
            _ => None,
        };
        let acme_key = if s.acme.listen.is_some() { "acme.listen" } else { "acme.names" };
        let mail = s.listen.iter().filter_map(|listen| match &listen.address {
            ListenAt::Ip(address) => Some(("[[listen]]", *address)),
            ListenAt::Unix { .. } | ListenAt::Systemd(_) => None,
        });
        let mut taken: Vec<(&str, SocketAddr)> = mail.collect();
        let metrics = s.metrics.listen.as_ref().and_then(socket);
        let acme = s.acme.is_used().then(|| s.acme.listen_address()).flatten();
        for (key, address) in [("metrics.listen", metrics), (acme_key, acme.as_ref().and_then(socket))] {
            let Some(address) = address else { continue };
            if let Some((first, _)) = taken.iter().find(|(_, other)| clash(*other, address)) {
                let what = format!("{address} is for {first} and for `{key}`");
                self.problem(key, what, "one address, two uses", "give each its own address or port");
            }
            taken.push((key, address));
        }
    }

    fn listener(&mut self, s: &Settings, listen: &Listen) {
        let key = |key: &str| format!("listen[{}].{key}", listen.number);
        for (name, networks) in [("proxy", &listen.proxy), ("xclient", &listen.xclient)] {
            // Who is listed can say that he has an address of `relay.networks`.
            if maps::are_too_wide(networks) {
                let what = format!("`{}` makes this an open relay", key(name));
                let label = "whoever is listed may name any address as his own";
                self.problem(&key(name), what, label, "name your load balancers and mail proxies only");
            }
        }
        match &listen.address {
            ListenAt::Unix { path, .. } => {
                self.no_other_file(&key("address"), path);
                self.unix_listener(listen, too_long(path));
            }
            ListenAt::Ip(_) | ListenAt::Systemd(_) => {
                for name in ["mode", "owner", "group"].map(key) {
                    if self.is_set(&name) {
                        let what = format!("`{name}` has no effect for {}", listen.address);
                        self.problem(&name, what, "for Unix sockets only", "remove it");
                    }
                }
            }
        }
        if let Some(sessions) = listen.max_sessions {
            self.at_least(&key("max_sessions"), &sessions, &1);
        }
        if listen.greeting_delay > GREETING_DELAY_MAX {
            let what = format!("`{}` is too large", key("greeting_delay"));
            let help = "write \"30s\" or less: honest clients wait five minutes at most, and many less";
            self.problem(&key("greeting_delay"), what, "", help);
        }
        self.client_certificates(s, listen);
        for (name, peers) in [("xclient", &listen.xclient), ("xforward", &listen.xforward)] {
            if let Some(net) = peers.iter().find(|net| net.prefix_len() == 0) {
                let what = format!("{net} lets every client claim any address");
                self.problem(&key(name), what, "all clients", "name the peers that may speak for others");
            }
        }
        if let Some(size) = listen.max_message_size {
            self.at_least(&key("max_message_size"), &size, &ByteSize(64 << 10));
        }
    }

    /// Certificates are shown in a TLS handshake, and are trusted by authorities.
    fn client_certificates(&mut self, s: &Settings, listen: &Listen) {
        let key = format!("listen[{}].client_certificates", listen.number);
        if listen.client_certificates == ClientCertificates::Off {
            return;
        }
        if listen.tls == ListenTls::Off {
            let what = format!("`{key}` has no effect without TLS");
            self.problem(&key, what, "no client can present one", "remove it, or `tls = \"off\"`");
        } else if listen.client_certificates == ClientCertificates::Require
            && s.tls.client_ca_file.is_none()
            && !self.has_failed("tls.client_ca_file")
        {
            let what = "no certificate of a client is trusted, and this listener requires one".to_owned();
            self.problem(&key, what, "no authority", "add `client_ca_file` to [tls]");
        }
    }

    /// A Unix socket has no TLS, and no client of it is in a network.
    fn unix_listener(&mut self, listen: &Listen, is_too_long: bool) {
        let key = |key: &str| format!("listen[{}].{key}", listen.number);
        if is_too_long {
            let what = format!("{} is too long for a socket", listen.address);
            self.problem(&key("address"), what, "over 106 bytes", "choose a shorter path");
        }
        let kind = match listen.kind {
            ListenerKind::Relay => {
                Some("nobody on a Unix socket is in `relay.networks`: write \"mx\" or \"lmtp\"")
            }
            ListenerKind::Submissions => Some("a Unix socket has no TLS: write \"submission\""),
            ListenerKind::Mx | ListenerKind::Submission | ListenerKind::Lmtp => None,
        };
        if let Some(help) = kind {
            let what = format!("`{}` does not fit a Unix socket", key("kind"));
            self.problem(&key("kind"), what, "not here", help);
        } else if listen.tls != ListenTls::Off {
            let what = format!("`{}` has no effect for a Unix socket", key("tls"));
            self.problem(&key("tls"), what, "there is no TLS here", "remove it");
        }
        if !listen.proxy.is_empty() {
            let what = format!("`{}` has no effect for a Unix socket", key("proxy"));
            self.problem(&key("proxy"), what, "its clients have no address", "remove it");
        }
    }
}

fn is_same(one: &ListenAt, other: &ListenAt) -> bool {
    match (one, other) {
        (ListenAt::Ip(one), ListenAt::Ip(other)) => clash(*one, *other),
        (ListenAt::Unix { path: one, .. }, ListenAt::Unix { path: other, .. }) => one == other,
        (one, other) => one == other,
    }
}
