//! Replays `tests/dialogs/*.smtp` against the server session, at every split of the input.
//!
//! `C:` is a line from the client, `S:` a reply expected before the next `C:`; `C+` a client line in
//! the same segment as the one before. `\r`, `\n`, `\0`, `\xHH` and `\\` are escapes; a `C` line ends
//! in CRLF unless it ends in `\c`. `<close>` after `S:` expects the connection to close. `!` sets a
//! limit (`! bare_lf = normalize` what is done with a bare LF, `! without = DSN` takes a keyword from EHLO's reply,
//! `! auth = tls` and `! auth = always` offer AUTH, `! needs = login` needs TLS and AUTH, `! protocol = lmtp`), `#` is a comment, `= text` is a message that must have been
//! accepted by now. `! offer = ETRN` offers a keyword that is not offered otherwise.
//!
//! The policy played here: `@here.test` is ours, everything else is refused; a client that calls itself `bad.test` is
//! refused; content with the word `spam` is refused, and with `discard` it is accepted and discarded. AUTH has one
//! mechanism, X-SUM: the challenge is a digit, and the response is the next one. The time is 2026-11-21T06:25:54Z; a
//! message is held for a day at most, and the least time of BY is a minute. `joe` exists, and `list` has members. What
//! is queued for `queued.test` can be started. XCLIENT is refused for the address 192.0.2.66. A message with options
//! shows them behind its recipients.

use mail::{DeliveryOptions, Enhanced, Reply, UnixMillis};
use smtp::{
    Limits,
    forwarded::{Attribute, ClientAttributes},
    server::{
        Auth, AuthInput, BareLf, Connection, Extensions, Keyword, MechanismNeed, OfferedMechanism, Profile,
        Query, Step, replies,
    },
};
use std::{fmt::Write as _, fs, path::Path, sync::Arc};

/// Plays policy and spool.
struct Driver {
    connection: Connection,
    unread: Vec<u8>,
    sent: String,
    content: Vec<u8>,
    accepted: Vec<String>,
    /// The client of XFORWARD.
    forwarded: String,
    closed: bool,
}

const NOW: UnixMillis = UnixMillis(1_795_242_354_000);

fn answer(query: &Query) -> Reply {
    match query {
        Query::Verify(user) if &**user == "joe" => Reply::fixed(250, Enhanced(2, 1, 5), "<joe@here.test>"),
        Query::Verify(_) => Reply::fixed(550, Enhanced(5, 1, 1), "No such user"),
        Query::Expand(list) if &**list == "list" => {
            Reply::fixed(250, Enhanced(2, 1, 5), "<joe@here.test>\n<jane@here.test>")
        }
        Query::Expand(_) => Reply::fixed(550, Enhanced(5, 1, 1), "No such list"),
        Query::StartQueue(node) if &*node.domain == "queued.test" && node.with_subdomains => {
            replies::QUEUING_STARTED
        }
        Query::StartQueue(node) if &*node.domain == "queued.test" => {
            Reply::fixed(253, Enhanced(2, 0, 0), "Ok, 2 messages are pending")
        }
        Query::StartQueue(_) => replies::NODE_NOT_ALLOWED,
    }
}

/// The times are in seconds from now.
fn shown(options: &DeliveryOptions) -> String {
    let from_now = |at: UnixMillis| (at.0 as i64 - NOW.0 as i64) / 1000;
    let release = options.release.map(|at| format!(" held {}", from_now(at)));
    let by = options.deliver_by.map(|by| format!(" by {} {:?} {}", from_now(by.deadline), by.mode, by.trace));
    let priority = options.priority.map(|priority| format!(" priority {}", priority.value()));
    let submitter = options.auth.as_ref().map(|submitter| format!(" auth <{submitter}>"));
    [release, by, priority, submitter].into_iter().flatten().collect()
}

impl Driver {
    fn new(Options { limits, bare_lf, profile }: Options) -> Self {
        let mut connection = Connection::new(limits.into(), Arc::new(profile), false);
        connection.set_bare_lf(bare_lf);
        let mut driver = Self {
            connection,
            unread: Vec::new(),
            sent: String::new(),
            content: Vec::new(),
            accepted: Vec::new(),
            forwarded: String::new(),
            closed: false,
        };
        driver.receive(b"");
        driver
    }

    fn receive(&mut self, bytes: &[u8]) {
        self.unread.extend_from_slice(bytes);
        let unread = std::mem::take(&mut self.unread);
        let mut input = &unread[..];
        let mut next = None;
        while !self.closed {
            match next.take().unwrap_or_else(|| self.connection.step(&mut input)) {
                Step::AskTime => next = self.connection.set_time(NOW),
                Step::Query(query) => self.connection.answer(answer(&query)),
                Step::ChangeClient(client) => self.change_client(*client),
                Step::NoteForwarded(client) => {
                    self.forwarded = format!(" for {client:?}").replace("NotGiven", "-");
                    self.connection.answer(replies::XFORWARD_OK);
                }
                Step::NeedInput => break,
                Step::JudgeHello => {
                    let is_bad = self.connection.session().judged_hello() == Some("bad.test");
                    let refused = Reply::fixed(550, Enhanced(5, 7, 1), "Go away");
                    self.connection.answer(if is_bad { refused } else { replies::OK });
                }
                Step::Authenticate(AuthInput::Begin { initial: Some(initial), .. }) => self.respond(&initial),
                Step::Authenticate(AuthInput::Begin { .. }) => self.connection.challenge(b"4".to_vec()),
                Step::Authenticate(AuthInput::Response(response)) => self.respond(&response),
                Step::JudgeSender => self.connection.answer(replies::SENDER_OK),
                Step::JudgeRecipient => {
                    let path = self.connection.session().judged_recipient().unwrap().path.as_str();
                    let ours = path == "postmaster" || path.ends_with("@here.test");
                    let refused = Reply::fixed(550, Enhanced(5, 7, 1), "Relaying denied");
                    self.connection.answer(if ours { replies::RECIPIENT_OK } else { refused });
                }
                Step::Refused(refused) => assert!(refused.envelope.is_some()),
                Step::StartContent | Step::DiscardContent(_) => self.content.clear(),
                Step::Content(piece) => self.content.extend_from_slice(piece),
                Step::JudgeContent => self.judge_content(),
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

    fn change_client(&mut self, client: ClientAttributes) {
        if client.address.is_some_and(|address| address.to_string() == "192.0.2.66") {
            return self.connection.answer(replies::TOO_BUSY);
        }
        let hello = match client.hello {
            Attribute::Is(name) => Some((name, client.is_extended == Some(true))),
            Attribute::NotGiven | Attribute::Unavailable => None,
        };
        self.connection.restart(hello);
    }

    fn respond(&mut self, response: &[u8]) {
        let failed = Reply::fixed(535, Enhanced(5, 7, 8), "Authentication failed");
        self.connection.answer(if response == b"5" { replies::AUTHENTICATED } else { failed });
    }

    fn judge_content(&mut self) {
        let has = |word: &[u8]| self.content.windows(word.len()).any(|part| part == word);
        if has(b"spam") {
            return self.connection.answer(Reply::fixed(550, Enhanced(5, 7, 1), "No spam here"));
        }
        if has(b"discard") {
            return self.connection.answer(replies::ACCEPTED);
        }
        let envelope = self.connection.accept_content();
        let to: Vec<_> = envelope.recipients.iter().map(|r| r.path.as_str()).collect();
        let content = String::from_utf8_lossy(&self.content).escape_debug().to_string();
        let options = envelope.options.as_deref().map(shown).unwrap_or_default();
        let (from, forwarded) = (&envelope.reverse_path, std::mem::take(&mut self.forwarded));
        self.accepted.push(format!("<{from}> to {}{options}{forwarded}: {content}", to.join(",")));
        self.connection.answer(replies::ACCEPTED);
    }

    fn flush(&mut self) {
        self.sent.push_str(std::str::from_utf8(self.connection.output()).expect("replies are UTF-8"));
        self.connection.output().clear();
    }
}

/// The settings that the lines with `!` change.
#[derive(Clone)]
struct Options {
    limits: Limits,
    bare_lf: BareLf,
    profile: Profile,
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

fn parse(text: &str) -> (Options, Vec<Turn>) {
    let mut profile = Profile::new("mx.here.test").with_starttls();
    profile.extensions = Extensions {
        hold_max_seconds: 86_400,
        deliver_by_min_seconds: 60,
        priority_policy: Some("MIXER".into()),
    };
    let mut options = Options { limits: Limits::default(), bare_lf: BareLf::Reject, profile };
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
            "! " => set(&mut options, rest),
            "" | "# " | "#" => {}
            _ => panic!("line {}: unknown {tag:?}", number + 1),
        }
    }
    (options, turns)
}

fn set(options: &mut Options, text: &str) {
    let (name, value) = text.split_once(" = ").expect("! name = value");
    match name {
        "bare_lf" => {
            assert_eq!(value, "normalize");
            return options.bare_lf = BareLf::Normalize;
        }
        "without" => {
            let profile = options.profile.clone();
            return options.profile = profile.without(keyword(value));
        }
        "offer" => {
            let keywords = value.split(' ').map(keyword);
            let profile = keywords.fold(options.profile.clone(), Profile::with);
            return options.profile = profile;
        }
        "auth" => {
            let offered = |name: &str, needs| OfferedMechanism { name: name.into(), needs };
            let mechanisms = vec![
                offered("X-SUM-PLUS", MechanismNeed::Tls),
                offered("X-CERT", MechanismNeed::Certificate),
                offered("X-SUM", MechanismNeed::Nothing),
            ];
            let auth = Auth { mechanisms, in_clear_text: value == "always" };
            return options.profile = options.profile.clone().with_auth(auth);
        }
        "protocol" => {
            assert_eq!(value, "lmtp");
            return options.profile.is_lmtp = true;
        }
        "needs" => {
            options.profile.needs_tls = true;
            options.profile.needs_login = true;
            return;
        }
        _ => {}
    }
    let limits = &mut options.limits;
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

fn keyword(name: &str) -> Keyword {
    match name {
        "PIPELINING" => Keyword::Pipelining,
        "SIZE" => Keyword::Size,
        "8BITMIME" => Keyword::EightBitMime,
        "LIMITS" => Keyword::Limits,
        "REQUIRETLS" => Keyword::RequireTls,
        "DSN" => Keyword::Dsn,
        "SMTPUTF8" => Keyword::SmtpUtf8,
        "CHUNKING" => Keyword::Chunking,
        "BINARYMIME" => Keyword::BinaryMime,
        "STARTTLS" => Keyword::StartTls,
        "FUTURERELEASE" => Keyword::FutureRelease,
        "DELIVERBY" => Keyword::DeliverBy,
        "MT-PRIORITY" => Keyword::MtPriority,
        "ETRN" => Keyword::Etrn,
        "VRFY" => Keyword::Vrfy,
        "EXPN" => Keyword::Expn,
        "XCLIENT" => Keyword::XClient,
        "XFORWARD" => Keyword::XForward,
        _ => panic!("no keyword {name}"),
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

/// Returns true if the turn expects the reply to early input. That reply depends on the segments, so the turn is not
/// split.
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
        let (options, turns) = parse(&fs::read_to_string(&path).unwrap());
        for size in [0, 1, 2, 3, 5, 7, 13, 64] {
            replay(&name, Driver::new(options.clone()), &turns, size);
        }
        count += 1;
    }
    assert!(count >= 12, "only {count} dialogs were found");
}
