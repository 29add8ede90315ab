//! The daemon and its command line. Under the names `sendmail`, `mailq` and `newaliases` the binary
//! behaves as those commands do.

mod cli;
mod control;
#[cfg(test)]
mod fuzz;
mod own_address;
mod routing;
mod sendmail;
mod serve;
mod sysexits;

use std::{ffi::OsString, process::ExitCode};

/// Threads share the C library's badly: docs/decisions/allocator.md.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    match sendmail::Personality::of(&arguments) {
        Some((personality, rest)) => sendmail::run(personality, rest),
        None => cli::run(&arguments),
    }
}
