//! The part of a report for programs (RFC 3464 §2).

use super::{
    DsnKind, Report, Row, beginning, boundary, encoding,
    text::{address_field, ascii, clean, escaped, folded_field},
};
use mail::DeliveryOptions;
use std::{fmt::Write as _, net::IpAddr};

/// Writes the part.
pub(super) fn status(out: &mut String, report: &Report<'_>) {
    let Report { original, context, .. } = report;
    let media = if report.is_utf8 { "message/global-delivery-status" } else { "message/delivery-status" };
    let mut text = format!(
        "Reporting-MTA: dns; {}\r\nX-Postrider-Queue-ID: {}\r\nArrival-Date: {}\r\n",
        context.reporting_mta,
        original.id,
        original.arrived.rfc5322(),
    );
    if let Some(envid) = original.envelope.envid.as_ref().filter(|_| !report.is_of_list) {
        let _ = write!(text, "Original-Envelope-Id: {}\r\n", ascii(envid));
    }
    // A list is another sender, who asked for nothing.
    if let Some(options) = original.envelope.options.as_ref().filter(|_| !report.is_of_list) {
        asked_for(&mut text, options);
    }
    for row in &report.rows {
        one_recipient(&mut text, report, row);
    }
    let _ = write!(
        out,
        "--{}\r\nContent-Description: Delivery report\r\nContent-Type: {media}\r\n{}\r\n{text}\r\n",
        boundary(report.id),
        encoding(text.as_bytes()),
    );
}

/// Writes the times that the sender asked for (RFC 2852 §5, RFC 4865 §6).
fn asked_for(out: &mut String, options: &DeliveryOptions) {
    if let Some(by) = options.deliver_by {
        let _ = write!(out, "Deliver-By-Date: {}\r\n", by.deadline.rfc5322());
    }
    if let Some(release) = options.release {
        let _ = write!(out, "Future-Release-Request: until; {}\r\n", release.rfc3339());
    }
}

fn one_recipient(out: &mut String, report: &Report<'_>, row: &Row<'_>) {
    let Report { kind, context, is_utf8, .. } = *report;
    let Row { recipient, outcome, .. } = *row;
    out.push_str("\r\n");
    if let Some(orcpt) = &recipient.orcpt {
        let orcpt = clean(orcpt);
        address_field(out, "Original-Recipient", &if is_utf8 { orcpt } else { escaped(&orcpt, "") });
    }
    let address = match recipient.path.as_str() {
        address if address.is_ascii() => format!("rfc822; {address}"),
        address if is_utf8 => format!("utf-8; {address}"),
        address => format!("utf-8; {}", escaped(address, "\\+= ")),
    };
    address_field(out, "Final-Recipient", &address);
    let _ = write!(out, "Action: {}\r\nStatus: {}\r\n", kind.action(), outcome.status);
    if let Some(name) = row.relay.and_then(remote_mta) {
        let _ = write!(out, "Remote-MTA: dns; {name}\r\n");
    }
    let diagnostic = if row.relay.is_some() { "smtp" } else { "X-Postrider" };
    let text = beginning(row.text, report.rows.len());
    let text = if is_utf8 { clean(text) } else { ascii(text) };
    folded_field(out, "Diagnostic-Code", &format!("{diagnostic}; {text}"));
    if let Some(at) = row.attempted {
        let _ = write!(out, "Last-Attempt-Date: {}\r\n", at.rfc5322());
    }
    if kind == DsnKind::Delayed {
        let _ = write!(out, "Will-Retry-Until: {}\r\n", context.gives_up.rfc5322());
    }
}

/// The host's name, or its address as a literal (RFC 3464 §2.1.2, RFC 5321 §4.1.3), from a relay such as
/// `mx.example.com[192.0.2.1]:25`. A socket in the file system has none.
fn remote_mta(relay: &str) -> Option<String> {
    let (host, _) = relay.rsplit_once('[')?;
    match host.parse() {
        Ok(IpAddr::V4(ip)) => Some(format!("[{ip}]")),
        Ok(IpAddr::V6(ip)) => Some(format!("[IPv6:{ip}]")),
        Err(_) => Some(ascii(host)).filter(|host| !host.is_empty()),
    }
}
