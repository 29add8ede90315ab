//! A socket by io_uring: a round trip is one system call for each side, which sends and receives.

#![allow(unsafe_code)] // the kernel gets pointers to the buffers

use io_uring::{IoUring, opcode, types::Fd};
use rustix::io::Errno;
use std::{
    io::{self, Read, Write},
    mem,
    os::fd::{AsRawFd as _, OwnedFd},
};

/// Entries of the submission queue; two are used at a time.
const ENTRIES: u32 = 4;

/// Octets that a Unix socket takes in one piece or not at all: one buffer of the kernel.
const UNDIVIDED_BYTES: usize = 16 * 1024;

const SEND: u64 = 1;
const RECEIVE: u64 = 2;

/// Returns why the kernel refuses io_uring, if it does, and what to do about it.
pub(super) fn refusal() -> Option<String> {
    IoUring::new(ENTRIES).err().map(|e| reason(&e))
}

fn reason(error: &io::Error) -> String {
    let advice = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::PERM | Errno::ACCESS) => {
            "; set the sysctl kernel.io_uring_disabled to 0, or let the container's seccomp profile permit io_uring_setup"
        }
        Some(Errno::NOSYS) => "; it needs Linux 5.6 or later, built with CONFIG_IO_URING",
        Some(Errno::NOMEM) => "; raise the limit of locked memory (ulimit -l)",
        _ => "",
    };
    format!("the kernel refuses io_uring: {error}{advice}")
}

/// A connected socket that is read and written through io_uring.
pub(super) struct UringSocket {
    ring: IoUring,
    socket: OwnedFd,
    /// Octets to send; empty when nothing waits.
    outbox: Vec<u8>,
    inbox: Vec<u8>,
}

impl UringSocket {
    pub(super) fn new(socket: OwnedFd) -> io::Result<Self> {
        let ring = IoUring::new(ENTRIES).map_err(|e| io::Error::new(e.kind(), reason(&e)))?;
        Ok(Self { ring, socket, outbox: Vec::new(), inbox: Vec::new() })
    }

    /// Submits one operation on `outbox` from `sent` on.
    fn push_send(&mut self, sent: usize) -> io::Result<()> {
        let rest = &self.outbox[sent..];
        let length = u32::try_from(rest.len()).unwrap_or(u32::MAX);
        let entry = opcode::Send::new(Fd(self.socket.as_raw_fd()), rest.as_ptr(), length).build();
        // SAFETY: `transfer` neither changes nor frees `outbox` before the operation has ended, or leaks it.
        // The descriptor is open as long as `self`.
        unsafe { self.ring.submission().push(&entry.user_data(SEND)) }.map_err(io::Error::other)
    }

    /// Submits one operation that fills `inbox`.
    fn push_receive(&mut self) -> io::Result<()> {
        let length = u32::try_from(self.inbox.len()).unwrap_or(u32::MAX);
        let entry = opcode::Recv::new(Fd(self.socket.as_raw_fd()), self.inbox.as_mut_ptr(), length).build();
        // SAFETY: as for `outbox`.
        unsafe { self.ring.submission().push(&entry.user_data(RECEIVE)) }.map_err(io::Error::other)
    }

    /// Sends `outbox` and receives up to `inbox.len()` octets at the same time. No operation is under way when it returns.
    fn transfer(&mut self) -> io::Result<usize> {
        let done = self.complete_all();
        if done.is_err() {
            // The kernel may still use the buffers, so they are never freed.
            mem::forget(mem::take(&mut self.outbox));
            mem::forget(mem::take(&mut self.inbox));
        }
        self.outbox.clear();
        done?
    }

    /// Returns the outcome when each operation has ended: the number of octets received, or the error of an operation.
    ///
    /// # Errors
    /// The operations could not be submitted or awaited, and may be under way.
    fn complete_all(&mut self) -> io::Result<io::Result<usize>> {
        let (mut sent, mut received) = (0, Ok(0));
        let mut under_way = 0;
        if !self.outbox.is_empty() {
            self.push_send(0)?;
            under_way += 1;
        }
        if !self.inbox.is_empty() {
            self.push_receive()?;
            under_way += 1;
        }
        while under_way > 0 {
            // A part of a large message may have to be sent again before the other side answers.
            let awaited = if self.outbox.len() <= UNDIVIDED_BYTES { under_way } else { 1 };
            if let Err(e) = self.ring.submit_and_wait(awaited)
                && !is_transient(&e)
            {
                return Err(e);
            }
            let mut is_short = false;
            for completion in self.ring.completion() {
                under_way -= 1;
                match (completion.user_data(), usize::try_from(completion.result())) {
                    (SEND, Ok(length)) => {
                        sent += length;
                        is_short = sent < self.outbox.len();
                    }
                    (_, Ok(length)) => received = received.map(|_| length),
                    (_, Err(_)) => received = Err(io::Error::from_raw_os_error(-completion.result())),
                }
            }
            if is_short {
                self.push_send(sent)?;
                under_way += 1;
            }
        }
        Ok(received)
    }
}

/// Errors of the call itself after which no operation is lost.
fn is_transient(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::INTR | Errno::AGAIN | Errno::BUSY))
}

impl Write for UringSocket {
    /// Keeps the first octets, which the next read submits with its own operation; further ones are sent at once.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.outbox.is_empty() {
            self.flush()?;
        }
        self.outbox.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inbox.clear();
        self.transfer().map(drop)
    }
}

impl Read for UringSocket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        self.inbox.resize(buffer.len(), 0);
        let length = self.transfer()?;
        buffer[..length].copy_from_slice(&self.inbox[..length]);
        Ok(length)
    }
}

impl Drop for UringSocket {
    fn drop(&mut self) {
        // What the last write kept; an error has no one left to tell.
        let _ = self.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{os::unix::net::UnixStream, thread};

    #[test]
    fn a_refusal_says_what_to_set() {
        let says = |errno: Errno| reason(&io::Error::from(errno));
        assert!(says(Errno::PERM).contains("kernel.io_uring_disabled"), "{}", says(Errno::PERM));
        assert!(says(Errno::NOSYS).contains("5.6"), "{}", says(Errno::NOSYS));
        assert!(says(Errno::NOMEM).contains("ulimit -l"), "{}", says(Errno::NOMEM));
    }

    /// Two ends, or nothing where the kernel refuses io_uring.
    fn pair() -> Option<(UringSocket, UnixStream)> {
        if let Some(why) = refusal() {
            println!("skipped: {why}");
            return None;
        }
        let (near, far) = UnixStream::pair().unwrap();
        Some((UringSocket::new(near.into()).unwrap(), far))
    }

    #[test]
    fn more_than_the_socket_holds_is_sent_in_several_operations() {
        let Some((mut near, mut far)) = pair() else { return };
        let octets: Vec<u8> = (0..3_000_000_u32).map(|i| (i % 251) as u8).collect();
        let other = thread::spawn(move || {
            let mut heard = vec![0; 3_000_000];
            far.read_exact(&mut heard).unwrap();
            far.write_all(&heard).unwrap();
        });
        near.write_all(&octets).unwrap();
        let mut heard = vec![0; octets.len()];
        near.read_exact(&mut heard).unwrap();
        assert!(heard == octets);
        other.join().unwrap();
    }

    #[test]
    fn a_reply_may_need_the_whole_of_a_large_message() {
        let Some((mut near, mut far)) = pair() else { return };
        let other = thread::spawn(move || {
            let mut heard = vec![0; 1_000_000];
            far.read_exact(&mut heard).unwrap();
            far.write_all(&heard[..4]).unwrap();
        });
        // One write, which waits for the read.
        near.write_all(&[7; 1_000_000]).unwrap();
        let mut heard = [0; 4];
        near.read_exact(&mut heard).unwrap();
        assert_eq!(heard, [7; 4]);
        other.join().unwrap();
    }

    #[test]
    fn a_small_buffer_leaves_the_rest_and_drop_sends_what_waits() {
        let Some((mut near, mut far)) = pair() else { return };
        far.write_all(b"abcdef").unwrap();
        let mut parts = [[0; 2]; 3];
        for part in &mut parts {
            near.read_exact(part).unwrap();
        }
        assert_eq!(parts.concat(), b"abcdef");
        near.write_all(b"kept until the end").unwrap();
        drop(near);
        let mut rest = String::new();
        far.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "kept until the end");
    }

    #[test]
    fn the_end_of_the_other_side_ends_a_round_trip() {
        let Some((mut near, far)) = pair() else { return };
        near.write_all(b"octets").unwrap();
        drop(far);
        // Sending fails with EPIPE, or receiving with ECONNRESET; none of them waits.
        assert!(near.read(&mut [0; 4]).is_err());
        assert_eq!(near.read(&mut [0; 4]).unwrap(), 0);
    }
}
