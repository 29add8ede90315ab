//! Commands of root that write into a spool run as the daemon's user: the daemon must be able to open the files.

use super::CliError;
use config::Settings;
use control::Exit;
use rustix::{
    io,
    process::geteuid,
    thread::{Gid, Uid, set_thread_groups, set_thread_res_gid, set_thread_res_uid},
};
use std::{fs, os::unix::fs::MetadataExt as _};
use submission::sendmail::user_name;

/// Takes on user and groups of the owner of `data_dir`. Threads that begin later have them, too; so this
/// comes before any does.
pub(super) fn become_owner(settings: &Settings) -> Result<(), CliError> {
    // Without the folder there is no daemon yet that could be kept out.
    let Ok(owner) = settings.data_dir.metadata() else { return Ok(()) };
    if !geteuid().is_root() || owner.uid() == 0 {
        return Ok(());
    }
    let name = user_name(owner.uid());
    take_on(owner.uid(), owner.gid(), name.as_deref()).map_err(|e| {
        let (dir, name) = (settings.data_dir.display(), name.unwrap_or_else(|| format!("#{}", owner.uid())));
        let text =
            format!("become {name}, the owner of {dir}: {e}: write `runuser -u {name} -- postrider …`");
        CliError::new(Exit::NoPerm, text)
    })
}

fn take_on(uid: u32, gid: u32, name: Option<&str>) -> io::Result<()> {
    let mut groups = vec![Gid::from_raw(gid)];
    if let Some(name) = name {
        // Sockets of next hops and Maildirs may be open to a group only.
        let all = fs::read_to_string("/etc/group").unwrap_or_default();
        groups.extend(groups_of(&all, name).map(Gid::from_raw));
    }
    set_thread_groups(&groups)?;
    let (uid, gid) = (Uid::from_raw(uid), groups[0]);
    set_thread_res_gid(gid, gid, gid)?;
    set_thread_res_uid(uid, uid, uid)
}

/// Returns the groups that name the user: group(5).
fn groups_of(all: &str, user: &str) -> impl Iterator<Item = u32> {
    all.lines().filter_map(move |line| {
        let fields: Vec<&str> = line.split(':').collect();
        let [_, _, number, members] = fields[..] else { return None };
        members.split(',').find(|member| *member == user).and_then(|_| number.parse().ok())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_users_groups_are_those_that_name_it() {
        let all = "root:x:0:\nmail:x:8:bob,postrider\nbad line\nbobs:x:9:bobby\ntls:x:10:postrider\n";
        assert_eq!(groups_of(all, "postrider").collect::<Vec<_>>(), [8, 10]);
        assert_eq!(groups_of(all, "nobody").count(), 0);
    }
}
