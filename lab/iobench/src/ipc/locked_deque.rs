//! Octets on their way from one thread to another: a deque behind a mutex. std's condition variable is a futex.

use std::{
    collections::VecDeque,
    io::{self, Read, Write},
    sync::{Arc, Condvar, Mutex},
};

/// The same as that of a pipe.
const CAPACITY_BYTES: usize = 64 * 1024;

#[derive(Default)]
struct State {
    octets: VecDeque<u8>,
    /// A side was dropped, which ends the waiting of the other.
    is_closed: bool,
}

/// A handle of one side. When one of the two is dropped, the other side's waiting ends.
#[derive(Default)]
pub(super) struct LockedDeque(Arc<(Mutex<State>, Condvar)>);

impl LockedDeque {
    /// Returns two handles of one new deque.
    pub(super) fn pair() -> [Self; 2] {
        let one = Self::default();
        [Self(one.0.clone()), one]
    }

    /// Waits until `is_ready` or the deque is closed, then does `work`, and wakes the other side.
    fn with<T>(
        &self,
        is_ready: impl Fn(&VecDeque<u8>) -> bool,
        work: impl FnOnce(&mut State) -> T,
    ) -> io::Result<T> {
        let (state, changed) = &*self.0;
        let broken = |_| io::Error::from(io::ErrorKind::BrokenPipe);
        let state = state.lock().map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        let is_early = |state: &mut State| !state.is_closed && !is_ready(&state.octets);
        let mut state = changed.wait_while(state, is_early).map_err(broken)?;
        let done = work(&mut state);
        drop(state);
        changed.notify_one();
        Ok(done)
    }
}

impl Read for LockedDeque {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.with(|octets| !octets.is_empty(), |state| state.octets.read(buffer))?
    }
}

impl Write for LockedDeque {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.with(
            |octets| octets.len() < CAPACITY_BYTES,
            |state| {
                if state.is_closed {
                    return Err(io::Error::new(io::ErrorKind::BrokenPipe, "the other thread has ended"));
                }
                let length = bytes.len().min(CAPACITY_BYTES - state.octets.len());
                state.octets.extend(&bytes[..length]);
                Ok(length)
            },
        )?
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for LockedDeque {
    fn drop(&mut self) {
        let (state, changed) = &*self.0;
        // A poisoned mutex ends the other side's waiting too.
        if let Ok(mut state) = state.lock() {
            state.is_closed = true;
        }
        changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn a_dropped_side_ends_the_waiting_of_the_other() {
        let [mut reader, writer] = LockedDeque::pair();
        let waiting = thread::spawn(move || reader.read(&mut [0; 4]).unwrap());
        drop(writer);
        assert_eq!(waiting.join().unwrap(), 0);
        let [reader, mut writer] = LockedDeque::pair();
        writer.write_all(&[0; CAPACITY_BYTES]).unwrap();
        let waiting = thread::spawn(move || writer.write(&[0; 4]).unwrap_err().kind());
        drop(reader);
        assert_eq!(waiting.join().unwrap(), io::ErrorKind::BrokenPipe);
    }
}
