//! Sendmail 8 beside ours: the script `sendmail-queue.sh` starts it, and prints a JSON line a run.

use crate::{
    rounds::Figure,
    table::{Column, Table},
};
use clap::{Args, ValueEnum};
use serde::Deserialize;
use std::{
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
    /// The scripts that install and run it [default: $POSTLAB_PEERS, or crates/lab/peers]
    #[arg(long, value_name = "DIRECTORY", requires = "peer")]
    peers: Option<PathBuf>,
    /// Messages it queues in each case [default: as many to sort, a tenth to queue: it is slow]
    #[arg(long, value_name = "COUNT", requires = "peer", value_parser = clap::value_parser!(u32).range(1..))]
    peer_messages: Option<u32>,
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

const SORT: [Column; 4] = [
    Column::left("Sendmail 8", "order", 13),
    Column::right("messages", "messages", 8),
    Column::right("queue-read ms", "queue_read_ms", 26),
    Column::right("sort ms", "queue_sort_ms", 26),
];

const SORT_NOTE: &str = "Sort includes starting the first job, as the script sees it from outside.";

/// The name of the part with Sendmail's figures.
const PART: &str = "sendmail";

/// A line of the script.
#[derive(Debug, Deserialize)]
#[serde(tag = "test", rename_all = "lowercase")]
enum Line {
    Create { dirs: u32, senders: u32, messages: u32, queued: u32, us_per_msg: f64, per_s: f64 },
    Sort { order: String, messages: u32, read_s: Option<f64>, sort_s: Option<f64> },
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

    /// Reads and sorts a queue, and adds a part with the figures.
    pub(super) fn sort(&self, table: &mut Table<'_>, messages: u32, rounds: u32) -> Result<(), String> {
        let count = self.peer_messages.unwrap_or(messages).to_string();
        let Some(lines) = self.lines(&["sort", &count], &[], rounds)? else { return Ok(()) };
        let mut orders: Vec<(String, u32, Figure, Figure)> = Vec::new();
        for line in lines {
            let Line::Sort { order, messages, read_s, sort_s } = line else { continue };
            let i = orders.iter().position(|o| o.0 == order).unwrap_or_else(|| {
                orders.push((order, messages, Figure::new(), Figure::new()));
                orders.len() - 1
            });
            read_s.into_iter().for_each(|s| orders[i].2.push(s * 1e3));
            sort_s.into_iter().for_each(|s| orders[i].3.push(s * 1e3));
        }
        table.part(PART, &SORT);
        for (order, messages, read, sort) in orders {
            table.row([order.to_lowercase().into(), messages.into(), read.into(), sort.into()]);
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
        let script = named.unwrap_or_else(|| "crates/lab/peers".into()).join("sendmail-queue.sh");
        let mut command = Command::new(&script);
        command.envs(environment.iter().map(|(name, value)| (name, value)));
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
                    {\"test\": \"sort\", \"order\": \"Host\", \"messages\": 7, \"read_s\": 0.25, \"sort_s\": null, \"to_first_connect_s\": 1}\n";
        let lines = parse(text).unwrap();
        assert!(matches!(&lines[0], Line::Create { dirs: 5, senders: 10, .. }), "{lines:?}");
        assert!(matches!(&lines[1], Line::Sort { order, sort_s: None, .. } if order == "Host"), "{lines:?}");
        assert!(parse("{\"test\":\"other\"}").is_err());
    }
}
