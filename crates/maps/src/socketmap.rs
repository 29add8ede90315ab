//! Look-ups in another program, by the socketmap protocol of Sendmail and Postfix (socketmap_table(5)).

use crate::{
    Value,
    connection::Stream,
    netstring::Netstring,
    pool::{Backend, Failure, Pooled, Reply},
    reference::NamedMap,
    source::Server,
};
use std::io;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// What a server answers to a look-up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SocketmapReply {
    /// `OK`: the key has this value, which may be empty.
    Ok(Value),
    /// `NOTFOUND`: the key does not exist.
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

type Connection = Box<dyn Stream>;

/// Asks a server in Sendmail's socketmap protocol.
pub(crate) struct Socketmap {
    server: Server,
    remote_name: String,
}

impl Socketmap {
    /// Makes a map behind a socket.
    pub(crate) fn map(settings: &NamedMap, server: &Server, remote_name: &str) -> Pooled<Self> {
        let backend = Self { server: server.clone(), remote_name: remote_name.to_owned() };
        Pooled::new(settings, backend)
    }
}

impl Backend for Socketmap {
    type Connection = Connection;
    const FOLDS: bool = false;

    async fn connect(&self) -> Result<Connection, String> {
        let connected = self.server.connect().await.map_err(|error| error.to_string())?;
        Ok(connected.boxed())
    }

    async fn ask(&self, connection: Connection, key: &str) -> Result<(Reply, Connection), Failure> {
        let mut request = Vec::new();
        Netstring::write(format!("{} {key}", self.remote_name).as_bytes(), &mut request);
        let (reply, connection) = exchange(connection, &request).await?;
        let reply = match reply {
            SocketmapReply::Ok(value) => Ok(Some(value)),
            SocketmapReply::NotFound => Ok(None),
            SocketmapReply::Failed(what) => Err(what.into()),
        };
        Ok((reply, connection))
    }
}

/// Sends a request and reads its reply. A connection with a bad reply is closed.
async fn exchange(
    mut connection: Connection,
    request: &[u8],
) -> Result<(SocketmapReply, Connection), Failure> {
    connection.write_all(request).await.map_err(|error| Failure::Closed(error.to_string()))?;
    let (mut netstring, mut buffer, mut is_first) = (Netstring::default(), [0; 4096], true);
    loop {
        let count = match connection.read(&mut buffer).await {
            Ok(count) if count > 0 => count,
            ended => {
                let error = ended.err().unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into());
                return Err(if is_first {
                    Failure::Closed(error.to_string())
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

#[cfg(test)]
mod tests;
