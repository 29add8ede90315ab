//! `postlab reproduce`: the 2002–2005 papers' tables again, one command. Each step is a postlab of its own, whose output is
//! kept at once, so that a run that was cut short goes on where it was.

mod daemon;
mod page;
mod read;
mod steps;

use crate::{rounds::Progress, run::machine::Machine, signals, stat::spread::shown};
use clap::{Args, ValueEnum};
use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
};
use steps::{Expectation, Step};

/// Repeat the experiments of the 2002–2005 papers, and print each figure beside theirs
///
/// A step that is done already is not done again: remove the directory, or name another, to begin anew.
#[derive(Debug, Args)]
pub(crate) struct ReproduceArgs {
    /// The paper whose experiments are repeated
    #[arg(value_enum, default_value = "all")]
    seed: Seed,
    /// Little of each, in less than five minutes; the figures are rough
    #[arg(long)]
    quick: bool,
    /// Directory of the results [default: results/reproduce, or results/reproduce-quick]
    #[arg(long, value_name = "DIRECTORY")]
    results: Option<PathBuf>,
    /// A directory on the disk to measure
    #[arg(short = 'd', value_name = "DIRECTORY", default_value = ".")]
    directory: PathBuf,
}

/// A seed document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "UPPER")]
enum Seed {
    /// Queue directories and concurrent senders
    S0,
    /// Queue sort orders
    S1,
    /// One queue directory's system calls
    S2,
    /// Sendmail against Postfix, BSDCon Europe 2002
    S3,
    /// Sendmail X: performance tests and results
    S4,
    /// All five
    #[value(name = "all")]
    All,
}

/// Runs what is missing, prints and keeps the table; true if every step ran.
pub(crate) fn run(args: &ReproduceArgs) -> Result<bool, String> {
    let name = if args.quick { "results/reproduce-quick" } else { "results/reproduce" };
    let results = args.results.clone().unwrap_or_else(|| name.into());
    let say = |path: &Path| format!("write {}", path.display());
    fs::create_dir_all(&results).map_err(|e| format!("{}: {e}", say(&results)))?;
    let results = fs::canonicalize(&results).map_err(|e| format!("look at {}: {e}", results.display()))?;
    let disk = fs::canonicalize(&args.directory)
        .map_err(|e| format!("look at {}: {e}", args.directory.display()))?;
    steps::unpack(&results)?;
    let machine = Machine::here(&disk);
    let stop = Arc::new(AtomicBool::new(false));
    signals::on_end({
        let stop = stop.clone();
        move || stop.store(true, Relaxed)
    })?;
    let wanted: Vec<Step> = steps::all(args.quick, &disk, &results)
        .into_iter()
        .filter(|step| args.seed == Seed::All || step.seed == args.seed)
        .collect();
    let progress = Progress::new("experiments", wanted.len() as u64);
    let (mut table, mut good) = (Table::new(&machine, args.quick), true);
    for step in &wanted {
        if stop.load(Relaxed) {
            good = false;
            break;
        }
        match output(step, &results, &stop) {
            Ok(text) => table.add(step, &text),
            Err(error) => {
                good = false;
                table.failed(step, &error);
            }
        }
        progress.step();
    }
    drop(progress);
    let text = table.text();
    for (name, text) in [("reproduce.md", &text), ("reproduce.html", &page::page(&table, &results))] {
        let path = results.join(name);
        fs::write(&path, text).map_err(|e| format!("{}: {e}", say(&path)))?;
    }
    print!("{text}");
    println!("\n{}", results.join("reproduce.html").display());
    Ok(good)
}

/// Returns the output of a step, from now or from before.
fn output(step: &Step, results: &Path, stop: &AtomicBool) -> Result<String, String> {
    let path = results.join(format!("{}.txt", step.name));
    if let Some(text) = kept(&path, step) {
        return Ok(text);
    }
    if let Some(missing) = &step.needs {
        return Err(missing.clone());
    }
    let program = std::env::current_exe().map_err(|e| format!("find this program: {e}"))?;
    let mut command = Command::new(program);
    command.args(&step.words).envs(step.env.iter().cloned()).current_dir(results).stdin(Stdio::null());
    let output = run_to_end(&mut command, stop).map_err(|e| format!("start: {e}"))?;
    if stop.load(Relaxed) {
        return Err("stopped".into());
    }
    // Some exit with 1 for what they found, and have said what. Others may have said half of it.
    if !matches!(output.status.code(), Some(0 | 1)) {
        let error = String::from_utf8_lossy(&output.stderr);
        let error = error.trim().trim_start_matches("postlab: ");
        return Err(if error.is_empty() { format!("it ended with {}", output.status) } else { error.into() });
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let partial = path.with_extension("part");
    let written = fs::write(&partial, head(step) + &text).and_then(|()| fs::rename(&partial, &path));
    written.map_err(|e| format!("write {}: {e}", path.display()))?;
    Ok(text)
}

/// Runs a command to its end and returns its output; a wish to end is handed on.
fn run_to_end(command: &mut Command, stop: &AtomicBool) -> io::Result<Output> {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    thread::scope(|scope| {
        let out = scope.spawn(|| all_of(stdout));
        let error = scope.spawn(|| all_of(stderr));
        let status = signals::wait(&mut child, stop)?;
        let said = |read: thread::ScopedJoinHandle<'_, Vec<u8>>| read.join().unwrap_or_default();
        Ok(Output { status, stdout: said(out), stderr: said(error) })
    })
}

/// Returns the bytes that came until the pipe was closed or broke.
fn all_of(pipe: Option<impl io::Read>) -> Vec<u8> {
    let mut text = Vec::new();
    let _ = pipe.map(|mut pipe| pipe.read_to_end(&mut text));
    text
}

/// The first line of what is kept: on another disk, or of more messages, it is another experiment.
fn head(step: &Step) -> String {
    format!("$ postlab {}\n", step.words.join(" "))
}

/// Returns the output that the step's command printed before.
fn kept(path: &Path, step: &Step) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    text.strip_prefix(&head(step)).map(str::to_owned)
}

/// The results of all steps.
struct Table {
    machine: Vec<(String, String)>,
    /// Warnings that make all figures less reliable.
    warnings: Vec<String>,
    rows: Vec<Row>,
}

/// One figure, or a step that did not run.
struct Row {
    seed: Seed,
    what: String,
    theirs: String,
    /// Of a ratio only.
    ratio: Option<f64>,
    here: String,
    verdict: String,
    step: &'static str,
}

impl Table {
    fn new(machine: &Machine, quick: bool) -> Self {
        let machine_is_busy = machine.busy().map(|busy| format!("{busy}: trust no figure."));
        let rough = quick.then(|| "Quick: little of each; the figures are rough.".to_owned());
        let warnings = rough.into_iter().chain(machine_is_busy).collect();
        Self { machine: machine.facts(), warnings, rows: Vec::new() }
    }

    fn add(&mut self, step: &Step, text: &str) {
        for expectation in &step.expects {
            let value = (expectation.value)(text);
            let (here, verdict) = verdict(expectation, value);
            let ratio = value.filter(|_| expectation.agrees.is_some());
            let (what, theirs) = (expectation.what.to_owned(), expectation.seed.clone());
            self.rows.push(Row { seed: step.seed, what, theirs, ratio, here, verdict, step: step.name });
        }
    }

    fn failed(&mut self, step: &Step, error: &str) {
        let (what, here, verdict) = (step.name.to_owned(), "-".to_owned(), format!("not run: {error}"));
        let theirs = String::new();
        self.rows.push(Row { seed: step.seed, what, theirs, ratio: None, here, verdict, step: step.name });
    }

    fn text(&self) -> String {
        let facts: String = self.machine.iter().map(|(name, value)| format!("- {name}: {value}\n")).collect();
        let warnings: String = self.warnings.iter().map(|warning| format!("\n{warning}\n")).collect();
        let head = "Figures are medians, or ratios of medians; their spread, N and durability stand in the file named last.\n\n\
                    | seed | what | theirs | here | | |\n|---|---|---|---|---|---|\n";
        let row = |r: &Row| {
            format!(
                "| {:?} | {} | {} | {} | {} | {}.txt |\n",
                r.seed, r.what, r.theirs, r.here, r.verdict, r.step
            )
        };
        let rows: String = self.rows.iter().map(row).collect();
        format!("# The 2002–2005 papers' experiments again\n\n{facts}{warnings}\n{head}{rows}")
    }
}

fn verdict(expectation: &Expectation, value: Option<f64>) -> (String, String) {
    let Some(value) = value else { return ("-".into(), "no figure in what was measured".into()) };
    let here = format!("{}{}", shown(value), expectation.unit);
    let verdict = match &expectation.agrees {
        None => "another machine, another age".to_owned(),
        Some(range) if range.contains(&value) => "agrees".to_owned(),
        Some(_) => format!("differs: {}", expectation.why),
    };
    (here, verdict)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_same_command_printed_is_not_measured_again() {
        let directory = tempfile::tempdir().unwrap();
        let all = |quick, disk: &str| steps::all(quick, Path::new(disk), directory.path());
        let path = directory.path().join("queuerun.txt");
        let find = |steps: Vec<Step>| steps.into_iter().find(|step| step.name == "queuerun").unwrap();
        let first = find(all(true, "/a"));
        fs::write(&path, head(&first) + "figures\n").unwrap();
        assert_eq!(kept(&path, &first).unwrap(), "figures\n");
        assert_eq!(kept(&path, &find(all(true, "/b"))), None);
        assert_eq!(kept(&path, &find(all(false, "/a"))), None);
        assert_eq!(kept(&directory.path().join("none"), &first), None);
    }

    #[test]
    fn each_figure_stands_beside_that_of_the_papers() {
        let expectation = Expectation {
            what: "x",
            seed: "2".into(),
            unit: "×",
            agrees: Some(1.0..3.0),
            why: "disks are faster now",
            value: Box::new(|text| text.trim().parse().ok()),
        };
        assert_eq!(verdict(&expectation, Some(2.5)), ("2.50×".into(), "agrees".into()));
        assert_eq!(verdict(&expectation, Some(9.0)).1, "differs: disks are faster now");
        assert_eq!(verdict(&expectation, (expectation.value)("none")).0, "-");
    }
}
