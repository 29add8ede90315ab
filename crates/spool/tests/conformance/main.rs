//! Tests of the promises that hold for every backend, run against each of them.

mod damage;
#[path = "../fault_disk/mod.rs"]
mod fault_disk;
mod options;
mod room;
mod totals;

use bytes::Bytes;
use mail::{
    Content, ContentTraits, Enhanced, Envelope, ForwardPath, Message, Outcome, Part, QueueId, Recipient,
    ReversePath, SharedMessage, UnixMillis,
};
use spool::{
    ControlOp, DirSettings, DirSpool, Entry, Layout, LogSettings, LogSpool, NullSpool, Placement, Recovered,
    RecoveryReport, Refused, ShardedSpool, Spool, SpoolFailure, WorkStep, inspect, migrate_message,
};
use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

/// Waits for a future on this thread.
fn block_on<T>(mut future: std::pin::Pin<Box<dyn std::future::Future<Output = T> + Send>>) -> T {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}

fn message(id: u64, recipients: usize, content: Content) -> SharedMessage {
    let mut envelope = Envelope::new(ReversePath::parse("a@b.test", false).unwrap());
    let path = |n| ForwardPath::parse(&format!("r{n}@c.test"), false).unwrap();
    envelope.recipients = (0..recipients).map(|n| Recipient::new(path(n))).collect();
    Arc::new(Message { id: QueueId(id), arrived: UnixMillis(id), origin: "test".into(), envelope, content })
}

fn small(id: u64) -> SharedMessage {
    message(id, 2, Content::from_bytes(format!("Subject: {id}\r\n\r\nhello\r\n")))
}

/// Returns a message that may use the reserve.
fn report(id: u64) -> SharedMessage {
    let mut message = Message::clone(&small(id));
    message.origin = mail::Origin::Dsn;
    message.envelope.reverse_path = ReversePath::parse("", false).unwrap();
    Arc::new(message)
}

fn deferred(index: u32) -> (u32, Outcome) {
    (index, Outcome::deferred(Enhanced(4, 2, 1), "mailbox busy"))
}

fn delivered(index: u32) -> (u32, Outcome) {
    (index, Outcome::delivered(Enhanced(2, 0, 0), "ok"))
}

fn settings() -> LogSettings {
    LogSettings { segment_bytes: 256 * 1024, min_free_bytes: 0, ..LogSettings::default() }
}

/// A backend that keeps everything in memory.
#[derive(Debug, Clone, Copy)]
enum Backend {
    Log,
    /// So many queue directories, with so many levels below them.
    Directories(usize, u8),
    /// Two queue directories with content in other directories.
    Split,
    /// The log and two queue directories, which take messages in turn.
    Both,
}

const BACKENDS: [Backend; 5] =
    [Backend::Log, Backend::Directories(1, 0), Backend::Directories(3, 1), Backend::Split, Backend::Both];

impl Backend {
    /// Opened in a folder, with a limit; zero for none.
    fn opened(self, dir: &Path, max_bytes: u64) -> Result<Box<dyn Spool>, SpoolFailure> {
        Ok(match self {
            Self::Log => Box::new(LogSpool::open(dir, LogSettings { max_bytes, ..settings() })?),
            Self::Directories(directories, hashed) => {
                let placement = if directories > 1 { Placement::LeastUsed } else { Placement::RoundRobin };
                let settings =
                    DirSettings { max_bytes, min_free_bytes: 0, placement, ..DirSettings::default() };
                Box::new(DirSpool::open(dir, Layout { directories, hashed }, settings)?)
            }
            Self::Split => {
                let content_path = Some(dir.join("content"));
                let settings =
                    DirSettings { max_bytes, min_free_bytes: 0, content_path, ..DirSettings::default() };
                Box::new(DirSpool::open(dir, Layout { directories: 2, hashed: 0 }, settings)?)
            }
            Self::Both => {
                let stores = Self::parts(dir).map(|(backend, dir)| backend.opened(&dir, max_bytes));
                let stores = stores.into_iter().collect::<Result<_, _>>()?;
                let turn = AtomicUsize::new(0);
                Box::new(ShardedSpool::new(
                    stores,
                    Box::new(move |_| turn.fetch_add(1, Ordering::Relaxed) % 2),
                ))
            }
        })
    }

    fn parts(dir: &Path) -> [(Self, std::path::PathBuf); 2] {
        [(Self::Log, dir.join("log")), (Self::Directories(2, 0), dir.join("directories"))]
    }

    /// The ids of what is there, without opening it.
    fn inspected(self, dir: &Path) -> Vec<u64> {
        let dirs = match self {
            Self::Both => Self::parts(dir).map(|part| part.1).to_vec(),
            _ => vec![dir.to_owned()],
        };
        let mut seen = Vec::new();
        dirs.iter().for_each(|dir| drop(inspect(dir, &mut |r| seen.push(r.message.id.0)).unwrap()));
        seen.sort_unstable();
        seen
    }

    fn open(self, dir: &Path) -> (Box<dyn Spool>, Vec<Recovered>, RecoveryReport) {
        self.open_with(dir, 0)
    }

    fn open_with(self, dir: &Path, max_bytes: u64) -> (Box<dyn Spool>, Vec<Recovered>, RecoveryReport) {
        let mut spool = self.opened(dir, max_bytes).unwrap();
        let mut found = Vec::new();
        let report = spool.recover(&mut |r| found.push(r)).unwrap();
        // ShardedSpool give theirs one after the other.
        found.sort_by_key(|r| r.message.id);
        (spool, found, report)
    }
}

fn open(dir: &Path) -> (Box<dyn Spool>, Vec<Recovered>, RecoveryReport) {
    Backend::Log.open(dir)
}

fn commit(spool: &dyn Spool, transaction: Vec<Entry>) {
    let commit_seq = spool.submit(transaction).unwrap();
    block_on(spool.durable(commit_seq)).unwrap();
}

/// Every backend in a folder of its own.
fn durable_backends(test: impl Fn(Backend, &Path)) {
    for backend in BACKENDS {
        println!("{backend:?}");
        test(backend, tempfile::tempdir().unwrap().path());
    }
}

/// Engines that start empty.
fn backends(test: impl Fn(&dyn Spool)) {
    test(&NullSpool::default());
    durable_backends(|backend, dir| test(&*backend.open(dir).0));
}

#[test]
fn what_is_accepted_can_be_read_and_what_is_done_is_gone() {
    backends(|spool| {
        commit(spool, vec![Entry::Accept(small(1)), Entry::Accept(small(2))]);
        assert_eq!(*spool.read(QueueId(1)).unwrap(), *small(1));
        assert_eq!(spool.pressure().message_count, 2);
        commit(spool, vec![Entry::Outcome { id: QueueId(1), results: vec![delivered(0)], last: true }]);
        assert!(spool.read(QueueId(1)).is_err());
        commit(spool, vec![Entry::Control { id: QueueId(2), op: ControlOp::Delete }]);
        assert_eq!(spool.pressure().message_count, 0);
    });
}

#[test]
fn large_content_comes_back_from_its_chunks() {
    backends(|spool| {
        let (a, b) = (Bytes::from(vec![b'a'; 100_000]), Bytes::from(vec![b'b'; 50_000]));
        let (pa, pb) = (spool.store(a.clone()).unwrap(), spool.store(b.clone()).unwrap());
        let part = |chunk_id, bytes: &Bytes| Part::Stored { chunk_id, length_bytes: bytes.len() as u32 };
        let content = Content::new(
            ContentTraits::default(),
            [part(pa, &a), part(pb, &b), Part::Memory("end\r\n".into())],
        );
        commit(spool, vec![Entry::Accept(message(1, 1, content.clone()))]);
        assert_eq!(spool.read(QueueId(1)).unwrap().content, content);
        assert_eq!((spool.load(pa).unwrap(), spool.load(pb).unwrap()), (a, b));
        commit(spool, vec![Entry::Outcome { id: QueueId(1), results: vec![delivered(0)], last: true }]);
        assert!(spool.load(pa).is_err() && spool.load(pb).is_err());
    });
}

#[test]
fn read_cached_returns_what_read_would_or_nothing() {
    backends(|spool| {
        let (bytes, part) =
            (Bytes::from(vec![b'a'; 100_000]), |chunk_id| Part::Stored { chunk_id, length_bytes: 100_000 });
        let chunk_id = spool.store(bytes.clone()).unwrap();
        let content = Content::new(ContentTraits::default(), [part(chunk_id)]);
        commit(spool, vec![Entry::Accept(message(1, 1, content)), Entry::Accept(small(2))]);
        for id in [1, 2].map(QueueId) {
            assert!(spool.read_cached(id).is_none_or(|seen| *seen == *spool.read(id).unwrap()));
        }
        assert!(spool.load_cached(chunk_id).is_none_or(|seen| seen == bytes));
        for id in [1, 2].map(QueueId) {
            commit(spool, vec![Entry::Outcome { id, results: vec![delivered(0)], last: true }]);
            assert_eq!(spool.read_cached(id), None);
        }
        assert_eq!(spool.load_cached(chunk_id), None);
    });
}

/// Skipped unless the file system can tell what is cached, as ext4, xfs and btrfs can.
#[test]
fn what_was_just_written_to_the_log_is_cached() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (spool, _, _) = open(dir.path());
    commit(&*spool, vec![Entry::Accept(small(1))]);
    match spool.read_cached(QueueId(1)) {
        Some(seen) => assert_eq!(*seen, *small(1)),
        None => println!("SKIPPED: this file system does not say what memory holds"),
    }
}

#[test]
fn abandoned_chunks_are_gone() {
    backends(|spool| {
        let chunk_id = spool.store(Bytes::from_static(b"x")).unwrap();
        commit(spool, vec![Entry::Accept(small(1))]);
        spool.discard_chunks(&[chunk_id]);
        assert!(spool.load(chunk_id).is_err());
    });
}

#[test]
fn a_closed_spool_takes_nothing() {
    backends(|spool| {
        spool.close();
        assert_eq!(spool.submit(vec![Entry::Accept(small(1))]), Err(Refused::Poisoned));
    });
}

#[test]
fn recovery_gives_back_every_message_with_its_recipients_past() {
    durable_backends(|backend, dir| {
        let (spool, found, _) = backend.open(dir);
        assert!(found.is_empty());
        for id in 1..=4 {
            commit(&*spool, vec![Entry::Accept(small(id))]);
        }
        commit(
            &*spool,
            vec![Entry::Outcome { id: QueueId(1), results: vec![delivered(0), deferred(1)], last: false }],
        );
        commit(&*spool, vec![Entry::Outcome { id: QueueId(1), results: vec![deferred(1)], last: false }]);
        commit(&*spool, vec![Entry::Outcome { id: QueueId(2), results: vec![], last: true }]);
        commit(&*spool, vec![Entry::Control { id: QueueId(3), op: ControlOp::Hold("by root".into()) }]);
        drop(spool);
        for _ in 0..3 {
            let (spool, found, report) = backend.open(dir);
            assert_eq!((report.message_count, report.corrupt), (3, vec![]));
            let ids: Vec<u64> = found.iter().map(|r| r.message.id.0).collect();
            assert_eq!(ids, [1, 3, 4]);
            assert_eq!(found[0].message.envelope, small(1).envelope);
            let states = &found[0].recipients;
            assert!(states[0].settled && !states[1].settled);
            assert_eq!(
                (states[1].attempt_count, &*states[1].last.as_ref().unwrap().1.text),
                (2, "mailbox busy")
            );
            assert_eq!(
                found.iter().map(|r| r.held.as_deref()).collect::<Vec<_>>(),
                [None, Some("by root"), None]
            );
            assert_eq!(*spool.read(QueueId(4)).unwrap(), *small(4));
            drop(spool);
            assert_eq!(backend.inspected(dir), [1, 3, 4]);
        }
    });
}

#[test]
fn a_second_process_is_refused() {
    durable_backends(|backend, dir| {
        let _first = backend.open(dir);
        assert!(backend.opened(dir, 0).is_err());
    });
}

#[test]
fn segments_are_used_again_and_leftovers_are_moved() {
    let dir = tempfile::tempdir().unwrap();
    let (spool, _, _) = open(dir.path());
    let body = vec![b'x'; 20_000];
    commit(&*spool, vec![Entry::Accept(small(1))]);
    commit(
        &*spool,
        vec![Entry::Outcome { id: QueueId(1), results: vec![delivered(0), deferred(1)], last: false }],
    );
    commit(&*spool, vec![Entry::Control { id: QueueId(1), op: ControlOp::Hold("by root".into()) }]);
    for id in 2..400 {
        commit(&*spool, vec![Entry::Accept(message(id, 1, Content::from_bytes(body.clone())))]);
        commit(&*spool, vec![Entry::Outcome { id: QueueId(id), results: vec![delivered(0)], last: true }]);
        assert_eq!(*spool.read(QueueId(1)).unwrap(), *small(1));
    }
    drop(spool);
    let files = std::fs::read_dir(dir.path()).unwrap().count();
    // Without reuse there would be 40; compaction may be some of them behind.
    assert!(files <= 30, "{files} segments of 256 KiB for one live message");
    let (_, found, report) = open(dir.path());
    assert_eq!((found.len(), report.corrupt), (1, vec![]));
    assert!(
        found[0].held.as_deref() == Some("by root")
            && found[0].recipients[0].settled
            && found[0].recipients[1].attempt_count == 1
    );
}

/// Asks again until it is done; a wait without end is a failure.
fn soon<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let begun = std::time::Instant::now();
    loop {
        if let Some(done) = ask() {
            return done;
        }
        assert!(begun.elapsed().as_secs() < 120, "{what}");
        std::thread::yield_now();
    }
}

#[test]
fn many_threads_commit_each_message_once() {
    durable_backends(|backend, dir| {
        let (spool, _, _) = backend.open(dir);
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let spool = &spool;
                scope.spawn(move || {
                    (0..50).for_each(|n| commit(&**spool, vec![Entry::Accept(small(thread * 1000 + n + 1))]));
                });
            }
        });
        let pressure = spool.pressure();
        assert_eq!((pressure.message_count, pressure.transaction_count), (400, 400));
        assert!(pressure.commit_count <= 400, "{} commits", pressure.commit_count);
        drop(spool);
        assert_eq!(backend.open(dir).1.len(), 400);
    });
}

#[test]
fn transactions_that_wait_share_one_commit() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Arc::new(spool::disk::RealDisk::new(dir.path()).unwrap());
    let mut spool = LogSpool::single_stepped(disk, settings()).unwrap();
    spool.recover(&mut |_| panic!("nothing was accepted")).unwrap();
    while spool.step(WorkStep::Prepare) {}
    let before = spool.pressure().commit_count;
    let waiting: Vec<_> = (1..=100).map(|id| spool.submit(vec![Entry::Accept(small(id))]).unwrap()).collect();
    assert!(spool.step(WorkStep::Commit));
    waiting.into_iter().for_each(|commit_seq| block_on(spool.durable(commit_seq)).unwrap());
    assert_eq!(spool.pressure().commit_count - before, 1);
}

#[test]
fn another_format_is_refused_in_words() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()));
    for entry in std::fs::read_dir(dir.path()).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[8] = 9;
        let sum = crc32c::crc32c(&bytes[..40]);
        bytes[40..44].copy_from_slice(&sum.to_le_bytes());
        std::fs::write(path, bytes).unwrap();
    }
    let Err(failure) = LogSpool::open(dir.path(), settings()) else { panic!() };
    assert!(failure.to_string().contains("format 9"), "{failure}");
}

#[test]
fn a_log_driven_by_hand_does_what_its_threads_do() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Arc::new(spool::disk::RealDisk::new(dir.path()).unwrap());
    let mut spool = LogSpool::single_stepped(disk, settings()).unwrap();
    spool.recover(&mut |_| panic!("nothing was accepted")).unwrap();
    while spool.step(WorkStep::Prepare) {}
    for id in 1..200 {
        let commit_seq =
            spool.submit(vec![Entry::Accept(message(id, 1, Content::from_bytes(vec![b'x'; 20_000])))]);
        if id > 1 {
            spool
                .submit(vec![Entry::Outcome { id: QueueId(id), results: vec![delivered(0)], last: true }])
                .unwrap();
        }
        assert!(spool.step(WorkStep::Commit));
        block_on(spool.durable(commit_seq.unwrap())).unwrap();
        while spool.step(WorkStep::Compact) {
            spool.step(WorkStep::Commit);
        }
    }
    drop(spool);
    let (_, found, report) = open(dir.path());
    assert_eq!((found.len(), report.corrupt), (1, vec![]));
    assert!(std::fs::read_dir(dir.path()).unwrap().count() <= 16);
}

#[test]
fn a_start_on_a_full_disk_fails_in_words_and_does_not_wait() {
    let dir = tempfile::tempdir().unwrap();
    let (spool, _, _) = open(dir.path());
    commit(&*spool, vec![Entry::Accept(small(1))]);
    drop(spool);
    for entry in std::fs::read_dir(dir.path()).unwrap() {
        let path = entry.unwrap().path();
        // Only the one in use stays.
        let bytes = std::fs::read(&path).unwrap();
        if bytes[4096..bytes.len() - 4096].iter().all(|b| *b == 0) {
            std::fs::remove_file(path).unwrap();
        }
    }
    let full = LogSettings { min_free_bytes: u64::MAX / 2, ..settings() };
    let mut spool = LogSpool::open(dir.path(), full).unwrap();
    let failure = spool.recover(&mut |_| {}).unwrap_err().to_string();
    assert!(failure.contains("no room"), "{failure}");
}

/// Messages that were written when segments were larger are read, written again and compacted.
#[test]
fn a_spool_opens_with_smaller_segments() {
    let dir = tempfile::tempdir().unwrap();
    let with = |segment_bytes| LogSettings { segment_bytes, ..settings() };
    let mut spool = LogSpool::open(dir.path(), with(4 << 20)).unwrap();
    spool.recover(&mut |_| {}).unwrap();
    let large = |id| message(id, 1, Content::from_bytes(vec![b'l'; 2 << 20]));
    (1..=3).for_each(|id| commit(&spool, vec![Entry::Accept(large(id))]));
    drop(spool);
    for _ in 0..2 {
        let mut spool = LogSpool::open(dir.path(), with(256 * 1024)).unwrap();
        let mut found = Vec::new();
        let report = spool.recover(&mut |one| found.push(one.message.id.0)).unwrap();
        found.sort_unstable();
        assert_eq!((found, report.is_complete()), (vec![1, 2, 3], true), "{report:?}");
        assert_eq!(*spool.read(QueueId(3)).unwrap(), *large(3));
        for id in 100..220 {
            commit(&spool, vec![Entry::Accept(message(id, 1, Content::from_bytes(vec![b's'; 60_000])))]);
            commit(&spool, vec![Entry::Outcome { id: QueueId(id), results: vec![], last: true }]);
        }
        drop(spool);
    }
    // Small segments are used in turn although the large messages stay.
    let size: u64 =
        std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().metadata().unwrap().len()).sum();
    assert!(size < 24 << 20, "{size}");
    let mut spool = LogSpool::open(dir.path(), with(256 * 1024)).unwrap();
    let mut found = Vec::new();
    spool.recover(&mut |one| found.push(one.message.id.0)).unwrap();
    found.sort_unstable();
    assert_eq!(found, [1, 2, 3]);
    assert!((1..=3).all(|id| *spool.read(QueueId(id)).unwrap() == *large(id)));
}

#[test]
fn a_start_may_go_beyond_the_limit_of_the_spool() {
    durable_backends(|backend, dir| {
        drop(backend.open(dir));
        for id in 1..10 {
            let (spool, found, _) = backend.open_with(dir, 1);
            assert_eq!(found.len(), id as usize - 1);
            let ended = Entry::Outcome { id: QueueId(0), results: vec![], last: true };
            commit(&*spool, vec![ended, Entry::Accept(report(id))]);
        }
    });
}

#[test]
fn a_transaction_over_several_messages_is_kept_whole() {
    durable_backends(|backend, dir| {
        let (spool, ..) = backend.open(dir);
        commit(&*spool, vec![Entry::Accept(small(1)), Entry::Accept(small(2)), Entry::Accept(small(3))]);
        let ended = Entry::Outcome { id: QueueId(1), results: vec![], last: true };
        commit(&*spool, vec![ended, Entry::Accept(report(4))]);
        let noted = Entry::Outcome { id: QueueId(2), results: vec![deferred(0)], last: false };
        commit(&*spool, vec![noted, Entry::Accept(report(5))]);
        // A message may come and go in one breath, too.
        let ended = Entry::Outcome { id: QueueId(6), results: vec![], last: true };
        spool.submit(vec![Entry::Accept(small(6))]).unwrap();
        commit(&*spool, vec![ended, Entry::Accept(report(7))]);
        drop(spool);
        let (_, found, report) = backend.open(dir);
        let ids: Vec<u64> = found.iter().map(|r| r.message.id.0).collect();
        assert_eq!((ids, report.corrupt), (vec![2, 3, 4, 5, 7], vec![]));
        assert_eq!(found[0].recipients[0].attempt_count, 1);
    });
}

/// Files below a folder.
fn files(dir: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if !path.ends_with("totals") {
            found.push(path);
        }
    }
    found
}

#[test]
fn queue_directories_are_empty_when_everything_is_delivered() {
    for backend in [Backend::Directories(1, 0), Backend::Directories(5, 2)] {
        let dir = tempfile::tempdir().unwrap();
        let (spool, ..) = backend.open(dir.path());
        for id in 1..=20 {
            let chunk = Bytes::from(vec![b'x'; 1000]);
            let chunk_id = spool.store(chunk).unwrap();
            let parts = [Part::Stored { chunk_id, length_bytes: 1000 }, Part::Memory("end\r\n".into())];
            commit(
                &*spool,
                vec![Entry::Accept(message(id, 1, Content::new(ContentTraits::default(), parts)))],
            );
        }
        assert_eq!(files(dir.path()).len(), 60);
        let all = (1..=20).map(|id| Entry::Outcome { id: QueueId(id), results: vec![], last: true });
        commit(&*spool, all.collect());
        spool.close();
        assert_eq!(files(dir.path()), [""; 0].map(std::path::PathBuf::from));
    }
}

#[test]
fn a_damaged_message_is_reported_and_kept_and_affects_no_others() {
    let dir = tempfile::tempdir().unwrap();
    let backend = Backend::Directories(2, 0);
    let (spool, ..) = backend.open(dir.path());
    (1..=6).for_each(|id| commit(&*spool, vec![Entry::Accept(small(id))]));
    drop(spool);
    let ending = |id: u64, kind: &str| {
        let name = format!("{}.{kind}", QueueId(id));
        files(dir.path()).into_iter().find(|path| path.ends_with(&name)).unwrap()
    };
    let damage = |path: &Path| {
        let mut bytes = std::fs::read(path).unwrap();
        bytes[5] ^= 0x10;
        std::fs::write(path, bytes).unwrap();
    };
    damage(&ending(1, "env"));
    std::fs::remove_file(ending(2, "msg")).unwrap();
    damage(&ending(3, "msg"));
    let before = files(dir.path()).len();
    for _ in 0..2 {
        let (spool, found, report) = backend.open(dir.path());
        let ids: Vec<u64> = found.iter().map(|r| r.message.id.0).collect();
        assert_eq!((ids, report.corrupt.len()), (vec![3, 4, 5, 6], 2), "{report:?}");
        assert!(matches!(spool.read(QueueId(3)), Err(SpoolFailure::Corrupt(_))));
        assert_eq!(files(dir.path()).len(), before);
    }
}

#[test]
fn a_spool_of_the_other_backend_is_refused_in_words() {
    for (first, second) in [(BACKENDS[0], BACKENDS[1]), (BACKENDS[1], BACKENDS[0])] {
        let dir = tempfile::tempdir().unwrap();
        drop(first.open(dir.path()));
        let Err(failure) = second.opened(dir.path(), 0) else { panic!("{second:?}") };
        assert!(failure.to_string().contains("postrider spool convert"), "{failure}");
    }
}

#[test]
fn a_message_is_migrated_from_each_backend_to_each_other() {
    for (from, to) in BACKENDS.iter().flat_map(|from| BACKENDS.map(|to| (*from, to))) {
        let (old, new) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (spool, ..) = from.open(old.path());
        let chunk = Bytes::from(vec![b'x'; 70_000]);
        let stored = Part::Stored { chunk_id: spool.store(chunk.clone()).unwrap(), length_bytes: 70_000 };
        let parts = [stored, Part::Memory("end\r\n".into())];
        let message = options::extended(&message(1, 3, Content::new(ContentTraits::default(), parts)));
        commit(&*spool, vec![Entry::Accept(message)]);
        let results = vec![delivered(0), deferred(1)];
        commit(&*spool, vec![Entry::Outcome { id: QueueId(1), results: results.clone(), last: false }]);
        commit(&*spool, vec![Entry::Outcome { id: QueueId(1), results: vec![deferred(1)], last: false }]);
        commit(&*spool, vec![Entry::Control { id: QueueId(1), op: ControlOp::Hold("by root".into()) }]);
        commit(&*spool, vec![Entry::Accept(small(2))]);
        drop(spool);
        let (spool, found, _) = from.open(old.path());
        let (other, ..) = to.open(new.path());
        for found in &found {
            let mut busy = || panic!("little waits");
            let commit_seq = migrate_message(&*spool, found, &*other, &mut busy).unwrap().unwrap();
            block_on(other.durable(commit_seq)).unwrap();
        }
        drop(other);
        let (other, arrived, report) = to.open(new.path());
        assert_eq!((arrived.len(), report.corrupt), (2, vec![]));
        for (was, is) in found.iter().zip(&arrived) {
            assert_eq!(
                (was.message.id, &was.held, &was.recipients),
                (is.message.id, &is.held, &is.recipients)
            );
            assert_eq!(was.message.envelope, is.message.envelope);
        }
        let content = other.read(QueueId(1)).unwrap().content.clone();
        let [Part::Stored { chunk_id, .. }, Part::Memory(end)] = content.parts() else {
            panic!("{content:?}")
        };
        assert_eq!((other.load(*chunk_id).unwrap(), &**end), (chunk, &b"end\r\n"[..]));
    }
}

/// A log whose line takes two of twenty pieces, and a spool with a message of that many.
fn larger_than_the_line(dir: &Path) -> (NullSpool, Recovered, LogSpool) {
    let from = NullSpool::default();
    let piece = |n| {
        let chunk_id = from.store(Bytes::from(vec![n; 40_000])).unwrap();
        Part::Stored { chunk_id, length_bytes: 40_000 }
    };
    let parts: Vec<Part> = (0..20).map(piece).collect();
    let message = message(1, 2, Content::new(ContentTraits::default(), parts));
    commit(&from, vec![Entry::Accept(message.clone())]);
    let found = Recovered { message, recipients: vec![Default::default(); 2], held: None };
    let settings = LogSettings { queued_bytes_max: 100_000, segment_bytes: 1024 * 1024, ..settings() };
    let disk = Arc::new(spool::disk::RealDisk::new(dir).unwrap());
    let mut to = LogSpool::single_stepped(disk, settings).unwrap();
    to.recover(&mut |_| {}).unwrap();
    while to.step(WorkStep::Prepare) {}
    (from, found, to)
}

#[test]
fn a_message_that_is_larger_than_the_line_is_carried_as_the_line_moves() {
    let dir = tempfile::tempdir().unwrap();
    let (from, found, to) = larger_than_the_line(dir.path());
    let mut turns = 0;
    let mut busy = || {
        turns += 1;
        // Room is not always there when it was waited for.
        assert!(turns % 2 == 1 || to.step(WorkStep::Commit));
        Ok(())
    };
    migrate_message(&from, &found, &to, &mut busy).unwrap().unwrap();
    assert!(to.step(WorkStep::Commit));
    assert!(turns >= 18, "{turns}");
    let content = to.read(QueueId(1)).unwrap().content.clone();
    let bytes = content.parts().iter().map(|part| to.load(part.chunk_id().unwrap()).unwrap()[0]);
    assert!(bytes.eq(0..20));
}

#[test]
fn pieces_of_a_message_that_is_not_carried_to_the_end_are_abandoned() {
    let dir = tempfile::tempdir().unwrap();
    let (from, found, to) = larger_than_the_line(dir.path());
    let stored_count = || (0..100).filter(|chunk_id| to.load(mail::ChunkId(*chunk_id)).is_ok()).count();
    let mut busy = || {
        to.step(WorkStep::Commit);
        if stored_count() < 5 { Ok(()) } else { Err(SpoolFailure::Io("enough".into())) }
    };
    assert!(migrate_message(&from, &found, &to, &mut busy).is_err());
    assert_eq!(stored_count(), 0);
}
