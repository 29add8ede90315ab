//! Places and tickets of several stores: a store's own, with the store's number in the upper bits. Those of
//! the first store are as it gave them.

use crate::{Entry, Recovered, Ticket, format::message::NOWHERE};
use mail::{Content, Message, Part, Place, SharedMessage};

/// The bits of a store's own; at a million chunks or transactions a second they last two thousand years.
const OWN_BITS: u32 = 56;
const OWN_MASK: u64 = (1 << OWN_BITS) - 1;
/// The last number of all would make a place of [`NOWHERE`].
pub(super) const STORES_MAX: usize = (1 << (u64::BITS - OWN_BITS)) - 1;

pub(super) fn outer(place: Place, home: usize) -> Place {
    if place == NOWHERE {
        return place; // what recovery leaves on the disk
    }
    debug_assert!(place.0 >> OWN_BITS == 0, "a store counts its places from 0");
    Place(place.0 | (home as u64) << OWN_BITS)
}

pub(super) fn outer_ticket(own: Ticket, home: usize) -> Ticket {
    debug_assert!(own.0 >> OWN_BITS == 0, "a store counts its tickets from 0");
    Ticket(own.0 | (home as u64) << OWN_BITS)
}

/// The store that gave it, and its own ticket.
pub(super) fn inner_ticket(ticket: Ticket) -> (usize, Ticket) {
    ((ticket.0 >> OWN_BITS) as usize, Ticket(ticket.0 & OWN_MASK))
}

pub(super) fn home(place: Place) -> usize {
    (place.0 >> OWN_BITS) as usize
}

/// As its store knows it, if it is one of this store.
pub(super) fn inner(place: Place, of: usize) -> Option<Place> {
    (home(place) == of).then_some(Place(place.0 & OWN_MASK))
}

/// Where a message's chunks lie, if it has any.
pub(super) fn home_of(message: &Message) -> Option<usize> {
    let mut homes = message.content.parts().iter().filter_map(Part::place).map(home);
    let first = homes.next()?;
    // All were stored for one envelope.
    assert!(homes.all(|other| other == first), "a message's chunks lie in two stores");
    Some(first)
}

/// As its store is to write it.
pub(super) fn inner_entry(entry: Entry, of: usize) -> Entry {
    let own = |place| inner(place, of).unwrap_or(place);
    match entry {
        Entry::Accept(message) => Entry::Accept(with_places(message, of, own)),
        Entry::Adopt(found) => {
            let message = with_places(found.message, of, own);
            Entry::Adopt(Box::new(Recovered { message, ..*found }))
        }
        Entry::Outcome { .. } | Entry::Amend { .. } => entry,
    }
}

/// As all others know it.
pub(super) fn outer_message(message: SharedMessage, of: usize) -> SharedMessage {
    with_places(message, of, |place| outer(place, of))
}

fn with_places(message: SharedMessage, of: usize, named: impl Fn(Place) -> Place) -> SharedMessage {
    if of == 0 || message.content.parts().iter().all(|part| part.place().is_none()) {
        return message;
    }
    let part = |part: &Part| match *part {
        Part::Stored { place, length_bytes } => Part::Stored { place: named(place), length_bytes },
        Part::Memory(ref bytes) => Part::Memory(bytes.clone()),
    };
    let parts: Vec<Part> = message.content.parts().iter().map(part).collect();
    let content = Content::new(message.content.facts, parts);
    SharedMessage::new(Message { content, ..Message::clone(&message) })
}
