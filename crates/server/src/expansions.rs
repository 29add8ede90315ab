//! Makes the expansions that the engine orders.

use super::driver::{Driver, Expansion};
use accept::{Acceptor, unreadable};
use engine::Event;
use mail::{Attempt, DsnDuty};
use std::{sync::Arc, time::Instant};

/// Begins to make the expansions that the engine orders. Ends with the acceptor.
pub(super) fn begin(driver: &Arc<Driver>, acceptor: &Arc<Acceptor<Driver>>) {
    let Some(mut ordered) = driver.take_expansions() else { return };
    // The task must not keep the acceptor alive.
    let (driver, acceptor) = (driver.clone(), Arc::downgrade(acceptor));
    tokio::spawn(async move {
        while let Some(expansion) = ordered.recv().await {
            let Some(acceptor) = acceptor.upgrade() else { return };
            tokio::spawn(make(driver.clone(), acceptor, expansion));
        }
    });
}

/// Expands recipients of a queued message. Those that take their place report for themselves.
async fn make(driver: Arc<Driver>, acceptor: Arc<Acceptor<Driver>>, expansion: Expansion) {
    let (begun, Expansion { connection, lease, message }) = (Instant::now(), expansion);
    let message = match message {
        Some(message) => Ok(message),
        None => driver.read(lease.id).await.map_err(|failure| unreadable(&failure)),
    };
    let mut results = Vec::with_capacity(lease.recipients.as_slice().len());
    for index in lease.recipients.as_slice() {
        let outcome = match &message {
            Ok(message) => acceptor.expand_queued(message, *index as usize).await,
            Err(outcome) => outcome.clone(),
        };
        results.push((*index, outcome));
    }
    let attempt = Attempt {
        relay: "aliases".into(),
        queued_ms: lease.queued_ms,
        transfer_ms: begun.elapsed().as_millis() as u64,
        dsn_duty: DsnDuty::NextHop,
        takes_deadline: true,
        ..Attempt::default()
    };
    let message = message.ok();
    driver.handle(Event::AttemptFinished { connection, lease, message, results, attempt });
}
