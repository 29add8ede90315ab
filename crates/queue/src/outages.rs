//! Outages of destinations that go on from one start to the next.

use crate::{
    DestinationId, Millis, Queue,
    destination_queue::{DestinationQueue, Health},
};
use mail::Outcome;

/// A destination that an earlier start could not reach.
#[derive(Debug, Clone)]
pub struct Outage {
    /// As the log of the earlier start has it.
    pub destination: String,
    /// No host could be reached since then.
    pub since: Millis,
    /// When an attempt last failed.
    pub failed: Millis,
    /// Why it failed.
    pub reason: Outcome,
}

impl Queue {
    /// Continues what an earlier start has seen, after the recovery of the queue. A destination is down from the beginning if mail
    /// is left that waited for it when it was last tried. If other mail comes for it and its first attempt fails soon enough,
    /// it is down since the earlier time, too.
    pub fn continue_outages(&mut self, outages: Vec<Outage>, now: Millis) {
        if outages.is_empty() {
            return;
        }
        self.outages = outages.into_iter().map(|outage| (outage.destination.clone(), outage)).collect();
        let earlier = |one: &DestinationQueue| {
            if one.is_vacant { None } else { self.outages.get(&one.name.to_string()) }
        };
        let of_destinations: Vec<Option<&Outage>> = self.destinations.iter().map(earlier).collect();
        let mut is_down = vec![false; of_destinations.len()];
        for (_, job) in self.jobs.iter() {
            let (at, message) = (job.destination as usize, &self.messages[job.message]);
            let Some(outage) = of_destinations[at].filter(|_| !is_down[at]) else { continue };
            // Held mail is not tried, however long ago the last attempt was.
            is_down[at] = message.arrived <= outage.failed
                && (message.held || self.is_same_outage(DestinationId(job.destination), outage, now));
        }
        let down: Vec<(usize, Outage)> = of_destinations
            .into_iter()
            .enumerate()
            .filter_map(|(at, outage)| Some((at, outage.filter(|_| is_down[at])?.clone())))
            .collect();
        for (at, Outage { destination, since, reason, .. }) in down {
            self.outages.remove(&destination);
            self.destinations[at].window = 1.0;
            self.destinations[at].health = Health::Probing { since, reason: Box::new(reason) };
            self.update_connections(DestinationId(at as u32), now);
        }
    }

    /// Between two probes of one outage there is no more time: after a longer one nobody knows what was meanwhile.
    pub(crate) fn is_same_outage(&self, id: DestinationId, outage: &Outage, now: Millis) -> bool {
        let destination = self.destination_at(id);
        now - outage.failed <= self.settings.longest_wait((&destination.name, destination.group))
    }
}
