//! The command line's definition: help, man pages and shell completions are generated from it.

mod import;

pub(crate) use import::{ImportArgs, ImportCli, ImportCommand};

use clap::{Args, Parser, Subcommand};
use control::{Action, Status};
use std::path::PathBuf;

/// The version and commit that `--version` prints, such as `0.1.0 (abc1234567)`.
pub(crate) const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("POSTRIDER_COMMIT"), ")");

/// A mail transfer agent: accepts mail by SMTP, stores it durably before it replies 250, and delivers it
///
/// The configuration is the file named by --config, or by the environment variable POSTRIDER_CONFIG,
/// or /etc/postrider/postrider.toml if it exists. Otherwise it is an embedded default that serves this
/// machine and keeps everything in ./postrider-data.
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
        /// Capture all mail and send none: for tests of programs that send mail
        ///
        /// Accepts mail for every address, stores it in ./postrider-capture and shows it on standard output. No configuration
        /// is read.
        #[arg(long, conflicts_with = "config")]
        capture: bool,

        /// The address to listen on instead of 127.0.0.1:2525, with --capture or without a configuration file
        ///
        /// With --capture, clients of private networks are served.
        #[arg(long, value_name = "ADDRESS:PORT", conflicts_with = "config", value_parser = listen_address)]
        listen: Option<std::net::SocketAddr>,
    },
    /// Write a configuration for this machine
    ///
    /// Asks for the host name, the domains, the networks, the users and the certificate, unless options name them. Writes a
    /// commented configuration and a file of users, whose passwords it prints once, and then the DNS records and the next
    /// commands. An existing configuration is never overwritten, and existing users stay. If standard input is not a
    /// terminal, nothing is asked.
    Quickstart(QuickstartArgs),
    /// Check or show the configuration
    Config {
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// Look keys up in maps, or check the files of maps
    #[command(subcommand)]
    Map(MapCommand),
    /// List and change queued messages
    #[command(subcommand)]
    Queue(QueueCommand),
    /// Check, dump, salvage or convert the spool
    ///
    /// All but `convert` can be used while the daemon runs. They find two kinds of fault. Damage: bytes can be read,
    /// but their checksum is wrong, or a file is missing. A read error: the disk returns an error, so the bytes may still be good.
    /// A damaged segment that holds nothing else of use is quarantined: a start of the daemon renames the
    /// file to NAME.quarantined and no longer uses it. `check` reports all faults. `salvage` writes messages from
    /// damaged and quarantined segments to files. `check`, `dump` and `salvage` change nothing in the
    /// spool.
    #[command(subcommand)]
    Spool(SpoolCommand),
    /// Check this machine, the configuration and the network for a mail server
    ///
    /// Each line says ok, warning or error, the subject, and what was seen; the line below says what to do. Checked are: the
    /// configuration and the times of its certificates; whether the user of the daemon may use the files of the configuration
    /// (for root); the running daemon; whether a sync reaches the disk of the spool, its file system and its room; limits, kernel
    /// and clock; the ports of the listeners; and, without --offline, the name servers, the name of the host with its
    /// reverse name, and a connection to port 25 of another server. No mail is sent. Each query to the network has a time limit
    /// of at most 20 seconds. The exit code is 0 if all is well, 1 with warnings, and 2 with errors.
    Doctor(DoctorArgs),
    /// Write all queued mail, the configuration and its files into one archive
    ///
    /// The daemon may be running, and continues to work. Every message that was accepted (reply 250) before the command began,
    /// and is not finished, is in the archive. Private keys and the passwords for other servers are left out
    /// unless --with-secrets is given. Only the owner can read the archive: it has the whole content of the queued mail. The
    /// exit code is 65 if a message cannot be read; the archive then has all the others.
    Backup(BackupArgs),
    /// Put the mail of a backup into an empty spool, on hold; or write its files to a folder
    ///
    /// Some messages may have been delivered after the backup was made. So every restored message is on hold until
    /// you have checked it: `postrider queue list`, then `postrider queue release all` or `postrider queue delete ID`. The daemon
    /// that uses the spool must be stopped. The checksums of the whole archive are verified before anything is written. A
    /// restore that was interrupted continues if you run the same command again.
    Restore(RestoreArgs),
    /// Write an archive for those who help you, without secrets
    ///
    /// The archive has the version, the configuration with its origins, the output of `postrider doctor`, counters and metrics,
    /// the queue by destination, the last lines of the log, and a workload: sizes, times and results of messages, with numbers instead
    /// of domains. The contents are listed before the file is written. Passwords and keys are left out. Addresses, host names,
    /// logins and IP addresses are replaced unless --with-addresses is given. It has no content of mail. Look at the archive before you
    /// send it.
    SupportBundle(BundleArgs),
    /// Import the configuration and the queue of another mail server
    ///
    /// The other server's files are read and never changed. The configuration becomes a commented file for Postrider, and
    /// each setting is reported: mapped, mapped with a note, without counterpart (with what to do instead), or unknown. The
    /// queue is put into the spool of the configuration in use, with arrival times, attempts and holds. For this, both
    /// servers must be stopped. A second run adds nothing, even after a run that was killed.
    #[command(subcommand)]
    Import(ImportCommand),
    /// Search the history: what happened to messages in the last weeks
    #[command(subcommand)]
    History(HistoryCommand),
    /// Explain where a message is, or what became of it; also written `postrider queue explain`
    ///
    /// For each recipient of a queued message: the status, the last outcome, the next attempt, since when its destination is
    /// down, how many other messages wait for the destination, when the recipient fails, and the command that changes something. Then
    /// the events of the message from the history. A message that has left the queue is explained from the history alone.
    /// With --at, the state at an earlier time is explained from the events up to that time.
    Why(WhyArgs),
    /// Show counters of recipients, and the state of the spool
    ///
    /// Each accepted recipient is delivered, bounced, expired, deleted or queued; the exit code is 70 when these
    /// counters do not add up.
    ///
    /// A line `spool fault:` is shown for each fault of the stored mail. `damaged` names a place whose
    /// checksum was wrong at the start of the daemon, a missing segment, or a message whose content is
    /// lost. `cannot be read` names a place for which the disk returned an error at the start: nothing in
    /// it is lost; repair the cause and restart the daemon. `quarantined` names a damaged file that is no
    /// longer used. `compaction pauses` says why the daemon cannot free old segments now: the spool grows
    /// until the cause is repaired. Use `postrider spool check` to check the spool again, and
    /// `postrider spool salvage` to get messages out of damaged and quarantined segments. With --json the
    /// lines are in spool.faults.
    Status {
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// Print the metrics of docs/metrics.md, in the text format of Prometheus
        #[arg(long, conflicts_with = "json")]
        prometheus: bool,
    },
    /// Make hashes of passwords, and try passwords
    #[command(subcommand)]
    Auth(AuthCommand),
    /// Show the certificates that clients see, or obtain a new one
    #[command(subcommand)]
    Certificate(CertificateCommand),
    /// Show what the configuration decides about a message, and why; nothing is stored or sent
    ///
    /// The rules, checks, limits, aliases and routes of the configuration judge the message as the daemon does, with the same
    /// look-ups. Each rule is shown with the condition that decided, each look-up with its answer and its time, and then the
    /// replies, the envelope, and the next hops. The exit code is 0 when everything is accepted, 65 when
    /// something is rejected, and 75 when something is only deferred. Limits begin anew with each test.
    Test(TestArgs),
    /// Make the daemon read its configuration again; sessions continue
    Reload,
    /// Refuse new SMTP sessions with 421, for example before maintenance; deliveries go on
    ///
    /// Open sessions continue until they end, and mail of local programs is still accepted. `postrider status` and
    /// `postrider doctor` name the drained listeners. `postrider resume` or a restart of the daemon opens them again.
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
    /// To read a page: `man postrider`, or `man DIR/postrider.1` after the pages were written to DIR.
    Man {
        /// The directory to write to; it is created if it does not exist
        dir: Option<PathBuf>,
    },
    /// Submit a message as sendmail does; see sendmail(1)
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
    /// Check the files of aliases; the daemon reads a changed file by itself
    Newaliases,
}

#[derive(Debug, Args)]
pub(crate) struct ListenerArgs {
    /// Only the listeners with this address as the daemon logs it, such as 192.0.2.1:25, this port, or this kind:
    /// mx, relay, submission, submissions or lmtp
    ///
    /// The option can be repeated.
    #[arg(long, value_name = "LISTENER")]
    pub(crate) listener: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Skip the checks that need the network: DNS queries, and connections to other machines
    #[arg(long)]
    pub(crate) offline: bool,
    /// The domain whose mail server is looked up and connected to
    #[arg(long, value_name = "DOMAIN", default_value = "gmail.com")]
    pub(crate) domain: String,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct BundleArgs {
    /// The file to write, or a folder for a file postrider-support-TIME.tar.zst
    #[arg(value_name = "FILE|DIR", default_value = ".")]
    pub(crate) to: PathBuf,
    /// Keep addresses, host names, logins and IP addresses as they are
    #[arg(long)]
    pub(crate) with_addresses: bool,
    /// Hours of the history that become the workload
    #[arg(long, value_name = "HOURS", default_value_t = 24)]
    pub(crate) hours: u64,
    /// Skip the checks that need the network, as `postrider doctor --offline` does
    #[arg(long)]
    pub(crate) offline: bool,
    /// The domain whose mail server is looked up and connected to, as in `postrider doctor`
    #[arg(long, value_name = "DOMAIN", default_value = "gmail.com")]
    pub(crate) domain: String,
    /// List the contents only; write nothing
    #[arg(long, short = 'n')]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Args)]
pub(crate) struct BackupArgs {
    /// The file to write, or a folder for a file postrider-HOSTNAME-TIME.tar.zst
    #[arg(value_name = "FILE|DIR")]
    pub(crate) to: PathBuf,
    /// Also copy private keys, and the files with passwords for other servers
    #[arg(long)]
    pub(crate) with_secrets: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    /// The archive of `postrider backup`
    #[arg(value_name = "ARCHIVE")]
    pub(crate) archive: PathBuf,
    /// The spool to write to: an empty folder, or one that does not exist; without it, the spools of the configuration
    #[arg(long, value_name = "DIR")]
    pub(crate) spool: Option<PathBuf>,
    /// Write the configuration, its files and the messages of the drop directory to this folder; no mail is queued
    ///
    /// The folder is created; if it exists, it must be empty, and writable by you only.
    #[arg(long, value_name = "DIR", conflicts_with = "spool")]
    pub(crate) files: Option<PathBuf>,
    /// Verify the archive, and say what is in it; write nothing
    #[arg(long, short = 'n')]
    pub(crate) dry_run: bool,
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
    /// A user who logs in to send, jane or jane@example.com; can be repeated
    #[arg(long, value_name = "USER")]
    pub(crate) user: Vec<String>,
    /// The file with the certificate and its chain; without it, a self-signed certificate is made
    #[arg(long, value_name = "FILE", requires = "key")]
    pub(crate) certificate: Option<PathBuf>,
    /// The file with the certificate's private key
    #[arg(long, value_name = "FILE", requires = "certificate")]
    pub(crate) key: Option<PathBuf>,
    /// Obtain a certificate from Let's Encrypt; you accept the terms of service of letsencrypt.org
    #[arg(long, conflicts_with = "certificate")]
    pub(crate) acme: bool,
    /// The file to write; without it, /etc/postrider/postrider.toml for root, and ./postrider.toml for others
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Keep an existing file as FILE.toml.old and write a new one
    #[arg(long)]
    pub(crate) replace: bool,
    /// Ask nothing, and use the usual values of everything that no option names
    #[arg(long)]
    pub(crate) no_questions: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum HistoryCommand {
    /// Find messages, rejected commands and suspended destinations; the newest first
    ///
    /// A message is found if its events have everything that is asked for. Letter case matters in a Message-ID only. The
    /// history is read from its files, so the daemon need not run; it has events after about a second. Connections
    /// without mail are in the log only. The exit code is 0, even if nothing is found; 65 when a part of the history is
    /// damaged; 66 when there is no history; 77 when you may not read it.
    Query(HistoryArgs),
}

#[derive(Debug, Args)]
pub(crate) struct HistoryArgs {
    /// The queue id; that of a bounce finds the message that it is about, too
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
    /// The login of the client, also of one that failed
    #[arg(long, value_name = "LOGIN")]
    pub(crate) login: Option<String>,
    /// The name or the address of the next hop
    #[arg(long, value_name = "HOST")]
    pub(crate) relay: Option<String>,
    /// A destination that was suspended, such as mx:example.com, with messages that waited for it; or the domain of a recipient
    #[arg(long, value_name = "NAME")]
    pub(crate) destination: Option<String>,
    /// Only events since then: 2h, 3d, 14:30, 2026-11-21, "2026-11-21 14:30"
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// Only events until then
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<String>,
    /// Print at most this many messages
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    pub(crate) limit: usize,
    /// Print one JSON object for each message: its id and its events, as in the log
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check a configuration file and report all its problems
    Check {
        /// The file; without it, the configuration file in use
        file: Option<PathBuf>,
    },
    /// Explain the rules or the checks in words, or one key
    Explain {
        /// `rules`, `checks`, or a key such as `rule.delay` or `limits.max_hops`
        what: String,
    },
    /// Show every effective value, and where it comes from
    Show {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum AuthCommand {
    /// Make the hash of a password for a file of users (`users = "passwd:FILE"` in [auth])
    ///
    /// The password is the first line of standard input; on a terminal it is asked for twice, and not shown.
    Hash {
        /// The scheme. With scram-sha-256 a user can log in with SCRAM-SHA-256, PLAIN and LOGIN; with
        /// argon2id, sha512-crypt and bcrypt with PLAIN and LOGIN
        #[arg(long, value_name = "SCHEME", default_value = "argon2id")]
        scheme: HashScheme,
        /// Print a whole line of the file for this user
        user: Option<String>,
    },
    /// Try a user's password or token with the configuration
    ///
    /// The password is the first line of standard input; on a terminal it is asked for, and not shown. The exit
    /// code is 0 if it is right, and 77 if it is wrong or there is no such user.
    Test {
        /// Try a token as OAUTHBEARER does: the server in [oauth] is asked about it
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
    /// As if TLS were active
    #[arg(long)]
    pub(crate) tls: bool,
    /// As if the client had shown a certificate of a trusted authority with this e-mail address or host name, or, with
    /// `sha256:FINGERPRINT`, a certificate of another authority; implies --tls
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
    /// `acme` stands for a certificate that the daemon has obtained from the authority of [acme], `file` for one of [tls] or
    /// [[certificate]], and `self-signed` for one that the daemon has made at its start. With [acme], the time of the
    /// next renewal and the reason of failed attempts follow.
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Obtain a new certificate from the authority of [acme] now, and wait for it
    ///
    /// The exit code is 75 when the authority refuses; the old certificate stays in use. Authorities limit how often this may
    /// be done: Let's Encrypt signs five times a week for the same names.
    Renew,
}

#[derive(Debug, Subcommand)]
pub(crate) enum MapCommand {
    /// Look keys up in a map, and print each with its value
    ///
    /// The exit code is 0 when all keys were found, 1 when one was not, and 75 when a look-up failed. A key is looked
    /// up as it is given, in lower case; the daemon also asks for parts of an address.
    Query {
        /// text:FILE, aliases:FILE, regex:FILE, cidr:FILE, cdb:FILE, or map:NAME for [map.NAME]
        map: String,
        /// Keys
        #[arg(required = true)]
        keys: Vec<String>,
    },
    /// Read the files of all maps, connect to the servers of named maps, and report faults
    ///
    /// The exit code is 0 when all maps can be used, 65 when a file cannot, and 75 when a server or its query cannot.
    Check,
}

#[derive(Debug, Subcommand)]
pub(crate) enum QueueCommand {
    /// List messages: all, or those selected
    List {
        #[command(flatten)]
        chosen: Chosen,
        #[command(flatten)]
        format: Format,
    },
    /// Count messages: all, or those selected
    Count {
        #[command(flatten)]
        chosen: Chosen,
    },
    /// Explain where a message is, or what became of it; the same as `postrider why`
    Explain(WhyArgs),
    /// Show the recipients of the queue by destination, sender or reason, with their ages and the most frequent reason
    ///
    /// The columns are those of Postfix's qshape: T counts all recipients, and each other column those whose message has been
    /// queued for fewer minutes than its title says, and for at least as many as the title before. A line below says why
    /// most recipients of the destination wait, or since when it is down.
    Summary {
        /// What the rows are for: destination, sender, sender-domain or reason
        #[arg(long, value_enum, default_value_t = control::SummaryBy::Destination, hide_possible_values = true)]
        by: control::SummaryBy,
        /// Print at most this many rows, those with the most recipients first; a line counts the rest
        #[arg(long, value_name = "COUNT")]
        limit: Option<usize>,
        /// Print one JSON object for each row
        #[arg(long)]
        json: bool,
    },
    /// Show one message: envelope, recipients, header
    Show {
        /// Queue id
        id: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Hold messages: no delivery is attempted until they are released
    Hold(Change),
    /// Release held messages
    Release(Change),
    /// Attempt delivery of messages now
    Retry(Change),
    /// Attempt delivery of all messages now, and probe suspended destinations; with a selection, the same as retry
    Flush(Change),
    /// Return messages: the remaining recipients fail, and the senders get delivery status notifications
    Bounce(Change),
    /// Delete messages without a delivery status notification
    Delete(Change),
    /// Send messages elsewhere: to another address, or by another route
    ///
    /// A new message, with a queue id of its own and the same content, replaces the selected recipients. NOTIFY and ORCPT stay
    /// what the sender wrote. The command refuses an address that has no mailbox here, one that a route refuses, one whose
    /// domain does not exist, and an unknown route. It warns if the server of the address or route cannot be found now.
    /// Messages that are being delivered now stay as they are.
    #[command(group = clap::ArgGroup::new("target").required(true))]
    Redirect {
        #[command(flatten)]
        change: Change,
        /// The address that gets the mail of all selected recipients
        #[arg(long, value_name = "ADDRESS", group = "target")]
        to: Option<String>,
        /// The `name` of the [[route]] that the mail takes
        #[arg(long, value_name = "NAME", group = "target")]
        route: Option<String>,
    },
    /// Attempt delivery of each message once, as `sendmail -q` does, and print how long each phase took
    ///
    /// The daemon must not be running. Root runs this command as the user who owns `data_dir`, so that the daemon can
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

#[derive(Debug, Subcommand)]
pub(crate) enum SpoolCommand {
    /// Verify every record of the spool
    ///
    /// Each fault is one line. `damaged` is a range of bytes whose checksum is wrong. `corrupt` is what
    /// the damage means: missing batches, a missing segment, or a message whose content is lost.
    /// `cannot be read` is a range for which the disk returned an error: the bytes may be good, so repair
    /// the cause and check again. `quarantined` is a damaged file NAME.quarantined that is no longer used; it is
    /// reported until you remove it. The exit code is 0 when the spool is sound and 65 when there is any
    /// fault. Nothing in the spool is changed.
    Check {
        /// The spool to check; without it, all configured spools
        #[arg(long, value_name = "DIR")]
        path: Option<PathBuf>,
        /// Print JSON: one line with one object for each spool
        #[arg(long)]
        json: bool,
    },
    /// Print the records as text, one on each line, in the order in which they were written
    Dump {
        /// Print only the records of the message with this queue id
        id: Option<String>,
        /// Print content, too
        #[arg(long)]
        content: bool,
        /// The spool to read; without it, that of [spool]
        #[arg(long, value_name = "DIR")]
        path: Option<PathBuf>,
    },
    /// Write the messages of damaged segments that are provably whole to files
    ///
    /// Writes each message that is neither queued nor known to be finished. The messages come from damaged
    /// segments, from quarantined files (NAME.quarantined), and from messages that are kept out of the queue
    /// because a part of their content is lost. A whole message is written to ID.mail; move that file into
    /// the drop directory to send it. ID.incomplete lacks a part of its content. Look for each id in the
    /// log first: the record that the message was delivered may be in the damage. A place that cannot be
    /// read now is named; repair the cause and run the command again. Nothing in the spool is changed.
    Salvage {
        /// The directory to write to; without it, `quarantine` in `data_dir`
        #[arg(long, value_name = "DIR")]
        into: Option<PathBuf>,
        /// The spool to read; without it, that of [spool]
        #[arg(long, value_name = "DIR")]
        path: Option<PathBuf>,
    },
    /// Copy every message into a new spool of another backend
    ///
    /// The daemon must not be running. The old spool is not changed. Root runs this command as the user who owns
    /// `data_dir`, so that the daemon can open the files; the new directory, or the one in which it is created, must
    /// belong to that user.
    Convert {
        /// The backend of the new spool
        #[arg(long, value_enum)]
        to: NewBackend,
        /// The directory of the new spool; empty, or not existing yet
        #[arg(long, value_name = "DIR")]
        into: PathBuf,
        /// Convert the spool of this queue group; without it, that of [spool]
        #[arg(long, value_name = "NAME")]
        group: Option<String>,
    },
}

/// A backend that a spool can be converted to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum NewBackend {
    /// One log in segments for all messages
    Log,
    /// Queue directories: two files for each message
    QueueDirs,
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
    /// Queue ids, `all`, or `-` to read ids from standard input, one on each line
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
    /// Only messages accepted more recently than this
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
    /// The state at this time, from the history: 14:30 (today), "2026-11-21 14:30", 2026-11-21T14:30:05+01:00, or 2h (ago)
    #[arg(long, value_name = "TIME")]
    pub(crate) at: Option<String>,
    /// Print a JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct Format {
    /// Print one JSON object on each line
    #[arg(long, conflicts_with = "only_ids")]
    pub(crate) json: bool,
    /// Print only the queue ids, one on each line
    #[arg(long = "ids")]
    pub(crate) only_ids: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Change {
    #[command(flatten)]
    pub(crate) chosen: Chosen,
    #[command(flatten)]
    pub(crate) format: Format,
    /// Change nothing: list the messages, and count the recipients that would be changed
    #[arg(long, short = 'n')]
    pub(crate) dry_run: bool,
    /// The reason, for the history and the listings of held messages; notifications tell it to senders of bounced messages
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
}
