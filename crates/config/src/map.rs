//! `[map.NAME]`: the keys of maps that are asked, and their reading.

use crate::{
    route::SecretSource,
    section::{Reading, section},
    server_value::MapServer,
    value::{Query, RedisServer, Text, Word},
};
use maps::{KEY, Ldap, LdapServer, NamedMap, Source, Trust};
use std::{ops::Range, path::PathBuf, time::Duration};
use toml::de::DeTable;

section! {
    /// A map that other keys use as `map:NAME`. One of `socketmap`, `sqlite`, `postgres`, `mysql`, `redis` and `ldap` says where
    /// keys are looked up. A look-up that fails is a temporary error (451), never an unknown user. `sqlite`, `postgres`,
    /// `mysql`, `redis` and `ldap` look keys up in lower case, and need a program that was built with the Cargo feature of that
    /// name. Several rows, or several values of an attribute, become one value, joined by commas.
    pub(crate) MapKeys = "map" named {
        /// A server that speaks the socketmap protocol of Sendmail and Postfix: `unix:/path` or `host:port`.
        socketmap: Option<MapServer> = "",
        /// The name of the map at the socketmap server. Default: the name of the section.
        remote_name: Option<Word> = "",
        /// An SQLite file, which is only read. To replace it, `mv` a new file into its place.
        sqlite: Option<PathBuf> = "",
        /// A PostgreSQL database, as libpq describes it: `host=/run/postgresql dbname=mail user=postrider`, or
        /// `postgresql://postrider@db.example.com/mail`. The password is in `secret`. Without `sslmode`, connections to
        /// other machines use TLS and verify the certificate.
        postgres: Option<Text> = "",
        /// A MySQL or MariaDB database: `mysql://postrider@localhost/mail?socket=/run/mysqld/mysqld.sock`, or
        /// `mysql://postrider@db.example.com/mail`. The password is in `secret`. Connections to other machines use TLS and
        /// verify the certificate, unless `?require_ssl=false` is at the end.
        mysql: Option<Text> = "",
        /// The query of `sqlite`, `postgres` and `mysql`. It selects one column. Each parameter (`$1` in PostgreSQL, `?`
        /// in the others) is the key, which is never part of the query's text.
        query: Option<Query> = "",
        /// A Redis or Valkey server: `unix:/path`, `host:port`, or `rediss://host:port` for TLS.
        redis: Option<RedisServer> = "",
        /// The key in Redis whose string (GET) is the value, such as `alias:{key}`. Default: `{key}`.
        key: Option<Text> = "",
        /// The number of the Redis database. Default: 0.
        database: Option<u32> = "",
        /// The Redis user (ACL). Default: Redis's `default`.
        user: Option<Word> = "",
        /// An LDAP directory: `ldap://host`, `ldaps://host` for TLS, or `unix:/path`.
        ldap: Option<LdapServer> = "",
        /// Begins connections to `ldap://host` with StartTLS, and verifies the certificate. A server without it is not used.
        starttls: Option<bool> = "",
        /// The entry of the directory at which the search begins: `ou=people,dc=example,dc=com`. All entries below are
        /// searched.
        base: Option<Text> = "",
        /// The search filter (RFC 4515): `(mail={key})`. Special characters in the key are escaped.
        filter: Option<Text> = "",
        /// The attribute whose values are the result. Entries without it are ignored.
        attribute: Option<Word> = "",
        /// The distinguished name with which to log in to `ldap`. Without this key, the search is anonymous.
        bind: Option<Text> = "",
        /// The password for `postgres`, `mysql`, `redis` or `ldap`: `file:FILE` is the first line of a file, `credential:NAME` a
        /// systemd credential, and `env:NAME` a variable of the environment. It is read for each new connection.
        secret: Option<SecretSource> = "",
        /// PEM file with the certification authorities to trust for TLS to `postgres`, `mysql`, `redis` and `ldap`. Without this
        /// key, Mozilla's are used.
        ca_file: Option<PathBuf> = "",
        /// Maximum time for a look-up, including connecting; a slower one fails.
        timeout: Duration = "\"5s\"",
        /// How long results are cached, including "no such key"; 0 for no cache. At most 20,000 results are cached.
        cache_ttl: Duration = "\"0s\"",
        /// Maximum number of concurrent connections to the server, or of open files of SQLite.
        max_connections: usize = "16",
    }
}

/// Keys that name the place, with an example.
pub(crate) const PLACES: [(&str, &str); 6] = [
    ("socketmap", "socketmap = \"unix:/run/users.sock\""),
    ("sqlite", "sqlite = \"/var/lib/mail/users.db\""),
    ("postgres", "postgres = \"host=/run/postgresql dbname=mail user=postrider\""),
    ("mysql", "mysql = \"mysql://postrider@localhost/mail?socket=/run/mysqld/mysqld.sock\""),
    ("redis", "redis = \"127.0.0.1:6379\""),
    ("ldap", "ldap = \"ldap://127.0.0.1\""),
];

/// Keys that need certain places.
const NEEDS: [(&str, &[&str]); 12] = [
    ("remote_name", &["socketmap"]),
    ("query", &["sqlite", "postgres", "mysql"]),
    ("key", &["redis"]),
    ("database", &["redis"]),
    ("user", &["redis"]),
    ("starttls", &["ldap"]),
    ("base", &["ldap"]),
    ("filter", &["ldap"]),
    ("attribute", &["ldap"]),
    ("bind", &["ldap"]),
    ("secret", &["postgres", "mysql", "redis", "ldap"]),
    ("ca_file", &["postgres", "mysql", "redis", "ldap"]),
];

/// A key that is missing, with an example.
type Missing = (&'static str, &'static str);

impl Reading<'_> {
    /// Reads each `[map.NAME]`.
    pub(crate) fn maps(&mut self, root: &DeTable<'_>) -> Vec<NamedMap> {
        let mut maps = Vec::new();
        for (key, found) in self.table(root, "map").into_iter().flatten() {
            let (name, span) = (key.get_ref(), key.span());
            if !NamedMap::is_name(name) {
                let help = "write a name of up to 64 letters, digits, `-` and `_`".to_owned();
                self.cx.problem(span, format!("`{name}` is not a name for a map"), "not a name", help);
                continue;
            }
            let Some(table) = self.named_table("map", key, found) else { continue };
            let keys: MapKeys = self.section(&format!("map.{name}"), Some(table));
            if let Some(map) = self.map(name, &keys, table, span) {
                maps.push(map);
            }
        }
        maps
    }

    fn map(
        &mut self,
        name: &str,
        keys: &MapKeys,
        table: &DeTable<'_>,
        span: Range<usize>,
    ) -> Option<NamedMap> {
        let place = self.place(name, table, span.clone())?;
        let secret = keys.secret.as_ref().map(SecretSource::place);
        let trust = Trust { secret, ca_file: keys.ca_file.clone() };
        let source = match source(place, name, keys, trust) {
            Ok(source) => source?,
            Err((key, _)) if table.contains_key(key) => return None,
            Err((key, example)) => {
                self.missing(span, key, example);
                return None;
            }
        };
        for fault in source.faults() {
            let at = table.get(fault.key).map_or(span.clone(), toml::Spanned::span);
            let what = format!("`map.{name}.{}` cannot be used", fault.key);
            self.cx.problem(at, what, &fault.what, fault.help);
        }
        Some(NamedMap {
            name: name.to_owned(),
            source,
            timeout: keys.timeout,
            cache_ttl: keys.cache_ttl,
            connections_max: keys.max_connections,
        })
    }

    /// Returns the key that names the place, and reports keys that do not fit it.
    fn place(&mut self, name: &str, table: &DeTable<'_>, span: Range<usize>) -> Option<&'static str> {
        let mut given = PLACES.iter().filter(|(key, _)| table.contains_key(*key)).map(|(key, _)| *key);
        let Some(place) = given.next() else {
            let examples: Vec<&str> = PLACES.iter().map(|(_, example)| *example).collect();
            let what = "the map does not say where to look keys up".to_owned();
            let help = format!("write one of {}", examples.join(", "));
            self.cx.problem(span, what, "in this section", help);
            return None;
        };
        for (key, places) in NEEDS.iter().filter(|(_, places)| !places.contains(&place)) {
            let Some(value) = table.get(*key) else { continue };
            let what = format!("`map.{name}.{key}` is not for `{place}`");
            let help = format!("remove `{key}`; it belongs to {}", places.join(", "));
            self.cx.problem(value.span(), what, "without effect", help);
        }
        if let Some(second) = given.next() {
            let at = table.get(second).map_or(span, toml::Spanned::span);
            let what = format!("`map.{name}` has `{place}` and `{second}`");
            let help = "keep one of the two; another place needs a [map.NAME] of its own".to_owned();
            self.cx.problem(at, what, "a second place", help);
            return None;
        }
        Some(place)
    }
}

/// Returns the source of a map; none if its place could not be read.
fn source(place: &str, name: &str, keys: &MapKeys, trust: Trust) -> Result<Option<Source>, Missing> {
    let word = |word: &Option<Word>| word.as_ref().map(|word| word.0.clone());
    let text = |text: &Option<Text>| text.as_ref().map(|Text(text)| text.clone());
    let query = |example| keys.query.as_ref().map(|query| query.0.clone()).ok_or(("query", example));
    Ok(match place {
        "socketmap" => keys.socketmap.as_ref().map(|server| Source::Socketmap {
            server: server.0.clone(),
            remote_name: word(&keys.remote_name).unwrap_or_else(|| name.to_owned()),
        }),
        "sqlite" => {
            let query = query("query = \"SELECT target FROM alias WHERE address = ?\"")?;
            keys.sqlite.clone().map(|file| Source::Sqlite { file, query })
        }
        "postgres" => {
            let query = query("query = \"SELECT target FROM alias WHERE address = $1\"")?;
            keys.postgres.as_ref().map(|Text(connection)| Source::Postgres {
                connection: connection.clone(),
                query,
                trust,
            })
        }
        "mysql" => {
            let query = query("query = \"SELECT target FROM alias WHERE address = ?\"")?;
            keys.mysql.as_ref().map(|Text(connection)| Source::MySql {
                connection: connection.clone(),
                query,
                trust,
            })
        }
        "redis" => keys.redis.as_ref().map(|RedisServer { server, is_tls }| Source::Redis {
            server: server.clone(),
            is_tls: *is_tls,
            key: text(&keys.key).unwrap_or_else(|| KEY.to_owned()),
            database: keys.database.unwrap_or(0),
            user: word(&keys.user),
            trust,
        }),
        _ => {
            let base = text(&keys.base).ok_or(("base", "base = \"ou=people,dc=example,dc=com\""))?;
            let filter = text(&keys.filter).ok_or(("filter", "filter = \"(mail={key})\""))?;
            let attribute =
                word(&keys.attribute).ok_or(("attribute", "attribute = \"mailRoutingAddress\""))?;
            let (bind, starts_tls) = (text(&keys.bind), keys.starttls == Some(true));
            keys.ldap
                .clone()
                .map(|server| Source::Ldap(Ldap { server, starts_tls, base, filter, attribute, bind, trust }))
        }
    })
}
