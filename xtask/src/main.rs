//! One verb a chore; see `cargo xtask --help`.
//!
//! CI runs `cargo xtask ci` and nothing else, so that whatever CI says can be had at one's own desk.

mod dependencies;
mod docs;
mod licence;
mod shell;
mod tidy;

use clap::{Parser, Subcommand};
use shell::{Done, cargo};
use std::process::ExitCode;

/// The chores of this repository.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Build the release binary
    Build,
    /// Run every test
    Test {
        /// Only tests whose name contains this
        filter: Option<String>,
    },
    /// Check format, the rules of the house, clippy, and the licences, sources and bans of all dependencies
    Lint,
    /// Make docs/configuration.md and the man pages from the code
    Docs {
        /// Change nothing; fail when they differ
        #[arg(long)]
        check: bool,
    },
}

fn main() -> ExitCode {
    match run(&Cli::parse().verb) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("xtask: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(verb: &Verb) -> Done {
    match verb {
        Verb::Build => cargo(&["build", "--locked", "--release", "--package", "postrider"]),
        Verb::Test { filter } => test(filter.as_deref()),
        Verb::Lint => lint(),
        Verb::Docs { check } => docs::run(*check),
    }
}

fn test(filter: Option<&str>) -> Done {
    let everything = ["test", "--locked", "--workspace"];
    cargo(&everything.into_iter().chain(filter).collect::<Vec<_>>())
}

fn lint() -> Done {
    cargo(&["fmt", "--all", "--check"])?;
    tidy::check()?;
    dependencies::check()?;
    cargo(&["clippy", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"])
}
