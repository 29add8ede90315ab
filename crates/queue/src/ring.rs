//! Whose turn it is to get a connection: destinations in rings by their groups' priority, and those
//! parked whose group has as many connections as it may.

use crate::{DestinationId, GroupId, Settings};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, VecDeque},
};

/// Higher priority first; within one, who has no connection before who wants one more.
type Turn = (Reverse<i32>, bool);

#[derive(Debug, Default)]
struct Members {
    connection_count: u32,
    /// Of them, those that rest.
    idle_count: u32,
    /// Of the parked ones, those that want their first connection.
    parked_first_count: usize,
    parked: VecDeque<(bool, DestinationId)>,
}

#[derive(Debug, Default)]
pub(crate) struct Rings {
    by_turn: BTreeMap<Turn, VecDeque<(GroupId, DestinationId)>>,
    /// By group; as many as had anything to say.
    groups: Vec<Members>,
    /// Destinations in rings that want their first connection.
    first_count: usize,
    /// Parked ones of all groups that do.
    parked_first_count: usize,
}

impl Rings {
    pub(crate) fn push(&mut self, settings: &Settings, group: GroupId, is_first: bool, id: DestinationId) {
        let turn = (Reverse(settings.group(group).priority), !is_first);
        self.by_turn.entry(turn).or_default().push_back((group, id));
        self.first_count += usize::from(is_first);
    }

    fn members(&mut self, group: GroupId) -> &mut Members {
        let at = usize::from(group.0);
        if at >= self.groups.len() {
            self.groups.resize_with(at + 1, Members::default);
        }
        &mut self.groups[at]
    }

    /// One that wanted another connection has lost all it had: it wants its first.
    pub(crate) fn wants_first_now(&mut self, settings: &Settings, group: GroupId, id: DestinationId) {
        let members = self.members(group);
        let parked = members.parked.iter().position(|one| *one == (false, id));
        let was_there = match parked {
            Some(at) => members.parked.remove(at).is_some(),
            None => self.by_turn.iter_mut().filter(|(turn, _)| turn.1).any(|(_, ring)| {
                let at = ring.iter().position(|one| *one == (group, id));
                at.and_then(|at| ring.remove(at)).is_some()
            }),
        };
        if was_there {
            self.push(settings, group, true, id);
        }
    }

    /// The next destination whose group may have another connection.
    pub(crate) fn pop(&mut self, settings: &Settings) -> Option<DestinationId> {
        loop {
            let mut entry = self.by_turn.first_entry()?;
            let is_first = !entry.key().1;
            let Some((group, id)) = entry.get_mut().pop_front() else {
                entry.remove();
                continue;
            };
            self.first_count -= usize::from(is_first);
            let members = self.members(group);
            if members.connection_count < settings.group(group).connections_max.max(1) {
                return Some(id);
            }
            members.parked_first_count += usize::from(is_first);
            members.parked.push_back((is_first, id));
            self.parked_first_count += usize::from(is_first);
        }
    }

    pub(crate) fn opened(&mut self, group: GroupId) {
        self.members(group).connection_count += 1;
    }

    pub(crate) fn closed(&mut self, settings: &Settings, group: GroupId) {
        let members = self.members(group);
        assert!(members.connection_count > 0, "a connection is closed once");
        members.connection_count -= 1;
        self.unpark(settings, group);
    }

    /// The group may have another connection: the next that is parked is asked.
    pub(crate) fn unpark(&mut self, settings: &Settings, group: GroupId) {
        let members = self.members(group);
        if let Some((is_first, id)) = members.parked.pop_front() {
            members.parked_first_count -= usize::from(is_first);
            self.parked_first_count -= usize::from(is_first);
            self.push(settings, group, is_first, id);
        }
    }

    /// More connections may be allowed than before.
    pub(crate) fn unpark_all(&mut self, settings: &Settings) {
        self.parked_first_count = 0;
        for group in (0..).map(GroupId).take(self.groups.len()) {
            let members = self.members(group);
            members.parked_first_count = 0;
            for (is_first, id) in std::mem::take(&mut members.parked) {
                self.push(settings, group, is_first, id);
            }
        }
    }

    /// One of the group's connections rests.
    pub(crate) fn rested(&mut self, group: GroupId) {
        self.members(group).idle_count += 1;
    }

    /// It does not any more.
    pub(crate) fn stirred(&mut self, group: GroupId) {
        let members = self.members(group);
        assert!(members.idle_count > 0, "an idle connection is woken once");
        members.idle_count -= 1;
    }

    /// A group with connections that rest, which others want; `is_full` tells that no group may have more.
    pub(crate) fn group_to_make_room(&self, is_full: bool) -> Option<GroupId> {
        let is_wanted = is_full && self.wants_first();
        if !is_wanted && self.parked_first_count == 0 {
            return None;
        }
        let may = |members: &Members| members.idle_count > 0 && (is_wanted || members.parked_first_count > 0);
        (0..).map(GroupId).zip(&self.groups).find(|(_, members)| may(members)).map(|(group, _)| group)
    }

    /// Destinations in rings and parked ones.
    pub(crate) fn len(&self) -> usize {
        let parked: usize = self.groups.iter().map(|members| members.parked.len()).sum();
        self.by_turn.values().map(VecDeque::len).sum::<usize>() + parked
    }

    /// Panics when a counter is not what it counts. `connections` has the open and the idle ones of each group.
    pub(crate) fn check_invariants(
        &self,
        connections: &BTreeMap<u8, (u32, u32)>,
        in_ring: impl Fn(DestinationId) -> bool,
    ) {
        for (group, members) in (0..).zip(&self.groups) {
            let counted = connections.get(&group).copied().unwrap_or_default();
            assert_eq!(
                (members.connection_count, members.idle_count),
                counted,
                "connections of group {group}"
            );
            let first = members.parked.iter().filter(|(is_first, _)| *is_first).count();
            assert_eq!(members.parked_first_count, first, "parked destinations of group {group}");
        }
        let parked_first: usize = self.groups.iter().map(|members| members.parked_first_count).sum();
        assert_eq!(self.parked_first_count, parked_first);
        let first =
            self.by_turn.iter().filter(|(turn, _)| !turn.1).map(|(_, ring)| ring.len()).sum::<usize>();
        assert_eq!(self.first_count, first, "destinations that want their first connection");
        let ringed = self.by_turn.values().flatten().map(|(_, id)| id);
        let parked = self.groups.iter().flat_map(|members| &members.parked).map(|(_, id)| id);
        assert!(ringed.chain(parked).all(|id| in_ring(*id)), "what is listed wants a connection");
    }

    /// How many want their first connection and have to wait for it.
    pub(crate) fn first_count(&self) -> usize {
        self.first_count + self.parked_first_count
    }

    /// Does any destination want its first connection?
    pub(crate) fn wants_first(&self) -> bool {
        self.first_count > 0
    }

    /// Does one of this group that may not have it?
    pub(crate) fn is_group_contended(&self, group: GroupId) -> bool {
        self.groups.get(usize::from(group.0)).is_some_and(|members| members.parked_first_count > 0)
    }
}
