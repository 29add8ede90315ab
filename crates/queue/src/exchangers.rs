//! Connections to one mail exchanger, for however many domains. Its domains may have taken mail before and be silent now, so
//! a part of the connections of remote mail is always left to others.

use crate::{DestinationId, Queue, shares::Shares};
use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

/// The address that a connection to a mail exchanger has, and the names of all exchangers of its domain.
pub type Exchangers = [Arc<str>; 2];

#[derive(Debug, Default)]
struct ExchangerUse {
    /// Connections of all destinations whose last connection went there.
    connection_count: u32,
    /// Destinations without a connection that wait for one there.
    waiting: VecDeque<DestinationId>,
}

/// Counts connections by mail exchanger, and keeps what waits for one.
#[derive(Debug, Default)]
pub(crate) struct ExchangerUses {
    by_name: HashMap<Arc<str>, ExchangerUse>,
    waiting_count: usize,
}

/// How one exchanger is used, for status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExchangerView {
    /// An address, or the names of the exchangers of a domain.
    pub name: Arc<str>,
    /// Connections that are open or being opened.
    pub used: u32,
    /// Destinations without a connection that wait, because the exchanger has as many as it may.
    pub waiting: usize,
}

impl ExchangerUses {
    pub(crate) fn opened(&mut self, exchangers: Option<&Exchangers>, count: u32) {
        for name in exchangers.into_iter().flatten().filter(|_| count > 0) {
            self.by_name.entry(name.clone()).or_default().connection_count += count;
        }
    }

    /// Returns destinations that waited for one of the connections: as many for each exchanger.
    pub(crate) fn closed(&mut self, exchangers: Option<&Exchangers>, count: u32) -> Vec<DestinationId> {
        let mut resumed = Vec::new();
        for name in exchangers.into_iter().flatten() {
            let one = self.by_name.get_mut(name).expect("a counted connection has an exchanger");
            one.connection_count -= count;
            let next = one.waiting.len().min(count as usize);
            resumed.extend(one.waiting.drain(..next));
            if one.connection_count == 0 {
                // None is left behind: each of them can have a connection now.
                resumed.extend(one.waiting.drain(..));
                self.by_name.remove(name);
            }
        }
        self.waiting_count -= resumed.len();
        resumed
    }

    /// Returns the next waiting destination, when one that was chosen no longer wants a connection.
    pub(crate) fn resume_one(&mut self, exchangers: Option<&Exchangers>) -> Option<DestinationId> {
        if self.waiting_count == 0 {
            return None;
        }
        let waits = |name| self.by_name.get_mut(name).and_then(|one| one.waiting.pop_front());
        let next = exchangers?.iter().find_map(waits)?;
        self.waiting_count -= 1;
        Some(next)
    }

    /// Takes out all destinations that wait, because a reload may permit more connections.
    pub(crate) fn resume_all(&mut self) -> Vec<DestinationId> {
        self.waiting_count = 0;
        self.by_name.values_mut().flat_map(|one| one.waiting.drain(..)).collect()
    }

    /// Returns which of the two has this number of connections or more.
    pub(crate) fn full<'a>(&self, exchangers: &'a Exchangers, max: u32) -> Option<&'a Arc<str>> {
        let is_full =
            |name: &&Arc<str>| self.by_name.get(*name).is_some_and(|one| one.connection_count >= max);
        exchangers.iter().find(is_full)
    }

    pub(crate) fn wait(&mut self, name: &Arc<str>, id: DestinationId) {
        self.by_name.get_mut(name).expect("an exchanger without room has connections").waiting.push_back(id);
        self.waiting_count += 1;
    }

    /// Returns whether destinations wait for a connection to one of the two.
    pub(crate) fn are_wanted(&self, exchangers: Option<&Exchangers>) -> bool {
        let is_wanted = |name| self.by_name.get(name).is_some_and(|one| !one.waiting.is_empty());
        self.waiting_count > 0 && exchangers.is_some_and(|both| both.iter().any(is_wanted))
    }

    pub(crate) fn waiting_count(&self) -> usize {
        self.waiting_count
    }

    /// Panics when a counter is not what it counts. `connections` are those of the destinations that have exchangers.
    pub(crate) fn check_invariants<'a>(&self, connections: impl Iterator<Item = (&'a Exchangers, u32)>) {
        let mut counted: HashMap<&Arc<str>, u32> = HashMap::new();
        for (exchangers, count) in connections.filter(|(_, count)| *count > 0) {
            exchangers.iter().for_each(|name| *counted.entry(name).or_default() += count);
        }
        assert_eq!(counted.len(), self.by_name.len(), "exchangers with connections");
        for (name, one) in &self.by_name {
            assert_eq!(counted.get(name), Some(&one.connection_count), "connections to {name}");
        }
        let waiting: usize = self.by_name.values().map(|one| one.waiting.len()).sum();
        assert_eq!(waiting, self.waiting_count, "destinations that wait for an exchanger");
    }
}

impl Queue {
    /// Notes where the connection of a destination goes. Its other connections are taken to go there as well.
    pub fn connected_to(&mut self, id: DestinationId, exchangers: Exchangers) {
        let destination = self.destination_at_mut(id);
        if destination.exchangers.as_ref() == Some(&exchangers) {
            return;
        }
        let count = destination.connection_count;
        let before = destination.exchangers.replace(exchangers);
        let after = self.destinations[id.0 as usize].exchangers.as_ref();
        self.connections.exchangers.opened(after, count);
        if before.is_some() && count > 0 {
            let resumed = self.connections.exchangers.closed(before.as_ref(), count);
            self.list_again(&resumed);
        }
    }

    /// Lists destinations that have waited for their exchanger.
    pub(crate) fn list_again(&mut self, resumed: &[DestinationId]) {
        for id in resumed {
            let destination = &self.destinations[id.0 as usize];
            let is_first = destination.connection_count == 0;
            self.connections.scheduler.push(&self.settings, destination.group, is_first, *id);
        }
    }

    /// Returns the exchanger of a destination that has as many connections as it may.
    pub(crate) fn full_exchanger(&self, id: DestinationId) -> Option<Arc<str>> {
        let exchangers = self.destination_at(id).exchangers.as_ref()?;
        let max = Shares::max_of_exchanger(&self.settings)?;
        self.connections.exchangers.full(exchangers, max).cloned()
    }

    /// Takes an idle connection to an exchanger, to be closed for another destination.
    pub(crate) fn take_idle_of(&mut self, name: &Arc<str>) -> Option<DestinationId> {
        let at = self.destinations.iter().position(|one| {
            one.idle_count > 0 && one.exchangers.as_ref().is_some_and(|both| both.contains(name))
        })?;
        let id = DestinationId(at as u32);
        self.connections.evicting_count += 1;
        self.leave_idle(id);
        Some(id)
    }

    /// Returns the exchanger with the most connections.
    pub fn busiest_exchanger(&self) -> Option<ExchangerView> {
        let uses = self.connections.exchangers.by_name.iter();
        let rank = |one: &ExchangerUse| (one.connection_count, one.waiting.len());
        // Of an address and its only names the shorter one is shown.
        let (name, one) = uses.max_by_key(|(name, one)| (rank(one), std::cmp::Reverse(name.len())))?;
        let (used, waiting) = (one.connection_count, one.waiting.len());
        Some(ExchangerView { name: name.clone(), used, waiting })
    }
}
