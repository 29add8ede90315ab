//! The queue manager: messages, their jobs, and the states of jobs.

use crate::{
    DestinationId, GroupId, Millis, Outage, QueueSettings, Recipients,
    age_index::AgeIndex,
    connections::Connections,
    destination_queue::{DestinationQueue, Health},
    id_index::IdIndex,
    list::NONE,
    message::{Job, JobId, JobState, NextDeadline, PackedState, QueuedMessage},
    operators::CancelAs,
    ready_list::{ReadyList, Tables},
    settings::millis,
    slab::Slab,
    timer_wheel::TimerWheel,
    timetable::{Schedule, Timetable},
};
use mail::{Destination, Disposition, QueueId};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// A recipient of a message that enters the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArrivingRecipient {
    /// Its position in the envelope.
    pub index: u32,
    /// Number of the destination to which its copy goes.
    pub destination: DestinationId,
    /// Attempts that an earlier process has made.
    pub attempt_count: u16,
    /// When to try; none: now.
    pub due: Option<Millis>,
}

impl ArrivingRecipient {
    /// A recipient that was never tried, and can be now.
    pub fn new(index: u32, destination: DestinationId) -> Self {
        Self { index, destination, attempt_count: 0, due: None }
    }

    /// What recipients of one job have in common.
    fn job_key(&self) -> (DestinationId, u16, Option<Millis>) {
        (self.destination, self.attempt_count, self.due)
    }
}

/// A durable message as it enters the queue.
#[derive(Debug)]
pub struct Arrival<'a> {
    /// The queue id; never used twice.
    pub id: QueueId,
    /// The time of acceptance; negative if the message was accepted before this process began.
    pub arrived: Millis,
    /// Size of its content in bytes.
    pub size_bytes: u64,
    /// An operator holds the message: it is not tried until it is released.
    pub held: bool,
    /// Its recipients, in any order.
    pub recipients: &'a [ArrivingRecipient],
    /// The scheduling that the sender asked for; most messages have none.
    pub schedule: Option<&'a Schedule>,
}

/// Work for a connection: a job that is now in flight.
#[derive(Debug, PartialEq, Eq)]
pub struct Lease {
    /// The job, for [`Queue::complete`] or [`Queue::return_lease`].
    pub job: JobId,
    /// Queue id of the message to deliver.
    pub id: QueueId,
    /// The recipients to deliver to, by position in the envelope.
    pub recipients: Recipients,
    /// Time in which the job was ready or waiting, in milliseconds.
    pub queued_ms: u64,
    /// Attempts that have ended, this one not counted.
    pub attempt_count: u16,
}

/// The consequences of the outcomes of an attempt.
#[derive(Debug, PartialEq, Eq, Default)]
pub struct Completion {
    /// The message has no job left: its space may be freed.
    pub last: bool,
    /// The time at which the deferred recipients are tried again.
    pub retry_at: Option<Millis>,
    /// Deferred recipients that an operator cancelled. They are still in flight, and the caller completes them.
    pub cancelled: Vec<(Lease, CancelAs)>,
    /// The destination, if this attempt was its probe, and a host answered.
    pub resumed: Option<Destination>,
}

/// All messages and all destinations. One writer; the time comes in with each call.
#[derive(Debug)]
pub struct Queue {
    pub(crate) settings: QueueSettings,
    pub(crate) messages: Slab<QueuedMessage>,
    pub(crate) by_id: IdIndex,
    /// Messages that an operator or a rule holds.
    pub(crate) held_count: usize,
    pub(crate) jobs: Slab<Job>,
    pub(crate) destinations: Vec<DestinationQueue>,
    /// Numbers by name, for each group: the group's number is the index.
    pub(crate) by_name: Vec<HashMap<Destination, DestinationId>>,
    /// Numbers of removed destinations, for new ones.
    pub(crate) vacant: Vec<DestinationId>,
    /// Domains that have taken mail since they last failed: their destinations are no newcomers when they are used again.
    pub(crate) proven: HashSet<Arc<str>>,
    /// Numbers that were given out since a message was last queued.
    pub(crate) reserved: Vec<DestinationId>,
    /// Mail that is older has some time after the start before it expires.
    pub(crate) started_at: Millis,
    pub(crate) wheel: TimerWheel,
    pub(crate) ages: AgeIndex,
    pub(crate) timetable: Timetable,
    /// Jobs whose route has a lifetime of its own, by its end.
    pub(crate) own_lifetimes: BTreeSet<(Millis, JobId)>,
    /// Recipients in flight that operators cancelled.
    pub(crate) cancellations: BTreeMap<JobId, Vec<(u32, CancelAs)>>,
    pub(crate) connections: Connections,
    /// Times at which a destination's connections are decided anew.
    pub(crate) timers: BTreeSet<(Millis, DestinationId)>,
    random: u64,
    due: Vec<JobId>,
    /// Outages that an earlier start has seen, by destination. Each ends or goes on at the first attempt.
    pub(crate) outages: HashMap<String, Outage>,
    /// The earliest time set since the last [`Queue::wake_hint`].
    hint: Option<Millis>,
}

impl Queue {
    /// An empty queue at `now`; `seed` makes its jitter repeatable.
    pub fn new(settings: QueueSettings, seed: u64, now: Millis) -> Self {
        Self {
            settings,
            messages: Slab::default(),
            held_count: 0,
            by_id: IdIndex::default(),
            jobs: Slab::default(),
            destinations: Vec::new(),
            by_name: Vec::new(),
            vacant: Vec::new(),
            proven: HashSet::new(),
            reserved: Vec::new(),
            started_at: now,
            wheel: TimerWheel::new(now),
            ages: AgeIndex::default(),
            timetable: Timetable::default(),
            own_lifetimes: BTreeSet::new(),
            cancellations: BTreeMap::new(),
            connections: Connections::default(),
            timers: BTreeSet::new(),
            random: seed | 1,
            due: Vec::new(),
            outages: HashMap::new(),
            hint: None,
        }
    }

    /// Returns the number of messages.
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// Returns the number of messages that are held.
    pub fn held_count(&self) -> usize {
        self.held_count
    }

    /// Returns whether the queue has no message.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Replaces the settings; what is ready is sorted anew.
    pub fn set_settings(&mut self, settings: QueueSettings) {
        for destination in &mut self.destinations {
            let group = settings.group(destination.group);
            destination.limit = group.concurrency_limit.max(1);
            destination.window = destination.window.min(f64::from(destination.limit));
            let mut tables =
                Tables { jobs: &mut self.jobs, messages: &self.messages, timetable: &self.timetable };
            let mut ready = ReadyList::new(group.order);
            while let Some(job) = destination.ready.pop(&mut tables, u8::MAX) {
                ready.push(&mut tables, job, false);
            }
            destination.ready = ready;
        }
        self.settings = settings;
        self.list_own_lifetimes();
        if self.settings.delay_warning.is_zero() {
            self.ages.skip_warnings(&mut self.messages);
        }
        self.connections.scheduler.resume_all_deferred(&self.settings);
        let resumed = self.connections.exchangers.resume_all();
        self.list_again(&resumed);
    }

    /// Returns the number of a destination in the first group: see [`Self::destination_in`].
    pub fn destination(&mut self, name: &Destination) -> DestinationId {
        self.destination_in(name, GroupId::default())
    }

    /// Returns the number of a destination in a group. The number stands for the destination until the end of the next
    /// [`Queue::insert`] or [`Queue::reroute`], and as long as there are jobs or connections of the destination.
    pub fn destination_in(&mut self, name: &Destination, group: GroupId) -> DestinationId {
        let known = self.by_name.get(usize::from(group.0)).and_then(|names| names.get(name));
        let id = match known {
            Some(id) => *id,
            None => self.add_destination(name, group),
        };
        let destination = self.destination_at_mut(id);
        if !std::mem::replace(&mut destination.is_reserved, true) {
            self.reserved.push(id);
        }
        id
    }

    /// Returns the name of a destination.
    pub fn destination_name(&self, id: DestinationId) -> &Destination {
        &self.destination_at(id).name
    }

    pub(crate) fn destination_at(&self, id: DestinationId) -> &DestinationQueue {
        &self.destinations[id.0 as usize]
    }

    pub(crate) fn destination_at_mut(&mut self, id: DestinationId) -> &mut DestinationQueue {
        &mut self.destinations[id.0 as usize]
    }

    pub(crate) fn next_random_u64(&mut self) -> u64 {
        // xorshift64: jitter needs no more.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    pub(crate) fn next_random(&mut self) -> f64 {
        (self.next_random_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Queues a message. Returns false if a message with its id is queued already.
    pub fn insert(&mut self, arrival: &Arrival<'_>, now: Millis) -> bool {
        let is_new = self.insert_message(arrival, now);
        self.release_reservations();
        is_new
    }

    fn insert_message(&mut self, arrival: &Arrival<'_>, now: Millis) -> bool {
        if self.by_id.get(&self.messages, arrival.id).is_some() {
            return false;
        }
        let mut entry = QueuedMessage::new(arrival.id, arrival.arrived, arrival.size_bytes);
        entry.held = arrival.held;
        self.held_count += usize::from(arrival.held);
        entry.is_bulk = arrival.size_bytes > self.settings.small_bytes;
        let message = self.messages.insert(entry);
        self.by_id.insert(&self.messages, message);
        if let Some(schedule) = arrival.schedule {
            self.note_schedule(message, schedule, now);
        }
        self.list_by_age(message, now);
        match arrival.recipients {
            [one] => self.add_job(message, Recipients::One(one.index), *one, arrival, now),
            several => self.add_jobs(message, several, arrival, now),
        }
        true
    }

    /// Notes the scheduling of a message that has no job yet.
    fn note_schedule(&mut self, message: u32, schedule: &Schedule, now: Millis) {
        let entry = &mut self.messages[message];
        entry.priority = schedule.priority;
        entry.is_ranked = schedule.priority != 0 || schedule.deadline.is_some();
        entry.arrived = schedule.release.map_or(entry.arrived, |release| release.max(entry.arrived));
        if let Some(deadline) = schedule.deadline {
            // An earlier process has told of what was over before this one.
            let is_told = !deadline.returns && deadline.at <= now && entry.arrived < self.started_at;
            self.timetable.add_deadline(message, deadline, &schedule.without_deadline, is_told);
            self.hint_at(deadline.at);
        }
    }

    /// Lists a message for its delay warning or expiry; a message that is not released yet for its release.
    #[inline]
    fn list_by_age(&mut self, message: u32, now: Millis) {
        let age = now - self.messages[message].arrived;
        if age < 0 {
            self.timetable.add_release(message, now - age);
            self.hint_at(now - age);
            return;
        }
        let warned = self.settings.delay_warning.is_zero() || age >= millis(self.settings.delay_warning);
        let next = if warned { NextDeadline::Expiry } else { NextDeadline::Warning };
        self.ages.put(&mut self.messages, message, next);
    }

    /// Returns when the message is released, if it is not released yet.
    pub(crate) fn release_of(&self, message: u32, now: Millis) -> Option<Millis> {
        Some(self.messages[message].arrived).filter(|arrived| *arrived > now)
    }

    /// Adds a job for each set of recipients with equal destination, attempts and due time.
    pub(crate) fn add_jobs(
        &mut self,
        message: u32,
        recipients: &[ArrivingRecipient],
        arrival: &Arrival<'_>,
        now: Millis,
    ) {
        let mut sorted = recipients.to_vec();
        sorted.sort_by_key(|recipient| (recipient.job_key(), recipient.index));
        for group in sorted.chunk_by(|a, b| a.job_key() == b.job_key()) {
            let indexes: Vec<u32> = group.iter().map(|recipient| recipient.index).collect();
            self.add_job(message, Recipients::new(&indexes), group[0], arrival, now);
        }
    }

    fn add_job(
        &mut self,
        message: u32,
        recipients: Recipients,
        one: ArrivingRecipient,
        arrival: &Arrival<'_>,
        now: Millis,
    ) {
        let (destination, attempt_count, due) = one.job_key();
        let job = self.new_job(message, recipients, destination, attempt_count, due.unwrap_or(now));
        if arrival.held {
            return;
        }
        match due.max(self.release_of(message, now)) {
            Some(due) if due > now => self.put_waiting(job, due),
            _ => self.put_ready(job, now, false),
        }
    }

    /// Adds a job that is in no list yet.
    pub(crate) fn new_job(
        &mut self,
        message: u32,
        recipients: Recipients,
        destination: DestinationId,
        attempt_count: u16,
        due: Millis,
    ) -> JobId {
        let job = self.jobs.insert(Job {
            recipients,
            due,
            message,
            destination: destination.0,
            sibling: self.messages[message].jobs,
            link: crate::list::Link::default(),
            slot: 0,
            packed_state: PackedState::new(JobState::Held, attempt_count),
        });
        self.messages[message].jobs = job;
        self.destination_at_mut(destination).job_count += 1;
        self.list_own_lifetime(job);
        job
    }

    // ---- the state of a job ----

    pub(crate) fn put_ready(&mut self, job: JobId, now: Millis, first: bool) {
        let entry = &mut self.jobs[job];
        entry.set_state(JobState::Ready);
        entry.due = now;
        let id = DestinationId(entry.destination);
        let destination = &mut self.destinations[id.0 as usize];
        let mut tables =
            Tables { jobs: &mut self.jobs, messages: &self.messages, timetable: &self.timetable };
        destination.ready.push(&mut tables, job, first);
        destination.ready_count += 1;
        self.update_connections(id, now);
    }

    pub(crate) fn put_waiting(&mut self, job: JobId, due: Millis) {
        let entry = &mut self.jobs[job];
        entry.set_state(JobState::Waiting);
        entry.due = due;
        self.destinations[entry.destination as usize].waiting_count += 1;
        self.wheel.insert(&mut self.jobs, job);
        self.hint_at(due);
    }

    /// Takes a job out of its list. A job in flight stays in flight.
    pub(crate) fn unschedule(&mut self, job: JobId) {
        let entry = &self.jobs[job];
        let state = entry.state();
        let destination = &mut self.destinations[entry.destination as usize];
        match state {
            JobState::Ready => {
                let mut tables =
                    Tables { jobs: &mut self.jobs, messages: &self.messages, timetable: &self.timetable };
                destination.ready.remove(&mut tables, job);
                destination.ready_count -= 1;
                destination.end_probe_without_mail(&self.settings);
            }
            JobState::Waiting => {
                destination.waiting_count -= 1;
                self.wheel.remove(&mut self.jobs, job);
            }
            JobState::InFlight => return,
            JobState::Held => {}
        }
        self.jobs[job].set_state(JobState::Held);
    }

    /// Removes a job. Returns true, and removes the message, if it was the last job of the message.
    pub(crate) fn remove_job(&mut self, job: JobId) -> bool {
        self.unlist_own_lifetime(job);
        let Job { message, sibling, destination, .. } = self.jobs.remove(job);
        self.count_removed_job(DestinationId(destination));
        let first = self.messages[message].jobs;
        if first == job {
            self.messages[message].jobs = sibling;
        } else {
            let mut at = first;
            while self.jobs[at].sibling != job {
                at = self.jobs[at].sibling;
            }
            self.jobs[at].sibling = sibling;
        }
        if self.messages[message].jobs != NONE {
            return false;
        }
        self.ages.put(&mut self.messages, message, NextDeadline::None);
        self.timetable.remove(message, self.messages[message].arrived);
        self.by_id.remove(&self.messages, message);
        self.held_count -= usize::from(self.messages[message].held);
        self.messages.remove(message);
        true
    }

    pub(crate) fn jobs_of(&self, message: u32) -> impl Iterator<Item = JobId> {
        let first = self.messages[message].jobs;
        std::iter::successors((first != NONE).then_some(first), |at| {
            let next = self.jobs[*at].sibling;
            (next != NONE).then_some(next)
        })
    }

    /// Makes a job ready again whose attempt never began; it goes first. Returns the recipients that an operator
    /// cancelled meanwhile: they are still in flight, and the caller completes them.
    pub fn return_lease(&mut self, job: JobId, now: Millis) -> Vec<(Lease, CancelAs)> {
        let entry = &self.jobs[job];
        let (id, message) = (DestinationId(entry.destination), entry.message);
        let mut left = entry.recipients.as_slice().to_vec();
        self.destination_at_mut(id).in_flight_count -= 1;
        let cancelled = self.split_off_cancelled(job, &mut left, now);
        if left.is_empty() {
            self.remove_job(job);
            return cancelled;
        }
        self.jobs[job].recipients = Recipients::new(&left);
        if self.messages[message].held {
            self.jobs[job].set_state(JobState::Held);
        } else {
            self.put_ready(job, now, true);
            self.list_for_expiry(message, now);
        }
        cancelled
    }

    /// Completes a job with the outcomes of its attempt, one for each of its recipients. `reached` tells whether a
    /// host answered; such attempts widen the window of the destination.
    pub fn complete(
        &mut self,
        job: JobId,
        results: &[(u32, Disposition)],
        reached: bool,
        now: Millis,
    ) -> Completion {
        let entry = &self.jobs[job];
        let (id, message) = (DestinationId(entry.destination), entry.message);
        let settings = &self.settings;
        let destination = &mut self.destinations[id.0 as usize];
        destination.in_flight_count -= 1;
        let is_probing = matches!(destination.health, Health::Probing { .. });
        let resumed = (reached && is_probing).then(|| destination.name.clone());
        if reached {
            destination.succeeded(settings);
            if !self.outages.is_empty() {
                self.outages.remove(&destination.name.to_string());
            }
        }
        let has_final = results.iter().any(|(_, disposition)| *disposition != Disposition::Deferred);
        if has_final || !reached {
            self.set_proven(id, has_final && reached);
        }
        let mut deferred: Vec<u32> =
            results.iter().filter(|r| r.1 == Disposition::Deferred).map(|r| r.0).collect();
        let cancelled = self.split_off_cancelled(job, &mut deferred, now);
        let QueuedMessage { arrived, held, .. } = self.messages[message];
        let mut completion = Completion { cancelled, resumed, ..Completion::default() };
        if deferred.is_empty() {
            // Before the job is removed, because the destination may be removed with its last job.
            self.update_connections(id, now);
            completion.last = self.remove_job(job);
        } else {
            let random = self.next_random();
            let attempt_count = self.jobs[job].attempt_count();
            let destination = self.destination_at(id);
            let to = (&destination.name, destination.group);
            let due = now + self.settings.retry_after(to, attempt_count, now - arrived, random);
            let entry = &mut self.jobs[job];
            entry.recipients = Recipients::new(&deferred);
            entry.count_attempt();
            entry.set_state(JobState::Held);
            if !held {
                self.put_waiting(job, due);
                completion.retry_at = Some(due);
            }
            self.update_connections(id, now);
        }
        completion
    }

    // ---- time ----

    /// Makes the jobs ready that are due, and starts the probes that are due.
    pub fn advance(&mut self, now: Millis) {
        while let Some(message) = self.timetable.pop_released(now) {
            self.list_by_age(message, now);
        }
        let mut due = std::mem::take(&mut self.due);
        self.wheel.advance(&mut self.jobs, now, &mut due);
        for job in due.drain(..) {
            let destination = self.jobs[job].destination as usize;
            self.destinations[destination].waiting_count -= 1;
            self.put_ready(job, now, false);
        }
        self.due = due;
        while let Some((when, id)) = self.timers.first().copied().filter(|(when, _)| *when <= now) {
            self.timers.remove(&(when, id));
            let destination = self.destination_at_mut(id);
            destination.timer = None;
            if matches!(destination.health, Health::Suspended { until, .. } if until <= now) {
                self.resume(id);
            }
            self.update_connections(id, now);
            self.remove_if_unused(id);
        }
    }

    pub(crate) fn set_timer(&mut self, id: DestinationId, when: Millis) {
        let before = self.destination_at_mut(id).timer.replace(when);
        if let Some(before) = before {
            self.timers.remove(&(before, id));
        }
        self.timers.insert((when, id));
        self.hint_at(when);
    }

    pub(crate) fn hint_at(&mut self, when: Millis) {
        self.hint = Some(self.hint.map_or(when, |hint| hint.min(when)));
    }

    /// Returns the earliest time that was set since the last call. A driver that sleeps longer must wake up earlier.
    /// Costs nothing, unlike [`Queue::next_wake`].
    pub fn wake_hint(&mut self) -> Option<Millis> {
        self.hint.take()
    }

    pub(crate) fn recipients_of(&self, message: u32) -> Vec<u32> {
        let mut all: Vec<u32> =
            self.jobs_of(message).flat_map(|job| self.jobs[job].recipients.as_slice().to_vec()).collect();
        all.sort_unstable();
        all
    }

    /// Starts an attempt of a job that is in no list.
    pub(crate) fn start_attempt(&mut self, job: JobId, now: Millis) -> Lease {
        let entry = &mut self.jobs[job];
        entry.set_state(JobState::InFlight);
        self.destinations[entry.destination as usize].in_flight_count += 1;
        let message = &self.messages[entry.message];
        let since = if entry.attempt_count() == 0 { message.arrived } else { entry.due };
        Lease {
            job,
            id: message.id,
            recipients: entry.recipients.clone(),
            queued_ms: u64::try_from(now - since).unwrap_or(0),
            attempt_count: entry.attempt_count(),
        }
    }
}
