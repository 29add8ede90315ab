//! Warnings of aliases whose mail could never be delivered, or not to all of their members.

use accept::{
    Mailboxes,
    expansion::{Expansion, Outcome},
    routes::Routes,
};
use config::Settings;
use mail::Mailbox;
use maps::{FileFault, Kind, Reference, Table, aliases};
use rewrite::{Target, TargetList, Trouble};
use std::collections::HashSet;

/// Names of a file that are looked at.
const NAMES_MAX: usize = 10_000;
/// Of one file; more are not listed.
const WARNINGS_MAX: usize = 10;

/// Returns the aliases whose mail is refused or waits for ever, and their members without a mailbox here, as far as files alone say
/// it: servers are not asked.
pub(crate) fn warnings(settings: &Settings) -> Vec<(Reference, FileFault)> {
    if settings
        .map_references()
        .any(|(_, reference)| matches!(reference, Reference::Named(_) | Reference::Accounts))
    {
        return Vec::new();
    }
    settings.addresses.aliases.iter().flat_map(|reference| of_file(settings, reference)).collect()
}

fn of_file(settings: &Settings, reference: &Reference) -> Vec<(Reference, FileFault)> {
    let Reference::File(Kind::Aliases, path) = reference else { return Vec::new() };
    // A file that cannot be used is an error elsewhere.
    if Table::read(Kind::Aliases, path).is_err() {
        return Vec::new();
    }
    let text = maps::read_text(path).unwrap_or_default();
    let (mut found, mut asked) = (Vec::new(), Vec::new());
    let fault = |line, what: String, help: &str| {
        (reference.clone(), FileFault { line, column: 1, what, help: help.to_owned() })
    };
    for alias in aliases::lines(&text).take(NAMES_MAX) {
        let (name, line) = (&alias.name, alias.line);
        if name.contains('@') {
            let help = "names of aliases have no domain: write the line into a map of `addresses.virtual`";
            found.push(fault(line, format!("`{name}` is never looked up"), help));
        } else if alias.targets.split_whitespace().any(|word| word == "#") {
            let help = "write the comment into a line of its own";
            found.push(fault(line, format!("`{name}` has the target `#`"), help));
        } else if let Ok(mailbox) = Mailbox::parse(&format!("{name}@{}", settings.hostname), true) {
            asked.push((mailbox, line, names_addresses_only(&alias.targets), alias.name));
        }
    }
    let maps = accept::maps(settings, None);
    let routes = Routes::new(settings, maps.clone());
    let mailboxes = Mailboxes { settings, routes: &routes, sender: None };
    let (Some(expansion), Ok(runtime)) = (Expansion::new(settings, maps), console::runtime()) else {
        return found;
    };
    let names: HashSet<String> = asked.iter().map(|(mailbox, ..)| mailbox.to_string()).collect();
    for (mailbox, line, is_judged, name) in asked {
        let outcome = runtime.block_on(expansion.expand_given(&mailbox, true, mailboxes));
        let why = match outcome {
            Outcome::Recipients(expanded) => {
                // What another alias leads to is said of that one.
                let is_own = |alias: &str| alias == mailbox.as_str() || !names.contains(alias);
                found.extend(expanded.missing().iter().filter_map(|missing| {
                    let Trouble::NoSuchTarget { alias, target } = missing else { return None };
                    let what = format!("`{name}`: {target} does not exist, and gets no mail");
                    is_own(alias).then(|| fault(line, what, "add the user, or correct the alias"))
                }));
                continue;
            }
            _ if !is_judged => continue,
            Outcome::NoSuchUser => "a target does not exist".to_owned(),
            Outcome::Failed(trouble) => trouble.to_string(),
        };
        let help = "mail for the name is refused until the line is right";
        found.push(fault(line, format!("`{name}`: {why}"), help));
    }
    if let Some(more) = found.len().checked_sub(WARNINGS_MAX).filter(|more| *more > 1) {
        found.truncate(WARNINGS_MAX);
        let what = format!("{more} more warnings of this file are left out");
        found.push((reference.clone(), FileFault { line: 0, column: 0, what, help: String::new() }));
    }
    found
}

/// Returns whether no target is a program, a file or a list, which are checked by themselves.
fn names_addresses_only(targets: &str) -> bool {
    TargetList::new(targets)
        .all(|target| matches!(target, Ok(Target::Mailbox(_) | Target::Local(_) | Target::Final(_))))
}
