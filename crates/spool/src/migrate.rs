//! A message from one spool to another, whatever their backends.

use crate::{CommitSeq, Entry, Recovered, Refused, Spool, SpoolFailure};
use mail::{ChunkId, Content, Message, Part, SharedMessage};

/// Hands a message that `from` recovered to `to`, with its content and what became of its recipients.
/// Once the commit sequence number is durable in `to`, and not before, it may be ended in `from`: until then a crash
/// leaves it in one of the two at least. While the line before `to` has no room for what comes next,
/// `busy` is called, again and again: it waits for a moment, or for an earlier commit sequence number. So
/// [`Refused::Busy`] is never returned.
///
/// # Errors
/// When the message cannot be read, and those of `busy`. What was stored is abandoned.
pub fn migrate_message(
    from: &dyn Spool,
    found: &Recovered,
    to: &dyn Spool,
    busy: &mut dyn FnMut() -> Result<(), SpoolFailure>,
) -> Result<Result<CommitSeq, Refused>, SpoolFailure> {
    let mut chunk_ids = Vec::new();
    let migrated = copy_message(from, found, to, busy, &mut chunk_ids);
    if !matches!(migrated, Ok(Ok(_))) {
        to.discard_chunks(&chunk_ids);
    }
    migrated
}

fn copy_message(
    from: &dyn Spool,
    found: &Recovered,
    to: &dyn Spool,
    busy: &mut dyn FnMut() -> Result<(), SpoolFailure>,
    chunk_ids: &mut Vec<ChunkId>,
) -> Result<Result<CommitSeq, Refused>, SpoolFailure> {
    let message = from.read(found.message.id)?;
    let mut parts = Vec::new();
    for part in message.content.parts() {
        let Part::Stored { chunk_id, length_bytes } = part else {
            parts.push(part.clone());
            continue;
        };
        let chunk = from.load(*chunk_id)?;
        match retry_while_busy(&mut || to.store_for(&message.envelope, chunk.clone()), busy)? {
            Ok(chunk_id) => {
                chunk_ids.push(chunk_id);
                parts.push(Part::Stored { chunk_id, length_bytes: *length_bytes });
            }
            Err(refused) => return Ok(Err(refused)),
        }
    }
    let content = Content::new(message.content.traits, parts);
    let message = SharedMessage::new(Message { content, ..Message::clone(&message) });
    let imported = Recovered { message, recipients: found.recipients.clone(), held: found.held.clone() };
    retry_while_busy(&mut || to.submit(vec![Entry::Import(Box::new(imported.clone()))]), busy)
}

/// Offers a transaction again until there is room for it.
fn retry_while_busy<T>(
    offer: &mut dyn FnMut() -> Result<T, Refused>,
    busy: &mut dyn FnMut() -> Result<(), SpoolFailure>,
) -> Result<Result<T, Refused>, SpoolFailure> {
    loop {
        match offer() {
            Err(Refused::Busy) => busy()?,
            answer => return Ok(answer),
        }
    }
}
