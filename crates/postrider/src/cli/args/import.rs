//! The command line of `postrider import`, which is a program of its own.

use clap::{Args, Parser, Subcommand};
use console::VERSION;
use std::path::PathBuf;

/// Import the configuration and the queue of another mail server
#[derive(Debug, Parser)]
#[command(name = "postrider import", bin_name = "postrider import", version = VERSION, max_term_width = 100)]
#[command(arg_required_else_help = true)]
pub(crate) struct ImportCli {
    #[command(subcommand)]
    pub(crate) command: ImportCommand,

    /// The configuration file
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ImportCommand {
    /// Import from Postfix: main.cf, master.cf, their tables, and the queue directory
    Postfix(ImportArgs),
    /// Import from Sendmail: sendmail.mc or sendmail.cf, their files, and the queue (qf and df files)
    Sendmail(ImportArgs),
    /// Import from Exim: Debian's update-exim4.conf.conf or a complete configuration, and the spool directory
    Exim(ImportArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// The directory of the configuration, by default where Debian has it: /etc/postfix for Postfix, /etc/exim4
    /// for Exim, /etc/mail for Sendmail
    #[arg(value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// The queue to import, such as /var/spool/postfix, /var/spool/mqueue or /var/spool/exim4
    ///
    /// The mail goes into the spool of the configuration in use; see --config. The exit code is 65 if a message is
    /// damaged and was left out, and 75 if one was not imported because a map did not answer.
    #[arg(long, value_name = "DIR")]
    pub(crate) queue: Option<PathBuf>,
    /// Only read and report: write no file and import no mail
    #[arg(long, short = 'n')]
    pub(crate) dry_run: bool,
    /// The file to write the configuration to; files that it needs, such as secrets, are written next to it
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Replace existing files, for example the package's configuration, and keep each as FILE.old
    #[arg(long, requires = "output")]
    pub(crate) replace: bool,
    /// Ask the other server and Postrider about N envelopes from the other server's log, and show the differences
    ///
    /// No mail is sent, and the other server may keep running: a copy of Postfix is asked, on the loopback interface and with
    /// its own queue, from which nothing is delivered; Exim is asked by -bh and -bt, and Sendmail by -bt. Postrider is asked
    /// with the configuration of --config or --output, or else with the one that the import would write. The exit code is 65
    /// if there are differences, and 69 if the other server could not be asked.
    #[arg(long, value_name = "N", conflicts_with = "queue", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) verify: Option<u32>,
    /// Read envelopes from this log instead of the usual one; can be repeated
    #[arg(long, value_name = "FILE", requires = "verify")]
    pub(crate) log: Vec<PathBuf>,
}
