//! The metrics and the health of the daemon, as they are at one time.

use super::{Daemon, operator};
use control::Operations as _;
use metrics::{Build, DestinationGauges, ProcessUse, ResourceGauges, ShareGauges, Snapshot};
use rustix::{
    process::{Resource, getrlimit},
    time::{ClockId, clock_gettime},
};
use std::sync::PoisonError;

impl Daemon {
    /// Returns the mail of local programs that waits in the drop directory.
    pub(super) fn dropped(&self) -> submission::Waiting {
        self.dropped.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns all metrics in the text format of OpenMetrics.
    pub(super) fn scrape(&self) -> String {
        let driver = &self.driver;
        let gauges = operator::gauges(&self.acceptor);
        let (destinations, queued_messages) = {
            let state = driver.lock();
            (state.engine.queue().destinations(), state.engine.queue().len() as u64)
        };
        let suspended_destinations = destinations.iter().filter(|one| one.suspended.is_some()).count() as u64;
        let destinations = destinations.into_iter().map(|one| DestinationGauges {
            name: one.name.to_string(),
            ready: one.ready_count.into(),
            in_flight: one.in_flight_count.into(),
            waiting: one.waiting_count.into(),
            is_suspended: one.suspended.is_some(),
        });
        let helper = self.helper.as_ref().map(|process| process.helper().condition()).unwrap_or_default();
        self.metrics.scrape(Snapshot {
            recipients: self.counters(),
            queued_messages,
            held_messages: gauges.held,
            sessions: self.inbound.budget().session_count() as u64,
            delivery_connections: gauges.queue_connections.into(),
            shares: gauges
                .shares
                .iter()
                .map(|share| ShareGauges {
                    share: share.share.clone(),
                    used: share.used.into(),
                    max: share.max.into(),
                    waiting: share.waiting,
                })
                .collect(),
            resources: self
                .resources(&gauges.shares)
                .into_iter()
                .map(|one| ResourceGauges { name: one.name, used: one.used, max: one.max })
                .collect(),
            spool_commits: gauges.commits,
            spool_last_sync_us: gauges.last_sync_us,
            spool_queued_bytes: gauges.queued_bytes,
            spool_free_bytes: gauges.free_bytes,
            spool_is_faulty: gauges.failure.is_some() || !gauges.faults.is_empty(),
            unwritten_count: gauges.unwritten,
            accept_latency: self.acceptor.latency().histogram(),
            log_faults: driver.delivery_log.faults().len() as u64,
            log_lost: driver.delivery_log.lost_count(),
            process: process_use(self.started_seconds),
            build: Build { version: env!("CARGO_PKG_VERSION"), commit: console::COMMIT },
            certificate_expiry_seconds: self
                .tls
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .expires_seconds(),
            acme_failures: self.acme.as_ref().map_or(0, |acme| acme.status().failures_in_a_row.into()),
            suspended_destinations,
            helper_failures: helper.failure_count,
            helper_is_down: helper.fault.is_some(),
            dropped_messages: self.dropped().count,
            destinations: destinations.collect(),
        })
    }

    /// Returns whether new mail is taken.
    ///
    /// # Errors
    /// The reason why not.
    pub(super) fn readiness(&self) -> Result<(), String> {
        self.health()?;
        if self.inbound.is_drained() {
            return Err("an operator drains the listeners: `postrider resume` ends it".to_owned());
        }
        let pressure = self.driver.spool.pressure();
        if pressure.free_bytes == 0 {
            return Err("the disk of the spool is full".to_owned());
        }
        let most = self.driver.current().settings.queue.max_messages;
        if pressure.message_count >= most as u64 {
            return Err(format!("the queue has {most} messages, which is `queue.max_messages`"));
        }
        Ok(())
    }

    /// Returns whether the daemon works, and every recipient is accounted for.
    ///
    /// # Errors
    /// The reason why not.
    pub(super) fn health(&self) -> Result<(), String> {
        if let Some(failure) = self.driver.spool_failure() {
            return Err(format!("the spool failed: {failure}"));
        }
        if *self.driver.closing.borrow() {
            return Err("the daemon is stopping".to_owned());
        }
        if self.counters().is_consistent() {
            Ok(())
        } else {
            Err("recipients are unaccounted for".to_owned())
        }
    }
}

/// Returns what the process uses; zero where /proc does not say. The size of a page is not asked for: the kernel hides
/// /proc/self/auxv from a process that has changed its user.
fn process_use(started_seconds: f64) -> ProcessUse {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let bytes = |name: &str| {
        let value = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let kib = value.and_then(|value| value.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        kib.unwrap_or_default() * 1024
    };
    let cpu = clock_gettime(ClockId::ProcessCPUTime);
    ProcessUse {
        resident_bytes: bytes("VmRSS"),
        virtual_bytes: bytes("VmSize"),
        cpu_seconds: cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9,
        started_seconds,
        open_files: std::fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64),
        max_files: getrlimit(Resource::Nofile).current.unwrap_or_default(),
    }
}
