//! `postrider status` and `postrider reload`.

use super::{CliError, Ending, args::ListenerArgs};
use config::Settings;
use console::print;
use control::{ConnectionShare, Exit};
use control::{
    Gauges, Request, Resource, Response,
    client::{Client, ClientError},
};
use mail::{UnixMillis, counted};
use report::RecipientCounters;
use server::queue_run;
use std::io::Write;
use submission::maildrop;
use upkeep::{ask, doctor::bytes};

/// Fewer directories in the drop directory are no matter.
const DIRECTORIES_MIN: u64 = 100;

/// Prints the metrics in the format that text files of node_exporter have.
pub(super) fn metrics(settings: &Settings, out: &mut dyn Write) -> Ending {
    ask::ask(settings, &Request::Metrics, &mut |response| match response {
        Response::Metrics { text } => out.write_all(metrics::to_plain_format(&text).as_bytes()),
        _ => Ok(()),
    })?;
    Ok(Exit::Ok)
}

/// Prints the recipient counters and the state of the spool.
pub(super) fn run(json: bool, settings: &Settings, out: &mut dyn Write) -> Ending {
    let (mut counters, mut gauges) = (None, Gauges::default());
    ask::ask(settings, &Request::Status, &mut |response| {
        match response {
            Response::Counters(seen) => counters = Some(seen),
            Response::Gauges(seen) => gauges = *seen,
            _ => {}
        }
        Ok(())
    })?;
    let counters = counters.ok_or_else(|| CliError::new(Exit::TempFail, "the daemon gave no counters"))?;
    if json {
        let mut value = serde_json::to_value(counters).map_err(std::io::Error::from)?;
        value["consistent"] = counters.is_consistent().into();
        value["spool"] = serde_json::to_value(&gauges).map_err(std::io::Error::from)?;
        value["queue_run"] = queue_run::last(settings).unwrap_or_default();
        value["spool"]["transactions_per_commit"] = per_commit(&gauges).into();
        writeln!(out, "{value}")?;
    } else {
        table(&counters, out)?;
        spool_table(&gauges, out)?;
        queue_run_line(settings, out)?;
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
        ("moved", counters.moved),
        ("queued", counters.queued),
    ];
    let is_shown = |(name, count): &(&str, u64)| *name != "moved" || *count > 0;
    for (name, count) in rows.into_iter().filter(is_shown) {
        writeln!(out, "{name:<10} {count:>12}")?;
    }
    if counters.is_consistent() {
        return writeln!(out, "every recipient is accounted for");
    }
    let count = counters.accepted.abs_diff(counters.finished() + counters.queued);
    let are = if count == 1 { "is" } else { "are" };
    writeln!(out, "THE COUNTERS ARE INCONSISTENT: {} {are} not accounted for", counted(count, "recipient"))
}

fn spool_table(g: &Gauges, out: &mut dyn Write) -> std::io::Result<()> {
    if let Some(failure) = &g.failure {
        writeln!(out, "THE SPOOL HAS FAILED and the daemon ends: {}", print::plain(failure))?;
    }
    for fault in &g.faults {
        writeln!(out, "spool fault: {}", print::plain(fault))?;
    }
    if let Some(helper) = &g.delivery_helper {
        if let Some(fault) = &helper.fault {
            writeln!(out, "MAIL FOR OTHER USERS AND PROGRAMS WAITS: {}", print::plain(fault))?;
        } else if helper.failure_count > 0 {
            let times = counted(helper.failure_count, "time");
            writeln!(out, "the delivery helper has ended {times}, and runs again")?;
        }
    }
    if !g.drained_listeners.is_empty() {
        let listeners = print::plain(&g.drained_listeners.join(", "));
        writeln!(out, "DRAINED: new sessions get 421 at {listeners}; `postrider resume` ends it")?;
    }
    if g.dropped > 0 {
        writeln!(out, "drop directory: {}", dropped(g))?;
    }
    if g.dropped_directories >= DIRECTORIES_MIN {
        let directories = counted(g.dropped_directories, "directory");
        let whose = g.dropped_directories_of.map(|uid| format!(", most of user {uid}")).unwrap_or_default();
        writeln!(
            out,
            "drop directory: {directories} that cannot be mail{whose}: `postrider doctor` says more"
        )?;
    }
    if let Some(fault) = &g.name_server_fault {
        writeln!(out, "NAME SERVERS: {}", print::plain(fault))?;
    }
    for fault in &g.map_faults {
        writeln!(out, "MAP CANNOT BE USED: {}", print::plain(fault))?;
    }
    for fault in &g.filter_faults {
        writeln!(out, "FILTER FAILS: {}", print::plain(fault))?;
    }
    for fault in &g.list_faults {
        writeln!(out, "DNS LIST FAILS: {}", print::plain(fault))?;
    }
    for fault in &g.log_faults {
        writeln!(out, "EVENTS ARE NOT LOGGED: {}", print::plain(fault))?;
    }
    if g.log_lost > 0 {
        let (lost, were) = (counted(g.log_lost, "line"), if g.log_lost == 1 { "was" } else { "were" });
        writeln!(out, "{lost} of the logs {were} lost since the start")?;
    }
    if let Some(fault) = &g.sandbox_fault {
        writeln!(out, "the sandbox is not complete: {}", print::plain(fault))?;
    }
    if g.durability == config::Durability::None.as_str() {
        writeln!(
            out,
            "DURABILITY IS NONE: the reply 250 does not wait for the disk, and a crash loses accepted mail"
        )?;
    }
    if g.connection_drift > 0 {
        let (client, queue, drift) = (g.client_connections, g.queue_connections, g.connection_drift);
        writeln!(
            out,
            "CONNECTION COUNTS DISAGREED after {drift} events: now {client} of the delivery client, {queue} of the queue"
        )?;
    }
    // Connections have a line of their own, which names what waits for them.
    let is_shown = |one: &&Resource| one.is_scarce() && !one.name.starts_with("connections of");
    for one in g.resources.iter().filter(is_shown) {
        writeln!(out, "{}: {}", one.scarcity().to_uppercase(), print::plain(&one.to_string()))?;
    }
    connection_lines(g, out)?;
    if g.held > 0 {
        writeln!(out, "\n{} on hold: see `postrider queue list --status held`", counted(g.held, "message"))?;
    }
    if g.unsummarized > 0 {
        let count = counted(g.unsummarized, "notification");
        writeln!(
            out,
            "{count} could not be delivered; the next summary to the postmaster lists the failures"
        )?;
    }
    let per_commit = per_commit(g);
    let (messages, free) = (counted(g.messages, "message"), bytes(g.free_bytes));
    writeln!(out, "\nspool: {messages}, {free} free")?;
    let (commits, sync) = (counted(g.commits, "commit"), micros(g.last_sync_us));
    writeln!(out, "{commits} of {per_commit:.1} transactions each; the last sync took {sync}")?;
    let (half, most) = (micros(g.added_wait_p50_us), micros(g.added_wait_p99_us));
    writeln!(out, "group commit delay: p50 {half}, p99 {most}")?;
    if g.unwritten > 0 {
        writeln!(
            out,
            "delivered before they were stored, and never written: {}",
            counted(g.unwritten, "message")
        )?;
    }
    let (mean, max) = (micros(g.accept_latency_mean_us), micros(g.accept_latency_max_us));
    let of = counted(g.accept_latency_count, "message");
    writeln!(out, "time to durability: {mean} on average, {max} at most ({of})")
}

fn connection_lines(g: &Gauges, out: &mut dyn Write) -> std::io::Result<()> {
    for share in g.shares.iter().filter(|share| share.waiting > 0) {
        writeln!(out, "CONNECTIONS ARE SHORT: {}", short(share))?;
    }
    if let Some(silent) = &g.silent {
        let count = counted(silent.connections, "connection");
        let longest = print::plain(&silent.longest.text(UnixMillis::now().0));
        writeln!(out, "no answer from the other side: {count}, the longest {longest}")?;
    }
    let is_short = g.shares.iter().any(|share| share.waiting > 0);
    if let Some(one) = g.busiest_exchanger.as_ref().filter(|one| is_short || one.waiting > 0) {
        let waiting = match one.waiting {
            0 => String::new(),
            count => format!("; waiting for it: {}", counted(count, "domain")),
        };
        let (used, exchanger) = (counted(one.used.into(), "connection"), print::plain(&one.exchanger));
        writeln!(out, "most connections to one mail exchanger: {used} to {exchanger}{waiting}")?;
    }
    if !g.shares.is_empty() {
        let used = g.shares.iter().map(|share| format!("{} {}/{}", share.share, share.used, share.max));
        writeln!(out, "\nconnections out: {}", used.collect::<Vec<_>>().join(", "))?;
    }
    Ok(())
}

/// A duration in the unit that fits: `302 µs`, `4.2 ms`, `1.5 s`.
fn micros(count: u64) -> String {
    match count {
        0..1_000 => format!("{count} µs"),
        1_000..1_000_000 => format!("{:.1} ms", count as f64 / 1e3),
        _ => format!("{:.1} s", count as f64 / 1e6),
    }
}

/// Says for what mail connections are short.
pub(crate) fn short(share: &ConnectionShare) -> String {
    let destinations = match (&*share.share, share.waiting) {
        ("newcomers", 1) => "domain that has not taken mail yet, or not since it last failed,",
        ("newcomers", _) => "domains that have not taken mail yet, or not since they last failed,",
        ("remote", 1) => "domain that takes mail",
        ("remote", _) => "domains that take mail",
        ("routes", 1) => "server of a route",
        ("routes", _) => "servers of routes",
        (_, 1) => "place on this machine",
        _ => "places on this machine",
    };
    let (waiting, used) = (share.waiting, share.used);
    let wait = if waiting == 1 { "waits" } else { "wait" };
    format!("{waiting} {destinations} {wait} for a connection; {used} are in use (delivery.max_connections)")
}

/// Says how much mail of local programs is not in the queue yet, and why.
fn dropped(g: &Gauges) -> String {
    let messages = counted(g.dropped, "message");
    match &g.dropped_reason {
        Some(reason) => {
            format!("{messages} of local programs cannot be queued now: {}", print::plain(reason))
        }
        None => format!("{messages} of local programs, not read yet"),
    }
}

/// Prints a line if mail of local programs waits in the drop directory. While the daemon is down, only root and the daemon's user
/// may look.
pub(super) fn drop_directory(settings: &Settings, out: &mut dyn Write) -> std::io::Result<()> {
    let mut gauges = None;
    let asked = ask::ask(settings, &Request::Status, &mut |response| {
        if let Response::Gauges(seen) = response {
            gauges = Some(*seen);
        }
        Ok(())
    });
    let mut gauges = gauges.filter(|_| asked.is_ok()).unwrap_or_default();
    // The daemon counts them now and then.
    let seen = maildrop::tally(&settings.control.maildrop).unwrap_or_default().messages;
    gauges.dropped = gauges.dropped.max(seen);
    if gauges.dropped > 0 { writeln!(out, "-- drop directory: {}", dropped(&gauges)) } else { Ok(()) }
}

fn per_commit(g: &Gauges) -> f64 {
    g.transactions as f64 / g.commits.max(1) as f64
}

/// The phases of the last queue run, if there was one.
fn queue_run_line(settings: &Settings, out: &mut dyn Write) -> std::io::Result<()> {
    let Some(run) = queue_run::last(settings) else { return Ok(()) };
    let figure = |key: &str| run[key].as_u64().unwrap_or_default();
    writeln!(
        out,
        "queue run: {}, read in {}, sorted in {}, together {}",
        counted(figure("messages"), "message"),
        micros(figure("queue_read_us")),
        micros(figure("queue_sort_us")),
        micros(figure("sum_us"))
    )
}

/// Makes listeners refuse new sessions, or take them again.
pub(super) fn drain(
    args: &ListenerArgs,
    is_drained: bool,
    settings: &Settings,
    out: &mut dyn Write,
) -> Ending {
    let what = if is_drained { "new sessions get 421" } else { "new sessions are accepted" };
    let named = args.listener.iter().cloned().map(Some);
    let all = if args.listener.is_empty() { vec![None] } else { named.collect() };
    for listener in all {
        let request = if is_drained { Request::Drain { listener } } else { Request::Resume { listener } };
        ask::ask(settings, &request, &mut |response| match response {
            Response::Note { text } => writeln!(out, "{}: {what}", print::plain(&text)),
            _ => Ok(()),
        })?;
    }
    Ok(Exit::Ok)
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
