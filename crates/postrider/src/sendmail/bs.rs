//! `sendmail -bs`: SMTP on standard input and output, carried to the daemon's first listener that
//! does not begin with TLS.

use crate::{cli::CliError, sysexits::Exit};
use config::{ListenTls, Settings};
use std::{
    io::{self, Read, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpStream},
    thread,
};

/// Carries bytes both ways until the daemon ends the session.
pub(super) fn run(settings: &Settings) -> Result<Exit, CliError> {
    let Some(address) = listener(settings) else {
        return unavailable("no listener without implicit TLS is configured");
    };
    let stream = match TcpStream::connect(address) {
        Ok(stream) => stream,
        Err(error) => return unavailable(&format!("connect to {address}: {error}")),
    };
    let up = stream.try_clone()?;
    // Left alone at the end: it may wait for input that never comes.
    thread::spawn(move || {
        let _ = carry(&mut io::stdin().lock(), &mut &up);
        let _ = up.shutdown(Shutdown::Write);
    });
    carry(&mut &stream, &mut io::stdout().lock())?;
    Ok(Exit::Ok)
}

/// The client speaks SMTP, so it is told in SMTP too (RFC 5321 §3.8).
fn unavailable(why: &str) -> Result<Exit, CliError> {
    print_flushed(b"421 4.3.0 Service not available\r\n")?;
    Err(CliError::new(Exit::Unavailable, why))
}

fn print_flushed(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()
}

/// Everything that comes is passed on at once: a reply must not wait in a buffer.
fn carry(from: &mut dyn Read, to: &mut dyn Write) -> io::Result<()> {
    let mut buffer = [0; 16 * 1024];
    loop {
        let count = match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        to.write_all(&buffer[..count])?;
        to.flush()?;
    }
}

fn listener(settings: &Settings) -> Option<SocketAddr> {
    let listen = settings.listen.iter().find(|l| l.tls != ListenTls::Implicit && l.address.port() != 0)?;
    let mut address = listen.address;
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    Some(address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::Listen;

    #[test]
    fn the_first_plain_listener_is_taken_and_wildcards_mean_loopback() {
        let mut settings = config::load(None).unwrap();
        let listen = |address: &str, tls| Listen { address: address.parse().unwrap(), tls };
        settings.listen = vec![
            listen("0.0.0.0:465", ListenTls::Implicit),
            listen("0.0.0.0:0", ListenTls::Off),
            listen("[::]:25", ListenTls::Starttls),
        ];
        assert_eq!(self::listener(&settings), Some("[::1]:25".parse().unwrap()));
        settings.listen.truncate(2);
        assert_eq!(self::listener(&settings), None);
    }
}
