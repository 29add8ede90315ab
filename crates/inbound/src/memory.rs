//! Sessions whose clients are in this process, for the simulator: all of a session but its socket.

use crate::{
    Budget, Client, ListenerOptions, Service, Settings, WorkerPool, session::SessionDriver, stream::Stream,
};
use std::{io, sync::Arc};
use tokio::{io::DuplexStream, runtime::Handle, sync::watch};

/// What sessions in memory share, as those of listeners do.
pub struct MemorySessions<S: Service> {
    service: Arc<S>,
    settings: Settings,
    budget: Arc<Budget>,
    closing: watch::Sender<bool>,
    workers: Arc<WorkerPool>,
}

impl<S: Service> MemorySessions<S> {
    /// Takes the runtime on which the sessions will run. Nothing runs yet.
    pub fn new(service: Arc<S>, settings: Settings, runtime: Handle) -> Self {
        let workers = WorkerPool::new([runtime], || false);
        Self { service, settings, budget: Arc::default(), closing: watch::Sender::new(false), workers }
    }

    /// Returns the session of a client at the other end of the stream. A client with [`Client::tls`] counts as one whose TLS
    /// began with the connection, although the stream is in clear text.
    ///
    /// # Panics
    /// With `usize::MAX` sessions.
    pub fn serve(
        &self,
        client: Client,
        stream: DuplexStream,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let options = ListenerOptions { kind: client.listener, ..ListenerOptions::default() };
        let driver = SessionDriver {
            bare_lf: options.bare_lf_of(self.service.is_trusted(&client)),
            settings: self.settings.clone(),
            service: self.service.clone(),
            budget: self.budget.clone(),
            tls: None,
            client,
            may_certify: false,
            options: Arc::new(options),
            closing: self.closing.subscribe(),
            workers: self.workers.clone(),
            worker: 0,
            _guard: self.budget.enter(usize::MAX, None).expect("there is room for it"),
            _listener_guard: Arc::default(),
        };
        async move {
            match driver.begin(Stream::Memory(stream)).await? {
                Some(session) => session.run().await.map(drop),
                None => Ok(()),
            }
        }
    }

    /// Ends the sessions that are between transactions, and the others at their end.
    pub fn close(&self) {
        self.closing.send_replace(true);
    }
}
