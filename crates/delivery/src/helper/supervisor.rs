//! The supervisor of the helper: a process that keeps the rights of its start, and does nothing but start the helper again.
//! The daemon cannot do so: it has given up root, and may not start programs.

use super::{
    packet::{receive, send_now},
    protocol::FromSupervisor,
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};
use std::{
    ffi::OsString,
    io,
    os::fd::OwnedFd,
    process::Stdio,
    time::{Duration, Instant},
};
use tokio::process::{Child, Command};

/// A helper that ran for so long is started again at once.
const STEADY: Duration = Duration::from_secs(60);
/// The pauses before other starts: they double from the first to the last.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// Starts the helper, and starts it again each time that it ends before the daemon. Returns when the daemon has closed its
/// end of the socket.
///
/// # Errors
/// The process cannot wait.
pub async fn supervise(socket: OwnedFd, program: &[OsString]) -> io::Result<()> {
    let mut pause = Duration::ZERO;
    loop {
        let begun = Instant::now();
        let how = match start(&socket, program) {
            Ok(mut child) => {
                report(&socket, &FromSupervisor::Started);
                child.wait().await?.to_string()
            }
            Err(e) => format!("it cannot be started: {e}"),
        };
        // The helper ends with the daemon, and with nothing else.
        if is_closed_within(&socket, Duration::ZERO, false)? {
            return Ok(());
        }
        pause = next_pause(pause, begun.elapsed());
        tracing::error!("the delivery helper has ended ({how}); it starts again {}", after(pause));
        report(&socket, &FromSupervisor::Ended { how, pause_ms: pause.as_millis() as u64 });
        // Requests wait for a short pause, and are refused in a long one: their mail waits in the queue, with the reason.
        if is_closed_within(&socket, pause, pause > PAUSE_MIN)? {
            return Ok(());
        }
    }
}

/// Returns `now`, or `in 2s`.
pub(super) fn after(pause: Duration) -> String {
    if pause.is_zero() { "now".to_owned() } else { format!("in {pause:?}") }
}

fn start(socket: &OwnedFd, program: &[OsString]) -> io::Result<Child> {
    let (program, arguments) = program.split_first().ok_or(io::ErrorKind::NotFound)?;
    let mut command = Command::new(program);
    command.arg0("postrider").args(arguments).stdin(Stdio::from(socket.try_clone()?)).stdout(Stdio::null());
    command.spawn()
}

fn report(socket: &OwnedFd, message: &FromSupervisor) {
    // A daemon that does not read gets none: the supervisor never waits for it.
    let _ = serde_json::to_vec(message).map(|bytes| send_now(socket, &bytes));
}

fn next_pause(last: Duration, ran: Duration) -> Duration {
    if ran >= STEADY {
        Duration::ZERO
    } else if last.is_zero() {
        PAUSE_MIN
    } else {
        (last * 2).min(PAUSE_MAX)
    }
}

/// Waits for a time. Returns early, and with `true`, if the daemon closes its end. Requests that arrive meanwhile stay in the
/// socket, or are dropped, which ends their deliveries.
fn is_closed_within(socket: &OwnedFd, time: Duration, drops_requests: bool) -> io::Result<bool> {
    let until = Instant::now() + time;
    let events = if drops_requests { PollFlags::IN } else { PollFlags::empty() };
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        let mut polled = [PollFd::new(socket, events)];
        let count = match poll(&mut polled, Some(&timeout)) {
            Err(Errno::INTR) => continue,
            polled => polled?,
        };
        let found = polled[0].revents();
        if found.contains(PollFlags::HUP) {
            return Ok(true);
        }
        if count == 0 {
            return Ok(false);
        }
        match receive(socket) {
            Ok(None) => return Ok(true),
            Err(e) if e.kind() != io::ErrorKind::InvalidData => return Err(e),
            // With the descriptors, the socket for the answer is closed.
            Ok(Some(_)) | Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::helper::Helper;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::{os::fd::AsFd as _, sync::Arc};

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
    }

    #[test]
    fn a_helper_that_ends_at_once_is_started_more_and_more_rarely() {
        let mut pauses = vec![Duration::ZERO];
        for _ in 0..8 {
            pauses.push(next_pause(pauses[pauses.len() - 1], Duration::from_secs(2)));
        }
        assert_eq!(pauses.iter().map(Duration::as_secs).collect::<Vec<_>>(), [0, 1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(next_pause(PAUSE_MAX, STEADY), Duration::ZERO);
    }

    #[test]
    fn requests_are_dropped_in_a_long_pause_and_stay_in_a_short_one() {
        let (here, there) = pair();
        let (mut reply, other) = std::os::unix::net::UnixStream::pair().unwrap();
        super::super::packet::send(&here, b"one", &[other.as_fd()]).unwrap();
        drop(other);
        let short = Duration::from_millis(1);
        assert!(!is_closed_within(&there, short, false).unwrap());
        assert!(!is_closed_within(&there, short, true).unwrap());
        assert_eq!(io::Read::read(&mut reply, &mut [0]).unwrap(), 0, "the socket for the answer is closed");
        super::super::packet::send(&here, b"two", &[]).unwrap();
        drop(here);
        assert!(is_closed_within(&there, PAUSE_MAX, false).unwrap());
    }

    #[test]
    fn the_end_of_a_helper_is_reported_and_that_of_its_supervisor_too() {
        let (here, there) = pair();
        let helper = Arc::new(Helper::new(here));
        let watching = std::thread::spawn({
            let helper = helper.clone();
            move || helper.watch()
        });
        let program = ["/bin/sh", "-c", "exit 3"].map(OsString::from);
        // In a thread of its own, as in a process of its own: it blocks in its pauses.
        let supervised = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(supervise(there, &program))
        });
        // There is none while the helper has just started once more.
        let fault = loop {
            match helper.condition().fault {
                Some(fault) => break fault,
                None => std::thread::yield_now(),
            }
        };
        assert!(fault.contains("exit status: 3") && fault.contains("it starts again "), "{fault}");
        helper.close();
        supervised.join().unwrap().unwrap();
        watching.join().unwrap();
        assert!(helper.condition().fault.unwrap().contains("restart the daemon"));
    }
}
