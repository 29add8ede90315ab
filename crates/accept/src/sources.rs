//! What rules and checks ask outside of the configuration: DNS, lists, policy services, next hops, and how much was used of limits.

mod dns_list;
mod greylist;
mod kept;
mod rates;
mod service;

use crate::verifier::Verifier;
use config::Settings;
pub(crate) use dns_list::DnsLists;
pub use greylist::GreylistTable;
use policy::{Facts, Measure};
pub(crate) use rates::RateTable;
use route::dns::Dns;
pub(crate) use service::PolicyClient;
use std::{io, sync::Arc};

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
        let has_limits = !settings.rules.program.limits().is_empty();
        let new = || Arc::new(RateTable::open(&settings.data_dir, has_limits));
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

    /// Writes what checks remember from one start to the next, if it has changed. Waits for the disk.
    ///
    /// # Errors
    /// A file cannot be written; its change is written the next time.
    pub fn save(&self) -> io::Result<()> {
        self.limits.save()?;
        self.greylist.as_ref().map_or(Ok(()), |greylist| greylist.save())
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
