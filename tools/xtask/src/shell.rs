//! Running other programs from the repository's root, and what is said when they fail.

use std::{
    ffi::{OsStr, OsString},
    fmt,
    io::{self, BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Says what could not be done, to what, and why.
#[derive(Debug)]
pub(crate) struct Failure(pub(crate) String);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Self(text)
    }
}

/// What a chore returns.
pub(crate) type Done = Result<(), Failure>;

/// Builds the daemon with every kind of map: those of databases and directories are Cargo features.
pub(crate) const ALL_MAPS: &str = "--features=postrider/all-maps";

/// The repository, wherever the command was typed.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("xtask lies in the repository").to_owned()
}

/// Returns the directory of cargo's output; servers for tests are unpacked below it.
pub(crate) fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |dir| root().join(dir))
}

/// A program that runs in the repository's root.
pub(crate) fn program(name: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(name);
    command.current_dir(root()).stdin(Stdio::null());
    command
}

/// Returns the path of the cargo that runs this program: a pinned toolchain stays pinned.
pub(crate) fn cargo_program() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

pub(crate) fn cargo_command(arguments: &[&str]) -> Command {
    let mut command = program(cargo_program());
    command.args(arguments);
    as_first_build(&mut command);
    command
}

/// Makes a first build not incremental, which takes a fifth less of the processor's time. Whoever builds with cargo itself
/// has incremental builds from then on.
pub(crate) fn as_first_build(command: &mut Command) {
    if std::env::var_os("CARGO_INCREMENTAL").is_none() && is_first_build() {
        command.env("CARGO_INCREMENTAL", "0");
    }
}

/// Returns whether nobody has built anything here but this program.
fn is_first_build() -> bool {
    let built = std::fs::read_dir(target_dir().join("debug/incremental")).into_iter().flatten();
    built.flatten().all(|dir| dir.file_name().as_encoded_bytes().starts_with(b"xtask-"))
}

/// Runs cargo to its end, its output passed through.
pub(crate) fn cargo(arguments: &[&str]) -> Done {
    run(&mut cargo_command(arguments))
}

/// Builds programs with the features of the tests, so that nothing that those need is compiled again; `chosen` may leave packages
/// out. An example is built with them: without one cargo leaves out the features of development dependencies.
pub(crate) fn build_as_tests(programs: &[&str], chosen: impl FnOnce(&mut Command)) -> Done {
    let mut command = cargo_command(&["build", "--quiet", "--locked", "--workspace", ALL_MAPS]);
    // With this program, libraries that it shares with build scripts are those of the tests, and so is all that depends on them.
    command.args(programs).args(["--example", "metrics_page", "--bin", "xtask"]);
    chosen(&mut command);
    run(&mut command)
}

/// Runs a program to its end, its output passed through.
pub(crate) fn run(command: &mut Command) -> Done {
    let shown = show(command);
    eprintln!("$ {shown}");
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Failure(format!("`{shown}` failed: {status}"))),
        Err(error) => Err(Failure(format!("run `{shown}`: {error}"))),
    }
}

/// Runs a command and shows each line of its output to `see` as well. Both of its outputs go to standard output, so that
/// their lines keep their order.
pub(crate) fn run_watched(command: &mut Command, see: impl FnMut(&str)) -> Done {
    watch(command, &mut io::stdout(), see)
}

/// Runs a command, and passes its output to `out`.
pub(crate) fn watch(command: &mut Command, out: &mut dyn io::Write, mut see: impl FnMut(&str)) -> Done {
    let shown = show(command);
    eprintln!("$ {shown}");
    let fail = |error: io::Error| Failure(format!("run `{shown}`: {error}"));
    let (reader, writer) = io::pipe().map_err(fail)?;
    command.stdout(writer.try_clone().map_err(fail)?).stderr(writer);
    let mut child = command.spawn().map_err(fail)?;
    // The pipe ends when the program has ended, and not with the command.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut lines = BufReader::new(reader);
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line).map_err(fail)? > 0 {
        // With the output gone the program's end still counts.
        let _ = out.write_all(&line);
        see(&String::from_utf8_lossy(&line));
        line.clear();
    }
    let status = child.wait().map_err(fail)?;
    if status.success() { Ok(()) } else { Err(Failure(format!("`{shown}` failed: {status}"))) }
}

/// Runs a program and takes its standard output; what it says on standard error is passed through.
pub(crate) fn output(command: &mut Command) -> Result<Vec<u8>, Failure> {
    let shown = show(command);
    let ended = command.stderr(Stdio::inherit()).output();
    let ended = ended.map_err(|error| Failure(format!("run `{shown}`: {error}")))?;
    if ended.status.success() {
        Ok(ended.stdout)
    } else {
        Err(Failure(format!("`{shown}` failed: {}", ended.status)))
    }
}

fn show(command: &Command) -> String {
    let name = Path::new(command.get_program()).file_name().unwrap_or_default().to_string_lossy();
    command.get_args().fold(name.into_owned(), |line, word| line + " " + &word.to_string_lossy())
}
