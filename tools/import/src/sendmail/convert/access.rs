//! The access table: who may relay, and rules in the order in which the rule sets ask.

use super::{Converter, address, domain, is_address, network, reply};
use crate::{
    Effect,
    decision::{Clients, Condition, Decision, Open, covers},
    draft::{Section, Value},
    postfix::TableEntry,
};
use std::collections::HashSet;

/// A key of the table for one kind of look-up.
struct Entry {
    /// As the table has it.
    name: String,
    condition: Condition,
    /// What is asked first is smaller: the kind of key, and then its length.
    rank: (usize, usize),
    verdict: Verdict,
}

#[derive(Clone, PartialEq)]
enum Verdict {
    Relay,
    Accept,
    Refuse(&'static str, Value),
}

/// The entries by what they are looked up for.
#[derive(Default)]
pub(super) struct Access {
    recipients: Vec<Entry>,
    friends: Vec<String>,
    senders: Vec<Entry>,
    clients: Vec<Entry>,
    /// Tags with their keys: each is asked before the key alone.
    tagged: HashSet<(String, String)>,
    /// Domains of recipients: who may send there is asked of them, too.
    destinations: Vec<Entry>,
}

fn verdict(tag: &str, value: &str) -> Option<Verdict> {
    let action = value.split_whitespace().next().unwrap_or_default().to_ascii_uppercase();
    Some(match &*action {
        "RELAY" => Verdict::Relay,
        "OK" | "SKIP" => Verdict::Accept,
        "REJECT" if tag == "to" => {
            Verdict::Refuse("reject", "550 5.2.1 Mailbox disabled for this recipient".into())
        }
        "REJECT" => Verdict::Refuse("reject", "550 5.7.1 Access denied".into()),
        "DISCARD" => Verdict::Refuse("discard", true.into()),
        action if action.starts_with("QUARANTINE") => Verdict::Refuse("hold", true.into()),
        action if action.starts_with("ERROR:") || action.starts_with(['4', '5']) => {
            let reply =
                reply(value.get("ERROR:".len()..).filter(|_| action.starts_with("ERROR:")).unwrap_or(value));
            Verdict::Refuse(if reply.starts_with('4') { "defer" } else { "reject" }, reply.into())
        }
        _ => return None,
    })
}

impl Converter<'_> {
    /// Reads the table: hosts and domains with RELAY, and the entries that become rules.
    pub(super) fn access(&mut self) -> Access {
        let (mut access, mut is_slow) = (Access::default(), false);
        let entries = self.table("access", "access_db").into_iter().map(|TableEntry { key, value }| {
            let (tag, key) = match key.split_once(':') {
                Some((tag, key)) if tag.bytes().all(|b| b.is_ascii_alphabetic() || b == b'_') => {
                    (tag.to_ascii_lowercase(), key.to_lowercase())
                }
                _ => (String::new(), key.to_lowercase()),
            };
            (tag, key, value)
        });
        let entries: Vec<(String, String, String)> = entries.collect();
        access.tagged = entries.iter().map(|(tag, key, _)| (tag.clone(), key.clone())).collect();
        for (tag, key, value) in entries {
            match (&*tag, verdict(&tag, &value)) {
                ("greetpause" | "clientrate" | "clientconn", _) => is_slow = true,
                ("spam", _) if value.eq_ignore_ascii_case("friend") => {
                    access.friends.extend(self.recipients(&key));
                }
                ("authinfo", _) => {}
                ("" | "connect" | "from" | "to", Some(verdict)) => {
                    self.entry(&tag, &key, &value, &verdict, &mut access);
                }
                _ => self.report.effect(
                    Effect::Taken,
                    "access_db",
                    format!("{tag}:{key} {value} has no counterpart: see [[rule]], [[limit]] and [tls]"),
                ),
            }
        }
        if is_slow {
            self.note("access_db", "for GreetPause, ClientConn and ClientRate, see greeting_delay in [[listen]], inbound.max_sessions_per_client and [[limit]]");
        }
        if !self.has_feature("delay_checks") {
            access.friends.clear();
        }
        for list in
            [&mut access.recipients, &mut access.senders, &mut access.clients, &mut access.destinations]
        {
            list.sort_by_key(|entry| entry.rank);
        }
        access
    }

    /// Returns patterns of recipients: `user@` is a user of the local domains only.
    fn recipients(&self, key: &str) -> Vec<String> {
        match key.strip_suffix('@') {
            Some(user) => self.places.own.iter().map(|domain| format!("{user}@{domain}")).collect(),
            None => address(key),
        }
    }

    fn entry(&mut self, tag: &str, key: &str, value: &str, verdict: &Verdict, access: &mut Access) {
        let network = network(key);
        if network.is_none() && !is_address(key) {
            let text = format!("{tag}:{key} {value}: {key} is not a domain, an address or a network");
            return self.report.effect(Effect::Taken, "access_db", text);
        }
        let is_hidden = |of: &str| access.tagged.contains(&(of.to_owned(), key.to_owned()));
        let [has_connect, has_from, has_to] =
            ["connect", "from", "to"].map(|of| tag == of || tag.is_empty() && !is_hidden(of));
        // A longer key is asked first.
        let rank = |kind: usize| (kind, usize::MAX - key.len());
        let kind = match key.split_once('@') {
            None => 2,
            Some((_, "")) => 1,
            Some(_) => 0,
        };
        let entry = |kind, condition| Entry {
            name: format!("{tag}:{key}"),
            condition,
            rank: rank(kind),
            verdict: verdict.clone(),
        };
        if matches!(verdict, Verdict::Refuse("discard", _)) {
            let text = format!(
                "{tag}:{key} DISCARD applies to one recipient, not to the whole message: the other recipients get it, and those that the client may not send to are refused"
            );
            self.report.effect(Effect::Taken, "access_db", text);
        }
        if let Some(network) = network {
            if has_connect {
                if *verdict == Verdict::Relay {
                    self.draft.extend("[relay]", "networks", [network.clone()], "access");
                }
                access.clients.push(entry(1, ("client", vec![network])));
            }
            return;
        }
        if has_connect && kind == 2 {
            if *verdict == Verdict::Relay && !key.starts_with("localhost") {
                let text = format!(
                    "{tag}:{key} RELAY: hosts of this name may not relay: add the networks of these hosts to relay.networks"
                );
                self.report.effect(Effect::Refused, "access_db", text);
            }
            access.clients.push(entry(0, ("client_name", domain(key))));
        }
        if has_from {
            access.senders.push(entry(kind, ("from", address(key))));
        }
        if has_to && kind == 2 {
            let below = if self.has_feature("relay_hosts_only") { vec![key.to_owned()] } else { domain(key) };
            if *verdict == Verdict::Relay {
                below.iter().for_each(|name| self.places.add_relayed(name.clone()));
            }
            access.destinations.push(entry(2, ("to", below)));
        }
        let looks = self.has_feature("blocklist_recipients") || self.has_feature("blacklist_recipients");
        if has_to && looks {
            access.recipients.push(entry(kind, ("to", self.recipients(key))));
        } else if tag == "to" && matches!(verdict, Verdict::Refuse(..)) {
            let text = format!("To:{key} {value} has no effect without FEATURE blocklist_recipients");
            self.note("access_db", text);
        }
    }

    /// Writes the rules that the access table becomes.
    pub(super) fn access_rules(&mut self, access: Access) {
        let clients = Clients {
            networks: self.draft.list("[relay]", "networks"),
            are_relayed: true,
            has_logins: self.draft.has("[auth]"),
            ..Clients::default()
        };
        let taken = [&*self.places.own, &*self.places.of_addresses, &*self.places.relayed].concat();
        let mut rules = Rules { decision: Decision::new(clients), has_details: false };
        rules.decision.tag = "access".to_owned();
        let all = Open::new(true, true, true);
        // Who may relay. Hosts of class R do so before the table is asked.
        let denied = |verdict: &Verdict| match verdict {
            Verdict::Relay => Verdict::Accept,
            _ => Verdict::Refuse("reject", "550 5.7.1 Relaying denied".into()),
        };
        let is_within = |entry: &Entry, outer: &[String]| {
            entry.condition.1.iter().any(|one| outer.iter().any(|wide| wide != one && covers(wide, one)))
        };
        let mut open = Open::new(true, true, false);
        open.except(("client", [&["127.0.0.1".to_owned(), "::1".to_owned()], &*self.relaying].concat()));
        let networks = rules.decision.clients.networks.clone();
        for entry in access.clients.iter().filter(|entry| entry.condition.0 == "client") {
            if entry.verdict == Verdict::Relay || is_within(entry, &networks) {
                rules.add(&mut open, entry, &denied(&entry.verdict), &[("to", taken.clone())]);
            }
        }
        let mut open = Open::new(false, false, true);
        open.except(("to", [&*self.places.own, &*self.relayed].concat()));
        for entry in &access.destinations {
            if entry.verdict == Verdict::Relay || is_within(entry, &self.places.relayed) {
                rules.add(&mut open, entry, &denied(&entry.verdict), &[]);
            }
        }
        let is_late = self.has_feature("delay_checks");
        let list = |rules: &mut Rules, entries: &[Entry], is_sender: bool| {
            let mut open = all.clone();
            for entry in entries {
                let is_end = is_sender && is_late && !matches!(entry.verdict, Verdict::Refuse(..));
                match is_end {
                    // What the sender's entry accepts, no client's refuses.
                    true => rules.add(&mut open, entry, &Verdict::Refuse("accept", true.into()), &[]),
                    false => rules.add(&mut open, entry, &entry.verdict, &[]),
                }
                // It is found once, though rules that discard come last.
                if !is_late && matches!(entry.verdict, Verdict::Refuse("discard", _)) {
                    rules.add(&mut open, entry, &Verdict::Accept, &[]);
                }
            }
        };
        if is_late {
            list(&mut rules, &access.recipients, false);
            if !access.friends.is_empty() {
                rules.decision.add(
                    &all,
                    "access: Spam: FRIEND",
                    &[("to", access.friends)],
                    &[],
                    "accept",
                    true,
                );
            }
            list(&mut rules, &access.senders, true);
            list(&mut rules, &access.clients, false);
        } else {
            // Clients and senders are asked for when they come, before the ways to recipients.
            let count = rules.decision.rules.len();
            list(&mut rules, &access.clients, false);
            list(&mut rules, &access.senders, false);
            let early = rules.decision.rules.split_off(count);
            // Recipients of mail that is discarded are refused nevertheless.
            let (discards, early): (Vec<_>, Vec<_>) =
                early.into_iter().partition(|rule| rule.value("discard").is_some());
            // The way to the sender is looked for between the two.
            let (clients, senders): (Vec<_>, Vec<_>) =
                early.into_iter().partition(|rule| rule.value("from").is_none());
            let sections = self.draft.sections_mut();
            let is_way =
                |section: &Section| section.header() == "[[rule]]" && section.value("from").is_some();
            let ways = sections.iter().take_while(|section| is_way(section)).count();
            sections.splice(ways..ways, senders);
            sections.splice(0..0, clients);
            list(&mut rules, &access.recipients, false);
            rules.decision.rules.extend(discards);
        }
        if rules.has_details {
            self.draft.add_file("details", "/^[^@]*\\+/ x\n".to_owned(), false);
        }
        let mut rules = rules.decision.finish();
        while rules.last().is_some_and(|rule| rule.value("accept").is_some() || rule.value("tag").is_some()) {
            rules.pop();
        }
        rules.into_iter().for_each(|rule| self.draft.push(rule));
    }
}

struct Rules {
    decision: Decision,
    has_details: bool,
}

impl Rules {
    /// Adds the rule of an entry, or ends the list for what it accepts.
    fn add(&mut self, open: &mut Open, entry: &Entry, verdict: &Verdict, excluded: &[Condition]) {
        let Entry { name, condition, .. } = entry;
        if condition.1.is_empty() {
            return;
        }
        let comment = format!("access: {}", name.trim_start_matches(':'));
        let mut excluded = excluded.to_vec();
        // The table is asked for the whole address: a rule for `user` is for `user+detail`, too.
        if condition.1.iter().any(|pattern| pattern.contains('@')) {
            self.has_details = true;
            excluded.push((condition.0, vec!["regex:details".to_owned()]));
        }
        match verdict {
            Verdict::Refuse(key, value) => {
                let conditions = (std::slice::from_ref(condition), &*excluded);
                self.decision.push(open, &comment, conditions, key, value.clone());
            }
            _ => {
                excluded.retain(|(_, patterns)| patterns.iter().any(|one| one.starts_with("regex:")));
                self.decision.permit(open, &comment, condition.clone(), &excluded);
            }
        }
    }
}
