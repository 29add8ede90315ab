//! The ports of the listeners: free, or in use by this daemon.

use super::Finding;
use config::{ListenAt, Settings};
use control::client::{Client, ClientError};
use std::{
    fs,
    io::{self, BufRead as _, BufReader},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream},
    time::Duration,
};

const PORTS: &str = "listeners";

/// A listener of this machine may take this long to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// The state of a socket that listens, in /proc/net/tcp.
const LISTENS: &str = "0A";

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
    match TcpListener::bind(address) {
        Ok(_) if is_running => {
            let seen = format!("{address} is free, although the daemon runs: it does not listen there");
            Finding::error(PORTS, seen, "restart the daemon, so that it reads the configuration")
        }
        Ok(_) => Finding::ok(PORTS, format!("{address} is free")),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let seen = format!("whether {address} is free is not known");
            Finding::warning(PORTS, seen, "run this command as root")
        }
        Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {
            let seen = format!("{address} is no address of this machine");
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
        is_running && (!greets || greeting(address).is_ok_and(|line| line.contains(&settings.hostname)));
    if is_own {
        return Finding::ok(PORTS, format!("{address} is served by {by}"));
    }
    let seen = format!("{address} is in use by {by}");
    Finding::error(PORTS, seen, "stop and disable that program, or choose another address in [[listen]]")
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

/// Returns the name and number of the process that listens on a port, as far as this user can see.
fn owner_of(port: u16) -> Option<(String, u32)> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| fs::read_to_string(path).unwrap_or_default());
    let inodes: Vec<String> = tables.iter().flat_map(|table| inodes_in(table, port)).collect();
    for process in fs::read_dir("/proc").ok()?.flatten() {
        let Ok(pid) = process.file_name().to_string_lossy().parse::<u32>() else { continue };
        let Ok(files) = fs::read_dir(process.path().join("fd")) else { continue };
        let has = files.flatten().filter_map(|file| fs::read_link(file.path()).ok()).any(|link| {
            let link = link.to_string_lossy();
            inodes.iter().any(|inode| link == format!("socket:[{inode}]"))
        });
        if has {
            let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            return Some((name.trim_end().to_owned(), pid));
        }
    }
    None
}

/// Returns the inodes of sockets that listen on a port: proc_net_tcp of the kernel's documentation.
fn inodes_in(table: &str, port: u16) -> Vec<String> {
    let suffix = format!(":{port:04X}");
    let listens = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let is_it = fields.get(1)?.ends_with(&suffix) && *fields.get(3)? == LISTENS;
        is_it.then(|| fields.get(9).map(|inode| (*inode).to_owned()))?
    };
    table.lines().filter_map(listens).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_that_listens_is_found_in_the_kernels_table() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
             0: 0100007F:0019 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 100 0 0 10 0\n\
             1: 0100007F:0019 0100007F:D431 01 00000000:00000000 00:00000000 00000000     0        0 4712 1 0 100 0 0 10 0\n";
        assert_eq!(inodes_in(table, 25), ["4711"]);
        assert_eq!(inodes_in(table, 26), [""; 0]);
    }

    #[test]
    fn the_process_behind_a_port_is_named() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (_, pid) = owner_of(listener.local_addr().unwrap().port()).unwrap();
        assert_eq!(pid, std::process::id());
    }
}
