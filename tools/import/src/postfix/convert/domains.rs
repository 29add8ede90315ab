//! Local domains, and who may send elsewhere.

use super::{
    super::{
        access::network,
        main_cf::items,
        restrictions::{INSIDE, Lists, May, STRANGER},
        table::{self, Purpose, Table, TableEntry, pattern_entries},
    },
    Context, addresses,
    networks::Networks,
    routes::{Hop, hop},
    transports,
    users::{self, Class},
};
use crate::{
    draft::{Section, Value},
    places::is_domain,
    report::Effect,
};
use ipnet::IpNet;
use std::path::Path;

/// The domains that a parameter lists or names tables of.
#[derive(Debug, Clone, Default)]
pub(in super::super) struct Domains {
    /// Domains by name.
    pub(in super::super) names: Vec<String>,
    /// Those of them whose subdomains are meant, too.
    pub(in super::super) below: Vec<String>,
    /// Domains whose subdomains are meant, and they themselves not.
    pub(in super::super) only_below: Vec<String>,
    /// Domains below those that are left out.
    pub(in super::super) excluded: Vec<String>,
    /// Domains that patterns have: Postfix looks up those above a domain in other tables only.
    pub(super) exact: Vec<String>,
    /// References of maps with further domains.
    pub(in super::super) maps: Vec<String>,
}

impl Domains {
    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty() && self.only_below.is_empty() && self.maps.is_empty()
    }

    /// Returns the domains as a route has them.
    pub(super) fn patterns(&self) -> Vec<String> {
        let below = self.below.iter().chain(&self.only_below).map(|domain| format!("*.{domain}"));
        self.names.iter().cloned().chain(below).chain(self.maps.iter().cloned()).collect()
    }

    /// Returns each name as a regular expression.
    pub(super) fn expressions(&self) -> impl Iterator<Item = String> + '_ {
        let named = self.names.iter().map(|name| {
            let begin = if self.below.contains(name) { "(.*\\.)?" } else { "" };
            format!("{begin}{}", name.replace('.', "\\."))
        });
        named.chain(self.only_below.iter().map(|name| format!(".*\\.{}", name.replace('.', "\\."))))
    }

    /// Takes out names that meet a condition; their subdomains stay.
    fn take(&mut self, is_it: impl Fn(&String) -> bool) -> Vec<String> {
        let (taken, names): (Vec<String>, Vec<String>) =
            std::mem::take(&mut self.names).into_iter().partition(is_it);
        self.names = names;
        self.only_below.extend(self.below.iter().filter(|name| taken.contains(name)).cloned());
        self.below.retain(|name| !taken.contains(name));
        taken
    }
}

/// Domains by Postfix's address classes.
pub(super) struct Classes {
    /// Domains of this machine, with those of other classes whose mail local(8) gets.
    pub(super) own: Domains,
    pub(super) aliases: Domains,
    pub(super) mailboxes: Domains,
    pub(super) relay: Domains,
    /// Those of `own` that are in `relay_domains` and in `virtual_mailbox_domains`.
    moved: [Vec<String>; 2],
}

/// Returns the domains of mydestination, of virtual aliases, of virtual mailboxes, and those that are relayed. Postfix looks into the
/// lists in this order, and a name is in the first one only.
pub(super) fn classes(context: &mut Context<'_>) -> Classes {
    let mut known: Vec<String> = Vec::new();
    let mut read = |parameter| {
        let mut domains = list(context, parameter);
        domains.names.retain(|name| !known.contains(name));
        domains.below.retain(|name| !known.contains(name));
        known.extend(domains.names.iter().cloned());
        domains
    };
    let mut own = read("mydestination");
    let aliases = read("virtual_alias_domains");
    let (mut mailboxes, mut relay) = (read("virtual_mailbox_domains"), read("relay_domains"));
    let moved = [
        relay.take(|name| transports::is_local(context, name, "relay_transport")),
        mailboxes.take(|name| transports::is_local(context, name, "virtual_transport")),
    ];
    own.names.extend(moved.iter().flatten().cloned());
    Classes { own, aliases, mailboxes, relay, moved }
}

/// Reads the domains of a parameter.
fn list(context: &mut Context<'_>, parameter: &str) -> Domains {
    let mut domains = Domains::default();
    let mut pending: Vec<String> = items(&context.main.value(parameter));
    pending.reverse();
    context.mapped(parameter);
    let (mut budget, mut excluded) = (100_000, Vec::<String>::new());
    let mut exceptions: Vec<String> = Vec::new();
    while let Some(item) = pending.pop() {
        budget -= 1;
        if budget == 0 {
            break;
        }
        if let Some(table) = Table::parse(&item) {
            table_of_domains(context, parameter, &table, &item, &mut domains, &excluded);
        } else if item.starts_with('/') {
            match names_of_file(context, &item) {
                Some(names) => pending.extend(names.into_iter().rev()),
                None => {
                    let map = context.waiting(parameter, &item, "there is no such file");
                    domains.maps.push(map);
                }
            }
        } else if let Some(name) = item.strip_prefix('!') {
            // The first item that matches counts.
            let of_table = Table::parse(name).map(|table| {
                table
                    .keyed_entries(context.files)
                    .map_err(|_| ())
                    .map(|entries| entries.into_iter().map(|entry| entry.key).collect())
            });
            let names = match of_table {
                None if name.starts_with('/') => names_of_file(context, name).ok_or(()),
                None => Ok(vec![name.to_owned()]),
                Some(keys) => keys,
            };
            match names {
                Ok(names) => {
                    excluded.extend(names.iter().map(|name| name.trim_start_matches('.').to_lowercase()));
                }
                Err(()) => context.effect(
                    Effect::Taken,
                    parameter,
                    format!("cannot read {item}: remove the domains that it excludes from local.domains"),
                ),
            }
        } else if item.starts_with('.') || item.contains('*') {
            context.effect(
                Effect::Refused,
                parameter,
                format!("{item}: list each domain by name, or in a map (text:FILE, regex:FILE)"),
            );
        } else if item.starts_with('[') {
            // Address literals of this machine are local anyway.
        } else if is_domain(&item) {
            let name = item.to_lowercase();
            domains.exact.retain(|exact| *exact != name);
            if !domains.names.contains(&name) && !excluded.contains(&name) {
                let is_below = |other: &&String| other.ends_with(&format!(".{name}"));
                exceptions.extend(excluded.iter().filter(is_below).cloned());
                domains.names.push(name);
            }
        } else {
            context.missing(parameter, format!("{item} is not a domain"));
        }
    }
    let parents =
        context.main.explicit("parent_domain_matches_subdomains").map(|one| context.main.expand(&one.value));
    if parameter == "relay_domains" && parents.is_none_or(|list| list.contains(parameter)) {
        domains.excluded = exceptions.iter().filter(|name| !domains.names.contains(name)).cloned().collect();
        let has_below = |name: &&String| !domains.exact.contains(name);
        domains.below = domains.names.iter().filter(has_below).cloned().collect();
        // Postfix asks servers for the domains above, too, and patterns for the whole domain only.
        if let Some(map) = domains.maps.iter().find(|map| map.starts_with("map:")) {
            let text =
                format!("subdomains of the domains in {map} are accepted only if the map has them, too");
            context.effect(Effect::Refused, parameter, text);
        }
    }
    domains
}

/// Returns the words of a file of names. It includes no other files.
fn names_of_file(context: &Context<'_>, path: &str) -> Option<Vec<String>> {
    let file = context.files.read(Path::new(path))?;
    let text = String::from_utf8_lossy(&file).into_owned();
    let words = text.lines().flat_map(|line| items(line.split('#').next().unwrap_or_default()));
    Some(words.filter(|item| !item.starts_with('/')).collect())
}

fn table_of_domains(
    context: &mut Context<'_>,
    parameter: &str,
    table: &Table,
    item: &str,
    domains: &mut Domains,
    excluded: &[String],
) {
    if table.kind == "static" {
        let text = format!("{item} accepts mail for all domains: list your own in local.domains");
        return context.effect(Effect::Refused, parameter, text);
    }
    let is_of_addresses = |entries: Vec<TableEntry>| entries.iter().all(|entry| entry.key.contains('@'));
    if table.has_patterns() && pattern_entries(table, context.files).is_ok_and(is_of_addresses) {
        return;
    }
    // In the table of virtual aliases, only the keys without `@` are domains; and a route has no maps.
    let has_names = parameter == "virtual_alias_domains";
    match table.keyed_entries(context.files) {
        Ok(entries) if entries.len() <= 10_000 => {
            let keys = entries.into_iter().map(|entry| entry.key.to_lowercase());
            let is_listed =
                |key: &String| !key.contains('@') && (key.contains('.') || !has_names) && is_domain(key);
            for key in keys.filter(is_listed) {
                if !table.has_patterns() {
                    domains.exact.retain(|exact| *exact != key);
                }
                if !domains.names.contains(&key) && !excluded.contains(&key) {
                    domains.exact.extend(table.has_patterns().then(|| key.clone()));
                    domains.names.push(key);
                }
            }
            if parameter != "virtual_alias_domains" || context.main.explicit(parameter).is_some() {
                context.note(
                    parameter,
                    format!(
                        "the domains in {item} are listed by name; local.domains can also refer to the map"
                    ),
                );
            }
        }
        _ => {
            let is_derived =
                parameter == "virtual_alias_domains" && context.main.explicit(parameter).is_none();
            match table::reference(table, Purpose::Keys, context.files, &mut context.draft) {
                Ok(_) if is_derived && !table.has_patterns() => {
                    let text = format!("cannot read the domains in {item}: list them in local.domains");
                    context.effect(Effect::Refused, "virtual_alias_maps", text);
                }
                Ok(map) => domains.maps.push(map),
                Err(_) if is_derived => return,
                Err(why) => domains.maps.push(context.waiting(parameter, item, &why)),
            }
            if parameter == "mydestination" {
                let text = format!(
                    "aliases apply only to domains that are listed by name: list those in {item} in local.domains; otherwise, mail for aliases there is refused"
                );
                context.effect(Effect::Refused, parameter, text);
            }
        }
    }
}

pub(super) fn write(context: &mut Context<'_>) {
    relay_networks(context);
    let Classes { own, aliases, mailboxes, relay, moved } = classes(context);
    let excluded = relay.excluded.clone();
    let origin = context.origin().to_lowercase();
    let is_elsewhere = origin != context.hostname && own.maps.is_empty() && !own.names.contains(&origin);
    if is_elsewhere && !sends_all_away(context) {
        let text = format!(
            "mail from this machine for names without a domain, such as root, stays here; Postfix sends it to {origin}"
        );
        context.effect(Effect::Elsewhere, "myorigin", text);
    }
    let is_taken =
        [&own, &relay, &mailboxes, &aliases].iter().any(|domains| domains.names.contains(&context.hostname));
    let mut own = own;
    if !is_taken && !own.maps.is_empty() {
        // The map may have it.
        own.names.push(context.hostname.clone());
    }
    let is_taken = is_taken || !own.maps.is_empty();
    let (own, away) = split(context, own);
    let mut classes = Vec::new();
    for (domains, file) in [
        (Class::own(context, own, true), ""),
        (Class::own(context, away, false), "domains-elsewhere"),
        (Class::of("relay_domains", relay, context, "relay_recipient_maps"), "relay-domains"),
        (Class::of("virtual_mailbox_domains", mailboxes, context, "virtual_mailbox_maps"), "mailbox-domains"),
        (Class::empty("virtual_alias_domains", aliases), "alias-domains"),
    ] {
        add_domains(context, &domains.domains, file);
        classes.extend(Some(domains).filter(|class| !class.domains.is_empty()));
    }
    let is_listed = |class: &&Class| class.parameter != "mydestination" && class.is_listed();
    let mut patterns: Vec<String> =
        classes.iter().filter(is_listed).flat_map(|class| class.domains.patterns()).collect();
    if !is_taken && !sends_all_away(context) {
        let names = Domains { names: vec![context.hostname.clone()], ..Domains::default() };
        // Neither users nor aliases are there: strangers get what those get who want to relay.
        add_domains(context, &names, "hostname");
        let rule = Section::new("[[rule]]", "mydestination").with("to", names.names.clone());
        let rule = rule.with("unless", Value::Table(vec![("to", vec!["postmaster@*".to_owned()])]));
        context.draft.push(rule.with("reject", "554 5.7.1 Relay access denied"));
        context.note("mydestination", "the hostname is a local domain without users, because mail from local programs and bounces need it");
        let hostname = context.hostname.clone();
        let refused = format!("mail for {hostname} is refused instead of going there");
        let kept = format!("copies for {hostname} stay on this machine");
        for (name, effect, text) in [
            ("sender_dependent_relayhost_maps", Effect::Refused, &refused),
            ("sender_dependent_default_transport_maps", Effect::Refused, &refused),
            ("always_bcc", Effect::Elsewhere, &kept),
            ("sender_bcc_maps", Effect::Elsewhere, &kept),
            ("recipient_bcc_maps", Effect::Elsewhere, &kept),
        ] {
            if !context.main.value(name).is_empty() {
                context.effect(effect, name, text);
            }
        }
        patterns.extend(names.names.iter().cloned());
        classes.push(Class::empty("mydestination", names));
    }
    if !patterns.is_empty() {
        let shown = patterns[..patterns.len().min(10)].join(", ");
        let more = if patterns.len() > 10 { " and others" } else { "" };
        let text = format!(
            "mail for postmaster in {shown}{more} is accepted even if there is no such user, and goes to the address in `postmaster`"
        );
        context.tell(Effect::Taken, "postmaster", text);
    }
    if !excluded.is_empty() {
        let patterns: Vec<String> =
            excluded.iter().flat_map(|name| [name.clone(), format!("*.{name}")]).collect();
        let rule = Section::new("[[rule]]", "relay_domains: domains excluded by `!`").with("to", patterns);
        context.draft.push(rule.with("reject", "554 5.7.1 Relay access denied"));
    }
    users::write(context, classes);
    users::moved(context, moved);
    addresses::write(context);
}

/// Writes domains into `local.domains`, by name or as patterns in a file: aliases are for domains by name.
fn add_domains(context: &mut Context<'_>, domains: &Domains, file: &str) {
    context.destinations.extend(domains.patterns());
    let mut found = domains.maps.clone();
    if file.is_empty() {
        found.splice(0..0, domains.names.iter().cloned());
    } else if !domains.names.is_empty() {
        let text: String = domains.expressions().map(|domain| format!("/^{domain}$/ x\n")).collect();
        context.draft.add_file(file, text, false);
        found.push(format!("regex:{file}"));
    }
    let from = "mydestination, relay_domains, virtual_mailbox_domains, virtual_alias_domains";
    context.draft.extend("[local]", "domains", found, from);
}

/// Splits domains of this machine into those whose mail comes to local(8), and those that `transport_maps` gives to a transport without
/// aliases. A map with names that have no domain is asked for domains by name only.
fn split(context: &mut Context<'_>, own: Domains) -> (Domains, Domains) {
    let (away, names): (Vec<String>, Vec<String>) =
        own.names.iter().cloned().partition(|name| transports::leaves(context, name));
    if !away.is_empty() && addresses::have_names(context) {
        let text = format!(
            "{}: this machine's aliases are applied before mail for these domains goes to its transport",
            away.join(", ")
        );
        context.effect(Effect::Elsewhere, "transport_maps", text);
        return (own, Domains::default());
    }
    (Domains { names, ..own }, Domains { names: away, ..Domains::default() })
}

/// Mail for the hostname matches a route.
pub(super) fn sends_all_away(context: &Context<'_>) -> bool {
    !context.main.value("relayhost").is_empty()
        || hop(context, &context.main.value("default_transport")) != Ok(Hop::Mx)
        || transports::leaves(context, &context.hostname)
}

/// Returns whether a network is not in `mynetworks`.
fn is_other(context: &Context<'_>, text: &str) -> bool {
    !network(text).is_some_and(|one| context.has_network(one))
}

/// Writes the clients that may send everywhere: those whom each list permits it.
fn relay_networks(context: &mut Context<'_>) {
    let is_given = context.main.explicit("mynetworks").is_some();
    let style = context.main.value("mynetworks_style");
    context.mapped("mynetworks_style");
    context.networks = vec!["127.0.0.0/8".to_owned(), "::1/128".to_owned()];
    if is_given {
        let networks = Networks::read(&context.main.value("mynetworks"), context.files);
        context.mapped("mynetworks");
        match (networks.problem(), networks.remark()) {
            (Some(problem), _) => context.effect(Effect::Refused, "mynetworks", problem),
            (None, Some(_)) if networks.late().is_some() => {
                context.effect(Effect::Refused, "mynetworks", networks.late().unwrap_or_default());
            }
            (None, Some(remark)) => context.note("mynetworks", remark),
            (None, None) => {}
        }
        context.networks = networks.texts();
    } else if !matches!(&*style, "" | "host") {
        context.effect(Effect::Refused, "mynetworks_style", "the import does not know the networks of this machine's interfaces: add those whose clients may relay to relay.networks");
    }
    let lists: Vec<Lists> = context
        .doors
        .iter()
        .filter(|door| !door.kind.starts_with("submission"))
        .map(|door| door.lists.clone())
        .collect();
    let inside = lists.iter().map(|lists| lists.may(context, INSIDE, false)).min().unwrap_or(May::Yes);
    let mut more: Vec<String> = lists.iter().flat_map(|lists| lists.relaying(context)).collect();
    // What permits some of them alone may be a table, with something behind it that refuses the others.
    if inside == May::Yes {
        more.retain(|text| is_other(context, text));
    }
    // The check of the configuration refuses them.
    let is_too_wide = |text: &&String| text.parse::<IpNet>().is_ok_and(|net| net.prefix_len() < 8);
    let wide: Vec<String> = context.networks.iter().chain(&more).filter(is_too_wide).cloned().collect();
    if !wide.is_empty() {
        context.effect(
            Effect::Refused,
            "smtpd_relay_restrictions",
            format!(
                "{} would make an open relay: add your clients' networks to relay.networks",
                wide.join(", ")
            ),
        );
        more.retain(|network| !wide.contains(network));
    }
    let by_table = lists.iter().any(|lists| lists.relays_some(context)).then_some(May::Some);
    match lists.iter().map(|lists| lists.may(context, STRANGER, false)).max().max(by_table) {
        Some(May::Yes) => context.effect(
            Effect::Refused,
            "smtpd_relay_restrictions",
            "these lists let everybody relay; in Postrider, only clients in relay.networks and those that log in may relay",
        ),
        Some(May::Some) => context.effect(
            Effect::Refused,
            "smtpd_relay_restrictions",
            "a table or a condition lets other clients relay; in Postrider, only clients in relay.networks and those that log in may relay",
        ),
        _ => {}
    }
    match inside {
        May::Yes => {}
        May::No if !more.is_empty() => context.note(
            "mynetworks",
            format!(
                "only {} may relay, because a table permits it: the others are not in relay.networks",
                more.join(", ")
            ),
        ),
        May::No => context.note(
            "mynetworks",
            "your restrictions do not let these clients relay: they are not in relay.networks",
        ),
        May::Some => context.effect(
            Effect::Refused,
            "mynetworks",
            "these clients may relay only if a table permits it: they are not in relay.networks",
        ),
    }
    context.do_networks_relay = inside == May::Yes;
    context.do_others_relay = more.iter().any(|text| is_other(context, text));
    context.are_relayed = inside == May::Yes && more.is_empty() && wide.is_empty();
    let mut known = if inside == May::Yes { context.networks.clone() } else { Vec::new() };
    known.retain(|network| !wide.contains(network));
    if is_given || inside != May::Yes || !more.is_empty() {
        let from = context.place("mynetworks");
        context.draft.extend("[relay]", "networks", known.into_iter().chain(more), &from);
    }
}
