//! `[spool]`: what its engines can do with it.

use super::Check;
use crate::{
    choice::{DirectoryChoice, Engine},
    settings::Settings,
    units::ByteSize,
};
use std::path::Path;

/// A part of content in the spool has a 32-bit length.
const SEGMENT_MAX: ByteSize = ByteSize(1 << 30);
const SEGMENT_MIN: ByteSize = ByteSize(1 << 20);
/// More only makes the start slow: long before, there is one for every message that is being written.
const DIRECTORIES_MAX: usize = 200;
/// Levels of sixteen directories.
const HASHED_MAX: u32 = 2;

impl Check<'_, '_> {
    pub(super) fn spool(&mut self, s: &Settings) {
        match s.spool.engine {
            Engine::Log => self.log_engine(s),
            Engine::Directories => self.directories(s),
            Engine::Null if cfg!(feature = "lab") => {}
            Engine::Null => {
                let what = "the engine \"null\" keeps nothing".to_owned();
                self.problem("spool.engine", what, "not in this build", "write \"log\" or \"directories\"");
            }
        }
    }

    fn log_engine(&mut self, s: &Settings) {
        self.at_least("spool.segment_size", &s.spool.segment_size, &SEGMENT_MIN);
        if s.spool.segment_size > SEGMENT_MAX {
            let help = format!("write {SEGMENT_MAX} or less");
            self.problem("spool.segment_size", "`spool.segment_size` is too large".to_owned(), "", &help);
        }
        // Two segments are the reserve for outcomes, one is written, one prepared.
        let least = ByteSize(s.spool.segment_size.0.saturating_mul(4));
        if s.spool.max_size.0 != 0 && s.spool.max_size < least {
            let help = format!("write \"{least}\" or more, or 0");
            let what = "`spool.max_size` is too small".to_owned();
            self.problem("spool.max_size", what, "less than four segments", &help);
        }
        let unused = [
            ("spool.directories", s.spool.directories != 1),
            ("spool.choice", s.spool.choice != DirectoryChoice::RoundRobin),
            ("spool.hashed", s.spool.hashed != 0),
        ];
        for (key, _) in unused.into_iter().filter(|(_, differs)| *differs) {
            if !self.has_failed("spool.engine") {
                let what = format!("`{key}` is not used");
                self.problem(key, what, "the engine is \"log\"", "write engine = \"directories\"");
            }
        }
        if let Some(Star::One) = star_at(&s.spool.path) {
            let what = "the log needs one folder, not a pattern".to_owned();
            self.problem("spool.path", what, "has a `*`", "write engine = \"directories\", or a path");
        }
    }

    fn directories(&mut self, s: &Settings) {
        self.at_least("spool.directories", &s.spool.directories, &1);
        if s.spool.directories > DIRECTORIES_MAX {
            let help = format!("write {DIRECTORIES_MAX} or less");
            self.problem("spool.directories", "`spool.directories` is too large".to_owned(), "", &help);
        }
        if s.spool.hashed > HASHED_MAX {
            let help = "write 0, 1 (16 directories below each) or 2 (256)";
            self.problem("spool.hashed", "`spool.hashed` is too large".to_owned(), "", help);
        }
        match star_at(&s.spool.path) {
            Some(Star::One) if s.spool.directories != 1 => {
                let what = "`spool.directories` is not used".to_owned();
                let label = "`path` is a pattern, which names them";
                self.problem("spool.directories", what, label, "leave one of the two out");
            }
            Some(Star::Elsewhere) => {
                let what = "`spool.path` is no pattern for queue directories".to_owned();
                let label = "one `*`, in the last part of the path";
                self.problem("spool.path", what, label, "write \"/var/spool/postrider/q*\"");
            }
            _ => {}
        }
    }
}

enum Star {
    /// In the last part of a path, and nowhere else.
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
