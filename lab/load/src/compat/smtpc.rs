//! `postlab smtpc`: sendmail X's smtpc, the client it was measured with: so many messages over so many
//! connections, a connection a message.

use super::{Delivery, Round, Runner};
use clap::Args;

/// Send mail as smtpc does: -t connections at a time, -s messages
#[derive(Debug, Args)]
pub struct SmtpcArgs {
    /// Recipient [default: foo@HOSTNAME]
    #[arg(short = 'R', value_name = "ADDRESS")]
    to: Option<String>,
    /// Connections at the same time
    #[arg(short = 't', value_name = "COUNT", default_value = "100", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    threads: u32,
    /// Messages
    #[arg(short = 's', value_name = "COUNT", default_value = "1000", value_parser = clap::value_parser!(u64).range(1..))]
    messages: u64,
    /// Server to connect to
    #[arg(short = 'r', value_name = "HOST[:PORT]", value_parser = crate::address::Servers::checked)]
    relay: String,
    /// Timeout for each reply
    #[arg(short = 'O', value_name = "SECONDS", default_value = "300", value_parser = clap::value_parser!(u32).range(1..))]
    timeout: u32,
    #[command(flatten)]
    delivery: Delivery,
}

/// Sends and reports; true if all went well.
pub fn run(args: &SmtpcArgs) -> Result<bool, String> {
    let runner = Runner::new()?;
    let (threads, messages) = (args.threads.to_string(), args.messages.to_string());
    let timeout = args.timeout.to_string();
    let mut words = vec!["-s", &threads, "-m", &messages, "--timeout", &timeout];
    words.extend(args.delivery.from.iter().flat_map(|from| ["-f", from]));
    words.extend(args.to.iter().flat_map(|to| ["-t", to]));
    words.push(&args.relay);
    let line = |round: &Round| {
        format!(
            "elapsed {:.3} s, {} messages, {} failed, {} connections, {} threads",
            round.seconds,
            round.sum(|report| report.messages_sent),
            round.sum(|report| report.messages_failed),
            round.sum(|report| report.connections),
            args.threads
        )
    };
    runner.rounds(&args.delivery, args.threads, "", line, || {
        let (report, _) = runner.send(&words, None)?;
        Ok(Round { seconds: report.seconds, peak: None, reports: vec![report] })
    })
}
