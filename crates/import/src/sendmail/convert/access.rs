//! The access table, as rules.

use super::{Converter, address, domain, is_address, network, reply};
use crate::{
    draft::{Section, Value, quoted},
    postfix::TableEntry,
    unreached::covers,
};

/// What the table says, but for the right to relay.
pub(super) struct AccessRules {
    entries: Vec<Entry>,
    friends: Vec<String>,
}

/// A key with its condition.
struct Entry {
    /// The key as it stands in the table.
    name: String,
    condition: &'static str,
    values: Vec<String>,
    /// More exact keys are asked first.
    exactness: usize,
    verdict: Verdict,
}

#[derive(Clone)]
enum Verdict {
    Accept,
    Key(&'static str, Value),
}

impl Converter<'_> {
    /// Reads the table. Returns the entries that become rules, and the recipients that take all mail.
    pub(super) fn access(&mut self) -> AccessRules {
        let (mut entries, mut friends, mut slow) = (Vec::new(), Vec::new(), false);
        for TableEntry { key, value } in self.table("access", "access_db") {
            let (tag, key) = match key.split_once(':') {
                Some((tag, key)) if tag.bytes().all(|b| b.is_ascii_alphabetic() || b == b'_') => {
                    (tag.to_ascii_lowercase(), key.to_owned())
                }
                _ => (String::new(), key),
            };
            let action = value.split_whitespace().next().unwrap_or_default().to_ascii_uppercase();
            match (&*tag, &*action) {
                ("" | "connect" | "to", "RELAY") => {
                    self.relay_entry(&tag, &key);
                    // It also lets these through that a shorter key stops.
                    if tag != "to" || self.looks_for_recipients() {
                        self.entry(&tag, &key, &value, &mut entries);
                    }
                }
                ("greetpause" | "clientrate" | "clientconn", _) => slow = true,
                ("spam", "FRIEND") => friends.extend(self.recipients(&key)),
                ("authinfo", _) => {}
                // Only this feature looks for recipients.
                ("to", _) if !self.looks_for_recipients() => {
                    self.note(
                        "access_db",
                        format!("To:{key} {value} does nothing without FEATURE blocklist_recipients"),
                    );
                }
                ("" | "connect" | "from" | "to", _) => self.entry(&tag, &key, &value, &mut entries),
                _ => self
                    .missing("access_db", format!("{tag}:{key} {value}: see [[rule]], [[limit]] and [tls]")),
            }
        }
        if slow {
            self.note("access_db", "for GreetPause, ClientRate and ClientConn there are greeting_delay in [[listen]], inbound.max_sessions_per_client and [[limit]]");
        }
        let friends = if self.has_feature("delay_checks") { friends } else { Vec::new() };
        AccessRules { entries, friends }
    }

    /// Returns patterns of recipients: `user@` is a user of the local domains only.
    fn recipients(&self, key: &str) -> Vec<String> {
        match key.strip_suffix('@') {
            Some(user) => self.places.own.iter().map(|domain| format!("{user}@{domain}")).collect(),
            None => address(key),
        }
    }

    fn relay_entry(&mut self, tag: &str, key: &str) {
        match (tag, network(key)) {
            ("" | "connect", Some(network)) => {
                self.draft.extend("[relay]", "networks", [network], "access");
            }
            ("connect", None) if key == "localhost" || key == "localhost.localdomain" => {}
            ("connect", None) => self.missing(
                "access_db",
                format!("{tag}:{key} RELAY: write the networks of these hosts into relay.networks"),
            ),
            _ => self.relayed(key),
        }
    }

    fn entry(&mut self, tag: &str, key: &str, value: &str, entries: &mut Vec<Entry>) {
        let action = value.split_whitespace().next().unwrap_or_default().to_ascii_uppercase();
        let verdict = match &*action {
            "OK" | "SKIP" | "RELAY" => Verdict::Accept,
            "REJECT" if tag == "to" => {
                Verdict::Key("reject", "550 5.2.1 Mailbox disabled for this recipient".into())
            }
            "REJECT" => Verdict::Key("reject", "550 5.7.1 Access denied".into()),
            "DISCARD" => Verdict::Key("discard", true.into()),
            action if action.starts_with("QUARANTINE") => Verdict::Key("hold", true.into()),
            action if action.starts_with("ERROR:") || action.starts_with(['4', '5']) => {
                let text = if action.starts_with("ERROR:") { &value["ERROR:".len()..] } else { value };
                let reply = reply(text);
                Verdict::Key(if reply.starts_with('4') { "defer" } else { "reject" }, reply.into())
            }
            _ => {
                self.missing("access_db", format!("{tag}:{key} {value}: the action has no counterpart"));
                return;
            }
        };
        // A name in all domains is looked up last, and each key with its tag before the same without.
        let length = match key.split_once('@') {
            Some((_, "")) => 0,
            Some(_) => key.len() + 1000,
            None => key.len(),
        };
        let exactness = 2 * length + usize::from(!tag.is_empty());
        let mut conditions = match (tag, network(key)) {
            ("" | "connect", Some(network)) => vec![("client", vec![network])],
            ("connect", None) => vec![("client_name", domain(key))],
            ("to", _) => vec![("to", self.recipients(key))],
            ("from", _) => vec![("from", address(key))],
            // Without a tag, the key is for clients, senders, and recipients if these are looked up.
            _ => {
                let mut all = vec![("from", address(key))];
                if !key.contains('@') {
                    all.push(("client_name", domain(key)));
                }
                if self.looks_for_recipients() {
                    all.push(("to", self.recipients(key)));
                }
                all
            }
        };
        conditions.retain(|(_, values)| !values.is_empty());
        let is_network = conditions.iter().any(|(condition, _)| *condition == "client");
        if !is_network && !is_address(key) {
            self.missing(
                "access_db",
                format!("{tag}:{key} {value}: {key} is no domain, no address and no network"),
            );
            return;
        }
        for (condition, values) in conditions {
            let verdict = verdict.clone();
            entries.push(Entry { name: format!("{tag}:{key}"), condition, values, exactness, verdict });
        }
    }

    fn looks_for_recipients(&self) -> bool {
        self.has_feature("blocklist_recipients") || self.has_feature("blacklist_recipients")
    }

    /// Writes the rules in the order in which the rule sets ask: recipients, friends, senders, clients.
    pub(super) fn access_rules(&mut self, AccessRules { mut entries, mut friends }: AccessRules) {
        let rank = |entry: &Entry| {
            ["to", "from", "client", "client_name"].iter().position(|name| *name == entry.condition)
        };
        entries.sort_by_key(|entry| (rank(entry), std::cmp::Reverse(entry.exactness)));
        for entry in &entries {
            if entry.condition != "to" {
                self.friends(std::mem::take(&mut friends));
            }
            let Verdict::Key(key, value) = &entry.verdict else { continue };
            // Hosts that may relay are checked, too: the longest key decides, whether it says RELAY or REJECT.
            let section = Section::new("[[rule]]", format!("access: {}", entry.name)).with("for", "all");
            let section = section.with(entry.condition, entry.values.clone());
            let excepted = entries.iter().filter(|other| {
                matches!(other.verdict, Verdict::Accept)
                    && other.condition == entry.condition
                    && other.exactness > entry.exactness
            });
            let excepted: Vec<&String> = excepted.flat_map(|other| &other.values).collect();
            let is_excepted = |value: &String| excepted.iter().any(|other| covers(other, value));
            // The same key with its tag decides first, so that this one does nothing.
            if entry.values.iter().all(is_excepted) {
                continue;
            }
            let excepted = excepted.into_iter().filter(|value| may_contain(&entry.values, value));
            let excepted: Vec<String> = excepted.map(|value| quoted(value)).collect();
            let section = if excepted.is_empty() {
                section
            } else {
                let list = format!("{{ {} = [{}] }}", entry.condition, excepted.join(", "));
                section.with("unless", Value::Raw(list))
            };
            self.draft.push(section.with(key, value.clone()));
        }
    }

    fn friends(&mut self, friends: Vec<String>) {
        if !friends.is_empty() {
            let rule = Section::new("[[rule]]", "access: Spam: FRIEND").with("for", "all");
            self.draft.push(rule.with("to", friends).with("accept", true));
        }
    }
}

/// Returns whether a network that is excepted is within one of these; values that are no networks may be.
fn may_contain(outer: &[String], inner: &str) -> bool {
    let network = |text: &str| {
        text.parse::<ipnet::IpNet>()
            .ok()
            .or_else(|| text.parse::<std::net::IpAddr>().ok().map(ipnet::IpNet::from))
    };
    let Some(inner) = network(inner) else { return true };
    outer.iter().any(|outer| network(outer).is_some_and(|outer| outer.contains(&inner)))
}
