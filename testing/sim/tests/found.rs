//! Faults that the simulator found, each with the shortest case that shows it.

use mail::{Content, Envelope, ForwardPath, Message, QueueId, Recipient, ReversePath, UnixMillis};
use sim::mutant::Mutant;
use sim::{
    disk::{Decay, Fault, SimDisk},
    seed::Rng,
};
use spool::{
    ControlOp, Entry, LogSettings, LogSpool, RecoveryReport, Spool, SpoolFailure, WorkStep, disk::Disk,
};
use std::sync::Arc;

fn settings() -> LogSettings {
    LogSettings { segment_bytes: 20 * 1024, min_free_bytes: 0, ..LogSettings::default() }
}

fn open(disk: &SimDisk) -> Result<(LogSpool, Vec<u64>, RecoveryReport), SpoolFailure> {
    let mut spool = LogSpool::single_stepped(Arc::new(disk.clone()), settings())?;
    let mut found = Vec::new();
    let report = spool.recover(&mut |r| found.push(r.message.id.0))?;
    Ok((spool, found, report))
}

fn entry(id: u64, size_bytes: usize) -> Entry {
    let mut envelope = Envelope::new(ReversePath::parse("a@b.test", false).unwrap());
    envelope.recipients = vec![Recipient::new(ForwardPath::parse("c@d.test", false).unwrap())];
    let content = Content::from_bytes(vec![b'x'; size_bytes]);
    let (id, origin) = (QueueId(id), "test".into());
    Entry::Accept(Arc::new(Message { id, arrived: UnixMillis(1), origin, envelope, content }))
}

/// Commits in the calling thread.
fn commit(spool: &LogSpool, transaction: Vec<Entry>) {
    spool.submit(transaction).unwrap();
    assert!(spool.step(WorkStep::Commit));
    assert!(!spool.pressure().poisoned);
}

#[test]
fn a_segment_made_by_a_killed_process_keeps_its_name_when_the_power_goes() {
    for cut in 1..40 {
        let disk = SimDisk::new(cut, u64::MAX);
        disk.plan(cut, Fault::Cut);
        if let Ok((spool, _, _)) = open(&disk) {
            while spool.step(WorkStep::Prepare) {}
        }
        let disk = disk.after_kill();
        let (spool, _, _) = open(&disk).unwrap();
        commit(&spool, vec![entry(1, 100)]);
        for seed in 0..6 {
            let (_, found, report) = open(&disk.after_crash(seed)).unwrap();
            assert_eq!((found, report.corrupt), (vec![1], vec![]), "killed at {cut}, seed {seed}");
        }
    }
}

/// Else a crash may leave a segment's name on what stood in the blocks before: the header of an old
/// segment, with the number of one in use.
#[test]
fn a_file_is_called_a_segment_only_when_it_is_one() {
    for (cut, seed) in (1..40).flat_map(|cut| (0..20).map(move |seed| (cut, seed))) {
        let disk = SimDisk::new(cut, u64::MAX);
        disk.plan(cut, Fault::Cut);
        if let Ok((spool, _, _)) = open(&disk) {
            while spool.step(WorkStep::Prepare) {}
        }
        let disk = disk.after_crash(seed);
        for name in disk.list().unwrap().iter().filter(|name| name.ends_with(".seg")) {
            let mut bytes = [0; 16 * 1024];
            assert_eq!(disk.open(name).unwrap().read_at(0, &mut bytes).unwrap(), bytes.len());
            assert!(bytes.starts_with(b"PRSPOOL"), "cut at {cut}, seed {seed}: {name}");
        }
    }
}

#[test]
fn a_restart_does_not_cost_a_segment() {
    let mut disk = SimDisk::new(1, u64::MAX);
    let (spool, _, _) = open(&disk).unwrap();
    commit(&spool, vec![entry(1, 100)]);
    for seed in 0..30 {
        while spool.step(WorkStep::Prepare) {}
        disk = if seed % 2 == 0 { disk.after_kill() } else { disk.after_crash(seed) };
        let (spool, found, report) = open(&disk).unwrap();
        while spool.step(WorkStep::Prepare) {}
        assert_eq!((found, report.corrupt), (vec![1], vec![]));
    }
    assert!(disk.list().unwrap().len() <= 6, "{:?}", disk.list());
}

#[test]
fn what_is_larger_than_a_segment_is_refused() {
    let disk = SimDisk::new(1, u64::MAX);
    let (spool, _, _) = open(&disk).unwrap();
    let mut last = 0;
    for size_bytes in (0..20_000).step_by(100) {
        let id = size_bytes as u64 + 1;
        if spool.submit(vec![entry(id, size_bytes)]).is_ok() {
            last = id;
            assert!(spool.step(WorkStep::Commit) && !spool.pressure().poisoned);
        }
    }
    assert!(last > 2000 && last < 16 * 1024, "{last}");
    assert_eq!(spool.store(vec![0; 20_000].into()), Err(spool::Refused::TooLarge));
    let (_, found, report) = open(&disk.after_crash(1)).unwrap();
    assert_eq!((found.last(), report.corrupt), (Some(&last), vec![]));
}

/// A start that writes the last batch again may be killed before the sync. The next start reads the copy, which
/// is on no disk yet, and must not take the segment with the first one for its own purposes.
#[test]
fn a_batch_that_was_written_again_and_not_synced_is_kept_where_it_was() {
    for (second, third, seed) in
        (1..30).flat_map(|a| (1..30).flat_map(move |b| (0..4).map(move |c| (a, b, c))))
    {
        let disk = SimDisk::new(seed, u64::MAX);
        let (spool, _, _) = open(&disk).unwrap();
        assert!(spool.step(WorkStep::Prepare));
        commit(&spool, vec![entry(1, 100)]);
        let disk = disk.after_crash(seed);
        disk.plan(second, Fault::Cut);
        drop(open(&disk));
        let disk = disk.after_kill();
        disk.plan(third, Fault::Cut);
        drop(open(&disk));
        let (_, found, _) = open(&disk.after_crash(seed)).unwrap();
        assert_eq!(found, [1], "killed at {second}, cut at {third}, seed {seed}");
    }
}

/// The bytes of a log's segments that no longer belong to it.
fn set_aside(disk: &SimDisk) -> usize {
    disk.list().unwrap().iter().filter(|name| name.ends_with(".quarantined")).count()
}

#[test]
fn a_damaged_segment_is_set_aside_and_not_used_again() {
    let mut told = 0;
    for seed in 0..60 {
        let disk = SimDisk::new(1, u64::MAX);
        let (spool, _, _) = open(&disk).unwrap();
        (1..20).for_each(|id| commit(&spool, vec![entry(id, 3000)]));
        let disk = disk.after_crash(seed);
        let name = disk.flip_bit(seed).unwrap();
        let Ok((spool, found, report)) = open(&disk) else { continue };
        if report.corrupt.is_empty() {
            continue;
        }
        told += 1;
        let end = |id| Entry::Outcome { id: QueueId(id), results: vec![], last: true };
        commit(&spool, found.iter().map(|id| end(*id)).collect());
        while spool.step(WorkStep::Prepare) {}
        // One whose header cannot be read stays under its name.
        let stays = disk.list().unwrap().contains(&name);
        assert!(stays || set_aside(&disk) == 1, "seed {seed}: {name}, {report:?}");
    }
    assert!(told > 30, "{told}");
}

#[test]
fn a_message_that_lost_a_part_of_its_content_is_reported_and_not_recovered() {
    for seed in 0..100 {
        let disk = SimDisk::new(1, u64::MAX);
        let (spool, _, _) = open(&disk).unwrap();
        let chunk_id = spool.store(vec![b'x'; 3000].into()).unwrap();
        assert!(spool.step(WorkStep::Commit));
        let part = mail::Part::Stored { chunk_id, length_bytes: 3000 };
        let content = Content::new(mail::ContentTraits::default(), [part]);
        let Entry::Accept(whole) = entry(1, 0) else { unreachable!() };
        commit(&spool, vec![Entry::Accept(Arc::new(Message { content, ..(*whole).clone() }))]);
        commit(&spool, vec![entry(2, 100)]);
        let disk = disk.after_crash(seed);
        disk.flip_bit(seed);
        if let Ok((spool, found, report)) = open(&disk) {
            let is_handed_over = found.contains(&1);
            assert!(!is_handed_over || spool.load(chunk_id).is_ok(), "seed {seed}");
            assert!(found.len() == 2 || !report.corrupt.is_empty() || report.torn_bytes > 0, "seed {seed}");
        }
    }
}

#[test]
fn damage_in_the_only_batch_of_the_oldest_segment_is_reported() {
    let (mut lost, mut told) = (0, 0);
    for seed in 0..300 {
        let disk = SimDisk::new(1, u64::MAX);
        let (spool, _, _) = open(&disk).unwrap();
        spool.submit(vec![entry(1, 3400)]).unwrap();
        commit(&spool, vec![entry(2, 3400)]);
        commit(&spool, vec![entry(3, 3400)]);
        commit(&spool, vec![entry(4, 100)]);
        let disk = disk.after_crash(seed);
        let name = disk.flip_bit(seed).unwrap();
        let Ok((_, found, report)) = open(&disk) else { continue };
        if name.ends_with("00.seg") && !found.contains(&1) {
            lost += 1;
            told += usize::from(!report.corrupt.is_empty());
        }
    }
    // One in three hundred bits is in the head of the batch: then it looks like an earlier generation's.
    assert!(lost > 50 && told + 2 >= lost, "{told} of {lost}");
}

/// A message's record is damaged; its outcomes stand in later segments, and must not keep those.
#[test]
fn what_became_of_a_message_that_cannot_be_read_keeps_no_segments() {
    let disk = SimDisk::new(1, u64::MAX);
    let (spool, _, _) = open(&disk).unwrap();
    let step = || {
        for step in [WorkStep::Commit, WorkStep::Compact, WorkStep::Commit, WorkStep::Prepare] {
            spool.step(step);
        }
    };
    let pass = |from: u64, count: u64| {
        for id in from..from + count {
            spool.submit(vec![entry(id, 3000)]).unwrap();
            step();
            spool.submit(vec![Entry::Outcome { id: QueueId(id), results: vec![], last: true }]).unwrap();
            step();
        }
    };
    let segments = || disk.list().unwrap().iter().filter(|name| name.ends_with(".seg")).count();
    commit(&spool, vec![entry(1, 100)]);
    let name =
        disk.list().unwrap().into_iter().find(|name| disk.synced(name).get(4096) == Some(&b'P')).unwrap();
    pass(2, 3);
    let held = |change| vec![Entry::Control { id: QueueId(1), op: change }];
    commit(&spool, held(ControlOp::Hold("by root".into())));
    disk.decay(&name, 4200, Decay::Garbage, &mut Rng::new(1));
    pass(100, 100);
    // Only a start quarantines.
    assert_eq!((set_aside(&disk), segments() < 13), (0, true), "{:?}", disk.list());
    // Nor does what an operator decides after its segment was parked.
    commit(&spool, held(ControlOp::Release));
    pass(300, 100);
    assert!(segments() < 13, "{:?}", disk.list());
}

/// If a start reads a segment's index file, only a read of the record of an attempt shows that the record is damaged.
#[test]
fn a_segment_with_a_damaged_record_of_an_attempt_is_not_used_again() {
    sim::run::run(106_973, sim::backend::Backend::Log, Mutant::None).unwrap();
}

/// The first header is zeros and the first batch cannot be read: batches of an earlier generation stand behind them.
#[test]
fn a_batch_of_an_earlier_generation_does_not_overrule_the_copy_of_the_header() {
    sim::run::decay(500_002_504, sim::backend::Backend::Log, Mutant::None).unwrap();
}

/// A batch that only memory has wrong stands between one that cannot be read and one that can.
#[test]
fn a_batch_behind_one_that_cannot_be_read_is_read_a_second_time() {
    sim::run::heal(500_010_489, sim::backend::Backend::Log, Mutant::None).unwrap();
}

/// The first header cannot be read, and a bit of the end of the first batch flipped.
#[test]
fn a_flipped_bit_of_the_first_batch_does_not_overrule_the_copy_of_the_header() {
    sim::run::decay(800_000_434, sim::backend::Backend::Log, Mutant::None).unwrap();
}

/// A page of an envelope file that memory has wrong looked like a torn append, and durable outcomes were cut.
#[test]
fn a_page_that_memory_has_wrong_does_not_cut_outcomes_in_queue_directories() {
    sim::run::heal(1_200_002_127, sim::backend::Backend::QueueDirs, Mutant::None).unwrap();
}

/// A page of an envelope file that only memory has wrong made a line unreadable before a later one, and durable outcomes
/// were ignored.
#[test]
fn a_page_that_memory_has_wrong_between_others_loses_no_outcomes_in_queue_directories() {
    sim::run::heal(1_410_001_786, sim::backend::Backend::QueueDirs, Mutant::None).unwrap();
}

/// Segments that were freed stood between a segment whose index file was left and the first batch of the next epoch.
#[test]
fn a_segment_that_was_freed_before_an_epoch_began_is_not_missing() {
    sim::run::run(1_310_022_385, sim::backend::Backend::Log, Mutant::None).unwrap();
}

/// The write of a new header is lost, and its copy is damaged: the first block still says that the segment was freed.
#[test]
fn a_header_of_an_earlier_generation_does_not_hide_the_batches_of_a_segment() {
    sim::run::decay(1_310_003_716, sim::backend::Backend::Log, Mutant::None).unwrap();
}

/// As above, with the copy from before and a damaged first block.
#[test]
fn a_copy_of_an_earlier_generation_does_not_hide_the_batches_of_a_segment() {
    sim::run::decay(1_600_440_260, sim::backend::Backend::Log, Mutant::None).unwrap();
}

/// An intent could not be read for a while. When it could, its append overwrote what the message had gone on with.
#[test]
fn an_intent_that_can_be_read_again_overwrites_no_later_outcomes() {
    sim::run::heal(1_600_560_198, sim::backend::Backend::QueueDirs, Mutant::None).unwrap();
}

/// Neither header of a segment could be read for a while, and a batch of an earlier generation stood in it.
#[test]
fn a_segment_whose_headers_cannot_be_read_for_a_while_is_not_damaged() {
    sim::run::heal(1_700_040_252, sim::backend::Backend::Log, Mutant::None).unwrap();
}

/// The last two batches were lost without a trace, and the segment was used again: a batch of the earlier generation behind
/// the new one is not a part of the log.
#[test]
fn a_batch_of_an_earlier_generation_says_nothing_of_the_end_of_the_log() {
    sim::run::decay(2_234_000_568, sim::backend::Backend::Log, Mutant::None).unwrap();
}
