//! Listening sockets, and a task for each session.

use crate::{
    Budget, Client, ConnectionEvent, Service, SessionPermit, Settings, UNIX_CLIENT, WorkerPool, proxy,
    session::{Session, SessionDriver, SessionEnd},
    stream::Stream,
};
use ipnet::IpNet;
use mail::{ListenerKind, Reply};
use rustix::net::{SocketFlags, acceptfrom_with};
use smtp::{
    Limits,
    proxy::Proxied,
    server::{BareLf, CommandCounts, Keyword, replies},
};
use std::{
    fmt, io,
    net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixListener,
    },
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{Interest, unix::AsyncFd},
    net::{TcpStream, UnixStream},
    sync::watch,
};
use tokio_rustls::TlsAcceptor;

/// Pause after a failed accept: without descriptors or memory, accepting again at once would only spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// When a listener uses TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListenTls {
    /// Never; STARTTLS is not offered.
    Off,
    /// After STARTTLS (RFC 3207).
    StartTls,
    /// The same, and before it commands that lead to mail are refused with 530.
    Required,
    /// From the first byte (RFC 8314 §3.3).
    Implicit,
}

/// The certificates of clients that a listener wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClientCertificates {
    /// None is asked for.
    #[default]
    Off,
    /// Clients may show one.
    Ask,
    /// Clients without a trusted one have no session.
    Require,
}

/// A socket of the network, or one in the file system.
#[derive(Debug)]
pub enum ListenSocket {
    /// A TCP socket that listens already.
    Tcp(TcpListener),
    /// A Unix socket. Its clients are [`UNIX_CLIENT`], and have no TLS: whoever may open the socket is permitted to use it.
    Unix {
        /// A Unix socket that listens already.
        socket: UnixListener,
        /// The path by which clients find it; `None` if it has none.
        path: Option<PathBuf>,
    },
}

impl ListenSocket {
    fn into_parts(self) -> io::Result<(OwnedFd, Option<SocketAddr>, bool)> {
        match self {
            Self::Tcp(socket) => {
                socket.set_nonblocking(true)?;
                let address = socket.local_addr().ok().filter(|address| !address.ip().is_unspecified());
                Ok((socket.into(), address, false))
            }
            Self::Unix { socket, .. } => {
                socket.set_nonblocking(true)?;
                Ok((socket.into(), Some(UNIX_CLIENT), true))
            }
        }
    }
}

impl fmt::Display for ListenSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(socket) => match socket.local_addr() {
                Ok(address) => address.fmt(f),
                Err(_) => f.write_str("a closed socket"),
            },
            Self::Unix { path: Some(path), .. } => write!(f, "unix:{}", path.display()),
            Self::Unix { path: None, .. } => f.write_str("a Unix socket without a name"),
        }
    }
}

impl From<TcpListener> for ListenSocket {
    fn from(socket: TcpListener) -> Self {
        Self::Tcp(socket)
    }
}

impl From<UnixListener> for ListenSocket {
    fn from(socket: UnixListener) -> Self {
        let path = socket.local_addr().ok().and_then(|at| at.as_pathname().map(Into::into));
        Self::Unix { socket, path }
    }
}

impl ListenSocket {
    fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Tcp(socket) => Self::Tcp(socket.try_clone()?),
            Self::Unix { socket, path } => Self::Unix { socket: socket.try_clone()?, path: path.clone() },
        })
    }
}

/// A socket that listens, with what its sessions need.
#[derive(Debug)]
pub struct Listener {
    /// The address as the configuration has it, by which the listener is ended ([`Inbound::take`]).
    pub label: String,
    /// The socket. What is set on it is set on its connections: TCP_NODELAY belongs there, since
    /// replies are small and awaited.
    pub socket: ListenSocket,
    /// What the configuration says of it.
    pub options: ListenerOptions,
    /// True if new sessions get 421, because an operator drains the listener.
    pub is_drained: bool,
}

/// The socket of a listener that was ended, for another one.
#[derive(Debug)]
pub struct Taken {
    /// The socket. Clients that connect meanwhile wait in its queue.
    pub socket: ListenSocket,
    /// True if the listener was drained: new sessions got 421.
    pub is_drained: bool,
}

/// The settings of a listener. The default is one of the kind mx without TLS.
#[derive(Debug, Clone)]
pub struct ListenerOptions {
    /// Mail exchange, relay, submission or LMTP.
    pub kind: ListenerKind,
    /// When TLS begins, if it does.
    pub tls: ListenTls,
    /// Whether clients are asked for a certificate.
    pub client_certificates: ClientCertificates,
    /// True if the trace field does not name a client that has authenticated.
    pub hide_client: bool,
    /// True if clients can log in, where the kind of the listener permits it.
    pub has_auth: bool,
    /// The treatment of a bare CR or LF. `None`: content of trusted clients is normalized, that of others rejected.
    pub bare_lf: Option<BareLf>,
    /// Keywords of EHLO that are not offered here.
    pub withheld: Vec<Keyword>,
    /// Largest content in bytes, where it differs from [`Settings::limits`].
    pub message_bytes: Option<u64>,
    /// Load balancers, whose connections begin with a header of the PROXY protocol.
    pub proxies: Vec<IpNet>,
    /// Time before the greeting of a client that is not trusted; one that speaks meanwhile is refused.
    pub greeting_delay: Duration,
    /// Sessions of this listener at once; the next one gets 421.
    pub sessions_max: Option<usize>,
    /// Peers that may name their clients by XCLIENT.
    pub xclient: Vec<IpNet>,
    /// Peers that may name the sources of mail by XFORWARD.
    pub xforward: Vec<IpNet>,
}

impl Default for ListenerOptions {
    fn default() -> Self {
        Self {
            kind: ListenerKind::Mx,
            tls: ListenTls::Off,
            client_certificates: ClientCertificates::Off,
            hide_client: false,
            has_auth: true,
            bare_lf: None,
            withheld: Vec::new(),
            message_bytes: None,
            proxies: Vec::new(),
            greeting_delay: Duration::ZERO,
            sessions_max: None,
            xclient: Vec::new(),
            xforward: Vec::new(),
        }
    }
}

impl ListenerOptions {
    /// Returns the treatment of a bare CR or LF for a client.
    pub(crate) fn bare_lf_of(&self, is_trusted: bool) -> BareLf {
        let usual = if is_trusted { BareLf::Normalize } else { BareLf::Reject };
        self.bare_lf.unwrap_or(usual)
    }

    /// Returns the lists of peers that may speak for their clients, each with the keyword of the command.
    pub(crate) fn peer_lists(&self) -> impl Iterator<Item = (&[IpNet], Keyword)> {
        [(&*self.xclient, Keyword::XClient), (&*self.xforward, Keyword::XForward)].into_iter()
    }
}

/// Settings that a reload can change: a session uses those of its beginning.
struct Current {
    settings: Settings,
    tls: Option<TlsAcceptor>,
}

impl Current {
    fn new(settings: Settings, tls: Option<Arc<rustls::ServerConfig>>) -> Arc<Self> {
        Arc::new(Self { settings, tls: tls.map(TlsAcceptor::from) })
    }

    /// TLS for a listener. One that wants certificates has none where these cannot be checked.
    fn tls_of(&self, wanted: ClientCertificates) -> Option<TlsAcceptor> {
        let certificates = self.settings.certificates.as_ref();
        match wanted {
            ClientCertificates::Off => self.tls.clone(),
            ClientCertificates::Ask => certificates.map(|tls| TlsAcceptor::from(tls.ask.clone())),
            ClientCertificates::Require => certificates.map(|tls| TlsAcceptor::from(tls.require.clone())),
        }
    }
}

/// Accepts and runs all sessions of the process.
pub struct Inbound<S: Service> {
    service: Arc<S>,
    budget: Arc<Budget>,
    current: Mutex<Arc<Current>>,
    closing: watch::Sender<bool>,
    workers: Arc<WorkerPool>,
    listeners: Mutex<Vec<Arc<Named>>>,
}

/// A listener, for operators who drain it and for status.
struct Named {
    /// Address and port, or the path of a Unix socket.
    name: String,
    label: String,
    kind: ListenerKind,
    /// New sessions get 421.
    is_drained: AtomicBool,
    /// A descriptor of its own, so that a reload can take the socket over while sessions are accepted on the other.
    socket: ListenSocket,
    ended: watch::Sender<bool>,
}

impl Named {
    /// Returns whether an operator means this listener by its address, its port or its kind.
    fn is_meant_by(&self, text: &str) -> bool {
        let port = self.name.parse::<SocketAddr>().map(|address| address.port().to_string());
        self.name == text || self.kind.as_str() == text || port.is_ok_and(|port| port == text)
    }
}

/// A socket that sessions are accepted on.
struct Open {
    named: Arc<Named>,
    socket: AsyncFd<OwnedFd>,
    /// Its clients need no TLS: whoever may open the socket is permitted to use it.
    is_unix: bool,
    /// Known beforehand unless it stands for all of the machine's.
    address: Option<SocketAddr>,
    options: Arc<ListenerOptions>,
    /// Each session of the listener holds a clone.
    sessions: Arc<()>,
    /// The settings of this listener's sessions, and what they were made of.
    settings: Option<(Arc<Current>, Settings)>,
}

impl Open {
    /// The settings as they are on this listener; made anew only after a reload.
    fn settings(&mut self, current: &Arc<Current>) -> &Settings {
        let is_made = self.settings.as_ref().is_some_and(|(of, _)| Arc::ptr_eq(of, current));
        if !is_made {
            let mut settings = current.settings.clone();
            let mut profile = (*settings.profile).clone();
            let is_offered = matches!(self.options.tls, ListenTls::StartTls | ListenTls::Required);
            if is_offered && current.tls.is_some() && !self.is_unix {
                profile = profile.with_starttls();
            }
            if self.options.kind.has_login() && self.options.has_auth {
                let mut auth = (*settings.auth).clone();
                // Nobody listens in on a Unix socket.
                auth.in_clear_text |= self.is_unix;
                profile = profile.with_auth(auth);
            }
            profile.is_lmtp = self.options.kind == ListenerKind::Lmtp;
            profile.needs_login = self.options.kind.needs_login();
            profile.needs_tls = profile.needs_login && !settings.auth.in_clear_text && !self.is_unix;
            profile.needs_tls |= self.options.client_certificates == ClientCertificates::Require;
            profile.needs_tls |= self.options.tls == ListenTls::Required;
            if profile.needs_login && profile.extensions.hold_max_seconds > 0 {
                profile = profile.with(Keyword::FutureRelease);
            }
            profile =
                self.options.withheld.iter().fold(profile, |profile, keyword| profile.without(*keyword));
            settings.profile = Arc::new(profile);
            if let Some(message_bytes) = self.options.message_bytes {
                settings.limits = Arc::new(Limits { message_bytes, ..(*settings.limits).clone() });
            }
            self.settings = Some((current.clone(), settings));
        }
        &self.settings.as_ref().expect("made above").1
    }
}

impl<S: Service> Inbound<S> {
    /// Creates the server; connections are accepted from [`Inbound::listen`] on.
    pub fn new(
        service: Arc<S>,
        settings: Settings,
        tls: Option<Arc<rustls::ServerConfig>>,
        workers: Arc<WorkerPool>,
    ) -> Arc<Self> {
        let current = Current::new(settings, tls);
        Arc::new(Self {
            service,
            budget: Arc::default(),
            current: Mutex::new(current),
            closing: watch::Sender::new(false),
            workers,
            listeners: Mutex::default(),
        })
    }

    /// Refuses new sessions with 421, or takes them again: of all listeners, or of those that have this address, port
    /// or kind. Sessions that have begun go on. Returns the addresses of the listeners meant.
    ///
    /// # Errors
    /// No listener is meant; the addresses of all listeners.
    pub fn set_drained(&self, listener: Option<&str>, is_drained: bool) -> Result<Vec<String>, Vec<String>> {
        let listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        let is_meant = |named: &&Arc<Named>| listener.is_none_or(|text| named.is_meant_by(text));
        let meant: Vec<&Arc<Named>> = listeners.iter().filter(is_meant).collect();
        if meant.is_empty() {
            return Err(listeners.iter().map(|named| named.name.clone()).collect());
        }
        meant.iter().for_each(|named| named.is_drained.store(is_drained, Ordering::Relaxed));
        Ok(meant.iter().map(|named| named.name.clone()).collect())
    }

    /// Returns the addresses of the listeners that refuse new sessions.
    pub fn drained(&self) -> Vec<String> {
        let listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        let drained = listeners.iter().filter(|named| named.is_drained.load(Ordering::Relaxed));
        drained.map(|named| named.name.clone()).collect()
    }

    /// Returns whether there are listeners and each of them refuses new sessions.
    pub fn is_drained(&self) -> bool {
        let listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        !listeners.is_empty() && listeners.iter().all(|named| named.is_drained.load(Ordering::Relaxed))
    }

    /// Ends the listeners of this address; their sessions go on. Returns their sockets.
    pub fn take(&self, label: &str) -> Vec<Taken> {
        let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        let (ended, left) = std::mem::take(&mut *listeners).into_iter().partition(|own| own.label == label);
        *listeners = left;
        let ended: Vec<Arc<Named>> = ended;
        let taken = ended.iter().filter_map(|own| {
            own.ended.send_replace(true);
            let is_drained = own.is_drained.load(Ordering::Relaxed);
            Some(Taken { socket: own.socket.try_clone().ok()?, is_drained })
        });
        taken.collect()
    }

    /// New settings for sessions that begin from now on; the others end as they began.
    pub fn reconfigure(&self, settings: Settings, tls: Option<Arc<rustls::ServerConfig>>) {
        let new = Current::new(settings, tls);
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = new;
    }

    /// Returns the budget that the sessions share.
    pub fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// Stops accepting connections. Sessions between transactions get 421; the others end their transactions first.
    pub fn close(&self) {
        self.closing.send_replace(true);
    }

    /// Accepts until closed or taken. Errors that accepting again may mend are logged and waited for.
    ///
    /// # Errors
    /// When the socket cannot be waited for at all.
    pub async fn listen(self: Arc<Self>, listener: Listener) -> io::Result<()> {
        let mut closing = self.closing.subscribe();
        let named = Arc::new(Named {
            name: listener.socket.to_string(),
            label: listener.label,
            kind: listener.options.kind,
            is_drained: AtomicBool::new(listener.is_drained),
            socket: listener.socket.try_clone()?,
            ended: watch::Sender::new(false),
        });
        let mut ended = named.ended.subscribe();
        let (socket, address, is_unix) = listener.socket.into_parts()?;
        #[allow(deprecated)]
        // its heir is unsafe, for types that may lie about their descriptor; this one cannot
        let socket = AsyncFd::with_interest(socket, Interest::READABLE)?;
        let (options, sessions) = (Arc::new(listener.options), Arc::default());
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner).push(named.clone());
        let mut open = Open { named, socket, is_unix, address, options, sessions, settings: None };
        loop {
            let accepted = tokio::select! {
                biased;
                _ = closing.wait_for(|closing| *closing) => {
                    // With its second descriptor, the socket would go on to take connections that nobody serves.
                    let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
                    listeners.retain(|own| !Arc::ptr_eq(own, &open.named));
                    return Ok(());
                }
                _ = ended.wait_for(|ended| *ended) => return Ok(()),
                accepted = accept(&open.socket, open.is_unix) => accepted,
            };
            match accepted {
                Ok((stream, peer)) => self.begin(stream, peer, &mut open),
                // The client was gone before we looked.
                Err(e) if e.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(e) => {
                    tracing::warn!("accept a connection: {e}");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn begin(self: &Arc<Self>, stream: Accepted, peer: SocketAddr, open: &mut Open) {
        let Ok(local) = open.address.map_or_else(|| stream.local_addr(), Ok) else { return };
        let client = Client { peer, local, listener: open.options.kind, tls: None, named: None };
        if open.named.is_drained.load(Ordering::Relaxed) {
            return self.refuse(&client, &stream, &replies::DRAINED);
        }
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let settings = open.settings(&current).clone();
        let worker = self.workers.pick_first();
        let options = open.options.clone();
        let tls = current.tls_of(options.client_certificates);
        if options.sessions_max.is_some_and(|max| Arc::strong_count(&open.sessions) > max) {
            return self.refuse_busy(&client, &stream);
        }
        let new = NewSession {
            inbound: self.clone(),
            settings,
            options,
            listener_guard: open.sessions.clone(),
            tls,
            worker,
        };
        match stream {
            Accepted::Tcp(stream) if is_in(&new.options.proxies, peer.ip()) => {
                let Some(guard) = self.budget.enter(new.settings.sessions_max, None) else {
                    return self.refuse_busy(&client, &stream);
                };
                let session = new.run_behind_proxy(client, stream, guard);
                spawn_session(self.workers.clone(), worker, peer, session);
            }
            stream => {
                if let Some(driver) = new.driver(client, &stream) {
                    spawn_session(self.workers.clone(), worker, peer, run(driver, stream));
                }
            }
        }
    }

    fn refuse_busy(&self, client: &Client, stream: impl AsFd) {
        self.refuse(client, stream, &replies::TOO_BUSY);
    }

    fn refuse(&self, client: &Client, stream: impl AsFd, reply: &Reply) {
        self.service.log_reject(client, "CONNECT", None, reply);
        reject_connection(stream, reply);
    }
}

/// A connection that was accepted, before a worker registers it with its runtime.
enum Accepted {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
}

impl Accepted {
    fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Tcp(stream) => stream.local_addr().map(canonical),
            Self::Unix(_) => Ok(UNIX_CLIENT),
        }
    }
}

impl AsFd for Accepted {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        }
    }
}

/// The address of a client that its load balancer does not know. It is in no network that anybody trusts.
const UNKNOWN_CLIENT: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0));

pub(crate) fn is_in(networks: &[IpNet], ip: IpAddr) -> bool {
    // The usual listener has none.
    !networks.is_empty() && networks.iter().any(|network| network.contains(&ip.to_canonical()))
}

/// Everything that a session of a new connection needs but its client.
struct NewSession<S: Service> {
    inbound: Arc<Inbound<S>>,
    settings: Settings,
    options: Arc<ListenerOptions>,
    listener_guard: Arc<()>,
    tls: Option<TlsAcceptor>,
    worker: usize,
}

/// Of all sessions, one in so many is not for strangers at listeners where nobody logs in.
const KEPT_FROM_STRANGERS: usize = 5;
/// One in so many is for networks that may relay only. Whoever connects to a listener where clients log in is a stranger, too,
/// until he does.
const KEPT_FOR_NETWORKS: usize = 10;
/// All clients of Unix sockets together have one in so many.
const UNIX_PART: usize = 2;

impl<S: Service> NewSession<S> {
    /// Makes the session's driver; `None` if there are too many sessions, which the client is told.
    fn driver(self, client: Client, stream: impl AsFd) -> Option<SessionDriver<S>> {
        let Self { inbound, mut settings, options, listener_guard, tls, worker } = self;
        for (_, keyword) in options.peer_lists().filter(|(peers, _)| is_in(peers, client.peer.ip())) {
            settings.profile = Arc::new((*settings.profile).clone().with(keyword));
        }
        let is_trusted = inbound.service.is_trusted(&client);
        let counted = match () {
            () if client.peer == UNIX_CLIENT => {
                Some((client.peer.ip(), settings.sessions_max.div_ceil(UNIX_PART)))
            }
            () if is_trusted => None,
            () => Some((client.peer.ip(), settings.sessions_per_client)),
        };
        let kept = match () {
            () if is_trusted => 0,
            () if client.listener.needs_login() => settings.sessions_max / KEPT_FOR_NETWORKS,
            () => settings.sessions_max / KEPT_FROM_STRANGERS,
        };
        let Some(guard) = inbound.budget.enter(settings.sessions_max - kept, counted) else {
            inbound.refuse_busy(&client, stream);
            return None;
        };
        Some(SessionDriver {
            bare_lf: options.bare_lf_of(is_trusted),
            settings,
            service: inbound.service.clone(),
            budget: inbound.budget.clone(),
            tls,
            client,
            may_certify: false,
            options,
            closing: inbound.closing.subscribe(),
            workers: inbound.workers.clone(),
            worker,
            _guard: guard,
            _listener_guard: listener_guard,
        })
    }

    /// Reads the header of a load balancer, and runs the session of the client that it names.
    async fn run_behind_proxy(
        self,
        client: Client,
        stream: std::net::TcpStream,
        guard: SessionPermit,
    ) -> io::Result<SessionEnd<S>> {
        let balancer = client.peer;
        let mut stream = TcpStream::from_std(stream)?;
        let client = match proxy::read(&mut stream).await {
            Ok(Proxied::Client { peer, local }) => {
                Client { peer: canonical(peer), local: canonical(local), ..client }
            }
            Ok(Proxied::Own) => client,
            Ok(Proxied::Unknown) => Client { peer: UNKNOWN_CLIENT, ..client },
            Err(e) => {
                tracing::warn!("a connection of the load balancer {balancer} is closed: {e}");
                return Ok(SessionEnd::Closed);
            }
        };
        // Its place is the client's now.
        drop(guard);
        let stream = stream.into_std()?;
        let Some(driver) = self.driver(client, &stream) else { return Ok(SessionEnd::Closed) };
        run(driver, Accepted::Tcp(stream)).await
    }
}

/// Runs a session on one of the workers, and on others when it moves.
fn spawn_session<S: Service>(
    workers: Arc<WorkerPool>,
    worker: usize,
    peer: SocketAddr,
    session: impl Future<Output = io::Result<SessionEnd<S>>> + Send + 'static,
) {
    let own = workers.clone();
    // On the heap by itself: each future around this one would take its size twice, and the runtime copies the whole
    // of a task when the task ends.
    let session = Box::pin(session);
    own.run(worker, async move {
        match session.await {
            Ok(SessionEnd::Closed) => {}
            Ok(SessionEnd::MigrateTo(worker, session)) => {
                spawn_session(workers, worker, peer, session.resume_on(worker));
            }
            Err(e) => tracing::debug!("session of {peer}: {e}"),
        }
    });
}

/// The next connection, not yet of any runtime.
async fn accept(socket: &AsyncFd<OwnedFd>, is_unix: bool) -> io::Result<(Accepted, SocketAddr)> {
    socket
        .async_io(Interest::READABLE, |socket| {
            let (stream, peer) = acceptfrom_with(socket, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)?;
            if is_unix {
                return Ok((Accepted::Unix(stream.into()), UNIX_CLIENT));
            }
            let peer = peer.ok_or(io::ErrorKind::ConnectionAborted)?;
            Ok((Accepted::Tcp(stream.into()), canonical(SocketAddr::try_from(peer)?)))
        })
        .await
}

/// Returns the IPv4 address of a client that came to a socket for both versions, which the kernel shows as `::ffff:192.0.2.1`
/// (RFC 4291 §2.5.5.2).
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

async fn run<S: Service>(driver: SessionDriver<S>, stream: Accepted) -> io::Result<SessionEnd<S>> {
    driver.service.log_connection(&driver.client, ConnectionEvent::Connected);
    // On the heap: it is soon over, while the session may last for hours.
    let begun = Box::pin(async {
        let (service, client) = (driver.service.clone(), driver.client.clone());
        let begun = begin(driver, stream).await;
        if !matches!(begun, Ok(Some(_))) {
            service.log_connection(&client, ConnectionEvent::Disconnected(&CommandCounts::default()));
        }
        begun
    });
    match begun.await? {
        Some(session) => session.run().await,
        None => Ok(SessionEnd::Closed),
    }
}

async fn begin<S: Service>(
    mut driver: SessionDriver<S>,
    stream: Accepted,
) -> io::Result<Option<Box<Session<S>>>> {
    let stream = match (stream, driver.options.tls) {
        (Accepted::Unix(stream), _) => Stream::Unix(UnixStream::from_std(stream)?),
        (Accepted::Tcp(stream), ListenTls::Implicit) => driver.secure(TcpStream::from_std(stream)?).await?,
        (Accepted::Tcp(stream), ListenTls::Off | ListenTls::StartTls | ListenTls::Required) => {
            Stream::Plain(TcpStream::from_std(stream)?)
        }
    };
    driver.begin(stream).await
}

/// Answers a connection that has no session with one write that does not wait, in clear text, and without a task.
fn reject_connection(stream: impl AsFd, reply: &Reply) {
    let mut line = Vec::new();
    reply.write_to(&mut line);
    let flags = rustix::net::SendFlags::DONTWAIT | rustix::net::SendFlags::NOSIGNAL;
    let _ = rustix::net::send(stream.as_fd(), &line, flags);
}
