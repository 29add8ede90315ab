//! The daemon as it is shipped, started again and again on the same folder.

use std::{
    fs,
    io::{self, BufRead as _, BufReader},
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    time::{Duration, Instant},
};

/// The binary, the directory and the address of a daemon.
pub(crate) struct DaemonUnderTest {
    binary: PathBuf,
    dir: PathBuf,
    pub(crate) address: SocketAddr,
}

/// A process that is killed when it is dropped.
pub(crate) struct Daemon {
    child: Child,
    begun: Instant,
    said: Receiver<String>,
}

impl DaemonUnderTest {
    /// Writes the configuration: everything goes to the one next hop, and is soon tried again.
    pub(crate) fn new(binary: &Path, dir: &Path, next_hop: SocketAddr) -> io::Result<Self> {
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let text = format!(
            "hostname = \"mx.test\"\ndata_dir = \"data\"\n[[listen]]\naddress = \"{address}\"\n\
             [spool]\nsegment_size = \"1MiB\"\nmin_free = \"16MiB\"\n\
             [[route]]\ndomains = [\"*\"]\nsmarthost = \"{next_hop}\"\ntls = \"off\"\n\
             [inbound]\nshutdown_timeout = \"2s\"\n[queue]\nretry_min = \"1s\"\nretry_max = \"1s\"\n"
        );
        fs::write(dir.join("postrider.toml"), text)?;
        Ok(Self { binary: fs::canonicalize(binary)?, dir: dir.to_owned(), address })
    }

    /// Starts it and waits for nothing.
    pub(crate) fn start(&self) -> io::Result<Daemon> {
        let begun = Instant::now();
        let mut child = Command::new(&self.binary)
            .args(["serve", "--config", "postrider.toml"])
            .current_dir(&self.dir)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let stderr = child.stderr.take().expect("it was piped");
        let (tell, said) = mpsc::channel();
        std::thread::spawn(move || {
            let lines = BufReader::new(stderr).lines().map_while(Result::ok);
            lines.for_each(|line| drop(tell.send(line)));
        });
        Ok(Daemon { child, begun, said })
    }
}

impl Daemon {
    /// Waits until the daemon listens. Returns the time that it took.
    pub(crate) fn listening(&self) -> Result<Duration, String> {
        self.listening_within(crate::client::WAIT_TIMEOUT)?
            .ok_or_else(|| "the daemon says nothing".to_owned())
    }

    /// Waits until the daemon listens; `None` when the time was over before.
    pub(crate) fn listening_within(&self, limit: Duration) -> Result<Option<Duration>, String> {
        let (until, mut said) = (Instant::now() + limit, Vec::new());
        loop {
            match self.said.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) if line.contains("listening on") => return Ok(Some(self.begun.elapsed())),
                Ok(line) => said.push(line),
                Err(RecvTimeoutError::Timeout) => return Ok(None),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(format!("the daemon did not start: {}", said.join("\n  ")));
                }
            }
        }
    }

    /// SIGKILL; what it said that it should not have to say.
    pub(crate) fn kill(mut self) -> Vec<String> {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.complaints()
    }

    /// SIGTERM, which lets it finish.
    pub(crate) fn stop(mut self) -> Result<Vec<String>, String> {
        let pid = rustix::process::Pid::from_child(&self.child);
        let told = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        told.map_err(|e| format!("SIGTERM: {e}"))?;
        let status = self.child.wait().map_err(|e| format!("wait for the daemon: {e}"))?;
        if status.success() { Ok(self.complaints()) } else { Err(format!("the daemon ended: {status}")) }
    }

    /// Returns the exit code, once the daemon has ended by itself.
    pub(crate) fn ended(&mut self, limit: Duration) -> Result<Option<i32>, String> {
        let until = Instant::now() + limit;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Ok(status.code()),
                Ok(None) if Instant::now() < until => std::thread::park_timeout(Duration::from_millis(5)),
                Ok(None) => {
                    return Err(format!("the daemon goes on: {}", self.complaints_so_far().join("\n  ")));
                }
                Err(e) => return Err(format!("wait for the daemon: {e}")),
            }
        }
    }

    fn complaints_so_far(&self) -> Vec<String> {
        self.said.try_iter().filter(|line| line.contains("ERROR")).collect()
    }

    fn complaints(&self) -> Vec<String> {
        self.said.iter().filter(|line| line.contains("ERROR") || line.contains("panicked")).collect()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
