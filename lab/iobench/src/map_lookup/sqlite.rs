//! A table in SQLite, asked as a daemon asks it: one statement, prepared once.

use rusqlite::{Connection, OptionalExtension as _, Result as Sql};
use std::{io, path::Path};

/// A table in SQLite with one prepared statement.
pub(super) struct Sqlite(Connection);

impl Sqlite {
    /// Writes `pairs` to a new database.
    pub(super) fn create(path: &Path, pairs: &[(String, String)]) -> io::Result<Self> {
        let create = || -> Sql<Connection> {
            let mut connection = Connection::open(path)?;
            connection.execute("CREATE TABLE map (key TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID", [])?;
            let transaction = connection.transaction()?;
            let mut insert = transaction.prepare("INSERT INTO map VALUES (?1, ?2)")?;
            for pair in pairs {
                insert.execute((&pair.0, &pair.1))?;
            }
            drop(insert);
            transaction.commit()?;
            Ok(connection)
        };
        create().map(Self).map_err(io::Error::other)
    }

    /// Keeps at most so many KiB of pages.
    pub(super) fn limit_cache(&self, kib: u32) -> io::Result<()> {
        let limit = format!("PRAGMA cache_size = -{kib}; PRAGMA shrink_memory;");
        self.0.execute_batch(&limit).map_err(io::Error::other)
    }

    /// Returns the value of the key; `None` if it has none.
    pub(super) fn get(&self, key: &str) -> io::Result<Option<String>> {
        let get = || -> Sql<Option<String>> {
            let mut find = self.0.prepare_cached("SELECT value FROM map WHERE key = ?1")?;
            find.query_row([key], |row| row.get(0)).optional()
        };
        get().map_err(io::Error::other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_found_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let pairs: Vec<_> = (0..100).map(|i| (format!("key{i}"), format!("value {i}"))).collect();
        let map = Sqlite::create(&directory.path().join("x"), &pairs).unwrap();
        for (key, value) in &pairs {
            assert_eq!(map.get(key).unwrap().as_ref(), Some(value));
        }
        assert_eq!(map.get("key100").unwrap(), None);
    }
}
