//! The configuration, its files, and the running daemon.

use super::{Finding, lenient};
use config::{Purpose, Settings};
use console::CliError;
use control::{
    DeliveryHelper, Gauges, Request, Response,
    client::{Client, ClientError},
};
use mail::UnixMillis;
use server::{
    access::{self, Checked},
    acme::certificate_file,
    destinations::without_user,
    helper, map_warnings, refuse_ephemeral, site_warnings, unnamed_spools,
};
use std::path::Path;

const CONFIGURATION: &str = "configuration";
const CERTIFICATES: &str = "certificates";
const ACCOUNTS: &str = "accounts";
const FILES: &str = "files";
const DAEMON: &str = "daemon";

/// Reads the configuration. Returns the settings as far as they can be used.
pub(super) fn load(source: Option<&Path>, is_offline: bool) -> (Option<Settings>, Vec<Finding>) {
    let name = source.map_or("the embedded default".to_owned(), |path| path.display().to_string());
    let loaded = match config::load_with_origins(source, Purpose::Serve) {
        Ok(loaded) => loaded,
        Err(problems) => {
            let text = problems.render(false);
            let first = text.lines().next().unwrap_or_default().to_owned();
            let seen = format!("{name}: {first}");
            let finding =
                Finding::error(CONFIGURATION, seen, "run `postrider config check`, and correct the file");
            return (lenient(source), vec![finding]);
        }
    };
    let settings = loaded.settings;
    let mut findings = Vec::new();
    if source.is_none() {
        let seen = "there is no configuration file: the embedded default serves this machine only";
        let advice = if Path::new("postrider.toml").is_file() {
            "write `--config postrider.toml` for the file in this folder, or run `postrider quickstart`"
        } else {
            "run `postrider quickstart`"
        };
        findings.push(Finding::warning(CONFIGURATION, seen, advice));
    }
    for warning in helper::warnings(&settings, access::starter(&settings))
        .into_iter()
        .chain(site_warnings::lasting_warnings(&settings))
    {
        findings.push(Finding::warning(CONFIGURATION, warning, "see `postrider config check`"));
    }
    let (warnings, faults) = map_warnings::warnings_and_faults(&settings).unwrap_or_default();
    for (reference, what) in warnings {
        let seen = format!("{reference}: {what}");
        findings.push(Finding::warning(
            CONFIGURATION,
            seen,
            "correct the line; see `postrider config check`",
        ));
    }
    let are_usable = faults.is_empty();
    for (reference, what, help) in faults {
        findings.push(Finding::error(CONFIGURATION, format!("{reference}: {what}"), help));
    }
    for seen in unnamed_spools::of_other_backend(&settings) {
        findings.push(Finding::error(CONFIGURATION, seen, "see `postrider config check`"));
    }
    for one in unnamed_spools::find(&settings) {
        findings.push(Finding::error(CONFIGURATION, one.to_string(), "see `postrider config check`"));
    }
    if source.is_some() {
        if let Err(text) = refuse_ephemeral(&settings) {
            findings.push(Finding::error(CONFIGURATION, text, "see `postrider config check`"));
        }
        // Maps of servers are asked over the network.
        if are_usable && (!is_offline || settings.maps.is_empty()) {
            let lost = without_user(&settings).unwrap_or_default();
            findings.extend(lost.into_iter().map(|text| {
                Finding::warning(CONFIGURATION, text, "`sendmail -bv ADDRESS` says where it goes")
            }));
            let unread = site_warnings::unread_postmaster(&settings).unwrap_or_default();
            findings.extend(
                unread.map(|text| Finding::warning(CONFIGURATION, text, "see `sendmail -bv postmaster`")),
            );
        }
    }
    if findings.is_empty() {
        findings.push(Finding::ok(CONFIGURATION, format!("{name}: no problems")));
    }
    (Some(settings), findings)
}

/// Asks the services that know users whom `/etc/passwd` lacks.
pub(super) fn accounts() -> Vec<Finding> {
    let checked = machine::accounts::check_services().into_iter();
    let finding = |(service, state): (String, Result<(), String>)| match state {
        Ok(()) => Finding::ok(ACCOUNTS, format!("the service {service} answers")),
        Err(why) => Finding::error(
            ACCOUNTS,
            why,
            format!(
                "start {service}, or remove it from /etc/nsswitch.conf: mail for users whom /etc/passwd lacks is deferred"
            ),
        ),
    };
    checked.map(finding).collect()
}

/// Checks the time of each certificate.
pub(super) fn certificates(settings: &Settings) -> Vec<Finding> {
    let expiries = site_warnings::expiries(settings, UnixMillis::now());
    let mut findings = Vec::new();
    for expiry in expiries {
        let is_obtained = certificate_file(settings).is_some_and(|file| file == expiry.chain);
        let advice = if is_obtained {
            "`postrider certificate list` says why it was not renewed"
        } else {
            "renew it, and run `postrider reload`"
        };
        findings.push(match expiry.warning {
            Some(text) if expiry.is_over => Finding::error(CERTIFICATES, text, advice),
            Some(text) => Finding::warning(CERTIFICATES, text, advice),
            None => {
                let date = site_warnings::date(expiry.expires_seconds);
                Finding::ok(CERTIFICATES, format!("{} is valid until {date}", expiry.chain.display()))
            }
        });
    }
    if settings.acme.is_used() {
        if findings.is_empty() {
            let seen = "the certificate of [acme] is not there yet";
            findings.push(Finding::warning(CERTIFICATES, seen, "`postrider certificate list` says why"));
        }
    } else if settings.tls.certificate.is_none() {
        let seen = "no certificate is configured: a self-signed one is made at each start";
        findings.push(Finding::warning(
            CERTIFICATES,
            seen,
            "get a certificate for the host name; see docs/tls.md",
        ));
    }
    findings
}

/// Checks the files as the user of the daemon.
pub(super) fn access(settings: &Settings, source: Option<&Path>) -> Vec<Finding> {
    let (user, count, faults) = match access::check(settings, source) {
        Ok(Checked::As { user, count, faults }) => (user, count, faults),
        Ok(Checked::Root) => {
            let seen = "the daemon runs as root, which may read and write everything";
            let advice = "write `user = \"postrider\"` in [process]; see docs/operating/sandbox.md";
            return vec![Finding::warning(FILES, seen, advice)];
        }
        Ok(Checked::NeedsRoot(user)) => {
            let seen = format!("unknown what the daemon's user {user} may read and write");
            return vec![Finding::warning(FILES, seen, "run this command as root")];
        }
        Err(text) => return vec![Finding::warning(FILES, text, "run this command as root")],
    };
    if faults.is_empty() {
        return vec![Finding::ok(
            FILES,
            format!("{user} may use all {count} files and folders of the configuration"),
        )];
    }
    let finding = |fault: access::Fault| {
        let make = if fault.is_error { Finding::error } else { Finding::warning };
        make(FILES, fault.text, fault.advice)
    };
    faults.into_iter().map(finding).collect()
}

/// Asks the daemon how it is.
pub(super) fn daemon(settings: &Settings) -> Vec<Finding> {
    let mut client = match Client::connect(&settings.control.socket) {
        Ok(client) => client,
        Err(ClientError::NotRunning) => {
            let seen = "the daemon is not running: no mail is accepted or delivered";
            return vec![Finding::warning(
                DAEMON,
                seen,
                "start it: `systemctl start postrider`, or `postrider serve`",
            )];
        }
        Err(ClientError::Refused(failure)) => {
            return vec![Finding::warning(DAEMON, failure.text(), "run this command as root")];
        }
        Err(error @ (ClientError::Broken(_) | ClientError::NotTaken(_))) => {
            let text = CliError::from(error).text;
            return vec![Finding::error(DAEMON, text, "look at the daemon's log")];
        }
    };
    let (mut counters, mut gauges) = (None, Gauges::default());
    let asked = client.ask(&Request::Status, &mut |response| {
        match response {
            Response::Counters(seen) => counters = Some(seen),
            Response::Gauges(seen) => gauges = *seen,
            _ => {}
        }
        Ok(())
    });
    let Some(counters) = counters.filter(|_| asked.is_ok()) else {
        return vec![Finding::error(DAEMON, "the daemon does not answer", "look at the daemon's log")];
    };
    let mut findings = Vec::new();
    if let Some(failure) = &gauges.failure {
        let seen = format!("the spool has failed: {failure}");
        findings.push(Finding::error(DAEMON, seen, "repair the disk, and start the daemon again"));
    }
    for fault in &gauges.faults {
        findings.push(Finding::error(DAEMON, format!("the spool: {fault}"), "see `postrider spool check`"));
    }
    if let Some(helper) = &gauges.delivery_helper {
        findings.extend(delivery_helper(helper));
    }
    if !gauges.drained_listeners.is_empty() {
        let seen = format!(
            "new sessions get 421 at {}: an operator has drained them",
            gauges.drained_listeners.join(", ")
        );
        findings.push(Finding::warning(DAEMON, seen, "when the maintenance is over: `postrider resume`"));
    }
    for one in gauges.resources.iter().filter(|one| one.is_scarce()) {
        let (seen, advice) =
            (format!("{}: {one}", one.scarcity()), "see docs/monitoring.md, \"Resource limits\"");
        findings.push(Finding::warning(DAEMON, seen, advice));
    }
    if let Some(fault) = &gauges.name_server_fault {
        let advice = "correct /etc/resolv.conf, or set `dns.nameservers`";
        findings.push(Finding::warning(DAEMON, format!("name servers: {fault}"), advice));
    }
    for fault in &gauges.map_faults {
        let advice = "correct the file; `postrider map check` shows all its faults";
        findings.push(Finding::error(DAEMON, format!("a map cannot be used: {fault}"), advice));
    }
    for fault in &gauges.log_faults {
        let seen = format!("events are not logged: {fault}");
        let advice = "read or repair this log, or change [log]; mail is not delayed, but events are lost";
        findings.push(Finding::error(DAEMON, seen, advice));
    }
    if gauges.log_lost > 0 {
        let seen = format!("{} of the logs lost since the start", mail::counted(gauges.log_lost, "line"));
        let advice = "the logs have gaps: `postrider history` knows these messages if it is enabled";
        findings.push(Finding::warning(DAEMON, seen, advice));
    }
    if let Some(fault) = &gauges.sandbox_fault {
        let seen = format!("the sandbox of the running daemon is not complete: {fault}");
        let advice = "see docs/operating/sandbox.md";
        findings.push(Finding::warning(DAEMON, seen, advice));
    }
    if !counters.is_consistent() {
        let seen = "the counters of recipients do not add up";
        findings.push(Finding::error(DAEMON, seen, "report it, with the output of `postrider status`"));
    }
    if findings.is_empty() {
        let queued = mail::counted(counters.queued, "recipient");
        let seen = format!("it runs, with {queued} queued; the spool has no fault");
        findings.push(Finding::ok(DAEMON, seen));
    }
    findings
}

fn delivery_helper(helper: &DeliveryHelper) -> Option<Finding> {
    if let Some(fault) = &helper.fault {
        let seen = format!("mail for other users and programs waits: {fault}");
        return Some(Finding::error(DAEMON, seen, "repair that, and start the daemon again"));
    }
    let times = if helper.failure_count == 1 { "once" } else { "several times" };
    (helper.failure_count > 0).then(|| {
        let seen = format!("the delivery helper has ended {times}, and runs again");
        Finding::warning(DAEMON, seen, "the daemon's log has the reason")
    })
}
