//! Exim: `-bh` plays a session of a client, and `-bt` tells where an address goes. Neither delivers anything.

use super::{Answer, End, Resolved};
use crate::cli::CliError;
use control::Exit;
use import::SeenEnvelope;
use std::{
    ffi::OsStr,
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
};

/// Names of the program: Debian's and its own.
const PROGRAMS: [&str; 2] = ["exim4", "exim"];

/// Asks Exim, with a configuration file or its own.
///
/// # Errors
/// The program is missing or ends with a fault.
pub(in super::super) fn ask(
    configuration: Option<&Path>,
    envelopes: &[SeenEnvelope],
) -> Result<Vec<Answer>, CliError> {
    let is_there = |name: &str| {
        let mut command = Command::new(name);
        command.arg("-bV").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
    };
    let program = PROGRAMS.into_iter().find(|name| is_there(name));
    let program =
        program.ok_or_else(|| CliError::new(Exit::Unavailable, "no program exim4 or exim is there"))?;
    let command = || {
        let mut command = Command::new(program);
        if let Some(file) = configuration {
            command.arg("-C").arg(file);
        }
        command
    };
    envelopes.iter().map(|envelope| one(&command, envelope)).collect()
}

fn one(command: &dyn Fn() -> Command, envelope: &SeenEnvelope) -> Result<Answer, CliError> {
    if envelope.login.is_some() {
        // -bh has no login without its password.
        return Ok(Answer::Unknown("a client had logged in, which Exim cannot be asked about".to_owned()));
    }
    let SeenEnvelope { client, from, to, .. } = envelope;
    let hello = envelope.hello.as_deref().or(envelope.name.as_deref());
    let hello = hello.map_or_else(|| format!("[{client}]"), str::to_owned);
    let dialog = format!("EHLO {hello}\r\nMAIL FROM:<{from}>\r\nRCPT TO:<{to}>\r\nQUIT\r\n");
    let said = said(command().arg("-bh").arg(client.to_string()), &dialog)?;
    // The greeting and three replies.
    let replies = said.lines().filter(|line| is_last_line(line)).take(4);
    if let Some(refusal) = replies.clone().find(|line| line.starts_with(['4', '5'])) {
        return Ok(Answer::Refused { is_transient: refusal.starts_with('4'), text: refusal.to_owned() });
    }
    if replies.count() < 4 {
        return Ok(Answer::Unknown(format!("exim -bh {client} says {:?}", said.trim())));
    }
    let told = self::said(command().arg("-f").arg(format!("<{from}>")).arg("-bt").arg(to), "")?;
    Ok(Answer::Taken(resolved(&told)))
}

/// Reads what `-bt` says: an address begins a line, and what follows about it is indented.
fn resolved(told: &str) -> Vec<Resolved> {
    let mut resolved: Vec<Resolved> = Vec::new();
    for line in told.lines() {
        let address = line.split_whitespace().next().unwrap_or_default().to_lowercase();
        if line.starts_with("  host ") {
            if let Some(one) = resolved.last_mut() {
                one.end = End::Elsewhere;
            }
        } else if !line.starts_with(' ') && !line.is_empty() {
            let end = match line {
                _ if line.contains(" is undeliverable") => End::Nowhere,
                _ if line.contains(" cannot be resolved at this time") => End::Nowhere,
                _ if address.contains('@') => End::Here,
                _ => End::Unknown,
            };
            let recipient = if end == End::Unknown { line.to_owned() } else { address };
            resolved.push(Resolved { recipient, end });
        }
    }
    resolved
}

/// Returns whether the line ends a reply of SMTP (RFC 5321 §4.2.1).
fn is_last_line(line: &str) -> bool {
    let bytes = line.as_bytes();
    bytes.len() >= 4 && bytes[..3].iter().all(u8::is_ascii_digit) && bytes[3] == b' '
}

/// Runs a program with an input, and returns what it writes. Its exit code tells of the addresses only.
pub(super) fn said(command: &mut Command, input: &str) -> Result<String, CliError> {
    let name = command.get_program().to_owned();
    let name = OsStr::to_string_lossy(&name).into_owned();
    let failed = |error: std::io::Error| CliError::new(Exit::Unavailable, format!("run {name}: {error}"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(failed)?;
    if let Some(mut stdin) = child.stdin.take() {
        // The input is short enough for the pipe; a program that has ended reads none.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().map_err(failed)?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_bt_says_is_recipients_with_their_ways() {
        let told = "joe@mx.test\n    <-- info@mx.test\n  router = local_user, transport = mail_spool\nb@far.example\n  \
                    router = dnslookup, transport = remote_smtp\n  host mx.far.example [203.0.113.20] MX=10\n  host y [203.0.113.21]\n\
                    nobody@mx.test is undeliverable: Unrouteable address\n";
        let one = |recipient: &str, end| Resolved { recipient: recipient.to_owned(), end };
        let expected = [
            one("joe@mx.test", End::Here),
            one("b@far.example", End::Elsewhere),
            one("nobody@mx.test", End::Nowhere),
        ];
        assert_eq!(resolved(told), expected);
    }
}
