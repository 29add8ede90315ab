//! `postlab run`: a scenario, round for round, into a result directory.
//!
//! Every run is appended to `runs.jsonl` at once, so that Ctrl-C keeps what was measured.

mod cliffs;
pub(crate) mod compare;
pub(crate) mod detect;
mod idle;
pub(crate) mod machine;
mod monitor;
pub(crate) mod overhead;
mod raw_tcp;
pub(crate) mod runner;
pub(crate) mod scenario;
pub(crate) mod server;
pub(crate) mod table;

use crate::{
    Failure,
    rounds::Progress,
    table::{Format, Table},
};
use clap::Args;
use machine::Machine;
use runner::{Case, Kind, Run};
use scenario::{Experiment, Scenario};
use std::{
    fs::{self, File, OpenOptions},
    io::Write as _,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

/// Run a scenario: source into sink, or source through an MTA into sink
///
/// A relay run ends when the sink has all messages; its ceiling is measured, too.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The file of the scenario
    scenario: PathBuf,
    /// The number of rounds, instead of the scenario's
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    repeats: Option<u32>,
    /// The number of messages in a run, instead of the scenario's
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    messages: Option<u64>,
    /// Numbers of sessions, instead of the scenario's
    #[arg(long, value_name = "COUNT,…", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..))]
    sessions: Vec<u32>,
    /// Only this variant; may be repeated
    #[arg(long, value_name = "NAME")]
    variant: Vec<String>,
    /// Measure each variant also without waiting for the disk, and print what durability costs
    #[arg(long)]
    durability_cost: bool,
    /// The directory of the results; a new directory is created in it
    #[arg(long, value_name = "DIRECTORY", default_value = "results")]
    results: PathBuf,
    #[command(flatten)]
    format: Format,
}

/// Runs; true if every run was complete.
pub(crate) fn run(args: &RunArgs) -> Result<bool, Failure> {
    let mut scenario = Scenario::read(&args.scenario)?;
    let changed = args.change(&mut scenario)?;
    let directory = make_directory(&args.results, &scenario.title)?;
    let copy = directory.join("scenario.toml");
    let copied = match changed {
        false => fs::copy(&args.scenario, &copy).map(|_| ()),
        true => fs::write(&copy, toml::to_string(&scenario).map_err(|e| format!("write TOML: {e}"))?),
    };
    copied.map_err(|e| format!("write {}: {e}", copy.display()))?;
    let work = work_directory()?;
    scenario.place(work.path());
    let here = Machine::here(&directory);
    let file = begin(&directory, &here)?;
    let stop = Arc::new(AtomicBool::new(false));
    crate::signals::on_end({
        let stop = stop.clone();
        move || stop.store(true, Relaxed)
    })?;
    // `run relay.toml` has an empty parent.
    let parent = args.scenario.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let parent = fs::canonicalize(parent).map_err(|e| format!("look at {}: {e}", parent.display()))?;
    let servers = server::describe(&scenario, &parent)?;
    server::keep(&directory, &servers)?;
    let mut runs = Vec::new();
    let ended = rounds(&scenario, &parent, &file, &stop, &mut runs);
    let columns = table::columns();
    let mut table = Table::new(args.format, &columns, None);
    for (name, text) in [("Hypothesis", &scenario.hypothesis), ("Prediction", &scenario.prediction)] {
        if !text.is_empty() {
            table.fact(format!("{name}: {}", text.trim()));
        }
    }
    table.silent_fact(&here.disk);
    if !runs.is_empty() {
        table.text(&format!("\n{}", table::text(&scenario, &runs)));
        table::add_rows(&mut table, &scenario, &runs);
    }
    let cliffs = cliffs::text(&scenario, &runs);
    if !cliffs.is_empty() {
        cliffs.lines().for_each(|line| table.note(line));
        let path = directory.join("cliffs.txt");
        fs::write(&path, &cliffs).map_err(|e| format!("write {}: {e}", path.display()))?;
    }
    for server in &servers {
        table.note(format!("MTA: {}", server.text()));
    }
    if let Some(busy) = here.busy() {
        table.note(busy);
    }
    table.aside(&format!("\n{}", directory.display()));
    table.finish();
    // What was measured before a failure is shown all the same.
    ended?;
    Ok(!stop.load(Relaxed) && runs.iter().all(|run| run.complete && run.source.messages_failed == 0))
}

/// Makes a directory for the files of the scenario's scripts, with a name that nobody can guess. Users of an MTA may pass it.
fn work_directory() -> Result<tempfile::TempDir, String> {
    use std::os::unix::fs::PermissionsExt as _;
    let say = |e| format!("make a directory in {}: {e}", std::env::temp_dir().display());
    let work = tempfile::Builder::new().prefix("postlab-run-").tempdir().map_err(say)?;
    fs::set_permissions(work.path(), fs::Permissions::from_mode(0o711)).map_err(say)?;
    Ok(work)
}

impl RunArgs {
    /// Takes what is said instead of the scenario's; true if anything is.
    fn change(&self, scenario: &mut Scenario) -> Result<bool, Failure> {
        if let Some(repeats) = self.repeats {
            scenario.repeats = repeats;
        }
        if let Some(messages) = self.messages {
            scenario.load.messages = messages;
            scenario.load.ceiling_messages = None;
            scenario.variant.iter_mut().for_each(|variant| variant.messages = None);
        }
        if !self.sessions.is_empty() {
            scenario.load.sessions.clone_from(&self.sessions);
        }
        if !self.variant.is_empty() {
            let names: Vec<&str> = scenario.variant.iter().map(|variant| variant.name.as_str()).collect();
            if let Some(unknown) = self.variant.iter().find(|name| !names.contains(&name.as_str())) {
                return Err(Failure::Usage(format!(
                    "there is no variant `{unknown}`: write one of {}",
                    names.join(", ")
                )));
            }
            scenario.variant.retain(|variant| self.variant.contains(&variant.name));
        }
        if self.durability_cost {
            overhead::add_twins(scenario)?;
        }
        let is_changed = self.repeats.is_some() || self.messages.is_some() || !self.sessions.is_empty();
        Ok(is_changed || self.durability_cost || !self.variant.is_empty())
    }
}

fn rounds(
    scenario: &Scenario,
    parent: &Path,
    file: &File,
    stop: &AtomicBool,
    runs: &mut Vec<Run>,
) -> Result<(), String> {
    let kinds: &[Kind] = match scenario.experiment {
        Experiment::Ceiling => &[Kind::Ceiling],
        Experiment::Relay => &[Kind::Ceiling, Kind::Relay],
    };
    let mut variants = scenario.variants();
    let total = scenario.repeats as usize * scenario.load.sessions.len() * kinds.len() * variants.len();
    let progress = Progress::new("runs", total as u64);
    for round in 1..=scenario.repeats {
        let raw_tcp = if scenario.raw_tcp { Some(raw_tcp::measure()?) } else { None };
        for sessions in &scenario.load.sessions {
            for variant in variants.clone() {
                for kind in kinds {
                    if stop.load(Relaxed) {
                        return Ok(());
                    }
                    if *kind == Kind::Ceiling && !has_room(*sessions, round) {
                        progress.step();
                        continue;
                    }
                    let case = Case {
                        scenario,
                        directory: parent,
                        variant: &variant,
                        kind: *kind,
                        round,
                        sessions: *sessions,
                        raw_tcp_mb_per_second: raw_tcp,
                        progress: &progress,
                    };
                    let run = match runner::run(&case, stop) {
                        Err(why) if why.starts_with(runner::NOT_AVAILABLE) => {
                            eprintln!("postlab: {} is left out: {why}", variant.name);
                            variants.retain(|other| other.name != variant.name);
                            runs.retain(|run| run.variant != variant.name);
                            break;
                        }
                        run => run?,
                    };
                    // What was cut short is not a measurement.
                    if stop.load(Relaxed) {
                        return Ok(());
                    }
                    append(file, &run)?;
                    runs.push(run);
                    progress.step();
                }
            }
        }
    }
    Ok(())
}

/// Source and sink in one process have two sockets for each session. What is left out is reported in the first round.
pub(crate) fn has_room(sessions: u32, round: u32) -> bool {
    let most = crate::limits::files();
    let fits = u64::from(sessions) * 2 + SPARE_FILES <= most;
    if !fits && round == 1 {
        eprintln!("postlab: no ceiling with {sessions} sessions: this process may have {most} files open");
    }
    fits
}

const SPARE_FILES: u64 = 64;

/// Lays the machine's card into a result directory, and opens the file of its runs.
pub(crate) fn begin(directory: &Path, here: &Machine) -> Result<File, String> {
    let machine = serde_json::to_vec_pretty(here).map_err(|e| format!("write JSON: {e}"))?;
    let card = directory.join("machine.json");
    fs::write(&card, machine).map_err(|e| format!("write {}: {e}", card.display()))?;
    let path = directory.join("runs.jsonl");
    let file = OpenOptions::new().create(true).append(true).open(&path);
    file.map_err(|e| format!("write {}: {e}", path.display()))
}

/// Keeps a run, at once.
pub(crate) fn append(mut file: &File, run: &impl serde::Serialize) -> Result<(), String> {
    let mut line = serde_json::to_vec(run).map_err(|e| format!("write JSON: {e}"))?;
    line.push(b'\n');
    file.write_all(&line).map_err(|e| format!("write a result: {e}"))
}

/// `results/20261121-104900-relay-through-postfix`
pub(crate) fn make_directory(results: &Path, title: &str) -> Result<PathBuf, String> {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let title: String = title.chars().map(plain).collect();
    let time = jiff::Zoned::now().strftime("%Y%m%d-%H%M%S").to_string();
    let directory = results.join(format!("{time}-{title}"));
    fs::create_dir_all(&directory).map_err(|e| format!("create {}: {e}", directory.display()))?;
    Ok(directory)
}

/// Reads what [`run`] wrote.
pub(crate) fn read(directory: &Path) -> Result<(Scenario, Machine, Vec<Run>), String> {
    let text = |name: &str| {
        let path = directory.join(name);
        fs::read_to_string(&path).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => {
                let directory = directory.display();
                format!("{directory} has no {name}: name a directory that `postlab run` has made")
            }
            _ => format!("read {}: {e}", path.display()),
        })
    };
    let scenario =
        Scenario::parse(&text("scenario.toml")?).map_err(|e| format!("read scenario.toml: {e}"))?;
    let machine =
        serde_json::from_str(&text("machine.json")?).map_err(|e| format!("read machine.json: {e}"))?;
    let lines = text("runs.jsonl")?;
    let parse =
        |(i, line)| serde_json::from_str(line).map_err(|e| format!("read runs.jsonl, line {}: {e}", i + 1));
    // What a full disk cut off is no run, and spoils no other.
    let whole = lines.rfind('\n').map_or("", |end| &lines[..=end]);
    if whole.len() < lines.len() {
        eprintln!("postlab: the last line of {} is cut off", directory.join("runs.jsonl").display());
    }
    let runs = whole.lines().enumerate().map(parse).collect::<Result<Vec<Run>, _>>()?;
    Ok((scenario, machine, runs))
}
