//! Local domains, users, and maps of addresses.

use super::{
    super::{
        main_cf::{items, logical_lines},
        restrictions::{INSIDE, Lists, May, STRANGER},
        table::{self, Purpose, Table, TableEntry},
    },
    Context,
    networks::Networks,
};
use crate::places::is_domain;
use crate::report::Effect;
use mail::Domain;
use std::path::Path;

/// The domains of a parameter.
#[derive(Debug, Clone, Default)]
pub(in super::super) struct Domains {
    /// Domains by name.
    pub(in super::super) names: Vec<String>,
    /// Those of them whose subdomains are meant, too.
    pub(in super::super) below: Vec<String>,
    /// Maps of domains.
    pub(in super::super) maps: Vec<String>,
}

impl Domains {
    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty() && self.maps.is_empty()
    }

    /// Returns the domains as a route has them.
    pub(super) fn patterns(&self) -> Vec<String> {
        let below = self.below.iter().map(|domain| format!("*.{domain}"));
        self.names.iter().cloned().chain(below).chain(self.maps.iter().cloned()).collect()
    }

    /// Returns each name as a regular expression.
    fn expressions(&self) -> impl Iterator<Item = String> + '_ {
        self.names.iter().map(|name| {
            let begin = if self.below.contains(name) { "(.*\\.)?" } else { "" };
            format!("{begin}{}", name.replace('.', "\\."))
        })
    }
}

/// The recipients that exist in some domains.
enum Recipients {
    /// All of them.
    Any,
    /// Names, the keys of maps, and every address of some domains.
    Listed { maps: Vec<String>, names: Vec<String>, whole_domains: Vec<String> },
}

struct Class {
    parameter: &'static str,
    domains: Domains,
    recipients: Recipients,
}

/// Returns the domains of mydestination, of virtual aliases, of virtual mailboxes, and those that are relayed. Postfix looks into the
/// lists in this order, and a name is in the first one only.
pub(super) fn classes(context: &mut Context<'_>) -> [Domains; 4] {
    let mut known: Vec<String> = Vec::new();
    ["mydestination", "virtual_alias_domains", "virtual_mailbox_domains", "relay_domains"].map(|parameter| {
        let mut domains = list(context, parameter);
        domains.names.retain(|name| !known.contains(name));
        domains.below.retain(|name| !known.contains(name));
        known.extend(domains.names.iter().cloned());
        domains
    })
}

/// Reads a list of domains.
fn list(context: &mut Context<'_>, parameter: &str) -> Domains {
    let mut domains = Domains::default();
    let mut pending: Vec<String> = items(&context.main.value(parameter));
    pending.reverse();
    context.mapped(parameter);
    let (mut budget, mut excluded) = (100_000, Vec::new());
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
                    .entries(context.files)
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
                    format!("{item} cannot be read: remove its domains from local.domains"),
                ),
            }
        } else if item.starts_with('.') || item.contains('*') {
            context.effect(
                Effect::Refused,
                parameter,
                format!("{item}: list each domain by name, or write it into a map: text:FILE, regex:FILE"),
            );
        } else if item.starts_with('[') {
            // Address literals of this machine are local anyway.
        } else if is_domain(&item) {
            let name = item.to_lowercase();
            if !domains.names.contains(&name) && !excluded.contains(&name) {
                domains.names.push(name);
            }
        } else {
            context.missing(parameter, format!("{item} is no domain"));
        }
    }
    let parents =
        context.main.explicit("parent_domain_matches_subdomains").map(|one| context.main.expand(&one.value));
    if parameter == "relay_domains" && parents.is_none_or(|list| list.contains(parameter)) {
        let has_exception =
            |name: &&String| excluded.iter().any(|other| other.ends_with(&format!(".{name}")));
        let (split, whole): (Vec<&String>, Vec<&String>) = domains.names.iter().partition(has_exception);
        domains.below = whole.into_iter().cloned().collect();
        if let Some(name) = split.first() {
            context.effect(Effect::Refused, parameter, format!("subdomains of {name} are not taken, because some are left out: list each one in local.domains"));
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
        let text = format!("{item} takes mail for all domains: name those that are yours in local.domains");
        return context.effect(Effect::Refused, parameter, text);
    }
    // In the table of virtual aliases, only the keys without `@` are domains; and a route has no maps.
    let has_names = parameter == "virtual_alias_domains";
    match table.entries(context.files) {
        Ok(entries) if entries.len() <= 10_000 => {
            let keys = entries.into_iter().map(|entry| entry.key.to_lowercase());
            let is_listed =
                |key: &String| !key.contains('@') && (key.contains('.') || !has_names) && is_domain(key);
            for key in keys.filter(is_listed) {
                if !domains.names.contains(&key) && !excluded.contains(&key) {
                    domains.names.push(key);
                }
            }
            if parameter != "virtual_alias_domains" || context.main.explicit(parameter).is_some() {
                context.note(
                    parameter,
                    format!("the domains of {item} are listed by name; local.domains can also have the map"),
                );
            }
        }
        _ => {
            let is_derived =
                parameter == "virtual_alias_domains" && context.main.explicit(parameter).is_none();
            match table::reference(table, Purpose::Keys, context.files, &mut context.draft) {
                Ok(_) if is_derived && !matches!(&*table.kind, "regexp" | "pcre") => {
                    let text =
                        format!("the domains of {item} are not known here: name them in local.domains");
                    context.effect(Effect::Refused, "virtual_alias_maps", text);
                }
                Ok(map) => domains.maps.push(map),
                Err(_) if is_derived => return,
                Err(why) => domains.maps.push(context.waiting(parameter, item, &why)),
            }
            if parameter == "mydestination" {
                let text = format!(
                    "aliases are for domains by name: list those of {item} in local.domains, else its aliases are unknown users"
                );
                context.effect(Effect::Refused, parameter, text);
            }
        }
    }
}

pub(super) fn write(context: &mut Context<'_>) {
    relay_networks(context);
    let [own, aliases, mailboxes, relay] = classes(context);
    let origin = context.origin().to_lowercase();
    if !own.names.is_empty() && !own.names.contains(&origin) {
        context.effect(Effect::Elsewhere, "mydestination", format!("names without a domain that an alias leads to are names of the alias's domain, and not of {origin}"));
    }
    let is_elsewhere = origin != context.hostname && own.maps.is_empty() && !own.names.contains(&origin);
    if is_elsewhere && !sends_all_away(context) {
        let text = format!(
            "mail of this machine for names without a domain, such as root, stays here; Postfix sends it to {origin}"
        );
        context.effect(Effect::Elsewhere, "myorigin", text);
    }
    let from = "mydestination, relay_domains, virtual_mailbox_domains, virtual_alias_domains";
    let mut classes = Vec::new();
    let is_taken =
        [&own, &relay, &mailboxes, &aliases].iter().any(|domains| domains.names.contains(&context.hostname));
    for (parameter, domains, recipients, file) in [
        ("mydestination", own, own_recipients(context), ""),
        ("relay_domains", relay, listed(context, "relay_recipient_maps"), "relay-domains"),
        ("virtual_mailbox_domains", mailboxes, listed(context, "virtual_mailbox_maps"), "mailbox-domains"),
        (
            "virtual_alias_domains",
            aliases,
            Recipients::Listed { maps: Vec::new(), names: Vec::new(), whole_domains: Vec::new() },
            "alias-domains",
        ),
    ] {
        context.destinations.extend(domains.patterns());
        let mut found = domains.maps.clone();
        if file.is_empty() {
            found.splice(0..0, domains.names.iter().cloned());
        } else if !domains.names.is_empty() {
            // Aliases are for domains by name.
            let text: String = domains.expressions().map(|domain| format!("/^{domain}$/ x\n")).collect();
            context.draft.add_file(file, text, false);
            found.push(format!("regex:{file}"));
        }
        context.draft.extend("[local]", "domains", found, from);
        if !domains.is_empty() {
            classes.push(Class { parameter, domains, recipients });
        }
    }
    let is_listed = |class: &&Class| {
        class.parameter != "mydestination" && matches!(class.recipients, Recipients::Listed { .. })
    };
    let patterns: Vec<String> =
        classes.iter().filter(is_listed).flat_map(|class| class.domains.patterns()).collect();
    if !patterns.is_empty() {
        let shown = patterns[..patterns.len().min(10)].join(", ");
        let more = if patterns.len() > 10 { " and others" } else { "" };
        let text = format!(
            "his mail is taken in {shown}{more}, also where he is no user: it goes to the address in `postmaster`"
        );
        context.tell(Effect::Taken, "postmaster", text);
    }
    if !is_taken && !sends_all_away(context) {
        let hostname = context.hostname.clone();
        let text = format!(
            "mail for postmaster@{hostname} is taken, and for other names there it is refused: mail of programs of this machine and its \
             notifications need {hostname} as a local domain. Postfix refuses mail of strangers for it, and sends that of others to its MX hosts"
        );
        context.effect(Effect::Taken, "mydestination", text);
        context.draft.extend("[local]", "domains", [hostname.clone()], from);
        classes.push(Class {
            parameter: "mydestination",
            domains: Domains { names: vec![hostname], ..Domains::default() },
            recipients: Recipients::Listed { maps: Vec::new(), names: Vec::new(), whole_domains: Vec::new() },
        });
    }
    users(context, &classes);
    addresses(context);
}

/// Mail for the hostname matches the route for all domains.
fn sends_all_away(context: &Context<'_>) -> bool {
    !context.main.value("relayhost").is_empty()
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
        context.effect(Effect::Refused, "mynetworks_style", "networks of this machine's interfaces are not known here: write those whose clients may relay into relay.networks");
    }
    let lists: Vec<Lists> = context
        .doors
        .iter()
        .filter(|(kind, _)| !kind.starts_with("submission"))
        .map(|(_, lists)| lists.clone())
        .collect();
    let inside = lists.iter().map(|lists| lists.may(context, INSIDE, false)).min().unwrap_or(May::Yes);
    let mut more: Vec<String> = lists.iter().flat_map(|lists| lists.relaying(context)).collect();
    more.retain(|network| !context.networks.contains(network));
    // The check of the configuration refuses them.
    let is_too_wide = |text: &&String| text.parse::<ipnet::IpNet>().is_ok_and(|net| net.prefix_len() < 8);
    let wide: Vec<String> = context.networks.iter().chain(&more).filter(is_too_wide).cloned().collect();
    if !wide.is_empty() {
        context.effect(
            Effect::Refused,
            "smtpd_relay_restrictions",
            format!(
                "{} would make an open relay: name the networks whose clients may relay in relay.networks",
                wide.join(", ")
            ),
        );
        more.retain(|network| !wide.contains(network));
    }
    match lists.iter().map(|lists| lists.may(context, STRANGER, false)).max() {
        Some(May::Yes) => context.effect(
            Effect::Refused,
            "smtpd_relay_restrictions",
            "these lists let everybody relay; Postrider lets relay.networks and logins",
        ),
        Some(May::Some) => context.effect(
            Effect::Refused,
            "smtpd_relay_restrictions",
            "a table or a condition lets other clients relay; Postrider lets relay.networks and logins",
        ),
        _ => {}
    }
    match inside {
        May::Yes => {}
        May::No => context
            .note("mynetworks", "no list permits these clients to relay: they are not in relay.networks"),
        May::Some => context.effect(
            Effect::Refused,
            "mynetworks",
            "these clients may relay by a table only: they are not in relay.networks",
        ),
    }
    context.are_relayed = inside == May::Yes && more.is_empty() && wide.is_empty();
    let mut known = if inside == May::Yes { context.networks.clone() } else { Vec::new() };
    known.retain(|network| !wide.contains(network));
    if is_given || inside != May::Yes || !more.is_empty() {
        let from = context.place("mynetworks");
        context.draft.extend("[relay]", "networks", known.into_iter().chain(more), &from);
    }
}

/// The users of the machine, or the maps of `local_recipient_maps`.
fn own_recipients(context: &mut Context<'_>) -> Recipients {
    let is_local = context.main.value("local_transport").starts_with("local");
    let value = context.main.value("local_recipient_maps");
    context.mapped("local_recipient_maps");
    let plain = |item: &String| item.strip_prefix("proxy:").unwrap_or(item).to_owned();
    let listed: Vec<String> = items(&value).iter().map(plain).collect();
    let aliases: Vec<String> = items(&context.main.value("alias_maps")).iter().map(plain).collect();
    let has_accounts = listed.iter().any(|item| item == "unix:passwd.byname");
    if is_local && has_accounts_only(context) {
        // Others are returned by local(8), whatever the list says.
        let names = context.files.users();
        if names.is_empty() {
            context.effect(
                Effect::Taken,
                "local_recipient_maps",
                "the accounts of the machine cannot be read: every name exists; write local.users",
            );
            return Recipients::Any;
        }
        let has_all = has_accounts && aliases.iter().all(|alias| listed.contains(alias));
        if !has_all && !listed.is_empty() {
            context.effect(
                Effect::Taken,
                "local_recipient_maps",
                "the accounts of this machine and the aliases exist, also those that the list does not have",
            );
        }
        return Recipients::Listed { maps: Vec::new(), names, whole_domains: Vec::new() };
    }
    if value.is_empty() {
        return Recipients::Any;
    }
    if !is_local {
        let text = "the names that an alias leads to must be in local_recipient_maps, too; by default these are the accounts of this machine";
        context.effect(Effect::Refused, "local_transport", text);
    }
    let mut names = if has_accounts { context.files.users() } else { Vec::new() };
    // Names of aliases exist, and another transport gets their mail.
    for file in listed.iter().filter(|item| aliases.contains(item)).filter_map(|item| Table::parse(item)) {
        let file = context.files.read(Path::new(&file.name)).unwrap_or_default();
        let lines = logical_lines(&String::from_utf8_lossy(&file));
        names
            .extend(lines.iter().filter_map(|(_, line)| Some(line.split_once(':')?.0.trim().to_lowercase())));
    }
    let mut known = std::collections::HashSet::new();
    names.retain(|name| known.insert(name.clone()));
    let mut maps = Vec::new();
    for item in listed.iter().filter(|item| *item != "unix:passwd.byname" && !aliases.contains(item)) {
        match Table::parse(item) {
            Some(table) => maps.push(
                table::reference(&table, Purpose::Keys, context.files, &mut context.draft)
                    .unwrap_or_else(|why| context.waiting("local_recipient_maps", item, &why)),
            ),
            None => context.missing("local_recipient_maps", format!("\"{item}\" is no table")),
        }
    }
    if !maps.is_empty() {
        let text = "names without a domain exist in all local domains, and not in mydestination only";
        context.effect(Effect::Taken, "local_recipient_maps", text);
    }
    let whole_domains = whole_domains(context, "local_recipient_maps");
    Recipients::Listed { maps, names, whole_domains }
}

/// Returns whether local(8) has mailboxes for the accounts of the machine only.
fn has_accounts_only(context: &Context<'_>) -> bool {
    let others = [
        "mailbox_transport",
        "mailbox_transport_maps",
        "fallback_transport",
        "fallback_transport_maps",
        "luser_relay",
    ];
    others.iter().all(|name| context.main.value(name).is_empty())
}

/// Returns the domains whose addresses all exist by keys such as `@example.com`: `local.users` is not asked for these.
fn whole_domains(context: &mut Context<'_>, parameter: &str) -> Vec<String> {
    let mut domains = Vec::new();
    for (place, key) in domain_keys(context, parameter) {
        match Domain::parse(&key[1..]) {
            Ok(domain) => {
                let domain = domain.key().into_owned();
                if domains.is_empty() {
                    context.note(parameter, format!("`{key}` ({place}) and others like it stand as patterns in the file local-domains-with-all-users: local.users is asked for whole addresses"));
                }
                domains.push(domain);
            }
            Err(_) => no_domain(
                context,
                parameter,
                &place,
                &key,
                "/@example\\.com$/ x in a file of local.users, regex:FILE,",
            ),
        }
    }
    domains
}

/// Returns the keys of the tables of a parameter that begin with `@`, each with its place.
fn domain_keys(context: &Context<'_>, parameter: &str) -> Vec<(String, String)> {
    let tables = items(&context.main.value(parameter));
    tables
        .iter()
        .filter_map(|item| Table::parse(item))
        .flat_map(|table| table.domain_keys(context.files))
        .collect()
}

/// Tells of a key that would be for all domains, or for none.
fn no_domain(context: &mut Context<'_>, parameter: &str, place: &str, key: &str, instead: &str) {
    context.missing(
        parameter,
        format!(
            "`{key}` ({place}) has no domain, and nothing is for all domains: write {instead} for each domain"
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
            context.note(parameter, format!("`{key}` ({place}) is a catch-all: every address of the domain exists, and those of users are taken, too, unless the map has a line for each (`user@example.com user@example.com`)"));
        }
    }
}

fn listed(context: &mut Context<'_>, parameter: &str) -> Recipients {
    context.mapped(parameter);
    let tables: Vec<Table> =
        items(&context.main.value(parameter)).iter().filter_map(|item| Table::parse(item)).collect();
    // A table with each key is for these domains only, and `local.users` is for all.
    if tables.is_empty() || tables.iter().any(|table| table.kind == "static") {
        return Recipients::Any;
    }
    if tables.iter().any(|table| matches!(&*table.kind, "regexp" | "pcre")) {
        context.effect(Effect::Taken, parameter, "its patterns are for the addresses of all local domains");
    }
    let maps = context.maps(parameter, Purpose::Keys);
    Recipients::Listed { maps, names: Vec::new(), whole_domains: whole_domains(context, parameter) }
}

/// Writes `local.users`. It is one list for all local domains, so users of some domains only stand in a file, with their
/// domains.
fn users(context: &mut Context<'_>, classes: &[Class]) {
    if classes.iter().all(|class| matches!(class.recipients, Recipients::Any)) {
        return;
    }
    let is_open =
        |class: &&Class| matches!(class.recipients, Recipients::Any) && !class.domains.maps.is_empty();
    if let Some(class) = classes.iter().find(is_open) {
        let map = &class.domains.maps[0];
        return context.effect(Effect::Taken, class.parameter, format!("every address of the domains of {map} exists, and local.users cannot say so for a map: it is left out, and so every name of all local domains exists"));
    }
    let (mut users, mut file, mut patterns) = (vec!["postmaster".to_owned()], String::new(), String::new());
    for class in classes {
        let mut add = |domain: String| patterns.push_str(&format!("/@{domain}$/ x\n"));
        match &class.recipients {
            Recipients::Any => class.domains.expressions().for_each(add),
            Recipients::Listed { maps, names, whole_domains } => {
                whole_domains.iter().for_each(|domain| add(domain.replace('.', "\\.")));
                users.extend(maps.iter().cloned());
                if classes.len() == 1 && !names.is_empty() && *names == context.files.users() {
                    users.push("accounts:/etc/passwd".to_owned());
                } else {
                    for domain in &class.domains.names {
                        names.iter().for_each(|name| file.push_str(&format!("{name}@{domain} x\n")));
                    }
                    if let Some(map) = class.domains.maps.first().filter(|_| !names.is_empty()) {
                        names.iter().for_each(|name| file.push_str(&format!("{name} x\n")));
                        let text = format!(
                            "the domains of {map} are not known here: the accounts of this machine exist in all local domains"
                        );
                        context.effect(Effect::Taken, class.parameter, text);
                    }
                }
            }
        }
    }
    if !file.is_empty() {
        context.note(
            "local_recipient_maps",
            "the users of the machine are listed in the file local-users as they are now: add new ones there",
        );
        context.draft.add_file("local-users", format!("# Users of some local domains only\n{file}"), false);
        users.push("text:local-users".to_owned());
    }
    if !patterns.is_empty() {
        context.draft.add_file(
            "local-domains-with-all-users",
            format!("# Local domains in which every address exists\n{patterns}"),
            false,
        );
        users.push("regex:local-domains-with-all-users".to_owned());
    }
    context.draft.extend(
        "[local]",
        "users",
        users,
        "local_recipient_maps, virtual_mailbox_maps, relay_recipient_maps",
    );
}

const BCC: &str =
    "copies are for the addresses that aliases lead to, and no map changes the addresses of copies";

fn addresses(context: &mut Context<'_>) {
    for (parameter, key, purpose) in [
        ("alias_maps", "aliases", Purpose::Aliases),
        ("virtual_alias_maps", "virtual", Purpose::Keys),
        ("canonical_maps", "canonical", Purpose::Keys),
        ("smtp_generic_maps", "generic", Purpose::Keys),
        ("sender_bcc_maps", "sender_bcc", Purpose::Keys),
        ("recipient_bcc_maps", "recipient_bcc", Purpose::Keys),
    ] {
        context.mapped(parameter);
        if purpose == Purpose::Aliases && !context.main.value("local_transport").starts_with("local") {
            // Only local(8) looks into aliases.
            continue;
        }
        let maps =
            if key.ends_with("_bcc") { copies(context, parameter) } else { context.maps(parameter, purpose) };
        if purpose == Purpose::Keys {
            catch_alls(context, parameter);
        }
        if !maps.is_empty() {
            let from = context.place(parameter);
            if purpose == Purpose::Aliases {
                programs_of_aliases(context, &maps);
            }
            if key == "generic" && !context.main.value("recipient_delimiter").is_empty() {
                let text = "a detail stays behind the changed address, which Postfix leaves out by default";
                context.effect(Effect::Addresses, parameter, text);
            }
            if key.ends_with("_bcc") {
                context.effect(Effect::Addresses, parameter, BCC);
            }
            context.draft.extend("[addresses]", key, maps, &from);
        }
    }
    if let Some(address) = context.given("always_bcc").filter(|address| !address.is_empty()) {
        let address = if address.contains('@') { address } else { format!("{address}@{}", context.hostname) };
        context.draft.extend("[addresses]", "bcc", [address], "always_bcc");
        if ["virtual_alias_maps", "canonical_maps"].iter().any(|name| !context.main.value(name).is_empty()) {
            context.effect(Effect::Addresses, "always_bcc", BCC);
        }
    }
    let delimiter = context.main.value("recipient_delimiter");
    context.mapped("recipient_delimiter");
    if delimiter.chars().count() > 1 {
        context.effect(
            Effect::Refused,
            "recipient_delimiter",
            "only the first character separates details: mail for users with another one is for users of that name",
        );
    }
    let delimiter: String = delimiter.chars().take(1).collect();
    let from = context.place("recipient_delimiter");
    context.draft.set("[addresses]", "separator", delimiter, &from);
    let masquerade = context.main.value("masquerade_domains");
    if !masquerade.is_empty() {
        let (plain, others): (Vec<String>, Vec<String>) =
            items(&masquerade).into_iter().partition(|item| !item.starts_with('!'));
        context.note("masquerade_domains", "the reverse-path is changed, the header is not");
        if !others.is_empty() {
            context.effect(
                Effect::Addresses,
                "masquerade_domains",
                format!("no domain can be left out: {}", others.join(", ")),
            );
        }
        context.draft.extend(
            "[addresses]",
            "masquerade",
            plain.iter().map(|name| name.to_lowercase()),
            "masquerade_domains",
        );
    }
    for parameter in ["sender_canonical_maps", "recipient_canonical_maps"] {
        if !context.main.value(parameter).is_empty() {
            context.effect(Effect::Addresses, parameter, "it is left out: addresses.canonical changes senders and recipients; use it if both may change, or addresses.virtual for recipients");
        }
    }
}

/// Returns the maps of copies. Names without a domain are at this host, and a map of copies has whole addresses.
fn copies(context: &mut Context<'_>, parameter: &str) -> Vec<String> {
    let mut maps = Vec::new();
    for item in items(&context.main.value(parameter)) {
        let entries = Table::parse(&item).and_then(|table| table.entries(context.files).ok());
        let entries = entries.filter(|all| all.iter().any(|entry| !entry.value.contains('@')));
        let Some(entries) = entries else {
            maps.extend(context.map(parameter, &item, Purpose::Keys));
            continue;
        };
        let line = |TableEntry { key, value }: TableEntry| match value.contains('@') {
            true => format!("{key} {value}\n"),
            false => format!("{key} {value}@{}\n", context.hostname),
        };
        let (name, text) =
            (format!("copies-{}", context.draft.files.len()), entries.into_iter().map(line).collect());
        context.draft.add_file(&name, text, false);
        maps.push(format!("text:{name}"));
    }
    maps
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
            context.effect(Effect::Refused, "alias_maps", format!("{path} has programs or files: mail for them waits until addresses.programs and addresses.files name them"));
        }
    }
}
