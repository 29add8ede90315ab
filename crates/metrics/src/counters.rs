//! Counters and histograms that follow the stream of events.

use crate::MetricDoc;
use prometheus_client::{
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::Registry,
};
use report::{
    Event, Sink, UnixMicros,
    event::{NotMailed, Notification, Rejected, SessionBreak, Status},
};

/// A label and its value. All values are words of this program: no client can add series.
type Labels = [(&'static str, &'static str); 1];
type Labelled = Family<Labels, Counter>;
/// A counter for each combination of two labels.
type Twice = Family<[(&'static str, &'static str); 2], Counter>;

/// Bounds of the age of a delivered message, in seconds: from one attempt at once to the lifetime.
const AGE_BOUNDS: [f64; 14] =
    [0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 60.0, 300.0, 1800.0, 7200.0, 43_200.0, 172_800.0, 432_000.0];
/// Bounds of the time of a transaction with a next hop, in seconds.
const TRANSFER_BOUNDS: [f64; 11] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 120.0, 600.0];

/// Stages of rejections that have a series of their own.
const STAGES: [&str; 6] = ["CONNECT", "EHLO", "MAIL", "RCPT", "DATA", "XCLIENT"];
/// What has no series of its own.
const OTHER: &str = "other";
/// Values of the label `listener`, so that all exist from the start.
const LISTENERS: [&str; 5] = ["mx", "relay", "submission", "submissions", "lmtp"];
/// Classes of replies that reject (RFC 5321 §4.2.1).
const CLASSES: [&str; 2] = ["4yz", "5yz"];
/// Values of the label `mechanism`.
const MECHANISMS: [&str; 9] = [
    "PLAIN",
    "LOGIN",
    "SCRAM-SHA-1",
    "SCRAM-SHA-1-PLUS",
    "SCRAM-SHA-256",
    "SCRAM-SHA-256-PLUS",
    "EXTERNAL",
    "OAUTHBEARER",
    "XOAUTH2",
];
/// Sides of this server with TLS.
const SIDES: [&str; 2] = ["client", "next_hop"];
const TLS_VERSIONS: [&str; 2] = ["TLSv1.2", "TLSv1.3"];
/// Groups of key exchanges, of which the first is safe from quantum computers, too.
const KEY_EXCHANGES: [&str; 4] = ["X25519MLKEM768", "X25519", "secp256r1", "secp384r1"];

/// The metrics of this module, in the order of [`Counters::register`].
pub(crate) const DOCS: [MetricDoc; 21] = [
    doc("messages_accepted", &["origin"], "Messages that are durable and were acknowledged"),
    doc("accepted_bytes", &[], "Octets of accepted messages"),
    doc("attempts", &["status"], "Attempts for a recipient, by their outcome"),
    histogram("delivery_age_seconds", "Age of a message when a recipient was delivered"),
    histogram("transfer_seconds", "Time from MAIL to the final reply of a delivered recipient"),
    doc(
        "waiting_recipients_logged",
        &[],
        "Log lines about recipients that wait untried because their destination is suspended",
    ),
    doc("messages_completed", &[], "Messages that left the queue"),
    doc("messages_expired", &[], "Messages with recipients that were returned because of their age"),
    doc("messages_discarded", &[], "Messages or recipients that a rule discarded"),
    doc("notifications", &["kind"], "Notifications about messages"),
    doc("not_mailed", &["why"], "Undeliverable notifications not reported to the postmaster by mail"),
    doc(
        "rejections",
        &["stage", "class"],
        "Commands that an address, a client, a rule, a limit or the spool refused, by the class of the reply; errors of syntax and order are not counted",
    ),
    doc("logins", &["mechanism"], "Logins that succeeded"),
    doc("login_failures", &["mechanism"], "Logins that failed"),
    doc(
        "client_connections",
        &["listener"],
        "Connections of clients by the kind of the listener, if connections are logged",
    ),
    doc("sessions_broken", &["cause"], "Sessions that ended without QUIT"),
    doc(
        "tls_handshakes",
        &["side", "version"],
        "TLS handshakes with clients and next hops, if connections are logged",
    ),
    doc(
        "tls_key_exchanges",
        &["group"],
        "TLS handshakes with clients by key exchange, if connections are logged",
    ),
    doc("tls_handshakes_failed", &[], "TLS handshakes with clients that failed"),
    doc("destinations_suspended_events", &[], "Suspensions of destinations, and failed probes"),
    doc("events_dropped", &[], "Events that were dropped because a disk was too slow"),
];

const fn doc(name: &'static str, labels: &'static [&'static str], help: &'static str) -> MetricDoc {
    MetricDoc { name, kind: "counter", labels, help }
}

const fn histogram(name: &'static str, help: &'static str) -> MetricDoc {
    MetricDoc { name, kind: "histogram", labels: &[], help }
}

/// Counters of events. Clones count together.
#[derive(Clone)]
pub(crate) struct Counters {
    accepted: Labelled,
    accepted_bytes: Counter,
    attempts: Labelled,
    delivery_age: Histogram,
    transfer: Histogram,
    waiting: Counter,
    completed: Counter,
    expired: Counter,
    discarded: Counter,
    notifications: Labelled,
    not_mailed: Labelled,
    rejections: Twice,
    logins: Labelled,
    login_failures: Labelled,
    connections: Labelled,
    sessions_broken: Labelled,
    tls: Twice,
    key_exchanges: Labelled,
    tls_failed: Counter,
    suspensions: Counter,
    dropped: Counter,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            accepted: Labelled::default(),
            accepted_bytes: Counter::default(),
            attempts: Labelled::default(),
            delivery_age: Histogram::new(AGE_BOUNDS),
            transfer: Histogram::new(TRANSFER_BOUNDS),
            waiting: Counter::default(),
            completed: Counter::default(),
            expired: Counter::default(),
            discarded: Counter::default(),
            notifications: Labelled::default(),
            not_mailed: Labelled::default(),
            rejections: Twice::default(),
            logins: Labelled::default(),
            login_failures: Labelled::default(),
            connections: Labelled::default(),
            sessions_broken: Labelled::default(),
            tls: Twice::default(),
            key_exchanges: Labelled::default(),
            tls_failed: Counter::default(),
            suspensions: Counter::default(),
            dropped: Counter::default(),
        }
    }
}

impl Counters {
    pub(crate) fn register(&self, registry: &mut Registry) {
        // Each series begins at zero: the first event of its kind is an increase that an alert sees.
        for (family, label, values) in [
            (&self.accepted, "origin", &["smtp", "local", "notification", "other"][..]),
            (&self.attempts, "status", &["sent", "deferred", "bounced", "expired"]),
            (&self.notifications, "kind", &Notification::ALL.map(Notification::as_str)),
            (&self.not_mailed, "why", &NotMailed::ALL.map(NotMailed::as_str)),
            (&self.logins, "mechanism", &MECHANISMS),
            (&self.login_failures, "mechanism", &MECHANISMS),
            (&self.connections, "listener", &LISTENERS),
            (&self.key_exchanges, "group", &KEY_EXCHANGES),
            (&self.sessions_broken, "cause", &SessionBreak::ALL.map(SessionBreak::as_str)),
        ] {
            values.iter().for_each(|value| drop(family.get_or_create(&[(label, *value)])));
        }
        for (stage, class) in
            STAGES.iter().chain([&OTHER]).flat_map(|stage| CLASSES.map(|class| (*stage, class)))
        {
            drop(self.rejections.get_or_create(&[("stage", stage), ("class", class)]));
        }
        for (side, version) in SIDES.iter().flat_map(|side| TLS_VERSIONS.map(|version| (*side, version))) {
            drop(self.tls.get_or_create(&[("side", side), ("version", version)]));
        }
        let mut docs = DOCS.into_iter();
        macro_rules! register {
            ($($field:ident),+ $(,)?) => {
                $(
                    let doc = docs.next().expect("each counter has its line in DOCS");
                    registry.register(doc.name, doc.help, self.$field.clone());
                )+
            };
        }
        register!(
            accepted,
            accepted_bytes,
            attempts,
            delivery_age,
            transfer,
            waiting,
            completed,
            expired,
            discarded,
            notifications,
            not_mailed,
            rejections,
            logins,
            login_failures,
            connections,
            sessions_broken,
            tls,
            key_exchanges,
            tls_failed,
            suspensions,
            dropped,
        );
    }
}

/// Counts the events of the stream.
pub struct CounterSink(pub(crate) Counters);

fn count(family: &Labelled, label: &'static str, value: &'static str) {
    family.get_or_create(&[(label, value)]).inc();
}

/// Returns the word of a list that a text is; a client cannot add words.
fn known(words: &[&'static str], text: &str) -> &'static str {
    words.iter().find(|word| **word == text).copied().unwrap_or(OTHER)
}

/// Counts a handshake; `cipher` is `TLSv1.3:TLS_AES_256_GCM_SHA384`.
fn count_tls(family: &Twice, side: &'static str, cipher: &str) {
    let version = known(&TLS_VERSIONS, cipher.split(':').next().unwrap_or_default());
    family.get_or_create(&[("side", side), ("version", version)]).inc();
}

impl Sink for CounterSink {
    fn write(&mut self, _: UnixMicros, event: &Event<'_>) {
        let counters = &self.0;
        match *event {
            Event::Accepted(accepted) => {
                let origin = match accepted.origin.split(['=', ' ']).next() {
                    Some("client") => "smtp",
                    Some("submit") => "local",
                    Some("dsn") => "notification",
                    _ => "other",
                };
                count(&counters.accepted, "origin", origin);
                counters.accepted_bytes.inc_by(accepted.size_bytes);
            }
            // Nobody was asked to take it.
            Event::Attempt(attempt) if attempt.status == Status::Redirected => {}
            Event::Attempt(attempt) => {
                let status = match attempt.status {
                    Status::Sent | Status::Redirected => "sent",
                    Status::Deferred => "deferred",
                    Status::Bounced => "bounced",
                    Status::Expired => "expired",
                };
                count(&counters.attempts, "status", status);
                if attempt.status == Status::Sent {
                    counters.delivery_age.observe(attempt.age_ms as f64 / 1000.0);
                    counters.transfer.observe(attempt.transfer_ms as f64 / 1000.0);
                }
            }
            Event::Waiting(_) => _ = counters.waiting.inc(),
            Event::Completed(_) => _ = counters.completed.inc(),
            Event::Expired { .. } => _ = counters.expired.inc(),
            Event::Discarded { .. } => _ = counters.discarded.inc(),
            Event::Notified { kind, .. } => {
                count(&counters.notifications, "kind", kind.as_str());
            }
            Event::NotMailed { why, .. } => count(&counters.not_mailed, "why", why.as_str()),
            Event::LoggedIn { mechanism, .. } => {
                count(&counters.logins, "mechanism", known(&MECHANISMS, mechanism));
            }
            Event::Rejected(Rejected { stage, .. }) if stage.starts_with("AUTH") => {
                let mechanism = stage.strip_prefix("AUTH ").unwrap_or_default();
                count(&counters.login_failures, "mechanism", known(&MECHANISMS, mechanism));
            }
            Event::Rejected(Rejected { stage, reply, .. }) => {
                let class = if reply.starts_with('4') { CLASSES[0] } else { CLASSES[1] };
                let labels = [("stage", known(&STAGES, stage)), ("class", class)];
                counters.rejections.get_or_create(&labels).inc();
            }
            Event::Connected { listener, .. } => {
                count(&counters.connections, "listener", known(&LISTENERS, listener));
            }
            Event::SessionBroken { cause, .. } => {
                count(&counters.sessions_broken, "cause", cause.as_str());
            }
            Event::ClientTls { cipher, key_exchange, .. } => {
                count_tls(&counters.tls, SIDES[0], cipher);
                if let Some(group) = key_exchange {
                    count(&counters.key_exchanges, "group", known(&KEY_EXCHANGES, group));
                }
            }
            Event::ServerTls { cipher, .. } => count_tls(&counters.tls, SIDES[1], cipher),
            Event::ClientTlsFailed { .. } => _ = counters.tls_failed.inc(),
            Event::Suspended { .. } => _ = counters.suspensions.inc(),
            Event::Dropped(number) => _ = counters.dropped.inc_by(number),
            Event::Deleted { .. }
            | Event::Held { .. }
            | Event::Disconnected { .. }
            | Event::Resumed { .. }
            | Event::Operator { .. }
            | Event::Changed(_)
            | Event::Listeners { .. }
            | Event::ReloadFailed { .. }
            | Event::Started { .. }
            | Event::Reloaded
            | Event::Stopping => {}
        }
    }
}
