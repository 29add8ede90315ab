//! The test programs of the workspace: cargo builds them, and several of them run at a time, since many of them mostly wait.
//! Each has the directory and the environment that `cargo test` would give it.

use crate::shell::{Failure, output, root};
use serde::Deserialize;
use std::{
    collections::{BTreeMap, VecDeque},
    io::{self, Read as _},
    path::PathBuf,
    process::{Command, ExitStatus, Stdio},
    sync::{Mutex, mpsc},
    thread,
    time::{Duration, Instant},
};

/// Proofs that take too long for whoever only wants to know whether all is well: importers and filters beside the other mail servers, the
/// configurations of the documents and the set-ups of `examples/`, servers of maps that fail, what the laboratory measures of disks
/// and real mail servers, and the many cases of the simulator, which replays a support bundle, too, and of the fuzz targets. The
/// longest start first, so that none of them runs alone at the end.
pub(super) const PROOFS: [&str; 19] = [
    "-p postrider --test e2e migration",
    "-p postrider --test e2e from_postfix",
    "-p postrider --test e2e import",
    "-p postrider --test e2e filters",
    "-p postrider --test e2e documents",
    "-p postrider --test e2e examples",
    "-p postrider --test e2e go_programs",
    "-p postrider --test e2e support_bundle",
    "-p sim --test relay",
    "-p sim --test errors",
    "-p fuzz --test targets",
    "-p sim --test cases",
    "-p sim --test mutants",
    "-p lab --test e2e relay",
    "-p postrider --test e2e failing_servers",
    "-p lab --test e2e stat",
    "-p lab --test e2e disk",
    "-p lab --test e2e ipc",
    "-p lab --test e2e queues",
];

/// Packages that only the long proofs need.
pub(super) const OF_PROOFS: [&str; 3] = ["sim", "fuzz", "bench"];

/// The other programs that run for a long time, which start first too.
const LONGEST: [&str; 9] = [
    "-p postrider --test e2e rules",
    "-p postrider --test e2e verify",
    "-p postrider --test e2e addresses",
    "-p postrider --test e2e logins",
    "-p postrider --test e2e acme",
    "-p lab --test e2e source",
    "-p postrider --test e2e failing_disk",
    "-p lab --test e2e formats",
    "-p postrider --test e2e routes",
];

/// The programs that are run module by module.
const BY_MODULE: &str = " --test e2e";

/// A test program that cargo has built, or a part of its tests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TestProgram {
    /// Arguments of `cargo test` that run it again.
    pub(super) arguments: String,
    executable: PathBuf,
    /// Directory of its package, where it has to run.
    dir: PathBuf,
    /// Path of the source, as cargo shows it.
    source: String,
    /// One of its modules alone, with the names of its tests.
    module: Option<(String, Vec<String>)>,
}

/// A message of cargo with `--message-format=json`. Other messages have fewer fields.
#[derive(Deserialize)]
struct Artifact {
    package_id: String,
    manifest_path: PathBuf,
    target: Target,
    profile: Profile,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    kind: Vec<String>,
    name: String,
    src_path: PathBuf,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

impl TestProgram {
    /// Returns the program of a line of cargo, if it is about one.
    pub(super) fn from_message(line: &str) -> Option<Self> {
        let artifact: Artifact = serde_json::from_str(line).ok()?;
        let executable = artifact.executable.filter(|_| artifact.profile.test)?;
        let Target { kind, name, src_path } = artifact.target;
        let kind = kind.first()?.as_str();
        let dir = artifact.manifest_path.parent()?.to_owned();
        let target = match kind {
            "test" | "bin" | "bench" | "example" => format!("--{kind} {name}"),
            _ => "--lib".to_owned(),
        };
        let source = src_path.strip_prefix(&dir).unwrap_or(&src_path).display();
        let source = if kind == "test" { source.to_string() } else { format!("unittests {source}") };
        let arguments = format!("-p {} {target}", package(&artifact.package_id));
        Some(Self { arguments, executable, dir, source, module: None })
    }

    /// Returns a program for each of its modules, if that is how it is to run: many small runs fill the processors better than a
    /// large one, and their output comes sooner.
    pub(super) fn by_module(self) -> Result<Vec<Self>, Failure> {
        if !self.arguments.ends_with(BY_MODULE) {
            return Ok(vec![self]);
        }
        let mut command = Command::new(&self.executable);
        let list = output(command.args(["--list", "--format", "terse"]))?;
        let mut modules: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for test in String::from_utf8_lossy(&list).lines().filter_map(|line| line.strip_suffix(": test")) {
            let module = test.split_once("::").map_or("", |(module, _)| module);
            modules.entry(module.to_owned()).or_default().push(test.to_owned());
        }
        Ok(modules.into_iter().map(|module| Self { module: Some(module), ..self.clone() }).collect())
    }

    /// The arguments that run the tests whose name contains the filter; none if there are none.
    fn filtered<'a>(&'a self, filter: Option<&'a str>) -> Option<Vec<&'a str>> {
        let Some((_, tests)) = &self.module else {
            return Some(filter.into_iter().collect());
        };
        let tests: Vec<&str> = tests
            .iter()
            .map(String::as_str)
            .filter(|test| filter.is_none_or(|filter| test.contains(filter)))
            .collect();
        (!tests.is_empty()).then(|| [&["--exact"], tests.as_slice()].concat())
    }

    /// Returns whether it is one of the long proofs.
    pub(super) fn is_proof(&self) -> bool {
        PROOFS.contains(&&*self.name())
            || self.arguments.split(' ').nth(1).is_some_and(|package| OF_PROOFS.contains(&package))
    }

    /// Returns the name by which [`PROOFS`] and [`LONGEST`] know it.
    pub(super) fn name(&self) -> String {
        match &self.module {
            Some((module, _)) => format!("{} {module}", self.arguments),
            None => self.arguments.clone(),
        }
    }

    /// Runs it to its end. Both of its outputs are returned together, so that their lines keep their order.
    fn run(&self, arguments: &[&str]) -> io::Result<(Vec<u8>, ExitStatus)> {
        let (mut reader, writer) = io::pipe()?;
        let mut command = Command::new(&self.executable);
        command.args(arguments).current_dir(&self.dir).env("CARGO_MANIFEST_DIR", &self.dir);
        command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
        let mut child = command.spawn()?;
        // The pipe ends when the program has ended, and not with the command.
        drop(command);
        let mut output = Vec::new();
        reader.read_to_end(&mut output)?;
        Ok((output, child.wait()?))
    }

    fn line(&self, took: Duration) -> String {
        let executable = self.executable.strip_prefix(root()).unwrap_or(&self.executable).display();
        let module = self.module.as_ref().map_or(String::new(), |(module, _)| format!(" {module}"));
        format!("     Running {}{module} ({executable}), {:.1} s\n", self.source, took.as_secs_f64())
    }
}

/// Returns the name in `path+file:///home/r/crates/smtp#0.1.0`, or in `…/smtp#name@0.1.0` when the directory has another one.
fn package(id: &str) -> &str {
    let (path, rest) = id.rsplit_once('#').unwrap_or((id, ""));
    match rest.split_once('@') {
        Some((name, _)) => name,
        None => path.rsplit('/').next().unwrap_or(path),
    }
}

/// Returns the number of programs that run at a time. Most of them wait: two for each processor keep it busy. Each has a thread for
/// each processor; on a large machine with more of them tests with a time limit would miss it.
pub(super) fn count_at_a_time() -> usize {
    thread::available_parallelism().map_or(4, |count| 2 * count.get()).clamp(4, 8)
}

/// Returns the programs in the order in which they start.
pub(super) fn longest_first(mut programs: Vec<TestProgram>) -> Vec<TestProgram> {
    let place =
        |program: &TestProgram| PROOFS.iter().chain(&LONGEST).position(|long| *long == program.name());
    programs.sort_by_key(|program| place(program).unwrap_or(usize::MAX));
    programs
}

/// Runs so many programs at a time, and hands the output of each to `see` when it has ended. A program that fails is named as
/// `cargo test` names it. Returns false if one has failed.
pub(super) fn run(
    programs: Vec<TestProgram>,
    at_a_time: usize,
    filter: Option<&str>,
    mut see: impl FnMut(&[u8]),
) -> bool {
    let waiting = Mutex::new(VecDeque::from(programs));
    let next = || waiting.lock().expect("no thread panics while it holds the lock").pop_front();
    let mut is_good = true;
    thread::scope(|scope| {
        let (sender, ended) = mpsc::channel();
        for _ in 0..at_a_time {
            let sender = sender.clone();
            scope.spawn(move || {
                while let Some(program) = next() {
                    let Some(mut arguments) = program.filtered(filter) else { continue };
                    arguments.push("--show-output");
                    let begun = Instant::now();
                    let done = program.run(&arguments);
                    if sender.send((program, begun.elapsed(), done)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for (program, took, done) in ended {
            let failure = failure(&program, &done);
            let mut text = program.line(took).into_bytes();
            text.extend(done.map(|(output, _)| output).unwrap_or_default());
            if !text.ends_with(b"\n") {
                text.push(b'\n');
            }
            is_good &= failure.is_none();
            text.extend(failure.unwrap_or_default().into_bytes());
            see(&text);
        }
    });
    is_good
}

/// Returns the words of `cargo test` about a program that has failed.
fn failure(program: &TestProgram, done: &io::Result<(Vec<u8>, ExitStatus)>) -> Option<String> {
    let how = match done {
        Ok((_, status)) if status.success() => return None,
        // The program says itself which tests failed.
        Ok((_, status)) if status.code() == Some(101) => String::new(),
        Ok((_, status)) => status.to_string(),
        Err(error) => error.to_string(),
    };
    let mut text = format!("error: test failed, to rerun pass `{}`\n", program.arguments);
    if !how.is_empty() {
        text += &format!("  process didn't exit successfully: `{}` ({how})\n", program.executable.display());
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: &str, id: &str, is_test: bool) -> String {
        format!(
            "{{\"reason\":\"compiler-artifact\",\"package_id\":\"{id}\",\"manifest_path\":\"/r/crates/lab/Cargo.toml\",\
             \"target\":{{\"kind\":[\"{kind}\"],\"crate_types\":[\"bin\"],\"name\":\"relay\",\
             \"src_path\":\"/r/crates/lab/tests/relay.rs\"}},\"profile\":{{\"opt_level\":\"0\",\"test\":{is_test}}},\
             \"executable\":\"/t/debug/deps/relay-1\",\"fresh\":true}}"
        )
    }

    const ID: &str = "path+file:///r/crates/lab#0.1.0";

    #[test]
    fn a_message_of_cargo_names_a_test_program() {
        let program = TestProgram::from_message(&message("test", ID, true)).unwrap();
        assert_eq!(program.arguments, "-p lab --test relay");
        assert_eq!(
            (program.dir.to_str(), program.source.as_str()),
            (Some("/r/crates/lab"), "tests/relay.rs")
        );
        let arguments = |kind, id| TestProgram::from_message(&message(kind, id, true)).unwrap().arguments;
        assert_eq!(arguments("lib", ID), "-p lab --lib");
        assert_eq!(arguments("bin", "path+file:///r/crates/lab#other@0.1.0"), "-p other --bin relay");
        assert_eq!(TestProgram::from_message(&message("bin", ID, false)), None);
        assert_eq!(TestProgram::from_message("{\"reason\":\"build-finished\",\"success\":true}"), None);
    }

    fn program(name: &str, script: &str) -> TestProgram {
        let dir = std::env::temp_dir();
        let executable = dir.join(format!("postrider-xtask-{}-{name}", std::process::id()));
        std::fs::write(&executable, format!("#!/bin/sh\n{script}\n")).unwrap();
        let is_done = Command::new("chmod").arg("755").arg(&executable).status().unwrap().success();
        assert!(is_done);
        TestProgram {
            arguments: format!("-p x --test {name}"),
            executable,
            dir,
            source: format!("tests/{name}.rs"),
            module: None,
        }
    }

    #[test]
    fn the_largest_program_runs_module_by_module() {
        let lists = "[ $1 = --list ] && { echo 'own_spool::a: test'; echo 'spool::a: test'; echo 'spool::b::c: test'; \
                     exit; }; echo \"$*\"";
        let whole = TestProgram { arguments: format!("-p x{BY_MODULE}"), ..program("modules", lists) };
        let file = whole.executable.clone();
        let modules = whole.by_module().unwrap();
        let mut texts = Vec::new();
        for filter in [None, Some("b")] {
            assert!(
                run(modules.clone(), 1, filter, |text| texts.push(String::from_utf8(text.to_vec()).unwrap()))
            );
        }
        std::fs::remove_file(file).unwrap();
        let ran: Vec<&str> = texts.iter().map(|text| text.trim_end().rsplit('\n').next().unwrap()).collect();
        let expected = [
            "--exact own_spool::a --show-output",
            "--exact spool::a spool::b::c --show-output",
            "--exact spool::b::c --show-output",
        ];
        assert_eq!(ran, expected);
        assert!(texts[1].starts_with("     Running tests/modules.rs spool ("), "{texts:?}");
        assert_eq!(modules[1].name(), "-p x --test e2e spool");
    }

    #[test]
    fn outputs_stay_together_and_failures_are_named_as_cargo_names_them() {
        let fifo = program("fifo", "");
        std::fs::remove_file(&fifo.executable).unwrap();
        let fifo = fifo.executable.display().to_string();
        assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        // Each waits for the other, so both run at the same time.
        let programs = [
            program("one", &format!("echo one; echo $1 >{fifo}; echo 'test a ... FAILED' >&2; exit 101")),
            program("two", &format!("echo two; cat {fifo}; pwd >/dev/null; kill -9 $$")),
            program("three", "echo three"),
        ];
        let files: Vec<PathBuf> = programs.iter().map(|program| program.executable.clone()).collect();
        let mut texts = Vec::new();
        let is_good = run(programs.into(), 2, None, |text| {
            texts.push(String::from_utf8(text.to_vec()).unwrap());
        });
        files.iter().chain([&PathBuf::from(fifo)]).for_each(|file| std::fs::remove_file(file).unwrap());
        assert!(!is_good);
        texts.sort();
        let rest: Vec<&str> = texts.iter().map(|text| text.split_once('\n').unwrap().1).collect();
        assert_eq!(rest[0], "one\ntest a ... FAILED\nerror: test failed, to rerun pass `-p x --test one`\n");
        assert_eq!(rest[1], "three\n");
        let (head, end) = rest[2].split_once("process didn't exit successfully: `").unwrap();
        assert_eq!(head, "two\n--show-output\nerror: test failed, to rerun pass `-p x --test two`\n  ");
        assert!(end.contains("signal: 9"), "{end}");
        assert!(texts[0].starts_with("     Running tests/one.rs ("), "{texts:?}");
    }

    #[test]
    fn every_program_of_the_simulator_is_a_long_proof() {
        let of = |package: &str, kind: &str| {
            let text = message(kind, &format!("path+file:///r/crates/{package}#0.1.0"), true);
            TestProgram::from_message(&text).unwrap().is_proof()
        };
        assert!(of("sim", "lib") && of("sim", "test") && of("sim", "bin"));
        assert!(!of("simple", "lib") && !of("lab", "test"));
    }

    #[test]
    fn long_programs_start_first() {
        let programs = ["-p a --lib", LONGEST[1], "-p b --lib", LONGEST[0]].map(|arguments| TestProgram {
            arguments: arguments.to_owned(),
            executable: PathBuf::new(),
            dir: PathBuf::new(),
            source: String::new(),
            module: None,
        });
        let ordered: Vec<String> =
            longest_first(programs.into()).into_iter().map(|program| program.arguments).collect();
        assert_eq!(ordered, [LONGEST[0], LONGEST[1], "-p a --lib", "-p b --lib"]);
    }
}
