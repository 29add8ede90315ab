//! `kill9 --binary PATH [--rounds N] [--seed N] [--errors]`: the daemon under load, killed with SIGKILL
//! again and again, or with a disk that fails. Whatever it answered 250 must arrive, or be reported to its
//! sender.

mod client;
mod daemon;
mod device;
mod errors;
mod mail;
mod sink;

use daemon::{Daemon, DaemonUnderTest};
use mail::Course;
use sim::seed::Rng;
use sink::{Arrivals, Sink};
use std::{
    collections::HashMap,
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

/// SMTP sessions at a time.
const SESSIONS: usize = 12;
/// What all rounds together have found.
#[derive(Default)]
struct Tally {
    acknowledged: Vec<String>,
    in_flight: usize,
    killed_in_start: u64,
    starts: Vec<Duration>,
    complaints: Vec<String>,
}

fn main() -> ExitCode {
    let rounds = sim::args::number("--rounds", 20);
    let seed = sim::args::number("--seed", 1);
    let binary = PathBuf::from(sim::args::text("--binary").unwrap_or("target/debug/postrider".into()));
    let errors = std::env::args().any(|word| word == "--errors");
    let (verb, done) = if errors {
        ("eio", errors::run(&binary, rounds, seed))
    } else {
        ("kill9", run(&binary, rounds, seed))
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            println!("{what}\n  cargo xtask {verb} --rounds {rounds} --seed {seed}");
            ExitCode::FAILURE
        }
    }
}

fn run(binary: &std::path::Path, rounds: u64, seed: u64) -> Result<(), String> {
    let failed = |what: &str, e: std::io::Error| format!("{what}: {e}");
    let dir = tempfile::tempdir().map_err(|e| failed("make a folder", e))?;
    let sink = Sink::start().map_err(|e| failed("listen", e))?;
    let daemon_under_test =
        DaemonUnderTest::new(binary, dir.path(), sink.address).map_err(|e| failed("set up the daemon", e))?;
    let (begun, mut rng, mut tally) = (Instant::now(), Rng::new(seed), Tally::default());
    for round in 0..rounds {
        let daemon = daemon_under_test.start().map_err(|e| failed("start the daemon", e))?;
        let mut rng = rng.fork();
        let complaints = if rng.chance(15) {
            tally.killed_in_start += 1;
            // A start takes some milliseconds: anywhere in it.
            daemon.listening_within(Duration::from_micros(rng.below(30_000)))?;
            daemon.kill()
        } else {
            tally.starts.push(daemon.listening()?);
            under_load(&format!("r{round}"), &daemon_under_test, daemon, &sink, &mut rng, &mut tally)?
        };
        tally.complaints.extend(complaints);
    }
    let took = begun.elapsed();
    let daemon = daemon_under_test.start().map_err(|e| failed("start the daemon", e))?;
    tally.starts.push(daemon.listening()?);
    sink.wait(Duration::from_secs(10), |arrivals| missing(&tally, arrivals).next().is_none());
    tally.complaints.extend(daemon.stop()?);
    check(&tally, &sink.arrivals(), rounds, took)
}

/// A round: sessions send, and at a moment of the seed's choice the daemon is killed.
fn under_load(
    name: &str,
    daemon_under_test: &DaemonUnderTest,
    daemon: Daemon,
    sink: &Sink,
    rng: &mut Rng,
    tally: &mut Tally,
) -> Result<Vec<String>, String> {
    // By count, or by time: the former falls on what follows an answer, the latter anywhere.
    let goal = if rng.chance(70) { Some(1 + rng.index(400)) } else { None };
    let until = Instant::now() + Duration::from_micros(rng.below(100_000));
    sink.hold(rng.chance(25));
    std::thread::scope(|scope| {
        let told = client::load(scope, SESSIONS, daemon_under_test.address, name);
        let mut count = 0;
        while goal.is_none_or(|goal| count < goal) {
            let limit = if goal.is_some() {
                client::WAIT_TIMEOUT
            } else {
                until.saturating_duration_since(Instant::now())
            };
            match told.recv_timeout(limit) {
                Ok((name, 250)) => {
                    count += 1;
                    tally.acknowledged.push(name);
                }
                Ok(_) => {}
                Err(_) if goal.is_none() => break,
                Err(e) => {
                    let said = daemon.kill().join("\n  ");
                    sink.hold(false);
                    return Err(format!("{name}: the load stands still after {count}: {e}\n  {said}"));
                }
            }
        }
        tally.in_flight += sink.in_flight();
        let complaints = daemon.kill();
        sink.hold(false);
        tally.acknowledged.extend(told.iter().filter(|(_, code)| *code == 250).map(|(name, _)| name));
        Ok(complaints)
    })
}

/// Returns the messages that were answered 250, and neither arrived nor were reported.
fn missing<'a>(tally: &'a Tally, arrivals: &'a Arrivals) -> impl Iterator<Item = &'a String> {
    tally.acknowledged.iter().filter(|name| match mail::course(name) {
        Course::Taken | Course::Deferred => !arrivals.taken.contains_key(*name),
        Course::Refused => !arrivals.reported.contains_key(*name),
    })
}

/// Returns the number of repeated arrivals.
fn more(counts: &HashMap<String, u32>) -> u32 {
    counts.values().map(|n| n - 1).sum()
}

fn check(tally: &Tally, arrivals: &Arrivals, rounds: u64, took: Duration) -> Result<(), String> {
    let lost: Vec<&String> = missing(tally, arrivals).collect();
    let (twice, reported_twice) = (more(&arrivals.taken), more(&arrivals.reported));
    let mut starts = tally.starts.clone();
    starts.sort();
    let at = |percent: usize| starts[(starts.len() - 1) * percent / 100].as_millis();
    println!(
        "{rounds} rounds ({} killed while starting) in {:.1} s, {} messages answered 250, {} lost, {} damaged, \
         {twice} arrived twice and {reported_twice} were reported twice with {} in flight at the kills; \
         a start takes {} ms (median), {} ms (p99), {} ms (most)",
        tally.killed_in_start,
        took.as_secs_f64(),
        tally.acknowledged.len(),
        lost.len(),
        arrivals.damaged.len(),
        tally.in_flight,
        at(50),
        at(99),
        at(100),
    );
    let mut faults = Vec::new();
    if !lost.is_empty() {
        faults.push(format!("lost: {lost:?}"));
    }
    if !arrivals.damaged.is_empty() {
        faults.push(format!("arrived otherwise than sent: {:?}", arrivals.damaged));
    }
    if (twice + reported_twice) as usize > tally.in_flight {
        faults.push("more arrived twice than were in flight".to_owned());
    }
    if !tally.complaints.is_empty() {
        faults.push(format!("the daemon complained: {}", tally.complaints.join("\n  ")));
    }
    if faults.is_empty() { Ok(()) } else { Err(faults.join("\n")) }
}
