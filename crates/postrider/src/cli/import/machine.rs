//! Files and names of this machine, for a reader of configurations.

use import::{Capabilities, Files};
use std::{fs, path::Path};

/// Reads the files of another server where they usually are.
pub(super) struct Machine;

/// No file of a configuration is larger.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// The machine, on which a folder takes the place of the usual one of a server: a configuration that was copied.
pub(super) struct Copied<'d> {
    pub(super) usual: &'static str,
    pub(super) dir: &'d Path,
}

impl Files for Copied<'_> {
    fn read(&self, path: &Path) -> Option<Vec<u8>> {
        // What is not in the folder is not of that server.
        match path.strip_prefix(self.usual) {
            Ok(below) => Machine.read(&self.dir.join(below)),
            Err(_) => Machine.read(path),
        }
    }

    fn list(&self, dir: &Path) -> Vec<String> {
        match dir.strip_prefix(self.usual) {
            Ok(below) => Machine.list(&self.dir.join(below)),
            Err(_) => Machine.list(dir),
        }
    }

    fn machine(&self) -> String {
        Machine.machine()
    }

    fn capabilities(&self) -> Capabilities {
        Machine.capabilities()
    }
}

impl Files for Machine {
    fn read(&self, path: &Path) -> Option<Vec<u8>> {
        let is_file = |found: &fs::Metadata| found.is_file() && found.len() <= FILE_BYTES_MAX;
        fs::metadata(path).ok().filter(is_file)?;
        fs::read(path).ok()
    }

    fn exists(&self, path: &Path) -> bool {
        maps::open(path).is_ok()
    }

    fn list(&self, dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort_unstable();
        names
    }

    fn machine(&self) -> String {
        let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
        if name.is_empty() { "localhost".to_owned() } else { name.to_lowercase() }
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            sqlite: cfg!(feature = "sqlite"),
            postgres: cfg!(feature = "postgres"),
            mysql: cfg!(feature = "mysql"),
            ldap: cfg!(feature = "ldap"),
        }
    }
}
