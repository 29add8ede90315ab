//! The scheduling that senders ask for, on the clock of the queue: release, deadline, priority.

use crate::event::Context;
use mail::{DeliverByMode, Envelope, Priority, UnixMillis};
use queue::{Deadline, Millis, Schedule};

/// Returns the scheduling of a message; `None` for the usual message.
pub(crate) fn schedule_of(envelope: &Envelope, context: Context) -> Option<Schedule> {
    let options = envelope.options.as_ref()?;
    let at = |wall: UnixMillis| context.now + (wall.0 as Millis - context.wall.0 as Millis);
    let deadline = options
        .deliver_by
        .map(|by| Deadline { at: at(by.deadline), returns: by.mode == DeliverByMode::Return });
    let recipients = (0..).zip(&envelope.recipients).filter(|(_, recipient)| !recipient.has_deadline());
    let schedule = Schedule {
        release: options.release.map(at),
        without_deadline: if deadline.is_some() {
            recipients.map(|(index, _)| index).collect()
        } else {
            Box::default()
        },
        deadline,
        priority: options.priority.map_or(0, Priority::value),
    };
    Some(schedule).filter(|schedule| *schedule != Schedule::default())
}
