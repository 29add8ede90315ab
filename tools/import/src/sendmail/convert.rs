//! The configuration of Sendmail as one of Postrider.

mod access;
mod filters;
mod tables;
mod verdicts;

use super::{
    cf::{Cf, local_config},
    mc::{Macro, macros},
};
use crate::places::is_domain;
use crate::{
    Draft, Effect, Files, Report, Verdict,
    draft::{Section, Value},
    forward,
    places::Places,
    postfix::{TableEntry, entries, logical_lines},
    report::AS_DAEMON,
    time::is_time,
};
use std::path::Path;
use verdicts::{call_verdict, cf_option, define, effect_of, feature};

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
/// one, else about those of `sendmail.cf`. `dir` is the directory of the files. `None` without a file; an empty report if nothing could be read.
pub fn convert(
    mc: Option<&[u8]>,
    cf: Option<&[u8]>,
    dir: &str,
    files: &dyn Files,
) -> Option<(Draft, Report)> {
    if mc.is_none() && cf.is_none() {
        return None;
    }
    // The files of Sendmail's own package are no settings of a site.
    let include = |name: &str| {
        let file = Path::new(name);
        let is_own = file.starts_with(dir) || file.starts_with("/etc/mail");
        let text = is_own.then(|| files.read(file))??;
        Some(String::from_utf8_lossy(&text).into_owned())
    };
    let calls = mc.map(|mc| macros(mc, &include)).unwrap_or_default();
    let has_cf = cf.is_some();
    let cf = cf.map(Cf::parse).unwrap_or_else(|| local_config(mc.unwrap_or_default()));
    let draft = Draft::new(&[
        "Written by `postrider import sendmail` from sendmail.mc and sendmail.cf.",
        "Check it with `postrider config check`, and read the import's report.",
    ]);
    if calls.is_empty() && cf.lines.is_empty() {
        return Some((draft, Report::default()));
    }
    let name = hostname(&cf, &calls, files);
    let mut converter = Converter {
        cf,
        has_cf,
        calls,
        dir: dir.trim_end_matches('/').to_owned(),
        files,
        draft,
        report: Report::default(),
        hostname: name,
        places: Places::default(),
        relaying: Vec::new(),
        relayed: Vec::new(),
        notes: Vec::new(),
        virtuals: Vec::new(),
    };
    converter.write();
    converter.draft.drop_hidden_routes();
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
    /// `sendmail.cf`, or the lines of it that `sendmail.mc` has.
    cf: Cf,
    has_cf: bool,
    calls: Vec<Macro>,
    dir: String,
    files: &'a dyn Files,
    draft: Draft,
    report: Report,
    hostname: String,
    places: Places,
    /// Networks, and domains of recipients, of class R: no table takes their rights away.
    relaying: Vec<String>,
    relayed: Vec<String>,
    /// Notes about names of `sendmail.mc` or letters of `sendmail.cf`.
    notes: Vec<(&'static str, Verdict)>,
    /// Key and value of each line of virtusertable.
    virtuals: Vec<(String, String)>,
}

impl Converter<'_> {
    /// Returns the value that `define` gives to a name.
    fn defined(&self, name: &str) -> Option<&str> {
        let call = self.calls.iter().rfind(|call| call.name == "define" && call.argument(0) == name)?;
        Some(call.argument(1))
    }

    fn has_feature(&self, name: &str) -> bool {
        self.feature(name).is_some() || self.cf.features.iter().any(|feature| feature == name)
    }

    fn feature(&self, name: &str) -> Option<&Macro> {
        self.calls.iter().find(|call| call.name == "FEATURE" && call.argument(0) == name)
    }

    /// Returns a macro of the rule sets by its letter in `sendmail.cf`, which counts if it is there, or its name in `sendmail.mc`.
    fn relay_macro(&self, letter: &str, name: &str) -> Option<String> {
        let value = if !self.has_cf {
            // The hub of FEATURE(nullclient) has the local mail, too.
            let hub = self.feature("nullclient").filter(|_| matches!(letter, "S" | "H"));
            self.defined(name).or_else(|| hub.map(|call| call.argument(1)))
        } else {
            self.cf.macro_value(letter)
        };
        value.map(str::trim).filter(|value| !value.is_empty()).map(str::to_owned)
    }

    fn file(&self, name: &str) -> Option<String> {
        let file = self.files.read(Path::new(name))?;
        Some(String::from_utf8_lossy(&file).into_owned())
    }

    /// Returns the words of a class: its lines in `sendmail.cf`, the calls of a macro in `sendmail.mc`, and those of their files.
    fn words(&self, class: &str, name: &str) -> Vec<String> {
        let mut words = self.cf.class(class);
        words.extend(self.calls_of(name));
        let mut files = self.cf.class_files(class);
        files.extend(self.calls_of(&format!("{name}_FILE")).into_iter().filter(|word| word.starts_with('/')));
        words.extend(files.iter().flat_map(|file| lines(&self.file(file).unwrap_or_default())));
        words
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
        let access = self.access();
        self.aliases();
        if let Some(text) = forward::obey(self.files, &mut self.draft, "FORWARD_PATH") {
            self.report.effect(Effect::Elsewhere, "FORWARD_PATH", text);
        }
        self.virtual_domains();
        let renamed = self.domain_table();
        self.virtual_users(&renamed);
        // Sendmail delivers to local domains before it asks mailertable.
        self.local_mail();
        self.mailertable();
        self.relay_route();
        // Sendmail finds the way to an address before it looks into the access table.
        self.access_rules(access);
        self.add_old_names(&renamed);
        self.smart_host();
        self.masquerade();
        self.checks();
        self.certificates();
        self.numbers();
        self.filters();
    }

    /// Class `w` is local; class `R` may be relayed to and from.
    fn domains(&mut self) {
        let mut names = self.words("w", "LOCAL_DOMAIN");
        if self.cf.class_files("w").is_empty() && self.has_feature("use_cw_file") {
            let usual = format!("{}/local-host-names", self.dir);
            let file = self.defined("confCW_FILE").unwrap_or(&usual);
            let file = file.split_whitespace().next_back().unwrap_or(&usual).to_owned();
            names.extend(lines(&self.file(&file).unwrap_or_default()));
        }
        let mut local = vec![self.hostname.clone(), "localhost".to_owned()];
        for name in names.into_iter().map(|name| name.to_lowercase()) {
            if is_domain(&name) && !name.starts_with('[') && !local.contains(&name) {
                local.push(name);
            }
        }
        self.places.own = local;
        let mut relay = self.words("R", "RELAY_DOMAIN");
        if self.cf.class_files("R").is_empty() {
            let file = format!("{}/relay-domains", self.dir);
            relay.extend(lines(&self.file(&file).unwrap_or_default()));
        }
        if self.has_feature("relay_entire_domain") {
            let parent = self.hostname.split_once('.').map(|(_, domain)| domain.to_owned());
            relay.extend(self.cf.macro_value("m").map(str::to_owned).or(parent));
        }
        for name in relay {
            self.relayed(&name);
        }
        self.relayed.clone_from(&self.places.relayed);
        if !self.relayed.is_empty() {
            let names: Vec<&str> =
                self.relayed.iter().map(String::as_str).filter(|name| !name.starts_with('*')).collect();
            let text = format!(
                "hosts in {} may not relay: add the networks of these hosts to relay.networks",
                names.join(", ")
            );
            self.report.effect(Effect::Refused, "relay-domains", text);
        }
        let networks = ["127.0.0.1".to_owned(), "::1".to_owned()];
        self.draft.extend("[relay]", "networks", networks, "this machine");
        self.draft.extend("[relay]", "networks", self.relaying.clone(), "relay-domains");
    }

    /// A network may relay; mail to a domain is taken and sent to its MX hosts.
    fn relayed(&mut self, name: &str) {
        if let Some(network) = network(name) {
            self.relaying.push(network);
        } else if is_domain(name) {
            if self.has_feature("relay_hosts_only") {
                self.places.add_relayed(name.to_lowercase());
            } else {
                self.places.add_relayed_below(name.to_lowercase());
            }
        } else {
            self.missing("relay-domains", format!("{name} is neither a domain nor a network"));
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
            let text = "submission listeners are left out until auth.users is set: create a password file with `postrider auth hash`";
            self.report.effect(Effect::Refused, "DAEMON_OPTIONS M=a", text);
        }
    }

    /// Features that are checks of clients.
    fn checks(&mut self) {
        for (name, check, text) in [
            (
                "require_rdns",
                "reverse_name",
                "clients whose name does not resolve to their address are refused permanently",
            ),
            ("block_bad_helo", "hello", "clients in relay.networks are not checked"),
        ] {
            if self.has_feature(name) {
                self.draft.set("[checks]", check, "enforce", name);
                self.note(name, text);
            }
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
        let known = match map {
            "virtusertable" => "virtuser",
            "genericstable" => "generics",
            map => map,
        };
        let of_cf = self.cf.map_file(known);
        if of_cf.is_none() && !self.has_feature(feature) {
            return Vec::new();
        }
        let given = self.feature(feature).and_then(|call| {
            let file = call.argument(1).split_whitespace().rfind(|word| word.starts_with('/'))?;
            Some(file.strip_suffix(".db").unwrap_or(file).to_owned())
        });
        let name = of_cf.or(given).unwrap_or(usual);
        match self.file(&name) {
            Some(text) => entries(&text),
            None => {
                let mut effect = effect_of(feature).unwrap_or(Effect::Elsewhere);
                let is_binary = self.files.exists(Path::new(&format!("{name}.db")));
                let mut text = match is_binary {
                    true => format!(
                        "the source text of {name} is missing; create it with `makemap -u hash {name} >{name}`"
                    ),
                    false => format!("there is no file {name}: its entries are not imported"),
                };
                // What the table refuses is not taken, and what it sends elsewhere is not returned.
                if is_binary && matches!(map, "access" | "virtusertable" | "mailertable") {
                    let rule = Section::new("[[rule]]", feature).with("for", "all").with("temporary", true);
                    let rule = rule.with("defer", "451 4.3.5 Server configuration error");
                    if !self.draft.sections_mut().contains(&rule) {
                        self.draft.push(rule);
                    }
                    (effect, text) =
                        (Effect::Refused, text + "; until then a [[rule]] defers all mail (451)");
                }
                self.report.effect(effect, feature, text);
                Vec::new()
            }
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
                let text = format!(
                    "{file} delivers to programs or files: mail for them is deferred until addresses.programs and addresses.files list them"
                );
                self.report.effect(Effect::Refused, "ALIAS_FILE", text);
            }
        }
    }

    /// Returns names and targets from all files of aliases.
    fn alias_lines(&self) -> Vec<(String, String)> {
        let files = self.draft.list("[addresses]", "aliases");
        let files = files.iter().filter_map(|map| self.file(map.strip_prefix("aliases:")?));
        let line = |(_, line): (usize, String)| {
            let (name, targets) = line.split_once(':')?;
            Some((name.trim().to_lowercase(), targets.to_owned()))
        };
        files.flat_map(|text| logical_lines(&text)).filter_map(line).collect()
    }

    /// Returns the names without a domain to which aliases lead.
    fn alias_targets(&self) -> Vec<String> {
        let lines = self.alias_lines();
        let targets = lines.iter().flat_map(|(_, targets)| targets.split(','));
        targets.map(|target| target.trim().to_lowercase()).filter(|target| !target.contains('@')).collect()
    }

    /// The mailer for local mail is a program mostly; the mailbox is the same.
    fn local_mail(&mut self) {
        let section = Section::new("[[route]]", "the mailer local").with("domains", self.places.own.clone());
        let hub = self.relay_macro("H", "MAIL_HUB");
        let has_users = hub.is_none() && self.mailer_has_users();
        let luser = self.relay_macro("L", "LUSER_RELAY").filter(|_| has_users);
        if hub.is_none() {
            self.places.settle(&mut self.report, "relay-domains");
        }
        if hub.is_none() && !has_users {
            let text = format!(
                "the mailer {} decides which users exist in the local domains, as in Sendmail: with `verify = true` in the [[route]], it is asked before mail is accepted",
                self.local_mailer()
            );
            self.report.notes.push(text);
        }
        let section = match hub {
            Some(hub) => {
                let text = "the hub gets recipients with the domain that the client gave; Sendmail replaces it with the hub's name";
                self.report.effect(Effect::Addresses, "MAIL_HUB", text);
                self.next_hop_or_hold(section, "MAIL_HUB", &hub)
            }
            None => self.mailbox(section),
        };
        self.draft.push(section);
        let from = ("class w, local-host-names, relay-domains", "the users of this machine");
        if let Some(relay) = &luser {
            self.unknown_users(relay);
        }
        let is_listed = has_users && luser.is_none();
        let users = is_listed.then(|| self.places.users(self.files, &mut self.report));
        self.places.write(&mut self.draft, users.as_deref(), from);
        self.draft.set("[addresses]", "separator", "+", "the mailer local accepts user+detail");
        if has_users {
            let text = "local.users lists the users of this machine as of the import; add new users there";
            self.report.notes.push(text.to_owned());
        }
    }

    /// Sends mail of unknown users where LUSER_RELAY says, by a rule.
    fn unknown_users(&mut self, relay: &str) {
        let mut names = self.files.users();
        names.extend(self.alias_lines().into_iter().map(|(name, _)| name));
        names.sort();
        names.dedup();
        names.retain(|name| !name.contains(char::is_whitespace));
        let text: String = names.iter().map(|name| format!("{name}@ x\n")).collect();
        self.draft.add_file("accounts", text, false);
        let mut known = vec!["text:accounts".to_owned(), "postmaster@*".to_owned()];
        known.extend(self.draft.list("[addresses]", "virtual"));
        let of_virtual = self.draft.files.iter().find(|file| file.name == "virtual");
        let has_all = |domain: &&String| {
            let key = format!("@{domain} ");
            of_virtual.is_some_and(|file| file.content.lines().any(|line| line.starts_with(&key)))
        };
        let domains: Vec<String> = self.places.own.iter().filter(|one| !has_all(one)).cloned().collect();
        if domains.is_empty() {
            return;
        }
        let rule = Section::new("[[rule]]", "LUSER_RELAY").with("for", "all");
        let rule = rule.with("to", domains).with("unless", Value::Table(vec![("to", known)]));
        let text = format!(
            "users that do not exist in {}: mail goes to {relay} with the domain that the client gave, which Sendmail replaces with the host's name; mail that aliases send to such users goes to a mailbox",
            self.places.own.join(", ")
        );
        self.report.effect(Effect::Elsewhere, "LUSER_RELAY", text);
        if let Some(user) = relay.strip_prefix("local:") {
            let target =
                if user.contains('@') { user.to_owned() } else { format!("{user}@{}", self.hostname) };
            return self.draft.push(rule.with("redirect", vec![target]));
        }
        let route = Section::new("[[route]]", "LUSER_RELAY").with("name", "luser-relay");
        let route = self.next_hop_or_hold(route, "LUSER_RELAY", relay);
        self.draft.push(route);
        self.draft.push(rule.with("route", "luser-relay"));
    }

    /// Returns the mailer for mail on this machine.
    fn local_mailer(&self) -> String {
        let name = self.defined("confLOCAL_MAILER").or_else(|| self.cf.local_mailer());
        name.unwrap_or("local").to_owned()
    }

    /// Returns whether the mailer of local mail is for the users of this machine only: its flag is `w`.
    fn mailer_has_users(&self) -> bool {
        let mailer = self.local_mailer();
        match self.cf.mailer(&mailer) {
            Some(line) => {
                let flags =
                    line.split("F=").nth(1).and_then(|rest| rest.split(',').next()).unwrap_or_default();
                flags.contains('w')
            }
            None => {
                let changed = self.calls.iter().filter(|call| call.name == "MODIFY_MAILER_FLAGS");
                let has_lost = |call: &Macro| {
                    call.argument(0).eq_ignore_ascii_case(&mailer)
                        && call.argument(1).split_once('-').is_some_and(|(_, flags)| flags.contains('w'))
                };
                !mailer.starts_with("cyrus") && !changed.into_iter().any(has_lost)
            }
        }
    }

    /// Returns the route to the mailboxes: files in /var/mail, or the socket of an LMTP server.
    fn mailbox(&mut self, section: Section) -> Section {
        let mailer = self.local_mailer();
        let line = self.cf.mailer(&mailer).unwrap_or_default().to_owned();
        let arguments = line.split("A=").nth(1).unwrap_or_default().split(',').next().unwrap_or_default();
        let defined = if mailer == "cyrusv2" {
            self.defined("CYRUSV2_MAILER_ARGS").unwrap_or("FILE /var/imap/socket/lmtp")
        } else {
            ""
        };
        let words: Vec<&str> = if line.is_empty() { defined } else { arguments }.split_whitespace().collect();
        match (&*mailer, &*words) {
            (_, ["FILE", socket, ..]) => section.with("lmtp", format!("unix:{socket}")),
            ("local", _) => {
                self.report.notes.push(format!(
                    "mailboxes are in /var/mail: {AS_DAEMON} there; for procmail write `pipe` in the [[route]]"
                ));
                section.with("mbox", "/var/mail/{local}")
            }
            _ => {
                let text = format!(
                    "the mailer {mailer} has no counterpart: local mail is held until you write `pipe` or `lmtp` in its [[route]]"
                );
                self.missing("confLOCAL_MAILER", text);
                section.with("hold", true)
            }
        }
    }

    fn certificates(&mut self) {
        let pairs = [
            (
                [("ServerCertFile", "confSERVER_CERT"), ("ServerKeyFile", "confSERVER_KEY")],
                ["certificate", "key"],
            ),
            (
                [("ClientCertFile", "confCLIENT_CERT"), ("ClientKeyFile", "confCLIENT_KEY")],
                ["next_hop_certificate", "next_hop_key"],
            ),
        ];
        for ([(cert_option, name), (key_option, key_name)], [certificate_key, key_key]) in pairs {
            let certificate = self.option(cert_option, name);
            let (Some(certificate), Some(key)) = (certificate, self.option(key_option, key_name)) else {
                continue;
            };
            if [&certificate, &key].iter().all(|file| self.files.exists(Path::new(file))) {
                self.draft.set("[tls]", certificate_key, certificate, cert_option);
                self.draft.set("[tls]", key_key, key, key_option);
            } else {
                let text = format!(
                    "cannot read {certificate} and {key}: set tls.{certificate_key} and tls.{key_key}"
                );
                self.missing(name, text);
            }
        }
    }

    fn numbers(&mut self) {
        let times = [
            ("Timeout.queuereturn", "confTO_QUEUERETURN", "expire", "5d"),
            ("Timeout.queuewarn", "confTO_QUEUEWARN", "delay_warning", "4h"),
        ];
        for (option, define, key, usual) in times {
            let value = self.option(option, define).unwrap_or_else(|| usual.to_owned());
            self.draft.set("[queue]", key, if is_time(&value) { value } else { usual.to_owned() }, option);
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
            let found = notes.iter().filter(|(of, _)| *of == name).map(|(_, verdict)| verdict.clone());
            found.reduce(Verdict::and)
        };
        if !self.has_feature("accept_unresolvable_domains") {
            let text =
                "mail from sender domains that do not exist is accepted: Postrider does not look them up";
            self.report.effect(Effect::Taken, "check_mail", text);
        }
        let has_cf = self.has_cf;
        for call in std::mem::take(&mut self.calls) {
            let first = call.argument(0);
            let (name, verdict) = match &*call.name {
                "define" => {
                    (format!("define {first}"), noted(&self.notes, first).unwrap_or_else(|| define(first)))
                }
                "FEATURE" => {
                    (format!("FEATURE {first}"), noted(&self.notes, first).unwrap_or_else(|| feature(first)))
                }
                "include" | "sinclude" if first.ends_with("/m4/cf.m4") => {
                    (format!("{} {first}", call.name), Verdict::Mapped)
                }
                "include" | "sinclude" | "DOMAIN" if !has_cf => {
                    let text =
                        "this file was not read, and there is no sendmail.cf to take its settings from";
                    (format!("{} {first}", call.name), Verdict::Missing(text.to_owned()))
                }
                other => (
                    format!("{other} {first}"),
                    noted(&self.notes, other).unwrap_or_else(|| call_verdict(other)),
                ),
            };
            let effect =
                effect_of(if matches!(&*call.name, "define" | "FEATURE") { first } else { &call.name });
            self.report.add_with(&format!("sendmail.mc:{}", call.line), name.trim(), verdict, effect);
        }
        let from_mc = !self.report.entries.is_empty();
        for name in std::mem::take(&mut self.cf.features).iter().filter(|_| !from_mc) {
            let verdict = noted(&self.notes, name).unwrap_or_else(|| feature(name));
            if verdict != Verdict::Unknown {
                self.report.add_with("sendmail.cf", &format!("FEATURE {name}"), verdict, effect_of(name));
            }
        }
        for line in std::mem::take(&mut self.cf.lines) {
            if from_mc {
                break;
            }
            let short: String = line.value.chars().take(60).collect();
            let option = line.value.trim_start().split('=').next().unwrap_or_default().trim().to_owned();
            let verdict = match line.code {
                'O' => noted(&self.notes, &option).unwrap_or_else(|| cf_option(&option)),
                'D' => {
                    let relays = [
                        ("S", "SMART_HOST"),
                        ("M", "MASQUERADE_AS"),
                        ("H", "MAIL_HUB"),
                        ("L", "LUSER_RELAY"),
                    ];
                    let is_set =
                        |(letter, _): &&(&str, &str)| line.value.starts_with(letter) && line.value.len() > 1;
                    let Some((_, name)) = relays.iter().find(is_set) else { continue };
                    noted(&self.notes, name).unwrap_or(Verdict::Mapped)
                }
                'K' => {
                    let map = line.value.split_whitespace().next().unwrap_or_default();
                    match map {
                        "access" => noted(&self.notes, "access_db").unwrap_or(Verdict::Mapped),
                        "mailertable" => noted(&self.notes, "mailertable").unwrap_or(Verdict::Mapped),
                        "virtuser" => noted(&self.notes, "virtusertable").unwrap_or(Verdict::Mapped),
                        _ => Verdict::Note("a map that only rule sets use".to_owned()),
                    }
                }
                'X' => Verdict::Mapped,
                'Q' => Verdict::Missing("a queue group: write [[queue_group]]".to_owned()),
                // The rule sets are those of Sendmail's own configuration mostly; hundreds of lines say nothing.
                'S' | 'R' | 'M' | 'H' | 'V' | 'T' | 'P' | 'C' | 'F' | 'E' | 'L' => continue,
                _ => Verdict::Unknown,
            };
            let (place, name) = (format!("sendmail.cf:{}", line.line), format!("{}{short}", line.code));
            self.report.add_with(&place, &name, verdict, effect_of(&name));
        }
        let rest: Vec<_> =
            ["relay-domains"].iter().filter_map(|name| Some((*name, noted(&self.notes, name)?))).collect();
        for (name, verdict) in rest {
            self.report.add(name, "", verdict);
        }
        let text = "changes to rule sets (LOCAL_CONFIG, LOCAL_RULE_0, S and R lines) were not read: write routes, rules and maps instead";
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

/// Returns patterns of addresses: `user@` is a name in all domains, and a domain has those below it.
fn address(key: &str) -> Vec<String> {
    match key.strip_suffix('@') {
        Some(local) => vec![format!("{local}@*")],
        None if key.contains('@') => vec![key.to_owned()],
        None => domain(key),
    }
}

/// Returns patterns of a domain with those below it, or of the latter alone: `.example.com`.
fn domain(key: &str) -> Vec<String> {
    match key.strip_prefix('.') {
        Some(name) => vec![format!("*.{name}")],
        None => vec![key.to_owned(), format!("*.{key}")],
    }
}

/// Returns whether a key is a domain, an address or `user@`, without characters that mean something else in a pattern.
fn is_address(key: &str) -> bool {
    let (local, domain) = key.rsplit_once('@').unwrap_or(("x", key));
    let is_domain = crate::places::is_domain(domain.trim_start_matches('.'));
    let is_local = !local.is_empty() && !local.contains([':', '*', '/', '"', ' ', '<', '>', '{', '}']);
    is_local && (is_domain || domain.is_empty() && key.ends_with('@'))
}

/// Returns the reply that `5.7.1:550 text`, `550 text` or `nouser text` means.
fn reply(error: &str) -> String {
    let text: String =
        error.chars().filter(|c| c.is_ascii() && !c.is_control() && !"{}\"".contains(*c)).collect();
    let text = text.trim();
    let is_code = |code: &str| code.len() == 3 && code.bytes().all(|b| b.is_ascii_digit());
    let (status, rest) = match text.split_once(':') {
        Some((status, rest)) if status.matches('.').count() == 2 && !status.contains(' ') => {
            (status, rest.trim())
        }
        _ => {
            let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
            match &*word.to_ascii_lowercase() {
                "nouser" => ("5.1.1", rest.trim()),
                "nohost" => ("5.1.2", rest.trim()),
                "unavailable" => ("5.0.0", rest.trim()),
                "tempfail" => ("4.0.0", rest.trim()),
                "protocol" => ("5.5.1", rest.trim()),
                _ => ("", text),
            }
        }
    };
    let (code, rest) = match rest.split_once(' ').unwrap_or((rest, "")) {
        (code, rest) if is_code(code) => (code, rest),
        _ if status.starts_with('4') => ("450", rest),
        _ => ("550", rest),
    };
    // The enhanced code has the class of the code.
    let status = match status.split_once('.') {
        Some((_, detail)) => format!("{}.{detail}", &code[..1]),
        None => format!("{}.7.1", &code[..1]),
    };
    let rest = if rest.is_empty() { "Access denied" } else { rest };
    format!("{code} {status} {rest}")
}

#[cfg(test)]
mod tests;
