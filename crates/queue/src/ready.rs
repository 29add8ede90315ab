//! A destination's units that wait for a connection, in the order of its group.

use crate::{
    SortFacts, SortOrder,
    list::List,
    message::{Entry, Unit, UnitId},
    slab::Slab,
};
use std::collections::BTreeSet;

/// Key, queue id, unit.
type Sorted = BTreeSet<(i64, u64, UnitId)>;

#[derive(Debug)]
pub(crate) enum Ready {
    /// First come, first served; bulk in a line of its own.
    Fair { small: List, bulk: List, small_in_a_row: u8 },
    /// First come, first served.
    Line(List),
    /// Lowest key first.
    By(SortOrder, Sorted),
}

/// The tables a unit and its message are in.
pub(crate) struct Tables<'a> {
    pub(crate) units: &'a mut Slab<Unit>,
    pub(crate) messages: &'a Slab<Entry>,
}

impl Tables<'_> {
    fn is_bulk(&self, at: UnitId) -> bool {
        self.messages[self.units[at].message].is_bulk
    }

    /// What it is made of changes through [`Ready::change`] only while the unit is ready, so that it is found
    /// again.
    fn key(&self, order: SortOrder, at: UnitId) -> (i64, u64, UnitId) {
        let unit = &self.units[at];
        let message = &self.messages[unit.message];
        let facts = SortFacts {
            id: message.id.0,
            size_bytes: u64::from(message.size_bytes),
            recipient_count: unit.recipients.as_slice().len() as u32,
            attempt_count: unit.attempt_count(),
            arrived: message.arrived,
            changed: if unit.attempt_count() == 0 { message.arrived } else { unit.due },
            destination: unit.destination,
        };
        (order.key(&facts), facts.id, at)
    }
}

impl Ready {
    pub(crate) fn new(order: SortOrder) -> Self {
        match order {
            SortOrder::Fair => {
                Self::Fair { small: List::default(), bulk: List::default(), small_in_a_row: 0 }
            }
            order if order.is_queue() => Self::Line(List::default()),
            order => Self::By(order, BTreeSet::new()),
        }
    }

    /// Puts a unit in its place; `first` goes before all who came earlier, where that counts.
    pub(crate) fn push(&mut self, tables: &mut Tables<'_>, at: UnitId, first: bool) {
        let list = match self {
            Self::Fair { bulk, .. } if tables.is_bulk(at) => bulk,
            Self::Fair { small: list, .. } | Self::Line(list) => list,
            Self::By(order, sorted) => {
                sorted.insert(tables.key(*order, at));
                return;
            }
        };
        if first { list.push_front(tables.units, at) } else { list.push_back(tables.units, at) }
    }

    pub(crate) fn remove(&mut self, tables: &mut Tables<'_>, at: UnitId) {
        match self {
            Self::Fair { bulk, .. } if tables.is_bulk(at) => bulk.remove(tables.units, at),
            Self::Fair { small: list, .. } | Self::Line(list) => list.remove(tables.units, at),
            Self::By(order, sorted) => {
                sorted.remove(&tables.key(*order, at));
            }
        }
    }

    /// Changes a unit that is here. In a line it keeps its place.
    pub(crate) fn change(&mut self, tables: &mut Tables<'_>, at: UnitId, change: impl FnOnce(&mut Unit)) {
        if let Self::By(order, sorted) = self {
            sorted.remove(&tables.key(*order, at));
            change(&mut tables.units[at]);
            sorted.insert(tables.key(*order, at));
        } else {
            change(&mut tables.units[at]);
        }
    }

    /// The next one; of the fair kind after so many small ones a large one.
    pub(crate) fn pop(&mut self, tables: &mut Tables<'_>, small_per_bulk: u8) -> Option<UnitId> {
        match self {
            Self::Fair { small, bulk, small_in_a_row } => {
                let small_first = bulk.is_empty() || *small_in_a_row < small_per_bulk;
                let (list, in_a_row) = if small_first && !small.is_empty() {
                    (small, small_in_a_row.saturating_add(1))
                } else {
                    (bulk, 0)
                };
                let unit = list.pop_front(tables.units)?;
                *small_in_a_row = in_a_row;
                Some(unit)
            }
            Self::Line(list) => list.pop_front(tables.units),
            Self::By(_, sorted) => sorted.pop_first().map(|(_, _, unit)| unit),
        }
    }

    /// One that goes early; who waits longest is known only of the first two kinds.
    pub(crate) fn head(&self) -> Option<UnitId> {
        match self {
            Self::Fair { small, bulk, .. } => small.head().or(bulk.head()),
            Self::Line(list) => list.head(),
            Self::By(_, sorted) => sorted.first().map(|(_, _, unit)| *unit),
        }
    }
}
