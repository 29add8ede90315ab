//! `postlab queuedirs`: S0's tests. Does it help senders that work at once to spread a queue over directories,
//! and does an entry cost more the more there are?

use super::{DaemonArgs, Mta, enqueue, make_directories, peer::PeerArgs};
use crate::{
    device::Device,
    disk::Times,
    rounds::{Figure, Progress, Rounds},
    scratch::Scratch,
};
use clap::Args;
use statrs::distribution::{ContinuousCDF as _, StudentsT};
use std::{
    path::{Path, PathBuf},
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    thread,
    time::Instant,
};

/// Measure queue creation with several directories and senders
///
/// Both the rate of all senders and the time one message takes are shown: with ten senders the second can be
/// fifty times as long while the first is a fifth.
#[derive(Debug, Args)]
pub(crate) struct QueuedirsArgs {
    /// The number of queue directories; several are measured in turn
    #[arg(short = 'q', value_name = "COUNT,…", value_delimiter = ',', default_value = "1,5,10,20", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) directories: Vec<u32>,
    /// The number of concurrent senders; several are measured in turn [default: 1,10; with --mta 1,10,20,30,100]
    #[arg(short = 's', value_name = "COUNT,…", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1000))]
    senders: Vec<u32>,
    /// Messages
    #[arg(short = 'm', value_name = "COUNT", default_value = "30000", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) messages: u32,
    /// Octets of each
    #[arg(short = 'l', value_name = "BYTES", default_value = "1024", value_parser = clap::value_parser!(u32).range(..=1 << 24))]
    pub(super) length: u32,
    /// Do not sync
    #[arg(short = 'S')]
    no_sync: bool,
    /// Measure how the cost of an entry grows with the number of entries
    #[arg(long)]
    slope: bool,
    /// Measure a daemon over SMTP with connections that stay open, instead of files
    #[arg(long, value_enum, conflicts_with_all = ["no_sync", "slope"])]
    mta: Option<Mta>,
    #[command(flatten)]
    pub(super) daemon: DaemonArgs,
    #[command(flatten)]
    pub(super) peer: PeerArgs,
    #[command(flatten)]
    pub(super) rounds: Rounds,
    /// A directory on the disk to measure
    #[arg(default_value = ".")]
    pub(super) directory: PathBuf,
}

impl QueuedirsArgs {
    /// A daemon shares what it syncs among many more.
    pub(super) fn senders(&self) -> Vec<u32> {
        match (self.senders.is_empty(), self.mta) {
            (false, _) => self.senders.clone(),
            (true, None) => vec![1, 10],
            (true, Some(_)) => vec![1, 10, 20, 30, 100],
        }
    }
}

/// Hosts of the recipients.
const HOSTS: u32 = 1000;
/// S0 has a point for so many entries.
const POINT: u32 = 500;

/// A round: milliseconds for each further 500 entries, and each message's time.
struct Round {
    points: Vec<f64>,
    seconds: f64,
    done: u32,
    times: Times,
}

/// Measures and prints; Ctrl-C keeps the rows that are done.
pub(crate) fn run(args: &QueuedirsArgs) -> Result<(), String> {
    if args.mta.is_some() {
        return super::create::run(args);
    }
    if args.slope && args.messages < 4 * POINT {
        return Err(format!("--slope needs -m {} or more: a point is {POINT} messages", 4 * POINT));
    }
    let device = Device::below(&args.directory)?;
    let scratch = Scratch::new(&args.directory)?;
    // Queues stay until the end: for a minute ext4 looks at every inode of a file that was removed before it takes
    // another one, so that removing a queue makes the next one slower.
    let senders = args.senders();
    let queues = (senders.len() * args.directories.len()) as u64 * u64::from(args.rounds.count);
    let kept = queues.saturating_mul(args.messages.into());
    scratch.needs(kept.saturating_mul(super::message_bytes(args.length)))?;
    let cases: Vec<(u32, u32)> =
        senders.iter().flat_map(|s| args.directories.iter().map(move |d| (*s, *d))).collect();
    let progress = Progress::new("enqueue", cases.len() as u64 * u64::from(args.rounds.count));
    println!("{}", device.text());
    println!(
        "{:>7} {:>5} {:>8} {:>32} {:>32} {:>28}",
        "senders", "dirs", "messages", "messages/s", "ms for 500 entries", "p50 ms of a message"
    );
    for (senders, directories) in cases {
        let (mut rate, mut point, mut latency) = (Figure::new(), Figure::new(), Figure::new());
        let (mut done, mut slopes) = (0, Vec::new());
        for number in 0..args.rounds.count {
            let parent = scratch.path().join(format!("queue-{senders}-{directories}-{number}"));
            let round = round(args, senders, &make(&parent, directories)?, &scratch)?;
            if scratch.is_stopped() {
                break;
            }
            done = round.done;
            rate.push(f64::from(round.done) / round.seconds);
            if !round.points.is_empty() {
                point.push(round.points.iter().sum::<f64>() / round.points.len() as f64);
            }
            latency.push(round.times.at(0.5).as_secs_f64() * 1e3);
            slopes.push(Slope::of(&round.points));
            progress.step();
        }
        if done == 0 {
            break;
        }
        println!("{senders:>7} {directories:>5} {done:>8} {rate:>32} {point:>32} {latency:>28}");
        for slope in slopes.iter().flatten().filter(|_| args.slope) {
            println!("{:>22} {}", "", slope.text());
        }
    }
    println!(
        "{}",
        if args.no_sync {
            "Durability: not synced."
        } else {
            "Durability: both files synced (fsync), the directory not, as sendmail has it."
        }
    );
    Ok(())
}

/// A new queue.
fn make(parent: &Path, directories: u32) -> Result<Vec<PathBuf>, String> {
    std::fs::create_dir(parent).map_err(|e| format!("create {}: {e}", parent.display()))?;
    make_directories(parent, directories)
}

fn round(args: &QueuedirsArgs, senders: u32, paths: &[PathBuf], scratch: &Scratch) -> Result<Round, String> {
    let (next, done) = (AtomicU32::new(0), AtomicU32::new(0));
    let points = Mutex::new(Vec::new());
    let begin = Instant::now();
    let send = || -> std::io::Result<Times> {
        let mut times = Times::default();
        loop {
            let number = next.fetch_add(1, Relaxed);
            if number >= args.messages || scratch.is_stopped() {
                return Ok(times);
            }
            let begun = Instant::now();
            enqueue(
                &paths[number as usize % paths.len()],
                number,
                HOSTS,
                args.length as usize,
                !args.no_sync,
            )?;
            times.took(begun.elapsed());
            if (done.fetch_add(1, Relaxed) + 1).is_multiple_of(POINT)
                && let Ok(mut points) = points.lock()
            {
                points.push(begin.elapsed().as_secs_f64() * 1e3);
            }
        }
    };
    let mut times = Times::default();
    let results: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..senders).map(|_| scope.spawn(send)).collect();
        threads
            .into_iter()
            .map(|t| t.join().unwrap_or_else(|_| Err(std::io::Error::other("a sender panicked"))))
            .collect()
    });
    let seconds = begin.elapsed().as_secs_f64();
    for result in results {
        times.add(&result.map_err(|e| format!("queue a message: {e}"))?);
    }
    let ends = points.into_inner().unwrap_or_default();
    let begins = std::iter::once(0.0).chain(ends.iter().copied());
    let points = ends.iter().zip(begins).map(|(end, begin)| end - begin).collect();
    Ok(Round { points, seconds, done: done.into_inner(), times })
}

/// The growth of the milliseconds for 500 entries with the points before.
#[derive(Debug, PartialEq)]
struct Slope {
    per_point: f64,
    margin: f64,
    points: usize,
}

impl Slope {
    /// Least squares, with its 95 % interval.
    fn of(points: &[f64]) -> Option<Self> {
        let n = points.len() as f64;
        if points.len() < 4 {
            return None;
        }
        let (mean_x, mean_y) = ((n - 1.0) / 2.0, points.iter().sum::<f64>() / n);
        let x = |i: usize| i as f64 - mean_x;
        let sum_xx: f64 = (0..points.len()).map(|i| x(i).powi(2)).sum();
        let per_point = points.iter().enumerate().map(|(i, y)| x(i) * (y - mean_y)).sum::<f64>() / sum_xx;
        let left: f64 = points.iter().enumerate().map(|(i, y)| (y - mean_y - per_point * x(i)).powi(2)).sum();
        let error = (left / (n - 2.0) / sum_xx).sqrt();
        let student = StudentsT::new(0.0, 1.0, n - 2.0).ok()?;
        Some(Self { per_point, margin: student.inverse_cdf(0.975) * error, points: points.len() })
    }

    fn text(&self) -> String {
        // From milliseconds for 500 entries to microseconds for one, for each thousand that are there.
        let scale = 1e3 / f64::from(POINT) * 1000.0 / f64::from(POINT);
        let (slope, margin) = (self.per_point * scale, self.margin * scale);
        let verdict = if slope.abs() > margin { "differs from 0" } else { "not different from 0" };
        format!(
            "slope {slope:.3} ± {margin:.3} µs an entry for each 1000 there: {verdict} (95 %, N={})",
            self.points
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slope_is_found_and_noise_is_none() {
        let rising: Vec<f64> = (0..20).map(|i| 100.0 + f64::from(i) + f64::from(i % 2)).collect();
        let slope = Slope::of(&rising).unwrap();
        assert!((slope.per_point - 1.0).abs() < 0.05, "{slope:?}");
        assert!(
            slope.text().contains("differs from 0 (95 %, N=20)") && !slope.text().contains("not"),
            "{}",
            slope.text()
        );
        let flat: Vec<f64> = (0..20).map(|i| 100.0 + f64::from(i * 7 % 5)).collect();
        assert!(Slope::of(&flat).unwrap().text().contains("not different from 0"));
        assert_eq!(Slope::of(&[1.0; 3]), None);
    }
}
