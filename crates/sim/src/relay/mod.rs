//! A whole relay: the real sessions of both sides, the real queue and the real log, between clients and
//! next hops that misbehave, on a disk whose power goes. One thread and one seed decide everything.
//!
//! After every few steps what was promised is compared with what is there, see `truth`.

mod hop;
mod line;
mod office;
mod source;
mod truth;

use crate::{
    clock::Skew,
    disk::{EIO, Fault, SimDisk},
    seed::Rng,
};
use office::{Office, Times};
use queue::Millis;
use source::Source;
use spool::{LogSettings, LogSpool, Mutation, Recovered, Spool as _, WorkStep};
use std::{fmt, sync::Arc, time::Duration};
use truth::{FEW_DESTINATIONS, Truth};

/// Clients at a time.
const SOURCES: usize = 4;
/// Lives of the relay, each ended by a cut, a kill or an error.
const LIVES: u64 = 4;
/// Steps of a life that nothing ends.
const STEPS: u64 = 1500;
/// Relays with so many destinations that the queue gives their numbers to others.
const WIDE_PERCENT: u64 = 8;
const MANY_DESTINATIONS: u64 = 5000;
/// Relays whose wall clock goes wrong.
const WRONG_CLOCK_PERCENT: u64 = 40;
/// Within so many steps a well world takes everything.
const LAST_STEPS: u64 = 100_000;

/// What a seed came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Mails clients had to send.
    pub mail_count: u64,
    /// Those they read 250 for.
    pub acknowledged_count: u64,
    /// Recipients that were delivered to, each arrival counted.
    pub arrival_count: u64,
    /// Recipients whose failure was reported.
    pub report_count: u64,
    /// Lives that ended otherwise than well.
    pub crash_count: u64,
    /// Seeds.
    pub seed_count: u64,
}

impl Tally {
    /// Both together.
    pub fn add(&mut self, other: &Self) {
        self.mail_count += other.mail_count;
        self.acknowledged_count += other.acknowledged_count;
        self.arrival_count += other.arrival_count;
        self.report_count += other.report_count;
        self.crash_count += other.crash_count;
        self.seed_count += other.seed_count;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} relays, {} crashes, {} mails sent, {} answered 250, {} arrivals, {} failures reported",
            self.seed_count,
            self.crash_count,
            self.mail_count,
            self.acknowledged_count,
            self.arrival_count,
            self.report_count
        )
    }
}

/// A rule of the daemon's glue that is broken on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Slip {
    /// None is.
    #[default]
    None,
    /// The number of a destination is kept after the queue has forgotten it.
    KeepNumbers,
    /// A restart takes what the wall clock showed for true, even when it is still to come.
    BelieveClock,
}

impl Slip {
    /// Each that breaks one.
    pub const ALL: [Self; 2] = [Self::KeepNumbers, Self::BelieveClock];
}

struct World {
    rng: Rng,
    /// What kind of world it is and how its clock goes wrong, in a stream of its own.
    kind: Rng,
    slip: Slip,
    has_wrong_clock: bool,
    skew: Skew,
    /// What takes long with many destinations is judged every so many steps.
    pace: u64,
    /// So many times as long as others each life is.
    length: u64,
    disk: SimDisk,
    mutation: Mutation,
    truth: Truth,
    sources: Vec<Source>,
    now: Millis,
    next_id: u64,
    is_well: bool,
    crash_count: u64,
}

/// Runs a seed; an error says which promise was broken.
///
/// # Errors
/// In words.
pub fn run(seed: u64, mutation: Mutation) -> Result<Tally, String> {
    slipping(seed, mutation, Slip::None)
}

/// The same with a rule broken.
///
/// # Errors
/// In words.
pub fn slipping(seed: u64, mutation: Mutation, slip: Slip) -> Result<Tally, String> {
    let (mut rng, mut kind) = (Rng::new(seed), Rng::new(!seed));
    let (is_wide, has_wrong_clock) = (kind.chance(WIDE_PERCENT), kind.chance(WRONG_CLOCK_PERCENT));
    let destinations = if is_wide { MANY_DESTINATIONS } else { FEW_DESTINATIONS };
    let mut world = World {
        kind,
        slip,
        has_wrong_clock,
        skew: Skew::default(),
        pace: if is_wide { 64 } else { 1 },
        length: if is_wide { 8 } else { 1 },
        disk: SimDisk::new(rng.bits(), u64::MAX),
        rng,
        mutation,
        truth: Truth { destinations, ..Truth::default() },
        sources: (0..SOURCES).map(Source::new).collect(),
        now: 1_000,
        next_id: 0,
        is_well: false,
        crash_count: 0,
    };
    for _ in 0..LIVES {
        world.plan();
        world.life(STEPS * world.length)?;
        world.crash();
    }
    world.is_well = true;
    world.life(LAST_STEPS)?;
    let truth = &world.truth;
    Ok(Tally {
        mail_count: truth.mails.len() as u64,
        acknowledged_count: truth.acknowledged.len() as u64,
        arrival_count: truth.arrived.values().map(|n| u64::from(*n)).sum(),
        report_count: truth.reported.len() as u64,
        crash_count: world.crash_count,
        seed_count: 1,
    })
}

impl World {
    fn plan(&mut self) {
        let within = if self.rng.chance(30) { 40 } else { STEPS * self.length };
        let cut = 1 + self.rng.below(within);
        if self.rng.chance(15) {
            let fault = [Fault::Once(EIO), Fault::ForGood(EIO), Fault::Sync][self.rng.index(3)];
            self.disk.plan(1 + self.rng.below(cut), fault);
        }
        self.disk.plan(cut, Fault::Cut);
    }

    fn crash(&mut self) {
        self.crash_count += 1;
        let is_kill = self.rng.chance(30);
        self.disk = if is_kill { self.disk.after_kill() } else { self.disk.after_crash(self.rng.bits()) };
        self.sources.iter_mut().for_each(|source| source.hang_up(None));
        self.set_clock(40);
    }

    /// From a start until the disk or the steps end; a well world ends when everything is delivered.
    fn life(&mut self, steps: u64) -> Result<(), String> {
        let Some(mut office) = self.start()? else { return Ok(()) };
        if self.is_well {
            office.release_all();
        }
        for step in 0..steps {
            self.step(&mut office);
            if self.disk.is_off() || office.spool.pressure().poisoned {
                break;
            }
            if step % self.pace == 0 {
                office.judge()?;
            }
            if step % (16 * self.pace) == 0 {
                office.judge_waits()?;
                self.truth.judge(&office.queued(&self.truth))?;
                self.truth.judge_repeats()?;
            }
            if self.is_well && office.is_done() {
                return self.end(&office);
            }
        }
        self.next_id = office.next_id();
        if self.is_well { Err(format!("{} messages never leave", office.queue.len())) } else { Ok(()) }
    }

    fn end(&self, office: &Office) -> Result<(), String> {
        self.truth.judge(&office.queued(&self.truth))?;
        self.truth.judge_repeats()?;
        let left = office.spool.pressure().message_count;
        if left == 0 {
            Ok(())
        } else {
            Err(format!("the queue is empty, and {left} messages are in the spool"))
        }
    }

    /// `None`: the disk did not let it start.
    fn start(&mut self) -> Result<Option<Office>, String> {
        let settings = LogSettings {
            segment_bytes: 52 * 1024,
            max_bytes: 0,
            min_free_bytes: 0,
            queued_bytes_max: 16 * 1024,
            outcome_delay: Duration::ZERO,
            read_threads: 1,
        };
        let failed = |disk: &SimDisk, what: String| if disk.is_well() { Err(what) } else { Ok(None) };
        let mut spool = match LogSpool::single_stepped(Arc::new(self.disk.clone()), settings, self.mutation) {
            Ok(spool) => spool,
            Err(failure) => return failed(&self.disk, format!("the spool does not open: {failure}")),
        };
        let mut found: Vec<Recovered> = Vec::new();
        match spool.recover(&mut |r| found.push(r)) {
            // What could not be read joins the queue at a later start only.
            Ok(report) if report.is_complete() && !self.disk.is_off() => {}
            Ok(report) => {
                return failed(&self.disk, format!("nothing was damaged, but {report:?}"));
            }
            Err(failure) => return failed(&self.disk, format!("no recovery: {failure}")),
        }
        let queue_settings =
            queue::Settings { expire: Duration::from_secs(86_400), ..queue::Settings::default() };
        let next_id = self.next_id + 10_000;
        let mut office =
            Office::new(spool, queue_settings, self.rng.bits(), self.times(), next_id, self.slip);
        for recovered in &found {
            self.truth.recovered(recovered);
            office.restore(recovered);
        }
        self.next_id = next_id;
        self.truth.judge(&office.queued(&self.truth))?;
        Ok(Some(office))
    }

    fn times(&self) -> Times {
        Times { now: self.now, wall: self.skew.shows(self.now) }
    }

    /// The wall clock goes on, and may go wrong.
    fn set_clock(&mut self, percent: u64) {
        if self.has_wrong_clock && self.kind.chance(percent) {
            self.skew.jump(&mut self.kind);
            self.truth.was_far_off = self.skew.was_far_off();
        }
        self.disk.set_clock(self.skew.shows(self.now));
    }

    fn step(&mut self, office: &mut Office) {
        let (truth, rng) = (&mut self.truth, &mut self.rng);
        match rng.below(100) {
            0..40 if !self.is_well => {
                let at = rng.index(self.sources.len());
                self.sources[at].step(office, truth, self.now, rng);
            }
            0..70 if !office.lines.is_empty() => {
                for _ in 0..1 + office.lines.len() / 16 {
                    let at = rng.index(office.lines.len());
                    let line = office.lines.swap_remove(at);
                    let line = line.step(office, truth, self.now, rng);
                    office.lines.extend(line);
                    // Who is to be woken must not go away before.
                    office.follow_orders(self.is_well, rng);
                    if office.lines.is_empty() {
                        break;
                    }
                }
            }
            0..90 => {
                for turn in [WorkStep::Prepare, WorkStep::Compact, WorkStep::Commit] {
                    if rng.chance(60) {
                        office.spool.step(turn);
                    }
                }
            }
            90..98 => {
                let most = [10, 1_000, 60_000, 3_600_000][rng.index(4)];
                self.now += rng.below(most) as Millis;
            }
            _ if !self.is_well => office.operate(rng, truth),
            _ => office.queue.flush(self.now),
        }
        self.set_clock(if self.is_well { 0 } else { 1 });
        office.advance(self.times(), &mut self.truth);
        office.poll(&mut self.sources, &mut self.truth);
        office.follow_orders(self.is_well, &mut self.rng);
    }
}
