//! Postlab, the laboratory: loads, sinks, disk and store benches, statistics.

mod chart;
mod dns;
mod flame;
mod generate;
mod man;
mod qdir;
mod relay;
mod report;
mod reproduce;
mod run;
mod syscalls;

use clap::{Parser, Subcommand};
use iobench::{
    bonnie, commit_window, delete_cost, disk, disk::fsseq::Kind, ipc, kv, log_buffering, log_format,
    map_lookup, postmark, syslog_loss,
};
use load::{address, agent, compat, hdr, hostile, sink, source};
use measure::{
    arguments, command, command::Failure, device, limits, rounds, scratch, signals, stat, table, usage,
};
use std::process::ExitCode;

/// The version and commit that `--version` prints, such as `0.1.0 (abc123456789)`.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("POSTLAB_BUILT_FROM"), ")");

/// The laboratory for mail transfer agents
#[derive(Debug, Parser)]
#[command(name = "postlab", version = VERSION, propagate_version = false)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Sink(sink::SinkArgs),
    Source(source::SourceArgs),
    Slam(compat::slam::SlamArgs),
    Smtpc(compat::smtpc::SmtpcArgs),
    Gatling(compat::gatling::GatlingArgs),
    Postal(compat::postal::PostalArgs),
    Hostile(hostile::HostileArgs),
    Hdr(hdr::HdrArgs),
    Agent(agent::AgentArgs),
    Run(run::RunArgs),
    Relay(relay::RelayArgs),
    Reproduce(reproduce::ReproduceArgs),
    Compare(run::compare::CompareArgs),
    Chart(chart::ChartArgs),
    Report(report::ReportArgs),
    Postmark(postmark::PostmarkArgs),
    Kv(kv::KvArgs),
    DeleteCost(delete_cost::DeleteCostArgs),
    CommitWindow(commit_window::CommitWindowArgs),
    Bonnie(bonnie::BonnieArgs),
    #[command(visible_alias = "net")]
    Ipc(ipc::IpcArgs),
    MapLookup(map_lookup::MapLookupArgs),
    LogBuffering(log_buffering::LogBufferingArgs),
    LogFormat(log_format::LogFormatArgs),
    SyslogLoss(syslog_loss::SyslogLossArgs),
    Dd(disk::dd::DdArgs),
    Queuedirs(qdir::dirs::QueuedirsArgs),
    Queuerun(qdir::order::QueuerunArgs),
    Syscalls(syscalls::SyscallsArgs),
    IoMix(syscalls::mix::IoMixArgs),
    Flame(flame::FlameArgs),
    DnsPackets(dns::DnsArgs),
    Iostat(disk::iostat::IostatArgs),
    FsyncCheck(disk::fsync_check::FsyncCheckArgs),
    Readwrite(disk::readwrite::ReadwriteArgs),
    #[command(name = "fsperf1")]
    Fsperf(disk::fsperf::FsperfArgs),
    /// Write formatted log lines, with a sync after a number of lines (fsseq1 of sendmail X)
    Fsseq1(disk::fsseq::FsseqArgs),
    /// Write buffered records of 256 to 16384 octets, with a sync after a number of records
    Fsseq2(disk::fsseq::FsseqArgs),
    /// Write 40,000 KB with a write for each record, and a sync after a number of records
    Fsseq3(disk::fsseq::FsseqArgs),
    /// Write 100,000 small records with a write for each, and a sync after a number of records
    Fsseq4(disk::fsseq::FsseqArgs),
    Man(man::ManArgs),
    Completions(generate::CompletionsArgs),
    /// Print the JSON Schema of the results that `--json` prints
    Schema,
    #[command(visible_alias = "ministat")]
    Stat(stat::StatArgs),
}

impl Verb {
    /// Returns whether the command serves until a signal ends it, so that a signal is no early end.
    fn is_server(&self) -> bool {
        match self {
            Self::Sink(_) => true,
            Self::Agent(args) => args.is_server(),
            _ => false,
        }
    }
}

fn main() -> ExitCode {
    command::main(|cli: &Cli| cli.verb.is_server(), |cli| run(cli.verb))
}

/// Does what was asked; false where it found what should not be.
fn run(verb: Verb) -> Result<bool, Failure> {
    let is_good = match verb {
        Verb::Sink(args) => sink::run(&args).map(|()| true)?,
        Verb::Source(args) => source::run(&args)?,
        Verb::Postmark(args) => postmark::run(&args).map(|()| true)?,
        Verb::CommitWindow(args) => commit_window::run(&args).map(|()| true)?,
        Verb::DeleteCost(args) => delete_cost::run(&args).map(|()| true)?,
        Verb::Kv(args) => kv::run(&args).map(|()| true)?,
        Verb::Bonnie(args) => bonnie::run(&args).map(|()| true)?,
        Verb::Ipc(args) => ipc::run(&args).map(|()| true)?,
        Verb::MapLookup(args) => map_lookup::run(&args).map(|()| true)?,
        Verb::LogBuffering(args) => log_buffering::run(&args).map(|()| true)?,
        Verb::LogFormat(args) => log_format::run(&args).map(|()| true)?,
        Verb::SyslogLoss(args) => syslog_loss::run(&args).map(|()| true)?,
        Verb::Dd(args) => disk::dd::run(&args).map(|()| true)?,
        Verb::Queuedirs(args) => qdir::dirs::run(&args)?,
        Verb::Queuerun(args) => qdir::order::run(&args).map(|()| true)?,
        Verb::Syscalls(args) => syscalls::run(&args)?,
        Verb::IoMix(args) => syscalls::mix::run(&args).map(|()| true)?,
        Verb::Flame(args) => flame::run(&args)?,
        Verb::DnsPackets(args) => dns::run(&args)?,
        Verb::Iostat(args) => disk::iostat::run(&args)?,
        Verb::FsyncCheck(args) => disk::fsync_check::run(&args)?,
        Verb::Readwrite(args) => disk::readwrite::run(&args).map(|()| true)?,
        Verb::Fsperf(args) => disk::fsperf::run(&args).map(|()| true)?,
        Verb::Fsseq1(args) => disk::fsseq::run(&args, Kind::Lines).map(|()| true)?,
        Verb::Fsseq2(args) => disk::fsseq::run(&args, Kind::Buffered).map(|()| true)?,
        Verb::Fsseq3(args) => disk::fsseq::run(&args, Kind::Unbuffered).map(|()| true)?,
        Verb::Fsseq4(args) => disk::fsseq::run(&args, Kind::Records).map(|()| true)?,
        Verb::Slam(args) => compat::slam::run(&args)?,
        Verb::Smtpc(args) => compat::smtpc::run(&args)?,
        Verb::Gatling(args) => compat::gatling::run(&args)?,
        Verb::Postal(args) => compat::postal::run(&args)?,
        Verb::Hostile(args) => hostile::run(&args).map(|()| true)?,
        Verb::Hdr(args) => hdr::run(&args).map(|()| true)?,
        Verb::Agent(args) => agent::run(&args)?,
        Verb::Run(args) => run::run(&args)?,
        Verb::Relay(args) => relay::run(&args)?,
        Verb::Reproduce(args) => reproduce::run(&args)?,
        Verb::Compare(args) => run::compare::run(&args)?,
        Verb::Chart(args) => chart::run(&args).map(|()| true)?,
        Verb::Report(args) => report::run(&args).map(|()| true)?,
        Verb::Man(args) => man::run(&args).map(|()| true)?,
        Verb::Completions(args) => generate::completions(&args).map(|()| true)?,
        Verb::Schema => generate::schema().map(|()| true)?,
        Verb::Stat(args) => stat::run(&args).map(|()| true)?,
    };
    Ok(is_good)
}

#[cfg(test)]
mod tests {
    use super::Cli;
    use clap::{CommandFactory as _, Parser as _};
    use std::path::Path;

    const ROWS: &str = include_str!("../../../docs/seeds/rows.toml");

    /// Checks a command of docs/seeds/rows.toml as far as it can be without running it.
    fn check(command: &str) -> Result<(), String> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let words: Vec<&str> = command.split_whitespace().collect();
        let is_there = |path: &str| root.join(path).is_file();
        match words[..] {
            ["postlab", ref others @ ..] => {
                Cli::try_parse_from(&words).map_err(|e| e.to_string())?;
                let scenario = others.get(1).filter(|_| others[0] == "run");
                scenario
                    .map_or(Ok(()), |path| if is_there(path) { Ok(()) } else { Err(format!("no {path}")) })
            }
            ["bpftrace", path] | ["bash", path] if is_there(path) => Ok(()),
            // The script gives its options to `postlab run`.
            ["bash", path, "run", scenario] if is_there(path) => check(&format!("postlab run {scenario}")),
            ["cargo", "test", "-p", package, "--test", test]
                if is_there(&format!("crates/{package}/tests/{test}.rs")) =>
            {
                Ok(())
            }
            // Postrider's command line and the tasks are parsed by tests of their own.
            ["postrider", ..] | ["cargo", "xtask", ..] | ["uname", "-r"] => Ok(()),
            _ => Err("no such command".to_owned()),
        }
    }

    /// The commands that measure nothing themselves, those of `agent` that only prepare, and `ipc`, which has text only.
    const WITHOUT_FORMS: [&str; 9] =
        ["man", "completions", "schema", "chart", "report", "flame", "reproduce", "key", "listen"];

    /// Returns the commands below one that have no commands themselves.
    fn leaves(command: &clap::Command) -> Vec<&clap::Command> {
        let below: Vec<_> = command.get_subcommands().flat_map(leaves).collect();
        if below.is_empty() { vec![command] } else { below }
    }

    #[test]
    fn each_command_that_measures_prints_json_csv_and_markdown() {
        let cli = Cli::command();
        let lacks = |command: &&clap::Command| {
            let has = |form: &str| {
                let mut options = command.get_arguments().filter(|option| option.get_long() == Some(form));
                options.any(|option| !option.get_action().takes_values())
            };
            !["json", "csv", "markdown"].into_iter().all(has)
        };
        let measuring = leaves(&cli).into_iter().filter(|leaf| !WITHOUT_FORMS.contains(&leaf.get_name()));
        let missing: Vec<&str> = measuring.filter(lacks).map(clap::Command::get_name).collect();
        assert!(missing.is_empty(), "flatten measure::table::Format into the arguments of {missing:?}");
    }

    #[test]
    fn each_command_in_the_table_of_the_texts_exists() {
        let rows: toml::Table = ROWS.parse().unwrap();
        let rows = rows["row"].as_array().unwrap();
        assert_eq!(rows.len(), 109);
        let wrong: Vec<String> = rows
            .iter()
            .filter_map(|row| {
                let command = row["command"].as_str().unwrap();
                check(command).err().map(|error| format!("row {}: {command}: {error}", row["number"]))
            })
            .collect();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        assert!(check("postlab nonsense").is_err() && check("postlab run nowhere.toml").is_err());
        assert!(check("bash nowhere.sh").is_err());
        assert!(check("bash lab/scenarios/guest.sh run nowhere.toml").is_err());
    }
}
