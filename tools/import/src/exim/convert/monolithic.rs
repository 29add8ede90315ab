//! A configuration of Exim in one file.

use super::{
    Draft, Files, Names, Report, Section, acl::Acls, head, listeners, lookups, mailname, redirects, smarthost,
};
use crate::places::is_domain;
use crate::{
    Effect, Verdict,
    draft::{Value, quoted},
    exim::conf::{Conf, Driver, list_items},
    places::Places,
    report::AS_DAEMON,
    settings::{
        Meanings,
        Treatment::{Mapped, MappedOr, Matters, Missing, Note},
        is_in, treatment,
    },
    time::is_time,
};
use std::path::Path;

use lookups::{Lookup, Routes, hosts};
use redirects::is_refusal;

pub(super) fn names(file: &[u8], files: &dyn Files) -> Names {
    let conf = Conf::parse(file, files);
    let hostname = hostname(&conf, files);
    let qualify = conf.option("qualify_domain");
    let qualify_domain = match qualify {
        "" => hostname,
        text if text.contains(['$', '{', '/']) => mailname(files),
        text => text.to_owned(),
    };
    let pid_file = Some(conf.option("pid_file_path")).filter(|path| !path.is_empty()).map(str::to_owned);
    Names { qualify_domain, pid_file }
}

fn hostname(conf: &Conf, files: &dyn Files) -> String {
    let name = conf.option("primary_hostname");
    if name.is_empty() || name.contains(['$', '{']) { files.machine() } else { name.to_lowercase() }
}

pub(super) struct Converter<'a> {
    pub(super) conf: Conf,
    pub(super) files: &'a dyn Files,
    pub(super) draft: Draft,
    pub(super) report: Report,
    hostname: String,
    pub(super) places: Places,
    /// Routes for all domains but the local ones.
    pub(super) late: Vec<Section>,
    /// The name of the file, for places in the report.
    place: &'static str,
}

pub(super) fn convert(file: &[u8], files: &dyn Files) -> (Draft, Report) {
    of_conf(&Conf::parse(file, files), files, "exim.conf")
}

/// Converts what a file of this name has.
pub(super) fn of_conf(conf: &Conf, files: &dyn Files, place: &'static str) -> (Draft, Report) {
    let hostname = hostname(conf, files);
    let mut draft = head("Exim's configuration");
    let acls = Acls::read(conf, files, &hostname, &mut draft);
    let mut converter = Converter {
        conf: conf.clone(),
        files,
        draft,
        report: Report::default(),
        hostname: hostname.clone(),
        places: Places::default(),
        late: Vec::new(),
        place,
    };
    converter.main();
    converter.domains(&acls);
    converter.routers();
    let own = [&*converter.places.own, &*converter.places.of_addresses].concat();
    acls.tell_unverified(&mut converter.report, &own);
    let taken: Vec<String> = [&*converter.places.own, &*converter.places.relayed].concat();
    acls.write(&mut converter.draft, &mut converter.report, place, &taken);
    converter.rules();
    for (line, text) in std::mem::take(&mut converter.conf.faults) {
        converter.report.add(format!("{place}:{line}"), text, Verdict::Unknown);
    }
    (converter.draft, converter.report)
}

/// Names of all main options of Exim 4.96.
const OPTIONS: &str = include_str!("../options.txt");

/// Options that need no key.
const MAPPED: &str = "exim_path gecos_pattern gecos_name prdr_enable local_sender_retain smtputf8_advertise_hosts spool_directory split_spool_directory log_file_path log_selector never_users exim_user exim_group \
    keep_environment add_environment queue_run_max remote_max_parallel pid_file_path rfc1413_hosts \
    rfc1413_query_timeout host_lookup trusted_users trusted_groups daemon_smtp_port local_from_check \
    smtp_receive_timeout deliver_queue_load_max disable_ipv6 dns_dnssec_ok chunking_advertise_hosts";

/// Options of routers that are read, or change nothing about the way of mail.
const ROUTER_OPTIONS: &str = "driver transport domains route_list route_data data file condition senders local_parts \
    local_part_suffix local_part_suffix_optional check_local_user more verify verify_only verify_sender \
    verify_recipient expn cannot_route_message allow_fail allow_defer same_domain_copy_routing \
    host_find_failed host_all_ignored ignore_target_hosts dnssec_request_domains dnssec_require_domains \
    file_transport pipe_transport reply_transport directory_transport router_home_directory \
    transport_home_directory user group retry_use_local_part caseful_local_part mx_domains self \
    hosts_randomize pass_on_timeout address_data fail_verify rewrite_headers";

/// Names of the options of transports.
const TRANSPORT_OPTIONS: &str = "driver protocol hosts port hosts_require_tls hosts_avoid_tls hosts_require_auth hosts_try_auth file \
    directory socket command delivery_date_add envelope_to_add return_path_add maildir_format \
    maildir_tag mbx_format mode user group initgroups mode_fail_narrower create_directory create_file \
    directory_mode current_directory home_directory path return_output return_fail_output log_output \
    allow_localhost multi_domain batch_max batch_id connection_max_messages max_rcpt check_string \
    escape_string lock_fcntl_timeout tls_tempfail_tryclear tls_verify_certificates tls_verify_hosts \
    notify_comsat temp_errors environment timeout umask";

const NO_SCANNER: &str = "write [filter.NAME] with the milter of the same program (docs/filters.md)";

/// Options that a key or a hint takes the place of.
const OTHERS: &Meanings = &[
    (MAPPED, Mapped),
    ("local_interfaces tls_certificate tls_privatekey authenticator", MappedOr(Effect::Refused)),
    ("router transport", MappedOr(Effect::Elsewhere)),
    ("rewrite", MappedOr(Effect::Addresses)),
    ("av_scanner spamd_address", Matters(Effect::Taken, NO_SCANNER)),
    ("system_filter", Matters(Effect::Taken, "write rules; see docs/rules.md")),
    ("message_logs", Note("the log and `postrider why` tell what became of a message")),
    ("smtp_banner", Missing("the greeting is always the hostname and ESMTP")),
    ("received_header_text", Missing("the Received field has a fixed form")),
    (
        "local_scan_timeout",
        Matters(Effect::Taken, "write [filter.NAME] with a milter that does the same (docs/filters.md)"),
    ),
    ("dkim_verify_signers", Matters(Effect::Taken, "write dkim = \"tag\" in [checks]")),
    ("smtp_ratelimit_hosts", Matters(Effect::Taken, "write a [[limit]]")),
    ("smtp_accept_max_per_connection", Missing("see limits.max_transactions")),
    ("timeout_frozen_after", Note("mail stays held until an operator releases or deletes it")),
    ("ignore_bounce_errors_after", Note("notifications.double_bounces sends them to the postmaster")),
    ("freeze_tell", Note("see `postrider queue list --status held`")),
    ("untrusted_set_sender", Note("local programs may set the sender")),
];

impl Converter<'_> {
    fn say(&mut self, line: usize, name: &str, verdict: Verdict) {
        self.report.add_with(&format!("{}:{line}", self.place), name, verdict, effect_of(name));
    }

    fn main(&mut self) {
        self.draft.set("", "hostname", self.hostname.clone(), "primary_hostname");
        self.draft.set("", "data_dir", "/var/lib/postrider", "");
        let (certificate, key) =
            (self.conf.option("tls_certificate").to_owned(), self.conf.option("tls_privatekey").to_owned());
        let key = if key.is_empty() { certificate.clone() } else { key };
        let has_tls = !certificate.is_empty()
            && [&certificate, &key].iter().all(|file| self.files.exists(Path::new(file)));
        if has_tls {
            self.draft.set("[tls]", "certificate", certificate, "tls_certificate");
            self.draft.set("[tls]", "key", key, "tls_privatekey");
        }
        let addresses = list_items(self.conf.option("local_interfaces"));
        let addresses: Vec<String> =
            if addresses.is_empty() { vec!["0.0.0.0".into(), "::".into()] } else { addresses };
        let (plain, odd): (Vec<String>, Vec<String>) =
            addresses.into_iter().partition(|one| one.parse::<std::net::IpAddr>().is_ok());
        let number = |port: String| match &*port {
            "smtp" => "25".to_owned(),
            "submission" => "587".to_owned(),
            "smtps" | "submissions" | "ssmtp" => "465".to_owned(),
            _ => port,
        };
        let ports: Vec<String> =
            list_items(self.conf.option("daemon_smtp_ports")).into_iter().map(number).collect();
        let ports = if ports.is_empty() { vec!["25".to_owned()] } else { ports };
        let implicit: Vec<String> =
            list_items(self.conf.option("tls_on_connect_ports")).into_iter().map(number).collect();
        let advertises = !(self
            .conf
            .main
            .iter()
            .any(|option| option.name == "tls_advertise_hosts" && option.value.is_empty()));
        // A certificate that cannot be read is no reason to switch TLS off: one is made at each start.
        let tls =
            if advertises && !self.conf.option("tls_certificate").is_empty() { None } else { Some("off") };
        listeners(&mut self.draft, &plain, &ports, &implicit, tls, "local_interfaces, daemon_smtp_ports");
        for option in self.conf.main.clone() {
            let verdict = self.option(&option.name, &option.value, has_tls, &odd);
            self.say(option.line, &option.name, verdict);
        }
    }

    fn option(&mut self, name: &str, value: &str, has_tls: bool, odd: &[String]) -> Verdict {
        let note = |text: &str| Verdict::Note(text.to_owned());
        let numbers: [(&str, &str, &str); 6] = [
            ("smtp_accept_max", "[inbound]", "max_sessions"),
            ("smtp_accept_max_per_host", "[inbound]", "max_sessions_per_client"),
            ("recipients_max", "[limits]", "max_recipients"),
            ("received_headers_max", "[limits]", "max_hops"),
            ("message_size_limit", "[limits]", "max_message_size"),
            ("smtp_max_unknown_commands", "[limits]", "max_errors"),
        ];
        if let Some((_, section, key)) = numbers.iter().find(|(option, _, _)| *option == name) {
            let (digits, factor) = match value.to_ascii_uppercase().strip_suffix(['K', 'M', 'G']) {
                Some(digits) => (
                    digits.to_owned(),
                    1u64 << match value.as_bytes()[value.len() - 1].to_ascii_uppercase() {
                        b'K' => 10,
                        b'M' => 20,
                        _ => 30,
                    },
                ),
                None => (value.to_owned(), 1),
            };
            return match digits.trim().parse::<u64>() {
                Ok(0) => note("there is always a limit; Postrider's default is used"),
                Ok(number) => {
                    let least = match *key {
                        "max_recipients" => 100,
                        "max_message_size" => 65_536,
                        _ => 1,
                    };
                    let number = number.saturating_mul(factor).max(least);
                    self.draft.set(section, key, number, name);
                    Verdict::Mapped
                }
                Err(_) => Verdict::Missing(format!("\"{value}\" is not a number: set {key} by hand")),
            };
        }
        match name {
            "primary_hostname" | "daemon_smtp_ports" | "tls_on_connect_ports" => Verdict::Mapped,
            "local_interfaces" if odd.is_empty() => Verdict::Mapped,
            "local_interfaces" => {
                Verdict::Missing(format!("write these listeners by hand: {}", odd.join(", ")))
            }
            "tls_certificate" | "tls_privatekey" if !has_tls => {
                let text = "cannot read the file: a self-signed certificate is generated at each start, which clients that verify it reject; set tls.certificate and tls.key";
                Verdict::Missing(text.to_owned())
            }
            "tls_certificate" | "tls_privatekey" | "tls_advertise_hosts" => Verdict::Mapped,
            "qualify_domain" | "qualify_recipient" if value == self.hostname => Verdict::Mapped,
            "qualify_domain" | "qualify_recipient" => note(
                "addresses without a domain get the hostname; addresses.masquerade can hide the host name",
            ),
            "delay_warning" => {
                let first = list_items(value).into_iter().next().unwrap_or_else(|| "0s".to_owned());
                self.draft.set(
                    "[queue]",
                    "delay_warning",
                    if first == "0" { "0s".to_owned() } else { first },
                    name,
                );
                if list_items(value).len() > 1 { note("only one warning is sent") } else { Verdict::Mapped }
            }
            acl if acl.starts_with("acl_") => {
                if matches!(
                    acl,
                    "acl_smtp_rcpt"
                        | "acl_smtp_mail"
                        | "acl_smtp_data"
                        | "acl_smtp_connect"
                        | "acl_smtp_helo"
                        | "acl_not_smtp"
                ) {
                    note("its statements are listed below")
                } else {
                    Verdict::Missing("write a [[rule]]; see docs/rules.md".to_owned())
                }
            }
            other
                if other.starts_with("tls_")
                    || other.starts_with("openssl_")
                    || other.starts_with("gnutls_") =>
            {
                note("TLS 1.2 and 1.3 are used, with modern ciphers only; see [tls]")
            }
            other => match treatment(OTHERS, other) {
                Some(known) => known.verdict(),
                None if is_in(OPTIONS, other) => Verdict::Missing("Postrider has no such setting".to_owned()),
                None => Verdict::Unknown,
            },
        }
    }

    fn domain_names(&self, items: &[String]) -> (Vec<String>, Vec<String>) {
        domain_names(&self.hostname, self.files, items)
    }

    /// What statements accept decides who may relay and which domains are taken, and not the names of lists.
    fn domains(&mut self, acls: &Acls<'_>) {
        self.draft.extend("[relay]", "networks", acls.relaying(), "hosts that acl_smtp_rcpt accepts");
        for list in self.conf.lists.clone() {
            let (kind, name) = list.name.split_once(' ').unwrap_or((&list.name, ""));
            // Routers send mail for all other domains elsewhere.
            let is_elsewhere =
                |router: &Driver| router.option("domains").replace(' ', "") == format!("!+{name}");
            let is_local = name.contains("local") || self.conf.routers.iter().any(is_elsewhere);
            let verdict = match kind {
                "domainlist" if is_local => {
                    let (names, mut others) = self.domain_names(&self.conf.list(kind, name));
                    let (below, names): (Vec<String>, _) =
                        names.into_iter().partition(|name| name.starts_with('*'));
                    names.into_iter().for_each(|name| self.places.add_own(name));
                    others.extend(below);
                    let text = "list each domain by name in local.domains, or in a map";
                    if others.is_empty() {
                        Verdict::Mapped
                    } else {
                        self.report.effect(
                            Effect::Refused,
                            &list.name,
                            format!("{text}: {}", others.join(", ")),
                        );
                        Verdict::Missing(String::new())
                    }
                }
                _ => Verdict::Mapped,
            };
            self.say(list.line, &list.name, verdict);
        }
        if self.places.own.is_empty() {
            self.places.own = vec![self.hostname.clone(), "localhost".to_owned()];
        }
        acls.taken().into_iter().for_each(|domain| self.places.add_relayed(domain));
    }

    fn routers(&mut self) {
        let is_local_user = |router: &Driver| {
            router.option("check_local_user") == "true" && router.option("driver") == "accept"
        };
        let routers = self.conf.routers.clone();
        let is_restricted = routers.iter().any(is_local_user);
        self.domains_of_addresses(&routers);
        self.places.settle(&mut self.report, "acl_smtp_rcpt");
        let users = match is_restricted {
            true => self.places.users(self.files, &mut self.report),
            false => Vec::new(),
        };
        let from = ("local_domains, relay_to_domains", "check_local_user");
        self.places.write(&mut self.draft, is_restricted.then_some(&*users), from);
        let has_details = routers.iter().any(|router| router.option("local_part_suffix").starts_with('+'));
        let from = "local_part_suffix";
        self.draft.set("[addresses]", "separator", if has_details { "+" } else { "" }, from);
        for router in routers {
            let verdict = self.router(&router);
            self.say(router.line, &format!("router {}", router.name), verdict);
            if self.does_nothing(&router).is_none() && router.option("file").is_empty() {
                self.unread(&router, "router", ROUTER_OPTIONS);
            }
        }
        for route in std::mem::take(&mut self.late) {
            self.draft.push(route);
        }
        if is_restricted {
            self.report.notes.push(
                "local.users lists the users of this machine as of the import; add new users there"
                    .to_owned(),
            );
        }
        for transport in self.conf.transports.clone() {
            let is_used = self
                .conf
                .routers
                .iter()
                .flat_map(|router| &router.options)
                .any(|option| option.value == transport.name);
            let verdict = match transport.option("driver") {
                "smtp" | "lmtp" | "appendfile"
                    if transport.options.iter().any(|option| option.name.starts_with("dkim_")) =>
                {
                    Verdict::Missing("write [[sign]] with the key (docs/signing.md)".to_owned())
                }
                "smtp" | "lmtp" | "appendfile" if is_used => Verdict::Mapped,
                "pipe" if is_used => Verdict::Note("see the router".to_owned()),
                "autoreply" => Verdict::Note("run a program such as vacation(1) from an alias".to_owned()),
                _ => Verdict::Note("no router uses it".to_owned()),
            };
            self.say(transport.line, &format!("transport {}", transport.name), verdict);
            if is_used && matches!(transport.option("driver"), "smtp" | "lmtp" | "appendfile") {
                self.unread(&transport, "transport", TRANSPORT_OPTIONS);
            }
        }
        for authenticator in self.conf.authenticators.clone() {
            let is_server = authenticator.options.iter().any(|option| option.name.starts_with("server_"));
            let verdict = if is_server {
                Verdict::Missing(
                    "create a password file with `postrider auth hash` and set auth.users = \"passwd:FILE\", or use Dovecot"
                        .to_owned(),
                )
            } else {
                Verdict::Mapped
            };
            self.say(authenticator.line, &format!("authenticator {}", authenticator.name), verdict);
        }
    }

    /// Names the options of a driver that nothing reads, and what becomes of its mail.
    fn unread(&mut self, driver: &Driver, kind: &str, read: &str) {
        for option in &driver.options {
            let name = &*option.name;
            if is_in(read, name) || name.starts_with("debug_") || name.starts_with("dkim_") {
                continue;
            }
            // The visible name of Debian is in addresses.generic.
            if self.place != "exim.conf" && matches!(name, "headers_rewrite" | "return_path") {
                continue;
            }
            let effect = match name {
                "headers_add" | "headers_remove" | "headers_rewrite" | "return_path" | "errors_to" => {
                    Effect::Addresses
                }
                _ => Effect::Elsewhere,
            };
            let text = format!("{name} = {} is not used", option.value);
            self.report.effect(
                effect,
                &format!("{}:{} {kind} {}", self.place, option.line, driver.name),
                text,
            );
        }
    }

    /// Takes users and aliases from domains whose rest a router refuses.
    fn domains_of_addresses(&mut self, routers: &[Driver]) {
        for router in routers.iter().filter(|router| is_refusal(router)) {
            for name in self.router_domains(router).unwrap_or_default() {
                if name != self.hostname && self.places.own.contains(&name) {
                    self.places.own.retain(|own| *own != name);
                    self.places.of_addresses.push(name);
                }
            }
        }
    }

    /// Returns the domains of a router; `None` for all but the local ones.
    pub(super) fn router_domains(&self, router: &Driver) -> Option<Vec<String>> {
        let value = router.option("domains");
        if value.is_empty() || value.starts_with('!') {
            return None;
        }
        let mut items = Vec::new();
        for item in list_items(value) {
            match item.strip_prefix('+') {
                Some(list) => items.extend(self.conf.list("domainlist", list)),
                None => items.push(item),
            }
        }
        Some(self.domain_names(&items).0).filter(|names| !names.is_empty())
    }

    fn router(&mut self, router: &Driver) -> Verdict {
        let transport =
            self.conf.transports.iter().find(|one| one.name == router.option("transport")).cloned();
        let by_hand = |text: &str| Verdict::Missing(text.to_owned());
        if let Some(why) = self.does_nothing(router) {
            return Verdict::Note(why);
        }
        if ["condition", "senders", "local_parts", "local_part_suffix"]
            .iter()
            .any(|name| !router.option(name).is_empty())
            && router.option("driver") != "accept"
        {
            return by_hand("its conditions are not imported: write a [[route]], or a [[rule]] with `route`");
        }
        match router.option("driver") {
            "dnslookup" => {
                let relayed = Some(self.places.relayed.clone()).filter(|names| !names.is_empty());
                let domains = self.router_domains(router).or(relayed);
                let domains = domains.map(|domains| self.draft.unrouted(domains));
                if let Some(domains) = domains.filter(|domains| !domains.is_empty()) {
                    self.draft.push(
                        Section::new("[[route]]", format!("router {}", router.name))
                            .with("domains", domains)
                            .with("mx", true),
                    );
                }
                Verdict::Mapped
            }
            "manualroute" => self.manualroute(router, transport.as_ref()),
            "redirect" => self.redirect(router),
            "accept" => self.accept(router, transport.as_ref()),
            "ipliteral" => Verdict::Mapped,
            other => Verdict::Missing(format!(
                "the driver {other} has no counterpart: write a [[route]], or a map of addresses"
            )),
        }
    }

    /// Returns why a router has no mail, if it is one of those that packages bring for what a site may have.
    fn does_nothing(&self, router: &Driver) -> Option<String> {
        let needed = router.option("require_files");
        let program = needed.split(':').map(str::trim).find_map(|file| file.strip_prefix('+'));
        let is_missing = |file: &&str| file.starts_with('/') && !self.files.exists(Path::new(file));
        if let Some(program) = program.filter(is_missing) {
            return Some(format!("there is no {program}"));
        }
        let domains = router.option("domains");
        let of_file = domains.strip_prefix("${if exists{").and_then(|rest| rest.split_once('}'));
        if let Some((file, _)) = of_file.filter(|(file, _)| !self.files.exists(Path::new(file))) {
            return Some(format!("there is no {file}"));
        }
        if !router.option("local_part_prefix").is_empty() {
            return Some("only programs of this machine use addresses with a prefix".to_owned());
        }
        if router.option("condition").contains("{<{$local_user_uid}{0}}") {
            return Some("no user has a uid below 0".to_owned());
        }
        (router.option("local_parts") == "root" && router.option("driver") == "redirect").then(|| {
            "mail for root is delivered to root's mailbox unless an alias sends it elsewhere".to_owned()
        })
    }

    fn manualroute(&mut self, router: &Driver, transport: Option<&Driver>) -> Verdict {
        let port = transport.map_or("", |one| one.option("port"));
        let port = match port {
            "" | "smtp" => "25",
            "submission" => "587",
            "smtps" => "465",
            port => port,
        }
        .to_owned();
        let mut rules = Routes::new();
        let all = || vec!["*".to_owned()];
        if let Some(lookup) = Lookup::parse(router.option("route_data")) {
            match self.hosts_of(&lookup) {
                Ok(found) => rules.extend(found),
                Err(verdict) => return verdict,
            }
        } else if !router.option("route_data").is_empty() {
            let domains = self.router_domains(router).unwrap_or_else(all);
            rules.push((domains, hosts(router.option("route_data"))));
        }
        for rule in router.option("route_list").split(';').map(str::trim).filter(|rule| !rule.is_empty()) {
            let (domain, rest) = rule.split_once(char::is_whitespace).unwrap_or((rule, ""));
            let found = hosts(rest.trim().trim_matches('"'));
            let domains = match domain {
                "*" | "!+local_domains" => self.router_domains(router).unwrap_or_else(all),
                domain => vec![domain.to_owned()],
            };
            rules.push((domains, found));
        }
        if rules.is_empty() {
            return Verdict::Missing("it has no hosts: write a [[route]] with smarthost".to_owned());
        }
        let mut missing = Vec::new();
        for (domains, found) in rules {
            let (host, more) =
                found.split_first().map_or((String::new(), &found[..0]), |(a, b)| (a.clone(), b));
            let is_pattern = |domain: &String| domain == "*" || is_domain(domain.trim_start_matches("*."));
            let Some(host) = smarthost(&host, &port).filter(|_| domains.iter().all(is_pattern)) else {
                missing.push(format!("{} {host}", domains.join(":")));
                continue;
            };
            let domains = self.draft.unrouted(domains);
            if domains.is_empty() {
                continue;
            }
            let section = Section::new("[[route]]", format!("router {}", router.name))
                .with("domains", domains)
                .with("smarthost", host.clone());
            let section = self.transport_keys(section, transport, &host);
            let more: Vec<String> = more.iter().filter_map(|host| smarthost(host, &port)).collect();
            let section = if more.is_empty() { section } else { section.with("fallback", more) };
            let is_rest = router.option("domains").starts_with('!')
                || router.option("route_list").starts_with("!+local_domains");
            if is_rest {
                self.late.push(section);
            } else {
                self.draft.push(section);
            }
        }
        if missing.is_empty() {
            Verdict::Mapped
        } else {
            Verdict::Missing(format!("write a [[route]] for: {}", missing.join(", ")))
        }
    }

    /// Returns the routes that a table of hosts makes.
    fn hosts_of(&self, lookup: &Lookup) -> Result<Routes, Verdict> {
        let missing = |text: String| Err(Verdict::Missing(text));
        if !matches!(&*lookup.key, "$domain" | "${domain}" | "${lc:$domain}") {
            return missing(format!("the lookup key {} has no counterpart: write a [[route]]", lookup.key));
        }
        let Some(file) = self.files.read(Path::new(&lookup.file)) else {
            return missing(format!("there is no file {}", lookup.file));
        };
        let (found, others) = lookups::host_table(&String::from_utf8_lossy(&file), lookup.is_partial);
        if !others.is_empty() {
            return missing(format!("write a [[route]] for: {}", others.join(", ")));
        }
        Ok(found.into_iter().map(|(domains, value)| (domains, hosts(&value))).collect())
    }

    /// Adds the keys for TLS and the login of a transport.
    fn transport_keys(&mut self, section: Section, transport: Option<&Driver>, host: &str) -> Section {
        let option = |name: &str| transport.map_or("", |one| one.option(name)).to_owned();
        let needs_tls = !option("hosts_require_tls").is_empty();
        let never = option("hosts_avoid_tls") == "*";
        let tls = match (option("protocol") == "smtps" || host.ends_with(":465"), needs_tls, never) {
            (true, _, _) => "implicit",
            (_, true, _) => "require",
            (_, _, true) => "off",
            _ => "may",
        };
        let wants_login = !option("hosts_require_auth").is_empty() || !option("hosts_try_auth").is_empty();
        let of_debian = || {
            lookups::client_password(self.files, host)
                .filter(|_| option("hosts_try_auth").contains("passwd.client"))
        };
        let login = self.conf.authenticators.iter().filter(|_| wants_login).find_map(|one| {
            let (user, password) = match one.option("driver") {
                // `: user : password` or `^user^password`.
                "plaintext" => {
                    let send = one.option("client_send");
                    let parts: Vec<String> = if send.contains('^') {
                        send.split('^').map(str::to_owned).collect()
                    } else {
                        list_items(send)
                    };
                    let mut parts =
                        parts.into_iter().map(|part| part.trim().to_owned()).filter(|part| !part.is_empty());
                    (parts.next()?, parts.next()?)
                }
                "cram_md5" => (one.option("client_name").to_owned(), one.option("client_secret").to_owned()),
                _ => return None,
            };
            (!user.contains(['$', '{']) && !password.contains("${")).then_some((user, password))
        });
        let login = login.or_else(of_debian);
        match login {
            Some((user, password)) => {
                let name = host.rsplit_once(':').map_or(host, |(name, _)| name).replace(['[', ']', ':'], "-");
                let file = format!("{name}.secret");
                self.draft.add_file(&file, format!("{password}\n"), true);
                let login =
                    format!("{{ user = {}, secret = {} }}", quoted(&user), quoted(&format!("file:{file}")));
                let tls = if matches!(tls, "may" | "off") { "verify" } else { tls };
                section.with("tls", tls).with("login", Value::Raw(login))
            }
            None => {
                // A list of hosts with logins may have none for this one.
                if wants_login && !option("hosts_try_auth").contains("passwd.client") {
                    self.report
                        .notes
                        .push(format!("Exim computes the login for {host}: write `login` in the [[route]]"));
                }
                section.with("tls", tls)
            }
        }
    }

    fn accept(&mut self, router: &Driver, transport: Option<&Driver>) -> Verdict {
        let Some(transport) = transport else {
            return Verdict::Missing("it has no transport: write a [[route]]".to_owned());
        };
        let domains = self.router_domains(router).unwrap_or_else(|| self.places.own.clone());
        let domains = self.draft.unrouted(domains);
        if domains.is_empty() {
            return Verdict::Note("not used: the routers above it handle all its domains".to_owned());
        }
        let section =
            Section::new("[[route]]", format!("router {}, transport {}", router.name, transport.name))
                .with("domains", domains);
        let pattern = |text: &str| {
            let text = text
                .replace("$local_part_data", "{local}")
                .replace("${local_part}", "{local}")
                .replace("$local_part", "{local}");
            let text = text
                .replace("$home", "/home/{local}")
                .replace("${domain}", "{domain}")
                .replace("$domain_data", "{domain}")
                .replace("$domain", "{domain}");
            (!text.contains(['$', ' '])).then_some(text)
        };
        let option = |name: &str| Some(transport.option(name)).filter(|value| !value.is_empty());
        let found = match transport.option("driver") {
            "appendfile" => match (option("directory"), option("file")) {
                (Some(directory), _) => pattern(directory).map(|path| ("maildir", path)),
                (None, Some(file)) => pattern(file).map(|path| ("mbox", path)),
                (None, None) => None,
            },
            "lmtp" => option("socket").map(|socket| ("lmtp", format!("unix:{socket}"))),
            "smtp" if transport.option("protocol") == "lmtp" => {
                let port = option("port").unwrap_or("24");
                option("hosts").and_then(|host| smarthost(host, port)).map(|host| ("lmtp", host))
            }
            "smtp" => option("hosts")
                .and_then(|host| smarthost(host, option("port").unwrap_or("25")))
                .map(|host| ("smarthost", host)),
            _ => None,
        };
        match found {
            Some((key, value)) => {
                self.draft.push(section.with(key, value));
                if matches!(key, "mbox" | "maildir") {
                    Verdict::Note(format!(
                        "{AS_DAEMON} the mailboxes; home directories are assumed to be below /home"
                    ))
                } else {
                    Verdict::Mapped
                }
            }
            None => Verdict::Missing("write a [[route]] with maildir, mbox, lmtp or pipe".to_owned()),
        }
    }

    fn rules(&mut self) {
        for rule in self.conf.rules.clone() {
            let verdict = match &*rule.name {
                "retry" if rule.value.starts_with('*') => self.retry(&rule.value),
                "retry" => {
                    Verdict::Missing("for retries of some hosts only, see `retry` in a [[route]]".to_owned())
                }
                // Senders of a file are in addresses.generic.
                "rewrite" if rule.value.contains("{/etc/email-addresses}") => Verdict::Mapped,
                "rewrite" => Verdict::Missing(
                    "write a map: addresses.canonical, addresses.masquerade or addresses.generic".to_owned(),
                ),
                _ => Verdict::Unknown,
            };
            self.say(rule.line, &format!("{} {}", rule.name, rule.value), verdict);
        }
    }

    /// `* * F,2h,15m; G,16h,1h,1.5; F,4d,6h`.
    fn retry(&mut self, rule: &str) -> Verdict {
        let parts: Vec<Vec<&str>> = rule
            .split(';')
            .map(|part| part.rsplit(char::is_whitespace).next().unwrap_or(part).split(',').collect())
            .collect();
        let (Some(first), Some(last)) = (parts.first(), parts.last()) else { return Verdict::Unknown };
        let (Some(least), Some(most), Some(lifetime)) = (
            first.get(2).filter(|t| is_time(t)),
            last.get(2).filter(|t| is_time(t)),
            last.get(1).filter(|t| is_time(t)),
        ) else {
            return Verdict::Missing("write retry_min, retry_max and expire in [queue]".to_owned());
        };
        for (key, value) in [("retry_min", least), ("retry_max", most), ("expire", lifetime)] {
            self.draft.set("[queue]", key, (*value).to_owned(), "begin retry");
        }
        Verdict::Note(
            "the interval grows with the age of the message, from retry_min to retry_max".to_owned(),
        )
    }
}

/// Returns what becomes of mail where a setting has no counterpart.
fn effect_of(name: &str) -> Option<Effect> {
    treatment(OTHERS, name.split(' ').next().unwrap_or(name))?.effect()
}

/// Returns the names of a list of domains, and the items that are none; `@` is the hostname. `*.` in front of a name stands
/// for the domains below it.
pub(super) fn domain_names(
    hostname: &str,
    files: &dyn Files,
    items: &[String],
) -> (Vec<String>, Vec<String>) {
    let (mut names, mut others) = (Vec::new(), Vec::new());
    for item in items {
        let name = if item == "@" { hostname.to_owned() } else { item.to_lowercase() };
        let (kind, file) = match item.split_once(';') {
            Some((kind, file)) => (kind.trim(), file.trim()),
            None => ("lines", &**item),
        };
        let content = Some(file).filter(|file| file.starts_with('/') && !file.contains('$'));
        let content = content.map(|path| (path, files.read(Path::new(path))));
        match (kind, content) {
            ("dsearch", Some((dir, _))) => names.extend(lookups::domains_of_dir(files, dir)),
            ("lsearch" | "partial-lsearch" | "lines", Some((_, Some(file)))) => {
                let text = String::from_utf8_lossy(&file).into_owned();
                for (key, _) in lookups::table(&text) {
                    match lookups::patterns(&key, kind == "partial-lsearch") {
                        Some(patterns) => names.extend(patterns),
                        None => others.push(key),
                    }
                }
            }
            _ if is_domain(name.trim_start_matches("*.")) && !name.starts_with('[') => {
                names.push(name);
            }
            _ if item == "@[]" => {}
            _ => others.push(item.clone()),
        }
    }
    (names, others)
}
