//! Drives one session: reads, asks the service, writes, keeps the time.

use crate::{
    Budget, Client, Crew, Guard, Service, Settings, Unstored,
    body::Body,
    stream::Stream,
    trace::{Received, Word},
};
use mail::{Envelope, Message, Reply, UnixMillis};
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
const DISK_PATIENCE: Duration = Duration::from_secs(60);

/// What ended a wait for input.
enum Woken {
    Input(usize),
    Timeout,
    Shutdown,
}

pub(crate) struct Driver<S: Service> {
    pub(crate) settings: Settings,
    pub(crate) service: Arc<S>,
    pub(crate) budget: Arc<Budget>,
    pub(crate) tls: Option<TlsAcceptor>,
    pub(crate) client: Client,
    pub(crate) bare_lf: BareLf,
    pub(crate) closing: watch::Receiver<bool>,
    pub(crate) crew: Arc<Crew>,
    /// Of the crew, whose thread this is on.
    pub(crate) place: usize,
    pub(crate) _guard: Guard,
}

/// A session, on the heap because it is passed on: what a future is given by value it holds twice.
pub(crate) struct Visit<S: Service> {
    driver: Driver<S>,
    talk: Talk<S>,
}

/// How its time on one of the crew ended.
pub(crate) enum Left<S: Service> {
    /// It is over.
    Over,
    /// Between two transactions, to go on on another.
    For(usize, Box<Visit<S>>),
}

/// What one session has besides its driver.
struct Talk<S: Service> {
    connection: Connection,
    stream: Stream,
    unread: Vec<u8>,
    body: Option<Body<S>>,
    sleep: Pin<Box<Sleep>>,
    transaction_ends: Option<Instant>,
    /// Since when what is awaited is awaited: a command that comes byte by byte is waited for once.
    waits_since: Option<Instant>,
}

impl<S: Service> Driver<S> {
    /// Runs the session to its end, or until it is to move. An error is the connection's, and nobody's
    /// loss: what was answered 250 is durable.
    pub(crate) async fn run(self, stream: Stream) -> io::Result<Left<S>> {
        let implicit = matches!(stream, Stream::Tls(_));
        let mut connection =
            Connection::new(self.settings.limits.clone(), self.settings.capabilities.clone(), implicit);
        connection.set_bare_lf(self.bare_lf);
        let sleep = Box::pin(tokio::time::sleep(self.settings.limits.command_timeout));
        let talk = Talk {
            connection,
            stream,
            unread: Vec::new(),
            body: None,
            sleep,
            transaction_ends: None,
            waits_since: None,
        };
        let mut visit = Box::new(Visit { driver: self, talk });
        let Visit { driver, talk } = &mut *visit;
        if let Err(reply) = driver.service.client(&driver.client) {
            driver.service.refused(&driver.client, "CONNECT", None, &reply);
            return driver.turn_away(talk, &reply).await;
        }
        if !implicit && !driver.service.is_trusted(&driver.client) && talk.stream.has_unread_bytes() {
            driver.service.refused(&driver.client, "CONNECT", None, &replies::OUT_OF_SYNC);
            return driver.turn_away(talk, &replies::OUT_OF_SYNC).await;
        }
        driver.flush(talk).await?;
        visit.go_on().await
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

    fn better_place(&self, talk: &Talk<S>) -> Option<usize> {
        if talk.connection.session().is_idle() { self.crew.better_than(self.place, 0) } else { None }
    }

    /// Uses up the unread input. `None`: more is needed; true: TLS begins; false: the end.
    async fn converse(&mut self, talk: &mut Talk<S>) -> io::Result<Option<bool>> {
        let unread = std::mem::take(&mut talk.unread);
        let was_skipping = talk.connection.is_skipping();
        let mut input = &unread[..];
        let end = loop {
            match talk.connection.step(&mut input) {
                Step::NeedInput => break None,
                Step::Close => break Some(false),
                Step::StartTls => break Some(true),
                Step::JudgeSender => self.judge_sender(talk),
                Step::JudgeRecipient => self.judge_recipient(talk),
                Step::Begin => self.begin(talk),
                Step::Content(bytes) => {
                    if let Some(body) = &mut talk.body {
                        let envelope = talk.connection.session().envelope();
                        let envelope = envelope.expect("content has an envelope");
                        if let Err(reply) = self.take(body, envelope, bytes).await {
                            talk.body = None;
                            talk.connection.refuse_content(reply);
                        }
                    }
                }
                Step::Drop => talk.body = None,
                Step::Commit(envelope) => self.commit(talk, *envelope).await,
            }
        };
        let used = unread.len() - input.len();
        talk.keep(unread, used);
        let is_further = if talk.connection.is_skipping() { !was_skipping } else { used > 0 };
        if is_further {
            talk.waits_since = None;
        }
        if talk.connection.session().envelope().is_none() {
            talk.transaction_ends = None;
            // RSET, too, gives back what chunks had come.
            talk.body = None;
        }
        // The last reply leaves with the end.
        if end != Some(false) {
            self.flush(talk).await?;
        }
        Ok(end)
    }

    fn judge_sender(&mut self, talk: &mut Talk<S>) {
        talk.body = None;
        let envelope = talk.connection.session().envelope().expect("a sender is judged");
        let is_short = self.budget.content_bytes() > self.settings.memory_bytes;
        let reply = if is_short { replies::NO_ROOM } else { self.service.sender(&self.client, envelope) };
        if reply.is_positive() {
            talk.transaction_ends = Some(Instant::now() + self.settings.limits.transaction_timeout);
        } else {
            self.service.refused(&self.client, "MAIL", Some(envelope), &reply);
        }
        talk.connection.verdict(reply);
    }

    fn judge_recipient(&mut self, talk: &mut Talk<S>) {
        let session = talk.connection.session();
        let (Some(envelope), Some(recipient)) = (session.envelope(), session.judged_recipient()) else {
            unreachable!("a recipient is judged");
        };
        let reply = self.service.recipient(&self.client, envelope, recipient);
        if !reply.is_positive() {
            let mut about = Envelope::new(envelope.reverse_path.clone());
            about.recipients.push(recipient.clone());
            self.service.refused(&self.client, "RCPT", Some(&about), &reply);
        }
        talk.connection.verdict(reply);
    }

    fn begin(&mut self, talk: &mut Talk<S>) {
        let session = talk.connection.session();
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
        talk.body = Some(Body::begin(&received, &self.budget, &self.service));
    }

    /// Content that the disk is too slow for waits, and with it the client: nothing more is read.
    async fn take(&self, body: &mut Body<S>, envelope: &Envelope, bytes: &[u8]) -> Result<(), Reply> {
        let mut taken = body.append(bytes, envelope, &self.settings);
        let until = Instant::now() + DISK_PATIENCE;
        loop {
            match taken {
                Ok(()) => return Ok(()),
                Err(Unstored::Refused(reply)) => return Err(reply),
                Err(Unstored::Busy) if Instant::now() > until => return Err(replies::SPOOL_BUSY),
                Err(Unstored::Busy) => self.service.room().await,
            }
            taken = body.again(envelope);
        }
    }

    async fn commit(&mut self, talk: &mut Talk<S>, envelope: Envelope) {
        let body = talk.body.take().expect("content was begun");
        let session = talk.connection.session();
        let origin = format!(
            "client=[{}] helo={} proto={}",
            self.client.peer.ip(),
            Word(session.hello().unwrap_or("")),
            session.protocol(envelope.smtputf8)
        );
        let id = body.id;
        let (content, counted) = body.finish();
        let message = Message { id, arrived: UnixMillis::now(), origin: origin.into(), envelope, content };
        let reply = self.service.commit(&self.client, message).await;
        drop(counted);
        talk.connection.verdict(reply);
    }

    /// Waits for input, the deadline or shutdown. Between transactions shutdown is heard at once.
    async fn wait(&mut self, talk: &mut Talk<S>) -> io::Result<Woken> {
        let limits = &self.settings.limits;
        let now = Instant::now();
        let since = *talk.waits_since.get_or_insert(now);
        let deadline = if talk.connection.reads_content() {
            // Of a chunk that is skipped every piece counts for itself, too; but not for ever.
            (now + limits.data_timeout).min(since + limits.transaction_timeout)
        } else {
            since + limits.command_timeout
        };
        let deadline = talk.transaction_ends.map_or(deadline, |ends| ends.min(deadline));
        // Who never pauses never comes to the timer.
        if now >= deadline {
            return Ok(Woken::Timeout);
        }
        let is_idle = talk.connection.session().is_idle();
        let mut closing = pin!(self.closing.wait_for(|closing| *closing));
        let Talk { stream, unread, sleep, .. } = talk;
        poll_fn(|cx| {
            if let Poll::Ready(read) = stream.poll_read(cx, unread) {
                return Poll::Ready(read.map(Woken::Input));
            }
            if poll_deadline(sleep, deadline, cx).is_ready() {
                return Poll::Ready(Ok(Woken::Timeout));
            }
            if is_idle && closing.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Ok(Woken::Shutdown));
            }
            Poll::Pending
        })
        .await
    }

    /// Writes the replies there are.
    async fn flush(&self, talk: &mut Talk<S>) -> io::Result<()> {
        if talk.connection.output().is_empty() {
            return Ok(());
        }
        let Talk { connection, stream, sleep, transaction_ends, .. } = talk;
        self.in_time(sleep, *transaction_ends, stream.write_all(connection.output())).await?;
        connection.output().clear();
        Ok(())
    }

    /// A refusal instead of the greeting (RFC 5321 §3.1).
    async fn turn_away(&self, talk: &mut Talk<S>, reply: &Reply) -> io::Result<Left<S>> {
        talk.connection.output().clear();
        talk.connection.farewell(reply);
        self.end(talk).await
    }

    async fn end(&self, talk: &mut Talk<S>) -> io::Result<Left<S>> {
        let Talk { connection, stream, sleep, transaction_ends, .. } = talk;
        self.in_time(sleep, *transaction_ends, stream.end(connection.output())).await?;
        Ok(Left::Over)
    }

    /// Writes, but not for longer than a client may be silent: one that does not read is no better. The
    /// clock is looked at only when the socket is full.
    async fn in_time(
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

impl<S: Service> Visit<S> {
    async fn go_on(mut self: Box<Self>) -> io::Result<Left<S>> {
        loop {
            let Self { driver, talk } = &mut *self;
            match driver.converse(talk).await? {
                Some(true) => self = self.start_tls().await?,
                Some(false) => break,
                None if let Some(to) = driver.better_place(talk) => return Ok(Left::For(to, self)),
                None => match driver.wait(talk).await? {
                    Woken::Input(0) => return Ok(Left::Over),
                    Woken::Input(_) => {}
                    Woken::Timeout => talk.connection.farewell(&replies::TIMEOUT),
                    Woken::Shutdown => talk.connection.farewell(&replies::SHUTTING_DOWN),
                },
            }
        }
        self.driver.end(&mut self.talk).await
    }

    /// Goes on on the runtime that polls this, which is one of the crew's.
    pub(crate) async fn go_on_at(mut self: Box<Self>, place: usize) -> io::Result<Left<S>> {
        let Self { driver, talk } = &mut *self;
        driver.place = place;
        // Out of descriptors, the runtime it comes from goes on watching it.
        let _ = talk.stream.move_here();
        talk.sleep = Box::pin(tokio::time::sleep(driver.settings.limits.command_timeout));
        self.go_on().await
    }

    /// The handshake, and the session anew. What was read in clear text is gone: the session
    /// refuses bytes behind STARTTLS.
    async fn start_tls(self: Box<Self>) -> io::Result<Box<Self>> {
        let Self { mut driver, mut talk } = *self;
        let Stream::Plain(plain) = talk.stream else { unreachable!("STARTTLS is offered once") };
        talk.stream = driver.secure(plain).await?;
        talk.unread.clear();
        talk.waits_since = None;
        talk.connection.tls_established();
        Ok(Box::new(Self { driver, talk }))
    }
}

impl<S: Service> Talk<S> {
    /// Puts back what was not used.
    fn keep(&mut self, mut unread: Vec<u8>, used: usize) {
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
