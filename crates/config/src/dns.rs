//! `[dns]`: the keys of DNS look-ups.

use crate::{section::section, value::NameServer};
use std::time::Duration;

section! {
    /// DNS lookups.
    pub Dns = "dns" {
        /// Name servers; if the list is empty, those of /etc/resolv.conf. A change of that file is noticed without a restart.
        nameservers: Vec<NameServer> = "[]",
        /// Time for one answer. Queries that may have been lost are repeated within it.
        timeout: Duration = "\"5s\"",
        /// Number of times that a query is sent.
        attempts: usize = "3",
    }
}
