//! Limits of the process: of the running daemon where there is one, else of this command.

use super::Finding;
use config::Settings;
use rustix::{
    net::sockopt::socket_peercred,
    process::{Resource, getrlimit},
};
use server::open_files::Connections;
use std::{fs, os::unix::net::UnixStream, path::PathBuf};

const LIMITS: &str = "limits";

/// Threads that wait for disks, besides the workers.
const OTHER_THREADS: u64 = 600;

/// Compares the limits with what the configuration may need.
pub(super) fn check(settings: Option<&Settings>) -> Vec<Finding> {
    let daemon = settings.and_then(|settings| daemon_limits(&settings.control.socket));
    let (whose, limits) = match daemon {
        Some(limits) => ("the running daemon", limits),
        None => ("this command (a service may have others)", own()),
    };
    let needed = settings.map_or(0, |settings| Connections::configured(settings).files_needed());
    judge(whose, &limits, needed)
}

/// None: no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Limits {
    files: Option<u64>,
    threads: Option<u64>,
    file_bytes: Option<u64>,
    locked_bytes: Option<u64>,
}

fn judge(whose: &str, limits: &Limits, files_needed: u64) -> Vec<Finding> {
    let number = |limit: Option<u64>| limit.map_or("unlimited".to_owned(), |limit| limit.to_string());
    let mut findings = Vec::new();
    let files = format!("open files of {whose}: {}", number(limits.files));
    findings.push(if limits.files.is_some_and(|limit| limit < files_needed) {
        Finding::warning(
            LIMITS,
            format!("{files}; the connections that the configuration permits may need {files_needed}"),
            "raise it (LimitNOFILE= in the unit), or lower `inbound.max_sessions` and `delivery.max_connections`",
        )
    } else {
        Finding::ok(LIMITS, files)
    });
    let threads = format!("threads and processes of the user: {}", number(limits.threads));
    findings.push(if limits.threads.is_some_and(|limit| limit < OTHER_THREADS) {
        Finding::warning(
            LIMITS,
            threads,
            format!("raise it (LimitNPROC=, TasksMax=) to {OTHER_THREADS} or more"),
        )
    } else {
        Finding::ok(LIMITS, threads)
    });
    if let Some(limit) = limits.file_bytes {
        let seen = format!("the size of a file is limited to {limit} bytes");
        findings.push(Finding::error(
            LIMITS,
            seen,
            "remove the limit (LimitFSIZE=): writes to the spool may fail",
        ));
    }
    let locked = number(limits.locked_bytes);
    findings.push(Finding::ok(LIMITS, format!("locked memory: {locked} bytes; the daemon needs none")));
    findings
}

fn own() -> Limits {
    // The daemon raises the limit of files to its maximum.
    let maximum = |resource| getrlimit(resource).maximum;
    let threads = [maximum(Resource::Nproc), group_threads()].into_iter().flatten().min();
    Limits {
        files: maximum(Resource::Nofile),
        threads,
        file_bytes: getrlimit(Resource::Fsize).current,
        locked_bytes: maximum(Resource::Memlock),
    }
}

/// Returns the limit of threads of the control group.
fn group_threads() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let file = PathBuf::from("/sys/fs/cgroup").join(path.trim_start_matches('/')).join("pids.max");
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// Returns the limits of the process that listens on the control socket.
fn daemon_limits(socket: &std::path::Path) -> Option<Limits> {
    let stream = UnixStream::connect(socket).ok()?;
    let pid = socket_peercred(&stream).ok()?.pid.as_raw_nonzero();
    limits_in(&fs::read_to_string(format!("/proc/{pid}/limits")).ok()?)
}

/// Reads /proc/PID/limits.
fn limits_in(text: &str) -> Option<Limits> {
    let soft = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.split_ascii_whitespace().next()?.parse().ok())
    };
    Some(Limits {
        files: soft("Max open files")?,
        threads: soft("Max processes")?,
        file_bytes: soft("Max file size")?,
        locked_bytes: soft("Max locked memory")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Level;

    const TEXT: &str = "Limit                     Soft Limit           Hard Limit           Units     \n\
        Max file size             unlimited            unlimited            bytes     \n\
        Max processes             15234                15234                processes \n\
        Max open files            1024                 524288               files     \n\
        Max locked memory         8388608              8388608              bytes     \n";

    #[test]
    fn too_few_files_for_the_connections_are_a_warning() {
        let limits = limits_in(TEXT).unwrap();
        let expected =
            Limits { files: Some(1024), threads: Some(15234), file_bytes: None, locked_bytes: Some(8388608) };
        assert_eq!(limits, expected);
        let levels = |needed| judge("it", &limits, needed).iter().map(|one| one.level).collect::<Vec<_>>();
        assert_eq!(levels(11_256)[..2], [Level::Warning, Level::Ok]);
        assert_eq!(levels(1000)[..2], [Level::Ok, Level::Ok]);
    }

    #[test]
    fn a_limit_of_the_size_of_files_is_an_error() {
        let limits = Limits { file_bytes: Some(1 << 20), ..limits_in(TEXT).unwrap() };
        assert!(judge("it", &limits, 10).iter().any(|one| one.level == Level::Error));
    }

    #[test]
    fn this_process_has_limits() {
        let found = limits_in(&fs::read_to_string("/proc/self/limits").unwrap()).unwrap();
        assert!(found.files.is_none_or(|files| files > 10));
        assert!(check(None).len() >= 3);
    }
}
