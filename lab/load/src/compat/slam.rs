//! `postlab slam`: S4's myslam. Some processes, each with its threads and messages, as from as many client
//! machines. At Ctrl-C the processes end, and what they sent is added up.

use super::{Delivery, Round, Runner};
use crate::{signals::end, source::Report};
use clap::Args;
use std::{
    os::unix::process::{CommandExt as _, ExitStatusExt as _},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Send mail from several processes at once
#[derive(Debug, Args)]
pub struct SlamArgs {
    /// Processes
    #[arg(short = 'p', value_name = "COUNT", default_value = "2", value_parser = clap::value_parser!(u32).range(1..=256))]
    processes: u32,
    /// Threads of each process: sessions at the same time
    #[arg(short = 't', value_name = "COUNT", default_value = "50", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    threads: u32,
    /// Messages of each process
    #[arg(short = 'm', value_name = "COUNT", default_value = "5000", value_parser = clap::value_parser!(u64).range(1..))]
    messages: u64,
    /// Pause this long between a session's messages
    #[arg(short = 'w', value_name = "SECONDS")]
    think: Option<f64>,
    /// Octets of payload
    #[arg(short = 'l', value_name = "BYTES", default_value = "1024", value_parser = clap::value_parser!(u64).range(..=1 << 30))]
    length: u64,
    /// Send the next message over the same connection
    #[arg(short = 'd')]
    keep: bool,
    /// Recipient [default: foo@HOSTNAME]
    #[arg(short = 'T', value_name = "ADDRESS")]
    to: Option<String>,
    #[command(flatten)]
    delivery: Delivery,
    /// Server to connect to: [inet:]host[:port] or unix:path; separate several with commas, they are used in turn
    #[arg(value_parser = crate::address::Servers::checked)]
    endpoint: String,
}

/// Between two looks at whether they are done.
const TICK: Duration = Duration::from_millis(20);

/// Sends and reports; true if all went well.
pub fn run(args: &SlamArgs) -> Result<bool, String> {
    let runner = Runner::new()?;
    let head = format!(
        "{:>9} {:>7} {:>10} {:>9} {:>9} {:>10} {:>8}",
        "processes", "threads", "messages", "failed", "s", "msg/s", "MB/s"
    );
    let line = |round: &Round| {
        format!(
            "{:>9} {:>7} {:>10} {:>9} {:>9.3} {:>10.1} {:>8.2}",
            args.processes,
            args.threads,
            round.sum(|report| report.messages_sent),
            round.sum(|report| report.messages_failed),
            round.seconds,
            round.rate(),
            round.mb_per_second()
        )
    };
    runner.rounds(&args.delivery, args.processes * args.threads, &head, line, || {
        let begin = Instant::now();
        let reports = round(args, &runner)?;
        Ok(Round { seconds: begin.elapsed().as_secs_f64(), peak: None, reports })
    })
}

/// Starts the processes, and waits for all of them.
fn round(args: &SlamArgs, runner: &Runner) -> Result<Vec<Report>, String> {
    let mut children = Vec::new();
    for _ in 0..args.processes {
        let started = command(args).and_then(|mut command| command.spawn());
        match started {
            Ok(child) => children.push(child),
            Err(error) => {
                children.iter().for_each(end);
                return Err(format!("start a process: {error}"));
            }
        }
    }
    let mut told = false;
    while children.iter_mut().any(|child| matches!(child.try_wait(), Ok(None))) {
        thread::sleep(TICK);
        if runner.is_stopped() && !std::mem::replace(&mut told, true) {
            children.iter().for_each(end);
        }
    }
    let reports: Result<Vec<_>, _> = children.into_iter().map(report_of).collect();
    Ok(reports?.into_iter().flatten().collect())
}

/// Returns the report of a process; none of one that was stopped before it began to send.
fn report_of(child: Child) -> Result<Option<Report>, String> {
    let output = child.wait_with_output().map_err(|e| format!("wait for a process: {e}"))?;
    if output.status.signal().is_some() && output.stdout.is_empty() {
        return Ok(None);
    }
    let parsed = serde_json::from_slice(&output.stdout);
    parsed.map(Some).map_err(|_| {
        let error = String::from_utf8_lossy(&output.stderr);
        let error = error.trim().trim_start_matches("postlab: ");
        if error.is_empty() {
            format!("a process ended with {} and no result", output.status)
        } else {
            error.to_owned()
        }
    })
}

fn command(args: &SlamArgs) -> std::io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["source", "--json", "--threads", "1", "-s"]).arg(args.threads.to_string());
    command.args(["-m", &args.messages.to_string(), "-l", &args.length.to_string()]);
    if let Some(think) = args.think {
        command.args(["-w", &think.to_string()]);
    }
    if args.keep {
        command.arg("-d");
    }
    command.args(args.delivery.from.iter().flat_map(|from| ["-f", from]));
    command.args(args.to.iter().flat_map(|to| ["-t", to]));
    // Ctrl-C is for this process alone, which ends the others: two signals would cost their results.
    command.process_group(0);
    command.arg(&args.endpoint).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Ok(command)
}
