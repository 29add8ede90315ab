//! Late expansion: aliases of a queued message whose look-up failed before.

use crate::{
    acceptor::{Acceptor, outcome},
    check::{LOOKUP_TIMEOUT, View},
    checks::addresses::expand,
    decisions::Decisions,
    intake::Intake,
};
use mail::{Enhanced, Envelope, Message, Outcome, Part, ReceivedContent, Recipient};
use policy::{SessionFacts, Source, Stage};
use smtp::server::replies;
use spool::SpoolFailure;
use std::sync::Arc;
use tokio::time::timeout;

/// Returns the outcome for a queued message that the spool does not give back. It may be able to after a restart or a repair.
pub fn unreadable(failure: &SpoolFailure) -> Outcome {
    Outcome::deferred(Enhanced(4, 3, 0), format!("read the message from the spool: {failure}"))
}

impl<I: Intake> Acceptor<I> {
    /// Expands a recipient of a queued message whose expansion failed before, and accepts a message for those that take its
    /// place. It has the age of the queued one.
    pub async fn expand_queued(self: &Arc<Self>, message: &Message, index: usize) -> Outcome {
        let (config, facts) = (self.intake.config(), SessionFacts::new(Source::Local { uid: 0 }));
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
            Err(failure) => return unreadable(&failure),
        };
        let content = match self.in_pieces(&envelope, content).await {
            Ok(content) => content,
            Err(reply) => return outcome(Outcome::deferred, &reply),
        };
        decisions.redirect(0, replaced);
        let id = self.ids.next(self.intake.now().0);
        let finished = decisions.finish(id, message.arrived, message.origin.clone(), envelope, content);
        let reply = self.accept_in_task(config, finished).await;
        if reply.is_positive() {
            return Outcome::delivered(Enhanced(2, 0, 0), format!("expanded, queued as {id}"));
        }
        outcome(Outcome::deferred, &reply)
    }

    /// Returns the content of a queued message in memory.
    ///
    /// # Errors
    /// The spool does not have it.
    pub(super) async fn copied(&self, message: &Message) -> Result<ReceivedContent, SpoolFailure> {
        let mut bytes = Vec::new();
        for part in message.content.parts() {
            match part {
                Part::Memory(piece) => bytes.extend_from_slice(piece),
                Part::Stored { chunk_id, .. } => {
                    bytes.extend_from_slice(&self.intake.load(*chunk_id).await?);
                }
            }
        }
        Ok(ReceivedContent::from_bytes(bytes, 0))
    }
}
