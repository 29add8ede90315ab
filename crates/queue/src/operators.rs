//! What operators do to messages, and to some of their recipients.

use crate::{
    DestinationId, Millis, Queue, Recipients, Taken,
    message::{Place, Unit, UnitId},
    ready::Tables,
};
use mail::QueueId;

/// What an operator decided of recipients: there is no further attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The sender gets a report.
    Returned,
    /// Nobody hears of it.
    Deleted,
}

impl Queue {
    /// Nothing of it is tried until [`Queue::release`]. False: no such message.
    pub fn hold(&mut self, id: QueueId) -> bool {
        let Some(message) = self.by_id.get(&self.messages, id) else { return false };
        self.messages[message].held = true;
        for unit in self.units_of(message).collect::<Vec<_>>() {
            self.withdraw(unit);
        }
        true
    }

    /// Undoes [`Queue::hold`]; what was held is ready now. False: no such message.
    pub fn release(&mut self, id: QueueId, now: Millis) -> bool {
        let Some(message) = self.by_id.get(&self.messages, id) else { return false };
        self.messages[message].held = false;
        self.ready_units(message, now);
        self.may_expire(message, now);
        true
    }

    /// Tries it now, whatever it waits for; held messages stay held. False: no such message.
    pub fn retry(&mut self, id: QueueId, now: Millis) -> bool {
        let Some(message) = self.by_id.get(&self.messages, id) else { return false };
        if !self.messages[message].held {
            self.ready_units(message, now);
        }
        true
    }

    fn ready_units(&mut self, message: u32, now: Millis) {
        for unit in self.units_of(message).collect::<Vec<_>>() {
            if self.units[unit].place() == Place::InFlight {
                continue;
            }
            self.withdraw(unit);
            self.put_ready(unit, now, false);
            self.revive(DestinationId(self.units[unit].destination), now);
        }
    }

    fn revive(&mut self, id: DestinationId, now: Millis) {
        self.resume(id);
        self.check(id, now);
    }

    /// Tries everything that is not held now, dead destinations too.
    pub fn flush(&mut self, now: Millis) {
        let waiting: Vec<UnitId> =
            self.units.iter().filter(|(_, unit)| unit.place() == Place::Waiting).map(|(at, _)| at).collect();
        for unit in waiting {
            self.withdraw(unit);
            self.put_ready(unit, now, false);
        }
        for at in 0..self.sites.len() {
            self.revive(DestinationId(at as u32), now);
        }
    }

    /// Takes those recipients of a message that are `meant`, by index, into the caller's hands, to be settled
    /// as the verdict says. Of those in flight it holds once they come back without a delivery or failure: see
    /// [`crate::Settlement::seized`] and [`Queue::put_back`]. `None`: no such message.
    pub fn seize(
        &mut self,
        id: QueueId,
        meant: impl Fn(u32) -> bool,
        verdict: Verdict,
        now: Millis,
    ) -> Option<Vec<Taken>> {
        let message = self.by_id.get(&self.messages, id)?;
        for unit in self.units_of(message).collect::<Vec<_>>() {
            if self.units[unit].place() == Place::InFlight {
                self.condemn(unit, &meant, verdict);
            }
        }
        Some(self.seize_units(message, &meant, now))
    }

    /// The last verdict on a recipient is the one that holds.
    fn condemn(&mut self, unit: UnitId, meant: &impl Fn(u32) -> bool, verdict: Verdict) {
        let recipients = self.units[unit].recipients.as_slice().iter().copied();
        let chosen: Vec<u32> = recipients.filter(|index| meant(*index)).collect();
        if chosen.is_empty() {
            return;
        }
        let verdicts = self.verdicts.entry(unit).or_default();
        verdicts.retain(|(index, _)| !chosen.contains(index));
        verdicts.extend(chosen.into_iter().map(|index| (index, verdict)));
    }

    /// Puts what is meant and not in flight in flight, so that the caller alone decides of it.
    pub(crate) fn seize_units(
        &mut self,
        message: u32,
        meant: &impl Fn(u32) -> bool,
        now: Millis,
    ) -> Vec<Taken> {
        let mut seized = Vec::new();
        for unit in self.units_of(message).collect::<Vec<_>>() {
            if self.units[unit].place() == Place::InFlight {
                continue;
            }
            let recipients = self.units[unit].recipients.as_slice();
            let (chosen, rest): (Vec<u32>, Vec<u32>) = recipients.iter().partition(|index| meant(**index));
            if chosen.is_empty() {
                continue;
            }
            if rest.is_empty() {
                self.withdraw(unit);
                seized.push(self.launch(unit, now));
            } else {
                self.keep(unit, &rest);
                seized.push(self.part(unit, &chosen, now));
            }
        }
        seized
    }

    /// These are all that is left of a unit that is not in flight.
    fn keep(&mut self, unit: UnitId, recipients: &[u32]) {
        let (place, site) = (self.units[unit].place(), self.units[unit].destination as usize);
        let change = |unit: &mut Unit| unit.recipients = Recipients::new(recipients);
        if place == Place::Ready {
            let mut tables = Tables { units: &mut self.units, messages: &self.messages };
            self.sites[site].ready.change(&mut tables, unit, change);
        } else {
            change(&mut self.units[unit]);
        }
    }

    /// Of recipients that come back from an attempt: those with a verdict leave `open` for units of their own.
    pub(crate) fn seize_condemned(
        &mut self,
        unit: UnitId,
        open: &mut Vec<u32>,
        now: Millis,
    ) -> Vec<(Taken, Verdict)> {
        // Hardly ever is there any.
        if self.verdicts.is_empty() {
            return Vec::new();
        }
        let Some(verdicts) = self.verdicts.remove(&unit) else { return Vec::new() };
        let mut seized = Vec::new();
        for verdict in [Verdict::Returned, Verdict::Deleted] {
            let (condemned, rest): (Vec<u32>, Vec<u32>) =
                open.iter().partition(|index| verdicts.contains(&(**index, verdict)));
            if !condemned.is_empty() {
                seized.push((self.part(unit, &condemned, now), verdict));
            }
            *open = rest;
        }
        seized
    }

    /// A new unit in flight with some of another's recipients, which the other is to lose.
    fn part(&mut self, from: UnitId, recipients: &[u32], now: Millis) -> Taken {
        let Unit { due, message, destination, .. } = self.units[from];
        let (attempt_count, destination) = (self.units[from].attempt_count(), DestinationId(destination));
        let unit = self.new_unit(message, Recipients::new(recipients), destination, attempt_count, due);
        self.launch(unit, now)
    }
}
