//! The operations that the measurement needs of a store.

use std::{ops::Range, path::Path};

/// A store of numbered records, as the measurement uses it.
pub(super) trait Backend {
    /// Puts a value under each of these numbers, and returns when all of them would survive a crash.
    fn put(&mut self, keys: Range<u32>, value: &[u8]) -> Result<(), String>;

    /// Lets go of the log, or of what stands for it.
    fn checkpoint(&mut self) -> Result<(), String>;
}

/// What a store must know beside its directory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Options<'o> {
    /// Octets of a record.
    pub(super) length: u32,
    /// The directory of the log, if it is not that of the store.
    pub(super) log: Option<&'o Path>,
}

/// Opens an empty store in an empty directory.
type Open = fn(&Path, &Options<'_>) -> Result<Box<dyn Backend>, String>;

/// A kind of store: its name, its durability, and the function that opens it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StepFactory {
    pub(super) name: &'static str,
    pub(super) durability: &'static str,
    /// Can its log be in another directory?
    pub(super) has_own_log: bool,
    pub(super) open: Open,
}

/// Stores that this build can measure.
pub(super) const BACKENDS: &[StepFactory] = &[
    super::file::MAKER,
    super::log::MAKER,
    super::redb::MAKER,
    super::sqlite::MAKER,
    #[cfg(feature = "stores")]
    super::fjall::MAKER,
    #[cfg(feature = "stores")]
    super::lmdb::MAKER,
    #[cfg(feature = "rocksdb")]
    super::rocksdb::MAKER,
];

/// Those that are measured only if they are named: they need another program.
const NAMED: &[StepFactory] = &[super::berkeley::BTREE, super::berkeley::QUEUE];

/// Returns the store with this name, or says which build has it.
pub(super) fn find(name: &str) -> Result<StepFactory, String> {
    let all = || BACKENDS.iter().chain(NAMED);
    let names: Vec<&str> = all().map(|maker| maker.name).collect();
    let found = all().find(|maker| maker.name == name).copied();
    found.ok_or(match name {
        "fjall" | "lmdb" => format!("`{name}` needs a build with --features stores"),
        "rocksdb" => "`rocksdb` needs a build with --features rocksdb".to_owned(),
        _ => format!("`{name}` is none of {}", names.join(", ")),
    })
}
