//! `[process]`: the user of the daemon, and what its process may do.

use crate::{
    account::{Group, User},
    choice::SandboxMode,
    section::section,
};
use std::path::PathBuf;

section! {
    /// The daemon's process: its user, and what it may do. Changes need a restart. docs/operating.md explains what the
    /// daemon does when it starts, and what the sandbox permits.
    pub Process = "process" {
        /// The user that the daemon becomes, for good, when root starts it: a name, or a number. As root it only binds its
        /// sockets, creates `data_dir` and log files if they are missing, and reads certificates and keys. If root starts
        /// the daemon without this key, it runs as root and warns about it. Other users cannot become another user: if one
        /// of them starts the daemon, leave the key out, or name that user.
        user: Option<User> = "",
        /// The group of the process. Default: the group of `user`, and the groups that have this user as a member.
        group: Option<Group> = "",
        /// The sandbox: Landlock for files and TCP ports, seccomp for system calls. With `enforce`, whatever is not
        /// permitted fails, and the daemon does not start if the kernel lacks either of them. `log` permits everything,
        /// and the kernel's audit log records the system calls that `enforce` would refuse. Without this key, the sandbox
        /// works as with `enforce`, but the daemon only warns about what the kernel lacks, and starts.
        sandbox: Option<SandboxMode> = "",
        /// Further directories that the daemon may read and write: those that symbolic links of Maildirs lead to, or that
        /// a later reload will need. Everything that the configuration names is permitted already.
        extra_paths: Vec<PathBuf> = "[]",
        /// Further TCP ports that the daemon may connect to, for routes and servers that a later reload will add. Port 25
        /// (`delivery.mx_port`), 53, and the ports that the configuration names are permitted already.
        extra_ports: Vec<u16> = "[]",
        /// The lowest uid as which mail is delivered into Maildirs and files, and programs are run (`user` in
        /// `[[route]]`): system users have lower ones. Mail for root is never delivered as root. The daemon's own user is
        /// permitted.
        min_uid: u32 = "1000",
        /// The highest uid below 65536 of a user who has a mailbox, if the recipient names the user (`{local}`). The uids
        /// from 60000 to 65535 belong to packages and to nobody (Debian Policy 9.2.2); those from 65536 on are ordinary
        /// users again.
        max_uid: u32 = "59999",
    }
}

/// The numbers of accounts that a distribution keeps for no one but its packages (Debian Policy 9.2.2). The last two of all are
/// nobody's: system calls use -1 for "no user", and NFS -2 for one that it does not know.
const RESERVED_MAX: u32 = 65_535;
const LAST_ACCOUNT: u32 = u32::MAX - 2;

impl Process {
    /// Returns whether the account with a number is a person's, so that mail for its name has a mailbox: not root's, not one of the
    /// system, not nobody's, and not the daemon's own.
    pub fn has_mailbox(&self, uid: u32) -> bool {
        let is_own = self.user.as_ref().is_some_and(|user| user.uid == uid);
        let is_reserved = uid > self.max_uid && uid <= RESERVED_MAX;
        !is_own && self.may_deliver_as(uid) && !is_reserved
    }

    /// Returns whether mail may be delivered as the user with a number: never as root, and as a user of the system only if
    /// it is the daemon's.
    pub fn may_deliver_as(&self, uid: u32) -> bool {
        let is_own = self.user.as_ref().is_some_and(|user| user.uid == uid);
        uid != 0 && uid <= LAST_ACCOUNT && (uid >= self.min_uid || is_own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_of_persons_have_a_mailbox_and_those_of_the_system_have_none() {
        let user = User { name: "vmail".to_owned(), uid: 5000, gid: 5000, home: "/".into() };
        let process = Process {
            user: Some(user),
            group: None,
            sandbox: None,
            extra_paths: Vec::new(),
            extra_ports: Vec::new(),
            min_uid: 1000,
            max_uid: 59_999,
        };
        for (uid, has_mailbox) in [
            (0, false),
            (33, false),
            (999, false),
            (1000, true),
            (5000, false),
            (59_999, true),
            (60_000, false),
            (65_535, false),
            (65_536, true),
            (65_534, false),
            (u32::MAX - 2, true),
            (u32::MAX - 1, false),
            (u32::MAX, false),
        ] {
            assert_eq!(process.has_mailbox(uid), has_mailbox, "{uid}");
        }
        // A route may name them all the same.
        assert!(process.may_deliver_as(5000) && process.may_deliver_as(65_534));
    }
}
