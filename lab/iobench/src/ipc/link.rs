//! One side's end of a transport, and the octets that it sends and expects.

use super::Transport;
use std::{
    fs::File,
    io::{self, Read, Write},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

/// Octets of the two sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Trip {
    pub(super) buffer: usize,
    pub(super) client: usize,
    pub(super) server: usize,
}

/// Content of the two sides' buffers.
pub(super) struct Content {
    pub(super) client: Vec<u8>,
    pub(super) server: Vec<u8>,
}

impl Content {
    /// Two patterns in which no shift and no exchange of octets passes unseen. An eventfd adds numbers: it gets ones.
    pub(super) fn new(transport: Transport, trip: Trip) -> Self {
        let pattern = |seed| -> Vec<u8> {
            if transport == Transport::Eventfd {
                return 1_u64.to_ne_bytes().to_vec();
            }
            let mut random = fastrand::Rng::with_seed(seed);
            (0..trip.buffer).map(|_| random.u8(..)).collect()
        };
        Self { client: pattern(1), server: pattern(2) }
    }
}

/// What a transport offers to both sides: octets in both directions.
pub(super) struct Link(Box<dyn ReadWrite>);

trait ReadWrite: Read + Write + Send {}

impl<T: Read + Write + Send> ReadWrite for T {}

impl Link {
    /// Makes a link of one object for both directions.
    pub(super) fn new(connection: impl Read + Write + Send + 'static) -> Self {
        Self(Box::new(connection))
    }

    /// Makes a link of an object for each direction.
    pub(super) fn of(from: impl Read + Send + 'static, to: impl Write + Send + 'static) -> Self {
        Self::new(Pair { from, to })
    }

    /// Sends `size` octets: the buffer as often as needed.
    pub(super) fn send(&mut self, buffer: &[u8], mut size: usize) -> io::Result<()> {
        while size > 0 {
            let part = size.min(buffer.len());
            self.0.write_all(&buffer[..part])?;
            size -= part;
        }
        Ok(())
    }

    /// Receives `size` octets into the buffer; its beginning then has the last part.
    pub(super) fn receive(&mut self, buffer: &mut [u8], mut size: usize) -> io::Result<()> {
        while size > 0 {
            let part = size.min(buffer.len());
            self.0.read_exact(&mut buffer[..part])?;
            size -= part;
        }
        Ok(())
    }

    /// Receives `size` octets that the other side sent from a buffer with the content `expected`.
    ///
    /// # Errors
    /// The connection fails, or an octet is not what was sent.
    pub(super) fn receive_checked(
        &mut self,
        buffer: &mut [u8],
        expected: &[u8],
        mut size: usize,
    ) -> io::Result<()> {
        while size > 0 {
            let part = size.min(buffer.len());
            self.0.read_exact(&mut buffer[..part])?;
            compare(&buffer[..part], expected)?;
            size -= part;
        }
        Ok(())
    }

    /// Sends what was kept for later.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Compares the last part of `size` octets, which [`Link::receive`] left in the buffer.
pub(super) fn check_last(buffer: &[u8], expected: &[u8], size: usize) -> io::Result<()> {
    let last = (size - 1) % buffer.len() + 1;
    compare(&buffer[..last], expected)
}

fn compare(received: &[u8], expected: &[u8]) -> io::Result<()> {
    match received.iter().zip(expected).position(|(a, b)| a != b) {
        None => Ok(()),
        Some(i) => {
            let (octet, sent) = (received[i], expected[i]);
            let why =
                format!("octet {i} of {} arrived as {octet:#04x}, sent was {sent:#04x}", received.len());
            Err(io::Error::new(io::ErrorKind::InvalidData, why))
        }
    }
}

struct Pair<R, W> {
    from: R,
    to: W,
}

impl<R: Read, W> Read for Pair<R, W> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.from.read(buffer)
    }
}

impl<R, W: Write> Write for Pair<R, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.to.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// Value that a watcher adds to an eventfd when the other process has ended. An eventfd has no end of file.
const END: u64 = 1 << 32;

/// Reads numbers from an eventfd; one of them is the end.
pub(super) struct EventReader {
    file: File,
    has_ended: Arc<AtomicBool>,
    /// Nothing follows what was read.
    is_at_end: bool,
}

impl EventReader {
    pub(super) fn new(file: File) -> Self {
        Self { file, has_ended: Arc::default(), is_at_end: false }
    }

    /// Returns what to call when the other process has ended.
    pub(super) fn closer(&self) -> io::Result<impl FnOnce() + Send + 'static> {
        let (mut file, has_ended) = (self.file.try_clone()?, self.has_ended.clone());
        Ok(move || {
            has_ended.store(true, SeqCst);
            // It waits only if the number is near 2^64, which two small numbers are not.
            let _ = file.write_all(&END.to_ne_bytes());
        })
    }
}

impl Read for EventReader {
    /// Returns 0 when the other process has ended and wrote nothing before.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.is_at_end {
            return Ok(0);
        }
        let length = self.file.read(buffer)?;
        if !self.has_ended.load(SeqCst) {
            return Ok(length);
        }
        let Ok(octets) = <[u8; 8]>::try_from(&buffer[..length]) else { return Ok(length) };
        let number = u64::from_ne_bytes(octets);
        if number < END {
            return Ok(length);
        }
        self.is_at_end = true;
        buffer[..8].copy_from_slice(&(number - END).to_ne_bytes());
        Ok(if number == END { 0 } else { length })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};

    #[test]
    fn an_octet_in_the_wrong_place_is_found() {
        let content = Content::new(Transport::Local, Trip { buffer: 100, client: 250, server: 250 });
        let mut sent: Vec<u8> = content.client.iter().cycle().take(250).copied().collect();
        let mut buffer = [0; 100];
        let mut check = |octets: &[u8]| {
            let mut link = Link::of(io::Cursor::new(octets.to_vec()), io::sink());
            link.receive_checked(&mut buffer, &content.client, 250)
        };
        check(&sent).unwrap();
        sent.swap(120, 121);
        let e = check(&sent).unwrap_err().to_string();
        assert!(e.starts_with("octet 20 of 100 arrived as"), "{e}");
        sent.swap(120, 121);
        sent.remove(0);
        sent.push(0);
        assert!(check(&sent).is_err());
    }

    #[test]
    fn the_last_part_is_compared() {
        check_last(b"abcd", b"abcd", 8).unwrap();
        check_last(b"abXX", b"abcd", 6).unwrap();
        assert!(check_last(b"abXd", b"abcd", 7).is_err());
    }

    #[test]
    fn an_eventfd_delivers_what_was_written_before_the_end() {
        let file = File::from(eventfd(0, EventfdFlags::CLOEXEC).unwrap());
        let mut writer = file.try_clone().unwrap();
        let mut reader = EventReader::new(file);
        let close = reader.closer().unwrap();
        writer.write_all(&1_u64.to_ne_bytes()).unwrap();
        close();
        let mut buffer = [0; 8];
        assert_eq!(reader.read(&mut buffer).unwrap(), 8);
        assert_eq!(u64::from_ne_bytes(buffer), 1);
        assert_eq!(reader.read(&mut buffer).unwrap(), 0);
    }

    #[test]
    fn an_eventfd_has_an_end_without_a_number_before() {
        let mut reader = EventReader::new(File::from(eventfd(0, EventfdFlags::CLOEXEC).unwrap()));
        let close = reader.closer().unwrap();
        close();
        assert_eq!(reader.read(&mut [0; 8]).unwrap(), 0);
        assert_eq!(reader.read(&mut [0; 8]).unwrap(), 0);
    }
}
