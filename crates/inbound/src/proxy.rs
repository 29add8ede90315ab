//! Reads the header of the PROXY protocol before a session begins.

use smtp::proxy::{self, Malformed, Proxied, SIGNATURE, V1_MAX_BYTES, V2_HEAD_BYTES};
use std::{io, time::Duration};
use tokio::{io::AsyncReadExt as _, net::TcpStream, time::timeout};

/// Time for the header; a load balancer sends it at once.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Reads the header, and nothing behind it: TLS may follow.
///
/// # Errors
/// There is none, or not in time.
pub(crate) async fn read(stream: &mut TcpStream) -> io::Result<Proxied> {
    let late = || io::Error::new(io::ErrorKind::TimedOut, "no PROXY header in time");
    timeout(TIMEOUT, header(stream)).await.map_err(|_| late())?
}

async fn header(stream: &mut TcpStream) -> io::Result<Proxied> {
    let mut head = [0; V2_HEAD_BYTES];
    // No line of version 1 is shorter.
    stream.read_exact(&mut head[..SIGNATURE.len()]).await?;
    let read = if head[..SIGNATURE.len()] == SIGNATURE {
        stream.read_exact(&mut head[SIGNATURE.len()..]).await?;
        let mut rest = vec![0; proxy::v2_rest_bytes(&head).map_err(malformed)?];
        stream.read_exact(&mut rest).await?;
        proxy::parse_v2(&head, &rest)
    } else if head.starts_with(b"PROXY ") {
        let mut line = head[..SIGNATURE.len()].to_vec();
        while !line.ends_with(b"\n") && line.len() < V1_MAX_BYTES {
            let mut ahead = [0; V1_MAX_BYTES];
            let count = stream.peek(&mut ahead[..V1_MAX_BYTES - line.len()]).await?;
            let end = ahead[..count].iter().position(|b| *b == b'\n').map_or(count, |at| at + 1);
            if end == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            stream.read_exact(&mut ahead[..end]).await?;
            line.extend_from_slice(&ahead[..end]);
        }
        proxy::parse_v1(&line)
    } else {
        Err(Malformed)
    };
    read.map_err(malformed)
}

fn malformed(_: Malformed) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "no PROXY header, or a malformed one")
}
