//! One session of the sink, without I/O: the product's own server session, and before it the options
//! that refuse, delay or cut. Each line passes the options first; content goes straight through.

mod auth;
mod line;
#[cfg(test)]
mod tests;

use super::{greylist::Greylist, rules::Rules, verb::Verb};
use mail::Envelope;
use smtp::{
    Limits,
    server::{Connection, Profile, replies},
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// The next action of the driver. Before `Read`, `Pause` and `Close` it writes the output.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next<'a> {
    /// Read more behind what is left of the input.
    Read,
    /// Call again after this long.
    Pause(Duration),
    /// Octets of content; only where the rules keep it.
    Content(&'a [u8]),
    /// The message whose content came was refused.
    Dropped,
    /// The content of this message has come.
    Message(Box<Envelope>),
    /// Begin TLS behind the output; then [`Dialog::secured`].
    StartTls,
    /// Close the connection behind the output.
    Close,
}

/// The output that follows when the pause is over.
#[derive(Debug)]
enum Held {
    Reply(Vec<u8>),
    /// A refusal in the middle of the content; then the end.
    Abort,
    Nothing,
}

/// One session of the sink, without I/O: the server session of the product behind the sink's own options.
#[derive(Debug)]
pub(crate) struct Dialog {
    rules: Arc<Rules>,
    connection: Connection,
    output: Vec<u8>,
    held: Option<Held>,
    greeted: bool,
    closing: bool,
    /// Octets of the current BDAT chunk still to come.
    chunk_left: Option<u64>,
    /// The connection's output is the reply to this.
    answered: Option<Verb>,
    /// 354 is about to be sent: what the rules want next.
    data_begins: bool,
    /// `None` unless the client authenticates.
    auth: Option<::auth::ServerExchange>,
    is_authenticated: bool,
    is_secure: bool,
    /// 220 to STARTTLS is about to be sent.
    starts_tls: bool,
    shared: Shared,
    /// HELO's argument.
    hello: Option<Box<str>>,
    quit: bool,
    /// Longest command line in octets.
    limit: usize,
    /// Arguments of MAIL and RCPT, where content is kept.
    arguments: Vec<String>,
    /// Lines for the log, and both sides of the session if the rules are verbose.
    notes: Vec<Note>,
}

/// Something for the log.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Note {
    /// A command that `-s` asks to log.
    Logged(String),
    /// A line that client or server has sent.
    Shown(String),
}

/// The data that all sessions of a sink share.
#[derive(Debug, Clone)]
pub(crate) struct Shared {
    rules: Arc<Rules>,
    limits: Arc<Limits>,
    profile: Arc<Profile>,
    greylist: Greylist,
}

impl Shared {
    /// Limits are out of the way: a sink measures its client, it does not judge it.
    pub(crate) fn new(rules: Arc<Rules>) -> Self {
        let limits = Limits {
            message_bytes: u64::MAX,
            recipients: usize::MAX,
            transactions: u32::MAX,
            errors: u32::MAX,
            refused_recipients: u32::MAX,
            junk_commands: u32::MAX,
            ..Limits::default()
        };
        let profile = Profile::new(rules.hostname.as_str());
        Self { rules, limits: Arc::new(limits), profile: Arc::new(profile), greylist: Greylist::default() }
    }

    /// The rules of this sink.
    pub(crate) fn rules(&self) -> &Rules {
        &self.rules
    }
}

impl Dialog {
    /// Begins a session; the greeting is not in the output yet.
    pub(crate) fn new(shared: &Shared) -> Self {
        let mut connection = Connection::new(shared.limits.clone(), shared.profile.clone(), false);
        // smtp-sink takes mail without HELO, and smtp-source -o sends none.
        let _ = connection.step(&mut &b"HELO unknown\r\n"[..]);
        connection.answer(replies::OK);
        connection.output().clear();
        Self {
            rules: shared.rules.clone(),
            connection,
            output: Vec::with_capacity(512),
            held: None,
            greeted: false,
            closing: false,
            chunk_left: None,
            answered: None,
            data_begins: false,
            auth: None,
            is_authenticated: false,
            is_secure: false,
            starts_tls: false,
            shared: shared.clone(),
            hello: None,
            quit: false,
            limit: shared.limits.command_line_bytes,
            arguments: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Replies to write; the driver empties it.
    pub(crate) fn output(&mut self) -> &mut Vec<u8> {
        &mut self.output
    }

    /// Returns the argument of HELO, EHLO or LHLO.
    pub(crate) fn hello(&self) -> Option<&str> {
        self.hello.as_deref()
    }

    /// For the dump: SMTP, ESMTP or LMTP.
    pub(crate) fn protocol(&self) -> &'static str {
        if self.rules.lmtp { "LMTP" } else { self.connection.session().protocol(false).as_str() }
    }

    /// The arguments of MAIL and each RCPT of this transaction, where content is kept.
    pub(crate) fn arguments(&self) -> &[String] {
        &self.arguments
    }

    /// Lines for the log since the last call.
    pub(crate) fn notes(&mut self) -> std::vec::Drain<'_, Note> {
        self.notes.drain(..)
    }

    /// Returns whether the client has sent QUIT.
    pub(crate) fn has_quit(&self) -> bool {
        self.quit
    }

    /// TLS began: the session begins anew, without a greeting if it had one (RFC 3207 §4.2).
    pub(crate) fn secured(&mut self) {
        let greeted = self.greeted;
        *self = Self { greeted, is_secure: true, ..Self::new(&self.shared) };
    }

    /// Says that the client was silent for too long.
    pub(crate) fn timed_out(&mut self) {
        replies::TIMEOUT.write_to(&mut self.output);
        self.closing = true;
    }

    /// Replies to the message of [`Next::Message`] that it could not be stored.
    pub(crate) fn refuse_message(&mut self, recipient_count: usize) {
        let count = if self.rules.lmtp { recipient_count } else { 1 };
        *self.connection.output() = b"451 4.3.0 Error: message not stored\r\n".repeat(count);
    }

    /// Reads on; `input` loses what is used.
    pub(crate) fn step<'a>(&mut self, input: &mut &'a [u8]) -> Next<'a> {
        match self.held.take() {
            Some(Held::Reply(reply)) => self.output.extend_from_slice(&reply),
            Some(Held::Abort) => {
                self.output.extend_from_slice(b"550 5.3.0 Error: command failed\r\n");
                self.closing = true;
            }
            Some(Held::Nothing) | None => {}
        }
        loop {
            let next = match () {
                () if self.answered.is_some() => self.answer(),
                () if std::mem::take(&mut self.starts_tls) => Some(Next::StartTls),
                () if self.closing => Some(Next::Close),
                () if !self.greeted => self.greet(),
                () if std::mem::take(&mut self.data_begins) => self.before_data(),
                () if self.chunk_left.is_some() => self.chunk(input),
                () if self.connection.reads_content() => self.drive(input),
                () => self.line(input),
            };
            if let Some(next) = next {
                return next;
            }
        }
    }

    fn greet<'a>(&mut self) -> Option<Next<'a>> {
        self.greeted = true;
        self.answered = Some(Verb::Connect);
        if !self.refused(Verb::Connect) {
            let greeting = self.rules.greeting();
            self.say(&greeting);
        }
        None
    }

    /// Between 354 and the content.
    fn before_data<'a>(&mut self) -> Option<Next<'a>> {
        let (held, delay) = match (self.rules.abort_data, self.rules.read_delay) {
            (Some(delay), _) => (Held::Abort, delay),
            (None, Some(delay)) => (Held::Nothing, delay),
            (None, None) => return None,
        };
        self.held = Some(held);
        Some(Next::Pause(delay))
    }

    fn say(&mut self, reply: &str) {
        self.connection.output().extend_from_slice(reply.as_bytes());
        self.connection.output().extend_from_slice(b"\r\n");
    }

    /// Refuses a recipient for now that comes too early behind its first attempt; true if it does.
    fn greylisted(&mut self, verb: Verb, line: &[u8]) -> bool {
        let Some(wait) = self.rules.greylist.filter(|_| verb == Verb::Rcpt) else { return false };
        let is_early = self.shared.greylist.is_early(line.trim_ascii(), wait, Instant::now());
        if is_early {
            let rules = self.rules.clone();
            self.say(&rules.soft_reply);
        }
        is_early
    }

    /// Applies the options that answer without looking; true if one did.
    fn refused(&mut self, verb: Verb) -> bool {
        let rules = self.rules.clone();
        if verb == Verb::Rcpt && rules.defer_percent > 0 && fastrand::u8(..100) < rules.defer_percent {
            self.say(&rules.soft_reply);
            return true;
        }
        if !rules.special().has(verb) {
            return false;
        }
        if rules.drop.has(verb) {
            self.closing = true;
        } else if rules.shut.has(verb) {
            self.say("421 4.0.0 Server closing connection");
            self.closing = true;
        } else if rules.hard.has(verb) {
            self.say(&rules.hard_reply);
        } else {
            self.say(&rules.soft_reply);
        }
        true
    }

    /// Moves the connection's reply to the output, at once or after the verb's delay.
    fn answer<'a>(&mut self) -> Option<Next<'a>> {
        let verb = self.answered.take()?;
        let reply = self.connection.output();
        if !self.rules.offer.enhanced || !self.rules.offer.esmtp {
            *reply = line::without_enhanced_codes(reply);
        }
        if self.rules.verbose {
            let lines = String::from_utf8_lossy(reply);
            self.notes.extend(lines.lines().map(|l| Note::Shown(format!("<<< {l}"))));
        }
        let delay = self.rules.delays[verb as usize].map(|d| d.draw(|| fastrand::u8(0..100)));
        let Some(delay) = delay.filter(|d| !d.is_zero()) else {
            self.output.append(reply);
            return None;
        };
        self.held = Some(Held::Reply(std::mem::take(reply)));
        Some(Next::Pause(delay))
    }
}
