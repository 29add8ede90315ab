//! A postrider of our own on a free port, whose mail goes where we say: to a port that refuses, so that it stays
//! in the queue and nothing is written for it, or to a sink.

use measure::kept_port::kept_port;
use rustix::{
    fd::OwnedFd,
    process::{Pid, Signal, kill_process},
};
use serde::{Deserialize, Serialize};
use std::{
    fs,
    io::{self, Read as _},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

/// The backend that keeps the mail, and its number of directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Spool {
    pub(super) backend: Backend,
    /// Always 1 for the log.
    pub(super) directories: u32,
}

/// The backend of the spool: `[spool] backend`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(super) enum Backend {
    /// One log for all messages
    Log,
    /// Files for every message in queue directories
    QueueDirs,
}

impl Backend {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::QueueDirs => "queue-dirs",
        }
    }
}

/// The daemon's counters that matter here (`postrider status --json`).
#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(default)]
pub(super) struct Counters {
    pub(super) messages: u64,
    pub(super) transactions: u64,
    pub(super) commits: u64,
}

/// A place for a daemon: its configuration and its data.
#[derive(Debug)]
pub(super) struct Home {
    binary: PathBuf,
    pub(super) path: PathBuf,
    /// The directory of the sockets: the path of a socket has at most 107 octets (unix(7)), that of a disk may be longer.
    sockets: tempfile::TempDir,
    /// Queues so far that were left behind.
    left: AtomicU32,
    /// A port that only the daemon may listen on.
    own: (OwnedFd, SocketAddr),
    /// Nobody listens here: who connects is refused, now and as long as this lives.
    refusing: (OwnedFd, SocketAddr),
}

/// A daemon that runs; killed when it is dropped.
#[derive(Debug)]
pub(super) struct Daemon<'a> {
    home: &'a Home,
    child: Child,
    pub(super) endpoint: String,
}

/// To start and to end; a queue of a million messages is read first.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(5);

impl Home {
    /// Makes the directory, with ports that nobody else gets.
    pub(super) fn new(binary: Option<&Path>, path: PathBuf) -> Result<Self, String> {
        let say = |e: io::Error| format!("make {}: {e}", path.display());
        fs::create_dir(&path).map_err(say)?;
        let port = || kept_port(Ipv4Addr::LOCALHOST).map_err(|e| format!("keep a port: {e}"));
        let (own, refusing) = (port()?, port()?);
        let named = binary.map(Path::to_owned).or_else(|| std::env::var_os("POSTRIDER").map(PathBuf::from));
        let binary = named.unwrap_or_else(|| "postrider".into());
        // A name without a directory is looked for on the path.
        let binary = if binary.components().count() > 1 {
            fs::canonicalize(&binary).map_err(|e| format!("find {}: {e}", binary.display()))?
        } else {
            binary
        };
        let sockets = tempfile::Builder::new().prefix("postlab-").tempdir();
        let sockets = sockets.map_err(|e| format!("make a directory for sockets: {e}"))?;
        Ok(Self { binary, path, sockets, left: AtomicU32::new(0), own, refusing })
    }

    /// Says where mail waits, and where it goes: by `routes`, all other mail nowhere.
    pub(super) fn configure(&self, spool: Spool, routes: &str) -> Result<(), String> {
        let (data, endpoint, hop) = (self.data(), self.own.1, self.refusing.1);
        let backend = match spool.backend {
            Backend::Log => "backend = \"log\"".to_owned(),
            Backend::QueueDirs => format!("backend = \"queue-dirs\"\ndirectories = {}", spool.directories),
        };
        // The log of deliveries is no part of what is measured; sessions are all from here.
        let text = format!(
            "hostname = \"postrider.test\"\ndata_dir = {data:?}\n\n[[listen]]\naddress = \"{endpoint}\"\ntls = \"off\"\n\n\
             {routes}[[route]]\ndomains = [\"*\"]\nsmarthost = \"{hop}\"\ntls = \"off\"\n\n\
             [inbound]\nmax_sessions = 20000\nshutdown_timeout = \"1s\"\n\n[spool]\n{backend}\n\n[log]\nfile = {:?}\n\n\
             [control]\nsocket = {:?}\nsubmit_socket = {:?}\n",
            self.path.join("mail.log"),
            self.sockets.path().join("control.sock"),
            self.sockets.path().join("submit.sock"),
        );
        let config = self.config();
        fs::write(&config, text).map_err(|e| format!("write {}: {e}", config.display()))
    }

    fn config(&self) -> PathBuf {
        self.path.join("postrider.toml")
    }

    /// Returns the directory of its mail.
    pub(super) fn data(&self) -> PathBuf {
        self.path.join(format!("data{}", self.left.load(Relaxed)))
    }

    /// Begins a queue beside the old one, which stays until all is removed: for a minute ext4 looks at every inode
    /// of a file that was removed before it takes another one, so that removing a queue makes the next one slower.
    pub(super) fn leave(&self) {
        self.left.fetch_add(1, Relaxed);
    }

    /// Removes all mail.
    pub(super) fn empty(&self) -> Result<(), String> {
        let data = self.data();
        match fs::remove_dir_all(&data) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(format!("empty {}: {e}", data.display())),
            _ => Ok(()),
        }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command.args(words).arg("--config").arg(self.config()).stdin(Stdio::null());
        command
    }

    /// Returns the output of `postrider WORDS`.
    pub(super) fn ask(&self, words: &[&str]) -> Result<String, String> {
        let output = self.command(words).output().map_err(|e| self.cannot(&e))?;
        if !output.status.success() {
            let error = String::from_utf8_lossy(&output.stderr);
            return Err(format!("postrider {}: {}", words.join(" "), error.trim()));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn cannot(&self, error: &io::Error) -> String {
        format!("run {}: {error}; name it with --binary or $POSTRIDER", self.binary.display())
    }

    /// Returns the reason why a started program is no daemon that listens.
    fn no_daemon(&self, ended: Option<ExitStatus>, said: &str) -> String {
        let binary = self.binary.display();
        match ended {
            Some(status) if said.is_empty() => {
                format!("start {binary}: it ended without a message ({status}); is it postrider?")
            }
            Some(_) => format!("start {binary}: {said}"),
            None => format!("start {binary}: it does not listen after {} s", WAIT_TIMEOUT.as_secs()),
        }
    }

    /// Starts it; it listens when this returns.
    pub(super) fn start(&self, spool: Spool) -> Result<Daemon<'_>, String> {
        self.configure(spool, "")?;
        let mut child = self
            .command(&["serve"])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| self.cannot(&e))?;
        let mut stderr = child.stderr.take();
        let mut daemon = Daemon { home: self, child, endpoint: self.own.1.to_string() };
        let begin = Instant::now();
        while TcpStream::connect(&daemon.endpoint).is_err() {
            let ended = daemon.child.try_wait().map_err(|e| format!("wait for postrider: {e}"))?;
            if ended.is_some() || begin.elapsed() > WAIT_TIMEOUT {
                // Only of one that ended: the pipe of another stays open.
                let mut said = String::new();
                if let Some(stderr) = stderr.as_mut().filter(|_| ended.is_some()) {
                    let _ = stderr.read_to_string(&mut said);
                }
                return Err(self.no_daemon(ended, said.trim()));
            }
            thread::sleep(LOOK);
        }
        // Somebody has to read what it says.
        thread::spawn(move || stderr.map(|mut from| io::copy(&mut from, &mut io::sink())));
        Ok(daemon)
    }
}

impl Daemon<'_> {
    /// For those who read /proc.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Reads the daemon's counters.
    pub(super) fn counters(&self) -> Result<Counters, String> {
        #[derive(Deserialize)]
        struct Status {
            spool: Counters,
        }
        let text = self.home.ask(&["status", "--json"])?;
        let status: Status = serde_json::from_str(&text).map_err(|e| format!("read its status: {e}"))?;
        Ok(status.spool)
    }

    /// Lets it end as an operator does, so that a start after it finds everything in order.
    pub(super) fn stop(mut self) -> Result<(), String> {
        if let Some(pid) = Pid::from_raw(self.child.id().cast_signed()) {
            kill_process(pid, Signal::TERM).map_err(|e| format!("stop postrider: {e}"))?;
        }
        let begin = Instant::now();
        while begin.elapsed() < WAIT_TIMEOUT {
            if self.child.try_wait().map_err(|e| format!("wait for postrider: {e}"))?.is_some() {
                return Ok(());
            }
            thread::sleep(LOOK);
        }
        Err("stop postrider: it runs on".into())
    }
}

impl Drop for Daemon<'_> {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
