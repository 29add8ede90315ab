//! The machine as a reader of configurations sees it.

use machine::accounts::{services_in, user_of_line};
use std::path::Path;

/// The map of all users of a machine.
pub(crate) const ALL_USERS: &str = "accounts:nss";

/// Files that a configuration names.
pub trait Files {
    /// Returns the content of a file; `None` if there is no such file or it cannot be read.
    fn read(&self, path: &Path) -> Option<Vec<u8>>;

    /// Returns whether there is such a file.
    fn exists(&self, path: &Path) -> bool {
        self.read(path).is_some()
    }

    /// Returns the names of the files of a directory, in their order; none if it cannot be read.
    fn list(&self, _dir: &Path) -> Vec<String> {
        Vec::new()
    }

    /// Returns the host name of the machine that the files are from.
    fn machine(&self) -> String {
        "localhost".to_owned()
    }

    /// Returns the names of the users of the machine, each once: of two lines with a name, the system sees the first.
    fn users(&self) -> Vec<String> {
        let passwd = self.read(Path::new("/etc/passwd")).unwrap_or_default();
        let passwd = String::from_utf8_lossy(&passwd).into_owned();
        let mut users: Vec<String> = Vec::new();
        for user in passwd.lines().filter_map(user_of_line) {
            if !users.contains(&user.name) {
                users.push(user.name);
            }
        }
        users
    }

    /// Returns whether the machine has users whom `/etc/passwd` lacks: `/etc/nsswitch.conf` names SSSD, LDAP or the like.
    fn has_further_users(&self) -> bool {
        let switch = self.read(Path::new("/etc/nsswitch.conf")).unwrap_or_default();
        let services = services_in(&String::from_utf8_lossy(&switch), "passwd");
        // Every machine has systemd; its users are none who get mail.
        services.iter().any(|service| service != "systemd")
    }

    /// Returns the map of all users of the machine.
    fn user_map(&self) -> &'static str {
        if self.has_further_users() { ALL_USERS } else { "accounts:/etc/passwd" }
    }

    /// Returns what this build of Postrider can do.
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }
}

/// Which kinds of named maps the build can open.
#[derive(Debug, Clone, Copy, Default)]
pub struct Capabilities {
    /// Cargo feature `sqlite`.
    pub sqlite: bool,
    /// Cargo feature `postgres`.
    pub postgres: bool,
    /// Cargo feature `mysql`.
    pub mysql: bool,
    /// Cargo feature `ldap`.
    pub ldap: bool,
}

/// Files of which none exists.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoFiles;

impl Files for NoFiles {
    fn read(&self, _path: &Path) -> Option<Vec<u8>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory_files::MemoryFiles;

    #[test]
    fn a_user_with_two_lines_is_one_user() {
        const FILES: &[(&str, &str)] =
            &[("/etc/passwd", "root:x:0:0::/root:\njoe:x:1:1::/:\n#bob:x:2:2::/:\n\njoe:x:3:3::/:\n")];
        assert_eq!(MemoryFiles(FILES).users(), ["root", "joe"]);
    }
}
