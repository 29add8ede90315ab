//! Warnings of aliases whose mail could never be delivered.

use crate::applets::Commands;
use config::Settings;
use mail::ForwardPath;
use maps::{FileFault, Kind, Reference, Table, aliases};
use rewrite::{Target, TargetList};
use submission::sendmail::{Commands as _, Route};

/// Names of a file that are looked at.
const NAMES_MAX: usize = 10_000;
/// Warnings of a file.
const WARNINGS_MAX: usize = 10;

/// Returns the aliases whose mail waits for ever, as far as files alone say it: servers are not asked.
pub(super) fn warnings(settings: &Settings) -> Vec<(Reference, FileFault)> {
    if settings.map_references().any(|(_, reference)| matches!(reference, Reference::Named(_))) {
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
        } else if let Some(path) =
            names_addresses_only(&alias.targets).then(|| at_host(name, settings)).flatten()
        {
            asked.push((path, line, alias.name));
        }
    }
    let paths: Vec<ForwardPath> = asked.iter().map(|(path, ..)| path.clone()).collect();
    let routes = Commands.routes(settings, &paths).unwrap_or_default();
    for ((_, line, name), route) in asked.into_iter().zip(routes) {
        let why = match route {
            Route::NoSuchUser => "a target does not exist".to_owned(),
            Route::Failed(why) => why,
            Route::To(_) | Route::Refused(_) => continue,
        };
        let help = "mail for the name is refused until the line is right";
        found.push(fault(line, format!("`{name}`: {why}"), help));
    }
    found.truncate(WARNINGS_MAX);
    found
}

/// Returns whether no target is a program, a file or a list, which are checked by themselves.
fn names_addresses_only(targets: &str) -> bool {
    TargetList::new(targets)
        .all(|target| matches!(target, Ok(Target::Mailbox(_) | Target::Local(_) | Target::Final(_))))
}

fn at_host(name: &str, settings: &Settings) -> Option<ForwardPath> {
    ForwardPath::parse(&format!("{name}@{}", settings.hostname), true).ok()
}
