//! The queue as operators see it.

use crate::{
    DestinationId, GroupId, Millis, Queue,
    destination::{Health, Site},
    message::Place,
};
use mail::{Destination, Outcome, QueueId};

/// Where a unit is, and until when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Status {
    /// Waits for a connection of its destination.
    Ready,
    /// Its destination is suspended until then, because of this.
    Suspended(Millis, Outcome),
    /// An attempt is under way.
    InFlight,
    /// Waits for its next attempt at that time.
    Waiting(Millis),
    /// An operator holds it.
    Held,
}

/// The recipients of a message at one destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitView {
    /// Indexes into the envelope's recipients.
    pub recipients: Vec<u32>,
    /// Where they go.
    pub destination: Destination,
    /// The destination's number.
    pub site: DestinationId,
    /// Where they are.
    pub status: Status,
    /// Attempts so far.
    pub attempt_count: u16,
}

/// A queued message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageView {
    /// Its id.
    pub id: QueueId,
    /// When it arrived; negative before this process began.
    pub arrived: Millis,
    /// Size of its content (saturated at 4 GiB).
    pub size_bytes: u32,
    /// Its units.
    pub units: Vec<UnitView>,
}

/// A destination with work or trouble.
#[derive(Debug, Clone, PartialEq)]
pub struct DestinationView {
    /// Its name.
    pub name: Destination,
    /// The group it is in.
    pub group: GroupId,
    /// Units that wait for a connection.
    pub ready_count: u32,
    /// Units under way.
    pub in_flight_count: u32,
    /// Units that wait for their time.
    pub waiting_count: u32,
    /// Open connections.
    pub connection_count: u32,
    /// Connections allowed now.
    pub window: f64,
    /// Suspended until then, because of this.
    pub suspended: Option<(Millis, Outcome)>,
}

impl Queue {
    /// The ids of all messages, in the order of their acceptance.
    pub fn ids(&self) -> Vec<QueueId> {
        let mut ids: Vec<QueueId> = self.messages.iter().map(|(_, entry)| entry.id).collect();
        ids.sort_unstable();
        ids
    }

    /// Is there such a message?
    pub fn contains(&self, id: QueueId) -> bool {
        self.by_id.get(&self.messages, id).is_some()
    }

    /// The recipients that are left of a message, in ascending order; none if there is no such message.
    pub fn recipients(&self, id: QueueId) -> Vec<u32> {
        self.by_id.get(&self.messages, id).map_or(Vec::new(), |message| self.recipients_of(message))
    }

    /// One message.
    pub fn message(&self, id: QueueId) -> Option<MessageView> {
        let message = self.by_id.get(&self.messages, id)?;
        let entry = &self.messages[message];
        let units = self.units_of(message).map(|unit| self.unit_view(unit)).collect();
        Some(MessageView { id, arrived: entry.arrived, size_bytes: entry.size_bytes, units })
    }

    fn unit_view(&self, unit: u32) -> UnitView {
        let unit = &self.units[unit];
        let id = DestinationId(unit.destination);
        let site = self.site(id);
        let status = match (unit.place(), &site.health) {
            (Place::Ready, Health::Suspended { until, reason, .. }) => {
                Status::Suspended(*until, (**reason).clone())
            }
            (Place::Ready, _) => Status::Ready,
            (Place::InFlight, _) => Status::InFlight,
            (Place::Waiting, _) => Status::Waiting(unit.due),
            (Place::Held, _) => Status::Held,
        };
        UnitView {
            recipients: unit.recipients.as_slice().to_vec(),
            destination: site.name.clone(),
            site: id,
            status,
            attempt_count: unit.attempt_count(),
        }
    }

    /// Why a destination is suspended, if it is.
    pub fn suspension(&self, id: DestinationId) -> Option<&Outcome> {
        match &self.site(id).health {
            Health::Suspended { reason, .. } => Some(reason),
            Health::Up | Health::Probing { .. } => None,
        }
    }

    /// Not to be tried now?
    pub fn is_suspended(&self, id: DestinationId) -> bool {
        matches!(self.site(id).health, Health::Suspended { .. })
    }

    /// Units that are under way, or would be if there were connections.
    pub fn busy_count(&self) -> u64 {
        let busy = |site: &Site| {
            let ready = if matches!(site.health, Health::Suspended { .. }) { 0 } else { site.ready_count };
            u64::from(ready) + u64::from(site.in_flight_count)
        };
        self.sites.iter().map(busy).sum()
    }

    /// All destinations with something to say of.
    pub fn destinations(&self) -> Vec<DestinationView> {
        self.sites
            .iter()
            .filter(|site| !site.is_unused())
            .map(|site| DestinationView {
                name: site.name.clone(),
                group: site.group,
                ready_count: site.ready_count,
                in_flight_count: site.in_flight_count,
                waiting_count: site.waiting_count,
                connection_count: site.connection_count,
                window: site.window,
                suspended: match &site.health {
                    Health::Suspended { until, reason, .. } => Some((*until, (**reason).clone())),
                    Health::Up | Health::Probing { .. } => None,
                },
            })
            .collect()
    }
}
