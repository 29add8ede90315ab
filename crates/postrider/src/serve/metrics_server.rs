//! The HTTP server of the metrics. It has a thread of its own at a lower priority, so that a scrape never delays mail.

use super::{
    Daemon,
    process::Process,
    start::{UnixSocket, local_socket},
};
use config::ListenAddress;
use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header::{ACCEPT, ALLOW, CONTENT_TYPE},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use ipnet::IpNet;
use limits::OpenConnections;
use std::{
    convert::Infallible,
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, UnixListener},
    task::AbortHandle,
    time::timeout,
};

/// Connections that are served at a time. One more closes the oldest.
const CONNECTIONS_MAX: usize = 32;
/// Connections of one client at a time. One more closes its oldest.
const CONNECTIONS_OF_CLIENT: usize = 16;
/// The longest life of a connection.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The priority of the thread: mail goes first.
const NICE: i32 = 5;

/// The socket of the metrics, before there is a runtime for it.
pub(super) enum MetricsSocket {
    Tcp(std::net::TcpListener),
    Unix(UnixSocket),
}

impl MetricsSocket {
    /// Binds the address of the metrics; `None` if they have none.
    ///
    /// # Errors
    /// In words.
    pub(super) fn bind(settings: &config::Settings, process: &Process) -> Result<Option<Self>, String> {
        let Some(address) = &settings.metrics.listen else { return Ok(None) };
        let bound = match address {
            ListenAddress::Ip(ip, port) => {
                let address = SocketAddr::new(*ip, port.unwrap_or_default());
                std::net::TcpListener::bind(address).and_then(|socket| {
                    socket.set_nonblocking(true)?;
                    Ok(Self::Tcp(socket))
                })
            }
            ListenAddress::Unix(path) => {
                return Ok(Some(Self::Unix(local_socket(path, 0o660, None, process)?)));
            }
            // Refused by the check of the configuration.
            ListenAddress::Systemd(_) => return Ok(None),
        };
        bound.map(Some).map_err(|e| format!("listen for metrics: {e}"))
    }
}

/// Starts the thread of the server.
///
/// # Errors
/// In words.
pub(super) fn start(socket: MetricsSocket, daemon: Arc<Daemon>) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| format!("start the metrics: {e}"))?;
    let serve = move || {
        // Of this thread only. Where it is not permitted, the metrics are served all the same.
        let _ = rustix::process::setpriority_process(None, NICE);
        runtime.block_on(accept_all(socket, daemon));
    };
    let thread = std::thread::Builder::new().name("metrics".to_owned()).spawn(serve);
    thread.map(drop).map_err(|e| format!("start the thread of the metrics: {e}"))
}

async fn accept_all(socket: MetricsSocket, daemon: Arc<Daemon>) {
    let mut closing = daemon.driver.closing.subscribe();
    let accepting = async {
        let mut open = OpenConnections::new(CONNECTIONS_MAX, CONNECTIONS_OF_CLIENT);
        let result = match socket {
            MetricsSocket::Tcp(socket) => accept_tcp(socket, &daemon, &mut open).await,
            MetricsSocket::Unix(socket) => accept_unix(socket, &daemon, &mut open).await,
        };
        if let Err(e) = result {
            tracing::error!("listen for metrics: {e}");
        }
    };
    tokio::select! {
        () = accepting => {}
        _ = closing.wait_for(|closing| *closing) => {}
    }
}

async fn accept_tcp(
    socket: std::net::TcpListener,
    daemon: &Arc<Daemon>,
    open: &mut OpenConnections<AbortHandle>,
) -> io::Result<()> {
    let socket = TcpListener::from_std(socket)?;
    loop {
        match socket.accept().await {
            Ok((stream, peer)) => spawn(stream, Some(peer.ip()), daemon, open),
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

async fn accept_unix(
    socket: UnixSocket,
    daemon: &Arc<Daemon>,
    open: &mut OpenConnections<AbortHandle>,
) -> io::Result<()> {
    let socket = UnixListener::from_std(socket)?;
    loop {
        if let Some(stream) = control::socket::accept(&socket).await {
            spawn(stream, None, daemon, open);
        }
    }
}

/// Serves a connection in a task. `peer`: `None` for a Unix socket, whose permissions decide.
fn spawn(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: Option<IpAddr>,
    daemon: &Arc<Daemon>,
    open: &mut OpenConnections<AbortHandle>,
) {
    if let Some(oldest) = open.make_room(peer, AbortHandle::is_finished) {
        oldest.abort();
    }
    let daemon = daemon.clone();
    let task = tokio::spawn(async move {
        let service = service_fn(|request: Request<Incoming>| {
            let response = answer(&daemon, peer, &request);
            async move { Ok::<_, Infallible>(response) }
        });
        let mut server = http1::Builder::new();
        server.timer(TokioTimer::new()).header_read_timeout(CONNECTION_TIMEOUT);
        // A client that went away is no news.
        let _ = timeout(CONNECTION_TIMEOUT, server.serve_connection(TokioIo::new(stream), service)).await;
    });
    open.add(peer, task.abort_handle());
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

fn text(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let kind = hyper::header::HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
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
