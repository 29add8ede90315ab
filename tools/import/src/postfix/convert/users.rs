//! The recipients that exist: `local.users`, and rules for domains whose users it cannot name.

use super::{
    super::{
        main_cf::items,
        pattern::Pattern,
        table::{Purpose, Table, pattern_entries},
    },
    Context,
    addresses::{domain_keys, no_domain, separator, tell_of_details},
    domains::Domains,
    routes::{Hop, hop},
    targets,
};
use crate::{
    decision::LISTENERS,
    draft::{Section, Value},
    places::UNLISTED_USERS,
    report::Effect,
};
use mail::Domain;
use std::collections::HashSet;

/// Which addresses exist in some domains.
#[derive(Debug, PartialEq)]
pub(super) enum Recipients {
    /// Every address exists.
    Any,
    /// Names, the keys of maps, and every address of some domains.
    Listed { maps: Vec<String>, names: Vec<String>, whole_domains: Vec<String> },
}

/// Domains of a parameter.
pub(super) struct Class {
    pub(super) parameter: &'static str,
    pub(super) domains: Domains,
    pub(super) recipients: Recipients,
    /// The parameter with their recipients, if `local.users` takes more of them than Postfix.
    listed_by: Option<&'static str>,
}

impl Class {
    /// Returns domains without recipients of their own.
    pub(super) fn empty(parameter: &'static str, domains: Domains) -> Self {
        let recipients =
            Recipients::Listed { maps: Vec::new(), names: Vec::new(), whole_domains: Vec::new() };
        Self { parameter, domains, recipients, listed_by: None }
    }

    /// Returns domains whose recipients a rule refuses unless Postfix has them.
    fn by_rule(parameter: &'static str, domains: Domains, listed_by: &'static str) -> Self {
        Self { parameter, domains, recipients: Recipients::Any, listed_by: Some(listed_by) }
    }

    /// Returns whether some addresses of the domains do not exist.
    pub(super) fn is_listed(&self) -> bool {
        self.recipients != Recipients::Any || self.listed_by.is_some()
    }

    fn is_own(&self) -> bool {
        self.parameter == "mydestination"
    }

    /// Returns the local domains of this machine with their users. With `is_local`, their mail comes to local(8).
    pub(super) fn own(context: &mut Context<'_>, domains: Domains, is_local: bool) -> Self {
        let parameter = "local_recipient_maps";
        context.mapped(parameter);
        let value = context.main.value(parameter);
        if domains.is_empty() {
            return Self::empty("mydestination", domains);
        }
        let is_local = is_local && hop(context, &context.main.value("local_transport")) == Ok(Hop::Local);
        if !is_local || !has_accounts_only(context) {
            return Self::of("mydestination", domains, context, parameter);
        }
        // Others are returned by local(8), whatever the list says.
        let names = context.files.users();
        let mut class = Self::empty("mydestination", domains);
        if names.is_empty() {
            let text = "cannot read the accounts of this machine: mail for every name is accepted until you set local.users";
            context.effect(Effect::Taken, parameter, text);
            return Self { recipients: Recipients::Any, ..class };
        }
        let listed: Vec<String> = items(&value).iter().map(|item| plain(item)).collect();
        let mut all = items(&context.main.value("alias_maps"));
        all.push(ACCOUNTS.to_owned());
        // Unknown names go elsewhere only if the list has them.
        let has_all = all.iter().all(|one| listed.contains(&plain(one)))
            && context.main.value("luser_relay").is_empty();
        if !has_all && !listed.is_empty() {
            class.listed_by = Some(parameter);
            if known(context, &class).is_none() {
                class.listed_by = None;
                let text = "mail for all accounts and aliases of this machine is accepted, even if the list does not have them";
                context.effect(Effect::Taken, parameter, text);
            }
        }
        Self {
            recipients: Recipients::Listed { maps: Vec::new(), names, whole_domains: Vec::new() },
            ..class
        }
    }

    /// Returns domains whose recipients are in the tables of a parameter.
    pub(super) fn of(
        parameter: &'static str,
        domains: Domains,
        context: &mut Context<'_>,
        listed_by: &'static str,
    ) -> Self {
        context.mapped(listed_by);
        if domains.is_empty() {
            return Self::empty(parameter, domains);
        }
        let value = items(&context.main.value(listed_by));
        let tables: Vec<Table> = value.iter().filter_map(|item| Table::parse(item)).collect();
        // A table with each key is for these domains only, and `local.users` is for all.
        if tables.is_empty() || tables.iter().any(|table| table.kind == "static") {
            return Self { recipients: Recipients::Any, ..Self::empty(parameter, domains) };
        }
        // `local.users` is asked for aliases' targets, and for names without a domain in all local domains.
        let class = Self::by_rule(parameter, domains, listed_by);
        let is_wide = class.is_own() || tables.iter().any(Table::has_patterns);
        if is_wide && known(context, &class).is_some() {
            return class;
        }
        if class.is_own() {
            let text = "names without a domain in this list are accepted in all local domains, and names that an alias leads to must be listed, too";
            context.effect(Effect::Taken, listed_by, text);
        } else if is_wide {
            context.effect(Effect::Taken, listed_by, "its patterns apply to addresses in all local domains");
        }
        tell_of_targets(context, &class, listed_by);
        if tables.iter().any(Table::is_server) {
            let text = "Postrider looks up full addresses only: addresses that exist only by a key such as @example.com are refused";
            context.effect(Effect::Refused, listed_by, text);
        }
        let maps = context.maps(listed_by, Purpose::Keys);
        if separator(context).is_some() {
            let patterns =
                value.iter().filter(|item| Table::parse(item).is_some_and(|one| one.has_patterns()));
            patterns.for_each(|item| tell_of_details(context, listed_by, item));
        }
        let whole_domains = whole_domains(context, listed_by);
        Self {
            recipients: Recipients::Listed { maps, names: Vec::new(), whole_domains },
            listed_by: None,
            ..class
        }
    }
}

/// The accounts of the machine, as Postfix names them.
const ACCOUNTS: &str = "unix:passwd.byname";

/// Recipients that a rule refuses: those in some domains that are not known.
#[derive(Debug)]
pub(super) struct Unlisted {
    parameter: &'static str,
    domains: Vec<String>,
    known: Vec<String>,
}

/// Tells of aliases that lead to addresses which the tables of a class do not have: Postfix asks for what clients name only.
fn tell_of_targets(context: &mut Context<'_>, class: &Class, listed_by: &str) {
    let keys: Option<HashSet<String>> =
        context.entries(listed_by).map(|all| all.into_iter().map(|entry| entry.key.to_lowercase()).collect());
    let names = &class.domains.names;
    let is_unknown = |target: &str| {
        let Some((_, domain)) = target.rsplit_once('@').filter(|(name, _)| *name != "postmaster") else {
            return false;
        };
        let is_here = !class.domains.maps.is_empty() || names.iter().any(|name| name == domain);
        let is_listed =
            |keys: &HashSet<String>| keys.contains(target) || keys.contains(&format!("@{domain}"));
        is_here && !keys.as_ref().is_some_and(is_listed)
    };
    let what = match targets::of(context) {
        Some(targets) => match targets.find(is_unknown) {
            Some(target) => format!("{target}, which an alias leads to"),
            None => return,
        },
        None => "every address that an alias leads to".to_owned(),
    };
    let text = format!("this list must also have {what}; otherwise, mail for the alias is refused");
    context.effect(Effect::Refused, listed_by, text);
}

/// Returns a table without the prefix that is for Postfix's own processes.
fn plain(item: &str) -> String {
    item.strip_prefix("proxy:").unwrap_or(item).to_owned()
}

/// Returns whether local(8) has mailboxes for the accounts of the machine only.
fn has_accounts_only(context: &Context<'_>) -> bool {
    let others =
        ["mailbox_transport", "mailbox_transport_maps", "fallback_transport", "fallback_transport_maps"];
    others.iter().all(|name| context.main.value(name).is_empty())
}

/// Returns the recipients of a class that Postfix takes from clients, as patterns of a rule; `None` if they are not all known here.
fn known(context: &mut Context<'_>, class: &Class) -> Option<Vec<String>> {
    let own = class.listed_by.or(match class.parameter {
        "relay_domains" => Some("relay_recipient_maps"),
        "virtual_mailbox_domains" => Some("virtual_mailbox_maps"),
        _ => None,
    });
    let others = ["virtual_alias_maps", "canonical_maps", "recipient_canonical_maps"];
    let of = |parameter| items(&context.main.value(parameter)).into_iter().map(move |item| (parameter, item));
    let mut tables: Vec<(&str, String)> = own.into_iter().chain(others).flat_map(of).collect();
    let aliases: Vec<String> = of("alias_maps").map(|(_, item)| plain(&item)).collect();
    if own.is_none() && matches!(&class.recipients, Recipients::Listed { names, .. } if !names.is_empty()) {
        // The users of the machine.
        tables.push(("local_recipient_maps", ACCOUNTS.to_owned()));
        tables.extend(of("alias_maps"));
    }
    let mut found = vec!["postmaster@*".to_owned()];
    for (parameter, item) in tables {
        let item = plain(&item);
        match as_condition(context, &item, class.is_own(), aliases.contains(&item)) {
            Some(patterns) => {
                let has_patterns = patterns.iter().any(|one| one.starts_with("regex:"));
                if own == Some(parameter) && has_patterns && separator(context).is_some() {
                    tell_of_details(context, parameter, &item);
                }
                found.extend(patterns);
            }
            // The default names a file that need not be there.
            None if context.main.explicit(parameter).is_none() && item != ACCOUNTS => {}
            None => return None,
        }
    }
    Some(found)
}

/// Returns the accounts and aliases of the machine, and its virtual addresses, as patterns of recipients.
pub(super) fn of_machine(context: &mut Context<'_>) -> Vec<String> {
    let mut found = vec!["postmaster@*".to_owned()];
    let tables = ["alias_maps", "virtual_alias_maps"].map(|name| items(&context.main.value(name))).concat();
    for item in std::iter::once(ACCOUNTS.to_owned()).chain(tables) {
        // A server is asked for whole addresses.
        let patterns = as_condition(context, &plain(&item), true, false);
        found.extend(patterns.unwrap_or_else(|| context.reference(&item).ok().into_iter().collect()));
    }
    found
}

/// Returns a table as patterns of recipients. Names without a domain are for the domains of this machine only.
pub(super) fn as_condition(
    context: &mut Context<'_>,
    item: &str,
    is_own: bool,
    is_aliases: bool,
) -> Option<Vec<String>> {
    let table = Table::parse(item)?;
    let keys: Vec<String> = match &*table.kind {
        "unix" if table.name == "passwd.byname" => {
            Some(context.files.users()).filter(|users| !users.is_empty())?
        }
        "static" => return Some(vec!["*".to_owned()]),
        _ if table.has_patterns() => return context.reference(item).ok().map(|map| vec![map]),
        _ => table.entries(context.files).ok()?.into_iter().map(|entry| entry.key).collect(),
    };
    let is_whole = |key: &String| key.contains('@') && !key.starts_with('@');
    if table.is_text() && !is_aliases && keys.iter().all(is_whole) {
        return context.reference(item).ok().map(|map| vec![map]);
    }
    let pattern = |key: String| match key.strip_prefix('@') {
        Some(domain) => Some(domain.to_lowercase()),
        None if key.contains('@') => Some(key.to_lowercase()),
        None => is_own.then(|| format!("{}@", key.trim_end_matches(':').to_lowercase())),
    };
    let mut known = HashSet::new();
    let patterns =
        keys.into_iter().filter_map(pattern).filter(|one| !one.is_empty() && known.insert(one.clone()));
    let text: String = patterns.map(|pattern| format!("{pattern} x\n")).collect();
    if text.is_empty() {
        return Some(Vec::new());
    }
    Some(vec![format!("text:{}", context.draft.add_numbered("recipients", text))])
}

/// Refuses recipients that another class does not have, of domains whose mail local(8) gets.
pub(super) fn moved(context: &mut Context<'_>, moved: [Vec<String>; 2]) {
    let of = [("relay_domains", "relay_recipient_maps"), ("virtual_mailbox_domains", "virtual_mailbox_maps")];
    for (names, (parameter, listed_by)) in moved.into_iter().zip(of) {
        if names.is_empty() || context.main.value(listed_by).is_empty() {
            continue;
        }
        let domains = Domains { names, ..Domains::default() };
        let class = Class::by_rule(parameter, domains, listed_by);
        match known(context, &class) {
            Some(known) => {
                let domains = class.domains.patterns();
                context.unlisted.push(Unlisted { parameter, domains, known });
            }
            None => {
                context.effect(
                    Effect::Taken,
                    listed_by,
                    "mail for accounts and aliases of this machine is accepted in these domains, too",
                );
            }
        }
    }
}

/// Refuses recipients of `relocated_maps`, with their new addresses.
fn relocated(context: &mut Context<'_>) {
    let parameter = "relocated_maps";
    context.mapped(parameter);
    let tables = items(&context.main.value(parameter));
    if tables.is_empty() {
        return;
    }
    let Some(but) = known(context, &Class::empty("mydestination", Domains::default())) else {
        let text = "left out, because the import cannot read which addresses are rewritten first: write a [[rule]] with `reject`";
        return context.effect(Effect::Taken, parameter, text);
    };
    let targets = targets::of(context);
    let (mut maps, mut is_exact) = (Vec::new(), targets.is_some());
    let mut lines: Vec<(String, String)> = Vec::new();
    for item in &tables {
        let table = Table::parse(item);
        match table.as_ref().map(|table| table.entries(context.files)) {
            Some(Ok(entries)) => {
                for entry in entries {
                    let key = entry.key.to_lowercase();
                    is_exact &= targets.as_ref().is_some_and(|targets| !targets.lead_to(&key));
                    let keys = match key.split_once('@') {
                        Some(("", domain)) => vec![domain.to_owned()],
                        Some(_) => vec![key],
                        None => {
                            context.own_domains().iter().map(|domain| format!("{key}@{domain}")).collect()
                        }
                    };
                    // The first table that has a key counts.
                    for key in keys {
                        if lines.iter().all(|(known, _)| *known != key) {
                            lines.push((key, entry.value.clone()));
                        }
                    }
                }
            }
            _ => {
                is_exact = false;
                let why = "it cannot be read";
                maps.push(context.reference(item).unwrap_or_else(|_| context.waiting(parameter, item, why)));
            }
        }
    }
    if !is_exact {
        let text = "mail that aliases send to these addresses is accepted";
        context.effect(Effect::Taken, parameter, text);
    }
    if !lines.is_empty() {
        let text = lines.iter().map(|(key, address)| format!("{key} {address}\n")).collect();
        maps.insert(0, format!("text:{}", context.draft.add_numbered("relocated", text)));
    }
    let rule = Section::new("[[rule]]", parameter).with("for", "all").with("to", maps);
    let rule = rule.with("unless", Value::Table(vec![("to", but)]));
    context.draft.push(rule.with("reject", "550 5.1.6 User has moved to {text}"));
}

/// Refuses recipients that Postfix does not have, where `local.users` has more. It is the last of the rules, as in Postfix.
pub(super) fn unlisted(context: &mut Context<'_>) {
    relocated(context);
    for Unlisted { parameter, domains, known } in std::mem::take(&mut context.unlisted) {
        let rule = Section::new("[[rule]]", format!("{parameter}: smtpd_reject_unlisted_recipient"));
        let rule = rule.with("for", "all").with("listener", LISTENERS.map(str::to_owned).to_vec());
        let rule = rule.with("to", domains).with("unless", Value::Table(vec![("to", known)]));
        context.draft.push(rule.with("reject", "550 5.1.1 User unknown"));
    }
}

/// Returns the domains whose addresses all exist by keys such as `@example.com`: `local.users` is not asked for these.
fn whole_domains(context: &mut Context<'_>, parameter: &str) -> Vec<String> {
    let mut domains = Vec::new();
    for (place, key) in domain_keys(context, parameter) {
        match Domain::parse(&key[1..]) {
            Ok(domain) => {
                let domain = domain.key().into_owned();
                if domains.is_empty() {
                    context.note(parameter, format!("`{key}` ({place}) and similar keys are patterns in the file local-domains-with-all-users, because only full addresses are looked up in local.users"));
                }
                domains.push(domain);
            }
            Err(_) => no_domain(
                context,
                parameter,
                &place,
                &key,
                "the line `/@example\\.com$/ x` in a file for local.users (regex:FILE)",
            ),
        }
    }
    domains
}

/// Returns the patterns of all addresses in the domains of a map.
fn whole_map(context: &Context<'_>, map: &str) -> Option<String> {
    let table = Table { kind: "regexp".to_owned(), name: map.strip_prefix("regex:")?.to_owned() };
    let entries = pattern_entries(&table, context.files).ok()?;
    let line = |pattern: Pattern| Some(format!("{} x\n", pattern.of_addresses()?.text()));
    entries.iter().map(|entry| line(Pattern::parse(&entry.key)?)).collect()
}

/// Writes `local.users`. It is one list for all local domains, so users of some domains only stand in a file, with their
/// domains. What it cannot tell apart, rules refuse.
pub(super) fn write(context: &mut Context<'_>, mut classes: Vec<Class>) {
    let has_all_users = classes.iter().all(|class| class.recipients == Recipients::Any);
    let open = classes.iter().find_map(|class| {
        let is_open = |map: &&String| whole_map(context, map).is_none();
        let mut maps = class.domains.maps.iter().filter(|_| class.recipients == Recipients::Any);
        maps.find(is_open).cloned()
    });
    let has_names = |class: &Class| {
        let names = matches!(&class.recipients, Recipients::Listed { names, .. } if !names.is_empty());
        names && !class.domains.maps.is_empty()
    };
    let is_wide = open.is_some() || classes.iter().any(has_names);
    for class in &mut classes {
        let is_listed = class.recipients != Recipients::Any;
        let must_know = class.listed_by.is_some() || is_wide && is_listed && !has_names(class);
        let Some(known) = must_know.then(|| known(context, class)) else { continue };
        match known {
            Some(mut known) => {
                let (parameter, domains) = (class.parameter, class.domains.patterns());
                known.extend(
                    class.domains.excluded.iter().flat_map(|name| [name.clone(), format!("*.{name}")]),
                );
                context.unlisted.push(Unlisted { parameter, domains, known });
            }
            None => {
                let text = "users of other local domains are accepted in these domains, too";
                context.effect(Effect::Taken, class.parameter, text);
            }
        }
    }
    if let Some(map) = open.as_ref().filter(|_| !has_all_users) {
        let text = format!(
            "every address in the domains of {map} exists, which local.users cannot express for a map: it is left out, and mail that aliases send to users that do not exist is delivered to mailboxes"
        );
        return context.effect(Effect::Taken, "local_recipient_maps", text);
    }
    if !has_all_users {
        users(context, &classes);
    }
}

fn users(context: &mut Context<'_>, classes: &[Class]) {
    let (mut users, mut file, mut patterns) = (vec!["postmaster".to_owned()], String::new(), String::new());
    for class in classes {
        let mut add = |domain: String| patterns.push_str(&format!("/@{domain}$/ x\n"));
        match &class.recipients {
            Recipients::Any => {
                class.domains.expressions().for_each(add);
                patterns.extend(class.domains.maps.iter().filter_map(|map| whole_map(context, map)));
            }
            Recipients::Listed { maps, names, whole_domains } => {
                whole_domains.iter().for_each(|domain| add(domain.replace('.', "\\.")));
                users.extend(maps.iter().cloned());
                if classes.len() == 1 && !names.is_empty() && *names == context.files.users() {
                    users.push(context.files.user_map().to_owned());
                    continue;
                }
                for domain in &class.domains.names {
                    names.iter().for_each(|name| file.push_str(&format!("{name}@{domain} x\n")));
                }
                if !class.domains.maps.is_empty() {
                    names.iter().for_each(|name| file.push_str(&format!("{name} x\n")));
                }
            }
        }
    }
    if !file.is_empty() {
        context.note(
            "local_recipient_maps",
            "the file local-users lists the users of this machine as of the import; add new users there",
        );
        context.draft.add_file(
            "local-users",
            format!("# Users that exist in some local domains only\n{file}"),
            false,
        );
        if context.files.has_further_users() {
            context.note("local_recipient_maps", UNLISTED_USERS);
        }
        users.push("text:local-users".to_owned());
    }
    if !patterns.is_empty() {
        let text = format!("# Local domains in which every address exists\n{patterns}");
        context.draft.add_file("local-domains-with-all-users", text, false);
        users.push("regex:local-domains-with-all-users".to_owned());
    }
    let from = "local_recipient_maps, virtual_mailbox_maps, relay_recipient_maps";
    context.draft.extend("[local]", "users", users, from);
}
