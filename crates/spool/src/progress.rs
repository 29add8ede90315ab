//! How far commits have come, and who waits for them.

use crate::{Durable, Failed, SpoolFailure, Ticket};
use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
};

/// Shared by an engine's commit thread and all who wait.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    durable: AtomicU64,
    failure: OnceLock<SpoolFailure>,
    waiting: Mutex<Vec<(Ticket, Waker)>>,
}

impl Progress {
    /// Everything up to `ticket` is durable.
    pub(crate) fn publish(&self, ticket: Ticket) {
        self.durable.store(ticket.0, Ordering::Release);
        let mut due = Vec::new();
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain_mut(|(wanted, waker)| {
            let is_due = *wanted <= ticket;
            if is_due {
                due.push(std::mem::replace(waker, Waker::noop().clone()));
            }
            !is_due
        });
        drop(waiting);
        due.into_iter().for_each(Waker::wake);
    }

    /// Nothing more will become durable.
    pub(crate) fn fail(&self, failure: SpoolFailure) {
        let _ = self.failure.set(failure);
        let waiting = std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        waiting.into_iter().for_each(|(_, waker)| waker.wake());
    }

    /// What a wait for it would end with, if it would at once.
    pub(crate) fn look(&self, ticket: Ticket) -> Option<Result<(), SpoolFailure>> {
        if self.durable.load(Ordering::Acquire) >= ticket.0 {
            return Some(Ok(()));
        }
        self.failure.get().map(|failure| Err(failure.clone()))
    }

    /// For threads of our own.
    pub(crate) fn wait_blocking(self: &Arc<Self>, ticket: Ticket) -> Result<(), SpoolFailure> {
        struct Unpark(std::thread::Thread);
        impl std::task::Wake for Unpark {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut wait = self.wait(ticket);
        loop {
            match wait.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(result) => return result,
                Poll::Pending => std::thread::park(),
            }
        }
    }

    pub(crate) fn wait(self: &Arc<Self>, ticket: Ticket) -> Durable {
        Box::pin(Wait { progress: self.clone(), ticket })
    }

    /// Resolves to the failure, once there is one.
    pub(crate) fn wait_for_failure(self: &Arc<Self>) -> Failed {
        // No commit has this ticket, so only a failure ends the wait.
        let wait = self.wait(Ticket(u64::MAX));
        Box::pin(async move {
            match wait.await {
                Err(failure) => failure,
                Ok(()) => std::future::pending().await,
            }
        })
    }
}

struct Wait {
    progress: Arc<Progress>,
    ticket: Ticket,
}

impl Future for Wait {
    type Output = Result<(), SpoolFailure>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(result) = self.progress.look(self.ticket) {
            return Poll::Ready(result);
        }
        let mut waiting = self.progress.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        // Published between the look and the lock?
        if let Some(result) = self.progress.look(self.ticket) {
            return Poll::Ready(result);
        }
        waiting.push((self.ticket, cx.waker().clone()));
        Poll::Pending
    }
}
