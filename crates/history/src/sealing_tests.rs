//! Sealing: kills and power cuts at each step lose no event that was durable, and searches return the same all the time.

use crate::{
    Addresses, Entry, Folder, Key, MemoryFolder, Query, ReadAt, Reader, Settings, Store,
    segment::Segment,
    tests::{Clock, accepted, attempt, files, id_at, ids, search, settings, store},
};
use mail::QueueId;
use report::{Event, Sink as _, UnixMicros, event::Status};
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

/// The entries of an index that are written at a time: the tests have some parts.
const PART_ENTRIES: usize = 100;
/// Messages of the segment that is sealed: two blocks, of which the second is not complete.
const MESSAGES: u64 = 100;

/// A file: as a process sees it, and as it is after a power cut.
#[derive(Default, Clone)]
struct File {
    content: Vec<u8>,
    durable: Vec<u8>,
}

/// An interruption of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// The process is killed: what was written is there.
    Kill,
    /// The power is cut: what was not synced is lost.
    PowerCut,
    /// The power is cut: of what was not synced the length is there, and each second sector.
    TornPowerCut,
}

/// A folder whose process is interrupted before one of its changes.
#[derive(Clone, Default)]
struct FaultFolder(Arc<Mutex<Disk>>);

#[derive(Default)]
struct Disk {
    files: BTreeMap<String, File>,
    /// The changes until the process is interrupted.
    changes_left: Option<u32>,
}

impl FaultFolder {
    fn interrupt_after(&self, changes: u32) {
        self.0.lock().unwrap().changes_left = Some(changes);
    }

    /// Starts the machine or the process again; returns whether it had been interrupted.
    fn restart(&self, fault: Fault) -> bool {
        let mut disk = self.0.lock().unwrap();
        for file in disk.files.values_mut() {
            match fault {
                Fault::Kill => {}
                Fault::PowerCut => file.content = file.durable.clone(),
                Fault::TornPowerCut => {
                    for at in 0..file.content.len() {
                        let old = file.durable.get(at).copied();
                        if old != Some(file.content[at]) && at / 512 % 2 == 1 {
                            file.content[at] = old.unwrap_or_default();
                        }
                    }
                }
            }
            file.durable = file.content.clone();
        }
        disk.changes_left.take() == Some(0)
    }
}

impl Disk {
    /// Returns whether this change is the one at which the process is interrupted; fails for all later ones.
    fn change(&mut self) -> io::Result<bool> {
        match &mut self.changes_left {
            None => Ok(false),
            Some(0) => Err(io::ErrorKind::BrokenPipe.into()),
            Some(left) => {
                *left -= 1;
                Ok(*left == 0)
            }
        }
    }
}

impl Folder for FaultFolder {
    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        let disk = self.0.lock().unwrap();
        Ok(disk.files.iter().map(|(name, file)| (name.clone(), file.content.len() as u64)).collect())
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn ReadAt>> {
        let disk = self.0.lock().unwrap();
        Ok(Box::new(disk.files.get(name).ok_or(io::ErrorKind::NotFound)?.content.clone()))
    }

    fn write_at(&mut self, name: &str, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut disk = self.0.lock().unwrap();
        // The last write is not complete.
        let is_last = disk.change()?;
        let count = if is_last { bytes.len() / 2 } else { bytes.len() };
        let content = &mut disk.files.entry(name.to_owned()).or_default().content;
        let (begin, end) = (offset as usize, offset as usize + count);
        content.resize(content.len().max(end), 0);
        content[begin..end].copy_from_slice(&bytes[..count]);
        if is_last { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(()) }
    }

    fn truncate(&mut self, name: &str, length: u64) -> io::Result<()> {
        let mut disk = self.0.lock().unwrap();
        disk.change()?;
        let file = disk.files.get_mut(name).ok_or(io::ErrorKind::NotFound)?;
        file.content.truncate(length as usize);
        Ok(())
    }

    fn sync(&mut self, name: &str) -> io::Result<()> {
        let mut disk = self.0.lock().unwrap();
        disk.change()?;
        let file = disk.files.get_mut(name).ok_or(io::ErrorKind::NotFound)?;
        file.durable = file.content.clone();
        Ok(())
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        let mut disk = self.0.lock().unwrap();
        disk.change()?;
        disk.files.remove(name).map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// Settings with which a segment ends after so many messages.
fn own_settings() -> Settings {
    Settings { keep: Duration::from_secs(8 * (MESSAGES * 10 - 5)), ..settings(Addresses::Full) }
}

fn open<F: Folder + Clone>(folder: &F, clock: &Clock) -> Store<F> {
    let mut store = store(folder, own_settings(), clock);
    store.part_entries = PART_ENTRIES;
    store
}

/// A message that was relayed.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Relayed(QueueId, String);

/// Relays a large message; ten seconds pass.
fn relay<F: Folder>(store: &mut Store<F>, clock: &Clock, number: u64) -> Relayed {
    let at = clock.pass(5_000_000);
    let (id, to) = (id_at(at), format!("r{number}@b{}.test", number % 3));
    let reply = format!("250 2.0.0 Ok: {}", format!("{number:x}").repeat(1000));
    store.write(at, &accepted(id, "s@a.test", &format!("<{number}@a.test>")));
    store.write(UnixMicros(at.0 + 500), &attempt(id, "s@a.test", &to, Status::Sent, &reply));
    store.write(UnixMicros(at.0 + 600), &Event::Completed(id));
    clock.pass(5_000_000);
    store.flush();
    Relayed(id, to)
}

/// Relays messages until the first segment is sealed; returns those that were durable before an interruption.
fn relay_until_sealed(
    store: &mut Store<FaultFolder>,
    folder: &FaultFolder,
    clock: &Clock,
    interrupt_after: u32,
) -> Vec<Relayed> {
    let mut all: Vec<Relayed> = (0..MESSAGES).map(|number| relay(store, clock, number)).collect();
    folder.interrupt_after(interrupt_after);
    let is_running = || folder.0.lock().unwrap().changes_left != Some(0);
    for number in MESSAGES..MESSAGES + 40 {
        let next = relay(store, clock, number);
        if !is_running() {
            break;
        }
        all.push(next);
    }
    all
}

fn assert_found(folder: &dyn Folder, all: &[Relayed], when: &str) {
    let reader = Reader::open(folder).unwrap();
    let mut problems = BTreeSet::new();
    // Some of the first ones, and all of the last.
    let checked = all.iter().enumerate().filter(|(number, _)| number % 23 == 0 || number + 4 > all.len());
    for (_, Relayed(id, to)) in checked {
        let count = reader.timeline(*id, &mut problems).len();
        assert!(count >= 3, "{when}: {count} events of {to} of {}: {problems:?}", all.len());
        let page = reader.query(&Query::new(vec![Key::Recipient(to.clone())], 10));
        assert_eq!(ids(&page), [*id], "{when}: {to}");
    }
    assert!(problems.is_empty(), "{when}: {problems:?}");
}

/// Seals everything that earlier processes left.
fn seal_rest(folder: &FaultFolder, clock: &Clock) -> Store<FaultFolder> {
    let mut store = open(folder, clock);
    for _ in 0..60 {
        clock.pass(5_000_000);
        store.flush();
    }
    store
}

/// Interrupts the writer after so many changes; then the next one, after each number of changes of `seconds`.
fn interrupt(fault: Fault, first: u32, seconds: impl Fn(u32) -> Vec<u32>) -> bool {
    let was_interrupted = |second: Option<u32>| {
        let (folder, clock) = (FaultFolder::default(), Clock::new());
        let mut store = open(&folder, &clock);
        let all = relay_until_sealed(&mut store, &folder, &clock, first);
        std::mem::forget(store);
        let was_interrupted = folder.restart(fault);
        let when = format!("{fault:?} after {first} changes, then {second:?}");
        assert_found(&folder, &all, &format!("{when}, before the start"));
        if let Some(second) = second {
            folder.interrupt_after(second);
            std::mem::forget(seal_rest(&folder, &clock));
            folder.restart(fault);
            assert_found(&folder, &all, &format!("{when}, before the second start"));
        }
        let store = seal_rest(&folder, &clock);
        assert_found(&folder, &all, &format!("{when}, sealed"));
        let old: Vec<String> =
            files(&folder).into_iter().filter(|name| name.starts_with("00000001")).collect();
        // The newest segment is continued in the next one.
        if !old.is_empty() {
            assert_eq!(old, ["00000001.events"], "{when}");
            assert!(Segment::open(&folder, 1, &[]).unwrap().is_sealed(), "{when}");
        }
        drop(store);
        assert_found(&folder, &all, &format!("{when}, closed"));
        was_interrupted
    };
    for second in seconds(first) {
        was_interrupted(Some(second));
    }
    was_interrupted(None)
}

fn interrupt_at_each_change(fault: Fault) {
    let mut changes = 1;
    while interrupt(fault, changes, |_| Vec::new()) && changes < 200 {
        changes += 1;
    }
    assert!((60..200).contains(&changes), "{changes}");
}

#[test]
fn a_kill_at_any_change_loses_nothing_and_the_next_start_seals() {
    interrupt_at_each_change(Fault::Kill);
}

#[test]
fn a_power_cut_at_any_change_loses_nothing_that_was_durable() {
    interrupt_at_each_change(Fault::PowerCut);
}

#[test]
fn a_power_cut_that_tears_files_loses_nothing_that_was_durable() {
    interrupt_at_each_change(Fault::TornPowerCut);
}

#[test]
fn the_next_start_may_be_interrupted_too() {
    for fault in [Fault::Kill, Fault::PowerCut, Fault::TornPowerCut] {
        for first in [5, 12, 25] {
            interrupt(fault, first, |_| (1..30).collect());
        }
    }
}

/// Returns the messages of a search, without the places.
fn found(folder: &dyn Folder, key: &Key) -> Vec<(QueueId, Vec<String>)> {
    let page = search(folder, vec![key.clone()]);
    assert!(page.problems.is_empty(), "{:?}", page.problems);
    let message = |entry: &Entry| match entry {
        Entry::Message(id, events) => {
            Some((*id, events.iter().map(|stored| format!("{} {:?}", stored.at.0, stored.event())).collect()))
        }
        Entry::Event(_) => None,
    };
    page.entries.iter().filter_map(message).collect()
}

#[test]
fn searches_return_the_same_before_each_step_of_sealing_and_after_it() {
    let (folder, clock) = (MemoryFolder::default(), Clock::new());
    let mut store = open(&folder, &clock);
    let all: Vec<Relayed> = (0..MESSAGES).map(|number| relay(&mut store, &clock, number)).collect();
    let keys: Vec<Key> = [0, 50, 99]
        .iter()
        .flat_map(|number| [Key::Id(all[*number].0), Key::Recipient(all[*number].1.clone())])
        .chain([Key::Domain("b1.test".into()), Key::MessageId("7@a.test".into())])
        .collect();
    let before: Vec<_> = keys.iter().map(|key| found(&folder, key)).collect();
    assert!(before.iter().all(|found| !found.is_empty()));
    // The first event behind the segment: sealing begins.
    store.write(clock.pass(5_000_000), &Event::Reloaded);
    let mut step_count = 0;
    while store.seal_step() {
        step_count += 1;
        let now: Vec<_> = keys.iter().map(|key| found(&folder, key)).collect();
        assert!(before == now, "step {step_count}: {:?}", files(&folder));
    }
    assert!(step_count > 8, "{step_count}");
    assert_eq!(files(&folder)[0], "00000001.events");
    assert!(files(&folder)[1..].iter().all(|name| name.starts_with("00000002")), "{:?}", files(&folder));
}

#[test]
fn a_segment_whose_keys_are_missing_is_sealed_with_keys_that_are_made_anew() {
    for damage in 0..3 {
        let (folder, clock) = (MemoryFolder::default(), Clock::new());
        let mut store = open(&folder, &clock);
        let mut all: Vec<Relayed> = (0..MESSAGES).map(|number| relay(&mut store, &clock, number)).collect();
        all.push(relay(&mut store, &clock, MESSAGES));
        std::mem::forget(store);
        let mut keys = folder.content("00000001.keys").unwrap();
        let middle = keys.len() / 2;
        match damage {
            0 => folder.clone().remove("00000001.keys").unwrap(),
            1 => folder.put("00000001.keys", keys[..middle].to_vec()),
            _ => {
                keys[middle] ^= 1;
                folder.put("00000001.keys", keys);
            }
        }
        let mut store = open(&folder, &clock);
        while store.seal_step() {}
        assert!(Segment::open(&folder, 1, &[]).unwrap().is_sealed());
        assert_found(&folder, &all, "without keys");
    }
}

#[test]
fn a_segment_with_a_damaged_block_and_without_keys_is_read_as_it_is() {
    let (folder, clock) = (MemoryFolder::default(), Clock::new());
    let mut store = open(&folder, &clock);
    let all: Vec<Relayed> = (0..=MESSAGES).map(|number| relay(&mut store, &clock, number)).collect();
    std::mem::forget(store);
    folder.clone().remove("00000001.keys").unwrap();
    let mut bytes = folder.content("00000001.events").unwrap();
    bytes[200] ^= 1;
    folder.put("00000001.events", bytes);
    let mut store = open(&folder, &clock);
    while store.seal_step() {}
    assert!(!Segment::open(&folder, 1, &[]).unwrap().is_sealed());
    let page = search(&folder, vec![Key::Recipient(all[MESSAGES as usize - 1].1.clone())]);
    assert_eq!(ids(&page), [all[MESSAGES as usize - 1].0]);
    let page = search(&folder, vec![Key::Recipient(all[0].1.clone())]);
    assert!(page.entries.is_empty() && page.problems.len() == 1, "{page:?}");
}

#[test]
fn a_segment_is_sealed_when_a_full_disk_has_room_again() {
    let (folder, clock) = (MemoryFolder::default(), Clock::new());
    let mut store = open(&folder, &clock);
    let all: Vec<Relayed> = (0..MESSAGES).map(|number| relay(&mut store, &clock, number)).collect();
    store.write(clock.pass(5_000_000), &Event::Reloaded);
    // The plain frames are removed first.
    assert!(store.seal_step());
    let bytes: u64 = folder.list().unwrap().iter().map(|(_, bytes)| bytes).sum();
    folder.set_size(Some(bytes as usize + 300));
    while store.seal_step() {}
    assert!(!Segment::open(&folder, 1, &[]).unwrap().is_sealed());
    assert_found(&folder, &all, "a full disk");
    folder.set_size(None);
    store.flush();
    assert!(!Segment::open(&folder, 1, &[]).unwrap().is_sealed(), "not tried for a minute");
    clock.pass(61_000_000);
    while store.flush() {
        clock.pass(5_000_000);
    }
    assert!(Segment::open(&folder, 1, &[]).unwrap().is_sealed());
    assert_found(&folder, &all, "a disk with room");
}
