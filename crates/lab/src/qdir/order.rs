//! `postlab queuerun`: S1's phases. What it costs a runner to read a queue directory and put it into an order.

use super::{DaemonArgs, Mta, enqueue, make_directories, peer::PeerArgs};
use crate::{
    device::Device,
    rounds::{Figure, Progress},
    scratch::Scratch,
};
use clap::{Args, ValueEnum};
use std::{
    cmp::Reverse,
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::Instant,
};

/// Measure reading and sorting of a queue in each order
#[derive(Debug, Args)]
pub(crate) struct QueuerunArgs {
    /// Messages in the queue
    #[arg(short = 'm', value_name = "COUNT", default_value = "30000", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub(super) messages: u32,
    /// Only these orders
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(super) order: Vec<Order>,
    /// Drop the page cache before each round; needs root. With --mta: rounds with and without
    #[arg(long)]
    pub(super) cold: bool,
    /// The number of rounds; all are reported
    #[arg(long, value_name = "COUNT", default_value = "10", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) rounds: u32,
    /// Measure a daemon's `queue run`, instead of files
    #[arg(long, value_enum)]
    mta: Option<Mta>,
    /// With --mta: also deliver the queue in each order, with this number of connections
    #[arg(long, value_name = "COUNT,…", value_delimiter = ',', requires = "mta", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) runners: Vec<u32>,
    #[command(flatten)]
    pub(super) daemon: DaemonArgs,
    #[command(flatten)]
    pub(super) peer: PeerArgs,
    /// A directory on the disk to measure
    #[arg(default_value = ".")]
    pub(super) directory: PathBuf,
}

/// sendmail's QueueSortOrder, and some of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Order {
    /// By size and recipients in the file; the default of sendmail
    Priority,
    /// By name; opens no file
    Filename,
    /// By recipient's host, then priority
    Host,
    /// By the modification time of the file
    Modification,
    Random,
    /// By the submission time in the file
    Time,
    /// In the order of the directory
    None,
    /// By the size of the content
    Smallest,
    /// Small messages before bulk; with --mta only
    Fair,
    /// By expiry time; with --mta only
    Deadline,
}

/// The facts of a message that an order needs.
#[derive(Debug, Default, Clone, PartialEq)]
struct Work {
    name: String,
    number: u64,
    host: String,
}

impl Order {
    pub(super) fn name(self) -> String {
        self.to_possible_value().map(|v| v.get_name().to_owned()).unwrap_or_default()
    }

    /// Has a file of sendmail's what it asks for?
    fn is_sendmails(&self) -> bool {
        !matches!(self, Self::Fair | Self::Deadline)
    }

    fn opens(self) -> bool {
        matches!(self, Self::Priority | Self::Host | Self::Time)
    }

    fn stats(self) -> bool {
        matches!(self, Self::Modification | Self::Smallest)
    }
}

/// Measures and prints; Ctrl-C keeps the rows that are done.
pub(crate) fn run(args: &QueuerunArgs) -> Result<(), String> {
    if args.mta.is_some() {
        return super::passes::run(args);
    }
    let device = Device::below(&args.directory)?;
    let scratch = Scratch::new(&args.directory)?;
    let queue = make_directories(scratch.path(), 1)?.remove(0);
    let say = |e: io::Error| format!("use {}: {e}", queue.display());
    let named = if args.order.is_empty() { Order::value_variants() } else { &args.order };
    let orders: Vec<Order> = named.iter().copied().filter(Order::is_sendmails).collect();
    if orders.is_empty() {
        return Err("sort files: those orders are --mta's only".into());
    }
    let progress = Progress::new("queue and run", orders.len() as u64 * u64::from(args.rounds) + 1);
    for number in 0..args.messages {
        // Scattered over the names as over the times they come.
        enqueue(&queue, number.wrapping_mul(2_654_435_761), 100, false).map_err(say)?;
        if scratch.is_stopped() {
            return Ok(());
        }
    }
    // What was queued shall not be written while it is read.
    fs::File::open(&queue).and_then(|queue| Ok(rustix::fs::syncfs(&queue)?)).map_err(say)?;
    progress.step();
    println!("{}\n{} messages; milliseconds", device.text(), args.messages);
    println!(
        "{:<13} {:>30} {:>30} {:>30} {:>8} {:>10}",
        "order", "queue-read", "queue-sort", "sum", "of first", "µs/message"
    );
    let mut figures: Vec<[Figure; 3]> = orders.iter().map(|_| [const { Figure::new() }; 3]).collect();
    // Round for round, so that noise meets all of them.
    for _ in 0..args.rounds {
        for (order, [read_ms, sort_ms, sum_ms]) in orders.iter().zip(&mut figures) {
            if scratch.is_stopped() {
                break;
            }
            if args.cold {
                fs::write("/proc/sys/vm/drop_caches", "3").map_err(|e| format!("empty the caches: {e}"))?;
            }
            let begin = Instant::now();
            let mut works = read(&queue, *order).map_err(say)?;
            let read_time = begin.elapsed();
            sort(&mut works, *order);
            let sum = begin.elapsed();
            std::hint::black_box(&works);
            read_ms.push(read_time.as_secs_f64() * 1e3);
            sort_ms.push((sum - read_time).as_secs_f64() * 1e3);
            sum_ms.push(sum.as_secs_f64() * 1e3);
            progress.step();
        }
    }
    drop(progress);
    let first = figures[0][2].median().unwrap_or_default();
    for (order, [read_ms, sort_ms, sum_ms]) in orders.iter().zip(&figures) {
        let name = order.name();
        let median = sum_ms.median().unwrap_or_default();
        println!(
            "{name:<13} {read_ms:>30} {sort_ms:>30} {sum_ms:>30} {:>7.1}% {:>10.2}",
            median / first.max(1e-9) * 100.0,
            median * 1e3 / f64::from(args.messages)
        );
    }
    println!("{}", if args.cold { "Caches emptied before each round." } else { "Caches warm." });
    Ok(())
}

/// Reads the facts that the order needs, of each message.
fn read(queue: &Path, order: Order) -> io::Result<Vec<Work>> {
    let mut works = Vec::new();
    for entry in fs::read_dir(queue)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with("qf") {
            continue;
        }
        let mut work = Work { name, ..Work::default() };
        if order.opens() {
            work.understand(&fs::read_to_string(entry.path())?, order);
        } else if order.stats() {
            let path = if order == Order::Smallest {
                queue.join(work.name.replacen('q', "d", 1))
            } else {
                entry.path()
            };
            let meta = fs::metadata(path)?;
            work.number = if order == Order::Smallest {
                meta.size()
            } else {
                meta.mtime().unsigned_abs() * 1_000_000_000 + meta.mtime_nsec().unsigned_abs()
            };
        } else if order == Order::Random {
            work.number = fastrand::u64(..);
        }
        works.push(work);
    }
    Ok(works)
}

fn sort(works: &mut [Work], order: Order) {
    match order {
        Order::None | Order::Fair | Order::Deadline => {}
        Order::Filename => works.sort_unstable_by(|a, b| a.name.cmp(&b.name)),
        Order::Host => {
            works.sort_unstable_by(|a, b| (&a.host, Reverse(a.number)).cmp(&(&b.host, Reverse(b.number))));
        }
        _ => works.sort_unstable_by_key(|work| work.number),
    }
}

impl Work {
    /// Reads the lines of a qf file that matter.
    fn understand(&mut self, text: &str, order: Order) {
        let wanted = if order == Order::Time { 'T' } else { 'P' };
        for line in text.lines() {
            if let Some(number) = line.strip_prefix(wanted) {
                self.number = number.parse().unwrap_or_default();
            } else if order == Order::Host && line.starts_with("RPFD:") {
                self.host = line.rsplit('@').next().unwrap_or_default().trim_end_matches('>').to_owned();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_order_reads_all_and_puts_them_in_its_order() {
        let directory = tempfile::tempdir().unwrap();
        for number in [5, 3, 9, 1] {
            enqueue(directory.path(), number, number as usize, false).unwrap();
        }
        for order in Order::value_variants() {
            let mut works = read(directory.path(), *order).unwrap();
            sort(&mut works, *order);
            assert_eq!(works.len(), 4, "{order:?}");
            let names: Vec<&str> = works.iter().map(|w| &w.name[9..]).collect();
            match order {
                Order::Priority | Order::Filename | Order::Time | Order::Smallest => {
                    assert_eq!(names, ["1", "3", "5", "9"], "{order:?}");
                }
                Order::Host => assert!(works.is_sorted_by(|a, b| a.host <= b.host)),
                Order::Modification | Order::Random => {
                    assert!(works.is_sorted_by(|a, b| a.number <= b.number));
                }
                Order::None | Order::Fair | Order::Deadline => {}
            }
        }
    }
}
