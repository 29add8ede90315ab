//! Postlab, the laboratory: loads, sinks, disk and store benches, statistics.

mod address;
mod disk;
mod postmark;
mod report;
mod run;
mod signals;
mod sink;
mod slots;
mod source;
mod stat;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// The laboratory for mail transfer agents
#[derive(Debug, Parser)]
#[command(name = "postlab", version, propagate_version = false)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Sink(sink::SinkArgs),
    Source(source::SourceArgs),
    Run(run::RunArgs),
    Report(report::ReportArgs),
    Postmark(postmark::PostmarkArgs),
    Diskhonesty(disk::honesty::HonestyArgs),
    Readwrite(disk::readwrite::ReadwriteArgs),
    #[command(name = "fsperf1")]
    Fsperf(disk::fsperf::FsperfArgs),
    #[command(visible_alias = "ministat")]
    Stat(stat::StatArgs),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are no errors; nothing can be done where neither can be printed.
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(64) } else { ExitCode::SUCCESS };
        }
    };
    let done = match cli.verb {
        Verb::Sink(args) => sink::run(&args).map(|()| true),
        Verb::Source(args) => source::run(&args),
        Verb::Postmark(args) => postmark::run(&args).map(|()| true),
        Verb::Diskhonesty(args) => disk::honesty::run(&args),
        Verb::Readwrite(args) => disk::readwrite::run(&args).map(|()| true),
        Verb::Fsperf(args) => disk::fsperf::run(&args).map(|()| true),
        Verb::Run(args) => run::run(&args),
        Verb::Report(args) => report::run(&args).map(|()| true),
        Verb::Stat(args) => stat::run(&args).map(|()| true),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("postlab: {error}");
            ExitCode::FAILURE
        }
    }
}
