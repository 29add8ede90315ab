//! Limits of this process, and of the machine.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Source and sink in one process, with as many sessions as a machine can be asked for.
const ENOUGH: u64 = 1 << 18;

/// As many open files as the system lets us have: a session is one, and there may be thousands.
pub fn raise_files() {
    let limit = getrlimit(Resource::Nofile);
    let hard = limit.maximum.map_or(ENOUGH, |maximum| maximum.max(ENOUGH));
    // Root may have more than it was given.
    let more = Rlimit { current: Some(hard), maximum: Some(hard) };
    if setrlimit(Resource::Nofile, more).is_err() {
        // With fewer, what cannot be opened is told when it is tried.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    }
}

/// Returns the number of files that this process may have open.
pub fn files() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Returns the memory of the machine in octets.
pub fn memory_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram.saturating_mul(info.mem_unit.into())
}
