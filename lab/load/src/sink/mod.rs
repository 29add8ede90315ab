//! `postlab sink`: takes mail and throws it away, with every option of Postfix's smtp-sink(1).
//!
//! [`dialog`] is one session without I/O; [`event`] and its sisters are the ways to drive many. Read
//! first: [`dialog::Dialog`] and [`event::Loop`].

mod args;
mod blocking;
mod dialog;
mod dump;
mod event;
mod greylist;
mod listen;
mod log;
mod privilege;
mod rules;
pub mod served;
mod session;
mod state;
mod store;
mod tasks;
mod tls;
mod verb;

pub use args::SinkArgs;
pub(crate) use rules::Credentials;

use crate::{
    address,
    table::{Cell, Column, Table},
};
pub use args::{Model, TlsMode};
use measure::command::Failure;
use rustix::{
    event::{EventfdFlags, eventfd},
    fd::OwnedFd,
};
pub use state::{SinkCounts, SinkState};
use std::{io, sync::Arc, thread};
pub use store::StoreCounts;

/// As many as S4's thrpool had at its best.
const POOL_WORKERS: usize = 64;

/// Runs until it is enough, or a signal says so.
pub fn run(args: &SinkArgs) -> Result<(), Failure> {
    args.check_store().map_err(Failure::Usage)?;
    let sink = Sink::open(args)?;
    privilege::drop(args.root.as_deref(), args.user.as_deref())?;
    for listener in &sink.listeners {
        let address = listen::local_address(listener).map_err(|e| format!("name the socket: {e}"))?;
        eprintln!("postlab: the sink listens on {}", address::shown(&address));
    }
    let state = sink.state.clone();
    crate::signals::on_end({
        let state = state.clone();
        move || state.stop()
    })?;
    let served = sink.serve(args.model, args.threads.map(usize::from));
    let finished = served.and_then(|()| finish(&state, args));
    state.close_store();
    Ok(finished?)
}

/// A sink that listens and does not serve yet.
pub struct Sink {
    state: Arc<SinkState>,
    listeners: Vec<OwnedFd>,
    wakers: Vec<OwnedFd>,
}

impl Sink {
    /// Opens the listening sockets; nothing is served yet.
    pub fn open(args: &SinkArgs) -> Result<Self, String> {
        let listeners = listen::open(&args.endpoint, args.listening())?;
        // The other half is for who sends, on this machine or in the kernel.
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let loops = match args.model {
            Model::Event | Model::Async => args.threads.map_or(cores.div_ceil(2), usize::from),
            // They have one that all look at.
            Model::Thread | Model::Pool => 1,
        };
        let wakers = wakers(loops).map_err(|e| format!("make an eventfd: {e}"))?;
        let shared = dialog::Shared::new(Arc::new(args.rules()));
        let copies = copies(&wakers).map_err(|e| format!("copy an eventfd: {e}"))?;
        let tls = args.tls()?;
        let mut state = SinkState::new(shared, args.bounds(), args.dump(), args.shows_counts(), copies);
        state.tls = tls;
        state.store = args.store()?;
        state.may_block = matches!(args.model, Model::Thread | Model::Pool);
        let state = Arc::new(state);
        Ok(Self { state, listeners, wakers })
    }

    /// Returns the state: the counters, and the means to stop the sink.
    pub fn state(&self) -> Arc<SinkState> {
        self.state.clone()
    }

    /// The address it was given, the first if there are several.
    pub fn address(&self) -> Result<String, String> {
        let first = self.listeners.first().ok_or("the sink has no socket")?;
        let address = listen::local_address(first).map_err(|e| format!("name the socket: {e}"))?;
        Ok(address::shown(&address))
    }

    /// Serves until the state stops.
    pub fn serve(self, model: Model, threads: Option<usize>) -> Result<(), String> {
        let Self { state, listeners, wakers } = self;
        match model {
            Model::Event => serve_events(&state, &listeners, &wakers),
            Model::Thread => blocking::serve_threads(&state, &listeners, &wakers[0]),
            Model::Pool => {
                blocking::serve_pool(&state, &listeners.into(), &wakers[0], threads.unwrap_or(POOL_WORKERS))
            }
            Model::Async => tasks::serve(&state, listeners, &wakers[0], wakers.len()),
        }
    }
}

fn wakers(count: usize) -> io::Result<Vec<OwnedFd>> {
    let one = || Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
    (0..count).map(|_| one()).collect()
}

fn copies(fds: &[OwnedFd]) -> io::Result<Vec<OwnedFd>> {
    fds.iter().map(OwnedFd::try_clone).collect()
}

/// One loop for each waker. The bound on sessions is dealt out, so that no loop asks another.
fn serve_events(state: &Arc<SinkState>, listeners: &[OwnedFd], wakers: &[OwnedFd]) -> Result<(), String> {
    let count = wakers.len().min(state.bounds.sessions);
    let share = |i: usize| state.bounds.sessions / count + usize::from(i < state.bounds.sessions % count);
    let serve = |i: usize| {
        let served = event::Loop::new(state, listeners, &wakers[i], share(i)).and_then(event::Loop::run);
        served.map_err(|e| {
            state.stop();
            format!("serve sessions: {}", io::Error::from(e))
        })
    };
    thread::scope(|scope| {
        let others: Vec<_> = (1..count).map(|i| scope.spawn(move || serve(i))).collect();
        let mine = serve(0);
        let theirs = others.into_iter().map(|t| t.join().unwrap_or_else(|_| Err("a loop panicked".into())));
        theirs.fold(mine, Result::and)
    })
}

fn finish(state: &SinkState, args: &SinkArgs) -> Result<(), String> {
    let tally = state.counts();
    if args.shows_counts() {
        println!();
    }
    let mut table = Table::new(args.format, &COLUMNS, None);
    table.fields(&tally)?;
    table.record(cells(&tally));
    if tally.changed > 0 {
        let remark = format!("{} messages are not what was sent", tally.changed);
        eprintln!("postlab: {remark}");
        table.silent_remark(remark);
    }
    if let Some(store) = tally.store {
        eprintln!("postlab: {}", store.text());
        table.silent_remark(store.text());
    }
    table.finish();
    match tally.unwritten {
        0 => Ok(()),
        count => Err(format!("{count} messages could not be written")),
    }
}

const COLUMNS: [Column; 17] = [
    Column::other("sessions", "sessions"),
    Column::other("ended with QUIT", "quits"),
    Column::other("messages", "messages"),
    Column::other("recipients", "recipients"),
    Column::other("refused", "refused"),
    Column::other("octets", "bytes"),
    Column::other("timeouts", "timeouts"),
    Column::other("intact", "intact"),
    Column::other("changed", "changed"),
    Column::other("not written", "unwritten"),
    Column::other("sessions with TLS", "tls_sessions"),
    Column::other("s", "seconds"),
    Column::other("messages/s", "messages_per_second"),
    Column::other("stored", "stored"),
    Column::other("commits", "store_commits"),
    Column::other("syncs", "store_syncs"),
    Column::other("writes", "store_writes"),
];

fn cells(counts: &SinkCounts) -> [Cell; 17] {
    let of_store = |value: fn(&StoreCounts) -> u64| Cell::from(counts.store.as_ref().map(value));
    let rate = (counts.seconds > 0.0).then(|| counts.messages as f64 / counts.seconds);
    [
        counts.sessions.into(),
        counts.quits.into(),
        counts.messages.into(),
        counts.recipients.into(),
        counts.refused.into(),
        counts.bytes.into(),
        counts.timeouts.into(),
        counts.intact.into(),
        counts.changed.into(),
        counts.unwritten.into(),
        counts.tls_sessions.into(),
        Cell::Number(counts.seconds, 3),
        rate.map_or(Cell::Empty, |rate| Cell::Number(rate, 1)),
        of_store(|store| store.stored),
        of_store(|store| store.commits),
        of_store(StoreCounts::syncs),
        of_store(|store| store.writes),
    ]
}
