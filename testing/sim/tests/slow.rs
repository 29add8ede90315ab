//! A disk that does not answer for a while: nothing is promised meanwhile, and what waits is bounded.

#[path = "../../../crates/spool/tests/fault_disk/mod.rs"]
mod fault_disk;

use fault_disk::{FaultDisk, Faults};
use mail::{Content, Envelope, ForwardPath, Message, QueueId, Recipient, ReversePath, UnixMillis};
use spool::{CommitSeq, Durable, Entry, LogSettings, LogSpool, Refused, Spool, SpoolFailure, disk::RealDisk};
use std::{
    io,
    sync::{Arc, Condvar, Mutex},
    task::{Context, Poll, Wake, Waker},
};

#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Answer {
    #[default]
    Done,
    /// None for now.
    Stuck,
    Error,
}

/// A gate that syncs pass.
#[derive(Default)]
struct Gate {
    /// The answer to syncs, and how many wait for one.
    state: Mutex<(Answer, u32)>,
    changed: Condvar,
}

impl Gate {
    fn set(&self, answer: Answer) {
        self.state.lock().unwrap().0 = answer;
        self.changed.notify_all();
    }

    fn wait_for_a_sync(&self) {
        let state = self.state.lock().unwrap();
        drop(self.changed.wait_while(state, |state| state.1 == 0).unwrap());
    }
}

impl Faults for Gate {
    fn sync(&self) -> io::Result<()> {
        let mut state = self.state.lock().unwrap();
        state.1 += 1;
        self.changed.notify_all();
        let mut state = self.changed.wait_while(state, |state| state.0 == Answer::Stuck).unwrap();
        state.1 -= 1;
        if state.0 == Answer::Error { Err(io::Error::from_raw_os_error(sim::disk::EIO)) } else { Ok(()) }
    }
}

const QUEUED_BYTES_MAX: u64 = 64 * 1024;

fn open(dir: &std::path::Path, gate: &Arc<Gate>) -> (LogSpool, Vec<u64>) {
    let disk = FaultDisk(RealDisk::new(dir).unwrap(), gate.clone());
    let settings = LogSettings {
        segment_bytes: 256 * 1024,
        min_free_bytes: 0,
        queued_bytes_max: QUEUED_BYTES_MAX,
        ..LogSettings::default()
    };
    let mut spool = LogSpool::on(Arc::new(disk), settings).unwrap();
    let mut found = Vec::new();
    spool.recover(&mut |r| found.push(r.message.id.0)).unwrap();
    (spool, found)
}

fn submit(spool: &LogSpool, id: u64) -> Result<CommitSeq, Refused> {
    let mut envelope = Envelope::new(ReversePath::parse("a@b.test", false).unwrap());
    envelope.recipients = vec![Recipient::new(ForwardPath::parse("c@d.test", false).unwrap())];
    let content = Content::from_bytes(vec![b'x'; 1000]);
    let (id, origin) = (QueueId(id), "test".into());
    let message = Message { id, arrived: UnixMillis(1), origin, envelope, content };
    spool.submit(vec![Entry::Accept(Arc::new(message))])
}

/// Returns the result of a commit that can be reported now.
fn said(spool: &LogSpool, commit_seq: CommitSeq) -> Poll<bool> {
    let mut durable = spool.durable(commit_seq);
    durable.as_mut().poll(&mut Context::from_waker(Waker::noop())).map(|result| result.is_ok())
}

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on(mut durable: Durable) -> Result<(), SpoolFailure> {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    loop {
        match durable.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(result) => return result,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// Submits until it is refused, while no sync comes back.
fn fill(spool: &LogSpool) -> (Vec<CommitSeq>, Refused) {
    let mut commit_seqs = Vec::new();
    loop {
        match submit(spool, commit_seqs.len() as u64 + 1) {
            Ok(commit_seq) => commit_seqs.push(commit_seq),
            Err(refused) => return (commit_seqs, refused),
        }
        assert!(commit_seqs.len() < 10_000, "what waits has no bound");
    }
}

#[test]
fn a_stuck_sync_promises_nothing_and_what_waits_for_it_is_bounded() {
    let (dir, gate) = (tempfile::tempdir().unwrap(), Arc::default());
    let (spool, _) = open(dir.path(), &gate);
    gate.set(Answer::Stuck);
    let first = submit(&spool, 1_000_000).unwrap();
    gate.wait_for_a_sync();
    let (commit_seqs, refused) = fill(&spool);
    assert_eq!(refused, Refused::Busy);
    // What is being written does not count: the buffer of the thread is bounded, too.
    let bytes_max = 2 * QUEUED_BYTES_MAX;
    assert!(commit_seqs.len() as u64 * 1000 <= bytes_max, "{} wait", commit_seqs.len());
    assert!(commit_seqs.iter().chain([&first]).all(|commit_seq| said(&spool, *commit_seq) == Poll::Pending));
    let before = spool.pressure().commit_count;
    gate.set(Answer::Done);
    block_on(spool.durable(*commit_seqs.last().unwrap())).unwrap();
    assert_eq!(said(&spool, first), Poll::Ready(true));
    // A slow disk does not make slow mail: one sync for all that came while it was stuck.
    assert!(spool.pressure().commit_count - before <= 3, "{:?}", spool.pressure());
    submit(&spool, 2_000_000).unwrap();
}

#[test]
fn a_late_sync_failure_fails_all_waiters_and_is_not_retried() {
    let (dir, gate) = (tempfile::tempdir().unwrap(), Arc::default());
    let (spool, _) = open(dir.path(), &gate);
    let kept = submit(&spool, 1_000_000).unwrap();
    block_on(spool.durable(kept)).unwrap();
    gate.set(Answer::Stuck);
    submit(&spool, 1_000_001).unwrap();
    gate.wait_for_a_sync();
    let (commit_seqs, _) = fill(&spool);
    gate.set(Answer::Error);
    assert!(block_on(spool.durable(commit_seqs[0])).is_err());
    // The disk is well again; the spool has not looked.
    gate.set(Answer::Done);
    assert!(commit_seqs.iter().all(|commit_seq| said(&spool, *commit_seq) == Poll::Ready(false)));
    assert_eq!((submit(&spool, 3_000_000), spool.pressure().poisoned), (Err(Refused::Poisoned), true));
    drop(spool);
    let (_, found) = open(dir.path(), &gate);
    assert!(found.contains(&1_000_000));
}
