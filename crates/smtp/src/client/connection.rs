//! One client connection: from the greeting over many transactions to QUIT.
//!
//! The driver's loop:
//! 1. [`Connection::receive`] what was read, then take [`Connection::next_event`] until none is left;
//! 2. [`Connection::begin`] the next message while [`Connection::can_begin`];
//! 3. write what [`Connection::next_piece`] yields, then read again.

use super::{
    Capabilities, Misbehaved, RecipientResult, ReplyReader, Stage, Transaction,
    replies::to_reply,
    transaction::{Answer, Carrier, Progress, answer_to, carrier, write_mail, write_rcpt},
};
use bytes::Bytes;
use mail::{
    ChunkId, Enhanced, Outcome, Part, Reply,
    seven_bit::{Converter, Plan},
};
use memchr::memchr;
use std::{collections::VecDeque, sync::Arc};

/// Which of the two languages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// RFC 5321.
    Smtp,
    /// RFC 2033: a reply for each recipient at the end.
    Lmtp,
}

/// What a connection is told at its start.
#[derive(Debug, Clone)]
pub struct Settings {
    /// SMTP or LMTP.
    pub protocol: Protocol,
    /// Our name in EHLO.
    pub hello: Box<str>,
    /// Transactions whose content is on the wire while the next one begins, with a server that offers
    /// PIPELINING; 1 waits for each.
    pub depth: usize,
    /// Send 8-bit content to a server without 8BITMIME as it is: most take it, and bouncing helps nobody. Reports of
    /// our own ([`mail::Message::is_report`]) are sent as they are in any case.
    pub eight_bit_anyway: bool,
}

/// Something to write, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Commands, or content that had to be changed.
    Text(Vec<u8>),
    /// Content as it is in memory.
    Content(Bytes),
    /// Content in the spool: load it, hand it in with [`Connection::loaded`], and ask again.
    Load(ChunkId),
}

/// News for the driver.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// The server answered EHLO: see [`Connection::capabilities`]. TLS or mail may begin.
    Hello,
    /// The server is ready for TLS: do the handshake, then [`Connection::secured`].
    StartTls,
    /// The server does not want TLS now.
    NoTls(Reply),
    /// A transaction ended: its name, and an outcome for each recipient by index.
    Settled(u64, Vec<RecipientResult>),
    /// The greeting or EHLO was refused: this server takes no mail now.
    Refused(Reply),
    /// The server closes (421, or the answer to QUIT): no further transaction can begin.
    Closing(Reply),
}

/// What is waited for; each has its timeout (RFC 5321 §4.5.3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Nothing: the connection rests.
    Idle,
    /// The greeting.
    Greeting,
    /// EHLO, MAIL, RCPT, STARTTLS, RSET, QUIT.
    Command,
    /// The reply to DATA.
    Data,
    /// The reply to the end of the content.
    Final,
}

/// What a reply will be to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Awaited {
    /// The connection itself.
    Greeting,
    /// EHLO, HELO or LHLO.
    Hello,
    /// STARTTLS.
    StartTls,
    /// MAIL.
    Mail,
    /// One RCPT.
    Rcpt,
    /// DATA.
    Data,
    /// The end of the content.
    Final,
    /// RSET.
    Reset,
    /// QUIT.
    Quit,
}

impl From<Expect> for Awaited {
    fn from(expect: Expect) -> Self {
        match expect {
            Expect::Greeting => Self::Greeting,
            Expect::Ehlo | Expect::Helo => Self::Hello,
            Expect::StartTls => Self::StartTls,
            Expect::Mail => Self::Mail,
            Expect::Rcpt(_) => Self::Rcpt,
            Expect::Data => Self::Data,
            Expect::Final | Expect::FinalFor(_) => Self::Final,
            Expect::Rset => Self::Reset,
            Expect::Quit => Self::Quit,
        }
    }
}

/// What a broken connection leaves of a transaction.
#[derive(Debug, PartialEq, Eq)]
pub struct Lost {
    /// The name of the transaction.
    pub name: u64,
    /// The content was sent, whole or nearly: the server may have taken it (RFC 1047).
    pub content_sent: bool,
    /// Outcomes of recipients that were refused already.
    pub refused: Vec<RecipientResult>,
    /// Recipients without an outcome.
    pub open: Vec<u32>,
    /// RCPT commands that the server accepted.
    pub accepted_count: usize,
    /// Some RCPT was sent, or was to be sent, and not answered.
    pub lacks_rcpt_reply: bool,
    /// DATA was sent, or was to be sent, and not answered; each command before it was answered.
    pub lacks_data_reply: bool,
}

/// What waits to be written.
#[derive(Debug)]
enum Queued {
    Text(Vec<u8>),
    /// Content begins; whether its dots are stuffed, and how it is converted.
    Begin(bool, Option<Arc<Plan>>),
    /// Converted content ends.
    End,
    Content(Bytes),
    Load(ChunkId),
}

/// The commands that are waiting for their reply, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expect {
    Greeting,
    Ehlo,
    Helo,
    StartTls,
    Mail,
    Rcpt(usize),
    Data,
    /// The end of the content of the first transaction.
    Final,
    /// The final reply for one recipient of LMTP.
    FinalFor(usize),
    Rset,
    Quit,
}

/// See the module's text.
#[derive(Debug)]
pub struct Connection {
    settings: Settings,
    reader: ReplyReader,
    expected: VecDeque<Expect>,
    events: VecDeque<Event>,
    output: VecDeque<Queued>,
    capabilities: Capabilities,
    /// Transactions whose content is sent, oldest first, and behind them the one whose commands are.
    transactions: VecDeque<Progress>,
    /// The last of the transactions has not sent its content yet.
    opening: bool,
    /// MAIL commands that were queued, whatever their replies.
    mail_count: usize,
    /// How the opening transaction's content travels.
    carrier: Carrier,
    needs_reset: bool,
    stuffer: Stuffer,
    /// Converts the content that is written now.
    converter: Option<Box<Converter>>,
    ready: bool,
    closing: bool,
}

impl Connection {
    /// A connection that was just made: the greeting is expected.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            reader: ReplyReader::default(),
            expected: VecDeque::from([Expect::Greeting]),
            events: VecDeque::new(),
            output: VecDeque::new(),
            capabilities: Capabilities::default(),
            transactions: VecDeque::new(),
            opening: false,
            mail_count: 0,
            carrier: Carrier::Data,
            needs_reset: false,
            stuffer: Stuffer::default(),
            converter: None,
            ready: false,
            closing: false,
        }
    }

    /// Returns the protocol that is spoken on this connection.
    pub fn protocol(&self) -> Protocol {
        self.settings.protocol
    }

    /// What the server offers.
    pub fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// What is waited for now.
    pub fn phase(&self) -> Phase {
        match self.expected.front() {
            None => Phase::Idle,
            Some(Expect::Greeting) => Phase::Greeting,
            Some(Expect::Data) => Phase::Data,
            Some(Expect::Final | Expect::FinalFor(_)) => Phase::Final,
            Some(_) => Phase::Command,
        }
    }

    /// What each reply still to come will be to, in order; for those who time replies.
    pub fn awaited(&self) -> impl ExactSizeIterator<Item = Awaited> {
        self.expected.iter().map(|expect| (*expect).into())
    }

    /// No transaction is under way.
    pub fn is_idle(&self) -> bool {
        self.transactions.is_empty() && self.expected.is_empty() && self.output.is_empty()
    }

    /// The server takes no further transaction on this connection.
    pub fn is_closing(&self) -> bool {
        self.closing
    }

    /// May [`Connection::begin`] be called?
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

    /// Takes bytes from the server.
    ///
    /// # Errors
    /// The server does not keep to the protocol: close, and see [`Connection::lost`].
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(), Misbehaved> {
        self.reader.receive(bytes);
        let mut reader = std::mem::take(&mut self.reader);
        let result = self.read_replies(&mut reader);
        self.reader = reader;
        result
    }

    fn read_replies(&mut self, reader: &mut ReplyReader) -> Result<(), Misbehaved> {
        while let Some((code, raw)) = reader.next_raw()? {
            let Some(expected) = self.expected.pop_front() else {
                return self.unasked(code, raw);
            };
            self.reply(expected, code, raw)?;
            if expected == Expect::StartTls
                && self.events.back() == Some(&Event::StartTls)
                && !reader.is_empty()
            {
                return Err(Misbehaved::Injection);
            }
        }
        Ok(())
    }

    /// Between transactions a server may only say that it closes (RFC 5321 §3.8).
    fn unasked(&mut self, code: u16, raw: &[u8]) -> Result<(), Misbehaved> {
        if code != 421 {
            return Err(Misbehaved::Unasked);
        }
        self.close(code, raw);
        Ok(())
    }

    /// The next piece of news.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    // ---- what we say ----

    fn text(&mut self) -> &mut Vec<u8> {
        if !matches!(self.output.back(), Some(Queued::Text(_))) {
            self.output.push_back(Queued::Text(Vec::with_capacity(128)));
        }
        match self.output.back_mut() {
            Some(Queued::Text(text)) => text,
            _ => unreachable!("it was just pushed"),
        }
    }

    fn command(&mut self, line: &str, expected: Expect) {
        self.text().extend_from_slice(line.as_bytes());
        self.text().extend_from_slice(b"\r\n");
        self.expected.push_back(expected);
    }

    /// The next piece to write; none when everything is written.
    pub fn next_piece(&mut self) -> Option<Piece> {
        loop {
            return match self.output.pop_front()? {
                Queued::Text(text) => Some(Piece::Text(text)),
                Queued::Content(bytes) => match &mut self.converter {
                    None => Some(self.stuffer.pass(bytes)),
                    Some(converter) => match converter.push(&bytes) {
                        // A header or a line is not whole yet.
                        none if none.is_empty() => continue,
                        converted => Some(self.stuffer.pass(converted.into())),
                    },
                },
                Queued::Begin(active, conversion) => {
                    self.stuffer = Stuffer { active, in_line: false };
                    self.converter = conversion.map(|plan| Box::new(Converter::new(plan)));
                    continue;
                }
                Queued::End => match self.converter.take().map(|converter| converter.finish()) {
                    Some(rest) if !rest.is_empty() => Some(self.stuffer.pass(rest.into())),
                    _ => continue,
                },
                Queued::Load(chunk_id) => {
                    self.output.push_front(Queued::Load(chunk_id));
                    Some(Piece::Load(chunk_id))
                }
            };
        }
    }

    /// The bytes that [`Piece::Load`] asked for.
    pub fn loaded(&mut self, bytes: Bytes) {
        let front = self.output.front_mut();
        debug_assert!(matches!(front, Some(Queued::Load(_))), "nothing is to be loaded");
        if let Some(front) = front {
            *front = Queued::Content(bytes);
        }
    }

    /// Asks for TLS; [`Event::StartTls`] or [`Event::NoTls`] follows.
    pub fn start_tls(&mut self) {
        self.ready = false;
        self.command("STARTTLS", Expect::StartTls);
    }

    /// The handshake is done: everything said before is forgotten (RFC 3207 §4.2), EHLO goes out again.
    pub fn secured(&mut self) {
        self.capabilities = Capabilities::default();
        self.reader = ReplyReader::default();
        self.hello();
    }

    fn hello(&mut self) {
        let verb = if self.settings.protocol == Protocol::Lmtp { "LHLO" } else { "EHLO" };
        let line = format!("{verb} {}", self.settings.hello);
        self.command(&line, Expect::Ehlo);
    }

    /// Sends a message. What the server cannot take is settled at once, without a word to it.
    pub fn begin(&mut self, transaction: Transaction) {
        self.begin_converted(transaction, None);
    }

    /// Sends a message whose content is converted to 7 bits on its way, if there is a plan for it.
    pub fn begin_converted(&mut self, transaction: Transaction, conversion: Option<Arc<Plan>>) {
        debug_assert!(self.can_begin(), "no transaction can begin now");
        let (is_converted, anyway) = (conversion.is_some(), self.settings.eight_bit_anyway);
        let carrier = carrier(&transaction, &self.capabilities, is_converted, anyway);
        let progress = Progress::new(transaction, &self.capabilities, conversion);
        match carrier {
            Ok(carrier) => {
                self.carrier = carrier;
                self.open(progress);
            }
            Err(outcome) => self.settle(progress, outcome),
        }
    }

    fn open(&mut self, progress: Progress) {
        let resets = std::mem::take(&mut self.needs_reset);
        if resets {
            self.command("RSET", Expect::Rset);
        }
        // Without PIPELINING the reply to RSET comes first.
        if !resets || self.capabilities.pipelining {
            self.send_commands(&progress);
        }
        self.transactions.push_back(progress);
        self.opening = true;
    }

    fn send_commands(&mut self, progress: &Progress) {
        let (capabilities, carrier) = (self.capabilities.clone(), self.carrier);
        write_mail(self.text(), progress, &capabilities, carrier);
        self.mail_count += 1;
        self.expected.push_back(Expect::Mail);
        if capabilities.pipelining {
            let mut from = 0;
            while let Some(i) = progress.next_open(from) {
                from = i + 1;
                let Transaction { message, recipients, .. } = &progress.transaction;
                let recipient = &message.envelope.recipients[recipients[i] as usize];
                write_rcpt(self.text(), recipient, &capabilities);
                self.expected.push_back(Expect::Rcpt(i));
            }
            if carrier == Carrier::Data {
                self.command("DATA", Expect::Data);
            }
        }
    }

    /// Says goodbye when nothing is under way.
    pub fn quit(&mut self) {
        if !self.closing {
            self.closing = true;
            self.command("QUIT", Expect::Quit);
        }
    }

    // ---- what the server says ----

    fn reply(&mut self, expected: Expect, code: u16, raw: &[u8]) -> Result<(), Misbehaved> {
        if code == 421 {
            self.close(code, raw);
        }
        let is_ok = (200..300).contains(&code);
        match expected {
            Expect::Greeting if code == 220 => self.hello(),
            Expect::Ehlo if is_ok => {
                self.capabilities = Capabilities::parse(&to_reply(code, raw));
                self.hello_done();
            }
            // Older servers know HELO only (RFC 5321 §3.2), and some policies refuse EHLO alone with 550 or 554;
            // LMTP has no such past.
            Expect::Ehlo if (500..600).contains(&code) && self.settings.protocol == Protocol::Smtp => {
                let line = format!("HELO {}", self.settings.hello);
                self.command(&line, Expect::Helo);
            }
            Expect::Helo if is_ok => self.hello_done(),
            Expect::Greeting | Expect::Ehlo | Expect::Helo => {
                self.events.push_back(Event::Refused(to_reply(code, raw)));
            }
            Expect::StartTls if code == 220 => self.events.push_back(Event::StartTls),
            Expect::StartTls => {
                self.ready = true;
                self.events.push_back(Event::NoTls(to_reply(code, raw)));
            }
            Expect::Mail => self.mail_reply(is_ok, code, raw),
            Expect::Rcpt(i) => self.rcpt_reply(i, is_ok, code, raw),
            Expect::Data => self.data_reply(code, raw)?,
            // Nobody can have taken what was not sent: a reply too many, or one that is out of step.
            Expect::Final | Expect::FinalFor(_) if is_ok && self.has_unsent_content() => {
                return Err(Misbehaved::WrongReply);
            }
            Expect::Final => self.final_reply(None, code, raw),
            Expect::FinalFor(i) => self.final_reply(Some(i), code, raw),
            Expect::Rset => self.reset_reply(),
            Expect::Quit => self.close(code, raw),
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

    fn opening(&mut self) -> &mut Progress {
        debug_assert!(self.opening, "a transaction is opening");
        self.transactions.back_mut().expect("the opening transaction is the last")
    }

    fn reset_reply(&mut self) {
        if self.capabilities.pipelining {
            return;
        }
        if let Some(progress) = self.transactions.pop_back() {
            self.send_commands(&progress);
            self.transactions.push_back(progress);
        }
    }

    fn mail_reply(&mut self, is_ok: bool, code: u16, raw: &[u8]) {
        if is_ok {
            self.opening().is_open = true;
        } else {
            let outcome = refusal(code, raw, Stage::Mail);
            self.opening().settle_rest(&outcome);
        }
        self.next_in_lock_step(0);
    }

    fn rcpt_reply(&mut self, i: usize, is_ok: bool, code: u16, raw: &[u8]) {
        let progress = self.opening();
        if is_ok {
            progress.accepted_count += 1;
        } else if progress.answers[i].is_none() {
            progress.answers[i] = Some(refusal(code, raw, Stage::Rcpt));
        }
        self.next_in_lock_step(i + 1);
    }

    /// Without PIPELINING, and for BDAT, the next command goes when the last one's reply is there.
    fn next_in_lock_step(&mut self, rcpt: usize) {
        let capabilities = self.capabilities.clone();
        let carrier = self.carrier;
        let progress = self.opening();
        let next = progress.next_open(rcpt);
        if capabilities.pipelining {
            let are_answered = !matches!(self.expected.front(), Some(Expect::Rcpt(_)));
            if carrier == Carrier::Bdat && are_answered {
                self.after_recipients();
            }
            return;
        }
        if let Some(i) = next {
            let (message, index) = (progress.transaction.message.clone(), progress.transaction.recipients[i]);
            write_rcpt(self.text(), &message.envelope.recipients[index as usize], &capabilities);
            self.expected.push_back(Expect::Rcpt(i));
        } else {
            self.after_recipients();
        }
    }

    /// Every RCPT was answered, and nothing else is on the wire.
    fn after_recipients(&mut self) {
        if self.opening().open_count() == 0 {
            self.fail_opening();
        } else if self.carrier == Carrier::Bdat {
            let size = self.opening().transaction.message.content.size_bytes();
            let line = format!("BDAT {size} LAST\r\n");
            self.text().extend_from_slice(line.as_bytes());
            self.send_content();
        } else {
            self.command("DATA", Expect::Data);
        }
    }

    fn data_reply(&mut self, code: u16, raw: &[u8]) -> Result<(), Misbehaved> {
        match code {
            354 if self.opening().open_count() > 0 => self.send_content(),
            354 => {
                // All were refused, and yet it wants content: give it none (RFC 2920 §3.1).
                self.text().extend_from_slice(b".\r\n");
                if self.settings.protocol == Protocol::Lmtp {
                    // No recipient, no reply (RFC 2033 §4.2).
                    self.fail_opening();
                } else {
                    self.expected.push_back(Expect::Final);
                    self.opening().content_sent = true;
                    self.opening = false;
                }
            }
            200..=399 => return Err(Misbehaved::WrongReply),
            _ => {
                let outcome = refusal(code, raw, Stage::Data);
                self.opening().settle_rest(&outcome);
                self.fail_opening();
            }
        }
        Ok(())
    }

    /// The opening transaction ends without content.
    fn fail_opening(&mut self) {
        let progress = self.transactions.pop_back().expect("a transaction is opening");
        self.opening = false;
        // The server still holds what MAIL began.
        self.needs_reset = progress.is_open;
        self.events.push_back(Event::Settled(progress.transaction.name, progress.results()));
    }

    fn send_content(&mut self) {
        let carrier = self.carrier;
        let progress = self.opening();
        progress.content_sent = true;
        let content = progress.transaction.message.content.clone();
        let conversion = progress.conversion.take();
        let mut open = Vec::new();
        let mut from = 0;
        while let Some(i) = progress.next_open(from) {
            open.push(i);
            from = i + 1;
        }
        self.opening = false;
        let is_converted = conversion.is_some();
        let stuffs = carrier == Carrier::Data && (content.traits.has_dot_line || is_converted);
        self.output.push_back(Queued::Begin(stuffs, conversion));
        self.output.extend(content.parts().iter().map(|part| match part {
            Part::Memory(bytes) => Queued::Content(bytes.clone()),
            Part::Stored { chunk_id, .. } => Queued::Load(*chunk_id),
        }));
        if is_converted {
            self.output.push_back(Queued::End);
        }
        if carrier == Carrier::Data {
            let end: &[u8] =
                if content.traits.lacks_final_crlf && !is_converted { b"\r\n.\r\n" } else { b".\r\n" };
            self.output.push_back(Queued::Text(end.to_vec()));
        }
        match self.settings.protocol {
            Protocol::Smtp => self.expected.push_back(Expect::Final),
            Protocol::Lmtp => self.expected.extend(open.into_iter().map(Expect::FinalFor)),
        }
    }

    /// Of the oldest transaction: the next one's begins when that is answered for.
    fn has_unsent_content(&self) -> bool {
        self.output.iter().any(|queued| !matches!(queued, Queued::Text(_)))
    }

    fn final_reply(&mut self, recipient: Option<usize>, code: u16, raw: &[u8]) {
        let Some(progress) = self.transactions.front_mut() else { return };
        let answer = answer_to(&to_reply(code, raw), Stage::Content);
        match recipient {
            None => progress.settle_rest(&answer),
            Some(i) => progress.answers[i] = Some(answer),
        }
        if progress.open_count() == 0 {
            let progress = self.transactions.pop_front().expect("it was there");
            self.events.push_back(Event::Settled(progress.transaction.name, progress.results()));
        }
    }

    fn settle(&mut self, mut progress: Progress, outcome: Outcome) {
        progress.settle_rest(&outcome.into());
        self.events.push_back(Event::Settled(progress.transaction.name, progress.results()));
    }

    /// The connection is gone: what is left of each transaction.
    pub fn lost(&mut self) -> Vec<Lost> {
        let mut left = Vec::new();
        let lacks_rcpt_reply = self.expected.iter().any(|expect| matches!(expect, Expect::Rcpt(_)));
        let lacks_data_reply = matches!(self.expected.front(), Some(Expect::Data));
        for progress in std::mem::take(&mut self.transactions) {
            let (mut refused, mut open) = (Vec::new(), Vec::new());
            for (index, answer) in progress.transaction.recipients.iter().zip(progress.answers) {
                match answer {
                    Some(Answer { outcome, reply }) => {
                        refused.push(RecipientResult { index: *index, outcome, reply });
                    }
                    None => open.push(*index),
                }
            }
            left.push(Lost {
                name: progress.transaction.name,
                content_sent: progress.content_sent,
                refused,
                open,
                accepted_count: progress.accepted_count,
                lacks_rcpt_reply: lacks_rcpt_reply && !progress.content_sent,
                lacks_data_reply: lacks_data_reply && !progress.content_sent,
            });
        }
        left
    }
}

/// What a refused command means. A 2yz where it has no place is the server's error, and temporary.
fn refusal(code: u16, raw: &[u8], stage: Stage) -> Answer {
    let reply = to_reply(code, raw);
    let mut answer = answer_to(&reply, stage);
    if code < 400 {
        let text = format!("unexpected reply to {}: {}", stage.as_str(), reply.excerpt());
        answer.outcome = Outcome::deferred(Enhanced(4, 5, 0), text);
    }
    answer
}

/// Puts a second dot before each line that begins with one (RFC 5321 §4.5.2), across pieces.
#[derive(Debug, Default)]
struct Stuffer {
    active: bool,
    in_line: bool,
}

impl Stuffer {
    fn pass(&mut self, bytes: Bytes) -> Piece {
        if !self.active {
            return Piece::Content(bytes);
        }
        let mut out = Vec::with_capacity(bytes.len() + 16);
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            if !self.in_line && rest[0] == b'.' {
                out.push(b'.');
            }
            let end = memchr(b'\n', rest).map_or(rest.len(), |at| at + 1);
            out.extend_from_slice(&rest[..end]);
            self.in_line = rest[end - 1] != b'\n';
            rest = &rest[end..];
        }
        Piece::Text(out)
    }
}
