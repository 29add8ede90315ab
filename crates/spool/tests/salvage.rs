//! Damaged logs, and what can be proved out of them.

use bytes::Bytes;
use mail::{
    Content, ContentTraits, Enhanced, Envelope, ForwardPath, Message, Outcome, Part, QueueId, Recipient,
    ReversePath, SharedMessage, UnixMillis,
};
use spool::{
    Entry, LogItem, LogSettings, LogSpool, RecordBody, SalvageReport, Salvaged, Spool, SpoolFailure,
    dump_log, salvage,
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

/// Returns the live messages; for each recipient, true if it is done with.
fn live(dir: &Path) -> Vec<(u64, Vec<bool>)> {
    let mut live = Vec::new();
    let settled = |states: &[spool::RecipientState]| states.iter().map(|state| state.settled).collect();
    spool::inspect(dir, &mut |one| live.push((one.message.id.0, settled(&one.recipients)))).unwrap();
    live.sort();
    live
}

/// Zeros in place of the header of the first segment that has a text; and in place of its copy.
fn lose_headers(dir: &Path, text: &str, and_copy: bool) {
    let path = segments(dir).into_iter().find(|path| offset_of(path, text).is_some()).unwrap();
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(&[0; 4096], 0).unwrap();
    if and_copy {
        file.write_all_at(&[0; 4096], 256 * 1024 - 4096).unwrap();
    }
}

#[test]
fn a_segment_without_its_header_is_read_all_the_same() {
    for and_copy in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let spool = open(dir.path());
        let chunk = Bytes::from(vec![b'x'; 30_000]);
        let chunk_id = spool.store(chunk.clone()).unwrap();
        let part = Part::Stored { chunk_id, length_bytes: 30_000 };
        commit(&spool, vec![Entry::Accept(message(1, Content::new(ContentTraits::default(), [part])))]);
        commit(&spool, vec![Entry::Accept(small(2))]);
        drop(spool);
        lose_headers(dir.path(), "Subject: 2", and_copy);

        let (found, report) = salvaged(dir.path());
        assert!(found.is_empty() && report.damage.len() == 1, "{report:?}");
        let spool = open(dir.path());
        assert_eq!(spool.load(chunk_id).unwrap(), chunk);
        assert_eq!(*spool.read(QueueId(2)).unwrap(), *small(2));
        // Numbers that the lost header may have had are not used again.
        commit(&spool, vec![Entry::Accept(small(3))]);
        drop(spool);
        assert_eq!(live(dir.path()).iter().map(|one| one.0).collect::<Vec<_>>(), [1, 2, 3]);
    }
}

#[test]
fn what_ended_in_a_later_segment_than_one_without_its_header_does_not_come_back() {
    for and_copy in [false, true] {
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
        let chunk_id = |text| segments.iter().position(|path| offset_of(path, text).is_some()).unwrap();
        assert!(chunk_id("Subject: 1\r\n") == chunk_id("Subject: 3\r\n") && segments.len() > 2);
        lose_headers(dir.path(), "Subject: 1\r\n", and_copy);

        let (found, report) = salvaged(dir.path());
        assert!(found.is_empty(), "{report:?}");
        assert_eq!(live(dir.path())[..2], [(2, vec![false, true]), (3, vec![false, false])]);
        assert_eq!(live(dir.path()).len(), 22);
    }
}

/// Messages of whole batches in a quarantined file, and none that was finished before or since.
#[test]
fn what_is_neither_live_nor_finished_is_brought_out_of_quarantine() {
    let dir = tempfile::tempdir().unwrap();
    let spool = open(dir.path());
    (1..=4).for_each(|id| commit(&spool, vec![Entry::Accept(small(id))]));
    let done = |id| vec![Entry::Outcome { id: QueueId(id), results: vec![], last: true }];
    commit(&spool, done(1));
    drop(spool);
    damage(dir.path(), "Subject: 2");
    // It is damaged; what is left in it is ended, so that the next start quarantines it.
    let spool = open(dir.path());
    commit(&spool, done(3));
    commit(&spool, done(4));
    drop(spool);
    let spool = open(dir.path());
    assert!(spool.faults().iter().any(|fault| fault.starts_with("quarantined")), "{:?}", spool.faults());
    // However much comes and goes, what was finished stays finished.
    for id in 10..60 {
        let filler = message(id, Content::from_bytes(vec![b'x'; 30_000]));
        commit(&spool, vec![Entry::Accept(filler)]);
        commit(&spool, done(id));
    }
    drop(spool);
    let (found, report) = salvaged(dir.path());
    assert!(found.is_empty(), "2 was not whole: {:?}, {report:?}", ids(&found));
    // The file is brought back: nothing that was finished comes back with it.
    let bad = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
    let bad = bad.into_iter().find(|path| path.extension().is_some_and(|ext| ext == "quarantined")).unwrap();
    fs::rename(&bad, bad.with_extension("seg")).unwrap();
    assert!(live(dir.path()).is_empty(), "{:?}", live(dir.path()));
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
    let chunk_id = spool.store(chunk.clone()).unwrap();
    commit(&spool, vec![Entry::Accept(small(1))]);
    let parts = [
        Part::Memory("Subject: x\r\n\r\n".into()),
        Part::Stored { chunk_id, length_bytes: chunk.len() as u32 },
    ];
    commit(&spool, vec![Entry::Accept(message(2, Content::new(ContentTraits::default(), parts)))]);
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
    let (mut batches, mut records, mut totals, mut others) = (0, 0, Vec::new(), 0);
    dump_log(dir.path(), &mut |seen| match seen {
        LogItem::Batch { .. } => batches += 1,
        LogItem::Record { is_loose: false, body: RecordBody::Totals { totals: all }, .. } => {
            totals.push(all.accepted);
        }
        LogItem::Record { is_loose: false, .. } => records += 1,
        LogItem::Segment { .. } | LogItem::Empty { .. } => {}
        LogItem::Record { .. } | LogItem::Damage { .. } | LogItem::Torn { .. } | LogItem::Unread { .. } => {
            others += 1;
        }
    })
    .unwrap();
    assert_eq!((batches, records, totals, others), (3, 3, vec![2, 4, 6], 0));
}
