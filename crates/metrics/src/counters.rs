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

/// Bounds of the age of a delivered message, in seconds: from one attempt at once to the lifetime.
const AGE_BOUNDS: [f64; 14] =
    [0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 60.0, 300.0, 1800.0, 7200.0, 43_200.0, 172_800.0, 432_000.0];
/// Bounds of the time of a transaction with a next hop, in seconds.
const TRANSFER_BOUNDS: [f64; 11] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 120.0, 600.0];

/// Stages of rejections that have a series of their own.
const STAGES: [&str; 6] = ["CONNECT", "EHLO", "MAIL", "RCPT", "DATA", "XCLIENT"];
const OTHER_STAGE: &str = "other";

/// The metrics of this module, in the order of [`Counters::register`].
pub(crate) const DOCS: [MetricDoc; 19] = [
    doc("messages_accepted", &["origin"], "Messages that are durable and were acknowledged"),
    doc("accepted_bytes", &[], "Octets of accepted messages"),
    doc("attempts", &["status"], "Attempts for a recipient, by their outcome"),
    histogram("delivery_age_seconds", "Age of a message when a recipient was delivered"),
    histogram("transfer_seconds", "Time from MAIL to the final reply of a delivered recipient"),
    doc(
        "waiting_recipients_logged",
        &[],
        "Recipients that were not tried, because their destination is suspended",
    ),
    doc("messages_completed", &[], "Messages that left the queue"),
    doc("messages_expired", &[], "Messages of which recipients were returned because of their age"),
    doc("messages_discarded", &[], "Messages or recipients that a rule discarded"),
    doc("notifications", &["kind"], "Notifications about messages"),
    doc(
        "not_mailed",
        &["why"],
        "Recipients of notifications that failed, about which the postmaster gets no mail of its own",
    ),
    doc("rejections", &["stage"], "Commands of clients that were refused"),
    doc("login_failures", &[], "Logins that failed"),
    doc("client_connections", &[], "Connections of clients, if connections are logged"),
    doc("sessions_broken", &["cause"], "Sessions that ended without QUIT"),
    doc("tls_handshakes", &["side"], "TLS handshakes with clients and next hops, if connections are logged"),
    doc("tls_handshakes_failed", &[], "TLS handshakes with clients that failed"),
    doc("destinations_suspended_events", &[], "Suspensions of destinations, and failed probes"),
    doc("events_dropped", &[], "Events that no log and no counter has, because a disk was too slow"),
];

const fn doc(name: &'static str, labels: &'static [&'static str], help: &'static str) -> MetricDoc {
    MetricDoc { name, kind: "counter", labels, help }
}

const fn histogram(name: &'static str, help: &'static str) -> MetricDoc {
    MetricDoc { name, kind: "histogram", labels: &[], help }
}

/// The counters; clones share their values.
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
    rejections: Labelled,
    login_failures: Counter,
    connections: Counter,
    sessions_broken: Labelled,
    tls: Labelled,
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
            rejections: Labelled::default(),
            login_failures: Counter::default(),
            connections: Counter::default(),
            sessions_broken: Labelled::default(),
            tls: Labelled::default(),
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
            (&self.rejections, "stage", &STAGES),
            (&self.rejections, "stage", &[OTHER_STAGE]),
            (&self.sessions_broken, "cause", &SessionBreak::ALL.map(SessionBreak::as_str)),
            (&self.tls, "side", &["client", "next_hop"]),
        ] {
            values.iter().for_each(|value| drop(family.get_or_create(&[(label, *value)])));
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
            login_failures,
            connections,
            sessions_broken,
            tls,
            tls_failed,
            suspensions,
            dropped,
        );
    }
}

/// Counts events.
pub struct CounterSink(pub(crate) Counters);

fn count(family: &Labelled, label: &'static str, value: &'static str) {
    family.get_or_create(&[(label, value)]).inc();
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
            Event::Rejected(Rejected { stage, .. }) if stage.starts_with("AUTH") => {
                counters.login_failures.inc();
            }
            Event::Rejected(Rejected { stage, .. }) => {
                let stage = STAGES.into_iter().find(|one| *one == stage).unwrap_or(OTHER_STAGE);
                count(&counters.rejections, "stage", stage);
            }
            Event::Connected { .. } => _ = counters.connections.inc(),
            Event::SessionBroken { cause, .. } => {
                count(&counters.sessions_broken, "cause", cause.as_str());
            }
            Event::ClientTls { .. } => count(&counters.tls, "side", "client"),
            Event::ServerTls { .. } => count(&counters.tls, "side", "next_hop"),
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
