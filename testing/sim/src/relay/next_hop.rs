//! The next hop, which says yes, 4yz, 5yz and 421, is slow, hangs up, falls silent, and loses its own 250.

use super::{
    oracle::{Oracle, is_unknown, reported, who},
    routing::HUB,
};
use crate::seed::Rng;
use queue::Millis;
use std::collections::VecDeque;

/// The next hop's side of one connection.
#[derive(Debug, Default)]
pub(super) struct NextHop {
    input_buffer: Vec<u8>,
    in_content: bool,
    /// Empty for a report.
    from: String,
    to: Vec<String>,
    /// Replies on their way: when they arrive, and what they say.
    replies: VecDeque<(Millis, Vec<u8>)>,
    pub(super) is_gone: bool,
    is_silent: bool,
    /// Does as it should: the end of a seed.
    is_well: bool,
    /// The domain whose exchanger it plays.
    domain: Box<str>,
}

impl NextHop {
    pub(super) fn connected(domain: Box<str>, is_well: bool, now: Millis, rng: &mut Rng) -> Self {
        let mut hop = Self { is_well, domain, ..Self::default() };
        let greeting = if hop.fails(3, rng) { "421 4.3.2 not now" } else { "220 hop.test ESMTP" };
        hop.say(greeting, now, rng);
        hop
    }

    fn fails(&self, percent: u64, rng: &mut Rng) -> bool {
        rng.chance(percent) && !self.is_well
    }

    fn say(&mut self, text: &str, now: Millis, rng: &mut Rng) {
        let earliest = self.replies.back().map_or(now, |reply| reply.0);
        let delay = if self.fails(5, rng) { rng.below(200_000) as Millis } else { rng.below(20) as Millis };
        if !self.is_silent {
            self.replies.push_back((earliest + delay, format!("{text}\r\n").into_bytes()));
        }
    }

    /// Returns the next reply that has arrived by now.
    pub(super) fn heard(&mut self, now: Millis) -> Option<Vec<u8>> {
        if self.replies.front()?.0 > now {
            return None;
        }
        self.replies.pop_front().map(|reply| reply.1)
    }

    /// Nothing comes any more.
    pub(super) fn is_over(&self) -> bool {
        self.is_gone && self.replies.is_empty()
    }

    pub(super) fn receive(&mut self, bytes: &[u8], now: Millis, rng: &mut Rng, oracle: &mut Oracle) {
        self.input_buffer.extend_from_slice(bytes);
        while !self.is_gone {
            let end: &[u8] = if self.in_content { b"\r\n.\r\n" } else { b"\r\n" };
            let Some(at) = self.input_buffer.windows(end.len()).position(|window| window == end) else {
                return;
            };
            let rest = self.input_buffer.split_off(at + end.len());
            let taken = std::mem::replace(&mut self.input_buffer, rest);
            if self.fails(1, rng) {
                self.say("421 4.3.2 closing", now, rng);
                self.is_gone = true;
            } else if self.fails(1, rng) {
                self.is_gone = true;
            } else if self.fails(1, rng) {
                self.is_silent = true;
            } else if std::mem::take(&mut self.in_content) {
                self.content(&taken[..at + 2], now, rng, oracle);
            } else {
                let line = String::from_utf8_lossy(&taken[..at]).into_owned();
                self.command(&line, now, rng);
            }
        }
    }

    fn command(&mut self, line: &str, now: Millis, rng: &mut Rng) {
        let address = line.split(['<', '>']).nth(1).unwrap_or_default();
        let reply = match line.get(..4).unwrap_or_default() {
            "EHLO" => "250-hop.test\r\n250-PIPELINING\r\n250 8BITMIME",
            "MAIL" if self.fails(3, rng) => "451 4.3.0 later",
            "MAIL" => {
                address.clone_into(&mut self.from);
                self.to.clear();
                "250 2.1.0 Ok"
            }
            "RCPT" if who(address).is_some_and(is_unknown) => "550 5.1.1 no such user",
            "RCPT" if self.fails(8, rng) => "450 4.2.1 busy",
            "RCPT" => {
                self.to.push(address.to_owned());
                "250 2.1.5 Ok"
            }
            "DATA" if self.to.is_empty() => "554 5.5.1 no valid recipients",
            "DATA" if self.fails(2, rng) => "451 4.3.0 later",
            "DATA" => {
                self.in_content = true;
                "354 go ahead"
            }
            "QUIT" => {
                self.is_gone = true;
                "221 2.0.0 bye"
            }
            _ => "250 2.0.0 Ok",
        };
        self.say(reply, now, rng);
    }

    fn content(&mut self, wire: &[u8], now: Millis, rng: &mut Rng, oracle: &mut Oracle) {
        let to = std::mem::take(&mut self.to);
        if self.fails(5, rng) {
            return self.say("451 4.3.0 not stored", now, rng);
        }
        let content = String::from_utf8_lossy(wire).replace("\r\n..", "\r\n.");
        let is_report = self.from.is_empty();
        if is_report {
            oracle.reported.extend(reported(&content, "failed"));
            oracle.warned.extend(reported(&content, "delayed"));
            oracle.relayed.extend(reported(&content, "relayed"));
        }
        for who in to.iter().filter_map(|address| who(address)).filter(|_| !is_report) {
            let at = if &*self.domain == HUB { None } else { Some(&*self.domain) };
            oracle.arrived(who, &self.from, at, content.as_bytes());
        }
        // It has the message; that nobody hears of it is RFC 1047's window.
        if self.fails(4, rng) {
            self.is_gone = true;
        } else if self.fails(2, rng) {
            self.is_silent = true;
        } else {
            self.say("250 2.0.0 taken", now, rng);
        }
    }
}
