//! Connections to servers that answer look-ups, and to others with the same kind of address.

use crate::source::Server;
use std::io;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
};

/// What can be read and written.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// A connection to a [`Server`]; dropping it closes it.
#[derive(Debug)]
pub enum Connection {
    /// To a Unix socket.
    Unix(UnixStream),
    /// Over TCP, which does not wait for more before it sends.
    Tcp(TcpStream),
}

impl Connection {
    /// Returns the connection for callers to whom its kind does not matter.
    pub fn boxed(self) -> Box<dyn Stream> {
        match self {
            Self::Unix(stream) => Box::new(stream),
            Self::Tcp(stream) => Box::new(stream),
        }
    }
}

impl Server {
    /// Connects to the server.
    ///
    /// # Errors
    /// It cannot be reached.
    pub async fn connect(&self) -> io::Result<Connection> {
        Ok(match self {
            Self::Unix(path) => Connection::Unix(UnixStream::connect(path).await?),
            Self::Tcp(host) => {
                let stream = TcpStream::connect((host.host.as_str(), host.port)).await?;
                stream.set_nodelay(true)?;
                Connection::Tcp(stream)
            }
        })
    }
}
