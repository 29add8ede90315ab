//! Reads and sorts the queue: whole envelopes, or only file names where the order needs no more.

use super::Options;
use crate::{snapshot::ConfigSnapshot, wiring};
use config::{Backend, Settings};
use mail::Destination;
use queue::{SortFacts, SortOrder};
use spool::{DirSpool, Listed, Recovered, RecoveryReport, Spool, SpoolFailure};
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

/// Room for so many from the beginning: growing step by step touches twice the memory.
const ITEMS_AT_FIRST: usize = 32 * 1024;

/// A queued message that was read, to be sorted.
pub(super) struct Item {
    pub(super) found: Recovered,
    /// The first of its destinations, in their order, if the order asks for it: its number by which of
    /// them was met first, later its rank.
    destination: Option<u32>,
}

/// Numbers destinations in the order in which they occur first.
#[derive(Default)]
struct Interner(HashMap<Destination, u32>);

impl Interner {
    fn number(&mut self, destination: Destination) -> u32 {
        let next = self.0.len() as u32;
        *self.0.entry(destination).or_insert(next)
    }

    /// Replaces the numbers by ranks.
    fn rank(self, items: &mut [Item]) {
        let mut ranks = vec![0; self.0.len()];
        let in_order: BTreeMap<Destination, u32> = self.0.into_iter().collect();
        (0..).zip(in_order.into_values()).for_each(|(rank, number)| ranks[number as usize] = rank);
        for item in items {
            item.destination = item.destination.map(|number| ranks[number as usize]);
        }
    }
}

/// The queue, sorted as asked.
pub(super) enum Items {
    /// Messages in memory.
    Read(Vec<Item>),
    /// Names of queue directories' envelopes, each to be opened when its turn comes.
    Listed(Vec<Listed>),
}

/// Where the messages of a run come from.
pub(super) enum Source {
    /// A spool that was only read.
    Untouched,
    /// A recovered spool, with second copies of messages.
    Recovered(Box<dyn Spool>, Vec<spool::SecondCopy>),
    Listed(Arc<DirSpool>),
}

/// Everything, unsorted.
pub(super) fn read(
    settings: &Settings,
    options: Options,
    current: &ConfigSnapshot,
) -> Result<(Items, Source), String> {
    let is_one = settings.spools().len() == 1;
    let of_names = is_one && settings.spool.backend == Backend::QueueDirs && !needs_envelopes(options.order);
    let told = |e: SpoolFailure| format!("read the spool: {e}");
    if of_names {
        let with_times = options.order == SortOrder::Modification;
        if options.dry_run {
            let (listed, report) = spool::list(&settings.spool.path, with_times).map_err(told)?;
            tell_damage(&report);
            return Ok((Items::Listed(listed), Source::Untouched));
        }
        let mut spool = wiring::queue_directories(&settings.spool)?;
        let (listed, report) = spool.recover_listed(with_times).map_err(told)?;
        tell_damage(&report);
        return Ok((Items::Listed(listed), Source::Listed(Arc::new(spool))));
    }
    let by_host = options.order == SortOrder::Host;
    let (mut items, mut met) = (Vec::with_capacity(ITEMS_AT_FIRST), Interner::default());
    let mut take = |found: Recovered| {
        let first = || current.routes.envelope(&found.message.envelope).map(|one| one.0).min();
        let first = if by_host { first() } else { None };
        items.push(Item { found, destination: first.map(|first| met.number(first)) });
    };
    let source = if options.dry_run {
        tell_damage(&wiring::inspect(settings, &mut take).map_err(told)?);
        Source::Untouched
    } else {
        let mut spool = wiring::spool(settings)?;
        let report = spool.recover(&mut take).map_err(told)?;
        tell_damage(&report);
        Source::Recovered(spool, report.copies)
    };
    if by_host {
        met.rank(&mut items);
    }
    Ok((Items::Read(items), source))
}

/// Or does the name of its file, and when that was written, say all?
fn needs_envelopes(order: SortOrder) -> bool {
    match order {
        SortOrder::Priority
        | SortOrder::Host
        | SortOrder::Time
        | SortOrder::Deadline
        | SortOrder::Smallest => true,
        SortOrder::Fair
        | SortOrder::None
        | SortOrder::Filename
        | SortOrder::Modification
        | SortOrder::Random => false,
    }
}

pub(super) fn tell_damage(report: &RecoveryReport) {
    for problem in report.problems() {
        console::complain("postrider", &problem);
    }
}

impl Items {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Read(items) => items.len(),
            Self::Listed(listed) => listed.len(),
        }
    }

    /// Across all destinations.
    pub(super) fn sort(&mut self, order: SortOrder) {
        if matches!(order, SortOrder::None | SortOrder::Fair) {
            return;
        }
        match self {
            Self::Read(items) => sort_read(items, order),
            Self::Listed(listed) => listed.sort_by_cached_key(|one| {
                let facts = SortFacts {
                    id: one.id.0,
                    changed: one.changed.map_or(0, |at| at.0 as i64),
                    ..SortFacts::default()
                };
                (order.key(&facts), facts.id)
            }),
        }
    }
}

fn sort_read(items: &mut [Item], order: SortOrder) {
    items.sort_by_cached_key(|item| {
        let message = &item.found.message;
        let mut facts = SortFacts {
            id: message.id.0,
            size_bytes: message.content.size_bytes(),
            arrived: message.arrived.0 as i64,
            destination: item.destination.unwrap_or(0),
            ..SortFacts::default()
        };
        // They lie elsewhere in memory.
        if order.reads_recipients() {
            let left = item.found.recipients.iter().filter(|r| !r.settled);
            let attempts = left.clone().map(|r| r.attempt_count).max().unwrap_or(0);
            let changed = left.clone().filter_map(|r| r.last.as_ref()).map(|last| last.0.0).max();
            facts.recipient_count = left.count() as u32;
            facts.attempt_count = u16::try_from(attempts).unwrap_or(u16::MAX);
            facts.changed = changed.unwrap_or(message.arrived.0) as i64;
        }
        (order.key(&facts), facts.id)
    });
}
