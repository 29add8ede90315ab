//! A destination's jobs that wait for a connection, in the order of its group.

use crate::{
    Millis, SortFacts, SortOrder,
    list::List,
    message::{Job, JobId, QueuedMessage},
    ranked_jobs::{RankedJobs, Turn, TurnCount},
    slab::Slab,
    timetable::Timetable,
};
use std::collections::BTreeSet;

/// Key, queue id, job.
type SortedJobs = BTreeSet<(i64, u64, JobId)>;

/// A destination's jobs that could be tried now, in the order of its group.
#[derive(Debug)]
pub(crate) struct ReadyList {
    pub(crate) usual: UsualList,
    /// Jobs of messages with a priority or a deadline, if there are any.
    pub(crate) ranked: Option<Box<RankedJobs>>,
    /// Outlives `ranked`: ranked jobs that come one by one must not begin a new turn each.
    turns: TurnCount,
}

#[derive(Debug)]
pub(crate) enum UsualList {
    /// First in, first out; bulk in a list of its own.
    Fair { small: List, bulk: List, small_in_a_row: u8 },
    /// First in, first out.
    Fifo(List),
    /// Lowest key first.
    Sorted(SortOrder, SortedJobs),
}

/// The tables of jobs and messages, and the times of messages.
pub(crate) struct Tables<'a> {
    pub(crate) jobs: &'a mut Slab<Job>,
    pub(crate) messages: &'a Slab<QueuedMessage>,
    pub(crate) timetable: &'a Timetable,
}

impl Tables<'_> {
    fn is_bulk(&self, at: JobId) -> bool {
        self.messages[self.jobs[at].message].is_bulk
    }

    fn is_ranked(&self, at: JobId) -> bool {
        self.messages[self.jobs[at].message].is_ranked
    }

    /// Returns the sort key of a job. The fields that it is made of change only through [`ReadyList::change`] while
    /// the job is ready, so that the job is found again.
    fn key(&self, order: SortOrder, at: JobId) -> (i64, u64, JobId) {
        let job = &self.jobs[at];
        let message = &self.messages[job.message];
        let facts = SortFacts {
            id: message.id.0,
            size_bytes: u64::from(message.size_bytes),
            recipient_count: job.recipients.as_slice().len() as u32,
            attempt_count: job.attempt_count(),
            arrived: message.arrived,
            changed: if job.attempt_count() == 0 { message.arrived } else { job.due },
            destination: job.destination,
        };
        (order.key(&facts), facts.id, at)
    }
}

impl ReadyList {
    pub(crate) fn new(order: SortOrder) -> Self {
        Self { usual: UsualList::new(order), ranked: None, turns: TurnCount::default() }
    }

    /// Adds a job. `first` puts it in front, if the list has no sort order.
    pub(crate) fn push(&mut self, tables: &mut Tables<'_>, at: JobId, first: bool) {
        if tables.is_ranked(at) {
            self.ranked.get_or_insert_default().insert(tables, at);
        } else {
            self.usual.push(tables, at, first);
        }
    }

    pub(crate) fn remove(&mut self, tables: &mut Tables<'_>, at: JobId) {
        match &mut self.ranked {
            Some(ranked) if tables.is_ranked(at) => {
                ranked.remove(tables, at);
                self.drop_empty();
            }
            _ => self.usual.remove(tables, at),
        }
    }

    fn drop_empty(&mut self) {
        self.ranked.take_if(|ranked| ranked.is_empty());
    }

    /// Changes the recipients of a job of the list. A job without a sort key keeps its position.
    pub(crate) fn change(&mut self, tables: &mut Tables<'_>, at: JobId, change: impl FnOnce(&mut Job)) {
        if tables.is_ranked(at) {
            change(&mut tables.jobs[at]);
        } else {
            self.usual.change(tables, at, change);
        }
    }

    /// Takes out the next job. [`SortOrder::Fair`] takes a large message after every `small_per_bulk` small ones.
    #[inline]
    pub(crate) fn pop(&mut self, tables: &mut Tables<'_>, small_per_bulk: u8) -> Option<JobId> {
        let Some(ranked) = &mut self.ranked else { return self.usual.pop(tables, small_per_bulk) };
        let usual_since = self.usual.head().map(|job| tables.jobs[job].due);
        let job = match ranked.next_turn(tables, &mut self.turns, usual_since) {
            Turn::Usual => return self.usual.pop(tables, small_per_bulk),
            Turn::Ranked => ranked.first(),
            Turn::Oldest => ranked.oldest(),
        };
        ranked.remove(tables, job?);
        self.drop_empty();
        job
    }

    /// Returns the time since when the list has work. Only without a sort order it is that of the job that waits longest.
    pub(crate) fn waits_since(&self, jobs: &Slab<Job>) -> Option<Millis> {
        let usual = self.usual.head().map(|job| jobs[job].due);
        let Some(ranked) = &self.ranked else { return usual };
        let ranked = ranked.oldest().map(|job| jobs[job].due);
        usual.into_iter().chain(ranked).min()
    }
}

impl UsualList {
    fn new(order: SortOrder) -> Self {
        match order {
            SortOrder::Fair => {
                Self::Fair { small: List::default(), bulk: List::default(), small_in_a_row: 0 }
            }
            order if order.is_queue() => Self::Fifo(List::default()),
            order => Self::Sorted(order, BTreeSet::new()),
        }
    }

    fn push(&mut self, tables: &mut Tables<'_>, at: JobId, first: bool) {
        let list = match self {
            Self::Fair { bulk, .. } if tables.is_bulk(at) => bulk,
            Self::Fair { small: list, .. } | Self::Fifo(list) => list,
            Self::Sorted(order, sorted) => {
                sorted.insert(tables.key(*order, at));
                return;
            }
        };
        if first { list.push_front(tables.jobs, at) } else { list.push_back(tables.jobs, at) }
    }

    fn remove(&mut self, tables: &mut Tables<'_>, at: JobId) {
        match self {
            Self::Fair { bulk, .. } if tables.is_bulk(at) => bulk.remove(tables.jobs, at),
            Self::Fair { small: list, .. } | Self::Fifo(list) => list.remove(tables.jobs, at),
            Self::Sorted(order, sorted) => {
                sorted.remove(&tables.key(*order, at));
            }
        }
    }

    fn change(&mut self, tables: &mut Tables<'_>, at: JobId, change: impl FnOnce(&mut Job)) {
        if let Self::Sorted(order, sorted) = self {
            sorted.remove(&tables.key(*order, at));
            change(&mut tables.jobs[at]);
            sorted.insert(tables.key(*order, at));
        } else {
            change(&mut tables.jobs[at]);
        }
    }

    #[inline]
    fn pop(&mut self, tables: &mut Tables<'_>, small_per_bulk: u8) -> Option<JobId> {
        match self {
            Self::Fair { small, bulk, small_in_a_row } => {
                let small_first = bulk.is_empty() || *small_in_a_row < small_per_bulk;
                let (list, in_a_row) = if small_first && !small.is_empty() {
                    (small, small_in_a_row.saturating_add(1))
                } else {
                    (bulk, 0)
                };
                let job = list.pop_front(tables.jobs)?;
                *small_in_a_row = in_a_row;
                Some(job)
            }
            Self::Fifo(list) => list.pop_front(tables.jobs),
            Self::Sorted(_, sorted) => sorted.pop_first().map(|(_, _, job)| job),
        }
    }

    /// Returns a job that goes early. Only without a sort order it is the one that waits longest.
    fn head(&self) -> Option<JobId> {
        match self {
            Self::Fair { small, bulk, .. } => small.head().or(bulk.head()),
            Self::Fifo(list) => list.head(),
            Self::Sorted(_, sorted) => sorted.first().map(|(_, _, job)| *job),
        }
    }
}
