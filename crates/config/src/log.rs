//! `[log]`: the logs of mail.

use crate::{choice::LogFormat, section::section};
use std::path::PathBuf;

section! {
    /// The delivery log: what was accepted, attempted, delivered and returned.
    pub Log = "log" {
        /// The log file. Without this key, the log goes to standard error.
        file: Option<PathBuf> = "",
        /// The format of the log.
        format: LogFormat = "\"json\"",
        /// The second file, if `format = "both"`.
        postfix_file: Option<PathBuf> = "",
        /// The socket of the system log, mostly `/dev/log`, which the journal of systemd reads, too. It gets the lines of Postfix's
        /// format, beside those of the file. With `format = "syslog"` it is the only log, and `/dev/log` if this key is left out.
        syslog: Option<PathBuf> = "",
        /// True if connections have lines of their own: connect, TLS, disconnect. Connections that are lost, time out or fail in
        /// the TLS handshake always have one.
        connections: bool = "true",
    }
}
