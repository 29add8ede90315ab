//! One session: reads, asks the service, writes, and watches the deadlines.

mod named_client;
mod receive_content;
mod waiting;

use crate::{
    Answer, AuthAnswer, Break, Budget, Client, ClientCertificates, ClientTls, ConnectionEvent, Identity,
    ListenerOptions, Service, SessionPermit, Settings, WorkerPool, content::ContentReceiver, stream::Stream,
};
use auth::ChannelBindings;
use mail::{Envelope, Reply};
use smtp::server::{BareLf, Connection, Keyword, Refused, Session as ServerSession, Step, replies};
use std::{
    future::poll_fn,
    io,
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
    time::Duration,
};
use tokio::{
    net::TcpStream,
    sync::watch,
    time::{Instant, Sleep, timeout},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use waiting::{Waiting, poll_deadline};

/// Unread input above this is given back to the allocator when it is used up.
const KEEP_BYTES: usize = 4096;

/// Why a wait for input is over.
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
    /// The client can try to log in with its certificate.
    pub(crate) may_certify: bool,
    pub(crate) bare_lf: BareLf,
    pub(crate) options: Arc<ListenerOptions>,
    pub(crate) closing: watch::Receiver<bool>,
    pub(crate) workers: Arc<WorkerPool>,
    /// Index of the worker on which the session runs now.
    pub(crate) worker: usize,
    pub(crate) _guard: SessionPermit,
    /// Counts the session for its listener.
    pub(crate) _listener_guard: Arc<()>,
}

/// A session. It is on the heap because it moves between workers: a future holds twice what it takes by value.
pub(crate) struct Session<S: Service> {
    driver: SessionDriver<S>,
    io: SessionIo<S>,
}

/// How a session leaves a worker.
pub(crate) enum SessionEnd<S: Service> {
    /// The connection is closed.
    Closed,
    /// The session moves to another worker, between two transactions.
    MigrateTo(usize, Box<Session<S>>),
}

/// The connection of one session, its buffers and its timers.
struct SessionIo<S: Service> {
    connection: Connection,
    context: S::Context,
    stream: Stream,
    unread: Vec<u8>,
    body: Option<ContentReceiver<S>>,
    sleep: Pin<Box<Sleep>>,
    transaction_ends: Option<Instant>,
    /// Since when what is awaited is awaited: a command that comes byte by byte is waited for once.
    waits_since: Option<Instant>,
}

impl<S: Service> SessionDriver<S> {
    /// Begins the session and writes the greeting. `None`: the connection was rejected, and is closed.
    pub(crate) async fn begin(self, mut stream: Stream) -> io::Result<Option<Box<Session<S>>>> {
        // The handshake came before.
        let implicit = self.client.tls.is_some();
        let mut sleep = Box::pin(tokio::time::sleep(self.settings.limits.command_timeout));
        let mut unread = Vec::new();
        let connected = match self.service.connected(&self.client) {
            Answer::Ready(connected) => connected,
            Answer::Pending(answer) => {
                let (stream, unread, sleep) = (&mut stream, &mut unread, &mut sleep);
                let output = &mut Vec::new();
                Waiting { output, transaction_ends: None, stream, unread, sleep }
                    .resolve(answer, self.settings.lookup_timeout)
                    .await?
                    .unwrap_or(Err(replies::LOOKUP_TIMEOUT_CLOSING))
            }
        };
        let context = match connected {
            Ok(context) => context,
            Err(reply) => {
                self.reject_connection(&mut stream, &mut sleep, &reply).await?;
                return Ok(None);
            }
        };
        let delay = self.options.greeting_delay;
        if !delay.is_zero() && unread.is_empty() && !self.service.is_trusted(&self.client) {
            // A program that does not wait for the greeting was not made to deliver mail.
            let early = poll_fn(|cx| stream.poll_read(cx, &mut unread));
            if let Ok(read) = timeout(delay, early).await {
                if read? > 0 {
                    self.reject_connection(&mut stream, &mut sleep, &replies::OUT_OF_SYNC).await?;
                }
                return Ok(None);
            }
        }
        let is_early = !unread.is_empty() || stream.has_unread_bytes();
        if !implicit && is_early && !self.service.is_trusted(&self.client) {
            self.reject_connection(&mut stream, &mut sleep, &replies::OUT_OF_SYNC).await?;
            return Ok(None);
        }
        let mut connection =
            Connection::new(self.settings.limits.clone(), self.settings.profile.clone(), implicit);
        connection.set_bare_lf(self.bare_lf);
        connection.set_trusted(self.service.is_trusted(&self.client));
        if self.may_certify {
            connection.certified();
        }
        let io = SessionIo {
            connection,
            context,
            stream,
            unread,
            body: None,
            sleep,
            transaction_ends: None,
            waits_since: None,
        };
        let mut session = Box::new(Session { driver: self, io });
        let Session { driver, io } = &mut *session;
        driver.flush(io).await?;
        Ok(Some(session))
    }

    /// The handshake; without a certificate the end, never a session in clear text.
    pub(crate) async fn secure(&mut self, plain: TcpStream) -> io::Result<Stream> {
        let secured = self.shake_hands(plain).await;
        let event = match &secured {
            Ok(_) => ConnectionEvent::TlsEstablished,
            Err(e) => ConnectionEvent::TlsFailed(e),
        };
        self.service.log_connection(&self.client, event);
        secured
    }

    async fn shake_hands(&mut self, plain: TcpStream) -> io::Result<Stream> {
        let acceptor = self.tls.as_ref().ok_or_else(|| io::Error::other("TLS without a certificate"))?;
        let late = || io::Error::new(io::ErrorKind::TimedOut, "TLS handshake: timeout");
        // On the heap: large, and soon over, while the session it is a part of may last for hours.
        let time = self.time_for(self.settings.limits.tls_timeout, || !self.service.is_trusted(&self.client));
        let handshake = Box::pin(timeout(time, acceptor.accept(plain)));
        let stream = handshake.await.map_err(|_| late())??;
        let identity = self.identify(&stream);
        if self.options.client_certificates == ClientCertificates::Require
            && !identity.as_ref().is_some_and(|identity| identity.certificate.is_trusted)
        {
            return Err(io::Error::other(
                "TLS handshake: the certificate of a resumed session is not valid any more",
            ));
        }
        self.may_certify = identity.as_ref().is_some_and(|identity| identity.may_log_in);
        self.client.tls = Some(self.describe(&stream, identity));
        Ok(Stream::Tls(Box::new(stream)))
    }

    /// Returns who the client is by its certificate. A resumed TLS session has the certificate of its first handshake.
    fn identify(&self, stream: &TlsStream<TcpStream>) -> Option<Identity> {
        let certificates = self.settings.certificates.as_ref();
        let tls = certificates.filter(|_| self.options.client_certificates != ClientCertificates::Off)?;
        tls.identify(stream.get_ref().1.peer_certificates()?)
    }

    fn describe(&self, stream: &TlsStream<TcpStream>, identity: Option<Identity>) -> ClientTls {
        // Keying material costs a hash, which only logins need.
        let bindings = self.settings.profile.has(Keyword::Auth).then(|| {
            let exporter =
                stream.get_ref().1.export_keying_material([0; EXPORTER_BYTES], EXPORTER_LABEL, Some(&[]));
            let end_point = self.settings.end_points.of(stream.get_ref().1.server_name());
            Box::new(ChannelBindings { exporter: exporter.ok().map(Box::from), end_point })
        });
        let certificate = identity.map(|identity| identity.certificate);
        let group = stream.get_ref().1.negotiated_key_exchange_group();
        let key_exchange = group.and_then(|group| group.name().as_str());
        ClientTls { cipher: cipher(stream), key_exchange, bindings, certificate }
    }

    fn less_loaded_worker(&self, io: &SessionIo<S>) -> Option<usize> {
        if io.connection.session().is_idle() { self.workers.pick_less_loaded(self.worker, 0) } else { None }
    }

    /// Uses up the unread input. `None`: more is needed; true: TLS begins; false: the end.
    async fn process_input(&mut self, io: &mut SessionIo<S>) -> io::Result<Option<bool>> {
        let end = loop {
            let unread = std::mem::take(&mut io.unread);
            let was_skipping = io.connection.is_skipping();
            let mut input = &unread[..];
            let end = self.process(io, &mut input).await?;
            let used = unread.len() - input.len();
            // Octets may have been read while the session waited for an answer.
            let has_more = !io.unread.is_empty();
            io.retain_unread(unread, used);
            let is_further = if io.connection.is_skipping() { !was_skipping } else { used > 0 };
            if is_further {
                io.waits_since = None;
            }
            if end.is_some() || !has_more {
                break end;
            }
        };
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

    async fn process(&mut self, io: &mut SessionIo<S>, input: &mut &[u8]) -> io::Result<Option<bool>> {
        let mut next = None;
        loop {
            let step = next.take().unwrap_or_else(|| io.connection.step(input));
            match step {
                Step::NeedInput => return Ok(None),
                Step::Close => return Ok(Some(false)),
                Step::StartTls => return Ok(Some(true)),
                Step::AskTime => next = io.connection.set_time(self.service.now()),
                // On the heap: large and rare.
                Step::Query(query) => Box::pin(self.answer_query(io, query)).await?,
                Step::ChangeClient(client) => Box::pin(self.change_client(io, *client)).await?,
                Step::NoteForwarded(client) => self.note_source(io, *client),
                Step::JudgeHello => self.judge_hello(io).await?,
                Step::Authenticate(input) => self.authenticate(io, input).await?,
                Step::JudgeSender => self.judge_sender(io).await?,
                Step::JudgeRecipient => self.judge_recipient(io).await?,
                Step::StartContent => self.start_content(io),
                Step::Content(bytes) => {
                    if let Err(reply) = self.append_content(io, bytes).await? {
                        io.body = None;
                        io.connection.refuse_content(reply);
                    }
                }
                Step::DiscardContent(refused) => {
                    io.body = None;
                    self.log_refused(&refused);
                }
                Step::Refused(refused) => self.log_refused(&refused),
                Step::JudgeContent => self.judge_content(io).await?,
            }
        }
    }

    /// Asks the service. Replies that are to be written leave before the session waits (RFC 2920 §3.2). `None`: there
    /// was no answer in time.
    async fn ask<T>(
        &self,
        io: &mut SessionIo<S>,
        question: impl for<'a> FnOnce(&'a S, &'a mut S::Context, &'a ServerSession) -> Answer<'a, T>,
    ) -> io::Result<Option<T>> {
        let (session, context, waiting) = io.split();
        self.resolve(question(&self.service, context, session), waiting).await
    }

    async fn resolve<T>(&self, answer: Answer<'_, T>, mut waiting: Waiting<'_>) -> io::Result<Option<T>> {
        match answer {
            Answer::Ready(answer) => Ok(Some(answer)),
            Answer::Pending(answer) => {
                let Waiting { output, stream, sleep, transaction_ends, .. } = &mut waiting;
                self.write(output, stream, sleep, *transaction_ends).await?;
                waiting.resolve(answer, self.settings.lookup_timeout).await
            }
        }
    }

    fn log_refused(&self, refused: &Refused) {
        let Refused { stage, reply, envelope } = refused;
        self.service.log_reject(&self.client, stage, envelope.as_ref(), reply);
    }

    async fn judge_hello(&mut self, io: &mut SessionIo<S>) -> io::Result<()> {
        let reply = self
            .ask(io, |service, context, session| {
                service.hello(context, session.judged_hello().expect("a name is judged"))
            })
            .await?
            .unwrap_or(replies::LOOKUP_TIMEOUT);
        if !reply.is_positive() {
            self.service.log_reject(&self.client, "EHLO", None, &reply);
        }
        let commands = [Keyword::Etrn, Keyword::Vrfy, Keyword::Expn].into_iter();
        let offered = commands.filter(|keyword| self.settings.profile.has(*keyword));
        io.connection.hide(offered.filter(|keyword| !self.service.offers(&io.context, *keyword)).collect());
        io.connection.answer(reply);
        Ok(())
    }

    async fn authenticate(
        &mut self,
        io: &mut SessionIo<S>,
        input: smtp::server::AuthInput,
    ) -> io::Result<()> {
        let answer = self.ask(io, |service, context, _| service.authenticate(context, input)).await?;
        match answer.unwrap_or(AuthAnswer::Done(replies::AUTH_FAILED_FOR_NOW)) {
            AuthAnswer::Challenge(challenge) => io.connection.challenge(challenge),
            AuthAnswer::Done(reply) => io.connection.answer(reply),
        }
        Ok(())
    }

    async fn judge_sender(&mut self, io: &mut SessionIo<S>) -> io::Result<()> {
        io.body = None;
        let reply = if self.budget.content_bytes() > self.settings.memory_bytes {
            replies::NO_ROOM
        } else {
            self.ask(io, |service, context, session| {
                service.sender(context, session.envelope().expect("a sender is judged"))
            })
            .await?
            .unwrap_or(replies::LOOKUP_TIMEOUT)
        };
        if reply.is_positive() {
            io.transaction_ends = Some(Instant::now() + self.settings.limits.transaction_timeout);
        } else {
            self.service.log_reject(&self.client, "MAIL", io.connection.session().envelope(), &reply);
        }
        io.connection.answer(reply);
        Ok(())
    }

    async fn judge_recipient(&mut self, io: &mut SessionIo<S>) -> io::Result<()> {
        let reply = self
            .ask(io, |service, context, session| {
                let (Some(envelope), Some(recipient)) = (session.envelope(), session.judged_recipient())
                else {
                    unreachable!("a recipient is judged");
                };
                service.recipient(context, envelope, recipient)
            })
            .await?
            .unwrap_or(replies::LOOKUP_TIMEOUT);
        if !reply.is_positive() {
            let session = io.connection.session();
            if let (Some(envelope), Some(recipient)) = (session.envelope(), session.judged_recipient()) {
                let mut about = Envelope::new(envelope.reverse_path.clone());
                about.recipients.push(recipient.clone());
                self.service.log_reject(&self.client, "RCPT", Some(&about), &reply);
            }
        }
        io.connection.answer(reply);
        Ok(())
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
            let is_stranger = || !io.connection.is_trusted() && !io.connection.session().is_authenticated();
            since + self.time_for(limits.command_timeout, is_stranger)
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

    /// Returns the usual time for something, or less: strangers who say nothing do not keep others out while more than half of the
    /// sessions are in use.
    fn time_for(&self, usual: Duration, is_stranger: impl FnOnce() -> bool) -> Duration {
        let is_short = self.budget.session_count() > self.settings.sessions_max / 2;
        if is_short && is_stranger() { self.settings.limits.stress_command_timeout.min(usual) } else { usual }
    }

    /// Writes the replies there are.
    async fn flush(&self, io: &mut SessionIo<S>) -> io::Result<()> {
        let SessionIo { connection, stream, sleep, transaction_ends, .. } = io;
        self.write(connection.output(), stream, sleep, *transaction_ends).await
    }

    async fn write(
        &self,
        output: &mut Vec<u8>,
        stream: &mut Stream,
        sleep: &mut Pin<Box<Sleep>>,
        transaction_ends: Option<Instant>,
    ) -> io::Result<()> {
        if output.is_empty() {
            return Ok(());
        }
        self.with_deadline(sleep, transaction_ends, stream.write_all(output)).await?;
        output.clear();
        Ok(())
    }

    /// Writes a refusal instead of the greeting (RFC 5321 §3.1).
    async fn reject_connection(
        &self,
        stream: &mut Stream,
        sleep: &mut Pin<Box<Sleep>>,
        reply: &Reply,
    ) -> io::Result<()> {
        self.service.log_reject(&self.client, "CONNECT", None, reply);
        let mut output = Vec::new();
        reply.write_to(&mut output);
        self.with_deadline(sleep, None, stream.end(&output, false)).await
    }

    /// Writes the last reply. `is_asked`: it answers a command, such as QUIT.
    async fn end(&self, io: &mut SessionIo<S>, is_asked: bool) -> io::Result<()> {
        let SessionIo { connection, stream, sleep, transaction_ends, .. } = io;
        self.with_deadline(sleep, *transaction_ends, stream.end(connection.output(), is_asked)).await
    }

    /// The handshake, and the session anew. What was read in clear text is gone: the session
    /// refuses bytes behind STARTTLS.
    async fn start_tls(&mut self, io: &mut SessionIo<S>) -> io::Result<()> {
        let Stream::Plain(plain) = std::mem::replace(&mut io.stream, Stream::Taken) else {
            unreachable!("STARTTLS is offered once")
        };
        io.stream = self.secure(plain).await?;
        io.unread.clear();
        io.waits_since = None;
        named_client::forget_names(&mut self.client);
        self.service.tls_established(&mut io.context, &self.client);
        io.connection.tls_established();
        if self.may_certify {
            io.connection.certified();
        }
        Ok(())
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

impl<S: Service> Session<S> {
    /// Runs the session to its end, or until it is to move. An error concerns the connection only:
    /// messages that were answered 250 are durable.
    pub(crate) async fn run(mut self: Box<Self>) -> io::Result<SessionEnd<S>> {
        let end = self.converse().await;
        if let Ok(Some(worker)) = end {
            return Ok(SessionEnd::MigrateTo(worker, self));
        }
        let Self { driver, io } = &*self;
        let connection = &io.connection;
        let broken = match (&end, connection.closed_by()) {
            (Err(e), _) if e.kind() == io::ErrorKind::TimedOut => Some(Break::Timeout),
            // A handshake that failed has its own line.
            (Err(_), _) if matches!(io.stream, Stream::Taken) => None,
            (_, Some(reply)) => Break::of_reply(reply),
            (Err(_) | Ok(_), None) => Some(Break::Lost),
        };
        if let Some(cause) = broken {
            let after = connection.last_stage();
            driver.service.log_connection(&driver.client, ConnectionEvent::Broken { cause, after });
        }
        driver.service.log_connection(&driver.client, ConnectionEvent::Disconnected(connection.counts()));
        end.map(|_| SessionEnd::Closed)
    }

    /// Serves commands to the end of the connection. `Some`: the session is to move to this worker.
    async fn converse(&mut self) -> io::Result<Option<usize>> {
        let Self { driver, io } = self;
        let mut is_asked = true;
        loop {
            match driver.process_input(io).await? {
                // On the heap: large, and soon over.
                Some(true) => Box::pin(driver.start_tls(io)).await?,
                Some(false) => break,
                None if let Some(to) = driver.less_loaded_worker(io) => return Ok(Some(to)),
                None => match driver.wait(io).await? {
                    Wait::Input(0) => return Ok(None),
                    Wait::Input(_) => {}
                    Wait::Timeout => {
                        is_asked = false;
                        io.connection.close_with(&replies::TIMEOUT);
                    }
                    Wait::Shutdown => {
                        is_asked = false;
                        io.connection.close_with(&replies::SHUTTING_DOWN);
                    }
                },
            }
        }
        driver.end(io, is_asked).await?;
        Ok(None)
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
}

impl<S: Service> SessionIo<S> {
    /// Splits the session into the facts that a question needs, and the parts that a wait for its answer needs.
    fn split(&mut self) -> (&ServerSession, &mut S::Context, Waiting<'_>) {
        let Self { connection, context, stream, unread, sleep, transaction_ends, .. } = self;
        let (session, output) = connection.session_and_output();
        let transaction_ends = *transaction_ends;
        (session, context, Waiting { output, transaction_ends, stream, unread, sleep })
    }

    /// Puts back what was not used, before what came since.
    fn retain_unread(&mut self, mut unread: Vec<u8>, used: usize) {
        unread.drain(..used);
        unread.append(&mut self.unread);
        if unread.is_empty() && unread.capacity() > KEEP_BYTES {
            unread = Vec::new();
        }
        self.unread = unread;
    }
}

/// The label of the channel binding `tls-exporter` (RFC 9266 §4).
const EXPORTER_LABEL: &[u8] = b"EXPORTER-Channel-Binding";
/// Octets of that channel binding.
const EXPORTER_BYTES: usize = 32;

/// `TLSv1.3:TLS_AES_256_GCM_SHA384`.
fn cipher(stream: &TlsStream<TcpStream>) -> Box<str> {
    let connection = stream.get_ref().1;
    let version = match connection.protocol_version() {
        Some(rustls::ProtocolVersion::TLSv1_2) => "TLSv1.2",
        Some(rustls::ProtocolVersion::TLSv1_3) => "TLSv1.3",
        _ => "TLS",
    };
    let suite = connection.negotiated_cipher_suite().and_then(|s| s.suite().as_str()).unwrap_or("unknown");
    // The library names those of TLS 1.3 in its own way; this is the name of IANA.
    let suite = suite.strip_prefix("TLS13_").map_or_else(|| suite.to_owned(), |rest| format!("TLS_{rest}"));
    format!("{version}:{suite}").into()
}
