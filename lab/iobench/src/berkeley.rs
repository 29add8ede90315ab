//! Programs in Python that drive Berkeley DB itself, since no crate has it.

use std::{
    ffi::OsStr,
    io::{self, BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

/// Debian's, for which it has the package.
const PYTHON: &str = "/usr/bin/python3";
/// What the error of a Python without Berkeley DB begins with.
const NOT_INSTALLED: &str = "Debian's Python has no Berkeley DB";

/// A running program, which answers each line with `ok` and what it found.
pub(crate) struct Driver {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Driver {
    /// Starts `script` with `arguments` and waits until it is ready.
    pub(crate) fn start(script: &str, arguments: &[&OsStr]) -> Result<Self, String> {
        let mut command = Command::new(PYTHON);
        command.arg("-c").arg(script).args(arguments);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.map_err(|e| format!("{NOT_INSTALLED}: run {PYTHON}: {e}"))?;
        let (input, output) = (child.stdin.take(), child.stdout.take().ok_or("the program has no output")?);
        let mut driver = Self { child, input, output: BufReader::new(output) };
        driver.answer()?;
        Ok(driver)
    }

    /// Sends `line`; what the program answers behind its `ok`.
    pub(crate) fn ask(&mut self, line: &str) -> Result<String, String> {
        let input = self.input.as_mut().ok_or("the program has no input")?;
        writeln!(input, "{line}")
            .and_then(|()| input.flush())
            .map_err(|e| format!("ask Berkeley DB: {e}"))?;
        self.answer()
    }

    fn answer(&mut self) -> Result<String, String> {
        let mut line = String::new();
        self.output.read_line(&mut line).map_err(|e| format!("hear Berkeley DB: {e}"))?;
        if let Some(answer) = line.strip_prefix("ok") {
            return Ok(answer.trim().to_owned());
        }
        let mut said = String::new();
        if let Some(error) = &mut self.child.stderr {
            let _ = io::Read::read_to_string(error, &mut said);
        }
        let last = said.trim().lines().last().unwrap_or("it ended").to_owned();
        Err(if last.contains("bsddb3") { format!("{NOT_INSTALLED}: install python3-bsddb3") } else { last })
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // The end of its input ends it; what it closes is removed then.
        self.input = None;
        let _ = self.child.wait();
    }
}

/// Whether `error` says that the machine lacks Berkeley DB, so that a measurement of it is skipped.
pub(crate) fn is_missing(error: &str) -> bool {
    error.starts_with(NOT_INSTALLED)
}
