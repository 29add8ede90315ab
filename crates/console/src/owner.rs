//! Commands of root that write into a spool run as the daemon's user: the daemon must be able to open the files.

use crate::CliError;
use config::Settings;
use control::Exit;
use rustix::{
    io,
    process::geteuid,
    thread::{Gid, Uid, set_thread_groups, set_thread_res_gid, set_thread_res_uid},
};
use std::{os::unix::fs::MetadataExt as _, path::Path};
use submission::sendmail::user_name;

/// Takes on user and groups of the owner of `data_dir`. Threads that begin later have them, too; so this
/// comes before any does.
pub fn become_owner(settings: &Settings) -> Result<(), CliError> {
    become_owner_of(&settings.data_dir)
}

/// Takes on user and groups of the owner of a folder, as [`become_owner`] does.
pub fn become_owner_of(dir: &Path) -> Result<(), CliError> {
    // Without the folder there is no daemon yet that could be kept out.
    let Ok(owner) = dir.metadata() else { return Ok(()) };
    if !geteuid().is_root() || owner.uid() == 0 {
        return Ok(());
    }
    let name = user_name(owner.uid());
    // Sockets of next hops and Maildirs may be open to a group only.
    let groups = name.as_deref().map_or(Ok(Vec::new()), machine::accounts::groups_of).map_err(|failed| {
        let (dir, name) = (dir.display(), name.as_deref().unwrap_or_default());
        CliError::new(Exit::TempFail, format!("find the groups of {name}, the owner of {dir}: {failed}"))
    })?;
    take_on(owner.uid(), owner.gid(), &groups).map_err(|e| {
        let (dir, name) = (dir.display(), name.unwrap_or_else(|| format!("#{}", owner.uid())));
        let text =
            format!("become {name}, the owner of {dir}: {e}: write `runuser -u {name} -- postrider …`");
        CliError::new(Exit::NoPerm, text)
    })
}

fn take_on(uid: u32, gid: u32, more: &[u32]) -> io::Result<()> {
    let groups: Vec<Gid> = std::iter::once(&gid).chain(more).copied().map(Gid::from_raw).collect();
    set_thread_groups(&groups)?;
    let (uid, gid) = (Uid::from_raw(uid), groups[0]);
    set_thread_res_gid(gid, gid, gid)?;
    set_thread_res_uid(uid, uid, uid)
}
