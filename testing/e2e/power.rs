//! A power cut as strict as POSIX allows: afterwards only those names are there whose directory was synced, and
//! only those bytes that were synced. strace(1) records what the daemon and `sendmail` do; the cut makes another
//! folder from that, and a daemon is started in it.

use crate::common::{BINARY, Postrider, client::Client, faults::Faults, free_address, sink::Sink, until};
use std::{
    collections::{BTreeMap, HashMap},
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};
use tempfile::TempDir;

const CALLS: &str = "trace=mkdir,mkdirat,open,openat,creat,rename,renameat,renameat2,unlink,unlinkat,link,linkat,\
                     write,writev,pwrite64,pwritev,ftruncate,fallocate,fsync,fdatasync,syncfs,sync";

/// The parts of a file or directory that are not durable.
#[derive(Debug, Clone, Default)]
struct Node {
    is_dir: bool,
    has_durable_name: bool,
    /// Bytes that were written and not synced: from, to.
    unsynced: Vec<(u64, u64)>,
}

/// Everything that was made below the folder.
#[derive(Debug, Default)]
struct Model(BTreeMap<PathBuf, Node>);

impl Model {
    /// Reads a trace of strace, whose calls may be interrupted by those of other threads.
    fn read(root: &Path, trace: &str) -> Self {
        let (mut model, mut begun) = (Self::default(), HashMap::new());
        for line in trace.lines() {
            let Some((pid, call)) = line.trim_start().split_once(' ') else { continue };
            let call = call.trim_start();
            if let Some(first) = call.strip_suffix("<unfinished ...>") {
                begun.insert(pid.to_owned(), first.trim_end().to_owned());
            } else if let Some(rest) = call.strip_prefix("<... ") {
                let rest = rest.split_once("resumed>").map_or("", |(_, rest)| rest);
                let whole = format!("{}{rest}", begun.remove(pid).unwrap_or_default());
                model.apply(root, &whole);
            } else {
                model.apply(root, call);
            }
        }
        model
    }

    fn apply(&mut self, root: &Path, call: &str) {
        let Some((name, rest)) = call.split_once('(') else { return };
        let Some((arguments, result)) = rest.rsplit_once(" = ") else { return };
        if result.starts_with('-') {
            return;
        }
        let quoted: Vec<&str> = arguments.split('"').skip(1).step_by(2).collect();
        let dirs: Vec<PathBuf> = described(arguments);
        let at = |n: usize| {
            let path = Path::new(quoted.get(n).copied().unwrap_or_default());
            let base = dirs.get(n.min(dirs.len().saturating_sub(1))).cloned();
            if path.is_absolute() {
                path.to_owned()
            } else {
                base.unwrap_or_else(|| root.to_owned()).join(path)
            }
        };
        match name {
            "mkdir" | "mkdirat" => {
                self.0.insert(at(0), Node { is_dir: true, ..Node::default() });
            }
            "open" | "openat" | "creat" if arguments.contains("O_CREAT") => {
                let Some(path) = described(result).pop() else { return };
                if path.starts_with(root) {
                    self.0.entry(path).or_default();
                }
            }
            "rename" | "renameat" | "renameat2" => {
                let node = self.0.remove(&at(0)).unwrap_or_default();
                self.0.insert(at(1), Node { has_durable_name: false, ..node });
            }
            "unlink" | "unlinkat" => {
                self.0.remove(&at(0));
            }
            "write" | "writev" | "pwritev" | "ftruncate" | "fallocate" => self.dirty(&dirs, 0, u64::MAX),
            "pwrite64" => {
                let mut numbers =
                    arguments.rsplit(", ").map(|n| n.trim_end_matches(')').parse().unwrap_or(0));
                let (offset, length): (u64, u64) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
                self.dirty(&dirs, offset, offset + length);
            }
            "fsync" | "fdatasync" => {
                let Some(path) = dirs.first() else { return };
                if let Some(node) = self.0.get_mut(path) {
                    node.unsynced.clear();
                }
                let below = self.0.iter_mut().filter(|(name, _)| name.parent() == Some(path.as_path()));
                below.for_each(|(_, node)| node.has_durable_name = true);
            }
            "syncfs" | "sync" => {
                for node in self.0.values_mut() {
                    node.unsynced.clear();
                    node.has_durable_name = true;
                }
            }
            _ => {}
        }
    }

    fn dirty(&mut self, dirs: &[PathBuf], from: u64, to: u64) {
        if let Some(node) = dirs.first().and_then(|path| self.0.get_mut(path)) {
            node.unsynced.push((from, to));
        }
    }

    /// Copies what is durable of one folder to another.
    fn cut(&self, from: &Path, to: &Path) {
        for (path, node) in &self.0 {
            let is_there = path.ancestors().take_while(|name| *name != from);
            let is_there =
                is_there.map(|name| self.0.get(name)).all(|n| n.is_some_and(|n| n.has_durable_name));
            let Ok(inner) = path.strip_prefix(from) else { continue };
            if !is_there || !path.exists() {
                continue;
            }
            let copy = to.join(inner);
            if node.is_dir {
                fs::create_dir_all(&copy).unwrap();
                fs::set_permissions(&copy, path.metadata().unwrap().permissions()).unwrap();
            } else if path.is_file() {
                let mut bytes = fs::read(path).unwrap();
                for (from, to) in &node.unsynced {
                    let (from, to) = (*from as usize, (*to).min(bytes.len() as u64) as usize);
                    bytes.get_mut(from..to).into_iter().for_each(|part| part.fill(0));
                }
                fs::write(&copy, bytes).unwrap();
            }
        }
    }
}

/// The paths of descriptors in what strace says: `5</a/b>`, `AT_FDCWD</a>`.
fn described(text: &str) -> Vec<PathBuf> {
    let parts = text.split('<').skip(1);
    parts.filter_map(|part| Some(PathBuf::from(part.split_once('>')?.0))).collect()
}

/// A folder for one daemon, and the calls that were recorded in it.
struct Scene {
    dir: TempDir,
    faults: Faults,
}

/// A sync that is left out: the call, and which.
type LeftOut = Option<(&'static str, &'static str)>;

impl Scene {
    fn new(more: &str, left_out: LeftOut) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let works = Command::new("strace").args(["-f", "-y", "-o", "/dev/null", "true"]).output();
        if !works.is_ok_and(|done| done.status.success()) {
            println!("SKIPPED: power cuts at system calls: strace does not work here");
            return None;
        }
        let faults = Faults::new()?;
        if let Some((call, which)) = left_out {
            faults.order(call, "skip", which);
        }
        configure(dir.path(), &format!("{more}{}", faults.permitted()));
        Some(Self { dir, faults })
    }

    fn traced(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("strace");
        let trace = self.dir.path().join("trace");
        command.args(["-f", "-qq", "-y", "-s", "0", "-A", "-e", CALLS, "-o"]).arg(trace);
        for (name, value) in self.faults.environment() {
            command.arg("-E").arg(format!("{name}={}", value.display()));
        }
        command.arg(BINARY).args(arguments).current_dir(self.dir.path());
        command.env("POSTRIDER_CONFIG", self.dir.path().join("postrider.toml"));
        command
    }

    /// Starts a daemon whose system calls are recorded.
    fn serve(&self) -> Recorded {
        let child = self.traced(&["serve"]).stderr(Stdio::null()).spawn().unwrap();
        let recorded = Recorded { child, config: self.dir.path().join("postrider.toml") };
        // `queue count` is answered without the daemon, too, as soon as there is a spool.
        until("the daemon listens", || recorded.ask(&["status"]).is_some());
        recorded
    }

    /// Returns a folder with the files that a power cut now would leave.
    fn cut(&self, more: &str) -> TempDir {
        let trace = fs::read_to_string(self.dir.path().join("trace")).unwrap();
        let left = tempfile::tempdir().unwrap();
        Model::read(self.dir.path(), &trace).cut(self.dir.path(), left.path());
        configure(left.path(), more);
        left
    }
}

struct Recorded {
    child: Child,
    config: PathBuf,
}

impl Recorded {
    fn ask(&self, arguments: &[&str]) -> Option<String> {
        let output =
            Command::new(BINARY).args(arguments).env("POSTRIDER_CONFIG", &self.config).output().unwrap();
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
    }

    fn address(&self) -> std::net::SocketAddr {
        let text = fs::read_to_string(&self.config).unwrap();
        text.split('"').find_map(|word| word.parse().ok()).unwrap()
    }

    /// The processes of strace and of the daemon are gone.
    fn end(mut self, signal: rustix::process::Signal) {
        let children = format!("/proc/{0}/task/{0}/children", self.child.id());
        let daemon: i32 = fs::read_to_string(children).unwrap().trim().parse().unwrap();
        let daemon = rustix::process::Pid::from_raw(daemon).unwrap();
        rustix::process::kill_process(daemon, signal).unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn configure(dir: &Path, more: &str) {
    let text = format!(
        "hostname = \"mx.test\"\ndata_dir = \"data\"\n[[listen]]\naddress = \"{}\"\n[spool]\nsegment_size = \"1MiB\"\n\
         min_free = \"0B\"\n{more}",
        free_address()
    );
    fs::write(dir.join("postrider.toml"), text).unwrap();
}

const LOCAL: &str = "[local]\ndomains = [\"mx.test\"]\n";
const MAILBOXES: &str = "[local]\ndomains = [\"mx.test\"]\n[[route]]\ndomains = [\"mx.test\"]\n\
                         mbox = \"data/boxes/{local}\"\n";
/// Above this drop directory the daemon makes nothing else.
const DROPPED: &str = "[local]\ndomains = [\"mx.test\"]\n[control]\nmaildrop = \"else/drop\"\n";

/// Returns the names of the messages in a user's Maildir that are whole: each message ends with its own line.
fn whole(dir: &Path) -> Vec<String> {
    let files = fs::read_dir(dir.join("data/mail/bob/new")).into_iter().flatten().flatten();
    let texts = files.map(|file| fs::read_to_string(file.path()).unwrap_or_default());
    let mut names: Vec<String> = texts
        .filter_map(|text| text.trim_end().rsplit_once("\nend of ").map(|(_, name)| name.to_owned()))
        .collect();
    names.sort_unstable();
    names
}

/// Returns the names of the messages in a user's mbox in their order. One that does not end with its own line has no name.
fn mbox(dir: &Path) -> Vec<String> {
    let text = fs::read_to_string(dir.join("data/boxes/bob")).unwrap_or_default();
    let messages = text.strip_suffix('\n').unwrap_or_default().split("\nFrom ");
    let name = |text: &str| Some(text.strip_suffix('\n')?.rsplit_once("\nend of ")?.1.to_owned());
    messages.map(|text| name(text).unwrap_or_default()).collect()
}

fn content(name: &str, lines: usize) -> String {
    format!("Subject: {name}\r\n\r\n{}end of {name}\r\n", format!("{}\r\n", "x".repeat(70)).repeat(lines))
}

/// Three messages are delivered to a Maildir and leave the spool; then the power goes.
fn delivered_mail(left_out: LeftOut) -> Option<Result<(), String>> {
    delivered(LOCAL, whole, ["one", "three", "two"], left_out)
}

/// Three messages are appended to an mbox and leave the spool; then the power goes.
fn appended_mail(left_out: LeftOut) -> Option<Result<(), String>> {
    delivered(MAILBOXES, mbox, ["one", "two", "three"], left_out)
}

fn delivered(
    config: &str,
    names: fn(&Path) -> Vec<String>,
    expected: [&str; 3],
    left_out: LeftOut,
) -> Option<Result<(), String>> {
    let scene = Scene::new(config, left_out)?;
    let daemon = scene.serve();
    let (mut client, mut count) = (Client::connect(daemon.address()).unwrap(), 0);
    for (name, lines) in [("one", 1), ("two", 9000), ("three", 50)] {
        let (code, text) =
            client.send("a@a.test", &["bob@mx.test"], content(name, lines).as_bytes()).unwrap();
        assert_eq!(code, 250, "{text}");
        count += 1;
        until("it has left the spool", || {
            let said = daemon.ask(&["status", "--json"]).unwrap();
            let status: serde_json::Value = serde_json::from_str(&said).unwrap();
            status["delivered"] == count && status["spool"]["messages"] == 0
        });
    }
    daemon.end(rustix::process::Signal::KILL);
    assert_eq!(names(scene.dir.path()), expected);
    let left = scene.cut(config);
    let names = names(left.path());
    Some(if names == expected { Ok(()) } else { Err(format!("only {names:?} are left of {expected:?}")) })
}

/// A message that `sendmail` leaves in the drop directory of a daemon that does not run; then the power goes.
fn dropped_mail(left_out: LeftOut) -> Option<Result<(), String>> {
    let scene = Scene::new(DROPPED, left_out)?;
    scene.serve().end(rustix::process::Signal::TERM);
    let mut sendmail =
        scene.traced(&["sendmail", "-i", "bob@mx.test"]).stdin(Stdio::piped()).spawn().unwrap();
    sendmail.stdin.take().unwrap().write_all(content("dropped", 100).replace('\r', "").as_bytes()).unwrap();
    assert!(sendmail.wait().unwrap().success());
    let left = scene.cut(DROPPED);
    let files = match fs::read_dir(left.path().join("else/drop")) {
        Ok(files) => files.flatten().map(|file| file.path()),
        Err(lost) => return Some(Err(format!("the drop directory: {lost}"))),
    };
    let mails: Vec<PathBuf> =
        files.filter(|path| path.extension().is_some_and(|end| end == "mail")).collect();
    let [mail] = &mails[..] else { return Some(Err("the drop directory is empty".to_owned())) };
    if !String::from_utf8_lossy(&fs::read(mail).unwrap()).contains("end of dropped") {
        return Some(Err("the file in the drop directory is damaged".to_owned()));
    }
    let daemon = Postrider::start_in(left, free_address(), DROPPED);
    until("it is delivered", || !daemon.mailbox("bob").is_empty());
    Some(if whole(daemon.dir.path()) == ["dropped"] { Ok(()) } else { Err("it is damaged".to_owned()) })
}

/// A message is accepted into a spool some folders of which did not exist; then the power goes.
fn new_spool(left_out: LeftOut) -> Option<Result<(), String>> {
    let more = "path = \"deep/er/spool\"\n[[route]]\ndomains = [\"*\"]\nsmarthost = \"127.0.0.1:9\"\ntls = \"off\"\n";
    let scene = Scene::new(more, left_out)?;
    let daemon = scene.serve();
    let mut client = Client::connect(daemon.address()).unwrap();
    let (code, _) = client.send("a@a.test", &["x@b.test"], content("kept", 10).as_bytes()).unwrap();
    assert_eq!(code, 250);
    daemon.end(rustix::process::Signal::KILL);
    let left = scene.cut(more);
    let daemon = Postrider::start_in(left, free_address(), more);
    let count = daemon.ask(&["queue", "count"]);
    Some(if count == "1\n" { Ok(()) } else { Err(format!("{} messages are left", count.trim())) })
}

/// A next hop that takes one message, defers another and says nothing about a third one, all of them acknowledged; then the power
/// goes.
fn delivered_first(left_out: LeftOut) -> Option<Result<(), String>> {
    let config = |sink: &Sink| {
        format!("deliver_first_timeout = \"2s\"\n{}durability = \"deliver-first\"\n", sink.route())
    };
    let (is_deferring, is_silent) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(())));
    let (defers, silent) = (is_deferring.clone(), is_silent.clone());
    let sink = Sink::with(move |command| {
        if command == "." {
            drop(silent.lock().unwrap());
        }
        (command == "." && defers.load(Ordering::Relaxed)).then(|| "451 4.3.0 Later".to_owned())
    });
    let scene = Scene::new(&config(&sink), left_out)?;
    let daemon = scene.serve();
    let mut client = Client::connect(daemon.address()).unwrap();
    let mut send = |name: &str, word: &str| {
        let told = client.send("a@a.test", &[&format!("{name}@b.test")], content(name, 10).as_bytes());
        let told = told.unwrap().1;
        assert!(told.starts_with(&format!("250 2.0.0 Ok: {word}")), "{name}: {told}");
    };
    send("taken", "delivered as ");
    is_deferring.store(true, Ordering::Relaxed);
    send("deferred", "queued as ");
    let silence = is_silent.lock().unwrap();
    send("silent", "queued as ");
    daemon.end(rustix::process::Signal::KILL);
    drop(silence);
    let taking = Sink::start();
    let left = scene.cut(&config(&taking));
    let daemon = Postrider::start_in(left, free_address(), &config(&taking));
    daemon.ask(&["queue", "flush"]);
    until("the queue is empty", || daemon.ask(&["queue", "count"]) == "0\n");
    let mut all: Vec<String> = taking.messages().iter().flat_map(|one| one.to.clone()).collect();
    all.sort_unstable();
    let is_right = all == ["deferred@b.test", "silent@b.test"] && sink.count() == 1;
    Some(if is_right { Ok(()) } else { Err(format!("after the cut {all:?} are delivered")) })
}

type Story = fn(LeftOut) -> Option<Result<(), String>>;

fn survives(story: Story) {
    if let Some(survived) = story(None) {
        survived.unwrap();
    }
}

/// Checks that the story fails if a call does nothing: a test that cannot fail proves nothing.
fn is_noticed(story: Story, call: &'static str, which: &'static str) {
    if let Some(survived) = story(Some((call, which))) {
        println!("{which}: {}", survived.expect_err("mail survived although a sync was left out"));
    }
}

#[test]
fn mail_in_a_maildir_survives_a_power_cut() {
    survives(delivered_mail);
}

#[test]
fn a_maildir_file_that_is_not_synced_is_noticed() {
    is_noticed(delivered_mail, "fdatasync", "*/bob/tmp/");
}

#[test]
fn a_maildir_folder_that_is_not_synced_is_noticed() {
    is_noticed(delivered_mail, "fsync", "/bob/new");
}

#[test]
fn mail_in_an_mbox_survives_a_power_cut_in_its_order_and_once() {
    survives(appended_mail);
}

#[test]
fn an_mbox_that_is_not_synced_is_noticed() {
    is_noticed(appended_mail, "fdatasync", "/boxes/bob");
}

#[test]
fn the_folder_of_a_new_mbox_that_is_not_synced_is_noticed() {
    is_noticed(appended_mail, "fsync", "/data/boxes");
}

#[test]
fn mail_in_the_drop_directory_survives_a_power_cut() {
    survives(dropped_mail);
}

#[test]
fn a_file_in_the_drop_directory_that_is_not_synced_is_noticed() {
    is_noticed(dropped_mail, "fsync", "*/else/drop/");
}

#[test]
fn a_name_in_the_drop_directory_that_is_not_synced_is_noticed() {
    is_noticed(dropped_mail, "fsync", "/else/drop");
}

#[test]
fn mail_that_is_delivered_first_survives_a_power_cut_once() {
    survives(delivered_first);
}

#[test]
fn mail_that_its_next_hop_did_not_take_and_that_is_not_synced_is_noticed() {
    is_noticed(delivered_first, "fdatasync", "*/data/spool/");
}

#[test]
fn mail_in_a_new_spool_survives_a_power_cut() {
    survives(new_spool);
}

#[test]
fn folders_above_a_new_spool_that_are_not_synced_are_noticed() {
    is_noticed(new_spool, "fsync", "/deep");
}
