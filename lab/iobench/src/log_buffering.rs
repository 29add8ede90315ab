//! `postlab log-buffering`: a log whose lines are written one by one, in blocks, or through a queue to a thread of its own.
//! sendmail X took 35 % longer with line buffering.

use crate::{
    device::Device,
    rounds::{Figure, Progress, Rounds},
    scratch::Scratch,
    table::{Cell, Column, Format, Table},
    usage::cpu_time,
};
use clap::Args;
use std::{
    fs::File,
    io::{self, BufWriter, Write as _},
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, sync_channel},
    thread,
    time::Instant,
};

/// Measure a log file with line buffering and with block buffering
///
/// No line is synced. With line buffering each line is a write(2) and is in the file at once; with blocks it may be lost
/// when the process is killed. A queue hands lines to a thread that writes what has arrived by then, as the delivery log of
/// Postrider is written.
#[derive(Debug, Args)]
pub struct LogBufferingArgs {
    /// Lines in each round
    #[arg(short = 'n', value_name = "COUNT", default_value = "300000", value_parser = clap::value_parser!(u32).range(1..))]
    lines: u32,
    /// Octets of a line
    #[arg(short = 'l', value_name = "BYTES", default_value = "180", value_parser = clap::value_parser!(u32).range(2..=65536))]
    length: u32,
    #[command(flatten)]
    rounds: Rounds,
    #[command(flatten)]
    format: Format,
    /// A directory on the disk to measure
    #[arg(default_value = ".")]
    directory: PathBuf,
}

/// A block of the C library, and of most MTAs.
const BLOCK_BYTES: usize = 8192;
/// Lines that may wait for the thread.
const QUEUE_LINES: usize = 4096;

type Method = (&'static str, fn(File, &[u8], u32, &dyn Fn() -> bool) -> io::Result<u32>);

const METHODS: [Method; 3] = [("line", by_line), ("block", by_block), ("queue", by_queue)];

/// Measures and prints; Ctrl-C keeps the rounds that are done.
///
/// # Errors
/// In words.
pub fn run(args: &LogBufferingArgs) -> Result<(), String> {
    let device = Device::below(&args.directory)?;
    let scratch = Scratch::new(&args.directory)?;
    let rounds = u64::from(args.rounds.count);
    scratch.needs(u64::from(args.lines) * u64::from(args.length))?;
    let progress = Progress::new("write lines", rounds * METHODS.len() as u64);
    let mut line = vec![b'x'; args.length as usize];
    line[args.length as usize - 1] = b'\n';
    let mut figures = [const { (Figure::new(), Figure::new()) }; METHODS.len()];
    for round in 0..args.rounds.count as usize {
        // Each method is first in its turn.
        for place in 0..METHODS.len() {
            let at = (round + place) % METHODS.len();
            let path = scratch.path().join(format!("log{round}{at}"));
            let measured = measure(METHODS[at], &path, &line, args.lines, &|| scratch.is_stopped());
            let (done, seconds, cpu) = measured.map_err(|e| format!("write {}: {e}", path.display()))?;
            if done < args.lines {
                break; // A round that was cut has no rate.
            }
            figures[at].0.push(f64::from(done) / seconds);
            figures[at].1.push(cpu * 1e6 / f64::from(done));
            progress.step();
        }
    }
    drop(progress);
    let mut table = Table::new(args.format, &COLUMNS, None);
    let block = figures[1].0.median().unwrap_or_default();
    for ((name, _), (rate, cpu)) in METHODS.iter().zip(&figures) {
        let ratio = block / rate.median().unwrap_or_default().max(1e-9);
        table.row([(*name).into(), rate.into(), cpu.into(), Cell::Number(ratio, 2)]);
    }
    table.note(format!(
        "\"to block\": the time of a line, as a multiple of that with blocks of {BLOCK_BYTES} octets."
    ));
    table.note(
        "Durability: nothing is synced. A killed process loses nothing (line), a block, or what waits in the queue.",
    );
    table.note(device.text());
    table.finish();
    Ok(())
}

const COLUMNS: [Column; 4] = [
    Column::left("", "method", 6),
    Column::right("lines/s", "lines_per_second", 34),
    Column::right("CPU µs a line", "cpu_us_per_line", 28),
    Column::right("to block", "ratio_to_block", 12),
];

/// Returns the number of lines, the seconds, and the CPU seconds.
fn measure(
    method: Method,
    path: &Path,
    line: &[u8],
    lines: u32,
    stopped: &dyn Fn() -> bool,
) -> io::Result<(u32, f64, f64)> {
    let file = File::create_new(path)?;
    let (begin, cpu) = (Instant::now(), cpu_time());
    let done = (method.1)(file, line, lines, stopped)?;
    let (seconds, cpu) = (begin.elapsed().as_secs_f64(), cpu_time().saturating_sub(cpu).as_secs_f64());
    std::fs::remove_file(path)?;
    Ok((done, seconds, cpu))
}

fn by_line(mut file: File, line: &[u8], lines: u32, stopped: &dyn Fn() -> bool) -> io::Result<u32> {
    for done in 0..lines {
        if done % 1024 == 0 && stopped() {
            return Ok(done);
        }
        file.write_all(line)?;
    }
    Ok(lines)
}

fn by_block(file: File, line: &[u8], lines: u32, stopped: &dyn Fn() -> bool) -> io::Result<u32> {
    let mut file = BufWriter::with_capacity(BLOCK_BYTES, file);
    for done in 0..lines {
        if done % 1024 == 0 && stopped() {
            return Ok(done);
        }
        file.write_all(line)?;
    }
    file.flush()?;
    Ok(lines)
}

fn by_queue(file: File, line: &[u8], lines: u32, stopped: &dyn Fn() -> bool) -> io::Result<u32> {
    let (to, from) = sync_channel::<Vec<u8>>(QUEUE_LINES);
    let writer = thread::spawn(move || write_queued(file, &from));
    let mut done = 0;
    while done < lines && !(done % 1024 == 0 && stopped()) {
        if to.send(line.to_vec()).is_err() {
            break; // The writer has failed, and returns the reason.
        }
        done += 1;
    }
    drop(to);
    writer.join().unwrap_or_else(|_| Err(io::Error::other("the writer panicked")))?;
    Ok(done)
}

/// Writes what has come, in one piece, until all senders are gone.
fn write_queued(mut file: File, from: &Receiver<Vec<u8>>) -> io::Result<()> {
    let mut batch = Vec::new();
    while let Ok(first) = from.recv() {
        batch.clear();
        batch.extend_from_slice(&first);
        while let Ok(next) = from.try_recv() {
            batch.extend_from_slice(&next);
        }
        file.write_all(&batch)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_method_writes_each_line_once() {
        let directory = tempfile::tempdir().unwrap();
        for (name, method) in METHODS {
            let path = directory.path().join(name);
            let file = File::create_new(&path).unwrap();
            assert_eq!(method(file, b"0123456\n", 5000, &|| false).unwrap(), 5000, "{name}");
            assert_eq!(std::fs::read(&path).unwrap(), b"0123456\n".repeat(5000), "{name}");
        }
    }

    #[test]
    fn a_stopped_round_says_how_many_lines_it_wrote() {
        let directory = tempfile::tempdir().unwrap();
        for (name, method) in METHODS {
            let file = File::create_new(directory.path().join(name)).unwrap();
            assert_eq!(method(file, b"x\n", 5000, &|| true).unwrap(), 0, "{name}");
        }
    }
}
