//! The storage below a directory: file system, mount options, block device, and the counters of the device.

use serde::{Deserialize, Serialize};
use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

/// The storage below a directory. A fact that the kernel does not tell is empty.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Device {
    /// The type of the file system, such as `ext4`.
    pub file_system: String,
    /// Options of the mount and of the file system, with commas between them.
    pub options: String,
    /// As mounted: `/dev/vda1`, `overlay`.
    pub source: String,
    /// Such as `sda` for `sda1`; empty if it is not known.
    pub disk: String,
    /// As the disk reports it; empty if it does not.
    pub model: String,
    /// True if the disk says that it rotates.
    pub rotates: Option<bool>,
    /// `write back` or `write through`, as the kernel believes.
    pub write_cache: String,
    #[serde(skip)]
    /// The file with the kernel's counters; `None` if there is none.
    pub stat: Option<PathBuf>,
}

/// Counted by the kernel since it started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Completed reads.
    pub reads: u64,
    /// Sectors of 512 octets that were read.
    pub read_sectors: u64,
    /// Completed writes.
    pub writes: u64,
    /// Sectors of 512 octets that were written.
    pub written_sectors: u64,
    /// Completed discards.
    pub discards: u64,
    /// Completed flushes of the write cache.
    pub flushes: u64,
}

impl Device {
    /// Finds the device with the file system that `path` is on.
    pub fn below(path: &Path) -> Result<Self, String> {
        let say = |e| format!("look at {}: {e}", path.display());
        let real = fs::canonicalize(path).map_err(say)?;
        let number = fs::metadata(&real).map_err(say)?.dev();
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let mut device = mount_of(&mounts, &real).unwrap_or_default();
        let numbers = if major == 0 { source_numbers(&device.source) } else { Some((major, minor)) };
        if let Some((major, minor)) = numbers {
            device.read_sys(&PathBuf::from(format!("/sys/dev/block/{major}:{minor}")));
        }
        Ok(device)
    }

    /// A partition's directory lies in its disk's, which counts the flushes.
    fn read_sys(&mut self, directory: &Path) {
        let Ok(mut directory) = fs::canonicalize(directory) else { return };
        if directory.join("partition").exists() {
            directory.pop();
        }
        let word = |name: &str| {
            fs::read_to_string(directory.join(name)).map(|t| t.trim().to_owned()).unwrap_or_default()
        };
        self.disk = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
        self.model = word("device/model");
        self.write_cache = word("queue/write_cache");
        // A virtual disk turns or not as its hypervisor likes to say.
        let is_virtual =
            directory.components().any(|c| c.as_os_str().to_string_lossy().starts_with("virtio"));
        self.rotates = match word("queue/rotational").as_str() {
            "0" => Some(false),
            "1" if !is_virtual => Some(true),
            _ => None,
        };
        self.stat = Some(directory.join("stat"));
    }

    /// Returns the counters of the disk, if it has any.
    pub fn traffic(&self) -> Option<Traffic> {
        let text = fs::read_to_string(self.stat.as_ref()?).ok()?;
        let fields: Vec<u64> = text.split_ascii_whitespace().filter_map(|w| w.parse().ok()).collect();
        // The order is that of the kernel's Documentation/block/stat.rst; the last are younger.
        let young = |i: usize| fields.get(i).copied().unwrap_or_default();
        Some(Traffic {
            reads: *fields.first()?,
            read_sectors: *fields.get(2)?,
            writes: *fields.get(4)?,
            written_sectors: *fields.get(6)?,
            discards: young(11),
            flushes: young(15),
        })
    }

    /// Kept in memory only.
    pub fn is_memory(&self) -> bool {
        matches!(self.file_system.as_str(), "tmpfs" | "ramfs")
    }

    /// On one line, for people.
    pub fn text(&self) -> String {
        let known = [&self.file_system, &self.source, &self.disk, &self.model, &self.options];
        let words: Vec<&str> = known.into_iter().map(String::as_str).filter(|w| !w.is_empty()).collect();
        let cache = if self.write_cache.is_empty() {
            String::new()
        } else {
            format!(", cache: {}", self.write_cache)
        };
        words.join(" ") + &cache
    }
}

impl Traffic {
    /// Returns what was added since `earlier`.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            reads: self.reads.saturating_sub(earlier.reads),
            read_sectors: self.read_sectors.saturating_sub(earlier.read_sectors),
            writes: self.writes.saturating_sub(earlier.writes),
            written_sectors: self.written_sectors.saturating_sub(earlier.written_sectors),
            discards: self.discards.saturating_sub(earlier.discards),
            flushes: self.flushes.saturating_sub(earlier.flushes),
        }
    }
}

/// The mount with the longest path above ours (proc_pid_mountinfo(5)).
fn mount_of(mounts: &str, path: &Path) -> Option<Device> {
    let parse = |line: &str| {
        let (left, right) = line.split_once(" - ")?;
        let left: Vec<&str> = left.split(' ').collect();
        let right: Vec<&str> = right.split(' ').collect();
        let point = PathBuf::from(left.get(4)?.replace("\\040", " "));
        let options = format!("{},{}", left.get(5)?, right.get(2)?);
        let device = Device {
            file_system: (*right.first()?).into(),
            source: (*right.get(1)?).into(),
            options,
            ..Device::default()
        };
        path.starts_with(&point).then_some((point, device))
    };
    // The last of equal ones lies on top.
    mounts
        .lines()
        .filter_map(parse)
        .max_by_key(|(point, _)| point.components().count())
        .map(|(_, device)| device)
}

/// btrfs and its like have numbers of their own; their source is the block device.
fn source_numbers(source: &str) -> Option<(u32, u32)> {
    let number = fs::metadata(source).ok().filter(|_| source.starts_with("/dev/"))?.rdev();
    Some((rustix::fs::major(number), rustix::fs::minor(number)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deepest_mount_is_the_one() {
        let mounts = "21 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw,errors=remount-ro\n\
                      30 21 0:20 / /tmp rw,nosuid - tmpfs tmpfs rw,size=1g\n\
                      31 21 0:21 / /tmpfs rw - btrfs /dev/vdb rw\n";
        let device = mount_of(mounts, Path::new("/tmp/x")).unwrap();
        assert_eq!((device.file_system.as_str(), device.is_memory()), ("tmpfs", true));
        assert_eq!(device.options, "rw,nosuid,rw,size=1g");
        assert_eq!(mount_of(mounts, Path::new("/tmpx")).unwrap().source, "/dev/vda1");
    }

    #[test]
    fn something_is_known_of_where_we_are() {
        assert!(!Device::below(Path::new(".")).unwrap().file_system.is_empty());
        assert!(
            Device::below(Path::new("/no/dir")).unwrap_err().starts_with("look at /no/dir: No such file")
        );
    }
}
