//! Maps of addresses.

use super::{
    super::{
        main_cf::{items, logical_lines},
        table::{Purpose, Table, TableEntry},
    },
    Context, luser, targets,
};
use crate::{places::is_domain, report::Effect};
use std::path::Path;

/// Returns the keys of the tables of a parameter that begin with `@`, each with its place.
pub(super) fn domain_keys(context: &Context<'_>, parameter: &str) -> Vec<(String, String)> {
    let tables = items(&context.main.value(parameter));
    tables
        .iter()
        .filter_map(|item| Table::parse(item))
        .flat_map(|table| table.domain_keys(context.files))
        .collect()
}

/// Returns whether a map of recipients has names without a domain, or may have them.
pub(super) fn have_names(context: &Context<'_>) -> bool {
    ["virtual_alias_maps", "canonical_maps", "recipient_bcc_maps"].iter().any(|parameter| {
        let has_names = |all: &Vec<TableEntry>| all.iter().any(|entry| !entry.key.contains(['@', '.']));
        context.entries(parameter).as_ref().is_none_or(has_names)
    })
}

/// Tells of a key that would be for all domains, or for none.
pub(super) fn no_domain(context: &mut Context<'_>, parameter: &str, place: &str, key: &str, instead: &str) {
    context.missing(
        parameter,
        format!(
            "`{key}` ({place}) has no domain, and no entry applies to all domains: write {instead} for each domain"
        ),
    );
}

/// Tells of catch-alls: which of them have no counterpart, and what the others take.
fn catch_alls(context: &mut Context<'_>, parameter: &str) {
    let mut is_told = false;
    for (place, key) in domain_keys(context, parameter) {
        if !is_domain(&key[1..]) {
            no_domain(context, parameter, &place, &key, "a line such as `@example.com user@example.com`");
        } else if parameter == "virtual_alias_maps" && !is_told {
            is_told = true;
            context.note(parameter, format!("`{key}` ({place}) is a catch-all: every address in the domain is accepted, and it gets the mail of users, too, except those with a line of their own (`user@example.com user@example.com`)"));
        }
    }
}

/// Tells of addresses that lead back to themselves: Postfix defers their mail, and here it is refused. Of tables whose entries are not
/// known, some may.
fn loops(context: &mut Context<'_>, parameter: &str) {
    let entries = context.entries(parameter);
    let known: Vec<(String, Vec<String>)> = entries
        .iter()
        .flatten()
        .map(|entry| {
            let targets = entry.value.split([',', ' ', '\t']).filter(|target| !target.is_empty());
            (entry.key.to_lowercase(), targets.map(str::to_lowercase).collect())
        })
        .collect();
    let looping = (0..known.len()).find(|first| leads_back(&known, *first));
    let Some(first) = looping else {
        if entries.is_none() {
            context.note(
                parameter,
                "mail for an address that leads back to itself is refused (554), where Postfix defers it",
            );
        }
        return;
    };
    let which = format!("`{}` leads back to itself", known[first].0);
    context.effect(
        Effect::Refused,
        parameter,
        format!("{which}: mail for it is refused (554), where Postfix defers it"),
    );
}

/// Returns whether an entry leads to itself by way of others.
fn leads_back(known: &[(String, Vec<String>)], first: usize) -> bool {
    let (mut seen, mut open) = (vec![false; known.len()], vec![first]);
    while let Some(number) = open.pop() {
        let (key, targets) = &known[number];
        for target in targets.iter().filter(|target| *target != key) {
            let (name, domain) = target.split_once('@').unwrap_or((target, ""));
            let is_key = |key: &str| key == target || key == name || key.strip_prefix('@') == Some(domain);
            for next in known.iter().enumerate().filter(|(_, (key, _))| is_key(key)).map(|(next, _)| next) {
                if next == first {
                    return true;
                }
                if !std::mem::replace(&mut seen[next], true) {
                    open.push(next);
                }
            }
        }
    }
    false
}

const BCC: &str = "copies depend on the addresses after alias expansion, and the addresses of the copies themselves are not rewritten";

/// Parameters with maps of addresses, and the keys that take them.
const MAPS: [(&str, &str); 4] = [
    ("alias_maps", "aliases"),
    ("virtual_alias_maps", "virtual"),
    ("canonical_maps", "canonical"),
    ("smtp_generic_maps", "generic"),
];

pub(super) fn write(context: &mut Context<'_>) {
    delimiter(context);
    for (parameter, key) in MAPS {
        context.mapped(parameter);
        let purpose = if key == "aliases" { Purpose::Aliases } else { Purpose::Keys };
        if purpose == Purpose::Aliases && !context.main.value("local_transport").starts_with("local") {
            // Only local(8) looks into aliases.
            continue;
        }
        let tables = items(&context.main.value(parameter));
        let mut maps: Vec<String> =
            tables.iter().filter_map(|item| with_origin(context, parameter, item, purpose)).collect();
        match key {
            "aliases" => programs_of_aliases(context, &maps),
            "generic" => maps.extend(details_of_generic(context, &tables)),
            _ => {}
        }
        if purpose == Purpose::Keys {
            tables.iter().for_each(|item| tell_of_names(context, parameter, item));
            catch_alls(context, parameter);
            if key == "virtual" {
                loops(context, parameter);
            }
            maps.extend(details(context, parameter, &tables));
        }
        if !maps.is_empty() {
            let from = context.place(parameter);
            context.draft.extend("[addresses]", key, maps, &from);
        }
    }
    copies(context);
    masquerade(context);
    if luser::write(context).is_none() {
        let text = "left out: add a catch-all to a map in addresses.virtual (`@example.com user`)";
        context.effect(Effect::Elsewhere, "luser_relay", text);
    }
    let parameter = "recipient_canonical_maps";
    let tables = items(&context.main.value(parameter));
    let others = ["canonical_maps", "virtual_alias_maps"];
    let is_alone = others.iter().all(|other| context.main.value(other).is_empty());
    if is_alone && !tables.is_empty() {
        // Addresses of recipients change, and nothing else has a map for them.
        let mut maps = context.maps(parameter, Purpose::Keys);
        maps.extend(details(context, parameter, &tables));
        context.mapped(parameter);
        context.draft.extend("[addresses]", "virtual", maps, parameter);
    }
    for (parameter, is_left_out) in [(parameter, !is_alone), ("sender_canonical_maps", true)] {
        if is_left_out && !context.main.value(parameter).is_empty() {
            context.effect(Effect::Addresses, parameter, "left out: addresses.canonical rewrites both senders and recipients; use it if both may change, or addresses.virtual for recipients only");
        }
    }
}

fn delimiter(context: &mut Context<'_>) {
    let delimiter = context.main.value("recipient_delimiter");
    context.mapped("recipient_delimiter");
    if delimiter.chars().count() > 1 {
        context.effect(
            Effect::Refused,
            "recipient_delimiter",
            "only the first character is a delimiter: with another one, user and detail are looked up as one name",
        );
    }
    let from = context.place("recipient_delimiter");
    context.draft.set("[addresses]", "separator", separator(context).unwrap_or_default(), &from);
}

/// Returns the character between a name and a detail.
pub(super) fn separator(context: &Context<'_>) -> Option<String> {
    context.main.value("recipient_delimiter").chars().next().map(String::from)
}

/// Returns a map for patterns whose addresses have no detail: Postfix asks them for whole addresses only. Where tables with and without
/// patterns are mixed, that is told instead.
fn details(context: &mut Context<'_>, parameter: &str, tables: &[String]) -> Option<String> {
    let separator = separator(context)?;
    let has_patterns = |item: &&String| Table::parse(item).is_some_and(|table| table.has_patterns());
    let patterns: Vec<&String> = tables.iter().filter(has_patterns).collect();
    if patterns.is_empty() {
        return None;
    }
    if patterns.len() < tables.len() {
        patterns.iter().for_each(|item| tell_of_details(context, parameter, item));
        return None;
    }
    let text = format!("/^([^@\"]+[{separator}][^@]*)@([^@]+)$/ ${{1}}@${{2}}\n");
    Some(format!("regex:{}", context.draft.add_numbered("details", text)))
}

/// Servers are asked for whole addresses and for domains.
fn tell_of_names(context: &mut Context<'_>, parameter: &str, item: &str) {
    let is_server = Table::parse(item).is_some_and(|table| table.is_server());
    if is_server && !context.main.value("mydestination").is_empty() {
        let text = format!(
            "Postfix also looks up bare user names (joe) in {item}; Postrider looks up full addresses and @domain only"
        );
        context.effect(Effect::Addresses, parameter, text);
    }
}

/// Tells that patterns are for more addresses than in Postfix.
pub(super) fn tell_of_details(context: &mut Context<'_>, parameter: &str, item: &str) {
    let text = format!(
        "a pattern in {item} that matches user@domain also applies to user+detail@domain, unlike in Postfix"
    );
    context.effect(Effect::Addresses, parameter, text);
}

/// Returns a map for addresses with a detail, which Postfix leaves out of what `smtp_generic_maps` gives.
fn details_of_generic(context: &mut Context<'_>, tables: &[String]) -> Option<String> {
    let separator = separator(context)?;
    let mut text = String::new();
    for table in tables.iter().filter_map(|item| Table::parse(item)).filter(|table| !table.has_patterns()) {
        let Ok(entries) = table.entries(context.files) else {
            let text =
                "the detail of user+detail is added to the new address; Postfix leaves it out by default";
            context.effect(Effect::Addresses, "smtp_generic_maps", text);
            return None;
        };
        for TableEntry { key, value } in entries {
            let (user, domains) = match key.rsplit_once('@') {
                Some((user, domain)) => (user.to_owned(), vec![domain.to_owned()]),
                None => (key, context.own_domains()),
            };
            if user.is_empty() || value.starts_with('@') {
                continue;
            }
            let domains: Vec<String> = domains.iter().map(|domain| escaped(domain)).collect();
            let user = escaped(&user);
            text.push_str(&format!("/^{user}[{separator}][^@]*@({})$/ {value}\n", domains.join("|")));
        }
    }
    (!text.is_empty()).then(|| format!("regex:{}", context.draft.add_numbered("generic-details", text)))
}

/// Returns a text as a regular expression.
pub(super) fn escaped(text: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_@ ".contains(c);
    text.chars().map(|c| if is_plain(c) { c.to_string() } else { format!("\\{c}") }).collect()
}

/// Returns the map that takes the place of a table of addresses: a copy with `myorigin` behind values without a domain, where that is no
/// domain of this machine.
fn with_origin(context: &mut Context<'_>, parameter: &str, item: &str, purpose: Purpose) -> Option<String> {
    let origin = context.origin().to_lowercase();
    let own = context.own_domains();
    let is_other = match parameter {
        "sender_bcc_maps" | "recipient_bcc_maps" => true,
        _ => !own.is_empty() && !own.contains(&origin),
    };
    let entries = Table::parse(item).filter(|_| is_other).and_then(|table| table.entries(context.files).ok());
    let is_bare = |target: &str| !target.is_empty() && !target.contains(['@', '|', '/', ':', '"']);
    let has_bare = |entry: &TableEntry| entry.value.split([',', ' ']).any(|target| is_bare(target.trim()));
    // aliases(5) has a colon behind each name.
    let is_readable = |all: &Vec<TableEntry>| {
        purpose != Purpose::Aliases || all.iter().all(|entry| entry.key.ends_with(':'))
    };
    let Some(entries) = entries.filter(|all| is_readable(all) && all.iter().any(has_bare)) else {
        return context.map(parameter, item, purpose);
    };
    let line = |TableEntry { key, value }: TableEntry| {
        let targets = value.split(',').flat_map(|part| match part.contains(['|', '"', ':']) {
            true => vec![part.trim()],
            false => part.split_whitespace().collect(),
        });
        let targets: Vec<String> = targets
            .map(|target| {
                if is_bare(target) {
                    format!("{}@{origin}", target.trim_start_matches('\\'))
                } else {
                    target.to_owned()
                }
            })
            .collect();
        format!("{key} {}\n", targets.join(", "))
    };
    let text: String = entries.into_iter().map(line).collect();
    let kind = if purpose == Purpose::Aliases { "aliases" } else { "text" };
    let name =
        context.draft.add_numbered(&format!("{}-at-origin", crate::draft::plain_word(parameter)), text);
    context.note(
        parameter,
        format!(
            "{item} has names without a domain, which get @{origin} in the copy {name}: edit the copy from now on"
        ),
    );
    Some(format!("{kind}:{name}"))
}

/// Translates the parameters that add copies, such as `sender_bcc_maps`.
fn copies(context: &mut Context<'_>) {
    let targets = targets::of_rewriting(context);
    let is_stable =
        |address: &str| targets.as_ref().is_some_and(|targets| !targets.change(&address.to_lowercase()));
    let is_itself =
        |address: &str| targets.as_ref().is_some_and(|targets| !targets.lead_to(&address.to_lowercase()));
    for (parameter, key) in [("sender_bcc_maps", "sender_bcc"), ("recipient_bcc_maps", "recipient_bcc")] {
        context.mapped(parameter);
        let tables = items(&context.main.value(parameter));
        let entries = context.entries(parameter);
        let is_exact = entries.as_ref().is_some_and(|entries| {
            entries
                .iter()
                .all(|entry| is_stable(&entry.value) && (key == "sender_bcc" || is_itself(&entry.key)))
        });
        let maps: Vec<String> =
            tables.iter().filter_map(|item| with_origin(context, parameter, item, Purpose::Keys)).collect();
        tables.iter().filter(|item| Table::parse(item).is_some_and(|table| table.has_patterns())).for_each(
            |item| {
                if separator(context).is_some() {
                    tell_of_details(context, parameter, item);
                }
            },
        );
        catch_alls(context, parameter);
        tables.iter().for_each(|item| tell_of_names(context, parameter, item));
        if !is_exact && !tables.is_empty() {
            context.effect(Effect::Addresses, parameter, BCC);
        }
        if !maps.is_empty() {
            let from = context.place(parameter);
            context.draft.extend("[addresses]", key, maps, &from);
        }
    }
    if let Some(address) = context.given("always_bcc").filter(|address| !address.is_empty()) {
        let address = if address.contains('@') { address } else { format!("{address}@{}", context.origin()) };
        if !is_stable(&address) {
            context.effect(Effect::Addresses, "always_bcc", BCC);
        }
        context.draft.extend("[addresses]", "bcc", [address], "always_bcc");
    }
}

fn masquerade(context: &mut Context<'_>) {
    let masquerade = context.main.value("masquerade_domains");
    if masquerade.is_empty() {
        return;
    }
    let (plain, others): (Vec<String>, Vec<String>) =
        items(&masquerade).into_iter().partition(|item| is_domain(item));
    context.note("masquerade_domains", "only the reverse-path is rewritten, not the header");
    if !others.is_empty() {
        let text = format!("only domain names are supported, without exceptions: {}", others.join(", "));
        context.effect(Effect::Addresses, "masquerade_domains", text);
    }
    let names = plain.iter().map(|name| name.to_lowercase());
    context.draft.extend("[addresses]", "masquerade", names, "masquerade_domains");
}

/// Programs and files of aliases must be named in the configuration.
fn programs_of_aliases(context: &mut Context<'_>, maps: &[String]) {
    for path in maps.iter().filter_map(|map| map.strip_prefix("aliases:")) {
        let file = context.files.read(Path::new(path)).unwrap_or_default();
        let text = String::from_utf8_lossy(&file).into_owned();
        let lines = logical_lines(&text);
        let targets = lines.iter().filter_map(|(_, line)| line.split_once(':')).map(|(_, targets)| targets);
        let has_program = targets.clone().any(|targets| targets.contains('|'));
        let has_file = targets
            .flat_map(|targets| targets.split(','))
            .any(|target| target.trim().trim_matches('"').starts_with('/'));
        if has_program || has_file {
            context.effect(Effect::Refused, "alias_maps", format!("{path} delivers to programs or files: mail for them is deferred until addresses.programs and addresses.files list them"));
        }
    }
}
