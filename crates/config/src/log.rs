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
        /// The socket of the system log, usually `/dev/log`, which systemd's journal reads, too. It gets lines in
        /// Postfix's format, in addition to the log file. With `format = "syslog"` it is the only log, and its default is
        /// `/dev/log`.
        syslog: Option<PathBuf> = "",
        /// If true, connections have lines of their own: connect, TLS, disconnect. Connections that are lost, time out or
        /// fail in the TLS handshake always have one.
        connections: bool = "true",
    }
}
