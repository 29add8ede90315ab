//! Writes docs/metrics.md.

use std::fmt::Write as _;

const HEAD: &str = "\
# Metrics

You set up Prometheus for a Postrider, or you look up what a figure on your dashboard counts. (`cargo xtask docs` makes this page from the
code.)

With `[metrics] listen`, the daemon has an HTTP server for monitoring. `/metrics` shows all metrics in the text format of Prometheus, or in
OpenMetrics format for clients that ask for it, as Prometheus does. `/healthz` and `/readyz` answer 200, or 503 with the reason
([monitoring](monitoring.md)). `postrider status --prometheus` prints the same metrics without the server.

```toml
[metrics]
listen = \"127.0.0.1:9125\"   # or \"unix:/run/postrider/metrics.sock\"
```

```yaml
# prometheus.yml
scrape_configs:
  - job_name: postrider
    static_configs: [{targets: [\"127.0.0.1:9125\"]}]
```

`dist/prometheus.rules.yml` has alerts, and `dist/grafana.json` a dashboard.

All names begin with `postrider_`, except those of the process itself. The counters of recipients continue after a restart or a crash; all
other counters start at zero with the process. The counters of connections need `[log] connections = true`, the default.

| metric | kind | labels | meaning |
|---|---|---|---|
";

fn main() {
    let mut text = HEAD.to_owned();
    for doc in metrics::documentation() {
        let suffix = if doc.kind == "counter" { "_total" } else { "" };
        let labels: Vec<String> = doc.labels.iter().map(|label| format!("`{label}`")).collect();
        let (name, kind, labels, help) = (doc.name, doc.kind, labels.join(", "), doc.help);
        let prefix = if name.starts_with("process_") { "" } else { "postrider_" };
        let _ = writeln!(text, "| `{prefix}{name}{suffix}` | {kind} | {labels} | {help} |");
    }
    print!("{text}");
}
