//! A file system whose device answers EIO when told to: nbdkit serves an image with its error filter,
//! nbdfuse makes a file of it, and a loop device over that file is mounted. Both programs go with the name
//! space of processes that `cargo xtask eio` starts us in, and the loop device goes with its mount.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

const SIZE: u64 = 128 << 20;
pub(crate) struct Device {
    folder: PathBuf,
    servers: Vec<Child>,
}

impl Device {
    /// Makes the device and a new ext4 on it. What is missing on this machine, in words.
    pub(crate) fn new(folder: &Path) -> Result<Self, String> {
        let mut device = Self { folder: folder.to_owned(), servers: Vec::new() };
        device.make().map(|()| device)
    }

    fn make(&mut self) -> Result<(), String> {
        let [image, socket, node] = ["image", "socket", "device"].map(|name| self.folder.join(name));
        let made = fs::File::create(&image).and_then(|file| file.set_len(SIZE));
        made.and_then(|()| fs::create_dir(self.at())).map_err(|e| format!("make an image: {e}"))?;
        run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image))?;
        let errors = self.folder.join("errors");
        let mut server = Command::new("nbdkit");
        server.args(["--foreground", "--exit-with-parent", "--unix"]).arg(&socket).arg("--filter=error");
        server.arg("file").arg(&image);
        for request in ["pwrite", "zero", "trim"] {
            server.args([format!("error-{request}=EIO"), format!("error-{request}-rate=100%")]);
            server.arg(format!("error-{request}-file={}", errors.display()));
        }
        self.serve(&mut server, || socket.exists())?;
        fs::write(&node, "").map_err(|e| format!("make the device's file: {e}"))?;
        let address = format!("nbd+unix:///?socket={}", socket.display());
        let is_there = || fs::metadata(&node).is_ok_and(|meta| meta.len() == SIZE);
        self.serve(Command::new("nbdfuse").arg(&node).arg(address), is_there)?;
        self.mount()
    }

    /// Starts one of the programs and waits until it is of use.
    fn serve(&mut self, program: &mut Command, is_there: impl Fn() -> bool) -> Result<(), String> {
        let name = program.get_program().to_string_lossy().into_owned();
        // It tells of each error it makes.
        let child = program.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        self.servers.push(child.map_err(|e| format!("{name}: {e}"))?);
        let until = Instant::now() + crate::client::WAIT_TIMEOUT;
        while !is_there() {
            let last = self.servers.last_mut().expect("pushed");
            if Instant::now() > until || last.try_wait().is_ok_and(|ended| ended.is_some()) {
                return Err(format!("{name}: it does not serve"));
            }
            std::thread::park_timeout(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Returns the mount point.
    pub(crate) fn at(&self) -> PathBuf {
        self.folder.join("mnt")
    }

    /// From now on each write fails, or none does.
    pub(crate) fn fail(&self, fails: bool) -> io::Result<()> {
        let file = self.folder.join("errors");
        if fails { fs::write(file, "") } else { fs::remove_file(file) }
    }

    /// Mounts it anew, which replays its journal: nothing that was only in memory is left.
    pub(crate) fn remount(&self) -> Result<(), String> {
        run(Command::new("umount").arg(self.at()))?;
        self.mount()
    }

    fn mount(&self) -> Result<(), String> {
        let mut mount = Command::new("mount");
        run(mount.args(["-t", "ext4", "-o", "loop,noatime"]).arg(self.folder.join("device")).arg(self.at()))
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let _ = run(Command::new("umount").arg(self.at()));
        for server in self.servers.iter_mut().rev() {
            let _ = server.kill();
            let _ = server.wait();
        }
        let _ = run(Command::new("umount").arg(self.folder.join("device")));
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let ended = command.output().map_err(|e| format!("{name}: {e}"))?;
    let said = || String::from_utf8_lossy(&ended.stderr).trim().to_owned();
    if ended.status.success() { Ok(()) } else { Err(format!("{name}: {}", said())) }
}
