//! Connections to mail exchangers that have not taken mail yet. Thousands of domains may have the same exchangers, and silent
//! ones must not get connections for each of them.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};

/// Connections to one address that have not delivered anything, while the address has taken no mail.
pub(crate) const OF_ADDRESS_MAX: u32 = 10;
/// The same for all addresses of the same exchangers together.
pub(crate) const OF_NAMES_MAX: u32 = 20;
/// Addresses and sets of names that are remembered. Beyond this number those without a connection are forgotten.
const REMEMBERED_MAX: usize = 20_000;

/// What has a number of connections of its own.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Exchanger {
    Address(IpAddr),
    /// The names of all exchangers of a domain, whose domains are served by the same machines.
    Names(Arc<str>),
}

impl Exchanger {
    fn max(&self) -> u32 {
        match self {
            Self::Address(_) => OF_ADDRESS_MAX,
            Self::Names(_) => OF_NAMES_MAX,
        }
    }
}

/// The mail exchangers, and what is known of them. Clones share what they know.
#[derive(Debug, Clone, Default)]
pub(crate) struct ExchangerBudget(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    known: Mutex<HashMap<Exchanger, Known>>,
    /// Wakes those who wait when a connection ends or delivers.
    changed: Notify,
}

#[derive(Debug, Default)]
struct Known {
    /// Connections that have not delivered anything.
    unproven_count: u32,
    has_delivered: bool,
}

/// A connection that has not delivered anything yet; dropped when it ends.
#[derive(Debug)]
pub(crate) struct Unproven {
    budget: ExchangerBudget,
    /// By address and by name: a server counts under both.
    counted: [Exchanger; 2],
    is_answered: bool,
}

impl ExchangerBudget {
    fn lock(&self) -> MutexGuard<'_, HashMap<Exchanger, Known>> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a connection to an address with these names is permitted, and counts it. Usually the first of the others delivers
    /// within a second, and all may go on.
    ///
    /// # Errors
    /// The one of the two that still has as many as it may after this time.
    pub(crate) async fn wait(
        &self,
        address: IpAddr,
        names: &Arc<str>,
        at_most: Duration,
    ) -> Result<Unproven, Exchanger> {
        let until = Instant::now() + at_most;
        loop {
            // From here on no change is missed.
            let changed = self.0.changed.notified();
            let full = match self.begin(address, names) {
                Ok(unproven) => return Ok(unproven),
                Err(full) => full,
            };
            if timeout_at(until, changed).await.is_err() {
                return Err(full);
            }
        }
    }

    fn begin(&self, address: IpAddr, names: &Arc<str>) -> Result<Unproven, Exchanger> {
        let counted = [Exchanger::Address(address), Exchanger::Names(names.clone())];
        let mut known = self.lock();
        if known.len() >= REMEMBERED_MAX {
            known.retain(|_, one| one.unproven_count > 0);
        }
        let is_full = |exchanger: &&Exchanger| {
            known
                .get(*exchanger)
                .is_some_and(|one| !one.has_delivered && one.unproven_count >= exchanger.max())
        };
        if let Some(full) = counted.iter().find(is_full) {
            return Err(full.clone());
        }
        for exchanger in &counted {
            known.entry(exchanger.clone()).or_default().unproven_count += 1;
        }
        drop(known);
        Ok(Unproven { budget: self.clone(), counted, is_answered: false })
    }
}

impl Unproven {
    /// Notes that the server has answered. One that fails, or is given up, before that has to prove itself again.
    pub(crate) fn answered(&mut self) {
        self.is_answered = true;
    }

    /// Returns the address, and the names of all exchangers of the domain.
    pub(crate) fn exchangers(&self) -> [Arc<str>; 2] {
        self.counted.each_ref().map(|one| match one {
            Exchanger::Address(ip) => ip.to_string().into(),
            Exchanger::Names(names) => names.clone(),
        })
    }

    /// The connection has delivered: the exchanger takes mail.
    pub(crate) fn proven(self) {
        let mut known = self.budget.lock();
        for exchanger in &self.counted {
            known.entry(exchanger.clone()).or_default().has_delivered = true;
        }
        // Dropping `self` wakes those who wait.
    }
}

impl Drop for Unproven {
    fn drop(&mut self) {
        let mut known = self.budget.lock();
        for exchanger in &self.counted {
            let Some(one) = known.get_mut(exchanger) else { continue };
            assert!(one.unproven_count > 0, "a connection is counted until it ends");
            one.unproven_count -= 1;
            one.has_delivered &= self.is_answered;
            if one.unproven_count == 0 && !one.has_delivered {
                known.remove(exchanger);
            }
        }
        drop(known);
        self.budget.0.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(name: &str) -> Arc<str> {
        name.into()
    }

    fn deliver(mut unproven: Unproven) {
        unproven.answered();
        unproven.proven();
    }

    #[test]
    fn an_address_has_few_connections_until_it_takes_mail() {
        let (budget, address, own) =
            (ExchangerBudget::default(), IpAddr::from([192, 0, 2, 1]), names("mx.test"));
        let mut open: Vec<Unproven> =
            (0..OF_ADDRESS_MAX).map(|_| budget.begin(address, &own).unwrap()).collect();
        // Of other names as well.
        assert_eq!(budget.begin(address, &names("mx.else.test")).unwrap_err(), Exchanger::Address(address));
        assert!(budget.begin(IpAddr::from([192, 0, 2, 2]), &own).is_ok(), "another one is not affected");
        deliver(open.pop().unwrap());
        open.extend((0..100).map(|_| budget.begin(address, &own).unwrap()));
        drop(open.pop());
        assert!(budget.begin(address, &own).is_err(), "it has to prove itself again");
        open.clear();
        assert!(budget.begin(address, &own).is_ok());
        assert!(budget.lock().is_empty(), "what says nothing is forgotten");
    }

    #[test]
    fn the_same_names_have_few_connections_however_many_addresses_they_have() {
        let (budget, own) = (ExchangerBudget::default(), names("a.mx.test,b.mx.test"));
        let address = |n: u32| IpAddr::from([192, 0, 2, n as u8]);
        let mut open: Vec<Unproven> =
            (0..OF_NAMES_MAX).map(|n| budget.begin(address(n), &own).unwrap()).collect();
        assert_eq!(budget.begin(address(200), &own).unwrap_err(), Exchanger::Names(own.clone()));
        assert!(budget.begin(address(200), &names("mx.else.test")).is_ok(), "another one is not affected");
        deliver(open.pop().unwrap());
        assert!(budget.begin(address(200), &own).is_ok());
    }

    #[test]
    fn the_memory_is_bounded() {
        let budget = ExchangerBudget::default();
        for n in 0..REMEMBERED_MAX as u32 + 100 {
            deliver(budget.begin(IpAddr::from(n.to_be_bytes()), &names(&format!("mx{n}.test"))).unwrap());
        }
        assert!(budget.lock().len() <= REMEMBERED_MAX + 1);
    }
}
