//! A compiled program of rules, checks and limits, and its evaluation.

use crate::{
    Action, Answers, Audience, Condition, Fact, Facts, Finding, Limit, LimitId, MapInfo, Measure, Modifiers,
    Question, ReplyText, Rule, Scope, ServiceAction, Stage, Verdict, condition::Judge,
};
use mail::{Enhanced, Field, Mailbox, Reply};
use rewrite::Separator;
use std::time::Duration;

/// The rules of a configuration, in the order of their evaluation. An empty program passes everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Program {
    rules: Vec<Rule>,
    limits: Vec<Limit>,
    /// Indexed by stage.
    steps: [Vec<Step>; Stage::COUNT],
    maps: Vec<MapInfo>,
    services: Vec<Box<str>>,
    separator: Option<Separator>,
    own_names: Vec<Box<str>>,
}

/// One step at a stage; steps run in order until one decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The index of a rule, or of a check that is one.
    Rule(usize),
    /// A limit that no rule asks for: it refuses by itself.
    Limit(LimitId),
}

/// Addresses that a rule sends mail to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Targets {
    /// As written, before aliases are looked up.
    pub mailboxes: Vec<Mailbox>,
    /// The rule that names them and its line, for the log.
    pub by: Box<str>,
}

/// The changes that rules ask for beside the verdict.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Effects {
    /// Words for rules of later stages.
    pub tags: Vec<Box<str>>,
    /// Added to the score that rules of later stages see.
    pub score: i32,
    /// Delay before the reply is sent.
    pub delay: Duration,
    /// Added to the header.
    pub fields: Vec<Field>,
    /// In place of the recipient, or of all.
    pub redirect: Option<Box<Targets>>,
    /// Further recipients.
    pub bcc: Vec<Targets>,
    /// The name of the route by which the mail leaves.
    pub route: Option<Box<str>>,
    /// The client counts as trusted at later stages.
    pub is_trusted: bool,
}

/// What the rules decide at a stage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ruling {
    /// Pass, if no rule decided.
    pub verdict: Verdict,
    /// What decided, for the log; `None` if nothing did.
    pub by: Option<Box<str>>,
    /// What the rules want done besides; they count even if no rule decided.
    pub effects: Effects,
}

/// What the driver has to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Answer these questions, and evaluate again.
    Ask(Vec<Question>),
    /// The stage is over.
    Done(Ruling),
}

/// Watches how rules are judged; `()` watches nothing.
pub trait Trace {
    /// True if anything is observed.
    const IS_ON: bool;

    /// An evaluation begins, perhaps once more with further answers.
    fn begin(&mut self, stage: Stage);

    /// A rule was judged. `text` says which condition decided, and by which value.
    fn judged(&mut self, place: &str, text: &str);
}

impl Trace for () {
    const IS_ON: bool = false;

    fn begin(&mut self, _: Stage) {}

    fn judged(&mut self, _: &str, _: &str) {}
}

/// A map does not answer (the log says why): the sender tries again.
const LOOKUP_FAILED: Reply =
    Reply::fixed(451, Enhanced(4, 3, 0), "Temporary lookup failure, try again later");

/// What one rule says to the facts.
enum Judged {
    Holds {
        /// For the reply: the value that a map had.
        text: Option<Box<str>>,
        /// The conditions that held, in words; empty unless something traces.
        why: Vec<String>,
    },
    /// The condition that does not hold, in words.
    Not(String),
    Ask(Vec<Question>),
    Failed(Box<str>),
}

impl Program {
    /// Compiles a program. Rules run in their order, then limits that no rule asks for.
    pub fn new(
        mut rules: Vec<Rule>,
        limits: Vec<Limit>,
        maps: Vec<MapInfo>,
        services: Vec<Box<str>>,
        separator: Option<Separator>,
        own_names: Vec<Box<str>>,
    ) -> Self {
        let mut steps: [Vec<Step>; Stage::COUNT] = Default::default();
        for (number, rule) in rules.iter_mut().enumerate() {
            rule.sort();
            steps[rule.stage as usize].push(Step::Rule(number));
        }
        for (number, limit) in limits.iter().enumerate().filter(|(_, limit)| !limit.is_for_rules) {
            let stage = limit.measure.stage().max(limit.per.first_stage());
            steps[stage as usize].push(Step::Limit(LimitId(number as u16)));
        }
        Self { rules, limits, steps, maps, services, separator, own_names }
    }

    /// Does nothing happen at any stage?
    pub fn is_empty(&self) -> bool {
        self.steps.iter().all(Vec::is_empty)
    }

    /// Does something happen at this stage?
    pub fn has(&self, stage: Stage) -> bool {
        !self.steps[stage as usize].is_empty()
    }

    /// Returns the steps of a stage in the order in which they run.
    pub fn steps(&self, stage: Stage) -> &[Step] {
        &self.steps[stage as usize]
    }

    /// All rules, with those of checks behind them.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Returns all limits; [`LimitId`] is the index.
    pub fn limits(&self) -> &[Limit] {
        &self.limits
    }

    /// Returns all maps; [`crate::MapId`] is the index.
    pub fn maps(&self) -> &[MapInfo] {
        &self.maps
    }

    /// Returns the names of policy services; [`crate::ServiceId`] is the index.
    pub fn services(&self) -> &[Box<str>] {
        &self.services
    }

    /// Returns the lifetime of the answer to a question.
    pub fn scope(&self, stage: Stage, question: &Question) -> Scope {
        match question {
            Question::ClientName | Question::DnsList(_, None) => Scope::Session,
            Question::DnsList(..) if stage < Stage::Mail => Scope::Session,
            Question::DnsList(..) => Scope::Transaction,
            Question::Map(..) if stage < Stage::Mail => Scope::Session,
            Question::Map(..) => Scope::Transaction,
            Question::Spend(id, ..) => match self.limits[usize::from(id.0)].measure {
                Measure::Connections | Measure::Failures => Scope::Session,
                Measure::Messages | Measure::Bytes => Scope::Transaction,
                Measure::Recipients => Scope::Recipient,
            },
            Question::Service(_) if stage == Stage::Rcpt => Scope::Recipient,
            Question::Service(_) if stage < Stage::Mail => Scope::Session,
            Question::Service(_) => Scope::Transaction,
        }
    }

    /// Evaluates the rules of a stage from the top, with what is known, until one decides; then the limits, unless the mail is
    /// refused anyway. The same facts and answers give the same result.
    pub fn evaluate<T: Trace>(
        &self,
        stage: Stage,
        facts: &Facts<'_>,
        answers: &Answers,
        trace: &mut T,
    ) -> Next {
        trace.begin(stage);
        let (mut effects, mut is_trusted) = (Effects::default(), facts.is_trusted);
        let (mut verdict, mut by, mut shared) = (Verdict::Pass, None, Shared::default());
        for step in self.steps(stage) {
            let rule = match step {
                Step::Rule(_) if verdict != Verdict::Pass => continue,
                Step::Rule(number) => &self.rules[*number],
                Step::Limit(id) => {
                    let judge = self.judge_of(facts, answers, &effects, &shared);
                    let limit = &self.limits[usize::from(id.0)];
                    match judge.spend(*id) {
                        Finding::Ask(questions) => return Next::Ask(questions),
                        Finding::Holds(_) => {
                            trace_limit(trace, limit, true);
                            let verdict = deferred(&limit.reply, facts);
                            return Next::Done(Ruling {
                                verdict,
                                by: Some(limit_place(limit).into()),
                                effects,
                            });
                        }
                        _ => trace_limit(trace, limit, false),
                    }
                    continue;
                }
            };
            let is_for = match rule.audience {
                Audience::All => true,
                Audience::Untrusted => !is_trusted,
                Audience::Users => is_trusted && facts.session.client().is_some(),
            };
            if !is_for {
                if T::IS_ON {
                    trace.judged(&rule.place(), &format!("no: it is for {} clients", rule.audience.as_str()));
                }
                continue;
            }
            let judge = self.judge_of(facts, answers, &effects, &shared);
            let judged = self.judge(rule, &judge, false, T::IS_ON);
            let (text, why) = match judged {
                Judged::Not(why) => {
                    if T::IS_ON {
                        trace.judged(&rule.place(), &format!("no: {why}"));
                    }
                    continue;
                }
                Judged::Ask(questions) => return Next::Ask(questions),
                Judged::Failed(why) => {
                    if T::IS_ON {
                        trace.judged(&rule.place(), &format!("a look-up failed: {why}"));
                    }
                    let by = Some(format!("{}: {why}", rule.place()).into());
                    return Next::Done(Ruling { verdict: Verdict::Defer(LOOKUP_FAILED), by, effects });
                }
                Judged::Holds { text, why } => (text.unwrap_or_default(), why),
            };
            if let Some(Action::Ask(service)) = &rule.action
                && answers.find(&Question::Service(*service)).is_none()
            {
                return Next::Ask(vec![Question::Service(*service)]);
            }
            if T::IS_ON {
                let why = if why.is_empty() { String::new() } else { format!(", {}", why.join(", ")) };
                trace.judged(&rule.place(), &format!("yes{why}: {}", self.explain_action(rule)));
            }
            let Modifiers { tags, score, .. } = &rule.modifiers;
            let mut is_for_all = true;
            if !tags.is_empty() || *score != 0 {
                is_for_all = match self.judge(rule, &judge, true, false) {
                    Judged::Holds { .. } => true,
                    Judged::Ask(questions) => return Next::Ask(questions),
                    Judged::Not(_) | Judged::Failed(_) => false,
                };
                shared.add(rule, is_for_all);
            }
            // Nobody lowers the score of all by one recipient.
            effects.add(rule, if is_for_all || *score > 0 { *score } else { 0 });
            is_trusted |= rule.modifiers.is_trust;
            if let Some(action) = &rule.action {
                verdict = verdict_of(action, rule, facts, answers, &text, &mut effects);
            }
            if verdict != Verdict::Pass {
                by = Some(rule.place().into());
            }
            if verdict.is_refusal() {
                break;
            }
        }
        Next::Done(Ruling { verdict, by, effects })
    }

    fn judge_of<'a>(
        &'a self,
        facts: &'a Facts<'a>,
        answers: &'a Answers,
        effects: &'a Effects,
        shared: &'a Shared,
    ) -> Judge<'a> {
        Judge {
            facts,
            answers,
            tags: &effects.tags,
            shared_tags: &shared.tags,
            score: effects.score,
            least_score: shared.score,
            is_for_each: false,
            maps: &self.maps,
            limits: &self.limits,
            separator: self.separator,
            own_names: &self.own_names,
        }
    }

    /// Judges a rule. The content has several recipients, whom a sender chooses: nobody may add one to get past a rule for the
    /// others. So whatever spares the mail has to be true of all of them (`spares`: the conditions of the rule; otherwise its
    /// exceptions), and for the rest one is enough.
    fn judge(&self, rule: &Rule, judge: &Judge<'_>, spares: bool, is_traced: bool) -> Judged {
        let why = |condition: &Condition, judge: &Judge<'_>, holds: bool| {
            if is_traced { self.explain_finding(condition, judge, holds) } else { String::new() }
        };
        // What is true of one recipient alone is true of each.
        let (of_rule, of_exceptions);
        let (judge, exceptions) = if judge.facts.to.len() > 1 {
            let spares = spares || rule.spares();
            of_exceptions = Judge { is_for_each: !spares, ..*judge };
            of_rule = Judge { is_for_each: spares, ..*judge };
            (&of_rule, &of_exceptions)
        } else {
            (judge, judge)
        };
        let (mut text, mut held) = (None, Vec::new());
        for condition in &rule.conditions {
            match condition.judge(judge) {
                Finding::Holds(found) => {
                    text = text.or(found);
                    if is_traced {
                        held.push(why(condition, judge, true));
                    }
                }
                Finding::Fails => return Judged::Not(why(condition, judge, false)),
                Finding::Ask(questions) => return Judged::Ask(questions),
                Finding::Failed(why) => return Judged::Failed(why),
            }
        }
        for condition in &rule.unless {
            match condition.judge(exceptions) {
                Finding::Holds(_) => {
                    return Judged::Not(format!("unless {}", why(condition, exceptions, true)));
                }
                Finding::Fails => {}
                Finding::Ask(questions) => return Judged::Ask(questions),
                Finding::Failed(why) => return Judged::Failed(why),
            }
        }
        Judged::Holds { text, why: held }
    }
}

/// What the rules of a stage have set for all recipients.
#[derive(Default)]
struct Shared {
    tags: Vec<Box<str>>,
    score: i32,
}

impl Shared {
    fn add(&mut self, rule: &Rule, is_for_all: bool) {
        let Modifiers { tags, score, .. } = &rule.modifiers;
        if is_for_all {
            self.tags.extend(tags.iter().cloned());
        }
        if is_for_all || *score < 0 {
            self.score = self.score.saturating_add(*score);
        }
    }
}

impl Effects {
    fn add(&mut self, rule: &Rule, score: i32) {
        let Modifiers { tags, score: _, delay, fields, redirect, bcc, route, is_trust } = &rule.modifiers;
        self.tags.extend(tags.iter().cloned());
        self.score = self.score.saturating_add(score);
        self.delay = self.delay.max(*delay);
        self.fields.extend(fields.iter().cloned());
        if !bcc.is_empty() {
            self.bcc.push(Targets { mailboxes: bcc.clone(), by: rule.place().into() });
        }
        self.is_trusted |= is_trust;
        // The first rule that redirects or routes decides.
        if self.route.is_none() {
            self.route.clone_from(route);
        }
        if self.redirect.is_none() && !redirect.is_empty() {
            self.redirect = Some(Box::new(Targets { mailboxes: redirect.clone(), by: rule.place().into() }));
        }
    }
}

fn verdict_of(
    action: &Action,
    rule: &Rule,
    facts: &Facts<'_>,
    answers: &Answers,
    text: &str,
    effects: &mut Effects,
) -> Verdict {
    match action {
        Action::Accept => Verdict::Accept,
        Action::Reject(reply) => Verdict::Reject(reply.fill(facts, text)),
        Action::Defer(reply) => Verdict::Defer(reply.fill(facts, text)),
        Action::Discard(reason) => Verdict::Discard(reason.clone()),
        Action::Hold(reason) => Verdict::Hold(reason.clone()),
        Action::Ask(service) => match answers.find(&Question::Service(*service)) {
            Some(Fact::Service(Ok(action))) => verdict_of_service(action, rule, effects),
            // The driver answers a failure by the setting of the service.
            Some(Fact::Service(Err(_))) | None | Some(_) => Verdict::Defer(LOOKUP_FAILED),
        },
    }
}

fn verdict_of_service(action: &ServiceAction, rule: &Rule, effects: &mut Effects) -> Verdict {
    let to = |mailbox: &Mailbox| Targets { mailboxes: vec![mailbox.clone()], by: rule.place().into() };
    match action {
        ServiceAction::Pass => Verdict::Pass,
        ServiceAction::Accept => Verdict::Accept,
        ServiceAction::Reject(reply) => Verdict::Reject(reply.clone()),
        ServiceAction::Defer(reply) => Verdict::Defer(reply.clone()),
        ServiceAction::Discard(reason) => Verdict::Discard(reason.clone()),
        ServiceAction::Hold(reason) => Verdict::Hold(reason.clone()),
        ServiceAction::Prepend(field) => {
            effects.fields.push(field.clone());
            Verdict::Pass
        }
        ServiceAction::Redirect(mailbox) => {
            effects.redirect.get_or_insert_with(|| Box::new(to(mailbox)));
            Verdict::Pass
        }
        ServiceAction::Bcc(mailbox) => {
            effects.bcc.push(to(mailbox));
            Verdict::Pass
        }
    }
}

fn deferred(reply: &ReplyText, facts: &Facts<'_>) -> Verdict {
    let reply = reply.fill(facts, "");
    if reply.is_transient() { Verdict::Defer(reply) } else { Verdict::Reject(reply) }
}

/// `limit 2, line 40`.
fn limit_place(limit: &Limit) -> String {
    format!("{}, line {}", limit.name, limit.line.0)
}

fn trace_limit<T: Trace>(trace: &mut T, limit: &Limit, is_over: bool) {
    if T::IS_ON {
        let (per, measure) = (limit.per.as_str(), limit.measure.as_str());
        let state = if is_over { "exceeded" } else { "within" };
        trace.judged(&limit_place(limit), &format!("{state}: {} {measure} per {per}", limit.rate));
    }
}

#[cfg(test)]
mod tests;
