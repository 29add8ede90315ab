//! Gauges and counters that are read from the daemon at each scrape.

use crate::MetricDoc;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
};
use report::RecipientCounters;
use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

/// Destinations with series of their own: the largest ones. More would burden Prometheus, not the mail.
const DESTINATIONS_MAX: usize = 50;

/// The use of something of which there is only so much.
#[derive(Debug, Clone)]
pub struct ResourceGauges {
    /// Label of the resource, such as `open files`.
    pub name: String,
    /// What is in use.
    pub used: u64,
    /// How much there can be, in the same unit.
    pub max: u64,
}

/// The use of a share of the connections to next hops.
#[derive(Debug, Clone, Default)]
pub struct ShareGauges {
    /// Label of the share, such as `newcomers`.
    pub share: String,
    /// Connections that are open or being opened.
    pub used: u64,
    /// The most connections of this share; a share can be full before, because several have a common limit.
    pub max: u64,
    /// Destinations without a connection that wait for one.
    pub waiting: u64,
}

/// The values of all gauges at one time; the daemon takes them for each scrape.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// Since the spool was made.
    pub recipients: RecipientCounters,
    /// Messages in the queue, held ones included.
    pub queued_messages: u64,
    /// Messages among them that are held.
    pub held_messages: u64,
    /// Sessions that clients have open.
    pub sessions: u64,
    /// Connections to next hops.
    pub delivery_connections: u64,
    /// The use of the shares of these connections.
    pub shares: Vec<ShareGauges>,
    /// Use and limit of descriptors, memory, space and the like.
    pub resources: Vec<ResourceGauges>,
    /// Since the start.
    pub spool_commits: u64,
    /// Time of the last sync of the spool, in microseconds.
    pub spool_last_sync_us: u64,
    /// Octets in the spool's commit queue.
    pub spool_queued_bytes: u64,
    /// Octets that the disk of the spool has left, if that is known.
    pub spool_free_bytes: u64,
    /// True if a write failed, or stored data are damaged.
    pub spool_is_faulty: bool,
    /// The times from the end of the content to durability.
    pub accept_latency: Latencies,
    /// Messages that were delivered and never stored.
    pub unwritten_count: u64,
    /// Events and log lines that were dropped.
    pub log_lost: u64,
    /// Logs and histories that lose events now, or soon.
    pub log_faults: u64,
    /// As the kernel counts them.
    pub process: ProcessUse,
    /// For `build_info`.
    pub build: Build,
    /// The certificate that expires first, in seconds since 1970; zero without a certificate.
    pub certificate_expiry_seconds: u64,
    /// Attempts to obtain a certificate that failed since the last one that did not.
    pub acme_failures: u64,
    /// Destinations that get no attempts but a probe.
    pub suspended_destinations: u64,
    /// Times that the delivery helper has ended before the daemon.
    pub helper_failures: u64,
    /// The delivery helper is needed, and does not run.
    pub helper_is_down: bool,
    /// Messages of local programs that wait in the drop directory.
    pub dropped_messages: u64,
    /// One row for each destination in use.
    pub destinations: Vec<DestinationGauges>,
}

/// The gauges of one destination.
#[derive(Debug, Clone, Default)]
pub struct DestinationGauges {
    /// `mx:example.com`.
    pub name: String,
    /// Jobs that wait for a connection.
    pub ready: u64,
    /// Jobs that connections have leased.
    pub in_flight: u64,
    /// Jobs that wait for their next attempt.
    pub waiting: u64,
    /// True if it gets no attempts but a probe.
    pub is_suspended: bool,
}

/// Bounds of the buckets of [`Latencies`], in microseconds: from a fast disk to one that nobody waits for.
pub const LATENCY_BOUNDS_US: [u64; 12] =
    [250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 500_000, 2_500_000, 10_000_000];

/// Times that were counted in buckets.
#[derive(Debug, Clone, Copy, Default)]
pub struct Latencies {
    /// Times in each bucket, up to its bound of [`LATENCY_BOUNDS_US`] and above the one before.
    pub counts: [u64; LATENCY_BOUNDS_US.len()],
    /// All times, also those above the last bound.
    pub count: u64,
    /// Sum of all observations, in microseconds.
    pub sum_us: u64,
}

/// The use of the machine by the process. Zero: not known.
#[derive(Debug, Clone, Copy, Default)]
pub struct ProcessUse {
    /// In octets.
    pub resident_bytes: u64,
    /// In octets.
    pub virtual_bytes: u64,
    /// CPU time.
    pub cpu_seconds: f64,
    /// In seconds since 1970.
    pub started_seconds: f64,
    /// Open file descriptors.
    pub open_files: u64,
    /// The limit of open file descriptors.
    pub max_files: u64,
}

/// What `build_info` says of the program.
#[derive(Debug, Clone, Copy, Default)]
pub struct Build {
    /// Version, such as `0.1.0`.
    pub version: &'static str,
    /// Hash of the commit.
    pub commit: &'static str,
}

/// A metric without labels, and the way in which it is read.
struct Row {
    doc: MetricDoc,
    read: fn(&Snapshot) -> f64,
}

const fn gauge(name: &'static str, help: &'static str, read: fn(&Snapshot) -> f64) -> Row {
    Row { doc: MetricDoc { name, kind: "gauge", labels: &[], help }, read }
}

const fn counter(name: &'static str, help: &'static str, read: fn(&Snapshot) -> f64) -> Row {
    Row { doc: MetricDoc { name, kind: "counter", labels: &[], help }, read }
}

const ROWS: [Row; 26] = [
    counter("recipients_accepted", "Recipients of accepted messages, since the spool was made", |s| {
        s.recipients.accepted as f64
    }),
    counter("recipients_delivered", "Delivered recipients, since the spool was made", |s| {
        s.recipients.delivered as f64
    }),
    counter("recipients_bounced", "Returned recipients, since the spool was made", |s| {
        s.recipients.bounced as f64
    }),
    counter(
        "recipients_expired",
        "Recipients returned because of their age, since the spool was made",
        |s| s.recipients.expired as f64,
    ),
    counter("recipients_deleted", "Recipients that an operator deleted, since the spool was made", |s| {
        s.recipients.deleted as f64
    }),
    counter(
        "recipients_moved",
        "Recipients that were moved to another message or spool, since the spool was made",
        |s| s.recipients.moved as f64,
    ),
    gauge("recipients_queued", "Recipients in the queue", |s| s.recipients.queued as f64),
    gauge(
        "recipient_imbalance",
        "Accepted recipients that are neither queued nor finished: anything but 0 means that mail was lost or duplicated",
        |s| s.recipients.accepted as f64 - s.recipients.finished() as f64 - s.recipients.queued as f64,
    ),
    gauge("queued_messages", "Messages in the queue", |s| s.queued_messages as f64),
    gauge("held_messages", "Messages in the queue that are held", |s| s.held_messages as f64),
    gauge("dropped_messages", "Messages of local programs that wait in the drop directory", |s| {
        s.dropped_messages as f64
    }),
    gauge("sessions", "Sessions of clients", |s| s.sessions as f64),
    gauge("delivery_connections", "Connections to next hops", |s| s.delivery_connections as f64),
    gauge("suspended_destinations", "Destinations that are suspended, because no host answers", |s| {
        s.suspended_destinations as f64
    }),
    gauge("delivery_helper_down", "1 if mail waits because the delivery helper does not run, else 0", |s| {
        f64::from(u8::from(s.helper_is_down))
    }),
    counter("delivery_helper_failures", "Times that the delivery helper ended before the daemon", |s| {
        s.helper_failures as f64
    }),
    counter("spool_commits", "Commits of the spool", |s| s.spool_commits as f64),
    gauge("spool_last_sync_seconds", "Duration of the last sync of the spool", |s| {
        s.spool_last_sync_us as f64 / 1e6
    }),
    gauge("spool_queued_bytes", "Octets that wait for a commit", |s| s.spool_queued_bytes as f64),
    gauge("spool_free_bytes", "Octets that are free for the spool", |s| s.spool_free_bytes as f64),
    gauge("spool_faulty", "1 if the spool failed or has damaged data, else 0", |s| {
        f64::from(u8::from(s.spool_is_faulty))
    }),
    counter(
        "unwritten_messages",
        "Messages that were delivered before they were stored, and never written",
        |s| s.unwritten_count as f64,
    ),
    gauge("log_faults", "Logs and histories that cannot be written now, or that nobody reads", |s| {
        s.log_faults as f64
    }),
    counter("log_lost", "Events and log lines that were dropped", |s| s.log_lost as f64),
    gauge(
        "certificate_expiry_timestamp_seconds",
        "Expiry of the certificate that expires first, in seconds since 1970; 0 without one",
        |s| s.certificate_expiry_seconds as f64,
    ),
    gauge("acme_failures", "Attempts to obtain a certificate that failed since the last success", |s| {
        s.acme_failures as f64
    }),
];

const DESTINATION_JOBS: MetricDoc = MetricDoc {
    name: "destination_jobs",
    kind: "gauge",
    labels: &["destination", "state"],
    help: "The jobs of the 50 largest destinations: ready, suspended (ready, but the destination is not reached), in_flight, waiting",
};

const DESTINATION_SUSPENDED: MetricDoc = MetricDoc {
    name: "destination_suspended",
    kind: "gauge",
    labels: &["destination"],
    help: "1 if the destination is suspended, else 0, of the 50 largest destinations",
};

const ACCEPT_LATENCY: MetricDoc = MetricDoc {
    name: "accept_latency_seconds",
    kind: "histogram",
    labels: &[],
    help: "Time from the end of the content to durability",
};

const BUILD_INFO: MetricDoc = MetricDoc {
    name: "build_info",
    kind: "gauge",
    labels: &["version", "commit"],
    help: "Always 1; the labels name the program",
};

/// The metrics of every process, which have the names of Prometheus's own libraries.
const PROCESS: [Row; 6] = [
    counter("process_cpu_seconds", "CPU time of the process", |s| s.process.cpu_seconds),
    gauge("process_resident_memory_bytes", "Resident memory of the process", |s| {
        s.process.resident_bytes as f64
    }),
    gauge("process_virtual_memory_bytes", "Address space of the process", |s| s.process.virtual_bytes as f64),
    gauge("process_start_time_seconds", "Start of the process, in seconds since 1970", |s| {
        s.process.started_seconds
    }),
    gauge("process_open_fds", "Open file descriptors", |s| s.process.open_files as f64),
    gauge("process_max_fds", "Limit of open file descriptors", |s| s.process.max_files as f64),
];

/// Reads a value of a resource.
type OfResource = fn(&ResourceGauges) -> u64;

/// The metrics of resources, and what each reads.
const RESOURCES: [(MetricDoc, OfResource); 2] = {
    const fn of(name: &'static str, help: &'static str) -> MetricDoc {
        MetricDoc { name, kind: "gauge", labels: &["resource"], help }
    }
    [
        (
            of("resource_used", "How much of a resource is in use; docs/monitoring.md lists the resources"),
            |one| one.used,
        ),
        (of("resource_max", "How much of a resource there is"), |one| one.max),
    ]
};

/// Reads a value of a share.
type OfShare = fn(&ShareGauges) -> u64;

/// The metrics of shares, and what each reads.
const SHARES: [(MetricDoc, OfShare); 3] = {
    const fn of(name: &'static str, help: &'static str) -> MetricDoc {
        MetricDoc { name, kind: "gauge", labels: &["share"], help }
    }
    [
        (
            of(
                "delivery_share_connections",
                "Connections to next hops by share: local, routes, remote (domains that take mail), newcomers (domains that have not taken any since they failed)",
            ),
            |share| share.used,
        ),
        (of("delivery_share_max", "Connection limit of the share"), |share| share.max),
        (of("delivery_share_waiting", "Destinations that wait for a connection of the share"), |share| {
            share.waiting
        }),
    ]
};

pub(crate) fn documentation() -> impl Iterator<Item = MetricDoc> {
    ROWS.iter()
        .map(|row| row.doc)
        .chain([DESTINATION_JOBS, DESTINATION_SUSPENDED, ACCEPT_LATENCY, BUILD_INFO])
        .chain(SHARES.map(|(doc, _)| doc))
        .chain(RESOURCES.map(|(doc, _)| doc))
}

/// Returns the documentation of the metrics of the process.
pub(crate) fn process_documentation() -> impl Iterator<Item = MetricDoc> {
    PROCESS.iter().map(|row| row.doc)
}

/// Appends each row with its value in the snapshot.
fn encode_rows(encoder: &mut DescriptorEncoder<'_>, rows: &[Row], snapshot: &Snapshot) -> fmt::Result {
    for Row { doc, read } in rows {
        let value = read(snapshot);
        if doc.kind == "counter" {
            encode(encoder, doc, &ConstCounter::new(value))?;
        } else {
            encode(encoder, doc, &ConstGauge::new(value))?;
        }
    }
    Ok(())
}

/// Encodes the metrics of the process from the last snapshot.
#[derive(Debug)]
pub(crate) struct Process(pub(crate) Arc<Mutex<Snapshot>>);

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let snapshot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        encode_rows(&mut encoder, &PROCESS, &snapshot)
    }
}

impl EncodeMetric for Latencies {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        let bounds = LATENCY_BOUNDS_US.iter().map(|us| *us as f64 / 1e6);
        let above = self.count.saturating_sub(self.counts.iter().sum());
        let buckets: Vec<(f64, u64)> = bounds.zip(self.counts).chain([(f64::INFINITY, above)]).collect();
        encoder.encode_histogram::<NoLabelSet>(self.sum_us as f64 / 1e6, self.count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

/// Encodes a metric without labels.
fn encode(encoder: &mut DescriptorEncoder<'_>, doc: &MetricDoc, metric: &impl EncodeMetric) -> fmt::Result {
    metric.encode(encoder.encode_descriptor(doc.name, doc.help, None, metric.metric_type())?)
}

/// Encodes the last snapshot.
#[derive(Debug)]
pub(crate) struct Gauges(pub(crate) Arc<Mutex<Snapshot>>);

impl Collector for Gauges {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let snapshot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        encode_rows(&mut encoder, &ROWS, &snapshot)?;
        encode(&mut encoder, &ACCEPT_LATENCY, &snapshot.accept_latency)?;
        let (doc, Build { version, commit }) = (BUILD_INFO, snapshot.build);
        let mut family =
            encoder.encode_descriptor(doc.name, doc.help, None, ConstGauge::new(0.0).metric_type())?;
        ConstGauge::new(1.0).encode(family.encode_family(&[("version", version), ("commit", commit)])?)?;
        for (doc, read) in SHARES {
            let mut family =
                encoder.encode_descriptor(doc.name, doc.help, None, ConstGauge::new(0.0).metric_type())?;
            for share in &snapshot.shares {
                let labels = [("share", share.share.as_str())];
                ConstGauge::new(read(share) as f64).encode(family.encode_family(&labels)?)?;
            }
        }
        for (doc, read) in RESOURCES {
            let mut family =
                encoder.encode_descriptor(doc.name, doc.help, None, ConstGauge::new(0.0).metric_type())?;
            for one in &snapshot.resources {
                let labels = [("resource", one.name.as_str())];
                ConstGauge::new(read(one) as f64).encode(family.encode_family(&labels)?)?;
            }
        }
        let mut destinations: Vec<&DestinationGauges> = snapshot.destinations.iter().collect();
        destinations.sort_by_key(|one| std::cmp::Reverse(one.ready + one.in_flight + one.waiting));
        destinations.truncate(DESTINATIONS_MAX);
        let doc = DESTINATION_JOBS;
        let mut family =
            encoder.encode_descriptor(doc.name, doc.help, None, ConstGauge::new(0.0).metric_type())?;
        for one in &destinations {
            let (ready, suspended) = if one.is_suspended { (0, one.ready) } else { (one.ready, 0) };
            for (state, count) in [
                ("ready", ready),
                ("suspended", suspended),
                ("in_flight", one.in_flight),
                ("waiting", one.waiting),
            ] {
                let labels = [("destination", one.name.as_str()), ("state", state)];
                ConstGauge::new(count as f64).encode(family.encode_family(&labels)?)?;
            }
        }
        let doc = DESTINATION_SUSPENDED;
        let mut family =
            encoder.encode_descriptor(doc.name, doc.help, None, ConstGauge::new(0.0).metric_type())?;
        for one in &destinations {
            let labels = [("destination", one.name.as_str())];
            let value = f64::from(u8::from(one.is_suspended));
            ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}
