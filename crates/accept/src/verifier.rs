//! Asks next hops whether recipients exist, and keeps the answers.

use delivery::{Courier, Existence};
use mail::{Destination, Enhanced, Mailbox, Outcome};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use tokio::{
    sync::{Semaphore, watch},
    time::timeout,
};

/// Time limit of a question. A session waits for an answer a second longer.
const QUESTION_TIMEOUT: Duration = Duration::from_secs(29);
/// Time for which an answer is kept that a recipient exists.
const EXISTS_TTL: Duration = Duration::from_secs(3600);
/// Time for which an answer is kept that a recipient does not exist.
const REFUSED_TTL: Duration = Duration::from_secs(300);
/// Answers in each of the two generations of the table.
const GENERATION_MAX: usize = 10_000;
/// Time between two warnings about a destination that does not answer.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);
/// Questions that are open at one destination at a time.
const QUESTIONS_PER_DESTINATION: usize = 20;

/// One question; its answer is kept under it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    destination: Destination,
    mailbox: Mailbox,
}

/// The answer to a question, once it is there.
type Asked = watch::Receiver<Option<Existence>>;

#[derive(Default)]
struct Table {
    /// Two generations of answers: when the young one is full it becomes the old one, whose answers are dropped.
    young: HashMap<Key, (Instant, Existence)>,
    old: HashMap<Key, (Instant, Existence)>,
    /// Open questions: at most one for each session.
    asked: HashMap<Key, Asked>,
    /// Permits for the questions of each destination that has some.
    permits: HashMap<Destination, Arc<Semaphore>>,
    /// The time of the last warning about each destination that did not answer.
    warned: HashMap<Destination, Instant>,
}

impl Table {
    fn kept(&self, key: &Key, now: Instant) -> Option<Existence> {
        let (until, existence) = self.young.get(key).or_else(|| self.old.get(key))?;
        (*until > now).then(|| existence.clone())
    }

    /// Ends a question. An answer that says something is kept.
    fn answer(&mut self, key: Key, existence: Existence, now: Instant) {
        self.asked.remove(&key);
        let ttl = match existence {
            Existence::Exists => EXISTS_TTL,
            Existence::Refused(_) => REFUSED_TTL,
            Existence::Unclear(_) => return,
        };
        if self.young.len() >= GENERATION_MAX {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, (now + ttl, existence));
    }

    /// Returns whether to warn that a destination does not answer: clients choose the addresses, and so would choose the number of
    /// lines in the log.
    fn warns(&mut self, destination: &Destination, now: Instant) -> bool {
        self.warned.retain(|_, warned| now.saturating_duration_since(*warned) < WARNING_INTERVAL);
        if self.warned.contains_key(destination) {
            return false;
        }
        self.warned.insert(destination.clone(), now);
        true
    }

    fn permits(&mut self, destination: &Destination) -> Arc<Semaphore> {
        let new = || Arc::new(Semaphore::new(QUESTIONS_PER_DESTINATION));
        self.permits.entry(destination.clone()).or_insert_with(new).clone()
    }
}

/// Asks whether recipients exist. Each address is asked for once at a time, whatever the number of sessions.
pub(crate) struct Verifier {
    courier: Arc<Courier>,
    table: Mutex<Table>,
}

impl Verifier {
    pub(crate) fn new(courier: Arc<Courier>) -> Self {
        Self { courier, table: Mutex::default() }
    }

    /// Returns whether a mailbox exists at a destination.
    pub(crate) async fn existence(self: &Arc<Self>, destination: Destination, mailbox: Mailbox) -> Existence {
        let key = Key { destination, mailbox };
        let mut asked = {
            let mut table = self.table();
            if let Some(existence) = table.kept(&key, Instant::now()) {
                return existence;
            }
            match table.asked.get(&key) {
                Some(asked) => asked.clone(),
                None => self.begin(&mut table, key),
            }
        };
        // The task answers in any case, unless the runtime ends.
        let answered = asked.wait_for(Option::is_some).await;
        answered.ok().and_then(|answer| answer.clone()).unwrap_or_else(|| Existence::Unclear(late()))
    }

    /// Begins a question in a task of its own: the client that caused it may leave before the others.
    fn begin(self: &Arc<Self>, table: &mut Table, key: Key) -> Asked {
        let (tell, asked) = watch::channel(None);
        table.asked.insert(key.clone(), asked.clone());
        let (verifier, permits) = (self.clone(), table.permits(&key.destination));
        tokio::spawn(async move {
            let question = async {
                let _permit = permits.acquire().await;
                verifier.courier.verify(&key.destination, &key.mailbox).await
            };
            let answered = timeout(QUESTION_TIMEOUT, question).await;
            let existence = answered.unwrap_or_else(|_| Existence::Unclear(late()));
            let mut table = verifier.table();
            if let Existence::Unclear(outcome) = &existence
                && table.warns(&key.destination, Instant::now())
            {
                tracing::warn!("{} cannot be verified now: {}", key.mailbox, outcome.text);
            }
            // This task and the table have the last two clones.
            if Arc::strong_count(&permits) <= 2 {
                table.permits.remove(&key.destination);
            }
            table.answer(key, existence.clone(), Instant::now());
            drop(table);
            tell.send_replace(Some(existence));
        });
        asked
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn late() -> Outcome {
    Outcome::deferred(Enhanced(4, 4, 1), "the next hop does not answer in time")
}

#[cfg(test)]
mod tests {
    use super::*;
    use mail::{Reply, TlsMode};

    fn key(number: usize) -> Key {
        let mailbox = Mailbox::parse(&format!("u{number}@b.test"), true).unwrap();
        Key { destination: Destination::mx("b.test", TlsMode::May), mailbox }
    }

    #[test]
    fn a_yes_is_kept_for_an_hour_a_no_for_five_minutes_and_no_answer_not_at_all() {
        let (mut table, now) = (Table::default(), Instant::now());
        table.answer(key(1), Existence::Exists, now);
        table.answer(key(2), Existence::Refused(Reply::bare(550, "no")), now);
        table.answer(key(3), Existence::Unclear(late()), now);
        let after = |number, seconds| table.kept(&key(number), now + Duration::from_secs(seconds)).is_some();
        assert!(after(1, 3599) && !after(1, 3600));
        assert!(after(2, 299) && !after(2, 300));
        assert!(!after(3, 0));
    }

    #[test]
    fn a_destination_that_does_not_answer_is_named_once_a_minute() {
        let (mut table, now) = (Table::default(), Instant::now());
        let (one, other) = (key(1).destination, Destination::mx("c.test", TlsMode::May));
        assert!(table.warns(&one, now) && !table.warns(&one, now) && table.warns(&other, now));
        assert!(table.warns(&one, now + WARNING_INTERVAL));
    }

    #[test]
    fn the_number_of_answers_is_bounded() {
        let (mut table, now) = (Table::default(), Instant::now());
        for number in 0..3 * GENERATION_MAX {
            table.answer(key(number), Existence::Exists, now);
        }
        assert!(table.young.len() + table.old.len() <= 2 * GENERATION_MAX);
        assert!(table.kept(&key(3 * GENERATION_MAX - 1), now).is_some());
    }
}
