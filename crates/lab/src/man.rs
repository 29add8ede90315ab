//! Man pages, made from the same definitions as the help.

use clap::{Args, CommandFactory as _};
use std::{fs, path::PathBuf};

/// Write man pages: postlab.1, and one for each command
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Where
    directory: PathBuf,
}

/// Writes them.
pub(crate) fn run(args: &ManArgs) -> Result<(), String> {
    let say = |e: std::io::Error| format!("write man pages to {}: {e}", args.directory.display());
    fs::create_dir_all(&args.directory).map_err(say)?;
    clap_mangen::generate_to(crate::Cli::command(), &args.directory).map_err(say)
}
