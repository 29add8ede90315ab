//! The configuration of Sendmail as one of Postrider.

mod verdicts;

use super::{
    cf::Cf,
    mc::{Macro, macros},
};
use crate::{
    Draft, Files, Report, Verdict,
    draft::Section,
    postfix::{TableEntry, entries},
};
use mail::Domain;
use std::path::Path;
use verdicts::{NO_FILTER, call_verdict, cf_option, define, feature};

/// Names that the reader of the queue needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    /// The name of the server, and the domain of addresses that have none.
    pub hostname: String,
    /// The file with the number of the daemon, if the configuration names it.
    pub pid_file: Option<String>,
}

/// Returns the names of a file `sendmail.cf`.
pub fn names(cf: &[u8], files: &dyn Files) -> Names {
    let cf = Cf::parse(cf);
    let pid_file = cf.option("PidFile").map(str::to_owned);
    Names { hostname: hostname(&cf, &[], files), pid_file }
}

/// Returns the configuration of Postrider, and a report about each setting: about the lines of `sendmail.mc`, if there is
/// one, else about those of `sendmail.cf`. `dir` is the directory of the files. `None` without a file.
pub fn convert(
    mc: Option<&[u8]>,
    cf: Option<&[u8]>,
    dir: &str,
    files: &dyn Files,
) -> Option<(Draft, Report)> {
    if mc.is_none() && cf.is_none() {
        return None;
    }
    let calls = mc.map(macros).unwrap_or_default();
    let cf = cf.map(Cf::parse).unwrap_or_default();
    let draft = Draft::new(&[
        "Made by `postrider import sendmail` from sendmail.mc and sendmail.cf.",
        "Check it with `postrider config check`, and read the report of the import.",
    ]);
    let name = hostname(&cf, &calls, files);
    let mut converter = Converter {
        cf,
        calls,
        dir: dir.trim_end_matches('/').to_owned(),
        files,
        draft,
        report: Report::default(),
        hostname: name,
        notes: Vec::new(),
    };
    converter.write();
    converter.judge();
    Some((converter.draft, converter.report))
}

fn hostname(cf: &Cf, calls: &[Macro], files: &dyn Files) -> String {
    let given = calls.iter().rfind(|call| call.name == "define" && call.argument(0) == "confDOMAIN_NAME");
    let given = given.map(|call| call.argument(1).to_owned());
    let of_cf = cf.macro_value("j").filter(|name| !name.contains('$')).map(str::to_owned);
    given.filter(|name| !name.contains('$')).or(of_cf).unwrap_or_else(|| files.machine()).to_lowercase()
}

struct Converter<'a> {
    cf: Cf,
    calls: Vec<Macro>,
    dir: String,
    files: &'a dyn Files,
    draft: Draft,
    report: Report,
    hostname: String,
    /// Notes about names of `sendmail.mc` or letters of `sendmail.cf`.
    notes: Vec<(&'static str, Verdict)>,
}

impl Converter<'_> {
    /// Returns the value that `define` gives to a name.
    fn defined(&self, name: &str) -> Option<&str> {
        let call = self.calls.iter().rfind(|call| call.name == "define" && call.argument(0) == name)?;
        Some(call.argument(1))
    }

    fn has_feature(&self, name: &str) -> bool {
        self.calls.iter().any(|call| call.name == "FEATURE" && call.argument(0) == name)
    }

    fn file(&self, name: &str) -> Option<String> {
        let file = self.files.read(Path::new(name))?;
        Some(String::from_utf8_lossy(&file).into_owned())
    }

    fn missing(&mut self, name: &'static str, text: impl Into<String>) {
        self.notes.push((name, Verdict::Missing(text.into())));
    }

    fn note(&mut self, name: &'static str, text: impl Into<String>) {
        self.notes.push((name, Verdict::Note(text.into())));
    }

    fn write(&mut self) {
        self.draft.set("", "hostname", self.hostname.clone(), "$j");
        self.draft.set("", "data_dir", "/var/lib/postrider", "");
        self.domains();
        self.listeners();
        self.drop_logins();
        self.access();
        self.aliases();
        self.virtual_users();
        self.mailertable();
        self.local_mail();
        self.smart_host();
        self.masquerade();
        self.certificates();
        self.numbers();
    }

    /// Class `w` is local; class `R` may be relayed to and from.
    fn domains(&mut self) {
        let mut names = self.cf.class("w");
        let mut files = self.cf.class_files("w");
        if files.is_empty() && self.has_feature("use_cw_file") {
            files.push(format!("{}/local-host-names", self.dir));
        }
        names.extend(
            self.calls
                .iter()
                .filter(|call| call.name == "LOCAL_DOMAIN")
                .flat_map(|call| call.argument(0).split_whitespace().map(str::to_owned)),
        );
        for file in files {
            names.extend(lines(&self.file(&file).unwrap_or_default()));
        }
        let mut local = vec![self.hostname.clone(), "localhost".to_owned()];
        for name in names.into_iter().map(|name| name.to_lowercase()) {
            if Domain::parse(&name).is_ok() && !name.starts_with('[') && !local.contains(&name) {
                local.push(name);
            }
        }
        self.draft.extend("[local]", "domains", local, "class w, local-host-names");
        let mut relay = self.cf.class("R");
        let mut files = self.cf.class_files("R");
        if files.is_empty() {
            files.push(format!("{}/relay-domains", self.dir));
        }
        relay.extend(
            self.calls
                .iter()
                .filter(|call| call.name == "RELAY_DOMAIN")
                .flat_map(|call| call.argument(0).split_whitespace().map(str::to_owned)),
        );
        for file in files {
            relay.extend(lines(&self.file(&file).unwrap_or_default()));
        }
        for name in relay {
            self.relayed(&name);
        }
        let networks = ["127.0.0.0/8".to_owned(), "::1/128".to_owned()];
        self.draft.extend("[relay]", "networks", networks, "this machine");
    }

    /// A network may relay; mail to a domain is taken and sent to its MX hosts.
    fn relayed(&mut self, name: &str) {
        if let Some(network) = network(name) {
            self.draft.extend("[relay]", "networks", [network], "relay-domains, access");
        } else if Domain::parse(name).is_ok() {
            let name = name.to_lowercase();
            if !self.draft.list("[local]", "domains").contains(&name) {
                self.draft.extend(
                    "[local]",
                    "domains",
                    [name.clone()],
                    "class w, local-host-names, relay-domains",
                );
                let section = Section::new("[[route]]", "relay-domains, access")
                    .with("domains", vec![name])
                    .with("mx", true);
                self.draft.push(section);
                self.note("relay-domains", "mail to these domains is taken from all; hosts that are named by a domain may not relay: write their networks into relay.networks");
            }
        } else {
            self.missing("relay-domains", format!("{name} is no domain and no network"));
        }
    }

    fn listeners(&mut self) {
        let mut options: Vec<String> = self.cf.options("DaemonPortOptions").map(str::to_owned).collect();
        if options.is_empty() {
            options = self
                .calls
                .iter()
                .filter(|call| call.name == "DAEMON_OPTIONS")
                .map(|call| call.argument(0).to_owned())
                .collect();
        }
        if options.is_empty() {
            options.push("Port=smtp".to_owned());
        }
        let has_tls = self.option("ServerCertFile", "confSERVER_CERT").is_some();
        for option in options {
            let of = |name: &str| {
                option.split([',', ' ']).filter_map(|part| part.trim().split_once('=')).find_map(
                    |(key, value)| {
                        let fits = !key.is_empty()
                            && name.starts_with(&key.to_ascii_lowercase()[..1])
                            && (key.len() > 1 || key.eq_ignore_ascii_case(&name[..1]));
                        fits.then(|| value.to_owned())
                    },
                )
            };
            let family = of("family").unwrap_or_else(|| "inet".to_owned());
            let port = match of("port").as_deref() {
                None | Some("smtp") => "25".to_owned(),
                Some("submission" | "MSA") => "587".to_owned(),
                Some("smtps" | "submissions") => "465".to_owned(),
                Some(port) => port.to_owned(),
            };
            let address = of("addr")
                .unwrap_or_else(|| if family == "inet6" { "::".to_owned() } else { "0.0.0.0".to_owned() });
            let address = if address == "localhost" { "127.0.0.1".to_owned() } else { address };
            if address.parse::<std::net::IpAddr>().is_err() || port.parse::<u16>().is_err() {
                self.missing("DAEMON_OPTIONS", format!("{option}: write [[listen]] by hand"));
                continue;
            }
            let modifiers = of("modify").or_else(|| of("m")).unwrap_or_default();
            let address = if address.contains(':') {
                format!("[{address}]:{port}")
            } else {
                format!("{address}:{port}")
            };
            let mut section = Section::new("[[listen]]", format!("DaemonPortOptions {option}"));
            if modifiers.contains('s') || port == "465" {
                section = section.with("kind", "submissions");
            } else if modifiers.contains('a') {
                section = section.with("kind", "submission");
            } else if !has_tls {
                section = section.with("tls", "off");
            }
            self.draft.push(section.with("address", address));
        }
    }

    /// Nobody can log in until [auth] has users.
    fn drop_logins(&mut self) {
        if self.draft.drop_logins() {
            let text = "the listeners for submission are left out until [auth] has users: make a file of users with `postrider auth hash`";
            self.missing("DAEMON_OPTIONS", text);
        }
    }

    /// Returns an option of `sendmail.cf`, or the name of `sendmail.mc` that sets it.
    fn option(&self, name: &str, define: &str) -> Option<String> {
        let value = self.cf.option(name).or_else(|| self.defined(define)).unwrap_or_default();
        (!value.is_empty()).then(|| value.to_owned())
    }

    /// Reads the text of a table; one that is only there in binary form is reported.
    fn table(&mut self, map: &str, feature: &'static str) -> Vec<TableEntry> {
        let usual = format!("{}/{map}", self.dir);
        let known = map.strip_suffix("table").filter(|_| map == "virtusertable").map_or(map, |_| "virtuser");
        let of_cf = self.cf.map_file(known);
        if of_cf.is_none() && !self.has_feature(feature) {
            return Vec::new();
        }
        let name = of_cf.unwrap_or(usual);
        match self.file(&name) {
            Some(text) => entries(&text),
            None => {
                if self.files.exists(Path::new(&format!("{name}.db"))) {
                    self.missing(
                        feature,
                        format!(
                            "the text of {name} is not there; make it with `makemap -u hash {name} >{name}`"
                        ),
                    );
                }
                Vec::new()
            }
        }
    }

    fn access(&mut self) {
        for TableEntry { key, value } in self.table("access", "access_db") {
            let (tag, key) = match key.split_once(':') {
                Some((tag, key)) if tag.bytes().all(|b| b.is_ascii_alphabetic() || b == b'_') => {
                    (tag.to_ascii_lowercase(), key.to_owned())
                }
                _ => (String::new(), key),
            };
            let action = value.split_whitespace().next().unwrap_or_default().to_owned();
            let network = network(&key);
            if action.eq_ignore_ascii_case("RELAY") && matches!(&*tag, "" | "connect" | "to") {
                match (&*tag, network) {
                    ("" | "connect", Some(network)) => {
                        self.draft.extend("[relay]", "networks", [network], "access");
                    }
                    ("connect", None) if key == "localhost" || key == "localhost.localdomain" => {}
                    ("connect", None) => self.missing(
                        "access_db",
                        format!("{tag}:{key} RELAY: write the networks of these hosts into relay.networks"),
                    ),
                    _ => self.relayed(&key),
                }
                continue;
            }
            let condition = match (&*tag, network) {
                ("" | "connect", Some(network)) => ("client", network),
                ("connect", None) => ("client_name", format!("*.{key}")),
                ("from" | "spam", _) | ("", None) => ("from", address(&key)),
                ("to", _) => ("to", address(&key)),
                _ => {
                    self.missing(
                        "access_db",
                        format!("{tag}:{key} {value}: see [[rule]], [[limit]] and [tls]"),
                    );
                    continue;
                }
            };
            let text: String =
                value.chars().filter(|c| c.is_ascii() && !c.is_control() && !"{}\"".contains(*c)).collect();
            let section =
                Section::new("[[rule]]", format!("access: {tag}:{key}")).with(condition.0, vec![condition.1]);
            let section = match &*action.to_ascii_uppercase() {
                "OK" | "SKIP" | "RELAY" => section.with("accept", true),
                "REJECT" => section.with("reject", "550 5.7.1 Access denied"),
                "DISCARD" => section.with("discard", true),
                "QUARANTINE" => section.with("hold", true),
                upper if upper.starts_with("ERROR:") || upper.starts_with('5') || upper.starts_with('4') => {
                    let text = text
                        .strip_prefix("ERROR:")
                        .or_else(|| text.strip_prefix("error:"))
                        .unwrap_or(&text)
                        .trim();
                    // `5.7.1:550 text` or `550 text`.
                    let (status, rest) = match text.split_once(':') {
                        Some((status, rest)) if status.matches('.').count() == 2 => {
                            (status.to_owned(), rest.trim())
                        }
                        _ => (String::new(), text),
                    };
                    let (code, rest) = rest.split_once(' ').unwrap_or((rest, "Access denied"));
                    let code = if code.len() == 3 && code.bytes().all(|b| b.is_ascii_digit()) {
                        code
                    } else {
                        "550"
                    };
                    let status = if status.is_empty() { format!("{}.7.1", &code[..1]) } else { status };
                    let key = if code.starts_with('4') { "defer" } else { "reject" };
                    section.with(key, format!("{code} {status} {rest}"))
                }
                _ => {
                    self.missing("access_db", format!("{tag}:{key} {value}: the action has no counterpart"));
                    continue;
                }
            };
            self.draft.push(section);
        }
        if self.draft.has("[[rule]]") {
            self.note(
                "access_db",
                "Sendmail takes the most exact key, Postrider the first rule: check their order",
            );
        }
    }

    fn aliases(&mut self) {
        let files = self.option("AliasFile", "ALIAS_FILE").unwrap_or_else(|| format!("{}/aliases", self.dir));
        for file in files.split(',').map(str::trim) {
            let file = file.rsplit_once(':').map_or(file, |(_, file)| file);
            let Some(text) = self.file(file) else { continue };
            self.draft.extend("[addresses]", "aliases", [format!("aliases:{file}")], "AliasFile");
            if text.contains('|')
                || text
                    .lines()
                    .any(|line| line.split_once(':').is_some_and(|(_, to)| to.trim().starts_with('/')))
            {
                self.note(
                    "ALIAS_FILE",
                    format!(
                        "{file} has programs or files: name them in addresses.programs and addresses.files"
                    ),
                );
            }
        }
    }

    fn virtual_users(&mut self) {
        let (mut text, mut refused) = (String::new(), Vec::new());
        for TableEntry { key, value } in self.table("virtusertable", "virtusertable") {
            // `@example.com %1@example.net` moves each user.
            let target = value.replace("%1@", "@");
            let is_moved = value.starts_with("%1@") && key.starts_with('@');
            if value.starts_with("error:") || target.contains('%') || (value.contains("%1") && !is_moved) {
                refused.push(format!("{key} {value}"));
            } else {
                text.push_str(&format!("{key} {}\n", if is_moved { &target } else { &value }));
            }
        }
        if !refused.is_empty() {
            self.missing(
                "virtusertable",
                format!("write a rule with `reject`, or single addresses, for: {}", refused.join("; ")),
            );
        }
        if !text.is_empty() {
            self.draft.add_file("virtual", format!("# From virtusertable\n{text}"), false);
            self.draft.extend("[addresses]", "virtual", ["text:virtual".to_owned()], "virtusertable");
        }
        let mut domains = self.cf.class("{VirtHost}");
        for file in self.cf.class_files("{VirtHost}") {
            domains.extend(lines(&self.file(&file).unwrap_or_default()));
        }
        let domains =
            domains.into_iter().map(|name| name.to_lowercase()).filter(|name| Domain::parse(name).is_ok());
        self.draft.extend(
            "[local]",
            "domains",
            domains.collect::<Vec<_>>(),
            "class w, local-host-names, VirtHost",
        );
    }

    fn mailertable(&mut self) {
        let mut table = self.table("mailertable", "mailertable");
        table.sort_by_key(|entry| (entry.key.starts_with('.'), std::cmp::Reverse(entry.key.len())));
        for TableEntry { key, value } in table {
            let domain = if key == "." {
                "*".to_owned()
            } else {
                key.strip_prefix('.').map_or(key.clone(), |domain| format!("*.{domain}"))
            };
            let section = Section::new("[[route]]", "mailertable").with("domains", vec![domain]);
            match self.next_hop(section, &value) {
                Some(section) => self.draft.push(section),
                None => self.missing("mailertable", format!("{key} {value}: write a [[route]]")),
            }
        }
    }

    /// Reads `mailer:host`.
    fn next_hop(&mut self, section: Section, value: &str) -> Option<Section> {
        let (mailer, host) = value.split_once(':').unwrap_or(("relay", value));
        let is_literal = host.starts_with('[');
        let host = host.trim_matches(['[', ']']).trim();
        match mailer {
            "smtp" | "esmtp" | "smtp8" | "dsmtp" | "relay" if host.is_empty() => None,
            "smtp" | "esmtp" | "smtp8" | "dsmtp" | "relay" => {
                let port = self.mailer_port(mailer).unwrap_or_else(|| "25".to_owned());
                let is_v6 = host.parse::<std::net::Ipv6Addr>().is_ok();
                let host = if is_v6 { format!("[{host}]") } else { host.to_owned() };
                if !is_literal {
                    self.note(
                        "SMART_HOST",
                        format!(
                            "the MX records of {host} are not asked: the host of this name gets the mail"
                        ),
                    );
                }
                Some(section.with("smarthost", format!("{host}:{port}")).with("tls", "may"))
            }
            "local" => Some(section.with("mbox", "/var/mail/{local}")),
            "error" => Some(section.with("reject", "550 5.1.2 Mail for this domain is not taken")),
            "discard" => Some(section.with("discard", true)),
            _ => None,
        }
    }

    /// Returns the port that the arguments of a mailer name: `A=TCP $h 26`.
    fn mailer_port(&self, mailer: &str) -> Option<String> {
        let line = self
            .cf
            .lines
            .iter()
            .find(|line| line.code == 'M' && line.value.starts_with(&format!("{mailer},")))?;
        let arguments = line.value.split("A=").nth(1)?.split(',').next()?;
        let port = arguments.split_whitespace().nth(2)?;
        port.parse::<u16>().is_ok().then(|| port.to_owned())
    }

    /// The mailer for local mail is a program mostly; the mailbox is the same.
    fn local_mail(&mut self) {
        let own: Vec<String> = self.draft.list("[local]", "domains");
        let routed: Vec<crate::draft::Value> = self.draft.values("[[route]]", "domains");
        let is_routed = |name: &String| {
            routed
                .iter()
                .any(|value| matches!(value, crate::draft::Value::List(names) if names.contains(name)))
        };
        let own: Vec<String> = own.into_iter().filter(|name| !is_routed(name)).collect();
        self.draft.push(
            Section::new("[[route]]", "the mailer local")
                .with("domains", own.clone())
                .with("mbox", "/var/mail/{local}"),
        );
        self.report.notes.push("mailboxes are in /var/mail: the daemon's user must be able to write there; for procmail write `pipe` in the [[route]]".to_owned());
        let users: Vec<String> = std::iter::once("postmaster".to_owned()).chain(self.files.users()).collect();
        let relayed = self.draft.list("[local]", "domains").len() > own.len();
        if relayed {
            let text: String = own
                .iter()
                .flat_map(|domain| users.iter().map(move |user| format!("{user}@{domain} x\n")))
                .collect();
            self.draft.add_file("local-users", text, false);
            let others = self.draft.list("[local]", "domains").into_iter().filter(|name| !own.contains(name));
            let text: String =
                others.map(|domain| format!("/@{}$/ x\n", domain.replace('.', "\\."))).collect();
            self.draft.add_file("local-domains-with-all-users", text, false);
            let users =
                ["postmaster", "text:local-users", "regex:local-domains-with-all-users"].map(str::to_owned);
            self.draft.extend("[local]", "users", users, "the users of this machine");
        } else {
            self.draft.extend("[local]", "users", users, "the users of this machine");
        }
        self.draft.set("[addresses]", "separator", "+", "the mailer local takes user+detail");
        self.report.notes.push(
            "the users of the machine are listed in local.users as they are now: add new ones there"
                .to_owned(),
        );
    }

    fn smart_host(&mut self) {
        let host = self
            .defined("SMART_HOST")
            .map(str::to_owned)
            .or_else(|| self.cf.macro_value("S").map(str::to_owned));
        let Some(host) = host.filter(|host| !host.trim().is_empty()) else { return };
        let section = Section::new("[[route]]", "SMART_HOST").with("domains", vec!["*".to_owned()]);
        match self.next_hop(section, host.trim()) {
            Some(section) => self.draft.push(section),
            None => self.missing("SMART_HOST", format!("{host}: write a [[route]] with smarthost")),
        }
        let has_login = self.has_feature("authinfo")
            || self.table("authinfo", "authinfo").iter().any(|entry| entry.key.starts_with("AuthInfo:"));
        if has_login {
            self.missing("authinfo", "write `login` in the route to the smarthost");
        }
    }

    fn masquerade(&mut self) {
        let given = self
            .calls
            .iter()
            .rfind(|call| call.name == "MASQUERADE_AS")
            .map(|call| call.argument(0).to_owned());
        let given =
            given.or_else(|| self.cf.macro_value("M").map(str::to_owned)).filter(|name| !name.is_empty());
        let Some(name) = given.map(|name| name.to_lowercase()) else { return };
        if Domain::parse(&name).is_ok() {
            self.draft.extend("[addresses]", "masquerade", [name.clone()], "MASQUERADE_AS");
            self.note(
                "MASQUERADE_AS",
                format!(
                    "hosts below {name} are hidden in the reverse-path; the header and other domains stay"
                ),
            );
        }
        if !self.table("genericstable", "genericstable").is_empty() {
            self.missing(
                "genericstable",
                "write addresses.generic = [\"text:FILE\"]; names without a domain need one",
            );
        }
    }

    fn certificates(&mut self) {
        let (certificate, key) = (
            self.option("ServerCertFile", "confSERVER_CERT"),
            self.option("ServerKeyFile", "confSERVER_KEY"),
        );
        let (Some(certificate), Some(key)) = (certificate, key) else { return };
        if [&certificate, &key].iter().all(|file| self.files.exists(Path::new(file))) {
            self.draft.set("[tls]", "certificate", certificate, "ServerCertFile");
            self.draft.set("[tls]", "key", key, "ServerKeyFile");
        } else {
            self.missing(
                "confSERVER_CERT",
                format!("cannot read {certificate} and {key}: write tls.certificate and tls.key"),
            );
        }
    }

    fn numbers(&mut self) {
        let times = [
            ("Timeout.queuereturn", "confTO_QUEUERETURN", "expire", "5d"),
            ("Timeout.queuewarn", "confTO_QUEUEWARN", "delay_warning", "4h"),
        ];
        for (option, define, key, usual) in times {
            let value = self.option(option, define).unwrap_or_else(|| usual.to_owned());
            let is_time =
                value.ends_with(['s', 'm', 'h', 'd', 'w']) && value[..value.len() - 1].parse::<u64>().is_ok();
            self.draft.set("[queue]", key, if is_time { value } else { usual.to_owned() }, option);
        }
        for (option, define, section, key, least) in [
            ("MaxMessageSize", "confMAX_MESSAGE_SIZE", "[limits]", "max_message_size", 65_536),
            ("MaxRecipientsPerMessage", "confMAX_RCPTS_PER_MESSAGE", "[limits]", "max_recipients", 100),
            ("MaxHopCount", "confMAX_HOP", "[limits]", "max_hops", 1),
            ("MaxDaemonChildren", "confMAX_DAEMON_CHILDREN", "[inbound]", "max_sessions", 1),
        ] {
            let number = self.option(option, define).and_then(|value| value.parse::<u64>().ok());
            if let Some(number) = number.filter(|number| *number > 0) {
                self.draft.set(section, key, number.max(least), option);
            }
        }
    }

    /// Reports each call of `sendmail.mc`, or each line of `sendmail.cf` that a site changes.
    fn judge(&mut self) {
        let noted = |notes: &[(&'static str, Verdict)], name: &str| {
            let mut found = notes.iter().filter(|(of, _)| *of == name).map(|(_, verdict)| verdict.clone());
            let first = found.next()?;
            Some(found.fold(first, |sum, next| match (sum, next) {
                (Verdict::Missing(a), Verdict::Missing(b) | Verdict::Note(b))
                | (Verdict::Note(b), Verdict::Missing(a)) => Verdict::Missing(format!("{a}; {b}")),
                (Verdict::Note(a), Verdict::Note(b)) if a != b => Verdict::Note(format!("{a}; {b}")),
                (sum, _) => sum,
            }))
        };
        for call in std::mem::take(&mut self.calls) {
            let first = call.argument(0);
            let (name, verdict) = match &*call.name {
                "define" => {
                    (format!("define {first}"), noted(&self.notes, first).unwrap_or_else(|| define(first)))
                }
                "FEATURE" => {
                    (format!("FEATURE {first}"), noted(&self.notes, first).unwrap_or_else(|| feature(first)))
                }
                other => (
                    format!("{other} {first}"),
                    noted(&self.notes, other).unwrap_or_else(|| call_verdict(other)),
                ),
            };
            self.report.add(format!("sendmail.mc:{}", call.line), name.trim(), verdict);
        }
        let from_mc = !self.report.entries.is_empty();
        for line in std::mem::take(&mut self.cf.lines) {
            if from_mc {
                break;
            }
            let short: String = line.value.chars().take(60).collect();
            let option = line.value.trim_start().split('=').next().unwrap_or_default().trim().to_owned();
            let verdict = match line.code {
                'O' => noted(&self.notes, &option).unwrap_or_else(|| cf_option(&option)),
                'D' if line.value.starts_with('S') => {
                    noted(&self.notes, "SMART_HOST").unwrap_or(Verdict::Mapped)
                }
                'D' if line.value.starts_with('M') => {
                    noted(&self.notes, "MASQUERADE_AS").unwrap_or(Verdict::Mapped)
                }
                'K' => {
                    let map = line.value.split_whitespace().next().unwrap_or_default();
                    match map {
                        "access" => noted(&self.notes, "access_db").unwrap_or(Verdict::Mapped),
                        "mailertable" => noted(&self.notes, "mailertable").unwrap_or(Verdict::Mapped),
                        "virtuser" => noted(&self.notes, "virtusertable").unwrap_or(Verdict::Mapped),
                        _ => Verdict::Note("a map of the rule sets".to_owned()),
                    }
                }
                'X' => Verdict::Missing(NO_FILTER.to_owned()),
                'Q' => Verdict::Missing("a queue group: write [[queue_group]]".to_owned()),
                // The rule sets are those of Sendmail's own configuration mostly; hundreds of lines say nothing.
                'S' | 'R' | 'M' | 'H' | 'V' | 'T' | 'P' | 'D' | 'C' | 'F' | 'E' | 'L' => continue,
                _ => Verdict::Unknown,
            };
            self.report.add(format!("sendmail.cf:{}", line.line), format!("{}{short}", line.code), verdict);
        }
        let rest: Vec<_> =
            ["relay-domains"].iter().filter_map(|name| Some((*name, noted(&self.notes, name)?))).collect();
        for (name, verdict) in rest {
            self.report.add(name, "", verdict);
        }
        let text = "changes of rule sets (LOCAL_CONFIG, LOCAL_RULE_0, S and R lines) were not read: write routes, rules and maps for them";
        self.report.notes.push(text.to_owned());
    }
}

/// Returns the lines of a file of names.
fn lines(text: &str) -> Vec<String> {
    let plain = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    plain.filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// Reads an address, a network, or the octets at the beginning of one: `10.0.0`, `IPv6:2001:db8`.
fn network(text: &str) -> Option<String> {
    let text = text.trim_matches(['[', ']']);
    let text = text.get(..5).filter(|tag| tag.eq_ignore_ascii_case("IPv6:")).map_or(text, |_| &text[5..]);
    if let Ok(network) = text.parse::<ipnet::IpNet>() {
        return Some(network.trunc().to_string());
    }
    if let Ok(address) = text.parse::<std::net::IpAddr>() {
        return Some(address.to_string());
    }
    let octets: Vec<&str> = text.trim_end_matches('.').split('.').collect();
    if octets.len() < 4 && octets.iter().all(|octet| octet.parse::<u8>().is_ok()) {
        let mut full = octets.clone();
        full.resize(4, "0");
        return Some(format!("{}/{}", full.join("."), octets.len() * 8));
    }
    None
}

/// Returns a pattern of addresses: `user@` is a name in all domains.
fn address(key: &str) -> String {
    match key.strip_suffix('@') {
        Some(local) => format!("{local}@*"),
        None => key.strip_prefix('.').map_or(key.to_owned(), |domain| format!("*.{domain}")),
    }
}

#[cfg(test)]
mod tests;
