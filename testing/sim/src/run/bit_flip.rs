//! A bit of old data flips. Nothing protects the message in it, but it must be reported, nothing else may
//! be harmed, and the damaged place must stay for whoever wants to rescue something from it.

use super::{Backend, Live, Queue, Run, Subject};
use mail::QueueId;
use spool::{RecoveryReport, SpoolFailure, disk::Disk};

/// Returns true if a text of this backend says that content was damaged when it was read.
fn tells(backend: Backend, what: &str) -> bool {
    // Of a segment that has a segment index only this is read at a start.
    let log = || what.contains(".seg at ");
    let directories = || what.contains("not what was stored");
    match backend {
        Backend::Log => log(),
        Backend::QueueDirs => directories(),
        Backend::Both => log() || directories(),
    }
}

/// The message a file in a queue directory belongs to.
fn owner(name: &str) -> Option<u64> {
    let (stem, _) = name.rsplit('/').next()?.split_once('.')?;
    stem.parse::<QueueId>().ok().map(|id| id.0)
}

impl Run {
    pub(super) fn flip_bit(&mut self) -> Result<(), String> {
        self.make_room();
        let Some(name) = self.disk.flip_bit(self.rng.bits()) else { return Ok(()) };
        let damaged = self.bytes(&name);
        let mut spool = match self.setup.open(&self.disk) {
            Ok(spool) => spool,
            // The bit was in the number of the version.
            Err(SpoolFailure::Unusable(_)) => return Ok(()),
            Err(failure) => return Err(format!("no start after a bit flip: {failure}")),
        };
        let mut found = Queue::new();
        let is_listed = self.listed.chance(25);
        let report = spool.recover(is_listed, &mut |r| {
            found.insert(r.message.id.0, Live::recovered(&r.recipients, r.held.clone()));
        });
        let report = self
            .setup
            .reported(report.map_err(|failure| format!("no recovery after a bit flip: {failure}"))?);
        let is_live = owner(&name).is_some_and(|id| found.contains_key(&id));
        self.check_bit_flip(&spool, found, &report).map_err(|what| format!("{what}; {report:?}"))?;
        self.has_errors = true;
        self.work(&spool)?;
        drop(spool);
        self.disk = self.disk.after_kill();
        // What is missing is missing still; only what stays counts.
        let _ = self.deliver_all();
        let is_log = self.setup.is_of_log(&name);
        let is_placed = if is_log {
            // In the last batch of all it looks like a torn tail; nobody can know the segment. That batch may have ended
            // the messages of a freed segment, which then seems to be missing.
            report.corrupt.iter().any(|what| what.contains(".seg") && !what.contains("the file is missing"))
        } else {
            // What can be delivered all the same goes when it is.
            !is_live && report.corrupt.iter().any(|what| what.contains(&name))
        };
        // To an envelope file that cannot be read an intent may still append.
        let is_kept = |now: Option<Vec<u8>>| now == damaged || !is_log && now.is_some();
        if !is_placed || is_kept(self.bytes(&name)) {
            Ok(())
        } else {
            Err(format!("{name} was damaged, and is gone; {report:?}"))
        }
    }

    /// Checks that the damage is reported, and that no message is another than it was.
    fn check_bit_flip(
        &mut self,
        spool: &Subject,
        found: Queue,
        report: &RecoveryReport,
    ) -> Result<(), String> {
        let is_told = !report.corrupt.is_empty() || report.torn_bytes > 0;
        for id in found.keys() {
            match self.model.compare(&**spool, QueueId(*id)) {
                // Content is read when it is needed, and the damage is told then.
                Err(what) if tells(self.setup.backend, &what) => {}
                compared => compared?,
            }
        }
        match self.model.settle(found.clone(), report, false) {
            Err(what) if !is_told => Err(what),
            Err(_) => {
                self.model.adopt(found);
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// The bytes of a file, under its name or set aside.
    fn bytes(&self, name: &str) -> Option<Vec<u8>> {
        let names = [name.to_owned(), name.replace(".seg", ".quarantined")];
        let file = names.iter().find_map(|name| self.disk.open(name).ok())?;
        let mut bytes = vec![0; file.len().ok()? as usize];
        file.read_at(0, &mut bytes).ok()?;
        Some(bytes)
    }
}
