//! Maps in databases of MySQL and MariaDB. The query is prepared once for each connection.

use super::{password, values::Values};
use crate::{
    Value,
    pool::{Backend, Failure, Pooled, Reply},
    reference::NamedMap,
    source::{Trust, is_this_machine},
};
use mysql_async::{
    Conn, DriverError, Error, Opts, OptsBuilder, Params, Row, SslOpts, Statement, UrlError, Value as Field,
    prelude::Queryable as _,
};

/// A database and the query that a key is put to.
pub(crate) struct MySql {
    options: Opts,
    is_tls: bool,
    query: String,
    trust: Trust,
}

/// A connection on which the query is prepared.
pub(crate) struct Session {
    connection: Conn,
    statement: Statement,
}

/// Returns the fault of a connection's text, and the correct form.
pub(crate) fn fault(connection: &str) -> Option<(String, &'static str)> {
    const FORM: &str = "write \"mysql://postrider@localhost/mail?socket=/run/mysqld/mysqld.sock\" or \"mysql://postrider@db.example.com/mail\"";
    let missing = |what: &str| Some((format!("the {what} is missing"), FORM));
    if !connection.contains("://") {
        return Some(("not a connection to MySQL".to_owned(), FORM));
    }
    match Opts::from_url(connection) {
        // A password could be part of what the library cannot read.
        Err(UrlError::Parse(why)) => Some((why.to_string(), FORM)),
        Err(UrlError::UnknownParameter { param } | UrlError::InvalidParamValue { param, .. }) => {
            Some((format!("the parameter `{param}` cannot be used"), FORM))
        }
        Err(_) => Some(("not a connection to MySQL".to_owned(), FORM)),
        Ok(options) if options.pass().is_some() => {
            Some(("passwords must not be in this file".to_owned(), "write secret = \"file:FILE\" below"))
        }
        Ok(options) if options.user().is_none_or(str::is_empty) => missing("user"),
        Ok(options) if options.db_name().is_none_or(str::is_empty) => missing("database"),
        Ok(_) => None,
    }
}

impl MySql {
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
        if let Some((what, _)) = fault(connection) {
            return Err(what);
        }
        let options = Opts::from_url(connection).map_err(|error| error.to_string())?;
        let host = options.ip_or_hostname();
        let is_here = options.socket().is_some() || is_this_machine(host);
        let is_tls = options.ssl_opts().is_some() || !is_here && !turns_tls_off(connection);
        let backend = Self { options, is_tls, query: query.to_owned(), trust: trust.clone() };
        Ok(Pooled::new(settings, backend))
    }
}

/// Returns whether a connection says that it is made without TLS, which is the library's default.
fn turns_tls_off(connection: &str) -> bool {
    let parameters = connection.split_once('?').map_or("", |(_, parameters)| parameters);
    parameters.split('&').any(|parameter| parameter == "require_ssl=false")
}

impl Backend for MySql {
    type Connection = Session;
    const FOLDS: bool = true;

    async fn connect(&self) -> Result<Session, String> {
        // Else the library asks the server for its socket, and connects again.
        let mut options = OptsBuilder::from_opts(self.options.clone()).prefer_socket(false);
        if let Some(file) = &self.trust.secret {
            let secret = String::from_utf8(password(file).await?).map_err(|_| "the password is not UTF-8")?;
            options = options.pass(Some(secret));
        }
        if self.is_tls {
            let authorities = self.trust.ca_file.clone();
            let has_own = authorities.is_some();
            let tls = SslOpts::default()
                .with_root_certs(authorities.into_iter().map(Into::into).collect())
                .with_disable_built_in_roots(has_own);
            options = options.ssl_opts(tls);
        }
        let mut connection = Conn::new(options).await.map_err(|error| told(&error))?;
        let statement = connection.prep(self.query.as_str()).await.map_err(|error| told(&error))?;
        if statement.num_params() == 0 {
            return Err("the query has no parameter: write ? for the key".to_owned());
        }
        if statement.num_columns() != 1 {
            return Err(format!("the query has {} columns: select one", statement.num_columns()));
        }
        Ok(Session { connection, statement })
    }

    async fn ask(&self, mut session: Session, key: &str) -> Result<(Reply, Session), Failure> {
        let parameters = vec![Field::from(key); session.statement.num_params().into()];
        let asked = session.connection.exec(&session.statement, Params::Positional(parameters));
        let rows: Vec<Row> = asked.await.map_err(|error| failure(&error))?;
        let value = value(rows).map_err(Failure::Wrong)?;
        Ok((Ok(value), session))
    }
}

fn value(rows: Vec<Row>) -> Result<Option<Value>, String> {
    let mut values = Values::default();
    for field in rows.into_iter().flat_map(Row::unwrap) {
        match field {
            Field::NULL => {}
            Field::Bytes(text) => values.add(&text)?,
            Field::Int(number) => values.add(number.to_string().as_bytes())?,
            Field::UInt(number) => values.add(number.to_string().as_bytes())?,
            Field::Float(_) | Field::Double(_) | Field::Date(..) | Field::Time(..) => {
                return Err("the column is neither text nor a whole number: write CAST(… AS CHAR)".to_owned());
            }
        }
    }
    Ok(values.finish())
}

fn failure(error: &Error) -> Failure {
    // The server stops, has ended the connection (MariaDB), or has waited too long (MySQL).
    const ENDED: [u16; 4] = [1053, 1317, 1927, 4031];
    let is_ended = match error {
        Error::Io(_) | Error::Driver(DriverError::ConnectionClosed) => true,
        Error::Server(error) => ENDED.contains(&error.code),
        _ => false,
    };
    let told = told(error);
    if is_ended { Failure::Closed(told) } else { Failure::Wrong(told) }
}

/// Returns an error in words: those of the server, or of the library.
fn told(error: &Error) -> String {
    match error {
        Error::Server(error) => format!("{} ({})", error.message, error.code),
        Error::Driver(DriverError::NoClientSslFlagFromServer) => {
            "the server has no TLS: write require_ssl=false behind the `?` of the connection if the way to it is safe"
                .to_owned()
        }
        Error::Driver(error) => error.to_string(),
        Error::Io(error) => error.to_string(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_names_user_and_database_and_no_password() {
        for good in [
            "mysql://u@localhost/mail?socket=/run/mysqld/mysqld.sock",
            "mysql://u@db.test:3307/mail",
            "mysql://u@[2001:db8::1]/mail?require_ssl=false",
        ] {
            assert_eq!(fault(good), None, "{good}");
        }
        for (bad, what) in [
            ("host=localhost user=x", "not a connection to MySQL"),
            ("postgresql://u@db.test/mail", "not a connection to MySQL"),
            ("mysql://u:hushhush@db.test/mail", "passwords must not be in this file"),
            ("mysql://db.test/mail", "the user is missing"),
            ("mysql://u@db.test", "the database is missing"),
            ("mysql://u@db.test/mail?charset=latin1", "the parameter `charset` cannot be used"),
        ] {
            let (told, _) = fault(bad).unwrap();
            assert_eq!(told, what, "{bad}");
        }
    }

    #[test]
    fn tls_is_for_other_machines_unless_they_have_none() {
        assert!(turns_tls_off("mysql://u@db.test/mail?tcp_nodelay=true&require_ssl=false"));
        assert!(!turns_tls_off("mysql://u@db.test/require_ssl=false"));
        assert!(!turns_tls_off("mysql://u@db.test/mail?require_ssl=true"));
    }
}
