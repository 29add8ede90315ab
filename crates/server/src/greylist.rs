//! The file with the origins that greylisting knows: written from time to time, and at the end.

use crate::Driver;
use std::{sync::Arc, time::Duration};
use tokio::task::spawn_blocking;

/// A power cut costs what came since the last time.
const INTERVAL: Duration = Duration::from_mins(1);

/// Writes the file for ever.
pub(super) async fn keep(driver: Arc<Driver>) {
    let mut beat = tokio::time::interval(INTERVAL);
    loop {
        beat.tick().await;
        save(&driver).await;
    }
}

/// Writes the file, if there is something new to write.
pub(super) async fn save(driver: &Driver) {
    let Some(table) = driver.current().sources.greylist().cloned() else { return };
    if let Ok(Err(error)) = spawn_blocking(move || table.save()).await {
        tracing::warn!("write the origins that greylisting knows: {error}");
    }
}
