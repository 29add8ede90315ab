//! Milters: `smtpd_milters`, with the overrides of services, and `non_smtpd_milters`.

use super::{Context, context::Door};
use crate::{
    Verdict,
    draft::{Section, plain_word},
    milter,
    postfix::main_cf::{MainCf, items},
    report::Effect,
    time::seconds,
};

/// One milter, as `smtpd_milters` names it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Milter {
    /// As Postfix names it: `inet:localhost:8891`.
    place: String,
    /// Settings in braces, without `milter_` in front.
    own: Vec<(String, String)>,
}

/// Reads a list, of which an item may be `{ PLACE, name=value }`.
fn milters(value: &str) -> Vec<Milter> {
    let milter = |item: String| {
        let mut words = items(item.trim_matches(['{', '}'])).into_iter();
        let place = words.next()?;
        let setting = |word: String| {
            let (name, value) = word.split_once('=')?;
            Some((name.to_owned(), value.to_owned()))
        };
        Some(Milter { place, own: words.filter_map(setting).collect() })
    };
    items(value).into_iter().filter_map(milter).collect()
}

pub(super) fn write(context: &mut Context<'_>) {
    let doors: Vec<(bool, Vec<Milter>)> = doors(context);
    let local = milters(&context.main.value("non_smtpd_milters"));
    let mut all: Vec<Milter> = Vec::new();
    for milter in doors.iter().flat_map(|(_, list)| list) {
        if all.iter().all(|known| known.place != milter.place) {
            all.push(milter.clone());
        }
    }
    for name in ["smtpd_milters", "non_smtpd_milters"] {
        context.mapped(name);
    }
    for milter in &all {
        let has = |list: &[Milter]| list.iter().any(|other| other.place == milter.place);
        let of = |is_submission| {
            let all: Vec<bool> =
                doors.iter().filter(|(is, _)| *is == is_submission).map(|(_, list)| has(list)).collect();
            (all.iter().any(|has| *has), all.iter().all(|has| *has))
        };
        let ((mx, mx_all), (users, users_all)) = (of(false), of(true));
        let audience = match (mx, users_all) {
            (true, true) => None,
            (true, false) => Some("untrusted"),
            (false, _) => Some("users"),
        };
        if (mx && !mx_all) || (users && !users_all) || audience == Some("users") {
            let text = format!(
                "{}: some services do not use this milter; Postrider applies it to the same clients on every listener",
                milter.place
            );
            context.effect(Effect::Refused, "smtpd_milters", text);
        } else if audience.is_some() && has_other_networks(context) {
            let text = format!(
                "{}: not applied to mail from relay.networks, nor to mail from clients that log in",
                milter.place
            );
            context.effect(Effect::Taken, "smtpd_milters", text);
        }
        section(context, milter, audience, has(&local));
    }
    for milter in local.iter().filter(|milter| all.iter().all(|known| known.place != milter.place)) {
        let text = format!(
            "{}: left out, because a filter cannot apply to mail from local programs only",
            milter.place
        );
        context.effect(Effect::Taken, "non_smtpd_milters", text);
    }
    settings(context);
}

/// Returns whether relay.networks has more than this machine.
fn has_other_networks(context: &Context<'_>) -> bool {
    context.networks.iter().any(|network| !network.starts_with("127.") && !network.starts_with("::1"))
}

/// The milters of each listener, and whether it is for logins.
fn doors(context: &Context<'_>) -> Vec<(bool, Vec<Milter>)> {
    let milters_of = |main: &MainCf| milters(&main.value("smtpd_milters"));
    let door = |door: &Door| {
        let service = context.master.services.iter().find(|service| service.line == door.line)?;
        let main = context.main.with_overrides(&service.overrides);
        Some((door.kind.starts_with("submission"), milters_of(&main)))
    };
    let doors: Vec<_> = context.doors.iter().filter_map(door).collect();
    if doors.is_empty() { vec![(false, milters_of(&context.main))] } else { doors }
}

fn section(context: &mut Context<'_>, milter: &Milter, audience: Option<&str>, is_local: bool) {
    let Some(address) = milter::address(&milter.place) else {
        let text =
            format!("{}: not a socket, or the port is not a number: write [filter.NAME]", milter.place);
        return context.effect(Effect::Taken, "smtpd_milters", text);
    };
    let address = match address.strip_prefix("unix:") {
        // Within a chroot, all paths are below the queue directory.
        Some(path) if is_chrooted(context) => {
            format!("unix:{}", context.below_queue(path.trim_start_matches('/')))
        }
        Some(path) => format!("unix:{}", context.below_queue(path)),
        None => address,
    };
    let value = |name: &str, main: &MainCf| {
        let own = milter.own.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
        own.or_else(|| {
            main.explicit(&format!("milter_{name}")).map(|_| main.value(&format!("milter_{name}")))
        })
    };
    let name = context.draft.free_name("filter", telling_name(&address));
    let from = format!("smtpd_milters: {}", milter.place);
    let mut filter = Section::new(&format!("[filter.{name}]"), from).with("milter", address);
    filter = filter.with_some("for", audience).with_some("local", is_local.then_some(true));
    for (theirs, key) in [("command_timeout", "timeout"), ("content_timeout", "content_timeout")] {
        let time = value(theirs, &context.main).and_then(|time| seconds(&time, 's'));
        filter = milter::with_time(filter, key, time);
    }
    match value("default_action", &context.main).as_deref() {
        Some("accept") => filter = filter.with("on_failure", "pass"),
        None | Some("tempfail" | "") => {}
        Some(other) => {
            let text = format!("{}: {other}: if the filter fails, mail is deferred (451)", milter.place);
            let parameter = if context.main.explicit("milter_default_action").is_some() {
                "milter_default_action"
            } else {
                "smtpd_milters"
            };
            context.note(parameter, text);
        }
    }
    context.draft.push(filter);
}

/// Returns whether the services that serve clients run in a chroot.
fn is_chrooted(context: &Context<'_>) -> bool {
    let mut services = context.master.services.iter().filter(|service| service.program() == "smtpd");
    services.any(|service| service.is_chrooted)
}

/// Returns a name for the filter by its address, such as that of a known program.
fn telling_name(address: &str) -> String {
    let known = match address.rsplit(':').next().unwrap_or_default() {
        "11332" => Some("rspamd"),
        "8891" => Some("opendkim"),
        "8893" => Some("opendmarc"),
        _ => None,
    };
    let mut parts = address.rsplit(['/', ':']).map(|part| part.split('.').next().unwrap_or_default());
    let is_telling = |part: &&str| {
        !matches!(*part, "milter" | "socket" | "sock" | "run" | "var" | "spool" | "postfix" | "unix" | "")
            && part.bytes().any(|byte| byte.is_ascii_alphabetic())
    };
    let name = known.or_else(|| parts.find(is_telling)).unwrap_or("milter");
    plain_word(name)
}

/// Translates the parameters that are for all milters.
fn settings(context: &mut Context<'_>) {
    let names: Vec<String> = context
        .main
        .parameters
        .iter()
        .map(|parameter| parameter.name.clone())
        .filter(|name| name.starts_with("milter_"))
        .collect();
    for name in names {
        let verdict = match &*name {
            "milter_default_action"
            | "milter_command_timeout"
            | "milter_content_timeout"
            | "milter_protocol" => Verdict::Mapped,
            "milter_connect_timeout" => {
                Verdict::Note("`timeout` in [filter.NAME] also applies to connecting".to_owned())
            }
            "milter_header_checks" => {
                Verdict::Missing("rules do not see header fields that a filter has added".to_owned())
            }
            "milter_macro_daemon_name" => {
                Verdict::Note("the macro {daemon_name} is the listener's kind".to_owned())
            }
            _ => Verdict::Note(
                "a filter gets the macros that it asks for, or else those that Postfix sends".to_owned(),
            ),
        };
        context.set_verdict(&name, verdict);
    }
}

#[cfg(test)]
mod tests {
    use crate::{Draft, Report, memory_files::MemoryFiles, postfix::convert::convert};

    fn converted(main: &str, master: &str) -> (Draft, Report) {
        convert(main.as_bytes(), master.as_bytes(), "/etc/postfix", &MemoryFiles(&[]))
    }

    /// The sections of filters, without comments, and the lines of the report that say more than `mapped`.
    fn filters(main: &str, master: &str) -> (String, String) {
        let (draft, report) = converted(main, master);
        let text = draft.as_toml();
        let of_filters = text.split("\n[").filter(|section| section.starts_with("filter."));
        let lines = of_filters.flat_map(str::lines).filter(|line| !line.is_empty() && !line.starts_with('#'));
        (lines.collect::<Vec<_>>().join("\n"), report.to_string())
    }

    const MASTER: &str =
        "smtp inet n - n - - smtpd\nsubmission inet n - n - - smtpd\n  -o smtpd_sasl_auth_enable=yes\n";

    #[test]
    fn the_lines_of_the_guides_become_filters_for_all_and_for_local_programs() {
        let main = "smtpd_milters = unix:opendkim/opendkim.sock, inet:localhost:11332\nnon_smtpd_milters = $smtpd_milters\n\
                    milter_protocol = 6\nmilter_default_action = accept\nmilter_mail_macros = i {auth_authen}\n";
        let (filters, report) = filters(main, MASTER);
        assert_eq!(
            filters,
            "filter.opendkim]\nmilter = \"unix:/var/spool/postfix/opendkim/opendkim.sock\"\nlocal = true\non_failure = \"pass\"\n\
             filter.rspamd]\nmilter = \"localhost:11332\"\nlocal = true\non_failure = \"pass\""
        );
        assert!(!report.contains("_milters"), "{report}");
        assert!(report.contains("milter_mail_macros: a filter gets"), "{report}");
    }

    #[test]
    fn a_filter_of_some_listeners_is_for_the_clients_that_use_them() {
        let with = |smtp: &str, submission: &str| {
            format!(
                "smtp inet n - y - - smtpd\n{smtp}submission inet n - y - - smtpd\n  -o smtpd_sasl_auth_enable=yes\n{submission}"
            )
        };
        let (one, two) = (
            "  -o smtpd_milters=unix:/run/a.sock\n",
            "  -o smtpd_milters={unix:/run/b.sock,default_action=reject,command_timeout=2m}\n",
        );
        let (found, report) = filters("mynetworks = 127.0.0.0/8, 10.0.0.0/8\n", &with(one, two));
        assert_eq!(
            found,
            "filter.a]\nmilter = \"unix:/var/spool/postfix/run/a.sock\"\nfor = \"untrusted\"\n\
             filter.b]\nmilter = \"unix:/var/spool/postfix/run/b.sock\"\nfor = \"users\"\ntimeout = \"25s\""
        );
        for text in [
            "accepted main.cf smtpd_milters (default): unix:/run/a.sock: not applied to mail from relay.networks",
            "refused  main.cf smtpd_milters (default): unix:/run/b.sock: some services do not use this milter",
        ] {
            assert!(report.contains(text), "{text}\n{report}");
        }
        // Switched off for submission.
        let (found, _) = filters("smtpd_milters = inet:8891@[::1]\n", &with("", "  -o smtpd_milters=\n"));
        assert_eq!(found, "filter.opendkim]\nmilter = \"[::1]:8891\"\nfor = \"untrusted\"");
    }

    #[test]
    fn what_no_filter_can_be_is_told() {
        let one = "smtp inet n - n - - smtpd\n";
        let (_, report) = filters("smtpd_milters = inet:127.0.0.1:11332\n", one);
        assert!(!report.contains("main.cf:1 smtpd_milters"), "the only service has it: {report}");
        let (found, report) = filters("smtpd_milters = inet:localhost:rspamd, inet6:[::1]:8899\n", one);
        assert!(
            found.starts_with("filter.milter]") && report.contains("inet:localhost:rspamd: not a"),
            "{found} {report}"
        );
        let (found, report) = filters("smtpd_milters = hash:/x\nnon_smtpd_milters = unix:/y\n", MASTER);
        assert_eq!(found, "");
        assert!(report.contains("accepted main.cf:1 smtpd_milters: hash:/x"), "{report}");
        assert!(report.contains("accepted main.cf:2 non_smtpd_milters: unix:/y"), "{report}");
    }
}
