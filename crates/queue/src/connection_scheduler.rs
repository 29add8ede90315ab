//! The order in which destinations get connections: by the priority of their groups. Destinations whose group has as
//! many connections as it may are deferred.

use crate::{DestinationId, GroupId, QueueSettings};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, VecDeque},
};

/// Higher priority first; within one priority, destinations without a connection first.
type Priority = (Reverse<i32>, bool);

#[derive(Debug, Default)]
struct GroupState {
    connection_count: u32,
    /// Connections that wait for work.
    idle_count: u32,
    /// Deferred destinations that want their first connection.
    deferred_first_count: usize,
    deferred: VecDeque<(bool, DestinationId)>,
}

#[derive(Debug, Default)]
pub(crate) struct ConnectionScheduler {
    by_priority: BTreeMap<Priority, VecDeque<(GroupId, DestinationId)>>,
    /// By group; up to the highest number that was used.
    groups: Vec<GroupState>,
    /// Listed destinations that want their first connection.
    first_count: usize,
    /// Deferred destinations of all groups that want their first connection.
    deferred_first_count: usize,
}

impl ConnectionScheduler {
    pub(crate) fn push(
        &mut self,
        settings: &QueueSettings,
        group: GroupId,
        wants_first_connection: bool,
        id: DestinationId,
    ) {
        let priority = (Reverse(settings.group(group).priority), !wants_first_connection);
        self.by_priority.entry(priority).or_default().push_back((group, id));
        self.first_count += usize::from(wants_first_connection);
    }

    fn state(&mut self, group: GroupId) -> &mut GroupState {
        let at = usize::from(group.0);
        if at >= self.groups.len() {
            self.groups.resize_with(at + 1, GroupState::default);
        }
        &mut self.groups[at]
    }

    /// Moves a destination that has lost all its connections to those that want their first one.
    pub(crate) fn wants_first_now(&mut self, settings: &QueueSettings, group: GroupId, id: DestinationId) {
        let state = self.state(group);
        let deferred = state.deferred.iter().position(|one| *one == (false, id));
        let was_there = match deferred {
            Some(at) => state.deferred.remove(at).is_some(),
            None => self.by_priority.iter_mut().filter(|(priority, _)| priority.1).any(|(_, list)| {
                let at = list.iter().position(|one| *one == (group, id));
                at.and_then(|at| list.remove(at)).is_some()
            }),
        };
        if was_there {
            self.push(settings, group, true, id);
        }
    }

    /// Takes out the next destination whose group may have another connection.
    pub(crate) fn pop(&mut self, settings: &QueueSettings) -> Option<DestinationId> {
        loop {
            let mut entry = self.by_priority.first_entry()?;
            let wants_first_connection = !entry.key().1;
            let Some((group, id)) = entry.get_mut().pop_front() else {
                entry.remove();
                continue;
            };
            self.first_count -= usize::from(wants_first_connection);
            let state = self.state(group);
            if state.connection_count < settings.group(group).connections_max.max(1) {
                return Some(id);
            }
            state.deferred_first_count += usize::from(wants_first_connection);
            state.deferred.push_back((wants_first_connection, id));
            self.deferred_first_count += usize::from(wants_first_connection);
        }
    }

    pub(crate) fn opened(&mut self, group: GroupId) {
        self.state(group).connection_count += 1;
    }

    pub(crate) fn closed(&mut self, settings: &QueueSettings, group: GroupId) {
        let state = self.state(group);
        assert!(state.connection_count > 0, "a connection is closed once");
        state.connection_count -= 1;
        self.resume_deferred(settings, group);
    }

    /// Lists the next deferred destination of a group that may have another connection.
    pub(crate) fn resume_deferred(&mut self, settings: &QueueSettings, group: GroupId) {
        let state = self.state(group);
        if let Some((wants_first_connection, id)) = state.deferred.pop_front() {
            state.deferred_first_count -= usize::from(wants_first_connection);
            self.deferred_first_count -= usize::from(wants_first_connection);
            self.push(settings, group, wants_first_connection, id);
        }
    }

    /// Lists all deferred destinations, because more connections may be allowed than before.
    pub(crate) fn resume_all_deferred(&mut self, settings: &QueueSettings) {
        self.deferred_first_count = 0;
        for group in (0..).map(GroupId).take(self.groups.len()) {
            let state = self.state(group);
            state.deferred_first_count = 0;
            for (wants_first_connection, id) in std::mem::take(&mut state.deferred) {
                self.push(settings, group, wants_first_connection, id);
            }
        }
    }

    /// Counts an idle connection of the group.
    pub(crate) fn enter_idle(&mut self, group: GroupId) {
        self.state(group).idle_count += 1;
    }

    /// Ends the idle state of a connection of the group.
    pub(crate) fn leave_idle(&mut self, group: GroupId) {
        let state = self.state(group);
        assert!(state.idle_count > 0, "an idle connection is woken once");
        state.idle_count -= 1;
    }

    /// Returns a group with idle connections that other destinations want. `is_full` tells that no group may have
    /// more.
    pub(crate) fn group_to_evict_from(&self, is_full: bool) -> Option<GroupId> {
        let is_wanted = is_full && self.wants_first();
        if !is_wanted && self.deferred_first_count == 0 {
            return None;
        }
        let may = |state: &GroupState| state.idle_count > 0 && (is_wanted || state.deferred_first_count > 0);
        (0..).map(GroupId).zip(&self.groups).find(|(_, state)| may(state)).map(|(group, _)| group)
    }

    /// Returns the number of listed and deferred destinations.
    pub(crate) fn len(&self) -> usize {
        let deferred: usize = self.groups.iter().map(|state| state.deferred.len()).sum();
        self.by_priority.values().map(VecDeque::len).sum::<usize>() + deferred
    }

    /// Panics when a counter is not what it counts. `connections` has the open and the idle ones of each group.
    pub(crate) fn check_invariants(
        &self,
        connections: &BTreeMap<u8, (u32, u32)>,
        is_scheduled: impl Fn(DestinationId) -> bool,
    ) {
        for (group, state) in (0..).zip(&self.groups) {
            let counted = connections.get(&group).copied().unwrap_or_default();
            assert_eq!((state.connection_count, state.idle_count), counted, "connections of group {group}");
            let first =
                state.deferred.iter().filter(|(wants_first_connection, _)| *wants_first_connection).count();
            assert_eq!(state.deferred_first_count, first, "deferred destinations of group {group}");
        }
        let parked_first: usize = self.groups.iter().map(|state| state.deferred_first_count).sum();
        assert_eq!(self.deferred_first_count, parked_first);
        let first = self
            .by_priority
            .iter()
            .filter(|(priority, _)| !priority.1)
            .map(|(_, list)| list.len())
            .sum::<usize>();
        assert_eq!(self.first_count, first, "destinations that want their first connection");
        let listed = self.by_priority.values().flatten().map(|(_, id)| id);
        let deferred = self.groups.iter().flat_map(|state| &state.deferred).map(|(_, id)| id);
        assert!(listed.chain(deferred).all(|id| is_scheduled(*id)), "what is listed wants a connection");
    }

    /// Returns how many destinations wait for their first connection.
    pub(crate) fn first_count(&self) -> usize {
        self.first_count + self.deferred_first_count
    }

    /// Returns whether a listed destination wants its first connection.
    pub(crate) fn wants_first(&self) -> bool {
        self.first_count > 0
    }

    /// Returns whether a deferred destination of the group wants its first connection.
    pub(crate) fn is_group_contended(&self, group: GroupId) -> bool {
        self.groups.get(usize::from(group.0)).is_some_and(|state| state.deferred_first_count > 0)
    }
}
