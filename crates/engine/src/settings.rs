//! Settings that operators choose.

use mail::Mailbox;
use report::texts::Texts;
use std::sync::Arc;

/// What the configuration says to the engine.
#[derive(Debug, Clone)]
pub struct EngineSettings {
    /// Retry, expiry and concurrency.
    pub queue: queue::QueueSettings,
    /// Memory for accepted messages until their first attempt. Fixed when the engine is made.
    pub cache_bytes: u64,
    /// The host name that reports give as their sender.
    pub hostname: Arc<str>,
    /// The time of the next attempt for recovered recipients. Fixed when the engine is made.
    pub retry_at: RetryAt,
    /// How DSNs and other notifications are written.
    pub reports: ReportSettings,
    /// True if failures are deferrals, but for expired mail and for what an operator ends.
    pub soft_bounce: bool,
}

/// How reports (DSNs) are addressed and worded.
#[derive(Debug, Clone)]
pub struct ReportSettings {
    /// The texts for their readers.
    pub texts: Arc<Texts>,
    /// The postmaster of this server.
    pub postmaster: Mailbox,
    /// True if the postmaster gets a report that cannot be delivered.
    pub double_bounces: bool,
    /// The most of these reports in an hour; the others are told in a summary.
    pub max_double_bounces_per_hour: u32,
}

impl ReportSettings {
    /// In English, and with reports to this postmaster.
    pub fn new(postmaster: Mailbox) -> Self {
        Self { texts: Arc::default(), postmaster, double_bounces: true, max_double_bounces_per_hour: 20 }
    }
}

/// The time of the next attempt for a recipient that was tried before a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryAt {
    /// When it was due before the restart.
    Recorded,
    /// At once.
    Now,
}
