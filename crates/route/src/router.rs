//! From a destination to the hosts that take its mail (RFC 5321 §5.1).

use crate::dns::{Dns, Lookup};
use mail::{Domain, Enhanced, Outcome};
use rustix::net::sockopt;
use std::{
    collections::HashSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// The most addresses that one delivery tries: a hundred dead ones would hold a connection for an hour.
const ADDRESSES_MAX: usize = 20;

/// A host that takes mail, with its addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// The name that a certificate of the host has.
    pub name: String,
    /// The addresses of the host.
    pub addresses: Vec<SocketAddr>,
}

/// This server's name and addresses, and the port of mail exchangers.
#[derive(Debug, Clone)]
pub struct RouterSettings {
    /// The name of this server: mail is never sent there by MX.
    pub hostname: String,
    /// Where this server listens: a host with one of them is this server itself.
    pub listening: Vec<SocketAddr>,
    /// `delivery.mx_port`: 25, since only tests need another one.
    pub mx_port: u16,
}

/// Finds the hosts of a destination, in the order in which to try them.
pub struct Router {
    dns: Arc<Dns>,
    settings: RouterSettings,
    /// Orders hosts of equal preference differently each time.
    turn: AtomicU64,
}

impl Router {
    /// Returns a router that asks this resolver.
    pub fn new(dns: impl Into<Arc<Dns>>, settings: RouterSettings) -> Self {
        Self { dns: dns.into(), settings, turn: AtomicU64::new(u64::from(std::process::id())) }
    }

    /// Returns the addresses of a fixed host. A name that cannot be found is an error of the configuration: the mail
    /// waits until the configuration is corrected.
    ///
    /// # Errors
    /// A deferral.
    pub async fn host(&self, name: &str, port: u16) -> Result<Vec<Host>, Outcome> {
        let addresses = match name.parse::<IpAddr>() {
            Ok(address) => vec![address],
            Err(_) => match self.dns.addresses(name).await {
                Lookup::Found(found) => found,
                Lookup::NoData => return defer(format!("the next hop {name} has no address")),
                Lookup::NxDomain => return defer(format!("the next hop {name} does not exist")),
                Lookup::Unknown(why) => return defer(why),
            },
        };
        let addresses = addresses.into_iter().take(ADDRESSES_MAX).map(|ip| SocketAddr::new(ip, port));
        Ok(vec![Host { name: name.to_owned(), addresses: addresses.collect() }])
    }

    /// Returns the mail exchangers of a domain, given as [`mail::Domain::key`], best first.
    ///
    /// # Errors
    /// Deferred while DNS does not answer. Failed only when it says for sure that the domain does not
    /// exist (5.1.2), takes no mail (5.1.10, RFC 7505), has no host (5.4.4), or leads back to us (5.4.6).
    pub async fn exchangers(&self, domain: &str) -> Result<Vec<Host>, Outcome> {
        let port = self.settings.mx_port;
        if let Some(ip) = Domain::parse(domain).ok().and_then(Domain::literal) {
            let address = SocketAddr::new(ip, port);
            if self.is_own(address) {
                return fail(
                    5,
                    4,
                    6,
                    format!("{domain} is routed back to this server, which is not responsible for it"),
                );
            }
            return Ok(vec![Host { name: ip.to_string(), addresses: vec![address] }]);
        }
        let records =
            if self.dns.fixed(domain).is_some() { Lookup::NoData } else { self.dns.mx(domain).await };
        let mut records = match records {
            Lookup::Found(records) => records,
            // Without MX the domain is its own exchanger.
            Lookup::NoData => vec![(0, domain.to_owned())],
            Lookup::NxDomain => return fail(5, 1, 2, format!("the domain {domain} does not exist")),
            Lookup::Unknown(why) => return defer(why),
        };
        if records.iter().all(|(_, host)| host.is_empty()) {
            return fail(5, 1, 10, format!("{domain} takes no mail (null MX, RFC 7505)"));
        }
        records.retain(|(_, host)| !host.is_empty());
        self.resolve(domain, self.in_order(records)).await
    }

    /// By preference; within one, by chance, so that the load spreads.
    fn in_order(&self, mut records: Vec<(u16, String)>) -> Vec<(u16, String)> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        records.sort_by_cached_key(|(preference, host)| {
            use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
            (*preference, BuildHasherDefault::<DefaultHasher>::default().hash_one((turn, host)))
        });
        let mut seen = HashSet::new();
        records.retain(|(_, host)| seen.insert(host.clone()));
        records
    }

    /// Looks the hosts up, best first, until there are enough addresses. Our own name or address ends
    /// the list: hosts as good as we are or worse would only send the mail back to us.
    async fn resolve(&self, domain: &str, records: Vec<(u16, String)>) -> Result<Vec<Host>, Outcome> {
        let mut hosts: Vec<(u16, Host)> = Vec::new();
        let (mut unknown, mut own) = (None, None);
        let mut count = 0;
        for (preference, name) in records {
            if own.is_some_and(|own| preference >= own) || count >= ADDRESSES_MAX {
                break;
            }
            if name == self.settings.hostname {
                own = Some(preference);
                continue;
            }
            match self.dns.addresses(&name).await {
                Lookup::Found(found) => {
                    let room = ADDRESSES_MAX - count;
                    let addresses: Vec<_> = found
                        .into_iter()
                        .take(room)
                        .map(|ip| SocketAddr::new(ip, self.settings.mx_port))
                        .collect();
                    if addresses.iter().any(|address| self.is_own(*address)) {
                        own = Some(preference);
                        continue;
                    }
                    count += addresses.len();
                    hosts.push((preference, Host { name, addresses }));
                }
                Lookup::Unknown(why) => unknown = Some(why),
                Lookup::NoData | Lookup::NxDomain => {}
            }
        }
        if let Some(own) = own {
            hosts.retain(|(preference, _)| *preference < own);
        }
        match (hosts.is_empty(), unknown, own) {
            (false, ..) => Ok(hosts.into_iter().map(|(_, host)| host).collect()),
            (true, Some(why), _) => defer(why),
            (true, None, Some(_)) => fail(
                5,
                4,
                6,
                format!("mail for {domain} is routed back to this server, which is not responsible for it"),
            ),
            (true, None, None) => fail(5, 4, 4, format!("no mail exchanger of {domain} has an address")),
        }
    }

    /// Do we listen there?
    fn is_own(&self, address: SocketAddr) -> bool {
        let ip = address.ip();
        self.settings.listening.iter().any(|own| {
            own.port() == address.port()
                && (own.ip() == ip || (own.ip().is_unspecified() && is_this_machines(ip)))
        })
    }
}

/// Returns whether this machine has the address. Not every one that can be bound is: with ip_nonlocal_bind all can.
/// Nothing is sent.
pub fn is_this_machines(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        // Only by an address of ours may multicast leave. (The source of what goes to a second address of an
        // interface is the first.)
        IpAddr::V4(ip) => UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))
            .is_ok_and(|socket| sockopt::set_ip_multicast_if(&socket, &ip).is_ok()),
        // What goes to one of ours comes from it (RFC 6724 §5, rule 1).
        IpAddr::V6(ip) => {
            let source = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).and_then(|socket| {
                socket.connect((ip, 9))?;
                socket.local_addr()
            });
            ip.is_unspecified() || source.is_ok_and(|source| source.ip() == ip)
        }
    }
}

fn defer<T>(text: String) -> Result<T, Outcome> {
    Err(Outcome::deferred(Enhanced(4, 4, 3), text))
}

fn fail<T>(class: u8, subject: u16, detail: u16, text: String) -> Result<T, Outcome> {
    Err(Outcome::failed(Enhanced(class, subject, detail), text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machines_addresses_are_known() {
        for (address, is_ours) in [
            ("127.0.0.1", true),
            ("127.9.9.9", true),
            ("0.0.0.0", true),
            ("192.0.2.1", false),
            ("2001:db8::1", false),
        ] {
            assert_eq!(is_this_machines(address.parse().unwrap()), is_ours, "{address}");
        }
    }

    #[test]
    fn they_are_known_where_every_address_can_be_bound() {
        let script =
            "echo 1 >/proc/sys/net/ipv4/ip_nonlocal_bind && echo 1 >/proc/sys/net/ipv6/ip_nonlocal_bind &&
            ip link set lo up && exec \"$0\" --exact router::tests::this_machines_addresses_are_known";
        let mut alone = std::process::Command::new("unshare");
        alone.args(["--map-root-user", "--net", "sh", "-c", script]).arg(std::env::current_exe().unwrap());
        match alone.output() {
            Ok(output) if output.status.success() => {}
            // What a failed test ends with.
            Ok(output) if output.status.code() == Some(101) => {
                panic!("{}", String::from_utf8_lossy(&output.stdout));
            }
            _ => println!("SKIPPED: no network of one's own may be made here"),
        }
    }
}
