//! Maps in Redis or Valkey: the value of a string, by GET.

use super::{password, values::Values};
use crate::{
    pool::{Backend, Failure, Reply},
    source::{KEY, Server, Trust},
};
use ::redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ErrorKind, IntoConnectionInfo as _, RedisConnectionInfo,
    RedisError, TlsCertificates, aio::MultiplexedConnection,
};
use std::path::Path;

/// Where the server is, how to log in, and the key to ask for.
pub(crate) struct Redis {
    pub(crate) server: Server,
    pub(crate) is_tls: bool,
    pub(crate) key: String,
    pub(crate) database: u32,
    pub(crate) user: Option<String>,
    pub(crate) trust: Trust,
}

impl Redis {
    fn address(&self) -> ConnectionAddr {
        match (&self.server, self.is_tls) {
            (Server::Unix(path), _) => ConnectionAddr::Unix(path.clone()),
            (Server::Tcp(host), false) => ConnectionAddr::Tcp(host.host.clone(), host.port),
            (Server::Tcp(host), true) => ConnectionAddr::TcpTls {
                host: host.host.clone(),
                port: host.port,
                insecure: false,
                tls_params: None,
            },
        }
    }

    async fn client(&self) -> Result<Client, String> {
        let mut settings =
            RedisConnectionInfo::default().set_db(self.database.into()).set_skip_set_lib_name();
        if let Some(file) = &self.trust.secret {
            let password = String::from_utf8(password(file).await?);
            settings = settings.set_password(password.map_err(|_| "the password is not UTF-8")?);
        }
        if let Some(user) = &self.user {
            settings = settings.set_username(user);
        }
        let info = self.address().into_connection_info().map_err(told)?.set_redis_settings(settings);
        if !self.is_tls {
            return Client::open(info).map_err(told);
        }
        let root_cert = match &self.trust.ca_file {
            Some(file) => Some(read(file).await?),
            None => None,
        };
        Client::build_with_tls(info, TlsCertificates { client_tls: None, root_cert }).map_err(told)
    }
}

async fn read(file: &Path) -> Result<Vec<u8>, String> {
    tokio::fs::read(file).await.map_err(|e| format!("read {}: {e}", file.display()))
}

// By value, as it is the argument of `map_err`.
#[allow(clippy::needless_pass_by_value)]
fn told(error: RedisError) -> String {
    error.to_string()
}

impl Backend for Redis {
    type Connection = MultiplexedConnection;
    const FOLDS: bool = true;

    async fn connect(&self) -> Result<MultiplexedConnection, String> {
        // The look-up has a deadline, which is the configured one.
        let settings = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let client = self.client().await?;
        client.get_multiplexed_async_connection_with_config(&settings).await.map_err(told)
    }

    async fn ask(
        &self,
        mut connection: MultiplexedConnection,
        key: &str,
    ) -> Result<(Reply, MultiplexedConnection), Failure> {
        let key = self.key.replace(KEY, key);
        let asked = ::redis::cmd("GET").arg(key).query_async::<Option<Vec<u8>>>(&mut connection).await;
        let reply = match asked {
            Ok(None) => Ok(None),
            Ok(Some(bytes)) => {
                let mut values = Values::default();
                values.add(&bytes).map_err(Failure::Wrong)?;
                Ok(values.finish())
            }
            Err(error) => match error.kind() {
                ErrorKind::Server(_) | ErrorKind::Extension => Err(error.to_string()),
                ErrorKind::Io => return Err(Failure::Closed(error.to_string())),
                _ => return Err(Failure::Wrong(error.to_string())),
            },
        };
        Ok((reply, connection))
    }
}
