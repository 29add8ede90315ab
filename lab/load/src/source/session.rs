//! The next action of one of the source's sessions: take a ticket, connect, send, pause, quit. Gets
//! time as an argument and has no sockets.

use super::{
    client::{Arrival, ClientSession},
    counts::{Fault, Phase, SourceCounts},
    plan::{Plan, Ticket},
    setup::Setup,
};
use bytes::Bytes;
use mail::Disposition;
use rustix::net::SocketAddrAny;
use smtp::client::{Event, RecipientResult, Transaction};
use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// What the loop has to do for a session next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Make a connection.
    Connect,
    /// Write the output.
    Speak,
    /// Begin the TLS handshake.
    Secure,
    /// Close the connection.
    HangUp,
    /// Ask again then, or when something was read.
    Wait(Instant),
    /// Nothing until something is read.
    Listen,
    /// The session is over.
    Done,
}

/// One place of the source that opens session after session, as tickets allow.
#[derive(Debug, Default)]
pub(crate) struct Session {
    client_session: Option<ClientSession>,
    /// Time at which the attempt under way began.
    connecting: Option<Instant>,
    /// Attempts at this connection that came to nothing, and whose turn it was at the first of them.
    failed_attempts: u32,
    turn: Option<usize>,
    /// Which server the last attempt went to, by turns.
    attempt: usize,
    /// Taken, and not begun.
    ticket: Option<Ticket>,
    /// The time from which the ticket's message counts.
    due: Option<Instant>,
    /// Begun, and not settled: names, and since when their time counts.
    under_way: VecDeque<(u64, Instant)>,
    rest_until: Option<Instant>,
    /// Messages settled since the last turn.
    done: u64,
    nothing_begun: bool,
    /// Messages this connection may still carry.
    room: u32,
    wants_tls: bool,
    wants_xclient: bool,
    wants_auth: bool,
    ready: bool,
    is_secure: bool,
    shaking_hands: Option<Instant>,
    wants_handshake: bool,
    quits: bool,
    closing: bool,
    hangs_up: bool,
}

/// Between two attempts where the server's queue is full (-C).
const RESET_PAUSE: Duration = Duration::from_millis(10);

impl Session {
    /// Returns the octets to be written.
    pub(crate) fn output(&mut self) -> Option<&mut VecDeque<Bytes>> {
        self.client_session.as_mut().map(ClientSession::output)
    }

    /// Is nothing that the server may still say of interest?
    pub(crate) fn hangs_up(&self) -> bool {
        self.hangs_up
    }

    /// Does the server owe something?
    pub(crate) fn waits(&self) -> bool {
        let owes = self.client_session.as_ref().is_some_and(|c| c.waits_for().is_some());
        self.connecting.is_some() || self.shaking_hands.is_some() || owes
    }

    /// Does the server owe a reply, or the rest of one, and the client has nothing to say before it?
    pub(crate) fn is_owed_more(&mut self) -> bool {
        let owes = self.client_session.as_ref().is_some_and(|c| c.waits_for().is_some());
        owes && !self.hangs_up && self.output().is_some_and(|output| output.is_empty())
    }

    /// Goes on with a connection that was made.
    pub(crate) fn connected(&mut self, setup: &Setup, now: Instant, counts: &mut SourceCounts) {
        let began = self.connecting.take().unwrap_or(now);
        counts.connections += 1;
        counts.took(Phase::Connect, now.saturating_duration_since(began));
        self.client_session = Some(ClientSession::new(
            setup.client.clone(),
            setup.style,
            setup.is_chunking,
            setup.transcript.sinks(),
            now,
        ));
        self.nothing_begun = true;
        self.room = setup.messages_on_connection();
        self.wants_tls = setup.wants_tls();
        self.wants_handshake = self.wants_tls && setup.is_tls_implicit;
        self.wants_xclient = !setup.xclient.is_empty();
        self.wants_auth = setup.auth.is_some();
        (self.failed_attempts, self.turn) = (0, None);
    }

    /// Bytes from the server.
    pub(crate) fn received(
        &mut self,
        setup: &Setup,
        bytes: &[u8],
        before: Option<Arrival>,
        now: Instant,
        counts: &mut SourceCounts,
    ) {
        let Some(client_session) = &mut self.client_session else { return };
        let received = client_session.receive(bytes, before, now, counts);
        // What was said before the end, or before the nonsense, counts.
        self.hear(setup, now, counts);
        if let Err(error) = received {
            self.broken(&Fault::Protocol(error.to_string()), counts);
        }
    }

    /// Goes on with a connection whose handshake is done.
    pub(crate) fn secured(&mut self, setup: &Setup, now: Instant, counts: &mut SourceCounts) {
        let began = self.shaking_hands.take().unwrap_or(now);
        counts.took(Phase::Tls, now.saturating_duration_since(began));
        self.is_secure = true;
        if let Some(client_session) = &mut self.client_session {
            if setup.is_tls_implicit {
                client_session.greets_from(now);
            } else {
                client_session.secured(now);
            }
        }
    }

    /// The connection broke, or could not be made.
    pub(crate) fn broken(&mut self, fault: &Fault, counts: &mut SourceCounts) {
        if self.hangs_up {
            return;
        }
        let phase = match &self.client_session {
            _ if self.connecting.is_some() => Phase::Connect,
            _ if self.shaking_hands.is_some() => Phase::Tls,
            Some(client_session) => client_session.waits_for().unwrap_or(Phase::Message),
            None => Phase::Connect,
        };
        counts.failed_in(phase, fault.clone());
        if phase == Phase::Message && self.under_way.is_empty() {
            self.give_up_between(counts);
        } else {
            self.give_up(counts);
        }
    }

    /// Returns the address of this attempt.
    ///
    /// # Errors
    /// The server's name has no address any more.
    pub(crate) fn address(&mut self, setup: &Setup) -> Result<SocketAddrAny, Fault> {
        let first = *self.turn.get_or_insert_with(|| setup.next_turn());
        self.attempt = first.wrapping_add(self.failed_attempts as usize);
        setup.address(self.attempt)
    }

    /// The attempt failed; true if another may be made: at each further address of the server, and -C times where the
    /// connection is refused.
    pub(crate) fn tries_again(
        &mut self,
        fault: &Fault,
        setup: &Setup,
        now: Instant,
        counts: &mut SourceCounts,
    ) -> bool {
        if self.connecting.is_none() {
            return false;
        }
        self.failed_attempts += 1;
        let addresses = setup.addresses.len() as u64;
        let times = if *fault == Fault::Reset { setup.connect_tries } else { 1 };
        let again = u64::from(self.failed_attempts) < u64::from(times) * addresses;
        if again {
            // Another server comes next, and all addresses of this one have failed.
            if let Some((_, place, count)) = setup.server(self.attempt)
                && place + 1 == count
                && self.failed_attempts as usize >= count
            {
                counts.server_failures += 1;
                counts.failed_in(Phase::Connect, self.at_server(fault, setup));
            }
            self.connecting = None;
            let is_round = u64::from(self.failed_attempts).is_multiple_of(addresses);
            self.rest_until = is_round.then(|| now + RESET_PAUSE);
        }
        again
    }

    /// Returns the fault with the name of the server, if there are several and the connection is not made yet.
    pub(crate) fn at_server(&self, fault: &Fault, setup: &Setup) -> Fault {
        match setup.server(self.attempt).filter(|_| self.connecting.is_some()) {
            Some((name, ..)) => Fault::At(name.to_owned(), Box::new(fault.clone())),
            None => fault.clone(),
        }
    }

    /// The server was silent for too long, or the run was stopped, which is no failure of the server.
    pub(crate) fn timed_out(&mut self, stopped: bool, setup: &Setup, counts: &mut SourceCounts) {
        if stopped {
            counts.unanswered_sessions += 1;
            self.under_way.clear();
            (self.ticket, self.due) = (None, None);
            self.hangs_up = true;
        } else {
            self.broken(&self.at_server(&Fault::Timeout, setup), counts);
        }
    }

    /// Messages on this connection fail with it.
    fn give_up(&mut self, counts: &mut SourceCounts) {
        let lost = self.under_way.len() + usize::from(self.ticket.is_some());
        counts.failed += lost as u64;
        self.done += lost as u64;
        self.under_way.clear();
        (self.ticket, self.due) = (None, None);
        self.hangs_up = true;
    }

    /// Returns the next action. May be called at any time.
    pub(crate) fn turn(
        &mut self,
        setup: &Setup,
        plan: &Plan,
        now: Instant,
        counts: &mut SourceCounts,
    ) -> Turn {
        self.hear(setup, now, counts);
        for _ in 0..std::mem::take(&mut self.done) {
            setup.show_done(plan.done());
        }
        if self.hangs_up {
            let kept =
                Self { ticket: self.ticket, due: self.due, rest_until: self.rest_until, ..Self::default() };
            *self = kept;
            return Turn::HangUp;
        }
        if self.connecting.is_some() || self.shaking_hands.is_some() {
            return Turn::Listen;
        }
        if std::mem::take(&mut self.wants_handshake) {
            self.shaking_hands = Some(now);
            return Turn::Secure;
        }
        let next = if self.client_session.is_none() {
            self.before_connecting(plan, now)
        } else {
            self.go_on(setup, plan, now)
        };
        if self.output().is_some_and(|output| !output.is_empty()) { Turn::Speak } else { next }
    }

    fn before_connecting(&mut self, plan: &Plan, now: Instant) -> Turn {
        match self.next_ticket(plan, now) {
            Ok(true) => {
                self.connecting = Some(now);
                Turn::Connect
            }
            Ok(false) => Turn::Done,
            Err(until) => Turn::Wait(until),
        }
    }

    /// Has a ticket whose time has come; or not, and never will; or has to wait until then.
    fn next_ticket(&mut self, plan: &Plan, now: Instant) -> Result<bool, Instant> {
        if let Some(until) = self.rest_until.filter(|until| *until > now && !plan.is_stopped()) {
            return Err(until);
        }
        self.rest_until = None;
        self.ticket = self.ticket.filter(|_| !plan.is_stopped()).or_else(|| plan.take());
        match self.ticket {
            None => {
                self.due = None;
                Ok(false)
            }
            Some(Ticket { due: Some(due), .. }) if due > now => Err(due),
            Some(ticket) => {
                self.due.get_or_insert(ticket.due.unwrap_or(now));
                Ok(true)
            }
        }
    }

    /// Begins messages on the open connection, and says goodbye behind the last.
    fn go_on(&mut self, setup: &Setup, plan: &Plan, now: Instant) -> Turn {
        while self.ready && !self.quits {
            let Some(client_session) = &self.client_session else { break };
            if !client_session.can_begin() {
                return Turn::Listen;
            }
            let pipelines = client_session.pipelines();
            let goes_on = self.nothing_begun || setup.keeps && self.room > 0;
            let wanted = if goes_on { self.next_ticket(plan, now) } else { Ok(false) };
            match wanted {
                Ok(true) => self.begin(setup, now),
                // QUIT may stand behind the content, before its reply is there (RFC 2920 §3.1).
                Ok(false) if self.under_way.is_empty() || pipelines => {
                    self.quits = true;
                    if let Some(client_session) = &mut self.client_session {
                        client_session.quit(now);
                    }
                }
                Ok(false) => break,
                Err(until) => return Turn::Wait(until),
            }
        }
        Turn::Listen
    }

    fn begin(&mut self, setup: &Setup, now: Instant) {
        let (Some(client_session), Some(ticket)) = (&mut self.client_session, self.ticket.take()) else {
            return;
        };
        self.nothing_begun = false;
        self.room = self.room.saturating_sub(1);
        self.under_way.push_back((ticket.number, self.due.take().unwrap_or(now)));
        let message = setup.template.next();
        let recipients = (0..message.envelope.recipients.len() as u32).collect();
        client_session
            .begin(Transaction { id: ticket.number, message, recipients, deliver_by_seconds: 0 }, now);
    }

    /// Takes the news.
    fn hear(&mut self, setup: &Setup, now: Instant, counts: &mut SourceCounts) {
        while let Some(event) = self.client_session.as_mut().and_then(ClientSession::next_event) {
            match event {
                Event::Hello if self.wants_tls && !self.is_secure => self.ask_for_tls(now, counts),
                Event::Hello => self.prepare(setup, now, counts),
                Event::StartTls => self.wants_handshake = true,
                Event::NoTls(_) | Event::Refused(_) | Event::Auth(_) | Event::Answer(_) => {
                    self.give_up(counts);
                }
                Event::TransactionEnded(name, results) => {
                    self.rest_until = setup.rest().map(|rest| now + rest);
                    self.settled(name, &results, now, counts);
                }
                Event::Closing(_) => self.closing = true,
            }
        }
        match self.client_session.as_mut().and_then(ClientSession::exchanged) {
            // EHLO follows.
            Some((Phase::Xclient, true)) | None => {}
            Some((_, true)) => self.prepare(setup, now, counts),
            Some((_, false)) => self.give_up(counts),
        }
        if self.closing && !self.hangs_up {
            self.server_closes(counts);
        }
    }

    /// Does what is to be done between EHLO and the first message.
    fn prepare(&mut self, setup: &Setup, now: Instant, counts: &mut SourceCounts) {
        let Some(client_session) = &mut self.client_session else { return };
        let done = if std::mem::take(&mut self.wants_xclient) {
            client_session.xclient(&setup.xclient, now)
        } else if let Some(credentials) = setup.auth.as_ref().filter(|_| std::mem::take(&mut self.wants_auth))
        {
            client_session.authenticate(credentials, setup.auth_mechanism, now)
        } else if setup.is_chunking && !client_session.offers().chunking {
            Err("CHUNKING is not offered, which --bdat needs".to_owned())
        } else {
            self.ready = true;
            Ok(())
        };
        if let Err(why) = done {
            self.broken(&Fault::Protocol(why), counts);
        }
    }

    /// QUIT was answered, or the server said 421. What it said of each message was heard before.
    fn server_closes(&mut self, counts: &mut SourceCounts) {
        if !self.under_way.is_empty() {
            counts.failed_in(Phase::Message, Fault::Lost);
        }
        self.give_up_between(counts);
    }

    /// A message that was not begun gets a new connection, unless this one took none at all.
    fn give_up_between(&mut self, counts: &mut SourceCounts) {
        let kept = self.ticket.take_if(|_| !self.nothing_begun);
        let due = self.due.filter(|_| kept.is_some());
        self.give_up(counts);
        (self.ticket, self.due) = (kept, due);
    }

    fn ask_for_tls(&mut self, now: Instant, counts: &mut SourceCounts) {
        match &mut self.client_session {
            Some(client_session) if client_session.offers_tls() => client_session.start_tls(now),
            _ => self.broken(&Fault::Protocol("STARTTLS is not offered".into()), counts),
        }
    }

    fn settled(&mut self, name: u64, results: &[RecipientResult], now: Instant, counts: &mut SourceCounts) {
        let delivered = results.iter().filter(|r| r.outcome.disposition == Disposition::Delivered).count();
        if let Some((_, since)) = self.under_way.iter().find(|(n, _)| *n == name).copied() {
            self.under_way.retain(|(n, _)| *n != name);
            // A refusal is sooner there than an acceptance: it would flatter the server.
            if delivered > 0 {
                counts.took(Phase::Message, now.saturating_duration_since(since));
            }
        }
        self.done += 1;
        counts.recipients += delivered as u64;
        if delivered > 0 {
            counts.sent += 1;
            counts.last_sent = counts.last_sent.max(Some(now));
            counts.recipients_refused += (results.len() - delivered) as u64;
            return;
        }
        counts.failed += 1;
        // Refusals were counted where they were heard; this one was never said to the server.
        if let Some(own) = results.iter().find(|r| !r.outcome.from_remote) {
            counts.failed_in(Phase::Message, Fault::Protocol(own.outcome.text.to_string()));
        }
    }
}
