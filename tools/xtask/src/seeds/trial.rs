//! `cargo xtask rows`: runs the command of each row of docs/seeds/rows.toml, and records which succeeded.

use super::{ROWS, Row};
use crate::{
    files,
    shell::{Done, Failure, output, program, root},
};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    env,
    ffi::OsString,
    fs::{self, File},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

/// What became of each row's command in the last run.
const RECORD: &str = "docs/seeds/tried.toml";
/// A command that takes longer hangs.
const LIMIT: &str = "1h";

/// What a row's `try` may use. What it starts ends with it.
const PRELUDE: &str = r#"
sink() { postlab sink "$@" > /dev/null 2> sink.log & until grep -q listens sink.log; do kill -0 $!; sleep 0.1; done; }
# A Postrider on 127.0.0.1:2525 that relays to 127.0.0.1:2600. PEERS_ROOT keeps its files here.
relay() { PEER_PORT=2525 lab/peers/postrider.sh start; export POSTRIDER_CONFIG=$PEERS_ROOT/postrider/postrider.toml; }
trap 'result=$?; if [ -n "${POSTRIDER_CONFIG:-}" ]; then lab/peers/postrider.sh stop; fi; kill $(jobs -p) 2>/dev/null || true
wait || true; exit $result' EXIT
"#;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// A directory on the disk to measure, for the commands' files
    directory: PathBuf,
    /// Only these rows; the record keeps the others
    #[arg(long, value_name = "NUMBER", value_delimiter = ',')]
    row: Vec<usize>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
pub(super) struct Record {
    #[serde(default)]
    row: Vec<Trial>,
}

/// How a command ended.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub(super) struct Trial {
    number: usize,
    pub(super) commit: String,
    pub(super) day: String,
    pub(super) seconds: u64,
    /// The last line of the output; `None` if the command succeeded.
    pub(super) failure: Option<String>,
}

impl Record {
    pub(super) fn read() -> Result<Self, Failure> {
        toml::from_str(&files::read(&root().join(RECORD))?)
            .map_err(|e| Failure(format!("read {RECORD}: {e}")))
    }

    /// Returns how the command of a row ended.
    pub(super) fn trial(&self, number: usize) -> Option<&Trial> {
        self.row.iter().find(|trial| trial.number == number)
    }

    fn keep(&mut self, trial: Trial) {
        self.row.retain(|other| other.number != trial.number);
        self.row.push(trial);
        self.row.sort_unstable_by_key(|trial| trial.number);
    }

    fn write(&self) -> Done {
        let text = toml::to_string(self).map_err(|e| Failure(format!("write {RECORD}: {e}")))?;
        files::write(&root().join(RECORD), format!("# Made by `cargo xtask rows`; do not edit it.\n\n{text}"))
    }
}

/// Runs each command once, in the order of the rows, and writes the record after each.
pub(crate) fn run(options: &Options) -> Done {
    let rows = super::rows()?;
    let word = |program_name: &str, arguments: &[&str]| {
        let text = output(program(program_name).args(arguments))?;
        Ok::<_, Failure>(String::from_utf8_lossy(&text).trim().to_owned())
    };
    let commit = word("git", &["rev-parse", "--short=8", "HEAD"])?;
    let day = word("date", &["+%F"])?;
    let mut record = if options.row.is_empty() { Record::default() } else { Record::read()? };
    let mut done = BTreeMap::<String, Trial>::new();
    for row in rows.iter().filter(|row| options.row.is_empty() || options.row.contains(&row.number)) {
        let script = script(row);
        let trial = if let Some(trial) = done.get(&script) {
            Trial { number: row.number, ..trial.clone() }
        } else {
            eprintln!("row {}: {script}", row.number);
            let started = Instant::now();
            let failure = run_script(&script, row, options)?;
            if let Some(failure) = &failure {
                eprintln!("row {}: FAILED: {failure}", row.number);
            }
            let (commit, day) = (commit.clone(), day.clone());
            Trial { number: row.number, commit, day, seconds: started.elapsed().as_secs(), failure }
        };
        done.insert(script, trial.clone());
        record.keep(trial);
        record.write()?;
    }
    let failed = record.row.iter().filter(|trial| trial.failure.is_some()).count();
    if failed == 0 {
        Ok(())
    } else {
        Err(Failure(format!("the commands of {failed} rows failed: see {RECORD}")))
    }
}

/// What bash runs for a row.
fn script(row: &Row) -> String {
    let template = row.trial.as_deref().unwrap_or("COMMAND");
    template.replace("COMMAND", &row.command).replace("DISK", ".")
}

/// Runs a script in an empty directory, or in the repository if it is a command of cargo. Returns the last line of its output if it fails.
fn run_script(script: &str, row: &Row, options: &Options) -> Result<Option<String>, Failure> {
    let dir = options.directory.join(format!("row-{}", row.number));
    match fs::remove_dir_all(&dir) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(files::failed("remove", &dir, &e)),
        _ => files::make_dir(&dir)?,
    }
    let absolute = |path: &Path| fs::canonicalize(path).map_err(|e| files::failed("find", path, &e));
    let dir = absolute(&dir)?;
    for name in ["lab", "docs"] {
        symlink(root().join(name), dir.join(name)).map_err(|e| files::failed("link", &dir.join(name), &e))?;
    }
    let log = dir.join("log");
    let file = File::create(&log).map_err(|e| files::failed("create", &log, &e))?;
    let both = file.try_clone().map_err(|e| files::failed("create", &log, &e))?;
    let mut command = Command::new("timeout");
    command.args([
        "--kill-after=20",
        LIMIT,
        "bash",
        "-euo",
        "pipefail",
        "-c",
        &format!("{PRELUDE}\n{script}"),
    ]);
    command.current_dir(if script.starts_with("cargo ") { root() } else { dir.clone() });
    command.env("PATH", path()?).env("POSTLAB", built("postlab")).env("POSTRIDER", built("postrider"));
    if script.starts_with("relay;") || script.contains(" relay;") {
        command.env("PEERS_ROOT", dir.join("peers"));
    }
    let status = command.stdin(std::process::Stdio::null()).stdout(file).stderr(both).status();
    let status = status.map_err(|e| Failure(format!("run timeout: {e}")))?;
    if status.success() {
        return Ok(None);
    }
    let text = fs::read(&log).map_err(|e| files::failed("read", &log, &e))?;
    let text = String::from_utf8_lossy(&text);
    let last = text.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default();
    Ok(Some(format!("{status}: {last}")))
}

fn built(name: &str) -> PathBuf {
    crate::shell::target_dir().join("dist").join(name)
}

/// The programs of the profile `dist` come first, as in published figures.
fn path() -> Result<OsString, Failure> {
    let dist = crate::shell::target_dir().join("dist");
    for name in ["postlab", "postrider"] {
        if !dist.join(name).is_file() {
            return Err(Failure(format!(
                "{} is missing: cargo build --profile=dist -p postlab -p postrider",
                dist.join(name).display()
            )));
        }
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let all = std::iter::once(dist).chain(env::split_paths(&path)).chain([PathBuf::from("/usr/sbin")]);
    env::join_paths(all).map_err(|e| Failure(format!("{ROWS}: PATH: {e}")))
}

#[cfg(test)]
mod tests {
    #[test]
    fn each_row_of_the_record_is_tried_with_its_command() {
        for row in super::super::rows().unwrap() {
            let script = super::script(&row);
            // Options may follow, and a probe is a copy.
            let head = row.command.replace("DISK", ".");
            let words: Vec<&str> = head.split(' ').take(2).collect();
            assert!(script.contains(&words.join(" ")), "row {}: {script}", row.number);
        }
    }
}
