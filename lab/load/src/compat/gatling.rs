//! `postlab gatling`: messages of a fixed or random size over many connections, and the report with overall
//! and peak rate.

use super::{Delivery, Round, Runner, peak};
use clap::Args;

/// Send mail as gatling does, and report overall and peak rate
#[derive(Debug, Args)]
pub struct GatlingArgs {
    /// Connections at the same time
    #[arg(short = 'm', value_name = "COUNT", default_value = "100", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    connections: u32,
    /// Messages in all
    #[arg(short = 'c', value_name = "COUNT", default_value = "5000", value_parser = clap::value_parser!(u64).range(1..))]
    messages: u64,
    /// Smallest size of a message, in KB
    #[arg(short = 'z', value_name = "KB", default_value = "1", value_parser = clap::value_parser!(u32).range(0..=16384))]
    least: u32,
    /// Largest size
    #[arg(short = 'Z', value_name = "KB", value_parser = clap::value_parser!(u32).range(0..=16384))]
    most: Option<u32>,
    /// Messages a second [default: as fast as they are taken]
    #[arg(long, value_name = "PER SECOND")]
    rate: Option<f64>,
    /// Recipient [default: foo@HOSTNAME]
    #[arg(short = 't', value_name = "ADDRESS")]
    to: Option<String>,
    #[command(flatten)]
    delivery: Delivery,
    /// Server to connect to: [inet:]host[:port] or unix:path; separate several with commas, they are used in turn
    #[arg(value_parser = crate::address::Servers::checked)]
    endpoint: String,
}

/// Sends and reports; true if all went well.
pub fn run(args: &GatlingArgs) -> Result<bool, String> {
    let most = args.most.unwrap_or(args.least);
    if most < args.least {
        return Err(format!("-Z {most} is below -z {}", args.least));
    }
    let runner = Runner::new()?;
    let (sessions, messages) = (args.connections.to_string(), args.messages.to_string());
    let size = format!("{}:{}", args.least * 1024, most * 1024);
    let rate = args.rate.map(|rate| rate.to_string());
    let mut words = vec!["-d", "-s", &sessions, "-m", &messages, "--random-size", &size];
    words.extend(args.delivery.from.iter().flat_map(|from| ["-f", from]));
    words.extend(args.to.iter().flat_map(|to| ["-t", to]));
    words.extend(rate.iter().flat_map(|rate| ["--rate", rate]));
    words.push(&args.endpoint);
    let lines = |round: &Round| {
        let (minutes, seconds) = ((round.seconds / 60.0).floor(), round.seconds % 60.0);
        format!(
            "Total test elapsed time: {:.3} seconds ({minutes:.0}:{seconds:06.3})\n\
             Overall message rate: {:.3} msg/sec\nPeak rate: {:.3} msg/sec",
            round.seconds,
            round.rate(),
            round.peak.unwrap_or_default()
        )
    };
    runner.rounds(&args.delivery, args.connections, &head(args, most), lines, || {
        let (report, samples) = runner.send(&words, None)?;
        Ok(Round { seconds: report.seconds, peak: Some(peak(&samples)), reports: vec![report] })
    })
}

fn head(args: &GatlingArgs, most: u32) -> String {
    let size = match (args.least, most) {
        (least, most) if least == most => format!("Fixed size {least} Kbytes"),
        (least, most) => format!("Random size {least} to {most} Kbytes"),
    };
    let rate = args.rate.map_or("Unlimited".to_owned(), |rate| format!("{rate} msg/sec"));
    format!(
        "Max random envelope rcpts:  1\nConnections:                {}\nMax msgs/conn:              Unlimited\n\
         Messages:                   {size}\nDesired Message Rate:       {rate}\nTotal messages:             {}\n\n",
        args.connections, args.messages
    )
}
