//! Messages by the names of their envelope files: what a queue run needs that sorts by nothing else. An
//! envelope is opened when its message's turn has come.
//!
//! The work that a start does for all messages at once is done for each when it is opened: its torn end is cut,
//! its last append is written again. The batches of the others are not known, so new ones are numbered by
//! the clock, far above those that were counted, and so are chunks; and chunks that no envelope names wait for
//! the next start.

use super::{
    DirSpool, Shared,
    commit::DirCommitter,
    listing::Listing,
    names::Named,
    queues::{Placement, Queues},
    recover::{self, Scan},
};
use crate::{DirSettings, QueueDirectory, Recovered, RecoveryReport, SpoolFailure, mutant::ActiveMutant};
use mail::{QueueId, UnixMillis};
use std::io;

/// A live message whose envelope was not opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listed {
    /// Queue id, from the name of the envelope file.
    pub id: QueueId,
    /// Time of the last write to its envelope file, if that was asked for.
    pub changed: Option<UnixMillis>,
}

impl DirSpool {
    /// In place of [`crate::Spool::recover`]: every live message once, by name, in the order of the ids.
    /// [`DirSpool::open_listed`] comes before anything else is done with one of them.
    ///
    /// # Errors
    /// As for [`crate::Spool::recover`].
    pub fn recover_listed(
        &mut self,
        with_times: bool,
    ) -> Result<(Vec<Listed>, RecoveryReport), SpoolFailure> {
        if std::mem::replace(&mut self.recovered, true) {
            return Err(SpoolFailure::Unusable("recovered already".to_owned()));
        }
        let (listing, report, next) = recover::list(&self.shared)?;
        let listed = summaries(&self.shared.queues, &listing, with_times)?;
        self.listing = Some(listing);
        self.begin(DirCommitter::new(self.shared.clone(), next))?;
        Ok((listed, report))
    }

    /// Reads the envelopes of messages that were listed, in this order. What is returned about them is durable
    /// then. Those that cannot be delivered are left out; what is wrong with them is in the report.
    ///
    /// # Errors
    /// When a file cannot be read, or not be written again.
    pub fn open_listed(&self, ids: &[QueueId]) -> Result<(Vec<Recovered>, RecoveryReport), SpoolFailure> {
        let listing = self.listing.as_ref().ok_or(SpoolFailure::Missing)?;
        let (mut scan, mut found) = (Scan::default(), Vec::with_capacity(ids.len()));
        for id in ids {
            let (dir, named) = *listing.envelopes.get(&id.0).ok_or(SpoolFailure::Missing)?;
            scan.read_one(&self.shared, listing, (id.0, dir, named), &mut |one| found.push(one))?;
        }
        scan.mend(&self.shared)?;
        self.shared.reserve_batches_above(scan.last_round());
        Ok((found, scan.into_report()))
    }
}

/// A number above that of every batch so far: those were counted, or are from an earlier time.
pub(super) fn round_by_clock(shared: &Shared) -> u64 {
    shared.clock().as_nanos() as u64
}

/// A number above that of every chunk so far, as long as the clock was never set back: the envelopes may not
/// have been read, and one that cannot be names chunks that may be lost. In microseconds, since nanoseconds
/// would leave no room above them.
pub(super) fn place_by_clock(shared: &Shared) -> u64 {
    shared.clock().as_micros() as u64
}

/// For [`crate::list`]: nothing is started or changed.
pub(crate) fn inspect(
    queues: Vec<QueueDirectory>,
    with_times: bool,
) -> Result<(Vec<Listed>, RecoveryReport), SpoolFailure> {
    let queues = Queues::new(queues, Placement::default())?;
    let shared = Shared::new(DirSettings::default(), queues, ActiveMutant::default());
    let (listing, report) = recover::imagined(&shared)?;
    Ok((summaries(&shared.queues, &listing, with_times)?, report))
}

fn summaries(queues: &Queues, listing: &Listing, with_times: bool) -> Result<Vec<Listed>, SpoolFailure> {
    let one = |(id, (dir, named)): (&u64, &(u16, Named))| {
        let dir = queues.dir(*dir);
        let changed = if with_times { Some(dir.disk.changed(&named.file())) } else { None };
        match changed.transpose() {
            Ok(changed) => Some(Ok(Listed { id: QueueId(*id), changed })),
            // Delivered meanwhile, by a daemon beside whom we only look.
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => Some(Err(SpoolFailure::Io(format!("look at {}/{}: {e}", dir.name, named.file())))),
        }
    };
    listing.envelopes.iter().filter_map(one).collect()
}
