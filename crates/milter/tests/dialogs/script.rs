//! A dialog as text. Its lines begin with what they are:
//!
//! ```text
//! # a comment
//! ! the mode of the filter
//! + a command of the server
//! > the packets that it became
//! < the answer
//! = an event in it
//! ```
//!
//! Commands and modes are written by hand; all else is recorded.

use milter::{Actions, Command, Edit, Event, Expect, Macro, Offer, Peer, SendError, Session, Steps, Verdict};
use std::fmt::Write as _;

/// A run of an octet that is at least as long is written as `\{LENGTH}` and the octet.
const RUN: usize = 32;

/// Whoever carries packets to a filter.
pub(crate) trait Transport {
    /// Writes packets and passes on what is read, until `take` returns true.
    fn exchange(&mut self, packets: &[u8], take: &mut dyn FnMut(&[u8]) -> bool);

    /// Connects to the filter.
    fn open(&mut self) {}

    /// Writes packets.
    fn write(&mut self, _: &[u8]) {}
}

pub(crate) struct Script {
    pub(crate) text: String,
    answers: Vec<Vec<u8>>,
}

impl Script {
    pub(crate) fn parse(text: &str) -> Self {
        let answers = text.lines().filter_map(|line| line.strip_prefix("< ")).map(unescape).collect();
        Self { text: text.to_owned(), answers }
    }

    pub(crate) fn mode(&self) -> &str {
        self.text.lines().find_map(|line| line.strip_prefix("! ")).expect("a mode")
    }

    pub(crate) fn answers(&self) -> impl Iterator<Item = &[u8]> {
        self.answers.iter().map(Vec::as_slice)
    }

    /// Gives the commands to a session, and returns the text with what became of them.
    pub(crate) fn run(&self, transport: &mut dyn Transport) -> String {
        let mut dialog = Dialog { session: None, macros: Vec::new(), text: String::new() };
        for line in self.text.lines() {
            if line.is_empty() || line.starts_with(['#', '!', '+']) {
                writeln!(dialog.text, "{line}").unwrap();
            }
            if let Some(command) = line.strip_prefix("+ ") {
                dialog.command(command, transport);
            }
        }
        dialog.text
    }
}

struct Dialog {
    session: Option<Session>,
    /// Those that go in front of the next command.
    macros: Vec<(String, String)>,
    text: String,
}

impl Dialog {
    fn command(&mut self, line: &str, transport: &mut dyn Transport) {
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        let rest = unescape(rest);
        let words = String::from_utf8_lossy(&rest);
        let words: Vec<&str> = words.split(' ').filter(|word| !word.is_empty()).collect();
        let mut out = Vec::new();
        let expected = match verb {
            "offer" => {
                transport.open();
                let version = words[0].parse().unwrap();
                let steps = if words.contains(&"1M") { Steps::ALL } else { Offer::default().steps };
                self.session = Some(Session::new(&Offer { version, actions: Actions::ALL, steps }, &mut out));
                Ok(Expect::Answer)
            }
            "macro" => return self.macros.push((words[0].into(), words[1..].join(" "))),
            "abort" => self.session().abort(&mut out).map(|()| Expect::Nothing),
            "next" => self.session().next_connection(&mut out).map(|is_next| {
                let answer = if is_next { "taken" } else { "a new conversation is needed" };
                writeln!(self.text, "= {answer}").unwrap();
                Expect::Nothing
            }),
            "quit" => {
                self.session().quit(&mut out);
                Ok(Expect::Nothing)
            }
            _ => self.send(&command(verb, &words, &rest), &mut out),
        };
        if !out.is_empty() {
            writeln!(self.text, "> {}", escape(&out)).unwrap();
        }
        match expected {
            Err(error) => writeln!(self.text, "= {error}").unwrap(),
            Ok(Expect::Nothing) => transport.write(&out),
            Ok(Expect::Answer) => {
                let (mut answer, mut events) = (Vec::new(), String::new());
                let session = self.session();
                transport.exchange(&out, &mut |piece| {
                    answer.extend_from_slice(piece);
                    receive(session, piece, &mut events)
                });
                write!(self.text, "< {}\n{events}", escape(&answer)).unwrap();
            }
        }
    }

    fn session(&mut self) -> &mut Session {
        self.session.as_mut().expect("an offer comes first")
    }

    fn send(&mut self, command: &Command<'_>, out: &mut Vec<u8>) -> Result<Expect, SendError> {
        let macros = std::mem::take(&mut self.macros);
        let macros: Vec<_> = macros.iter().map(|(name, value)| Macro { name, value }).collect();
        self.session().send(command, &macros, out)
    }
}

/// Passes octets to the session, and writes its events; returns whether it needs no more.
fn receive(session: &mut Session, mut piece: &[u8], events: &mut String) -> bool {
    loop {
        match session.receive(&mut piece) {
            Ok(None) => return session.awaited().is_none(),
            Ok(Some(Event::Negotiated)) => {
                let (version, actions, steps) = (session.version(), session.actions().0, session.steps().0);
                writeln!(events, "= version {version}, actions {actions:#x}, steps {steps:#x}").unwrap();
            }
            Ok(Some(event)) => writeln!(events, "= {}", describe(&event)).unwrap(),
            Err(error) => {
                writeln!(events, "= {error}").unwrap();
                return true;
            }
        }
    }
}

fn command<'a>(verb: &str, words: &'a [&'a str], rest: &'a [u8]) -> Command<'a> {
    match verb {
        "connect" => {
            let peer = match words[1] {
                "unknown" => Peer::Unknown,
                path if path.starts_with('/') => Peer::Unix(path),
                address => Peer::Inet(address.parse().unwrap()),
            };
            Command::Connect { host: words[0], peer }
        }
        "hello" => Command::Hello { name: words[0] },
        "mail" => Command::Mail { sender: words[0], parameters: &words[1..] },
        "rcpt" | "rejected" => Command::Recipient {
            recipient: words[0],
            parameters: &words[1..],
            is_rejected: verb == "rejected",
        },
        "data" => Command::Data,
        "header" => {
            let colon = rest.iter().position(|byte| *byte == b':').unwrap();
            Command::Header { name: &rest[..colon], value: &rest[colon + 1..] }
        }
        "eoh" => Command::EndOfHeaders,
        "body" => Command::Body(rest),
        "eom" => Command::EndOfMessage,
        "unknown" => Command::Unknown { line: rest },
        _ => panic!("no command: {verb}"),
    }
}

fn describe(event: &Event) -> String {
    let Event::Edit(edit) = event else {
        return match event {
            Event::Verdict(Verdict::Reply(reply)) => format!("{:?}", reply.to_string()),
            Event::Verdict(verdict) => format!("{verdict:?}"),
            _ => format!("{event:?}"),
        };
    };
    match edit {
        Edit::AddHeader { name, value } => format!("add {name}:{}", escape(value)),
        Edit::InsertHeader { index, name, value } => format!("insert at {index} {name}:{}", escape(value)),
        Edit::ChangeHeader { index, name, value: Some(value) } => {
            format!("change {index} {name}:{}", escape(value))
        }
        Edit::ChangeHeader { index, name, value: None } => format!("delete {index} {name}"),
        Edit::ReplaceBody(body) => format!("body {}", escape(body)),
        _ => format!("{edit:?}"),
    }
}

fn escape(bytes: &[u8]) -> String {
    let mut text = String::new();
    for run in bytes.chunk_by(|a, b| a == b) {
        let octet = run[..1].escape_ascii();
        if run.len() < RUN {
            (0..run.len()).for_each(|_| write!(text, "{octet}").unwrap());
        } else {
            write!(text, "\\{{{}}}{octet}", run.len()).unwrap();
        }
    }
    text
}

fn unescape(text: &str) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::new(), text);
    let mut times = 1;
    while let Some(first) = rest.chars().next() {
        rest = &rest[first.len_utf8()..];
        if first != '\\' {
            bytes.extend(std::iter::repeat_n(first as u8, times));
            times = 1;
            continue;
        }
        let escaped = rest.chars().next().expect("an escape has an end");
        rest = &rest[1..];
        let octet = match escaped {
            '{' => {
                let (length, behind) = rest.split_once('}').unwrap();
                (times, rest) = (length.parse().unwrap(), behind);
                continue;
            }
            'x' => {
                let (digits, behind) = rest.split_at(2);
                rest = behind;
                u8::from_str_radix(digits, 16).unwrap()
            }
            'r' => b'\r',
            'n' => b'\n',
            't' => b'\t',
            other => other as u8,
        };
        bytes.extend(std::iter::repeat_n(octet, times));
        times = 1;
    }
    bytes
}
