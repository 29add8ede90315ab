//! Sendmail 8 beside ours: the script `sendmail-queue.sh` starts it, and prints a JSON line a run.

use crate::{
    rounds::Figure,
    table::{Column, Table},
};
use clap::{Args, ValueEnum};
use measure::kept_port::kept_port;
use serde::Deserialize;
use std::{
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Whom to measure beside.
#[derive(Debug, Args)]
pub(super) struct PeerArgs {
    /// With --mta: also measure this MTA, on the same disk; needs root, and `PEERS/install sendmail
    /// postfix` once
    #[arg(long, value_enum, requires = "mta")]
    peer: Option<Peer>,
    /// The scripts that install and run it [default: $POSTLAB_PEERS, or lab/peers]
    #[arg(long, value_name = "DIRECTORY", requires = "peer")]
    peers: Option<PathBuf>,
    /// Messages that it queues in each case [default: the same number to sort, and a tenth to queue, since it is slow]
    #[arg(long, value_name = "COUNT", requires = "peer", value_parser = clap::value_parser!(u32).range(1..))]
    peer_messages: Option<u32>,
    /// With queuedirs: instead of its rate, show the system calls by which it makes an entry, from the creation of the
    /// first file on. Needs bpftrace(8)
    #[arg(long, requires = "peer")]
    peer_calls: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Peer {
    /// Sendmail 8
    Sendmail,
}

const CREATE: [Column; 6] = [
    Column::left("Sendmail 8", "backend", 11),
    Column::right("dirs", "directories", 4),
    Column::right("senders", "senders", 7),
    Column::right("messages", "messages", 8),
    Column::right("messages/s", "messages_per_second", 24),
    Column::right("a sender's µs a message", "sender_us_per_message", 27),
];

const CALLS: [Column; 7] = [
    Column::left("Sendmail 8", "call", 11),
    Column::right("senders", "senders", 7),
    Column::right("messages", "messages", 8),
    Column::right("calls a message", "calls_per_message", 24),
    Column::right("total ms", "total_ms", 27),
    Column::right("average µs", "average_us", 27),
    Column::right("messages/s", "messages_per_second", 24),
];

const SORT: [Column; 6] = [
    Column::left("Sendmail 8", "order", 13),
    Column::right("messages", "messages", 8),
    Column::right("queue-read ms", "queue_read_ms", 26),
    Column::right("sort ms", "queue_sort_ms", 26),
    Column::right("stats a message", "stats_per_message", 24),
    Column::right("opens a message", "opens_per_message", 24),
];

const SORT_NOTE: &str = "Sort includes starting the first job, as the script sees it from outside.";

/// The name of the part with Sendmail's figures.
const PART: &str = "sendmail";

/// A line of the script.
#[derive(Debug, Deserialize)]
#[serde(tag = "test", rename_all = "lowercase")]
enum Line {
    Create {
        dirs: u32,
        senders: u32,
        messages: u32,
        queued: u32,
        us_per_msg: f64,
        per_s: f64,
    },
    Sort {
        order: String,
        messages: u32,
        read_s: Option<f64>,
        sort_s: Option<f64>,
        stats: Option<f64>,
        opens: Option<f64>,
    },
    Calls {
        call: String,
        senders: u32,
        messages: u32,
        calls: u64,
        total_ms: f64,
        per_s: f64,
    },
}

impl PeerArgs {
    /// Sends messages that stay with each number of directories and senders, and adds a part with the figures.
    pub(super) fn create(
        &self,
        table: &mut Table<'_>,
        (directories, senders): (&[u32], &[u32]),
        messages: u32,
        rounds: u32,
    ) -> Result<(), String> {
        let count = self.peer_messages.unwrap_or((messages / 10).max(100)).to_string();
        let words = |counts: &[u32]| counts.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
        let grid = [("QUEUE_DIRS", words(directories)), ("SENDERS", words(senders))];
        if self.peer_calls {
            return self.calls(table, &count, &grid, rounds);
        }
        let Some(lines) = self.lines(&["create", &count, &count], &grid, rounds)? else { return Ok(()) };
        let mut cells: Vec<(u32, u32, u32, Figure, Figure)> = Vec::new();
        for line in lines {
            let Line::Create { dirs, senders, messages, queued, us_per_msg, per_s } = line else { continue };
            if queued < messages {
                return Err(format!("queue by Sendmail: of {messages} messages {queued} are there"));
            }
            let i = cells.iter().position(|c| (c.0, c.1) == (dirs, senders)).unwrap_or_else(|| {
                cells.push((dirs, senders, messages, Figure::new(), Figure::new()));
                cells.len() - 1
            });
            cells[i].3.push(per_s);
            cells[i].4.push(us_per_msg * f64::from(senders));
        }
        // The script has them in any order.
        cells.sort_by_key(|cell| (cell.0, cell.1));
        table.part(PART, &CREATE);
        for (dirs, senders, messages, rate, latency) in cells {
            table.row([
                "files".into(),
                dirs.into(),
                senders.into(),
                messages.into(),
                rate.into(),
                latency.into(),
            ]);
        }
        Ok(())
    }

    /// Traces how entries are made, and adds a part with the calls.
    fn calls(
        &self,
        table: &mut Table<'_>,
        count: &str,
        grid: &[(&str, String)],
        rounds: u32,
    ) -> Result<(), String> {
        let Some(lines) = self.lines(&["calls", count], grid, rounds)? else { return Ok(()) };
        let mut rows: Vec<(String, u32, u32, [Figure; 4])> = Vec::new();
        for line in lines {
            let Line::Calls { call, senders, messages, calls, total_ms, per_s } = line else { continue };
            let i = rows.iter().position(|row| row.0 == call && row.1 == senders).unwrap_or_else(|| {
                rows.push((call, senders, messages, [const { Figure::new() }; 4]));
                rows.len() - 1
            });
            let count = calls.max(1) as f64;
            let values = [calls as f64 / f64::from(messages.max(1)), total_ms, total_ms * 1e3 / count, per_s];
            rows[i].3.iter_mut().zip(values).for_each(|(figure, value)| figure.push(value));
        }
        table.part(PART, &CALLS);
        for (call, senders, messages, [calls, total, average, rate]) in rows {
            table.row([
                call.into(),
                senders.into(),
                messages.into(),
                calls.into(),
                total.into(),
                average.into(),
                rate.into(),
            ]);
        }
        table.note("messages/s: while its calls are counted.");
        table.note("`sync` is fsync and fdatasync, `open` openat, `rename` all its forms, `write` pwrite and writev too; `others` all that are no sync.");
        Ok(())
    }

    /// Reads and sorts a queue, and adds a part with the figures.
    pub(super) fn sort(&self, table: &mut Table<'_>, messages: u32, rounds: u32) -> Result<(), String> {
        let count = self.peer_messages.unwrap_or(messages).to_string();
        let Some(lines) = self.lines(&["sort", &count], &[], rounds)? else { return Ok(()) };
        let mut orders: Vec<(String, u32, [Figure; 4])> = Vec::new();
        for line in lines {
            let Line::Sort { order, messages, read_s, sort_s, stats, opens } = line else { continue };
            let i = orders.iter().position(|o| o.0 == order).unwrap_or_else(|| {
                orders.push((order, messages, [const { Figure::new() }; 4]));
                orders.len() - 1
            });
            let values = [read_s.map(|s| s * 1e3), sort_s.map(|s| s * 1e3), stats, opens];
            for (figure, value) in orders[i].2.iter_mut().zip(values) {
                value.into_iter().for_each(|value| figure.push(value));
            }
        }
        table.part(PART, &SORT);
        for (order, messages, [read, sort, stats, opens]) in orders {
            table.row([
                order.to_lowercase().into(),
                messages.into(),
                read.into(),
                sort.into(),
                stats.into(),
                opens.into(),
            ]);
            table.silent_remark(SORT_NOTE);
        }
        table.text(SORT_NOTE);
        Ok(())
    }

    /// Writes the figures to `peer.txt` in a directory of results.
    pub(super) fn keep(&self, table: &Table<'_>, directory: &Path) -> Result<(), String> {
        let path = directory.join("peer.txt");
        std::fs::write(&path, table.part_text(PART)).map_err(|e| format!("write {}: {e}", path.display()))
    }

    /// Returns the output of the script; nothing if no peer was asked for.
    fn lines(
        &self,
        words: &[&str],
        environment: &[(&str, String)],
        rounds: u32,
    ) -> Result<Option<Vec<Line>>, String> {
        let Some(Peer::Sendmail) = self.peer else { return Ok(None) };
        let named = self.peers.clone().or_else(|| std::env::var_os("POSTLAB_PEERS").map(PathBuf::from));
        let script = named.unwrap_or_else(|| "lab/peers".into()).join("sendmail-queue.sh");
        let mut command = Command::new(&script);
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        let mut kept = Vec::new();
        for name in ["SINK_PORT", "PEER_PORT"] {
            if std::env::var_os(name).is_none() {
                let port = kept_port(Ipv4Addr::LOCALHOST).map_err(|e| format!("keep a port: {e}"))?;
                command.env(name, port.1.port().to_string());
                kept.push(port);
            }
        }
        command.args(words).arg(rounds.to_string()).stdin(Stdio::null()).stderr(Stdio::inherit());
        let output = command.output().map_err(|e| format!("run {}: {e}", script.display()))?;
        if !output.status.success() {
            return Err(format!("run {}: it ended with {}", script.display(), output.status));
        }
        parse(&String::from_utf8_lossy(&output.stdout)).map(Some)
    }
}

fn parse(text: &str) -> Result<Vec<Line>, String> {
    // Others' programs may say something on the way.
    let lines = text.lines().filter(|line| line.starts_with('{'));
    lines.map(|line| serde_json::from_str(line).map_err(|e| format!("read `{line}`: {e}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_gets_the_numbers_of_directories_and_senders() {
        use std::os::unix::fs::PermissionsExt as _;
        let peers = tempfile::tempdir().unwrap();
        let script = peers.path().join("sendmail-queue.sh");
        let text = "#!/bin/sh\nfor d in $QUEUE_DIRS; do for s in $SENDERS; do\n\
                    echo \"{\\\"test\\\":\\\"create\\\",\\\"dirs\\\":$d,\\\"senders\\\":$s,\\\"messages\\\":$3,\\\"queued\\\":$3,\
                    \\\"us_per_msg\\\":5,\\\"per_s\\\":9}\"\ndone; done\n";
        std::fs::write(&script, text).unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        let peer = PeerArgs {
            peer: Some(Peer::Sendmail),
            peers: Some(peers.path().to_owned()),
            peer_messages: None,
            peer_calls: false,
        };
        let mut table = Table::new(crate::table::Format::default(), &CREATE, None);
        peer.create(&mut table, (&[1, 2], &[20, 30]), 5000, 1).unwrap();
        let text = table.part_text(PART);
        let rows: Vec<Vec<&str>> =
            text.lines().skip(1).map(|line| line.split_whitespace().take(4).collect()).collect();
        let row = |dirs, senders| vec!["files", dirs, senders, "500"];
        assert_eq!(rows, [row("1", "20"), row("1", "30"), row("2", "20"), row("2", "30")], "{text}");
    }

    #[test]
    fn the_scripts_lines_are_read() {
        let text = "hello\n{\"test\":\"create\",\"dirs\":5,\"senders\":10,\"messages\":7,\"queued\":107,\"us_per_msg\":900,\"per_s\":1111}\n\
                    {\"test\": \"sort\", \"order\": \"Host\", \"messages\": 7, \"read_s\": 0.25, \"sort_s\": null, \"to_first_connect_s\": 1, \"stats\": 1.02, \"opens\": 0.0}\n\
                    {\"test\": \"calls\", \"call\": \"sync\", \"senders\": 1, \"messages\": 7, \"calls\": 14, \"total_ms\": 2.5, \"per_s\": 9}\n";
        let lines = parse(text).unwrap();
        assert!(matches!(&lines[0], Line::Create { dirs: 5, senders: 10, .. }), "{lines:?}");
        assert!(matches!(&lines[1], Line::Sort { order, sort_s: None, .. } if order == "Host"), "{lines:?}");
        assert!(matches!(&lines[2], Line::Calls { call, calls: 14, .. } if call == "sync"), "{lines:?}");
        assert!(parse("{\"test\":\"other\"}").is_err());
    }
}
