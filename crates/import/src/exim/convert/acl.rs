//! Statements of access control lists.

use super::{Draft, Files, access, lookups};
use crate::{
    Verdict,
    draft::{Section, Value},
    exim::conf::{Conf, Setting, list_items},
};
use access::{Condition, Items, merge, rule};
use std::path::Path;

/// Conditions and modifiers that say what Postrider does anyway.
const SAME: [&str; 8] =
    ["control", "verify = recipient", "message", "log_message", "logwrite", "endpass", "delay", "set "];

/// Returns the items of lists of hosts that a statement lets relay: its other conditions are met by all.
pub(super) fn relay_hosts(conf: &Conf) -> Vec<String> {
    let of_recipients = statements(conf).filter(|one| one.name == conf.option("acl_smtp_rcpt"));
    let accepted = of_recipients.filter_map(|statement| {
        let (verb, parts) = parts(&statement.value);
        let hosts = parts.iter().find_map(|part| part.strip_prefix("hosts = "))?;
        let is_plain = parts.iter().all(|part| part.starts_with("hosts = ") || is_same(part));
        (verb == "accept" && is_plain && hosts != ":").then(|| conf.expanded("hostlist", hosts))
    });
    accepted.flatten().collect()
}

/// Returns whether a statement takes mail for the domains of a list.
pub(super) fn takes_domains(conf: &Conf, name: &str) -> bool {
    let list = format!("+{name}");
    statements(conf).filter(|one| one.name == conf.option("acl_smtp_rcpt")).any(|statement| {
        let (verb, parts) = parts(&statement.value);
        let domains = parts.iter().filter_map(|part| {
            part.strip_prefix("domains = ")
                .or_else(|| part.strip_prefix("!domains = ").filter(|_| verb == "deny"))
        });
        let mut items = domains.flat_map(list_items);
        match verb {
            "accept" | "require" => items.any(|item| item == list),
            "deny" => {
                items.any(|item| item == format!("!{list}") || item == format!("! {list}") || item == list)
            }
            _ => false,
        }
    })
}

fn statements(conf: &Conf) -> impl Iterator<Item = &Setting> {
    conf.acl.iter().filter(|one| !one.value.is_empty())
}

/// Returns the verb, and the conditions and modifiers with single blanks.
fn parts(statement: &str) -> (&str, Vec<String>) {
    let (verb, rest) = statement.split_once(char::is_whitespace).unwrap_or((statement, ""));
    let plain = |line: &str| {
        let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
        let (negation, line) = line.strip_prefix('!').map_or(("", &*line), |rest| ("!", rest.trim_start()));
        match line.split_once('=') {
            Some((name, value)) => format!("{negation}{} = {}", name.trim(), value.trim()),
            None => format!("{negation}{line}"),
        }
    };
    (verb, rest.lines().map(str::trim).filter(|line| !line.is_empty()).map(plain).collect())
}

fn is_same(part: &str) -> bool {
    SAME.iter().any(|same| part.starts_with(same))
}

/// Converts the statements, in their order. `names` returns the domains of a list, and the items that are none. Returns each
/// statement with its line and what became of it.
pub(super) fn convert(
    conf: &Conf,
    names: &Resolve<'_>,
    files: &dyn Files,
    draft: &mut Draft,
) -> Vec<(usize, String, Verdict)> {
    let mut lists = Lists { conf, names, files, rules: Vec::new(), is_for_all: true };
    let found = statements(conf).map(|statement| {
        let verdict = lists.statement(statement, statement.name == conf.option("acl_smtp_rcpt"));
        (statement.line, format!("acl {}", statement.name), verdict)
    });
    let found = found.collect();
    // A rule that accepts does nothing where no rule is behind it.
    while lists.rules.last().is_some_and(|rule| rule.value("accept").is_some()) {
        lists.rules.pop();
    }
    lists.rules.into_iter().for_each(|rule| draft.push(rule));
    found
}

/// Returns the domains of a list, and the items that are none.
type Resolve<'a> = dyn Fn(&[String]) -> (Vec<String>, Vec<String>) + 'a;

/// Conditions that all hold, and those of which none holds.
type Case = (Vec<Condition>, Vec<Condition>);

struct Lists<'a> {
    conf: &'a Conf,
    names: &'a Resolve<'a>,
    files: &'a dyn Files,
    rules: Vec<Section>,
    /// True until hosts that may relay are accepted.
    is_for_all: bool,
}

/// The cases in which the conditions of a statement hold.
struct Compiled {
    cases: Vec<Case>,
    /// Parts that no rule can have.
    others: Vec<String>,
    /// True if an item that excludes something could not be read.
    is_too_wide: bool,
}

impl Lists<'_> {
    fn statement(&mut self, statement: &Setting, is_of_recipients: bool) -> Verdict {
        let text: String = statement.value.replace('\n', "; ").chars().take(120).collect();
        let by_hand = |what: &str| Verdict::Missing(format!("{text}: {what}"));
        let (verb, mut parts) = parts(&statement.value);
        let message = parts.iter().find_map(|part| part.strip_prefix("message = "));
        let reply = message.map_or_else(|| "Access denied".to_owned(), reply);
        let only_same = parts.iter().all(|part| is_same(part));
        if verb == "warn" {
            return if only_same {
                Verdict::Mapped
            } else {
                by_hand("write a [[rule]] with `tag` or `add_header`")
            };
        }
        // Recipients that do not exist are refused without a statement, too.
        let is_recipient_check = parts.iter().any(|part| part == "!verify = recipient");
        if only_same && (verb != "deny" || !is_of_recipients) || is_recipient_check && verb == "deny" {
            return Verdict::Mapped;
        }
        if !is_of_recipients {
            return by_hand("write a [[rule]] or [checks]; see docs/rules.md");
        }
        parts.retain(|part| !is_same(part));
        if parts.iter().any(|part| part == "hosts = :") {
            return Verdict::Mapped;
        }
        if parts.is_empty() {
            return if statement_ends(&statement.value) {
                Verdict::Mapped
            } else {
                by_hand("write a [[rule]]")
            };
        }
        match verb {
            "accept" => self.accept(&parts, &by_hand),
            "require" => {
                // Each condition must hold.
                let verdicts: Vec<Verdict> = parts
                    .iter()
                    .map(|part| {
                        let part = part.strip_prefix('!').map_or_else(|| format!("!{part}"), str::to_owned);
                        self.refuse("deny", &[part], &reply, &by_hand)
                    })
                    .collect();
                verdicts.into_iter().find(|verdict| *verdict != Verdict::Mapped).unwrap_or(Verdict::Mapped)
            }
            "deny" | "drop" | "defer" | "discard" => self.refuse(verb, &parts, &reply, &by_hand),
            _ => by_hand("write a [[rule]]; see docs/rules.md"),
        }
    }

    fn accept(&mut self, parts: &[String], by_hand: &dyn Fn(&str) -> Verdict) -> Verdict {
        let is_relay = parts.iter().all(|part| part.starts_with("hosts = "));
        if is_relay || parts.iter().all(|part| part == "authenticated = *") {
            // The hosts are in relay.networks, and logins may relay.
            self.is_for_all = false;
            return Verdict::Mapped;
        }
        let compiled = self.compile(parts);
        if !compiled.others.is_empty() || compiled.is_too_wide {
            return by_hand(
                "what it accepts is not excepted from the rules below it: write a [[rule]] with `accept`",
            );
        }
        for (conditions, excluded) in compiled.cases {
            let rule = rule(&format!("accept {}", parts.join(", ")), &conditions, &excluded);
            self.rules.push(self.for_clients(rule).with("accept", true));
        }
        // Only hosts and logins let a client relay: this lets no sender do so.
        if !parts.iter().any(|part| part.starts_with("domains = ") || part.starts_with("recipients = ")) {
            let text = "mail that it accepts for other domains is not relayed; write the networks of its clients into relay.networks";
            return Verdict::Note(text.to_owned());
        }
        Verdict::Mapped
    }

    fn refuse(
        &mut self,
        verb: &str,
        parts: &[String],
        text: &str,
        by_hand: &dyn Fn(&str) -> Verdict,
    ) -> Verdict {
        let (domains, names) = (parts.iter().any(|part| part.starts_with("domains")), "local_parts = ");
        let odd_names = parts.iter().find_map(|part| part.strip_prefix(names));
        if odd_names.is_some_and(|names| list_items(names).iter().all(|item| item.starts_with('^')))
            && (domains || parts.len() == 1)
        {
            return Verdict::Note(
                "names with these characters are refused only if nobody has them".to_owned(),
            );
        }
        // Clients that may not relay are refused for other domains without a rule.
        let is_known =
            |item: String| item.starts_with('+') && (item.contains("local") || item.contains("relay"));
        if let [part] = parts
            && let Some(domains) = part.strip_prefix("!domains = ")
            && !self.is_for_all
            && list_items(domains).into_iter().all(is_known)
        {
            return Verdict::Mapped;
        }
        let compiled = self.compile(parts);
        // A condition that is left out would refuse more, or everything: such mail waits, if something else holds.
        if !compiled.others.is_empty() && compiled.cases.is_empty() {
            return by_hand(
                "what it refuses is accepted now: write a [[rule]] or [checks]; see docs/rules.md",
            );
        }
        let (key, value) = match verb {
            _ if compiled.is_too_wide => ("defer", Value::from(format!("450 4.7.1 {text}"))),
            "defer" => ("defer", Value::from(format!("450 4.7.1 {text}"))),
            "discard" => ("discard", true.into()),
            _ => ("reject", Value::from(format!("550 5.7.1 {text}"))),
        };
        for (conditions, excluded) in compiled.cases {
            let rule = rule(&format!("{verb} {}", parts.join(", ")), &conditions, &excluded);
            self.rules.push(self.for_clients(rule).with(key, value.clone()));
        }
        if compiled.is_too_wide {
            by_hand("mail that it may refuse waits: an item that it excepts could not be read")
        } else if compiled.others.is_empty() {
            Verdict::Mapped
        } else {
            Verdict::Missing(format!("write a [[rule]] for: {}", compiled.others.join(", ")))
        }
    }

    fn for_clients(&self, rule: Section) -> Section {
        if self.is_for_all { rule.with("for", "all") } else { rule }
    }

    /// Returns the cases in which all conditions hold; none if one of them has no counterpart.
    fn compile(&self, parts: &[String]) -> Compiled {
        let mut compiled = Compiled { cases: vec![Case::default()], others: Vec::new(), is_too_wide: false };
        // Both are about the recipient: a rule has one condition for them.
        let both =
            parts.iter().filter(|part| part.starts_with("domains = ") || part.starts_with("local_parts = "));
        let is_both = both.count() == 2;
        for part in parts {
            let (name, value) = part.split_once(" = ").unwrap_or((part, ""));
            let (is_negated, name) = name.strip_prefix('!').map_or((false, name), |name| (true, name));
            let found = match name {
                "domains" if is_both => continue,
                "local_parts" if is_both => self.recipients(parts, value),
                _ => self.items_of(name, value),
            };
            let Some(mut found) = found else {
                compiled.others.push(part.clone());
                compiled.cases.clear();
                continue;
            };
            let hidden = found.others.iter().any(|item| item.starts_with('!'));
            compiled.is_too_wide |= hidden || is_negated && !found.others.is_empty();
            compiled.others.append(&mut found.others);
            let mut cases = Vec::new();
            for (conditions, excluded) in &compiled.cases {
                if is_negated {
                    // None of the items may hold; one with exceptions of its own cannot be turned around.
                    let mut excluded = excluded.clone();
                    for (condition, own) in &found.conditions {
                        compiled.is_too_wide |= !own.is_empty();
                        merge(&mut excluded, condition.clone());
                    }
                    cases.push((conditions.clone(), excluded));
                    continue;
                }
                for (condition, own) in &found.conditions {
                    if conditions.iter().any(|(name, _)| *name == condition.0) {
                        compiled.others.push(part.clone());
                        continue;
                    }
                    let (mut conditions, mut excluded) = (conditions.clone(), excluded.clone());
                    conditions.push(condition.clone());
                    own.iter().for_each(|one| merge(&mut excluded, one.clone()));
                    cases.push((conditions, excluded));
                }
            }
            compiled.cases = cases;
        }
        compiled
    }

    /// Returns what a condition is about; none if a rule cannot say it.
    fn items_of(&self, name: &str, value: &str) -> Option<Items> {
        let (kind, key) = match name {
            "hosts" => ("hostlist", "client"),
            "senders" => ("addresslist", "from"),
            "sender_domains" => ("domainlist", "from"),
            "domains" => ("domainlist", "to"),
            "recipients" => ("addresslist", "to"),
            "local_parts" => ("localpartlist", "to"),
            "authenticated" if value == "*" => return Some(Items::of("login", vec!["*".to_owned()])),
            "encrypted" if value == "*" => return Some(Items::of("tls", Vec::new())),
            _ => return None,
        };
        if value.contains("${") {
            return None;
        }
        if name == "senders" && value == ":" {
            return Some(Items::of("from", vec!["<>".to_owned()]));
        }
        let raw = self.conf.expanded(kind, value);
        let items = self.items(&raw);
        let mut found = match name {
            "hosts" => access::hosts(&items),
            "senders" => access::senders(&items),
            "recipients" => access::senders(&items).with_name("to"),
            "local_parts" => {
                let names: Vec<String> = items
                    .iter()
                    .map(|item| if item == "*" { item.clone() } else { format!("{item}@*") })
                    .collect();
                access::senders(&names).with_name("to")
            }
            _ => self.domains(&items).with_name(key),
        };
        if raw.last().is_some_and(|item| item.starts_with('!')) {
            found.add_rest(key);
        }
        Some(found)
    }

    fn domains(&self, items: &[String]) -> Items {
        let resolved = items.iter().flat_map(|item| {
            let (sign, plain) = item.strip_prefix('!').map_or(("", &**item), |rest| ("!", rest.trim_start()));
            let (names, others) = (self.names)(&[plain.to_owned()]);
            names.into_iter().chain(others).map(move |name| format!("{sign}{name}"))
        });
        access::senders(&resolved.collect::<Vec<_>>())
    }

    /// Returns addresses of names in domains, where both are plain lists.
    fn recipients(&self, parts: &[String], names: &str) -> Option<Items> {
        let domains = parts.iter().find_map(|part| part.strip_prefix("domains = "))?;
        let domains = self.items_of("domains", domains)?;
        let names = self.items_of("local_parts", names)?;
        let ([(domains, none)], [(names, also_none)]) = (&*domains.conditions, &*names.conditions) else {
            return None;
        };
        if !none.is_empty() || !also_none.is_empty() {
            return None;
        }
        let addresses = domains.1.iter().flat_map(|domain| {
            names.1.iter().map(move |name| format!("{}@{domain}", name.trim_end_matches("@*")))
        });
        Some(Items::of("to", addresses.collect()))
    }

    /// Returns the items of a list, with those of its files.
    fn items(&self, items: &[String]) -> Vec<String> {
        let mut found = Vec::new();
        for item in items {
            let (kind, file) = item.split_once(';').unwrap_or(("", item));
            let file = file.trim();
            let text = Some(file)
                .filter(|file| file.starts_with('/'))
                .and_then(|file| self.files.read(Path::new(file)));
            match text.map(|text| String::from_utf8_lossy(&text).into_owned()) {
                Some(text) if kind.is_empty() => found.extend(access::lines(&text)),
                Some(text) if kind.trim().trim_end_matches(['*', '@']).ends_with("lsearch") => {
                    found.extend(lookups::table(&text).into_iter().map(|(key, _)| key));
                }
                _ => found.push(item.clone()),
            }
        }
        found
    }
}

/// Returns whether a statement without conditions is one that accepts.
fn statement_ends(statement: &str) -> bool {
    statement.starts_with("accept") || statement.starts_with("require")
}

/// Returns the text of a message with the variables of a rule.
fn reply(message: &str) -> String {
    let known = [
        ("$sender_address", "\u{1}"),
        ("$sender_host_address", "\u{2}"),
        ("$local_part@$domain", "\u{3}"),
        ("$sender_helo_name", "\u{4}"),
    ];
    let text = known.iter().fold(message.to_owned(), |text, (name, mark)| text.replace(name, mark));
    if text.contains('$') {
        return "Access denied".to_owned();
    }
    let marks = [("\u{1}", "{from}"), ("\u{2}", "{client}"), ("\u{3}", "{to}"), ("\u{4}", "{hello}")];
    let plain: String = text.chars().filter(|c| c.is_ascii() && !"{}\"".contains(*c)).collect();
    let text = marks.iter().fold(plain, |text, (mark, name)| text.replace(mark, name));
    text.chars().filter(|c| !c.is_control()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory_files::MemoryFiles;

    #[test]
    fn denied_senders_and_hosts_are_rules_in_their_order() {
        let files = MemoryFiles(&[("/etc/blocked", "*@bad.test:\n"), ("/etc/hosts.deny", "192.0.2.0/24\n")]);
        let conf = Conf::parse(
            b"acl_smtp_rcpt = check\ndomainlist local_domains = mx.test\nbegin acl\ncheck:\n  accept hosts = :\n  accept local_parts = postmaster\n         domains = +local_domains\n\
              \x20 deny message = $sender_address is blocked\n       senders = lsearch*@;/etc/blocked\n  accept hosts = +relay_from_hosts\n\
              \x20 defer hosts = /etc/hosts.deny\n  accept local_parts = postmaster\n  deny dnslists = x.test\n",
        );
        let mut draft = Draft::new(&[]);
        let found = convert(&conf, &|items| (items.to_vec(), Vec::new()), &files, &mut draft);
        let missing: Vec<usize> = found
            .iter()
            .filter(|(_, _, verdict)| *verdict != Verdict::Mapped)
            .map(|(line, _, _)| *line)
            .collect();
        assert_eq!(missing, [12, 13]);
        let toml = draft.as_toml();
        for line in [
            "to = [\"postmaster@mx.test\"]\nfor = \"all\"\naccept = true",
            "from = [\"bad.test\"]\nfor = \"all\"\nreject = \"550 5.7.1 {from} is blocked\"",
            "client = [\"192.0.2.0/24\"]\ndefer = \"450 4.7.1 Access denied\"",
        ] {
            assert!(toml.contains(line), "{line}: {toml}");
        }
        assert_eq!(toml.matches("[[rule]]").count(), 3, "{toml}");
    }

    fn imported(text: &str) -> (Draft, Vec<(usize, String, Verdict)>) {
        let conf = Conf::parse(text.as_bytes());
        let mut draft = Draft::new(&[]);
        let names = |items: &[String]| (items.to_vec(), Vec::new());
        let found = convert(&conf, &names, &MemoryFiles(&[]), &mut draft);
        (draft, found)
    }

    #[test]
    fn all_conditions_of_a_statement_hold_together() {
        let (draft, found) = imported(
            "acl_smtp_rcpt = check\ndomainlist local_domains = mx.test\nhostlist friends = 10.0.0.0/8\nbegin acl\ncheck:\n\
             deny hosts = !+friends\n domains = +local_domains\n local_parts = boss : staff\n\
             deny !authenticated = *\n senders = *@mx.test\n require !encrypted = *\n discard senders = :\n hosts = 192.0.2.1\n",
        );
        let toml = draft.as_toml();
        for rule in [
            "to = [\"boss@mx.test\", \"staff@mx.test\"]\nunless = { client = [\"10.0.0.0/8\"] }\nfor = \"all\"\nreject",
            "from = [\"mx.test\"]\nunless = { login = [\"*\"] }\nfor = \"all\"\nreject",
            "tls = true\nfor = \"all\"\nreject",
            "from = [\"<>\"]\nclient = [\"192.0.2.1\"]\nfor = \"all\"\ndiscard = true",
        ] {
            assert!(toml.contains(rule), "{rule}: {toml}");
        }
        assert!(found.iter().all(|(_, _, verdict)| *verdict == Verdict::Mapped), "{found:?}");
    }

    #[test]
    fn mail_waits_where_an_exception_cannot_be_read() {
        let (draft, found) = imported(
            "acl_smtp_rcpt = check\nbegin acl\ncheck:\n deny hosts = !+unknown : 192.0.2.0/24\n deny dnslists = x.test\n accept\n",
        );
        assert!(
            draft.as_toml().contains("client = [\"192.0.2.0/24\"]\nfor = \"all\"\ndefer = \"450"),
            "{}",
            draft.as_toml()
        );
        let missing = found.iter().filter(|(_, _, verdict)| matches!(verdict, Verdict::Missing(_)));
        assert_eq!(missing.count(), 2, "{found:?}");
    }

    #[test]
    fn statements_and_not_names_of_lists_let_hosts_relay() {
        let conf = |acl: &str| {
            Conf::parse(format!("acl_smtp_rcpt = check\nhostlist relay_from_hosts = 10.0.0.0/8\ndomainlist relay_to_domains = a.test\nbegin acl\ncheck:\n{acl}").as_bytes())
        };
        let open = conf(
            " accept hosts = +relay_from_hosts : 192.0.2.1\n control = submission\n require domains = +relay_to_domains\n accept\n",
        );
        assert_eq!(relay_hosts(&open), ["10.0.0.0/8", "192.0.2.1"]);
        assert!(takes_domains(&open, "relay_to_domains"));
        let closed = conf(" accept hosts = +relay_from_hosts\n senders = *@a.test\n deny\n");
        assert!(relay_hosts(&closed).is_empty() && !takes_domains(&closed, "relay_to_domains"));
    }
}
