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
    /// When recovered recipients are tried again. Fixed when the engine is made.
    pub retry_at: RetryAt,
}

/// When a recipient that was tried before a restart is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryAt {
    /// When it would have been tried without the restart.
    Recorded,
    /// At once.
    Now,
}
