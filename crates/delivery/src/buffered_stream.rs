//! A buffered stream of a connection: TCP, TLS or a Unix socket. Every wait has a time limit.

use bytes::{Buf as _, Bytes};
use std::{
    collections::VecDeque,
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf},
    net::{TcpStream, UnixStream},
    time::timeout,
};
use tokio_rustls::client::TlsStream;

/// The size of a read: replies are small.
const READ_BYTES: usize = 4096;
/// The most pieces that one call writes.
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
}

impl BufferedStream {
    pub(crate) fn new(inner: Stream) -> Self {
        Self { inner, unsent: VecDeque::new(), buffer: Vec::with_capacity(READ_BYTES) }
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
            let written = within(time_limit, self.inner.write_vectored(&slices[..count])).await?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            self.written(written);
        }
        if matches!(self.inner, Stream::Tls(_)) {
            within(time_limit, self.inner.flush()).await?;
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
        self.buffer.clear();
        within(time_limit, self.inner.read_buf(&mut self.buffer)).await?;
        if self.buffer.is_empty() {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection"));
        }
        Ok(&self.buffer)
    }

    /// Shuts the stream down.
    pub(crate) async fn shutdown(&mut self, time_limit: Duration) {
        // The peer may be gone already, and nothing is left to send.
        let _ = within(time_limit, self.inner.shutdown()).await;
    }
}

async fn within<T>(time_limit: Duration, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(time_limit, work)
        .await
        .unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "timed out")))
}
