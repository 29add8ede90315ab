//! `deliver-first`: the client gets its 250 when the next hop has the message, without a write, or when the message is stored
//! because the next hop does not take it in time.

use crate::{
    accept_config::AcceptConfig,
    acceptor::{Acceptor, LoggedDecisions, queued_as},
    intake::Intake,
    unstored::{Settled, UnstoredMessages},
};
use mail::{Enhanced, Part, QueueId, Reply, SharedMessage};
use smtp::server::replies;
use spool::{Refused, Spool};
use std::time::Duration;
use tokio::{
    sync::oneshot::{self, error::RecvError},
    time::{Instant, timeout},
};

/// A spool that refuses a message is asked again after this, while the next hop may still answer.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// Stores a queued message when its session ends before it is settled.
struct StoreAtEnd<'a> {
    unstored: &'a UnstoredMessages,
    spool: &'a dyn Spool,
    id: QueueId,
}

impl Drop for StoreAtEnd<'_> {
    fn drop(&mut self) {
        if let Err(refused) = self.unstored.store(self.spool, self.id) {
            tracing::error!("{}: it stays in memory until it is delivered: {refused}", self.id);
        }
    }
}

impl<I: Intake> Acceptor<I> {
    /// Returns whether a message is offered to its next hops before it is stored. Large content is in the spool already, and
    /// what is stored with the message has to be stored now.
    pub(super) fn delivers_first(
        config: &AcceptConfig,
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
        config: &AcceptConfig,
        message: SharedMessage,
        logged: LoggedDecisions,
        begun: Instant,
    ) -> Reply {
        let (id, unstored) = (message.id, self.intake.unstored());
        let mut settled = unstored.keep(message.clone());
        let at_end = StoreAtEnd { unstored, spool: &*self.spool, id };
        logged.accept(&self.intake, message, false);
        let in_time = timeout(config.settings.spool.deliver_first_timeout, &mut settled).await;
        let settled = match in_time {
            Ok(settled) => settled,
            Err(_) => match self.store_or_settle(id, &mut settled).await {
                Ok(settled) => settled,
                Err(refused) => {
                    self.intake.forgo(id, "it could not be stored, and its client was told to try again");
                    return Self::refusal(refused);
                }
            },
        };
        drop(at_end);
        match settled {
            Ok(Settled::Delivered) => Reply::new(250, Enhanced(2, 0, 0), format!("Ok: delivered as {id}")),
            Ok(Settled::Deleted) => queued_as(id),
            Ok(Settled::Submitted(commit_seq)) => match self.stored(commit_seq).await {
                Ok(Ok(())) => {
                    self.latency.record(begun.elapsed());
                    queued_as(id)
                }
                Ok(Err(failure)) => {
                    self.intake.spool_failed(Some(&failure));
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
            let refused = self.intake.unstored().store(&*self.spool, id).err();
            match (timeout(ASK_AGAIN, &mut *settled).await, refused) {
                (Ok(settled), _) => return Ok(settled),
                (Err(_), Some(refused)) if Instant::now() >= until || refused == Refused::Poisoned => {
                    return Err(refused);
                }
                (Err(_), _) => {}
            }
        }
    }
}
