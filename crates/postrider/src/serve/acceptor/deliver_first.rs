//! `deliver-first`: the client gets its 250 when the next hop has the message, without a write, or when the message is stored
//! because the next hop does not take it in time.

use super::{Acceptor, LoggedDecisions};
use crate::serve::{driver::Driver, snapshot::ConfigSnapshot, unstored::Settled};
use mail::{Enhanced, Part, QueueId, Reply, SharedMessage};
use smtp::server::replies;
use std::time::Instant;
use tokio::time::timeout;

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
            Err(_) => {
                let store = || driver.unstored.store(&*driver.spool, id);
                if let Err(refused) = self.with_deadline(store).await {
                    return Self::refusal(refused);
                }
                settled.await
            }
        };
        drop(at_end);
        match settled {
            Ok(Settled::Delivered) => Reply::new(250, Enhanced(2, 0, 0), format!("Ok: delivered as {id}")),
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
}
