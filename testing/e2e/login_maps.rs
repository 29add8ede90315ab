//! Logins whose stored passwords are in maps: a text file, a server of the socketmap protocol, and SQLite.

use crate::common::{Postrider, client::Client, free_address};
use auth::{ChannelBindings, ClientCredentials, ClientExchange, Mechanism, NewScheme, Secret};
use data_encoding::BASE64;
use std::{
    collections::HashMap,
    fs,
    io::{Read as _, Write as _},
    net::SocketAddr,
    os::unix::net::UnixListener,
    path::Path,
    sync::{Arc, Mutex},
    thread,
};

const MECHANISMS: [Mechanism; 4] =
    [Mechanism::Plain, Mechanism::Login, Mechanism::ScramSha256, Mechanism::ScramSha1];

/// Logs in, and returns the last reply.
fn log_in(address: SocketAddr, mechanism: Mechanism, user: &str, password: &str) -> String {
    let mut client = Client::connect(address).unwrap();
    let credentials = ClientCredentials { user: user.into(), secret: Secret::new(password) };
    let begun =
        ClientExchange::begin(mechanism, &credentials, &ChannelBindings::default(), "rOprNGfwEbeRWgbNEkqO");
    let (mut exchange, initial) = begun.unwrap();
    let mut line = format!("AUTH {}", mechanism.as_str());
    if let Some(initial) = initial {
        line += &format!(" {}", BASE64.encode(&initial));
    }
    loop {
        let (code, reply) = client.say(&line).unwrap();
        if code != 334 {
            assert!(code != 235 || exchange.may_succeed(), "{reply}");
            return reply;
        }
        let challenge = BASE64.decode(&reply.as_bytes()[4..]).unwrap();
        line = exchange.respond(&challenge).map_or("*".to_owned(), |response| BASE64.encode(&response));
    }
}

/// A daemon with a submission listener, and the listener's address.
fn submission(dir: tempfile::TempDir, auth: &str, more: &str) -> (Postrider, SocketAddr) {
    let address = free_address();
    let text = format!(
        "[[listen]]\naddress = \"{address}\"\nkind = \"submission\"\n[log]\nfile = \"mail.log\"\n\
         [relay]\nnetworks = [\"192.0.2.0/24\"]\n[auth]\nallow_clear_text = true\n{auth}\n{more}"
    );
    (Postrider::start_in(dir, free_address(), &text), address)
}

const ALL: &str = "mechanisms = [\"scram-sha-256\", \"scram-sha-1\", \"plain\", \"login\"]";

/// Stored passwords of users who log in with every mechanism that fits, and one whose value nobody can read.
fn users() -> Vec<(String, String)> {
    let stored = |scheme: NewScheme| scheme.hash("secret", [7; 16]).unwrap();
    [
        ("clear@b.test", "{PLAIN}secret".to_owned()),
        ("scram256@b.test", stored(NewScheme::ScramSha256) + ":1000:1000::/home/scram::"),
        ("scram1@b.test", stored(NewScheme::ScramSha1)),
        ("argon@b.test", stored(NewScheme::Argon2id)),
        ("crypt@b.test", stored(NewScheme::Sha512Crypt)),
        ("locked@b.test", "!{PLAIN}secret".to_owned()),
        ("bad@b.test", "{PLAIN".to_owned()),
    ]
    .map(|(user, value)| (user.to_owned(), value))
    .into()
}

/// Expects the logins that every store of these users has to permit.
fn users_log_in(address: SocketAddr) {
    for mechanism in MECHANISMS {
        let fitting = match mechanism {
            Mechanism::ScramSha256 => &["clear@b.test", "scram256@b.test"][..],
            Mechanism::ScramSha1 => &["clear@b.test", "scram1@b.test"],
            _ => &["clear@b.test", "scram256@b.test", "scram1@b.test", "argon@b.test", "crypt@b.test"],
        };
        for user in fitting {
            let reply = log_in(address, mechanism, user, "secret");
            assert!(reply.starts_with("235 2.7.0"), "{} {user}: {reply}", mechanism.as_str());
        }
        let upper = log_in(address, mechanism, "Clear@B.test", "secret");
        assert!(upper.starts_with("235"), "{}: {upper}", mechanism.as_str());
        let unreadable = log_in(address, mechanism, "bad@b.test", "secret");
        assert!(unreadable.starts_with("454 4.7.0"), "{}: {unreadable}", mechanism.as_str());
    }
    // Wrong passwords, users who do not exist and locked ones get the same words.
    let wrong = log_in(address, Mechanism::Plain, "clear@b.test", "wrong");
    assert!(wrong.starts_with("535 5.7.8"), "{wrong}");
    for (mechanism, user) in [
        (Mechanism::Plain, "nobody@b.test"),
        (Mechanism::Plain, "locked@b.test"),
        (Mechanism::ScramSha256, "nobody@b.test"),
        (Mechanism::ScramSha256, "argon@b.test"),
    ] {
        assert_eq!(log_in(address, mechanism, user, "secret"), wrong, "{user}");
    }
}

#[test]
fn users_of_a_text_map_log_in_with_every_mechanism() {
    let dir = tempfile::tempdir().unwrap();
    let lines: String = users().iter().map(|(user, value)| format!("{user} {value}\n")).collect();
    fs::write(dir.path().join("logins"), lines).unwrap();
    let (daemon, address) = submission(dir, &format!("users = \"text:logins\"\n{ALL}"), "");
    users_log_in(address);
    let log = fs::read_to_string(daemon.dir.path().join("mail.log")).unwrap();
    assert!(!log.contains("secret"), "no password is in the log: {log}");
}

/// A server whose map is a table in this process. Without a table it fails.
fn socketmap(path: &Path, table: Arc<Mutex<Option<HashMap<String, String>>>>) {
    let listener = UnixListener::bind(path).unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let table = table.clone();
            thread::spawn(move || {
                let mut buffer = [0; 1024];
                while let Ok(count @ 1..) = stream.read(&mut buffer) {
                    let request = String::from_utf8_lossy(&buffer[..count]).into_owned();
                    let key = request.trim_end_matches(',').split_once("logins ").unwrap().1;
                    let reply = match &*table.lock().unwrap() {
                        Some(table) => {
                            table.get(key).map_or("NOTFOUND ".to_owned(), |value| format!("OK {value}"))
                        }
                        None => "TEMP the database is down".to_owned(),
                    };
                    if write!(stream, "{}:{reply},", reply.len()).is_err() {
                        return;
                    }
                }
            });
        }
    });
}

#[test]
fn users_of_a_socketmap_log_in_and_a_failing_one_refuses_nobody_for_good() {
    let dir = tempfile::tempdir().unwrap();
    let table = Arc::new(Mutex::new(Some(users().into_iter().collect())));
    socketmap(&dir.path().join("logins.sock"), table.clone());
    let map = "[map.logins]\nsocketmap = \"unix:logins.sock\"\ntimeout = \"5s\"\n";
    let (daemon, address) = submission(dir, &format!("users = \"map:logins\"\n{ALL}"), map);
    users_log_in(address);
    let users = table.lock().unwrap().take();
    for mechanism in MECHANISMS {
        for user in ["clear@b.test", "nobody@b.test"] {
            let reply = log_in(address, mechanism, user, "secret");
            assert!(reply.starts_with("454 4.7.0"), "{} {user}: {reply}", mechanism.as_str());
        }
    }
    let said = daemon.try_ask(&["auth", "test", "clear@b.test"]).unwrap_err();
    assert!(said.contains("the database is down"), "{said}");
    *table.lock().unwrap() = users;
    assert!(log_in(address, Mechanism::Plain, "clear@b.test", "secret").starts_with("235"));
    // Mail of the login may only have its own address.
    let mut client = Client::connect(address).unwrap();
    let plain = BASE64.encode(b"\0clear@b.test\0secret");
    assert_eq!(client.say(&format!("AUTH PLAIN {plain}")).unwrap().0, 235);
    assert!(client.say("MAIL FROM:<joe@b.test>").unwrap().1.starts_with("553 5.7.1"));
    assert!(client.say("MAIL FROM:<clear@b.test>").unwrap().1.starts_with("250"));
}

#[test]
fn without_mechanisms_in_the_configuration_a_map_offers_plain_and_login() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("logins"), "joe {PLAIN}secret\n").unwrap();
    let (_daemon, address) = submission(dir, "users = \"text:logins\"", "");
    assert!(log_in(address, Mechanism::ScramSha256, "joe", "secret").starts_with("504 5.5.4"));
    assert!(log_in(address, Mechanism::Plain, "joe", "secret").starts_with("235"));
}

#[cfg(feature = "sqlite")]
#[test]
fn users_of_sqlite_log_in_and_a_new_password_counts_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("users.db");
    let base = rusqlite::Connection::open(&file).unwrap();
    base.execute_batch("CREATE TABLE login (name TEXT PRIMARY KEY, password TEXT)").unwrap();
    for (user, value) in users() {
        base.execute("INSERT INTO login VALUES (?, ?)", (user, value)).unwrap();
    }
    let map = "[map.logins]\nsqlite = \"users.db\"\nquery = \"SELECT password FROM login WHERE name = ?\"\n";
    let (daemon, address) = submission(dir, &format!("users = \"map:logins\"\n{ALL}"), map);
    users_log_in(address);
    let new = NewScheme::Argon2id.hash("newer", [8; 16]).unwrap();
    base.execute("UPDATE login SET password = ? WHERE name = 'argon@b.test'", (new,)).unwrap();
    // The old password was right a moment ago.
    assert!(log_in(address, Mechanism::Plain, "argon@b.test", "secret").starts_with("535"));
    assert!(log_in(address, Mechanism::Plain, "argon@b.test", "newer").starts_with("235"));
    let tested = std::process::Command::new(crate::common::BINARY)
        .args(["auth", "test", "nobody@b.test"])
        .env("POSTRIDER_CONFIG", daemon.config())
        .output()
        .unwrap();
    assert_eq!(tested.status.code(), Some(77));
    drop(base);
    let whole = fs::read(&file).unwrap();
    fs::write(&file, &whole[..whole.len() / 2]).unwrap();
    for user in ["clear@b.test", "nobody@b.test"] {
        let reply = log_in(address, Mechanism::Plain, user, "secret");
        assert!(reply.starts_with("454 4.7.0"), "{user}: {reply}");
    }
    fs::write(&file, &whole).unwrap();
    crate::common::until("the file is whole", || {
        log_in(address, Mechanism::Plain, "clear@b.test", "secret").starts_with("235")
    });
}
