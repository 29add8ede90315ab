//! Tasks of several workers that wait for their commits. The commit thread wakes each worker once, however many
//! of its tasks wait: waking a task of another thread costs a system call, waking a task of the same thread costs none.
//! In the same way the first task that waits begins the commit for all that submit before the worker runs its flush task.

use crate::{CommitSeq, Spool, SpoolFailure};
use std::{
    collections::VecDeque,
    future::poll_fn,
    sync::{Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

/// The tasks that wait for commits, by worker and shard of the spool. A worker is a thread that runs tasks.
#[derive(Default)]
pub struct CommitWaiters(Vec<Vec<Waiters>>);

/// The tasks of one worker that wait for a shard.
#[derive(Default)]
struct Waiters {
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    /// In the order of their commit sequence numbers, or nearly so.
    tasks: VecDeque<(CommitSeq, Waker)>,
    /// Wakes the flush task, while no task waits.
    flush_task: Option<Waker>,
}

impl CommitWaiters {
    /// Makes the lists for so many workers and shards. [`CommitWaiters::run_flush_task`] has to run on each worker for
    /// each shard.
    pub fn new(worker_count: usize, shard_count: usize) -> Self {
        let shards = |_| (0..shard_count).map(|_| Waiters::default()).collect();
        Self((0..worker_count).map(shards).collect())
    }

    /// Waits as [`Spool::durable`] does, for a task of this worker. A task of another thread gives `None` and waits at the
    /// spool.
    ///
    /// # Errors
    /// As for [`Spool::durable`].
    pub async fn durable(
        &self,
        worker: Option<usize>,
        spool: &dyn Spool,
        commit_seq: CommitSeq,
    ) -> Result<(), SpoolFailure> {
        match worker.and_then(|worker| self.0.get(worker)) {
            Some(shards) => {
                poll_fn(|cx| shards[spool.shard(commit_seq)].poll_durable(spool, commit_seq, cx)).await
            }
            None => spool.durable(commit_seq).await,
        }
    }

    /// Has commits begun and wakes the tasks of a worker that wait for a shard; never ends. The runtime of the worker runs
    /// the flush task behind all tasks that became ready together with the first task that waits, so their commit is one.
    pub async fn run_flush_task(&self, worker: usize, shard: usize, spool: &dyn Spool) {
        let waiters = &self.0[worker][shard];
        loop {
            let first = poll_fn(|cx| waiters.poll_first(cx)).await;
            // Each task asks for the result itself.
            let _ = spool.durable(first).await;
            waiters.wake_durable(spool);
        }
    }
}

impl Waiters {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn poll_durable(
        &self,
        spool: &dyn Spool,
        commit_seq: CommitSeq,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), SpoolFailure>> {
        if let Some(result) = spool.poll_durable(commit_seq) {
            return Poll::Ready(result);
        }
        let mut waiting = self.lock();
        waiting.tasks.push_back((commit_seq, cx.waker().clone()));
        let flush_task = waiting.flush_task.take();
        drop(waiting);
        flush_task.into_iter().for_each(Waker::wake);
        Poll::Pending
    }

    /// Resolves to the commit that the task in front waits for; pending as long as no task waits.
    fn poll_first(&self, cx: &mut Context<'_>) -> Poll<CommitSeq> {
        let mut waiting = self.lock();
        match waiting.tasks.front() {
            Some((commit_seq, _)) => Poll::Ready(*commit_seq),
            None => {
                waiting.flush_task = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Wakes all tasks whose wait is over.
    fn wake_durable(&self, spool: &dyn Spool) {
        let mut waiting = self.lock();
        let mut over = Vec::with_capacity(waiting.tasks.len());
        while let Some((commit_seq, _)) = waiting.tasks.front() {
            if spool.poll_durable(*commit_seq).is_none() {
                break;
            }
            over.extend(waiting.tasks.pop_front().map(|(_, waker)| waker));
        }
        drop(waiting);
        over.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Entry, LogSettings, LogSpool};
    use mail::{Content, ContentTraits, Envelope, Message, QueueId, ReversePath, SharedMessage, UnixMillis};
    use std::{
        collections::BTreeSet,
        pin::{Pin, pin},
        sync::{Arc, Condvar},
        task::Wake,
    };

    fn accept(id: u64) -> Vec<Entry> {
        let envelope = Envelope::new(ReversePath::parse("a@b.test", false).unwrap());
        let content = Content::new(ContentTraits::default(), []);
        let message =
            Message { id: QueueId(id), arrived: UnixMillis(1), origin: "test".into(), envelope, content };
        vec![Entry::Accept(SharedMessage::new(message))]
    }

    fn log(dir: &std::path::Path) -> LogSpool {
        let mut log = LogSpool::open(dir, LogSettings::default()).unwrap();
        log.recover(&mut |_| {}).unwrap();
        log
    }

    /// The tasks that are ready, in the order in which they became ready.
    #[derive(Default)]
    struct Ready {
        tasks: Mutex<(VecDeque<usize>, BTreeSet<usize>)>,
        is_any: Condvar,
    }

    struct TaskWaker(Arc<Ready>, usize);

    impl Wake for TaskWaker {
        fn wake(self: Arc<Self>) {
            let mut ready = self.0.tasks.lock().unwrap();
            if ready.1.insert(self.1) {
                ready.0.push_back(self.1);
            }
            self.0.is_any.notify_one();
        }
    }

    /// Runs tasks on this thread until all but the first have ended.
    fn run_tasks(mut tasks: Vec<Pin<&mut dyn Future<Output = ()>>>) {
        let ready = Arc::new(Ready::default());
        let wakers: Vec<Waker> =
            (0..tasks.len()).map(|number| Arc::new(TaskWaker(ready.clone(), number)).into()).collect();
        wakers.iter().for_each(Waker::wake_by_ref);
        let mut running_count = tasks.len() - 1;
        while running_count > 0 {
            let idle = ready.tasks.lock().unwrap();
            let mut some = ready.is_any.wait_while(idle, |tasks| tasks.0.is_empty()).unwrap();
            let number = some.0.pop_front().unwrap();
            some.1.remove(&number);
            drop(some);
            let polled = tasks[number].as_mut().poll(&mut Context::from_waker(&wakers[number]));
            running_count -= usize::from(polled.is_ready());
        }
    }

    #[test]
    fn each_task_that_waits_is_woken_and_tasks_of_one_pass_share_a_commit() {
        let dir = tempfile::tempdir().unwrap();
        let spool = log(dir.path());
        let waiters = CommitWaiters::new(1, 1);
        let flush_task = pin!(waiters.run_flush_task(0, 0, &spool));
        let submit = async |id: u64| {
            let commit_seq = spool.submit(accept(id)).unwrap();
            waiters.durable(Some(0), &spool, commit_seq).await.unwrap();
        };
        let mut sessions: Vec<_> = (1..=20).map(|id| Box::pin(submit(id))).collect();
        let mut tasks: Vec<Pin<&mut dyn Future<Output = ()>>> = vec![flush_task];
        tasks
            .extend(sessions.iter_mut().map(|session| session.as_mut() as Pin<&mut dyn Future<Output = ()>>));
        run_tasks(tasks);
        let pressure = spool.pressure();
        assert_eq!((pressure.message_count, pressure.commit_count), (20, 1));
    }

    #[test]
    fn a_failure_reaches_each_task_that_waits() {
        let dir = tempfile::tempdir().unwrap();
        let spool = log(dir.path());
        let waiters = CommitWaiters::new(1, 1);
        let flush_task = pin!(waiters.run_flush_task(0, 0, &spool));
        let session = pin!(async {
            spool.close();
            assert!(waiters.durable(Some(0), &spool, CommitSeq(9)).await.is_err());
        });
        run_tasks(vec![flush_task, session]);
    }
}
