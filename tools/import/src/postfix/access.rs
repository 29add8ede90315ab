//! Tables of access(5): their keys as patterns, and their actions.

use super::{
    convert::RestrictionContext as Context,
    table::{Table, TableEntry, pattern_entries},
};
use crate::draft::Value;
use std::cmp::Reverse;

/// The treatment of mail that a table has a key for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    /// No decision: the restrictions behind the table are asked.
    Pass,
    /// The restriction list ends here, in favour of the client.
    Permit,
    /// A key of a rule that decides, and its value.
    Verdict(&'static str, Value),
    /// A key of a rule that changes something, and the item of its list.
    Change(&'static str, String),
    /// Other restrictions decide.
    List(String),
    /// An action that has no counterpart.
    Unknown(String),
}

/// Keys with one action. Of several groups, the first that matches counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Group {
    /// Key of the condition in a rule.
    pub(super) key: &'static str,
    /// Patterns; none: all mail.
    pub(super) patterns: Vec<String>,
    /// True if `patterns` are regular expressions.
    pub(super) is_regex: bool,
    pub(super) action: Action,
}

/// Returns the condition that a restriction looks up.
pub(super) fn subject(check: &str) -> Option<&'static str> {
    Some(match check {
        "check_client_access" => "client",
        "check_reverse_client_hostname_access" => "client_name",
        "check_helo_access" | "check_ehlo_access" => "hello",
        "check_sender_access" => "from",
        "check_recipient_access" => "to",
        "check_sasl_access" => "login",
        _ => return None,
    })
}

/// Returns the groups of a table, the most exact keys first.
///
/// # Errors
/// The table cannot be read: what to do about it.
pub(super) fn groups(context: &Context<'_>, check: &str, table: &Table) -> Result<Vec<Group>, String> {
    let subject = subject(check).ok_or_else(|| format!("{check} has no counterpart; write a [[rule]]"))?;
    let is_regex = matches!(&*table.kind, "regexp" | "pcre");
    let entries = match &*table.kind {
        "static" => {
            return Ok(vec![Group {
                key: subject,
                patterns: Vec::new(),
                is_regex,
                action: action(context, table.name.trim_matches(['{', '}']).trim()),
            }]);
        }
        "regexp" | "pcre" => pattern_entries(table, context.files)?,
        _ => table.entries(context.files)?,
    };
    type Ranked = (u8, Reverse<usize>, &'static str, Vec<String>, Action);
    let mut found: Vec<Ranked> = Vec::new();
    for entry in &entries {
        let action = action(context, &entry.value);
        if !is_regex {
            let Some((tier, exactness, key, patterns)) = patterns(context, subject, table, entry) else {
                continue;
            };
            found.push((tier, Reverse(exactness), key, patterns, action));
            continue;
        }
        // A client is looked up by its name first, and then by its address.
        let keys: &[&str] = if subject == "client" { &["client_name", "client"] } else { &[subject] };
        for (tier, key) in (0..).zip(keys) {
            found.push((tier, Reverse(0), key, vec![entry.key.clone()], action.clone()));
        }
        // A client without a name is looked up as that.
        if keys[0] == "client_name" && matches(&entry.key, "unknown") {
            found.push((0, Reverse(0), "nameless", vec!["none".to_owned()], action));
        }
    }
    found.sort_by_key(|(tier, exactness, ..)| (*tier, *exactness));
    let mut grouped: Vec<Group> = Vec::new();
    for (.., key, patterns, action) in found {
        let (key, is_regex) = if key == "nameless" { ("client_name", false) } else { (key, is_regex) };
        match grouped.last_mut() {
            Some(last) if (last.key, last.is_regex, &last.action) == (key, is_regex, &action) => {
                last.patterns.extend(patterns);
            }
            _ => grouped.push(Group { key, patterns, is_regex, action }),
        }
    }
    Ok(grouped)
}

/// Returns whether an expression with delimiters and flags matches a text.
fn matches(expression: &str, text: &str) -> bool {
    let delimiter = expression.chars().next().unwrap_or('/');
    let inner = expression[delimiter.len_utf8()..].rsplit_once(delimiter).map_or("", |(inner, _)| inner);
    let expression = regex::RegexBuilder::new(inner).case_insensitive(true).build();
    expression.is_ok_and(|expression| expression.is_match(text))
}

/// Returns the condition and the patterns of a key, behind its rank: a small number and a long key come first. None for a key that
/// nothing matches.
fn patterns(
    context: &Context<'_>,
    subject: &'static str,
    table: &Table,
    entry: &TableEntry,
) -> Option<(u8, usize, &'static str, Vec<String>)> {
    let key = entry.key.to_lowercase();
    let parents =
        context.main.explicit("parent_domain_matches_subdomains").map(|one| context.main.expand(&one.value));
    let has_parents = parents.is_none_or(|list| list.contains("smtpd_access_maps"));
    // The dot in front is no label: Postfix asks for `a.example.com`, then for `.example.com`.
    let labels = key.trim_start_matches('.').split('.').count();
    let domain = |domain: &str| match domain.strip_prefix('.') {
        // Where a domain means those below it, keys with a dot are not asked.
        Some(_) if has_parents => None,
        Some(_) => Some(vec![format!("*{domain}")]),
        None if has_parents => Some(vec![domain.to_owned(), format!("*.{domain}")]),
        None => Some(vec![domain.to_owned()]),
    };
    let is_domain = |text: &str| crate::places::is_domain(text.trim_start_matches('.'));
    match subject {
        "client" => {
            let plain = key.replace(['[', ']'], "");
            if let Some(network) = network(&plain) {
                let rank = if table.kind == "cidr" { 0 } else { usize::from(network.prefix_len()) };
                return Some((1, rank, "client", vec![network_text(network)]));
            }
            if key == "unknown" {
                return Some((0, labels, "client_name", vec!["none".to_owned()]));
            }
            Some((
                0,
                labels,
                "client_name",
                domain(&key).filter(|_| table.kind != "cidr" && is_domain(&key))?,
            ))
        }
        "client_name" | "hello" => {
            let literal = || key.starts_with('[').then(|| vec![key.clone()]);
            Some((0, labels, subject, literal().or_else(|| domain(&key).filter(|_| is_domain(&key)))?))
        }
        "login" => Some((0, 0, subject, vec![entry.key.clone()])),
        _ if key == "<>" => Some((0, 0, subject, vec![key])),
        _ => match key.rsplit_once('@') {
            Some((local, "")) => Some((2, 0, subject, vec![format!("{local}@*")])),
            Some((_, of)) if is_domain(of) => Some((0, 0, subject, vec![key])),
            Some(_) => None,
            None => Some((1, labels, subject, domain(&key).filter(|_| is_domain(&key))?)),
        },
    }
}

/// Reads an address, a network, or the first parts of an address: `192.0.2` stands for 192.0.2.0/24.
pub(super) fn network(text: &str) -> Option<ipnet::IpNet> {
    if let Ok(network) = text.parse::<ipnet::IpNet>() {
        return Some(network.trunc());
    }
    if let Ok(address) = text.parse::<std::net::IpAddr>() {
        return Some(address.into());
    }
    let octets: Vec<&str> = text.split('.').collect();
    if octets.len() < 4 && octets.iter().all(|octet| octet.parse::<u8>().is_ok()) {
        let mut full = octets.clone();
        full.resize(4, "0");
        return format!("{}/{}", full.join("."), octets.len() * 8).parse().ok();
    }
    let groups = text.split(':').filter(|group| !group.is_empty()).count();
    let is_hex = text.contains(':') && text.bytes().all(|b| b == b':' || b.is_ascii_hexdigit());
    is_hex.then(|| format!("{}::/{}", text.trim_end_matches(':'), groups * 16).parse().ok()).flatten()
}

pub(super) fn network_text(network: ipnet::IpNet) -> String {
    match network.prefix_len() == network.max_prefix_len() {
        true => network.addr().to_string(),
        false => network.to_string(),
    }
}

/// Reads the right-hand side of a table.
fn action(context: &Context<'_>, action: &str) -> Action {
    let (word, text) = action.split_once(char::is_whitespace).unwrap_or((action, ""));
    let text: String =
        text.trim().chars().filter(|c| c.is_ascii() && !c.is_control() && !"{}".contains(*c)).collect();
    let reply = |default: &str| {
        let has_status = text
            .split(' ')
            .next()
            .is_some_and(|status| status.starts_with(['4', '5']) && status.matches('.').count() == 2);
        let status = if default.starts_with('5') { "5.7.1 " } else { "4.7.1 " };
        let rest = if text.is_empty() { "Access denied" } else { &text };
        // The class of the enhanced code is that of the reply.
        let rest = if has_status { format!("{}{}", &default[..1], &rest[1..]) } else { rest.to_owned() };
        Value::from(format!("{default} {}{rest}", if has_status { "" } else { status }))
    };
    let is_list = super::main_cf::items(&context.main.value("smtpd_restriction_classes"))
        .iter()
        .any(|class| class == word)
        || ["permit_", "reject_", "defer_unauth", "check_", "warn_if_reject"]
            .iter()
            .any(|begin| word.to_ascii_lowercase().starts_with(begin));
    if is_list {
        return Action::List(action.to_owned());
    }
    let upper = word.to_ascii_uppercase();
    let is_number = !upper.is_empty() && upper.bytes().all(|b| b.is_ascii_digit());
    match &*upper {
        "OK" | "PERMIT" | "RELAY" => Action::Permit,
        "DUNNO" | "WARN" | "INFO" | "DEFER_IF_REJECT" => Action::Pass,
        "REJECT" => Action::Verdict("reject", reply("554")),
        "DEFER" => Action::Verdict("defer", reply("450")),
        "DEFER_IF_PERMIT" => Action::Verdict("late", reply("450")),
        "DISCARD" => Action::Verdict("discard", true.into()),
        "HOLD" => Action::Verdict("hold", true.into()),
        "PREPEND" => Action::Change("add_header", text),
        "REDIRECT" => Action::Change("redirect", text),
        "BCC" => Action::Change("bcc", text),
        code if is_number && code.len() == 3 && code.starts_with('5') => {
            Action::Verdict("reject", reply(code))
        }
        code if is_number && code.len() == 3 && code.starts_with('4') => {
            Action::Verdict("defer", reply(code))
        }
        _ if is_number => Action::Permit,
        _ => Action::Unknown(action.to_owned()),
    }
}
