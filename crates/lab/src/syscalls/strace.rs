//! strace as the counter.

use super::{ATTACH, Row, TICK, Table, Tracer};
use crate::signals;
use std::{
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::atomic::AtomicBool,
    thread,
    time::Instant,
};

/// A strace that watches.
pub(super) struct Strace {
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

impl Strace {
    pub(super) fn attach(pids: &[u32]) -> Result<Self, String> {
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
}

impl Tracer for Strace {
    fn detach(mut self: Box<Self>) -> Result<Table, String> {
        if let Some(pid) = rustix::process::Pid::from_raw(self.child.id().cast_signed()) {
            // It has ended already where all it watched has.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
        }
        self.child.wait().map_err(|e| format!("wait for strace: {e}"))?;
        read_summary(&self.output)
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

/// A command of ours from its start.
pub(super) fn traced(command: &[String], stop: &AtomicBool) -> Result<(Table, bool), String> {
    let output = output_path();
    // With a file and a command it would not hear SIGTERM; so it does, and hands it on.
    let traced = strace().args(["-I", "2", "-o"]).arg(&output).arg("--").args(command).spawn();
    let status = traced.and_then(|mut child| signals::wait(&mut child, stop)).map_err(|e| missing(&e))?;
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
pub(super) fn parse(text: &str) -> Table {
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
