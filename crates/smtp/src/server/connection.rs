//! One server connection: bytes in, questions and content out, replies collected for writing.
//!
//! The driver's loop:
//! 1. [`Connection::step`] with the unread input, until it wants more;
//! 2. answer what it asks ([`Connection::answer`] and its neighbours, [`Connection::tls_established`]);
//! 3. write [`Connection::output`] before waiting for anything: replies of a pipelined group leave
//!    in one write (RFC 2920 §3.2).

mod read_content;

use super::{
    content::{BareLf, DataDecoder},
    counts::{CommandCounts, Verb},
    profile::{Keyword, Profile},
    replies,
    session::{Action, AuthInput, Input, Query, Refused, Session, closes},
};
use crate::{Command, Limits, LoosePaths, command, forwarded::ClientAttributes};
use mail::{Envelope, Reply, UnixMillis};
use memchr::memchr;
use read_content::ChunkText;
use std::sync::Arc;

/// Longest line of an authentication exchange, CRLF included (RFC 4954 §4).
const AUTH_LINE_MAX_BYTES: usize = 12_288;

/// The next action of the driver.
#[derive(Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// Write the output, then read more behind what is left of the input.
    NeedInput,
    /// Answer with [`Connection::answer`]: may the client be [`Session::judged_hello`]? Of a positive answer only
    /// the fact counts: the reply is EHLO's.
    JudgeHello,
    /// Answer with [`Connection::challenge`] or, at the end of the exchange, with [`Connection::answer`].
    Authenticate(AuthInput),
    /// Answer with [`Connection::answer`]: may the sender of [`Session::envelope`] mail?
    JudgeSender,
    /// Answer with [`Connection::answer`]: may [`Session::judged_recipient`] be mailed?
    JudgeRecipient,
    /// A new message's content begins.
    StartContent,
    /// Octets of content, in order.
    Content(&'a [u8]),
    /// Forget the content: the message was refused.
    DiscardContent(Box<Refused>),
    /// Nothing to do: a command was refused because of a limit.
    Refused(Box<Refused>),
    /// The content is complete. Either take the message with [`Connection::accept_content`], make it durable and
    /// answer with [`Connection::answer`]; or answer at once, and there is no message.
    JudgeContent,
    /// Write the output, do the TLS handshake, then call [`Connection::tls_established`].
    StartTls,
    /// Call [`Connection::set_time`], and do the step that it returns, if any.
    AskTime,
    /// Answer a question of the client with [`Connection::answer`].
    Query(Query),
    /// The peer names its client. Call [`Connection::restart`], or refuse with [`Connection::answer`].
    ChangeClient(Box<ClientAttributes>),
    /// The peer names the client from whom the next mail is. Answer with [`Connection::answer`].
    NoteForwarded(Box<ClientAttributes>),
    /// Write the output and close.
    Close,
}

/// The way in which the input is read.
#[derive(Debug)]
enum Mode {
    Commands,
    /// The rest of an over-long line, which has this reply.
    SkipLine(Reply),
    /// A line of an authentication exchange.
    AuthLine,
    /// The rest of such a line, which was too long.
    SkipAuthLine,
    Data(DataDecoder),
    Chunk {
        left: u64,
        last: bool,
    },
    SkipChunk {
        left: u64,
        reply: Reply,
    },
    Closed,
}

/// A server connection; see the module's text for how it is driven.
#[derive(Debug)]
pub struct Connection {
    session: Session,
    mode: Mode,
    limits: Arc<Limits>,
    profile: Arc<Profile>,
    output: Vec<u8>,
    /// Octets of the message's content so far.
    content_bytes: u64,
    /// A BDAT transaction has begun: its first chunk was announced.
    chunks_begun: bool,
    /// The treatment of a bare CR or LF.
    bare_lf: BareLf,
    is_trusted: bool,
    /// The last command line ended in CRLF.
    is_crlf_line: bool,
    /// The way in which the octets of chunks become content.
    chunk_text: ChunkText,
    /// A driver's reason to refuse the current content, found while it arrived.
    refusal: Option<Reply>,
    /// A question is open: input waits.
    waiting: bool,
    counts: CommandCounts,
    /// The reply that closed the connection.
    closed_by: Option<Reply>,
}

impl Connection {
    /// A connection whose greeting stands in the output.
    pub fn new(limits: Arc<Limits>, profile: Arc<Profile>, tls: bool) -> Self {
        let mut output = Vec::with_capacity(256);
        greeting(&profile).write_to(&mut output);
        Self {
            session: Session::new(tls),
            mode: Mode::Commands,
            limits,
            profile,
            output,
            content_bytes: 0,
            chunks_begun: false,
            bare_lf: BareLf::default(),
            is_trusted: false,
            is_crlf_line: false,
            chunk_text: ChunkText::default(),
            refusal: None,
            waiting: false,
            counts: CommandCounts::default(),
            closed_by: None,
        }
    }

    /// Sets whether the driver trusts the client, by its address. The default is not to.
    pub fn set_trusted(&mut self, is_trusted: bool) {
        self.is_trusted = is_trusted;
    }

    /// Returns whether the driver trusts the client.
    pub fn is_trusted(&self) -> bool {
        self.is_trusted
    }

    fn parse(&self, line: &[u8]) -> Result<Command, Reply> {
        let loose = match self.limits.loose_paths {
            LoosePaths::Nobody => false,
            LoosePaths::Trusted => self.is_trusted || self.session.is_authenticated(),
            LoosePaths::Everybody => true,
        };
        command::parse_with(line, &self.limits, self.session.utf8(), loose)
    }

    /// Sets the treatment of a bare CR or LF in commands and content. The default is to reject.
    pub fn set_bare_lf(&mut self, bare_lf: BareLf) {
        self.bare_lf = bare_lf;
    }

    /// Replies to write; the driver empties it.
    pub fn output(&mut self) -> &mut Vec<u8> {
        &mut self.output
    }

    /// The session's facts: hello name, protocol, whether it is idle.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Returns the counts of the commands so far.
    pub fn counts(&self) -> &CommandCounts {
        &self.counts
    }

    /// Returns the reply that closed the connection, if one did.
    pub fn closed_by(&self) -> Option<&Reply> {
        self.closed_by.as_ref()
    }

    /// Returns what the client did last, as it stands in `lost connection after RCPT`.
    pub fn last_stage(&self) -> &'static str {
        match self.counts.last() {
            None => "CONNECT",
            Some(Verb::Data | Verb::Bdat) if !self.reads_content() => "END-OF-MESSAGE",
            Some(verb) => verb.as_str(),
        }
    }

    /// Returns whether content is read now, so that the data timeout counts and not the command timeout.
    pub fn reads_content(&self) -> bool {
        matches!(self.mode, Mode::Data(_) | Mode::Chunk { .. } | Mode::SkipChunk { .. })
    }

    /// Returns whether input is skipped now: the rest of an over-long line or of a refused chunk. Skipped input does
    /// not count as progress.
    pub fn is_skipping(&self) -> bool {
        matches!(self.mode, Mode::SkipLine(_) | Mode::SkipAuthLine | Mode::SkipChunk { .. })
    }

    /// Rejects the current content: the reply is given at its end, the rest is skipped.
    pub fn refuse_content(&mut self, reply: Reply) {
        self.refusal.get_or_insert(reply);
    }

    /// Sends `reply` and closes, for a timeout or shutdown, whatever question is open.
    pub fn close_with(&mut self, reply: &Reply) {
        reply.write_to(&mut self.output);
        self.waiting = false;
        self.mode = Mode::Closed;
        self.closed_by = Some(reply.clone());
    }

    /// The facts of the session and the replies to write, both at once.
    pub fn session_and_output(&mut self) -> (&Session, &mut Vec<u8>) {
        (&self.session, &mut self.output)
    }

    /// The answer to the open question.
    pub fn answer(&mut self, reply: Reply) {
        let step = self.resume(Input::Answer(reply));
        debug_assert!(matches!(step, None | Some(Step::Close)), "an answer only sends or closes");
    }

    /// Sends a challenge to a client that authenticates.
    pub fn challenge(&mut self, challenge: Vec<u8>) {
        let step = self.resume(Input::Challenge(challenge));
        debug_assert!(step.is_none(), "a challenge is sent");
    }

    /// The answer to [`Step::JudgeContent`] that takes the message. The driver makes the message durable and then
    /// answers once more, with [`Connection::answer`].
    ///
    /// # Panics
    /// When that question is not open.
    pub fn accept_content(&mut self) -> Envelope {
        debug_assert!(self.waiting, "no question is open");
        match self.session.step(Input::Accepted, &self.limits, &self.profile) {
            Action::Commit(envelope) => *envelope,
            action => unreachable!("accepted content is committed, not {action:?}"),
        }
    }

    /// The answer to [`Step::AskTime`]. Returns the next step of the command that asked.
    pub fn set_time(&mut self, now: UnixMillis) -> Option<Step<'static>> {
        self.resume(Input::Time(now))
    }

    /// The answer to [`Step::ChangeClient`] that begins the session anew, with a greeting. `hello`: the name of the client
    /// and whether it speaks ESMTP, if the driver has accepted the name.
    pub fn restart(&mut self, hello: Option<(Box<str>, bool)>) {
        debug_assert!(self.waiting, "no question is open");
        self.waiting = false;
        self.session.restart(hello);
        greeting(&self.profile).write_to(&mut self.output);
    }

    fn resume(&mut self, input: Input) -> Option<Step<'static>> {
        debug_assert!(self.waiting, "no question is open");
        self.waiting = false;
        let action = self.session.step(input, &self.limits, &self.profile);
        self.act(action)
    }

    /// Takes a keyword out of the profile: its command and parameters are refused from now on.
    pub fn withdraw(&mut self, keyword: Keyword) {
        if self.profile.has(keyword) {
            self.profile = Arc::new((*self.profile).clone().without(keyword));
        }
    }

    /// Leaves keywords out of the replies to EHLO, whose commands are refused to this client. To be called while EHLO
    /// is judged.
    pub fn hide(&mut self, keywords: Vec<Keyword>) {
        self.session.hide(keywords);
    }

    /// The client's certificate was verified: mechanisms that need it are offered.
    pub fn certified(&mut self) {
        self.session.certified();
    }

    /// The handshake is done. What the client said before is forgotten.
    pub fn tls_established(&mut self) {
        self.waiting = false;
        self.session.secured();
    }

    /// Reads on; `input` loses what is used.
    pub fn step<'a>(&mut self, input: &mut &'a [u8]) -> Step<'a> {
        debug_assert!(!self.waiting, "a question is open");
        loop {
            let step = match &mut self.mode {
                Mode::Closed => Some(Step::Close),
                Mode::Commands => self.command_line(input),
                Mode::SkipLine(_) => self.skip_line(input),
                Mode::AuthLine => self.auth_line(input),
                Mode::SkipAuthLine => self.skip_auth_line(input),
                Mode::Data(_) => self.data(input),
                Mode::Chunk { .. } => self.chunk(input),
                Mode::SkipChunk { .. } => self.skip_chunk(input),
            };
            if let Some(step) = step {
                return step;
            }
        }
    }

    fn command_line<'a>(&mut self, input: &mut &'a [u8]) -> Option<Step<'a>> {
        let max = self.command_line_max(input);
        let Some(end) = memchr(b'\n', &input[..input.len().min(max)]) else {
            if input.len() < max {
                return Some(Step::NeedInput);
            }
            if announces_chunk(input) {
                self.close_with(&replies::BAD_CHUNK_SIZE);
            } else {
                let is_auth = max > self.limits.command_line_bytes;
                self.mode = Mode::SkipLine(if is_auth {
                    replies::AUTH_LINE_TOO_LONG
                } else {
                    replies::LINE_TOO_LONG
                });
            }
            return None;
        };
        let (line, rest) = input.split_at(end + 1);
        *input = rest;
        self.is_crlf_line = line.ends_with(b"\r\n");
        let parsed = match line {
            [text @ .., b'\r', b'\n'] => self.parse(text),
            [text @ .., b'\n'] if self.bare_lf == BareLf::Normalize => self.parse(text),
            // Only CRLF ends a line (RFC 5321 §2.3.8).
            _ => Err(replies::BARE_LF_IN_COMMAND),
        };
        self.counts.begin(parsed.as_ref().map_or_else(|_| Verb::of_line(line), Verb::of));
        let event = match parsed {
            Ok(command) if must_end_group(&command) && !input.is_empty() => {
                // What follows DATA or STARTTLS in one go was sent without waiting for our reply:
                // an attack or a broken client (RFC 3207 §4.2, RFC 2920 §3.1).
                self.close_with(&replies::OUT_OF_SYNC);
                return None;
            }
            Ok(command) => Input::Command(command),
            Err(_) if announces_chunk(line) => Input::Malformed(replies::BAD_CHUNK_SIZE),
            Err(_) if withheld(line).is_some_and(|(keyword, _)| !self.profile.has(keyword)) => {
                Input::Malformed(withheld(line).map_or(replies::NOT_OFFERED, |(_, reply)| reply))
            }
            Err(reply) => Input::Malformed(reply),
        };
        let action = self.session.step(event, &self.limits, &self.profile);
        self.act(action)
    }

    /// AUTH may carry an initial response (RFC 4954 §4).
    fn command_line_max(&self, input: &[u8]) -> usize {
        let max = self.limits.command_line_bytes;
        let is_auth = || input.get(..5).is_some_and(|verb| verb.eq_ignore_ascii_case(b"AUTH "));
        if input.len() >= max && self.profile.has(Keyword::Auth) && is_auth() {
            max.max(AUTH_LINE_MAX_BYTES)
        } else {
            max
        }
    }

    fn auth_line<'a>(&mut self, input: &mut &'a [u8]) -> Option<Step<'a>> {
        let Some(end) = memchr(b'\n', &input[..input.len().min(AUTH_LINE_MAX_BYTES)]) else {
            if input.len() < AUTH_LINE_MAX_BYTES {
                return Some(Step::NeedInput);
            }
            self.mode = Mode::SkipAuthLine;
            return None;
        };
        let (line, rest) = input.split_at(end + 1);
        *input = rest;
        let response = match line {
            b"*\r\n" => Err(replies::AUTH_CANCELLED),
            [text @ .., b'\r', b'\n'] => command::decode_base64(text).ok_or(replies::BAD_BASE64),
            [text @ .., b'\n'] if self.bare_lf == BareLf::Normalize => {
                command::decode_base64(text).ok_or(replies::BAD_BASE64)
            }
            _ => Err(replies::BARE_LF_IN_COMMAND),
        };
        self.end_auth_line(response)
    }

    fn skip_auth_line<'a>(&mut self, input: &mut &'a [u8]) -> Option<Step<'a>> {
        let Some(end) = memchr(b'\n', input) else {
            *input = &[];
            return Some(Step::NeedInput);
        };
        *input = &input[end + 1..];
        self.end_auth_line(Err(replies::AUTH_LINE_TOO_LONG))
    }

    fn end_auth_line<'a>(&mut self, response: Result<Vec<u8>, Reply>) -> Option<Step<'a>> {
        self.mode = Mode::Commands;
        let action = self.session.step(Input::AuthLine(response), &self.limits, &self.profile);
        self.act(action)
    }

    fn skip_line<'a>(&mut self, input: &mut &'a [u8]) -> Option<Step<'a>> {
        let Some(end) = memchr(b'\n', input) else {
            *input = &[];
            return Some(Step::NeedInput);
        };
        *input = &input[end + 1..];
        let Mode::SkipLine(reply) = std::mem::replace(&mut self.mode, Mode::Commands) else { unreachable!() };
        self.counts.begin(Verb::Unknown);
        let action = self.session.step(Input::Malformed(reply), &self.limits, &self.profile);
        self.act(action)
    }

    /// Does what the session decided. `None`: go on reading.
    fn act<'a>(&mut self, action: Action) -> Option<Step<'a>> {
        match action {
            Action::Send(reply) => {
                self.counts.note(&reply);
                reply.write_to(&mut self.output);
                None
            }
            Action::Refuse(refused) => {
                self.counts.note(&refused.reply);
                refused.reply.write_to(&mut self.output);
                Some(Step::Refused(refused))
            }
            Action::SendEach(reply, count) => {
                self.counts.note(&reply);
                (1..count).for_each(|_| reply.write_to(&mut self.output));
                if closes(&reply) {
                    self.close_with(&reply);
                    return Some(Step::Close);
                }
                reply.write_to(&mut self.output);
                None
            }
            Action::Close(reply) => {
                self.counts.note(&reply);
                self.close_with(&reply);
                Some(Step::Close)
            }
            Action::SkipChunk(left, reply) => {
                self.counts.note(&reply);
                self.mode = Mode::SkipChunk { left, reply };
                None
            }
            Action::ReadData => {
                replies::GO_AHEAD.write_to(&mut self.output);
                self.mode = Mode::Data(DataDecoder::new(self.bare_lf, self.is_crlf_line));
                self.start_content(false)
            }
            Action::ReadChunk { size_bytes, last } => {
                self.mode = Mode::Chunk { left: size_bytes, last };
                if self.chunks_begun { None } else { self.start_content(true) }
            }
            Action::JudgeSender => {
                self.chunks_begun = false;
                self.ask(Step::JudgeSender)
            }
            Action::JudgeRecipient => self.ask(Step::JudgeRecipient),
            Action::JudgeContent => self.ask(Step::JudgeContent),
            Action::Commit(_) => unreachable!("only accept_content takes a message"),
            Action::JudgeHello => self.ask(Step::JudgeHello),
            Action::Authenticate(input) => self.ask(Step::Authenticate(input)),
            Action::Challenge(challenge) => {
                let text = data_encoding::BASE64.encode(&challenge);
                Reply::new(334, None, text).write_to(&mut self.output);
                self.mode = Mode::AuthLine;
                None
            }
            Action::AskTime => self.ask(Step::AskTime),
            Action::Query(query) => self.ask(Step::Query(query)),
            Action::ChangeClient(attributes) => self.ask(Step::ChangeClient(attributes)),
            Action::NoteForwarded(attributes) => self.ask(Step::NoteForwarded(attributes)),
            Action::StartTls => {
                replies::GO_TLS.write_to(&mut self.output);
                self.ask(Step::StartTls)
            }
        }
    }

    fn ask<'a>(&mut self, question: Step<'a>) -> Option<Step<'a>> {
        self.waiting = true;
        Some(question)
    }
}

fn greeting(profile: &Profile) -> Reply {
    let protocol = if profile.is_lmtp { "LMTP" } else { "ESMTP" };
    Reply::new(220, None, format!("{} {protocol} Postrider", profile.hostname))
}

/// The keyword without which a command does not exist here, and then the reply to it, whatever its arguments are.
fn withheld(line: &[u8]) -> Option<(Keyword, Reply)> {
    let is = |verb: &str| {
        let (head, rest) = line.split_at(line.len().min(verb.len()));
        head.eq_ignore_ascii_case(verb.as_bytes()) && rest.first().is_none_or(u8::is_ascii_whitespace)
    };
    let commands = [
        ("AUTH", Keyword::Auth, replies::NOT_OFFERED),
        ("ETRN", Keyword::Etrn, replies::NOT_OFFERED),
        ("EXPN", Keyword::Expn, replies::NOT_OFFERED),
        ("XCLIENT", Keyword::XClient, replies::NOT_LISTED),
        ("XFORWARD", Keyword::XForward, replies::NOT_LISTED),
    ];
    commands.into_iter().find(|(verb, ..)| is(verb)).map(|(_, keyword, reply)| (keyword, reply))
}

/// Returns whether a chunk follows the line, which must not be read as commands even if the line has a fault.
fn announces_chunk(line: &[u8]) -> bool {
    line.get(..5)
        .is_some_and(|verb| verb.eq_ignore_ascii_case(b"BDAT ") || verb.eq_ignore_ascii_case(b"BDAT\t"))
}

/// DATA and STARTTLS must be the last of a pipelined group (RFC 2920 §3.1, RFC 3207 §4).
fn must_end_group(command: &Command) -> bool {
    matches!(command, Command::Data | Command::StartTls)
}
