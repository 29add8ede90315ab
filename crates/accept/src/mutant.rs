//! Rules broken on purpose: the simulator's tests must notice each of them. In no release.

use crate::{acceptor::Acceptor, acceptor::SessionContext, check::View, intake::Intake};
use inbound::Answer;
use mail::{Envelope, Recipient, Reply};
use policy::Stage;
use smtp::server::replies;

/// A rule that the pipeline breaks on purpose: the simulator has to notice each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mutant {
    /// The pipeline as it is.
    #[default]
    None,
    /// A recipient that a check refused gets the message.
    KeepRefused,
    /// What checks decided of a recipient stays when a later check refuses it.
    KeepVerdicts,
    /// The edits of the header are applied twice.
    ApplyTwice,
    /// The content is judged by the configuration as it is now, and not by that of the transaction.
    FollowReload,
    /// A client is answered 250 before its message is durable.
    AnswerEarly,
    /// A message is queued although its client was told to try again.
    RefuseStored,
    /// Content of messages that are not accepted stays in the spool.
    KeepChunks,
}

impl Mutant {
    /// Each that breaks a rule.
    pub const ALL: [Self; 7] = [
        Self::KeepRefused,
        Self::KeepVerdicts,
        Self::ApplyTwice,
        Self::FollowReload,
        Self::AnswerEarly,
        Self::RefuseStored,
        Self::KeepChunks,
    ];
}

impl<I: Intake> Acceptor<I> {
    /// Breaks a rule from now on.
    pub fn set_mutant(&mut self, mutant: Mutant) {
        self.mutant = mutant;
    }

    /// Judges a recipient, and keeps one that is refused.
    pub(crate) fn keep_refused<'a>(
        &'a self,
        context: &'a mut SessionContext,
        envelope: &'a Envelope,
        recipient: &'a Recipient,
    ) -> Answer<'a, Reply> {
        Answer::later(async move {
            let judged = context
                .run(Stage::Rcpt, |view| View { recipient: Some(recipient), ..view.with_envelope(envelope) });
            match judged.wait().await {
                Ok(()) => replies::RECIPIENT_OK,
                Err(reply) => {
                    context.decisions.add_recipients(vec![recipient.clone()]);
                    reply
                }
            }
        })
    }
}
