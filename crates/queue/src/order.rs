//! Sort orders of ready messages.

use crate::Millis;
use std::{fmt, str::FromStr};

/// The orders of Sendmail's `QueueSortOrder`, and three more. In the daemon an order holds among the messages for one
/// destination; between destinations scheduling is fair. A queue run sorts everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SortOrder {
    /// As they became ready, small messages before bulk, but not for ever.
    #[default]
    Fair,
    /// As they became ready.
    None,
    /// Sendmail's: size − class × 1,800 + recipients × 30,000 + attempts × 90,000, lowest first.
    Priority,
    /// By queue id.
    Filename,
    /// By destination, which is the next hop.
    Host,
    /// The longest unchanged first: by acceptance, or by when the next attempt was due.
    Modification,
    /// By chance, so that runners seldom choose the same message.
    Random,
    /// By acceptance, oldest first.
    Time,
    /// By expiry, soonest first.
    Deadline,
    /// By the size of the content, smallest first.
    Smallest,
}

const NAMES: [(SortOrder, &str); 10] = [
    (SortOrder::Fair, "fair"),
    (SortOrder::None, "none"),
    (SortOrder::Priority, "priority"),
    (SortOrder::Filename, "filename"),
    (SortOrder::Host, "host"),
    (SortOrder::Modification, "modification"),
    (SortOrder::Random, "random"),
    (SortOrder::Time, "time"),
    (SortOrder::Deadline, "deadline"),
    (SortOrder::Smallest, "smallest"),
];

/// The fields of a message that sort orders use.
#[derive(Debug, Clone, Copy, Default)]
pub struct SortFacts {
    /// Queue id, by which [`SortOrder::Filename`] sorts.
    pub id: u64,
    /// Size of the content in bytes.
    pub size_bytes: u64,
    /// The recipients that are left at the destination.
    pub recipient_count: u32,
    /// The attempts so far.
    pub attempt_count: u16,
    /// The time of acceptance.
    pub arrived: Millis,
    /// The time since when the job is ready, or was changed.
    pub changed: Millis,
    /// A number that sorts like the destination.
    pub destination: u32,
}

/// Sendmail's default factors (op.txt, `RecipientFactor`, `RetryFactor`). The class is that of a `Precedence` header,
/// which is not read: 0.
const RECIPIENT_FACTOR: i64 = 30_000;
const RETRY_FACTOR: i64 = 90_000;

impl SortOrder {
    /// Returns all orders, with their names.
    pub fn all() -> impl Iterator<Item = (Self, &'static str)> {
        NAMES.into_iter()
    }

    /// Returns the name of the order.
    pub fn as_str(self) -> &'static str {
        NAMES.iter().find(|(order, _)| *order == self).map_or("", |(_, name)| name)
    }

    /// Returns whether jobs are kept in the order of their arrival, without a key.
    pub(crate) fn is_queue(self) -> bool {
        matches!(self, Self::Fair | Self::None | Self::Host)
    }

    /// Returns whether the key depends on recipients: how many are left, how often they were tried, when they changed.
    pub fn reads_recipients(self) -> bool {
        matches!(self, Self::Priority | Self::Modification)
    }

    /// Returns the sort key: the lowest goes first, equal ones by queue id.
    pub fn key(self, facts: &SortFacts) -> i64 {
        let clamped = |n: u64| i64::try_from(n).unwrap_or(i64::MAX / 4);
        match self {
            Self::Fair | Self::None => 0,
            Self::Priority => {
                clamped(facts.size_bytes)
                    + i64::from(facts.recipient_count) * RECIPIENT_FACTOR
                    + i64::from(facts.attempt_count) * RETRY_FACTOR
            }
            Self::Filename => clamped(facts.id),
            Self::Host => i64::from(facts.destination),
            Self::Modification => facts.changed,
            // Multiplicative hashing: successive ids are far apart.
            Self::Random => (facts.id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 1) as i64,
            // All messages have the same lifetime.
            Self::Time | Self::Deadline => facts.arrived,
            Self::Smallest => clamped(facts.size_bytes),
        }
    }
}

impl fmt::Display for SortOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for SortOrder {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // Destinations are next hops.
        let text = if text.eq_ignore_ascii_case("next-hop") { "host" } else { text };
        let found = NAMES.iter().find(|(_, name)| name.eq_ignore_ascii_case(text));
        found.map(|(order, _)| *order).ok_or_else(|| {
            let names: Vec<&str> = NAMES.iter().map(|(_, name)| *name).collect();
            format!("no sort order; there are {}", names.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(id: u64, size_bytes: u64, attempt_count: u16, arrived: Millis) -> SortFacts {
        SortFacts {
            id,
            size_bytes,
            recipient_count: 1,
            attempt_count,
            arrived,
            changed: arrived + i64::from(attempt_count),
            destination: 0,
        }
    }

    #[test]
    fn priority_prefers_what_is_small_has_few_recipients_and_was_not_tried() {
        let key = |f: SortFacts| SortOrder::Priority.key(&f);
        assert!(key(facts(1, 100, 0, 0)) < key(facts(2, 5000, 0, 0)));
        assert!(key(facts(1, 50_000, 0, 0)) < key(facts(2, 100, 1, 0)));
        let many = SortFacts { recipient_count: 3, ..facts(1, 100, 0, 0) };
        assert_eq!(key(many), 100 + 90_000);
    }

    #[test]
    fn smallest_looks_at_the_size_alone() {
        let key = |f: SortFacts| SortOrder::Smallest.key(&f);
        assert!(key(facts(2, 100, 9, 9)) < key(facts(1, 101, 0, 0)));
    }

    #[test]
    fn the_key_depends_on_recipients_where_it_is_said() {
        for (order, name) in SortOrder::all() {
            let untried = facts(5, 100, 0, 7);
            let others = [
                SortFacts { recipient_count: 2, ..untried },
                SortFacts { attempt_count: 1, ..untried },
                SortFacts { changed: 9, ..untried },
            ];
            let depends = others.iter().any(|other| order.key(other) != order.key(&untried));
            assert_eq!(order.reads_recipients(), depends, "{name}");
        }
    }

    #[test]
    fn every_order_is_named_and_read_by_its_name() {
        for (order, name) in SortOrder::all() {
            assert_eq!((order.as_str(), name.to_uppercase().parse()), (name, Ok(order)));
        }
        assert_eq!("next-hop".parse(), Ok(SortOrder::Host));
        assert!("size".parse::<SortOrder>().unwrap_err().contains("priority"));
    }

    #[test]
    fn random_is_no_order_of_ids_and_the_same_each_time() {
        let order: Vec<i64> = (0..100).map(|id| SortOrder::Random.key(&facts(id, 0, 0, 0))).collect();
        assert!(!order.is_sorted() && order.iter().all(|key| *key >= 0));
        assert_eq!(order[7], SortOrder::Random.key(&facts(7, 9, 9, 9)));
    }
}
