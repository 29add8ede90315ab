//! A configuration of Postrider that is being written: sections with keys, and comments that say where each is from.

use std::fmt::Write as _;

/// A file that the configuration needs beside itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtraFile {
    /// The name, without a directory: it stands beside the configuration.
    pub name: String,
    /// What the file has to contain.
    pub content: String,
    /// True if only the owner may read it.
    pub is_secret: bool,
}

/// What a key is set to, as TOML.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Text(String),
    List(Vec<String>),
    /// Lists by their keys, in braces.
    Table(Vec<(&'static str, Vec<String>)>),
    /// TOML as it stands.
    Raw(String),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<Vec<String>> for Value {
    fn from(items: Vec<String>) -> Self {
        Self::List(items)
    }
}

impl From<bool> for Value {
    fn from(is_so: bool) -> Self {
        Self::Raw(is_so.to_string())
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Raw(number.to_string())
    }
}

/// Lines longer than this are broken.
const WIDTH: usize = 100;

impl Value {
    fn as_toml(&self) -> String {
        match self {
            Self::Text(text) => quoted(text),
            Self::Raw(text) => text.clone(),
            Self::Table(lists) => {
                let list =
                    |items: &[String]| items.iter().map(|item| quoted(item)).collect::<Vec<_>>().join(", ");
                let part = |(key, items): &(&str, Vec<String>)| match *key {
                    // A switch among lists.
                    "tls" => "tls = true".to_owned(),
                    _ => format!("{key} = [{}]", list(items)),
                };
                let parts: Vec<String> = lists.iter().map(part).collect();
                format!("{{ {} }}", parts.join(", "))
            }
            Self::List(items) => {
                let items: Vec<String> = items.iter().map(|item| quoted(item)).collect();
                let line = format!("[{}]", items.join(", "));
                if line.len() <= WIDTH {
                    return line;
                }
                let lines: String = items.iter().map(|item| format!("    {item},\n")).collect();
                format!("[\n{lines}]")
            }
        }
    }
}

/// Returns a text as a name of a section or route: in lower case, and with `-` for all but ASCII letters and digits.
pub(crate) fn plain_word(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect()
}

/// Returns a basic string of TOML.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04X}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// A section, or one of several with the same name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Section {
    header: String,
    comments: Vec<String>,
    keys: Vec<(String, Value, String)>,
}

impl Section {
    /// Returns a section, such as `[[route]]`, with a comment.
    pub(crate) fn new(header: &str, comment: impl Into<String>) -> Self {
        let comments = Some(comment.into()).filter(|comment| !comment.is_empty()).into_iter().collect();
        Self { header: header.to_owned(), comments, keys: Vec::new() }
    }

    /// Sets a key of the section.
    #[must_use]
    pub(crate) fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.keys.push((key.to_owned(), value.into(), String::new()));
        self
    }

    /// Adds a key if there is a value.
    #[must_use]
    pub(crate) fn with_some(self, key: &str, value: Option<impl Into<Value>>) -> Self {
        match value {
            Some(value) => self.with(key, value),
            None => self,
        }
    }

    /// Sets a key, and says where its value is from.
    pub(crate) fn set(&mut self, key: &str, value: impl Into<Value>, from: &str) {
        let value = value.into();
        match self.keys.iter_mut().find(|(name, _, _)| name == key) {
            Some(place) => (place.1, place.2) = (value, from.to_owned()),
            None => self.keys.push((key.to_owned(), value, from.to_owned())),
        }
    }

    pub(crate) fn header(&self) -> &str {
        &self.header
    }

    pub(crate) fn value(&self, key: &str) -> Option<&Value> {
        self.keys.iter().find(|(name, _, _)| name == key).map(|(_, value, _)| value)
    }

    /// Changes lists of patterns, also those of exceptions. `change` gets the key of a list.
    pub(crate) fn change_lists(&mut self, change: impl Fn(&str, &mut Vec<String>)) {
        for (key, value, _) in &mut self.keys {
            match value {
                Value::List(items) => change(key, items),
                Value::Table(lists) => lists.iter_mut().for_each(|(key, items)| change(key, items)),
                Value::Text(_) | Value::Raw(_) => {}
            }
        }
    }

    fn render(&self, out: &mut String) {
        if !self.header.is_empty() {
            out.push('\n');
        }
        for comment in &self.comments {
            for line in comment.lines() {
                let _ = writeln!(out, "# {line}");
            }
        }
        if !self.header.is_empty() {
            let _ = writeln!(out, "{}", self.header);
        }
        for (key, value, from) in &self.keys {
            let value = value.as_toml();
            let is_short =
                !from.is_empty() && !value.contains('\n') && key.len() + value.len() + from.len() < WIDTH;
            let _ = match (from.is_empty(), is_short) {
                (true, _) => writeln!(out, "{key} = {value}"),
                (false, true) => writeln!(out, "{key} = {value} # {from}"),
                (false, false) => writeln!(out, "# {from}\n{key} = {value}"),
            };
        }
    }
}

/// Sections are written in this order.
const ORDER: [&str; 22] = [
    "",
    "[[listen]]",
    "[relay]",
    "[local]",
    "[addresses]",
    "[notifications]",
    "[map.",
    "[[route]]",
    "[[rule]]",
    "[checks]",
    "[[limit]]",
    "[policy_service.",
    "[filter.",
    "[tls]",
    "[[certificate]]",
    "[auth]",
    "[limits]",
    "[timeouts]",
    "[inbound]",
    "[extensions]",
    "[delivery]",
    "[queue]",
];

fn rank(header: &str) -> usize {
    let fits = |name: &str| header == name || name.ends_with('.') && header.starts_with(name);
    ORDER.iter().position(|name| fits(name)).unwrap_or(ORDER.len())
}

/// Returns the patterns of a route from which no mail goes to the routes below.
fn taken(section: &Section) -> Vec<String> {
    let is_for_all = section.value("senders").is_none() && section.value("hold").is_none();
    match section.value("domains").filter(|_| section.header == "[[route]]" && is_for_all) {
        Some(Value::List(names)) => names.clone(),
        _ => Vec::new(),
    }
}

/// Returns whether a pattern matches everything that another one matches.
fn covers(pattern: &str, other: &str) -> bool {
    match pattern.strip_prefix('*') {
        Some(end) => !other.contains(':') && other.ends_with(end) || end.is_empty(),
        None => pattern == other,
    }
}

/// A configuration that is put together section by section.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Draft {
    head: Vec<String>,
    sections: Vec<Section>,
    /// Files that stand beside the configuration.
    pub files: Vec<ExtraFile>,
    /// Tables of the other server, with the maps that have taken their places.
    pub(crate) maps: Vec<(String, String)>,
}

impl Draft {
    /// Returns an empty configuration with a comment at its head.
    pub(crate) fn new(head: &[&str]) -> Self {
        Self { head: head.iter().map(|line| (*line).to_owned()).collect(), ..Self::default() }
    }

    /// Sets a key of a section that there is once; `""` is the top.
    pub(crate) fn set(&mut self, section: &str, key: &str, value: impl Into<Value>, from: &str) {
        self.section(section).set(key, value, from);
    }

    /// Adds items to a list of a section that there is once.
    pub(crate) fn extend(
        &mut self,
        section: &str,
        key: &str,
        items: impl IntoIterator<Item = String>,
        from: &str,
    ) {
        let section = self.section(section);
        let mut all = match section.value(key) {
            Some(Value::List(items)) => items.clone(),
            _ => Vec::new(),
        };
        for item in items {
            if !all.contains(&item) {
                all.push(item);
            }
        }
        section.set(key, all, from);
    }

    /// Returns the items of a list; empty if the key is not set.
    pub(crate) fn list(&self, section: &str, key: &str) -> Vec<String> {
        let found = self.sections.iter().find(|one| one.header == section);
        match found.and_then(|section| section.value(key)) {
            Some(Value::List(items)) => items.clone(),
            _ => Vec::new(),
        }
    }

    /// Adds one of several sections with the same name.
    pub(crate) fn push(&mut self, section: Section) {
        self.sections.push(section);
    }

    /// Returns all sections, to be changed.
    pub(crate) fn sections_mut(&mut self) -> &mut Vec<Section> {
        &mut self.sections
    }

    /// Returns whether there is a section with this header.
    pub(crate) fn has(&self, header: &str) -> bool {
        self.sections.iter().any(|one| one.header == header)
    }

    /// Returns a name for a `[kind.NAME]` that the draft does not have yet: this one, perhaps with a number behind it.
    pub(crate) fn free_name(&self, kind: &str, name: String) -> String {
        let mut names = std::iter::once(name.clone()).chain((2..).map(|number| format!("{name}-{number}")));
        names.find(|name| !self.has(&format!("[{kind}.{name}]"))).unwrap_or(name)
    }

    /// Returns the values of a key in all sections of this name.
    #[cfg(test)]
    pub(crate) fn values(&self, header: &str, key: &str) -> Vec<Value> {
        let sections = self.sections.iter().filter(|one| one.header == header);
        sections.filter_map(|one| one.value(key).cloned()).collect()
    }

    /// Returns the patterns of domains that no route so far takes.
    pub(crate) fn unrouted(&self, domains: Vec<String>) -> Vec<String> {
        let routed = self.sections.iter().flat_map(taken).collect::<Vec<_>>();
        domains.into_iter().filter(|domain| !routed.iter().any(|pattern| covers(pattern, domain))).collect()
    }

    /// Leaves out patterns of routes that get no mail, because a route above takes all of it.
    pub(crate) fn drop_hidden_routes(&mut self) {
        let mut routed: Vec<String> = Vec::new();
        self.sections.retain_mut(|section| {
            let Some(Value::List(domains)) =
                section.value("domains").filter(|_| section.header == "[[route]]")
            else {
                return true;
            };
            let mut left: Vec<String> = Vec::new();
            for domain in domains {
                if !routed.iter().any(|pattern| covers(pattern, domain)) && !left.contains(domain) {
                    left.push(domain.clone());
                }
            }
            section
                .keys
                .iter_mut()
                .filter(|(key, ..)| key == "domains")
                .for_each(|(_, value, _)| *value = left.clone().into());
            routed.extend(taken(section));
            !left.is_empty()
        });
    }

    /// Leaves out rules, by their numbers in the file, and those that ask for a tag that no rule sets any more.
    pub fn drop_rules(&mut self, numbers: &[usize]) {
        let (mut number, mut tags) = (0, Vec::new());
        self.sections.retain_mut(|section| {
            if section.header != "[[rule]]" {
                return true;
            }
            number += 1;
            let is_set = |value: &Value| match value {
                Value::List(asked) => asked.iter().any(|tag| tags.contains(tag)),
                _ => true,
            };
            if numbers.contains(&number) || !section.value("tagged").is_none_or(is_set) {
                return false;
            }
            for (_, value, _) in &mut section.keys {
                let Value::Table(lists) = value else { continue };
                for (_, items) in lists.iter_mut().filter(|(key, _)| *key == "tagged") {
                    items.retain(|tag| tags.contains(tag));
                }
                lists.retain(|(_, items)| !items.is_empty());
            }
            section.keys.retain(|(_, value, _)| !matches!(value, Value::Table(lists) if lists.is_empty()));
            if let Some(Value::List(set)) = section.value("tag") {
                tags.extend(set.iter().cloned());
            }
            true
        });
    }

    /// Leaves out listeners whose clients must log in, if nobody can. Returns whether there were any.
    pub(crate) fn drop_logins(&mut self) -> bool {
        let has_users =
            self.sections.iter().any(|one| one.header == "[auth]" && one.value("users").is_some());
        let needs_login = |one: &Section| {
            let kinds = ["submission", "submissions"].map(Value::from);
            one.header == "[[listen]]" && one.value("kind").is_some_and(|kind| kinds.contains(kind))
        };
        let before = self.sections.len();
        if !has_users {
            self.sections.retain(|one| !needs_login(one));
        }
        self.sections.len() < before
    }

    /// Adds a file that stands beside the configuration.
    pub(crate) fn add_file(&mut self, name: &str, content: String, is_secret: bool) {
        self.files.retain(|file| file.name != name);
        self.files.push(ExtraFile { name: name.to_owned(), content, is_secret });
    }

    /// Adds a file with a number behind its name, unless there is one with this content. Returns the name.
    pub(crate) fn add_numbered(&mut self, stem: &str, content: String) -> String {
        let is_free =
            |name: &String| self.files.iter().all(|file| file.name != *name || file.content == content);
        let name = (1..).map(|number| format!("{stem}-{number}")).find(is_free).unwrap_or_default();
        self.add_file(&name, content, false);
        name
    }

    /// Adds lines to a file that stands beside the configuration.
    pub(crate) fn append_file(&mut self, name: &str, lines: &str) {
        match self.files.iter_mut().find(|file| file.name == name) {
            Some(file) => file.content.push_str(lines),
            None => self.add_file(name, lines.to_owned(), false),
        }
    }

    fn section(&mut self, header: &str) -> &mut Section {
        let at = self.sections.iter().position(|one| one.header == header).unwrap_or_else(|| {
            self.sections.push(Section::new(header, ""));
            self.sections.len() - 1
        });
        &mut self.sections[at]
    }

    /// Returns the configuration as TOML, with the remarks at its head.
    pub fn as_toml(&self) -> String {
        let mut out: String = self.head.iter().map(|line| format!("# {line}\n")).collect();
        out.push('\n');
        let mut sections: Vec<&Section> = self.sections.iter().collect();
        sections.sort_by_key(|section| rank(&section.header));
        sections.iter().for_each(|section| section.render(&mut out));
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draft_is_toml_with_comments_in_the_order_of_the_manual() {
        let mut draft = Draft::new(&["Made of main.cf."]);
        draft.push(
            Section::new("[[route]]", "relayhost").with("domains", vec!["*".to_owned()]).with("mx", true),
        );
        draft.set("", "hostname", "a\"b\\c", "myhostname, main.cf:1");
        draft.extend("[relay]", "networks", ["::1/128".to_owned()], "mynetworks");
        draft.extend("[relay]", "networks", ["::1/128".to_owned(), "10.0.0.0/8".to_owned()], "mynetworks");
        assert_eq!(
            draft.as_toml(),
            "# Made of main.cf.\n\nhostname = \"a\\\"b\\\\c\" # myhostname, main.cf:1\n\n[relay]\n\
             networks = [\"::1/128\", \"10.0.0.0/8\"] # mynetworks\n\n# relayhost\n[[route]]\n\
             domains = [\"*\"]\nmx = true\n"
        );
    }

    #[test]
    fn domains_that_a_route_takes_are_found() {
        let mut draft = Draft::new(&[]);
        let taken = ["a.test", "*.b.test"].map(str::to_owned).to_vec();
        draft.push(Section::new("[[route]]", "").with("domains", taken));
        let asked = ["a.test", "*.a.test", "b.test", "x.b.test", "*.b.test"].map(str::to_owned);
        assert_eq!(draft.unrouted(asked.to_vec()), ["*.a.test", "b.test"]);
        draft.push(Section::new("[[route]]", "").with("domains", vec!["*".to_owned()]));
        assert!(draft.unrouted(asked.to_vec()).is_empty());
    }

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(quoted("a\u{1}\tb\n"), "\"a\\u0001\\tb\\n\"");
    }
}
