//! Lists in conditions of access control lists: hosts, senders, domains and names, with exceptions, files and other lists.

use super::{Files, lookups, monolithic::domain_names, networks};
use crate::{
    Draft,
    decision::{Case, Condition, Term, add},
    exim::conf::Conf,
};
use std::path::Path;

/// More patterns stand in a file.
const PATTERNS_MAX: usize = 50;

/// Which patterns a list has, as far as they could be read.
#[derive(Debug, Clone, Default)]
pub(super) struct List {
    pub(super) term: Term,
    /// Items that no rule can have.
    pub(super) others: Vec<String>,
    /// An exception could not be read: the condition holds for too much.
    pub(super) is_too_wide: bool,
}

/// Reads lists of a configuration.
pub(super) struct Reader<'a> {
    pub(super) conf: &'a Conf,
    pub(super) files: &'a dyn Files,
    pub(super) hostname: &'a str,
    /// `user+detail` is an address of `user` for rules, and no name of a list.
    pub(super) has_details: bool,
}

impl Reader<'_> {
    /// Returns the items of a list of domains with their patterns; those without are left out.
    fn domains(&self, item: &str) -> Option<Vec<String>> {
        let (names, others) = domain_names(self.hostname, self.files, &[item.to_owned()]);
        others.is_empty().then_some(names)
    }

    /// Reads the value of a condition. None if it is about nothing that a rule knows.
    pub(super) fn list(&self, name: &str, value: &str, draft: &mut Draft) -> Option<List> {
        let (kind, key) = match name {
            "hosts" => ("hostlist", "client"),
            "senders" => ("addresslist", "from"),
            "sender_domains" => ("domainlist", "from"),
            "domains" => ("domainlist", "to"),
            "recipients" => ("addresslist", "to"),
            "local_parts" => ("localpartlist", "to"),
            _ => return None,
        };
        let value = existing(value, self.files);
        if value.contains("${") {
            return Some(List { others: vec![value], ..List::default() });
        }
        let mut list = List::default();
        let mut excluded: Vec<Condition> = Vec::new();
        let details = || ("to", vec!["regex:details".to_owned()]);
        let raw = self.conf.expanded(kind, &value);
        let items = match &*value {
            // The list of nobody but the sender without an address, or of programs of this machine.
            ":" if name == "senders" => vec![String::new()],
            _ => self.items(&raw),
        };
        // A client without a name is in no list behind the first name in it, unless the list says otherwise.
        let (mut ignores_unknown, mut has_name) = (false, false);
        for item in &items {
            if item == "+ignore_unknown" {
                ignores_unknown = true;
                continue;
            }
            let (is_excluded, plain) =
                item.strip_prefix('!').map_or((false, &**item), |rest| (true, rest.trim_start()));
            let patterns = match key {
                "client" => host(plain),
                _ if kind == "domainlist" => self.domains(plain).map(|names| (key, names)),
                _ if name == "local_parts" => named(plain).map(|name| (key, vec![name])),
                _ => address(plain).map(|pattern| (key, vec![pattern])),
            };
            let patterns = patterns.or_else(|| Some((key, vec![expression(kind, plain, draft)?])));
            let Some((of, patterns)) = patterns else {
                list.others.push(item.clone());
                list.is_too_wide |= is_excluded;
                continue;
            };
            if patterns.is_empty() {
                continue;
            }
            let is_behind_name = has_name && of == "client";
            has_name |= of == "client_name" && !ignores_unknown;
            if is_excluded {
                add(&mut excluded, (of, patterns));
                continue;
            }
            let mut but = excluded.clone();
            if is_behind_name {
                add(&mut but, ("client_name", vec!["none".to_owned()]));
            }
            let is_all = patterns.iter().any(|pattern| matches!(&**pattern, "0.0.0.0/0" | "*"))
                && (of != "from" || name == "sender_domains");
            if self.has_details
                && of == "to"
                && patterns.iter().any(|pattern| pattern.contains('@') && !pattern.contains(':'))
            {
                draft.add_file("details", "/^[^@]*\\+/ x\n".to_owned(), false);
                add(&mut but, details());
            }
            let only = (!is_all).then_some((of, patterns));
            match (list.term.cases.last_mut(), only) {
                (Some(Case { only: Some((last, all)), excluded }), Some((of, patterns)))
                    if *last == of && *excluded == but =>
                {
                    all.extend(patterns);
                }
                (_, only) => list.term.cases.push(Case { only, excluded: but }),
            }
        }
        // A list whose last item is an exception is for all others; the last line of a file is no such item.
        if raw.last().is_some_and(|item| item.starts_with('!')) {
            list.term.cases.push(Case { only: None, excluded });
        }
        for (number, case) in list.term.cases.iter_mut().enumerate() {
            let Some((of, patterns)) =
                case.only.as_mut().filter(|(of, all)| *of != "client" && all.len() > PATTERNS_MAX)
            else {
                continue;
            };
            let line = |pattern: &String| match pattern.strip_prefix('*') {
                Some(below) => format!("{below} x\n"),
                None => format!("{} x\n", pattern.trim_end_matches('*')),
            };
            let file = format!("{name}-{}-{number}", draft.files.len());
            if patterns.iter().all(|pattern| !matches!(&**pattern, "<>" | "*")) && *of != "client_name" {
                draft.add_file(&file, patterns.iter().map(line).collect(), false);
                *patterns = vec![format!("text:{file}")];
            }
        }
        Some(list)
    }

    /// Returns the items of a list, with those of its files.
    fn items(&self, items: &[String]) -> Vec<String> {
        let mut found = Vec::new();
        for item in items {
            let (sign, plain) = item.strip_prefix('!').map_or(("", &**item), |rest| ("!", rest));
            let (kind, file) = plain.split_once(';').unwrap_or(("", plain));
            let file = file.trim();
            let text = Some(file)
                .filter(|file| file.starts_with('/'))
                .and_then(|file| self.files.read(Path::new(file)))
                .map(|text| String::from_utf8_lossy(&text).into_owned());
            let inner: Vec<String> = match text {
                Some(text) if kind.is_empty() => lines(&text),
                Some(text)
                    if matches!(kind.trim().trim_end_matches(['*', '@']), "lsearch" | "net-lsearch") =>
                {
                    lookups::table(&text).into_iter().map(|(key, _)| key).collect()
                }
                _ => vec![plain.to_owned()],
            };
            // `!` in front of a file is for each of its lines.
            found.extend(inner.into_iter().map(|inner| match (sign, inner.strip_prefix('!')) {
                ("", _) => inner,
                (_, Some(twice)) => twice.to_owned(),
                (_, None) => format!("!{inner}"),
            }));
        }
        found
    }
}

/// Returns the lines of a file that stands in a list.
fn lines(text: &str) -> Vec<String> {
    let plain = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    plain.filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// Replaces `${if exists{FILE}{A}{B}}` by what it stands for.
pub(super) fn existing(text: &str, files: &dyn Files) -> String {
    let found = || {
        let (before, rest) = text.split_once("${if exists")?;
        let (file, rest) = lookups::group(rest)?;
        let (yes, rest) = lookups::group(&rest)?;
        let (no, rest) = lookups::group(&rest).unwrap_or((String::new(), rest));
        let chosen = if files.exists(Path::new(file.trim())) { yes } else { no };
        Some(format!("{before}{}{}", chosen.trim(), rest.strip_prefix('}')?))
    };
    found().map_or_else(|| text.trim().to_owned(), |text| text.trim().to_owned())
}

/// Reads an item of a list of addresses: `user@domain`, `*@domain`, `domain`; nothing for the sender without an address.
fn address(item: &str) -> Option<String> {
    let plain = item.to_lowercase();
    let pattern = plain.strip_prefix("*@").unwrap_or(&plain);
    match pattern {
        "" | "<>" => Some("<>".to_owned()),
        "*" => Some(pattern.to_owned()),
        _ if pattern.contains(['^', '$', '{', ';', '+', '/', ' ']) || pattern.starts_with('@') => None,
        _ => {
            let (local, domain) = pattern.rsplit_once('@').unwrap_or(("", pattern));
            let is_domain = crate::places::is_domain(domain.trim_start_matches("*."));
            (is_domain && !local.contains('*')).then(|| pattern.to_owned())
        }
    }
}

/// Returns a map with a regular expression for addresses; none if Postrider could not read it.
fn expression(kind: &str, item: &str, draft: &mut Draft) -> Option<String> {
    let raw = item.strip_prefix("\\N").map(|rest| rest.strip_suffix("\\N").unwrap_or(rest).to_owned());
    // A backslash of an expansion is for the character behind it.
    let mut chars = item.chars();
    let plain = || {
        let mut text = String::new();
        while let Some(c) = chars.next() {
            text.extend(if c == '\\' { chars.next() } else { Some(c) });
        }
        text
    };
    let text = raw.unwrap_or_else(plain);
    let digit = text.split('\\').skip(1).any(|part| part.starts_with(|c: char| c.is_ascii_digit()));
    let (open, end) = text.strip_suffix('$').map_or((&*text, ".*"), |open| (open, ""));
    let is_simple =
        open.starts_with('^') && !open.contains("(?") && !open.contains(['~', '$', '{']) && !digit;
    let whole = match kind {
        "addresslist" => text.clone(),
        // A local part ends at the last `@`.
        "localpartlist" => format!("{open}{end}@[^@]*$"),
        _ => return None,
    };
    let number = draft.files.len();
    is_simple.then(|| {
        draft.add_file(&format!("expression-{number}"), format!("~{whole}~ x\n"), false);
        format!("regex:expression-{number}")
    })
}

/// Reads an item of a list of local parts.
fn named(item: &str) -> Option<String> {
    let is_odd = item.is_empty() || item.contains(['^', '$', '{', ';', '/', ' ', ':', '@', '"', '+']);
    match item {
        "*" => Some(item.to_owned()),
        _ => (!is_odd && !item.contains('*')).then(|| format!("{}@*", item.to_lowercase())),
    }
}

/// Reads an item of a list of hosts: an address, a network, or a name.
fn host(item: &str) -> Option<Condition> {
    let is_name = item.contains('.')
        && item.bytes().all(|b| b.is_ascii_alphanumeric() || b"-.*".contains(&b))
        && !item[1..].contains('*');
    match networks(&[item.to_owned()]).0.pop() {
        Some(network) => Some(("client", vec![network])),
        None if item == "*" => Some(("client", vec!["0.0.0.0/0".to_owned(), "::/0".to_owned()])),
        None => is_name.then(|| ("client_name", vec![item.to_lowercase()])),
    }
}
