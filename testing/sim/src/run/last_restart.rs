//! The end of a seed: the disk is sound and has room, and everything is delivered.

use super::{Backend, Run};
use crate::workload;
use mail::QueueId;
use spool::WorkStep;

/// One in use, three ready, and one on its way between the two.
pub(super) const SEGMENTS_MAX: usize = 5;

/// Files that may be there when everything is delivered.
pub(super) fn files_max(backend: Backend) -> usize {
    match backend {
        Backend::Log => SEGMENTS_MAX,
        // The totals.
        Backend::QueueDirs => 1,
        Backend::Both => SEGMENTS_MAX + 1,
    }
}

impl Run {
    /// The spool works, and is empty when everything was delivered.
    pub(super) fn last_restart(&mut self) -> Result<(), String> {
        self.make_room();
        self.run_until_crash()?;
        self.disk = self.disk.after_kill();
        self.deliver_all()?;
        self.disk = self.disk.after_crash(self.rng.bits());
        self.recover().map(drop).map_err(|_| "no recovery of an empty spool".to_owned())
    }

    pub(super) fn deliver_all(&mut self) -> Result<(), String> {
        // By names alone, chunks that belong to nobody would stay.
        let (spool, _) = self.recover_by(false).map_err(|_| "no recovery on a sound disk".to_owned())?;
        // With the commit that ends the last one a spool gives back what it no longer needs.
        let given = self.workload.one_each(&*spool, &mut self.model);
        given.map_err(|refused| format!("a message more: {refused}"))?;
        let ids: Vec<u64> = self.model.latest().keys().copied().collect();
        for id in ids {
            let done = vec![workload::finished(&self.model, QueueId(id))];
            let commit_seq =
                spool.submit(done.clone()).map_err(|refused| format!("an outcome: {refused}"))?;
            self.model.submitted(spool.shard(commit_seq), commit_seq, done);
            spool.step(WorkStep::Commit);
        }
        while [WorkStep::Compact, WorkStep::Commit, WorkStep::Prepare]
            .into_iter()
            .any(|step| spool.step(step))
        {}
        self.note_durable(&spool);
        let (left, files) = (self.model.open_count(), self.disk.spool_files());
        if left > 0 || spool.pressure().message_count > 0 || files.len() > files_max(self.setup.backend) {
            return Err(format!(
                "all was delivered, but {left} transactions wait and these files remain: {files:?}"
            ));
        }
        Ok(())
    }
}
