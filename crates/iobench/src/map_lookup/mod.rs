//! `postlab map-lookup`: what it costs to look an address up, in this process and behind a socket. sendmail X
//! found the socket 100 times slower.

mod cdb;
mod server;
mod sqlite;

use crate::{
    limits::memory_bytes,
    rounds::{Figure, Progress, Rounds},
    scratch::Scratch,
};
use cdb::Cdb;
use clap::Args;
use server::Client;
use sqlite::Sqlite;
use std::{collections::HashMap, hint::black_box, io, path::PathBuf, sync::Arc, time::Instant};

/// Measure lookups in maps of several kinds
#[derive(Debug, Args)]
pub struct MapLookupArgs {
    /// Entries of the map
    #[arg(short = 'n', value_name = "COUNT", default_value = "100000", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    entries: u32,
    /// Octets of a value
    #[arg(short = 'l', value_name = "BYTES", default_value = "20", value_parser = clap::value_parser!(u32).range(1..=65536))]
    length: u32,
    /// Lookups of a round
    #[arg(short = 'm', value_name = "COUNT", default_value = "100000", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    lookups: u32,
    #[command(flatten)]
    rounds: Rounds,
    /// Directory in which the file is made
    #[arg(default_value = ".")]
    directory: PathBuf,
}

/// So many are asked for before an answer is waited for, in the rows that say so.
const BATCH: usize = 32;

/// One set of pairs, in every form of map.
struct Maps {
    hash: Arc<HashMap<String, String>>,
    sorted: Vec<(String, String)>,
    cdb: Cdb,
    sqlite: Sqlite,
    local: Client,
    inet: Client,
}

/// Looks all keys up; how many were there.
type Method = fn(&mut Maps, &[&str]) -> io::Result<usize>;

const METHODS: [(&str, Method); 8] = [
    ("hash map", |m, keys| Ok(keys.iter().filter(|key| black_box(m.hash.get(**key)).is_some()).count())),
    ("sorted vector", |m, keys| {
        let find = |key: &str| m.sorted.binary_search_by(|pair| pair.0.as_str().cmp(key));
        Ok(keys.iter().filter(|key| black_box(find(key)).is_ok()).count())
    }),
    ("cdb-like file", |m, keys| {
        keys.iter().try_fold(0, |found, key| Ok(found + usize::from(m.cdb.get(key)?.is_some())))
    }),
    ("SQLite", |m, keys| {
        keys.iter().try_fold(0, |found, key| Ok(found + usize::from(m.sqlite.get(key)?.is_some())))
    }),
    ("unix socket", |m, keys| one_by_one(&mut m.local, keys)),
    ("unix socket, 32 at once", |m, keys| in_batches(&mut m.local, keys)),
    ("TCP socket", |m, keys| one_by_one(&mut m.inet, keys)),
    ("TCP socket, 32 at once", |m, keys| in_batches(&mut m.inet, keys)),
];

fn one_by_one(client: &mut Client, keys: &[&str]) -> io::Result<usize> {
    keys.iter().try_fold(0, |found, key| Ok(found + client.ask(std::iter::once(*key))?))
}

fn in_batches(client: &mut Client, keys: &[&str]) -> io::Result<usize> {
    keys.chunks(BATCH).try_fold(0, |found, keys| Ok(found + client.ask(keys.iter().copied())?))
}

/// Beside its value an entry has its key, and both have their heads.
const ENTRY_BYTES: u64 = 128;
/// The forms that lie in memory.
const COPIES: u64 = 3;

/// Measures and prints.
pub fn run(args: &MapLookupArgs) -> Result<(), String> {
    let needed = u64::from(args.entries) * (u64::from(args.length) + ENTRY_BYTES) * COPIES;
    if needed > memory_bytes() / 2 {
        let [needed, memory] = [needed, memory_bytes()].map(|bytes| bytes / 1_000_000);
        return Err(format!("make the maps: they take {needed} MB, and the memory has {memory}"));
    }
    let scratch = Scratch::new(&args.directory)?;
    let value = "v".repeat(args.length as usize);
    let pairs: Vec<_> = (0..args.entries).map(|i| (key(i), value.clone())).collect();
    let mut maps = Maps::of(pairs, &scratch).map_err(|e| format!("make the maps: {e}"))?;
    let mut random = fastrand::Rng::with_seed(42);
    let names: Vec<String> = (0..args.lookups).map(|_| key(random.u32(..args.entries))).collect();
    let keys: Vec<&str> = names.iter().map(String::as_str).collect();
    let progress = Progress::new("look up", u64::from(args.rounds.count) * METHODS.len() as u64);
    let mut figures = [const { Figure::new() }; METHODS.len()];
    // Round for round, so that noise meets all of them.
    for _ in 0..args.rounds.count {
        for ((name, method), figure) in METHODS.iter().zip(&mut figures) {
            if scratch.is_stopped() {
                break;
            }
            let begin = Instant::now();
            let found = method(&mut maps, &keys).map_err(|e| format!("look up in {name}: {e}"))?;
            figure.push(keys.len() as f64 / begin.elapsed().as_secs_f64() / 1e3);
            if found != keys.len() {
                return Err(format!(
                    "look up in {name}: {} of {} were not there",
                    keys.len() - found,
                    keys.len()
                ));
            }
            progress.step();
        }
    }
    drop(progress);
    let first = figures[0].median().unwrap_or_default();
    println!("{} entries, {} random lookups", args.entries, args.lookups);
    println!("{:<24} {:>34} {:>24}", "", "thousand lookups/s", "hash map is so much faster");
    for ((name, _), figure) in METHODS.iter().zip(&figures) {
        let ratio = first / figure.median().unwrap_or_default().max(1e-9);
        println!("{name:<24} {figure:>34} {ratio:>24.1}");
    }
    Ok(())
}

fn key(number: u32) -> String {
    // As scattered as users are.
    format!("user{:08x}@example.test", number.wrapping_mul(2_654_435_761))
}

impl Maps {
    fn of(mut pairs: Vec<(String, String)>, scratch: &Scratch) -> io::Result<Self> {
        let hash: Arc<HashMap<_, _>> = Arc::new(pairs.iter().cloned().collect());
        let cdb = Cdb::create(&scratch.path().join("map.cdb"), &pairs)?;
        let sqlite = Sqlite::create(&scratch.path().join("map.sqlite"), &pairs)?;
        pairs.sort_unstable();
        let (local, inet) = (Client::local(&hash)?, Client::inet(&hash)?);
        Ok(Self { hash, sorted: pairs, cdb, sqlite, local, inet })
    }
}
