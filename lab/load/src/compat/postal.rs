//! `postlab postal`: Postal's options and its CSV line at each full minute of the clock. Bodies are random and carry their checksum,
//! which `postlab sink --verify` compares as rabid does.

use super::Runner;
use crate::{
    address::Servers,
    rounds::too_short,
    source::Phase,
    table::{Cell, Column, Format, Table},
};
use clap::Args;
use std::time::Duration;

/// Send random mail as Postal does, with a line of figures each minute
#[derive(Debug, Args)]
pub struct PostalArgs {
    /// Largest size of a body, in KB; 10k is the same as 10
    #[arg(short = 'm', value_name = "KB", default_value = "10", value_parser = kilobytes_of)]
    most: u32,
    /// Smallest size
    #[arg(short = 'M', value_name = "KB", default_value = "0", value_parser = kilobytes_of)]
    least: u32,
    /// Connections at the same time to each server, as -p of Postal 0.61 and -t of Postal 0.76
    #[arg(short = 'p', short_alias = 't', value_name = "COUNT", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    processes: u32,
    /// A random number of messages up to this on each connection; -1 is without bound
    #[arg(short = 'c', value_name = "COUNT", default_value = "1", allow_hyphen_values = true,
        value_parser = clap::value_parser!(i32).range(-1..))]
    per_connection: i32,
    /// Messages a minute at most
    #[arg(short = 'r', value_name = "COUNT", default_value = "24000", value_parser = clap::value_parser!(u32).range(1..))]
    rate: u32,
    /// The percentage of connections with TLS
    #[arg(short = 's', value_name = "PERCENT", default_value = "0", value_parser = clap::value_parser!(u8).range(..=100))]
    tls: u8,
    /// Show the conversations
    #[arg(short = 'a')]
    all: bool,
    /// Subjects for servers that cut white space: netscape begins them without a space, nonetscape with one more
    #[arg(short = 'b', value_name = "[no]netscape", value_enum)]
    breakage: Option<Breakage>,
    /// Connect from these addresses in turn
    #[arg(short = 'l', value_name = "ADDRESS,…")]
    local: Option<String>,
    /// Write the dialogs to this file, whose name gets the minute appended
    #[arg(short = 'z', value_name = "FILE", conflicts_with_all = ["each", "all"])]
    debug: Option<String>,
    /// Write a file with one line for each message, and a file for each connection
    #[arg(short = 'Z', value_name = "FILE", conflicts_with = "all")]
    each: Option<String>,
    /// Speak LMTP
    #[arg(short = 'L')]
    lmtp: bool,
    /// Senders, a line each [default: as recipients]
    #[arg(short = 'f', value_name = "FILE")]
    senders: Option<String>,
    /// End after this many minutes; a fraction is allowed
    #[arg(long, value_name = "MINUTES", default_value = "1440")]
    minutes: f64,
    #[command(flatten)]
    format: Format,
    /// The servers, with commas between them: [+][host]port or host[:port]; a + looks the name up for each connection
    #[arg(value_name = "SERVER", value_parser = Servers::checked)]
    endpoint: String,
    /// Recipients, a line each
    users: String,
}

/// The values of -b.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Breakage {
    Netscape,
    Nonetscape,
}

/// Largest body in KB.
const SIZE_MAX: u32 = 16384;

/// Reads `10` or `10k`, which Postal takes for the same.
fn kilobytes_of(text: &str) -> Result<u32, String> {
    let digits = text.strip_suffix(['k', 'K']).unwrap_or(text);
    let size = digits.parse().ok().filter(|size| *size <= SIZE_MAX);
    size.ok_or_else(|| format!("`{text}` is not a size of up to {SIZE_MAX} KB: write 10 or 10k"))
}

const COLUMNS: [Column; 8] = [
    Column::other("time", "time"),
    Column::other("messages", "messages"),
    Column::other("data KiB", "data_kib"),
    Column::other("errors", "errors"),
    Column::other("connections", "connections"),
    Column::other("TLS connections", "tls_connections"),
    Column::other("s", "seconds"),
    Column::other("messages/s", "messages_per_second"),
];

/// Postal's columns.
const HEAD: &str = "time,messages,data(K),errors,connections,SSL connections";

/// Sends, a line a minute; true if all went well.
pub fn run(args: &PostalArgs) -> Result<bool, String> {
    if args.most < args.least {
        return Err(format!("-m {} is below -M {}", args.most, args.least));
    }
    if args.per_connection == 0 {
        return Err("-c 0: connections without a message are not made".into());
    }
    if !(args.minutes > 0.0 && args.minutes.is_finite()) {
        return Err(format!("--minutes {} is no time", args.minutes));
    }
    let runner = Runner::new()?;
    let words = words(args)?;
    let mut table = Table::new(args.format, &COLUMNS, None);
    table.text(HEAD);
    let (mut left, mut good) = (args.minutes, true);
    let mut minute = 0;
    while left > 0.0 && !runner.is_stopped() {
        let share = left.min(to_the_minute(&jiff::Zoned::now()));
        let messages = quota(args.rate, share).to_string();
        let transcript = transcript(args, minute);
        let more: Vec<&str> =
            ["-m", messages.as_str()].into_iter().chain(transcript.iter().map(String::as_str)).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).chain(more).collect();
        let (report, _) = runner.send(&words, Some(Duration::from_secs_f64(share * 60.0)))?;
        let tls = report.times.get(&Phase::Tls).map_or(0, |times| times.count);
        let (time, kib) = (jiff::Zoned::now().strftime("%H:%M").to_string(), report.bytes_out / 1024);
        table.text(&format!(
            "{time},{},{kib},{},{},{tls}",
            report.messages_sent, report.messages_failed, report.connections
        ));
        table.record([
            Cell::from(time),
            report.messages_sent.into(),
            kib.into(),
            report.messages_failed.into(),
            report.connections.into(),
            tls.into(),
            Cell::Number(report.seconds, 3),
            Cell::Number(report.rate, 1),
        ]);
        // The plan is stopped at the end of each minute.
        let remarks = report.remarks().into_iter().filter(|_| !report.stopped_early || runner.is_stopped());
        remarks.chain(too_short(report.sending_seconds()).map(str::to_owned)).for_each(|remark| {
            // The text is the CSV of the original, which has no place for it; a stopped run says so itself.
            if !runner.is_stopped() {
                eprintln!("{remark}");
            }
            table.silent_remark(remark);
        });
        good &= report.messages_failed == 0 && report.server_failures == 0;
        left -= share;
        minute += 1;
    }
    table.finish();
    Ok(good)
}

/// Returns the time to the next full minute, as a share of a minute. Of less than a second no line is worth printing:
/// the next minute is in the same line then.
fn to_the_minute(now: &jiff::Zoned) -> f64 {
    let second = f64::from(now.second()) + f64::from(now.subsec_nanosecond()) / 1e9;
    let left = 60.0 - second;
    if left < 1.0 { (left + 60.0) / 60.0 } else { left / 60.0 }
}

/// As many as may be sent in a share of a minute, so that the last line ends with it too.
fn quota(rate: u32, share: f64) -> u64 {
    ((f64::from(rate) * share) as u64).max(1)
}

fn words(args: &PostalArgs) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut option = |name: &str, value: &dyn std::fmt::Display| {
        words.extend([name.to_owned(), value.to_string()]);
    };
    let servers = Servers::parse(&args.endpoint)?.endpoints().len();
    option("-s", &(args.processes as usize * servers));
    option("--random-size", &format_args!("{}:{}", args.least * 1024, args.most * 1024));
    option("--users", &args.users);
    option("--rate", &(f64::from(args.rate) / 60.0));
    if args.per_connection > 1 {
        option("--per-connection", &args.per_connection);
    }
    if args.tls > 0 {
        option("--tls-share", &args.tls);
    }
    args.local.iter().for_each(|address| option("--bind", address));
    args.breakage.iter().for_each(|breakage| {
        option("-S", if *breakage == Breakage::Netscape { &"postal" } else { &" postal" });
    });
    args.senders.iter().for_each(|path| option("--senders", path));
    let flags =
        [("-d", args.per_connection != 1), ("--tls", args.tls > 0), ("-v", args.all), ("-L", args.lmtp)];
    words.extend(flags.iter().filter(|(_, is_wanted)| *is_wanted).map(|(flag, _)| (*flag).to_owned()));
    words.push(args.endpoint.clone());
    Ok(words)
}

/// The words for -z and -Z in a minute.
fn transcript(args: &PostalArgs, minute: u32) -> Vec<String> {
    let Some(path) = args.each.as_ref().or(args.debug.as_ref()) else { return Vec::new() };
    let mut words = vec!["--transcript".to_owned(), format!("{path}:{minute}")];
    words.extend(args.each.is_some().then(|| "--transcript-each".to_owned()));
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: PostalArgs,
    }

    #[test]
    fn a_rate_a_minute_is_one_a_second_and_bounds_a_share_of_a_minute() {
        let line = Line::parse_from(["postal", "-r", "3000", "-c", "4", "127.0.0.1:25", "users"]);
        let words = words(&line.args).unwrap();
        let has = |pair: [&str; 2]| words.windows(2).any(|w| w == pair);
        assert!(has(["--rate", "50"]) && has(["--per-connection", "4"]), "{words:?}");
        assert!(words.contains(&"-d".to_owned()), "{words:?}");
        assert_eq!([1.0, 0.01, 0.0001].map(|share| quota(line.args.rate, share)), [3000, 30, 1]);
    }

    #[test]
    fn connections_are_counted_for_each_server_and_sizes_may_have_a_k() {
        let line =
            Line::parse_from(["postal", "-p", "4", "-b", "nonetscape", "[127.0.0.1]26,+localhost", "users"]);
        let words = words(&line.args).unwrap();
        let has = |pair: [&str; 2]| words.windows(2).any(|w| w == pair);
        assert!(has(["-s", "8"]) && has(["-S", " postal"]), "{words:?}");
        let sizes = ["10", "10k", "0K", "10m", "k", "20000"].map(|text| kilobytes_of(text).ok());
        assert_eq!(sizes, [Some(10), Some(10), Some(0), None, None, None]);
    }

    #[test]
    fn a_line_ends_with_a_minute_of_the_clock() {
        let at = |second, nanosecond| {
            let time = jiff::civil::date(2026, 11, 23).at(9, 6, second, nanosecond);
            to_the_minute(&time.to_zoned(jiff::tz::TimeZone::UTC).unwrap()) * 60.0
        };
        let lefts = [at(0, 0), at(45, 0), at(59, 500_000_000)];
        assert!(
            lefts.iter().zip([60.0, 15.0, 60.5]).all(|(left, wanted)| (left - wanted).abs() < 1e-6),
            "{lefts:?}"
        );
    }
}
