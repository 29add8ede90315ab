//! Waiting for events. A thread that sleeps takes longer to wake, above all in a virtual machine, than a peer on the
//! other core takes to answer; so a loop may look again and again for some microseconds first (`--spin`).

use rustix::{
    buffer::spare_capacity,
    event::{Timespec, epoll},
    fd::OwnedFd,
    io::Errno,
};
use std::time::{Duration, Instant};

/// The way in which a loop waits. It does not spin for a peer that takes longer: each spin without an event doubles the
/// number of waits without a spin.
#[derive(Debug)]
pub(crate) struct SpinPolicy {
    spin: Duration,
    /// Spins without an event, one after the other.
    misses: u32,
    /// So many waits without a spin are left.
    rest: u32,
}

const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
/// Waits without a spin, at most.
const REST_MAX: u32 = 1024;

impl SpinPolicy {
    /// Looks for so long before it sleeps.
    pub(crate) fn new(spin: Duration) -> Self {
        Self { spin, misses: 0, rest: 0 }
    }

    /// Returns with events, or without when the time is over or a signal came.
    pub(crate) fn wait(
        &mut self,
        epoll: &OwnedFd,
        events: &mut Vec<epoll::Event>,
        timeout: &Timespec,
    ) -> Result<(), Errno> {
        if self.wants_spin() && *timeout != NOW {
            let begin = Instant::now();
            while begin.elapsed() < self.spin {
                look(epoll, events, &NOW)?;
                if !events.is_empty() {
                    self.misses = 0;
                    return Ok(());
                }
                std::hint::spin_loop();
            }
            self.misses = (self.misses + 1).min(REST_MAX.ilog2());
            // One may be chance.
            self.rest = (1 << self.misses) - 2;
        }
        look(epoll, events, timeout)
    }

    fn wants_spin(&mut self) -> bool {
        let rests = self.rest > 0;
        self.rest = self.rest.saturating_sub(1);
        !rests && !self.spin.is_zero()
    }
}

fn look(epoll: &OwnedFd, events: &mut Vec<epoll::Event>, timeout: &Timespec) -> Result<(), Errno> {
    match epoll::wait(epoll, spare_capacity(events), Some(timeout)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Reads the value of `--spin`: microseconds.
pub(crate) fn micros_of(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(us @ 0..=10_000) => Ok(Duration::from_micros(us)),
        _ => Err(format!("`{text}` is not a number of microseconds up to 10000")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_spins_in_vain_rests_longer_and_longer() {
        let mut spin_policy = SpinPolicy::new(Duration::from_micros(1));
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let timeout = Timespec { tv_sec: 0, tv_nsec: 1 };
        let mut rests = Vec::new();
        for _ in 0..8 {
            spin_policy.wait(&epoll, &mut Vec::with_capacity(4), &timeout).unwrap();
            rests.push(spin_policy.rest);
        }
        assert_eq!(rests, [0, 2, 1, 0, 6, 5, 4, 3]);
        assert!(!SpinPolicy::new(Duration::ZERO).wants_spin());
    }
}
