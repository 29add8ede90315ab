//! The command line of `postlab source`: the single-message options of smtp-source, and long options of its own.

use super::{
    arrivals::{Arrivals, Shape},
    client::{RESPONSE_TIMEOUT, Style},
    exchange::attributes_of,
    plan::Plan,
    setup::{Rest, Setup},
    template::{Body, MessageTemplate, Options, read_file},
    transcript::Transcript,
};
use crate::{
    address::{Family, Servers},
    sink::{Credentials, TlsMode},
    table::Format,
};
use clap::{ArgAction, Args, builder::ArgPredicate};
use rustix::system::uname;
use smtp::client::{ClientSettings, Protocol};
use std::{
    net::IpAddr,
    path::{Path, PathBuf},
    sync::atomic::AtomicUsize,
    time::{Duration, Instant},
};

/// Send mail, and measure how the server accepts it
///
/// The single-message options are those of Postfix's smtp-source(1). Failures are counted and never end the run; with any,
/// the exit code is 1.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub struct SourceArgs {
    /// Show this help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
    /// Send EHLO and pipeline commands; with a depth, also this number of messages at once on a connection
    #[arg(long, value_name = "DEPTH", num_args = 0..=1, default_missing_value = "1", require_equals = true,
        value_parser = clap::value_parser!(u16).range(1..))]
    pipeline: Option<u16>,
    /// TLS, with STARTTLS or from the start of the connection; the certificate is not checked
    #[arg(long, value_enum, value_name = "MODE", num_args = 0..=1, require_equals = true, default_missing_value = "starttls")]
    tls: Option<TlsMode>,
    /// Authenticate with PLAIN, or with LOGIN if that is not offered
    #[arg(long, value_name = "USER:PASSWORD", value_parser = Credentials::parse, conflicts_with = "old")]
    auth: Option<Credentials>,
    /// The mechanism of AUTH: PLAIN, LOGIN, SCRAM-SHA-256, SCRAM-SHA-1, XOAUTH2, OAUTHBEARER or EXTERNAL
    #[arg(long, value_name = "NAME", requires = "auth")]
    auth_mechanism: Option<auth::Mechanism>,
    /// Send content with BDAT (RFC 3030), in one chunk; the server has to offer CHUNKING
    #[arg(long, conflicts_with = "old")]
    bdat: bool,
    /// Name another client with XCLIENT of Postfix, such as ADDR=192.0.2.1,NAME=mx.example
    #[arg(long, value_name = "NAME=VALUE,…", value_delimiter = ',', value_parser = attributes_of, conflicts_with = "old")]
    xclient: Vec<String>,
    /// The percentage of connections with TLS
    #[arg(long, value_name = "PERCENT", default_value = "100", hide_default_value = true, requires = "tls",
        value_parser = clap::value_parser!(u8).range(..=100))]
    tls_share: u8,
    /// With -d: a random number of messages up to this on each connection
    #[arg(long, value_name = "COUNT", requires = "keep", value_parser = clap::value_parser!(u32).range(1..))]
    per_connection: Option<u32>,
    /// Random text of a random size, with a checksum for `sink --verify`
    #[arg(long, value_name = "MIN:MAX", value_parser = sizes_of, conflicts_with_all = ["length", "file", "old"])]
    random_size: Option<(u64, u64)>,
    /// Send each message to one of the addresses in this file (one on each line)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["to", "numbered", "recipients"])]
    users: Option<PathBuf>,
    /// Use one of the addresses in this file as the sender of each message
    #[arg(long, value_name = "FILE", conflicts_with = "from")]
    senders: Option<PathBuf>,
    /// Connect from these addresses in turn; ADDRESS+COUNT is as many from there on, for more connections than an
    /// address has ports
    #[arg(long, value_name = "ADDRESS[+COUNT],…", value_delimiter = ',', value_parser = locals_of)]
    bind: Vec<Locals>,
    /// Write the conversations to this file
    #[arg(long, value_name = "FILE")]
    transcript: Option<PathBuf>,
    /// Write each connection to a file of its own, with a number after the name
    #[arg(long, requires = "transcript")]
    transcript_each: bool,
    /// Messages a second, whether the server keeps up or not; latencies count from the time when a message is due
    #[arg(long, value_name = "PER SECOND", value_parser = rate_of)]
    pub rate: Option<f64>,
    /// Arrivals of messages with --rate
    #[arg(
        long,
        value_enum,
        value_name = "SHAPE",
        default_value = "constant",
        hide_default_value = true,
        requires = "rate"
    )]
    arrivals: Shape,
    /// Begin no message after this time; with --rate, those that are due until then are sent. Without -m their number is
    /// not limited
    #[arg(long, value_name = "SECONDS", value_parser = duration_of)]
    pub duration: Option<Duration>,
    /// Append the times of each phase to this file as HDR histograms in log format V2, for `postlab hdr merge`
    #[arg(long, value_name = "FILE")]
    pub hdr: Option<PathBuf>,
    /// Show times by phase
    #[arg(long)]
    pub(crate) percentiles: bool,
    #[command(flatten)]
    pub(crate) format: Format,
    /// Event loops [default: one for every two cores]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) threads: Option<u16>,
    /// Poll for this long before an event loop sleeps: to measure ceilings, where the peer answers sooner than a thread wakes
    /// up. It takes processor time
    #[arg(long, value_name = "MICROSECONDS", default_value = "0", hide_default_value = true, value_parser = crate::spin::micros_of)]
    spin: Duration,
    /// Timeout for each reply
    #[arg(long, value_name = "SECONDS", value_parser = crate::arguments::seconds_of)]
    timeout: Option<Duration>,
    /// Use IPv4 only
    #[arg(short = '4', conflicts_with = "ipv6")]
    ipv4: bool,
    /// Use IPv6 only
    #[arg(short = '6')]
    ipv6: bool,
    /// Exit with 0 even if messages were rejected
    #[arg(short = 'A')]
    pub(crate) refusals_are_fine: bool,
    /// Show a running counter of messages
    #[arg(short = 'c')]
    counter: bool,
    /// Attempts at a connection that is reset because the server's queue is full
    #[arg(short = 'C', value_name = "COUNT", default_value = "1", value_parser = clap::value_parser!(u32).range(1..))]
    connect_tries: u32,
    /// Send the next message over the same connection
    #[arg(short = 'd')]
    keep: bool,
    /// Sender [default: foo@HOSTNAME; "" is the null sender]
    #[arg(short = 'f', value_name = "ADDRESS")]
    from: Option<String>,
    /// Send the message in this file
    #[arg(short = 'F', value_name = "FILE", conflicts_with_all = ["length", "subject"])]
    file: Option<PathBuf>,
    /// Octets of payload
    #[arg(short = 'l', value_name = "BYTES", value_parser = clap::value_parser!(u64).range(..=1 << 30))]
    length: Option<u64>,
    /// Speak LMTP
    #[arg(short = 'L')]
    lmtp: bool,
    /// The number of messages
    #[arg(short = 'm', value_name = "COUNT", default_value = "1", value_parser = clap::value_parser!(u64).range(1..),
        default_value_if("duration", ArgPredicate::IsPresent, "18446744073709551615"))]
    pub messages: u64,
    /// The name in HELO and in the default addresses [default: the name of the machine]
    #[arg(short = 'M', value_name = "NAME")]
    hostname: Option<String>,
    /// Prepend a number that never repeats to each recipient
    #[arg(short = 'N')]
    numbered: bool,
    /// Old mode: no HELO, no message header
    #[arg(short = 'o', conflicts_with_all = ["tls", "pipeline"])]
    old: bool,
    /// Recipients of each message; a number is prepended
    #[arg(short = 'r', value_name = "COUNT", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    recipients: u32,
    /// Pause for a random time, up to this, between the messages of a session
    #[arg(short = 'R', value_name = "SECONDS", value_parser = crate::arguments::seconds_of, conflicts_with = "wait")]
    random_wait: Option<Duration>,
    /// Sessions at the same time
    #[arg(short = 's', value_name = "COUNT", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub sessions: u32,
    /// Subject
    #[arg(short = 'S', value_name = "TEXT")]
    subject: Option<String>,
    /// Recipient [default: foo@HOSTNAME]
    #[arg(short = 't', value_name = "ADDRESS")]
    to: Option<String>,
    /// TCP window
    #[arg(short = 'T', value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..65536))]
    window: Option<u32>,
    /// Show the conversations
    #[arg(short = 'v', action = ArgAction::Count)]
    verbose: u8,
    /// Pause between the messages of a session
    #[arg(short = 'w', value_name = "SECONDS", value_parser = crate::arguments::seconds_of)]
    wait: Option<Duration>,
    /// The server: [inet:]host[:port], [host]port or unix:path; the default port is 25. Several, separated by
    /// commas, take turns. With a + before it, the name of a host is looked up for each connection
    #[arg(value_name = "SERVER", value_parser = Servers::parse)]
    servers: Servers,
}

fn rate_of(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate.is_finite() && rate >= SLOWEST => Ok(rate),
        _ => Err(format!("`{text}` is not a rate above zero")),
    }
}

/// A message in eleven days. At less, the last of many would be due when no clock can show it.
const SLOWEST: f64 = 1e-6;

/// Reads seconds, more than none.
fn duration_of(text: &str) -> Result<Duration, String> {
    let duration = crate::arguments::seconds_of(text)?;
    if duration.is_zero() { Err(format!("`{text}` seconds are no duration")) } else { Ok(duration) }
}

/// Addresses one behind the other.
#[derive(Debug, Clone)]
struct Locals(Vec<IpAddr>);

/// Reads `127.0.0.2+64`: the first address, and how many.
fn locals_of(text: &str) -> Result<Locals, String> {
    let (first, count) = text.split_once('+').unwrap_or((text, "1"));
    let first: IpAddr = first.parse().map_err(|_| format!("`{first}` is not an address"))?;
    let count: u32 =
        count.parse().ok().filter(|n| (1..=65536).contains(n)).ok_or(format!("`{count}` is no count"))?;
    let next = |i: u32| match first {
        IpAddr::V4(v4) => IpAddr::V4(u32::from(v4).wrapping_add(i).into()),
        IpAddr::V6(v6) => IpAddr::V6(u128::from(v6).wrapping_add(i.into()).into()),
    };
    Ok(Locals((0..count).map(next).collect()))
}

/// The addresses in a file; comments and empty lines are passed over.
fn lines_of(path: Option<&Path>) -> Result<Vec<String>, String> {
    let Some(path) = path else { return Ok(Vec::new()) };
    let text = String::from_utf8(super::template::read_bounded(path)?)
        .map_err(|_| format!("read {}: it is no text in UTF-8", path.display()))?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let lines: Vec<String> = lines.map(str::to_owned).collect();
    if lines.is_empty() { Err(format!("read {}: it has no address", path.display())) } else { Ok(lines) }
}

/// Reads `0:10240`: the smallest and the largest size.
fn sizes_of(text: &str) -> Result<(u64, u64), String> {
    let parsed =
        text.split_once(':').and_then(|(least, most)| Some((least.parse().ok()?, most.parse().ok()?)));
    match parsed {
        Some((least, most)) if least <= most && most <= 1 << 24 => Ok((least, most)),
        _ => Err(format!("`{text}` is no MIN:MAX of octets, up to 16 MiB")),
    }
}

impl SourceArgs {
    /// Returns the first option that names a file to read or to write.
    pub(crate) fn file_option(&self) -> Option<&'static str> {
        let options = [
            (self.users.is_some(), "--users"),
            (self.senders.is_some(), "--senders"),
            (self.transcript.is_some(), "--transcript"),
            (self.hdr.is_some(), "--hdr"),
            (self.file.is_some(), "-F"),
        ];
        options.into_iter().find(|(is_given, _)| *is_given).map(|(_, name)| name)
    }

    /// Does the source send less than the server may take: at a rate, or with pauses?
    pub fn is_paced(&self) -> bool {
        self.rate.is_some() || self.wait.is_some() || self.random_wait.is_some()
    }

    /// Returns the plan of a run that begins now.
    pub fn plan(&self) -> Plan {
        let arrivals = |rate| Arrivals::new(self.arrivals, rate, self.messages, self.duration);
        let plan = Plan::new(self.messages, None, Instant::now());
        plan.arriving(self.rate.map(arrivals)).lasting(self.duration)
    }

    /// Checks the options, and resolves names.
    ///
    /// # Errors
    /// In words.
    pub fn setup(&self) -> Result<Setup, String> {
        let hostname = self.hostname.clone().unwrap_or_else(machine_name);
        let default_address = || format!("foo@{hostname}");
        let options = Options {
            from: self.from.clone().unwrap_or_else(default_address),
            to: self.to.clone().unwrap_or_else(default_address),
            users: lines_of(self.users.as_deref())?,
            senders: lines_of(self.senders.as_deref())?,
            hostname: hostname.clone(),
            recipients: self.recipients,
            numbered: self.numbered,
            subject: self.subject.clone(),
            body: match (&self.file, self.length, self.random_size) {
                (Some(path), ..) => Body::File(read_file(path)?),
                (None, Some(length), _) => Body::Length(length),
                (None, None, Some((least, most))) => Body::Random(least, most),
                (None, None, None) => Body::Short,
            },
            is_chunked: self.bdat,
        };
        Ok(Setup {
            spin: self.spin,
            client: ClientSettings {
                protocol: if self.lmtp { Protocol::Lmtp } else { Protocol::Smtp },
                hello: hostname.into(),
                depth: self.pipeline.unwrap_or(1).into(),
                pipelining: true,
                eight_bit_anyway: true,
            },
            style: match self.old {
                true => Style::Mute,
                false if self.pipeline.is_some() => Style::Extended,
                false if self.asks_for_extensions() => Style::Chosen,
                false => Style::Plain,
            },
            keeps: self.keep,
            per_connection: self.per_connection,
            tls_percent: self.tls_share,
            is_tls_implicit: self.tls == Some(TlsMode::Implicit),
            is_chunking: self.bdat,
            auth: self.auth.clone(),
            auth_mechanism: self.auth_mechanism,
            xclient: self.xclient.clone(),
            tls: self.tls.map(|_| super::tls::client(self.servers.endpoints())).transpose()?,
            timeout: self.timeout.unwrap_or(RESPONSE_TIMEOUT),
            connect_tries: self.connect_tries,
            template: MessageTemplate::new(options, !self.old)?,
            window_bytes: self.window.map(|w| w as usize),
            rest: self.wait.map(Rest::Fixed).or(self.random_wait.map(Rest::Random)),
            shows_count: self.shows_count(),
            transcript: Transcript::new(self.verbose > 0, self.transcript.clone(), self.transcript_each)?,
            locals: self.bind.iter().flat_map(|locals| locals.0.iter().copied()).collect(),
            next_local: AtomicUsize::new(0),
            addresses: self.servers.resolve(self.family())?,
            servers: self.servers.counted(self.family())?,
            looks_up: self.servers.looks_up_again().then(|| (self.servers.clone(), self.family())),
            next_address: AtomicUsize::new(0),
        })
    }

    /// Returns whether a running counter is shown; standard output has nothing but the result in other forms than text.
    pub(crate) fn shows_count(&self) -> bool {
        self.counter && self.format.is_text()
    }

    /// Is an extension asked for that EHLO has to announce?
    fn asks_for_extensions(&self) -> bool {
        self.tls == Some(TlsMode::Starttls) || self.auth.is_some() || self.bdat || !self.xclient.is_empty()
    }

    fn family(&self) -> Family {
        match (self.ipv4, self.ipv6) {
            (true, _) => Family::V4,
            (_, true) => Family::V6,
            _ => Family::Any,
        }
    }
}

/// As uname(2) says it, where that can stand in an address.
fn machine_name() -> String {
    let name = uname().nodename().to_string_lossy().into_owned();
    let good = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-.".contains(c));
    if good { name } else { "localhost".to_owned() }
}
