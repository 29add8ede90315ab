//! The questions of a session to the daemon, and how they are answered: at once, or later.

use auth::ChannelBindings;
use bytes::Bytes;
use mail::{
    Answer, ChunkId, ClientCertificate, Envelope, ListenerKind, Origin, QueueId, ReceivedContent, Recipient,
    Reply, UnixMillis,
};
use rustls::pki_types::CertificateDer;
use smtp::{
    Limits,
    forwarded::{Attribute, ClientAttributes},
    server::{Auth, AuthInput, CommandCounts, Keyword, Profile, Query, replies},
};
use std::{
    future::Future,
    io,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

/// The address that stands for a client on a Unix socket, and for the socket itself. No client of the network has it.
pub const UNIX_CLIENT: SocketAddr = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0);

/// What a service may know of a client's connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    /// Where the connection comes from; [`UNIX_CLIENT`] on a Unix socket.
    pub peer: SocketAddr,
    /// The address and port to which the client connected.
    pub local: SocketAddr,
    /// The kind of the listener that the client connected to.
    pub listener: ListenerKind,
    /// `None` in clear text.
    pub tls: Option<ClientTls>,
    /// What a listed peer said by XCLIENT or XFORWARD; `None` before it did.
    pub named: Option<Box<NamedClient>>,
}

/// The words of a peer that may speak for its clients.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NamedClient {
    /// XCLIENT: the host name of the client.
    pub name: Attribute<Box<str>>,
    /// XCLIENT: the login of the client. It permits nothing.
    pub login: Option<Box<str>>,
    /// XFORWARD: the client from whom the peer has the open message, or the next one.
    pub source: Option<Box<ClientAttributes>>,
}

/// What the TLS handshake of a client has agreed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientTls {
    /// `TLSv1.3:TLS_AES_256_GCM_SHA384`.
    pub cipher: Box<str>,
    /// The group of the key exchange: `X25519MLKEM768`. None in a resumed session of TLS 1.2.
    pub key_exchange: Option<&'static str>,
    /// The channel bindings, where AUTH is offered.
    pub bindings: Option<Box<ChannelBindings>>,
    /// The client's certificate, where the listener asks for one.
    pub certificate: Option<Arc<ClientCertificate>>,
}

impl Client {
    /// Returns what XFORWARD said about the source of the message.
    pub fn source(&self) -> Option<&ClientAttributes> {
        self.named.as_ref().and_then(|named| named.source.as_deref())
    }

    /// Returns the certificate that the client showed; `None` without TLS, too.
    pub fn certificate(&self) -> Option<&Arc<ClientCertificate>> {
        self.tls.as_ref().and_then(|tls| tls.certificate.as_ref())
    }

    /// Returns TLS version and cipher suite, when TLS is active.
    pub fn cipher(&self) -> Option<&str> {
        self.tls.as_ref().map(|tls| &*tls.cipher)
    }
}

/// A message whose content has arrived, to be judged and stored.
#[derive(Debug)]
pub struct Draft {
    /// Given to the trace field.
    pub id: QueueId,
    /// When the end of the content arrived.
    pub arrived: UnixMillis,
    /// For the trace field and the log.
    pub origin: Origin,
    /// The envelope as the client gave it.
    pub envelope: Envelope,
    /// The content, with the trace field of this server at its front.
    pub content: ReceivedContent,
}

/// The service's reply in an authentication exchange.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuthAnswer {
    /// The client has to answer this challenge.
    Challenge(Vec<u8>),
    /// The exchange is over: a positive reply if the client is authenticated.
    Done(Reply),
}

/// The reason why a chunk of content was not stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreError {
    /// The spool is busy: retry after [`Service::wait_for_space`].
    Busy,
    /// The message is refused with this reply.
    Refused(Reply),
}

/// The daemon's side of a session: the stages that a message passes, and the spool's promise.
///
/// A stage that is answered at once costs a session nothing. A session writes its replies before it waits for an answer,
/// waits for at most [`Settings::lookup_timeout`], and drops the future when it ends. Stages are the methods that return an [`Answer`]. A session calls
/// them one at a time: `connected` once; `hello` for each EHLO; in each transaction `sender` once, `recipient` for each RCPT,
/// `header` once, `body` for each piece, `content` once, and then `commit`. After a refusal of `header` or `body` nothing
/// more is asked about the message.
pub trait Service: Send + Sync + 'static {
    /// The service's context of a session, from its first stage to the last.
    type Context: Send;

    /// A client is connected, or was named by XCLIENT: may it have a session? A refusal is its greeting.
    fn connected<'a>(&'a self, client: &'a Client) -> Answer<'a, Result<Self::Context, Reply>>;

    /// A TLS handshake is done. What the client said before does not count any more (RFC 3207 §4.2).
    fn tls_established(&self, context: &mut Self::Context, client: &Client);

    /// Returns true if the client is one of ours; its early input is permitted. Called before there is a session.
    fn is_trusted(&self, client: &Client) -> bool;

    /// EHLO or HELO. Of a positive reply only the fact counts.
    fn hello<'a>(&'a self, context: &'a mut Self::Context, name: &'a str) -> Answer<'a, Reply>;

    /// AUTH, or a response to a challenge. Called only where the listener's profile has mechanisms.
    fn authenticate<'a>(&'a self, context: &'a mut Self::Context, input: AuthInput)
    -> Answer<'a, AuthAnswer>;

    /// MAIL: may the client begin a transaction? Back-pressure belongs here: never after the content where it can be
    /// helped.
    fn sender<'a>(&'a self, context: &'a mut Self::Context, envelope: &'a Envelope) -> Answer<'a, Reply>;

    /// Returns false if EHLO's reply to this client shall leave out the keyword of VRFY, EXPN or ETRN, because the
    /// command is refused to it. Asked after [`Service::hello`].
    fn offers(&self, _: &Self::Context, _: Keyword) -> bool {
        true
    }

    /// VRFY, EXPN or ETRN, where the listener's profile has the keyword.
    fn query<'a>(&'a self, _: &'a mut Self::Context, _: Query) -> Answer<'a, Reply> {
        Answer::Ready(replies::NOT_OFFERED)
    }

    /// RCPT: may the client mail this recipient? It is not in the envelope yet.
    fn recipient<'a>(
        &'a self,
        context: &'a mut Self::Context,
        envelope: &'a Envelope,
        recipient: &'a Recipient,
    ) -> Answer<'a, Reply>;

    /// Returns an id for the message whose content begins.
    fn next_id(&self) -> QueueId;

    /// Returns the time by the wall clock.
    fn now(&self) -> UnixMillis {
        UnixMillis::now()
    }

    /// The header is complete: may the body follow? `header` is without the trace field, and has the empty line that
    /// ends it; it ends without one before a line that is no field.
    ///
    /// # Errors
    /// The reply that refuses the message, given at the end of its content.
    fn header<'a>(
        &'a self,
        context: &'a mut Self::Context,
        envelope: &'a Envelope,
        header: &'a [u8],
    ) -> Answer<'a, Result<(), Reply>>;

    /// Octets of the body, in order.
    ///
    /// # Errors
    /// The reply that refuses the message, given at the end of its content.
    fn body<'a>(&'a self, context: &'a mut Self::Context, piece: &'a [u8]) -> Answer<'a, Result<(), Reply>>;

    /// The content is complete: is the message accepted?
    ///
    /// # Errors
    /// The reply for the client.
    fn content<'a>(
        &'a self,
        context: &'a mut Self::Context,
        envelope: &'a Envelope,
        content: &'a ReceivedContent,
    ) -> Answer<'a, Result<(), Reply>>;

    /// Makes the message durable and queues it. The reply is for the client; positive only when the message would survive
    /// a power cut, or when a check has discarded it.
    fn commit(&self, context: &mut Self::Context, draft: Draft) -> impl Future<Output = Reply> + Send;

    /// Returns whether [`Self::commit`] may refuse what a message says. Then the log gets its sender and recipients, of which a copy
    /// is made.
    fn judges_at_commit(&self, _context: &Self::Context) -> bool {
        false
    }

    /// Puts a piece of content into the spool while the rest arrives: all pieces of an envelope to where
    /// its message will be.
    ///
    /// # Errors
    /// When there is no room for it, or none yet.
    fn store(
        &self,
        context: &Self::Context,
        envelope: &Envelope,
        chunk: Bytes,
    ) -> Result<ChunkId, StoreError>;

    /// Resolves when storing is worth another try.
    fn wait_for_space(&self) -> impl Future<Output = ()> + Send;

    /// Gives back chunks that no message will name.
    fn discard_chunks(&self, chunk_ids: &[ChunkId]);

    /// A refusal worth a line in the log, but not of AUTH, which the service logs itself: at which command, the reply, and what it was about.
    fn log_reject(&self, client: &Client, stage: &'static str, envelope: Option<&Envelope>, reply: &Reply);

    /// Something happened to a connection that may be worth a line in the log.
    fn log_connection(&self, _: &Client, _: ConnectionEvent<'_>) {}
}

/// What happens to a connection besides its commands, for the log.
#[derive(Debug)]
pub enum ConnectionEvent<'a> {
    /// The client is connected, and there is room for its session.
    Connected,
    /// The client has done a TLS handshake: after STARTTLS, or at once.
    TlsEstablished,
    /// A TLS handshake failed, and the connection ends.
    TlsFailed(&'a io::Error),
    /// The session ends, and the client has not sent QUIT. `after`: the last command.
    Broken {
        /// Why it ended.
        cause: Break,
        /// The verb of the last command, such as `RCPT`.
        after: &'static str,
    },
    /// The connection is closed; these are the commands that it sent.
    Disconnected(&'a CommandCounts),
}

/// The cause of the end of a session whose client has not sent QUIT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Break {
    /// The client closed the connection, or the network did.
    Lost,
    /// The client sent nothing, or read nothing, for too long.
    Timeout,
    /// The client made too many errors.
    TooManyErrors,
    /// The client sent commands before it could know the reply to others.
    OutOfSync,
    /// The client speaks another protocol: HTTP.
    OtherProtocol,
}

impl Break {
    /// Returns the cause that a last reply tells; `None` for the end of an orderly session.
    pub(crate) fn of_reply(reply: &Reply) -> Option<Self> {
        let too_many = [replies::TOO_MANY_ERRORS, replies::TOO_MANY_REFUSED, replies::TOO_MUCH_JUNK];
        if too_many.contains(reply) {
            return Some(Self::TooManyErrors);
        }
        [
            (replies::TIMEOUT, Self::Timeout),
            (replies::OUT_OF_SYNC, Self::OutOfSync),
            (replies::WRONG_PROTOCOL, Self::OtherProtocol),
        ]
        .into_iter()
        .find_map(|(of, cause)| (of == *reply).then_some(cause))
    }
}

/// Returns the hash of the certificate that a client gets who asks for a name: the channel binding `tls-server-end-point` (RFC 5929
/// §4). The default has none.
#[derive(Clone, Default)]
pub struct EndPoints(Option<EndPointOf>);

type EndPointOf = Arc<dyn Fn(Option<&str>) -> Option<Box<[u8]>> + Send + Sync>;

impl EndPoints {
    /// Takes the function that finds the hash.
    pub fn new(of: impl Fn(Option<&str>) -> Option<Box<[u8]>> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(of)))
    }

    pub(crate) fn of(&self, name: Option<&str>) -> Option<Box<[u8]>> {
        self.0.as_ref().and_then(|of| of(name))
    }
}

impl std::fmt::Debug for EndPoints {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EndPoints")
    }
}

/// TLS for listeners that ask for the certificates of clients.
pub struct CertificateTls {
    /// Takes any certificate of which the client has the key, and clients without one.
    pub ask: Arc<rustls::ServerConfig>,
    /// Takes trusted certificates only: the handshake fails without one.
    pub require: Arc<rustls::ServerConfig>,
    identify: Identify,
}

/// Says who a client is, by the certificates that it showed: its own first.
type Identify = Arc<dyn Fn(&[CertificateDer<'static>]) -> Option<Identity> + Send + Sync>;

/// What a handshake has told of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// As parsed; whether it is trusted is in it.
    pub certificate: Arc<ClientCertificate>,
    /// True if the client can try to log in with the certificate.
    pub may_log_in: bool,
}

impl CertificateTls {
    /// Takes the settings, and the function that says who a client is. The function is called after each handshake, resumed
    /// ones, too: it has to check whether the certificate is trusted now.
    pub fn new(
        ask: Arc<rustls::ServerConfig>,
        require: Arc<rustls::ServerConfig>,
        identify: impl Fn(&[CertificateDer<'static>]) -> Option<Identity> + Send + Sync + 'static,
    ) -> Self {
        Self { ask, require, identify: Arc::new(identify) }
    }

    pub(crate) fn identify(&self, shown: &[CertificateDer<'static>]) -> Option<Identity> {
        (self.identify)(shown)
    }
}

impl std::fmt::Debug for CertificateTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CertificateTls")
    }
}

/// The settings of inbound sessions. `docs/configuration.md` describes those that an operator can change.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Limits and timeouts of sessions.
    pub limits: Arc<Limits>,
    /// The offered extensions. STARTTLS and AUTH are added where a listener has them.
    pub profile: Arc<Profile>,
    /// AUTH of the listeners that have logins.
    pub auth: Arc<Auth>,
    /// The hashes of the server's certificates, for the channel binding `tls-server-end-point`.
    pub end_points: EndPoints,
    /// TLS of the listeners that ask for certificates of clients. Without it, these listeners have no TLS.
    pub certificates: Option<Arc<CertificateTls>>,
    /// Content above this goes to the spool in pieces of this size.
    pub chunk_bytes: usize,
    /// Content in memory of all sessions together above which pieces become small, and no transaction begins.
    pub memory_bytes: usize,
    /// The longest wait of a session for an answer of the service; then the client gets a temporary failure.
    pub lookup_timeout: Duration,
    /// Sessions at once; the next one gets 421.
    pub sessions_max: usize,
    /// Sessions at once from one address; trusted clients are not counted.
    pub sessions_per_client: usize,
}
