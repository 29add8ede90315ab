//! Maps in directories (LDAP, RFC 4511): the values of an attribute of the entries that a filter finds.

use super::{password, tls::client_config, values::Values};
use crate::{
    Value,
    pool::{Backend, Background, Failure, Pooled, Reply},
    reference::NamedMap,
    source::{KEY, Ldap as Search, Server},
};
use ::ldap3::{
    DerefAliases, Ldap, LdapConnAsync, LdapConnSettings, LdapError, Scope, SearchEntry, SearchOptions,
    ldap_escape, parse_filter,
};
use std::{sync::Arc, time::Duration};

/// Entries of an answer. More than these are a fault of the filter.
const ENTRIES_MAX: i32 = 1000;

/// A directory and a search.
pub(crate) struct Directory {
    search: Arc<Search>,
    timeout: Duration,
}

/// An open connection.
pub(crate) struct Session {
    ldap: Ldap,
    /// Moves the bytes. Ends with the session, also while the server does not answer.
    background: Background<()>,
}

/// Returns whether a text with `{key}` is a filter.
pub(crate) fn is_filter(text: &str) -> bool {
    parse_filter(text.replace(KEY, "x")).is_ok()
}

/// Fills a key into a filter. The key is a value whatever its characters are (RFC 4515 §3).
fn filter_of(text: &str, key: &str) -> String {
    text.replace(KEY, &ldap_escape(key))
}

impl Directory {
    /// Makes a map; connects with the first look-up.
    pub(crate) fn map(settings: &NamedMap, search: &Search) -> Pooled<Self> {
        let backend = Self { search: Arc::new(search.clone()), timeout: settings.timeout };
        Pooled::new(settings, backend)
    }

    async fn open(&self) -> Result<(LdapConnAsync, Ldap), String> {
        let server = &self.search.server;
        let mut settings = LdapConnSettings::new();
        if server.is_tls {
            settings = settings.set_config(client_config(self.search.trust.ca_file.as_deref()).await?);
        }
        let url = match &server.server {
            Server::Unix(path) => {
                let path = path.to_str().ok_or("the path of the socket is not UTF-8")?;
                format!("ldapi://{}", percent_encoded(path))
            }
            Server::Tcp(_) => server.to_string(),
        };
        LdapConnAsync::with_settings(settings, &url).await.map_err(|error| error.to_string())
    }
}

/// A path as the host of a URL.
fn percent_encoded(path: &str) -> String {
    let encoded = |b: u8| match b {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' | b'_' => char::from(b).to_string(),
        _ => format!("%{b:02x}"),
    };
    path.bytes().map(encoded).collect()
}

impl Backend for Directory {
    type Connection = Session;
    const FOLDS: bool = true;

    async fn connect(&self) -> Result<Session, String> {
        let (connection, mut ldap) = self.open().await?;
        let background = Background(tokio::spawn(async move { drop(connection.drive().await) }));
        if let (Some(name), Some(file)) = (&self.search.bind, &self.search.trust.secret) {
            let password = String::from_utf8(password(file).await?);
            let password = password.map_err(|_| "the password is not UTF-8")?;
            let bound = ldap.simple_bind(name, &password).await;
            let bound = bound.map_err(|error| format!("log in: {error}"))?;
            bound.success().map_err(|error| format!("log in as {name}: {error}"))?;
        }
        Ok(Session { ldap, background })
    }

    async fn ask(&self, session: Session, key: &str) -> Result<(Reply, Session), Failure> {
        let filter = filter_of(&self.search.filter, key);
        let Session { ldap, background } = session;
        // The library panics at entries that are not in the form of the protocol: only this task ends then.
        let found = find(ldap, self.search.clone(), filter, self.timeout);
        let mut task = Background(tokio::spawn(found));
        let found = (&mut task.0).await;
        let found = found.unwrap_or_else(|_| Err(Failure::Wrong("the entry cannot be read".to_owned())));
        found.map(|(reply, ldap)| (reply, Session { ldap, background }))
    }
}

async fn find(
    mut ldap: Ldap,
    search: Arc<Search>,
    filter: String,
    timeout: Duration,
) -> Result<(Reply, Ldap), Failure> {
    let seconds = i32::try_from(timeout.as_secs().max(1)).unwrap_or(i32::MAX);
    let options = SearchOptions::new().deref(DerefAliases::Never).sizelimit(ENTRIES_MAX).timelimit(seconds);
    let found = ldap.with_search_options(options).search(
        &search.base,
        Scope::Subtree,
        &filter,
        [search.attribute.as_str()],
    );
    let (entries, result) = match found.await {
        Ok(found) => (found.0, found.1),
        Err(error) => return Err(failure(&error)),
    };
    if result.rc != 0 {
        return Ok((Err(result.to_string()), ldap));
    }
    if let Some(other) = result.refs.first() {
        return Ok((Err(format!("that {other} has to be asked, too")), ldap));
    }
    let entries = entries.into_iter().map(SearchEntry::construct);
    let value = value(entries, &search.attribute).map_err(Failure::Wrong)?;
    Ok((Ok(value), ldap))
}

fn value(entries: impl Iterator<Item = SearchEntry>, attribute: &str) -> Result<Option<Value>, String> {
    let mut values = Values::default();
    for entry in entries {
        // The server may write the name of the attribute otherwise.
        let is_it = |name: &String| name.eq_ignore_ascii_case(attribute);
        for (_, found) in entry.attrs.iter().filter(|(name, _)| is_it(name)) {
            found.iter().try_for_each(|value| values.add(value.as_bytes()))?;
        }
        for (_, found) in entry.bin_attrs.iter().filter(|(name, _)| is_it(name)) {
            found.iter().try_for_each(|value| values.add(value))?;
        }
    }
    Ok(values.finish())
}

fn failure(error: &LdapError) -> Failure {
    let told = error.to_string();
    match error {
        LdapError::Io { .. }
        | LdapError::OpSend { .. }
        | LdapError::ResultRecv { .. }
        | LdapError::EndOfStream => Failure::Closed(told),
        _ => Failure::Wrong(told),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn filters_are_told_from_other_texts() {
        for good in ["(mail={key})", "(&(objectClass=person)(|(mail={key})(alias={key})))"] {
            assert!(is_filter(good), "{good}");
        }
        for bad in ["(mail={key}", "(mail={key}))", "(&(mail={key})", "({key})", ""] {
            assert!(!is_filter(bad), "{bad}");
        }
    }

    #[test]
    fn a_socket_is_the_host_of_a_url() {
        assert_eq!(percent_encoded("/run/slapd/ldapi"), "%2frun%2fslapd%2fldapi");
    }

    proptest! {
        #[test]
        fn no_key_changes_the_form_of_a_filter(key in "[\\PC]{1,40}|[()*\\\\&|!=<>~a-f0-9]{1,40}") {
            let filter = filter_of("(&(objectClass=person)(mail={key}))", &key);
            let parsed = parse_filter(&filter);
            prop_assert!(parsed.is_ok(), "{filter}");
            // One equality with the whole key: no wildcard, no further condition.
            let shown = format!("{:?}", parsed.unwrap());
            prop_assert_eq!(shown.matches("Sequence").count(), format!("{:?}", parse_filter("(&(objectClass=person)(mail=x))").unwrap()).matches("Sequence").count());
        }
    }
}
