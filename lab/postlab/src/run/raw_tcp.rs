//! One bare TCP connection over the loopback: the most that a sender and a receiver in this process can pass on.

use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

/// For how long octets are sent.
const TIME: Duration = Duration::from_millis(700);
/// Octets of one write and of one read.
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
    // Also where the time is over before the first: of nothing there is no rate.
    loop {
        sender.write_all(&buffer)?;
        if begun.elapsed() >= time {
            break;
        }
    }
    drop(sender);
    let bytes = receiving.join().unwrap_or_else(|_| Err(std::io::Error::other("the receiver panicked")))?;
    Ok(rate(bytes, begun.elapsed()))
}

/// Megabytes a second.
fn rate(bytes: u64, time: Duration) -> f64 {
    bytes as f64 / 1e6 / time.as_secs_f64()
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
        // At least one buffer arrived meanwhile, and less than the memory of any machine carries.
        let least = BUFFER_BYTES as f64 / 1e6 / begun.elapsed().as_secs_f64();
        assert!((least..1e6).contains(&rate), "{rate} MB/s");
    }

    #[test]
    fn a_rate_is_in_millions_of_octets_a_second() {
        assert_eq!(rate(35_000_000, Duration::from_millis(700)), 50.0);
    }
}
