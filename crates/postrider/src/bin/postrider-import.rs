//! The import of the configuration and the queue of another mail server: `postrider import` runs it.

use std::{ffi::OsString, process::ExitCode};

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    postrider::run_import(&arguments)
}
