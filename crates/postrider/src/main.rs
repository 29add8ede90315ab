//! The daemon and its command line. Under the names `sendmail`, `mailq` and `newaliases` the binary
//! behaves as those commands do.

mod access;
mod applets;
mod archive;
mod cli;
mod expansion;
mod imported;
mod mailboxes;
mod map_entries;
mod map_faults;
mod open_files;
mod own_address;
mod port_owner;
mod routing;
mod serve;
mod site_files;
mod spool_room;
mod unnamed_spools;

use std::{ffi::OsString, process::ExitCode};
use submission::sendmail;

/// Threads share the C library's badly: docs/decisions/allocator.md.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    match sendmail::Applet::of(&arguments) {
        Some((applet, rest)) => sendmail::run(applet, rest, &applets::Commands),
        None => cli::run(&arguments),
    }
}
