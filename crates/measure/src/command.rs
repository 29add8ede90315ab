//! Start and end of a command of the laboratory.

use crate::{limits, output, signals};
use clap::Parser;
use std::{io::Write as _, process::ExitCode};

/// The exit code for a measurement that failed; 1 is for one that found a problem.
const FAILED: u8 = 2;
/// The exit code for a wrong command line (EX_USAGE of sysexits.h).
const USAGE: u8 = 64;

/// Parses the command line and runs the command. `run` returns false if the measurement is complete and found a problem.
/// A command for which `is_load` holds ends with [`signals::STOPPED`] if a signal stopped it.
pub fn main<T: Parser>(
    is_load: impl FnOnce(&T) -> bool,
    run: impl FnOnce(T) -> Result<bool, String>,
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
    let is_load = is_load(&args);
    match output::guarded(|| run(args)) {
        Ok(_) if is_load && signals::is_stopped() => ExitCode::from(signals::STOPPED),
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            // Nothing can be done where it cannot be printed.
            let _ = writeln!(std::io::stderr(), "postlab: {error}");
            ExitCode::from(FAILED)
        }
    }
}
