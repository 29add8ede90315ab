//! Views of the queue, for operators.

use crate::{
    CancelAs, DestinationId, GroupId, Millis, Queue,
    destination_queue::{DestinationQueue, Health},
    message::{Job, JobId, JobState, Recipients},
};
use mail::{Destination, Outcome, QueueId};

/// Places for jobs that one call of [`Queue::scan_ready`] looks at: some ten microseconds.
pub const SCAN_SLOTS: u32 = 4096;

/// What a job waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobStatus {
    /// Waits for a connection of its destination.
    Ready,
    /// The destination is suspended, because of an outcome: until a time, or while a probe is under way.
    Suspended(Option<Millis>, Outcome),
    /// It is leased to a connection.
    InFlight,
    /// Waits for its next attempt at that time.
    Waiting(Millis),
    /// Waits until an operator releases the message.
    Held,
}

/// The recipients of a message at one destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobView {
    /// Given to another job once this one is gone.
    pub id: JobId,
    /// Indexes into the envelope's recipients.
    pub recipients: Vec<u32>,
    /// Where the recipients' copies go.
    pub destination: Destination,
    /// By which other calls of the queue take it.
    pub destination_id: DestinationId,
    /// What it waits for.
    pub status: JobStatus,
    /// Attempts so far.
    pub attempt_count: u16,
    /// The time at which the job fails if it is not delivered before; none while an operator holds it.
    pub expires: Option<Millis>,
    /// The time at which the sender is warned, unless it was before.
    pub warns: Option<Millis>,
    /// Recipients in flight that an operator cancelled, with the way in which they end unless they are delivered.
    pub cancelled: Vec<(u32, CancelAs)>,
}

/// What summaries of the queue need of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScannedJob {
    /// Queue id of the message that the job belongs to.
    pub id: QueueId,
    /// The time at which the message arrived; negative before this process began.
    pub arrived: Millis,
    /// To be resolved with [`Queue::destination_name`].
    pub destination: DestinationId,
    /// Indexes into the envelope's recipients.
    pub recipients: Recipients,
}

/// What is left of a queued message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageView {
    /// The queue id by which it was looked up.
    pub id: QueueId,
    /// The time at which the message arrived; negative before this process began.
    pub arrived: Millis,
    /// Octets of header and body; 4 GiB stands for more, too.
    pub size_bytes: u32,
    /// One for each destination; finished recipients are in none.
    pub jobs: Vec<JobView>,
}

/// A destination with jobs, connections or a suspension.
#[derive(Debug, Clone, PartialEq)]
pub struct DestinationView {
    /// Next hop, TLS mode and route.
    pub name: Destination,
    /// The queue group that it is in.
    pub group: GroupId,
    /// Jobs that wait for a connection.
    pub ready_count: u32,
    /// Jobs that connections have leased.
    pub in_flight_count: u32,
    /// Jobs that wait for their next attempt.
    pub waiting_count: u32,
    /// Open, or being opened.
    pub connection_count: u32,
    /// Connections that the destination may have now; it grows and shrinks with success and failure.
    pub window: f64,
    /// The end of the suspension, or none while a probe is under way, and its cause.
    pub suspended: Option<(Option<Millis>, Outcome)>,
    /// The time since which no host can be reached.
    pub down_since: Option<Millis>,
}

impl Queue {
    /// Returns the ids of all messages, in the order of their acceptance.
    pub fn ids(&self) -> Vec<QueueId> {
        let mut ids: Vec<QueueId> = self.messages.iter().map(|(_, entry)| entry.id).collect();
        ids.sort_unstable();
        ids
    }

    /// Returns whether there is such a message.
    pub fn contains(&self, id: QueueId) -> bool {
        self.by_id.get(&self.messages, id).is_some()
    }

    /// Returns whether there is such a message, and it is held.
    pub fn is_held(&self, id: QueueId) -> bool {
        self.by_id.get(&self.messages, id).is_some_and(|message| self.messages[message].held)
    }

    /// Returns the recipients that are left of a message, in ascending order; none if there is no such message.
    pub fn recipients(&self, id: QueueId) -> Vec<u32> {
        self.by_id.get(&self.messages, id).map_or(Vec::new(), |message| self.recipients_of(message))
    }

    /// Returns what is left of a message; `None` if it is not queued.
    pub fn message(&self, id: QueueId) -> Option<MessageView> {
        let message = self.by_id.get(&self.messages, id)?;
        let entry = &self.messages[message];
        let jobs = self.jobs_of(message).map(|job| self.job_view(job)).collect();
        Some(MessageView { id, arrived: entry.arrived, size_bytes: entry.size_bytes, jobs })
    }

    fn job_view(&self, at: JobId) -> JobView {
        let job = &self.jobs[at];
        let destination_id = DestinationId(job.destination);
        let destination = self.destination_at(destination_id);
        let status = match (job.state(), &destination.health) {
            (JobState::Ready, Health::Suspended { until, reason, .. }) => {
                JobStatus::Suspended(Some(*until), (**reason).clone())
            }
            (JobState::Ready, Health::Probing { reason, .. }) => {
                JobStatus::Suspended(None, (**reason).clone())
            }
            (JobState::Ready, _) => JobStatus::Ready,
            (JobState::InFlight, _) => JobStatus::InFlight,
            (JobState::Waiting, _) => JobStatus::Waiting(job.due),
            (JobState::Held, _) => JobStatus::Held,
        };
        JobView {
            id: at,
            recipients: job.recipients.as_slice().to_vec(),
            destination: destination.name.clone(),
            destination_id,
            status,
            attempt_count: job.attempt_count(),
            expires: self.expiry_of(at),
            warns: self.warning_of(job.message),
            cancelled: self.cancellations.get(&at).cloned().unwrap_or_default(),
        }
    }

    /// Returns the destinations that are meant and have mail, each with the number of its jobs.
    pub fn queued_for(&self, is_meant: impl Fn(&Destination) -> bool) -> Vec<(Destination, u64)> {
        let has_mail = |one: &&DestinationQueue| one.job_count > 0 && is_meant(&one.name);
        let meant = self.destinations.iter().filter(has_mail);
        meant.map(|one| (one.name.clone(), u64::from(one.job_count))).collect()
    }

    /// Returns until when a destination is suspended, and why.
    pub fn suspension(&self, id: DestinationId) -> Option<(Millis, &Outcome)> {
        match &self.destination_at(id).health {
            Health::Suspended { until, reason, .. } => Some((*until, reason)),
            Health::Up | Health::Probing { .. } => None,
        }
    }

    /// Returns why no host of a destination could be reached, while it is suspended or probed.
    pub fn down_reason(&self, id: DestinationId) -> Option<&Outcome> {
        match &self.destination_at(id).health {
            Health::Suspended { reason, .. } | Health::Probing { reason, .. } => Some(reason),
            Health::Up => None,
        }
    }

    /// Returns since when a destination is suspended or probed.
    pub fn down_since(&self, id: DestinationId) -> Option<Millis> {
        self.destination_at(id).health.down_since()
    }

    /// Returns the number of jobs of a destination, held ones and those in flight included.
    pub fn job_count(&self, id: DestinationId) -> u32 {
        self.destination_at(id).job_count
    }

    /// Returns the jobs in the next [`SCAN_SLOTS`] places for jobs, and the place to go on from; none at the end. A caller
    /// that scans all places in turn sees each job that was queued all the time.
    pub fn scan_jobs(&self, from: u32) -> (Vec<ScannedJob>, Option<u32>) {
        let end = from.saturating_add(SCAN_SLOTS);
        let scanned = |job: &Job| ScannedJob {
            id: self.messages[job.message].id,
            arrived: self.messages[job.message].arrived,
            destination: DestinationId(job.destination),
            recipients: job.recipients.clone(),
        };
        (self.jobs.range(from, end).map(scanned).collect(), (end < self.jobs.slot_count()).then_some(end))
    }

    /// Returns whether nothing bad is known of a destination.
    pub fn is_up(&self, id: DestinationId) -> bool {
        matches!(self.destination_at(id).health, Health::Up)
    }

    /// Returns the ready jobs of a destination among the next [`SCAN_SLOTS`] places for jobs, and the place to go on from; none
    /// at the end. A caller that scans all places in turn sees each job that was ready all the time.
    pub fn scan_ready(&self, id: DestinationId, from: u32) -> (Vec<(QueueId, Recipients)>, Option<u32>) {
        let end = from.saturating_add(SCAN_SLOTS);
        let is_meant = |job: &&Job| job.destination == id.0 && job.state() == JobState::Ready;
        let jobs = self.jobs.range(from, end).filter(is_meant);
        let found = jobs.map(|job| (self.messages[job.message].id, job.recipients.clone())).collect();
        (found, (end < self.jobs.slot_count()).then_some(end))
    }

    /// Returns whether it gets no attempts but a probe.
    pub fn is_suspended(&self, id: DestinationId) -> bool {
        self.suspension(id).is_some()
    }

    /// Returns the number of jobs that are in flight, or would be if there were connections.
    pub fn busy_count(&self) -> u64 {
        let busy = |destination: &DestinationQueue| {
            let ready = if matches!(destination.health, Health::Suspended { .. }) {
                0
            } else {
                destination.ready_count
            };
            u64::from(ready) + u64::from(destination.in_flight_count)
        };
        self.destinations.iter().map(busy).sum()
    }

    /// Returns every destination with jobs, connections or a suspension.
    pub fn destinations(&self) -> Vec<DestinationView> {
        self.destinations
            .iter()
            .filter(|destination| !destination.is_unused())
            .map(|destination| DestinationView {
                name: destination.name.clone(),
                group: destination.group,
                ready_count: destination.ready_count,
                in_flight_count: destination.in_flight_count,
                waiting_count: destination.waiting_count,
                connection_count: destination.connection_count,
                window: destination.window,
                suspended: match &destination.health {
                    Health::Suspended { until, reason, .. } => Some((Some(*until), (**reason).clone())),
                    Health::Probing { reason, .. } => Some((None, (**reason).clone())),
                    Health::Up => None,
                },
                down_since: destination.health.down_since(),
            })
            .collect()
    }
}
