//! `postrider spool`: what lies in the spool, and whether it is sound.

mod check;
mod convert;
mod dump;
mod salvage;

use super::{
    CliError, Ending,
    args::{NewBackend, SpoolCommand},
    complain, offline, owner,
};
use crate::unnamed_spools;
use config::{Backend, Settings};
use control::Exit;
use spool::{SpoolFailure, Totals};
use std::{io::Write, path::Path};

/// Runs one of them.
pub(super) fn run(command: &SpoolCommand, settings: &Settings, out: &mut dyn Write) -> Ending {
    let dir = |path: &Option<std::path::PathBuf>| path.clone().unwrap_or_else(|| settings.spool.path.clone());
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
