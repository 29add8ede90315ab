//! `[history]`: the events of messages, kept for look-ups.

use crate::{section::section, units::ByteSize};
use history::Addresses;
use std::{path::PathBuf, time::Duration};

section! {
    /// The history: what happened to each message, found by queue id, Message-ID, sender, recipient, domain, client, login or
    /// next hop, for weeks. `postrider history query` and `postrider why` read it; see docs/history.md.
    pub History = "history" {
        /// False if nothing is stored. What was stored before stays, and can be read.
        enabled: bool = "true",
        /// The directory of the history.
        path: PathBuf = "\"{data_dir}/history\"",
        /// The time for which events are kept. Files are deleted as a whole, at most an eighth of this time later.
        keep: Duration = "\"30d\"",
        /// The size that the history may have. The oldest events are deleted before it is larger.
        max_size: ByteSize = "\"4GiB\"",
        /// The form in which addresses and logins are stored: `"full"`; `"domain"`, without the local part; or `"hashed"`, with a keyed
        /// hash instead of the local part, so that they can be searched for and not be listed.
        addresses: Addresses = "\"full\"",
    }
}
