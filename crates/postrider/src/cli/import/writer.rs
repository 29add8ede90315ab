//! A thread that puts messages into the spool as the daemon's user, while root reads the other queue.

use accept::{
    Mailboxes,
    expansion::{self, Expansion, Outcome as Expanded},
    routes::Routes,
};
use config::Settings;
use console::{CliError, owner};
use control::Exit;
use import::{LastAttempt, QueuedMessage};
use mail::{Content, Envelope, ForwardPath, IdSource, Mailbox, Message, Outcome, Recipient, UnixMillis};
use rewrite::passed_on;
use server::{
    imported::{self, ImportList},
    prepare_folders, wiring,
};
use spool::{RecipientState, SpoolFailure};
use std::{
    collections::HashSet,
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread::JoinHandle,
};
use submission::maildrop;
use upkeep::spool_writer::{NewMessage, SpoolWriter};

/// Messages that are durable in the spool before their keys are written to the list.
const BATCH: usize = 256;
/// Messages that are read and not written yet.
const WAITING: usize = 32;

/// What the writer has imported.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Written {
    pub(super) messages: u64,
    pub(super) recipients: u64,
    /// Imported by an earlier run.
    pub(super) known: u64,
    /// Not imported now, because a map did not answer.
    pub(super) delayed: u64,
}

/// Hands messages to the thread that imports them.
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
    maildrop::prepare(&settings.data_dir, drop_dir)
        .map_err(|e| CliError::new(Exit::CantCreate, format!("prepare {}: {e}", drop_dir.display())))?;
    let list = |error: &dyn std::fmt::Display| {
        let path = settings.data_dir.join("imported");
        CliError::new(Exit::IoErr, format!("the list of imported messages, {}: {error}", path.display()))
    };
    let runtime = console::runtime()?;
    let (expansion, routes, mut spool) = {
        let _context = runtime.enter();
        let spool = wiring::spool(settings).map_err(|why| CliError::new(why.exit, why.text))?;
        let maps = accept::maps(settings, None);
        (Expansion::new(settings, maps.clone()), Routes::new(settings, maps), spool)
    };
    let mailboxes = Mailboxes { settings, routes: &routes, sender: None };
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
    let mut work = Work { writer: SpoolWriter::new(&*spool, &runtime), ids };
    let (mut written, mut batch) = (Written::default(), Vec::new());
    let mut taken = HashSet::new();
    let mut commit = |work: &mut Work<'_>, batch: &mut Vec<String>| -> Result<(), CliError> {
        work.writer.wait().map_err(|failure| spool_error(&failure))?;
        known.add(batch.drain(..)).map_err(|error| list(&error))
    };
    let already = ImportList::open(&settings.data_dir).map_err(|error| list(&error))?;
    for message in from {
        let key = format!("{server} {}", message.key());
        if already.contains(&key) || !taken.insert(key.clone()) {
            written.known += 1;
            continue;
        }
        let expanded = runtime.block_on(recipients(&message, expansion.as_ref(), mailboxes));
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
    mailboxes: Mailboxes<'_>,
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
        let mailboxes = Mailboxes { sender: Some(&message.reverse_path), ..mailboxes };
        match expansion.expand_given(mailbox, true, mailboxes).await {
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

/// The writer of the spool, and the ids of new messages.
struct Work<'a> {
    writer: SpoolWriter<'a>,
    ids: IdSource,
}

impl Work<'_> {
    fn submit(&mut self, queued: QueuedMessage, next: Vec<Next>, key: &str) -> Result<(), SpoolFailure> {
        let now = UnixMillis::now();
        let recipients = next.iter().map(|one| state(one, queued.attempt_count)).collect();
        let mut envelope = Envelope::new(queued.reverse_path);
        envelope.recipients = next.into_iter().map(|one| one.recipient).collect();
        let needs_utf8 = |path: &ForwardPath| path.mailbox().is_some_and(Mailbox::needs_smtputf8);
        envelope.smtputf8 = queued.smtputf8
            || !envelope.reverse_path.as_str().is_ascii()
            || envelope.recipients.iter().any(|one| needs_utf8(&one.path));
        (envelope.body, envelope.ret, envelope.envid) = (queued.body, queued.ret, queued.envid);
        envelope.options = queued.options.boxed();
        let arrived = UnixMillis((queued.arrived_us / 1000).min(now.0));
        let (id, origin) = (self.ids.next(now.0), imported::origin(key));
        let message = Message { id, arrived, origin, envelope, content: Content::from_bytes("") };
        let held = queued.held.then(|| "by the server that it was imported from".into());
        self.writer.import(NewMessage { message, recipients, held, counts: None }, queued.content)
    }
}

fn state(next: &Next, attempt_count: u32) -> RecipientState {
    let last = next.last.as_ref().map(|last| (last.at, Outcome::deferred(last.status, last.text.as_str())));
    let attempt_count = if last.is_some() { attempt_count.max(1) } else { attempt_count };
    RecipientState { settled: false, attempt_count, last }
}
