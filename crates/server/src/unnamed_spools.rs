//! Spools that the configuration does not name any more, because a queue group was removed or renamed, or `spool.path` changed. Their
//! mail would wait without anybody knowing.
//!
//! The daemon writes the spools that it has opened into a file beside its data, and looks there at its next start. A spool without
//! a path of its own is found by its name, too.

use config::{Backend, Settings};
use spool::{SpoolReader, has_queue_directories};
use std::{
    collections::BTreeMap,
    fmt, fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

/// The file: a line for each spool, with backend, path and the name of its queue group, separated by tabs. The main spool has no name.
const FILE: &str = "queue-groups";
/// Stands for the backend of a spool whose messages were all moved into another one.
const MOVED: &str = "moved";
/// The name of the main spool, unless `spool.path` says another one.
const MAIN: &str = "spool";
/// A group's own spool without a path is called so, see [`config::QueueGroup::spool`].
const PREFIX: &str = "spool-";

/// A spool with mail that the configuration does not name any more.
#[derive(Debug, PartialEq, Eq)]
pub struct UnnamedSpool {
    /// The folder, or the pattern of its queue directories.
    path: PathBuf,
    /// The queue group that had the spool; empty for the main one.
    group: String,
    backend: Backend,
    /// The number of its messages, or the reason why they cannot be counted.
    messages: Result<u64, String>,
}

impl UnnamedSpool {
    /// Returns the sentence that tells the operator about the spool.
    pub fn seen(&self) -> String {
        let Self { path, group, messages, .. } = self;
        let path = path.display();
        if group.is_empty() {
            let messages = match messages {
                Ok(1) => "has 1 message".to_owned(),
                Ok(count) => format!("has {count} messages"),
                Err(why) => format!("may have messages, which cannot be counted: {why}"),
            };
            return format!("{path}, the spool before, {messages}, and no key names it");
        }
        match messages {
            Ok(1) => format!(
                "{path} has 1 message, and no [[queue_group]] names it; it was the spool of \"{group}\""
            ),
            Ok(count) => {
                format!(
                    "{path} has {count} messages, and no [[queue_group]] names it; it was the spool of \"{group}\""
                )
            }
            Err(why) => format!(
                "{path} was the spool of the queue group \"{group}\", no [[queue_group]] names it, and its messages cannot be \
                 counted: {why}"
            ),
        }
    }

    /// Returns what to do about it.
    pub fn advice(&self) -> String {
        let (path, backend) = (self.path.display(), self.backend.as_str());
        let first = match &*self.group {
            "" => format!(
                "to go on with it, write `path = \"{path}\"` and `backend = \"{backend}\"` in [spool]"
            ),
            _ => format!(
                "if the group has another name now, write `path = \"{path}\"` and `backend = \"{backend}\"` below it"
            ),
        };
        format!(
            "{first}. To deliver the mail \
             first, add [[queue_group]] with `name = \"old\"`, `domains = [\"old.invalid\"]`, `path = \"{path}\"` and \
             `backend = \"{backend}\"`, and remove it when `postrider spool check` counts no message there. Mail that nobody wants: \
             move the folder out of {}",
            self.path.parent().unwrap_or(Path::new("/")).display()
        )
    }
}

impl fmt::Display for UnnamedSpool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.seen(), self.advice())
    }
}

/// Returns all such spools that have mail, or cannot be read.
pub fn find(settings: &Settings) -> Vec<UnnamedSpool> {
    let named: Vec<PathBuf> = settings.spools().into_iter().map(|spool| spool.path).collect();
    let mut known = recorded(&settings.data_dir);
    let moved = moved(&settings.data_dir);
    for (path, group) in by_name(&settings.data_dir) {
        let backend = if has_queue_directories(&path) { Backend::QueueDirs } else { Backend::Log };
        known.entry(path).or_insert((group, backend));
    }
    // The folder of a pattern of queue directories is named with it.
    let is_named = |path: &PathBuf| named.iter().any(|named| named.starts_with(path));
    let unnamed = known.into_iter().filter(|(path, _)| !is_named(path) && !moved.contains(path));
    let all = unnamed.map(|(path, (group, backend))| {
        let messages = count(&path);
        UnnamedSpool { path, group, backend, messages }
    });
    all.filter(|one| one.messages != Ok(0)).collect()
}

/// Returns what is wrong with spools whose files another backend has written: the daemon does not open them.
pub fn of_other_backend(settings: &Settings) -> Vec<String> {
    let other = |spool: config::Spool| {
        let found = match spool.backend {
            Backend::Log if has_queue_directories(&spool.path) => Backend::QueueDirs,
            Backend::QueueDirs if has_segments(&spool.path) => Backend::Log,
            _ => return None,
        };
        Some(format!(
            "{} has the files of the backend \"{found}\", and not of \"{}\": write `backend = \"{found}\"`, or move the mail with \
             `postrider spool convert`",
            spool.path.display(),
            spool.backend.as_str(),
            found = found.as_str()
        ))
    };
    settings.spools().into_iter().filter_map(other).collect()
}

/// Returns whether a folder has segments of a log.
fn has_segments(path: &Path) -> bool {
    let is_segment = |entry: fs::DirEntry| entry.path().extension().is_some_and(|end| end == "seg");
    fs::read_dir(path).is_ok_and(|entries| entries.flatten().any(is_segment))
}

/// Notes the spools that are in use, for later starts.
///
/// # Errors
/// The file cannot be written.
pub fn record(settings: &Settings) -> io::Result<()> {
    let mut text = String::new();
    let own = |group: &config::QueueGroup| {
        group.spool.as_ref().map(|own| (own.beside(&settings.spool), group.name.clone()))
    };
    let main = std::iter::once((settings.spool.clone(), String::new()));
    for (spool, name) in main.chain(settings.queue_groups.iter().filter_map(own)) {
        if let (Backend::Log | Backend::QueueDirs, Some(path)) = (spool.backend, spool.path.to_str())
            && !path.contains(['\t', '\n'])
        {
            text.push_str(&format!("{}\t{path}\t{}\n", spool.backend.as_str(), name));
        }
    }
    let named: Vec<PathBuf> = settings.spools().into_iter().map(|spool| spool.path).collect();
    for path in moved(&settings.data_dir).iter().filter(|path| !named.contains(path)) {
        text.push_str(&format!("{MOVED}\t{}\t\n", path.display()));
    }
    write(settings, &text)
}

/// Notes that all messages of a spool were moved into another one.
///
/// # Errors
/// The file cannot be written.
pub fn record_moved(settings: &Settings, spool: &Path) -> io::Result<()> {
    let old = read(&settings.data_dir);
    write(settings, &format!("{old}{MOVED}\t{}\t\n", spool.display()))
}

fn write(settings: &Settings, text: &str) -> io::Result<()> {
    let path = settings.data_dir.join(FILE);
    match config::read_state_file(&settings.data_dir, &path) {
        Ok(old) if old == text.as_bytes() => return Ok(()),
        Err(e) if e.kind() == io::ErrorKind::NotFound && text.is_empty() => return Ok(()),
        _ => {}
    }
    let new = path.with_extension("new");
    // What a write that was cut off, or somebody else, has left: it is not written through.
    if let Err(e) = fs::remove_file(&new)
        && e.kind() != io::ErrorKind::NotFound
    {
        return Err(e);
    }
    let mut file = fs::File::create_new(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, &path)
}

/// Returns the text of the file, as far as it can be read.
fn read(data_dir: &Path) -> String {
    let bytes = config::read_state_file(data_dir, &data_dir.join(FILE)).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns the spools in the file.
fn recorded(data_dir: &Path) -> BTreeMap<PathBuf, (String, Backend)> {
    let text = read(data_dir);
    let line = |line: &str| {
        let mut fields = line.split('\t');
        let (backend, path, group) = (fields.next()?, fields.next()?, fields.next()?);
        let backend = [Backend::Log, Backend::QueueDirs].into_iter().find(|one| one.as_str() == backend)?;
        Some((PathBuf::from(path), (group.to_owned(), backend)))
    };
    text.lines().filter_map(line).collect()
}

/// Returns the spools in the file whose messages were moved.
fn moved(data_dir: &Path) -> Vec<PathBuf> {
    let text = read(data_dir);
    let fields = text.lines().filter_map(|line| line.strip_prefix(MOVED)?.strip_prefix('\t'));
    fields.filter_map(|fields| Some(fields.split('\t').next()?.into())).collect()
}

/// Returns the folders beside the data that have the names of spools of groups.
fn by_name(data_dir: &Path) -> Vec<(PathBuf, String)> {
    let entries = fs::read_dir(data_dir).into_iter().flatten().flatten();
    let spool = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        let group = if name == MAIN { String::new() } else { name.strip_prefix(PREFIX)?.to_owned() };
        entry.file_type().is_ok_and(|kind| kind.is_dir()).then(|| (entry.path(), group))
    };
    entries.filter_map(spool).collect()
}

fn count(path: &Path) -> Result<u64, String> {
    let mut messages = 0;
    let opened = SpoolReader::open(path, &mut |_| messages += 1);
    let (_, report) = opened.map_err(|failure| failure.to_string())?;
    match report.problems().next() {
        Some(problem) if messages == 0 => Err(problem),
        _ => Ok(messages),
    }
}
