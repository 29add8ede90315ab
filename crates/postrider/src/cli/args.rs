//! What can be typed. The help, man pages and completions come from here.

use crate::control::{Action, Status};
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;

/// `postrider 0.1.0 (abc1234567)` behind the name.
pub(crate) const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("POSTRIDER_COMMIT"), ")");

/// A mail transfer agent: takes in mail by SMTP, has it on disk before it says so, and moves it on.
///
/// The configuration is the file named by --config, else by the environment variable
/// POSTRIDER_CONFIG, else /etc/postrider/postrider.toml if there is one, else an embedded default
/// that serves this machine and keeps everything in ./postrider-data.
#[derive(Debug, Parser)]
#[command(name = "postrider", version = VERSION, max_term_width = 100)]
#[command(arg_required_else_help = true, disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,

    /// The configuration file
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the daemon in the foreground
    Serve,
    /// Check or show the configuration
    Config {
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// Look at queued messages and change them
    #[command(subcommand)]
    Queue(QueueCommand),
    /// Look into the spool, and check it; the daemon need not run
    ///
    /// These commands find two kinds of fault. Damage: bytes can be read, but their checksum is wrong, or
    /// a file is missing. A read error: the disk answers with an error, so the bytes may still be good.
    /// A damaged segment that holds nothing else of use is quarantined: a start of the daemon renames the
    /// file to NAME.bad and no longer uses it. `check` reports all faults. `salvage` writes messages from
    /// damaged and quarantined segments to files. `check`, `dump` and `salvage` change nothing in the
    /// spool.
    #[command(subcommand)]
    Spool(SpoolCommand),
    /// Tell where a message is, what was last said about it, and when it is tried next
    Why {
        /// Queue id
        id: String,
    },
    /// Show the counters: everything accepted is delivered, bounced, expired, deleted or queued
    ///
    /// A line `spool fault:` is shown for each fault of the stored mail. `damaged` names a place whose
    /// checksum was wrong at the start of the daemon, a missing segment, or a message whose content is
    /// lost. `cannot be read` names a place for which the disk returned an error at the start: nothing in
    /// it is lost; repair the cause and restart the daemon. `quarantined` names a damaged file that is no
    /// longer used. `compaction pauses` says why the daemon cannot free old segments now: the spool grows
    /// until the cause is repaired. Use `postrider spool check` to check the spool again, and
    /// `postrider spool salvage` to get messages out of damaged and quarantined segments. With --json the
    /// lines are in spool.faults.
    #[command(visible_alias = "ledger")]
    Status {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Make the daemon read its configuration again, without dropping a session
    Reload,
    /// Show the version
    Version,
    /// Write a completion script to standard output
    Completions {
        /// For this shell
        shell: clap_complete::Shell,
    },
    /// Write the man pages
    Man {
        /// Into this folder
        #[arg(default_value = ".")]
        dir: PathBuf,
    },
    /// Take in a message as sendmail does; see sendmail(1)
    #[command(disable_help_flag = true)]
    Sendmail {
        /// sendmail's options and recipients
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// List the queue as mailq does
    Mailq,
    /// Succeed: there are no alias files to rebuild
    Newaliases,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check a configuration whole, without starting anything
    Check {
        /// The file; the usual one when it is left out
        file: Option<PathBuf>,
    },
    /// Show every effective value with its origin
    Show {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum QueueCommand {
    /// List messages; all of them unless some are selected
    List {
        #[command(flatten)]
        chosen: Chosen,
        #[command(flatten)]
        format: Format,
    },
    /// Count messages; all of them unless some are selected
    Count {
        #[command(flatten)]
        chosen: Chosen,
    },
    /// Show one message: envelope, recipients, header
    Show {
        /// Queue id
        id: String,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Keep messages, but try nothing
    Hold(Change),
    /// Undo hold
    Release(Change),
    /// Try messages now
    Retry(Change),
    /// Try everything now, and every destination again; with a selection the same as retry
    Flush(Change),
    /// Give messages up, for all recipients that are left: their senders get reports
    Bounce(Change),
    /// Forget messages, for all recipients that are left, without a word to anyone
    Delete(Change),
    /// Go through the queue once, as `sendmail -q` does, and say what each phase took; the daemon
    /// must not be running
    ///
    /// Root does it as the user who owns `data_dir`, so that the daemon can open what was written.
    Run(RunArgs),
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Which message goes first: fair, none, priority, filename, host, modification, random, time or
    /// deadline
    #[arg(long, default_value = "priority", value_name = "ORDER")]
    pub(crate) order: queue::SortOrder,
    /// Connections at a time
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) runners: u32,
    /// Only read and sort; the daemon may be running
    #[arg(long, short = 'n')]
    pub(crate) dry_run: bool,
    /// As JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SpoolCommand {
    /// Verify every record and say what they come to; fails when something is not what was written
    ///
    /// Each fault is one line. `damaged` is a range of bytes whose checksum is wrong. `corrupt` is what
    /// the damage means: missing batches, a missing segment, or a message whose content is lost.
    /// `cannot be read` is a range for which the disk returned an error: the bytes may be good, so repair
    /// the cause and check again. `quarantined` is a damaged file NAME.bad that is no longer used; it is
    /// reported until you remove it. The exit code is 0 when the spool is sound and 65 when there is any
    /// fault. Nothing in the spool is changed.
    Check {
        /// Another spool than the configured ones
        #[arg(long, value_name = "DIR")]
        path: Option<PathBuf>,
        /// As JSON, one object a spool and line
        #[arg(long)]
        json: bool,
    },
    /// Show records as text, one a line, in the order in which they were written
    Dump {
        /// Only those of this message
        id: Option<String>,
        /// Content, too
        #[arg(long)]
        content: bool,
        /// Another spool than the configured one
        #[arg(long, value_name = "DIR")]
        path: Option<PathBuf>,
    },
    /// Bring what can be proved out of damaged segments into files, and say what is missing
    ///
    /// Writes each message that is neither queued nor known to be finished. The messages come from damaged
    /// segments, from quarantined files (NAME.bad), and from messages that are kept out of the queue
    /// because a part of their content is lost. A whole message is written to ID.mail; move that file into
    /// the drop directory to send it. ID.incomplete lacks a part of its content. Look for each id in the
    /// log first: the record that the message was delivered may be in the damage. A place that cannot be
    /// read now is named; repair the cause and run the command again. Nothing in the spool is changed.
    Salvage {
        /// Write the files here instead of `quarantine` in the data folder
        #[arg(long, value_name = "DIR")]
        into: Option<PathBuf>,
        /// Another spool than the configured one
        #[arg(long, value_name = "DIR")]
        path: Option<PathBuf>,
    },
    /// Move every message into a new spool of another engine; the daemon must not be running
    ///
    /// Root does it as the user who owns `data_dir`, so that the daemon can open what was written; the
    /// new folder, or the one it is to be made in, must be that user's.
    Convert {
        /// The engine
        #[arg(long, value_enum)]
        to: NewBackend,
        /// The new spool's folder, empty or still to be made
        #[arg(long, value_name = "DIR")]
        into: PathBuf,
        /// The spool of this queue group instead of that of [spool]
        #[arg(long, value_name = "NAME")]
        group: Option<String>,
    },
}

/// What a spool can be converted to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum NewBackend {
    /// The log of segments
    Log,
    /// Queue directories: two files a message
    QueueDirs,
}

impl QueueCommand {
    /// The change and to what, for those that change.
    pub(crate) fn change(&self) -> Option<(Action, &Change)> {
        match self {
            Self::Hold(change) => Some((Action::Hold, change)),
            Self::Release(change) => Some((Action::Release, change)),
            Self::Retry(change) | Self::Flush(change) => Some((Action::Retry, change)),
            Self::Bounce(change) => Some((Action::Bounce, change)),
            Self::Delete(change) => Some((Action::Delete, change)),
            Self::List { .. } | Self::Count { .. } | Self::Show { .. } | Self::Run(_) => None,
        }
    }
}

/// Which messages. Conditions must all be met; `*` and `?` are wild, letter case does not matter.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Chosen {
    /// Queue ids, `all`, or `-` for ids on standard input, one a line
    #[arg(value_name = "ID")]
    pub(crate) ids: Vec<String>,
    /// Reverse-path; `<>` for that of reports
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) sender: Option<String>,
    /// A recipient that is left
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) recipient: Option<String>,
    /// Where a recipient that is left goes: its domain, or a destination such as mx:example.com
    #[arg(long, value_name = "NAME")]
    pub(crate) destination: Option<String>,
    /// Accepted longer ago than this, such as 4h
    #[arg(long, value_name = "DURATION")]
    pub(crate) older: Option<String>,
    /// Accepted less long ago than this
    #[arg(long, value_name = "DURATION")]
    pub(crate) younger: Option<String>,
    /// Where a recipient that is left is
    #[arg(long, value_enum)]
    pub(crate) status: Option<Status>,
}

#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct Format {
    /// One JSON object a line
    #[arg(long, conflicts_with = "only_ids")]
    pub(crate) json: bool,
    /// Only the queue ids, one a line
    #[arg(long = "ids")]
    pub(crate) only_ids: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Change {
    #[command(flatten)]
    pub(crate) chosen: Chosen,
    #[command(flatten)]
    pub(crate) format: Format,
    /// Only list what would be changed, with every recipient it would be changed for
    #[arg(long, short = 'n')]
    pub(crate) dry_run: bool,
}
