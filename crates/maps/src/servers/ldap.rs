//! Maps in directories (LDAP, RFC 4511): the values of an attribute of the entries that a filter finds.

use super::{password, tls::client_config, values::Values};
use crate::{
    Looked, LookupError, Map, Value,
    pool::{Backend, Background, Failure, Pooled, Reply},
    reference::NamedMap,
    source::{KEY, Ldap as Search, Server},
};
use ::ldap3::{
    DerefAliases, Ldap, LdapConnAsync, LdapConnSettings, LdapError, Scope, SearchEntry, SearchOptions,
    ldap_escape, parse_filter,
};
use mail::Answer;
use std::{sync::Arc, time::Duration};
use tokio::{sync::Semaphore, time::timeout};

/// Entries of an answer. More than these are a fault of the filter.
const ENTRIES_MAX: i32 = 1000;

/// A server and the search that a key is put into.
#[derive(Clone)]
pub(crate) struct Directory {
    search: Arc<Search>,
    timeout: Duration,
    /// The answer is a name, and a line with the value behind it.
    finds_entries: bool,
}

/// A map in a directory that verifies passwords as well.
pub(crate) struct DirectoryMap {
    values: Pooled<Directory>,
    /// Finds the name of an entry.
    entries: Pooled<Directory>,
    directory: Directory,
    reference: String,
    /// Each verification has a connection of its own.
    permits: Semaphore,
}

/// Results of a bind that say that name and password do not belong together: inappropriateAuthentication, invalidCredentials, and
/// noSuchObject (RFC 4511 §4.2).
const WRONG: [u32; 3] = [48, 49, 32];

pub(crate) struct Session {
    ldap: Ldap,
    /// Moves the bytes. Ends with the session, also while the server does not answer.
    background: Background<()>,
}

/// Returns whether the text is a valid filter once `{key}` is replaced.
pub(crate) fn is_filter(text: &str) -> bool {
    parse_filter(text.replace(KEY, "x")).is_ok()
}

/// Fills a key into a filter. The key is a value whatever its characters are (RFC 4515 §3).
fn filter_of(text: &str, key: &str) -> String {
    text.replace(KEY, &ldap_escape(key))
}

impl Directory {
    /// Makes a map; connects with the first look-up.
    pub(crate) fn map(settings: &NamedMap, search: &Search) -> DirectoryMap {
        let search = Arc::new(search.clone());
        let directory = Self { search, timeout: settings.timeout, finds_entries: false };
        let entries = Self { finds_entries: true, ..directory.clone() };
        DirectoryMap {
            values: Pooled::new(settings, directory.clone()),
            entries: Pooled::new(settings, entries),
            directory,
            reference: format!("map:{}", settings.name),
            permits: Semaphore::new(settings.connections_max.clamp(1, Semaphore::MAX_PERMITS)),
        }
    }

    async fn open(&self) -> Result<(LdapConnAsync, Ldap), String> {
        let server = &self.search.server;
        let mut settings = LdapConnSettings::new();
        if self.search.is_encrypted() {
            settings = settings.set_starttls(self.search.starts_tls);
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

impl DirectoryMap {
    /// Verifies the password by a bind as this entry, on a connection of its own.
    async fn is_password(&self, entry: &str, password: &str) -> Result<bool, String> {
        let _permit = self.permits.acquire().await.map_err(|error| error.to_string())?;
        let (connection, mut ldap) = self.directory.open().await?;
        let _background = Background(tokio::spawn(async move { drop(connection.drive().await) }));
        let bound = ldap.simple_bind(entry, password).await;
        let result = bound.map_err(|error| format!("log in as {entry}: {error}"))?;
        match result.rc {
            0 => Ok(true),
            code if WRONG.contains(&code) => Ok(false),
            _ => Err(format!("log in as {entry}: {result}")),
        }
    }
}

impl Map for DirectoryMap {
    fn get<'a>(&'a self, key: &'a str) -> Answer<'a, Looked> {
        self.values.get(key)
    }

    fn check(&self) -> Answer<'_, Result<(), LookupError>> {
        self.values.check()
    }

    fn verify<'a>(&'a self, key: &'a str, password: &'a str) -> Answer<'a, Looked> {
        // Without a password it would be an anonymous login, which succeeds (RFC 4513 §5.1.2).
        if password.is_empty() {
            return Answer::Ready(Ok(None));
        }
        Answer::later(async move {
            let found = self.entries.get(key).wait().await?;
            let (entry, value) = match &found {
                Some(found) => found.split_once('\n').unwrap_or((found, "")),
                // A name that nobody has takes the same time.
                None => (&*self.directory.search.base, ""),
            };
            let verified = timeout(self.directory.timeout, self.is_password(entry, password)).await;
            let verified =
                verified.unwrap_or_else(|_| Err(format!("no answer in {:?}", self.directory.timeout)));
            let is_right = verified.map_err(|what| LookupError::new(&self.reference, what))?;
            Ok((is_right && found.is_some()).then(|| value.into()))
        })
    }
}

/// Encodes the path of a socket as the host of an `ldapi:` URL.
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
        let found = find(ldap, self.clone(), filter);
        let mut task = Background(tokio::spawn(found));
        let found = (&mut task.0).await;
        let found = found.unwrap_or_else(|_| Err(Failure::Wrong("the entry cannot be read".to_owned())));
        found.map(|(reply, ldap)| (reply, Session { ldap, background }))
    }
}

async fn find(
    mut ldap: Ldap,
    Directory { search, timeout, finds_entries }: Directory,
    filter: String,
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
    let value = if finds_entries { entry } else { value };
    let value = value(Vec::from_iter(entries), &search.attribute).map_err(Failure::Wrong)?;
    Ok((Ok(value), ldap))
}

/// Returns the name of the entry and the value of its attribute.
fn entry(entries: Vec<SearchEntry>, attribute: &str) -> Result<Option<Value>, String> {
    let mut found = None;
    for entry in entries {
        let name = entry.dn.clone();
        let Some(value) = value(vec![entry], attribute)? else { continue };
        if found.is_some() {
            return Err("several entries have the name".to_owned());
        }
        found = Some(format!("{name}\n{value}").into());
    }
    Ok(found)
}

fn value(entries: Vec<SearchEntry>, attribute: &str) -> Result<Option<Value>, String> {
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
