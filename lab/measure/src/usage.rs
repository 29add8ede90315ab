//! Resources that processes used, as the kernel counts them in /proc: getrusage(2) for those that are not our own
//! children.

use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fs, path::Path, time::Duration};

/// Of one process, all its threads, since its start.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// The name of the program, at most 15 octets.
    pub name: String,
    /// CPU time in the process.
    pub user: Duration,
    /// CPU time in the kernel.
    pub system: Duration,
    /// Page faults without a read from a disk.
    pub minor_faults: u64,
    /// Page faults with a read from a disk.
    pub major_faults: u64,
    /// Blocks of 512 octets that were read, as getrusage(2) counts them.
    pub in_blocks: u64,
    /// Blocks of 512 octets that were written.
    pub out_blocks: u64,
    /// Calls of read(2) and similar ones.
    pub read_calls: u64,
    /// Calls of write(2) and similar ones.
    pub write_calls: u64,
    /// Context switches because the process waited.
    pub voluntary_switches: u64,
    /// Context switches because the time slice was over.
    pub involuntary_switches: u64,
    /// Resident memory at its highest, in KiB.
    pub peak_kib: u64,
}

impl Usage {
    /// Of a process; none if it is gone.
    pub fn of(pid: u32) -> Option<Self> {
        let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).ok();
        let mut usage = Self::default();
        usage.read_stat(&read("stat")?)?;
        let io = read("io").unwrap_or_default(); // another user's is not shown
        usage.read_calls = field(&io, "syscr:");
        usage.write_calls = field(&io, "syscw:");
        usage.in_blocks = field(&io, "read_bytes:") / 512;
        usage.out_blocks = field(&io, "write_bytes:") / 512;
        usage.peak_kib = field(&read("status")?, "VmHWM:");
        for task in fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
            // A process's status tells of its first thread only.
            let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
            usage.voluntary_switches += field(&status, "voluntary_ctxt_switches:");
            usage.involuntary_switches += field(&status, "nonvoluntary_ctxt_switches:");
        }
        Some(usage)
    }

    /// proc_pid_stat(5). The name may hold anything, so what follows is counted from its last bracket.
    fn read_stat(&mut self, stat: &str) -> Option<()> {
        let (left, right) = stat.rsplit_once(')')?;
        self.name = left.split_once('(')?.1.to_owned();
        let fields: Vec<u64> =
            right.split_ascii_whitespace().map(|w| w.parse().unwrap_or_default()).collect();
        (self.minor_faults, self.major_faults) = (*fields.get(7)?, *fields.get(9)?);
        let ticks = rustix::param::clock_ticks_per_second().max(1);
        let time = |i: usize| fields.get(i).map(|t| Duration::from_secs_f64(*t as f64 / ticks as f64));
        (self.user, self.system) = (time(11)?, time(12)?);
        Some(())
    }

    /// Returns the increase since `earlier`; the highest memory stays.
    pub fn since(&self, earlier: &Self) -> Self {
        let less = u64::saturating_sub;
        Self {
            name: self.name.clone(),
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
            minor_faults: less(self.minor_faults, earlier.minor_faults),
            major_faults: less(self.major_faults, earlier.major_faults),
            in_blocks: less(self.in_blocks, earlier.in_blocks),
            out_blocks: less(self.out_blocks, earlier.out_blocks),
            read_calls: less(self.read_calls, earlier.read_calls),
            write_calls: less(self.write_calls, earlier.write_calls),
            voluntary_switches: less(self.voluntary_switches, earlier.voluntary_switches),
            involuntary_switches: less(self.involuntary_switches, earlier.involuntary_switches),
            peak_kib: self.peak_kib,
        }
    }

    /// Another process of the same name.
    pub fn add(&mut self, other: &Self) {
        self.user += other.user;
        self.system += other.system;
        self.minor_faults += other.minor_faults;
        self.major_faults += other.major_faults;
        self.in_blocks += other.in_blocks;
        self.out_blocks += other.out_blocks;
        self.read_calls += other.read_calls;
        self.write_calls += other.write_calls;
        self.voluntary_switches += other.voluntary_switches;
        self.involuntary_switches += other.involuntary_switches;
        self.peak_kib += other.peak_kib;
    }
}

/// Returns the number behind a name in a file of /proc; zero if it is not there.
fn field(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    line.split_ascii_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or_default()
}

/// A group of processes, watched: what ends is remembered as it was seen last.
#[derive(Debug, Clone, Default)]
pub struct Watch {
    seen: BTreeMap<u32, (Usage, Usage)>,
}

impl Watch {
    /// Looks at them. A process that is new counts from its start if others were
    /// looked at before, else from now.
    pub fn look(&mut self, pids: impl IntoIterator<Item = u32>) {
        let begins = self.seen.is_empty();
        for pid in pids {
            let Some(now) = Usage::of(pid) else { continue };
            let first = if begins { now.clone() } else { Usage::default() };
            let last = &mut self.seen.entry(pid).or_insert_with(|| (first, Usage::default())).1;
            // One that has ended, and was not waited for yet, has no memory any more.
            let peak_kib = now.peak_kib.max(last.peak_kib);
            *last = Usage { peak_kib, ..now };
        }
    }

    /// Returns the resources used since the first look, by name: the number of processes, and their usage.
    pub fn by_name(&self) -> BTreeMap<String, (u32, Usage)> {
        let mut names: BTreeMap<String, (u32, Usage)> = BTreeMap::new();
        for (first, last) in self.seen.values() {
            let entry = names.entry(last.name.clone()).or_default();
            entry.0 += 1;
            entry.1.add(&last.since(first));
        }
        names
    }
}

/// Processor time of this process, all threads.
pub fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// Processes of a control group, and of those below it.
pub fn members(group: &Path) -> Vec<u32> {
    let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    let mut pids: Vec<u32> = text.lines().filter_map(|line| line.parse().ok()).collect();
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            pids.extend(members(&entry.path()));
        }
    }
    pids
}

/// Checks that each of the processes exists.
///
/// # Errors
/// In words: one has ended.
pub fn check_processes(pids: &[u32]) -> Result<(), String> {
    match pids.iter().find(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
        Some(gone) => Err(format!("watch process {gone}: there is none")),
        None => Ok(()),
    }
}

/// Checks that a directory is a control group.
///
/// # Errors
/// In words: it is none.
pub fn check_group(group: &Path) -> Result<(), String> {
    if group.join("cgroup.procs").is_file() {
        return Ok(());
    }
    Err(format!("watch {}: it is not a control group, since it has no cgroup.procs", group.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_watched_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let said = check_group(directory.path()).unwrap_err();
        assert!(said.ends_with("it is not a control group, since it has no cgroup.procs"), "{said}");
        fs::write(directory.path().join("cgroup.procs"), "").unwrap();
        assert_eq!(check_group(directory.path()), Ok(()));
        assert_eq!(check_processes(&[std::process::id()]), Ok(()));
        assert!(check_processes(&[std::process::id(), u32::MAX]).unwrap_err().ends_with(": there is none"));
    }

    #[test]
    fn a_name_may_hold_brackets_and_spaces() {
        let mut usage = Usage::default();
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 11 0 22 0 300 400 0 0 20 0 1 0 5 6 7";
        usage.read_stat(stat).unwrap();
        assert_eq!((usage.name.as_str(), usage.minor_faults, usage.major_faults), ("a) b", 11, 22));
        assert!(usage.system > usage.user && !usage.user.is_zero());
    }

    #[test]
    fn a_watched_process_counts_from_the_first_look() {
        let mut watch = Watch::default();
        let me = std::process::id();
        watch.look([me, u32::MAX]);
        std::fs::write("/dev/null", "x").unwrap();
        watch.look([me]);
        let names = watch.by_name();
        let (count, usage) = names.values().next().unwrap();
        assert_eq!((names.len(), *count), (1, 1));
        assert!(usage.write_calls >= 1 && usage.user < Duration::from_secs(60), "{usage:?}");
    }
}
