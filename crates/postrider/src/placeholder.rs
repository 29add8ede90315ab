//! The daemon's place.

use std::{path::PathBuf, process::ExitCode};

/// Runs until it is told to stop.
#[allow(clippy::needless_pass_by_value)]
pub(crate) fn run(settings: config::Settings, source: Option<PathBuf>) -> ExitCode {
    eprintln!("{}: {source:?}: this build has no daemon", settings.hostname);
    ExitCode::from(70)
}
