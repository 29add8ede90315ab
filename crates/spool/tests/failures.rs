//! A spool reports a failure of its disk or a panic of its thread, although no caller waits for a commit sequence
//! number.

mod common;
mod fault_disk;

use bytes::Bytes;
use common::accept;
use fault_disk::{FaultDisk, Faults};
use mail::{Enhanced, Outcome, QueueId};
use spool::{
    ControlOp, DirSettings, DirSpool, Entry, LogSettings, LogSpool, Placement, QueueDirectory, Refused,
    Spool, disk::RealDisk,
};
use std::{
    io,
    path::Path,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    thread::Thread,
    time::Duration,
};

/// A fault of the disk.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// A sync fails.
    Sync,
    /// A sync of the commit thread does not return as long as this lasts.
    SyncWaits,
    /// A write panics in the thread of this name.
    PanicInWrite(&'static str),
    /// The question for room fails.
    FreeBytes,
    /// The question for room panics in the thread of this name.
    PanicInFreeBytes(&'static str),
    /// A read panics in the thread of this name.
    PanicInRead(&'static str),
}

/// The fault that is injected now.
#[derive(Default)]
struct Injected {
    fault: Mutex<Option<Fault>>,
    changed: Condvar,
    /// A sync of the commit thread waits.
    is_syncing: Mutex<bool>,
    sync_begins: Condvar,
    /// Another directory is under the spool's name.
    is_replaced: AtomicBool,
}

impl Injected {
    fn set(&self, fault: Fault) {
        *self.fault.lock().unwrap() = Some(fault);
    }

    fn heal(&self) {
        *self.fault.lock().unwrap() = None;
        self.changed.notify_all();
    }

    fn is(&self, fault: Fault) -> bool {
        *self.fault.lock().unwrap() == Some(fault)
    }

    /// Returns once a sync waits.
    fn await_sync(&self) {
        let guard = self.is_syncing.lock().unwrap();
        drop(self.sync_begins.wait_while(guard, |is_syncing| !*is_syncing).unwrap());
    }

    fn panics(&self, call: impl Fn(&'static str) -> Fault) {
        let fault = *self.fault.lock().unwrap();
        let current = std::thread::current();
        let name = current.name().unwrap_or_default();
        for known in ["spool-commit", "spool-prepare", "spool-room", "spool-compact"] {
            if name == known && fault == Some(call(known)) {
                panic!("the test makes {known} panic");
            }
        }
    }
}

impl Faults for Injected {
    fn read_at(&self, _offset: u64, _length: usize) -> io::Result<()> {
        self.panics(Fault::PanicInRead);
        Ok(())
    }
    fn write_at(&self) -> io::Result<()> {
        self.panics(Fault::PanicInWrite);
        Ok(())
    }
    fn sync(&self) -> io::Result<()> {
        if self.is(Fault::Sync) {
            return Err(io::Error::from_raw_os_error(5)); // EIO
        }
        if std::thread::current().name() == Some("spool-commit") && self.is(Fault::SyncWaits) {
            *self.is_syncing.lock().unwrap() = true;
            self.sync_begins.notify_all();
            let guard = self.fault.lock().unwrap();
            drop(self.changed.wait_while(guard, |fault| *fault == Some(Fault::SyncWaits)).unwrap());
        }
        Ok(())
    }
    fn sync_dir(&self) -> io::Result<()> {
        self.sync()
    }
    fn check_place(&self) -> io::Result<()> {
        if self.is_replaced.load(Ordering::Relaxed) {
            return Err(io::Error::other("another directory is there"));
        }
        Ok(())
    }
    fn free_bytes(&self) -> io::Result<Option<u64>> {
        self.panics(Fault::PanicInFreeBytes);
        if self.is(Fault::FreeBytes) {
            return Err(io::Error::from_raw_os_error(5)); // EIO
        }
        Ok(None)
    }
}

const SEGMENT: u64 = 256 * 1024;

fn log(dir: &Path) -> (Box<dyn Spool>, Arc<Injected>) {
    let faults = Arc::new(Injected::default());
    let disk = FaultDisk(RealDisk::new(dir).unwrap(), faults.clone());
    let settings = LogSettings { segment_bytes: SEGMENT, min_free_bytes: 0, ..LogSettings::default() };
    let mut spool = LogSpool::on(Arc::new(disk), settings).unwrap();
    spool.recover(&mut |_| {}).unwrap();
    (Box::new(spool), faults)
}

fn directories(dir: &Path) -> (Box<dyn Spool>, Arc<Injected>) {
    let faults = Arc::new(Injected::default());
    let disk = Arc::new(FaultDisk(RealDisk::new(dir).unwrap(), faults.clone()));
    let queues = vec![QueueDirectory::flat("q1", disk)];
    let settings =
        DirSettings { min_free_bytes: 0, placement: Placement::RoundRobin, ..DirSettings::default() };
    let mut spool = DirSpool::on(queues, settings).unwrap();
    spool.recover(&mut |_| {}).unwrap();
    (Box::new(spool), faults)
}

fn deferred(id: u64) -> Vec<Entry> {
    let results = vec![(0, Outcome::deferred(Enhanced(4, 2, 1), "450 mailbox busy"))];
    vec![Entry::Outcome { id: QueueId(id), results, last: false }]
}

/// Waits for a future, up to a minute.
fn wait<T>(mut future: std::pin::Pin<Box<dyn Future<Output = T> + Send>>) -> Option<T> {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let begun = std::time::Instant::now();
    while begun.elapsed() < Duration::from_secs(60) {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return Some(value),
            Poll::Pending => std::thread::park_timeout(Duration::from_secs(1)),
        }
    }
    None
}

/// The spool says that it has failed, refuses everything, and ends.
fn ends(spool: &dyn Spool, expected: &str) {
    let failure = wait(spool.failed()).expect("no failure is reported").to_string();
    assert!(failure.contains(expected), "{failure}");
    assert!(spool.pressure().poisoned);
    assert_eq!(spool.submit(deferred(1)), Err(Refused::Poisoned));
    spool.close();
}

#[test]
fn a_failed_sync_of_an_outcome_that_no_caller_waits_for_is_reported() {
    for open in [log, directories] {
        let dir = tempfile::tempdir().unwrap();
        let (spool, faults) = open(dir.path());
        let commit_seq = spool.submit(accept(1, 100)).unwrap();
        wait(spool.durable(commit_seq)).unwrap().unwrap();
        faults.set(Fault::Sync);
        spool.submit(deferred(1)).unwrap();
        // In the log the thread that prepares segments may meet it first.
        ends(&*spool, "(os error 5)");
    }
}

#[test]
fn what_waits_for_the_commit_thread_when_another_thread_fails_is_not_called_durable() {
    for open in [log, directories] {
        let dir = tempfile::tempdir().unwrap();
        let (spool, faults) = open(dir.path());
        faults.set(Fault::SyncWaits);
        let first = spool.submit(accept(1, 100)).unwrap();
        let asked = spool.durable(first);
        faults.await_sync();
        let held = vec![Entry::Control { id: QueueId(1), op: ControlOp::Hold("by root".into()) }];
        let second = [accept(2, 100), held].map(|entries| spool.submit(entries).unwrap());
        faults.is_replaced.store(true, Ordering::Relaxed);
        wait(spool.failed()).expect("no failure is reported");
        // The commit thread does not notice it before the current sync returns.
        faults.heal();
        let _ = wait(asked).expect("the wait does not end");
        spool.close();
        for commit_seq in second {
            assert!(
                matches!(spool.poll_durable(commit_seq), Some(Err(_))),
                "{:?}",
                spool.poll_durable(commit_seq)
            );
        }
    }
}

#[test]
fn a_panic_of_the_commit_thread_is_reported_and_fails_all_waiters() {
    for open in [log, directories] {
        let dir = tempfile::tempdir().unwrap();
        let (spool, faults) = open(dir.path());
        faults.set(Fault::PanicInWrite("spool-commit"));
        let commit_seq = spool.submit(accept(1, 100)).unwrap();
        assert!(wait(spool.durable(commit_seq)).expect("the wait does not end").is_err());
        ends(&*spool, "the spool-commit thread panicked: the test makes spool-commit panic");
    }
}

/// Uses segments up until the thread that prepares them must make one, and fails. A refusal for want of room
/// is none of this.
fn use_up_segments(spool: &dyn Spool) {
    let begun = std::time::Instant::now();
    for id in 1.. {
        assert!(begun.elapsed() < Duration::from_secs(60), "no segment is prepared");
        match spool.submit(accept(id, 100_000)) {
            Ok(commit_seq) => match wait(spool.durable(commit_seq)).expect("the wait does not end") {
                Ok(()) => {}
                Err(_) => break,
            },
            Err(Refused::Poisoned) => break,
            Err(Refused::Busy) => std::thread::yield_now(),
            Err(Refused::Full | Refused::TooLarge) => panic!("the disk is not full"),
        }
    }
}

#[test]
fn a_panic_of_the_prepare_thread_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let (spool, faults) = log(dir.path());
    faults.set(Fault::PanicInFreeBytes("spool-prepare"));
    use_up_segments(&*spool);
    ends(&*spool, "the spool-prepare thread panicked");
}

#[test]
fn a_disk_that_does_not_tell_its_room_is_a_failure_and_not_full() {
    let dir = tempfile::tempdir().unwrap();
    let (spool, faults) = log(dir.path());
    faults.set(Fault::FreeBytes);
    use_up_segments(&*spool);
    ends(&*spool, "ask for room: ");

    let dir = tempfile::tempdir().unwrap();
    let (spool, faults) = directories(dir.path());
    faults.set(Fault::FreeBytes);
    ends(&*spool, "ask for room: ");
}

#[test]
fn a_spool_whose_directory_is_renamed_removed_or_replaced_fails() {
    for open in [log, directories] {
        for is_replaced in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let (path, moved) = (dir.path().join("spool"), dir.path().join("moved"));
            let (spool, _) = open(&path);
            std::fs::rename(&path, &moved).unwrap();
            if is_replaced {
                std::fs::create_dir(&path).unwrap();
            }
            ends(&*spool, if is_replaced { "another directory is at" } else { "was removed or renamed" });
        }
    }
}

#[test]
fn a_close_while_segments_are_prepared_is_no_failure() {
    let dir = tempfile::tempdir().unwrap();
    let disk = RealDisk::new(dir.path()).unwrap();
    let settings = LogSettings { segment_bytes: 8 << 20, min_free_bytes: 0, ..LogSettings::default() };
    let mut spool = LogSpool::on(Arc::new(disk), settings).unwrap();
    spool.recover(&mut |_| {}).unwrap();
    // The second segment is being made, in small pieces.
    spool.close();
    assert!(!spool.pressure().poisoned);
}

#[test]
fn a_panic_of_the_thread_that_looks_for_room_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let (spool, faults) = directories(dir.path());
    faults.set(Fault::PanicInFreeBytes("spool-room"));
    ends(&*spool, "the spool-room thread panicked");
}

#[test]
fn a_panic_of_the_compaction_thread_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let (spool, faults) = log(dir.path());
    faults.set(Fault::PanicInRead("spool-compact"));
    // One message stays in the oldest segment, and the log grows beyond several times what lives in it.
    let chunk = Bytes::from(vec![b'x'; 100_000]);
    let commit_seq = spool.submit(accept(1, 100)).unwrap();
    wait(spool.durable(commit_seq)).unwrap().unwrap();
    let begun = std::time::Instant::now();
    while !spool.pressure().poisoned {
        assert!(begun.elapsed() < Duration::from_secs(60), "the log is not compacted");
        if let Ok(chunk_id) = spool.store(chunk.clone()) {
            spool.discard_chunks(&[chunk_id]);
        }
        if let Ok(commit_seq) = spool.submit(deferred(1)) {
            let _ = wait(spool.durable(commit_seq)).expect("the wait does not end");
        }
    }
    ends(&*spool, "the spool-compact thread panicked");
}
