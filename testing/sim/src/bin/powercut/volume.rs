//! A file system on the device: made once, mounted after each cut. The mounts are to be in a name
//! space of their own, and go with it; a loop device goes with its cleanup process, or if that was killed as well
//! with the next run.

use super::{
    cleanup_process::CleanupProcess,
    device::{Cut, Device},
    fuse,
    image::Image,
};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use sim::seed::Rng;
use std::{
    cell::RefCell,
    ffi::CStr,
    fs,
    io::{self, BufRead as _, BufReader, Write as _},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::Arc,
};

/// In memory: nothing here has to survive a real power cut.
const SHM: &str = "/dev/shm";

/// Beginning of the names of the folders of all runs; the process's number follows.
const FOLDER: &str = "postrider-powercut-";

/// Which file system is on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Ext4,
    Xfs,
    Btrfs,
}

impl Kind {
    pub(crate) fn parse(name: &str) -> Option<Self> {
        [Self::Ext4, Self::Xfs, Self::Btrfs].into_iter().find(|kind| kind.name() == name)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }

    /// About the smallest that its maker agrees to.
    fn size_mib(self) -> u64 {
        match self {
            Self::Ext4 => 64,
            Self::Xfs => 300,
            Self::Btrfs => 128,
        }
    }

    /// As a distribution would make it, but small, and with nothing left for the kernel to do later.
    fn make(self) -> Command {
        let (program, options): (_, &[&str]) = match self {
            Self::Ext4 => {
                ("mkfs.ext4", &["-q", "-F", "-J", "size=4", "-E", "lazy_itable_init=0,lazy_journal_init=0"])
            }
            Self::Xfs => ("mkfs.xfs", &["-q", "-f"]),
            Self::Btrfs => ("mkfs.btrfs", &["-q", "-f"]),
        };
        let mut command = Command::new(program);
        command.args(options);
        command
    }

    fn options(self) -> &'static CStr {
        match self {
            Self::Ext4 | Self::Xfs => c"",
            // The device has no use for it.
            Self::Btrfs => c"nodiscard",
        }
    }
}

/// The device as a loop device, and where its file system is mounted. A process of its own serves it
/// and never touches it: whoever is killed while he waits for a write could not serve that write.
pub(crate) struct LoopMount {
    folder: PathBuf,
    loop_device: String,
    device: Arc<Device>,
    /// The device right after mkfs.
    fresh: Image,
    /// Clears up when this process has ended.
    _keeper: CleanupProcess,
}

impl LoopMount {
    /// Makes the file system and the device. What is missing on this machine, in words.
    fn new(kind: Kind) -> Result<Self, String> {
        remove_leftovers();
        let parent = if Path::new(SHM).is_dir() { PathBuf::from(SHM) } else { std::env::temp_dir() };
        let folder = parent.join(format!("{FOLDER}{}", std::process::id()));
        let made = fs::create_dir_all(folder.join("mnt"));
        made.map_err(|e| format!("make {}: {e}", folder.display()))?;
        let cleanup_process =
            CleanupProcess::start(&folder).map_err(|e| format!("start the cleanup process: {e}"))?;
        Self::attach(kind, folder, cleanup_process)
    }

    fn attach(kind: Kind, folder: PathBuf, mut cleanup_process: CleanupProcess) -> Result<Self, String> {
        let (file, node) = (folder.join("image"), folder.join("device"));
        let fail = |what: &str, e: io::Error| format!("{what}: {e}");
        let made = fs::File::create(&file).and_then(|f| f.set_len(kind.size_mib() << 20));
        made.map_err(|e| fail("make an image", e))?;
        run(kind.make().arg(&file))?;
        let fresh = Image::of_file(&file).map_err(|e| fail("read the image", e))?;
        fs::File::create(&node).map_err(|e| fail("make the device's file", e))?;
        let device = Arc::new(Device::new(fresh.clone()));
        fuse::serve(device.clone(), &node).map_err(|e| fail("mount /dev/fuse", e))?;
        cleanup_process.tell("mounted").map_err(|e| fail("tell the cleanup process", e))?;
        let loop_device =
            run(Command::new("losetup").args(["--find", "--show"]).arg(&node))?.trim().to_owned();
        cleanup_process
            .tell(&format!("loop {loop_device}"))
            .map_err(|e| fail("tell the cleanup process", e))?;
        Ok(Self { folder, loop_device, device, fresh, _keeper: cleanup_process })
    }

    /// Executes commands from standard input until its end.
    pub(crate) fn run(kind: Kind) {
        let mount = match Self::new(kind) {
            Ok(mount) => mount,
            Err(what) => return println!("failed {}", what.trim().replace('\n', "; ")),
        };
        println!("ready {} {}", mount.loop_device, mount.folder.display());
        for line in io::stdin().lines().map_while(Result::ok) {
            let words: Vec<&str> = line.split(' ').collect();
            println!("{}", mount.obey(&words));
        }
    }

    fn obey(&self, words: &[&str]) -> String {
        let number = |at: usize| words.get(at).and_then(|word| word.parse().ok()).unwrap_or(0);
        match words[0] {
            "on" => {
                let left = self.device.left(&mut Rng::new(number(2)));
                let image = if words[1] == "fresh" { self.fresh.clone() } else { left };
                let cut = if words[3] == "at" { Cut::At(number(4)) } else { Cut::AfterFlush(number(4)) };
                self.device.switch_on(image, cut);
                "on".to_owned()
            }
            "off" => {
                self.device.switch_off();
                let (counts, is_after_flush) = self.device.counts();
                format!("{} {} {}", counts.writes, counts.flushes, u8::from(is_after_flush))
            }
            _ => u8::from(self.device.is_off()).to_string(),
        }
    }
}

impl Drop for LoopMount {
    fn drop(&mut self) {
        self.device.switch_off();
    }
}

/// The other end: whoever mounts the file system and works on it.
pub(crate) struct Volume {
    kind: Kind,
    mount: Child,
    talk: RefCell<(ChildStdin, BufReader<ChildStdout>)>,
    loop_device: String,
    folder: PathBuf,
}

/// Requests that reached the device before the cut.
pub(crate) struct Counts {
    pub(crate) writes: u64,
    pub(crate) flushes: u64,
    pub(crate) is_after_flush: bool,
}

impl Volume {
    /// Starts the mount. What is missing on this machine, in words.
    pub(crate) fn new(kind: Kind) -> Result<Self, String> {
        let mut mount = Command::new("/proc/self/exe")
            .args(["--mount", kind.name()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // It ends when we have ended, and not with us when somebody types Ctrl-C.
            .process_group(0)
            .spawn()
            .map_err(|e| format!("start the device: {e}"))?;
        let talk = (mount.stdin.take().expect("piped"), BufReader::new(mount.stdout.take().expect("piped")));
        let (loop_device, folder) = (String::new(), PathBuf::new());
        let volume = Self { kind, mount, talk: RefCell::new(talk), loop_device, folder };
        let said = volume.hear();
        match said.split_once(' ').unwrap_or_default() {
            ("ready", place) => {
                let (loop_device, folder) = place.split_once(' ').unwrap_or_default();
                Ok(Self { loop_device: loop_device.to_owned(), folder: PathBuf::from(folder), ..volume })
            }
            (_, what) => Err(what.to_owned()),
        }
    }

    fn hear(&self) -> String {
        let mut line = String::new();
        self.talk.borrow_mut().1.read_line(&mut line).expect("the mount answers");
        line.trim_end().to_owned()
    }

    fn tell(&self, words: &str) -> String {
        self.talk.borrow_mut().0.write_all(format!("{words}\n").as_bytes()).expect("the mount listens");
        self.hear()
    }

    /// Power until the cut: on a new file system, or on what the last cut left.
    pub(crate) fn switch_on(&self, is_fresh: bool, seed: u64, cut: Cut) {
        let image = if is_fresh { "fresh" } else { "left" };
        let (when, count) = match cut {
            Cut::At(count) => ("at", count),
            Cut::AfterFlush(count) => ("after", count),
        };
        self.tell(&format!("on {image} {seed} {when} {count}"));
    }

    /// Cuts now, if it has not been cut.
    pub(crate) fn switch_off(&self) -> Counts {
        let said = self.tell("off");
        let mut numbers = said.split(' ').map(|word| word.parse().unwrap_or(0));
        let mut next = || numbers.next().unwrap_or(0);
        Counts { writes: next(), flushes: next(), is_after_flush: next() == 1 }
    }

    pub(crate) fn is_off(&self) -> bool {
        self.tell("?") == "1"
    }

    /// Mounts the file system, which replays its journal.
    pub(crate) fn mount(&self) -> io::Result<PathBuf> {
        let at = self.folder.join("mnt");
        mount(self.loop_device.as_str(), &at, self.kind.name(), MountFlags::NOATIME, self.kind.options())?;
        Ok(at)
    }

    /// Has the kernel forget what it knew of the device before the power went: btrfs keeps a register of
    /// devices, which a machine without power would not have, and where the last superblock was lost it takes
    /// the device for one that is missing.
    pub(crate) fn forget(&self) -> bool {
        let forget = ["device", "scan", "--forget", self.loop_device.as_str()];
        self.kind == Kind::Btrfs && run(Command::new("btrfs").args(forget)).is_ok()
    }

    pub(crate) fn unmount(&self) -> io::Result<()> {
        Ok(unmount(self.folder.join("mnt"), UnmountFlags::empty())?)
    }

    /// Waits until the device is gone.
    pub(crate) fn close(mut self) {
        drop(self.talk);
        // However it ended, it is gone.
        let _ = self.mount.wait();
    }
}

/// A program's standard output, or what it said.
pub(crate) fn run(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let ended = command.output().map_err(|e| format!("{name}: {e}"))?;
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if ended.status.success() {
        Ok(said(&ended.stdout))
    } else {
        Err(format!("{name}: {}", said(&ended.stderr)))
    }
}

/// Devices and folders of runs whose process is gone.
fn remove_leftovers() {
    let is_gone = |path: &str| {
        let number = path.split(FOLDER).nth(1).and_then(|rest| rest.split('/').next());
        number.is_some_and(|number| !Path::new("/proc").join(number).exists())
    };
    let devices = run(Command::new("losetup").args(["--list", "--noheadings", "--output", "NAME,BACK-FILE"]));
    for line in devices.unwrap_or_default().lines().filter(|line| is_gone(line)) {
        let device = line.split_whitespace().next().unwrap_or_default();
        let _ = run(Command::new("losetup").args(["--detach", device]));
    }
    let entries = fs::read_dir(SHM).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| is_gone(&entry.path().to_string_lossy())) {
        let _ = fs::remove_dir_all(entry.path());
    }
}
