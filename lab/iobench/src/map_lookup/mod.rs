//! `postlab map-lookup`: what it costs to look an address up, in this process and behind a socket. sendmail X
//! found the socket 100 times slower.

mod berkeley;
mod ldap;
mod server;
mod sqlite;

use crate::{
    limits::memory_bytes,
    rounds::{Figure, Progress, Rounds},
    scratch::Scratch,
    table::{Cell, Column, Format, Table},
};
use berkeley::Berkeley;
use clap::Args;
use ldap::Ldap;
use maps::cdb::Cdb;
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
    /// Look up in this LDAP server too, by the attribute mail; it must have the keys
    /// user00000000@example.test and so on, as `--keys` prints them [default: Debian's slapd, started here]
    #[arg(long, value_name = "HOST:PORT/BASE", value_parser = server_of)]
    ldap: Option<(String, String)>,
    /// Print the keys of the map, a line each, and measure nothing
    #[arg(long)]
    keys: bool,
    #[command(flatten)]
    rounds: Rounds,
    #[command(flatten)]
    format: Format,
    /// Directory in which the file is made
    #[arg(default_value = ".")]
    directory: PathBuf,
}

/// So many are asked for before an answer is waited for, in the rows that say so.
const BATCH: usize = 32;

/// The same pairs in every kind of map.
struct Maps {
    hash: Arc<HashMap<String, String>>,
    sorted: Vec<(String, String)>,
    cdb: Cdb,
    sqlite: Sqlite,
    /// With a page cache much smaller than the map.
    sqlite_small: Sqlite,
    berkeley: Option<Berkeley>,
    ldap: Option<Ldap>,
    local: Client,
    inet: Client,
}

/// Looks all keys up; how many were there.
type Method = fn(&mut Maps, &[&str]) -> io::Result<usize>;

/// In which order keys are looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keys {
    Random,
    /// As they were put into the map.
    Sequential,
}

use Keys::{Random, Sequential};

const METHODS: [(&str, Keys, Method); 13] = [
    ("hash map", Random, |m, keys| {
        Ok(keys.iter().filter(|key| black_box(m.hash.get(**key)).is_some()).count())
    }),
    ("sorted vector", Random, |m, keys| {
        let find = |key: &str| m.sorted.binary_search_by(|pair| pair.0.as_str().cmp(key));
        Ok(keys.iter().filter(|key| black_box(find(key)).is_ok()).count())
    }),
    ("cdb file", Random, |m, keys| {
        keys.iter().try_fold(0, |found, key| Ok(found + usize::from(m.cdb.get(key)?.is_some())))
    }),
    (BERKELEY, Random, |m, _| m.berkeley.as_mut().map_or(Ok(0), Berkeley::get_all)),
    ("SQLite", Random, |m, keys| {
        keys.iter().try_fold(0, |found, key| Ok(found + usize::from(m.sqlite.get(key)?.is_some())))
    }),
    ("cdb file, sequential", Sequential, |m, keys| {
        keys.iter().try_fold(0, |found, key| Ok(found + usize::from(m.cdb.get(key)?.is_some())))
    }),
    ("SQLite, sequential", Sequential, |m, keys| {
        keys.iter().try_fold(0, |found, key| Ok(found + usize::from(m.sqlite.get(key)?.is_some())))
    }),
    ("SQLite, cache of 64 KB", Random, |m, keys| {
        keys.iter().try_fold(0, |found, key| Ok(found + usize::from(m.sqlite_small.get(key)?.is_some())))
    }),
    ("unix socket", Random, |m, keys| one_by_one(&mut m.local, keys)),
    ("unix socket, 32 at once", Random, |m, keys| in_batches(&mut m.local, keys)),
    ("TCP socket", Random, |m, keys| one_by_one(&mut m.inet, keys)),
    ("TCP socket, 32 at once", Random, |m, keys| in_batches(&mut m.inet, keys)),
    (LDAP, Random, |m, keys| {
        let Some(ldap) = &mut m.ldap else { return Ok(0) };
        keys.iter().try_fold(0, |found, key| Ok(found + usize::from(ldap.get(key)?)))
    }),
];

fn one_by_one(client: &mut Client, keys: &[&str]) -> io::Result<usize> {
    keys.iter().try_fold(0, |found, key| Ok(found + client.ask(std::iter::once(*key))?))
}

fn in_batches(client: &mut Client, keys: &[&str]) -> io::Result<usize> {
    keys.chunks(BATCH).try_fold(0, |found, keys| Ok(found + client.ask(keys.iter().copied())?))
}

const BERKELEY: &str = "Berkeley DB, by Python";
const LDAP: &str = "LDAP";

fn server_of(text: &str) -> Result<(String, String), String> {
    let (server, base) = text.split_once('/').ok_or_else(|| format!("`{text}` is not HOST:PORT/BASE"))?;
    Ok((server.to_owned(), base.to_owned()))
}

/// Beside its value an entry has its key, and both have their heads.
const ENTRY_BYTES: u64 = 128;
/// Kinds of maps that keep all pairs in memory.
const COPIES: u64 = 3;

const COLUMNS: [Column; 3] = [
    Column::left("map", "map", 24),
    Column::right("thousand lookups/s", "thousand_lookups_per_second", 34),
    Column::right("hash map is so much faster", "times_slower_than_hash_map", 24),
];

/// Measures and prints.
pub fn run(args: &MapLookupArgs) -> Result<(), String> {
    if args.keys {
        (0..args.entries).for_each(|number| println!("{}", key(number)));
        return Ok(());
    }
    let needed = u64::from(args.entries) * (u64::from(args.length) + ENTRY_BYTES) * COPIES;
    if needed > memory_bytes() / 2 {
        let [needed, memory] = [needed, memory_bytes()].map(|bytes| bytes / 1_000_000);
        return Err(format!("make the maps: they take {needed} MB, and the memory has {memory}"));
    }
    let scratch = Scratch::new(&args.directory)?;
    let value = "v".repeat(args.length as usize);
    let pairs: Vec<_> = (0..args.entries).map(|i| (key(i), value.clone())).collect();
    let mut random = fastrand::Rng::with_seed(42);
    let names: Vec<String> = (0..args.lookups).map(|_| key(random.u32(..args.entries))).collect();
    let keys: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut maps = Maps::of(pairs, &keys, &scratch, args).map_err(|e| format!("make the maps: {e}"))?;
    let names: Vec<String> = (0..args.lookups).map(|i| key(i % args.entries)).collect();
    let sequential: Vec<&str> = names.iter().map(String::as_str).collect();
    let missing = maps.missing();
    for (name, why) in &missing {
        eprintln!("postlab: SKIPPED: {name}: {why}");
    }
    let progress = Progress::new("look up", u64::from(args.rounds.count) * METHODS.len() as u64);
    let mut figures = [const { Figure::new() }; METHODS.len()];
    // Round for round, so that noise meets all of them.
    for _ in 0..args.rounds.count {
        for ((name, order, method), figure) in METHODS.iter().zip(&mut figures) {
            if scratch.is_stopped() {
                break;
            }
            if missing.iter().any(|(missing, _)| missing == name) {
                continue;
            }
            let keys = if *order == Random { &keys } else { &sequential };
            let begin = Instant::now();
            let found = method(&mut maps, keys).map_err(|e| format!("look up in {name}: {e}"))?;
            figure.push(keys.len() as f64 / begin.elapsed().as_secs_f64() / 1e3);
            if found != keys.len() {
                // Only a server that runs already can lack keys.
                return Err(format!(
                    "look up in {name}: {} of {} keys were not there; `postlab map-lookup -n {} --keys` prints those that it needs",
                    keys.len() - found,
                    keys.len(),
                    args.entries
                ));
            }
            progress.step();
        }
    }
    drop(progress);
    let first = figures[0].median().unwrap_or_default();
    let mut table = Table::new(args.format, &COLUMNS, None);
    table.fact(format!("{} entries, {} random lookups", args.entries, args.lookups));
    for ((name, ..), figure) in METHODS.iter().zip(&figures).filter(|(_, figure)| figure.median().is_some()) {
        let ratio = first / figure.median().unwrap_or_default().max(1e-9);
        table.row([(*name).into(), figure.into(), Cell::Number(ratio, 1)]);
    }
    if !missing.is_empty() {
        table.note(format!("{} kinds of map were skipped.", missing.len()));
    }
    table.finish();
    Ok(())
}

fn key(number: u32) -> String {
    // As scattered as users are.
    format!("user{:08x}@example.test", number.wrapping_mul(2_654_435_761))
}

impl Maps {
    fn of(
        mut pairs: Vec<(String, String)>,
        keys: &[&str],
        scratch: &Scratch,
        args: &MapLookupArgs,
    ) -> io::Result<Self> {
        let hash: Arc<HashMap<_, _>> = Arc::new(pairs.iter().cloned().collect());
        let cdb = Cdb::create(&scratch.path().join("map.cdb"), &pairs)?;
        let sqlite = Sqlite::create(&scratch.path().join("map.sqlite"), &pairs)?;
        let sqlite_small = Sqlite::create(&scratch.path().join("small.sqlite"), &pairs)?;
        sqlite_small.limit_cache(64)?;
        let berkeley = Berkeley::create(&scratch.path().join("map.db"), &pairs, keys)?;
        let ldap = match &args.ldap {
            Some((server, base)) => Some(Ldap::connect(server, base).map_err(|e| {
                io::Error::new(e.kind(), format!("connect to the LDAP server {server}: {e}"))
            })?),
            None => Ldap::start(scratch.path(), &pairs)?,
        };
        pairs.sort_unstable();
        let (local, inet) = (Client::local(&hash)?, Client::inet(&hash)?);
        Ok(Self { hash, sorted: pairs, cdb, sqlite, sqlite_small, berkeley, ldap, local, inet })
    }

    /// The maps that this machine cannot make, each with the reason.
    fn missing(&self) -> Vec<(&'static str, &'static str)> {
        let berkeley = (BERKELEY, "install python3-bsddb3");
        let ldap = (LDAP, "slapd is not installed; name a server with --ldap HOST:PORT/BASE");
        [(self.berkeley.is_none(), berkeley), (self.ldap.is_none(), ldap)]
            .into_iter()
            .filter_map(|(is_missing, why)| is_missing.then_some(why))
            .collect()
    }
}
