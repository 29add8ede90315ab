//! Tables of Postfix in SQL databases (mysql_table(5), pgsql_table(5), sqlite_table(5)), whose queries get parameters.

use super::main_cf::{MainCf, items};
use crate::{draft::Section, files::Files};
use std::path::Path;

/// Which database the query is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dialect {
    MySql,
    Postgres,
    Sqlite,
}

/// Sets the place and the query of a map.
///
/// # Errors
/// The table has no counterpart: why.
pub(super) fn map(
    kind: &str,
    settings: &MainCf,
    section: Section,
    files: &dyn Files,
) -> Result<Section, String> {
    let (section, dialect) = match kind {
        "mysql" => (section.with("mysql", mysql(settings, files)?), Dialect::MySql),
        "pgsql" => (section.with("postgres", postgres(settings)), Dialect::Postgres),
        _ => {
            let path = of(settings, "dbpath").unwrap_or_default();
            if !files.exists(Path::new(path)) {
                return Err(format!("there is no file {path}"));
            }
            (section.with("sqlite", path), Dialect::Sqlite)
        }
    };
    let authorities = of(settings, "tls_CAfile").filter(|_| dialect == Dialect::MySql);
    Ok(section.with("query", query(settings, dialect)?).with_some("ca_file", authorities))
}

/// The value of a setting, as it is written: nothing is expanded in these files.
pub(super) fn of<'s>(settings: &'s MainCf, name: &str) -> Option<&'s str> {
    settings.explicit(name).map(|parameter| &*parameter.value).filter(|value| !value.is_empty())
}

fn hosts(settings: &MainCf) -> Vec<String> {
    let given = of(settings, "hosts").map(items).unwrap_or_default();
    if given.is_empty() { vec!["localhost".to_owned()] } else { given }
}

/// Sockets at which MySQL and MariaDB listen, where a file of settings says nothing else.
const SOCKETS: [&str; 2] = ["/run/mysqld/mysqld.sock", "/var/lib/mysql/mysql.sock"];

/// Returns the connection to MySQL. Of several hosts it is the first one.
fn mysql(settings: &MainCf, files: &dyn Files) -> Result<String, String> {
    let needed = |name: &str| of(settings, name).ok_or_else(|| format!("it has no `{name}`"));
    let (user, database) = (escaped(needed("user")?), escaped(needed("dbname")?));
    let host = hosts(settings).remove(0);
    let at = |socket: &str| format!("mysql://{user}@localhost/{database}?socket={socket}");
    if let Some(socket) = host.strip_prefix("unix:") {
        return Ok(at(socket));
    }
    let host = host.strip_prefix("inet:").unwrap_or(&host);
    if host.split(':').next() == Some("localhost") {
        // The client library takes that for the socket, whatever the port is.
        let socket = SOCKETS.iter().find(|socket| files.exists(Path::new(socket)));
        return Ok(at(socket.unwrap_or(&SOCKETS[0])));
    }
    // Without these settings the client library does not encrypt.
    let has_tls = ["tls_CAfile", "tls_CApath", "tls_cert_file", "tls_verify_cert"]
        .iter()
        .any(|name| of(settings, name).is_some());
    let without = if has_tls { "?require_ssl=true" } else { "?require_ssl=false" };
    Ok(format!("mysql://{user}@{host}/{database}{without}"))
}

/// Escapes what ends a part of a URL (RFC 3986 §2.1).
fn escaped(part: &str) -> String {
    let mut text = String::new();
    for byte in part.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => text.push(byte.into()),
            _ => text += &format!("%{byte:02X}"),
        }
    }
    text
}

fn postgres(settings: &MainCf) -> String {
    let given = hosts(settings);
    if given[0].starts_with("postgresql:") {
        return given[0].clone();
    }
    let (mut names, mut ports) = (Vec::new(), Vec::new());
    for host in &given {
        let host = host.strip_prefix("unix:").or_else(|| host.strip_prefix("inet:")).unwrap_or(host);
        match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => {
                names.push(name);
                ports.push(port);
            }
            _ => {
                names.push(host);
                ports.push("");
            }
        }
    }
    let port = if ports.iter().all(|port| port.is_empty()) {
        String::new()
    } else {
        format!(" port={}", ports.join(","))
    };
    let with = |key: &str| of(settings, key).map_or_else(String::new, |value| format!(" {key}={value}"));
    format!("host={}{port}{}{}", names.join(","), with("dbname"), with("user"))
}

/// Returns a query whose parameters are the key.
fn query(settings: &MainCf, dialect: Dialect) -> Result<String, String> {
    if of(settings, "result_format").is_some_and(|format| format != "%s") {
        return Err("its result_format has no counterpart: let the query select the whole value".to_owned());
    }
    let given = match of(settings, "query") {
        Some(query) => query.to_owned(),
        None => {
            let (Some(field), Some(table), Some(key)) =
                (of(settings, "select_field"), of(settings, "table"), of(settings, "where_field"))
            else {
                return Err("it has no query".to_owned());
            };
            let more = of(settings, "additional_conditions").unwrap_or_default();
            format!("SELECT {field} FROM {table} WHERE {key}='%s' {more}")
        }
    };
    let query = dialect.with_parameters(given.trim().trim_end_matches(';'))?;
    if !query.contains(dialect.key()) {
        return Err("its query does not use the key".to_owned());
    }
    let Some(domains) = of(settings, "domain") else { return Ok(query) };
    // Other addresses are not looked up, nor are domains and names alone.
    let domains = items(domains);
    if domains.iter().any(|domain| domain.contains([':', '/', '\'', '!'])) {
        return Err(
            "its `domain` names a table or a file: compare the domain in the query instead".to_owned()
        );
    }
    let domains: Vec<String> = domains.iter().map(|domain| format!("'{}'", domain.to_lowercase())).collect();
    let (domain, user) = (dialect.domain(), dialect.user());
    Ok(format!(
        "SELECT * FROM ({query}) AS found WHERE {domain} IN ({}) AND {user} <> ''",
        domains.join(", ")
    ))
}

impl Dialect {
    /// Returns what stands for the key in a query.
    fn key(self) -> &'static str {
        match self {
            Self::Postgres => "$1",
            Self::MySql | Self::Sqlite => "?",
        }
    }

    /// The part before the last `@`; the whole key if it has none.
    fn user(self) -> &'static str {
        match self {
            Self::Postgres => "regexp_replace($1, '@[^@]*$', '')",
            Self::MySql => {
                "IF(LOCATE('@', ?), LEFT(?, CHAR_LENGTH(?) - CHAR_LENGTH(SUBSTRING_INDEX(?, '@', -1)) - 1), ?)"
            }
            Self::Sqlite => {
                "CASE WHEN instr(?, '@') THEN substr(?, 1, length(rtrim(?, replace(?, '@', ''))) - 1) ELSE ? END"
            }
        }
    }

    /// The part behind the last `@`. Without one it is NULL, and the query finds nothing: Postfix does not ask then.
    fn domain(self) -> &'static str {
        match self {
            Self::Postgres => "substring($1 from '@([^@]*)$')",
            Self::MySql => "IF(LOCATE('@', ?), SUBSTRING_INDEX(?, '@', -1), NULL)",
            Self::Sqlite => {
                "CASE WHEN instr(?, '@') THEN substr(?, length(rtrim(?, replace(?, '@', ''))) + 1) END"
            }
        }
    }

    /// Replaces `%s`, `%u` and `%d`, which stand within quotes, and may have other text beside them there.
    fn with_parameters(self, query: &str) -> Result<String, String> {
        let mut text = String::new();
        let mut rest = query;
        while let Some(at) = rest.find(['\'', '"']) {
            text += &self.expression(&rest[..at], None)?;
            let quote = if rest[at..].starts_with('\'') { '\'' } else { '"' };
            let Some(length) = rest[at + 1..].find(quote) else {
                return Err("its query has an unclosed quote".to_owned());
            };
            text += &self.expression(&rest[at + 1..at + 1 + length], Some(quote))?;
            rest = &rest[at + 2 + length..];
        }
        text += &self.expression(rest, None)?;
        Ok(text)
    }

    /// A part of the query: within quotes it is one value.
    fn expression(self, part: &str, quote: Option<char>) -> Result<String, String> {
        let mut values: Vec<String> = Vec::new();
        let mut plain = String::new();
        let mut chars = part.chars();
        while let Some(c) = chars.next() {
            if c != '%' {
                plain.push(c);
                continue;
            }
            let value = match chars.next() {
                Some('%') => {
                    plain.push('%');
                    continue;
                }
                Some('s' | 'S') => self.key(),
                Some('u' | 'U') => self.user(),
                Some('d' | 'D') => self.domain(),
                other => {
                    let what = other.map(String::from).unwrap_or_default();
                    return Err(format!(
                        "its query has %{what}, which has no counterpart: write it with a parameter, as docs/addresses.md shows"
                    ));
                }
            };
            values.push(std::mem::take(&mut plain));
            values.push(value.to_owned());
        }
        let Some(quote) = quote else {
            values.push(plain);
            return Ok(values.concat());
        };
        if values.is_empty() {
            return Ok(format!("{quote}{plain}{quote}"));
        }
        values.push(plain);
        // Every second one is plain text.
        let values = values.into_iter().enumerate().filter(|(_, value)| !value.is_empty());
        let values: Vec<String> = values
            .map(|(number, value)| if number % 2 == 0 { format!("'{value}'") } else { value })
            .collect();
        Ok(match (&*values, self) {
            ([one], _) => one.clone(),
            (_, Self::MySql) => format!("CONCAT({})", values.join(", ")),
            _ => format!("({})", values.join(" || ")),
        })
    }
}
