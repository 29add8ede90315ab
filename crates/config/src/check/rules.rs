//! Checks of rules: each condition can hold with the listeners and rules that there are.

use super::Check;
use crate::settings::Settings;
use inbound::ClientCertificates;
use policy::{Audience, Condition, Rule};

impl Check<'_, '_> {
    /// A rule that never holds is a mistake in it, or in another place.
    pub(super) fn rules(&mut self, s: &Settings) {
        // Those behind the rules of the file are of [checks].
        let rules = s.rules.program.rules();
        for (number, rule) in rules.iter().enumerate().filter(|(_, rule)| rule.line.0 != 0) {
            for condition in &rule.conditions {
                if let Some((what, help)) = never_holds(s, rules, number, rule, condition) {
                    let path = format!("rule[{number}].{}", condition.key());
                    self.problem(&path, what, "never holds", &help);
                }
            }
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
            let what = format!("{}: no listener asks for certificates of clients", rule.name);
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
                "{}: these clients are in `relay.networks`, so that they are trusted, and the rule is for others",
                rule.name
            );
            Some((what, "add for = \"users\", or for = \"all\"".to_owned()))
        }
        Condition::Login(_) if rule.audience == Audience::Untrusted => {
            let what = format!("{}: a client with a login is trusted, and the rule is for others", rule.name);
            Some((what, "add for = \"users\", or for = \"all\"".to_owned()))
        }
        Condition::Tagged(tags) => {
            let sets = |other: &Rule| tags.iter().any(|tag| other.modifiers.tags.contains(tag));
            let is_before = |at: usize, other: &Rule| (other.stage, at) < (rule.stage, number);
            let mut setting = rules.iter().enumerate().filter(|(_, other)| sets(other)).peekable();
            let any = setting.peek().map(|(_, other)| other.place());
            if setting.any(|(at, other)| is_before(at, other)) {
                return None;
            }
            let what = format!("{}: no rule has set this tag before", rule.name);
            Some(match any {
                Some(place) => (what, format!("{place} sets it later: change the order")),
                None => (what, "write a rule above that sets it: tag = [\"…\"]".to_owned()),
            })
        }
        _ => None,
    }
}
