//! The daemon: everything wired together, started in order, and stopped without a loss.

mod clock;
mod connection;
mod driver;
mod held;
mod journal;
mod operator;
mod phases;
pub(crate) mod queue_run;
mod recovery;
mod service;
mod snapshot;
mod start;
mod tls;
pub(crate) mod wiring;
mod workers;

pub(crate) use start::run;

use driver::Driver;
use inbound::Inbound;
use service::Acceptor;
use std::{path::PathBuf, sync::Arc};

/// The running daemon, as operators reach it.
pub(crate) struct Daemon {
    driver: Arc<Driver>,
    acceptor: Arc<Acceptor>,
    inbound: Arc<Inbound<Acceptor>>,
    /// The configuration file, read again at a reload; none for the embedded default.
    source: Option<PathBuf>,
    /// What it was started with: a reload keeps what takes a restart.
    started: config::Settings,
}
