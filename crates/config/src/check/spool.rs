//! `[spool]` and the spools of queue groups: what their backends can do with them.

use super::Check;
use crate::{
    Placement,
    choice::Backend,
    settings::{Settings, Spool},
    units::ByteSize,
};
use std::path::Path;

/// A part of content in the spool has a 32-bit length.
const SEGMENT_MAX: ByteSize = ByteSize(1 << 30);
const SEGMENT_MIN: ByteSize = ByteSize(1 << 20);
/// More only makes the start slow: long before, there is one for every message that is being written.
const DIRECTORIES_MAX: usize = 200;
/// Levels of sixteen directories.
const HASH_DEPTH_MAX: u32 = 2;

impl Check<'_, '_> {
    pub(super) fn spool(&mut self, s: &Settings) {
        self.one_spool("spool", &s.spool);
        for (number, group) in s.queue_groups.iter().enumerate() {
            if let Some(own) = &group.spool {
                self.one_spool(&section_of(number), &own.beside(&s.spool));
            }
        }
        if s.spools().iter().any(|spool| spool.backend == Backend::Log) {
            self.segments(&s.spool);
        }
        self.apart(s);
    }

    /// Problems with what a queue group takes over from `[spool]` are reported there.
    fn is_own(&self, section: &str, key: &str) -> bool {
        section == "spool" || self.is_set(&format!("{section}.{key}"))
    }

    fn one_spool(&mut self, section: &str, s: &Spool) {
        match s.backend {
            Backend::Log => self.log_engine(section, s),
            Backend::QueueDirs => self.directories(section, s),
            Backend::Null if cfg!(feature = "lab") || !self.is_own(section, "backend") => {}
            Backend::Null => {
                let what = "the backend \"null\" keeps nothing".to_owned();
                let help = "write \"log\" or \"queue-dirs\"";
                self.problem(&format!("{section}.backend"), what, "not in this build", help);
            }
        }
    }

    fn segments(&mut self, s: &Spool) {
        self.at_least("spool.segment_size", &s.segment_size, &SEGMENT_MIN);
        if s.segment_size > SEGMENT_MAX {
            let help = format!("write {SEGMENT_MAX} or less");
            self.problem("spool.segment_size", "`spool.segment_size` is too large".to_owned(), "", &help);
        }
        // Two segments are the reserve for outcomes, one is written, one prepared; and before the log is
        // cleaned, messages that stay long may hold as many again.
        let least = ByteSize(s.segment_size.0.saturating_mul(8));
        if s.max_size.0 != 0 && s.max_size < least {
            let help = format!("write \"{least}\" or more, or 0");
            let what = "`spool.max_size` is too small".to_owned();
            self.problem("spool.max_size", what, "less than eight segments", &help);
        }
    }

    fn log_engine(&mut self, section: &str, s: &Spool) {
        let differs = [
            ("directories", s.directories != 1),
            ("placement", s.placement != Placement::RoundRobin),
            ("hash_depth", s.hash_depth != 0),
            ("content_path", s.content_path.is_some()),
        ];
        for (key, differs) in differs {
            let is_unused = if section == "spool" { differs } else { self.is_own(section, key) };
            if is_unused && !self.has_failed(&format!("{section}.backend")) {
                let what = format!("`{section}.{key}` is not used");
                let help = "write backend = \"queue-dirs\"";
                self.problem(&format!("{section}.{key}"), what, "the backend is \"log\"", help);
            }
        }
        if let Some(Star::One) = star_at(&s.path) {
            let what = "the log needs one directory, not a pattern".to_owned();
            let help = "write backend = \"queue-dirs\", or a path";
            self.problem(&format!("{section}.path"), what, "has a `*`", help);
        }
    }

    fn directories(&mut self, section: &str, s: &Spool) {
        let [directories, hash_depth, path] =
            ["directories", "hash_depth", "path"].map(|key| format!("{section}.{key}"));
        if self.is_own(section, "directories") {
            self.at_least(&directories, &s.directories, &1);
            if s.directories > DIRECTORIES_MAX {
                let help = format!("write {DIRECTORIES_MAX} or less");
                self.problem(&directories, format!("`{directories}` is too large"), "", &help);
            }
        }
        if s.hash_depth > HASH_DEPTH_MAX && self.is_own(section, "hash_depth") {
            let help = "write 0, 1 (16 directories below each) or 2 (256)";
            self.problem(&hash_depth, format!("`{hash_depth}` is too large"), "", help);
        }
        match star_at(&s.path) {
            Some(Star::One) if s.directories != 1 && self.is_own(section, "directories") => {
                let what = format!("`{directories}` is not used");
                let label = "`path` is a pattern, which names them";
                self.problem(&directories, what, label, "leave one of the two out");
            }
            Some(Star::Elsewhere) => {
                let what = format!("`{path}` is not a pattern for queue directories");
                let label = "one `*`, in the last part of the path";
                self.problem(&path, what, label, "write \"/var/spool/postrider/q*\"");
            }
            _ => {}
        }
    }

    /// Each file belongs to one spool.
    fn apart(&mut self, s: &Settings) {
        let own = s.queue_groups.iter().enumerate();
        let own = own.filter(|(_, group)| group.spool.is_some()).map(|(number, _)| section_of(number));
        let sections: Vec<String> = std::iter::once("spool".to_owned()).chain(own).collect();
        let paths: Vec<_> = s.spools().into_iter().map(|spool| spool.path).collect();
        let inside = |content: &Path| paths.iter().find(|path| overlap(path, content));
        if let Some(path) = s.spool.content_path.as_deref().and_then(inside) {
            let what = "`spool.content_path` is in the directory of a spool".to_owned();
            let label = format!("that is {}", path.display());
            self.problem("spool.content_path", what, &label, "name a directory outside of it");
        }
        for later in 1..paths.len() {
            let Some(earlier) = (0..later).find(|earlier| overlap(&paths[*earlier], &paths[later])) else {
                continue;
            };
            let [first, second] = [earlier, later].map(|at| format!("{}.path", sections[at]));
            // A path that nobody wrote is only wrong through one that somebody did.
            let (blamed, other) = if self.is_set(&second) { (second, earlier) } else { (first, later) };
            let what = format!("two spools use {}", paths[later].display());
            let label = format!("that of `{}` is {}", sections[other], paths[other].display());
            self.problem(&blamed, what, &label, "give each its own directory, none inside another");
        }
    }
}

pub(super) fn section_of(group: usize) -> String {
    format!("queue_group[{group}]")
}

/// Could a file belong to both? A pattern stands for all that it could name.
fn overlap(a: &Path, b: &Path) -> bool {
    let (a, b): (Vec<_>, Vec<_>) = (a.components().collect(), b.components().collect());
    a.iter().zip(&b).all(|(a, b)| match (a.as_os_str().to_str(), b.as_os_str().to_str()) {
        (Some(a), Some(b)) => may_be_one(a, b),
        _ => a == b,
    })
}

/// Returns whether a name can match both parts of a path.
fn may_be_one(a: &str, b: &str) -> bool {
    let (a, b) = match (a.split_once('*'), b.split_once('*')) {
        (None, None) => return a == b,
        (Some(pattern), None) => return is_named(pattern, b),
        (None, Some(pattern)) => return is_named(pattern, a),
        (Some(a), Some(b)) => (a, b),
    };
    (a.0.starts_with(b.0) || b.0.starts_with(a.0)) && (a.1.ends_with(b.1) || b.1.ends_with(a.1))
}

fn is_named((before, behind): (&str, &str), name: &str) -> bool {
    name.strip_prefix(before).is_some_and(|rest| rest.ends_with(behind))
}

enum Star {
    /// A `*` in the last part of a path, and nowhere else.
    One,
    Elsewhere,
}

fn star_at(path: &Path) -> Option<Star> {
    let count = |text: &std::ffi::OsStr| text.as_encoded_bytes().iter().filter(|b| **b == b'*').count();
    match (count(path.as_os_str()), path.file_name().map_or(0, count)) {
        (0, _) => None,
        (1, 1) => Some(Star::One),
        _ => Some(Star::Elsewhere),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spools_overlap_where_a_file_could_be_in_both() {
        let overlap = |a: &str, b: &str| {
            let [a, b] = [a, b].map(Path::new);
            assert_eq!(super::overlap(a, b), super::overlap(b, a));
            super::overlap(a, b)
        };
        for (a, b) in
            [("/s", "/s"), ("/s", "/s/q"), ("/s/q*", "/s/qx"), ("/s/q*", "/s/qx/y"), ("/s/q*", "/s/*x")]
        {
            assert!(overlap(a, b), "{a} {b}");
        }
        for (a, b) in
            [("/s", "/t"), ("/s", "/s-bulk"), ("/s/q*", "/s/r*"), ("/s/q*a", "/s/q*b"), ("/s/q*", "/s/x")]
        {
            assert!(!overlap(a, b), "{a} {b}");
        }
    }
}
