//! The crash tests: simulated crashes, processes killed, file systems cut off. The programs are in `testing/sim`; this
//! file builds and runs them. docs/crash-testing.md describes each test.

use crate::shell::{
    ALL_MAPS, Done, build_as_tests, cargo, cargo_command, output, program, run, target_dir, watch,
};
use std::{
    process::Command,
    thread,
    time::{SystemTime, UNIX_EPOCH},
};

/// Builds the programs of the simulator, and the daemon, as the tests have them. Cargo.toml names the crates that are optimised
/// for the simulator.
fn build() -> Done {
    let programs = ["sim", "kill9", "powercut", "postrider"].into_iter().flat_map(|name| ["--bin", name]);
    build_as_tests(&programs.collect::<Vec<_>>(), |_| ())
}

fn tool(name: &str, options: &[(&str, u64)]) -> Command {
    let mut command = program(target_dir().join("debug").join(name));
    for (option, value) in options {
        command.arg(format!("--{option}")).arg(value.to_string());
    }
    command
}

/// So many simulated crash cases and whole relays, from a seed on.
pub(crate) fn sim(seed: u64, cases: u64, relays: u64, backend: &str) -> Done {
    build()?;
    run(&mut simulator(seed, cases, relays, backend))
}

fn simulator(seed: u64, cases: u64, relays: u64, backend: &str) -> Command {
    let mut command = tool("sim", &[("seed", seed), ("cases", cases), ("relays", relays)]);
    command.arg("--backend").arg(backend);
    command
}

/// The daemon killed so many times under load.
pub(crate) fn kill9(seed: u64, rounds: u64, release: bool) -> Done {
    build()?;
    if release {
        cargo(&["build", "--quiet", "--locked", "--package", "postrider", "--profile=dist"])?;
    }
    let binary = target_dir().join(if release { "dist" } else { "debug" }).join("postrider");
    run(tool("kill9", &[("seed", seed), ("rounds", rounds)]).arg("--binary").arg(binary))?;
    // The same for all processes, with mail of all kinds. Of the whole workspace: one package alone has other features, and
    // everything would be compiled again.
    let mut test = cargo_command(&["test", "--quiet", "--locked", "--workspace", ALL_MAPS, "--test", "e2e"]);
    test.args(["whatever_process", "--", "--nocapture"]);
    test.env("POSTRIDER_TEST_ROUNDS", rounds.to_string()).env("POSTRIDER_TEST_SEED", seed.to_string());
    run(&mut test)
}

/// The daemon on a disk that begins to answer EIO under load, so many times.
pub(crate) fn eio(seed: u64, rounds: u64) -> Done {
    build()?;
    // A name space for the mounts and one for those who serve them, so that both end with the program.
    let alone = ["--mount", "--propagation", "private", "--fork", "--pid", "--kill-child", "--"];
    if output(program("unshare").args(alone).arg("true")).is_err() {
        eprintln!("eio: SKIPPED: {rounds} rounds of disk errors: only root can mount a file system");
        return Ok(());
    }
    let mut tool = program("unshare");
    tool.args(alone).arg(target_dir().join("debug/kill9")).arg("--errors");
    tool.arg("--rounds").arg(rounds.to_string()).arg("--seed").arg(seed.to_string());
    run(tool.arg("--binary").arg(target_dir().join("debug/postrider")))
}

/// Options of the power cuts.
#[derive(Debug, clap::Args)]
pub(crate) struct PowerCut {
    /// The file system: ext4, xfs or btrfs; without it all three
    #[arg(long, value_parser = FILE_SYSTEMS)]
    fs: Option<String>,
    /// Cuts on each
    #[arg(long, default_value_t = 200)]
    cases: u64,
    /// Chooses where the power goes, and what survives
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Break a promise on purpose, which must be noticed: SkipSync, AnswerEarly, …
    #[arg(long)]
    mutant: Option<String>,
    /// The keeper of the messages: log, directories, or both beside each other; or deliveries for the whole daemon
    /// with
    /// Maildirs and the drop directory
    #[arg(long, default_value = "log", value_parser = ["log", "queue-dirs", "both", "deliveries"])]
    backend: String,
    /// With deliveries, leave out a sync, which must be noticed
    #[arg(long, value_parser = ["mbox", "maildir-file", "maildir-folder", "drop-file", "drop-folder"])]
    leave_out: Option<String>,
}

const FILE_SYSTEMS: [&str; 3] = ["ext4", "xfs", "btrfs"];

/// Real file systems on a device whose power is cut, each as often as was asked.
pub(crate) fn powercut(options: &PowerCut) -> Done {
    build()?;
    let is_daemon = options.backend == "deliveries";
    // A name space for the mounts, so that they end with the program.
    let alone = ["--mount", "--propagation", "private", "--"];
    if output(program("unshare").args(alone).arg("true")).is_err() {
        eprintln!("powercut: SKIPPED: {} cuts on each file system: only root can mount one", options.cases);
        return Ok(());
    }
    for fs in FILE_SYSTEMS.iter().filter(|fs| options.fs.as_deref().is_none_or(|one| one == **fs)) {
        let mut tool = program("unshare");
        tool.args(alone).arg(target_dir().join("debug/powercut")).args(["--fs", fs]);
        if is_daemon {
            tool.arg("--deliveries").arg(target_dir().join("debug/postrider"));
        } else {
            tool.args(["--backend", &options.backend]);
        }
        if let Some(left_out) = &options.leave_out {
            tool.args(["--leave-out", left_out]);
        }
        tool.arg("--cases").arg(options.cases.to_string()).arg("--seed").arg(options.seed.to_string());
        if let Some(mutant) = &options.mutant {
            tool.args(["--mutant", mutant]);
        }
        run(&mut tool)?;
    }
    Ok(())
}

/// The first of this week's seeds: each week tries others, and all runs of a week the same.
fn seed_of_the_week() -> u64 {
    const WEEK: u64 = 7 * 24 * 60 * 60;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_secs() / WEEK * 100_000
}

/// The crash tests that CI has time for. The simulator computes with one thread, so two halves of the log run at the same time;
/// meanwhile the other programs mostly wait for a disk.
pub(crate) fn ci() -> Done {
    const CASES: u64 = 2_000;
    build()?;
    let seed = seed_of_the_week();
    thread::scope(|scope| {
        let halves = [seed, seed + CASES / 2];
        let simulated = halves.map(|seed| scope.spawn(move || simulate_log(seed, CASES / 2, 40)));
        let others = others(seed);
        let simulated = simulated.map(|half| half.join().expect("the thread of a simulator does not panic"));
        simulated.into_iter().fold(others, Done::and)
    })
}

/// Runs the simulator, and prints what it says when it has ended.
fn simulate_log(seed: u64, cases: u64, relays: u64) -> Done {
    let mut said = Vec::new();
    let done = watch(&mut simulator(seed, cases, relays, "log"), &mut said, |_| ());
    print!("{}", String::from_utf8_lossy(&said));
    done
}

fn others(seed: u64) -> Done {
    kill9(1, 10, false)?;
    eio(1, 5)?;
    for (backend, cases) in [("log", 100), ("queue-dirs", 50), ("both", 20), ("deliveries", 20)] {
        let backend = backend.to_owned();
        powercut(&PowerCut { fs: None, cases, seed: 1, mutant: None, backend, leave_out: None })?;
    }
    sim(seed, 300, 0, "queue-dirs")?;
    sim(seed, 300, 0, "both")
}
