//! The commit that ends the accept pipeline: makes messages durable, and gives them to the queue.

mod authenticate;
mod content;
mod deliver_first;
mod expand;
mod extensions;
mod local;
mod replacement;
mod room;
mod session;

pub use expand::unreadable;
pub use replacement::{NotReplaced, Replacement};
pub use room::KEPT_SHARE;
pub use session::SessionContext;

use crate::{
    accept_config::AcceptConfig,
    active::{ActiveCount, ActiveGuard},
    decisions::{Accepted, Expanded},
    intake::Intake,
    latency::LatencyCounter,
    logins::Logins,
    verp,
};
use mail::{
    Content, Enhanced, Envelope, IdSource, Message, Outcome, Part, QueueId, ReceivedContent, Reply,
    SharedMessage, content::chunk_ids,
};
use room::Entering;
use smtp::server::replies;
use spool::{CommitSeq, Entry, Refused, Spool, SpoolFailure};
use std::{pin::pin, sync::Arc, time::Duration};
use tokio::time::{Instant, timeout};

/// Content above this goes to the spool in pieces of this size.
pub const CHUNK_BYTES: usize = 256 * 1024;

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
pub struct Acceptor<I> {
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
    #[cfg(feature = "mutants")]
    pub(crate) mutant: crate::Mutant,
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
    /// Returns an acceptor whose messages go to `spool`, with ids of `ids`, and then to `intake`.
    pub fn new(intake: Arc<I>, spool: Arc<dyn Spool>, ids: Arc<IdSource>) -> Self {
        Self {
            intake,
            spool,
            ids,
            latency: LatencyCounter::default(),
            late: ActiveCount::default(),
            entering: Entering::default(),
            logins: Logins::new(),
            #[cfg(feature = "mutants")]
            mutant: crate::Mutant::None,
        }
    }

    /// Returns the program around it.
    pub fn intake(&self) -> &Arc<I> {
        &self.intake
    }

    /// Returns the number of messages whose clients were told to try again, and that may still be stored.
    pub fn late_count(&self) -> usize {
        self.late.count()
    }

    /// Returns the time from the submission of messages to the spool until they were durable.
    pub fn latency(&self) -> &LatencyCounter {
        &self.latency
    }

    /// Returns the state of logins that outlives a reload.
    pub fn logins(&self) -> &Logins {
        &self.logins
    }

    fn commit_timeout(&self) -> Duration {
        self.intake.config().settings.spool.commit_timeout
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
    async fn accept_in_task(self: &Arc<Self>, config: Arc<AcceptConfig>, accepted: Accepted) -> Reply {
        let own = self.clone();
        let accepted = tokio::spawn(async move { own.accept(&config, accepted).await });
        accepted.await.unwrap_or(replies::LOCAL_ERROR)
    }

    /// Ends the pipeline: makes the message durable and queues it, unless the draft was discarded. Returns the reply,
    /// which is positive only when the message would survive a power cut.
    async fn accept(&self, config: &AcceptConfig, accepted: Accepted) -> Reply {
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
        let entries = || portions().map(|portion| Entry::of(portion.clone(), logged.held.clone()));
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
        #[cfg(feature = "mutants")]
        if self.mutant == crate::Mutant::RefuseStored {
            return replies::SPOOL_BUSY;
        }
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
            let id = self.ids.next(self.intake.now().0);
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
        config: &AcceptConfig,
        expanded: &Expanded,
        message: &Message,
    ) -> Vec<SharedMessage> {
        let hostname = config.settings.hostname.as_str();
        let composed = expanded.compose(message, hostname, &config.reports, &self.ids, self.intake.now());
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
        #[cfg(feature = "mutants")]
        if self.mutant == crate::Mutant::AnswerEarly {
            return Ok(Ok(()));
        }
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

/// The outcome that a reply of the pipeline means.
fn outcome(make: fn(Enhanced, String) -> Outcome, reply: &Reply) -> Outcome {
    make(reply.enhanced.unwrap_or(Enhanced(4, 3, 0)), reply.text().to_owned())
}

fn queued_as(id: QueueId) -> Reply {
    Reply::new(250, Enhanced(2, 0, 0), format!("Ok: queued as {id}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_not_called_a_silent_one_and_the_time_is_that_which_has_passed() {
        let two = Duration::from_secs(2);
        assert_eq!(why_late(true, two), ("the disk of the spool has had no room for 2.0 s".to_owned(), 452));
        assert_eq!(why_late(false, two), ("the disk has not answered for 2.0 s".to_owned(), 451));
    }
}
