//! A message from one spool to another, whatever their engines.

use crate::{Entry, RecipientState, Recovered, Refused, Spool, SpoolFailure, Ticket};
use mail::{Content, Message, Part, QueueId, SharedMessage};

/// Hands a message of `from` to `to`, with its content and what recovery said of it.
/// Once the ticket is durable in `to`, and not before, it may be ended in `from`: until then a crash
/// leaves it in one of the two at least. `Ok(Err(Refused::Busy))`: wait for an earlier ticket, then again.
///
/// # Errors
/// When the message cannot be read.
pub fn carry(
    from: &dyn Spool,
    id: QueueId,
    recipients: &[RecipientState],
    held: bool,
    to: &dyn Spool,
) -> Result<Result<Ticket, Refused>, SpoolFailure> {
    let message = from.read(id)?;
    let (mut parts, mut places) = (Vec::new(), Vec::new());
    for part in message.content.parts() {
        let Part::Stored { place, length_bytes } = part else {
            parts.push(part.clone());
            continue;
        };
        match to.store(from.load(*place)?) {
            Ok(place) => {
                places.push(place);
                parts.push(Part::Stored { place, length_bytes: *length_bytes });
            }
            Err(refused) => {
                to.abandon(&places);
                return Ok(Err(refused));
            }
        }
    }
    let content = Content::new(message.content.facts, parts);
    let message = SharedMessage::new(Message { content, ..Message::clone(&message) });
    let adopted = Recovered { message, recipients: recipients.to_vec(), held };
    let submitted = to.submit(vec![Entry::Adopt(Box::new(adopted))]);
    if submitted.is_err() {
        to.abandon(&places);
    }
    Ok(submitted)
}
