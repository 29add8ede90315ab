//! A client that sends one envelope, and keeps the reply that decided about each recipient.

use super::envelopes::Envelope;
use rustix::net::{self, AddressFamily, SocketType};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    sync::Arc,
};

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

struct Session {
    stream: Box<dyn Stream>,
    /// Of the last reply, without their ends.
    lines: Vec<String>,
}

impl Session {
    fn line(&mut self) -> io::Result<String> {
        let (mut line, mut byte) = (Vec::new(), [0]);
        while byte[0] != b'\n' {
            self.stream.read_exact(&mut byte)?;
            line.push(byte[0]);
        }
        Ok(String::from_utf8_lossy(&line).trim_end().to_owned())
    }

    /// Returns the code and the enhanced code of a reply; `closed` where there is none.
    fn reply(&mut self) -> String {
        self.lines.clear();
        loop {
            let Ok(line) = self.line() else { return "closed".to_owned() };
            self.lines.push(line.clone());
            if line.as_bytes().get(3) == Some(&b'-') {
                continue;
            }
            let mut words = line.split(' ');
            let code = words.next().unwrap_or_default().to_owned();
            let is_enhanced =
                |word: &&str| word.len() > 4 && word.bytes().all(|b| b == b'.' || b.is_ascii_digit());
            return match words.next().filter(is_enhanced) {
                Some(enhanced) => format!("{code} {enhanced}"),
                None => code,
            };
        }
    }

    fn say(&mut self, line: &str) -> String {
        if self.stream.write_all(format!("{line}\r\n").as_bytes()).and_then(|()| self.stream.flush()).is_err()
        {
            return "closed".to_owned();
        }
        self.reply()
    }
}

/// Connects from an address of a client, which needs a route to this machine.
pub fn connect_from(client: &str, address: SocketAddr) -> TcpStream {
    let socket = net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    net::bind(&socket, &SocketAddr::new(client.parse().unwrap(), 0)).unwrap();
    net::connect(&socket, &address).unwrap();
    TcpStream::from(socket)
}

/// Sends an envelope; another client than this machine is introduced by XCLIENT.
pub fn send(address: SocketAddr, tls: bool, ca: &str, envelope: &Envelope, subject: &str) -> Vec<String> {
    let stream = TcpStream::connect(address).unwrap();
    send_over(stream, tls.then_some(ca), envelope, envelope.client, subject)
}

/// Sends the message from the address that the envelope's client has; returns the replies.
pub fn send_from(address: SocketAddr, envelope: &Envelope, subject: &str) -> Vec<String> {
    let stream = connect_from(envelope.client.map_or("127.0.0.1", |(_, client)| client), address);
    send_over(stream, None, envelope, None, subject)
}

/// Returns the reply to each recipient that decided: the first that is no success, or that to the content.
fn send_over(
    stream: TcpStream,
    ca: Option<&str>,
    envelope: &Envelope,
    xclient: Option<(&str, &str)>,
    subject: &str,
) -> Vec<String> {
    stream.set_read_timeout(Some(super::WAIT_TIMEOUT)).unwrap();
    stream.set_nodelay(true).unwrap();
    let plain = stream.try_clone().unwrap();
    let mut session = Session { stream: Box::new(stream), lines: Vec::new() };
    let all = |reply: String| envelope.to.iter().map(|_| reply.clone()).collect::<Vec<_>>();
    let mut reply = session.reply();
    if let Some((name, client)) = xclient.filter(|_| reply.starts_with('2')) {
        session.say("EHLO proxy.test");
        // Postfix keeps the name of the address and its verification apart.
        let has_reverse = session.lines.iter().any(|line| line.contains("REVERSE_NAME"));
        let reverse = if has_reverse { format!(" REVERSE_NAME={name}") } else { String::new() };
        reply = session.say(&format!("XCLIENT NAME={name} ADDR={client}{reverse}"));
    }
    if !reply.starts_with('2') {
        return all(reply);
    }
    session.say(&format!("EHLO {}", envelope.hello));
    if let Some(ca) = ca.filter(|_| envelope.tls) {
        assert_eq!(session.say("STARTTLS"), "220 2.0.0");
        session = encrypted(plain, ca);
        session.say(&format!("EHLO {}", envelope.hello));
    }
    if let Some(login) = envelope.login {
        let reply = session.say(&format!("AUTH PLAIN {login}"));
        if !reply.starts_with('2') {
            return all(reply);
        }
    }
    let parameters =
        if envelope.parameters.is_empty() { String::new() } else { format!(" {}", envelope.parameters) };
    let reply = session.say(&format!("MAIL FROM:<{}>{parameters}", envelope.from));
    if !reply.starts_with('2') {
        return all(reply);
    }
    let mut replies: Vec<_> = envelope.to.iter().map(|to| session.say(&format!("RCPT TO:<{to}>"))).collect();
    if replies.iter().any(|reply| reply.starts_with('2')) {
        let mut end = session.say("DATA");
        if end.starts_with('3') {
            end = session.say(&format!("From: a@b.example\r\nSubject: {subject}\r\n\r\nbody\r\n."));
        }
        // The words of success are those of the content.
        let end = if end.starts_with('2') { "250".to_owned() } else { end };
        replies.iter_mut().filter(|reply| reply.starts_with('2')).for_each(|reply| reply.clone_from(&end));
    }
    session.say("QUIT");
    replies
}

fn encrypted(stream: TcpStream, ca: &str) -> Session {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(ca).unwrap()).unwrap();
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let name = ServerName::try_from("mx.test").unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    Session { stream: Box::new(StreamOwned::new(connection, stream)), lines: Vec::new() }
}
