//! A section's keys: one definition gives its type, its reader and its manual.

use crate::{
    choice::did_you_mean,
    json_schema::Schema,
    listing::{Effective, Origin},
    problem::Code,
    schema::schema,
    sought,
    sources::Sources,
    value::{Context, Value},
};
use toml::{
    Spanned,
    de::{DeString, DeTable, DeValue},
};

/// The documentation of a key.
#[derive(Debug, Clone, Copy)]
pub struct KeyDoc {
    /// The key's name.
    pub name: &'static str,
    /// The description for the manual, in sentences; one line of source each.
    pub about: &'static str,
    /// The kind of value, with its article: `a duration`.
    pub kind: fn() -> String,
    /// The JSON Schema of its values.
    pub(crate) schema: fn() -> Schema,
    /// The default as TOML; empty when there is none. `{hostname}` and `{data_dir}` stand for
    /// those keys' values, `{machine}` for the machine's own name.
    pub default: &'static str,
}

/// The documentation of a section.
#[derive(Debug, Clone, Copy)]
pub struct SectionDoc {
    /// `relay`; empty for the keys before the first section.
    pub name: &'static str,
    /// True if the section can be repeated, as `[[route]]` can.
    pub repeated: bool,
    /// True if each section has a name of its own, as `[map.NAME]` has.
    pub named: bool,
    /// The description for the manual.
    pub about: &'static str,
    /// The section's keys, in the order of the manual. None for a table whose keys are free.
    pub keys: &'static [KeyDoc],
}

impl SectionDoc {
    /// The line that begins the section: `[relay]`, `[[route]]`, `[map.NAME]`; empty for the keys before the first one.
    pub fn header(&self) -> String {
        match (self.name, self.repeated, self.named) {
            ("", ..) => String::new(),
            (name, true, _) => format!("[[{name}]]"),
            (name, _, true) => format!("[{name}.NAME]"),
            (name, ..) => format!("[{name}]"),
        }
    }
}

/// A struct that is read from a section of its own.
pub(crate) trait Section: Sized {
    const DOC: SectionDoc;

    fn read(reader: &mut Reader<'_, '_>) -> Self;
}

/// The word behind a section's name: whether it is the one that is asked for.
macro_rules! section_is {
    (many many) => {
        true
    };
    (named named) => {
        true
    };
    ($asked:ident $($word:ident)?) => {
        false
    };
}
pub(crate) use section_is;

/// Defines a section: struct, reader and manual from one text. `many` behind the name stands for `[[name]]`, `named` for
/// `[name.NAME]`.
macro_rules! section {
    (
        $(#[doc = $doc:literal])+
        $vis:vis $name:ident = $path:literal $($repeated:ident)? {
            $( $(#[doc = $about:literal])+ $key:ident: $ty:ty = $default:literal, )+
        }
    ) => {
        $(#[doc = $doc])+
        #[derive(Debug, Clone, PartialEq, Eq)]
        $vis struct $name {
            $( $(#[doc = $about])+ pub $key: $ty, )+
        }

        impl $crate::section::Section for $name {
            const DOC: $crate::section::SectionDoc = $crate::section::SectionDoc {
                name: $path,
                repeated: $crate::section::section_is!(many $($repeated)?),
                named: $crate::section::section_is!(named $($repeated)?),
                about: concat!($($doc, "\n"),+),
                keys: &[$($crate::section::KeyDoc {
                    name: $crate::section::key_name(stringify!($key)),
                    about: concat!($($about, "\n"),+),
                    kind: <$ty as $crate::value::Value>::kind,
                    schema: <$ty as $crate::value::Value>::schema,
                    default: $default,
                }),+],
            };

            fn read(reader: &mut $crate::section::Reader<'_, '_>) -> Self {
                Self { $($key: reader.value($crate::section::key_name(stringify!($key)), $default),)+ }
            }
        }
    };
}
pub(crate) use section;

/// Returns the name of a key whose field is a word of Rust: `r#virtual` is `virtual`.
pub(crate) const fn key_name(field: &str) -> &str {
    match field.as_bytes() {
        [b'r', b'#', ..] => field.split_at(2).1,
        _ => field,
    }
}

/// The values that replace `{…}` in defaults.
#[derive(Debug, Clone, Default)]
pub(crate) struct Placeholders {
    pub(crate) machine: String,
    pub(crate) hostname: String,
    pub(crate) data_dir: String,
}

impl Placeholders {
    /// Fills them into a default, which is TOML: what goes inside quotes is escaped.
    fn expand(&self, default: &str) -> String {
        let escape = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
        default
            .replace("{machine}", &escape(&self.machine))
            .replace("{hostname}", &escape(&self.hostname))
            .replace("{data_dir}", &escape(&self.data_dir))
    }
}

/// Everything a reading needs, and what it collects.
pub(crate) struct Reading<'s> {
    pub(crate) sources: &'s Sources,
    pub(crate) cx: Context,
    pub(crate) placeholders: Placeholders,
    pub(crate) effective: Vec<Effective>,
}

impl<'s> Reading<'s> {
    /// Reads one section at `path` (`relay`, `route[1]`) from its table, if the file has it.
    pub(crate) fn section<S: Section>(&mut self, path: &str, table: Option<&DeTable<'_>>) -> S {
        let mut reader = Reader { reading: self, path, table };
        let read = S::read(&mut reader);
        if let Some(table) = table
            && !path.is_empty()
        {
            let known: Vec<&str> = S::DOC.keys.iter().map(|key| key.name).collect();
            self.refuse_unknown(path, table, &known);
        }
        read
    }

    /// Reports the former name of a key or section.
    fn report_former(&mut self, key: &Spanned<DeString<'_>>, former: &str, new: &str) {
        let what = format!("`{former}` has a new name");
        self.cx.problem_of(Code::FormerName, key.span(), what, "the former name", new.to_owned());
    }

    /// Reports the former names of keys inside a section that has a new name, in the same run.
    fn report_former_keys(&mut self, path: &str, name: &str, table: &DeTable<'_>) {
        let Some((.., section)) =
            FORMER_SECTIONS.iter().find(|(former, _)| path.is_empty() && *former == name)
        else {
            return;
        };
        let Some(keys) = table.get(name).and_then(|value| value.get_ref().as_table()) else { return };
        for key in keys.keys() {
            if let Some(new) = successor_of(section, key.get_ref()) {
                self.report_former(key, &dotted(name, key.get_ref()), new);
            }
        }
    }

    /// Reports each key of `table` that is none of `known`.
    pub(crate) fn refuse_unknown(&mut self, path: &str, table: &DeTable<'_>, known: &[&str]) {
        for name in table.keys() {
            if known.contains(&&**name.get_ref()) {
                continue;
            }
            if let Some(new) = successor_of(path, name.get_ref()) {
                self.report_former(name, &dotted(path, name.get_ref()), new);
                self.report_former_keys(path, name.get_ref(), table);
                continue;
            }
            let what = match path {
                "" => format!("there is no key or section `{}`", name.get_ref()),
                _ => format!("there is no key `{}` in `{path}`", name.get_ref()),
            };
            let near = did_you_mean(name.get_ref(), known.iter().copied());
            // A key of that name elsewhere is not meant by a section.
            let is_section =
                table.get(name.get_ref().as_ref()).is_some_and(|value| value.get_ref().is_table());
            let homes = homes_of(name.get_ref()).filter(|_| !is_section);
            if let Some((label, advice)) = sought::about_key(path, name.get_ref()) {
                self.cx.problem_of(Code::UnknownKey, name.span(), what, label, advice);
                continue;
            }
            let label = match (meant_by(path, name.get_ref(), known), homes, near) {
                (Some(meant), ..) => format!("did you mean `{meant}`?"),
                (None, Some(homes), _) => format!("it belongs {homes}"),
                (None, None, Some(near)) => format!("did you mean `{near}`?"),
                (None, None, None) => "unknown key".to_owned(),
            };
            self.cx.problem_of(
                Code::UnknownKey,
                name.span(),
                what,
                &label,
                format!("keys: {}", known.join(", ")),
            );
        }
    }

    /// The table called `name`; anything else of that name is noted.
    pub(crate) fn table<'t, 'i>(&mut self, root: &'t DeTable<'i>, name: &str) -> Option<&'t DeTable<'i>> {
        let value = root.get(name)?;
        let table = value.get_ref().as_table();
        if table.is_none() {
            self.not_a_table(value, name, &format!("[{name}]"));
        }
        table
    }

    /// The tables of `[[name]]`; anything else of that name is noted.
    pub(crate) fn tables<'t, 'i>(
        &mut self,
        root: &'t DeTable<'i>,
        name: &str,
    ) -> Option<Vec<Spanned<&'t DeTable<'i>>>> {
        let value = root.get(name)?;
        let Some(items) = value.get_ref().as_array() else {
            self.not_a_table(value, name, &format!("[[{name}]]"));
            return Some(Vec::new());
        };
        let mut tables = Vec::new();
        for item in items {
            match item.get_ref().as_table() {
                Some(table) => tables.push(Spanned::new(item.span(), table)),
                None => self.not_a_table(item, name, &format!("[[{name}]]")),
            }
        }
        Some(tables)
    }

    /// The table of `[kind.NAME]`; anything else of that name is noted.
    pub(crate) fn named_table<'t, 'i>(
        &mut self,
        kind: &str,
        name: &Spanned<DeString<'i>>,
        found: &'t Spanned<DeValue<'i>>,
    ) -> Option<&'t DeTable<'i>> {
        let table = found.get_ref().as_table();
        if table.is_none() {
            let what = format!("`{kind}.{}` must be a section", name.get_ref());
            let help = format!("begin it with [{kind}.NAME] on a line of its own, and its keys below");
            self.cx.problem_of(Code::Value, name.span(), what, "not a section", help);
        }
        table
    }

    fn not_a_table(&mut self, value: &Spanned<DeValue<'_>>, name: &str, header: &str) {
        if header.starts_with("[[") && value.get_ref().is_table() {
            let what = format!("there can be several sections `{name}`");
            let help = format!("write {header}, with double brackets");
            self.cx.problem_of(Code::Value, value.span(), what, "single brackets", help);
            return;
        }
        let usual = || format!("begin it with {header} on a line of its own, and its keys below");
        let (label, help) = sought::about_value(name).unwrap_or_else(|| ("not a section", usual()));
        self.cx.problem_of(Code::Value, value.span(), format!("`{name}` must be a section"), label, help);
    }

    /// Returns where a key was set, for checks that compare several keys.
    pub(crate) fn origin(&self, path: &str) -> Option<&Origin> {
        self.effective.iter().find(|e| e.path == path).map(|e| &e.origin)
    }
}

/// Names that keys had before 0.1.0, by section, and the advice for each.
const FORMER_NAMES: &[(&str, &str, &str)] = &[
    ("control", "drop_dir", "write `maildrop`"),
    ("", "reception", "write [inbound]"),
    ("tls", "authorities", "write `ca_file`"),
    ("limits", "command_line", "write `max_command_line`"),
    ("limits", "path", "write `max_path`"),
    ("limits", "message", "write `max_message_size`"),
    ("limits", "header", "write `max_header_size`"),
    ("limits", "recipients", "write `max_recipients`"),
    ("limits", "transactions", "write `max_transactions`"),
    ("limits", "errors", "write `max_errors`"),
    ("limits", "refused_recipients", "write `max_rejected_recipients`"),
    ("limits", "junk_commands", "write `max_junk_commands`"),
    ("limits", "hops", "write `max_hops`"),
    ("inbound", "max_memory", "write `max_content_memory`"),
    ("inbound", "grace", "write `shutdown_timeout`"),
    ("delivery", "final_timeout", "write `data_done_timeout`"),
    ("delivery", "helo", "write `ehlo_name`"),
    ("queue_group", "runners", "write `max_connections`"),
    ("queue_group", "engine", "write `backend`, with \"log\" or \"queue-dirs\""),
    ("queue_group", "choice", "write `placement`, with \"round-robin\", \"random\" or \"least-used\""),
    ("queue_group", "hashed", "write `hash_depth`"),
    ("spool", "engine", "write `backend`, with \"log\" or \"queue-dirs\""),
    ("spool", "choice", "write `placement`, with \"round-robin\", \"random\" or \"least-used\""),
    ("spool", "hashed", "write `hash_depth`"),
    ("spool", "sync_patience", "write `commit_timeout`"),
    ("workers", "count", "write `worker_threads`"),
];

/// Keys that one section has and another one has under another name: the section, the wrong key, and the right one.
const OTHER_NAMES: &[(&str, &str, &str)] = &[
    ("certificate", "certificate", "chain"),
    ("certificate", "cert", "chain"),
    ("tls", "chain", "certificate"),
    ("limit", "over", "reply"),
    ("limits", "max_size", "max_message_size"),
    ("limits", "message_size", "max_message_size"),
    ("limits", "size", "max_message_size"),
    ("limit", "reject", "reply"),
    ("rule", "reply", "reject"),
    ("rule", "form", "from"),
    ("rule", "sender", "from"),
    ("rule", "senders", "from"),
    ("rule", "recipient", "to"),
    ("rule", "rcpt", "to"),
    ("rule", "helo", "hello"),
    ("rule", "ehlo", "hello"),
    ("rule", "ip", "client"),
    ("rule", "network", "client"),
    ("rule", "networks", "client"),
    ("route", "helo", "ehlo_name"),
    ("route", "ehlo", "ehlo_name"),
    ("route", "bind_address", "source_address"),
    ("delivery", "helo_name", "ehlo_name"),
    ("delivery", "bind_address", "source_address"),
    ("dns", "servers", "nameservers"),
    ("dns", "resolvers", "nameservers"),
    ("tls", "cert", "certificate"),
    ("tls", "cert_file", "certificate"),
    ("tls", "key_file", "key"),
    ("tls", "private_key", "key"),
    ("tls", "protocols", "min_version"),
    ("queue", "lifetime", "expire"),
    ("queue", "max_age", "expire"),
    ("limits", "message_size", "max_message_size"),
    ("log", "path", "file"),
    ("log", "target", "file"),
    ("route", "sender", "senders"),
    ("route", "domain", "domains"),
];

/// Words for a place in the file system: a section has at most one of them as a key.
const PLACES: &[&str] = &["path", "directory", "dir", "folder", "location", "data_dir"];

/// Returns the key of a section, which has the keys `known`, that is called otherwise in another section; `path` is a section such as
/// `route[1]`.
fn meant_by<'k>(path: &str, key: &str, known: &[&'k str]) -> Option<&'k str> {
    let section = path.split(['[', '.']).next().unwrap_or_default();
    let other =
        OTHER_NAMES.iter().find(|(of, name, _)| (*of, *name) == (section, key)).map(|(.., meant)| *meant);
    let place = || known.iter().find(|known| PLACES.contains(known) && PLACES.contains(&key)).copied();
    other.or_else(place)
}

/// Sections that have a new name, and that name.
const FORMER_SECTIONS: &[(&str, &str)] = &[("reception", "inbound")];

/// Returns the advice for a key that has a new name; `path` is a section such as `route[1]`.
fn successor_of(path: &str, key: &str) -> Option<&'static str> {
    let section = path.split('[').next().unwrap_or_default();
    FORMER_NAMES.iter().find(|(of, name, _)| (*of, *name) == (section, key)).map(|(.., advice)| *advice)
}

/// `delivery.helo`; a key before the first section stands alone.
fn dotted(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// Returns the sections that have a key of this name: TOML assigns everything after a `[section]` to it.
fn homes_of(key: &str) -> Option<String> {
    let sections = schema();
    let homes = sections.iter().filter(|section| section.keys.iter().any(|known| known.name == key));
    let named = homes.map(|section| match section.name {
        "" => "before the first section".to_owned(),
        _ => format!("below {}", section.header()),
    });
    named.reduce(|first, next| format!("{first} or {next}"))
}

/// Reads the keys of one section.
pub(crate) struct Reader<'r, 's> {
    reading: &'r mut Reading<'s>,
    path: &'r str,
    table: Option<&'r DeTable<'r>>,
}

impl Reader<'_, '_> {
    /// Reads a key. A bad value is reported and replaced by the default, so that checking continues.
    pub(crate) fn value<T: Value>(&mut self, name: &'static str, default: &str) -> T {
        let path = dotted(self.path, name);
        let given = self.table.and_then(|table| table.get(name));
        let reading = &mut *self.reading;
        reading.cx.key.clone_from(&path);
        let read = given.and_then(|found| {
            let (line, _) = reading.sources.place(found.span().start);
            T::read(found, &mut reading.cx).map(|value| (value, Origin::File { line, span: found.span() }))
        });
        let (value, origin) = read.unwrap_or_else(|| (reading.default_of(default), Origin::Default));
        reading.effective.push(Effective { path, value: value.to_toml(), origin });
        value
    }
}

impl Reading<'_> {
    /// The value of a key that is left out.
    fn default_of<T: Value>(&mut self, default: &str) -> T {
        if default.is_empty() {
            return T::absent().expect("a key without default is optional: `every_default_is_a_valid_value`");
        }
        let text = self.placeholders.expand(default);
        // Defaults start at the current folder: there may be no file.
        let mut cx = Context {
            base: std::env::current_dir().unwrap_or_default(),
            key: self.cx.key.clone(),
            problems: Vec::new(),
        };
        let found = DeValue::parse(&text).ok();
        let value = found.and_then(|found| T::read(&found, &mut cx));
        value.expect("defaults are valid: `every_default_is_a_valid_value`")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_former_name_is_no_key_and_its_advice_names_one() {
        let sections = schema();
        for (section, former, advice) in FORMER_NAMES {
            let is_key = |name: &str| match *section {
                "" => sections.iter().any(|s| s.name == name),
                section => {
                    sections.iter().any(|s| s.name == section && s.keys.iter().any(|k| k.name == name))
                }
            };
            assert!(!is_key(former), "{section}.{former}");
            let named = advice.split(['`', '[', ']']).nth(1).unwrap();
            assert!(is_key(named), "{section}.{former}: {advice}");
        }
    }
}
