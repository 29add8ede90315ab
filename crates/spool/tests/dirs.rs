//! Queue directories whose files are lost, damaged, made by others, or cannot be read or written.

mod fault_disk;

use bytes::Bytes;
use fault_disk::{FaultDisk, Faults};
use mail::{
    ChunkId, Content, ContentTraits, Envelope, ForwardPath, Message, Part, QueueId, Recipient, ReversePath,
    SharedMessage, UnixMillis,
};
use spool::{
    DirSettings, DirSpool, Entry, Layout, QueueDirectory, RecoveryReport, Refused, Spool, SpoolFailure,
    disk::RealDisk,
};
use std::{
    fs, io,
    path::{Path, PathBuf},
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

fn message(id: u64, content: Content) -> SharedMessage {
    let mut envelope = Envelope::new(ReversePath::parse("a@b.test", false).unwrap());
    envelope.recipients = vec![Recipient::new(ForwardPath::parse("x@c.test", false).unwrap())];
    let (id, arrived) = (QueueId(id), UnixMillis(id));
    SharedMessage::new(Message { id, arrived, origin: "test".into(), envelope, content })
}

fn small(id: u64) -> Entry {
    Entry::Accept(message(id, Content::from_bytes(format!("Subject: {id}\r\n\r\nhello\r\n"))))
}

fn settings() -> DirSettings {
    DirSettings { min_free_bytes: 0, reserve_bytes: 0, ..DirSettings::default() }
}

fn opened(dir: &Path) -> DirSpool {
    DirSpool::open(dir, Layout { directories: 2, hashed: 0 }, settings()).unwrap()
}

/// The ids of what a start finds.
fn recovered(dir: &Path) -> (DirSpool, Vec<u64>, RecoveryReport) {
    let (mut spool, mut found) = (opened(dir), Vec::new());
    let report = spool.recover(&mut |one| found.push(one.message.id.0)).unwrap();
    (spool, found, report)
}

fn wait<T>(mut future: Pin<Box<dyn Future<Output = T> + Send>>) -> T {
    loop {
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::yield_now(),
        }
    }
}

fn commit(spool: &DirSpool, entry: Entry) {
    let commit_seq = spool.submit(vec![entry]).unwrap();
    wait(spool.durable(commit_seq)).unwrap();
}

/// A message whose content is one chunk.
fn commit_chunk(spool: &DirSpool, id: u64, bytes: &'static [u8]) -> ChunkId {
    let chunk_id = spool.store(Bytes::from_static(bytes)).unwrap();
    let part = Part::Stored { chunk_id, length_bytes: bytes.len() as u32 };
    commit(spool, Entry::Accept(message(id, Content::new(ContentTraits::default(), [part]))));
    chunk_id
}

fn ended(id: u64) -> Entry {
    Entry::Outcome { id: QueueId(id), results: vec![], last: true }
}

/// A file in one of the queue directories.
fn file(dir: &Path, name: &str) -> PathBuf {
    let paths = ["q00", "q01"].map(|queue| dir.join(queue).join(name));
    paths.into_iter().find(|path| path.exists()).unwrap()
}

fn chunk_file(dir: &Path, chunk_id: ChunkId) -> PathBuf {
    file(dir, &format!("{:016x}.chunk", chunk_id.0))
}

fn envelope_file(dir: &Path, id: u64) -> PathBuf {
    file(dir, &format!("{}.env", QueueId(id)))
}

/// Lines with the checksums they have in the envelope file of this message.
fn sealed<'a>(id: u64, mut offset: u64, lines: impl IntoIterator<Item = &'a str>) -> String {
    let mut out = String::new();
    for line in lines {
        let salt = [id.to_le_bytes(), offset.to_le_bytes()].concat();
        let sum = crc32c::crc32c_append(crc32c::crc32c(&salt), line.as_bytes());
        let whole = format!("{line} {sum:08x}\n");
        offset += whole.len() as u64;
        out += &whole;
    }
    out
}

/// Lets an envelope name another chunk, with the right checksums.
fn rename_chunk(dir: &Path, id: u64, from: ChunkId, to: ChunkId) {
    let path = envelope_file(dir, id);
    let text = fs::read_to_string(&path).unwrap();
    let named = text.replace(&format!("{:016x}", from.0), &format!("{:016x}", to.0));
    let lines = named.lines().map(|line| line.rsplit_once(' ').unwrap().0);
    fs::write(&path, sealed(id, 0, lines)).unwrap();
}

#[test]
fn the_number_of_a_lost_chunk_is_not_given_again() {
    for (is_listed, is_damaged) in [(false, false), (true, false), (false, true)] {
        let dir = tempfile::tempdir().unwrap();
        let (spool, ..) = recovered(dir.path());
        let lost = commit_chunk(&spool, 1, b"one's\r\n");
        drop(spool);
        fs::remove_file(chunk_file(dir.path(), lost)).unwrap();
        if is_damaged {
            let path = envelope_file(dir.path(), 1);
            let text = fs::read_to_string(&path).unwrap();
            fs::write(&path, text.replace("\naccepted ", "\nexcepted ")).unwrap();
        }
        let mut spool = opened(dir.path());
        if is_listed {
            spool.recover_listed(false).unwrap();
        } else {
            spool.recover(&mut |_| {}).unwrap();
        }
        let given = commit_chunk(&spool, 2, b"two's\r\n");
        assert!(given.0 > lost.0, "{given:?} after {lost:?}");
        drop(spool);
        let (spool, found, report) = recovered(dir.path());
        assert_eq!((found, report.corrupt.len()), (vec![2], 1), "{report:?}");
        assert_eq!(spool.load(given).unwrap(), &b"two's\r\n"[..]);
    }
}

/// As by a clock that was set back.
#[test]
fn chunks_are_numbered_above_all_that_envelopes_name_but_not_above_what_no_number_can_be() {
    let (far, absurd) = (ChunkId(1 << 54), ChunkId(u64::MAX - 1));
    for (named, is_outbid) in [(far, true), (absurd, false)] {
        let dir = tempfile::tempdir().unwrap();
        let (spool, ..) = recovered(dir.path());
        let chunk_id = commit_chunk(&spool, 1, b"one's\r\n");
        drop(spool);
        rename_chunk(dir.path(), 1, chunk_id, named);
        fs::write(dir.path().join("q00").join("ffffffffffffffff.chunk"), "a stranger's").unwrap();
        let (spool, found, _) = recovered(dir.path());
        assert!(found.is_empty());
        let given = spool.store(Bytes::from_static(b"x")).unwrap();
        assert!((given.0 > named.0) == is_outbid && given.0 < 1 << 55, "{given:?}");
    }
}

/// The names are those of a spool that gave the numbers of chunks again.
#[test]
fn of_two_that_name_a_chunk_the_one_has_it_whose_record_it_fits() {
    for (owner, other) in [(1, 2), (2, 1)] {
        let dir = tempfile::tempdir().unwrap();
        let (spool, ..) = recovered(dir.path());
        let own = commit_chunk(&spool, owner, b"content of the owner\r\n");
        let lost = commit_chunk(&spool, other, b"content that was lost\r\n");
        drop(spool);
        fs::remove_file(chunk_file(dir.path(), lost)).unwrap();
        rename_chunk(dir.path(), other, lost, own);
        let (spool, found, report) = recovered(dir.path());
        assert!(found.contains(&owner) && (found.len() == 2 || report.corrupt.len() == 1), "{report:?}");
        assert!(matches!(spool.read(QueueId(other)), Err(SpoolFailure::Corrupt(_) | SpoolFailure::Missing)));
        commit(&spool, ended(other));
        let content = spool.read(QueueId(owner)).unwrap().content.clone();
        assert_eq!(content.parts()[0].chunk_id(), Some(own));
        assert_eq!(spool.load(own).unwrap(), &b"content of the owner\r\n"[..]);
    }
}

const EIO: u64 = 5;
const EMFILE: u64 = 24;
const ENOSPC: u64 = 28;
const EDQUOT: u64 = 122;

/// The faults of the disk.
#[derive(Default)]
struct DiskFaults {
    free_bytes: AtomicU64,
    /// The error number of every write; zero: none.
    write_error: AtomicU64,
    /// Files that cannot be read, each with the error number.
    unreadable: Mutex<Vec<(String, u64)>>,
}

impl Faults for DiskFaults {
    fn read_file(&self, name: &str) -> io::Result<()> {
        match self.unreadable.lock().unwrap().iter().find(|(unreadable, _)| unreadable == name) {
            Some((_, error)) => Err(io::Error::from_raw_os_error(*error as i32)),
            None => Ok(()),
        }
    }
    fn write_at(&self) -> io::Result<()> {
        match self.write_error.load(Ordering::Relaxed) {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(error as i32)),
        }
    }
    fn free_bytes(&self) -> io::Result<Option<u64>> {
        Ok(Some(self.free_bytes.load(Ordering::Relaxed)))
    }
}

/// Opens one queue directory on a disk with faults.
fn opened_with_faults(dir: &Path, faults: &Arc<DiskFaults>) -> DirSpool {
    let disk = Arc::new(FaultDisk(RealDisk::new(dir).unwrap(), faults.clone()));
    DirSpool::on(vec![QueueDirectory::flat("q", disk)], settings()).unwrap()
}

/// Recovers one queue directory on a disk with faults; returns the ids of the messages, too.
fn recovered_with_faults(dir: &Path, faults: &Arc<DiskFaults>) -> (DirSpool, Vec<u64>, RecoveryReport) {
    let mut spool = opened_with_faults(dir, faults);
    let mut found = Vec::new();
    let report = spool.recover(&mut |one| found.push(one.message.id.0)).unwrap();
    (spool, found, report)
}

fn soon(what: &str, is_so: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(120);
    while !is_so() {
        assert!(Instant::now() < until, "{what}");
        std::thread::yield_now();
    }
}

#[test]
fn room_is_looked_for_while_nothing_is_committed() {
    let (dir, faults) = (tempfile::tempdir().unwrap(), Arc::new(DiskFaults::default()));
    let (spool, ..) = recovered_with_faults(dir.path(), &faults);
    assert_eq!((spool.submit(vec![small(1)]), spool.pressure().free_bytes), (Err(Refused::Full), 0));
    // Another process frees space.
    faults.free_bytes.store(1 << 30, Ordering::Relaxed);
    soon("it is full for ever", || spool.pressure().free_bytes > 0);
    commit(&spool, small(1));
    // Another process fills the disk.
    faults.free_bytes.store(0, Ordering::Relaxed);
    soon("the spool does not notice the full disk", || spool.submit(vec![small(2)]) == Err(Refused::Full));
    assert!(!spool.pressure().poisoned);
}

#[test]
fn what_finds_no_room_waits_for_it_and_mail_is_refused_meanwhile() {
    for error in [ENOSPC, EDQUOT] {
        let (dir, faults) = (tempfile::tempdir().unwrap(), Arc::new(DiskFaults::default()));
        faults.free_bytes.store(1 << 30, Ordering::Relaxed);
        let (spool, ..) = recovered_with_faults(dir.path(), &faults);
        commit(&spool, small(1));
        let names = || fs::read_dir(dir.path()).unwrap().count();
        let held = Entry::Control { id: QueueId(1), op: spool::ControlOp::Hold("by root".into()) };
        // New files, a line, and an intent over several messages.
        for transaction in [vec![small(2)], vec![held], vec![small(3), small(4)]] {
            let before = names();
            faults.write_error.store(error, Ordering::Relaxed);
            let commit_seq = spool.submit(transaction).unwrap();
            let mut wait_for_it = spool.durable(commit_seq);
            soon("mail is taken", || spool.submit(vec![small(9)]) == Err(Refused::Full));
            soon("files stay", || names() == before);
            assert!(wait_for_it.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            faults.write_error.store(0, Ordering::Relaxed);
            wait(wait_for_it).unwrap();
        }
        soon("mail is not taken again", || spool.pressure().free_bytes > 0);
        drop(spool);
        let (_spool, found, report) = recovered_with_faults(dir.path(), &faults);
        assert_eq!((&found[..4], report.corrupt, report.torn_bytes), (&[1, 2, 3, 4][..], vec![], 0));
    }
}

#[test]
fn whoever_closes_does_not_wait_for_room() {
    let (dir, faults) = (tempfile::tempdir().unwrap(), Arc::new(DiskFaults::default()));
    faults.free_bytes.store(1 << 30, Ordering::Relaxed);
    let (spool, ..) = recovered_with_faults(dir.path(), &faults);
    faults.write_error.store(ENOSPC, Ordering::Relaxed);
    let commit_seq = spool.submit(vec![small(1)]).unwrap();
    spool.close();
    assert!(wait(spool.durable(commit_seq)).is_err());
    drop(spool);
    faults.write_error.store(0, Ordering::Relaxed);
    assert_eq!(recovered_with_faults(dir.path(), &faults).1, [0; 0]);
}

#[test]
fn files_that_cannot_be_read_are_reported_and_kept_and_affect_no_others() {
    let (dir, faults) = (tempfile::tempdir().unwrap(), Arc::new(DiskFaults::default()));
    faults.free_bytes.store(1 << 30, Ordering::Relaxed);
    let (spool, ..) = recovered_with_faults(dir.path(), &faults);
    let chunk_ids = [1, 2].map(|id| commit_chunk(&spool, id, b"x\r\n"));
    commit(&spool, small(3));
    drop(spool);
    let fail = |names: &[String], error| {
        *faults.unreadable.lock().unwrap() = names.iter().map(|name| (name.clone(), error)).collect();
    };
    let envelope = format!("{}.env", QueueId(1));
    let chunk = format!("{:016x}.chunk", chunk_ids[1].0);
    fail(&[envelope.clone(), chunk.clone()], EIO);
    let names = || fs::read_dir(dir.path()).unwrap().count();
    let before = names();
    let (spool, found, report) = recovered_with_faults(dir.path(), &faults);
    assert_eq!((&found[..], report.corrupt.len(), names()), (&[2, 3][..], 1, before), "{report:?}");
    assert!(report.corrupt[0].contains(&envelope), "{report:?}");
    assert!(spool.load(chunk_ids[1]).is_err());
    commit(&spool, small(4));
    drop(spool);
    let mut spool = opened_with_faults(dir.path(), &faults);
    spool.recover_listed(false).unwrap();
    let (found, report) = spool.open_listed(&[1, 2, 3, 4].map(QueueId)).unwrap();
    assert_eq!((found.len(), report.corrupt.len()), (3, 1));
    drop(spool);
    // A failure of this process to read says nothing about the files.
    fail(&[envelope], EMFILE);
    assert!(opened_with_faults(dir.path(), &faults).recover(&mut |_| {}).is_err());
    fail(&[], 0);
    let (spool, found, _) = recovered_with_faults(dir.path(), &faults);
    assert_eq!((found, spool.load(chunk_ids[0]).unwrap()), (vec![1, 2, 3, 4], Bytes::from_static(b"x\r\n")));
}

#[test]
fn no_number_in_a_line_or_name_stops_a_start_or_a_commit() {
    let last = u64::MAX;
    for (line, is_held) in [
        ("hold @99999999 #1".to_owned(), false),
        (format!("hold @{last} #{last}"), false),
        (format!("hold @0 #{last}"), true),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let (spool, ..) = recovered(dir.path());
        (1..=2).for_each(|id| commit(&spool, small(id)));
        drop(spool);
        let path = envelope_file(dir.path(), 1);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.clone() + &sealed(1, text.len() as u64, [&*line])).unwrap();
        fs::write(dir.path().join("q00").join("ffffffffffffffff.intent"), "a stranger's").unwrap();
        for start in 0..2 {
            let (mut spool, mut held) = (opened(dir.path()), Vec::new());
            let report = spool.recover(&mut |one| held.push(one.held.is_some())).unwrap();
            assert_eq!((&held[..2], report.corrupt.len()), (&[is_held, false][..], 1), "{line}: {report:?}");
            // Both of a transaction: an intent is written.
            let commit_seq = spool.submit(vec![small(3 + 2 * start), small(4 + 2 * start)]).unwrap();
            wait(spool.durable(commit_seq)).unwrap();
            for id in [1, 2] {
                let change = if is_held && id == 1 {
                    spool::ControlOp::Hold("".into())
                } else {
                    spool::ControlOp::Release
                };
                commit(&spool, Entry::Control { id: QueueId(id), op: change });
            }
        }
        // What is noted behind such a line counts.
        let (spool, ..) = recovered(dir.path());
        commit(&spool, Entry::Control { id: QueueId(1), op: spool::ControlOp::Release });
        drop(spool);
        let mut spool = opened(dir.path());
        spool.recover_listed(false).unwrap();
        assert!(spool.open_listed(&[QueueId(1)]).unwrap().0.iter().all(|one| one.held.is_none()), "{line}");
        commit(&spool, Entry::Control { id: QueueId(2), op: spool::ControlOp::Hold("by root".into()) });
        drop(spool);
        let (spool, found, _) = recovered(dir.path());
        assert_eq!((found.len(), spool.pressure().poisoned), (6, false));
    }
}

/// A file's path in the queue directory it is not in.
fn elsewhere(dir: &Path, path: &Path) -> PathBuf {
    let other = if path.starts_with(dir.join("q00")) { "q01" } else { "q00" };
    dir.join(other).join(path.file_name().unwrap())
}

#[test]
fn a_stray_copy_of_a_file_does_not_harm_its_message() {
    for kind in ["env", "msg", "chunk"] {
        let dir = tempfile::tempdir().unwrap();
        let (spool, ..) = recovered(dir.path());
        (1..=2).for_each(|id| commit(&spool, small(id)));
        let chunk_ids = [3, 4].map(|id| commit_chunk(&spool, id, b"in a file of its own\r\n"));
        drop(spool);
        let placed = |(chunk_id, queue)| {
            let path: PathBuf = chunk_file(dir.path(), chunk_id);
            let there = dir.path().join(queue).join(path.file_name().unwrap());
            fs::rename(path, &there).unwrap();
            there
        };
        let paths: Vec<PathBuf> = match kind {
            "chunk" => chunk_ids.into_iter().zip(["q00", "q01"]).map(placed).collect(),
            kind => (1..=2).map(|id| file(dir.path(), &format!("{}.{kind}", QueueId(id)))).collect(),
        };
        // Some before the right file, some behind it; of chunks only the beginning.
        assert!(paths[0].parent() != paths[1].parent());
        for path in &paths {
            let bytes = fs::read(path).unwrap();
            let copied = if kind == "chunk" { bytes.len() / 2 } else { bytes.len() };
            fs::write(elsewhere(dir.path(), path), &bytes[..copied]).unwrap();
        }
        for is_listed in [false, true] {
            let (mut spool, mut found) = (opened(dir.path()), Vec::new());
            let corrupt = if is_listed {
                let (_, mut report) = spool.recover_listed(false).unwrap();
                let (opened, more) = spool.open_listed(&[1, 2, 3, 4].map(QueueId)).unwrap();
                found.extend(opened.iter().map(|one| one.message.id.0));
                report.corrupt.extend(more.corrupt);
                report.corrupt
            } else {
                spool.recover(&mut |one| found.push(one.message.id.0)).unwrap().corrupt
            };
            assert_eq!((found, corrupt.len()), (vec![1, 2, 3, 4], 2), "{kind}: {corrupt:?}");
            assert!(corrupt.iter().all(|what| what.contains("in another directory")), "{corrupt:?}");
            for id in 1..=2 {
                let content = spool.read(QueueId(id)).unwrap().content.clone();
                assert!(matches!(content.parts(), [Part::Memory(_)]), "{kind}");
            }
            assert!(
                chunk_ids
                    .iter()
                    .all(|chunk_id| *spool.load(*chunk_id).unwrap() == *b"in a file of its own\r\n")
            );
            drop(spool);
        }
        // Nothing of the message stays but the stray.
        let (spool, ..) = recovered(dir.path());
        (1..=4).for_each(|id| commit(&spool, ended(id)));
        drop(spool);
        assert!(paths.iter().all(|path| !path.exists() && elsewhere(dir.path(), path).exists()), "{kind}");
    }
}
