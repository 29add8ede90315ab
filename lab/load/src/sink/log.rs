//! The output of -s and -v: the system log, and standard error.

use super::dialog::Note;
use std::os::unix::net::UnixDatagram;

/// Writes what a session noted.
pub(crate) fn write(notes: impl Iterator<Item = Note>) {
    for note in notes {
        match note {
            Note::Shown(line) => eprintln!("{line}"),
            Note::Logged(line) => to_syslog(&line),
        }
    }
}

/// As smtp-sink does; without a system log the line goes to standard error, so that it is not lost.
fn to_syslog(line: &str) {
    // Facility mail (2), severity info (6): RFC 5424 §6.2.1.
    let message = format!("<22>postlab[{}]: {line}", std::process::id());
    let sent = UnixDatagram::unbound().and_then(|s| s.send_to(message.as_bytes(), "/dev/log"));
    if sent.is_err() {
        eprintln!("{line}");
    }
}
