use super::*;
use crate::{Looked, Map as _, source::Source};
use std::{fs, path::PathBuf};

struct Base {
    dir: tempfile::TempDir,
}

impl Base {
    fn new(rows: &[(&str, Option<&str>)]) -> Self {
        let base = Self { dir: tempfile::tempdir().unwrap() };
        fill(&base.path(), rows);
        base
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("mail.db")
    }

    fn map(&self, query: &str) -> Pooled<Sqlite> {
        let settings = NamedMap {
            name: "aliases".to_owned(),
            source: Source::Sqlite { file: self.path(), query: query.to_owned() },
            timeout: Duration::from_secs(5),
            cache_ttl: Duration::ZERO,
            connections_max: 2,
        };
        Sqlite::map(&settings, &self.path(), query)
    }
}

fn fill(path: &Path, rows: &[(&str, Option<&str>)]) {
    let connection = Connection::open(path).unwrap();
    connection.execute_batch("CREATE TABLE alias (address TEXT, target TEXT, number INTEGER)").unwrap();
    for (address, target) in rows {
        connection.execute("INSERT INTO alias VALUES (?, ?, 7)", (address, target)).unwrap();
    }
}

const QUERY: &str = "SELECT target FROM alias WHERE address = ? ORDER BY target";

async fn get(map: &Pooled<Sqlite>, key: &str) -> Looked {
    map.get(key).wait().await
}

fn value(text: &str) -> Looked {
    Ok(Some(text.into()))
}

#[tokio::test]
async fn rows_are_found_by_the_key_in_lower_case_and_joined() {
    let base = Base::new(&[
        ("joe@b.test", Some("jane@b.test")),
        ("joe@b.test", Some("ann@b.test")),
        ("null@b.test", None),
        ("empty@b.test", Some("")),
    ]);
    let map = base.map(QUERY);
    assert_eq!(get(&map, "Joe@B.test").await, value("ann@b.test, jane@b.test"));
    assert_eq!(get(&map, "nobody@b.test").await, Ok(None));
    assert_eq!(get(&map, "null@b.test").await, Ok(None));
    assert_eq!(get(&map, "empty@b.test").await, value(""));
    let number = base.map("SELECT number FROM alias WHERE address = :key OR target = :other LIMIT 1");
    assert_eq!(get(&number, "ann@b.test").await, value("7"), "each parameter is the key");
}

#[tokio::test]
async fn a_key_is_never_a_part_of_the_query() {
    let base = Base::new(&[("joe", Some("x"))]);
    let map = base.map(QUERY);
    for key in
        ["' OR 1=1 --", "joe' --", "\"joe\"", "?1", ":key", "joe; DROP TABLE alias", "%", "jo_", "a\0b"]
    {
        assert_eq!(get(&map, key).await, Ok(None), "{key}");
    }
    assert_eq!(get(&map, "joe").await, value("x"));
}

#[tokio::test]
async fn a_query_that_cannot_be_used_is_an_error() {
    let base = Base::new(&[("joe", Some("x"))]);
    for (query, told) in [
        ("SELECT target FROM alias", "no parameter"),
        ("SELECT target, number FROM alias WHERE address = ?", "2 columns"),
        ("DELETE FROM alias WHERE address = ? RETURNING target", "changes the database"),
        ("SELECT target FROM absent WHERE address = ?", "no such table"),
        ("SELECT", "incomplete input"),
    ] {
        let map = base.map(query);
        let error = get(&map, "joe").await.unwrap_err();
        assert!(error.what.contains(told), "{query}: {error}");
        assert!(map.check().wait().await.is_err(), "{query}");
    }
    assert!(base.map(QUERY).check().wait().await.is_ok());
}

#[tokio::test]
async fn another_file_at_the_path_is_opened_as_a_whole() {
    let base = Base::new(&[("joe", Some("1"))]);
    let map = base.map(QUERY);
    assert_eq!(get(&map, "joe").await, value("1"));
    let new = base.dir.path().join("new.db");
    fill(&new, &[("joe", Some("2"))]);
    fs::rename(&new, base.path()).unwrap();
    assert_eq!(get(&map, "joe").await, value("2"));
    // A change by another program is seen at once, too.
    Connection::open(base.path()).unwrap().execute("UPDATE alias SET target = '3'", ()).unwrap();
    assert_eq!(get(&map, "joe").await, value("3"));
}

#[tokio::test]
async fn a_missing_empty_or_damaged_file_is_an_error_and_never_a_missing_key() {
    let base = Base::new(&[("joe", Some("x"))]);
    let map = base.map(QUERY);
    assert_eq!(get(&map, "joe").await, value("x"));
    let whole = fs::read(base.path()).unwrap();
    let half = &whole[..whole.len() / 2];
    let mut garbage = whole.clone();
    garbage[100..].fill(0xA5);
    for bytes in [half, b"", b"no database", &garbage] {
        fs::write(base.path(), bytes).unwrap();
        assert!(get(&map, "joe").await.is_err(), "{} octets", bytes.len());
        assert!(get(&map, "nobody").await.is_err(), "{} octets", bytes.len());
    }
    fs::remove_file(base.path()).unwrap();
    assert!(get(&map, "joe").await.is_err());
    assert!(!base.path().exists(), "no file is made");
    fs::write(base.path(), &whole).unwrap();
    assert_eq!(get(&map, "joe").await, value("x"));
}

#[tokio::test]
async fn a_file_that_is_locked_for_long_is_an_error() {
    let base = Base::new(&[("joe", Some("x"))]);
    let writer = Connection::open(base.path()).unwrap();
    writer.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let mut map = base.map(QUERY);
    map.set_timeout(Duration::from_millis(100));
    assert!(get(&map, "joe").await.is_err());
    writer.execute_batch("COMMIT").unwrap();
    map.set_timeout(Duration::from_secs(5));
    assert_eq!(get(&map, "joe").await, value("x"));
}

#[tokio::test]
async fn a_query_without_end_is_interrupted() {
    let base = Base::new(&[("joe", Some("x"))]);
    let endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) \
                   SELECT count(*) FROM n WHERE x <> ?";
    let mut map = base.map(endless);
    map.set_timeout(Duration::from_millis(200));
    let error = get(&map, "joe").await.unwrap_err();
    assert!(error.what.contains("no answer of sqlite"), "{error}");
    // The runtime would wait for its thread without end.
}
