//! What rules and checks ask outside of the configuration: DNS, lists, policy services, next hops, and how much was used of limits.

mod dns_list;
mod greylist;
mod service;

use crate::verifier::Verifier;
use config::Settings;
pub(crate) use dns_list::DnsLists;
pub use greylist::GreylistTable;
use limits::{Spent, Table};
use policy::{Facts, Limit, Measure};
use route::dns::Dns;
pub(crate) use service::PolicyClient;
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

/// Keys of all limits together that are kept, of 16 bytes each.
const LIMIT_KEYS_MAX: usize = 1_000_000;

/// Everything outside of the configuration that rules ask.
pub struct RuleSources {
    dns: Arc<Dns>,
    pub(crate) limits: Arc<RateTable>,
    pub(crate) services: Vec<PolicyClient>,
    pub(crate) lists: Arc<DnsLists>,
    /// None: no mail has to come again.
    greylist: Option<Arc<GreylistTable>>,
    /// None: no route says `verify`.
    verifier: Option<Arc<Verifier>>,
}

/// The state of all limits. It outlives a reload of the configuration.
pub(crate) struct RateTable {
    table: Mutex<Table>,
    started: Instant,
}

impl RuleSources {
    /// Returns the resolver, which deliveries use, too.
    pub fn dns(&self) -> &Arc<Dns> {
        &self.dns
    }

    /// Takes the limits and the known origins of an older configuration over.
    pub(crate) fn new(
        settings: &Settings,
        dns: Arc<Dns>,
        verifier: Option<Arc<Verifier>>,
        old: Option<&Self>,
    ) -> Self {
        let new =
            || Arc::new(RateTable { table: Mutex::new(Table::new(LIMIT_KEYS_MAX)), started: Instant::now() });
        let limits = old.map_or_else(new, |old| old.limits.clone());
        let services = settings.rules.services.iter().cloned().map(PolicyClient::new).collect();
        let known = old.and_then(|old| old.greylist.clone());
        let open = || Arc::new(GreylistTable::open(&settings.data_dir));
        let greylist = known.or_else(|| settings.rules.greylist.is_some().then(open));
        Self { dns, limits, services, lists: Arc::default(), greylist, verifier }
    }

    /// Returns the lists in DNS that do not answer now, with the reasons.
    pub fn list_faults(&self) -> Vec<String> {
        self.lists.faults()
    }

    /// Returns the origins of mail that have come again.
    pub fn greylist(&self) -> Option<&Arc<GreylistTable>> {
        self.greylist.as_ref()
    }

    pub(crate) fn verifier(&self) -> Option<&Arc<Verifier>> {
        self.verifier.as_ref()
    }

    /// Counts a rejected command of a client.
    pub fn count_failure(&self, settings: &Settings, facts: &Facts<'_>) {
        for limit in settings.rules.program.limits().iter().filter(|limit| limit.measure == Measure::Failures)
        {
            if let Some(key) = limit.key(facts, None) {
                self.limits.spend(limit, &key, 1);
            }
        }
    }
}

impl RateTable {
    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Spends, and returns whether the limit is exceeded.
    pub(crate) fn spend(&self, limit: &Limit, key: &str, amount: u64) -> bool {
        let now = self.now();
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (&limit.name, limit.per as u8, limit.measure as u8, key);
        match table.spend(&key, limit.rate, amount, now) {
            Spent::Within => false,
            Spent::Over(_) => true,
            Spent::Full => {
                tracing::warn!("{}: more than {LIMIT_KEYS_MAX} keys of limits are in use", limit.name);
                false
            }
        }
    }

    pub(crate) fn is_over(&self, limit: &Limit, key: &str) -> bool {
        let now = self.now();
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.is_over(&(&limit.name, limit.per as u8, limit.measure as u8, key), limit.rate, 1, now)
    }
}
