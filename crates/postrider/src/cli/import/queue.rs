//! The queue of the other server: read, counted, and handed to the writer.

use super::{Server, writer::Writer};
use crate::cli::{CliError, Ending};
use config::Settings;
use control::{Exit, client::Client};
use import::QueuedMessage;
use std::{
    io::Write,
    path::{Path, PathBuf},
};

/// A message in the queue, or what is there in its place.
pub(super) enum Found {
    Message(Box<QueuedMessage>),
    /// A file that cannot be read as a message.
    Damaged {
        path: PathBuf,
        why: String,
    },
    /// A file that was being written when the server stopped: its sender was not told that it was accepted.
    Incomplete {
        path: PathBuf,
    },
}

/// What the queue of the other server has, for the report.
#[derive(Debug, Default)]
struct Counts {
    messages: u64,
    held: u64,
    finished: u64,
    damaged: u64,
    incomplete: u64,
}

impl Counts {
    /// Counts what was found, and tells of what is damaged. Returns a message that has recipients left.
    fn take(&mut self, found: Found) -> Option<Box<QueuedMessage>> {
        match found {
            Found::Message(message) if message.recipients.is_empty() => {
                self.finished += 1;
                None
            }
            Found::Message(message) => {
                self.messages += 1;
                self.held += u64::from(message.held);
                for note in &message.notes {
                    tell(&format!("{}: {note}", message.id));
                }
                Some(message)
            }
            Found::Damaged { path, why } => {
                self.damaged += 1;
                tell(&format!("damaged: {}: {why}", path.display()));
                None
            }
            Found::Incomplete { path } => {
                self.incomplete += 1;
                tell(&format!("incomplete: {}: it was never accepted", path.display()));
                None
            }
        }
    }

    fn write(&self, out: &mut dyn Write) -> std::io::Result<()> {
        let Self { messages, held, finished, damaged, incomplete } = self;
        let messages = mail::counted(*messages, "message");
        write!(out, "queue          {messages} ({held} held), {damaged} damaged")?;
        if *incomplete > 0 {
            write!(out, ", {incomplete} incomplete")?;
        }
        if *finished > 0 {
            write!(out, ", {finished} without a recipient that is left")?;
        }
        writeln!(out)
    }
}

fn tell(text: &str) {
    crate::cli::complain("postrider", text);
}

/// Reads the queue and changes nothing.
pub(super) fn rehearse(server: &dyn Server, dir: &Path, out: &mut dyn Write) -> Ending {
    check_dir(dir)?;
    let stopped = server.stop(dir);
    if let Err(why) = &stopped {
        tell(&why.text);
    }
    let mut counts = Counts::default();
    server.read(dir, &mut |found| {
        counts.take(found);
        Ok(())
    })?;
    counts.write(out)?;
    Ok(if counts.damaged > 0 { Exit::DataErr } else { Exit::Ok })
}

/// Puts each message that is not imported yet into the spool.
pub(super) fn import(server: &dyn Server, dir: &Path, settings: &Settings, out: &mut dyn Write) -> Ending {
    check_dir(dir)?;
    if Client::connect(&settings.control.socket).is_ok() {
        return Err(CliError::new(
            Exit::TempFail,
            "the daemon of Postrider is running, and has the spool: stop it first",
        ));
    }
    let _stopped = server.stop(dir)?;
    let mut counts = Counts::default();
    let writer = Writer::start(server.name(), settings.clone())?;
    let read = server.read(dir, &mut |found| match counts.take(found) {
        Some(message) => writer.write(message),
        None => Ok(()),
    });
    let written = writer.finish();
    counts.write(out)?;
    // The writer knows better why it stopped.
    let written = match (written, read) {
        (Ok(written), Ok(())) => written,
        (Err(error), _) | (Ok(_), Err(error)) => return Err(error),
    };
    let (messages, recipients) =
        (mail::counted(written.messages, "message"), mail::counted(written.recipients, "recipient"));
    write!(out, "imported       {messages}, {recipients}")?;
    if written.known > 0 {
        write!(out, "; {} imported before", mail::counted(written.known, "message"))?;
    }
    if written.delayed > 0 {
        write!(out, "; {} not imported: import again", mail::counted(written.delayed, "message"))?;
    }
    writeln!(out)?;
    Ok(match (counts.damaged, written.delayed) {
        (0, 0) => Exit::Ok,
        (0, _) => Exit::TempFail,
        _ => Exit::DataErr,
    })
}

fn check_dir(dir: &Path) -> Result<(), CliError> {
    std::fs::read_dir(dir).map(drop).map_err(|error| unreadable(dir, &error))
}

/// The error of a directory or a file of the queue that cannot be read.
pub(super) fn unreadable(path: &Path, error: &std::io::Error) -> CliError {
    let exit = match error.kind() {
        std::io::ErrorKind::PermissionDenied => Exit::NoPerm,
        std::io::ErrorKind::NotFound => Exit::NoInput,
        std::io::ErrorKind::InvalidData => Exit::DataErr,
        _ => Exit::IoErr,
    };
    CliError::new(exit, format!("read {}: {error}", path.display()))
}

/// Passes on what a file of the queue holds. One that is too large or cannot be read is damaged, and the others are read.
pub(super) fn pass_on(
    path: &Path,
    read: Result<Option<Found>, CliError>,
    found: &mut dyn FnMut(Found) -> Result<(), CliError>,
) -> Result<(), CliError> {
    match read {
        Ok(None) => Ok(()),
        Ok(Some(one)) => found(one),
        Err(error) if matches!(error.exit, Exit::DataErr | Exit::IoErr) => {
            found(Found::Damaged { path: path.to_owned(), why: error.text })
        }
        Err(error) => Err(error),
    }
}

/// Reads a file of a queue.
///
/// # Errors
/// The file cannot be read, is not a regular file any more, or is too large.
pub(super) fn read_queue_file(path: &Path) -> Result<Vec<u8>, CliError> {
    config::read_regular_file(path, super::FILE_BYTES_MAX).map_err(|error| unreadable(path, &error))
}

/// Reads a file of a queue; none if there is no such file.
///
/// # Errors
/// As for [`read_queue_file`].
pub(super) fn read_optional_queue_file(path: &Path) -> Result<Option<Vec<u8>>, CliError> {
    match read_queue_file(path) {
        Err(error) if error.exit == Exit::NoInput => Ok(None),
        read => read.map(Some),
    }
}

/// Passes on each file below a directory, with the directories in the order of their names; those that do not exist are
/// empty.
pub(super) fn walk(
    dir: &Path,
    depth: usize,
    each: &mut dyn FnMut(&Path) -> Result<(), CliError>,
) -> Result<(), CliError> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(unreadable(dir, &error)),
    };
    let mut paths = Vec::new();
    for entry in entries {
        paths.push(entry.map_err(|error| unreadable(dir, &error))?.path());
    }
    paths.sort();
    for path in paths {
        let kind = path.symlink_metadata().map_err(|error| unreadable(&path, &error))?.file_type();
        if kind.is_dir() && depth > 0 {
            walk(&path, depth - 1, each)?;
        } else if kind.is_file() {
            each(&path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{
        super::{exim::Exim, postfix::Postfix, sendmail::Sendmail},
        *,
    };
    use std::fs::{self, File};

    #[test]
    fn a_file_that_is_too_large_or_none_is_damaged_and_the_others_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path();
        let make = |name: &str, bytes: u64| {
            fs::create_dir_all(at.join(name).parent().unwrap()).unwrap();
            File::create(at.join(name)).unwrap().set_len(bytes).unwrap();
        };
        let large = super::super::FILE_BYTES_MAX + 1;
        for (name, bytes) in [
            ("exim/input/1-H", large),
            ("exim/input/1-D", 1),
            ("exim/input/2-H", 1),
            ("exim/input/2-D", large),
            ("exim/input/3-H", 1),
            ("exim/input/4-H", 1),
            ("postfix/active/1", large),
            ("postfix/deferred/2", 1),
            ("sendmail/qf1", large),
            ("sendmail/df1", 1),
            ("sendmail/qf2", 1),
            ("sendmail/df2", large),
            ("sendmail/qf3", 1),
        ] {
            make(name, bytes);
        }
        rustix::fs::mkfifoat(rustix::fs::CWD, at.join("exim/input/3-D"), rustix::fs::Mode::RUSR).unwrap();
        let none = at.join("none");
        let servers: [(&dyn Server, &str, &[&str]); 3] = [
            (&Exim::new(none.clone()), "exim", &["1-H", "2-H", "3-H", "4-H"]),
            (&Postfix::new(none.clone()), "postfix", &["1", "2"]),
            (&Sendmail::new(none), "sendmail", &["qf1", "qf2", "qf3"]),
        ];
        for (server, queue, expected) in servers {
            let mut damaged = Vec::new();
            let read = server.read(&at.join(queue), &mut |found| {
                let Found::Damaged { path, .. } = found else { panic!("{queue}") };
                damaged.push(path.file_name().unwrap().to_str().unwrap().to_owned());
                Ok(())
            });
            assert!(read.is_ok(), "{}", read.unwrap_err().text);
            assert_eq!(damaged, expected, "{queue}");
        }
    }
}
