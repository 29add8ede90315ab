//! `postrider status` and `postrider reload`.

use super::{CliError, Ending, daemon, print};
use crate::{
    control::{
        Gauges, Ledger, Request, Response,
        client::{Client, ClientError},
    },
    sysexits::Exit,
};
use config::Settings;
use std::io::Write;

/// The counters, and whether they add up.
pub(super) fn run(json: bool, settings: &Settings, out: &mut dyn Write) -> Ending {
    let (mut ledger, mut gauges) = (None, Gauges::default());
    daemon::ask(settings, &Request::Ledger, &mut |response| {
        match response {
            Response::Ledger(counters) => ledger = Some(counters),
            Response::Gauges(seen) => gauges = seen,
            _ => {}
        }
        Ok(())
    })?;
    let ledger = ledger.ok_or_else(|| CliError::new(Exit::TempFail, "the daemon gave no counters"))?;
    if json {
        let mut value = serde_json::to_value(ledger).map_err(std::io::Error::from)?;
        value["balances"] = ledger.balances().into();
        value["spool"] = serde_json::to_value(&gauges).map_err(std::io::Error::from)?;
        writeln!(out, "{value}")?;
    } else {
        table(&ledger, out)?;
        spool_table(&gauges, out)?;
    }
    // For monitors: a recipient that is nowhere is a fault of ours, and a daemon whose spool failed ends.
    Ok(match gauges.failure {
        Some(_) => Exit::IoErr,
        None if ledger.balances() => Exit::Ok,
        None => Exit::Software,
    })
}

fn table(ledger: &Ledger, out: &mut dyn Write) -> std::io::Result<()> {
    let rows = [
        ("accepted", ledger.accepted),
        ("delivered", ledger.delivered),
        ("bounced", ledger.bounced),
        ("expired", ledger.expired),
        ("deleted", ledger.deleted),
        ("queued", ledger.queued),
    ];
    for (name, count) in rows {
        writeln!(out, "{name:<10} {count:>12}")?;
    }
    let verdict =
        if ledger.balances() { "every recipient is accounted for" } else { "THE LEDGER DOES NOT BALANCE" };
    writeln!(out, "{verdict}")
}

fn spool_table(g: &Gauges, out: &mut dyn Write) -> std::io::Result<()> {
    if let Some(failure) = &g.failure {
        writeln!(out, "THE SPOOL HAS FAILED, and the daemon ends: {}", print::plain(failure))?;
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
    let (mean, max) = (g.queue_create_mean_us, g.queue_create_max_us);
    writeln!(out, "durable in {mean:>12} µs on average, {max} µs at most ({} messages)", g.queue_create_count)
}

/// Makes the daemon read its configuration again. What is wrong with it is shown here.
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
