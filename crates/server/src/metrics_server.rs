//! The HTTP server of the metrics. It has a thread of its own at a lower priority, so that a scrape never delays mail.

use super::{
    Daemon,
    process::Process,
    start::{UnixSocket, local_socket},
};
use crate::sockets::not_bound_by;
use config::{ListenAddress, ListenAt};
use http::text;
use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header::{ACCEPT, ALLOW, CONTENT_TYPE},
};
use ipnet::IpNet;
use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};
use tokio::net::{TcpListener, UnixListener};

const LIMITS: http::Limits = http::Limits {
    connections: 32,
    connections_of_client: 16,
    time: Duration::from_secs(10),
    keeps_alive: true,
};
/// The priority of the thread: mail goes first.
const NICE: i32 = 5;

/// The socket of the metrics, before there is a runtime for it.
pub(super) enum MetricsSocket {
    Tcp(std::net::TcpListener),
    Unix(UnixSocket),
}

impl MetricsSocket {
    /// Binds the address of the metrics; `None` if they have none.
    pub(super) fn bind(settings: &config::Settings, process: &Process) -> Result<Option<Self>, String> {
        let Some(address) = &settings.metrics.listen else { return Ok(None) };
        let bound = match address {
            ListenAddress::Ip(ip, port) => {
                let address = SocketAddr::new(*ip, port.unwrap_or_default());
                let bound = std::net::TcpListener::bind(address).and_then(|socket| {
                    socket.set_nonblocking(true)?;
                    Ok(Self::Tcp(socket))
                });
                bound.map_err(|e| not_bound_by(&ListenAt::Ip(address), "`listen` in [metrics]", &e))?
            }
            ListenAddress::Unix(path) => {
                return Ok(Some(Self::Unix(local_socket(path, 0o660, None, process)?)));
            }
            // Refused by the check of the configuration.
            ListenAddress::Systemd(_) => return Ok(None),
        };
        Ok(Some(bound))
    }
}

/// Starts the thread of the server.
pub(super) fn start(socket: MetricsSocket, daemon: Arc<Daemon>) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| format!("start the metrics: {e}"))?;
    let serve = move || {
        // Of this thread only. Where it is not permitted, the metrics are served all the same.
        let _ = rustix::process::setpriority_process(None, NICE);
        runtime.block_on(answer_all(socket, daemon));
    };
    let thread = std::thread::Builder::new().name("metrics".to_owned()).spawn(serve);
    thread.map(drop).map_err(|e| format!("start the thread of the metrics: {e}"))
}

/// Answers until the daemon ends.
async fn answer_all(socket: MetricsSocket, daemon: Arc<Daemon>) {
    let mut closing = daemon.driver.closing.subscribe();
    let answering = async {
        let answer = move |peer, request: &Request<Incoming>| answer(&daemon, peer, request);
        let failed = match socket {
            MetricsSocket::Tcp(socket) => match TcpListener::from_std(socket) {
                Ok(socket) => match http::answer_all(socket, LIMITS, answer).await {},
                Err(e) => e,
            },
            MetricsSocket::Unix(socket) => match UnixListener::from_std(socket) {
                Ok(socket) => match http::answer_all(socket, LIMITS, answer).await {},
                Err(e) => e,
            },
        };
        tracing::error!("listen for metrics: {failed}");
    };
    tokio::select! {
        () = answering => {}
        _ = closing.wait_for(|closing| *closing) => {}
    }
}

fn answer(daemon: &Daemon, peer: Option<IpAddr>, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let may_ask = peer.is_none_or(|ip| may_ask(&daemon.started.metrics.allow_from, ip));
    match (request.method(), request.uri().path()) {
        _ if !may_ask => {
            text(StatusCode::FORBIDDEN, "this address is not in metrics.allow_from\n".to_owned())
        }
        // Of an answer to HEAD hyper leaves the body out.
        (&Method::GET | &Method::HEAD, "/metrics") => {
            let scraped = daemon.scrape();
            // Who does not know OpenMetrics gets the older format.
            let (kind, body) = if wants_openmetrics(request) {
                (metrics::CONTENT_TYPE, scraped)
            } else {
                (metrics::PLAIN_CONTENT_TYPE, metrics::to_plain_format(&scraped))
            };
            let mut response = text(StatusCode::OK, body);
            let kind = hyper::header::HeaderValue::from_static(kind);
            response.headers_mut().insert(CONTENT_TYPE, kind);
            response
        }
        (&Method::GET | &Method::HEAD, "/healthz") => probe(daemon.health()),
        (&Method::GET | &Method::HEAD, "/readyz") => probe(daemon.readiness()),
        (&Method::GET | &Method::HEAD, _) => {
            text(StatusCode::NOT_FOUND, "there are /metrics, /healthz and /readyz\n".to_owned())
        }
        _ => {
            let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n".to_owned());
            response.headers_mut().insert(ALLOW, hyper::header::HeaderValue::from_static("GET, HEAD"));
            response
        }
    }
}

fn probe(state: Result<(), String>) -> Response<Full<Bytes>> {
    match state {
        Ok(()) => text(StatusCode::OK, "ok\n".to_owned()),
        Err(why) => text(StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
    }
}

fn wants_openmetrics(request: &Request<Incoming>) -> bool {
    let accepted = request.headers().get_all(ACCEPT).iter();
    accepted
        .filter_map(|value| value.to_str().ok())
        .any(|value| value.contains("application/openmetrics-text"))
}

fn may_ask(allowed: &[IpNet], ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    ip.is_loopback() || allowed.iter().any(|network| network.contains(&ip))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_and_the_listed_networks_may_ask() {
        let allowed = ["192.0.2.0/24".parse().unwrap()];
        for (ip, may) in [
            ("127.0.0.1", true),
            ("::1", true),
            ("::ffff:127.0.0.1", true),
            ("192.0.2.7", true),
            ("::ffff:192.0.2.7", true),
            ("203.0.113.1", false),
        ] {
            assert_eq!(may_ask(&allowed, ip.parse().unwrap()), may, "{ip}");
        }
    }
}
