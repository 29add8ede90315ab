//! A destination: its ready jobs, window and health.

use crate::{
    Exchangers, Group, GroupId, Millis, QueueSettings, ready_list::ReadyList, settings::millis, shares::Share,
};
use mail::{Destination, Outcome};

/// A destination's number in the queue; stable while the process runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DestinationId(pub u32);

#[derive(Debug)]
pub(crate) struct DestinationQueue {
    pub(crate) name: Destination,
    pub(crate) group: GroupId,
    pub(crate) ready: ReadyList,
    pub(crate) ready_count: u32,
    pub(crate) in_flight_count: u32,
    pub(crate) waiting_count: u32,
    /// All jobs of the destination, held ones too.
    pub(crate) job_count: u32,
    /// The number was given to a caller that is about to queue a message for the destination.
    pub(crate) is_reserved: bool,
    /// Connections that the driver has open or is opening.
    pub(crate) connection_count: u32,
    /// Connections that wait for work.
    pub(crate) idle_count: u32,
    /// Connections that have neither leased a job nor found that no host answers.
    pub(crate) unused_connection_count: u32,
    /// Connections allowed; success widens the window, failure narrows it.
    pub(crate) window: f64,
    pub(crate) limit: u32,
    pub(crate) health: Health,
    /// A connection has failed, and none has worked since: those that are under way have yet to show whether the destination can
    /// be reached, and none is opened in the place of the failed ones.
    is_doubtful: bool,
    /// The connection scheduler lists the destination.
    pub(crate) is_scheduled: bool,
    /// The destination was removed, and its number is for another one.
    pub(crate) is_vacant: bool,
    /// The time of the destination in [`crate::Queue`]'s timers.
    pub(crate) timer: Option<Millis>,
    /// The share of the connections that its own are counted in.
    pub(crate) share: Share,
    /// Bytes that connections of the destination may still send while others wait for a connection.
    pub(crate) quantum_bytes: i64,
    /// Where the last connection to a mail exchanger went.
    pub(crate) exchangers: Option<Exchangers>,
}

#[derive(Debug)]
pub(crate) enum Health {
    Up,
    /// Not tried before `until`; down `since`.
    Suspended {
        since: Millis,
        until: Millis,
        reason: Box<Outcome>,
    },
    /// One connection is tried, as soon as there is mail to try; down `since`, for this reason.
    Probing {
        since: Millis,
        reason: Box<Outcome>,
    },
}

impl Health {
    /// Returns since when no host can be reached.
    pub(crate) fn down_since(&self) -> Option<Millis> {
        match self {
            Self::Suspended { since, .. } | Self::Probing { since, .. } => Some(*since),
            Self::Up => None,
        }
    }
}

/// Returns the connections with which a destination begins. Nobody has to be spared on this machine, and what hangs for some users
/// must leave connections to the others, who share the destination.
fn initial_window(share: Share, group: &Group, limit: u32) -> f64 {
    f64::from(if share == Share::Local { limit } else { group.initial_concurrency.clamp(1, limit) })
}

impl DestinationQueue {
    pub(crate) fn new(name: Destination, id: GroupId, settings: &QueueSettings) -> Self {
        let (group, share) = (settings.group(id), Share::of(&name));
        let limit = group.concurrency_limit.max(1);
        Self {
            share,
            name,
            group: id,
            ready: ReadyList::new(group.order),
            ready_count: 0,
            in_flight_count: 0,
            waiting_count: 0,
            job_count: 0,
            is_reserved: false,
            connection_count: 0,
            idle_count: 0,
            unused_connection_count: 0,
            window: initial_window(share, group, limit),
            limit,
            health: Health::Up,
            is_doubtful: false,
            is_scheduled: false,
            is_vacant: false,
            timer: None,
            quantum_bytes: 0,
            exchangers: None,
        }
    }

    /// Returns whether the destination can be removed: it has no job, no connection and no known trouble.
    pub(crate) fn is_unused(&self) -> bool {
        self.job_count + self.connection_count == 0
            && !self.is_reserved
            && matches!(self.health, Health::Up)
            && !self.is_scheduled
            && self.timer.is_none()
    }

    /// Returns whether there is work that may be done now.
    pub(crate) fn has_work(&self) -> bool {
        self.ready_count > 0 && !matches!(self.health, Health::Suspended { .. })
    }

    /// Returns whether another connection may be opened and has work. `oldest` is the time since when the first job is
    /// ready. `is_short`: connections are short, and one is enough for now. `Err` has the time at which to ask again.
    pub(crate) fn wants_connection(
        &self,
        settings: &QueueSettings,
        oldest: Option<Millis>,
        is_short: bool,
        now: Millis,
    ) -> Result<bool, Millis> {
        let allowed = match self.health {
            Health::Up if is_short => 1,
            Health::Up => self.window as u32,
            Health::Probing { .. } => 1,
            Health::Suspended { .. } => 0,
        };
        let allowed = if self.is_doubtful { 1 } else { allowed };
        if self.ready_count <= self.unused_connection_count
            || self.idle_count > 0
            || self.connection_count >= allowed.min(self.limit)
        {
            return Ok(false);
        }
        // One connection with a backlog in its pipeline is faster than many with one message each. A slow connection
        // must not delay the other messages.
        if self.connection_count == 0
            || self.ready_count > settings.backlog_per_connection * self.connection_count
        {
            return Ok(true);
        }
        let until = oldest.unwrap_or(now) + millis(settings.max_head_wait);
        if now >= until { Ok(true) } else { Err(until) }
    }

    /// Widens the window after a delivery, by one when a whole window of deliveries went well.
    pub(crate) fn succeeded(&mut self, settings: &QueueSettings) {
        self.is_doubtful = false;
        if matches!(self.health, Health::Probing { .. }) {
            self.health = Health::Up;
            self.window = 1.0; // slow start
        }
        let goal = f64::from(self.limit);
        let initial = f64::from(settings.group(self.group).initial_concurrency);
        let step = if self.window < initial { 1.0 } else { 1.0 / self.window };
        self.window = (self.window + step).min(goal);
    }

    /// Suspends the destination, because no host could be used. While other connections work only the window shrinks.
    /// `since`: if it is not suspended yet, it is down since then.
    pub(crate) fn failed(
        &mut self,
        settings: &QueueSettings,
        (since, now): (Millis, Millis),
        reason: Outcome,
        random: f64,
    ) {
        self.window -= 1.0 / self.window.max(1.0);
        let others_work =
            matches!(self.health, Health::Up) && self.connection_count > 1 && self.window >= 1.0;
        if others_work {
            // Those that no job was given to yet have not even greeted.
            self.is_doubtful |= self.connection_count == self.unused_connection_count + 1;
            return;
        }
        self.is_doubtful = false;
        let since = match self.health {
            Health::Up => since,
            Health::Suspended { since, .. } | Health::Probing { since, .. } => since,
        };
        let until = now + settings.probe_after((&self.name, self.group), now - since, random);
        self.window = 1.0;
        self.health = Health::Suspended { since, until, reason: Box::new(reason) };
    }

    /// Starts a probe when it is due or an operator asks for it. Held mail is not tried, and the probe waits for its release. Without
    /// any mail the destination is treated as a new one.
    pub(crate) fn resume(&mut self, settings: &QueueSettings) {
        match std::mem::replace(&mut self.health, Health::Up) {
            Health::Suspended { since, reason, .. } => {
                self.health = Health::Probing { since, reason };
                self.end_probe_without_mail(settings);
            }
            other => self.health = other,
        }
    }

    /// Ends a probe of a destination that has neither a connection nor mail.
    pub(crate) fn end_probe_without_mail(&mut self, settings: &QueueSettings) {
        if self.job_count + self.connection_count == 0 && matches!(self.health, Health::Probing { .. }) {
            self.health = Health::Up;
            let group = settings.group(self.group);
            self.window = initial_window(self.share, group, self.limit);
        }
    }
}
