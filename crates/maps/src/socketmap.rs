//! Look-ups in another program, by the socketmap protocol of Sendmail and Postfix (socketmap_table(5)).

use crate::{
    Looked, LookupError, Map, Value,
    netstring::Netstring,
    reference::{NamedMap, Reference, Server},
};
use mail::Answer;
use std::{
    io,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpStream, UnixStream},
    sync::Semaphore,
    time::timeout,
};

/// The reply of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SocketmapReply {
    /// `OK`: the value.
    Ok(Value),
    /// `NOTFOUND`.
    NotFound,
    /// `TEMP`, `TIMEOUT`, `PERM`, with the reason: whether the key exists is not known.
    Failed(Box<str>),
}

impl SocketmapReply {
    /// Reads the content of a netstring.
    ///
    /// # Errors
    /// The content is no reply of the protocol.
    pub fn parse(content: &[u8]) -> Result<Self, &'static str> {
        let text = std::str::from_utf8(content).map_err(|_| "the reply is not UTF-8")?;
        if text.contains(|c: char| c.is_control() && c != '\t') {
            return Err("the reply has control characters");
        }
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        Ok(match word {
            "OK" => Self::Ok(rest.trim().into()),
            "NOTFOUND" => Self::NotFound,
            "TEMP" | "TIMEOUT" | "PERM" => Self::Failed(text.trim().into()),
            _ => return Err("the reply is none of OK, NOTFOUND, TEMP, TIMEOUT and PERM"),
        })
    }
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

type Connection = Box<dyn Stream>;

/// A map behind a socket. Connections are kept for the next look-up.
pub struct Socketmap {
    reference: Reference,
    server: Server,
    remote_name: String,
    timeout: Duration,
    /// Connections that no look-up uses.
    idle: Mutex<Vec<Connection>>,
    permits: Semaphore,
}

impl Socketmap {
    /// Makes a map of its settings; connects with the first look-up.
    pub fn new(settings: &NamedMap) -> Self {
        Self {
            reference: Reference::Named(settings.name.as_str().into()),
            server: settings.socketmap.clone(),
            remote_name: settings.remote_name.clone(),
            timeout: settings.timeout,
            idle: Mutex::new(Vec::new()),
            permits: Semaphore::new(settings.connections_max.clamp(1, Semaphore::MAX_PERMITS)),
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn connect(&self) -> io::Result<Connection> {
        Ok(match &self.server {
            Server::Unix(path) => Box::new(UnixStream::connect(path).await?),
            Server::Tcp(host) => {
                let stream = TcpStream::connect((host.host.as_str(), host.port)).await?;
                stream.set_nodelay(true)?;
                Box::new(stream)
            }
        })
    }

    async fn ask(&self, key: &str) -> Result<SocketmapReply, String> {
        let _permit = self.permits.acquire().await.map_err(|error| error.to_string())?;
        let mut request = Vec::new();
        Netstring::write(format!("{} {key}", self.remote_name).as_bytes(), &mut request);
        // A server may have closed connections that were idle: then a new one is tried.
        loop {
            let Some(connection) = self.idle().pop() else { break };
            match exchange(connection, &request).await {
                Ok((reply, connection)) => {
                    self.idle().push(connection);
                    return Ok(reply);
                }
                Err(Failure::Closed(_)) => {}
                Err(Failure::Wrong(what)) => return Err(what),
            }
        }
        let connection =
            self.connect().await.map_err(|error| format!("connect to {}: {error}", self.server))?;
        match exchange(connection, &request).await {
            Ok((reply, connection)) => {
                self.idle().push(connection);
                Ok(reply)
            }
            Err(Failure::Closed(error)) => Err(format!("ask {}: {error}", self.server)),
            Err(Failure::Wrong(what)) => Err(format!("ask {}: {what}", self.server)),
        }
    }

    async fn look_up(&self, key: &str) -> Looked {
        let failed = |what: String| Err(LookupError::new(&self.reference, what));
        match timeout(self.timeout, self.ask(key)).await {
            Ok(Ok(SocketmapReply::Ok(value))) => Ok(Some(value)),
            Ok(Ok(SocketmapReply::NotFound)) => Ok(None),
            Ok(Ok(SocketmapReply::Failed(what))) => failed(format!("{} answers {what}", self.server)),
            Ok(Err(what)) => failed(what),
            Err(_) => failed(format!("no answer of {} in {:?}", self.server, self.timeout)),
        }
    }
}

enum Failure {
    /// The connection ended without a byte of a reply.
    Closed(io::Error),
    /// The reply is wrong, or ended in its middle.
    Wrong(String),
}

/// Sends a request and reads its reply. A connection with a bad reply is closed.
async fn exchange(
    mut connection: Connection,
    request: &[u8],
) -> Result<(SocketmapReply, Connection), Failure> {
    connection.write_all(request).await.map_err(Failure::Closed)?;
    let (mut netstring, mut buffer, mut is_first) = (Netstring::default(), [0; 4096], true);
    loop {
        let count = match connection.read(&mut buffer).await {
            Ok(count) if count > 0 => count,
            ended => {
                let error = ended.err().unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into());
                return Err(if is_first {
                    Failure::Closed(error)
                } else {
                    Failure::Wrong(format!("the reply is cut off: {error}"))
                });
            }
        };
        is_first = false;
        match netstring.push(&buffer[..count]) {
            Ok(None) => {}
            Ok(Some(content)) => {
                let reply = SocketmapReply::parse(content);
                return reply
                    .map(|reply| (reply, connection))
                    .map_err(|what| Failure::Wrong(what.to_owned()));
            }
            Err(error) => return Err(Failure::Wrong(error.to_string())),
        }
    }
}

impl Map for Socketmap {
    fn get<'a>(&'a self, key: &'a str) -> Answer<'a, Looked> {
        if key.contains(char::is_control) {
            // No server has such a key, and none should have to guard its own protocols against it.
            return Answer::Ready(Ok(None));
        }
        Answer::later(self.look_up(key))
    }
}

#[cfg(test)]
mod tests;
