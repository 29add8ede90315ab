//! The senders of `postlab queuedirs`: threads, in this process or in several.

use super::{dirs::QueuedirsArgs, enqueue, slope::POINT};
use crate::{disk::Times, scratch::Scratch};
use measure::workers::{self, now};
use std::{
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    thread,
    time::Duration,
};

/// Hosts that recipients are spread over.
const HOSTS: u32 = 1000;
/// Subdirectories of a hashed queue directory, as sendmail X's content database has them.
pub(super) const SUBDIRECTORIES: u32 = 16;

/// The messages of one process: every `step`th from `first` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Share {
    first: u32,
    step: u32,
    messages: u32,
    senders: u32,
}

/// A queued message: its end by the clock, and its duration, in nanoseconds.
type Queued = (u64, u64);

/// A round: milliseconds for each further 500 entries, and each message's time.
pub(super) struct Round {
    pub(super) points: Vec<f64>,
    pub(super) seconds: f64,
    pub(super) done: u32,
    pub(super) times: Times,
}

impl Share {
    /// `first:step:messages:senders`
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let numbers: Vec<u32> = text.split(':').filter_map(|word| word.parse().ok()).collect();
        let [first, step, messages, senders] = numbers[..] else {
            return Err(format!("`{text}` is not first:step:messages:senders"));
        };
        Ok(Self { first, step, messages, senders })
    }

    fn text(&self) -> String {
        format!("{}:{}:{}:{}", self.first, self.step, self.messages, self.senders)
    }

    /// Divides messages and senders among the processes.
    fn of(messages: u32, senders: u32, processes: u32) -> Vec<Self> {
        let senders = |i: u32| senders / processes + u32::from(i < senders % processes);
        (0..processes).map(|i| Self { first: i, step: processes, messages, senders: senders(i) }).collect()
    }
}

/// The queue directories below `parent`, with their subdirectories.
pub(super) fn paths(parent: &Path, directories: u32, is_hashed: bool) -> Vec<PathBuf> {
    let roots = (0..directories).map(|i| parent.join(format!("q{i}")));
    if !is_hashed {
        return roots.collect();
    }
    let below = |root: PathBuf| (0..SUBDIRECTORIES).map(move |i| root.join(format!("{i:x}")));
    roots.flat_map(below).collect()
}

/// Queues all messages with `senders` threads, spread over `processes`.
pub(super) fn round(
    args: &QueuedirsArgs,
    parent: &Path,
    case: super::dirs::Setting,
    scratch: &Scratch,
) -> Result<Round, String> {
    let shares = Share::of(args.messages, case.senders, case.processes);
    let paths = paths(parent, case.directories, case.is_hashed);
    let failed = |e: io::Error| format!("queue a message: {e}");
    let (begin, mut all) = if let [share] = shares[..] {
        let begin = now();
        (begin, enqueue_share(args, &paths, share, &|| scratch.is_stopped()).map_err(failed)?)
    } else {
        in_processes(args, parent, case, &shares)?
    };
    all.sort_unstable();
    let mut times = Times::default();
    all.iter().for_each(|(_, took)| times.took(Duration::from_nanos(*took)));
    let ends: Vec<f64> = all
        .iter()
        .skip(POINT as usize - 1)
        .step_by(POINT as usize)
        .map(|(end, _)| end.saturating_sub(begin) as f64 / 1e6)
        .collect();
    let begins = std::iter::once(0.0).chain(ends.iter().copied());
    let points = ends.iter().zip(begins).map(|(end, begin)| end - begin).collect();
    let seconds = all.last().map_or(0.0, |(end, _)| end.saturating_sub(begin) as f64 / 1e9);
    Ok(Round { points, seconds, done: all.len() as u32, times })
}

fn enqueue_share(
    args: &QueuedirsArgs,
    paths: &[PathBuf],
    share: Share,
    is_stopped: &(dyn Fn() -> bool + Sync),
) -> io::Result<Vec<Queued>> {
    let next = AtomicU32::new(0);
    let send = || -> io::Result<Vec<Queued>> {
        let mut queued = Vec::new();
        loop {
            let number = next.fetch_add(1, Relaxed).saturating_mul(share.step).saturating_add(share.first);
            if number >= share.messages || is_stopped() {
                return Ok(queued);
            }
            let begun = now();
            let path = &paths[number as usize % paths.len()];
            enqueue(path, number, HOSTS, args.length as usize, !args.no_sync)?;
            let end = now();
            queued.push((end, end - begun));
        }
    };
    let results: Vec<io::Result<Vec<Queued>>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..share.senders).map(|_| scope.spawn(send)).collect();
        let panicked = || Err(io::Error::other("a sender panicked"));
        threads.into_iter().map(|t| t.join().unwrap_or_else(|_| panicked())).collect()
    });
    let mut all = Vec::new();
    for result in results {
        all.extend(result?);
    }
    Ok(all)
}

/// Runs this program again for each share; they begin together.
fn in_processes(
    args: &QueuedirsArgs,
    parent: &Path,
    case: super::dirs::Setting,
    shares: &[Share],
) -> Result<(u64, Vec<Queued>), String> {
    let (directories, length) = (case.directories.to_string(), args.length.to_string());
    let words = |share: &Share| {
        let share = share.text();
        let words =
            ["queuedirs", "--worker", &share, "-q", &directories, "-l", &length, "--layout", case.layout()];
        let no_sync = args.no_sync.then_some("-S");
        let mut words: Vec<String> = words.into_iter().chain(no_sync).map(str::to_owned).collect();
        words.push(parent.display().to_string());
        words
    };
    let (begin, texts) = workers::together(shares.iter().map(words))?;
    let parse = |line: &str| line.split_once(' ').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
    Ok((begin, texts.iter().flat_map(|text| text.lines()).filter_map(parse).collect()))
}

/// The work of such a process: it waits for a line, queues, and prints the times.
pub(super) fn worker(args: &QueuedirsArgs, share: Share) -> Result<(), String> {
    let failed = |e: io::Error| format!("queue messages: {e}");
    let directories = args.directories.first().copied().unwrap_or(1);
    let is_hashed = args.layout.contains(&super::dirs::Layout::Hashed);
    let paths = paths(&args.directory, directories, is_hashed);
    workers::ready()?;
    let queued = enqueue_share(args, &paths, share, &crate::signals::is_stopped).map_err(failed)?;
    let mut out = io::BufWriter::new(io::stdout().lock());
    for (end, took) in queued {
        writeln!(out, "{end} {took}").map_err(failed)?;
    }
    out.flush().map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_hold_all_senders_and_are_read_again() {
        let shares = Share::of(100, 10, 4);
        assert_eq!(shares.iter().map(|share| share.senders).collect::<Vec<_>>(), [3, 3, 2, 2]);
        assert!(shares.iter().all(|share| Share::parse(&share.text()).as_ref() == Ok(share)));
        assert!(Share::parse("1:2:3").is_err());
    }
}
