//! The totals of queue directories: a file with two slots, which are written in turn, before the changes that they
//! count. So one slot is whole at any moment, and has the totals before and behind the last batch. A power cut may
//! leave some changes of that batch and not others: how many recipients are left tells how much of the batch to count.

use super::{
    Shared,
    line::{Lines, line_at, number},
    names::Named,
    pending_sync::{Unwritten, Written},
    queues::Dir,
};
use crate::{SpoolFailure, Totals, format::wire::Malformed, log::tolerant::with_retries};
use std::io;

/// In the first line; another is refused.
const VERSION: u32 = 1;
const MAGIC: &str = "postrider-totals";
/// Bytes between the beginnings of the two slots: no sector has a part of both.
const SLOT_BYTES: u64 = 4096;
/// Stands for a message number in the checksums of lines, and differs from all of those.
const NUMBER: u64 = u64::MAX;

/// One of the two copies that are written in turn: a crash damages at most one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Slot {
    /// Slots are written with ascending numbers.
    sequence: u64,
    /// Were the totals compared with the messages when this process started? If not, no slot of it is a proof.
    is_compared: bool,
    before: Totals,
    pub(super) behind: Totals,
}

impl Slot {
    /// Of a start that found these totals.
    fn begin(sequence: u64, is_compared: bool, totals: Totals) -> Self {
        Self { sequence, is_compared, before: totals, behind: totals }
    }

    /// Returns the slot of a batch that counts this.
    pub(super) fn next(&self, counted: &Totals) -> Self {
        let mut behind = self.behind;
        behind.add(counted);
        Self { sequence: self.sequence + 1, before: self.behind, behind, ..*self }
    }

    fn offset(&self) -> u64 {
        self.sequence % 2 * SLOT_BYTES
    }

    fn write(&self, shared: &Shared) -> Vec<u8> {
        let mut out = Vec::new();
        Lines::new(&mut out, shared.checksum_of(NUMBER), self.offset()).line(&self.text(), |_| {});
        out
    }

    fn text(&self) -> String {
        let compared = u8::from(self.is_compared);
        let all = self.before.numbers().into_iter().chain(self.behind.numbers());
        let numbers: String = all.map(|number| format!(" {number}")).collect();
        format!("{MAGIC} {VERSION} {} {compared}{numbers}", self.sequence)
    }

    fn read(text: &str) -> Result<Self, Malformed> {
        let mut words = text.split(' ');
        let mut next = || words.next().ok_or(Malformed("a word is missing"));
        if next()? != MAGIC {
            return Err(Malformed("not totals"));
        }
        if number::<u32>(next()?)? != VERSION {
            return Err(Malformed("totals of another version"));
        }
        let (sequence, is_compared) = (number(next()?)?, number::<u8>(next()?)? == 1);
        let mut numbers = [[0; Totals::COUNT]; 2];
        for value in numbers.as_flattened_mut() {
            *value = number(next()?)?;
        }
        let [before, behind] = numbers.map(|all| Totals::from_numbers(all).ok_or(Malformed("totals")));
        Ok(Self { sequence, is_compared, before: before?, behind: behind? })
    }

    /// Returns the totals when so many recipients are left: those before the last batch, and so much of the batch
    /// as is there. Which recipients of an interrupted batch are finished is not known one by one: they are counted
    /// in the order of the numbers.
    fn totals_with(&self, found: u64) -> Totals {
        let mut totals = self.before;
        if self.behind.left() == Some(found) {
            return self.behind;
        }
        let Some(left) = totals.left() else { return self.behind };
        let (mut more, mut fewer) = (found.saturating_sub(left), left.saturating_sub(found));
        let (from, to) = (self.before.numbers(), self.behind.numbers());
        let mut numbers = from;
        for (index, (from, to)) in from.into_iter().zip(to).enumerate() {
            let wanted = if index == 0 { &mut more } else { &mut fewer };
            let taken = to.saturating_sub(from).min(*wanted);
            numbers[index] += taken;
            *wanted -= taken;
        }
        totals = Totals::from_numbers(numbers).unwrap_or(self.behind);
        if totals.left() == Some(found) { totals } else { self.behind }
    }
}

/// The slots of all queue directories, read at a start.
#[derive(Debug, Default)]
pub(super) struct StoredTotals {
    newest: Option<Slot>,
    /// Files whose slots cannot be read.
    damaged: Vec<String>,
}

impl StoredTotals {
    /// Reads the files. The directory for new ones may have been another at an earlier start.
    pub(super) fn read(shared: &Shared) -> Self {
        let mut all = Self::default();
        for dir in shared.queues.queue_dirs() {
            all.read_in(shared, dir);
        }
        all
    }

    fn read_in(&mut self, shared: &Shared, dir: &Dir) {
        let (name, mut bytes) = (Named::Totals.file(), Vec::new());
        let place = || format!("{}/{name}", dir.name);
        match with_retries(|| dir.disk.read(&name, 2 * SLOT_BYTES, &mut bytes)) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => return,
            Err(e) => return self.damaged.push(format!("{}: cannot be read: {e}", place())),
        }
        let checksum = shared.checksum_of(NUMBER);
        let slot = |offset: u64| {
            let text = line_at(bytes.get(offset as usize..)?, offset, checksum)?;
            Slot::read(text).ok().filter(|slot| slot.offset() == offset)
        };
        let read: Vec<Slot> = [0, SLOT_BYTES].into_iter().filter_map(slot).collect();
        // The first slot that is ever written may be torn by a crash, while the other one is still empty.
        let mut slots = bytes.chunks(SLOT_BYTES as usize);
        let are_both_written =
            bytes.len() > SLOT_BYTES as usize && slots.all(|slot| slot.iter().any(|byte| *byte != 0));
        if read.is_empty() && are_both_written {
            self.damaged.push(format!("{}: neither of its slots can be read", place()));
        }
        self.newest = self.newest.into_iter().chain(read).max_by_key(|slot| slot.sequence);
    }

    /// Was no slot written between two readings?
    pub(super) fn is_as_new_as(&self, earlier: &Self) -> bool {
        self.newest == earlier.newest
    }

    /// Compares the totals with the recipients that were found, and reports.
    pub(super) fn compare(&self, found: u64, report: &mut crate::RecoveryReport) -> Slot {
        report.corrupt.extend(self.damaged.iter().cloned());
        let stored = self.newest.map(|slot| slot.totals_with(found));
        report.note_totals(stored, found);
        if self.newest.is_some_and(|slot| !slot.is_compared) {
            // The difference is of a batch that nobody can find any more.
            report.imbalances.clear();
        }
        self.begin(true, report.totals)
    }

    /// Takes the totals as they are, of messages that nobody has read.
    pub(super) fn believe(&self, report: &mut crate::RecoveryReport) -> Slot {
        report.corrupt.extend(self.damaged.iter().cloned());
        report.totals = self.newest.map(|slot| slot.behind).unwrap_or_default();
        self.begin(false, report.totals)
    }

    fn begin(&self, is_compared: bool, totals: Totals) -> Slot {
        Slot::begin(self.newest.map_or(0, |slot| slot.sequence), is_compared, totals)
    }
}

/// Makes the file, if it is not there, so that a batch need not sync its name.
pub(super) fn make_file(shared: &Shared) -> Result<(), SpoolFailure> {
    let dir = shared.queues.dir(shared.queues.root());
    let name = Named::Totals.file();
    match dir.disk.open(&name) {
        Ok(_) => return Ok(()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(SpoolFailure::Io(format!("open {}/{name}: {e}", dir.name))),
    }
    let made = dir.disk.create(&name).and_then(|file| {
        file.write_at(0, &vec![0; 2 * SLOT_BYTES as usize])?;
        file.sync_data()?;
        dir.disk.sync_dir()
    });
    made.map_err(|e| {
        SpoolFailure::Io(format!("create {}/{name}: {}", dir.name, super::pending_sync::told(&e)))
    })
}

/// Writes a slot; it is durable with the next sync.
pub(super) fn write(written: &mut Written<'_>, shared: &Shared, slot: &Slot) -> Result<(), Unwritten> {
    written
        .change(shared.queues.root(), Named::Totals, |file| file.write_at(slot.offset(), &slot.write(shared)))
}

/// For fuzzing only: the text of a slot is read as it would be written, or not at all.
pub(crate) fn fuzz(text: &str) {
    let Ok(slot) = Slot::read(text) else { return };
    assert_eq!(Slot::read(&slot.text()), Ok(slot));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        DirSettings, QueueDirectory,
        dirs::queues::{Placement, Queues},
        disk::RealDisk,
        mutant::ActiveMutant,
    };
    use proptest::prelude::*;
    use std::sync::Arc;

    fn totals(accepted: u64, delivered: u64, bounced: u64) -> Totals {
        Totals { accepted, delivered, bounced, ..Totals::default() }
    }

    fn shared(dir: &std::path::Path) -> Shared {
        let disk = Arc::new(RealDisk::new(dir).unwrap());
        let queues = Queues::new(vec![QueueDirectory::flat("q", disk)], Placement::default()).unwrap();
        Shared::new(DirSettings::default(), queues, ActiveMutant::default())
    }

    fn put(shared: &Shared, slot: &Slot) {
        let mut written = Written::new(shared);
        assert!(write(&mut written, shared, slot).is_ok() && written.sync().is_ok());
    }

    #[test]
    fn the_bytes_are_those_of_the_document() {
        let dir = tempfile::tempdir().unwrap();
        let document = include_str!("../../../../docs/spool-directories.md");
        let slot = Slot::begin(6, true, totals(10, 4, 1)).next(&totals(2, 1, 0));
        let text = String::from_utf8(slot.write(&shared(dir.path()))).unwrap();
        assert!(document.contains(&text), "{text}");
    }

    #[test]
    fn the_slot_before_is_used_when_the_last_is_torn() {
        let dir = tempfile::tempdir().unwrap();
        let shared = shared(dir.path());
        make_file(&shared).unwrap();
        assert_eq!(StoredTotals::read(&shared).newest, None);
        let first = Slot::begin(0, true, Totals::default()).next(&totals(3, 0, 0));
        let second = first.next(&totals(0, 1, 0));
        put(&shared, &first);
        assert_eq!(StoredTotals::read(&shared).newest, Some(first));
        let path = dir.path().join("totals");
        let whole = std::fs::read(&path).unwrap();
        let mut torn = whole.clone();
        torn[first.offset() as usize + 30] ^= 1;
        std::fs::write(&path, &torn).unwrap();
        let read = StoredTotals::read(&shared);
        assert!(read.newest.is_none() && read.damaged.is_empty(), "a first slot that is torn is no damage");
        std::fs::write(&path, &whole).unwrap();
        put(&shared, &second);
        make_file(&shared).unwrap();
        assert_eq!(StoredTotals::read(&shared).newest, Some(second));
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[second.offset() as usize + 30] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(StoredTotals::read(&shared).newest, Some(first));
        bytes[first.offset() as usize + 30] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        let damaged = StoredTotals::read(&shared);
        assert!(
            damaged.newest.is_none() && damaged.damaged == ["q/totals: neither of its slots can be read"]
        );
    }

    #[test]
    fn a_difference_that_no_interrupted_batch_explains_is_reported() {
        let stored =
            StoredTotals { newest: Some(Slot::begin(1, true, totals(9, 4, 0))), damaged: Vec::new() };
        let mut report = crate::RecoveryReport::default();
        let slot = stored.compare(3, &mut report);
        assert_eq!(
            (report.imbalances.len(), report.totals, slot.behind),
            (1, totals(7, 4, 0), totals(7, 4, 0))
        );
        // Of a queue run that read no envelope nothing is known.
        let newest = stored.newest.map(|slot| Slot { is_compared: false, ..slot });
        let mut report = crate::RecoveryReport::default();
        StoredTotals { newest, damaged: Vec::new() }.compare(3, &mut report);
        assert_eq!((report.imbalances.len(), report.totals), (0, totals(7, 4, 0)));
    }

    proptest! {
        #[test]
        fn any_part_of_a_batch_is_counted_with_the_sum_right(
            live in 0u64..50, was in (0u64..50, 0u64..50), more in (0u64..9, 0u64..9, 0u64..9),
            done in (0u64..9, 0u64..9, 0u64..9),
        ) {
            let before = totals(live + was.0 + was.1, was.0, was.1);
            let slot = Slot::begin(1, true, before).next(&totals(more.0, more.1.min(live), more.2.min(live / 2)));
            let (accepted, delivered, bounced) =
                (done.0.min(more.0), done.1.min(more.1).min(live), done.2.min(more.2).min(live / 2));
            prop_assume!(delivered + bounced <= live + accepted);
            let found = live + accepted - delivered - bounced;
            let counted = slot.totals_with(found);
            prop_assert_eq!(counted.left(), Some(found));
            let (low, high) = (slot.before.numbers(), slot.behind.numbers());
            let within = counted.numbers().iter().zip(low.iter().zip(&high)).all(|(n, (l, h))| l <= n && n <= h);
            prop_assert!(within, "{:?} of {:?}", counted, slot);
        }

        #[test]
        fn arbitrary_text_never_panics(text: String) {
            let _ = Slot::read(&text);
        }
    }
}
