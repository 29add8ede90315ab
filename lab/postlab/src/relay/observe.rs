//! The resources that a server uses while mail goes through it, and the traffic at the sink.

use super::owner::{Processes, has_any};
use crate::{
    device::{Device, Traffic},
    usage::{Watch, cpu_time},
};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    time::{Duration, Instant},
};

/// Between two looks at the processes: Postfix's servers end after 100 connections, which may be a quarter of a second.
const STATES: Duration = Duration::from_millis(100);
/// Between two looks at the memory of processes, which cost more.
const MEMORY: Duration = Duration::from_millis(500);
/// Shared memory is dealt out at a peak only: the kernel takes long to add it up.
const NEW_PEAK: f64 = 1.1;

/// Processes of one name. Figures are means over the run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ProcessUse {
    pub(crate) count: u32,
    /// Processor time for each second, of all and of the busiest.
    pub(crate) cores: f64,
    pub(crate) busiest_cores: f64,
    /// Tasks that wait for a disk (state D).
    pub(crate) disk_waits: f64,
    /// Context switches because a thread waited, and because its time slice was over; sums of the run.
    #[serde(default)]
    pub(crate) voluntary_switches: u64,
    #[serde(default)]
    pub(crate) involuntary_switches: u64,
    /// Blocks of 512 octets that were written, as getrusage(2) counts them; sum of the run.
    #[serde(default)]
    pub(crate) out_blocks: u64,
}

/// The observations of a run. Shares and means are those of the time in which mail was sent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Observed {
    /// From the first message to the last at the sink.
    pub(crate) seconds: f64,
    /// Processor time of the server in that time.
    pub(crate) mta_seconds: Option<f64>,
    pub(crate) cores: usize,
    /// Of all processor time of the machine, whoever used it.
    pub(crate) busy_share: f64,
    /// Of the server, of this program (source and sink), and of everything else: processor time for each second.
    pub(crate) mta_cores: Option<f64>,
    pub(crate) lab_cores: f64,
    pub(crate) other_cores: f64,
    /// The server's time includes processes that ended between two looks; else `other_cores` does.
    #[serde(default = "yes")]
    pub(crate) counts_ended: bool,
    pub(crate) processes: BTreeMap<String, ProcessUse>,
    /// Proportional set size of all processes at its highest.
    pub(crate) peak_mib: Option<f64>,
    pub(crate) writes: Option<u64>,
    pub(crate) flushes: Option<u64>,
    /// The time that a small write and its sync take in the file system of the queue, before the run.
    pub(crate) fsync_ms: Option<f64>,
    /// Sockets of the server on which a DNS reply is awaited; mean.
    pub(crate) dns_sockets: f64,
    /// Connections that the kernel dropped because a listen queue was full; all servers of the machine.
    pub(crate) listen_overflows: u64,
    /// Connections open at the sink, at most.
    pub(crate) sink_open_peak: u64,
    /// Of the looks with messages waiting in the server: the share in which the sink got none.
    pub(crate) idle_share: f64,
    /// Accepted and not at the sink yet, when the last message was accepted.
    pub(crate) backlog_at_end: u64,
}

/// Results from before the field are those of peers, which have control groups.
fn yes() -> bool {
    true
}

/// Counters of the traffic at a moment.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Traffics {
    pub(super) settled: u64,
    pub(super) received: u64,
    pub(super) sink_open: u64,
}

/// Watches from now on, until it is finished.
#[derive(Debug)]
pub(super) struct Observer {
    processes: Processes,
    device: Option<Device>,
    begin: Instant,
    first: Counters,
    sent: Option<(Instant, Counters)>,
    /// Processor time in ticks by process: its name, the time at the first look, and at the last.
    ticks: BTreeMap<u32, (String, u64, u64)>,
    next_states: Instant,
    next_memory: Instant,
    state_looks: u32,
    disk_waits: BTreeMap<String, u32>,
    dns_sockets: u64,
    peak_resident: u64,
    peak_pss_kib: u64,
    usage: Watch,
    seen: Traffics,
    waiting_looks: u32,
    idle_looks: u32,
    observed: Observed,
}

/// Counters of the machine, of the server and of this program.
#[derive(Debug, Clone, Copy)]
struct Counters {
    traffic: Option<Traffic>,
    mta_seconds: Option<f64>,
    machine: (f64, f64),
    lab: Duration,
    overflows: u64,
}

impl Observer {
    /// Of a server's processes, and of the disk below its queue.
    pub(super) fn new(processes: Processes, queue: Option<&Path>) -> Self {
        let device = queue.and_then(|path| Device::below(path).ok());
        let fsync_ms = queue.and_then(fsync_ms);
        let now = Instant::now();
        let mut observer = Self {
            first: Counters::now(device.as_ref(), &processes),
            sent: None,
            processes,
            device,
            begin: now,
            ticks: BTreeMap::new(),
            next_states: now,
            next_memory: now,
            state_looks: 0,
            disk_waits: BTreeMap::new(),
            dns_sockets: 0,
            peak_resident: 0,
            peak_pss_kib: 0,
            usage: Watch::default(),
            seen: Traffics::default(),
            waiting_looks: 0,
            idle_looks: 0,
            observed: Observed { fsync_ms, ..Observed::default() },
        };
        observer.look_at_states();
        observer.look_at_memory();
        observer
    }

    /// Looks; cheap enough for ten times a second.
    pub(super) fn look(&mut self, traffic: Traffics) {
        let open = &mut self.observed.sink_open_peak;
        *open = (*open).max(traffic.sink_open);
        let now = Instant::now();
        if now >= self.next_states {
            self.next_states = now + STATES;
            self.look_at_traffic(traffic);
            self.look_at_states();
        }
        if now >= self.next_memory {
            self.next_memory = now + MEMORY;
            self.look_at_memory();
        }
    }

    /// Between two looks in quick succession even a fast server delivers nothing.
    fn look_at_traffic(&mut self, traffic: Traffics) {
        if traffic.settled > traffic.received {
            self.waiting_looks += 1;
            self.idle_looks += u32::from(traffic.received == self.seen.received);
        }
        self.seen = traffic;
    }

    /// The source has ended; what is left is in the server's queue.
    pub(super) fn all_sent(&mut self) {
        if self.sent.is_none() {
            self.sent = Some((Instant::now(), Counters::now(self.device.as_ref(), &self.processes)));
        }
    }

    fn look_at_states(&mut self) {
        let pids = self.processes.pids();
        let begins = self.ticks.is_empty();
        let is_sending = self.sent.is_none();
        self.state_looks += u32::from(is_sending);
        for pid in &pids {
            let Some(look) = Look::at(*pid) else { continue };
            // A process that is new counts from its start.
            let first = if begins { look.ticks } else { 0 };
            let entry = self.ticks.entry(*pid).or_insert_with(|| (look.name.clone(), first, 0));
            entry.2 = look.ticks;
            if is_sending && look.waiting > 0 {
                *self.disk_waits.entry(look.name).or_default() += look.waiting;
            }
        }
        if is_sending {
            self.dns_sockets += dns_sockets(&pids);
        }
    }

    fn look_at_memory(&mut self) {
        let pids = self.processes.pids();
        self.usage.look(pids.iter().copied());
        let resident: u64 = pids.iter().filter_map(|pid| resident_pages(*pid)).sum();
        if resident as f64 > self.peak_resident as f64 * NEW_PEAK {
            self.peak_resident = resident;
            let pss = pids.iter().filter_map(|pid| pss_kib(*pid)).sum();
            self.peak_pss_kib = self.peak_pss_kib.max(pss);
        }
    }

    /// Ends the watch and returns what was seen.
    pub(super) fn finish(mut self, backlog_at_end: u64) -> Observed {
        self.look_at_states();
        self.look_at_memory();
        self.all_sent();
        let now = Counters::now(self.device.as_ref(), &self.processes);
        let seconds = self.begin.elapsed().as_secs_f64().max(1e-3);
        let (sent_at, sent) = self.sent.unwrap_or((Instant::now(), now));
        let sending = sent_at.duration_since(self.begin).as_secs_f64().max(1e-3);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let ticks = (sent.machine.0 - self.first.machine.0, sent.machine.1 - self.first.machine.1);
        let busy_share = (ticks.0 / ticks.1.max(1e-9)).clamp(0.0, 1.0);
        let processes = self.by_name(seconds);
        let seen: f64 = processes.values().map(|process| process.cores).sum();
        let group = |last: &Counters| self.first.mta_seconds.zip(last.mta_seconds).map(|(a, b)| b - a);
        // Without a control group, only the processes that were seen count.
        let seen = (!processes.is_empty()).then_some(seen);
        let mta_cores = group(&sent).map(|used| used / sending).or(seen);
        let lab_cores = (sent.lab.saturating_sub(self.first.lab)).as_secs_f64() / sending;
        let traffic = self.first.traffic.zip(now.traffic).map(|(first, now)| now.since(first));
        let looks = f64::from(self.state_looks.max(1));
        Observed {
            seconds,
            mta_seconds: group(&now).or(seen.map(|cores| cores * seconds)),
            cores,
            busy_share,
            counts_ended: group(&now).is_some(),
            mta_cores,
            lab_cores,
            other_cores: (busy_share * cores as f64 - lab_cores - mta_cores.unwrap_or_default()).max(0.0),
            processes,
            peak_mib: (self.peak_pss_kib > 0).then(|| self.peak_pss_kib as f64 / 1024.0),
            writes: traffic.map(|t| t.writes),
            flushes: traffic.map(|t| t.flushes),
            dns_sockets: self.dns_sockets as f64 / looks,
            listen_overflows: now.overflows.saturating_sub(self.first.overflows),
            idle_share: f64::from(self.idle_looks) / f64::from(self.waiting_looks.max(1)),
            backlog_at_end,
            ..self.observed
        }
    }

    fn by_name(&self, seconds: f64) -> BTreeMap<String, ProcessUse> {
        let looks = f64::from(self.state_looks.max(1));
        let mut uses: BTreeMap<String, ProcessUse> = BTreeMap::new();
        let ticks_per_second = rustix::param::clock_ticks_per_second().max(1) as f64;
        for (name, first, last) in self.ticks.values() {
            let cores = last.saturating_sub(*first) as f64 / ticks_per_second / seconds;
            let entry = uses.entry(name.clone()).or_default();
            entry.count += 1;
            entry.cores += cores;
            entry.busiest_cores = entry.busiest_cores.max(cores);
        }
        for (name, count) in &self.disk_waits {
            uses.entry(name.clone()).or_default().disk_waits = f64::from(*count) / looks;
        }
        for (name, (_, usage)) in self.usage.by_name() {
            let entry = uses.entry(name).or_default();
            entry.voluntary_switches = usage.voluntary_switches;
            entry.involuntary_switches = usage.involuntary_switches;
            entry.out_blocks = usage.out_blocks;
        }
        uses
    }
}

impl Counters {
    fn now(device: Option<&Device>, processes: &Processes) -> Self {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let netstat = fs::read_to_string("/proc/net/netstat").unwrap_or_default();
        Self {
            traffic: device.and_then(Device::traffic),
            mta_seconds: processes.group_seconds(),
            machine: busy_and_all(&stat),
            lab: cpu_time(),
            overflows: overflows(&netstat),
        }
    }
}

/// Ticks of the machine that were used, and all of them (proc_stat(5): user nice system idle iowait irq softirq steal).
fn busy_and_all(stat: &str) -> (f64, f64) {
    let line = stat.lines().next().unwrap_or_default();
    let ticks: Vec<f64> =
        line.split_ascii_whitespace().skip(1).take(8).filter_map(|w| w.parse().ok()).collect();
    let all: f64 = ticks.iter().sum();
    let idle: f64 = ticks.iter().skip(3).take(2).sum();
    (all - idle, all)
}

/// `TcpExt: … ListenOverflows …` names the columns of the next line.
fn overflows(netstat: &str) -> u64 {
    let mut lines = netstat.lines().filter(|line| line.starts_with("TcpExt:"));
    let (Some(names), Some(values)) = (lines.next(), lines.next()) else { return 0 };
    let mut pairs = names.split(' ').zip(values.split(' '));
    pairs.find(|(name, _)| *name == "ListenOverflows").and_then(|(_, n)| n.parse().ok()).unwrap_or_default()
}

/// What proc_pid_stat(5) says of a process at one moment.
struct Look {
    name: String,
    /// Processor time of all its tasks.
    ticks: u64,
    /// Tasks that wait for a disk.
    waiting: u32,
}

impl Look {
    fn at(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (left, right) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = right.split_ascii_whitespace().collect();
        let number = |i: usize| fields.get(i).and_then(|word| word.parse::<u64>().ok());
        let is_single = number(17)? <= 1;
        let waiting = if is_single { u32::from(fields.first() == Some(&"D")) } else { waiting_tasks(pid) };
        Some(Self { name: left.split_once('(')?.1.to_owned(), ticks: number(11)? + number(12)?, waiting })
    }
}

fn waiting_tasks(pid: u32) -> u32 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let is_waiting = |path: &Path| {
        let stat = fs::read_to_string(path.join("stat")).unwrap_or_default();
        stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('D'))
    };
    tasks.filter(|task| is_waiting(&task.path())).count() as u32
}

/// UDP sockets of these processes that are connected to port 53.
fn dns_sockets(pids: &[u32]) -> u64 {
    let tables = ["/proc/net/udp", "/proc/net/udp6"].map(|p| fs::read_to_string(p).unwrap_or_default());
    let parse = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        fields.get(2)?.ends_with(":0035").then(|| fields.get(9)?.parse().ok()).flatten()
    };
    let open: Vec<u64> = tables.iter().flat_map(|table| table.lines().filter_map(parse)).collect();
    // Rarely is there any, and looking through all files of all processes takes long.
    let count = |inode: &u64| {
        let one = BTreeSet::from([*inode]);
        pids.iter().any(|pid| has_any(*pid, &one))
    };
    open.iter().filter(|inode| count(inode)).count() as u64
}

fn resident_pages(pid: u32) -> Option<u64> {
    fs::read_to_string(format!("/proc/{pid}/statm")).ok()?.split(' ').nth(1)?.parse().ok()
}

fn pss_kib(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// Syncs that are measured for the median.
const SYNCS: usize = 9;

/// The median time of a small write and its sync, in a file of our own in a directory.
fn fsync_ms(directory: &Path) -> Option<f64> {
    let path = directory.join(format!(".postlab-fsync-{}", std::process::id()));
    let mut file = fs::File::create_new(&path).ok()?;
    let mut sync = || {
        let begin = Instant::now();
        std::io::Write::write_all(&mut file, &[0; 1024]).and_then(|()| file.sync_all()).ok()?;
        Some(begin.elapsed().as_secs_f64() * 1e3)
    };
    let times: Vec<f64> = (0..SYNCS).map_while(|_| sync()).collect();
    // It was created here.
    let _ = fs::remove_file(&path);
    crate::stat::spread::Spread::of(times).map(|spread| spread.median)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counters_of_the_kernel_are_read() {
        assert_eq!(busy_and_all("cpu  10 20 30 100 50 1 2 3 0 0\ncpu0 1"), (66.0, 216.0));
        let netstat = "IpExt: A\nIpExt: 1\nTcpExt: SyncookiesSent ListenOverflows X\nTcpExt: 0 41 2\n";
        assert_eq!((overflows(netstat), overflows("")), (41, 0));
    }

    #[test]
    fn a_run_of_this_process_is_observed() {
        let directory = tempfile::tempdir().unwrap();
        let mut observer = Observer::new(Processes::Tree(std::process::id()), Some(directory.path()));
        let at = |settled, received| Traffics { settled, received, sink_open: 2 };
        observer.look(at(10, 10));
        for received in [0, 0, 5, 10] {
            observer.look_at_traffic(at(10, received));
        }
        let observed = observer.finish(5);
        assert_eq!((observed.sink_open_peak, observed.backlog_at_end), (2, 5));
        assert!((observed.idle_share - 1.0 / 3.0).abs() < 1e-9, "{observed:?}");
        assert!(
            !observed.processes.is_empty()
                && observed.peak_mib.is_some()
                && observed.fsync_ms.is_some()
                && observed.mta_cores.is_some()
        );
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
