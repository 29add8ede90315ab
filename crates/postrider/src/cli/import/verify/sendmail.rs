//! Sendmail: `-bt` applies the rule sets that judge a client, a sender and a recipient, and the one that finds the mailer.

use super::{Answer, End, Resolved, exim::said};
use crate::cli::CliError;
use control::Exit;
use import::SeenEnvelope;
use std::{path::Path, process::Command};

/// Places of the program: `/usr/sbin/sendmail` may be that of another server.
const PROGRAMS: [&str; 4] = [
    "/usr/lib/sm.bin/sendmail",
    "/usr/libexec/sendmail/sendmail",
    "/usr/sbin/sendmail.sendmail",
    "/usr/sbin/sendmail",
];

/// Asks Sendmail.
///
/// # Errors
/// The program is missing.
pub(in super::super) fn ask(
    configuration: &Path,
    envelopes: &[SeenEnvelope],
) -> Result<Vec<Answer>, CliError> {
    let program = PROGRAMS.into_iter().find(|program| Path::new(program).exists());
    let program = program.ok_or_else(|| {
        CliError::new(Exit::Unavailable, format!("none of {} is there", PROGRAMS.join(", ")))
    })?;
    envelopes.iter().map(|envelope| one(program, configuration, envelope)).collect()
}

fn one(program: &str, configuration: &Path, envelope: &SeenEnvelope) -> Result<Answer, CliError> {
    let SeenEnvelope { client, from, to, .. } = envelope;
    let address = match client {
        std::net::IpAddr::V6(client) => format!("IPv6:{client}"),
        client => client.to_string(),
    };
    let name = envelope.name.clone().unwrap_or_else(|| format!("[{client}]"));
    let resolved = if envelope.name.is_some() { "OK" } else { "FAIL" };
    let login = envelope.login.as_ref();
    let login =
        login.map(|login| format!(".D{{auth_authen}}{login}\n.D{{auth_type}}PLAIN\n")).unwrap_or_default();
    let input = format!(
        ".D{{client_addr}}{address}\n.D{{client_name}}{name}\n.D{{client_ptr}}{name}\n.D{{client_resolve}}{resolved}\n{login}.Df<{from}>\n.D{{mail_from}}<{from}>\n\
         check_relay {name} $| {address}\ncheck_mail <{from}>\ncheck_rcpt <{to}>\n"
    );
    let said = said(Command::new(program).arg("-C").arg(configuration).arg("-bt"), &input)?;
    for rules in ["check_relay", "check_mail", "check_rcpt"] {
        match result(&said, rules) {
            Some(result) if result.starts_with("$# error") => return Ok(refused(&result)),
            Some(result) if result.starts_with("$# discard") => return Ok(Answer::Taken(Vec::new())),
            Some(_) => {}
            // With `delay_checks`, all is judged by the last one.
            None if said.contains(&format!("Undefined ruleset {rules}")) => {}
            None => return Ok(Answer::Unknown(format!("sendmail -bt says nothing about {rules}"))),
        }
    }
    let mut verified = Command::new(program);
    verified.arg("-C").arg(configuration).arg("-bv").arg("--").arg(to);
    let told = self::said(&mut verified, "")?;
    let resolved: Vec<Resolved> = told.lines().filter_map(self::resolved).collect();
    Ok(match resolved.is_empty() {
        true => Answer::Unknown(format!("sendmail -bv {to} says {:?}", told.trim())),
        false => Answer::Taken(resolved),
    })
}

/// Returns what a rule set returned at last.
fn result(said: &str, rules: &str) -> Option<String> {
    let line = said.lines().rev().find(|line| {
        let mut words = line.trim_start_matches("> ").split_whitespace();
        words.next() == Some(rules) && words.next() == Some("returns:")
    })?;
    Some(line.split_once("returns:")?.1.trim().to_owned())
}

/// `$# error $@ 5 . 7 . 1 $: "550 Relaying denied"`
fn refused(result: &str) -> Answer {
    let text = result.split_once("$:").map_or(result, |(_, text)| text).trim().trim_matches('"').to_owned();
    let code = result.split_once("$@").map_or("", |(_, code)| code.trim());
    let is_transient = text.starts_with('4') || (!text.starts_with('5') && code.starts_with(['4', 'T']));
    Answer::Refused { is_transient, text }
}

/// `a@far.example... deliverable: mailer esmtp, host far.example., user a@far.example`, or `b@mx.test... User unknown`.
fn resolved(line: &str) -> Option<Resolved> {
    let (address, told) = line.split_once("... ")?;
    let Some((_, found)) = told.split_once("deliverable: mailer ") else {
        return Some(Resolved { recipient: address.to_lowercase(), end: End::Nowhere });
    };
    let mailer = found.split([',', ' ']).next()?;
    let (_, user) = found.split_once(" user ")?;
    let leaves = matches!(mailer, "smtp" | "esmtp" | "smtp8" | "dsmtp" | "relay");
    Some(Resolved { recipient: user.to_lowercase(), end: if leaves { End::Elsewhere } else { End::Here } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_bt_says_is_a_verdict_and_a_mailer() {
        let said = "> check_rcpt         input: < b @ far . example >\ncanonify           input: < b @ far . example >\n\
                    check_rcpt       returns: $# error $@ 5 . 7 . 1 $: \"550 Relaying denied\"\n> parse returns: $# esmtp $@ far . example . $: b < @ far . example . >\n";
        let refusal = result(said, "check_rcpt").unwrap();
        assert_eq!(
            refused(&refusal),
            Answer::Refused { is_transient: false, text: "550 Relaying denied".to_owned() }
        );
        let found = |recipient: &str, end| Some(Resolved { recipient: recipient.to_owned(), end });
        let told = "b@far.example... deliverable: mailer esmtp, host far.example., user b@far.example";
        assert_eq!(self::resolved(told), found("b@far.example", End::Elsewhere));
        assert_eq!(self::resolved("Joe... deliverable: mailer local, user Joe"), found("joe", End::Here));
        assert_eq!(self::resolved("boss@mx.test... User unknown"), found("boss@mx.test", End::Nowhere));
        let later = "$# error $@ 4 . 4 . 3 $: \"451 Temporary system failure\"";
        assert!(matches!(refused(later), Answer::Refused { is_transient: true, .. }));
    }
}
