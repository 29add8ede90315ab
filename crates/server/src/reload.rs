//! The reload of the configuration: files are read in a thread of their own, so that a disk that does not answer keeps neither
//! connections nor deliveries waiting.

use super::{
    Daemon,
    acme::ObtainedCertificate,
    helper::{self, HelperProcess},
    listeners::ListenerChanges,
    notify,
    process::Process,
    snapshot::ConfigSnapshot,
    start,
    tls::{self, ServerTls},
    wiring,
};
use crate::map_faults;
use config::{Purpose, Settings};
use control::Failure;
use delivery::helper::Helper;
use std::{
    path::PathBuf,
    sync::{Arc, PoisonError},
    thread,
    time::Duration,
};
use tokio::{sync::oneshot, time::timeout};

/// A reload waits so long for another one, which takes some milliseconds unless a disk does not answer.
const ALONE_WAIT: Duration = Duration::from_secs(2);

/// A configuration that was read, and can be put in use.
struct NewConfiguration {
    snapshot: ConfigSnapshot,
    server_tls: Arc<ServerTls>,
    listeners: ListenerChanges,
    /// Messages that wait may have other destinations.
    is_rerouted: bool,
    /// What the operator should know, although the reload took effect.
    notes: Vec<String>,
}

/// The arguments of reading a configuration. The thread that reads keeps nothing else: a daemon that stops closes its logs and its
/// queue although a disk does not answer.
struct Reader {
    source: PathBuf,
    started: Arc<Settings>,
    process: Arc<Process>,
    helper: Option<Arc<Helper>>,
    old: Arc<ConfigSnapshot>,
    server_tls: Arc<ServerTls>,
    obtained: ObtainedCertificate,
}

/// Why a reload changed nothing.
struct Refusal {
    /// For the operator who asked.
    failure: Failure,
    /// The first problem in one line, for the log and the history.
    reason: String,
}

impl Refusal {
    fn of(problems: &config::Problems) -> Self {
        Self { reason: problems.summary(), failure: Failure::Configuration { text: problems.to_string() } }
    }

    /// Another configuration is needed, or a restart.
    fn by_configuration(text: String) -> Self {
        Self { reason: text.clone(), failure: Failure::Configuration { text } }
    }

    /// A refusal that another attempt may not meet.
    fn for_now(text: String) -> Self {
        Self { reason: text.clone(), failure: Failure::Failed { text } }
    }
}

impl Daemon {
    /// Takes new settings for what begins from now on. Returns what takes a restart. The reload goes on if nobody waits for its
    /// answer.
    ///
    /// # Errors
    /// Everything stays as it was; or another reload is under way.
    pub(super) async fn reload_configuration(&self) -> Result<Vec<String>, Failure> {
        let ended = || Failure::Failed { text: "the reload ended early; the log has the reason".to_owned() };
        let Some(daemon) = self.itself.upgrade() else { return Err(ended()) };
        let task = tokio::spawn(async move {
            let Ok(_alone) = timeout(ALONE_WAIT, daemon.reloading.lock()).await else {
                let text = "a reload is under way, and waits for a file: look for a disk or a server that does not answer, or try \
                            again later";
                return Err(Failure::Failed { text: text.to_owned() });
            };
            notify::reloading();
            let reloaded = daemon.clone().read_and_use().await;
            notify::reloaded(reloaded.is_ok());
            reloaded.map_err(|refusal| {
                let Refusal { failure, reason } = refusal;
                tracing::error!("the reload was refused, and the settings stay as they were: {reason}");
                daemon.driver.delivery_log.write(&report::Event::ReloadFailed { reason: &reason });
                failure
            })
        });
        task.await.unwrap_or_else(|_| Err(ended()))
    }

    /// Reloads on SIGHUP: notes go to the log, since nobody reads an answer.
    pub(super) async fn reload_by_signal(self: Arc<Self>) {
        if let Ok(notes) = self.reload_configuration().await {
            notes.iter().for_each(|note| tracing::warn!("{note}"));
        }
    }

    /// Reads a configuration and puts it in use.
    async fn read_and_use(self: Arc<Self>) -> Result<Vec<String>, Refusal> {
        self.driver.delivery_log.reopen();
        let Some(source) = self.source.clone() else {
            return Ok(vec!["there is no configuration file: logs were opened again".to_owned()]);
        };
        let reader = Reader {
            source,
            started: self.started.clone(),
            process: self.process.clone(),
            helper: self.helper.as_ref().map(HelperProcess::helper),
            old: self.driver.current(),
            server_tls: self.server_tls(),
            obtained: self.obtained.clone(),
        };
        let new = in_thread(move || reader.read()).await.map_err(Refusal::for_now)??;
        let NewConfiguration { snapshot, server_tls, listeners, is_rerouted, notes } = new;
        self.put_in_use(snapshot, server_tls, is_rerouted);
        self.change_listeners(listeners);
        self.driver.current().warn_of_unread_postmaster().await;
        tracing::info!("the configuration was read again");
        self.driver.delivery_log.write(&report::Event::Reloaded);
        Ok(notes)
    }

    /// Asks for the mechanisms of logins again, with the configuration as it is. Returns false while a reload is under way, which
    /// asks for them, too.
    ///
    /// # Errors
    /// Everything stays as it was.
    pub(super) async fn renew_logins(self: &Arc<Self>) -> Result<bool, String> {
        let Ok(_alone) = self.reloading.try_lock() else { return Ok(false) };
        let old = self.driver.current();
        let helper = self.helper.as_ref().map(HelperProcess::helper);
        let new = in_thread(move || wiring::current(old.settings.clone(), Some(&old), helper)).await??;
        self.put_in_use(new, self.server_tls(), false);
        Ok(true)
    }

    fn server_tls(&self) -> Arc<ServerTls> {
        self.tls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn put_in_use(&self, new: ConfigSnapshot, server_tls: Arc<ServerTls>, is_rerouted: bool) {
        let inbound = wiring::inbound_settings(&new.settings, new.logins.as_ref(), &server_tls);
        self.inbound.reconfigure(inbound, Some(server_tls.plain.clone()));
        *self.tls.lock().unwrap_or_else(PoisonError::into_inner) = server_tls;
        self.driver.replace(new, is_rerouted);
    }
}

impl Reader {
    /// Reads the file and everything that it names, and compiles it. Nothing changes but the delivery helper, which comes last.
    fn read(&self) -> Result<NewConfiguration, Refusal> {
        let source = &*self.source;
        // Whatever can fail comes first: half a reload is none that anybody wrote. A file that the sandbox does not permit
        // could not be read, which would hide the reason.
        let read = |purpose| {
            config::reload(source, &self.started, purpose).map_err(|problems| Refusal::of(&problems))
        };
        let mut reloaded = read(Purpose::Ask)?;
        start::refuse_spools(&reloaded.next, Some(source)).map_err(Refusal::by_configuration)?;
        if let Some(text) = self.process.lacking_for(&reloaded.settings, source) {
            return Err(Refusal::by_configuration(text));
        }
        // Files that only root can read have been read at the start.
        if !self.process.has_dropped() {
            reloaded = read(Purpose::Serve)?;
        }
        let config::Reloaded { settings, waiting, next: _ } = reloaded;
        if self.helper.is_none() && helper::is_needed(&settings) {
            let text = "the new configuration needs the delivery helper (`pipe`, `user` or `programs`), which needs a restart";
            return Err(Refusal::by_configuration(text.to_owned()));
        }
        let old = &self.old;
        let (server_tls, tls_note) =
            self.read_certificates(&settings, &old.settings).map_err(Refusal::by_configuration)?;
        let snapshot =
            wiring::current(settings, Some(old), self.helper.clone()).map_err(Refusal::by_configuration)?;
        let mut faults = snapshot.maps.read_files();
        if faults.is_empty() {
            let checked = map_faults::check(&snapshot.maps, &snapshot.settings);
            let (_, all) = tokio::runtime::Handle::current().block_on(checked);
            faults = all.into_iter().map(|(map, what, help)| format!("{map}: {what}: {help}")).collect();
            // Files are read when they change, with and without a reload.
            let note =
                "the settings stay as they were; a file of a map that was in use already counts as it is now";
            faults.extend((!faults.is_empty()).then(|| note.to_owned()));
        }
        if !faults.is_empty() {
            return Err(Refusal::by_configuration(faults.join("; ")));
        }
        let listeners =
            ListenerChanges::prepare(&old.settings.listen, &snapshot.settings.listen, self.helper.as_deref())
                .map_err(Refusal::by_configuration)?;
        if let Some(helper) = &self.helper {
            helper.reload().map_err(Refusal::for_now)?;
        }
        let is_rerouted = old.settings.routes != snapshot.settings.routes
            || old.settings.local != snapshot.settings.local
            || old.settings.addresses != snapshot.settings.addresses
            || old.settings.queue_groups != snapshot.settings.queue_groups;
        let waiting = waiting.iter().map(|key| format!("{key} has changed, which needs a restart"));
        let hidden = snapshot.settings.rules.warnings.iter().cloned();
        let notes = waiting.chain(tls_note).chain(hidden).collect();
        Ok(NewConfiguration { snapshot, server_tls, listeners, is_rerouted, notes })
    }

    /// Reads certificates and keys. Those that only root can read stay as they were at the start, with a note.
    fn read_certificates(
        &self,
        new: &Settings,
        old: &Settings,
    ) -> Result<(Arc<ServerTls>, Option<String>), String> {
        match tls::server_config(new, &self.obtained) {
            Ok(read) => Ok((Arc::new(read), None)),
            Err(why)
                if self.process.has_dropped()
                    && new.tls == old.tls
                    && new.certificates == old.certificates =>
            {
                Ok((
                    self.server_tls.clone(),
                    Some(format!("certificates stay as they were until a restart: {why}")),
                ))
            }
            Err(why) => Err(why),
        }
    }
}

/// Runs a function in a thread of its own. A thread of the runtime would be waited for at the end of the process.
///
/// # Errors
/// The thread could not be started, or has panicked.
async fn in_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, String> {
    let (done, result) = oneshot::channel();
    let runtime = tokio::runtime::Handle::current();
    let run = move || {
        let _context = runtime.enter();
        // Nobody waits for it any more: the daemon stops.
        let _ = done.send(work());
    };
    thread::Builder::new()
        .name("reload".to_owned())
        .spawn(run)
        .map_err(|e| format!("start a thread: {e}"))?;
    result.await.map_err(|_| "the thread that reads the configuration has panicked".to_owned())
}
