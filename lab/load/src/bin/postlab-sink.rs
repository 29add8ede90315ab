//! `postlab-sink`: `postlab sink` by itself, without the rest of the laboratory.

use clap::Parser;
use std::process::ExitCode;

/// Accept mail, and discard it
#[derive(Debug, Parser)]
#[command(name = "postlab-sink", version)]
struct Cli {
    #[command(flatten)]
    args: load::sink::SinkArgs,
}

fn main() -> ExitCode {
    measure::command::main(|_| true, |cli: Cli| load::sink::run(&cli.args).map(|()| true))
}
