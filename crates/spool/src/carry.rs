//! A message from one spool to another, whatever their engines.

use crate::{Entry, Recovered, Refused, Spool, SpoolFailure, Ticket};
use mail::{Content, Message, Part, SharedMessage};

/// Hands a message that `from` recovered to `to`, with its content and what became of its recipients.
/// Once the ticket is durable in `to`, and not before, it may be ended in `from`: until then a crash
/// leaves it in one of the two at least. `Ok(Err(Refused::Busy))`: wait for an earlier ticket, then again.
///
/// # Errors
/// When the message cannot be read.
pub fn carry(
    from: &dyn Spool,
    found: &Recovered,
    to: &dyn Spool,
) -> Result<Result<Ticket, Refused>, SpoolFailure> {
    let message = from.read(found.message.id)?;
    let (mut parts, mut places) = (Vec::new(), Vec::new());
    for part in message.content.parts() {
        let Part::Stored { place, length_bytes } = part else {
            parts.push(part.clone());
            continue;
        };
        match to.store_for(&message.envelope, from.load(*place)?) {
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
    let adopted = Recovered { message, recipients: found.recipients.clone(), held: found.held };
    let submitted = to.submit(vec![Entry::Adopt(Box::new(adopted))]);
    if submitted.is_err() {
        to.abandon(&places);
    }
    Ok(submitted)
}
