//! A model of throughput by the number of cores: workers share the message queue behind a lock, and submit to the commit
//! queue of one commit thread. A discrete-event simulation uses the costs of each step on one core, because the machine
//! of the measurements has two cores. `docs/scaling.md` gives the sources of the figures.

use std::{cmp::Reverse, collections::BinaryHeap, process::ExitCode};

/// Nanoseconds.
type Nanos = u64;

/// What each step costs, in nanoseconds.
#[derive(Clone, Copy)]
struct Costs {
    /// CPU time of a worker for a message: sockets, protocol, log lines.
    worker: Nanos,
    /// The time for which the lock of the message queue is held, for each of insert, lease and complete.
    queue_hold: Nanos,
    /// The time for which the lock of the commit queue is held, for each of message and outcome.
    commit_queue_hold: Nanos,
    /// The cost of a lock whose cache line another core has written.
    handover: Nanos,
    /// CPU time of the commit thread for a message: the records of the message and of its outcome.
    record: Nanos,
    /// Writing and syncing a batch. `transfer` is the time of the disk for each message in it.
    sync: Nanos,
    transfer: Nanos,
    /// Waking one worker.
    wake: Nanos,
}

/// Costs measured on the machine that `docs/scaling.md` names. `worker` excludes the load source and the next hop, which
/// are assumed to have cores of their own.
const MEASURED: Costs = Costs {
    worker: 75_000,
    queue_hold: 250,
    commit_queue_hold: 80,
    handover: 150,
    record: 1_000,
    sync: 150_000,
    transfer: 700,
    wake: 3_000,
};

/// The most messages that a worker has under way: its sessions.
const SESSIONS: u32 = 200;
/// Simulated time.
const SPAN: Nanos = 2_000_000_000;

/// A lock: the time at which it is free, and the worker that held it last.
#[derive(Default)]
struct Lock {
    free_at: Nanos,
    owner: usize,
    waited: Nanos,
}

impl Lock {
    /// Requests the lock at `now`, and returns the time of its release.
    fn hold(&mut self, now: Nanos, worker: usize, hold: Nanos, handover: Nanos) -> Nanos {
        let begun = now.max(self.free_at);
        self.waited += begun - now;
        let moved = if self.owner == worker { 0 } else { handover };
        (self.owner, self.free_at) = (worker, begun + moved + hold);
        self.free_at
    }
}

/// What happens next in the simulation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A worker is free for the next message.
    Free(usize),
    /// The worker has read a message and submits it.
    Submit(usize),
    /// A durable message enters the message queue and is leased.
    Queue(usize),
    /// The attempt of a delivery has ended.
    Complete(usize),
    /// The batch that was being synced is durable.
    Synced,
}

struct Machine {
    costs: Costs,
    events: BinaryHeap<Reverse<(Nanos, Event)>>,
    queue: Lock,
    commit_queue: Lock,
    /// By worker: messages under way, submitted ones that wait for the commit, durable ones to serve.
    open: Vec<u32>,
    waiting: Vec<u32>,
    batch: Vec<u32>,
    durable: Vec<u32>,
    idle: Vec<bool>,
    syncing: bool,
    commit_busy: Nanos,
    commit_count: u64,
    done: u64,
}

impl Machine {
    fn new(costs: Costs, cores: usize) -> Self {
        let events = (0..cores).map(|worker| Reverse((worker as Nanos * 997, Event::Free(worker)))).collect();
        let (open, waiting, batch, durable) =
            (vec![0; cores], vec![0; cores], vec![0; cores], vec![0; cores]);
        Self {
            costs,
            events,
            queue: Lock::default(),
            commit_queue: Lock::default(),
            open,
            waiting,
            batch,
            durable,
            idle: vec![false; cores],
            syncing: false,
            commit_busy: 0,
            commit_count: 0,
            done: 0,
        }
    }

    fn at(&mut self, when: Nanos, event: Event) {
        self.events.push(Reverse((when, event)));
    }

    fn run(&mut self) {
        while let Some(Reverse((now, event))) = self.events.pop() {
            if now > SPAN {
                return;
            }
            self.step(now, event);
        }
    }

    fn step(&mut self, now: Nanos, event: Event) {
        let costs = self.costs;
        match event {
            Event::Free(worker) if self.durable[worker] > 0 => {
                self.durable[worker] -= 1;
                self.at(now + costs.worker / 3, Event::Queue(worker));
            }
            Event::Free(worker) if self.open[worker] < SESSIONS => {
                self.open[worker] += 1;
                self.at(now + costs.worker / 3, Event::Submit(worker));
            }
            Event::Free(worker) => self.idle[worker] = true,
            Event::Submit(worker) => {
                let end = self.commit_queue.hold(now, worker, costs.commit_queue_hold, costs.handover);
                self.waiting[worker] += 1;
                self.begin_commit(end);
                self.at(end, Event::Free(worker));
            }
            Event::Queue(worker) => {
                let inserted = self.queue.hold(now, worker, 2 * costs.queue_hold, costs.handover);
                self.at(inserted + costs.worker / 3, Event::Complete(worker));
            }
            Event::Complete(worker) => {
                let completed = self.queue.hold(now, worker, costs.queue_hold, costs.handover);
                let end = self.commit_queue.hold(completed, worker, costs.commit_queue_hold, costs.handover);
                self.open[worker] -= 1;
                self.done += 1;
                self.at(end, Event::Free(worker));
            }
            Event::Synced => self.synced(now),
        }
    }

    fn begin_commit(&mut self, now: Nanos) {
        let count: u32 = self.waiting.iter().sum();
        if self.syncing || count == 0 {
            return;
        }
        self.syncing = true;
        self.batch.clone_from(&self.waiting);
        self.waiting.fill(0);
        let woken = self.batch.iter().filter(|count| **count > 0).count() as Nanos;
        let work = u64::from(count) * self.costs.record + woken * self.costs.wake;
        self.commit_busy += work;
        self.commit_count += 1;
        self.at(now + work + self.costs.sync + u64::from(count) * self.costs.transfer, Event::Synced);
    }

    fn synced(&mut self, now: Nanos) {
        self.syncing = false;
        for worker in 0..self.durable.len() {
            self.durable[worker] += std::mem::take(&mut self.batch[worker]);
            if self.durable[worker] > 0 && std::mem::take(&mut self.idle[worker]) {
                self.at(now, Event::Free(worker));
            }
        }
        self.begin_commit(now);
    }
}

fn main() -> ExitCode {
    if std::env::args().len() > 1 {
        eprintln!("usage: cores    (prints throughput from 1 to 64 cores)");
        return ExitCode::from(64);
    }
    println!(
        "{:>5} {:>12} {:>9} {:>13} {:>14} {:>14}",
        "cores", "messages/s", "of ideal", "msgs a commit", "commit busy", "queue lock wait"
    );
    for cores in [1, 2, 4, 8, 16, 24, 32, 48, 64] {
        let mut machine = Machine::new(MEASURED, cores);
        machine.run();
        let rate = machine.done as f64 * 1e9 / SPAN as f64;
        let ideal = cores as f64 * 1e9 / MEASURED.worker as f64;
        let waited = machine.queue.waited as f64 / (SPAN as f64 * cores as f64);
        println!(
            "{cores:>5} {rate:>12.0} {:>8.0}% {:>13.1} {:>13.0}% {:>13.1}%",
            100.0 * rate / ideal,
            machine.done as f64 / machine.commit_count.max(1) as f64,
            100.0 * machine.commit_busy as f64 / SPAN as f64,
            100.0 * waited,
        );
    }
    ExitCode::SUCCESS
}
