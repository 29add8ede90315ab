//! The ports of the listeners: free, or in use by this daemon.

use super::Finding;
use config::{ListenAt, Settings};
use control::client::{Client, ClientError};
use mail::Reply;
use server::{port_owner::owner_of, try_address};
use smtp::server::replies;
use std::{
    io::{self, BufRead as _, BufReader},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream},
    time::Duration,
};

const PORTS: &str = "listeners";

/// A listener of this machine may take this long to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Checks each listener with an address.
pub(super) fn check(settings: &Settings) -> Vec<Finding> {
    // Who may not ask the daemon knows that it runs.
    let is_running =
        matches!(Client::connect(&settings.control.socket), Ok(_) | Err(ClientError::Refused(_)));
    let addresses = settings.listen.iter().filter_map(|listen| match &listen.address {
        ListenAt::Ip(address) => Some((*address, listen)),
        ListenAt::Unix { .. } | ListenAt::Systemd(_) => None,
    });
    let is_greeting = |kind: mail::ListenerKind| kind != mail::ListenerKind::Submissions;
    addresses
        .filter(|(address, _)| address.port() != 0)
        .map(|(address, listen)| one(address, is_greeting(listen.kind), is_running, settings))
        .collect()
}

fn one(address: SocketAddr, greets: bool, is_running: bool, settings: &Settings) -> Finding {
    match try_address(address) {
        Ok(_) if is_running => {
            let seen = format!("{address} is free, although the daemon runs: it does not listen there");
            Finding::error(PORTS, seen, "restart the daemon, so that it reads the configuration")
        }
        Ok(_) => Finding::ok(PORTS, format!("{address} is free")),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let seen = format!("unknown whether {address} is free");
            Finding::warning(PORTS, seen, "run this command as root")
        }
        Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {
            let seen = format!("{address} is not an address of this machine");
            Finding::error(PORTS, seen, "correct the address in [[listen]]")
        }
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            in_use(address, greets, is_running, settings)
        }
        Err(error) => Finding::error(
            PORTS,
            format!("listen on {address}: {error}"),
            "correct the address in [[listen]]",
        ),
    }
}

fn in_use(address: SocketAddr, greets: bool, is_running: bool, settings: &Settings) -> Finding {
    let owner = owner_of(address.port());
    let by = owner.map_or("another program".to_owned(), |(name, pid)| format!("{name} (process {pid})"));
    let is_own =
        is_running && (!greets || greeting(address).is_ok_and(|line| is_ours(&line, &settings.hostname)));
    if is_own {
        return Finding::ok(PORTS, format!("{address} is served by {by}"));
    }
    let seen = format!("{address} is in use by {by}");
    Finding::error(PORTS, seen, "stop and disable that program, or choose another address in [[listen]]")
}

/// Returns whether a first line is one of this daemon's: a greeting, or the refusal of a listener that an operator drains or that has
/// no sessions left.
fn is_ours(line: &str, hostname: &str) -> bool {
    let is_refusal = |reply: &Reply| {
        let mut text = Vec::new();
        reply.write_to(&mut text);
        line.as_bytes() == text
    };
    line.contains(hostname) || is_refusal(&replies::DRAINED) || is_refusal(&replies::TOO_BUSY)
}

/// Returns the first line that a listener of this machine sends.
fn greeting(address: SocketAddr) -> io::Result<String> {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    let stream = TcpStream::connect_timeout(&SocketAddr::from((ip, address.port())), ANSWER_TIMEOUT)?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    let mut line = String::new();
    BufReader::new(io::Read::take(stream, 1024)).read_line(&mut line)?;
    Ok(line)
}
