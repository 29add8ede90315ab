//! What clients were promised and what came of it. It is no part of what is tested: no crash harms it.

use crate::seed::Rng;
use bytes::Bytes;
use mail::{Message, QueueId};
use queue::Millis;
use spool::Recovered;
use std::collections::{BTreeMap, BTreeSet};

/// With more there are lists with members at hundreds of them.
pub(super) const FEW_DESTINATIONS: u64 = 5;

const HOUR: Millis = 3_600_000;

/// A recipient: the number of its mail, and its place in the envelope.
pub(super) type Who = (u64, u32);

/// One mail a client has to send.
#[derive(Debug, Clone)]
pub(super) struct Mail {
    pub(super) recipient_count: u32,
    pub(super) content: Bytes,
}

#[derive(Debug, Default)]
pub(super) struct Truth {
    pub(super) mails: BTreeMap<u64, Mail>,
    /// Mails whose client read 250.
    pub(super) acknowledged: BTreeSet<u64>,
    /// How often each was handed to the spool: a client that heard nothing sends it again.
    pub(super) copies: BTreeMap<u64, u32>,
    pub(super) arrived: BTreeMap<Who, u32>,
    /// Arrivals that may repeat: the next hop's 250 was lost, or a crash came before its outcome was durable.
    pub(super) excused: BTreeMap<Who, u32>,
    pub(super) reported: BTreeSet<Who>,
    /// Thrown away by an operator.
    pub(super) deleted: BTreeSet<Who>,
    /// Which mail a message is.
    pub(super) ids: BTreeMap<QueueId, u64>,
    /// Whom a report of ours speaks of.
    pub(super) reports: BTreeMap<QueueId, Vec<Who>>,
    /// Recipients of messages whose outcome is durable: they must not be tried again.
    pub(super) concluded: BTreeSet<(QueueId, u32)>,
    /// Destinations there are.
    pub(super) destinations: u64,
    /// When each message was accepted, by a clock that is never wrong.
    pub(super) accepted: BTreeMap<QueueId, Millis>,
    /// The wall clock was wrong by more than an hour.
    pub(super) was_far_off: bool,
    /// Broken promises, seen in passing.
    pub(super) violations: Vec<String>,
}

/// `s7@src.test`: the sender of mail 7.
pub(super) fn sender(n: u64) -> String {
    format!("s{n}@src.test")
}

/// `m7r2@d1.test`: the recipient 2 of mail 7, at one of so many destinations.
pub(super) fn recipient(who: Who, destinations: u64) -> String {
    format!("m{}r{}@{}", who.0, who.1, domain(who, destinations))
}

/// Where the mail of a recipient has to arrive.
fn domain((n, k): Who, destinations: u64) -> String {
    let spread = if destinations > FEW_DESTINATIONS {
        Rng::new(n << 32 | u64::from(k)).bits()
    } else {
        n * 7 + u64::from(k) * 3
    };
    format!("d{}.test", spread % destinations)
}

/// Who it is, from an address.
pub(super) fn who(address: &str) -> Option<Who> {
    let (n, k) = address.strip_prefix('m')?.split('@').next()?.split_once('r')?;
    Some((n.parse().ok()?, k.parse().ok()?))
}

/// The next hop has no such user, now and for ever.
pub(super) fn is_unknown((n, k): Who) -> bool {
    (n * 13 + u64::from(k) * 5) % 11 == 0
}

/// What a report says of whom.
pub(super) fn report(affected: &[Who]) -> String {
    affected.iter().map(|(n, k)| format!("failed m{n}r{k}@\r\n")).collect()
}

/// Whom a report speaks of.
pub(super) fn reported(content: &str) -> impl Iterator<Item = Who> + '_ {
    content.lines().filter_map(|line| who(line.strip_prefix("failed ")?))
}

/// A recipient of a message that is not one of our reports.
pub(super) fn who_of(message: &Message, index: u32) -> Option<Who> {
    who(message.envelope.recipients[index as usize].path.as_str())
}

impl Truth {
    /// What a restart found: who is to be tried again may have had it already, unless that was durable.
    pub(super) fn recovered(&mut self, found: &Recovered) {
        for (index, past) in (0..).zip(&found.recipients) {
            let Some(who) = who_of(&found.message, index).filter(|_| !past.settled) else { continue };
            if self.concluded.contains(&(found.message.id, index)) {
                self.violations.push(format!("{who:?} was concluded for good, and is tried again"));
            }
            if self.arrived.contains_key(&who) {
                self.excuse(who);
            }
        }
    }

    /// At the hosts of a domain.
    pub(super) fn arrived(&mut self, who: Who, at: &str, content: &[u8]) {
        if at != domain(who, self.destinations) {
            self.violations.push(format!("{who:?} arrived at the hosts of {at}"));
        }
        *self.arrived.entry(who).or_default() += 1;
        let sent = self.mails.get(&who.0);
        if sent.is_none_or(|mail| mail.content != content) {
            self.violations.push(format!("{who:?} arrived otherwise than it was sent"));
        }
    }

    /// A message is given up because its time is over. An hour's error is forgiven, once in each direction.
    pub(super) fn expired(&mut self, id: QueueId, now: Millis, expire: Millis) {
        let age = self.accepted.get(&id).map_or(Millis::MAX, |accepted| now - accepted);
        if !self.was_far_off && age < expire - 2 * HOUR {
            self.violations.push(format!("{id} expired at an age of {age} ms"));
        }
    }

    fn excuse(&mut self, who: Who) {
        *self.excused.entry(who).or_default() += 1;
    }

    /// Those of a message that arrived without our hearing of it.
    pub(super) fn excuse_all(&mut self, id: QueueId, indexes: &[u32]) {
        let Some(n) = self.ids.get(&id).copied() else { return };
        for who in indexes.iter().map(|k| (n, *k)) {
            if self.arrived.contains_key(&who) {
                self.excuse(who);
            }
        }
    }

    /// Nothing came more often than it may.
    pub(super) fn judge_repeats(&self) -> Result<(), String> {
        for (who, count) in &self.arrived {
            let copies = self.copies.get(&who.0).copied().unwrap_or(0);
            let excused = self.excused.get(who).copied().unwrap_or(0);
            if *count > copies + excused {
                return Err(format!("{who:?} arrived {count} times: {copies} copies, {excused} excused"));
            }
        }
        Ok(())
    }

    /// Everything that was promised has come about, or waits in what is queued.
    pub(super) fn judge(&self, queued: &BTreeSet<Who>) -> Result<(), String> {
        if let Some(what) = self.violations.first() {
            return Err(what.clone());
        }
        for n in &self.acknowledged {
            for who in (0..self.mails[n].recipient_count).map(|k| (*n, k)) {
                let is_settled = self.arrived.contains_key(&who)
                    || self.reported.contains(&who)
                    || self.deleted.contains(&who);
                if !is_settled && !queued.contains(&who) {
                    return Err(format!(
                        "{who:?} was acknowledged, and is neither delivered, reported nor queued"
                    ));
                }
            }
        }
        Ok(())
    }
}
