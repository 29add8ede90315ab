//! A next hop that keeps the messages it receives, and rejects those that the test selects.

use std::{
    io::{self, BufRead as _, BufReader, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::JoinHandle,
};

/// A message that a sink has taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    pub from: String,
    pub to: Vec<String>,
    /// Without stuffed dots.
    pub content: Vec<u8>,
}

/// The reply of the sink to a command with its argument; `None`: the sink says yes.
pub type Script = dyn Fn(&str) -> Option<String> + Send + Sync;

#[derive(Default)]
struct Kept {
    messages: Mutex<Vec<Received>>,
    connections: AtomicUsize,
    transactions: AtomicUsize,
    closing: AtomicBool,
}

/// Listens until it is dropped.
pub struct Sink {
    pub address: SocketAddr,
    kept: Arc<Kept>,
    thread: Option<JoinHandle<()>>,
}

impl Sink {
    pub fn start() -> Self {
        Self::with(|_| None)
    }

    /// One that answers some commands with what the script says.
    pub fn with(script: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        Self::listen(TcpListener::bind("127.0.0.1:0").unwrap(), script)
    }

    /// Listens at an address that `free_address` gave.
    pub fn at(address: SocketAddr, script: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        Self::listen(super::ports::listen(address), script)
    }

    pub fn listen(
        listener: TcpListener,
        script: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        let address = listener.local_addr().unwrap();
        let (kept, script): (Arc<Kept>, Arc<Script>) = (Arc::default(), Arc::new(script));
        let keeping = kept.clone();
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if keeping.closing.load(Ordering::Relaxed) {
                    return;
                }
                keeping.connections.fetch_add(1, Ordering::Relaxed);
                let (keeping, script) = (keeping.clone(), script.clone());
                std::thread::spawn(move || serve(&stream, &keeping, &*script));
            }
        });
        Self { address, kept, thread: Some(thread) }
    }

    pub fn messages(&self) -> Vec<Received> {
        self.kept.messages.lock().unwrap().clone()
    }

    /// Returns the messages, and forgets them.
    pub fn take(&self) -> Vec<Received> {
        std::mem::take(&mut *self.kept.messages.lock().unwrap())
    }

    pub fn count(&self) -> usize {
        self.kept.messages.lock().unwrap().len()
    }

    pub fn connection_count(&self) -> usize {
        self.kept.connections.load(Ordering::Relaxed)
    }

    pub fn transaction_count(&self) -> usize {
        self.kept.transactions.load(Ordering::Relaxed)
    }

    /// Returns a route by which all mail goes to this sink.
    pub fn route(&self) -> String {
        format!("[[route]]\ndomains = [\"*\"]\nsmarthost = \"{}\"\ntls = \"off\"\n", self.address)
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.kept.closing.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(stream: &TcpStream, kept: &Kept, script: &Script) {
    // Else each reply waits until the one before it is acknowledged, which takes 40 ms.
    let _ = stream.set_nodelay(true);
    // A peer that was killed is no news here.
    let _ = talk(stream, kept, script);
    let _ = stream.shutdown(Shutdown::Both);
}

fn talk(stream: &TcpStream, kept: &Kept, script: &Script) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut out = stream;
    let say = |mut out: &TcpStream, text: &str| out.write_all(format!("{text}\r\n").as_bytes());
    match script("CONNECT").as_deref() {
        Some("CLOSE") => return Ok(()),
        Some(greeting) => say(out, greeting)?,
        None => say(out, "220 sink.test ESMTP")?,
    }
    let mut message = Received { from: String::new(), to: Vec::new(), content: Vec::new() };
    let (mut line, mut is_lmtp) = (String::new(), false);
    loop {
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let command = line.trim_end();
        let verb = command.get(..4).unwrap_or_default().to_ascii_uppercase();
        if let Some(reply) = script(command) {
            if reply == "CLOSE" {
                return Ok(());
            }
            say(out, &reply)?;
            continue;
        }
        let address = || command.split(['<', '>']).nth(1).unwrap_or_default().to_owned();
        is_lmtp |= verb == "LHLO";
        match verb.as_str() {
            "EHLO" | "LHLO" => out.write_all(
                b"250-sink.test\r\n250-PIPELINING\r\n250-8BITMIME\r\n250-SMTPUTF8\r\n250 SIZE 0\r\n",
            )?,
            "MAIL" => {
                message = Received { from: address(), to: Vec::new(), content: Vec::new() };
                kept.transactions.fetch_add(1, Ordering::Relaxed);
                say(out, "250 2.1.0 Ok")?;
            }
            "RCPT" => {
                message.to.push(address());
                say(out, "250 2.1.5 Ok")?;
            }
            "DATA" if message.to.is_empty() => say(out, "554 5.5.1 No valid recipients")?,
            "DATA" => {
                say(out, "354 Go ahead")?;
                message.content = content(&mut reader)?;
                match script(".") {
                    Some(reply) if reply == "CLOSE" => return Ok(()),
                    Some(reply) => say(out, &reply)?,
                    None => {
                        kept.messages.lock().unwrap().push(message.clone());
                        // LMTP has a reply for each recipient (RFC 2033 §4.2).
                        let count = if is_lmtp { message.to.len() } else { 1 };
                        (0..count).try_for_each(|_| say(out, "250 2.0.0 Ok: taken"))?;
                    }
                }
            }
            "QUIT" => return say(out, "221 2.0.0 Bye"),
            _ => say(out, "250 2.0.0 Ok")?,
        }
    }
}

/// Up to the line with the dot.
fn content(reader: &mut impl io::BufRead) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    loop {
        let begin = content.len();
        reader.by_ref().read_until(b'\n', &mut content)?;
        match &content[begin..] {
            b".\r\n" => {
                content.truncate(begin);
                return Ok(content);
            }
            [] => return Err(io::ErrorKind::UnexpectedEof.into()),
            [b'.', ..] => drop(content.remove(begin)),
            _ => {}
        }
    }
}
