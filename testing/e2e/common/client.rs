//! A client that says exactly what the test wants said.

use std::{
    io::{self, BufRead as _, BufReader, Write as _},
    net::{SocketAddr, TcpStream},
};

pub struct Client {
    reader: BufReader<TcpStream>,
    stream: TcpStream,
}

impl Client {
    /// Connected, greeted, EHLO said.
    pub fn connect(address: SocketAddr) -> io::Result<Self> {
        Self::begin(address)?.greeted()
    }

    /// The same from another address of this machine.
    pub fn connect_from(client: &str, address: SocketAddr) -> io::Result<Self> {
        Self::begin_from(client, address)?.greeted()
    }

    fn greeted(mut self) -> io::Result<Self> {
        self.reply()?;
        self.say("EHLO client.test")?;
        Ok(self)
    }

    /// Connected; the greeting is not read yet.
    pub fn begin(address: SocketAddr) -> io::Result<Self> {
        Self::over(TcpStream::connect(address)?)
    }

    /// The same from another address of this machine.
    pub fn begin_from(client: &str, address: SocketAddr) -> io::Result<Self> {
        Self::over(super::session::connect_from(client, address))
    }

    fn over(stream: TcpStream) -> io::Result<Self> {
        stream.set_read_timeout(Some(super::WAIT_TIMEOUT))?;
        stream.set_nodelay(true)?;
        Ok(Self { reader: BufReader::new(stream.try_clone()?), stream })
    }

    /// The connection, when everything that was said is read.
    pub fn into_stream(self) -> TcpStream {
        assert!(self.reader.buffer().is_empty());
        self.stream
    }

    /// A whole reply: its code, and its last line.
    pub fn reply(&mut self) -> io::Result<(u16, String)> {
        let lines = self.lines()?;
        let last = lines.last().expect("a reply has a line");
        let code = last.get(..3).and_then(|code| code.parse().ok()).unwrap_or(0);
        Ok((code, last.clone()))
    }

    /// Reads a whole reply, and returns its lines.
    pub fn lines(&mut self) -> io::Result<Vec<String>> {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if self.reader.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            lines.push(line.trim_end().to_owned());
            if line.as_bytes().get(3) != Some(&b'-') {
                return Ok(lines);
            }
        }
    }

    pub fn say(&mut self, line: &str) -> io::Result<(u16, String)> {
        self.stream.write_all(format!("{line}\r\n").as_bytes())?;
        self.reply()
    }

    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// One transaction by DATA; content in wire form without dots stuffed. The reply to its end.
    pub fn send(&mut self, from: &str, to: &[&str], content: &[u8]) -> io::Result<(u16, String)> {
        self.envelope(from, to, "")?;
        self.say("DATA")?;
        let mut wire = Vec::with_capacity(content.len() + 5);
        for line in content.split_inclusive(|b| *b == b'\n') {
            if line[0] == b'.' {
                wire.push(b'.');
            }
            wire.extend_from_slice(line);
        }
        wire.extend_from_slice(b".\r\n");
        self.stream.write_all(&wire)?;
        self.reply()
    }

    /// Sends a message by BDAT, in chunks of this size.
    pub fn send_chunks(
        &mut self,
        from: &str,
        to: &[&str],
        content: &[u8],
        size: usize,
    ) -> io::Result<(u16, String)> {
        self.envelope(from, to, " BODY=8BITMIME")?;
        let mut chunks = content.chunks(size).peekable();
        while let Some(chunk) = chunks.next() {
            let last = if chunks.peek().is_none() { " LAST" } else { "" };
            self.stream.write_all(format!("BDAT {}{last}\r\n", chunk.len()).as_bytes())?;
            self.stream.write_all(chunk)?;
            let reply = self.reply()?;
            if !last.is_empty() || reply.0 != 250 {
                return Ok(reply);
            }
        }
        self.say("BDAT 0 LAST")
    }

    fn envelope(&mut self, from: &str, to: &[&str], parameters: &str) -> io::Result<()> {
        let mail = self.say(&format!("MAIL FROM:<{from}>{parameters}"))?;
        assert_eq!(mail.0, 250, "{}", mail.1);
        let commands: String = to.iter().map(|to| format!("RCPT TO:<{to}>\r\n")).collect();
        self.stream.write_all(commands.as_bytes())?;
        for _ in to {
            let reply = self.reply()?;
            assert_eq!(reply.0, 250, "{}", reply.1);
        }
        Ok(())
    }
}

/// The whole reply to EHLO, in a session of its own.
pub fn hello(address: SocketAddr) -> String {
    let mut client = Client::connect(address).unwrap();
    client.write(b"EHLO x\r\n").unwrap();
    client.lines().unwrap().join("\n")
}
