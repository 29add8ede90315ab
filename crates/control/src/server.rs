//! The operators' socket, the daemon's side. Promises: an answer never holds more than [`PAGE`]
//! messages in memory; a client that does not read its answer delays no other; every request
//! is checked against the kernel's word on who asks.

use super::{
    Applied, Operations,
    protocol::{Action, Failure, Id, MessageInfo, REQUEST_BYTES_MAX, RedirectTo, Request, Response},
    selection::{Matched, Selection},
    socket::accept,
};
use mail::{QueueId, UnixMillis};
use std::{sync::Arc, time::Duration};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, BufWriter},
    net::{
        UnixListener, UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::Semaphore,
    time::timeout,
};

/// Messages asked of the daemon at once.
pub const PAGE: usize = 128;
/// Connections served at a time.
const CONNECTIONS_MAX: usize = 64;
/// Silence allowed from a client, both ways.
const IO_TIMEOUT: Duration = Duration::from_secs(60);
/// Raw bytes that are written within [`IO_TIMEOUT`].
const PIECE_BYTES: usize = 256 * 1024;
/// Header shown at most.
const HEADER_BYTES_MAX: usize = 256 * 1024;

/// The users that may use the operators' socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Root and the daemon's own user.
    Owner,
    /// All users whom the socket's permissions admit: a group was configured.
    Permissions,
}

impl Access {
    fn allows(self, uid: u32, own: u32) -> bool {
        self == Self::Permissions || uid == 0 || uid == own
    }
}

/// Serves until it is dropped.
pub async fn serve_control<T: Operations>(listener: UnixListener, access: Access, target: Arc<T>) {
    let free = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(permit) = free.clone().acquire_owned().await else { return };
        let Some(stream) = accept(&listener).await else { continue };
        let target = target.clone();
        tokio::spawn(async move {
            let (rights, uid) = rights(&stream, access);
            // A client that went away is no news.
            let _ = Connection::new(stream, target, uid).serve(rights).await;
            drop(permit);
        });
    }
}

/// What the peer of a connection may ask, by the user that the kernel names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rights {
    Nothing,
    /// Everything but the content of mail.
    Operate,
    All,
}

impl Rights {
    fn permit(self, request: &Request) -> bool {
        self == Self::All || (self == Self::Operate && *request != Request::Backup)
    }
}

/// Returns what the client may do, and the number of its user, as the kernel says it.
fn rights(stream: &UnixStream, access: Access) -> (Rights, u32) {
    let own = rustix::process::geteuid().as_raw();
    let Ok(peer) = stream.peer_cred() else { return (Rights::Nothing, u32::MAX) };
    let rights = if Access::Owner.allows(peer.uid(), own) {
        Rights::All
    } else if access.allows(peer.uid(), own) {
        Rights::Operate
    } else {
        Rights::Nothing
    };
    (rights, peer.uid())
}

/// Why a request ends before it is answered as a whole.
pub(crate) enum Ended {
    /// The client has closed the connection, or reads too slowly.
    Gone,
    /// The request cannot be done; the connection may go on.
    Failed(Failure),
}

impl From<std::io::Error> for Ended {
    fn from(_: std::io::Error) -> Self {
        Self::Gone
    }
}

impl From<tokio::time::error::Elapsed> for Ended {
    fn from(_: tokio::time::error::Elapsed) -> Self {
        Self::Gone
    }
}

impl From<Failure> for Ended {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// What to do to selected messages.
enum Change {
    Action(Action),
    Redirect(RedirectTo),
}

impl Change {
    fn is_of_recipients(&self) -> bool {
        matches!(self, Self::Redirect(_)) || matches!(self, Self::Action(action) if action.is_of_recipients())
    }

    fn needs_envelope(&self) -> bool {
        matches!(self, Self::Redirect(_) | Self::Action(Action::Bounce))
    }

    fn done(&self) -> &'static str {
        if let Self::Action(action) = self { action.done() } else { "redirected" }
    }
}

/// One client of the socket, from its first request to the last.
pub(crate) struct Connection<T> {
    from: BufReader<OwnedReadHalf>,
    to: BufWriter<OwnedWriteHalf>,
    pub(crate) target: Arc<T>,
    uid: u32,
}

impl<T: Operations> Connection<T> {
    fn new(stream: UnixStream, target: Arc<T>, uid: u32) -> Self {
        let (from, to) = stream.into_split();
        Self { from: BufReader::new(from), to: BufWriter::new(to), target, uid }
    }

    async fn serve(mut self, rights: Rights) -> Result<(), Ended> {
        while let Some(line) = self.line().await? {
            let answered = match serde_json::from_slice(&line) {
                _ if rights == Rights::Nothing => Err(denied().into()),
                Ok(request) if !rights.permit(&request) => Err(denied().into()),
                Ok(request) => self.answer(request).await,
                Err(error) => Err(Failure::Bad { text: format!("bad request: {error}") }.into()),
            };
            match answered {
                Ok(()) => {}
                Err(Ended::Failed(failure)) => self.send(&Response::Failed(failure)).await?,
                Err(Ended::Gone) => return Ok(()),
            }
            timeout(IO_TIMEOUT, self.to.flush()).await??;
        }
        Ok(())
    }

    /// The next request; none at the end. One that is too long ends the connection.
    async fn line(&mut self) -> Result<Option<Vec<u8>>, Ended> {
        let mut line = Vec::new();
        let mut bounded = (&mut self.from).take(REQUEST_BYTES_MAX);
        timeout(IO_TIMEOUT, bounded.read_until(b'\n', &mut line)).await??;
        if line.last() == Some(&b'\n') { Ok(Some(line)) } else { Ok(None) }
    }

    pub(crate) async fn send(&mut self, response: &Response) -> Result<(), Ended> {
        let mut line = serde_json::to_vec(response).expect("a response is always JSON");
        line.push(b'\n');
        timeout(IO_TIMEOUT, self.to.write_all(&line)).await??;
        Ok(())
    }

    /// Sends raw bytes. A slow client has the time for each piece, and not for all of a large message.
    pub(crate) async fn send_raw(&mut self, bytes: &[u8]) -> Result<(), Ended> {
        for piece in bytes.chunks(PIECE_BYTES) {
            timeout(IO_TIMEOUT, self.to.write_all(piece)).await??;
        }
        Ok(())
    }

    async fn answer(&mut self, request: Request) -> Result<(), Ended> {
        let count = match request {
            Request::List { selection } => self.list(&selection).await?,
            Request::Count { selection } => self.count(&selection).await?,
            Request::Show { id } => self.show(id).await?,
            Request::Redirect { selection, to, dry_run: true, .. } => {
                self.check_redirect(&to).await?;
                self.list(&selection).await?
            }
            Request::Redirect { selection, to, reason, dry_run: false } => {
                let applied = self.apply(&Change::Redirect(to), &selection, reason.as_deref()).await?;
                self.send_applied(applied).await?
            }
            Request::Apply { action, selection, reason } => {
                let applied = self.apply(&Change::Action(action), &selection, reason.as_deref()).await?;
                self.send_applied(applied).await?
            }
            Request::Flush => self.target.flush(self.uid),
            Request::Summary { by } => {
                let destinations = self.target.summary(by).await;
                let count = destinations.len() as u64;
                for destination in destinations {
                    self.send(&Response::Destination(destination)).await?;
                }
                count
            }
            Request::Status => {
                self.send(&Response::Counters(self.target.counters())).await?;
                self.send(&Response::Gauges(Box::new(self.target.gauges()))).await?;
                0
            }
            Request::Metrics => {
                let text = self.target.metrics();
                self.send(&Response::Metrics { text }).await?;
                0
            }
            Request::Backup => self.copy_all().await?,
            Request::Certificates => {
                let certificates = self.target.certificates();
                let count = certificates.len() as u64;
                for certificate in certificates {
                    self.send(&Response::Certificate(certificate)).await?;
                }
                if let Some(renewal) = self.target.renewal() {
                    self.send(&Response::Renewal(renewal)).await?;
                }
                count
            }
            Request::Renew => {
                self.target.renew()?;
                0
            }
            Request::Reload => {
                let notes = self.target.reload().await?;
                for text in notes {
                    self.send(&Response::Note { text }).await?;
                }
                0
            }
            Request::Drain { listener } => self.set_drained(listener.as_deref(), true).await?,
            Request::Resume { listener } => self.set_drained(listener.as_deref(), false).await?,
        };
        self.send(&Response::Done { count }).await
    }

    async fn set_drained(&mut self, listener: Option<&str>, is_drained: bool) -> Result<u64, Ended> {
        let listeners = self.target.set_drained(listener, is_drained)?;
        let count = listeners.len() as u64;
        for text in listeners {
            self.send(&Response::Note { text }).await?;
        }
        Ok(count)
    }

    /// The ids that can be matched at all: those named, else all.
    fn candidates(&self, selection: &Selection) -> Vec<QueueId> {
        if selection.is_empty() {
            return Vec::new();
        }
        if selection.ids.is_empty() {
            return self.target.ids();
        }
        let mut ids: Vec<QueueId> = selection.ids.iter().map(|id| id.0).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// Returns the selected messages among these. A message with a damaged envelope cannot be judged by its
    /// addresses: it is left as it is, and reported.
    async fn page(&mut self, ids: &[QueueId], selection: &Selection) -> Result<Vec<MessageInfo>, Ended> {
        let now = UnixMillis::now().0;
        let messages = self.target.messages(ids).await;
        let mut matched = Vec::with_capacity(messages.len());
        for message in messages {
            if selection.matches(&message, now) {
                matched.push(message);
            } else if let Some(why) = &message.damaged
                && selection.without_addresses().matches(&message, now)
            {
                let text = format!("{} may be matched, but its record is damaged: {why}", message.id.0);
                self.send(&Response::Note { text }).await?;
            }
        }
        Ok(matched)
    }

    async fn list(&mut self, selection: &Selection) -> Result<u64, Ended> {
        let mut count = 0;
        for ids in self.candidates(selection).chunks(PAGE) {
            for message in self.page(ids, selection).await? {
                count += 1;
                self.send(&Response::Message(message)).await?;
            }
        }
        Ok(count)
    }

    async fn count(&mut self, selection: &Selection) -> Result<u64, Ended> {
        if *selection == Selection::all() {
            return Ok(self.target.ids().len() as u64);
        }
        let mut count = 0;
        for ids in self.candidates(selection).chunks(PAGE) {
            count += self.page(ids, selection).await?.len() as u64;
        }
        Ok(count)
    }

    /// Sends what an action left as it was, and returns how many messages it found.
    async fn send_applied(&mut self, applied: Applied) -> Result<u64, Ended> {
        for (reason, count) in applied.unchanged {
            self.send(&Response::Unchanged { count, reason }).await?;
        }
        for (reason, count) in applied.waiting {
            self.send(&Response::Waiting { count, reason }).await?;
        }
        Ok(applied.found)
    }

    async fn apply(
        &mut self,
        change: &Change,
        selection: &Selection,
        reason: Option<&str>,
    ) -> Result<Applied, Ended> {
        let reason = reason.map(reason_of).transpose()?;
        if selection.is_empty() {
            return Err(Failure::Bad { text: "no message was selected".to_owned() }.into());
        }
        if let Change::Redirect(to) = change {
            self.check_redirect(to).await?;
        }
        let mut all = Applied::default();
        for ids in self.candidates(selection).chunks(PAGE) {
            let mut matched = Vec::new();
            for message in self.page(ids, selection).await? {
                let id = message.id.0;
                let recipients =
                    change.is_of_recipients().then(|| selection.recipients_meant(&message)).flatten();
                match message.damaged {
                    // Nobody knows whom to tell, or which recipient is which; it can be deleted as a whole.
                    Some(why) if change.needs_envelope() || recipients.is_some() => {
                        let what = change.done();
                        let which = if recipients.is_some() { " for some recipients" } else { "" };
                        let text = format!("{id} cannot be {what}{which}, its record is damaged: {why}");
                        self.send(&Response::Note { text }).await?;
                    }
                    _ => matched.push(Matched { id, recipients, reason: reason.clone() }),
                }
            }
            if !matched.is_empty() {
                let applied = match change {
                    Change::Action(action) => self.target.apply(*action, &matched, self.uid).await?,
                    Change::Redirect(to) => self.target.redirect(to, &matched, self.uid).await?,
                };
                all.found += applied.found;
                for (reason, count) in applied.unchanged {
                    *all.unchanged.entry(reason).or_default() += count;
                }
                for (reason, count) in applied.waiting {
                    *all.waiting.entry(reason).or_default() += count;
                }
            }
        }
        Ok(all)
    }

    async fn check_redirect(&mut self, to: &RedirectTo) -> Result<(), Ended> {
        if let Some(text) = self.target.check_redirect(to).await? {
            self.send(&Response::Warning { text }).await?;
        }
        Ok(())
    }

    async fn show(&mut self, id: Id) -> Result<u64, Ended> {
        let missing = || Failure::Missing { text: format!("{} is not in the queue", id.0) };
        let message = self.target.messages(&[id.0]).await.pop().ok_or_else(missing)?;
        let is_damaged = message.damaged.is_some();
        self.send(&Response::Message(message)).await?;
        if is_damaged {
            return Ok(1);
        }
        let header = self.target.header(id.0, HEADER_BYTES_MAX).await?.ok_or_else(missing)?;
        let text = String::from_utf8_lossy(header_of(&header)).into_owned();
        self.send(&Response::Header { text }).await?;
        Ok(1)
    }
}

/// Up to and with the empty line, and not more than is shown.
pub fn header_of(content: &[u8]) -> &[u8] {
    let end = content.windows(4).position(|w| w == b"\r\n\r\n").map_or(content.len(), |at| at + 4);
    &content[..end.min(HEADER_BYTES_MAX)]
}

fn denied() -> Failure {
    Failure::Denied {
        text: "only root, the daemon's own user and members of control.group may do this".to_owned(),
    }
}

/// The longest reason of an operator, in characters.
const REASON_MAX: usize = 200;

/// Checks the reason of an operator, which senders read.
fn reason_of(text: &str) -> Result<Box<str>, Failure> {
    let text = text.trim();
    let bad = |what: &str| Err(Failure::Bad { text: format!("the reason {what}") });
    if text.is_empty() {
        return bad("is empty: write some words");
    }
    if text.chars().count() > REASON_MAX {
        return bad("is longer than 200 characters");
    }
    if text.chars().any(mail::is_invisible) {
        return bad("is more than one line, or has control characters");
    }
    Ok(text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_root_and_the_daemons_user_may_ask_unless_a_group_was_configured() {
        assert!(Access::Owner.allows(0, 7) && Access::Owner.allows(7, 7) && !Access::Owner.allows(8, 7));
        assert!(!Access::Owner.allows(7, 0) && Access::Permissions.allows(8, 7));
    }

    #[test]
    fn a_group_of_operators_does_not_get_the_content_of_mail() {
        assert!(!Rights::Operate.permit(&Request::Backup) && Rights::Operate.permit(&Request::Status));
        assert!(Rights::All.permit(&Request::Backup) && !Rights::Nothing.permit(&Request::Status));
    }

    #[test]
    fn a_header_ends_with_its_empty_line() {
        assert_eq!(header_of(b"a: b\r\n\r\nc\r\n\r\n"), b"a: b\r\n\r\n");
        assert_eq!(header_of(b"a: b\r\n"), b"a: b\r\n");
        assert_eq!(header_of(&vec![b'x'; HEADER_BYTES_MAX + 1]).len(), HEADER_BYTES_MAX);
    }
}
