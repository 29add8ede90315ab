//! The process of the daemon: its user, its sandbox, the delivery helper, and systemd.

#[path = "process/journal.rs"]
mod journal;
#[path = "process/kills.rs"]
mod kills;
#[path = "process/links.rs"]
mod links;

use crate::common::{Postrider, WAIT_TIMEOUT, client::Client, free_address, sink::Sink, until};
use rustix::process::Signal;
use std::{
    fs::{self, Permissions},
    io::{BufRead as _, BufReader, Write as _},
    net::{TcpListener, TcpStream},
    os::unix::{
        fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, chown},
        net::UnixDatagram,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
};
use tempfile::TempDir;

const LOG: &str = "[log]\nfile = \"mail.log\"\n";
/// Number of a user that no other process has.
const DAEMON: u32 = 12_345;
const NOBODY: u32 = 65_534;

/// Returns whether the test may go on; else says that it was skipped.
fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        println!("SKIPPED: only root can change the user");
    }
    is_root
}

/// Makes a folder that every user can enter.
fn open_dir() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    dir
}

/// Returns the words behind a name in `/proc/PID/status` of each thread.
fn status(pid: u32, name: &str) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let of = |path: PathBuf| {
        let text = fs::read_to_string(path.join("status")).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim));
        line.map(|words| words.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    tasks.filter_map(|task| of(task.unwrap().path())).collect()
}

#[test]
fn every_thread_of_the_daemon_is_in_the_sandbox() {
    let sink = Sink::start();
    let daemon = Postrider::start(&sink.route());
    daemon.send("x@b.test");
    until("it is delivered", || sink.count() == 1);
    for (name, value) in [("Seccomp", "2"), ("NoNewPrivs", "1")] {
        let found = status(daemon.pid(), name);
        assert!(found.len() > 2 && found.iter().all(|own| own == value), "{name}: {found:?}");
    }
    for (mode, value) in [("off", "0"), ("log", "2")] {
        let other = Postrider::start(&format!("[process]\nsandbox = \"{mode}\"\n"));
        let said = other.ask(&["status"]);
        assert!(
            said.contains(&format!("the sandbox is not complete: `process.sandbox` is \"{mode}\"")),
            "{said}"
        );
        let found = status(other.pid(), "Seccomp");
        assert!(found.iter().all(|own| own == value), "{mode}: {found:?}");
        other.send("joe@mx.test");
        until("it is delivered", || other.mailbox("joe").len() == 1);
    }
}

#[test]
fn a_reload_that_needs_more_than_the_sandbox_permits_asks_for_a_restart_and_changes_nothing() {
    let (sink, other, elsewhere) = (Sink::start(), Sink::start(), tempfile::tempdir().unwrap());
    let daemon = Postrider::start(&sink.route());
    let maildir = format!("{}/boxes/{{local}}", elsewhere.path().display());
    for (more, needed) in [
        (other.route(), format!("to connect to port {}", other.address.port())),
        (
            format!("[[route]]\ndomains = [\"*\"]\nmaildir = \"{maildir}\"\n"),
            format!("to write in {}/boxes", elsewhere.path().display()),
        ),
        (
            "[[route]]\ndomains = [\"*\"]\npipe = { argv = [\"/bin/true\"], user = \"nobody\" }\n".to_owned(),
            "needs the delivery helper".to_owned(),
        ),
    ] {
        daemon.reconfigure(&more);
        let said = daemon.try_ask(&["reload"]).unwrap_err();
        assert!(said.contains(&needed) && said.contains("needs a restart"), "{said}");
    }
    daemon.send("x@b.test");
    until("the former route is used", || sink.count() == 1);
}

#[test]
fn a_daemon_of_root_becomes_its_user_for_good() {
    if !is_root() {
        return;
    }
    let dir = open_dir();
    let made = rcgen::generate_simple_self_signed(["mx.test".to_owned()]).unwrap();
    fs::write(dir.path().join("cert.pem"), made.cert.pem()).unwrap();
    fs::write(dir.path().join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    fs::set_permissions(dir.path().join("key.pem"), Permissions::from_mode(0o600)).unwrap();
    let config = format!(
        "{LOG}[tls]\ncertificate = \"cert.pem\"\nkey = \"key.pem\"\n[process]\nuser = \"{DAEMON}\"\n\
         sandbox = \"enforce\"\n[[route]]\ndomains = [\"id.test\"]\n\
         pipe = [\"/bin/sh\", \"-c\", \"cat >/dev/null; echo 5.0.0 uid $(id -u) groups $(id -G); exit 1\"]\n"
    );
    let daemon = Postrider::start_in(dir, free_address(), &config);
    let pid = daemon.pid();
    let all = |name: &str, value: &str| {
        let found = status(pid, name);
        assert!(found.len() > 2 && found.iter().all(|own| own == value), "{name}: {found:?}");
    };
    for name in ["Uid", "Gid"] {
        all(name, &[DAEMON; 4].map(|id| id.to_string()).join(" "));
    }
    all("Groups", &DAEMON.to_string());
    for name in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        all(name, "0000000000000000");
    }
    all("NoNewPrivs", "1");
    all("Seccomp", "2");
    daemon.send("joe@mx.test");
    until("it is delivered", || daemon.mailbox("joe").len() == 1);
    for path in ["data", "mail.log", "data/spool", "data/control.sock"] {
        let owner = fs::metadata(daemon.dir.path().join(path)).unwrap().uid();
        assert_eq!(owner, DAEMON, "{path}");
    }
    // A program without a user gets that of the daemon.
    daemon.send("joe@id.test");
    let said = daemon.outcome("joe@id.test").to_string();
    assert!(said.contains(&format!("uid {DAEMON} groups {DAEMON}")), "{said}");
    // The key cannot be read any more; everything else is reloaded.
    daemon.reconfigure(&format!("{config}[limits]\nmax_hops = 7\n"));
    daemon.ask(&["reload"]);
    assert!(daemon.ask(&["config", "show"]).contains("max_hops = 7"));
    // A second start finds everything its own.
    let (dir, status) = daemon.stop();
    assert!(status.success());
    let daemon = Postrider::start_in(dir, free_address(), &config);
    daemon.send("joe@mx.test");
    until("it is delivered", || daemon.mailbox("joe").len() == 2);
}

#[test]
fn the_helper_writes_as_the_users_that_it_may_and_refuses_links_pipes_and_the_system() {
    if !is_root() {
        return;
    }
    let dir = open_dir();
    let make = |name: &str, owner: Option<u32>, mode: u32| {
        let path = dir.path().join(name);
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        chown(&path, owner, owner).unwrap();
    };
    make("homes", None, 0o755);
    for user in ["nobody", "root", "daemon"] {
        make(&format!("homes/{user}"), Some(if user == "nobody" { NOBODY } else { 0 }), 0o777);
    }
    make("boxes", None, 0o777);
    let at = dir.path().display().to_string();
    std::os::unix::fs::symlink(dir.path().join("homes"), dir.path().join("linked")).unwrap();
    let route = |domain: &str, target: &str, user: &str| {
        format!("[[route]]\ndomains = [\"{domain}\"]\n{target}\nuser = \"{user}\"\n")
    };
    let routes = route("home.test", &format!("maildir = \"{at}/homes/{{local}}/Maildir\""), "{local}")
        + &route("box.test", &format!("mbox = \"{at}/boxes/{{local}}\""), "nobody")
        + &route("link.test", &format!("maildir = \"{at}/linked/{{local}}/Maildir\""), "{local}")
        + &route("hard.test", &format!("mbox = \"{at}/boxes/hard\""), "nobody")
        + &route("fifo.test", &format!("mbox = \"{at}/boxes/fifo\""), "nobody")
        + &route("soft.test", &format!("mbox = \"{at}/boxes/soft\""), "nobody");
    fs::write(dir.path().join("boxes/hard"), "").unwrap();
    fs::hard_link(dir.path().join("boxes/hard"), dir.path().join("boxes/other")).unwrap();
    std::os::unix::fs::symlink(dir.path().join("boxes/other"), dir.path().join("boxes/soft")).unwrap();
    assert!(Command::new("mkfifo").arg(dir.path().join("boxes/fifo")).status().unwrap().success());
    for name in ["hard", "fifo"] {
        chown(dir.path().join("boxes").join(name), Some(NOBODY), None).unwrap();
    }
    let config =
        format!("{LOG}[process]\nuser = \"{DAEMON}\"\nmax_uid = 65534\nsandbox = \"enforce\"\n{routes}");
    let daemon = Postrider::start_in(dir, free_address(), &config);
    for (to, status, words) in [
        ("nobody@home.test", "2.0.0", "homes/nobody/Maildir"),
        ("joe@box.test", "2.0.0", "boxes/joe"),
        ("nobody@link.test", "4.3.5", "linked is a symbolic link"),
        ("joe@hard.test", "4.3.0", "a file with a single name"),
        ("joe@fifo.test", "4.3.0", "a file with a single name"),
        ("joe@soft.test", "4.3.5", "symbolic link"),
    ] {
        daemon.send(to);
        let outcome = daemon.outcome(to);
        assert!(outcome["dsn"] == status && outcome.to_string().contains(words), "{outcome}");
    }
    daemon.send("postmaster@home.test");
    until("the postmaster has it", || daemon.mailbox("postmaster").len() == 1);
    // The recipient check knows what the helper knows.
    let mut client = Client::connect(daemon.address).unwrap();
    client.say("MAIL FROM:<a@far.test>").unwrap();
    for (to, reply) in [
        ("root@home.test", "550 5.1.1"),
        ("daemon@home.test", "550 5.1.1"),
        ("daemon+x@home.test", "550 5.1.1"),
        ("stranger@home.test", "550 5.1.1"),
        ("postmaster@home.test", "250 2.1.5"),
        ("nobody+x@home.test", "250 2.1.5"),
        ("daemon@box.test", "250 2.1.5"),
    ] {
        let said = client.say(&format!("RCPT TO:<{to}>")).unwrap().1;
        assert!(said.starts_with(reply), "{to}: {said}");
    }
    drop(client);
    let file = daemon.dir.path().join("boxes/joe");
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.starts_with("From a@far.test ") && text.ends_with("\nSubject: s\n\nbody\n\n"), "{text}");
    let new = daemon.dir.path().join("homes/nobody/Maildir/new");
    let mails: Vec<_> = fs::read_dir(&new).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(mails.len(), 1);
    for path in [&file, &new, &mails[0]] {
        let meta = fs::metadata(path).unwrap();
        assert_eq!((meta.uid(), meta.gid()), (NOBODY, NOBODY), "{}", path.display());
    }
    for user in ["root", "daemon"] {
        assert_eq!(fs::read_dir(daemon.dir.path().join("homes").join(user)).unwrap().count(), 0);
    }
    // The helper ends with its daemon.
    let helpers = helpers_of(daemon.pid());
    assert_eq!(helpers.len(), 1);
    drop(daemon);
    until("the helper has ended", || !Path::new(&format!("/proc/{}", helpers[0])).exists());
}

#[test]
fn the_helper_answers_when_the_message_is_in_the_file_and_not_before() {
    if !is_root() {
        return;
    }
    let dir = open_dir();
    let boxes = dir.path().join("boxes");
    fs::create_dir(&boxes).unwrap();
    fs::set_permissions(&boxes, Permissions::from_mode(0o777)).unwrap();
    let config = format!(
        "{LOG}[process]\nuser = \"{DAEMON}\"\n[[route]]\ndomains = [\"box.test\"]\nmbox = \"{}/{{local}}\"\nuser = \"nobody\"\n",
        boxes.display()
    );
    let joe = fs::File::create_new(boxes.join("joe")).unwrap();
    chown(boxes.join("joe"), Some(NOBODY), Some(NOBODY)).unwrap();
    rustix::fs::fcntl_lock(&joe, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let daemon = Postrider::start_in(dir, free_address(), &config);
    daemon.send("joe@box.test");
    let helper = next_helper(helpers_of(daemon.pid())[0], None);
    until("a writer has begun", || !kills::children_of(helper).is_empty());
    // Whatever the helper has said about joe, it has said before this.
    daemon.send("ann@box.test");
    assert_eq!(daemon.outcome("ann@box.test")["dsn"], "2.0.0");
    assert_eq!((daemon.counter("delivered"), joe.metadata().unwrap().len()), (1, 0));
    rustix::fs::fcntl_lock(&joe, rustix::fs::FlockOperation::Unlock).unwrap();
    assert_eq!(daemon.outcome("joe@box.test")["dsn"], "2.0.0");
    assert!(fs::read_to_string(boxes.join("joe")).unwrap().ends_with("\nSubject: s\n\nbody\n\n"));
}

/// Returns the helper that a daemon's supervisor has started, once it is there and is not the former one.
fn next_helper(supervisor: u32, former: Option<u32>) -> u32 {
    let mut found = None;
    until("the helper has started", || {
        found = helpers_of(supervisor).into_iter().find(|pid| Some(*pid) != former);
        found.is_some()
    });
    found.unwrap()
}

fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
}

#[test]
fn mail_for_a_root_without_a_mailbox_reaches_a_person_and_names_of_the_system_are_refused() {
    if !is_root() {
        return;
    }
    let dir = open_dir();
    fs::create_dir(dir.path().join("boxes")).unwrap();
    fs::set_permissions(dir.path().join("boxes"), Permissions::from_mode(0o777)).unwrap();
    fs::write(
        dir.path().join("aliases"),
        "postmaster: root\nabuse: postmaster\nstaff: nobody, daemon, gone\njobs: daemon\nnone: gone\n",
    )
    .unwrap();
    let at = dir.path().display().to_string();
    let config = format!(
        "[process]\nuser = \"{DAEMON}\"\nmax_uid = 65534\n[local]\ndomains = [\"mx.test\"]\nusers = [\"accounts:/etc/passwd\"]\n\
         mbox = \"{at}/boxes/{{local}}\"\nuser = \"{{local}}\"\n[addresses]\naliases = [\"aliases:{at}/aliases\"]\n"
    );
    let daemon = Postrider::start_in(dir, free_address(), &config);
    let count = |path: &Path| fs::read_to_string(path).map_or(0, |text| text.matches("Subject: s\n").count());
    let rcpt = |to: &str| {
        let mut client = Client::connect(daemon.address).unwrap();
        client.say("MAIL FROM:<a@far.test>").unwrap();
        client.say(&format!("RCPT TO:<{to}>")).unwrap().1
    };
    // The place of the mailboxes is checked as the helper uses it.
    let warned = || String::from_utf8(daemon.run(&["config", "check"], "").stderr).unwrap();
    let boxes = daemon.dir.path().join("boxes");
    fs::set_permissions(&boxes, Permissions::from_mode(0o755)).unwrap();
    assert!(warned().contains("each recipient may not write in the folder of mailboxes"), "{}", warned());
    assert!(daemon.run(&["doctor"], "").stdout.windows(14).any(|part| part == b"each recipient"));
    fs::set_permissions(&boxes, Permissions::from_mode(0o777)).unwrap();
    assert!(!warned().contains("each recipient"), "{}", warned());
    for name in ["root", "daemon", "jobs", "none", "gone"] {
        assert!(rcpt(&format!("{name}@mx.test")).starts_with("550 5.1.1"), "{name}");
    }
    // Nobody is named: the daemon keeps it.
    for (number, to) in ["postmaster", "postmaster@mx.test", "abuse@mx.test"].into_iter().enumerate() {
        daemon.send(to);
        until("it is kept", || daemon.mailbox("postmaster").len() == number + 1);
    }
    let sendmail = |to: &str| {
        let mut sendmail = Command::new(crate::common::BINARY);
        sendmail.args(["sendmail", "-f", "nobody@mx.test", to]).env("POSTRIDER_CONFIG", daemon.config());
        let mut child = sendmail.stdin(std::process::Stdio::piped()).spawn().unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"Subject: s\n\nx\n").unwrap();
        assert!(child.wait().unwrap().success());
    };
    sendmail("root");
    until("root's mail is kept", || daemon.mailbox("postmaster").len() == 4);
    let wanted = "nobody reads the mail for postmaster: it goes to maildir:";
    assert!(
        warned().contains(wanted) && warned().contains("data/mail/postmaster, which belongs to no user"),
        "{}",
        warned()
    );
    // The members who exist get the mail of a list.
    let file = daemon.dir.path().join("boxes/nobody");
    daemon.send("staff@mx.test");
    until("the member has it", || count(&file) == 1);
    // A person is named.
    let text = fs::read_to_string(daemon.config()).unwrap();
    fs::write(daemon.config(), format!("postmaster = \"nobody@mx.test\"\n{text}")).unwrap();
    daemon.ask(&["reload"]);
    for (number, to) in ["postmaster", "postmaster@mx.test", "abuse@mx.test"].into_iter().enumerate() {
        daemon.send(to);
        until("the person has it", || count(&file) == number + 2);
    }
    sendmail("root");
    until("the person has root's mail", || count(&file) == 5);
    assert!(!warned().contains(wanted), "{}", warned());
    let bv = |to: &str| {
        let mut bv = Command::new(crate::common::BINARY);
        bv.args(["sendmail", "-bv", to]).env("POSTRIDER_CONFIG", daemon.config());
        String::from_utf8(bv.output().unwrap().stdout).unwrap()
    };
    let by = format!("by mbox:{at}/boxes/nobody as user nobody");
    assert_eq!(bv("nobody"), format!("nobody@mx.test: {by}\n"));
    assert_eq!(bv("daemon"), "daemon@mx.test: no such user here\n");
    // By default, an account above those of persons has no mailbox either.
    let text = fs::read_to_string(daemon.config()).unwrap();
    let by_default = text.replace("max_uid = 65534\n", "").replace("postmaster = \"nobody@mx.test\"\n", "");
    fs::write(daemon.config(), by_default).unwrap();
    assert_eq!(bv("nobody"), "nobody@mx.test: no such user here\n");
    fs::write(daemon.config(), text).unwrap();
    assert!(
        bv("abuse").starts_with(&format!("abuse@mx.test: nobody@mx.test {by} (through ")),
        "{}",
        bv("abuse")
    );
    assert!(bv("staff").contains("daemon@mx.test does not exist"), "{}", bv("staff"));
    assert_eq!((daemon.counter("bounced"), daemon.counter("queued")), (0, 0));
}

#[test]
fn a_helper_that_was_killed_starts_again_with_the_same_rights_and_no_mail_is_returned() {
    if !is_root() {
        return;
    }
    let dir = open_dir();
    fs::create_dir(dir.path().join("boxes")).unwrap();
    fs::set_permissions(dir.path().join("boxes"), Permissions::from_mode(0o777)).unwrap();
    let at = dir.path().display().to_string();
    assert!(
        Command::new("mkfifo").args(["-m", "666"]).arg(dir.path().join("fifo")).status().unwrap().success()
    );
    // The program waits until somebody opens the other end of the pipe, unless it may succeed.
    let script = format!("cat >/dev/null; [ -e {at}/may-end ] || read -r word <{at}/fifo");
    let config = format!(
        "{LOG}[process]\nuser = \"{DAEMON}\"\n\
         [[route]]\ndomains = [\"box.test\"]\nmbox = \"{at}/boxes/{{local}}\"\nuser = \"nobody\"\n\
         [[route]]\ndomains = [\"pipe.test\"]\npipe = {{ argv = [\"/bin/sh\", \"-c\", \"{script}\"], user = \"nobody\" }}\n"
    );
    let daemon = Postrider::start_in(dir, free_address(), &config);
    let supervisor = helpers_of(daemon.pid())[0];
    let first = next_helper(supervisor, None);
    daemon.send("one@box.test");
    assert_eq!(daemon.outcome("one@box.test")["dsn"], "2.0.0");
    let rights = status(first, "CapEff").remove(0);

    // A delivery is under way.
    daemon.send("joe@pipe.test");
    let runs_program =
        || fs::read_to_string(format!("/proc/{first}/task/{first}/children")).unwrap_or_default() != "";
    until("the program runs", runs_program);
    kill(first);
    let second = next_helper(supervisor, Some(first));
    let outcome = daemon.outcome("joe@pipe.test");
    let text = outcome.to_string();
    assert!(
        outcome["dsn"] == "4.3.5" && text.contains("the delivery helper") && text.contains("again"),
        "{text}"
    );
    assert_eq!((daemon.counter("queued"), daemon.counter("bounced")), (1, 0));
    until("the status has it", || daemon.ask(&["status"]).contains("has ended 1 time, and runs again"));
    let metrics = daemon.ask(&["status", "--prometheus"]);
    assert!(metrics.contains("postrider_delivery_helper_failures_total 1"), "{metrics}");
    assert!(metrics.contains("postrider_delivery_helper_down 0"), "{metrics}");
    until("the helper has given up what it does not need", || {
        status(second, "CapEff").iter().all(|own| *own == rights)
    });

    // New mail is delivered, and the mail that waits when it is tried again.
    daemon.send("two@box.test");
    assert_eq!(daemon.outcome("two@box.test")["dsn"], "2.0.0");
    fs::write(daemon.dir.path().join("may-end"), "").unwrap();
    daemon.ask(&["queue", "flush"]);
    until("the mail that waited is delivered", || daemon.counter("queued") == 0);
    assert_eq!((daemon.counter("delivered"), daemon.counter("bounced")), (3, 0));
    // The program that the first helper left behind ends.
    let no_wait = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let fifo = daemon.dir.path().join("fifo");
    until("the program reads", || {
        fs::OpenOptions::new().write(true).custom_flags(no_wait).open(&fifo).is_ok()
    });

    // Nobody is left to start another one.
    kill(supervisor);
    kill(second);
    until("the status has it", || daemon.ask(&["status"]).contains("restart the daemon"));
    assert!(daemon.ask(&["status", "--prometheus"]).contains("postrider_delivery_helper_down 1"));
    daemon.send("three@box.test");
    let outcome = daemon.outcome("three@box.test");
    assert!(outcome["dsn"] == "4.3.5" && outcome.to_string().contains("restart the daemon"), "{outcome}");
    let (dir, status) = daemon.stop();
    assert!(status.success());
    let daemon = Postrider::start_in(dir, free_address(), &config);
    daemon.ask(&["queue", "flush"]);
    until("the mail that waited is delivered", || daemon.counter("queued") == 0);
    assert_eq!((daemon.counter("delivered"), daemon.counter("bounced")), (4, 0));
}

#[test]
fn a_daemon_that_has_given_up_root_listens_at_a_new_port_below_1024_by_its_helper() {
    if !is_root() {
        return;
    }
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let low = (600..1000).find(is_free).unwrap();
    let process = format!("{LOG}[process]\nuser = \"{DAEMON}\"\nsandbox = \"enforce\"\n");
    let listener = format!("[[listen]]\naddress = \"127.0.0.1:{low}\"\n");
    let pipe = "[[route]]\ndomains = [\"pipe.test\"]\npipe = { argv = [\"/bin/true\"], user = \"nobody\" }\n";
    for (helper, code) in [("", 78), (pipe, 0)] {
        let daemon = Postrider::start_in(open_dir(), free_address(), &format!("{process}{helper}"));
        daemon.reconfigure(&format!("{listener}{process}{helper}"));
        let output = daemon.run(&["reload"], "");
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(said.contains("ports below 1024 need root"), code == 78, "{said}");
        assert_eq!(TcpStream::connect(("127.0.0.1", low)).is_ok(), code == 0);
        let mut client = Client::connect(daemon.address).unwrap();
        client.send("a@far.test", &["x@mx.test"], b"Subject: x\r\n\r\nx\r\n").unwrap();
    }
}

#[test]
fn what_a_captured_daemon_leaves_in_its_folder_keeps_no_start_of_root_waiting_and_opens_no_key_of_root() {
    if !is_root() {
        return;
    }
    let config = format!(
        "{LOG}[process]\nuser = \"{DAEMON}\"\n[acme]\nnames = [\"mx.test\"]\nagree_to_terms = true\n\
         directory = \"https://127.0.0.1:9/directory\"\nlisten = \"127.0.0.1:{}\"\n",
        free_address().port()
    );
    let daemon = Postrider::start_in(open_dir(), free_address(), &config);
    let (dir, status) = daemon.stop();
    assert!(status.success());
    let data = dir.path().join("data");
    // A key that only root can read, where a certificate of the daemon is expected.
    let made = rcgen::generate_simple_self_signed(["secret.test".to_owned()]).unwrap();
    let secret = dir.path().join("secret.pem");
    fs::write(&secret, made.cert.pem() + &made.signing_key.serialize_pem()).unwrap();
    fs::set_permissions(&secret, Permissions::from_mode(0o600)).unwrap();
    let folder = data.join("acme/127.0.0.1-9-directory");
    fs::create_dir_all(&folder).unwrap();
    let _ = fs::remove_file(folder.join("certificate.pem"));
    std::os::unix::fs::symlink(&secret, folder.join("certificate.pem")).unwrap();
    for name in ["queue-groups", "queue-run.json", "last-good.toml"] {
        let _ = fs::remove_file(data.join(name));
        assert!(Command::new("mkfifo").arg(data.join(name)).status().unwrap().success());
    }
    let daemon = Postrider::start_in(dir, free_address(), &config);
    daemon.send("x@mx.test");
    daemon.ask(&["status"]);
    let client =
        crate::common::tls::Client::starttls(daemon.address, &crate::common::tls::client_config(None));
    let shown = client.unwrap().0.certificate();
    assert_ne!(shown, made.cert.der().to_vec(), "the certificate of root is not used");
}

/// Returns the delivery helpers, or their supervisors, that a process has started.
fn helpers_of(pid: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let children = children.split_whitespace().filter_map(|child| child.parse().ok());
    let is_helper = |child: &u32| {
        fs::read_to_string(format!("/proc/{child}/cmdline")).is_ok_and(|line| line.contains("deliver-helper"))
    };
    children.filter(is_helper).collect()
}

#[test]
fn systemd_is_told_of_the_start_of_reloads_and_of_the_end_and_its_watchdog_is_fed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let systemd = UnixDatagram::bind(&path).unwrap();
    systemd.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
    let environment = [("NOTIFY_SOCKET", path), ("WATCHDOG_USEC", "100000".into())];
    let daemon = Postrider::start_with(dir, free_address(), "", &environment);
    let next = |word: &str| {
        let mut bytes = [0; 4096];
        loop {
            let count = systemd.recv(&mut bytes).unwrap_or_else(|e| panic!("{word}: {e}"));
            let text = String::from_utf8_lossy(&bytes[..count]).into_owned();
            if text.lines().any(|line| line == word) {
                return text;
            }
        }
    };
    assert!(next("READY=1").contains("STATUS=Serving"));
    next("WATCHDOG=1");
    next("WATCHDOG=1");
    daemon.signal(Signal::HUP);
    assert!(next("RELOADING=1").contains("MONOTONIC_USEC="));
    next("READY=1");
    daemon.reconfigure("unknown = 1\n");
    daemon.signal(Signal::HUP);
    next("RELOADING=1");
    assert!(next("READY=1").contains("has problems"));
    daemon.signal(Signal::TERM);
    next("STOPPING=1");
}

/// systemd opens each socket that `Sockets=` of a service names, and opens none while the service of the socket runs.
#[test]
fn the_service_opens_the_sockets_that_are_enabled_and_no_others() {
    let dist = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist");
    let lines = |name: &str| -> Vec<String> {
        fs::read_to_string(dist.join(name)).unwrap().lines().map(str::to_owned).collect()
    };
    let service = lines("postrider.service");
    assert!(!service.iter().any(|line| line.starts_with("Sockets=")));
    for name in ["postrider-submission.socket", "postrider-submissions.socket", "postrider-acme.socket"] {
        let socket = lines(name);
        assert!(socket.iter().any(|line| line == "Service=postrider.service"), "{name}");
        assert!(socket.iter().any(|line| line == "WantedBy=sockets.target postrider.service"), "{name}");
        assert!(!service.iter().any(|line| line.starts_with("Wants=") && line.contains(name)), "{name}");
    }
}

/// Starts a daemon with a socket that systemd keeps.
fn activated(dir: &Path, socket: &TcpListener) -> Child {
    let script = "exec 3<&0 </dev/null
        export LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=smtp
        exec \"$0\" serve --config postrider.toml";
    Command::new("sh")
        .args(["-c", script, crate::common::BINARY])
        .current_dir(dir)
        .stdin(Stdio::from(std::os::fd::OwnedFd::from(socket.try_clone().unwrap())))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// `POSTRIDER_TEST_CONNECTIONS=10000` makes the run of docs/results/process.md.
#[test]
fn a_restart_refuses_no_connection_of_a_socket_that_systemd_keeps() {
    let count = std::env::var("POSTRIDER_TEST_CONNECTIONS").ok().and_then(|text| text.parse().ok());
    let count: usize = count.unwrap_or(300);
    let dir = tempfile::tempdir().unwrap();
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let config = "hostname = \"mx.test\"\ndata_dir = \"data\"\n[[listen]]\naddress = \"systemd:smtp\"\n\
                  [spool]\nsegment_size = \"4MiB\"\nmin_free = \"16MiB\"\n[inbound]\nshutdown_timeout = \"5s\"\n";
    fs::write(dir.path().join("postrider.toml"), config).unwrap();
    let (made, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (mut greeted, mut closing) = (0, 0);
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..40)
            .map(|_| {
                scope.spawn(|| {
                    let (mut greeted, mut closing) = (0, 0);
                    while made.fetch_add(1, Ordering::Relaxed) < count {
                        let mut stream = TcpStream::connect(address).expect("no connection is refused");
                        stream.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
                        let mut replies = BufReader::new(stream.try_clone().unwrap());
                        let mut reply = String::new();
                        replies.read_line(&mut reply).expect("each connection is answered");
                        match reply.get(..3) {
                            Some("220") => greeted += 1,
                            Some("421") => closing += 1,
                            other => panic!("{other:?}"),
                        }
                        if reply.starts_with("220") {
                            let sent = stream.write_all(b"QUIT\r\n");
                            reply.clear();
                            // A reset may overtake the 421 of a daemon that did not wait for the command (RFC 5321 §3.8).
                            let read = replies.read_line(&mut reply);
                            let is_told = reply.starts_with("221 ") || reply.starts_with("421 ");
                            assert!(is_told, "no session ends without a reply: {sent:?} {read:?} {reply:?}");
                        }
                    }
                    is_over.store(true, Ordering::Relaxed);
                    (greeted, closing)
                })
            })
            .collect();
        let mut restarts = 0;
        let mut daemon = activated(dir.path(), &socket);
        // Three restarts, a quarter of the connections apart.
        for part in 1..4 {
            until("connections were made", || {
                made.load(Ordering::Relaxed) > part * count / 4 || is_over.load(Ordering::Relaxed)
            });
            // All clients may be done already: to a daemon that starts, the signal is the end.
            let mut greeting = String::new();
            BufReader::new(TcpStream::connect(address).unwrap()).read_line(&mut greeting).unwrap();
            assert!(greeting.starts_with("220"), "{greeting}");
            rustix::process::kill_process(rustix::process::Pid::from_child(&daemon), Signal::TERM).unwrap();
            assert!(daemon.wait().unwrap().success());
            daemon = activated(dir.path(), &socket);
            restarts += 1;
        }
        for client in clients {
            let (own, late) = client.join().unwrap();
            greeted += own;
            closing += late;
        }
        println!(
            "{count} connections, {restarts} restarts: {greeted} greeted, {closing} got 421, none refused"
        );
        daemon.kill().unwrap();
        daemon.wait().unwrap();
    });
    assert_eq!(greeted + closing, count);
}

#[test]
fn a_resolv_conf_that_is_replaced_is_noticed_in_the_sandbox_and_one_that_cannot_be_read_is_told() {
    if !is_root() {
        return;
    }
    for (process, is_read) in [(format!("user = \"{DAEMON}\"\n"), true), (String::new(), false)] {
        let (dir, address) = (open_dir(), free_address());
        let own = dir.path().join("etc");
        assert!(Command::new("cp").args(["-a", "/etc"]).arg(&own).status().unwrap().success());
        let _ = fs::remove_file(own.join("resolv.conf"));
        fs::write(own.join("resolv.conf"), "search example.com\nnameserver 127.0.0.1\n").unwrap();
        let text = format!(
            "hostname = \"mx.test\"\ndata_dir = \"data\"\n[[listen]]\naddress = \"{address}\"\n[dns]\ntimeout = \"1s\"\n\
             attempts = 1\n[spool]\nsegment_size = \"4MiB\"\nmin_free = \"16MiB\"\n[process]\nsandbox = \"enforce\"\n{process}{LOG}"
        );
        fs::write(dir.path().join("postrider.toml"), text).unwrap();
        let script = "mount --bind etc /etc && exec \"$@\" 2>stderr";
        let mut serve = Command::new("unshare");
        serve.args([
            "--mount",
            "sh",
            "-c",
            script,
            "sh",
            crate::common::BINARY,
            "serve",
            "--config",
            "postrider.toml",
        ]);
        let mut daemon = serve.current_dir(dir.path()).stdout(Stdio::null()).spawn().unwrap();
        until("it listens", || TcpStream::connect(address).is_ok());
        let mut number = 0;
        let mut send = || {
            number += 1;
            let to = format!("x@other{number}.test");
            let mut client = Client::connect(address).unwrap();
            client.send("a@mx.test", &[&to], b"Subject: s\r\n\r\nbody\r\n").unwrap();
        };
        send();
        let log = dir.path().join("mail.log");
        let has_failed =
            || fs::read_to_string(&log).unwrap_or_default().contains("look up MX of other1.test");
        until("nobody answers", has_failed);
        // A file without a name server is another one, and says so.
        fs::write(own.join("new"), "search example.com\n").unwrap();
        fs::rename(own.join("new"), own.join("resolv.conf")).unwrap();
        let told = if is_read { "names no name server" } else { "may not read: restart the daemon" };
        until("the change is noticed", || {
            send();
            fs::read_to_string(dir.path().join("stderr")).unwrap().contains(told)
        });
        let status = Command::new(crate::common::BINARY)
            .args(["status", "--config", "postrider.toml"])
            .current_dir(dir.path())
            .output()
            .unwrap();
        let status = String::from_utf8(status.stdout).unwrap();
        assert!(status.contains("NAME SERVERS: ") && status.contains(told), "{status}");
        let _ = (daemon.kill(), daemon.wait());
    }
}

#[test]
fn a_machine_without_a_name_server_starts_and_notices_when_there_is_one() {
    if !is_root() {
        return;
    }
    let (dir, address) = (tempfile::tempdir().unwrap(), free_address());
    let resolv = dir.path().join("resolv.conf");
    fs::write(&resolv, "search example.com\n").unwrap();
    let text = format!(
        "hostname = \"mx.test\"\ndata_dir = \"data\"\n[[listen]]\naddress = \"{address}\"\n[dns]\ntimeout = \"1s\"\n\
         attempts = 1\n[spool]\nsegment_size = \"4MiB\"\nmin_free = \"16MiB\"\n{LOG}"
    );
    fs::write(dir.path().join("postrider.toml"), text).unwrap();
    let script = "mount --bind resolv.conf /etc/resolv.conf && exec \"$@\"";
    let mut serve = Command::new("unshare");
    serve.args([
        "--mount",
        "sh",
        "-c",
        script,
        "sh",
        crate::common::BINARY,
        "serve",
        "--config",
        "postrider.toml",
    ]);
    let mut daemon =
        serve.current_dir(dir.path()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let send = |to: &str| {
        let mut client = crate::common::client::Client::connect(address)?;
        client.send("a@mx.test", &[to], b"Subject: s\r\n\r\nbody\r\n")
    };
    until("it has started", || {
        assert!(daemon.try_wait().unwrap().is_none(), "it starts without a name server");
        send("x@far.test").is_ok()
    });
    let is_told = |domain: &str, is_reason: fn(&str) -> bool| {
        let log = fs::read_to_string(dir.path().join("mail.log")).unwrap_or_default();
        let failure = format!("look up MX of {domain}.: ");
        log.lines().filter_map(|line| line.split_once(&failure)).any(|(_, reason)| is_reason(reason))
    };
    let is_missing = |reason: &str| reason.starts_with("/etc/resolv.conf names no name server");
    until("the reason is clear", || is_told("far.test", is_missing));
    // Nothing answers there, which is another reason.
    fs::write(&resolv, "nameserver 127.0.0.1\n").unwrap();
    let mut number = 0;
    until("the change is noticed", || {
        number += 1;
        send(&format!("y@other{number}.test")).unwrap();
        let of =
            |number| is_told(&format!("other{number}.test"), |reason: &str| !reason.starts_with("/etc/"));
        (1..=number).any(of)
    });
    let _ = (daemon.kill(), daemon.wait());
}
