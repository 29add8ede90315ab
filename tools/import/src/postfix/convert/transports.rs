//! `transport_maps`: routes for domains and for patterns of domains, rules for addresses.

use super::{
    super::{
        main_cf::items,
        pattern::Pattern,
        table::{Table, TableEntry, pattern_entries},
    },
    Context,
    addresses::separator,
    local::{mailbox, virtual_mailboxes},
    routes::{Hop, ROUTES_MAX, add_hop, hop, later, off_host, sender_dependent, waits},
    targets,
};
use crate::{
    decision::{LISTENERS, covers},
    draft::{Section, Value, plain_word},
    places::is_domain,
    report::Effect,
};
use std::cmp::Reverse;

/// A key of the table, in the order in which Postfix asks: the whole address, then its domain, then the domains above.
#[derive(Debug, Clone, PartialEq)]
enum Key {
    Address(String),
    /// Addresses of which a regular expression says more than the domain.
    Addresses(Pattern),
    /// Domains that match a regular expression.
    Domains(Pattern),
    Domain(String),
    Below(String),
    All,
}

impl Key {
    fn rank(&self) -> (u8, Reverse<usize>) {
        match self {
            Self::Address(_) | Self::Addresses(_) | Self::Domains(_) => (0, Reverse(0)),
            Self::Domain(_) => (1, Reverse(0)),
            Self::Below(domain) => (2, Reverse(domain.len())),
            Self::All => (3, Reverse(0)),
        }
    }
}

/// One entry: which mail takes which transport.
struct Transport {
    key: Key,
    value: String,
}

/// Returns the entries of all tables in the order of their look-ups. Tables that cannot be read have a route of their own.
fn ways(context: &mut Context<'_>) -> Vec<Transport> {
    let mut ways: Vec<Transport> = Vec::new();
    for item in items(&context.main.value("transport_maps")) {
        let Some(table) = Table::parse(&item) else {
            context.missing("transport_maps", format!("\"{item}\" is not a table"));
            continue;
        };
        match table_of_ways(context, &table) {
            Ok(found) => ways.extend(found),
            Err(why) => {
                let map = context.reference(&item);
                if let (true, Ok(map)) = (table.is_server(), &map) {
                    mapped(context, &item, map.clone());
                    continue;
                }
                let map = map.unwrap_or_else(|_| context.waiting("transport_maps", &item, &why));
                let text = format!("cannot read the next hops in {item}: write a [[route]] for each");
                waits(context, "transport_maps", vec![map], &text);
            }
        }
    }
    if ways.len() > ROUTES_MAX {
        let text = format!("only the first {ROUTES_MAX} of {} entries become routes", ways.len());
        context.effect(Effect::Elsewhere, "transport_maps", text);
        ways.truncate(ROUTES_MAX);
    }
    // The first table that has a key counts.
    let mut known: Vec<Key> = Vec::new();
    ways.retain(|way| {
        let is_new = !known.contains(&way.key);
        known.push(way.key.clone());
        is_new
    });
    ways.sort_by_key(|way| way.key.rank());
    ways
}

/// Writes the route of a table that is asked for each recipient, and those of the transports that its values may name.
fn mapped(context: &mut Context<'_>, item: &str, map: String) {
    let text = format!(
        "{item}: values with smtp, relay, lmtp or a pipe service of master.cf are used as next hops; MX records are not looked up for a name with a port, \
         even without brackets; with any other value, mail is deferred (451)"
    );
    context.effect(Effect::Elsewhere, "transport_maps", text);
    let section = Section::new("[[route]]", format!("transport_maps: {item}"));
    let section = super::routes::with_tls(context, section.with("next_hop", vec![map]));
    context.draft.push(section);
    let services: Vec<String> = context
        .master
        .services
        .iter()
        .filter(|service| service.kind == "unix" && service.program() == "pipe")
        .map(|service| service.name.clone())
        .collect();
    for name in services {
        let Ok(hop) = hop(context, &format!("{name}:")) else { continue };
        let section = Section::new("[[route]]", format!("master.cf: {name}")).with("name", name.clone());
        if let Some(section) = add_hop(context, section, (&hop, &name), "transport_maps") {
            context.draft.push(section);
        }
    }
}

/// Reads a table.
///
/// # Errors
/// The entries are not known: why.
fn table_of_ways(context: &mut Context<'_>, table: &Table) -> Result<Vec<Transport>, String> {
    if table.kind == "static" {
        return Ok(vec![Transport { key: Key::Domains(Pattern::any()), value: table.name.clone() }]);
    }
    if table.has_patterns() {
        let entries = pattern_entries(table, context.files)?;
        let way = |entry: TableEntry| {
            // A pattern of one text that is no address matches nothing.
            let is_address = |pattern: &Pattern| pattern.literal().is_none_or(|text| text.contains('@'));
            let pattern = Pattern::parse(&entry.key).filter(is_address)?;
            let key = pattern.of_domain().map_or(Key::Addresses(pattern), Key::Domains);
            Some(Transport { key, value: entry.value })
        };
        return Ok(entries.into_iter().filter_map(way).collect());
    }
    let mut found = Vec::new();
    for entry in table.entries(context.files)? {
        let key = entry.key.to_lowercase();
        if key.contains('@') && mail::Mailbox::parse(&key, true).is_err() {
            context.note("transport_maps", format!("{key} is not an address: Postfix never looks it up"));
            continue;
        }
        let (name, key) = match (key.contains('@'), key.strip_prefix('.')) {
            (true, _) => (None, Key::Address(key)),
            (false, Some(domain)) => (Some(domain.to_owned()), Key::Below(domain.to_owned())),
            (false, None) if key == "*" => (None, Key::All),
            (false, None) => (Some(key.clone()), Key::Domain(key)),
        };
        match name.filter(|name| !is_domain(name)) {
            Some(_) => context.missing("transport_maps", format!("{} is not a domain", entry.key)),
            None => found.push(Transport { key, value: entry.value }),
        }
    }
    Ok(found)
}

/// Returns the transport of a domain, that of its class where the table has none.
fn of_domain(context: &Context<'_>, domain: &str, class: &str) -> String {
    let tables = context.tables("transport_maps").into_iter();
    let has_patterns = |(item, _): &(String, _)| Table::parse(item).is_some_and(|table| table.has_patterns());
    let (patterns, tables): (Vec<_>, Vec<_>) = tables.partition(has_patterns);
    let [patterns, entries] = [patterns, tables]
        .map(|all| all.into_iter().filter_map(|(_, found)| found.ok()).flatten().collect::<Vec<_>>());
    // Patterns are asked for the whole address, and before.
    let pattern = patterns.iter().find(|entry| entry.key == format!("@{domain}"));
    let below = domain.match_indices('.').map(|(at, _)| &domain[at..]);
    let keys = std::iter::once(domain).chain(below).chain(["*"]);
    let found = keys.filter_map(|key| entries.iter().find(|entry| entry.key.eq_ignore_ascii_case(key)));
    let mut values = pattern.into_iter().chain(found);
    let value = values.next().map_or(":", |entry| entry.value.trim());
    with_class(value, &context.main.value(class))
}

/// transport(5): without a transport, that of the class gets the next hop; without both, nothing changes.
fn with_class(value: &str, class: &str) -> String {
    match value.strip_prefix(':').map(str::trim) {
        None => value.to_owned(),
        Some("") => class.to_owned(),
        Some(next) => format!("{}:{next}", class.split(':').next().unwrap_or_default()),
    }
}

/// Returns whether local(8) gets the mail of a domain.
pub(super) fn is_local(context: &Context<'_>, domain: &str, class: &str) -> bool {
    let transport = of_domain(context, domain, class);
    transport.split(':').next() != Some("virtual") && hop(context, &transport) == Ok(Hop::Local)
}

/// Returns whether the table gives the mail of a domain of this machine to a transport that knows no aliases.
pub(super) fn leaves(context: &Context<'_>, domain: &str) -> bool {
    !is_local(context, domain, "local_transport")
        && of_domain(context, domain, "local_transport") != context.main.value("local_transport")
}

pub(super) fn write(context: &mut Context<'_>, classes: &[Vec<String>; 3]) {
    context.mapped("transport_maps");
    // Domains with one next hop are one route.
    let mut grouped: Vec<(String, Vec<String>)> = Vec::new();
    let parents = context.main.value("parent_domain_matches_subdomains");
    // Patterns of domains that were asked before.
    let mut before: Vec<Pattern> = Vec::new();
    for (number, Transport { key, value: transport }) in ways(context).into_iter().enumerate() {
        let domains = match key {
            Key::Address(address) => {
                let rule = Section::new("[[rule]]", format!("transport_maps: {address}"));
                let rule = rule.with("for", "all").with("to", vec![address.clone()]);
                let rule = except(context, rule, &before, number);
                tell_of_aliases(context, &address);
                by_rule(context, rule, &address, &transport, "transport_maps");
                continue;
            }
            Key::Addresses(pattern) => {
                addresses(context, &pattern, &transport, &before, number);
                continue;
            }
            Key::Domains(pattern) => {
                let file = format!("transport-{number}");
                context.draft.add_file(&file, format!("{} x\n", pattern.text()), false);
                before.push(pattern);
                vec![format!("regex:{file}")]
            }
            Key::All => vec!["*".to_owned()],
            Key::Below(domain) => vec![format!("*.{domain}")],
            Key::Domain(domain) if parents.contains("transport_maps") => {
                vec![domain.clone(), format!("*.{domain}")]
            }
            Key::Domain(domain) => vec![domain],
        };
        match grouped.last_mut() {
            Some((value, group)) if *value == transport => group.extend(domains),
            _ => grouped.push((transport, domains)),
        }
    }
    for (transport, domains) in grouped {
        route(context, classes, &transport, domains);
    }
}

/// Writes the routes of some domains, those of the classes first.
fn route(context: &mut Context<'_>, classes: &[Vec<String>; 3], transport: &str, domains: Vec<String>) {
    let of = ["local_transport", "virtual_transport", "relay_transport"];
    let (mut done, relayhost) = (Vec::new(), context.main.value("relayhost"));
    for (names, class) in classes.iter().zip(of) {
        let is_covered = |name: &&String| domains.iter().any(|pattern| covers(pattern, name));
        let covered: Vec<String> = names.iter().filter(is_covered).cloned().collect();
        // A whole transport is for all classes.
        let with_class = transport.trim_start().starts_with(':');
        if !with_class && class != "local_transport" {
            continue;
        }
        let transport = self::with_class(transport, &context.main.value(class));
        let is_local = hop(context, &transport) == Ok(Hop::Local);
        let is_other = transport.split(':').next() == Some("virtual");
        match class {
            _ if covered.is_empty() || !with_class && !is_local => continue,
            "local_transport" if is_local => mailboxes(context, covered.clone()),
            "virtual_transport" if is_local && is_other => virtual_mailboxes(context, &covered),
            _ if transport == *context.main.value(class) => {
                let host = if class == "relay_transport" { &*relayhost } else { "" };
                if class == "relay_transport" {
                    sender_dependent(context, &covered, &[]);
                }
                super::routes::class(context, &covered, class, "transport_maps", host);
            }
            _ => one_route(context, &transport, covered.clone(), ""),
        }
        done.extend(covered);
    }
    let left: Vec<String> = domains.into_iter().filter(|domain| !done.contains(domain)).collect();
    let is_unchanged = transport.trim() == ":";
    let host = if is_unchanged { relayhost } else { String::new() };
    let transport = with_class(transport, &context.main.value("default_transport"));
    if is_unchanged {
        let by_sender = sender_dependent(context, &[], &left);
        by_sender.into_iter().for_each(|section| context.draft.push(section));
    }
    if !left.is_empty() {
        one_route(context, &transport, left, &host);
    }
}

/// Writes the route to the mailboxes of local(8).
fn mailboxes(context: &mut Context<'_>, domains: Vec<String>) {
    let section = Section::new("[[route]]", "transport_maps").with("domains", domains);
    let section = mailbox(context, section);
    section.into_iter().for_each(|section| context.draft.push(section));
}

fn one_route(context: &mut Context<'_>, transport: &str, domains: Vec<String>, relayhost: &str) {
    defer(context, transport, &domains);
    match off_host(context, transport, relayhost) {
        Ok(hop) => {
            let section = Section::new("[[route]]", "transport_maps").with("domains", domains);
            let section = add_hop(context, section, (&hop, transport), "transport_maps");
            section.into_iter().for_each(|section| context.draft.push(section));
        }
        Err(why) => waits(context, "transport_maps", domains, &why),
    }
}

/// Adds the rule of the transport `retry`.
fn defer(context: &mut Context<'_>, transport: &str, domains: &[String]) {
    let Some(reply) = later(transport) else { return };
    let named = domains.iter().filter(|domain| *domain != "*").cloned().collect::<Vec<_>>();
    let rule = Section::new("[[rule]]", "transport_maps").with("for", "all").with("to", named.clone());
    if !named.is_empty() {
        let text = format!(
            "{transport}: mail for users that do not exist in {} is refused at once, not deferred",
            named.join(", ")
        );
        context.effect(Effect::Refused, "transport_maps", text);
        context.draft.push(rule.with("listener", LISTENERS.map(str::to_owned).to_vec()).with("defer", reply));
    }
}

/// Adds the routes for addresses that match a pattern.
fn addresses(
    context: &mut Context<'_>,
    pattern: &Pattern,
    transport: &str,
    before: &[Pattern],
    number: usize,
) {
    let name = format!("transport-{number}");
    let rule = Section::new("[[rule]]", format!("transport_maps: {}", pattern.text())).with("for", "all");
    let rule = match pattern.literal() {
        Some(address) => {
            tell_of_aliases(context, &address);
            let rule = rule.with("to", vec![address.clone()]);
            // Postfix asks patterns for whole addresses only.
            match separator(context) {
                Some(separator) if !address.contains(&separator) => {
                    let text = format!("/^[^@]+[{separator}].*@/ x\n");
                    let details = format!("regex:{}", context.draft.add_numbered("with-details", text));
                    rule.with("unless", Value::Table(vec![("to", vec![details])]))
                }
                _ => except(context, rule, before, number),
            }
        }
        None => {
            let text = pattern.text();
            context.effect(Effect::Elsewhere, "transport_maps", format!("{text}: this next hop applies to addresses that clients give, with or without a detail (user+detail); mail that aliases send there goes to the next hop of the domain"));
            context.draft.add_file(&name, format!("{text} x\n"), false);
            except(context, rule.with("to", vec![format!("regex:{name}")]), before, number)
        }
    };
    by_rule(context, rule, &name, transport, "transport_maps");
}

/// Leaves out domains whose patterns come before.
fn except(context: &mut Context<'_>, rule: Section, before: &[Pattern], number: usize) -> Section {
    if before.is_empty() {
        return rule;
    }
    let file = format!("transport-before-{number}");
    let before = before.iter().filter_map(Pattern::of_addresses);
    let text: String = before.map(|pattern| format!("{} x\n", pattern.text())).collect();
    context.draft.add_file(&file, text, false);
    rule.with("unless", Value::Table(vec![("to", vec![format!("regex:{file}")])]))
}

/// Rules are for the addresses that clients give, and next hops for those that aliases lead to.
fn tell_of_aliases(context: &mut Context<'_>, address: &str) {
    let text = match targets::of(context) {
        Some(targets) if !targets.lead_to(address) => return,
        Some(_) => "mail that aliases send there",
        None => "mail that aliases send there, or that uses another form of the address,",
    };
    let text = format!(
        "{address}: this next hop applies if a client gives this address; {text} goes to the next hop of the domain"
    );
    context.effect(Effect::Elsewhere, "transport_maps", text);
}

/// Adds a rule with the verdict of a transport, or with a route of its own.
pub(super) fn by_rule(
    context: &mut Context<'_>,
    rule: Section,
    name: &str,
    transport: &str,
    parameter: &str,
) {
    let hop = hop(context, transport).unwrap_or_else(|why| {
        context.effect(Effect::Elsewhere, parameter, format!("{name}: {why}; until then the mail is held"));
        Hop::Hold
    });
    let rule = match &hop {
        Hop::Hold => match later(transport) {
            Some(reply) => rule.with("defer", reply),
            None => rule.with("hold", true),
        },
        Hop::Discard => rule.with("discard", true),
        Hop::Reject(reply) => rule.with("reject", reply.clone()),
        _ => {
            let name = plain_word(name);
            let section = Section::new("[[route]]", parameter).with("name", name.clone());
            let Some(section) = add_hop(context, section, (&hop, transport), parameter) else { return };
            context.draft.push(section);
            rule.with("route", name)
        }
    };
    context.draft.push(rule);
}
