//! Debian's questions about Exim: `update-exim4.conf.conf`.

use super::{
    Draft, Files, Report, Section, acl::Acls, head, listeners, lookups, mailname, monolithic, networks,
    redirects, smarthost,
};
use crate::places::is_domain;
use crate::{
    Effect, Verdict,
    draft::quoted,
    exim::conf::{Conf, list_items},
    places::Places,
    report::AS_DAEMON,
};
use std::path::Path;

/// An answer, with its line.
struct Answer {
    name: String,
    value: String,
    line: usize,
}

/// Reads lines `name='value'`.
fn answers(file: &[u8]) -> Vec<Answer> {
    let text = String::from_utf8_lossy(file).into_owned();
    let answer = |(line, text): (usize, &str)| {
        let text = text.trim();
        if text.is_empty() || text.starts_with('#') {
            return None;
        }
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        let value = value.trim().trim_matches(['\'', '"']).to_owned();
        Some(Answer { name: name.trim().to_owned(), value, line })
    };
    (1..).zip(text.lines()).filter_map(answer).collect()
}

/// Debian separates the items of its lists by semicolons, or by colons.
fn items(value: &str) -> Vec<String> {
    if value.contains(';') { list_items(&format!("<; {value}")) } else { list_items(value) }
}

#[allow(clippy::too_many_lines)] // one step after the other, each for a question
pub(super) fn convert(file: &[u8], files: &dyn Files) -> (Draft, Report) {
    let answers = answers(file);
    let of =
        |name: &str| answers.iter().find(|answer| answer.name == name).map_or("", |answer| &*answer.value);
    let (mut draft, mut report) = (head("update-exim4.conf.conf"), Report::default());
    let (machine, mailname) = (files.machine(), mailname(files));
    let kind = of("dc_eximconfig_configtype").to_owned();
    draft.set("", "hostname", machine.clone(), "the name of the machine");
    draft.set("", "data_dir", "/var/lib/postrider", "");
    let mut verdicts: Vec<(&str, Verdict)> = Vec::new();

    // Local domains: `@:localhost`, and the other names.
    let mut domains = vec![machine.to_lowercase(), "localhost".to_owned()];
    let mut bad = Vec::new();
    for name in items(of("dc_other_hostnames")) {
        let name = name.to_lowercase();
        if !is_domain(&name) {
            bad.push(name);
        } else if !domains.contains(&name) {
            domains.push(name);
        }
    }
    if !bad.is_empty() {
        verdicts.push((
            "dc_other_hostnames",
            Verdict::Missing(format!("list each domain by name in local.domains: {}", bad.join(", "))),
        ));
    }
    let mut places = Places { own: domains, ..Places::default() };
    let (relay, others): (Vec<String>, Vec<String>) = items(of("dc_relay_domains"))
        .into_iter()
        .map(|name| name.to_lowercase())
        .partition(|name| is_domain(name.trim_start_matches("*.")));
    relay.into_iter().for_each(|name| places.add_relayed(name));
    if !others.is_empty() {
        let text = format!("list each domain by name, or in a map of local.domains: {}", others.join(", "));
        verdicts.push(("dc_relay_domains", Verdict::Missing(text)));
    }
    places.settle(&mut report, "dc_relay_domains");
    let own = places.own.clone();
    let from = ("@:localhost, dc_other_hostnames, dc_relay_domains", "check_local_user");
    places.write(&mut draft, Some(&files.users()), from);
    report.notes.push(
        "the users of the machine are listed in local.users as they are now: add new ones there".to_owned(),
    );

    if let Some(text) = files.read(Path::new("/etc/aliases")) {
        redirects::tell_programs(&mut report, "router system_aliases", "/etc/aliases", &text);
        draft.extend("[addresses]", "aliases", ["aliases:/etc/aliases".to_owned()], "router system_aliases");
        draft.set("[addresses]", "separator", "", "Debian's Exim separates no details");
    }

    let certificate = ("/etc/exim4/exim.crt", "/etc/exim4/exim.key");
    let has_tls = files.exists(Path::new(certificate.0)) && files.exists(Path::new(certificate.1));
    if has_tls {
        draft.set("[tls]", "certificate", certificate.0, "exim.crt");
        draft.set("[tls]", "key", certificate.1, "exim.key");
    }
    let mut addresses = items(of("dc_local_interfaces"));
    if addresses.is_empty() {
        addresses = vec!["0.0.0.0".to_owned(), "::".to_owned()];
    }
    let (addresses, others): (Vec<String>, Vec<String>) =
        addresses.into_iter().partition(|one| one.parse::<std::net::IpAddr>().is_ok());
    if !others.is_empty() {
        verdicts.push((
            "dc_local_interfaces",
            Verdict::Missing(format!("write these listeners by hand: {}", others.join(", "))),
        ));
    }
    listeners(
        &mut draft,
        &addresses,
        &["25".to_owned()],
        &[],
        if has_tls { None } else { Some("off") },
        "dc_local_interfaces",
    );

    let (nets, others) = networks(&items(of("dc_relay_nets")));
    if !others.is_empty() {
        verdicts.push((
            "dc_relay_nets",
            Verdict::Missing(format!(
                "only addresses and networks may stand in relay.networks: {}",
                others.join(", ")
            )),
        ));
    }
    let nets = ["127.0.0.1".to_owned(), "::1".to_owned()].into_iter().chain(nets);
    let nets: Vec<String> = nets.collect();
    // The files of the package have these macros where the answers belong.
    let answered = format!(
        "MAIN_LOCAL_DOMAINS = <; {}\nMAIN_RELAY_TO_DOMAINS = <; {}\nMAIN_RELAY_NETS = <; {}\n",
        places.own.join(" ; "),
        places.relayed.join(" ; "),
        nets.join(" ; ")
    );
    let whole = package(files, of("dc_use_split_config") == "true", &kind, &answered);
    for (_, text) in &whole.faults {
        report.add("conf.d", text.clone(), Verdict::Unknown);
    }
    let acls = Acls::read(&whole, files, &machine, &mut draft);
    let nets = if whole.acl.is_empty() { nets } else { acls.relaying() };
    draft.extend("[relay]", "networks", nets, "dc_relay_nets, and this machine");

    hubbed_hosts(&mut draft, &mut report, files);
    let own_routers = monolithic::own_routers(whole.clone(), &STOCK, (&mut draft, &places), files, &machine);
    for (name, verdict) in own_routers {
        report.add_with("conf.d", &format!("router {name}"), verdict, Some(Effect::Elsewhere));
    }
    if !whole.acl.is_empty() {
        acls.tell_unverified(&mut report, &[&*places.own, &*places.of_addresses].concat());
        acls.write(&mut draft, &mut report, "conf.d", &[&*places.own, &*places.relayed].concat());
    }

    let relay = draft.unrouted(places.relayed.clone());
    if !relay.is_empty() && kind == "internet" {
        draft.push(Section::new("[[route]]", "dc_relay_domains").with("domains", relay).with("mx", true));
    }
    let mailbox = match of("dc_localdelivery") {
        "maildir_home" => {
            verdicts.push((
                "dc_localdelivery",
                Verdict::Note(format!("home directories are taken to be below /home; {AS_DAEMON} there")),
            ));
            ("maildir", "/home/{local}/Maildir")
        }
        other => {
            if !matches!(other, "" | "mail_spool") {
                verdicts.push((
                    "dc_localdelivery",
                    Verdict::Missing(format!(
                        "the transport {other}: write a [[route]] for the local domains"
                    )),
                ));
            } else {
                verdicts.push(("dc_localdelivery", Verdict::Note(format!("{AS_DAEMON} below /var/mail"))));
            }
            ("mbox", "/var/mail/{local}")
        }
    };
    let readhost = of("dc_readhost");
    let route = Section::new("[[route]]", "dc_localdelivery").with("domains", draft.unrouted(own.clone()));
    if kind == "satellite" {
        verdicts.push((
            "dc_readhost",
            Verdict::Note(format!(
                "mail for users of this machine is moved to {readhost} by addresses.virtual"
            )),
        ));
        let text: String = own
            .iter()
            .filter(|domain| **domain != readhost)
            .map(|domain| format!("@{domain} @{readhost}\n"))
            .collect();
        draft.add_file("virtual", text, false);
        draft.extend("[addresses]", "virtual", ["text:virtual".to_owned()], "dc_readhost, router hub_user");
    } else {
        draft.push(route.with(mailbox.0, mailbox.1));
    }
    match &*kind {
        "internet" => {}
        "smarthost" | "satellite" => {
            if kind == "smarthost" || !of("dc_smarthost").is_empty() {
                smart(&mut draft, &mut verdicts, files, of("dc_smarthost"));
            }
        }
        "local" | "none" => {
            let reply = "550 5.1.2 This server sends no mail to other machines";
            draft.push(
                Section::new("[[route]]", "dc_eximconfig_configtype")
                    .with("domains", vec!["*".to_owned()])
                    .with("reject", reply),
            );
        }
        other => verdicts
            .push(("dc_eximconfig_configtype", Verdict::Missing(format!("the type {other} is not known")))),
    }
    let is_hidden = matches!(&*kind, "smarthost" | "satellite") && of("dc_hide_mailname") == "true";
    if is_hidden && !readhost.is_empty() {
        verdicts.push((
            "dc_hide_mailname",
            Verdict::Note(
                "addresses.generic changes the reverse-path of mail that leaves; the header stays".to_owned(),
            ),
        ));
    }
    let visible = Some(readhost).filter(|name| is_hidden && !name.is_empty());
    let more = Some(mailname.clone()).filter(|name| !own.contains(name));
    let domains: Vec<String> = own.iter().cloned().chain(more).collect();
    senders(&mut draft, &mut report, files, &domains, visible);
    if mailname != machine.to_lowercase() {
        report.notes.push(format!("/etc/mailname has {mailname}: names without a domain get the hostname, {machine}; addresses.masquerade can hide the host"));
    }
    times(&mut draft);
    macros(files, &mut report);
    for answer in &answers {
        let known = [
            "dc_eximconfig_configtype",
            "dc_other_hostnames",
            "dc_local_interfaces",
            "dc_readhost",
            "dc_relay_domains",
            "dc_minimaldns",
            "dc_relay_nets",
            "dc_smarthost",
            "CFILEMODE",
            "dc_use_split_config",
            "dc_hide_mailname",
            "dc_mailname_in_oh",
            "dc_localdelivery",
        ];
        let verdict =
            verdicts.iter().find(|(name, _)| *name == answer.name).map(|(_, verdict)| verdict.clone());
        let verdict = verdict.unwrap_or(if known.contains(&&*answer.name) {
            Verdict::Mapped
        } else {
            Verdict::Unknown
        });
        let effect = match &*answer.name {
            "dc_other_hostnames" | "dc_relay_domains" | "dc_relay_nets" | "dc_local_interfaces" => {
                Effect::Refused
            }
            "dc_hide_mailname" => Effect::Addresses,
            _ => Effect::Elsewhere,
        };
        report.add_with(
            &format!("update-exim4.conf.conf:{}", answer.line),
            &answer.name,
            verdict,
            Some(effect),
        );
    }
    report.notes.push("routers of your own in conf.d and exim4.conf.template were read; changes of those of the package need routes by hand".to_owned());
    (draft, report)
}

/// Routers of Debian's package.
const STOCK: [&str; 16] = [
    "domain_literal",
    "hubbed_hosts",
    "dnslookup_relay_to_domains",
    "dnslookup",
    "nonlocal",
    "smarthost",
    "real_local",
    "system_aliases",
    "hub_user",
    "hub_user_smarthost",
    "userforward",
    "procmail",
    "maildrop",
    "lowuid_aliases",
    "local_user",
    "mail4root",
];

/// Returns the configuration that update-exim4.conf makes of the files of the package and of the site, without the answers.
fn package(files: &dyn Files, is_split: bool, kind: &str, macros: &str) -> Conf {
    let mut text = format!("CONFDIR = /etc/exim4\nDCconfig_{kind} = 1\n{macros}").into_bytes();
    let mut add = |path: &str| {
        text.extend(files.read(Path::new(path)).unwrap_or_default());
        text.push(b'\n');
    };
    if is_split {
        for section in ["main", "acl", "router", "transport", "retry", "rewrite", "auth"] {
            let dir = format!("/etc/exim4/conf.d/{section}");
            for name in files.list(Path::new(&dir)) {
                if name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-') {
                    add(&format!("{dir}/{name}"));
                }
            }
        }
    } else {
        add("/etc/exim4/exim4.conf.localmacros");
        add("/etc/exim4/exim4.conf.template");
    }
    Conf::parse(&text, files)
}

/// `hubbed_hosts` has hosts for domains, also for local ones.
fn hubbed_hosts(draft: &mut Draft, report: &mut Report, files: &dyn Files) {
    const NAME: &str = "/etc/exim4/hubbed_hosts";
    let Some(file) = files.read(Path::new(NAME)) else { return };
    let (found, others) = lookups::hosts(&String::from_utf8_lossy(&file), true);
    let mut missing: Vec<String> = others;
    for (domains, value) in found {
        let (host, has_more) = lookups::first_host(&value);
        match smarthost(&host, "25") {
            Some(host) => {
                let domains = draft.unrouted(domains);
                if !domains.is_empty() {
                    let route = Section::new("[[route]]", "hubbed_hosts").with("domains", domains);
                    draft.push(route.with("smarthost", host).with("tls", "may"));
                }
                if has_more {
                    missing.push(format!("the other hosts of {value}"));
                }
            }
            None => missing.push(format!("{}: {value}", domains.join(", "))),
        }
    }
    let verdict = if missing.is_empty() {
        Verdict::Mapped
    } else {
        Verdict::Missing(format!("write a [[route]] for: {}", missing.join("; ")))
    };
    report.add_with("hubbed_hosts", "hosts of domains", verdict, Some(Effect::Elsewhere));
}

/// The route to the smarthost, with the login of `passwd.client`.
fn smart(draft: &mut Draft, verdicts: &mut Vec<(&str, Verdict)>, files: &dyn Files, value: &str) {
    let mut hosts = items(value).into_iter();
    // `host::port` loses a colon as a list.
    let whole = if value.contains(';') { hosts.next().unwrap_or_default() } else { value.to_owned() };
    let Some(host) = smarthost(&whole, "25") else {
        verdicts
            .push(("dc_smarthost", Verdict::Missing("no host: write a [[route]] with smarthost".to_owned())));
        return;
    };
    let name = host.rsplit_once(':').map_or(&*host, |(name, _)| name).to_owned();
    let passwords = files.read(Path::new("/etc/exim4/passwd.client")).unwrap_or_default();
    let passwords = String::from_utf8_lossy(&passwords).into_owned();
    let login = passwords.lines().filter(|line| !line.trim_start().starts_with('#')).find_map(|line| {
        let (pattern, rest) = line.split_once(':')?;
        let (user, password) = rest.split_once(':')?;
        let fits = pattern == name
            || pattern == "*"
            || pattern.strip_prefix('*').is_some_and(|end| name.ends_with(end));
        fits.then(|| (user.to_owned(), password.replace("^^", "^")))
    });
    let section = Section::new("[[route]]", "dc_smarthost")
        .with("domains", vec!["*".to_owned()])
        .with("smarthost", host.clone());
    let section = match login {
        Some((user, password)) => {
            let file = format!("{name}.secret");
            draft.add_file(&file, format!("{password}\n"), true);
            let login =
                format!("{{ user = {}, secret = {} }}", quoted(&user), quoted(&format!("file:{file}")));
            let tls = if host.ends_with(":465") { "implicit" } else { "verify" };
            verdicts.push(("dc_smarthost", Verdict::Note("a password is sent over verified TLS only; write tls = \"require\" in the route if the certificate cannot be verified".to_owned())));
            section.with("tls", tls).with("login", crate::draft::Value::Raw(login))
        }
        None => section.with("tls", "may"),
    };
    draft.push(section);
}

/// Senders of the domains of this machine that have another address, by `/etc/email-addresses` or by the visible name.
fn senders(draft: &mut Draft, report: &mut Report, files: &dyn Files, own: &[String], visible: Option<&str>) {
    const NAME: &str = "/etc/email-addresses";
    let file = files.read(Path::new(NAME)).unwrap_or_default();
    let mut text = String::new();
    for (user, address) in lookups::table(&String::from_utf8_lossy(&file)) {
        own.iter().for_each(|domain| text += &format!("{user}@{domain} {address}\n"));
    }
    if !text.is_empty() {
        let what = "the reverse-path changes when mail leaves, and the header stays; Exim changes both when mail comes";
        report.effect(Effect::Addresses, NAME, what);
    }
    for domain in own.iter().filter(|domain| Some(&***domain) != visible) {
        visible.iter().for_each(|name| text += &format!("@{domain} @{name}\n"));
    }
    if !text.is_empty() {
        draft.add_file("generic", text, false);
        let from = "email-addresses, dc_hide_mailname";
        draft.extend("[addresses]", "generic", ["text:generic".to_owned()], from);
    }
}

/// Debian's rule of retries, `F,2h,15m; G,16h,1h,1.5; F,4d,6h`, and Exim's limits.
pub(super) fn times(draft: &mut Draft) {
    draft.set("[queue]", "retry_min", "15m", "the retry rule F,2h,15m");
    draft.set("[queue]", "retry_max", "6h", "the retry rule F,4d,6h");
    draft.set("[queue]", "expire", "4d", "the retry rule F,4d,6h");
    draft.set("[queue]", "delay_warning", "24h", "delay_warning");
}

/// Macros of the site have no questions.
fn macros(files: &dyn Files, report: &mut Report) {
    for name in ["/etc/exim4/exim4.conf.localmacros", "/etc/exim4/conf.d/main/000_localmacros"] {
        let file = files.read(Path::new(name)).unwrap_or_default();
        let text = String::from_utf8_lossy(&file).into_owned();
        for (line, text) in (1..).zip(text.lines()) {
            let Some((key, _)) = text.split_once('=').filter(|_| !text.trim_start().starts_with('#')) else {
                continue;
            };
            let verdict = match key.trim() {
                "MAIN_TLS_ENABLE" => {
                    Verdict::Note("TLS is used if exim.crt and exim.key are there".to_owned())
                }
                _ => Verdict::Missing(
                    "macros of Exim are not read; see docs/configuration.md for a key".to_owned(),
                ),
            };
            report.add(format!("{}:{line}", name.rsplit('/').next().unwrap_or(name)), key.trim(), verdict);
        }
    }
}
