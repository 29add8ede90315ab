//! The members of a backup, apart from messages.

use report::RecipientCounters;
use serde::{Deserialize, Serialize};
use spool::Totals;

/// The version of the format that is written; a later version reads the earlier ones.
pub(super) const FORMAT: u32 = 1;
/// First member of the archive: [`About`].
pub(super) const ABOUT: &str = "postrider-backup.json";
/// Last member of the archive: [`Summary`].
pub(super) const SUMMARY: &str = "summary.json";
/// The folder of the configuration and the files that it names, with their whole paths.
pub(super) const FILES: &str = "files/";
/// The folder of messages from the drop directory.
pub(super) const DROP: &str = "drop/";
/// The folder of queued messages: ID.envelope, and then ID.eml.
pub(super) const MESSAGES: &str = "messages/";
/// Behind the queue id in the name of an envelope.
pub(super) const ENVELOPE: &str = ".envelope";
/// Behind the queue id in the name of a content.
pub(super) const CONTENT: &str = ".eml";

/// Octets of [`ABOUT`] and [`SUMMARY`]; those of the summary are bounded by what is listed in it.
pub(super) const ABOUT_BYTES_MAX: u64 = 64 << 10;
pub(super) const SUMMARY_BYTES_MAX: u64 = 8 << 20;
/// Octets of the texts about messages that are missing.
const DAMAGED_BYTES_MAX: usize = 1 << 20;
/// Octets of an envelope. One that is longer is not in a backup.
pub(super) const ENVELOPE_BYTES_MAX: u64 = 64 << 20;
/// Largest file of the configuration that is copied.
pub(super) const FILE_BYTES_MAX: u64 = 256 << 20;

/// Where and when a backup was made.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct About {
    pub(super) format: u32,
    pub(super) version: String,
    pub(super) hostname: String,
    /// When the backup began, for people; `begun_ms` is the same time.
    pub(super) begun: String,
    pub(super) begun_ms: u64,
    pub(super) from_running_daemon: bool,
    pub(super) counters: Counters,
    pub(super) with_secrets: bool,
}

/// The counters of recipients that were finished at the begin.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(super) struct Counters {
    pub(super) delivered: u64,
    pub(super) bounced: u64,
    pub(super) expired: u64,
    pub(super) deleted: u64,
    pub(super) moved: u64,
}

impl From<RecipientCounters> for Counters {
    fn from(counters: RecipientCounters) -> Self {
        let RecipientCounters { delivered, bounced, expired, deleted, moved, .. } = counters;
        Self { delivered, bounced, expired, deleted, moved }
    }
}

impl Counters {
    /// Returns the totals of the finished recipients alone, as a new spool counts them.
    pub(super) fn finished(self) -> Totals {
        let Self { delivered, bounced, expired, deleted, moved } = self;
        let finished = Totals { accepted: 0, delivered, bounced, expired, deleted, moved };
        Totals { accepted: finished.finished(), ..finished }
    }
}

/// Counts and names of the parts of a backup.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Summary {
    pub(super) messages: u64,
    /// Recipients that are not finished.
    pub(super) recipients: u64,
    pub(super) content_bytes: u64,
    pub(super) drop_files: u64,
    pub(super) files: Vec<NamedFile>,
    pub(super) left_out: Vec<NamedFile>,
    /// Messages that the spool could not give, in words.
    pub(super) damaged: Vec<String>,
}

impl Summary {
    /// Returns it with as many texts about missing messages as a restore reads.
    pub(super) fn bounded(&self) -> Self {
        let mut octets = 0;
        let fits = |text: &&String| {
            octets += text.len();
            octets <= DAMAGED_BYTES_MAX
        };
        let mut damaged: Vec<String> = self.damaged.iter().take_while(fits).cloned().collect();
        let left = self.damaged.len() - damaged.len();
        if left > 0 {
            damaged.push(format!("{left} more"));
        }
        Self { damaged, ..self.clone() }
    }
}

/// A file that the configuration names, and whether the backup has it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct NamedFile {
    pub(super) path: String,
    #[serde(rename = "use")]
    pub(super) file_use: String,
    /// Why it is left out; empty if it is not.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) why: String,
}
