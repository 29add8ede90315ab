//! Listeners: `inet_interfaces`, and the services `smtpd` and `postscreen` of `master.cf`; TLS and logins of clients.

use super::{
    super::{
        main_cf::{MainCf, items},
        master_cf::Service,
        restrictions::{INSIDE, LOGIN, Lists, May, STRANGER},
        table::Table,
    },
    Context,
    context::Door,
    known,
    networks::Networks,
    routes::OF_ROUTES,
};
use crate::{Verdict, draft::Section, report::Effect};
use std::{net::IpAddr, path::Path};

/// Keywords of EHLO that a listener can leave out.
const KEYWORDS: [&str; 12] = [
    "8bitmime",
    "binarymime",
    "chunking",
    "deliverby",
    "dsn",
    "futurerelease",
    "limits",
    "mt-priority",
    "pipelining",
    "requiretls",
    "size",
    "smtputf8",
];

/// Overrides that [`listener`] reads.
const READ: [&str; 11] = [
    "smtpd_milters",
    "smtpd_tls_security_level",
    "smtpd_tls_wrappermode",
    "smtpd_sasl_auth_enable",
    "smtpd_sasl_type",
    "smtpd_sasl_path",
    "smtpd_sender_login_maps",
    "smtpd_discard_ehlo_keywords",
    "smtpd_authorized_xclient_hosts",
    "smtpd_authorized_xforward_hosts",
    "smtpd_enforce_tls",
];

pub(super) fn write(context: &mut Context<'_>) {
    let services = context.master.services.clone();
    let mut is_any = false;
    let mut has_login = false;
    for service in services.iter().filter(|service| service.kind == "inet") {
        // Postscreen hands clients to the service of the type `pass`.
        let behind = services.iter().find(|one| one.kind == "pass" && one.program() == "smtpd");
        let smtpd = match service.program() {
            "smtpd" => service.clone(),
            "postscreen" => {
                context.override_verdict(
                    service.line,
                    "postscreen",
                    Verdict::Note("for postscreen's tests before the greeting, see greeting_delay in [[listen]], and [checks]".to_owned()),
                );
                Service {
                    overrides: behind.map_or(Vec::new(), |one| one.overrides.clone()),
                    ..service.clone()
                }
            }
            program => {
                let text = format!("Postrider has no service {program}: nothing listens there");
                context.service_effect(service.line, &service.name, Effect::Refused, text);
                continue;
            }
        };
        is_any |= listener(context, &smtpd, &mut has_login);
    }
    for service in services.iter().filter(|service| service.kind != "inet") {
        for (name, value) in &service.overrides {
            let text = format!(
                "{name}={value} is not applied to {} alone; a [[route]] can have its own settings",
                service.name
            );
            let is_client = matches!(service.program(), "smtp" | "lmtp");
            match &**name {
                known if is_client && OF_ROUTES.contains(&known) => {
                    context.override_verdict(service.line, format!("-o {name}"), Verdict::Mapped);
                }
                "syslog_name" => {
                    let note = Verdict::Note("the log names the route of each delivery instead".to_owned());
                    context.override_verdict(service.line, "-o syslog_name", note);
                }
                _ => override_without_key(context, service, name, value, text),
            }
        }
    }
    if services.is_empty() {
        let service = Service {
            name: "smtp".into(),
            kind: "inet".into(),
            command: vec!["smtpd".into()],
            overrides: Vec::new(),
            line: 0,
            is_chrooted: false,
        };
        is_any |= listener(context, &service, &mut has_login);
    }
    if !is_any {
        context.remark("Postfix does not listen for SMTP: Postrider listens on 127.0.0.1:25, for programs on this machine");
        context.draft.push(Section::new("[[listen]]", "").with("address", "127.0.0.1:25"));
    }
    context.mapped("inet_interfaces");
    context.mapped("inet_protocols");
    certificates(context);
    if has_login || context.main.value("smtpd_sasl_auth_enable") == "yes" {
        logins(context);
    }
    if context.draft.drop_logins() {
        let text = "submission listeners are left out until auth.users is set";
        context.effect(Effect::Refused, "smtpd_sasl_auth_enable", text);
    }
}

/// Writes one listener. Returns whether it did.
#[allow(clippy::too_many_lines)] // one step after the other, each for a key
fn listener(context: &mut Context<'_>, service: &Service, has_login: &mut bool) -> bool {
    let main = context.main.with_overrides(&service.overrides);
    let (host, port) = match service.name.rsplit_once(':') {
        Some((host, port)) => (Some(host.trim_matches(['[', ']']).to_owned()), port.to_owned()),
        None => (None, service.name.clone()),
    };
    // Without a master.cf, the usual services are assumed.
    let place = match service.line {
        0 => format!("{}, as in the usual master.cf", service.name),
        line => format!("{}, master.cf:{line}", service.name),
    };
    let Some(port) = port_number(&port) else {
        let text = format!("the port name {port} is unknown: write its number in [[listen]]");
        context.service_effect(service.line, &service.name, Effect::Refused, text);
        return false;
    };
    let is_behind_filter =
        service.overrides.iter().any(|(name, value)| name == "content_filter" && value.is_empty());
    if is_behind_filter {
        let text =
            "left out: this listener accepts mail from the content filter, which is left out, too".to_owned();
        context.service_effect(service.line, &service.name, Effect::Refused, text);
        return false;
    }
    let is_wrapped = main.value("smtpd_tls_wrappermode") == "yes";
    let lists = Lists::read(&main);
    let may = |client, is_local| lists.may(context, client, is_local);
    let (stranger, inside, login) = (may(STRANGER, true), may(INSIDE, false), may(LOGIN, false));
    let auth = main.value("smtpd_sasl_auth_enable") == "yes";
    *has_login |= auth;
    let is_login_only = stranger == May::No && may(INSIDE, true) == May::No;
    let kind = match (is_wrapped, auth && (port == 587 || is_login_only), !auth && stranger == May::No) {
        (true, _, _) => "submissions",
        (false, true, _) => "submission",
        (false, false, true) if inside == May::Yes => "relay",
        _ => "mx",
    };
    if kind.starts_with("submission") && !is_login_only {
        let text = format!(
            "{}: every client must log in, even those that your restrictions accept without a login",
            service.name
        );
        context.effect(Effect::Refused, "smtpd_recipient_restrictions", text);
    }
    let level = match &*main.value("smtpd_tls_security_level") {
        "" if main.value("smtpd_enforce_tls") == "yes" => "encrypt".to_owned(),
        "" if main.value("smtpd_use_tls") == "yes" => "may".to_owned(),
        level => level.to_owned(),
    };
    let tls = match (is_wrapped, &*level) {
        (true, _) => None,
        (false, "" | "none") if kind == "submission" => {
            context.override_verdict(
                service.line,
                "smtpd_tls_security_level",
                Verdict::Note("logins need TLS, so STARTTLS is offered".to_owned()),
            );
            None
        }
        (false, "" | "none") => Some("off"),
        (false, "may") => Some("starttls"),
        // It takes no login without TLS anyway.
        (false, _) if kind == "submission" => Some("starttls"),
        // Postfix reads `verify` and `secure` as `encrypt` here.
        _ => Some("required"),
    };
    context.mapped("smtpd_reject_unlisted_recipient");
    if main.value("smtpd_reject_unlisted_recipient") == "no" {
        let text = "mail for users that do not exist is refused at once; Postfix accepts and returns it";
        let name = "smtpd_reject_unlisted_recipient";
        if service.overrides.iter().any(|(other, _)| other == name) {
            context.service_effect(service.line, &format!("-o {name}"), Effect::Refused, text.to_owned());
        } else {
            context.effect(Effect::Refused, name, text);
        }
    }
    let mut section = Section::new("[[listen]]", place);
    let addresses = addresses(context, host.as_deref());
    if addresses.is_empty() {
        let text = "no address to listen on: write it in [[listen]]".to_owned();
        context.service_effect(service.line, &service.name, Effect::Refused, text);
        return false;
    }
    if kind != "mx" {
        section = section.with("kind", kind);
    }
    section = section.with_some("tls", tls);
    if kind == "mx" && context.offers_logins() && (!auth || login != May::Yes) {
        section = section.with("auth", false);
        if auth {
            context.effect(
                Effect::Refused,
                "smtpd_relay_restrictions",
                "your restrictions do not let clients that log in relay: clients cannot log in on listeners of kind mx",
            );
        }
    }
    section = options(context, section, &main);
    context.doors.push(Door { kind, lists, line: service.line });
    for address in addresses {
        let address = match address {
            IpAddr::V4(address) => format!("{address}:{port}"),
            IpAddr::V6(address) => format!("[{address}]:{port}"),
        };
        context.draft.push(section.clone().with("address", address));
    }
    for (name, value) in &service.overrides {
        let verdict = match &**name {
            known if READ.contains(&known) || known.ends_with("_restrictions") => Verdict::Mapped,
            "syslog_name" => Verdict::Note("the log names the address of the listener instead".to_owned()),
            "milter_macro_daemon_name" | "smtpd_tls_auth_only" => Verdict::Mapped,
            "smtpd_reject_unlisted_recipient" if main.value(name) == "no" => continue,
            "smtpd_reject_unlisted_recipient" => Verdict::Mapped,
            _ => {
                let text = format!(
                    "{name}={value}: a listener has no such key; see [[listen]] in docs/configuration.md, and `listener` in [[rule]]"
                );
                override_without_key(context, service, name, value, text);
                continue;
            }
        };
        context.override_verdict(service.line, format!("-o {name}"), verdict);
    }
    true
}

/// Judges an override without a key: what matters in main.cf matters there.
fn override_without_key(context: &mut Context<'_>, service: &Service, name: &str, value: &str, text: String) {
    let shown = format!("-o {name}");
    match known::effect(name) {
        _ if known::is_off(&context.main.expand(value)) => {
            context.override_verdict(service.line, shown, Verdict::Mapped);
        }
        Some((effect, text)) => context.service_effect(service.line, &shown, effect, text.to_owned()),
        None => context.override_verdict(service.line, shown, Verdict::Missing(text)),
    }
}

fn options(context: &mut Context<'_>, mut section: Section, main: &MainCf) -> Section {
    let keywords: Vec<String> = items(&main.value("smtpd_discard_ehlo_keywords").to_lowercase());
    let known: Vec<String> = keywords.iter().filter(|word| KEYWORDS.contains(&&***word)).cloned().collect();
    context.mapped("smtpd_discard_ehlo_keywords");
    for word in keywords.iter().filter(|word| !KEYWORDS.contains(&&***word) && *word != "silent-discard") {
        context.missing("smtpd_discard_ehlo_keywords", format!("the keyword {word} cannot be left out"));
    }
    if !known.is_empty() {
        section = section.with("discard_ehlo_keywords", known);
    }
    for (name, key) in
        [("smtpd_authorized_xclient_hosts", "xclient"), ("smtpd_authorized_xforward_hosts", "xforward")]
    {
        let networks = Networks::read(&main.value(name), context.files);
        context.mapped(name);
        if let Some(problem) = networks.problem() {
            context.missing(name, problem);
        }
        let networks = networks.texts();
        if !networks.is_empty() {
            section = section.with(key, networks);
        }
    }
    let asks = main.value("smtpd_tls_ask_ccert") == "yes" || main.value("smtpd_tls_req_ccert") == "yes";
    if asks {
        let is_required = main.value("smtpd_tls_req_ccert") == "yes";
        section = section.with("client_certificates", if is_required { "require" } else { "ask" });
    }
    context.mapped("smtpd_tls_ask_ccert");
    context.mapped("smtpd_tls_req_ccert");
    section
}

fn port_number(port: &str) -> Option<u16> {
    match port {
        "smtp" => Some(25),
        "submission" => Some(587),
        "smtps" | "submissions" => Some(465),
        _ => port.parse().ok(),
    }
}

/// Returns where a service listens, by its host and `inet_interfaces`.
fn addresses(context: &mut Context<'_>, host: Option<&str>) -> Vec<IpAddr> {
    let (v4, v6) = match &*context.main.value("inet_protocols") {
        "ipv4" => (true, false),
        "ipv6" => (false, true),
        protocols => (
            protocols.contains("all") || protocols.contains("ipv4"),
            protocols.contains("all") || protocols.contains("ipv6"),
        ),
    };
    let given = host.map_or_else(|| context.main.value("inet_interfaces"), str::to_owned);
    let mut addresses: Vec<IpAddr> = Vec::new();
    for item in items(&given) {
        let both: &[IpAddr] = match &*item {
            "all" => {
                &[IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED)]
            }
            "loopback-only" | "localhost" => {
                &[IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), IpAddr::V6(std::net::Ipv6Addr::LOCALHOST)]
            }
            other => match other.trim_matches(['[', ']']).parse::<IpAddr>() {
                Ok(address) => {
                    if !addresses.contains(&address) {
                        addresses.push(address);
                    }
                    continue;
                }
                Err(_) => {
                    let text = format!("{other} is a host name: write its address in [[listen]]");
                    context.effect(Effect::Refused, "inet_interfaces", text);
                    continue;
                }
            },
        };
        let wanted = both.iter().filter(|address| if address.is_ipv4() { v4 } else { v6 });
        for address in wanted {
            if !addresses.contains(address) {
                addresses.push(*address);
            }
        }
    }
    addresses
}

/// The setting, the certificate and the key of listeners (`smtpd`) or of the client for next hops (`smtp`).
fn certificate_pair(context: &mut Context<'_>, side: &str) -> Option<(String, String, String)> {
    let [chains, cert, key] =
        ["chain_files", "cert_file", "key_file"].map(|name| format!("{side}_tls_{name}"));
    if let Some(files) = context.given(&chains).filter(|files| !files.trim().is_empty()) {
        let files = items(&files);
        if files.len() > 2 {
            context.note(
                &chains,
                "only the first certificate is used; write a [[certificate]] for each of the others",
            );
        }
        let first = files.first().cloned().unwrap_or_default();
        return Some((chains, files.get(1).cloned().unwrap_or_else(|| first.clone()), first));
    }
    let (certificate, key) = (context.given(&cert), context.given(&key));
    let certificate = certificate.filter(|file| !file.is_empty() && file != "none")?;
    Some((cert, certificate.clone(), key.filter(|file| !file.is_empty()).unwrap_or(certificate)))
}

fn certificates(context: &mut Context<'_>) {
    for (side, [certificate_key, key_key]) in
        [("smtpd", ["certificate", "key"]), ("smtp", ["next_hop_certificate", "next_hop_key"])]
    {
        let Some((name, certificate, key)) = certificate_pair(context, side) else { continue };
        let absent = [&certificate, &key].into_iter().find(|file| !context.files.exists(Path::new(file)));
        match absent {
            None => {
                let from = context.place(&name);
                context.draft.set("[tls]", certificate_key, certificate, &from);
                context.draft.set("[tls]", key_key, key, "");
            }
            Some(file) if side == "smtpd" => {
                let text = format!(
                    "cannot read {file}: a self-signed certificate is generated at each start, which clients that verify it reject; set tls.certificate and tls.key"
                );
                context.effect(Effect::Refused, &name, text);
            }
            Some(file) => {
                context
                    .missing(&name, format!("cannot read {file}: no certificate is presented to next hops"));
            }
        }
    }
    server_names(context);
    for (name, key) in [("smtpd_tls_CAfile", "client_ca_file"), ("smtp_tls_CAfile", "ca_file")] {
        let Some(file) = context.given(name).filter(|file| !file.is_empty()) else { continue };
        if context.files.exists(Path::new(&file)) {
            let from = context.place(name);
            context.draft.set("[tls]", key, file, &from);
        } else {
            context.missing(name, format!("there is no file {file}"));
        }
    }
}

/// Certificates by the name that the client asks for: the key comes before its chain.
fn server_names(context: &mut Context<'_>) {
    let parameter = "tls_server_sni_maps";
    context.mapped(parameter);
    for (item, entries) in context.tables(parameter) {
        for entry in entries.unwrap_or_else(|why| {
            context.effect(
                Effect::Refused,
                parameter,
                format!(
                    "{item}: {why}; write a [[certificate]] for each name; until then, clients get the one in [tls]"
                ),
            );
            Vec::new()
        }) {
            let files = items(&entry.value);
            let (key, chain) =
                (files.first().cloned().unwrap_or_default(), files.last().cloned().unwrap_or_default());
            if [&key, &chain].into_iter().any(|file| !context.files.exists(Path::new(file)))
                || files.len() > 2
            {
                let text = format!(
                    "{}: write a [[certificate]] with one chain and its key, both readable; until then, clients get the one in [tls]",
                    entry.key
                );
                context.effect(Effect::Refused, parameter, text);
                continue;
            }
            let section = Section::new("[[certificate]]", format!("{parameter}: {}", entry.key));
            context.draft.push(section.with("chain", chain).with("key", key));
        }
    }
}

fn logins(context: &mut Context<'_>) {
    context.mapped("smtpd_sasl_auth_enable");
    let services: Vec<MainCf> = {
        let with_login =
            |service: &&Service| service.overrides.iter().any(|(name, _)| name.starts_with("smtpd_sasl"));
        context
            .master
            .services
            .iter()
            .filter(with_login)
            .map(|service| context.main.with_overrides(&service.overrides))
            .collect()
    };
    let main = services.into_iter().next().unwrap_or_else(|| context.main.clone());
    context.mapped("smtpd_sasl_type");
    context.mapped("smtpd_sasl_path");
    if main.value("smtpd_sasl_type") == "dovecot" {
        let path = context.below_queue(&main.value("smtpd_sasl_path"));
        if path.contains("inet:") {
            context.missing(
                "smtpd_sasl_path",
                "Postrider asks Dovecot through a Unix socket: set auth.users = \"dovecot:/run/dovecot/auth-client\"",
            );
        } else {
            context.draft.set("[auth]", "users", format!("dovecot:{path}"), "smtpd_sasl_path");
        }
    } else {
        context.missing("smtpd_sasl_type", "Cyrus SASL is not supported; create a password file with `postrider auth hash` and set auth.users = \"passwd:FILE\", or use Dovecot");
    }
    if context.main.value("smtpd_tls_auth_only") != "yes"
        && context.main.explicit("smtpd_tls_auth_only").is_some()
    {
        context.note(
            "smtpd_tls_auth_only",
            "logins without TLS are refused; auth.allow_clear_text permits them",
        );
    }
    context.mapped("smtpd_tls_auth_only");
    sender_logins(context, &main.value("smtpd_sender_login_maps"));
}

/// `smtpd_sender_login_maps` leads from addresses to logins, `auth.senders` the other way round.
fn sender_logins(context: &mut Context<'_>, value: &str) {
    context.mapped("smtpd_sender_login_maps");
    let mut senders: std::collections::BTreeMap<String, Vec<String>> = std::collections::BTreeMap::new();
    for item in items(value) {
        let entries = Table::parse(&item).map(|table| table.entries(context.files));
        match entries {
            Some(Ok(entries)) => {
                for entry in entries {
                    for login in items(&entry.value) {
                        senders.entry(login).or_default().push(entry.key.clone());
                    }
                }
            }
            Some(Err(why)) => {
                let text = format!(
                    "{item}: {why}; until auth.senders maps logins to addresses, users who log in may use only their own addresses"
                );
                context.effect(Effect::Refused, "smtpd_sender_login_maps", text);
            }
            None => context.missing("smtpd_sender_login_maps", format!("\"{item}\" is not a table")),
        }
    }
    let checks = |lists: &Lists| lists.checks_senders();
    let (checking, free): (Vec<_>, Vec<_>) =
        context.doors.iter().map(|door| checks(&door.lists)).partition(|is_checked| *is_checked);
    if checking.is_empty() {
        // Whoever has logged in may use every sender.
        context.draft.add_file("senders", "/^/ *\n".to_owned(), false);
        context.draft.set("[auth]", "senders", "regex:senders", "no list has reject_sender_login_mismatch");
    } else if !free.is_empty()
        && context.doors.iter().any(|door| door.kind.starts_with("submission") && !checks(&door.lists))
    {
        context.effect(
            Effect::Refused,
            "smtpd_sender_login_maps",
            "sender addresses are checked against the login on all submission listeners",
        );
    }
    if !checking.is_empty() && !senders.is_empty() {
        let text: String =
            senders.iter().map(|(login, addresses)| format!("{login} {}\n", addresses.join(" "))).collect();
        context.draft.add_file(
            "senders",
            format!("# Logins and the sender addresses that they may use, from {value}\n{text}"),
            false,
        );
        context.draft.set("[auth]", "senders", "text:senders", "smtpd_sender_login_maps");
    }
}
