//! What the operator may choose of scheduling.

use crate::Millis;
use std::time::Duration;

/// Retry, expiry and concurrency (Postfix's defaults where they have proved themselves).
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Shortest wait before the next attempt.
    pub retry_min: Duration,
    /// Longest wait. Between them a message waits as long as its age, so that attempts thin out.
    pub retry_max: Duration,
    /// Each wait is multiplied by a random factor of 1 ± this, so that crowds disperse.
    pub jitter: f64,
    /// Age at which undelivered recipients fail (RFC 5321 §4.5.4.1: four to five days).
    pub expire: Duration,
    /// Age at which the sender is told of the delay; zero for never.
    pub delay_warning: Duration,
    /// Connections a destination starts with.
    pub initial_concurrency: u32,
    /// Connections a destination may grow to.
    pub concurrency_limit: u32,
    /// Connections of all destinations together.
    pub connections_max: u32,
    /// Up to this size a message counts as small and goes before bulk.
    pub small_bytes: u64,
    /// So many small messages go before one that is not.
    pub small_per_bulk: u8,
    /// Bytes a connection may serve while other destinations wait for a connection.
    pub quantum_bytes: u64,
    /// Ready units for each open connection above which another one is opened at once.
    pub backlog_per_connection: u32,
    /// Waiting time of the first ready unit after which another connection is opened all the same.
    pub patience: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            retry_min: Duration::from_secs(300),
            retry_max: Duration::from_secs(4000),
            jitter: 0.2,
            expire: Duration::from_secs(5 * 86400),
            delay_warning: Duration::from_secs(4 * 3600),
            initial_concurrency: 5,
            concurrency_limit: 20,
            connections_max: 1000,
            small_bytes: 64 * 1024,
            small_per_bulk: 4,
            quantum_bytes: 1024 * 1024,
            backlog_per_connection: 8,
            patience: Duration::from_millis(50),
        }
    }
}

impl Settings {
    /// How long to wait after a failure at this age: clamp(age, min, max) × (1 ± jitter).
    /// `random` is uniform in 0..1.
    pub fn retry_after(&self, age: Millis, random: f64) -> Millis {
        let wait = age.clamp(millis(self.retry_min), millis(self.retry_max).max(millis(self.retry_min)));
        (wait as f64 * (1.0 + self.jitter * (2.0 * random - 1.0))) as Millis
    }
}

pub(crate) fn millis(duration: Duration) -> Millis {
    Millis::try_from(duration.as_millis()).unwrap_or(Millis::MAX / 4)
}
