//! Opens envelopes when their turn comes, as fast as messages leave.

use super::gather::tell_damage;
use crate::serve::engine::{Engine, Waits};
use spool::{DirSpool, Listed};
use std::{sync::Arc, vec};

/// So many messages are ready or under way before no more are opened.
const READY: u64 = 4096;
/// So many are opened at once: the first ones leave while others are opened.
const BATCH: usize = 64;

/// What is still to be opened, in its order.
pub(super) struct Feed {
    spool: Arc<DirSpool>,
    rest: vec::IntoIter<Listed>,
    settings: queue::Settings,
}

impl Feed {
    pub(super) fn new(spool: Arc<DirSpool>, listed: Vec<Listed>, settings: queue::Settings) -> Self {
        Self { spool, rest: listed.into_iter(), settings }
    }

    /// Nothing is left to be opened.
    pub(super) fn is_over(&self) -> bool {
        self.rest.len() == 0
    }

    /// Until enough are ready.
    ///
    /// # Errors
    /// In words.
    pub(super) async fn fill(&mut self, engine: &Arc<Engine>) -> Result<(), String> {
        while !self.is_over() && engine.lock().queue.busy_count() < READY {
            let batch: Vec<Listed> = self.rest.by_ref().take(BATCH).collect();
            let spool = self.spool.clone();
            let open = move || batch.into_iter().map(|one| spool.open_listed(one.id)).collect();
            let opened: Result<Vec<_>, _> =
                tokio::task::spawn_blocking(open).await.map_err(|e| e.to_string())?;
            let opened = opened.map_err(|e| format!("open an envelope: {e}"))?;
            let (current, now) = (engine.current(), engine.now());
            let mut state = engine.lock();
            for (found, report) in opened {
                tell_damage(&report);
                let Some(found) = found else { continue };
                let count = state.restore(&found, &current, &self.settings, &engine.clock, Waits::NoMore);
                engine.ledger.accepted(count);
            }
            engine.follow_orders(state, now);
        }
        Ok(())
    }
}
