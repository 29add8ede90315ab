//! One connection out: the real client session, and the next hop at its other end.

use super::{driver::Driver, next_hop::NextHop, oracle::Oracle};
use crate::seed::Rng;
use engine::{ConnectionId, Event, Lease};
use mail::{Attempt, DsnDuty, Enhanced, Outcome, SharedMessage};
use queue::Millis;
use smtp::client::{self, ClientSettings, OutputPiece, Phase, Protocol, Transaction};
use spool::Spool as _;

/// Longer than any reply may take.
const REPLY_TIMEOUT: Millis = 300_000;

/// A lease whose transaction is under way.
struct Leased {
    name: u64,
    lease: Lease,
    message: SharedMessage,
}

pub(super) struct Connection {
    id: ConnectionId,
    is_idle: bool,
    client: client::Connection,
    next_hop: NextHop,
    leased: Vec<Leased>,
    next_name: u64,
    last_heard: Millis,
    is_greeted: bool,
}

/// What becomes of the connection after a step.
enum Next {
    Stays,
    Closes,
    Breaks(&'static str),
}

fn attempt() -> Attempt {
    Attempt { relay: "hop.test[192.0.2.1]:25".into(), dsn_duty: DsnDuty::ReportRelayed, ..Attempt::default() }
}

impl Connection {
    pub(super) fn new(id: ConnectionId, host: Box<str>, is_well: bool, now: Millis, rng: &mut Rng) -> Self {
        let settings = ClientSettings {
            protocol: Protocol::Smtp,
            hello: "mx.test".into(),
            depth: 2,
            pipelining: true,
            eight_bit_anyway: true,
        };
        Self {
            id,
            is_idle: false,
            client: client::Connection::new(settings),
            next_hop: NextHop::connected(host, is_well, now, rng),
            leased: Vec::new(),
            next_name: 0,
            last_heard: now,
            is_greeted: false,
        }
    }

    /// One round of reading and writing. Gives the connection back when it goes on.
    pub(super) fn step(mut self, driver: &mut Driver, oracle: &mut Oracle, rng: &mut Rng) -> Option<Self> {
        match self.round(driver, oracle, rng) {
            Next::Stays => return Some(self),
            Next::Closes => {}
            Next::Breaks(why) => self.give_up(why, driver, oracle, rng),
        }
        let leases = self.leased.drain(..).map(|leased| leased.lease).collect();
        driver.handle(Event::ConnectionClosed { connection: self.id, leases }, oracle, rng);
        None
    }

    fn round(&mut self, driver: &mut Driver, oracle: &mut Oracle, rng: &mut Rng) -> Next {
        let now = driver.now();
        if self.is_idle && driver.is_woken(self.id) {
            self.is_idle = false;
        }
        if !self.is_idle {
            self.begin(driver, oracle, rng);
        }
        while let Some(piece) = self.client.next_piece() {
            match piece {
                OutputPiece::Text(bytes) => self.next_hop.receive(&bytes, now, rng, oracle),
                OutputPiece::Content(bytes) => self.next_hop.receive(&bytes, now, rng, oracle),
                OutputPiece::Load(chunk_id) => match driver.spool.load(chunk_id) {
                    Ok(bytes) => self.client.loaded(bytes),
                    Err(_) => return Next::Breaks("the spool cannot be read"),
                },
            }
        }
        if let Some(bytes) = self.next_hop.heard(now) {
            self.last_heard = now;
            if self.client.receive(&bytes).is_err() {
                return Next::Breaks("the next hop misbehaves");
            }
        }
        while let Some(event) = self.client.next_event() {
            match event {
                client::Event::Hello => self.is_greeted = true,
                client::Event::Refused(_) => return Next::Breaks("refused"),
                client::Event::TransactionEnded(name, results) => {
                    let results = results.into_iter().map(Into::into).collect();
                    self.finish(name, results, driver, oracle, rng);
                }
                _ => {}
            }
        }
        let can_be_given_up = matches!(self.client.phase(), Phase::Greeting | Phase::Command | Phase::Data);
        if driver.is_abandoned(self.id) && can_be_given_up {
            return Next::Breaks("given up");
        }
        if self.next_hop.is_over() {
            return Next::Breaks("the connection was lost");
        }
        if self.client.is_idle() {
            return self.idle(driver, oracle, rng);
        }
        if now - self.last_heard > REPLY_TIMEOUT { Next::Breaks("no answer in time") } else { Next::Stays }
    }

    fn finish(
        &mut self,
        name: u64,
        results: Vec<(u32, Outcome)>,
        driver: &mut Driver,
        oracle: &mut Oracle,
        rng: &mut Rng,
    ) {
        let Some(at) = self.leased.iter().position(|leased| leased.name == name) else { return };
        let Leased { lease, message, .. } = self.leased.swap_remove(at);
        // Now and then the engine has to read the message again.
        let message = (!rng.chance(10)).then_some(message);
        let (connection, attempt) = (self.id, attempt());
        driver.handle(Event::AttemptFinished { connection, lease, message, results, attempt }, oracle, rng);
    }

    fn begin(&mut self, driver: &mut Driver, oracle: &mut Oracle, rng: &mut Rng) {
        while self.client.can_begin() {
            let ready = Event::ConnectionReady(self.id);
            let Some((lease, message)) = driver.handle(ready, oracle, rng) else { return };
            let recipients = lease.recipients.as_slice().to_vec();
            let Ok(message) = message.map_or_else(|| driver.spool.read(lease.id), Ok) else {
                let unreadable = Outcome::deferred(Enhanced(4, 3, 0), "cannot be read");
                let results = recipients.iter().map(|index| (*index, unreadable.clone())).collect();
                let (connection, message, attempt) = (self.id, None, Attempt::default());
                driver.handle(
                    Event::AttemptFinished { connection, lease, message, results, attempt },
                    oracle,
                    rng,
                );
                continue;
            };
            self.next_name += 1;
            let name = self.next_name;
            oracle.check_stored(&message);
            self.leased.push(Leased { name, lease, message: message.clone() });
            self.last_heard = driver.now();
            self.client.begin(Transaction { id: name, message, recipients, deliver_by_seconds: 0 });
        }
    }

    /// Nothing is under way: it closes, or waits to be woken.
    fn idle(&mut self, driver: &mut Driver, oracle: &mut Oracle, rng: &mut Rng) -> Next {
        if self.client.is_closing() || rng.chance(20) || driver.engine.should_close(self.id) {
            return Next::Closes;
        }
        if self.is_idle && rng.chance(10) {
            // Its time without work is over; it looks once more.
            driver.handle(Event::ConnectionNotIdle(self.id), oracle, rng);
            driver.is_woken(self.id);
            self.is_idle = false;
        } else if !self.is_idle {
            self.is_idle = true;
            driver.handle(Event::ConnectionIdle(self.id), oracle, rng);
        }
        Next::Stays
    }

    fn give_up(&mut self, why: &'static str, driver: &mut Driver, oracle: &mut Oracle, rng: &mut Rng) {
        let outcome = Outcome::deferred(Enhanced(4, 4, 2), why);
        for lost in self.client.lost() {
            let Some(at) = self.leased.iter().position(|leased| leased.name == lost.id) else { continue };
            if !lost.content_sent && lost.refused.is_empty() && rng.chance(50) {
                let (connection, lease) = (self.id, self.leased.swap_remove(at).lease);
                driver.handle(Event::LeaseReturned { connection, lease }, oracle, rng);
                continue;
            }
            if lost.content_sent {
                // It may have the message, and its 250 was lost (RFC 1047).
                oracle.excuse_all(self.leased[at].lease.id, &lost.open);
            }
            let open = lost.open.into_iter().map(|index| (index, outcome.clone()));
            let results = lost.refused.into_iter().map(Into::into).chain(open).collect();
            self.finish(lost.id, results, driver, oracle, rng);
        }
        if !self.is_greeted {
            let (connection, attempt) = (self.id, Attempt::default());
            driver.handle(Event::DestinationUnreachable { connection, outcome, attempt }, oracle, rng);
        }
    }
}
