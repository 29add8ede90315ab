//! `postrider certificate`: the certificates of the daemon, and a new one from the authority.

use super::{CliError, Ending, args::CertificateCommand};
use config::Settings;
use console::print;
use control::{CertificateInfo, Exit, RenewalInfo, Request, Response};
use mail::UnixMillis;
use server::site_warnings::date;
use std::{io::Write, thread::sleep, time::Duration};
use upkeep::ask;

/// The daemon is asked for the end of a renewal this often, and so many times.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
const LOOKS: u32 = 2 * 15 * 60;

/// Runs `postrider certificate`.
pub(super) fn run(command: &CertificateCommand, settings: &Settings, out: &mut dyn Write) -> Ending {
    match command {
        CertificateCommand::List { json } => list(*json, settings, out),
        CertificateCommand::Renew => renew(settings, out),
    }
}

fn ask(settings: &Settings) -> Result<(Vec<CertificateInfo>, Option<RenewalInfo>), CliError> {
    let (mut certificates, mut renewal) = (Vec::new(), None);
    ask::ask(settings, &Request::Certificates, &mut |response| {
        match response {
            Response::Certificate(seen) => certificates.push(seen),
            Response::Renewal(seen) => renewal = Some(seen),
            _ => {}
        }
        Ok(())
    })?;
    Ok((certificates, renewal))
}

fn list(json: bool, settings: &Settings, out: &mut dyn Write) -> Ending {
    let (certificates, renewal) = ask(settings)?;
    if json {
        let value = serde_json::json!({ "certificates": certificates, "renewal": renewal });
        writeln!(out, "{value}")?;
        return Ok(Exit::Ok);
    }
    for one in &certificates {
        let until = date(one.expires_seconds);
        let over = if one.expires_seconds * 1000 <= UnixMillis::now().0 { "EXPIRED, " } else { "" };
        let names = print::plain(&one.names.join(", "));
        writeln!(out, "{names}: until {until} ({over}{})", one.origin.as_str())?;
    }
    if let Some(renewal) = renewal {
        describe(&renewal, out)?;
    }
    Ok(Exit::Ok)
}

fn describe(renewal: &RenewalInfo, out: &mut dyn Write) -> std::io::Result<()> {
    writeln!(out, "[acme] {}:", print::plain(&renewal.names.join(", ")))?;
    match renewal.due_seconds {
        Some(_) if renewal.failure.is_some() => {}
        Some(due) => writeln!(out, "  next renewal: {}", time(due))?,
        None => writeln!(out, "  there is no certificate with these names yet")?,
    }
    if renewal.is_busy {
        writeln!(out, "  the authority is being asked")?;
    }
    if let Some(failure) = &renewal.failure {
        let (at, text) = (time(failure.at_seconds), print::plain(&failure.text));
        let attempts = mail::counted(renewal.failures_in_a_row.into(), "failed attempt");
        writeln!(out, "  {attempts}; the last at {at}: {text}")?;
        if let Some(next) = renewal.next_attempt_seconds.filter(|_| !renewal.is_busy) {
            writeln!(out, "  next attempt: {}", time(next))?;
        }
    }
    Ok(())
}

fn time(seconds: u64) -> String {
    UnixMillis(seconds.saturating_mul(1000)).rfc3339().replace(".000Z", "Z")
}

/// Asks for a new certificate, and waits for the end of the attempt.
fn renew(settings: &Settings, out: &mut dyn Write) -> Ending {
    let none = || {
        CliError::new(
            Exit::Config,
            "the daemon obtains no certificate: add [acme] with `names`, and restart it",
        )
    };
    let before = ask(settings)?.1.ok_or_else(none)?;
    ask::ask(settings, &Request::Renew, &mut |_| Ok(()))?;
    for _ in 0..LOOKS {
        let now = ask(settings)?.1.ok_or_else(none)?;
        if now.obtained > before.obtained {
            let due = now.due_seconds.map(time).unwrap_or_default();
            writeln!(
                out,
                "obtained a certificate for {}; next renewal: {due}",
                print::plain(&now.names.join(", "))
            )?;
            return Ok(Exit::Ok);
        }
        if let Some(failure) = now.failure.filter(|_| now.failed > before.failed) {
            let text = format!("no certificate was obtained: {}", print::plain(&failure.text));
            return Err(CliError::new(Exit::TempFail, text));
        }
        sleep(LOOK_INTERVAL);
    }
    Err(CliError::new(Exit::TempFail, "the authority has not decided within 15 minutes"))
}
