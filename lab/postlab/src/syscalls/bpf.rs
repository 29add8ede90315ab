//! bpftrace as the counter: two probes for all system calls, filtered by process, children included.

use super::{ATTACH, Calls, Row, SyscallsArgs, TICK, Tracer};
use crate::signals;
use rustix::process::{Pid, Signal, geteuid, kill_process};
use serde_json::Value;
use std::{
    fs::File,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::atomic::AtomicBool,
    thread,
    time::Instant,
};

const PROBES: &str = "
tracepoint:raw_syscalls:sys_enter /@watched[pid]/ { @since[tid] = nsecs; }
tracepoint:raw_syscalls:sys_exit /@since[tid]/ {
  @count[args->id] = count();
  @ns[args->id] = sum(nsecs - @since[tid]);
  if (args->ret < 0) { @errors[args->id] = count(); }
  HISTOGRAM
  delete(@since[tid]);
}
tracepoint:sched:sched_process_fork /@watched[pid]/ { @watched[args->child_pid] = 1; }
";

/// Counts durations; the buckets of bpftrace are powers of two too.
const HISTOGRAM: &str = "@hist[args->id] = hist(nsecs - @since[tid]);";

/// Names by number, as this machine's kernel has them.
#[cfg(target_arch = "x86_64")]
const NAMES: &str = include_str!("x86_64.txt");
#[cfg(not(target_arch = "x86_64"))]
const NAMES: &str = include_str!("aarch64.txt");

/// Is it there, and may we?
pub(super) fn works() -> bool {
    let found =
        Command::new("bpftrace").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    geteuid().is_root() && found.is_ok_and(|status| status.success()) && Bpf::attach(&[], false).is_ok()
}

/// A bpftrace that counts.
pub(super) struct Bpf {
    child: Child,
    output: PathBuf,
}

impl Bpf {
    pub(super) fn attach(pids: &[u32], histogram: bool) -> Result<Self, String> {
        let name = format!("postlab-bpftrace-{}-{:08x}", std::process::id(), fastrand::u32(..));
        let output = std::env::temp_dir().join(name);
        let watched: String = pids.iter().map(|pid| format!("@watched[{pid}] = 1; ")).collect();
        let program = format!("BEGIN {{ {watched}printf(\"ready\"); }}{PROBES}");
        let program = program.replace("HISTOGRAM", if histogram { HISTOGRAM } else { "" });
        let into = File::create(&output).map_err(|e| format!("write {}: {e}", output.display()))?;
        let mut command = Command::new("bpftrace");
        command.args(["-f", "json", "-e", &program]).stdin(Stdio::null()).stdout(into).stderr(Stdio::null());
        let child = command.spawn().map_err(|e| format!("run bpftrace: {e}"))?;
        let mut this = Self { child, output };
        let begin = Instant::now();
        // It says so when all probes are there.
        while !this.text()?.contains("ready") {
            let ended = this.child.try_wait().map_err(|e| format!("wait for bpftrace: {e}"))?.is_some();
            if ended || begin.elapsed() > ATTACH {
                return Err("watch system calls: bpftrace cannot".into());
            }
            thread::sleep(TICK);
        }
        Ok(this)
    }

    fn text(&self) -> Result<String, String> {
        std::fs::read_to_string(&self.output).map_err(|e| format!("read {}: {e}", self.output.display()))
    }
}

impl Tracer for Bpf {
    fn detach(mut self: Box<Self>) -> Result<Calls, String> {
        if let Some(pid) = Pid::from_raw(self.child.id().cast_signed()) {
            kill_process(pid, Signal::INT).map_err(|e| format!("end bpftrace: {e}"))?;
        }
        self.child.wait().map_err(|e| format!("wait for bpftrace: {e}"))?;
        Ok(parse(&self.text()?))
    }
}

impl Drop for Bpf {
    fn drop(&mut self) {
        // Both are gone where all went well.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.output);
    }
}

/// A command of ours from its start: a shell stops itself, is watched, and becomes the command.
pub(super) fn traced(args: &SyscallsArgs, stop: &AtomicBool) -> Result<(Calls, bool), String> {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", "kill -STOP $$; exec \"$@\"", "sh"]).args(&args.command);
    let mut child =
        shell.stdout(args.format.child_stdout()).spawn().map_err(|e| format!("run /bin/sh: {e}"))?;
    let begin = Instant::now();
    while state(child.id()) != Some('T') && begin.elapsed() < ATTACH {
        thread::sleep(TICK / 10);
    }
    let watching = Bpf::attach(&[child.id()], args.histogram);
    // Whether it is watched or not: it must not stay stopped.
    if let Some(pid) = Pid::from_raw(child.id().cast_signed()) {
        kill_process(pid, Signal::CONT).map_err(|e| format!("run the command: {e}"))?;
    }
    let status = signals::wait(&mut child, stop).map_err(|e| format!("wait for the command: {e}"))?;
    Ok((Box::new(watching?).detach()?, status.success()))
}

fn state(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Maps as JSON lines: calls, nanoseconds and errors, each by number.
fn parse(text: &str) -> Calls {
    let maps: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let of = |map: &str| {
        let found = maps.iter().find_map(|value| value["data"][map].as_object());
        found.into_iter().flatten().filter_map(|(number, value)| Some((number.as_str(), value.as_u64()?)))
    };
    let mut table = Calls::new();
    for (number, count) in of("@count") {
        table.insert(name(number), Row { count, ..Row::default() });
    }
    for (number, ns) in of("@ns") {
        table.entry(name(number)).or_default().seconds = ns as f64 / 1e9;
    }
    for (number, errors) in of("@errors") {
        table.entry(name(number)).or_default().errors = errors;
    }
    for (number, buckets) in maps.iter().filter_map(|value| value["data"]["@hist"].as_object()).flatten() {
        let histogram = &mut table.entry(name(number)).or_default().histogram;
        for bucket in buckets.as_array().into_iter().flatten() {
            // The first bucket has no lower bound.
            let least = bucket["min"].as_u64().unwrap_or_default();
            histogram.add(least, bucket["count"].as_u64().unwrap_or_default());
        }
    }
    table
}

fn name(number: &str) -> String {
    let known = NAMES.lines().filter_map(|line| line.split_once(' ')).find(|(known, _)| *known == number);
    known.map_or_else(|| format!("syscall_{number}"), |(_, name)| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_maps_of_bpftrace_are_read() {
        let text = "{\"type\": \"attached_probes\", \"data\": {\"probes\": 4}}\n{\"type\": \"printf\", \"data\": \"ready\"}\n\n\
                    {\"type\": \"map\", \"data\": {\"@count\": {\"99999\": 2, \"0\": 3}}}\n\
                    {\"type\": \"map\", \"data\": {\"@ns\": {\"99999\": 8462}}}\n\
                    {\"type\": \"map\", \"data\": {\"@errors\": {\"99999\": 1}}}\n\
                    {\"type\": \"hist\", \"data\": {\"@hist\": {\"0\": [{\"min\": 512, \"max\": 1023, \"count\": 2}, {\"min\": 1024, \"max\": 2047, \"count\": 1}]}}}\n";
        let table = parse(text);
        assert_eq!(table["syscall_99999"], Row { count: 2, errors: 1, seconds: 8.462e-6, ..Row::default() });
        assert_eq!(table[&name("0")].count, 3);
        let buckets: Vec<_> = table[&name("0")].histogram.buckets().map(|(from, _, n)| (from, n)).collect();
        assert_eq!(buckets, [(0.512, 2), (1.024, 1)]);
    }
}
