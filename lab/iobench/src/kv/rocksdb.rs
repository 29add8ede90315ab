//! RocksDB: the log-structured merge tree of many servers.

use super::backend::{Backend, Options, StepFactory};
use rocksdb::{DB, WriteBatch, WriteOptions};
use std::{ops::Range, path::Path};

pub(super) const MAKER: StepFactory =
    StepFactory { name: "rocksdb", durability: "WriteOptions sync for each group", has_own_log: false, open };

struct Rocks(DB);

fn open(path: &Path, _: &Options<'_>) -> Result<Box<dyn Backend>, String> {
    let database = DB::open_default(path.join("rocksdb")).map_err(|e| e.to_string())?;
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
