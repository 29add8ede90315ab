//! Statements of access control lists.

use super::{Draft, Files, Section, access, lookups};
use crate::{
    Verdict,
    draft::Value,
    exim::conf::{Conf, Setting, list_items},
};
use std::path::Path;

/// Conditions and modifiers that say what Postrider does anyway.
const SAME: [&str; 14] = [
    "hosts = :",
    "hosts = +relay_from_hosts",
    "domains = +local_domains",
    "domains = +relay_to_domains",
    "authenticated = *",
    "control = ",
    "verify = recipient",
    "message = ",
    "logwrite = ",
    "endpass",
    "local_parts = postmaster",
    "encrypted = *",
    "require",
    "domains = +local_domains : +relay_to_domains",
];

/// Converts the statements, in their order. Returns each with its line and what became of it.
pub(super) fn convert(
    conf: &Conf,
    local: Vec<String>,
    files: &dyn Files,
    draft: &mut Draft,
) -> Vec<(usize, String, Verdict)> {
    let mut lists = Lists { local, files, rules: Vec::new(), is_for_all: true };
    let of_recipients = conf.option("acl_smtp_rcpt").to_owned();
    let statements = conf.acl.iter().filter(|one| !one.value.is_empty());
    let found = statements.map(|statement| {
        let verdict = lists.statement(statement, statement.name == of_recipients);
        (statement.line, format!("acl {}", statement.name), verdict)
    });
    let found = found.collect();
    // A rule that accepts does nothing where no rule is behind it.
    while lists.rules.last().is_some_and(|(_, accepts)| *accepts) {
        lists.rules.pop();
    }
    lists.rules.into_iter().for_each(|(rule, _)| draft.push(rule));
    found
}

struct Lists<'a> {
    /// The local domains.
    local: Vec<String>,
    files: &'a dyn Files,
    /// Rules, and whether each accepts.
    rules: Vec<(Section, bool)>,
    /// True until hosts that may relay are accepted.
    is_for_all: bool,
}

impl Lists<'_> {
    fn statement(&mut self, statement: &Setting, is_of_recipients: bool) -> Verdict {
        let (verb, rest) = statement.value.split_once([' ', ';']).unwrap_or((&statement.value, ""));
        let parts = rest.split(';').map(str::trim).filter(|part| !part.is_empty());
        let parts: Vec<String> =
            parts.map(|part| part.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        let is_same = parts.iter().all(|part| {
            SAME.iter().any(|same| part == *same || same.ends_with("= ") && part.starts_with(same))
        });
        let is_deny = matches!(verb, "deny" | "drop" | "defer");
        let is_plain_deny = is_deny && parts.iter().all(|part| part.starts_with("message"));
        if is_of_recipients && verb == "accept" && is_same {
            self.accept(&parts);
        }
        if is_same && (!is_deny || is_plain_deny) {
            return Verdict::Mapped;
        }
        if is_of_recipients && is_deny {
            // The statement has its lists in one piece: `;` is also a part of `lsearch;/file`.
            if let Some(verdict) = self.deny(verb, rest) {
                return verdict;
            }
        }
        let text: String = statement.value.chars().take(120).collect();
        Verdict::Missing(format!("{text}: write a [[rule]] or [checks]; see docs/rules.md"))
    }

    fn accept(&mut self, parts: &[String]) {
        let has = |text: &str| parts.iter().any(|part| part == text);
        if has("local_parts = postmaster") {
            let rule = Section::new("[[rule]]", "accept local_parts = postmaster").with("for", "all");
            let is_local = has("domains = +local_domains") && !self.local.is_empty();
            let names = self.local.iter().map(|domain| format!("postmaster@{domain}"));
            let to = if is_local { names.collect() } else { vec!["postmaster@*".to_owned()] };
            self.rules.push((rule.with("to", to).with("accept", true), true));
        }
        self.is_for_all &= !has("hosts = +relay_from_hosts");
    }

    /// Reads `deny` with one list of senders or hosts.
    fn deny(&mut self, verb: &str, rest: &str) -> Option<Verdict> {
        const NAMES: [&str; 7] =
            ["message", "log_message", "senders", "sender_domains", "hosts", "domains", "local_parts"];
        // `; name = ` begins the next condition.
        let mut parts: Vec<(String, String)> = Vec::new();
        for piece in rest.split(';') {
            let begins = piece.split_once('=').map(|(name, value)| (name.trim(), value.trim()));
            match begins.filter(|(name, _)| NAMES.contains(name)) {
                Some((name, value)) => parts.push((name.to_owned(), value.to_owned())),
                None => {
                    let (_, value) = parts.last_mut()?;
                    value.push(';');
                    value.push_str(piece);
                }
            }
        }
        let of = |wanted: &str| parts.iter().find(|(name, _)| name == wanted).map(|(_, value)| &**value);
        let conditions: Vec<&str> =
            parts.iter().map(|(name, _)| &**name).filter(|name| !name.ends_with("message")).collect();
        let items = match *conditions {
            ["senders"] => access::senders(&self.items(of("senders")?)),
            ["sender_domains"] => access::senders(&self.items(of("sender_domains")?)),
            ["hosts"] => access::hosts(&self.items(of("hosts")?)),
            ["domains", "local_parts"] | ["local_parts", "domains"]
                if list_items(of("local_parts")?).iter().all(|item| item.starts_with('^')) =>
            {
                return Some(Verdict::Note(
                    "names with these characters are refused only if nobody has them".to_owned(),
                ));
            }
            _ => return None,
        };
        let text = of("message").map_or_else(|| "Access denied".to_owned(), reply);
        let (key, reply) = match verb {
            "defer" => ("defer", format!("450 4.7.1 {text}")),
            _ => ("reject", format!("550 5.7.1 {text}")),
        };
        for rule in items.rules(&format!("{verb} {}", conditions[0])) {
            let rule = if self.is_for_all { rule.with("for", "all") } else { rule };
            self.rules.push((rule.with(key, Value::from(reply.clone())), false));
        }
        Some(if items.others.is_empty() {
            Verdict::Mapped
        } else {
            Verdict::Missing(format!("write a [[rule]] for: {}", items.others.join(", ")))
        })
    }

    /// Returns the items of a list, with those of its files.
    fn items(&self, value: &str) -> Vec<String> {
        let mut found = Vec::new();
        for item in list_items(value) {
            let (kind, file) = item.split_once(';').unwrap_or(("", &item));
            let file = file.trim();
            let text = Some(file)
                .filter(|file| file.starts_with('/'))
                .and_then(|file| self.files.read(Path::new(file)));
            match text.map(|text| String::from_utf8_lossy(&text).into_owned()) {
                Some(text) if kind.is_empty() => found.extend(access::lines(&text)),
                Some(text) if kind.trim().trim_end_matches(['*', '@']).ends_with("lsearch") => {
                    found.extend(lookups::table(&text).into_iter().map(|(key, _)| key));
                }
                _ => found.push(item),
            }
        }
        found
    }
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
            b"acl_smtp_rcpt = check\nbegin acl\ncheck:\n  accept hosts = :\n  accept local_parts = postmaster\n         domains = +local_domains\n\
              \x20 deny message = $sender_address is blocked\n       senders = lsearch*@;/etc/blocked\n  accept hosts = +relay_from_hosts\n\
              \x20 defer hosts = /etc/hosts.deny\n  accept local_parts = postmaster\n  deny dnslists = x.test\n",
        );
        let mut draft = Draft::new(&[]);
        let found = convert(&conf, vec!["mx.test".to_owned()], &files, &mut draft);
        let missing: Vec<usize> = found
            .iter()
            .filter(|(_, _, verdict)| *verdict != Verdict::Mapped)
            .map(|(line, _, _)| *line)
            .collect();
        assert_eq!(missing, [12]);
        let toml = draft.as_toml();
        for line in [
            "for = \"all\"\nto = [\"postmaster@mx.test\"]\naccept = true",
            "from = [\"bad.test\"]\nfor = \"all\"\nreject = \"550 5.7.1 {from} is blocked\"",
            "client = [\"192.0.2.0/24\"]\ndefer = \"450 4.7.1 Access denied\"",
        ] {
            assert!(toml.contains(line), "{line}: {toml}");
        }
        assert_eq!(toml.matches("[[rule]]").count(), 3, "{toml}");
    }
}
