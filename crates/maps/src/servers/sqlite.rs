//! Maps in files of SQLite. Each look-up runs in a thread for blocking work, on a connection that only reads.

use super::values::Values;
use crate::{
    Value,
    file_map::Identity,
    pool::{Backend, Failure, Pooled, Reply},
    reference::NamedMap,
};
use ::rusqlite::{Connection, InterruptHandle, OpenFlags, types::ValueRef};
use std::{path::Path, sync::Arc, time::Duration};
use tokio::task::spawn_blocking;

/// A database and the query that a key is put to.
pub(crate) struct Sqlite {
    file: Arc<Path>,
    query: Arc<str>,
    /// Time for which another process may lock the file.
    busy_timeout: Duration,
}

/// A database that is open, with the query prepared.
pub(crate) struct Opened {
    connection: Connection,
    /// The file that was opened. When the path leads to another one, this one is closed.
    identity: Identity,
}

/// Ends a query whose answer nobody waits for any more.
struct Interrupt(InterruptHandle);

impl Drop for Interrupt {
    fn drop(&mut self) {
        // Without effect after the query has ended.
        self.0.interrupt();
    }
}

impl Sqlite {
    /// Makes a map; opens the file with the first look-up.
    pub(crate) fn map(settings: &NamedMap, file: &Path, query: &str) -> Pooled<Self> {
        let backend = Self { file: file.into(), query: query.into(), busy_timeout: settings.timeout };
        Pooled::new(settings, backend)
    }
}

impl Backend for Sqlite {
    type Connection = Opened;
    const FOLDS: bool = true;

    async fn connect(&self) -> Result<Opened, String> {
        let (file, query, busy_timeout) = (self.file.clone(), self.query.clone(), self.busy_timeout);
        let opened = spawn_blocking(move || open(&file, &query, busy_timeout)).await;
        opened.unwrap_or_else(|_| Err("given up".to_owned()))
    }

    async fn ask(&self, opened: Opened, key: &str) -> Result<(Reply, Opened), Failure> {
        let (file, query, key) = (self.file.clone(), self.query.clone(), Box::<str>::from(key));
        let _interrupt = Interrupt(opened.connection.get_interrupt_handle());
        let looked = spawn_blocking(move || {
            if Identity::of(&file).ok() != Some(opened.identity) {
                return Err(Failure::Closed("the file was replaced".to_owned()));
            }
            let value = look_up(&opened.connection, &query, &key).map_err(Failure::Wrong)?;
            Ok((Ok(value), opened))
        });
        looked.await.unwrap_or_else(|_| Err(Failure::Wrong("given up".to_owned())))
    }
}

/// Opens a database for reading and prepares the query.
fn open(file: &Path, query: &str, busy_timeout: Duration) -> Result<Opened, String> {
    let identity = Identity::of(file).map_err(|error| error.to_string())?;
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(file, flags).map_err(|error| error.to_string())?;
    let prepare = || {
        connection.busy_timeout(busy_timeout)?;
        // Damage is found earlier, and a schema cannot run functions with side effects.
        connection.execute_batch("PRAGMA cell_size_check = ON; PRAGMA trusted_schema = OFF;")?;
        let statement = connection.prepare_cached(query)?;
        Ok((statement.parameter_count(), statement.column_count(), statement.readonly()))
    };
    let (parameters, columns, is_readonly) =
        prepare().map_err(|error: ::rusqlite::Error| error.to_string())?;
    match (parameters, columns, is_readonly) {
        (0, ..) => Err("the query has no parameter: write ? for the key".to_owned()),
        (_, 1, true) => Ok(Opened { connection, identity }),
        (.., false) => Err("the query changes the database: write a SELECT".to_owned()),
        (_, columns, _) => Err(format!("the query has {columns} columns: select one")),
    }
}

fn look_up(connection: &Connection, query: &str, key: &str) -> Result<Option<Value>, String> {
    let text = |error: ::rusqlite::Error| error.to_string();
    let mut statement = connection.prepare_cached(query).map_err(text)?;
    for parameter in 1..=statement.parameter_count() {
        statement.raw_bind_parameter(parameter, key).map_err(text)?;
    }
    let (mut rows, mut values) = (statement.raw_query(), Values::default());
    while let Some(row) = rows.next().map_err(text)? {
        match row.get_ref(0).map_err(text)? {
            ValueRef::Null => {}
            ValueRef::Integer(number) => values.add(number.to_string().as_bytes())?,
            ValueRef::Real(number) => values.add(number.to_string().as_bytes())?,
            ValueRef::Text(bytes) | ValueRef::Blob(bytes) => values.add(bytes)?,
        }
    }
    Ok(values.finish())
}

#[cfg(test)]
mod tests;
