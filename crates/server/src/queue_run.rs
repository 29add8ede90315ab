//! `postrider queue run`: one pass over the queue from a cold start, as `sendmail -q` makes it. Every
//! message is read, sorted, and tried once; the time of each phase is printed.

mod collect;
mod loader;

use super::{
    delivery_log::DeliveryLog, engine_setup::EngineSetup, helper::HelperProcess, process,
    snapshot::ConfigSnapshot, wiring,
};
use crate::imported;
use collect::{Items, Source};
use config::Settings;
use control::Exit;
use engine::{Event, RetryAt};
use loader::Feed;
use mail::Disposition;
use queue::SortOrder;
use serde::Serialize;
use spool::Spool;
use std::{
    io::{self, Write},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// Interval of the check for the end of the run; the time of the last outcome is its end.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// What `postrider queue run` is asked for.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// In which order messages are delivered.
    pub order: SortOrder,
    /// Connections at a time.
    pub runners: u32,
    /// Reads and sorts, and leaves the queue as it is.
    pub dry_run: bool,
}

/// The result of a queue run; durations in microseconds.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    order: &'static str,
    runners: u32,
    messages: u64,
    queue_read_us: u64,
    queue_sort_us: u64,
    sum_us: u64,
    time_to_first_delivery_us: Option<u64>,
    time_to_empty_us: Option<u64>,
    delivered: u64,
    deferred: u64,
    failed: u64,
    lock_conflicts: u64,
}

/// Outcomes as they come, counted and timed from the start of the run.
struct RunStats {
    begun: Instant,
    first_us: AtomicU64,
    last_us: AtomicU64,
    by_fate: [AtomicU64; 3],
}

impl RunStats {
    fn new(begun: Instant) -> Self {
        Self { begun, first_us: AtomicU64::new(0), last_us: AtomicU64::new(0), by_fate: Default::default() }
    }

    fn note(&self, dispositions: impl Iterator<Item = Disposition>) {
        let now = self.begun.elapsed().as_micros() as u64;
        for disposition in dispositions {
            self.by_fate[disposition as usize].fetch_add(1, Ordering::Relaxed);
            if disposition == Disposition::Delivered {
                let _ = self.first_us.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
            }
        }
        self.last_us.fetch_max(now, Ordering::Relaxed);
    }

    fn count(&self, disposition: Disposition) -> u64 {
        self.by_fate[disposition as usize].load(Ordering::Relaxed)
    }
}

/// Runs once; the daemon must not be running.
///
/// # Errors
/// The helper, the spool, the configured maps or the logs cannot be opened, or the spool fails during the run. The
/// text is for the operator.
pub fn run(
    settings: &Settings,
    source: Option<&Path>,
    options: Options,
    json: bool,
    out: &mut dyn Write,
) -> Result<Exit, String> {
    process::raise_limits();
    let helper = if options.dry_run { None } else { HelperProcess::start_if_needed(settings, source)? };
    let builder = &mut tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.enable_all().build().map_err(|e| format!("start the runtime: {e}"))?;
    let context = runtime.enter();
    let current = wiring::current(settings.clone(), None, helper.as_ref().map(HelperProcess::helper))?;
    let begun = Instant::now();
    probe::probe!(postrider, queue_read_start);
    let (mut items, source) = collect::read(settings, options, &current)?;
    let read = begun.elapsed();
    probe::probe!(postrider, queue_read_done, items.len());
    probe::probe!(postrider, queue_sort_start);
    items.sort(options.order);
    probe::probe!(postrider, queue_sort_done, items.len());
    let sum = begun.elapsed();
    drop(context);
    let mut report = Report {
        order: options.order.as_str(),
        runners: options.runners,
        messages: items.len() as u64,
        queue_read_us: read.as_micros() as u64,
        queue_sort_us: (sum - read).as_micros() as u64,
        sum_us: sum.as_micros() as u64,
        ..Report::default()
    };
    if !matches!(source, Source::Untouched) {
        probe::probe!(postrider, queue_run_start);
        deliver(&runtime, settings, current, source, items, options, begun, &mut report)?;
        probe::probe!(postrider, queue_run_done, report.messages);
    }
    runtime.shutdown_timeout(Duration::from_secs(1));
    // A run that only looks changes nothing, and this file neither.
    if !options.dry_run
        && let Err(e) = keep(settings, &report)
    {
        tracing::warn!("keep the phases of the queue run for `postrider status`: {e}");
    }
    print(&report, json, out).map_err(|e| e.to_string())?;
    Ok(Exit::Ok)
}

/// The file in the data directory with the phases of the last run.
const LAST_RUN: &str = "queue-run.json";

/// Keeps the phases for `postrider status`.
fn keep(settings: &Settings, report: &Report) -> io::Result<()> {
    let (new, path) = (settings.data_dir.join("queue-run.json.new"), settings.data_dir.join(LAST_RUN));
    let mut value = serde_json::to_value(report)?;
    value["ended_at"] = mail::UnixMillis::now().rfc5322().into();
    std::fs::write(&new, value.to_string())?;
    std::fs::rename(new, path)
}

/// Returns the phases of the last run that was no dry run.
pub fn last(settings: &Settings) -> Option<serde_json::Value> {
    let path = settings.data_dir.join(LAST_RUN);
    serde_json::from_slice(&config::read_state_file(&settings.data_dir, &path).ok()?).ok()
}

#[allow(clippy::too_many_arguments)] // once, with everything the start has made
fn deliver(
    runtime: &tokio::runtime::Runtime,
    settings: &Settings,
    current: ConfigSnapshot,
    source: Source,
    items: Items,
    options: Options,
    begun: Instant,
    report: &mut Report,
) -> Result<(), String> {
    let watch = Arc::new(RunStats::new(begun));
    let (watching, log) = (watch.clone(), wiring::log(settings, wiring::history(settings)?)?);
    let delivery_log =
        DeliveryLog::observed(log, move |results| watching.note(results.iter().map(|r| r.1.disposition)));
    let mut engine_settings = wiring::engine_settings(settings)?;
    engine_settings.retry_at = RetryAt::Now;
    engine_settings.queue.connections_max = options.runners;
    for group in &mut engine_settings.queue.groups {
        // Sorted already; and who asks for a run does not want a slow start.
        group.order = SortOrder::None;
        group.concurrency_limit = options.runners;
        group.initial_concurrency = options.runners;
    }
    let context = runtime.enter();
    let mut setup = EngineSetup::new(engine_settings, Arc::new(current));
    let (spool, mut feed): (Arc<dyn Spool>, _) = match (source, items) {
        (Source::Listed(spool), Items::Listed(listed)) => {
            listed.iter().for_each(|one| setup.ids.never_before(one.id));
            (spool.clone(), Some(Feed::new(spool, listed, &settings.data_dir)))
        }
        (Source::Recovered(spool, copies), Items::Read(items)) => {
            items.iter().for_each(|item| setup.recovered(&item.found));
            imported::note_recovered(&settings.data_dir, setup.take_imported())?;
            copies.iter().for_each(|copy| setup.second_copy(copy));
            (Arc::from(spool), None)
        }
        _ => return Ok(()), // only looked at
    };
    let (driver, effects) = setup.into_driver(spool.clone(), delivery_log);
    let driver = Arc::new(driver);
    drop(context);
    runtime.block_on(async {
        let mut spool_failed = driver.spool.failed();
        driver.defer_expansions();
        driver.begin(effects);
        tokio::spawn(driver.clone().run_timer());
        driver.handle(Event::Started);
        let mut look = tokio::time::interval(LOOK_INTERVAL);
        loop {
            if let Some(feed) = &mut feed {
                feed.fill(&driver).await?;
            }
            let is_read = feed.as_ref().is_none_or(Feed::is_over);
            // What is decided must be handed to the spool before it is closed.
            if is_read && driver.lock().engine.queue().busy_count() == 0 && driver.unstored_count() == 0 {
                break;
            }
            tokio::select! {
                _ = look.tick() => {}
                () = driver.failed.notified() => return Err("the spool failed".to_owned()),
                failure = &mut spool_failed => return Err(format!("the spool failed: {failure}")),
            }
        }
        driver.close();
        // The summary of failed notifications.
        while driver.unstored_count() > 0 {
            look.tick().await;
        }
        Ok(())
    })?;
    spool.close();
    let some = |us: u64| (us > 0).then_some(us);
    report.time_to_first_delivery_us = some(watch.first_us.load(Ordering::Relaxed));
    report.time_to_empty_us = some(watch.last_us.load(Ordering::Relaxed));
    report.delivered = watch.count(Disposition::Delivered);
    report.deferred = watch.count(Disposition::Deferred);
    report.failed = watch.count(Disposition::Failed);
    report.lock_conflicts = driver.conflict_count();
    Ok(())
}

fn print(report: &Report, json: bool, out: &mut dyn Write) -> io::Result<()> {
    if json {
        serde_json::to_writer(&mut *out, report)?;
        return writeln!(out);
    }
    let ms = |us: u64| format!("{}.{:03} ms", us / 1000, us % 1000);
    let maybe = |us: Option<u64>| us.map_or("-".to_owned(), ms);
    writeln!(out, "order                   {}", report.order)?;
    writeln!(out, "runners                 {}", report.runners)?;
    writeln!(out, "messages                {}", report.messages)?;
    writeln!(out, "queue-read              {}", ms(report.queue_read_us))?;
    writeln!(out, "queue-sort              {}", ms(report.queue_sort_us))?;
    writeln!(out, "sum                     {}", ms(report.sum_us))?;
    writeln!(out, "time to first delivery  {}", maybe(report.time_to_first_delivery_us))?;
    writeln!(out, "time to empty           {}", maybe(report.time_to_empty_us))?;
    let (delivered, deferred, failed) = (report.delivered, report.deferred, report.failed);
    writeln!(out, "recipients              {delivered} delivered, {deferred} deferred, {failed} failed")?;
    writeln!(out, "lock conflicts          {}", report.lock_conflicts)
}
