//! One run of a spool on a real file system: recovered, compared with the model, put under load from
//! several threads, and cut off. The model is not on the device, and needs no clock: once the device
//! is off every sync fails, so whatever was called durable was so before the cut.

use mail::QueueId;
use sim::mutant::Mutant;
use sim::{
    backend::{Backend, chooser},
    model::{Live, Model, Queue},
    workload::Workload,
};
use spool::{
    DirSettings, DirSpool, Durable, LogSettings, LogSpool, Placement, QueueDirectory, Refused, ShardedSpool,
    Spool, SpoolFailure, disk::RealDisk,
};
use std::{
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

/// Threads that submit transactions at a time.
const THREADS: usize = 4;
/// Transactions of a thread in a run that nothing ends.
const STEPS: usize = 250;

/// The spool that is tried, and the rule that it breaks on purpose.
#[derive(Debug, Clone)]
pub(crate) struct Subject {
    pub(crate) backend: Backend,
    pub(crate) mutant: Mutant,
}

/// Queue directories, if it is them.
const QUEUES: usize = 3;
/// Between outcomes and the commit they may wait for.
const OUTCOME_DELAY: Duration = Duration::from_millis(2);

impl Subject {
    fn open(&self, path: &Path) -> Result<Box<dyn Spool>, SpoolFailure> {
        Ok(match self.backend {
            Backend::Log => self.log(path)?,
            Backend::QueueDirs => self.directories(path)?,
            Backend::Both => {
                let stores = vec![self.log(&path.join("log"))?, self.directories(path)?];
                Box::new(ShardedSpool::new(stores, chooser()))
            }
        })
    }

    fn log(&self, path: &Path) -> Result<Box<dyn Spool>, SpoolFailure> {
        let settings = LogSettings {
            segment_bytes: 128 * 1024,
            min_free_bytes: 0,
            outcome_delay: OUTCOME_DELAY,
            ..LogSettings::default()
        };
        let disk = self.mutant.over(disk(path)?);
        Ok(Box::new(LogSpool::open_mutant(disk, settings, self.mutant.of_spool(), false)?))
    }

    fn directories(&self, path: &Path) -> Result<Box<dyn Spool>, SpoolFailure> {
        let settings = DirSettings {
            min_free_bytes: 0,
            reserve_bytes: 0,
            placement: Placement::LeastUsed,
            outcome_delay: OUTCOME_DELAY,
            ..DirSettings::default()
        };
        let queues = (0..QUEUES).map(|number| {
            let name = format!("q{number:02}");
            Ok(QueueDirectory::flat(&*name, self.mutant.over(disk(&path.join(&name))?)))
        });
        let queues = queues.collect::<Result<_, SpoolFailure>>()?;
        Ok(Box::new(DirSpool::open_mutant(queues, settings, self.mutant.of_spool(), false)?))
    }
}

fn disk(path: &Path) -> Result<RealDisk, SpoolFailure> {
    RealDisk::new(path).map_err(|e| SpoolFailure::Io(format!("open the spool: {e}")))
}

/// The state that a run takes over from the run before.
pub(crate) struct Past {
    pub(crate) model: Model,
    pub(crate) workload: Workload,
}

/// When the run was cut.
pub(crate) enum End {
    /// Before the recovery had ended.
    InRecovery,
    /// While transactions were submitted.
    UnderLoad,
}

/// Lives in a folder. An error is a broken promise; what fails once the power is gone is none.
pub(crate) fn live(
    past: &mut Past,
    subject: &Subject,
    folder: &Path,
    is_off: &dyn Fn() -> bool,
) -> Result<End, String> {
    let mut spool = match subject.open(folder) {
        Ok(spool) => spool,
        Err(_) if is_off() => return Ok(End::InRecovery),
        Err(failure) => return Err(format!("the spool does not open: {failure}")),
    };
    let mut found = Queue::new();
    let recovered = spool.recover(&mut |r| {
        found.insert(r.message.id.0, Live::recovered(&r.recipients, r.held.clone()));
    });
    let report = match recovered {
        _ if is_off() => return Ok(End::InRecovery),
        Ok(report) => report,
        Err(failure) => return Err(format!("no recovery: {failure}")),
    };
    if !report.corrupt.is_empty() {
        return Err(format!("nothing was damaged, but: {:?}", report.corrupt));
    }
    let ids: Vec<u64> = found.keys().copied().collect();
    past.model.settle(found, &report, true).map_err(|what| format!("{what}; {report:?}"))?;
    for id in ids {
        let compared = past.model.compare(&*spool, QueueId(id));
        if is_off() {
            return Ok(End::InRecovery);
        }
        compared?;
    }
    let shared = Mutex::new(past);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| load(&shared, &*spool));
        }
    });
    spool.close();
    Ok(End::UnderLoad)
}

fn lock<'a, 'b>(past: &'a Mutex<&'b mut Past>) -> MutexGuard<'a, &'b mut Past> {
    past.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Submits and waits, as a session does, until the spool fails.
fn load(past: &Mutex<&mut Past>, spool: &dyn Spool) {
    for _ in 0..STEPS {
        let stepped = {
            let mut guard = lock(past);
            let Past { model, workload } = &mut **guard;
            workload.step(spool, model)
        };
        let commit_seq = match stepped {
            Ok(Some(commit_seq)) => commit_seq,
            Ok(None) | Err(Refused::Busy | Refused::Full | Refused::TooLarge) => continue,
            Err(Refused::Poisoned) => return,
        };
        match wait(spool.durable(commit_seq)) {
            Ok(()) => lock(past).model.acknowledged(spool.shard(commit_seq), commit_seq),
            Err(_) => return,
        }
    }
}

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn wait(mut durable: Durable) -> Result<(), SpoolFailure> {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    loop {
        match durable.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(result) => return result,
            Poll::Pending => std::thread::park(),
        }
    }
}
