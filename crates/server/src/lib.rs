//! The daemon: starts its parts in order, and stops them without losing messages. What it needs of the machine (who may read what,
//! open files, room on disks, spools that nobody names any more) is here for the commands, too.

pub mod access;
pub mod acme;
mod alias_names;
mod backscatter;
pub mod capture;
mod clock;
mod commit_window;
pub mod connection;
mod copy;
mod delivery_log;
pub mod destinations;
mod dovecot_watch;
mod driver;
mod engine_setup;
mod expansions;
mod expiry;
pub mod helper;
pub mod imported;
mod kept_checks;
mod listeners;
mod map_entries;
pub mod map_faults;
pub mod map_warnings;
mod metrics_server;
mod notify;
pub mod open_files;
mod operator;
pub mod port_owner;
mod process;
mod progress;
pub mod queue_run;
mod redirect;
mod reload;
mod resources;
mod scrape;
pub mod site_files;
pub mod site_warnings;
pub mod snapshot;
mod sockets;
pub mod spool_room;
mod stages;
mod start;
mod terminal;
#[cfg(test)]
mod tests;
mod tls;
pub mod unnamed_spools;
mod unreachable;
mod unscheduled;
mod welcome;
pub mod wiring;
mod workers;

pub use delivery_log::DeliveryLog;
pub use process::{prepare_folder, prepare_folders};
pub use sockets::{try_address, try_addresses};
pub use start::{refuse_ephemeral, run};

use self::acme::ObtainedCertificate;
use accept::Acceptor;
use driver::Driver;
use helper::HelperProcess;
use inbound::Inbound;
use metrics::Metrics;
use process::Process;
use std::{
    path::PathBuf,
    sync::{Arc, Mutex, Weak},
};
use tls::ServerTls;

/// Whether mail is delivered, or only shown.
#[derive(Debug)]
pub enum Mode {
    /// Mail is delivered. The file is read again at a reload; none for the embedded default.
    Deliver(Option<PathBuf>),
    /// Mail is shown, and none is sent.
    Capture,
}

/// The running daemon, as the control socket uses it.
pub(crate) struct Daemon {
    /// For tasks and threads that the daemon begins.
    itself: Weak<Self>,
    driver: Arc<Driver>,
    acceptor: Arc<Acceptor<Driver>>,
    inbound: Arc<Inbound<Acceptor<Driver>>>,
    /// The configuration file, read again at a reload; none for the embedded default.
    source: Option<PathBuf>,
    /// The settings of the start: a reload keeps those that need a restart.
    started: Arc<config::Settings>,
    metrics: Metrics,
    /// The start of the process, in seconds since 1970.
    started_seconds: f64,
    /// With which rights the process was started, and which it has kept.
    process: Arc<Process>,
    helper: Option<HelperProcess>,
    /// Held while a configuration is read and put in use: one at a time, each made of the one before.
    reloading: tokio::sync::Mutex<()>,
    /// The certificates of the start or of the last reload.
    tls: Mutex<Arc<ServerTls>>,
    /// The certificate that the daemon obtains itself.
    obtained: ObtainedCertificate,
    /// The worker that obtains it; none if it obtains none.
    acme: Option<::acme::Handle>,
    /// The mail of local programs that could not be queued.
    dropped: Arc<Mutex<submission::Waiting>>,
}
