//! The totals that may be found, beside the totals that the spool stores. They count what was handed to the spool, with no code
//! of the spool. After a crash the totals must lie between what was durable and what was submitted.

use mail::{Cause, Disposition, Outcome};
use spool::{Entry, Imbalance, RecoveryReport, Totals};

/// Between which totals a recovery has to be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExpectedTotals {
    /// With everything that was called durable.
    least: Totals,
    /// With everything that was submitted.
    most: Totals,
}

/// Returns what a transaction adds.
pub fn counted(transaction: &[Entry]) -> Totals {
    let mut totals = Totals::default();
    for entry in transaction {
        match entry {
            Entry::Accept(message) => totals.accepted += message.envelope.recipients.len() as u64,
            Entry::Import(found) => {
                totals.accepted +=
                    found.recipients.iter().map(|state| u64::from(!state.settled)).sum::<u64>();
            }
            Entry::Outcome { results, .. } => results.iter().for_each(|(_, one)| note(&mut totals, one)),
            Entry::Count(more) => add(&mut totals, more),
            Entry::Control { .. } => {}
        }
    }
    totals
}

fn note(totals: &mut Totals, outcome: &Outcome) {
    match outcome.disposition {
        Disposition::Deferred => {}
        _ if outcome.cause == Cause::Redirected => totals.moved += 1,
        Disposition::Delivered => totals.delivered += 1,
        Disposition::Failed if outcome.cause == Cause::Expired => totals.expired += 1,
        Disposition::Failed if outcome.cause == Cause::Deleted => totals.deleted += 1,
        Disposition::Failed => totals.bounced += 1,
    }
}

fn numbers(totals: &Totals) -> [u64; 6] {
    let Totals { accepted, delivered, bounced, expired, deleted, moved } = *totals;
    [accepted, delivered, bounced, expired, deleted, moved]
}

fn add(totals: &mut Totals, more: &Totals) {
    totals.accepted += more.accepted;
    totals.delivered += more.delivered;
    totals.bounced += more.bounced;
    totals.expired += more.expired;
    totals.deleted += more.deleted;
    totals.moved += more.moved;
}

impl ExpectedTotals {
    /// Counts a transaction that the spool took and may lose.
    pub fn submitted(&mut self, counted: &Totals) {
        add(&mut self.most, counted);
    }

    /// Counts a transaction that must not be lost any more.
    pub fn durable(&mut self, counted: &Totals) {
        add(&mut self.least, counted);
    }

    /// With everything that was submitted.
    pub fn most(&self) -> &Totals {
        &self.most
    }

    /// The totals that a start found count from now on.
    pub fn adopt(&mut self, found: &Totals) {
        (self.least, self.most) = (*found, *found);
    }

    /// Checks the totals that a start found, with the recipients that are left.
    pub fn check(&self, report: &RecoveryReport, left: u64) -> Result<(), String> {
        let found = &report.totals;
        if let Some(imbalance) = report.imbalances.first() {
            return Err(format!("the totals are wrong: {imbalance}"));
        }
        if found.left() != Some(left) {
            return Err(format!("the totals are wrong: {}", Imbalance { totals: *found, found: left }));
        }
        let (least, most) = (numbers(&self.least), numbers(&self.most));
        let is_possible = |(found, (least, most)): (u64, (u64, u64))| least <= found && found <= most;
        if numbers(found).into_iter().zip(least.into_iter().zip(most)).all(is_possible) {
            return Ok(());
        }
        Err(format!("the totals are {found:?}, durable was {:?}, submitted {:?}", self.least, self.most))
    }
}
