//! Expansions that the engine orders: aliases of a queued message whose look-up failed before.

use super::{Acceptor, outcome};
use crate::serve::{
    connection::unreadable,
    driver::Expansion,
    pipeline::{LOOKUP_TIMEOUT, View, expand},
};
use engine::{
    Event,
    accept::{Decisions, Facts, Source, Stage},
};
use mail::{
    Attempt, DsnDuty, Enhanced, Envelope, Message, Outcome, Part, ReceivedContent, Recipient, UnixMillis,
};
use smtp::server::replies;
use std::{sync::Arc, time::Instant};
use tokio::time::timeout;

impl Acceptor {
    /// Begins to make the expansions that the engine orders.
    pub(crate) fn begin_expansions(self: &Arc<Self>) {
        let Some(mut ordered) = self.driver.take_expansions() else { return };
        // The task must not keep the acceptor alive.
        let acceptor = Arc::downgrade(self);
        tokio::spawn(async move {
            while let Some(expansion) = ordered.recv().await {
                let Some(acceptor) = acceptor.upgrade() else { return };
                tokio::spawn(async move { acceptor.expand(expansion).await });
            }
        });
    }

    /// Expands recipients of a queued message. Those that take their place report for themselves.
    async fn expand(self: Arc<Self>, Expansion { connection, lease, message }: Expansion) {
        let begun = Instant::now();
        let message = match message {
            Some(message) => Ok(message),
            None => self.driver.read(lease.id).await.map_err(|failure| unreadable(&failure)),
        };
        let mut results = Vec::with_capacity(lease.recipients.as_slice().len());
        for index in lease.recipients.as_slice() {
            let outcome = match &message {
                Ok(message) => self.expand_queued(message, *index as usize).await,
                Err(outcome) => outcome.clone(),
            };
            results.push((*index, outcome));
        }
        let attempt = Attempt {
            relay: "aliases".into(),
            queued_ms: lease.queued_ms,
            transfer_ms: begun.elapsed().as_millis() as u64,
            dsn_duty: DsnDuty::NextHop,
            takes_deadline: true,
            ..Attempt::default()
        };
        let message = message.ok();
        self.driver.handle(Event::AttemptFinished { connection, lease, message, results, attempt });
    }

    /// Expands a recipient of a queued message whose expansion failed before, and accepts a message for those that take its
    /// place. It has the age of the queued one.
    async fn expand_queued(self: &Arc<Self>, message: &Message, index: usize) -> Outcome {
        let (config, facts) = (self.driver.current(), Facts::new(Source::Local { uid: 0 }));
        let recipient = message.envelope.recipients[index].clone();
        let recipient = Recipient { options: None, ..recipient };
        let mut envelope = Envelope { recipients: Vec::new(), ..message.envelope.clone() };
        let view = View::new(Stage::Rcpt, config.rules(), &facts).with_envelope(&envelope);
        let mut decisions = Decisions::default();
        let judged = expand(View { recipient: Some(&recipient), ..view }, &mut decisions);
        let replaced = match timeout(LOOKUP_TIMEOUT, judged).await {
            Ok(Ok(replaced)) => replaced,
            Ok(Err(reply)) if reply.is_transient() => return outcome(Outcome::deferred, &reply),
            Ok(Err(reply)) => return outcome(Outcome::failed, &reply),
            Err(_) => return outcome(Outcome::deferred, &replies::LOOKUP_TIMEOUT),
        };
        envelope.recipients.push(recipient);
        let content = match self.copied(message).await {
            Ok(content) => content,
            Err(outcome) => return outcome,
        };
        let content = match self.in_pieces(&envelope, content).await {
            Ok(content) => content,
            Err(reply) => return outcome(Outcome::deferred, &reply),
        };
        decisions.redirect(0, replaced);
        let id = self.driver.ids.next(UnixMillis::now().0);
        let finished = decisions.finish(id, message.arrived, message.origin.clone(), envelope, content);
        let reply = self.accept_in_task(config, finished).await;
        if reply.is_positive() {
            return Outcome::delivered(Enhanced(2, 0, 0), format!("expanded, queued as {id}"));
        }
        outcome(Outcome::deferred, &reply)
    }

    /// Returns the content of a queued message in memory.
    pub(super) async fn copied(&self, message: &Message) -> Result<ReceivedContent, Outcome> {
        let mut bytes = Vec::new();
        for part in message.content.parts() {
            match part {
                Part::Memory(piece) => bytes.extend_from_slice(piece),
                Part::Stored { chunk_id, .. } => {
                    let piece = self.driver.load(*chunk_id).await;
                    bytes.extend_from_slice(&piece.map_err(|failure| unreadable(&failure))?);
                }
            }
        }
        Ok(ReceivedContent::from_bytes(bytes, 0))
    }
}
