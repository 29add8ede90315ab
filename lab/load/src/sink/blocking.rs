//! `--model thread` and `--model pool`: a thread has one session at a time and waits in its calls.

use super::{
    session::{Session, Wish},
    state::{FULL_PAUSE, SinkState},
};
use crate::address::host_of;
use rustix::{
    event::{PollFd, PollFlags, poll},
    fd::OwnedFd,
    io::Errno,
    net::{SocketAddrAny, SocketFlags, acceptfrom_with, sockopt},
};
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
};

/// Serves each connection with a thread of its own.
pub(crate) fn serve_threads(
    state: &Arc<SinkState>,
    listeners: &[OwnedFd],
    wake: &OwnedFd,
) -> Result<(), String> {
    let active = Arc::new(AtomicUsize::new(0));
    let wake_again = Arc::new(wake.try_clone().map_err(|e| format!("copy an eventfd: {e}"))?);
    while !state.is_stopping() {
        let has_room = active.load(SeqCst) < state.bounds.sessions;
        let accepted = accept(state, if has_room { listeners } else { &[] }, wake);
        // Read until empty, so that the next session's end wakes us again.
        let _ = rustix::io::read(wake, &mut [0u8; 8]);
        let Some((socket, peer)) = accepted.map_err(|e| format!("accept a connection: {e}"))? else {
            continue;
        };
        active.fetch_add(1, SeqCst);
        let (state, active, wake) = (state.clone(), active.clone(), wake_again.clone());
        let started = thread::Builder::new().stack_size(256 * 1024).spawn(move || {
            serve(&state, &socket, peer.as_ref());
            if active.fetch_sub(1, SeqCst) == state.bounds.sessions {
                let _ = rustix::io::write(&*wake, &1u64.to_ne_bytes());
            }
        });
        started.map_err(|e| format!("start a thread: {e}"))?;
    }
    Ok(())
}

/// A fixed number of threads, each of which accepts for itself.
pub(crate) fn serve_pool(
    state: &Arc<SinkState>,
    listeners: &Arc<[OwnedFd]>,
    wake: &OwnedFd,
    workers: usize,
) -> Result<(), String> {
    let wake_of_all = Arc::new(wake.try_clone().map_err(|e| format!("copy an eventfd: {e}"))?);
    for _ in 0..workers.min(state.bounds.sessions) {
        let (state, listeners, wake) = (state.clone(), listeners.clone(), wake_of_all.clone());
        let work = move || {
            while !state.is_stopping() {
                match accept(&state, &listeners, &wake) {
                    Ok(Some((socket, peer))) => serve(&state, &socket, peer.as_ref()),
                    Ok(None) => {}
                    Err(error) => {
                        eprintln!("postlab: accept a connection: {}", io::Error::from(error));
                        return state.stop();
                    }
                }
            }
        };
        let started = thread::Builder::new().stack_size(256 * 1024).spawn(work);
        started.map_err(|e| format!("start a thread: {e}"))?;
    }
    // The wake-up stays unread, so that every worker sees it too; those inside a session end with us.
    wait_for_end(state, wake)
}

/// Returns when the state stops.
pub(crate) fn wait_for_end(state: &SinkState, wake: &OwnedFd) -> Result<(), String> {
    let mut ended = [PollFd::new(wake, PollFlags::IN)];
    while !state.is_stopping() {
        match poll(&mut ended, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(format!("wait for the end: {}", io::Error::from(error))),
        }
    }
    Ok(())
}

/// Waits for a connection; none when woken, or when another thread took it.
fn accept(
    state: &SinkState,
    listeners: &[OwnedFd],
    wake: &OwnedFd,
) -> Result<Option<(OwnedFd, Option<SocketAddrAny>)>, Errno> {
    let watched = std::iter::once(wake).chain(listeners);
    let mut fds: Vec<PollFd<'_>> = watched.map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    match poll(&mut fds, None) {
        Err(Errno::INTR) => return Ok(None),
        other => other?,
    };
    let Some(ready) = fds[1..].iter().position(|fd| !fd.revents().is_empty()) else { return Ok(None) };
    match acceptfrom_with(&listeners[ready], SocketFlags::CLOEXEC) {
        Ok(accepted) => Ok(Some(accepted)),
        Err(Errno::AGAIN | Errno::CONNABORTED | Errno::INTR) => Ok(None),
        Err(error) if state.is_full(error) => {
            thread::sleep(FULL_PAUSE);
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Serves one session until it is closed.
fn serve(state: &Arc<SinkState>, socket: &OwnedFd, peer: Option<&SocketAddrAny>) {
    for side in [sockopt::Timeout::Recv, sockopt::Timeout::Send] {
        // Zero would mean for ever.
        let _ = sockopt::set_socket_timeout(socket, side, Some(state.bounds.timeout.max(MIN_TIMEOUT)));
    }
    let mut session = Session::new(state, &peer.map(host_of).unwrap_or_default());
    let mut buffer = vec![0; READ_BYTES];
    let mut wish = session.advance(state, &[]);
    loop {
        if write_all(socket, session.output()).is_err() {
            break;
        }
        wish = match wish {
            Wish::Close => break,
            Wish::Pause(time) => {
                thread::sleep(time);
                session.advance(state, &[])
            }
            Wish::Store => {
                if let Some(stored) = session.storing() {
                    let result = spool::block_on(stored);
                    session.stored(state, &result);
                }
                session.advance(state, &[])
            }
            Wish::Read => match rustix::io::read(socket, &mut buffer[..]) {
                Ok(0) => break,
                Ok(length) => session.advance(state, &buffer[..length]),
                Err(Errno::INTR) => Wish::Read,
                Err(Errno::AGAIN) => {
                    session.timed_out(state);
                    Wish::Close
                }
                Err(_) => break,
            },
        };
    }
    session.closed(state);
}

/// Smaller than the event loop's buffer: here each session has one.
const READ_BYTES: usize = 16 * 1024;
const MIN_TIMEOUT: std::time::Duration = std::time::Duration::from_millis(1);

fn write_all(socket: &OwnedFd, output: &mut Vec<u8>) -> Result<(), Errno> {
    let mut rest = &output[..];
    while !rest.is_empty() {
        match rustix::io::write(socket, rest) {
            Ok(length) => rest = &rest[length..],
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    output.clear();
    Ok(())
}
