//! The daemon and its command line. Under the names `sendmail`, `mailq` and `newaliases` the binary
//! behaves as those commands do.

mod cli;
#[allow(dead_code, unused_imports)] // its daemon side is used once `serve` is in
mod control;
mod sendmail;
#[path = "placeholder.rs"]
mod serve;
mod sysexits;

use std::{ffi::OsString, process::ExitCode};

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    match sendmail::Personality::of(&arguments) {
        Some((personality, rest)) => sendmail::run(personality, rest),
        None => cli::run(&arguments),
    }
}
