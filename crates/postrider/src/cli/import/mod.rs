//! `postrider import`: the configuration and the queue of another mail server.

mod exim;
mod machine;
mod postfix;
mod queue;
mod sendmail;
mod stopped;
mod verify;
mod work_folder;
mod writer;

use super::{
    CliError, Ending,
    args::{ImportArgs, ImportCommand},
    complain,
    quickstart::keep_old,
};
use config::Purpose;
use control::Exit;
use import::{Draft, LogOf, Report, SeenEnvelope};
use rustix::fs::OFlags;
use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};
use work_folder::WorkFolder;

/// Units of the package, by which it is known.
const UNITS: [&str; 3] = [
    "/etc/systemd/system/postrider-smtp.socket",
    "/usr/lib/systemd/system/postrider-smtp.socket",
    "/lib/systemd/system/postrider-smtp.socket",
];

/// The list of the files that imports have written beside a configuration; `dist/debian/postrm` reads it.
const WRITTEN_FILES: &str = "imported-files";

/// Another mail server.
trait Server {
    /// Returns the server's name in lists and messages.
    fn name(&self) -> &'static str;

    /// Reads the configuration. `None` if there is none.
    ///
    /// # Errors
    /// A file cannot be read.
    fn configuration(&self) -> Result<Option<(Draft, Report)>, CliError>;

    /// Makes sure that the server is stopped, and stays so until the result is dropped.
    ///
    /// # Errors
    /// The server runs, or nobody can tell.
    fn stop(&self, queue: &Path) -> Result<stopped::Stopped, CliError>;

    /// Reads each message of the queue.
    ///
    /// # Errors
    /// The directory cannot be read.
    fn read(
        &self,
        queue: &Path,
        found: &mut dyn FnMut(queue::Found) -> Result<(), CliError>,
    ) -> Result<(), CliError>;

    /// Returns the form of the log, and the places where it usually is.
    fn log(&self) -> (LogOf, &'static [&'static str]);

    /// Asks the server what it does with envelopes, and sends nothing.
    ///
    /// # Errors
    /// A program of the server is missing or fails.
    fn ask(&self, envelopes: &[SeenEnvelope]) -> Result<Vec<verify::Answer>, CliError>;
}

/// Runs `postrider import`.
pub(super) fn run(command: &ImportCommand, explicit: Option<&Path>, out: &mut dyn Write) -> Ending {
    match command {
        ImportCommand::Postfix(args) => {
            import(&postfix::Postfix::new(directory(args, "/etc/postfix")), args, explicit, out)
        }
        ImportCommand::Sendmail(args) => {
            import(&sendmail::Sendmail::new(directory(args, "/etc/mail")), args, explicit, out)
        }
        ImportCommand::Exim(args) => {
            import(&exim::Exim::new(directory(args, "/etc/exim4")), args, explicit, out)
        }
    }
}

fn directory(args: &ImportArgs, usual: &str) -> PathBuf {
    args.dir.clone().unwrap_or_else(|| usual.into())
}

fn import(server: &dyn Server, args: &ImportArgs, explicit: Option<&Path>, out: &mut dyn Write) -> Ending {
    if let Some(dir) = args.dir.as_deref().filter(|dir| dir.is_file()) {
        let folder = folder_of(dir).display();
        let text = format!("{} is a file: name its directory, {folder}", dir.display());
        return Err(CliError::new(Exit::Usage, text));
    }
    let mut is_accepted = true;
    let mut verified = None;
    match server.configuration()? {
        Some((_, report)) if report.entries.is_empty() => {
            let dir = args.dir.as_deref().unwrap_or_else(|| Path::new("the usual directory"));
            let text = format!("no setting of {} was found in the files in {}", server.name(), dir.display());
            return Err(CliError::new(Exit::DataErr, text));
        }
        Some((mut draft, mut report)) => {
            if UNITS.iter().any(|unit| Path::new(unit).exists()) {
                import::fit_to_package(&mut draft, &mut report);
            }
            write!(out, "configuration  {report}")?;
            let written = args.output.as_deref().filter(|_| !args.dry_run);
            if args.output.is_none() && !args.dry_run && args.queue.is_none() && args.verify.is_none() {
                writeln!(out, "nothing was written: name a file with --output FILE")?;
            }
            if let Some(file) = written {
                is_accepted = write_configuration(&mut draft, file, args.replace, out)?;
            }
            if args.verify.is_some() {
                verified = Some(Verified::new(&mut draft, written.or(explicit))?);
            }
        }
        // A queue that was copied from another machine comes without a configuration.
        None if args.queue.is_some() && args.output.is_none() => {
            writeln!(out, "configuration  none in {}", directory(args, "the usual place").display())?;
        }
        None => {
            let dir = args.dir.as_deref().unwrap_or_else(|| Path::new("the usual directory"));
            let name = server.name();
            let text = if args.dir.as_ref().is_some_and(|dir| !dir.is_dir()) {
                format!("{}: no such directory", dir.display())
            } else {
                format!(
                    "there is no configuration of {}{} in {}",
                    name[..1].to_uppercase(),
                    &name[1..],
                    dir.display()
                )
            };
            return Err(CliError::new(Exit::NoInput, text));
        }
    }
    out.flush()?;
    if let (Some(count), true) = (args.verify, is_accepted) {
        let file = verified.as_ref().map(|verified| &*verified.file);
        let file = file.or(explicit).ok_or_else(|| {
            CliError::new(
                Exit::Usage,
                "there is no configuration to verify: name the one of the other server",
            )
        })?;
        return verify::run(server, count as usize, &args.log, file, out);
    }
    match &args.queue {
        Some(dir) if args.dry_run => queue::rehearse(server, dir, out),
        Some(dir) => {
            // The embedded default would put the mail where no daemon looks for it.
            let source =
                console::settings::find(explicit).or_else(|| args.output.clone()).ok_or_else(|| {
                    let text = "the mail needs a place: name the configuration of Postrider with --config";
                    CliError::new(Exit::Usage, text)
                })?;
            let settings = console::settings::load(Some(&source), Purpose::Ask)?;
            queue::import(server, dir, &settings, out)
        }
        None if is_accepted => Ok(Exit::Ok),
        None => Ok(Exit::Config),
    }
}

/// The configuration that is compared with the other server: one that is there, or the draft in a folder of its own.
struct Verified {
    file: PathBuf,
    _folder: Option<WorkFolder>,
}

impl Verified {
    fn new(draft: &mut Draft, there: Option<&Path>) -> Result<Self, CliError> {
        if let Some(file) = there {
            return Ok(Self { file: file.to_owned(), _folder: None });
        }
        let folder = WorkFolder::new()?;
        let file = folder.path().join("postrider.toml");
        write_files(draft, &file)?;
        Ok(Self { file, _folder: Some(folder) })
    }
}

/// Refuses a configuration of which nothing was read: the result would have nothing to do with the other server.
fn check_read(
    server: &str,
    dir: &Path,
    found: Option<(Draft, Report)>,
) -> Result<Option<(Draft, Report)>, CliError> {
    if found.as_ref().is_some_and(|(_, report)| report.entries.is_empty()) {
        let text = format!(
            "nothing in the configuration of {server} in {} could be read as a setting",
            dir.display()
        );
        return Err(CliError::new(Exit::DataErr, text));
    }
    Ok(found)
}

/// Writes the configuration and the files that it needs. Returns whether the check accepts it.
fn write_configuration(
    draft: &mut Draft,
    file: &Path,
    replace: bool,
    out: &mut dyn Write,
) -> Result<bool, CliError> {
    let dir = folder_of(file);
    // Nothing is written if one of them is there: half of a configuration would be left.
    let paths = draft.files.iter().map(|extra| dir.join(&extra.name)).chain([file.to_owned()]);
    for there in paths.filter(|path| path.symlink_metadata().is_ok()) {
        if !replace {
            let text = format!("{} exists: name another file, remove it, or use --replace", there.display());
            return Err(CliError::new(Exit::CantCreate, text));
        }
        let old = keep_old(&there).map_err(|error| {
            CliError::new(Exit::CantCreate, format!("keep a copy of {}: {error}", there.display()))
        })?;
        writeln!(out, "kept           {}", old.display())?;
    }
    for path in write_files(draft, file)? {
        writeln!(out, "written        {}", path.display())?;
    }
    list_written(dir, draft).map_err(|error| {
        CliError::new(Exit::CantCreate, format!("write {}: {error}", dir.join(WRITTEN_FILES).display()))
    })?;
    out.flush()?;
    match super::settings::check(Some(file)) {
        Ok(_) => {
            writeln!(out, "checked        postrider config check accepts it")?;
            Ok(true)
        }
        Err(error) => {
            complain("postrider", &error.text);
            writeln!(
                out,
                "checked        postrider config check does not accept it: repair what it says before the start"
            )?;
            Ok(false)
        }
    }
}

fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."))
}

/// Writes the configuration without the rules that nothing reaches, and its files, of which none may be there. Returns their paths.
fn write_files(draft: &mut Draft, file: &Path) -> Result<Vec<PathBuf>, CliError> {
    let dir = folder_of(file);
    let failed = |path: &Path, error: &io::Error| {
        CliError::new(Exit::CantCreate, format!("write {}: {error}", path.display()))
    };
    if !dir.is_dir() {
        let text = format!("{}: no such directory: make it first", dir.display());
        return Err(CliError::new(Exit::CantCreate, text));
    }
    let mut written = Vec::new();
    for extra in &draft.files {
        let path = dir.join(&extra.name);
        create(&path, &extra.content, extra.is_secret).map_err(|error| failed(&path, &error))?;
        written.push(path);
    }
    create(file, &draft.as_toml(), false).map_err(|error| failed(file, &error))?;
    written.push(file.to_owned());
    drop_hidden_rules(draft, file).map_err(|error| failed(file, &error))?;
    Ok(written)
}

/// Leaves out rules that nothing reaches: lists of the other server may say the same twice, and the check of a file that a person
/// writes takes that for a mistake.
fn drop_hidden_rules(draft: &mut Draft, file: &Path) -> io::Result<()> {
    while let Err(problems) = config::load_with_origins(Some(file), Purpose::Serve) {
        let hidden: Vec<usize> = problems.list().iter().filter_map(hidden_rule).collect();
        if hidden.is_empty() {
            return Ok(());
        }
        draft.drop_rules(&hidden);
        fs::write(file, draft.as_toml())?;
    }
    Ok(())
}

/// Returns the number of a rule that a problem says to be without effect.
fn hidden_rule(problem: &config::Problem) -> Option<usize> {
    let rest = problem.what.strip_prefix("rule ")?;
    let is_hidden = rest.contains(" never ") || problem.label.ends_with("never holds");
    rest.split([' ', ':']).next().filter(|_| is_hidden)?.parse().ok()
}

/// Adds the names of the files beside the configuration to a list: a purge of the package removes them by it.
fn list_written(dir: &Path, draft: &Draft) -> io::Result<()> {
    if draft.files.is_empty() {
        return Ok(());
    }
    let names: String = draft.files.iter().map(|extra| format!("{}\n", extra.name)).collect();
    let flags = OFlags::NOFOLLOW.bits() as i32;
    let mut list = OpenOptions::new();
    let list = list.append(true).create(true).mode(0o644).custom_flags(flags);
    let mut list = list.open(dir.join(WRITTEN_FILES))?;
    list.write_all(names.as_bytes())
}

fn create(path: &Path, content: &str, is_secret: bool) -> io::Result<()> {
    let mode = if is_secret { 0o600 } else { 0o644 };
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(content.as_bytes())?;
    file.sync_all()
}

/// Refuses what is there and is not a regular file. A read of a FIFO would wait for its writer, and one of a device may not end.
fn refuse_special(path: &Path) -> Result<(), CliError> {
    if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return Err(CliError::new(Exit::NoInput, format!("read {}: it is not a file", path.display())));
    }
    Ok(())
}

/// No configuration and no message of another server is larger.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// Reads a file of a configuration; `None` if there is no such file.
fn read_optional(path: &Path) -> Result<Option<Vec<u8>>, CliError> {
    refuse_special(path)?;
    match config::read_regular_file(path, FILE_BYTES_MAX) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => {
            let exit =
                if error.kind() == io::ErrorKind::PermissionDenied { Exit::NoPerm } else { Exit::NoInput };
            Err(CliError::new(exit, format!("read {}: {error}", path.display())))
        }
    }
}
