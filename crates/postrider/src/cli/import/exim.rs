//! Exim of this machine.

use super::{
    Server, check_read,
    machine::Copied,
    queue::{Found, pass_on, read_optional_queue_file, read_queue_file, unreadable, walk},
    read_optional,
    stopped::{Stopped, is_locked},
    verify::{self, Answer},
};
use crate::cli::CliError;
use control::Exit;
use import::{
    Draft, LogOf, Report, SeenEnvelope,
    exim::{self, queue::SpoolFiles},
};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// The texts of the two kinds of configuration, as far as there are any.
type Texts = (Option<Vec<u8>>, Option<Vec<u8>>);

/// Exim, by the directory of its configuration, or the file.
pub(super) struct Exim {
    dir: PathBuf,
}

const RUNNING: &str = "Exim is running: stop it first, with `systemctl stop exim4`";

/// Names of a configuration in one file.
const WHOLE: [&str; 3] = ["exim4.conf", "exim.conf", "configure"];

/// Places of the file with the number of the daemon.
const PID_FILES: [&str; 4] =
    ["/run/exim4/exim.pid", "/var/run/exim4/exim.pid", "/run/exim.pid", "/var/run/exim.pid"];

impl Exim {
    pub(super) fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// Returns the text of the configuration of Exim, and that of Debian's questions.
    fn files(&self) -> Result<Texts, CliError> {
        if self.dir.is_file() {
            return Ok((read_optional(&self.dir)?, None));
        }
        let mut monolithic = None;
        for name in WHOLE {
            monolithic = match monolithic {
                None => read_optional(&self.dir.join(name))?,
                found => found,
            };
        }
        Ok((monolithic, read_optional(&self.dir.join("update-exim4.conf.conf"))?))
    }

    /// The folder that was named is Exim's: a configuration of another machine has its passwords beside it.
    fn copied(&self) -> Copied<'_> {
        let dir = if self.dir.is_file() { self.dir.parent().unwrap_or(&self.dir) } else { &self.dir };
        Copied { usual: "/etc/exim4", dir }
    }

    fn settings(&self) -> Result<exim::Names, CliError> {
        let (monolithic, debian) = self.files()?;
        Ok(exim::names(monolithic.as_deref(), debian.as_deref(), &self.copied()))
    }
}

impl Server for Exim {
    fn name(&self) -> &'static str {
        "exim"
    }

    fn configuration(&self) -> Result<Option<(Draft, Report)>, CliError> {
        let (monolithic, debian) = self.files()?;
        let found = exim::convert(monolithic.as_deref(), debian.as_deref(), &self.copied());
        check_read("Exim", &self.dir, found)
    }

    fn log(&self) -> (LogOf, &'static [&'static str]) {
        (LogOf::Exim, &["/var/log/exim4/mainlog", "/var/log/exim/mainlog", "/var/log/exim_mainlog"])
    }

    fn ask(&self, envelopes: &[SeenEnvelope]) -> Result<Vec<Answer>, CliError> {
        let named = WHOLE.map(|name| self.dir.join(name)).into_iter().find(|file| file.is_file());
        let file = named.or_else(|| self.dir.is_file().then(|| self.dir.clone()));
        if file.is_none() && self.dir != Path::new("/etc/exim4") {
            let text = "Exim itself reads Debian's questions in /etc/exim4 only: this folder can be imported, not verified";
            return Err(CliError::new(Exit::Usage, text));
        }
        verify::ask_exim(file.as_deref(), envelopes)
    }

    fn stop(&self, queue: &Path) -> Result<Stopped, CliError> {
        let own = self.settings()?.pid_file.map(PathBuf::from);
        let beside = queue.join("exim-daemon.pid");
        for path in PID_FILES.iter().map(PathBuf::from).chain(own).chain([beside]) {
            Stopped::check_pid_file(&path, "exim", RUNNING)?;
        }
        // A delivery without a daemon has the data file of its message.
        inputs(queue, &mut |path| {
            if path.to_string_lossy().ends_with("-D") && is_locked(path) {
                return Err(CliError::new(
                    Exit::TempFail,
                    format!("{RUNNING}; {} is being delivered", path.display()),
                ));
            }
            Ok(())
        })?;
        Ok(Stopped::default())
    }

    fn read(&self, dir: &Path, found: &mut dyn FnMut(Found) -> Result<(), CliError>) -> Result<(), CliError> {
        let domain = self.settings()?.qualify_domain;
        inputs(dir, &mut |path| pass_on(path, read_message(path, &domain), found))
    }
}

/// Returns what a file of the queue holds; none for one that belongs to another.
fn read_message(path: &Path, domain: &str) -> Result<Option<Found>, CliError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let beside = |end: &str, id: &str| path.with_file_name(format!("{id}{end}"));
    if let Some(id) = name.strip_suffix("-D") {
        // The header is written last.
        let has_header = beside("-H", id).exists();
        return Ok((!has_header).then(|| Found::Incomplete { path: path.to_owned() }));
    }
    let Some(id) = name.strip_suffix("-H") else { return Ok(None) };
    let header = read_queue_file(path)?;
    let damaged = |why| Ok(Some(Found::Damaged { path: path.to_owned(), why }));
    let Some(body) = read_optional_queue_file(&beside("-D", id))? else {
        return damaged(format!("there is no {id}-D"));
    };
    let journal = read_optional_queue_file(&beside("-J", id))?;
    let files = SpoolFiles { header: &header, data: &body, journal: journal.as_deref() };
    match exim::queue::read(files, id, domain) {
        Ok(message) => Ok(Some(Found::Message(Box::new(message)))),
        Err(damage) => damaged(damage.0),
    }
}

/// Passes on the files of messages: in `input`, split or not, and in `NAME/input` of named queues.
fn inputs(spool: &Path, each: &mut dyn FnMut(&Path) -> Result<(), CliError>) -> Result<(), CliError> {
    walk(&spool.join("input"), 1, each)?;
    let entries = fs::read_dir(spool).map_err(|error| unreadable(spool, &error))?;
    let mut named: Vec<PathBuf> = entries.flatten().map(|entry| entry.path().join("input")).collect();
    named.retain(|input| input.is_dir());
    named.sort();
    named.iter().try_for_each(|input| walk(input, 1, each))
}
