//! Tests with a damaged log.

use super::*;
use fault_disk::{FaultDisk, Faults};
use std::{io, path::PathBuf};

/// Ten messages, each in a batch of its own.
fn write_ten(dir: &Path) {
    let (spool, _, _) = open(dir);
    (1..=10).for_each(|id| commit(&*spool, vec![Entry::Accept(small(id))]));
}

#[test]
fn damage_in_the_middle_is_reported_and_later_batches_are_read() {
    let dir = tempfile::tempdir().unwrap();
    write_ten(dir.path());
    let damage = |n: u64| {
        let mut names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().path()).collect();
        names.sort();
        let path = names.iter().find(|p| std::fs::read(p).unwrap()[4096..].iter().any(|b| *b != 0)).unwrap();
        let mut bytes = std::fs::read(path).unwrap();
        bytes[4096 * (n as usize + 1) + 60] ^= 0x10;
        std::fs::write(path, bytes).unwrap();
    };
    damage(4);
    let (_, found, report) = open(dir.path());
    assert_eq!(found.len(), 9);
    assert!(!report.corrupt.is_empty(), "{report:?}");
}

/// The segment with the first message.
fn first_segment(dir: &Path) -> PathBuf {
    let has_batch = |path: &PathBuf| std::fs::read(path).unwrap().get(4096) == Some(&b'P');
    files(dir, "seg").into_iter().find(has_batch).unwrap()
}

/// More than a start looks through for the next batch.
#[test]
fn a_long_stretch_that_the_newest_segment_lost_is_reported_and_what_follows_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let settings = LogSettings { segment_bytes: 4 << 20, min_free_bytes: 0, ..LogSettings::default() };
    let opened = || LogSpool::open(dir.path(), settings.clone()).unwrap();
    let mut spool = opened();
    spool.recover(&mut |_| {}).unwrap();
    (1..=200).for_each(|id| commit(&spool, vec![Entry::Accept(small(id))]));
    // Copied under the running log, as after a kill: no index file.
    let copy = tempfile::tempdir().unwrap();
    for path in files(dir.path(), "seg") {
        std::fs::copy(&path, copy.path().join(path.file_name().unwrap())).unwrap();
    }
    drop(spool);
    let path = first_segment(copy.path());
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[40 * 4096..(40 + 140) * 4096].fill(0);
    std::fs::write(&path, bytes).unwrap();
    let mut found = 0;
    let mut spool = LogSpool::open(copy.path(), settings.clone()).unwrap();
    let report = spool.recover(&mut |_| found += 1).unwrap();
    assert_eq!(found, 60, "{report:?}");
    assert!(report.corrupt.iter().any(|what| what.contains("lost before later ones")), "{report:?}");
}

#[test]
fn a_segment_that_became_empty_or_zeros_is_reported() {
    for length in [0, 128 * 1024] {
        let dir = tempfile::tempdir().unwrap();
        write_ten(dir.path());
        forget_digests(dir.path());
        std::fs::write(first_segment(dir.path()), vec![0; length]).unwrap();
        let (_, _, report) = open(dir.path());
        assert!(report.corrupt.iter().any(|what| what.contains("neither its headers")), "{report:?}");
    }
}

/// The files of a log that end so.
fn files(dir: &Path, end: &str) -> Vec<PathBuf> {
    let all = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    all.filter(|path| path.extension().is_some_and(|extension| extension == end)).collect()
}

/// Files of a log, changed behind its back.
fn change(dir: &Path, pattern: &[u8]) {
    let mut changed = 0;
    // Others may be renamed meanwhile.
    for entry in files(dir, "seg") {
        let mut bytes = std::fs::read(&entry).unwrap();
        if let Some(at) = bytes.windows(pattern.len()).position(|window| window == pattern) {
            bytes[at] ^= 0x10;
            let file = std::fs::OpenOptions::new().write(true).open(&entry).unwrap();
            std::os::unix::fs::FileExt::write_at(&file, &bytes[at..=at], at as u64).unwrap();
            changed += 1;
        }
    }
    assert!(changed > 0, "nothing to damage");
}

/// So that every record is read again.
fn forget_digests(dir: &Path) {
    files(dir, "idx").iter().for_each(|path| std::fs::remove_file(path).unwrap());
}

#[test]
fn a_lost_chunk_does_not_become_another_messages() {
    let dir = tempfile::tempdir().unwrap();
    let large = |chunk_id, bytes: &Bytes| {
        let part = Part::Stored { chunk_id, length_bytes: bytes.len() as u32 };
        Content::new(ContentTraits::default(), [part, Part::Memory("end\r\n".into())])
    };
    let (mine, yours) = (Bytes::from(vec![b'm'; 50_000]), Bytes::from(vec![b'y'; 50_000]));
    let (spool, _, _) = open(dir.path());
    let chunk_id = spool.store(mine.clone()).unwrap();
    // Whatever batch the chunk is in, the message's is another.
    commit(&*spool, vec![Entry::Accept(small(3))]);
    commit(&*spool, vec![Entry::Outcome { id: QueueId(3), results: vec![], last: true }]);
    commit(&*spool, vec![Entry::Accept(message(1, 1, large(chunk_id, &mine)))]);
    drop(spool);
    change(dir.path(), b"mmmmmmmmmmmmmmmm");
    forget_digests(dir.path());
    let (spool, found, report) = open(dir.path());
    assert!(found.is_empty() && !report.corrupt.is_empty());
    let chunk_id = spool.store(yours.clone()).unwrap();
    commit(&*spool, vec![Entry::Accept(message(2, 1, large(chunk_id, &yours)))]);
    drop(spool);
    let (spool, found, report) = open(dir.path());
    assert_eq!(found.iter().map(|r| r.message.id.0).collect::<Vec<_>>(), [2]);
    assert!(!report.corrupt.is_empty() && spool.load(chunk_id).unwrap() == yours);
}

#[test]
fn a_lost_outcome_does_not_take_its_message_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let (spool, _, _) = open(dir.path());
    commit(&*spool, vec![Entry::Accept(small(1))]);
    commit(&*spool, vec![Entry::Outcome { id: QueueId(1), results: vec![deferred(0)], last: false }]);
    // Enough that the segment is worth an index file, of which only the rows are looked at.
    commit(&*spool, vec![Entry::Accept(message(2, 1, Content::from_bytes(vec![b'x'; 100_000])))]);
    drop(spool);
    assert!(!files(dir.path(), "idx").is_empty());
    change(dir.path(), b"mailbox busy");
    let (_, found, report) = open(dir.path());
    assert_eq!(found.iter().map(|r| r.message.id.0).collect::<Vec<_>>(), [1, 2]);
    assert!(!report.corrupt.is_empty());
}

#[test]
fn a_damaged_message_does_not_stop_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let (spool, _, _) = Backend::Log.open_with(dir.path(), 12 * 256 * 1024);
    let text = |text: &str| Content::from_bytes(format!("Subject: {text}\r\n\r\nbody\r\n"));
    commit(
        &*spool,
        vec![
            Entry::Accept(message(1, 1, text("this rots"))),
            Entry::Accept(message(2, 1, text("this does not"))),
        ],
    );
    change(dir.path(), b"this rots");
    assert!(spool.read(QueueId(1)).is_err());
    for id in 3..400 {
        let accept = || vec![Entry::Accept(message(id, 1, Content::from_bytes(vec![b'x'; 20_000])))];
        let commit_seq = soon("no room for mail", || spool.submit(accept()).ok());
        block_on(spool.durable(commit_seq)).unwrap();
        commit(&*spool, vec![Entry::Outcome { id: QueueId(id), results: vec![delivered(0)], last: true }]);
    }
    assert_eq!(*spool.read(QueueId(2)).unwrap(), *message(2, 1, text("this does not")));
    // Only a start quarantines, when it has read the damage itself.
    assert!(files(dir.path(), "quarantined").is_empty());
    drop(spool);
    let (spool, found, report) = open(dir.path());
    assert_eq!(found.iter().map(|r| r.message.id.0).collect::<Vec<_>>(), [2]);
    let quarantined = files(dir.path(), "quarantined");
    assert_eq!((quarantined.len(), report.quarantined.len()), (1, 1), "{report:?}");
    assert!(spool.faults().iter().any(|fault| fault.contains(&report.quarantined[0])));
    drop(spool);
    // At every start until an operator removes the file.
    let (spool, found, report) = open(dir.path());
    assert_eq!((found.len(), report.quarantined.len()), (1, 1), "{report:?}");
    assert!(report.is_complete(), "{report:?}");
    drop(spool);
    std::fs::remove_file(&quarantined[0]).unwrap();
    let (spool, found, report) = open(dir.path());
    assert_eq!((found.len(), report.quarantined.len(), spool.faults().len()), (1, 0, 0), "{report:?}");
}

/// The number of the block of 4096 bytes that cannot be read in any file.
struct UnreadableBlock(u64);

impl Faults for UnreadableBlock {
    fn read_at(&self, offset: u64, length: usize) -> io::Result<()> {
        let block = self.0 * 4096;
        if offset < block + 4096 && offset + length as u64 > block {
            return Err(io::Error::from_raw_os_error(5)); // EIO
        }
        Ok(())
    }
}

#[test]
fn a_block_that_cannot_be_read_takes_only_its_message_along_and_gives_it_back() {
    let dir = tempfile::tempdir().unwrap();
    write_ten(dir.path());
    forget_digests(dir.path());
    // A batch is a block here; the first is the header.
    let disk = FaultDisk(spool::disk::RealDisk::new(dir.path()).unwrap(), Arc::new(UnreadableBlock(4)));
    let mut spool = LogSpool::on(Arc::new(disk), settings()).unwrap();
    let mut found = Vec::new();
    let report = spool.recover(&mut |r| found.push(r.message.id.0)).unwrap();
    found.sort_unstable();
    assert_eq!(found, [1, 2, 3, 5, 6, 7, 8, 9, 10]);
    assert!(report.corrupt.is_empty() && !report.unread.is_empty(), "{report:?}");
    assert!(spool.faults()[0].contains("cannot be read"));
    commit(&spool, vec![Entry::Accept(small(11))]);
    // What became of a message meanwhile counts when its segment is read again.
    commit(&spool, vec![Entry::Outcome { id: QueueId(5), results: vec![delivered(0)], last: true }]);
    drop(spool);
    let (spool, mut found, report) = open(dir.path());
    found.sort_unstable_by_key(|r| r.message.id.0);
    let found: Vec<_> = found.iter().map(|r| r.message.id.0).collect();
    assert_eq!(found, [1, 2, 3, 4, 6, 7, 8, 9, 10, 11]);
    assert!(report.is_complete() && spool.faults().is_empty(), "{report:?}");
}

#[test]
fn a_truncated_segment_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    write_ten(dir.path());
    forget_digests(dir.path());
    let has_mail = |path: &PathBuf| std::fs::read(path).unwrap()[4096..].starts_with(b"PBAT");
    let segment = files(dir.path(), "seg").into_iter().find(has_mail).unwrap();
    std::fs::OpenOptions::new().write(true).open(&segment).unwrap().set_len(5 * 4096).unwrap();
    let (spool, found, report) = open(dir.path());
    assert_eq!(found.len(), 4);
    assert!(report.corrupt.iter().any(|what| what.contains("only 20480 of its")), "{report:?}");
    assert!(spool.faults().iter().any(|fault| fault.contains("only 20480 of its")));
}

/// Commits messages with these ids and contents that fill several segments.
fn write_large(spool: &dyn Spool, ids: std::ops::RangeInclusive<u64>) {
    let large = |id| message(id, 1, Content::from_bytes(vec![b'x'; 20_000]));
    ids.for_each(|id| commit(spool, vec![Entry::Accept(large(id))]));
}

fn finish(spool: &dyn Spool, id: u64) {
    commit(spool, vec![Entry::Outcome { id: QueueId(id), results: vec![delivered(0)], last: true }]);
}

/// The segments of a log that was never compacted and have batches, in their order.
fn segments_in_use(dir: &Path) -> Vec<PathBuf> {
    let mut all = files(dir, "seg");
    all.retain(|path| std::fs::read(path).unwrap()[4096..].starts_with(b"PBAT"));
    all.sort();
    all
}

fn ids(found: &[Recovered]) -> Vec<u64> {
    found.iter().map(|r| r.message.id.0).collect()
}

#[test]
fn a_missing_oldest_segment_is_reported_until_it_is_restored() {
    let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (spool, _, _) = open(dir.path());
    write_large(&*spool, 1..=40);
    // Ended in the newest segment, while the message itself lies in the oldest.
    finish(&*spool, 2);
    drop(spool);
    let oldest = segments_in_use(dir.path()).remove(0);
    let name = oldest.file_name().unwrap().to_str().unwrap();
    std::fs::rename(&oldest, elsewhere.path().join("oldest")).unwrap();
    let check = |report: &RecoveryReport| {
        let reported: Vec<_> = report.corrupt.iter().filter(|what| what.contains("is missing")).collect();
        assert_eq!(reported.len(), 1, "{report:?}");
        assert!(reported[0].starts_with(name), "{report:?}");
    };
    let report = inspect(dir.path(), &mut |_| {}).unwrap();
    check(&report);
    let (spool, found, report) = open(dir.path());
    check(&report);
    assert!(spool.faults().iter().any(|fault| fault.contains(name)));
    let lost = 40 - 1 - found.len() as u64;
    assert!((5..=13).contains(&lost), "{lost}");
    // The segments behind the missing one are freed, with the record that ended message 2.
    for id in ids(&found) {
        finish(&*spool, id);
    }
    write_large(&*spool, 41..=120);
    (41..=110).for_each(|id| finish(&*spool, id));
    drop(spool);
    let (spool, found, report) = open(dir.path());
    check(&report);
    assert_eq!(ids(&found), (111..=120).collect::<Vec<_>>());
    drop(spool);
    // A restored segment brings back only what was not ended.
    std::fs::rename(elsewhere.path().join("oldest"), &oldest).unwrap();
    let (_, found, report) = open(dir.path());
    assert!(!report.corrupt.iter().any(|what| what.contains("is missing")), "{report:?}");
    let expected: Vec<u64> = [1].into_iter().chain(3..=lost + 1).chain(111..=120).collect();
    assert_eq!(ids(&found), expected);
}

#[test]
fn a_missing_newest_segment_is_reported_until_its_index_file_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let (spool, _, _) = open(dir.path());
    write_large(&*spool, 1..=40);
    drop(spool);
    let newest = segments_in_use(dir.path()).pop().unwrap();
    std::fs::remove_file(&newest).unwrap();
    for _ in 0..2 {
        let (spool, found, report) = open(dir.path());
        let name = newest.file_name().unwrap().to_str().unwrap();
        let is_reported = |what: &String| what.starts_with(name) && what.contains("is missing");
        assert!(report.corrupt.iter().any(is_reported), "{report:?}");
        assert!((20..40).contains(&found.len()));
        commit(&*spool, vec![Entry::Accept(small(99))]);
        finish(&*spool, 99);
    }
    std::fs::remove_file(newest.with_extension("idx")).unwrap();
    let (spool, _, report) = open(dir.path());
    assert!(report.is_complete() && spool.faults().is_empty(), "{report:?}");
    assert!(files(dir.path(), "damaged").is_empty());
}

#[test]
fn an_index_file_whose_segment_was_freed_is_no_damage() {
    let dir = tempfile::tempdir().unwrap();
    let (spool, _, _) = open(dir.path());
    write_large(&*spool, 1..=40);
    drop(spool);
    let indexes: Vec<Vec<u8>> =
        segments_in_use(dir.path()).iter().map(|s| std::fs::read(s.with_extension("idx")).unwrap()).collect();
    assert!(indexes.len() >= 3);
    let (spool, found, _) = open(dir.path());
    let oldest = ids(&found)[0];
    assert_eq!(oldest, 1);
    // The oldest segments are freed; the last message stays.
    (1..=39).for_each(|id| finish(&*spool, id));
    drop(spool);
    // A crash may keep the index file of a segment whose removal is durable.
    let leftover = dir.path().join("00000000000000ff.idx");
    for index_file in &indexes {
        std::fs::write(&leftover, index_file).unwrap();
        let (_, found, report) = open(dir.path());
        assert_eq!((ids(&found), report.is_complete()), (vec![40], true), "{report:?}");
        assert!(!leftover.exists());
    }
}

#[test]
fn a_message_whose_chunk_was_freed_and_whose_tombstone_is_damaged_is_not_delivered() {
    const GHOST: u64 = 0x1122_3344_5566_7788;
    let dir = tempfile::tempdir().unwrap();
    let (spool, _, _) = open(dir.path());
    let chunk = Bytes::from(vec![b'm'; 50_000]);
    let chunk_id = spool.store(chunk.clone()).unwrap();
    write_large(&*spool, 1..=20);
    // The chunk is in the oldest segment, the message in a later one, its tombstone in one that is still later.
    let part = Part::Stored { chunk_id, length_bytes: chunk.len() as u32 };
    let content = Content::new(ContentTraits::default(), [part, Part::Memory("end\r\n".into())]);
    commit(&*spool, vec![Entry::Accept(message(GHOST, 1, content))]);
    write_large(&*spool, 21..=40);
    finish(&*spool, GHOST);
    commit(&*spool, vec![Entry::Accept(small(41))]);
    let oldest = segments_in_use(dir.path()).remove(0);
    let header = || std::fs::read(&oldest).map(|bytes| bytes[..44].to_vec()).ok();
    let before = header();
    // So few that the log is not compacted, which would free the message's own segment, too.
    (1..=10).for_each(|id| finish(&*spool, id));
    soon("the oldest segment is not freed", || (header() != before).then_some(()));
    drop(spool);
    let mut tombstone = vec![3];
    tombstone.extend(GHOST.to_le_bytes());
    change(dir.path(), &tombstone);
    forget_digests(dir.path());
    let is_reported = |what: &String| what.contains(&format!("{}: its content is lost", QueueId(GHOST)));
    let left: Vec<u64> = (11..=41).collect();
    for _ in 0..2 {
        let mut checked = Vec::new();
        let report = spool::inspect_all(dir.path(), &mut |r| checked.push(r.message.id.0)).unwrap();
        checked.sort_unstable();
        assert!(report.corrupt.iter().any(is_reported), "{report:?}");
        assert_eq!(checked, left);
        let (spool, found, report) = open(dir.path());
        assert!(report.corrupt.iter().any(is_reported), "{report:?}");
        assert!(spool.faults().iter().any(is_reported), "{:?}", spool.faults());
        assert_eq!(ids(&found), left);
        // The number of the lost chunk is not used again.
        assert!(spool.store(chunk.clone()).unwrap().0 > chunk_id.0 && spool.load(chunk_id).is_err());
        drop(spool);
        let mut salvaged = Vec::new();
        spool::salvage(dir.path(), &mut |one| salvaged.push((one.message.id.0, one.lost_bytes))).unwrap();
        assert_eq!(salvaged, [(GHOST, 50_000)]);
    }
}
