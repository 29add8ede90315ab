//! A daemon for tests: takes messages in and keeps them.

use crate::{Acceptor, Refusal, Submission, serve_submit};
use control::socket;
use mail::QueueId;
use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
};
use tempfile::TempDir;
use tokio::{net::UnixListener, runtime::Runtime};

/// Keeps what was submitted.
#[derive(Default)]
pub(crate) struct Memory {
    pub(crate) submitted: Mutex<Vec<Submission>>,
    /// The refusal of every message; `None`: messages are accepted.
    pub(crate) refuse: Mutex<Option<Refusal>>,
    /// The reasons of messages that were given back.
    pub(crate) given_back: Mutex<Vec<String>>,
    /// Nothing can be given back.
    pub(crate) keeps: bool,
}

impl Acceptor for Memory {
    async fn submit(&self, submission: Submission) -> Result<QueueId, Refusal> {
        if let Some(refusal) = self.refuse.lock().unwrap().clone() {
            return Err(refusal);
        }
        self.submitted.lock().unwrap().push(submission);
        Ok(QueueId(77))
    }

    async fn give_back(&self, _: Submission, why: &str) -> Result<QueueId, Refusal> {
        if self.keeps {
            return Err(Refusal::permanent(why));
        }
        self.given_back.lock().unwrap().push(why.to_owned());
        Ok(QueueId(78))
    }
}

/// A daemon that listens on its submit socket, until it is dropped.
pub(crate) struct Daemon {
    pub(crate) target: Arc<Memory>,
    pub(crate) socket: PathBuf,
    _runtime: Runtime,
    _dir: TempDir,
}

/// The largest message that this daemon takes.
pub(crate) const MESSAGE_BYTES_MAX: u64 = 100_000;

impl Daemon {
    pub(crate) fn serving() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (target, path) = (Arc::<Memory>::default(), dir.path().join("submit"));
        let inside = runtime.enter();
        let listener = UnixListener::from_std(socket::bind(&path, 0o666, None).unwrap()).unwrap();
        drop(inside);
        runtime.spawn(serve_submit(listener, MESSAGE_BYTES_MAX, target.clone()));
        Self { target, socket: path, _runtime: runtime, _dir: dir }
    }
}
