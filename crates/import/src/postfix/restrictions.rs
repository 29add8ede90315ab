//! Restriction lists as rules and checks.

use super::{
    convert::RestrictionContext as Context,
    main_cf::items,
    table::{Table, TableEntry},
};
use crate::draft::Section;

const LISTS: [&str; 8] = [
    "smtpd_client_restrictions",
    "smtpd_helo_restrictions",
    "smtpd_sender_restrictions",
    "smtpd_relay_restrictions",
    "smtpd_recipient_restrictions",
    "smtpd_data_restrictions",
    "smtpd_end_of_data_restrictions",
    "smtpd_etrn_restrictions",
];

/// Keys of an access table that stand in a rule; longer tables need a file of their own.
const KEYS_MAX: usize = 500;

/// Writes rules and checks.
pub(super) fn write(context: &mut Context<'_>) {
    for list in LISTS {
        if context.main.explicit(list).is_none() {
            continue;
        }
        context.mapped(list);
        if list == "smtpd_etrn_restrictions" {
            context.note(list, "extensions.etrn says who may start the queue for a domain");
            continue;
        }
        let value = expanded_classes(context, &context.main.value(list), 0);
        let mut words = items(&value).into_iter().peekable();
        while let Some(word) = words.next() {
            let word = word.to_lowercase_keyword();
            match &*word {
                "warn_if_reject" => {
                    let next = words.next().unwrap_or_default();
                    if next.starts_with("check_") {
                        words.next();
                    }
                    context.missing(
                        list,
                        format!("warn_if_reject {next}: a rule that only tells is a rule with `tag`"),
                    );
                }
                check if check.starts_with("check_") => {
                    let argument = words.next().unwrap_or_default();
                    access(context, list, check, &argument);
                }
                other => single(context, list, other, &mut words),
            }
        }
    }
}

trait Keyword {
    fn to_lowercase_keyword(&self) -> String;
}

impl Keyword for String {
    /// Names of restrictions are in any letter case; arguments stay as they are.
    fn to_lowercase_keyword(&self) -> String {
        if self.contains([':', '/', '.']) { self.clone() } else { self.to_ascii_lowercase() }
    }
}

/// Replaces names of `smtpd_restriction_classes` by their restrictions.
fn expanded_classes(context: &mut Context<'_>, value: &str, depth: usize) -> String {
    let classes = items(&context.main.value("smtpd_restriction_classes"));
    context.mapped("smtpd_restriction_classes");
    if depth > 5 {
        return value.to_owned();
    }
    let words: Vec<String> = items(value)
        .into_iter()
        .map(|word| {
            if classes.contains(&word) {
                context.mapped(&word);
                let inner = context.main.value(&word);
                expanded_classes(context, &inner, depth + 1)
            } else {
                word
            }
        })
        .collect();
    words.join(" ")
}

fn single(
    context: &mut Context<'_>,
    list: &str,
    word: &str,
    words: &mut std::iter::Peekable<std::vec::IntoIter<String>>,
) {
    match word {
        "permit_mynetworks"
        | "permit_sasl_authenticated"
        | "permit"
        | "reject_unauth_destination"
        | "defer_unauth_destination"
        | "permit_auth_destination"
        | "reject_non_fqdn_sender"
        | "reject_non_fqdn_recipient"
        | "reject_unlisted_recipient"
        | "check_recipient_maps"
        | "reject_unauth_pipelining"
        | "reject_sender_login_mismatch"
        | "reject_authenticated_sender_login_mismatch"
        | "reject_known_sender_login_mismatch"
        | "reject_multi_recipient_bounce" => {}
        "reject" => {
            let kinds = context.draft.values("[[listen]]", "kind");
            if kinds.is_empty() {
                context.note(list, "`reject` for all other clients: kind = \"relay\" in [[listen]] takes mail from relay.networks only");
            }
        }
        "reject_invalid_helo_hostname"
        | "reject_invalid_hostname"
        | "reject_non_fqdn_helo_hostname"
        | "reject_non_fqdn_hostname"
        | "reject_unknown_helo_hostname"
        | "reject_unknown_hostname" => {
            context.draft.set("[checks]", "hello", "enforce", list);
            if word.contains("unknown") {
                context.note(
                    list,
                    format!("{word}: the name in EHLO must be that of a mail server, but is not looked up"),
                );
            }
        }
        "reject_unknown_client_hostname" | "reject_unknown_client" => {
            context.draft.set("[checks]", "reverse_name", "enforce", list);
        }
        "reject_unknown_reverse_client_hostname" => {
            context.draft.set("[checks]", "reverse_name", "enforce", list);
            context.note(list, format!("{word}: the name must also lead back to the address"));
        }
        "reject_unknown_sender_domain" | "reject_unknown_recipient_domain" => {
            context.missing(
                list,
                format!("{word}: domains of addresses are not looked up before mail is taken"),
            );
        }
        "reject_unverified_recipient" => context.note(
            list,
            "reject_unverified_recipient: write `verify = true` in the [[route]] of these domains",
        ),
        "reject_unverified_sender" => {
            context.missing(list, "reject_unverified_sender: senders are not verified");
        }
        "reject_rbl_client"
        | "reject_rhsbl_client"
        | "reject_rhsbl_sender"
        | "reject_rhsbl_recipient"
        | "reject_rhsbl_helo"
        | "reject_rhsbl_reverse_client"
        | "permit_dnswl_client"
        | "permit_rhswl_client"
        | "reject_maps_rbl" => {
            let domain =
                if word == "reject_maps_rbl" { String::new() } else { words.next().unwrap_or_default() };
            context.missing(list, format!("{word} {domain}: block lists of DNS are asked by a policy server ([policy_service.NAME], `ask` in [[rule]])"));
        }
        "reject_unlisted_sender" => {
            context.missing(list, "reject_unlisted_sender: senders of local domains are not looked up");
        }
        "permit_inet_interfaces"
        | "permit_tls_all_clientcerts"
        | "permit_tls_clientcerts"
        | "permit_mx_backup"
        | "permit_naked_ip_address" => {
            context
                .missing(list, format!("{word}: nothing but relay.networks and logins lets a client relay"));
        }
        "reject_plaintext_session" => {
            let rule = Section::new("[[rule]]", list).with("for", "all").with("tls", false);
            context.draft.push(rule.with("reject", "530 5.7.0 Must issue a STARTTLS command first"));
        }
        "defer" | "defer_if_reject" | "defer_if_permit" => {
            context.missing(list, format!("{word}: write a rule with `defer`"));
        }
        "sleep" => {
            let seconds = words.next().unwrap_or_default();
            context.note(list, format!("sleep {seconds}: greeting_delay in [[listen]]"));
        }
        other => context.missing(list, format!("{other} has no counterpart; see docs/rules.md")),
    }
}

/// A restriction with a table or a policy server.
fn access(context: &mut Context<'_>, list: &str, check: &str, argument: &str) {
    let condition = match check {
        "check_client_access" | "check_reverse_client_hostname_access" => "client",
        "check_helo_access" | "check_ehlo_access" => "hello",
        "check_sender_access" => "from",
        "check_recipient_access" => "to",
        "check_sasl_access" => "login",
        "check_policy_service" => return policy_service(context, list, argument),
        other => {
            return context.missing(list, format!("{other} {argument}: write a [[rule]]; see docs/rules.md"));
        }
    };
    let Some(table) = Table::parse(argument) else {
        return context.missing(list, format!("{check} {argument} is no table"));
    };
    let entries = match table.entries(context.files) {
        Ok(entries) if entries.len() <= KEYS_MAX => entries,
        Ok(_) => {
            let file = &table.name;
            return context.missing(list, format!("{check}: {file} has more than {KEYS_MAX} entries: make a file for each action, and name it in a [[rule]]: {condition} = [\"text:FILE\"]"));
        }
        Err(why) => {
            return context
                .missing(list, format!("{check} {argument}: {why}; write a [[rule]] for each action"));
        }
    };
    // Rules are read in the order of the file, and Postfix takes the most exact key: entries of one action stay together.
    let mut grouped: Vec<(String, &'static str, Vec<String>)> = Vec::new();
    for entry in &entries {
        let Some((condition, pattern)) = pattern(context, list, condition, &table, entry) else { continue };
        match grouped.iter_mut().find(|(action, of, _)| *action == entry.value && *of == condition) {
            Some((_, _, patterns)) => patterns.push(pattern),
            None => grouped.push((entry.value.clone(), condition, vec![pattern])),
        }
    }
    if grouped.len() > 1 {
        context.note(list, format!("{check} {argument}: rules of one action each; Postfix took the most exact key, Postrider the first rule: check their order"));
    }
    for (action, condition, patterns) in grouped {
        let section =
            Section::new("[[rule]]", format!("{list}: {check} {argument}")).with(condition, patterns);
        match verdict(context, list, section, &action) {
            Ok(Some(section)) => context.draft.push(section),
            Ok(None) => {}
            Err(why) => context.missing(list, format!("{check} {argument}: {why}")),
        }
    }
}

/// Returns the condition and the pattern of a key.
fn pattern(
    context: &mut Context<'_>,
    list: &str,
    condition: &'static str,
    table: &Table,
    entry: &TableEntry,
) -> Option<(&'static str, String)> {
    let key = entry.key.to_lowercase();
    let is_network =
        |key: &str| key.parse::<std::net::IpAddr>().is_ok() || key.parse::<ipnet::IpNet>().is_ok();
    match condition {
        "client" if table.kind == "cidr" || is_network(&key) => {
            let key = key.replace(['[', ']'], "");
            if is_network(&key) {
                return Some(("client", key));
            }
            context.missing(list, format!("{key} is no network"));
            None
        }
        "client" => {
            let octets: Vec<&str> = key.split('.').collect();
            if octets.len() < 4 && octets.iter().all(|octet| octet.parse::<u8>().is_ok()) {
                // `192.0.2` stands for 192.0.2.0/24.
                let mut full = octets.clone();
                full.resize(4, "0");
                return Some(("client", format!("{}/{}", full.join("."), octets.len() * 8)));
            }
            Some(("client_name", if key.starts_with('.') { format!("*{key}") } else { key }))
        }
        "hello" => Some(("hello", if key.starts_with('.') { format!("*{key}") } else { key })),
        "login" => Some(("login", entry.key.clone())),
        _ => match key.strip_suffix('@') {
            _ if key == "<>" => Some((condition, key)),
            Some(local) => Some((condition, format!("{local}@*"))),
            None if key.starts_with('.') => Some((condition, format!("*{key}"))),
            None => Some((condition, key)),
        },
    }
}

/// Adds the verdict of an action to a rule.
fn verdict(
    context: &mut Context<'_>,
    list: &str,
    section: Section,
    action: &str,
) -> Result<Option<Section>, String> {
    let (word, text) = action.split_once(char::is_whitespace).unwrap_or((action, ""));
    let text: String =
        text.trim().chars().filter(|c| c.is_ascii() && !c.is_control() && !"{}".contains(*c)).collect();
    let upper = word.to_ascii_uppercase();
    let with_code = |default: &str| {
        let has_status = text
            .split(' ')
            .next()
            .is_some_and(|status| status.starts_with(['4', '5']) && status.matches('.').count() == 2);
        let status = if default.starts_with('5') { "5.7.1 " } else { "4.7.1 " };
        let rest = if text.is_empty() { "Access denied" } else { &text };
        format!("{default} {}{rest}", if has_status { "" } else { status })
    };
    Ok(Some(match &*upper {
        "OK" | "PERMIT" | "RELAY" => section.with("accept", true),
        "DUNNO" => return Ok(None),
        "REJECT" => section.with("reject", with_code("554")),
        "DEFER" | "DEFER_IF_PERMIT" | "DEFER_IF_REJECT" => section.with("defer", with_code("450")),
        "DISCARD" => section.with("discard", true),
        "HOLD" => section.with("hold", true),
        "PREPEND" => section.with("add_header", vec![text]),
        "REDIRECT" => section.with("redirect", vec![text]),
        "BCC" => section.with("bcc", vec![text]),
        "WARN" | "INFO" => {
            context.note(list, "WARN and INFO: the log has each decision");
            return Ok(None);
        }
        code if code.len() == 3 && code.starts_with('5') && code.bytes().all(|b| b.is_ascii_digit()) => {
            section.with("reject", with_code(code))
        }
        code if code.len() == 3 && code.starts_with('4') && code.bytes().all(|b| b.is_ascii_digit()) => {
            section.with("defer", with_code(code))
        }
        digits if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) => {
            section.with("accept", true)
        }
        other => return Err(format!("the action {other} has no counterpart")),
    }))
}

fn policy_service(context: &mut Context<'_>, list: &str, argument: &str) {
    let inner = argument.trim_matches(['{', '}']).trim();
    let place = inner.split([',', ' ']).next().unwrap_or_default();
    let address = match place.split_once(':') {
        Some(("unix", path)) => format!("unix:{}", context.below_queue(path)),
        Some(("inet", address)) => address.to_owned(),
        _ => {
            return context
                .missing(list, format!("check_policy_service {argument}: write [policy_service.NAME]"));
        }
    };
    let last = address.rsplit(['/', ':']).next().unwrap_or("policy");
    let name: String =
        last.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect();
    let name = if name.starts_with(|c: char| c.is_ascii_digit()) { format!("policy-{name}") } else { name };
    let header = format!("[policy_service.{name}]");
    if !context.draft.has(&header) {
        context.draft.push(
            Section::new(&header, format!("{list}: check_policy_service {argument}"))
                .with("address", address),
        );
    }
    context
        .draft
        .push(Section::new("[[rule]]", format!("{list}: check_policy_service {argument}")).with("ask", name));
}
