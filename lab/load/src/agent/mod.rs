//! `postlab agent`: load from several machines, over TLS.
//!
//! An agent waits for a controller and runs the source for it. Both have the same key file, and trust nobody else: each
//! proves in the TLS handshake that it has the key. The protocol is one JSON object a line; see [`channel::Message`].

mod channel;
mod control;
mod key;
mod serve;

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Send mail from several machines
///
/// `key` makes a key file, which is copied to all machines. `listen` runs on each machine that sends. `run` runs the source on
/// all of them at the same time, each with the same options, and adds up the results.
#[derive(Debug, Args)]
pub struct AgentArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Make a key file
    Key(KeyArgs),
    /// Wait for a controller, and run the source for it
    Listen(serve::ListenArgs),
    /// Run the source on several agents, and add up the results
    Run(control::ControlArgs),
}

#[derive(Debug, Args)]
struct KeyArgs {
    /// The file, which must not exist
    file: PathBuf,
}

/// Does what the command line says; false where messages failed.
///
/// # Errors
/// In words.
pub fn run(args: &AgentArgs) -> Result<bool, String> {
    match &args.verb {
        Verb::Key(args) => key::create(&args.file).map(|()| true),
        Verb::Listen(args) => serve::run(args).map(|()| true),
        Verb::Run(args) => control::run(args),
    }
}

impl AgentArgs {
    /// Does the command serve until a signal ends it?
    pub fn is_server(&self) -> bool {
        matches!(self.verb, Verb::Listen(_))
    }
}

#[cfg(test)]
mod tests;
