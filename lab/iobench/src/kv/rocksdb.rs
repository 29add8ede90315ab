//! RocksDB: the log-structured merge tree of many servers.

use super::backend::{Backend, Options, StepFactory};
use rocksdb::{DB, WriteBatch, WriteOptions};
use std::{ops::Range, path::Path};

pub(super) const MAKER: StepFactory =
    StepFactory { name: "rocksdb", durability: "WriteOptions sync for each group", has_own_log: true, open };

struct Rocks(DB);

fn open(path: &Path, store: &Options<'_>) -> Result<Box<dyn Backend>, String> {
    let mut options = rocksdb::Options::default();
    options.create_if_missing(true);
    if let Some(log) = store.log {
        options.set_wal_dir(log);
    }
    let database = DB::open(&options, path.join("rocksdb")).map_err(|e| e.to_string())?;
    Ok(Box::new(Rocks(database)))
}

impl Backend for Rocks {
    fn put(&mut self, keys: Range<u32>, value: &[u8]) -> Result<(), String> {
        let mut batch = WriteBatch::default();
        for key in keys {
            batch.put(key.to_be_bytes(), value);
        }
        let mut options = WriteOptions::default();
        options.set_sync(true);
        self.0.write_opt(batch, &options).map_err(|e| e.to_string())
    }

    fn checkpoint(&mut self) -> Result<(), String> {
        self.0.flush().map_err(|e| e.to_string())
    }
}
