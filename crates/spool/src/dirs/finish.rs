//! Finishes what intents say, at the start.

use super::{
    Shared,
    intent::Step,
    listing::Listing,
    names::Named,
    note::is_overtaken,
    recover::{failed, sync},
    shared::ENVELOPE_MAX,
};
use crate::{SpoolFailure, log::tolerant::with_retries};
use std::collections::BTreeSet;

/// Does what the intents say, as far as it was not done; then the intents go, unless one of them cannot
/// be read: it may come before the others. Returns a text about each message whose envelope cannot be read from the disk: it is left
/// out, its files and all intents stay, and the others go on.
pub(super) fn finish(
    shared: &Shared,
    listing: &mut Listing,
    steps: &[Step],
    may_go: bool,
) -> Result<Vec<String>, SpoolFailure> {
    let (mut undone, mut buffer) = (Vec::new(), Vec::new());
    let mut dirs = BTreeSet::new();
    for step in steps {
        let id = step.id().0;
        let (named, unfinished) = (Named::Envelope(id), Named::Unfinished(id));
        let there = listing.envelopes.get(&id).map(|(dir, _)| *dir);
        match (step, there) {
            (Step::Finish(_), None) => {
                let Some(dir) = listing.unfinished.remove(&id) else { continue };
                let disk = &shared.queues.dir(dir).disk;
                let renamed = disk.rename(&unfinished.file(), &named.file());
                renamed.map_err(|e| failed(shared, "rename", dir, unfinished, &e))?;
                listing.envelopes.insert(id, (dir, named));
                dirs.insert(dir);
            }
            (Step::Append(_, offset, bytes), Some(dir)) => {
                let disk = &shared.queues.dir(dir).disk;
                let appended =
                    with_retries(|| disk.read(&named.file(), ENVELOPE_MAX, &mut buffer)).and_then(|()| {
                        if is_overtaken(&buffer, *offset, bytes, shared.checksum_of(id)) {
                            return Ok(None);
                        }
                        let file = disk.open(&named.file())?;
                        file.write_at(*offset, bytes)?;
                        Ok(Some(file))
                    });
                let told = |e| failed(shared, "append to", dir, named, &e);
                match appended {
                    Ok(None) => {}
                    Ok(Some(file)) => file.sync_data().map_err(told)?,
                    Err(e) if e.raw_os_error() == Some(libc::EIO) => {
                        listing.envelopes.remove(&id);
                        undone.push(told(e).to_string());
                    }
                    Err(e) => return Err(told(e)),
                }
            }
            (Step::Remove(_), Some(dir)) => {
                let removed = shared.queues.dir(dir).disk.remove(&named.file());
                removed.map_err(|e| failed(shared, "remove", dir, named, &e))?;
                listing.envelopes.remove(&id);
                dirs.insert(dir);
            }
            _ => {}
        }
    }
    sync(shared, &dirs)?;
    if may_go && undone.is_empty() {
        let mut queue_dirs = BTreeSet::new();
        for (number, dir) in std::mem::take(&mut listing.intents) {
            let named = Named::Intent(number);
            let removed = shared.queues.dir(dir).disk.remove(&named.file());
            removed.map_err(|e| failed(shared, "remove", dir, named, &e))?;
            queue_dirs.insert(dir);
        }
        sync(shared, &queue_dirs)?;
    }
    Ok(undone)
}
