//! Where the sessions of one worker wait for their commits. The commit thread wakes each worker once,
//! however many of its sessions wait: waking a task of another thread costs a system call, waking one's
//! own costs none. In the same way the first that waits has the commit begun for all that come before
//! the worker finds time for it.

use super::workers;
use spool::{CommitSeq, Spool, SpoolFailure};
use std::{
    collections::VecDeque,
    future::poll_fn,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

/// One worker's for a shard of the spool.
#[derive(Default)]
struct Counter {
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    /// In the order of their commit numbers, or nearly so.
    sessions: VecDeque<(CommitSeq, Waker)>,
    /// The clerk's, while nobody waits.
    clerk: Option<Waker>,
}

/// All workers', by shard.
#[derive(Default)]
pub(crate) struct Counters(Vec<Vec<Counter>>);

impl Counters {
    /// One for each worker and shard; [`Counters::serve`] has to run on it.
    pub(crate) fn new(worker_count: usize, shard_count: usize) -> Self {
        let shards = |_| (0..shard_count).map(|_| Counter::default()).collect();
        Self((0..worker_count).map(shards).collect())
    }

    /// Waits as [`Spool::durable`] does.
    pub(crate) async fn durable(
        &self,
        spool: &Arc<dyn Spool>,
        commit_seq: CommitSeq,
    ) -> Result<(), SpoolFailure> {
        match workers::number().and_then(|number| self.0.get(number)) {
            Some(shards) => poll_fn(|cx| shards[spool.shard(commit_seq)].poll(spool, commit_seq, cx)).await,
            None => spool.durable(commit_seq).await,
        }
    }

    /// The clerk of a worker for a shard; never ends. It is behind all that came to the worker together with the
    /// first who waits, so that their commit is one.
    pub(crate) async fn serve(&self, number: usize, shard: usize, spool: &Arc<dyn Spool>) {
        let counter = &self.0[number][shard];
        loop {
            let first = poll_fn(|cx| counter.first(cx)).await;
            // What it came to each session asks for itself.
            let _ = spool.durable(first).await;
            counter.call(&**spool);
        }
    }
}

impl Counter {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn poll(
        &self,
        spool: &Arc<dyn Spool>,
        commit_seq: CommitSeq,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), SpoolFailure>> {
        if let Some(reached) = spool.poll_durable(commit_seq) {
            return Poll::Ready(reached);
        }
        let mut waiting = self.lock();
        waiting.sessions.push_back((commit_seq, cx.waker().clone()));
        let clerk = waiting.clerk.take();
        drop(waiting);
        clerk.into_iter().for_each(Waker::wake);
        Poll::Pending
    }

    fn first(&self, cx: &mut Context<'_>) -> Poll<CommitSeq> {
        let mut waiting = self.lock();
        match waiting.sessions.front() {
            Some((commit_seq, _)) => Poll::Ready(*commit_seq),
            None => {
                waiting.clerk = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Wakes all whose wait is over.
    fn call(&self, spool: &dyn Spool) {
        let mut waiting = self.lock();
        let mut over = Vec::with_capacity(waiting.sessions.len());
        while let Some((commit_seq, _)) = waiting.sessions.front() {
            if spool.poll_durable(*commit_seq).is_none() {
                break;
            }
            over.extend(waiting.sessions.pop_front().map(|(_, waker)| waker));
        }
        drop(waiting);
        over.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mail::{Content, ContentTraits, Envelope, Message, QueueId, ReversePath, SharedMessage, UnixMillis};
    use spool::{Entry, LogSettings, LogSpool};
    use tokio::task::{LocalSet, spawn_local};

    fn accept(id: u64) -> Vec<Entry> {
        let envelope = Envelope::new(ReversePath::parse("a@b.test", false).unwrap());
        let content = Content::new(ContentTraits::default(), []);
        let message =
            Message { id: QueueId(id), arrived: UnixMillis(1), origin: "test".into(), envelope, content };
        vec![Entry::Accept(SharedMessage::new(message))]
    }

    fn log(dir: &std::path::Path) -> Arc<dyn Spool> {
        let mut log = LogSpool::open(dir, LogSettings::default()).unwrap();
        log.recover(&mut |_| {}).unwrap();
        Arc::new(log)
    }

    /// Runs `work` as the first worker, whose clerk is there.
    fn on_a_worker<W: std::future::Future>(
        spool: &Arc<dyn Spool>,
        work: impl FnOnce(Arc<Counters>) -> W,
    ) -> W::Output {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (counters, spool) = (Arc::new(Counters::new(1, 1)), spool.clone());
        workers::set_number(0);
        LocalSet::new().block_on(&runtime, async move {
            let clerk = counters.clone();
            spawn_local(async move { clerk.serve(0, 0, &spool).await });
            work(counters).await
        })
    }

    #[test]
    fn everybody_who_waits_is_called_and_those_of_one_pass_share_a_commit() {
        let dir = tempfile::tempdir().unwrap();
        let spool = log(dir.path());
        on_a_worker(&spool, |counters| {
            let spool = spool.clone();
            async move {
                let sessions: Vec<_> = (1..=20)
                    .map(|id| {
                        let (counters, spool) = (counters.clone(), spool.clone());
                        spawn_local(async move {
                            let commit_seq = spool.submit(accept(id)).unwrap();
                            counters.durable(&spool, commit_seq).await.unwrap();
                        })
                    })
                    .collect();
                for session in sessions {
                    session.await.unwrap();
                }
            }
        });
        let pressure = spool.pressure();
        assert_eq!((pressure.message_count, pressure.commit_count), (20, 1));
    }

    #[test]
    fn a_failure_reaches_everybody_who_waits() {
        let dir = tempfile::tempdir().unwrap();
        let spool = log(dir.path());
        let failed = on_a_worker(&spool, |counters| {
            let spool = spool.clone();
            async move {
                spool.close();
                counters.durable(&spool, CommitSeq(9)).await
            }
        });
        assert!(failed.is_err());
    }
}
