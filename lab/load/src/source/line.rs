//! One connection of the source: a socket that never blocks, perhaps with TLS on it.

use super::{client::Arrival, counts::Fault, setup::Setup};
use bytes::{Buf as _, Bytes};
use rustix::{
    event::epoll,
    fd::OwnedFd,
    io::Errno,
    net::{
        AddressFamily, RecvFlags, SendFlags, SocketAddrAny, SocketFlags, SocketType, connect, recv, send,
        socket_with, sockopt,
    },
};
use std::{
    collections::VecDeque,
    io::{self, ErrorKind, IoSlice, Read, Write},
    time::{Duration, Instant},
};

/// What an event of a connection has brought.
#[derive(Debug)]
pub(crate) enum Moved {
    /// Connecting has succeeded.
    Connected,
    /// So many octets were read.
    Read(usize),
    /// The TLS handshake has succeeded.
    Secured,
    Nothing,
    Broken(Fault),
}

/// One connection of the source: a socket that does not block, perhaps with TLS.
#[derive(Debug)]
pub(crate) struct Line {
    socket: OwnedFd,
    connecting: bool,
    /// The server sends nothing more.
    ended: bool,
    tls: Option<Box<rustls::ClientConnection>>,
    /// The last bytes from the server, unless something was written since.
    arrival: Option<Arrival>,
}

/// Pieces that one write gathers.
const SLICES: usize = 16;

impl Line {
    /// Begins to connect; `name` comes back with each event. The socket is watched for edges, so that
    /// one registration serves its whole life.
    pub(crate) fn connect(
        setup: &Setup,
        address: &SocketAddrAny,
        poll: &OwnedFd,
        name: u64,
    ) -> Result<Self, Fault> {
        let family = address.address_family();
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(family, SocketType::STREAM, flags, None).map_err(fault)?;
        if family != AddressFamily::UNIX {
            sockopt::set_tcp_nodelay(&socket, true).map_err(fault)?;
        }
        if let Some(bytes) = setup.window_bytes {
            sockopt::set_socket_recv_buffer_size(&socket, bytes).map_err(fault)?;
            sockopt::set_socket_send_buffer_size(&socket, bytes).map_err(fault)?;
        }
        if let Some(local) = setup.local().filter(|_| family != AddressFamily::UNIX) {
            rustix::net::bind(&socket, &local).map_err(fault)?;
        }
        match connect(&socket, address) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(fault(error)),
        }
        use epoll::EventFlags as Flags;
        let edges = Flags::IN | Flags::OUT | Flags::RDHUP | Flags::ET;
        epoll::add(poll, &socket, epoll::EventData::new_u64(name), edges).map_err(fault)?;
        Ok(Self { socket, connecting: true, ended: false, tls: None, arrival: None })
    }

    /// Is [`Line::connected`] to be asked?
    pub(crate) fn is_connecting(&self) -> bool {
        self.connecting
    }

    /// The first event: the connection was made, or not.
    pub(crate) fn connected(&mut self, flags: epoll::EventFlags) -> Moved {
        self.connecting = false;
        if !flags.intersects(epoll::EventFlags::ERR | epoll::EventFlags::HUP) {
            return Moved::Connected;
        }
        match sockopt::socket_error(&self.socket) {
            Ok(Ok(())) => Moved::Connected,
            Ok(Err(error)) | Err(error) => Moved::Broken(fault(error)),
        }
    }

    /// Notes what epoll says of the connection.
    pub(crate) fn sees(&mut self, flags: epoll::EventFlags) {
        self.ended |= flags.contains(epoll::EventFlags::RDHUP);
    }

    /// Has the server closed its side?
    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Returns the bytes from the server that arrived since the last write.
    pub(crate) fn arrival(&self) -> Option<Arrival> {
        self.arrival
    }

    /// Notes that bytes arrived and nothing is to be written. With `acknowledges` the kernel acknowledges them now,
    /// and later ones when it likes.
    pub(crate) fn holds(&mut self, at: Instant, acknowledges: bool) {
        let quick = |wanted| sockopt::set_tcp_quickack(&self.socket, wanted);
        let is_acknowledged = acknowledges && quick(true).and_then(|()| quick(false)).is_ok();
        self.arrival = Some(Arrival { at, is_acknowledged });
    }

    /// May one event stand for more than one read? The plain text of a segment is not read all at once.
    pub(crate) fn is_secure(&self) -> bool {
        self.tls.is_some()
    }

    /// Closes. Where the server has closed already, a reset says the same as a FIN, and leaves it no TIME_WAIT to
    /// keep: smtp-source resets always.
    pub(crate) fn close(self) {
        if self.ended && self.tls.is_none() {
            // It would only take longer.
            let _ = sockopt::set_socket_linger(&self.socket, Some(Duration::ZERO));
        }
    }

    /// Reads what is there.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> Moved {
        let read = match &mut self.tls {
            None => {
                recv(&self.socket, &mut *buffer, RecvFlags::empty()).map(|(_, n)| n).map_err(io::Error::from)
            }
            Some(tls) => match read_tls(tls, &self.socket, buffer) {
                Ok(Some(length)) => Ok(length),
                Ok(None) => return Moved::Secured,
                Err(error) => Err(error),
            },
        };
        match read {
            Ok(0) => Moved::Broken(Fault::Lost),
            Ok(length) => Moved::Read(length),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Moved::Nothing,
            Err(error) => Moved::Broken(fault_of(&error)),
        }
    }

    /// Writes what fits; how much that was.
    pub(crate) fn write(&mut self, output: &mut VecDeque<Bytes>) -> Result<usize, Fault> {
        self.arrival = None;
        let mut written = 0;
        while !output.is_empty() {
            let result = match &mut self.tls {
                None if output.len() == 1 => {
                    send(&self.socket, &output[0], SendFlags::NOSIGNAL).map_err(io::Error::from)
                }
                None => {
                    let mut slices = [IoSlice::new(&[]); SLICES];
                    let count = output.len().min(SLICES);
                    for (slice, bytes) in slices.iter_mut().zip(output.iter()) {
                        *slice = IoSlice::new(bytes);
                    }
                    rustix::io::writev(&self.socket, &slices[..count]).map_err(io::Error::from)
                }
                Some(tls) => write_tls(tls, &self.socket, &output[0]),
            };
            match result {
                Ok(length) => {
                    written += length;
                    advance(output, length);
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(fault_of(&error)),
            }
        }
        Ok(written)
    }

    /// Begins the handshake.
    pub(crate) fn start_tls(&mut self, setup: &Setup) -> Result<(), Fault> {
        let Some((config, name)) = &setup.tls else { return Ok(()) };
        let tls = rustls::ClientConnection::new(config.clone(), name.clone());
        let mut tls = Box::new(tls.map_err(|e| Fault::Protocol(e.to_string()))?);
        let flushed = flush(&mut tls, &self.socket);
        self.tls = Some(tls);
        flushed.or_else(|e| if e.kind() == ErrorKind::WouldBlock { Ok(()) } else { Err(fault_of(&e)) })
    }
}

fn advance(output: &mut VecDeque<Bytes>, mut length: usize) {
    while let Some(first) = output.front_mut() {
        if length < first.len() {
            first.advance(length);
            return;
        }
        length -= first.len();
        output.pop_front();
    }
}

/// Reads and writes a socket for rustls.
struct Wire<'a>(&'a OwnedFd);

impl Read for Wire<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(self.0, buffer)?)
    }
}

impl Write for Wire<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(self.0, bytes)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn flush(tls: &mut rustls::ClientConnection, socket: &OwnedFd) -> io::Result<()> {
    while tls.wants_write() {
        tls.write_tls(&mut Wire(socket))?;
    }
    Ok(())
}

fn write_tls(tls: &mut rustls::ClientConnection, socket: &OwnedFd, bytes: &[u8]) -> io::Result<usize> {
    flush(tls, socket)?;
    let length = tls.writer().write(bytes)?;
    match flush(tls, socket) {
        // It is in our buffer: the next write or read sends it on.
        Err(e) if e.kind() != ErrorKind::WouldBlock => Err(e),
        _ => Ok(length),
    }
}

/// Returns the length of the plain text that was read; none at the moment the handshake is done. Plain text is
/// returned before the end of the connection, also where both arrive in one segment.
fn read_tls(
    tls: &mut rustls::ClientConnection,
    socket: &OwnedFd,
    buffer: &mut [u8],
) -> io::Result<Option<usize>> {
    loop {
        match tls.reader().read(buffer) {
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            read => return read.map(Some),
        }
        let was_shaking = tls.is_handshaking();
        // Behind the end of the connection the reader says how it ended.
        tls.read_tls(&mut Wire(socket))?;
        tls.process_new_packets().map_err(|e| io::Error::new(ErrorKind::InvalidData, e))?;
        match flush(tls, socket) {
            Err(e) if was_shaking && e.kind() != ErrorKind::WouldBlock => return Err(e),
            // What the server said is read before a failure to write is.
            _ => {}
        }
        if was_shaking && !tls.is_handshaking() {
            return Ok(None);
        }
    }
}

fn fault(error: Errno) -> Fault {
    fault_of(&error.into())
}

fn fault_of(error: &io::Error) -> Fault {
    match error.kind() {
        ErrorKind::ConnectionRefused => Fault::Reset,
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof => Fault::Lost,
        ErrorKind::TimedOut => Fault::Timeout,
        ErrorKind::InvalidData => Fault::Protocol(format!("TLS: {error}")),
        _ => Fault::System(error.to_string()),
    }
}
