//! Restriction lists: who may relay, the kind of a listener, and rules.

use super::{
    access::{Action, Group, groups, network, network_text, subject},
    convert::{Door, RestrictionContext as Context},
    main_cf::{MainCf, items},
    table::Table,
};
use crate::{
    decision::{Clients, Condition, Decision, Open},
    draft::{Section, plain_word},
    report::Effect,
};
use ipnet::IpNet;

/// Lists that are read at RCPT, in the order of Postfix 3.6 and newer.
const LISTS: [&str; 5] = [
    "smtpd_client_restrictions",
    "smtpd_helo_restrictions",
    "smtpd_sender_restrictions",
    "smtpd_relay_restrictions",
    "smtpd_recipient_restrictions",
];
/// More patterns stand in a file.
const PATTERNS_MAX: usize = 50;
/// Lists that are read when the content comes.
const LATER: [&str; 2] = ["smtpd_data_restrictions", "smtpd_end_of_data_restrictions"];

/// Lists within lists that are followed. Postfix refuses to nest them without an end.
const NESTED_MAX: usize = 10;

/// One restriction of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Step {
    word: String,
    argument: String,
}

/// The restriction lists that a listener uses.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Lists {
    lists: Vec<(&'static str, Vec<Step>)>,
    later: Vec<(&'static str, Vec<Step>)>,
}

/// A client, as far as the lists tell clients apart before they look into tables.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Client {
    pub(super) is_inside: bool,
    pub(super) has_login: bool,
    /// For tables of clients.
    pub(super) network: Option<IpNet>,
}

/// A client from elsewhere that has not logged in.
pub(super) const STRANGER: Client = Client { is_inside: false, has_login: false, network: None };
/// Connects from `mynetworks`.
pub(super) const INSIDE: Client = Client { is_inside: true, ..STRANGER };
/// Has logged in.
pub(super) const LOGIN: Client = Client { has_login: true, ..STRANGER };

/// Whether a client may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum May {
    No,
    /// For the mail that a table names.
    Some,
    Yes,
}

impl Lists {
    /// Reads the lists, with classes in their places.
    pub(super) fn read(main: &MainCf) -> Self {
        let of = |name: &&'static str| (*name, steps(main, &main.value(name), name, 0));
        let mut lists: Vec<_> = LISTS.iter().map(of).collect();
        let level = main.value("compatibility_level");
        let mut numbers = level.split('.').map(|number| number.parse::<u32>().unwrap_or(0));
        let level = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        let is_relay_first = match &*main.value("smtpd_relay_before_recipient_restrictions") {
            "" => level >= (3, 6),
            value => value == "yes",
        };
        if !is_relay_first {
            lists.swap(3, 4);
        }
        if level < (1, 0)
            && main.explicit("smtpd_relay_restrictions").is_none()
            && lists[3..].iter().any(|(name, list)| *name == LISTS[4] && !list.is_empty())
        {
            // Without a level, the default of old versions counts: no such list.
            lists.retain(|(name, _)| *name != LISTS[3]);
        }
        Self { lists, later: LATER.iter().map(of).collect() }
    }

    /// Returns whether a client may send to local domains, or to others.
    pub(super) fn may(&self, context: &Context<'_>, client: Client, is_local: bool) -> May {
        let verdicts =
            self.lists.iter().map(|(name, list)| passes(context, (name, list), 0, client, is_local));
        verdicts.min().unwrap_or(May::Yes)
    }

    /// Returns whether the owners of sender addresses are checked.
    pub(super) fn checks_senders(&self) -> bool {
        let mut steps = self.lists.iter().flat_map(|(_, list)| list);
        steps.any(|step| {
            step.word.ends_with("sender_login_mismatch") && !step.word.contains("unauthenticated")
        })
    }

    /// Returns the networks whose clients may send everywhere by a table of clients.
    pub(super) fn relaying(&self, context: &Context<'_>) -> Vec<String> {
        self.of_tables(context, May::Yes)
    }

    /// Returns whether some clients of the networks in tables may send everywhere.
    pub(super) fn relays_some(&self, context: &Context<'_>) -> bool {
        !self.of_tables(context, May::Some).is_empty()
    }

    fn of_tables(&self, context: &Context<'_>, wanted: May) -> Vec<String> {
        let steps =
            self.lists.iter().flat_map(|(_, list)| list).filter(|step| step.word == "check_client_access");
        let mut found = Vec::new();
        for step in steps {
            for group in of_table(context, step).unwrap_or_default() {
                let networks = group.patterns.iter().filter_map(|text| network(text));
                for network in networks.filter(|_| group.key == "client" && group.action == Action::Permit) {
                    let is_inside = context.has_network(network);
                    let client = Client { network: Some(network), is_inside, ..STRANGER };
                    let text = network_text(network);
                    if self.may(context, client, false) == wanted && !found.contains(&text) {
                        found.push(text);
                    }
                }
            }
        }
        found
    }
}

/// Cuts a list into restrictions.
fn steps(main: &MainCf, value: &str, list: &str, depth: usize) -> Vec<Step> {
    let classes = items(&main.value("smtpd_restriction_classes"));
    let mut words = items(value).into_iter();
    let mut steps = Vec::new();
    while let Some(word) = words.next() {
        if classes.contains(&word) && depth < NESTED_MAX {
            steps.extend(self::steps(main, &main.value(&word), list, depth + 1));
            continue;
        }
        // A table alone is for what the list is about.
        if word.contains(':') && Table::parse(&word).is_some() {
            let subject = list.trim_start_matches("smtpd_").trim_end_matches("_restrictions");
            steps.push(Step { word: format!("check_{subject}_access"), argument: word });
            continue;
        }
        let word = word.to_ascii_lowercase();
        let has_argument = word.starts_with("check_") && word != "check_recipient_maps"
            || word.starts_with("reject_rhsbl_")
            || matches!(
                &*word,
                "reject_rbl_client" | "permit_dnswl_client" | "permit_rhswl_client" | "sleep"
            );
        if word == "warn_if_reject" {
            // What would be refused is told in the log only.
            if words.next().is_some_and(|next| next.starts_with("check_") || next.contains("bl_")) {
                words.next();
            }
            continue;
        }
        let argument = if has_argument { words.next().unwrap_or_default() } else { String::new() };
        steps.push(Step { word, argument });
    }
    steps
}

/// Returns whether a list lets a client pass.
fn passes(
    context: &Context<'_>,
    (name, list): (&str, &[Step]),
    depth: usize,
    client: Client,
    is_local: bool,
) -> May {
    let mut refused = May::No;
    for (at, step) in list.iter().enumerate() {
        let is_permitted = match &*step.word {
            "permit" => true,
            "permit_mynetworks" => client.is_inside,
            "permit_sasl_authenticated" => client.has_login,
            "permit_auth_destination" => is_local,
            "reject_unauth_destination" | "defer_unauth_destination" if !is_local => return refused,
            "reject" | "defer" => return refused,
            word if word.starts_with("permit_") => {
                refused = May::Some;
                false
            }
            word if word.starts_with("check_") && word.ends_with("_access") => {
                let groups = of_table(context, step).unwrap_or_default();
                let found = client.network.filter(|_| word == "check_client_access").and_then(|wanted| {
                    let has = |group: &&Group| {
                        group.key == "client"
                            && group
                                .patterns
                                .iter()
                                .filter_map(|text| network(text))
                                .any(|other| other.contains(&wanted))
                    };
                    groups.iter().find(has)
                });
                let found = found.or_else(|| groups.iter().find(|group| group.patterns.is_empty()));
                match found.map(|group| &group.action) {
                    Some(Action::Permit) => true,
                    // A list for all mail stands in the place of its table.
                    Some(Action::List(value))
                        if depth < NESTED_MAX && found.is_some_and(|group| group.patterns.is_empty()) =>
                    {
                        let mut rest = steps(&context.main, value, name, 0);
                        rest.extend_from_slice(&list[at + 1..]);
                        return passes(context, (name, &rest), depth + 1, client, is_local).max(refused);
                    }
                    Some(Action::Verdict("reject" | "defer", _)) => return refused,
                    Some(Action::List(_)) => {
                        refused = May::Some;
                        false
                    }
                    Some(_) => false,
                    None => {
                        if groups.iter().any(|group| {
                            match group.action {
                                // Networks of clients are asked for by themselves.
                                Action::Permit => group.key != "client",
                                Action::List(_) => true,
                                _ => false,
                            }
                        }) {
                            refused = May::Some;
                        }
                        false
                    }
                }
            }
            _ => false,
        };
        if is_permitted {
            return May::Yes;
        }
    }
    May::Yes
}

/// Translates a restriction that asks a table.
fn of_table(context: &Context<'_>, step: &Step) -> Result<Vec<Group>, String> {
    let table = Table::parse(&step.argument).ok_or_else(|| format!("{} is not a table", step.argument))?;
    groups(context, &step.word, &table)
}

/// Writes the rules of all listeners.
pub(super) fn write(context: &mut Context<'_>) {
    for list in LISTS
        .iter()
        .chain(&LATER)
        .chain(&["smtpd_restriction_classes", "smtpd_relay_before_recipient_restrictions"])
    {
        context.mapped(list);
    }
    for class in items(&context.main.value("smtpd_restriction_classes")) {
        context.mapped(&class);
    }
    if context.main.explicit("smtpd_etrn_restrictions").is_some() {
        context.note("smtpd_etrn_restrictions", "extensions.etrn says who may flush the queue for a domain");
    }
    let has_logins = context.draft.has("[auth]");
    let networks = context.networks.clone();
    let mut doors = context.doors.clone();
    doors.dedup_by(|one, other| one.kind == other.kind && one.lists == other.lists);
    let kinds: Vec<&str> = doors.iter().map(|door| door.kind).collect();
    let mut written: Vec<(&str, Lists)> = Vec::new();
    for Door { kind, lists, .. } in &doors {
        if written.iter().any(|(_, other)| other == lists) {
            continue;
        }
        let same: Vec<&str> =
            doors.iter().filter(|other| other.lists == *lists).map(|other| other.kind).collect();
        if written.iter().any(|(other, _)| same.contains(other)) {
            context.effect(Effect::Refused, LISTS[4], format!("several listeners of kind {kind} have their own restriction lists: the rules of all of them apply to each"));
        }
        let is_for_all = same.len() == kinds.len();
        let listeners =
            if is_for_all { Vec::new() } else { same.iter().map(|kind| (*kind).to_owned()).collect() };
        let (is_login_only, is_relay) = (kind.starts_with("submission"), *kind == "relay");
        let clients = Clients {
            networks: networks.clone(),
            are_relayed: context.are_relayed,
            has_logins,
            listeners,
            stage: None,
        };
        let suffix = if written.is_empty() { String::new() } else { format!("-{kind}") };
        for (stage, all) in [(None, &lists.lists), (Some("content"), &lists.later)] {
            let mut decision = Decision::new(Clients { stage, ..clients.clone() });
            for (name, list) in all {
                decision.tag = format!(
                    "{}{suffix}",
                    name.trim_start_matches("smtpd_").trim_end_matches("_restrictions").replace('_', "-")
                );
                // Where all have to log in, those in mynetworks have no other way either.
                let has_networks = !is_login_only || context.are_relayed;
                // A listener of the kind relay has strangers where a table lets some of them relay.
                let has_strangers = !(is_login_only || is_relay && context.are_relayed);
                let mut open = Open::new(has_networks, true, has_strangers);
                walk(context, &mut decision, name, list, &mut open);
            }
            decision.finish().into_iter().for_each(|rule| context.draft.push(rule));
        }
        written.push((kind, lists.clone()));
    }
}

/// Adds the rules of a list. Returns at its end, or where it refuses everything.
fn walk(
    context: &mut Context<'_>,
    decision: &mut Decision,
    list: &'static str,
    steps: &[Step],
    open: &mut Open,
) {
    for step in steps {
        if open.is_over() {
            return;
        }
        if one(context, decision, list, step, open) {
            return;
        }
    }
}

/// Returns a file with the names in EHLO that Postfix takes for a host name: one label of them is not a number.
fn host_names(is_full: bool) -> String {
    let label = "[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?";
    let word = "([0-9]*[a-z_]([a-z0-9_-]*[a-z0-9_])?|[0-9]+-[a-z0-9_-]*[a-z0-9_])";
    let name =
        |before: &str, behind: &str| format!("/^({label}\\.){before}{word}(\\.{label}){behind}\\.?$/ x\n");
    if is_full { format!("/^\\[.*\\]$/ x\n{}{}", name("+", "*"), name("*", "+")) } else { name("*", "*") }
}

/// Adds the rules of one restriction. Returns whether nothing is left to the restrictions behind it.
#[allow(clippy::too_many_lines)] // one restriction after the other
fn one(
    context: &mut Context<'_>,
    decision: &mut Decision,
    list: &'static str,
    step: &Step,
    open: &mut Open,
) -> bool {
    let word = &*step.word;
    let comment = format!("{list}: {word} {}", step.argument);
    let comment = comment.trim_end();
    let mut refuse = |context: &mut Context<'_>,
                      file: Option<(&str, &str)>,
                      only: &[Condition],
                      excluded: &[Condition],
                      reply: &str| {
        if let Some((name, text)) = file {
            context.draft.add_file(name, text.to_owned(), false);
        }
        decision.add(
            open,
            comment,
            only,
            excluded,
            if reply.starts_with('4') { "defer" } else { "reject" },
            reply,
        );
    };
    match word {
        "permit" => return true,
        "permit_mynetworks" => open.networks = false,
        "permit_sasl_authenticated" => open.logins = false,
        "permit_auth_destination" => {
            // Strangers send to these domains only, unless a table lets some of them relay.
            open.strangers &= context.do_others_relay;
            open.networks &= context.do_networks_relay;
            open.except(("to", context.destinations.clone()));
        }
        // Postrider asks first whether a client may send to the domain: the rule is for those that may.
        "reject_unauth_destination" | "defer_unauth_destination" => {
            let trusted = if decision.clients.are_relayed { open.trusted() } else { open.clone() };
            let is_any = decision.clients.has_logins && open.logins || !context.draft.list("[relay]", "networks").is_empty();
            if is_any {
                let own = [("to", context.destinations.clone())];
                let (key, reply) = if word.starts_with('r') { ("reject", "554 5.7.1") } else { ("defer", "454 4.7.1") };
                decision.add(&trusted, comment, &[], &own, key, format!("{reply} Relay access denied"));
            }
        }
        // Its user is looked up behind the rules.
        "reject_unlisted_recipient" | "check_recipient_maps" => {}
        "reject_unauth_pipelining" | "reject_multi_recipient_bounce" => {}
        "reject" => {
            refuse(context, None, &[], &[], "554 5.7.1 Access denied");
            return true;
        }
        "defer" => {
            refuse(context, None, &[], &[], "450 4.7.1 Access denied, try again later");
            return true;
        }
        "reject_non_fqdn_sender" | "reject_non_fqdn_recipient" => {
            let key = if word.ends_with("sender") { "from" } else { "to" };
            let file = ("no-full-domain", "/@[^.\\[]*$/ x\n");
            refuse(context, Some(file), &[(key, vec!["regex:no-full-domain".to_owned()])], &[], "504 5.5.2 Address rejected: need fully-qualified address");
        }
        "reject_invalid_helo_hostname" | "reject_invalid_hostname" => {
            let known = [("hello", vec!["regex:host-names".to_owned(), "regex:addresses".to_owned()])];
            context.draft.add_file("addresses", "/^(\\[.*\\]|[0-9]+(\\.[0-9]+){3}|[0-9a-f:]*:[0-9a-f:.]*)$/ x\n".to_owned(), false);
            refuse(context, Some(("host-names", &host_names(false))), &[], &known, "501 5.5.2 Helo command rejected: invalid name");
        }
        "reject_non_fqdn_helo_hostname" | "reject_non_fqdn_hostname" => {
            let known = [("hello", vec!["regex:full-host-names".to_owned()])];
            refuse(context, Some(("full-host-names", &host_names(true))), &[], &known, "504 5.5.2 Helo command rejected: need fully-qualified hostname");
        }
        "reject_unknown_client_hostname" | "reject_unknown_client" | "reject_unknown_reverse_client_hostname" => {
            let code = context.main.value("unknown_client_reject_code");
            let reply = if code.starts_with('5') { "550 5.7.25" } else { "450 4.7.25" };
            refuse(context, None, &[("client_name", vec!["none".to_owned()])], &[], &format!("{reply} Client host rejected: cannot find your hostname"));
            if word.contains("reverse") {
                context.effect(Effect::Refused, list, format!("{word}: the name must also resolve to the client's address"));
            }
        }
        "reject_plaintext_session" => {
            let code = context.main.value("plaintext_reject_code");
            let (key, reply) = match code.starts_with('5') {
                true => ("reject", "554 5.7.1 Session encryption is required"),
                false => ("defer", "450 4.7.1 Session encryption is required"),
            };
            if let Some(rule) = decision.rule(open, comment, &[], &[]) {
                decision.rules.push(rule.with("tls", false).with(key, reply));
            }
        }
        "reject_sender_login_mismatch" | "reject_unauthenticated_sender_login_mismatch" => {
            let value = context.main.value("smtpd_sender_login_maps");
            let maps: Vec<String> = items(&value).iter().filter_map(|item| context.reference(item).ok()).collect();
            let strangers = open.without_logins();
            if !maps.is_empty() {
                decision.add(&strangers, comment, &[("from", maps)], &[], "reject", "553 5.7.1 Sender address rejected: not logged in");
            }
        }
        // A login may use its own addresses only.
        "reject_authenticated_sender_login_mismatch" => {}
        "reject_known_sender_login_mismatch" => {
            context.effect(Effect::Refused, list, "reject_known_sender_login_mismatch: users who log in may use only their own addresses, not those that nobody owns");
        }
        "reject_unverified_recipient" => {
            context.effect(Effect::Taken, list, "reject_unverified_recipient: write `verify = true` in the [[route]] of these domains");
        }
        "sleep" => context.note(list, format!("sleep {}: see greeting_delay in [[listen]]", step.argument)),
        "check_policy_service" => policy_service(context, decision, list, &step.argument, open),
        check if subject(check).is_some() => return access(context, decision, list, step, open),
        permit if permit.starts_with("permit_") => context.effect(
            Effect::Refused,
            list,
            format!("{permit} {}: only clients in relay.networks and those that log in may relay; the restrictions after it apply to the clients that it permits, too", step.argument),
        ),
        "reject_rbl_client" | "reject_rhsbl_client" | "reject_rhsbl_helo" | "reject_rhsbl_sender" => {
            let (key, what) = match word {
                "reject_rbl_client" => ("dns_list", "Client host [{client}]"),
                "reject_rhsbl_client" => ("client_name_dns_list", "Client host [{client}]"),
                "reject_rhsbl_helo" => ("hello_dns_list", "Helo command [{hello}]"),
                _ => ("from_dns_list", "Sender address [{from}]"),
            };
            match dns_lists(&step.argument) {
                Some(lists) => {
                    let reply = format!("554 5.7.1 Service unavailable; {what} blocked using {{text}}");
                    decision.add(open, comment, &[(key, lists)], &[], "reject", reply);
                }
                None => context.effect(
                    Effect::Taken,
                    list,
                    format!("{word} {}: its answers are not a single range: write {key} = [\"ZONE=127.0.0.2-11\"] in a [[rule]]", step.argument),
                ),
            }
        }
        _ if word.contains("bl_") => context.effect(
            Effect::Taken,
            list,
            format!("{word} {}: DNS lists are looked up for clients, EHLO names and senders; for others, use a policy server ([policy_service.NAME], `ask` in [[rule]])", step.argument),
        ),
        _ => context.effect(Effect::Taken, list, format!("{word} has no counterpart; see docs/rules.md")),
    }
    false
}

/// Returns the lists of `ZONE` or `ZONE=127.0.0.[2..11;14]`: one for each range of the last octet.
pub(super) fn dns_lists(argument: &str) -> Option<Vec<String>> {
    let Some((zone, codes)) = argument.split_once('=') else { return Some(vec![argument.to_owned()]) };
    let (front, last) = codes.rsplit_once('.')?;
    // `2..11` has dots, too.
    let (front, last) = match codes.split_once('[') {
        Some((front, last)) => (front.strip_suffix('.')?, last.strip_suffix(']')?),
        None => (front, last),
    };
    let is_plain = front.split('.').count() == 3 && front.split('.').all(|octet| octet.parse::<u8>().is_ok());
    let range = |range: &str| match range.split_once("..") {
        Some((first, last)) => {
            Some(format!("{zone}={front}.{}-{}", first.parse::<u8>().ok()?, last.parse::<u8>().ok()?))
        }
        None => Some(format!("{zone}={front}.{}", range.parse::<u8>().ok()?)),
    };
    if is_plain { last.split(';').map(|part| range(part.trim())).collect() } else { None }
}

/// Adds the rules of a table. Returns whether it refuses everything.
fn access(
    context: &mut Context<'_>,
    decision: &mut Decision,
    list: &'static str,
    step: &Step,
    open: &mut Open,
) -> bool {
    let comment = format!("{list}: {} {}", step.word, step.argument);
    let found = match of_table(context, step) {
        Ok(found) => found,
        Err(why) => {
            context.effect(
                Effect::Refused,
                list,
                format!(
                    "{} {}: {why}; until then a [[rule]] defers this mail (451)",
                    step.word, step.argument
                ),
            );
            if let Some(rule) = decision.rule(open, &comment, &[], &[]) {
                // The rules behind it are for the time when this one is removed.
                decision
                    .rules
                    .push(rule.with("temporary", true).with("defer", "451 4.3.5 Server configuration error"));
            }
            return false;
        }
    };
    let mut excluded: Vec<Condition> = Vec::new();
    for group in found {
        let patterns = filed(context, &group);
        let condition: Vec<Condition> =
            if patterns.is_empty() { Vec::new() } else { vec![(group.key, patterns.clone())] };
        match &group.action {
            Action::Pass => {}
            Action::Permit => match condition.first() {
                Some(condition) => decision.permit(open, &comment, condition.clone(), &excluded),
                None => return true,
            },
            Action::Verdict(key, text) => {
                decision.add(open, &comment, &condition, &excluded, key, text.clone());
            }
            Action::Change(key, text) => {
                decision.add(open, &comment, &condition, &excluded, key, vec![text.clone()]);
            }
            Action::List(value) if decision.depth < NESTED_MAX => {
                let steps = steps(&context.main, value, list, 0);
                decision.within(open, &comment, (&condition, &excluded), |decision, open| {
                    walk(context, decision, list, &steps, open);
                });
            }
            Action::Unknown(action) | Action::List(action) => {
                context.effect(
                    Effect::Refused,
                    list,
                    format!(
                        "{} {}: the action {action} has no counterpart: a [[rule]] defers this mail (451)",
                        step.word, step.argument
                    ),
                );
                decision.add(
                    open,
                    &comment,
                    &condition,
                    &excluded,
                    "defer",
                    "451 4.3.5 Server configuration error",
                );
            }
        }
        if condition.is_empty() {
            return matches!(group.action, Action::Verdict("reject" | "defer", _));
        }
        // What is neither refused nor permitted now is not asked for its less exact keys.
        if !matches!(
            group.action,
            Action::Verdict("reject" | "defer", _) | Action::Permit | Action::Unknown(_)
        ) {
            excluded.extend(condition);
        }
    }
    false
}

/// Returns the patterns of a group, or the name of the file that has them.
fn filed(context: &mut Context<'_>, group: &Group) -> Vec<String> {
    if !group.is_regex && group.patterns.len() <= PATTERNS_MAX {
        return group.patterns.clone();
    }
    let name = format!(
        "access-{}",
        context.draft.files.iter().filter(|file| file.name.starts_with("access-")).count() + 1
    );
    let kind = match group.key {
        _ if group.is_regex => "regex",
        "client" => "cidr",
        _ => "text",
    };
    let key = |pattern: &String| match pattern.strip_prefix("*.") {
        Some(domain) if kind == "text" => format!(".{domain} x\n"),
        _ if kind == "text" => format!("{} x\n", pattern.strip_suffix('*').unwrap_or(pattern)),
        _ => format!("{pattern} x\n"),
    };
    context.draft.add_file(&name, group.patterns.iter().map(key).collect(), false);
    vec![format!("{kind}:{name}")]
}

fn policy_service(
    context: &mut Context<'_>,
    decision: &mut Decision,
    list: &'static str,
    argument: &str,
    open: &Open,
) {
    let inner = argument.trim_matches(['{', '}']).trim();
    let place = inner.split([',', ' ']).next().unwrap_or_default();
    let address = match place.split_once(':') {
        Some(("unix", path)) => format!("unix:{}", context.below_queue(path)),
        Some(("inet", address)) => address.to_owned(),
        _ => {
            return context.effect(
                Effect::Taken,
                list,
                format!("check_policy_service {argument}: write [policy_service.NAME]"),
            );
        }
    };
    let last = address.rsplit(['/', ':']).next().unwrap_or("policy");
    let name = plain_word(last);
    let name = if name.starts_with(|c: char| c.is_ascii_digit()) { format!("policy-{name}") } else { name };
    let (header, comment) =
        (format!("[policy_service.{name}]"), format!("{list}: check_policy_service {argument}"));
    if !context.draft.has(&header) {
        context.draft.push(Section::new(&header, comment.clone()).with("address", address));
    }
    context.note(
        list,
        format!("check_policy_service {argument}: if it answers OK, no further rules apply, not only those of this list"),
    );
    decision.add(open, &comment, &[], &[], "ask", name);
}
