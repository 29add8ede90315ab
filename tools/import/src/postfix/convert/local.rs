//! Mailboxes of this machine: what local(8) and virtual(8) deliver.

use super::{
    Context,
    routes::{Hop, add_hop, class, entries_of, hop, waits},
    transports::by_rule,
    users,
};
use crate::{
    draft::{Section, Value},
    forward,
    report::{AS_DAEMON, Effect},
};
use std::collections::HashSet;

/// Adds the mailboxes of local(8) to a route, or the transport that it hands all mail to.
pub(super) fn mailbox(context: &mut Context<'_>, section: Section) -> Option<Section> {
    let transport = context.main.value("mailbox_transport");
    context.mapped("mailbox_transport");
    match hop(context, &transport) {
        _ if transport.is_empty() => {}
        Ok(Hop::Local) => {}
        Ok(hop) => return add_hop(context, section, (&hop, &transport), "mailbox_transport"),
        Err(why) => {
            let text = format!("{transport}: {why}; until then the mail is held");
            context.effect(Effect::Elsewhere, "mailbox_transport", text);
            return Some(section.with("hold", true));
        }
    }
    if !context.main.value("mailbox_command").is_empty() {
        context.effect(
            Effect::Elsewhere,
            "mailbox_command",
            "mail is delivered to the mailbox; to run the command, use `pipe` in a [[route]], or an alias",
        );
    }
    let home = context.main.value("home_mailbox");
    context.mapped("home_mailbox");
    context.mapped("mail_spool_directory");
    if !home.is_empty() {
        let key = if home.ends_with('/') { "maildir" } else { "mbox" };
        context.note(
            "home_mailbox",
            format!("home directories are assumed to be below /home; {AS_DAEMON} there"),
        );
        return Some(section.with(key, format!("/home/{{local}}/{}", home.trim_end_matches('/'))));
    }
    let spool = context.main.value("mail_spool_directory");
    let key = if spool.ends_with('/') { "maildir" } else { "mbox" };
    context.remark(format!("mailboxes are in {spool}: {AS_DAEMON} there"));
    Some(section.with(key, format!("{}/{{local}}", spool.trim_end_matches('/'))))
}

/// Transports of local(8) for some names: rules choose their routes.
pub(super) fn local_transports(context: &mut Context<'_>, own: &[String]) {
    let is_local = hop(context, &context.main.value("local_transport")) == Ok(Hop::Local);
    if own.is_empty() || !is_local {
        return;
    }
    forwards(context);
    let transports = ["mailbox_transport_maps", "fallback_transport_maps", "fallback_transport"];
    if transports.iter().all(|name| context.main.value(name).is_empty()) {
        return;
    }
    let aliases = context.entries("alias_maps").unwrap_or_default().into_iter();
    let aliases = aliases.map(|entry| entry.key.trim_end_matches(':').to_owned());
    let known: Vec<String> =
        context.files.users().into_iter().chain(aliases).map(|name| name.to_lowercase()).collect();
    for parameter in ["mailbox_transport_maps", "fallback_transport_maps"] {
        let mut asked = HashSet::new();
        for entry in entries_of(context, parameter) {
            // local(8) asks for the name alone, and the first table that has it counts.
            let name = entry.key.to_lowercase();
            let is_asked = parameter == "mailbox_transport_maps" || !known.contains(&name);
            if name.contains(['@', ':']) || !is_asked || !asked.insert(name.clone()) {
                continue;
            }
            let to = own.iter().filter(|one| !one.contains(':')).map(|domain| format!("{name}@{domain}"));
            let rule = Section::new("[[rule]]", format!("{parameter}: {name}"));
            let rule = rule.with("for", "all").with("to", to.collect::<Vec<_>>());
            by_rule(context, rule, &format!("{parameter}-{name}"), &entry.value, parameter);
            let text = format!("{name}: mail that aliases send to this name is delivered to its mailbox");
            context.effect(Effect::Elsewhere, parameter, text);
        }
    }
    let parameter = "fallback_transport";
    let transport = context.main.value(parameter);
    context.mapped(parameter);
    if transport.is_empty() {
        return;
    }
    let text = "mail for users without an account goes there if a client gives the address, but not if an alias leads to it";
    context.effect(Effect::Elsewhere, parameter, text);
    let known = users::of_machine(context);
    let rule = Section::new("[[rule]]", parameter).with("for", "all").with("to", own.to_vec());
    let rule = rule.with("unless", Value::Table(vec![("to", known)]));
    by_rule(context, rule, "fallback-transport", &transport, parameter);
}

/// Has the files .forward of users read.
fn forwards(context: &mut Context<'_>) {
    if let Some(text) = forward::obey(context.files, &mut context.draft, "forward_path") {
        context.effect(Effect::Elsewhere, "forward_path", text);
    }
}

/// Writes the route of mailboxes that virtual(8) delivers to.
pub(super) fn virtual_mailboxes(context: &mut Context<'_>, names: &[String]) {
    let transport = context.main.value("virtual_transport");
    for name in ["virtual_mailbox_base", "virtual_uid_maps", "virtual_gid_maps", "virtual_minimum_uid"] {
        context.mapped(name);
    }
    if transport.split(':').next() != Some("virtual") {
        return class(context, names, "virtual_transport", "virtual_mailbox_domains", "");
    }
    context.mapped("virtual_transport");
    let base = context.main.value("virtual_mailbox_base");
    let base = base.trim_end_matches('/');
    match layout(context) {
        Some((key, pattern)) => {
            context.note("virtual_uid_maps", "the daemon's user writes all mailboxes and must own them");
            let section = Section::new("[[route]]", "virtual_mailbox_domains, virtual_mailbox_maps");
            context
                .draft
                .push(section.with("domains", names.to_vec()).with(key, format!("{base}/{pattern}")));
        }
        None => waits(
            context,
            "virtual_mailbox_maps",
            names.to_vec(),
            "the paths of the mailboxes do not follow one pattern of {domain} and {local}: move the mailboxes, or deliver by LMTP",
        ),
    }
}

/// Finds the pattern that all mailboxes of `virtual_mailbox_maps` follow.
fn layout(context: &Context<'_>) -> Option<(&'static str, &'static str)> {
    const PATTERNS: [(&str, &str); 6] = [
        ("maildir", "{domain}/{local}"),
        ("maildir", "{local}"),
        ("maildir", "{domain}/{local}/Maildir"),
        ("mbox", "{domain}/{local}"),
        ("mbox", "{local}"),
        ("maildir", "{local}/Maildir"),
    ];
    let entries = context.entries("virtual_mailbox_maps")?;
    let fits = |(key, pattern): &&(&str, &str)| {
        entries.iter().all(|entry| {
            let Some((local, domain)) = entry.key.rsplit_once('@') else { return false };
            let path = pattern.replace("{domain}", domain).replace("{local}", local);
            entry.value.trim_end_matches('/') == path && entry.value.ends_with('/') == (*key == "maildir")
        })
    };
    if entries.is_empty() {
        return None;
    }
    PATTERNS.iter().find(fits).copied()
}
