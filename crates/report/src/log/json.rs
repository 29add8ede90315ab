//! The JSON lines of the text log: one object a line. docs/log.md describes every field. Later versions only add fields.

use super::time::iso;
use crate::{
    UnixMicros,
    event::{Changed, Event},
};
use mail::{QueueId, UnixMillis};
use serde::Serialize;
use std::net::SocketAddr;

/// The version of the lines: the last field of each.
const VERSION: &[u8] = b",\"v\":1}\n";

#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum JsonLine<'a> {
    Accepted {
        time: &'a str,
        id: Id,
        from: &'a str,
        recipients: u32,
        size: u64,
        origin: &'a str,
        #[serde(skip_serializing_if = "str::is_empty")]
        message_id: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        login: Option<&'a str>,
        #[serde(skip_serializing_if = "is_false")]
        requires_tls: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        release: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        deliver_by: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        priority: Option<i8>,
    },
    Attempt {
        time: &'a str,
        id: Id,
        from: &'a str,
        to: &'a str,
        status: &'a str,
        #[serde(serialize_with = "displayed")]
        dsn: mail::Enhanced,
        relay: &'a str,
        tls: &'a str,
        reply: &'a str,
        age_ms: u64,
        queued_ms: u64,
        setup_ms: u64,
        transfer_ms: u64,
    },
    Waiting {
        time: &'a str,
        id: Id,
        from: &'a str,
        to: &'a str,
        destination: &'a str,
        reason: &'a str,
        age_ms: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        until: Option<String>,
    },
    Expired {
        time: &'a str,
        id: Id,
        from: &'a str,
    },
    Deleted {
        time: &'a str,
        id: Id,
        from: &'a str,
        to: &'a str,
    },
    Held {
        time: &'a str,
        id: Id,
        reason: &'a str,
    },
    Discarded {
        time: &'a str,
        id: Id,
        from: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        to: Option<&'a str>,
        reason: &'a str,
    },
    Notified {
        time: &'a str,
        id: Id,
        notification: Id,
        kind: &'a str,
    },
    NotMailed {
        time: &'a str,
        id: Id,
        to: &'a str,
        reason: &'a str,
        why: &'a str,
    },
    Completed {
        time: &'a str,
        id: Id,
    },
    Rejected {
        time: &'a str,
        client: Client,
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
    Connected {
        time: &'a str,
        client: Client,
        listener: &'a str,
    },
    Disconnected {
        time: &'a str,
        client: Client,
        commands: &'a str,
    },
    SessionBroken {
        time: &'a str,
        client: Client,
        cause: &'a str,
        after: &'a str,
    },
    ClientTls {
        time: &'a str,
        client: Client,
        tls: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        key_exchange: Option<&'a str>,
        trusted: bool,
    },
    ClientTlsFailed {
        time: &'a str,
        client: Client,
        reason: &'a str,
    },
    LoggedIn {
        time: &'a str,
        client: Client,
        user: &'a str,
        mechanism: &'a str,
    },
    ServerTls {
        time: &'a str,
        relay: &'a str,
        tls: &'a str,
        verified: bool,
    },
    Suspended {
        time: &'a str,
        destination: &'a str,
        reason: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        until: Option<String>,
    },
    Resumed {
        time: &'a str,
        destination: &'a str,
    },
    Operator {
        time: &'a str,
        action: &'a str,
        messages: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        user: Option<&'a str>,
    },
    Started {
        time: &'a str,
        version: &'a str,
        queued: u64,
    },
    Listeners {
        time: &'a str,
        action: &'a str,
        listeners: &'a str,
    },
    Reloaded {
        time: &'a str,
    },
    ReloadFailed {
        time: &'a str,
        reason: &'a str,
    },
    Stopping {
        time: &'a str,
    },
    Changed {
        time: &'a str,
        id: Id,
        action: &'a str,
        user: &'a str,
        uid: u32,
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        detail: Option<&'a str>,
    },
    DroppedLines {
        time: &'a str,
        lines: u64,
    },
}

/// Written as its 13 characters.
struct Id(QueueId);

impl Serialize for Id {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(std::str::from_utf8(&self.0.to_ascii()).unwrap_or_default())
    }
}

/// A client as text; the unspecified address stands for a client on a Unix socket.
struct Client(SocketAddr);

impl Serialize for Client {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if self.0.ip().is_unspecified() { to.serialize_str("unix") } else { to.collect_str(&self.0) }
    }
}

/// Says which fields are left out.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(value: &bool) -> bool {
    !value
}

fn displayed<S: serde::Serializer>(value: &impl std::fmt::Display, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(value)
}

/// Appends the event as one JSON object and a line feed.
#[allow(clippy::too_many_lines)] // a table: a row for each event
pub(super) fn append(event: &Event<'_>, at: UnixMicros, out: &mut Vec<u8>) {
    let mut time = [0; 24];
    let time = iso(at, &mut time);
    let row = match *event {
        Event::Accepted(accepted) => JsonLine::Accepted {
            time,
            id: Id(accepted.id),
            from: accepted.from,
            recipients: accepted.recipient_count,
            size: accepted.size_bytes,
            origin: accepted.origin,
            message_id: accepted.message_id,
            login: accepted.login,
            requires_tls: accepted.requires_tls,
            release: accepted.release.map(UnixMillis::rfc3339),
            deliver_by: accepted.deliver_by,
            priority: accepted.priority,
        },
        Event::Attempt(attempt) => JsonLine::Attempt {
            time,
            id: Id(attempt.id),
            from: attempt.from,
            to: attempt.to,
            status: attempt.status.as_str(),
            dsn: attempt.dsn,
            relay: attempt.relay,
            tls: attempt.tls,
            reply: attempt.reply,
            age_ms: attempt.age_ms,
            queued_ms: attempt.queued_ms,
            setup_ms: attempt.setup_ms,
            transfer_ms: attempt.transfer_ms,
        },
        Event::Waiting(waiting) => JsonLine::Waiting {
            time,
            id: Id(waiting.id),
            from: waiting.from,
            to: waiting.to,
            destination: waiting.destination,
            reason: waiting.reason,
            age_ms: waiting.age_ms,
            until: waiting.until.map(UnixMillis::rfc3339),
        },
        Event::Expired { id, from } => JsonLine::Expired { time, id: Id(id), from },
        Event::Deleted { id, from, to, .. } => JsonLine::Deleted { time, id: Id(id), from, to },
        Event::Held { id, reason } => JsonLine::Held { time, id: Id(id), reason },
        Event::Discarded { id, from, to, reason } => {
            JsonLine::Discarded { time, id: Id(id), from, to, reason }
        }
        Event::Notified { id, notification, kind } => {
            JsonLine::Notified { time, id: Id(id), notification: Id(notification), kind: kind.as_str() }
        }
        Event::NotMailed { id, to, reason, why } => {
            JsonLine::NotMailed { time, id: Id(id), to, reason, why: why.as_str() }
        }
        Event::Completed(id) => JsonLine::Completed { time, id: Id(id) },
        Event::Rejected(r) => JsonLine::Rejected {
            time,
            client: Client(r.client),
            stage: r.stage,
            login: r.login,
            from: r.from,
            to: r.to,
            reply: r.reply,
            rule: r.rule,
        },
        Event::Connected { client, listener } => {
            JsonLine::Connected { time, client: Client(client), listener }
        }
        Event::Disconnected { client, commands } => {
            JsonLine::Disconnected { time, client: Client(client), commands: commands.trim_start() }
        }
        Event::SessionBroken { client, cause, after } => {
            JsonLine::SessionBroken { time, client: Client(client), cause: cause.as_str(), after }
        }
        Event::ClientTls { client, cipher, is_trusted, key_exchange } => JsonLine::ClientTls {
            time,
            client: Client(client),
            tls: cipher,
            key_exchange,
            trusted: is_trusted,
        },
        Event::ClientTlsFailed { client, error } => {
            JsonLine::ClientTlsFailed { time, client: Client(client), reason: error }
        }
        Event::LoggedIn { client, user, mechanism } => {
            JsonLine::LoggedIn { time, client: Client(client), user, mechanism }
        }
        Event::ServerTls { relay, cipher, is_verified } => {
            JsonLine::ServerTls { time, relay, tls: cipher, verified: is_verified }
        }
        Event::Suspended { destination, reason, until, since: _ } => {
            JsonLine::Suspended { time, destination, reason, until: until.map(UnixMillis::rfc3339) }
        }
        Event::Resumed { destination } => JsonLine::Resumed { time, destination },
        Event::Operator { action, messages, user } => JsonLine::Operator { time, action, messages, user },
        Event::Started { version, queued } => JsonLine::Started { time, version, queued },
        Event::Reloaded => JsonLine::Reloaded { time },
        Event::Stopping => JsonLine::Stopping { time },
        Event::Dropped(lines) => JsonLine::DroppedLines { time, lines },
        Event::Listeners { action, listeners } => JsonLine::Listeners { time, action, listeners },
        Event::ReloadFailed { reason } => JsonLine::ReloadFailed { time, reason },
        Event::Changed(Changed { id, action, user, uid, reason, detail }) => {
            JsonLine::Changed { time, id: Id(id), action, user, uid, reason, detail }
        }
    };
    // Into memory, of strings and numbers: it cannot fail.
    let _ = crate::write_json(out, &row);
    out.pop();
    out.extend_from_slice(VERSION);
}

#[cfg(test)]
mod tests {
    use super::{super::tests::samples, *};

    #[test]
    fn every_event_is_one_json_object_a_line() {
        let mut out = Vec::new();
        let events = samples();
        for event in &events {
            append(event, UnixMicros(1_795_242_355_048_700), &mut out);
        }
        let text = String::from_utf8(out).unwrap();
        let rows: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(rows.len(), events.len());
        assert!(rows.iter().all(|row| row["v"] == 1 && row["time"] == "2026-11-21T06:25:55.048Z"));
        let named = |name: &str| rows.iter().find(|row| row["event"] == name).unwrap();
        assert_eq!(named("accepted")["message_id"], "<m@b.test>");
        assert_eq!(named("attempt")["status"], "deferred");
        assert_eq!(named("attempt")["age_ms"], 1000);
        assert_eq!(named("attempt")["to"], "\"q\\\"x\"@c.test");
        assert_eq!(named("rejected")["to"], "z@w");
        assert_eq!(named("disconnected")["commands"], "ehlo=1 quit=1 commands=2");
        assert_eq!(named("deleted")["to"], "\"q\\\"x\"@c.test");
    }
}
