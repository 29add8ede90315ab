//! Berkeley DB itself, with the access methods that sendmail X compared: a program in Python drives it, since no crate has it.

use super::backend::{Backend, Options, StepFactory};
use std::{
    io::{self, BufRead as _, BufReader, Write as _},
    ops::Range,
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

/// Debian's, for which it has the package.
const PYTHON: &str = "/usr/bin/python3";
const DURABILITY: &str = "a transaction for each record, log_flush for each group";

pub(super) const BTREE: StepFactory =
    StepFactory { name: "berkeley-btree", durability: DURABILITY, has_own_log: true, open: open_btree };
pub(super) const QUEUE: StepFactory =
    StepFactory { name: "berkeley-queue", durability: DURABILITY, has_own_log: true, open: open_queue };

struct Berkeley {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

fn open_btree(path: &Path, options: &Options<'_>) -> Result<Box<dyn Backend>, String> {
    open("btree", path, options)
}

fn open_queue(path: &Path, options: &Options<'_>) -> Result<Box<dyn Backend>, String> {
    open("queue", path, options)
}

fn open(method: &str, path: &Path, options: &Options<'_>) -> Result<Box<dyn Backend>, String> {
    let log = options.log.unwrap_or(path);
    // Its working directory is that of the store, so that relative names would mean others.
    let absolute = |path: &Path| path.canonicalize().map_err(|e| format!("look at {}: {e}", path.display()));
    let mut command = Command::new(PYTHON);
    command.args(["-c", include_str!("berkeley.py"), method]).arg(absolute(path)?);
    command.arg(options.length.to_string()).arg(absolute(log)?);
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.map_err(|e| format!("run {PYTHON}: {e}"))?;
    let (input, output) = (child.stdin.take(), child.stdout.take().ok_or("the program has no output")?);
    let mut store = Berkeley { child, input, output: BufReader::new(output) };
    store.answer()?;
    Ok(Box::new(store))
}

impl Berkeley {
    fn ask(&mut self, line: &str) -> Result<(), String> {
        let input = self.input.as_mut().ok_or("the program has no input")?;
        writeln!(input, "{line}")
            .and_then(|()| input.flush())
            .map_err(|e| format!("ask Berkeley DB: {e}"))?;
        self.answer()
    }

    fn answer(&mut self) -> Result<(), String> {
        let mut line = String::new();
        self.output.read_line(&mut line).map_err(|e| format!("hear Berkeley DB: {e}"))?;
        if line.starts_with("ok") {
            return Ok(());
        }
        let mut said = String::new();
        if let Some(error) = &mut self.child.stderr {
            let _ = io::Read::read_to_string(error, &mut said);
        }
        let last = said.trim().lines().last().unwrap_or("it ended").to_owned();
        Err(if last.contains("bsddb3") {
            "Debian's Python has no Berkeley DB: install python3-bsddb3".into()
        } else {
            last
        })
    }
}

impl Backend for Berkeley {
    fn put(&mut self, keys: Range<u32>, _: &[u8]) -> Result<(), String> {
        self.ask(&format!("put {} {}", keys.start, keys.end))
    }

    fn checkpoint(&mut self) -> Result<(), String> {
        self.ask("checkpoint")
    }
}

impl Drop for Berkeley {
    fn drop(&mut self) {
        // The end of its input ends it; what it closes is removed then.
        self.input = None;
        let _ = self.child.wait();
    }
}
