//! One bare TCP connection over the loopback: the most that a sender and a receiver in this process can pass on.

use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

/// The time for which octets are sent.
const TIME: Duration = Duration::from_millis(700);
/// The size of a write and of a read.
const BUFFER_BYTES: usize = 64 * 1024;

/// Sends for a while, and returns megabytes a second at the receiver.
///
/// # Errors
/// The loopback cannot be used.
pub(crate) fn measure() -> Result<f64, String> {
    measure_for(TIME).map_err(|e| format!("measure a bare TCP connection: {e}"))
}

fn measure_for(time: Duration) -> std::io::Result<f64> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut sender = TcpStream::connect(listener.local_addr()?)?;
    let (receiver, _) = listener.accept()?;
    let receiving = thread::spawn(move || receive(receiver));
    let (buffer, begun) = (vec![b'x'; BUFFER_BYTES], Instant::now());
    while begun.elapsed() < time {
        sender.write_all(&buffer)?;
    }
    drop(sender);
    let bytes = receiving.join().unwrap_or_else(|_| Err(std::io::Error::other("the receiver panicked")))?;
    Ok(bytes as f64 / 1e6 / begun.elapsed().as_secs_f64())
}

/// Reads to the end; returns the number of octets.
fn receive(mut receiver: TcpStream) -> std::io::Result<u64> {
    let (mut buffer, mut bytes) = (vec![0; BUFFER_BYTES], 0);
    loop {
        match receiver.read(&mut buffer)? {
            0 => return Ok(bytes),
            length => bytes += length as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_measured_within_its_time() {
        let begun = Instant::now();
        let rate = measure_for(Duration::from_millis(50)).unwrap();
        assert!(begun.elapsed() >= Duration::from_millis(50));
        // More than a slow disk, and less than the memory of any machine.
        assert!((10.0..1e6).contains(&rate), "{rate} MB/s");
    }
}
