//! Tables of addresses and hosts, and what depends on them.

use super::{Converter, lines, reply};
use crate::{
    Draft,
    draft::{Section, Value, quoted},
    postfix::TableEntry,
};
use mail::Domain;

impl Converter<'_> {
    pub(super) fn virtual_users(&mut self) {
        let mut domains = self.cf.class("{VirtHost}");
        for file in self.cf.class_files("{VirtHost}") {
            domains.extend(lines(&self.file(&file).unwrap_or_default()));
        }
        for name in domains.into_iter().map(|name| name.to_lowercase()) {
            if Domain::parse(&name).is_ok() && !self.places.own.contains(&name) {
                self.places.of_addresses.push(name);
            }
        }
        let (mut text, mut refused) = (String::new(), Vec::new());
        for TableEntry { key, value } in self.table("virtusertable", "virtusertable") {
            // `@example.com %1@example.net` moves each user.
            let target = value.replace("%1@", "@");
            let is_moved = value.starts_with("%1@") && key.starts_with('@');
            let domain = key.strip_prefix('@').map(str::to_lowercase);
            if let Some(error) = value.strip_prefix("error:") {
                match domain {
                    // The users and the aliases of the machine are not asked for any more.
                    Some(domain) if domain != self.hostname => {
                        self.places.own.retain(|own| *own != domain);
                        if !self.places.of_addresses.contains(&domain) {
                            self.places.of_addresses.push(domain);
                        }
                    }
                    Some(_) => refused.push(format!("{key} {value}")),
                    None => {
                        let reply = reply(error);
                        let verdict = if reply.starts_with('4') { "defer" } else { "reject" };
                        let rule = Section::new("[[rule]]", "virtusertable").with("for", "all");
                        self.draft.push(rule.with("to", vec![key]).with(verdict, reply));
                    }
                }
            } else if target.contains('%') || key.contains('*') || (value.contains("%1") && !is_moved) {
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
    }

    pub(super) fn mailertable(&mut self) {
        let mut table = self.table("mailertable", "mailertable");
        table.sort_by_key(|entry| (entry.key.starts_with('.'), std::cmp::Reverse(entry.key.len())));
        for TableEntry { key, value } in table {
            let domain = if key == "." {
                "*".to_owned()
            } else {
                key.strip_prefix('.').map_or(key.clone(), |domain| format!("*.{domain}"))
            };
            if let Some(reply) =
                value.strip_prefix("error:").map(reply).filter(|reply| reply.starts_with('4'))
            {
                let rule = Section::new("[[rule]]", "mailertable").with("for", "all");
                self.draft.push(rule.with("to", vec![domain]).with("defer", reply));
                continue;
            }
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
        let name = host.trim_matches(['[', ']']).trim();
        match mailer {
            "smtp" | "esmtp" | "smtp8" | "dsmtp" | "relay" if name.is_empty() => None,
            "smtp" | "esmtp" | "smtp8" | "dsmtp" | "relay" => {
                let port = self.mailer_port(mailer).unwrap_or_else(|| "25".to_owned());
                let is_v6 = name.parse::<std::net::Ipv6Addr>().is_ok();
                let host = if is_v6 { format!("[{name}]") } else { name.to_owned() };
                if !is_literal {
                    self.note(
                        "SMART_HOST",
                        format!(
                            "the MX records of {host} are not asked: the host of this name gets the mail"
                        ),
                    );
                }
                let section = section.with("smarthost", format!("{host}:{port}"));
                Some(match self.login(name) {
                    Some((user, password)) => {
                        let file = format!("{}.secret", name.replace(':', "-"));
                        self.draft.add_file(&file, format!("{password}\n"), true);
                        let login = format!(
                            "{{ user = {}, secret = {} }}",
                            quoted(&user),
                            quoted(&format!("file:{file}"))
                        );
                        self.note("authinfo", "a password is sent over verified TLS only; write tls = \"require\" in the route if the certificate cannot be verified");
                        let tls = if port == "465" { "implicit" } else { "verify" };
                        section.with("tls", tls).with("login", Value::Raw(login))
                    }
                    None => section.with("tls", "may"),
                })
            }
            "local" => Some(section.with("mbox", "/var/mail/{local}")),
            "error" => Some(section.with("reject", reply(host))),
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

    /// Returns the name and the password for a host: `AuthInfo:host "U:user" "P:password"`.
    fn login(&mut self, host: &str) -> Option<(String, String)> {
        let mut entries = self.table("authinfo", "authinfo");
        entries.extend(self.table("access", "access_db"));
        let keys = [format!("authinfo:{}", host.to_lowercase()), "authinfo:".to_owned()];
        let entry =
            keys.iter().find_map(|key| entries.iter().find(|entry| entry.key.to_lowercase() == *key))?;
        let words: Vec<&str> =
            entry.value.split('"').map(str::trim).filter(|word| !word.is_empty()).collect();
        let of = |name: &str| words.iter().find_map(|word| word.strip_prefix(name));
        let (user, password) = (of("U:").or_else(|| of("I:")), of("P:"));
        if user.is_none() || password.is_none() {
            self.missing("authinfo", format!("the login at {host}: write `login` in the route"));
        }
        Some((user?.to_owned(), password?.to_owned()))
    }

    pub(super) fn smart_host(&mut self) {
        let Some(host) = self.smart_host_name() else { return };
        let section = Section::new("[[route]]", "SMART_HOST").with("domains", vec!["*".to_owned()]);
        match self.next_hop(section, host.trim()) {
            Some(section) => self.draft.push(section),
            None => self.missing("SMART_HOST", format!("{host}: write a [[route]] with smarthost")),
        }
    }

    fn smart_host_name(&self) -> Option<String> {
        let given = self.defined("SMART_HOST").or_else(|| self.cf.macro_value("S"));
        given.filter(|host| !host.trim().is_empty()).map(str::to_owned)
    }

    /// Domains that are relayed to go to their MX hosts, unless all goes to one host.
    pub(super) fn relay_route(&mut self) {
        let patterns = self.draft.unrouted(self.places.relay_patterns());
        if !patterns.is_empty() && self.smart_host_name().is_none() {
            let section = Section::new("[[route]]", "relay-domains, access").with("domains", patterns);
            self.draft.push(section.with("mx", true));
        }
    }

    pub(super) fn masquerade(&mut self) {
        let given = self.calls.iter().rfind(|call| call.name == "MASQUERADE_AS").map(|call| call.argument(0));
        let given = given.or_else(|| self.cf.macro_value("M")).filter(|name| !name.is_empty());
        let masquerade = given
            .map(|name| name.trim_end_matches('.').to_lowercase())
            .filter(|name| Domain::parse(name).is_ok());
        let table = self.table("genericstable", "genericstable");
        if masquerade.is_none() && table.is_empty() {
            return;
        }
        // Without the feature, Sendmail leaves the envelope as it is; Postrider changes nothing else.
        if !self.has_feature("masquerade_envelope") {
            let text = "Sendmail changes addresses in the header only without FEATURE masquerade_envelope, and Postrider changes the envelope only: nothing is mapped; rewrite the header in the programs that send mail";
            for name in ["MASQUERADE_AS", "genericstable"] {
                self.missing(name, text);
            }
            return;
        }
        let mut text = String::new();
        let mut domains = self.cf.class("G");
        domains.extend(self.calls_of("GENERICS_DOMAIN"));
        domains.sort();
        domains.dedup();
        let origin = masquerade.as_ref().unwrap_or(&self.hostname);
        for TableEntry { key, value } in table {
            let target = if value.contains('@') { value } else { format!("{value}@{origin}") };
            if key.contains('@') {
                text += &format!("{key} {target}\n");
            } else {
                domains
                    .iter()
                    .for_each(|domain| text += &format!("{key}@{} {target}\n", domain.to_lowercase()));
            }
        }
        if let Some(name) = &masquerade {
            text += &self.masked(name);
        }
        write_generic(&mut self.draft, text);
        for name in ["MASQUERADE_AS", "genericstable"] {
            self.note(
                name,
                "addresses.generic changes the reverse-path of mail that leaves; the header stays",
            );
        }
    }

    /// Returns the lines that hide the local domains, but for some users.
    fn masked(&self, name: &str) -> String {
        let (mut exposed, mut hidden) = (self.cf.class("{E}"), self.cf.class("M"));
        exposed.extend(self.calls_of("EXPOSED_USER"));
        hidden.extend(self.calls_of("MASQUERADE_DOMAIN"));
        let mut text = String::new();
        let mut done = vec![name.to_owned()];
        for domain in self.places.own.iter().chain(&hidden).map(|domain| domain.to_lowercase()) {
            if Domain::parse(&domain).is_err() || done.contains(&domain) {
                continue;
            }
            let mut users: Vec<String> = exposed.iter().map(|user| user.to_lowercase()).collect();
            users.sort();
            users.dedup();
            users.iter().for_each(|user| text += &format!("{user}@{domain} {user}@{domain}\n"));
            text += &format!("@{domain} @{name}\n");
            done.push(domain);
        }
        text
    }

    /// Returns the words of the arguments of a macro.
    fn calls_of(&self, name: &str) -> Vec<String> {
        let calls = self.calls.iter().filter(|call| call.name == name);
        calls.flat_map(|call| call.argument(0).split_whitespace().map(str::to_owned)).collect()
    }
}

fn write_generic(draft: &mut Draft, text: String) {
    if !text.is_empty() {
        draft.add_file("generic", text, false);
        draft.extend("[addresses]", "generic", ["text:generic".to_owned()], "genericstable, MASQUERADE_AS");
    }
}
