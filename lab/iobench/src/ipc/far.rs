//! The far side: this program again as another process, or a thread.

use super::{
    Transport,
    link::{Content, Link, Trip, check_last},
    uring::UringSocket,
};
use crate::shared_memory::{SharedMemory, Side, Waiting};
use clap::ValueEnum as _;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, getppid, set_parent_process_death_signal, waitid};
use std::{
    fs::File,
    io,
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::process::CommandExt as _,
    },
    process::{Child, Command, Stdio},
    thread,
};

/// The task of the other process, as it stands on its command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Task {
    pub(super) transport: Transport,
    pub(super) trip: Trip,
    pub(super) trips: u32,
    /// It ends when that process does.
    parent: u32,
}

impl Task {
    pub(super) fn new(transport: Transport, trip: Trip, trips: u32) -> Self {
        Self { transport, trip, trips, parent: std::process::id() }
    }

    /// `transport:buffer:client:server:trips:parent`
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not transport:buffer:client:server:trips:parent");
        let (name, rest) = text.split_once(':').ok_or_else(wrong)?;
        let transport = Transport::from_str(name, false).map_err(|_| wrong())?;
        let numbers: Result<Vec<u32>, _> = rest.split(':').map(str::parse).collect();
        let numbers = numbers.map_err(|_| wrong())?;
        let [buffer, client, server, trips, parent] = numbers[..] else { return Err(wrong()) };
        let trip = Trip { buffer: buffer as usize, client: client as usize, server: server as usize };
        Ok(Self { transport, trip, trips, parent })
    }

    fn argument(&self) -> String {
        let Self { transport, trip: Trip { buffer, client, server }, trips, parent } = self;
        let name = transport.to_possible_value().map_or_else(String::new, |v| v.get_name().to_owned());
        format!("{name}:{buffer}:{client}:{server}:{trips}:{parent}")
    }
}

/// The side that answers: a process, or a thread of this one.
pub(super) enum Far {
    Process {
        child: Child,
        /// Waits for the end of the process where the transport does not show it.
        watcher: Option<thread::JoinHandle<()>>,
    },
    /// None: it was waited for.
    Thread(Option<thread::JoinHandle<io::Result<()>>>),
}

impl Far {
    /// Runs this program again; it reads from its standard input and writes to its standard output.
    pub(super) fn start(task: Task, from: OwnedFd, to: OwnedFd) -> io::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["ipc", "--far", &task.argument()]);
        command.stdin(Stdio::from(from)).stdout(Stdio::from(to));
        // Ctrl-C is for this process, which ends the other one.
        command.process_group(0);
        Ok(Self::Process { child: command.spawn()?, watcher: None })
    }

    /// Runs the other side as a thread.
    pub(super) fn thread(task: Task, link: Link) -> Self {
        Self::Thread(Some(thread::spawn(move || answer(link, task))))
    }

    /// Calls `close` when the other process has ended.
    pub(super) fn on_end(mut self, close: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        if let Self::Process { child, watcher } = &mut self {
            let id = WaitId::Pid(Pid::from_child(child));
            let wait = move || {
                // The status stays for `child.wait`, so the number cannot become another process's.
                let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
                while matches!(waitid(id.clone(), options), Err(rustix::io::Errno::INTR)) {}
                close();
            };
            *watcher = Some(thread::Builder::new().name("ipc-watcher".into()).spawn(wait)?);
        }
        Ok(self)
    }

    /// Waits for its end; with `is_stopped`, ends it. `near` is this process's end of the transport.
    pub(super) fn end(mut self, near: Link, is_stopped: bool) -> io::Result<()> {
        if let (Self::Process { child, .. }, true) = (&mut self, is_stopped) {
            child.kill()?;
        }
        // A thread that waits for octets ends with an error now.
        drop(near);
        let done = self.join();
        if is_stopped { Ok(()) } else { done }
    }

    /// Waits for its end.
    fn join(mut self) -> io::Result<()> {
        match &mut self {
            Self::Process { child, watcher } => {
                if let Some(watcher) = watcher.take() {
                    let _ = watcher.join();
                }
                let status = child.wait()?;
                if status.success() { Ok(()) } else { Err(ended(&status.to_string())) }
            }
            Self::Thread(thread) => match thread.take() {
                Some(thread) => thread.join().map_err(|_| ended("panic"))?,
                None => Ok(()),
            },
        }
    }

    /// Returns the cause of an error of the near side: the end of the other side, or the error itself.
    pub(super) fn cause(self, near: Link, error: io::Error) -> io::Error {
        use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
        // In all other cases the other side may be alive, and `Drop` ends it.
        if !matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof) {
            return error;
        }
        drop(near);
        self.join().err().unwrap_or(error)
    }
}

fn ended(how: &str) -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, format!("the other side ended before its last answer: {how}"))
}

impl Drop for Far {
    fn drop(&mut self) {
        if let Self::Process { child, watcher } = self {
            // It has ended where all went well.
            let _ = child.kill();
            if let Some(watcher) = watcher.take() {
                let _ = watcher.join();
            }
            let _ = child.wait();
        }
    }
}

/// Runs the far side in a process of its own, until the near side ends.
pub(super) fn process(task: Task) -> io::Result<()> {
    // No transport but a socket or pipe shows the end of the first process.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if getppid().map(|pid| pid.as_raw_nonzero().get().cast_unsigned()) != Some(task.parent) {
        return Err(io::Error::other("the process that started this one has ended"));
    }
    let (from, to) = (io::stdin().as_fd().try_clone_to_owned()?, io::stdout().as_fd().try_clone_to_owned()?);
    let shared = |waiting| SharedMemory::open(&from, Side::Far, waiting).map(Link::new);
    let link = match task.transport {
        Transport::Futex => shared(Waiting::Futex)?,
        Transport::Ring => shared(Waiting::Spinning)?,
        Transport::IoUring => Link::new(UringSocket::new(from)?),
        _ => Link::of(File::from(from), File::from(to)),
    };
    answer(link, task)
}

/// Answers each trip, one more than is measured. The octets of the first and the last are compared.
fn answer(mut link: Link, task: Task) -> io::Result<()> {
    let Task { trip, trips, .. } = task;
    let content = Content::new(task.transport, trip);
    let mut received = vec![0; content.client.len()];
    link.receive_checked(&mut received, &content.client, trip.client)?;
    for _ in 0..trips {
        link.send(&content.server, trip.server)?;
        link.receive(&mut received, trip.client)?;
    }
    check_last(&received, &content.client, trip.client)?;
    link.send(&content.server, trip.server)?;
    link.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_survives_the_command_line() {
        for transport in Transport::value_variants() {
            let task = Task::new(*transport, Trip { buffer: 1, client: 2, server: 3 }, 4);
            assert_eq!(Task::parse(&task.argument()), Ok(task));
        }
        for text in ["", "inet", "inet:1:2:3:4", "inet:1:2:3:4:5:6", "inet:1:2:x:4:5", "tin:1:2:3:4:5"] {
            assert!(Task::parse(text).is_err(), "{text}");
        }
    }
}
