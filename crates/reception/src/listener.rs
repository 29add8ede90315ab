//! Listening sockets, and a task for each session.

use crate::{
    Budget, Client, Service, Settings,
    driver::{Driver, describe, handshake},
    stream::Stream,
};
use mail::Reply;
use smtp::server::replies;
use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
};
use tokio_rustls::TlsAcceptor;

/// Out of descriptors or memory, accepting at once again would only spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// When TLS begins on a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsMode {
    /// Never.
    Off,
    /// When the client says STARTTLS.
    StartTls,
    /// With the first byte (RFC 8314 §3.3).
    Implicit,
}

/// A listening socket.
#[derive(Debug)]
pub struct Listener {
    /// The socket.
    pub socket: TcpListener,
    /// Its use of TLS.
    pub tls: TlsMode,
}

/// What may change while sessions go on: each session takes it as it is when it begins.
struct Current {
    settings: Settings,
    tls: Option<TlsAcceptor>,
}

/// All sessions of the process.
pub struct Reception<S: Service> {
    service: Arc<S>,
    budget: Arc<Budget>,
    current: Mutex<Arc<Current>>,
    closing: watch::Sender<bool>,
}

impl<S: Service> Reception<S> {
    /// Nothing is accepted before [`Reception::listen`].
    pub fn new(service: Arc<S>, settings: Settings, tls: Option<Arc<rustls::ServerConfig>>) -> Arc<Self> {
        let current = Arc::new(Current { settings, tls: tls.map(TlsAcceptor::from) });
        Arc::new(Self {
            service,
            budget: Arc::default(),
            current: Mutex::new(current),
            closing: watch::Sender::new(false),
        })
    }

    /// New settings for sessions that begin from now on; the others end as they began.
    pub fn reconfigure(&self, settings: Settings, tls: Option<Arc<rustls::ServerConfig>>) {
        let new = Arc::new(Current { settings, tls: tls.map(TlsAcceptor::from) });
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = new;
    }

    /// What sessions use.
    pub fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// Stops accepting; sessions between transactions are told 421, the others end theirs first.
    pub fn close(&self) {
        self.closing.send_replace(true);
    }

    /// Accepts until closed.
    ///
    /// # Errors
    /// None that accepting again would not mend: those are logged and waited for.
    pub async fn listen(self: Arc<Self>, listener: Listener) {
        let mut closing = self.closing.subscribe();
        loop {
            let accepted = tokio::select! {
                biased;
                _ = closing.wait_for(|closing| *closing) => return,
                accepted = listener.socket.accept() => accepted,
            };
            match accepted {
                Ok((stream, peer)) => self.begin(stream, peer, listener.tls),
                // The client was gone before we looked.
                Err(e) if e.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(e) => {
                    tracing::warn!("accept a connection: {e}");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn begin(self: &Arc<Self>, stream: TcpStream, peer: SocketAddr, mode: TlsMode) {
        let Ok(local) = stream.local_addr() else { return };
        // Replies are small and awaited: never wait for more to send.
        let _ = stream.set_nodelay(true);
        let client = Client { peer, local, tls: None };
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let settings = &current.settings;
        let counted =
            (!self.service.is_trusted(&client)).then_some((peer.ip(), settings.sessions_per_client));
        let Some(guard) = self.budget.enter(settings.sessions_max, counted) else {
            self.service.refused(&client, "CONNECT", None, &replies::TOO_BUSY);
            turn_away(&stream, &replies::TOO_BUSY);
            return;
        };
        let mut settings = settings.clone();
        if mode != TlsMode::StartTls || current.tls.is_none() {
            let capabilities = &settings.capabilities;
            if capabilities.starttls {
                settings.capabilities =
                    Arc::new(smtp::server::Capabilities { starttls: false, ..(**capabilities).clone() });
            }
        }
        let driver = Driver {
            settings,
            service: self.service.clone(),
            budget: self.budget.clone(),
            tls: current.tls.clone(),
            client,
            closing: self.closing.subscribe(),
        };
        tokio::spawn(async move {
            let _guard = guard;
            let peer = driver.client.peer;
            if let Err(e) = run(driver, stream, mode).await {
                tracing::debug!("session of {peer}: {e}");
            }
        });
    }
}

async fn run<S: Service>(mut driver: Driver<S>, stream: TcpStream, mode: TlsMode) -> io::Result<()> {
    let stream = match (mode, &driver.tls) {
        (TlsMode::Implicit, Some(acceptor)) => {
            let stream = handshake(acceptor, stream, driver.settings.limits.tls_timeout).await?;
            driver.client.tls = Some(describe(&stream));
            Stream::Tls(Box::new(stream))
        }
        _ => Stream::Plain(stream),
    };
    driver.run(stream).await
}

/// Over the limit not even a task is spent: one write that does not wait, and the end.
fn turn_away(stream: &TcpStream, reply: &Reply) {
    let mut line = Vec::new();
    reply.write_to(&mut line);
    let flags = rustix::net::SendFlags::DONTWAIT | rustix::net::SendFlags::NOSIGNAL;
    let _ = rustix::net::send(stream, &line, flags);
}
