//! What a package needs beside the program: completions of shells, and the schema of the results.

use clap::{Args, CommandFactory as _};
use std::io::{self, Write as _};

/// Print a completion script for a shell
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: clap_complete::Shell,
}

pub(crate) fn completions(args: &CompletionsArgs) -> Result<(), String> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::Cli::command(), "postlab", &mut script);
    print(&script)
}

pub(crate) fn schema() -> Result<(), String> {
    print(format!("{:#}\n", measure::table::schema()).as_bytes())
}

fn print(bytes: &[u8]) -> Result<(), String> {
    io::stdout().write_all(bytes).map_err(|error| format!("write to standard output: {error}"))
}
