//! `postlab hostile`: clients that a server must endure while it works for others. Sessions that say nothing, sessions that send an
//! octet now and then, connections that end at once, and guessed passwords.

mod clients;

use crate::{
    address::Endpoint,
    limits, signals,
    table::{Cell, Column, Format, Table},
};
use clap::Args;
use clients::{Counts, HostileClients};
use std::{
    net::{Ipv4Addr, SocketAddr},
    time::{Duration, Instant},
};

/// Keep hostile clients at a server: idle and slow sessions, connections that end at once, guessed passwords
#[derive(Debug, Args)]
pub struct HostileArgs {
    /// Sessions that say EHLO and nothing more
    #[arg(long, value_name = "COUNT", default_value = "0", value_parser = clap::value_parser!(u32).range(..=60_000))]
    idle: u32,
    /// Sessions that send an octet of a command every --pause seconds
    #[arg(long, value_name = "COUNT", default_value = "0", value_parser = clap::value_parser!(u32).range(..=60_000))]
    slow: u32,
    /// Seconds between two octets of a slow session
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = crate::arguments::seconds_of)]
    pause: Duration,
    /// Connections a second that are closed after the greeting
    #[arg(long, value_name = "RATE", default_value = "0", value_parser = clap::value_parser!(u32).range(..=100_000))]
    connects: u32,
    /// Wrong passwords a second, by AUTH PLAIN, a session for each
    #[arg(long, value_name = "RATE", default_value = "0", value_parser = clap::value_parser!(u32).range(..=100_000))]
    guesses: u32,
    /// Seconds that the clients stay, counted from when all sessions are open or were refused
    #[arg(long = "for", value_name = "SECONDS", default_value = "30", value_parser = crate::arguments::seconds_of)]
    time: Duration,
    /// Addresses that the clients come from: 127.1.0.1 and the following ones. Servers on other machines see only one
    #[arg(long, value_name = "COUNT", default_value = "1000", value_parser = clap::value_parser!(u32).range(1..=60_000))]
    sources: u32,
    #[command(flatten)]
    format: Format,
    /// Server: HOST:PORT
    #[arg(value_name = "HOST:PORT", value_parser = server_of)]
    server: SocketAddr,
}

fn server_of(text: &str) -> Result<SocketAddr, String> {
    let endpoint = Endpoint::parse(text, Some(25))?;
    let Endpoint::Inet { host: Some(host), port } = endpoint else {
        return Err(format!("`{text}`: write HOST:PORT"));
    };
    let found = std::net::ToSocketAddrs::to_socket_addrs(&(host.as_str(), port));
    let mut addresses = found.map_err(|error| format!("{host}: {error}"))?;
    addresses.find(SocketAddr::is_ipv4).ok_or_else(|| format!("{host} has no IPv4 address"))
}

const COLUMNS: [Column; 6] = [
    Column::left("clients", "clients", 10),
    Column::right("wanted", "wanted", 10),
    Column::right("reached", "reached", 10),
    Column::right("refused", "refused", 10),
    Column::right("lost", "lost", 10),
    Column::right("failed", "failed", 10),
];

/// Keeps the clients for their time, and prints their counts.
///
/// # Errors
/// The clients cannot be started.
pub fn run(args: &HostileArgs) -> Result<(), String> {
    limits::raise_files();
    let needed = u64::from(args.idle) + u64::from(args.slow) + 1000;
    if limits::files() < needed {
        return Err(format!(
            "open {needed} files: the limit is {}; raise it with ulimit -n",
            limits::files()
        ));
    }
    let sources = if args.server.ip().is_loopback() { args.sources } else { 0 };
    let clients = HostileClients::new(args.server, sources, args.pause);
    let stop = clients.clone();
    signals::on_end(move || stop.end())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("start the clients: {error}"))?;
    let seconds = runtime.block_on(stay(args, &clients));
    // Sessions end with the runtime.
    drop(runtime);
    print(args, &clients, seconds);
    Ok(())
}

/// Runs the clients, and returns for how many seconds they stayed.
async fn stay(args: &HostileArgs, clients: &HostileClients) -> f64 {
    let sessions = clients.open(args.idle, args.slow);
    clients.until_settled(u64::from(args.idle) + u64::from(args.slow)).await;
    let begun = Instant::now();
    let floods = [clients.flood_connections(args.connects), clients.flood_guesses(args.guesses)];
    tokio::select! {
        () = tokio::time::sleep(args.time) => {}
        () = clients.ended() => {}
    }
    floods.into_iter().for_each(|flood| flood.abort());
    let seconds = begun.elapsed().as_secs_f64();
    drop(sessions);
    seconds
}

fn print(args: &HostileArgs, clients: &HostileClients, seconds: f64) {
    let mut table = Table::new(args.format, &COLUMNS, None);
    table.fact(format!("{} for {seconds:.1} s", args.server));
    let sessions = |counts: &Counts| Cell::Count(counts.open().saturating_sub(counts.lost()));
    let rate = |counts: &Counts| Cell::Number(counts.open() as f64 / seconds.max(1e-3), 1);
    for (name, wanted, counts, reached) in [
        ("idle", args.idle, &clients.idle, sessions(&clients.idle)),
        ("slow", args.slow, &clients.slow, sessions(&clients.slow)),
        ("connects/s", args.connects, &clients.connects, rate(&clients.connects)),
        ("guesses/s", args.guesses, &clients.guesses, rate(&clients.guesses)),
    ] {
        if wanted > 0 {
            let [refused, lost, failed] = [counts.refused(), counts.lost(), counts.failed()].map(Cell::Count);
            table.row([name.into(), Cell::Count(u64::from(wanted)), reached, refused, lost, failed]);
        }
    }
    table.finish();
}

/// Returns the address of the client with this number: one of so many loopback addresses.
fn source(number: u32, count: u32) -> Ipv4Addr {
    let number = number % count;
    Ipv4Addr::new(127, 1, (number / 250) as u8, (number % 250 + 1) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_loopback_addresses_and_come_round() {
        assert_eq!(source(0, 1000), Ipv4Addr::new(127, 1, 0, 1));
        assert_eq!(source(999, 1000), Ipv4Addr::new(127, 1, 3, 250));
        assert_eq!(source(1000, 1000), source(0, 1000));
    }
}
