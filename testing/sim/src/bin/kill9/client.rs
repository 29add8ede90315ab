//! One client session: sends until the daemon is gone.

use super::mail;
use std::{
    io::{self, BufReader, Write as _},
    net::{SocketAddr, TcpStream},
    sync::mpsc::{Receiver, Sender, channel},
    thread::Scope,
    time::Duration,
};

/// A test that waits longer for an event has failed.
pub(crate) const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// Begins so many sessions, each of which sends until its connection ends. What each message was answered,
/// at MAIL, RCPT or its end, until no session is left.
pub(crate) fn load<'s>(
    scope: &'s Scope<'s, '_>,
    sessions: usize,
    address: SocketAddr,
    name: &str,
) -> Receiver<(String, u16)> {
    let (tell, told) = channel();
    for number in 0..sessions {
        let (tell, name) = (tell.clone(), format!("{name}-{number}"));
        // That the daemon goes away is the purpose.
        scope.spawn(move || drop(session(address, &name, &tell)));
    }
    told
}

fn session(address: SocketAddr, name: &str, tell: &Sender<(String, u16)>) -> io::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(WAIT_TIMEOUT))?;
    let mut reader = BufReader::new(stream.try_clone()?);
    code(&mut reader)?;
    stream.write_all(b"EHLO client.test\r\n")?;
    code(&mut reader)?;
    for n in 0.. {
        let name = format!("{name}-{n}");
        let recipient = mail::recipient(&name);
        write!(stream, "MAIL FROM:<{name}@a.test>\r\nRCPT TO:<{recipient}>\r\nDATA\r\n")?;
        let (from, to, data) = (code(&mut reader)?, code(&mut reader)?, code(&mut reader)?);
        if (from, to, data) != (250, 250, 354) {
            let refusal = [from, to, data].into_iter().find(|code| *code >= 400).unwrap_or(0);
            let _ = tell.send((name.clone(), refusal));
            return Err(io::Error::other(format!("{name}: {from}, {to}, {data}")));
        }
        stream.write_all(format!("{}.\r\n", mail::body(&name)).as_bytes())?;
        let said = code(&mut reader)?;
        // Nobody listens any more: the run is over.
        let _ = tell.send((name, said));
    }
    Ok(())
}

/// Reads a whole reply, and returns its code.
fn code(reader: &mut impl io::BufRead) -> io::Result<u16> {
    let mut line = String::new();
    loop {
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if line.as_bytes().get(3) != Some(&b'-') {
            return Ok(line.get(..3).and_then(|code| code.parse().ok()).unwrap_or(0));
        }
    }
}
