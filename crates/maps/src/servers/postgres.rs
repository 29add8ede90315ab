//! Maps in databases of PostgreSQL. The query is prepared once for each connection.

use super::{
    password,
    tls::{MakeTls, client_config},
    values::Values,
};
use crate::{
    Value,
    pool::{Backend, Background, Failure, Pooled, Reply},
    reference::NamedMap,
    source::{Trust, is_this_machine},
};
use std::error::Error as _;
use tokio_postgres::{
    Client, Config, Error, NoTls, Row, Statement,
    config::{Host, SslMode},
    types::{FromSql, ToSql, Type},
};

/// A database and the query that a key is put to.
pub(crate) struct Postgres {
    config: Config,
    query: String,
    trust: Trust,
}

/// A connection on which the query is prepared.
pub(crate) struct Session {
    client: Client,
    statement: Statement,
    column: Column,
    /// Moves the bytes. Ends with the session, also while the server does not answer.
    _background: Background<()>,
}

/// Types of the result that become text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    Text,
    Bool,
    Int2,
    Int4,
    Int8,
}

impl Column {
    fn of(found: &Type) -> Option<Self> {
        Some(match *found {
            Type::BOOL => Self::Bool,
            Type::INT2 => Self::Int2,
            Type::INT4 => Self::Int4,
            Type::INT8 => Self::Int8,
            _ if <&str as FromSql<'_>>::accepts(found) => Self::Text,
            _ => return None,
        })
    }

    fn value(self, row: &Row) -> Result<Option<String>, Error> {
        fn shown<'r, T: FromSql<'r> + ToString>(row: &'r Row) -> Result<Option<String>, Error> {
            row.try_get::<_, Option<T>>(0).map(|value| value.map(|value| value.to_string()))
        }
        match self {
            Self::Text => shown::<&str>(row),
            Self::Bool => shown::<bool>(row),
            Self::Int2 => shown::<i16>(row),
            Self::Int4 => shown::<i32>(row),
            Self::Int8 => shown::<i64>(row),
        }
    }
}

/// Returns the fault of a connection's text, and the correct form.
pub(crate) fn fault(connection: &str) -> Option<(String, &'static str)> {
    const FORM: &str = "write \"host=/run/postgresql dbname=mail user=postrider\"";
    match connection.parse::<Config>() {
        Err(error) => Some((told(&error), FORM)),
        Ok(config) if config.get_password().is_some() => {
            Some(("passwords must not be in this file".to_owned(), "write secret = \"file:FILE\" below"))
        }
        Ok(config) if config.get_hosts().is_empty() => Some(("`host` is missing".to_owned(), FORM)),
        Ok(config) if config.get_user().is_none() && own_name().is_none() => {
            Some(("`user` is missing, and the user of this process has no name".to_owned(), FORM))
        }
        Ok(_) => None,
    }
}

/// The name of the user of this process, which libpq takes, too, where the connection names no user.
fn own_name() -> Option<String> {
    let own = machine::accounts::user_numbered(rustix::process::geteuid().as_raw());
    own.ok().flatten().map(|user| user.name)
}

impl Postgres {
    /// Makes a map; connects with the first look-up.
    ///
    /// # Errors
    /// The text of the connection cannot be used.
    pub(crate) fn map(
        settings: &NamedMap,
        connection: &str,
        query: &str,
        trust: &Trust,
    ) -> Result<Pooled<Self>, String> {
        let mut config: Config = connection.parse().map_err(|error| told(&error))?;
        config.application_name("postrider");
        if config.get_user().is_none()
            && let Some(name) = own_name()
        {
            config.user(name);
        }
        let is_here = |host: &Host| match host {
            Host::Unix(_) => true,
            Host::Tcp(host) => is_this_machine(host),
        };
        // The default of libpq takes any certificate, and no encryption if somebody on the way prefers that.
        if config.get_ssl_mode() == SslMode::Prefer {
            let is_here = config.get_hosts().iter().all(is_here);
            config.ssl_mode(if is_here { SslMode::Disable } else { SslMode::Require });
        }
        let backend = Self { config, query: query.to_owned(), trust: trust.clone() };
        Ok(Pooled::new(settings, backend))
    }

    async fn open(&self) -> Result<(Client, Background<()>), String> {
        let mut config = self.config.clone();
        if let Some(file) = &self.trust.secret {
            config.password(password(file).await?);
        }
        if config.get_ssl_mode() == SslMode::Disable {
            let (client, connection) = config.connect(NoTls).await.map_err(|error| told(&error))?;
            return Ok((client, in_background(connection)));
        }
        let tls = MakeTls(client_config(self.trust.ca_file.as_deref()).await?);
        let (client, connection) = config.connect(tls).await.map_err(|error| told(&error))?;
        Ok((client, in_background(connection)))
    }
}

fn in_background(connection: impl Future<Output = Result<(), Error>> + Send + 'static) -> Background<()> {
    // The request that is under way reports an error, too.
    Background(tokio::spawn(async move { drop(connection.await) }))
}

impl Backend for Postgres {
    type Connection = Session;
    const FOLDS: bool = true;

    async fn connect(&self) -> Result<Session, String> {
        let (client, background) = self.open().await?;
        let statement = client.prepare(&self.query).await.map_err(|error| told(&error))?;
        if statement.params().is_empty() {
            return Err("the query has no parameter: write $1 for the key".to_owned());
        }
        if let Some(other) = statement.params().iter().find(|one| !<&str as ToSql>::accepts(one)) {
            return Err(format!("the key is compared with a column of the type {other}: write $1::text"));
        }
        let [column] = statement.columns() else {
            return Err(format!("the query has {} columns: select one", statement.columns().len()));
        };
        let Some(column) = Column::of(column.type_()) else {
            let (name, found) = (column.name(), column.type_());
            return Err(format!("the column {name} has the type {found}: write {name}::text"));
        };
        Ok(Session { client, statement, column, _background: background })
    }

    async fn ask(&self, session: Session, key: &str) -> Result<(Reply, Session), Failure> {
        let parameter: &(dyn ToSql + Sync) = &key;
        let parameters = vec![parameter; session.statement.params().len()];
        let rows =
            session.client.query(&session.statement, &parameters).await.map_err(|error| failure(&error))?;
        let value = value(&rows, session.column).map_err(Failure::Wrong)?;
        Ok((Ok(value), session))
    }
}

fn value(rows: &[Row], column: Column) -> Result<Option<Value>, String> {
    let mut values = Values::default();
    for row in rows {
        if let Some(text) = column.value(row).map_err(|error| told(&error))? {
            values.add(text.as_bytes())?;
        }
    }
    Ok(values.finish())
}

fn failure(error: &Error) -> Failure {
    // Class 57P: the server is stopping, or has ended the connection.
    let is_ended = error.code().is_some_and(|code| code.code().starts_with("57P"));
    let told = told(error);
    if error.is_closed() || is_ended { Failure::Closed(told) } else { Failure::Wrong(told) }
}

/// Returns an error in words: those of the server, or the causes one behind the other.
fn told(error: &Error) -> String {
    if let Some(error) = error.as_db_error() {
        return format!("{} ({})", error.message(), error.code().code());
    }
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(one) = cause {
        text += &format!(": {one}");
        cause = one.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_without_a_user_takes_the_name_of_the_process() {
        if own_name().is_some() {
            assert_eq!(fault("host=/run/postgresql dbname=mail"), None);
        }
        assert!(fault("dbname=mail").is_some());
    }
}
