//! A running sink, shared by the tests.
#![allow(dead_code, unreachable_pub)] // each test file uses its part

#[path = "../../../../../testing/e2e/common/ports.rs"]
pub(crate) mod ports;

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{Ipv4Addr, Shutdown, TcpListener, TcpStream},
    os::fd::OwnedFd,
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, Instant},
};

/// A bound socket that does not listen, and its address: no other process can take the port meanwhile.
pub(crate) fn silent_address() -> (OwnedFd, String) {
    let (socket, address) = measure::kept_port::kept_port(Ipv4Addr::LOCALHOST).unwrap();
    (socket, address.to_string())
}

/// Passes octets between whoever connects and `to`: the thinnest of all relays.
pub(crate) fn wire(to: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, to) = (listener.local_addr().unwrap().to_string(), to.to_owned());
    thread::spawn(move || {
        for near in listener.incoming().map_while(Result::ok) {
            // Whoever looks whether we are there is gone before the sink is reached.
            let Ok(far) = TcpStream::connect(&to) else { continue };
            let pass = |mut from: TcpStream, mut to: TcpStream| {
                thread::spawn(move || {
                    // Whoever breaks off ends it.
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(std::net::Shutdown::Write);
                })
            };
            pass(near.try_clone().unwrap(), far.try_clone().unwrap());
            pass(far, near);
        }
    });
    address
}

/// A running sink; killed when dropped.
pub(crate) struct Sink {
    child: Child,
    pub(crate) address: String,
}

impl Sink {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::start_behind(":", arguments)
    }

    /// Behind a command of the shell.
    pub(crate) fn start_behind(first: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &format!("{first}; exec \"$@\""), "sh", env!("CARGO_BIN_EXE_postlab"), "sink"]);
        command.args(arguments).arg("127.0.0.1:0");
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        stderr.read_line(&mut line).unwrap();
        let address = line.trim().rsplit(' ').next().unwrap_or_default().to_owned();
        assert!(line.contains("listens on"), "{line}");
        // Read on, so that the sink never waits for us.
        std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
        Self { child, address }
    }

    /// Says all of `input` and reads until the sink closes.
    pub(crate) fn talk(&self, input: &str) -> String {
        let mut socket = TcpStream::connect(&self.address).unwrap();
        socket.write_all(input.as_bytes()).unwrap();
        let mut said = String::new();
        socket.read_to_string(&mut said).unwrap();
        said
    }

    /// Lets it open so many files more, and none beyond.
    pub(crate) fn bound_files(&self, more: u64) {
        let files = std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap();
        let names = files.map(|file| file.unwrap().file_name().to_str().unwrap().parse::<u64>().unwrap());
        let most = Some(names.max().unwrap() + 1 + more);
        let limit = Rlimit { current: most, maximum: most };
        prlimit(Some(Pid::from_child(&self.child)), Resource::Nofile, limit).unwrap();
    }

    /// Waits for its end and returns what it printed.
    pub(crate) fn output(self) -> String {
        let (out, status) = self.ended();
        assert!(status.success());
        out
    }

    /// Waits for the end, whatever the exit status is, and returns the output with the status.
    pub(crate) fn ended(mut self) -> (String, ExitStatus) {
        let mut out = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        (out, self.child.wait().unwrap())
    }

    /// Ends it, as Ctrl-C does.
    pub(crate) fn stop(&self) {
        rustix::process::kill_process(Pid::from_child(&self.child), rustix::process::Signal::INT).unwrap();
    }

    /// Returns the output at the end, read as JSON.
    pub(crate) fn tally(self) -> serde_json::Value {
        serde_json::from_str(self.output().trim()).unwrap()
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A proxy that forwards no connection before a number of them have arrived.
pub(crate) fn gathered(to: &str, count: usize) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, to) = (listener.local_addr().unwrap().to_string(), to.to_owned());
    std::thread::spawn(move || {
        let mut clients = listener.incoming().map_while(Result::ok);
        let first: Vec<TcpStream> = clients.by_ref().take(count).collect();
        for client in first.into_iter().chain(clients) {
            let server = TcpStream::connect(&to).unwrap();
            carry(client.try_clone().unwrap(), server.try_clone().unwrap());
            carry(server, client);
        }
    });
    address
}

/// A proxy that says of each connection that it was opened.
pub(crate) fn counted(to: &str) -> (String, Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, to) = (listener.local_addr().unwrap().to_string(), to.to_owned());
    let (opened, told) = channel();
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let server = TcpStream::connect(&to).unwrap();
            carry(client.try_clone().unwrap(), server.try_clone().unwrap());
            carry(server, client);
            if opened.send(()).is_err() {
                return;
            }
        }
    });
    (address, told)
}

/// Carries what one says to the other, to its end.
fn carry(mut from: TcpStream, mut to: TcpStream) {
    std::thread::spawn(move || {
        // Whoever breaks off ends it.
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    });
}

/// The remark on a measurement of less than half a second.
pub(crate) const TOO_SHORT: &str = "too short to trust";

/// Runs `postlab` to its end; true if that came so soon that all it measured is too short to trust.
pub(crate) fn run_timed(arguments: &[&str]) -> (Output, bool) {
    let begun = Instant::now();
    let output = run(arguments);
    (output, begun.elapsed() < Duration::from_millis(500))
}

/// Runs `postlab` to its end.
pub(crate) fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_postlab")).args(arguments).output().unwrap()
}
