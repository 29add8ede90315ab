//! The simulated disk loses what real disks lose, and nothing else.

use sim::disk::{EIO, Fault, SimDisk};
use spool::disk::{Disk, File};
use std::{collections::BTreeSet, sync::Arc};

fn disk() -> SimDisk {
    SimDisk::new(1, 1 << 20)
}

fn synced(disk: &SimDisk, name: &str, bytes: &[u8]) -> Arc<dyn File> {
    let file = disk.create(name).unwrap();
    file.write_at(0, bytes).unwrap();
    file.sync_data().unwrap();
    disk.sync_dir().unwrap();
    file
}

fn read(disk: &SimDisk, name: &str) -> Vec<u8> {
    let file = disk.open(name).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_at(0, &mut bytes).unwrap();
    bytes
}

#[test]
fn what_was_synced_survives_every_cut() {
    let disk = disk();
    synced(&disk, "a", &[7; 4096]);
    for seed in 0..100 {
        assert_eq!(read(&disk.after_crash(seed), "a"), [7; 4096]);
    }
}

#[test]
fn unsynced_sectors_survive_in_any_combination() {
    let disk = disk();
    let file = synced(&disk, "a", &[0; 2048]);
    file.write_at(0, &[1; 2048]).unwrap();
    let mut seen = BTreeSet::new();
    for seed in 0..2000 {
        let bytes = read(&disk.after_crash(seed), "a");
        seen.insert((0..4).map(|n| bytes[n * 512]).collect::<Vec<_>>());
    }
    assert_eq!(seen.len(), 16);
}

#[test]
fn names_that_were_not_synced_come_and_go() {
    let disk = disk();
    synced(&disk, "old", b"x");
    disk.create("new").unwrap();
    disk.remove("old").unwrap();
    let lists: BTreeSet<_> = (0..100).map(|seed| disk.after_crash(seed).list().unwrap()).collect();
    assert_eq!(lists.len(), 4);
}

#[test]
fn a_killed_process_loses_nothing_until_the_power_goes() {
    let disk = disk();
    let file = synced(&disk, "a", &[0; 512]);
    file.write_at(0, &[1; 512]).unwrap();
    let again = disk.after_kill();
    assert_eq!(read(&again, "a"), [1; 512]);
    assert!((0..100).any(|seed| read(&again.after_crash(seed), "a") == [0; 512]));
}

#[test]
fn a_failed_sync_loses_what_can_still_be_read_and_lies_afterwards() {
    let disk = disk();
    let file = synced(&disk, "a", &[0; 512]);
    disk.plan(0, Fault::Sync);
    file.write_at(0, &[1; 512]).unwrap();
    assert!(file.sync_data().is_err());
    file.sync_data().unwrap();
    assert_eq!(read(&disk, "a"), [1; 512]);
    for seed in 0..100 {
        assert_eq!(read(&disk.after_crash(seed), "a"), [0; 512]);
    }
}

#[test]
fn after_the_cut_nothing_works_and_errors_come_where_they_were_planned() {
    let disk = disk();
    let file = synced(&disk, "a", &[0; 512]);
    let now = disk.operation_count();
    disk.plan(now + 2, Fault::Once(EIO));
    disk.plan(now + 4, Fault::Cut);
    let write = || file.write_at(0, &[1; 512]).is_ok();
    assert_eq!([write(), write(), write(), write(), write()], [true, false, true, false, false]);
    assert!(disk.is_off());
    disk.after_kill().open("a").unwrap().write_at(0, &[1; 512]).unwrap();
}

#[test]
fn a_full_disk_refuses_to_grow_files_and_writes_over_what_they_have() {
    let disk = SimDisk::new(1, 1024);
    let file = synced(&disk, "a", &[0; 1024]);
    assert_eq!(disk.free_bytes().unwrap(), 0);
    assert!(file.write_at(1024, b"x").is_err());
    file.write_at(0, b"x").unwrap();
}

#[test]
fn a_new_file_may_show_what_stood_in_its_blocks_before() {
    let disk = disk();
    synced(&disk, "old", &[9; 2048]);
    disk.remove("old").unwrap();
    disk.sync_dir().unwrap();
    let file = disk.create("new").unwrap();
    disk.sync_dir().unwrap();
    file.write_at(0, &[0; 2048]).unwrap();
    assert!((0..100).any(|seed| read(&disk.after_crash(seed), "new").contains(&9)));
}

#[test]
fn directories_are_synced_one_by_one_or_all_together() {
    let disk = disk();
    let (a, b) = (disk.directory("a"), disk.directory("b"));
    let file = a.create("x").unwrap();
    b.create("x").unwrap();
    file.write_at(0, &[1; 512]).unwrap();
    a.sync_dir().unwrap();
    assert_eq!(a.list().unwrap(), ["x"]);
    let left = |seed| disk.after_crash(seed).directory("b").list().unwrap().len();
    assert_eq!((0..100).map(left).collect::<BTreeSet<_>>().len(), 2);
    assert!((0..100).all(|seed| disk.after_crash(seed).directory("a").list().unwrap() == ["x"]));
    disk.sync_all().unwrap();
    assert!((0..100).all(|seed| left(seed) == 1 && disk.after_crash(seed).file_names().len() == 2));
    assert!((0..100).all(|seed| read(&disk.after_crash(seed).directory("a"), "x") == [1; 512]));
}

#[test]
fn a_cut_to_a_length_is_durable_when_it_is_synced() {
    let disk = disk();
    let file = synced(&disk, "a", &[7; 1024]);
    file.truncate(600).unwrap();
    let lengths: BTreeSet<_> = (0..100).map(|seed| read(&disk.after_crash(seed), "a").len()).collect();
    assert_eq!(lengths, BTreeSet::from([600, 1024]));
    file.sync_data().unwrap();
    assert!((0..100).all(|seed| read(&disk.after_crash(seed), "a").len() == 600));
}
