//! `postlab dd`: how fast a file is written from one end to the other, as `dd if=/dev/zero` measures it;
//! and again until it is on the disk, which is what dd without `conv=fsync` does not measure.

use crate::{device::Device, scratch::Scratch};
use crate::{
    limits::memory_bytes,
    rounds::{Figure, Progress, Rounds},
    table::{Column, Format, Table},
};
use clap::Args;
use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// Write a large file, and measure the speed of the cache and of the disk
///
/// Operands are dd's: `ibs=`, `obs=` or `bs=` octets of a block, `count=` blocks, `of=` the file, which must
/// not be there yet. Zeros are written.
#[derive(Debug, Args)]
pub struct DdArgs {
    #[command(flatten)]
    rounds: Rounds,
    #[command(flatten)]
    format: Format,
    /// ibs=BYTES obs=BYTES bs=BYTES count=BLOCKS of=FILE if=/dev/zero [default: bs=8192 count=5120]
    operands: Vec<String>,
}

/// What the operands of dd ask for: block size, number of blocks and file.
#[derive(Debug, PartialEq, Eq)]
struct Order {
    block: u64,
    count: u64,
    path: Option<PathBuf>,
}

/// Times this much memory cannot lie in a cache.
const MUCH: u64 = 2;
/// A disk that takes what is written as it comes gives the same speed with a sync behind it.
const CACHED: f64 = 1.5;

/// Measures and prints.
pub fn run(args: &DdArgs) -> Result<(), String> {
    let order = Order::parse(&args.operands)?;
    let directory = match order.path.as_deref().map(|p| p.parent().unwrap_or(Path::new("/"))) {
        Some(parent) if parent != Path::new("") => parent.to_owned(),
        _ => PathBuf::from("."),
    };
    let device = Device::below(&directory)?;
    let scratch = Scratch::new(&directory)?;
    let bytes = order.block.saturating_mul(order.count);
    scratch.needs(bytes)?;
    let path = order.path.clone().unwrap_or_else(|| scratch.path().join("zeros"));
    let progress = Progress::new("write", u64::from(args.rounds.count));
    let (mut written, mut synced) = (Figure::default(), Figure::default());
    for _ in 0..args.rounds.count {
        let say = |e: io::Error| format!("write {}: {e}", path.display());
        // What is there already is not ours to write or to remove.
        let file = File::create_new(&path).map_err(say)?;
        let result = write(&order, file, &scratch);
        let removed = fs::remove_file(&path);
        let (taken, durable, done) = result.map_err(say)?;
        removed.map_err(|e| format!("remove {}: {e}", path.display()))?;
        if scratch.is_stopped() {
            break;
        }
        let megabytes = |time: Duration| done as f64 / 1e6 / time.as_secs_f64().max(1e-9);
        written.push(megabytes(taken));
        synced.push(megabytes(durable));
        progress.step();
    }
    drop(progress);
    let mut table = Table::new(args.format, &COLUMNS, None);
    table.fact(device.text());
    table.fact(format!("{} MB in blocks of {} octets", bytes as f64 / 1e6, order.block));
    table.text(&format!("written (no sync)       {written} MB/s"));
    table.text(&format!("written and on the disk {synced} MB/s"));
    table.record(["written (no sync)".into(), (&written).into()]);
    table.record(["written and on the disk".into(), (&synced).into()]);
    let (written, synced) = (written.median().unwrap_or_default(), synced.median().unwrap_or_default());
    if let Some(warning) = warning(bytes, memory_bytes(), written, synced, device.is_memory()) {
        table.note(warning);
    }
    table.finish();
    Ok(())
}

const COLUMNS: [Column; 2] = [Column::left("", "until", 23), Column::left("MB/s", "mb_per_second", 0)];

fn warning(bytes: u64, memory: u64, written: f64, synced: f64, is_memory: bool) -> Option<String> {
    if is_memory {
        return Some("CACHED: this file system is memory.".into());
    }
    if bytes >= memory.saturating_mul(MUCH) || written <= synced * CACHED {
        return None;
    }
    let much = memory.saturating_mul(MUCH) as f64 / 1e6;
    Some(format!(
        "TOO SMALL, CACHED: the first figure is the memory's, {:.1} times the disk's; without a sync write {much:.0} MB.",
        written / synced.max(1e-9)
    ))
}

/// Until all is written, and until all is on the disk; and how much it was.
fn write(order: &Order, mut file: File, scratch: &Scratch) -> io::Result<(Duration, Duration, u64)> {
    let block = vec![0; order.block as usize];
    let begin = Instant::now();
    let mut done = 0;
    for _ in 0..order.count {
        if scratch.is_stopped() {
            break;
        }
        file.write_all(&block)?;
        done += order.block;
    }
    let taken = begin.elapsed();
    file.sync_all()?;
    Ok((taken, begin.elapsed(), done))
}

impl Order {
    fn parse(operands: &[String]) -> Result<Self, String> {
        let mut order = Self { block: 8192, count: 5120, path: None };
        for operand in operands {
            let (name, value) = operand.split_once('=').ok_or(format!("`{operand}` is no operand of dd"))?;
            match name {
                // What is read is nothing: only how it is written matters.
                "ibs" => drop(size(value)?),
                "bs" | "obs" => order.block = size(value)?,
                "count" => order.count = size(value)?,
                "of" => order.path = Some(value.into()),
                "if" if value == "/dev/zero" => {}
                "if" => return Err(format!("read {value}: only /dev/zero is read")),
                _ => return Err(format!("`{name}=` is no operand here")),
            }
        }
        if order.block > 1 << 30 {
            return Err(format!("a block of {} octets is more than 1 GiB", order.block));
        }
        Ok(order)
    }
}

/// `8192`, `8k`, `1M`, `2G`.
fn size(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 10),
        Some(b'M') => (&text[..text.len() - 1], 20),
        Some(b'G') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let number = digits.parse::<u64>().ok().filter(|n| *n > 0).and_then(|n| n.checked_mul(1 << unit));
    number.ok_or(format!("`{text}` is not a size above zero"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operands_are_those_of_dd() {
        let parse = |text: &str| Order::parse(&text.split(' ').map(Into::into).collect::<Vec<_>>());
        let order = parse("ibs=8192 if=/dev/zero obs=8k count=124000 of=incq").unwrap();
        assert_eq!(order, Order { block: 8192, count: 124_000, path: Some("incq".into()) });
        for bad in ["bs=0", "bs=2G", "if=/etc/passwd", "conv=sync", "x", "count=99999999999G"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_file_that_fits_into_memory_measures_the_memory() {
        assert!(warning(40_000_000, 1 << 30, 161.0, 40.0, false).unwrap().contains("4.0 times the disk's"));
        assert_eq!(warning(40_000_000, 1 << 30, 42.0, 40.0, false), None);
        assert_eq!(warning(4_000_000_000, 1 << 30, 161.0, 40.0, false), None);
        assert!(warning(1, 1, 1.0, 1.0, true).unwrap().contains("is memory"));
    }
}
