//! `postlab postal`: Postal's options and its CSV line a minute. Bodies are random and carry their checksum,
//! which `postlab sink --verify` compares as rabid does.

use super::Runner;
use clap::Args;
use std::time::Duration;

/// Send random mail as Postal does, with a line of figures each minute
#[derive(Debug, Args)]
pub struct PostalArgs {
    /// Largest size of a body, in KB
    #[arg(short = 'm', value_name = "KB", default_value = "10", value_parser = clap::value_parser!(u32).range(0..=16384))]
    most: u32,
    /// Smallest size
    #[arg(short = 'M', value_name = "KB", default_value = "0", value_parser = clap::value_parser!(u32).range(0..=16384))]
    least: u32,
    /// Connections at the same time
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
    /// Connect from this address
    #[arg(short = 'l', value_name = "ADDRESS")]
    local: Option<std::net::IpAddr>,
    /// Write what goes to and fro to this file, with the minute behind its name
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
    /// End after so many minutes; a fraction is a shorter one
    #[arg(long, value_name = "MINUTES", default_value = "1440")]
    minutes: f64,
    /// Server to connect to: [inet:]host[:port]
    endpoint: String,
    /// Recipients, a line each
    users: String,
}

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
    let words = words(args);
    println!("{HEAD}");
    let (mut left, mut good) = (args.minutes, true);
    let mut minute = 0;
    while left > 0.0 && !runner.is_stopped() {
        let share = left.min(1.0);
        let messages = quota(args.rate, share).to_string();
        let transcript = transcript(args, minute);
        let more: Vec<&str> =
            ["-m", messages.as_str()].into_iter().chain(transcript.iter().map(String::as_str)).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).chain(more).collect();
        let (report, _) = runner.send(&words, Some(Duration::from_secs_f64(share * 60.0)))?;
        let tls =
            report.times.iter().find(|(phase, _)| phase.to_string() == "tls").map_or(0, |(_, t)| t.count);
        println!(
            "{},{},{},{},{},{tls}",
            jiff::Zoned::now().strftime("%Y-%m-%d %H:%M:%S"),
            report.messages_sent,
            report.bytes_out / 1024,
            report.messages_failed,
            report.connections
        );
        eprint!("{}", super::failures(&report));
        good &= report.messages_failed == 0;
        left -= share;
        minute += 1;
    }
    Ok(good)
}

/// As many as may be sent in a share of a minute, so that the last line ends with it too.
fn quota(rate: u32, share: f64) -> u64 {
    ((f64::from(rate) * share) as u64).max(1)
}

fn words(args: &PostalArgs) -> Vec<String> {
    let mut words = Vec::new();
    let mut option = |name: &str, value: &dyn std::fmt::Display| {
        words.extend([name.to_owned(), value.to_string()]);
    };
    option("-s", &args.processes);
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
    args.senders.iter().for_each(|path| option("--senders", path));
    let flags =
        [("-d", args.per_connection != 1), ("--tls", args.tls > 0), ("-v", args.all), ("-L", args.lmtp)];
    words.extend(flags.iter().filter(|(_, is_wanted)| *is_wanted).map(|(flag, _)| (*flag).to_owned()));
    words.push(args.endpoint.clone());
    words
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
        let words = words(&line.args);
        let has = |pair: [&str; 2]| words.windows(2).any(|w| w == pair);
        assert!(has(["--rate", "50"]) && has(["--per-connection", "4"]), "{words:?}");
        assert!(words.contains(&"-d".to_owned()), "{words:?}");
        assert_eq!([1.0, 0.01, 0.0001].map(|share| quota(line.args.rate, share)), [3000, 30, 1]);
    }
}
