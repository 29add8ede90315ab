//! Deliveries on this machine: one recipient after another, into Maildirs, into files, or to programs.

use crate::{
    DeliverySettings, LeasedMessage, WorkSource,
    helper::{Helper, Request},
    maildir::{self, Links, PIECES_AHEAD},
    mbox,
    recipient_permits::{PermitLimits, RecipientPermits},
    session::millis,
};
use bytes::Bytes;
use mail::{Attempt, Enhanced, ForwardPath, Message, Outcome, Part, Program, QueueId, ReversePath};
use rewrite::Separator;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Where mail on this machine goes. Templates have `{local}` and `{domain}`.
#[derive(Clone, Copy)]
pub(crate) enum Place<'a> {
    Maildir(&'a str),
    /// Files in the mbox format, by this template.
    Mbox(&'a str),
    Program(&'a Program),
}

impl Place<'_> {
    fn relay(&self) -> &'static str {
        match self {
            Self::Maildir(_) => "maildir",
            Self::Mbox(_) => "mbox",
            Self::Program(_) => "pipe",
        }
    }

    fn limits(&self) -> PermitLimits {
        match self {
            Self::Maildir(_) | Self::Mbox(_) => PermitLimits::FILES,
            Self::Program(_) => PermitLimits::PROGRAMS,
        }
    }

    /// Returns the outcome of a delivery that does not begin, because those before it have not ended for a while.
    fn busy(&self, silence: Duration) -> Outcome {
        let place = match self {
            Self::Maildir(_) | Self::Mbox(_) => "mailbox",
            Self::Program(_) => "program for this recipient",
        };
        let text = format!(
            "other deliveries to this {place} are under way, and none has ended for {}s",
            silence.as_secs()
        );
        Outcome::deferred(Enhanced(4, 3, 0), text)
    }
}

/// The settings of deliveries on this machine.
#[derive(Debug, Clone)]
pub(crate) struct LocalSettings<'a> {
    /// The name in the names of files in Maildirs.
    pub(crate) hello: &'a str,
    pub(crate) links: Links,
    /// Splits the local part into user and detail; `None` if addresses have no details.
    pub(crate) separator: Option<Separator>,
}

/// Gives a message piece by piece, so that none is in memory as a whole.
pub(crate) trait ContentSource: Sync {
    /// Sends the pieces of the content, and `None` behind the last. Ends early if nobody takes them.
    ///
    /// # Errors
    /// The content cannot be read; the pieces have no end.
    fn send_pieces(
        &self,
        pieces: mpsc::Sender<Option<Bytes>>,
    ) -> impl Future<Output = Result<(), Outcome>> + Send;
}

/// The content of a message that is in memory, or in the spool.
pub(crate) struct Queued<'a, J> {
    pub(crate) source: &'a J,
    pub(crate) message: &'a Message,
}

impl<J: WorkSource> ContentSource for Queued<'_, J> {
    async fn send_pieces(&self, pieces: mpsc::Sender<Option<Bytes>>) -> Result<(), Outcome> {
        for part in self.message.content.parts() {
            let bytes = match part {
                Part::Memory(bytes) => bytes.clone(),
                Part::Stored { chunk_id, .. } => self.source.chunk(*chunk_id).await?,
            };
            // The writer has failed, and returns the reason.
            if pieces.send(Some(bytes)).await.is_err() {
                return Ok(());
            }
        }
        let _ = pieces.send(None).await;
        Ok(())
    }
}

/// One recipient's copy of a message, ready to be delivered on this machine.
pub(crate) struct Parcel<'a, S> {
    pub(crate) settings: LocalSettings<'a>,
    pub(crate) content: S,
    pub(crate) id: QueueId,
    pub(crate) recipient: &'a ForwardPath,
    /// The reverse-path of the copy for this recipient.
    pub(crate) sender: &'a ReversePath,
}

/// The connection of a destination on this machine.
pub(crate) struct LocalDelivery<'a> {
    pub(crate) place: Place<'a>,
    /// The name of the route, if the mail is written as another user: then the helper does so.
    pub(crate) as_user: Option<&'a str>,
    pub(crate) settings: &'a DeliverySettings,
    pub(crate) helper: Option<&'a Helper>,
    pub(crate) permits: &'a RecipientPermits,
}

impl LocalDelivery<'_> {
    /// Delivers jobs, one after the other.
    pub(crate) async fn serve<J: WorkSource>(&self, source: &J) {
        source.progress().turn_to(self.place.relay(), "");
        while let Some(lease) = source.next_lease() {
            let begun = Instant::now();
            let results = match source.message(&lease).await {
                Ok(message) => self.deliver(source, &lease, &message).await,
                Err(outcome) => lease.recipients.iter().map(|index| (*index, outcome.clone())).collect(),
            };
            let attempt = Attempt {
                relay: self.place.relay().into(),
                queued_ms: lease.queued_ms,
                transfer_ms: millis(begun.elapsed()),
                ..Attempt::default()
            };
            source.complete(lease, results, &attempt);
        }
    }

    async fn deliver<J: WorkSource>(
        &self,
        source: &J,
        lease: &LeasedMessage,
        message: &Message,
    ) -> Vec<(u32, Outcome)> {
        let mut results = Vec::with_capacity(lease.recipients.len());
        let links = if self.settings.follow_symlinks { Links::Follow } else { Links::OfOperator };
        for index in &lease.recipients {
            let recipient = &message.envelope.recipients[*index as usize];
            // An alias is not a user.
            let is_alias = recipient.is_alias();
            let recipient = &recipient.path;
            let sender = message.envelope.reverse_path_of(*index);
            let settings =
                LocalSettings { hello: &self.settings.hello, links, separator: self.settings.separator };
            let content = Queued { source, message };
            let parcel = Parcel { settings, content, id: message.id, recipient, sender };
            let is_missing = || !is_alias && !source.is_local_user(recipient);
            let key = format!("{} {}", self.place.relay(), recipient.as_str().to_lowercase());
            let permit = match self.permits.acquire(&key, self.place.limits()).await {
                Ok(permit) => permit,
                Err(silence) => {
                    results.push((*index, self.place.busy(silence)));
                    continue;
                }
            };
            let outcome = match self.place {
                Place::Maildir(_) | Place::Mbox(_) if is_missing() => {
                    Outcome::failed(Enhanced(5, 1, 1), format!("{recipient}: no such user here"))
                }
                Place::Maildir(template) if self.as_user.is_none() => {
                    maildir::deliver(template, &parcel).await
                }
                Place::Mbox(template) if self.as_user.is_none() => mbox::deliver(template, &parcel).await,
                place => Box::pin(self.by_helper(place, &parcel)).await,
            };
            drop(permit);
            results.push((*index, outcome));
        }
        results
    }

    async fn by_helper<S: ContentSource>(&self, place: Place<'_>, parcel: &Parcel<'_, S>) -> Outcome {
        let Some(helper) = self.helper else {
            let text = "there is no delivery helper: restart the daemon";
            return Outcome::deferred(Enhanced(4, 3, 5), text);
        };
        let request = Request::new(place, self.as_user, parcel);
        let (pieces, inlet) = mpsc::channel(PIECES_AHEAD);
        let (sent, outcome) =
            tokio::join!(parcel.content.send_pieces(pieces), helper.deliver(&request, inlet));
        sent.err().unwrap_or(outcome)
    }
}

impl<S> Parcel<'_, S> {
    /// Returns the fields that are put in front of the message.
    pub(crate) fn head(&self) -> String {
        let (from, to) = (self.sender, self.recipient.as_str());
        format!("Return-Path: <{from}>\nDelivered-To: {to}\n")
    }
}
