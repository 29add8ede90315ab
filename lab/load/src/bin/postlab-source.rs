//! `postlab-source`: `postlab source` by itself, without the rest of the laboratory.

use clap::Parser;
use std::process::ExitCode;

/// Send mail, and measure
#[derive(Debug, Parser)]
#[command(name = "postlab-source", version)]
struct Cli {
    #[command(flatten)]
    args: load::source::SourceArgs,
}

fn main() -> ExitCode {
    measure::command::main(|_| false, |cli: Cli| Ok(load::source::run(&cli.args)?))
}
