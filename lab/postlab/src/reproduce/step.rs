//! The experiments of the five texts as commands, with what each text found, and the prediction that follows from it.

use super::{
    Seed,
    read::Series,
    seeds::{Figures, Seeds},
    verdict::{Condition, Prediction},
};
use serde::Deserialize;
use std::{collections::BTreeMap, fs, path::Path};

/// The experiments for each text.
const FILES: [(Seed, &str); 6] = [
    (Seed::S0, include_str!("experiments/S0.toml")),
    (Seed::S1, include_str!("experiments/S1.toml")),
    (Seed::S2, include_str!("experiments/S2.toml")),
    (Seed::S3, include_str!("experiments/S3.toml")),
    (Seed::S4, include_str!("experiments/S4.toml")),
    (Seed::S4, include_str!("experiments/S4-relays.toml")),
];

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    step: Vec<Step>,
}

/// A question, the commands that measure it, and the findings they are compared with.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Step {
    #[serde(skip, default = "none")]
    pub(super) seed: Seed,
    pub(super) name: String,
    pub(super) question: String,
    /// Commands of postlab, in turn in each round; variables may stand before them, as in a shell.
    quick: Vec<String>,
    full: Vec<String>,
    /// Rounds, quick and full.
    rounds: (usize, usize),
    /// The count of what is measured in a round, and its name.
    pub(super) amount: Option<Series>,
    #[serde(default)]
    pub(super) unit: String,
    /// Requirements to the machine.
    #[serde(default)]
    needs: Vec<Need>,
    pub(super) series: BTreeMap<String, Series>,
    #[serde(default)]
    pub(super) claim: Vec<Claim>,
}

/// A finding of a text, and how to measure it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Claim {
    /// Names the figure that is compared.
    pub(super) what: String,
    /// What the text has found, in a sentence.
    #[serde(default)]
    pub(super) finding: String,
    /// The figures of the text, as an expression over the tables.
    theirs: String,
    /// The figure as an expression over the series, with the size that is expected of it; without one the size is not compared.
    expect: String,
    /// The statement of the text as a condition on that figure: `< 1`. Without it nothing is judged.
    #[serde(default)]
    pub(super) direction: String,
    /// Set for what Postrider does about a finding.
    #[serde(default)]
    pub(super) answer: bool,
    /// Of a figure that is no ratio.
    #[serde(default)]
    pub(super) unit: String,
    /// Remarks of a tool that are what the text found, and no reason for doubt.
    #[serde(default)]
    pub(super) allows: Vec<String>,
    /// What the page says for each verdict.
    #[serde(default)]
    pub(super) agrees: String,
    #[serde(default)]
    pub(super) above: String,
    #[serde(default)]
    pub(super) below: String,
    /// Why the figure lies above or below what the text has, with the evidence. Without one the page says that it is unknown.
    #[serde(default)]
    pub(super) cause_above: String,
    #[serde(default)]
    pub(super) cause_below: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Need {
    Postrider,
    Root,
    /// Trees of `peers/install postfix sendmail`.
    PostfixPeer,
    SendmailPeer,
    /// A memory file system that can be written to.
    Memory,
    /// Programs for file systems in files.
    Mkfs,
    /// `$POSTRIDER_LAB`, a build with the feature `lab`.
    LabBuild,
    /// Programs for slow disks in memory.
    SlowDisks,
    /// Berkeley DB for Debian's Python.
    Berkeley,
    /// sendmail's library of Debian's libmilter-dev, and a C compiler.
    Libsm,
}

/// A command of a step: its environment and its words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Command {
    pub(super) env: Vec<(String, String)>,
    pub(super) words: Vec<String>,
}

/// Places that the commands name.
#[derive(Debug, Clone, Copy)]
pub(super) struct Places<'p> {
    pub(super) disk: &'p Path,
    pub(super) results: &'p Path,
}

fn none() -> Seed {
    Seed::All
}

/// Returns all steps, in the order of the texts.
pub(super) fn all() -> Result<Vec<Step>, String> {
    let mut steps = Vec::new();
    for (seed, text) in FILES {
        let file: File =
            toml::from_str(text).map_err(|e| format!("read the experiments of {seed:?}: {e}"))?;
        steps.extend(file.step.into_iter().map(|step| Step { seed, ..step }));
    }
    Ok(steps)
}

impl Step {
    pub(super) fn rounds(&self, quick: bool) -> usize {
        if quick { self.rounds.0 } else { self.rounds.1 }
    }

    /// Returns the commands of one round, with these places put in.
    pub(super) fn commands(&self, quick: bool, places: Places<'_>) -> Vec<Command> {
        let commands = if quick { &self.quick } else { &self.full };
        commands.iter().map(|text| Command::parse(text, places)).collect()
    }

    /// Returns whether an expression may name this: a series, or a number.
    pub(super) fn has(&self, name: &str) -> bool {
        self.series.contains_key(name) || name.parse::<f64>().is_ok()
    }

    /// Returns the reason why the step cannot be measured here.
    pub(super) fn missing(&self) -> Option<String> {
        self.needs.iter().find_map(|need| need.missing())
    }
}

impl Claim {
    pub(super) fn theirs(&self, seeds: &Seeds) -> Result<Figures, String> {
        seeds.evaluate(&self.theirs)
    }

    pub(super) fn prediction(&self) -> Result<Prediction, String> {
        Prediction::parse(&self.expect)
    }

    /// Returns the statement of the text as a condition; none where nothing is judged.
    pub(super) fn direction(&self) -> Result<Option<Condition>, String> {
        Condition::parse(&self.direction).map_err(|why| format!("`{}`: {why}", self.direction))
    }

    pub(super) fn expression(&self) -> &str {
        &self.expect
    }
}

impl Need {
    fn missing(self) -> Option<String> {
        let peer = |name: &str| {
            let root = std::env::var_os("PEERS_ROOT")
                .map_or_else(|| "/var/lib/postlab/peers".into(), std::path::PathBuf::from);
            let is_there =
                root.join(name).join(".installed").exists() && rustix::process::geteuid().is_root();
            (!is_there).then(|| format!("it needs root, and `lab/peers/install {name}` once"))
        };
        match self {
            Self::Postrider => (std::env::var_os("POSTRIDER").is_none() && !on_path("postrider"))
                .then(|| "postrider is neither on the path nor in $POSTRIDER".into()),
            Self::Root => (!rustix::process::geteuid().is_root()).then(|| "it needs root".into()),
            Self::PostfixPeer => peer("postfix"),
            Self::SendmailPeer => peer("sendmail"),
            Self::Memory => (!Path::new("/dev/shm").is_dir()).then(|| "there is no /dev/shm".into()),
            Self::Mkfs => missing_program(&["mkfs.ext4", "mkfs.xfs", "losetup"], "e2fsprogs and xfsprogs"),
            Self::LabBuild => std::env::var_os(LAB_BUILD).is_none().then(|| {
                format!(
                    "it needs a build for the laboratory: `cargo build --profile dist -p postrider --features lab --target-dir DIRECTORY`, named in ${LAB_BUILD}"
                )
            }),
            Self::Berkeley => {
                let package = Path::new("/usr/lib/python3/dist-packages/bsddb3");
                (!package.is_dir()).then(|| "there is no Berkeley DB: install python3-bsddb3".into())
            }
            Self::Libsm => iobench::log_format::missing_libsm(),
            Self::SlowDisks => {
                missing_program(&["nbdkit", "nbdfuse", "losetup", "mkfs.ext4"], "nbdkit, libnbd-bin and e2fsprogs")
            }
        }
    }
}

/// The variable with a build for the laboratory, whose place in a command is `LAB_BUILD`.
const LAB_BUILD: &str = "POSTRIDER_LAB";

fn missing_program(programs: &[&str], packages: &str) -> Option<String> {
    let is_missing = |program: &&&str| !on_path(program) && !Path::new("/usr/sbin").join(program).exists();
    programs.iter().find(is_missing).map(|program| format!("there is no {program}: install {packages}"))
}

fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

impl Command {
    /// Splits at spaces outside single quotes; `NAME=value` before the first word is a variable.
    fn parse(text: &str, places: Places<'_>) -> Self {
        let mut command = Self { env: Vec::new(), words: Vec::new() };
        for word in words(text) {
            let word = word
                .replace("DISK", &places.disk.display().to_string())
                .replace("RESULTS", &places.results.display().to_string());
            match word.split_once('=') {
                Some((name, value)) if command.words.is_empty() => {
                    let build = || std::env::var(LAB_BUILD).unwrap_or_default();
                    let value = if value == "LAB_BUILD" { build() } else { value.replace("\\n", "\n") };
                    command.env.push((name.to_owned(), value));
                }
                _ => command.words.push(word),
            }
        }
        command
    }

    /// Returns the command as it would be typed into a shell.
    pub(super) fn line(&self) -> String {
        let quoted = |text: &str| {
            if text.contains([' ', '\n', '"', '\'']) {
                format!("'{}'", text.replace('\n', "\\n"))
            } else {
                text.to_owned()
            }
        };
        let env = self.env.iter().map(|(name, value)| format!("{name}={}", quoted(value)));
        let words = std::iter::once("postlab".to_owned()).chain(self.words.iter().map(|word| quoted(word)));
        env.chain(words).collect::<Vec<_>>().join(" ")
    }
}

fn words(text: &str) -> Vec<String> {
    let (mut words, mut word, mut is_quoted, mut is_begun) = (Vec::new(), String::new(), false, false);
    for c in text.chars() {
        match c {
            '\'' => (is_quoted, is_begun) = (!is_quoted, true),
            ' ' if !is_quoted => {
                if std::mem::take(&mut is_begun) {
                    words.push(std::mem::take(&mut word));
                }
            }
            c => {
                word.push(c);
                is_begun = true;
            }
        }
    }
    if is_begun {
        words.push(word);
    }
    words
}

/// Scenarios, their scripts and the peers' scripts, which the commands find beside the results.
const UNPACKED: [(&str, &str); 26] = [
    ("scenarios/ceiling.toml", include_str!("../../../scenarios/ceiling.toml")),
    ("scenarios/models.toml", include_str!("../../../scenarios/models.toml")),
    ("scenarios/filesystems-two.toml", include_str!("../../../scenarios/filesystems-two.toml")),
    ("scenarios/filesystems.toml", include_str!("../../../scenarios/filesystems.toml")),
    ("scenarios/logged.toml", include_str!("../../../scenarios/logged.toml")),
    ("scenarios/logging.toml", include_str!("../../../scenarios/logging.toml")),
    ("scenarios/sizes.toml", include_str!("../../../scenarios/sizes.toml")),
    ("scenarios/defer.toml", include_str!("../../../scenarios/defer.toml")),
    ("scenarios/layout.toml", include_str!("../../../scenarios/layout.toml")),
    ("scenarios/stores.toml", include_str!("../../../scenarios/stores.toml")),
    ("scenarios/filesystems-peer.toml", include_str!("../../../scenarios/filesystems-peer.toml")),
    ("scenarios/scheduler.toml", include_str!("../../../scenarios/scheduler.toml")),
    ("scenarios/two-disks.toml", include_str!("../../../scenarios/two-disks.toml")),
    ("scenarios/disks.sh", include_str!("../../../scenarios/disks.sh")),
    ("scenarios/peer.sh", include_str!("../../../scenarios/peer.sh")),
    ("scenarios/loop.sh", include_str!("../../../scenarios/loop.sh")),
    ("scenarios/logged.sh", include_str!("../../../scenarios/logged.sh")),
    ("scenarios/postrider.sh", include_str!("../../../scenarios/postrider.sh")),
    ("scenarios/postfix.sh", include_str!("../../../scenarios/postfix.sh")),
    ("peers/lib.sh", include_str!("../../../peers/lib.sh")),
    ("peers/install", include_str!("../../../peers/install")),
    ("peers/postfix.sh", include_str!("../../../peers/postfix.sh")),
    ("peers/postrider.sh", include_str!("../../../peers/postrider.sh")),
    ("peers/sendmail.sh", include_str!("../../../peers/sendmail.sh")),
    ("peers/sendmail-queue.sh", include_str!("../../../peers/sendmail-queue.sh")),
    ("postal-users", "user@sink.test\n"),
];

/// Lays the files where the commands look for them.
pub(super) fn unpack(results: &Path) -> Result<(), String> {
    use std::os::unix::fs::PermissionsExt as _;
    for (name, text) in UNPACKED {
        let path = results.join(name);
        let say = |e: std::io::Error| format!("write {}: {e}", path.display());
        path.parent().map_or(Ok(()), fs::create_dir_all).map_err(say)?;
        fs::write(&path, text).map_err(say)?;
        if name.starts_with("peers/") {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).map_err(say)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_finding_can_be_evaluated_and_the_text_agrees_with_itself() {
        let seeds = Seeds::new().unwrap();
        for step in all().unwrap() {
            for claim in &step.claim {
                let name = format!("{}: {}", step.name, claim.what);
                let (theirs, prediction) = (claim.theirs(&seeds).unwrap(), claim.prediction().unwrap());
                for series in prediction.series() {
                    assert!(step.series.contains_key(series), "{name}: no series {series}");
                }
                let direction = claim.direction().unwrap();
                assert!(!(claim.answer && direction.is_some()), "{name}: an answer is not judged");
                let is_shown_only = direction.is_none() && !claim.answer;
                assert!(
                    !is_shown_only || prediction.condition.is_none(),
                    "{name}: judged without a direction"
                );
                let mut edges = (f64::NEG_INFINITY, f64::INFINITY);
                for condition in [prediction.condition, direction].into_iter().flatten() {
                    let window = condition.window(&theirs);
                    if theirs.words.is_none() {
                        let (low, high) = theirs.range();
                        // An effect need not be one of each machine.
                        let holds = if condition.is_effect() {
                            window.low < high && low < window.high
                        } else {
                            window.low <= low && high <= window.high
                        };
                        assert!(holds, "{name}: {low} to {high} in {window:?}");
                        // A range of one machine could not hold an interval.
                        assert!(condition != Condition::InSeeds || low < high, "{name}");
                    }
                    edges = (edges.0.max(window.low), edges.1.min(window.high));
                }
                // An effect is judged by the rule about one, which a limit such as `> 0.95` would avoid.
                let avoids = match direction {
                    Some(Condition::Above(limit)) => (0.8..1.0).contains(&limit),
                    Some(Condition::Below(limit)) => limit > 1.0 && limit < 1.25,
                    _ => false,
                };
                assert!(!avoids, "{name}: {}", claim.direction);
                if is_shown_only {
                    continue;
                }
                let reachable = [
                    (edges.0, &claim.below, &claim.cause_below),
                    (edges.1, &claim.above, &claim.cause_above),
                ];
                for (edge, sentence, cause) in reachable {
                    let is_reachable = edge.is_finite() && edge > 0.0;
                    assert_eq!(is_reachable, !sentence.is_empty(), "{name}: {edges:?}");
                    assert!(cause.is_empty() || is_reachable, "{name}: a cause of what cannot be");
                }
                assert!(!claim.agrees.is_empty() && !claim.finding.is_empty(), "{name}");
            }
        }
    }

    #[test]
    fn each_command_is_understood() {
        use clap::CommandFactory as _;
        let places = Places { disk: Path::new("/d"), results: Path::new("/r") };
        for step in all().unwrap() {
            let (quick, full) = (step.commands(true, places), step.commands(false, places));
            assert_eq!(quick.len(), full.len(), "{}", step.name);
            for command in quick.iter().chain(&full) {
                let words = std::iter::once("postlab").chain(command.words.iter().map(String::as_str));
                if let Err(error) = crate::Cli::command().try_get_matches_from(words) {
                    panic!("{}: {error}", command.line());
                }
            }
            let commands = step.series.values().map(|series| series.command).max().unwrap_or_default();
            assert!(commands < quick.len(), "{}", step.name);
            // With fewer no verdict is possible.
            assert!(step.rounds(true) >= 3 && step.rounds(false) >= 3, "{}", step.name);
        }
    }

    #[test]
    fn each_row_of_a_scenario_is_one_that_the_command_measures() {
        use crate::run::scenario::Scenario;
        let scenarios = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        for step in all().unwrap() {
            for commands in [&step.quick, &step.full] {
                for (name, series) in &step.series {
                    let places = Places { disk: Path::new("/d"), results: Path::new("RESULTS") };
                    let words = Command::parse(&commands[series.command], places).words;
                    let (Some("run"), Some(row)) = (words.first().map(String::as_str), &series.row) else {
                        continue;
                    };
                    let scenario = Scenario::read(&scenarios.join(words[1].replace("RESULTS/", ""))).unwrap();
                    let sessions =
                        words.iter().position(|word| word == "--sessions").map(|at| words[at + 1].as_str());
                    let (count, rest) = row.split_once(' ').unwrap();
                    let counts =
                        scenario.load.sessions.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
                    assert!(
                        sessions.unwrap_or(&counts).split(',').any(|known| known == count),
                        "{}: {row}",
                        step.name
                    );
                    let Some((_, variant)) = rest.split_once(", ") else { continue };
                    assert!(
                        scenario.variant.iter().any(|known| known.name == variant),
                        "{}, {name}: {row}",
                        step.name
                    );
                    let chosen: Vec<_> =
                        words.iter().enumerate().filter(|(_, word)| *word == "--variant").collect();
                    let is_chosen = chosen.iter().any(|(at, _)| words[at + 1] == variant);
                    assert!(chosen.is_empty() || is_chosen, "{}, {name}: {row} is not measured", step.name);
                }
            }
        }
    }

    #[test]
    fn words_and_variables_are_those_of_a_shell() {
        let places = Places { disk: Path::new("/d"), results: Path::new("/r") };
        let command = Command::parse("A='x y' relay 'a b' --results RESULTS/runs c=d", places);
        assert_eq!(command.env, [("A".to_owned(), "x y".to_owned())]);
        assert_eq!(command.words, ["relay", "a b", "--results", "/r/runs", "c=d"]);
        assert_eq!(command.line(), "A='x y' postlab relay 'a b' --results /r/runs c=d");
    }
}
