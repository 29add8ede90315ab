//! `postlab dns-packets`: Motonori's question. A DNS server that gives every domain a mail exchanger, and counts what
//! a mail server asks it while a command runs.

mod packet;

use crate::{
    signals,
    table::{Cell, Column, Format, Table},
};
use clap::Args;
use packet::{KINDS, Question};
use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    os::unix::process::CommandExt as _,
    process::{Command, ExitStatus},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

/// Count a mail server's DNS packets per delivery
///
/// Answers over UDP: the mail exchanger of each domain is mx.DOMAIN, and each name has the address of --answer, except for
/// names with a label such as ip-192-0-2-1, which have the address in the label. COMMAND finds the DNS server's address in
/// $DNS_SERVER, its host in $DNS_HOST and its port in $DNS_PORT, and the address of --answer in $DNS_ANSWER.
#[derive(Debug, Args)]
pub(crate) struct DnsArgs {
    /// The address to listen on; port 0 means any free port. /etc/resolv.conf can name port 53 only
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// The IPv4 address of each name
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    answer: Ipv4Addr,
    /// How many seconds an answer is valid
    #[arg(long, value_name = "SECONDS", default_value = "3600")]
    ttl: u32,
    /// Also show the count per message, for this number of messages
    #[arg(short = 'm', long = "messages", value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    messages: Option<u64>,
    /// Run COMMAND with an /etc/resolv.conf that names this server only, for mail servers with no setting for it; needs root
    #[arg(long)]
    resolv_conf: bool,
    #[command(flatten)]
    format: Format,
    /// The command that starts a mail server, sends mail through it and stops it
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// Counts of questions by type, and of distinct ones.
type Counts = BTreeMap<&'static str, (u64, BTreeMap<String, u64>)>;

/// Between two looks at whether the command has ended.
const LOOK: Duration = Duration::from_millis(50);

/// Serves and counts; false if the command failed.
pub(crate) fn run(args: &DnsArgs) -> Result<bool, String> {
    let stop = Arc::new(AtomicBool::new(false));
    signals::on_end({
        let stop = stop.clone();
        move || stop.store(true, Relaxed)
    })?;
    let socket = UdpSocket::bind(args.listen).map_err(|e| format!("listen on {}: {e}", args.listen))?;
    let address = socket.local_addr().map_err(|e| format!("name the socket: {e}"))?;
    if args.resolv_conf && address.port() != 53 {
        return Err(
            "--resolv-conf: /etc/resolv.conf names no port: --listen 127.0.0.53:53, for example".into()
        );
    }
    socket.set_read_timeout(Some(LOOK)).map_err(|e| format!("listen: {e}"))?;
    let (counts, is_over) = (Mutex::new(Counts::new()), AtomicBool::new(false));
    let status = thread::scope(|scope| {
        let server = scope.spawn(|| serve(args, &socket, &counts, &is_over));
        let status = command(args, address, &stop);
        is_over.store(true, Relaxed);
        let served = server.join().unwrap_or_else(|_| Err("the DNS server panicked".into()));
        served.and(status)
    })?;
    let counts = counts.into_inner().unwrap_or_default();
    let mut table = Table::new(args.format, &COLUMNS, None);
    rows(&counts, args.messages).into_iter().for_each(|row| table.row(row));
    table.note(format!("{} packets: each query has an answer.", all(&counts) * 2));
    table.finish();
    Ok(status.success())
}

fn command(args: &DnsArgs, server: SocketAddr, stop: &AtomicBool) -> Result<ExitStatus, String> {
    let (program, arguments) = args.command.split_first().ok_or("no command")?;
    let mut command = Command::new(program);
    if args.resolv_conf {
        // A mount of its own, which goes with the processes.
        let script = "f=$(mktemp) && echo \"nameserver $DNS_HOST\" >$f && mount --bind $f /etc/resolv.conf && rm $f && exec \"$@\"";
        command = Command::new("unshare");
        command.args(["-m", "sh", "-c", script, "sh", program]);
    }
    command.args(arguments).env("DNS_SERVER", server.to_string());
    command.env("DNS_HOST", server.ip().to_string()).env("DNS_PORT", server.port().to_string());
    command.env("DNS_ANSWER", args.answer.to_string());
    command.process_group(0).stdout(args.format.child_stdout());
    let mut child = command.spawn().map_err(|e| format!("run {program}: {e}"))?;
    signals::wait(&mut child, stop).map_err(|e| format!("wait for {program}: {e}"))
}

fn serve(
    args: &DnsArgs,
    socket: &UdpSocket,
    counts: &Mutex<Counts>,
    is_over: &AtomicBool,
) -> Result<(), String> {
    let mut buffer = [0; 4096];
    while !is_over.load(Relaxed) {
        // A time-out is a look at whether it is over; an error of another packet is that of its sender.
        let Ok((length, from)) = socket.recv_from(&mut buffer) else { continue };
        let Some(question) = Question::parse(&buffer[..length]) else { continue };
        if let Ok(mut counts) = counts.lock() {
            let entry = counts.entry(question.kind()).or_default();
            entry.0 += 1;
            *entry.1.entry(question.name.clone()).or_default() += 1;
        }
        let address = packet::address_in(&question.name).unwrap_or(args.answer);
        let Some(answer) = question.answer(address, args.ttl) else { continue };
        // A client that has gone gets no answer.
        let _ = socket.send_to(&answer, from);
    }
    Ok(())
}

const COLUMNS: [Column; 4] = [
    Column::left("type", "type", 8),
    Column::right("queries", "queries", 10),
    Column::right("distinct names", "distinct_names", 14),
    Column::right("a message", "queries_per_message", 12),
];

/// Returns a row for each type of record, and one for all types.
fn rows(counts: &Counts, messages: Option<u64>) -> Vec<[Cell; 4]> {
    let each = |count: u64| messages.map_or(Cell::Empty, |n| Cell::Number(count as f64 / n as f64, 3));
    let mut rows: Vec<[Cell; 4]> = Vec::new();
    for kind in KINDS {
        let Some((count, names)) = counts.get(kind) else { continue };
        rows.push([kind.into(), (*count).into(), names.len().into(), each(*count)]);
    }
    let all = all(counts);
    rows.push(["all".into(), all.into(), Cell::Empty, each(all)]);
    rows
}

fn all(counts: &Counts) -> u64 {
    counts.values().map(|(count, _)| count).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_counted_by_type_and_for_a_message() {
        let names = |names: &[(&str, u64)]| names.iter().map(|(n, c)| ((*n).to_owned(), *c)).collect();
        let counts = Counts::from([
            ("MX", (6, names(&[("a.test", 4), ("b.test", 2)]))),
            ("A", (2, names(&[("mx.a.test", 2)]))),
        ]);
        let rows = rows(&counts, Some(4));
        let figures: Vec<_> = rows
            .iter()
            .map(|[kind, queries, names, each]| match (kind, queries, names, each) {
                (Cell::Text(kind), Cell::Count(queries), Cell::Count(names), Cell::Number(each, 3)) => {
                    (kind.as_str(), *queries, Some(*names), *each)
                }
                (Cell::Text(kind), Cell::Count(queries), Cell::Empty, Cell::Number(each, 3)) => {
                    (kind.as_str(), *queries, None, *each)
                }
                other => panic!("{other:?}"),
            })
            .collect();
        assert!(figures.contains(&("MX", 6, Some(2), 1.5)), "{figures:?}");
        assert_eq!(figures.last(), Some(&("all", 8, None, 2.0)));
    }
}
