//! -R and -u: the smaller world a privileged sink moves to once it listens.

use rustix::{
    process::{Gid, Uid},
    thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid},
};
use std::{io, path::Path};

/// Changes the root directory, then the user. Called while the process has one thread: credentials
/// belong to a thread in Linux, and later ones inherit them.
pub(crate) fn drop(root: Option<&Path>, user: Option<&str>) -> Result<(), String> {
    // Inside the new root there may be no /etc/passwd.
    let ids = user.map(ids_of).transpose()?;
    if let Some(root) = root {
        let entered = rustix::process::chroot(root).and_then(|()| rustix::process::chdir("/"));
        entered.map_err(|e| {
            format!("change the root directory to {}: {}", root.display(), io::Error::from(e))
        })?;
    }
    if let Some((uid, gid)) = ids {
        let changed = set_thread_groups(&[gid])
            .and_then(|()| set_thread_res_gid(gid, gid, gid))
            .and_then(|()| set_thread_res_uid(uid, uid, uid));
        changed.map_err(|e| format!("become user {}: {}", user.unwrap_or_default(), io::Error::from(e)))?;
    }
    Ok(())
}

fn ids_of(user: &str) -> Result<(Uid, Gid), String> {
    let passwd = std::fs::read_to_string("/etc/passwd").map_err(|e| format!("read /etc/passwd: {e}"))?;
    find(&passwd, user).ok_or_else(|| format!("become user {user}: no such user in /etc/passwd"))
}

fn find(passwd: &str, user: &str) -> Option<(Uid, Gid)> {
    let fields = passwd.lines().map(|l| l.split(':').collect::<Vec<_>>()).find(|f| f[0] == user)?;
    Some((Uid::from_raw(fields.get(2)?.parse().ok()?), Gid::from_raw(fields.get(3)?.parse().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_its_whole_name() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65533::/:/bin/false\n";
        let ids = find(passwd, "nobody").unwrap();
        assert_eq!((ids.0.as_raw(), ids.1.as_raw()), (65534, 65533));
        assert!(find(passwd, "no").is_none());
    }
}
