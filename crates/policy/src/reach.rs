//! Rules that are never reached, because others decide before of everything that they are for.
//!
//! A rule is for a region: the mail for which its conditions hold, and none of its exceptions. What an earlier rule decides is
//! taken off the region until nothing is left. Where nothing can be taken off, the region is cut in two by a condition of an
//! earlier rule. Everything is judged by [`Condition::is_within`] and [`Condition::excludes`], which are sure of a yes only, so that a
//! rule that can be reached is never found.

use crate::{Action, Audience, Condition, Modifiers, Rule, Stage, cover::one_always_holds};

/// Parts that are taken off one region.
const PARTS_MAX: usize = 64;

/// Cuts of a region, one in the other.
const CUTS_MAX: u8 = 3;

static TLS: Condition = Condition::Tls(true);
static CLEAR: Condition = Condition::Tls(false);

/// Returns the rules that decide of everything that a rule is for, by their numbers; `None` if the rule can be reached. The list
/// is empty if the conditions of the rule contradict each other.
pub fn hidden_by(rules: &[Rule], number: usize) -> Option<Vec<usize>> {
    let rule = &rules[number];
    let is_about_recipients =
        |conditions: &[Condition]| conditions.iter().any(Condition::is_about_recipients);
    // Conditions and exceptions that contradict each other can hold for different recipients of a content.
    if rule.stage == Stage::Content
        && is_about_recipients(&rule.conditions)
        && is_about_recipients(&rule.unless)
    {
        return None;
    }
    let mut region = Region { held: Vec::new(), failed: Vec::new(), rule };
    for literal in literals(rule) {
        if region.contradicts(literal) {
            return Some(Vec::new());
        }
        region.add(literal);
    }
    let may_decide = |other: &usize| {
        decides(rules, *other, number) && literals(&rules[*other]).all(|one| !region.contradicts(one))
    };
    let mut deciding: Vec<usize> =
        (0..rules.len()).filter(may_decide).filter(|one| ends_first(rules, *one, &region)).collect();
    // A rule alone explains more than several do.
    if let Some(one) = deciding.iter().find(|one| region.is_hidden_by(rules, &[**one], 0)) {
        return Some(vec![*one]);
    }
    if deciding.len() < 2 || !region.is_hidden_by(rules, &deciding, CUTS_MAX) {
        return None;
    }
    for one in deciding.clone() {
        let others: Vec<usize> = deciding.iter().copied().filter(|other| *other != one).collect();
        if region.is_hidden_by(rules, &others, CUTS_MAX) {
            deciding = others;
        }
    }
    Some(deciding)
}

/// A condition that holds, or one that does not.
#[derive(Debug, Clone, Copy)]
struct Literal<'a> {
    condition: &'a Condition,
    holds: bool,
}

impl<'a> Literal<'a> {
    /// A literal; TLS that is not active is clear text.
    fn new(condition: &'a Condition, holds: bool) -> Self {
        match (condition, holds) {
            (Condition::Tls(is_active), false) => {
                Self { condition: if *is_active { &CLEAR } else { &TLS }, holds: true }
            }
            _ => Self { condition, holds },
        }
    }

    fn opposite(self) -> Self {
        Self::new(self.condition, !self.holds)
    }
}

fn literals(rule: &Rule) -> impl Iterator<Item = Literal<'_>> {
    let held = rule.conditions.iter().map(|condition| Literal::new(condition, true));
    held.chain(rule.unless.iter().map(|condition| Literal::new(condition, false)))
}

/// The mail for which some conditions hold, and others do not.
#[derive(Debug, Clone)]
struct Region<'a> {
    held: Vec<&'a Condition>,
    failed: Vec<&'a Condition>,
    /// The rule that is perhaps never reached.
    rule: &'a Rule,
}

impl<'a> Region<'a> {
    fn add(&mut self, literal: Literal<'a>) {
        if literal.holds { self.held.push(literal.condition) } else { self.failed.push(literal.condition) }
    }

    fn with(&self, literal: Literal<'a>) -> Self {
        let mut more = self.clone();
        more.add(literal);
        more
    }

    /// Returns whether nothing of the region is left where this literal is true.
    fn contradicts(&self, Literal { condition, holds }: Literal<'a>) -> bool {
        if holds {
            let has_one_recipient = self.rule.stage == Stage::Rcpt;
            return condition.is_within(&self.failed)
                || self.held.iter().any(|held| held.excludes(condition, has_one_recipient));
        }
        let failed: Vec<&Condition> =
            self.failed.iter().copied().filter(|one| one.is_kind_of(condition)).chain([condition]).collect();
        // Programs on this machine come over no listener.
        one_always_holds(&failed, self.rule.audience != Audience::All)
            || self.held.iter().any(|held| held.is_kind_of(condition) && held.is_within(&failed))
    }

    /// Returns whether rules decide of the whole region.
    fn is_hidden_by(&self, rules: &'a [Rule], deciding: &[usize], cuts: u8) -> bool {
        let mut region = self.clone();
        let mut parts = 0;
        loop {
            let mut least: Option<Vec<Literal<'a>>> = None;
            let parts_before = parts;
            for number in deciding {
                let rule = &rules[*number];
                if literals(rule).any(|literal| region.contradicts(literal)) {
                    continue;
                }
                let open: Vec<Literal<'a>> =
                    literals(rule).filter(|literal| !region.contradicts(literal.opposite())).collect();
                match open[..] {
                    [] => return true,
                    [one] if parts < PARTS_MAX => {
                        region.add(one.opposite());
                        parts += 1;
                    }
                    _ if least.as_ref().is_none_or(|least| open.len() < least.len()) => least = Some(open),
                    _ => {}
                }
            }
            if parts > parts_before {
                continue;
            }
            let Some(by) = least.filter(|_| cuts > 0) else { return false };
            return [by[0], by[0].opposite()]
                .into_iter()
                .all(|half| region.with(half).is_hidden_by(rules, deciding, cuts - 1));
        }
    }
}

/// Returns whether a rule comes before another one and decides, for the clients that the other one is for.
fn decides(rules: &[Rule], number: usize, other_number: usize) -> bool {
    let (rule, other) = (&rules[number], &rules[other_number]);
    let is_refusal = matches!(rule.action, Some(Action::Reject(_) | Action::Defer(_)));
    let ends_stage =
        is_refusal || matches!(rule.action, Some(Action::Accept | Action::Discard(_) | Action::Hold(_)));
    // A client that is trusted from here on meets no rule for others.
    let trusts =
        rule.modifiers.is_trust && other.audience == Audience::Untrusted && rule.audience != Audience::Users;
    if rule.stage != other.stage {
        // What is trusted for one recipient is not trusted for the next one; and a recipient is not the whole message.
        let is_before = rule.stage < other.stage && rule.stage < Stage::Rcpt;
        // A client can log in between the two stages.
        let is_for_them = rule.audience.covers(other.audience)
            && (rule.audience, other.audience) != (Audience::Users, Audience::Users);
        return is_before
            && (trusts || is_refusal && is_for_them)
            && literals(rule).all(|one| one.condition.lasts());
    }
    if number >= other_number {
        return false;
    }
    // Of a content it has to be true of all recipients, and the other rule may be for one.
    if rule.stage == Stage::Content
        && rule.spares()
        && literals(rule).any(|one| one.condition.is_about_recipients())
    {
        return false;
    }
    let between = &rules[number + 1..other_number];
    let mut between = between.iter().filter(|one| one.stage == rule.stage);
    let begins_to_trust = between.clone().any(|one| one.modifiers.is_trust);
    let is_for_them = match (rule.audience, other.audience) {
        (Audience::Users, Audience::Users) => !begins_to_trust,
        (one, other) => one.covers(other),
    };
    // A tag that is set in between has not been there before, and a score was another one.
    let changes = |one: &Modifiers| {
        one.tags.iter().any(|tag| asks_for(rule, tag)) || one.score != 0 && asks_for_score(rule)
    };
    (trusts || ends_stage && is_for_them) && !between.any(|one| changes(&one.modifiers))
}

fn asks_for_score(rule: &Rule) -> bool {
    literals(rule).any(|literal| matches!(literal.condition, Condition::Score(_)))
}

fn asks_for(rule: &Rule, tag: &str) -> bool {
    literals(rule).any(|literal| match literal.condition {
        Condition::Tagged(tags) => tags.iter().any(|one| **one == *tag),
        _ => false,
    })
}

/// Returns whether no rule above another one of an earlier stage ends that stage without a refusal, for mail of the region:
/// the other rule would not be asked.
fn ends_first(rules: &[Rule], number: usize, region: &Region<'_>) -> bool {
    let stage = rules[number].stage;
    if stage == region.rule.stage {
        return true;
    }
    let passes = |rule: &&Rule| {
        rule.stage == stage
            && matches!(
                rule.action,
                Some(Action::Accept | Action::Discard(_) | Action::Hold(_) | Action::Ask(_))
            )
    };
    rules[..number]
        .iter()
        .filter(passes)
        .all(|rule| literals(rule).any(|literal| literal.condition.lasts() && region.contradicts(literal)))
}

#[cfg(test)]
mod tests;
