//! Threads find what one reader finds, in whatever state the log is.

use super::{
    LogSettings, LogSpool,
    index::Segment,
    recover::{Found, Reading, scan, settle_last},
};
use crate::{ControlOp, Entry, Recovered, Spool, WorkStep, disk::RealDisk, mutant::ActiveMutant};
use bytes::Bytes;
use mail::{
    Content, ContentTraits, Enhanced, Envelope, ForwardPath, Message, Outcome, Part, QueueId, Recipient,
    ReversePath, SharedMessage, UnixMillis,
};
use proptest::prelude::*;
use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

const SEGMENT_BYTES: u64 = 40 * 1024;

/// An operation on a log.
#[derive(Debug, Clone)]
enum Step {
    Accept {
        recipients: usize,
        size_bytes: usize,
        in_chunk: bool,
    },
    Outcome(usize),
    Hold(usize),
    Done(usize),
    /// The batch ends here.
    Commit,
    /// The process ends here; its last batch is written again.
    Start,
}

/// A fault in the files of a log.
#[derive(Debug, Clone)]
enum Damage {
    Flip(usize, usize),
    /// So many blocks become zeros.
    Zero(usize, usize, usize),
    /// A block takes another's place.
    Copy(usize, usize, usize),
    Cut(usize, usize),
    Gone(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let accept = (1usize..4, 0usize..6000, prop::bool::weighted(0.2));
    let step = prop_oneof![
        4 => accept.prop_map(|(recipients, size_bytes, in_chunk)| Step::Accept { recipients, size_bytes, in_chunk }),
        2 => any::<usize>().prop_map(Step::Outcome),
        1 => any::<usize>().prop_map(Step::Hold),
        3 => any::<usize>().prop_map(Step::Done),
        4 => Just(Step::Commit),
        1 => Just(Step::Start),
    ];
    prop::collection::vec(step, 1..80)
}

fn damages() -> impl Strategy<Value = Vec<Damage>> {
    let (file, at) = (any::<usize>(), any::<usize>());
    let damage = prop_oneof![
        (file, at).prop_map(|(file, at)| Damage::Flip(file, at)),
        (file, at, 1usize..6).prop_map(|(file, at, count)| Damage::Zero(file, at, count)),
        (file, at, at).prop_map(|(file, from, to)| Damage::Copy(file, from, to)),
        (file, at).prop_map(|(file, at)| Damage::Cut(file, at)),
        file.prop_map(Damage::Gone),
    ];
    prop::collection::vec(damage, 0..5)
}

fn message(id: u64, recipients: usize, part: Part) -> SharedMessage {
    let mut envelope = Envelope::new(ReversePath::parse("a@b.test", false).unwrap());
    let path = |n| ForwardPath::parse(&format!("r{n}@c.test"), false).unwrap();
    envelope.recipients = (0..recipients).map(|n| Recipient::new(path(n))).collect();
    let content = Content::new(ContentTraits::default(), [part]);
    SharedMessage::new(Message {
        id: QueueId(id),
        arrived: UnixMillis(id),
        origin: "test".into(),
        envelope,
        content,
    })
}

fn opened(dir: &Path) -> LogSpool {
    let settings = LogSettings { segment_bytes: SEGMENT_BYTES, min_free_bytes: 0, ..LogSettings::default() };
    let disk = Arc::new(RealDisk::new(dir).unwrap());
    let mut spool = LogSpool::single_stepped(disk, settings).unwrap();
    spool.recover(&mut |_| {}).unwrap();
    spool
}

/// At the end it may be closed, so that every segment has its index file.
fn write(dir: &Path, steps: &[Step], closes: bool) {
    let (mut spool, mut live, mut next) = (opened(dir), Vec::<u64>::new(), 1);
    for step in steps {
        let some = |live: &[u64], at: &usize| live.get(at % live.len().max(1)).map(|id| QueueId(*id));
        let entry = match step {
            Step::Accept { recipients, size_bytes, in_chunk } => {
                let bytes = Bytes::from(vec![next as u8; *size_bytes]);
                let length_bytes = *size_bytes as u32;
                let part = match in_chunk {
                    true => Part::Stored { chunk_id: spool.store(bytes).unwrap(), length_bytes },
                    false => Part::Memory(bytes),
                };
                live.push(next);
                next += 1;
                Some(Entry::Accept(message(next - 1, *recipients, part)))
            }
            Step::Outcome(at) => some(&live, at).map(|id| {
                let outcome = Outcome::deferred(Enhanced(4, 2, 1), "mailbox busy");
                Entry::Outcome { id, results: vec![(0, outcome)], last: false }
            }),
            Step::Hold(at) => {
                some(&live, at).map(|id| Entry::Control { id, op: ControlOp::Hold("by root".into()) })
            }
            Step::Done(at) => some(&live, at).map(|id| {
                live.retain(|other| *other != id.0);
                Entry::Outcome { id, results: Vec::new(), last: true }
            }),
            Step::Commit => {
                for step in [WorkStep::Commit, WorkStep::Prepare, WorkStep::Compact, WorkStep::Index] {
                    spool.step(step);
                }
                None
            }
            Step::Start => {
                drop(spool);
                spool = opened(dir);
                None
            }
        };
        if let Some(entry) = entry {
            spool.submit(vec![entry]).unwrap();
        }
    }
    spool.step(WorkStep::Commit);
    if closes {
        spool.close();
        while spool.step(WorkStep::Index) {}
    }
}

fn harm(dir: &Path, damage: &Damage) {
    let mut files: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    harm_one(&files, damage);
}

fn harm_one(files: &[PathBuf], damage: &Damage) {
    let (Damage::Flip(file, _)
    | Damage::Zero(file, ..)
    | Damage::Copy(file, ..)
    | Damage::Cut(file, _)
    | Damage::Gone(file)) = damage;
    let Some(path) = files.get(file % files.len().max(1)) else { return };
    let Ok(mut bytes) = fs::read(path) else { return };
    let block = |at: &usize| at % (bytes.len() / 4096).max(1) * 4096;
    match damage {
        Damage::Gone(_) => return fs::remove_file(path).unwrap(),
        _ if bytes.is_empty() => return,
        Damage::Flip(_, at) => {
            let at = at % bytes.len();
            bytes[at] ^= 1;
        }
        Damage::Zero(_, at, count) => {
            let from = block(at);
            let to = bytes.len().min(from + count * 4096);
            bytes[from..to].fill(0);
        }
        Damage::Copy(..) if bytes.len() < 8192 => return,
        Damage::Copy(_, from, to) => {
            let (from, to) = (block(from), block(to));
            bytes.copy_within(from..from + 4096, to);
        }
        Damage::Cut(_, at) => bytes.truncate(at % bytes.len()),
    }
    fs::write(path, bytes).unwrap();
}

/// Everything that is found, in words.
fn told(found: &mut Found, dir: &Path, threads: usize) -> String {
    let segment = |s: &Segment| (s.name.clone(), s.header.sequence, s.live_bytes, s.is_damaged);
    let mut text = found.told();
    settle_last(found);
    found.index.forget_orphans();
    let mut messages: Vec<_> = found.index.messages.iter().collect();
    messages.sort_by_key(|(id, _)| **id);
    let mut chunks: Vec<_> = found.index.chunks.iter().collect();
    chunks.sort_by_key(|(chunk_id, _)| **chunk_id);
    let segments: Vec<_> = found.index.segments.values().map(segment).collect();
    let empty: Vec<_> = found.empty.iter().map(segment).collect();
    text += &format!("\n{messages:?}\n{chunks:?}\n{segments:?}\n{empty:?}");
    let disk = Arc::new(RealDisk::new(dir).unwrap());
    let settings = LogSettings { read_threads: threads, ..LogSettings::default() };
    let shared = LogSpool::shared(disk, settings, ActiveMutant::default(), false, found);
    let mut visited: Vec<Recovered> = Vec::new();
    shared.replay_with_totals(found, &mut |one| visited.push(one));
    text + &format!("\n{visited:?}\n{:?}", found.report)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]
    #[test]
    fn threads_find_what_one_reader_finds(
        steps in steps(), damages in damages(), blocks in 1u64..6, threads in 2usize..4,
    ) {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &steps, false);
        damages.iter().for_each(|damage| harm(dir.path(), damage));
        let disk = RealDisk::new(dir.path()).unwrap();
        let found = |threads| {
            let reading = Reading { threads, range_bytes: blocks * 4096, indexes: false };
            scan(&disk, ActiveMutant::default(), reading)
        };
        match (found(1), found(threads)) {
            (Ok(mut one), Ok(mut many)) => {
                prop_assert_eq!(told(&mut one, dir.path(), 1), told(&mut many, dir.path(), threads));
            }
            (one, many) => prop_assert_eq!(
                one.err().map(|e| e.to_string()),
                many.err().map(|e| e.to_string()),
            ),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]
    #[test]
    fn digests_say_what_their_segments_say(steps in steps(), closes: bool, threads in 1usize..4) {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &steps, closes);
        let disk = RealDisk::new(dir.path()).unwrap();
        let found = |indexes| {
            let mut found = scan(&disk, ActiveMutant::default(), Reading { indexes, ..Reading::on(threads) }).unwrap();
            told(&mut found, dir.path(), threads)
        };
        prop_assert_eq!(found(true), found(false));
    }

    /// A start with a damaged or exchanged index file finds what a start without finds.
    #[test]
    fn a_digest_that_is_damaged_or_of_another_life_is_not_believed(
        steps in steps(), damages in damages(), old in any::<prop::sample::Index>(), new in any::<prop::sample::Index>(),
    ) {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &steps, true);
        let mut indexes: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        indexes.retain(|path| path.extension().is_some_and(|ending| ending == "idx"));
        indexes.sort();
        for damage in &damages {
            harm_one(&indexes, damage);
        }
        if !indexes.is_empty() {
            let _ = fs::copy(old.get(&indexes), new.get(&indexes));
        }
        let disk = RealDisk::new(dir.path()).unwrap();
        let found = |indexes| {
            let mut found = scan(&disk, ActiveMutant::default(), Reading { indexes, ..Reading::on(2) }).unwrap();
            told(&mut found, dir.path(), 2)
        };
        prop_assert_eq!(found(true), found(false));
    }
}

#[test]
fn a_start_believes_digests_and_reads_no_content() {
    let dir = tempfile::tempdir().unwrap();
    let accept = || Step::Accept { recipients: 2, size_bytes: 3000, in_chunk: false };
    let steps: Vec<_> = (0..40).flat_map(|_| [accept(), Step::Commit]).collect();
    write(dir.path(), &steps, true);
    let disk = RealDisk::new(dir.path()).unwrap();
    let found = |threads| {
        let mut found = scan(&disk, ActiveMutant::default(), Reading::on(threads)).unwrap();
        assert_eq!(found.envelopes.len(), found.index.segments.len());
        told(&mut found, dir.path(), threads)
    };
    let before = found(1);
    for entry in fs::read_dir(dir.path()).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = fs::read(&path).unwrap();
        if path.extension().is_some_and(|ending| ending == "seg") && bytes[4096..4100] == *b"PBAT" {
            bytes[4200] ^= 1; // in the first batch: the head and the last one are looked at
            fs::write(&path, bytes).unwrap();
        }
    }
    assert!(before == found(1) && before == found(2));
}
