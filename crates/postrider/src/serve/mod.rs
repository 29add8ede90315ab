//! The daemon: everything wired together, started in order, and stopped without a loss.

mod clock;
mod conclude;
mod counter;
mod engine;
mod held;
mod jobs;
mod journal;
mod operator;
mod phases;
pub(crate) mod queue_run;
mod recovery;
mod residents;
mod service;
mod start;
mod tls;
pub(crate) mod wiring;
mod workers;

pub(crate) use start::run;

use engine::Engine;
use inbound::Inbound;
use service::Desk;
use std::{path::PathBuf, sync::Arc};

/// The running daemon, as operators reach it.
pub(crate) struct Daemon {
    engine: Arc<Engine>,
    desk: Arc<Desk>,
    inbound: Arc<Inbound<Desk>>,
    /// The configuration file, read again at a reload; none for the embedded default.
    source: Option<PathBuf>,
    /// What it was started with: a reload keeps what takes a restart.
    started: config::Settings,
}
