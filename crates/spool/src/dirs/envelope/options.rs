//! The delivery options in an envelope file: the line `options` has those that a reader may skip, and the line `require`
//! those that it must know.

use crate::{
    dirs::line::{Lines, number, unescape_text},
    format::wire::Malformed,
};
use mail::{DeliverBy, DeliverByMode, DeliveryOptions, Priority, ReversePath, UnixMillis};

/// The first word of the line whose unknown words are skipped.
pub(super) const OPTIONS: &str = "options";
/// The first word of the line whose unknown words are refused.
pub(super) const REQUIRE: &str = "require";

/// Writes the lines that the options need.
pub(super) fn write(to: &mut Lines<'_>, options: &DeliveryOptions) {
    let DeliveryOptions { login, auth, requiretls, deliver_by, release, priority } = options;
    if login.is_some() || auth.is_some() || priority.is_some() {
        to.line(OPTIONS, |w| {
            login.iter().for_each(|login| {
                w.key("login", login.as_bytes());
            });
            auth.iter().for_each(|auth| {
                w.key("auth", auth.as_str().as_bytes());
            });
            priority.iter().for_each(|priority| {
                w.key_display("priority", &priority.value());
            });
        });
    }
    if *requiretls || deliver_by.is_some() || release.is_some() {
        to.line(REQUIRE, |w| {
            if *requiretls {
                w.word("tls");
            }
            if let Some(by) = deliver_by {
                let mode = if by.mode == DeliverByMode::Return { "return" } else { "notify" };
                let trace = if by.trace { ",trace" } else { "" };
                w.key_display("by", &format_args!("{},{mode}{trace}", by.deadline.0));
            }
            release.iter().for_each(|release| {
                w.key_display("release", &release.0);
            });
        });
    }
}

/// Reads the words of a line `options`.
pub(super) fn read_options<'a>(
    options: &mut DeliveryOptions,
    words: impl Iterator<Item = &'a str>,
) -> Result<(), Malformed> {
    for word in words {
        match word.split_once('=') {
            Some(("login", text)) => options.login = Some(unescape_text(text)?),
            Some(("auth", text)) => {
                let auth = ReversePath::parse(&unescape_text(text)?, true);
                options.auth = Some(auth.map_err(|_| Malformed("auth"))?);
            }
            Some(("priority", text)) => {
                options.priority = Some(Priority::new(number(text)?).ok_or(Malformed("priority"))?);
            }
            _ => {}
        }
    }
    Ok(())
}

/// Reads the words of a line `require`.
pub(super) fn read_required<'a>(
    options: &mut DeliveryOptions,
    words: impl Iterator<Item = &'a str>,
) -> Result<(), Malformed> {
    for word in words {
        match word.split_once('=').unwrap_or((word, "")) {
            ("tls", "") => options.requiretls = true,
            ("by", text) => options.deliver_by = Some(read_deadline(text)?),
            ("release", text) => options.release = Some(UnixMillis(number(text)?)),
            _ => return Err(Malformed("a requirement of a later version")),
        }
    }
    Ok(())
}

fn read_deadline(text: &str) -> Result<DeliverBy, Malformed> {
    let (deadline, rest) = text.split_once(',').ok_or(Malformed("deadline"))?;
    let (mode, trace) = match rest {
        "notify" => (DeliverByMode::Notify, false),
        "notify,trace" => (DeliverByMode::Notify, true),
        "return" => (DeliverByMode::Return, false),
        "return,trace" => (DeliverByMode::Return, true),
        _ => return Err(Malformed("deadline")),
    };
    Ok(DeliverBy { deadline: UnixMillis(number(deadline)?), mode, trace })
}
