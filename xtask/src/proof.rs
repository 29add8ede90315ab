//! The proofs that nothing is lost: simulated crashes, real kills, real file systems cut off. The programs
//! are in `crates/sim`; here they are built and told what to do. docs/proof.md says what each one shows.

use crate::shell::{Done, cargo, run, target_dir};
use std::process::Command;

/// Builds the programs of the simulator; they move many bytes, and are slow unoptimised.
fn build() -> Done {
    cargo(&["build", "--quiet", "--locked", "--release", "--package", "sim"])
}

fn tool(name: &str, options: &[(&str, u64)]) -> Command {
    let mut command = crate::shell::program(target_dir().join("release").join(name));
    for (option, value) in options {
        command.arg(format!("--{option}")).arg(value.to_string());
    }
    command
}

/// So many simulated crash points, from a seed on.
pub(crate) fn sim(seed: u64, points: u64) -> Done {
    build()?;
    run(&mut tool("sim", &[("seed", seed), ("points", points)]))
}

/// The daemon killed so many times under load.
pub(crate) fn kill9(seed: u64, rounds: u64, release: bool) -> Done {
    build()?;
    let profile: &[&str] = if release { &["--release"] } else { &[] };
    cargo(&[&["build", "--quiet", "--locked", "--package", "postrider"], profile].concat())?;
    let binary = target_dir().join(if release { "release" } else { "debug" }).join("postrider");
    run(tool("kill9", &[("seed", seed), ("rounds", rounds)]).arg("--binary").arg(binary))
}
