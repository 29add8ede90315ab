//! A client's connection, by TCP, TLS or a Unix socket, read into a buffer that all sessions of a thread share, so
//! that a session that waits holds none.

use rustix::net::{SendFlags, send};
use std::{
    cell::RefCell,
    io::{self, ErrorKind::WouldBlock},
    os::fd::{AsFd as _, BorrowedFd},
    pin::Pin,
    task::{Context, Poll, ready},
};
use tokio::{
    io::{AsyncRead as _, AsyncWriteExt as _, Interest, ReadBuf},
    net::{TcpStream, UnixStream},
};
use tokio_rustls::server::TlsStream;

/// Read at once; a bulk sender's socket buffer is emptied in few calls.
const READ_BYTES: usize = 64 * 1024;

thread_local! {
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_BYTES].into());
}

pub(crate) enum Stream {
    Plain(TcpStream),
    Unix(UnixStream),
    Tls(Box<TlsStream<TcpStream>>),
    #[cfg(feature = "memory")]
    Memory(tokio::io::DuplexStream),
    /// The handshake has it, or it ended in the handshake.
    Taken,
}

impl Stream {
    /// Appends what has come to `unread`; zero at the end of the stream.
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        unread: &mut Vec<u8>,
    ) -> Poll<io::Result<usize>> {
        SCRATCH.with_borrow_mut(|scratch| {
            let mut buffer = ReadBuf::new(scratch);
            ready!(match self {
                Self::Plain(stream) => Pin::new(stream).poll_read(cx, &mut buffer),
                Self::Unix(stream) => Pin::new(stream).poll_read(cx, &mut buffer),
                Self::Tls(stream) => Pin::new(stream).poll_read(cx, &mut buffer),
                #[cfg(feature = "memory")]
                Self::Memory(stream) => Pin::new(stream).poll_read(cx, &mut buffer),
                Self::Taken => Poll::Ready(Ok(())),
            })?;
            let bytes = buffer.filled();
            unread.extend_from_slice(bytes);
            Poll::Ready(Ok(bytes.len()))
        })
    }

    /// Writes all bytes; dropping the future leaves an unknown part written.
    pub(crate) async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.write_all(bytes).await,
            Self::Unix(stream) => stream.write_all(bytes).await,
            Self::Tls(stream) => {
                stream.write_all(bytes).await?;
                stream.flush().await
            }
            #[cfg(feature = "memory")]
            Self::Memory(stream) => stream.write_all(bytes).await,
            Self::Taken => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Writes the last reply and, under TLS, sends close_notify; the connection is closed when the stream is dropped.
    /// In clear text the reply waits for that, and leaves with the FIN in one segment; unless something is
    /// unread: then what is closed is reset, and what waits is lost. `is_asked`: the client waits for the reply, and sends nothing
    /// meanwhile.
    pub(crate) async fn end(&mut self, reply: &[u8], is_asked: bool) -> io::Result<()> {
        let may_wait = is_asked && !self.has_unread_bytes();
        match self {
            Self::Plain(stream) => {
                let held = if may_wait { hold(stream, reply)? } else { 0 };
                stream.write_all(&reply[held..]).await?;
                if !is_asked {
                    // The reply and the FIN are ahead of a reset, if the client has just sent a command.
                    let _ = stream.shutdown().await;
                }
                Ok(())
            }
            Self::Unix(stream) => stream.write_all(reply).await,
            Self::Tls(stream) => {
                stream.write_all(reply).await?;
                // The peer may be gone already; there is nothing left to lose.
                let _ = stream.shutdown().await;
                Ok(())
            }
            #[cfg(feature = "memory")]
            Self::Memory(stream) => stream.write_all(reply).await,
            Self::Taken => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Belongs to the runtime that calls this from now on.
    pub(crate) fn move_here(&mut self) -> io::Result<()> {
        let stream = match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => stream.get_mut().0,
            Self::Unix(stream) => {
                let again = stream.as_fd().try_clone_to_owned()?;
                *stream = UnixStream::from_std(again.into())?;
                return Ok(());
            }
            #[cfg(feature = "memory")]
            Self::Memory(_) => return Ok(()),
            Self::Taken => return Ok(()),
        };
        let again = stream.as_fd().try_clone_to_owned()?;
        *stream = TcpStream::from_std(again.into())?;
        Ok(())
    }

    /// In clear text, something has come that was not read? Before we spoke it came early.
    pub(crate) fn has_unread_bytes(&self) -> bool {
        let socket: BorrowedFd<'_> = match self {
            Self::Plain(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
            #[cfg(feature = "memory")]
            Self::Memory(_) => return false,
            Self::Tls(_) | Self::Taken => return false,
        };
        let mut byte = [0];
        let flags = rustix::net::RecvFlags::PEEK | rustix::net::RecvFlags::DONTWAIT;
        rustix::net::recv(socket, &mut byte[..], flags).is_ok_and(|(n, _)| n > 0)
    }
}

/// Writes octets that the kernel may hold back until more follow or the connection ends. Returns their number.
fn hold(stream: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
    let flags = SendFlags::MORE | SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let held = stream.try_io(Interest::WRITABLE, || Ok(send(stream, bytes, flags)?));
    held.or_else(|e| if e.kind() == WouldBlock { Ok(0) } else { Err(e) })
}
