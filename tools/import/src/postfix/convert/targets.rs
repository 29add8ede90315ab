//! The addresses to which aliases and other tables lead, and those that they change.

use super::Context;
use std::collections::HashSet;

/// Tables that change addresses.
const REWRITING: [&str; 4] =
    ["virtual_alias_maps", "alias_maps", "canonical_maps", "recipient_canonical_maps"];
/// Those that add recipients.
const COPIES: [&str; 3] = ["sender_bcc_maps", "recipient_bcc_maps", "always_bcc"];

/// Addresses, names without a domain, and domains with `@` in front.
#[derive(Debug, Default)]
pub(super) struct Targets {
    keys: HashSet<String>,
    values: HashSet<String>,
}

/// Returns the keys and the values of all tables of recipients; `None` if they are not all known here.
pub(super) fn of(context: &Context<'_>) -> Option<Targets> {
    read(context, &[&REWRITING[..], &COPIES[..]].concat())
}

/// Returns those of the tables that change addresses.
pub(super) fn of_rewriting(context: &Context<'_>) -> Option<Targets> {
    read(context, &REWRITING)
}

fn read(context: &Context<'_>, parameters: &[&str]) -> Option<Targets> {
    let mut targets = Targets::default();
    for &parameter in parameters {
        if parameter == "always_bcc" {
            targets.values.extend(plain(&context.main.value(parameter)));
            continue;
        }
        for entry in context.entries(parameter)? {
            if entry.value.contains(":include:") {
                return None;
            }
            targets.keys.extend(plain(entry.key.trim_end_matches(':')));
            targets.values.extend(entry.value.split([',', ' ', '\t']).filter_map(plain));
        }
    }
    Some(targets)
}

fn plain(target: &str) -> Option<String> {
    let target = target.trim().trim_start_matches('\\').to_lowercase();
    Some(target).filter(|target| !target.is_empty())
}

fn have(set: &HashSet<String>, address: &str) -> bool {
    let (local, domain) = address.rsplit_once('@').unwrap_or((address, ""));
    set.contains(address) || set.contains(local) || set.contains(&format!("@{domain}"))
}

impl Targets {
    /// Returns whether any table has the address, so that it is rewritten.
    pub(super) fn change(&self, address: &str) -> bool {
        have(&self.keys, address)
    }

    /// Returns an address, or `@` and a domain, to which a table leads, that meets a condition.
    pub(super) fn find(&self, is_it: impl Fn(&str) -> bool) -> Option<&str> {
        let mut found: Vec<&str> =
            self.values.iter().map(String::as_str).filter(|value| is_it(value)).collect();
        found.sort_unstable();
        found.first().copied()
    }

    /// Returns whether mail for another address comes to this one, or whether a table changes it.
    pub(super) fn lead_to(&self, address: &str) -> bool {
        self.change(address) || have(&self.values, address)
    }
}
