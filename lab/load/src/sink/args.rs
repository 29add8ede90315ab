//! The command line of `postlab sink`: the single-letter options of smtp-sink, and long options of its own.

use super::{
    dump, listen,
    rules::{Credentials, Delay, KnownUser, Offer, Rules, command_delay, refusal},
    state::Bounds,
    store::{Layout, Store, StoreKind},
    tls,
    verb::{COUNT, Verb, VerbSet},
};
use crate::address::{Endpoint, Family};
use crate::{arguments::seconds_of, table::Format};
use clap::{ArgAction, Args, ValueEnum};
use std::{path::PathBuf, time::Duration};

/// The concurrency model of the sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Model {
    /// An event loop for every two cores; the fastest
    Event,
    /// A thread for each connection
    Thread,
    /// A fixed number of threads, each with one connection at a time
    Pool,
    /// Tasks on an asynchronous runtime
    Async,
}

/// The begin of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TlsMode {
    /// With STARTTLS (RFC 3207)
    Starttls,
    /// With the connection (RFC 8314)
    Implicit,
}

/// Accept mail and discard it, to measure the sender
///
/// The single-letter options are those of Postfix's smtp-sink(1).
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub struct SinkArgs {
    /// Show this help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
    /// Concurrency model of the sessions
    #[arg(long, value_enum, default_value = "event")]
    pub(crate) model: Model,
    /// Event loops, workers of the pool or of the runtime [default: one for every two cores; for the pool 64]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) threads: Option<u16>,
    #[command(flatten)]
    pub(crate) format: Format,
    /// Reply 4xx to this percentage of RCPT commands, at random
    #[arg(long, value_name = "PERCENT", default_value = "0", hide_default_value = true,
        value_parser = clap::value_parser!(u8).range(..=100))]
    defer: u8,
    /// Reply 4xx to a recipient until this much time has passed since its first attempt
    #[arg(long, value_name = "SECONDS", value_parser = seconds_of)]
    greylist: Option<Duration>,
    /// Listen on this many consecutive IPv4 addresses, starting at that of ENDPOINT
    #[arg(long, value_name = "COUNT", default_value = "1", hide_default_value = true,
        value_parser = clap::value_parser!(u16).range(1..=1000))]
    addresses: u16,
    /// Compare each message with the checksum in its header, as `source --random-size` sends it
    #[arg(long)]
    verify: bool,
    /// Offer STARTTLS; with implicit, TLS begins with the connection. Without --cert, the certificate is self-signed
    #[arg(long, value_enum, value_name = "MODE", num_args = 0..=1, require_equals = true, default_missing_value = "starttls")]
    tls: Option<TlsMode>,
    /// The certificate chain of --tls, in PEM
    #[arg(long, value_name = "FILE", requires_all = ["tls", "key"])]
    cert: Option<PathBuf>,
    /// The private key of --cert, in PEM
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// Accept mail only after AUTH with this name and password; without it AUTH accepts any
    #[arg(long, value_name = "USER:PASSWORD", value_parser = Credentials::parse, conflicts_with_all = ["no_auth", "no_esmtp"])]
    auth: Option<Credentials>,
    /// Share the port with other sinks that have this option: for more connections than a process may have files open
    #[arg(long)]
    reuse_port: bool,
    /// Store each message durably before it is accepted; not with -R or -u
    #[arg(long, value_enum, value_name = "KIND", default_value = "none", hide_default_value = true)]
    store: StoreKind,
    /// The directory in which --store makes one of its own, and removes it at the end
    #[arg(long, value_name = "DIRECTORY", default_value = ".")]
    store_directory: PathBuf,
    /// Directories of --store files: flat, or hashed:COUNT for this many, chosen by a hash of the name
    #[arg(long, value_name = "LAYOUT", default_value = "flat", value_parser = Layout::parse)]
    store_layout: Layout,
    /// Threads that write and sync the messages of --store files, one message at a time each; for --model event and async
    /// [default: 64]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=1000))]
    store_writers: Option<u16>,
    /// Use IPv4 only
    #[arg(short = '4', conflicts_with = "ipv6")]
    ipv4: bool,
    /// Use IPv6 only
    #[arg(short = '6')]
    ipv6: bool,
    /// Do not announce 8BITMIME
    #[arg(short = '8')]
    no_8bitmime: bool,
    /// Do not announce AUTH
    #[arg(short = 'a')]
    no_auth: bool,
    /// Reply to DATA, wait, reply 550 and close without reading the content
    #[arg(short = 'A', value_name = "SECONDS", value_parser = seconds_of)]
    abort_delay: Option<Duration>,
    /// The text of a temporary rejection
    #[arg(short = 'b', value_name = "REPLY", value_parser = |t: &str| refusal(t, '4'))]
    soft_reply: Option<String>,
    /// The text of a permanent rejection
    #[arg(short = 'B', value_name = "REPLY", value_parser = |t: &str| refusal(t, '5'))]
    hard_reply: Option<String>,
    /// Show running counters
    #[arg(short = 'c')]
    counters: bool,
    /// Disable XCLIENT
    #[arg(short = 'C')]
    no_xclient: bool,
    /// Write each message to a file of its own, named by strftime and a random number
    #[arg(short = 'd', value_name = "TEMPLATE", conflicts_with = "append_template")]
    dump_template: Option<String>,
    /// Append messages to a file named by strftime
    #[arg(short = 'D', value_name = "TEMPLATE")]
    append_template: Option<String>,
    /// Do not announce ESMTP
    #[arg(short = 'e')]
    no_esmtp: bool,
    /// Do not announce ENHANCEDSTATUSCODES
    #[arg(short = 'E')]
    no_enhanced: bool,
    /// Reply 5xx to these commands: CONNECT HELO EHLO LHLO MAIL RCPT VRFY DATA . RSET NOOP QUIT
    #[arg(short = 'f', value_name = "COMMAND,…", value_parser = VerbSet::parse)]
    hard: Option<VerbSet>,
    /// Disable XFORWARD
    #[arg(short = 'F')]
    no_xforward: bool,
    /// The name in the greeting, HELO and EHLO
    #[arg(short = 'h', value_name = "NAME", default_value = "postlab-sink")]
    hostname: String,
    /// Wait after DATA before the content is read
    #[arg(short = 'H', value_name = "SECONDS", value_parser = seconds_of)]
    read_delay: Option<Duration>,
    /// Speak LMTP
    #[arg(short = 'L')]
    lmtp: bool,
    /// The highest number of concurrent connections; more wait in the kernel
    #[arg(short = 'm', value_name = "COUNT", default_value = "256", value_parser = clap::value_parser!(u32).range(1..))]
    max_sessions: u32,
    /// End after this many messages, when a session closes
    #[arg(short = 'M', value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    max_messages: Option<u64>,
    /// End after this many sessions
    #[arg(short = 'n', value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    max_ended: Option<u64>,
    /// Do not announce DSN
    #[arg(short = 'N')]
    no_dsn: bool,
    /// Do not announce PIPELINING
    #[arg(short = 'p')]
    no_pipelining: bool,
    /// Greet as if behind a Cisco PIX firewall; implies -e
    #[arg(short = 'P')]
    pix: bool,
    /// Close without a reply after these commands
    #[arg(short = 'q', value_name = "COMMAND,…", value_parser = VerbSet::parse)]
    drop: Option<VerbSet>,
    /// Reply 421 to these commands and close
    #[arg(short = 'Q', value_name = "COMMAND,…", value_parser = VerbSet::parse)]
    shut: Option<VerbSet>,
    /// Reply 4xx to these commands
    #[arg(short = 'r', value_name = "COMMAND,…", value_parser = VerbSet::parse)]
    soft: Option<VerbSet>,
    /// Change the root directory; needs privileges
    #[arg(short = 'R', value_name = "DIRECTORY")]
    pub(crate) root: Option<PathBuf>,
    /// Name these commands in the system log
    #[arg(short = 's', value_name = "COMMAND,…", value_parser = VerbSet::parse)]
    log: Option<VerbSet>,
    /// Put this before each dumped message; \n and the like are understood
    #[arg(short = 'S', value_name = "TEXT", allow_hyphen_values = true, value_parser = dump::unescape)]
    start: Option<std::vec::Vec<u8>>,
    /// With --model event: poll this long for work before a loop sleeps. It takes
    /// processor time
    #[arg(long, value_name = "MICROSECONDS", default_value = "0", hide_default_value = true, value_parser = crate::spin::micros_of)]
    spin: Duration,
    /// Timeout for a command to arrive, or for a reply to be sent
    #[arg(short = 't', value_name = "SECONDS", default_value = "100", value_parser = seconds_of)]
    timeout: Duration,
    /// TCP window
    #[arg(short = 'T', value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..65536))]
    window: Option<u32>,
    /// Run as this user
    #[arg(short = 'u', value_name = "USER")]
    pub(crate) user: Option<String>,
    /// Show the conversations
    #[arg(short = 'v', action = ArgAction::Count)]
    verbose: u8,
    /// Wait before answering DATA
    #[arg(short = 'w', value_name = "SECONDS", value_parser = seconds_of)]
    data_delay: Option<Duration>,
    /// Wait before answering a command; with odds, a random multiple
    #[arg(short = 'W', value_name = "COMMAND:SECONDS[:ODDS]", value_parser = command_delay)]
    delays: Vec<(Verb, Delay)>,
    /// The address to listen on: [inet:][host]:port or unix:path
    pub(crate) endpoint: Endpoint,
    /// Connections that may wait in the kernel
    #[arg(default_value = "4096", value_parser = clap::value_parser!(i32).range(1..))]
    backlog: i32,
}

impl SinkArgs {
    /// Returns whether running counters are shown; standard output has nothing but the result in other forms than text.
    pub(crate) fn shows_counts(&self) -> bool {
        self.counters && self.format.is_text()
    }

    /// Returns how every session behaves.
    pub(crate) fn rules(&self) -> Rules {
        let mut delays = [None; COUNT];
        for (verb, delay) in &self.delays {
            delays[*verb as usize] = Some(*delay);
        }
        if let Some(unit) = self.data_delay {
            delays[Verb::Data as usize] = Some(Delay { unit, odds: None });
        }
        let defaults = Rules::default();
        let esmtp = !self.no_esmtp && !self.pix;
        Rules {
            hostname: self.hostname.clone(),
            lmtp: self.lmtp,
            offer: Offer {
                esmtp,
                pipelining: !self.no_pipelining,
                eight_bit: !self.no_8bitmime,
                auth: !self.no_auth,
                xclient: !self.no_xclient,
                xforward: !self.no_xforward,
                enhanced: !self.no_enhanced,
                dsn: !self.no_dsn,
                chunking: esmtp,
                starttls: self.tls == Some(TlsMode::Starttls),
            },
            pix: self.pix,
            soft: self.soft.unwrap_or_default(),
            hard: self.hard.unwrap_or_default(),
            drop: self.drop.unwrap_or_default(),
            shut: self.shut.unwrap_or_default(),
            log: self.log.unwrap_or_default(),
            soft_reply: self.soft_reply.clone().unwrap_or(defaults.soft_reply),
            hard_reply: self.hard_reply.clone().unwrap_or(defaults.hard_reply),
            abort_data: self.abort_delay,
            read_delay: self.read_delay,
            delays,
            defer_percent: self.defer,
            greylist: self.greylist,
            verifies: self.verify,
            keeps_content: self.store != StoreKind::None
                || self.verify
                || self.dump_template.is_some()
                || self.append_template.is_some(),
            verbose: self.verbose > 0,
            known_user: self.auth.clone().map(KnownUser::new),
        }
    }

    /// Returns the settings of TLS, if it is offered.
    ///
    /// # Errors
    /// Certificate or key cannot be read.
    pub(crate) fn tls(&self) -> Result<Option<tls::Settings>, String> {
        let Some(mode) = self.tls else { return Ok(None) };
        let files = self.cert.as_deref().zip(self.key.as_deref());
        let files = files.map(|(certificate, key)| tls::Files { certificate, key });
        tls::Settings::new(&self.hostname, files, mode == TlsMode::Implicit).map(Some)
    }

    /// Opens the store, if messages are to be stored.
    ///
    /// # Errors
    /// The options cannot be combined, or the store cannot be opened.
    pub(crate) fn store(&self) -> Result<Option<Store>, String> {
        self.check_store()?;
        Store::open(self.store, self.store_layout, self.store_writers, &self.store_directory)
    }

    /// Checks that the options of the store can be combined.
    pub(crate) fn check_store(&self) -> Result<(), String> {
        if self.store != StoreKind::None && (self.root.is_some() || self.user.is_some()) {
            return Err("--store needs its directory after the start: leave out -R and -u".to_owned());
        }
        if self.store != StoreKind::Files && self.store_layout != Layout::FLAT {
            return Err("--store-layout is for --store files".to_owned());
        }
        let has_writers = self.store == StoreKind::Files && matches!(self.model, Model::Event | Model::Async);
        if self.store_writers.is_some() && !has_writers {
            return Err("--store-writers is for --store files with --model event or async: the other models write in \
                        the thread of the session"
                .to_owned());
        }
        Ok(())
    }

    /// Returns when the sink has had enough.
    pub(crate) fn bounds(&self) -> Bounds {
        Bounds {
            sessions: self.max_sessions as usize,
            messages: self.max_messages,
            ended_sessions: self.max_ended,
            timeout: self.timeout,
            spin: self.spin,
        }
    }

    /// Returns how sockets listen.
    pub(crate) fn listening(&self) -> listen::Settings {
        let family = match (self.ipv4, self.ipv6) {
            (true, _) => Family::V4,
            (_, true) => Family::V6,
            _ => Family::Any,
        };
        let window_bytes = self.window.map(|w| w as usize);
        listen::Settings {
            family,
            backlog: self.backlog,
            window_bytes,
            shares_port: self.reuse_port,
            address_count: self.addresses,
        }
    }

    /// Returns the settings of the files that keep messages, if any are kept.
    pub(crate) fn dump(&self) -> Option<dump::Settings> {
        let (template, appends) = match (&self.dump_template, &self.append_template) {
            (Some(template), _) => (template, false),
            (None, Some(template)) => (template, true),
            (None, None) => return None,
        };
        let start = self.start.clone().unwrap_or_default();
        Some(dump::Settings { template: template.clone(), appends, start, hostname: self.hostname.clone() })
    }
}
