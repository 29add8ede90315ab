//! `postrider status` and `postrider reload`.

use super::{CliError, Ending, daemon, print};
use config::Settings;
use control::Exit;
use control::{
    Gauges, Request, Response,
    client::{Client, ClientError},
};
use report::RecipientCounters;
use std::io::Write;

/// Prints the recipient counters and the state of the spool.
pub(super) fn run(json: bool, settings: &Settings, out: &mut dyn Write) -> Ending {
    let (mut counters, mut gauges) = (None, Gauges::default());
    daemon::ask(settings, &Request::Status, &mut |response| {
        match response {
            Response::Counters(seen) => counters = Some(seen),
            Response::Gauges(seen) => gauges = seen,
            _ => {}
        }
        Ok(())
    })?;
    let counters = counters.ok_or_else(|| CliError::new(Exit::TempFail, "the daemon gave no counters"))?;
    if json {
        let mut value = serde_json::to_value(counters).map_err(std::io::Error::from)?;
        value["consistent"] = counters.is_consistent().into();
        value["spool"] = serde_json::to_value(&gauges).map_err(std::io::Error::from)?;
        writeln!(out, "{value}")?;
    } else {
        table(&counters, out)?;
        spool_table(&gauges, out)?;
    }
    // For monitors: an unaccounted recipient is a fault of Postrider, and a daemon whose spool failed ends.
    Ok(match gauges.failure {
        Some(_) => Exit::IoErr,
        None if counters.is_consistent() => Exit::Ok,
        None => Exit::Software,
    })
}

fn table(counters: &RecipientCounters, out: &mut dyn Write) -> std::io::Result<()> {
    let rows = [
        ("accepted", counters.accepted),
        ("delivered", counters.delivered),
        ("bounced", counters.bounced),
        ("expired", counters.expired),
        ("deleted", counters.deleted),
        ("queued", counters.queued),
    ];
    for (name, count) in rows {
        writeln!(out, "{name:<10} {count:>12}")?;
    }
    if counters.is_consistent() {
        return writeln!(out, "every recipient is accounted for");
    }
    let count = counters.accepted.abs_diff(counters.finished() + counters.queued);
    let (plural, are) = if count == 1 { ("", "is") } else { ("s", "are") };
    writeln!(out, "THE COUNTERS ARE INCONSISTENT: {count} recipient{plural} {are} not accounted for")
}

fn spool_table(g: &Gauges, out: &mut dyn Write) -> std::io::Result<()> {
    if let Some(failure) = &g.failure {
        writeln!(out, "THE SPOOL HAS FAILED and the daemon ends: {}", print::plain(failure))?;
    }
    for fault in &g.faults {
        writeln!(out, "spool fault: {}", print::plain(fault))?;
    }
    let per_commit = g.transactions as f64 / g.commits.max(1) as f64;
    writeln!(out, "\nspool      {:>12} messages, {} bytes free", g.messages, g.free_bytes)?;
    let (commits, sync) = (g.commits, g.last_sync_us);
    writeln!(
        out,
        "commits    {commits:>12} with {per_commit:.1} transactions each; the last sync took {sync} µs"
    )?;
    let (mean, max) = (g.accept_latency_mean_us, g.accept_latency_max_us);
    writeln!(
        out,
        "durable in {mean:>12} µs on average, {max} µs at most ({} messages)",
        g.accept_latency_count
    )
}

/// Makes the daemon read its configuration again, and prints the problems of a configuration that it rejects.
pub(super) fn reload(settings: &Settings, out: &mut dyn Write) -> Ending {
    let socket = &settings.control.socket;
    let mut client = Client::connect(socket).map_err(|error| match error {
        // It listens where it was told to at its start, and this is the new configuration.
        ClientError::NotRunning => {
            let text = format!(
                "the daemon is not running, or does not listen at {}: where `data_dir` or `control.socket` has \
                 changed since its start, send it SIGHUP",
                socket.display()
            );
            CliError::new(Exit::Unavailable, text)
        }
        other => other.into(),
    })?;
    client.ask(&Request::Reload, &mut |response| match response {
        Response::Note { text } => writeln!(out, "{}", print::plain(&text)),
        _ => Ok(()),
    })?;
    writeln!(out, "reloaded")?;
    Ok(Exit::Ok)
}
