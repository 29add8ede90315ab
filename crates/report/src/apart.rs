//! A sink with a thread of its own, so that no other sink waits for it.

use crate::{
    Event, Sink, UnixMicros, event,
    stream::{TICK, split_frame},
};
use std::{
    io,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// The name of a log on the standard error.
pub const STANDARD_ERROR: &str = "the standard error";
/// The most bytes that wait for the sink; above, events are dropped.
const WAITING_MAX_BYTES: usize = 4 * 1024 * 1024;
/// The time for which the sink takes nothing, after which nobody is said to read.
const UNREAD_AFTER: Duration = Duration::from_secs(2);
/// The longest time that the end of the process waits for the sink.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// Passes events on to a sink that may block, because somebody has to read at the other end: a pipe, or the socket of the system
/// log. Events are dropped and counted while too many wait.
pub struct Apart {
    shared: Arc<Shared>,
}

struct Shared {
    /// What should be read at its other end, in words.
    name: String,
    state: Mutex<State>,
    change: Condvar,
    /// Events that were dropped here.
    dropped_count: AtomicU64,
    /// Events or lines that the sink could not write.
    lost_count: AtomicU64,
    fault: Mutex<Option<String>>,
}

#[derive(Default)]
struct State {
    /// Events in binary form, with length and time.
    waiting: Vec<u8>,
    /// The events in `waiting`, and those that the sink has not taken yet.
    waiting_count: u64,
    /// When the sink was given what it has not taken yet.
    busy_since: Option<Instant>,
    /// The log of the daemon says that nobody reads.
    is_told: bool,
    is_reopening: bool,
    is_closing: bool,
    has_ended: bool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Apart {
    /// Starts the thread of a sink. `name`: what somebody should read.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn start(name: String, sink: Box<dyn Sink>) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            name,
            state: Mutex::default(),
            change: Condvar::new(),
            dropped_count: AtomicU64::new(0),
            lost_count: AtomicU64::new(0),
            fault: Mutex::default(),
        });
        let own = shared.clone();
        std::thread::Builder::new().name("log".to_owned()).spawn(move || run(&own, sink))?;
        Ok(Self { shared })
    }
}

fn run(shared: &Shared, mut sink: Box<dyn Sink>) {
    let (mut taken, mut has_work) = (Vec::new(), false);
    loop {
        let mut state = shared.state();
        let is_quiet = |s: &mut State| s.waiting.is_empty() && !s.is_reopening && !s.is_closing;
        state = if has_work {
            shared.change.wait_timeout_while(state, TICK, is_quiet).unwrap_or_else(PoisonError::into_inner).0
        } else {
            shared.change.wait_while(state, is_quiet).unwrap_or_else(PoisonError::into_inner)
        };
        std::mem::swap(&mut state.waiting, &mut taken);
        let taken_count = state.waiting_count;
        state.busy_since = (taken_count > 0).then(Instant::now);
        let (is_reopening, is_closing) = (std::mem::take(&mut state.is_reopening), state.is_closing);
        drop(state);
        let mut bytes = &taken[..];
        while let Some((at, frame, rest)) = split_frame(bytes) {
            if let Some(event) = event::decode(frame) {
                sink.write(UnixMicros(at), &event);
            }
            bytes = rest;
        }
        taken.clear();
        has_work = sink.flush();
        if is_reopening {
            sink.reopen();
        }
        shared.lost_count.store(sink.lost_count(), Ordering::Relaxed);
        *shared.fault.lock().unwrap_or_else(PoisonError::into_inner) = sink.fault();
        let mut state = shared.state();
        state.waiting_count -= taken_count;
        (state.busy_since, state.is_told) = (None, false);
        if is_closing && state.waiting.is_empty() {
            state.has_ended = true;
            shared.change.notify_all();
            return;
        }
    }
}

impl Sink for Apart {
    fn write(&mut self, at: UnixMicros, event: &Event<'_>) {
        let mut state = self.shared.state();
        if state.waiting.len() > WAITING_MAX_BYTES {
            self.shared.dropped_count.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let begin = state.waiting.len();
        state.waiting.extend_from_slice(&[0; 4]);
        state.waiting.extend_from_slice(&at.0.to_le_bytes());
        event::encode(event, &mut state.waiting);
        let length = (state.waiting.len() - begin - 12) as u32;
        state.waiting[begin..begin + 4].copy_from_slice(&length.to_le_bytes());
        state.waiting_count += 1;
    }

    fn flush(&mut self) -> bool {
        self.shared.change.notify_all();
        // Called again until the sink has taken all: what it lost is known then.
        self.shared.state().waiting_count > 0
    }

    fn reopen(&mut self) {
        self.shared.state().is_reopening = true;
        self.shared.change.notify_all();
    }

    fn lost_count(&self) -> u64 {
        self.shared.dropped_count.load(Ordering::Relaxed) + self.shared.lost_count.load(Ordering::Relaxed)
    }

    fn fault(&self) -> Option<String> {
        let mut state = self.shared.state();
        if state.busy_since.is_none_or(|since| since.elapsed() < UNREAD_AFTER) {
            drop(state);
            return self.shared.fault.lock().unwrap_or_else(PoisonError::into_inner).clone();
        }
        let waiting = mail::counted(state.waiting_count, "event");
        let text = format!("nobody reads {} at its other end: {waiting} in memory", self.shared.name);
        // The log of the daemon would not be read, either, and would make this thread wait.
        if !std::mem::replace(&mut state.is_told, true) && self.shared.name != STANDARD_ERROR {
            drop(state);
            tracing::warn!("{text}");
        }
        Some(text)
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.is_closing = true;
        self.shared.change.notify_all();
        let ended = self.shared.change.wait_timeout_while(state, END_TIMEOUT, |state| !state.has_ended);
        let state = ended.unwrap_or_else(PoisonError::into_inner).0;
        if !state.has_ended {
            // The thread ends with the process.
            let (name, count) = (&self.shared.name, mail::counted(state.waiting_count, "event"));
            tracing::warn!("nobody reads {name} at its other end: {count} not written before the end");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EventStream, log::Syslog};
    use mail::QueueId;
    use std::{os::unix::net::UnixDatagram, time::Instant};

    /// Counts events.
    struct Counter(Arc<AtomicU64>);

    impl Sink for Counter {
        fn write(&mut self, _: UnixMicros, _: &Event<'_>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Takes nothing, as a pipe that nobody reads.
    struct Blocked;

    impl Sink for Blocked {
        fn write(&mut self, _: UnixMicros, _: &Event<'_>) {
            loop {
                std::thread::park();
            }
        }
    }

    #[test]
    fn a_sink_that_takes_nothing_delays_neither_the_others_nor_the_end() {
        let seen = Arc::new(AtomicU64::new(0));
        let apart = Apart::start("the pipe".to_owned(), Box::new(Blocked)).unwrap();
        let stream = EventStream::start(vec![Box::new(apart), Box::new(Counter(seen.clone()))]).unwrap();
        let long = "x".repeat(10_000);
        let held = Event::Held { id: QueueId(1), reason: &long };
        let (begun, mut written) = (Instant::now(), 0);
        while stream.lost_count() == 0 {
            stream.write(&held);
            written += 1;
            // What was written reaches the other sink while the first one takes nothing.
            while seen.load(Ordering::SeqCst) + 100 < written {
                assert!(begun.elapsed() < Duration::from_secs(60));
                std::thread::yield_now();
            }
        }
        let begun = Instant::now();
        drop(stream);
        assert!(begun.elapsed() < 10 * END_TIMEOUT, "{:?}", begun.elapsed());
        assert!(seen.load(Ordering::SeqCst) >= written);
    }

    #[test]
    fn a_system_log_that_does_not_read_is_counted_and_delays_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let _server = UnixDatagram::bind(&path).unwrap();
        let seen = Arc::new(AtomicU64::new(0));
        let apart = Apart::start("the socket".to_owned(), Box::new(Syslog::open(path, 7))).unwrap();
        let stream = EventStream::start(vec![Box::new(apart), Box::new(Counter(seen.clone()))]).unwrap();
        for id in 0..2000 {
            stream.write(&Event::Completed(QueueId(id)));
        }
        let begun = Instant::now();
        while seen.load(Ordering::SeqCst) < 2000 {
            assert!(begun.elapsed() < Duration::from_secs(20), "another sink waits for the system log");
            std::thread::yield_now();
        }
        drop(stream);
        assert!(begun.elapsed() < Duration::from_secs(20));
    }
}
