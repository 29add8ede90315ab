//! Events as the lines that Postfix writes, for tools that read its log: pflogsumm, fail2ban, log viewers.

use super::time::with_second;
use crate::{
    UnixMicros,
    event::{Accepted, Attempted, Changed, Event, Notification, Rejected, SessionBreak, Status, Waiting},
};
use mail::{Enhanced, Origin};
use std::{io::Write as _, net::SocketAddr};

/// The host and process that stand in front of Postfix's lines.
#[derive(Debug, Clone)]
pub struct Postfix {
    /// The host name as syslog writes it: its first label.
    pub host: String,
    /// Process id, in brackets behind the name of the program.
    pub pid: u32,
}

/// A line without time and host: the program that Postfix would have logged it from, and the text.
type Line<'a> = &'a mut dyn FnMut(&str, std::fmt::Arguments<'_>);

impl Postfix {
    /// Appends the event as Postfix logs it; some events have several lines, and some have none.
    pub(super) fn append(&self, event: &Event<'_>, at: UnixMicros, out: &mut Vec<u8>) {
        lines(event, &mut |program, text| {
            let begin = out.len();
            with_second(at, |_, syslog| {
                let _ = write!(out, "{syslog} {} postfix/{program}[{}]: {text}", self.host, self.pid);
            });
            escape_from(begin, out);
            out.push(b'\n');
        });
    }
}

/// Escapes the characters of a line that would not be seen, or would end it.
fn escape_from(begin: usize, out: &mut Vec<u8>) {
    let is_plain = out[begin..].iter().all(|byte| (b' '..0x7f).contains(byte));
    if is_plain {
        return;
    }
    let line = out.split_off(begin);
    out.extend_from_slice(
        mail::escape_invisible(&String::from_utf8_lossy(&line)).replace('\n', "\\u{a}").as_bytes(),
    );
}

/// Calls `line` with each line that Postfix logs for such an event.
pub(super) fn lines(event: &Event<'_>, line: Line<'_>) {
    match *event {
        Event::Accepted(accepted) => accepted_lines(&accepted, line),
        Event::Attempt(attempt) => attempt_line(&attempt, line),
        Event::Waiting(waiting) => waiting_line(&waiting, line),
        Event::Expired { id, from } => {
            line("qmgr", format_args!("{id}: from=<{from}>, status=expired, returned to sender"));
        }
        // As after postsuper -d: only `removed`. With a status, tools would count a bounce.
        Event::Deleted { .. } => {}
        Event::Held { id, reason } => line("cleanup", format_args!("{id}: hold: {reason}")),
        Event::Discarded { id, from, to: Some(to), reason } => {
            line("cleanup", format_args!("{id}: discard: {reason}; from=<{from}> to=<{to}>"));
        }
        Event::Discarded { id, from, to: None, reason } => {
            line("cleanup", format_args!("{id}: discard: {reason}; from=<{from}>"));
        }
        Event::Notified { id, notification, kind } => {
            let name = match kind {
                Notification::Failure => "sender non-delivery notification",
                Notification::Delay => "sender delay notification",
                Notification::Success => "sender delivery status notification",
                Notification::DoubleBounce => "postmaster non-delivery notification",
            };
            line("bounce", format_args!("{id}: {name}: {notification}"));
        }
        Event::NotMailed { id, to, reason, .. } => {
            line(
                "bounce",
                format_args!("{id}: postmaster non-delivery notification not sent: to=<{to}> ({reason})"),
            );
        }
        Event::Completed(id) => line("qmgr", format_args!("{id}: removed")),
        Event::Rejected(rejected) => rejected_line(&rejected, line),
        Event::Connected { client, .. } => line("smtpd", format_args!("connect from {}", Client(client))),
        Event::Disconnected { client, commands } => {
            line("smtpd", format_args!("disconnect from {}{commands}", Client(client)));
        }
        Event::SessionBroken { client, cause, after } => {
            let cause = match cause {
                SessionBreak::Lost => "lost connection",
                SessionBreak::Timeout => "timeout",
                SessionBreak::TooManyErrors => "too many errors",
                SessionBreak::OutOfSync => "improper command pipelining",
                SessionBreak::OtherProtocol => "warning: non-SMTP command",
            };
            line("smtpd", format_args!("{cause} after {after} from {}", Client(client)));
        }
        Event::ClientTls { client, cipher, is_trusted, .. } => {
            let trust = if is_trusted { "Trusted" } else { "Anonymous" };
            let (client, cipher) = (Client(client), Cipher(cipher));
            line("smtpd", format_args!("{trust} TLS connection established from {client}: {cipher}"));
        }
        Event::ClientTlsFailed { client, error } => {
            line("smtpd", format_args!("SSL_accept error from {}: {error}", Client(client)));
        }
        Event::LoggedIn { client, user, mechanism } => {
            let client = Client(client);
            line("smtpd", format_args!("login from {client}: sasl_method={mechanism}, sasl_username={user}"));
        }
        Event::ServerTls { relay, cipher, is_verified } => {
            let trust = if is_verified { "Verified" } else { "Untrusted" };
            let cipher = Cipher(cipher);
            line("smtp", format_args!("{trust} TLS connection established to {relay}: {cipher}"));
        }
        Event::Suspended { destination, reason, .. } => {
            line("qmgr", format_args!("warning: {destination} is suspended: {reason}"));
        }
        Event::Resumed { destination } => line("qmgr", format_args!("{destination} is reached again")),
        Event::Operator { action, messages, user } => {
            let messages = mail::counted(messages, "message");
            let by = user.map(|user| format!(" by {user}")).unwrap_or_default();
            line("postsuper", format_args!("{}: {messages}{by}", done(action)));
        }
        Event::Changed(changed) => changed_line(&changed, line),
        Event::Started { version, .. } => {
            line("master", format_args!("daemon started -- version {version}"));
        }
        Event::Reloaded => line("master", format_args!("reload -- the configuration was read again")),
        Event::Stopping => line("master", format_args!("terminating")),
        Event::Listeners { action, listeners } => line("master", format_args!("{action}: {listeners}")),
        Event::ReloadFailed { reason } => {
            line(
                "master",
                format_args!("error: the reload was refused, and the settings stay as they were: {reason}"),
            );
        }
        Event::Dropped(count) => {
            line("postlogd", format_args!("warning: {} of the log dropped", mail::counted(count, "line")));
        }
    }
}

/// Returns the words of Postfix: pflogsumm takes `hold:` for a rule that holds a message.
fn done(action: &str) -> &str {
    match action {
        "hold" => "Placed on hold",
        "release" => "Released from hold",
        "delete" => "Deleted",
        other => other,
    }
}

/// `ABC: placed on hold by root (uid 0): reason`
fn changed_line(changed: &Changed<'_>, line: Line<'_>) {
    let Changed { id, action, user, uid, reason, detail } = *changed;
    let detail = detail.map(|detail| format!(" {detail}")).unwrap_or_default();
    let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
    let done = done(action).to_lowercase();
    line("postsuper", format_args!("{id}: {done}{detail} by {user} (uid {uid}){reason}"));
}

fn accepted_lines(accepted: &Accepted<'_>, line: Line<'_>) {
    let Accepted { id, from, size_bytes, recipient_count, message_id, .. } = *accepted;
    match Origin::parse(accepted.origin) {
        Origin::Local { uid } => line("pickup", format_args!("{id}: uid={uid} from=<{from}>")),
        Origin::Smtp { client, .. } => match accepted.login {
            Some(login) => {
                let login = login.escape_debug();
                line("smtpd", format_args!("{id}: client=unknown[{client}], sasl_username={login}"));
            }
            None => line("smtpd", format_args!("{id}: client=unknown[{client}]")),
        },
        Origin::Dsn | Origin::DoubleBounce | Origin::Other(_) => {}
    }
    line("cleanup", format_args!("{id}: message-id={message_id}"));
    line(
        "qmgr",
        format_args!("{id}: from=<{from}>, size={size_bytes}, nrcpt={recipient_count} (queue active)"),
    );
}

fn attempt_line(attempt: &Attempted<'_>, line: Line<'_>) {
    let program = match attempt.relay.split(['[', ':']).next() {
        Some("maildir") => "virtual",
        Some("mbox") => "local",
        Some("pipe") => "pipe",
        Some("discard") => "discard",
        Some("unix") => "lmtp",
        Some("") | None => "error",
        Some(_) => "smtp",
    };
    // The message is returned for its age; this attempt failed as the others did, and Postfix logs it as such.
    let (status, dsn) = match attempt.status {
        Status::Expired => ("deferred", Enhanced(4, attempt.dsn.1, attempt.dsn.2)),
        status => (status.as_str(), attempt.dsn),
    };
    let Attempted { id, to, reply, age_ms, queued_ms, setup_ms, transfer_ms, .. } = *attempt;
    let relay = if attempt.relay.is_empty() { "none" } else { attempt.relay };
    let before_ms = age_ms.saturating_sub(queued_ms + setup_ms + transfer_ms);
    let (delay, before) = (seconds(age_ms), seconds(before_ms));
    let (queued, setup, transfer) = (seconds(queued_ms), seconds(setup_ms), seconds(transfer_ms));
    line(
        program,
        format_args!(
            "{id}: to=<{to}>, relay={relay}, delay={delay:.2}, delays={before:.2}/{queued:.2}/{setup:.2}/{transfer:.2}, \
             dsn={dsn}, status={status} ({reply})"
        ),
    );
}

fn waiting_line(waiting: &Waiting<'_>, line: Line<'_>) {
    let Waiting { id, to, reason, dsn, age_ms, .. } = *waiting;
    let delay = seconds(age_ms);
    line(
        "error",
        format_args!(
            "{id}: to=<{to}>, relay=none, delay={delay:.2}, delays={delay:.2}/0.00/0.00/0.00, dsn={dsn}, status=deferred \
             (delivery temporarily suspended: {reason})"
        ),
    );
}

fn rejected_line(rejected: &Rejected<'_>, line: Line<'_>) {
    let Rejected { stage, reply, login, to, .. } = *rejected;
    let client = Client(rejected.client);
    if let Some(mechanism) = stage.strip_prefix("AUTH") {
        let mechanism = mechanism.trim_start();
        // The name is the client's: it can end no line.
        let login = login.unwrap_or("(unavailable)").escape_debug();
        return line(
            "smtpd",
            format_args!(
                "warning: {client}: SASL {mechanism} authentication failed: {reply}, sasl_username={login}"
            ),
        );
    }
    match (rejected.from, to) {
        (Some(from), Some(to)) => line(
            "smtpd",
            format_args!(
                "NOQUEUE: reject: {stage} from {client}: {reply}; from=<{from}> to=<{to}> proto=ESMTP"
            ),
        ),
        (Some(from), None) => line(
            "smtpd",
            format_args!("NOQUEUE: reject: {stage} from {client}: {reply}; from=<{from}> proto=ESMTP"),
        ),
        (None, _) => {
            line("smtpd", format_args!("NOQUEUE: reject: {stage} from {client}: {reply}; proto=ESMTP"));
        }
    }
}

fn seconds(ms: u64) -> f64 {
    ms as f64 / 1000.0
}

/// A client as Postfix names one whose address has no verified name.
struct Client(SocketAddr);

impl std::fmt::Display for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "unknown[{}]", self.0.ip())
    }
}

/// `TLSv1.3 with cipher TLS_AES_256_GCM_SHA384 (256/256 bits)`.
struct Cipher<'a>(&'a str);

impl std::fmt::Display for Cipher<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (version, suite) = self.0.split_once(':').unwrap_or((self.0, "unknown"));
        let suite = suite.strip_suffix(":verified").unwrap_or(suite);
        let bits = if suite.contains("AES_128") { 128 } else { 256 };
        write!(f, "{version} with cipher {suite} ({bits}/{bits} bits)")
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tests::samples, *};
    use mail::QueueId;

    const AT: UnixMicros = UnixMicros(1_795_242_355_048_000);

    fn text(events: &[Event<'_>]) -> String {
        let postfix = Postfix { host: "mx".into(), pid: 42 };
        let mut out = Vec::new();
        events.iter().for_each(|event| postfix.append(event, AT, &mut out));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn no_client_hides_behind_what_it_calls_itself() {
        let Some(Event::Accepted(accepted)) = samples().first().copied() else {
            panic!("an accepted message")
        };
        for (origin, line) in [
            (
                "client=[192.0.2.1] helo=uid=0 proto=ESMTP",
                "smtpd[42]: 0000000000001: client=unknown[192.0.2.1]",
            ),
            ("submit uid=1000", "pickup[42]: 0000000000001: uid=1000 from=<a@b.test>"),
        ] {
            let text = text(&[Event::Accepted(Accepted { origin, ..accepted })]);
            assert!(text.lines().next().unwrap().ends_with(line), "{text}");
        }
    }

    #[test]
    fn characters_that_are_not_seen_are_escaped() {
        let reason = "pay\u{202e}load\u{200b}\u{2066}\u{1b}[2J\nMail grün";
        let text = text(&[Event::Held { id: mail::QueueId(1), reason }]);
        let escaped = "hold: pay\\u{202e}load\\u{200b}\\u{2066}\\u{1b}[2J\\u{a}Mail grün\n";
        assert!(text.ends_with(escaped) && text.lines().count() == 1, "{text}");
    }

    #[test]
    fn postfix_lines_have_what_its_log_tools_look_for() {
        let text = text(&samples());
        for part in [
            "mx postfix/smtpd[42]: 0000000000001: client=unknown[192.0.2.1]",
            "postfix/cleanup[42]: 0000000000001: message-id=<m@b.test>\n",
            "postfix/qmgr[42]: 0000000000001: from=<a@b.test>, size=29, nrcpt=1 (queue active)\n",
            "relay=mx[192.0.2.2]:25, delay=1.00, delays=0.94/0.01/0.02/0.03, dsn=4.2.1, status=deferred (450 4.2.1",
            "postfix/qmgr[42]: 0000000000001: removed\n",
            "NOQUEUE: reject: RCPT from unknown[192.0.2.1]: 550 5.7.1 no; from=<x@y> to=<z@w> proto=ESMTP\n",
            "postfix/smtpd[42]: connect from unknown[192.0.2.1]\n",
            "postfix/smtpd[42]: disconnect from unknown[192.0.2.1] ehlo=1 quit=1 commands=2\n",
            "postfix/smtpd[42]: login from unknown[192.0.2.1]: sasl_method=PLAIN, sasl_username=ann\n",
            "postfix/smtpd[42]: lost connection after RCPT from unknown[192.0.2.1]\n",
            "postfix/smtpd[42]: Anonymous TLS connection established from unknown[192.0.2.1]: TLSv1.3 with cipher \
             TLS_AES_256_GCM_SHA384 (256/256 bits)\n",
            "postfix/error[42]: 0000000000001: to=<z@w>, relay=none, delay=1.00, delays=1.00/0.00/0.00/0.00, \
             dsn=4.4.1, status=deferred (delivery temporarily suspended: ",
            "postfix/qmgr[42]: 0000000000001: from=<a@b.test>, status=expired, returned to sender\n",
            "postfix/bounce[42]: 0000000000001: sender non-delivery notification: 0000000000002\n",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        // A deleted recipient counts neither as sent nor as returned.
        let deleted = Event::Deleted { id: QueueId(1), from: "a@b", to: "c@d", index: Some(0) };
        assert_eq!(super::tests::text(&[deleted]), "");
    }
}
