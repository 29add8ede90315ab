//! Faults of the files of maps, which stop a start and a reload. Servers of maps may be down, and are not asked.

use crate::access;
use accept::expansion::include::{self, CheckedLists, ListFault};
use config::Settings;
use maps::{Checked, FileFault, Kind, Maps, NamedMap, Reference, Source, text::TextTable};
use rewrite::{Target, TargetList};

/// Wrong values of one file that are told at once.
const VALUES_MAX: usize = 10;

/// A map, what is wrong with it, and what to do about it.
pub type MapFault = (Reference, String, String);

/// Checks the files of all maps. Returns their states, and the faults.
pub async fn check(maps: &Maps, settings: &Settings) -> (Vec<WithLists>, Vec<MapFault>) {
    let (checked, mut faults) = (with_lists(maps.check(), settings), Vec::new());
    for (one, lists) in &checked {
        if one.state.is_ok() {
            faults.extend(bad_values(settings, &one.reference));
        }
        faults.extend(lists.faults.iter().cloned().map(|one_list| {
            let help = one_list.fault.help.clone();
            let fault = FileFault { help: String::new(), ..one_list.fault };
            (one.reference.clone(), ListFault { fault, ..one_list }.to_string(), help)
        }));
        faults.extend(one.faults().iter().map(|why| {
            let (what, help) = why.split_once("; ").unwrap_or((why, ""));
            let help =
                if help.is_empty() { "name a file of this kind that this user may read" } else { help };
            (one.reference.clone(), what.to_owned(), help.to_owned())
        }));
    }
    // Servers are asked by `map check`: the configuration is right while one of them is down.
    let is_file = |map: &NamedMap| matches!(map.source, Source::Sqlite { .. });
    for (map, state) in maps.check_named(is_file).await {
        if let Err(error) = state {
            let help = "name a database that this user may read, and a query that fits its tables";
            faults.push((Reference::Named(map.name.as_str().into()), error.what.into(), help.to_owned()));
        }
    }
    (checked, faults)
}

/// Returns the values of a file of addresses that are none, at most ten.
fn bad_values(settings: &Settings, reference: &Reference) -> Vec<(Reference, String, String)> {
    let Reference::File(Kind::Text, path) = reference else { return Vec::new() };
    let addresses = &settings.addresses;
    let is_copies = [&addresses.sender_bcc, &addresses.recipient_bcc];
    let is_list = [&addresses.r#virtual, is_copies[0], is_copies[1]];
    let is_one = [&addresses.canonical, &addresses.generic];
    let is_in = |lists: &[&Vec<Reference>]| lists.iter().any(|list| list.contains(reference));
    if !is_in(&is_list) && !is_in(&is_one) {
        return Vec::new();
    }
    let text = maps::read_text(path).unwrap_or_default();
    let bad = TextTable::entries(&text).filter_map(|entry| {
        let mut count = 0;
        let mut why = None;
        for target in TargetList::new(&entry.value) {
            count += 1;
            why = why.or(match target {
                Ok(Target::Include(_) | Target::Command(_) | Target::File(_)) => {
                    Some("a program or a file, which is for `addresses.aliases`")
                }
                Ok(Target::Local(_) | Target::Final(_) | Target::Domain(_)) if is_in(&is_copies) => {
                    Some("not a mail address")
                }
                Ok(_) => None,
                Err(error) => Some(error.what),
            });
        }
        let why = match (why, count) {
            (Some(why), _) => why,
            (None, 0) => "there is no address behind the key",
            // Generic and canonical maps change one address into one.
            (None, 2..) if !is_in(&is_list) => "more than one address",
            _ => return None,
        };
        let place = entry.place();
        let what = format!("line {}, column {}: {}: {why}", place.line, place.column, entry.key);
        Some((reference.clone(), what, format!("write `{} user@example.com`", entry.key)))
    });
    bad.take(VALUES_MAX).collect()
}

/// A file of a map, and the files that it includes.
pub type WithLists = (Checked, CheckedLists);

/// Checks the files that files of aliases include, each once.
pub fn with_lists(all: Vec<Checked>, settings: &Settings) -> Vec<WithLists> {
    let owner = access::daemon_uid(settings);
    let check = |one: Checked| {
        let included = one.state.as_ref().map_or(&[][..], |usable| &usable.included);
        let lists = include::check(included, owner);
        (one, lists)
    };
    all.into_iter().map(check).collect()
}
