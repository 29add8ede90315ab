//! The message that takes the place of recipients of a queued one, as an operator redirects them.

use crate::{
    accept_config::AcceptConfig,
    acceptor::Acceptor,
    check::{LOOKUP_TIMEOUT, View},
    checks::addresses::expand,
    decisions::{Accepted, Decisions},
    intake::Intake,
    verp,
};
use mail::{Envelope, Message, Reply, SharedMessage};
use policy::{SessionFacts, Source, Stage};
use smtp::server::replies;
use spool::SpoolFailure;
use tokio::time::timeout;

/// A message that takes the place of a queued one, not stored yet.
pub struct Replacement {
    /// For whoever takes the recipients' place.
    pub message: Message,
    /// Reports on its expansion, for whoever asked for them.
    pub reports: Vec<SharedMessage>,
}

/// Why there is no such message.
pub enum NotReplaced {
    /// The recipient is refused, or cannot be looked up now.
    Refused(Reply),
    /// Aliases, rules or filters throw away the whole message.
    Discarded,
    /// There is no room for a message.
    NoRoom(Reply),
    /// The content of the queued message could not be read from the spool.
    Unreadable(SpoolFailure),
}

impl<I: Intake> Acceptor<I> {
    /// Makes a message with the content of a queued one. With `is_expanded`, its only recipient is looked up as a client's
    /// would be. What was stored of the content belongs to the caller.
    ///
    /// # Errors
    /// See [`NotReplaced`].
    pub async fn replacement(
        &self,
        config: &AcceptConfig,
        message: &Message,
        envelope: Envelope,
        is_expanded: bool,
    ) -> Result<Replacement, NotReplaced> {
        self.room().map_err(NotReplaced::NoRoom)?;
        let mut decisions = Decisions::default();
        if is_expanded {
            let facts = SessionFacts::new(Source::Local { uid: 0 });
            let given = Envelope { recipients: Vec::new(), ..envelope.clone() };
            let view = View::new(Stage::Rcpt, config.rules(), &facts).with_envelope(&given);
            let judged = expand(View { recipient: envelope.recipients.first(), ..view }, &mut decisions);
            let replaced = timeout(LOOKUP_TIMEOUT, judged).await.unwrap_or(Err(replies::LOOKUP_TIMEOUT));
            decisions.redirect(0, replaced.map_err(NotReplaced::Refused)?);
        }
        let content = self.copied(message).await.map_err(NotReplaced::Unreadable)?;
        let content = self.in_pieces(&envelope, content).await.map_err(NotReplaced::NoRoom)?;
        let id = self.ids.next(self.intake.now().0);
        let finished = decisions.finish(id, message.arrived, message.origin.clone(), envelope, content);
        let Accepted::Message { mut message, expanded, .. } = finished else {
            return Err(NotReplaced::Discarded);
        };
        if is_expanded {
            verp::apply(&config.settings.addresses, &mut message.envelope);
        }
        let reports = match expanded {
            Some(expanded) => Box::pin(self.reports_on(config, &expanded, &message)).await,
            None => Vec::new(),
        };
        Ok(Replacement { message, reports })
    }
}
