//! LMDB: the copy-on-write B-tree of OpenLDAP.

use super::backend::{Backend, Options, StepFactory};
use lmdb::{Database, DatabaseFlags, Environment, Transaction as _, WriteFlags};
use std::{ops::Range, path::Path};

pub(super) const MAKER: StepFactory =
    StepFactory { name: "lmdb", durability: "synced at the end of each group", has_own_log: false, open };

/// Address space, not memory.
const MAP_BYTES: usize = 4 << 30;

struct Lmdb {
    environment: Environment,
    records: Database,
}

fn open(path: &Path, _: &Options<'_>) -> Result<Box<dyn Backend>, String> {
    let open = || -> lmdb::Result<Lmdb> {
        let environment = Environment::new().set_map_size(MAP_BYTES).open(path)?;
        let records = environment.create_db(None, DatabaseFlags::INTEGER_KEY)?;
        Ok(Lmdb { environment, records })
    };
    Ok(Box::new(open().map_err(|e| e.to_string())?))
}

impl Backend for Lmdb {
    fn put(&mut self, keys: Range<u32>, value: &[u8]) -> Result<(), String> {
        let write = || -> lmdb::Result<()> {
            let mut transaction = self.environment.begin_rw_txn()?;
            for key in keys {
                transaction.put(self.records, &key.to_ne_bytes(), &value, WriteFlags::empty())?;
            }
            transaction.commit()
        };
        write().map_err(|e| e.to_string())
    }

    /// Does nothing: LMDB has no log.
    fn checkpoint(&mut self) -> Result<(), String> {
        Ok(())
    }
}
