//! Sendmail of this machine.

use super::{
    Server, check_read,
    machine::Machine,
    queue::{Found, pass_on, read_optional_queue_file, read_queue_file, walk},
    read_optional,
    stopped::{Stopped, is_locked},
    verify::{self, Answer},
};
use crate::cli::CliError;
use control::Exit;
use import::{Draft, LogOf, Report, SeenEnvelope, sendmail};
use std::path::{Path, PathBuf};

/// Sendmail, by the directory of its configuration.
pub(super) struct Sendmail {
    dir: PathBuf,
}

const RUNNING: &str = "Sendmail is running: stop it first, with `systemctl stop sendmail`";

/// Places of the file with the number of the daemon.
const PID_FILES: [&str; 4] = [
    "/run/sendmail/mta/sendmail.pid",
    "/var/run/sendmail/mta/sendmail.pid",
    "/run/sendmail.pid",
    "/var/run/sendmail.pid",
];

impl Sendmail {
    pub(super) fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    fn names(&self) -> Result<sendmail::Names, CliError> {
        let cf = read_optional(&self.dir.join("sendmail.cf"))?.unwrap_or_default();
        Ok(sendmail::names(&cf, &Machine))
    }
}

impl Server for Sendmail {
    fn name(&self) -> &'static str {
        "sendmail"
    }

    fn configuration(&self) -> Result<Option<(Draft, Report)>, CliError> {
        let (mc, cf) =
            (read_optional(&self.dir.join("sendmail.mc"))?, read_optional(&self.dir.join("sendmail.cf"))?);
        let found = sendmail::convert(mc.as_deref(), cf.as_deref(), &self.dir.to_string_lossy(), &Machine);
        check_read("Sendmail", &self.dir, found)
    }

    fn log(&self) -> (LogOf, &'static [&'static str]) {
        (LogOf::Sendmail, &["/var/log/mail.log", "/var/log/maillog"])
    }

    fn ask(&self, envelopes: &[SeenEnvelope]) -> Result<Vec<Answer>, CliError> {
        let file = self.dir.join("sendmail.cf");
        if !file.is_file() {
            let text = format!(
                "{} is not there, and Sendmail reads no other file: make it of sendmail.mc first",
                file.display()
            );
            return Err(CliError::new(Exit::NoInput, text));
        }
        verify::ask_sendmail(&file, envelopes)
    }

    fn stop(&self, queue: &Path) -> Result<Stopped, CliError> {
        let own = self.names()?.pid_file.map(PathBuf::from);
        for path in PID_FILES.iter().map(PathBuf::from).chain(own) {
            Stopped::check_pid_file(&path, "sendmail", RUNNING)?;
        }
        walk(queue, 2, &mut |path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with("qf") && is_locked(path) {
                let text = format!("{RUNNING}; {} is being delivered", path.display());
                return Err(CliError::new(Exit::TempFail, text));
            }
            Ok(())
        })?;
        Ok(Stopped::default())
    }

    fn read(&self, dir: &Path, found: &mut dyn FnMut(Found) -> Result<(), CliError>) -> Result<(), CliError> {
        let domain = self.names()?.hostname;
        walk(dir, 2, &mut |path| pass_on(path, read_message(path, &domain), found))
    }
}

/// Returns what a file of the queue holds; none for one that belongs to another.
fn read_message(path: &Path, domain: &str) -> Result<Option<Found>, CliError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let Some((kind, id)) = name.split_at_checked(2) else { return Ok(None) };
    let damaged = |why| Ok(Some(Found::Damaged { path: path.to_owned(), why }));
    match kind {
        "qf" | "hf" => {}
        "Qf" => return damaged("Sendmail has put it aside".to_owned()),
        "df" if control_files(path, id).iter().any(|file| file.exists()) => return Ok(None),
        "df" => return Ok(Some(Found::Incomplete { path: path.to_owned() })),
        _ => return Ok(None),
    }
    let control = read_queue_file(path)?;
    let mut body = None;
    for file in data_files(path, id, &control) {
        body = match body {
            None => read_optional_queue_file(&file)?,
            found => found,
        };
    }
    let Some(body) = body else { return damaged(format!("there is no df{id}")) };
    match sendmail::queue::read(&control, &body, id, kind == "hf", domain) {
        Ok(message) => Ok(Some(Found::Message(Box::new(message)))),
        Err(damage) => damaged(damage.0),
    }
}

/// Returns the places of the body: beside the control file, in `df` beside its directory `qf`, or where a line `d` says.
fn data_files(control: &Path, id: &str, text: &[u8]) -> Vec<PathBuf> {
    let name = format!("df{id}");
    let mut places = vec![control.with_file_name(&name)];
    if let Some(queue) = control.parent().and_then(Path::parent) {
        places.push(queue.join("df").join(&name));
    }
    let line = text.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"d"));
    places.extend(line.map(|dir| Path::new(&*String::from_utf8_lossy(dir)).join(&name)));
    places
}

/// Returns the places of the control file of a body.
fn control_files(data: &Path, id: &str) -> Vec<PathBuf> {
    let names = [format!("qf{id}"), format!("hf{id}"), format!("Qf{id}")];
    let beside = names.iter().map(|name| data.with_file_name(name));
    let apart = data.parent().and_then(Path::parent).into_iter();
    beside.chain(apart.flat_map(|queue| names.iter().map(|name| queue.join("qf").join(name)))).collect()
}
