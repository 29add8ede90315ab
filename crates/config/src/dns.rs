//! `[dns]`: the keys of DNS look-ups.

use crate::{section::section, value::NameServer};
use std::time::Duration;

section! {
    /// DNS look-ups.
    pub Dns = "dns" {
        /// Name servers. If the list is empty, those of /etc/resolv.conf are used, and changes to that file are noticed
        /// without a restart, unless the daemon stays root.
        nameservers: Vec<NameServer> = "[]",
        /// Time for one answer. Queries that may have been lost are repeated within this time.
        timeout: Duration = "\"5s\"",
        /// How many times a query is sent.
        attempts: usize = "3",
    }
}
