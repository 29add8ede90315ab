//! One verb a chore; see `cargo xtask --help`.
//!
//! CI runs `cargo xtask ci` and nothing else, so everything that CI reports can be repeated on any machine.

mod advisories;
mod ahead;
mod bench;
mod crash_tests;
mod dependencies;
mod docs;
mod files;
mod floor_plan;
mod interop;
mod licence;
mod package;
mod pgo;
mod project;
mod release;
mod rfc;
mod seeds;
mod setup;
mod shell;
mod site;
mod testing;
mod tidy;

use ahead::Ahead;
use clap::{Parser, Subcommand};
use shell::{ALL_MAPS, Done, Failure, cargo};
use std::{path::PathBuf, process::ExitCode, thread, time::Instant};
use testing::Choice;

/// The chores of this repository.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Build an optimised daemon in the profile `dist`, as packages and published figures have it
    Build {
        /// Use profile-guided optimisation: an instrumented build relays mail first
        #[arg(long)]
        pgo: bool,
    },
    /// Build Debian packages, static binaries, or a container image
    #[command(subcommand)]
    Package(package::Package),
    /// Make all files of a release from a clean tree
    Release(release::Options),
    /// Install the programs that tests talk to, and run every test but the long proofs
    Test {
        /// Only tests whose name contains this, also of long proofs; nothing is installed
        #[arg(conflicts_with = "proofs")]
        filter: Option<String>,
        /// Only the long proofs: importers and filters beside the other mail servers, and the simulator's many cases
        #[arg(long)]
        proofs: bool,
    },
    /// Check format, the rules of the house, clippy, and the licences, sources, bans and known vulnerabilities of
    /// all dependencies
    Lint,
    /// Write the list of known vulnerabilities anew, from a checkout of github.com/rustsec/advisory-db
    Advisories {
        /// The checkout
        database: PathBuf,
    },
    /// Make docs/configuration.md and the man pages from the code
    Docs {
        /// Change nothing; fail when they differ
        #[arg(long)]
        check: bool,
        /// Build the site in target/site instead, and check its links
        #[arg(long)]
        site: bool,
    },
    /// Crash the spool on a simulated disk, at each operation of a seed's choice
    Sim {
        /// The first seed; one names a case
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Cases, each of several crashes
        #[arg(long, default_value_t = 10_000)]
        cases: u64,
        /// Seeds of the whole relay, from client to next hop
        #[arg(long, default_value_t = 200)]
        relays: u64,
        /// log, directories, or both beside each other
        #[arg(long, default_value = "log", value_parser = ["log", "queue-dirs", "both"])]
        backend: String,
    },
    /// Kill the daemon under load with SIGKILL; whatever it answered 250 must arrive
    Kill9 {
        /// Kills
        #[arg(long, default_value_t = 20)]
        rounds: u64,
        /// Chooses the moments
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// The release build, as it is shipped
        #[arg(long)]
        release: bool,
    },
    /// Let the disk answer EIO under the daemon's load; it must refuse, and whatever it answered 250 must arrive
    Eio {
        /// Disks that fail
        #[arg(long, default_value_t = 10)]
        rounds: u64,
        /// Chooses the moments
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Cut the power under real file systems; whatever was called durable must be there
    Powercut(crash_tests::PowerCut),
    /// Count the instructions of a message's way, and compare them with the baseline
    Bench {
        /// Make what is counts the new baseline; the commit says why
        #[arg(long)]
        write: bool,
    },
    /// Talk to programs that are not ours, and write docs/interop.md
    Interop,
    /// Install the programs that tests talk to, as far as this machine and user allow
    Setup {
        /// Install what packages, the site and releases are built with
        #[arg(long)]
        release: bool,
    },
    /// Run the command of each row of docs/seeds/rows.toml, and record which succeed
    Rows(seeds::trial::Options),
    /// Run the checks of CI: test, lint, docs --check, the long proofs, the crashes it has time for, and bench
    Ci,
}

fn main() -> ExitCode {
    match run(&Cli::parse().verb) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("xtask: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(verb: &Verb) -> Done {
    match verb {
        Verb::Build { pgo: true } => pgo::build(),
        Verb::Build { pgo: false } => {
            cargo(&["build", "--locked", "--profile=dist", "--package", "postrider"])
        }
        Verb::Package(package) => package::build(package),
        Verb::Release(options) => release::run_release(options),
        Verb::Test { filter: Some(name), .. } => testing::run(Choice::Named(name), || Ok(())),
        Verb::Test { proofs: true, .. } => testing::run(Choice::Proofs, || Ok(())),
        Verb::Test { .. } => test(|| ()),
        Verb::Lint => lint(),
        Verb::Advisories { database } => advisories::refresh(database),
        Verb::Docs { site: true, .. } => site::run_build(),
        Verb::Docs { check, site: false } => docs::run(*check),
        Verb::Sim { seed, cases, relays, backend } => crash_tests::sim(*seed, *cases, *relays, backend),
        Verb::Kill9 { rounds, seed, release } => crash_tests::kill9(*seed, *rounds, *release),
        Verb::Eio { rounds, seed } => crash_tests::eio(*seed, *rounds),
        Verb::Powercut(options) => crash_tests::powercut(options),
        Verb::Bench { write } => bench::run(*write),
        Verb::Interop => interop::run(),
        Verb::Setup { release: true } => release::tools::install(),
        Verb::Setup { release: false } => setup::setup(),
        Verb::Rows(options) => seeds::trial::run(options),
        Verb::Ci => ci(),
    }
}

/// What the README names.
fn test(beside: impl FnOnce()) -> Done {
    thread::scope(|scope| {
        // What is installed is needed when the tests run.
        let setup = scope.spawn(setup::setup);
        testing::run(Choice::Usual, || {
            setup.join().unwrap_or_else(|_| Err(Failure("setup: it panicked".into())))?;
            beside();
            Ok(())
        })
    })
}

fn lint() -> Done {
    cargo(&["fmt", "--all", "--check"])?;
    tidy::check()?;
    rfc::check()?;
    dependencies::check()?;
    CLIPPY.iter().try_for_each(|arguments| cargo(arguments))
}

/// The daemon also alone: it is usually built without the optional kinds of maps, and with fewer features of other packages
/// than in a build of the workspace.
const CLIPPY: [&[&str]; 2] = [
    &["clippy", "--locked", "--workspace", ALL_MAPS, "--all-targets", "--", "-D", "warnings"],
    &["clippy", "--locked", "--package", "postrider", "--", "-D", "warnings"],
];

/// Name and function of a step of CI.
type Step = (&'static str, fn(&mut Ahead) -> Done);

/// The tests come before what is compiled beside them.
const STEPS: [Step; 7] = [
    ("test", |ahead| test(|| ahead.start())),
    ("lint", |_| lint()),
    ("docs", |_| docs::run(true)),
    ("site", |_| site::check()),
    ("proofs", |_| testing::run(Choice::Proofs, || Ok(()))),
    ("crash-tests", |_| crash_tests::ci()),
    ("bench", |_| bench::run(false)),
];

/// Builds of later steps.
const AHEAD: [&[&str]; 3] = [CLIPPY[0], &bench::BUILD, CLIPPY[1]];

/// Every step, also after one that failed: all results are wanted from a run of CI. The failures are listed
/// again at the end, step by step.
fn ci() -> Done {
    let mut ahead = Ahead::new(&AHEAD);
    let (mut told, mut failed, mut failures) = (String::new(), Vec::new(), String::new());
    for (name, step) in STEPS {
        eprintln!("\n== {name}");
        let begun = Instant::now();
        let done = step(&mut ahead);
        let word = if done.is_ok() { "ok" } else { "FAILED" };
        told += &format!("  {name:<6} {word:<6} {:>7.1} s\n", begun.elapsed().as_secs_f64());
        if let Err(failure) = done {
            eprintln!("{failure}");
            failed.push(name);
            failures += &format!("\n== {name} FAILED\n{failure}\n");
        }
    }
    eprint!("\n== ci\n{told}{failures}");
    if failed.is_empty() { Ok(()) } else { Err(format!("ci: {} failed", failed.join(" and ")).into()) }
}
