//! `postrider support-bundle`: one archive for those who help, without secrets and, unless asked, without addresses.

mod pseudonyms;
mod workload;

use crate::{
    archive::ArchiveWriter,
    ask,
    backup::output::OutputFile,
    doctor::{self, DoctorArgs},
};
use clap::Args;
use config::{Purpose, Settings};
use console::{
    CliError, Ending, VERSION,
    settings::{find as find_config, load_for_tools},
};
use control::{Exit, Request, Response};
use mail::UnixMillis;
use pseudonyms::Pseudonyms;
use std::{
    fs::File,
    io::{self, Read as _, Seek as _, SeekFrom, Write},
    path::{Path, PathBuf},
};

/// The options of `postrider support-bundle`.
#[derive(Debug, Args)]
pub struct BundleArgs {
    /// The file to write, or a directory in which to write postrider-support-TIME.tar.zst
    #[arg(value_name = "FILE|DIR", default_value = ".")]
    pub to: PathBuf,
    /// Keep addresses, host names, logins and IP addresses as they are
    #[arg(long)]
    pub with_addresses: bool,
    /// Hours of the history to include as the workload
    #[arg(long, value_name = "HOURS", default_value_t = 24)]
    pub hours: u64,
    /// Skip checks that need the network, as `postrider doctor --offline` does
    #[arg(long)]
    pub offline: bool,
    /// The domain whose mail server to look up and connect to, as in `postrider doctor`
    #[arg(long, value_name = "DOMAIN", default_value = "gmail.com")]
    pub domain: String,
    /// List the contents only; write nothing
    #[arg(long, short = 'n')]
    pub dry_run: bool,
}

/// Written into each bundle; raised when its files change.
const FORMAT: u32 = 1;
/// Octets of the log, from its end, that are copied.
const LOG_BYTES: u64 = 512 * 1024;

/// A file of the bundle, before it is written.
struct Piece {
    name: &'static str,
    about: &'static str,
    text: String,
}

/// Lists what the bundle has, and writes it.
pub fn run(args: &BundleArgs, explicit: Option<&Path>, out: &mut dyn Write) -> Ending {
    let source = find_config(explicit);
    let (settings, configuration) = match config::load_with_origins(source.as_deref(), Purpose::Ask) {
        Ok(loaded) => {
            let text = loaded.as_toml();
            (loaded.settings, text)
        }
        // Perhaps the reason why help is wanted.
        Err(problems) => (load_for_tools(explicit)?, as_written(&problems.render(false), source.as_deref())),
    };
    let settings = &settings;
    let pseudonyms = if args.with_addresses { None } else { Some(Pseudonyms::new(names(settings))?) };
    let hidden = |text: String| pseudonyms.as_ref().map_or(text.clone(), |pseudonyms| pseudonyms.hide(&text));
    let doctor = DoctorArgs { offline: args.offline, domain: args.domain.clone(), json: false };
    let now = UnixMillis::now();
    let mut workload = Vec::new();
    let recording = workload::record(settings, now, args.hours);
    recording.write(&mut workload)?;
    let pieces = [
        Piece {
            name: "about.txt",
            about: "version and time",
            text: format!("format {FORMAT}\npostrider {VERSION}\n{}\n", now.rfc3339()),
        },
        Piece {
            name: "configuration.toml",
            about: "every value with its origin; passwords are removed",
            text: hidden(pseudonyms::without_secrets(&configuration)),
        },
        Piece {
            name: "doctor.txt",
            about: "the output of `postrider doctor`",
            text: hidden(doctor::as_text(&doctor, source.as_deref())?),
        },
        Piece {
            name: "status.json",
            about: "counters, and the state of the spool",
            text: hidden(status(settings)),
        },
        Piece { name: "queue.json", about: "the queue by destination", text: hidden(queue(settings)) },
        Piece { name: "metrics.txt", about: "the metrics", text: hidden(metrics(settings)) },
        Piece { name: "log.txt", about: "the last lines of the log", text: hidden(log(settings)) },
        Piece {
            name: "workload.jsonl",
            about: "sizes, times and results of messages, with numbers instead of domains; for `sim replay`",
            text: String::from_utf8_lossy(&workload).into_owned(),
        },
    ];
    list(&pieces, pseudonyms.is_some(), out)?;
    if args.dry_run {
        writeln!(out, "Nothing was written.")?;
        return Ok(Exit::Ok);
    }
    let time: String = now.rfc3339().chars().filter(char::is_ascii_digit).take(14).collect();
    let mut file = OutputFile::create(&args.to, &format!("postrider-support-{time}.tar.zst"))?;
    let path = file.path().to_owned();
    let failed = |e: io::Error| CliError::new(Exit::IoErr, format!("write {}: {e}", path.display()));
    let mut writer = ArchiveWriter::begin(file.writer(), now.0 / 1000).map_err(failed)?;
    for piece in &pieces {
        writer.add(piece.name, piece.text.as_bytes()).map_err(failed)?;
    }
    writer.finish().map_err(failed)?.flush().map_err(failed)?;
    let bytes = file.finish()?;
    writeln!(out, "{}: {bytes} bytes, readable by its owner only", path.display())?;
    writeln!(
        out,
        "Look at it before you send it: tar --zstd -xf {} (tar needs the package zstd)",
        path.display()
    )?;
    Ok(Exit::Ok)
}

/// Returns a configuration with mistakes as it is, behind the mistakes.
fn as_written(problems: &str, source: Option<&Path>) -> String {
    let problems: String = problems.lines().map(|line| format!("# {line}\n")).collect();
    let text = source.and_then(|file| std::fs::read(file).ok()).unwrap_or_default();
    problems + &String::from_utf8_lossy(&text)
}

/// Returns names of people that stand in the configuration without a domain.
fn names(settings: &Settings) -> Vec<String> {
    let logins =
        settings.routes.iter().filter_map(|route| route.login.as_ref()).map(|login| login.user.to_string());
    settings.local.users.iter().flatten().cloned().chain(logins).collect()
}

fn list(pieces: &[Piece], is_hidden: bool, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "The bundle contains:")?;
    for Piece { name, about, text } in pieces {
        writeln!(out, "    {name:<20} {:>9} bytes  {about}", text.len())?;
    }
    let addresses = if is_hidden {
        "Addresses, host names, logins and IP addresses are replaced: the same name has the same replacement, in this bundle only."
    } else {
        "Addresses, host names, logins and IP addresses are in it, because of --with-addresses."
    };
    writeln!(out, "{addresses}")?;
    writeln!(
        out,
        "It contains no message content, keys or passwords. Replies of other servers and names of rules may still reveal more than you want: look before you send it."
    )?;
    out.flush()
}

/// Returns an error in place of a part that cannot be had.
fn or_error(part: Result<String, CliError>) -> String {
    part.unwrap_or_else(|error| format!("not available: {}\n", error.text))
}

fn status(settings: &Settings) -> String {
    let mut lines = String::new();
    let asked = ask::ask(settings, &Request::Status, &mut |response| {
        if matches!(response, Response::Counters(_) | Response::Gauges(_)) {
            lines.push_str(&serde_json::to_string(&response)?);
            lines.push('\n');
        }
        Ok(())
    });
    or_error(asked.map(|_| lines))
}

fn metrics(settings: &Settings) -> String {
    let mut metrics = String::new();
    let asked = ask::ask(settings, &Request::Metrics, &mut |response| {
        if let Response::Metrics { text } = response {
            metrics = text;
        }
        Ok(())
    });
    or_error(asked.map(|_| metrics))
}

fn queue(settings: &Settings) -> String {
    let lines = |destinations: Vec<control::DestinationInfo>| {
        let line = |one: &control::DestinationInfo| serde_json::to_string(one).unwrap_or_default() + "\n";
        destinations.iter().map(line).collect()
    };
    or_error(
        ask::summary(settings, control::SummaryBy::Destination).map(|(destinations, _)| lines(destinations)),
    )
}

/// Returns the last whole lines of the log.
fn log(settings: &Settings) -> String {
    let Some(path) = &settings.log.file else { return "no log file is configured\n".to_owned() };
    let read = || {
        let mut file = File::open(path)?;
        let from = file.metadata()?.len().saturating_sub(LOG_BYTES);
        file.seek(SeekFrom::Start(from))?;
        let mut bytes = Vec::new();
        file.take(LOG_BYTES).read_to_end(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let begin = if from == 0 { 0 } else { text.find('\n').map_or(0, |at| at + 1) };
        Ok::<_, io::Error>(text[begin..].to_owned())
    };
    read().unwrap_or_else(|e| format!("read {}: {e}\n", path.display()))
}
