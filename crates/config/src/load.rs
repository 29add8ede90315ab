//! Reads a file into settings: every section is read and every check is made, also after a problem.

use crate::{
    check,
    listing::{self, Effective, Origin},
    local::{Local, LocalKeys},
    map,
    problem::{Code, Problem, Problems},
    schema::schema,
    section::{Placeholders, Reading, Section as _},
    settings::*,
    sources::Sources,
    value::{Context, HostTable, OrMap, Value},
};
use mail::Domain;
use maps::Reference;
use std::{
    fs, io,
    ops::Range,
    path::{Path, PathBuf},
};
use toml::{Spanned, de::DeTable};

/// Settings, and how they came about.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// What the daemon runs with.
    pub settings: Settings,
    /// Each key's value and origin, in the order of the manual.
    pub effective: Vec<Effective>,
    /// The file; none for the embedded default.
    pub path: Option<PathBuf>,
    pub(crate) sources: Sources,
}

impl Loaded {
    /// Returns faults of maps as problems, each at the value that names the map.
    pub fn map_problems(&self, faults: &[(Reference, String, String)]) -> Problems {
        let path = self.path.clone().unwrap_or_default();
        let source = self.sources.text();
        let full = std::path::absolute(&path).unwrap_or_else(|_| path.clone());
        let base = full.parent().map_or_else(PathBuf::new, Path::to_owned);
        let list = faults.iter().map(|(reference, what, help)| Problem {
            code: Code::Map,
            what: format!("{reference}: {what}"),
            label: "cannot be used".to_owned(),
            help: (!help.is_empty()).then(|| help.clone()),
            span: place_of(source, &base, reference).or_else(|| self.map_origin(reference.name()?).1),
        });
        Problems::of(&self.sources, list.collect())
    }

    /// Returns the line of a named map: of the key that says where its keys are.
    pub fn line_of_map(&self, name: &str) -> Option<usize> {
        self.map_origin(name).0
    }

    /// The line and the bytes of the key that says where the keys of a named map are.
    fn map_origin(&self, name: &str) -> (Option<usize>, Option<Range<usize>>) {
        let section = format!("map.{name}.");
        let origins = self.effective.iter().filter_map(|entry| {
            let key = entry.path.strip_prefix(&section)?;
            let Origin::File { line, span } = &entry.origin else { return None };
            map::PLACES.iter().any(|(source, _)| *source == key).then_some((*line, span.clone()))
        });
        origins.into_iter().next().map(|(line, span)| (Some(line), Some(span))).unwrap_or_default()
    }

    /// Returns the file in which the bytes of an [`Origin::File`] stand: the file itself, or one of `conf.d`.
    pub fn file_of(&self, span: &Range<usize>) -> &Path {
        self.sources.file_at(span.start).0
    }

    /// Returns a file of the configuration with other texts in the places of those of some keys: the file, and its new text.
    ///
    /// # Errors
    /// A key is not set in a file, or they stand in two files.
    pub fn with_values(&self, values: &[(String, &str)]) -> Result<(PathBuf, String), String> {
        let mut places = Vec::new();
        for (key, value) in values {
            let set = self.effective.iter().find(|entry| entry.path == *key).map(|entry| &entry.origin);
            let Some(Origin::File { span, .. }) = set else {
                return Err(format!("{key} is not set in the configuration"));
            };
            places.push((span.clone(), toml::Value::from(*value).to_string()));
        }
        places.sort_by_key(|(span, _)| span.start);
        let Some((first, _)) = places.first() else { return Err("nothing is to be changed".to_owned()) };
        let (path, text, begin) = self.sources.file_at(first.start);
        let mut text = text.to_owned();
        for (span, value) in places.iter().rev() {
            if self.file_of(span) != path {
                return Err(format!(
                    "{} and {} share a section",
                    path.display(),
                    self.file_of(span).display()
                ));
            }
            text.replace_range(span.start - begin..span.end - begin, value);
        }
        Ok((path.to_owned(), text))
    }

    /// The effective configuration as TOML, each line with its origin. It reads back to the same settings.
    pub fn as_toml(&self) -> String {
        listing::as_toml(&self.effective, |span| {
            self.path.as_ref().map_or_else(String::new, |_| self.file_of(span).display().to_string())
        })
    }
}

/// The purpose for which settings are loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To run the daemon: every file that the settings name must be readable.
    Serve,
    /// To find the daemon: certificates and keys need not be readable.
    Ask,
}

/// Reads and checks a file; without one, the embedded default.
pub fn load(path: Option<&Path>) -> Result<Settings, Problems> {
    load_with_origins(path, Purpose::Serve).map(|loaded| loaded.settings)
}

/// Checks a configuration, and tells where each value comes from.
pub fn load_with_origins(path: Option<&Path>, purpose: Purpose) -> Result<Loaded, Problems> {
    let Some(path) = path else {
        return read(&Sources::one(Path::new("embedded default"), ""), None, purpose, None);
    };
    read(&Sources::read(path)?, Some(path), purpose, None)
}

/// Returns the data directory that a file with mistakes names, or that is its default.
pub(crate) fn data_dir_of(path: &Path) -> Option<PathBuf> {
    // What is no UTF-8 is a comment mostly, and a mistake in any case.
    let source = String::from_utf8_lossy(&fs::read(path).ok()?).into_owned();
    let sources = Sources::one(path, &source);
    let (root, _) = sources.parse();
    Some(reading(&sources, Some(path)).settings(&root, None).data_dir)
}

/// A file's text.
pub(crate) fn source_of(path: &Path) -> Result<String, Problems> {
    source(path, false)
}

/// The text of a file, or of one of `conf.d`.
pub(crate) fn source(path: &Path, is_of_folder: bool) -> Result<String, Problems> {
    let bytes = fs::read(path).map_err(|error| {
        let what = format!("read {}: {error}", path.display());
        let help = match error.kind() {
            io::ErrorKind::PermissionDenied => "let this user read it, or run this as one who may",
            io::ErrorKind::IsADirectory if is_of_folder => {
                "remove it, or give it another name: only files are read here"
            }
            io::ErrorKind::IsADirectory => {
                "name the file in this directory after --config or in POSTRIDER_CONFIG"
            }
            _ => "name an existing file after --config or in POSTRIDER_CONFIG",
        };
        let help = Some(help.to_owned());
        Problems::new(
            path,
            "",
            vec![Problem { code: Code::File, what, label: String::new(), help, span: None }],
        )
    })?;
    String::from_utf8(bytes).map_err(|error| {
        let (at, bytes) = (error.utf8_error().valid_up_to(), error.as_bytes());
        let label = format!("the byte 0x{:02X}", bytes[at]);
        let help =
            Some("save the file as UTF-8; `iconv -f latin1 -t utf-8` converts it from Latin-1".to_owned());
        let problem = Problem {
            code: Code::File,
            what: "this is not UTF-8".to_owned(),
            label,
            help,
            span: Some(at..at + 1),
        };
        Problems::new(path, &String::from_utf8_lossy(bytes), vec![problem])
    })
}

/// Reads and checks a configuration that the program has; relative paths begin in the current directory.
///
/// # Errors
/// A value that was filled in is wrong.
pub fn load_built_in(source: &str, name: &str) -> Result<Settings, Problems> {
    read(&Sources::one(Path::new(name), source), None, Purpose::Serve, None).map(|loaded| loaded.settings)
}

/// A file's text, for fuzzing; what it says of certificates is not looked at.
#[doc(hidden)]
pub fn load_text(source: &str) -> Result<Loaded, Problems> {
    let path = Path::new("fuzz.toml");
    read(&Sources::one(path, source), Some(path), Purpose::Ask, None)
}

fn reading<'s>(sources: &'s Sources, path: Option<&Path>) -> Reading<'s> {
    Reading {
        sources,
        cx: Context { base: folder_of(path), key: String::new(), problems: Vec::new() },
        placeholders: Placeholders { machine: machine_name(), ..Placeholders::default() },
        effective: Vec::new(),
    }
}

/// Reads a text. Where a daemon runs, defaults are made of what it was started with.
pub(crate) fn read(
    sources: &Sources,
    path: Option<&Path>,
    purpose: Purpose,
    started: Option<&Settings>,
) -> Result<Loaded, Problems> {
    let (root, mut problems) = sources.parse();
    if !problems.is_empty()
        && let Some((line, server)) = other_server(sources.text())
    {
        return Err(Problems::of(sources, vec![foreign(line, server)]));
    }
    if path.is_some() && problems.is_empty() && root.is_empty() {
        problems.push(empty());
    }
    let mut reading = reading(sources, path);
    let settings = reading.settings(&root, started);
    // For a reload it was checked as it stands: with another hostname or folder some of it looks wrong.
    if started.is_none() {
        check::check(&mut reading, &settings, purpose);
    }
    // A broken line hides keys, so that what is said of the rest could mislead. A key that is set twice hides none.
    if problems.iter().all(|problem| problem.code == Code::Conflict) {
        problems.append(&mut reading.cx.problems);
    }
    if problems.is_empty() {
        let (effective, path) = (reading.effective, path.map(Path::to_owned));
        return Ok(Loaded { settings, effective, path, sources: sources.clone() });
    }
    Err(Problems::of(sources, problems))
}

/// A file that an editor or a full disk has emptied must not become the embedded default.
fn empty() -> Problem {
    Problem {
        code: Code::Syntax,
        span: None,
        what: "the file has no key".to_owned(),
        label: "empty, or comments only".to_owned(),
        help: Some(
            "write at least `hostname`, take a copy back, or run `postrider quickstart`; remove the file for the embedded default"
                .to_owned(),
        ),
    }
}

/// Returns the line that shows that this is the configuration of another mail server, and the server.
fn other_server(source: &str) -> Option<(Range<usize>, &'static str)> {
    let mut begin = 0;
    for line in source.split_inclusive('\n') {
        let text = line.trim();
        let key = text.split_once('=').map_or(text, |(key, _)| key).trim();
        let server = match key {
            "myhostname"
            | "mydestination"
            | "mynetworks"
            | "smtpd_banner"
            | "inet_interfaces"
            | "relayhost"
            | "alias_maps"
            | "smtpd_recipient_restrictions"
            | "smtpd_relay_restrictions" => "postfix",
            "begin acl"
            | "begin routers"
            | "begin transports"
            | "acl_smtp_rcpt"
            | "primary_hostname"
            | "dc_eximconfig_configtype" => "exim",
            _ if text.starts_with("define(`conf") || text.starts_with("DivertMacro") => "sendmail",
            _ if text.starts_with("MAILER(`") || text.starts_with("FEATURE(`") => "sendmail",
            _ => {
                begin += line.len();
                continue;
            }
        };
        return Some((begin..begin + line.trim_end().len(), server));
    }
    None
}

fn foreign(line: Range<usize>, server: &str) -> Problem {
    let name = match server {
        "postfix" => "Postfix",
        "exim" => "Exim",
        _ => "Sendmail",
    };
    Problem {
        code: Code::Syntax,
        what: format!("this is the configuration of {name}"),
        label: format!("a setting of {name}"),
        help: Some(format!(
            "`postrider import {server} FOLDER` makes one for Postrider of it, with a report"
        )),
        span: Some(line),
    }
}

pub(crate) fn syntax_problem(error: &toml::de::Error) -> Problem {
    let label = error.message().to_owned();
    // As the library words it: `a_key_that_is_set_twice_is_shown` sees to it that it still does.
    let (what, help) = match label.as_str() {
        "duplicate key" => (
            "this is set twice",
            "keep one of the two, or write the keys of both sections below one of them; a second route, rule or listener begins with a [[route]], [[rule]] or [[listen]] of its own",
        ),
        _ => (
            "this is not TOML",
            "a line is `key = value`, `[section]` or `# comment`; text stands in straight quotes, \"…\"",
        ),
    };
    let code = Code::Syntax;
    Problem { code, what: what.to_owned(), label, help: Some(help.to_owned()), span: error.span() }
}

/// The folder that relative paths start at; absolute, so that they mean the same for every command.
fn folder_of(path: Option<&Path>) -> PathBuf {
    let folder = path.and_then(Path::parent).unwrap_or(Path::new(""));
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned())
}

/// Returns the name of this machine, with its domain if /etc/hosts has it, else Debian's /etc/mailname; `localhost` if it has none.
pub fn machine_name() -> String {
    let system = rustix::system::uname();
    let name = system.nodename().to_string_lossy();
    let hosts = std::fs::read_to_string("/etc/hosts").unwrap_or_default();
    let whole =
        || whole_name(&name, &hosts).or_else(|| mail_name(&std::fs::read_to_string("/etc/mailname").ok()?));
    let name = if name.contains('.') { None } else { whole() }.unwrap_or(name.into_owned());
    match Domain::parse(&name) {
        Ok(domain) if !name.starts_with('[') => domain.key().into_owned(),
        _ => "localhost".to_owned(),
    }
}

/// Returns the name in a file such as /etc/mailname, if it has a domain.
fn mail_name(file: &str) -> Option<String> {
    let name = file.lines().next()?.trim();
    name.contains('.').then(|| name.to_owned())
}

/// Returns the name with its domain, as hosts(5) has it: `127.0.1.1 mx.example.com mx`. The resolver is not asked: it may take
/// its time.
fn whole_name(name: &str, hosts: &str) -> Option<String> {
    let lines = hosts.lines().map(|line| line.split('#').next().unwrap_or_default());
    let mut found = lines.filter_map(|line| {
        let names: Vec<&str> = line.split_ascii_whitespace().skip(1).collect();
        let is_here = names.iter().any(|one| one.eq_ignore_ascii_case(name));
        let is_whole =
            |one: &&&str| one.split_once('.').is_some_and(|(host, _)| host.eq_ignore_ascii_case(name));
        names.iter().find(is_whole).filter(|_| is_here).map(|one| (*one).to_owned())
    });
    found.next()
}

impl Reading<'_> {
    fn settings(&mut self, root: &DeTable<'_>, started: Option<&Settings>) -> Settings {
        let sections = schema();
        let known: Vec<&str> =
            sections[0].keys.iter().map(|key| key.name).chain(sections[1..].iter().map(|s| s.name)).collect();
        self.refuse_unknown("", root, &known);
        let (hostname, data_dir, postmaster) = self.global(root, started);
        let listen = self.listen(root);
        let relay: RelayKeys = self.plain(root, "relay");
        let (networks, network_maps) = OrMap::split(relay.networks);
        let relay = Relay { networks, network_maps };
        let local_keys: LocalKeys = self.plain(root, "local");
        let local = Local::from(&local_keys);
        let addresses: crate::settings::Addresses = self.plain(root, "addresses");
        let notifications = self.plain(root, "notifications");
        let maps = self.maps(root);
        let mut routes = self.routes(root, addresses.separator.0);
        self.add_local_route(&local_keys, root, &mut routes);
        let rules = self.rules(root, &hostname, &local, &routes, addresses.separator.0);
        let tls = self.plain(root, "tls");
        let certificates = self.certificates(root);
        let acme = self.plain(root, "acme");
        let auth = self.plain(root, "auth");
        let oauth = self.plain(root, "oauth");
        let limits = self.limits(root);
        Settings {
            hostname,
            data_dir,
            postmaster,
            listen,
            relay,
            local,
            addresses,
            notifications,
            maps,
            routes,
            rules,
            tls,
            certificates,
            acme,
            sign: self.sign(root),
            filters: self.filters(root),
            auth,
            oauth,
            limits,
            inbound: self.plain(root, "inbound"),
            extensions: self.plain(root, "extensions"),
            delivery: self.plain(root, "delivery"),
            queue: self.plain(root, "queue"),
            queue_groups: self.queue_groups(root),
            spool: self.plain(root, "spool"),
            dns: self.plain(root, "dns"),
            hosts: self.hosts(root),
            log: self.plain(root, "log"),
            metrics: self.plain(root, "metrics"),
            history: self.plain(root, "history"),
            control: self.plain(root, "control"),
            process: self.plain(root, "process"),
            workers: self.plain(root, "workers"),
        }
    }

    /// A section that stands once and needs nothing more.
    fn plain<S: crate::section::Section>(&mut self, root: &DeTable<'_>, name: &str) -> S {
        let table = self.table(root, name);
        self.section(name, table)
    }

    /// Defaults of other keys are made of these, so they come first, one after the other.
    fn global(&mut self, root: &DeTable<'_>, started: Option<&Settings>) -> (String, PathBuf, mail::Mailbox) {
        self.placeholders.hostname.clone_from(&self.placeholders.machine);
        let already = self.cx.problems.len();
        let early: GlobalKeys = self.section("", Some(root));
        self.effective.clear();
        self.cx.problems.truncate(already);
        self.placeholders.hostname.clone_from(started.map_or(&early.hostname.0, |s| &s.hostname));
        let keys: GlobalKeys = self.section("", Some(root));
        let span = root.get("data_dir").map(Spanned::span);
        let data_dir = started.map_or(&keys.data_dir, |s| &s.data_dir);
        self.placeholders.data_dir = check::data_dir(self, data_dir, span);
        (keys.hostname.0, keys.data_dir, keys.postmaster)
    }

    fn listen(&mut self, root: &DeTable<'_>) -> Vec<Listen> {
        let Some(tables) = self.tables(root, "listen") else {
            let text = "address = \"127.0.0.1:2525\"";
            let table = DeTable::parse(text).expect("the default listener is TOML");
            let keys: ListenKeys = self.section("listen[0]", Some(table.get_ref()));
            let from = self.effective.len() - ListenKeys::DOC.keys.len();
            self.effective[from].origin = Origin::Default;
            return keys.address.clone().map(|address| keys.at(0, address)).into_iter().collect();
        };
        let mut listen = Vec::new();
        for (number, table) in tables.iter().enumerate() {
            let keys: ListenKeys = self.section(&format!("listen[{number}]"), Some(table.get_ref()));
            match keys.address.clone() {
                Some(address) => listen.push(keys.at(number, address)),
                None if table.get_ref().contains_key("address") => {}
                None => self.missing(table.span(), "address", "address = \"127.0.0.1:25\""),
            }
        }
        listen
    }

    pub(crate) fn missing(&mut self, span: Range<usize>, key: &str, example: &str) {
        let what = format!("`{key}` is missing");
        self.cx.problem_of(Code::MissingKey, span, what, "in this section", format!("write {example}"));
    }

    fn certificates(&mut self, root: &DeTable<'_>) -> Vec<Certificate> {
        let tables = self.tables(root, "certificate").unwrap_or_default();
        let mut certificates = Vec::new();
        for (number, table) in tables.iter().enumerate() {
            let keys: CertificateKeys =
                self.section(&format!("certificate[{number}]"), Some(table.get_ref()));
            for (key, example) in [("chain", "chain = \"fullchain.pem\""), ("key", "key = \"privkey.pem\"")] {
                if !table.get_ref().contains_key(key) {
                    self.missing(table.span(), key, example);
                }
            }
            if let CertificateKeys { chain: Some(chain), key: Some(key) } = keys {
                certificates.push(Certificate { number, chain, key });
            }
        }
        certificates
    }

    /// Converts the keys to limits of sessions; a new limit of `smtp` does not compile until it has a key.
    fn limits(&mut self, root: &DeTable<'_>) -> smtp::Limits {
        let limits: LimitKeys = self.plain(root, "limits");
        let timeouts: TimeoutKeys = self.plain(root, "timeouts");
        smtp::Limits {
            command_line_bytes: limits.max_command_line.as_usize(),
            path_bytes: limits.max_path.as_usize(),
            strict_local_parts: limits.strict_local_parts,
            loose_paths: limits.loose_paths,
            message_bytes: limits.max_message_size.0,
            recipients: limits.max_recipients,
            transactions: limits.max_transactions,
            errors: limits.max_errors,
            refused_recipients: limits.max_rejected_recipients,
            junk_commands: limits.max_junk_commands,
            hops: limits.max_hops,
            header_bytes: limits.max_header_size.as_usize(),
            command_timeout: timeouts.command,
            stress_command_timeout: timeouts.command_under_stress,
            data_timeout: timeouts.data,
            tls_timeout: timeouts.tls,
            transaction_timeout: timeouts.transaction,
        }
    }

    fn hosts(&mut self, root: &DeTable<'_>) -> HostTable {
        let Some(found) = root.get("hosts") else { return HostTable::new() };
        "hosts".clone_into(&mut self.cx.key);
        let hosts = HostTable::read(found, &mut self.cx).unwrap_or_default();
        for (name, addresses) in &hosts {
            let span = found.span();
            let (line, _) = self.sources.place(span.start);
            let origin = Origin::File { line, span };
            self.effective.push(Effective {
                path: format!("hosts.{name}"),
                value: addresses.to_toml(),
                origin,
            });
        }
        hosts
    }
}

/// Returns the place of the text in quotes that is this reference.
fn place_of(source: &str, base: &Path, reference: &Reference) -> Option<Range<usize>> {
    let mut at = 0;
    for (number, part) in source.split('"').enumerate() {
        let is_it = || Reference::parse(part, base).is_ok_and(|read| read == *reference);
        if number % 2 == 1 && is_it() {
            return Some(at - 1..at + part.len() + 1);
        }
        at += part.len() + 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{mail_name, whole_name};

    #[test]
    fn mailname_counts_if_it_has_a_domain() {
        assert_eq!(mail_name("mx.example.com\n").as_deref(), Some("mx.example.com"));
        assert_eq!((mail_name("mx\n"), mail_name("")), (None, None));
    }

    #[test]
    fn a_short_name_gets_the_domain_that_hosts_has() {
        let hosts = "127.0.0.1 localhost\n127.0.1.1\tmx.example.com mx # this machine\n10.0.0.2 www.example.org www\n";
        assert_eq!(whole_name("mx", hosts).as_deref(), Some("mx.example.com"));
        assert_eq!(whole_name("MX", hosts).as_deref(), Some("mx.example.com"));
        assert_eq!(whole_name("localhost", hosts), None);
        assert_eq!(whole_name("mail", hosts), None);
    }
}
