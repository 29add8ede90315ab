//! `postlab kv`: Berkeley DB's bench_001 and bench_002, for the stores of today. Small records are put and
//! made durable in groups: a store for the envelopes of a queue does nothing else.

mod backend;
mod berkeley;
mod file;
#[cfg(feature = "stores")]
mod fjall;
#[cfg(feature = "stores")]
mod lmdb;
mod log;
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;
mod sqlite;

use crate::{
    device::Device,
    rounds::{Figure, Progress, Rounds, too_short_round},
    scratch::Scratch,
    table::{Column, Format, Table},
    usage::cpu_time,
};
use backend::{BACKENDS, Backend, Options, StepFactory};
use clap::Args;
use std::{
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

/// Compare stores of small records
#[derive(Debug, Args)]
pub struct KvArgs {
    /// The stores [default: all that the program was built with]; Berkeley DB needs Debian's python3-bsddb3
    #[arg(long = "backend", value_name = "NAME,…", value_delimiter = ',', value_parser = backend::find)]
    backends: Vec<StepFactory>,
    /// Records to write
    #[arg(short = 'n', value_name = "COUNT", default_value = "100000", value_parser = clap::value_parser!(u32).range(1..))]
    records: u32,
    /// Records for each sync; several values are measured in turn
    #[arg(short = 'T', value_name = "COUNT,…", value_delimiter = ',', default_value = "100000,10000,1000,100",
        value_parser = clap::value_parser!(u32).range(1..))]
    groups: Vec<u32>,
    /// Octets of a record
    #[arg(short = 'l', value_name = "BYTES,…", value_delimiter = ',', default_value = "20",
        value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    lengths: Vec<u32>,
    /// Records between checkpoints, after which a store can free its log
    #[arg(short = 'C', value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    checkpoint: Option<u32>,
    /// The longest duration of a round in seconds; rates are those of the records written until then
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = measure::arguments::seconds_of)]
    limit: std::time::Duration,
    /// The directory of the log, as on another disk, for stores that can have it there
    #[arg(long, value_name = "DIRECTORY")]
    log_directory: Option<PathBuf>,
    #[command(flatten)]
    rounds: Rounds,
    #[command(flatten)]
    format: Format,
    /// A directory on the disk to measure
    #[arg(default_value = ".")]
    directory: PathBuf,
}

/// One store and group size, measured in all rounds.
#[derive(Debug, Default)]
struct Row {
    seconds: Figure,
    cpu: Figure,
    kb_per_second: Figure,
    per_second: Figure,
    records: u32,
}

/// Measures and prints; Ctrl-C keeps the rows that are done.
pub fn run(args: &KvArgs) -> Result<(), String> {
    let device = Device::below(&args.directory)?;
    let scratch = Scratch::new(&args.directory)?;
    let backends = if args.backends.is_empty() { BACKENDS.to_vec() } else { args.backends.clone() };
    let logs = args.log_directory.as_deref().map(Scratch::new).transpose()?;
    if let Some(store) = backends.iter().find(|store| logs.is_some() && !store.has_own_log) {
        return Err(format!(
            "--log-directory: {} has no log that could be elsewhere: name others with --backend",
            store.name
        ));
    }
    let cells = backends.len() * args.groups.len() * args.lengths.len();
    let progress = Progress::new("put", cells as u64 * u64::from(args.rounds.count));
    let mut table = Table::new(args.format, &COLUMNS, Some(&progress));
    table.fact(device.text());
    for length in &args.lengths {
        for group in &args.groups {
            let mut rows: Vec<Row> = backends.iter().map(|_| Row::default()).collect();
            // Round for round, so that noise meets all of them.
            for _ in 0..args.rounds.count {
                for (maker, row) in backends.iter().zip(&mut rows) {
                    if scratch.is_stopped() {
                        break;
                    }
                    let log = logs.as_ref().map(Scratch::path);
                    measure(args, maker, *group, *length, (&scratch, log), row)?;
                    progress.step();
                }
            }
            for (maker, row) in backends.iter().zip(&rows).filter(|(_, row)| row.records > 0) {
                table.row([
                    maker.name.into(),
                    (*group).into(),
                    (*length).into(),
                    row.records.into(),
                    (&row.seconds).into(),
                    (&row.cpu).into(),
                    (&row.kb_per_second).into(),
                    (&row.per_second).into(),
                    format!(" {}", maker.durability).into(),
                ]);
                too_short_round(&row.seconds).into_iter().for_each(|remark| table.remark(remark));
            }
        }
    }
    if backends.iter().any(|store| store.has_own_log) {
        table.note("The processor time of Berkeley DB, which a program of its own drives, is not counted.");
    }
    if let Some(place) = &args.log_directory {
        table.note(format!("Logs in {}.", place.display()));
    }
    table.finish();
    Ok(())
}

const COLUMNS: [Column; 9] = [
    Column::left("backend", "backend", 8),
    Column::right("-T", "group", 7),
    Column::right("-l", "length", 6),
    Column::right("records", "records", 8),
    Column::right("real s", "seconds", 26),
    Column::right("user+sys s", "cpu_seconds", 26),
    Column::right("KB/s", "kb_per_second", 30),
    Column::right("records/s", "records_per_second", 30),
    Column::left(" durability", "durability", 0),
];

fn measure(
    args: &KvArgs,
    maker: &StepFactory,
    group: u32,
    length: u32,
    (scratch, log): (&Scratch, Option<&Path>),
    row: &mut Row,
) -> Result<(), String> {
    let path = scratch.path().join(maker.name);
    let io = |e: std::io::Error| format!("use {}: {e}", path.display());
    fs::create_dir(&path).map_err(io)?;
    let log = log.map(|log| log.join(maker.name));
    log.iter().try_for_each(fs::create_dir).map_err(io)?;
    let options = Options { length, log: log.as_deref() };
    let mut backend = (maker.open)(&path, &options).map_err(|e| format!("open {}: {e}", maker.name))?;
    let value = vec![b'v'; length as usize];
    let (begin, cpu) = (Instant::now(), cpu_time());
    let mut done = 0;
    while done < args.records && begin.elapsed() < args.limit && !scratch.is_stopped() {
        let end = done.saturating_add(group).min(args.records);
        put(args, backend.as_mut(), done..end, &value)
            .map_err(|e| format!("put into {}: {e}", maker.name))?;
        done = end;
    }
    let seconds = begin.elapsed().as_secs_f64();
    let cpu = cpu_time().saturating_sub(cpu);
    drop(backend);
    fs::remove_dir_all(&path).map_err(io)?;
    log.iter().try_for_each(fs::remove_dir_all).map_err(io)?;
    if done < args.records && scratch.is_stopped() {
        return Ok(()); // A round that was cut has no rate.
    }
    row.cpu.push(cpu.as_secs_f64());
    row.records = row.records.max(done);
    row.seconds.push(seconds);
    row.kb_per_second.push(f64::from(done) * f64::from(length) / 1024.0 / seconds);
    row.per_second.push(f64::from(done) / seconds);
    Ok(())
}

/// Puts one group of records, and makes the checkpoints that are due.
fn put(
    args: &KvArgs,
    backend: &mut dyn Backend,
    records: std::ops::Range<u32>,
    value: &[u8],
) -> Result<(), String> {
    let last = records.end;
    backend.put(records.clone(), value)?;
    let passed = |every: u32| records.start / every != last / every;
    if args.checkpoint.is_some_and(passed) { backend.checkpoint() } else { Ok(()) }
}
