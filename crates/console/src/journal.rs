//! Lines for systemd's journal: each begins with its priority, as in `<4>the certificate expires` (sd-daemon(3)), so that
//! `journalctl -p warning` finds it. Only if standard error is the journal itself: `JOURNAL_STREAM` names the socket
//! (systemd.exec(5)), and children inherit the variable together with other files.

use rustix::fs::fstat;
use std::{borrow::Cow, io, sync::OnceLock};

/// Priorities of syslog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    /// Something does not work.
    Error = 3,
    /// Something may stop to work.
    Warning = 4,
    /// What happened.
    Info = 6,
    /// For those who look for a fault.
    Debug = 7,
}

/// Returns whether standard error is the journal.
pub fn is_stderr() -> bool {
    static IS_JOURNAL: OnceLock<bool> = OnceLock::new();
    *IS_JOURNAL.get_or_init(|| {
        let Ok(named) = std::env::var("JOURNAL_STREAM") else { return false };
        fstat(io::stderr()).is_ok_and(|stat| named == format!("{}:{}", stat.st_dev, stat.st_ino))
    })
}

/// Returns a text for standard error, in which each line has its priority if the journal reads it.
pub fn for_stderr(priority: Priority, text: &str) -> Cow<'_, str> {
    if is_stderr() { prefixed(priority, text).into() } else { text.into() }
}

/// An empty line would be an entry without text.
fn prefixed(priority: Priority, text: &str) -> String {
    let lines = text.split_inclusive('\n').filter(|line| !line.trim().is_empty());
    lines.map(|line| format!("<{}>{line}", priority as u8)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_has_the_priority() {
        assert_eq!(prefixed(Priority::Error, "one\n\ntwo\n"), "<3>one\n<3>two\n");
        assert_eq!(prefixed(Priority::Info, ""), "");
    }
}
