//! Two stores as one: which of them has what, and what is said when one fails.

use bytes::Bytes;
use mail::{
    ChunkId, Content, ContentTraits, Envelope, ForwardPath, Message, Part, QueueId, Recipient, ReversePath,
    SharedMessage, UnixMillis,
};
use spool::{
    DirSettings, DirSpool, Entry, Layout, LogSettings, LogSpool, Refused, ShardedSpool, Spool, SpoolFailure,
    inspect,
};
use std::{
    path::Path,
    pin::Pin,
    task::{Context, Poll, Waker},
};

const CHUNK: usize = 50_000;

fn envelope(domain: &str) -> Envelope {
    let mut envelope = Envelope::new(ReversePath::parse("a@b.test", false).unwrap());
    let path = ForwardPath::parse(&format!("x@{domain}"), false).unwrap();
    envelope.recipients = vec![Recipient::new(path)];
    envelope
}

fn message(id: u64, domain: &str, content: Content) -> Entry {
    let (id, arrived) = (QueueId(id), UnixMillis(id));
    let message = Message { id, arrived, origin: "test".into(), envelope: envelope(domain), content };
    Entry::Accept(SharedMessage::new(message))
}

fn small(id: u64, domain: &str) -> Entry {
    message(id, domain, Content::from_bytes("Subject: hi\r\n\r\nhello\r\n"))
}

fn ended(id: u64) -> Entry {
    Entry::Outcome { id: QueueId(id), results: vec![], last: true }
}

fn log(dir: &Path) -> Box<dyn Spool> {
    let settings = LogSettings { segment_bytes: 256 * 1024, min_free_bytes: 0, ..LogSettings::default() };
    Box::new(LogSpool::open(&dir.join("log"), settings).unwrap())
}

fn directories(dir: &Path) -> Box<dyn Spool> {
    let settings = DirSettings { min_free_bytes: 0, ..DirSettings::default() };
    Box::new(DirSpool::open(&dir.join("directories"), Layout::default(), settings).unwrap())
}

/// Mail for bulk.test in queue directories, all other in the log.
fn open(dir: &Path) -> (ShardedSpool, Vec<SharedMessage>) {
    let is_bulk = |e: &Envelope| {
        e.recipients[0].path.mailbox().is_some_and(|mailbox| mailbox.domain().key() == "bulk.test")
    };
    let mut spool =
        ShardedSpool::new(vec![log(dir), directories(dir)], Box::new(move |e| usize::from(is_bulk(e))));
    let mut found = Vec::new();
    spool.recover(&mut |one| found.push(one.message)).unwrap();
    (spool, found)
}

fn commit(spool: &dyn Spool, transaction: Vec<Entry>) {
    let commit_seq = spool.submit(transaction).unwrap();
    wait(spool.durable(commit_seq)).unwrap();
}

fn wait<T>(mut future: Pin<Box<dyn Future<Output = T> + Send>>) -> T {
    loop {
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::yield_now(),
        }
    }
}

/// Returns the ids of the messages in the log, and of those in the queue directories.
fn inspected(dir: &Path) -> [Vec<u64>; 2] {
    ["log", "directories"].map(|name| {
        let mut seen = Vec::new();
        inspect(&dir.join(name), &mut |found| seen.push(found.message.id.0)).unwrap();
        seen
    })
}

#[test]
fn an_envelope_chooses_the_store_and_reports_lie_beside_what_they_tell_of() {
    let dir = tempfile::tempdir().unwrap();
    let (spool, _) = open(dir.path());
    for (id, domain) in [(1, "bulk.test"), (2, "else.test"), (3, "bulk.test"), (4, "else.test")] {
        commit(&spool, vec![small(id, domain)]);
    }
    assert_eq!(inspected(dir.path()), [vec![2, 4], vec![1, 3]]);
    commit(&spool, vec![ended(1), small(5, "else.test")]);
    commit(&spool, vec![ended(2), small(6, "bulk.test")]);
    drop(spool);
    assert_eq!(inspected(dir.path()), [vec![4, 6], vec![3, 5]]);
    // And so it is after a start.
    let (spool, found) = open(dir.path());
    assert_eq!((found.len(), spool.pressure().message_count), (4, 4));
    commit(&spool, vec![ended(5), small(7, "else.test")]);
    commit(&spool, vec![ended(6)]);
    commit(&spool, vec![small(8, "bulk.test"), small(9, "else.test")]);
    drop(spool);
    assert_eq!(inspected(dir.path()), [vec![4], vec![3, 7, 8, 9]]);
}

#[test]
fn chunks_are_stored_in_the_shard_of_their_message_and_else_decide_its_shard() {
    let dir = tempfile::tempdir().unwrap();
    let (spool, _) = open(dir.path());
    let bytes = |n: u8| Bytes::from(vec![n; CHUNK]);
    let part = |chunk_id| Part::Stored { chunk_id, length_bytes: CHUNK as u32 };
    let chunk_ids = [1, 2].map(|n| spool.store_for(&envelope("bulk.test"), bytes(n)).unwrap());
    let mixed = spool.store_for(&envelope("else.test"), bytes(3)).unwrap();
    let content = Content::new(ContentTraits::default(), chunk_ids.map(part));
    commit(&spool, vec![message(1, "bulk.test", content.clone())]);
    assert_eq!(spool.read(QueueId(1)).unwrap().content, content);
    let unknown = spool.store(bytes(4)).unwrap();
    commit(&spool, vec![message(2, "bulk.test", Content::new(ContentTraits::default(), [part(unknown)]))]);
    spool.discard_chunks(&[mixed]);
    assert!(spool.load(mixed).is_err());
    drop(spool);
    assert_eq!(inspected(dir.path()), [vec![2], vec![1]]);
    let (spool, found) = open(dir.path());
    let chunks = |message: &SharedMessage| -> Vec<Bytes> {
        let chunk_ids = message.content.parts().iter().map(|part| part.chunk_id().unwrap());
        chunk_ids.map(|chunk_id| spool.load(chunk_id).unwrap()).collect()
    };
    let read = |id| chunks(&spool.read(QueueId(id)).unwrap());
    assert_eq!((read(1), read(2)), (vec![bytes(1), bytes(2)], vec![bytes(4)]));
    // What recovery gave names the same places.
    assert!(found.iter().all(|message| chunks(message) == read(message.id.0)));
    let chunk_id = found.iter().find(|m| m.id.0 == 1).and_then(|m| m.content.parts()[0].chunk_id()).unwrap();
    commit(&spool, vec![ended(1)]);
    assert!(spool.load(chunk_id).is_err() && spool.load(ChunkId(u64::MAX)).is_err());
}

#[test]
fn each_spool_is_a_shard_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let (spool, _) = open(dir.path());
    let bulk = spool.submit(vec![small(1, "bulk.test")]).unwrap();
    let others = [2, 3].map(|id| spool.submit(vec![small(id, "else.test")]).unwrap());
    assert_eq!(
        (spool.shard_count(), spool.shard(bulk), others.map(|commit_seq| spool.shard(commit_seq))),
        (2, 1, [0, 0])
    );
    assert!(others[0] < others[1]);
    wait(spool.durable(others[1])).unwrap();
    assert!(matches!(spool.poll_durable(others[0]), Some(Ok(()))));
    wait(spool.durable(bulk)).unwrap();
    assert!(matches!(spool.poll_durable(bulk), Some(Ok(()))));
}

/// A store whose disk is gone.
struct Broken;

impl Spool for Broken {
    fn submit_or_keep(&self, _: &mut Vec<Entry>) -> Result<spool::CommitSeq, Refused> {
        Ok(spool::CommitSeq(1))
    }
    fn store(&self, _: Bytes) -> Result<ChunkId, Refused> {
        Err(Refused::Poisoned)
    }
    fn discard_chunks(&self, _: &[ChunkId]) {}
    fn durable(&self, _: spool::CommitSeq) -> spool::Durable {
        Box::pin(std::future::ready(Err(SpoolFailure::Io("gone".to_owned()))))
    }
    fn poll_durable(&self, _: spool::CommitSeq) -> Option<Result<(), SpoolFailure>> {
        Some(Err(SpoolFailure::Io("gone".to_owned())))
    }
    fn failed(&self) -> spool::Failed {
        Box::pin(std::future::ready(SpoolFailure::Io("gone".to_owned())))
    }
    fn read(&self, _: QueueId) -> Result<SharedMessage, SpoolFailure> {
        Err(SpoolFailure::Missing)
    }
    fn load(&self, _: ChunkId) -> Result<Bytes, SpoolFailure> {
        Err(SpoolFailure::Missing)
    }
    fn recover(
        &mut self,
        _: &mut dyn FnMut(spool::Recovered),
    ) -> Result<spool::RecoveryReport, SpoolFailure> {
        Ok(spool::RecoveryReport::default())
    }
    fn pressure(&self) -> spool::Pressure {
        spool::Pressure { free_bytes: 7, message_count: 2, poisoned: true, ..spool::Pressure::default() }
    }
    fn close(&self) {}
}

#[test]
fn one_that_fails_fails_what_it_was_given() {
    let dir = tempfile::tempdir().unwrap();
    let mut spool =
        ShardedSpool::new(vec![log(dir.path()), Box::new(Broken)], Box::new(|e| e.recipients.len()));
    spool.recover(&mut |_| {}).unwrap();
    assert_eq!(wait(spool.failed()).to_string(), "gone");
    let none = |id| {
        let Entry::Accept(message) = small(id, "else.test") else { unreachable!() };
        let envelope = Envelope::new(ReversePath::Null);
        Entry::Accept(SharedMessage::new(Message { envelope, ..Message::clone(&message) }))
    };
    let before = spool.submit(vec![none(1)]).unwrap();
    let broken = spool.submit(vec![small(2, "else.test")]).unwrap();
    let behind = spool.submit(vec![none(3)]).unwrap();
    assert!(wait(spool.durable(before)).is_ok());
    assert!(wait(spool.durable(broken)).is_err() && matches!(spool.poll_durable(broken), Some(Err(_))));
    assert!(wait(spool.durable(behind)).is_ok());
    let pressure = spool.pressure();
    assert!(pressure.poisoned && pressure.free_bytes == 7 && pressure.message_count >= 2);
    assert_eq!(spool.store_for(&envelope("else.test"), Bytes::new()), Err(Refused::Poisoned));
}

/// Two logs; nothing chooses the second.
fn two_logs(dir: &Path) -> (ShardedSpool, Vec<u64>, spool::RecoveryReport) {
    let stores: Vec<Box<dyn Spool>> = ["a", "b"].map(|name| log(&dir.join(name))).into();
    let names = vec!["/a".to_owned(), "/b".to_owned()];
    let mut spool = ShardedSpool::new(stores, Box::new(|_| 0)).with_names(names);
    let mut found = Vec::new();
    let report = spool.recover(&mut |one| found.push(one.message.id.0)).unwrap();
    found.sort_unstable();
    (spool, found, report)
}

fn in_one(dir: &Path, name: &str) -> Vec<u64> {
    let mut seen = Vec::new();
    inspect(&dir.join(name).join("log"), &mut |found| seen.push(found.message.id.0)).unwrap();
    seen
}

/// Writes to one of the two alone.
fn write_to(dir: &Path, name: &str, transactions: Vec<Vec<Entry>>) {
    let mut spool = log(&dir.join(name));
    spool.recover(&mut |_| {}).unwrap();
    for transaction in transactions {
        let commit_seq = spool.submit(transaction).unwrap();
        wait(spool.durable(commit_seq)).unwrap();
    }
    spool.close();
}

#[test]
fn a_message_that_is_in_two_stores_is_recovered_once_and_told_and_its_copy_ends() {
    let dir = tempfile::tempdir().unwrap();
    write_to(dir.path(), "a", (1..=40).map(|id| vec![small(id, "d.test")]).collect());
    std::fs::create_dir_all(dir.path().join("b/log")).unwrap();
    for entry in std::fs::read_dir(dir.path().join("a/log")).unwrap() {
        let file = entry.unwrap();
        std::fs::copy(file.path(), dir.path().join("b/log").join(file.file_name())).unwrap();
    }
    write_to(dir.path(), "b", vec![vec![small(50, "d.test")]]);
    let delivered = (0, mail::Outcome::delivered(mail::Enhanced(2, 0, 0), "ok"));
    let noted = Entry::Outcome { id: QueueId(3), results: vec![delivered], last: false };
    write_to(dir.path(), "a", vec![vec![noted], vec![small(60, "d.test")]]);

    let (spool, found, report) = two_logs(dir.path());
    let expected: Vec<u64> = (1..=40).chain([50, 60]).collect();
    assert_eq!((&found, report.message_count), (&expected, 42));
    assert_eq!(report.copies.len(), 40);
    let settled: Vec<u64> =
        report.copies.iter().filter(|copy| copy.recipients[0].settled).map(|copy| copy.id.0).collect();
    assert_eq!(settled, [3], "what the copy says of its recipients");
    assert_eq!(report.corrupt.len(), 21, "not one line for each of a copied spool");
    assert!(report.corrupt[0].contains("is in /b and in /a: it is delivered once"), "{}", report.corrupt[0]);
    commit(&spool, vec![ended(1)]);
    drop(spool);
    assert_eq!((in_one(dir.path(), "a"), in_one(dir.path(), "b").len()), (vec![60], 40));
    let (_spool, found, report) = two_logs(dir.path());
    assert_eq!((found.len(), report.copies.len(), report.corrupt.len()), (41, 0, 0));
}

#[test]
fn another_message_with_an_id_of_another_shard_is_reported_and_not_lost() {
    let dir = tempfile::tempdir().unwrap();
    write_to(dir.path(), "a", vec![vec![small(1, "d.test")]]);
    write_to(dir.path(), "b", vec![vec![small(1, "other.test")]]);
    let (spool, found, report) = two_logs(dir.path());
    assert_eq!((found, report.copies.len(), report.corrupt.len()), (vec![1], 0, 1));
    assert!(report.corrupt[0].contains("another message with the id"), "{}", report.corrupt[0]);
    assert_eq!(spool.read(QueueId(1)).unwrap().envelope, envelope("other.test"));
    commit(&spool, vec![ended(1)]);
    drop(spool);
    let (spool, found, report) = two_logs(dir.path());
    assert_eq!((found, report.corrupt.len()), (vec![1], 0));
    assert_eq!(spool.read(QueueId(1)).unwrap().envelope, envelope("d.test"));
}
