//! A buffered stream of a connection: TCP, TLS or a Unix socket. Every wait has a time limit.

use bytes::{Buf as _, Bytes};
use std::{
    collections::VecDeque,
    future::poll_fn,
    io::{self, IoSlice},
    pin::{Pin, pin},
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf},
    net::{TcpStream, UnixStream},
    time::{Instant, Sleep, sleep_until},
};
use tokio_rustls::client::TlsStream;

/// Replies are small, and the buffer is kept for each connection.
const READ_BYTES: usize = 4096;
/// Pieces that one vectored write takes.
const SLICES_MAX: usize = 32;

/// TCP, TLS over it, or a Unix socket.
pub(crate) enum Stream {
    Tcp(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    Unix(UnixStream),
}

/// Calls the same method of whichever stream it is.
macro_rules! delegate {
    ($self:ident, $stream:ident => $call:expr) => {
        match $self.get_mut() {
            Self::Tcp($stream) => $call,
            Self::Tls($stream) => $call,
            Self::Unix($stream) => $call,
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        delegate!(self, s => Pin::new(s).poll_read(cx, buffer))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        delegate!(self, s => Pin::new(s).poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        delegate!(self, s => Pin::new(s).poll_write_vectored(cx, slices))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        delegate!(self, s => Pin::new(s).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        delegate!(self, s => Pin::new(s).poll_shutdown(cx))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }
}

/// A stream, the pieces that wait to be written, and the octets that were read last.
pub(crate) struct BufferedStream {
    pub(crate) inner: Stream,
    unsent: VecDeque<Bytes>,
    buffer: Vec<u8>,
    timer: Timer,
}

impl BufferedStream {
    pub(crate) fn new(inner: Stream) -> Self {
        let buffer = Vec::with_capacity(READ_BYTES);
        Self { inner, unsent: VecDeque::new(), buffer, timer: Timer::default() }
    }

    /// Appends bytes to those that wait to be written.
    pub(crate) fn push(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.unsent.push_back(bytes);
        }
    }

    /// Returns the number of pieces that wait to be written.
    pub(crate) fn unsent_count(&self) -> usize {
        self.unsent.len()
    }

    /// Writes all pieces. `time_limit` bounds each wait for the peer to take some octets.
    pub(crate) async fn flush(&mut self, time_limit: Duration) -> io::Result<()> {
        if self.unsent.is_empty() {
            return Ok(());
        }
        while !self.unsent.is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let mut count = 0;
            for (slice, bytes) in slices.iter_mut().zip(&self.unsent) {
                *slice = IoSlice::new(bytes);
                count += 1;
            }
            let written = self.timer.within(time_limit, self.inner.write_vectored(&slices[..count])).await?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            self.written(written);
        }
        if matches!(self.inner, Stream::Tls(_)) {
            self.timer.within(time_limit, self.inner.flush()).await?;
        }
        Ok(())
    }

    fn written(&mut self, mut count: usize) {
        while let Some(front) = self.unsent.front_mut() {
            if front.len() > count {
                front.advance(count);
                return;
            }
            count -= front.len();
            self.unsent.pop_front();
        }
    }

    /// Reads octets; the end of the stream is an error. Cancel safe.
    pub(crate) async fn read(&mut self, time_limit: Duration) -> io::Result<&[u8]> {
        self.fill(time_limit).await?;
        Ok(&self.buffer)
    }

    /// Returns the octets that were read last.
    pub(crate) fn received(&self) -> &[u8] {
        &self.buffer
    }

    /// As [`BufferedStream::read`], for [`BufferedStream::received`]. Cancel safe.
    pub(crate) async fn fill(&mut self, time_limit: Duration) -> io::Result<()> {
        self.buffer.clear();
        self.timer.within(time_limit, self.inner.read_buf(&mut self.buffer)).await?;
        if self.buffer.is_empty() {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection"));
        }
        Ok(())
    }

    /// Says to the peer that nothing follows, within this time; errors do not matter any more.
    pub(crate) async fn shutdown(&mut self, time_limit: Duration) {
        // The peer may be gone already, and nothing is left to send.
        let _ = self.timer.within(time_limit, self.inner.shutdown()).await;
    }
}

/// The timer of all waits of a stream. It is set anew only when it fires, or for an earlier time: a wait for a reply that comes soon
/// costs no change of it.
#[derive(Debug, Default)]
struct Timer(Option<Pin<Box<Sleep>>>);

impl Timer {
    /// Bounds the time of some work.
    async fn within<T>(
        &mut self,
        time_limit: Duration,
        work: impl Future<Output = io::Result<T>>,
    ) -> io::Result<T> {
        let mut work = pin!(work);
        let mut deadline = None;
        poll_fn(|cx| {
            if let Poll::Ready(done) = work.as_mut().poll(cx) {
                return Poll::Ready(done);
            }
            let deadline = *deadline.get_or_insert_with(|| Instant::now() + time_limit);
            let timer = self.0.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
            if timer.deadline() > deadline {
                timer.as_mut().reset(deadline);
            }
            while timer.as_mut().poll(cx).is_ready() {
                if Instant::now() >= deadline {
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "timed out")));
                }
                timer.as_mut().reset(deadline);
            }
            Poll::Pending
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, ready};

    #[tokio::test]
    async fn each_wait_has_its_own_limit_with_one_timer() {
        let mut timer = Timer::default();
        let (short, long) = (Duration::from_millis(5), Duration::from_secs(3600));
        assert_eq!(timer.within(short, ready(Ok(7))).await.unwrap(), 7);
        assert!(timer.0.is_none(), "what is ready sets no timer");
        let later = || async {
            tokio::time::sleep(4 * short).await;
            Ok(())
        };
        let ended = |waited: io::Result<()>| waited.map_err(|error| error.kind());
        // A wait that ends before its limit leaves the timer set for that time.
        assert_eq!(ended(timer.within(long, later()).await), Ok(()));
        assert_eq!(ended(timer.within(short, pending()).await), Err(io::ErrorKind::TimedOut));
        assert_eq!(ended(timer.within(long, later()).await), Ok(()));
        let soon = async {
            tokio::task::yield_now().await;
            Ok(())
        };
        assert_eq!(ended(timer.within(short, soon).await), Ok(()));
        // The timer of the wait before fires within this one, and does not end it.
        assert_eq!(ended(timer.within(long, later()).await), Ok(()));
        assert_eq!(ended(timer.within(Duration::ZERO, pending()).await), Err(io::ErrorKind::TimedOut));
    }
}
