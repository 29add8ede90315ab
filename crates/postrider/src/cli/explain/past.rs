//! The state of a message at a time, from its events in the history.

use ::history::{StoredEvent, recipient_of};
use mail::UnixMillis;
use report::{
    Event, UnixMicros,
    event::{self, Accepted, Attempted, Notification},
};

/// The state of a message at some time, put together from its events.
#[derive(Debug, Default)]
pub(super) struct Past<'a> {
    /// Those up to that time.
    pub(super) events: &'a [StoredEvent],
    pub(super) accepted: Option<(UnixMicros, Accepted<'a>)>,
    /// Nothing is left of it in the queue.
    pub(super) is_finished: bool,
    /// An operator holds the message; else it is held since it was accepted.
    is_held_by_operator: bool,
    /// Since when it is held, and why; `None` if it is not.
    held: Option<(UnixMicros, String)>,
    /// Time of the last delay warning.
    pub(super) warned: Option<UnixMicros>,
    /// The recipients that any event names, also a later one, in the order of the events.
    pub(super) recipients: Vec<PastRecipient>,
}

/// The state of a recipient at that time.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct PastRecipient {
    pub(super) address: String,
    /// The index in the envelope, once an event has named it.
    pub(super) index: Option<u32>,
    pub(super) state: State,
    pub(super) attempt_count: u32,
    /// `None` if no event names it.
    pub(super) destination: Option<String>,
    /// The time of the last outcome, and its text: relay and reply, or a reason.
    pub(super) last: Option<(UnixMicros, String)>,
    /// When the suspended destination is tried again.
    pub(super) next: Option<UnixMillis>,
}

/// What had become of a recipient.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// No event names it so far.
    #[default]
    New,
    /// Waits for the next attempt.
    Waiting,
    /// Waits because its destination is suspended.
    Suspended,
    Held,
    Delivered,
    Bounced,
    Expired,
    Deleted,
    Discarded,
    /// Another message has it.
    Redirected,
    /// The message has left the queue, and no event says how this recipient ended.
    Unknown,
}

impl State {
    /// Returns the word for it in texts and in JSON.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Waiting => "waiting",
            Self::Suspended => "suspended",
            Self::Held => "held",
            Self::Delivered => "delivered",
            Self::Bounced => "bounced",
            Self::Expired => "expired",
            Self::Deleted => "deleted",
            Self::Discarded => "discarded",
            Self::Redirected => "redirected",
            Self::Unknown => "unknown",
        }
    }

    pub(super) fn is_end(self) -> bool {
        !matches!(self, Self::New | Self::Waiting | Self::Suspended | Self::Held)
    }
}

impl<'a> Past<'a> {
    /// Folds events. `later`: those behind the time, for the names of recipients.
    pub(super) fn new(events: &'a [StoredEvent], later: &[StoredEvent]) -> Self {
        let mut past = Self { events, ..Self::default() };
        for stored in events {
            if let Some(event) = stored.event() {
                past.add(stored.at, event);
            }
        }
        for stored in later {
            let Some(event) = stored.event() else { continue };
            if let Some(to) = recipient_of(&event) {
                past.recipient(to, index_of(&event));
            }
        }
        if let (Some((at, reason)), false) = (past.held.clone(), past.is_finished) {
            // Earlier builds stored holds from the start only, and no release: what was tried since is not held.
            let is_held = |state: State| state == State::New || past.is_held_by_operator && !state.is_end();
            for recipient in past.recipients.iter_mut().filter(|recipient| is_held(recipient.state)) {
                (recipient.state, recipient.next) = (State::Held, None);
                recipient.last.get_or_insert_with(|| (at, reason.clone()));
            }
        }
        if past.is_finished {
            past.finish();
        }
        past
    }

    /// Ends the recipients whose end no event says: the message has left the queue.
    pub(super) fn finish(&mut self) {
        self.is_finished = true;
        for recipient in self.recipients.iter_mut().filter(|recipient| !recipient.state.is_end()) {
            (recipient.state, recipient.next) = (State::Unknown, None);
        }
    }

    /// Returns why the message is held, if it is.
    pub(super) fn hold_reason(&self) -> Option<String> {
        self.held.as_ref().filter(|_| !self.is_finished).map(|(_, reason)| reason.clone())
    }

    /// Returns the number of recipients that no event names.
    pub(super) fn unnamed_count(&self) -> usize {
        let count = self.accepted.as_ref().map_or(0, |(_, accepted)| accepted.recipient_count as usize);
        count.saturating_sub(self.recipients.len())
    }

    fn add(&mut self, at: UnixMicros, event: Event<'a>) {
        match event {
            Event::Accepted(accepted) => self.accepted = Some((at, accepted)),
            Event::Attempt(attempt) => self.add_attempt(at, &attempt),
            Event::Waiting(w) => {
                let recipient = self.recipient(w.to, w.index);
                (recipient.state, recipient.next) = (State::Suspended, w.until);
                recipient.destination = Some(w.destination.to_owned());
                recipient.last = Some((at, w.reason.to_owned()));
            }
            Event::Deleted { to, index, .. } => self.end(at, (to, index), State::Deleted, "by an operator"),
            Event::Discarded { to: Some(to), reason, .. } => {
                self.end(at, (to, None), State::Discarded, reason);
            }
            Event::Held { reason, .. } => self.held = Some((at, reason.to_owned())),
            Event::Changed(changed) => match changed.action {
                "hold" => {
                    self.is_held_by_operator = true;
                    let reason = changed.reason.map(|reason| format!(": {reason}")).unwrap_or_default();
                    self.held = Some((at, format!("by {}{reason}", changed.user)));
                }
                "release" => self.held = None,
                _ => {}
            },
            Event::Notified { kind: Notification::Delay, .. } => self.warned = Some(at),
            Event::Completed(_) => self.is_finished = true,
            _ => {}
        }
    }

    fn add_attempt(&mut self, at: UnixMicros, attempt: &Attempted<'_>) {
        let recipient = self.recipient(attempt.to, attempt.index);
        recipient.state = match attempt.status {
            event::Status::Sent => State::Delivered,
            event::Status::Redirected => State::Redirected,
            event::Status::Bounced => State::Bounced,
            event::Status::Expired => State::Expired,
            event::Status::Deferred => State::Waiting,
        };
        recipient.attempt_count += 1;
        recipient.next = None;
        let by = if attempt.relay.is_empty() { String::new() } else { format!("{}: ", attempt.relay) };
        recipient.last = Some((at, format!("{by}{}", attempt.reply)));
    }

    fn end(&mut self, at: UnixMicros, (to, index): (&str, Option<u32>), state: State, reason: &str) {
        let recipient = self.recipient(to, index);
        (recipient.state, recipient.last) = (state, Some((at, reason.to_owned())));
    }

    /// Returns the recipient with this index, since the targets of an alias have the same address. Events of earlier builds name no
    /// index.
    fn recipient(&mut self, address: &str, index: Option<u32>) -> &mut PastRecipient {
        let is_same = |one: &PastRecipient| match (one.index, index) {
            (Some(known), Some(index)) => known == index,
            _ => one.address == address,
        };
        let known = self.recipients.iter().position(is_same);
        let number = known.unwrap_or_else(|| {
            self.recipients.push(PastRecipient { address: address.to_owned(), ..PastRecipient::default() });
            self.recipients.len() - 1
        });
        let recipient = &mut self.recipients[number];
        recipient.index = recipient.index.or(index);
        recipient
    }
}

fn index_of(event: &Event<'_>) -> Option<u32> {
    match event {
        Event::Attempt(a) => a.index,
        Event::Waiting(w) => w.index,
        Event::Deleted { index, .. } => *index,
        _ => None,
    }
}
