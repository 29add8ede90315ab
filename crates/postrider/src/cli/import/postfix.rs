//! Postfix of this machine.

use super::{
    Server,
    machine::Machine,
    queue::{Found, pass_on, read_queue_file, unreadable, walk},
    read_optional,
    stopped::Stopped,
    verify::{self, Answer},
};
use crate::cli::CliError;
use import::{
    Draft, LogOf, QueuedMessage, QueuedRecipient, Report, SeenEnvelope,
    postfix::{self, MainCf, queue::Queue},
};
use mail::{ForwardPath, Notify, UnixMillis};
use std::{
    collections::HashMap,
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

/// Postfix, by the directory of its configuration.
pub(super) struct Postfix {
    dir: PathBuf,
}

const RUNNING: &str = "Postfix is running: stop it first, with `postfix stop`";

impl Postfix {
    pub(super) fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// Returns the domain of addresses that have none.
    fn domain(&self) -> Result<String, CliError> {
        let main = read_optional(&self.dir.join("main.cf"))?.unwrap_or_default();
        Ok(postfix::origin(&main, &self.dir.to_string_lossy(), &Machine))
    }

    fn process_id_directory(&self, queue: &Path) -> Result<PathBuf, CliError> {
        let main = read_optional(&self.dir.join("main.cf"))?.unwrap_or_default();
        let named = MainCf::parse(&main).value("process_id_directory");
        Ok(queue.join(if named.is_empty() { "pid" } else { &*named }))
    }
}

impl Server for Postfix {
    fn name(&self) -> &'static str {
        "postfix"
    }

    fn configuration(&self) -> Result<Option<(Draft, Report)>, CliError> {
        let Some(main) = read_optional(&self.dir.join("main.cf"))? else { return Ok(None) };
        let master = read_optional(&self.dir.join("master.cf"))?.unwrap_or_default();
        Ok(Some(postfix::convert(&main, &master, &self.dir.to_string_lossy(), &Machine)))
    }

    fn log(&self) -> (LogOf, &'static [&'static str]) {
        (LogOf::Postfix, &["/var/log/mail.log", "/var/log/maillog"])
    }

    fn ask(&self, envelopes: &[SeenEnvelope]) -> Result<Vec<Answer>, CliError> {
        verify::ask_postfix(&self.dir, envelopes)
    }

    fn stop(&self, queue: &Path) -> Result<Stopped, CliError> {
        let mut stopped = Stopped::default();
        stopped.lock(&self.process_id_directory(queue)?.join("master.pid"), RUNNING)?;
        Ok(stopped)
    }

    fn read(&self, dir: &Path, found: &mut dyn FnMut(Found) -> Result<(), CliError>) -> Result<(), CliError> {
        let domain = self.domain()?;
        // Logs are in directories by the first characters of the id, as messages are.
        let (deferred, failed) = (logs(&dir.join("defer"))?, logs(&dir.join("bounce"))?);
        for queue in Queue::ALL {
            walk(&dir.join(queue.directory()), 6, &mut |path| {
                let read = read_message(path, queue, &domain).map(|mut found| {
                    if let Found::Message(message) = &mut found {
                        add_logs(message, &deferred, &failed);
                    }
                    Some(found)
                });
                pass_on(path, read, found)
            })?;
        }
        walk(&dir.join("corrupt"), 6, &mut |path| {
            let why = "Postfix has put it aside".to_owned();
            found(Found::Damaged { path: path.to_owned(), why })
        })
    }
}

fn read_message(path: &Path, queue: Queue, domain: &str) -> Result<Found, CliError> {
    let id = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let metadata = fs::metadata(path).map_err(|error| unreadable(path, &error))?;
    let is_complete = metadata.permissions().mode() & 0o100 != 0;
    if !is_complete && matches!(queue, Queue::Maildrop | Queue::Incoming) {
        return Ok(Found::Incomplete { path: path.to_owned() });
    }
    let file = read_queue_file(path)?;
    Ok(match postfix::queue::read(&file, &id, queue, domain) {
        Ok(message) => Found::Message(Box::new(message)),
        Err(damage) => Found::Damaged { path: path.to_owned(), why: damage.0 },
    })
}

/// Adds what the logs of a message say about its recipients. One that cannot be read costs only that.
fn add_logs(message: &mut QueuedMessage, deferred: &Logs, failed: &Logs) {
    if let Some(log) = deferred.get(&message.id) {
        let at = fs::metadata(log).map_or(0, |found| u64::try_from(found.mtime()).unwrap_or(0) * 1000);
        match read_queue_file(log) {
            Ok(file) => {
                let mut reasons = postfix::queue::deferrals(&file, UnixMillis(at));
                for one in &mut message.recipients {
                    one.last_attempt = reasons.remove(one.recipient.path.as_str());
                }
            }
            Err(error) => message.notes.push(error.text),
        }
    }
    if let Some(log) = failed.get(&message.id) {
        match read_queue_file(log) {
            Ok(file) => add_failed(message, &file),
            Err(error) => message.notes.push(error.text),
        }
    }
}

/// Adds recipients that failed, and whose sender was not told yet: Postrider tries them again, and tells the sender.
fn add_failed(message: &mut QueuedMessage, log: &[u8]) {
    let mut failed: Vec<String> = postfix::queue::deferrals(log, UnixMillis(0)).into_keys().collect();
    failed.sort();
    for address in failed {
        let is_there = |one: &QueuedRecipient| one.recipient.path.as_str() == address;
        if let Ok(path) = ForwardPath::parse(&address, true)
            && !message.recipients.iter().any(is_there)
        {
            message.finished.retain(|finished| *finished != address);
            message.recipients.push(QueuedRecipient::new(path, Notify::default(), None));
        }
    }
}

/// Paths of the files with the log of each message, by queue id.
type Logs = HashMap<String, PathBuf>;

/// Returns the logs of messages by their ids.
fn logs(dir: &Path) -> Result<Logs, CliError> {
    let mut logs = HashMap::new();
    walk(dir, 6, &mut |path| {
        let id = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        logs.insert(id, path.to_owned());
        Ok(())
    })?;
    Ok(logs)
}
