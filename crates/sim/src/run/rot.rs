//! A bit of old data flips. Nothing protects the message in it, but it must be told, nothing else may
//! be harmed, and the damaged place must stay for whoever wants to rescue something from it.

use super::{Live, Queue, Run};
use mail::QueueId;
use spool::{LogSpool, RecoveryReport, Spool, SpoolFailure, disk::Disk};
use std::sync::Arc;

impl Run {
    pub(super) fn rot(&mut self) -> Result<(), String> {
        self.make_room();
        let Some(name) = self.disk.flip_bit(self.rng.bits()) else { return Ok(()) };
        let damaged = self.bytes(&name);
        let disk = Arc::new(self.disk.clone());
        let mut spool = match LogSpool::by_hand(disk, self.settings.clone(), self.mutation) {
            Ok(spool) => spool,
            // The bit was in the number of the version.
            Err(SpoolFailure::Unusable(_)) => return Ok(()),
            Err(failure) => return Err(format!("no start after rot: {failure}")),
        };
        let mut found = Queue::new();
        let report = spool.recover(&mut |r| {
            found.insert(r.message.id.0, Live::recovered(&r.recipients, r.held));
        });
        let report = report.map_err(|failure| format!("no recovery after rot: {failure}"))?;
        self.judge_rot(&spool, found, &report).map_err(|what| format!("{what}; {report:?}"))?;
        self.has_errors = true;
        self.work(&spool)?;
        drop(spool);
        self.disk = self.disk.after_kill();
        // What is missing is missing still; only what stays counts.
        let _ = self.deliver_all();
        if report.corrupt.is_empty() || self.bytes(&name) == damaged {
            Ok(())
        } else {
            Err(format!("{name} was damaged, and is gone; {report:?}"))
        }
    }

    /// What is not as it was must be told, and nothing may be another than it was.
    fn judge_rot(&mut self, spool: &LogSpool, found: Queue, report: &RecoveryReport) -> Result<(), String> {
        let is_told = !report.corrupt.is_empty() || report.torn_bytes > 0;
        for id in found.keys() {
            self.ledger.compare(spool, QueueId(*id))?;
        }
        match self.ledger.settle(found.clone()) {
            Err(what) if !is_told => Err(what),
            Err(_) => {
                self.ledger.adopt(found);
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// The bytes of a segment, under its name or set aside.
    fn bytes(&self, name: &str) -> Option<Vec<u8>> {
        let names = [name.to_owned(), name.replace(".seg", ".bad")];
        let file = names.iter().find_map(|name| self.disk.open(name).ok())?;
        let mut bytes = vec![0; file.len().ok()? as usize];
        file.read_at(0, &mut bytes).ok()?;
        Some(bytes)
    }
}
