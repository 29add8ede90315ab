//! The queue manager itself.

use crate::{
    DestinationId, GroupId, Millis, Recipients, Settings,
    ages::Ages,
    destination::{Health, Site},
    ids::Ids,
    list::NONE,
    message::{Age, Entry, Place, Standing, Unit, UnitId},
    operators::Verdict,
    ready::{Ready, Tables},
    ring::Rings,
    settings::millis,
    slab::Slab,
    wheel::Wheel,
};
use mail::{Destination, Disposition, Outcome, QueueId};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    time::Duration,
};

/// After a start nothing expires untried for so long.
const RESPITE: Millis = 3_600_000;

/// A message as it enters the queue.
#[derive(Debug)]
pub struct Arrival<'a> {
    /// Its id; never twice.
    pub id: QueueId,
    /// When it was accepted; negative when that was before this process began.
    pub arrived: Millis,
    /// Size of its content.
    pub size_bytes: u64,
    /// Not to be tried until released.
    pub held: bool,
    /// `(recipient index, destination, attempts so far, when due)`, grouped by nothing; due `None` is now.
    pub recipients: &'a [(u32, DestinationId, u16, Option<Millis>)],
}

/// Work for a connection: a unit that is now in flight.
#[derive(Debug, PartialEq, Eq)]
pub struct Taken {
    /// Give it back with [`Queue::settle`] or [`Queue::put_back`].
    pub unit: UnitId,
    /// The message.
    pub id: QueueId,
    /// Its recipients at the destination.
    pub recipients: Recipients,
    /// How long it was ready or waiting, in milliseconds.
    pub queued_ms: u64,
    /// Attempts before this one.
    pub attempt_count: u16,
}

/// What follows from the outcomes of an attempt.
#[derive(Debug, PartialEq, Eq, Default)]
pub struct Settlement {
    /// Nothing is left of the message: its space may be freed.
    pub last: bool,
    /// When the deferred recipients are tried again.
    pub retry_at: Option<Millis>,
    /// Deferred recipients that are not to be tried again: still in flight, for the caller to settle so.
    pub seized: Vec<(Taken, Verdict)>,
}

/// A message that has grown old.
#[derive(Debug, PartialEq, Eq)]
pub enum Aged {
    /// The sender may be told that these recipients still wait.
    Delayed(QueueId, Vec<u32>),
    /// These units fail now: they are in flight, to be settled as failed.
    Expired(Vec<Taken>),
}

/// What the driver does for the queue.
#[derive(Debug, PartialEq, Eq)]
pub enum Order {
    /// Open a connection; tell [`Queue::connection_closed`] when it is gone.
    Open(DestinationId),
    /// Wake one connection that rests.
    Wake(DestinationId),
}

/// All messages, all destinations. One writer; time comes in with each call.
#[derive(Debug)]
pub struct Queue {
    pub(crate) settings: Settings,
    pub(crate) messages: Slab<Entry>,
    pub(crate) by_id: Ids,
    pub(crate) units: Slab<Unit>,
    pub(crate) sites: Vec<Site>,
    /// By group.
    pub(crate) by_name: Vec<HashMap<Destination, DestinationId>>,
    /// Numbers of forgotten destinations, to be given to others.
    pub(crate) vacant: Vec<DestinationId>,
    /// Numbers given out since something was last queued.
    pub(crate) promised: Vec<DestinationId>,
    /// When this life began.
    begun: Millis,
    pub(crate) wheel: Wheel,
    pub(crate) ages: Ages,
    /// What was decided of recipients in flight.
    pub(crate) verdicts: BTreeMap<UnitId, Vec<(u32, Verdict)>>,
    /// Destinations that want a connection.
    pub(crate) rings: Rings,
    wakes: VecDeque<DestinationId>,
    /// When to look at a destination again: suspended ones, and ones whose patience runs.
    pub(crate) timers: BTreeSet<(Millis, DestinationId)>,
    pub(crate) connection_count: u32,
    /// Connections that rested and were asked to make room for other destinations.
    leaving_count: usize,
    /// Where the last of them was: the next is looked for behind it.
    last_left: usize,
    /// No connection is ordered any more.
    is_closed: bool,
    random: u64,
    due: Vec<UnitId>,
    /// The earliest time set since the driver last asked.
    hint: Option<Millis>,
}

impl Queue {
    /// An empty queue at `now`; `seed` makes its jitter repeatable.
    pub fn new(settings: Settings, seed: u64, now: Millis) -> Self {
        Self {
            settings,
            messages: Slab::default(),
            by_id: Ids::default(),
            units: Slab::default(),
            sites: Vec::new(),
            by_name: Vec::new(),
            vacant: Vec::new(),
            promised: Vec::new(),
            begun: now,
            wheel: Wheel::new(now),
            ages: Ages::default(),
            verdicts: BTreeMap::new(),
            rings: Rings::default(),
            wakes: VecDeque::new(),
            timers: BTreeSet::new(),
            connection_count: 0,
            leaving_count: 0,
            last_left: 0,
            is_closed: false,
            random: seed | 1,
            due: Vec::new(),
            hint: None,
        }
    }

    /// Messages in the queue.
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// Open connections of all destinations.
    pub fn connection_count(&self) -> u32 {
        self.connection_count
    }

    /// No message at all?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// New settings for what is decided from now on; what is ready is sorted anew.
    pub fn set_settings(&mut self, settings: Settings) {
        for site in &mut self.sites {
            let group = settings.group(site.group);
            site.limit = group.concurrency_limit.max(1);
            site.window = site.window.min(f64::from(site.limit));
            let mut tables = Tables { units: &mut self.units, messages: &self.messages };
            let mut ready = Ready::new(group.order);
            while let Some(unit) = site.ready.pop(&mut tables, u8::MAX) {
                ready.push(&mut tables, unit, false);
            }
            site.ready = ready;
        }
        self.settings = settings;
        if self.settings.delay_warning.is_zero() {
            self.ages.all_are_old(&mut self.messages);
        }
        self.rings.unpark_all(&self.settings);
    }

    /// The destination's number in the first group; as good as [`Self::destination_in`].
    pub fn destination(&mut self, name: &Destination) -> DestinationId {
        self.destination_in(name, GroupId::default())
    }

    /// The destination's number in a group; the same for the same name and group. It stands for this
    /// destination until the end of the next [`Queue::insert`] or [`Queue::reroute`], and as long as there
    /// are units or connections of it.
    pub fn destination_in(&mut self, name: &Destination, group: GroupId) -> DestinationId {
        let known = self.by_name.get(usize::from(group.0)).and_then(|names| names.get(name));
        let id = match known {
            Some(id) => *id,
            None => self.new_site(name, group),
        };
        let site = self.site_mut(id);
        if !std::mem::replace(&mut site.is_promised, true) {
            self.promised.push(id);
        }
        id
    }

    /// Its name.
    pub fn destination_name(&self, id: DestinationId) -> &Destination {
        &self.site(id).name
    }

    pub(crate) fn site(&self, id: DestinationId) -> &Site {
        &self.sites[id.0 as usize]
    }

    pub(crate) fn site_mut(&mut self, id: DestinationId) -> &mut Site {
        &mut self.sites[id.0 as usize]
    }

    pub(crate) fn next_random_u64(&mut self) -> u64 {
        // xorshift64: jitter needs no more.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    fn next_random(&mut self) -> f64 {
        (self.next_random_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Takes a message in. False when its id is there already.
    pub fn insert(&mut self, arrival: &Arrival<'_>, now: Millis) -> bool {
        let is_new = self.take_in(arrival, now);
        self.promises_are_kept();
        is_new
    }

    fn take_in(&mut self, arrival: &Arrival<'_>, now: Millis) -> bool {
        if self.by_id.get(&self.messages, arrival.id).is_some() {
            return false;
        }
        let mut entry = Entry::new(arrival.id, arrival.arrived, arrival.size_bytes);
        entry.held = arrival.held;
        entry.is_bulk = arrival.size_bytes > self.settings.small_bytes;
        let message = self.messages.insert(entry);
        self.by_id.insert(&self.messages, message);
        let warned = self.settings.delay_warning.is_zero()
            || now - arrival.arrived >= millis(self.settings.delay_warning);
        self.ages.put(&mut self.messages, message, if warned { Age::Old } else { Age::Young });
        match arrival.recipients {
            [one] => self.add_unit(message, Recipients::One(one.0), *one, arrival, now),
            several => self.add_units(message, several, arrival, now),
        }
        true
    }

    /// Recipients that share destination and past share a unit.
    pub(crate) fn add_units(
        &mut self,
        message: u32,
        recipients: &[(u32, DestinationId, u16, Option<Millis>)],
        arrival: &Arrival<'_>,
        now: Millis,
    ) {
        let mut sorted = recipients.to_vec();
        sorted.sort_by_key(|(index, destination, attempts, due)| (*destination, *attempts, *due, *index));
        for group in sorted.chunk_by(|a, b| (a.1, a.2, a.3) == (b.1, b.2, b.3)) {
            let indexes: Vec<u32> = group.iter().map(|r| r.0).collect();
            self.add_unit(message, Recipients::new(&indexes), group[0], arrival, now);
        }
    }

    fn add_unit(
        &mut self,
        message: u32,
        recipients: Recipients,
        (_, destination, attempt_count, due): (u32, DestinationId, u16, Option<Millis>),
        arrival: &Arrival<'_>,
        now: Millis,
    ) {
        let unit = self.new_unit(message, recipients, destination, attempt_count, due.unwrap_or(now));
        if arrival.held {
            return;
        }
        match due {
            Some(due) if due > now => self.put_waiting(unit, due),
            _ => self.put_ready(unit, now, false),
        }
    }

    /// In no list yet.
    pub(crate) fn new_unit(
        &mut self,
        message: u32,
        recipients: Recipients,
        destination: DestinationId,
        attempt_count: u16,
        due: Millis,
    ) -> UnitId {
        let unit = self.units.insert(Unit {
            recipients,
            due,
            message,
            destination: destination.0,
            sibling: self.messages[message].units,
            link: crate::list::Link::default(),
            slot: 0,
            standing: Standing::new(Place::Held, attempt_count),
        });
        self.messages[message].units = unit;
        self.site_mut(destination).unit_count += 1;
        unit
    }

    // ---- a unit's places ----

    pub(crate) fn put_ready(&mut self, unit: UnitId, now: Millis, first: bool) {
        let entry = &mut self.units[unit];
        entry.set_place(Place::Ready);
        entry.due = now;
        let id = DestinationId(entry.destination);
        let site = &mut self.sites[id.0 as usize];
        let mut tables = Tables { units: &mut self.units, messages: &self.messages };
        site.ready.push(&mut tables, unit, first);
        site.ready_count += 1;
        self.check(id, now);
    }

    fn put_waiting(&mut self, unit: UnitId, due: Millis) {
        let entry = &mut self.units[unit];
        entry.set_place(Place::Waiting);
        entry.due = due;
        self.sites[entry.destination as usize].waiting_count += 1;
        self.wheel.insert(&mut self.units, unit);
        self.hint_at(due);
    }

    /// Takes a unit out of where it is; in flight it stays.
    pub(crate) fn withdraw(&mut self, unit: UnitId) {
        let entry = &self.units[unit];
        let place = entry.place();
        let site = &mut self.sites[entry.destination as usize];
        match place {
            Place::Ready => {
                let mut tables = Tables { units: &mut self.units, messages: &self.messages };
                site.ready.remove(&mut tables, unit);
                site.ready_count -= 1;
            }
            Place::Waiting => {
                site.waiting_count -= 1;
                self.wheel.remove(&mut self.units, unit);
            }
            Place::InFlight => return,
            Place::Held => {}
        }
        self.units[unit].set_place(Place::Held);
    }

    /// Removes a unit for good; true when it was its message's last.
    pub(crate) fn remove_unit(&mut self, unit: UnitId) -> bool {
        let Unit { message, sibling, destination, .. } = self.units.remove(unit);
        self.count_out(DestinationId(destination));
        let first = self.messages[message].units;
        if first == unit {
            self.messages[message].units = sibling;
        } else {
            let mut at = first;
            while self.units[at].sibling != unit {
                at = self.units[at].sibling;
            }
            self.units[at].sibling = sibling;
        }
        if self.messages[message].units != NONE {
            return false;
        }
        self.ages.put(&mut self.messages, message, Age::Unlisted);
        self.by_id.remove(&self.messages, message);
        self.messages.remove(message);
        true
    }

    pub(crate) fn units_of(&self, message: u32) -> impl Iterator<Item = UnitId> {
        let first = self.messages[message].units;
        std::iter::successors((first != NONE).then_some(first), |at| {
            let next = self.units[*at].sibling;
            (next != NONE).then_some(next)
        })
    }

    // ---- connections ----

    /// Looks whether a destination with work has a connection that rests, wants another one, or is
    /// to be asked again later.
    pub(crate) fn check(&mut self, id: DestinationId, now: Millis) {
        let site = &mut self.sites[id.0 as usize];
        // It may want another connection since a time when this one did not rest.
        if site.idle_count > 0 && site.has_work() {
            self.wake(id);
            return;
        }
        if site.in_ring {
            return;
        }
        let oldest = site.ready.head().map(|unit| self.units[unit].due);
        match site.wants_connection(&self.settings, oldest, now) {
            Ok(true) => {
                let is_first = site.connection_count == 0;
                site.in_ring = true;
                self.rings.push(&self.settings, site.group, is_first, id);
            }
            Ok(false) => {}
            Err(when) => self.set_timer(id, when),
        }
    }

    /// One of its connections that rest.
    fn wake(&mut self, id: DestinationId) {
        self.stir(id);
        self.wakes.push_back(id);
    }

    /// Wakes a connection that rests where others have none: it looks around, and leaves. One for each of
    /// them; those that were asked before are on their way.
    fn make_room(&mut self) {
        let is_full = self.connection_count >= self.settings.connections_max;
        let Some(group) = self.rings.group_to_make_room(is_full) else { return };
        if self.leaving_count >= self.rings.first_count() {
            return;
        }
        let count = self.sites.len();
        let rests = |at: &usize| self.sites[*at].group == group && self.sites[*at].idle_count > 0;
        let found = (0..count).map(|ahead| (self.last_left + 1 + ahead) % count).find(rests);
        if let Some(at) = found {
            self.last_left = at;
            self.leaving_count += 1;
            self.wake(DestinationId(at as u32));
        }
    }

    fn set_timer(&mut self, id: DestinationId, when: Millis) {
        let before = self.site_mut(id).timer.replace(when);
        if let Some(before) = before {
            self.timers.remove(&(before, id));
        }
        self.timers.insert((when, id));
        self.hint_at(when);
    }

    fn hint_at(&mut self, when: Millis) {
        self.hint = Some(self.hint.map_or(when, |hint| hint.min(when)));
    }

    /// The earliest time that was set since this was last asked: a driver that sleeps longer than
    /// that must wake up earlier. Costs nothing, unlike [`Queue::next_wake`].
    pub fn wake_hint(&mut self) -> Option<Millis> {
        self.hint.take()
    }

    /// What the driver has to do; ask until `None` after every other call.
    pub fn next_order(&mut self, now: Millis) -> Option<Order> {
        loop {
            if let Some(id) = self.wakes.pop_front() {
                return Some(Order::Wake(id));
            }
            if self.is_closed {
                return None;
            }
            let is_full = self.connection_count >= self.settings.connections_max;
            let next = if is_full { None } else { self.rings.pop(&self.settings) };
            let Some(id) = next else {
                self.make_room();
                return self.wakes.pop_front().map(Order::Wake);
            };
            let site = self.site_mut(id);
            site.in_ring = false;
            let oldest = site.ready.head();
            let oldest = oldest.map(|unit| self.units[unit].due);
            if self.site(id).wants_connection(&self.settings, oldest, now) != Ok(true) {
                // Its turn is another one's of its group, and it may have to be asked again later.
                self.rings.unpark(&self.settings, self.sites[id.0 as usize].group);
                self.check(id, now);
                self.forget_if_unused(id);
                continue;
            }
            self.connection_count += 1;
            self.rings.opened(self.sites[id.0 as usize].group);
            let quantum = i64::try_from(self.settings.quantum_bytes).unwrap_or(i64::MAX);
            let site = self.site_mut(id);
            site.connection_count += 1;
            site.fresh_count += 1;
            site.quantum_bytes = quantum;
            self.check(id, now);
            return Some(Order::Open(id));
        }
    }

    /// Orders no connection from now on; those there are may end their work.
    pub fn close(&mut self) {
        self.is_closed = true;
    }

    /// A connection has no work: it waits to be woken. False: there is work, it need not wait.
    pub fn rest(&mut self, id: DestinationId) -> bool {
        let site = self.site_mut(id);
        if site.has_work() {
            return false;
        }
        site.idle_count += 1;
        let group = site.group;
        self.rings.rested(group);
        self.leaving_count = self.leaving_count.saturating_sub(1);
        true
    }

    /// A resting connection stops resting without having been woken.
    pub fn stir(&mut self, id: DestinationId) {
        let site = self.site_mut(id);
        assert!(site.idle_count > 0, "an idle connection is counted");
        site.idle_count -= 1;
        let group = site.group;
        self.rings.stirred(group);
    }

    /// Another destination wants its first connection and none is to be had: one of this
    /// destination without work should close.
    pub fn is_contended(&self, id: DestinationId) -> bool {
        self.rings.is_group_contended(self.site(id).group)
            || self.connection_count >= self.settings.connections_max && self.rings.wants_first()
    }

    /// An opened connection is gone, or was never made. `has_taken`: it took a unit, or [`Queue::unreachable`]
    /// or [`Queue::is_no_destination`] was called for it; otherwise it still counts as one that will take one.
    pub fn connection_closed(&mut self, id: DestinationId, has_taken: bool, now: Millis) {
        self.connection_count -= 1;
        self.leaving_count = self.leaving_count.saturating_sub(1);
        self.rings.closed(&self.settings, self.sites[id.0 as usize].group);
        let site = self.site_mut(id);
        site.connection_count -= 1;
        if !has_taken {
            site.fresh_count = site.fresh_count.saturating_sub(1);
        }
        site.fresh_count = site.fresh_count.min(site.connection_count);
        if site.connection_count == 0
            && matches!(site.health, Health::Probing { .. })
            && site.ready_count == 0
        {
            // The probe found nothing to try: the next message probes again.
            site.health = Health::Up;
            site.window = 1.0;
        }
        if site.connection_count == 0 && site.in_ring {
            self.rings.wants_first_now(&self.settings, self.sites[id.0 as usize].group, id);
        }
        self.check(id, now);
        self.forget_if_unused(id);
    }

    /// The next unit for a connection of this destination: small ones first, but not for ever.
    pub fn take(&mut self, id: DestinationId, now: Millis) -> Option<Taken> {
        let contended = self.is_contended(id);
        let per_bulk = self.settings.small_per_bulk;
        let site = &mut self.sites[id.0 as usize];
        let may = match site.health {
            Health::Up => site.connection_count <= site.window.ceil() as u32,
            Health::Probing { .. } => site.in_flight_count == 0,
            Health::Suspended { .. } => false,
        };
        if !may || (contended && site.quantum_bytes <= 0) {
            return None;
        }
        let mut tables = Tables { units: &mut self.units, messages: &self.messages };
        let unit = site.ready.pop(&mut tables, per_bulk)?;
        site.ready_count -= 1;
        site.fresh_count = site.fresh_count.saturating_sub(1);
        let message = self.units[unit].message;
        site.quantum_bytes -= i64::from(self.messages[message].size_bytes);
        Some(self.launch(unit, now))
    }

    /// The unit's attempt never began: it is the first to go again. Gives those of its recipients that are
    /// not to be tried again: still in flight, for the caller to settle so.
    pub fn put_back(&mut self, unit: UnitId, now: Millis) -> Vec<(Taken, Verdict)> {
        let entry = &self.units[unit];
        let (id, message) = (DestinationId(entry.destination), entry.message);
        let mut left = entry.recipients.as_slice().to_vec();
        self.site_mut(id).in_flight_count -= 1;
        let seized = self.seize_condemned(unit, &mut left, now);
        if left.is_empty() {
            self.remove_unit(unit);
            return seized;
        }
        self.units[unit].recipients = Recipients::new(&left);
        if self.messages[message].held {
            self.units[unit].set_place(Place::Held);
        } else {
            self.put_ready(unit, now, true);
            self.may_expire(message, now);
        }
        seized
    }

    /// What was held or in flight when its time was over is looked at again.
    pub(crate) fn may_expire(&mut self, message: u32, now: Millis) {
        if self.messages[message].age == Age::Unlisted {
            self.ages.put_again(&mut self.messages, message);
            self.hint_at(now);
        }
    }

    /// Is the time of this unit's message over? Then whoever settles it calls a deferral a failure.
    pub fn is_over(&self, unit: UnitId, now: Millis) -> bool {
        self.is_aged(self.units[unit].message, self.settings.expire, now)
    }

    /// The outcomes of a unit's attempt, one for each of its recipients. `reached` tells whether a
    /// host answered, whatever it said: that is what the window learns from.
    pub fn settle(
        &mut self,
        unit: UnitId,
        results: &[(u32, Disposition)],
        reached: bool,
        now: Millis,
    ) -> Settlement {
        let entry = &self.units[unit];
        let (id, message) = (DestinationId(entry.destination), entry.message);
        let settings = &self.settings;
        let site = &mut self.sites[id.0 as usize];
        site.in_flight_count -= 1;
        if reached {
            site.succeeded(settings);
        }
        let mut deferred: Vec<u32> =
            results.iter().filter(|r| r.1 == Disposition::Deferred).map(|r| r.0).collect();
        let seized = self.seize_condemned(unit, &mut deferred, now);
        let Entry { arrived, held, .. } = self.messages[message];
        let mut settlement = Settlement { seized, ..Settlement::default() };
        if deferred.is_empty() {
            // First: with its last job the destination may be forgotten.
            self.check(id, now);
            settlement.last = self.remove_unit(unit);
        } else {
            let random = self.next_random();
            let due = now + self.settings.retry_after(self.site(id).group, now - arrived, random);
            let entry = &mut self.units[unit];
            entry.recipients = Recipients::new(&deferred);
            entry.count_attempt();
            entry.set_place(Place::Held);
            if !held {
                self.put_waiting(unit, due);
                settlement.retry_at = Some(due);
            }
            self.check(id, now);
        }
        settlement
    }

    /// No host of the destination could be used: it is suspended as a whole, or its window shrinks
    /// while other connections work. Gives when it is tried again.
    pub fn unreachable(&mut self, id: DestinationId, reason: Outcome, now: Millis) -> Option<Millis> {
        let random = self.next_random();
        let site = &mut self.sites[id.0 as usize];
        // This one will not take anything.
        site.fresh_count = site.fresh_count.saturating_sub(1);
        site.failed(&self.settings, now, reason, random);
        if let Health::Suspended { until, .. } = self.site(id).health {
            self.set_timer(id, until);
            return Some(until);
        }
        None
    }

    /// The destination is known to take no mail: nobody waits for it to come back, and every unit may be taken.
    pub fn is_no_destination(&mut self, id: DestinationId) {
        let site = self.site_mut(id);
        site.fresh_count = site.fresh_count.saturating_sub(1);
        site.health = Health::Up;
    }

    // ---- time ----

    /// Moves what is due to ready.
    pub fn advance(&mut self, now: Millis) {
        let mut due = std::mem::take(&mut self.due);
        self.wheel.advance(&mut self.units, now, &mut due);
        for unit in due.drain(..) {
            let site = self.units[unit].destination as usize;
            self.sites[site].waiting_count -= 1;
            self.put_ready(unit, now, false);
        }
        self.due = due;
        while let Some((when, id)) = self.timers.first().copied().filter(|(when, _)| *when <= now) {
            self.timers.remove(&(when, id));
            let site = self.site_mut(id);
            site.timer = None;
            if matches!(site.health, Health::Suspended { until, .. } if until <= now) {
                self.resume(id);
            }
            self.check(id, now);
            self.forget_if_unused(id);
        }
    }

    /// The next message that has grown old; ask until `None`.
    pub fn next_aged(&mut self, now: Millis) -> Option<Aged> {
        self.ages.sort(&mut self.messages);
        let warning = self.settings.delay_warning;
        if let Some(message) = self.ages.oldest_young().filter(|m| self.is_aged(*m, warning, now)) {
            self.ages.put(&mut self.messages, message, Age::Old);
            let recipients = self.recipients_of(message);
            return Some(Aged::Delayed(self.messages[message].id, recipients));
        }
        while let Some(message) = self.ages.oldest_old().filter(|m| now >= self.expires_at(*m)) {
            self.ages.put(&mut self.messages, message, Age::Unlisted);
            if self.messages[message].held {
                continue;
            }
            let units = self.seize_units(message, &|_| true, now);
            if !units.is_empty() {
                return Some(Aged::Expired(units));
            }
        }
        None
    }

    /// What was there at the start may have been so for days in which nobody tried it: it has some time to be
    /// tried, and expires by its age once that is deferred.
    fn expires_at(&self, message: u32) -> Millis {
        let (arrived, expire) = (self.messages[message].arrived, millis(self.settings.expire));
        let earliest = if arrived < self.begun { self.begun + expire.min(RESPITE) } else { arrived };
        earliest.max(arrived + expire)
    }

    fn is_aged(&self, message: u32, age: Duration, now: Millis) -> bool {
        now - self.messages[message].arrived >= millis(age)
    }

    /// When [`Queue::advance`] and [`Queue::next_aged`] have something next.
    pub fn next_wake(&self) -> Option<Millis> {
        let after = |m: u32, age: Duration| self.messages[m].arrived + millis(age);
        let warned = self.ages.oldest_young().map(|m| after(m, self.settings.delay_warning));
        let expired = self.ages.oldest_old().map(|m| self.expires_at(m));
        let timer = self.timers.first().map(|t| t.0);
        [self.wheel.next_due(), timer, warned, expired].into_iter().flatten().min()
    }

    pub(crate) fn recipients_of(&self, message: u32) -> Vec<u32> {
        let mut all: Vec<u32> =
            self.units_of(message).flat_map(|unit| self.units[unit].recipients.as_slice().to_vec()).collect();
        all.sort_unstable();
        all
    }

    /// Marks a unit that is in no list as in flight.
    pub(crate) fn launch(&mut self, unit: UnitId, now: Millis) -> Taken {
        let entry = &mut self.units[unit];
        entry.set_place(Place::InFlight);
        self.sites[entry.destination as usize].in_flight_count += 1;
        let message = &self.messages[entry.message];
        let since = if entry.attempt_count() == 0 { message.arrived } else { entry.due };
        Taken {
            unit,
            id: message.id,
            recipients: entry.recipients.clone(),
            queued_ms: u64::try_from(now - since).unwrap_or(0),
            attempt_count: entry.attempt_count(),
        }
    }
}
