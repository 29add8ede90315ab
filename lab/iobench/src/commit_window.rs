//! `postlab commit-window`: the longest time for which a transaction may wait for others to share its commit. sendmail X needed more than 1,000
//! commits for 1,000 messages with 100 µs, and 165 with 10 ms.

use crate::{
    device::Device,
    disk::Times,
    message_factory::MessageFactory,
    rounds::{Figure, Progress, Rounds, disagreement, too_short_round},
    scratch::Scratch,
    table::{Cell, Column, Format, Table},
};
use clap::Args;
use mail::Content;
use spool::{Entry, LogSettings, LogSpool, Spool as _};
use std::{
    fs::File,
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

/// Sweep the longest time that a transaction waits for others to share its commit
///
/// Sessions append a record to a log, and each waits until its record is durable before it appends the next. A commit starts this long after its first record, and syncs
/// every record that has arrived by then. The last row is the log of Postrider, which chooses the time itself from the
/// duration of a sync, the sessions that wait and the processor time that is left.
#[derive(Debug, Args)]
pub struct CommitWindowArgs {
    /// The longest times in microseconds
    #[arg(short = 'w', value_name = "µs,…", value_delimiter = ',', default_value = "0,100,300,1000,3000,10000", value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    windows: Vec<u32>,
    /// Sessions; several are measured in turn
    #[arg(short = 's', value_name = "COUNT,…", value_delimiter = ',', default_value = "1,10,100", value_parser = clap::value_parser!(u32).range(1..=1000))]
    sessions: Vec<u32>,
    /// Messages of each round
    #[arg(short = 'm', value_name = "COUNT", default_value = "1000", value_parser = clap::value_parser!(u32).range(1..))]
    messages: u32,
    /// Octets of the content of each
    #[arg(short = 'l', value_name = "BYTES", default_value = "1024", value_parser = clap::value_parser!(u32).range(1..=200_000))]
    length: u32,
    /// Mean pause of a session before each message; each is 50 to 150 % of it: messages then arrive one by one, and fewer than the
    /// disk could take
    #[arg(long, value_name = "MS", default_value = "0", value_parser = clap::value_parser!(u32).range(..=10_000))]
    pause: u32,
    /// Keep content in a file of its own in this directory, as on another disk; a commit syncs both files at once. Postrider's log has no such form
    /// and is left out
    #[arg(long, value_name = "DIRECTORY")]
    content: Option<PathBuf>,
    #[command(flatten)]
    rounds: Rounds,
    #[command(flatten)]
    format: Format,
    /// A directory on the disk to measure
    #[arg(default_value = ".")]
    directory: PathBuf,
}

/// Octets of an envelope with its header in the log.
const ENVELOPE_BYTES: usize = 256;

const COLUMNS: [Column; 7] = [
    Column::right("window µs", "window_us", 9),
    Column::right("sessions", "sessions", 8),
    Column::right("messages", "messages", 8),
    Column::right("commits", "commits", 26),
    Column::right("messages/s", "messages_per_second", 30),
    Column::right("p50 ms", "p50_ms", 9),
    Column::right("p99 ms", "p99_ms", 9),
];

/// What all rounds of one case have measured.
#[derive(Default)]
struct Case {
    messages: u32,
    commits: Figure,
    rates: Figure,
    seconds: Figure,
    times: Times,
}

/// A round: commits, seconds, and the time of each message.
type Round = (u64, f64, Times);

/// Measures and prints; Ctrl-C keeps the rows that are done.
///
/// # Errors
/// The directory cannot be written.
pub fn run(args: &CommitWindowArgs) -> Result<(), String> {
    let device = Device::below(&args.directory)?;
    let scratch = Scratch::new(&args.directory)?;
    let content = args.content.as_deref().map(Scratch::new).transpose()?;
    let own = content.is_none().then_some(None);
    let windows: Vec<Option<u32>> = args.windows.iter().copied().map(Some).chain(own).collect();
    let cases = windows.len() as u64 * args.sessions.len() as u64 * u64::from(args.rounds.count);
    let progress = Progress::new("commit", cases);
    let mut table = Table::new(args.format, &COLUMNS, Some(&progress));
    table.fact(device.text());
    for sessions in &args.sessions {
        for window in &windows {
            let mut case = Case::default();
            for _ in 0..args.rounds.count {
                if scratch.is_stopped() {
                    break;
                }
                let (commits, seconds, times) = match window {
                    Some(us) => {
                        let window = Duration::from_micros((*us).into());
                        let files = Files::create(args, scratch.path(), content.as_ref().map(Scratch::path));
                        fixed(args, *sessions, window, &files?)
                    }
                    None => adaptive(args, *sessions, scratch.path()),
                }?;
                case.messages += args.messages;
                case.commits.push(commits as f64);
                case.rates.push(f64::from(args.messages) / seconds.max(1e-9));
                case.seconds.push(seconds);
                case.times.add(&times);
                progress.step();
            }
            if case.messages == 0 {
                break;
            }
            let ms = |share: f64| Cell::Number(case.times.at(share).as_secs_f64() * 1e3, 3);
            let (p50, p99) = (ms(0.5), ms(0.99));
            table.row([
                window.map_or_else(|| "postrider".to_owned(), |us| us.to_string()).into(),
                (*sessions).into(),
                case.messages.into(),
                (&case.commits).into(),
                (&case.rates).into(),
                p50,
                p99,
            ]);
            let remarks = disagreement(&case.rates).into_iter().chain(too_short_round(&case.seconds));
            remarks.for_each(|remark| table.remark(remark));
        }
    }
    table.note(match content {
        None => "Durability: fdatasync with each commit.",
        Some(_) => "Durability: fdatasync of both files with each commit.",
    });
    table.finish();
    Ok(())
}

/// The log, and the file of content if that is another.
struct Files {
    log: (File, usize),
    content: Option<(File, usize)>,
}

impl Files {
    fn create(args: &CommitWindowArgs, place: &Path, content: Option<&Path>) -> Result<Self, String> {
        let create = |place: &Path, name: &str| {
            let path = place.join(name);
            File::create(&path).map_err(|e| format!("create {}: {e}", path.display()))
        };
        let length = args.length as usize;
        let log = create(place, "log")?;
        Ok(match content {
            None => Self { log: (log, ENVELOPE_BYTES + length), content: None },
            Some(place) => {
                Self { log: (log, ENVELOPE_BYTES), content: Some((create(place, "content")?, length)) }
            }
        })
    }

    /// Writes so many records, and returns when they are durable.
    fn commit(&self, count: usize) -> io::Result<()> {
        let write = |(file, length): &(File, usize)| {
            let mut file = file;
            file.write_all(&vec![b'r'; length * count])?;
            file.sync_data()
        };
        let Some(content) = &self.content else { return write(&self.log) };
        thread::scope(|scope| {
            let content = scope.spawn(|| write(content));
            write(&self.log)?;
            content.join().unwrap_or_else(|_| Err(io::Error::other("a writer panicked")))
        })
    }
}

/// How far appends and commits have come.
#[derive(Default)]
struct Log {
    /// When the first record came that waits.
    since: Option<Instant>,
    appended: u64,
    durable: u64,
    is_over: bool,
    failure: Option<String>,
}

struct Shared {
    log: Mutex<Log>,
    appended: Condvar,
    committed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Measures one round in which each commit waits for a fixed window.
fn fixed(args: &CommitWindowArgs, sessions: u32, window: Duration, files: &Files) -> Result<Round, String> {
    let shared = Shared { log: Mutex::default(), appended: Condvar::new(), committed: Condvar::new() };
    let begin = Instant::now();
    thread::scope(|scope| {
        let committer = scope.spawn(|| commit(&shared, files, window));
        let works: Vec<_> = shares(args.messages, sessions)
            .zip(0..)
            .map(|(count, number)| {
                let (shared, pauses) = (&shared, Pauses::new(args.pause, number));
                scope.spawn(move || append(shared, count, pauses))
            })
            .collect();
        let mut times = Times::default();
        for work in works {
            times.add(&work.join().map_err(|_| "a session panicked")?);
        }
        let seconds = begin.elapsed().as_secs_f64();
        shared.lock().is_over = true;
        shared.appended.notify_all();
        let commits = committer.join().map_err(|_| "the committer panicked")?;
        match shared.lock().failure.take() {
            Some(failure) => Err(failure),
            None => Ok((commits, seconds, times)),
        }
    })
}

/// Returns how many messages each session sends: together `messages`.
fn shares(messages: u32, sessions: u32) -> impl Iterator<Item = u32> {
    (0..sessions).map(move |i| messages / sessions + u32::from(i < messages % sessions))
}

/// The pauses of a session, the same in each run.
struct Pauses {
    mean: Duration,
    random: fastrand::Rng,
}

impl Pauses {
    fn new(mean_ms: u32, session: u64) -> Self {
        Self { mean: Duration::from_millis(mean_ms.into()), random: fastrand::Rng::with_seed(session) }
    }

    /// Waits before a message; not at all without a mean.
    fn wait(&mut self) {
        if self.mean.is_zero() {
            return;
        }
        thread::sleep(self.mean.mul_f64(0.5 + self.random.f64()));
    }
}

/// A session: appends, and waits until that is durable.
fn append(shared: &Shared, count: u32, mut pauses: Pauses) -> Times {
    let mut times = Times::default();
    for _ in 0..count {
        pauses.wait();
        let begin = Instant::now();
        let mut log = shared.lock();
        log.appended += 1;
        let mine = log.appended;
        if log.since.is_none() {
            log.since = Some(begin);
            shared.appended.notify_one();
        }
        while log.durable < mine && log.failure.is_none() {
            log = shared.committed.wait(log).unwrap_or_else(PoisonError::into_inner);
        }
        drop(log);
        times.took(begin.elapsed());
    }
    times
}

/// Commits what waits, until all sessions have ended. Returns the number of commits.
fn commit(shared: &Shared, files: &Files, window: Duration) -> u64 {
    let (mut commits, mut done) = (0, 0);
    loop {
        let log = shared.lock();
        let idle = |log: &mut Log| log.since.is_none() && !log.is_over;
        let log = shared.appended.wait_while(log, idle).unwrap_or_else(PoisonError::into_inner);
        let Some(since) = log.since else { return commits };
        drop(log);
        thread::sleep(window.saturating_sub(since.elapsed()));
        let upto = {
            let mut log = shared.lock();
            log.since = None;
            log.appended
        };
        let written = files.commit((upto - done) as usize);
        (commits, done) = (commits + 1, upto);
        let mut log = shared.lock();
        log.durable = upto;
        log.failure = written.err().map(|e| format!("write a log: {e}"));
        drop(log);
        shared.committed.notify_all();
    }
}

/// A round of Postrider's log, with its own rule.
fn adaptive(args: &CommitWindowArgs, sessions: u32, place: &Path) -> Result<Round, String> {
    let path = place.join("spool");
    let settings = LogSettings { min_free_bytes: 0, ..LogSettings::default() };
    let mut spool = LogSpool::open(&path, settings).map_err(|e| e.to_string())?;
    spool.recover(&mut |_| {}).map_err(|e| e.to_string())?;
    spool.make_segments_ready();
    let (factory, content) =
        (Mutex::new(MessageFactory::new()?), Content::from_bytes(vec![b'r'; args.length as usize]));
    let before = spool.pressure().commit_count;
    let begin = Instant::now();
    let times = thread::scope(|scope| {
        let session = |(count, number): (u32, u64)| {
            let mut pauses = Pauses::new(args.pause, number);
            let (spool, factory, content) = (&spool, &factory, &content);
            scope.spawn(move || -> Result<Times, String> {
                let runtime =
                    tokio::runtime::Builder::new_current_thread().build().map_err(|e| e.to_string())?;
                let mut times = Times::default();
                for _ in 0..count {
                    pauses.wait();
                    let begin = Instant::now();
                    let message =
                        factory.lock().unwrap_or_else(PoisonError::into_inner).message(content.clone());
                    let at = spool.submit(vec![Entry::Accept(message)]).map_err(|e| e.to_string())?;
                    runtime.block_on(spool.durable(at)).map_err(|e| e.to_string())?;
                    times.took(begin.elapsed());
                }
                Ok(times)
            })
        };
        let works: Vec<_> = shares(args.messages, sessions).zip(0..).map(session).collect();
        let mut times = Times::default();
        for work in works {
            times.add(&work.join().map_err(|_| "a session panicked")??);
        }
        Ok::<_, String>(times)
    })?;
    let seconds = begin.elapsed().as_secs_f64();
    let commits = spool.pressure().commit_count - before;
    spool.close();
    drop(spool);
    std::fs::remove_dir_all(&path).map_err(|e| format!("remove {}: {e}", path.display()))?;
    Ok((commits, seconds, times))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_longer_window_needs_fewer_commits_and_each_message_is_durable() {
        use clap::Parser as _;
        #[derive(clap::Parser)]
        struct Cli {
            #[command(flatten)]
            args: CommitWindowArgs,
        }
        let directory = tempfile::tempdir().unwrap();
        let args = Cli::parse_from(["x", "-m", "40", "-l", "100"]).args;
        let place = directory.path();
        let window = |ms, content: Option<&Path>| {
            let files = Files::create(&args, place, content).unwrap();
            fixed(&args, 4, Duration::from_millis(ms), &files).unwrap()
        };
        let length = |name: &str| std::fs::metadata(place.join(name)).unwrap().len();
        // Each session waits for its record: a commit has at most one of each, and with a long window one of each, unless a
        // thread gets no processor for as long as that.
        let (commits, seconds, _) = window(50, None);
        assert!((10..=20).contains(&commits), "{commits}");
        assert!(seconds >= 0.5, "{seconds}");
        assert_eq!(length("log"), 40 * 356);
        assert!((10..=40).contains(&window(0, Some(place)).0));
        assert_eq!((length("log"), length("content")), (40 * 256, 40 * 100));
        let (commits, ..) = adaptive(&args, 4, place).unwrap();
        assert!((10..=41).contains(&commits), "{commits}");
    }
}
