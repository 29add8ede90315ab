//! The stream of events. Sessions and the engine append events in binary form to buffers in memory; one thread decodes
//! them in the order of their times and passes them to all sinks. No session and no delivery waits for a disk.

use crate::event::{self, Event, UnixMicros};
use std::{
    io,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// The longest time that an event waits for others.
const GATHER: Duration = Duration::from_millis(100);
/// The number of waiting bytes at which events are written at once.
const BLOCK_BYTES: usize = 64 * 1024;
/// The most bytes that wait while a sink is busy; above, events are dropped.
const WAITING_MAX_BYTES: usize = 16 * 1024 * 1024;
/// The number of buffers. Each thread appends to one of them; more threads than buffers share.
const BUFFER_COUNT: usize = 16;
/// The interval in which sinks with unfinished work are called.
pub(crate) const TICK: Duration = Duration::from_secs(1);
/// Bytes before the binary form of an event: its length, and its time.
const HEAD_BYTES: usize = 12;

/// A destination of events: a log file, the history, counters. All its methods are called by one thread.
pub trait Sink: Send {
    /// Writes one event. Called by the stream's thread only.
    fn write(&mut self, at: UnixMicros, event: &Event<'_>);

    /// Called after the events that were waiting, and every second while it returned true: there is work left.
    fn flush(&mut self) -> bool {
        false
    }

    /// Opens files again, after a log rotation.
    fn reopen(&mut self) {}

    /// Returns the number of events or lines that the sink could not write, since it was opened.
    fn lost_count(&self) -> u64 {
        0
    }

    /// Returns why the sink loses events now, in words, if it does.
    fn fault(&self) -> Option<String> {
        None
    }
}

/// The stream. When it is dropped, waiting events are written.
pub struct EventStream {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    /// All times in the buffers are nanoseconds since then.
    epoch: Instant,
    buffers: [Buffer; BUFFER_COUNT],
    waiting_bytes: AtomicUsize,
    /// Events that were dropped because too many bytes were waiting.
    dropped_count: AtomicU64,
    /// Events or lines that sinks could not write.
    lost_count: AtomicU64,
    /// Why sinks lose events now.
    faults: Mutex<Vec<String>>,
    /// The thread waits for an event: an append has to wake it.
    is_idle: AtomicBool,
    requests: Mutex<Requests>,
    change: Condvar,
}

/// Each on cache lines of its own: threads append at the same time.
#[repr(align(128))]
#[derive(Default)]
struct Buffer(Mutex<Vec<u8>>);

#[derive(Default)]
struct Requests {
    is_reopening: bool,
    is_closing: bool,
}

thread_local! {
    /// Index of the buffer that this thread appends to.
    static OWN_BUFFER: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed) % BUFFER_COUNT
    };
}

impl EventStream {
    /// Starts the thread that writes to the sinks.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn start(sinks: Vec<Box<dyn Sink>>) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            epoch: Instant::now(),
            buffers: Default::default(),
            waiting_bytes: AtomicUsize::new(0),
            dropped_count: AtomicU64::new(0),
            lost_count: AtomicU64::new(0),
            faults: Mutex::default(),
            is_idle: AtomicBool::new(false),
            requests: Mutex::default(),
            change: Condvar::new(),
        });
        let writer =
            Writer { shared: shared.clone(), sinks, later: Vec::new(), reported_count: 0, has_work: false };
        let thread = std::thread::Builder::new().name("events".to_owned()).spawn(move || writer.run())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Appends an event. Never waits for a sink.
    pub fn write(&self, event: &Event<'_>) {
        let shared = &*self.shared;
        if shared.waiting_bytes.load(Ordering::Relaxed) > WAITING_MAX_BYTES {
            shared.dropped_count.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let mut buffer = shared.buffers[OWN_BUFFER.with(|own| *own)].lock();
        let begin = buffer.len();
        // Within the lock: what is in the buffer when the thread looks is everything older than that look.
        let at = shared.now_ns();
        buffer.extend_from_slice(&[0; 4]);
        buffer.extend_from_slice(&at.to_le_bytes());
        event::encode(event, &mut buffer);
        let count = buffer.len() - begin;
        let length = u32::try_from(count - HEAD_BYTES).unwrap_or(u32::MAX);
        buffer[begin..begin + 4].copy_from_slice(&length.to_le_bytes());
        drop(buffer);
        let before = shared.waiting_bytes.fetch_add(count, Ordering::SeqCst);
        // The thread is woken for the first event and for a full block, not for each.
        let is_full = before < BLOCK_BYTES && before + count >= BLOCK_BYTES;
        if is_full || (shared.is_idle.load(Ordering::SeqCst) && shared.is_idle.swap(false, Ordering::SeqCst))
        {
            drop(shared.requests());
            shared.change.notify_one();
        }
    }

    /// Returns the number of events and lines that were dropped.
    pub fn lost_count(&self) -> u64 {
        self.shared.dropped_count.load(Ordering::Relaxed) + self.shared.lost_count.load(Ordering::Relaxed)
    }

    /// Returns why sinks lose events now, in words.
    pub fn faults(&self) -> Vec<String> {
        self.shared.faults.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Opens the files of the sinks again, after a log rotation.
    pub fn reopen(&self) {
        self.shared.requests().is_reopening = true;
        self.shared.change.notify_one();
    }
}

impl Drop for EventStream {
    fn drop(&mut self) {
        self.shared.requests().is_closing = true;
        self.shared.change.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn requests(&self) -> MutexGuard<'_, Requests> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Waits for events or a request; returns what was requested.
    fn wait(&self, has_work: bool) -> Requests {
        let mut requests = self.requests();
        let is_quiet = |r: &mut Requests| {
            self.waiting_bytes.load(Ordering::SeqCst) == 0 && !r.is_reopening && !r.is_closing
        };
        self.is_idle.store(true, Ordering::SeqCst);
        if has_work {
            let waited = self.change.wait_timeout_while(requests, TICK, is_quiet);
            requests = waited.unwrap_or_else(PoisonError::into_inner).0;
        } else {
            requests = self.change.wait_while(requests, is_quiet).unwrap_or_else(PoisonError::into_inner);
        }
        self.is_idle.store(false, Ordering::SeqCst);
        let gathers = |r: &mut Requests| {
            let waiting = self.waiting_bytes.load(Ordering::SeqCst);
            waiting > 0 && waiting < BLOCK_BYTES && !r.is_reopening && !r.is_closing
        };
        let mut requests = self
            .change
            .wait_timeout_while(requests, GATHER, gathers)
            .unwrap_or_else(PoisonError::into_inner)
            .0;
        Requests { is_reopening: std::mem::take(&mut requests.is_reopening), is_closing: requests.is_closing }
    }
}

impl Buffer {
    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Drains the buffers, sorts the events by time and hands them to the sinks.
struct Writer {
    shared: Arc<Shared>,
    sinks: Vec<Box<dyn Sink>>,
    /// Events that are younger than the last look into the buffers: an older one may be in another buffer.
    later: Vec<u8>,
    /// Dropped events that were reported.
    reported_count: u64,
    has_work: bool,
}

impl Writer {
    fn run(mut self) {
        let mut spare: Vec<Vec<u8>> = vec![Vec::new(); BUFFER_COUNT];
        loop {
            let requests = self.shared.wait(self.has_work);
            self.write_waiting(&mut spare, requests.is_closing);
            self.report_dropped();
            self.has_work = false;
            for sink in &mut self.sinks {
                self.has_work |= sink.flush();
                if requests.is_reopening {
                    sink.reopen();
                }
            }
            let lost_count = self.sinks.iter().map(|sink| sink.lost_count()).sum();
            self.shared.lost_count.store(lost_count, Ordering::Relaxed);
            let faults = self.sinks.iter().filter_map(|sink| fault(&**sink)).collect();
            *self.shared.faults.lock().unwrap_or_else(PoisonError::into_inner) = faults;
            if requests.is_closing {
                return;
            }
        }
    }

    /// Takes everything from the buffers, and writes what is older than this look, in the order of the times.
    fn write_waiting(&mut self, taken: &mut [Vec<u8>], is_last: bool) {
        let now_ns = self.shared.now_ns();
        let UnixMicros(wall_us) = UnixMicros::now();
        for (buffer, taken) in self.shared.buffers.iter().zip(&mut *taken) {
            std::mem::swap(&mut *buffer.lock(), taken);
        }
        let taken_bytes: usize = taken.iter().map(Vec::len).sum();
        let until_ns = if is_last { u64::MAX } else { now_ns };
        let kept = std::mem::take(&mut self.later);
        let mut frames: Vec<(u64, &[u8])> = Vec::new();
        for mut bytes in taken.iter().chain([&kept]).map(|buffer| &buffer[..]) {
            while let Some((at_ns, frame, rest)) = split_frame(bytes) {
                frames.push((at_ns, frame));
                bytes = rest;
            }
        }
        frames.sort_by_key(|frame| frame.0);
        for (at_ns, frame) in frames {
            if at_ns > until_ns {
                self.later.extend_from_slice(&(frame.len() as u32).to_le_bytes());
                self.later.extend_from_slice(&at_ns.to_le_bytes());
                self.later.extend_from_slice(frame);
                continue;
            }
            let at = UnixMicros(wall_us.saturating_sub(now_ns.saturating_sub(at_ns) / 1000));
            let event = event::decode(frame);
            debug_assert!(event.is_some(), "the buffers have what was encoded");
            if let Some(event) = event {
                self.sinks.iter_mut().for_each(|sink| sink.write(at, &event));
            }
        }
        // Events that are kept for the next look go on waiting.
        self.shared.waiting_bytes.fetch_add(self.later.len(), Ordering::SeqCst);
        self.shared.waiting_bytes.fetch_sub(taken_bytes + kept.len(), Ordering::SeqCst);
        taken.iter_mut().for_each(Vec::clear);
    }

    fn report_dropped(&mut self) {
        let dropped_count = self.shared.dropped_count.load(Ordering::Relaxed);
        if dropped_count > self.reported_count {
            let at = UnixMicros::now();
            let event = Event::Dropped(dropped_count - self.reported_count);
            self.sinks.iter_mut().for_each(|sink| sink.write(at, &event));
            self.reported_count = dropped_count;
        }
    }
}

/// Returns why a sink loses events, and how many lines it has lost since the start.
fn fault(sink: &dyn Sink) -> Option<String> {
    let (fault, lost_count) = (sink.fault()?, sink.lost_count());
    Some(if lost_count > 0 { format!("{fault}; {} lost", mail::counted(lost_count, "line")) } else { fault })
}

/// Returns the time and the binary form of the first event, and the rest.
pub(crate) fn split_frame(bytes: &[u8]) -> Option<(u64, &[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let (at, rest) = rest.split_first_chunk::<8>()?;
    let (frame, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    Some((u64::from_le_bytes(*at), frame, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mail::QueueId;

    /// Takes the ids of completed messages, and passes them on at the end.
    struct CompletedIds(Arc<Mutex<Vec<u64>>>);

    impl Sink for CompletedIds {
        fn write(&mut self, _: UnixMicros, event: &Event<'_>) {
            if let Event::Completed(QueueId(id)) = event {
                self.0.lock().unwrap().push(*id);
            }
        }
    }

    #[test]
    fn events_of_several_threads_come_in_the_order_of_their_times() {
        let seen = Arc::default();
        let stream = EventStream::start(vec![Box::new(CompletedIds(Arc::clone(&seen)))]).unwrap();
        let turn = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let (stream, turn) = (&stream, &turn);
                scope.spawn(move || {
                    for n in (thread..3000).step_by(3) {
                        while turn.load(Ordering::Acquire) != n {
                            std::hint::spin_loop();
                            std::thread::yield_now();
                        }
                        stream.write(&Event::Completed(QueueId(n)));
                        turn.store(n + 1, Ordering::Release);
                    }
                });
            }
        });
        drop(stream);
        let seen = std::mem::take(&mut *seen.lock().unwrap());
        assert!(seen.iter().copied().eq(0..3000), "{seen:?}");
    }

    #[test]
    fn an_event_that_comes_alone_is_written_soon() {
        let seen = Arc::default();
        let stream = EventStream::start(vec![Box::new(CompletedIds(Arc::clone(&seen)))]).unwrap();
        for n in 0..3 {
            stream.write(&Event::Completed(QueueId(n)));
            while seen.lock().unwrap().len() as u64 <= n {
                std::thread::yield_now();
            }
        }
        assert_eq!(*seen.lock().unwrap(), [0, 1, 2]);
    }

    /// Blocks until it is released.
    struct Stuck(Arc<(Mutex<bool>, Condvar)>, Arc<AtomicU64>);

    impl Sink for Stuck {
        fn write(&mut self, _: UnixMicros, event: &Event<'_>) {
            let (released, change) = &*self.0;
            let _released = change.wait_while(released.lock().unwrap(), |released| !*released).unwrap();
            if let Event::Dropped(count) = event {
                self.1.fetch_add(*count, Ordering::Relaxed);
            }
        }
    }

    #[test]
    fn events_are_dropped_and_counted_while_a_sink_is_stuck() {
        let (gate, reported): (Arc<(Mutex<bool>, Condvar)>, Arc<AtomicU64>) = Default::default();
        let stream = EventStream::start(vec![Box::new(Stuck(gate.clone(), reported.clone()))]).unwrap();
        let reason = "x".repeat(60_000);
        while stream.lost_count() < 5 {
            stream.write(&Event::Held { id: QueueId(1), reason: &reason });
        }
        let lost_count = stream.lost_count();
        *gate.0.lock().unwrap() = true;
        gate.1.notify_all();
        drop(stream);
        assert_eq!(reported.load(Ordering::Relaxed), lost_count, "the log says how many");
    }
}
