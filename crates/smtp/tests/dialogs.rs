//! Replays `tests/dialogs/*.smtp` against the server session, at every split of the input.
//!
//! `C:` is a line from the client, `S:` a reply expected before the next `C:`; `C+` a client line in
//! the same segment as the one before. `\r`, `\n`, `\0`, `\xHH` and `\\` are escapes; a `C` line ends
//! in CRLF unless it ends in `\c`. `<close>` after `S:` expects the connection to close. `!` sets a
//! limit (`! bare_lf = normalize` what is done with a bare LF), `#` is a comment, `= text` is a message that must have been accepted by now.

use mail::{Enhanced, Reply};
use smtp::{
    Limits,
    server::{BareLf, Capabilities, Connection, Step, replies},
};
use std::{fmt::Write as _, fs, path::Path, sync::Arc};

/// Plays policy and spool: `@here.test` is ours, everything else is refused.
struct Driver {
    connection: Connection,
    unread: Vec<u8>,
    sent: String,
    content: Vec<u8>,
    accepted: Vec<String>,
    closed: bool,
}

impl Driver {
    fn new(limits: Limits, bare_lf: BareLf) -> Self {
        let capabilities =
            Capabilities { hostname: "mx.here.test".into(), starttls: true, binary_mime: true };
        let mut connection = Connection::new(limits.into(), Arc::new(capabilities), false);
        connection.set_bare_lf(bare_lf);
        let mut driver = Self {
            connection,
            unread: Vec::new(),
            sent: String::new(),
            content: Vec::new(),
            accepted: Vec::new(),
            closed: false,
        };
        driver.receive(b"");
        driver
    }

    fn receive(&mut self, bytes: &[u8]) {
        self.unread.extend_from_slice(bytes);
        let unread = std::mem::take(&mut self.unread);
        let mut input = &unread[..];
        while !self.closed {
            match self.connection.step(&mut input) {
                Step::NeedInput => break,
                Step::JudgeSender => self.connection.answer(replies::SENDER_OK),
                Step::JudgeRecipient => {
                    let path = self.connection.session().judged_recipient().unwrap().path.as_str();
                    let ours = path == "postmaster" || path.ends_with("@here.test");
                    let refused = Reply::fixed(550, Enhanced(5, 7, 1), "Relaying denied");
                    self.connection.answer(if ours { replies::RECIPIENT_OK } else { refused });
                }
                Step::StartContent | Step::DiscardContent => self.content.clear(),
                Step::Content(piece) => self.content.extend_from_slice(piece),
                Step::Commit(envelope) => {
                    let to: Vec<_> = envelope.recipients.iter().map(|r| r.path.as_str()).collect();
                    let content = String::from_utf8_lossy(&self.content).escape_debug().to_string();
                    self.accepted.push(format!("<{}> to {}: {content}", envelope.reverse_path, to.join(",")));
                    self.connection.answer(replies::ACCEPTED);
                }
                Step::StartTls => {
                    self.flush();
                    self.connection.tls_established();
                }
                Step::Close => self.closed = true,
            }
        }
        self.unread = input.to_vec();
        self.flush();
    }

    fn flush(&mut self) {
        self.sent.push_str(std::str::from_utf8(self.connection.output()).expect("replies are UTF-8"));
        self.connection.output().clear();
    }
}

/// One step of a dialog: bytes to send in one segment, and what must have come back.
#[derive(Default)]
struct Turn {
    line_number: usize,
    send: Vec<u8>,
    expect: Vec<String>,
    accepted: Vec<String>,
    close: bool,
}

fn unescape(text: &str) -> Vec<u8> {
    let (text, end) = text.strip_suffix("\\c").map_or((text, &b"\r\n"[..]), |t| (t, b""));
    let mut out = Vec::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            continue;
        }
        match chars.next() {
            Some('r') => out.push(b'\r'),
            Some('n') => out.push(b'\n'),
            Some('0') => out.push(0),
            Some('x') => {
                let hex: String = chars.by_ref().take(2).collect();
                out.push(u8::from_str_radix(&hex, 16).expect("two hex digits"));
            }
            Some('*') => {
                // `\*N:x` is N times x.
                let count: String = chars.by_ref().take_while(|c| *c != ':').collect();
                let what = chars.next().expect("a character to repeat");
                out.extend(std::iter::repeat_n(what as u8, count.parse().expect("a count")));
            }
            other => out.extend(other.map(|c| c as u8)),
        }
    }
    out.extend_from_slice(end);
    out
}

fn parse(text: &str) -> (Limits, BareLf, Vec<Turn>) {
    let (mut limits, mut bare_lf) = (Limits::default(), BareLf::Reject);
    let mut turns = vec![Turn::default()];
    for (number, line) in text.lines().enumerate() {
        let (tag, rest) = line.split_at(line.len().min(2));
        let rest = rest.strip_prefix(' ').unwrap_or(rest);
        match tag {
            "C:" => turns.push(Turn { line_number: number + 1, send: unescape(rest), ..Turn::default() }),
            "C+" => turns.last_mut().unwrap().send.extend(unescape(rest)),
            "S:" if rest == "<close>" => turns.last_mut().unwrap().close = true,
            "S:" => turns.last_mut().unwrap().expect.push(rest.to_owned()),
            "= " => turns.last_mut().unwrap().accepted.push(rest.to_owned()),
            "! " if rest == "bare_lf = normalize" => bare_lf = BareLf::Normalize,
            "! " => set(&mut limits, rest),
            "" | "# " | "#" => {}
            _ => panic!("line {}: unknown {tag:?}", number + 1),
        }
    }
    (limits, bare_lf, turns)
}

fn set(limits: &mut Limits, text: &str) {
    let (name, value) = text.split_once(" = ").expect("! name = value");
    let value: usize = value.parse().expect("a number");
    match name {
        "recipients" => limits.recipients = value,
        "errors" => limits.errors = value as u32,
        "refused_recipients" => limits.refused_recipients = value as u32,
        "junk_commands" => limits.junk_commands = value as u32,
        "transactions" => limits.transactions = value as u32,
        "message_bytes" => limits.message_bytes = value as u64,
        "command_line_bytes" => limits.command_line_bytes = value,
        _ => panic!("no limit {name}"),
    }
}

/// Sends each turn in pieces of `size` octets, except where `C+` asks for one segment.
fn replay(name: &str, mut driver: Driver, turns: &[Turn], size: usize) {
    for turn in turns {
        let whole = size == 0 || turn.send.windows(10).any(|w| w == b"STARTTLS\r\n") || is_out_of_sync(turn);
        let size = if whole { turn.send.len().max(1) } else { size };
        for piece in turn.send.chunks(size) {
            driver.receive(piece);
        }
        let sent = std::mem::take(&mut driver.sent);
        let got: Vec<&str> = sent.lines().collect();
        let mut report = String::new();
        let matches = |(want, got): (&String, &&str)| {
            want.strip_suffix('*').map_or(want == got, |w| got.starts_with(w))
        };
        let same = got.len() == turn.expect.len() && turn.expect.iter().zip(&got).all(matches);
        if !same {
            let _ = write!(report, "want {:#?}\n got {got:#?}", turn.expect);
        }
        let accepted = std::mem::take(&mut driver.accepted);
        if accepted != turn.accepted {
            let _ = write!(report, "\nwant accepted {:#?}\n got {accepted:#?}", turn.accepted);
        }
        if driver.closed != turn.close {
            let _ = write!(report, "\nclosed: {}", driver.closed);
        }
        assert!(report.is_empty(), "{name}:{} in pieces of {size}: {report}", turn.line_number);
    }
}

/// What counts as talking out of turn depends on the segment, so it is not split.
fn is_out_of_sync(turn: &Turn) -> bool {
    turn.expect.iter().any(|line| line.starts_with("554 5.5.0"))
}

#[test]
fn every_dialog_reads_the_same_at_every_split() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/dialogs");
    let mut count = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let (limits, bare_lf, turns) = parse(&fs::read_to_string(&path).unwrap());
        for size in [0, 1, 2, 3, 5, 7, 13, 64] {
            replay(&name, Driver::new(limits.clone(), bare_lf), &turns, size);
        }
        count += 1;
    }
    assert!(count >= 12, "only {count} dialogs were found");
}

#[test]
fn binarymime_is_offered_only_where_binary_content_can_be_passed_on() {
    for binary_mime in [true, false] {
        let capabilities = Capabilities { hostname: "mx.here.test".into(), starttls: false, binary_mime };
        let mut connection = Connection::new(Limits::default().into(), Arc::new(capabilities), false);
        let mut input = &b"EHLO c\r\nMAIL FROM:<a@b> BODY=BINARYMIME\r\n"[..];
        let asks = matches!(connection.step(&mut input), Step::JudgeSender);
        let sent = String::from_utf8(connection.output().clone()).unwrap();
        assert_eq!((asks, sent.contains("250-BINARYMIME\r\n")), (binary_mime, binary_mime), "{sent}");
        assert_eq!(sent.ends_with("555 5.5.4 Parameter not recognized\r\n"), !binary_mime, "{sent}");
    }
}
