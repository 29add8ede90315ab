//! The conversation with a filter about the messages of a connection.

use crate::{
    Actions, Command, Event, Macro, Offer, ProtocolError, SendError, Stage, Steps, Verdict, answer,
    negotiation::Agreement,
    wire::{Unread, push_packet, push_string},
};

/// Data of a packet that any filter takes.
const DATA_MAX_BYTES: usize = 65_535;

/// What follows a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a filter that owes an answer must give it before the next command"]
pub enum Expect {
    /// Write the output, and read until [`Session::receive`] returns a verdict.
    Answer,
    /// The filter does not answer, or was told nothing: go on as if it had said [`Verdict::Continue`]. There may be output,
    /// which can be written together with that of the next command.
    Nothing,
}

/// Where the client's session is: which commands may follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Position {
    /// Before the connection.
    New,
    /// Between two messages.
    Idle,
    /// Behind MAIL.
    Envelope,
    /// Behind DATA.
    Header,
    /// Behind the end of the header.
    Body,
}

impl Position {
    /// Returns the place behind a command; `None` if it cannot come here.
    const fn after(self, stage: Stage) -> Option<Self> {
        Some(match (self, stage) {
            (Self::New, Stage::Connect) => Self::Idle,
            (Self::Idle, Stage::Hello) => Self::Idle,
            (Self::Idle | Self::Envelope, Stage::Unknown) => self,
            (Self::Idle, Stage::Mail) => Self::Envelope,
            (Self::Envelope, Stage::Recipient) => Self::Envelope,
            (Self::Envelope, Stage::Data) => Self::Header,
            (Self::Header, Stage::Header) => Self::Header,
            (Self::Header, Stage::EndOfHeaders) => Self::Body,
            (Self::Body, Stage::Body) => Self::Body,
            (Self::Body, Stage::EndOfMessage) => Self::Idle,
            _ => return None,
        })
    }
}

/// What needs no more commands, since a verdict has decided it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Decided {
    Nothing,
    Message,
    Connection,
}

/// The conversation with a filter, from the negotiation to quit: one SMTP session after the other, each with one message after
/// the other.
///
/// [`Session::send`] takes a command at a time, in the order of SMTP: connect; HELO; MAIL, RCPT, DATA, the header fields, the end
/// of the header, the body, the end of the message; MAIL, and so on. Between two commands the driver writes the output; after
/// [`Expect::Answer`] it also reads until it has the verdict. A message that ends in another way, after RSET or a
/// refused MAIL, ends with [`Session::abort`]. Commands that the filter does not want, or that a verdict has made needless, are
/// checked for their order and not written, so that a driver need not know the difference.
///
/// The session keeps no more than one incomplete answer, of at most [`Session::ANSWER_MAX_BYTES`].
#[derive(Debug)]
pub struct Session {
    offer: Offer,
    agreement: Agreement,
    unread: Unread,
    position: Position,
    /// What the filter has yet to answer.
    awaited: Option<Stage>,
    decided: Decided,
    /// After [`crate::Verdict::Skip`]: no chunk of this body is sent any more.
    is_body_skipped: bool,
    /// The filter was told of the message, and not of its end.
    is_message_open: bool,
    /// Stages whose macros the filter has, by their place in [`Stage`].
    has_macros: u16,
    edit_bytes: usize,
    /// libmilter is in one of the two states in which it does not ignore that another connection follows.
    takes_next: bool,
    failure: Option<ProtocolError>,
    is_closed: bool,
}

impl Session {
    /// The longest answer that is read, in octets: libmilter sends bodies in packets of 65,535 octets, and header fields in one.
    pub const ANSWER_MAX_BYTES: usize = 1024 * 1024;

    /// The most octets of all changes to one message, replaced bodies apart: a driver may collect them.
    pub const EDITS_MAX_BYTES: usize = 4 * 1024 * 1024;

    /// Begins the conversation: appends the offer to the output. The next event is [`Event::Negotiated`].
    pub fn new(offer: &Offer, out: &mut Vec<u8>) -> Self {
        let offer = offer.of_its_version();
        push_packet(out, b'O', DATA_MAX_BYTES, |out| offer.push(out)).expect("an offer is short");
        Self {
            offer,
            agreement: Agreement::default(),
            unread: Unread::default(),
            position: Position::New,
            awaited: Some(Stage::Negotiation),
            decided: Decided::Nothing,
            is_body_skipped: false,
            is_message_open: false,
            has_macros: 0,
            edit_bytes: 0,
            takes_next: false,
            failure: None,
            is_closed: false,
        }
    }

    /// The version that is spoken: 2 to 6; 0 before the negotiation.
    pub fn version(&self) -> u32 {
        self.agreement.version
    }

    /// What the filter may do; nothing before the negotiation.
    pub fn actions(&self) -> Actions {
        self.agreement.actions
    }

    /// The steps that the filter chose; none before the negotiation.
    pub fn steps(&self) -> Steps {
        self.agreement.steps
    }

    /// Returns how many octets of the body one command may carry.
    pub fn chunk_max_bytes(&self) -> usize {
        self.agreement.data_max()
    }

    /// The stage that the filter has yet to answer.
    pub fn awaited(&self) -> Option<Stage> {
        self.awaited
    }

    /// Returns whether a command of this stage would be written now, if its turn is come. What the filter does not want need not be
    /// kept for it, such as a body.
    pub fn wants(&self, stage: Stage) -> bool {
        self.decided == Decided::Nothing
            && !(stage == Stage::Body && self.is_body_skipped)
            && self.agreement.steps.has_command(stage)
    }

    /// Appends a command to the output, if the filter wants to know; in front of it those of the macros that the filter wants.
    ///
    /// # Errors
    /// The command cannot be sent now, or is too long; then nothing changes.
    pub fn send(
        &mut self,
        command: &Command<'_>,
        macros: &[Macro<'_>],
        out: &mut Vec<u8>,
    ) -> Result<Expect, SendError> {
        let stage = command.stage();
        self.check_idle()?;
        let position = self.position.after(stage).ok_or(SendError::OutOfOrder(stage))?;
        let is_sent = self.wants(stage) && self.is_of_interest(command);
        if is_sent {
            let before = out.len();
            self.push(command, macros, out).ok_or_else(|| {
                out.truncate(before);
                SendError::TooLong(stage)
            })?;
        }
        self.position = position;
        if stage == Stage::EndOfMessage && !is_sent {
            // The filter accepted or refused the message before its end, and some wait to be told that it is over.
            self.end_message(out);
        }
        if !is_sent {
            return Ok(Expect::Nothing);
        }
        self.is_message_open |= !matches!(stage, Stage::Connect | Stage::Hello | Stage::Unknown);
        if !self.agreement.steps.has_answer(stage) {
            self.takes_next = stage == Stage::Unknown;
            return Ok(Expect::Nothing);
        }
        self.awaited = Some(stage);
        Ok(Expect::Answer)
    }

    fn check_idle(&self) -> Result<(), SendError> {
        match self.awaited {
            _ if self.is_closed || self.failure.is_some() => Err(SendError::Closed),
            Some(_) => Err(SendError::AnswerAwaited),
            None => Ok(()),
        }
    }

    /// Returns false for commands that mean nothing to this filter.
    fn is_of_interest(&self, command: &Command<'_>) -> bool {
        match command {
            Command::Recipient { is_rejected: true, .. } => {
                self.agreement.steps.contains(Steps::REJECTED_RECIPIENTS)
            }
            Command::Body(chunk) => !chunk.is_empty(),
            _ => true,
        }
    }

    fn push(&mut self, command: &Command<'_>, macros: &[Macro<'_>], out: &mut Vec<u8>) -> Option<()> {
        let (stage, max) = (command.stage(), self.agreement.data_max());
        let mut wanted = Vec::new();
        self.agreement.macros.push(stage, macros, &mut wanted);
        let bit = 1 << stage as u16;
        let has_any = !wanted.is_empty();
        // The filter would keep the macros of the command before; libmilter also does if it is sent none.
        if !has_any && self.has_macros & bit != 0 {
            push_string(&mut wanted, b"{none}");
            push_string(&mut wanted, b"");
        }
        if !wanted.is_empty() {
            push_packet(out, b'D', max, |out| {
                out.push(command.kind());
                out.extend_from_slice(&wanted);
            })?;
        }
        push_packet(out, command.kind(), max, |out| command.push(self.agreement.steps, out))?;
        self.has_macros = if has_any { self.has_macros | bit } else { self.has_macros & !bit };
        Some(())
    }

    /// Takes octets of the filter from `input`, and returns the next event; `None` if all octets are taken and more are needed.
    /// Call it until it returns `None` or a verdict.
    ///
    /// # Errors
    /// The filter broke the protocol. All further calls return the same error.
    pub fn receive(&mut self, input: &mut &[u8]) -> Result<Option<Event>, ProtocolError> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        self.read(input).inspect_err(|failure| {
            self.failure = Some(*failure);
            self.unread = Unread::default();
        })
    }

    fn read(&mut self, input: &mut &[u8]) -> Result<Option<Event>, ProtocolError> {
        let Some(stage) = self.awaited else {
            return if input.is_empty() { Ok(None) } else { Err(ProtocolError::Unsolicited) };
        };
        let Some(packet) = self.unread.next(input, Self::ANSWER_MAX_BYTES)? else { return Ok(None) };
        if stage == Stage::Negotiation {
            if packet.kind != b'O' {
                return Err(ProtocolError::Misplaced { answer: packet.kind, stage });
            }
            self.agreement = Agreement::parse(&self.offer, &packet.data)?;
            self.awaited = None;
            return Ok(Some(Event::Negotiated));
        }
        let bytes = packet.data.len();
        let event = answer::parse(packet, stage, self.agreement.actions, self.agreement.steps)?;
        match &event {
            Event::Verdict(verdict) => self.decide(stage, verdict),
            Event::Edit(answer::Edit::ReplaceBody(_)) | Event::Progress | Event::Negotiated => {}
            Event::Edit(_) => {
                self.edit_bytes += bytes + size_of::<answer::Edit>();
                if self.edit_bytes > Self::EDITS_MAX_BYTES {
                    return Err(ProtocolError::TooManyEdits);
                }
            }
        }
        Ok(Some(event))
    }

    fn decide(&mut self, stage: Stage, verdict: &Verdict) {
        self.awaited = None;
        self.takes_next =
            *verdict == Verdict::Continue && matches!(stage, Stage::EndOfMessage | Stage::Unknown);
        let decided = match (stage, verdict) {
            (_, Verdict::Continue) => Decided::Nothing,
            (_, Verdict::Skip) => {
                self.is_body_skipped = true;
                Decided::Nothing
            }
            (_, Verdict::Shutdown | Verdict::DropConnection) | (Stage::Connect | Stage::Hello, _) => {
                Decided::Connection
            }
            (Stage::Unknown, _) => Decided::Nothing,
            (Stage::Recipient, Verdict::Reject | Verdict::TempFail | Verdict::Reply(_)) => Decided::Nothing,
            (_, _) => Decided::Message,
        };
        if decided != Decided::Nothing {
            self.decided = decided;
        }
        if stage == Stage::EndOfMessage {
            self.is_message_open = false;
            self.end_message(&mut Vec::new());
        }
    }

    /// Ends a message before its end, as after RSET. The filter does not answer; the next command is MAIL, HELO, or one of the
    /// unknown ones. Between two messages nothing happens.
    ///
    /// # Errors
    /// An answer is awaited, or the session has ended.
    pub fn abort(&mut self, out: &mut Vec<u8>) -> Result<(), SendError> {
        self.check_idle()?;
        self.end_message(out);
        Ok(())
    }

    /// Forgets a message; the filter is told unless it knows.
    fn end_message(&mut self, out: &mut Vec<u8>) {
        if self.is_message_open && self.decided != Decided::Connection {
            push_packet(out, b'A', DATA_MAX_BYTES, |_| {}).expect("no data are short");
            self.takes_next = false;
        }
        if self.position != Position::New {
            self.position = Position::Idle;
        }
        if self.decided == Decided::Message {
            self.decided = Decided::Nothing;
        }
        (self.is_message_open, self.is_body_skipped, self.edit_bytes) = (false, false, 0);
    }

    /// Ends the SMTP session, and keeps the conversation for the next one, which begins with a connection. Returns false, and
    /// changes nothing, if the filter may not take that: then quit, and begin a new conversation.
    ///
    /// That is so before version 6; and libmilter ignores the command, and the connection behind it, unless the last thing that it
    /// answered was the end of a message or an unknown command, with [`Verdict::Continue`].
    ///
    /// # Errors
    /// An answer is awaited, or the session has ended.
    pub fn next_connection(&mut self, out: &mut Vec<u8>) -> Result<bool, SendError> {
        self.check_idle()?;
        if self.position == Position::New {
            return Ok(true);
        }
        if self.agreement.version < 6 || !self.takes_next || self.is_message_open {
            return Ok(false);
        }
        push_packet(out, b'K', DATA_MAX_BYTES, |_| {}).expect("no data are short");
        self.end_message(out);
        (self.position, self.decided) = (Position::New, Decided::Nothing);
        (self.has_macros, self.takes_next) = (0, false);
        Ok(true)
    }

    /// Ends the conversation, whatever its state; the driver writes the output, and closes the socket without reading.
    pub fn quit(&mut self, out: &mut Vec<u8>) {
        if !self.is_closed && self.failure.is_none() {
            push_packet(out, b'Q', DATA_MAX_BYTES, |_| {}).expect("no data are short");
        }
        self.is_closed = true;
    }
}

#[cfg(test)]
mod tests;
