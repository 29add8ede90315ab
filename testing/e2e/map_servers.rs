//! Maps in databases and directories, with the real servers. A server that is not installed is counted as skipped.

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
};
use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

/// A folder with a configuration that has maps.
struct Folder {
    dir: tempfile::TempDir,
}

impl Folder {
    fn new(maps: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("map.secret"), "s3cret\n").unwrap();
        let site = Self { dir };
        site.configure(maps);
        site
    }

    fn configure(&self, maps: &str) {
        let text = format!("hostname = \"mx.test\"\ndata_dir = \"data\"\n{maps}");
        fs::write(self.dir.path().join("postrider.toml"), text).unwrap();
    }

    fn map(&self, arguments: &[&str]) -> Output {
        Command::new(crate::common::BINARY)
            .arg("map")
            .args(arguments)
            .env("POSTRIDER_CONFIG", self.dir.path().join("postrider.toml"))
            .output()
            .unwrap()
    }

    /// Runs `postrider map query`; `None` if the map does not have the key.
    fn query(&self, key: &str) -> Option<String> {
        let output = self.map(&["query", "map:a", key]);
        let said = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        match output.status.code() {
            Some(0) => {
                let line = said(&output.stdout);
                Some(line.trim_end().strip_prefix(&format!("{key}: ")).unwrap().to_owned())
            }
            Some(1) => None,
            code => panic!("{key}: {code:?} {}", said(&output.stderr)),
        }
    }

    /// The message of a look-up or a check that fails for now.
    fn fails(&self, arguments: &[&str]) -> String {
        let output = self.map(arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(75), "{arguments:?}: {said}");
        assert!(!said.contains("s3cret"), "{said}");
        said
    }

    fn check(&self) -> String {
        let output = self.map(&["check"]);
        let said = [output.stdout, output.stderr].map(|said| String::from_utf8(said).unwrap()).concat();
        assert!(output.status.success(), "{said}");
        said
    }
}

/// Expects the answers that every kind of map has to give: the keys `joe@b.test`, `list@b.test` (two values), and no others.
fn finds(site: &Folder) {
    assert_eq!(site.query("joe@b.test").as_deref(), Some("jane@b.test"));
    assert_eq!(site.query("JOE@B.Test").as_deref(), Some("jane@b.test"), "in any case");
    let list = site.query("list@b.test").unwrap();
    let mut parts: Vec<&str> = list.split(", ").collect();
    parts.sort_unstable();
    assert_eq!(parts, ["ann@b.test", "jane@b.test"]);
    for key in [
        "nobody@b.test",
        "",
        "*",
        "%",
        "joe*",
        "' OR '1'='1",
        "$1",
        ")(mail=*",
        "joe@b.test)(cn=*",
        "\\2a",
        "a\tb",
    ] {
        assert_eq!(site.query(key), None, "{key:?}");
    }
    assert!(site.check().contains("can be used"));
}

/// The key that trusts the certificate of a server.
fn authority(dir: &Path) -> String {
    format!("ca_file = \"{}\"\n", dir.join("server.pem").display())
}

fn sqlite(path: &Path) {
    let connection = rusqlite::Connection::open(path).unwrap();
    connection
        .execute_batch(
            "CREATE TABLE alias (address TEXT, target TEXT);
             INSERT INTO alias VALUES ('joe@b.test', 'jane@b.test'), ('list@b.test', 'jane@b.test'),
                                      ('list@b.test', 'ann@b.test');",
        )
        .unwrap();
}

#[test]
fn sqlite_answers() {
    let maps = "[map.a]\nsqlite = \"mail.db\"\nquery = \"SELECT target FROM alias WHERE address = ?\"\n";
    let site = Folder::new(maps);
    assert!(site.fails(&["check"]).contains("No such file"));
    sqlite(&site.dir.path().join("mail.db"));
    finds(&site);
    fs::write(site.dir.path().join("mail.db"), "nothing of the kind").unwrap();
    assert!(site.fails(&["query", "map:a", "joe@b.test"]).contains("not a database"));
}

const SQL: &str = "CREATE TABLE alias (address varchar, target text, number int);
    INSERT INTO alias VALUES ('joe@b.test', 'jane@b.test', 7), ('list@b.test', 'jane@b.test', 7),
                             ('list@b.test', 'ann@b.test', 7), ('null@b.test', NULL, 7);";

#[test]
fn postgresql_answers_over_a_socket_and_over_tls_with_a_password() {
    let Some(server) = Postgres::start(SQL) else { return };
    let map = |connection: &str, query: &str, more: &str| {
        format!("[map.a]\npostgres = \"{connection}\"\nquery = \"{query}\"\n{more}")
    };
    let query = "SELECT target FROM alias WHERE address = $1";
    let site = Folder::new(&map(&server.here(), query, ""));
    finds(&site);
    assert_eq!(site.query("null@b.test"), None);
    site.configure(&map(
        &server.here(),
        "SELECT count(*) > 0 FROM alias WHERE address = $1 OR target = $2",
        "",
    ));
    assert_eq!(site.query("ann@b.test").as_deref(), Some("true"), "each parameter is the key");
    for (query, told) in [
        ("SELECT target, number FROM alias WHERE address = $1", "2 columns"),
        ("SELECT target FROM alias WHERE number = $1", "write $1::text"),
        ("SELECT now() FROM alias WHERE address = $1", "write now::text"),
        ("SELECT target FROM absent WHERE address = $1", "does not exist (42P01)"),
    ] {
        site.configure(&map(&server.here(), query, ""));
        assert!(site.fails(&["check"]).contains(told), "{query}");
    }
    // The certificate is verified unless the configuration says otherwise.
    let far = format!("host=127.0.0.1 port={} user=mail dbname=postgres", server.address.port());
    let secret = "secret = \"file:map.secret\"\n";
    site.configure(&map(&format!("{far} sslmode=require"), query, secret));
    assert!(site.fails(&["check"]).contains("invalid peer certificate"));
    let trusted = format!("{secret}{}", authority(server.dir.path()));
    site.configure(&map(&format!("{far} sslmode=require"), query, &trusted));
    finds(&site);
    fs::write(site.dir.path().join("map.secret"), "wrong\n").unwrap();
    assert!(site.fails(&["check"]).contains("password authentication failed"));
}

#[test]
fn mariadb_answers_over_a_socket_and_over_tls_with_a_password() {
    let statements = [
        "CREATE TABLE alias (address varchar(99), target text, number int, day date)",
        "INSERT INTO alias VALUES ('joe@b.test', 'jane@b.test', 7, now()), ('list@b.test', 'jane@b.test', 7, now())",
        "INSERT INTO alias VALUES ('list@b.test', 'ann@b.test', 7, now()), ('null@b.test', NULL, 7, now())",
    ];
    let Some(server) = MariaDb::start(&statements) else { return };
    let map = |connection: &str, query: &str, more: &str| {
        format!("[map.a]\nmysql = \"{connection}\"\nquery = \"{query}\"\n{more}")
    };
    let query = "SELECT target FROM alias WHERE address = ?";
    let site = Folder::new(&map(&server.here(), query, ""));
    finds(&site);
    assert_eq!(site.query("null@b.test"), None);
    site.configure(&map(
        &server.here(),
        "SELECT number FROM alias WHERE address = ? OR target = ? LIMIT 1",
        "",
    ));
    assert_eq!(site.query("ann@b.test").as_deref(), Some("7"), "each parameter is the key");
    for (query, told) in [
        ("SELECT target, number FROM alias WHERE address = ?", "2 columns"),
        ("SELECT target FROM alias WHERE address = '?'", "no parameter"),
        ("SELECT target FROM absent WHERE address = ?", "doesn't exist (1146)"),
    ] {
        site.configure(&map(&server.here(), query, ""));
        let said = site.fails(&["check"]);
        assert!(said.contains(told), "{query}: {said}");
    }
    site.configure(&map(&server.here(), "SELECT day FROM alias WHERE address = ?", ""));
    assert!(site.fails(&["query", "map:a", "joe@b.test"]).contains("write CAST"));
    let far = format!("mysql://mail@{}/mail", server.address);
    let secret = "secret = \"file:map.secret\"\n";
    site.configure(&map(&far, query, secret));
    finds(&site);
    // The certificate is verified unless the configuration says otherwise.
    let encrypted = format!("{far}?require_ssl=true");
    site.configure(&map(&encrypted, query, secret));
    let said = site.fails(&["check"]);
    assert!(said.contains("invalid peer certificate"), "{said}");
    site.configure(&map(&encrypted, query, &format!("{secret}{}", authority(server.dir.path()))));
    finds(&site);
    fs::write(site.dir.path().join("map.secret"), "wrong\n").unwrap();
    let said = site.fails(&["check"]);
    assert!(said.contains("Access denied"), "{said}");
}

#[test]
fn redis_answers() {
    let Some(server) = Redis::start(&["--requirepass", "s3cret"]) else { return };
    server.say(&[
        "AUTH s3cret",
        "ACL SETUSER mail on >s3cret ~alias:* +get +select",
        "SELECT 2",
        "SET alias:joe@b.test jane@b.test",
        "SET alias:list@b.test \"jane@b.test, ann@b.test\"",
        "HMSET alias:hash@b.test field value",
        "SET alias:octets@b.test \"\\xff\"",
        "SET secret:joe@b.test hidden",
    ]);
    let map = |more: &str| {
        let socket = server.socket();
        format!("[map.a]\nredis = \"unix:{}\"\nkey = \"alias:{{key}}\"\n{more}", socket.display())
    };
    let secret = "secret = \"file:map.secret\"\ndatabase = 2\n";
    let site = Folder::new(&map(secret));
    finds(&site);
    assert!(site.fails(&["query", "map:a", "hash@b.test"]).contains("WRONGTYPE"));
    assert!(site.fails(&["query", "map:a", "octets@b.test"]).contains("not UTF-8"));
    site.configure(&map(&format!("{secret}user = \"mail\"\n")));
    finds(&site);
    site.configure(&map(&format!("{secret}user = \"mail\"\n")).replace("alias:", "secret:"));
    let said = site.fails(&["query", "map:a", "joe@b.test"]);
    assert!(said.contains("permission"), "{said}");
    site.configure(&map("database = 2\n"));
    let said = site.fails(&["query", "map:a", "joe@b.test"]);
    assert!(said.contains("Authentication required"), "{said}");
    // Over TLS, whose certificate is verified.
    let tls = |more: &str| {
        format!("[map.a]\nredis = \"rediss://{}\"\nkey = \"alias:{{key}}\"\n{secret}{more}", server.tls)
    };
    site.configure(&tls(""));
    assert!(site.fails(&["check"]).contains("invalid peer certificate"));
    site.configure(&tls(&authority(server.dir.path())));
    finds(&site);
    site.configure(&map(secret));
    fs::write(site.dir.path().join("map.secret"), "wrong\n").unwrap();
    let said = site.fails(&["check"]);
    assert!(said.contains("WRONGPASS") || said.contains("authentication failed"), "{said}");
}

#[test]
fn a_directory_answers() {
    let people: &[(&str, &[&str])] = &[
        ("joe", &["mail: joe@b.test", "description: jane@b.test"]),
        ("list", &["mail: list@b.test", "description: jane@b.test", "description: ann@b.test"]),
        ("empty", &["mail: empty@b.test"]),
    ];
    let Some(server) = Slapd::start(people) else { return };
    let map = |filter: &str, more: &str| {
        format!(
            "[map.a]\nldap = \"ldap://{}\"\nbase = \"dc=b,dc=test\"\nfilter = \"{filter}\"\n\
             attribute = \"Description\"\n{more}",
            server.address
        )
    };
    let bind = "bind = \"cn=admin,dc=b,dc=test\"\nsecret = \"file:map.secret\"\n";
    let filter = "(&(objectClass=inetOrgPerson)(mail={key}))";
    let site = Folder::new(&map(filter, bind));
    finds(&site);
    assert_eq!(site.query("empty@b.test"), None, "an entry without the attribute");
    // A base that does not exist is an error and not an empty answer.
    site.configure(&map(filter, bind).replace("base = \"", "base = \"ou=absent,"));
    assert!(site.fails(&["query", "map:a", "joe@b.test"]).contains("noSuchObject"));
    // Over a Unix socket.
    let socket = format!("unix:{}", server.dir.path().join("ldapi").display());
    site.configure(&map(filter, bind).replace(&format!("ldap://{}", server.address), &socket));
    finds(&site);
    // Over TLS, whose certificate is verified.
    let ldaps = |text: String| {
        text.replace(&format!("ldap://{}", server.address), &format!("ldaps://{}", server.tls))
    };
    site.configure(&ldaps(map(filter, bind)));
    assert!(site.fails(&["check"]).contains("invalid peer certificate"));
    site.configure(&ldaps(map(filter, &format!("{bind}{}", authority(server.dir.path())))));
    finds(&site);
    // With StartTLS, whose certificate is verified as well.
    site.configure(&map(filter, &format!("{bind}starttls = true\n")));
    assert!(site.fails(&["check"]).contains("invalid peer certificate"));
    site.configure(&map(filter, &format!("{bind}starttls = true\n{}", authority(server.dir.path()))));
    finds(&site);
    site.configure(&map(filter, bind));
    fs::write(site.dir.path().join("map.secret"), "wrong\n").unwrap();
    assert!(site.fails(&["check"]).contains("invalidCredentials"));
}

#[test]
fn a_directory_verifies_the_passwords_of_logins() {
    let people: &[(&str, &[&str])] = &[
        ("joe", &["mail: joe@b.test", "uid: Joe", "userPassword: right"]),
        ("two", &["mail: two@b.test", "uid: two", "uid: zwei", "userPassword: right"]),
        ("same", &["mail: same@b.test", "uid: one", "userPassword: right"]),
        ("again", &["mail: same@b.test", "uid: other", "userPassword: right"]),
        ("none", &["mail: none@b.test", "uid: none"]),
    ];
    let Some(mut server) = Slapd::start(people) else { return };
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("map.secret"), "s3cret\n").unwrap();
    let listener = free_address();
    let text = format!(
        "[[listen]]\naddress = \"{listener}\"\nkind = \"submission\"\n[log]\nfile = \"mail.log\"\n\
         [relay]\nnetworks = [\"192.0.2.0/24\"]\n[auth]\nallow_clear_text = true\nmax_failures = 1000\n\
         users = \"bind:people\"\n[map.people]\nldap = \"ldap://{}\"\nbase = \"dc=b,dc=test\"\n\
         filter = \"(|(uid={{key}})(mail={{key}}))\"\nattribute = \"uid\"\n\
         bind = \"cn=admin,dc=b,dc=test\"\nsecret = \"file:map.secret\"\ntimeout = \"2s\"\n",
        server.address
    );
    let daemon = Postrider::start_in(dir, free_address(), &text);
    let log_in = |user: &str, password: &str| {
        let mut client = Client::connect(listener).unwrap();
        let response = data_encoding::BASE64.encode(format!("\0{user}\0{password}").as_bytes());
        client.say(&format!("AUTH PLAIN {response}")).unwrap().1
    };
    for user in ["joe", "JOE@b.test"] {
        assert!(log_in(user, "right").starts_with("235 2.7.0"), "{}", log_in(user, "right"));
    }
    for (user, password) in [
        ("joe", "wrong"),
        ("joe", ""),
        ("nobody", "right"),
        ("none", "right"),
        ("*", "right"),
        ("joe)(uid=*", "right"),
    ] {
        let reply = log_in(user, password);
        assert!(
            reply.starts_with("535 5.7.8") || password.is_empty() && reply.starts_with("501"),
            "{user}: {reply}"
        );
    }
    // Who they are is not known.
    for user in ["same@b.test", "two"] {
        assert!(log_in(user, "right").starts_with("454 4.7.0"), "{user}: {}", log_in(user, "right"));
    }
    let test = |password: &str| daemon.run(&["auth", "test", "joe@b.test"], password);
    let right = test("right\n");
    assert!(String::from_utf8_lossy(&right.stdout).contains("joe: right"), "{right:?}");
    assert_eq!(test("wrong\n").status.code(), Some(77));
    server.process.kill();
    assert!(log_in("joe", "right").starts_with("454 4.7.0"));
    server.restart();
    crate::common::until("the directory answers again", || log_in("joe", "right").starts_with("235"));
    let log = fs::read_to_string(daemon.dir.path().join("mail.log")).unwrap();
    assert!(log.contains("\"login\":\"joe\""), "the name of the login is that of the entry: {log}");
    assert!(!log.contains("right"), "{log}");
}

#[test]
fn mail_is_delivered_by_aliases_in_a_database() {
    let dir = tempfile::tempdir().unwrap();
    sqlite(&dir.path().join("mail.db"));
    let daemon = Postrider::start_in(
        dir,
        free_address(),
        "[local]\ndomains = [\"mx.test\", \"b.test\"]\n[addresses]\nvirtual = [\"map:a\"]\n\
         [map.a]\nsqlite = \"mail.db\"\nquery = \"SELECT target FROM alias WHERE address = ?\"\n",
    );
    let mut client = Client::connect(daemon.address).unwrap();
    client.send("x@far.test", &["List@b.test"], b"Subject: x\r\n\r\nx\r\n").unwrap();
    for user in ["jane", "ann"] {
        crate::common::until("the mail is delivered", || daemon.mailbox(user).len() == 1);
    }
}
