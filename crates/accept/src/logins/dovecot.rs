//! Logins by Dovecot's auth socket: Dovecot runs the exchange, and says who the client is.

use auth::{
    Failure, Step,
    dovecot::{self, ClientFacts, DovecotAnswer, Greeting},
};
use std::{
    io::{self, BufRead as _, Read as _, Write as _},
    os::unix::net::UnixStream as BlockingStream,
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Take},
    net::UnixStream,
};

/// The number of the only exchange of a connection.
const ID: u32 = 1;
/// Octets that Dovecot may send in one exchange.
const MOST_BYTES: u64 = 256 * 1024;
/// Time for the names of mechanisms, for which a start or a reload waits.
const GREETING_TIMEOUT: Duration = Duration::from_millis(500);

/// Dovecot's auth socket.
pub struct DovecotAuth {
    path: PathBuf,
    /// As Dovecot answered last; PLAIN and LOGIN if it never has.
    mechanisms: Vec<Box<str>>,
    /// The names are those that Dovecot has said now.
    has_answered: bool,
}

/// An exchange under way; closing it ends the exchange.
pub struct DovecotExchange {
    stream: BufReader<Take<UnixStream>>,
    /// The request that begins the exchange was sent.
    has_begun: bool,
    client: ClientFacts,
    mechanism: Box<str>,
}

impl DovecotAuth {
    /// Returns a client of the socket with this path; nothing is opened yet.
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), mechanisms: vec!["PLAIN".into(), "LOGIN".into()], has_answered: false }
    }

    /// Asks for the names of mechanisms. Without an answer they are those of `former`, or PLAIN and LOGIN: Dovecot may
    /// start later than this server, or start again.
    pub fn open(path: &Path, former: Option<&Self>) -> Self {
        let mut opened = Self::new(path);
        match opened.ask_mechanisms() {
            Ok(mechanisms) => (opened.mechanisms, opened.has_answered) = (mechanisms, true),
            Err(e) => {
                if let Some(former) = former.filter(|former| former.path == path) {
                    opened.mechanisms.clone_from(&former.mechanisms);
                }
                let names = opened.mechanisms.join(", ");
                tracing::warn!("{names} are offered until Dovecot answers: {e}");
            }
        }
        opened
    }

    /// Returns the names of mechanisms that are offered.
    pub fn mechanisms(&self) -> &[Box<str>] {
        &self.mechanisms
    }

    /// Returns the socket if Dovecot has not answered there yet.
    pub fn silent_socket(&self) -> Option<&Path> {
        (!self.has_answered).then_some(&*self.path)
    }

    /// Asks for the names of mechanisms.
    ///
    /// # Errors
    /// Dovecot cannot be reached or does not answer; the text names the socket.
    pub fn ask_mechanisms(&self) -> Result<Vec<Box<str>>, String> {
        self.blocking_greeting()
            .map(|(_, greeting)| greeting.mechanisms)
            .map_err(|e| format!("ask Dovecot at {}: {e}", self.path.display()))
    }

    fn blocking_greeting(&self) -> io::Result<(io::BufReader<io::Take<BlockingStream>>, Greeting)> {
        let mut stream = BlockingStream::connect(&self.path)?;
        stream.set_read_timeout(Some(GREETING_TIMEOUT))?;
        stream.write_all(dovecot::hello(std::process::id()).as_bytes())?;
        let mut reader = io::BufReader::new(stream.take(MOST_BYTES));
        let mut greeting = Greeting::default();
        while !greeting.is_complete {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 || greeting.is_foreign {
                return Err(not_dovecot());
            }
            greeting.line(line.trim_end_matches('\n'));
        }
        Ok((reader, greeting))
    }

    /// Tries a name and a password, as `postrider auth test` does. The user, if they are right.
    ///
    /// # Errors
    /// Dovecot cannot be reached or does not answer; the text names the socket.
    pub fn test(&self, user: &str, password: &str) -> Result<Option<Box<str>>, String> {
        let asked = || {
            let (mut reader, _) = self.blocking_greeting()?;
            let stream = reader.get_mut().get_mut();
            stream.set_read_timeout(Some(Duration::from_secs(30)))?;
            let nowhere = "127.0.0.1:0".parse().map_err(io::Error::other)?;
            let client = ClientFacts { peer: nowhere, local: nowhere, is_secured: true };
            let initial = format!("\0{user}\0{password}");
            let request = dovecot::request(ID, "PLAIN", &client, Some(initial.as_bytes()));
            stream.write_all(request.as_bytes())?;
            loop {
                let mut line = String::new();
                if reader.read_line(&mut line)? == 0 {
                    return Err(not_dovecot());
                }
                match dovecot::answer(ID, line.trim_end_matches('\n')) {
                    Some(DovecotAnswer::Ok(user)) => return Ok(Some(user)),
                    Some(DovecotAnswer::Fail { is_temporary: false, .. }) => return Ok(None),
                    Some(_) => return Err(io::Error::other("it cannot tell now")),
                    None => {}
                }
            }
        };
        asked().map_err(|e: io::Error| format!("ask Dovecot at {}: {e}", self.path.display()))
    }

    /// Opens a connection and reads Dovecot's greeting.
    async fn connect(&self) -> io::Result<BufReader<Take<UnixStream>>> {
        let mut stream = UnixStream::connect(&self.path).await?;
        stream.write_all(dovecot::hello(std::process::id()).as_bytes()).await?;
        let mut reader = BufReader::new(stream.take(MOST_BYTES));
        let mut greeting = Greeting::default();
        while !greeting.is_complete {
            let line = line(&mut reader).await?;
            greeting.line(&line);
            if greeting.is_foreign {
                return Err(not_dovecot());
            }
        }
        Ok(reader)
    }

    /// Begins an exchange; its first step is [`DovecotExchange::step`] with the initial response.
    ///
    /// # Errors
    /// Dovecot cannot be asked; it was logged.
    pub async fn begin(&self, mechanism: &str, client: ClientFacts) -> Result<DovecotExchange, Failure> {
        match self.connect().await {
            Ok(stream) => {
                Ok(DovecotExchange { stream, has_begun: false, client, mechanism: mechanism.into() })
            }
            Err(e) => {
                tracing::error!("nobody can log in: ask Dovecot at {}: {e}", self.path.display());
                Err(Failure::Unavailable)
            }
        }
    }
}

impl DovecotExchange {
    /// Passes on what the client sent: the initial response, if there is one, or a response to a challenge. Returns the next step, and the
    /// user's name, if Dovecot knows it.
    pub async fn step(&mut self, message: Option<&[u8]>) -> (Step, Option<Box<str>>) {
        match self.ask(message).await {
            Ok(DovecotAnswer::Challenge(challenge)) => (Step::Challenge(challenge), None),
            Ok(DovecotAnswer::Ok(user)) => (Step::Authenticated(user.clone()), Some(user)),
            Ok(DovecotAnswer::Fail { user, is_temporary: true }) => {
                (Step::Failed(Failure::Unavailable), user)
            }
            Ok(DovecotAnswer::Fail { user, is_temporary: false }) => (Step::Failed(Failure::Wrong), user),
            Err(e) => {
                tracing::error!("a login failed: talk to Dovecot: {e}");
                (Step::Failed(Failure::Unavailable), None)
            }
        }
    }

    async fn ask(&mut self, message: Option<&[u8]>) -> io::Result<DovecotAnswer> {
        let request = if std::mem::replace(&mut self.has_begun, true) {
            dovecot::response(ID, message.unwrap_or_default())
        } else {
            dovecot::request(ID, &self.mechanism, &self.client, message)
        };
        self.stream.get_mut().get_mut().write_all(request.as_bytes()).await?;
        loop {
            let line = line(&mut self.stream).await?;
            if let Some(answer) = dovecot::answer(ID, &line) {
                return Ok(answer);
            }
        }
    }
}

async fn line(reader: &mut BufReader<Take<UnixStream>>) -> io::Result<String> {
    let mut line = String::new();
    match reader.read_line(&mut line).await? {
        0 => Err(not_dovecot()),
        _ => {
            line.truncate(line.trim_end_matches('\n').len());
            Ok(line)
        }
    }
}

fn not_dovecot() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "this is not Dovecot's auth socket, or it has closed")
}
