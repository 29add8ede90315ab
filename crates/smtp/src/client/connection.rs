//! One client connection: from the greeting over many transactions to QUIT.
//!
//! The driver's loop:
//! 1. [`Connection::receive`] what was read, then take [`Connection::next_event`] until none is left;
//! 2. [`Connection::begin`] the next message while [`Connection::can_begin`];
//! 3. write what [`Connection::next_piece`] yields, then read again.

mod expected_reply;
mod transactions;

use super::{
    Capabilities, ProtocolViolation, RecipientResult, ReplyReader, Transaction,
    output::{Output, OutputPiece},
    replies::to_reply,
    transaction::{ContentCommand, TransactionState, content_command},
};
use bytes::Bytes;
use expected_reply::Expected;
use mail::{Reply, seven_bit::Plan};
use std::{collections::VecDeque, sync::Arc};

pub use expected_reply::ExpectedReply;
pub use transactions::LostTransaction;

/// The protocol of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// RFC 5321.
    Smtp,
    /// RFC 2033: a reply for each recipient at the end.
    Lmtp,
}

/// The settings of a connection.
#[derive(Debug, Clone)]
pub struct ClientSettings {
    /// Decides between EHLO and LHLO, and how many replies the end of the content gets.
    pub protocol: Protocol,
    /// Host name to send in EHLO or LHLO.
    pub hello: Box<str>,
    /// Transactions whose content is on the wire while the next one begins, if the server offers PIPELINING; 1 waits
    /// for each.
    pub depth: usize,
    /// Use PIPELINING if the server offers it. Otherwise each command waits for the reply to the one before: some
    /// servers offer the extension and drop what they didn't expect.
    pub pipelining: bool,
    /// Send 8-bit content unchanged to a server without 8BITMIME, since most servers take it. DSNs of this server
    /// ([`mail::Message::is_report`]) are sent unchanged in any case.
    pub eight_bit_anyway: bool,
}

/// An event for the driver.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// The server accepted EHLO: see [`Connection::capabilities`]. TLS or mail may begin.
    Hello,
    /// The server is ready for TLS: do the handshake, then [`Connection::secured`].
    StartTls,
    /// The server refused STARTTLS.
    NoTls(Reply),
    /// The reply to a line of [`Connection::authenticate`]: 334 has a challenge, 235 ends the exchange.
    Auth(Reply),
    /// The reply to a line of [`Connection::ask`].
    Answer(Reply),
    /// A transaction ended: its id, and an outcome for each recipient by index.
    TransactionEnded(u64, Vec<RecipientResult>),
    /// The greeting or EHLO was refused: this server takes no mail now.
    Refused(Reply),
    /// The server closes (421, or the answer to QUIT): no further transaction can begin.
    Closing(Reply),
}

/// The reply that the connection waits for; each has its time limit (RFC 5321 §4.5.3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// None: the connection is idle.
    Idle,
    /// The greeting of a new connection (5 minutes in RFC 5321 §4.5.3.2.1).
    Greeting,
    /// EHLO, AUTH, MAIL, RCPT, STARTTLS, RSET, QUIT.
    Command,
    /// The reply to DATA.
    Data,
    /// The reply to the end of the content.
    Final,
}

/// A client connection. The module's documentation has the loop of a driver.
#[derive(Debug)]
pub struct Connection {
    settings: ClientSettings,
    reader: ReplyReader,
    expected: VecDeque<Expected>,
    /// What the reply answered that violated the protocol.
    violated: Option<Expected>,
    events: VecDeque<Event>,
    output: Output,
    capabilities: Capabilities,
    /// Transactions whose content was sent, oldest first, and behind them the one whose commands were.
    transactions: VecDeque<TransactionState>,
    /// The last of the transactions has not sent its content yet.
    opening: bool,
    /// MAIL commands that were queued, whatever their replies.
    mail_count: usize,
    /// DATA or BDAT, for the transaction whose content was not sent yet.
    content_command: ContentCommand,
    needs_reset: bool,
    /// Set by the driver. REQUIRETLS is sent to no other server (RFC 8689 §4.2.1).
    is_verified: bool,
    /// Set by the driver: at the final hop, such a server needs no REQUIRETLS.
    is_here: bool,
    ready: bool,
    closing: bool,
}

impl Connection {
    /// Begins before the greeting: the driver passes what the server sends.
    pub fn new(settings: ClientSettings) -> Self {
        Self {
            settings,
            reader: ReplyReader::default(),
            expected: VecDeque::from([Expected::Greeting]),
            violated: None,
            events: VecDeque::new(),
            output: Output::default(),
            capabilities: Capabilities::default(),
            transactions: VecDeque::new(),
            opening: false,
            mail_count: 0,
            content_command: ContentCommand::Data,
            needs_reset: false,
            is_verified: false,
            is_here: false,
            ready: false,
            closing: false,
        }
    }

    /// Returns the protocol that is spoken on this connection.
    pub fn protocol(&self) -> Protocol {
        self.settings.protocol
    }

    /// Returns whether the server delivers mail, and does not relay it: by LMTP.
    pub fn is_final_hop(&self) -> bool {
        self.settings.protocol == Protocol::Lmtp
    }

    /// Returns the extensions that the server offers.
    pub fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// Returns the reply that the connection waits for.
    pub fn phase(&self) -> Phase {
        match self.expected.front() {
            None => Phase::Idle,
            Some(Expected::Greeting) => Phase::Greeting,
            Some(Expected::Data) => Phase::Data,
            Some(Expected::Final | Expected::FinalFor(_)) => Phase::Final,
            Some(_) => Phase::Command,
        }
    }

    /// Returns the commands of all expected replies, in order.
    pub fn expected_replies(&self) -> impl ExactSizeIterator<Item = ExpectedReply> {
        self.expected.iter().map(|expect| (*expect).into())
    }

    /// Returns what the connection does while it waits for the next reply, in Postfix's words: behind "while".
    pub fn step(&self) -> &'static str {
        match self.violated.or_else(|| self.expected.front().copied()) {
            None => "no reply was expected",
            Some(Expected::Ehlo) if self.settings.protocol == Protocol::Lmtp => {
                "performing the LHLO handshake"
            }
            Some(Expected::Helo) => "performing the HELO handshake",
            Some(Expected::Question(command)) => command.step(),
            Some(Expected::Final | Expected::FinalFor(_)) if self.has_unsent_content() => {
                "sending message body"
            }
            Some(expected) => ExpectedReply::from(expected).step(),
        }
    }

    /// Returns whether no transaction is in flight and no reply is expected.
    pub fn is_idle(&self) -> bool {
        self.transactions.is_empty() && self.expected.is_empty() && self.output.is_empty()
    }

    /// Returns whether the server takes no further transaction on this connection.
    pub fn is_closing(&self) -> bool {
        self.closing
    }

    /// Returns whether [`Connection::begin`] may be called.
    pub fn can_begin(&self) -> bool {
        // Only with PIPELINING may anything be sent behind content (RFC 2920 §3.1).
        let depth = if self.capabilities.pipelining { self.settings.depth.max(1) } else { 1 };
        let is_free = self.ready && !self.closing && !self.opening && self.transactions.len() < depth;
        is_free && !self.is_exhausted()
    }

    /// Returns whether the connection has carried as many MAIL commands as the server announced to take (RFC 9422,
    /// MAILMAX). Another connection takes further transactions.
    pub fn is_exhausted(&self) -> bool {
        self.capabilities.transactions_max.is_some_and(|max| self.mail_count >= max)
    }

    /// Processes bytes from the server.
    ///
    /// # Errors
    /// The server violated the protocol: close the connection, and see [`Connection::lost`].
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(), ProtocolViolation> {
        self.reader.receive(bytes);
        let mut reader = std::mem::take(&mut self.reader);
        let result = self.read_replies(&mut reader);
        self.reader = reader;
        result
    }

    fn read_replies(&mut self, reader: &mut ReplyReader) -> Result<(), ProtocolViolation> {
        while let Some((code, raw)) = reader.next_raw()? {
            let Some(expected) = self.expected.pop_front() else {
                return self.unasked(code, raw);
            };
            if let Err(violation) = self.reply(expected, code, raw) {
                self.violated = Some(expected);
                return Err(violation);
            }
            if expected == Expected::StartTls
                && self.events.back() == Some(&Event::StartTls)
                && !reader.is_empty()
            {
                return Err(ProtocolViolation::Injection);
            }
        }
        Ok(())
    }

    /// Handles a reply that no command asked for. Between transactions a server may only close (RFC 5321 §3.8).
    fn unasked(&mut self, code: u16, raw: &[u8]) -> Result<(), ProtocolViolation> {
        if code != 421 {
            return Err(ProtocolViolation::Unasked);
        }
        self.close(code, raw);
        Ok(())
    }

    /// Returns the next event.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    // ---- commands ----

    fn command(&mut self, line: &str, expected: Expected) {
        self.output.text().extend_from_slice(line.as_bytes());
        self.output.text().extend_from_slice(b"\r\n");
        self.expected.push_back(expected);
    }

    /// Returns the next piece to write; none when everything is written.
    pub fn next_piece(&mut self) -> Option<OutputPiece> {
        self.output.next_piece()
    }

    /// Passes the chunk that [`OutputPiece::Load`] asked for.
    pub fn loaded(&mut self, bytes: Bytes) {
        self.output.loaded(bytes);
    }

    /// Sends STARTTLS; [`Event::StartTls`] or [`Event::NoTls`] follows.
    pub fn start_tls(&mut self) {
        self.ready = false;
        self.command("STARTTLS", Expected::StartTls);
    }

    /// Sends a line of an authentication exchange (RFC 4954 §4); [`Event::Auth`] follows. No mail may be sent until the
    /// exchange is over.
    pub fn authenticate(&mut self, line: &str) {
        self.command(line, Expected::Auth);
    }

    /// Sends a command that asks the server something without sending mail: MAIL and RCPT of an address that is verified,
    /// and then RSET. [`Event::Answer`] follows. No transaction may begin until the question is over.
    /// `command`: what the line begins with.
    pub fn ask(&mut self, line: &str, command: ExpectedReply) {
        self.command(line, Expected::Question(command));
    }

    /// The certificate of the server was verified, and names it: mail that requires TLS may be sent (RFC 8689 §4.2.1).
    pub fn verified(&mut self) {
        self.is_verified = true;
    }

    /// The server is on this machine: mail that requires TLS may be sent to it without, if it delivers (LMTP).
    pub fn stays_here(&mut self) {
        self.is_here = true;
    }

    /// Discards all state after the TLS handshake (RFC 3207 §4.2), and sends EHLO again.
    pub fn secured(&mut self) {
        self.capabilities = Capabilities::default();
        self.reader = ReplyReader::default();
        self.hello();
    }

    fn hello(&mut self) {
        let verb = if self.settings.protocol == Protocol::Lmtp { "LHLO" } else { "EHLO" };
        let line = format!("{verb} {}", self.settings.hello);
        self.command(&line, Expected::Ehlo);
    }

    /// Begins a transaction. A transaction that the server cannot take ends at once, without a command.
    pub fn begin(&mut self, transaction: Transaction) {
        self.begin_converted(transaction, None);
    }

    /// Begins a transaction whose content is converted to 7 bits, if there is a plan for it.
    pub fn begin_converted(&mut self, transaction: Transaction, conversion: Option<Arc<Plan>>) {
        debug_assert!(self.can_begin(), "no transaction can begin now");
        debug_assert_eq!(
            transaction.message.envelope.together(&transaction.recipients),
            transaction.recipients.len(),
            "one MAIL has one reverse-path"
        );
        let (is_converted, anyway) = (conversion.is_some(), self.settings.eight_bit_anyway);
        let is_final_hop = self.is_final_hop();
        let may_require_tls =
            is_final_hop && self.is_here || self.is_verified && self.capabilities.requiretls;
        let content_command = content_command(
            &transaction,
            &self.capabilities,
            is_converted,
            anyway,
            is_final_hop,
            may_require_tls,
        );
        let state = TransactionState::new(transaction, &self.capabilities, conversion);
        match content_command {
            Ok(content_command) => {
                self.content_command = content_command;
                self.open(state);
            }
            Err(outcome) => self.end_unsent(state, &outcome),
        }
    }

    /// Sends QUIT when nothing is in flight.
    pub fn quit(&mut self) {
        if !self.closing {
            self.closing = true;
            self.command("QUIT", Expected::Quit);
        }
    }

    // ---- replies ----

    fn reply(&mut self, expected: Expected, code: u16, raw: &[u8]) -> Result<(), ProtocolViolation> {
        if code == 421 {
            self.close(code, raw);
        }
        let is_ok = (200..300).contains(&code);
        match expected {
            Expected::Greeting if code == 220 => self.hello(),
            Expected::Ehlo if is_ok => {
                self.capabilities = Capabilities::parse(&to_reply(code, raw));
                self.capabilities.pipelining &= self.settings.pipelining;
                self.hello_done();
            }
            // Older servers accept HELO only (RFC 5321 §3.2), and some policies refuse EHLO alone with 550 or 554.
            // This does not apply to LMTP.
            Expected::Ehlo if (500..600).contains(&code) && self.settings.protocol == Protocol::Smtp => {
                let line = format!("HELO {}", self.settings.hello);
                self.command(&line, Expected::Helo);
            }
            Expected::Helo if is_ok => self.hello_done(),
            Expected::Greeting | Expected::Ehlo | Expected::Helo => {
                self.events.push_back(Event::Refused(to_reply(code, raw)));
            }
            Expected::StartTls if code == 220 => self.events.push_back(Event::StartTls),
            Expected::StartTls => {
                self.ready = true;
                self.events.push_back(Event::NoTls(to_reply(code, raw)));
            }
            Expected::Auth => self.events.push_back(Event::Auth(to_reply(code, raw))),
            Expected::Question(_) => self.events.push_back(Event::Answer(to_reply(code, raw))),
            Expected::Mail => self.mail_reply(is_ok, code, raw),
            Expected::Rcpt(i) => self.rcpt_reply(i, is_ok, code, raw),
            Expected::Data => self.data_reply(code, raw)?,
            // Content that was not sent cannot have been accepted: there was a reply too many, or one out of step.
            Expected::Final | Expected::FinalFor(_) if is_ok && self.has_unsent_content() => {
                return Err(ProtocolViolation::WrongReply);
            }
            Expected::Final => self.final_reply(None, code, raw),
            Expected::FinalFor(i) => self.final_reply(Some(i), code, raw),
            Expected::Rset => self.reset_reply(),
            Expected::Quit => self.close(code, raw),
        }
        Ok(())
    }

    fn hello_done(&mut self) {
        self.ready = true;
        self.events.push_back(Event::Hello);
    }

    fn close(&mut self, code: u16, raw: &[u8]) {
        if !self.events.iter().any(|event| matches!(event, Event::Closing(_))) {
            self.events.push_back(Event::Closing(to_reply(code, raw)));
        }
        self.closing = true;
    }
}
