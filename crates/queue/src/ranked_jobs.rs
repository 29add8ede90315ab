//! Ready jobs of messages with a priority or a deadline, beside the usual list of a destination.

use crate::{Millis, message::JobId, ready_list::Tables};
use std::collections::BTreeSet;

/// Jobs that are taken before one of the usual list is, and before the one that waits longest is.
const TURNS: u8 = 8;

/// Favoured jobs first, then the highest priority, then the earliest deadline.
type Rank = (bool, i8, Millis);

/// Which list the next job comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// That of the highest rank.
    Ranked,
    /// That which waits longest, so that none waits for ever.
    Oldest,
    /// A job without a rank.
    Usual,
}

/// Position in a round of turns.
#[derive(Debug, Default)]
pub(crate) struct TurnCount(u8);

/// The jobs, by rank and by age. Of eight jobs that a destination takes, at least one is from the usual list, and at
/// least one is the job that waits longest here. So no job waits for ever, whatever arrives.
#[derive(Debug, Default)]
pub(crate) struct RankedJobs {
    by_rank: BTreeSet<(Rank, Millis, JobId)>,
    by_age: BTreeSet<(Millis, JobId)>,
}

fn rank(tables: &Tables<'_>, at: JobId) -> Rank {
    let job = &tables.jobs[at];
    let priority = tables.messages[job.message].priority;
    let deadline = tables.timetable.deadline(job.message).map_or(Millis::MAX, |deadline| deadline.at);
    (priority < 0, -priority, deadline)
}

impl RankedJobs {
    pub(crate) fn is_empty(&self) -> bool {
        self.by_age.is_empty()
    }

    /// Adds a job. Its rank and its time stay as they are while it is listed.
    pub(crate) fn insert(&mut self, tables: &Tables<'_>, at: JobId) {
        let since = tables.jobs[at].due;
        self.by_rank.insert((rank(tables, at), since, at));
        self.by_age.insert((since, at));
    }

    pub(crate) fn remove(&mut self, tables: &Tables<'_>, at: JobId) {
        let since = tables.jobs[at].due;
        self.by_rank.remove(&(rank(tables, at), since, at));
        self.by_age.remove(&(since, at));
    }

    /// Returns whose turn it is. `usual_since`: since when the next job of the usual list waits; none if it is empty.
    pub(crate) fn next_turn(
        &self,
        tables: &Tables<'_>,
        turns: &mut TurnCount,
        usual_since: Option<Millis>,
    ) -> Turn {
        turns.0 = (turns.0 + 1) % TURNS;
        let has_usual = usual_since.is_some();
        let is_favoured = self.by_rank.first().is_some_and(|((is_low, ..), ..)| !is_low);
        match turns.0 {
            0 if has_usual => Turn::Usual,
            // A low priority does not go before what waits as long without one.
            turn if turn == TURNS / 2 && self.is_oldest_low_and_younger(tables, usual_since) => Turn::Usual,
            turn if turn == TURNS / 2 => Turn::Oldest,
            _ if is_favoured || !has_usual => Turn::Ranked,
            _ => Turn::Usual,
        }
    }

    fn is_oldest_low_and_younger(&self, tables: &Tables<'_>, usual_since: Option<Millis>) -> bool {
        self.by_age.first().zip(usual_since).is_some_and(|((since, job), usual)| {
            usual <= *since && tables.messages[tables.jobs[*job].message].priority < 0
        })
    }

    /// Returns the job of the highest rank.
    pub(crate) fn first(&self) -> Option<JobId> {
        self.by_rank.first().map(|(_, _, job)| *job)
    }

    /// Returns the job that waits longest.
    pub(crate) fn oldest(&self) -> Option<JobId> {
        self.by_age.first().map(|(_, job)| *job)
    }

    /// Returns the jobs, those that have waited longest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = JobId> {
        assert_eq!(self.by_rank.len(), self.by_age.len(), "a ranked job is in both orders");
        self.by_age.iter().map(|(_, job)| *job)
    }
}
