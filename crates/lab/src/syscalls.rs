//! `postlab syscalls`: which system calls processes make while a command runs, how long they take, and how
//! many there are a message; as S2's DTrace script has it.
//!
//! strace counts them. It slows what it watches, so that times are to be compared with each other only.

use crate::usage::members;
use clap::Args;
use std::{
    collections::BTreeMap,
    io::Write as _,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

/// Count system calls by phase: count, total, average
///
/// With -p or -g those processes are watched while COMMAND runs, and for --then seconds behind it as a phase of
/// its own; else COMMAND itself is. Needs strace(1).
#[derive(Debug, Args)]
pub(crate) struct SyscallsArgs {
    /// Processes to watch, with all they start
    #[arg(short = 'p', value_name = "PID,…", value_delimiter = ',')]
    pids: Vec<u32>,
    /// All processes of this control group
    #[arg(short = 'g', long = "cgroup", value_name = "DIRECTORY")]
    group: Option<PathBuf>,
    /// Show the count for one of so many messages too
    #[arg(short = 'm', long = "messages", value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    messages: Option<u64>,
    /// Watch on for so long when the command has ended: what was put off until then
    #[arg(long, value_name = "SECONDS", value_parser = crate::sink::seconds_of)]
    then: Option<Duration>,
    /// Print CSV
    #[arg(long)]
    csv: bool,
    /// What is done meanwhile; a phase
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// One system call's row.
#[derive(Debug, Clone, Default, PartialEq)]
struct Row {
    count: u64,
    errors: u64,
    seconds: f64,
}

/// By name.
type Table = BTreeMap<String, Row>;

/// For strace to attach or let go.
const ATTACH: Duration = Duration::from_secs(10);
const TICK: Duration = Duration::from_millis(20);

/// Watches and prints; false if the command failed.
pub(crate) fn run(args: &SyscallsArgs) -> Result<bool, String> {
    let stop = Arc::new(AtomicBool::new(false));
    crate::signals::on_end({
        let stop = stop.clone();
        move || stop.store(true, Relaxed)
    })?;
    let mut pids = args.pids.clone();
    if let Some(gone) = pids.iter().find(|pid| !std::path::Path::new(&format!("/proc/{pid}")).exists()) {
        return Err(format!("watch process {gone}: there is none"));
    }
    pids.extend(args.group.as_deref().map(members).unwrap_or_default());
    if args.group.is_some() && pids.is_empty() {
        return Err("watch the control group: it has no processes".into());
    }
    let mut phases = Vec::new();
    let (program, arguments) = args.command.split_first().ok_or("no command")?;
    let failed = |e: std::io::Error| format!("run {program}: {e}");
    let good = if pids.is_empty() {
        let (table, good) = traced(&args.command)?;
        phases.push(("command", table));
        good
    } else {
        let tracer = Tracer::attach(&pids)?;
        let child = Command::new(program).args(arguments).spawn();
        let status = child.and_then(|mut child| child.wait());
        phases.push(("command", tracer.detach()?));
        if let Some(time) = args.then.filter(|_| !stop.load(Relaxed)) {
            let tracer = Tracer::attach(&pids)?;
            let end = Instant::now() + time;
            while Instant::now() < end && !stop.load(Relaxed) {
                thread::sleep(TICK);
            }
            phases.push(("then", tracer.detach()?));
        }
        status.map_err(failed)?.success()
    };
    print!("{}", if args.csv { csv(&phases) } else { text(&phases, args.messages) });
    Ok(good)
}

/// A strace that watches.
struct Tracer {
    child: Child,
    output: PathBuf,
}

fn output_path() -> PathBuf {
    std::env::temp_dir().join(format!("postlab-strace-{}-{:08x}", std::process::id(), fastrand::u32(..)))
}

fn strace() -> Command {
    let mut command = Command::new("strace");
    command.args(["-f", "-c", "-w", "-U", "time,total-time,count,errors,name"]);
    command
}

fn missing(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "run strace: it is not installed".into(),
        _ => format!("run strace: {error}"),
    }
}

impl Tracer {
    fn attach(pids: &[u32]) -> Result<Self, String> {
        let output = output_path();
        let mut command = strace();
        command.arg("-o").arg(&output);
        for pid in pids {
            command.args(["-p", &pid.to_string()]);
        }
        let child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().map_err(|e| missing(&e))?;
        let mut tracer = Self { child, output };
        let begin = Instant::now();
        while !pids.iter().all(|pid| is_traced(*pid)) {
            if let Ok(Some(_)) = tracer.child.try_wait() {
                return Err(format!("watch {pids:?}: strace could not; are they ours, and alive?"));
            }
            if begin.elapsed() > ATTACH {
                return Err(format!("watch {pids:?}: strace did not begin within {} s", ATTACH.as_secs()));
            }
            thread::sleep(TICK);
        }
        Ok(tracer)
    }

    /// Lets go, and reads what was counted.
    fn detach(mut self) -> Result<Table, String> {
        if let Some(pid) = rustix::process::Pid::from_raw(self.child.id().cast_signed()) {
            // It has ended already where all it watched has.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
        }
        self.child.wait().map_err(|e| format!("wait for strace: {e}"))?;
        read_summary(&self.output)
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        // Both are gone where all went well.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.output);
    }
}

fn is_traced(pid: u32) -> bool {
    // A process that is gone is waited for no longer.
    let Ok(status) = std::fs::read_to_string(format!("/proc/{pid}/status")) else { return true };
    status.lines().any(|line| line.strip_prefix("TracerPid:").is_some_and(|pid| pid.trim() != "0"))
}

/// A command of ours from its start.
fn traced(command: &[String]) -> Result<(Table, bool), String> {
    let output = output_path();
    let status = strace().arg("-o").arg(&output).arg("--").args(command).status().map_err(|e| missing(&e))?;
    let table = read_summary(&output);
    // It is small, and in the system's own folder for such.
    let _ = std::fs::remove_file(&output);
    Ok((table?, status.success()))
}

fn read_summary(path: &std::path::Path) -> Result<Table, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("read {}: {e}", path.display()))?;
    Ok(parse(&text))
}

/// strace's table: percent, seconds, calls, errors or nothing, name.
fn parse(text: &str) -> Table {
    let row = |line: &str| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let (name, errors) = match words.len() {
            4 => (words[3], "0"),
            5 => (words[4], words[3]),
            _ => return None,
        };
        let row = Row {
            seconds: words[1].parse().ok()?,
            count: words[2].parse().ok()?,
            errors: errors.parse().ok()?,
        };
        (name != "total").then(|| (name.to_owned(), row))
    };
    text.lines().filter_map(row).collect()
}

/// The seed's columns.
fn csv(phases: &[(&str, Table)]) -> String {
    let mut out = "phase,syscall,count,total us,average us,errors\n".to_owned();
    for (phase, table) in phases {
        for (name, row) in table {
            let total = row.seconds * 1e6;
            out += &format!(
                "{phase},{name},{},{total:.0},{:.2},{}\n",
                row.count,
                total / row.count.max(1) as f64,
                row.errors
            );
        }
    }
    out
}

/// For people: the dearest first.
fn text(phases: &[(&str, Table)], messages: Option<u64>) -> String {
    let mut out = Vec::new();
    for (phase, table) in phases {
        // Writing to a vector cannot fail.
        let _ = writeln!(
            out,
            "{phase}: one run\n{:<20} {:>10} {:>12} {:>12} {:>8} {:>12}",
            "syscall", "count", "total ms", "average µs", "errors", "a message"
        );
        let mut rows: Vec<_> = table.iter().collect();
        rows.sort_by(|a, b| b.1.seconds.total_cmp(&a.1.seconds));
        for (name, row) in rows {
            let each = messages.map_or(String::new(), |n| format!("{:.3}", row.count as f64 / n as f64));
            let _ = writeln!(
                out,
                "{name:<20} {:>10} {:>12.3} {:>12.2} {:>8} {each:>12}",
                row.count,
                row.seconds * 1e3,
                row.seconds * 1e6 / row.count.max(1) as f64,
                row.errors
            );
        }
    }
    String::from_utf8_lossy(&out).into_owned() + "Times are strace's, which slows what it watches.\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_strace_is_read() {
        let text = "% time     seconds     calls    errors syscall\n------ ----------- --------- --------- -------\n\
                    75.10    0.000120        30           fsync\n24.90    0.000040         2         1 openat\n\
                    ------ ----------- --------- --------- -------\n100.00    0.000160        32         1 total\n";
        let table = parse(text);
        assert_eq!(table["fsync"], Row { count: 30, errors: 0, seconds: 0.00012 });
        assert_eq!((table["openat"].errors, table.len()), (1, 2));
        let phases = [("command", table)];
        assert!(csv(&phases).contains("command,fsync,30,120,4.00,0\n"));
        assert!(super::text(&phases, Some(10)).contains("3.000"));
    }
}
