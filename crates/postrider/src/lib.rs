//! The two programs of the mail server: the daemon with its command line, and the import from other mail servers, which the
//! daemon does not have inside. Under the names `sendmail`, `mailq` and `newaliases` the first behaves as those commands do.

mod applets;
mod cli;

use std::{ffi::OsString, process::ExitCode};
use submission::sendmail;

/// Runs `postrider` with the arguments of the process, of which the first is the name that it was called by.
pub fn run(arguments: &[OsString]) -> ExitCode {
    match sendmail::Applet::of(arguments) {
        Some((applet, rest)) => sendmail::run(applet, rest, &applets::Commands),
        None => cli::run(arguments),
    }
}

/// Runs `postrider-import` with the arguments of the process.
pub fn run_import(arguments: &[OsString]) -> ExitCode {
    cli::run_import(arguments)
}
