//! Look-up tables of Postfix as maps of Postrider.

use super::{
    main_cf::{MainCf, items, logical_lines},
    pattern::Pattern,
    sql,
};
use crate::{
    draft::{Draft, Section, plain_word},
    files::Files,
};
use std::path::Path;

/// A look-up table: `hash:/etc/postfix/virtual`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// `hash`, `regexp`, `pgsql` and so on.
    pub kind: String,
    /// Behind the colon: a path, an address or the content itself.
    pub name: String,
}

/// A line of a table that the import can read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableEntry {
    /// As the file has it, not folded.
    pub key: String,
    /// What stands right of the key.
    pub value: String,
}

impl Table {
    /// Reads `type:name`; `None` for a text that names no table. `proxy:` in front is ignored.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.strip_prefix("proxy:").unwrap_or(text);
        let (kind, name) = text.split_once(':')?;
        let is_kind = !kind.is_empty()
            && kind.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
        (is_kind && !name.is_empty()).then(|| Self { kind: kind.to_owned(), name: name.to_owned() })
    }

    /// Returns whether the table is made of a text file with `key value` lines.
    pub fn is_text(&self) -> bool {
        matches!(&*self.kind, "hash" | "btree" | "lmdb" | "dbm" | "sdbm" | "texthash" | "cdb")
    }

    /// Returns whether a server or a database is asked.
    pub(crate) fn is_server(&self) -> bool {
        matches!(&*self.kind, "mysql" | "pgsql" | "sqlite" | "ldap" | "socketmap")
    }

    /// Returns whether the keys of the table are regular expressions.
    pub(crate) fn has_patterns(&self) -> bool {
        matches!(&*self.kind, "regexp" | "pcre")
    }

    /// Returns the entries of a table that is a text file, or is written in place.
    ///
    /// # Errors
    /// The entries cannot be read: what to do about it.
    pub fn entries(&self, files: &dyn Files) -> Result<Vec<TableEntry>, String> {
        match &*self.kind {
            "inline" => Ok(inline(&self.name)),
            _ if self.is_text() || self.kind == "cidr" => {
                let file = files.read(Path::new(&self.name));
                let file = file.ok_or_else(|| self.without_text())?;
                Ok(entries(&String::from_utf8_lossy(&file)))
            }
            kind => Err(format!("the import cannot read tables of type {kind}; copy the entries by hand")),
        }
    }

    /// Returns the entries, those of patterns with the keys that match the same addresses.
    ///
    /// # Errors
    /// The entries cannot be read, or a pattern is for more than one address and more than one domain.
    pub(crate) fn keyed_entries(&self, files: &dyn Files) -> Result<Vec<TableEntry>, String> {
        if !self.has_patterns() {
            return self.entries(files);
        }
        let keyed = |entry: TableEntry| match Pattern::parse(&entry.key).and_then(|pattern| pattern.key()) {
            Some(key) => Ok(TableEntry { key, ..entry }),
            None => Err(format!("{} matches several addresses", entry.key)),
        };
        pattern_entries(self, files)?.into_iter().map(keyed).collect()
    }

    /// Returns the keys of a table of text that begin with `@`, each with its place: `/etc/postfix/virtual:3`.
    pub(crate) fn domain_keys(&self, files: &dyn Files) -> Vec<(String, String)> {
        let is_domain = |(_, key): &(String, String)| key.starts_with('@');
        if !self.is_text() {
            let entries =
                if self.kind == "inline" { self.entries(files).unwrap_or_default() } else { Vec::new() };
            return entries
                .into_iter()
                .map(|entry| (self.kind.clone(), entry.key))
                .filter(is_domain)
                .collect();
        }
        let file = files.read(Path::new(&self.name)).unwrap_or_default();
        let lines = logical_lines(&String::from_utf8_lossy(&file)).into_iter();
        let key = |(number, line): (usize, String)| {
            let key = line.split(char::is_whitespace).next().unwrap_or_default().to_lowercase();
            (format!("{}:{number}", self.name), key)
        };
        lines.map(key).filter(is_domain).collect()
    }

    fn without_text(&self) -> String {
        let (kind, name) = (&self.kind, &self.name);
        if self.kind == "texthash" || self.kind == "cidr" {
            return format!("there is no file {name}");
        }
        format!("the source text of the table is missing; create it with `postmap -s {kind}:{name} >{name}`")
    }
}

/// Reads lines `key value`.
pub fn entries(text: &str) -> Vec<TableEntry> {
    let entry = |(_, line): (usize, String)| {
        let (key, value) = line.split_once(char::is_whitespace).unwrap_or((&line, ""));
        TableEntry { key: key.to_owned(), value: value.trim().to_owned() }
    };
    logical_lines(text).into_iter().map(entry).collect()
}

/// Reads the lines of a table of regular expressions: `/pattern/flags` and the value.
///
/// # Errors
/// There is no such file, or it has more than patterns.
pub(crate) fn pattern_entries(table: &Table, files: &dyn Files) -> Result<Vec<TableEntry>, String> {
    let file =
        files.read(Path::new(&table.name)).ok_or_else(|| format!("there is no file {}", table.name))?;
    let entry = |(_, line): (usize, String)| {
        let open = line.chars().next().filter(|c| !c.is_ascii_alphanumeric() && *c != '!')?;
        let mut is_escaped = false;
        let close = line.char_indices().skip(1).find(|(_, c)| {
            let is_end = *c == open && !is_escaped;
            is_escaped = *c == '\\' && !is_escaped;
            is_end
        });
        let end = close?.0 + 1;
        let behind = line[end..].find(char::is_whitespace).map_or(line.len(), |at| end + at);
        Some(TableEntry { key: line[..behind].to_owned(), value: line[behind..].trim().to_owned() })
    };
    let entries: Option<Vec<TableEntry>> =
        logical_lines(&String::from_utf8_lossy(&file)).into_iter().map(entry).collect();
    entries.ok_or_else(|| {
        format!("{}: `if`, `endif` and `!` are not supported; write each pattern in full", table.name)
    })
}

/// Reads `{ {key = value}, key=value }`, with white space or commas between.
fn inline(text: &str) -> Vec<TableEntry> {
    let inner = text.trim().strip_prefix('{').and_then(|text| text.strip_suffix('}')).unwrap_or(text);
    let pairs = items(inner);
    // One pair may stand without braces.
    let is_whole = pairs.iter().any(|pair| pair.trim().starts_with('=') || !pair.contains('='));
    let pairs = if is_whole { vec![inner.to_owned()] } else { pairs };
    let entry = |pair: String| {
        let pair = pair.trim();
        let pair = pair.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or(pair);
        let (key, value) = pair.split_once('=')?;
        Some(TableEntry { key: key.trim().to_owned(), value: value.trim().to_owned() })
    };
    pairs.into_iter().filter_map(entry).collect()
}

/// The purpose of a table: it decides the format of its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// aliases(5): values are targets.
    Aliases,
    /// Any other.
    Keys,
}

/// Returns the map of Postrider that takes the place of a table.
///
/// # Errors
/// There is none: what to do instead.
pub(crate) fn reference(
    table: &Table,
    purpose: Purpose,
    files: &dyn Files,
    draft: &mut Draft,
) -> Result<String, String> {
    let item = format!("{purpose:?} {}:{}", table.kind, table.name);
    if let Some((_, map)) = draft.maps.iter().find(|(known, _)| *known == item) {
        return Ok(map.clone());
    }
    let map = new_reference(table, purpose, files, draft)?;
    draft.maps.push((item, map.clone()));
    Ok(map)
}

fn new_reference(
    table: &Table,
    purpose: Purpose,
    files: &dyn Files,
    draft: &mut Draft,
) -> Result<String, String> {
    let path = Path::new(&table.name);
    match &*table.kind {
        "cdb" if !files.exists(path) && files.exists(Path::new(&format!("{}.cdb", table.name))) => {
            Ok(format!("cdb:{}.cdb", table.name))
        }
        _ if table.is_text() => {
            if !files.exists(path) {
                return Err(table.without_text());
            }
            let kind = if purpose == Purpose::Aliases { "aliases" } else { "text" };
            if purpose == Purpose::Aliases {
                let file = files.read(path).unwrap_or_default();
                let lines = logical_lines(&String::from_utf8_lossy(&file));
                if let Some((line, _)) = lines.iter().find(|(_, line)| !line.contains(':')) {
                    return Err(format!("{}:{line}: the colon is missing after the name", table.name));
                }
            }
            Ok(format!("{kind}:{}", table.name))
        }
        "regexp" | "pcre" | "cidr" => {
            let file = files.read(path).ok_or_else(|| format!("there is no file {}", table.name))?;
            if table.kind != "cidr" {
                pattern_entries(table, files)?;
            } else if logical_lines(&String::from_utf8_lossy(&file))
                .iter()
                .any(|(_, line)| line.starts_with(['!', 'i', 'e']))
            {
                return Err(format!(
                    "{}: `if`, `endif` and `!` are not supported; write each network in full",
                    table.name
                ));
            }
            Ok(format!("{}:{}", if table.kind == "cidr" { "cidr" } else { "regex" }, table.name))
        }
        "socketmap" => socketmap(table, draft),
        "mysql" | "pgsql" | "sqlite" | "ldap" => server(table, files, draft),
        "tcp" => Err("the tcp protocol is not supported; serve the table by socketmap".to_owned()),
        "unix" if table.name == "passwd.byname" => Ok(files.user_map().to_owned()),
        "inline" | "static" => {
            let (kind, text) = match &*table.kind {
                "static" => ("regex", format!("/^/ {}\n", table.name)),
                _ => (
                    "text",
                    inline(&table.name)
                        .iter()
                        .map(|entry| format!("{} {}\n", entry.key, entry.value))
                        .collect(),
                ),
            };
            Ok(format!("{kind}:{}", draft.add_numbered(&table.kind, text)))
        }
        kind => Err(format!(
            "tables of type {kind} are not supported; put the entries into a text file (text:FILE)"
        )),
    }
}

/// Returns a name for a map that the draft does not have yet.
pub(crate) fn map_name(path: &str, draft: &Draft) -> String {
    let stem = path.rsplit('/').next().unwrap_or(path);
    let stem = stem.strip_suffix(".cf").unwrap_or(stem);
    draft.free_name("map", plain_word(if stem.is_empty() { "map" } else { stem }))
}

fn socketmap(table: &Table, draft: &mut Draft) -> Result<String, String> {
    let bad = || format!("{}: write inet:host:port:name or unix:path:name", table.name);
    let (place, remote) = table.name.rsplit_once(':').ok_or_else(bad)?;
    let server = match place.split_once(':') {
        Some(("unix", path)) => format!("unix:{path}"),
        Some(("inet", address)) => address.to_owned(),
        _ => return Err(bad()),
    };
    let name = map_name(remote, draft);
    let section =
        Section::new(&format!("[map.{name}]"), "").with("socketmap", server).with("remote_name", remote);
    draft.push(section);
    Ok(format!("map:{name}"))
}

/// A database or a directory whose settings are in a file.
fn server(table: &Table, files: &dyn Files, draft: &mut Draft) -> Result<String, String> {
    let capabilities = files.capabilities();
    let (is_there, feature) = match &*table.kind {
        "mysql" => (capabilities.mysql, "mysql"),
        "pgsql" => (capabilities.postgres, "postgres"),
        "sqlite" => (capabilities.sqlite, "sqlite"),
        _ => (capabilities.ldap, "ldap"),
    };
    if !is_there {
        return Err(format!(
            "this build does not support `{feature}` maps; build it with `--features {feature}`, and import again"
        ));
    }
    let file =
        files.read(Path::new(&table.name)).ok_or_else(|| format!("there is no file {}", table.name))?;
    let settings = MainCf::parse(&file);
    let name = map_name(&table.name, draft);
    let mut comment = format!("{}:{}", table.kind, table.name);
    if table.kind == "mysql" && sql::of(&settings, "hosts").is_some_and(|hosts| items(hosts).len() > 1) {
        comment += "; only the first of its hosts is used";
    }
    let section = Section::new(&format!("[map.{name}]"), comment);
    let mut section = match &*table.kind {
        "ldap" => ldap(&settings, section)?,
        kind => sql::map(kind, &settings, section, files)?,
    };
    let password = match &*table.kind {
        "sqlite" => None,
        "ldap" => sql::of(&settings, "bind_pw").filter(|_| section.value("bind").is_some()),
        _ => sql::of(&settings, "password"),
    };
    if let Some(password) = password {
        let secret = format!("{name}.secret");
        draft.add_file(&secret, format!("{password}\n"), true);
        section = section.with("secret", format!("file:{secret}"));
    }
    draft.push(section);
    Ok(format!("map:{name}"))
}

fn ldap(settings: &MainCf, section: Section) -> Result<Section, String> {
    let or = |name: &str, default: &'static str| sql::of(settings, name).unwrap_or(default).to_owned();
    for (name, only) in [
        ("result_format", "%s"),
        ("scope", "sub"),
        ("domain", ""),
        ("special_result_attribute", ""),
        ("terminal_result_attribute", ""),
        ("leaf_result_attribute", ""),
    ] {
        if sql::of(settings, name).is_some_and(|value| value != only) {
            return Err(format!("its {name} has no counterpart"));
        }
    }
    let server = items(&or("server_host", "localhost")).into_iter().next().unwrap_or_default();
    let server =
        if server.contains("://") { server } else { format!("ldap://{server}:{}", or("server_port", "389")) };
    let filter = or("query_filter", "(mailacceptinggeneralid=%s)").replace("%s", "{key}");
    if filter.contains('%') {
        return Err("its filter uses a part of the key; write it with {key}".to_owned());
    }
    let attributes = items(&or("result_attribute", "maildrop"));
    let [attribute] = &*attributes else {
        return Err("it returns several attributes; write a map for each".to_owned());
    };
    let bind = sql::of(settings, "bind_dn").filter(|_| sql::of(settings, "bind") != Some("no"));
    Ok(section
        .with("ldap", server)
        .with_some("starttls", (sql::of(settings, "start_tls") == Some("yes")).then_some(true))
        .with("base", or("search_base", ""))
        .with("filter", filter)
        .with("attribute", attribute.clone())
        .with_some("bind", bind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Capabilities, NoFiles};

    struct One(&'static str, &'static str);

    impl Files for One {
        fn read(&self, path: &Path) -> Option<Vec<u8>> {
            (path == Path::new(self.0)).then(|| self.1.as_bytes().to_vec())
        }

        fn capabilities(&self) -> Capabilities {
            Capabilities { sqlite: true, postgres: true, mysql: true, ldap: true }
        }
    }

    fn mapped(table: &str, files: &dyn Files) -> (Result<String, String>, String) {
        let mut draft = Draft::default();
        let found = reference(&Table::parse(table).unwrap(), Purpose::Keys, files, &mut draft);
        (found, draft.as_toml())
    }

    #[test]
    fn tables_of_text_are_maps_of_text() {
        let files = One("/etc/v", "/a/ b\n");
        assert_eq!(mapped("hash:/etc/v", &files).0.unwrap(), "text:/etc/v");
        assert_eq!(mapped("proxy:lmdb:/etc/v", &files).0.unwrap(), "text:/etc/v");
        assert_eq!(mapped("pcre:/etc/v", &files).0.unwrap(), "regex:/etc/v");
        assert!(mapped("hash:/etc/w", &files).0.unwrap_err().contains("postmap -s hash:/etc/w"));
        assert!(mapped("regexp:/etc/v", &One("/etc/v", "if /x/\n/a/ b\nendif\n")).0.is_err());
        assert!(mapped("memcache:/etc/v", &files).0.unwrap_err().contains("text:FILE"));
        assert_eq!(Table::parse("example.com"), None);
        assert_eq!(Table::parse("[2001:db8::1]"), None);
    }

    #[test]
    fn databases_and_directories_are_named_maps() {
        let files = One(
            "/etc/v.cf",
            "hosts = db.test:5433\nuser = m\npassword = s\ndbname = mail\nquery = SELECT a FROM t WHERE x='%u' AND d='%d'\n",
        );
        let (found, toml) = mapped("pgsql:/etc/v.cf", &files);
        assert_eq!(found.unwrap(), "map:v");
        assert!(toml.contains("postgres = \"host=db.test port=5433 dbname=mail user=m\""), "{toml}");
        assert!(toml.contains("x=regexp_replace($1, '@[^@]*$', '') AND d=substring("), "{toml}");
        assert!(toml.contains("secret = \"file:v.secret\"") && !toml.contains("\"s\""), "{toml}");
        let files =
            One("/etc/l.cf", "server_host = ldap://x\nsearch_base = dc=a\nquery_filter = (mail=%s)\n");
        let (_, toml) = mapped("ldap:/etc/l.cf", &files);
        assert!(
            toml.contains("filter = \"(mail={key})\"") && toml.contains("attribute = \"maildrop\""),
            "{toml}"
        );
        let files = One("/etc/l.cf", "search_base = dc=a\nresult_format = smtp:[%s]\n");
        assert!(mapped("ldap:/etc/l.cf", &files).0.unwrap_err().contains("result_format"));
        assert!(mapped("sqlite:/etc/v.cf", &NoFiles).0.unwrap_err().contains("--features sqlite"));
        let (_, toml) = mapped("socketmap:inet:h:99:users", &NoFiles);
        assert!(toml.contains("[map.users]\nsocketmap = \"h:99\"\nremote_name = \"users\""), "{toml}");
    }

    #[test]
    fn a_table_of_mysql_is_a_map_with_parameters() {
        let of = |text: &'static str| mapped("proxy:mysql:/etc/v.cf", &One("/etc/v.cf", text));
        let (found, toml) = of("user = m@x\npassword = a$b c\ndbname = mail\nhosts = 127.0.0.1:3307, db2\n\
             query = SELECT goto FROM alias,alias_domain WHERE alias_domain = '%d' \
             and alias.address=CONCAT('%u', '@', target) and x = 'p-%s' and y LIKE '50%%'\n");
        assert_eq!(found.unwrap(), "map:v");
        assert!(toml.contains("mysql = \"mysql://m%40x@127.0.0.1:3307/mail?require_ssl=false\""), "{toml}");
        assert!(toml.contains("# mysql:/etc/v.cf; only the first of its hosts is used"), "{toml}");
        for part in [
            "alias_domain = IF(LOCATE('@', ?), SUBSTRING_INDEX(?, '@', -1), NULL) and",
            ", '@', target) and x = CONCAT('p-', ?) and y LIKE '50%'",
        ] {
            assert!(toml.contains(part), "{part}: {toml}");
        }
        let (_, toml) = of(
            "user = m\ndbname = mail\ntable = t\nselect_field = a\nwhere_field = b\ndomain = A.test b.test\n",
        );
        assert!(toml.contains("@localhost/mail?socket=/run/mysqld/mysqld.sock"), "{toml}");
        let query = "SELECT * FROM (SELECT a FROM t WHERE b=?) AS found WHERE IF(";
        assert!(toml.contains(query) && toml.contains("IN ('a.test', 'b.test')"), "{toml}");
        for (text, why) in [
            ("user = m\nquery = SELECT 1", "no `dbname`"),
            ("user = m\ndbname = d\nquery = SELECT a FROM t WHERE b='%2'\n", "%2"),
            ("user = m\ndbname = d\nquery = SELECT a FROM t\n", "does not use the key"),
            (
                "user = m\ndbname = d\nquery = SELECT a FROM t WHERE b='%s'\nresult_format = x%s\n",
                "result_format",
            ),
        ] {
            let found = of(text).0.unwrap_err();
            assert!(found.contains(why), "{found}");
        }
    }

    #[test]
    fn entries_are_lines_or_stand_in_place() {
        let table = Table::parse("inline:{ {a = b}, {c = d e} }").unwrap();
        let found: Vec<_> = table.entries(&NoFiles).unwrap().into_iter().map(|e| (e.key, e.value)).collect();
        assert_eq!(found, [("a".to_owned(), "b".to_owned()), ("c".to_owned(), "d e".to_owned())]);
        assert_eq!(entries("# c\na\tb\n  c\n\nd\n").len(), 2);
    }
}
