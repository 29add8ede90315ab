//! Routes: `transport_maps`, domain classes, smarthosts, TLS of next hops.

use super::{
    super::{main_cf::items, table::TableEntry},
    Context,
    domains::{self, Classes},
    local::{local_transports, mailbox, virtual_mailboxes},
    transports,
};
use crate::places::is_domain;
use crate::{
    draft::{Section, quoted},
    report::Effect,
};

/// Where a transport sends mail, in the keys of a route.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Hop {
    /// The host with its port; `next` is the text of Postfix, by which policies of TLS are looked up.
    Smarthost {
        host: String,
        is_bare: bool,
        next: String,
    },
    Mx,
    Lmtp(String),
    Local,
    Reject(String),
    Discard,
    Pipe(String),
    /// The mail is held: an administrator has to release it.
    Hold,
}

/// More routes than this are hard to read; a table of such a size has another purpose.
pub(super) const ROUTES_MAX: usize = 2000;

pub(super) fn write(context: &mut Context<'_>) {
    let Classes { own, aliases, mailboxes, relay, .. } = domains::classes(context);
    ["local_transport", "relay_transport", "virtual_transport"].iter().for_each(|name| context.mapped(name));
    let excluded: Vec<String> =
        relay.excluded.iter().flat_map(|name| [name.clone(), format!("*.{name}")]).collect();
    let (own, mailboxes, relay) = (own.patterns(), mailboxes.patterns(), relay.patterns());
    transports::write(context, &[own.clone(), mailboxes.clone(), relay.clone()]);
    local_transports(context, &own);
    if !mailboxes.is_empty() {
        virtual_mailboxes(context, &mailboxes);
    }
    let mut own = own;
    let taken =
        [&own, &mailboxes, &relay, &aliases.patterns()].iter().any(|all| all.contains(&context.hostname));
    if !taken && !domains::sends_all_away(context) {
        own.push(context.hostname.clone());
    }
    if !own.is_empty() {
        // Of these domains, the aliases do not have the postmaster, whom Postrider accepts: the smarthost would send him back.
        own.extend(aliases.patterns());
    }
    class(context, &own, "local_transport", "mydestination", "");
    let others = sender_dependent(context, &relay, &["*".to_owned()]);
    let relayhost = context.main.value("relayhost");
    class(context, &excluded, "default_transport", "relay_domains", &relayhost);
    class(context, &relay, "relay_transport", "relay_domains", &relayhost);
    others.into_iter().for_each(|section| context.draft.push(section));
    tls_policies(context);
    default_transport(context);
}

/// Reads `transport:nexthop`.
pub(super) fn hop(context: &Context<'_>, spec: &str) -> Result<Hop, String> {
    let (transport, next) = spec.split_once(':').unwrap_or((spec, ""));
    let (transport, next) = (transport.trim(), next.trim());
    let service = context.master.services.iter().find(|one| one.kind == "unix" && one.name == transport);
    // error(8) is also behind the name `retry`, and then it defers.
    let program = service.filter(|_| transport != "retry").map_or(transport, |service| service.program());
    match program {
        "" | "smtp" | "relay" if next.is_empty() => Ok(Hop::Mx),
        "" | "smtp" | "relay" => smarthost(next),
        "lmtp" => lmtp(context, next),
        "local" | "virtual" => Ok(Hop::Local),
        "retry" => Ok(Hop::Hold),
        "error" => Ok(Hop::Reject(reply(next))),
        "discard" => Ok(Hop::Discard),
        "pipe" => {
            let service = service.ok_or("master.cf has no such service")?;
            pipe(&service.command, &context.files.users())
        }
        other => {
            Err(format!("the transport {other} has no counterpart: pass mail to it by SMTP, LMTP or a pipe"))
        }
    }
}

/// Reads `[host]:port`, `host:port` or `host`.
fn smarthost(next: &str) -> Result<Hop, String> {
    let next = next.strip_prefix("inet:").unwrap_or(next);
    // Several hosts are tried in turn.
    let first = next.split([',', ' ']).find(|one| !one.is_empty()).unwrap_or_default();
    let (host, port, is_bare) = match first.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, rest)) => (host.to_owned(), rest.strip_prefix(':').unwrap_or("25").to_owned(), false),
        None => match first.rsplit_once(':') {
            Some((host, port)) => (host.to_owned(), port.to_owned(), true),
            None => (first.to_owned(), "25".to_owned(), true),
        },
    };
    let port = match &*port {
        "smtp" => "25",
        "submission" => "587",
        "smtps" | "submissions" => "465",
        port => port,
    };
    let host = host.strip_prefix("ipv6:").unwrap_or(&host).to_owned();
    let is_address = host.parse::<std::net::IpAddr>().is_ok();
    if !(is_address || is_domain(&host)) || port.parse::<u16>().is_err() {
        return Err(format!("{next} is not a host"));
    }
    let host = if host.parse::<std::net::Ipv6Addr>().is_ok() { format!("[{host}]") } else { host };
    Ok(Hop::Smarthost {
        host: format!("{host}:{port}"),
        is_bare: is_bare && !is_address,
        next: first.to_owned(),
    })
}

fn lmtp(context: &Context<'_>, next: &str) -> Result<Hop, String> {
    if let Some(path) = next.strip_prefix("unix:") {
        return Ok(Hop::Lmtp(format!("unix:{}", context.below_queue(path))));
    }
    match smarthost(if next.is_empty() { "[127.0.0.1]:24" } else { next })? {
        Hop::Smarthost { host, .. } => {
            let has_port = next.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
            Ok(Hop::Lmtp(if has_port { host } else { host.replace(":25", ":24") }))
        }
        other => Ok(other),
    }
}

/// Returns a reply that rejects permanently, as error(8) does whatever the status says: its first number becomes 5.
fn reply(text: &str) -> String {
    let (status, rest) = text.split_once(' ').unwrap_or((text, ""));
    let is_status = status.starts_with(['4', '5']) && status.matches('.').count() == 2;
    let (status, rest) =
        if is_status { (format!("5{}", &status[1..]), rest) } else { ("5.1.1".to_owned(), text) };
    let rest = if rest.trim().is_empty() { "Address rejected" } else { rest.trim() };
    let rest: String =
        rest.chars().filter(|c| c.is_ascii() && !c.is_control() && !"{}".contains(*c)).collect();
    format!("550 {status} {rest}")
}

/// Returns the reply of the transport `retry`: clients try again, and mail of this machine is held.
pub(super) fn later(transport: &str) -> Option<String> {
    let text = transport.strip_prefix("retry:")?;
    Some(reply(text).replacen("550 5", "450 4", 1))
}

/// Reads the arguments of pipe(8).
fn pipe(command: &[String], users: &[String]) -> Result<Hop, String> {
    let user = command.iter().find_map(|word| word.strip_prefix("user="));
    let user = user.map(|user| user.split(':').next().unwrap_or(user));
    let is_number = |user: &&str| user.bytes().all(|b| b.is_ascii_digit());
    if let Some(user) = user.filter(|user| !is_number(user) && !users.iter().any(|one| one == user)) {
        return Err(format!("its program runs as {user}, who is not a user of this machine"));
    }
    let at = command.iter().position(|word| word.starts_with("argv=")).ok_or("the service has no argv")?;
    let first = command[at].strip_prefix("argv=").unwrap_or_default().to_owned();
    let mut argv = Vec::new();
    for word in std::iter::once(&first).chain(&command[at + 1..]).filter(|word| !word.is_empty()) {
        let word = match &**word {
            "${recipient}" | "$recipient" | "${original_recipient}" => "{recipient}",
            "${sender}" | "$sender" => "{sender}",
            "${user}" | "$user" => "{user}",
            "${mailbox}" => "{local}",
            "${extension}" | "$extension" => "{detail}",
            "${domain}" | "$domain" => "{domain}",
            "${queue_id}" => "{id}",
            other if other.contains('$') => {
                return Err(format!(
                    "the program's argument {other} is not supported: see docs/addresses.md for those of a pipe"
                ));
            }
            other => other,
        };
        argv.push(quoted(word));
    }
    let user = user.map_or(String::new(), |user| format!(", user = {}", quoted(user)));
    Ok(Hop::Pipe(format!("{{ argv = [{}]{user} }}", argv.join(", "))))
}

/// Returns the policy for TLS of a level of Postfix.
fn tls_level(level: &str) -> Result<&'static str, String> {
    match level {
        "" | "none" => Ok("off"),
        "may" => Ok("may"),
        "encrypt" => Ok("require"),
        "verify" | "secure" => Ok("verify"),
        "dane" => Err("DANE is not supported yet; TLS is used if it is offered".to_owned()),
        "dane-only" => Err("DANE is not supported yet; write tls = \"require\" or \"verify\"".to_owned()),
        other => Err(format!("{other}: write tls = \"require\" or \"verify\"")),
    }
}

/// Returns `smtp_tls_security_level`, with the older parameters.
fn level(context: &mut Context<'_>) -> String {
    for name in ["smtp_tls_security_level", "smtp_use_tls", "smtp_enforce_tls", "smtp_tls_wrappermode"] {
        context.mapped(name);
    }
    let level = context.main.value("smtp_tls_security_level");
    let of_old = |name: &str| context.main.value(name) == "yes";
    match &*level {
        "" if of_old("smtp_enforce_tls") => "verify".to_owned(),
        "" if of_old("smtp_use_tls") => "may".to_owned(),
        _ => level,
    }
}

/// Adds the keys of a next hop to a route, with those of the service that the transport names.
pub(super) fn add_hop(
    context: &mut Context<'_>,
    section: Section,
    hop: (&Hop, &str),
    parameter: &str,
) -> Option<Section> {
    add_hop_for(context, section, hop, parameter, None)
}

/// Overrides of services that a route has keys for.
pub(super) const OF_ROUTES: [&str; 5] = [
    "smtp_bind_address",
    "smtp_helo_name",
    "smtp_tls_security_level",
    "smtp_fallback_relay",
    "fallback_relay",
];

/// Returns an override of the service that a transport names.
fn of_service(context: &Context<'_>, transport: &str, name: &str) -> Option<String> {
    service_value(context, transport, name).filter(|value| !value.is_empty())
}

/// As the function above, also if the value is empty.
fn service_value(context: &Context<'_>, transport: &str, name: &str) -> Option<String> {
    let service = Some(transport.split(':').next().unwrap_or_default()).filter(|name| !name.is_empty());
    let service = service.unwrap_or("smtp");
    let found = context.master.services.iter().find(|one| one.kind == "unix" && one.name == service)?;
    let (_, value) = found.overrides.iter().find(|(other, _)| other == name)?;
    Some(context.main.expand(value))
}

/// Adds the TLS that hosts without a policy of their own get.
pub(super) fn with_tls(context: &mut Context<'_>, section: Section) -> Section {
    section.with("tls", tls_level(&level(context)).unwrap_or("may"))
}

/// As the function above, for the mail of one sender.
fn add_hop_for(
    context: &mut Context<'_>,
    mut section: Section,
    (hop, transport): (&Hop, &str),
    parameter: &str,
    sender: Option<&str>,
) -> Option<Section> {
    let level = match hop {
        Hop::Smarthost { next, .. } => policy(context, next),
        _ => None,
    };
    let level = level.or_else(|| of_service(context, transport, "smtp_tls_security_level"));
    let level = level.unwrap_or_else(|| self::level(context));
    if matches!(hop, Hop::Smarthost { .. } | Hop::Mx) {
        for (name, key) in [("smtp_bind_address", "source_address"), ("smtp_helo_name", "ehlo_name")] {
            section = section.with_some(key, of_service(context, transport, name));
        }
    }
    let fallback = fallback(context, transport);
    if !fallback.is_empty() && matches!(hop, Hop::Smarthost { .. } | Hop::Mx) {
        if *hop == Hop::Mx {
            let text = "mail for domains that do not exist is returned instead of going there";
            context.effect(Effect::Elsewhere, "smtp_fallback_relay", text);
        }
        section = section.with("fallback", fallback);
    }
    let tls = match tls_level(&level) {
        Ok(tls) => tls,
        Err(why) => {
            context.missing("smtp_tls_security_level", why);
            if level == "dane-only" { "require" } else { "may" }
        }
    };
    Some(match hop {
        Hop::Smarthost { host, is_bare, .. } => {
            if *is_bare {
                context.effect(
                    Effect::Elsewhere,
                    parameter,
                    format!("no MX records are looked up for {host}: mail is delivered to the host itself"),
                );
            }
            let login = login(context, host, sender);
            let is_implicit = host.ends_with(":465") || context.main.value("smtp_tls_wrappermode") == "yes";
            let section = section.with("smarthost", host.clone());
            match (login, is_implicit, tls) {
                (None, true, _) => section.with("tls", "implicit"),
                (None, false, tls) => section.with("tls", tls),
                (Some(login), true, _) => section.with("tls", "implicit").with("login", login),
                (Some(login), false, "require") => section.with("tls", "require").with("login", login),
                (Some(login), false, tls) => {
                    if tls != "verify" {
                        context.note("smtp_sasl_password_maps", "the password is sent only if the certificate of the server can be verified; if it cannot, write tls = \"require\" in the [[route]]");
                    }
                    section.with("tls", "verify").with("login", login)
                }
            }
        }
        Hop::Mx => section.with("mx", true).with("tls", tls),
        Hop::Lmtp(server) => section.with("lmtp", server.clone()),
        Hop::Reject(reply) => section.with("reject", reply.clone()),
        Hop::Discard => section.with("discard", true),
        Hop::Hold => {
            let text = "a message with such a recipient is held for all its recipients until you release it";
            context.effect(Effect::Elsewhere, parameter, text);
            section.with("hold", true)
        }
        Hop::Pipe(pipe) => section.with("pipe", crate::draft::Value::Raw(pipe.clone())),
        Hop::Local => {
            if parameter != "local_transport" {
                let text = "in domains that it delivers locally, mail for every name is accepted";
                context.effect(Effect::Taken, parameter, text);
            }
            return mailbox(context, section);
        }
    })
}

/// Returns the login for a smarthost from `smtp_sasl_password_maps`.
fn login(context: &mut Context<'_>, host: &str, sender: Option<&str>) -> Option<crate::draft::Value> {
    context.mapped("smtp_sasl_auth_enable");
    if context.main.value("smtp_sasl_auth_enable") != "yes" {
        return None;
    }
    context.mapped("smtp_sasl_password_maps");
    let (name, port) = host.rsplit_once(':')?;
    let plain = name.trim_matches(['[', ']']).to_owned();
    let services: &[&str] = match port {
        "25" => &["", ":25", ":smtp"],
        "587" => &[":587", ":submission", ""],
        "465" => &[":465", ":smtps", ":submissions", ""],
        _ => &[""],
    };
    let port_key = format!(":{port}");
    let suffixes = services.iter().copied().chain([&*port_key]);
    let keys: Vec<String> =
        suffixes.flat_map(|suffix| [format!("[{plain}]{suffix}"), format!("{plain}{suffix}")]).collect();
    let keys: Vec<String> = sender.map(str::to_owned).into_iter().chain(keys).collect();
    for (item, entries) in context.tables("smtp_sasl_password_maps") {
        let entries = match entries {
            Ok(entries) => entries,
            Err(why) => {
                let text = format!(
                    "{item}: {why}; mail is sent without a login until you write `login` in the [[route]]"
                );
                context.effect(Effect::Refused, "smtp_sasl_password_maps", text);
                continue;
            }
        };
        let found =
            keys.iter().find_map(|key| entries.iter().find(|entry| entry.key.eq_ignore_ascii_case(key)));
        if let Some((user, password)) = found.and_then(|entry| entry.value.split_once(':')) {
            let begin = plain.replace(['[', ']', ':'], "-");
            let names = std::iter::once(format!("{begin}.secret"))
                .chain((2..).map(|number| format!("{begin}-{number}.secret")));
            let content = format!("{password}\n");
            let is_free = |name: &String| {
                context.draft.files.iter().all(|file| file.name != *name || file.content == content)
            };
            let file = names.into_iter().find(is_free)?;
            context.draft.add_file(&file, content, true);
            let login =
                format!("{{ user = {}, secret = {} }}", quoted(user), quoted(&format!("file:{file}")));
            return Some(crate::draft::Value::Raw(login));
        }
    }
    None
}

/// Writes the route of a class of domains; a relay host is for off-host classes only.
pub(super) fn class(
    context: &mut Context<'_>,
    names: &[String],
    transport: &str,
    parameter: &str,
    relayhost: &str,
) {
    context.mapped(transport);
    if names.is_empty() {
        return;
    }
    match off_host(context, &context.main.value(transport), relayhost) {
        Ok(hop) => {
            let section = Section::new("[[route]]", format!("{parameter}, {transport}"))
                .with("domains", names.to_vec());
            let value = context.main.value(transport);
            if let Some(section) = add_hop(context, section, (&hop, &value), transport) {
                context.draft.push(section);
            }
        }
        Err(why) => waits(context, transport, names.to_vec(), &why),
    }
}

/// A transport that Postrider does not have: the mail is held.
pub(super) fn waits(context: &mut Context<'_>, parameter: &str, domains: Vec<String>, why: &str) {
    let text = format!(
        "{}: {why}; until then the mail is held (`hold = true` in the [[route]])",
        domains.join(", ")
    );
    context.effect(Effect::Elsewhere, parameter, text);
    context.draft.push(Section::new("[[route]]", parameter).with("domains", domains).with("hold", true));
}

/// Returns the next hop of a transport that may leave it to a relay host.
pub(super) fn off_host(context: &Context<'_>, transport: &str, relayhost: &str) -> Result<Hop, String> {
    match hop(context, transport)? {
        Hop::Mx if !relayhost.is_empty() => smarthost(relayhost),
        hop => Ok(hop),
    }
}

/// Returns the level of TLS for a next hop, as Postfix names it.
fn policy(context: &mut Context<'_>, next: &str) -> Option<String> {
    let entries = entries_of(context, "smtp_tls_policy_maps");
    let found = entries.iter().find(|entry| entry.key.eq_ignore_ascii_case(next))?;
    Some(found.value.split_whitespace().next().unwrap_or_default().to_owned())
}

/// Returns the entries of all tables that a parameter names.
pub(super) fn entries_of(context: &mut Context<'_>, parameter: &str) -> Vec<TableEntry> {
    let mut entries = Vec::new();
    context.mapped(parameter);
    for (item, found) in context.tables(parameter) {
        match found {
            Ok(found) => entries.extend(found.into_iter().take(ROUTES_MAX)),
            Err(why) => context.effect(
                Effect::Elsewhere,
                parameter,
                format!("{item}: {why}; write a [[route]] for each entry"),
            ),
        }
    }
    entries
}

/// Policies of domains whose mail goes to their MX hosts. Those of other next hops stand in the routes to them.
fn tls_policies(context: &mut Context<'_>) {
    let mut entries = entries_of(context, "smtp_tls_policy_maps");
    if !context.main.value("relayhost").is_empty() {
        return;
    }
    entries.sort_by_key(|entry| (entry.key.starts_with('.'), std::cmp::Reverse(entry.key.len())));
    for entry in entries {
        let level = entry.value.split_whitespace().next().unwrap_or_default().to_owned();
        let domain = entry.key.strip_prefix('.').map_or(entry.key.clone(), |domain| format!("*.{domain}"));
        if !is_domain(domain.trim_start_matches("*.")) {
            continue;
        }
        let tls = tls_level(&level).unwrap_or_else(|why| {
            context.effect(Effect::Refused, "smtp_tls_policy_maps", format!("{}: {why}", entry.key));
            if level == "dane" { "may" } else { "verify" }
        });
        let section = Section::new("[[route]]", "smtp_tls_policy_maps");
        context.draft.push(section.with("domains", vec![domain]).with("mx", true).with("tls", tls));
    }
}

/// Writes routes by sender for relayed domains: a relay host of a sender is for these, too. Returns those for other domains.
pub(super) fn sender_dependent(
    context: &mut Context<'_>,
    relay: &[String],
    others_of: &[String],
) -> Vec<Section> {
    let mut others = Vec::new();
    let mut hosts = entries_of(context, "sender_dependent_relayhost_maps");
    let transports = entries_of(context, "sender_dependent_default_transport_maps");
    let relayhost = context.main.value("relayhost");
    if context.main.value("smtp_sender_dependent_authentication") == "yes" && !relayhost.is_empty() {
        context.mapped("smtp_sender_dependent_authentication");
        let logins = entries_of(context, "smtp_sasl_password_maps").into_iter();
        let is_new =
            |entry: &TableEntry| entry.key.contains('@') && !hosts.iter().any(|other| other.key == entry.key);
        let new: Vec<TableEntry> = logins.filter(is_new).collect();
        hosts.extend(new.into_iter().map(|entry| TableEntry { value: relayhost.clone(), ..entry }));
    }
    // The address counts before its domain.
    let find = |entries: &[TableEntry], sender: &str| {
        let domain = sender.find('@').map_or(sender, |at| &sender[at..]);
        let of = |key: &str| entries.iter().find(|entry| entry.key.eq_ignore_ascii_case(key));
        of(sender).or_else(|| of(domain)).map(|entry| entry.value.clone()).filter(|value| value != "DUNNO")
    };
    let mut senders: Vec<String> =
        hosts.iter().chain(&transports).map(|entry| entry.key.to_lowercase()).collect();
    senders.sort_by_key(|sender| (sender.starts_with('@'), std::cmp::Reverse(sender.len()), sender.clone()));
    senders.dedup();
    for sender in senders {
        // Others match no sender.
        let of = sender.rsplit_once('@').map_or("", |(_, domain)| domain);
        if !is_domain(of) {
            let text = format!("{sender} is neither an address nor an @domain");
            context.note("sender_dependent_relayhost_maps", text);
            continue;
        }
        let host = find(&hosts, &sender);
        let transport = find(&transports, &sender);
        let parameter = match transport {
            Some(_) => "sender_dependent_default_transport_maps",
            None => "sender_dependent_relayhost_maps",
        };
        let transport = transport.unwrap_or_else(|| context.main.value("default_transport"));
        let mut classes = vec![(others_of, transport)];
        let of_relay = context.main.value("relay_transport");
        if host.is_some() && !relay.is_empty() && hop(context, &of_relay) == Ok(Hop::Mx) {
            classes.insert(0, (relay, of_relay));
        }
        let host = host.unwrap_or_else(|| relayhost.clone());
        for (domains, transport) in classes.into_iter().filter(|(domains, _)| !domains.is_empty()) {
            let hop = off_host(context, &transport, &host).unwrap_or_else(|why| {
                let text = format!("{sender}: {why}; until then the mail is held");
                context.effect(Effect::Elsewhere, parameter, text);
                Hop::Hold
            });
            let section = Section::new("[[route]]", parameter)
                .with("domains", domains.to_vec())
                .with("senders", vec![sender.trim_start_matches('@').to_owned()]);
            match add_hop_for(context, section, (&hop, &transport), parameter, Some(&sender)) {
                Some(section) if domains == others_of => others.push(section),
                Some(section) => context.draft.push(section),
                None => {}
            }
        }
    }
    others
}

fn default_transport(context: &mut Context<'_>) {
    context.mapped("default_transport");
    let relayhost = context.main.value("relayhost");
    context.mapped("relayhost");
    let transport = context.main.value("default_transport");
    let fallback = fallback(context, &transport);
    let hop = match off_host(context, &transport, &relayhost) {
        Ok(hop) => hop,
        Err(why) => return waits(context, "default_transport", vec!["*".to_owned()], &why),
    };
    let level = level(context);
    let is_plain = OF_ROUTES.iter().all(|name| of_service(context, &transport, name).is_none());
    // The daemon's own default is mail to the MX hosts, with TLS if it is offered.
    if hop == Hop::Mx && is_plain && matches!(&*level, "may" | "dane") && fallback.is_empty() {
        if level == "dane" {
            context.missing(
                "smtp_tls_security_level",
                "DANE is not supported yet; TLS is used if it is offered",
            );
        }
        return;
    }
    if hop == Hop::Mx && is_plain && matches!(&*level, "" | "none") && fallback.is_empty() {
        context.remark("Postfix sends without TLS; Postrider uses TLS if the next hop offers it; to switch it off, write a [[route]] with `domains = [\"*\"]`, `mx = true` and `tls = \"off\"`");
        return;
    }
    let section =
        Section::new("[[route]]", "relayhost, default_transport").with("domains", vec!["*".to_owned()]);
    let parameter = if relayhost.is_empty() { "default_transport" } else { "relayhost" };
    if let Some(section) = add_hop(context, section, (&hop, &transport), parameter) {
        context.draft.push(section);
    }
}

/// Returns the hosts for mail that the next hop of a transport does not take.
fn fallback(context: &mut Context<'_>, transport: &str) -> Vec<String> {
    let names = ["smtp_fallback_relay", "fallback_relay"];
    names.iter().for_each(|name| context.mapped(name));
    let of_service = names.iter().find_map(|name| service_value(context, transport, name));
    let hosts = of_service.unwrap_or_else(|| names.map(|name| context.main.value(name)).join(" "));
    let host = |host: &String| match smarthost(host) {
        Ok(Hop::Smarthost { host, .. }) => Some(host),
        _ => None,
    };
    items(&hosts).iter().filter_map(host).collect()
}
