//! A thread that puts messages into the spool as the daemon's user, while root reads the other queue.

use crate::{
    cli::{CliError, map, owner},
    expansion::{self, Expansion, Outcome as Expanded},
    imported::{self, ImportList},
    serve::{CHUNK_BYTES, prepare_folders, wiring},
};
use bytes::Bytes;
use config::Settings;
use control::Exit;
use import::{LastAttempt, QueuedMessage};
use mail::{
    ChunkId, Content, Envelope, ForwardPath, IdSource, Mailbox, Message, Outcome, Part, Recipient,
    UnixMillis, header::ContentScanner,
};
use rewrite::passed_on;
use spool::{CommitSeq, Entry, RecipientState, Recovered, Refused, Spool, SpoolFailure};
use std::{
    collections::HashSet,
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread::JoinHandle,
    time::Duration,
};
use submission::maildrop;

/// Messages that are durable in the spool before their keys are written to the list.
const BATCH: usize = 256;
/// Messages that are read and not written yet.
const WAITING: usize = 32;
/// A disk that is behind is asked again after this.
const BEHIND: Duration = Duration::from_millis(5);

/// The work of the writer.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Written {
    pub(super) messages: u64,
    pub(super) recipients: u64,
    /// Imported by an earlier run.
    pub(super) known: u64,
    /// Not imported now, because a map did not answer.
    pub(super) delayed: u64,
}

/// The other end of the thread.
pub(super) struct Writer {
    to: Option<SyncSender<Box<QueuedMessage>>>,
    thread: JoinHandle<Result<Written, CliError>>,
}

impl Writer {
    /// Starts the thread.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(super) fn start(server: &'static str, settings: Settings) -> Result<Self, CliError> {
        let (to, from) = sync_channel(WAITING);
        let thread = std::thread::Builder::new().name("import".to_owned());
        let thread = thread.spawn(move || write(server, &settings, &from));
        let thread = thread.map_err(|e| CliError::new(Exit::Unavailable, format!("start a thread: {e}")))?;
        Ok(Self { to: Some(to), thread })
    }

    /// Hands a message over.
    ///
    /// # Errors
    /// The thread has ended; [`Writer::finish`] says why.
    pub(super) fn write(&self, message: Box<QueuedMessage>) -> Result<(), CliError> {
        let sent = self.to.as_ref().map(|to| to.send(message).is_ok());
        if sent == Some(true) {
            Ok(())
        } else {
            Err(CliError::new(Exit::Unavailable, "the import has ended"))
        }
    }

    /// Waits until everything is durable.
    ///
    /// # Errors
    /// The spool, or the list of imported messages, cannot be written.
    pub(super) fn finish(mut self) -> Result<Written, CliError> {
        self.to = None;
        self.thread.join().unwrap_or_else(|_| Err(CliError::new(Exit::Software, "the import has panicked")))
    }
}

fn write(
    server: &'static str,
    settings: &Settings,
    from: &Receiver<Box<QueuedMessage>>,
) -> Result<Written, CliError> {
    // Directories that are not there yet get the owner that they would have from the daemon.
    prepare_folders(settings).map_err(|text| CliError::new(Exit::CantCreate, text))?;
    owner::become_owner(settings)?;
    let drop_dir = &settings.control.maildrop;
    maildrop::prepare(drop_dir)
        .map_err(|e| CliError::new(Exit::CantCreate, format!("prepare {}: {e}", drop_dir.display())))?;
    let list = |error: &dyn std::fmt::Display| {
        let path = settings.data_dir.join("imported");
        CliError::new(Exit::IoErr, format!("the list of imported messages, {}: {error}", path.display()))
    };
    let runtime = map::runtime()?;
    let (expansion, mut spool) = {
        let _context = runtime.enter();
        let spool = wiring::spool(settings).map_err(|why| CliError::new(why.exit, why.text))?;
        (Expansion::new(settings, wiring::maps(settings, None)), spool)
    };
    let (ids, mut live) = (IdSource::default(), Vec::new());
    let report = spool.recover(&mut |found| {
        ids.never_before(found.message.id);
        live.extend(imported::key_of(&found.message.origin).map(str::to_owned));
    });
    let report = report.map_err(|failure| spool_error(&failure))?;
    for problem in report.problems() {
        crate::cli::complain("postrider", &problem);
    }
    let mut known = ImportList::open(&settings.data_dir).map_err(|error| list(&error))?;
    // A run that was killed has put them into the spool, and not into the list.
    known.add(live).map_err(|error| list(&error))?;
    let mut work = Work { spool: &*spool, runtime: &runtime, ids, last: None };
    let (mut written, mut batch) = (Written::default(), Vec::new());
    let mut taken = HashSet::new();
    let mut commit = |work: &mut Work<'_>, batch: &mut Vec<String>| -> Result<(), CliError> {
        work.wait().map_err(|failure| spool_error(&failure))?;
        known.add(batch.drain(..)).map_err(|error| list(&error))
    };
    let already = ImportList::open(&settings.data_dir).map_err(|error| list(&error))?;
    for message in from {
        let key = format!("{server} {}", message.key());
        if already.contains(&key) || !taken.insert(key.clone()) {
            written.known += 1;
            continue;
        }
        let expanded = runtime.block_on(recipients(&message, expansion.as_ref(), settings));
        let recipients = match expanded {
            Ok(recipients) => recipients,
            Err(why) => {
                crate::cli::complain("postrider", &format!("{}: not imported: {why}", message.id));
                written.delayed += 1;
                continue;
            }
        };
        written.messages += 1;
        written.recipients += recipients.len() as u64;
        work.submit(*message, recipients, &key).map_err(|failure| spool_error(&failure))?;
        batch.push(key);
        if batch.len() == BATCH {
            commit(&mut work, &mut batch)?;
        }
    }
    commit(&mut work, &mut batch)?;
    spool.close();
    Ok(written)
}

fn spool_error(failure: &SpoolFailure) -> CliError {
    let exit = match failure {
        SpoolFailure::Io(_) => Exit::IoErr,
        SpoolFailure::Corrupt(_) => Exit::DataErr,
        SpoolFailure::Missing | SpoolFailure::Unusable(_) => Exit::Unavailable,
    };
    CliError::new(
        exit,
        format!("the spool: {failure}; what is durable is imported, so repair the cause and import again"),
    )
}

/// A recipient with the state that the other server knows.
struct Next {
    recipient: Recipient,
    last: Option<LastAttempt>,
}

/// Returns the recipients after aliases and virtual addresses of Postrider: the other server expands some of them at
/// delivery only. Those that it has finished are left out.
///
/// # Errors
/// A map does not answer, or an alias is wrong.
async fn recipients(
    message: &QueuedMessage,
    expansion: Option<&Expansion>,
    settings: &Settings,
) -> Result<Vec<Next>, String> {
    let finished: HashSet<String> =
        message.finished.iter().map(|address| import::exim::queue::address_key(address)).collect();
    let mut all: Vec<Next> = Vec::new();
    for one in &message.recipients {
        let given = &one.recipient;
        let last = one.last_attempt.clone().or_else(|| message.last_attempt.clone());
        let (Some(mailbox), Some(expansion)) = (given.path.mailbox(), expansion) else {
            all.push(Next { recipient: given.clone(), last });
            continue;
        };
        let mut found = expansion.expand(mailbox.clone()).await;
        let is_for_postmaster =
            || ["postmaster", "root"].iter().any(|name| expansion.is_named(mailbox, name));
        if found == Expanded::NoSuchUser && is_for_postmaster() {
            found = expansion.expand(settings.postmaster.clone()).await;
        }
        match found {
            Expanded::Recipients(expanded) if is_same(&expanded, mailbox) => {
                all.push(Next { recipient: given.clone(), last });
            }
            Expanded::Recipients(expanded) => {
                let has_sender = !message.reverse_path.is_null();
                let replace = |mailbox, role: rewrite::Role<'_>| passed_on(given, mailbox, role);
                let to = expansion::recipients(given, &expanded, has_sender, &replace);
                let to = to.into_iter().filter(|to| !finished.contains(&to.path.key()));
                all.extend(to.map(|recipient| Next { recipient, last: last.clone() }));
            }
            // Delivery asks for the user again, and returns the mail.
            Expanded::NoSuchUser => all.push(Next { recipient: given.clone(), last }),
            Expanded::Failed(trouble) => return Err(format!("{}: {trouble}", given.path)),
        }
    }
    Ok(all)
}

fn is_same(expanded: &rewrite::Expanded, mailbox: &Mailbox) -> bool {
    let mut recipients = expanded.recipients();
    recipients.len() == 1 && recipients.next() == Some(mailbox) && expanded.target(0).is_none()
}

/// The spool, and the last transaction that it has taken.
struct Work<'a> {
    spool: &'a dyn Spool,
    runtime: &'a tokio::runtime::Runtime,
    ids: IdSource,
    last: Option<CommitSeq>,
}

impl Work<'_> {
    fn submit(&mut self, queued: QueuedMessage, next: Vec<Next>, key: &str) -> Result<(), SpoolFailure> {
        let now = UnixMillis::now();
        let states = next.iter().map(|one| state(one, queued.attempt_count)).collect();
        let mut envelope = Envelope::new(queued.reverse_path);
        envelope.recipients = next.into_iter().map(|one| one.recipient).collect();
        let needs_utf8 = |path: &ForwardPath| path.mailbox().is_some_and(Mailbox::needs_smtputf8);
        envelope.smtputf8 = queued.smtputf8
            || !envelope.reverse_path.as_str().is_ascii()
            || envelope.recipients.iter().any(|one| needs_utf8(&one.path));
        (envelope.body, envelope.ret, envelope.envid) = (queued.body, queued.ret, queued.envid);
        envelope.options = queued.options.boxed();
        let arrived = UnixMillis((queued.arrived_us / 1000).min(now.0));
        let mut chunk_ids = Vec::new();
        let content = self.content(queued.content, &envelope, &mut chunk_ids)?;
        let message =
            Message { id: self.ids.next(now.0), arrived, origin: imported::origin(key), envelope, content };
        let imported = Recovered { message: message.into(), recipients: states, held: queued.held };
        let entry = Entry::Import(Box::new(imported));
        let submitted = self.until_room(&mut |spool| spool.submit(vec![entry.clone()]));
        match submitted {
            Ok(commit_seq) => self.last = Some(commit_seq),
            Err(failure) => {
                self.spool.discard_chunks(&chunk_ids);
                return Err(failure);
            }
        }
        Ok(())
    }

    /// The header stays in memory; a long body is stored in chunks, as that of a message from a client.
    fn content(
        &mut self,
        bytes: Vec<u8>,
        envelope: &Envelope,
        chunk_ids: &mut Vec<ChunkId>,
    ) -> Result<Content, SpoolFailure> {
        let bytes = Bytes::from(bytes);
        let mut scanner = ContentScanner::default();
        scanner.scan(&bytes);
        let header_bytes = scanner.final_header_bytes().min(bytes.len());
        if bytes.len() - header_bytes <= CHUNK_BYTES {
            return Ok(Content::from_bytes(bytes));
        }
        let mut parts = vec![Part::Memory(bytes.slice(..header_bytes))];
        let mut at = header_bytes;
        while at < bytes.len() {
            let chunk = bytes.slice(at..bytes.len().min(at + CHUNK_BYTES));
            at += chunk.len();
            let length_bytes = u32::try_from(chunk.len()).expect("a chunk has at most 256 KiB");
            let chunk_id = self.until_room(&mut |spool| spool.store_for(envelope, chunk.clone()))?;
            chunk_ids.push(chunk_id);
            parts.push(Part::Stored { chunk_id, length_bytes });
        }
        Ok(Content::new(scanner.traits(), parts))
    }

    /// Offers something to the spool until the spool has room for it.
    fn until_room<T>(
        &mut self,
        offer: &mut dyn FnMut(&dyn Spool) -> Result<T, Refused>,
    ) -> Result<T, SpoolFailure> {
        loop {
            match offer(self.spool) {
                Ok(done) => return Ok(done),
                Err(Refused::Busy) if self.last.is_some() => self.wait()?,
                Err(Refused::Busy) => std::thread::sleep(BEHIND),
                Err(refused) => return Err(SpoolFailure::Io(refused.to_string())),
            }
        }
    }

    /// Waits until everything that was submitted is durable.
    fn wait(&mut self) -> Result<(), SpoolFailure> {
        self.last.take().map_or(Ok(()), |commit_seq| self.runtime.block_on(self.spool.durable(commit_seq)))
    }
}

fn state(next: &Next, attempt_count: u32) -> RecipientState {
    let last = next.last.as_ref().map(|last| (last.at, Outcome::deferred(last.status, last.text.as_str())));
    let attempt_count = if last.is_some() { attempt_count.max(1) } else { attempt_count };
    RecipientState { settled: false, attempt_count, last }
}
