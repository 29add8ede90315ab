//! The messages of a backup: from the running daemon, or from the spool while no daemon runs.

use super::contents::{CONTENT, Counters, ENVELOPE, ENVELOPE_BYTES_MAX, MESSAGES, Summary};
use crate::{archive::ArchiveWriter, offline};
use config::Settings;
use console::CliError;
use control::{
    BackupItem, Copied, Exit, Request, Response,
    client::{Client, ClientError},
};
use mail::Part;
use report::RecipientCounters;
use spool::{Recovered, SpoolFailure, SpoolReader, Totals, export_envelope, import_envelope};
use std::io::{self, Write};

/// Where the messages are copied from: a running daemon, or spools that nobody uses.
pub(super) enum Messages<'s> {
    Daemon {
        client: Client,
        counters: Counters,
    },
    Spools {
        spools: Vec<(SpoolReader, Vec<Recovered>)>,
        totals: Totals,
        faults: Vec<String>,
        settings: &'s Settings,
    },
}

impl<'s> Messages<'s> {
    /// Connects to the daemon, or reads the envelopes in the spools.
    ///
    /// # Errors
    /// Not permitted, or a spool cannot be read.
    pub(super) fn open(settings: &'s Settings) -> Result<Self, CliError> {
        let mut client = match Client::connect(&settings.control.socket) {
            Ok(client) => client,
            Err(ClientError::NotRunning) => return Self::read_spools(settings),
            Err(other) => return Err(other.into()),
        };
        let mut counters = RecipientCounters::default();
        client.ask(&Request::Status, &mut |response| {
            if let Response::Counters(now) = response {
                counters = now;
            }
            Ok(())
        })?;
        Ok(Self::Daemon { client, counters: counters.into() })
    }

    fn read_spools(settings: &'s Settings) -> Result<Self, CliError> {
        let offline::Spools { there, mut faults } = offline::spools(settings)?;
        let (mut spools, mut totals) = (Vec::new(), Totals::default());
        for spool in there {
            let mut found = Vec::new();
            let opened = SpoolReader::open(&spool.path, &mut |one| found.push(one));
            let (reader, report) = opened.map_err(|failure| unreadable(&failure))?;
            faults.extend(report.problems());
            totals.add(&report.totals);
            spools.push((reader, found));
        }
        Ok(Self::Spools { spools, totals, faults, settings })
    }

    pub(super) fn is_daemon(&self) -> bool {
        matches!(self, Self::Daemon { .. })
    }

    /// Returns how many recipients were finished before.
    pub(super) fn counters(&self) -> Counters {
        match self {
            Self::Daemon { counters, .. } => *counters,
            Self::Spools { totals, .. } => {
                let Totals { accepted: _, delivered, bounced, expired, deleted, moved } = *totals;
                Counters { delivered, bounced, expired, deleted, moved }
            }
        }
    }

    /// Adds every queued message to an archive.
    ///
    /// # Errors
    /// The archive cannot be written, the daemon has ended, or one was started.
    pub(super) fn copy_all(
        &mut self,
        writer: &mut ArchiveWriter<impl Write>,
        summary: &mut Summary,
    ) -> Result<(), CliError> {
        match self {
            Self::Daemon { client, .. } => {
                client.backup(&mut |item| add(item, writer, summary))?;
                Ok(())
            }
            Self::Spools { spools, faults, settings, .. } => {
                summary.damaged.append(faults);
                for (reader, found) in spools {
                    for one in found {
                        add(read(reader, one), writer, summary)?;
                    }
                }
                // What a daemon has changed meanwhile was read in part.
                if Client::connect(&settings.control.socket).is_ok() {
                    let text = "the daemon was started while its spool was read: run the command again";
                    return Err(CliError::new(Exit::TempFail, text));
                }
                Ok(())
            }
        }
    }
}

fn unreadable(failure: &SpoolFailure) -> CliError {
    let exit = match failure {
        SpoolFailure::Io(_) => Exit::IoErr,
        SpoolFailure::Corrupt(_) => Exit::DataErr,
        SpoolFailure::Missing | SpoolFailure::Unusable(_) => Exit::Unavailable,
    };
    CliError::new(exit, failure.to_string())
}

/// Reads a message with its content.
fn read(reader: &SpoolReader, found: &Recovered) -> BackupItem {
    let id = found.message.id;
    let content = || {
        let mut content = Vec::new();
        for part in reader.read(id)?.content.parts() {
            match part {
                Part::Memory(bytes) => content.extend_from_slice(bytes),
                Part::Stored { chunk_id, .. } => content.extend_from_slice(&reader.load(*chunk_id)?),
            }
        }
        Ok::<_, SpoolFailure>(content)
    };
    match content() {
        Ok(content) => BackupItem::Message(Copied { id, envelope: export_envelope(found), content }),
        Err(failure) => BackupItem::Damaged(id, failure.to_string()),
    }
}

/// Adds a message; one that cannot be read is listed.
fn add(item: BackupItem, writer: &mut ArchiveWriter<impl Write>, summary: &mut Summary) -> io::Result<()> {
    let Copied { id, envelope, content } = match item {
        BackupItem::Message(copied) => copied,
        BackupItem::Damaged(id, why) => {
            summary.damaged.push(format!("{id}: {why}"));
            return Ok(());
        }
    };
    let found = import_envelope(id, &envelope).map_err(|failure| io::Error::other(failure.to_string()))?;
    let left = found.recipients.iter().filter(|recipient| !recipient.settled).count() as u64;
    if left == 0 {
        return Ok(());
    }
    if envelope.len() as u64 > ENVELOPE_BYTES_MAX {
        summary.damaged.push(format!("{id}: its envelope has {} octets", envelope.len()));
        return Ok(());
    }
    summary.messages += 1;
    summary.recipients += left;
    summary.content_bytes += content.len() as u64;
    writer.add(&format!("{MESSAGES}{id}{ENVELOPE}"), &envelope)?;
    writer.add(&format!("{MESSAGES}{id}{CONTENT}"), &content)
}
