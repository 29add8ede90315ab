//! The queue's side of a connection, and servers that follow a script.

use bytes::Bytes;
use delivery::{Courier, DeliverySettings, EightBit, LeasedMessage, Progress, TlsClient, WorkSource};
use mail::{
    Attempt, ChunkId, Content, Destination, Envelope, ForwardPath, HostPort, LmtpServer, Message, NextHop,
    Outcome, QueueId, Recipient, ReversePath, SharedMessage, TlsMode, UnixMillis,
};
use route::dns::{Dns, DnsSettings};
use route::{Router, RouterSettings};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::{
    collections::{HashMap, VecDeque},
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader},
    net::TcpListener,
    sync::Notify,
};

// ---- the queue's side ----

/// A lease's id, what became of its recipients, and how.
pub(crate) type Completed = (u64, Vec<(u32, Outcome)>, Attempt);

#[derive(Default)]
pub(crate) struct TestWork {
    pub(crate) waiting: Mutex<VecDeque<LeasedMessage>>,
    pub(crate) completed: Mutex<Vec<Completed>>,
    pub(crate) returned: Mutex<Vec<u64>>,
    pub(crate) unreachable: Mutex<Vec<Outcome>>,
    pub(crate) more: Notify,
    pub(crate) closing: Mutex<bool>,
    pub(crate) progress: Progress,
}

/// The queue for one connection.
pub(crate) struct Queue(pub(crate) Arc<TestWork>);

impl WorkSource for Queue {
    fn next_lease(&self) -> Option<LeasedMessage> {
        self.0.waiting.lock().unwrap().pop_front()
    }

    async fn wait_for_work(&self) {
        if self.0.waiting.lock().unwrap().is_empty() {
            self.0.more.notified().await;
        }
    }

    fn should_close(&self) -> bool {
        *self.0.closing.lock().unwrap()
    }

    async fn message(&self, lease: &LeasedMessage) -> Result<SharedMessage, Outcome> {
        Ok(lease.message.clone().unwrap())
    }

    async fn chunk(&self, chunk_id: ChunkId) -> Result<Bytes, Outcome> {
        Ok(Bytes::from(format!(".chunk {}\r\n", chunk_id.0)))
    }

    fn is_local_user(&self, recipient: &ForwardPath) -> bool {
        !recipient.as_str().starts_with("nobody@")
    }

    fn complete(&self, lease: LeasedMessage, mut results: Vec<(u32, Outcome)>, attempt: &Attempt) {
        results.sort_by_key(|row| row.0);
        let indexes: Vec<u32> = results.iter().map(|row| row.0).collect();
        assert_eq!(indexes, lease.recipients, "every recipient exactly once");
        self.0.completed.lock().unwrap().push((lease.id.0, results, attempt.clone()));
    }

    fn return_lease(&self, lease: LeasedMessage) {
        self.0.returned.lock().unwrap().push(lease.id.0);
    }

    fn progress(&self) -> &Progress {
        &self.0.progress
    }

    fn unreachable(&self, outcome: Outcome, _attempt: &Attempt) {
        self.0.unreachable.lock().unwrap().push(outcome);
    }
}

impl TestWork {
    pub(crate) fn with(work: impl IntoIterator<Item = LeasedMessage>) -> Arc<Self> {
        let work = Self { waiting: Mutex::new(work.into_iter().collect()), ..Self::default() };
        *work.closing.lock().unwrap() = true;
        Arc::new(work)
    }

    /// `sent`, `deferred`, `bounced` of each recipient of a lease.
    pub(crate) fn dispositions(&self, id: u64) -> Vec<&'static str> {
        let settled = self.completed.lock().unwrap();
        let row = settled.iter().find(|row| row.0 == id).unwrap_or_else(|| panic!("{id} is not settled"));
        row.1.iter().map(|(_, outcome)| outcome.disposition.as_str()).collect()
    }

    pub(crate) fn attempt(&self, id: u64) -> Attempt {
        self.completed.lock().unwrap().iter().find(|row| row.0 == id).unwrap().2.clone()
    }
}

pub(crate) fn lease(id: u64, recipients: u32) -> LeasedMessage {
    lease_of(id, recipients, Content::from_bytes(format!("Subject: {id}\r\n\r\n.dot\r\n")))
}

pub(crate) fn lease_of(id: u64, recipients: u32, content: Content) -> LeasedMessage {
    let mut envelope = Envelope::new(ReversePath::parse("a@a.test", false).unwrap());
    let path = |n| ForwardPath::parse(&format!("r{n}@b.test"), false).unwrap();
    envelope.recipients = (0..recipients).map(|n| Recipient::new(path(n))).collect();
    let message = Message { id: QueueId(id), arrived: UnixMillis(0), origin: "".into(), envelope, content };
    LeasedMessage {
        id: QueueId(id),
        recipients: (0..recipients).collect(),
        message: Some(Arc::new(message)),
        queued_ms: 0,
    }
}

pub(crate) fn courier(
    port: u16,
    tls: TlsMode,
    lmtp: bool,
    authorities: Option<Vec<CertificateDer<'static>>>,
) -> (Courier, Destination) {
    courier_for(port, tls, lmtp, authorities, EightBit::Auto)
}

pub(crate) fn courier_for(
    port: u16,
    tls: TlsMode,
    lmtp: bool,
    authorities: Option<Vec<CertificateDer<'static>>>,
    eight_bit: EightBit,
) -> (Courier, Destination) {
    let (host, timeout) = (HostPort { host: "localhost".to_owned(), port }, Duration::from_secs(10));
    let next_hop =
        if lmtp { NextHop::Lmtp(LmtpServer::Tcp(host).into()) } else { NextHop::Smarthost(host.into()) };
    let destination = Destination::new(next_hop, tls);
    let name_servers = vec!["127.0.0.1:9".parse().unwrap()];
    let hosts = HashMap::from([("localhost".to_owned(), vec!["127.0.0.1".parse().unwrap()])]);
    let settings = settings(eight_bit, timeout);
    (courier_with(hosts, name_servers, port, settings, authorities), destination)
}

/// Opportunistic TLS, and time limits of a moment.
pub(crate) fn courier_for_impatient(port: u16) -> (Courier, Destination) {
    let host = HostPort { host: "127.0.0.1".to_owned(), port };
    let destination = Destination::new(NextHop::Smarthost(host.into()), TlsMode::May);
    let settings = settings(EightBit::Auto, Duration::from_millis(300));
    let name_servers = vec!["127.0.0.1:9".parse().unwrap()];
    (courier_with(HashMap::new(), name_servers, 25, settings, None), destination)
}

pub(crate) fn courier_with(
    hosts: HashMap<String, Vec<IpAddr>>,
    name_servers: Vec<SocketAddr>,
    mx_port: u16,
    settings: DeliverySettings,
    authorities: Option<Vec<CertificateDer<'static>>>,
) -> Courier {
    let timeout = Duration::from_secs(10);
    let dns = Dns::new(DnsSettings {
        name_servers,
        timeout,
        attempts: 1,
        hosts,
        questions_max: 100,
        client_questions_max: 100,
    })
    .unwrap();
    let router =
        Router::new(dns, RouterSettings { hostname: "us.test".into(), listening: Vec::new(), mx_port });
    let mut roots = rustls::RootCertStore::empty();
    authorities.into_iter().flatten().for_each(|one| roots.add(one).unwrap());
    let client = TlsClient::new(roots, rustls::ALL_VERSIONS, None).unwrap();
    Courier::new(router, settings, client)
}

pub(crate) fn settings(eight_bit: EightBit, timeout: Duration) -> DeliverySettings {
    DeliverySettings {
        hello: "us.test".into(),
        follow_symlinks: false,
        separator: None,
        source_address: None,
        routes: HashMap::new(),
        messages_per_connection: 100,
        recipients_per_transaction: 100,
        pipeline_depth: 2,
        eight_bit,
        idle_timeout: Duration::from_millis(200),
        reuse_timeout: timeout,
        connect_timeout: timeout,
        greeting_timeout: timeout,
        command_timeout: timeout,
        data_timeout: timeout,
        data_done_timeout: timeout,
    }
}

// ---- the server's side ----

#[derive(Clone, Default)]
pub(crate) struct Server {
    /// Answers by the beginning of a command; `CLOSE` ends the connection, `SILENT` never answers; `.` is the end of
    /// content.
    pub(crate) answers: Vec<(&'static str, &'static str)>,
    pub(crate) extensions: Vec<&'static str>,
    pub(crate) tls: Option<Arc<rustls::ServerConfig>>,
    /// The answer to this command within TLS.
    pub(crate) tls_breaks: Option<(&'static str, &'static str)>,
    /// Set once TLS broke, where it breaks only once.
    pub(crate) tls_breaks_once: Option<Arc<AtomicBool>>,
    /// The answer to this command in clear text.
    pub(crate) clear_text_answer: Option<(&'static str, &'static str)>,
    pub(crate) lmtp: bool,
    /// Commands that arrive along with another one are dropped.
    pub(crate) drops_pipelined: bool,
    /// A packet with several commands is dropped as a whole.
    pub(crate) drops_packets: bool,
    /// So many recipients a transaction are taken, and this is said of the others; behind 421 the connection
    /// is closed.
    pub(crate) too_many: Option<(usize, &'static str)>,
    /// Transactions with more accepted recipients than this are refused at this command (`.` is the end of content)
    /// with this reply; behind 421 the connection is closed.
    pub(crate) refuses_larger: Option<(usize, &'static str, &'static str)>,
    /// Connections end after so many transactions, with these words if there are any.
    pub(crate) transactions_max: usize,
    pub(crate) close_with: Option<&'static str>,
    /// DATA commands of one connection that are answered; the connection is closed in reply to the next one.
    pub(crate) data_max: usize,
    /// Connections that are accepted.
    pub(crate) connections_max: usize,
    /// The content of each transaction, dot-stuffed.
    pub(crate) contents: Arc<Mutex<Vec<Vec<u8>>>>,
    pub(crate) seen: Arc<Mutex<Vec<String>>>,
}

impl Server {
    pub(crate) fn new(answers: &[(&'static str, &'static str)]) -> Self {
        let extensions = vec!["PIPELINING", "8BITMIME"];
        let (transactions_max, connections_max) = (usize::MAX, usize::MAX);
        let answers = answers.to_vec();
        Self {
            answers,
            extensions,
            transactions_max,
            data_max: usize::MAX,
            connections_max,
            ..Self::default()
        }
    }

    /// A server that offers STARTTLS.
    pub(crate) fn with_tls(config: Arc<rustls::ServerConfig>) -> Self {
        let mut server = Self::new(&[("STARTTLS", "220 go")]);
        server.extensions.push("STARTTLS");
        server.tls = Some(config);
        server
    }

    pub(crate) async fn start(&self) -> u16 {
        self.start_at("127.0.0.1:0".parse().unwrap()).await
    }

    pub(crate) async fn start_at(&self, address: SocketAddr) -> u16 {
        let listener = TcpListener::bind(address).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = self.clone();
        tokio::spawn(async move {
            for _ in 0..server.connections_max {
                let Ok((stream, _)) = listener.accept().await else { return };
                let server = server.clone();
                tokio::spawn(async move { server.connection(stream).await });
            }
        });
        port
    }

    pub(crate) async fn connection(self, stream: tokio::net::TcpStream) {
        // Each reply is a write of its own.
        stream.set_nodelay(true).unwrap();
        let mut stream = BufReader::new(stream);
        if self.talk(&mut stream, true).await == Some("STARTTLS") {
            let acceptor = tokio_rustls::TlsAcceptor::from(self.tls.clone().unwrap());
            if let Ok(stream) = acceptor.accept(stream.into_inner()).await {
                let mut server = self.clone();
                let has_broken =
                    self.tls_breaks_once.as_ref().is_some_and(|has| has.swap(true, Ordering::Relaxed));
                server.answers.extend(self.tls_breaks.filter(|_| !has_broken));
                server.talk(&mut BufReader::new(stream), false).await;
            }
        }
    }

    pub(crate) fn answer(&self, command: &str) -> Option<&'static str> {
        self.answers.iter().find(|(begin, _)| command.starts_with(begin)).map(|(_, answer)| *answer)
    }

    pub(crate) async fn talk<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: &mut BufReader<S>,
        greet: bool,
    ) -> Option<&'static str> {
        if greet {
            match self.answer("CONNECT") {
                Some("CLOSE") => return None,
                Some("SILENT") => std::future::pending().await,
                answer => say(stream, answer.unwrap_or("220 there")).await?,
            }
        }
        let (mut accepted, mut transactions, mut data_count) = (0, 0, 0);
        let mut has_sender = false;
        loop {
            let command = read_line(stream).await?;
            self.seen.lock().unwrap().push(command.clone());
            let clear = self.clear_text_answer.filter(|(begin, _)| greet && command.starts_with(begin));
            let answer = self.answer(&command).or(clear.map(|(_, answer)| answer));
            if answer == Some("CLOSE") {
                return None;
            }
            let has_more = !stream.buffer().is_empty();
            let is_silent = answer == Some("SILENT") || (self.drops_packets && has_more);
            if is_silent || (self.drops_pipelined && has_more) {
                stream.consume(stream.buffer().len());
            }
            if is_silent {
                continue;
            }
            let is_hello = command.starts_with("EHLO") || command.starts_with("LHLO");
            let default = match command.get(..4).unwrap_or_default() {
                "MAIL" => {
                    transactions += 1;
                    accepted = 0;
                    if transactions > self.transactions_max {
                        say(stream, self.close_with?).await?;
                        return None;
                    }
                    "250 ok"
                }
                "RCPT" if !has_sender => "503 5.5.1 MAIL first",
                "DATA" if data_count == self.data_max => return None,
                "DATA" if accepted == 0 => "554 no recipients",
                "DATA" => "354 go",
                "QUIT" => {
                    say(stream, "221 bye").await?;
                    return None;
                }
                _ => "250 ok",
            };
            if is_hello && answer.is_none() {
                let all: String = self.extensions.iter().map(|e| format!("250-{e}\r\n")).collect();
                say(stream, &format!("250-there\r\n{all}250 HELP")).await?;
                continue;
            }
            let is_rcpt = command.starts_with("RCPT");
            let too_many = self.too_many.filter(|(max, _)| is_rcpt && accepted >= *max);
            let refusal = self.refusal_of_number(&command, accepted);
            let answer = answer.or(too_many.map(|(_, answer)| answer)).or(refusal).unwrap_or(default);
            if answer == "CLOSE" {
                return None;
            }
            say(stream, answer).await?;
            if answer.starts_with("421") {
                return None;
            }
            if command.starts_with("MAIL") {
                has_sender = answer.starts_with('2');
            }
            if is_rcpt && answer.starts_with('2') {
                accepted += 1;
            }
            if command == "STARTTLS" && answer.starts_with("220") {
                return Some("STARTTLS");
            }
            if answer.starts_with("354") {
                data_count += 1;
                let mut content = Vec::new();
                while !content.ends_with(b"\r\n.\r\n") {
                    if stream.read_until(b'\n', &mut content).await.ok()? == 0 {
                        return None;
                    }
                }
                self.contents.lock().unwrap().push(content);
                match self.answer(".").or(self.refusal_of_number(".", accepted)) {
                    Some("CLOSE") => return None,
                    Some("SILENT") => std::future::pending().await,
                    Some(answer) => {
                        say(stream, answer).await?;
                        if answer.starts_with("421") {
                            return None;
                        }
                    }
                    None if self.lmtp => {
                        for n in 0..accepted {
                            say(stream, if n % 2 == 0 { "250 taken" } else { "452 4.2.2 full" }).await?;
                        }
                    }
                    None => say(stream, "250 taken").await?,
                }
            }
        }
    }

    fn refusal_of_number(&self, command: &str, accepted_count: usize) -> Option<&'static str> {
        let (max, at, answer) = self.refuses_larger?;
        (command == at && accepted_count > max).then_some(answer)
    }

    pub(crate) fn count(&self, begin: &str) -> usize {
        self.seen.lock().unwrap().iter().filter(|command| command.starts_with(begin)).count()
    }
}

pub(crate) async fn read_line<S: AsyncRead + Unpin>(stream: &mut BufReader<S>) -> Option<String> {
    let mut line = String::new();
    (stream.read_line(&mut line).await.ok()? > 0).then(|| line.trim_end().to_owned())
}

pub(crate) async fn say<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut BufReader<S>,
    text: &str,
) -> Option<()> {
    stream.write_all(format!("{text}\r\n").as_bytes()).await.ok()?;
    stream.flush().await.ok()
}

pub(crate) fn tls_server(name: &str) -> (Arc<rustls::ServerConfig>, CertificateDer<'static>) {
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
    let certificate = made.cert.der().clone();
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .unwrap();
    (Arc::new(config), certificate)
}

pub(crate) async fn deliver(server: &Server, tls: TlsMode, work: Vec<LeasedMessage>) -> Arc<TestWork> {
    let port = server.start().await;
    let work = TestWork::with(work);
    let (courier, destination) = courier(port, tls, server.lmtp, None);
    courier.serve(&destination, &Queue(work.clone())).await;
    work
}

/// Delivers as `deliver` does, and serves the destination again while a lease waits, as the queue does.
pub(crate) async fn deliver_all(server: &Server, work: Vec<LeasedMessage>) -> Arc<TestWork> {
    let port = server.start().await;
    let work = TestWork::with(work);
    let (courier, destination) = courier(port, TlsMode::Off, server.lmtp, None);
    while !work.waiting.lock().unwrap().is_empty() {
        let waiting_count = work.waiting.lock().unwrap().len();
        courier.serve(&destination, &Queue(work.clone())).await;
        assert!(work.waiting.lock().unwrap().len() < waiting_count, "a connection took no lease");
    }
    work
}
