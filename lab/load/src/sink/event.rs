//! `--model event`: loops, each a thread, that each wait for all their sessions at once.

use super::{
    session::{Session, Wish},
    state::SinkState,
};
use crate::{address::host_of, slots::Slots, spin::SpinPolicy};
use rustix::{
    event::{EventfdFlags, Timespec, epoll, eventfd},
    fd::{AsFd, OwnedFd},
    io::Errno,
    net::{RecvFlags, SendFlags, SocketAddrAny, SocketFlags, accept_with, acceptfrom_with, recv, send},
};
use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, Wake, Waker},
    time::{Duration, Instant},
};

/// Read at once; more would only wait in our memory instead of the kernel's.
const READ_BYTES: usize = 64 * 1024;
/// A session's events are edges: each is reported once, and handled before the next wait.
const EDGES: epoll::EventFlags =
    epoll::EventFlags::IN.union(epoll::EventFlags::RDHUP).union(epoll::EventFlags::ET);
/// Names of what is no session.
const WAKE: u64 = u64::MAX;
const LISTENERS: u64 = u64::MAX - 1024;
const STORED: u64 = LISTENERS - 1;

#[derive(Debug)]
struct Connection {
    socket: OwnedFd,
    session: Session,
    /// The connection is closed if the client does nothing until then.
    deadline: Instant,
    paused: bool,
    /// The session waits until its message is stored.
    is_storing: bool,
    /// Something came meanwhile: it is read afterwards.
    has_input: bool,
    /// Output did not fit: wait until it does, then do this.
    blocked: Option<Wish>,
    watched: epoll::EventFlags,
}

/// Sessions whose messages were stored, or could not be.
#[derive(Debug)]
struct StoredSessions {
    names: Mutex<Vec<u64>>,
    /// Wakes the loop.
    event: OwnedFd,
}

impl StoredSessions {
    fn take(&self) -> Vec<u64> {
        std::mem::take(&mut *self.names.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Tells a loop that it can ask for the result of a session.
struct StoredWaker {
    name: u64,
    sessions: Arc<StoredSessions>,
}

impl Wake for StoredWaker {
    fn wake(self: Arc<Self>) {
        let mut names = self.sessions.names.lock().unwrap_or_else(PoisonError::into_inner);
        names.push(self.name);
        // One event is enough for all that the loop takes together.
        if names.len() == 1 {
            let _ = rustix::io::write(&self.sessions.event, &1u64.to_ne_bytes());
        }
    }
}

/// One thread's loop over its listeners and sessions.
#[derive(Debug)]
pub(crate) struct Loop<'a> {
    state: &'a Arc<SinkState>,
    epoll: OwnedFd,
    spin_policy: SpinPolicy,
    listeners: &'a [OwnedFd],
    /// The share of the sessions that belongs to the loop.
    room: usize,
    accepting: bool,
    /// No more files may be open, as it was seen last.
    is_full: bool,
    connections: Slots<Connection>,
    pauses: BinaryHeap<Reverse<(Instant, u64)>>,
    /// Sessions that began to wait for the store in this round.
    storing: Vec<u64>,
    stored: Arc<StoredSessions>,
    next_sweep: Instant,
    buffer: Vec<u8>,
}

impl<'a> Loop<'a> {
    /// A loop with `room` for sessions, which ends when `wake` is readable.
    pub(crate) fn new(
        state: &'a Arc<SinkState>,
        listeners: &'a [OwnedFd],
        wake: impl AsFd,
        room: usize,
    ) -> Result<Self, Errno> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, wake, epoll::EventData::new_u64(WAKE), epoll::EventFlags::IN)?;
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &event, epoll::EventData::new_u64(STORED), epoll::EventFlags::IN)?;
        let mut this = Self {
            state,
            epoll,
            spin_policy: SpinPolicy::new(state.bounds.spin),
            listeners,
            room,
            accepting: false,
            is_full: false,
            connections: Slots::default(),
            pauses: BinaryHeap::new(),
            storing: Vec::new(),
            stored: Arc::new(StoredSessions { names: Mutex::default(), event }),
            next_sweep: Instant::now() + Duration::from_secs(1),
            buffer: vec![0; READ_BYTES],
        };
        this.accept_while_room()?;
        Ok(this)
    }

    /// Serves until the state stops.
    pub(crate) fn run(mut self) -> Result<(), Errno> {
        let mut events = Vec::with_capacity(256);
        while !self.state.is_stopping() {
            let timeout = self.timeout();
            self.spin_policy.wait(&self.epoll, &mut events, &timeout)?;
            for event in events.drain(..) {
                match event.data.u64() {
                    WAKE => {}
                    STORED => self.end_stores()?,
                    name if name >= LISTENERS => self.accept((name - LISTENERS) as usize)?,
                    name => self.ready(name, event.flags)?,
                }
            }
            self.begin_stores()?;
            self.end_pauses()?;
            self.sweep()?;
        }
        Ok(())
    }

    /// Until the next pause ends, or clients have to be looked after.
    fn timeout(&self) -> Timespec {
        let now = Instant::now();
        let until = self.pauses.peek().map_or(self.next_sweep, |Reverse((at, _))| self.next_sweep.min(*at));
        let left = until.saturating_duration_since(now);
        Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() }
    }

    /// Listens as long as this loop has room; the others may have some when it has not.
    fn accept_while_room(&mut self) -> Result<(), Errno> {
        let wanted = self.connections.len() < self.room && !self.is_full;
        if wanted == self.accepting {
            return Ok(());
        }
        self.accepting = wanted;
        for (i, listener) in self.listeners.iter().enumerate() {
            if wanted {
                let data = epoll::EventData::new_u64(LISTENERS + i as u64);
                epoll::add(
                    &self.epoll,
                    listener,
                    data,
                    epoll::EventFlags::IN | epoll::EventFlags::EXCLUSIVE,
                )?;
            } else {
                epoll::delete(&self.epoll, listener)?;
            }
        }
        Ok(())
    }

    fn accept(&mut self, listener: usize) -> Result<(), Errno> {
        if !self.accepting {
            return Ok(());
        }
        let (socket, peer) = match self.accept_from(listener) {
            Ok(accepted) => accepted,
            // Another loop was faster, or the client is gone already.
            Err(Errno::AGAIN | Errno::CONNABORTED | Errno::INTR) => return Ok(()),
            Err(error) if self.state.is_full(error) => {
                self.is_full = true;
                return self.accept_while_room();
            }
            Err(error) => return Err(error),
        };
        let session = Session::new(self.state, &peer.map(|p| host_of(&p)).unwrap_or_default());
        let deadline = Instant::now() + self.state.bounds.timeout;
        let watched = EDGES;
        let (paused, is_storing, has_input, blocked) = (false, false, false, None);
        let connection =
            Connection { socket, session, deadline, paused, is_storing, has_input, blocked, watched };
        let name = self.connections.insert(connection);
        let connection = self.connections.get(name).unwrap_or_else(|| unreachable!("it was just put in"));
        epoll::add(&self.epoll, &connection.socket, epoll::EventData::new_u64(name), watched)?;
        let wish = connection.session.advance(self.state, &[]);
        self.fulfil(name, wish)?;
        self.accept_while_room()
    }

    /// The address is asked for only where a dump shows it.
    fn accept_from(&self, listener: usize) -> Result<(OwnedFd, Option<SocketAddrAny>), Errno> {
        let (listener, flags) = (&self.listeners[listener], SocketFlags::NONBLOCK | SocketFlags::CLOEXEC);
        match self.state.dump {
            Some(_) => acceptfrom_with(listener, flags),
            None => accept_with(listener, flags).map(|socket| (socket, None)),
        }
    }

    /// A session's socket can be read, or written again.
    fn ready(&mut self, name: u64, flags: epoll::EventFlags) -> Result<(), Errno> {
        let Some(connection) = self.connections.get(name) else { return Ok(()) };
        if let Some(wish) = connection.blocked.take() {
            return self.fulfil(name, wish);
        }
        if connection.is_storing {
            connection.has_input = true;
            return Ok(());
        }
        if connection.paused {
            // Nothing is watched in a pause: the event says that the connection broke.
            return self.close(name);
        }
        while let Some(length) = self.read(name)? {
            // Behind a full buffer there may be more, and the client's end has its edge already.
            if length < self.buffer.len() && !flags.contains(epoll::EventFlags::RDHUP) {
                break;
            }
        }
        Ok(())
    }

    /// Reads once, and does what follows; how much was there, if the session reads on.
    fn read(&mut self, name: u64) -> Result<Option<usize>, Errno> {
        let is_reading = |v: &&mut Connection| !v.paused && !v.is_storing && v.blocked.is_none();
        let Some(connection) = self.connections.get(name).filter(is_reading) else {
            return Ok(None);
        };
        let length = match recv(&connection.socket, &mut self.buffer[..], RecvFlags::empty()) {
            Err(Errno::AGAIN) => return Ok(None),
            Err(Errno::INTR) => return self.read(name),
            Ok((_, length)) if length > 0 => length,
            // The client closed, or broke the connection: its affair, and counted as a session without QUIT.
            Ok(_) | Err(_) => return self.close(name).map(|()| None),
        };
        connection.deadline = Instant::now() + self.state.bounds.timeout;
        let wish = connection.session.advance(self.state, &self.buffer[..length]);
        self.fulfil(name, wish)?;
        Ok(Some(length))
    }

    /// Writes the output, then does what the session wants.
    fn fulfil(&mut self, name: u64, wish: Wish) -> Result<(), Errno> {
        let Some(connection) = self.connections.get(name) else { return Ok(()) };
        let output = connection.session.output();
        // Where the connection closes, the last reply and the FIN share a segment.
        let more = if wish == Wish::Close { SendFlags::MORE } else { SendFlags::empty() };
        while !output.is_empty() {
            match send(&connection.socket, output, SendFlags::NOSIGNAL | more) {
                Ok(length) if length == output.len() => output.clear(),
                Ok(length) => drop(output.drain(..length)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    connection.blocked = Some(wish);
                    return self.watch(name, epoll::EventFlags::OUT);
                }
                Err(_) => return self.close(name),
            }
        }
        match wish {
            Wish::Read => self.listen_again(name),
            Wish::Close => self.close(name),
            Wish::Store => {
                connection.is_storing = true;
                self.storing.push(name);
                Ok(())
            }
            Wish::Pause(time) => {
                self.pauses.push(Reverse((Instant::now() + time, name)));
                connection.paused = true;
                self.watch(name, epoll::EventFlags::empty())
            }
        }
    }
    fn watch(&mut self, name: u64, flags: epoll::EventFlags) -> Result<(), Errno> {
        let Some(connection) = self.connections.get(name) else { return Ok(()) };
        connection.watched = flags;
        epoll::modify(&self.epoll, &connection.socket, epoll::EventData::new_u64(name), flags)
    }

    /// Waits for input; mostly that is so already, and costs nothing.
    fn listen_again(&mut self, name: u64) -> Result<(), Errno> {
        match self.connections.get(name) {
            Some(connection) if connection.watched != EDGES => self.watch(name, EDGES),
            _ => Ok(()),
        }
    }

    fn close(&mut self, name: u64) -> Result<(), Errno> {
        if let Some(connection) = self.connections.remove(name) {
            // Closing the socket takes it out of the epoll set.
            drop(connection.socket);
            connection.session.closed(self.state);
            self.is_full = false;
        }
        self.accept_while_room()
    }

    /// Begins to wait for messages of this round: all that came together share a commit.
    fn begin_stores(&mut self) -> Result<(), Errno> {
        // A session that goes on may bring its next message at once.
        while !self.storing.is_empty() {
            for name in std::mem::take(&mut self.storing) {
                self.poll_store(name)?;
            }
        }
        Ok(())
    }

    /// Goes on with sessions whose messages are stored.
    fn end_stores(&mut self) -> Result<(), Errno> {
        // Read first: what is stored from now on has an event of its own.
        let _ = rustix::io::read(&self.stored.event, &mut [0u8; 8]);
        for name in self.stored.take() {
            self.poll_store(name)?;
        }
        Ok(())
    }

    fn poll_store(&mut self, name: u64) -> Result<(), Errno> {
        let Some(connection) = self.connections.get(name) else { return Ok(()) };
        let Some(stored) = connection.session.storing() else { return Ok(()) };
        let waker: Waker = Arc::new(StoredWaker { name, sessions: self.stored.clone() }).into();
        let Poll::Ready(result) = stored.as_mut().poll(&mut Context::from_waker(&waker)) else {
            return Ok(());
        };
        connection.session.stored(self.state, &result);
        connection.is_storing = false;
        connection.deadline = Instant::now() + self.state.bounds.timeout;
        let has_input = std::mem::take(&mut connection.has_input);
        let wish = connection.session.advance(self.state, &[]);
        self.fulfil(name, wish)?;
        // The edge of what came meanwhile is gone.
        while has_input && self.read(name)?.is_some() {}
        Ok(())
    }

    fn end_pauses(&mut self) -> Result<(), Errno> {
        while let Some(Reverse((at, name))) = self.pauses.peek().copied() {
            if at > Instant::now() {
                break;
            }
            self.pauses.pop();
            let Some(connection) = self.connections.get(name) else { continue };
            connection.paused = false;
            connection.deadline = Instant::now() + self.state.bounds.timeout;
            let wish = connection.session.advance(self.state, &[]);
            self.fulfil(name, wish)?;
        }
        Ok(())
    }

    /// Once a second: clients that were silent for too long, and files that another loop may have closed.
    fn sweep(&mut self) -> Result<(), Errno> {
        let now = Instant::now();
        if now < self.next_sweep {
            return Ok(());
        }
        self.next_sweep = now + Duration::from_secs(1);
        let late =
            |(name, v): (u64, &Connection)| (!v.paused && !v.is_storing && v.deadline <= now).then_some(name);
        for name in self.connections.iter().filter_map(late).collect::<Vec<_>>() {
            let Some(connection) = self.connections.get(name) else { continue };
            connection.session.timed_out(self.state);
            // Best effort: the client may not read either.
            let _ = rustix::io::write(&connection.socket, connection.session.output());
            self.close(name)?;
        }
        self.is_full = false;
        self.accept_while_room()
    }
}
