//! redb: a copy-on-write B-tree.

use super::backend::{Backend, Options, StepFactory};
use redb::{Database, Error, TableDefinition};
use std::{ops::Range, path::Path};

pub(super) const MAKER: StepFactory = StepFactory {
    name: "redb",
    durability: "Durability::Immediate for each group",
    has_own_log: false,
    open,
};

const TABLE: TableDefinition<'_, u32, &[u8]> = TableDefinition::new("records");

struct Redb(Database);

fn open(path: &Path, _: &Options<'_>) -> Result<Box<dyn Backend>, String> {
    let database = Database::create(path.join("redb")).map_err(|e| e.to_string())?;
    Ok(Box::new(Redb(database)))
}

impl Backend for Redb {
    fn put(&mut self, keys: Range<u32>, value: &[u8]) -> Result<(), String> {
        let write = || -> Result<(), Error> {
            let transaction = self.0.begin_write()?;
            let mut table = transaction.open_table(TABLE)?;
            for key in keys {
                table.insert(key, value)?;
            }
            drop(table);
            transaction.commit()?;
            Ok(())
        };
        write().map_err(|e| e.to_string())
    }

    /// Does nothing: redb has no log.
    fn checkpoint(&mut self) -> Result<(), String> {
        Ok(())
    }
}
