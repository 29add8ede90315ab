//! Lines of the delivery log: JSON, one object a line, or the lines of Postfix, for tools that read its logs.
//! docs/log.md describes every field.

use jiff::{Timestamp, tz::TimeZone};
use mail::{
    Attempt, DeliverBy, DeliverByMode, Destination, Message, Origin, Outcome, Part, QueueId, UnixMillis,
};
use serde::Serialize;
use std::{cell::RefCell, io::Write as _};

/// A rejection of an inbound session.
#[derive(Debug, Clone, Copy)]
pub struct Rejected<'a> {
    /// `192.0.2.1:1234`.
    pub client: std::net::SocketAddr,
    /// The command: `CONNECT`, `AUTH PLAIN`, `MAIL`, `RCPT`, `DATA`.
    pub stage: &'a str,
    /// The user name of a login that failed, as the client gave it.
    pub login: Option<&'a str>,
    /// The reverse-path, once it is known.
    pub from: Option<&'a str>,
    /// The recipient it was about.
    pub to: Option<&'a str>,
    /// The reply.
    pub reply: &'a str,
    /// The rule of the configuration that decided.
    pub rule: Option<&'a str>,
}

/// An event of the delivery log.
#[derive(Debug, Clone, Copy)]
pub enum Event<'a> {
    /// A message is durable and queued.
    Accepted(&'a Message),
    /// The outcome of one recipient in one attempt.
    Attempt {
        /// The message.
        message: &'a Message,
        /// The recipient's index in the envelope.
        recipient: u32,
        /// The outcome of the recipient.
        outcome: &'a Outcome,
        /// The circumstances of the attempt.
        attempt: &'a Attempt,
    },
    /// An operator deleted a recipient: it is not tried any more, and its sender gets no report.
    Deleted {
        /// The message.
        message: &'a Message,
        /// The recipient's index in the envelope.
        recipient: u32,
    },
    /// A message is held from the start. Before [`Event::Accepted`].
    Held {
        /// The message.
        id: QueueId,
        /// The reason to hold the message.
        reason: &'a str,
    },
    /// The client heard that a message is accepted, and it was discarded.
    Discarded {
        /// The id that the client heard.
        id: QueueId,
        /// The reverse-path.
        from: &'a str,
        /// The recipient, where only one of a message was discarded.
        to: Option<&'a str>,
        /// The reason to discard the message or the recipient.
        reason: &'a str,
    },
    /// Nothing is left to do for a message.
    Completed(QueueId),
    /// A client's command was rejected.
    Rejected(Rejected<'a>),
    /// A destination cannot be reached, and is suspended.
    Suspended {
        /// The destination.
        destination: &'a Destination,
        /// The outcome that suspends the destination.
        outcome: &'a Outcome,
        /// The time of the next probe.
        until: Option<UnixMillis>,
    },
    /// Lines were dropped.
    DroppedLines(u64),
}

#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum JsonLine<'a> {
    Accepted {
        time: &'a str,
        id: &'a str,
        from: &'a str,
        recipients: usize,
        size: u64,
        #[serde(serialize_with = "displayed")]
        origin: &'a Origin,
        #[serde(skip_serializing_if = "Option::is_none")]
        login: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        release: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        deliver_by: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        priority: Option<i8>,
    },
    Attempt {
        time: &'a str,
        id: &'a str,
        from: &'a str,
        to: &'a str,
        status: &'a str,
        dsn: String,
        relay: &'a str,
        tls: &'a str,
        reply: &'a str,
        age_ms: u64,
        queued_ms: u64,
        setup_ms: u64,
        transfer_ms: u64,
    },
    Deleted {
        time: &'a str,
        id: &'a str,
        from: &'a str,
        to: &'a str,
    },
    Held {
        time: &'a str,
        id: &'a str,
        reason: &'a str,
    },
    Discarded {
        time: &'a str,
        id: &'a str,
        from: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        to: Option<&'a str>,
        reason: &'a str,
    },
    Completed {
        time: &'a str,
        id: &'a str,
    },
    Rejected {
        time: &'a str,
        client: String,
        stage: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        login: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        from: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        to: Option<&'a str>,
        reply: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        rule: Option<&'a str>,
    },
    Suspended {
        time: &'a str,
        destination: String,
        reason: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        until: Option<String>,
    },
    DroppedLines {
        time: &'a str,
        lines: u64,
    },
}

fn displayed<S: serde::Serializer>(value: &impl std::fmt::Display, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(value)
}

fn text(id: &[u8; 13]) -> &str {
    std::str::from_utf8(id).unwrap_or_default()
}

/// Appends the event as one JSON object and a line feed.
pub fn json(event: &Event<'_>, now: UnixMillis, out: &mut Vec<u8>) {
    let mut time = [0; 24];
    let time = iso(now, &mut time);
    let id_text;
    let row = match *event {
        Event::Accepted(message) => {
            id_text = message.id.to_ascii();
            let options = message.envelope.options.as_deref();
            JsonLine::Accepted {
                time,
                id: text(&id_text),
                from: message.envelope.reverse_path.as_str(),
                recipients: message.envelope.recipients.len(),
                size: message.content.size_bytes(),
                origin: &message.origin,
                login: login_of(message),
                release: options.and_then(|options| Some(options.release?.rfc3339())),
                deliver_by: options.and_then(|options| options.deliver_by.map(deadline_text)),
                priority: options.and_then(|options| Some(options.priority?.value())),
            }
        }
        Event::Attempt { message, recipient, outcome, attempt } => {
            id_text = message.id.to_ascii();
            JsonLine::Attempt {
                time,
                id: text(&id_text),
                from: message.envelope.reverse_path_of(recipient).as_str(),
                to: recipient_of(message, recipient),
                status: outcome.disposition.as_str(),
                dsn: outcome.status.to_string(),
                relay: &attempt.relay,
                tls: &attempt.tls,
                reply: &outcome.text,
                age_ms: u64::try_from(now.since(message.arrived).as_millis()).unwrap_or(u64::MAX),
                queued_ms: attempt.queued_ms,
                setup_ms: attempt.setup_ms,
                transfer_ms: attempt.transfer_ms,
            }
        }
        Event::Deleted { message, recipient } => {
            id_text = message.id.to_ascii();
            JsonLine::Deleted {
                time,
                id: text(&id_text),
                from: message.envelope.reverse_path_of(recipient).as_str(),
                to: recipient_of(message, recipient),
            }
        }
        Event::Held { id, reason } => {
            id_text = id.to_ascii();
            JsonLine::Held { time, id: text(&id_text), reason }
        }
        Event::Discarded { id, from, to, reason } => {
            id_text = id.to_ascii();
            JsonLine::Discarded { time, id: text(&id_text), from, to, reason }
        }
        Event::Completed(id) => {
            id_text = id.to_ascii();
            JsonLine::Completed { time, id: text(&id_text) }
        }
        Event::Rejected(r) => JsonLine::Rejected {
            time,
            client: client_text(r.client),
            stage: r.stage,
            login: r.login,
            from: r.from,
            to: r.to,
            reply: r.reply,
            rule: r.rule,
        },
        Event::Suspended { destination, outcome, until } => JsonLine::Suspended {
            time,
            destination: destination.to_string(),
            reason: &outcome.text,
            until: until.map(UnixMillis::rfc3339),
        },
        Event::DroppedLines(lines) => JsonLine::DroppedLines { time, lines },
    };
    // Into memory, of strings and numbers: it cannot fail.
    let _ = serde_json::to_writer(&mut *out, &row);
    out.push(b'\n');
}

/// `2026-11-21T06:25:54.048Z;R`, with the by-mode and the by-trace of RFC 2852.
fn deadline_text(by: DeliverBy) -> String {
    let mode = if by.mode == DeliverByMode::Return { 'R' } else { 'N' };
    format!("{};{mode}{}", by.deadline.rfc3339(), if by.trace { "T" } else { "" })
}

/// Returns the login that submitted a message.
fn login_of(message: &Message) -> Option<&str> {
    message.envelope.options.as_ref()?.login.as_deref()
}

fn recipient_of(message: &Message, index: u32) -> &str {
    message.envelope.recipients.get(index as usize).map_or("", |r| r.path.as_str())
}

thread_local! {
    /// The texts of the current second: formatting them costs more than the rest of a line.
    static SECOND: RefCell<(u64, String, String)> = const { RefCell::new((u64::MAX, String::new(), String::new())) };
}

/// Calls `then` with `2026-11-21T06:25:54` (UTC) and `Nov 21 06:25:54` (local).
fn with_second<T>(now: UnixMillis, then: impl FnOnce(&str, &str) -> T) -> T {
    SECOND.with_borrow_mut(|(second, iso, syslog)| {
        if *second != now.0 / 1000 {
            *second = now.0 / 1000;
            *iso = now.rfc3339().chars().take(19).collect();
            let local = Timestamp::from_millisecond(i64::try_from(now.0).unwrap_or(0)).unwrap_or_default();
            *syslog = local.to_zoned(TimeZone::system()).strftime("%b %e %H:%M:%S").to_string();
        }
        then(iso, syslog)
    })
}

fn iso(now: UnixMillis, out: &mut [u8; 24]) -> &str {
    with_second(now, |iso, _| {
        let _ = write!(&mut out[..], "{iso}.{:03}Z", now.0 % 1000);
    });
    std::str::from_utf8(out).unwrap_or_default()
}

/// The host and process that stand in front of Postfix's lines.
#[derive(Debug, Clone)]
pub struct Postfix {
    /// The host name as syslog writes it: its first label.
    pub host: String,
    /// The process id.
    pub pid: u32,
}

impl Postfix {
    /// Appends the event as Postfix logs it; some events have several lines.
    pub fn write(&self, event: &Event<'_>, now: UnixMillis, out: &mut Vec<u8>) {
        match *event {
            Event::Accepted(message) => self.accepted(message, now, out),
            Event::Attempt { message, recipient, outcome, attempt } => {
                let program = match attempt.relay.split(['[', ':']).next() {
                    Some("maildir") => "virtual",
                    Some("discard") => "discard",
                    Some("unix") => "lmtp",
                    Some("") | None => "error",
                    Some(_) => "smtp",
                };
                let age_ms = u64::try_from(now.since(message.arrived).as_millis()).unwrap_or(u64::MAX);
                let seconds = |ms: u64| ms as f64 / 1000.0;
                let before =
                    age_ms.saturating_sub(attempt.queued_ms + attempt.setup_ms + attempt.transfer_ms);
                self.head(program, now, out);
                let _ = writeln!(
                    out,
                    "{}: to=<{}>, relay={}, delay={:.2}, delays={:.2}/{:.2}/{:.2}/{:.2}, dsn={}, status={} ({})",
                    message.id,
                    recipient_of(message, recipient),
                    if attempt.relay.is_empty() { "none" } else { &attempt.relay },
                    seconds(age_ms),
                    seconds(before),
                    seconds(attempt.queued_ms),
                    seconds(attempt.setup_ms),
                    seconds(attempt.transfer_ms),
                    outcome.status,
                    outcome.disposition.as_str(),
                    outcome.text,
                );
            }
            // As after postsuper -d: only `removed`. With a status, tools would count a bounce.
            Event::Deleted { .. } => {}
            Event::Held { id, reason } => {
                self.head("cleanup", now, out);
                let _ = writeln!(out, "{id}: hold: {reason}");
            }
            Event::Discarded { id, from, to, reason } => {
                self.head("cleanup", now, out);
                let _ = write!(out, "{id}: discard: {reason}; from=<{from}>");
                if let Some(to) = to {
                    let _ = write!(out, " to=<{to}>");
                }
                out.push(b'\n');
            }
            Event::Completed(id) => {
                self.head("qmgr", now, out);
                let _ = writeln!(out, "{id}: removed");
            }
            Event::Rejected(Rejected { client, stage, login, reply, .. }) if stage.starts_with("AUTH") => {
                self.head("smtpd", now, out);
                let mechanism = stage.trim_start_matches("AUTH").trim_start();
                let client = client.ip();
                let _ = write!(
                    out,
                    "warning: unknown[{client}]: SASL {mechanism} authentication failed: {reply}, sasl_username="
                );
                // The name is the client's: it can end no line.
                let login = login.unwrap_or("(unavailable)").escape_debug();
                let _ = writeln!(out, "{login}");
            }
            Event::Rejected(r) => {
                self.head("smtpd", now, out);
                let _ =
                    write!(out, "NOQUEUE: reject: {} from unknown[{}]: {}", r.stage, r.client.ip(), r.reply);
                let _ = write!(out, "; from=<{}>", r.from.unwrap_or_default());
                if let Some(to) = r.to {
                    let _ = write!(out, " to=<{to}>");
                }
                out.extend_from_slice(b" proto=ESMTP\n");
            }
            Event::Suspended { destination, outcome, .. } => {
                self.head("qmgr", now, out);
                let _ = writeln!(out, "warning: {destination} is suspended: {}", outcome.text);
            }
            Event::DroppedLines(lines) => {
                self.head("postlogd", now, out);
                let _ = writeln!(out, "warning: {lines} lines of the log were dropped");
            }
        }
    }

    fn accepted(&self, message: &Message, now: UnixMillis, out: &mut Vec<u8>) {
        let id = message.id;
        if let Origin::Local { uid } = message.origin {
            self.head("pickup", now, out);
            let _ = writeln!(out, "{id}: uid={uid} from=<{}>", message.envelope.reverse_path);
        } else if let Origin::Smtp { client, .. } = message.origin {
            self.head("smtpd", now, out);
            let _ = write!(out, "{id}: client=unknown[{client}]");
            if let Some(login) = login_of(message) {
                let _ = write!(out, ", sasl_username={}", login.escape_debug());
            }
            out.push(b'\n');
        }
        self.head("cleanup", now, out);
        let _ = write!(out, "{id}: message-id=");
        out.extend_from_slice(message_id(message));
        out.push(b'\n');
        self.head("qmgr", now, out);
        let _ = writeln!(
            out,
            "{id}: from=<{}>, size={}, nrcpt={} (queue active)",
            message.envelope.reverse_path,
            message.content.size_bytes(),
            message.envelope.recipients.len()
        );
    }

    fn head(&self, program: &str, now: UnixMillis, out: &mut Vec<u8>) {
        with_second(now, |_, syslog| {
            let _ = write!(out, "{syslog} {} postfix/{program}[{}]: ", self.host, self.pid);
        });
    }
}

/// From the first piece of content, if that is in memory and has one that can stand in a log.
fn message_id(message: &Message) -> &[u8] {
    let Some(Part::Memory(bytes)) = message.content.parts().first() else { return b"" };
    let end = bytes.windows(4).position(|w| w == b"\r\n\r\n").unwrap_or(bytes.len());
    let name = b"message-id:";
    let found = bytes[..end]
        .split(|b| *b == b'\n')
        .find(|line| line.get(..name.len()).is_some_and(|n| n.eq_ignore_ascii_case(name)));
    let value = found.map_or(&b""[..], |line| line[name.len()..].trim_ascii());
    if value.iter().all(u8::is_ascii_graphic) { value } else { b"" }
}

/// Returns the address of a client; the unspecified address stands for a client on a Unix socket.
fn client_text(client: std::net::SocketAddr) -> String {
    if client.ip().is_unspecified() { "unix".to_owned() } else { client.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mail::{Content, Enhanced, Envelope, ForwardPath, Recipient, ReversePath};

    fn message() -> Message {
        let mut envelope = Envelope::new(ReversePath::parse("a@b.test", false).unwrap());
        envelope.recipients = vec![Recipient::new(ForwardPath::parse("\"q\\\"x\"@c.test", false).unwrap())];
        Message {
            id: QueueId(1),
            arrived: UnixMillis(1_795_242_354_048),
            origin: "client=[192.0.2.1] helo=x proto=ESMTP".into(),
            envelope,
            content: Content::from_bytes("Message-ID: <m@b.test>\r\n\r\nx\r\n".to_owned()),
        }
    }

    fn events<'a>(message: &'a Message, outcome: &'a Outcome, attempt: &'a Attempt) -> Vec<Event<'a>> {
        let client = "192.0.2.1:1234".parse().unwrap();
        let rejected = Rejected {
            client,
            stage: "RCPT",
            login: None,
            from: Some("x@y"),
            to: Some("z@w"),
            reply: "550 5.7.1 no",
            rule: Some("rule 3, line 20"),
        };
        vec![
            Event::Accepted(message),
            Event::Attempt { message, recipient: 0, outcome, attempt },
            Event::Completed(message.id),
            Event::Rejected(rejected),
            Event::Deleted { message, recipient: 0 },
            Event::DroppedLines(3),
        ]
    }

    fn sample() -> (Message, Outcome, Attempt) {
        let outcome = Outcome::deferred(Enhanced(4, 2, 1), "450 4.2.1 \"busy\" \u{e9}");
        let attempt = Attempt {
            relay: "mx[192.0.2.2]:25".into(),
            queued_ms: 10,
            setup_ms: 20,
            transfer_ms: 30,
            ..Attempt::default()
        };
        (message(), outcome, attempt)
    }

    #[test]
    fn every_event_is_one_json_object_a_line() {
        let (message, outcome, attempt) = sample();
        let mut out = Vec::new();
        for event in events(&message, &outcome, &attempt) {
            json(&event, UnixMillis(1_795_242_355_048), &mut out);
        }
        let text = String::from_utf8(out).unwrap();
        let rows: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(rows[0]["event"], "accepted");
        assert_eq!(rows[0]["time"], "2026-11-21T06:25:55.048Z");
        assert_eq!(rows[1]["status"], "deferred");
        assert_eq!(rows[1]["age_ms"], 1000);
        assert_eq!(rows[1]["to"], "\"q\\\"x\"@c.test");
        assert_eq!(rows[3]["to"], "z@w");
        assert_eq!((&rows[4]["event"], &rows[4]["to"]), (&"deleted".into(), &"\"q\\\"x\"@c.test".into()));
        assert_eq!(rows.len(), 6);
    }

    #[test]
    fn no_client_hides_behind_what_it_calls_itself() {
        let postfix = Postfix { host: "mx".into(), pid: 42 };
        for (origin, line) in [
            (
                "client=[192.0.2.1] helo=uid=0 proto=ESMTP",
                "smtpd[42]: 0000000000001: client=unknown[192.0.2.1]",
            ),
            ("submit uid=1000", "pickup[42]: 0000000000001: uid=1000 from=<a@b.test>"),
        ] {
            let message = Message { origin: origin.into(), ..message() };
            let mut out = Vec::new();
            postfix.write(&Event::Accepted(&message), UnixMillis(1_795_242_355_048), &mut out);
            let text = String::from_utf8(out).unwrap();
            assert!(text.lines().next().unwrap().ends_with(line), "{text}");
        }
    }

    #[test]
    fn postfix_lines_have_what_its_log_tools_look_for() {
        let (message, outcome, attempt) = sample();
        let postfix = Postfix { host: "mx".into(), pid: 42 };
        let mut out = Vec::new();
        for event in events(&message, &outcome, &attempt) {
            postfix.write(&event, UnixMillis(1_795_242_355_048), &mut out);
        }
        let text = String::from_utf8(out).unwrap();
        for part in [
            "mx postfix/smtpd[42]: 0000000000001: client=unknown[192.0.2.1]",
            "postfix/cleanup[42]: 0000000000001: message-id=<m@b.test>\n",
            "postfix/qmgr[42]: 0000000000001: from=<a@b.test>, size=29, nrcpt=1 (queue active)\n",
            "relay=mx[192.0.2.2]:25, delay=1.00, delays=0.94/0.01/0.02/0.03, dsn=4.2.1, status=deferred (450 4.2.1",
            "postfix/qmgr[42]: 0000000000001: removed\n",
            "NOQUEUE: reject: RCPT from unknown[192.0.2.1]: 550 5.7.1 no; from=<x@y> to=<z@w> proto=ESMTP\n",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        // What is deleted counts neither as sent nor as returned.
        assert_eq!(text.matches("status=").count(), 1, "{text}");
    }
}
