//! A step as it was measured: each round's output, and the circumstances at that time.

use super::step::{Command, Step};
use crate::{
    arguments::arguments,
    device::Device,
    relay::{OWNER, Started},
    run::machine::Machine,
    scratch, signals,
    sink::served::Served,
};
use serde::{Deserialize, Serialize};
use std::{
    cell::{Cell, RefCell},
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::{self, Output, Stdio},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

/// What the rounds of a step have given, as it is kept.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) step: String,
    pub(super) quick: bool,
    /// As they would be typed into a shell.
    pub(super) commands: Vec<String>,
    /// When the first round began.
    pub(super) machine: Machine,
    pub(super) rounds: Vec<Round>,
    /// Why the step ended before its last round; `None` if it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) failed: Option<String>,
}

/// One round, in which each command runs once.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(super) struct Round {
    pub(super) begin: String,
    /// Of the kernel, before the round.
    pub(super) load_average: String,
    /// The share of all processors that others used just before.
    pub(super) busy_share: f64,
    /// Writes a second of others on the disk just before.
    pub(super) busy_writes: f64,
    pub(super) runs: Vec<Run>,
}

/// What one command has printed, and how long it took.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(super) struct Run {
    pub(super) seconds: f64,
    pub(super) output: String,
}

/// For how long others' load is measured before a round.
const LOOK: Duration = Duration::from_millis(200);
/// Others' share of the processors, and their writes a second, above which a figure is not to be believed.
const BUSY_SHARE: f64 = 0.15;
const BUSY_WRITES: f64 = 50.0;
/// A command that ends sooner measures its own start.
const TOO_SHORT_SECONDS: f64 = 0.1;

impl Record {
    /// Reads the record of a step, if there is one.
    ///
    /// # Errors
    /// The file is there, and is no record.
    pub(super) fn read(results: &Path, name: &str) -> Result<Option<Self>, String> {
        let path = path(results, name);
        let say = |e: &dyn std::fmt::Display| format!("read {}: {e}", path.display());
        match fs::read_to_string(&path) {
            Ok(text) => serde_json::from_str(&text).map(Some).map_err(|e| say(&e)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(say(&error)),
        }
    }

    /// Writes the record, so that a reader finds the old or the new one.
    pub(super) fn write(&self, results: &Path) -> Result<(), String> {
        let path = path(results, &self.step);
        let say = |e: io::Error| format!("write {}: {e}", path.display());
        path.parent().map_or(Ok(()), fs::create_dir_all).map_err(say)?;
        let text = serde_json::to_vec_pretty(self).map_err(|e| format!("write JSON: {e}"))?;
        let partial = path.with_extension("part");
        fs::write(&partial, text).and_then(|()| fs::rename(&partial, &path)).map_err(say)
    }

    /// Reasons to doubt every figure of the step.
    pub(super) fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        if self.machine.build != "release" {
            remarks.push(format!("{} build of postlab", self.machine.build));
        }
        let most = |value: fn(&Round) -> f64| self.rounds.iter().map(value).fold(0.0, f64::max);
        let (share, writes) = (most(|round| round.busy_share), most(|round| round.busy_writes));
        if share > BUSY_SHARE {
            remarks.push(format!("busy machine: others used {:.0} % of the processors", share * 100.0));
        }
        if writes > BUSY_WRITES {
            remarks.push(format!("busy disk: {writes:.0} writes a second of others"));
        }
        remarks
    }

    /// Reasons to doubt what a command measured.
    pub(super) fn command_remarks(&self, command: usize) -> Option<String> {
        let seconds = self.rounds.iter().filter_map(|round| round.runs.get(command)).map(|run| run.seconds);
        let least = seconds.fold(f64::INFINITY, f64::min);
        (least < TOO_SHORT_SECONDS).then(|| format!("too short: the command ran for {least:.2} s"))
    }

    /// Load averages of the rounds: the first number, smallest to largest.
    pub(super) fn load(&self) -> String {
        let loads =
            self.rounds.iter().filter_map(|round| round.load_average.split(' ').next()?.parse::<f64>().ok());
        let (low, high) = (loads.clone().fold(f64::INFINITY, f64::min), loads.fold(0.0, f64::max));
        match () {
            () if low > high => "unknown".to_owned(),
            () if low == high => format!("{low:.2}"),
            () => format!("{low:.2} to {high:.2}"),
        }
    }

    /// The servers that took part, with version and the hash of their configuration.
    pub(super) fn servers(&self) -> Vec<String> {
        let mut servers: Vec<String> = Vec::new();
        let runs = self.rounds.iter().flat_map(|round| &round.runs);
        for server in runs.flat_map(|run| servers_of(&run.output)) {
            if !servers.contains(&server) {
                servers.push(server);
            }
        }
        servers
    }
}

/// Names the servers in the output of a command.
fn servers_of(output: &str) -> Vec<String> {
    let lines = output.lines().filter_map(|line| line.strip_prefix("MTA: ")).map(str::to_owned);
    let json = output.find('{').and_then(|at| serde_json::from_str::<serde_json::Value>(&output[at..]).ok());
    let cases = json.iter().filter_map(|all| all["cases"].as_array()).flatten();
    let about = cases.filter_map(|case| {
        let version = case.pointer("/about/version")?.as_str().filter(|version| !version.is_empty())?;
        let hash = case.pointer("/about/config_hash")?.as_str()?;
        Some(format!("{} ({version}, configuration {hash})", case["server"].as_str()?))
    });
    lines.chain(about).collect()
}

fn path(results: &Path, name: &str) -> PathBuf {
    results.join("steps").join(format!("{name}.json"))
}

/// Measures what is missing of a step, and keeps each round at once.
pub(super) fn measure(
    step: &Step,
    commands: &[Command],
    record: &mut Record,
    wanted: usize,
    (results, disk): (&Path, &Disk),
    stop: &AtomicBool,
) -> Result<(), String> {
    if record.rounds.is_empty() {
        record.machine = Machine::here(&disk.path);
    }
    record.failed = None;
    while record.rounds.len() < wanted {
        let mut round = look(&disk.path);
        // Each round begins with another command: whoever follows one that is hard on the machine shall not do so in every round.
        let first = record.rounds.len();
        let mut runs: Vec<(usize, Run)> = Vec::new();
        for i in (0..commands.len()).map(|i| (i + first) % commands.len()) {
            let run =
                output(&commands[i], (results, disk), stop).map_err(|e| format!("{}: {e}", step.name))?;
            runs.push((i, run));
        }
        runs.sort_by_key(|(i, _)| *i);
        round.runs = runs.into_iter().map(|(_, run)| run).collect();
        record.rounds.push(round);
        record.write(results)?;
    }
    Ok(())
}

/// The measured directory, with a fresh one in it for each command. On ext4 each of these has inodes in another place: for a
/// minute ext4 looks at every inode of a file that was removed before it takes another one, so that what a command removes would
/// make the next one several times slower.
#[derive(Debug)]
pub(super) struct Disk {
    /// As the option names it.
    path: PathBuf,
    fresh: PathBuf,
    count: Cell<u32>,
    /// Places of inodes, and when they were used.
    recent: RefCell<Vec<(u64, Instant)>>,
}

/// Inodes of the stretch that ext4 chooses for a directory: 16 groups of 8,192.
const STRETCH_INODES: u64 = 16 * 8192;
/// So long does ext4 look at removed inodes, and a little.
const REMEMBERED: Duration = Duration::from_secs(90);
/// Directories that are made until one lies apart from the recent ones.
const TRIES: u32 = 20;

impl Disk {
    pub(super) fn new(path: &Path) -> Result<Self, String> {
        let fresh = path.join(format!("postlab-steps-{}", process::id()));
        fs::create_dir(&fresh).map_err(|e| format!("make {}: {e}", fresh.display()))?;
        scratch::spread(&fresh);
        Ok(Self { path: path.to_owned(), fresh, count: Cell::new(0), recent: RefCell::default() })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// A new directory whose inodes lie apart from those of the last ones, if that can be had.
    fn fresh(&self) -> Result<Fresh, String> {
        let mut recent = self.recent.borrow_mut();
        recent.retain(|(_, used)| used.elapsed() < REMEMBERED);
        let mut tries = 0;
        loop {
            tries += 1;
            self.count.set(self.count.get() + 1);
            let path = self.fresh.join(self.count.get().to_string());
            let made = fs::create_dir(&path).and_then(|()| Ok(fs::metadata(&path)?.ino() / STRETCH_INODES));
            let place = made.map_err(|e| format!("make {}: {e}", path.display()))?;
            let new = Fresh(path);
            if tries == TRIES || recent.iter().all(|(used, _)| *used != place) {
                recent.push((place, Instant::now()));
                return Ok(new);
            }
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.fresh);
    }
}

/// A directory for a command. It stays if the command has left something in it: removing that makes the next one slower.
struct Fresh(PathBuf);

impl Fresh {
    /// Lets a word of the command name this directory where it named the disk that is measured.
    fn placed(&self, word: &str, (results, disk): (&Path, &Disk)) -> String {
        let [results, disk] = [results, &disk.path].map(|path| path.display().to_string());
        if word.contains(&results) {
            word.to_owned()
        } else {
            word.replace(&disk, &self.0.display().to_string())
        }
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// Looks at the use that others make of the machine, in a moment in which nothing of ours runs.
fn look(disk: &Path) -> Round {
    // What the last round left is not to be written while this one is measured.
    let _ = fs::File::open(disk).and_then(|place| Ok(rustix::fs::syncfs(&place)?));
    let device = Device::below(disk).unwrap_or_default();
    let (before, traffic, begin) = (processors(), device.traffic(), Instant::now());
    thread::sleep(LOOK);
    let (after, now, seconds) = (processors(), device.traffic(), begin.elapsed().as_secs_f64());
    let share = before.zip(after).map(|((busy, all), (later, total))| {
        later.saturating_sub(busy) as f64 / total.saturating_sub(all).max(1) as f64
    });
    let writes = traffic.zip(now).map(|(before, now)| now.since(before).writes as f64 / seconds);
    Round {
        begin: jiff::Zoned::now().strftime("%Y-%m-%d %H:%M:%S %z").to_string(),
        load_average: fs::read_to_string("/proc/loadavg").map(|t| t.trim().to_owned()).unwrap_or_default(),
        busy_share: share.unwrap_or_default(),
        busy_writes: writes.unwrap_or_default(),
        runs: Vec::new(),
    }
}

/// Ticks of all processors: busy, and all (proc_stat(5)).
fn processors() -> Option<(u64, u64)> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    let ticks: Vec<u64> =
        text.lines().next()?.split_whitespace().skip(1).filter_map(|t| t.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal; guest time is in user's already.
    let all: u64 = ticks.iter().take(8).sum();
    Some((all - ticks.get(3)? - ticks.get(4)?, all))
}

fn output(command: &Command, (results, disk): (&Path, &Disk), stop: &AtomicBool) -> Result<Run, String> {
    let program = std::env::current_exe().map_err(|e| format!("find this program: {e}"))?;
    let own = program.display().to_string();
    let mut process = process::Command::new(&program);
    let peer = command.words.iter().find_map(|word| word.strip_prefix(PEER)?.split_once('-'));
    let needs_sink = peer.is_some() || command.words.iter().any(|word| word == "SINK");
    let sink = if needs_sink { Some(sink()?) } else { None };
    let address = sink.as_ref().map(|sink| sink.address.clone()).unwrap_or_default();
    let relay = match peer {
        Some((name, profile)) => {
            let script = results.join("peers").join(format!("{name}.sh"));
            let port = address.rsplit_once(':').map_or("", |(_, port)| port);
            Some(Started::peer(&script, profile, port, &results.join("peer.log"))?)
        }
        None => None,
    };
    let fresh = disk.fresh()?;
    let mount = command.words.iter().find_map(|word| Mount::named(word));
    let mount = mount.map(|name| Mount::new(name, results, &fresh.0));
    let mount = mount.transpose()?;
    let endpoint = relay.as_ref().map(|relay| relay.endpoint.clone()).unwrap_or_default();
    let word = |word: &'_ String| match word.as_str() {
        // `syscalls -- postlab …` watches this program too.
        "postlab" => own.clone(),
        "SINK" => address.clone(),
        word if word.starts_with(PEER) => endpoint.clone(),
        word => match &mount {
            Some(mount) => mount.placed(word),
            None => fresh.placed(word, (results, disk)),
        },
    };
    process.args(command.words.iter().map(word));
    process.envs(command.env.iter().cloned()).env("POSTLAB_PEERS", results.join("peers"));
    process.env(OWNER, process::id().to_string());
    // A scenario's servers have their queues there.
    process.env("TMPDIR", &fresh.0);
    process.current_dir(&fresh.0).stdin(Stdio::null());
    if command.words.iter().any(|word| word == "queuedirs") {
        process.env(scratch::KEEP, kept_scratch(results));
    }
    let begin = Instant::now();
    let output = run_to_end(&mut process, stop).map_err(|e| format!("start: {e}"));
    let seconds = begin.elapsed().as_secs_f64();
    // It delivers into the sink until then.
    let has_relayed =
        relay.is_none() || sink.as_ref().is_none_or(|sink| sink.sink_state.counts().messages > 0);
    drop(relay);
    sink.map_or(Ok(()), Served::stop)?;
    let output = output?;
    if stop.load(Relaxed) {
        return Err("stopped".into());
    }
    if !has_relayed {
        return Err("the relay delivered nothing: it may take the recipient for one of its own".into());
    }
    // Some exit with 1 for what they found, and have said what. Others may have said half of it.
    if !matches!(output.status.code(), Some(0 | 1)) {
        let error = String::from_utf8_lossy(&output.stderr);
        let error = error.trim().trim_start_matches("postlab: ");
        return Err(if error.is_empty() { format!("it ended with {}", output.status) } else { error.into() });
    }
    Ok(Run { seconds, output: String::from_utf8_lossy(&output.stdout).into_owned() })
}

/// The begin of a word that stands for a relay: `PEER-postfix-tuned`.
const PEER: &str = "PEER-";

/// What is mounted for a command. In a word `LOOP-ext4-dirsync` stands for the place of a file system in a file, and `SLOW-2` for the directory
/// with two slow disks, `1` and `2`.
struct Mount<'c> {
    name: &'c str,
    script: PathBuf,
    /// The directory below `work` that the name stands for.
    place: &'static str,
    work: PathBuf,
}

impl<'c> Mount<'c> {
    /// Returns the begin of the name in a word.
    fn named(word: &'c str) -> Option<&'c str> {
        let begin = word.find("LOOP-").or_else(|| word.find("SLOW-"))?;
        word[begin..].split([' ', '/']).next()
    }

    fn new(name: &'c str, results: &Path, disk: &Path) -> Result<Self, String> {
        let words: Vec<&str> = name.splitn(3, '-').collect();
        let (script, place) = match *words {
            ["LOOP", _, _] => ("scenarios/loop.sh", "loop/mnt"),
            ["SLOW", _] => ("scenarios/disks.sh", "disks"),
            _ => return Err(format!("`{name}` is neither LOOP-TYPE-OPTIONS nor SLOW-COUNT")),
        };
        let work = disk.join(format!("postlab-loop-{}", process::id()));
        fs::create_dir(&work).map_err(|e| format!("make {}: {e}", work.display()))?;
        let mount = Self { name, script: results.join(script), place, work };
        let mut mounting = vec!["mount"];
        mounting.extend(&words[1..]);
        mount.run(&mounting)?;
        Ok(mount)
    }

    fn run(&self, words: &[&str]) -> Result<(), String> {
        let mut command = process::Command::new("sh");
        command.arg(&self.script).args(words).env("LAB_WORK", &self.work).stdin(Stdio::null());
        let status = command.status().map_err(|e| format!("run {}: {e}", self.script.display()))?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("run {} {}: {status}", self.script.display(), words.join(" ")))
        }
    }

    fn placed(&self, word: &str) -> String {
        word.replace(self.name, &self.work.join(self.place).display().to_string())
    }
}

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        // What is left is named by the next mount in its place, and is small.
        let _ = self.run(&["unmount"]);
        let _ = fs::remove_dir_all(self.work.join("loop")).and_then(|()| fs::remove_dir(&self.work));
    }
}

/// The list of the queues that are left until all steps are over.
pub(super) fn kept_scratch(results: &Path) -> PathBuf {
    results.join("kept-scratch")
}

/// A sink on a free port, for a command that sends.
fn sink() -> Result<Served, String> {
    Served::start(&arguments(&["-m 20000 127.0.0.1:0"])?)
}

/// Runs a command to its end and returns its output; a wish to end is handed on.
fn run_to_end(command: &mut process::Command, stop: &AtomicBool) -> io::Result<Output> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn round(busy_share: f64, load: &str, seconds: f64) -> Round {
        let runs = vec![Run { seconds, output: String::new() }];
        Round { busy_share, load_average: load.into(), runs, ..Round::default() }
    }

    fn record(rounds: Vec<Round>) -> Record {
        let machine = Machine { build: "release".into(), ..Machine::default() };
        Record { step: "x".into(), machine, rounds, ..Record::default() }
    }

    #[test]
    fn a_busy_round_takes_trust_from_the_step() {
        let calm = record(vec![round(0.01, "0.2 0.1", 1.0), round(0.02, "0.5 0.1", 1.0)]);
        assert!(calm.remarks().is_empty() && calm.command_remarks(0).is_none());
        assert_eq!(calm.load(), "0.20 to 0.50");
        let busy = record(vec![round(0.01, "0.2 0.1", 0.04), round(0.9, "2 1", 1.0)]);
        assert_eq!(busy.remarks(), ["busy machine: others used 90 % of the processors"]);
        assert_eq!(busy.command_remarks(0).unwrap(), "too short: the command ran for 0.04 s");
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let directory = tempfile::tempdir().unwrap();
        let one = record(vec![round(0.5, "1 1", 2.0)]);
        one.write(directory.path()).unwrap();
        let read = Record::read(directory.path(), "x").unwrap().unwrap();
        assert_eq!((read.rounds.len(), read.rounds[0].busy_share), (1, 0.5));
        assert!(Record::read(directory.path(), "y").unwrap().is_none());
        fs::write(path(directory.path(), "x"), "{").unwrap();
        assert!(Record::read(directory.path(), "x").unwrap_err().contains("x.json: EOF"));
    }

    #[test]
    fn a_file_system_is_named_within_a_word() {
        assert_eq!(Mount::named("location LOOP-ext4-data=ordered"), Some("LOOP-ext4-data=ordered"));
        assert_eq!(Mount::named("LOOP-xfs-noatime/q"), Some("LOOP-xfs-noatime"));
        assert_eq!(Mount::named("SLOW-2/1"), Some("SLOW-2"));
        assert_eq!(Mount::named("report terse"), None);
        let scripts = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        let error = Mount::new("LOOP-ext4", scripts, Path::new("/no/disk")).err().unwrap();
        assert_eq!(error, "`LOOP-ext4` is neither LOOP-TYPE-OPTIONS nor SLOW-COUNT");
    }

    #[test]
    fn servers_are_named_with_version_and_configuration() {
        let json = "{\"cases\": [{\"server\": \"postfix:tuned\", \"about\": {\"version\": \"Postfix 3.7\", \"config_hash\": \"ab\"}}]}";
        assert_eq!(servers_of(json), ["postfix:tuned (Postfix 3.7, configuration ab)"]);
        assert_eq!(servers_of("x\nMTA: postrider 0.1\n"), ["postrider 0.1"]);
    }
}
