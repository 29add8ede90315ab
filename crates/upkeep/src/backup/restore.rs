//! `postrider restore`: the mail of a backup into an empty spool, on hold.

use super::{
    contents::{
        ABOUT, ABOUT_BYTES_MAX, About, CONTENT, Counters, DROP, ENVELOPE, ENVELOPE_BYTES_MAX, FILE_BYTES_MAX,
        FILES, FORMAT, MESSAGES, SUMMARY, SUMMARY_BYTES_MAX, Summary,
    },
    since::Since,
};
use crate::{
    archive::{self, ArchiveEntry, Unusable, Wanted},
    spool_writer::{NewMessage, SpoolWriter},
};
use clap::Args;
use config::{Durability, Purpose, Settings};
use console::{
    CliError, Ending, complain, owner,
    print::{messages as count_of_messages, plain},
    settings::{load as load_config, load_for_tools},
};
use control::{Exit, client::Client};
use mail::{Disposition, Enhanced, Message, Outcome, QueueId, UnixMillis};
use rustix::process::geteuid;
use server::{prepare_folder, prepare_folders, wiring};
use spool::{Recovered, Spool, SpoolFailure, import_envelope};
use std::{
    collections::HashSet,
    fs::{self, File, OpenOptions},
    io::{self, BufReader, Seek as _, Write},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, sync_channel},
};

/// The options of `postrider restore`.
#[derive(Debug, Args)]
pub struct RestoreArgs {
    /// The archive of `postrider backup`
    #[arg(value_name = "ARCHIVE")]
    pub archive: PathBuf,
    /// The spool to write to, an empty or missing directory; without it, the spools of the configuration
    #[arg(long, value_name = "DIR")]
    pub spool: Option<PathBuf>,
    /// Write the configuration, its files and the messages of the drop directory to this directory, and queue no mail
    ///
    /// The directory is created; if it exists, it must be empty and writable by you only.
    #[arg(long, value_name = "DIR", conflicts_with = "spool")]
    pub files: Option<PathBuf>,
    /// Verify the archive and list what is in it; write nothing
    #[arg(long, short = 'n')]
    pub dry_run: bool,
}

/// Messages that wait for the disk together.
const BATCH: u64 = 256;
/// Messages that are read and not written yet.
const WAITING: usize = 16;
/// Octets that a message may have however short the archive and `limits.max_message_size` are; and so many for each octet of the
/// archive, since mail that somebody could have sent is not compressed better. A message is taken into memory.
const MESSAGE_BYTES_FREE: u64 = 64 << 20;
const BYTES_PER_OCTET: u64 = 200;
/// Fields that the server has added to a message of the longest size.
const ADDED_BYTES: u64 = 1 << 20;
/// The status of a message that was restored: other or undefined mail system status (RFC 3463 §3.4).
const RESTORED: Enhanced = Enhanced(4, 3, 0);

/// Puts the mail into the spool, or writes the files.
pub fn run(args: &RestoreArgs, explicit: Option<&Path>, out: &mut dyn Write) -> Ending {
    let mut file = File::open(&args.archive).map_err(|error| {
        let exit = match error.kind() {
            io::ErrorKind::NotFound => Exit::NoInput,
            io::ErrorKind::PermissionDenied => Exit::NoPerm,
            _ => Exit::IoErr,
        };
        CliError::new(exit, format!("read {}: {error}", args.archive.display()))
    })?;
    let message_bytes_max = message_bytes_max(&file, explicit)?;
    let found = Verified::read(&file, message_bytes_max).map_err(|why| unusable(&args.archive, &why))?;
    found.tell(&args.archive, out)?;
    out.flush()?;
    if args.dry_run {
        writeln!(out, "Nothing was written.")?;
        return Ok(found.tell_left_out());
    }
    file.rewind()?;
    if let Some(dir) = &args.files {
        make_own_folder(dir)?;
        return write_files(&file, message_bytes_max, dir, out).map_err(|why| not_written(dir, &why));
    }
    let settings = settings(args, explicit)?;
    let restored = queue(&file, &found, args.spool.as_deref(), &settings)?;
    tell_restored(&restored, &found, &settings, args, out)?;
    out.flush()?;
    Ok(found.tell_left_out())
}

/// Returns how long a message may be.
fn message_bytes_max(file: &File, explicit: Option<&Path>) -> io::Result<u64> {
    let configured = load_for_tools(explicit).map_or(0, |settings| {
        let listeners = settings.listen.iter().filter_map(|listen| Some(listen.max_message_size?.0));
        listeners.fold(settings.limits.message_bytes, u64::max)
    });
    let grown = file.metadata()?.len().saturating_mul(BYTES_PER_OCTET);
    Ok(configured.saturating_add(ADDED_BYTES).max(grown).max(MESSAGE_BYTES_FREE))
}

fn unusable(path: &Path, why: &Unusable) -> CliError {
    let path = path.display();
    match why {
        Unusable::Io(error) => {
            CliError::new(Exit::IoErr, format!("read {path}: {error}; nothing was written"))
        }
        Unusable::Broken(why) if why.contains("Unknown frame descriptor") => CliError::new(
            Exit::DataErr,
            format!(
                "{path} was not made by `postrider backup`; nothing was written. Name the file that it made"
            ),
        ),
        Unusable::Broken(why) => CliError::new(
            Exit::DataErr,
            format!("{path} is not a complete backup: {}; nothing was written. Use another copy", plain(why)),
        ),
    }
}

/// What a first reading of the archive has verified: only then the restore begins.
struct Verified {
    about: About,
    summary: Summary,
    ids: HashSet<QueueId>,
    message_bytes_max: u64,
    /// Messages that cannot be restored, with the reason.
    left_out: Vec<String>,
    /// Messages that were on hold before.
    held: u64,
    /// When the messages were accepted.
    arrived: Vec<UnixMillis>,
}

impl Verified {
    fn read(file: &File, message_bytes_max: u64) -> Result<Self, Unusable> {
        let (mut about, mut summary) = (None, None);
        let (mut ids, mut held, mut arrived) = (HashSet::new(), 0, Vec::new());
        let (mut messages, mut left_out) = (Messages::default(), Vec::new());
        let wanted = |name: &str, _| match name {
            ABOUT => Wanted::AtMost(ABOUT_BYTES_MAX),
            SUMMARY => Wanted::AtMost(SUMMARY_BYTES_MAX),
            _ if is_envelope(name) => Wanted::AtMost(ENVELOPE_BYTES_MAX),
            _ => Wanted::Checksum,
        };
        read(file, &wanted, &mut |member| {
            if about.is_none() {
                about = Some(about_of(&member)?);
            } else if member.name == SUMMARY {
                summary = Some(member.json::<Summary>()?);
            } else if let Some(Taken { id, envelope, content }) = messages.take(member)? {
                if !ids.insert(id) {
                    return Err(Unusable::Broken(format!("{id} is in it twice")));
                }
                match envelope {
                    Err(why) => left_out.push(format!("{id}: its envelope is not understood: {why}")),
                    Ok(_) if content.size_bytes > message_bytes_max => left_out.push(format!(
                        "{id}: it has {} octets, and at most {message_bytes_max} are restored with this \
                         `limits.max_message_size`: raise it, and run the same command again",
                        content.size_bytes
                    )),
                    Ok(found) => {
                        held += u64::from(found.held.is_some());
                        arrived.push(found.message.arrived);
                    }
                }
            }
            Ok(())
        })?;
        let missing = || Unusable::Broken("its summary is missing".to_owned());
        let (about, summary) = (about.ok_or_else(missing)?, summary.ok_or_else(missing)?);
        if summary.messages != ids.len() as u64 || messages.begun.is_some() {
            return Err(Unusable::Broken(format!("it has {} of {} messages", ids.len(), summary.messages)));
        }
        Ok(Self { about, summary, ids, message_bytes_max, left_out, held, arrived })
    }

    /// Says which messages are not restored. Returns the exit code.
    fn tell_left_out(&self) -> Exit {
        for what in &self.left_out {
            complain("postrider", &format!("not restored: {}", plain(what)));
        }
        if self.left_out.is_empty() { Exit::Ok } else { Exit::DataErr }
    }

    fn tell(&self, path: &Path, out: &mut dyn Write) -> io::Result<()> {
        let About { hostname, begun, version, .. } = &self.about;
        let (path, host) = (path.display(), plain(hostname));
        writeln!(
            out,
            "archive        {path}: backup of {host}, begun {}, by postrider {}",
            plain(begun),
            plain(version)
        )?;
        let Summary { messages, recipients, content_bytes, drop_files, files, damaged, .. } = &self.summary;
        let count = count_of_messages(*messages);
        writeln!(
            out,
            "queue          {count}, {} left, {content_bytes} bytes of content",
            mail::counted(*recipients, "recipient")
        )?;
        if *drop_files > 0 {
            writeln!(out, "drop directory {}", count_of_messages(*drop_files))?;
        }
        writeln!(out, "configuration  {}", mail::counted(files.len() as u64, "file"))?;
        for what in damaged {
            writeln!(out, "not in it      {}", plain(what))?;
        }
        Ok(())
    }
}

fn read(
    file: &File,
    wanted: &dyn Fn(&str, u64) -> Wanted,
    each: &mut dyn FnMut(ArchiveEntry) -> Result<(), Unusable>,
) -> Result<(), Unusable> {
    archive::read(BufReader::with_capacity(1 << 18, file), wanted, each)
}

fn is_envelope(name: &str) -> bool {
    name.starts_with(MESSAGES) && name.ends_with(ENVELOPE)
}

/// Reads the first member.
fn about_of(member: &ArchiveEntry) -> Result<About, Unusable> {
    #[derive(serde::Deserialize)]
    struct Format {
        format: u32,
        version: String,
    }
    if member.name != ABOUT {
        return Err(Unusable::Broken("it is no archive of `postrider backup`".to_owned()));
    }
    let Format { format, version } = member.json()?;
    if format > FORMAT {
        return Err(Unusable::Broken(format!(
            "its format {format} is newer than {FORMAT}: use postrider {version}, or a later version"
        )));
    }
    member.json()
}

/// Puts envelopes and contents together.
#[derive(Default)]
struct Messages {
    begun: Option<(QueueId, Result<Recovered, String>)>,
}

/// A message as the archive has it.
struct Taken {
    id: QueueId,
    /// The envelope, or why it is not understood.
    envelope: Result<Recovered, String>,
    content: ArchiveEntry,
}

impl Messages {
    /// Returns a message once its content is there.
    fn take(&mut self, member: ArchiveEntry) -> Result<Option<Taken>, Unusable> {
        let Some(file) = member.name.strip_prefix(MESSAGES) else { return Ok(None) };
        let order = || Unusable::Broken(format!("{} is out of order", member.name));
        let id = |name: &str| name.parse::<QueueId>().map_err(|_| order());
        if let Some(name) = file.strip_suffix(ENVELOPE) {
            let id = id(name)?;
            let found = import_envelope(id, &member.bytes).map_err(|failure| failure.to_string());
            return if self.begun.replace((id, found)).is_none() { Ok(None) } else { Err(order()) };
        }
        let id = id(file.strip_suffix(CONTENT).ok_or_else(order)?)?;
        match self.begun.take() {
            Some((begun, envelope)) if begun == id => Ok(Some(Taken { id, envelope, content: member })),
            _ => Err(order()),
        }
    }
}

/// Returns the settings, with the spool that was asked for in place of all others.
fn settings(args: &RestoreArgs, explicit: Option<&Path>) -> Result<Settings, CliError> {
    let mut settings = load_config(explicit, Purpose::Ask)?;
    // A command that says what is restored waits for the disk.
    settings.spool.durability = Durability::Durable;
    if let Some(dir) = &args.spool {
        settings.spool.path = std::path::absolute(dir)?;
        settings.spool.content_path = None;
        settings.queue_groups.clear();
    } else if Client::connect(&settings.control.socket).is_ok() {
        let text =
            "the daemon is running, and has the spool: stop it first, or name another folder with --spool";
        return Err(CliError::new(Exit::TempFail, text));
    }
    Ok(settings)
}

/// What a restore has done so far.
#[derive(Debug, Clone, Copy, Default)]
struct Restored {
    messages: u64,
    /// Restored by an earlier run that was interrupted.
    before: u64,
    /// Left out, because all their recipients were delivered or deleted after the backup.
    finished: u64,
    /// Recipients of others that were finished after it.
    finished_recipients: u64,
}

/// Puts the messages into the spool. A thread writes as the daemon's user, while this one reads as root.
fn queue(
    file: &File,
    found: &Verified,
    dir: Option<&Path>,
    settings: &Settings,
) -> Result<Restored, CliError> {
    let prepared = match dir {
        Some(_) => prepare_folder(settings, &settings.spool.path, 0o700),
        None => prepare_folders(settings),
    };
    prepared.map_err(|text| CliError::new(Exit::CantCreate, text))?;
    let (to, from) = sync_channel::<(Recovered, Vec<u8>)>(WAITING);
    std::thread::scope(|scope| {
        let writer = std::thread::Builder::new().name("restore".to_owned());
        let writer = writer.spawn_scoped(scope, || write(found, dir, settings, from));
        let writer = writer.map_err(|e| CliError::new(Exit::Unavailable, format!("start a thread: {e}")))?;
        let mut messages = Messages::default();
        let wanted = |name: &str, size| match name {
            _ if is_envelope(name) => Wanted::AtMost(ENVELOPE_BYTES_MAX),
            _ if name.starts_with(MESSAGES) && size <= found.message_bytes_max => Wanted::AtMost(size),
            _ => Wanted::Checksum,
        };
        let read = read(file, &wanted, &mut |member| {
            if let Some(Taken { envelope: Ok(envelope), content, .. }) = messages.take(member)?
                && content.size_bytes <= found.message_bytes_max
            {
                // The writer says why it has ended.
                to.send((envelope, content.bytes)).map_err(|_| Unusable::Broken(String::new()))?;
            }
            Ok(())
        });
        drop(to);
        let written = writer.join();
        let written =
            written.unwrap_or_else(|_| Err(CliError::new(Exit::Software, "the restore has panicked")))?;
        read.map_err(|why| {
            CliError::new(Exit::IoErr, format!("read the backup: {why}; run the same command again"))
        })?;
        Ok(written)
    })
}

fn write(
    verified: &Verified,
    dir: Option<&Path>,
    settings: &Settings,
    from: Receiver<(Recovered, Vec<u8>)>,
) -> Result<Restored, CliError> {
    match dir {
        Some(_) => owner::become_owner_of(&settings.spool.path)?,
        None => owner::become_owner(settings)?,
    }
    let runtime = console::runtime()?;
    let mut spool = {
        let _context = runtime.enter();
        wiring::spool(settings).map_err(|why| CliError::new(why.exit, in_use(why.text)))?
    };
    let (present, mut counts) = check_empty(&mut *spool, verified, settings)?;
    let since = Since::open(settings.history.enabled.then_some(&*settings.history.path));
    let mut writer = SpoolWriter::new(&*spool, &runtime);
    let mut done = Restored::default();
    let failed = |failure: SpoolFailure| {
        let text = format!("the spool: {failure}; repair the cause and run the same command again");
        CliError::new(Exit::IoErr, text)
    };
    for (mut found, content) in from {
        if present.contains(&found.message.id) {
            done.before += 1;
            continue;
        }
        let finished = since.settle(&mut found);
        if finished > 0 && found.recipients.iter().all(|state| state.settled) {
            done.finished += 1;
            continue;
        }
        done.finished_recipients += finished;
        // With the first message, so that an interrupted restore does not add them twice.
        let counts = counts.take().map(Counters::finished);
        writer.import(NewMessage { counts, ..on_hold(found, &verified.about) }, content).map_err(failed)?;
        done.messages += 1;
        if done.messages % BATCH == 0 {
            writer.wait().map_err(failed)?;
        }
    }
    writer.wait().map_err(failed)?;
    spool.close();
    Ok(done)
}

fn in_use(text: String) -> String {
    if text.contains("another process") {
        format!("{text} Stop the daemon that uses it, or name another folder with --spool")
    } else {
        text
    }
}

/// Checks that the spool has no mail but that of an interrupted restore of the same archive. Returns the messages that are
/// there, and the counters to add, if they are to be added.
fn check_empty(
    spool: &mut dyn Spool,
    verified: &Verified,
    settings: &Settings,
) -> Result<(HashSet<QueueId>, Option<Counters>), CliError> {
    let (mut present, mut other) = (HashSet::new(), Vec::new());
    let report = spool.recover(&mut |found| {
        let id = found.message.id;
        if found.held.is_some() && verified.ids.contains(&id) {
            present.insert(id);
        } else {
            other.push(id);
        }
    });
    let path = settings.spool.path.display();
    let report = report.map_err(|failure| CliError::new(Exit::IoErr, format!("read {path}: {failure}")))?;
    if let Some(problem) = report.problems().next() {
        return Err(CliError::new(Exit::DataErr, format!("{path} is not sound: {problem}")));
    }
    if let Some(first) = other.first() {
        let text = format!(
            "{path} is not empty: it has {}, such as {first}, that this backup has not put on hold there. Name an empty \
             folder with --spool, or deliver the mail first",
            count_of_messages(other.len() as u64)
        );
        return Err(CliError::new(Exit::CantCreate, text));
    }
    // A spool that has counted mail already goes on from there.
    let counts = (report.totals.finished() == 0).then_some(verified.about.counters);
    Ok((present, counts))
}

/// Returns a message as it is restored: on hold, with the reason at each recipient that is left.
fn on_hold(found: Recovered, about: &About) -> NewMessage {
    let Recovered { message, mut recipients, held } = found;
    let now = UnixMillis::now();
    for state in recipients.iter_mut().filter(|state| !state.settled) {
        let mut text = format!("restored from the backup of {}", about.begun);
        text.push_str(if held.is_some() {
            "; it was on hold before, too"
        } else {
            "; it may have been delivered since"
        });
        if let Some((_, outcome)) = &state.last {
            // Only the history says so: the failure came after the backup.
            let is_failed = outcome.disposition == Disposition::Failed;
            text.push_str(if is_failed {
                "; it has failed since, and its notification may be lost: "
            } else {
                "; before: "
            });
            text.push_str(&outcome.text);
        }
        state.last = Some((now, Outcome::deferred(RESTORED, text)));
        state.attempt_count = state.attempt_count.max(1);
    }
    let before = held.filter(|reason| !reason.is_empty()).map(|reason| format!("; held before: {reason}"));
    let reason = format!("restored from the backup of {}{}", about.begun, before.unwrap_or_default());
    NewMessage { message: Message::clone(&message), recipients, held: Some(reason.into()), counts: None }
}

fn tell_restored(
    restored: &Restored,
    found: &Verified,
    settings: &Settings,
    args: &RestoreArgs,
    out: &mut dyn Write,
) -> Result<(), CliError> {
    let place = match &args.spool {
        // A relative path of the configuration begins at its folder, and one of the command line at the working directory.
        Some(dir) => std::path::absolute(dir)?.display().to_string(),
        None => settings.spool.path.display().to_string(),
    };
    write!(out, "restored       {}, on hold, in {place}", count_of_messages(restored.messages))?;
    if restored.before > 0 {
        write!(out, "; {} were there from an earlier run", restored.before)?;
    }
    writeln!(out)?;
    if restored.finished + restored.finished_recipients > 0 {
        writeln!(
            out,
            "left out       {}, and {} of others: delivered or deleted after the backup, by the history in {}",
            count_of_messages(restored.finished),
            mail::counted(restored.finished_recipients, "recipient"),
            settings.history.path.display()
        )?;
    }
    if found.held > 0 {
        writeln!(
            out,
            "               {} of the backup {} on hold before, too",
            count_of_messages(found.held),
            if found.held == 1 { "was" } else { "were" }
        )?;
    }
    let expire = u64::try_from(settings.queue.expire.as_millis()).unwrap_or(u64::MAX);
    let now = UnixMillis::now().0;
    let old = found.arrived.iter().filter(|at| now.saturating_sub(at.0) > expire).count() as u64;
    if old > 0 {
        complain(
            "postrider",
            &format!(
                "warning: {} older than `queue.expire`: after a release they go back to their senders",
                count_are(old)
            ),
        );
    }
    if found.summary.drop_files > 0 {
        let archive = args.archive.display();
        writeln!(
            out,
            "not restored: {} of the drop directory; `postrider restore {archive} --files DIR` writes them to DIR/drop; \
             move them to {}",
            count_of_messages(found.summary.drop_files),
            settings.control.maildrop.display()
        )?;
    }
    if args.spool.is_some() {
        writeln!(
            out,
            "To use this spool: write `path = \"{place}\"` below [spool], and start the daemon. The service of the package needs `ReadWritePaths={place}`, too: `systemctl edit postrider`."
        )?;
    }
    writeln!(
        out,
        "No message leaves before you release it. Some may have been delivered after the backup. Check, then release:"
    )?;
    writeln!(out, "    postrider queue list --status held")?;
    writeln!(out, "    postrider queue delete ID")?;
    writeln!(out, "    postrider queue release all")?;
    Ok(())
}

fn count_are(count: u64) -> String {
    format!("{} {}", count_of_messages(count), if count == 1 { "is" } else { "are" })
}

/// Writes the files of the archive below a folder: [`archive::read`] gives no name that leads out of it.
fn write_files(
    file: &File,
    message_bytes_max: u64,
    dir: &Path,
    out: &mut dyn Write,
) -> Result<Exit, Unusable> {
    let mut written = Vec::new();
    let wanted = |name: &str, _| match name {
        _ if name.starts_with(FILES) => Wanted::AtMost(FILE_BYTES_MAX),
        _ if name.starts_with(DROP) => Wanted::AtMost(FILE_BYTES_MAX.max(message_bytes_max)),
        _ => Wanted::Checksum,
    };
    read(file, &wanted, &mut |member| {
        let target = match (member.name.strip_prefix(FILES), member.name.strip_prefix(DROP)) {
            (Some(path), _) => dir.join(path),
            (None, Some(_)) => dir.join(&member.name),
            (None, None) => return Ok(()),
        };
        create(&target, &member.bytes)
            .map_err(|error| Unusable::Broken(format!("write {}: {error}", target.display())))?;
        written.push(target);
        Ok(())
    })?;
    for path in &written {
        writeln!(out, "written        {}", path.display()).map_err(Unusable::Io)?;
    }
    writeln!(
        out,
        "{}, readable by their owner only. Move them to their places yourself.",
        mail::counted(written.len() as u64, "file")
    )
    .map_err(Unusable::Io)?;
    Ok(Exit::Ok)
}

/// Makes the folder for the files, or makes sure that nobody else could have put a link into it: the files could be written
/// elsewhere by it.
fn make_own_folder(dir: &Path) -> Result<(), CliError> {
    let refused = |why: &str| {
        let text =
            format!("{} {why}: name an empty folder of your own, or one that does not exist", dir.display());
        CliError::new(Exit::CantCreate, text)
    };
    let failed = |error: &io::Error| {
        CliError::new(Exit::CantCreate, format!("make the folder {}: {error}", dir.display()))
    };
    if let Some(above) = dir.parent() {
        fs::create_dir_all(above).map_err(|e| failed(&e))?;
    }
    match fs::DirBuilder::new().mode(0o700).create(dir) {
        Ok(()) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(failed(&error)),
    }
    let found = fs::symlink_metadata(dir).map_err(|e| failed(&e))?;
    if !found.is_dir() {
        return Err(refused("is not a folder"));
    }
    if found.uid() != geteuid().as_raw() {
        return Err(refused("belongs to another user"));
    }
    if found.mode() & 0o022 != 0 {
        return Err(refused("can be written by other users"));
    }
    match fs::read_dir(dir).map_err(|e| failed(&e))?.next() {
        Some(_) => Err(refused("exists and is not empty")),
        None => Ok(()),
    }
}

fn not_written(dir: &Path, why: &Unusable) -> CliError {
    CliError::new(Exit::CantCreate, format!("write the files to {}: {why}", dir.display()))
}

/// Writes a file that is not there yet, in a folder that [`make_own_folder`] has made or checked.
fn create(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder: PathBuf = path.parent().map(Path::to_owned).unwrap_or_default();
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}
