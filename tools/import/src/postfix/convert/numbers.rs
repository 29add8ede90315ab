//! Limits, times and numbers.

use super::Context;
use crate::{
    draft::{Section, Value},
    time::{cut_unit, seconds},
};

/// What a number means, and so in which unit it is written.
#[derive(Clone, Copy)]
enum Kind {
    /// A count, with the least and the largest value that Postrider takes.
    Count(u64, u64),
    /// A time that may be zero; a number without a unit has this one.
    Time(char),
    /// A time that Postrider does not take as zero: there, Postrider's default applies.
    Wait(char),
    /// The time in the queue. Zero asks for one attempt.
    Lifetime(char),
    /// Octets.
    Size(u64),
    /// Written as it is.
    Text,
}

/// Parameters whose value becomes that of a key.
const NUMBERS: [(&str, &str, &str, Kind); 27] = [
    ("message_size_limit", "[limits]", "max_message_size", Kind::Size(64 * 1024)),
    ("smtpd_recipient_limit", "[limits]", "max_recipients", Kind::Count(100, u32::MAX as u64)),
    ("hopcount_limit", "[limits]", "max_hops", Kind::Count(1, 1000)),
    ("smtpd_hard_error_limit", "[limits]", "max_errors", Kind::Count(1, 1_000_000)),
    ("smtpd_junk_command_limit", "[limits]", "max_junk_commands", Kind::Count(1, 1_000_000)),
    (
        "smtpd_client_connection_count_limit",
        "[inbound]",
        "max_sessions_per_client",
        Kind::Count(1, 1_000_000),
    ),
    ("smtpd_timeout", "[timeouts]", "command", Kind::Wait('s')),
    ("smtpd_starttls_timeout", "[timeouts]", "tls", Kind::Wait('s')),
    ("maximal_queue_lifetime", "[queue]", "expire", Kind::Lifetime('d')),
    ("delay_warning_time", "[queue]", "delay_warning", Kind::Time('h')),
    ("minimal_backoff_time", "[queue]", "retry_min", Kind::Wait('s')),
    ("maximal_backoff_time", "[queue]", "retry_max", Kind::Wait('s')),
    ("initial_destination_concurrency", "[queue]", "initial_concurrency", Kind::Count(1, 1000)),
    (
        "default_destination_concurrency_limit",
        "[delivery]",
        "connections_per_destination",
        Kind::Count(1, 10_000),
    ),
    (
        "smtp_destination_concurrency_limit",
        "[delivery]",
        "connections_per_destination",
        Kind::Count(1, 10_000),
    ),
    (
        "default_destination_recipient_limit",
        "[delivery]",
        "recipients_per_transaction",
        Kind::Count(1, 10_000),
    ),
    ("smtp_destination_recipient_limit", "[delivery]", "recipients_per_transaction", Kind::Count(1, 10_000)),
    ("smtp_connect_timeout", "[delivery]", "connect_timeout", Kind::Wait('s')),
    ("smtp_helo_timeout", "[delivery]", "greeting_timeout", Kind::Wait('s')),
    ("smtp_mail_timeout", "[delivery]", "command_timeout", Kind::Wait('s')),
    ("smtp_data_xfer_timeout", "[delivery]", "data_timeout", Kind::Wait('s')),
    ("smtp_data_done_timeout", "[delivery]", "data_done_timeout", Kind::Wait('s')),
    ("smtp_bind_address", "[delivery]", "source_address", Kind::Text),
    ("smtp_helo_name", "[delivery]", "ehlo_name", Kind::Text),
    ("smtp_tcp_port", "[delivery]", "mx_port", Kind::Count(1, 65535)),
    ("smtp_connection_cache_time_limit", "[delivery]", "idle_timeout", Kind::Time('s')),
    ("smtp_connection_reuse_time_limit", "[delivery]", "reuse_timeout", Kind::Time('s')),
];

pub(super) fn write(context: &mut Context<'_>) {
    for (name, section, key, kind) in NUMBERS {
        // Two defaults of Postfix differ much from those of Postrider: they are written, so that nothing changes.
        let is_default = context.main.explicit(name).is_none();
        if is_default && !matches!(name, "message_size_limit" | "delay_warning_time") {
            continue;
        }
        let value = context.main.value(name);
        let from = context.place(name);
        context.mapped(name);
        match converted(&value, kind) {
            Ok((value, None)) => context.draft.set(section, key, value, &from),
            Ok((value, Some(note))) => {
                context.note(name, note);
                context.draft.set(section, key, value, &from);
            }
            Err(why) if value.is_empty() => drop(why),
            Err(why) => context.missing(name, why),
        }
    }
    no_late_warning(context);
    rates(context);
    if let Some(value) = context.given("disable_vrfy_command")
        && value != "yes"
    {
        context.note("disable_vrfy_command", "extensions.vrfy says who may use VRFY; by default, nobody");
    }
    if let Some(value) = context.given("soft_bounce") {
        context.draft.set("[queue]", "soft_bounce", value == "yes", "soft_bounce");
    }
    if let Some(classes) = context.given("notify_classes") {
        let has_double = classes.contains("2bounce");
        context.draft.set("[notifications]", "double_bounces", has_double, "notify_classes");
        if classes.split([',', ' ']).any(|class| !matches!(class, "" | "2bounce")) {
            context.note(
                "notify_classes",
                "only bounces that cannot be delivered go to the postmaster; the rest is logged",
            );
        }
    }
}

fn converted(value: &str, kind: Kind) -> Result<(Value, Option<String>), String> {
    let number = |text: &str| text.parse::<u64>().map_err(|_| format!("\"{text}\" is not a number"));
    match kind {
        Kind::Text => Ok((Value::from(value), None)),
        Kind::Count(least, most) => {
            let count = number(value)?;
            if (least..=most).contains(&count) {
                return Ok((Value::from(count), None));
            }
            let taken = if count == 0 { most.min(100_000) } else { count.clamp(least, most) };
            Ok((Value::from(taken), Some(format!("{count} is not supported; set to {taken}"))))
        }
        Kind::Size(least) => match number(value)? {
            0 => Ok((Value::from("1GiB"), Some("there is always a limit; set to 1 GiB".to_owned()))),
            size if size < least => {
                Ok((Value::from(least), Some(format!("set to {least} bytes, the minimum"))))
            }
            size => Ok((Value::from(size), None)),
        },
        Kind::Time(unit) | Kind::Wait(unit) | Kind::Lifetime(unit) => {
            let (digits, unit) = cut_unit(value, unit);
            let count = number(digits)?;
            match kind {
                Kind::Wait(_) if count == 0 => {
                    Err("0 is not supported; Postrider's default is used".to_owned())
                }
                Kind::Lifetime(_) if count == 0 => {
                    let note = "set to 1 second: mail is tried once, then returned";
                    Ok((Value::from("1s"), Some(note.to_owned())))
                }
                _ if count == 0 => Ok((Value::from("0s"), None)),
                _ => Ok((Value::from(format!("{count}{unit}")), None)),
            }
        }
    }
}

/// Leaves the delay warning out if mail is returned before it: Postfix never sends it then, and Postrider wants it to be sooner.
fn no_late_warning(context: &mut Context<'_>) {
    if context.main.explicit("maximal_queue_lifetime").is_none() {
        return;
    }
    let seconds = |name: &str, unit: char| seconds(&context.main.value(name), unit);
    let (Some(warning), Some(lifetime)) =
        (seconds("delay_warning_time", 'h'), seconds("maximal_queue_lifetime", 'd'))
    else {
        return;
    };
    if warning > lifetime.max(1) {
        let from = context.place("delay_warning_time");
        context.note("delay_warning_time", "no warning is sent: mail is returned before it");
        context.draft.set("[queue]", "delay_warning", "0s", &from);
    }
}

/// Limits that anvil(8) counts.
fn rates(context: &mut Context<'_>) {
    context.mapped("anvil_rate_time_unit");
    let unit = context.main.value("anvil_rate_time_unit");
    let unit = match converted(&unit, Kind::Time('s')) {
        Ok((Value::Text(unit), None)) if unit != "0s" => unit.replace('m', "min"),
        _ => "60s".to_owned(),
    };
    for (name, key) in [
        ("smtpd_client_connection_rate_limit", "connections"),
        ("smtpd_client_message_rate_limit", "messages"),
        ("smtpd_client_recipient_rate_limit", "recipients"),
    ] {
        let Some(value) = context.given(name) else { continue };
        match value.parse::<u64>() {
            Ok(0) => {}
            Ok(count) => {
                let networks = context.draft.list("[relay]", "networks");
                let section = Section::new("[[limit]]", name)
                    .with("per", "client")
                    .with(key, format!("{count}/{unit}"));
                let section = if networks.is_empty() { section } else { section.with("except", networks) };
                context.draft.push(section);
            }
            Err(_) => context.missing(name, format!("\"{value}\" is not a number")),
        }
    }
    if context.main.explicit("smtpd_client_auth_rate_limit").is_some() {
        context.note("smtpd_client_auth_rate_limit", "auth.max_failures limits failed logins");
    }
}
