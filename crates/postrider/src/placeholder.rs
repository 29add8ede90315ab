//! The daemon.

use std::{path::PathBuf, process::ExitCode};

/// Runs until it is told to stop.
pub fn run(settings: config::Settings, source: Option<PathBuf>) -> ExitCode {
    eprintln!("{}: {:?}: this build has no daemon", settings.hostname, source);
    ExitCode::from(70)
}
