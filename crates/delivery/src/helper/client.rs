//! The daemon's side: one request for each delivery.

use super::{
    budget::Budget,
    packet::{memory_file, receive, seal, send},
    protocol::{Answer, FromSupervisor, Request, ToHelper},
    supervisor,
};
use crate::recipient_permits::PermitLimits;
use bytes::Bytes;
use machine::accounts::{Failed, Looked, Question};
use mail::{Enhanced, Outcome};
use serde::Serialize;
use std::{
    fs::File,
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpListener},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{
    io::AsyncReadExt as _,
    sync::{Semaphore, mpsc},
    task::spawn_blocking,
};

/// Programs at a time, and those of one recipient. The content of each is in memory.
const PROGRAMS: (usize, usize) = (64, PermitLimits::PROGRAMS.max);
/// Mailboxes that are written at a time, and those of one recipient.
const FILES: (usize, usize) = (32, PermitLimits::FILES.max);
/// Files `.forward` that are read at a time: each costs a process, and strangers choose the names.
const FORWARDS_MAX: usize = 8;
/// Time for a question about an account: `getent` has a limit of its own, for each service.
const ACCOUNT_TIMEOUT: Duration = Duration::from_secs(20);
/// Time to read the configuration again.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(10);

/// The daemon's end of the helper: sends it requests, and limits how many are under way.
#[derive(Debug)]
pub struct Helper {
    socket: Arc<OwnedFd>,
    programs: Budget,
    files: Budget,
    forwards: Semaphore,
    condition: Mutex<Condition>,
}

/// Whether the helper runs, for operators and metrics.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Condition {
    /// Times that the helper has ended before the daemon.
    pub failure_count: u64,
    /// The reason why it does not run, in words; none if it runs.
    pub fault: Option<String>,
}

impl Helper {
    /// Uses a helper that reads requests from the other end of a socket for packets.
    pub fn new(socket: OwnedFd) -> Self {
        Self {
            socket: Arc::new(socket),
            programs: Budget::new(PROGRAMS.0, PROGRAMS.1),
            files: Budget::new(FILES.0, FILES.1),
            forwards: Semaphore::new(FORWARDS_MAX),
            condition: Mutex::default(),
        }
    }

    /// Reads what the supervisor reports, until the helper and the supervisor have ended. Needs a thread of its own.
    pub fn watch(&self) {
        loop {
            let packet = match receive(&self.socket) {
                Ok(Some(packet)) => packet,
                Err(e) if matches!(e.kind(), io::ErrorKind::Interrupted | io::ErrorKind::InvalidData) => {
                    continue;
                }
                Ok(None) | Err(_) => break,
            };
            let mut condition = self.condition.lock().unwrap_or_else(PoisonError::into_inner);
            match serde_json::from_slice(&packet.bytes) {
                Ok(FromSupervisor::Started) => condition.fault = None,
                Ok(FromSupervisor::Ended { how, pause_ms }) => {
                    let pause = Duration::from_millis(pause_ms);
                    condition.failure_count += 1;
                    let when = supervisor::after(pause);
                    condition.fault =
                        Some(format!("the delivery helper has ended ({how}); it starts again {when}"));
                }
                Err(e) => tracing::error!("a report about the delivery helper cannot be read: {e}"),
            }
        }
        let mut condition = self.condition.lock().unwrap_or_else(PoisonError::into_inner);
        condition.fault =
            Some("the delivery helper and its supervisor have ended: restart the daemon".to_owned());
    }

    /// Returns whether the helper runs.
    pub fn condition(&self) -> Condition {
        self.condition.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the number of programs that it runs, and how many it may run.
    pub fn programs(&self) -> (usize, usize) {
        self.programs.count()
    }

    /// Returns the number of mailboxes that it writes, and how many it may write.
    pub fn files(&self) -> (usize, usize) {
        self.files.count()
    }

    /// Ends the helper. Deliveries that it has are given up.
    pub fn close(&self) {
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }

    /// Makes the helper read its configuration again.
    ///
    /// # Errors
    /// The new configuration cannot be used, or the helper does not answer. A running helper keeps the former one.
    pub fn reload(&self) -> Result<(), String> {
        let failed = |e: io::Error| format!("reload the delivery helper: {e}");
        let (mut here, there) = UnixStream::pair().map_err(failed)?;
        send_to(&self.socket, &ToHelper::Reload, &[there.as_fd()]).map_err(failed)?;
        drop(there);
        here.set_read_timeout(Some(RELOAD_TIMEOUT)).map_err(failed)?;
        let mut answer = Vec::new();
        here.read_to_end(&mut answer).map_err(failed)?;
        if answer.is_empty() {
            return Err(
                "reload the delivery helper: it has ended, and reads the new file when it starts again; \
                        reload once more then"
                    .to_owned(),
            );
        }
        serde_json::from_slice(&answer).map_err(|e| failed(e.into()))?
    }

    /// Asks for a socket that listens at an address of the configuration. This process may not open it any more.
    ///
    /// # Errors
    /// The helper may not open the port, or is gone: the text names the address.
    pub fn listen(&self, address: SocketAddr) -> Result<TcpListener, String> {
        let failed = |e: io::Error| format!("ask the delivery helper to listen on {address}: {e}");
        let ended =
            || format!("listen on {address}: the delivery helper has ended; it starts again by itself");
        let (here, there) = UnixStream::pair().map_err(failed)?;
        send_to(&self.socket, &ToHelper::Listen(address), &[there.as_fd()]).map_err(failed)?;
        drop(there);
        here.set_read_timeout(Some(RELOAD_TIMEOUT)).map_err(failed)?;
        let answer = receive(&here).map_err(failed)?.ok_or_else(ended)?;
        serde_json::from_slice::<Result<(), String>>(&answer.bytes).map_err(|e| failed(e.into()))??;
        let socket = answer.descriptors.into_iter().next().ok_or_else(ended)?;
        Ok(TcpListener::from(socket))
    }

    /// Runs the program for certificates with these arguments behind its own.
    ///
    /// # Errors
    /// It cannot be started, takes too long, or does not end with 0.
    pub async fn run_hook(&self, arguments: impl IntoIterator<Item = String>) -> Result<(), String> {
        let answer = self.ask(&ToHelper::Hook(arguments.into_iter().collect())).await?;
        serde_json::from_slice(&answer).map_err(|e| format!("ask the delivery helper: {e}"))?
    }

    /// Reads the file `.forward` of a user of this machine; none if there is none that counts.
    ///
    /// # Errors
    /// The helper does not answer, or cannot read the file now.
    pub async fn forward(&self, user: &str) -> Result<Option<String>, String> {
        let _permit = self.forwards.acquire().await.map_err(|error| error.to_string())?;
        let answer = self.ask(&ToHelper::Forward(user.to_owned())).await?;
        serde_json::from_slice(&answer).map_err(|e| format!("ask the delivery helper: {e}"))?
    }

    /// Asks about an account that this process does not find in the files. Blocks.
    ///
    /// # Errors
    /// A service or the helper does not answer.
    pub fn account(&self, question: &Question) -> Looked<String> {
        let failed = |e: io::Error| Failed::Service(format!("ask the delivery helper: {e}"));
        let (mut here, there) = UnixStream::pair().map_err(failed)?;
        send_to(&self.socket, &ToHelper::Account(question.clone()), &[there.as_fd()]).map_err(failed)?;
        drop(there);
        here.set_read_timeout(Some(ACCOUNT_TIMEOUT)).map_err(failed)?;
        let mut answer = Vec::new();
        here.read_to_end(&mut answer).map_err(failed)?;
        if answer.is_empty() {
            let ended = "the delivery helper has ended; it starts again by itself";
            return Err(Failed::Service(ended.to_owned()));
        }
        let answer: Result<Option<String>, String> =
            serde_json::from_slice(&answer).map_err(|e| failed(e.into()))?;
        answer.map_err(Failed::Service)
    }

    /// Sends a request, and returns the whole answer.
    async fn ask(&self, request: &ToHelper) -> Result<Vec<u8>, String> {
        let failed = |e: io::Error| format!("ask the delivery helper: {e}");
        let (here, there) = UnixStream::pair().map_err(failed)?;
        here.set_nonblocking(true).map_err(failed)?;
        send_to(&self.socket, request, &[there.as_fd()]).map_err(failed)?;
        drop(there);
        let mut answer = Vec::new();
        let mut here = tokio::net::UnixStream::from_std(here).map_err(failed)?;
        here.read_to_end(&mut answer).await.map_err(failed)?;
        if answer.is_empty() {
            return Err("the delivery helper has ended; it starts again by itself".to_owned());
        }
        Ok(answer)
    }

    /// Hands a delivery over, and returns its outcome. The pieces of the content end with `None`; without it the content is
    /// not whole, and nothing is delivered. If this is dropped, the helper gives the delivery up.
    pub(crate) async fn deliver(&self, request: &Request, pieces: mpsc::Receiver<Option<Bytes>>) -> Outcome {
        let ended = || {
            let without_answer =
                || "the delivery helper ended before it answered; it starts again by itself".to_owned();
            Outcome::deferred(Enhanced(4, 3, 5), self.condition().fault.unwrap_or_else(without_answer))
        };
        match self.answer(request, pieces).await {
            Ok(Some(outcome)) => outcome,
            Ok(None) => ended(),
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => ended(),
            Err(e) => Outcome::deferred(Enhanced(4, 3, 0), format!("ask the delivery helper: {e}")),
        }
    }

    async fn answer(
        &self,
        request: &Request,
        pieces: mpsc::Receiver<Option<Bytes>>,
    ) -> io::Result<Option<Outcome>> {
        let budget = if request.is_program() { &self.programs } else { &self.files };
        let _counted = budget.begin(request.recipient()).await.map_err(io::Error::other)?;
        let content = in_memory(pieces).await?;
        let (here, there) = UnixStream::pair()?;
        here.set_nonblocking(true)?;
        let (socket, message) = (self.socket.clone(), ToHelper::Deliver(request.clone()));
        let send = move || send_to(&socket, &message, &[content.as_fd(), there.as_fd()]);
        spawn_blocking(send).await.map_err(io::Error::other)??;
        let mut answer = Vec::new();
        tokio::net::UnixStream::from_std(here)?.read_to_end(&mut answer).await?;
        Ok(serde_json::from_slice(&answer).ok().and_then(Answer::outcome))
    }
}

fn send_to(socket: &OwnedFd, message: &impl Serialize, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    send(socket, &serde_json::to_vec(message)?, descriptors)
}

/// Copies the content into a sealed file in memory.
async fn in_memory(mut pieces: mpsc::Receiver<Option<Bytes>>) -> io::Result<File> {
    let mut file = memory_file()?;
    loop {
        match pieces.recv().await {
            Some(Some(bytes)) => file.write_all(&bytes)?,
            Some(None) => break,
            None => {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the content could not be read"));
            }
        }
    }
    seal(&file)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::helper::packet::Packet;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    fn request() -> Request {
        let envelope = serde_json::json!({ "id": 1, "sender": "", "recipient": "joe@b.test" });
        let place = serde_json::json!({ "Mbox": "/m/{local}" });
        serde_json::from_value(serde_json::json!({ "place": place, "route": "x", "envelope": envelope }))
            .unwrap()
    }

    /// The outcome of a delivery whose helper does this with its request.
    async fn outcome(pieces: &[Option<&'static str>], helper: fn(Packet, &OwnedFd)) -> Outcome {
        let kind = SocketType::SEQPACKET;
        let (here, there) = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
        let (client, (inlet, outlet)) = (Helper::new(here), mpsc::channel(9));
        for piece in pieces {
            inlet.try_send(piece.map(|text| Bytes::from_static(text.as_bytes()))).unwrap();
        }
        drop(inlet);
        let serving = std::thread::spawn(move || {
            if let Ok(Some(packet)) = receive(&there) {
                helper(packet, &there);
            }
        });
        let outcome = client.deliver(&request(), outlet).await;
        client.close();
        serving.join().unwrap();
        outcome
    }

    /// Writes to the socket for the answer, which ends then.
    fn reply(packet: Packet, text: &str) {
        let mut reply = UnixStream::from(packet.descriptors.into_iter().next_back().unwrap());
        reply.write_all(text.as_bytes()).unwrap();
    }

    const DELIVERED: &str = "{\"status\":\"2.0.0\",\"text\":\"a\"}";

    #[tokio::test]
    async fn an_answer_that_is_lost_cut_off_doubled_or_senseless_leaves_the_mail_in_the_queue() {
        let whole = [Some("Subject: x\r\n"), None];
        let answers: [fn(Packet, &OwnedFd); 6] = [
            |packet, _| drop(packet),
            |packet, _| reply(packet, &DELIVERED[..DELIVERED.len() - 1]),
            |packet, _| reply(packet, &[DELIVERED, DELIVERED].concat()),
            |packet, _| reply(packet, &DELIVERED.replace("2.0.0", "9.0.0")),
            |packet, _| reply(packet, "delivered"),
            // The answer comes in the wrong place: the socket of requests.
            |packet, socket| {
                send(socket, DELIVERED.as_bytes(), &[]).unwrap();
                drop(packet);
            },
        ];
        for (number, answer) in answers.into_iter().enumerate() {
            let outcome = outcome(&whole, answer).await;
            assert_eq!(outcome.status, Enhanced(4, 3, 5), "{number}: {outcome}");
        }
        let outcome = outcome(&whole, |packet, _| reply(packet, DELIVERED)).await;
        assert_eq!(outcome, Outcome::delivered(Enhanced(2, 0, 0), "a"));
    }

    #[tokio::test]
    async fn a_delivery_is_counted_until_its_answer() {
        let kind = SocketType::SEQPACKET;
        let (here, there) = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
        let (client, (inlet, outlet)) = (Arc::new(Helper::new(here)), mpsc::channel(9));
        inlet.try_send(None).unwrap();
        let own = client.clone();
        let delivery = tokio::spawn(async move { own.deliver(&request(), outlet).await });
        let packet = spawn_blocking(move || receive(&there)).await.unwrap().unwrap().unwrap();
        assert_eq!((client.files().0, client.programs().0), (1, 0));
        reply(packet, DELIVERED);
        assert_eq!(delivery.await.unwrap().status, Enhanced(2, 0, 0));
        assert_eq!(client.files().0, 0);
    }

    #[tokio::test]
    async fn content_that_is_not_whole_is_never_handed_to_the_helper() {
        let outcome = outcome(&[Some("Subject: x\r\n")], |_, _| panic!("a request")).await;
        assert_eq!(outcome.status, Enhanced(4, 3, 0), "{outcome}");
    }
}
