//! Start and end of a command of the laboratory.

use crate::{limits, output, signals};
use clap::Parser;
use std::{fmt, io::Write as _, process::ExitCode};

/// The reason why a command ended without a result.
#[derive(Debug, PartialEq, Eq)]
pub enum Failure {
    /// The measurement failed, for this reason.
    Failed(String),
    /// The command line is wrong, which is found only when its parts are seen together.
    Usage(String),
}

impl From<String> for Failure {
    fn from(error: String) -> Self {
        Self::Failed(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Failed(error) | Self::Usage(error)) = self;
        f.write_str(error)
    }
}

/// The exit code for a measurement that failed; 1 is for one that found a problem.
const FAILED: u8 = 2;
/// The exit code for a wrong command line (EX_USAGE of sysexits.h).
const USAGE: u8 = 64;

/// Parses the command line and runs the command. `run` returns false if the measurement is complete and found a problem.
/// A command that a signal stopped ends with [`signals::STOPPED`], except where `is_server` holds: a server has no other end.
pub fn main<T: Parser>(
    is_server: impl FnOnce(&T) -> bool,
    run: impl FnOnce(T) -> Result<bool, Failure>,
) -> ExitCode {
    let args = match T::try_parse() {
        Ok(args) => args,
        Err(error) => {
            // Help and version are no errors; nothing can be done where neither can be printed.
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS };
        }
    };
    limits::raise_files();
    let is_server = is_server(&args);
    let result = output::guarded(|| run(args));
    if signals::is_stopped() && !is_server {
        let error = result.err().map(|error| format!(": {error}")).unwrap_or_default();
        // Nothing can be done where it cannot be printed.
        let _ = writeln!(
            std::io::stderr(),
            "postlab: stopped by a signal, with what was measured until then{error}"
        );
        return ExitCode::from(signals::STOPPED);
    }
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let code = if matches!(error, Failure::Usage(_)) { USAGE } else { FAILED };
            // Nothing can be done where it cannot be printed.
            let _ = writeln!(std::io::stderr(), "postlab: {error}");
            ExitCode::from(code)
        }
    }
}
