//! Expansions that look something up in a file, and the files.

use crate::places::is_domain;
use crate::{Draft, Files, draft::Section};
use mail::Domain;
use std::path::Path;

/// Patterns of domains, with their hosts.
pub(super) type Routes = Vec<(Vec<String>, Vec<String>)>;

/// `${lookup{KEY}partial-lsearch*@{FILE}}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lookup {
    pub(super) key: String,
    /// True if `*.domain` is looked up, too.
    pub(super) is_partial: bool,
    /// True if `*@domain` is looked up, too.
    pub(super) has_domain_default: bool,
    /// True if `*` is looked up, too.
    pub(super) has_default: bool,
    pub(super) file: String,
}

impl Lookup {
    /// Reads an expansion that is one look-up of a text file, within `${expand:…}` or not, and with `{$value}` behind it or not.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let inner = text.strip_prefix("${expand:").and_then(|rest| rest.strip_suffix('}')).unwrap_or(text);
        let rest = inner.trim().strip_prefix("${lookup")?.strip_suffix('}')?;
        let (key, rest) = group(rest)?;
        let (kind, rest) = rest.split_once('{')?;
        let (file, rest) = group(&format!("{{{rest}"))?;
        if !matches!(&*rest.replace(' ', ""), "" | "{$value}" | "{$value}fail" | "{$value}{}") {
            return None;
        }
        let kind = kind.trim();
        let is_partial = kind.starts_with("partial-");
        let name = kind.strip_prefix("partial-").unwrap_or(kind);
        let (name, has_default, has_domain_default) = match name.strip_suffix("*@") {
            Some(name) => (name, true, true),
            None => (name.trim_end_matches('*'), name.ends_with('*'), false),
        };
        let file = file.trim().to_owned();
        (matches!(name, "lsearch" | "wildlsearch" | "nwildlsearch") && file.starts_with('/'))
            .then_some(Self { key, is_partial, has_domain_default, has_default, file })
    }

    /// Returns whether the key is a whole address.
    pub(super) fn is_for_addresses(&self) -> bool {
        self.key.contains('@')
    }
}

/// Cuts off what stands in the first pair of braces.
pub(super) fn group(text: &str) -> Option<(String, String)> {
    let inner = text.trim_start().strip_prefix('{')?;
    let mut depth = 1;
    for (at, c) in inner.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some((inner[..at].to_owned(), inner[at + 1..].trim().to_owned()));
        }
    }
    None
}

/// Reads a file for `lsearch`: `key: value`, with lines that continue the one before.
pub(super) fn table(text: &str) -> Vec<(String, String)> {
    let mut entries: Vec<(String, String)> = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
        if line.starts_with([' ', '\t']) {
            if let Some((_, value)) = entries.last_mut() {
                value.push(' ');
                value.push_str(line.trim());
            }
            continue;
        }
        let quoted = line.strip_prefix('"').and_then(|rest| rest.split_once('"'));
        let (key, rest) =
            quoted.unwrap_or_else(|| line.split_at(line.find([':', ' ', '\t']).unwrap_or(line.len())));
        // One colon ends the key; `:fail:` is a value.
        let rest = rest.trim();
        let value = rest.strip_prefix(':').unwrap_or(rest).trim();
        entries.push((key.trim().to_lowercase(), value.to_owned()));
    }
    entries
}

/// Returns the patterns of a route for a key of a table of domains.
pub(super) fn patterns(key: &str, is_partial: bool) -> Option<Vec<String>> {
    let below = key.strip_prefix("*.");
    let name = below.unwrap_or(key);
    Domain::parse(name).ok()?;
    Some(match (below, is_partial) {
        // A search by parts finds `*.example.com` for example.com, too.
        (Some(name), true) => vec![name.to_owned(), format!("*.{name}")],
        (Some(name), false) => vec![format!("*.{name}")],
        (None, _) => vec![name.to_owned()],
    })
}

/// Returns the entries of a table of hosts with the patterns of their routes, the exact ones first; and the keys that are none.
pub(super) fn host_table(text: &str, is_partial: bool) -> (Vec<(Vec<String>, String)>, Vec<String>) {
    let mut table = table(text);
    table.sort_by_key(|(key, _)| (key.starts_with('*'), std::cmp::Reverse(key.len())));
    let (mut found, mut others) = (Vec::new(), Vec::new());
    for (key, value) in table {
        match patterns(&key, is_partial) {
            Some(patterns) => found.push((patterns, value)),
            None => others.push(key),
        }
    }
    (found, others)
}

/// Returns the hosts of a list such as `hub.example.com : backup.example.com byname`.
pub(super) fn hosts(value: &str) -> Vec<String> {
    let list = value.split_whitespace().filter(|word| !matches!(*word, "byname" | "bydns" | "randomize"));
    let list: Vec<&str> = list.collect();
    let text = list.join(" ");
    crate::exim::conf::list_items(&text)
}

/// Returns the login at a host that Debian's `passwd.client` has.
pub(super) fn client_password(files: &dyn Files, host: &str) -> Option<(String, String)> {
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let file = files.read(Path::new("/etc/exim4/passwd.client"))?;
    let text = String::from_utf8_lossy(&file).into_owned();
    text.lines().filter(|line| !line.trim_start().starts_with('#')).find_map(|line| {
        let (pattern, rest) = line.split_once(':')?;
        let (user, password) = rest.split_once(':')?;
        let fits = pattern == name || pattern.strip_prefix('*').is_some_and(|end| name.ends_with(end));
        fits.then(|| (user.to_owned(), password.replace("^^", "^")))
    })
}

/// Virtual addresses, as lines of a map and as rules.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    lines: String,
    refused: Vec<Section>,
    /// Entries without a counterpart.
    pub(super) others: Vec<String>,
}

impl Addresses {
    /// Adds an entry: an address, or `@domain` for the rest of a domain.
    pub(super) fn add(&mut self, address: &str, value: &str) {
        let rule = || {
            let pattern = address.strip_prefix('@').unwrap_or(address);
            Section::new("[[rule]]", format!("virtual: {address}"))
                .with("for", "all")
                .with("to", vec![pattern.to_owned()])
        };
        let lower = value.to_lowercase();
        if let Some(text) = lower.strip_prefix(":fail:") {
            let text = &value[value.len() - text.len()..];
            let text = if text.trim().is_empty() { "User unknown" } else { text.trim() };
            self.refused.push(rule().with("reject", format!("550 5.1.1 {}", reply_text(text))));
        } else if lower.starts_with(":blackhole:") {
            self.refused.push(rule().with("discard", true));
        } else if value.is_empty() || value.contains(['|', '/', '$']) || value.starts_with(':') {
            self.others.push(format!("{address}: {value}"));
        } else {
            self.lines.push_str(&format!("{address} {value}\n"));
        }
    }

    pub(super) fn write(self, draft: &mut Draft, from: &str) {
        self.refused.into_iter().for_each(|section| draft.push(section));
        if !self.lines.is_empty() {
            draft.append_file("virtual", &self.lines);
            draft.extend("[addresses]", "virtual", ["text:virtual".to_owned()], from);
        }
    }
}

/// Returns a text that can stand in a reply.
pub(super) fn reply_text(text: &str) -> String {
    text.chars().filter(|c| c.is_ascii() && !c.is_control() && !"{}\"".contains(*c)).collect()
}

/// Reads a table of addresses for the domains of a router. Returns the entries without a counterpart.
pub(super) fn addresses(lookup: &Lookup, text: &str, domains: &[String], found: &mut Addresses) {
    for (key, value) in table(text) {
        match key.split_once('@') {
            Some(("*", domain)) if lookup.has_domain_default => found.add(&format!("@{domain}"), &value),
            Some(_) => found.add(&key, &value),
            None if key == "*" && lookup.has_default => {
                domains.iter().for_each(|domain| found.add(&format!("@{domain}"), &value));
            }
            None if lookup.is_for_addresses() => found.others.push(format!("{key}: {value}")),
            None => domains.iter().for_each(|domain| found.add(&format!("{key}@{domain}"), &value)),
        }
    }
}

/// Returns the names of the files of a directory that are domains.
pub(super) fn domains_of_dir(files: &dyn Files, dir: &str) -> Vec<String> {
    let names = files.list(Path::new(dir)).into_iter().map(|name| name.to_lowercase());
    names.filter(|name| is_domain(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn look_ups_have_a_key_a_kind_and_a_file() {
        let lookup = Lookup::parse("${lookup{$domain}partial-lsearch{/etc/exim4/hubbed_hosts}}").unwrap();
        assert_eq!(
            (&*lookup.key, lookup.is_partial, &*lookup.file),
            ("$domain", true, "/etc/exim4/hubbed_hosts")
        );
        let text = "${expand:${lookup{$local_part@$domain}lsearch*@{/etc/virtual}{$value}}}";
        let lookup = Lookup::parse(text).unwrap();
        assert!(lookup.has_domain_default && lookup.has_default && lookup.is_for_addresses());
        assert_eq!(Lookup::parse("${lookup mysql{SELECT}}"), None);
        assert_eq!(Lookup::parse("${lookup{$domain}cdb{/x}}"), None);
    }

    #[test]
    fn tables_have_keys_with_colons_quotes_and_continued_lines() {
        let entries =
            table("# c\na.test: hub\n\"b c\": x,\n  y\n*.D.test  old : new\n\nalone\nboss: :fail: no\n");
        let expected = [
            ("a.test", "hub"),
            ("b c", "x, y"),
            ("*.d.test", "old : new"),
            ("alone", ""),
            ("boss", ":fail: no"),
        ];
        assert_eq!(entries, expected.map(|(key, value)| (key.to_owned(), value.to_owned())));
        let (found, others) = host_table("*.d.test: old\na.test: hub\n*: x\n", true);
        assert_eq!(found[0], (vec!["a.test".to_owned()], "hub".to_owned()));
        assert_eq!(found[1], (vec!["d.test".to_owned(), "*.d.test".to_owned()], "old".to_owned()));
        assert_eq!(others, ["*"]);
        assert_eq!(hosts("hub.test::26 byname"), ["hub.test:26"]);
        assert_eq!(hosts("a : b"), ["a", "b"]);
    }
}
