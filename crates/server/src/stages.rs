//! The start of the daemon, as values that can only be passed on in this order: [`Bound`], [`Confined`], [`Recovered`],
//! [`Serving`]. docs/decisions/sandbox.md says why: threads that run already would keep the rights of the start, and what
//! another process may have is asked for before a long queue is read.

use crate::{
    Daemon, Mode,
    acme::{self, ObtainedCertificate},
    capture::Viewer,
    commit_window,
    delivery_log::DeliveryLog,
    driver::Driver,
    engine_setup::EngineSetup,
    expansions,
    helper::{self, HelperProcess},
    metrics_server::{self, MetricsSocket},
    process::Process,
    sockets::Inherited,
    start::{
        Problem, UnixSocket, bind_all, check_spools, close_failed, keep_last_good, local_sockets,
        open_events, open_spool, recover, start_flush_tasks, warn, warn_of_unread_postmaster, watching,
    },
    tls::{self, ServerTls},
    unscheduled,
    welcome::Welcome,
    wiring,
    workers::{self, Workers},
};
use accept::Acceptor;
use config::Settings;
use control::Exit;
use inbound::{Inbound, Listener, WorkerPool};
use metrics::Metrics;
use spool::{CommitWaiters, Spool};
use std::{
    path::PathBuf,
    sync::{Arc, Mutex, atomic::Ordering},
    time::{Instant, SystemTime, UNIX_EPOCH},
};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Sockets are bound and keys are read, with the rights of the start. The process has one thread.
pub(super) struct Bound {
    begun: Instant,
    settings: Settings,
    source: Option<PathBuf>,
    viewer: Option<Viewer>,
    welcome: Welcome,
    hangup: Signal,
    process: Process,
    listeners: Vec<Listener>,
    acme: Option<acme::Prepared>,
    control: UnixSocket,
    submit: UnixSocket,
    metrics_socket: Option<MetricsSocket>,
    obtained: ObtainedCertificate,
    server_tls: Arc<ServerTls>,
    helper: Option<HelperProcess>,
}

impl Bound {
    /// Opens what another process may have, and reads what only the user of the start may read: what is refused costs no recovery.
    ///
    /// # Errors
    /// An address is in use, a key or certificate cannot be read, or a folder cannot be made.
    pub(super) fn new(workers: &Workers, settings: Settings, mode: Mode) -> Result<Self, Problem> {
        let begun = Instant::now();
        let (source, viewer) = match mode {
            Mode::Deliver(source) => (source, None),
            Mode::Capture => (None, Some(Viewer::of(&settings))),
        };
        let welcome = Welcome::new(&settings, viewer.as_ref());
        // Install the SIGHUP handler first: the default action would kill the process. A SIGHUP that arrives while
        // the queue is read takes effect afterwards; SIGTERM and SIGINT still end the start at once.
        let hangup = {
            let _context = workers.main().enter();
            signal(SignalKind::hangup()).map_err(|e| watching(&e))?
        };
        let process = Process::new(&settings)?;
        check_spools(&settings, source.as_deref())?;
        process.prepare(&settings)?;
        let inherited = Inherited::from_env();
        let (listeners, acme) = {
            let _context = workers.main().enter();
            bind_all(&settings, &process, inherited)?
        };
        let (control, submit) = local_sockets(&settings, &process)?;
        let metrics_socket = MetricsSocket::bind(&settings, &process)?;
        let obtained = ObtainedCertificate::read(&settings);
        let server_tls = Arc::new(tls::server_config(&settings, &obtained)?);
        warn(&settings, source.as_deref());
        keep_last_good(&settings, source.as_deref());
        let helper = HelperProcess::start_if_needed(&settings, source.as_deref())?;
        Ok(Self {
            begun,
            settings,
            source,
            viewer,
            welcome,
            hangup,
            process,
            listeners,
            acme,
            control,
            submit,
            metrics_socket,
            obtained,
            server_tls,
            helper,
        })
    }

    /// Becomes the daemon's user, gives up all files and ports that the configuration does not need, and only then starts threads.
    ///
    /// # Errors
    /// The user or the sandbox is refused, or a log cannot be opened.
    pub(super) fn confine(mut self, workers: &mut Workers) -> Result<Confined, Problem> {
        self.process.confine(&self.settings, self.source.as_deref())?;
        helper::ask_accounts(self.helper.as_ref());
        let (metrics, delivery_log) = open_events(&self.settings, self.viewer.take())?;
        let count = self.settings.workers.worker_threads;
        workers.start_others(count).map_err(|e| format!("start the workers: {e}"))?;
        unscheduled::check_start()?;
        commit_window::check_start()?;
        Ok(Confined { bound: self, metrics, delivery_log })
    }
}

/// The process has its user and its files. It writes its logs, and has its threads.
pub(super) struct Confined {
    bound: Bound,
    metrics: Metrics,
    delivery_log: DeliveryLog,
}

impl Confined {
    /// Reads the queue from the spool, and gives it to the engine.
    ///
    /// # Errors
    /// The spool or a map cannot be opened, or the spool is damaged beyond repair.
    pub(super) fn recover(self, workers: &Workers) -> Result<Recovered, Problem> {
        let Self { bound, metrics, delivery_log } = self;
        let (settings, runtime) = (&bound.settings, workers.main());
        let mut spool = open_spool(settings)?;
        let current = {
            let _context = runtime.enter();
            let helper = bound.helper.as_ref().map(HelperProcess::helper);
            Arc::new(wiring::current(settings.clone(), None, helper)?)
        };
        let mut setup = EngineSetup::new(current.engine.clone(), current);
        let reading = Instant::now();
        let report = recover(&mut *spool, &mut setup, settings)?;
        let read_us = reading.elapsed().as_micros() as u64;
        let spool: Arc<dyn Spool> = Arc::from(spool);
        let (mut driver, effects) = setup.into_driver(spool.clone(), delivery_log);
        driver.start_read_us.store(read_us, Ordering::Relaxed);
        driver.commit_waiters = CommitWaiters::new(workers.handles().len(), spool.shard_count());
        let driver = Arc::new(driver);
        start_flush_tasks(workers, &driver, spool.shard_count());
        let _context = runtime.enter();
        driver.begin(effects);
        warn_of_unread_postmaster(&driver, bound.source.as_deref());
        Ok(Recovered { bound, metrics, driver, spool, message_count: report.message_count })
    }
}

/// The queue is read, and deliveries may begin.
pub(super) struct Recovered {
    bound: Bound,
    metrics: Metrics,
    driver: Arc<Driver>,
    spool: Arc<dyn Spool>,
    message_count: u64,
}

impl Recovered {
    /// Joins the parts, and gives up all system calls but those that a running daemon needs.
    ///
    /// # Errors
    /// A socket cannot be listened at, or the kernel refuses the filter of system calls.
    pub(super) fn serve(self, workers: &Workers) -> Result<Serving, Problem> {
        let Self { bound, metrics, driver, spool, message_count } = self;
        let acceptor = Arc::new(Acceptor::new(driver.clone(), spool.clone(), driver.ids.clone()));
        let inbound = {
            let _context = workers.main().enter();
            expansions::begin(&driver, &acceptor);
            let pool = WorkerPool::new(workers.handles(), workers::sharing());
            let current = driver.current();
            let inbound =
                wiring::inbound_settings(&bound.settings, current.logins.as_ref(), &bound.server_tls);
            Inbound::new(acceptor.clone(), inbound, Some(bound.server_tls.plain.clone()), pool)
        };
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let helper = bound.helper;
        let acme = match bound.acme {
            Some(prepared) => {
                Some(acme::start(prepared, &bound.obtained, helper.as_ref(), driver.closing.subscribe())?)
            }
            None => None,
        };
        let daemon = Arc::new_cyclic(|itself| Daemon {
            itself: itself.clone(),
            driver,
            acceptor,
            inbound,
            source: bound.source,
            started: Arc::new(bound.settings),
            metrics,
            started_seconds: started.as_secs_f64(),
            process: Arc::new(bound.process),
            helper,
            reloading: tokio::sync::Mutex::default(),
            tls: Mutex::new(bound.server_tls),
            obtained: bound.obtained,
            acme,
            dropped: Arc::default(),
        });
        daemon.helper.as_ref().map_or(Ok(()), HelperProcess::watch)?;
        if let Some(socket) = bound.metrics_socket {
            metrics_server::start(socket, daemon.clone())?;
        }
        daemon.process.restrict_calls()?;
        tracing::info!(
            "{} starts with {} in its queue, after {} ms",
            daemon.started.hostname,
            mail::counted(message_count, "message"),
            bound.begun.elapsed().as_millis()
        );
        Ok(Serving {
            daemon,
            spool,
            hangup: bound.hangup,
            listeners: bound.listeners,
            control: bound.control,
            submit: bound.submit,
            welcome: bound.welcome,
            message_count,
        })
    }
}

/// The daemon is whole. Nothing has been accepted from its sockets yet.
pub(super) struct Serving {
    daemon: Arc<Daemon>,
    spool: Arc<dyn Spool>,
    hangup: Signal,
    listeners: Vec<Listener>,
    control: UnixSocket,
    submit: UnixSocket,
    welcome: Welcome,
    message_count: u64,
}

impl Serving {
    /// Runs until a signal or a failure ends it, and closes the spool.
    ///
    /// # Errors
    /// A part of the daemon has failed.
    pub(super) fn run(self, workers: &Workers) -> Result<Exit, Problem> {
        let Self { daemon, spool, hangup, listeners, control, submit, welcome, message_count } = self;
        let operated = daemon.operate(hangup, listeners, control, submit, message_count, &welcome);
        let exit = workers.main().block_on(operated)?;
        if exit == Exit::IoErr {
            close_failed(spool);
            return Ok(exit);
        }
        spool.close();
        // The last commit, of outcomes that no caller waited for, may have failed.
        Ok(if spool.pressure().poisoned { Exit::IoErr } else { exit })
    }
}
