//! A daemon of its own for a test, and the other ends of its conversations.

#![allow(dead_code, unreachable_pub, unused_imports)] // each test file uses its part

pub mod client;
pub mod databases;
pub mod envelopes;
pub mod faults;
pub mod load;
pub mod names;
pub mod ports;
pub mod postfix;
pub mod proxy;
pub mod record;
pub mod servers;
pub mod session;
pub mod sink;
pub mod tls;
pub mod tree;

use std::{
    collections::VecDeque,
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};
use tempfile::TempDir;

pub use ports::free_address;

pub const BINARY: &str = env!("CARGO_BIN_EXE_postrider");

/// The daemon that a test starts and asks: this build's, or one that is compared with it.
fn binary() -> PathBuf {
    std::env::var_os("POSTRIDER_TEST_BINARY").map_or_else(|| BINARY.into(), PathBuf::from)
}

/// Nothing a test waits for takes this long, on the slowest machine.
pub const WAIT_TIMEOUT: Duration = Duration::from_secs(180);

/// Lines of a daemon that a failed test shows.
const LINES_KEPT: usize = 12;

/// Asks again until it is so; between two questions the processor belongs to those who are asked.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        let waited = begun.elapsed();
        assert!(waited < wait_timeout(), "timed out: {what}");
        // To ask often is what most long waits would use the processor for: asking starts a program.
        std::thread::park_timeout((waited / 10).clamp(Duration::from_millis(5), Duration::from_millis(250)));
    }
}

/// Tells clients to end when it is dropped, also when the test fails.
pub struct SetAtEnd<'a>(pub &'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Other programs need longer for the many messages of a measurement: POSTRIDER_TEST_SECONDS.
fn wait_timeout() -> Duration {
    let given = std::env::var("POSTRIDER_TEST_SECONDS").ok().and_then(|text| text.parse().ok());
    given.map_or(WAIT_TIMEOUT, Duration::from_secs)
}

/// A daemon that runs until it is dropped.
pub struct Postrider {
    pub dir: TempDir,
    pub address: SocketAddr,
    child: Child,
    said: LastLines,
}

/// The last lines of a daemon's standard error.
type LastLines = Arc<Mutex<VecDeque<String>>>;

impl Postrider {
    /// Starts with `hostname = "mx.test"`, one listener, and what is added.
    pub fn start(more: &str) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), free_address(), more)
    }

    /// Starts a daemon in a folder where one may have run before.
    pub fn start_in(dir: TempDir, address: SocketAddr, more: &str) -> Self {
        Self::start_with(dir, address, more, &[])
    }

    /// Starts a daemon in a folder, with additions to its environment.
    pub fn start_with(
        dir: TempDir,
        address: SocketAddr,
        more: &str,
        environment: &[(&'static str, PathBuf)],
    ) -> Self {
        configure(dir.path(), address, more);
        let (child, said) = launch(dir.path(), environment);
        Self { dir, address, child, said }
    }

    /// Starts a daemon with a whole configuration.
    pub fn start_from(dir: TempDir, address: SocketAddr, text: &str) -> Self {
        fs::write(dir.path().join("postrider.toml"), text).unwrap();
        let (child, said) = launch(dir.path(), &[]);
        Self { dir, address, child, said }
    }

    pub fn config(&self) -> PathBuf {
        self.dir.path().join("postrider.toml")
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Writes another configuration, which a reload reads.
    pub fn reconfigure(&self, more: &str) {
        configure(self.dir.path(), self.address, more);
    }

    /// A command of the same binary against this daemon; its standard output.
    pub fn ask(&self, arguments: &[&str]) -> String {
        self.try_ask(arguments).unwrap_or_else(|said| panic!("{arguments:?}: {said}"))
    }

    /// Runs a command of the same binary with this on its standard input.
    pub fn run(&self, arguments: &[&str], input: &str) -> Output {
        let mut child = Command::new(binary())
            .args(arguments)
            .env("POSTRIDER_CONFIG", self.config())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    }

    /// Runs a command, and returns what it prints on standard error when it fails.
    pub fn try_ask(&self, arguments: &[&str]) -> Result<String, String> {
        let output =
            Command::new(binary()).args(arguments).env("POSTRIDER_CONFIG", self.config()).output().unwrap();
        let said = |bytes| String::from_utf8(bytes).unwrap();
        if output.status.success() { Ok(said(output.stdout)) } else { Err(said(output.stderr)) }
    }

    /// One recipient counter of `postrider status`.
    pub fn counter(&self, column: &str) -> u64 {
        let said = self.ask(&["status", "--json"]);
        let counters: serde_json::Value = serde_json::from_str(&said).unwrap();
        counters[column].as_u64().unwrap_or_else(|| panic!("no {column} in {said}"))
    }

    /// Returns the events in `mail.log`; none if there is no such file.
    pub fn log(&self) -> Vec<serde_json::Value> {
        let text = fs::read_to_string(self.dir.path().join("mail.log")).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Sends a message from a@far.test.
    pub fn send(&self, to: &str) {
        let mut client = client::Client::connect(self.address).unwrap();
        let reply = client.send("a@far.test", &[to], b"Subject: s\r\n\r\nbody\r\n").unwrap();
        assert_eq!(reply.0, 250, "{}", reply.1);
    }

    /// Waits for the outcome of a recipient in the delivery log.
    pub fn outcome(&self, to: &str) -> serde_json::Value {
        let mut found = None;
        until("there is an outcome", || {
            found = self.log().into_iter().find(|line| line["to"] == to && line["event"] != "rejected");
            found.is_some()
        });
        found.unwrap()
    }

    /// Files in a local user's Maildir.
    pub fn mailbox(&self, user: &str) -> Vec<PathBuf> {
        let new = self.dir.path().join("data/mail").join(user).join("new");
        fs::read_dir(new).map(|dir| dir.map(|e| e.unwrap().path()).collect()).unwrap_or_default()
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// No goodbye: what a power cut leaves of a process.
    pub fn kill(mut self) -> (TempDir, SocketAddr) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let dir = std::mem::replace(&mut self.dir, tempfile::tempdir().unwrap());
        (dir, self.address)
    }

    /// Returns the exit status, once the daemon has ended by itself.
    pub fn ended(&mut self) -> Option<std::process::ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Sends SIGTERM, and returns the folder with the exit status.
    pub fn stop(mut self) -> (TempDir, std::process::ExitStatus) {
        self.signal(rustix::process::Signal::TERM);
        let status = self.child.wait().unwrap();
        (std::mem::replace(&mut self.dir, tempfile::tempdir().unwrap()), status)
    }
}

impl Postrider {
    /// What a failed test leaves for its reader: `cargo xtask test` repeats these lines.
    fn testify(&self) {
        let asked =
            Command::new(binary()).args(["queue", "list"]).env("POSTRIDER_CONFIG", self.config()).output();
        for line in asked.iter().flat_map(|output| output.stdout.lines()).map_while(Result::ok).take(8) {
            eprintln!("daemon: {line}");
        }
        for line in self.said.lock().iter().flat_map(|said| said.iter()) {
            eprintln!("daemon: {line}");
        }
    }
}

impl Drop for Postrider {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.testify();
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `more` may begin with another `segment_size`.
fn configure(dir: &Path, address: SocketAddr, more: &str) {
    let size = if more.starts_with("segment_size") { "" } else { "segment_size = \"4MiB\"\n" };
    let text = format!(
        "hostname = \"mx.test\"\ndata_dir = \"data\"\n[[listen]]\naddress = \"{address}\"\n\
         [spool]\nmin_free = \"16MiB\"\n{size}{more}"
    );
    fs::write(dir.join("postrider.toml"), text).unwrap();
}

/// Starts the daemon in this folder and waits until it listens.
fn launch(dir: &Path, environment: &[(&'static str, PathBuf)]) -> (Child, LastLines) {
    let mut child = Command::new(binary())
        .args(["serve", "--config", "postrider.toml"])
        .current_dir(dir)
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let stderr = child.stderr.take().unwrap();
    let (tell, told) = mpsc::channel();
    let last = LastLines::default();
    let lines = last.clone();
    std::thread::spawn(move || {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            let mut lines = lines.lock().unwrap();
            if lines.len() == LINES_KEPT {
                lines.pop_front();
            }
            lines.push_back(line.clone());
            drop(lines);
            if std::env::var_os("POSTRIDER_TEST_LOG").is_some() {
                eprintln!("{line}");
            }
            let _ = tell.send(line);
        }
    });
    let mut said = Vec::new();
    loop {
        match told.recv_timeout(WAIT_TIMEOUT) {
            Ok(line) if line.contains("listening on") => return (child, last),
            Ok(line) => said.push(line),
            Err(_) => panic!("the daemon did not start: {said:#?}"),
        }
    }
}

/// Directories of programs besides `PATH`, below the root of a tree.
const FOLDERS: [&str; 3] = ["usr/sbin", "usr/bin", "usr/local/go/bin"];

/// A program of the machine or of those `cargo xtask setup` unpacked; or a word in the test's output
/// that it is missing, which the test command counts.
pub fn program(name: &str) -> Option<Command> {
    let found = find(name)?;
    let mut command = Command::new(found.file);
    if let Some(tree) = found.unpacked {
        let libraries = ["usr/lib/postfix", "usr/lib/x86_64-linux-gnu", "usr/lib"].map(|lib| tree.join(lib));
        command.env("LD_LIBRARY_PATH", std::env::join_paths(libraries).ok()?);
    }
    Some(command)
}

/// Returns a program that starts others where they would be if it was installed: one that is only
/// unpacked sees its tree laid over the machine's, which takes root.
pub fn program_in_place(name: &str) -> Option<Command> {
    let found = find(name)?;
    let Some(tree) = found.unpacked else { return Some(Command::new(found.file)) };
    let laid_over = |what: &Path| {
        // What /etc lacks without an installation is there, too: Postfix looks for /etc/postfix.
        let script = "mount -t overlay overlay -o \"lowerdir=$0/usr:/usr\" /usr && \
                      mount -t overlay overlay -o \"lowerdir=/etc:$0/etc\" /etc && exec \"$@\"";
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", script]).arg(&tree).arg(what);
        command
    };
    if !laid_over(Path::new("true")).status().is_ok_and(|status| status.success()) {
        println!("SKIPPED: {name} is only unpacked, and no file system may be laid over /usr here");
        return None;
    }
    Some(laid_over(&Path::new("/").join(found.file.strip_prefix(&tree).ok()?)))
}

/// Returns the tree of programs that `cargo xtask setup` unpacked.
fn interop() -> Option<PathBuf> {
    Some(Path::new(BINARY).ancestors().nth(2)?.join("interop"))
}

/// Returns the tree of a package that is unpacked by itself; or a word in the test's output that it is missing.
pub fn unpacked(package: &str) -> Option<PathBuf> {
    let tree = interop()?.join(package);
    if !tree.join("usr").is_dir() {
        println!("SKIPPED: {package} is not unpacked (cargo xtask setup)");
        return None;
    }
    Some(tree)
}

/// Returns the version of a package that is unpacked by itself.
pub fn unpacked_version(package: &str) -> Option<String> {
    fs::read_to_string(unpacked(package)?.join("version")).ok().map(|text| text.trim().to_owned())
}

/// Returns the path of a program of Go; or a word in the test's output that it is missing.
pub fn go_program(name: &str) -> Option<PathBuf> {
    let file = interop()?.join("go/bin").join(name);
    if !file.is_file() {
        println!("SKIPPED: {name} is not compiled (cargo xtask setup)");
        return None;
    }
    Some(file)
}

/// Returns a Python that has a package of PyPI, `scramp` or `dkim`; or a word in the test's output that it is missing.
pub fn python_with(module: &str) -> Option<Command> {
    let python = interop()?.join("python/bin/python");
    let has_it = || Command::new(&python).args(["-c", &format!("import {module}")]).output();
    if !python.is_file() || !has_it().is_ok_and(|output| output.status.success()) {
        println!("SKIPPED: {module} is not installed (cargo xtask setup)");
        return None;
    }
    Some(Command::new(python))
}

struct Found {
    file: PathBuf,
    /// The tree it is in, unless that is the machine's.
    unpacked: Option<PathBuf>,
}

fn find(name: &str) -> Option<Found> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let own = std::env::split_paths(&path).chain(FOLDERS.map(|folder| Path::new("/").join(folder)));
    if let Some(file) = own.map(|dir| dir.join(name)).find(|path| path.is_file()) {
        return Some(Found { file, unpacked: None });
    }
    let tree = interop()?;
    let file = FOLDERS.map(|folder| tree.join(folder).join(name)).into_iter().find(|path| path.is_file());
    if file.is_none() {
        println!("SKIPPED: {name} is not installed (cargo xtask setup)");
    }
    Some(Found { file: file?, unpacked: Some(tree) })
}
