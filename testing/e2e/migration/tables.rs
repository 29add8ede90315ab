//! Tables of databases for Postfix.

use super::machine::Machine;
use crate::common::{
    databases::{MariaDb, Postgres},
    program,
};
use std::{fs, process::Command};

/// Has a program make a table with these entries, after other statements.
fn make_table(mut command: Command, before: &str, entries: &[(String, &'static str)]) {
    let rows: String = entries
        .iter()
        .map(|(key, value)| format!("INSERT INTO t VALUES ('{}', '{value}');", key.to_lowercase()))
        .collect();
    let output = command.arg(format!("{before}CREATE TABLE t (k TEXT, v TEXT); {rows}")).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// Writes a table of PostgreSQL in a schema of its own, and the file that names it.
pub(crate) fn pgsql(machine: &Machine, postgres: &Postgres, place: &str, entries: &[(String, &'static str)]) {
    let schema = place.replace('/', "_");
    let mut psql = program("psql").unwrap();
    psql.args(["-X", "-q", "-v", "ON_ERROR_STOP=1"]).arg(postgres.here()).arg("-c");
    let begin = format!(
        "DROP SCHEMA IF EXISTS {schema} CASCADE; CREATE SCHEMA {schema}; SET search_path = {schema};"
    );
    make_table(psql, &begin, entries);
    let text = format!(
        "hosts = {}\nuser = mail\npassword = s3cret\ndbname = postgres\nquery = SELECT v FROM {schema}.t WHERE k = '%s'\n",
        postgres.address
    );
    machine.write(place, &text);
}

/// Writes a table of MariaDB in a database of its own, and the file that names it.
pub(crate) fn mysql(machine: &Machine, mariadb: &MariaDb, place: &str, entries: &[(String, &'static str)]) {
    let database = place.replace('/', "_");
    let mut client = program("mariadb").unwrap();
    client.args(["--no-defaults", "--user=root", "--socket"]).arg(mariadb.socket());
    let begin = format!("DROP DATABASE IF EXISTS {database}; CREATE DATABASE {database}; USE {database}; ");
    client.arg("--execute");
    make_table(client, &begin, entries);
    let text = format!(
        "hosts = {}\nuser = mail\npassword = s3cret\ndbname = mail\nquery = SELECT v FROM {database}.t WHERE k = '%s'\n",
        mariadb.address
    );
    machine.write(place, &text);
}

/// Writes a table of SQLite, and the file that names it.
pub(crate) fn sqlite(machine: &Machine, place: &str, entries: &[(String, &'static str)]) {
    let file = machine.etc(&format!("{place}.db"));
    let _ = fs::remove_file(&file);
    let mut sqlite = program("sqlite3").unwrap();
    sqlite.arg(&file);
    make_table(sqlite, "", entries);
    machine.write(place, &format!("dbpath = /etc/{place}.db\nquery = SELECT v FROM t WHERE k = '%s'\n"));
}
