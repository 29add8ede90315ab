//! Limits of this process.

use rustix::process::{Resource, getrlimit, setrlimit};

/// As many open files as the system lets us have: a session is one, and there may be thousands.
pub(crate) fn raise_files() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // With fewer, what cannot be opened is told when it is tried.
    let _ = setrlimit(Resource::Nofile, limit);
}
