//! One session: reads, asks the service, writes, and watches the deadlines.

use crate::{
    Budget, Client, Service, SessionPermit, Settings, StoreError, WorkerPool, content::ContentReceiver,
    stream::Stream, trace::Received,
};
use mail::{Envelope, Message, Origin, Reply, UnixMillis};
use smtp::server::{BareLf, Connection, Step, replies};
use std::{
    future::{Future as _, poll_fn},
    io,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    net::TcpStream,
    sync::watch,
    time::{Instant, Sleep, timeout},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

/// Unread input above this is given back to the allocator when it is used up.
const KEEP_BYTES: usize = 4096;

/// How long content may wait for a disk that is behind before it is refused for now.
const STORE_TIMEOUT: Duration = Duration::from_secs(60);

/// The event that ended a wait for input.
enum Wait {
    Input(usize),
    Timeout,
    Shutdown,
}

pub(crate) struct SessionDriver<S: Service> {
    pub(crate) settings: Settings,
    pub(crate) service: Arc<S>,
    pub(crate) budget: Arc<Budget>,
    pub(crate) tls: Option<TlsAcceptor>,
    pub(crate) client: Client,
    pub(crate) bare_lf: BareLf,
    pub(crate) closing: watch::Receiver<bool>,
    pub(crate) workers: Arc<WorkerPool>,
    /// The worker that this session runs on.
    pub(crate) worker: usize,
    pub(crate) _guard: SessionPermit,
}

/// A session. It is on the heap because it moves between workers: a future holds twice what it takes by value.
pub(crate) struct Session<S: Service> {
    driver: SessionDriver<S>,
    io: SessionIo<S>,
}

/// How a session ended on one worker.
pub(crate) enum SessionEnd<S: Service> {
    /// The session is closed.
    Closed,
    /// The session moves to another worker, between two transactions.
    MigrateTo(usize, Box<Session<S>>),
}

/// The connection of one session, its buffers and its timers.
struct SessionIo<S: Service> {
    connection: Connection,
    stream: Stream,
    unread: Vec<u8>,
    body: Option<ContentReceiver<S>>,
    sleep: Pin<Box<Sleep>>,
    transaction_ends: Option<Instant>,
    /// Since when what is awaited is awaited: a command that comes byte by byte is waited for once.
    waits_since: Option<Instant>,
}

impl<S: Service> SessionDriver<S> {
    /// Runs the session to its end, or until it is to move. An error is the connection's, and nobody's
    /// loss: what was answered 250 is durable.
    pub(crate) async fn run(self, stream: Stream) -> io::Result<SessionEnd<S>> {
        let implicit = matches!(stream, Stream::Tls(_));
        let mut connection =
            Connection::new(self.settings.limits.clone(), self.settings.capabilities.clone(), implicit);
        connection.set_bare_lf(self.bare_lf);
        let sleep = Box::pin(tokio::time::sleep(self.settings.limits.command_timeout));
        let io = SessionIo {
            connection,
            stream,
            unread: Vec::new(),
            body: None,
            sleep,
            transaction_ends: None,
            waits_since: None,
        };
        let mut session = Box::new(Session { driver: self, io });
        let Session { driver, io } = &mut *session;
        if let Err(reply) = driver.service.client(&driver.client) {
            driver.service.log_reject(&driver.client, "CONNECT", None, &reply);
            return driver.reject_connection(io, &reply).await;
        }
        if !implicit && !driver.service.is_trusted(&driver.client) && io.stream.has_unread_bytes() {
            driver.service.log_reject(&driver.client, "CONNECT", None, &replies::OUT_OF_SYNC);
            return driver.reject_connection(io, &replies::OUT_OF_SYNC).await;
        }
        driver.flush(io).await?;
        session.run().await
    }

    /// The handshake; without a certificate the end, never a session in clear text.
    pub(crate) async fn secure(&mut self, plain: TcpStream) -> io::Result<Stream> {
        let acceptor = self.tls.as_ref().ok_or_else(|| io::Error::other("TLS without a certificate"))?;
        let late = || io::Error::new(io::ErrorKind::TimedOut, "TLS handshake: timeout");
        // On the heap: large, and soon over, while the session it is a part of may last for hours.
        let handshake = Box::pin(timeout(self.settings.limits.tls_timeout, acceptor.accept(plain)));
        let stream = handshake.await.map_err(|_| late())??;
        self.client.tls = Some(describe(&stream));
        Ok(Stream::Tls(Box::new(stream)))
    }

    fn less_loaded_worker(&self, io: &SessionIo<S>) -> Option<usize> {
        if io.connection.session().is_idle() { self.workers.pick_less_loaded(self.worker, 0) } else { None }
    }

    /// Uses up the unread input. `None`: more is needed; true: TLS begins; false: the end.
    async fn process_input(&mut self, io: &mut SessionIo<S>) -> io::Result<Option<bool>> {
        let unread = std::mem::take(&mut io.unread);
        let was_skipping = io.connection.is_skipping();
        let mut input = &unread[..];
        let end = loop {
            match io.connection.step(&mut input) {
                Step::NeedInput => break None,
                Step::Close => break Some(false),
                Step::StartTls => break Some(true),
                Step::JudgeSender => self.judge_sender(io),
                Step::JudgeRecipient => self.judge_recipient(io),
                Step::StartContent => self.start_content(io),
                Step::Content(bytes) => {
                    if let Some(body) = &mut io.body {
                        let envelope = io.connection.session().envelope();
                        let envelope = envelope.expect("content has an envelope");
                        if let Err(reply) = self.append_content(body, envelope, bytes).await {
                            io.body = None;
                            io.connection.refuse_content(reply);
                        }
                    }
                }
                Step::DiscardContent => io.body = None,
                Step::Commit(envelope) => self.commit(io, *envelope).await,
            }
        };
        let used = unread.len() - input.len();
        io.retain_unread(unread, used);
        let is_further = if io.connection.is_skipping() { !was_skipping } else { used > 0 };
        if is_further {
            io.waits_since = None;
        }
        if io.connection.session().envelope().is_none() {
            io.transaction_ends = None;
            // RSET, too, gives back what chunks had come.
            io.body = None;
        }
        // The last reply leaves with the end.
        if end != Some(false) {
            self.flush(io).await?;
        }
        Ok(end)
    }

    fn judge_sender(&mut self, io: &mut SessionIo<S>) {
        io.body = None;
        let envelope = io.connection.session().envelope().expect("a sender is judged");
        let is_short = self.budget.content_bytes() > self.settings.memory_bytes;
        let reply = if is_short { replies::NO_ROOM } else { self.service.sender(&self.client, envelope) };
        if reply.is_positive() {
            io.transaction_ends = Some(Instant::now() + self.settings.limits.transaction_timeout);
        } else {
            self.service.log_reject(&self.client, "MAIL", Some(envelope), &reply);
        }
        io.connection.answer(reply);
    }

    fn judge_recipient(&mut self, io: &mut SessionIo<S>) {
        let session = io.connection.session();
        let (Some(envelope), Some(recipient)) = (session.envelope(), session.judged_recipient()) else {
            unreachable!("a recipient is judged");
        };
        let reply = self.service.recipient(&self.client, envelope, recipient);
        if !reply.is_positive() {
            let mut about = Envelope::new(envelope.reverse_path.clone());
            about.recipients.push(recipient.clone());
            self.service.log_reject(&self.client, "RCPT", Some(&about), &reply);
        }
        io.connection.answer(reply);
    }

    fn start_content(&mut self, io: &mut SessionIo<S>) {
        let session = io.connection.session();
        let envelope = session.envelope().expect("content has an envelope");
        let received = Received {
            client: &self.client,
            hello: session.hello().unwrap_or("unknown"),
            hostname: &self.settings.capabilities.hostname,
            protocol: session.protocol(envelope.smtputf8),
            id: self.service.next_id(),
            envelope,
            now: UnixMillis::now(),
        };
        io.body = Some(ContentReceiver::begin(&received, &self.budget, &self.service));
    }

    /// Content that the disk is too slow for waits, and with it the client: nothing more is read.
    async fn append_content(
        &self,
        body: &mut ContentReceiver<S>,
        envelope: &Envelope,
        bytes: &[u8],
    ) -> Result<(), Reply> {
        let mut taken = body.append(bytes, envelope, &self.settings);
        let until = Instant::now() + STORE_TIMEOUT;
        loop {
            match taken {
                Ok(()) => return Ok(()),
                Err(StoreError::Refused(reply)) => return Err(reply),
                Err(StoreError::Busy) if Instant::now() > until => return Err(replies::SPOOL_BUSY),
                Err(StoreError::Busy) => self.service.wait_for_space().await,
            }
            taken = body.retry_store(envelope);
        }
    }

    async fn commit(&mut self, io: &mut SessionIo<S>, envelope: Envelope) {
        let body = io.body.take().expect("content was begun");
        let session = io.connection.session();
        let protocol = session.protocol(envelope.smtputf8);
        let origin = Origin::smtp(self.client.peer.ip(), session.hello().unwrap_or(""), protocol);
        let id = body.id;
        let (content, permit) = body.finish();
        let message = Message { id, arrived: UnixMillis::now(), origin, envelope, content };
        let reply = self.service.commit(&self.client, message).await;
        drop(permit);
        io.connection.answer(reply);
    }

    /// Waits for input, the deadline or shutdown. Between transactions shutdown is heard at once.
    async fn wait(&mut self, io: &mut SessionIo<S>) -> io::Result<Wait> {
        let limits = &self.settings.limits;
        let now = Instant::now();
        let since = *io.waits_since.get_or_insert(now);
        let deadline = if io.connection.reads_content() {
            // Of a chunk that is skipped every piece counts for itself, too; but not for ever.
            (now + limits.data_timeout).min(since + limits.transaction_timeout)
        } else {
            since + limits.command_timeout
        };
        let deadline = io.transaction_ends.map_or(deadline, |ends| ends.min(deadline));
        // A client that always has data ready would keep the timer from firing, so the deadline is checked here too.
        if now >= deadline {
            return Ok(Wait::Timeout);
        }
        let is_idle = io.connection.session().is_idle();
        let mut closing = pin!(self.closing.wait_for(|closing| *closing));
        let SessionIo { stream, unread, sleep, .. } = io;
        poll_fn(|cx| {
            if let Poll::Ready(read) = stream.poll_read(cx, unread) {
                return Poll::Ready(read.map(Wait::Input));
            }
            if poll_deadline(sleep, deadline, cx).is_ready() {
                return Poll::Ready(Ok(Wait::Timeout));
            }
            if is_idle && closing.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Ok(Wait::Shutdown));
            }
            Poll::Pending
        })
        .await
    }

    /// Writes the replies there are.
    async fn flush(&self, io: &mut SessionIo<S>) -> io::Result<()> {
        if io.connection.output().is_empty() {
            return Ok(());
        }
        let SessionIo { connection, stream, sleep, transaction_ends, .. } = io;
        self.with_deadline(sleep, *transaction_ends, stream.write_all(connection.output())).await?;
        connection.output().clear();
        Ok(())
    }

    /// A refusal instead of the greeting (RFC 5321 §3.1).
    async fn reject_connection(&self, io: &mut SessionIo<S>, reply: &Reply) -> io::Result<SessionEnd<S>> {
        io.connection.output().clear();
        io.connection.close_with(reply);
        self.end(io).await
    }

    async fn end(&self, io: &mut SessionIo<S>) -> io::Result<SessionEnd<S>> {
        let SessionIo { connection, stream, sleep, transaction_ends, .. } = io;
        self.with_deadline(sleep, *transaction_ends, stream.end(connection.output())).await?;
        Ok(SessionEnd::Closed)
    }

    /// Writes, but not for longer than a client may be silent: one that does not read is no better. The
    /// clock is looked at only when the socket is full.
    async fn with_deadline(
        &self,
        sleep: &mut Pin<Box<Sleep>>,
        transaction_ends: Option<Instant>,
        writing: impl Future<Output = io::Result<()>>,
    ) -> io::Result<()> {
        let mut writing = pin!(writing);
        let mut deadline = None;
        poll_fn(|cx| {
            if let Poll::Ready(written) = writing.as_mut().poll(cx) {
                return Poll::Ready(written);
            }
            let deadline = *deadline.get_or_insert_with(|| {
                let silence = Instant::now() + self.settings.limits.command_timeout;
                transaction_ends.map_or(silence, |ends| ends.min(silence))
            });
            let late = || io::Error::new(io::ErrorKind::TimedOut, "the client does not read");
            poll_deadline(sleep, deadline, cx).map(|()| Err(late()))
        })
        .await
    }
}

/// Ready when it is over. The timer is set anew only when it fires too early: most waits never touch it.
fn poll_deadline(sleep: &mut Pin<Box<Sleep>>, deadline: Instant, cx: &mut Context<'_>) -> Poll<()> {
    while sleep.as_mut().poll(cx).is_ready() {
        if Instant::now() >= deadline {
            return Poll::Ready(());
        }
        sleep.as_mut().reset(deadline);
    }
    if sleep.deadline() > deadline {
        sleep.as_mut().reset(deadline);
    }
    Poll::Pending
}

impl<S: Service> Session<S> {
    async fn run(mut self: Box<Self>) -> io::Result<SessionEnd<S>> {
        loop {
            let Self { driver, io } = &mut *self;
            match driver.process_input(io).await? {
                Some(true) => self = self.start_tls().await?,
                Some(false) => break,
                None if let Some(to) = driver.less_loaded_worker(io) => {
                    return Ok(SessionEnd::MigrateTo(to, self));
                }
                None => match driver.wait(io).await? {
                    Wait::Input(0) => return Ok(SessionEnd::Closed),
                    Wait::Input(_) => {}
                    Wait::Timeout => io.connection.close_with(&replies::TIMEOUT),
                    Wait::Shutdown => io.connection.close_with(&replies::SHUTTING_DOWN),
                },
            }
        }
        self.driver.end(&mut self.io).await
    }

    /// Resumes the session on the worker that polls this future.
    pub(crate) async fn resume_on(mut self: Box<Self>, worker: usize) -> io::Result<SessionEnd<S>> {
        let Self { driver, io } = &mut *self;
        driver.worker = worker;
        // Out of descriptors, the runtime it comes from goes on watching it.
        let _ = io.stream.move_here();
        io.sleep = Box::pin(tokio::time::sleep(driver.settings.limits.command_timeout));
        self.run().await
    }

    /// The handshake, and the session anew. What was read in clear text is gone: the session
    /// refuses bytes behind STARTTLS.
    async fn start_tls(self: Box<Self>) -> io::Result<Box<Self>> {
        let Self { mut driver, mut io } = *self;
        let Stream::Plain(plain) = io.stream else { unreachable!("STARTTLS is offered once") };
        io.stream = driver.secure(plain).await?;
        io.unread.clear();
        io.waits_since = None;
        io.connection.tls_established();
        Ok(Box::new(Self { driver, io }))
    }
}

impl<S: Service> SessionIo<S> {
    /// Puts back what was not used.
    fn retain_unread(&mut self, mut unread: Vec<u8>, used: usize) {
        unread.drain(..used);
        if unread.is_empty() && unread.capacity() > KEEP_BYTES {
            unread = Vec::new();
        }
        self.unread = unread;
    }
}

/// `TLSv1.3:TLS13_AES_256_GCM_SHA384`.
fn describe(stream: &TlsStream<TcpStream>) -> Box<str> {
    let connection = stream.get_ref().1;
    let version = match connection.protocol_version() {
        Some(rustls::ProtocolVersion::TLSv1_2) => "TLSv1.2",
        Some(rustls::ProtocolVersion::TLSv1_3) => "TLSv1.3",
        _ => "TLS",
    };
    let suite = connection.negotiated_cipher_suite().and_then(|s| s.suite().as_str()).unwrap_or("unknown");
    format!("{version}:{suite}").into()
}
