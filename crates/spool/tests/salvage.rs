//! Damaged logs, and what can be proved out of them.

use bytes::Bytes;
use mail::{
    Content, Enhanced, Envelope, Facts, ForwardPath, Message, Outcome, Part, QueueId, Recipient, ReversePath,
    SharedMessage, UnixMillis,
};
use spool::{
    Entry, LogSettings, LogSpool, SalvageReport, Salvaged, Seen, Spool, SpoolFailure, examine, salvage,
};
use std::{
    fs::{self, OpenOptions},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    task::{Context, Waker},
};

fn message(id: u64, content: Content) -> SharedMessage {
    let mut envelope = Envelope::new(ReversePath::parse("a@b.test", false).unwrap());
    let path = |n| ForwardPath::parse(&format!("r{n}@c.test"), false).unwrap();
    envelope.recipients = (0..2).map(|n| Recipient::new(path(n))).collect();
    SharedMessage::new(Message {
        id: QueueId(id),
        arrived: UnixMillis(id),
        origin: "test".into(),
        envelope,
        content,
    })
}

fn small(id: u64) -> SharedMessage {
    message(id, Content::from_bytes(format!("Subject: {id}\r\n\r\nhello\r\n")))
}

fn open(dir: &Path) -> LogSpool {
    let settings = LogSettings { segment_bytes: 256 * 1024, min_free_bytes: 0, ..LogSettings::default() };
    let mut spool = LogSpool::open(dir, settings).unwrap();
    spool.recover(&mut |_| {}).unwrap();
    spool
}

/// The spool's thread works on its own; until it is done this one looks again and again.
fn commit(spool: &LogSpool, transaction: Vec<Entry>) {
    let mut durable = spool.durable(spool.submit(transaction).unwrap());
    while durable.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
        std::thread::yield_now();
    }
}

fn segments(dir: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|ext| ext == "seg"));
    paths.sort();
    paths
}

fn offset_of(path: &Path, text: &str) -> Option<u64> {
    let bytes = fs::read(path).unwrap();
    bytes.windows(text.len()).position(|window| window == text.as_bytes()).map(|at| at as u64)
}

/// Overwrites the first place at which a text stands.
fn damage(dir: &Path, text: &str) {
    let (path, at) = segments(dir).into_iter().find_map(|p| Some((p.clone(), offset_of(&p, text)?))).unwrap();
    OpenOptions::new().write(true).open(path).unwrap().write_all_at(b"#", at).unwrap();
}

fn salvaged(dir: &Path) -> (Vec<Salvaged>, SalvageReport) {
    let mut found = Vec::new();
    let report = salvage(dir, &mut |one| found.push(one)).unwrap();
    (found, report)
}

fn ids(found: &[Salvaged]) -> Vec<u64> {
    found.iter().map(|one| one.message.id.0).collect()
}

#[test]
fn nothing_is_salvaged_from_a_sound_log() {
    let dir = tempfile::tempdir().unwrap();
    let spool = open(dir.path());
    (1..=3).for_each(|id| commit(&spool, vec![Entry::Accept(small(id))]));
    drop(spool);
    let (found, report) = salvaged(dir.path());
    assert!(found.is_empty() && report.damage.is_empty(), "{report:?}");
    assert_eq!(report.recovery.message_count, 3);
}

#[test]
fn messages_beside_the_damage_in_their_batch_are_brought_out_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let spool = open(dir.path());
    let deferred = Outcome::deferred(Enhanced(4, 2, 1), "full");
    commit(
        &spool,
        vec![
            Entry::Accept(small(1)),
            Entry::Accept(small(2)),
            Entry::Accept(small(3)),
            Entry::Outcome { id: QueueId(1), results: vec![(1, deferred)], last: false },
        ],
    );
    commit(&spool, vec![Entry::Accept(small(4))]);
    let done = Outcome::delivered(Enhanced(2, 0, 0), "ok");
    commit(&spool, vec![Entry::Outcome { id: QueueId(3), results: vec![(0, done)], last: true }]);
    commit(&spool, vec![Entry::Accept(small(5))]);
    drop(spool);
    damage(dir.path(), "Subject: 2");

    let (found, report) = salvaged(dir.path());
    assert_eq!(ids(&found), [1], "2 is damaged, 3 is done, 4 and 5 are live");
    assert_eq!(found[0].message, *small(1));
    assert_eq!(found[0].recipients.iter().map(|r| r.attempt_count).collect::<Vec<_>>(), [0, 1]);
    assert_eq!((report.damage.len(), report.recovery.message_count), (1, 2), "{report:?}");
}

#[test]
fn a_segment_without_its_header_is_read_all_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let spool = open(dir.path());
    let chunk = Bytes::from(vec![b'x'; 30_000]);
    let place = spool.store(chunk.clone()).unwrap();
    let part = Part::Stored { place, length_bytes: 30_000 };
    commit(&spool, vec![Entry::Accept(message(1, Content::new(Facts::default(), [part])))]);
    commit(&spool, vec![Entry::Accept(small(2))]);
    drop(spool);
    damage(dir.path(), "PRSPOOL");

    let (found, report) = salvaged(dir.path());
    assert_eq!(ids(&found), [1, 2], "{report:?}");
    assert_eq!(found[0].message.content.in_memory().unwrap(), chunk);
    assert_eq!(found[0].lost_bytes, 0);
}

#[test]
fn what_ended_in_a_later_segment_than_one_without_its_header_is_not_brought_out() {
    let dir = tempfile::tempdir().unwrap();
    let spool = open(dir.path());
    (1..=3).for_each(|id| commit(&spool, vec![Entry::Accept(small(id))]));
    let filler = |id| message(id, Content::from_bytes(vec![b'x'; 30_000]));
    (10..30).for_each(|id| commit(&spool, vec![Entry::Accept(filler(id))]));
    let delivered = |index| (index, Outcome::delivered(Enhanced(2, 0, 0), "ok"));
    let end = |id, results, last| commit(&spool, vec![Entry::Outcome { id: QueueId(id), results, last }]);
    end(1, vec![delivered(0), delivered(1)], true);
    end(2, vec![delivered(1)], false);
    drop(spool);
    let segments = segments(dir.path());
    let place = |text| segments.iter().position(|path| offset_of(path, text).is_some()).unwrap();
    assert!(place("Subject: 1\r\n") == place("Subject: 3\r\n") && segments.len() > 2);
    let first = OpenOptions::new().write(true).open(&segments[place("Subject: 1\r\n")]).unwrap();
    first.write_all_at(b"#", 0).unwrap();

    let (found, report) = salvaged(dir.path());
    assert_eq!(ids(&found)[..2], [2, 3], "{report:?}");
    let settled = |one: &Salvaged| one.recipients.iter().map(|r| r.settled).collect::<Vec<_>>();
    assert_eq!((settled(&found[0]), settled(&found[1])), (vec![false, true], vec![false, false]));
}

#[test]
fn a_folder_that_is_not_there_is_not_made() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("typo");
    let failure = salvage(&missing, &mut |_| {}).unwrap_err();
    assert!(matches!(failure, SpoolFailure::Unusable(_)) && failure.to_string().contains("no such folder"));
    assert!(!missing.exists());
}

#[test]
fn a_message_whose_chunk_is_lost_is_brought_without_it() {
    let dir = tempfile::tempdir().unwrap();
    let spool = open(dir.path());
    let chunk = Bytes::from("lost ".repeat(2_000));
    let place = spool.store(chunk.clone()).unwrap();
    commit(&spool, vec![Entry::Accept(small(1))]);
    let parts =
        [Part::Memory("Subject: x\r\n\r\n".into()), Part::Stored { place, length_bytes: chunk.len() as u32 }];
    commit(&spool, vec![Entry::Accept(message(2, Content::new(Facts::default(), parts)))]);
    drop(spool);
    damage(dir.path(), "lost lost");

    let (found, _) = salvaged(dir.path());
    let broken = found.iter().find(|one| one.message.id.0 == 2).unwrap();
    assert_eq!(broken.lost_bytes, chunk.len() as u64);
    assert_eq!(broken.message.content.in_memory().unwrap(), "Subject: x\r\n\r\n");
}

#[test]
fn everything_that_was_written_is_seen() {
    let dir = tempfile::tempdir().unwrap();
    let spool = open(dir.path());
    (1..=3).for_each(|id| commit(&spool, vec![Entry::Accept(small(id))]));
    drop(spool);
    let (mut batches, mut records, mut others) = (0, 0, 0);
    examine(dir.path(), &mut |seen| match seen {
        Seen::Batch { .. } => batches += 1,
        Seen::Record { is_loose: false, .. } => records += 1,
        Seen::Segment { .. } | Seen::Empty { .. } => {}
        Seen::Record { .. } | Seen::Damage { .. } | Seen::Torn { .. } => others += 1,
    })
    .unwrap();
    assert_eq!((batches, records, others), (3, 3, 0));
}
