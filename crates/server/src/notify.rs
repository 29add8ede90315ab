//! Messages to systemd (sd_notify(3)). Without systemd they go nowhere.

use super::driver::Driver;
use sd_notify::NotifyState;
use std::{sync::Arc, time::Duration};

/// Says `READY=1`: the daemon takes connections.
pub(super) fn ready(queued: u64) {
    send(&[NotifyState::Ready, NotifyState::Status(&format!("Serving; queued at the start: {queued}"))]);
}

/// The configuration is being read again, until [`reloaded`].
pub(super) fn reloading() {
    // The time lets systemd tell this reload from an earlier one.
    if let Ok(now) = NotifyState::monotonic_usec_now() {
        send(&[NotifyState::Reloading, now, NotifyState::Status("Reading the configuration")]);
    }
}

/// Says that the reload has ended, whether it took effect or not.
pub(super) fn reloaded(is_new: bool) {
    let status =
        if is_new { "Serving" } else { "Serving with the former configuration: the new one has problems" };
    send(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Says `STOPPING=1`: the daemon takes no connection any more.
pub(super) fn stopping() {
    send(&[NotifyState::Stopping, NotifyState::Status("Sessions and deliveries end")]);
}

fn send(state: &[NotifyState<'_>]) {
    if let Err(e) = sd_notify::notify(state) {
        tracing::warn!("notify systemd: {e}");
    }
}

/// Feeds the watchdog of systemd, if it watches this process: as long as the queue answers.
pub(super) async fn feed_watchdog(driver: Arc<Driver>) {
    let Some(limit) = sd_notify::watchdog_enabled() else { return };
    // Twice in the time, as sd_watchdog_enabled(3) recommends.
    let mut beat = tokio::time::interval((limit / 2).max(Duration::from_millis(1)));
    loop {
        beat.tick().await;
        // Takes the lock of the queue: a daemon that waits for it for ever is restarted.
        let _ = driver.connection_count();
        send(&[NotifyState::Watchdog]);
    }
}
