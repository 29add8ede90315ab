//! One session of the source, without I/O: the product's own client session, with each reply timed
//! and, on wish, made to speak as smtp-source does: HELO, one command at a time.

use super::{
    counts::{Fault, Phase, SourceCounts},
    exchange::{self, Exchange, Progress},
    transcript::{TranscriptSinks, show},
};
use crate::sink::Credentials;
use auth::Mechanism;
use bytes::Bytes;
use memchr::{memchr, memmem};
use smtp::client::{
    ClientSettings, Connection, Event, ExpectedReply, OutputPiece, ProtocolViolation, Transaction,
};
use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// How a session greets the server, and so what it can use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// No HELO at all (-o).
    Mute,
    /// HELO, or an LHLO whose offers are ignored: one command at a time.
    Plain,
    /// EHLO for STARTTLS, AUTH, BDAT or XCLIENT, and otherwise one command at a time.
    Chosen,
    /// EHLO and all the server offers.
    Extended,
}

/// Bytes from the server, since which nothing was written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrival {
    pub(crate) at: Instant,
    /// True if the kernel was made to acknowledge them at once.
    pub(crate) is_acknowledged: bool,
}

/// One session of the source, without I/O, with the time of each reply.
#[derive(Debug)]
pub(crate) struct ClientSession {
    connection: Connection,
    style: Style,
    /// Time of each command that waits for its reply.
    said: VecDeque<Instant>,
    /// Octets of a reply that is not whole.
    partial: Vec<u8>,
    output: VecDeque<Bytes>,
    /// Content goes with BDAT (RFC 3030).
    is_chunking: bool,
    /// Keywords of the last reply to EHLO, with parameters: what the connection did not hear.
    offers: Offers,
    /// AUTH or XCLIENT under way.
    exchange: Option<Exchange>,
    /// The command that succeeded, or was refused.
    exchanged: Option<(Phase, bool)>,
    /// Files that record both sides of the dialog (-v).
    sinks: TranscriptSinks,
}

impl ClientSession {
    /// A session on a connection that was made just now. With `is_chunking` its messages are marked as binary, so that
    /// the connection sends them with BDAT.
    pub(crate) fn new(
        settings: ClientSettings,
        style: Style,
        is_chunking: bool,
        sinks: TranscriptSinks,
        now: Instant,
    ) -> Self {
        Self {
            is_chunking,
            offers: Offers::default(),
            exchange: None,
            exchanged: None,
            connection: Connection::new(settings),
            style,
            said: VecDeque::from([now]),
            partial: Vec::new(),
            output: VecDeque::new(),
            sinks,
        }
    }

    /// Returns the octets to be written, in order.
    pub(crate) fn output(&mut self) -> &mut VecDeque<Bytes> {
        &mut self.output
    }

    /// Returns the phase of the reply that is waited for; none between messages.
    pub(crate) fn waits_for(&self) -> Option<Phase> {
        let own = self.exchange.as_ref().map(|exchange| exchange.phase);
        own.or_else(|| self.connection.expected_replies().next().map(Phase::from))
    }

    /// Returns the keywords of the last reply to EHLO.
    pub(crate) fn offers(&self) -> &Offers {
        &self.offers
    }

    /// Authenticates; [`ClientSession::exchanged`] says when that is done.
    ///
    /// # Errors
    /// The server offers no mechanism that the source has.
    pub(crate) fn authenticate(
        &mut self,
        credentials: &Credentials,
        mechanism: Option<Mechanism>,
        now: Instant,
    ) -> Result<(), String> {
        let exchange = Exchange::auth(credentials, mechanism, &self.offers.auth, now)?;
        self.exchange(exchange);
        Ok(())
    }

    /// Tells the server of another client; the session begins anew when that is done.
    ///
    /// # Errors
    /// The server does not offer XCLIENT.
    pub(crate) fn xclient(&mut self, attributes: &[String], now: Instant) -> Result<(), String> {
        if !self.offers.xclient {
            return Err("XCLIENT is not offered, which --xclient needs".to_owned());
        }
        self.exchange(Exchange::xclient(attributes, now));
        Ok(())
    }

    fn exchange(&mut self, mut exchange: Exchange) {
        let line = exchange.begin();
        self.exchange = Some(exchange);
        self.say(line.into());
    }

    /// Returns AUTH or XCLIENT when it is done, and whether it succeeded.
    pub(crate) fn exchanged(&mut self) -> Option<(Phase, bool)> {
        self.exchanged.take()
    }

    fn exchange_reply(
        &mut self,
        reply: &[u8],
        now: Instant,
        counts: &mut SourceCounts,
    ) -> Result<(), ProtocolViolation> {
        let Some(exchange) = &mut self.exchange else { return Ok(()) };
        let phase = exchange.phase;
        counts.took(phase, now.saturating_duration_since(exchange.said));
        let code = code_of(reply).ok_or(ProtocolViolation::BadCode)?;
        match exchange.reply(code, reply.get(4..).unwrap_or_default(), now) {
            Progress::Say(line) => self.say(line.into()),
            Progress::Done => {
                self.exchange = None;
                self.exchanged = Some((phase, true));
                if phase == Phase::Xclient {
                    // The server greets the client anew, which says EHLO again.
                    self.secured(now);
                }
            }
            Progress::Failed => {
                counts.failed_in(phase, Fault::Refused(code));
                self.exchange = None;
                self.exchanged = Some((phase, false));
            }
        }
        Ok(())
    }

    /// TLS began before the greeting, for which the time counts from now on.
    pub(crate) fn greets_from(&mut self, now: Instant) {
        self.said = VecDeque::from([now]);
    }

    /// May [`ClientSession::begin`] be called?
    pub(crate) fn can_begin(&self) -> bool {
        self.connection.can_begin()
    }

    /// May commands follow without waiting?
    pub(crate) fn pipelines(&self) -> bool {
        self.connection.capabilities().pipelining
    }

    /// Does the server offer STARTTLS?
    pub(crate) fn offers_tls(&self) -> bool {
        self.connection.capabilities().starttls
    }

    /// Sends a message.
    pub(crate) fn begin(&mut self, transaction: Transaction, now: Instant) {
        self.connection.begin(transaction);
        self.collect(now);
    }

    /// Sends QUIT.
    pub(crate) fn quit(&mut self, now: Instant) {
        self.connection.quit();
        self.collect(now);
    }

    /// Sends STARTTLS.
    pub(crate) fn start_tls(&mut self, now: Instant) {
        self.connection.start_tls();
        self.collect(now);
    }

    /// Goes on after the handshake.
    pub(crate) fn secured(&mut self, now: Instant) {
        self.connection.secured();
        self.collect(now);
    }

    /// Returns what has happened since the last call.
    pub(crate) fn next_event(&mut self) -> Option<Event> {
        self.connection.next_event()
    }

    /// Takes bytes from the server, one reply after the other, so that each has its own time. Earlier bytes came at
    /// `before`, if nothing was written since.
    pub(crate) fn receive(
        &mut self,
        bytes: &[u8],
        before: Option<Arrival>,
        now: Instant,
        counts: &mut SourceCounts,
    ) -> Result<(), ProtocolViolation> {
        if let (Some(before), Some(phase), Some(_)) =
            (before, self.waits_for(), end_of_reply(&self.partial, bytes))
        {
            let pause = now.saturating_duration_since(before.at);
            counts.pauses.waited(phase, pause, before.is_acknowledged);
        }
        let mut rest = bytes;
        while let Some(end) = end_of_reply(&self.partial, rest) {
            let (reply, behind) = rest.split_at(end);
            rest = behind;
            if self.partial.is_empty() {
                self.reply(reply, now, counts)?;
            } else {
                let mut whole = std::mem::take(&mut self.partial);
                whole.extend_from_slice(reply);
                self.reply(&whole, now, counts)?;
            }
        }
        self.partial.extend_from_slice(rest);
        if self.partial.len() > REPLY_MAX {
            return Err(ProtocolViolation::ManyLines);
        }
        Ok(())
    }

    fn reply(
        &mut self,
        reply: &[u8],
        now: Instant,
        counts: &mut SourceCounts,
    ) -> Result<(), ProtocolViolation> {
        self.show("<<<", reply);
        if self.exchange.is_some() {
            return self.exchange_reply(reply, now, counts);
        }
        let awaited = self.connection.expected_replies().next();
        if let (Some(awaited), Some(said)) = (awaited, self.said.pop_front()) {
            let phase = Phase::from(awaited);
            counts.took(phase, now.saturating_duration_since(said));
            if let Some(code @ 400..) = code_of(reply) {
                counts.failed_in(phase, Fault::Refused(code));
            }
            if awaited == ExpectedReply::Hello && reply.starts_with(b"250") {
                self.offers = Offers::parse(reply);
                // What is not heard is not used.
                let heard = self.heard(reply);
                self.connection.receive(&heard)?;
                self.collect(now);
                return Ok(());
            }
        }
        self.connection.receive(reply)?;
        self.collect(now);
        Ok(())
    }

    /// Returns the reply to EHLO that the connection hears.
    fn heard(&self, reply: &[u8]) -> Vec<u8> {
        let Offers { starttls, chunking, pipelining, .. } = self.offers;
        if self.style == Style::Extended && !self.is_chunking {
            return reply.to_vec();
        }
        let is_chosen = self.style == Style::Chosen;
        let words = [
            (pipelining && self.style == Style::Extended, "PIPELINING"),
            (starttls && (is_chosen || self.style == Style::Extended), "STARTTLS"),
            (chunking && self.is_chunking, "CHUNKING"),
            (chunking && self.is_chunking, "BINARYMIME"),
        ];
        let lines = words.iter().filter(|(is_heard, _)| *is_heard).map(|(_, word)| format!("250-{word}\r\n"));
        format!("250-ok\r\n{}250 ok\r\n", lines.collect::<String>()).into_bytes()
    }

    /// Takes what the connection says, and remembers when.
    fn collect(&mut self, now: Instant) {
        while let Some(piece) = self.connection.next_piece() {
            match piece {
                OutputPiece::Text(text) if self.swallows(&text) => {}
                OutputPiece::Text(text) if self.is_chunking => self.say(without_binary(text).into()),
                OutputPiece::Text(text) => self.say(text.into()),
                OutputPiece::Content(bytes) => self.say(bytes),
                OutputPiece::Load(_) => unreachable!("messages are in memory"),
            }
        }
        self.said.resize(self.connection.expected_replies().len(), now);
    }

    fn say(&mut self, bytes: Bytes) {
        self.show(">>>", &bytes);
        self.output.push_back(bytes);
    }

    fn show(&self, side: &str, bytes: &[u8]) {
        show(&self.sinks, side, bytes);
    }

    /// The server is asked for no extensions: the connection gets an empty list.
    fn swallows(&mut self, text: &[u8]) -> bool {
        let answer: &[u8] = match self.style {
            Style::Plain if text.starts_with(b"EHLO ") => b"502 5.5.1 not asked\r\n",
            Style::Mute if text.starts_with(b"EHLO ") || text.starts_with(b"LHLO ") => b"250 not asked\r\n",
            _ => return false,
        };
        // It is a good reply, at the place where one is expected.
        self.connection.receive(answer).is_ok()
    }
}

/// The keywords in a reply to EHLO that the source asks for.
#[derive(Debug, Default)]
pub(crate) struct Offers {
    starttls: bool,
    pipelining: bool,
    pub(crate) chunking: bool,
    xclient: bool,
    /// Of AUTH, in the server's order.
    auth: Vec<String>,
}

impl Offers {
    fn parse(reply: &[u8]) -> Self {
        let has = |keyword| exchange::parameters(reply, keyword).is_some();
        Self {
            starttls: has("STARTTLS"),
            pipelining: has("PIPELINING"),
            chunking: has("CHUNKING"),
            xclient: has("XCLIENT"),
            auth: exchange::parameters(reply, "AUTH").unwrap_or_default(),
        }
    }
}

fn code_of(reply: &[u8]) -> Option<u16> {
    std::str::from_utf8(reply.get(..3)?).ok()?.parse().ok()
}

/// Removes BODY=BINARYMIME from MAIL: BDAT does not need it, and the content is text.
fn without_binary(text: Vec<u8>) -> Vec<u8> {
    const BODY: &[u8] = b" BODY=BINARYMIME";
    match memmem::find(&text, BODY) {
        Some(at) if text.starts_with(b"MAIL ") || text.starts_with(b"RSET") => {
            [&text[..at], &text[at + BODY.len()..]].concat()
        }
        _ => text,
    }
}

/// A server that says more before it ends a reply is none.
const REPLY_MAX: usize = 64 * 1024;

/// Returns the end of the first reply of `partial` and `bytes` together, as an offset in `bytes`. A line that is
/// no part of a reply counts as one: the connection says what is wrong with it.
fn end_of_reply(partial: &[u8], bytes: &[u8]) -> Option<usize> {
    let mut from = 0;
    let last = partial.iter().rposition(|b| *b == b'\n').map_or(0, |i| i + 1);
    if last < partial.len() {
        // A line has begun in `partial`: it goes on to the first line end here.
        let end = memchr(b'\n', bytes)? + 1;
        let start: Vec<u8> = partial[last..].iter().chain(bytes).take(4).copied().collect();
        if !goes_on(&start) {
            return Some(end);
        }
        from = end;
    }
    while let Some(end) = memchr(b'\n', &bytes[from..]).map(|i| from + i + 1) {
        if !goes_on(&bytes[from..end]) {
            return Some(end);
        }
        from = end;
    }
    None
}

/// `250-` and the like: the reply has another line.
fn goes_on(line: &[u8]) -> bool {
    matches!(line, [b'0'..=b'9', _, _, b'-', ..])
}

/// Longest wait for a reply (RFC 5321 §4.5.3.2), when nothing is set.
pub(crate) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(300);

#[cfg(test)]
mod tests {
    use super::*;
    use smtp::client::Protocol;

    fn settings() -> ClientSettings {
        ClientSettings {
            protocol: Protocol::Smtp,
            hello: "me".into(),
            depth: 1,
            pipelining: true,
            eight_bit_anyway: true,
        }
    }

    /// Returns the output of the client after each reply of the server; replies come in pieces of `length`.
    fn dialog(style: Style, length: usize, words: &[&str]) -> (Vec<String>, SourceCounts) {
        let message = super::super::template::tests::template().next();
        let now = Instant::now();
        let (mut client_session, mut counts, mut said) = (
            ClientSession::new(settings(), style, false, TranscriptSinks::new(), now),
            SourceCounts::default(),
            Vec::new(),
        );
        for word in words {
            for piece in word.as_bytes().chunks(length) {
                client_session.receive(piece, None, now, &mut counts).unwrap();
            }
            while let Some(event) = client_session.next_event() {
                match event {
                    Event::Hello => {
                        let message = message.clone();
                        client_session.begin(
                            Transaction { id: 1, message, recipients: vec![0], deliver_by_seconds: 0 },
                            now,
                        );
                    }
                    Event::TransactionEnded(..) => client_session.quit(now),
                    _ => {}
                }
            }
            let all: Vec<u8> = client_session.output().drain(..).flatten().collect();
            said.push(String::from_utf8(all).unwrap());
        }
        assert_eq!(client_session.said.len(), client_session.connection.expected_replies().len());
        (said, counts)
    }

    #[test]
    fn plain_speech_is_helo_and_one_command_at_a_time() {
        for length in [1, 3, 100] {
            let words =
                ["220 hi\r\n", "250 x\r\n", "250 ok\r\n", "250 ok\r\n", "354 go\r\n", "250-a\r\n250 b\r\n"];
            let (said, counts) = dialog(Style::Plain, length, &words);
            assert_eq!(
                said[..4],
                ["HELO me\r\n", "MAIL FROM:<a@b.example>\r\n", "RCPT TO:<c@d.example>\r\n", "DATA\r\n"]
            );
            assert!(said[4].ends_with("\r\n.\r\n") && said[5] == "QUIT\r\n", "{said:?}");
            for phase in [Phase::Banner, Phase::Hello, Phase::Mail, Phase::Rcpt, Phase::Data, Phase::Final] {
                assert_eq!(counts.times(phase).len(), 1, "{phase}");
            }
        }
    }

    #[test]
    fn the_mute_style_begins_with_mail() {
        let (said, _) = dialog(Style::Mute, 100, &["220 hi\r\n"]);
        assert_eq!(said, ["MAIL FROM:<a@b.example>\r\n"]);
    }

    #[test]
    fn extended_speech_pipelines_and_each_reply_is_timed() {
        let words = ["220 hi\r\n", "250-x\r\n250 PIPELINING\r\n", "250 a\r\n450 b\r\n554 c\r\n"];
        for length in [1, 7, 100] {
            let (said, counts) = dialog(Style::Extended, length, &words);
            assert_eq!(said[1], "MAIL FROM:<a@b.example>\r\nRCPT TO:<c@d.example>\r\nDATA\r\n");
            assert_eq!(counts.faults[&(Phase::Rcpt, Fault::Refused(450))], 1);
            assert_eq!(counts.faults[&(Phase::Data, Fault::Refused(554))], 1);
            assert_eq!(said[2], "QUIT\r\n");
        }
    }
}
