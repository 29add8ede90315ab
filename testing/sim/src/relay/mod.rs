//! A whole relay: the real sessions of both sides, the real acceptor, message engine and log, between clients, checks and next
//! hops that misbehave, on a disk whose power goes. One thread and one seed decide everything.
//!
//! After every few steps what was promised is compared with what is there, see `oracle`.

mod accepting;
mod attempt;
mod checks;
mod connection;
mod driver;
mod front;
mod next_hop;
mod oracle;
mod routing;
mod source;

use crate::mutant::Mutant;
use crate::{
    clock::Skew,
    disk::{EIO, Fault, SimDisk},
    seed::Rng,
};
use checks::SharedJudgments;
use driver::{Driver, Plan};
use engine::Context;
use mail::UnixMillis;
use oracle::{FEW_DESTINATIONS, Oracle};
use queue::Millis;
use source::Source;
use spool::{LogSettings, LogSpool, Recovered, Spool as _, WorkStep};
use std::{fmt, time::Duration};

/// Clients at a time.
const SOURCES: usize = 4;
/// Restarts of the relay, each ended by a cut, a kill or an error.
const RESTARTS: u64 = 4;
/// Steps of a run that nothing ends.
const STEPS: u64 = 1500;
/// Relays with so many destinations that the queue gives their numbers to others.
const WIDE_PERCENT: u64 = 8;
const MANY_DESTINATIONS: u64 = 5000;
/// Relays whose wall clock goes wrong.
const WRONG_CLOCK_PERCENT: u64 = 40;
/// Runs that end by a shutdown, if nothing ended them before.
const SHUTDOWN_PERCENT: u64 = 50;
/// Within so many steps a shutdown comes to its end.
const SHUTDOWN_STEPS: u64 = 20_000;
/// Within so many steps a well world takes everything.
const LAST_STEPS: u64 = 100_000;

/// What one seed, or several, have done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RelayCounts {
    /// Mails clients had to send.
    pub mail_count: u64,
    /// Messages that clients read 250 for.
    pub acknowledged_count: u64,
    /// Recipients that clients read a refusal for.
    pub refused_count: u64,
    /// Messages that clients read 250 for, and that a check discarded.
    pub discarded_count: u64,
    /// Reloads of the relay's configuration.
    pub reload_count: u64,
    /// Messages that were stored after their clients were told to try again.
    pub late_count: u64,
    /// Recipients that were delivered to, each arrival counted.
    pub arrival_count: u64,
    /// Recipients whose failure was reported.
    pub report_count: u64,
    /// Recipients whose delay was reported.
    pub warning_count: u64,
    /// Recipients whose success was reported.
    pub success_report_count: u64,
    /// Runs that ended otherwise than well.
    pub crash_count: u64,
    /// Runs that ended by a shutdown.
    pub shutdown_count: u64,
    /// Seeds that were run.
    pub seed_count: u64,
}

impl RelayCounts {
    /// Adds the counts of another seed.
    pub fn add(&mut self, other: &Self) {
        self.mail_count += other.mail_count;
        self.acknowledged_count += other.acknowledged_count;
        self.refused_count += other.refused_count;
        self.discarded_count += other.discarded_count;
        self.reload_count += other.reload_count;
        self.late_count += other.late_count;
        self.arrival_count += other.arrival_count;
        self.report_count += other.report_count;
        self.warning_count += other.warning_count;
        self.success_report_count += other.success_report_count;
        self.crash_count += other.crash_count;
        self.shutdown_count += other.shutdown_count;
        self.seed_count += other.seed_count;
    }
}

impl fmt::Display for RelayCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} relays, {} crashes, {} shutdowns, {} reloads, {} mails sent, {} answered 250, {} of them discarded, {} recipients refused, {} stored late, {} arrivals, {} failures, {} delays and {} successes reported",
            self.seed_count,
            self.crash_count,
            self.shutdown_count,
            self.reload_count,
            self.mail_count,
            self.acknowledged_count + self.discarded_count,
            self.discarded_count,
            self.refused_count,
            self.late_count,
            self.arrival_count,
            self.report_count,
            self.warning_count,
            self.success_report_count
        )
    }
}

struct World {
    rng: Rng,
    /// The stream that chooses the kind of the world, its settings and the errors of its clock.
    kind: Rng,
    has_wrong_clock: bool,
    skew: Skew,
    /// Unit, in steps, of the intervals between checks, which take long with many destinations.
    pace: u64,
    /// So many times as long as others each run is.
    length: u64,
    disk: SimDisk,
    mutant: Mutant,
    oracle: Oracle,
    sources: Vec<Source>,
    now: Millis,
    is_well: bool,
    /// The last run ended by a shutdown that came to its end.
    was_clean: bool,
    crash_count: u64,
    shutdown_count: u64,
}

/// Runs a seed; an error says which promise was broken.
///
/// # Errors
/// In words. A panic, of a violated invariant for instance, is one.
pub fn run(seed: u64, mutant: Mutant) -> Result<RelayCounts, String> {
    std::panic::catch_unwind(|| run_restarts(seed, mutant)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(format!("a panic: {}", text.unwrap_or_default()))
    })
}

fn run_restarts(seed: u64, mutant: Mutant) -> Result<RelayCounts, String> {
    let (mut rng, mut kind) = (Rng::new(seed), Rng::new(!seed));
    let (is_wide, has_wrong_clock) = (kind.chance(WIDE_PERCENT), kind.chance(WRONG_CLOCK_PERCENT));
    let decisions = kind.fork();
    let destinations = if is_wide { MANY_DESTINATIONS } else { FEW_DESTINATIONS };
    let mut world = World {
        kind,
        has_wrong_clock,
        skew: Skew::default(),
        pace: if is_wide { 64 } else { 1 },
        length: if is_wide { 8 } else { 1 },
        disk: SimDisk::new(rng.bits(), u64::MAX),
        rng,
        mutant,
        oracle: Oracle { destinations, judgments: SharedJudgments::new(decisions), ..Oracle::default() },
        sources: (0..SOURCES).map(|_| Source::default()).collect(),
        now: 1_000,
        is_well: false,
        was_clean: false,
        crash_count: 0,
        shutdown_count: 0,
    };
    for _ in 0..RESTARTS {
        world.plan();
        world.run_until_crash(STEPS * world.length)?;
        world.crash();
    }
    world.is_well = true;
    world.run_until_crash(LAST_STEPS)?;
    let oracle = &world.oracle;
    Ok(RelayCounts {
        mail_count: oracle.mails.len() as u64,
        acknowledged_count: oracle.acknowledged_count,
        refused_count: oracle.refused_count,
        discarded_count: oracle.discarded_count,
        reload_count: oracle.reload_count,
        late_count: oracle.late_count,
        arrival_count: oracle.arrived.values().map(|n| u64::from(*n)).sum(),
        report_count: oracle.reported.len() as u64,
        crash_count: world.crash_count,
        warning_count: oracle.warned.len() as u64,
        success_report_count: oracle.relayed.len() as u64,
        shutdown_count: world.shutdown_count,
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
        self.crash_count += u64::from(!self.was_clean);
        let is_kill = self.rng.chance(30);
        self.disk = if is_kill { self.disk.after_kill() } else { self.disk.after_crash(self.rng.bits()) };
        self.sources.iter_mut().for_each(Source::hang_up);
        self.set_clock(40);
    }

    /// From a start until the disk or the steps end; a well world ends when everything is delivered.
    fn run_until_crash(&mut self, steps: u64) -> Result<(), String> {
        let Some(mut driver) = self.start()? else { return Ok(()) };
        if self.is_well {
            driver.release_all(&mut self.oracle, &mut self.rng);
        }
        let stops = self.kind.chance(SHUTDOWN_PERCENT) && !self.is_well;
        for step in 0..steps {
            self.step(&mut driver, false);
            if self.check(&driver, step)? {
                break;
            }
            if self.is_well && driver.is_done() {
                return self.end(&driver);
            }
        }
        if stops && !self.disk.is_off() && !driver.spool.pressure().poisoned {
            self.shut_down(&mut driver)?;
        }
        if self.is_well { Err(format!("it never comes to its end: {}", driver.left())) } else { Ok(()) }
    }

    /// Compares what is there with what was promised. True when the disk or the spool has failed.
    fn check(&mut self, driver: &Driver, step: u64) -> Result<bool, String> {
        if self.disk.is_off() || driver.spool.pressure().poisoned {
            return Ok(true);
        }
        if step.is_multiple_of(self.pace) {
            driver.engine.check_invariants();
        }
        if step.is_multiple_of(64 * self.pace) {
            driver.check_messages()?;
        }
        if step.is_multiple_of(16 * self.pace) {
            self.oracle.check(&driver.queued(&self.oracle))?;
            self.oracle.check_repeats()?;
        }
        Ok(false)
    }

    /// Ends as the daemon does: nothing new begins, and what is decided is stored.
    fn shut_down(&mut self, driver: &mut Driver) -> Result<(), String> {
        self.sources.iter_mut().for_each(Source::hang_up);
        driver.shut_down(&mut self.oracle, &mut self.rng);
        for step in 0..SHUTDOWN_STEPS {
            self.step(driver, true);
            if self.check(driver, step)? {
                return Ok(());
            }
            if driver.is_quiet() {
                let (queued, stored) =
                    (driver.engine.queue().len() as u64, driver.spool.pressure().message_count);
                if queued != stored {
                    return Err(format!("{queued} messages are queued, and {stored} are in the spool"));
                }
                driver.check_counters(self.oracle.expected.most())?;
                driver.check_chunks()?;
                self.shutdown_count += 1;
                self.was_clean = true;
                return Ok(());
            }
        }
        Err(format!("it never stops: {} decisions are not stored", driver.engine.unstored_count()))
    }

    fn end(&self, driver: &Driver) -> Result<(), String> {
        self.oracle.check(&driver.queued(&self.oracle))?;
        self.oracle.check_repeats()?;
        let left = driver.spool.pressure().message_count;
        if left == 0 {
            Ok(())
        } else {
            Err(format!("the queue is empty, and {left} messages are in the spool"))
        }
    }

    /// `None`: the disk did not let it start.
    fn start(&mut self) -> Result<Option<Driver>, String> {
        let settings = LogSettings {
            // A report on all recipients of a message is one transaction.
            segment_bytes: if self.is_wide() { 1024 * 1024 } else { 52 * 1024 },
            max_bytes: 0,
            min_free_bytes: 0,
            queued_bytes_max: if self.is_wide() { 512 * 1024 } else { 24 * 1024 },
            outcome_delay: Duration::ZERO,
            read_threads: 1,
            commit_window: None,
        };
        let failed = |disk: &SimDisk, what: String| if disk.is_well() { Err(what) } else { Ok(None) };
        let disk = self.mutant.over(self.disk.clone());
        let mut spool = match LogSpool::open_mutant(disk, settings, self.mutant.of_spool(), true) {
            Ok(spool) => spool,
            Err(failure) => return failed(&self.disk, format!("the spool does not open: {failure}")),
        };
        let mut found: Vec<Recovered> = Vec::new();
        let report = match spool.recover(&mut |r| found.push(r)) {
            // What could not be read joins the queue at a later start only.
            Ok(report) if report.is_complete() && !self.disk.is_off() => report,
            Ok(report) => {
                return failed(&self.disk, format!("nothing was damaged, but {report:?}"));
            }
            Err(failure) => return failed(&self.disk, format!("no recovery: {failure}")),
        };
        let left = found.iter().flat_map(|one| &one.recipients).filter(|state| !state.settled).count();
        self.oracle.expected.check(&report, left as u64)?;
        self.oracle.expected.adopt(&report.totals);
        let plan = Plan {
            mutant: self.mutant.of_engine(),
            accept_mutant: self.mutant.of_accept(),
            cache_bytes: [0, 8 * 1024, 1 << 20][self.kind.index(3)],
            connections_max: [3, 1000][self.kind.index(2)],
            routes: self.kind.below(routing::Routes::COUNT) as u8,
            seed: self.rng.bits(),
        };
        let mut driver =
            Driver::new(spool, self.oracle.judgments.clone(), &plan, self.context(), self.is_well);
        let was_clean = std::mem::take(&mut self.was_clean);
        found.iter().for_each(|recovered| self.oracle.recovered(recovered, was_clean));
        driver.recover(&found, &report.totals, &mut self.oracle, &mut self.rng);
        self.oracle.check(&driver.queued(&self.oracle))?;
        Ok(Some(driver))
    }

    fn is_wide(&self) -> bool {
        self.oracle.destinations > FEW_DESTINATIONS
    }

    fn context(&self) -> Context {
        Context { now: self.now, wall: UnixMillis(self.skew.shows(self.now)), worker: None }
    }

    /// Lets the wall clock jump now and then.
    fn set_clock(&mut self, percent: u64) {
        if self.has_wrong_clock && self.kind.chance(percent) {
            self.skew.jump(&mut self.kind);
            self.oracle.was_far_off = self.skew.was_far_off();
        }
        self.disk.set_clock(self.skew.shows(self.now));
    }

    fn step(&mut self, driver: &mut Driver, is_closing: bool) {
        let (oracle, rng) = (&mut self.oracle, &mut self.rng);
        match rng.below(100) {
            0..40 if !self.is_well && !is_closing => {
                let at = rng.index(self.sources.len());
                self.sources[at].step(driver, oracle, rng);
            }
            0..70 if !driver.connections.is_empty() => {
                for _ in 0..1 + driver.connections.len() / 16 {
                    let at = rng.index(driver.connections.len());
                    let connection = driver.connections.swap_remove(at);
                    let connection = connection.step(driver, oracle, rng);
                    driver.connections.extend(connection);
                    if driver.connections.is_empty() {
                        break;
                    }
                }
            }
            0..90 => {
                for turn in [WorkStep::Prepare, WorkStep::Compact, WorkStep::Commit] {
                    if rng.chance(60) {
                        driver.spool.step(turn);
                    }
                }
            }
            90..98 => {
                let most = [10, 1_000, 60_000, 3_600_000][rng.index(4)];
                self.now += rng.below(most) as Millis;
            }
            _ if !self.is_well && !is_closing => driver.operate(oracle, rng),
            _ => driver.flush(oracle, rng),
        }
        self.set_clock(if self.is_well { 0 } else { 1 });
        driver.set_time(self.now, self.skew.shows(self.now));
        driver.work(&mut self.oracle, &mut self.rng);
        driver.check_connections(&mut self.oracle);
    }
}
