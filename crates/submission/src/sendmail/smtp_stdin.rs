//! `sendmail -bs`: SMTP on standard input and output, carried to the daemon's first listener that
//! does not begin with TLS.

mod dialog;

use config::{ListenAt, ListenTls, ListenerKind, Settings};
use control::{CommandError, Exit};
use dialog::{Dialog, End, Replies};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::{
    fs::File,
    io::{self, Read, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpStream},
    os::fd::AsFd as _,
};

/// Carries the dialog until the daemon ends it. The exit code tells whether something was refused.
pub(crate) fn run(settings: &Settings) -> Result<Exit, CommandError> {
    let Some(address) = listener(settings) else {
        return unavailable(
            "no listener takes mail without a login and without implicit TLS: programs can use `sendmail` without -bs",
        );
    };
    let stream = match TcpStream::connect(address) {
        Ok(stream) => stream,
        Err(error) => return unavailable(&format!("connect to {address}: {error}")),
    };
    // Not by way of std's buffer: poll does not know what is in it.
    let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    match carry(&stream, &input, &mut io::stdout().lock())? {
        End::Accepted => Ok(Exit::Ok),
        End::Deferred => Ok(Exit::TempFail),
        End::Refused => Ok(Exit::DataErr),
        End::NotServed => {
            // Each reply to a program comes from a session, and the drop directory has none.
            let why = format!(
                "the daemon at {address} takes no sessions now; `sendmail` without -bs takes mail also while listeners are \
                 drained"
            );
            Err(CommandError::new(Exit::TempFail, why))
        }
        End::Cut => {
            Err(CommandError::new(Exit::DataErr, "the input ended inside of a message, which was not sent"))
        }
        End::Unanswered => {
            let why = format!("the daemon at {address} closed the connection without a reply");
            Err(CommandError::new(Exit::TempFail, why))
        }
    }
}

/// The client speaks SMTP, so the error is an SMTP reply, too (RFC 5321 §3.8).
fn unavailable(why: &str) -> Result<Exit, CommandError> {
    let mut out = io::stdout().lock();
    out.write_all(b"421 4.3.0 Service not available\r\n")?;
    out.flush()?;
    Err(CommandError::new(Exit::Unavailable, why))
}

fn carry(mut stream: &TcpStream, mut input: &File, output: &mut dyn Write) -> io::Result<End> {
    let (mut dialog, mut replies, mut printer) = (Dialog::new(), Replies::default(), Printer(Some(output)));
    let (mut buffer, mut out) = (vec![0; 16 * 1024], Vec::new());
    let mut is_open = true;
    loop {
        dialog.send(&mut out);
        // A daemon that has closed may have said why: its replies are still read.
        is_open = is_open && stream.write_all(&out).is_ok();
        out.clear();
        if is_open && dialog.is_sent() {
            let _ = stream.shutdown(Shutdown::Write);
            is_open = false;
        }
        let may_read = is_open && dialog.wants_input();
        let (has_input, has_replies) = wait(input, may_read, stream)?;
        if has_replies {
            let count = match stream.read(&mut buffer) {
                Ok(0) | Err(_) => return Ok(dialog.end()),
                Ok(count) => count,
            };
            let mut rest = &buffer[..count];
            while !rest.is_empty() {
                if dialog.is_opaque() {
                    printer.print(std::mem::take(&mut rest));
                    break;
                }
                let (used, code) = replies.next(rest);
                if let Some(code) = code {
                    let is_early =
                        dialog.asks_for_early_input() && (dialog.has_unsent() || is_readable(input)?);
                    dialog.reply(code, is_early);
                }
                printer.print(&rest[..used]);
                rest = &rest[used..];
            }
        } else if has_input {
            match input.read(&mut buffer) {
                Ok(0) | Err(_) => dialog.input_ended(),
                Ok(count) => dialog.input(&buffer[..count]),
            }
        }
    }
}

/// Passes on what the daemon says, at once. A program that does not read it still has its mail sent.
struct Printer<'a>(Option<&'a mut dyn Write>);

impl Printer<'_> {
    fn print(&mut self, bytes: &[u8]) {
        if let Some(out) = &mut self.0
            && out.write_all(bytes).and_then(|()| out.flush()).is_err()
        {
            self.0 = None;
        }
    }
}

/// Waits until something can be read: from the input, where that may be read, or from the daemon.
fn wait(input: &File, may_read: bool, stream: &TcpStream) -> io::Result<(bool, bool)> {
    let mut both = [PollFd::new(stream, PollFlags::IN), PollFd::new(input, PollFlags::IN)];
    let count = if may_read { 2 } else { 1 };
    loop {
        match poll(&mut both[..count], None) {
            Ok(_) => break,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok((may_read && !both[1].revents().is_empty(), !both[0].revents().is_empty()))
}

fn is_readable(input: &File) -> io::Result<bool> {
    let mut one = [PollFd::new(input, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    Ok(poll(&mut one, Some(&now))? > 0)
}

fn listener(settings: &Settings) -> Option<SocketAddr> {
    let usable = |l: &config::Listen| {
        let takes_mail =
            l.tls != ListenTls::Implicit && !l.kind.needs_login() && l.kind != ListenerKind::Lmtp;
        let address = match &l.address {
            // The units of the package open port 25 for it.
            ListenAt::Systemd(_) => Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 25))),
            address => address.ip(),
        };
        address.filter(|address| takes_mail && address.port() != 0)
    };
    let mut address = settings.listen.iter().find_map(usable)?;
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
        let default = settings.listen[0].clone();
        let listen = |address: &str, tls| Listen {
            address: ListenAt::Ip(address.parse().unwrap()),
            tls,
            ..default.clone()
        };
        settings.listen = vec![
            Listen { kind: ListenerKind::Submission, ..listen("0.0.0.0:587", ListenTls::StartTls) },
            listen("0.0.0.0:465", ListenTls::Implicit),
            listen("0.0.0.0:0", ListenTls::Off),
            listen("[::]:25", ListenTls::StartTls),
        ];
        assert_eq!(self::listener(&settings), Some("[::1]:25".parse().unwrap()));
        let systemd = Listen { address: ListenAt::Systemd("smtp".into()), ..default.clone() };
        settings.listen[3] = systemd;
        assert_eq!(self::listener(&settings), Some("127.0.0.1:25".parse().unwrap()));
        settings.listen.truncate(3);
        assert_eq!(self::listener(&settings), None);
    }
}
