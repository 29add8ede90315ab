//! The helper's side: checks each request against the configuration, and delivers.

use super::{
    files::{FilePieces, ForwardJob, Job, Task},
    packet::{Packet, is_sealed, receive, send},
    protocol::{Answer, CheckedAddresses, Request, RequestedPlace, RequestedProgram, ToHelper},
};
use crate::{
    local::{ContentSource, LocalSettings, Parcel},
    maildir::{Links, Pieces as _},
    pipe,
};
use bytes::Bytes;
use machine::accounts;
use mail::{Argument, Enhanced, NextHop, Outcome, Program, RunAs};
use rewrite::Separator;
use rustix::{
    net::{AddressFamily, SocketFlags, SocketType, socketpair},
    process::geteuid,
};
use std::{
    ffi::OsString,
    fs::File,
    io,
    net::{SocketAddr, TcpListener},
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    process::Stdio,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    process::Command,
    sync::mpsc,
    task::spawn_blocking,
    time::timeout,
};

/// Time to write one message, with the wait for locks.
const WRITE_TIMEOUT: Duration = Duration::from_secs(300);
/// Time to read a file `.forward`.
const FORWARD_TIMEOUT: Duration = Duration::from_secs(10);
/// Requests that are read before the ones under way have ended.
const REQUESTS_AHEAD: usize = 16;
/// The longest run of a program that an alias names.
const ALIAS_TIME_LIMIT: Duration = Duration::from_secs(300);

/// As whom a route writes files.
#[derive(Debug, Clone)]
pub enum RouteUser {
    /// The user that the recipient names; with this group, or with its own.
    Recipient(Option<u32>),
    /// Always this user.
    Fixed(RunAs),
}

/// A route whose files belong to users other than the daemon's.
#[derive(Debug, Clone)]
pub struct FileRoute {
    /// As destinations and logs name it.
    pub name: Box<str>,
    /// Where the route delivers.
    pub next_hop: NextHop,
    /// Whose files they are: one user for all recipients, or the user that each recipient names.
    pub user: RouteUser,
}

/// The deliveries that the configuration permits.
pub struct Permitted {
    /// The routes that write files as other users.
    pub files: Vec<FileRoute>,
    /// Command lines that routes name.
    pub programs: Vec<Program>,
    /// True if files `.forward` are read.
    pub forwards: bool,
    /// The `hook` of the configuration, called for certificates; `None` without one.
    pub hook: Option<Program>,
    /// Command lines that aliases may name.
    pub alias_programs: Vec<Box<str>>,
    /// As whom those run; `None` runs them as the daemon's user.
    pub alias_user: Option<RunAs>,
    /// The user of the daemon, for programs without one; none if the helper has the same user.
    pub daemon: Option<RunAs>,
    /// The name in the names of files in Maildirs.
    pub hello: Box<str>,
    /// Between user and detail in local parts; `None` if addresses have no details.
    pub separator: Option<Separator>,
    /// Says whether mail may be delivered as a user with this number.
    pub may_deliver_as: Box<dyn Fn(u32) -> bool + Send + Sync>,
    /// Says whether the account with this number has a mailbox, where recipients name their users.
    pub has_mailbox: Box<dyn Fn(u32) -> bool + Send + Sync>,
    /// Finds a user of this machine; an error if whether there is one is not known. Blocks.
    pub user_by_name: fn(&str) -> Result<Option<RunAs>, String>,
    /// Opens a socket that listens at an address of the configuration; the reason why not, in words.
    pub listen: Box<dyn Fn(SocketAddr) -> Result<TcpListener, String> + Send + Sync>,
    /// Command line of the process that writes files: it runs as the user.
    pub writer: Vec<OsString>,
}

/// Serves the daemon at the other end of the socket, until it closes its end.
///
/// # Errors
/// The configuration cannot be read, or the socket fails.
pub async fn serve(socket: OwnedFd, load: impl Fn() -> Result<Permitted, String>) -> Result<(), String> {
    let permitted = Arc::new(RwLock::new(Arc::new(load()?)));
    let (forward, mut packets) = mpsc::channel(REQUESTS_AHEAD);
    let reader = move || {
        while let Some(packet) = receive(&socket).transpose() {
            let is_end = matches!(&packet, Err(e) if e.kind() != io::ErrorKind::InvalidData);
            if forward.blocking_send(packet).is_err() || is_end {
                return;
            }
        }
    };
    let named = std::thread::Builder::new().name("requests".to_owned());
    named.spawn(reader).map_err(|e| format!("start the thread for requests: {e}"))?;
    while let Some(packet) = packets.recv().await {
        let packet = match packet {
            Ok(packet) => packet,
            Err(e) => {
                tracing::error!("read a request of the daemon: {e}");
                continue;
            }
        };
        let Packet { bytes, descriptors } = packet;
        let mut descriptors = descriptors.into_iter().rev();
        let Some(Ok(reply)) = descriptors.next().map(reply_socket) else { continue };
        let current = permitted.read().map(|own| own.clone()).unwrap_or_else(|e| e.into_inner().clone());
        match serde_json::from_slice(&bytes) {
            Ok(ToHelper::Deliver(request)) => {
                let content = descriptors.next().map(File::from);
                tokio::spawn(answer(request, content, reply, current));
            }
            Ok(ToHelper::Reload) => {
                let loaded = load()
                    .map(|new| *permitted.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(new));
                let text = serde_json::to_vec(&loaded).unwrap_or_default();
                tokio::spawn(async move { write_reply(reply, &text).await });
            }
            // The configuration of the file is that of the reload that asks; it is not in use yet.
            Ok(ToHelper::Listen(address)) => {
                let opened = load().and_then(|new| (new.listen)(address));
                let text = serde_json::to_vec(&opened.as_ref().map(|_| ())).unwrap_or_default();
                let descriptors: Vec<_> = opened.iter().map(AsFd::as_fd).collect();
                // A daemon that has gone asks again after its start.
                let _ = send(&reply, &text, &descriptors);
            }
            Ok(ToHelper::Hook(arguments)) => {
                tokio::spawn(async move {
                    let ended = current.run_hook(&arguments).await;
                    write_reply(reply, &serde_json::to_vec(&ended).unwrap_or_default()).await;
                });
            }
            Ok(ToHelper::Forward(user)) => {
                tokio::spawn(async move {
                    let read = current.forward(&user).await;
                    write_reply(reply, &serde_json::to_vec(&read).unwrap_or_default()).await;
                });
            }
            // Anybody on this machine may ask this, and the daemon can ask for no file and as no user by it.
            Ok(ToHelper::Account(question)) => {
                tokio::spawn(async move {
                    let asked = spawn_blocking(move || accounts::look_up(&question)).await;
                    let answer =
                        asked.map_err(|e| e.to_string()).and_then(|own| own.map_err(|e| e.to_string()));
                    write_reply(reply, &serde_json::to_vec(&answer).unwrap_or_default()).await;
                });
            }
            Err(e) => tracing::error!("a request of the daemon cannot be read: {e}"),
        }
    }
    Ok(())
}

fn reply_socket(descriptor: OwnedFd) -> io::Result<tokio::net::UnixStream> {
    let stream = UnixStream::from(descriptor);
    stream.set_nonblocking(true)?;
    tokio::net::UnixStream::from_std(stream)
}

async fn write_reply(mut reply: tokio::net::UnixStream, text: &[u8]) {
    // A daemon that has gone delivers again after its start.
    let _ = reply.write_all(text).await;
}

/// Delivers, unless the daemon gives up first.
async fn answer(
    request: Request,
    content: Option<File>,
    mut reply: tokio::net::UnixStream,
    permitted: Arc<Permitted>,
) {
    let mut byte = [0];
    let outcome = tokio::select! {
        outcome = Box::pin(permitted.deliver(&request, content)) => outcome,
        _ = reply.read(&mut byte) => return,
    };
    let text = serde_json::to_vec(&Answer::from(&outcome)).unwrap_or_default();
    write_reply(reply, &text).await;
}

/// A request that is not obeyed: the configurations of daemon and helper differ, or the daemon is not what it was.
fn refused(what: &str) -> Outcome {
    tracing::warn!("the delivery helper refuses a request: {what}");
    Outcome::deferred(Enhanced(4, 3, 5), format!("the delivery helper refuses: {what}"))
}

impl Permitted {
    async fn deliver(&self, request: &Request, content: Option<File>) -> Outcome {
        let Some(content) = content.filter(is_sealed) else { return refused("the content is not sealed") };
        let Some(addresses) = request.envelope.check() else { return refused("an address is none") };
        match &request.place {
            RequestedPlace::Program(program) => self.run(program, &addresses, content).await,
            RequestedPlace::Maildir(_) | RequestedPlace::Mbox(_) => {
                self.write(request, &addresses, content).await
            }
        }
    }

    /// Runs the program for certificates. A daemon that gives up does not end it: what it has begun is finished.
    async fn run_hook(&self, arguments: &[String]) -> Result<(), String> {
        let Some(program) = self.hook.clone() else {
            return Err("the delivery helper refuses: the configuration has no `hook`".to_owned());
        };
        let program = self.with_user(program).map_err(|outcome| outcome.text.to_string())?;
        pipe::call(&program, arguments).await
    }

    /// Reads the file `.forward` of a user who has a mailbox, as that user.
    async fn forward(&self, name: &str) -> Result<Option<String>, String> {
        if !self.forwards {
            return Err("the delivery helper refuses: the configuration does not say `forward`".to_owned());
        }
        let Some(user) = self.user(name).await? else { return Ok(None) };
        let own = geteuid();
        let may_be = if own.is_root() {
            user.uid != 0 && (self.may_deliver_as)(user.uid) && (self.has_mailbox)(user.uid)
        } else {
            user.uid == own.as_raw()
        };
        if !may_be {
            return Ok(None);
        }
        let job =
            ForwardJob { user: name.to_owned(), uid: user.uid, gid: user.gid, home: user.home.to_path_buf() };
        let failed = |e: io::Error| format!("read .forward of {name}: {e}");
        match timeout(FORWARD_TIMEOUT, self.ask_writer(&Task::Forward(job), None)).await {
            Ok(answer) => serde_json::from_slice(&answer.map_err(failed)?).map_err(|e| failed(e.into()))?,
            Err(_) => Err(format!("read .forward of {name}: no answer within {FORWARD_TIMEOUT:?}")),
        }
    }

    /// Returns a program with the user that it runs as; the refusal if it may not.
    fn with_user(&self, mut program: Program) -> Result<Program, Outcome> {
        program.user = program.user.or_else(|| self.daemon.clone());
        match program.user.as_ref().and_then(|user| self.refused_user(user.uid, &user.name)) {
            Some(refusal) => Err(refusal),
            None => Ok(program),
        }
    }

    async fn run(
        &self,
        requested: &RequestedProgram,
        addresses: &CheckedAddresses,
        content: File,
    ) -> Outcome {
        let Some(program) = self.program(requested) else {
            return refused("the configuration has no such program");
        };
        let program = match self.with_user(program) {
            Ok(program) => program,
            Err(refusal) => return refusal,
        };
        let settings = LocalSettings { hello: &self.hello, links: Links::None, separator: self.separator };
        let CheckedAddresses { id, sender, recipient } = addresses;
        let parcel = Parcel { settings, content: InMemory(content), id: *id, recipient, sender };
        pipe::deliver(&program, &parcel).await
    }

    /// Returns the program of the configuration that was asked for.
    fn program(&self, requested: &RequestedProgram) -> Option<Program> {
        if let Some(own) = self.programs.iter().find(|own| RequestedProgram::of(own) == *requested) {
            return Some(own.clone());
        }
        let first = requested.argv.first()?;
        if !self.alias_programs.iter().any(|own| **own == **first) {
            return None;
        }
        let argv = requested.argv.iter().map(|text| Argument::Text(text.as_str().into())).collect();
        Some(Program { argv, user: self.alias_user.clone(), time_limit: ALIAS_TIME_LIMIT })
    }

    /// Returns the refusal of a user as whom nothing is delivered, if it is one.
    fn refused_user(&self, uid: u32, name: &str) -> Option<Outcome> {
        let own = geteuid();
        if uid == 0 {
            return Some(refused("mail is never delivered as root"));
        }
        if own.is_root() {
            let is_permitted = (self.may_deliver_as)(uid);
            return (!is_permitted)
                .then(|| refused(&format!("{name} is a user of the system: number {uid}")));
        }
        (uid != own.as_raw())
            .then(|| refused(&format!("only a daemon that root has started can deliver as {name}")))
    }

    async fn write(&self, request: &Request, addresses: &CheckedAddresses, content: File) -> Outcome {
        let (template, is_maildir) = match &request.place {
            RequestedPlace::Maildir(template) => (template, true),
            RequestedPlace::Mbox(template) => (template, false),
            RequestedPlace::Program(_) => return refused("a program is no mailbox"),
        };
        let is_it = |route: &&FileRoute| {
            let is_place = match &route.next_hop {
                NextHop::Maildir(own) => is_maildir && **own == **template,
                NextHop::Mbox(own) => !is_maildir && **own == **template,
                _ => false,
            };
            is_place && Some(&*route.name) == request.route.as_deref()
        };
        let Some(route) = self.files.iter().find(is_it) else {
            return refused("the configuration has no such route");
        };
        let user = match &route.user {
            RouteUser::Fixed(user) => user.clone(),
            RouteUser::Recipient(group) => {
                let no_user = || {
                    let text = format!("{}: no such user here", addresses.recipient);
                    Outcome::failed(Enhanced(5, 1, 1), text)
                };
                let mut user = match self.recipient(addresses).await {
                    Ok(Some(user)) => user,
                    Ok(None) => return no_user(),
                    Err(why) => return Outcome::deferred(Enhanced(4, 3, 0), format!("find the user: {why}")),
                };
                if user.uid != 0 && geteuid().is_root() && !(self.has_mailbox)(user.uid) {
                    return no_user();
                }
                user.gid = group.unwrap_or(user.gid);
                user
            }
        };
        if let Some(outcome) = self.refused_user(user.uid, &user.name) {
            return outcome;
        }
        let job = Job {
            user: user.name.to_string(),
            uid: user.uid,
            gid: user.gid,
            template: template.clone(),
            is_maildir,
            envelope: request.envelope.clone(),
            hello: self.hello.to_string(),
            separator: self.separator.map(Separator::as_char),
        };
        match timeout(WRITE_TIMEOUT, self.by_writer(&Task::Write(job), &content)).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(e)) => Outcome::deferred(Enhanced(4, 3, 0), format!("write as {}: {e}", user.name)),
            Err(_) => {
                let text = format!("a message for {} was not written within {WRITE_TIMEOUT:?}", user.name);
                Outcome::deferred(Enhanced(4, 3, 0), text)
            }
        }
    }

    /// Returns the user of this machine that the recipient names.
    async fn recipient(&self, addresses: &CheckedAddresses) -> Result<Option<RunAs>, String> {
        let Some(mailbox) = addresses.recipient.mailbox() else { return Ok(None) };
        let local = mailbox.local_name();
        let split = self.separator.and_then(|separator| separator.split(&local));
        self.user(split.map_or(&*local, |(user, _)| user)).await
    }

    /// Finds a user of this machine without keeping other requests waiting.
    async fn user(&self, name: &str) -> Result<Option<RunAs>, String> {
        let (find, name) = (self.user_by_name, name.to_owned());
        spawn_blocking(move || find(&name)).await.map_err(|e| e.to_string())?
    }

    /// Has the message written by the user.
    async fn by_writer(&self, task: &Task, content: &File) -> io::Result<Outcome> {
        let answer = self.ask_writer(task, Some(content)).await?;
        let outcome = serde_json::from_slice::<Answer>(&answer).ok().and_then(Answer::outcome);
        outcome.ok_or_else(|| io::Error::other("the writer ended without an answer that can be read"))
    }

    /// Starts a process that becomes the user and does the task. Returns its answer.
    async fn ask_writer(&self, task: &Task, content: Option<&File>) -> io::Result<Vec<u8>> {
        let Some((program, arguments)) = self.writer.split_first() else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let flags = SocketFlags::CLOEXEC;
        let (here, there) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        let mut command = Command::new(program);
        command.args(arguments).env_clear().current_dir("/").kill_on_drop(true);
        command.stdin(Stdio::from(there)).stdout(Stdio::null());
        let mut child = command.spawn()?;
        // The end of the child must be its own alone, so that its end is noticed.
        drop(command);
        let descriptors: Vec<_> = content.iter().map(AsFd::as_fd).collect();
        send(&here, &serde_json::to_vec(task)?, &descriptors)?;
        // Ends with the writer, which is killed when its time is over.
        let packet = spawn_blocking(move || receive(&here)).await.map_err(io::Error::other)??;
        let status = child.wait().await?;
        let answer = packet.map(|packet| packet.bytes);
        answer.ok_or_else(|| io::Error::other(format!("the writer ended without an answer: {status}")))
    }
}

/// The file descriptor that came with a request.
struct InMemory(File);

impl ContentSource for InMemory {
    async fn send_pieces(&self, pieces: mpsc::Sender<Option<Bytes>>) -> Result<(), Outcome> {
        let mut own = FilePieces { file: &self.0, at: 0 };
        loop {
            let piece = own
                .next_piece()
                .map_err(|e| Outcome::deferred(Enhanced(4, 3, 0), format!("read the content: {e}")))?;
            let is_last = piece.is_none();
            if pieces.send(piece).await.is_err() || is_last {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::helper::packet::{memory_file, seal};
    use serde_json::json;
    use std::io::Write as _;

    fn user(name: &str, uid: u32) -> RunAs {
        RunAs { name: name.into(), uid, gid: uid, home: std::path::Path::new("/").into() }
    }

    fn permitted(user_of_route: RouteUser) -> Permitted {
        let text = |text: &str| Argument::Text(text.into());
        let program = |argv: &[&str], user| Program {
            argv: argv.iter().map(|one| text(one)).collect(),
            user,
            time_limit: Duration::from_secs(5),
        };
        let next_hop = NextHop::Maildir("/m/{local}".into());
        Permitted {
            files: vec![FileRoute { name: "as user x".into(), next_hop, user: user_of_route }],
            programs: vec![
                program(&["/bin/root"], Some(user("root", 0))),
                program(&["/bin/low"], Some(user("low", 7))),
            ],
            forwards: true,
            hook: Some(program(&["/bin/hook"], Some(user("low", 7)))),
            alias_programs: vec!["/bin/listed".into()],
            alias_user: Some(user("root", 0)),
            daemon: None,
            hello: "mx.test".into(),
            separator: Separator::parse("+"),
            may_deliver_as: Box::new(|uid| uid >= 1000),
            has_mailbox: Box::new(|uid| uid >= 1000),
            user_by_name: |name| match name {
                "low" => Ok(Some(user("low", 7))),
                "unsure" => Err("the directory does not answer".to_owned()),
                _ => Ok(None),
            },
            listen: Box::new(|_| Err("no such listener".to_owned())),
            writer: vec!["/does/not/exist".into()],
        }
    }

    fn request(place: &serde_json::Value, route: Option<&str>, recipient: &str) -> Request {
        let envelope = json!({ "id": 1, "sender": "a@b.test", "recipient": recipient });
        serde_json::from_value(json!({ "place": place, "route": route, "envelope": envelope })).unwrap()
    }

    fn content(is_sealed: bool) -> Option<File> {
        let mut file = memory_file().unwrap();
        file.write_all(b"Subject: x\r\n\r\n").unwrap();
        if is_sealed {
            seal(&file).unwrap();
        }
        Some(file)
    }

    #[tokio::test]
    async fn requests_that_the_configuration_does_not_permit_are_refused() {
        let maildir = json!({ "Maildir": "/m/{local}" });
        let program =
            |argv: &[&str], user: Option<&str>| json!({ "Program": { "argv": argv, "user": user } });
        let fixed = |uid| RouteUser::Fixed(user("x", uid));
        let route = Some("as user x");
        let cases = [
            // A route that the configuration has not, with another place, another kind, or another name.
            (fixed(4711), json!({ "Maildir": "/etc/{local}" }), route, "no such route"),
            (fixed(4711), json!({ "Mbox": "/m/{local}" }), route, "no such route"),
            (fixed(4711), maildir.clone(), Some("as user root"), "no such route"),
            (fixed(4711), maildir.clone(), None, "no such route"),
            (fixed(0), maildir.clone(), route, "never delivered as root"),
            (fixed(4711), program(&["/bin/sh", "-c", "id"], None), None, "no such program"),
            (fixed(4711), program(&["/bin/low", "more"], Some("low")), None, "no such program"),
            (fixed(4711), program(&["/bin/low"], None), None, "no such program"),
            (fixed(4711), program(&[], None), None, "no such program"),
            (fixed(4711), program(&["/bin/root"], Some("root")), None, "never delivered as root"),
            (fixed(4711), program(&["/bin/listed", "x"], None), None, "never delivered as root"),
        ];
        for (user, place, route, reason) in cases {
            let outcome = permitted(user).deliver(&request(&place, route, "joe@b.test"), content(true)).await;
            assert!(
                outcome.status == Enhanced(4, 3, 5) && outcome.text.contains(reason),
                "{place}: {outcome}"
            );
        }
    }

    #[tokio::test]
    async fn the_program_for_certificates_is_that_of_the_configuration_and_its_user_is_checked() {
        let mut own = permitted(RouteUser::Fixed(user("x", 4711)));
        let low = own.run_hook(&["present".to_owned()]).await.unwrap_err();
        assert!(low.contains("the delivery helper refuses: ") && low.contains("low"), "{low}");
        own.hook = None;
        let none = own.run_hook(&["present".to_owned()]).await.unwrap_err();
        assert!(none.contains("the configuration has no `hook`"), "{none}");
    }

    #[tokio::test]
    async fn users_of_the_system_get_nothing_and_other_users_need_root() {
        let low = permitted(RouteUser::Fixed(user("low", 7)));
        let route = request(&json!({ "Maildir": "/m/{local}" }), Some("as user x"), "joe@b.test");
        let program = json!({ "Program": { "argv": ["/bin/low"], "user": "low" } });
        let reason =
            if geteuid().is_root() { "user of the system" } else { "only a daemon that root has started" };
        for request in [route, request(&program, None, "joe@b.test")] {
            let outcome = low.deliver(&request, content(true)).await;
            assert!(outcome.text.contains(reason), "{outcome}");
        }
        let recipient = permitted(RouteUser::Recipient(None));
        let to = |address: &str| request(&json!({ "Maildir": "/m/{local}" }), Some("as user x"), address);
        let outcome = recipient.deliver(&to("stranger@b.test"), content(true)).await;
        assert_eq!(outcome.status, Enhanced(5, 1, 1), "{outcome}");
        let outcome = recipient.deliver(&to("unsure+x@b.test"), content(true)).await;
        assert_eq!(outcome.status, Enhanced(4, 3, 0), "{outcome}");
        let read = recipient.forward("unsure").await;
        assert_eq!(read, Err("the directory does not answer".to_owned()));
        if geteuid().is_root() {
            let outcome = recipient.deliver(&to("low+x@b.test"), content(true)).await;
            assert_eq!(outcome.status, Enhanced(5, 1, 1), "{outcome}");
        }
    }

    #[tokio::test]
    async fn content_that_could_still_change_and_addresses_that_are_none_are_refused() {
        let own = permitted(RouteUser::Fixed(user("x", 4711)));
        let place = json!({ "Maildir": "/m/{local}" });
        for (recipient, is_sealed, reason) in
            [("joe@b.test", false, "not sealed"), ("joe\n@b.test", true, "an address is none")]
        {
            let outcome =
                own.deliver(&request(&place, Some("as user x"), recipient), content(is_sealed)).await;
            assert!(outcome.text.contains(reason), "{outcome}");
        }
        let outcome = own.deliver(&request(&place, Some("as user x"), "joe@b.test"), None).await;
        assert!(outcome.text.contains("not sealed"), "{outcome}");
    }

    /// The outcome of a message that this shell script writes. Its standard input is the socket of the helper.
    async fn written_by(script: &str) -> Outcome {
        let own = RunAs { uid: geteuid().as_raw(), ..user("x", 4711) };
        let own = if geteuid().is_root() { user("x", 4711) } else { own };
        let mut permitted = permitted(RouteUser::Fixed(own));
        // A socket that is closed with unread packets loses the answer.
        let script = format!("dd bs=128k count=1 of=/dev/null 2>/dev/null; {script}");
        permitted.writer = ["/bin/sh", "-c", &script].map(OsString::from).into();
        let request = request(&json!({ "Maildir": "/m/{local}" }), Some("as user x"), "joe@b.test");
        permitted.deliver(&request, content(true)).await
    }

    #[tokio::test]
    async fn a_writer_that_dies_before_its_whole_answer_leaves_the_mail_in_the_queue() {
        for (script, words) in [
            ("kill -9 $$", "signal: 9"),
            ("exit 0", "exit status: 0"),
            ("printf '{\"status\":\"2.0.0\",\"te' >&0", "without an answer"),
            ("printf '{\"status\":\"2.0.0\",\"text\":\"a\"}{}' >&0", "without an answer"),
            ("printf '{\"status\":\"3.0.0\",\"text\":\"a\"}' >&0", "without an answer"),
            ("printf 250 >&0", "without an answer"),
        ] {
            let outcome = written_by(script).await;
            assert_eq!(outcome.status, Enhanced(4, 3, 0), "{script}: {outcome}");
            assert!(outcome.text.contains(words), "{script}: {outcome}");
        }
    }

    #[tokio::test]
    async fn a_writer_is_killed_when_the_daemon_gives_the_delivery_up() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pid");
        let own = RunAs { uid: geteuid().as_raw(), ..user("x", 4711) };
        let mut permitted =
            permitted(RouteUser::Fixed(if geteuid().is_root() { user("x", 4711) } else { own }));
        let script = format!("echo $$ > {0}.new; mv {0}.new {0}; exec sleep 1000", file.display());
        permitted.writer = ["/bin/sh", "-c", &script].map(OsString::from).into();
        let request = request(&json!({ "Maildir": "/m/{local}" }), Some("as user x"), "joe@b.test");
        let (daemon, reply) = tokio::net::UnixStream::pair().unwrap();
        let answered = tokio::spawn(answer(request, content(true), reply, Arc::new(permitted)));
        while !file.exists() {
            tokio::task::yield_now().await;
        }
        let pid = std::fs::read_to_string(&file).unwrap();
        drop(daemon);
        timeout(Duration::from_secs(60), answered).await.expect("the delivery is given up").unwrap();
        // A child that was killed may not have been waited for yet.
        let is_running = || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
            stat.is_ok_and(|stat| !stat.contains(") Z "))
        };
        let until = std::time::Instant::now() + Duration::from_secs(60);
        while is_running() {
            assert!(std::time::Instant::now() < until, "the writer lives");
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn the_first_answer_of_a_writer_counts_also_when_it_dies_afterwards() {
        let answer = |status: &str| format!("printf '{{\"status\":\"{status}\",\"text\":\"a\"}}' >&0; ");
        let outcome = written_by(&(answer("2.0.0") + &answer("5.0.0") + "kill -9 $$")).await;
        assert_eq!(outcome, Outcome::delivered(Enhanced(2, 0, 0), "a"));
        let outcome = written_by(&(answer("5.1.1") + &answer("2.0.0"))).await;
        assert_eq!(outcome, Outcome::failed(Enhanced(5, 1, 1), "a"));
    }
}
