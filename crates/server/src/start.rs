//! Start, signals, stop.

use super::{
    Daemon, Mode, acme,
    capture::Viewer,
    delivery_log::DeliveryLog,
    dovecot_watch,
    driver::Driver,
    engine_setup::EngineSetup,
    expiry, helper, kept_checks, listeners, notify,
    process::{self, Process},
    resources, site_warnings,
    sockets::{self, Inherited},
    stages::Bound,
    unreachable,
    welcome::Welcome,
    wiring,
    workers::Workers,
};
use crate::{
    access::{self, Fault},
    imported,
    open_files::Connections,
    unnamed_spools,
};
use config::{ListenAddress, ListenAt, Settings};
use console::journal::{self, Priority};
use control::{Exit, serve_control, server::Access, socket};
use engine::Event;
use inbound::Listener;
use mail::{UnixMillis, escape_invisible, plain_text};
use metrics::Metrics;
use report::Sink;
use rustix::event::{PollFd, PollFlags, Timespec};
use spool::{RecoveryReport, Spool};
use std::{
    io::{self, Write as _},
    path::Path,
    process::ExitCode,
    sync::{Arc, mpsc},
    time::Duration,
};
use submission::{MaildropScanner, maildrop::Quota, serve_submit};
use tokio::{
    net::UnixListener,
    signal::unix::{Signal, SignalKind, signal},
};
use tracing_subscriber::fmt::MakeWriter;

/// The allocator keeps memory that only the start needed for a second.
const MEMORY_KEPT: Duration = Duration::from_millis(1500);
/// More than it keeps for the next who asks.
const LARGE_BYTES: usize = 1 << 20;
/// After a failure of the spool, sessions and deliveries may go on for so long: nothing they do can be recorded.
const FAILURE_GRACE: Duration = Duration::from_millis(500);
/// After a failure, the threads of the spool may take so long to end: the disk may not answer them.
const FAILURE_CLOSE: Duration = Duration::from_millis(250);
/// While stopping, what is still open is looked at this often.
const STOP_INTERVAL: Duration = Duration::from_millis(10);

/// Serves until SIGTERM or SIGINT.
pub fn run(settings: Settings, mode: Mode) -> ExitCode {
    // Standard error may be a full disk or a closed pipe: what cannot be written there is lost, and mail goes on. The
    // subscriber would report its failed write there, too, and panic.
    let subscriber = tracing_subscriber::fmt().with_writer(Stderr).with_target(false);
    let subscriber = subscriber.log_internal_errors(false);
    if journal::is_stderr() {
        // The journal has the time and the priority of each entry.
        subscriber.without_time().with_level(false).with_ansi(false).init();
    } else {
        subscriber.init();
    }
    match start(settings, mode) {
        Ok(exit) => exit.into(),
        Err(problem) => {
            let text = format!("postrider: {}\n", escape_invisible(&plain_text(&problem.text)));
            let _ = io::stderr().write_all(journal::for_stderr(Priority::Error, &text).as_bytes());
            problem.exit.into()
        }
    }
}

/// A Unix socket that was opened before there was a runtime.
pub(super) type UnixSocket = std::os::unix::net::UnixListener;

/// Makes the writer of each event, which knows the event's priority.
struct Stderr;

impl MakeWriter<'_> for Stderr {
    type Writer = PlainStderr;

    fn make_writer(&self) -> PlainStderr {
        PlainStderr(Priority::Info)
    }

    fn make_writer_for(&self, metadata: &tracing::Metadata<'_>) -> PlainStderr {
        PlainStderr(match *metadata.level() {
            tracing::Level::ERROR => Priority::Error,
            tracing::Level::WARN => Priority::Warning,
            tracing::Level::INFO => Priority::Info,
            _ => Priority::Debug,
        })
    }
}

/// Standard error, for lines of the daemon: they have no numbers of the operating system.
struct PlainStderr(Priority);

impl PlainStderr {
    /// Waits a moment until a line can be written. A pipe that nobody reads would block the thread that logs, and so mail.
    fn is_read() -> bool {
        let stderr = io::stderr();
        let mut poll = [PollFd::new(&stderr, PollFlags::OUT)];
        let timeout = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
        // Where it cannot be asked, as in a file, it does not block.
        !matches!(rustix::event::poll(&mut poll, Some(&timeout)), Ok(0))
    }
}

impl io::Write for PlainStderr {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if !Self::is_read() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        match std::str::from_utf8(line).map(plain_text) {
            Ok(plain) => {
                let line = mail::escape_invisible(&plain);
                io::stderr().write_all(journal::for_stderr(self.0, &line).as_bytes())?;
            }
            Err(_) => io::stderr().write_all(line)?,
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The reason why the daemon does not start, or why it ended.
pub(super) struct Problem {
    text: String,
    exit: Exit,
}

impl From<String> for Problem {
    fn from(text: String) -> Self {
        Self { text, exit: Exit::Unavailable }
    }
}

impl From<wiring::NotOpened> for Problem {
    fn from(wiring::NotOpened { text, exit }: wiring::NotOpened) -> Self {
        Self { text, exit }
    }
}

impl From<process::Failed> for Problem {
    fn from((text, exit): process::Failed) -> Self {
        Self { text, exit }
    }
}

fn start(settings: Settings, mode: Mode) -> Result<Exit, Problem> {
    process::raise_limits();
    // A failed first start leaves nothing. What systemd has opened is not asked for.
    sockets::try_addresses(settings.listen.iter().map(|listen| &listen.address))?;
    let mut workers = Workers::new().map_err(|e| format!("start the workers: {e}"))?;
    let exit = serve(&mut workers, settings, mode);
    workers.end();
    exit
}

fn serve(workers: &mut Workers, settings: Settings, mode: Mode) -> Result<Exit, Problem> {
    let confined = Bound::new(workers, settings, mode)?.confine(workers)?;
    confined.recover(workers)?.serve(workers)?.run(workers)
}

/// Opens the logs, and begins to count events.
pub(super) fn open_events(
    settings: &Settings,
    viewer: Option<Viewer>,
) -> Result<(Metrics, DeliveryLog), String> {
    let metrics = Metrics::new();
    let mut sinks = wiring::history(settings)?;
    sinks.push(Box::new(metrics.sink()));
    sinks.push(Box::new(unreachable::OutageFile::new(&settings.data_dir)));
    sinks.extend(viewer.map(|viewer| Box::new(viewer) as Box<dyn Sink>));
    let events = wiring::log(settings, sinks)?;
    Ok((metrics, DeliveryLog::new(events, settings.log.connections)))
}

/// Stores a copy of the configuration file for commands.
pub(super) fn keep_last_good(settings: &Settings, source: Option<&Path>) {
    if let Some(file) = source
        && let Err(error) = config::keep_last_good(file, &settings.data_dir)
    {
        let file = file.display();
        tracing::warn!("store a copy of {file}, which commands use if the file has a mistake: {error}");
    }
}

/// Starts the tasks that wake sessions of each worker when a commit of a shard is durable.
pub(super) fn start_flush_tasks(workers: &Workers, driver: &Arc<super::Driver>, shard_count: usize) {
    for (number, worker) in workers.handles().into_iter().enumerate() {
        for shard in 0..shard_count {
            let driver = driver.clone();
            worker.spawn(
                async move { driver.commit_waiters.run_flush_task(number, shard, &*driver.spool).await },
            );
        }
    }
}

/// The environment variable that permits what `spool.ephemeral` permits.
const EPHEMERAL: &str = "POSTRIDER_EPHEMERAL";

/// Refuses a spool on a file system that a power cut or the end of a container erases.
///
/// # Errors
/// Names the spool and its file system, and says what to write to use it all the same.
pub fn refuse_ephemeral(settings: &Settings) -> Result<(), String> {
    let is_permitted = || std::env::var(EPHEMERAL).is_ok_and(|value| matches!(&*value, "true" | "1"));
    for spool in settings.spools().iter().filter(|spool| spool.backend != config::Backend::Null) {
        let paths = [Some(&spool.path), spool.content_path.as_ref()].into_iter().flatten();
        let found = paths.filter_map(|path| Some((path, spool::disk::weak_file_system_of(path)?))).next();
        let Some((path, text)) = found.filter(|_| !spool.ephemeral && !is_permitted()) else { continue };
        return Err(format!(
            "the spool {} would be on {text}; or, if this mail may be lost, write `ephemeral = true` in [spool]",
            path.display()
        ));
    }
    Ok(())
}

/// Refuses spools that may lose mail, and those whose mail would be forgotten. Before the process is confined, since it reads folders
/// that the configuration does not name.
pub(super) fn check_spools(settings: &Settings, source: Option<&Path>) -> Result<(), Problem> {
    refuse_spools(settings, source).map_err(|text| Problem { text, exit: Exit::Config })
}

/// Refuses spools for a start, or for a reload that a start would follow.
///
/// # Errors
/// Mail would be lost at a power cut, or lies in a spool that the configuration no longer names.
pub(super) fn refuse_spools(settings: &Settings, source: Option<&Path>) -> Result<(), String> {
    if source.is_some() {
        refuse_ephemeral(settings)?;
    }
    unnamed_spools::find(settings).first().map_or(Ok(()), |unnamed| Err(unnamed.to_string()))
}

/// Opens the spool, and notes where those of queue groups are.
pub(super) fn open_spool(settings: &Settings) -> Result<Box<dyn Spool>, Problem> {
    let spool = wiring::spool(settings)?;
    if let Err(error) = unnamed_spools::record(settings) {
        tracing::warn!("record the spools of queue groups in {}: {error}", settings.data_dir.display());
    }
    Ok(spool)
}

/// Says what will not work well; with the rights of the start.
pub(super) fn warn(settings: &Settings, source: Option<&Path>) {
    // Nobody has written the embedded default, and so nobody is warned of it.
    let site = source.map(|_| site_warnings::warnings(settings, UnixMillis::now()));
    let warnings =
        helper::warnings(settings, rustix::process::geteuid()).into_iter().chain(site.into_iter().flatten());
    let limited = Connections::warning(settings);
    let faults = source.map(|_| {
        access::mailbox_faults(settings).unwrap_or_else(|error| {
            tracing::warn!("the paths of mailboxes are not checked: {error}");
            Vec::new()
        })
    });
    let boxes = faults.into_iter().flatten().map(|Fault { text, advice, .. }| format!("{text}: {advice}"));
    warnings.chain(limited).chain(boxes).for_each(|warning| tracing::warn!("{warning}"));
    if settings.spool.durability == config::Durability::None {
        tracing::warn!(
            "spool.durability is \"none\": the reply 250 does not wait for the disk, and a crash loses accepted mail"
        );
    }
}

/// Says if nobody reads the postmaster's mail, as soon as its maps have answered.
pub(super) fn warn_of_unread_postmaster(driver: &Driver, source: Option<&Path>) {
    if source.is_some() {
        let current = driver.current();
        tokio::spawn(async move { current.warn_of_unread_postmaster().await });
    }
}

/// Reads the queue from the spool, and reports its faults.
pub(super) fn recover(
    spool: &mut dyn Spool,
    setup: &mut EngineSetup,
    settings: &Settings,
) -> Result<RecoveryReport, Problem> {
    let report = spool
        .recover(&mut |found| setup.recovered(&found))
        .map_err(|e| wiring::NotOpened::new("recover the spool", &e))?;
    imported::note_recovered(&settings.data_dir, setup.take_imported())?;
    setup.totals(&report.totals);
    setup.outages(unreachable::load(&settings.data_dir));
    report.copies.iter().for_each(|copy| setup.second_copy(copy));
    report.problems().for_each(|problem| tracing::error!("{problem}"));
    Ok(report)
}

/// Closes a spool that has failed; does not wait for a disk that does not answer.
pub(super) fn close_failed(spool: Arc<dyn Spool>) {
    let (done, closed) = mpsc::channel();
    let close = move || {
        spool.close();
        let _ = done.send(());
    };
    if let Err(e) = std::thread::Builder::new().name("spool-close".to_owned()).spawn(close) {
        tracing::warn!("start the spool-close thread: {e}");
    } else if closed.recv_timeout(FAILURE_CLOSE).is_err() {
        tracing::warn!("the disk does not answer: the process ends without closing the spool");
    }
}

pub(super) fn watching(e: &io::Error) -> String {
    format!("watch for signals and sockets: {e}")
}

/// The allocator looks for memory to give back to the system when something large is freed: a daemon with
/// a long queue and little to do would keep what reading it took.
async fn trim_allocator() {
    tokio::time::sleep(MEMORY_KEPT).await;
    drop(std::hint::black_box(Vec::<u8>::with_capacity(LARGE_BYTES)));
}

/// Binds the sockets for operators and for local mail.
pub(super) fn local_sockets(
    settings: &Settings,
    process: &Process,
) -> Result<(UnixSocket, UnixSocket), String> {
    let control = &settings.control;
    let mode = if control.group.is_some() { 0o660 } else { 0o600 };
    let group = control.group.as_ref().map(|group| group.gid);
    let operators = local_socket(&control.socket, mode, group, process).map_err(|why| match group {
        Some(_) => format!(
            "{why}. With `control.group` the daemon's user must be a member of that group; in the service of systemd it also \
             needs `PrivateUsers=no` and `SystemCallFilter=@chown`, see docs/operating/files.md"
        ),
        None => why,
    })?;
    Ok((operators, local_socket(&control.submit_socket, 0o666, None, process)?))
}

pub(super) fn local_socket(
    path: &Path,
    mode: u32,
    group: Option<u32>,
    process: &Process,
) -> Result<UnixSocket, String> {
    let owner = process.owner();
    let group = group.or(owner.map(|(_, gid)| gid));
    socket::bind_for(path, mode, owner.map(|(uid, _)| uid), group)
        .map_err(|e| format!("listen at {}: {e}", path.display()))
}

/// Opens all sockets of clients, and that for the authority of `[acme]`. Needs the context of a runtime.
pub(super) fn bind_all(
    settings: &Settings,
    process: &Process,
    mut inherited: Inherited,
) -> Result<(Vec<Listener>, Option<acme::Prepared>), String> {
    let addresses = listeners::addresses(&settings.listen);
    let mut opened = Vec::new();
    for listen in &settings.listen {
        let (label, options) = (listen.address.to_string(), listeners::options_of(listen));
        for socket in sockets::open(listen, &addresses, &mut inherited, process.owner())? {
            let (label, options) = (label.clone(), options.clone());
            opened.push(Listener { label, socket, options, is_drained: false });
        }
    }
    let acme = acme::prepare(settings, &mut inherited)?;
    inherited.refuse_rest();
    Ok((opened, acme))
}

impl Daemon {
    /// Runs everything until a signal or a failure ends it.
    pub(super) async fn operate(
        self: Arc<Self>,
        mut hangup: Signal,
        listeners: Vec<Listener>,
        control: std::os::unix::net::UnixListener,
        submit: std::os::unix::net::UnixListener,
        recovered: u64,
        welcome: &Welcome,
    ) -> Result<Exit, String> {
        let settings = &self.started;
        let mut terminate = signal(SignalKind::terminate()).map_err(|e| watching(&e))?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(|e| watching(&e))?;
        let control = UnixListener::from_std(control).map_err(|e| watching(&e))?;
        let submit = UnixListener::from_std(submit).map_err(|e| watching(&e))?;
        let access = if settings.control.group.is_some() { Access::Permissions } else { Access::Owner };
        listeners.into_iter().for_each(|listener| self.listen(listener));
        welcome.lines().for_each(|line| tracing::info!("{line}"));
        tokio::spawn(serve_control(control, access, self.clone()));
        tokio::spawn(serve_submit(submit, settings.limits.message_bytes, self.clone()));
        let drops = MaildropScanner::new(
            settings.control.maildrop.clone(),
            settings.limits.message_bytes,
            Quota {
                messages: settings.control.maildrop_max_messages.into(),
                bytes: settings.control.maildrop_max_size.0,
            },
            self.clone(),
            self.dropped.clone(),
        );
        tokio::spawn(drops.run(wiring::DROP_INTERVAL, self.driver.closing.subscribe()));
        tokio::spawn(self.driver.clone().run_timer());
        tokio::spawn(expiry::watch(self.clone()));
        tokio::spawn(resources::watch(self.clone()));
        tokio::spawn(kept_checks::keep(self.driver.clone()));
        tokio::spawn(dovecot_watch::watch(self.clone()));
        tokio::spawn(trim_allocator());
        self.driver.handle(Event::Started);
        tokio::spawn(notify::feed_watchdog(self.driver.clone()));
        notify::ready(recovered);
        let queued = self.driver.lock().engine.queue().len() as u64;
        let version = env!("CARGO_PKG_VERSION");
        self.driver.delivery_log.write(&report::Event::Started { version, queued });
        let mut spool_failed = self.driver.spool.failed();
        let mut exit = loop {
            tokio::select! {
                failure = &mut spool_failed => {
                    self.driver.spool_failed(&failure);
                    break Exit::IoErr;
                }
                _ = terminate.recv() => break Exit::Ok,
                _ = interrupt.recv() => break Exit::Ok,
                () = self.driver.failed.notified() => {
                    break if self.driver.has_panicked() { Exit::Software } else { Exit::IoErr };
                }
                // Not waited for here: a stop ends the daemon, also while a disk does not answer.
                _ = hangup.recv() => drop(tokio::spawn(self.clone().reload_by_signal())),
            }
        };
        if exit == Exit::Ok {
            tokio::select! {
                () = self.stop(self.driver.current().settings.inbound.shutdown_timeout) => {}
                failure = &mut spool_failed => {
                    self.driver.spool_failed(&failure);
                    exit = Exit::IoErr;
                }
                _ = terminate.recv() => tracing::warn!("second stop signal: sessions and deliveries end now"),
                _ = interrupt.recv() => tracing::warn!("second stop signal: sessions and deliveries end now"),
            }
        }
        if exit != Exit::Ok {
            self.stop(FAILURE_GRACE).await;
        }
        kept_checks::save(&self.driver).await;
        let current = self.driver.current();
        let own = current.settings.listen.iter().filter_map(|listen| match &listen.address {
            ListenAt::Unix { path, .. } => Some(path),
            ListenAt::Ip(_) | ListenAt::Systemd(_) => None,
        });
        let metrics = match &settings.metrics.listen {
            Some(ListenAddress::Unix(path)) => Some(path),
            _ => None,
        };
        for path in own.chain(metrics).chain([&settings.control.socket, &settings.control.submit_socket]) {
            socket::remove(path);
        }
        Ok(exit)
    }

    /// No new connection, no new transaction; those under way end within the grace time. Nothing is
    /// lost when they don't: what was not answered 250 is not ours, what was is in the spool.
    async fn stop(&self, grace: Duration) {
        tracing::info!("stopping");
        self.driver.delivery_log.write(&report::Event::Stopping);
        notify::stopping();
        self.driver.close();
        self.inbound.close();
        let until = tokio::time::Instant::now() + grace;
        let mut look = tokio::time::interval(STOP_INTERVAL);
        loop {
            look.tick().await;
            let sessions = self.inbound.budget().session_count();
            let connections = self.driver.connection_count();
            // What an operator was told is done, and outcomes that are still to be stored.
            let open = self.driver.unstored_count();
            if sessions == 0 && connections == 0 && open == 0 {
                return;
            }
            if tokio::time::Instant::now() >= until {
                tracing::warn!(
                    "stopping with {} and {} cut off, and {} not stored",
                    mail::counted(sessions as u64, "session"),
                    mail::counted(connections as u64, "delivery"),
                    mail::counted(open as u64, "outcome"),
                );
                let unsummarized = self.driver.unsummarized_count();
                if unsummarized > 0 {
                    tracing::warn!(
                        "{} failed, and no summary to the postmaster lists them: use \
                         `postrider history query --sender '<>' --json | grep not_mailed`",
                        mail::counted(unsummarized, "notification")
                    );
                }
                return;
            }
        }
    }
}
