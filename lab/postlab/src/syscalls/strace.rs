//! strace as the counter.

use super::{ATTACH, Calls, Row, SyscallsArgs, TICK, Tracer};
use crate::signals;
use std::{
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::atomic::AtomicBool,
    thread,
    time::Instant,
};

/// A strace that is attached to the processes.
pub(super) struct Strace {
    child: Child,
    output: PathBuf,
    histogram: bool,
}

fn output_path() -> PathBuf {
    std::env::temp_dir().join(format!("postlab-strace-{}-{:08x}", std::process::id(), fastrand::u32(..)))
}

/// Returns the command for a summary, or for each call with its duration.
fn strace(histogram: bool) -> Command {
    let mut command = Command::new("strace");
    command.arg("-f");
    if histogram {
        command.args(["-T", "-q", "-s", "0", "-e", "signal=none"]);
    } else {
        command.args(["-c", "-w", "-U", "time,total-time,count,errors,name"]);
    }
    command
}

fn missing(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "run strace: it is not installed".into(),
        _ => format!("run strace: {error}"),
    }
}

impl Strace {
    pub(super) fn attach(pids: &[u32], histogram: bool) -> Result<Self, String> {
        let output = output_path();
        let mut command = strace(histogram);
        command.arg("-o").arg(&output);
        for pid in pids {
            command.args(["-p", &pid.to_string()]);
        }
        let child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().map_err(|e| missing(&e))?;
        let mut tracer = Self { child, output, histogram };
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
}

impl Tracer for Strace {
    fn detach(mut self: Box<Self>) -> Result<Calls, String> {
        if let Some(pid) = rustix::process::Pid::from_raw(self.child.id().cast_signed()) {
            // It has ended already where all it watched has.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
        }
        self.child.wait().map_err(|e| format!("wait for strace: {e}"))?;
        read(&self.output, self.histogram)
    }
}

impl Drop for Strace {
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

/// Runs a command under strace from its start.
pub(super) fn traced(args: &SyscallsArgs, stop: &AtomicBool) -> Result<(Calls, bool), String> {
    let output = output_path();
    // With a file and a command it would not hear SIGTERM; so it does, and hands it on.
    let mut tracer = strace(args.histogram);
    tracer.args(["-I", "2", "-o"]).arg(&output).arg("--").args(&args.command);
    let traced = tracer.stdout(args.format.child_stdout()).spawn();
    let status = traced.and_then(|mut child| signals::wait(&mut child, stop)).map_err(|e| missing(&e))?;
    let table = read(&output, args.histogram);
    // It is small, and in the system's own folder for such.
    let _ = std::fs::remove_file(&output);
    Ok((table?, status.success()))
}

fn read(path: &std::path::Path, histogram: bool) -> Result<Calls, String> {
    let text = std::fs::read(path).map_err(|e| format!("read {}: {e}", path.display()))?;
    let text = String::from_utf8_lossy(&text);
    Ok(if histogram { parse_calls(&text) } else { parse(&text) })
}

/// Calls with their durations: `12 fsync(3) = 0 <0.000123>`, or `12 <... fsync resumed>) = 0 <0.000123>`.
pub(super) fn parse_calls(text: &str) -> Calls {
    let mut table = Calls::new();
    for line in text.lines() {
        // A number of a process stands first where several are watched.
        let call = line.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start();
        let call = call.strip_prefix("<... ").unwrap_or(call);
        let name: String = call.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
        let Some((rest, seconds)) = line.strip_suffix('>').and_then(|l| l.rsplit_once(" <")) else {
            continue;
        };
        let Ok(seconds) = seconds.parse::<f64>() else { continue };
        let row = table.entry(name).or_default();
        row.count += 1;
        row.seconds += seconds;
        row.histogram.took((seconds * 1e9) as u64);
        // `= -1 ENOENT (No such file or directory)`
        let result = rest.rsplit_once(" = ").map_or("", |(_, result)| result);
        row.errors += u64::from(result.starts_with("-1 "));
    }
    table
}

/// strace's table: percent, seconds, calls, errors or nothing, name.
pub(super) fn parse(text: &str) -> Calls {
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
            ..Row::default()
        };
        (name != "total").then(|| (name.to_owned(), row))
    };
    text.lines().filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_read_whether_they_were_interrupted_or_not() {
        let text = "12 openat(AT_FDCWD, \"\"..., O_RDONLY) = 3 <0.000021>\n\
                    13 fsync(4 <unfinished ...>\n\
                    12 openat(AT_FDCWD, \"\"..., O_RDONLY) = -1 ENOENT (No such file or directory) <0.000004>\n\
                    13 <... fsync resumed>) = 0 <0.001500>\n\
                    12 exit_group(0) = ?\n12 +++ exited with 0 +++\nclose(3) = 0 <0.000002>\n";
        let table = parse_calls(text);
        let names: Vec<&str> = table.keys().map(String::as_str).collect();
        assert_eq!(names, ["close", "fsync", "openat"]);
        assert_eq!((table["openat"].count, table["openat"].errors), (2, 1));
        assert!((table["fsync"].seconds - 0.0015).abs() < 1e-9);
        assert_eq!(table["fsync"].histogram.buckets().map(|b| b.2).collect::<Vec<_>>(), [1]);
    }
}
