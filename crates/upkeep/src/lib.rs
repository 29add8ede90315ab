//! What an operator does with what the daemon has stored: list it while the daemon is down, check it, copy it, restore it, and say
//! what is wrong with the machine under it.

mod archive;
pub mod ask;
pub mod backup;
pub mod bundle;
pub mod doctor;
pub mod domain;
pub mod offline;
pub mod spool_tools;
pub mod spool_writer;

pub use backup::{BackupArgs, output::replace_file, restore::RestoreArgs};
pub use bundle::BundleArgs;
pub use doctor::DoctorArgs;
pub use domain::CheckArgs;
pub use spool_tools::SpoolCommand;

use config::Settings;
use console::CliError;
use control::Exit;
use history::{DiskFolder, Reader};
use std::io;

/// Opens the history to read it.
///
/// # Errors
/// There is none, or this user may not read it.
pub fn open_history(settings: &Settings) -> Result<Reader, CliError> {
    let path = settings.history.path.display();
    Reader::open(&DiskFolder::new(&settings.history.path)).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            let why = if settings.history.enabled {
                "the daemon makes it when it starts"
            } else {
                "it is switched off: write `enabled = true` in [history] and restart the daemon"
            };
            CliError::new(Exit::NoInput, format!("there is no history in {path}: {why}"))
        }
        io::ErrorKind::PermissionDenied => {
            let text = "permission denied: only root and the daemon's own user may read the history";
            CliError::new(Exit::NoPerm, format!("{path}: {text}"))
        }
        _ => CliError::new(Exit::IoErr, format!("read the history {path}: {error}")),
    })
}
