//! A spool that replies before a message is durable: what it says, what it keeps, and when it stops.

mod common;

use common::accept;
use mail::QueueId;
use spool::{
    EarlySpool, LogSettings, LogSpool, Refused, Spool, block_on,
    disk::{Disk, File, RealDisk},
};
use std::{
    io,
    path::Path,
    sync::{Arc, Condvar, Mutex},
};

/// The behaviour of syncs.
#[derive(Clone, Copy, PartialEq)]
enum Gate {
    Open,
    Closed,
    Failing,
}

#[derive(Clone)]
struct GatedDisk(Arc<RealDisk>, Arc<(Mutex<Gate>, Condvar)>);

impl GatedDisk {
    fn set(&self, gate: Gate) {
        *self.1.0.lock().unwrap() = gate;
        self.1.1.notify_all();
    }

    fn file(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(GatedFile(file, self.1.clone()))
    }
}

impl Disk for GatedDisk {
    fn lock(&self) -> io::Result<()> {
        self.0.lock()
    }
    fn list(&self) -> io::Result<Vec<String>> {
        self.0.list()
    }
    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        self.0.create(name).map(|file| self.file(file))
    }
    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        self.0.open(name).map(|file| self.file(file))
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(from, to)
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(name)
    }
    fn sync_dir(&self) -> io::Result<()> {
        self.0.sync_dir()
    }
    fn sync_all(&self) -> io::Result<()> {
        self.0.sync_all()
    }
    fn free_bytes(&self) -> io::Result<u64> {
        self.0.free_bytes()
    }
}

struct GatedFile(Arc<dyn File>, Arc<(Mutex<Gate>, Condvar)>);

impl File for GatedFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_at(offset, bytes)
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read_at(offset, buffer)
    }
    fn sync_data(&self) -> io::Result<()> {
        let gate = self.1.1.wait_while(self.1.0.lock().unwrap(), |gate| *gate == Gate::Closed).unwrap();
        match *gate {
            Gate::Failing => Err(io::Error::other("the disk is gone")),
            _ => self.0.sync_data(),
        }
    }
    fn truncate(&self, length: u64) -> io::Result<()> {
        self.0.truncate(length)
    }
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
}

fn opened(dir: &Path) -> (EarlySpool, GatedDisk) {
    let disk =
        GatedDisk(Arc::new(RealDisk::new(dir).unwrap()), Arc::new((Mutex::new(Gate::Open), Condvar::new())));
    // Small segments, and no other is prepared behind a closed gate.
    let settings = LogSettings { segment_bytes: 1 << 20, min_free_bytes: 0, ..LogSettings::default() };
    let mut log = LogSpool::on(Arc::new(disk.clone()), settings).unwrap();
    log.recover(&mut |_| {}).unwrap();
    (EarlySpool::new(Box::new(log)), disk)
}

fn found(dir: &Path) -> Vec<u64> {
    let mut ids = Vec::new();
    spool::inspect(dir, &mut |found| ids.push(found.message.id.0)).unwrap();
    ids.sort_unstable();
    ids
}

#[test]
fn a_message_is_called_durable_before_its_sync_and_is_synced_without_a_waiter() {
    let dir = tempfile::tempdir().unwrap();
    let (spool, disk) = opened(dir.path());
    disk.set(Gate::Closed);
    let commit_seq = spool.submit(accept(1, 100)).unwrap();
    assert!(matches!(spool.poll_durable(commit_seq), Some(Ok(()))));
    block_on(spool.durable(commit_seq)).unwrap();
    assert_eq!(spool.pressure().commit_count, 0, "the sync has not ended");
    disk.set(Gate::Open);
    // A read waits for the commit of the message.
    assert_eq!(spool.read(QueueId(1)).unwrap().id, QueueId(1));
    assert_eq!(spool.pressure().commit_count, 1);
    spool.close();
    drop(spool);
    assert_eq!(found(dir.path()), [1]);
}

#[test]
fn an_orderly_end_commits_what_was_called_durable() {
    let dir = tempfile::tempdir().unwrap();
    let (spool, _disk) = opened(dir.path());
    let chunk = spool.store(vec![b'x'; 1000].into()).unwrap();
    for id in 1..=100 {
        spool.submit(accept(id, 100)).unwrap();
    }
    // Chunks are read for accepted messages only, which are submitted behind them.
    assert_eq!(spool.load(chunk).unwrap().len(), 1000);
    spool.close();
    drop(spool);
    assert_eq!(found(dir.path()), (1..=100).collect::<Vec<_>>());
}

#[test]
fn after_a_failed_sync_nothing_is_accepted_or_called_durable() {
    let dir = tempfile::tempdir().unwrap();
    let (spool, disk) = opened(dir.path());
    disk.set(Gate::Failing);
    let commit_seq = spool.submit(accept(1, 100)).unwrap();
    assert!(block_on(spool.failed()).to_string().contains("the disk is gone"));
    assert!(matches!(spool.poll_durable(commit_seq), Some(Err(_))));
    assert!(block_on(spool.durable(commit_seq)).is_err());
    assert_eq!(spool.submit(accept(2, 100)).unwrap_err(), Refused::Poisoned);
}
