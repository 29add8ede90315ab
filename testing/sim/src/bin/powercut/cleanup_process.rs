//! Clears up behind a device, however the process that serves it ended. That process must do nothing that
//! may wait for the device: killed while it waits, it would neither be gone nor serve, and every sync(2)
//! of the machine would wait with it. So it never touches what it serves. This process does: it holds the
//! other end of a pipe, and when that closes it aborts the FUSE connection, unmounts, and detaches.

use super::volume::run;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::{
    fs, io,
    io::Write as _,
    os::unix::{fs::MetadataExt as _, process::CommandExt as _},
    path::Path,
    process::{Child, Command, Stdio},
};

/// Directory of the kernel's FUSE connections, each a folder named by the minor number of its device.
const CONNECTIONS: &str = "/sys/fs/fuse/connections";

/// Cleans up once the process that holds this has ended, however it ended.
pub(crate) struct CleanupProcess(Child);

impl CleanupProcess {
    /// Starts it for a folder that is to go with the device.
    pub(crate) fn start(folder: &Path) -> io::Result<Self> {
        let mut command = Command::new("/proc/self/exe");
        command.arg("--cleanup_process").arg(folder).stdin(Stdio::piped()).stdout(Stdio::null());
        // Signals to the group of whoever is served are none of its business.
        command.process_group(0).spawn().map(Self)
    }

    /// Tells it what there is by now: `mounted`, or `loop DEVICE`.
    pub(crate) fn tell(&mut self, words: &str) -> io::Result<()> {
        let pipe = self.0.stdin.as_mut().expect("piped");
        pipe.write_all(format!("{words}\n").as_bytes())
    }
}

impl Drop for CleanupProcess {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // However it ended, it is gone.
        let _ = self.0.wait();
    }
}

/// The cleanup process itself: reads until all writers have closed the pipe, then removes what they named.
pub(crate) fn keep(folder: &Path) {
    let node = folder.join("device");
    let (mut connection, mut loop_device) = (None, None);
    for line in io::stdin().lines().map_while(Result::ok) {
        match line.split_once(' ') {
            Some(("loop", device)) => loop_device = Some(device.to_owned()),
            // The server may be killed before it answers this: then it is an error at once.
            _ => connection = fs::metadata(&node).ok().map(|meta| minor(meta.dev())),
        }
    }
    if let Some(connection) = connection {
        abort(connection);
    }
    // What is in use goes as soon as it is not.
    let _ = unmount(folder.join("mnt"), UnmountFlags::DETACH);
    if let Some(device) = loop_device {
        let _ = run(Command::new("losetup").args(["--detach", &device]));
    }
    let _ = unmount(&node, UnmountFlags::DETACH);
    let _ = fs::remove_dir_all(folder);
}

/// As makedev(3) has it.
fn minor(device: u64) -> u64 {
    device & 0xff | device >> 12 & 0xfff_ff00
}

/// Aborts a FUSE connection: every waiting request gets an error. The number is ours as long as the device is mounted.
fn abort(connection: u64) {
    let control = Path::new(CONNECTIONS);
    if !control.join(connection.to_string()).is_dir() {
        // In this name space only, like all our mounts.
        let _ = mount("none", control, "fusectl", MountFlags::empty(), c"");
    }
    let _ = fs::write(control.join(connection.to_string()).join("abort"), "1");
}
