//! Conversations with mail filters over sockets: [`milter`] says what is written and what was read, and here it is written and read,
//! in time. Filters that speak HTTP are asked once about each message: [`rspamd`] and [`hook`] say what is asked, and what
//! an answer means.

pub mod hook;
mod question;
pub mod rspamd;
mod transaction;

use maps::{Connection, Server};
use milter::{Command, Edit, Event, Expect, Macro, Offer, ProtocolError, SendError, Session, Stage, Verdict};
pub use question::{ANSWER_MAX_BYTES, Pieces, ask_rspamd, ok, pieces, ping_rspamd};
use std::{fmt, io, time::Duration};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::{Instant, timeout, timeout_at},
};
pub use transaction::Transaction;

/// Output that waits for a command that is answered.
const OUTPUT_MAX_BYTES: usize = 256 * 1024;
/// Octets that are read at once.
const READ_BYTES: usize = 16 * 1024;

/// Why a filter is of no use now.
#[derive(Debug)]
pub enum Failure {
    /// It could not be reached, or its connection broke.
    Io(io::Error),
    /// It closed the connection while it owed an answer.
    Closed,
    /// It did not answer in time.
    TimedOut(Duration),
    /// The filter sent something that the milter protocol does not have there.
    Protocol(ProtocolError),
    /// What it should be told does not fit into the protocol.
    Send(SendError),
    /// The body that it put in the place of the message's is longer than this server takes, in octets.
    TooLarge(usize),
    /// It did not answer in the time that a message has.
    Late,
    /// A filter that is asked by HTTP gave no answer that means anything, in words.
    Http(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Closed => f.write_str("it closed the connection instead of an answer"),
            Self::TimedOut(time) => write!(f, "no answer in {time:?}"),
            Self::Protocol(error) => error.fmt(f),
            Self::Send(error) => error.fmt(f),
            Self::Late => f.write_str("no answer in `content_timeout`"),
            Self::Http(why) => f.write_str(why),
            Self::TooLarge(bytes) => {
                write!(f, "its new body is longer than {bytes} octets (limits.max_message_size)")
            }
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<ProtocolError> for Failure {
    fn from(error: ProtocolError) -> Self {
        Self::Protocol(error)
    }
}

impl From<SendError> for Failure {
    fn from(error: SendError) -> Self {
        Self::Send(error)
    }
}

/// What a filter wants of a message, when it was shown all of it.
#[derive(Debug)]
pub struct Judged {
    /// Whether the message is taken, and with which reply if not.
    pub verdict: Verdict,
    /// Changes, in their order, without those of the body. They hold if the verdict lets the message through.
    pub edits: Vec<Edit>,
    /// The body that takes the place of the message's.
    pub body: Option<Vec<u8>>,
}

/// A conversation with a filter, about the messages of one client. Dropped, it takes leave of the filter. After an error it is of no
/// use any more, and neither is it if a call is given up before it returns.
#[derive(Debug)]
pub struct Conversation {
    stream: Connection,
    session: Session,
    out: Vec<u8>,
    input: Vec<u8>,
    /// Octets of `input` that were taken.
    taken: usize,
}

impl Conversation {
    /// Connects to a filter, and agrees with it on the protocol.
    ///
    /// # Errors
    /// It cannot be reached in this time, or speaks another protocol.
    pub async fn open(server: &Server, limit: Duration) -> Result<Self, Failure> {
        let opened = async {
            let stream = server.connect().await?;
            let mut out = Vec::new();
            let session = Session::new(&Offer::default(), &mut out);
            let mut new = Self { stream, session, out, input: Vec::new(), taken: 0 };
            new.flush().await?;
            while new.event().await? != Event::Negotiated {}
            Ok(new)
        };
        timeout(limit, opened).await.unwrap_or(Err(Failure::TimedOut(limit)))
    }

    /// Returns whether the filter would be told of a stage now.
    pub fn wants(&self, stage: Stage) -> bool {
        self.session.wants(stage)
    }

    /// Octets of the body that one command can carry.
    pub fn chunk_max_bytes(&self) -> usize {
        self.session.chunk_max_bytes()
    }

    /// Tells the filter of a stage, and returns its verdict: at once if it gives none. `limit` begins anew when the filter says that it
    /// is at work, but nothing takes longer than `until`.
    ///
    /// # Errors
    /// The filter did not answer in time, closed the connection, or broke the protocol.
    pub async fn send(
        &mut self,
        command: &Command<'_>,
        macros: &[Macro<'_>],
        limit: Duration,
        until: Instant,
    ) -> Result<Verdict, Failure> {
        self.check_quiet()?;
        match self.session.send(command, macros, &mut self.out)? {
            Expect::Nothing if self.out.len() < OUTPUT_MAX_BYTES => Ok(Verdict::Continue),
            Expect::Nothing => {
                self.within(limit, until, Self::flush).await?;
                Ok(Verdict::Continue)
            }
            Expect::Answer => {
                self.within(limit, until, Self::flush).await?;
                loop {
                    match self.within(limit, until, Self::event).await? {
                        Event::Verdict(verdict) => return Ok(verdict),
                        Event::Negotiated | Event::Edit(_) | Event::Progress => {}
                    }
                }
            }
        }
    }

    /// Ends the message, and returns the verdict on it with all changes. A new body is of `body_max_bytes` at most.
    ///
    /// # Errors
    /// As for [`Conversation::send`]; and its new body is too long.
    pub async fn end_message(
        &mut self,
        macros: &[Macro<'_>],
        body_max_bytes: usize,
        limit: Duration,
        until: Instant,
    ) -> Result<Judged, Failure> {
        self.check_quiet()?;
        let (mut edits, mut body) = (Vec::new(), None);
        let expected = self.session.send(&Command::EndOfMessage, macros, &mut self.out)?;
        self.within(limit, until, Self::flush).await?;
        if expected == Expect::Nothing {
            return Ok(Judged { verdict: Verdict::Continue, edits, body });
        }
        loop {
            match self.within(limit, until, Self::event).await? {
                Event::Verdict(verdict) => return Ok(Judged { verdict, edits, body }),
                Event::Edit(Edit::ReplaceBody(piece)) => {
                    let body = body.get_or_insert_with(Vec::new);
                    if body.len() + piece.len() > body_max_bytes {
                        return Err(Failure::TooLarge(body_max_bytes));
                    }
                    body.extend_from_slice(&piece);
                }
                Event::Edit(edit) => edits.push(edit),
                Event::Negotiated | Event::Progress => {}
            }
        }
    }

    /// Gives up the current message. The filter hears of it together with the next command.
    ///
    /// # Errors
    /// The filter owes an answer.
    pub fn abort(&mut self) -> Result<(), Failure> {
        Ok(self.session.abort(&mut self.out)?)
    }

    /// An answer that came before its command would be taken for the next one's.
    fn check_quiet(&mut self) -> Result<(), Failure> {
        match self.session.receive(&mut &self.input[self.taken..])? {
            None => Ok(()),
            Some(_) => Err(ProtocolError::Unsolicited.into()),
        }
    }

    async fn within<T>(
        &mut self,
        limit: Duration,
        until: Instant,
        act: impl AsyncFnOnce(&mut Self) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let deadline = until.min(Instant::now() + limit);
        timeout_at(deadline, act(self)).await.unwrap_or(Err(Failure::TimedOut(limit)))
    }

    async fn flush(&mut self) -> Result<(), Failure> {
        match &mut self.stream {
            Connection::Unix(stream) => stream.write_all(&self.out).await?,
            Connection::Tcp(stream) => stream.write_all(&self.out).await?,
        }
        self.out.clear();
        Ok(())
    }

    /// Returns the next event, and reads as long as there is none.
    async fn event(&mut self) -> Result<Event, Failure> {
        loop {
            let mut unread = &self.input[self.taken..];
            let event = self.session.receive(&mut unread)?;
            self.taken = self.input.len() - unread.len();
            if let Some(event) = event {
                return Ok(event);
            }
            self.input.clear();
            self.taken = 0;
            self.input.reserve(READ_BYTES);
            let count = match &mut self.stream {
                Connection::Unix(stream) => stream.read_buf(&mut self.input).await?,
                Connection::Tcp(stream) => stream.read_buf(&mut self.input).await?,
            };
            if count == 0 {
                return Err(Failure::Closed);
            }
        }
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        self.session.quit(&mut self.out);
        // A filter that takes nothing now sees that the connection is closed.
        let _ = match &self.stream {
            Connection::Unix(stream) => stream.try_write(&self.out),
            Connection::Tcp(stream) => stream.try_write(&self.out),
        };
    }
}
