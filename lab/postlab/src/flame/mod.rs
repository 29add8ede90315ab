//! `postlab flame`: where processes use their CPU time, as a flame graph: perf(1) samples the call stacks, and equal
//! stacks are folded and drawn here.

mod fold;
mod svg;

use crate::{signals, syscalls::check_program};
use clap::{Args, ValueEnum};
use fold::Folded;
use std::{
    fs::File,
    io,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

/// Draw where a command or a process uses its CPU time, as a flame graph
///
/// Needs perf(1) (Debian: linux-perf), and root or kernel.perf_event_paranoid of 1 or less. The graph does not include the
/// time that a process waits for the disk or the network; `syscalls --histogram` shows that. Ctrl-C ends the command, and the
/// samples until then are drawn.
#[derive(Debug, Args)]
pub(crate) struct FlameArgs {
    /// Processes to watch, with all their threads
    #[arg(short = 'p', value_name = "PID,…", value_delimiter = ',', required_unless_present = "command")]
    pids: Vec<u32>,
    /// How long to watch, with -p and without a command
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = measure::arguments::seconds_of, conflicts_with = "command")]
    seconds: Duration,
    /// Samples per second on each CPU
    #[arg(short = 'F', value_name = "COUNT", default_value = "997", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    frequency: u32,
    /// How callers are found: dwarf works for programs without frame pointers, but needs ten times the data
    #[arg(long, value_enum, default_value = "fp")]
    stacks: Stacks,
    /// The file for the picture
    #[arg(short = 'o', long = "output", value_name = "FILE", default_value = "flame.svg")]
    output: PathBuf,
    /// Also write the folded stacks to a file, one per line
    #[arg(long, value_name = "FILE")]
    folded: Option<PathBuf>,
    /// The command to watch, or with -p the command during which the processes are watched
    #[arg(last = true)]
    command: Vec<String>,
}

/// The means to find the caller of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Stacks {
    /// Frame pointers
    Fp,
    /// Debug information
    Dwarf,
}

/// Samples, folds, draws; false if the command failed.
pub(crate) fn run(args: &FlameArgs) -> Result<bool, String> {
    if let Some(gone) = args.pids.iter().find(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
        return Err(format!("watch process {gone}: there is none"));
    }
    args.command.first().map_or(Ok(()), |program| check_program(program))?;
    let stop = Arc::new(AtomicBool::new(false));
    signals::on_end({
        let stop = stop.clone();
        move || stop.store(true, Relaxed)
    })?;
    let directory = tempfile::Builder::new().prefix("postlab-flame-").tempdir();
    let directory = directory.map_err(|e| format!("make a directory for samples: {e}"))?;
    let data = directory.path().join("perf.data");
    let good = record(args, &data, &stop)?;
    let folded = Folded::read(&script(&data)?);
    if folded.count() == 0 {
        return Err("draw: there is no sample; the processes used no CPU time, or ended too soon".into());
    }
    let title = match (&args.pids[..], &args.command[..]) {
        ([], command) => command.join(" "),
        (pids, _) => format!("processes {}", pids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")),
    };
    write(&args.output, &svg::draw(&folded, &title))?;
    if let Some(path) = &args.folded {
        write(path, &folded.text())?;
    }
    print!("{}", folded.summary());
    println!("{}", args.output.display());
    Ok(good)
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|e| format!("write {}: {e}", path.display()))
}

/// Samples until the command has ended, or a signal ends it; true if the command was successful.
fn record(args: &FlameArgs, data: &Path, stop: &AtomicBool) -> Result<bool, String> {
    let mut perf = Command::new("perf");
    let stacks = if args.stacks == Stacks::Fp { "fp" } else { "dwarf" };
    perf.args(["record", "-q", "-F", &args.frequency.to_string(), "--call-graph", stacks, "-o"]).arg(data);
    if !args.pids.is_empty() {
        let pids: Vec<String> = args.pids.iter().map(u32::to_string).collect();
        perf.args(["-p", &pids.join(",")]);
    }
    perf.arg("--");
    if args.command.is_empty() {
        perf.args(["sleep", &args.seconds.as_secs_f64().to_string()]);
    } else {
        perf.args(&args.command);
    }
    // The command may write to standard output; perf's reasons are on standard error. A process that the command leaves
    // behind would keep a pipe open, but not a file.
    let said = data.with_file_name("stderr");
    let file = File::create(&said).map_err(|e| format!("write {}: {e}", said.display()))?;
    let child = perf.stdin(Stdio::null()).stderr(file).spawn();
    // At a signal perf ends the command, and writes what it has.
    let status = child.and_then(|mut child| signals::wait(&mut child, stop)).map_err(|e| missing(&e))?;
    if data.metadata().map_or(0, |meta| meta.len()) == 0 {
        if stop.load(Relaxed) {
            return Err("sample with perf: there was no sample yet".into());
        }
        return Err(refused(&String::from_utf8_lossy(&std::fs::read(&said).unwrap_or_default())));
    }
    Ok(status.success())
}

/// Explains why perf wrote nothing.
fn refused(said: &str) -> String {
    let first = said
        .lines()
        .find(|line| !line.trim().is_empty() && !line.starts_with("Error"))
        .unwrap_or("no reason");
    let level = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    format!(
        "sample with perf: {}; kernel.perf_event_paranoid is {}: as root, or `sysctl kernel.perf_event_paranoid=1`; \
         in a container or virtual machine perf may not be permitted at all",
        first.trim(),
        if level.is_empty() { "unknown" } else { level.trim() }
    )
}

/// Explains why perf could not be run.
fn missing(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "run perf: it is not installed; it is in Debian's linux-perf".to_owned(),
        _ => format!("run perf: {error}"),
    }
}

/// Returns the samples as text.
fn script(data: &Path) -> Result<String, String> {
    let mut perf = Command::new("perf");
    perf.args(["script", "-F", "comm,ip,sym", "-i"]).arg(data).stdin(Stdio::null());
    // A signal for the terminal's group must not end it: what was sampled is drawn.
    let output = perf.process_group(0).output().map_err(|e| missing(&e))?;
    if !output.status.success() {
        return Err(format!("read the samples: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
