//! The submit socket, the daemon's side: a [`Header`] line and the content come in, one line goes
//! back. Any local user may connect, so nothing here trusts what it reads, and no user can take all
//! the connections.

use crate::{
    Acceptor,
    envelope::{HEADER_BYTES_MAX, Header, Refusal, Submission, has_too_many, wire_form},
};
use control::{Id, socket::accept};
use serde::{Deserialize, Serialize};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{UnixListener, UnixStream},
    sync::Semaphore,
    time::timeout,
};

/// Connections served at a time.
const CONNECTIONS_MAX: usize = 256;
/// The same for one user.
const CONNECTIONS_PER_USER: usize = 64;
/// Content in memory at a time, of all connections, beside the largest message.
const MEMORY_KIB: usize = 64 * 1024;
/// Silence allowed.
const IO_TIMEOUT: Duration = Duration::from_secs(60);

/// What the daemon answers to a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// Durable under this queue id.
    Accepted(Id),
    /// The message was not taken, and has to be kept.
    Refused(Refusal),
}

struct Shared<T> {
    target: Arc<T>,
    message_bytes_max: u64,
    memory_kib: Semaphore,
}

/// Open connections by user id.
type Users = Arc<Mutex<HashMap<u32, usize>>>;

/// Serves until it is dropped. Larger messages than `message_bytes_max` are refused.
pub async fn serve_submit<T: Acceptor>(listener: UnixListener, message_bytes_max: u64, target: Arc<T>) {
    let memory_kib = Semaphore::new(MEMORY_KIB + kib(message_bytes_max) as usize);
    let shared = Arc::new(Shared { target, message_bytes_max, memory_kib });
    let users = Users::default();
    let free = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(permit) = free.clone().acquire_owned().await else { return };
        let Some(stream) = accept(&listener).await else { continue };
        let Ok(uid) = stream.peer_cred().map(|peer| peer.uid()) else { continue };
        let (shared, guest) = (shared.clone(), UserPermit::enter(&users, uid));
        tokio::spawn(async move {
            // A client that went away is no news.
            let _ = serve(stream, uid, guest.is_some(), &shared).await;
            drop((permit, guest));
        });
    }
}

fn kib(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX).max(1)
}

/// One of a user's connections; leaving is counted when it is dropped.
struct UserPermit {
    users: Users,
    uid: u32,
}

impl UserPermit {
    fn enter(users: &Users, uid: u32) -> Option<Self> {
        let mut counts = users.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let count = counts.entry(uid).or_default();
        if *count >= CONNECTIONS_PER_USER {
            return None;
        }
        *count += 1;
        Some(Self { users: users.clone(), uid })
    }
}

impl Drop for UserPermit {
    fn drop(&mut self) {
        let mut counts = self.users.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.uid) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.uid);
            }
        }
    }
}

/// The first line to a client that may submit. Without it a client sends nothing: a daemon that hangs and goes on later must not
/// have the message that the client has written to the drop directory meanwhile.
pub(crate) const READY: &[u8] = b"ready\n";

async fn serve<T: Acceptor>(
    stream: UnixStream,
    uid: u32,
    is_welcome: bool,
    shared: &Shared<T>,
) -> std::io::Result<()> {
    let (from, mut to) = stream.into_split();
    let mut from = BufReader::new(from);
    let answer = if is_welcome {
        timeout(IO_TIMEOUT, to.write_all(READY)).await??;
        receive(&mut from, uid, shared).await?
    } else {
        Answer::Refused(Refusal::temporary("451 4.3.2 too many submissions of this user at once"))
    };
    let mut line = serde_json::to_vec(&answer).expect("an answer is always JSON");
    line.push(b'\n');
    timeout(IO_TIMEOUT, to.write_all(&line)).await??;
    Ok(())
}

/// An error means that the client is gone; a refusal is an answer.
async fn receive<T: Acceptor>(
    from: &mut (impl AsyncBufReadExt + Unpin),
    uid: u32,
    shared: &Shared<T>,
) -> std::io::Result<Answer> {
    let refuse = |text: String| Ok(Answer::Refused(Refusal::permanent(text)));
    let mut line = Vec::new();
    timeout(IO_TIMEOUT, (&mut *from).take(HEADER_BYTES_MAX as u64).read_until(b'\n', &mut line)).await??;
    let header = match Header::parse(&line) {
        Ok(header) => header,
        Err(why) => return refuse(format!("501 5.5.4 {why}")),
    };
    let envelope = match header.envelope() {
        Ok(envelope) => envelope,
        Err(why) => return refuse(format!("501 5.1.3 {why}")),
    };
    if has_too_many(&envelope, uid) {
        return refuse("550 5.5.3 too many recipients at once".to_owned());
    }
    if header.verbatim {
        return refuse("501 5.5.4 only a file in the drop directory may be verbatim".to_owned());
    }
    if header.size_bytes > shared.message_bytes_max {
        return refuse(format!("552 5.3.4 message larger than {} bytes", shared.message_bytes_max));
    }
    let held = timeout(IO_TIMEOUT, shared.memory_kib.acquire_many(kib(header.size_bytes))).await?;
    let content = read_content(from, header.size_bytes).await?;
    let submission = Submission { envelope, content: wire_form(content).into(), uid };
    let answer = shared.target.submit(submission).await;
    drop(held);
    Ok(answer.map_or_else(Answer::Refused, |id| Answer::Accepted(Id(id))))
}

/// Memory grows with what arrives, not with what was announced.
async fn read_content(
    from: &mut (impl AsyncBufReadExt + Unpin),
    size_bytes: u64,
) -> std::io::Result<Vec<u8>> {
    let mut content = Vec::new();
    while (content.len() as u64) < size_bytes {
        let chunk = timeout(IO_TIMEOUT, from.fill_buf()).await??;
        if chunk.is_empty() {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let wanted = usize::try_from(size_bytes - content.len() as u64).unwrap_or(usize::MAX);
        let taken = chunk.len().min(wanted);
        content.extend_from_slice(&chunk[..taken]);
        from.consume(taken);
    }
    Ok(content)
}
