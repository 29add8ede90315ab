//! The server loop.

use crate::OpenConnections;
use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Request, Response, StatusCode,
    body::Incoming,
    header::{CONTENT_TYPE, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::{convert::Infallible, future::Future, io, net::IpAddr, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    task::AbortHandle,
    time::timeout,
};

/// Pause after a failed accept: without descriptors, accepting at once again would only burn the processor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What one listener permits its clients.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Connections that are served at a time. One more closes the oldest.
    pub connections: usize,
    /// Connections of one client at a time. One more closes its oldest.
    pub connections_of_client: usize,
    /// The longest life of a connection, and the time for the header of a request.
    pub time: Duration,
    /// Further requests are answered on the same connection.
    pub keeps_alive: bool,
}

/// A listening socket: TCP, or a Unix socket.
pub trait Accept {
    /// What a connection is.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// Waits for the next connection. Clients of a Unix socket have no address: its permissions decide.
    fn accept(&self) -> impl Future<Output = io::Result<(Self::Stream, Option<IpAddr>)>> + Send;
}

impl Accept for TcpListener {
    type Stream = TcpStream;

    async fn accept(&self) -> io::Result<(TcpStream, Option<IpAddr>)> {
        let (stream, peer) = TcpListener::accept(self).await?;
        Ok((stream, Some(peer.ip())))
    }
}

impl Accept for UnixListener {
    type Stream = UnixStream;

    async fn accept(&self) -> io::Result<(UnixStream, Option<IpAddr>)> {
        Ok((UnixListener::accept(self).await?.0, None))
    }
}

/// Serves all connections of a socket, each in a task, for ever. A new connection is never refused: silent clients make room for
/// it.
pub async fn accept_all<A, F>(
    socket: A,
    limits: Limits,
    serve: impl Fn(A::Stream, Option<IpAddr>) -> F,
) -> Infallible
where
    A: Accept,
    F: Future<Output = ()> + Send + 'static,
{
    let mut open = OpenConnections::<AbortHandle>::new(limits.connections, limits.connections_of_client);
    loop {
        match socket.accept().await {
            Ok((stream, peer)) => {
                if let Some(oldest) = open.make_room(peer, AbortHandle::is_finished) {
                    oldest.abort();
                }
                let serving = timeout(limits.time, serve(stream, peer));
                // A client that went away is no news.
                let task = tokio::spawn(async move { drop(serving.await) });
                open.add(peer, task.abort_handle());
            }
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

/// Answers all requests at a socket, for ever. `answer` is not to wait; it gets the client's address, and none for a Unix socket.
pub async fn answer_all(
    socket: impl Accept,
    limits: Limits,
    answer: impl Fn(Option<IpAddr>, &Request<Incoming>) -> Response<Full<Bytes>> + Send + Sync + 'static,
) -> Infallible {
    let answer = Arc::new(answer);
    accept_all(socket, limits, move |stream, peer| {
        let answer = answer.clone();
        async move {
            let service = service_fn(|request| {
                let response = answer(peer, &request);
                async move { Ok::<_, Infallible>(response) }
            });
            let mut server = http1::Builder::new();
            server.timer(TokioTimer::new()).header_read_timeout(limits.time).keep_alive(limits.keeps_alive);
            let _ = server.serve_connection(TokioIo::new(stream), service).await;
        }
    })
    .await
}

/// Returns a plain-text response.
pub fn text(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    #[tokio::test]
    async fn silent_connections_of_one_address_do_not_keep_others_out() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let limits = Limits {
            connections: 8,
            connections_of_client: 4,
            time: Duration::from_secs(600),
            keeps_alive: false,
        };
        let server = tokio::spawn(answer_all(listener, limits, |peer, request| {
            assert_eq!(peer, Some([127, 0, 0, 1].into()));
            text(StatusCode::OK, format!("here is {}", request.uri().path()))
        }));
        let mut silent = Vec::new();
        for _ in 0..20 {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(b"GET /x HTTP/1.1\r\nHost: mx.test\r\n\r\n").await.unwrap();
        let mut reply = String::new();
        client.read_to_string(&mut reply).await.unwrap();
        assert!(reply.starts_with("HTTP/1.1 200 ") && reply.ends_with("here is /x"), "{reply}");
        server.abort();
    }
}
