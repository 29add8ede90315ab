//! The sessions of hostile clients.

use super::source;
use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
    sync::{Notify, Semaphore},
    task::{JoinHandle, JoinSet},
    time::{Instant, sleep, sleep_until, timeout},
};

/// Attempts to connect that are open at the same time.
const CONNECTING: usize = 200;
/// For connecting, and for each reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(60);
/// Clients of a flood are started this often.
const TICK: Duration = Duration::from_millis(5);

/// Counts of one kind of clients.
#[derive(Debug, Default)]
pub(super) struct Counts {
    open: AtomicU64,
    refused: AtomicU64,
    lost: AtomicU64,
    failed: AtomicU64,
}

impl Counts {
    /// Clients that were served: sessions that began, connections that were greeted, passwords that were answered.
    pub(super) fn open(&self) -> u64 {
        self.open.load(Relaxed)
    }

    /// Clients that the server refused with a reply.
    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// Sessions that the server ended later.
    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Relaxed)
    }

    /// Connections that could not be made, and those that ended without a reply.
    pub(super) fn failed(&self) -> u64 {
        self.failed.load(Relaxed)
    }

    fn note(&self, outcome: &io::Result<bool>) {
        let counter = match outcome {
            Ok(true) => &self.open,
            Ok(false) => &self.refused,
            Err(_) => &self.failed,
        };
        counter.fetch_add(1, Relaxed);
    }

    fn settled(&self) -> u64 {
        self.open() + self.refused() + self.failed()
    }
}

/// The clients of an attack, with what became of them.
#[derive(Debug, Clone)]
pub(super) struct HostileClients(Arc<Shared>);

#[derive(Debug)]
pub(super) struct Shared {
    server: SocketAddr,
    source_count: u32,
    next: AtomicU32,
    pause: Duration,
    connecting: Semaphore,
    change: Notify,
    end: Notify,
    pub(super) idle: Counts,
    pub(super) slow: Counts,
    pub(super) connects: Counts,
    pub(super) guesses: Counts,
}

impl std::ops::Deref for HostileClients {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

impl HostileClients {
    /// No client yet. Without sources, the system chooses the address of each client.
    pub(super) fn new(server: SocketAddr, source_count: u32, pause: Duration) -> Self {
        Self(Arc::new(Shared {
            server,
            source_count,
            next: AtomicU32::new(0),
            pause,
            connecting: Semaphore::new(CONNECTING),
            change: Notify::new(),
            end: Notify::new(),
            idle: Counts::default(),
            slow: Counts::default(),
            connects: Counts::default(),
            guesses: Counts::default(),
        }))
    }

    /// Ends the clients before their time.
    pub(super) fn end(&self) {
        self.0.end.notify_one();
    }

    pub(super) async fn ended(&self) {
        self.0.end.notified().await;
    }

    /// Opens sessions that stay until the set is dropped.
    pub(super) fn open(&self, idle: u32, slow: u32) -> JoinSet<()> {
        let mut sessions = JoinSet::new();
        for number in 0..idle.max(slow) {
            if number < idle {
                let clients = self.clone();
                sessions.spawn(async move { clients.stay_idle().await });
            }
            if number < slow {
                let clients = self.clone();
                sessions.spawn(async move { clients.be_slow().await });
            }
        }
        sessions
    }

    /// Waits until each session is open, or was refused.
    pub(super) async fn until_settled(&self, count: u64) {
        while self.idle.settled() + self.slow.settled() < count {
            tokio::select! {
                () = self.change.notified() => {}
                () = self.end.notified() => {
                    self.end();
                    return;
                }
            }
        }
    }

    /// Connects so often, and closes after the greeting.
    pub(super) fn flood_connections(&self, rate: u32) -> JoinHandle<()> {
        self.flood(rate, |clients| async move {
            let outcome = clients.greet().await.map(|(_, is_open)| is_open);
            clients.connects.note(&outcome);
        })
    }

    /// Guesses a password so often, in a session for each.
    pub(super) fn flood_guesses(&self, rate: u32) -> JoinHandle<()> {
        self.flood(rate, |clients| async move {
            let outcome = clients.guess().await;
            clients.guesses.note(&outcome);
        })
    }

    /// Starts clients at a rate, whether those before have ended or not, and at most ten seconds of them.
    fn flood<F: Future<Output = ()> + Send + 'static>(
        &self,
        rate: u32,
        client: impl Fn(Self) -> F + Send + 'static,
    ) -> JoinHandle<()> {
        let clients = self.clone();
        tokio::spawn(async move {
            let (begun, mut started) = (Instant::now(), 0u64);
            let mut open = JoinSet::new();
            if rate == 0 {
                return;
            }
            loop {
                sleep(TICK).await;
                let due = (begun.elapsed().as_secs_f64() * f64::from(rate)) as u64;
                while started < due {
                    started += 1;
                    if open.len() < 10 * rate as usize {
                        open.spawn(client(clients.clone()));
                    }
                }
                while open.try_join_next().is_some() {}
            }
        })
    }

    async fn connect(&self) -> io::Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        if self.source_count > 0 {
            let address = source(self.next.fetch_add(1, Relaxed), self.source_count);
            socket.set_reuseaddr(true)?;
            socket.bind((address, 0).into())?;
        }
        // No port waits for a minute behind each of them.
        #[expect(deprecated, reason = "it blocks only while octets are to be sent")]
        socket.set_linger(Some(Duration::ZERO))?;
        socket.set_nodelay(true)?;
        socket.connect(self.server).await
    }

    /// Connects, and reads the greeting; false if the server refuses.
    async fn greet(&self) -> io::Result<(TcpStream, bool)> {
        let mut stream = timeout(REPLY_TIMEOUT, self.connect()).await??;
        let reply = reply(&mut stream).await?;
        Ok((stream, reply.starts_with('2')))
    }

    async fn begin(&self) -> io::Result<(TcpStream, bool)> {
        let _permit = self.connecting.acquire().await.map_err(io::Error::other)?;
        let (mut stream, mut is_open) = self.greet().await?;
        if is_open {
            stream.write_all(b"EHLO hostile.test\r\n").await?;
            is_open = reply(&mut stream).await?.starts_with('2');
        }
        Ok((stream, is_open))
    }

    async fn stay_idle(&self) {
        let Some(mut stream) = self.admitted(&self.idle).await else { return };
        let mut octets = [0; 512];
        // The server says something when it ends the session, or it just ends it.
        while stream.read(&mut octets).await.is_ok_and(|count| count > 0) {}
        self.idle.lost.fetch_add(1, Relaxed);
    }

    async fn be_slow(&self) {
        let Some(mut stream) = self.admitted(&self.slow).await else { return };
        let (mut next, mut octets) = (Instant::now() + self.pause, [0; 512]);
        for octet in b"MAIL FROM:<slow@hostile.test>".iter().cycle() {
            tokio::select! {
                () = sleep_until(next) => {
                    next += self.pause;
                    if stream.write_all(&[*octet]).await.is_err() {
                        break;
                    }
                }
                read = stream.read(&mut octets) => if !read.is_ok_and(|count| count > 0) {
                    break;
                }
            }
        }
        self.slow.lost.fetch_add(1, Relaxed);
    }

    async fn admitted(&self, counts: &Counts) -> Option<TcpStream> {
        let begun = self.begin().await;
        let (stream, outcome) = match begun {
            Ok((stream, is_open)) => (Some(stream).filter(|_| is_open), Ok(is_open)),
            Err(error) => (None, Err(error)),
        };
        counts.note(&outcome);
        self.change.notify_one();
        stream
    }

    async fn guess(&self) -> io::Result<bool> {
        let (mut stream, is_open) = self.greet().await?;
        if !is_open {
            return Ok(false);
        }
        stream.write_all(b"EHLO hostile.test\r\n").await?;
        if !reply(&mut stream).await?.starts_with('2') {
            return Ok(false);
        }
        let number = self.next.load(Relaxed);
        let words = format!("\0user{}\0wrong{number}", number % 1000);
        let response = data_encoding::BASE64.encode(words.as_bytes());
        stream.write_all(format!("AUTH PLAIN {response}\r\n").as_bytes()).await?;
        // A wrong password is answered by 535; other replies say that the server is busy, or knows no AUTH.
        Ok(reply(&mut stream).await?.starts_with("535"))
    }
}

/// Reads a whole reply.
async fn reply(stream: &mut TcpStream) -> io::Result<String> {
    let (mut text, mut octets) = (Vec::new(), [0; 512]);
    loop {
        let count = timeout(REPLY_TIMEOUT, stream.read(&mut octets)).await??;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        text.extend_from_slice(&octets[..count]);
        let text = String::from_utf8_lossy(&text);
        let last = text.strip_suffix("\r\n").map(|whole| whole.rsplit("\r\n").next().unwrap_or_default());
        if let Some(last) = last.filter(|line| line.as_bytes().get(3) != Some(&b'-')) {
            return Ok(last.to_owned());
        }
    }
}
