//! Deliveries on this machine: one recipient after another, into Maildirs, into files, or to programs.

use crate::{DeliverySettings, LeasedMessage, WorkSource, maildir, mbox, pipe, session::millis};
use bytes::Bytes;
use mail::{Attempt, Enhanced, ForwardPath, Message, Outcome, Part, Program, ReversePath};
use std::time::Instant;
use tokio::sync::mpsc;

/// The place of mail on this machine.
#[derive(Clone, Copy)]
pub(crate) enum Place<'a> {
    /// Maildirs, by this template.
    Maildir(&'a str),
    /// Files in the mbox format, by this template.
    Mbox(&'a str),
    /// A program.
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
}

/// A message on its way to one recipient.
pub(crate) struct Parcel<'a, J> {
    pub(crate) settings: &'a DeliverySettings,
    pub(crate) source: &'a J,
    pub(crate) message: &'a Message,
    pub(crate) recipient: &'a ForwardPath,
    /// The reverse-path of the copy for this recipient.
    pub(crate) sender: &'a ReversePath,
}

/// Delivers jobs, one after the other.
pub(crate) async fn serve<J: WorkSource>(place: Place<'_>, settings: &DeliverySettings, source: &J) {
    while let Some(lease) = source.next_lease() {
        let begun = Instant::now();
        let results = match source.message(&lease).await {
            Ok(message) => deliver(place, settings, source, &lease, &message).await,
            Err(outcome) => lease.recipients.iter().map(|index| (*index, outcome.clone())).collect(),
        };
        let attempt = Attempt {
            relay: place.relay().into(),
            queued_ms: lease.queued_ms,
            transfer_ms: millis(begun.elapsed()),
            ..Attempt::default()
        };
        source.complete(lease, results, &attempt);
    }
}

async fn deliver<J: WorkSource>(
    place: Place<'_>,
    settings: &DeliverySettings,
    source: &J,
    lease: &LeasedMessage,
    message: &Message,
) -> Vec<(u32, Outcome)> {
    let mut results = Vec::with_capacity(lease.recipients.len());
    for index in &lease.recipients {
        let recipient = &message.envelope.recipients[*index as usize];
        // An alias is no user.
        let is_alias = recipient.is_alias();
        let recipient = &recipient.path;
        let sender = message.envelope.reverse_path_of(*index);
        let parcel = Parcel { settings, source, message, recipient, sender };
        let outcome = match place {
            Place::Maildir(_) | Place::Mbox(_) if !is_alias && !source.is_local_user(recipient) => {
                Outcome::failed(Enhanced(5, 1, 1), format!("{recipient}: no such user here"))
            }
            Place::Maildir(template) => maildir::deliver(template, &parcel).await,
            Place::Mbox(template) => mbox::deliver(template, &parcel).await,
            Place::Program(program) => Box::pin(pipe::deliver(program, &parcel)).await,
        };
        results.push((*index, outcome));
    }
    results
}

impl<J: WorkSource> Parcel<'_, J> {
    /// Returns the fields that are put in front of the message.
    pub(crate) fn head(&self) -> String {
        let (from, to) = (self.sender, self.recipient.as_str());
        format!("Return-Path: <{from}>\nDelivered-To: {to}\n")
    }

    /// Sends the pieces of the content, and `None` behind the last. Ends early if nobody takes them.
    ///
    /// # Errors
    /// The content cannot be read; the pieces have no end.
    pub(crate) async fn send_pieces(&self, pieces: mpsc::Sender<Option<Bytes>>) -> Result<(), Outcome> {
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
