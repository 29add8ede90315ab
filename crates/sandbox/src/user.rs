//! The change from root to the user of the daemon, for good.

use config::{Group, User};
use machine::accounts::groups_of;
use rustix::{
    io::Errno,
    process::{geteuid, getuid},
    thread::{
        CapabilitySet, CapabilitySets, Gid, Uid, capabilities, clear_ambient_capability_set,
        set_capabilities, set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
    },
};
use std::{fmt, fs, io};

/// A user with its groups, as a process has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// For messages.
    pub name: Box<str>,
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Ids of the supplementary groups.
    pub groups: Vec<u32>,
}

impl Identity {
    /// Returns the user with this group, or with its own, and with the groups that have it as a member.
    ///
    /// # Errors
    /// The groups cannot be found out now, in words.
    pub fn of(user: &User, group: Option<&Group>) -> Result<Self, String> {
        Self::with_gid(&user.name, user.uid, group.map_or(user.gid, |group| group.gid))
    }

    /// Returns the user with this group, and with the groups that have it as a member.
    ///
    /// # Errors
    /// As [`Identity::of`].
    pub fn with_gid(user: &str, uid: u32, gid: u32) -> Result<Self, String> {
        let mut groups =
            groups_of(user).map_err(|failed| format!("find the groups of the user {user}: {failed}"))?;
        groups.retain(|one| *one != gid);
        groups.insert(0, gid);
        Ok(Self { name: user.into(), uid, gid, groups })
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (user {}, group {})", self.name, self.uid, self.gid)
    }
}

/// Takes on a user for good: its groups, its group, the user, without capabilities, and without a way back. A process that is
/// this user already keeps its groups.
///
/// # Errors
/// The step that failed and the system's reason, for the log. The process must end: it may have changed in part.
pub fn become_user(identity: &Identity) -> Result<(), String> {
    let failed = |doing: &'static str| {
        let identity = identity.to_string();
        move |e: Errno| format!("become {identity}: {doing}: {}", io::Error::from(e))
    };
    let (uid, gid) = (Uid::from_raw(identity.uid), Gid::from_raw(identity.gid));
    if getuid() == uid && geteuid() == uid {
        return forbid_new_privileges();
    }
    // The kernel's calls concern one thread: a second one would stay root.
    let threads = fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
    if threads != 1 {
        return Err(format!("become {identity}: the process has {threads} threads already"));
    }
    let groups: Vec<Gid> = identity.groups.iter().copied().map(Gid::from_raw).collect();
    set_thread_groups(&groups).map_err(failed("set its groups"))?;
    set_thread_res_gid(gid, gid, gid).map_err(failed("set its group"))?;
    set_thread_res_uid(uid, uid, uid).map_err(failed("set its user"))?;
    drop_capabilities().map_err(failed("drop capabilities"))?;
    forbid_new_privileges()?;
    // Trying is the only proof.
    let root = Uid::ROOT;
    if getuid() != uid || geteuid() != uid || set_thread_res_uid(root, root, root).is_ok() {
        return Err(format!("become {identity}: the process can become root again"));
    }
    Ok(())
}

/// Drops all capabilities: those that systemd or an operator gave the process to bind its ports.
///
/// # Errors
/// As capset(2).
pub fn drop_capabilities() -> Result<(), Errno> {
    let none = CapabilitySet::empty();
    // A kernel without them has none to clear.
    let _ = clear_ambient_capability_set();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
}

/// Keeps, of the capabilities of root, those to become other users, to end their processes, to read a configuration that
/// belongs to the daemon's user, and, where the process has it, to open the ports of new listeners.
///
/// # Errors
/// A line for the log if the kernel refuses, such as `drop capabilities: Operation not permitted (os error 1)`.
pub fn keep_user_capabilities() -> Result<(), String> {
    let needed =
        CapabilitySet::SETUID | CapabilitySet::SETGID | CapabilitySet::KILL | CapabilitySet::DAC_READ_SEARCH;
    let own = capabilities(None).map_or(CapabilitySet::empty(), |own| own.permitted);
    let kept = needed | (own & CapabilitySet::NET_BIND_SERVICE);
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    set_capabilities(None, sets).map_err(|e| format!("drop capabilities: {}", io::Error::from(e)))
}

/// Forbids this process and those that it starts to gain rights by a program with a set-user-id bit.
///
/// # Errors
/// A line for the log if the kernel refuses `PR_SET_NO_NEW_PRIVS`.
pub fn forbid_new_privileges() -> Result<(), String> {
    set_no_new_privs(true).map_err(|e| format!("forbid new privileges: {}", io::Error::from(e)))
}
