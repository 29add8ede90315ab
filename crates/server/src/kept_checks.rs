//! The files in which checks keep what they remember, limits and greylisting: written from time to time, and at the end.

use crate::Driver;
use std::{sync::Arc, time::Duration};
use tokio::task::spawn_blocking;

/// A power cut costs what came since the last time.
const INTERVAL: Duration = Duration::from_mins(1);

/// Writes the files for ever.
pub(super) async fn keep(driver: Arc<Driver>) {
    let mut beat = tokio::time::interval(INTERVAL);
    loop {
        beat.tick().await;
        save(&driver).await;
    }
}

/// Writes the files whose tables have changed.
pub(super) async fn save(driver: &Driver) {
    let current = driver.current();
    if let Ok(Err(error)) = spawn_blocking(move || current.sources.save()).await {
        tracing::warn!("write what limits and greylisting remember: {error}");
    }
}
