//! The arguments and the environment of a program. A part of the envelope is a whole argument, and never an option.

use crate::local::Parcel;
use mail::{Argument, Enhanced, EnvelopeField, Mailbox, Outcome, Program};
use rewrite::Separator;

/// Names and values of environment variables.
type Environment = Vec<(&'static str, String)>;

/// Returns whether a program can be started for a mailbox: no part of its address would be an option.
pub fn can_run(program: &Program, mailbox: &Mailbox, separator: Option<Separator>) -> bool {
    let parts = Parts::of(mailbox, separator);
    program.argv.iter().all(|argument| match argument {
        Argument::Field(field) => parts.get(*field).is_none_or(|text| !is_option(text)),
        Argument::Text(_) => true,
    })
}

/// Returns the words that start a program for a mailbox, for people. What only a message has stays a placeholder.
pub fn command_line(program: &Program, mailbox: &Mailbox, separator: Option<Separator>) -> String {
    let parts = Parts::of(mailbox, separator);
    let word = |argument: &Argument| match argument {
        Argument::Text(text) => text.as_ref().to_owned(),
        Argument::Field(field) => {
            parts.get(*field).map_or_else(|| argument.as_str().to_owned(), str::to_owned)
        }
    };
    program.argv.iter().map(word).collect::<Vec<_>>().join(" ")
}

/// Returns the arguments, the program first, and the environment.
///
/// # Errors
/// A part of the envelope would be an option of the program.
pub(super) fn arguments<S>(
    program: &Program,
    parcel: &Parcel<'_, S>,
) -> Result<(Vec<String>, Environment), Outcome> {
    let sender = parcel.sender.as_str();
    let id = parcel.id.to_string();
    let bad = |status, what: &str| Outcome::failed(status, format!("{what} would be an option of a program"));
    let Some(mailbox) = parcel.recipient.mailbox() else {
        return Err(Outcome::failed(Enhanced(5, 1, 1), format!("{} has no mailbox", parcel.recipient)));
    };
    let parts = Parts::of(mailbox, parcel.settings.separator);
    let mut argv = Vec::with_capacity(program.argv.len());
    for argument in &program.argv {
        let text = match argument {
            Argument::Text(text) => text,
            Argument::Field(EnvelopeField::Id) => &*id,
            Argument::Field(EnvelopeField::Sender) if is_option(sender) => {
                return Err(bad(Enhanced(5, 1, 7), "the address of the sender"));
            }
            Argument::Field(EnvelopeField::Sender) => sender,
            Argument::Field(field) => match parts.get(*field).unwrap_or_default() {
                text if is_option(text) => return Err(bad(Enhanced(5, 1, 3), "the address")),
                text => text,
            },
        };
        argv.push(text.to_owned());
    }
    let environment = vec![
        ("SENDER", sender.to_owned()),
        ("RECIPIENT", mailbox.as_str().to_owned()),
        ("LOCAL", parts.local.clone()),
        ("DOMAIN", parts.domain.clone()),
        ("DETAIL", parts.detail.clone()),
        ("QUEUE_ID", id.clone()),
    ];
    Ok((argv, environment))
}

fn is_option(text: &str) -> bool {
    text.starts_with('-')
}

/// What the placeholders of an address stand for. Quotes of the local part are gone.
struct Parts {
    whole: String,
    local: String,
    user: String,
    detail: String,
    domain: String,
}

impl Parts {
    fn of(mailbox: &Mailbox, separator: Option<Separator>) -> Self {
        let local = mailbox.local_unquoted().into_owned();
        let (user, detail) = separator.and_then(|separator| separator.split(&local)).unwrap_or((&local, ""));
        let (user, detail) = (user.to_owned(), detail.to_owned());
        let (whole, domain) = (mailbox.as_str().to_owned(), mailbox.domain().key().into_owned());
        Self { whole, local, user, detail, domain }
    }

    /// `None` for what is no part of the recipient.
    fn get(&self, field: EnvelopeField) -> Option<&str> {
        match field {
            EnvelopeField::Recipient => Some(&self.whole),
            EnvelopeField::Local => Some(&self.local),
            EnvelopeField::User => Some(&self.user),
            EnvelopeField::Detail => Some(&self.detail),
            EnvelopeField::Domain => Some(&self.domain),
            EnvelopeField::Sender | EnvelopeField::Id => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn program(fields: &[EnvelopeField]) -> Program {
        let first = Argument::Text("/bin/x".into());
        let argv = std::iter::once(first).chain(fields.iter().copied().map(Argument::Field)).collect();
        Program { argv, user: None, time_limit: Duration::from_secs(1) }
    }

    #[test]
    fn an_address_is_never_an_option() {
        let can = |field, address: &str| {
            can_run(&program(&[field]), &Mailbox::parse(address, true).unwrap(), Separator::parse("+"))
        };
        for (field, address, possible) in [
            (EnvelopeField::Local, "joe@b.test", true),
            (EnvelopeField::Local, "-rf@b.test", false),
            (EnvelopeField::Local, "\"-rf x\"@b.test", false),
            (EnvelopeField::Recipient, "-rf@b.test", false),
            // The whole address begins with its quote.
            (EnvelopeField::Recipient, "\"-rf\"@b.test", true),
            (EnvelopeField::Domain, "-rf@b.test", true),
            (EnvelopeField::Detail, "joe+-rf@b.test", false),
            (EnvelopeField::User, "joe+-rf@b.test", true),
            (EnvelopeField::Detail, "joe@b.test", true),
        ] {
            assert_eq!(can(field, address), possible, "{field:?} {address}");
        }
    }
}
