//! Metrics for Prometheus: counters that follow the stream of events, and gauges that are read at each scrape.
//!
//! Read first: [`Metrics`] and [`Snapshot`].

mod counters;
mod gauges;

pub use counters::CounterSink;
pub use gauges::{
    Build, DestinationGauges, LATENCY_BOUNDS_US, Latencies, ProcessUse, ResourceGauges, ShareGauges, Snapshot,
};

use counters::Counters;
use gauges::{Gauges, Process};
use prometheus_client::{encoding::text, registry::Registry};
use std::{
    fmt::Write as _,
    sync::{Arc, Mutex, PoisonError},
};

/// The type of the text that [`Metrics::scrape`] returns.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The media type for scrapers that do not ask for OpenMetrics.
pub const PLAIN_CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What the documentation says of one metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetricDoc {
    /// The name after `postrider_`, or from `process_` on, without the suffix that Prometheus adds: `_total` of a counter.
    pub name: &'static str,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// Names of the labels; empty if the metric has none.
    pub labels: &'static [&'static str],
    /// The meaning, as one sentence without a full stop.
    pub help: &'static str,
}

/// Counters and gauges of a daemon, to be encoded for each scrape.
pub struct Metrics {
    registry: Registry,
    counters: Counters,
    snapshot: Arc<Mutex<Snapshot>>,
}

impl Metrics {
    /// Creates the metrics; all counters are zero.
    pub fn new() -> Self {
        let (counters, snapshot) = (Counters::default(), Arc::<Mutex<Snapshot>>::default());
        let mut registry = Registry::default();
        let own = registry.sub_registry_with_prefix("postrider");
        counters.register(own);
        own.register_collector(Box::new(Gauges(snapshot.clone())));
        registry.register_collector(Box::new(Process(snapshot.clone())));
        Self { registry, counters, snapshot }
    }

    /// Returns a sink for the event stream, which counts into these metrics.
    pub fn sink(&self) -> CounterSink {
        CounterSink(self.counters.clone())
    }

    /// Returns all metrics in the text format of OpenMetrics, with these gauges.
    pub fn scrape(&self, snapshot: Snapshot) -> String {
        *self.snapshot.lock().unwrap_or_else(PoisonError::into_inner) = snapshot;
        let mut out = String::new();
        // Into memory: it cannot fail.
        let _ = text::encode(&mut out, &self.registry);
        out
    }
}

/// Returns the text format of OpenMetrics in Prometheus's older one, version 0.0.4, in which the whole name of a counter is described
/// and there is no end mark. `promtool check metrics` and the text files of node_exporter want it.
pub fn to_plain_format(openmetrics: &str) -> String {
    let mut out = String::with_capacity(openmetrics.len());
    let mut help = None;
    for line in openmetrics.lines().filter(|line| *line != "# EOF" && !line.starts_with("# UNIT ")) {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ');
            continue;
        }
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            let total = if kind == "counter" { "_total" } else { "" };
            if let Some((_, text)) = help.take().filter(|(described, _)| *described == name) {
                let _ = writeln!(out, "# HELP {name}{total} {text}");
            }
            let _ = writeln!(out, "# TYPE {name}{total} {kind}");
            continue;
        }
        out.push_str(line);
        out.push('\n');
    }
    out
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the documentation of all metrics, in the order of their names: those of the process come last.
pub fn documentation() -> Vec<MetricDoc> {
    let own = counters::DOCS.into_iter().chain(gauges::documentation());
    let mut all: Vec<_> = own.chain(gauges::process_documentation()).collect();
    all.sort_by_key(|doc| (doc.name.starts_with("process_"), doc.name));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use mail::{Enhanced, QueueId};
    use report::{
        Event, Sink, UnixMicros,
        event::{Attempted, Status},
    };

    #[test]
    fn each_documented_metric_is_scraped_and_each_scraped_one_documented() {
        let destination = DestinationGauges { name: "mx:\"x\"\n".into(), ready: 1, ..Default::default() };
        let text = Metrics::new().scrape(Snapshot { destinations: vec![destination], ..Default::default() });
        let mut scraped: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
            .map(|name| name.strip_prefix("postrider_").unwrap_or(name))
            .collect();
        scraped.sort_unstable_by_key(|name| (name.starts_with("process_"), *name));
        let documented: Vec<&str> = documentation().iter().map(|doc| doc.name).collect();
        assert_eq!(scraped, documented);
        assert!(text.ends_with("# EOF\n"));
        for histogram in documentation().iter().filter(|doc| doc.kind == "histogram") {
            let last = format!("postrider_{}_bucket{{le=\"+Inf\"}}", histogram.name);
            assert!(text.contains(&last), "{last}: {text}");
        }
        assert!(text.contains("destination=\"mx:\\\"x\\\"\\n\""), "a name cannot break a line: {text}");
    }

    #[test]
    fn the_older_format_describes_each_name_that_has_values() {
        let text = to_plain_format(&Metrics::new().scrape(Snapshot::default()));
        assert!(text.contains("# TYPE postrider_recipients_accepted_total counter\n"), "{text}");
        assert!(!text.contains("# EOF") && !text.contains("# TYPE postrider_recipients_accepted counter"));
        let help = text.lines().filter(|line| line.starts_with("# HELP ")).count();
        assert_eq!(help, documentation().len());
        let openmetrics = "# HELP a b c.\n# TYPE a gauge\n# UNIT a x\na{x=\"y\"} 1\n# EOF\n";
        assert_eq!(to_plain_format(openmetrics), "# HELP a b c.\n# TYPE a gauge\na{x=\"y\"} 1\n");
    }

    #[test]
    fn events_are_counted_by_their_labels() {
        let metrics = Metrics::new();
        let mut sink = metrics.sink();
        let attempt = Attempted {
            id: QueueId(1),
            from: "",
            to: "",
            status: Status::Sent,
            dsn: Enhanced(2, 0, 0),
            relay: "mx[192.0.2.1]:25",
            tls: "",
            reply: "250",
            age_ms: 1500,
            queued_ms: 0,
            setup_ms: 0,
            transfer_ms: 40,
            index: Some(0),
        };
        for status in [Status::Sent, Status::Sent, Status::Deferred] {
            sink.write(UnixMicros(0), &Event::Attempt(Attempted { status, ..attempt }));
        }
        let text = metrics.scrape(Snapshot::default());
        for line in [
            "postrider_attempts_total{status=\"sent\"} 2",
            "postrider_attempts_total{status=\"deferred\"} 1",
            "postrider_delivery_age_seconds_count 2",
            "postrider_delivery_age_seconds_sum 3.0",
            "postrider_delivery_age_seconds_bucket{le=\"1.0\"} 0",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
    }
}
