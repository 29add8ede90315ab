//! Connections to addresses that have not taken mail yet. Thousands of domains may have one mail exchanger, and a silent one
//! must not get a connection for each of them.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Connections to one address that have not delivered anything, while the address has taken no mail.
pub(crate) const UNPROVEN_MAX: u32 = 10;
/// Addresses that are remembered. Beyond this number those without a connection are forgotten.
const ADDRESSES_MAX: usize = 10_000;

/// The addresses that mail exchangers have, and what is known of them. Clones share what they know.
#[derive(Debug, Clone, Default)]
pub(crate) struct AddressBudget(Arc<Mutex<HashMap<IpAddr, Address>>>);

#[derive(Debug, Default)]
struct Address {
    /// Connections that have not delivered anything.
    unproven_count: u32,
    has_delivered: bool,
}

/// A connection that has not delivered anything yet; dropped when it ends.
#[derive(Debug)]
pub(crate) struct Unproven {
    budget: AddressBudget,
    address: IpAddr,
}

impl AddressBudget {
    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, Address>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a connection to an address. Returns none if the address has as many as it may.
    pub(crate) fn begin(&self, address: IpAddr) -> Option<Unproven> {
        let mut addresses = self.lock();
        if addresses.len() >= ADDRESSES_MAX && !addresses.contains_key(&address) {
            addresses.retain(|_, one| one.unproven_count > 0);
        }
        let one = addresses.entry(address).or_default();
        if !one.has_delivered && one.unproven_count >= UNPROVEN_MAX {
            return None;
        }
        one.unproven_count += 1;
        Some(Unproven { budget: self.clone(), address })
    }
}

impl Unproven {
    /// The connection has delivered: the address takes mail.
    pub(crate) fn proven(self) {
        self.budget.lock().entry(self.address).or_default().has_delivered = true;
    }

    /// The connection failed: the address has to prove itself again.
    pub(crate) fn failed(self) {
        self.budget.lock().entry(self.address).or_default().has_delivered = false;
    }
}

impl Drop for Unproven {
    fn drop(&mut self) {
        let mut addresses = self.budget.lock();
        let Some(one) = addresses.get_mut(&self.address) else { return };
        assert!(one.unproven_count > 0, "a connection is counted until it ends");
        one.unproven_count -= 1;
        if one.unproven_count == 0 && !one.has_delivered {
            addresses.remove(&self.address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_few_connections_until_it_takes_mail() {
        let (budget, address) = (AddressBudget::default(), IpAddr::from([192, 0, 2, 1]));
        let mut open: Vec<Unproven> = (0..UNPROVEN_MAX).map(|_| budget.begin(address).unwrap()).collect();
        assert!(budget.begin(address).is_none());
        assert!(budget.begin(IpAddr::from([192, 0, 2, 2])).is_some(), "another one is not affected");
        open.pop().unwrap().proven();
        open.extend((0..100).map(|_| budget.begin(address).unwrap()));
        open.pop().unwrap().failed();
        assert!(budget.begin(address).is_none(), "it has to prove itself again");
        open.clear();
        assert!(budget.begin(address).is_some());
        assert!(budget.lock().is_empty(), "what says nothing is forgotten");
    }

    #[test]
    fn the_memory_is_bounded() {
        let budget = AddressBudget::default();
        for n in 0..ADDRESSES_MAX as u32 + 100 {
            budget.begin(IpAddr::from(n.to_be_bytes())).unwrap().proven();
        }
        assert!(budget.lock().len() <= ADDRESSES_MAX);
    }
}
