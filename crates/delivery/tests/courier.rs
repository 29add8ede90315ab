//! Couriers against servers that follow a script: what they say, and what becomes of each recipient.

use aws_lc_rs::digest;
use bytes::Bytes;
use delivery::{Courier, EightBit, Job, Jobs, Settings, TlsClient};
use mail::{
    Attempt, Content, Destination, Envelope, Fate, ForwardPath, Handover, Message, Outcome, Part, Place,
    QueueId, Recipient, ReversePath, SharedMessage, TlsMode, UnixMillis,
};
use num_bigint::BigUint;
use route::{Dns, DnsSettings, LmtpServer, Router, RouterSettings, Rule, Table, Target};
use rustls::{
    SignatureScheme,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader},
    net::TcpListener,
    sync::Notify,
};

// ---- the queue's side ----

/// A job's id, what became of its recipients, and how.
type Settled = (u64, Vec<(u32, Outcome)>, Attempt);

#[derive(Default)]
struct Desk {
    waiting: Mutex<VecDeque<Job>>,
    settled: Mutex<Vec<Settled>>,
    put_back: Mutex<Vec<u64>>,
    unreachable: Mutex<Vec<Outcome>>,
    more: Notify,
    closing: Mutex<bool>,
}

/// The queue for one connection.
struct Queue(Arc<Desk>);

impl Jobs for Queue {
    fn take(&self) -> Option<Job> {
        self.0.waiting.lock().unwrap().pop_front()
    }

    async fn ready(&self) {
        if self.0.waiting.lock().unwrap().is_empty() {
            self.0.more.notified().await;
        }
    }

    fn is_closing(&self) -> bool {
        *self.0.closing.lock().unwrap()
    }

    async fn message(&self, job: &Job) -> Result<SharedMessage, Outcome> {
        Ok(job.message.clone().unwrap())
    }

    async fn chunk(&self, place: Place) -> Result<Bytes, Outcome> {
        Ok(Bytes::from(format!(".chunk {}\r\n", place.0)))
    }

    fn knows(&self, recipient: &ForwardPath) -> bool {
        !recipient.as_str().starts_with("nobody@")
    }

    fn settle(&self, job: Job, mut results: Vec<(u32, Outcome)>, attempt: &Attempt) {
        results.sort_by_key(|row| row.0);
        let indexes: Vec<u32> = results.iter().map(|row| row.0).collect();
        assert_eq!(indexes, job.recipients, "every recipient exactly once");
        self.0.settled.lock().unwrap().push((job.id.0, results, attempt.clone()));
    }

    fn put_back(&self, job: Job) {
        self.0.put_back.lock().unwrap().push(job.id.0);
    }

    fn unreachable(&self, outcome: Outcome, _attempt: &Attempt) {
        self.0.unreachable.lock().unwrap().push(outcome);
    }
}

impl Desk {
    fn with(jobs: impl IntoIterator<Item = Job>) -> Arc<Self> {
        let desk = Self { waiting: Mutex::new(jobs.into_iter().collect()), ..Self::default() };
        *desk.closing.lock().unwrap() = true;
        Arc::new(desk)
    }

    /// `sent`, `deferred`, `bounced` of each recipient of a job.
    fn fates(&self, id: u64) -> Vec<&'static str> {
        let settled = self.settled.lock().unwrap();
        let row = settled.iter().find(|row| row.0 == id).unwrap_or_else(|| panic!("{id} is not settled"));
        row.1.iter().map(|(_, outcome)| outcome.fate.as_str()).collect()
    }

    fn attempt(&self, id: u64) -> Attempt {
        self.settled.lock().unwrap().iter().find(|row| row.0 == id).unwrap().2.clone()
    }
}

fn job(id: u64, recipients: u32) -> Job {
    job_of(id, recipients, Content::from_bytes(format!("Subject: {id}\r\n\r\n.dot\r\n")))
}

fn job_of(id: u64, recipients: u32, content: Content) -> Job {
    let mut envelope = Envelope::new(ReversePath::parse("a@a.test", false).unwrap());
    let path = |n| ForwardPath::parse(&format!("r{n}@b.test"), false).unwrap();
    envelope.recipients = (0..recipients).map(|n| Recipient::new(path(n))).collect();
    let message = Message { id: QueueId(id), arrived: UnixMillis(0), origin: "".into(), envelope, content };
    Job {
        id: QueueId(id),
        recipients: (0..recipients).collect(),
        message: Some(Arc::new(message)),
        queued_ms: 0,
    }
}

fn courier(
    port: u16,
    tls: TlsMode,
    lmtp: bool,
    authorities: Option<Vec<CertificateDer<'static>>>,
) -> (Courier, Destination) {
    courier_for(port, tls, lmtp, authorities, EightBit::Auto)
}

fn courier_for(
    port: u16,
    tls: TlsMode,
    lmtp: bool,
    authorities: Option<Vec<CertificateDer<'static>>>,
    eight_bit: EightBit,
) -> (Courier, Destination) {
    let (host, timeout) = ("localhost".to_owned(), Duration::from_secs(10));
    let target =
        if lmtp { Target::Lmtp(LmtpServer::Tcp { host, port }) } else { Target::Smarthost { host, port } };
    let all = Box::new(|_: &str| true) as route::Matcher;
    let destination = Table::new([(all, Rule { target, tls })], TlsMode::May).destination("b.test");
    let name_servers = vec!["127.0.0.1:9".parse().unwrap()];
    let hosts = HashMap::from([("localhost".to_owned(), vec!["127.0.0.1".parse().unwrap()])]);
    let dns = Dns::new(DnsSettings { name_servers, timeout, attempts: 1, hosts }).unwrap();
    let router =
        Router::new(dns, RouterSettings { hostname: "us.test".into(), listening: Vec::new(), mx_port: 25 });
    let settings = Settings {
        hello: "us.test".into(),
        source_address: None,
        messages_per_connection: 100,
        recipients_per_transaction: 100,
        pipeline_depth: 2,
        eight_bit,
        idle_timeout: Duration::from_millis(200),
        connect_timeout: timeout,
        greeting_timeout: timeout,
        command_timeout: timeout,
        data_timeout: timeout,
        final_timeout: timeout,
    };
    let client = TlsClient::new(authorities, rustls::ALL_VERSIONS).unwrap();
    (Courier::new(router, settings, client), destination)
}

// ---- the server's side ----

#[derive(Clone, Default)]
struct Server {
    /// Answers by the beginning of a command; `CLOSE` ends the connection; `.` is the end of content.
    answers: Vec<(&'static str, &'static str)>,
    extensions: Vec<&'static str>,
    tls: Option<Arc<rustls::ServerConfig>>,
    /// Within TLS the connection ends at this command.
    tls_breaks_at: Option<&'static str>,
    lmtp: bool,
    /// So many recipients a transaction are taken, and this is said of the others; behind 421 the connection
    /// is closed.
    too_many: Option<(usize, &'static str)>,
    /// Connections end after so many transactions, with these words if there are any.
    transactions_max: usize,
    farewell: Option<&'static str>,
    /// Connections that are accepted.
    connections_max: usize,
    /// The content of each transaction, dot-stuffed.
    contents: Arc<Mutex<Vec<Vec<u8>>>>,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn new(answers: &[(&'static str, &'static str)]) -> Self {
        let extensions = vec!["PIPELINING", "8BITMIME"];
        let (transactions_max, connections_max) = (usize::MAX, usize::MAX);
        Self { answers: answers.to_vec(), extensions, transactions_max, connections_max, ..Self::default() }
    }

    async fn start(&self) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
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

    async fn connection(self, stream: tokio::net::TcpStream) {
        let mut stream = BufReader::new(stream);
        if self.talk(&mut stream, true).await == Some("STARTTLS") {
            let acceptor = tokio_rustls::TlsAcceptor::from(self.tls.clone().unwrap());
            if let Ok(stream) = acceptor.accept(stream.into_inner()).await {
                let mut server = self.clone();
                server.answers.extend(self.tls_breaks_at.map(|command| (command, "CLOSE")));
                server.talk(&mut BufReader::new(stream), false).await;
            }
        }
    }

    fn answer(&self, command: &str) -> Option<&'static str> {
        self.answers.iter().find(|(begin, _)| command.starts_with(begin)).map(|(_, answer)| *answer)
    }

    async fn talk<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: &mut BufReader<S>,
        greet: bool,
    ) -> Option<&'static str> {
        if greet {
            say(stream, self.answer("CONNECT").unwrap_or("220 there")).await?;
        }
        let (mut accepted, mut transactions) = (0, 0);
        loop {
            let command = read_line(stream).await?;
            self.seen.lock().unwrap().push(command.clone());
            let answer = self.answer(&command);
            if answer == Some("CLOSE") {
                return None;
            }
            let is_hello = command.starts_with("EHLO") || command.starts_with("LHLO");
            let default = match command.get(..4).unwrap_or_default() {
                "MAIL" => {
                    transactions += 1;
                    accepted = 0;
                    if transactions > self.transactions_max {
                        say(stream, self.farewell?).await?;
                        return None;
                    }
                    "250 ok"
                }
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
            let answer = answer.or(too_many.map(|(_, answer)| answer)).unwrap_or(default);
            if answer == "CLOSE" {
                return None;
            }
            say(stream, answer).await?;
            if answer.starts_with("421") {
                return None;
            }
            if is_rcpt && answer.starts_with('2') {
                accepted += 1;
            }
            if command == "STARTTLS" && answer.starts_with("220") {
                return Some("STARTTLS");
            }
            if answer.starts_with("354") {
                let mut content = Vec::new();
                while !content.ends_with(b"\r\n.\r\n") {
                    if stream.read_until(b'\n', &mut content).await.ok()? == 0 {
                        return None;
                    }
                }
                self.contents.lock().unwrap().push(content);
                match self.answer(".") {
                    Some("CLOSE") => return None,
                    Some(answer) => say(stream, answer).await?,
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

    fn count(&self, begin: &str) -> usize {
        self.seen.lock().unwrap().iter().filter(|command| command.starts_with(begin)).count()
    }
}

async fn read_line<S: AsyncRead + Unpin>(stream: &mut BufReader<S>) -> Option<String> {
    let mut line = String::new();
    (stream.read_line(&mut line).await.ok()? > 0).then(|| line.trim_end().to_owned())
}

async fn say<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut BufReader<S>, text: &str) -> Option<()> {
    stream.write_all(format!("{text}\r\n").as_bytes()).await.ok()?;
    stream.flush().await.ok()
}

fn tls_server(name: &str) -> (Arc<rustls::ServerConfig>, CertificateDer<'static>) {
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

async fn deliver(server: &Server, tls: TlsMode, jobs: Vec<Job>) -> Arc<Desk> {
    let port = server.start().await;
    let desk = Desk::with(jobs);
    let (courier, destination) = courier(port, tls, server.lmtp, None);
    courier.serve(&destination, &Queue(desk.clone())).await;
    desk
}

// ---- what is promised ----

#[tokio::test]
async fn many_messages_go_over_one_connection() {
    let server = Server::new(&[]);
    let desk = deliver(&server, TlsMode::Off, (0..20).map(|id| job(id, 2)).collect()).await;
    for id in 0..20 {
        assert_eq!(desk.fates(id), ["sent", "sent"]);
    }
    assert_eq!((server.count("EHLO"), server.count("MAIL"), server.count("QUIT")), (1, 20, 1));
    assert_eq!(desk.attempt(3).handover, Handover::Relayed);
    assert!(desk.attempt(3).relay.starts_with("localhost[127.0.0.1]:"));
}

#[tokio::test]
async fn each_recipient_gets_its_own_outcome() {
    let server = Server::new(&[("RCPT TO:<r1@", "550 5.1.1 no"), ("RCPT TO:<r2@", "450 4.2.1 later")]);
    let desk = deliver(&server, TlsMode::Off, vec![job(1, 4)]).await;
    assert_eq!(desk.fates(1), ["sent", "bounced", "deferred", "sent"]);
}

#[tokio::test]
async fn recipients_that_were_too_many_follow_at_once() {
    let server = Server::new(&[]);
    let mut limited = server.clone();
    limited.extensions.push("LIMITS RCPTMAX=3");
    let desk = deliver(&limited, TlsMode::Off, vec![job(1, 7)]).await;
    assert_eq!(desk.fates(1), ["sent"; 7]);
    assert_eq!((server.count("MAIL"), server.count("RCPT")), (3, 7));
    // A server that says so only when it happens.
    let server = Server::new(&[("RCPT TO:<r5@", "452 4.5.3 too many")]);
    let desk = deliver(&server, TlsMode::Off, vec![job(1, 6)]).await;
    assert_eq!(desk.fates(1), ["sent", "sent", "sent", "sent", "sent", "deferred"]);
    assert_eq!(server.count("MAIL"), 2, "it was tried alone, too");
}

#[tokio::test]
async fn too_many_recipients_is_552_in_older_servers() {
    for answer in ["552 5.5.3 too many", "552 too many", "452 too many"] {
        let mut server = Server::new(&[("RCPT TO:<r0@", "550 5.1.1 no")]);
        server.too_many = Some((2, answer));
        let desk = deliver(&server, TlsMode::Off, vec![job(1, 6)]).await;
        assert_eq!(desk.fates(1), ["bounced", "sent", "sent", "sent", "sent", "sent"], "{answer}");
        assert_eq!(server.count("MAIL"), 3, "{answer}");
    }
    // A full mailbox is its own, and a message that is too large is so for each of them.
    for answers in [[("RCPT TO:<r1@", "552 5.2.2 full")], [(".", "552 too large")]] {
        let mut server = Server::new(&answers);
        server.answers.push(("RCPT TO:<r0@", "550 5.1.1 no"));
        let desk = deliver(&server, TlsMode::Off, vec![job(1, 2)]).await;
        assert_eq!(desk.fates(1), ["bounced", "bounced"], "{answers:?}");
        assert_eq!(server.count("MAIL"), 1, "{answers:?}");
    }
}

#[tokio::test]
async fn a_message_to_many_goes_in_transactions_of_the_configured_number_of_recipients() {
    let server = Server::new(&[]);
    let desk = deliver(&server, TlsMode::Off, vec![job(1, 250)]).await;
    assert_eq!(desk.fates(1), ["sent"; 250]);
    assert_eq!((server.count("MAIL"), server.count("RCPT"), server.count("EHLO")), (3, 250, 1));
}

#[tokio::test]
async fn too_many_recipients_in_any_form_splits_the_job() {
    for answer in ["550 5.5.3 too many", "554 5.5.3 too many", "550 4.5.3 too many", "451 4.5.3 too many"] {
        for extensions in [vec!["PIPELINING"], vec![]] {
            let server = Server { too_many: Some((2, answer)), extensions, ..Server::new(&[]) };
            let desk = deliver(&server, TlsMode::Off, vec![job(1, 5)]).await;
            assert_eq!(desk.fates(1), ["sent"; 5], "{answer}");
            assert_eq!((server.count("MAIL"), server.count("EHLO")), (3, 1), "{answer}");
        }
    }
    // Said of one recipient alone it is temporary.
    let server = Server::new(&[("RCPT TO:<r0@", "554 5.5.3 too many")]);
    let desk = deliver(&server, TlsMode::Off, vec![job(1, 1)]).await;
    let settled = desk.settled.lock().unwrap();
    assert_eq!((settled[0].1[0].1.fate, settled[0].1[0].1.status), (Fate::Deferred, mail::Enhanced(4, 5, 3)));
}

#[tokio::test]
async fn a_server_that_closes_behind_its_limit_of_recipients_gets_fewer_over_the_next_connection() {
    for answer in ["421 4.5.3 too many", "421 too many", "CLOSE"] {
        for extensions in [vec!["PIPELINING"], vec![]] {
            let server = Server { too_many: Some((3, answer)), extensions, ..Server::new(&[]) };
            let desk = deliver(&server, TlsMode::Off, vec![job(1, 7)]).await;
            assert_eq!(desk.fates(1), ["sent"; 7], "{answer}");
            assert_eq!((server.count("EHLO"), server.count("MAIL")), (2, 4), "{answer}");
            assert!(desk.put_back.lock().unwrap().is_empty());
        }
    }
    // One that takes none is tried again later.
    let server = Server { too_many: Some((0, "421 too many")), ..Server::new(&[]) };
    let desk = deliver(&server, TlsMode::Off, vec![job(1, 7)]).await;
    assert_eq!((desk.fates(1), server.count("EHLO")), (vec!["deferred"; 7], 1));
}

#[tokio::test]
async fn a_job_that_a_connection_leaves_unfinished_goes_on_over_the_next_one() {
    for farewell in [None, Some("421 4.7.0 enough"), Some("451 4.3.0 enough")] {
        for extensions in [vec!["PIPELINING", "LIMITS RCPTMAX=2"], vec!["LIMITS RCPTMAX=2"]] {
            let server = Server { transactions_max: 2, farewell, extensions, ..Server::new(&[]) };
            let desk = deliver(&server, TlsMode::Off, vec![job(1, 9)]).await;
            assert_eq!(desk.fates(1), ["sent"; 9], "{farewell:?}");
            assert_eq!(server.count("EHLO"), 3, "{farewell:?}");
        }
    }
    // The server says so behind its reply to the content.
    let server = Server {
        answers: vec![(".", "250 taken\r\n421 4.3.2 closing")],
        extensions: vec!["PIPELINING", "LIMITS RCPTMAX=2"],
        ..Server::new(&[])
    };
    let desk = deliver(&server, TlsMode::Off, vec![job(1, 5)]).await;
    assert_eq!((desk.fates(1), server.count("EHLO")), (vec!["sent"; 5], 3));
    // A message whose recipients are delivered in part waits with the others when no connection can be made.
    let server = Server { transactions_max: 1, extensions: vec!["LIMITS RCPTMAX=2"], ..Server::new(&[]) };
    let once = Server { connections_max: 1, ..server };
    let desk = deliver(&once, TlsMode::Off, vec![job(1, 3)]).await;
    assert_eq!(desk.fates(1), ["sent", "sent", "deferred"]);
    assert_eq!(desk.unreachable.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_server_that_refuses_ehlo_with_a_policy_code_is_greeted_with_helo() {
    for answer in ["550 5.7.1 EHLO is not allowed", "554 no", "502 what", "504 no"] {
        let server = Server::new(&[("EHLO", answer)]);
        let desk = deliver(&server, TlsMode::Off, vec![job(1, 2)]).await;
        assert_eq!((desk.fates(1), server.count("HELO")), (vec!["sent"; 2], 1), "{answer}");
    }
}

#[tokio::test]
async fn a_connection_that_says_451_to_mail_after_some_messages_is_replaced() {
    for extensions in [vec!["PIPELINING"], vec![]] {
        let server = Server {
            farewell: Some("451 4.3.0 too many messages"),
            transactions_max: 2,
            extensions,
            ..Server::new(&[])
        };
        let desk = deliver(&server, TlsMode::Off, (0..4).map(|id| job(id, 2)).collect()).await;
        assert_eq!((desk.fates(0), desk.fates(1)), (vec!["sent"; 2], vec!["sent"; 2]));
        assert_eq!((desk.put_back.lock().unwrap().clone(), server.count("MAIL")), (vec![2], 3));
        // It may be about the sender, whom another connection would not help; and to the first message it is
        // about the host or the message.
        let server = Server { farewell: Some("451 4.1.8 no such domain"), ..server };
        let desk = deliver(&server, TlsMode::Off, (0..3).map(|id| job(id, 1)).collect()).await;
        assert_eq!(desk.fates(2), ["deferred"]);
        let server = Server { farewell: Some("451 4.3.0 busy"), transactions_max: 0, ..server };
        let desk = deliver(&server, TlsMode::Off, vec![job(1, 1)]).await;
        assert_eq!(desk.fates(1), ["deferred"]);
    }
}

#[tokio::test]
async fn a_connection_lost_in_the_first_transaction_defers_and_later_gives_back() {
    let mut server = Server::new(&[]);
    server.transactions_max = 0;
    let desk = deliver(&server, TlsMode::Off, vec![job(1, 1)]).await;
    assert_eq!(desk.fates(1), ["deferred"]);
    let mut server = Server::new(&[]);
    server.transactions_max = 2;
    let desk = deliver(&server, TlsMode::Off, (0..3).map(|id| job(id, 1)).collect()).await;
    assert_eq!((desk.fates(0), desk.fates(1)), (vec!["sent"], vec!["sent"]));
    assert_eq!(*desk.put_back.lock().unwrap(), [2], "no attempt was made of it");
}

#[tokio::test]
async fn what_a_server_that_says_421_after_some_messages_did_not_take_goes_by_another_connection() {
    for extensions in [vec!["PIPELINING"], vec![]] {
        let server = Server {
            farewell: Some("421 4.7.0 too many messages, come again"),
            transactions_max: 2,
            extensions,
            ..Server::new(&[])
        };
        let desk = deliver(&server, TlsMode::Off, (0..4).map(|id| job(id, 2)).collect()).await;
        assert_eq!((desk.fates(0), desk.fates(1)), (vec!["sent"; 2], vec!["sent"; 2]));
        assert_eq!((desk.put_back.lock().unwrap().clone(), server.count("MAIL")), (vec![2], 3));
        // To the first it is about the host, or the mail: without a pause it would be said again.
        let server = Server { transactions_max: 0, ..server };
        let desk = deliver(&server, TlsMode::Off, vec![job(1, 1)]).await;
        assert_eq!(desk.fates(1), ["deferred"]);
    }
}

#[tokio::test]
async fn a_lost_reply_to_the_content_defers_and_never_bounces() {
    let desk = deliver(&Server::new(&[(".", "CLOSE")]), TlsMode::Off, vec![job(1, 2)]).await;
    assert_eq!(desk.fates(1), ["deferred", "deferred"]);
    let desk = deliver(&Server::new(&[(".", "nonsense")]), TlsMode::Off, vec![job(1, 1)]).await;
    assert_eq!(desk.fates(1), ["deferred"]);
}

#[tokio::test]
async fn content_that_is_refused_before_its_end_is_refused_as_the_server_says() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let mut stream = BufReader::new(listener.accept().await.unwrap().0);
        say(&mut stream, "220 there").await.unwrap();
        for answer in ["250 there", "250 ok", "250 ok", "550 5.1.1 no", "354 go"] {
            read_line(&mut stream).await.unwrap();
            say(&mut stream, answer).await.unwrap();
        }
        // Closed with most of the content unread, it is reset.
        read_line(&mut stream).await.unwrap();
        say(&mut stream, "552 5.3.4 too large").await.unwrap();
    });
    let large = Content::from_bytes("a line of the content\r\n".repeat(1_000_000));
    let desk = Desk::with([job_of(1, 2, large)]);
    let (courier, destination) = courier(port, TlsMode::Off, false, None);
    courier.serve(&destination, &Queue(desk.clone())).await;
    let settled = desk.settled.lock().unwrap();
    let said: Vec<&str> = settled[0].1.iter().map(|(_, outcome)| &*outcome.text).collect();
    assert_eq!(said, ["552 5.3.4 too large (in reply to end of DATA)", "550 5.1.1 no (in reply to RCPT TO)"]);
}

#[tokio::test]
async fn a_host_that_wants_nobody_makes_the_destination_unreachable_and_no_mail_fail() {
    let refuses_both = [("EHLO", "550 go away"), ("HELO", "550 go away")];
    for answers in [&[("CONNECT", "554 no service")][..], &refuses_both, &[("CONNECT", "421 busy")]] {
        let desk = deliver(&Server::new(answers), TlsMode::Off, vec![job(1, 1)]).await;
        let unreachable = desk.unreachable.lock().unwrap();
        assert_eq!(unreachable.len(), 1);
        assert_eq!(unreachable[0].fate, Fate::Deferred);
        assert_eq!(desk.waiting.lock().unwrap().len(), 1, "no message was touched");
    }
}

#[tokio::test]
async fn a_server_that_closes_in_the_same_breath_as_its_welcome_is_unreachable() {
    for (answer, status) in [
        ("250 there\r\n421 4.7.0 too busy", mail::Enhanced(4, 7, 0)),
        ("250 there\r\n421 too busy", mail::Enhanced(4, 4, 2)),
    ] {
        let desk = deliver(&Server::new(&[("EHLO", answer)]), TlsMode::May, vec![job(1, 1)]).await;
        let unreachable = desk.unreachable.lock().unwrap();
        assert_eq!(unreachable.len(), 1, "else the queue would open the next connection at once");
        assert_eq!((unreachable[0].fate, unreachable[0].status), (Fate::Deferred, status));
        assert!(unreachable[0].text.contains("421"), "{}", unreachable[0].text);
        assert_eq!(desk.waiting.lock().unwrap().len(), 1, "no message was touched");
    }
}

#[tokio::test]
async fn lmtp_answers_for_each_recipient() {
    let mut server = Server::new(&[("RCPT TO:<r1@", "550 5.1.1 no")]);
    server.lmtp = true;
    let desk = deliver(&server, TlsMode::Off, vec![job(1, 4)]).await;
    assert_eq!(desk.fates(1), ["sent", "bounced", "deferred", "sent"]);
    assert_eq!(desk.attempt(1).handover, Handover::Arrived);
}

#[tokio::test]
async fn content_in_the_spool_is_read_while_it_is_sent() {
    let server = Server::new(&[]);
    let facts = mail::Facts { has_dot_line: true, ..mail::Facts::default() };
    let parts: Vec<Part> = (0..5).map(|n| Part::Stored { place: Place(n), length_bytes: 10 }).collect();
    let job = job_of(1, 1, Content::new(facts, parts));
    let desk = deliver(&server, TlsMode::Off, vec![job]).await;
    assert_eq!(desk.fates(1), ["sent"]);
}

/// Delivers one message with this content, some of it in the spool, to a next hop without 8BITMIME. Gives what
/// became of it, and the content that arrived.
async fn deliver_8bit(mode: EightBit, content: Content) -> (Outcome, Option<String>) {
    let server = Server { extensions: vec!["PIPELINING", "SIZE 1000"], ..Server::new(&[]) };
    let port = server.start().await;
    let desk = Desk::with([job_of(1, 1, content)]);
    let (courier, destination) = courier_for(port, TlsMode::Off, false, None, mode);
    courier.serve(&destination, &Queue(desk.clone())).await;
    let outcome = desk.settled.lock().unwrap()[0].1[0].1.clone();
    let arrived = server.contents.lock().unwrap().pop().map(|bytes| String::from_utf8(bytes).unwrap());
    (outcome, arrived)
}

#[tokio::test]
async fn content_for_a_next_hop_without_8bitmime_is_treated_as_configured() {
    let head = "MIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\n";
    let plain = format!("{head}\r\nlittle that is not ASCII: \u{e4}\r\n");
    let signed = format!("DKIM-Signature: v=1\r\n{plain}");
    let in_header = format!("Subject: \u{e4}\r\n{plain}");
    let binary = signed.replace('\u{e4}', "\u{e4}\n");
    let encoding = "Content-Transfer-Encoding: quoted-printable\r\n\r\n";
    let converted = |content: &str| {
        let content = content.replace('\u{e4}', "=C3=A4").replace('\n', "=0A").replace("\r=0A", "\r\n");
        content.replacen("\r\n\r\n", &format!("\r\n{encoding}"), 1) + ".\r\n"
    };
    let as_it_is = |content: &str| format!("{content}.\r\n");
    for (mode, content, want) in [
        (EightBit::Auto, &plain, Some(converted(&plain))),
        (EightBit::Auto, &signed, Some(as_it_is(&signed))),
        (EightBit::Auto, &in_header, Some(as_it_is(&in_header))),
        (EightBit::Auto, &binary, Some(converted(&binary))),
        (EightBit::Convert, &plain, Some(converted(&plain))),
        (EightBit::Convert, &signed, Some(converted(&signed))),
        (EightBit::Convert, &in_header, None),
        (EightBit::Send, &plain, Some(as_it_is(&plain))),
        (EightBit::Send, &binary, None),
        (EightBit::Return, &plain, None),
        (EightBit::Return, &binary, None),
    ] {
        let (outcome, arrived) = deliver_8bit(mode, Content::from_bytes(content.clone())).await;
        assert_eq!(arrived, want, "{mode:?} {content}");
        let status = if want.is_some() { outcome.status.0 } else { 2 };
        assert_eq!((status, outcome.fate == Fate::Delivered), (2, want.is_some()), "{outcome:?}");
        if want.is_none() {
            assert_eq!(outcome.status, mail::Enhanced(5, 6, 3), "{outcome:?}");
        }
    }
}

#[tokio::test]
async fn content_in_the_spool_is_converted_piece_by_piece() {
    let facts = mail::Facts { has_dot_line: true, is_8bit: true, ..mail::Facts::default() };
    let mut parts = vec![Part::Memory("MIME-Version: 1.0\r\n\r\n\u{e4} with ASCII\r\n".into())];
    parts.extend((0..5).map(|n| Part::Stored { place: Place(n), length_bytes: 10 }));
    let (outcome, arrived) = deliver_8bit(EightBit::Auto, Content::new(facts, parts)).await;
    assert_eq!(outcome.fate, Fate::Delivered);
    let chunks: String = (0..5).map(|n| format!("=2Echunk {n}\r\n")).collect();
    let head =
        "MIME-Version: 1.0\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n=C3=A4 with ASCII\r\n";
    assert_eq!(arrived.unwrap(), format!("{head}{chunks}.\r\n"));
}

#[tokio::test]
async fn tls_is_used_when_offered_and_given_up_only_where_that_is_allowed() {
    let (config, certificate) = tls_server("localhost");
    let mut good = Server::new(&[("STARTTLS", "220 go")]);
    good.extensions.push("STARTTLS");
    good.tls = Some(config);
    let mut broken = good.clone();
    broken.answers = vec![("STARTTLS", "454 not now")];
    let plain = Server::new(&[]);
    for (server, mode, is_sent, is_secured) in [
        (&good, TlsMode::Off, true, false),
        (&good, TlsMode::May, true, true),
        (&good, TlsMode::Require, true, true),
        (&good, TlsMode::Verify, false, false),
        (&broken, TlsMode::May, true, false),
        (&broken, TlsMode::Require, false, false),
        (&plain, TlsMode::May, true, false),
        (&plain, TlsMode::Require, false, false),
        (&plain, TlsMode::Verify, false, false),
    ] {
        let desk = deliver(server, mode, vec![job(1, 1)]).await;
        assert_eq!(desk.unreachable.lock().unwrap().is_empty(), is_sent, "{mode:?}");
        if is_sent {
            assert_eq!(desk.fates(1), ["sent"], "{mode:?}");
            assert_eq!(desk.attempt(1).tls.starts_with("TLSv1.3:TLS_"), is_secured, "{mode:?}");
        }
    }
    // With its authority the host is who it says it is.
    let port = good.start().await;
    let desk = Desk::with([job(1, 1)]);
    let (courier, destination) = courier(port, TlsMode::Verify, false, Some(vec![certificate]));
    courier.serve(&destination, &Queue(desk.clone())).await;
    assert!(desk.attempt(1).tls.ends_with(":verified"), "{}", desk.attempt(1).tls);
}

/// A server with this certificate and key, whatever rustls thinks of them.
#[derive(Debug)]
struct Shows(Arc<rustls::sign::CertifiedKey>);

impl rustls::server::ResolvesServerCert for Shows {
    fn resolve(&self, _: rustls::server::ClientHello<'_>) -> Option<Arc<rustls::sign::CertifiedKey>> {
        Some(self.0.clone())
    }
}

/// The RSA key of 1,024 bits of tests/tls, which no library of ours signs with.
#[derive(Debug, Clone)]
struct SmallRsaKey {
    modulus: BigUint,
    scheme: SignatureScheme,
    /// Signs what it should not.
    lies: bool,
}

impl SmallRsaKey {
    /// EMSA-PKCS1-v1_5 or EMSA-PSS (RFC 8017 §9) of a SHA-256 digest, with a salt of zeros.
    fn encode(&self, message: &[u8]) -> Vec<u8> {
        let sha256 = |bytes: &[u8]| digest::digest(&digest::SHA256, bytes).as_ref().to_vec();
        let hash = sha256(message);
        if self.scheme == SignatureScheme::RSA_PKCS1_SHA256 {
            let prefix = b"\x30\x31\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x01\x05\x00\x04\x20";
            return [&[0, 1][..], &[0xff; 74], &[0], prefix, &hash].concat();
        }
        let seed = sha256(&[&[0; 8][..], &hash, &[0; 32]].concat());
        let mask: Vec<u8> =
            (0..3_u32).flat_map(|n| sha256(&[&seed[..], &n.to_be_bytes()].concat())).collect();
        let data = [&[0; 62][..], &[1], &[0; 32]].concat();
        let mut masked: Vec<u8> = data.iter().zip(&mask).map(|(a, b)| a ^ b).collect();
        masked[0] &= 0x7f;
        [&masked[..], &seed, &[0xbc]].concat()
    }
}

impl rustls::sign::SigningKey for SmallRsaKey {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn rustls::sign::Signer>> {
        offered.contains(&self.scheme).then(|| Box::new(self.clone()) as _)
    }

    fn algorithm(&self) -> rustls::SignatureAlgorithm {
        rustls::SignatureAlgorithm::RSA
    }
}

impl rustls::sign::Signer for SmallRsaKey {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rustls::Error> {
        let exponent = include_str!("tls/rsa1024-private-exponent.hex").trim();
        let exponent = BigUint::parse_bytes(exponent.as_bytes(), 16).unwrap();
        let message = if self.lies { b"something else" } else { message };
        let value = BigUint::from_bytes_be(&self.encode(message)).modpow(&exponent, &self.modulus);
        let bytes = value.to_bytes_be();
        Ok([&vec![0; 128 - bytes.len()][..], &bytes].concat())
    }

    fn scheme(&self) -> SignatureScheme {
        self.scheme
    }
}

fn small_rsa(scheme: SignatureScheme, lies: bool) -> rustls::sign::CertifiedKey {
    let certificate = CertificateDer::from_pem_slice(include_bytes!("tls/v1-rsa1024.pem")).unwrap();
    // RSAPublicKey: a sequence of 137 octets, in it an integer of 129.
    let begin = [0x30, 0x81, 0x89, 0x02, 0x81, 0x81, 0x00];
    let at = certificate.windows(7).position(|w| w == begin).unwrap() + 7;
    let modulus = BigUint::from_bytes_be(&certificate[at..at + 128]);
    rustls::sign::CertifiedKey::new(vec![certificate], Arc::new(SmallRsaKey { modulus, scheme, lies }))
}

#[tokio::test]
async fn tls_that_is_not_verified_takes_any_certificate_that_tls_can_use() {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let v1_ec = || {
        let certificate = CertificateDer::from_pem_slice(include_bytes!("tls/v1-ec.pem")).unwrap();
        let key = PrivateKeyDer::from_pem_slice(include_bytes!("tls/v1-ec.key")).unwrap();
        let key = provider.key_provider.load_private_key(key).unwrap();
        rustls::sign::CertifiedKey::new(vec![certificate], key)
    };
    let (pss, pkcs1) = (SignatureScheme::RSA_PSS_SHA256, SignatureScheme::RSA_PKCS1_SHA256);
    for (shown, version, is_good) in [
        (v1_ec(), &rustls::version::TLS13, true),
        (v1_ec(), &rustls::version::TLS12, true),
        (small_rsa(pss, false), &rustls::version::TLS13, true),
        (small_rsa(pss, false), &rustls::version::TLS12, true),
        (small_rsa(pkcs1, false), &rustls::version::TLS12, true),
        (small_rsa(pkcs1, true), &rustls::version::TLS12, false),
        (small_rsa(pss, true), &rustls::version::TLS13, false),
    ] {
        let config = rustls::ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[version])
            .unwrap()
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(Shows(Arc::new(shown))));
        let mut server = Server::new(&[("STARTTLS", "220 go")]);
        server.extensions.push("STARTTLS");
        server.tls = Some(Arc::new(config));
        let desk = deliver(&server, TlsMode::Require, vec![job(1, 1)]).await;
        let unreachable = desk.unreachable.lock().unwrap();
        assert_eq!(unreachable.is_empty(), is_good, "{version:?}: {unreachable:?}");
        if is_good {
            assert_eq!(desk.fates(1), ["sent"]);
            let begin =
                if version.version == rustls::ProtocolVersion::TLSv1_3 { "TLSv1.3:" } else { "TLSv1.2:" };
            assert!(desk.attempt(1).tls.starts_with(begin), "{}", desk.attempt(1).tls);
        } else {
            assert!(unreachable[0].text.contains("BadSignature"), "{}", unreachable[0].text);
        }
    }
}

#[tokio::test]
async fn an_opportunistic_handshake_that_fails_goes_on_in_clear_text() {
    // Offers STARTTLS, says go, and then has no certificate to show.
    let mut server = Server::new(&[("STARTTLS", "220 go")]);
    server.extensions.push("STARTTLS");
    let mut no_tls = server;
    no_tls.tls = Some(Arc::new(
        rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(rustls::server::ResolvesServerCertUsingSni::new())),
    ));
    let desk = deliver(&no_tls, TlsMode::May, vec![job(1, 1)]).await;
    assert_eq!(desk.fates(1), ["sent"]);
    assert_eq!(&*desk.attempt(1).tls, "");
    let desk = deliver(&no_tls, TlsMode::Require, vec![job(1, 1)]).await;
    assert_eq!(desk.unreachable.lock().unwrap()[0].status, mail::Enhanced(4, 7, 4));
}

#[tokio::test]
async fn opportunistic_tls_that_breaks_after_the_handshake_is_clear_text_in_the_next_attempt() {
    let (config, _) = tls_server("localhost");
    // Within TLS every connection breaks at once, or at the first message.
    for breaks_at in ["EHLO", "MAIL", "."] {
        let mut server = Server::new(&[("STARTTLS", "220 go")]);
        server.extensions.push("STARTTLS");
        server.tls = Some(config.clone());
        server.tls_breaks_at = Some(breaks_at);
        let port = server.start().await;
        for (mode, falls_back) in [(TlsMode::May, true), (TlsMode::Require, false)] {
            let (courier, destination) = courier(port, mode, false, None);
            let mut ends = Vec::new();
            for id in 1..=3 {
                let desk = Desk::with([job(id, 1)]);
                courier.serve(&destination, &Queue(desk.clone())).await;
                let is_sent = desk.unreachable.lock().unwrap().is_empty() && desk.fates(id) == ["sent"];
                assert!(!is_sent || desk.attempt(id).tls.is_empty());
                ends.push(is_sent);
            }
            assert_eq!(ends, [false, falls_back, falls_back], "{breaks_at} {mode:?}");
        }
    }
}

#[tokio::test]
async fn a_server_that_breaks_in_clear_text_too_is_tried_by_tls_again() {
    let (config, _) = tls_server("localhost");
    let mut server = Server::new(&[("STARTTLS", "220 go"), ("MAIL", "CLOSE")]);
    server.extensions.push("STARTTLS");
    server.tls = Some(config);
    let port = server.start().await;
    let (courier, destination) = courier(port, TlsMode::May, false, None);
    let mut secured = Vec::new();
    for id in 1..=4 {
        let desk = Desk::with([job(id, 1)]);
        courier.serve(&destination, &Queue(desk.clone())).await;
        secured.push(!desk.attempt(id).tls.is_empty());
    }
    assert_eq!(secured, [true, false, true, false]);
}

#[tokio::test]
async fn a_resting_connection_takes_the_next_job_and_leaves_when_there_is_none() {
    let server = Server::new(&[]);
    let port = server.start().await;
    let desk = Desk::with([job(1, 1)]);
    *desk.closing.lock().unwrap() = false;
    let (courier, destination) = courier(port, TlsMode::Off, false, None);
    let (queue, giving) = (Queue(desk.clone()), desk.clone());
    let serving = courier.serve(&destination, &queue);
    let giving = async move {
        while giving.settled.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        giving.waiting.lock().unwrap().push_back(job(2, 1));
        giving.more.notify_one();
    };
    tokio::join!(serving, giving);
    assert_eq!(desk.fates(2), ["sent"]);
    assert_eq!((server.count("EHLO"), server.count("QUIT")), (1, 1));
}
