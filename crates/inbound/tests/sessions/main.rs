//! Sessions over real sockets, with a service that plays policy and spool.

mod stages;

use bytes::Bytes;
use inbound::{
    Answer, AuthAnswer, Client, ConnectionEvent, Draft, Inbound, ListenTls, Listener, ListenerOptions,
    Service, Settings, StoreError, WorkerPool,
};
use mail::{ChunkId, Enhanced, Envelope, Part, QueueId, ReceivedContent, Recipient, Reply};
use rustix::net::RecvFlags;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use smtp::{
    Limits,
    server::{Auth, AuthInput, BareLf, Keyword, MechanismNeed, OfferedMechanism, Profile, replies},
};
use std::{
    collections::BTreeMap,
    os::fd::{AsFd as _, OwnedFd},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::ThreadId,
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader},
    net::{TcpSocket, TcpStream},
    runtime::Handle,
    sync::watch,
    time::timeout,
};

/// Remembers what was committed, stored and discarded.
#[derive(Default)]
struct TestService {
    trusted: bool,
    chunks: Mutex<BTreeMap<u64, Bytes>>,
    messages: Mutex<Vec<(String, Vec<u8>)>>,
    next: AtomicU64,
    /// The thread that committed each message.
    threads: Mutex<Vec<ThreadId>>,
    /// Number of further chunks for which the disk is busy.
    behind: AtomicU64,
    /// The stages that are answered later, and not before [`TestService::gate`] opens.
    slow: &'static [&'static str],
    /// The stages that refuse.
    refused: &'static [&'static str],
    gate: watch::Sender<bool>,
    /// Answers that are waited for now.
    waiting: Arc<AtomicU64>,
    /// The name of each stage that was asked, with its text.
    seen: Mutex<Vec<String>>,
    /// The client's end of the connection, and whether something had arrived there before the session closed it.
    watched: Mutex<(Option<OwnedFd>, Option<bool>)>,
}

/// The service's data of a session: the last name in EHLO, and the pieces of the body.
#[derive(Default)]
struct TestContext {
    hello: String,
    body: Vec<u8>,
}

/// Counts an answer while it is waited for.
struct Wait(Arc<AtomicU64>);

impl Drop for Wait {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl TestService {
    fn stage(&self, name: &'static str, seen: impl Into<String>) -> Answer<'static, Result<(), Reply>> {
        self.seen.lock().unwrap().push(format!("{name} {}", seen.into()).trim_end().to_owned());
        let refusal = Reply::fixed(550, Enhanced(5, 7, 1), "refused by the test");
        let judged = if self.refused.contains(&name) { Err(refusal) } else { Ok(()) };
        if !self.slow.contains(&name) {
            return Answer::Ready(judged);
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let (wait, mut gate) = (Wait(self.waiting.clone()), self.gate.subscribe());
        Answer::later(async move {
            gate.wait_for(|is_open| *is_open).await.expect("the service lives on");
            drop(wait);
            judged
        })
    }

    fn seen(&self) -> Vec<String> {
        std::mem::take(&mut *self.seen.lock().unwrap())
    }
}

fn or(reply: Reply) -> impl FnOnce(Result<(), Reply>) -> Reply + Send {
    move |judged| judged.err().unwrap_or(reply)
}

impl Service for TestService {
    type Context = TestContext;

    fn connected<'a>(&'a self, _: &'a Client) -> Answer<'a, Result<TestContext, Reply>> {
        self.stage("connect", "").map(|judged| judged.map(|()| TestContext::default()))
    }
    fn tls_established(&self, context: &mut TestContext, client: &Client) {
        assert!(client.tls.is_some());
        *context = TestContext::default();
    }
    fn is_trusted(&self, _: &Client) -> bool {
        self.trusted
    }
    fn hello<'a>(&'a self, context: &'a mut TestContext, name: &'a str) -> Answer<'a, Reply> {
        name.clone_into(&mut context.hello);
        self.stage("hello", name).map(or(replies::OK))
    }
    fn authenticate<'a>(&'a self, _: &'a mut TestContext, input: AuthInput) -> Answer<'a, AuthAnswer> {
        match input {
            AuthInput::Begin { initial: None, .. } => Answer::Ready(AuthAnswer::Challenge(b"who?".to_vec())),
            AuthInput::Begin { initial: Some(secret), .. } | AuthInput::Response(secret) => {
                let failed = Reply::fixed(535, Enhanced(5, 7, 8), "Authentication failed");
                let reply = if secret == b"secret" { replies::AUTHENTICATED } else { failed };
                self.stage("auth", "").map(|_| AuthAnswer::Done(reply))
            }
        }
    }
    fn sender<'a>(&'a self, context: &'a mut TestContext, envelope: &'a Envelope) -> Answer<'a, Reply> {
        context.body.clear();
        let seen = format!("{} {}", context.hello, envelope.reverse_path);
        self.stage("mail", seen).map(or(replies::SENDER_OK))
    }
    fn recipient<'a>(
        &'a self,
        _: &'a mut TestContext,
        envelope: &'a Envelope,
        recipient: &'a Recipient,
    ) -> Answer<'a, Reply> {
        let seen = format!("{} {}", envelope.recipients.len(), recipient.path);
        self.stage("rcpt", seen).map(or(replies::RECIPIENT_OK))
    }
    fn header<'a>(
        &'a self,
        _: &'a mut TestContext,
        _: &'a Envelope,
        header: &'a [u8],
    ) -> Answer<'a, Result<(), Reply>> {
        self.stage("header", String::from_utf8_lossy(header))
    }
    fn body<'a>(&'a self, context: &'a mut TestContext, piece: &'a [u8]) -> Answer<'a, Result<(), Reply>> {
        context.body.extend_from_slice(piece);
        self.stage("body", "")
    }
    fn content<'a>(
        &'a self,
        context: &'a mut TestContext,
        _: &'a Envelope,
        content: &'a ReceivedContent,
    ) -> Answer<'a, Result<(), Reply>> {
        let whole = self.whole(content.parts());
        let received = &whole[whole.len() - content.header().len() - context.body.len()..];
        assert_eq!(received, [content.header(), &context.body].concat(), "header and body are the content");
        assert!(matches!(&content.parts()[0], Part::Memory(first) if first.ends_with(b"\n")));
        self.stage("content", "")
    }
    fn next_id(&self) -> QueueId {
        QueueId(self.next.fetch_add(1, Ordering::Relaxed))
    }
    fn store(&self, _: &Self::Context, _: &Envelope, chunk: Bytes) -> Result<ChunkId, StoreError> {
        let behind = |count: u64| count.checked_sub(1);
        if self.behind.fetch_update(Ordering::Relaxed, Ordering::Relaxed, behind).is_ok() {
            return Err(StoreError::Busy);
        }
        let chunk_id = self.next.fetch_add(1, Ordering::Relaxed);
        self.chunks.lock().unwrap().insert(chunk_id, chunk);
        Ok(ChunkId(chunk_id))
    }
    async fn wait_for_space(&self) {
        tokio::task::yield_now().await;
    }
    fn discard_chunks(&self, chunk_ids: &[ChunkId]) {
        let mut chunks = self.chunks.lock().unwrap();
        for chunk_id in chunk_ids {
            assert!(chunks.remove(&chunk_id.0).is_some(), "abandoned twice");
        }
    }
    async fn commit(&self, _: &mut TestContext, draft: Draft) -> Reply {
        let content = self.whole(draft.content.parts());
        self.messages.lock().unwrap().push((draft.origin.to_string(), content));
        self.threads.lock().unwrap().push(std::thread::current().id());
        replies::ACCEPTED
    }
    fn log_reject(&self, _: &Client, _: &'static str, _: Option<&Envelope>, _: &Reply) {}
    fn log_connection(&self, _: &Client, event: ConnectionEvent<'_>) {
        if let ((Some(client), has_arrived), ConnectionEvent::Disconnected(_)) =
            (&mut *self.watched.lock().unwrap(), event)
        {
            let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
            *has_arrived = Some(rustix::net::recv(client, &mut [0][..], flags).is_ok());
        }
    }
}

impl TestService {
    fn whole(&self, parts: &[Part]) -> Vec<u8> {
        let chunks = self.chunks.lock().unwrap();
        let bytes = |part: &Part| match part {
            Part::Memory(bytes) => bytes.to_vec(),
            Part::Stored { chunk_id, .. } => chunks[&chunk_id.0].to_vec(),
        };
        parts.iter().flat_map(bytes).collect()
    }
}

struct Server {
    inbound: Arc<Inbound<TestService>>,
    service: Arc<TestService>,
    port: u16,
    certificate: rustls::pki_types::CertificateDer<'static>,
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

fn settings(limits: Limits, sessions_max: usize) -> Settings {
    Settings {
        limits: limits.into(),
        profile: Arc::new(Profile::new("mx.test")),
        auth: Arc::default(),
        end_points: inbound::EndPoints::default(),
        certificates: None,
        chunk_bytes: 1000,
        memory_bytes: 1_000_000,
        lookup_timeout: FOR_EVER,
        sessions_max,
        sessions_per_client: 100,
    }
}

async fn start(service: TestService, limits: Limits, tls: ListenTls, sessions_max: usize) -> Server {
    start_on(WorkerPool::new([Handle::current()], || false), service, limits, tls, sessions_max).await
}

async fn start_on(
    workers: Arc<WorkerPool>,
    service: TestService,
    limits: Limits,
    tls: ListenTls,
    sessions_max: usize,
) -> Server {
    let made = rcgen::generate_simple_self_signed(["mx.test".to_owned()]).unwrap();
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let config = rustls::ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let service = Arc::new(service);
    let settings = settings(limits, sessions_max);
    let inbound = Inbound::new(service.clone(), settings, Some(Arc::new(config)), workers);
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    // Its sessions have it too: who does not read them is soon noticed.
    rustix::net::sockopt::set_socket_send_buffer_size(&socket, 4096).unwrap();
    let port = socket.local_addr().unwrap().port();
    tokio::spawn(inbound.clone().listen(listener(socket, tls)));
    Server { inbound, service, port, certificate: made.cert.der().clone() }
}

fn listener(socket: std::net::TcpListener, tls: ListenTls) -> Listener {
    let options = ListenerOptions { tls, ..ListenerOptions::default() };
    Listener { label: String::new(), socket: socket.into(), options, is_drained: false }
}

/// Sends lines and reads whole replies.
struct Talker<S>(BufReader<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> Talker<S> {
    async fn reply(&mut self) -> String {
        let mut all = String::new();
        loop {
            let mut line = String::new();
            self.0.read_line(&mut line).await.unwrap();
            all += &line;
            if line.len() < 4 || line.as_bytes()[3] == b' ' {
                return all;
            }
        }
    }
    async fn say(&mut self, text: &str) -> String {
        self.0.get_mut().write_all(text.as_bytes()).await.unwrap();
        self.0.get_mut().flush().await.unwrap();
        self.reply().await
    }
    async fn expect(&mut self, text: &str, code: &str) {
        let reply = self.say(text).await;
        assert!(reply.starts_with(code), "{text:?}: {reply:?}, not {code}");
    }
    async fn is_closed(&mut self) -> bool {
        matches!(self.0.read(&mut [0; 1]).await, Ok(0) | Err(_))
    }
}

async fn connect(server: &Server) -> Talker<TcpStream> {
    Talker(BufReader::new(TcpStream::connect(("127.0.0.1", server.port)).await.unwrap()))
}

async fn secure(server: &Server, plain: TcpStream) -> Talker<tokio_rustls::client::TlsStream<TcpStream>> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(server.certificate.clone()).unwrap();
    let config = rustls::ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("mx.test").unwrap();
    Talker(BufReader::new(
        tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, plain).await.unwrap(),
    ))
}

#[tokio::test]
async fn a_message_arrives_behind_its_trace_header() {
    let server = start(TestService::default(), Limits::default(), ListenTls::StartTls, 10).await;
    let mut c = connect(&server).await;
    assert!(c.reply().await.starts_with("220 mx.test ESMTP"));
    c.expect("EHLO c.test\r\n", "250").await;
    c.0.get_mut().write_all(b"MAIL FROM:<a@b>\r\nRCPT TO:<c@d>\r\nDATA\r\n").await.unwrap();
    for code in ["250 2.1.0", "250 2.1.5", "354"] {
        assert!(c.reply().await.starts_with(code));
    }
    c.expect("Subject: x\r\n\r\n..\r\n.\r\n", "250 2.0.0").await;
    let messages = server.service.messages.lock().unwrap();
    let (origin, content) = &messages[0];
    let content = String::from_utf8(content.clone()).unwrap();
    assert!(origin.contains("helo=c.test proto=ESMTP"), "{origin}");
    assert!(content.starts_with("Received: from c.test ([127.0.0.1])\r\n\tby mx.test"), "{content}");
    assert!(content.ends_with("+0000\r\nSubject: x\r\n\r\n.\r\n"), "{content}");
}

#[tokio::test]
async fn a_listener_that_requires_tls_takes_no_mail_before_it() {
    let server = start(TestService::default(), Limits::default(), ListenTls::Required, 10).await;
    let mut c = connect(&server).await;
    c.expect("", "220 ").await;
    c.expect("EHLO c.test\r\n", "250").await;
    c.expect("MAIL FROM:<a@b>\r\n", "530 5.7.0").await;
    c.expect("STARTTLS\r\n", "220 ").await;
    let mut c = secure(&server, c.0.into_inner()).await;
    c.expect("EHLO c.test\r\n", "250").await;
    c.expect("MAIL FROM:<a@b>\r\n", "250 2.1.0").await;
}

/// A session that may send its content now.
async fn connect_up_to_data(server: &Server) -> Talker<TcpStream> {
    let mut c = connect(server).await;
    c.reply().await;
    c.expect("HELO c\r\n", "250").await;
    c.expect("MAIL FROM:<>\r\n", "250").await;
    c.expect("RCPT TO:<a@b>\r\n", "250").await;
    c.expect("DATA\r\n", "354").await;
    c
}

#[tokio::test]
async fn a_bare_lf_is_normalized_for_trusted_clients_unless_the_listener_says_otherwise() {
    use BareLf::{Normalize, Reject};
    for (trusted, bare_lf, is_taken) in [
        (true, None, true),
        (false, None, false),
        (true, Some(Reject), false),
        (false, Some(Normalize), true),
    ] {
        let service = TestService { trusted, ..TestService::default() };
        let mut server = start(service, Limits::default(), ListenTls::Off, 10).await;
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        server.port = socket.local_addr().unwrap().port();
        let options = ListenerOptions { bare_lf, ..ListenerOptions::default() };
        tokio::spawn(server.inbound.clone().listen(Listener {
            label: String::new(),
            socket: socket.into(),
            options,
            is_drained: false,
        }));
        let mut c = connect_up_to_data(&server).await;
        c.expect("a\n.\nb\r\n.\r\n", if is_taken { "250" } else { "521 5.5.2" }).await;
        let messages = server.service.messages.lock().unwrap();
        assert_eq!(messages.len(), usize::from(is_taken), "{trusted} {bare_lf:?}");
        assert!(messages.iter().all(|(_, content)| content.ends_with(b"\r\na\r\n.\r\nb\r\n")));
    }
}

#[tokio::test]
async fn the_reply_to_quit_leaves_in_one_segment_with_the_fin() {
    let server = start(TestService::default(), Limits::default(), ListenTls::Off, 10).await;
    let mut c = connect(&server).await;
    c.reply().await;
    server.service.watched.lock().unwrap().0 = Some(c.0.get_ref().as_fd().try_clone_to_owned().unwrap());
    c.expect("QUIT\r\n", "221").await;
    assert!(c.is_closed().await);
    assert_eq!(
        server.service.watched.lock().unwrap().1,
        Some(false),
        "it left before the connection was closed"
    );
}

#[tokio::test]
async fn large_content_goes_to_the_spool_in_pieces_and_comes_back_whole() {
    let server = start(TestService::default(), Limits::default(), ListenTls::StartTls, 10).await;
    let mut c = connect_up_to_data(&server).await;
    let body = "0123456789abcdef\r\n".repeat(20_000);
    c.expect(&format!("{body}.\r\n"), "250").await;
    let content = server.service.messages.lock().unwrap()[0].1.clone();
    assert!(content.ends_with(body.as_bytes()) && server.service.chunks.lock().unwrap().len() > 1);
    assert_eq!(server.inbound.budget().content_bytes(), 0);
}

#[tokio::test]
async fn no_transaction_begins_while_the_others_have_all_the_memory() {
    let server = start(TestService::default(), Limits::default(), ListenTls::StartTls, 10).await;
    server.inbound.reconfigure(Settings { memory_bytes: 3000, ..settings(Limits::default(), 10) }, None);
    let mut others = Vec::new();
    while server.inbound.budget().content_bytes() <= 3000 {
        let mut c = connect_up_to_data(&server).await;
        let before = server.inbound.budget().content_bytes();
        c.0.get_mut().write_all(("x".repeat(500) + "\r\n").as_bytes()).await.unwrap();
        while server.inbound.budget().content_bytes() == before {
            tokio::task::yield_now().await;
        }
        others.push(c);
    }
    let mut c = connect(&server).await;
    c.reply().await;
    c.expect("EHLO c\r\n", "250").await;
    c.expect("MAIL FROM:<>\r\n", "452 4.3.1").await;
    others.pop().unwrap().expect(".\r\n", "250").await;
    c.expect("MAIL FROM:<>\r\n", "250").await;
}

#[tokio::test]
async fn content_waits_for_a_disk_that_is_behind() {
    let service = TestService { behind: AtomicU64::new(50), ..TestService::default() };
    let server = start(service, Limits::default(), ListenTls::StartTls, 10).await;
    let mut c = connect_up_to_data(&server).await;
    let body = "0123456789abcdef\r\n".repeat(20_000);
    c.expect(&format!("{body}.\r\n"), "250").await;
    assert!(server.service.messages.lock().unwrap()[0].1.ends_with(body.as_bytes()));
    assert_eq!(server.service.behind.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn an_aborted_message_leaves_no_chunk() {
    let server = start(TestService::default(), Limits::default(), ListenTls::StartTls, 10).await;
    let mut c = connect(&server).await;
    c.reply().await;
    c.expect("HELO c\r\n", "250").await;
    let half = "x".repeat(4998) + "\r\n";
    for gives_up in ["RSET\r\n", "EHLO c\r\n"] {
        c.expect("MAIL FROM:<>\r\n", "250").await;
        c.expect("RCPT TO:<a@b>\r\n", "250").await;
        c.expect(&format!("BDAT 5000\r\n{half}"), "250").await;
        assert!(!server.service.chunks.lock().unwrap().is_empty());
        c.expect(gives_up, "250").await;
        assert!(server.service.chunks.lock().unwrap().is_empty(), "{gives_up}");
        assert_eq!(server.inbound.budget().content_bytes(), 0);
    }
}

#[tokio::test]
async fn starttls_and_implicit_tls_carry_mail() {
    let server = start(TestService::default(), Limits::default(), ListenTls::StartTls, 10).await;
    let mut c = connect(&server).await;
    c.reply().await;
    assert!(c.say("EHLO c\r\n").await.contains("STARTTLS"));
    c.expect("STARTTLS\r\n", "220").await;
    let mut c = secure(&server, c.0.into_inner()).await;
    assert!(!c.say("EHLO c\r\n").await.contains("STARTTLS"));
    c.expect("MAIL FROM:<>\r\n", "250").await;
    c.expect("RCPT TO:<a@b>\r\n", "250").await;
    c.expect("DATA\r\n", "354").await;
    c.expect("x\r\n.\r\n", "250").await;
    let content = String::from_utf8(server.service.messages.lock().unwrap()[0].1.clone()).unwrap();
    assert!(content.contains("(using TLSv1.3:TLS_") && content.contains("with ESMTPS"), "{content}");

    let server = start(TestService::default(), Limits::default(), ListenTls::Implicit, 10).await;
    let plain = TcpStream::connect(("127.0.0.1", server.port)).await.unwrap();
    let mut c = secure(&server, plain).await;
    assert!(c.reply().await.starts_with("220"));
    assert!(!c.say("EHLO c\r\n").await.contains("STARTTLS"));
    c.expect("QUIT\r\n", "221").await;
    assert!(c.is_closed().await);
}

#[tokio::test]
async fn one_session_too_many_is_turned_away() {
    let server = start(TestService::default(), Limits::default(), ListenTls::Off, 1).await;
    let mut first = connect(&server).await;
    assert!(first.reply().await.starts_with("220"));
    assert!(!first.say("EHLO c\r\n").await.contains("STARTTLS"), "TLS is off here");
    let mut second = connect(&server).await;
    assert!(second.reply().await.starts_with("421 4.3.2"));
    assert!(second.is_closed().await);
    first.expect("NOOP\r\n", "250").await;
}

#[tokio::test]
async fn a_client_that_sends_data_after_quit_still_gets_the_reply() {
    let server = start(TestService::default(), Limits::default(), ListenTls::Off, 10).await;
    let mut c = connect(&server).await;
    c.reply().await;
    c.expect("EHLO client.test\r\n", "250").await;
    // More than is read at once; as much as the socket takes is enough.
    let mut talk = b"QUIT\r\n".to_vec();
    talk.resize(1 << 20, b'x');
    assert!(c.0.get_mut().write(&talk).await.unwrap() > 1 << 16);
    assert!(c.reply().await.starts_with("221 2.0.0 "));
}

#[tokio::test]
async fn silence_ends_with_421() {
    let limits = Limits { command_timeout: Duration::from_millis(50), ..Limits::default() };
    let server = start(TestService::default(), limits, ListenTls::Off, 10).await;
    let mut c = connect(&server).await;
    assert!(c.reply().await.starts_with("220"));
    assert!(c.reply().await.starts_with("421 4.4.2"));
    assert!(c.is_closed().await);
}

#[tokio::test]
async fn strangers_have_less_time_while_more_than_half_of_the_sessions_are_in_use() {
    let limits = Limits { stress_command_timeout: Duration::from_millis(50), ..Limits::default() };
    let server = start(TestService::default(), limits, ListenTls::Off, 5).await;
    let mut early = Vec::new();
    for _ in 0..2 {
        early.push(connect(&server).await);
        assert!(early.last_mut().unwrap().reply().await.starts_with("220"));
    }
    let mut late = connect(&server).await;
    assert!(late.reply().await.starts_with("220"));
    assert!(late.reply().await.starts_with("421 4.4.2"));
    assert!(late.is_closed().await);
    for client in &mut early {
        client.expect("NOOP\r\n", "250").await;
    }
}

/// Longer than any of these sessions lasts, so that one that would last for ever fails.
const FOR_EVER: Duration = Duration::from_secs(120);

/// A timeout of sessions whose end a test waits for: long enough for a slow machine to say EHLO in it.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(2);

#[tokio::test]
async fn a_client_that_does_not_read_is_let_go() {
    let command_timeout = Duration::from_millis(100);
    let limits = Limits { command_timeout, junk_commands: u32::MAX, ..Limits::default() };
    let server = start(TestService::default(), limits, ListenTls::Off, 10).await;
    for last in ["", "QUIT\r\n"] {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        let mut c = socket.connect(([127, 0, 0, 1], server.port).into()).await.unwrap();
        c.readable().await.unwrap();
        let talk = "EHLO c\r\n".repeat(5000) + last;
        let talking = async { while c.write_all(talk.as_bytes()).await.is_ok() {} };
        timeout(FOR_EVER, talking).await.expect("the session is over");
        assert_eq!(server.inbound.budget().session_count(), 0);
    }
}

#[tokio::test]
async fn what_comes_byte_by_byte_is_waited_for_once() {
    let limits = Limits {
        command_timeout: COMMAND_TIMEOUT,
        transaction_timeout: COMMAND_TIMEOUT,
        ..Limits::default()
    };
    let server = start(TestService::default(), limits, ListenTls::Off, 10).await;
    let long = "x".repeat(5000);
    let drip = async |begins: &str| {
        let mut c = connect(&server).await;
        c.reply().await;
        c.expect("EHLO c\r\n", "250").await;
        c.0.get_mut().write_all(begins.as_bytes()).await.unwrap();
        let begun = Instant::now();
        let reply = loop {
            c.0.get_mut().write_all(b"x").await.unwrap();
            if let Ok(reply) = timeout(Duration::from_millis(5), c.reply()).await {
                break reply;
            }
            assert!(begun.elapsed() < FOR_EVER, "{begins:?}");
        };
        assert!(reply.starts_with("421 4.4.2"), "{begins:?}: {reply}");
    };
    tokio::join!(drip("NO"), drip(&long), drip("BDAT 1000000\r\n"));
}

#[tokio::test]
async fn a_transaction_that_was_dropped_has_no_end_to_come() {
    let (command_timeout, transaction_timeout) = (COMMAND_TIMEOUT, Duration::from_millis(20));
    let limits = Limits { command_timeout, transaction_timeout, ..Limits::default() };
    let server = start(TestService::default(), limits, ListenTls::Off, 10).await;
    let mut c = connect(&server).await;
    c.reply().await;
    c.expect("EHLO c\r\n", "250").await;
    let begun = Instant::now();
    c.expect("MAIL FROM:<>\r\nRSET\r\n", "250 2.1.0").await;
    assert!(c.reply().await.starts_with("250 2.0.0"));
    assert!(c.reply().await.starts_with("421 4.4.2"));
    assert!(begun.elapsed() >= command_timeout);
}

#[tokio::test]
async fn shutdown_tells_idle_sessions_and_lets_a_transaction_end() {
    let server = start(TestService::default(), Limits::default(), ListenTls::Off, 10).await;
    let (mut idle, mut busy) = (connect(&server).await, connect(&server).await);
    idle.reply().await;
    busy.reply().await;
    busy.expect("HELO c\r\n", "250").await;
    busy.expect("MAIL FROM:<>\r\n", "250").await;
    server.inbound.close();
    assert!(idle.reply().await.starts_with("421 4.3.2"));
    busy.expect("RCPT TO:<a@b>\r\n", "250").await;
    busy.expect("DATA\r\n", "354").await;
    busy.expect("x\r\n.\r\n", "250").await;
    assert!(busy.reply().await.starts_with("421 4.3.2"));
    assert!(TcpStream::connect(("127.0.0.1", server.port)).await.is_err(), "the listener is closed");
}

/// `unread` is what the client has sent of the next command when it has its reply.
async fn send_one(c: &mut Talker<impl AsyncRead + AsyncWrite + Unpin>, unread: &str) {
    c.expect("MAIL FROM:<>\r\n", "250").await;
    c.expect("RCPT TO:<a@b>\r\n", "250").await;
    c.expect("DATA\r\n", "354").await;
    c.expect(&format!("x\r\n.\r\n{unread}"), "250 2.0.0").await;
}

#[tokio::test]
async fn sessions_move_between_transactions_to_where_there_is_time() {
    let other = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let is_full = Arc::new(AtomicBool::new(false));
    let told = is_full.clone();
    let runtimes = [Handle::current(), other.handle().clone()];
    let workers = WorkerPool::new(runtimes, move || told.load(Ordering::Relaxed));
    let server = start_on(workers, TestService::default(), Limits::default(), ListenTls::StartTls, 10).await;
    let mut secret = connect(&server).await;
    secret.reply().await;
    secret.expect("EHLO c\r\n", "250").await;
    secret.expect("STARTTLS\r\n", "220").await;
    let mut secret = secure(&server, secret.0.into_inner()).await;
    secret.expect("EHLO c\r\n", "250").await;
    let mut plain = [connect(&server).await, connect(&server).await, connect(&server).await];
    for c in &mut plain {
        c.reply().await;
        c.expect("HELO c\r\n", "250").await;
        send_one(c, "").await;
    }
    send_one(&mut secret, "").await;
    is_full.store(true, Ordering::Relaxed);
    // Two of four go, at the end of what they are about; and a half command goes with them.
    send_one(&mut secret, "NO").await;
    send_one(&mut plain[0], "NO").await;
    send_one(&mut plain[1], "").await;
    send_one(&mut plain[2], "").await;
    secret.expect("OP\r\n", "250").await;
    plain[0].expect("OP\r\n", "250").await;
    send_one(&mut secret, "").await;
    for c in &mut plain {
        send_one(c, "").await;
        c.expect("QUIT\r\n", "221").await;
        assert!(c.is_closed().await);
    }
    let here = std::thread::current().id();
    let stayed: Vec<bool> =
        server.service.threads.lock().unwrap().iter().map(|thread| *thread == here).collect();
    assert_eq!(stayed, [[true; 8].as_slice(), &[false, false, true, true]].concat());
    other.shutdown_background();
}

/// A session that has said EHLO.
async fn greeted(server: &Server) -> Talker<TcpStream> {
    let mut c = connect(server).await;
    c.reply().await;
    c.expect("EHLO c.test\r\n", "250").await;
    c
}

async fn until(is: impl Fn() -> bool) {
    let looking = async {
        while !is() {
            tokio::task::yield_now().await;
        }
    };
    timeout(FOR_EVER, looking).await.expect("it does not happen");
}
