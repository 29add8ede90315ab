//! The command line's definition: help, man pages and shell completions are generated from it.

mod dkim;
mod import;

pub(crate) use dkim::{DkimCommand, KeyKind, RotateArgs};
pub(crate) use import::{ImportArgs, ImportCli, ImportCommand};

use clap::{Args, Parser, Subcommand};
use console::VERSION;
use control::{Action, Status};
use std::path::PathBuf;
use upkeep::{BackupArgs, BundleArgs, CheckArgs, DoctorArgs, RestoreArgs, SpoolCommand};

/// A mail transfer agent: accepts mail by SMTP, stores it durably before it replies 250, and delivers it
///
/// The configuration file is the one named by --config, or else by the environment variable
/// POSTRIDER_CONFIG, or else /etc/postrider/postrider.toml. If there is none, an embedded default
/// serves this machine only and stores everything in ./postrider-data.
#[derive(Debug, Parser)]
#[command(name = "postrider", version = VERSION, max_term_width = 100)]
#[command(arg_required_else_help = true)]
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
    Serve {
        /// Capture all mail and send none, to test programs that send mail
        ///
        /// Accepts mail for every address, stores it in ./postrider-capture and shows it on standard output. No
        /// configuration is read.
        #[arg(long, conflicts_with = "config")]
        capture: bool,

        /// The address to listen on instead of 127.0.0.1:2525, with --capture or without a configuration file
        ///
        /// With --capture, clients in private networks are served.
        #[arg(long, value_name = "ADDRESS:PORT", conflicts_with = "config", value_parser = listen_address)]
        listen: Option<std::net::SocketAddr>,
    },
    /// Write a configuration for this machine
    ///
    /// Asks for the host name, the domains, the networks, the users and the certificate, unless an option gives them. Writes
    /// a commented configuration and a file of users, and prints the users' passwords (once), the DNS records and the next
    /// commands. An existing configuration is never overwritten without --replace, and existing users are kept. Nothing is
    /// asked if standard input is not a terminal.
    Quickstart(QuickstartArgs),
    /// Check or show the configuration
    Config {
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// Look up keys in maps, or check map files and servers
    #[command(subcommand)]
    Map(MapCommand),
    /// List and change queued messages
    #[command(subcommand)]
    Queue(QueueCommand),
    /// Check, dump, salvage or convert the spool
    ///
    /// `check` reports all faults. `dump` prints records. `salvage` writes messages from damaged and quarantined segments to
    /// files. These three can be used while the daemon runs, and change nothing in the spool; `convert` needs a stopped
    /// daemon.
    ///
    /// There are two kinds of faults. Damage: bytes can be read, but their checksum is wrong, or a file is missing. A read
    /// error: the disk returns an error, so the bytes may still be good. A damaged segment that holds nothing else of use is
    /// quarantined: the daemon renames the file to NAME.quarantined when it starts, and no longer uses it.
    #[command(subcommand)]
    Spool(SpoolCommand),
    /// Check whether this machine, the configuration and the network are ready for mail
    ///
    /// Each line says ok, warning or error, the subject, and what was found; the line below it says what to do. The checks
    /// cover the configuration and when its certificates expire; whether the daemon's user may use the files of the
    /// configuration (if run as root); the running daemon; whether a sync reaches the disk of the spool, its file system and
    /// its free space; limits, kernel and clock; the ports of the listeners; and, without --offline, the name servers, the
    /// host name with its reverse name, and a connection to port 25 of another server. No mail is sent. Each question to the
    /// network takes at most 20 seconds. The exit code is 0 if all is well, 1 with warnings, and 2 with errors.
    Doctor(DoctorArgs),
    /// Check the DNS records of one of your domains, and print those to add
    ///
    /// Compares what DNS says of the domain with this server and its configuration: where its mail goes (MX) and whether those
    /// servers encrypt with a valid certificate; the name and the reverse name of this host; whether SPF permits the addresses
    /// from which this host sends; whether mail is signed and the keys of DKIM are published; the policy of DMARC. Each line says
    /// ok, warning or error; the line below it has the record to write. No mail is sent. The exit code is 0 if all is well, 1
    /// with warnings, and 2 with errors.
    Check(CheckArgs),
    /// Write all queued mail, the configuration and its files into one archive
    ///
    /// The daemon may be running, and is not interrupted. The archive contains every message that was accepted (reply 250)
    /// before the command began and is not finished. Private keys and passwords for other servers are left out, unless
    /// --with-secrets is given. Only the owner can read the archive, since it has the full content of the queued mail. The
    /// exit code is 65 if a message cannot be read; the archive then has all the others.
    Backup(BackupArgs),
    /// Restore the mail of a backup into an empty spool, on hold; or write its files to a directory
    ///
    /// Some messages may have been delivered after the backup was made, so all restored messages are on hold until you have
    /// checked them: `postrider queue list`, then `postrider queue release all` or `postrider queue delete ID`. The daemon
    /// that uses the spool must be stopped. The checksums of the whole archive are verified before anything is written. To
    /// complete a restore that was interrupted, run the same command again.
    Restore(RestoreArgs),
    /// Write an archive without secrets, to send to those who help you
    ///
    /// The archive has the version, the configuration and where each value comes from, the output of `postrider doctor`,
    /// counters and metrics, the queue by destination, the last lines of the log, and a workload: sizes, times and results of
    /// messages, with numbers instead of domains. Its contents are listed before the file is written. It has no passwords, no
    /// keys, and no content of mail. Addresses, host names, logins and IP addresses are replaced, unless --with-addresses is
    /// given. Look at the archive before you send it.
    SupportBundle(BundleArgs),
    /// Import the configuration and the queue of another mail server
    ///
    /// The other server's files are read and never changed. The configuration becomes a commented file for Postrider, with a
    /// report on each setting: mapped, mapped with a note, without a counterpart and what to do instead, or unknown. Queued
    /// mail is put into the spool of the configuration in use, with arrival times, attempts and holds; both servers must be
    /// stopped for this. Importing again adds nothing twice, also after a run that was killed.
    #[command(subcommand)]
    Import(ImportCommand),
    /// Search the history: what happened to messages in the last weeks
    #[command(subcommand)]
    History(HistoryCommand),
    /// Explain where a message is, or what became of it; the same as `postrider queue explain`
    ///
    /// Shows for each queued recipient its status, the last reply, the next attempt, how long the destination has been down,
    /// how many other messages wait for it, when it will bounce, and what to type.
    /// The events of the message follow, from the history. If the message has left the queue, the history alone explains it.
    /// With --at, the state at an earlier time is explained from the events up to that time.
    Why(WhyArgs),
    /// Show how many recipients were accepted, delivered and bounced, and the state of the spool
    ///
    /// Each accepted recipient is delivered, bounced, expired, deleted, moved or queued; the exit code is 70 if these
    /// counters do not add up.
    ///
    /// Each fault of the stored mail has a line `spool fault:`. `damaged` names a place whose checksum was
    /// wrong when the daemon started, a missing segment, or a message whose content is lost.
    /// `cannot be read` names a place for which the disk returned an error when the daemon started: nothing
    /// in it is lost; repair the cause and restart the daemon. `quarantined` names a damaged file that is no
    /// longer used. `compaction pauses` says why the daemon cannot free old segments now: the spool grows
    /// until the cause is repaired. Use `postrider spool check` to check the spool again, and
    /// `postrider spool salvage` to get messages out of damaged and quarantined segments. With --json, the
    /// lines are in spool.faults.
    Status {
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// Print the metrics of docs/metrics.md in Prometheus text format
        #[arg(long, conflicts_with = "json")]
        prometheus: bool,
    },
    /// Hash passwords, and test passwords and tokens
    #[command(subcommand)]
    Auth(AuthCommand),
    /// Make keys that sign mail (DKIM), and compare them with DNS
    #[command(subcommand)]
    Dkim(DkimCommand),
    /// Show the certificates that clients see, or obtain a new one
    #[command(subcommand)]
    Certificate(CertificateCommand),
    /// Show how the configuration would treat a message, and why; nothing is stored or sent
    ///
    /// Applies the rules, checks, limits, aliases and routes of the configuration as the daemon does, with the same look-ups.
    /// Shows each rule with the condition that decided, each look-up with its answer and its duration, and then the replies,
    /// the envelope, and the next hops. The exit code is 0 if everything is accepted, 65 if something is rejected, and 75 if
    /// something is only deferred. Limits begin anew with each test.
    Test(TestArgs),
    /// Make the daemon read its configuration again; sessions continue
    Reload,
    /// Refuse new SMTP sessions with 421, for example before maintenance; deliveries continue
    ///
    /// Open sessions continue until they end, and mail from local programs is still accepted. `postrider status` and
    /// `postrider doctor` show which listeners are drained. `postrider resume` or a restart of the daemon ends it.
    Drain(ListenerArgs),
    /// Accept new SMTP sessions again after `postrider drain`
    Resume(ListenerArgs),
    /// Show the version
    Version,
    /// Write a completion script to standard output
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the man pages to a directory
    ///
    /// To read a page, use `man postrider`, or `man DIR/postrider.1` after writing the pages to DIR.
    Man {
        /// The directory to write to; it is created if it does not exist
        dir: Option<PathBuf>,
    },
    /// Submit a message, as sendmail does; see sendmail(1)
    #[command(disable_help_flag = true)]
    Sendmail {
        /// Options of sendmail, and recipients
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Deliver for the daemon, which starts this command
    #[command(hide = true)]
    DeliverHelper {
        /// Deliver what the daemon asks for
        #[arg(long, conflicts_with = "write")]
        serve: bool,
        /// Write one message as another user
        #[arg(long)]
        write: bool,
    },
    /// List the queue in the format of mailq
    Mailq,
    /// Check the alias files; the daemon notices changed files by itself
    Newaliases,
}

#[derive(Debug, Args)]
pub(crate) struct ListenerArgs {
    /// Only listeners with this address (as the daemon logs it, such as 192.0.2.1:25), this port, or this kind:
    /// mx, relay, submission, submissions or lmtp
    ///
    /// The option can be repeated.
    #[arg(long, value_name = "LISTENER")]
    pub(crate) listener: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct QuickstartArgs {
    /// The name of this server in DNS
    #[arg(long, value_name = "NAME")]
    pub(crate) hostname: Option<String>,
    /// A domain whose mail arrives here; can be repeated
    #[arg(long, value_name = "DOMAIN")]
    pub(crate) domain: Vec<String>,
    /// A network whose clients may send to all domains; can be repeated
    #[arg(long, value_name = "NETWORK")]
    pub(crate) network: Vec<String>,
    /// A user who logs in to send mail, jane or jane@example.com; can be repeated
    #[arg(long, value_name = "USER")]
    pub(crate) user: Vec<String>,
    /// The file with the certificate and its chain; without it, a self-signed certificate is generated
    #[arg(long, value_name = "FILE", requires = "key")]
    pub(crate) certificate: Option<PathBuf>,
    /// The file with the certificate's private key
    #[arg(long, value_name = "FILE", requires = "certificate")]
    pub(crate) key: Option<PathBuf>,
    /// Obtain a certificate from Let's Encrypt; by this you accept the terms of service of letsencrypt.org
    #[arg(long, conflicts_with = "certificate")]
    pub(crate) acme: bool,
    /// The file to write; without it, /etc/postrider/postrider.toml for root, and ./postrider.toml for others
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Keep an existing file as FILE.toml.old and write a new one
    #[arg(long)]
    pub(crate) replace: bool,
    /// Ask nothing, and use the defaults for everything that no option sets
    #[arg(long)]
    pub(crate) no_questions: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum HistoryCommand {
    /// Find messages, rejected commands and suspended destinations; the newest first
    ///
    /// A message is found if its events match all given options. Case matters in a Message-ID only. The history is read from
    /// its files, so the daemon need not run; events appear after about a second. Connections without mail are in the log
    /// only. The exit code is 0 even if nothing is found, 65 if a part of the history is damaged, 66 if there is no history,
    /// and 77 if you may not read it.
    Query(HistoryArgs),
}

#[derive(Debug, Args)]
pub(crate) struct HistoryArgs {
    /// The queue id; the id of a bounce also finds the message that it is about
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<String>,
    /// The Message-ID, with or without < and >
    #[arg(long, value_name = "MESSAGE-ID")]
    pub(crate) message_id: Option<String>,
    /// The reverse-path; `<>` for notifications
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) sender: Option<String>,
    /// A recipient
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) recipient: Option<String>,
    /// The domain of a recipient
    #[arg(long, value_name = "DOMAIN")]
    pub(crate) domain: Option<String>,
    /// The address of the client, or its network, such as 192.0.2.0/24
    #[arg(long, value_name = "ADDRESS", value_parser = control::selection::parse_clients)]
    pub(crate) client: Option<ipnet::IpNet>,
    /// The login of the client, whether it succeeded or failed
    #[arg(long, value_name = "LOGIN")]
    pub(crate) login: Option<String>,
    /// The name or the address of the next hop
    #[arg(long, value_name = "HOST")]
    pub(crate) relay: Option<String>,
    /// A destination that was suspended, such as mx:example.com, and the messages that waited for it; or a recipient's domain
    #[arg(long, value_name = "NAME")]
    pub(crate) destination: Option<String>,
    /// Only events since this time: 2h, 3d, 14:30, 2026-11-21, "2026-11-21 14:30"
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// Only events until this time
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<String>,
    /// The maximum number of messages to print
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    pub(crate) limit: usize,
    /// Print one JSON object for each message: its id and its events, as in the log
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check a configuration file and report its problems
    Check {
        /// The file to check; without it, the configuration file in use
        file: Option<PathBuf>,
        /// Print the problems as a JSON array: file, line, column, code, message and help of each
        #[arg(long)]
        json: bool,
    },
    /// Explain the rules, the checks, or a key in words
    Explain {
        /// `rules`, `checks`, or a key such as `rule.delay` or `limits.max_hops`
        what: String,
    },
    /// Show every value in effect, and where it comes from
    Show {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the JSON Schema of the configuration, for editors and programs that write configurations
    Schema,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AuthCommand {
    /// Print the hash of a password, for a file of users (`users = "passwd:FILE"` in [auth])
    ///
    /// The password is the first line of standard input. On a terminal, it is asked for twice and not shown.
    Hash {
        /// The scheme. With scram-sha-256 a user can log in with SCRAM-SHA-256, PLAIN and LOGIN; with
        /// argon2id, sha512-crypt and bcrypt with PLAIN and LOGIN
        #[arg(long, value_name = "SCHEME", default_value = "argon2id")]
        scheme: HashScheme,
        /// Print a complete line of the file, for this user
        user: Option<String>,
    },
    /// Test a user's password or token against the configuration
    ///
    /// The password or token is the first line of standard input. On a terminal, it is asked for and not shown. The exit
    /// code is 0 if it is right, and 77 if it is wrong or there is no such user.
    Test {
        /// Test a token, as OAUTHBEARER does, by asking the server in [oauth] about it
        #[arg(long)]
        token: bool,
        /// The user name
        user: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct TestArgs {
    /// The kind of the listener: mx, relay, submission, submissions or lmtp
    #[arg(long, default_value = "mx", value_parser = listener_kind)]
    pub(crate) listener: mail::ListenerKind,
    /// The address of the client
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) client: std::net::IpAddr,
    /// The name in EHLO
    #[arg(long, value_name = "NAME", default_value = "mail.client.example")]
    pub(crate) hello: String,
    /// The login of the client, as if the password had been right
    #[arg(long, value_name = "LOGIN")]
    pub(crate) login: Option<String>,
    /// Pretend that TLS is active
    #[arg(long)]
    pub(crate) tls: bool,
    /// Pretend that the client presents a trusted certificate for this e-mail address or host name; implies --tls.
    /// `sha256:FINGERPRINT` stands for a certificate of an unknown authority
    #[arg(long, value_name = "NAME")]
    pub(crate) certificate: Option<String>,
    /// The sender; `<>` for the null reverse-path
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) from: String,
    /// A recipient; can be repeated
    #[arg(long, value_name = "ADDRESS", required = true)]
    pub(crate) to: Vec<String>,
    /// A file with the message, for rules about the content
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
}

fn listen_address(text: &str) -> Result<std::net::SocketAddr, String> {
    text.parse().map_err(|_| "write an address with a port, such as 127.0.0.1:2526 or [::1]:2526".to_owned())
}

fn listener_kind(text: &str) -> Result<mail::ListenerKind, String> {
    use mail::ListenerKind::{Lmtp, Mx, Relay, Submission, Submissions};
    Ok(match text {
        "mx" => Mx,
        "relay" => Relay,
        "submission" => Submission,
        "submissions" => Submissions,
        "lmtp" => Lmtp,
        _ => return Err("write mx, relay, submission, submissions or lmtp".to_owned()),
    })
}

/// A scheme for new passwords.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum HashScheme {
    Argon2id,
    #[value(name = "scram-sha-256")]
    ScramSha256,
    #[value(name = "scram-sha-1")]
    ScramSha1,
    #[value(name = "sha512-crypt")]
    Sha512Crypt,
    Bcrypt,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CertificateCommand {
    /// List the certificates that clients see: names, last day, and where each comes from
    ///
    /// `acme` marks a certificate that the daemon has obtained from the authority in [acme], `file` one from [tls] or
    /// [[certificate]], and `self-signed` one that the daemon generated when it started. With [acme], the time of the next
    /// renewal and the reason of failed attempts follow.
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Obtain a new certificate from the authority in [acme] now, and wait for it
    ///
    /// The exit code is 75 if the authority refuses; the old certificate stays in use. Authorities limit how often you may do
    /// this: Let's Encrypt issues five certificates a week for the same names.
    Renew,
}

#[derive(Debug, Subcommand)]
pub(crate) enum MapCommand {
    /// Look up keys in a map, and print each with its value
    ///
    /// The exit code is 0 if all keys were found, 1 if one was not, and 75 if a look-up failed. A key is lower-cased and
    /// looked up whole; the daemon also looks up parts of an address.
    Query {
        /// text:FILE, aliases:FILE, regex:FILE, cidr:FILE, cdb:FILE, or map:NAME for [map.NAME]
        map: String,
        /// The keys to look up
        #[arg(required = true)]
        keys: Vec<String>,
    },
    /// Read the files of all maps, connect to the servers of named maps, and report faults
    ///
    /// The exit code is 0 if all maps can be used, 65 if a file cannot, and 75 if a server or its query cannot.
    Check,
}

#[derive(Debug, Subcommand)]
pub(crate) enum QueueCommand {
    /// List all messages, or those selected
    List {
        #[command(flatten)]
        chosen: Chosen,
        #[command(flatten)]
        format: Format,
    },
    /// Count all messages, or those selected
    Count {
        #[command(flatten)]
        chosen: Chosen,
    },
    /// Explain where a message is, or what became of it; the same as `postrider why`
    Explain(WhyArgs),
    /// Summarize the queue's recipients by destination, sender or reason, with their ages and the most frequent reason
    ///
    /// The columns are those of Postfix's qshape: T is the total number of recipients. Each other column counts those that
    /// have been queued for fewer minutes than its title says, and that no column to its left counts. Ages are those of the
    /// messages. A line below says why most recipients of the destination wait, or since when it has been down.
    Summary {
        /// What each row stands for: a destination, sender, sender-domain or reason
        #[arg(long, value_enum, default_value_t = control::SummaryBy::Destination, hide_possible_values = true)]
        by: control::SummaryBy,
        /// The maximum number of rows, those with the most recipients first; a line counts the rest
        #[arg(long, value_name = "COUNT")]
        limit: Option<usize>,
        /// Print one JSON object for each row
        #[arg(long)]
        json: bool,
    },
    /// Show the envelope, recipients and header of one message
    Show {
        /// Queue id
        id: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Hold messages, so that no delivery is attempted until they are released
    Hold(Change),
    /// Release held messages
    Release(Change),
    /// Attempt delivery of the selected messages now
    Retry(Change),
    /// Attempt delivery of all messages now, and probe suspended destinations; with a selection, the same as retry
    Flush(Change),
    /// Return messages to their senders: the remaining recipients fail, and the senders get delivery status notifications
    Bounce(Change),
    /// Delete messages without a delivery status notification
    Delete(Change),
    /// Send messages elsewhere: to another address, or by another route
    ///
    /// The selected recipients are replaced by a new message with the same content and its own queue id. NOTIFY and ORCPT are
    /// kept as the sender wrote them. The command refuses an address that has no mailbox here, one that a route refuses, one
    /// whose domain does not exist, and an unknown route. It warns if the server of the address or route cannot be found now.
    /// Messages that are being delivered at the moment are not changed.
    #[command(group = clap::ArgGroup::new("target").required(true))]
    Redirect {
        #[command(flatten)]
        change: Change,
        /// The address that gets the mail of all selected recipients
        #[arg(long, value_name = "ADDRESS", group = "target")]
        to: Option<String>,
        /// The `name` of the [[route]] for the mail
        #[arg(long, value_name = "NAME", group = "target")]
        route: Option<String>,
    },
    /// Attempt delivery of each message once, as `sendmail -q` does, and print how long each phase took
    ///
    /// The daemon must not be running. If you are root, the command runs as the owner of `data_dir`, so that the daemon can
    /// open the files afterwards.
    Run(RunArgs),
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The sort order: fair, none, priority, filename, host (also next-hop), modification, random, time, deadline or smallest
    #[arg(long, default_value = "priority", value_name = "ORDER")]
    pub(crate) order: queue::SortOrder,
    /// The number of concurrent connections
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) runners: u32,
    /// Only read and sort the queue; the daemon may be running
    #[arg(long, short = 'n')]
    pub(crate) dry_run: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl QueueCommand {
    /// Returns the action and its selection, for commands that change messages.
    pub(crate) fn change(&self) -> Option<(Action, &Change)> {
        match self {
            Self::Hold(change) => Some((Action::Hold, change)),
            Self::Release(change) => Some((Action::Release, change)),
            Self::Retry(change) | Self::Flush(change) => Some((Action::Retry, change)),
            Self::Bounce(change) => Some((Action::Bounce, change)),
            Self::Delete(change) => Some((Action::Delete, change)),
            Self::List { .. }
            | Self::Count { .. }
            | Self::Explain { .. }
            | Self::Summary { .. }
            | Self::Show { .. }
            | Self::Redirect { .. }
            | Self::Run(_) => None,
        }
    }
}

/// A selection of messages. All conditions must be met; `*` and `?` are wildcards, letter case is ignored.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Chosen {
    /// Queue ids, `all`, or `-` to read ids from standard input, one per line
    #[arg(value_name = "ID")]
    pub(crate) ids: Vec<String>,
    /// The reverse-path; `<>` selects delivery status notifications
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) sender: Option<String>,
    /// A recipient that is not finished
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) recipient: Option<String>,
    /// The domain of a recipient that is not finished
    #[arg(long, value_name = "DOMAIN")]
    pub(crate) domain: Option<String>,
    /// The address of the client, or its network, such as 192.0.2.0/24
    #[arg(long, value_name = "ADDRESS", value_parser = control::selection::parse_clients)]
    pub(crate) client: Option<ipnet::IpNet>,
    /// The login that submitted the message
    #[arg(long, value_name = "LOGIN")]
    pub(crate) login: Option<String>,
    /// The domain or the destination, such as mx:example.com, of a recipient that is not finished
    #[arg(long, value_name = "NAME")]
    pub(crate) destination: Option<String>,
    /// Only messages accepted longer ago than this, such as 4h
    #[arg(long, value_name = "DURATION")]
    pub(crate) older: Option<String>,
    /// Only messages accepted more recently than this, such as 30m
    #[arg(long, value_name = "DURATION")]
    pub(crate) younger: Option<String>,
    /// The status of a recipient
    #[arg(long, value_enum)]
    pub(crate) status: Option<Status>,
}

/// The message that is explained.
#[derive(Debug, Args)]
pub(crate) struct WhyArgs {
    /// Queue id
    pub(crate) id: String,
    /// Show the state at this time, from the history: 14:30 (today), "2026-11-21 14:30", 2026-11-21T14:30:05+01:00, or 2h (ago)
    #[arg(long, value_name = "TIME")]
    pub(crate) at: Option<String>,
    /// Print a JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct Format {
    /// Print one JSON object per line
    #[arg(long, conflicts_with = "only_ids")]
    pub(crate) json: bool,
    /// Print only the queue ids, one per line
    #[arg(long = "ids")]
    pub(crate) only_ids: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Change {
    #[command(flatten)]
    pub(crate) chosen: Chosen,
    #[command(flatten)]
    pub(crate) format: Format,
    /// Change nothing: list the messages and count the recipients that would be changed
    #[arg(long, short = 'n')]
    pub(crate) dry_run: bool,
    /// The reason, for the history and for listings of held messages; bounces show it to the senders
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
}
