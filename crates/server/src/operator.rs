//! Requests of operators and local users to the running daemon.

use super::{
    Daemon, copy,
    driver::{Driver, State},
    redirect::{self, Redirected},
    snapshot::ConfigSnapshot,
};
use accept::Acceptor;
use bytes::Bytes;
use control::{
    Action, Applied, AttemptInfo, CertificateInfo, ConnectionShare, DeliveryHelper, DestinationInfo,
    ExchangerConnections, Failure, Gauges, Id, Matched, MessageCopy, MessageInfo, Operations, OptionsInfo,
    RecipientInfo, RedirectTo, RenewalFailure, RenewalInfo, Status, Summary, SummaryBy, WaitInfo,
};
use engine::{Command, Engine, LastOutcome};
use inbound::Draft;
use machine::accounts;
use mail::{ChunkId, QueueId, ReceivedContent, SharedMessage, UnixMillis};
use queue::{CancelAs, CommandResult, JobView, MessageView};
use report::RecipientCounters;
use spool::SpoolFailure;
use std::{
    sync::{Arc, PoisonError},
    time::Duration,
};
use submission::{Refusal, Submission};

impl Operations for Daemon {
    fn ids(&self) -> Vec<QueueId> {
        self.driver.lock().engine.queue().ids()
    }

    async fn notified(&self) {
        const INTERVAL: Duration = Duration::from_millis(2);
        /// A disk that takes no commits holds a backup up so long.
        const TIMEOUT: Duration = Duration::from_secs(30);
        let newest = self.driver.lock().engine.newest_task();
        let waited = async {
            while self.driver.lock().engine.is_storing_reports(newest) {
                tokio::time::sleep(INTERVAL).await;
            }
        };
        if tokio::time::timeout(TIMEOUT, waited).await.is_err() {
            tracing::warn!(
                "backup: notifications are not durable after 30 s; they may be missing in the backup"
            );
        }
    }

    async fn messages(&self, ids: &[QueueId]) -> Vec<MessageInfo> {
        let mut all = Vec::with_capacity(ids.len());
        for id in ids {
            all.extend(listed(&self.driver, *id).await);
        }
        all
    }

    async fn header(&self, id: QueueId, max_bytes: usize) -> Result<Option<Vec<u8>>, Failure> {
        let message = match self.driver.read(id).await {
            Ok(message) => message,
            Err(SpoolFailure::Missing) => return Ok(None),
            Err(failure) => return Err(failed(&failure)),
        };
        let mut header = self.driver.content_up_to(&message, max_bytes).await;
        if let Some(end) = header.windows(4).position(|w| w == b"\r\n\r\n") {
            header.truncate(end + 2);
        }
        header.truncate(max_bytes);
        Ok(Some(header))
    }

    async fn apply(&self, action: Action, meant: &[Matched], uid: u32) -> Result<Applied, Failure> {
        let (user, mut applied) = (user_of(uid), Applied::default());
        let log = |one: &Matched| self.driver.delivery_log.changed(action.as_str(), one, (&user, uid), None);
        let mut answers = Vec::with_capacity(meant.len());
        for one in meant {
            let why_unchanged = self.why_unchanged(action, one.id);
            // What ends a message comes before the end, and its release before the attempt.
            let is_logged = {
                let state = self.driver.lock();
                let queue = state.engine.queue();
                match action {
                    Action::Release => queue.is_held(one.id),
                    action => action.is_of_recipients() && queue.contains(one.id),
                }
            };
            if is_logged {
                log(one);
            }
            answers.push((one, why_unchanged, is_logged, self.driver.request(command(action, one, &user))));
        }
        // After all of them were handed to the spool, so that they share its commits.
        for (one, why_unchanged, is_logged, answer) in answers {
            // Without an answer the daemon ends.
            let answer = answer.await.unwrap_or(Err(SpoolFailure::Io("the daemon ends".to_owned())));
            match answer.map_err(|failure| failed(&failure))? {
                CommandResult::Missing => continue,
                CommandResult::Unchanged => applied.add_unchanged(why_unchanged),
                CommandResult::Changed if action.is_of_recipients() => {}
                CommandResult::Changed => {
                    if !is_logged {
                        log(one);
                    }
                    let reason = (action == Action::Retry).then(|| self.why_waiting(one.id)).flatten();
                    reason.into_iter().for_each(|why| *applied.waiting.entry(why).or_default() += 1);
                }
            }
            applied.found += 1;
        }
        self.log_operator(action.as_str(), applied.found - applied.unchanged_count(), &user);
        Ok(applied)
    }

    async fn check_redirect(&self, to: &RedirectTo) -> Result<Option<String>, Failure> {
        redirect::check(&self.driver.current(), to).await
    }

    async fn redirect(&self, to: &RedirectTo, meant: &[Matched], uid: u32) -> Result<Applied, Failure> {
        let (user, mut applied) = (user_of(uid), Applied::default());
        let target = redirect::target(&self.driver.current(), to).await?.0;
        for one in meant {
            match self.redirect_message(one, &target, &user).await? {
                Redirected::Missing => continue,
                Redirected::Unchanged => applied.add_unchanged("being delivered now"),
                Redirected::Done { recipients, id } => {
                    let detail = format!("{recipients} to {target} as {id}");
                    self.driver.delivery_log.changed("redirect", one, (&user, uid), Some(&detail));
                    let (detail, new) = (format!("from {}: {recipients} to {target}", one.id), one.clone());
                    let new = Matched { id, ..new };
                    self.driver.delivery_log.changed("redirect", &new, (&user, uid), Some(&detail));
                }
            }
            applied.found += 1;
        }
        self.log_operator("redirect", applied.found - applied.unchanged_count(), &user);
        Ok(applied)
    }

    fn flush(&self, uid: u32) -> u64 {
        let now = self.driver.clock.now();
        let count = self.driver.lock().engine.queue().flushable_count(now) as u64;
        // Nothing is stored: the answer is there already.
        drop(self.driver.request(Command::Flush));
        self.log_operator("flush", count, &user_of(uid));
        count
    }

    async fn summary(&self, by: SummaryBy) -> Vec<DestinationInfo> {
        if matches!(by, SummaryBy::Sender | SummaryBy::SenderDomain) {
            return self.summary_of_senders(by).await;
        }
        let (mut summary, now, mut from) = (Summary::default(), UnixMillis::now(), Some(0));
        let mut silent = None;
        while let Some(place) = from {
            {
                // The lock is held for some places at a time, so that mail goes on.
                let state = self.driver.lock();
                let (jobs, next) = state.engine.scan_jobs(place);
                let silent = silent.get_or_insert_with(|| state.silent_destinations());
                for (job, outcomes) in jobs {
                    let held = state.engine.hold_reason(job.id).map(control::held_text);
                    let queue = state.engine.queue();
                    let name = queue.destination_name(job.destination).to_string();
                    let age_ms = now.0.saturating_sub(state.engine.on_wall(job.arrived).0);
                    let down = queue.down_reason(job.destination).map(|outcome| outcome.text.to_string());
                    let down = down.or_else(|| silent.get(&job.destination).map(AttemptInfo::reason));
                    let reasons = outcomes.iter().map(|one| {
                        let last = || one.as_ref().map(|last| last.outcome.text.to_string());
                        held.clone().or_else(last).or_else(|| down.clone())
                    });
                    if by == SummaryBy::Destination {
                        summary.add(&name, age_ms, reasons);
                        continue;
                    }
                    for reason in reasons {
                        let reason = reason.as_deref().unwrap_or(control::NO_REASON);
                        summary.add(reason, age_ms, std::iter::once(None));
                    }
                }
                from = next;
            }
            tokio::task::yield_now().await;
        }
        let state = self.driver.lock();
        for one in state.engine.queue().destinations() {
            if by == SummaryBy::Destination
                && let Some((until, reason)) = &one.suspended
            {
                let on_wall = |at| state.engine.on_wall(at).0;
                let is_probing = until.is_none() && one.connection_count > 0;
                summary.suspended(
                    &one.name.to_string(),
                    one.down_since.map(on_wall),
                    (is_probing, until.map(on_wall)),
                    &reason.text,
                );
            }
        }
        summary.finish()
    }

    fn metrics(&self) -> String {
        self.scrape()
    }

    fn gauges(&self) -> Gauges {
        let helper = self.helper.as_ref().map(|process| process.helper().condition());
        let helper = helper.map(|condition| DeliveryHelper {
            failure_count: condition.failure_count,
            fault: condition.fault,
        });
        let (dropped, gauges) = (self.dropped(), gauges(&self.acceptor));
        Gauges {
            delivery_helper: helper,
            sandbox_fault: self.process.sandbox_fault(),
            dropped: dropped.count,
            dropped_reason: dropped.reason,
            dropped_directories: dropped.directories,
            dropped_directories_of: dropped.directories_of,
            drained_listeners: self.inbound.drained(),
            resources: self.resources(&gauges.shares),
            ..gauges
        }
    }

    fn counters(&self) -> RecipientCounters {
        self.driver.lock().engine.counters()
    }

    async fn copy(&self, id: QueueId) -> Result<Option<MessageCopy>, Failure> {
        copy::message(&self.driver, id).await
    }

    async fn chunk(&self, id: QueueId, chunk_id: ChunkId) -> Result<Option<Bytes>, Failure> {
        copy::chunk(&self.driver, id, chunk_id).await
    }

    fn certificates(&self) -> Vec<CertificateInfo> {
        let current = self.tls.lock().unwrap_or_else(PoisonError::into_inner).clone();
        current.describe()
    }

    fn renewal(&self) -> Option<RenewalInfo> {
        let status = self.acme.as_ref()?.status();
        Some(RenewalInfo {
            names: self.started.acme.names.iter().map(|name| name.0.clone()).collect(),
            due_seconds: status.renewal,
            obtained: status.obtained,
            failed: status.failed,
            failures_in_a_row: status.failures_in_a_row,
            failure: status.last_failure.map(|(at_seconds, text)| RenewalFailure { at_seconds, text }),
            next_attempt_seconds: status.next_attempt,
            is_busy: status.is_busy,
        })
    }

    fn renew(&self) -> Result<(), Failure> {
        let none = || Failure::Failed { text: "the daemon obtains no certificate".to_owned() };
        self.acme.as_ref().ok_or_else(none)?.renew();
        Ok(())
    }

    async fn reload(&self) -> Result<Vec<String>, Failure> {
        self.reload_configuration().await
    }

    fn set_drained(&self, listener: Option<&str>, is_drained: bool) -> Result<Vec<String>, Failure> {
        let unknown = |known: Vec<String>| Failure::Missing {
            text: format!(
                "no listener has the address, port or kind {:?}; the listeners are: {}",
                listener.unwrap_or_default(),
                known.join(", ")
            ),
        };
        let listeners = self.inbound.set_drained(listener, is_drained).map_err(unknown)?;
        let (action, names) = (if is_drained { "drain" } else { "resume" }, listeners.join(","));
        self.driver.delivery_log.write(&report::Event::Listeners { action, listeners: &names });
        tracing::info!("{action}: {names}");
        Ok(listeners)
    }
}

impl submission::Acceptor for Daemon {
    async fn submit(&self, submission: Submission) -> Result<QueueId, Refusal> {
        let uid = submission.uid;
        self.acceptor.accept_local(uid, self.draft(submission)).await
    }

    async fn give_back(&self, submission: Submission, why: &str) -> Result<QueueId, Refusal> {
        let id = self.acceptor.hold_refused(self.draft(submission), why).await?;
        let (cancel_as, reason) = (CancelAs::Bounce, Some(why.into()));
        drop(self.driver.request(Command::Cancel { id, recipients: None, cancel_as, reason }));
        Ok(id)
    }
}

impl Daemon {
    /// Counts recipients by sender. The envelopes are read from the spool, some at a time.
    async fn summary_of_senders(&self, by: SummaryBy) -> Vec<DestinationInfo> {
        let (mut summary, now) = (Summary::default(), UnixMillis::now());
        for ids in self.ids().chunks(control::server::PAGE) {
            self.messages(ids).await.iter().for_each(|message| summary.add_message(by, message, now.0));
        }
        summary.finish()
    }

    /// Returns what a message waits for that is due: a message of which a job is being delivered waits for nothing.
    fn why_waiting(&self, id: QueueId) -> Option<String> {
        let state = self.driver.lock();
        let queue = state.engine.queue();
        let view = queue.message(id)?;
        if view.jobs.iter().any(|job| job.status == queue::JobStatus::InFlight) {
            return None;
        }
        let is_due =
            |job: &&JobView| matches!(job.status, queue::JobStatus::Ready | queue::JobStatus::Suspended(..));
        let job = view.jobs.iter().find(is_due)?;
        let (destination, open) = (&job.destination, queue.connections_of(job.destination_id).open);
        if let Some(reason) = queue.down_reason(job.destination_id) {
            return Some(format!(
                "for the probe of {destination}, which was down until now: {}",
                reason.text
            ));
        }
        let others = queue.job_count(job.destination_id).saturating_sub(1);
        match open {
            0 => Some("for a connection: all that are allowed at a time are in use".to_owned()),
            _ if others > open => {
                let open = mail::counted(open.into(), "connection");
                Some(format!("behind other mail for {destination}, which has {open}"))
            }
            _ => None,
        }
    }

    fn log_operator(&self, action: &str, messages: u64, user: &str) {
        if messages > 0 {
            self.driver.delivery_log.write(&report::Event::Operator { action, messages, user: Some(user) });
        }
    }

    /// Returns why an action would leave a message as it is, if it does.
    fn why_unchanged(&self, action: Action, id: QueueId) -> &'static str {
        match action {
            Action::Hold => return "held already",
            Action::Release => return "not held",
            Action::Retry | Action::Bounce | Action::Delete => {}
        }
        let state = self.driver.lock();
        if state.engine.queue().is_held(id) {
            return "held: release them first";
        }
        let view = state.engine.queue().message(id);
        let is_in_flight = |job: &JobView| job.status == queue::JobStatus::InFlight;
        if view.is_some_and(|view| view.jobs.iter().all(is_in_flight)) {
            return "being delivered now";
        }
        "not before the time that their senders chose"
    }

    /// Returns the message that a program of this machine has handed in.
    fn draft(&self, submission: Submission) -> Draft {
        let now = UnixMillis::now();
        let id = self.driver.ids.next(now.0);
        Draft {
            id,
            arrived: now,
            origin: submission.origin(),
            content: with_trace(&submission, self, id, now),
            envelope: submission.envelope,
        }
    }
}

/// Returns the name of a user, or its number: of a user from a directory, too, whose answer the daemon's thread would wait for.
fn user_of(uid: u32) -> String {
    // A daemon that stays root cannot read a new /etc/passwd: see docs/operating/sandbox.md.
    let known = accounts::user_numbered_in_file(uid).ok().flatten().map(|user| user.name);
    known.unwrap_or_else(|| if uid == 0 { "root".to_owned() } else { format!("uid-{uid}") })
}

/// An action of a user on one message, in the engine's terms.
fn command(action: Action, meant: &Matched, user: &str) -> Command {
    let (id, recipients, reason) = (meant.id, meant.recipients.clone(), meant.reason.clone());
    match action {
        Action::Retry => Command::Retry(id),
        Action::Hold => {
            let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
            Command::Hold { id, reason: format!("by {user}{reason}").into() }
        }
        Action::Release => Command::Release(id),
        Action::Bounce => Command::Cancel { id, recipients, cancel_as: CancelAs::Bounce, reason },
        Action::Delete => Command::Cancel { id, recipients, cancel_as: CancelAs::Delete, reason },
    }
}

/// The use of the shares of the connections out.
pub(super) fn shares(driver: &Driver) -> Vec<ConnectionShare> {
    let views = driver.lock().engine.queue().shares();
    let shown = |view: queue::ShareView| ConnectionShare {
        share: view.share.as_str().to_owned(),
        used: view.used,
        max: view.max,
        waiting: view.waiting as u64,
    };
    views.map(shown).into()
}

/// Speed, room and health of the spool.
pub(super) fn gauges(acceptor: &Acceptor<Driver>) -> Gauges {
    let driver = acceptor.intake();
    let pressure = driver.spool.pressure();
    let stats = driver.spool.commit_stats();
    let (client_connections, queue_connections, connection_drift) = driver.connection_counts();
    let (accept_latency_count, accept_latency_mean_us, accept_latency_max_us) = acceptor.latency().sums();
    let (held, unsummarized, busiest, silent) = {
        let state = driver.lock();
        let queue = state.engine.queue();
        (
            queue.held_count() as u64,
            state.engine.unsummarized_count(),
            queue.busiest_exchanger(),
            state.silent_servers(),
        )
    };
    let busiest_exchanger = busiest.map(|one| ExchangerConnections {
        exchanger: one.name.to_string(),
        used: one.used,
        waiting: one.waiting as u64,
    });
    Gauges {
        failure: driver.spool_failure(),
        faults: driver.spool.faults(),
        messages: pressure.message_count,
        transactions: pressure.transaction_count,
        commits: pressure.commit_count,
        last_sync_us: pressure.last_sync_us,
        queued_bytes: pressure.queued_bytes,
        free_bytes: driver.spool.room_bytes(),
        accept_latency_count,
        accept_latency_mean_us,
        accept_latency_max_us,
        lock_conflicts: driver.conflict_count(),
        client_connections,
        queue_connections,
        shares: shares(driver),
        silent,
        busiest_exchanger,
        connection_drift,
        start_read_us: driver.start_read_us.load(std::sync::atomic::Ordering::Relaxed),
        unwritten: driver.unstored.delivered_count(),
        durability: driver.current().settings.spool.durability.as_str().to_owned(),
        commit_messages_max: stats.messages_max,
        added_wait_count: stats.message_count,
        added_wait_sum_us: stats.added_wait_sum_us,
        added_wait_p50_us: stats.added_wait_percentile_us(50),
        added_wait_p99_us: stats.added_wait_percentile_us(99),
        added_wait_max_us: stats.added_wait_max_us,
        delivery_helper: None,
        sandbox_fault: None,
        dropped: 0,
        dropped_reason: None,
        dropped_directories: 0,
        dropped_directories_of: None,
        name_server_fault: driver.current().sources.dns().name_server_fault(),
        held,
        unsummarized,
        drained_listeners: Vec::new(),
        resources: Vec::new(),
        map_faults: driver.current().maps.file_faults(),
        filter_faults: driver.current().pipeline.filter_faults(),
        list_faults: driver.current().sources.list_faults(),
        log_faults: driver.delivery_log.faults(),
        log_lost: driver.delivery_log.lost_count(),
    }
}

/// Local mail gets a `Received` field of its own (RFC 5321 §4.4).
fn with_trace(submission: &Submission, daemon: &Daemon, id: QueueId, now: UnixMillis) -> ReceivedContent {
    let hostname = &daemon.driver.current().settings.hostname;
    let mut bytes = format!(
        "Received: by {hostname} (Postrider, from userid {})\r\n\tid {id}; {}\r\n",
        submission.uid,
        now.rfc5322()
    )
    .into_bytes();
    let trace_bytes = bytes.len();
    bytes.extend_from_slice(&submission.content);
    let mut content = ReceivedContent::from_bytes(bytes, trace_bytes);
    content.separate_body();
    content
}

fn failed(failure: &SpoolFailure) -> Failure {
    Failure::Failed { text: failure.to_string() }
}

/// Returns a message as listings show it; none if it has left the queue in the meantime.
async fn listed(driver: &Arc<Driver>, id: QueueId) -> Option<MessageInfo> {
    let (view, outcomes) = {
        let state = driver.lock();
        (state.engine.queue().message(id)?, state.engine.last_outcomes(id).to_vec())
    };
    let read = driver.read(id).await;
    let (current, state) = (driver.current(), driver.lock());
    match read {
        Ok(message) => Some(describe(&current, &state, &message, &view, &outcomes)),
        // What is in the queue is in the spool, or it is lost.
        Err(failure) if state.engine.queue().contains(id) => {
            Some(describe_damaged(&state, &view, &outcomes, &failure))
        }
        Err(_) => None,
    }
}

fn describe(
    current: &ConfigSnapshot,
    state: &State,
    message: &SharedMessage,
    view: &MessageView,
    notes: &[LastOutcome],
) -> MessageInfo {
    let recipients = (0..).zip(&message.envelope.recipients).zip(current.routes.envelope(&message.envelope));
    let recipients = recipients.map(|((index, recipient), (destination, _))| {
        let address = recipient.path.as_str().to_owned();
        let expanded_from = RecipientInfo::expansion_of(recipient);
        let return_path = RecipientInfo::return_path_of(recipient);
        match described(state, view, notes, index) {
            Some(row) => RecipientInfo { address, expanded_from, return_path, ..row },
            None => {
                let end = notes.iter().find(|note| note.0 == index).map(|note| (&note.1.outcome, note.2));
                let row = RecipientInfo::finished(address, destination.to_string(), end);
                RecipientInfo { expanded_from, return_path, ..row }
            }
        }
    });
    MessageInfo {
        id: Id(message.id),
        size_bytes: message.content.size_bytes(),
        arrived_ms: message.arrived.0,
        sender: message.envelope.reverse_path.as_str().to_owned(),
        origin: message.origin.to_string(),
        options: message.envelope.options.as_deref().map(OptionsInfo::from),
        recipients: recipients.collect(),
        hold_reason: state.engine.hold_reason(message.id).map(str::to_owned),
        damaged: None,
    }
}

/// Describes a message whose envelope cannot be read, with the data of the queue: everything but addresses.
fn describe_damaged(
    state: &State,
    view: &MessageView,
    notes: &[LastOutcome],
    failure: &SpoolFailure,
) -> MessageInfo {
    let mut left: Vec<u32> = view.jobs.iter().flat_map(|job| job.recipients.iter().copied()).collect();
    left.sort_unstable();
    MessageInfo {
        id: Id(view.id),
        size_bytes: u64::from(view.size_bytes),
        arrived_ms: state.engine.on_wall(view.arrived).0,
        sender: String::new(),
        origin: String::new(),
        options: None,
        recipients: left.into_iter().filter_map(|index| described(state, view, notes, index)).collect(),
        hold_reason: state.engine.hold_reason(view.id).map(str::to_owned),
        damaged: Some(failure.to_string()),
    }
}

/// Describes a recipient that is not finished, without its address.
fn described(state: &State, view: &MessageView, notes: &[LastOutcome], index: u32) -> Option<RecipientInfo> {
    let job = view.jobs.iter().find(|job| job.recipients.contains(&index))?;
    let mut row = placed(&state.engine, job);
    row.attempt = state.attempt_for(job);
    if let Some((_, cancel_as)) = job.cancelled.iter().find(|(cancelled, _)| *cancelled == index) {
        row.reason = Some(cancelled_text(*cancel_as).to_owned());
    }
    if let Some((_, last, at)) = notes.iter().find(|note| note.0 == index) {
        row.last = Some(last.outcome.text.to_string());
        row.last_ms = Some(at.0);
    }
    Some(row)
}

/// Returns the text about a recipient in flight that an operator cancelled.
fn cancelled_text(cancel_as: CancelAs) -> &'static str {
    match cancel_as {
        CancelAs::Bounce => "bounced when this attempt ends, unless it delivers",
        CancelAs::Delete => "deleted when this attempt ends, unless it delivers",
    }
}

const FREE: &str = "when a connection to the destination is free";

/// Describes the status of a job, and its reason.
fn placed(engine: &Engine, job: &JobView) -> RecipientInfo {
    let mut row = RecipientInfo {
        address: String::new(),
        expanded_from: Vec::new(),
        return_path: None,
        destination: job.destination.to_string(),
        status: Status::Ready,
        attempt_count: u32::from(job.attempt_count),
        last: None,
        last_ms: None,
        next_ms: None,
        reason: None,
        wait: Some(WaitInfo {
            down_since_ms: engine.queue().down_since(job.destination_id).map(|at| engine.on_wall(at).0),
            connections: engine.queue().connections_of(job.destination_id).open,
            others: u64::from(engine.queue().job_count(job.destination_id).saturating_sub(1)),
            expires_ms: job.expires.map(|at| engine.on_wall(at).0),
            warns_ms: job.warns.map(|at| engine.on_wall(at).0),
        }),
        attempt: None,
    };
    match &job.status {
        queue::JobStatus::Ready => {
            // Neither used nor given up: it is being opened.
            let is_opening = engine.queue().connections_of(job.destination_id).unused > 0;
            let when = if is_opening { "when the connection that is being opened is ready" } else { FREE };
            row.reason = Some(when.to_owned());
        }
        queue::JobStatus::Suspended(until, reason) => {
            row.status = Status::Suspended;
            row.next_ms = until.map(|until| engine.on_wall(until).0);
            row.last = Some(reason.text.to_string());
            let when = if until.is_some() {
                "the destination is probed then"
            } else {
                "the destination is probed now"
            };
            row.reason = Some(when.to_owned());
        }
        queue::JobStatus::InFlight => {
            row.status = Status::InFlight;
            let reason = engine.queue().down_reason(job.destination_id);
            row.last = reason.map(|outcome| outcome.text.to_string());
        }
        queue::JobStatus::Waiting(due) => {
            row.status = Status::Waiting;
            row.next_ms = Some(engine.on_wall(*due).0);
            row.reason = Some(
                "the last attempt was deferred; the interval grows with the age of the message".to_owned(),
            );
        }
        queue::JobStatus::Held => {
            row.status = Status::Held;
            row.reason = Some("not before an operator releases the message".to_owned());
        }
    }
    row
}
