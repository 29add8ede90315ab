//! Checks that decide at random, and a record of their judgments. They answer at once, late or never, or say that they failed.

use super::{
    front::RULE_FIELD,
    oracle::{Who, who},
};
use crate::seed::Rng;
use accept::{
    CheckMemory,
    check::{Check, LOOKUP_FAILED, View},
};
use inbound::Answer;
use mail::{Edit, Enhanced, Expansion, Field, ForwardPath, Recipient, Reply, ReturnPath, ReversePath};
use policy::{Stage, Verdict};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// The name of the fields that these checks add. Each value is given once.
pub(super) const CHECK_FIELD: &str = "X-Check";

/// Transactions with more recipients meet each of these fates as often as those with few.
const FEW_RECIPIENTS: u64 = 10;

/// Numbers of recipients from here on are those of copies.
pub(super) const COPIES_FROM: u32 = 10_000;

/// What a check decided of a transaction.
#[derive(Debug, Clone)]
pub(super) enum What {
    /// A field is added: this line, without its end.
    Field(String),
    /// This recipient takes the place of the one that is judged.
    Redirect(Box<Recipient>),
    /// Nobody gets it, though the client hears 250.
    Discard,
    /// A further recipient, whom the client did not name.
    Copy(Box<Recipient>),
    /// It waits for an operator.
    Hold,
}

/// A decision that a check has given to the pipeline.
#[derive(Debug, Clone)]
pub(super) struct Decision {
    /// At RCPT, the recipient that is judged; `None` for the message.
    pub(super) of: Option<Who>,
    pub(super) what: What,
}

/// What the checks know of a client's transaction.
#[derive(Debug, Default)]
pub(super) struct Judged {
    recipient_count: u64,
    /// Which configuration judged MAIL, and has to judge the rest.
    generation: Option<u64>,
    pub(super) decisions: Vec<Decision>,
}

/// All decisions. It is no part of the tested code.
#[derive(Debug)]
pub(super) struct Judgments {
    judged: BTreeMap<u64, Judged>,
    /// The generation of the newest configuration.
    generation: u64,
    serial: u64,
    rng: Rng,
    /// Transactions that were judged by two configurations.
    pub(super) violations: Vec<String>,
}

/// The judgments, shared with the checks of each configuration.
#[derive(Debug, Clone)]
pub(super) struct SharedJudgments(Arc<Mutex<Judgments>>);

impl Default for SharedJudgments {
    fn default() -> Self {
        Self::new(Rng::new(0))
    }
}

impl SharedJudgments {
    pub(super) fn new(rng: Rng) -> Self {
        let (judged, violations) = (BTreeMap::new(), Vec::new());
        Self(Arc::new(Mutex::new(Judgments { judged, generation: 0, serial: 0, rng, violations })))
    }

    pub(super) fn with<T>(&self, f: impl FnOnce(&mut Judgments) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Judgments {
    /// Begins the transaction of an attempt with so many recipients.
    pub(super) fn begin(&mut self, attempt: u64, recipient_count: usize) {
        let recipient_count = recipient_count as u64;
        self.judged.insert(attempt, Judged { recipient_count, ..Judged::default() });
    }

    /// The configuration is read again. Returns its generation.
    pub(super) fn next_generation(&mut self) -> u64 {
        self.generation += 1;
        self.generation
    }

    pub(super) fn judged(&self, attempt: u64) -> Option<&Judged> {
        self.judged.get(&attempt)
    }

    /// Transactions of one configuration are judged by it to their end.
    fn check_generation(&mut self, attempt: u64, stage: Stage, generation: u64) {
        let current = self.generation;
        let Some(judged) = self.judged.get_mut(&attempt) else { return };
        if stage == Stage::Mail {
            judged.generation = Some(current);
        }
        // What was decided of the connection was decided before.
        if let Some(begun) = judged.generation
            && begun != generation
        {
            let text = format!(
                "attempt {attempt} began with configuration {begun}, and {} is judged by {generation}",
                stage.as_str()
            );
            self.violations.push(text);
        }
    }

    fn note(&mut self, attempt: u64, of: Option<Who>, what: What) {
        if let Some(judged) = self.judged.get_mut(&attempt) {
            judged.decisions.push(Decision { of, what });
        }
    }

    /// A rule of the configuration adds a field that names the configuration.
    fn note_generation_field(&mut self, attempt: u64) {
        let begun = self.judged.get(&attempt).and_then(|judged| judged.generation).unwrap_or(0);
        self.note(attempt, None, What::Field(format!("{RULE_FIELD}: {begun}")));
    }

    /// Returns a verdict that adds a field with a value of its own, so that each is found again.
    fn field(&mut self, attempt: u64, stage: Stage, of: Option<Who>) -> Verdict {
        self.serial += 1;
        let of_whom = of.map_or(String::new(), |(n, k)| format!(" m{n}r{k}"));
        let value = format!("{} of a{attempt}, {}{of_whom}", self.serial, stage.as_str());
        self.note(attempt, of, What::Field(format!("{CHECK_FIELD}: {value}")));
        let field = Field::new(CHECK_FIELD, &value).expect("a field");
        Verdict::Edit([Edit::Append(field)].into_iter().collect())
    }

    /// True so many times of a thousand transactions with few recipients; with many, of their recipients together.
    fn happens(&mut self, attempt: u64, permille: u64) -> bool {
        let recipients = self.judged.get(&attempt).map_or(1, |judged| judged.recipient_count);
        self.rng.below(1000 * (recipients / FEW_RECIPIENTS).max(1)) < permille
    }
}

/// When a check answers.
enum When {
    Now,
    Later(Duration),
    Never,
}

/// One of two checks behind all others. The first decides much; the second refuses what the first has decided about.
pub(super) struct SimCheck {
    generation: u64,
    judgments: SharedJudgments,
    is_second: bool,
}

/// The number of the client's transaction, which it says in EHLO.
pub(super) fn attempt_of(hello: &str) -> Option<u64> {
    hello.strip_prefix('a')?.split('.').next()?.parse().ok()
}

impl Check for SimCheck {
    fn stages(&self) -> Vec<Stage> {
        if self.is_second {
            return vec![Stage::Rcpt, Stage::Content];
        }
        vec![Stage::Hello, Stage::Mail, Stage::Rcpt, Stage::Header, Stage::Content]
    }

    fn check<'a>(&'a self, _: Option<&'a mut dyn CheckMemory>, view: View<'a>) -> Answer<'a, Verdict> {
        let hello = view.facts.hello.as_deref();
        let Some(attempt) = hello.and_then(attempt_of) else { return Answer::Ready(Verdict::Pass) };
        let when = self.judgments.with(|judgments| {
            judgments.check_generation(attempt, view.stage, self.generation);
            match () {
                () if judgments.happens(attempt, 120) => {
                    let most = [100, 5_000, 60_000][judgments.rng.index(3)];
                    When::Later(Duration::from_millis(judgments.rng.below(most)))
                }
                () if judgments.happens(attempt, 6) => When::Never,
                () => When::Now,
            }
        });
        match when {
            When::Now => Answer::Ready(self.decide(attempt, &view)),
            When::Later(delay) => Answer::later(async move {
                tokio::time::sleep(delay).await;
                self.decide(attempt, &view)
            }),
            When::Never => Answer::later(std::future::pending()),
        }
    }
}

const REJECTED: Reply = Reply::fixed(550, Enhanced(5, 7, 1), "A check says no");

impl SimCheck {
    /// Both checks of a configuration, in their order.
    pub(super) fn both(generation: u64, judgments: &SharedJudgments) -> [Self; 2] {
        [false, true].map(|is_second| Self { generation, judgments: judgments.clone(), is_second })
    }

    fn decide(&self, attempt: u64, view: &View<'_>) -> Verdict {
        self.judgments.with(|judgments| match view.stage {
            _ if self.is_second && judgments.happens(attempt, 25) => Verdict::Reject(REJECTED),
            _ if self.is_second && judgments.happens(attempt, 25) => Verdict::Defer(LOOKUP_FAILED),
            _ if self.is_second => Verdict::Pass,
            Stage::Hello => judgments.field(attempt, view.stage, None),
            Stage::Rcpt => match view.recipient.and_then(|to| Some((to, who(to.path.as_str())?))) {
                Some((to, who)) => recipient(judgments, attempt, to, who),
                None => Verdict::Pass,
            },
            stage => message(judgments, attempt, stage, view),
        })
    }
}

/// Decides about the whole message.
fn message(judgments: &mut Judgments, attempt: u64, stage: Stage, view: &View<'_>) -> Verdict {
    if judgments.happens(attempt, 10) {
        return Verdict::Reject(REJECTED);
    }
    if judgments.happens(attempt, 10) {
        return Verdict::Defer(LOOKUP_FAILED);
    }
    if stage == Stage::Content {
        // The rules were asked before.
        judgments.note_generation_field(attempt);
    }
    let mut verdicts = Vec::new();
    if judgments.happens(attempt, 300) {
        verdicts.push(judgments.field(attempt, stage, None));
    }
    if judgments.happens(attempt, 30) {
        judgments.note(attempt, None, What::Hold);
        verdicts.push(Verdict::Hold("by a check".into()));
    }
    let first = view.envelope.and_then(|envelope| envelope.recipients.first());
    if stage == Stage::Content
        && judgments.happens(attempt, 60)
        && let Some((n, _)) = first.and_then(|to| who(to.path.as_str()))
    {
        let copy = copy_of((n, COPIES_FROM - 1), attempt);
        judgments.note(attempt, None, What::Copy(Box::new(copy.clone())));
        verdicts.push(Verdict::Bcc(vec![copy]));
    }
    if stage == Stage::Content && judgments.happens(attempt, 20) {
        judgments.note(attempt, None, What::Discard);
        verdicts.push(Verdict::Discard("by a check".into()));
    }
    Verdict::All(verdicts)
}

/// Decides about a recipient. What ends the questions about it stands last.
fn recipient(judgments: &mut Judgments, attempt: u64, to: &Recipient, who: Who) -> Verdict {
    if judgments.happens(attempt, 30) {
        return Verdict::Reject(REJECTED);
    }
    if judgments.happens(attempt, 20) {
        return Verdict::Defer(LOOKUP_FAILED);
    }
    let mut verdicts = Vec::new();
    if judgments.happens(attempt, 150) {
        verdicts.push(judgments.field(attempt, Stage::Rcpt, Some(who)));
    }
    if judgments.happens(attempt, 30) {
        let copy = copy_of(who, attempt);
        judgments.note(attempt, Some(who), What::Copy(Box::new(copy.clone())));
        verdicts.push(Verdict::Bcc(vec![copy]));
    }
    if judgments.happens(attempt, 10) {
        judgments.note(attempt, Some(who), What::Hold);
        verdicts.push(Verdict::Hold("by a check".into()));
    }
    if judgments.happens(attempt, 20) {
        judgments.note(attempt, Some(who), What::Discard);
        verdicts.push(Verdict::Discard("by a check".into()));
    } else if let Some(other) = redirected(judgments, attempt, to, who) {
        judgments.note(attempt, Some(who), What::Redirect(Box::new(other.clone())));
        verdicts.push(Verdict::Redirect(vec![other]));
    }
    Verdict::All(verdicts)
}

/// A copy for the archive, of which nobody is notified.
fn copy_of((n, k): Who, attempt: u64) -> Recipient {
    let number = COPIES_FROM * (attempt as u32 + 1) + k;
    let path = ForwardPath::parse(&format!("m{n}r{number}@archive.test"), false).expect("an address");
    Recipient::copy(path)
}

/// Some go to another domain; those of every tenth mail are of a list, and have its owner; and one in five mails was sent to an
/// alias.
fn redirected(judgments: &mut Judgments, attempt: u64, to: &Recipient, (n, k): Who) -> Option<Recipient> {
    let mut other = to.clone();
    if judgments.happens(attempt, 60) {
        let domain = judgments.rng.below(5);
        other.path = ForwardPath::parse(&format!("m{n}r{k}@d{domain}.test"), false).ok()?;
    }
    if n % 10 == 3 {
        let path = ReversePath::parse(&format!("owner{n}@src.test"), false).ok()?;
        other.set_return_path(ReturnPath { path, is_list: true });
    }
    if n % 5 == 3
        && k.is_multiple_of(3)
        && let Some(original) = to.path.mailbox()
    {
        let (original, through) = (original.clone(), vec![original.clone()]);
        other.options.get_or_insert_default().expansion = Some(Expansion { original, through });
    }
    (other != *to).then_some(other)
}
