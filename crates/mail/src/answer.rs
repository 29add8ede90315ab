//! An answer that may be there at once: look-ups in memory allocate nothing, others are awaited.

use std::{future::Future, pin::Pin};

/// An answer, now or later. The caller sets a deadline when it waits, and may drop the future at any time.
pub enum Answer<'a, T> {
    /// Known at once: the caller need not await anything.
    Ready(T),
    /// Resolves to the answer.
    Pending(Pin<Box<dyn Future<Output = T> + Send + 'a>>),
}

impl<T> std::fmt::Debug for Answer<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Ready(_) => "Ready",
            Self::Pending(_) => "Pending",
        })
    }
}

impl<'a, T> Answer<'a, T> {
    /// Boxes a future that resolves to the answer.
    pub fn later(future: impl Future<Output = T> + Send + 'a) -> Self {
        Self::Pending(Box::pin(future))
    }

    /// Returns at once if the answer is ready. Dropping the future gives up the question.
    pub async fn wait(self) -> T {
        match self {
            Self::Ready(answer) => answer,
            Self::Pending(answer) => answer.await,
        }
    }

    /// Changes the answer, when it is there.
    pub fn map<U: 'a>(self, change: impl FnOnce(T) -> U + Send + 'a) -> Answer<'a, U>
    where
        T: 'a,
    {
        match self {
            Self::Ready(answer) => Answer::Ready(change(answer)),
            Self::Pending(answer) => Answer::later(async move { change(answer.await) }),
        }
    }
}
