//! Questions to lists of addresses and domains in DNS (RFC 5782).

use policy::{DnsList, Listed};
use route::dns::{Dns, Lookup};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use tokio::{task::JoinSet, time::timeout};

/// A list that takes longer is passed over: a client that waits for all look-ups would get 451.
const TIMEOUT: Duration = Duration::from_secs(8);
/// A list that has failed is not asked for so long: clients would wait for it each time.
const REST: Duration = Duration::from_mins(1);
/// A list that does not answer is logged at most so often.
const WARNING_INTERVAL: Duration = Duration::from_hours(1);
/// Of the reason that a list gives, so much goes into a reply.
const TEXT_MAX_BYTES: usize = 200;

/// What is known of the lists of a configuration.
#[derive(Default)]
pub(crate) struct DnsLists {
    /// How lists have failed to answer, by their domain.
    failed: Mutex<HashMap<Box<str>, Failed>>,
}

#[derive(Default)]
struct Failed {
    /// When a failure was logged.
    warned: Option<Instant>,
    /// The last failure, if it has not answered since.
    last: Option<(Instant, Box<str>)>,
}

/// What a list says, or why it does not answer.
type Answer = Result<Listed, Box<str>>;

impl DnsLists {
    /// Asks lists, all at once: each by its domain, and the name whose address is its answer. Each answer comes with what it answers.
    pub(crate) async fn ask_all<Q: Send + 'static>(
        self: Arc<Self>,
        dns: Arc<Dns>,
        questions: Vec<(Q, (Box<str>, String))>,
    ) -> Vec<(Q, Answer)> {
        let mut asked = JoinSet::new();
        for (question, (zone, name)) in questions {
            let (lists, dns) = (self.clone(), dns.clone());
            asked.spawn(async move {
                let answer = lists.ask(&dns, &zone, &name).await;
                (question, answer)
            });
        }
        asked.join_all().await
    }

    async fn ask(&self, dns: &Dns, zone: &str, name: &str) -> Answer {
        let last = self.failed().get(zone).and_then(|failed| failed.last.clone());
        if let Some((at, why)) = last
            && at.elapsed() < REST
        {
            return Err(why);
        }
        let answer = timeout(TIMEOUT, ask(dns, name)).await;
        let answer = answer.unwrap_or_else(|_| Err(format!("no answer in {TIMEOUT:?}")));
        let mut failed = self.failed();
        match answer {
            Ok(listed) => {
                failed.entry(zone.into()).and_modify(|state| state.last = None);
                Ok(listed)
            }
            Err(why) => {
                let why: Box<str> = why.into();
                let state = failed.entry(zone.into()).or_default();
                state.last = Some((Instant::now(), why.clone()));
                if state.warned.is_none_or(|at| at.elapsed() >= WARNING_INTERVAL) {
                    state.warned = Some(Instant::now());
                    tracing::warn!(
                        "the DNS list {zone}: {why}: it lists nobody until it answers (not logged again for an hour)"
                    );
                }
                Err(why)
            }
        }
    }

    /// Returns the lists that do not answer now, with the reasons.
    pub(crate) fn faults(&self) -> Vec<String> {
        let failed = self.failed();
        let mut faults: Vec<String> = failed
            .iter()
            .filter_map(|(zone, state)| Some(format!("{zone} lists nobody: {}", state.last.as_ref()?.1)))
            .collect();
        faults.sort_unstable();
        faults
    }

    fn failed(&self) -> MutexGuard<'_, HashMap<Box<str>, Failed>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn ask(dns: &Dns, name: &str) -> Result<Listed, String> {
    let labels = || name.split('.').map(str::as_bytes);
    let codes = match dns.a(labels()).await {
        Lookup::Found(codes) => codes,
        Lookup::NoData | Lookup::NxDomain => return Ok(Listed::default()),
        Lookup::Unknown(why) => return Err(why),
    };
    if let Some(other) = codes.iter().find(|code| !DnsList::is_code(**code)) {
        return Err(format!("it answers {other}, which is an error and no listing"));
    }
    let text = match dns.txt(labels()).await {
        Lookup::Found(texts) => texts.first().map(|text| String::from_utf8_lossy(text).into_owned()),
        Lookup::NoData | Lookup::NxDomain | Lookup::Unknown(_) => None,
    };
    let seen = |c: &char| !mail::is_invisible(*c) && c.is_ascii();
    let text: String = text.unwrap_or_default().chars().filter(seen).take(TEXT_MAX_BYTES).collect();
    Ok(Listed { codes, text: text.into() })
}
