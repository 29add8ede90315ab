//! LMDB: the copy-on-write B-tree of OpenLDAP.

use super::backend::{Backend, Options, StepFactory};
use heed::{
    Database, Env, EnvOpenOptions,
    byteorder::NativeEndian,
    types::{Bytes, U32},
};
use std::{ops::Range, path::Path};

pub(super) const MAKER: StepFactory =
    StepFactory { name: "lmdb", durability: "synced at the end of each group", has_own_log: false, open };

/// Address space, not memory.
const MAP_BYTES: usize = 4 << 30;

struct Lmdb {
    environment: Env,
    records: Database<U32<NativeEndian>, Bytes>,
}

#[allow(unsafe_code)]
fn open(path: &Path, _: &Options<'_>) -> Result<Box<dyn Backend>, String> {
    let open = || -> heed::Result<Lmdb> {
        // SAFETY: the file is mapped into memory, where no other program may change it. It lies in a scratch directory that this
        // process has just made, and is opened once.
        let environment = unsafe { EnvOpenOptions::new().map_size(MAP_BYTES).open(path)? };
        let mut transaction = environment.write_txn()?;
        let records = environment.create_database(&mut transaction, None)?;
        transaction.commit()?;
        Ok(Lmdb { environment, records })
    };
    Ok(Box::new(open().map_err(|e| e.to_string())?))
}

impl Backend for Lmdb {
    fn put(&mut self, keys: Range<u32>, value: &[u8]) -> Result<(), String> {
        let write = || -> heed::Result<()> {
            let mut transaction = self.environment.write_txn()?;
            for key in keys {
                self.records.put(&mut transaction, &key, value)?;
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
