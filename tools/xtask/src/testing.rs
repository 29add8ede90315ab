//! Runs every test, and names those that failed at the end, where they are seen.

mod programs;

use crate::shell::{self, ALL_MAPS, Done, Failure, cargo_command};
use programs::{OF_PROOFS, PROOFS, TestProgram};
use std::{
    io::{self, Write as _},
    process::Command,
};

/// Which tests are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice<'a> {
    /// All but the long proofs.
    Usual,
    /// Those that [`PROOFS`] names.
    Proofs,
    /// Those whose name contains this.
    Named(&'a str),
}

impl Choice<'_> {
    fn has(self, program: &TestProgram) -> bool {
        match self {
            Self::Usual => !program.is_proof(),
            Self::Proofs => program.is_proof(),
            Self::Named(_) => true,
        }
    }
}

/// Runs tests, once all are compiled and `ready` has said that they can. Tests that lack a program say so and pass; all of
/// them are listed again at the end.
pub(crate) fn run(choice: Choice<'_>, ready: impl FnOnce() -> Done) -> Done {
    let mut seen = Seen::default();
    let done = build(choice, &mut seen).and_then(|programs| {
        ready()?;
        run_programs(choice, programs, &mut seen)
    });
    for what in &seen.skipped {
        eprintln!("test: SKIPPED: {what}");
    }
    done.map_err(|failure| seen.failure(failure))
}

fn run_programs(choice: Choice<'_>, programs: Vec<TestProgram>, seen: &mut Seen) -> Done {
    let filter = match choice {
        Choice::Named(name) => Some(name),
        Choice::Usual | Choice::Proofs => None,
    };
    let programs: Result<Vec<_>, _> = programs.into_iter().map(TestProgram::by_module).collect();
    let chosen: Vec<_> = programs?.into_iter().flatten().filter(|program| choice.has(program)).collect();
    let is_there = |proof: &&&str| chosen.iter().any(|program| program.name() == **proof);
    if let Some(missing) = PROOFS.iter().find(|proof| choice == Choice::Proofs && !is_there(proof)) {
        return Err(format!("test: the long proof `{missing}` is not there").into());
    }
    let programs = programs::longest_first(chosen);
    let is_good = programs::run(programs, programs::count_at_a_time(), filter, |text| {
        // With the output gone the program's end still counts.
        let _ = io::stdout().write_all(text);
        String::from_utf8_lossy(text).lines().for_each(|line| seen.line(line));
    });
    let done = is_good.then_some(()).ok_or_else(|| Failure("test: a test program failed".to_owned()));
    if choice != Choice::Usual {
        return done;
    }
    let mut doc = tests(choice);
    doc.args(["--", OF_DOCUMENTS, "--show-output"]);
    let doc_done = shell::run_watched(&mut doc, |line| seen.line(line));
    done.and(doc_done)
}

/// A part of the names of all examples in documents, and of no other test: `crates/mail/src/lib.rs - Domain (line 5)`. With `--doc`
/// cargo would compile half of the packages again, for other features.
const OF_DOCUMENTS: &str = "(line ";

/// The command of cargo for the tests of a choice.
fn tests(choice: Choice<'_>) -> Command {
    let mut command = cargo_command(&["test", "--locked", "--workspace", ALL_MAPS, "--no-fail-fast"]);
    if choice == Choice::Usual {
        without_proofs(&mut command);
    }
    command
}

/// Leaves out the packages that only long proofs need, which take a seventh of the time of all. Without the simulator, the other
/// packages have the features that it asks them for, so that the proofs compile nothing again.
pub(crate) fn without_proofs(command: &mut Command) {
    const OF_SIM: &str = "--features=accept/mutants,engine/mutants,spool/mutants,inbound/memory";
    command.args(OF_PROOFS.iter().flat_map(|package| ["--exclude", package])).arg(OF_SIM);
}

/// Builds the test programs of a choice, and what test programs run.
fn build(choice: Choice<'_>, seen: &mut Seen) -> Result<Vec<TestProgram>, Failure> {
    let mut command = tests(choice);
    command.args(["--no-run", "--message-format=json-render-diagnostics"]);
    let mut programs = Vec::new();
    shell::watch(&mut command, &mut io::sink(), |line| {
        if line.starts_with('{') {
            programs.extend(TestProgram::from_message(line));
        } else {
            let _ = io::stdout().write_all(line.as_bytes());
            seen.line(line);
        }
    })?;
    Ok(programs)
}

/// What the output of `cargo test` has said so far.
#[derive(Debug, Default)]
struct Seen {
    skipped: Vec<String>,
    /// Failed tests, with the arguments that run their binary again.
    failed: Vec<String>,
    /// Messages about code that could not be compiled, and other errors of cargo.
    errors: Vec<String>,
    /// Failed tests of the binary that runs.
    of_binary: Vec<String>,
    /// The test whose captured output follows.
    shown: Option<String>,
    /// The next line says why a test has panicked.
    is_message_next: bool,
    /// Panics of tests of the binary that runs: the test, and the place with the message.
    panics: Vec<(String, String)>,
    /// The arguments of a binary that failed and named no test: the next line may say how it ended.
    unexplained: Option<String>,
}

impl Seen {
    fn line(&mut self, line: &str) {
        let text = line.trim();
        if self.is_message_next {
            self.is_message_next = false;
            self.panics.last_mut().into_iter().for_each(|(_, said)| *said += text);
        }
        if text.starts_with("daemon: ") && self.shown.is_none() {
            self.panics.last_mut().into_iter().for_each(|(_, said)| *said += &format!("\n      {text}"));
        } else if let Some(name) =
            text.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----"))
        {
            self.shown = Some(name.trim_end_matches(" - should panic").to_owned());
        } else if let Some(place) = place_of_panic(text) {
            if let Some(name) = self.shown.take() {
                self.panics.push((name, format!("{place} ")));
                self.is_message_next = true;
            }
        } else if let Some(what) = text.strip_prefix("SKIPPED: ") {
            self.skipped.push(what.to_owned());
        } else if let Some(name) = failed_test(text) {
            self.of_binary.push(name.to_owned());
        } else if text.starts_with("test result: ok. ") {
            // A passed test that must panic has shown one.
            self.panics.clear();
        } else if let Some(arguments) = text.strip_prefix("error: test failed, to rerun pass ") {
            self.binary_failed(arguments.trim_matches('`'));
        } else if let Some(arguments) = text.strip_prefix("error: doctest failed, to rerun pass ") {
            self.binary_failed(arguments.trim_matches('`'));
        } else if text.starts_with("process didn't exit successfully: ") {
            if let Some(arguments) = self.unexplained.take() {
                let how = text.rsplit_once('`').map_or(text, |(_, how)| how.trim());
                self.failed.push(format!("{arguments}: ended without naming a test {how}"));
            }
        } else if line.starts_with("error: could not compile ") {
            let what = text.trim_start_matches("error: ");
            self.errors.push(what.split(" due to ").next().unwrap_or(what).to_owned());
        }
    }

    fn binary_failed(&mut self, arguments: &str) {
        self.settle();
        if self.of_binary.is_empty() {
            self.unexplained = Some(arguments.to_owned());
        }
        for name in self.of_binary.drain(..) {
            let said = self.panics.iter().find(|(test, _)| *test == name);
            let said = said.map_or(String::new(), |(_, said)| format!("\n    {said}"));
            self.failed.push(format!("{arguments} {name}{said}"));
        }
        self.panics.clear();
    }

    /// Nothing was said of how the last binary ended.
    fn settle(&mut self) {
        let arguments = self.unexplained.take();
        self.failed.extend(arguments.map(|arguments| format!("{arguments}: ended without naming a test")));
    }

    /// The failure of the whole run, in place of cargo's own.
    fn failure(mut self, of_cargo: Failure) -> Failure {
        self.settle();
        self.failed.append(&mut self.of_binary);
        if self.errors.is_empty() && self.failed.is_empty() {
            return of_cargo;
        }
        let mut told = String::new();
        if !self.errors.is_empty() {
            told += &format!("test: compiling failed:\n  {}\n", self.errors.join("\n  "));
        }
        if !self.failed.is_empty() {
            told += &format!("test: {} failed:\n  {}", self.failed.len(), self.failed.join("\n  "));
            // What daemons said may be long, and of a long output only the end is kept.
            if self.failed.iter().any(|failed| failed.contains('\n')) {
                let names: Vec<&str> =
                    self.failed.iter().filter_map(|failed| failed.lines().next()).collect();
                told += &format!("\ntest: that is:\n  {}", names.join("\n  "));
            }
        }
        Failure(told.trim_end().to_owned())
    }
}

/// The name in `test module::name ... FAILED`.
fn failed_test(text: &str) -> Option<&str> {
    let name = text.strip_prefix("test ")?.strip_suffix(" ... FAILED")?;
    Some(name.strip_suffix(" - should panic").unwrap_or(name))
}

/// The place in `thread 'module::name' (1234) panicked at src/lib.rs:1:2:`.
fn place_of_panic(text: &str) -> Option<&str> {
    Some(text.strip_prefix("thread '")?.split_once(" panicked at ")?.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the text about a run with these lines that cargo calls failed.
    fn told(lines: &str) -> String {
        let mut seen = Seen::default();
        lines.lines().for_each(|line| seen.line(line));
        seen.failure(Failure("`cargo test` failed: exit status: 101".into())).0
    }

    #[test]
    fn each_failed_test_is_named_with_what_runs_it_again() {
        let lines = "\
     Running unittests src/lib.rs (target/debug/deps/mail-1)
test a_stop - should panic ... ok

---- a_stop stdout ----

thread 'a_stop' (710) panicked at src/lib.rs:9:9:
as it should

test result: ok. 1 passed; 0 failed
     Running tests/flow.rs (target/debug/deps/flow-1)
test a_stop ... FAILED
test twice - should panic ... FAILED

failures:

---- a_stop stdout ----
test of_a_test_in_the_output ... ok

thread 'a_stop' (711) panicked at tests/flow.rs:3:5:
the queue has 2 messages
daemon: deferred: no answer
thread 'another' (712) panicked at tests/common.rs:1:1:
later

failures:
    a_stop
    twice

test result: FAILED. 0 passed; 2 failed
error: test failed, to rerun pass `-p postrider --test flow`
   Doc-tests mail
test crates/mail/src/lib.rs - Domain (line 5) ... FAILED
error: doctest failed, to rerun pass `-p mail --doc`
error: 2 targets failed:
    `-p postrider --test flow`
    `-p mail --doc`
";
        assert_eq!(
            told(lines),
            "test: 3 failed:\n  -p postrider --test flow a_stop\n    tests/flow.rs:3:5: the queue has 2 \
             messages\n      daemon: deferred: no answer\n  -p postrider --test flow twice\n  -p mail --doc crates/mail/src/lib.rs - Domain (line 5)\n\
             test: that is:\n  -p postrider --test flow a_stop\n  -p postrider --test flow twice\n  -p mail --doc \
             crates/mail/src/lib.rs - Domain (line 5)"
        );
    }

    #[test]
    fn a_binary_that_dies_is_named_with_its_end() {
        let lines = "\
test a ... ok
error: test failed, to rerun pass `-p spool --test dirs`

Caused by:
  process didn't exit successfully: `/t/debug/deps/dirs-1 --show-output` (signal: 6, SIGABRT: process abort signal)
error: test failed, to rerun pass `-p smtp --lib`
";
        assert_eq!(
            told(lines),
            "test: 2 failed:\n  -p spool --test dirs: ended without naming a test (signal: 6, SIGABRT: process abort \
             signal)\n  -p smtp --lib: ended without naming a test"
        );
    }

    #[test]
    fn what_does_not_compile_is_named_and_other_failures_are_cargos() {
        let lines = "\
error[E0425]: cannot find value `x` in this scope
error: unused variable: `y`
error: could not compile `smtp` (lib test) due to 2 previous errors; 1 warning emitted
error: could not compile `report` (test \"log\") due to 1 previous error
";
        assert_eq!(
            told(lines),
            "test: compiling failed:\n  could not compile `smtp` (lib test)\n  could not compile `report` (test \"log\")"
        );
        let other = told("error: cannot update the lock file because --locked was passed\n");
        assert_eq!(other, "`cargo test` failed: exit status: 101");
    }

    #[test]
    fn a_real_run_that_fails_names_its_test() {
        let script = "echo '   Running x' >&2; echo 'test a::b ... FAILED'; \
                      echo 'error: test failed, to rerun pass `-p x --lib`' >&2; echo 'SKIPPED: y'; exit 101";
        let mut seen = Seen::default();
        let mut out = Vec::new();
        let done = shell::watch(shell::program("sh").args(["-c", script]), &mut out, |line| seen.line(line));
        assert_eq!(seen.skipped, ["y"]);
        assert_eq!(String::from_utf8(out).unwrap().lines().count(), 4);
        assert_eq!(seen.failure(done.unwrap_err()).0, "test: 1 failed:\n  -p x --lib a::b");
    }
}
