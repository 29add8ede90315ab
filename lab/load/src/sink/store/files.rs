//! One synced file for each message, as the simplest of queues keeps them.

use super::Stored;
use mail::{Envelope, IdSource, UnixMillis};
use spool::{
    DiskCallCounter,
    disk::{Disk, RealDisk},
};
use std::{
    fmt::Write as _,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::{SystemTime, UNIX_EPOCH},
};
use tokio::sync::oneshot;

/// Threads that write for the models that must not block, as many as the workers of the pool, if nothing else is said.
const WRITERS: usize = super::super::POOL_WORKERS;

/// A message on its way to a thread that writes it.
struct Job {
    name: String,
    text: Vec<u8>,
    done: oneshot::Sender<Result<(), String>>,
}

/// A store that writes and syncs one file for each message.
pub(crate) struct Files {
    directories: Arc<[Box<dyn Disk>]>,
    ids: IdSource,
    jobs: Mutex<Option<Sender<Job>>>,
    writer_count: usize,
}

impl Files {
    /// Makes the directories.
    pub(crate) fn open(
        path: &Path,
        count: u32,
        writers: Option<u16>,
        calls: &DiskCallCounter,
    ) -> Result<Self, String> {
        let open = |number: u32| {
            let path = path.join(format!("{number:04}"));
            let disk = RealDisk::new(&path).map_err(|e| format!("create {}: {e}", path.display()))?;
            Ok(Box::new(calls.count(Arc::new(disk))) as Box<dyn Disk>)
        };
        let directories: Result<Vec<_>, String> = (0..count).map(open).collect();
        Ok(Self {
            directories: directories?.into(),
            ids: IdSource::default(),
            jobs: Mutex::default(),
            writer_count: writers.map_or(WRITERS, usize::from),
        })
    }

    /// Writes a message here and now, or hands it to a thread.
    pub(crate) fn store(&self, envelope: &Envelope, content: &[u8], may_block: bool) -> Stored {
        let name = self.ids.next(now().0).to_string();
        let text = text_of(envelope, content);
        if may_block {
            return Box::pin(std::future::ready(write(&self.directories, &name, &text)));
        }
        let (done, written) = oneshot::channel();
        let sent = self.writers().and_then(|jobs| {
            jobs.send(Job { name, text, done })
                .map_err(|_| "store a message: no thread writes any more".into())
        });
        Box::pin(async move {
            sent?;
            written.await.unwrap_or_else(|_| Err("store a message: the thread that wrote it panicked".into()))
        })
    }

    /// Starts the threads when they are needed first.
    fn writers(&self) -> Result<Sender<Job>, String> {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(jobs) = &*jobs {
            return Ok(jobs.clone());
        }
        let (sender, receiver) = channel();
        let receiver = Arc::new(Mutex::new(receiver));
        for _ in 0..self.writer_count {
            let (receiver, directories) = (receiver.clone(), self.directories.clone());
            let builder = thread::Builder::new().stack_size(256 * 1024);
            let started = builder.spawn(move || work(&receiver, &directories));
            started.map_err(|e| format!("start a thread: {e}"))?;
        }
        Ok(jobs.insert(sender).clone())
    }
}

/// A thread that writes, until nobody can send to it.
fn work(jobs: &Mutex<Receiver<Job>>, directories: &[Box<dyn Disk>]) {
    loop {
        let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Job { name, text, done }) = job else { return };
        // The session may be gone.
        let _ = done.send(write(directories, &name, &text));
    }
}

/// Writes a file and makes it durable with its name. What cannot be completed leaves no file.
fn write(directories: &[Box<dyn Disk>], name: &str, text: &[u8]) -> Result<(), String> {
    let directory = &directories[crc32c::crc32c(name.as_bytes()) as usize % directories.len()];
    let written = directory.create(name).and_then(|file| {
        file.write_at(0, text).and_then(|()| file.sync_data()).and_then(|()| directory.sync_dir())
    });
    written.map_err(|e| {
        // It may not be there.
        let _ = directory.remove(name);
        format!("store a message in {name}: {e}")
    })
}

/// Returns the content of a file: envelope, empty line, content.
fn text_of(envelope: &Envelope, content: &[u8]) -> Vec<u8> {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(text, "MAIL FROM:<{}>", envelope.reverse_path);
    for recipient in &envelope.recipients {
        let _ = writeln!(text, "RCPT TO:<{}>", recipient.path);
    }
    text.push('\n');
    let mut text = text.into_bytes();
    text.extend_from_slice(content);
    text
}

pub(super) fn now() -> UnixMillis {
    UnixMillis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64)
}
