//! Makes connections that are ready for mail: TCP, greeting, EHLO, TLS.

use crate::{
    DeliverySettings, EightBit, Progress,
    buffered_stream::{BufferedStream, Stream},
    exchanger_budget::{Exchanger, ExchangerBudget, Unproven},
    host_memory::HostMemory,
    tls::{Secured, TlsClient, TlsError, TlsFault, TlsFaults},
};
use auth::{ClientCredentials, ClientExchange, Mechanism};
use data_encoding::BASE64;
use mail::{Cause, DsnDuty, Enhanced, Outcome, Reply, ReplyStage, ReplyTo, TlsMode};
use smtp::client::{self, Connection, Event, OutputPiece, Phase, Protocol};
use std::{
    io,
    net::{IpAddr, SocketAddr},
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    net::{TcpSocket, TcpStream, UnixStream},
    time::timeout,
};

/// A connection that is ready for its first transaction.
pub(crate) struct Ready {
    pub(crate) stream: BufferedStream,
    pub(crate) connection: Connection,
    /// `mx.example.com[192.0.2.1]:25`.
    pub(crate) relay: Box<str>,
    /// The TLS version, cipher and verification; empty in clear text.
    pub(crate) tls: Box<str>,
    pub(crate) dsn_duty: DsnDuty,
    /// The address of the server; none for a Unix socket.
    pub(crate) address: Option<SocketAddr>,
    /// The next connection to the server depends on whether TLS works.
    pub(crate) is_opportunistic: bool,
    /// In clear text, because TLS did not work before.
    pub(crate) is_clear_instead: bool,
    /// Counts the connection until it delivers, if the server is a mail exchanger.
    pub(crate) unproven: Option<Unproven>,
    /// The advice if the server wants a login or TLS that only the operator can give it (530): the mail waits.
    pub(crate) login_advice: Option<&'static str>,
}

/// The settings and the TLS state that a connection is made with.
pub(crate) struct Connector<'a> {
    pub(crate) settings: &'a DeliverySettings,
    /// For AUTH; `None` sends mail without a login.
    pub(crate) login: Option<&'a ClientCredentials>,
    pub(crate) source_address: Option<IpAddr>,
    pub(crate) hello: &'a str,
    /// TLS begins with the first byte.
    pub(crate) is_implicit: bool,
    pub(crate) tls: &'a TlsClient,
    pub(crate) tls_faults: &'a TlsFaults,
    pub(crate) host_memory: &'a HostMemory,
    pub(crate) exchanger_budget: &'a ExchangerBudget,
    /// The server was found by the domain of the recipient: nobody here has a login there.
    pub(crate) is_mx: bool,
    pub(crate) mode: TlsMode,
    /// The mail requires TLS (RFC 8689): a host without is of no use, and if there is no other, the mail is returned.
    pub(crate) is_requiretls: bool,
    pub(crate) protocol: Protocol,
    /// Where the current step is kept, if operators may ask for it.
    pub(crate) progress: Option<&'a Progress>,
}

const CONNECTING: &str = "connecting";

/// REQUIRETLS support required (RFC 8689 §5).
const REQUIRETLS_NEEDED: Enhanced = Enhanced(5, 7, 30);
const REQUIRETLS_TEXT: &str = "the sender requires TLS (REQUIRETLS)";

/// Why a host could not be used, and so whether another way may work.
enum Unusable {
    /// The handshake failed: without TLS it may work.
    Handshake(TlsError),
    /// The server has no TLS, or does not begin it.
    NoTls(String),
    /// The connection was lost behind the handshake: without TLS it may work.
    BrokenTls(Outcome),
    /// The host is given up for this attempt, with this outcome.
    Deferred(Outcome),
}

impl Connector<'_> {
    /// Waits until a connection to a mail exchanger is permitted, and counts it. Other servers are the operator's, and not
    /// counted.
    ///
    /// # Errors
    /// What has as many as it may.
    pub(crate) async fn unproven(
        &self,
        address: SocketAddr,
        names: &Arc<str>,
    ) -> Result<Option<Unproven>, Exchanger> {
        if !self.is_mx {
            return Ok(None);
        }
        self.turn_to(names, "waiting for other connections to the exchangers");
        let unproven = self.exchanger_budget.wait(address.ip(), names, self.settings.connect_timeout).await;
        unproven.map(Some)
    }

    /// Connects to one address of a host.
    ///
    /// # Errors
    /// A deferral: another host, or another time, may be better.
    pub(crate) async fn tcp(&self, host: &str, address: SocketAddr) -> Result<Ready, Outcome> {
        let relay: Box<str> = format!("{host}[{}]:{}", address.ip(), address.port()).into();
        let is_clear = self.mode == TlsMode::May && self.tls_faults.wants_clear_text(address, Instant::now());
        if is_clear {
            tracing::info!("{relay}: connecting in clear text, because TLS broke before");
        }
        let mode = if is_clear { TlsMode::Off } else { self.mode };
        self.turn_to(&relay, CONNECTING);
        match self.tcp_with(host, address, &relay, mode).await {
            Ok(ready) => Ok(ready),
            Err(Unusable::BrokenTls(outcome)) if self.mode == TlsMode::May => {
                self.tls_broke(&relay, address, TlsFault::AtBegin, &outcome.text);
                Err(outcome)
            }
            // Opportunistic TLS that fails must not be worse than none (RFC 7435 §3).
            Err(Unusable::Handshake(_)) if self.mode == TlsMode::May => {
                self.turn_to(&relay, CONNECTING);
                self.tcp_with(host, address, &relay, TlsMode::Off).await.map_err(|e| self.outcome(&relay, e))
            }
            Err(unusable) => Err(self.outcome(&relay, unusable)),
        }
    }

    pub(crate) fn turn_to(&self, server: &str, step: &'static str) {
        self.progress.inspect(|progress| progress.turn_to(server, step));
    }

    fn wait(&self, step: &'static str) {
        self.progress.inspect(|progress| progress.wait(step, Duration::ZERO));
    }

    /// Notes that the next attempt to this server uses clear text.
    pub(crate) fn tls_broke(&self, relay: &str, server: SocketAddr, fault: TlsFault, why: &str) {
        tracing::warn!("{relay}: TLS does not work, clear text is next: {why}");
        self.tls_faults.add(server, fault, Instant::now());
    }

    fn outcome(&self, relay: &str, unusable: Unusable) -> Outcome {
        match unusable {
            Unusable::Deferred(outcome) | Unusable::BrokenTls(outcome) => outcome,
            // The sender prefers a failure to a hop without (RFC 8689 §4.2.1).
            Unusable::Handshake(error) if self.is_requiretls && error.is_certificate => Outcome::failed(
                REQUIRETLS_NEEDED,
                format!("{REQUIRETLS_TEXT}: the certificate of {relay}: {}", error.text),
            ),
            Unusable::NoTls(why) if self.is_requiretls => {
                Outcome::failed(REQUIRETLS_NEEDED, format!("{REQUIRETLS_TEXT}: {why}"))
            }
            Unusable::NoTls(why) => Outcome::deferred(Enhanced(4, 7, 4), why),
            Unusable::Handshake(TlsError { text: why, .. }) => {
                let status = if self.mode == TlsMode::Verify { Enhanced(4, 7, 5) } else { Enhanced(4, 7, 4) };
                Outcome::deferred(status, format!("TLS handshake with {relay}: {why}"))
            }
        }
    }

    async fn tcp_with(
        &self,
        host: &str,
        address: SocketAddr,
        relay: &str,
        mode: TlsMode,
    ) -> Result<Ready, Unusable> {
        let stream = match timeout(self.settings.connect_timeout, self.dial(address)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(e)) => return unreached(relay, &e.to_string()),
            Err(_) => return unreached(relay, "timed out"),
        };
        // Each write is a whole group of commands, which must not wait for more.
        let _ = stream.set_nodelay(true);
        let mut secured = Secured::default();
        let mut stream = if self.is_implicit {
            let (stream, how) = self.shake_hands(stream, host, mode).await?;
            secured = how;
            stream
        } else {
            BufferedStream::new(Stream::Tcp(stream))
        };
        let pipelining = !self.host_memory.wants_lock_step(address, Instant::now());
        let mut connection = self.greet(&mut stream, relay, pipelining).await?;
        if self.is_implicit {
            if mode == TlsMode::Verify {
                connection.verified();
            }
        } else if mode != TlsMode::Off {
            if connection.capabilities().starttls {
                (stream, secured) = self.secure(stream, &mut connection, host, relay, mode).await?;
            } else if mode != TlsMode::May {
                let by = if self.is_requiretls { "the message" } else { "the route" };
                return Err(Unusable::NoTls(format!("{relay} does not offer TLS, which {by} requires")));
            }
        }
        if self.is_requiretls && !connection.capabilities().requiretls {
            return Err(Unusable::NoTls(format!("{relay} does not offer REQUIRETLS")));
        }
        if self.protocol == Protocol::Lmtp && address.ip().is_loopback() {
            connection.stays_here();
        }
        if let Some(login) = self.login {
            self.log_in(&mut stream, &mut connection, login, &secured, relay).await?;
        }
        let dsn_duty = self.dsn_duty(&connection);
        Ok(Ready {
            stream,
            connection,
            relay: relay.into(),
            tls: secured.described,
            dsn_duty,
            address: Some(address),
            unproven: None,
            is_opportunistic: self.mode == TlsMode::May,
            is_clear_instead: self.mode == TlsMode::May && mode == TlsMode::Off,
            login_advice: self.login_advice(),
        })
    }

    async fn dial(&self, address: SocketAddr) -> io::Result<TcpStream> {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        if let Some(source) = self.source_address.filter(|ip| ip.is_ipv4() == address.is_ipv4()) {
            socket.bind(SocketAddr::new(source, 0))?;
        }
        socket.connect(address).await
    }

    /// Connects to a socket in the file system, without TLS.
    ///
    /// # Errors
    /// A deferral.
    pub(crate) async fn unix(&self, path: &Path) -> Result<Ready, Outcome> {
        let relay: Box<str> = format!("unix:{}", path.display()).into();
        self.turn_to(&relay, CONNECTING);
        let dialled = timeout(self.settings.connect_timeout, UnixStream::connect(path)).await;
        let stream = match dialled {
            Ok(Ok(stream)) => stream,
            Ok(Err(e)) => return unreached(&relay, &e.to_string()).map_err(|e| self.outcome(&relay, e)),
            Err(_) => return unreached(&relay, "timed out").map_err(|e| self.outcome(&relay, e)),
        };
        let mut stream = BufferedStream::new(Stream::Unix(stream));
        let mut connection =
            self.greet(&mut stream, &relay, true).await.map_err(|e| self.outcome(&relay, e))?;
        connection.stays_here();
        let dsn_duty = self.dsn_duty(&connection);
        Ok(Ready {
            stream,
            connection,
            relay,
            tls: Box::default(),
            dsn_duty,
            address: None,
            unproven: None,
            is_opportunistic: false,
            is_clear_instead: false,
            login_advice: self.login_advice(),
        })
    }

    /// Returns what the operator should do if the server replies 530. Mail to an exchanger is returned.
    fn login_advice(&self) -> Option<&'static str> {
        match (self.is_mx, self.login.is_some()) {
            (true, _) => None,
            (false, false) => Some("the route has no `login` for this server"),
            (false, true) => Some("check `login` and `tls` of the route"),
        }
    }

    /// Returns who sends DSNs about success. An LMTP server delivers; an SMTP server is known to send DSNs if it
    /// offers DSN.
    fn dsn_duty(&self, connection: &Connection) -> DsnDuty {
        match (connection.capabilities().dsn, self.protocol) {
            (true, _) => DsnDuty::NextHop,
            (false, Protocol::Lmtp) => DsnDuty::ReportDelivered,
            (false, Protocol::Smtp) => DsnDuty::ReportRelayed,
        }
    }

    /// Reads the greeting and sends EHLO.
    async fn greet(
        &self,
        stream: &mut BufferedStream,
        relay: &str,
        pipelining: bool,
    ) -> Result<Connection, Unusable> {
        let mut connection = Connection::new(client::ClientSettings {
            protocol: self.protocol,
            hello: self.hello.into(),
            depth: self.settings.pipeline_depth,
            pipelining,
            eight_bit_anyway: matches!(self.settings.eight_bit, EightBit::Auto | EightBit::Send),
        });
        match self.converse(stream, &mut connection, relay).await? {
            Event::Hello => Ok(connection),
            Event::Refused(reply) | Event::Closing(reply) => refused(relay, &reply),
            _ => unreached(relay, "the server spoke out of turn"),
        }
    }

    async fn secure(
        &self,
        mut stream: BufferedStream,
        connection: &mut Connection,
        host: &str,
        relay: &str,
        mode: TlsMode,
    ) -> Result<(BufferedStream, Secured), Unusable> {
        connection.start_tls();
        // A close or silence in reply to STARTTLS is broken TLS, too.
        let broken = |e| match e {
            Unusable::Deferred(outcome) => Unusable::BrokenTls(outcome),
            other => other,
        };
        match self.converse(&mut stream, connection, relay).await.map_err(broken)? {
            Event::StartTls => {}
            // The server offered TLS and refuses it: continue in clear text, unless the route forbids that.
            Event::NoTls(_) if mode == TlsMode::May => return Ok((stream, Secured::default())),
            Event::NoTls(reply) => {
                return Err(Unusable::NoTls(format!("{relay} refused STARTTLS: {}", reply.excerpt())));
            }
            Event::Closing(reply) => return refused(relay, &reply).map_err(broken),
            _ => return unreached(relay, "the server spoke out of turn"),
        }
        let Stream::Tcp(stream) = stream.inner else { unreachable!("only TCP is secured, and once") };
        let (mut stream, secured) = self.shake_hands(stream, host, mode).await?;
        connection.secured();
        if mode == TlsMode::Verify {
            connection.verified();
        }
        let news = self.converse(&mut stream, connection, relay).await;
        match news.map_err(broken)? {
            Event::Hello => Ok((stream, secured)),
            Event::Refused(reply) | Event::Closing(reply) => refused(relay, &reply),
            _ => unreached(relay, "the server spoke out of turn"),
        }
    }

    async fn shake_hands(
        &self,
        stream: TcpStream,
        host: &str,
        mode: TlsMode,
    ) -> Result<(BufferedStream, Secured), Unusable> {
        self.wait("performing the TLS handshake");
        let handshake = self.tls.handshake(stream, host, mode, self.login.is_some());
        match timeout(self.settings.greeting_timeout, handshake).await {
            Ok(Ok((stream, secured))) => Ok((BufferedStream::new(Stream::Tls(Box::new(stream))), secured)),
            Ok(Err(why)) => Err(Unusable::Handshake(why)),
            Err(_) => Err(Unusable::Handshake(TlsError::other("timed out"))),
        }
    }

    /// Logs in with the strongest mechanism that both sides have (RFC 4954).
    ///
    /// # Errors
    /// A deferral: a wrong password is a matter of the configuration, and not of the mail.
    async fn log_in(
        &self,
        stream: &mut BufferedStream,
        connection: &mut Connection,
        login: &ClientCredentials,
        secured: &Secured,
        relay: &str,
    ) -> Result<(), Unusable> {
        let failed = |why: String| {
            let text = format!("{relay}: cannot log in as {}: {why}", login.user);
            deferred(Enhanced(4, 7, 8), text)
        };
        if secured.described.is_empty() {
            return failed("the connection has no TLS".to_owned());
        }
        let offered = &connection.capabilities().auth;
        let can_use = |one: &Mechanism| {
            let is_offered = offered.iter().any(|name| **name == *one.as_str());
            is_offered && USABLE.contains(one) && (!one.is_plus() || secured.bindings.best().is_some())
        };
        let Some(mechanism) = Mechanism::all().find(can_use) else {
            return failed(match &offered[..] {
                [] => "the server offers no login (AUTH)".to_owned(),
                names => {
                    format!("the server offers no mechanism that can be used, only: {}", names.join(" "))
                }
            });
        };
        let begun = ClientExchange::begin(mechanism, login, &secured.bindings, &nonce());
        let (mut exchange, initial) = match begun {
            Ok(begun) => begun,
            Err(why) => return failed(why.to_string()),
        };
        let mut line = match &initial {
            Some(initial) => format!("AUTH {mechanism} {}", encoded(initial)),
            None => format!("AUTH {mechanism}"),
        };
        loop {
            connection.authenticate(&line);
            let reply = match self.converse(stream, connection, relay).await? {
                Event::Auth(reply) => reply,
                Event::Closing(reply) => return refused(relay, &reply),
                _ => return unreached(relay, "the server spoke out of turn"),
            };
            match reply.code {
                235 if exchange.may_succeed() => return Ok(()),
                235 => {
                    return failed(format!("{mechanism}: the server did not prove that it knows the user"));
                }
                334 => {}
                _ => return failed(format!("{mechanism}: {}", reply.excerpt())),
            }
            let challenge = BASE64.decode(reply.text().trim().as_bytes());
            let Ok(challenge) = challenge else {
                return failed(format!("{mechanism}: a challenge is no base64"));
            };
            // The connection is closed without a word to a server that cannot be trusted.
            line = match exchange.respond(&challenge) {
                Ok(response) => encoded(&response),
                Err(why) => return failed(format!("{mechanism}: {why}")),
            };
        }
    }

    /// Sends a question that was begun, and returns its answer.
    ///
    /// # Errors
    /// A deferral: the connection was lost, or the server closes it.
    pub(crate) async fn answer(&self, ready: &mut Ready) -> Result<Reply, Outcome> {
        let answered = match self.converse(&mut ready.stream, &mut ready.connection, &ready.relay).await {
            Ok(Event::Answer(reply)) => Ok(reply),
            Ok(Event::Closing(reply)) => refused(&ready.relay, &reply),
            Ok(_) => unreached(&ready.relay, "the server spoke out of turn"),
            Err(unusable) => Err(unusable),
        };
        answered.map_err(|unusable| self.outcome(&ready.relay, unusable))
    }

    /// Writes and reads until the connection has an event.
    async fn converse(
        &self,
        stream: &mut BufferedStream,
        connection: &mut Connection,
        relay: &str,
    ) -> Result<Event, Unusable> {
        loop {
            if let Some(event) = connection.next_event() {
                // A server that accepts and closes at once takes no mail: the event is its 421.
                let is_welcome = matches!(event, Event::Hello | Event::NoTls(_));
                if is_welcome && connection.is_closing() {
                    continue;
                }
                return Ok(event);
            }
            while let Some(piece) = connection.next_piece() {
                match piece {
                    OutputPiece::Text(text) => stream.push(text.into()),
                    OutputPiece::Content(_) | OutputPiece::Load(_) => {
                        unreachable!("no transaction has begun")
                    }
                }
            }
            let reply_timeout = reply_timeout(self.settings, connection.phase());
            let step = connection.step();
            self.wait(step);
            let lost = |e: io::Error| unusable(Enhanced(4, 4, 2), lost(relay, step, reply_timeout, &e));
            stream.flush(reply_timeout).await.map_err(lost)?;
            let bytes = stream.read(reply_timeout).await.map_err(lost)?;
            let read = connection.receive(bytes);
            read.map_err(|e| {
                unusable(Enhanced(4, 5, 0), format!("talk to {relay} while {}: {e}", connection.step()))
            })?;
        }
    }
}

/// Mechanisms that log in with a name and a password.
const USABLE: [Mechanism; 6] = [
    Mechanism::ScramSha256Plus,
    Mechanism::ScramSha256,
    Mechanism::ScramSha1Plus,
    Mechanism::ScramSha1,
    Mechanism::Plain,
    Mechanism::Login,
];

/// Returns a message of an exchange as it is sent. An empty initial response is `=` (RFC 4954 §4), but no mechanism here has one.
fn encoded(message: &[u8]) -> String {
    BASE64.encode(message)
}

/// Returns a nonce that nobody can guess.
fn nonce() -> String {
    let mut octets = [0; 18];
    match aws_lc_rs::rand::fill(&mut octets) {
        Ok(()) => BASE64.encode(&octets),
        Err(_) => unreachable!("the operating system has random numbers"),
    }
}

/// Returns the time limit for the reply in each phase (RFC 5321 §4.5.3.2).
pub(crate) fn reply_timeout(settings: &DeliverySettings, phase: Phase) -> Duration {
    match phase {
        Phase::Greeting => settings.greeting_timeout,
        Phase::Command => settings.command_timeout,
        Phase::Data => settings.data_timeout,
        Phase::Final => settings.data_done_timeout,
        Phase::Idle => settings.idle_timeout,
    }
}

/// Says that a connection was lost, and what was being done.
pub(crate) fn lost(relay: &str, step: &str, limit: Duration, e: &io::Error) -> String {
    if e.kind() == io::ErrorKind::TimedOut {
        format!("conversation with {relay} timed out while {step}: no progress within {limit:?}")
    } else {
        format!("lost connection with {relay} while {step}: {e}")
    }
}

fn unusable(status: Enhanced, text: String) -> Unusable {
    Unusable::Deferred(Outcome::deferred(status, text))
}

fn deferred<T>(status: Enhanced, text: String) -> Result<T, Unusable> {
    Err(unusable(status, text))
}

fn unreached<T>(relay: &str, why: &str) -> Result<T, Unusable> {
    deferred(Enhanced(4, 4, 1), format!("connect to {relay}: {why}"))
}

/// Returns the outcome of a host that refuses the connection. Even a 5yz is about the host, not about the mail.
fn refused<T>(relay: &str, reply: &Reply) -> Result<T, Unusable> {
    let unsaid = if reply.code == 421 { Enhanced(4, 4, 2) } else { Enhanced(4, 4, 0) };
    let status = reply.enhanced.map_or(unsaid, |e| Enhanced(4, e.1, e.2));
    let text = format!("{relay} refused to talk to us: {}", reply.excerpt());
    let cause = Cause::Reply(ReplyTo::new(reply, ReplyStage::Connect));
    Err(Unusable::Deferred(Outcome { from_remote: true, cause, ..Outcome::deferred(status, text) }))
}
