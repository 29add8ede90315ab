//! `deliver-first`: the client gets its 250 when the next hop has the message, without a write, or when the message is stored
//! because the next hop does not take it in time.

use super::{Acceptor, LoggedDecisions};
use crate::serve::{driver::Driver, snapshot::ConfigSnapshot, unstored::Settled};
use engine::Command;
use mail::{Enhanced, Part, QueueId, Reply, SharedMessage};
use queue::CancelAs;
use smtp::server::replies;
use spool::Refused;
use std::time::{Duration, Instant};
use tokio::{
    sync::oneshot::{self, error::RecvError},
    time::timeout,
};

/// A spool that refuses a message is asked again after this, while the next hop may still answer.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// Stores a queued message when its session ends before it is settled.
struct StoreAtEnd<'a> {
    driver: &'a Driver,
    id: QueueId,
}

impl Drop for StoreAtEnd<'_> {
    fn drop(&mut self) {
        if let Err(refused) = self.driver.unstored.store(&*self.driver.spool, self.id) {
            tracing::error!("{}: it stays in memory until it is delivered: {refused}", self.id);
        }
    }
}

impl Acceptor {
    /// Returns whether a message is offered to its next hops before it is stored. Large content is in the spool already, and
    /// what is stored with the message has to be stored now.
    pub(super) fn delivers_first(
        config: &ConfigSnapshot,
        message: &SharedMessage,
        logged: &LoggedDecisions,
    ) -> bool {
        config.routes.delivers_first(&message.envelope)
            && logged.held.is_none()
            && logged.rest.is_empty()
            && logged.reports.is_empty()
            && message.content.parts().iter().all(|part| matches!(part, Part::Memory(_)))
    }

    /// Queues a message, and returns the reply when its next hop has it or when it is stored.
    pub(super) async fn deliver_first(
        &self,
        config: &ConfigSnapshot,
        message: SharedMessage,
        logged: LoggedDecisions,
        begun: Instant,
    ) -> Reply {
        let (id, driver) = (message.id, &self.driver);
        let mut settled = driver.unstored.keep(message.clone());
        let at_end = StoreAtEnd { driver, id };
        logged.accept(driver, message, false);
        let in_time = timeout(config.settings.spool.deliver_first_timeout, &mut settled).await;
        let settled = match in_time {
            Ok(settled) => settled,
            Err(_) => match self.store_or_settle(id, &mut settled).await {
                Ok(settled) => settled,
                Err(refused) => {
                    self.forgo(id);
                    return Self::refusal(refused);
                }
            },
        };
        drop(at_end);
        match settled {
            Ok(Settled::Delivered) => Reply::new(250, Enhanced(2, 0, 0), format!("Ok: delivered as {id}")),
            Ok(Settled::Deleted) => super::queued_as(id),
            Ok(Settled::Submitted(commit_seq)) => match self.stored(commit_seq).await {
                Ok(Ok(())) => {
                    driver.accept_latency.record(begun.elapsed());
                    super::queued_as(id)
                }
                Ok(Err(failure)) => {
                    driver.spool_failed(&failure);
                    replies::LOCAL_ERROR
                }
                Err(reply) => {
                    self.finish_late(commit_seq, id, begun, |_| {});
                    reply
                }
            },
            Err(_) => unreachable!("a message that is kept is settled"),
        }
    }

    /// Submits a message, or learns what its next hop says meanwhile, for as long as a client waits for a commit.
    async fn store_or_settle(
        &self,
        id: QueueId,
        settled: &mut oneshot::Receiver<Settled>,
    ) -> Result<Result<Settled, RecvError>, Refused> {
        let until = Instant::now() + self.commit_timeout();
        loop {
            // What is submitted is settled.
            let refused = self.driver.unstored.store(&*self.driver.spool, id).err();
            match (timeout(ASK_AGAIN, &mut *settled).await, refused) {
                (Ok(settled), _) => return Ok(settled),
                (Err(_), Some(refused)) if Instant::now() >= until || refused == Refused::Poisoned => {
                    return Err(refused);
                }
                (Err(_), _) => {}
            }
        }
    }

    /// Deletes a message whose client is told to send it again. An attempt that is under way goes on.
    fn forgo(&self, id: QueueId) {
        let reason = Some("it could not be stored, and its client was told to try again".into());
        let (recipients, cancel_as) = (None, CancelAs::Delete);
        // Nobody waits for the answer.
        drop(self.driver.request(Command::Cancel { id, recipients, cancel_as, reason }));
    }
}
