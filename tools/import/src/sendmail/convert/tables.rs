//! Tables of addresses and hosts, and what depends on them.

use super::{Converter, is_address, reply};
use crate::places::is_domain;
use crate::{
    Draft, Effect,
    decision::covers,
    draft::{Section, Value, quoted},
    postfix::TableEntry,
};
use std::{cell::RefCell, collections::BTreeSet};

impl Converter<'_> {
    /// Domains with virtual addresses only.
    pub(super) fn virtual_domains(&mut self) {
        let domains = self.words("{VirtHost}", "VIRTUSER_DOMAIN");
        for name in domains.into_iter().map(|name| name.to_lowercase()) {
            let is_known = self.places.own.contains(&name) || self.places.of_addresses.contains(&name);
            if is_domain(&name) && !is_known {
                self.places.of_addresses.push(name);
            }
        }
    }

    #[allow(clippy::too_many_lines)] // one kind of target after the other
    pub(super) fn virtual_users(&mut self, renamed: &[(String, String)]) {
        let mut senders = 0;
        let (mut text, mut patterns, mut refused) = (String::new(), String::new(), Vec::new());
        let table = self.table("virtusertable", "virtusertable");
        let keys: Vec<String> = table.iter().map(|entry| entry.key.to_lowercase()).collect();
        self.virtuals =
            table.iter().map(|entry| (entry.key.to_lowercase(), entry.value.to_lowercase())).collect();
        for TableEntry { key, value } in table {
            let Some((user, domain)) =
                key.rsplit_once('@').map(|(user, domain)| (user, domain.to_lowercase()))
            else {
                refused.push(format!("{key} {value}"));
                continue;
            };
            let is_here = |domains: &[String]| {
                domains.iter().any(|own| {
                    *own == domain || {
                        self.has_feature("virtuser_entire_domain") && domain.ends_with(&format!(".{own}"))
                    }
                })
            };
            let has_other_name = renamed.iter().any(|(old, _)| *old == domain);
            if has_other_name || !is_here(&self.places.own) && !is_here(&self.places.of_addresses) {
                self.note(
                    "virtusertable",
                    format!("{key}: {domain} is not a local domain, so the entry has no effect"),
                );
                continue;
            }
            // `@example.com %1@example.net` moves each user.
            let is_moved = user.is_empty() && value.starts_with("%1@") && !value[1..].contains('%');
            let rule = |of: &'static str, verdict: &'static str, reply: String| {
                let pattern = if user.is_empty() { domain.clone() } else { key.clone() };
                let rule = Section::new("[[rule]]", "virtusertable").with("for", "all");
                let rule = rule.with(of, vec![pattern]);
                let single = keys.iter().filter(|other| {
                    user.is_empty() && !other.starts_with('@') && other.ends_with(&*key) && is_address(other)
                });
                let single: Vec<String> = single.cloned().collect();
                let unless = (!single.is_empty()).then(|| Value::Table(vec![(of, single)]));
                rule.with_some("unless", unless).with(verdict, reply)
            };
            let is_plain = !user.contains(['*', '+', '%', '"', '/']) && is_domain(&domain);
            if let Some(error) = value.strip_prefix("error:").filter(|_| is_plain) {
                if user.is_empty() && domain != self.hostname {
                    // The users and the aliases of the machine are not asked for any more.
                    self.places.own.retain(|own| *own != domain);
                    if !self.places.of_addresses.contains(&domain) {
                        self.places.of_addresses.push(domain.clone());
                    }
                }
                let reply = reply(error);
                let verdict = if reply.starts_with('4') { "defer" } else { "reject" };
                // The sender's address is looked up, too.
                self.draft.sections_mut().insert(senders, rule("from", verdict, reply.clone()));
                senders += 1;
                self.draft.push(rule("to", verdict, reply));
            } else if is_moved {
                text.push_str(&format!("{key} {}\n", &value[2..]));
            } else if let Some(target) = is_plain.then(|| named(&value)).flatten() {
                // The name of the user is a part of the target.
                match user.is_empty() {
                    true => {
                        let domain = domain.replace('.', "\\.");
                        patterns += &format!("/^([^+@]+)@{domain}$/ {}\n", target.replace("%1", "${1}"));
                    }
                    false => text.push_str(&format!("{key} {}\n", target.replace("%1", user))),
                }
            } else if is_plain
                && !value.contains(['%', ':', '|', '/'])
                && !value.contains(char::is_whitespace)
            {
                text.push_str(&format!("{key} {value}\n"));
            } else {
                // Without its entry, the mail would go elsewhere.
                if is_plain {
                    self.draft.push(rule(
                        "to",
                        "defer",
                        "451 4.3.5 This address has not been imported yet".to_owned(),
                    ));
                }
                refused.push(format!("{key} {value}"));
            }
        }
        if !refused.is_empty() {
            self.missing(
                "virtusertable",
                format!(
                    "mail for these is deferred (451), unless the key has special characters; write a [[rule]] with `reject`, or single addresses, for: {}",
                    refused.join("; ")
                ),
            );
        }
        let targets = self.alias_targets();
        for line in text.lines() {
            let Some((user, domain)) = line.split_whitespace().next().and_then(|key| key.rsplit_once('@'))
            else {
                continue;
            };
            let is_led_to = targets.iter().any(|target| user.is_empty() || *target == user.to_lowercase());
            if is_led_to && self.places.own.iter().any(|own| own == domain) {
                let text = format!(
                    "{line}: applies to mail that aliases of {domain} send to this name, too; Sendmail does not look up the targets of aliases"
                );
                self.report.effect(Effect::Elsewhere, "virtusertable", text);
            }
        }
        if !text.is_empty() {
            let text = "the detail of user+detail is added to the new address, and quotes are kept";
            self.report.effect(Effect::Addresses, "virtusertable", text);
        }
        if !patterns.is_empty() {
            self.draft.add_file("virtual-patterns", patterns, false);
        }
        if !text.is_empty() {
            self.draft.add_file("virtual", format!("# From virtusertable\n{text}"), false);
            self.draft.extend("[addresses]", "virtual", ["text:virtual".to_owned()], "virtusertable");
        }
        if self.draft.files.iter().any(|file| file.name == "virtual-patterns") {
            let map = "regex:virtual-patterns".to_owned();
            self.draft.extend("[addresses]", "virtual", [map], "virtusertable");
        }
    }

    /// Domains that have another name: they are what that one is. Returns them, each with the other.
    pub(super) fn domain_table(&mut self) -> Vec<(String, String)> {
        let mut renamed = Vec::new();
        for TableEntry { key, value } in self.table("domaintable", "domaintable") {
            let (old, new) = (key.to_lowercase(), value.trim_end_matches('.').to_lowercase());
            if !is_domain(&old) || !is_domain(&new) {
                let text = format!("{key} {value}: left out, because the key or the value is not a domain");
                self.report.effect(Effect::Addresses, "domaintable", text);
                continue;
            }
            // Class w is asked for the other name.
            self.places.own.retain(|own| *own != old);
            self.places.of_addresses.retain(|own| *own != old);
            if self.places.own.contains(&new) {
                self.places.add_own(old.clone());
            } else if self.places.of_addresses.contains(&new) {
                self.places.of_addresses.push(old.clone());
            } else if self.places.relayed.iter().any(|pattern| covers(pattern, &new)) {
                self.places.add_relayed(old.clone());
            } else if self.places.relayed.iter().any(|pattern| covers(pattern, &old)) {
                let rule = Section::new("[[rule]]", "domaintable").with("to", vec![new.clone()]);
                self.draft.push(rule.with("reject", "550 5.7.1 Relaying denied"));
            }
            renamed.push((old, new));
        }
        if !renamed.is_empty() {
            let text: String = renamed.iter().map(|(old, new)| format!("@{old} @{new}\n")).collect();
            self.draft.add_file("domains", text, false);
            self.draft.extend("[addresses]", "canonical", ["text:domains".to_owned()], "domaintable");
            self.note("domaintable", "only the envelope is rewritten, not the header");
        }
        renamed
    }

    /// Rules see the addresses that clients give: what holds for a domain holds for its other names, and these are looked up nowhere.
    pub(super) fn add_old_names(&mut self, renamed: &[(String, String)]) {
        let domain =
            |pattern: &str| pattern.rsplit_once('@').map_or(pattern, |(_, domain)| domain).to_owned();
        let change = |key: &str, patterns: &mut Vec<String>| {
            if !matches!(key, "from" | "to") {
                return;
            }
            patterns.retain(|pattern| renamed.iter().all(|(old, _)| domain(pattern) != *old));
            for (old, new) in renamed {
                let of_new = patterns.iter().filter(|pattern| domain(pattern) == *new);
                let more: Vec<String> =
                    of_new.map(|pattern| format!("{}{old}", &pattern[..pattern.len() - new.len()])).collect();
                patterns.extend(more);
            }
        };
        let is_rule = |section: &Section| section.header() == "[[rule]]";
        let sections = self.draft.sections_mut();
        let wide = RefCell::new(BTreeSet::new());
        let note = |key: &str, patterns: &mut Vec<String>| {
            let patterns =
                patterns.iter().filter(|pattern| key != "client_name" && pattern.starts_with("*."));
            for (pattern, (old, new)) in patterns.flat_map(|one| renamed.iter().map(move |pair| (one, pair)))
            {
                if covers(pattern, old) && !covers(pattern, new) {
                    wide.borrow_mut().insert(format!(
                        "{old}: a rule for {pattern} applies to this domain, too; Sendmail looks up only {new}"
                    ));
                }
            }
        };
        sections.iter_mut().filter(|section| is_rule(section)).for_each(|rule| rule.change_lists(note));
        sections.iter_mut().filter(|section| is_rule(section)).for_each(|rule| rule.change_lists(change));
        let is_empty = |section: &Section, key| section.value(key) == Some(&Value::List(Vec::new()));
        sections
            .retain(|section| !is_rule(section) || !["from", "to"].iter().any(|key| is_empty(section, key)));
        for text in wide.into_inner() {
            self.report.effect(Effect::Refused, "domaintable", text);
        }
    }

    pub(super) fn mailertable(&mut self) {
        let mut table = self.table("mailertable", "mailertable");
        table.sort_by_key(|entry| (entry.key.starts_with('.'), std::cmp::Reverse(entry.key.len())));
        let mut senders = 0;
        // Domains that are not looked up any more.
        let mut found = [&*self.places.own, &*self.places.of_addresses].concat();
        for TableEntry { key, value } in table {
            let name = key.trim_start_matches('.').to_lowercase();
            let is_below = key.starts_with('.');
            if key != "." && !is_domain(&name) {
                self.missing("mailertable", format!("{key} {value}: {key} is not a domain"));
                continue;
            }
            // Sendmail delivers to local domains before it asks the table.
            if !is_below && (self.places.own.contains(&name) || self.places.of_addresses.contains(&name)) {
                self.note("mailertable", format!("{key} is a local domain: the entry has no effect"));
                continue;
            }
            if value.starts_with('[') || !value.contains(':') {
                self.note("mailertable", format!("{key} {value} names no mailer: the entry has no effect"));
                continue;
            }
            let domain = match (&*key, is_below) {
                (".", _) => "*".to_owned(),
                (_, true) => format!("*.{name}"),
                _ => name,
            };
            if let Some(reply) = value.strip_prefix("error:").map(reply) {
                // It is asked for before anything else, and for the sender, too.
                let verdict = if reply.starts_with('4') { "defer" } else { "reject" };
                let but: Vec<String> = found.iter().filter(|one| covers(&domain, one)).cloned().collect();
                let mut ways = vec![(vec![domain.clone()], but.clone())];
                ways.extend(self.virtual_ways(&domain, &but));
                for (patterns, but) in ways {
                    for key in ["from", "to"] {
                        let rule = Section::new("[[rule]]", "mailertable").with("for", "all");
                        let rule = rule.with(key, patterns.clone());
                        let but = (!but.is_empty()).then(|| Value::Table(vec![(key, but.clone())]));
                        let rule = rule.with_some("unless", but).with(verdict, reply.clone());
                        match key {
                            // The sender comes first.
                            "from" => self.draft.sections_mut().insert(senders, rule),
                            _ => self.draft.push(rule),
                        }
                    }
                    senders += 1;
                }
                found.push(domain.clone());
                let text =
                    format!("{key} {value}: mail that aliases send there is accepted, then returned or held");
                self.report.effect(Effect::Taken, "mailertable", text);
                if verdict == "defer" {
                    let section = Section::new("[[route]]", "mailertable").with("domains", vec![domain]);
                    self.draft.push(section.with("hold", true));
                    continue;
                }
            }
            found.push(domain.clone());
            let section = Section::new("[[route]]", "mailertable").with("domains", vec![domain]);
            let section = self.next_hop_or_hold(section, "mailertable", &value);
            self.draft.push(section);
        }
    }

    /// Returns the virtual addresses that lead to domains, each list with exceptions.
    fn virtual_ways(&self, domain: &str, but: &[String]) -> Vec<(Vec<String>, Vec<String>)> {
        let leads_there = |target: &str| {
            let Some((_, of)) = target.rsplit_once('@') else { return false };
            covers(domain, of) && !but.iter().any(|other| covers(other, of))
        };
        let (mut single, mut ways) = (Vec::new(), Vec::new());
        let is_here = |key: &str| {
            let own = self.places.own.iter().chain(&self.places.of_addresses);
            key.rsplit_once('@').is_some_and(|(_, domain)| own.into_iter().any(|own| own == domain))
        };
        for (key, _) in self.virtuals.iter().filter(|(key, target)| is_here(key) && leads_there(target)) {
            match key.strip_prefix('@') {
                None => single.push(key.clone()),
                Some(domain) => {
                    let is_own = |other: &&String| other.len() > key.len() && other.ends_with(key);
                    let others = self.virtuals.iter().map(|(other, _)| other).filter(is_own);
                    ways.push((vec![domain.to_owned()], others.cloned().collect()));
                }
            }
        }
        if !single.is_empty() {
            ways.push((single, Vec::new()));
        }
        ways
    }

    /// Reads `mailer:host`.
    fn next_hop(&mut self, section: Section, setting: &'static str, value: &str) -> Option<Section> {
        let (mailer, host) = match value.split_once(':') {
            Some((mailer, host)) if !mailer.starts_with('[') => (mailer, host),
            _ => ("relay", value),
        };
        let is_literal = host.starts_with('[');
        // Hosts behind the first are separated by colons, which addresses in brackets have, too.
        let (name, more) = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((name, more)) => (name, more),
            None => host.split_once(':').unwrap_or((host, "")),
        };
        let name =
            name.get(..5).filter(|tag| tag.eq_ignore_ascii_case("IPv6:")).map_or(name, |_| &name[5..]).trim();
        let name = name.trim_end_matches('.');
        let is_host = name.parse::<std::net::IpAddr>().is_ok() || is_domain(name);
        match mailer {
            "smtp" | "esmtp" | "smtp8" | "dsmtp" | "relay" if !is_host => None,
            "smtp" | "esmtp" | "smtp8" | "dsmtp" | "relay" => {
                let port = self.mailer_port(mailer).unwrap_or_else(|| "25".to_owned());
                let is_v6 = name.parse::<std::net::Ipv6Addr>().is_ok();
                let host = if is_v6 { format!("[{name}]") } else { name.to_owned() };
                if !is_literal {
                    self.note(
                        setting,
                        format!(
                            "no MX records are looked up for {host}: mail is delivered to the host itself"
                        ),
                    );
                }
                let others = more
                    .split(':')
                    .map(|other| other.trim_matches(['[', ']']))
                    .filter(|name| !name.is_empty());
                let others: Vec<String> = others.map(|name| format!("{name}:{port}")).collect();
                let section = section.with("smarthost", format!("{host}:{port}"));
                let section = if others.is_empty() { section } else { section.with("fallback", others) };
                Some(match self.login(name, setting) {
                    Some((user, password)) => {
                        let file = format!("{}.secret", name.replace(':', "-"));
                        self.draft.add_file(&file, format!("{password}\n"), true);
                        let login = format!(
                            "{{ user = {}, secret = {} }}",
                            quoted(&user),
                            quoted(&format!("file:{file}"))
                        );
                        self.note("authinfo", "the password is sent only if the certificate of the server can be verified; if it cannot, write tls = \"require\" in the [[route]]");
                        let tls = if port == "465" { "implicit" } else { "verify" };
                        section.with("tls", tls).with("login", Value::Raw(login))
                    }
                    None => section.with("tls", "may"),
                })
            }
            "error" => Some(section.with("reject", reply(host))),
            "discard" => Some(section.with("discard", true)),
            _ => None,
        }
    }

    /// Returns the port that the arguments of a mailer name: `A=TCP $h 26`.
    fn mailer_port(&self, mailer: &str) -> Option<String> {
        let defined = format!("{}_MAILER_ARGS", mailer.to_ascii_uppercase());
        let arguments = match self.cf.mailer(mailer) {
            Some(line) => line.split("A=").nth(1)?.split(',').next()?,
            None => self.defined(&defined)?,
        };
        let port = arguments.split_whitespace().nth(2)?;
        port.parse::<u16>().is_ok().then(|| port.to_owned())
    }

    /// Returns the name and the password for a host: `AuthInfo:host "U:user" "P:password"`.
    fn login(&mut self, host: &str, setting: &str) -> Option<(String, String)> {
        let mut entries = self.table("authinfo", "authinfo");
        entries.extend(self.table("access", "access_db"));
        let keys = [format!("authinfo:{}", host.to_lowercase()), "authinfo:".to_owned()];
        let Some(entry) =
            keys.iter().find_map(|key| entries.iter().find(|entry| entry.key.to_lowercase() == *key))
        else {
            return self.default_login().filter(|_| setting == "SMART_HOST");
        };
        let words: Vec<&str> =
            entry.value.split('"').map(str::trim).filter(|word| !word.is_empty()).collect();
        let of = |name: &str| words.iter().find_map(|word| word.strip_prefix(name));
        let (user, password) = (of("U:").or_else(|| of("I:")), of("P:"));
        if user.is_none() || password.is_none() {
            self.missing(
                "authinfo",
                format!("the login for {host} is incomplete: write `login` in the [[route]]"),
            );
        }
        Some((user?.to_owned(), password?.to_owned()))
    }

    /// Returns the login of `confDEF_AUTH_INFO`: the second and the third line of a file.
    fn default_login(&mut self) -> Option<(String, String)> {
        let file = self.option("DefaultAuthInfo", "confDEF_AUTH_INFO")?;
        let text = self.file(&file).unwrap_or_default();
        let mut lines = text.lines().skip(1).map(|line| line.trim().to_owned());
        let login = lines.next().zip(lines.next());
        if login.is_none() {
            let text = format!("{file} has no login for SMART_HOST: write `login` in the [[route]]");
            self.report.effect(Effect::Refused, "confDEF_AUTH_INFO", text);
        }
        login
    }

    pub(super) fn smart_host(&mut self) {
        let Some(host) = self.relay_macro("S", "SMART_HOST") else { return };
        let section = Section::new("[[route]]", "SMART_HOST").with("domains", vec!["*".to_owned()]);
        let section = self.next_hop_or_hold(section, "SMART_HOST", &host);
        self.draft.push(section);
    }

    /// Mail for a next hop that cannot be read must not go elsewhere: it is held.
    pub(super) fn next_hop_or_hold(&mut self, section: Section, name: &'static str, value: &str) -> Section {
        match self.next_hop(section.clone(), name, value) {
            Some(section) => section,
            None => {
                let domains = match section.value("domains") {
                    Some(Value::List(domains)) => format!("{} ", domains.join(" ")),
                    _ => String::new(),
                };
                let text = format!(
                    "{domains}{value}: this mail is held until you write its next hop in the [[route]]"
                );
                self.report.effect(Effect::Elsewhere, name, text);
                section.with("hold", true)
            }
        }
    }

    /// Domains that are relayed to go to their MX hosts, unless all goes to one host.
    pub(super) fn relay_route(&mut self) {
        let patterns = self.draft.unrouted(self.places.relayed.clone());
        if !patterns.is_empty() && self.relay_macro("S", "SMART_HOST").is_none() {
            let section = Section::new("[[route]]", "relay-domains, access").with("domains", patterns);
            self.draft.push(section.with("mx", true));
        }
    }

    pub(super) fn masquerade(&mut self) {
        let given = self.calls.iter().rfind(|call| call.name == "MASQUERADE_AS").map(|call| call.argument(0));
        let given = given.or_else(|| self.cf.macro_value("M")).filter(|name| !name.is_empty());
        let masquerade =
            given.map(|name| name.trim_end_matches('.').to_lowercase()).filter(|name| is_domain(name));
        let table = self.table("genericstable", "genericstable");
        if masquerade.is_none() && table.is_empty() {
            return;
        }
        // Without the feature, Sendmail leaves the envelope as it is; Postrider changes nothing else.
        if !self.has_feature("masquerade_envelope") {
            let text = "not imported: without FEATURE masquerade_envelope, Sendmail rewrites only the header, and Postrider rewrites only the envelope; rewrite the header in the programs that send mail";
            for name in ["MASQUERADE_AS", "genericstable"] {
                self.missing(name, text);
            }
            return;
        }
        let mut text = String::new();
        let mut domains = self.words("G", "GENERICS_DOMAIN");
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
            let is_sent_on = |(letter, of): (&str, &str)| self.relay_macro(letter, of).is_some();
            if [("H", "MAIL_HUB"), ("L", "LUSER_RELAY")].into_iter().any(is_sent_on) {
                let text = format!(
                    "recipients in local domains whose mail goes to another host are rewritten to {name}, too; Sendmail rewrites senders only"
                );
                self.report.effect(Effect::Addresses, "MASQUERADE_AS", text);
            }
        }
        write_generic(&mut self.draft, text);
        for name in ["MASQUERADE_AS", "genericstable"] {
            self.note(name, "addresses.generic rewrites the reverse-path of outgoing mail, not the header");
        }
    }

    /// Returns the lines that hide the local domains, but for some users.
    fn masked(&self, name: &str) -> String {
        let (exposed, hidden) = (self.words("{E}", "EXPOSED_USER"), self.words("M", "MASQUERADE_DOMAIN"));
        let mut text = String::new();
        let mut done = vec![name.to_owned()];
        for domain in self.places.own.iter().chain(&hidden).map(|domain| domain.to_lowercase()) {
            if !is_domain(&domain) || done.contains(&domain) {
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
    pub(super) fn calls_of(&self, name: &str) -> Vec<String> {
        let calls = self.calls.iter().filter(|call| call.name == name);
        calls.flat_map(|call| call.argument(0).split_whitespace().map(str::to_owned)).collect()
    }
}

/// Returns the target of a virtual address that has the name of the user in it, as `%1`, and nothing else of the address.
fn named(value: &str) -> Option<&str> {
    let (before, after) = value.split_once("%1")?;
    let is_plain =
        |text: &str| !text.contains(['%', ':', '|', '/', '$']) && !text.contains(char::is_whitespace);
    (is_plain(before) && is_plain(after)).then_some(value)
}

fn write_generic(draft: &mut Draft, text: String) {
    if !text.is_empty() {
        draft.add_file("generic", text, false);
        draft.extend("[addresses]", "generic", ["text:generic".to_owned()], "genericstable, MASQUERADE_AS");
    }
}
