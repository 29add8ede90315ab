//! The resources that an MTA uses while mail goes through it: processor, memory, its processes, its disk.

use super::scenario::Mta;
use crate::{
    device::{Device, Traffic},
    usage::{Usage, Watch, members},
};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Mutex,
    time::Duration,
};

/// From now on, until it is read.
#[derive(Debug)]
pub(super) struct ResourceMonitor<'a> {
    mta: &'a Mta,
    device: Option<Device>,
    traffic: Option<Traffic>,
    cpu: Option<Duration>,
    watch: Mutex<(Watch, u64)>,
}

/// What server and machine have used for each message.
#[derive(Debug, Default)]
pub(super) struct Measured {
    pub(super) cpu_us_per_message: Option<f64>,
    pub(super) writes_per_message: Option<f64>,
    pub(super) flushes_per_message: Option<f64>,
    pub(super) peak_mib: Option<f64>,
    pub(super) processes: BTreeMap<String, (u32, Usage)>,
}

impl<'a> ResourceMonitor<'a> {
    pub(super) fn new(mta: &'a Mta) -> Self {
        let device = mta.queue.as_deref().and_then(|path| Device::below(path).ok());
        let traffic = device.as_ref().and_then(Device::traffic);
        let gauge = Self { mta, device, traffic, cpu: cpu_time(mta), watch: Mutex::default() };
        gauge.look();
        gauge
    }

    /// Looks at the processes: those that end between two looks are seen by their group's processor time only.
    pub(super) fn look(&self) {
        let Some(group) = group(self.mta) else { return };
        let pids = members(&group);
        let resident: u64 = pids.iter().filter_map(|pid| resident_kib(*pid)).sum();
        if let Ok(mut watch) = self.watch.lock() {
            watch.0.look(pids);
            watch.1 = watch.1.max(resident);
        }
    }

    /// Returns what each message has used.
    pub(super) fn read(self, messages: u64) -> Measured {
        self.look();
        let each = |count: u64| count as f64 / messages.max(1) as f64;
        let cpu = self.cpu.zip(cpu_time(self.mta)).map(|(before, after)| after.saturating_sub(before));
        let now = self.device.as_ref().and_then(Device::traffic);
        let traffic = self.traffic.zip(now).map(|(before, now)| now.since(before));
        let (watch, peak_kib) = self.watch.into_inner().unwrap_or_default();
        Measured {
            cpu_us_per_message: cpu.map(|time| time.as_secs_f64() * 1e6 / messages.max(1) as f64),
            writes_per_message: traffic.map(|t| each(t.writes)),
            flushes_per_message: traffic.map(|t| each(t.flushes)),
            peak_mib: (peak_kib > 0).then(|| peak_kib as f64 / 1024.0),
            processes: watch.by_name(),
        }
    }
}

/// Shared pages are dealt out among those who share them.
fn resident_kib(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// Returns the directory of the MTA's control group; of one that is only named, in either version's place.
fn group(mta: &Mta) -> Option<PathBuf> {
    let name = mta.cgroup.as_deref()?;
    let places = ["/sys/fs/cgroup/cpuacct", "/sys/fs/cgroup"].map(|place| Path::new(place).join(name));
    places.into_iter().find(|place| place.is_dir())
}

/// Processor time of the MTA's control group.
fn cpu_time(mta: &Mta) -> Option<Duration> {
    let group = group(mta)?;
    let second = fs::read_to_string(group.join("cpu.stat")).ok().and_then(|text| {
        let line = text.lines().find_map(|l| l.strip_prefix("usage_usec "))?;
        line.trim().parse().ok().map(Duration::from_micros)
    });
    second.or_else(|| {
        let text = fs::read_to_string(group.join("cpuacct.usage")).ok()?;
        text.trim().parse().ok().map(Duration::from_nanos)
    })
}
