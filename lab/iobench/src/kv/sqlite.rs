//! SQLite with a write-ahead log that is synced at each commit.

use super::backend::{Backend, Options, StepFactory};
use rusqlite::{Connection, Result as Sql};
use std::{ops::Range, path::Path};

pub(super) const MAKER: StepFactory = StepFactory {
    name: "sqlite",
    durability: "WAL, synchronous=FULL, for each group",
    has_own_log: false,
    open,
};

struct Sqlite(Connection);

fn open(path: &Path, _: &Options<'_>) -> Result<Box<dyn Backend>, String> {
    let open = || -> Sql<Connection> {
        let connection = Connection::open(path.join("sqlite"))?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.execute("CREATE TABLE records (key INTEGER PRIMARY KEY, value BLOB)", [])?;
        Ok(connection)
    };
    Ok(Box::new(Sqlite(open().map_err(|e| e.to_string())?)))
}

impl Backend for Sqlite {
    fn put(&mut self, keys: Range<u32>, value: &[u8]) -> Result<(), String> {
        let write = || -> Sql<()> {
            let transaction = self.0.transaction()?;
            let mut insert = transaction.prepare_cached("INSERT INTO records VALUES (?1, ?2)")?;
            for key in keys {
                insert.execute((key, value))?;
            }
            drop(insert);
            transaction.commit()
        };
        write().map_err(|e| e.to_string())
    }

    fn checkpoint(&mut self) -> Result<(), String> {
        let done = self.0.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        done.map_err(|e| e.to_string())
    }
}
