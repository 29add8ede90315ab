//! Faults that the simulator found in queue directories, each with the shortest case that shows it, and faults that
//! it would hardly ever find.

use mail::{
    Content, Enhanced, Envelope, ForwardPath, Message, Outcome, QueueId, Recipient, ReversePath, UnixMillis,
};
use sim::mutant::Mutant;
use sim::{
    disk::{Decay, Fault, SimDisk},
    seed::Rng,
};
use spool::{
    DirSettings, DirSpool, Entry, QueueDirectory, Recovered, RecoveryReport, Spool, WorkStep, disk::Disk,
};
use std::sync::Arc;

fn built(disk: &SimDisk, mutant: Mutant) -> DirSpool {
    let queues =
        ["q0", "q1"].map(|name| QueueDirectory::flat(name, Arc::new(disk.directory(name)))).into_iter();
    let settings =
        DirSettings { min_free_bytes: 0, reserve_bytes: 0, read_threads: 1, ..DirSettings::default() };
    DirSpool::open_mutant(queues.collect(), settings, mutant.of_spool(), true).unwrap()
}

fn open(disk: &SimDisk, mutant: Mutant) -> (DirSpool, Vec<Recovered>, RecoveryReport) {
    let mut spool = built(disk, mutant);
    let mut found = Vec::new();
    let report = spool.recover(&mut |r| found.push(r)).unwrap();
    (spool, found, report)
}

fn accept(id: u64) -> Entry {
    let mut envelope = Envelope::new(ReversePath::Null);
    envelope.recipients = vec![Recipient::new(ForwardPath::parse("c@d.test", false).unwrap())];
    let (id, origin) = (QueueId(id), "test".into());
    let content = Content::from_bytes("");
    Entry::Accept(Arc::new(Message { id, arrived: UnixMillis(1), origin, envelope, content }))
}

fn defer(id: u64, text: &str) -> Entry {
    let results = vec![(0, Outcome::deferred(Enhanced(4, 0, 0), text))];
    Entry::Outcome { id: QueueId(id), results, last: false }
}

fn end(id: u64) -> Entry {
    Entry::Outcome { id: QueueId(id), results: Vec::new(), last: true }
}

/// Commits in the calling thread; did it work?
fn commit(spool: &DirSpool, transaction: Vec<Entry>) -> bool {
    spool.submit(transaction).unwrap();
    assert!(spool.step(WorkStep::Commit));
    !spool.pressure().poisoned
}

fn attempts(found: &[Recovered]) -> Vec<(u64, u32)> {
    found.iter().map(|r| (r.message.id.0, r.recipients[0].attempt_count)).collect()
}

/// Opens envelopes one after the other, so that the last append is not known in advance.
#[test]
fn what_opening_an_envelope_tells_stays_true() {
    for count in [1, 20] {
        let disk = SimDisk::new(1, u64::MAX);
        let (spool, ..) = open(&disk, Mutant::None);
        assert!((1..=count).all(|id| commit(&spool, vec![accept(id)])));
        for id in 1..=count {
            spool.submit(vec![defer(id, "busy")]).unwrap();
        }
        disk.plan(disk.operation_count() + count, Fault::Sync);
        spool.step(WorkStep::Commit);
        assert!(spool.pressure().poisoned);
        let disk = disk.after_kill();
        let mut listing = built(&disk, Mutant::None);
        let listed: Vec<_> = listing.recover_listed(false).unwrap().0.iter().map(|one| one.id).collect();
        let told = attempts(&listing.open_listed(&listed).unwrap().0);
        assert_eq!(told.iter().filter(|one| one.1 == 1).count() as u64, count);
        for seed in 0..100 {
            let (_, found, report) = open(&disk.after_crash(seed), Mutant::None);
            assert_eq!((attempts(&found), report.corrupt.len()), (told.clone(), 0), "seed {seed}");
        }
    }
}

/// A failed sync marks the pages clean: they can be read, and no later sync writes them.
#[test]
fn what_recovery_tells_of_an_append_whose_sync_failed_stays_true() {
    let disk = SimDisk::new(1, u64::MAX);
    let (spool, ..) = open(&disk, Mutant::None);
    assert!(commit(&spool, vec![accept(1)]));
    disk.plan(disk.operation_count(), Fault::Sync);
    assert!(!commit(&spool, vec![defer(1, "busy")]));
    let disk = disk.after_kill();
    let (_, told, _) = open(&disk, Mutant::None);
    for seed in 0..100 {
        let (_, found, report) = open(&disk.after_crash(seed), Mutant::None);
        assert_eq!((attempts(&found), report.corrupt), (attempts(&told), vec![]), "seed {seed}");
    }
}

/// A line of a message that is gone, in the blocks a new envelope file was given, at the byte where its
/// first outcome belongs, shown by an append of which only the second sector arrived.
#[test]
fn an_append_that_was_torn_does_not_show_another_message_s_outcome() {
    let strange = |mutant| {
        let disk = SimDisk::new(1, u64::MAX);
        let (spool, ..) = open(&disk, mutant);
        // In the same directory: they go round.
        for entry in [accept(1), accept(2), defer(1, "of another"), end(1), accept(3)] {
            assert!(commit(&spool, vec![entry]));
        }
        disk.plan(disk.operation_count() + 3, Fault::Cut);
        assert!(!commit(&spool, vec![defer(3, &"x".repeat(900))]));
        let count = |seed| {
            let (_, found, _) = open(&disk.after_crash(seed), mutant);
            let of_another = |r: &&Recovered| {
                let last = r.recipients[0].last.as_ref();
                last.is_some_and(|(_, outcome)| &*outcome.text == "of another")
            };
            found.iter().filter(of_another).count()
        };
        (0..200).map(count).sum::<usize>()
    };
    assert_eq!(strange(Mutant::None), 0);
    assert!(strange(Mutant::Spool(spool::Mutant::IgnoreSeed)) > 0, "the story does not show what it should");
}

#[test]
fn a_bounce_and_the_outcome_it_tells_of_exist_together_or_not_at_all() {
    for cut in 1..40 {
        let disk = SimDisk::new(cut, u64::MAX);
        let (spool, ..) = open(&disk, Mutant::None);
        assert!(commit(&spool, vec![accept(1), accept(2)]));
        disk.plan(disk.operation_count() + cut, Fault::Cut);
        let ok = commit(&spool, vec![end(1), accept(3), defer(2, "busy")]);
        for seed in 0..20 {
            let disk = if seed == 0 { disk.after_kill() } else { disk.after_crash(seed) };
            let (_, found, report) = open(&disk, Mutant::None);
            let (before, after) = (vec![(1, 0), (2, 0)], vec![(2, 1), (3, 0)]);
            let found = attempts(&found);
            assert!(found == after || !ok && found == before, "cut at {cut}, seed {seed}: {found:?}");
            assert_eq!(report.corrupt, [""; 0]);
        }
    }
}

/// A disk on which an intent says that two messages end and a third begins, and nothing of it is done; with
/// a message that has nothing to do with it.
fn agreed() -> SimDisk {
    for cut in 1.. {
        let disk = SimDisk::new(1, u64::MAX);
        let (spool, ..) = open(&disk, Mutant::None);
        assert!(
            commit(&spool, vec![accept(1)])
                && commit(&spool, vec![accept(2)])
                && commit(&spool, vec![accept(4)])
        );
        disk.plan(disk.operation_count() + cut, Fault::Cut);
        assert!(!commit(&spool, vec![end(1), defer(2, "busy"), accept(3)]));
        let disk = disk.after_kill();
        disk.sync_all().unwrap();
        let has = |end: &str| disk.file_names().iter().any(|name| name.ends_with(end));
        if has(".intent") {
            return disk;
        }
    }
    unreachable!()
}

fn named(disk: &SimDisk, end: &str) -> String {
    disk.file_names().into_iter().find(|name| name.ends_with(end)).unwrap()
}

#[test]
fn an_intent_that_the_disk_does_not_give_keeps_no_other_message_back() {
    let disk = agreed();
    disk.decay(&named(&disk, ".intent"), 0, Decay::Unreadable, &mut Rng::new(1));
    for _ in 0..2 {
        let (spool, found, report) = open(&disk, Mutant::None);
        assert_eq!(attempts(&found), [(1, 0), (2, 0), (4, 0)]);
        assert!(report.corrupt.iter().any(|what| what.contains(".intent: cannot be read")), "{report:?}");
        assert!(commit(&spool, vec![defer(4, "busy")]) && commit(&spool, vec![accept(5)]));
        assert!(commit(&spool, vec![end(5)]));
        // The next start finds what this one did.
        assert!(commit(&spool, vec![end(4)]) && commit(&spool, vec![accept(4)]));
        assert!(disk.file_names().iter().any(|name| name.ends_with("3.new")), "it may be whole again");
    }
}

#[test]
fn an_envelope_that_takes_no_append_at_a_start_keeps_no_other_message_back() {
    let disk = agreed();
    disk.decay(&named(&disk, "2.env"), 0, Decay::Unreadable, &mut Rng::new(1));
    for _ in 0..2 {
        let (_, found, report) = open(&disk, Mutant::None);
        assert_eq!(attempts(&found), [(3, 0), (4, 0)], "what was agreed on is done");
        let is_told = |what: &String| what.contains("append to") && what.contains("2.env");
        assert!(report.corrupt.iter().any(is_told), "{report:?}");
        assert!(disk.file_names().iter().any(|name| name.ends_with(".intent")), "it is not done yet");
    }
}

/// A page of the page cache has other bytes than the disk. At the end of an envelope file that looks like an append that
/// was torn, and the outcomes in it would be cut off for good.
#[test]
fn outcomes_at_the_end_of_an_envelope_that_memory_has_wrong_are_not_cut() {
    let disk = SimDisk::new(1, u64::MAX);
    let (spool, ..) = open(&disk, Mutant::None);
    assert!(commit(&spool, vec![accept(1)]));
    // Until the file has three pages.
    let count = 30;
    assert!((0..count).all(|_| commit(&spool, vec![defer(1, &"x".repeat(400))])));
    drop(spool);
    let disk = disk.after_kill();
    let envelope = named(&disk, "1.env");
    let last = disk.synced(&envelope).len() - 1;
    assert!(last > 8192);
    disk.decay(&envelope, last, Decay::Cache, &mut Rng::new(1));
    for _ in 0..2 {
        let (_, found, report) = open(&disk, Mutant::None);
        assert_eq!((attempts(&found), report.torn_bytes), (vec![(1, count)], 0));
        disk.heal();
    }
}
