//! The processes of the server that listens on a local port.

use crate::usage::members;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::{IpAddr, ToSocketAddrs as _},
    path::{Path, PathBuf},
};

/// The place in which the processes of a server are found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Processes {
    /// A control group: the processor time of processes that have ended is counted.
    Group(PathBuf),
    /// This process and its descendants.
    Tree(u32),
    Unknown,
}

impl Processes {
    /// Finds the processes of the server that listens at an endpoint of this machine.
    pub(super) fn behind(endpoint: &str) -> Self {
        let Some(top) = Self::listener(endpoint) else { return Self::Unknown };
        group_of(top).map_or(Self::Tree(top), Self::Group)
    }

    /// Finds the process that listens at an endpoint of this machine, or its ancestor of the same name. Root sees those of all
    /// users.
    pub(super) fn listener(endpoint: &str) -> Option<u32> {
        let local = |ip: IpAddr| ip.is_loopback() || ip.is_unspecified();
        let port = endpoint.to_socket_addrs().ok()?.find(|address| local(address.ip()))?.port();
        let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|p| fs::read_to_string(p).unwrap_or_default());
        let sockets: BTreeSet<u64> = tables.iter().flat_map(|table| listeners(table, port)).collect();
        all_pids().into_iter().find(|pid| has_any(*pid, &sockets)).map(top)
    }

    /// Returns the processes of this moment.
    pub(super) fn pids(&self) -> Vec<u32> {
        match self {
            Self::Group(group) => members(group),
            Self::Tree(top) => descendants(*top),
            Self::Unknown => Vec::new(),
        }
    }

    /// Returns the processor time of the group in seconds, processes that have ended included.
    pub(super) fn group_seconds(&self) -> Option<f64> {
        let Self::Group(group) = self else { return None };
        seconds_of(group)
    }
}

/// Returns the processor time of a group in seconds; none if the group does not count it.
fn seconds_of(group: &Path) -> Option<f64> {
    let second = fs::read_to_string(group.join("cpu.stat")).ok().and_then(|text| {
        text.lines().find_map(|l| l.strip_prefix("usage_usec "))?.trim().parse::<f64>().ok()
    });
    second.map(|us| us / 1e6).or_else(|| {
        let text = fs::read_to_string(group.join("cpuacct.usage")).ok()?;
        text.trim().parse::<f64>().ok().map(|ns| ns / 1e9)
    })
}

/// Inodes of the sockets that listen on a port (proc_net_tcp(5): state 0A).
fn listeners(table: &str, port: u16) -> Vec<u64> {
    let parse = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let is_port = fields.get(1)?.ends_with(&format!(":{port:04X}"));
        (is_port && *fields.get(3)? == "0A").then(|| fields.get(9)?.parse().ok()).flatten()
    };
    table.lines().filter_map(parse).collect()
}

/// Returns the ids of all processes in ascending order.
fn all_pids() -> Vec<u32> {
    let names = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut pids: Vec<u32> = names.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    pids.sort_unstable();
    pids
}

/// Returns true if a process has one of these sockets open.
pub(super) fn has_any(pid: u32, sockets: &BTreeSet<u64>) -> bool {
    let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    files
        .filter_map(|file| socket_of(&fs::read_link(file.path()).ok()?))
        .any(|inode| sockets.contains(&inode))
}

/// Returns the inode of `socket:[4711]`; `None` for other links.
fn socket_of(link: &Path) -> Option<u64> {
    link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// Returns name and parent of a process; `None` if it is gone.
fn name_and_parent(pid: u32) -> Option<(String, u32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (left, right) = stat.rsplit_once(')')?;
    Some((left.split_once('(')?.1.to_owned(), right.split_ascii_whitespace().nth(1)?.parse().ok()?))
}

/// Returns the control group of a server if nothing else is in it, as a service of systemd has one. Processes that end between two
/// looks, as Exim has some for each message, count there.
fn group_of(top: u32) -> Option<PathBuf> {
    let text = fs::read_to_string(format!("/proc/{top}/cgroup")).ok()?;
    let group = groups_in(&text).into_iter().find(|group| seconds_of(group).is_some())?;
    let (members, own) = (members(&group), descendants(top));
    let is_service = group.extension().is_some_and(|extension| extension == "service");
    let is_alone = is_service || members.iter().all(|pid| own.contains(pid));
    (members.contains(&top) && !members.contains(&std::process::id()) && is_alone).then_some(group)
}

/// Directories in which the groups of a process can be, by cgroups(7): those that count processor time in version 1, then version 2.
fn groups_in(text: &str) -> Vec<PathBuf> {
    let place = |line: &str| {
        let mut fields = line.splitn(3, ':');
        let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let path = path.trim_start_matches('/');
        // All processes are in the root.
        let roots: &[&str] = match () {
            () if path.is_empty() => &[],
            () if controllers.split(',').any(|controller| controller == "cpuacct") => {
                &["cpuacct", "cpu,cpuacct"]
            }
            () if number == "0" => &["", "unified"],
            () => &[],
        };
        Some(roots.iter().map(|root| Path::new("/sys/fs/cgroup").join(root).join(path)).collect::<Vec<_>>())
    };
    text.lines().filter_map(place).flatten().collect()
}

/// The highest ancestor with the name of the process: OpenSMTPD listens in a child.
fn top(pid: u32) -> u32 {
    let Some((name, parent)) = name_and_parent(pid) else { return pid };
    match name_and_parent(parent) {
        Some((above, _)) if parent > 1 && above == name => top(parent),
        _ => pid,
    }
}

fn descendants(top: u32) -> Vec<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for pid in all_pids() {
        if let Some((_, parent)) = name_and_parent(pid) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = vec![top];
    let mut i = 0;
    while let Some(pid) = found.get(i) {
        found.extend(children.remove(pid).unwrap_or_default());
        i += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_behind_a_listening_port_is_found() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let found = Processes::behind(&address);
        assert!(found.pids().contains(&std::process::id()), "{found:?}");
        // Kept on all addresses: whoever had the port on one of them would be found.
        let (_kept, silent) = measure::kept_port::kept_port(std::net::Ipv4Addr::UNSPECIFIED).unwrap();
        assert_eq!(Processes::behind(&silent.to_string()), Processes::Unknown);
    }

    #[test]
    fn the_groups_of_a_process_are_those_that_count_processor_time() {
        let both =
            "12:memory:/x\n4:cpu,cpuacct:/system.slice/exim4.service\n0::/system.slice/exim4.service\n";
        let paths = ["cpuacct", "cpu,cpuacct", "", "unified"]
            .map(|root| Path::new("/sys/fs/cgroup").join(root).join("system.slice/exim4.service"));
        assert_eq!(groups_in(both), paths);
        assert!(groups_in("0::/\n4:cpuacct:/\n").is_empty());
    }
}
