//! The loop that keeps many sessions busy at once. One loop has a thread, some sessions and a counts of
//! its own; loops share the plan only.

use super::{
    counts::SourceCounts,
    line::{Line, Moved},
    plan::Plan,
    session::{Session, Turn},
    setup::Setup,
};
use crate::spin::SpinPolicy;
use rustix::{
    event::{Timespec, epoll},
    fd::OwnedFd,
    io::Errno,
};
use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    time::{Duration, Instant},
};

/// Replies are short; a server that sends more is read more often.
const READ_BYTES: usize = 64 * 1024;

/// One place of the loop: a session, and its connection while it has one.
#[derive(Debug)]
struct Place {
    session: Session,
    line: Option<Line>,
    /// Counts connections, so that an event for an old one is known.
    age: u32,
    /// The session fails if the server has not answered until then.
    deadline: Instant,
    done: bool,
}

/// An event loop: one thread that drives some of the source's sessions.
#[derive(Debug)]
pub(crate) struct Loop<'a> {
    setup: &'a Setup,
    plan: &'a Plan,
    epoll: OwnedFd,
    spin_policy: SpinPolicy,
    places: Vec<Place>,
    busy: usize,
    timers: BinaryHeap<Reverse<(Instant, usize)>>,
    next_sweep: Instant,
    buffer: Vec<u8>,
    counts: SourceCounts,
}

impl<'a> Loop<'a> {
    /// Makes a loop for `count` sessions, which have no connections yet.
    pub(crate) fn new(setup: &'a Setup, plan: &'a Plan, count: usize) -> Result<Self, Errno> {
        let now = Instant::now();
        let place = |_| Place { session: Session::default(), line: None, age: 0, deadline: now, done: false };
        Ok(Self {
            setup,
            plan,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            spin_policy: SpinPolicy::new(setup.spin),
            places: (0..count).map(place).collect(),
            busy: count,
            timers: BinaryHeap::new(),
            next_sweep: now + SWEEP,
            buffer: vec![0; READ_BYTES],
            counts: SourceCounts::seen_by(plan.live()),
        })
    }

    /// Sends until the plan is through, and returns what was measured.
    pub(crate) fn run(mut self) -> Result<SourceCounts, Errno> {
        for i in 0..self.places.len() {
            self.turn(i, Instant::now())?;
        }
        let mut events = Vec::with_capacity(256);
        while self.busy > 0 {
            let timeout = self.timeout();
            self.spin_policy.wait(&self.epoll, &mut events, &timeout)?;
            for event in events.drain(..) {
                let name = event.data.u64();
                let (age, i) = ((name >> 32) as u32, name as u32 as usize);
                if self.places[i].age == age {
                    self.ready(i, event.flags)?;
                }
            }
            self.end_waits()?;
            self.sweep()?;
        }
        Ok(self.counts)
    }

    fn timeout(&self) -> Timespec {
        let until = self.timers.peek().map_or(self.next_sweep, |Reverse((at, _))| self.next_sweep.min(*at));
        let left = until.saturating_duration_since(Instant::now());
        Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() }
    }

    /// A place's connection was made, can be read, or can be written again.
    fn ready(&mut self, i: usize, flags: epoll::EventFlags) -> Result<(), Errno> {
        let Self { setup, places, buffer, counts, .. } = self;
        let place = &mut places[i];
        let Some(line) = &mut place.line else { return Ok(()) };
        let mut now = Instant::now();
        place.deadline = now + setup.timeout;
        line.sees(flags);
        let (mut more, mut again) = (true, false);
        while more {
            let moved = if line.is_connecting() { line.connected(flags) } else { line.read(buffer) };
            // An edge is told once: what it stands for must be used up.
            more = match moved {
                Moved::Connected => flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::RDHUP),
                // The end may stand behind what was read, and has its edge already.
                Moved::Read(length) => length == buffer.len() || line.has_ended() || line.is_secure(),
                Moved::Secured => true,
                Moved::Nothing | Moved::Broken(_) => false,
            };
            match moved {
                Moved::Connected => {
                    place.session.connected(setup, now, counts);
                    // A greeting that is there already took some time to be read, too.
                    now = Instant::now();
                }
                Moved::Read(length) => {
                    counts.bytes_in += length as u64;
                    place.session.received(setup, &buffer[..length], line.arrival(), now, counts);
                    if place.session.is_owed_more() {
                        line.holds(now, counts.pauses.tries_acknowledgement());
                    }
                }
                Moved::Secured => place.session.secured(setup, now, counts),
                Moved::Nothing => {}
                Moved::Broken(fault) if place.session.tries_again(&fault, setup, now, counts) => again = true,
                Moved::Broken(fault) => {
                    let fault = place.session.at_server(&fault, setup);
                    place.session.broken(&fault, counts);
                }
            }
            more &= !place.session.hangs_up();
        }
        if again {
            place.line = None;
        }
        self.turn(i, now)
    }

    /// Lets a session do what it can: connect, speak, wait, or end.
    fn turn(&mut self, i: usize, mut now: Instant) -> Result<(), Errno> {
        loop {
            let Self { setup, plan, epoll, places, counts, .. } = self;
            let place = &mut places[i];
            match place.session.turn(setup, plan, now, counts) {
                Turn::Connect => {
                    place.age = place.age.wrapping_add(1);
                    place.deadline = now + setup.timeout;
                    let name = u64::from(place.age) << 32 | i as u64;
                    let address = place.session.address(setup);
                    match address.and_then(|address| Line::connect(setup, &address, epoll, name)) {
                        Ok(line) => place.line = Some(line),
                        Err(fault) if place.session.tries_again(&fault, setup, now, counts) => {}
                        Err(fault) => {
                            let fault = place.session.at_server(&fault, setup);
                            place.session.broken(&fault, counts);
                        }
                    }
                }
                Turn::Speak => {
                    let (Some(line), Some(output)) = (&mut place.line, place.session.output()) else {
                        return Ok(());
                    };
                    match line.write(output) {
                        Ok(length) => counts.bytes_out += length as u64,
                        Err(fault) => place.session.broken(&fault, counts),
                    }
                    if place.session.output().is_some_and(|output| !output.is_empty()) {
                        // It did not fit; there will be an event when it does.
                        return Ok(());
                    }
                }
                Turn::Secure => {
                    let started = place.line.as_mut().map(|line| line.start_tls(setup));
                    if let Some(Err(fault)) = started {
                        place.session.broken(&fault, counts);
                    }
                }
                Turn::HangUp => {
                    if let Some(line) = place.line.take() {
                        line.close();
                    }
                    place.age = place.age.wrapping_add(1);
                    // Closing takes long enough to be told from the next connection.
                    now = Instant::now();
                }
                Turn::Wait(until) => {
                    self.timers.push(Reverse((until, i)));
                    return Ok(());
                }
                Turn::Listen => return Ok(()),
                Turn::Done => {
                    self.busy -= usize::from(!std::mem::replace(&mut place.done, true));
                    return Ok(());
                }
            }
        }
    }

    fn end_waits(&mut self) -> Result<(), Errno> {
        while let Some(Reverse((at, i))) = self.timers.peek().copied() {
            let now = Instant::now();
            if at > now {
                break;
            }
            self.timers.pop();
            self.turn(i, now)?;
        }
        Ok(())
    }

    /// Now and then: servers that owe an answer for too long, and whether the run was stopped.
    fn sweep(&mut self) -> Result<(), Errno> {
        let now = Instant::now();
        if now < self.next_sweep {
            return Ok(());
        }
        self.next_sweep = now + SWEEP;
        let stopped = self.plan.is_stopped();
        for i in 0..self.places.len() {
            let place = &mut self.places[i];
            if place.session.waits() && (place.deadline <= now || stopped) {
                place.session.timed_out(stopped, self.setup, &mut self.counts);
                self.turn(i, now)?;
            } else if stopped {
                self.turn(i, now)?;
            }
        }
        Ok(())
    }
}

/// Between two looks at silent servers.
const SWEEP: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::super::{SourceArgs, measure};
    use super::*;
    use crate::{arguments::arguments, sink::served::Served};
    use ::measure::kept_port::kept_port;
    use std::net::{Ipv4Addr, SocketAddr};

    #[test]
    fn an_address_that_refuses_costs_nothing_where_another_takes() {
        let sink = Served::start(&arguments(&["127.0.0.1:0"]).unwrap()).unwrap();
        let args: SourceArgs = arguments(&["-m 8 -s 3", &sink.address]).unwrap();
        let mut setup = args.setup().unwrap();
        // Bound and not listening: nobody else can take the port meanwhile.
        let (_kept, nobody) = kept_port(Ipv4Addr::LOCALHOST).unwrap();
        // Port 1 of no interface: that one fails at once, and is no refusal.
        let nowhere: SocketAddr = "255.255.255.255:1".parse().unwrap();
        setup.addresses.splice(0..0, [nobody.into(), nowhere.into()]);
        let report = measure(&args, &setup, &Plan::new(8, None, Instant::now())).unwrap();
        assert_eq!((report.messages_sent, report.failures.len()), (8, 0), "{report:?}");
        setup.addresses.pop();
        let report = measure(&args, &setup, &Plan::new(2, None, Instant::now())).unwrap();
        assert_eq!((report.messages_sent, report.messages_failed), (0, 2), "{report:?}");
        sink.stop().unwrap();
    }
}
