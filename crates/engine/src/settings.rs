//! Settings that operators choose.

use std::sync::Arc;

/// The engine's settings.
#[derive(Debug, Clone)]
pub struct EngineSettings {
    /// Retry, expiry and concurrency.
    pub queue: queue::QueueSettings,
    /// Memory for accepted messages until their first attempt. Fixed when the engine is made.
    pub cache_bytes: u64,
    /// Our name, in reports.
    pub hostname: Arc<str>,
    /// The time of the next attempt for recovered recipients. Fixed when the engine is made.
    pub retry_at: RetryAt,
}

/// The time of the next attempt for a recipient that was tried before a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryAt {
    /// The time that was set before the restart.
    Recorded,
    /// The time of the restart.
    Now,
}
