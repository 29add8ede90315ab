//! The directories of the daemon: what stands in the place of one.

use super::{Check, spool::section_of};
use crate::{load::Purpose, settings::Settings};
use std::path::Path;

impl Check<'_, '_> {
    /// The daemon makes its directories, unless something else has the name of one.
    pub(super) fn folders(&mut self, s: &Settings) {
        if self.purpose != Purpose::Serve {
            return;
        }
        self.own_folder("data_dir", &s.data_dir);
        self.own_folder("spool.path", &s.spool.path);
        s.spool.content_path.iter().for_each(|path| self.own_folder("spool.content_path", path));
        for (number, group) in s.queue_groups.iter().enumerate() {
            if let Some(own) = &group.spool {
                let spool = own.beside(&s.spool);
                self.own_folder(&format!("{}.path", section_of(number)), &spool.path);
            }
        }
        if s.history.enabled {
            self.own_folder("history.path", &s.history.path);
        }
        if s.acme.is_used() {
            self.own_folder("data_dir", &s.data_dir.join("acme"));
        }
        self.own_folder("control.maildrop", &s.control.maildrop);
        self.drop_directory(s);
    }

    fn own_folder(&mut self, key: &str, folder: &Path) {
        let Some(found) = occupant(folder) else { return };
        let blamed = if self.is_set(key) { key } else { "data_dir" };
        let what = format!("{} is {found}, and the daemon has a directory there", folder.display());
        self.problem(blamed, what, "no directory", "remove it or move it away, or name another directory");
    }

    /// The drop directory is opened to everybody: no link below `data_dir` is followed to it.
    fn drop_directory(&mut self, s: &Settings) {
        let folder = &s.control.maildrop;
        if folder.starts_with(&s.data_dir) && folder.is_symlink() && folder.is_dir() {
            let blamed = if self.is_set("control.maildrop") { "control.maildrop" } else { "data_dir" };
            let what = format!("the drop directory {} is a symbolic link", folder.display());
            let help = "remove the link: the daemon makes the directory; or write the path that the link leads to as \
                        `maildrop` in [control]";
            self.problem(blamed, what, "a link that anybody might have made", help);
        }
    }
}

/// Returns what has the name of a directory and is none; none if there is nothing, or what cannot be looked at.
fn occupant(folder: &Path) -> Option<String> {
    let found = folder.symlink_metadata().ok()?;
    if folder.is_dir() {
        return None;
    }
    Some(if found.is_symlink() {
        match folder.read_link() {
            Ok(target) => format!("a symbolic link to {}, where no directory is", target.display()),
            Err(_) => "a symbolic link that leads to no directory".to_owned(),
        }
    } else if found.is_file() {
        "a file".to_owned()
    } else {
        "no directory".to_owned()
    })
}
