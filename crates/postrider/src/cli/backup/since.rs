//! Recipients of a backup that were finished after it, as far as a history knows.

use history::{DiskFolder, Reader};
use mail::{Enhanced, Outcome};
use report::{
    Event,
    event::{Attempted, Status},
};
use spool::Recovered;
use std::{collections::BTreeSet, path::Path};

/// The history that the configuration names, if it is there.
pub(super) struct Since(Option<Reader>);

impl Since {
    /// Opens the history in this folder. Without one, nothing is known: the mail of another machine.
    pub(super) fn open(folder: Option<&Path>) -> Self {
        let reader = folder.and_then(|folder| Reader::open(&DiskFolder::new(folder)).ok());
        Self(reader.filter(|reader| !reader.is_empty()))
    }

    /// Settles the recipients that were finished, and returns their number.
    pub(super) fn settle(&self, found: &mut Recovered) -> u64 {
        let Some(reader) = &self.0 else { return 0 };
        let mut count = 0;
        // A part that cannot be read knows nothing, and the mail waits for the operator.
        for stored in reader.timeline(found.message.id, &mut BTreeSet::new()) {
            let Some((to, outcome)) = stored.event().as_ref().and_then(end_of) else { continue };
            let recipients = found.recipients.iter_mut().zip(&found.message.envelope.recipients);
            for (state, _) in
                recipients.filter(|(state, recipient)| !state.settled && recipient.path.as_str() == to)
            {
                state.settled = true;
                state.attempt_count = state.attempt_count.max(1);
                state.last = Some((stored.at.millis(), outcome.clone()));
                count += 1;
            }
        }
        count
    }
}

/// Returns the recipient whom an event has finished, and the outcome.
fn end_of<'e>(event: &Event<'e>) -> Option<(&'e str, Outcome)> {
    match event {
        Event::Attempt(Attempted { to, status: Status::Sent, dsn, reply, .. }) => {
            Some((to, Outcome::delivered(*dsn, *reply)))
        }
        Event::Attempt(Attempted { to, status: Status::Bounced | Status::Expired, dsn, reply, .. }) => {
            Some((to, Outcome::failed(*dsn, *reply)))
        }
        Event::Deleted { to, .. } => Some((to, Outcome::failed(Enhanced(5, 7, 0), "deleted by an operator"))),
        _ => None,
    }
}
