//! The questions that may be asked at a time. Each has a socket or two, and whoever connects or has a domain can make the server ask:
//! a thousand questions that nobody answers must not take the files that the spool needs.

use std::time::Duration;
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::timeout,
};

/// A question about a client waits so long for its turn; then the name of the client is unknown for now.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(5);

/// How many questions of one kind are open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuestionCount {
    /// Questions that are asked now.
    pub used: usize,
    /// One more has to wait.
    pub max: usize,
}

/// Limits how many questions of one kind are open.
#[derive(Debug)]
pub(crate) struct Questions {
    permits: Semaphore,
    max: usize,
    timeout: Option<Duration>,
}

impl Questions {
    /// Questions on the way to a destination: each has a connection that waits for it, which others may have after a while.
    pub(crate) fn of_deliveries(max: usize) -> Self {
        Self { permits: Semaphore::new(max), max, timeout: None }
    }

    /// Questions about clients, who choose how long they take.
    pub(crate) fn of_clients(max: usize) -> Self {
        Self { timeout: Some(CLIENT_TIMEOUT), ..Self::of_deliveries(max) }
    }

    /// Waits until one more question may be asked.
    ///
    /// # Errors
    /// Too many are asked, in words.
    pub(crate) async fn begin(&self) -> Result<SemaphorePermit<'_>, String> {
        let permit = self.permits.acquire();
        let permit = match self.timeout {
            Some(limit) => timeout(limit, permit).await.map_err(|_| "too many questions at a time")?,
            None => permit.await,
        };
        permit.map_err(|e| e.to_string())
    }

    pub(crate) fn count(&self) -> QuestionCount {
        QuestionCount { used: self.max - self.permits.available_permits(), max: self.max }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn questions_about_clients_wait_for_their_turn_but_not_for_long() {
        let questions = Questions::of_clients(1);
        let first = questions.begin().await.unwrap();
        assert_eq!(questions.count(), QuestionCount { used: 1, max: 1 });
        assert_eq!(questions.begin().await.unwrap_err(), "too many questions at a time");
        drop(first);
        assert!(questions.begin().await.is_ok());
        let deliveries = Questions::of_deliveries(1);
        let first = deliveries.begin().await.unwrap();
        let later = async {
            tokio::time::sleep(CLIENT_TIMEOUT * 10).await;
            drop(first);
        };
        assert!(tokio::join!(deliveries.begin(), later).0.is_ok());
    }
}
