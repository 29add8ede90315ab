//! Programs of a package that is unpacked by itself, with `/usr` and `/etc` laid over those of the machine.

use super::common;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// A package, and a directory for what it finds in `/etc`.
pub(crate) struct Tree {
    usr: PathBuf,
    etc: PathBuf,
}

impl Tree {
    /// Returns the package with the users of the machine and more; `None` where it cannot be used.
    pub(crate) fn new(package: &str, etc: PathBuf, users: &[(&str, &str)]) -> Option<Self> {
        let usr = common::unpacked(package)?.join("usr");
        if !rustix::process::geteuid().is_root() {
            println!("SKIPPED: {package} is started by root only");
            return None;
        }
        fs::create_dir_all(&etc).unwrap();
        for (name, line) in users {
            let file = etc.join(name);
            let text =
                fs::read_to_string(&file).or_else(|_| fs::read_to_string(format!("/etc/{name}"))).unwrap();
            fs::write(&file, text + line).unwrap();
        }
        let tree = Self { usr, etc };
        if !tree.command("true").status().is_ok_and(|status| status.success()) {
            println!("SKIPPED: {package}: no file system may be laid over /usr and /etc here");
            return None;
        }
        Some(tree)
    }

    /// Returns a command that sees the package. Its number is that of the program.
    pub(crate) fn command(&self, program: &str) -> Command {
        let script = "mount -t overlay overlay -o \"lowerdir=$0:/usr\" /usr && shift 0 && etc=$1 && shift && \
                      mount -t overlay overlay -o \"lowerdir=$etc:/etc\" /etc && exec \"$@\"";
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", script]).arg(&self.usr).arg(&self.etc).arg(program);
        command
    }

    pub(crate) fn etc(&self) -> &Path {
        &self.etc
    }
}
