//! One question over HTTP about a whole message.

use crate::{Failure, Transaction, rspamd};
use bytes::Bytes;
use http_body_util::Empty;
use hyper::{
    Request, Response, StatusCode,
    body::{Body, Frame, SizeHint},
    header::{HOST, HeaderValue},
};
use maps::{Connection, Server};
use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    sync::mpsc,
    time::{timeout, timeout_at},
};

/// Octets of an answer at most: rspamd lists the rules that have met.
pub const ANSWER_MAX_BYTES: usize = 1024 * 1024;
/// Pieces of a body that are read ahead.
const PIECES_AHEAD: usize = 2;

/// A body that is read while it is sent.
#[derive(Debug)]
pub struct Pieces {
    pieces: mpsc::Receiver<Bytes>,
    left_bytes: u64,
}

/// Returns a body of so many octets, and where its pieces go. A body that ends early breaks the connection.
pub fn pieces(bytes: u64) -> (mpsc::Sender<Bytes>, Pieces) {
    let (sender, pieces) = mpsc::channel(PIECES_AHEAD);
    (sender, Pieces { pieces, left_bytes: bytes })
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.pieces.poll_recv(cx).map(|piece| {
            let piece = piece?;
            self.left_bytes = self.left_bytes.saturating_sub(piece.len() as u64);
            Some(Ok(Frame::data(piece)))
        })
    }

    fn is_end_stream(&self) -> bool {
        self.left_bytes == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left_bytes)
    }
}

/// Asks a worker of rspamd about a message, and returns its answer. Connecting takes `limit` at most, and everything ends at `until`.
///
/// # Errors
/// The worker cannot be reached, does not answer in time, or refuses to answer.
pub async fn ask_rspamd(
    server: &Server,
    of: &Transaction,
    content: Pieces,
    limit: Duration,
    until: tokio::time::Instant,
) -> Result<Bytes, Failure> {
    let mut request = Request::post(rspamd::TARGET).header(HOST, "localhost");
    for (name, value) in rspamd::header(of) {
        let value = HeaderValue::from_bytes(value.as_bytes());
        request = request.header(name, value.map_err(|_| Failure::Http(format!("{name} cannot be sent")))?);
    }
    let request = request.body(content).map_err(|e| Failure::Http(e.to_string()))?;
    let stream = timeout(limit, server.connect()).await.map_err(|_| Failure::TimedOut(limit))??;
    let answered = timeout_at(until, exchange(stream, request)).await;
    ok(answered.map_err(|_| Failure::Late)??)
}

/// Asks a worker of rspamd whether it answers.
///
/// # Errors
/// It does not.
pub async fn ping_rspamd(server: &Server, limit: Duration) -> Result<(), Failure> {
    let asked = async {
        let request = Request::get("/ping").header(HOST, "localhost").body(Empty::<Bytes>::new());
        let request = request.map_err(|e| Failure::Http(e.to_string()))?;
        ok(exchange(server.connect().await?, request).await?).map(|_| ())
    };
    timeout(limit, asked).await.unwrap_or(Err(Failure::TimedOut(limit)))
}

/// Returns the body of an answer.
///
/// # Errors
/// Its status is not 200.
pub fn ok(response: Response<Bytes>) -> Result<Bytes, Failure> {
    match response.status() {
        StatusCode::OK => Ok(response.into_body()),
        status => Err(Failure::Http(format!("it answers {status}"))),
    }
}

async fn exchange<B>(stream: Connection, request: Request<B>) -> Result<Response<Bytes>, Failure>
where
    B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
{
    match stream {
        Connection::Unix(stream) => http::exchange(stream, request, ANSWER_MAX_BYTES).await,
        Connection::Tcp(stream) => http::exchange(stream, request, ANSWER_MAX_BYTES).await,
    }
    .map_err(Failure::Http)
}
