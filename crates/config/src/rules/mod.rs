//! Rules, checks, limits and policy services.

mod compile;
mod greylist;
pub(crate) mod keys;
mod origin;
mod values;

use crate::{local::Local, route::Route, section::Reading};
use compile::{Compiler, NamedLimit};
pub use greylist::Greylisting;
use keys::{Checks, LimitRateKeys, PolicyServiceKeys, RuleKeys};
use maps::{Reference, Server};
pub use origin::Authentication;
use policy::{
    Action, Audience, Condition, Limit, Line, Listee, Measure, Modifiers, Per, Program, ReplyClass,
    ReplyText, Rule, Stage,
};
use rewrite::Separator;
use std::{ops::Range, time::Duration};
use toml::{Spanned, de::DeTable};
use values::DeferVerb;
pub use values::{CheckMode, GreylistMode, OnFailure};

/// The rules of a configuration, compiled, and what they refer to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RuleSet {
    /// The program. Empty if nothing is configured.
    pub program: Program,
    /// By number: the maps of the program, each with the key that names it first.
    pub references: Vec<(String, Reference)>,
    /// By number: the policy services of the program.
    pub services: Vec<PolicyService>,
    /// Rules and checks that are not reached while a temporary rule is there, in words.
    pub warnings: Vec<String>,
    /// What is looked up about the origin of a message.
    pub authentication: Authentication,
    /// None: no mail has to come again.
    pub greylist: Option<Greylisting>,
}

/// A policy server in the protocol of Postfix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyService {
    /// The name of the section.
    pub name: String,
    /// Where the service listens.
    pub address: Server,
    /// Time for one answer.
    pub timeout: Duration,
    /// True if the rules below are read when the server does not answer.
    pub passes_on_failure: bool,
}

/// More would not fit their numbers.
const SECTIONS_MAX: usize = 10_000;

impl Reading<'_> {
    /// Reads and compiles `[[rule]]`, `[checks]`, `[[limit]]` and `[policy_service.NAME]`.
    pub(crate) fn rules(
        &mut self,
        root: &DeTable<'_>,
        hostname: &str,
        local: &Local,
        routes: &[Route],
        separator: Option<Separator>,
    ) -> RuleSet {
        let mut set = RuleSet { services: self.policy_services(root), ..RuleSet::default() };
        let checks: Checks = {
            let table = self.table(root, "checks");
            self.section("checks", table)
        };
        set.authentication = Authentication::wanted_by(&checks);
        set.greylist = self.greylisting(root, checks.greylist);
        let mut limits = self.rate_limits(root);
        let tables = self.tables(root, "rule").unwrap_or_default();
        let read: Vec<(RuleKeys, &Spanned<&DeTable<'_>>)> = tables
            .iter()
            .take(SECTIONS_MAX)
            .enumerate()
            .map(|(number, table)| (self.section(&format!("rule[{number}]"), Some(table.get_ref())), table))
            .collect();
        let names = limits.iter().map(NamedLimit::from).collect();
        let mut compiler = Compiler {
            reading: self,
            set: &mut set,
            maps: Vec::new(),
            limits: names,
            routes,
            asked_limits: Vec::new(),
            own_tags: Vec::new(),
        };
        let (mut rules, mut spans, mut temporary) = (Vec::new(), Vec::new(), Vec::new());
        for (number, (keys, table)) in read.into_iter().enumerate() {
            let (is_temporary, puts_off) = (keys.temporary, keys.defer.is_some() || keys.hold.is_some());
            let rule = compiler.rule(number, keys, table);
            // To put off all mail is a measure in an emergency, and nothing that lasts.
            let is_for_all = rule.conditions.is_empty() && rule.unless.is_empty();
            temporary.push(is_temporary || (puts_off && is_for_all));
            rules.push(rule);
            spans.push(table.span());
        }
        let Compiler { maps, asked_limits, .. } = compiler;
        // A condition that could not be read makes a rule wider than it is meant.
        if self.cx.problems.is_empty() {
            set.warnings = self.refuse_hidden(&rules, &spans, &temporary);
            self.refuse_out_of_reach(&rules, &spans);
            if root.contains_key("checks") {
                let warning = self.refuse_hidden_checks(&rules, &spans, &temporary, &rules_of(&checks));
                set.warnings.extend(warning);
            }
        }
        for id in asked_limits {
            limits[usize::from(id.0)].is_for_rules = true;
        }
        let rules = rules.into_iter().chain(rules_of(&checks)).collect();
        let services = set.services.iter().map(|service| service.name.as_str().into()).collect();
        let mut own: Vec<Box<str>> = local.domains.iter().map(|domain| domain.as_str().into()).collect();
        if !own.iter().any(|domain| **domain == *hostname) {
            own.push(hostname.into());
        }
        set.program = Program::new(rules, limits, maps, services, separator, own);
        set
    }

    /// Reports rules that ask for a higher score than the rules before can give.
    fn refuse_out_of_reach(&mut self, rules: &[Rule], spans: &[Range<usize>]) {
        for (number, (rule, span)) in rules.iter().zip(spans).enumerate() {
            let least = |condition: &Condition| match condition {
                Condition::Score(least) => Some(*least),
                _ => None,
            };
            let Some(least) = rule.conditions.iter().find_map(least) else { continue };
            let is_before = |(other, one): &(usize, &Rule)| {
                one.stage < rule.stage || one.stage == rule.stage && *other < number
            };
            let before = rules.iter().enumerate().filter(is_before);
            let most: i32 = before.map(|(_, one)| one.modifiers.score.max(0)).sum();
            if most < least {
                let what =
                    format!("{} never holds: the rules before it give a score of {most} at most", rule.name);
                let help = "write a lower `min_score`, move the rule below those with `score`, or add `at = \"content\"`";
                self.cx.problem(span.clone(), what, &format!("asks for {least}"), help.to_owned());
            }
        }
    }

    /// A rule that others decide before is never reached: most likely the order is wrong. Returns warnings about rules that
    /// are reached again when a temporary rule is removed: so adding one in an emergency keeps the others.
    fn refuse_hidden(&mut self, rules: &[Rule], spans: &[Range<usize>], temporary: &[bool]) -> Vec<String> {
        let mut warnings = Vec::new();
        for (number, (rule, span)) in rules.iter().zip(spans).enumerate() {
            let Some(deciding) = policy::hidden_by(rules, number) else { continue };
            let name = &rule.name;
            if let Some(hiding) = deciding.iter().find(|one| temporary[**one]) {
                warnings.push(hidden_meanwhile(&rule.place(), &rules[*hiding]));
                continue;
            }
            let (label, help) = match deciding[..] {
                // The exceptions of one rule are checked by themselves.
                [] if !rule.unless.is_empty() => continue,
                [] => {
                    let what = format!("{name} never holds: its conditions contradict each other");
                    let help = "make two rules of it, or remove one of the conditions".to_owned();
                    self.cx.problem(span.clone(), what, &contradiction(rule), help);
                    continue;
                }
                [one] if rules[one].stage == rule.stage => {
                    let one = &rules[one];
                    let help = format!(
                        "move it above {0}, or remove it; if {0} is only temporary, write `temporary = true` in it",
                        one.name
                    );
                    (format!("{} decides before it", one.place()), help)
                }
                [one] => {
                    let (one, stage) = (&rules[one], rules[one].stage.as_str());
                    let help =
                        format!("make an exception for it with `unless` in {}, or remove it", one.name);
                    (format!("{} decides before it, at the stage {stage}", one.place()), help)
                }
                _ => {
                    let help = "move it above them, or remove it".to_owned();
                    (format!("{} together decide before it", lines_of(rules, &deciding)), help)
                }
            };
            self.cx.problem(span.clone(), format!("{name} is never reached"), &label, help);
        }
        warnings
    }

    /// Checks come after the rules: where these decide of everything, nothing is left to a check.
    fn refuse_hidden_checks(
        &mut self,
        rules: &[Rule],
        spans: &[Range<usize>],
        temporary: &[bool],
        checks: &[Rule],
    ) -> Option<String> {
        let all: Vec<Rule> = rules.iter().chain(checks).cloned().collect();
        for (check, number) in checks.iter().zip(rules.len()..) {
            let mut deciding = policy::hidden_by(&all, number).unwrap_or_default();
            // Checks do not hide each other.
            deciding.retain(|one| *one < rules.len());
            let Some(last) = deciding.last() else { continue };
            if let Some(hiding) = deciding.iter().find(|one| temporary[**one]) {
                return Some(hidden_meanwhile(&format!("the check `{}`", check.name), &rules[*hiding]));
            }
            let what = format!("the check `{}` is never reached", check.name);
            let (label, which) = match deciding[..] {
                [one] => (format!("{} decides before it", rules[one].place()), "this rule"),
                _ => (format!("{} together decide before it", lines_of(rules, &deciding)), "one of them"),
            };
            let help = format!("checks run after the rules: add a condition to {which}, or remove the check");
            self.cx.problem(spans[*last].clone(), what, &label, help);
            return None;
        }
        None
    }

    fn rate_limits(&mut self, root: &DeTable<'_>) -> Vec<Limit> {
        let tables = self.tables(root, "limit").unwrap_or_default();
        let mut limits: Vec<Limit> = Vec::new();
        for (number, table) in tables.iter().take(SECTIONS_MAX).enumerate() {
            let keys: LimitRateKeys = self.section(&format!("limit[{number}]"), Some(table.get_ref()));
            limits.extend(self.one_limit(number, keys, table, &limits));
        }
        limits
    }

    fn one_limit(
        &mut self,
        number: usize,
        keys: LimitRateKeys,
        table: &Spanned<&DeTable<'_>>,
        others: &[Limit],
    ) -> Option<Limit> {
        let (line, _) = self.sources.place(table.span().start);
        let rates = [
            (Measure::Connections, keys.connections),
            (Measure::Messages, keys.messages),
            (Measure::Recipients, keys.recipients),
            (Measure::Bytes, keys.bytes),
            (Measure::Failures, keys.failures),
        ];
        let mut given = rates.into_iter().filter_map(|(measure, rate)| Some((measure, rate?)));
        let first = given.next();
        if let Some((other, _)) = given.next() {
            let what = format!("a limit has one rate; this one has `{}`, too", other.as_str());
            self.cx.problem(table.span(), what, "two rates", "write a [[limit]] for each".to_owned());
        }
        let has = |key: &str| table.get_ref().contains_key(key);
        if first.is_none() && !rates.iter().any(|(measure, _)| has(measure.as_str())) {
            self.missing(
                table.span(),
                "recipients",
                "a rate: recipients = \"500/h\", or messages, connections, bytes, failures",
            );
        }
        if keys.per.is_none() && !has("per") {
            self.missing(table.span(), "per", "per = \"client\"");
        }
        let ((measure, rate), per) = (first?, keys.per?);
        if matches!(measure, Measure::Connections | Measure::Failures) && per != Per::Client {
            let what = format!("`{}` are counted per client only", measure.as_str());
            self.cx.problem(table.span(), what, "another `per`", "write per = \"client\"".to_owned());
        }
        if per == Per::RecipientDomain && measure == Measure::Bytes {
            let what = "`bytes` are not counted per recipient domain".to_owned();
            self.cx.problem(
                table.span(),
                what,
                "another `per`",
                "count recipients, or write per = \"sender-domain\"".to_owned(),
            );
        }
        if per == Per::RecipientDomain && measure == Measure::Messages {
            let what = "`messages` are not counted per recipient domain".to_owned();
            self.cx.problem(table.span(), what, "another `per`", "write recipients = \"…\"".to_owned());
        }
        let name: Box<str> =
            keys.name.map_or_else(|| format!("limit {}", number + 1).into(), |name| name.0.into());
        if others.iter().any(|other| other.name == name) {
            let what = format!("two limits have the name `{name}`");
            self.cx.problem(table.span(), what, "the second one", "give each its own name".to_owned());
        }
        let reply = keys.reply.map_or_else(|| usual_reply(measure), |DeferVerb(reply)| reply);
        Some(Limit {
            name,
            line: Line(line),
            per,
            measure,
            rate,
            reply,
            except: keys.except,
            is_for_rules: false,
        })
    }

    fn policy_services(&mut self, root: &DeTable<'_>) -> Vec<PolicyService> {
        let mut services = Vec::new();
        for (name, found) in self.table(root, "policy_service").into_iter().flatten() {
            let Some(table) = self.named_table("policy_service", name, found) else { continue };
            let (name, span) = (name.get_ref().to_string(), name.span());
            let keys: PolicyServiceKeys = self.section(&format!("policy_service.{name}"), Some(table));
            if keys.timeout.is_zero() || keys.timeout > TIMEOUT_MAX {
                let what = format!("`policy_service.{name}.timeout` must be from 1ms to 25s");
                let help = "write \"10s\": clients wait for the answer".to_owned();
                let of_key = table.get("timeout").map_or(span.clone(), toml::Spanned::span);
                self.cx.problem(of_key, what, "", help);
            }
            let Some(address) = keys.address else {
                if !table.contains_key("address") {
                    self.missing(span, "address", "address = \"unix:/run/policy.sock\"");
                }
                continue;
            };
            let passes_on_failure = keys.on_failure == OnFailure::Pass;
            services.push(PolicyService {
                name,
                address: address.0,
                timeout: keys.timeout,
                passes_on_failure,
            });
        }
        services
    }
}

/// Returns the reply where a limit has none of its own: it tells users what there is too much of.
fn usual_reply(measure: Measure) -> ReplyText {
    let text = match measure {
        Measure::Connections => "450 4.7.1 Too many connections from {client}, try again later",
        Measure::Failures => {
            "450 4.7.1 Too many rejected commands or failed logins from {client}, try again later"
        }
        Measure::Messages | Measure::Recipients | Measure::Bytes => {
            "450 4.7.1 Too much mail, try again later"
        }
    };
    ReplyText::parse(text, ReplyClass::Transient).expect("usual replies are replies")
}

/// Returns the keys of two conditions that never hold together, in words.
fn contradiction(rule: &Rule) -> String {
    let has_one_recipient = rule.stage == Stage::Rcpt;
    let pairs = rule.conditions.iter().flat_map(|one| rule.conditions.iter().map(move |other| (one, other)));
    let mut apart = pairs.filter(|(one, other)| one.excludes(other, has_one_recipient));
    let both = |(one, other): (&Condition, &Condition)| {
        format!("`{}` and `{}` never hold together", one.key(), other.key())
    };
    apart.next().map(both).unwrap_or_default()
}

/// Returns the warning about a rule or a check that a temporary rule hides.
fn hidden_meanwhile(what: &str, hiding: &Rule) -> String {
    format!("{what} is not reached while {} is there: remove that rule when its time is over", hiding.place())
}

/// Returns several rules in words: `the rules in lines 3, 7 and 9`.
fn lines_of(rules: &[Rule], numbers: &[usize]) -> String {
    let mut lines: Vec<usize> = numbers.iter().map(|number| rules[*number].line.0).collect();
    lines.sort_unstable();
    let words: Vec<String> = lines.iter().map(ToString::to_string).collect();
    let (last, front) = words.split_last().expect("several rules");
    format!("the rules in lines {} and {last}", front.join(", "))
}

/// A session waits for all look-ups together for 30 s.
const TIMEOUT_MAX: Duration = Duration::from_secs(25);

/// The checks as rules, in their order.
fn rules_of(checks: &Checks) -> Vec<Rule> {
    let at = |stage, name: &str, condition: Condition, reply: (&str, ReplyClass), mode: CheckMode| {
        let text = ReplyText::parse(reply.0, reply.1).expect("replies of checks are replies");
        let action = (mode == CheckMode::Enforce).then_some(match reply.1 {
            ReplyClass::Permanent => Action::Reject(text),
            ReplyClass::Transient => Action::Defer(text),
        });
        let tags = if mode == CheckMode::Tag { vec![name.into()] } else { Vec::new() };
        (mode != CheckMode::Off).then(|| Rule {
            name: format!("checks.{name}").into(),
            line: Line(0),
            stage,
            audience: Audience::Untrusted,
            conditions: vec![condition],
            unless: Vec::new(),
            action,
            modifiers: Modifiers { tags, ..Modifiers::default() },
        })
    };
    use ReplyClass::{Permanent, Transient};
    let rule = |name, condition, reply, mode| at(Stage::Rcpt, name, condition, reply, mode);
    // The check itself sets the tags of its results.
    let origin = |name, tag: &str, reply, mode| {
        let rule = at(Stage::Content, name, Condition::Tagged(vec![tag.into()]), reply, mode);
        rule.filter(|rule| rule.action.is_some())
    };
    let spf =
        ("550 5.7.23 The domain of the sender {from} does not permit the address {client} (SPF)", Permanent);
    let dkim = ("550 5.7.20 No signature of the message is valid (DKIM)", Permanent);
    let dmarc = ("550 5.7.26 The domain in From asks to reject this message (DMARC)", Permanent);
    let hello = ("550 5.7.1 The name {hello} in EHLO is not that of a mail server: {text}", Permanent);
    let none = ("550 5.7.25 The address {client} has no name that leads back to it", Permanent);
    let unknown =
        ("450 4.7.25 The name of the address {client} cannot be found now, try again later", Transient);
    let listed = ("550 5.7.1 The address {client} is listed by {text}", Permanent);
    let listed_mode = if checks.dnsbl.is_empty() { CheckMode::Off } else { CheckMode::Enforce };
    // An address whose name is not known now is not tagged: nothing is known of it.
    let unknown_mode =
        if checks.reverse_name == CheckMode::Enforce { CheckMode::Enforce } else { CheckMode::Off };
    [
        rule("hello", Condition::BadHello, hello, checks.hello),
        rule("reverse_name", Condition::NoReverseName, none, checks.reverse_name),
        rule("reverse_name", Condition::ReverseNameUnknown, unknown, unknown_mode),
        rule("dnsbl", Condition::DnsList(Listee::Client, checks.dnsbl.clone()), listed, listed_mode),
        origin("spf", "spf-fail", spf, checks.spf),
        origin("dkim", "dkim-fail", dkim, checks.dkim),
        origin("dmarc", "dmarc-reject", dmarc, checks.dmarc),
    ]
    .into_iter()
    .flatten()
    .collect()
}
