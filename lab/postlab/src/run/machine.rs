//! The machine card that lies beside each result.

use crate::device::Device;
use rustix::system::uname;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fs, path::Path, process::Command};

/// Facts about the machine that measured. A fact that cannot be known is empty.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Machine {
    pub(crate) host: String,
    pub(crate) cpu: String,
    pub(crate) cores: usize,
    pub(crate) governor: String,
    /// The vendor of the machine, which names a hypervisor.
    pub(crate) vendor: String,
    pub(crate) memory_mib: u64,
    pub(crate) kernel: String,
    pub(crate) system: String,
    /// On one line, and in its parts.
    pub(crate) disk: String,
    pub(crate) device: Device,
    pub(crate) load_average: String,
    pub(crate) postlab: String,
    /// Built with or without optimisation.
    pub(crate) build: String,
    /// Of the source that this program was built from.
    pub(crate) commit: String,
    /// MTAs that are installed.
    pub(crate) versions: BTreeMap<String, String>,
    pub(crate) time: String,
}

/// MTAs, and how each says its version on its first line.
const MTAS: [(&str, &str, &[&str]); 4] = [
    ("postfix", "postconf", &["-h", "mail_version"]),
    ("exim", "exim4", &["-bV"]),
    ("opensmtpd", "smtpd", &["-h"]),
    ("postrider", "postrider", &["--version"]),
];

impl Machine {
    /// The commit that this program was built from.
    pub(crate) const BUILT_FROM: &'static str = env!("POSTLAB_BUILT_FROM");

    /// Describes the machine on which the program runs; `directory` lies on the disk that is meant.
    pub(crate) fn here(directory: &Path) -> Self {
        let name = uname();
        let word = |path: &str| fs::read_to_string(path).map(|t| t.trim().to_owned()).unwrap_or_default();
        let memory = value(&word("/proc/meminfo"), "MemTotal");
        let device = Device::below(directory).unwrap_or_default();
        Self {
            host: name.nodename().to_string_lossy().into_owned(),
            cpu: value(&word("/proc/cpuinfo"), "model name"),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            governor: word("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            vendor: word("/sys/class/dmi/id/sys_vendor"),
            memory_mib: memory.split(' ').next().and_then(|n| n.parse::<u64>().ok()).unwrap_or_default()
                / 1024,
            kernel: format!("{} {}", name.sysname().to_string_lossy(), name.release().to_string_lossy()),
            system: value(&word("/etc/os-release"), "PRETTY_NAME"),
            disk: device.text(),
            device,
            load_average: word("/proc/loadavg"),
            postlab: env!("CARGO_PKG_VERSION").to_owned(),
            build: if cfg!(debug_assertions) { "unoptimised" } else { "release" }.to_owned(),
            commit: Self::BUILT_FROM.to_owned(),
            versions: versions(),
            time: jiff::Zoned::now().strftime("%Y-%m-%d %H:%M:%S %z").to_string(),
        }
    }

    /// Says so when others use the machine.
    pub(crate) fn busy(&self) -> Option<String> {
        let load: f64 = self.load_average.split(' ').next()?.parse().ok()?;
        let half = self.cores as f64 / 2.0;
        (load > half).then(|| {
            format!("BUSY MACHINE: the load was {load} on {} cores before the first run", self.cores)
        })
    }

    /// Returns the differences that make two results incomparable.
    pub(crate) fn differences(&self, other: &Self) -> Vec<String> {
        let pairs = [
            ("processor", &self.cpu, &other.cpu),
            ("kernel", &self.kernel, &other.kernel),
            ("disk", &self.disk, &other.disk),
            ("host", &self.host, &other.host),
            ("build of postlab", &self.build, &other.build),
        ];
        let differs = pairs.iter().filter(|(_, mine, theirs)| mine != theirs);
        let mut told: Vec<String> =
            differs.map(|(what, mine, theirs)| format!("{what}: {mine} and {theirs}")).collect();
        if self.cores != other.cores {
            told.push(format!("cores: {} and {}", self.cores, other.cores));
        }
        told
    }

    /// Returns what the card of the machine says: a name and its value for each line.
    pub(crate) fn facts(&self) -> Vec<(String, String)> {
        let mut facts = vec![
            ("Processor".to_owned(), format!("{} × {} {}", self.cores, self.cpu, self.governor)),
            ("Machine".to_owned(), format!("{} {} MiB", self.vendor, self.memory_mib).trim().to_owned()),
            ("System".to_owned(), format!("{}, {}", self.system, self.kernel)),
            (
                "File system of the results".to_owned(),
                format!("{} {}", self.device.file_system, self.device.options),
            ),
            ("Disk of the results".to_owned(), format!("{} {}", self.device.disk, self.device.model)),
            ("Write cache".to_owned(), self.device.write_cache.clone()),
            ("Load before".to_owned(), self.load_average.clone()),
            ("Postlab".to_owned(), format!("{} {} at {}", self.postlab, self.build, self.commit)),
            ("Time".to_owned(), self.time.clone()),
        ];
        facts.extend(self.versions.iter().map(|(name, version)| (name.clone(), version.clone())));
        facts
    }
}

/// Behind the first line's name.
fn value(text: &str, key: &str) -> String {
    let line = text.lines().find(|l| l.starts_with(key)).unwrap_or_default();
    line.split_once([':', '=']).map(|(_, v)| v.trim().trim_matches('"').to_owned()).unwrap_or_default()
}

fn versions() -> BTreeMap<String, String> {
    let found =
        MTAS.iter().map(|(name, program, arguments)| ((*name).to_owned(), first_line(program, arguments)));
    found.filter(|(_, version)| !version.is_empty()).collect()
}

/// Returns the first line of a program's output; nothing if there is none.
fn first_line(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).stdin(std::process::Stdio::null()).output();
    let Ok(output) = output.map(|o| if o.status.success() { o.stdout } else { Vec::new() }) else {
        return String::new();
    };
    String::from_utf8_lossy(&output).lines().next().unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_results_incomparable_is_named() {
        let here = Machine::here(Path::new("."));
        assert!(here.differences(&here).is_empty() && !here.device.file_system.is_empty());
        let other = Machine { cores: here.cores + 1, kernel: "Linux 9".into(), ..here.clone() };
        let told = here.differences(&other).join("; ");
        assert!(told.starts_with("kernel: ") && told.contains("cores: "), "{told}");
    }
}
