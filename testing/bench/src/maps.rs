//! Look-ups in maps.

use mail::Answer;
use maps::{FileMap, Kind, Map, cdb::Cdb, cidr::CidrTable, text::TextTable};
use std::{fmt::Write as _, hint::black_box, net::Ipv4Addr, sync::OnceLock};

/// Keys of a text map and of a cdb file.
const KEYS: u64 = 100_000;
/// Networks of a cidr map.
const NETWORKS: u64 = 10_000;

/// Returns a key; consecutive numbers give keys far apart.
fn key(number: u64) -> String {
    format!("user{:08x}@example.test", (number % KEYS).wrapping_mul(2_654_435_761) & 0xffff_ffff)
}

/// The keys of the look-ups; making them is no part of a look-up.
fn keys() -> &'static [String] {
    static ALL: OnceLock<Vec<String>> = OnceLock::new();
    ALL.get_or_init(|| (0..4096).map(|n| key(n * 24_851)).collect())
}

fn text_file() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| {
        let mut text = String::new();
        for number in 0..KEYS {
            let _ = writeln!(text, "{} mailbox{number:08}@hosts.example.test", key(number));
        }
        text
    })
}

/// Look-ups of a round: so many that the work of making a table, which differs a little from run to run, does not
/// count.
const LOOKUPS: u64 = 100;

/// Looks up keys in turn.
fn each(rounds: u64, mut look_up: impl FnMut(&str)) {
    let keys = keys();
    for number in 0..rounds * LOOKUPS {
        look_up(&keys[number as usize % keys.len()]);
    }
}

/// Looks up keys in a text table.
pub fn text(rounds: u64) {
    static TABLE: OnceLock<TextTable> = OnceLock::new();
    let table = TABLE.get_or_init(|| TextTable::parse(text_file()).expect("the file has no fault"));
    each(rounds, |key| assert!(black_box(table.get(key)).is_some()));
}

/// Looks up keys in a text file as the daemon does.
pub fn file(rounds: u64) {
    static MAP: OnceLock<FileMap> = OnceLock::new();
    let map = MAP.get_or_init(|| {
        let file = tempfile::NamedTempFile::new().expect("a file can be made");
        std::fs::write(&file, text_file()).expect("the file can be written");
        FileMap::open(Kind::Text, file.path())
    });
    each(rounds, |key| {
        let Answer::Ready(looked) = map.get(key) else { unreachable!("there is no runtime to wait in") };
        assert!(black_box(looked).is_ok_and(|value| value.is_some()));
    });
}

/// Looks up addresses in a cidr table: half of them are in a network.
pub fn cidr(rounds: u64) {
    static TABLE: OnceLock<CidrTable> = OnceLock::new();
    let table = TABLE.get_or_init(|| {
        let mut text = String::new();
        for number in 0..NETWORKS {
            let _ = writeln!(text, "{}/24 customer{number}", Ipv4Addr::from((number as u32) << 9));
        }
        CidrTable::parse(&text).expect("the file has no fault")
    });
    let (count, mut found) = (rounds * LOOKUPS, 0);
    for number in 0..count {
        let address = Ipv4Addr::from((number as u32).wrapping_mul(2_654_435_761) % ((NETWORKS as u32) << 9));
        found += u64::from(black_box(table.find(address.into())).is_some());
    }
    assert!(count < 1000 || (count / 4..count).contains(&found));
}

/// Looks up keys in a cdb file that is in memory.
pub fn cdb(rounds: u64) {
    static FILE: OnceLock<Cdb> = OnceLock::new();
    let cdb = FILE.get_or_init(|| {
        let dir = tempfile::tempdir().expect("a directory can be made");
        let pairs: Vec<_> =
            (0..KEYS).map(|n| (key(n), format!("mailbox{n:08}@hosts.example.test"))).collect();
        Cdb::create(&dir.path().join("map.cdb"), &pairs).expect("the file can be written")
    });
    // A file system that does not say what is in memory is read as the daemon does, in the second way.
    each(rounds, |key| {
        let value = cdb.get_cached(key).or_else(|_| cdb.get(key));
        assert!(black_box(value).is_ok_and(|value| value.is_some()));
    });
}
