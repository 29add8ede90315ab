//! Checks of rules: each condition can hold with the listeners and rules that there are.

use super::Check;
use crate::{rules::Authentication, settings::Settings};
use inbound::ClientCertificates;
use maps::{Kind, Reference};
use policy::{Action, Audience, Condition, MapId, Rule};

impl Check<'_, '_> {
    /// A rule that never holds is a mistake in it, or in another place.
    pub(super) fn rules(&mut self, s: &Settings) {
        // Those behind the rules of the file are of [checks].
        let rules = s.rules.program.rules();
        for (number, rule) in rules.iter().enumerate().filter(|(_, rule)| rule.line.0 != 0) {
            let conditions = rule.conditions.iter().map(|condition| (condition, condition.key()));
            let is_of_check = |condition: &&Condition| matches!(condition, Condition::Tagged(tags) if tags.iter().any(|tag| Authentication::advice(tag).is_some()));
            let exceptions = rule.unless.iter().filter(is_of_check).map(|condition| (condition, "unless"));
            for (condition, key) in conditions.chain(exceptions) {
                if let Some((what, help)) = never_holds(s, rules, number, rule, condition) {
                    let path = format!("rule[{number}].{key}");
                    self.problem(&path, what, "never holds", &help);
                }
            }
            self.unless(number, rule);
            self.text_of_map(number, rule);
            for condition in rule.conditions.iter().chain(&rule.unless) {
                self.networks(s, number, rule, condition);
            }
        }
    }

    /// An exception that holds wherever the rule does leaves nothing of the rule.
    fn unless(&mut self, number: usize, rule: &Rule) {
        let path = format!("rule[{number}].unless");
        for exception in &rule.unless {
            let what = match rule.conditions.iter().find(|condition| exception.covers(condition)) {
                Some(condition) => {
                    let (key, name) = (exception.key(), &rule.name);
                    format!("{name}: `unless` has `{key}`, which holds wherever `{}` holds", condition.key())
                }
                None if exception.always_holds() => {
                    format!("{}: `{}` in `unless` always holds", rule.name, exception.key())
                }
                None => continue,
            };
            self.problem(&path, what, "the rule never holds", "exclude less than the rule matches");
        }
    }

    /// Only maps and lists in DNS have a text, and the check of the name in EHLO.
    fn text_of_map(&mut self, number: usize, rule: &Rule) {
        let (key, reply) = match &rule.action {
            Some(Action::Reject(reply)) => ("reject", reply),
            Some(Action::Defer(reply)) => ("defer", reply),
            _ => return,
        };
        let has_text = |one: &Condition| !one.maps().is_empty() || matches!(one, Condition::DnsList(..));
        if rule.conditions.iter().any(has_text) || !reply.to_string().contains("{text}") {
            return;
        }
        let what = format!(
            "{}: `{{text}}` is the value of a map or the reason of a list in DNS, and no condition has one",
            rule.name
        );
        self.problem(&format!("rule[{number}].{key}"), what, "always empty", "write the text itself");
    }

    /// Networks are for addresses of clients.
    fn networks(&mut self, s: &Settings, number: usize, rule: &Rule, condition: &Condition) {
        if matches!(condition, Condition::Client(_) | Condition::Hello(_)) {
            return;
        }
        let is_cidr = |map: &&MapId| {
            let reference = s.rules.references.get(usize::from(map.0));
            matches!(reference, Some((_, Reference::File(Kind::Cidr, _))))
        };
        if condition.maps().iter().any(|map| is_cidr(&map)) {
            let key = condition.key();
            let what = format!("{}: `{key}` cannot use a file of networks", rule.name);
            let help = "write \"text:FILE\" or \"regex:FILE\"; cidr: is for `client`";
            self.problem(&format!("rule[{number}].{key}"), what, "never holds", help);
        }
    }
}

/// Returns why a condition never holds, and what to write.
fn never_holds(
    s: &Settings,
    rules: &[Rule],
    number: usize,
    rule: &Rule,
    condition: &Condition,
) -> Option<(String, String)> {
    match condition {
        Condition::Listener(kinds) if s.listen.iter().all(|listen| !kinds.contains(&listen.kind)) => {
            let mut known: Vec<&str> = s.listen.iter().map(|listen| listen.kind.as_str()).collect();
            known.sort_unstable();
            known.dedup();
            let what = format!("{}: no listener has this kind", rule.name);
            Some((what, format!("the listeners are of the kind {}", known.join(", "))))
        }
        Condition::Certificate(_)
            if s.listen.iter().all(|listen| listen.client_certificates == ClientCertificates::Off) =>
        {
            let what = format!("{}: no listener asks for client certificates", rule.name);
            Some((what, "add client_certificates = \"ask\" to a [[listen]] section".to_owned()))
        }
        Condition::Client(of)
            if rule.audience == Audience::Untrusted
                && of.maps.is_empty()
                && of
                    .networks
                    .iter()
                    .all(|network| s.relay.networks.iter().any(|own| own.contains(network))) =>
        {
            let what = format!(
                "{}: these clients are in `relay.networks`, so they are trusted, but the rule is for untrusted clients",
                rule.name
            );
            Some((what, "add for = \"users\", or for = \"all\"".to_owned()))
        }
        Condition::Login(_) if rule.audience == Audience::Untrusted => {
            let what = format!(
                "{}: a client with a login is trusted, but the rule is for untrusted clients",
                rule.name
            );
            Some((what, "add for = \"users\", or for = \"all\"".to_owned()))
        }
        Condition::Tagged(tags) => {
            let sets = |other: &Rule| tags.iter().any(|tag| other.modifiers.tags.contains(tag));
            let is_before = |at: usize, other: &Rule| (other.stage, at) < (rule.stage, number);
            let mut setting = rules.iter().enumerate().filter(|(_, other)| sets(other)).peekable();
            let any = setting.peek().map(|(_, other)| other.place());
            if setting.any(|(at, other)| is_before(at, other))
                || tags.iter().any(|tag| s.rules.authentication.sets(tag))
            {
                return None;
            }
            let what = format!("{}: nothing has set this tag before", rule.name);
            Some(match any {
                Some(place) => (what, format!("{place} sets it later: change the order")),
                None => {
                    let check = tags.iter().find(|tag| matches!(&***tag, "hello" | "reverse_name"));
                    let of_check = check
                        .map(|tag| format!("write {tag} = \"tag\" in [checks]"))
                        .or_else(|| tags.iter().find_map(|tag| Authentication::advice(tag)));
                    let usual = || "write a rule above that sets it: tag = [\"…\"]".to_owned();
                    (what, of_check.unwrap_or_else(usual))
                }
            })
        }
        _ => None,
    }
}
