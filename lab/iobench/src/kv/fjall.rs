//! fjall: a log-structured merge tree in Rust.

use super::backend::{Backend, Options, StepFactory};
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use std::{ops::Range, path::Path};

pub(super) const MAKER: StepFactory = StepFactory {
    name: "fjall",
    durability: "PersistMode::SyncAll for each group",
    has_own_log: false,
    open,
};

struct Fjall {
    database: Database,
    records: Keyspace,
}

fn open(path: &Path, _: &Options<'_>) -> Result<Box<dyn Backend>, String> {
    let open = || -> fjall::Result<Fjall> {
        let database = Database::builder(path.join("fjall")).open()?;
        let records = database.keyspace("records", KeyspaceCreateOptions::default)?;
        Ok(Fjall { database, records })
    };
    Ok(Box::new(open().map_err(|e| e.to_string())?))
}

impl Backend for Fjall {
    fn put(&mut self, keys: Range<u32>, value: &[u8]) -> Result<(), String> {
        let write = || -> fjall::Result<()> {
            let mut batch = self.database.batch();
            for key in keys {
                batch.insert(&self.records, key.to_be_bytes(), value);
            }
            batch.commit()?;
            self.database.persist(PersistMode::SyncAll)
        };
        write().map_err(|e| e.to_string())
    }

    fn checkpoint(&mut self) -> Result<(), String> {
        self.records.rotate_memtable_and_wait().map_err(|e| e.to_string())
    }
}
