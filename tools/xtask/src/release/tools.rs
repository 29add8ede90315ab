//! Tools of Cargo that a release needs, in pinned versions, below target/tools.

use crate::{
    package::binaries,
    shell::{Done, Failure, cargo_command, program, run, target_dir},
};

/// Tools of crates.io, with their versions.
const TOOLS: [(&str, &str); 2] = [("mdbook", "0.5.4"), ("cargo-auditable", "0.7.7")];

/// Installs what is missing, for `cargo xtask setup --release`. The C compiler for musl is a package of Debian.
pub(crate) fn install() -> Done {
    run(program("rustup").args(["target", "add", &binaries::target()]))?;
    if program("musl-gcc").arg("--version").output().is_err() {
        run(program("apt-get").args([
            "install",
            "--yes",
            "--quiet",
            "--no-install-recommends",
            "musl-tools",
        ]))?;
    }
    for (name, version) in TOOLS.into_iter().filter(|(name, version)| !is_there(name, version)) {
        let mut install = cargo_command(&["install", name, "--locked", "--version", version, "--root"]);
        run(install.arg(target_dir().join("tools")))?;
    }
    Ok(())
}

/// Fails if a tool is missing, or has another version than the files of a release are made with.
pub(crate) fn need() -> Done {
    TOOLS.into_iter().try_for_each(|(name, _)| need_tool(name))
}

/// Fails unless the tool has its version.
pub(crate) fn need_tool(name: &str) -> Done {
    let version = TOOLS.iter().find(|(tool, _)| *tool == name).map_or("", |(_, version)| version);
    if is_there(name, version) {
        return Ok(());
    }
    Err(Failure(format!(
        "{name} {version} is not there; `cargo xtask setup --release` installs it below target/tools"
    )))
}

/// Reads the list that `cargo install` keeps.
fn is_there(name: &str, version: &str) -> bool {
    let list = std::fs::read_to_string(target_dir().join("tools/.crates.toml")).unwrap_or_default();
    list.contains(&format!("\"{name} {version} "))
}
