//! A configuration of Exim in one file: main options, lists, drivers, and the lines of its access control lists.

use crate::Files;
use std::{
    collections::{HashMap, VecDeque},
    path::Path,
};

/// A setting as it was read, after macros.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// In front of the equals sign.
    pub name: String,
    /// Behind it; `true` or `false` for a switch.
    pub value: String,
    /// Counted from 1.
    pub line: usize,
}

/// A router, a transport or an authenticator with its options.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Driver {
    /// In front of the colon.
    pub name: String,
    /// In the order of the file.
    pub options: Vec<Setting>,
    /// Counted from 1.
    pub line: usize,
}

impl Driver {
    /// Returns the value of an option; nothing if it is not there.
    pub fn option(&self, name: &str) -> &str {
        self.options.iter().find(|option| option.name == name).map_or("", |option| &option.value)
    }
}

/// What a configuration file of Exim says, by section.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Conf {
    /// Settings in front of the first section.
    pub main: Vec<Setting>,
    /// `domainlist`, `hostlist` and so on: the name has the kind in front, `domainlist local_domains`.
    pub lists: Vec<Setting>,
    /// Routers, in their order.
    pub routers: Vec<Driver>,
    /// In the order of the file.
    pub transports: Vec<Driver>,
    /// In the order of the file.
    pub authenticators: Vec<Driver>,
    /// Statements of access control lists: the name is the list.
    pub acl: Vec<Setting>,
    /// Lines of the sections `retry` and `rewrite`: the name is the section.
    pub rules: Vec<Setting>,
    /// Lines that could not be read.
    pub faults: Vec<(usize, String)>,
}

/// At most so many files are included.
const INCLUDES_MAX: usize = 100;
/// A line after macros is at most this long.
const LINE_MAX: usize = 1 << 16;

/// Cuts a file into logical lines: a backslash at the end continues a line.
fn logical_lines(text: &str) -> Vec<(usize, String)> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (number, line) in (1..).zip(text.lines()) {
        let trimmed = line.trim();
        if trimmed.starts_with('#') || (trimmed.is_empty() && open.is_some()) {
            continue;
        }
        let (part, goes_on) = match trimmed.strip_suffix('\\') {
            Some(part) => (part, true),
            None => (trimmed, false),
        };
        let mut current = open.take().unwrap_or((number, String::new()));
        current.1.push_str(part);
        if goes_on {
            open = Some(current);
        } else if !current.1.is_empty() {
            lines.push(current);
        }
    }
    lines.extend(open);
    lines
}

impl Conf {
    /// Reads a file, with those that it includes. Macros are replaced; `.ifdef` and `.ifndef` are obeyed.
    pub fn parse(file: &[u8], files: &dyn Files) -> Self {
        let text = String::from_utf8_lossy(file);
        let (mut lines, mut include_count) = (VecDeque::from(logical_lines(&text)), 0);
        let (mut conf, mut macros, mut section) = (Self::default(), Macros::default(), String::new());
        // For each open `.if…`: whether its lines count, and whether a branch has counted.
        let mut conditions: Vec<(bool, bool)> = Vec::new();
        while let Some((line, text)) = lines.pop_front() {
            let counts = conditions.iter().all(|(counts, _)| *counts);
            let include = text.strip_prefix(".include").filter(|_| counts).map(|name| macros.replace(name));
            if let Some(name) = include {
                let is_optional = name.starts_with("_if_exists");
                let name = name.trim_start_matches("_if_exists").trim().trim_matches('"');
                // Files that include one another end.
                include_count += 1;
                match files.read(Path::new(name)).filter(|_| include_count <= INCLUDES_MAX) {
                    Some(inner) => {
                        let inner = logical_lines(&String::from_utf8_lossy(&inner));
                        inner.into_iter().rev().for_each(|(_, text)| lines.push_front((line, text)));
                    }
                    None if is_optional => {}
                    None => conf.faults.push((line, text)),
                }
                continue;
            }
            if let Some(directive) = text.strip_prefix('.') {
                conf.directive(directive, line, &macros, &mut conditions);
                continue;
            }
            if !counts {
                continue;
            }
            if macros.define(&text) {
                continue;
            }
            let text = macros.replace(&text);
            if let Some(name) = text.strip_prefix("begin ") {
                name.trim().clone_into(&mut section);
                continue;
            }
            conf.line(&section, line, &text);
        }
        conf
    }

    fn directive(&mut self, text: &str, line: usize, macros: &Macros, conditions: &mut Vec<(bool, bool)>) {
        let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let is_defined = |rest: &str| rest.split_whitespace().any(|name| macros.values.contains_key(name));
        match word {
            "ifdef" => conditions.push((is_defined(rest), is_defined(rest))),
            "ifndef" => conditions.push((!is_defined(rest), !is_defined(rest))),
            "elifdef" | "elifndef" => {
                if let Some((counts, had)) = conditions.last_mut() {
                    *counts = !*had && (is_defined(rest) == (word == "elifdef"));
                    *had |= *counts;
                }
            }
            "else" => {
                if let Some((counts, had)) = conditions.last_mut() {
                    (*counts, *had) = (!*had, true);
                }
            }
            "endif" => drop(conditions.pop()),
            _ if conditions.iter().any(|(counts, _)| !counts) => {}
            _ => self.faults.push((line, format!(".{text}"))),
        }
    }

    fn line(&mut self, section: &str, line: usize, text: &str) {
        match section {
            "" => self.main_line(line, text),
            "routers" => driver_line(&mut self.routers, line, text),
            "transports" => driver_line(&mut self.transports, line, text),
            "authenticators" => driver_line(&mut self.authenticators, line, text),
            "acl" => {
                let is_name = text.ends_with(':') && !text.contains([' ', '=']);
                if is_name {
                    let name = text.trim_end_matches(':').to_owned();
                    self.acl.push(Setting { name, value: String::new(), line });
                } else if let Some(last) = self.acl.last().map(|last| last.name.clone()) {
                    let begins = ["accept", "deny", "defer", "discard", "drop", "require", "warn"];
                    let is_statement = begins.contains(&text.split_whitespace().next().unwrap_or_default());
                    match self.acl.last_mut() {
                        Some(open) if !is_statement && !open.value.is_empty() => {
                            open.value.push('\n');
                            open.value.push_str(text);
                        }
                        _ => self.acl.push(Setting { name: last, value: text.to_owned(), line }),
                    }
                } else {
                    self.faults.push((line, text.to_owned()));
                }
            }
            other => self.rules.push(Setting { name: other.to_owned(), value: text.to_owned(), line }),
        }
    }

    fn main_line(&mut self, line: usize, text: &str) {
        let text = text.strip_prefix("hide ").unwrap_or(text).trim();
        let first = text.split_whitespace().next().unwrap_or_default();
        if matches!(first, "domainlist" | "hostlist" | "addresslist" | "localpartlist") {
            match text.split_once('=') {
                Some((name, value)) => {
                    let name = name.split_whitespace().filter(|word| *word != "cache" && *word != "_cache");
                    let name = name.collect::<Vec<_>>().join(" ");
                    self.lists.push(Setting { name, value: value.trim().to_owned(), line });
                }
                None => self.faults.push((line, text.to_owned())),
            }
            return;
        }
        match setting(text, line) {
            Some(setting) => {
                self.main.retain(|other| other.name != setting.name);
                self.main.push(setting);
            }
            None => self.faults.push((line, text.to_owned())),
        }
    }

    /// Returns the value of a main option; nothing if it is not there.
    pub fn option(&self, name: &str) -> &str {
        self.main.iter().find(|option| option.name == name).map_or("", |option| &option.value)
    }

    /// Returns the items of a list; `+name` stands for another list.
    pub fn list(&self, kind: &str, name: &str) -> Vec<String> {
        let mut items = Vec::new();
        self.add_list(kind, name, 0, &mut items);
        items
    }

    fn add_list(&self, kind: &str, name: &str, depth: usize, items: &mut Vec<String>) {
        let wanted = format!("{kind} {name}");
        let Some(list) = self.lists.iter().find(|list| list.name == wanted).filter(|_| depth < 10) else {
            return;
        };
        self.expand(kind, &list.value, depth + 1, items);
    }

    /// Returns the items of a list that stands in an option or a condition.
    pub fn expanded(&self, kind: &str, value: &str) -> Vec<String> {
        let mut items = Vec::new();
        self.expand(kind, value, 0, &mut items);
        items
    }

    fn expand(&self, kind: &str, value: &str, depth: usize, items: &mut Vec<String>) {
        for item in list_items(value) {
            let (sign, plain) = item.strip_prefix('!').map_or(("", &*item), |rest| ("!", rest.trim_start()));
            let Some(other) = plain.strip_prefix('+') else {
                items.push(format!("{sign}{plain}"));
                continue;
            };
            let at = items.len();
            self.add_list(kind, other, depth, items);
            let wanted = format!("{kind} {other}");
            if !self.lists.iter().any(|list| list.name == wanted) {
                items.push(format!("{sign}+{other}"));
            } else if !sign.is_empty() {
                items[at..].iter_mut().for_each(|item| {
                    *item = item.strip_prefix('!').map_or_else(|| format!("!{item}"), str::to_owned);
                });
            }
        }
    }
}

/// Reads `name = value`, or a switch: `name`, `no_name`, `not_name`.
fn setting(text: &str, line: usize) -> Option<Setting> {
    let is_name = |name: &str| {
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
    };
    if let Some((name, value)) = text.split_once('=') {
        let value = value.trim();
        let value = value.strip_prefix('"').and_then(|inner| inner.strip_suffix('"')).unwrap_or(value);
        return is_name(name.trim()).then(|| Setting {
            name: name.trim().to_owned(),
            value: value.to_owned(),
            line,
        });
    }
    let (name, value) = match text.strip_prefix("not_").or_else(|| text.strip_prefix("no_")) {
        Some(name) => (name, "false"),
        None => (text, "true"),
    };
    is_name(name).then(|| Setting { name: name.to_owned(), value: value.to_owned(), line })
}

fn driver_line(drivers: &mut Vec<Driver>, line: usize, text: &str) {
    if let Some(name) = text.strip_suffix(':')
        && !name.contains(['=', ' '])
    {
        drivers.push(Driver { name: name.to_owned(), options: Vec::new(), line });
        return;
    }
    let driver = match drivers.last_mut() {
        Some(driver) => driver,
        None => {
            drivers.push(Driver { line, ..Driver::default() });
            drivers.last_mut().expect("it was added")
        }
    };
    let setting = setting(text, line);
    driver.options.push(setting.unwrap_or_else(|| Setting {
        name: text.to_owned(),
        value: String::new(),
        line,
    }));
}

/// Cuts a list at colons, or at the character behind `<` at its beginning. A doubled separator is the character.
pub(crate) fn list_items(text: &str) -> Vec<String> {
    let text = text.trim();
    let mut chars = text.chars();
    let (separator, rest) = match (chars.next(), chars.next()) {
        (Some('<'), Some(separator)) => (separator, chars.as_str()),
        _ => (':', text),
    };
    let (mut items, mut item, mut rest) = (Vec::new(), String::new(), rest.chars().peekable());
    while let Some(c) = rest.next() {
        if c != separator {
            item.push(c);
        } else if rest.peek() == Some(&separator) {
            rest.next();
            item.push(separator);
        } else {
            items.push(std::mem::take(&mut item).trim().to_owned());
        }
    }
    items.push(item.trim().to_owned());
    items.retain(|item| !item.is_empty());
    items
}

/// Macros: names that begin with a capital letter.
#[derive(Default)]
struct Macros {
    values: HashMap<String, String>,
    /// The order of definitions, which is that of replacements.
    names: Vec<String>,
}

impl Macros {
    /// Takes `NAME = value` or `NAME == value`.
    fn define(&mut self, text: &str) -> bool {
        let Some((name, value)) = text.split_once('=') else { return false };
        let name = name.trim();
        let is_macro = name.starts_with(|c: char| c.is_ascii_uppercase())
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if !is_macro {
            return false;
        }
        let value = self.replace(value.strip_prefix('=').unwrap_or(value).trim());
        if self.values.insert(name.to_owned(), value).is_none() {
            self.names.push(name.to_owned());
        }
        true
    }

    fn replace(&self, text: &str) -> String {
        let mut out = text.to_owned();
        // A longer name first, so that no name replaces a part of it.
        let mut names: Vec<&String> = self.names.iter().filter(|name| text.contains(&***name)).collect();
        names.sort_by_key(|name| std::cmp::Reverse(name.len()));
        for name in names {
            if out.len() < LINE_MAX {
                out = out.replace(&**name, &self.values[name]);
            }
        }
        out.truncate(out.char_indices().map(|(at, _)| at).find(|at| *at >= LINE_MAX).unwrap_or(out.len()));
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory_files::MemoryFiles;

    #[test]
    fn a_configuration_has_options_lists_and_drivers() {
        let conf = Conf::parse(
            b"DOM = a.test\n# c\nprimary_hostname = mx.DOM\nno_split_spool_directory\nhide domainlist local_domains = @ : \\\n  DOM\n\
              domainlist all = +local_domains : b.test\nhostlist relay_from_hosts = <; 127.0.0.1 ; ::1\n.ifdef NOPE\nx = y\n.else\nqualify_domain = q\n.endif\n\
              begin acl\nacl_check:\n  accept hosts = :\n  deny\n    message = no\nbegin routers\nsmart:\n  driver = manualroute\n  no_more\nbegin retry\n* * F,2h,15m\n.include /x\n.include_if_exists /y\n.include /more\n",
            &MemoryFiles(&[("/more", "begin routers\nlate:\n  driver = accept\n")]),
        );
        assert_eq!(conf.routers[1].name, "late");
        assert_eq!(conf.option("primary_hostname"), "mx.a.test");
        assert_eq!(
            (conf.option("split_spool_directory"), conf.option("qualify_domain"), conf.option("x")),
            ("false", "q", "")
        );
        assert_eq!(conf.list("domainlist", "all"), ["@", "a.test", "b.test"]);
        assert_eq!(conf.list("hostlist", "relay_from_hosts"), ["127.0.0.1", "::1"]);
        assert_eq!(
            (conf.routers[0].option("driver"), conf.routers[0].option("more")),
            ("manualroute", "false")
        );
        let statements: Vec<&str> = conf.acl.iter().map(|one| &*one.value).collect();
        assert_eq!(statements, ["", "accept hosts = :", "deny\nmessage = no"]);
        assert_eq!(conf.rules[0].value, "* * F,2h,15m");
        assert_eq!(conf.faults, [(25, ".include /x".to_owned())]);
    }

    #[test]
    fn doubled_separators_are_characters() {
        assert_eq!(list_items("a : ::1 :: b"), ["a", ":1 : b"]);
        assert_eq!(list_items("<; ::1 ; b"), ["::1", "b"]);
        assert!(list_items("").is_empty());
    }
}
