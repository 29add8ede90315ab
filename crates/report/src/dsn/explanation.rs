//! The part of a report for its reader.

use super::{
    Report, Row, beginning, boundary, encoding,
    original::original_subject,
    text::{clean, wrapped},
};
use crate::{
    dsn::DsnKind,
    texts::{Language, Placeholder},
};
use mail::{Cause, DeliverByMode, Enhanced, Recipient, UnixMillis};
use std::{borrow::Cow, fmt::Write as _};

/// Stands between two languages.
const RULE: &str = "----------------------------------------------------------------------";

/// "Delivery time expired" (RFC 3463 §3.5).
const EXPIRED: Enhanced = Enhanced(5, 4, 7);

/// The subject, in the first language, as a header field has it.
pub(super) fn subject(report: &Report<'_>) -> String {
    let Some(language) = report.context.texts.languages().first() else { return String::new() };
    let subject = language.notice(report.kind).subject.fill(|placeholder| of_message(report, placeholder));
    mail::encoded_word::encoded(&subject.unwrap_or_default())
}

/// Writes the part, in all languages.
pub(super) fn explanation(out: &mut String, report: &Report<'_>) {
    let languages = report.context.texts.languages();
    let mut text = String::with_capacity(2048);
    for (number, language) in languages.iter().enumerate() {
        if number > 0 {
            let _ = write!(text, "\r\n{RULE}\r\n\r\n");
        }
        for line in &language.notice(report.kind).lines {
            if line.is(Placeholder::Recipients) {
                recipients(&mut text, report, language);
            } else if let Some(line) = line.fill(|placeholder| of_message(report, placeholder)) {
                // A line that was left out leaves no gap.
                if !line.is_empty() || !text.ends_with("\r\n\r\n") {
                    wrapped(&mut text, &line);
                }
            }
        }
    }
    let codes: Vec<&str> = languages.iter().map(Language::code).collect();
    let _ = write!(
        out,
        "--{}\r\nContent-Description: Notification\r\nContent-Type: text/plain; charset=utf-8\r\n\
         Content-Language: {}\r\n{}\r\n{text}\r\n",
        boundary(report.id),
        codes.join(", "),
        encoding(text.as_bytes()),
    );
}

/// Writes a paragraph for each recipient.
fn recipients(out: &mut String, report: &Report<'_>, language: &Language) {
    for (number, row) in report.rows.iter().enumerate() {
        if number > 0 {
            out.push_str("\r\n");
        }
        for line in language.recipient() {
            if let Some(line) = line.fill(|placeholder| of_recipient(report, language, row, placeholder)) {
                wrapped(out, &line);
            }
        }
    }
}

fn of_message<'a>(report: &'a Report<'_>, placeholder: Placeholder) -> Cow<'a, str> {
    let context = report.context;
    match placeholder {
        Placeholder::Hostname => context.reporting_mta.into(),
        Placeholder::Postmaster => context.postmaster.as_str().into(),
        Placeholder::Sender => report.to.as_str().into(),
        Placeholder::Arrived => report.original.arrived.rfc5322().into(),
        Placeholder::Expires => context.gives_up.rfc5322().into(),
        Placeholder::Deadline => deadline(report).map_or_else(String::new, UnixMillis::rfc5322).into(),
        Placeholder::List if report.is_of_list => report.to.as_str().into(),
        Placeholder::Subject => original_subject(context.content).unwrap_or_default().into(),
        Placeholder::Id => report.original.id.to_string().into(),
        _ => "".into(),
    }
}

/// Returns the time by which the sender asked for the delivery, where the notification is about that time: a failure or a delay
/// because it has passed, or a server that may not keep it.
fn deadline(report: &Report<'_>) -> Option<UnixMillis> {
    // The deadline of a sender ends at a list.
    let by = report.original.envelope.options.as_ref()?.deliver_by.filter(|_| !report.is_of_list)?;
    let has_passed = by.deadline <= report.context.now;
    let is_subject = match (report.kind, by.mode) {
        (DsnKind::DeadlineRelayed, _) => true,
        (DsnKind::Delayed, DeliverByMode::Notify) => has_passed,
        (DsnKind::Failed, DeliverByMode::Return) => {
            // The spool does not keep the cause.
            let is_late = |row: &Row<'_>| match row.outcome.cause {
                Cause::Local => row.outcome.status == EXPIRED,
                cause => cause == Cause::Expired,
            };
            has_passed && report.rows.iter().any(is_late)
        }
        _ => false,
    };
    is_subject.then_some(by.deadline)
}

fn of_recipient<'a>(
    report: &'a Report<'_>,
    language: &'a Language,
    row: &'a Row<'_>,
    placeholder: Placeholder,
) -> Cow<'a, str> {
    let Row { recipient, outcome, .. } = *row;
    let server = row.server().filter(|server| !server.is_empty());
    let said = || clean(beginning(row.text, report.rows.len())).into();
    match placeholder {
        Placeholder::Address => recipient.path.as_str().into(),
        Placeholder::Given if report.is_of_list => "".into(),
        Placeholder::Given => given(recipient).unwrap_or_default().into(),
        Placeholder::Reason => language.reason(outcome.status).into(),
        Placeholder::Status => outcome.status.to_string().into(),
        Placeholder::Server => server.unwrap_or_default().into(),
        Placeholder::Reply if server.is_some() => said(),
        Placeholder::Remark if server.is_none() => said(),
        _ => "".into(),
    }
}

/// Returns the address that the sender wrote, if it is another one: that of ORCPT, or the one that was expanded.
fn given(recipient: &Recipient) -> Option<String> {
    let orcpt = recipient.orcpt.as_deref().and_then(|orcpt| orcpt.split_once(';'));
    let orcpt =
        orcpt.filter(|(kind, _)| kind.eq_ignore_ascii_case("rfc822") || kind.eq_ignore_ascii_case("utf-8"));
    let original = || recipient.expansion().map(|expansion| expansion.original.as_str());
    let given = orcpt.map(|(_, address)| address).or_else(original)?;
    (!given.eq_ignore_ascii_case(recipient.path.as_str())).then(|| clean(given))
}
