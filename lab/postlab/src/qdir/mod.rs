//! Queue directories as sendmail has them: a file for the content and one for the envelope of each message.
//! Their cost is to be compared with the cost of a log.

mod answer;
pub(crate) mod baseline;
mod create;
mod daemon;
pub(crate) mod dirs;
mod hosts;
pub(crate) mod order;
mod passes;
mod peer;
mod queue;
mod runners;
mod slope;
mod verdicts;
mod why;
mod work;

use clap::{Args, ValueEnum};
use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::Command,
};

/// A daemon that can be started for a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Mta {
    Postrider,
}

/// The daemon, and the directory of its raw figures.
#[derive(Debug, Args)]
struct DaemonArgs {
    /// With --mta: the backend; several are measured in turn
    #[arg(long, value_enum, value_delimiter = ',', default_value = "log,queue-dirs", requires = "mta")]
    backend: Vec<daemon::Backend>,
    /// With --mta: the program [default: $POSTRIDER, or postrider on the path]
    #[arg(long, value_name = "PATH", requires = "mta")]
    binary: Option<PathBuf>,
    /// With --mta: the directory of the results; a new directory is created in it
    #[arg(long, value_name = "DIRECTORY", default_value = "results", requires = "mta")]
    results: PathBuf,
}

/// Writes a message as sendmail does (S2's system calls): content and envelope each synced, and the envelope
/// renamed to its name, which makes the message one.
fn enqueue(directory: &Path, number: u32, hosts: u32, size: usize, syncs: bool) -> io::Result<()> {
    let id = format!("{number:08x}");
    let write = |path: &Path, text: &[u8]| -> io::Result<()> {
        let mut file = File::create_new(path)?;
        file.write_all(text)?;
        if syncs { file.sync_all() } else { Ok(()) }
    };
    write(&directory.join(format!("df{id}")), &vec![b'x'; size])?;
    let temporary = directory.join(format!("tf{id}"));
    write(&temporary, envelope(number, hosts).as_bytes())?;
    fs::rename(&temporary, directory.join(format!("qf{id}")))
}

/// The lines of a qf file that a queue run reads: when, how urgent, for whom.
fn envelope(number: u32, hosts: u32) -> String {
    // Not the name's own number, by which some orders sort.
    let host = hosts::host((number.wrapping_mul(2_246_822_519) >> 8) % hosts);
    format!(
        "V8\nT{}\nK0\nN0\nP{}\nS<sender@source.test>\nrRFC822; recipient@{host}\nRPFD:<recipient@{host}>\n.\n",
        1_000_000_000 + u64::from(number),
        30_000 + number % 997
    )
}

/// Returns the bytes that a message takes: two files of whole blocks.
fn message_bytes(length: u32) -> u64 {
    u64::from(length).next_multiple_of(4096) + 4096
}

/// `q0`, `q1`, …
fn make_directories(parent: &Path, count: u32) -> Result<Vec<PathBuf>, String> {
    let make = |i| {
        let path = parent.join(format!("q{i}"));
        fs::create_dir(&path).map_err(|e| format!("create {}: {e}", path.display()))?;
        Ok(path)
    };
    (0..count).map(make).collect()
}

/// Copies a queue; cp keeps times and owners, which an order may ask for.
fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let done = Command::new("cp").arg("-a").arg(from).arg(to).status().map_err(|e| format!("run cp: {e}"))?;
    if !done.success() {
        return Err(format!("copy {}: cp ended with {done}", from.display()));
    }
    // The copy is not to be written while a queue is gone through.
    File::open(to).and_then(|place| Ok(rustix::fs::syncfs(&place)?)).map_err(|e| format!("sync: {e}"))
}
