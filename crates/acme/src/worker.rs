//! The task that keeps one certificate valid.

use crate::{
    Answers, Hook, Settings,
    bundle::Bundle,
    client::{Client, now_seconds},
    order::Proof,
    schedule,
};
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use tokio::{
    sync::Notify,
    time::{sleep, timeout},
};

/// The clock is looked at this often: it may be set, and the machine may have slept.
const LOOK_INTERVAL: Duration = Duration::from_secs(600);
/// The least time between a certificate and the next one, unless an operator asks.
const RENEWAL_PAUSE: Duration = Duration::from_secs(3600);
/// An authority that does not suggest a time is asked again after this.
const ASK_AGAIN: Duration = Duration::from_secs(6 * 3600);
/// The longest time of one attempt, with all questions and answers.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(900);

/// The state of the certificate and of the attempts to renew it. Times are in seconds since 1970.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Status {
    /// The time of the next renewal; none while there is no certificate.
    pub renewal: Option<u64>,
    /// Certificates that were obtained since the start.
    pub obtained: u64,
    /// Attempts that failed since the start.
    pub failed: u64,
    /// Failures since the last certificate.
    pub failures_in_a_row: u32,
    /// In seconds since 1970: no attempt is made earlier. `None` if nothing is waited for.
    pub next_attempt: Option<u64>,
    /// The last failure: its time, and why.
    pub last_failure: Option<(u64, String)>,
    /// True while an attempt is under way.
    pub is_busy: bool,
}

/// The state that others see, and the wish for a renewal now.
#[derive(Debug, Default)]
struct Shared {
    status: Mutex<Status>,
    wanted: Notify,
}

/// Obtains a certificate, and renews it in time.
pub struct Worker {
    client: Client,
    proof: Proof,
    current: Option<Bundle>,
    publish: Box<dyn Fn(Bundle) + Send>,
    shared: Arc<Shared>,
    /// The renewal that the authority suggested, and when to ask again.
    suggested: Option<(u64, Instant)>,
    /// Earliest time of the next attempt; `None` if one may be made at once.
    not_before: Option<Instant>,
}

/// The requests that others may make of a [`Worker`].
#[derive(Debug, Clone)]
pub struct Handle(Arc<Shared>);

impl Handle {
    /// Returns the state of the certificate and of the last attempts.
    pub fn status(&self) -> Status {
        self.0.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Obtains a new certificate now, whatever the age of the present one. An attempt that is under way is the one that was
    /// asked for.
    pub fn renew(&self) {
        if !self.status().is_busy {
            self.0.wanted.notify_one();
        }
    }
}

impl Worker {
    /// Makes the worker. `current` is the stored certificate, if there is one; `publish` gets each new one.
    ///
    /// # Errors
    /// The HTTPS client cannot be set up with the roots of `settings`.
    pub fn new(
        settings: Settings,
        answers: Answers,
        hook: Option<Hook>,
        current: Option<Bundle>,
        publish: impl Fn(Bundle) + Send + 'static,
    ) -> Result<Self, String> {
        let worker = Self {
            client: Client::new(settings)?,
            proof: Proof::new(answers, hook),
            current,
            publish: Box::new(publish),
            shared: Arc::default(),
            suggested: None,
            not_before: None,
        };
        worker.tell_renewal();
        Ok(worker)
    }

    /// Returns a handle for the listeners and for status.
    pub fn handle(&self) -> Handle {
        Handle(self.shared.clone())
    }

    fn status(&self) -> MutexGuard<'_, Status> {
        self.shared.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell_renewal(&self) {
        let renewal = self.renewal_seconds();
        self.status().renewal = renewal;
    }

    /// Returns when the certificate is renewed; none if there is none, or one with other names.
    fn renewal_seconds(&self) -> Option<u64> {
        let own = self.current.as_ref().filter(|own| own.has_names(&self.client.settings.names))?;
        let suggested = self.suggested.map(|(suggested, _)| suggested.min(own.not_after));
        Some(suggested.unwrap_or_else(|| usual_renewal(own)))
    }

    /// Obtains the certificate and renews it when it is due. Never returns.
    pub async fn run(mut self) {
        loop {
            self.ask_suggestion().await;
            self.tell_renewal();
            let is_due = self.renewal_seconds().is_none_or(|at| at <= now_seconds());
            let pause = match self.not_before.map(|at| at.saturating_duration_since(Instant::now())) {
                Some(left) if !left.is_zero() => Some(left.min(LOOK_INTERVAL)),
                _ if !is_due => Some(LOOK_INTERVAL),
                _ => None,
            };
            if let Some(pause) = pause {
                tokio::select! {
                    () = sleep(pause) => continue,
                    () = self.shared.wanted.notified() => {}
                }
            }
            self.attempt().await;
        }
    }

    async fn ask_suggestion(&mut self) {
        let is_time = self.suggested.is_none_or(|(_, again)| again <= Instant::now());
        let Some(own) = self.current.as_ref().filter(|_| is_time) else { return };
        // An authority that does not say is asked again as rarely as one that says.
        let asked = timeout(ATTEMPT_TIMEOUT, self.client.suggested_renewal(own)).await;
        let (at, again) = asked.ok().flatten().unwrap_or_else(|| (usual_renewal(own), ASK_AGAIN));
        self.suggested = Some((at, Instant::now() + again));
    }

    async fn attempt(&mut self) {
        self.status().is_busy = true;
        // Whoever asked before it began gets this one.
        let _ = timeout(Duration::ZERO, self.shared.wanted.notified()).await;
        let obtained = self.client.obtain(&mut self.proof, self.current.as_ref());
        let ended = timeout(ATTEMPT_TIMEOUT, obtained).await;
        let ended = ended.unwrap_or_else(|_| Err("the authority is too slow".to_owned().into()));
        let mut status = self.status();
        status.is_busy = false;
        match ended {
            Ok(new) => {
                status.obtained += 1;
                status.failures_in_a_row = 0;
                (status.last_failure, status.next_attempt) = (None, None);
                drop(status);
                tracing::info!("acme: obtained a certificate for {}", new.names.join(", "));
                // An authority that wants each new certificate renewed at once does not get what it wants.
                let left = Duration::from_secs(new.not_after.saturating_sub(now_seconds()));
                self.not_before = Some(Instant::now() + RENEWAL_PAUSE.min(left / 3));
                self.current = Some(new.clone());
                self.suggested = None;
                // Whoever sees the certificate sees when it is renewed, before the authority has said its wish.
                self.tell_renewal();
                (self.publish)(new);
            }
            Err(failure) => {
                status.failed += 1;
                status.failures_in_a_row += 1;
                let pause = schedule::pause(status.failures_in_a_row);
                status.last_failure = Some((now_seconds(), failure.text.clone()));
                status.next_attempt = Some(now_seconds() + pause.as_secs());
                drop(status);
                self.not_before = Some(Instant::now() + pause);
                let minutes = match pause.as_secs() / 60 {
                    1 => "a minute".to_owned(),
                    minutes => format!("{minutes} minutes"),
                };
                tracing::warn!("acme: no certificate: {}; the next attempt is in {minutes}", failure.text);
            }
        }
    }
}

/// Returns the time of a renewal that no authority has suggested.
fn usual_renewal(own: &Bundle) -> u64 {
    schedule::renewal_seconds(own.not_before, own.not_after, own.spread())
}
