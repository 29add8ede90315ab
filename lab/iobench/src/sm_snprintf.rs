//! sm_snprintf() of sendmail, from the library that Debian makes of sendmail's source (libmilter-dev), beside snprintf() in one C program.

use std::process::{Command, Stdio};
use tempfile::TempDir;

const SOURCE: &str = include_str!("sm_snprintf.c");

#[derive(Debug)]
pub(crate) struct Program(TempDir);

impl Program {
    /// Compiles the C program with the compiler of the machine.
    pub(crate) fn compile() -> Result<Self, String> {
        let directory = TempDir::new().map_err(|e| format!("make a directory: {e}"))?;
        let source = directory.path().join("formats.c");
        std::fs::write(&source, SOURCE).map_err(|e| format!("write {}: {e}", source.display()))?;
        let mut compiler = Command::new("cc");
        compiler.args(["-O2", "-o"]).arg(directory.path().join("formats")).arg(&source).arg("-lsm");
        let output = compiler.output().map_err(|e| format!("run cc: {e}; install gcc and libmilter-dev"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("compile and link with libsm: {}; install libmilter-dev", said.trim()));
        }
        Ok(Self(directory))
    }

    /// Formats so many lines with `sm_snprintf` or `snprintf`, and returns the seconds that it took and the last line.
    pub(crate) fn run(&self, method: &str, lines: u32) -> Result<(f64, String), String> {
        let mut program = Command::new(self.0.path().join("formats"));
        let output = program.args([method, &lines.to_string()]).stdin(Stdio::null()).output();
        let output = output.map_err(|e| format!("run the program in C: {e}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let read =
            text.split_once(' ').and_then(|(seconds, line)| Some((seconds.parse().ok()?, line.to_owned())));
        read.ok_or_else(|| format!("the program in C ended with {}", output.status))
    }
}
