//! `postrider spool`: what lies in the spool, and whether it is sound.

mod check;
mod convert;
mod dump;
mod salvage;

use crate::offline;
use clap::Subcommand;
use config::{Backend, Settings};
use console::{CliError, Ending, complain, owner};
use control::Exit;
use server::unnamed_spools;
use spool::{SpoolFailure, Totals};
use std::{
    io::Write,
    path::{Path, PathBuf},
};

/// The commands of `postrider spool`.
#[derive(Debug, Subcommand)]
pub enum SpoolCommand {
    /// Verify every record of the spool
    ///
    /// Prints one line for each fault. `damaged` is a range of bytes whose checksum is wrong. `corrupt` says
    /// what the damage means: missing batches, a missing segment, or a message whose content is lost.
    /// `cannot be read` is a range for which the disk returned an error: the bytes may be good, so repair
    /// the cause and check again. `quarantined` is a damaged file NAME.quarantined that is no longer used; it is
    /// reported until you remove it. The exit code is 0 if the spool is sound, and 65 if there is any
    /// fault. Nothing in the spool is changed.
    Check {
        /// The spool to check; without it, all configured spools
        #[arg(long, value_name = "DIR")]
        path: Option<PathBuf>,
        /// Print JSON: one line with one object for each spool
        #[arg(long)]
        json: bool,
    },
    /// Print the records as text, one per line, in the order in which they were written
    Dump {
        /// Print only the records of the message with this queue id
        id: Option<String>,
        /// Print the content, too
        #[arg(long)]
        content: bool,
        /// The spool to read; without it, that of [spool]
        #[arg(long, value_name = "DIR")]
        path: Option<PathBuf>,
    },
    /// Write messages from damaged segments to files
    ///
    /// Writes each message that is neither queued nor known to be finished: from damaged segments, from
    /// quarantined files (NAME.quarantined), and those that are kept out of the queue because a part of
    /// their content is lost. A message that is provably whole is written to ID.mail, and one that lacks a
    /// part of its content to ID.incomplete. To send a whole message, move its file into the drop
    /// directory. But look for its id in the log first: the record of its delivery may be among the
    /// damage. Places that cannot be read now are named; repair the cause and run the command again.
    /// Nothing in the spool is changed.
    Salvage {
        /// The directory to write to; without it, `quarantine` in `data_dir`
        #[arg(long, value_name = "DIR")]
        into: Option<PathBuf>,
        /// The spool to read; without it, that of [spool]
        #[arg(long, value_name = "DIR")]
        path: Option<PathBuf>,
    },
    /// Copy every message into a new spool of another backend
    ///
    /// The daemon must not be running. The old spool is not changed. If you are root, the command runs as the owner of
    /// `data_dir`, so that the daemon can open the files; the new directory, or the one in which it is created, must
    /// belong to that user.
    Convert {
        /// The backend of the new spool
        #[arg(long, value_enum)]
        to: NewBackend,
        /// The directory of the new spool, which must be empty or missing
        #[arg(long, value_name = "DIR")]
        into: PathBuf,
        /// Convert the spool of this queue group; without it, that of [spool]
        #[arg(long, value_name = "NAME")]
        group: Option<String>,
    },
}

/// A backend that a spool can be converted to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum NewBackend {
    /// One log in segments for all messages
    Log,
    /// Queue directories: two files for each message
    QueueDirs,
}

/// Runs one command of `postrider spool`.
pub fn run(command: &SpoolCommand, settings: &Settings, out: &mut dyn Write) -> Ending {
    let dir = |path: &Option<PathBuf>| path.clone().unwrap_or_else(|| settings.spool.path.clone());
    match command {
        SpoolCommand::Check { path: Some(path), json } => {
            offline::permitted(path)?;
            check::run(path, *json, out)
        }
        SpoolCommand::Check { path: None, json } => check_all(settings, *json, out),
        SpoolCommand::Dump { path, id, content } => {
            dump::run(log_only(settings, &dir(path))?, id.as_deref(), *content, out)
        }
        SpoolCommand::Salvage { path, into } => {
            let into = into.clone().unwrap_or_else(|| settings.data_dir.join("quarantine"));
            salvage::run(log_only(settings, &dir(path))?, &into, out)
        }
        SpoolCommand::Convert { to, into, group } => {
            let engine = match to {
                NewBackend::Log => Backend::Log,
                NewBackend::QueueDirs => Backend::QueueDirs,
            };
            owner::become_owner(settings)?;
            convert::run(settings, group.as_deref(), engine, into, out)
        }
    }
}

/// Checks the spool of `[spool]`, then those of queue groups.
fn check_all(settings: &Settings, json: bool, out: &mut dyn Write) -> Ending {
    let mut worst = Exit::Ok;
    for unnamed in unnamed_spools::find(settings) {
        complain("postrider", &format!("error: {unnamed}"));
        worst = Exit::DataErr;
    }
    for spool in settings.spools() {
        offline::permitted(&spool.path)?;
        match check::run(&spool.path, json, out)? {
            Exit::Ok => {}
            exit => worst = exit,
        }
    }
    Ok(worst)
}

/// Only a log has an order in which to show it.
fn log_only<'a>(settings: &Settings, dir: &'a Path) -> Result<&'a Path, CliError> {
    offline::permitted(dir)?;
    if settings.spool.backend == Backend::Log || dir != settings.spool.path {
        return Ok(dir);
    }
    Err(CliError::new(
        Exit::Usage,
        "this command is for spools with the backend \"log\"; the configured spool has another backend",
    ))
}

/// Writes `accepted 5 delivered 3 bounced 1 expired 0 deleted 0 moved 0`.
fn totals_text(totals: &Totals) -> String {
    let Totals { accepted, delivered, bounced, expired, deleted, moved } = totals;
    format!(
        "accepted {accepted} delivered {delivered} bounced {bounced} expired {expired} deleted {deleted} moved {moved}"
    )
}

/// The error of a command whose spool cannot be read or written.
fn spool_error(failure: &SpoolFailure) -> CliError {
    let exit = match failure {
        SpoolFailure::Io(_) => Exit::IoErr,
        SpoolFailure::Corrupt(_) => Exit::DataErr,
        SpoolFailure::Missing | SpoolFailure::Unusable(_) => Exit::NoInput,
    };
    CliError::new(exit, failure.to_string())
}
