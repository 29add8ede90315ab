//! Maps in databases and directories. Each kind is a Cargo feature.

#[cfg(feature = "ldap")]
pub(crate) mod ldap;
#[cfg(feature = "mysql")]
pub(crate) mod mysql;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
#[cfg(feature = "redis")]
pub(crate) mod redis;
#[cfg(feature = "sqlite")]
pub(crate) mod sqlite;
#[cfg(any(feature = "postgres", feature = "ldap"))]
mod tls;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql", feature = "redis", feature = "ldap"))]
mod values;

use crate::{Looked, LookupError, Map, reference::NamedMap, socketmap::Socketmap, source::Source};
use mail::Answer;
use std::sync::Arc;

/// Opens the map of a source. Nothing is asked before the first look-up.
pub(crate) fn open(settings: &NamedMap) -> Arc<dyn Map> {
    match &settings.source {
        Source::Socketmap { server, remote_name } => Arc::new(Socketmap::map(settings, server, remote_name)),
        #[cfg(feature = "sqlite")]
        Source::Sqlite { file, query } => Arc::new(sqlite::Sqlite::map(settings, file, query)),
        #[cfg(feature = "postgres")]
        Source::Postgres { connection, query, trust } => {
            match postgres::Postgres::map(settings, connection, query, trust) {
                Ok(map) => Arc::new(map),
                Err(what) => Unusable::map(settings, what),
            }
        }
        #[cfg(feature = "mysql")]
        Source::MySql { connection, query, trust } => {
            match mysql::MySql::map(settings, connection, query, trust) {
                Ok(map) => Arc::new(map),
                Err(what) => Unusable::map(settings, what),
            }
        }
        #[cfg(feature = "redis")]
        Source::Redis { server, is_tls, key, database, user, trust } => {
            let server = redis::Redis {
                server: server.clone(),
                is_tls: *is_tls,
                key: key.clone(),
                database: *database,
                user: user.clone(),
                trust: trust.clone(),
            };
            Arc::new(crate::pool::Pooled::new(settings, server))
        }
        #[cfg(feature = "ldap")]
        Source::Ldap(search) => Arc::new(ldap::Directory::map(settings, search)),
        // The configuration has reported it: only a fault of the caller comes here.
        #[allow(unreachable_patterns)]
        other => {
            Unusable::map(settings, format!("this program was built without the feature `{}`", other.word()))
        }
    }
}

/// Stands for a map whose settings are wrong: each look-up fails with this error.
struct Unusable(LookupError);

impl Unusable {
    fn map(settings: &NamedMap, what: String) -> Arc<dyn Map> {
        Arc::new(Self(LookupError::new(&format_args!("map:{}", settings.name), what)))
    }
}

impl Map for Unusable {
    fn get<'a>(&'a self, _: &'a str) -> Answer<'a, Looked> {
        Answer::Ready(Err(self.0.clone()))
    }

    fn check(&self) -> Answer<'_, Result<(), LookupError>> {
        Answer::Ready(Err(self.0.clone()))
    }
}

/// Reads a password, away from the threads that serve connections.
#[cfg(any(feature = "postgres", feature = "mysql", feature = "redis", feature = "ldap"))]
async fn password(place: &crate::secret::SecretPlace) -> Result<Vec<u8>, String> {
    let place = place.clone();
    let read = tokio::task::spawn_blocking(move || place.read()).await;
    read.unwrap_or_else(|_| Err("read the password: given up".to_owned()))
}
