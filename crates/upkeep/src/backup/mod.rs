//! `postrider backup`: all queued mail, the configuration and its files, in one archive.

mod contents;
mod messages;
pub(crate) mod output;
pub mod restore;
mod since;

use crate::archive::ArchiveWriter;
use clap::Args;
use config::Settings;
use console::{
    CliError, Ending, VERSION, complain,
    print::{messages as count_of_messages, plain},
    settings::{find as find_config, load_for_tools},
};
use contents::{About, DROP, FILE_BYTES_MAX, FILES, FORMAT, NamedFile, Summary};
use control::Exit;
use mail::UnixMillis;
use output::OutputFile;
use server::site_files::{FileUse, site_files};
use std::{
    collections::HashMap,
    io::{self, Write},
    path::{Path, PathBuf},
};
use submission::maildrop::{self, Unreadable};

/// The options of `postrider backup`.
#[derive(Debug, Args)]
pub struct BackupArgs {
    /// The file to write, or a directory in which to write postrider-HOSTNAME-TIME.tar.zst
    #[arg(value_name = "FILE|DIR")]
    pub to: PathBuf,
    /// Also copy private keys and the files with passwords for other servers
    #[arg(long)]
    pub with_secrets: bool,
}

/// The first bytes that every private key in a PEM file has.
const KEY_IN_PEM: &[u8] = b"PRIVATE KEY-----";
/// Messages in the drop directory that are copied.
const DROP_FILES_MAX: usize = 1_000_000;

/// Runs `postrider backup`.
pub fn run(args: &BackupArgs, explicit: Option<&Path>, out: &mut dyn Write) -> Ending {
    let (source, settings) = (find_config(explicit), load_for_tools(explicit)?);
    let begun = UnixMillis::now();
    let mut file = OutputFile::create(&args.to, &file_name(&settings, begun))?;
    let not_written = |path: &Path, error: &io::Error| {
        CliError::new(Exit::IoErr, format!("write {}: {error}", path.display()))
    };
    let path = file.path().to_owned();
    let failed = |error: io::Error| not_written(&path, &error);
    let mut writer = ArchiveWriter::begin(file.writer(), begun.0 / 1000).map_err(failed)?;
    let mut summary = Summary::default();
    // A message of the drop directory that the daemon accepts meanwhile is copied twice rather than not at all.
    let drop_files = drop_files(&settings)?;
    let mut queued = messages::Messages::open(&settings)?;
    let about = About {
        format: FORMAT,
        version: VERSION.to_owned(),
        hostname: settings.hostname.clone(),
        begun: begun.rfc3339(),
        begun_ms: begun.0,
        from_running_daemon: queued.is_daemon(),
        counters: queued.counters(),
        with_secrets: args.with_secrets,
    };
    writer.add_json(contents::ABOUT, &about).map_err(failed)?;
    add_files(&settings, source.as_deref(), args.with_secrets, &mut writer, &mut summary).map_err(failed)?;
    for path in drop_files {
        add_drop_file(&path, &settings, &mut writer, &mut summary).map_err(failed)?;
    }
    queued.copy_all(&mut writer, &mut summary)?;
    writer.add_json(contents::SUMMARY, &summary.bounded()).map_err(failed)?;
    writer.finish().map_err(failed)?.flush().map_err(failed)?;
    let is_file = !file.is_standard_output();
    let bytes = file.finish()?;
    let mut report = Vec::new();
    tell(is_file.then_some(&path), bytes, &about, &summary, &mut report)?;
    if is_file { out.write_all(&report) } else { io::stderr().write_all(&report) }?;
    for what in &summary.damaged {
        complain("postrider", &format!("not in the backup: {}", plain(what)));
    }
    Ok(if summary.damaged.is_empty() { Exit::Ok } else { Exit::DataErr })
}

/// `postrider-mx.example.com-20261125T114200Z.tar.zst`.
fn file_name(settings: &Settings, at: UnixMillis) -> String {
    let time: String = at.rfc3339().chars().filter(|c| !matches!(c, '-' | ':')).collect();
    let time = time.split(['.', '+', 'Z']).next().unwrap_or_default().to_owned();
    format!("postrider-{}-{time}Z.tar.zst", settings.hostname)
}

/// Returns the messages of local programs that no daemon has accepted yet.
fn drop_files(settings: &Settings) -> Result<Vec<PathBuf>, CliError> {
    let dir = &settings.control.maildrop;
    match maildrop::list(dir, &HashMap::new(), DROP_FILES_MAX) {
        Ok(files) => Ok(files.into_iter().map(|file| file.path).collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => {
            let exit =
                if error.kind() == io::ErrorKind::PermissionDenied { Exit::NoPerm } else { Exit::IoErr };
            Err(CliError::new(exit, format!("read the drop directory {}: {error}", dir.display())))
        }
    }
}

fn add_drop_file(
    path: &Path,
    settings: &Settings,
    writer: &mut ArchiveWriter<impl Write>,
    summary: &mut Summary,
) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    // All users may write there: what is no message is not waited for.
    match maildrop::read_bytes(path, settings.limits.message_bytes) {
        Ok(bytes) => {
            summary.drop_files += 1;
            return writer.add(&format!("{DROP}{name}"), &bytes);
        }
        // The daemon has accepted it in the meantime.
        Err(_) if path.symlink_metadata().is_err() => {}
        Err(Unreadable::Bad(why) | Unreadable::NoFile(why) | Unreadable::Later(why)) => {
            summary.damaged.push(format!("{}: {why}", path.display()));
        }
    }
    Ok(())
}

/// Adds the configuration and the files that it names.
fn add_files(
    settings: &Settings,
    source: Option<&Path>,
    with_secrets: bool,
    writer: &mut ArchiveWriter<impl Write>,
    summary: &mut Summary,
) -> io::Result<()> {
    for file in site_files(settings, source) {
        let shown = file.path.display().to_string();
        let use_ = file.file_use.as_str().to_owned();
        let mut leave_out = |why: &str| {
            summary.left_out.push(NamedFile { path: shown.clone(), file_use: use_.clone(), why: why.into() });
        };
        if file.file_use == FileUse::Database {
            leave_out("a database: use its own backup program");
            continue;
        }
        if file.file_use.is_private() && !with_secrets {
            leave_out("private");
            continue;
        }
        let bytes = match config::read_regular_file(&file.path, FILE_BYTES_MAX) {
            Ok(bytes) => bytes,
            Err(error) => {
                leave_out(&format!("cannot be read: {error}"));
                continue;
            }
        };
        if !with_secrets && memchr::memmem::find(&bytes, KEY_IN_PEM).is_some() {
            leave_out("private: it has a private key");
            continue;
        }
        let (Some(name), false) = (shown.strip_prefix('/'), shown.contains("/../")) else {
            leave_out("its path is not absolute");
            continue;
        };
        writer.add(&format!("{FILES}{name}"), &bytes)?;
        summary.files.push(NamedFile { path: shown.clone(), file_use: use_.clone(), why: String::new() });
    }
    Ok(())
}

/// Says what is in the archive, and what is not.
fn tell(
    path: Option<&PathBuf>,
    bytes: u64,
    about: &About,
    summary: &Summary,
    out: &mut dyn Write,
) -> Result<(), CliError> {
    let from = if about.from_running_daemon { "(the daemon is running)" } else { "(the daemon is stopped)" };
    if let Some(path) = path {
        writeln!(out, "{}: {bytes} bytes, readable by its owner only", path.display())?;
    }
    let (recipients, content) = (mail::counted(summary.recipients, "recipient"), summary.content_bytes);
    let count = count_of_messages(summary.messages);
    writeln!(out, "queue          {count} {from}, {recipients} left, {content} bytes of content")?;
    if summary.drop_files > 0 {
        writeln!(
            out,
            "drop directory {} that the daemon has not accepted yet",
            count_of_messages(summary.drop_files)
        )?;
    }
    writeln!(out, "configuration  {}", mail::counted(summary.files.len() as u64, "file"))?;
    for file in &summary.left_out {
        writeln!(out, "left out       {} ({}): {}", plain(&file.path), file.file_use, plain(&file.why))?;
    }
    if !about.with_secrets && summary.left_out.iter().any(|file| file.why.starts_with("private")) {
        writeln!(
            out,
            "Private keys and passwords are not in the backup: keep them elsewhere, or use --with-secrets."
        )?;
    }
    writeln!(
        out,
        "The backup has the whole content of the queued mail, and the configuration: keep it as safe as the mail."
    )?;
    if let Some(path) = path {
        writeln!(out, "To restore it: postrider restore {}", path.display())?;
    }
    Ok(())
}
