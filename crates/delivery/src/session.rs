//! One connection at work: jobs in, transactions on the wire, outcomes back.

use crate::{
    Job, Jobs, Settings,
    connect::{Ready, patience},
    link::Link,
};
use bytes::Bytes;
use mail::{Attempt, Enhanced, Handover, Outcome, SharedMessage};
use smtp::client::{Connection, Event, Phase, Piece, Transaction};
use std::{
    io,
    time::{Duration, Instant},
};

/// Waiting for the answer to QUIT is politeness, not duty; so is for what a server says that takes no more.
const GOODBYE: Duration = Duration::from_secs(2);
/// So often work may be announced and be gone before the connection concludes that it is one too many.
const FALSE_ALARMS_MAX: u32 = 3;
/// Pieces gathered for one write.
const PIECES_MAX: usize = 32;

/// A job whose transaction has begun.
struct InHand {
    name: u64,
    job: Job,
    message: SharedMessage,
    begun: Instant,
    /// Outcomes of earlier transactions of the same job: a server may take fewer recipients at once.
    settled: Vec<(u32, Outcome)>,
    /// Recipients for which there was no room in the transaction.
    rest: Vec<u32>,
}

/// How a connection ended.
enum End {
    /// Nothing is under way.
    Done,
    /// In the middle of something: why.
    Broken(Outcome),
}

pub(crate) struct Session<'a, J> {
    jobs: &'a J,
    settings: &'a Settings,
    link: Link,
    connection: Connection,
    relay: Box<str>,
    tls: Box<str>,
    setup_ms: u64,
    handover: Handover,
    in_hand: Vec<InHand>,
    /// Jobs to begin again, with the recipients that had no room before.
    again: Vec<InHand>,
    next_name: u64,
    message_count: u32,
    /// It was of use: another one will be, too.
    has_finished_some: bool,
    false_alarms: u32,
}

impl<'a, J: Jobs> Session<'a, J> {
    pub(crate) fn new(jobs: &'a J, settings: &'a Settings, ready: Ready, setup: Duration) -> Self {
        Self {
            jobs,
            settings,
            link: ready.link,
            connection: ready.connection,
            relay: ready.relay,
            tls: ready.tls,
            setup_ms: millis(setup),
            handover: ready.handover,
            in_hand: Vec::new(),
            again: Vec::new(),
            next_name: 0,
            message_count: 0,
            has_finished_some: false,
            false_alarms: 0,
        }
    }

    /// Delivers jobs until there are none, or the connection is of no use any more.
    pub(crate) async fn run(mut self) {
        match self.work().await {
            End::Done => self.say_goodbye().await,
            End::Broken(why) => self.give_up(&why),
        }
    }

    async fn work(&mut self) -> End {
        loop {
            self.begin_jobs().await;
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
            let is_used_up = self.message_count >= self.settings.messages_per_connection;
            if self.connection.is_closing() || (is_used_up && self.again.is_empty()) {
                return self.end_of_work();
            }
            if self.again.is_empty() {
                match self.rest().await {
                    Ok(true) => {}
                    Ok(false) => return End::Done,
                    Err(end) => return end,
                }
            }
        }
    }

    fn end_of_work(&self) -> End {
        if self.again.is_empty() {
            return End::Done;
        }
        let text = format!("{} closed the connection before all recipients were sent", self.relay);
        End::Broken(Outcome::deferred(Enhanced(4, 4, 2), text))
    }

    // ---- jobs ----

    async fn begin_jobs(&mut self) {
        while self.connection.can_begin() {
            if let Some(again) = self.again.pop() {
                self.begin(again);
            } else if self.message_count < self.settings.messages_per_connection {
                let Some(job) = self.jobs.take() else { return };
                self.false_alarms = 0;
                match self.jobs.message(&job).await {
                    Ok(message) => self.begin_job(job, message),
                    Err(outcome) => {
                        let results = job.recipients.iter().map(|index| (*index, outcome.clone())).collect();
                        self.jobs.settle(job, results, &Attempt::default());
                    }
                }
            } else {
                return;
            }
        }
    }

    fn begin_job(&mut self, job: Job, message: SharedMessage) {
        self.message_count += 1;
        let begun = Instant::now();
        let rest = job.recipients.clone();
        self.begin(InHand { name: 0, job, message, begun, settled: Vec::new(), rest });
    }

    /// A transaction for as many of the recipients as the server takes at once (RFC 9422).
    fn begin(&mut self, mut hand: InHand) {
        self.next_name += 1;
        hand.name = self.next_name;
        let room = self.connection.capabilities().recipients_max.unwrap_or(usize::MAX).max(1);
        let rest = hand.rest.split_off(hand.rest.len().min(room));
        let recipients = std::mem::replace(&mut hand.rest, rest);
        let transaction = Transaction { name: hand.name, message: hand.message.clone(), recipients };
        self.in_hand.push(hand);
        self.connection.begin(transaction);
    }

    fn take_events(&mut self) {
        while let Some(event) = self.connection.next_event() {
            if let Event::Settled(name, results) = event {
                self.settled(name, results);
            }
        }
    }

    fn settled(&mut self, name: u64, results: Vec<(u32, Outcome)>) {
        let Some(at) = self.in_hand.iter().position(|hand| hand.name == name) else { return };
        let mut hand = self.in_hand.swap_remove(at);
        if self.has_finished_some && hand.settled.is_empty() && are_farewells(&results) {
            self.jobs.put_back(hand.job);
            return;
        }
        // "Too many recipients" is no verdict on those that were too many.
        let some_fit = results.iter().any(|(_, outcome)| !is_too_many(outcome));
        for (index, outcome) in results {
            if some_fit && is_too_many(&outcome) {
                hand.rest.push(index);
            } else {
                hand.settled.push((index, outcome));
            }
        }
        if hand.rest.is_empty() {
            self.finish(hand);
        } else {
            self.again.push(hand);
        }
    }

    fn finish(&mut self, hand: InHand) {
        self.has_finished_some = true;
        let attempt = Attempt {
            relay: self.relay.clone(),
            tls: self.tls.clone(),
            queued_ms: hand.job.queued_ms,
            // Only the first message has waited for it.
            setup_ms: std::mem::take(&mut self.setup_ms),
            transfer_ms: millis(hand.begun.elapsed()),
            handover: self.handover,
        };
        self.jobs.settle(hand.job, hand.settled, &attempt);
    }

    // ---- bytes ----

    /// Writes everything there is to write.
    async fn write(&mut self) -> Result<(), End> {
        loop {
            let Some(piece) = self.connection.next_piece() else { break };
            match piece {
                Piece::Text(text) => self.link.push(text.into()),
                Piece::Content(bytes) => self.link.push(bytes),
                Piece::Load(place) => {
                    // Nothing waits in memory while the disk is read.
                    self.flush().await?;
                    let bytes: Bytes = self.jobs.chunk(place).await.map_err(End::Broken)?;
                    self.connection.loaded(bytes);
                }
            }
            if self.link.unsent_count() >= PIECES_MAX {
                self.flush().await?;
            }
        }
        self.flush().await
    }

    async fn flush(&mut self) -> Result<(), End> {
        let Err(e) = self.link.flush(self.settings.data_timeout).await else { return Ok(()) };
        let end = self.broken(&e);
        // Content that is refused before its end is not read to its end: the reason was said, and is there to
        // be read.
        while let Ok(bytes) = self.link.read(GOODBYE).await {
            if self.connection.receive(bytes).is_err() {
                break;
            }
        }
        Err(end)
    }

    async fn read(&mut self) -> Result<(), End> {
        let patience = patience(self.settings, self.connection.phase());
        match self.link.read(patience).await {
            Ok(bytes) => self.connection.receive(bytes).map_err(|e| {
                End::Broken(Outcome::deferred(Enhanced(4, 5, 0), format!("talk to {}: {e}", self.relay)))
            })?,
            Err(e) => return Err(self.broken(&e)),
        }
        self.take_events();
        Ok(())
    }

    fn broken(&self, e: &io::Error) -> End {
        let command = match self.connection.phase() {
            Phase::Final => "while the reply to the end of the content was awaited",
            Phase::Data => "while the reply to DATA was awaited",
            _ => "in the conversation",
        };
        let text = format!("lost connection with {} {command}: {e}", self.relay);
        End::Broken(Outcome::deferred(Enhanced(4, 4, 2), text))
    }

    /// Nothing to do: waits for a job, for the server to leave, or for its own time to be over. True
    /// when there may be a job.
    async fn rest(&mut self) -> Result<bool, End> {
        if self.jobs.is_closing() {
            return Ok(false);
        }
        let since = Instant::now();
        let read = tokio::select! {
            biased;
            () = self.jobs.ready() => None,
            read = self.link.read(self.settings.idle_timeout) => Some(read),
        };
        match read {
            None => {
                // Announced at once and yet not to be had: others are busy with it.
                self.false_alarms += 1;
                let crowded =
                    self.false_alarms > FALSE_ALARMS_MAX && since.elapsed() < Duration::from_millis(1);
                Ok(!crowded && !self.jobs.is_closing())
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

    async fn say_goodbye(mut self) {
        self.connection.quit();
        while let Some(piece) = self.connection.next_piece() {
            if let Piece::Text(text) = piece {
                self.link.push(text.into());
            }
        }
        // Whether it hears us or answers does not matter any more.
        if self.link.flush(GOODBYE).await.is_ok() {
            let _ = self.link.read(GOODBYE).await;
        }
        self.link.shutdown(GOODBYE).await;
    }

    /// Each job in hand gets an outcome, or goes back when the server never saw it.
    fn give_up(mut self, why: &Outcome) {
        self.take_events();
        let was_of_use = self.has_finished_some;
        for lost in self.connection.lost() {
            let Some(at) = self.in_hand.iter().position(|hand| hand.name == lost.name) else { continue };
            let mut hand = self.in_hand.swap_remove(at);
            // A kept connection that had ended without our knowing says nothing about the message.
            let was_unheard = !lost.content_sent && are_farewells(&lost.refused) && hand.settled.is_empty();
            if was_of_use && was_unheard {
                self.jobs.put_back(hand.job);
                continue;
            }
            hand.settled.extend(lost.refused);
            let open = lost.open.into_iter().chain(std::mem::take(&mut hand.rest));
            hand.settled.extend(open.map(|index| (index, why.clone())));
            self.finish(hand);
        }
        for mut hand in std::mem::take(&mut self.again) {
            let rest = std::mem::take(&mut hand.rest);
            hand.settled.extend(rest.into_iter().map(|index| (index, why.clone())));
            self.finish(hand);
        }
    }
}

/// 421 to MAIL is about the connection: it has lasted too long, or carried too many messages (RFC 5321 §3.8).
fn are_farewells(results: &[(u32, Outcome)]) -> bool {
    results.iter().all(|(_, outcome)| {
        outcome.from_remote
            && outcome.text.starts_with("421")
            && outcome.text.ends_with("(in reply to MAIL FROM)")
    })
}

/// 452 to RCPT, or what older servers say in its place: 552 (RFC 5321 §4.5.3.1.10).
fn is_too_many(outcome: &Outcome) -> bool {
    outcome.from_remote
        && (outcome.text.starts_with("452") || outcome.text.starts_with("552"))
        && matches!(outcome.status, Enhanced(_, 5, 3) | Enhanced(_, 0, 0))
        && outcome.text.ends_with("(in reply to RCPT TO)")
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
