//! `[metrics]`: the HTTP server of the metrics.

use crate::{listen_address::ListenAddress, section::section};
use ipnet::IpNet;

section! {
    /// Metrics for Prometheus, over HTTP. `docs/metrics.md` lists them. `postrider status --prometheus` prints them even
    /// without this section.
    pub Metrics = "metrics" {
        /// The address of the HTTP server: an address of this machine with a port, such as `127.0.0.1:9125`, or a Unix
        /// socket. It serves `/metrics`, and `/healthz` for probes. Without this key there is no server.
        listen: Option<ListenAddress> = "",
        /// Networks that may read the metrics, in addition to this machine. All others get 403.
        allow_from: Vec<IpNet> = "[]",
    }
}
