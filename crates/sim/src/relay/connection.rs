//! One connection out: the real client session, and the next hop at its other end.

use super::{
    hop::Hop,
    office::{Cause, Office},
    truth::Truth,
};
use crate::seed::Rng;
use mail::{Enhanced, Outcome, SharedMessage};
use queue::{DestinationId, Millis, Taken};
use smtp::client::{Connection, Event, Piece, Protocol, Settings, Transaction};
use spool::Spool as _;

/// Longer than any reply may take.
const PATIENCE: Millis = 300_000;

pub(super) struct Line {
    pub(super) site: DestinationId,
    /// The queue counts it among those that wait for work.
    pub(super) rests: bool,
    connection: Connection,
    hop: Hop,
    /// What is under way, and its messages.
    hands: Vec<(u64, Taken, SharedMessage)>,
    next_name: u64,
    last_heard: Millis,
    is_greeted: bool,
    /// It has taken a unit, or was refused.
    has_taken: bool,
}

/// What becomes of a line after a step.
enum Next {
    Stays,
    Closes,
    Breaks(&'static str),
}

impl Line {
    pub(super) fn new(
        site: DestinationId,
        domain: Box<str>,
        is_well: bool,
        now: Millis,
        rng: &mut Rng,
    ) -> Self {
        let settings =
            Settings { protocol: Protocol::Smtp, hello: "mx.test".into(), depth: 2, eight_bit_anyway: true };
        Self {
            site,
            rests: false,
            connection: Connection::new(settings),
            hop: Hop::connected(domain, is_well, now, rng),
            hands: Vec::new(),
            next_name: 0,
            last_heard: now,
            is_greeted: false,
            has_taken: false,
        }
    }

    /// One round of reading and writing; the line itself when it goes on.
    pub(super) fn step(
        mut self,
        office: &mut Office,
        truth: &mut Truth,
        now: Millis,
        rng: &mut Rng,
    ) -> Option<Self> {
        match self.round(office, truth, now, rng) {
            Next::Stays => return Some(self),
            Next::Closes => {}
            Next::Breaks(why) => self.give_up(why, office, truth, now, rng),
        }
        if self.rests {
            office.queue.stir(self.site);
        }
        let hands = self.hands.drain(..);
        let seized = hands.flat_map(|(_, taken, _)| office.queue.put_back(taken.unit, now)).collect();
        office.condemned(seized, truth);
        office.queue.connection_closed(self.site, self.has_taken, now);
        None
    }

    fn round(&mut self, office: &mut Office, truth: &mut Truth, now: Millis, rng: &mut Rng) -> Next {
        if !self.rests {
            self.begin(office, truth, now);
        }
        while let Some(piece) = self.connection.next_piece() {
            match piece {
                Piece::Text(bytes) => self.hop.receive(&bytes, now, rng, truth),
                Piece::Content(bytes) => self.hop.receive(&bytes, now, rng, truth),
                Piece::Load(place) => match office.spool.load(place) {
                    Ok(bytes) => self.connection.loaded(bytes),
                    Err(_) => return Next::Breaks("the spool cannot be read"),
                },
            }
        }
        if let Some(bytes) = self.hop.heard(now) {
            self.last_heard = now;
            if self.connection.receive(&bytes).is_err() {
                return Next::Breaks("the next hop misbehaves");
            }
        }
        while let Some(event) = self.connection.next_event() {
            match event {
                Event::Hello => self.is_greeted = true,
                Event::Refused(_) => return Next::Breaks("refused"),
                Event::Settled(name, results) => {
                    let Some(at) = self.hands.iter().position(|hand| hand.0 == name) else { continue };
                    let (_, taken, message) = self.hands.swap_remove(at);
                    let results = results.into_iter().map(Into::into).collect();
                    office.conclude(&taken, results, Cause::Tried, Some(message), truth);
                }
                _ => {}
            }
        }
        if self.hop.is_over() {
            return Next::Breaks("the connection was lost");
        }
        if self.connection.is_idle() {
            return self.idle(office, rng);
        }
        if now - self.last_heard > PATIENCE { Next::Breaks("no answer in time") } else { Next::Stays }
    }

    fn begin(&mut self, office: &mut Office, truth: &mut Truth, now: Millis) {
        while self.connection.can_begin() {
            let Some(taken) = office.queue.take(self.site, now) else { return };
            self.has_taken = true;
            let Ok(message) = office.spool.read(taken.id) else {
                let unreadable = Outcome::deferred(Enhanced(4, 3, 0), "cannot be read");
                let results = taken.recipients.as_slice().iter().map(|i| (*i, unreadable.clone())).collect();
                office.conclude(&taken, results, Cause::Tried, None, truth);
                continue;
            };
            self.next_name += 1;
            let (name, recipients) = (self.next_name, taken.recipients.as_slice().to_vec());
            self.hands.push((name, taken, message.clone()));
            self.last_heard = now;
            self.connection.begin(Transaction { name, message, recipients });
        }
    }

    /// Nothing is under way: it closes, or waits to be woken.
    fn idle(&mut self, office: &mut Office, rng: &mut Rng) -> Next {
        if self.connection.is_closing() || rng.chance(20) {
            return Next::Closes;
        }
        if !self.rests && office.queue.rest(self.site) {
            self.rests = true;
        }
        Next::Stays
    }

    fn give_up(
        &mut self,
        why: &'static str,
        office: &mut Office,
        truth: &mut Truth,
        now: Millis,
        rng: &mut Rng,
    ) {
        let outcome = Outcome::deferred(Enhanced(4, 4, 2), why);
        for lost in self.connection.lost() {
            let Some(at) = self.hands.iter().position(|hand| hand.0 == lost.name) else { continue };
            let (_, taken, message) = self.hands.swap_remove(at);
            if !lost.content_sent && lost.refused.is_empty() && rng.chance(50) {
                let seized = office.queue.put_back(taken.unit, now);
                office.condemned(seized, truth);
                continue;
            }
            if lost.content_sent {
                // It may have the message, and its 250 was lost (RFC 1047).
                truth.excuse_all(taken.id, &lost.open);
            }
            let open = lost.open.into_iter().map(|index| (index, outcome.clone()));
            let results = lost.refused.into_iter().map(Into::into).chain(open).collect();
            office.conclude(&taken, results, Cause::Tried, Some(message), truth);
        }
        if !self.is_greeted {
            office.queue.unreachable(self.site, outcome, now);
            self.has_taken = true;
        }
    }
}
