//! Data bases and directories that are stopped, silent, cut off in the middle of a reply and corrupt while mail comes in:
//! no mail is refused for good, returned or lost because of that, and other deliveries go on.

#![cfg(all(
    feature = "sqlite",
    feature = "postgres",
    feature = "mysql",
    feature = "redis",
    feature = "ldap"
))]

use crate::common::{
    Postrider,
    client::Client,
    databases::{MariaDb, Postgres, Redis, Slapd},
    free_address,
    load::{MESSAGES, all_arrived, damage, send_all},
    proxy::{Proxy, Upstream},
    until,
};
use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// Half of the mail needs the map, and half does not.
const RECIPIENTS: &[&str] = &["joe@mx.test", "listed@mx.test", "ann@mx.test", "listed@mx.test"];

/// A daemon whose users are `listed`, and those of the map.
fn daemon(dir: tempfile::TempDir, map: &str) -> Postrider {
    let text = format!(
        "[relay]\nnetworks = []\n[log]\nfile = \"mail.log\"\n[local]\nusers = [\"listed\", \"map:users\"]\n\
         [map.users]\ntimeout = \"200ms\"\n{map}"
    );
    Postrider::start_in(dir, free_address(), &text)
}

/// Returns the reply to RCPT for this user.
fn rcpt(daemon: &Postrider, user: &str) -> String {
    let mut client = Client::connect(daemon.address).unwrap();
    client.say("MAIL FROM:<sender@far.test>").unwrap();
    client.say(&format!("RCPT TO:<{user}@mx.test>")).unwrap().1
}

/// Sends the mail, and then expects a repaired map to tell who exists.
fn lose_nothing(daemon: &Postrider, repair: impl FnOnce()) {
    let (accepted, deferred) = send_all(daemon, RECIPIENTS);
    println!("{accepted} accepted, {deferred} deferred");
    assert_eq!(accepted + deferred, MESSAGES);
    assert!(accepted >= MESSAGES / 2 && deferred > 0, "{accepted} accepted, {deferred} deferred");
    all_arrived(daemon, &["joe", "ann", "listed"], accepted);
    repair();
    until("the map answers again", || rcpt(daemon, "joe").starts_with("250"));
    until("unknown users are refused again", || rcpt(daemon, "nobody").starts_with("550 5.1.1"));
}

fn through_a_proxy(upstream: Upstream, map: impl FnOnce(&str) -> String) {
    let proxy = Proxy::start(upstream);
    let daemon = daemon(tempfile::tempdir().unwrap(), &map(&proxy.address.to_string()));
    lose_nothing(&daemon, || {
        assert!(proxy.has_done_everything());
        proxy.repair();
    });
}

/// A server that is killed, starts again, and then stops answering.
fn killed_and_stopped<S>(
    daemon: &Postrider,
    server: &mut S,
    process: impl Fn(&mut S) -> &mut crate::common::databases::Background,
    restart: impl Fn(&mut S),
) {
    until("the map answers", || rcpt(daemon, "joe").starts_with("250"));
    process(server).kill();
    assert!(rcpt(daemon, "joe").starts_with("451 4."), "{}", rcpt(daemon, "joe"));
    assert!(rcpt(daemon, "nobody").starts_with("451 4."));
    assert!(rcpt(daemon, "listed").starts_with("250"));
    restart(server);
    until("the map answers again", || rcpt(daemon, "joe").starts_with("250"));
    process(server).stop();
    assert!(rcpt(daemon, "joe").starts_with("451 4."));
    assert!(rcpt(daemon, "nobody").starts_with("451 4."));
    assert!(rcpt(daemon, "listed").starts_with("250"));
}

const QUERY: &str = "query = \"SELECT name FROM person WHERE name = $1\"\n";
const SQL: &str =
    "CREATE TABLE person (name text); INSERT INTO person VALUES ('joe@mx.test'), ('ann@mx.test');";

#[test]
fn a_file_of_sqlite_that_is_written_and_damaged_meanwhile_loses_no_mail() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("users.db");
    let connection = rusqlite::Connection::open(&file).unwrap();
    connection.execute_batch(SQL).unwrap();
    // Pages enough for half of them to miss something.
    for number in 0..500 {
        connection.execute("INSERT INTO person VALUES (?)", (format!("user{number}@mx.test"),)).unwrap();
    }
    connection.execute_batch("CREATE INDEX by_name ON person (name)").unwrap();
    drop(connection);
    let whole = fs::read(&file).unwrap();
    let daemon = daemon(dir, &format!("sqlite = \"users.db\"\n{QUERY}"));
    let done = Arc::new(AtomicBool::new(false));
    let damaging = damage(daemon.dir.path(), &[("users.db", whole)], &done);
    lose_nothing(&daemon, || {
        done.store(true, Ordering::SeqCst);
        assert!(damaging.join().unwrap() > 5);
    });
}

#[test]
fn a_failing_postgresql_loses_no_mail() {
    let Some(server) = Postgres::start(SQL) else { return };
    let upstream = Upstream::Unix(server.socket());
    through_a_proxy(upstream, |address| {
        let (host, port) = address.split_once(':').unwrap();
        format!("postgres = \"host={host} port={port} user=mail dbname=postgres\"\n{QUERY}")
    });
}

#[test]
fn a_postgresql_that_is_killed_or_stopped_is_a_temporary_error() {
    let Some(mut server) = Postgres::start(SQL) else { return };
    let daemon = daemon(tempfile::tempdir().unwrap(), &format!("postgres = \"{}\"\n{QUERY}", server.here()));
    // Each connection has a process of its own, which notices late that the first one was killed.
    until("the map answers", || rcpt(&daemon, "joe").starts_with("250"));
    server.process.kill();
    until("its processes have ended", || rcpt(&daemon, "joe").starts_with("451 4."));
    assert!(rcpt(&daemon, "nobody").starts_with("451 4."));
    assert!(rcpt(&daemon, "listed").starts_with("250"));
    server.restart();
    until("the map answers again", || rcpt(&daemon, "joe").starts_with("250"));
}

fn mariadb() -> Option<MariaDb> {
    MariaDb::start(&[
        "CREATE TABLE person (name varchar(99))",
        "INSERT INTO person VALUES ('joe@mx.test'), ('ann@mx.test')",
    ])
}

#[test]
fn a_failing_mariadb_loses_no_mail() {
    let Some(server) = mariadb() else { return };
    fs::write(server.dir.path().join("map.secret"), "s3cret\n").unwrap();
    let secret = server.dir.path().join("map.secret").display().to_string();
    let query = QUERY.replace("$1", "?");
    through_a_proxy(Upstream::Tcp(server.address), |address| {
        format!("mysql = \"mysql://mail@{address}/mail\"\nsecret = \"file:{secret}\"\n{query}")
    });
}

#[test]
fn a_mariadb_that_is_killed_or_stopped_is_a_temporary_error() {
    let Some(mut server) = mariadb() else { return };
    let map = format!("mysql = \"{}\"\n{}", server.here(), QUERY.replace("$1", "?"));
    let daemon = daemon(tempfile::tempdir().unwrap(), &map);
    killed_and_stopped(&daemon, &mut server, |server| &mut server.process, MariaDb::restart);
}

fn redis() -> Option<Redis> {
    let server = Redis::start(&["--appendonly", "yes", "--appendfsync", "always"])?;
    server.say(&["SET user:joe@mx.test x", "SET user:ann@mx.test x"]);
    Some(server)
}

#[test]
fn a_failing_redis_loses_no_mail() {
    let Some(server) = redis() else { return };
    through_a_proxy(Upstream::Unix(server.socket()), |address| {
        format!("redis = \"{address}\"\nkey = \"user:{{key}}\"\n")
    });
}

#[test]
fn a_redis_that_is_killed_or_stopped_is_a_temporary_error() {
    let Some(mut server) = redis() else { return };
    let map = format!("redis = \"unix:{}\"\nkey = \"user:{{key}}\"\n", server.socket().display());
    let daemon = daemon(tempfile::tempdir().unwrap(), &map);
    killed_and_stopped(&daemon, &mut server, |server| &mut server.process, Redis::restart);
}

fn slapd() -> Option<Slapd> {
    Slapd::start(&[("joe", &["mail: joe@mx.test"]), ("ann", &["mail: ann@mx.test"])])
}

fn directory(address: &str) -> String {
    format!(
        "ldap = \"ldap://{address}\"\nbase = \"dc=b,dc=test\"\nfilter = \"(mail={{key}})\"\nattribute = \"cn\"\n\
         bind = \"cn=admin,dc=b,dc=test\"\nsecret = \"file:ldap.secret\"\n"
    )
}

fn folder_with_secret() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("ldap.secret"), "s3cret\n").unwrap();
    dir
}

#[test]
fn a_failing_directory_loses_no_mail() {
    let Some(server) = slapd() else { return };
    let proxy = Proxy::start(Upstream::Tcp(server.address));
    let daemon = daemon(folder_with_secret(), &directory(&proxy.address.to_string()));
    lose_nothing(&daemon, || {
        assert!(proxy.has_done_everything());
        proxy.repair();
    });
}

#[test]
fn a_directory_that_is_killed_or_stopped_is_a_temporary_error() {
    let Some(mut server) = slapd() else { return };
    let daemon = daemon(folder_with_secret(), &directory(&server.address.to_string()));
    killed_and_stopped(&daemon, &mut server, |server| &mut server.process, Slapd::restart);
}
