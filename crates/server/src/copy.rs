//! Copies of queued messages, for a backup of the running daemon.

use super::driver::Driver;
use bytes::Bytes;
use control::{Failure, MessageCopy};
use engine::LastOutcome;
use mail::{ChunkId, QueueId};
use queue::MessageView;
use spool::{RecipientState, Recovered, SpoolFailure, export_envelope};

/// Returns a message as a restart would find it; none if it has left the queue.
///
/// # Errors
/// The spool cannot give it.
pub(super) async fn message(driver: &Driver, id: QueueId) -> Result<Option<MessageCopy>, Failure> {
    let (view, outcomes, held) = {
        let state = driver.lock();
        let Some(view) = state.engine.queue().message(id) else { return Ok(None) };
        (view, state.engine.last_outcomes(id).to_vec(), state.engine.hold_reason(id).map(Into::into))
    };
    let message = match driver.read(id).await {
        Ok(message) => message,
        Err(failure) => return gone_or(driver, id, &failure),
    };
    let count = message.envelope.recipients.len() as u32;
    let recipients = (0..count).map(|index| state(&view, &outcomes, index)).collect();
    let parts = message.content.parts().to_vec();
    let envelope = export_envelope(&Recovered { message, recipients, held });
    Ok(Some(MessageCopy { envelope, parts }))
}

/// Returns a chunk of the content of a message; none if the message has left the queue.
///
/// # Errors
/// The spool cannot give it.
pub(super) async fn chunk(driver: &Driver, id: QueueId, chunk_id: ChunkId) -> Result<Option<Bytes>, Failure> {
    match driver.load(chunk_id).await {
        Ok(bytes) => Ok(Some(bytes)),
        Err(failure) => gone_or(driver, id, &failure),
    }
}

/// Returns the failure unless the message has left the queue: what is in the queue is in the spool, or it is lost.
fn gone_or<T>(driver: &Driver, id: QueueId, failure: &SpoolFailure) -> Result<Option<T>, Failure> {
    if driver.lock().engine.queue().contains(id) {
        Err(Failure::Failed { text: failure.to_string() })
    } else {
        Ok(None)
    }
}

/// Returns the state of a recipient; one that is in no job is finished.
fn state(view: &MessageView, outcomes: &[LastOutcome], index: u32) -> RecipientState {
    let job = view.jobs.iter().find(|job| job.recipients.contains(&index));
    let last = outcomes.iter().find(|note| note.0 == index);
    RecipientState {
        settled: job.is_none(),
        attempt_count: job.map_or(0, |job| u32::from(job.attempt_count)),
        last: last.map(|(_, last, at)| (*at, last.outcome.clone())),
    }
}
