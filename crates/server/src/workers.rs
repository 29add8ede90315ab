//! One thread and one runtime a core. Deliveries stay where they began, and sessions while that worker
//! has time for them: no task is stolen, and a commit wakes each worker at most once, however many of
//! its sessions wait for it.

use machine::cpu::{Processors, ThreadTime};
use std::{
    cell::{Cell, RefCell},
    io,
    sync::{Mutex, PoisonError},
    thread::JoinHandle,
    time::Duration,
};
use tokio::{
    runtime::{Builder, Handle, Runtime},
    sync::oneshot,
};

/// A timer that is nearer than all others costs a system call when it is set. Sessions set theirs for
/// minutes: one that is always nearer spares them that.
const BEAT: Duration = Duration::from_secs(5);
/// The time that blocking work on a dead disk may delay the end.
const END_GRACE: Duration = Duration::from_secs(1);

thread_local! {
    static NUMBER: Cell<Option<usize>> = const { Cell::new(None) };
    static TIME: RefCell<ThreadTime> = RefCell::default();
}

/// Tells a worker whether to share its sessions: it has hardly any time left, and a processor is free.
/// Without one, another thread would only take turns with it.
pub(super) fn sharing() -> impl Fn() -> bool {
    let processors = Mutex::new(Processors::new());
    move || {
        TIME.with_borrow_mut(ThreadTime::is_saturated)
            && processors.lock().unwrap_or_else(PoisonError::into_inner).has_idle_cpu()
    }
}

/// Returns the number of the worker that runs the caller; none on other threads.
pub(super) fn number() -> Option<usize> {
    NUMBER.get()
}

fn set_number(number: usize) {
    NUMBER.set(Some(number));
}

/// All workers; the first one is the caller's thread.
pub(super) struct Workers {
    main: Runtime,
    others: Vec<Other>,
}

struct Other {
    handle: Handle,
    thread: JoinHandle<()>,
    /// Dropped to end it.
    running: oneshot::Sender<()>,
}

impl Workers {
    /// Makes the runtime of the caller's thread. No thread is started.
    pub(super) fn new() -> io::Result<Self> {
        set_number(0);
        Ok(Self { main: Builder::new_current_thread().enable_all().build()?, others: Vec::new() })
    }

    /// Starts the others of this many workers; 0 stands for one for each core.
    pub(super) fn start_others(&mut self, count: usize) -> io::Result<()> {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let count = if count == 0 { cores() } else { count };
        self.others = (1..count).map(Other::start).collect::<io::Result<_>>()?;
        Ok(())
    }

    /// Returns the runtime for everything except sessions.
    pub(super) fn main(&self) -> &Runtime {
        &self.main
    }

    pub(super) fn handles(&self) -> Vec<Handle> {
        let others = self.others.iter().map(|other| other.handle.clone());
        std::iter::once(self.main.handle().clone()).chain(others).collect()
    }

    /// Ends them, whatever still runs.
    pub(super) fn end(self) {
        for Other { thread, running, .. } in self.others {
            drop(running);
            // A worker that panicked has said so.
            let _ = thread.join();
        }
        self.main.shutdown_timeout(END_GRACE);
    }
}

impl Other {
    fn start(number: usize) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (handle, (running, ended)) = (runtime.handle().clone(), oneshot::channel::<()>());
        let work = move || {
            set_number(number);
            runtime.block_on(async {
                let beat = async {
                    loop {
                        tokio::time::sleep(BEAT).await;
                    }
                };
                tokio::select! {
                    _ = ended => {}
                    () = beat => {}
                }
            });
            runtime.shutdown_timeout(END_GRACE);
        };
        let thread = std::thread::Builder::new().name(format!("worker-{number}")).spawn(work)?;
        Ok(Self { handle, thread, running })
    }
}
