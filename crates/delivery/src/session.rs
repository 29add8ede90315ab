//! One connection: leases in, transactions on the wire, outcomes back.

mod conversion;
mod results;

use crate::{
    DeliverySettings, LeasedMessage, WorkSource,
    active_lease::{ActiveLease, Unfinished},
    buffered_stream::BufferedStream,
    connect::{Ready, lost, reply_timeout},
    courier::withdrawn,
    exchanger_budget::Unproven,
    reply_rules::{ClearTextRefusal, wants_login},
};
use bytes::Bytes;
use mail::{Attempt, Disposition, DsnDuty, Enhanced, Message, Outcome, SharedMessage, UnixMillis};
use smtp::client::{Connection, Event, ExpectedReply, OutputPiece, Phase, Transaction};
use std::{
    io,
    time::{Duration, Instant},
};

/// The time limit for the reply to QUIT, and for reading the reason of a server that takes no more.
const QUIT_TIMEOUT: Duration = Duration::from_secs(2);
/// Wake-ups without work, after which the connection is taken as superfluous.
const SPURIOUS_WAKEUPS_MAX: u32 = 3;
/// A connection that has delivered is given up for others only when its server has been silent for so long.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(10);
/// The most pieces that are gathered for one write.
const PIECES_MAX: usize = 32;

/// What is left of a connection that ended, and what it has shown of its server.
pub(crate) struct Ended {
    /// Leases for the next connection.
    pub(crate) unfinished: Option<Unfinished>,
    /// The fault of a connection that was lost before any message was delivered and before the server closed.
    pub(crate) broken: Option<Outcome>,
    pub(crate) usefulness: Usefulness,
    /// The server refused in clear text what it may take over TLS.
    pub(crate) wants_tls: bool,
}

/// What a connection has shown about its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Usefulness {
    /// It took mail: trying it was worthwhile.
    Useful,
    /// Neither: there was no work, or all of it was refused for good.
    Unknown,
    /// It deferred everything, or the connection was lost.
    Useless,
    /// The connection was lost, and the server may have taken a message whose reply is missing.
    LostAfterContent,
    /// Commands that were sent without waiting for replies were never answered.
    LostCommands,
}

/// Why a connection ended, and whether transactions are still without outcomes.
enum End {
    /// Nothing is in flight.
    Done,
    /// Transactions are in flight, for the reason given.
    Broken {
        why: Outcome,
        /// The server closed the connection, or it broke. False for a time limit.
        is_closed: bool,
        /// The next server would be no better, because the fault is on this side.
        is_ours: bool,
    },
}

impl End {
    /// A fault of this server, not of the connection.
    fn fault(why: Outcome) -> Self {
        Self::Broken { why, is_closed: false, is_ours: true }
    }
}

pub(crate) struct Session<'a, J> {
    source: &'a J,
    settings: &'a DeliverySettings,
    stream: BufferedStream,
    connection: Connection,
    relay: Box<str>,
    /// Until something is delivered.
    unproven: Option<Unproven>,
    tls: Box<str>,
    setup_ms: u64,
    dsn_duty: DsnDuty,
    active: Vec<ActiveLease>,
    /// Leases to continue, with the recipients that had no room before.
    to_resume: Vec<ActiveLease>,
    /// Leases that this server has deferred. No further message is begun while there are any.
    for_next_server: Vec<ActiveLease>,
    /// There is a server that was not tried, for what this one defers.
    has_next_server: bool,
    /// The advice if the server wants a login, and nobody but the operator can change that.
    login_advice: Option<&'static str>,
    /// In clear text, because TLS did not work before.
    is_clear_instead: bool,
    /// What is refused in clear text goes to another connection with TLS at once.
    may_retry_tls: bool,
    wants_tls: bool,
    /// Commands that were pipelined are sent again over a connection in lock step.
    is_out_of_step: bool,
    has_deferred: bool,
    /// A connection was lost after the end of content.
    has_lost_content: bool,
    /// The recipients of a transaction that the server takes, as its closes and its refusals at DATA or at the end of
    /// the content have shown.
    recipients_max: Option<usize>,
    next_transaction_id: u64,
    message_count: u32,
    opened: Instant,
    /// A lease was completed on this connection, so another connection will work, too.
    has_finished_some: bool,
    has_delivered: bool,
    has_outcome: bool,
    /// A transaction was refused at DATA or at the end of the content for its number of recipients, or closed in reply
    /// to DATA.
    has_split: bool,
    /// The server closed the connection, or wants another one, because of the number of recipients or messages.
    is_used_up: bool,
    spurious_wakeups: u32,
}

impl<'a, J: WorkSource> Session<'a, J> {
    /// A session over a connection that first sends the recipients that an earlier connection left.
    pub(crate) fn new(
        source: &'a J,
        settings: &'a DeliverySettings,
        ready: Ready,
        setup: Duration,
        unfinished: Unfinished,
        has_next_server: bool,
    ) -> Self {
        Self {
            source,
            settings,
            stream: ready.stream,
            connection: ready.connection,
            relay: ready.relay,
            unproven: ready.unproven,
            tls: ready.tls,
            setup_ms: millis(setup),
            dsn_duty: ready.dsn_duty,
            active: Vec::new(),
            to_resume: unfinished.leases,
            for_next_server: unfinished.for_next_server,
            has_next_server,
            login_advice: ready.login_advice,
            is_clear_instead: ready.is_clear_instead,
            may_retry_tls: false,
            wants_tls: false,
            is_out_of_step: false,
            has_deferred: false,
            has_lost_content: false,
            recipients_max: unfinished.recipients_max,
            next_transaction_id: 0,
            message_count: 0,
            opened: Instant::now(),
            has_finished_some: false,
            has_delivered: false,
            has_outcome: false,
            has_split: false,
            is_used_up: false,
            spurious_wakeups: 0,
        }
    }

    /// Permits another connection with TLS, if the server refuses clear text.
    pub(crate) fn may_retry_tls(self, may_retry_tls: bool) -> Self {
        Self { may_retry_tls, ..self }
    }

    /// Delivers leases until there are none, or the connection cannot be used any more. Returns what another
    /// connection should continue at once.
    pub(crate) async fn run(mut self) -> Ended {
        match self.work().await {
            End::Done => {
                let unfinished = self.unfinished();
                let (usefulness, wants_tls) = (self.usefulness(false), self.wants_tls);
                self.quit().await;
                Ended { unfinished, broken: None, usefulness, wants_tls }
            }
            End::Broken { why, is_closed, is_ours } => {
                self.take_events();
                let is_early = !is_ours && !self.was_of_use() && !self.connection.is_closing();
                self.is_out_of_step = !is_closed && !is_ours && self.lacks_pipelined_replies();
                // A server that goes away at RCPT may dislike this recipient, which says nothing about TLS.
                let is_about_recipient = matches!(self.awaited(), Some(ExpectedReply::Rcpt));
                self.has_next_server &= !is_ours;
                self.fail_in_flight(&why, is_closed);
                // Where not even MAIL is answered, TLS may be the cause as well.
                let is_of_packet = self.is_out_of_step && self.awaited() != Some(ExpectedReply::Mail);
                // A server that closes at its limit of recipients did so on purpose.
                let is_broken = is_early && !self.is_used_up && !is_of_packet && !is_about_recipient;
                let usefulness = self.usefulness(!is_ours && !self.is_used_up);
                let (unfinished, broken) = (self.unfinished(), is_broken.then_some(why));
                Ended { unfinished, broken, usefulness, wants_tls: self.wants_tls }
            }
        }
    }

    /// Has the server not answered a command that was sent with others in one packet? Some drop what stands behind the first one,
    /// and some the whole packet.
    fn lacks_pipelined_replies(&self) -> bool {
        let mut expected = self.connection.expected_replies();
        let is_of_packet = match expected.next() {
            Some(ExpectedReply::Rcpt | ExpectedReply::Data) => true,
            Some(ExpectedReply::Mail) => expected.next().is_some(),
            _ => false,
        };
        is_of_packet && self.connection.capabilities().pipelining
    }

    fn awaited(&self) -> Option<ExpectedReply> {
        self.connection.expected_replies().next()
    }

    fn usefulness(&self, is_lost: bool) -> Usefulness {
        if self.has_lost_content {
            Usefulness::LostAfterContent
        } else if self.is_out_of_step {
            Usefulness::LostCommands
        } else if self.has_delivered {
            Usefulness::Useful
        } else if self.has_deferred || is_lost {
            Usefulness::Useless
        } else {
            Usefulness::Unknown
        }
    }

    fn unfinished(&mut self) -> Option<Unfinished> {
        if self.to_resume.is_empty() && self.for_next_server.is_empty() {
            return None;
        }
        let leases = std::mem::take(&mut self.to_resume);
        let for_next_server = std::mem::take(&mut self.for_next_server);
        let (relay, tls) = (self.relay.clone(), self.tls.clone());
        let attempt = Attempt { relay, tls, dsn_duty: self.dsn_duty, ..Attempt::default() };
        // Outcomes bound the number of connections: there are no more of them than recipients.
        let has_progress = self.has_delivered || (self.has_outcome && self.connection.is_exhausted());
        Some(Unfinished {
            leases,
            for_next_server,
            recipients_max: self.recipients_max,
            has_progress,
            attempt,
        })
    }

    async fn work(&mut self) -> End {
        loop {
            self.begin_leases().await;
            if let Err(end) = self.write().await {
                return end;
            }
            self.take_events();
            if !self.connection.is_idle() {
                if let Err(end) = self.read().await {
                    return end;
                }
                continue;
            }
            self.is_used_up |= self.connection.is_exhausted();
            let is_over = self.to_resume.is_empty() && self.takes_no_more();
            if self.connection.is_closing() || self.is_used_up || is_over {
                return self.end_of_work();
            }
            if self.to_resume.is_empty() {
                match self.wait_idle().await {
                    Ok(true) => {}
                    Ok(false) => return End::Done,
                    Err(end) => return end,
                }
            }
        }
    }

    /// Another connection gets the further messages.
    fn takes_no_more(&self) -> bool {
        self.message_count >= self.settings.messages_per_connection
            || !self.for_next_server.is_empty()
            || (self.message_count > 0 && self.opened.elapsed() >= self.settings.reuse_timeout)
    }

    fn end_of_work(&self) -> End {
        if self.to_resume.is_empty() || self.is_used_up {
            return End::Done;
        }
        let text = format!("{} closed the connection before all recipients were sent", self.relay);
        End::Broken { why: Outcome::deferred(Enhanced(4, 4, 2), text), is_closed: true, is_ours: false }
    }

    // ---- leases ----

    async fn begin_leases(&mut self) {
        while self.connection.can_begin() && !self.is_used_up {
            if let Some(to_resume) = self.to_resume.pop() {
                self.begin(to_resume).await;
            } else if !self.takes_no_more() {
                let Some(lease) = self.source.next_lease() else { return };
                self.spurious_wakeups = 0;
                match self.source.message(&lease).await {
                    Ok(message) => self.begin_lease(lease, message).await,
                    Err(outcome) => {
                        let results =
                            lease.recipients.iter().map(|index| (*index, outcome.clone())).collect();
                        self.source.complete(lease, results, &Attempt::default());
                    }
                }
            } else {
                return;
            }
        }
    }

    async fn begin_lease(&mut self, lease: LeasedMessage, message: SharedMessage) {
        self.message_count += 1;
        let begun = Instant::now();
        let remaining = lease.recipients.clone();
        let outcomes = Vec::new();
        self.begin(ActiveLease {
            transaction_id: 0,
            lease,
            message,
            begun,
            outcomes,
            remaining,
            postponed: Vec::new(),
            servers: Vec::new(),
            earlier: Vec::new(),
            recipients_max: None,
            plan: None,
        })
        .await;
    }

    /// Starts a transaction for as many recipients as the configuration allows and the server takes at once (RFC
    /// 9422).
    async fn begin(&mut self, mut active: ActiveLease) {
        let conversion = if self.connection.capabilities().takes(active.message.content.traits) {
            None
        } else {
            match Box::pin(self.conversion(&mut active)).await {
                Ok(conversion) => conversion,
                Err(outcome) => {
                    let remaining = std::mem::take(&mut active.remaining);
                    active.outcomes.extend(remaining.into_iter().map(|index| (index, outcome.clone())));
                    return self.settle(active);
                }
            }
        };
        self.next_transaction_id += 1;
        active.transaction_id = self.next_transaction_id;
        let announced = self.connection.capabilities().recipients_max.unwrap_or(usize::MAX);
        let shown = self.recipients_max.into_iter().chain(active.recipients_max).min().unwrap_or(usize::MAX);
        let room = self.settings.recipients_per_transaction.min(announced).min(shown).max(1);
        let together = active.message.envelope.together(&active.remaining);
        let remaining = active.remaining.split_off(together.min(room));
        let recipients = std::mem::replace(&mut active.remaining, remaining);
        let transaction = Transaction {
            id: active.transaction_id,
            deliver_by_seconds: deliver_by_seconds(&active.message),
            message: active.message.clone(),
            recipients,
        };
        self.active.push(active);
        self.connection.begin_converted(transaction, conversion);
    }

    fn take_events(&mut self) {
        while let Some(event) = self.connection.next_event() {
            if let Event::TransactionEnded(id, results) = event {
                self.on_transaction_ended(id, results);
            }
        }
    }

    /// Gives a recipient its outcome, or leaves it to the next server (RFC 5321 §5.1).
    fn record(&mut self, active: &mut ActiveLease, index: u32, outcome: Outcome) {
        let refusal = self.clear_text_refusal(&outcome);
        if self.may_retry_tls && refusal != ClearTextRefusal::Verdict {
            (self.wants_tls, self.is_used_up) = (true, true);
            return active.remaining.push(index);
        }
        if refusal == ClearTextRefusal::Wish {
            self.wants_tls = true;
            let text = format!("{}; TLS broke before, and is tried again later", outcome.text).into();
            let (disposition, status) = (Disposition::Deferred, Enhanced(4, 7, 4));
            return self.keep(active, index, Outcome { disposition, status, text, ..outcome });
        }
        let outcome = match self.login_advice {
            Some(advice) if outcome.disposition == Disposition::Failed && wants_login(&outcome) => Outcome {
                disposition: Disposition::Deferred,
                status: Enhanced(4, 7, 0),
                text: format!("{}; {advice}", outcome.text).into(),
                ..outcome
            },
            _ => outcome,
        };
        self.keep(active, index, outcome);
    }

    /// Returns what the refusal of a server says that gets clear text because TLS did not work before.
    fn clear_text_refusal(&self, outcome: &Outcome) -> ClearTextRefusal {
        let reply = outcome.reply().filter(|_| self.is_clear_instead);
        let reply = reply.filter(|_| outcome.disposition != Disposition::Delivered);
        reply.map_or(ClearTextRefusal::Verdict, |reply| {
            ClearTextRefusal::of(reply.stage, reply.code, reply.enhanced)
        })
    }

    /// Keeps the outcome of a recipient, or leaves the recipient to the next server.
    fn keep(&mut self, active: &mut ActiveLease, index: u32, outcome: Outcome) {
        let is_deferred = outcome.disposition == Disposition::Deferred;
        self.has_deferred |= is_deferred;
        let outcomes =
            if is_deferred && self.has_next_server { &mut active.postponed } else { &mut active.outcomes };
        outcomes.push((index, outcome));
    }

    /// Continues a lease, here or at the next server, or finishes it.
    fn settle(&mut self, active: ActiveLease) {
        if !active.remaining.is_empty() {
            self.to_resume.push(active);
        } else if let Some((_, outcome)) = active.postponed.first() {
            tracing::info!("{}: trying the next server: {}", active.lease.id, outcome.text);
            self.source.progress().failed(outcome);
            self.has_finished_some = true;
            self.for_next_server.push(active);
        } else {
            self.finish(active);
        }
    }

    fn finish(&mut self, active: ActiveLease) {
        self.has_finished_some = true;
        let attempt = Attempt {
            relay: self.relay.clone(),
            tls: self.tls.clone(),
            queued_ms: active.lease.queued_ms,
            // Only the first message has waited for it.
            setup_ms: std::mem::take(&mut self.setup_ms),
            transfer_ms: millis(active.begun.elapsed()),
            dsn_duty: self.dsn_duty,
            takes_deadline: self.connection.is_final_hop()
                || self.connection.capabilities().deliver_by.is_some(),
            elsewhere: active.servers.into_iter().collect(),
        };
        self.source.complete(active.lease, active.outcomes, &attempt);
    }

    // ---- bytes ----

    /// Writes everything there is to write.
    async fn write(&mut self) -> Result<(), End> {
        loop {
            let Some(piece) = self.connection.next_piece() else { break };
            match piece {
                OutputPiece::Text(text) => self.stream.push(text.into()),
                OutputPiece::Content(bytes) => self.stream.push(bytes),
                OutputPiece::Load(chunk_id) => {
                    // Nothing waits in memory while the disk is read.
                    self.flush().await?;
                    let bytes: Bytes = self.source.chunk(chunk_id).await.map_err(End::fault)?;
                    self.connection.loaded(bytes);
                }
            }
            if self.stream.unsent_count() >= PIECES_MAX {
                self.flush().await?;
            }
        }
        self.flush().await
    }

    async fn flush(&mut self) -> Result<(), End> {
        // What is read until then may be the end of the content, but it has not left yet.
        let step = |connection: &Connection| match connection.phase() {
            Phase::Final => "sending message body",
            _ => connection.step(),
        };
        if !self.has_delivered {
            self.source.progress().wait(step(&self.connection), Duration::ZERO);
        }
        let Err(e) = self.stream.flush(self.settings.data_timeout).await else { return Ok(()) };
        let step = step(&self.connection);
        let end = self.broken(step, self.settings.data_timeout, &e);
        // Content that is refused before its end is not read to its end: the reason was said, and is there to
        // be read.
        while let Ok(bytes) = self.stream.read(QUIT_TIMEOUT).await {
            if self.connection.receive(bytes).is_err() {
                break;
            }
        }
        Err(end)
    }

    async fn read(&mut self) -> Result<(), End> {
        let reply_timeout = reply_timeout(self.settings, self.connection.phase());
        // The server may take what it was sent whole: only what it has not answered yet can be given up.
        let may_be_abandoned = matches!(self.connection.phase(), Phase::Command | Phase::Data);
        let mut read = Err(io::ErrorKind::TimedOut.into());
        let mut rest = reply_timeout;
        // A server that takes mail nearly always answers soon, and then nobody listens for a signal.
        if self.has_delivered && reply_timeout > SILENCE_TIMEOUT {
            read = self.stream.fill(SILENCE_TIMEOUT).await;
            rest -= SILENCE_TIMEOUT;
        }
        if matches!(&read, Err(e) if e.kind() == io::ErrorKind::TimedOut) {
            self.source.progress().wait(self.connection.step(), reply_timeout - rest);
            read = tokio::select! {
                biased;
                read = self.stream.fill(rest) => read,
                why = self.source.abandoned(), if may_be_abandoned => {
                    return Err(End::fault(why.unwrap_or_else(withdrawn)));
                }
            };
            if self.has_delivered {
                self.source.progress().clear();
            }
        }
        match read {
            Ok(()) => self.connection.receive(self.stream.received()).map_err(|e| {
                let text = format!("talk to {} while {}: {e}", self.relay, self.connection.step());
                let why = Outcome::deferred(Enhanced(4, 5, 0), text);
                End::Broken { why, is_closed: false, is_ours: false }
            })?,
            Err(e) => return Err(self.broken(self.connection.step(), reply_timeout, &e)),
        }
        self.take_events();
        Ok(())
    }

    fn broken(&self, step: &str, limit: Duration, e: &io::Error) -> End {
        let text = lost(&self.relay, step, limit, e);
        let is_closed = e.kind() != io::ErrorKind::TimedOut;
        End::Broken { why: Outcome::deferred(Enhanced(4, 4, 2), text), is_closed, is_ours: false }
    }

    /// Nothing to do: waits for a lease, for the server to leave, or for its own time to be over. True
    /// when there may be a lease.
    async fn wait_idle(&mut self) -> Result<bool, End> {
        if self.source.should_close() {
            return Ok(false);
        }
        let since = Instant::now();
        let read = tokio::select! {
            biased;
            () = self.source.wait_for_work() => None,
            read = self.stream.read(self.settings.idle_timeout) => Some(read),
        };
        match read {
            None => {
                // Woken at once, yet no lease: other connections took the work first. After a few such wake-ups in a
                // row, this connection is superfluous.
                self.spurious_wakeups += 1;
                let crowded = self.spurious_wakeups > SPURIOUS_WAKEUPS_MAX
                    && since.elapsed() < Duration::from_millis(1);
                Ok(!crowded && !self.source.should_close())
            }
            Some(Ok(bytes)) => {
                let understood = self.connection.receive(bytes).is_ok();
                self.take_events();
                Ok(understood && !self.connection.is_closing())
            }
            // It left, or has been idle for long enough.
            Some(Err(_)) => Ok(false),
        }
    }

    async fn quit(mut self) {
        self.connection.quit();
        while let Some(piece) = self.connection.next_piece() {
            if let OutputPiece::Text(text) = piece {
                self.stream.push(text.into());
            }
        }
        // Whether it hears us or answers does not matter any more.
        if self.stream.flush(QUIT_TIMEOUT).await.is_ok() {
            let _ = self.stream.read(QUIT_TIMEOUT).await;
        }
        self.stream.shutdown(QUIT_TIMEOUT).await;
    }
}

/// Returns the seconds that are left until the deadline of a message (RFC 2852 §4.1.2), rounded down; 0 without a deadline.
fn deliver_by_seconds(message: &Message) -> i32 {
    let deadline = message.envelope.options.as_ref().and_then(|options| options.deliver_by);
    let Some(by) = deadline else { return 0 };
    let left_ms = i128::from(by.deadline.0) - i128::from(UnixMillis::now().0);
    // Nine digits (RFC 2852 §4).
    left_ms.div_euclid(1000).clamp(-999_999_999, 999_999_999) as i32
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
