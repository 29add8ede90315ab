//! Programs of a package that is unpacked by itself, with `/usr` and `/etc` laid over those of the machine.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// A package, and a directory for what it finds in `/etc`.
pub struct Tree {
    usr: Vec<PathBuf>,
    etc: PathBuf,
    /// Directories in place of those of the machine, such as `/var`.
    binds: Vec<(PathBuf, &'static str)>,
}

impl Tree {
    /// Returns the package with the users of the machine and more; `None` where it cannot be used.
    pub fn new(package: &str, etc: PathBuf, users: &[(&str, &str)]) -> Option<Self> {
        let usr = vec![super::unpacked(package)?.join("usr")];
        if !rustix::process::geteuid().is_root() {
            println!("SKIPPED: {package} is started by root only");
            return None;
        }
        fs::create_dir_all(&etc).unwrap();
        for (name, line) in users {
            let file = etc.join(name);
            let text =
                fs::read_to_string(&file).or_else(|_| fs::read_to_string(format!("/etc/{name}"))).unwrap();
            // In front: the machine may have a user of that name, with another number.
            fs::write(&file, format!("{line}{text}")).unwrap();
        }
        let tree = Self { usr, etc, binds: Vec::new() };
        if !tree.command("true").status().is_ok_and(|status| status.success()) {
            println!("SKIPPED: {package}: no file system may be laid over /usr and /etc here");
            return None;
        }
        Some(tree)
    }

    /// Adds a directory that programs see in place of one of the machine.
    #[must_use]
    pub fn with_dir(mut self, dir: PathBuf, place: &'static str) -> Self {
        fs::create_dir_all(&dir).unwrap();
        self.binds.push((dir, place));
        self
    }

    /// Adds a directory whose files programs see below `/usr`.
    #[must_use]
    pub fn with_usr(mut self, dir: PathBuf) -> Self {
        fs::create_dir_all(&dir).unwrap();
        self.usr.insert(0, dir);
        self
    }

    /// Returns a command that sees the package. Its number is that of the program.
    pub fn command(&self, program: &str) -> Command {
        let usr: Vec<String> = self.usr.iter().map(|dir| dir.display().to_string()).collect();
        let mut script = format!(
            "mount -t overlay overlay -o 'lowerdir={}:/usr' /usr && mount -t overlay overlay -o 'lowerdir={}:/etc' /etc && ",
            usr.join(":"),
            self.etc.display()
        );
        for (dir, place) in &self.binds {
            script += &format!("mount --bind '{}' {place} && ", dir.display());
        }
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", &format!("{script}exec \"$@\""), "sh", program]);
        command
    }

    pub fn etc(&self) -> &Path {
        &self.etc
    }
}
