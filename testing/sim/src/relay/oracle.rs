//! The promises to clients and their results. The oracle is no part of the tested code: no crash harms it.

use super::{attempt::Attempt, checks::SharedJudgments, front::HOME};
use crate::{expected_totals::ExpectedTotals, seed::Rng};
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

/// What a client has to send until each recipient has a last word.
#[derive(Debug, Clone)]
pub(super) struct Mail {
    /// Recipients whose sender has no last word yet: they are given again.
    pub(super) open: BTreeSet<u32>,
    pub(super) content: Bytes,
}

#[derive(Debug, Default)]
pub(super) struct Oracle {
    pub(super) mails: BTreeMap<u64, Mail>,
    /// By number of the transaction.
    pub(super) attempts: BTreeMap<u64, Attempt>,
    /// What the checks decided of them.
    pub(super) judgments: SharedJudgments,
    /// Recipients of messages for which a client read 250.
    pub(super) acknowledged: BTreeSet<Who>,
    /// Messages for which a client read 250.
    pub(super) acknowledged_count: u64,
    /// Messages for which a client read 250, and that a check discarded.
    pub(super) discarded_count: u64,
    /// Recipients for which a client read a refusal.
    pub(super) refused_count: u64,
    /// Reloads so far.
    pub(super) reload_count: u64,
    /// Messages that were stored after their clients were told to try again.
    pub(super) late_count: u64,
    /// Number of times that each was handed to the spool: a client that heard nothing sends it again.
    pub(super) copies: BTreeMap<Who, u32>,
    pub(super) arrived: BTreeMap<Who, u32>,
    /// Arrivals that may repeat: the next hop's 250 was lost, or a crash came before its outcome was durable.
    pub(super) excused: BTreeMap<Who, u32>,
    pub(super) reported: BTreeSet<Who>,
    /// Recipients whose delay was reported.
    pub(super) warned: BTreeSet<Who>,
    /// Recipients whose success was reported.
    pub(super) relayed: BTreeSet<Who>,
    /// Requests of operators to hold or release messages, in their order: the request, whether it holds, whether it was
    /// answered.
    pub(super) changes: BTreeMap<QueueId, Vec<(u64, bool, bool)>>,
    /// Thrown away by an operator.
    pub(super) deleted: BTreeSet<Who>,
    /// The recipients of each message, in their order.
    pub(super) ids: BTreeMap<QueueId, Vec<Who>>,
    /// Recipients that a report of ours speaks of.
    pub(super) reports: BTreeMap<QueueId, Vec<Who>>,
    /// Recipients of messages whose outcome is durable: they must not be tried again.
    pub(super) concluded: BTreeSet<(QueueId, u32)>,
    /// Destinations that the routes have.
    pub(super) destinations: u64,
    /// The time at which each message was accepted, by a clock that is never wrong.
    pub(super) accepted: BTreeMap<QueueId, Millis>,
    /// The wall clock was wrong by more than an hour.
    pub(super) was_far_off: bool,
    /// Between which totals a recovery has to be.
    pub(super) expected: ExpectedTotals,
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

/// The domain of a recipient as its sender gives it.
fn domain((n, k): Who, destinations: u64) -> String {
    if is_strangers(n) && k.is_multiple_of(2) {
        return HOME.to_owned();
    }
    let spread = if destinations > FEW_DESTINATIONS {
        Rng::new(n << 32 | u64::from(k)).bits()
    } else {
        n * 7 + u64::from(k) * 3
    };
    format!("d{}.test", spread % destinations)
}

/// Mail of clients that may send to the local domain only.
pub(super) fn is_strangers(n: u64) -> bool {
    n % 8 == 5
}

/// Parses the numbers of message and recipient in an address.
pub(super) fn who(address: &str) -> Option<Who> {
    let (n, k) = address.strip_prefix('m')?.split('@').next()?.split_once('r')?;
    Some((n.parse().ok()?, k.parse().ok()?))
}

/// The next hop has no such user, now and for ever.
pub(super) fn is_unknown((n, k): Who) -> bool {
    (n * 13 + u64::from(k) * 5) % 11 == 0
}

/// The recipients of which a report tells this (RFC 3464 §2.3).
pub(super) fn reported(content: &str, action: &str) -> Vec<Who> {
    let (mut all, mut last) = (Vec::new(), None);
    for line in content.lines() {
        if let Some(address) = line.strip_prefix("Final-Recipient: rfc822; ") {
            last = who(address);
        } else if line.strip_prefix("Action: ") == Some(action) {
            all.extend(last.take());
        }
    }
    all
}

/// A recipient of a message that is not one of our reports.
pub(super) fn who_of(message: &Message, index: u32) -> Option<Who> {
    who(message.envelope.recipients[index as usize].path.as_str())
}

impl Oracle {
    /// Notes a message that a restart found: a recipient that is to be tried again may have had it already, unless
    /// that was
    /// durable.
    pub(super) fn recovered(&mut self, found: &Recovered, was_clean: bool) {
        self.check_held(found);
        self.check_stored(&found.message);
        for (index, past) in (0..).zip(&found.recipients) {
            let Some(who) = who_of(&found.message, index).filter(|_| !past.settled) else { continue };
            if self.concluded.contains(&(found.message.id, index)) {
                self.violations.push(format!("{who:?} was concluded for good, and is tried again"));
            }
            if was_clean && self.arrived.contains_key(&who) && !self.excused.contains_key(&who) {
                let has_copies = self.copies.get(&who).is_some_and(|copies| *copies > 1);
                if !has_copies {
                    self.violations.push(format!("{who:?} arrived before a clean stop, and is tried again"));
                }
            }
            if self.arrived.contains_key(&who) {
                self.excuse(who);
            }
        }
    }

    /// A message is held according to the last command that was answered, or to a later one.
    fn check_held(&mut self, found: &Recovered) {
        let changes = self.changes.entry(found.message.id).or_default();
        let is_held = found.held.is_some();
        let told = changes.iter().rposition(|change| change.2);
        let before = told.is_some_and(|at| changes[at].1);
        let later = &changes[told.map_or(0, |at| at + 1)..];
        if is_held != before && later.iter().all(|change| change.1 != is_held) {
            self.violations.push(format!("{}: held is {is_held} after {changes:?}", found.message.id));
        }
        *changes = vec![(0, is_held, true)];
    }

    /// Forgets the message that had this id before; it has ended.
    pub(super) fn forget(&mut self, id: QueueId) {
        self.ids.remove(&id);
        self.reports.remove(&id);
        self.accepted.remove(&id);
        self.changes.remove(&id);
        let at = (id, 0)..=(id, u32::MAX);
        let old: Vec<_> = self.concluded.range(at).copied().collect();
        old.iter().for_each(|one| _ = self.concluded.remove(one));
    }

    /// Notes that the message has to be held from its acceptance on.
    pub(super) fn hold_from_start(&mut self, id: QueueId) {
        self.changes.insert(id, vec![(0, true, true)]);
    }

    /// A message that is held, and that no operator wanted released, is not tried.
    pub(super) fn check_may_be_tried(&mut self, id: QueueId) {
        if self.changes.get(&id).is_some_and(|all| !all.is_empty() && all.iter().all(|change| change.1)) {
            self.violations.push(format!("{id} is held, and is tried"));
        }
    }

    pub(super) fn change_wanted(&mut self, id: QueueId, request: u64, holds: bool) {
        self.changes.entry(id).or_default().push((request, holds, false));
    }

    pub(super) fn change_answered(&mut self, request: u64) {
        for change in self.changes.values_mut().flatten().filter(|change| change.0 == request) {
            change.2 = true;
        }
    }

    /// A report of ours cannot be delivered: no report is sent (RFC 5321 §4.5.5).
    pub(super) fn report_lost(&mut self, id: QueueId) {
        self.deleted.extend(self.reports.get(&id).into_iter().flatten());
    }

    /// At the hosts of a domain; none: at a host for all.
    pub(super) fn arrived(&mut self, who: Who, from: &str, at: Option<&str>, content: &[u8]) {
        *self.arrived.entry(who).or_default() += 1;
        self.check_arrival(who, from, at, content);
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

    /// Excuses all recipients of a message that arrived although no reply was seen.
    pub(super) fn excuse_all(&mut self, id: QueueId, indexes: &[u32]) {
        let Some(all) = self.ids.get(&id).cloned() else { return };
        for who in indexes.iter().map(|index| all[*index as usize]) {
            if self.arrived.contains_key(&who) {
                self.excuse(who);
            }
        }
    }

    /// Nothing came more often than it may.
    pub(super) fn check_repeats(&self) -> Result<(), String> {
        for (who, count) in &self.arrived {
            let copies = self.copies.get(who).copied().unwrap_or(0);
            let excused = self.excused.get(who).copied().unwrap_or(0);
            if *count > copies + excused {
                return Err(format!("{who:?} arrived {count} times: {copies} copies, {excused} excused"));
            }
        }
        Ok(())
    }

    /// Everything that was promised has come about, or waits in what is queued.
    pub(super) fn check(&self, queued: &BTreeSet<Who>) -> Result<(), String> {
        if let Some(what) = self.violations.first() {
            return Err(what.clone());
        }
        if let Some(what) = self.judgments.with(|judgments| judgments.violations.first().cloned()) {
            return Err(what);
        }
        for who in &self.acknowledged {
            let is_settled =
                self.arrived.contains_key(who) || self.reported.contains(who) || self.deleted.contains(who);
            if !is_settled && !queued.contains(who) {
                return Err(format!(
                    "{who:?} was acknowledged, and is neither delivered, reported nor queued"
                ));
            }
        }
        Ok(())
    }
}
