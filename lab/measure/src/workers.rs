//! Processes of this program that begin their work together.

use crate::signals;
use rustix::time::{ClockId, clock_gettime};
use std::{
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    process::{Child, Command, Stdio},
    thread,
};

const READY: &str = "ready\n";

/// Returns the time of the clock that processes share, in nanoseconds.
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// Runs this program once with each of these arguments. Each must call [`ready`]; they begin when all have. Returns when that was, and what each
/// has printed.
///
/// # Errors
/// A process cannot be started, or it ends with an error before a signal stops this one.
pub fn together(arguments: impl Iterator<Item = Vec<String>>) -> Result<(u64, Vec<String>), String> {
    let failed = |e: io::Error| format!("run a process of the measurement: {e}");
    let own = std::env::current_exe().map_err(failed)?;
    let mut workers = Vec::new();
    for words in arguments {
        let mut command = Command::new(&own);
        command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
        workers.push(Worker(command.spawn().map_err(failed)?));
    }
    let mut outputs = Vec::new();
    for worker in &mut workers {
        let mut output = BufReader::new(worker.0.stdout.take().ok_or("a process without output")?);
        let mut line = String::new();
        output.read_line(&mut line).map_err(failed)?;
        if line != READY {
            return Err("run a process of the measurement: it ended at once".into());
        }
        outputs.push(output);
    }
    let begin = now();
    for worker in &mut workers {
        let mut input = worker.0.stdin.take().ok_or("a process without input")?;
        input.write_all(b"\n").map_err(failed)?;
    }
    let texts: Vec<io::Result<String>> = thread::scope(|scope| {
        let read = |mut output: BufReader<_>| {
            let mut text = String::new();
            output.read_to_string(&mut text).map(|_| text)
        };
        let threads: Vec<_> = outputs.into_iter().map(|output| scope.spawn(move || read(output))).collect();
        let panicked = || Err(io::Error::other("a reader panicked"));
        threads.into_iter().map(|t| t.join().unwrap_or_else(|_| panicked())).collect()
    });
    for worker in &mut workers {
        let status = worker.0.wait().map_err(failed)?;
        if !status.success() && !signals::is_stopped() {
            return Err(format!("run a process of the measurement: it ended with {status}"));
        }
    }
    Ok((begin, texts.into_iter().collect::<io::Result<_>>().map_err(failed)?))
}

/// In a process that [`together`] started: waits until all are ready. A signal stops the work, and keeps what is done.
///
/// # Errors
/// The process that started this one has gone.
pub fn ready() -> Result<(), String> {
    let failed = |e: io::Error| format!("wait for the begin of the measurement: {e}");
    signals::on_end(|| {})?;
    print!("{READY}");
    io::stdout().flush().map_err(failed)?;
    io::stdin().read_line(&mut String::new()).map_err(failed)?;
    Ok(())
}

/// A process that this one has started; killed when it is dropped.
struct Worker(Child);

impl Drop for Worker {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
