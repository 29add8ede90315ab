//! The resolver, the name of the host, and the way out to other mail servers.

use super::Finding;
use accept::routes::Routes;
use config::{FilterServer, Settings};
use filter::{Conversation, Failure};
use mail::{Domain, NextHop};
use route::dns::{Dns, Lookup};
use server::wiring;
use std::{
    fs,
    future::Future,
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
    time::timeout,
};

const RESOLVER: &str = "resolver";
const HOST_NAME: &str = "host name";
const OUTWARD: &str = "port 25";
const FILTER: &str = "filter";

/// Time for one question to the resolver.
pub(crate) const LOOKUP_TIMEOUT: Duration = Duration::from_secs(20);
/// A look-up that takes longer delays each message to a new domain.
const SLOW_LOOKUP: Duration = Duration::from_secs(1);
/// The time for a connection, and for the greeting behind it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Addresses that are tried, or verified.
const ADDRESSES_MAX: usize = 4;
/// Longest line of a greeting.
const GREETING_BYTES_MAX: u64 = 4096;

/// Runs the checks; each has a time limit. `domain` is the one that is looked up and connected to.
pub(super) fn check(settings: &Settings, domain: &str) -> Vec<Finding> {
    let runtime = match console::runtime() {
        Ok(runtime) => runtime,
        Err(error) => return vec![Finding::error(RESOLVER, error.text, "free memory or descriptors")],
    };
    runtime.block_on(async {
        let dns = match wiring::dns(settings) {
            Ok(dns) => dns,
            Err(why) => {
                return vec![Finding::error(
                    RESOLVER,
                    why,
                    "correct /etc/resolv.conf, or set `dns.nameservers`",
                )];
            }
        };
        let mut findings = vec![resolver(&dns, settings, domain).await];
        findings.extend(host_name(&dns, settings).await);
        findings.push(outward(&dns, settings, domain).await);
        for filter in &settings.filters {
            findings.push(answers(filter, settings).await);
        }
        findings
    })
}

/// Agrees with a milter on the protocol, and takes leave; asks others whether they are there.
async fn answers(filter: &config::Filter, settings: &Settings) -> Finding {
    let config::Filter { name, server, timeout: limit, .. } = filter;
    let (answered, key) = match server {
        FilterServer::Milter(server) => (Conversation::open(server, *limit).await.map(drop), "milter"),
        FilterServer::Rspamd(server) => (filter::ping_rspamd(server, *limit).await, "rspamd"),
        FilterServer::Hook(hook) => {
            let reached = timeout(*limit, accept::reach_hook(hook, settings)).await;
            (reached.unwrap_or(Err(Failure::TimedOut(*limit))), "hook")
        }
    };
    let Err(failure) = answered else {
        let is_hook = matches!(server, FilterServer::Hook(_));
        let more =
            if is_hook { "; whether it trusts the signature shows with the first message" } else { "" };
        return Finding::ok(FILTER, format!("{name} answers at {server}{more}"));
    };
    let seen = |result: &str| format!("{name} ({server}): {failure}: {result}");
    let advice = format!("start the filter, let the daemon's user open its socket, or correct `{key}`");
    if filter.passes_on_failure {
        Finding::warning(FILTER, seen("mail passes without it"), advice)
    } else {
        Finding::error(FILTER, seen("mail gets 451"), advice)
    }
}

/// Waits for an answer; one that comes too late is unknown.
pub(crate) async fn in_time<T>(asked: impl Future<Output = Lookup<T>>) -> Lookup<T> {
    let late = || Lookup::Unknown(format!("no answer within {} s", LOOKUP_TIMEOUT.as_secs()));
    timeout(LOOKUP_TIMEOUT, asked).await.unwrap_or_else(|_| late())
}

async fn resolver(dns: &Dns, settings: &Settings, domain: &str) -> Finding {
    let servers = servers(settings);
    let begun = Instant::now();
    let found = in_time(dns.mx(domain)).await;
    let took = begun.elapsed();
    let ms = took.as_millis();
    let advice = "check that the name servers answer: `dns.nameservers`, or /etc/resolv.conf";
    match found {
        Lookup::Found(_) | Lookup::NoData if took > SLOW_LOOKUP => {
            let seen = format!("the MX records of {domain} took {ms} ms, from {servers}");
            Finding::warning(RESOLVER, seen, "use a name server on this machine, such as unbound")
        }
        Lookup::Found(hosts) => Finding::ok(
            RESOLVER,
            format!("{} MX records of {domain} in {ms} ms, from {servers}", hosts.len()),
        ),
        Lookup::NoData => {
            Finding::ok(RESOLVER, format!("{domain} has no MX record; {ms} ms, from {servers}"))
        }
        Lookup::NxDomain => {
            let seen = format!("the domain {domain} does not exist, according to {servers}");
            Finding::error(
                RESOLVER,
                seen,
                "name another with --domain, or use a name server that knows all domains",
            )
        }
        Lookup::Unknown(why) => {
            let seen = format!("{why} (asked {servers}); mail to other servers waits");
            Finding::error(RESOLVER, seen, advice)
        }
    }
}

/// Names the servers that are asked.
fn servers(settings: &Settings) -> String {
    let own: Vec<String> = settings.dns.nameservers.iter().map(|server| server.0.to_string()).collect();
    if !own.is_empty() {
        return own.join(", ");
    }
    let text = fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let listed = text.lines().filter_map(|line| line.strip_prefix("nameserver")).map(str::trim);
    let listed: Vec<&str> = listed.collect();
    if listed.is_empty() { "/etc/resolv.conf".to_owned() } else { listed.join(", ") }
}

/// Compares the name of the host with its addresses, and with the names of these.
pub(crate) async fn host_name(dns: &Dns, settings: &Settings) -> Vec<Finding> {
    let host = settings.hostname.to_ascii_lowercase();
    if !host.contains('.') {
        let seen = format!("\"{host}\" is not a full host name");
        return vec![Finding::error(
            HOST_NAME,
            seen,
            "set `hostname` to the name that DNS has for this machine",
        )];
    }
    let mut addresses = match in_time(dns.addresses(&host)).await {
        Lookup::Found(addresses) => addresses,
        Lookup::NoData | Lookup::NxDomain => {
            let seen = format!(
                "{host} has no address in DNS: other servers refuse mail from a name that does not exist"
            );
            return vec![Finding::error(
                HOST_NAME,
                seen,
                "add A or AAAA records for it, or correct `hostname`",
            )];
        }
        Lookup::Unknown(why) => {
            return vec![Finding::warning(HOST_NAME, why, "check the resolver, and try again")];
        }
    };
    addresses.truncate(ADDRESSES_MAX);
    if addresses.iter().all(IpAddr::is_loopback) {
        let seen = format!("{host} has only a loopback address in DNS ({})", addresses[0]);
        return vec![Finding::warning(
            HOST_NAME,
            seen,
            "add records with the address that other servers see",
        )];
    }
    // Other servers see this address, whatever the name of the host leads to.
    addresses.extend(settings.delivery.source_address.filter(|own| !addresses.contains(own)));
    let mut findings = Vec::new();
    for address in addresses {
        let name = in_time(dns.verified_name(address)).await;
        findings.push(reverse(&host, address, name));
    }
    findings
}

fn reverse(host: &str, address: IpAddr, name: Lookup<String>) -> Finding {
    let advice = format!("ask your provider to set the reverse name (PTR) of {address} to {host}");
    match name {
        Lookup::Found(name) if name == host => {
            Finding::ok(HOST_NAME, format!("{host} is {address}, and {address} is {host}"))
        }
        Lookup::Found(name) => {
            Finding::warning(HOST_NAME, format!("the name of {address} is {name}, not {host}"), advice)
        }
        Lookup::NoData | Lookup::NxDomain => Finding::warning(
            HOST_NAME,
            format!("{address} has no name that leads back to it: many servers refuse its mail"),
            advice,
        ),
        Lookup::Unknown(why) => Finding::warning(HOST_NAME, why, "check the resolver, and try again"),
    }
}

/// Connects to the next hop of a domain, waits for its greeting, and sends nothing but QUIT.
async fn outward(dns: &Dns, settings: &Settings, domain: &str) -> Finding {
    let key = Domain::parse(domain).map_or_else(|_| domain.to_owned(), |domain| domain.key().into_owned());
    let (host, port) = match Routes::from(settings).domain(&key).next_hop {
        NextHop::Smarthost(host) => (host.host.clone(), host.port),
        NextHop::Mx(_) => match in_time(dns.mx(&key)).await {
            Lookup::Found(mut hosts) => {
                hosts.sort();
                (hosts.swap_remove(0).1, settings.delivery.mx_port)
            }
            _ => (key.clone(), settings.delivery.mx_port),
        },
        other => {
            return Finding::ok(
                OUTWARD,
                format!("not tried: mail for {domain} does not leave by SMTP ({other})"),
            );
        }
    };
    let addresses = match host.parse::<IpAddr>() {
        Ok(address) => vec![address],
        Err(_) => match in_time(dns.addresses(&host)).await {
            Lookup::Found(addresses) => addresses,
            _ => {
                let seen = format!("not tried: {host} has no address");
                return Finding::warning(OUTWARD, seen, "name a domain that takes mail with --domain");
            }
        },
    };
    let mut failures = Vec::new();
    for address in addresses.into_iter().take(ADDRESSES_MAX) {
        let to = SocketAddr::from((address, port));
        match greeting(to).await {
            Ok(greeting) if greeting.starts_with("220") => {
                return Finding::ok(
                    OUTWARD,
                    format!("{host}[{address}]:{port} answers: {}", greeting.trim_end()),
                );
            }
            Ok(greeting) => failures.push(format!("{address} says {:?}", greeting.trim_end())),
            Err(why) => failures.push(format!("{address}: {why}")),
        }
    }
    let seen = format!("no connection to {host}, port {port}: {}", failures.join("; "));
    let advice = if port == 25 {
        "outbound mail may be blocked: many providers close port 25 until you ask them to open it. Check the firewall of this \
         machine, ask the provider, or send by a route with `smarthost` and port 587 or 465"
    } else {
        "check the host, the port and the firewall of this machine"
    };
    Finding::error(OUTWARD, seen, advice)
}

/// Connects, and returns the first line that the server sends.
async fn greeting(to: SocketAddr) -> Result<String, String> {
    let late = |what: &str| format!("{what} within {} s", CONNECT_TIMEOUT.as_secs());
    let connected = timeout(CONNECT_TIMEOUT, TcpStream::connect(to)).await;
    let stream = connected
        .map_err(|_| late("no answer"))?
        .map_err(|e| mail::plain_text(&e.to_string()).into_owned())?;
    let mut stream = BufReader::new(tokio::io::AsyncReadExt::take(stream, GREETING_BYTES_MAX));
    let mut line = String::new();
    let read = timeout(CONNECT_TIMEOUT, stream.read_line(&mut line)).await;
    read.map_err(|_| late("no greeting"))?.map_err(|e| e.to_string())?;
    // Its answer does not matter.
    let _ = timeout(CONNECT_TIMEOUT, stream.get_mut().get_mut().write_all(b"QUIT\r\n")).await;
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Level;

    #[test]
    fn the_name_of_an_address_must_be_that_of_the_host() {
        let address = "192.0.2.1".parse().unwrap();
        for (name, level) in [
            (Lookup::Found("mx.test".to_owned()), Level::Ok),
            (Lookup::Found("192-0-2-1.isp.test".to_owned()), Level::Warning),
            (Lookup::NoData, Level::Warning),
            (Lookup::Unknown("SERVFAIL".to_owned()), Level::Warning),
        ] {
            assert_eq!(reverse("mx.test", address, name.clone()).level, level, "{name:?}");
        }
    }
}
