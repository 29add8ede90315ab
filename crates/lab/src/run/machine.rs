//! The machine card that lies beside each result.

use crate::disk::device::Device;
use rustix::system::uname;
use serde::{Deserialize, Serialize};
use std::{fs, path::Path, process::Command};

/// See the module's text. What cannot be known is empty.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Machine {
    pub(crate) host: String,
    pub(crate) cpu: String,
    pub(crate) cores: usize,
    pub(crate) governor: String,
    pub(crate) memory_mib: u64,
    pub(crate) kernel: String,
    pub(crate) system: String,
    pub(crate) disk: String,
    pub(crate) load_average: String,
    pub(crate) postlab: String,
    pub(crate) commit: String,
    pub(crate) time: String,
}

impl Machine {
    /// This machine; `directory` lies on the disk that is meant.
    pub(crate) fn here(directory: &Path) -> Self {
        let name = uname();
        let word = |path: &str| fs::read_to_string(path).map(|t| t.trim().to_owned()).unwrap_or_default();
        let value = |text: &str, key: &str| {
            let line = text.lines().find(|l| l.starts_with(key)).unwrap_or_default();
            line.split_once([':', '='])
                .map(|(_, v)| v.trim().trim_matches('"').to_owned())
                .unwrap_or_default()
        };
        let memory = value(&word("/proc/meminfo"), "MemTotal");
        Self {
            host: name.nodename().to_string_lossy().into_owned(),
            cpu: value(&word("/proc/cpuinfo"), "model name"),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            governor: word("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            memory_mib: memory.split(' ').next().and_then(|n| n.parse::<u64>().ok()).unwrap_or_default()
                / 1024,
            kernel: format!("{} {}", name.sysname().to_string_lossy(), name.release().to_string_lossy()),
            system: value(&word("/etc/os-release"), "PRETTY_NAME"),
            disk: Device::below(directory).map(|d| d.text()).unwrap_or_default(),
            load_average: word("/proc/loadavg"),
            postlab: env!("CARGO_PKG_VERSION").to_owned(),
            commit: commit(),
            time: jiff::Zoned::now().strftime("%Y-%m-%d %H:%M:%S %z").to_string(),
        }
    }
}

/// Of the working directory, where it is a checkout.
fn commit() -> String {
    let output = Command::new("git").args(["describe", "--always", "--dirty"]).output();
    output
        .ok()
        .filter(|o| o.status.success())
        .map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned())
        .unwrap_or_default()
}
