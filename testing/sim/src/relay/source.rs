//! A client of ours: it sends in pieces, stops in the middle, falls silent, and sends again what it did
//! not read 250 for. The real server session answers it.

use super::{
    driver::Driver,
    oracle::{FEW_DESTINATIONS, Mail, Oracle, recipient, sender},
};
use crate::seed::Rng;
use bytes::Bytes;
use mail::{Content, ContentTraits, Part, Reply};
use queue::Millis;
use smtp::server::{Connection, Step, replies};
use std::sync::Arc;

/// Content is handed to the spool in pieces of this.
const CHUNK_BYTES: usize = 2000;

/// One connection in, both ends of it.
pub(super) struct Source {
    /// Index of the source; the driver finds the source of durable mail by this and by its turn.
    place: usize,
    /// Grows with each connection: an answer for an earlier one is dropped.
    turn: u64,
    connection: Option<Connection>,
    n: u64,
    to_send: Vec<u8>,
    /// At the server, not read yet: an answer is awaited.
    input_buffer: Vec<u8>,
    content_sent: bool,
    waits: bool,
    content: Vec<u8>,
    parts: Vec<Part>,
    last_heard: Millis,
}

impl Source {
    pub(super) fn new(place: usize) -> Self {
        Self {
            place,
            turn: 0,
            connection: None,
            n: 0,
            to_send: Vec::new(),
            input_buffer: Vec::new(),
            content_sent: false,
            waits: false,
            content: Vec::new(),
            parts: Vec::new(),
            last_heard: 0,
        }
    }

    /// The connection is gone, whoever ended it.
    pub(super) fn hang_up(&mut self, driver: Option<&mut Driver>) {
        self.connection = None;
        self.turn += 1;
        self.waits = false;
        self.content.clear();
        let parts = std::mem::take(&mut self.parts);
        if let Some(driver) = driver {
            driver.discard_chunks(&parts);
        }
    }

    /// Something that clients do.
    pub(super) fn step(&mut self, driver: &mut Driver, oracle: &mut Oracle, now: Millis, rng: &mut Rng) {
        if self.connection.is_none() {
            return self.connect(oracle, now, rng);
        }
        if rng.chance(2) {
            return self.hang_up(Some(driver));
        }
        if now - self.last_heard > 300_000 && !self.waits {
            self.connection.as_mut().expect("there is one").close_with(&replies::TIMEOUT);
            return self.hang_up(Some(driver));
        }
        if !self.to_send.is_empty() {
            let count = 1 + rng.index(self.to_send.len());
            let rest = self.to_send.split_off(count);
            let piece = std::mem::replace(&mut self.to_send, rest);
            self.input_buffer.extend_from_slice(&piece);
            self.last_heard = now;
        }
        self.serve(driver, oracle);
        self.read(driver, oracle);
    }

    /// A new mail, or one that was not answered 250.
    fn connect(&mut self, oracle: &mut Oracle, now: Millis, rng: &mut Rng) {
        let open = oracle.mails.keys().rev().take(12).find(|n| !oracle.acknowledged.contains(n)).copied();
        self.n = match open.filter(|_| rng.chance(50)) {
            Some(n) => n,
            None => new_mail(oracle, rng),
        };
        let n = self.n;
        let recipients =
            (0..oracle.mails[&n].recipient_count).map(|k| recipient((n, k), oracle.destinations));
        // Some want to hear of success (RFC 3461 §4.1).
        let notify = if n.is_multiple_of(7) { " NOTIFY=SUCCESS,FAILURE,DELAY" } else { "" };
        let lines: String = recipients.map(|to| format!("RCPT TO:<{to}>{notify}\r\n")).collect();
        self.to_send =
            format!("EHLO source.test\r\nMAIL FROM:<{}>\r\n{lines}DATA\r\n", sender(n)).into_bytes();
        let profile = smtp::server::Profile::new("mx.test");
        self.connection = Some(Connection::new(Arc::default(), Arc::new(profile), false));
        self.input_buffer.clear();
        self.content_sent = false;
        self.last_heard = now;
    }

    /// The server's side, as the inbound crate drives it.
    fn serve(&mut self, driver: &mut Driver, oracle: &mut Oracle) {
        let Some(connection) = self.connection.as_mut().filter(|_| !self.waits) else { return };
        let bytes = std::mem::take(&mut self.input_buffer);
        let mut input = &bytes[..];
        loop {
            match connection.step(&mut input) {
                Step::NeedInput | Step::Close => break,
                Step::JudgeHello => connection.answer(replies::OK),
                Step::Authenticate(_) => unreachable!("it was not offered"),
                Step::JudgeSender => connection.answer(driver.check_sender()),
                Step::JudgeRecipient => connection.answer(replies::RECIPIENT_OK),
                Step::StartTls
                | Step::AskTime
                | Step::Query(_)
                | Step::ChangeClient(_)
                | Step::NoteForwarded(_) => unreachable!("it was not offered"),
                Step::Refused(_) => {}
                Step::StartContent => {
                    self.content.clear();
                    self.parts.clear();
                }
                Step::Content(piece) => {
                    self.content.extend_from_slice(piece);
                    if self.content.len() > CHUNK_BYTES {
                        match driver.store(std::mem::take(&mut self.content).into()) {
                            Ok(part) => self.parts.push(part),
                            Err(reply) => connection.refuse_content(reply),
                        }
                    }
                }
                Step::DiscardContent(_) => driver.discard_chunks(&std::mem::take(&mut self.parts)),
                Step::JudgeContent => {
                    let envelope = connection.accept_content();
                    let content = whole(&mut self.parts, &mut self.content);
                    match driver.accept(envelope, content, (self.place, self.turn), oracle) {
                        Ok(id) => {
                            oracle.ids.insert(id, self.n);
                            *oracle.copies.entry(self.n).or_default() += 1;
                            self.waits = true;
                            break;
                        }
                        Err(reply) => connection.answer(reply),
                    }
                }
            }
        }
        self.input_buffer = input.to_vec();
    }

    /// Gives the reply to the end of the content; it may come too late.
    pub(super) fn answer(&mut self, turn: u64, reply: Reply) {
        if self.turn == turn && self.waits {
            self.waits = false;
            self.connection.as_mut().expect("it waits").answer(reply);
        }
    }

    /// The client's side of the answers.
    fn read(&mut self, driver: &mut Driver, oracle: &mut Oracle) {
        let Some(connection) = &mut self.connection else { return };
        let said = String::from_utf8(std::mem::take(connection.output())).expect("replies are text");
        for line in said.lines() {
            match line.get(..3).unwrap_or_default() {
                "354" => {
                    self.to_send = oracle.mails[&self.n].content.to_vec();
                    self.to_send.extend_from_slice(b".\r\n");
                    self.content_sent = true;
                }
                code if self.content_sent => {
                    if code == "250" {
                        oracle.acknowledged.insert(self.n);
                    }
                    return self.hang_up(None);
                }
                "220" | "250" => {}
                _ => return self.hang_up(Some(driver)),
            }
        }
    }
}

fn whole(parts: &mut Vec<Part>, rest: &mut Vec<u8>) -> Content {
    let mut parts = std::mem::take(parts);
    parts.push(Part::Memory(Bytes::from(std::mem::take(rest))));
    Content::new(ContentTraits::default(), parts)
}

fn new_mail(oracle: &mut Oracle, rng: &mut Rng) -> u64 {
    let n = oracle.mails.len() as u64;
    let lines = if rng.chance(10) { rng.index(120) } else { rng.index(8) };
    let mut text = format!("Subject: mail {n}\r\n\r\n");
    (0..lines).for_each(|_| text += &format!("{:x}{:x}{:x}\r\n", rng.bits(), rng.bits(), rng.bits()));
    let mut recipient_count = 1 + rng.below(4) as u32;
    if oracle.destinations > FEW_DESTINATIONS && rng.chance(80) {
        recipient_count = 500 + rng.below(400) as u32;
    }
    oracle.mails.insert(n, Mail { recipient_count, content: text.into() });
    n
}
