//! The order in which destinations get connections: by the priority of their groups. Destinations whose group has as
//! many connections as it may are deferred.

use crate::{
    DestinationId, GroupId, QueueSettings,
    shares::{SHARE_COUNT, Share},
};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, VecDeque},
};

/// Each of so many destinations that are chosen is one that has failed before, so that these are tried however many new ones
/// there are.
const FAILED_TURN: u64 = 4;

/// Each of so many is the one that came last: mail to thousands of new domains at once does not delay what comes behind it until
/// all of them were tried.
const NEWEST_TURN: u64 = 4;

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
    by_priority: BTreeMap<Priority, VecDeque<Listed>>,
    /// By group; up to the highest number that was used.
    groups: Vec<GroupState>,
    /// Listed destinations that want their first connection.
    first_count: usize,
    /// Deferred destinations of all groups that want their first connection.
    deferred_first_count: usize,
    /// Destinations whose share is full.
    waiting: [WaitingList; SHARE_COUNT],
    /// Counts up with each destination that begins to wait.
    wait_count: u64,
}

/// A destination that is to get a connection in the turn of its group.
#[derive(Debug, Clone, Copy)]
struct Listed {
    group: GroupId,
    id: DestinationId,
    /// From [`Waiting::number`], if it has waited for its share before.
    number: Option<u64>,
}

/// A destination that waits until its share has room.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    /// Smaller for one that has waited longer.
    number: u64,
    /// It could not be reached when it was tried last.
    has_failed: bool,
    priority: Priority,
    group: GroupId,
    id: DestinationId,
}

impl From<Waiting> for Listed {
    fn from(one: Waiting) -> Self {
        Self { group: one.group, id: one.id, number: Some(one.number) }
    }
}

/// Destinations that wait for a connection of one share.
#[derive(Debug, Default)]
struct WaitingList {
    /// Behind the priority: whether they have failed. Those that were not tried yet go ahead.
    by_priority: BTreeMap<(Priority, bool), VecDeque<Waiting>>,
    count: usize,
    /// Counts those that were chosen, for [`FAILED_TURN`] and [`NEWEST_TURN`].
    chosen_count: u64,
    /// Those that want their first connection.
    first_count: usize,
}

impl WaitingList {
    fn push(&mut self, one: Waiting) {
        self.count += 1;
        self.first_count += usize::from(!one.priority.1);
        let rows = self.by_priority.entry((one.priority, one.has_failed)).or_default();
        // Nearly always at the end: only one that waited before has a smaller number.
        let at = rows.partition_point(|other| other.number < one.number);
        rows.insert(at, one);
    }

    fn removed(&mut self, one: Waiting) -> Waiting {
        self.count -= 1;
        self.first_count -= usize::from(!one.priority.1);
        one
    }

    fn pop(&mut self) -> Option<Waiting> {
        self.by_priority.retain(|_, rows| !rows.is_empty());
        let (priority, _) = *self.by_priority.keys().next()?;
        self.chosen_count += 1;
        let is_turn = self.chosen_count.is_multiple_of(FAILED_TURN);
        let is_newest = self.chosen_count % NEWEST_TURN == NEWEST_TURN / 2;
        let one = [is_turn, !is_turn].into_iter().find_map(|has_failed| {
            let rows = self.by_priority.get_mut(&(priority, has_failed))?;
            if is_newest { rows.pop_back() } else { rows.pop_front() }
        })?;
        Some(self.removed(one))
    }

    fn remove(&mut self, id: DestinationId) -> Option<Waiting> {
        self.remove_if(|_| true, id)
    }

    /// Removes a destination that wants another connection, not its first one.
    fn remove_later(&mut self, id: DestinationId) -> bool {
        self.remove_if(|priority| priority.1, id).is_some()
    }

    fn remove_if(&mut self, is_meant: impl Fn(&Priority) -> bool, id: DestinationId) -> Option<Waiting> {
        let one = self.by_priority.iter_mut().filter(|((priority, _), _)| is_meant(priority)).find_map(
            |(_, rows)| {
                let at = rows.iter().position(|one| one.id == id)?;
                rows.remove(at)
            },
        )?;
        Some(self.removed(one))
    }

    fn len(&self) -> usize {
        self.count
    }
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
        self.by_priority.entry(priority).or_default().push_back(Listed { group, id, number: None });
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
        let waiting = self.waiting.iter_mut().any(|list| list.remove_later(id));
        let state = self.state(group);
        let was_there = waiting
            || match deferred {
                Some(at) => state.deferred.remove(at).is_some(),
                None => self.by_priority.iter_mut().filter(|(priority, _)| priority.1).any(|(_, list)| {
                    let at = list.iter().position(|one| one.id == id);
                    at.and_then(|at| list.remove(at)).is_some()
                }),
            };
        if was_there {
            self.push(settings, group, true, id);
        }
    }

    /// Takes out the next destination whose group and share may have another connection. `share_of` also tells whether it could
    /// not be reached when it was tried last.
    pub(crate) fn pop(
        &mut self,
        settings: &QueueSettings,
        share_of: impl Fn(DestinationId) -> (Share, bool),
        is_full: impl Fn(Share) -> bool,
    ) -> Option<DestinationId> {
        loop {
            let mut entry = self.by_priority.first_entry()?;
            let priority = *entry.key();
            let wants_first_connection = !priority.1;
            let Some(Listed { group, id, number }) = entry.get_mut().pop_front() else {
                entry.remove();
                continue;
            };
            self.first_count -= usize::from(wants_first_connection);
            let (share, has_failed) = share_of(id);
            if is_full(share) {
                self.wait_count += 1;
                let number = number.unwrap_or(self.wait_count);
                self.waiting[share as usize].push(Waiting { number, has_failed, priority, group, id });
                continue;
            }
            let state = self.state(group);
            if state.connection_count < settings.group(group).connections_max.max(1) {
                return Some(id);
            }
            state.deferred_first_count += usize::from(wants_first_connection);
            state.deferred.push_back((wants_first_connection, id));
            self.deferred_first_count += usize::from(wants_first_connection);
        }
    }

    /// Returns whether no destination waits for its share.
    pub(crate) fn is_nobody_waiting(&self) -> bool {
        self.waiting.iter().all(|list| list.len() == 0)
    }

    /// Lists the next destination of each share that is not full.
    pub(crate) fn resume_shares(&mut self, is_full: impl Fn(Share) -> bool) {
        if self.is_nobody_waiting() {
            return;
        }
        let mut resumed: Vec<Waiting> = Vec::new();
        for share in Share::ALL {
            let list = &mut self.waiting[share as usize];
            if list.len() > 0 && !is_full(share) {
                resumed.extend(list.pop());
            }
        }
        // They have waited longer than what was listed meanwhile; the one that has waited longest goes first.
        resumed.sort_by_key(|one| Reverse(one.number));
        for one in resumed {
            self.list_again(one.priority).push_front(one.into());
        }
    }

    /// Counts a destination that has waited for its share, and returns the list that it goes to.
    fn list_again(&mut self, priority: Priority) -> &mut VecDeque<Listed> {
        self.first_count += usize::from(!priority.1);
        self.by_priority.entry(priority).or_default()
    }

    /// Lists a destination that waited for a connection of a share which is not its own any more.
    pub(crate) fn leave_share(&mut self, share: Share, id: DestinationId) {
        if let Some(one) = self.waiting[share as usize].remove(id) {
            self.list_again(one.priority).push_back(one.into());
        }
    }

    /// Returns the number of destinations without a connection that wait for one of a share.
    pub(crate) fn waiting_first_count(&self, share: Share) -> usize {
        self.waiting[share as usize].first_count
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
        for share in Share::ALL {
            let list = &mut self.waiting[share as usize];
            let mut all: Vec<Waiting> = std::iter::from_fn(|| list.pop()).collect();
            all.sort_by_key(|one| one.number);
            for one in all {
                self.list_again(one.priority).push_back(one.into());
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

    /// Returns whether a group has idle connections, and a destination that waits for one of the group's.
    pub(crate) fn is_any_group_contended(&self) -> bool {
        self.deferred_first_count > 0
            && self.groups.iter().any(|state| state.idle_count > 0 && state.deferred_first_count > 0)
    }

    /// Returns the number of listed and deferred destinations.
    pub(crate) fn len(&self) -> usize {
        let deferred: usize = self.groups.iter().map(|state| state.deferred.len()).sum();
        let waiting: usize = self.waiting.iter().map(WaitingList::len).sum();
        self.by_priority.values().map(VecDeque::len).sum::<usize>() + deferred + waiting
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
        let waiting =
            self.waiting.iter().flat_map(|list| list.by_priority.values().flatten().map(|one| one.id));
        for list in &self.waiting {
            let all: Vec<&Waiting> = list.by_priority.values().flatten().collect();
            let first = all.iter().filter(|one| !one.priority.1).count();
            assert_eq!(
                (list.count, list.first_count),
                (all.len(), first),
                "destinations that wait for a share"
            );
        }
        let listed = self.by_priority.values().flatten().map(|one| one.id);
        let deferred = self.groups.iter().flat_map(|state| &state.deferred).map(|(_, id)| *id);
        assert!(listed.chain(deferred).chain(waiting).all(is_scheduled), "what is listed wants a connection");
    }

    /// Returns how many destinations wait for their first connection.
    pub(crate) fn first_count(&self) -> usize {
        let waiting: usize = self.waiting.iter().map(|list| list.first_count).sum();
        self.first_count + self.deferred_first_count + waiting
    }

    /// Returns whether a deferred destination of the group wants its first connection.
    pub(crate) fn is_group_contended(&self, group: GroupId) -> bool {
        self.groups.get(usize::from(group.0)).is_some_and(|state| state.deferred_first_count > 0)
    }
}
