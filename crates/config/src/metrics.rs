//! `[metrics]`: the HTTP server of the metrics.

use crate::{listen_address::ListenAddress, section::section};
use ipnet::IpNet;

section! {
    /// Metrics for Prometheus, by HTTP. `postrider status --prometheus` prints them, too, without this section. `docs/metrics.md` lists
    /// them.
    pub Metrics = "metrics" {
        /// The address of the HTTP server: an address of this machine with a port, such as `127.0.0.1:9125`, or a Unix socket. It answers
        /// `/metrics`, and `/healthz` for probes. Without this key there is no server.
        listen: Option<ListenAddress> = "",
        /// Networks that may ask, beside this machine. Everybody else gets 403.
        allow_from: Vec<IpNet> = "[]",
    }
}
