//! A line of the client, through the options to the connection; and content, straight to it.

use super::{Dialog, Next, Note, Verb};
use memchr::memchr;
use smtp::server::{Step, replies};

impl Dialog {
    pub(super) fn line<'a>(&mut self, input: &mut &'a [u8]) -> Option<Next<'a>> {
        let Some(end) = memchr(b'\n', input) else {
            if input.len() >= self.limit {
                replies::LINE_TOO_LONG.write_to(&mut self.output);
                self.closing = true;
                return None;
            }
            return Some(Next::Read);
        };
        let (line, rest) = input.split_at(end + 1);
        *input = rest;
        if self.rules.verbose {
            self.notes.push(Note::Shown(format!(">>> {}", text_of(line))));
        }
        if self.auth.is_some() {
            self.go_on_with_auth(line);
            return None;
        }
        let verb = Verb::of_line(line);
        if self.rules.log.has(verb) {
            self.notes.push(Note::Logged(text_of(line)));
        }
        self.answered = Some(verb);
        if self.refused(verb) || self.greylisted(verb, line) || self.handled_here(verb, line) {
            return None;
        }
        let next = self.pass(verb, line);
        self.remember(verb, line);
        next
    }

    /// Handles commands that the connection does not have; true if it is one.
    fn handled_here(&mut self, verb: Verb, line: &[u8]) -> bool {
        let offer = self.rules.offer;
        match verb {
            Verb::Xclient if offer.xclient => {
                let greeting = self.rules.greeting();
                self.say(&greeting);
            }
            Verb::Xforward if offer.xforward => self.say("250 2.0.0 Ok"),
            Verb::Auth if offer.auth => self.begin_auth(line),
            Verb::Starttls if offer.starttls && !self.is_secure => {
                self.say("220 2.0.0 Ready to start TLS");
                self.starts_tls = true;
            }
            Verb::Mail if self.lacks_auth() => self.say("530 5.7.0 Error: authentication required"),
            Verb::Ehlo if !offer.esmtp || self.rules.lmtp => self.say("500 5.5.1 Error: unknown command"),
            Verb::Lhlo if !self.rules.lmtp => self.say("500 5.5.1 Error: unknown command"),
            _ => return false,
        }
        true
    }

    /// Hands one line to the connection and takes its answer.
    fn pass<'a>(&mut self, verb: Verb, line: &'a [u8]) -> Option<Next<'a>> {
        let as_ehlo: Vec<u8>;
        let mut rest = line;
        if verb == Verb::Lhlo {
            as_ehlo = [b"EHLO", &line[4..]].concat();
            // The answer to EHLO never borrows from the line.
            self.drive(&mut &as_ehlo[..]);
            rest = &[];
        }
        let next = if rest.is_empty() { None } else { self.drive(&mut rest) };
        self.take_any_address(verb);
        if matches!(verb, Verb::Ehlo | Verb::Lhlo) && self.connection.output().starts_with(b"250") {
            let hello = self.rules.hello(self.is_secure);
            *self.connection.output() = hello.into_bytes();
        }
        next.filter(|n| *n != Next::Read)
    }

    /// A sink measures its client and does not judge it: what is not an address to us is taken as one, as smtp-sink does.
    fn take_any_address(&mut self, verb: Verb) {
        let line = match verb {
            Verb::Mail => &b"MAIL FROM:<>\r\n"[..],
            Verb::Rcpt => b"RCPT TO:<unread@sink.invalid>\r\n",
            _ => return,
        };
        let output = self.connection.output();
        if output.starts_with(b"501") || output.starts_with(b"555") {
            output.clear();
            // The answers to these never borrow from the line.
            self.drive(&mut &line[..]);
        }
    }

    /// Notes the facts that later steps and the dump need of a line that was passed.
    fn remember(&mut self, verb: Verb, line: &[u8]) {
        let accepted = matches!(self.connection.output().first(), Some(b'2' | b'3'));
        match verb {
            Verb::Helo | Verb::Ehlo | Verb::Lhlo if accepted => {
                let name = text_of(line).split_once(' ').map(|(_, name)| name.trim().into());
                self.hello = name.filter(|_| self.rules.keeps_content);
            }
            Verb::Mail if accepted && self.rules.keeps_content => {
                self.arguments = vec![argument_of(line)];
            }
            Verb::Rcpt if accepted && self.rules.keeps_content => self.arguments.push(argument_of(line)),
            Verb::Data => self.data_begins = accepted,
            Verb::Bdat if self.connection.reads_content() => self.chunk_left = chunk_size(line),
            Verb::Quit => self.quit = true,
            _ => {}
        }
    }

    /// Content of a chunk, and not one octet behind it.
    pub(super) fn chunk<'a>(&mut self, input: &mut &'a [u8]) -> Option<Next<'a>> {
        let left = self.chunk_left?;
        if left > 0 && input.is_empty() {
            return Some(Next::Read);
        }
        let length = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
        let (mut piece, rest) = input.split_at(length);
        let next = self.drive(&mut piece);
        *input = rest;
        self.chunk_left = Some(left - length as u64);
        if !self.connection.reads_content() {
            self.chunk_left = None;
            self.answered.get_or_insert(Verb::Bdat);
        }
        next.filter(|n| *n != Next::Read)
    }

    /// Lets the connection read, with every address accepted.
    pub(super) fn drive<'a>(&mut self, input: &mut &'a [u8]) -> Option<Next<'a>> {
        loop {
            match self.connection.step(input) {
                Step::NeedInput => return Some(Next::Read),
                Step::JudgeHello => self.connection.answer(replies::OK),
                Step::JudgeSender => self.connection.answer(replies::SENDER_OK),
                Step::JudgeRecipient => self.connection.answer(replies::RECIPIENT_OK),
                Step::StartContent | Step::Refused(_) => {}
                Step::Content(bytes) if self.rules.keeps_content => return Some(Next::Content(bytes)),
                Step::Content(_) => {}
                Step::DiscardContent(_) => {
                    self.answered = Some(Verb::Dot);
                    return Some(Next::Dropped);
                }
                Step::JudgeContent => return Some(self.end_of_content()),
                Step::StartTls
                | Step::AskTime
                | Step::Query(_)
                | Step::ChangeClient(_)
                | Step::NoteForwarded(_)
                | Step::Authenticate(_) => unreachable!("neither is offered"),
                Step::Close => {
                    self.closing = true;
                    return None;
                }
            }
        }
    }

    fn end_of_content<'a>(&mut self) -> Next<'a> {
        let envelope = Box::new(self.connection.accept_content());
        self.connection.answer(replies::ACCEPTED);
        self.connection.output().clear();
        self.answered = Some(Verb::Dot);
        let refused = self.refused(Verb::Dot);
        if !refused {
            self.say("250 2.0.0 Ok");
        }
        if self.rules.lmtp && !self.closing {
            // One reply for each recipient (RFC 2033 §4.2).
            let one = self.connection.output().clone();
            *self.connection.output() = one.repeat(envelope.recipients.len());
        }
        if refused { Next::Dropped } else { Next::Message(envelope) }
    }
}

pub(super) fn text_of(line: &[u8]) -> String {
    String::from_utf8_lossy(line.trim_ascii_end()).into_owned()
}

/// `<a@b> SIZE=1` of `MAIL FROM:<a@b> SIZE=1`.
fn argument_of(line: &[u8]) -> String {
    let text = text_of(line);
    text.split_once(':').map_or_else(|| text.clone(), |(_, rest)| rest.trim().to_owned())
}

fn chunk_size(line: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(line).ok()?;
    text.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Removes enhanced status codes, as a server that does not implement RFC 2034 replies.
pub(super) fn without_enhanced_codes(replies: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(replies.len());
    for line in replies.split_inclusive(|b| *b == b'\n') {
        let (code, rest) = line.split_at(line.len().min(4));
        let text = std::str::from_utf8(rest).unwrap_or_default();
        let bare = mail::Enhanced::parse_prefix(text).map_or(rest, |(_, text)| text.as_bytes());
        out.extend_from_slice(code);
        out.extend_from_slice(bare);
    }
    out
}
