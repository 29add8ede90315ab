//! State that all sessions of a running sink share: rules, counts, and the conditions of its end.

use super::{
    dialog::Shared,
    dump,
    store::{Store, StoreCounts},
    tls,
};
use crate::checksum::{self, Verdict};
use rustix::io::Errno;
use std::{
    io::{self, Write as _},
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::{Duration, Instant},
};

/// The settings that are about the sink and not about one session.
#[derive(Debug, Clone)]
pub(crate) struct Bounds {
    /// At the same time; more wait in the kernel's queue.
    pub(crate) sessions: usize,
    /// The sink ends when a session closes and this many messages were taken.
    pub(crate) messages: Option<u64>,
    /// Sessions after whose end the sink ends.
    pub(crate) ended_sessions: Option<u64>,
    /// For a command, or to take a reply.
    pub(crate) timeout: Duration,
    /// Before a loop sleeps, it looks for so long.
    pub(crate) spin: Duration,
}

/// For sessions that are open when it is enough.
const GRACE: Duration = Duration::from_secs(1);

/// Pause before another look, where no more files may be open.
pub(crate) const FULL_PAUSE: Duration = Duration::from_millis(100);

/// Counted by all threads.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) sessions: AtomicU64,
    pub(crate) ended: AtomicU64,
    pub(crate) quits: AtomicU64,
    pub(crate) messages: AtomicU64,
    pub(crate) recipients: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) timeouts: AtomicU64,
    pub(crate) intact: AtomicU64,
    pub(crate) changed: AtomicU64,
    pub(crate) unwritten: AtomicU64,
    pub(crate) tls_sessions: AtomicU64,
}

/// What a sink has counted at one moment.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct SinkCounts {
    /// Sessions that began.
    pub sessions: u64,
    /// Sessions that ended with QUIT.
    pub quits: u64,
    /// Messages that were accepted.
    pub messages: u64,
    /// Recipients of these messages.
    pub recipients: u64,
    /// Messages refused at their end.
    pub refused: u64,
    /// Octets read, commands included.
    pub bytes: u64,
    /// Sessions that ended because the client was silent.
    pub timeouts: u64,
    /// Messages whose checksum was right.
    pub intact: u64,
    /// Messages that are not what was sent.
    pub changed: u64,
    /// Messages that could not be written to their file.
    pub unwritten: u64,
    /// Sessions with a TLS handshake that succeeded.
    pub tls_sessions: u64,
    /// Counters of the store, if messages are stored.
    pub store: Option<StoreCounts>,
    /// From the first session's begin to the last message.
    pub seconds: f64,
}

/// Rules, counts and end conditions of a running sink.
#[derive(Debug)]
pub struct SinkState {
    pub(crate) shared: Shared,
    pub(crate) bounds: Bounds,
    pub(crate) counts: Counts,
    pub(crate) dump: Option<dump::Settings>,
    /// TLS, if it is offered.
    pub(crate) tls: Option<tls::Settings>,
    /// `None`: messages are discarded.
    pub(crate) store: Option<Store>,
    /// Each session has a thread of its own, which may wait for a disk.
    pub(crate) may_block: bool,
    /// Show running counters, as smtp-sink -c.
    pub(crate) shows_counts: bool,
    started: Instant,
    first_ns: AtomicU64,
    last_ns: AtomicU64,
    stopping: AtomicBool,
    /// Set when enough has arrived, and the grace for open sessions runs.
    ending: AtomicBool,
    /// Set when the warning that no more files may be open was printed.
    is_full_told: AtomicBool,
    wake: Box<[rustix::fd::OwnedFd]>,
}

impl SinkState {
    /// A state that wakes `wakers` when it is enough.
    pub(crate) fn new(
        shared: Shared,
        bounds: Bounds,
        dump: Option<dump::Settings>,
        shows_counts: bool,
        wakers: Vec<rustix::fd::OwnedFd>,
    ) -> Self {
        Self {
            shared,
            bounds,
            counts: Counts::default(),
            dump,
            tls: None,
            store: None,
            may_block: false,
            shows_counts,
            started: Instant::now(),
            first_ns: AtomicU64::new(0),
            last_ns: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            is_full_told: AtomicBool::new(false),
            wake: wakers.into(),
        }
    }

    /// May no more files be open? Connections wait in the kernel then, until sessions have ended.
    pub(crate) fn is_full(&self, error: Errno) -> bool {
        let is_full = matches!(error, Errno::MFILE | Errno::NFILE);
        if is_full && !self.is_full_told.swap(true, Relaxed) {
            eprintln!("postlab: accept a connection: {}; more wait in the kernel", io::Error::from(error));
        }
        is_full
    }

    fn now_ns(&self) -> u64 {
        // 584 years of nanoseconds fit.
        self.started.elapsed().as_nanos() as u64 | 1
    }

    /// Counts a session that begins.
    pub(crate) fn opened(&self) {
        if self.counts.sessions.fetch_add(1, SeqCst) == 0 {
            self.first_ns.store(self.now_ns(), Relaxed);
        }
    }

    /// Counts a message that was accepted.
    pub(crate) fn took_message(&self, recipients: usize) {
        self.counts.messages.fetch_add(1, Relaxed);
        self.counts.recipients.fetch_add(recipients as u64, Relaxed);
        self.last_ns.store(self.now_ns(), Relaxed);
        self.show();
    }

    /// A message, whole, is compared with its checksum.
    pub(crate) fn verify(&self, message: &[u8]) {
        match checksum::verify(message) {
            Verdict::Intact => self.counts.intact.fetch_add(1, Relaxed),
            Verdict::Changed => self.counts.changed.fetch_add(1, Relaxed),
            Verdict::Unknown => return,
        };
    }

    /// A session ended; here smtp-sink looks whether it is enough, and exits. We let the sessions that are
    /// open end too, for a moment: their clients would take the cut for a failure.
    pub(crate) fn closed(self: &Arc<Self>, by_quit: bool) {
        self.counts.quits.fetch_add(u64::from(by_quit), Relaxed);
        let ended = self.counts.ended.fetch_add(1, SeqCst) + 1;
        self.show();
        let messages = self.counts.messages.load(Relaxed);
        let enough = self.bounds.ended_sessions.is_some_and(|n| ended >= n)
            || self.bounds.messages.is_some_and(|n| messages >= n);
        if enough && ended >= self.counts.sessions.load(SeqCst) {
            self.stop();
        } else if enough && !self.ending.swap(true, SeqCst) {
            let state = self.clone();
            std::thread::spawn(move || {
                std::thread::sleep(GRACE);
                state.stop();
            });
        }
    }

    fn show(&self) {
        if self.shows_counts {
            let c = &self.counts;
            let (sessions, quits) = (c.ended.load(Relaxed), c.quits.load(Relaxed));
            let mut out = std::io::stdout().lock();
            // Nothing can be done where nobody can see it.
            let _ = write!(out, "sess={sessions} quit={quits} mesg={}\r", c.messages.load(Relaxed));
            let _ = out.flush();
        }
    }

    /// Closes the store and removes its directory; for the end of the sink.
    pub(crate) fn close_store(&self) {
        if let Some(store) = &self.store {
            store.close();
        }
    }

    /// Tells the sink to end; open sessions have a moment more.
    pub fn stop(&self) {
        self.stopping.store(true, Relaxed);
        for fd in &self.wake {
            // A full counter wakes as well as a new one.
            let _ = rustix::io::write(fd, &1u64.to_ne_bytes());
        }
    }

    /// Returns whether the sink is ending.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Relaxed)
    }

    /// Returns the number of open sessions.
    pub fn open_sessions(&self) -> u64 {
        // A session that begins between the two counts is seen next time.
        let ended = self.counts.ended.load(Relaxed);
        self.counts.sessions.load(Relaxed).saturating_sub(ended)
    }

    /// Returns the time at which the last message was taken.
    pub fn last_message(&self) -> Option<Instant> {
        let at = self.last_ns.load(Relaxed);
        (at > 0).then(|| self.started + Duration::from_nanos(at))
    }

    /// Returns the numbers of events so far.
    pub fn counts(&self) -> SinkCounts {
        let c = &self.counts;
        let nanoseconds = self.last_ns.load(Relaxed).saturating_sub(self.first_ns.load(Relaxed));
        SinkCounts {
            sessions: c.sessions.load(Relaxed),
            quits: c.quits.load(Relaxed),
            messages: c.messages.load(Relaxed),
            recipients: c.recipients.load(Relaxed),
            refused: c.refused.load(Relaxed),
            bytes: c.bytes.load(Relaxed),
            timeouts: c.timeouts.load(Relaxed),
            intact: c.intact.load(Relaxed),
            changed: c.changed.load(Relaxed),
            unwritten: c.unwritten.load(Relaxed),
            tls_sessions: c.tls_sessions.load(Relaxed),
            store: self.store.as_ref().map(Store::counts),
            seconds: nanoseconds as f64 / 1e9,
        }
    }
}
