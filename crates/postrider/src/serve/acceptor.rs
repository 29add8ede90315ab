//! Takes messages in: the stages of the accept pipeline for clients, for programs on this machine and for reports, and
//! the commit that ends it.

mod authenticate;
mod content;
mod deliver_first;
mod expand;
mod extensions;
mod intake;
mod log;
mod replacement;
mod room;
#[cfg(test)]
mod tests;
mod unstored;

use super::{
    active::{ActiveCount, ActiveGuard},
    latency::LatencyCounter,
    logins::Logins,
    pipeline::{LOOKUP_TIMEOUT, SessionMemory, View, expand},
    site::Site,
    verp,
};
use auth::ChannelBindings;
use authenticate::LoginSession;
use bytes::Bytes;
use engine::accept::{self, Accepted, Decisions, Facts, NamedHost, Source, Stage, Verdict};
pub(crate) use expand::unreadable;
use inbound::{Answer, AuthAnswer, Client, ConnectionEvent, Draft, Service, StoreError, UNIX_CLIENT};
pub(crate) use intake::Intake;
pub(crate) use log::AcceptLog;
use mail::{
    BodyType, ChunkId, Content, Enhanced, Envelope, IdSource, ListenerKind, Message, Outcome, Part, QueueId,
    ReceivedContent, Recipient, Reply, SharedMessage, UnixMillis, content::chunk_ids, header::ContentScanner,
};
pub(crate) use replacement::NotReplaced;
use room::Entering;
use smtp::{
    forwarded::Attribute,
    server::{AuthInput, Keyword, Query, replies},
};
use spool::{CommitSeq, Entry, Refused, Spool, SpoolFailure};
use std::{
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};
use submission::Refusal;
use tokio::time::timeout;
pub(crate) use unstored::{Settled, UnstoredMessages};

/// Content above this goes to the spool in pieces of this size.
pub(crate) const CHUNK_BYTES: usize = 256 * 1024;

/// A list with more members becomes several messages: each fits into memory beside others when it is read back.
const PORTION_RECIPIENTS: usize = 50_000;

/// A spool of small segments cannot store a long list as a whole.
const TOO_LARGE_FOR_SPOOL: Reply = Reply::fixed(
    550,
    Enhanced(5, 2, 4),
    "The list is too long for a segment of this spool (spool.segment_size)",
);

/// A disk that is behind is asked again after this.
const BEHIND: Duration = Duration::from_millis(5);

/// A client waits so long for a commit that waits for room on the disk.
const SPACE_TIMEOUT: Duration = Duration::from_secs(2);

/// Policy, spool and queue as a session sees them.
pub(crate) struct Acceptor<I> {
    intake: Arc<I>,
    spool: Arc<dyn Spool>,
    ids: Arc<IdSource>,
    /// The time from the submission of a message to the spool until it is durable.
    latency: LatencyCounter,
    /// Messages whose clients were told to try again and that may still be stored.
    late: ActiveCount,
    /// Messages whose content has arrived, and that the spool does not count yet.
    entering: Entering,
    logins: Logins,
}

/// Returns why a message is not durable after this time, and the code that its client gets.
fn why_late(awaits_room: bool, waited: Duration) -> (String, u16) {
    let waited = waited.as_secs_f32();
    if awaits_room {
        (format!("the disk of the spool has had no room for {waited:.1} s"), 452)
    } else {
        (format!("the disk has not answered for {waited:.1} s"), 451)
    }
}

impl<I: Intake> Acceptor<I> {
    pub(crate) fn new(intake: Arc<I>, spool: Arc<dyn Spool>, ids: Arc<IdSource>) -> Self {
        Self {
            intake,
            spool,
            ids,
            latency: LatencyCounter::default(),
            late: ActiveCount::default(),
            entering: Entering::default(),
            logins: Logins::new(),
        }
    }

    /// Returns the program around it.
    pub(crate) fn intake(&self) -> &Arc<I> {
        &self.intake
    }

    /// Returns the number of messages whose clients were told to try again, and that may still be stored.
    pub(crate) fn late_count(&self) -> usize {
        self.late.count()
    }

    /// Returns the time from the submission of messages to the spool until they were durable.
    pub(crate) fn latency(&self) -> &LatencyCounter {
        &self.latency
    }

    pub(super) fn logins(&self) -> &Logins {
        &self.logins
    }

    fn commit_timeout(&self) -> Duration {
        self.intake.site().settings.spool.commit_timeout
    }

    /// No client waits for it any more, since this time. Until its outcome is known, mail is refused.
    fn late(&self, id: QueueId, begun: Instant) -> ActiveGuard {
        let awaits_room = self.spool.pressure().awaits_room;
        let late = self.late.guard();
        let is_first = self.late_count() == 1;
        let (why, reply) = why_late(awaits_room, begun.elapsed());
        tracing::warn!("{id}: {why}: the client gets {reply} and must try again");
        if is_first {
            tracing::error!("{why}: mail is refused");
        }
        late
    }

    /// A message that is stored after all is ours, and its client was not answered 250: better delivered
    /// twice than lost.
    fn finish_late(
        &self,
        commit_seq: CommitSeq,
        id: QueueId,
        begun: Instant,
        accept: impl FnOnce(&Arc<I>) + Send + 'static,
    ) {
        let (intake, late) = (self.intake.clone(), self.late(id, begun));
        let durable = self.spool.durable(commit_seq);
        tokio::spawn(async move {
            match durable.await {
                Ok(()) => accept(&intake),
                Err(failure) => intake.spool_failed(Some(&failure)),
            }
            drop(late);
        });
    }

    /// Takes a message of this machine through the pipeline, and makes it durable and queues it.
    ///
    /// # Errors
    /// Why the daemon does not take it, for good or for now.
    pub(crate) async fn accept_local(
        self: &Arc<Self>,
        uid: u32,
        mut draft: Draft,
    ) -> Result<QueueId, Refusal> {
        let (config, facts) = (self.intake.site(), Facts::new(Source::Local { uid }));
        let (pipeline, rules) = (&config.pipeline, config.rules());
        let (mut memory, mut decisions) = (pipeline.begin(SessionMemory::default()), Decisions::default());
        self.room().map_err(|reply| refusal(&reply))?;
        within_limits(&config.settings.limits, &draft).map_err(|reply| refusal(&reply))?;
        let id = draft.id;
        let Draft { envelope, content, .. } = &mut draft;
        let judged = pipeline.judge(rules, &facts, envelope, content, &mut memory, &mut decisions);
        judged.await.map_err(|reply| refusal(&reply))?;
        extensions::carry_priority(&config.settings, true, envelope, content);
        let view = View::new(Stage::End, rules, &facts).with_envelope(envelope);
        let finished = self.finish_content(&config, view, &mut memory, id, content, &mut decisions).await;
        if let Err(reply) = finished {
            self.forget(content.parts());
            return Err(refusal(&reply));
        }
        self.accept_draft(config, draft, decisions).await
    }

    /// Accepts a message that was refused for good, and holds it: it is about to be returned to its sender. If the daemon ends
    /// before, the message waits with the reason.
    ///
    /// # Errors
    /// Why the daemon does not take it, for good or for now.
    pub(crate) async fn hold_refused(self: &Arc<Self>, draft: Draft, why: &str) -> Result<QueueId, Refusal> {
        let config = self.intake.site();
        self.room().map_err(|reply| refusal(&reply))?;
        within_limits(&config.settings.limits, &draft).map_err(|reply| refusal(&reply))?;
        let mut decisions = Decisions::default();
        decisions.note(Stage::End, Verdict::Hold(why.into()), 0);
        self.accept_draft(config, draft, decisions).await
    }

    /// Makes a draft that was decided on durable, and queues it.
    async fn accept_draft(
        self: &Arc<Self>,
        config: Arc<Site>,
        draft: Draft,
        decisions: Decisions,
    ) -> Result<QueueId, Refusal> {
        let Draft { id, arrived, origin, envelope, content } = draft;
        let content = self.in_pieces(&envelope, content).await.map_err(|reply| refusal(&reply))?;
        let finished = decisions.finish(id, arrived, origin, envelope, content);
        let reply = self.accept_in_task(config, finished).await;
        if reply.is_positive() { Ok(id) } else { Err(refusal(&reply)) }
    }

    /// Large content goes ahead of its message, as it does from a session. The header stays in memory.
    async fn in_pieces(
        &self,
        envelope: &Envelope,
        content: ReceivedContent,
    ) -> Result<ReceivedContent, Reply> {
        if content.size_bytes() <= CHUNK_BYTES as u64 {
            return Ok(content);
        }
        let (mut parts, mut pieces) = (Vec::new(), content.cut(CHUNK_BYTES));
        if let Some(header) = pieces.next() {
            parts.push(header);
        }
        for piece in pieces {
            let Part::Memory(chunk) = &piece else {
                parts.push(piece);
                continue;
            };
            let length_bytes = chunk.len() as u32;
            match self.with_deadline(|| self.spool.store_for(envelope, chunk.clone())).await {
                Ok(chunk_id) => parts.push(Part::Stored { chunk_id, length_bytes }),
                Err(refused) => {
                    self.forget(&parts);
                    return Err(Self::refusal(refused));
                }
            }
        }
        Ok(content.with_parts(parts))
    }

    /// Discards the chunks of a message that was given up: they would stay until the next start.
    fn forget(&self, parts: &[Part]) {
        let chunk_ids = chunk_ids(parts);
        if !chunk_ids.is_empty() {
            self.spool.discard_chunks(&chunk_ids);
        }
    }

    /// As [`Acceptor::accept`], in a task of its own: whoever asked may go away, and what is durable has to be queued.
    async fn accept_in_task(self: &Arc<Self>, config: Arc<Site>, accepted: Accepted) -> Reply {
        let own = self.clone();
        let accepted = tokio::spawn(async move { own.accept(&config, accepted).await });
        accepted.await.unwrap_or(replies::LOCAL_ERROR)
    }

    /// Ends the pipeline: makes the message durable and queues it, unless the draft was discarded. Returns the reply,
    /// which is positive only when the message would survive a power cut.
    async fn accept(&self, config: &Site, accepted: Accepted) -> Reply {
        let (message, logged) = match accepted {
            Accepted::Message { mut message, held, discarded, expanded } => {
                verp::apply(&config.settings.addresses, &mut message.envelope);
                let reports = match expanded {
                    Some(expanded) => Box::pin(self.reports_on(config, &expanded, &message)).await,
                    None => Vec::new(),
                };
                let rest = match self.portions(&mut message).await {
                    Ok(rest) => rest,
                    Err(reply) => {
                        self.forget(message.content.parts());
                        return reply;
                    }
                };
                (SharedMessage::new(message), LoggedDecisions { held, discarded, rest, reports })
            }
            Accepted::Discarded { id, envelope, content, reason } => {
                self.forget(content.parts());
                self.intake.log().discarded(id, envelope.reverse_path.as_str(), None, &reason);
                return queued_as(id);
            }
        };
        let (id, size_bytes, begun) = (message.id, message.content.size_bytes(), Instant::now());
        if Self::delivers_first(config, &message, &logged) {
            return Box::pin(self.deliver_first(config, message, logged, begun)).await;
        }
        probe::probe!(postrider, queue_create_start, id.0);
        // A crash leaves neither a portion without the others nor without the reports on the expansion.
        let reports = || logged.reports.iter().cloned().map(Entry::Accept);
        let portions = || std::iter::once(&message).chain(&logged.rest);
        let entries = || portions().map(|portion| accept::entry(portion, logged.held.clone()));
        let submit = || self.spool.submit(entries().chain(reports()).collect());
        let commit_seq = match self.with_deadline(submit).await {
            Ok(commit_seq) => commit_seq,
            Err(refused) => {
                portions().for_each(|portion| self.forget(portion.content.parts()));
                if refused == Refused::Poisoned {
                    self.intake.spool_failed(None);
                }
                return Self::refusal(refused);
            }
        };
        match self.stored(commit_seq).await {
            Ok(Ok(())) => {}
            Ok(Err(failure)) => {
                self.intake.spool_failed(Some(&failure));
                return replies::LOCAL_ERROR;
            }
            Err(reply) => {
                self.finish_late(commit_seq, id, begun, move |intake| logged.accept(intake, message, true));
                return reply;
            }
        }
        probe::probe!(postrider, queue_create_done, id.0);
        self.latency.record(begun.elapsed());
        logged.accept(&self.intake, message, false);
        probe::probe!(postrider, message_accepted, id.0, size_bytes);
        queued_as(id)
    }

    /// Leaves a message [`PORTION_RECIPIENTS`] recipients, and returns messages with the others. Each has content of its own, so that
    /// none of them waits for the others before its space is freed.
    ///
    /// # Errors
    /// The reply that refuses the message; no content of the others is left.
    async fn portions(&self, message: &mut Message) -> Result<Vec<SharedMessage>, Reply> {
        let mut all = std::mem::take(&mut message.envelope.recipients).into_iter();
        let without = message.envelope.clone();
        let mut next = || all.by_ref().take(PORTION_RECIPIENTS).collect::<Vec<_>>();
        message.envelope.recipients = next();
        let mut rest = Vec::new();
        loop {
            let recipients = next();
            if recipients.is_empty() {
                return Ok(rest);
            }
            let content = match self.copied_content(message).await {
                Ok(content) => content,
                Err(reply) => {
                    rest.iter().for_each(|one: &SharedMessage| self.forget(one.content.parts()));
                    return Err(reply);
                }
            };
            let id = self.ids.next(UnixMillis::now().0);
            tracing::info!("{id}: {} further recipients of {}", recipients.len(), message.id);
            let envelope = Envelope { recipients, ..without.clone() };
            let Message { arrived, ref origin, .. } = *message;
            rest.push(SharedMessage::new(Message { id, arrived, origin: origin.clone(), envelope, content }));
        }
    }

    /// Returns a message's content, with pieces in the spool of its own.
    async fn copied_content(&self, message: &Message) -> Result<Content, Reply> {
        let mut parts = Vec::new();
        for part in message.content.parts() {
            let Part::Stored { chunk_id, length_bytes } = *part else {
                parts.push(part.clone());
                continue;
            };
            let copied = match self.load_arriving(chunk_id).await {
                Ok(piece) => {
                    let store = || self.spool.store_for(&message.envelope, piece.clone());
                    self.with_deadline(store).await.map_err(Self::refusal)
                }
                Err(failure) => {
                    tracing::error!(
                        "{}: copy its content for a portion of its recipients: {failure}",
                        message.id
                    );
                    Err(replies::LOCAL_ERROR)
                }
            };
            match copied {
                Ok(chunk_id) => parts.push(Part::Stored { chunk_id, length_bytes }),
                Err(reply) => {
                    self.forget(&parts);
                    return Err(reply);
                }
            }
        }
        Ok(Content::new(message.content.traits, parts))
    }

    /// Composes the reports on expanded recipients, and takes them through the pipeline.
    async fn reports_on(
        &self,
        config: &Site,
        expanded: &accept::Expanded,
        message: &Message,
    ) -> Vec<SharedMessage> {
        let hostname = config.settings.hostname.as_str();
        let composed = expanded.compose(message, hostname, &config.reports, &self.ids, UnixMillis::now());
        let mut reports = Vec::with_capacity(composed.len());
        for report in composed {
            let judged = config.pipeline.judge_report(config.rules(), report);
            reports.extend(judged.await.map(SharedMessage::new));
        }
        reports
    }

    /// Hands something to the spool; a disk that is behind is waited for, but not for ever.
    async fn with_deadline<T>(&self, mut offer: impl FnMut() -> Result<T, Refused>) -> Result<T, Refused> {
        let until = Instant::now() + self.commit_timeout();
        loop {
            match offer() {
                Err(Refused::Busy) if Instant::now() < until => tokio::time::sleep(BEHIND).await,
                answer => return answer,
            }
        }
    }

    /// Waits for the commit of a message. Returns the reply for a client that need not wait any longer.
    async fn stored(&self, commit_seq: CommitSeq) -> Result<Result<(), SpoolFailure>, Reply> {
        let until = Instant::now() + self.commit_timeout();
        let mut durable = pin!(self.intake.durable(commit_seq));
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if let Ok(stored) = timeout(left.min(SPACE_TIMEOUT), durable.as_mut()).await {
                return Ok(stored);
            }
            if self.spool.pressure().awaits_room {
                return Err(replies::NO_ROOM);
            }
            if Instant::now() >= until {
                return Err(replies::NOT_STORED_YET);
            }
        }
    }

    /// Counts a rejected command, where a limit is set for that.
    fn count_failure(&self, facts: &Facts) {
        let (config, Source::Smtp { peer, listener, .. }) = (self.intake.site(), &facts.source) else {
            return;
        };
        let facts =
            policy::Facts { client: Some(peer.ip()), listener: Some(*listener), ..policy::Facts::default() };
        config.sources.count_failure(&config.settings, &facts);
    }

    fn refusal(refused: Refused) -> Reply {
        match refused {
            Refused::Busy => replies::SPOOL_BUSY,
            Refused::Full => replies::NO_ROOM,
            Refused::TooLarge => TOO_LARGE_FOR_SPOOL,
            Refused::Poisoned => replies::LOCAL_ERROR,
        }
    }
}

/// Decisions of the checks that are logged, but not before the message is durable.
struct LoggedDecisions {
    /// The reason to hold the message, if it is held.
    held: Option<Box<str>>,
    /// Given recipients that were discarded, with the reasons.
    discarded: Box<[(Box<str>, Box<str>)]>,
    /// The messages for further recipients, with the same content.
    rest: Vec<SharedMessage>,
    /// Reports that are stored with the message.
    reports: Vec<SharedMessage>,
}

impl LoggedDecisions {
    /// Logs the decisions, and queues the message, which is durable.
    fn accept<I: Intake>(&self, intake: &Arc<I>, message: SharedMessage, is_late: bool) {
        for (recipient, reason) in &self.discarded {
            let from = message.envelope.reverse_path.as_str();
            intake.log().discarded(message.id, from, Some(recipient), reason);
        }
        for portion in std::iter::once(message).chain(self.rest.iter().cloned()) {
            intake.accepted(portion, self.held.clone(), is_late);
        }
        for report in &self.reports {
            intake.accepted(report.clone(), None, false);
        }
    }
}

/// Checks a message of this machine against the limits that hold for clients, too: a loop through a program must end.
/// Number of recipients and size have limits of their own, which [`submission`] checks.
fn within_limits(limits: &smtp::Limits, draft: &Draft) -> Result<(), Reply> {
    let mut header = ContentScanner::default();
    header.scan(draft.content.header());
    limits.check_header(&header)?;
    let has_nul = |part: &Part| matches!(part, Part::Memory(bytes) if bytes.contains(&0));
    if draft.envelope.body != BodyType::Binary && draft.content.parts().iter().any(has_nul) {
        return Err(replies::NUL_IN_CONTENT);
    }
    Ok(())
}

/// The outcome that a reply of the pipeline means.
fn outcome(make: fn(Enhanced, String) -> Outcome, reply: &Reply) -> Outcome {
    make(reply.enhanced.unwrap_or(Enhanced(4, 3, 0)), reply.text().to_owned())
}

fn queued_as(id: QueueId) -> Reply {
    Reply::new(250, Enhanced(2, 0, 0), format!("Ok: queued as {id}"))
}

fn refusal(reply: &Reply) -> Refusal {
    let text = reply.to_string();
    if reply.is_transient() { Refusal::temporary(text) } else { Refusal::permanent(text) }
}

/// The daemon's context of a session.
pub(crate) struct SessionContext {
    /// By which the transaction is judged, whatever is reloaded meanwhile.
    config: Arc<Site>,
    facts: Facts,
    /// The decisions of the stage connect.
    connected: Decisions,
    /// The decisions of the stages before MAIL, with which each transaction begins.
    connection: Decisions,
    /// Of the open transaction.
    decisions: Decisions,
    /// The client's attempts to log in; none before the first.
    login: Option<Box<LoginSession>>,
    /// For logins; none without TLS, or without AUTH.
    bindings: Option<Box<ChannelBindings>>,
    /// Of the checks.
    memory: SessionMemory,
}

impl SessionContext {
    fn new(config: Arc<Site>, facts: Facts) -> Self {
        let [connected, connection, decisions] = Default::default();
        let memory = config.pipeline.begin(SessionMemory::default());
        Self { config, facts, connected, connection, decisions, login: None, bindings: None, memory }
    }

    /// A transaction is judged by one configuration, the current one at its begin.
    fn begin_transaction(&mut self, config: Arc<Site>) {
        self.decisions.clone_from(&self.connection);
        if !Arc::ptr_eq(&self.config, &config) {
            self.memory = config.pipeline.begin(std::mem::take(&mut self.memory));
            self.config = config;
        }
        self.memory.begin_transaction();
    }

    /// Asks the checks of a stage. `complete` adds what they see.
    fn run<'a>(
        &'a mut self,
        stage: Stage,
        complete: impl FnOnce(View<'a>) -> View<'a>,
    ) -> Answer<'a, Result<(), Reply>> {
        let view = complete(View::new(stage, self.config.rules(), &self.facts));
        let decisions = if stage < Stage::Mail { &mut self.connection } else { &mut self.decisions };
        let judged = self.config.pipeline.run(view, &mut self.memory, decisions);
        if !self.config.settings.queue.soft_bounce {
            return judged;
        }
        judged.map(|judged: Result<(), Reply>| judged.map_err(Reply::softened))
    }
}

fn bindings_of(client: &Client) -> Option<Box<ChannelBindings>> {
    client.tls.as_ref().and_then(|tls| tls.bindings.clone())
}

/// The reply of a stage that says no more than yes.
fn or_positive(positive: Reply) -> impl FnOnce(Result<(), Reply>) -> Reply + Send {
    move |judged| judged.err().unwrap_or(positive)
}

impl<I: Intake> Service for Acceptor<I> {
    type Context = SessionContext;

    fn connected<'a>(&'a self, client: &'a Client) -> Answer<'a, Result<SessionContext, Reply>> {
        if self.spool.pressure().poisoned {
            return Answer::Ready(Err(replies::LOCAL_ERROR_CLOSING));
        }
        let Client { peer, local, listener, .. } = *client;
        let facts = Facts {
            tls: client.cipher().map(Box::from),
            certificate: client.certificate().cloned(),
            ..Facts::new(Source::Smtp { peer, local, listener })
        };
        let mut context = SessionContext::new(self.intake.site(), facts);
        if listener == ListenerKind::Relay && !context.config.policy.may_relay(peer.ip()) {
            return Answer::Ready(Err(replies::NO_ACCESS));
        }
        context.bindings = bindings_of(client);
        if let Some(named) = &client.named {
            context.facts.named_login.clone_from(&named.login);
            context.facts.named_host = match &named.name {
                Attribute::NotGiven => NamedHost::NotGiven,
                Attribute::Unavailable => NamedHost::None,
                Attribute::Is(name) => NamedHost::Name(name.clone()),
            };
        }
        if !context.config.pipeline.has(Stage::Connect) {
            return Answer::Ready(Ok(context));
        }
        Answer::later(async move {
            let judged = context.run(Stage::Connect, |view| view).wait().await;
            context.connected.clone_from(&context.connection);
            judged.map(|()| context)
        })
    }

    fn tls_established(&self, context: &mut SessionContext, client: &Client) {
        let Client { peer, local, listener, .. } = *client;
        let source = Source::Smtp { peer, local, listener };
        let (tls, certificate) = (client.cipher().map(Box::from), client.certificate().cloned());
        context.facts = Facts { tls, certificate, ..Facts::new(source) };
        context.bindings = bindings_of(client);
        // What was decided of the connection itself still holds; a name in clear text does not count any more.
        context.connection.clone_from(&context.connected);
        context.decisions = Decisions::default();
        context.memory.begin_hello();
    }

    fn is_trusted(&self, client: &Client) -> bool {
        client.peer == UNIX_CLIENT || self.intake.site().policy.may_relay(client.peer.ip())
    }

    fn hello<'a>(&'a self, context: &'a mut SessionContext, name: &'a str) -> Answer<'a, Reply> {
        context.facts.hello = Some(name.into());
        context.memory.begin_hello();
        context.connection.clone_from(&context.connected);
        context.run(Stage::Hello, |view| view).map(or_positive(replies::OK))
    }

    fn authenticate<'a>(
        &'a self,
        context: &'a mut SessionContext,
        input: AuthInput,
    ) -> Answer<'a, AuthAnswer> {
        self.log_in(context, input)
    }

    fn sender<'a>(&'a self, context: &'a mut SessionContext, envelope: &'a Envelope) -> Answer<'a, Reply> {
        let room = if context.is_stranger() { self.room_for_strangers() } else { self.room() };
        if let Err(reply) = room {
            return Answer::Ready(reply);
        }
        context.begin_transaction(self.intake.site());
        let lowered = context.lowers_priority(envelope);
        let positive = if lowered { replies::PRIORITY_LOWERED } else { replies::SENDER_OK };
        let judged = context.run(Stage::Mail, |view| view.with_envelope(envelope));
        judged.map(or_positive(positive))
    }

    fn offers(&self, context: &SessionContext, keyword: Keyword) -> bool {
        context.offers(keyword)
    }

    fn query<'a>(&'a self, context: &'a mut SessionContext, query: Query) -> Answer<'a, Reply> {
        self.answer_query(context, query)
    }

    fn recipient<'a>(
        &'a self,
        context: &'a mut SessionContext,
        envelope: &'a Envelope,
        recipient: &'a Recipient,
    ) -> Answer<'a, Reply> {
        let view = |view: View<'a>| View { recipient: Some(recipient), ..view.with_envelope(envelope) };
        context.run(Stage::Rcpt, view).map(or_positive(replies::RECIPIENT_OK))
    }

    fn next_id(&self) -> QueueId {
        self.ids.next(UnixMillis::now().0)
    }

    fn header<'a>(
        &'a self,
        context: &'a mut SessionContext,
        envelope: &'a Envelope,
        header: &'a [u8],
    ) -> Answer<'a, Result<(), Reply>> {
        context.run(Stage::Header, |view| View { header, ..view.with_envelope(envelope) })
    }

    fn body<'a>(&'a self, context: &'a mut SessionContext, piece: &'a [u8]) -> Answer<'a, Result<(), Reply>> {
        context.run(Stage::Body, |view| View { body: piece, ..view })
    }

    fn content<'a>(
        &'a self,
        context: &'a mut SessionContext,
        envelope: &'a Envelope,
        content: &'a ReceivedContent,
    ) -> Answer<'a, Result<(), Reply>> {
        let view = |view: View<'a>| View {
            header: content.header(),
            content: Some(content),
            ..view.with_envelope(envelope)
        };
        context.run(Stage::End, view)
    }

    fn judges_at_commit(&self, context: &SessionContext) -> bool {
        context.config.pipeline.has_filters()
    }

    async fn commit(&self, context: &mut SessionContext, draft: Draft) -> Reply {
        let Draft { id, arrived, origin, mut envelope, mut content } = draft;
        let _entering = match self.enter(context.is_stranger(), content.size_bytes()) {
            Ok(entering) => entering,
            Err(reply) => {
                self.forget(content.parts());
                return reply;
            }
        };
        context.set_priority(&mut envelope, &mut content);
        if let Some(login) = context.facts.login.as_ref().or(context.facts.named_login.as_ref()) {
            envelope.options.get_or_insert_default().login = Some(login.clone());
        }
        let (config, mut decisions) = (&context.config, std::mem::take(&mut context.decisions));
        if decisions.replaces_body() || config.pipeline.has_filters() || config.pipeline.has(Stage::Seal) {
            let view = View::new(Stage::End, config.rules(), &context.facts).with_envelope(&envelope);
            let memory = &mut context.memory;
            let finished = self.finish_content(config, view, memory, id, &mut content, &mut decisions);
            if let Err(reply) = Box::pin(finished).await {
                self.forget(content.parts());
                return if config.settings.queue.soft_bounce { reply.softened() } else { reply };
            }
        } else {
            decisions.change(&mut content);
        }
        let finished = decisions.finish(id, arrived, origin, envelope, content);
        self.accept(config, finished).await
    }

    fn store(
        &self,
        context: &SessionContext,
        envelope: &Envelope,
        chunk: Bytes,
    ) -> Result<ChunkId, StoreError> {
        if context.is_stranger() {
            self.space_for_strangers(chunk.len() as u64).map_err(StoreError::Refused)?;
        }
        self.spool.store_for(envelope, chunk).map_err(|refused| match refused {
            Refused::Busy => StoreError::Busy,
            refused => StoreError::Refused(Self::refusal(refused)),
        })
    }

    async fn wait_for_space(&self) {
        tokio::time::sleep(BEHIND).await;
    }

    fn discard_chunks(&self, chunk_ids: &[ChunkId]) {
        self.spool.discard_chunks(chunk_ids);
    }

    fn log_reject(&self, client: &Client, stage: &'static str, envelope: Option<&Envelope>, reply: &Reply) {
        self.intake.log().rejected(client, stage, envelope, reply);
        let Client { peer, local, listener, .. } = *client;
        self.count_failure(&Facts::new(Source::Smtp { peer, local, listener }));
    }

    fn log_connection(&self, client: &Client, event: ConnectionEvent<'_>) {
        self.intake.log().connection(client, &event);
    }
}
