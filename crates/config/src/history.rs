//! `[history]`: the events of messages, kept for look-ups.

use crate::{section::section, units::ByteSize};
use history::Addresses;
use std::{path::PathBuf, time::Duration};

section! {
    /// The history records what happened to each message, and keeps it for weeks. It can be searched by queue id,
    /// Message-ID, sender, recipient, domain, client, login or next hop, with `postrider history query` and `postrider
    /// why`; see docs/history.md.
    pub History = "history" {
        /// If false, nothing is recorded. Earlier records stay and can be read.
        enabled: bool = "true",
        /// The directory of the history.
        path: PathBuf = "\"{data_dir}/history\"",
        /// How long events are kept. Files are deleted as a whole, up to an eighth of this time later.
        keep: Duration = "\"30d\"",
        /// Maximum size of the history. The oldest events are deleted before it is exceeded.
        max_size: ByteSize = "\"4GiB\"",
        /// How addresses and logins are stored: `"full"`; `"domain"`, without the local part; or `"hashed"`, with a keyed
        /// hash instead of the local part, so that they can be searched for but not listed.
        addresses: Addresses = "\"full\"",
    }
}
