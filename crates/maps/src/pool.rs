//! Look-ups at a server over connections that are kept: their deadline, their number, and a new connection for one that
//! the server has closed.

use crate::{Looked, LookupError, Map, Value, reference::NamedMap};
use mail::Answer;
use std::{
    borrow::Cow,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{sync::Semaphore, time::timeout};

/// How one kind of server or database is asked.
pub(crate) trait Backend: Send + Sync {
    /// An open connection. Dropping it closes it, also while a reply is awaited.
    type Connection: Send;

    /// True if keys are sent in lower case.
    const FOLDS: bool;

    /// Connects and logs in; the pool sets the time limit.
    fn connect(&self) -> impl Future<Output = Result<Self::Connection, String>> + Send;

    /// Asks for a key, and returns the connection, which is used again. After a failure the connection is closed.
    fn ask(
        &self,
        connection: Self::Connection,
        key: &str,
    ) -> impl Future<Output = Result<(Reply, Self::Connection), Failure>> + Send;
}

/// The reply of a server: a value, none, or an error in words.
pub(crate) type Reply = Result<Option<Value>, String>;

/// The reason why a connection has not answered.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The connection had ended before the request; another one may answer.
    Closed(String),
    /// The server cannot answer, or its answer is wrong.
    Wrong(String),
}

/// A map behind a server. Connections are kept for the next look-up.
pub(crate) struct Pooled<B: Backend> {
    backend: B,
    /// For messages: the map as the configuration names it, and where the server is.
    reference: String,
    server: String,
    timeout: Duration,
    /// Connections that no look-up uses.
    idle: Mutex<Vec<B::Connection>>,
    permits: Semaphore,
}

impl<B: Backend> Pooled<B> {
    /// Makes a map of its settings; connects with the first look-up.
    pub(crate) fn new(settings: &NamedMap, backend: B) -> Self {
        Self {
            backend,
            reference: format!("map:{}", settings.name),
            server: settings.source.to_string(),
            timeout: settings.timeout,
            idle: Mutex::new(Vec::new()),
            permits: Semaphore::new(settings.connections_max.clamp(1, Semaphore::MAX_PERMITS)),
        }
    }

    #[cfg(test)]
    pub(crate) fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    fn idle(&self) -> MutexGuard<'_, Vec<B::Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn ask(&self, key: &str) -> Reply {
        let _permit = self.permits.acquire().await.map_err(|error| error.to_string())?;
        // A server may have closed connections that were idle: then a new one is tried.
        loop {
            let Some(connection) = self.idle().pop() else { break };
            match self.backend.ask(connection, key).await {
                Ok(answered) => return self.keep(answered),
                Err(Failure::Closed(_)) => {}
                Err(Failure::Wrong(what)) => return Err(format!("ask {}: {what}", self.server)),
            }
        }
        let connection = self.connect().await?;
        match self.backend.ask(connection, key).await {
            Ok(answered) => self.keep(answered),
            Err(Failure::Closed(what) | Failure::Wrong(what)) => Err(format!("ask {}: {what}", self.server)),
        }
    }

    async fn connect(&self) -> Result<B::Connection, String> {
        self.backend.connect().await.map_err(|what| format!("connect to {}: {what}", self.server))
    }

    fn keep(&self, (reply, connection): (Reply, B::Connection)) -> Reply {
        self.idle().push(connection);
        reply.map_err(|what| format!("{} answers {what}", self.server))
    }

    async fn within_time<T>(
        &self,
        future: impl Future<Output = Result<T, String>>,
    ) -> Result<T, LookupError> {
        let answered = timeout(self.timeout, future).await;
        let answered =
            answered.unwrap_or_else(|_| Err(format!("no answer of {} in {:?}", self.server, self.timeout)));
        answered.map_err(|what| LookupError::new(&self.reference, what))
    }
}

impl<B: Backend> Map for Pooled<B> {
    fn get<'a>(&'a self, key: &'a str) -> Answer<'a, Looked> {
        if key.contains(char::is_control) {
            // No server has such a key, and none should have to guard its own protocols against it.
            return Answer::Ready(Ok(None));
        }
        let key = if B::FOLDS { mail::fold(key) } else { Cow::Borrowed(key) };
        Answer::later(async move { self.within_time(self.ask(&key)).await })
    }

    fn check(&self) -> Answer<'_, Result<(), LookupError>> {
        let connected = async {
            let connection = self.connect().await?;
            self.idle().push(connection);
            Ok(())
        };
        Answer::later(self.within_time(connected))
    }
}

/// The end of a task that moves a connection's bytes.
#[cfg(any(feature = "postgres", feature = "ldap"))]
#[derive(Debug)]
pub(crate) struct Background<T>(pub(crate) tokio::task::JoinHandle<T>);

#[cfg(any(feature = "postgres", feature = "ldap"))]
impl<T> Drop for Background<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
