//! Opens envelopes when their turn comes, as fast as messages leave.

use super::collect::tell_damage;
use crate::{driver::Driver, imported};
use engine::Event;
use mail::QueueId;
use spool::{DirSpool, Listed};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
    vec,
};

/// Messages that are ready or under way before no more envelopes are opened.
const READY: u64 = 4096;
/// Envelopes that are opened in one step: the first messages leave while others are opened.
const BATCH: usize = 64;

/// Envelopes that are not opened yet, in their order.
pub(super) struct Feed {
    spool: Arc<DirSpool>,
    rest: vec::IntoIter<Listed>,
    data_dir: PathBuf,
}

impl Feed {
    pub(super) fn new(spool: Arc<DirSpool>, listed: Vec<Listed>, data_dir: &Path) -> Self {
        Self { spool, rest: listed.into_iter(), data_dir: data_dir.to_owned() }
    }

    /// Returns whether all envelopes were opened.
    pub(super) fn is_over(&self) -> bool {
        self.rest.len() == 0
    }

    /// Until enough are ready.
    pub(super) async fn fill(&mut self, driver: &Arc<Driver>) -> Result<(), String> {
        while !self.is_over() && driver.lock().engine.queue().busy_count() < READY {
            let batch: Vec<QueueId> = self.rest.by_ref().take(BATCH).map(|one| one.id).collect();
            let spool = self.spool.clone();
            let opened = tokio::task::spawn_blocking(move || spool.open_listed(&batch)).await;
            let opened = opened.map_err(|e| e.to_string())?;
            let (found, report) = opened.map_err(|e| format!("open an envelope: {e}"))?;
            tell_damage(&report);
            let keys = found.iter().filter_map(|one| imported::key_of(&one.message.origin));
            imported::note_recovered(&self.data_dir, keys.map(str::to_owned).collect())?;
            for found in &found {
                driver.handle(Event::Recovered(found));
            }
        }
        Ok(())
    }
}
