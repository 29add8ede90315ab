//! Backup and restore: what was accepted before a backup is in it, and is restored on hold.

use crate::common::{BINARY, Postrider, client::Client, free_address, sink::Sink, until};
use std::{
    collections::HashSet,
    fs,
    net::SocketAddr,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
};
use tempfile::TempDir;

const LOG: &str = "backend = \"log\"\n";
const DIRECTORIES: &str = "backend = \"queue-dirs\"\n";

/// Mail for fast.test goes to a next hop, all other waits.
fn config(backend: &str, fast: SocketAddr, slow: SocketAddr) -> String {
    format!(
        "{backend}[relay]\nnetworks = [\"127.0.0.0/8\"]\n\
         [[route]]\ndomains = [\"fast.test\"]\nsmarthost = \"{fast}\"\ntls = \"off\"\n\
         [[route]]\ndomains = [\"slow.test\"]\nsmarthost = \"{slow}\"\ntls = \"off\"\n"
    )
}

/// A message for which a client has read 250.
#[derive(Debug, Clone)]
struct Acked {
    id: String,
    to: &'static str,
    content: Vec<u8>,
}

/// A content that no other message has. Every tenth is stored in chunks.
fn content(client: usize, number: usize) -> Vec<u8> {
    let lines = if number % 10 == 9 { 30_000 } else { number % 40 };
    let mut content = format!("Subject: {client}-{number}\r\n\r\n").into_bytes();
    for line in 0..lines {
        content.extend_from_slice(format!(".{client} {number} {line} \u{fc}\r\n").as_bytes());
    }
    content
}

fn send(client: &mut Client, to: &'static str, content: Vec<u8>) -> Option<Acked> {
    let reply = client.send("a@far.test", &[to], &content).ok()?;
    assert_eq!(reply.0, 250, "{}", reply.1);
    let id = reply.1.rsplit(' ').next().unwrap().to_owned();
    Some(Acked { id, to, content })
}

/// Clients that send until they are stopped, and write down each 250.
struct Load {
    acked: Arc<Mutex<Vec<Acked>>>,
    done: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    fn start(address: SocketAddr) -> Self {
        let (acked, done) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let threads = (0..4)
            .map(|client| {
                let (acked, done) = (acked.clone(), done.clone());
                std::thread::spawn(move || {
                    let mut session = Client::connect(address).unwrap();
                    for number in 0.. {
                        if done.load(Ordering::SeqCst) {
                            return;
                        }
                        let to = if number % 3 == 0 { "x@fast.test" } else { "x@slow.test" };
                        let sent = send(&mut session, to, content(client, number)).unwrap();
                        acked.lock().unwrap().push(sent);
                    }
                })
            })
            .collect();
        Self { acked, done, threads }
    }

    fn acked(&self) -> Vec<Acked> {
        self.acked.lock().unwrap().clone()
    }

    fn stop(self) {
        self.done.store(true, Ordering::SeqCst);
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

fn command(config: &Path, arguments: &[&str]) -> Output {
    Command::new(BINARY).args(arguments).env("POSTRIDER_CONFIG", config).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a command that must succeed; its standard output.
fn said(config: &Path, arguments: &[&str]) -> String {
    let output = command(config, arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    text(&output.stdout)
}

/// Runs a command that must fail with this exit code; its standard error.
fn refused(config: &Path, arguments: &[&str], exit: i32) -> String {
    let output = command(config, arguments);
    assert_eq!(output.status.code(), Some(exit), "{arguments:?}: {output:?}");
    text(&output.stderr)
}

/// Returns the only file of a folder.
fn only_file(dir: &Path) -> PathBuf {
    let files: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    files[0].clone()
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A folder with a configuration for a restored spool, which delivers everything to a next hop.
fn elsewhere(backend: &str, spool: &Path, next_hop: SocketAddr) -> (TempDir, SocketAddr) {
    let (dir, address) = (tempfile::tempdir().unwrap(), free_address());
    let more = config(&format!("path = \"{}\"\n{backend}", spool.display()), next_hop, next_hop);
    let text = format!(
        "hostname = \"mx.test\"\ndata_dir = \"data\"\n[[listen]]\naddress = \"{address}\"\n[spool]\n\
         segment_size = \"4MiB\"\nmin_free = \"16MiB\"\n{more}"
    );
    fs::write(dir.path().join("postrider.toml"), text).unwrap();
    (dir, address)
}

/// Starts a daemon on a restored spool: everything is on hold. Releases all, and waits until it has arrived.
fn release_all(dir: TempDir, address: SocketAddr, sink: &Sink, count: usize) {
    let text = fs::read_to_string(dir.path().join("postrider.toml")).unwrap();
    let daemon = Postrider::start_from(dir, address, &text);
    let held = daemon.ask(&["queue", "list", "--status", "held", "--ids"]);
    assert_eq!((held.lines().count(), sink.count()), (count, 0));
    daemon.ask(&["queue", "release", "all"]);
    until("everything that was released arrives", || sink.count() >= count && daemon.counter("queued") == 0);
    assert_eq!((sink.count(), daemon.counter("bounced")), (count, 0));
    daemon.stop();
}

fn under_load(backend: &str) {
    let (fast, slow) = (Sink::start(), free_address());
    let daemon = Postrider::start(&config(backend, fast.address, slow));
    let load = Load::start(daemon.address);
    until("there is a queue", || load.acked().len() > 120 && fast.count() > 20);
    let backups = tempfile::tempdir().unwrap();
    let acked = load.acked();
    let told = daemon.ask(&["backup", path(backups.path())]);
    load.stop();
    assert!(told.contains("(the daemon is running)"), "{told}");
    let archive = only_file(backups.path());
    assert_eq!(fs::metadata(&archive).unwrap().permissions().mode() & 0o777, 0o600);
    let delivered: Vec<Vec<u8>> = fast.messages().into_iter().map(|message| message.content).collect();
    let (dir, _) = daemon.stop();

    let place = tempfile::tempdir().unwrap();
    let spool = place.path().join("restored");
    let sink = Sink::start();
    let (other, address) = elsewhere(backend, &spool, sink.address);
    let config = other.path().join("postrider.toml");
    let told = said(&config, &["restore", path(&archive), "--spool", path(&spool)]);
    assert!(told.contains("on hold") && told.contains("queue release all"), "{told}");

    let ids: HashSet<String> =
        said(&config, &["queue", "list", "--ids"]).lines().map(str::to_owned).collect();
    let shown = said(&config, &["queue", "list", "--status", "held"]);
    assert!(shown.contains("restored from the backup of"), "{shown}");
    let was_delivered = |one: &Acked| delivered.iter().any(|content| content.ends_with(&one.content));
    for one in &acked {
        assert!(
            ids.contains(&one.id) || (one.to == "x@fast.test" && was_delivered(one)),
            "{} is lost",
            one.id
        );
    }
    let waiting = acked.iter().filter(|one| one.to == "x@slow.test").count();
    assert!(waiting > 50 && ids.len() >= waiting, "{waiting} of {}", ids.len());

    release_all(other, address, &sink, ids.len());
    let arrived: Vec<Vec<u8>> = sink.messages().into_iter().map(|message| message.content).collect();
    for one in acked.iter().filter(|one| ids.contains(&one.id)) {
        let count = arrived.iter().filter(|content| content.ends_with(&one.content)).count();
        assert_eq!(count, 1, "{}", one.id);
    }
    drop(dir);
}

#[test]
fn a_backup_of_a_log_under_load_has_every_message_that_was_acknowledged_before() {
    under_load(LOG);
}

#[test]
fn a_backup_of_queue_directories_under_load_has_every_message_that_was_acknowledged_before() {
    under_load(DIRECTORIES);
}

/// The folder of a daemon that was stopped with some mail in its queue.
fn stopped(backend: &str, count: usize) -> (TempDir, Vec<Acked>) {
    let (fast, slow) = (Sink::start(), free_address());
    let daemon = Postrider::start(&config(backend, fast.address, slow));
    let mut client = Client::connect(daemon.address).unwrap();
    let acked: Vec<_> =
        (0..count).map(|n| send(&mut client, "x@slow.test", content(0, n)).unwrap()).collect();
    send(&mut client, "x@fast.test", content(1, 0));
    until("one is delivered", || daemon.counter("delivered") == 1);
    (daemon.stop().0, acked)
}

fn of_a_stopped_daemon(from: &str, to: &str) {
    let (dir, acked) = stopped(from, 25);
    let config = dir.path().join("postrider.toml");
    let before = said(&config, &["spool", "check", "--json"]);
    let archive = dir.path().join("backup.tar.zst");
    let told = said(&config, &["backup", path(&archive)]);
    assert!(told.contains("25 messages (the daemon is stopped)"), "{told}");
    assert_eq!(said(&config, &["spool", "check", "--json"]), before, "the spool was changed");

    // The backend of the new spool may be another one.
    let (sink, place) = (Sink::start(), tempfile::tempdir().unwrap());
    let (other, address) = elsewhere(to, &place.path().join("spool"), sink.address);
    let config = other.path().join("postrider.toml");
    said(&config, &["restore", path(&archive)]);
    let totals = said(&config, &["spool", "check", "--json"]);
    let totals: serde_json::Value = serde_json::from_str(&totals).unwrap();
    assert_eq!((&totals["totals"]["delivered"], &totals["live"]["held_messages"]), (&1.into(), &25.into()));
    // Nothing is added by a second run.
    let told = said(&config, &["restore", path(&archive)]);
    assert!(told.contains("0 messages, on hold") && told.contains("25 were there"), "{told}");
    release_all(other, address, &sink, 25);
    let arrived: Vec<Vec<u8>> = sink.messages().into_iter().map(|message| message.content).collect();
    for one in acked {
        assert!(arrived.iter().any(|content| content.ends_with(&one.content)), "{}", one.id);
    }
}

#[test]
fn a_stopped_log_is_restored_into_queue_directories() {
    of_a_stopped_daemon(LOG, DIRECTORIES);
}

#[test]
fn stopped_queue_directories_are_restored_into_a_log() {
    of_a_stopped_daemon(DIRECTORIES, LOG);
}

#[test]
fn the_mail_of_a_queue_group_goes_back_into_its_own_spool() {
    let group = |root: &str, next_hop: SocketAddr| {
        format!(
            "{LOG}[[route]]\ndomains = [\"*\"]\nsmarthost = \"{next_hop}\"\ntls = \"off\"\n\
             [relay]\nnetworks = [\"127.0.0.0/8\"]\n\
             [[queue_group]]\nname = \"bulk\"\ndomains = [\"bulk.test\"]\nbackend = \"queue-dirs\"\npath = \"{root}\"\n"
        )
    };
    let daemon = Postrider::start(&group("bulk", free_address()));
    let mut client = Client::connect(daemon.address).unwrap();
    let mut acked = Vec::new();
    for number in 5..12 {
        acked.extend(send(&mut client, "x@bulk.test", content(0, number)));
        acked.extend(send(&mut client, "x@slow.test", content(1, number)));
    }
    let archive = daemon.dir.path().join("backup.tar.zst");
    daemon.ask(&["backup", path(&archive)]);
    let sink = Sink::start();
    let (dir, address) = (tempfile::tempdir().unwrap(), free_address());
    let text = format!(
        "hostname = \"mx.test\"\ndata_dir = \"data\"\n[[listen]]\naddress = \"{address}\"\n[spool]\n\
         segment_size = \"4MiB\"\nmin_free = \"16MiB\"\n{}",
        group("other-bulk", sink.address)
    );
    let config = dir.path().join("postrider.toml");
    fs::write(&config, text).unwrap();
    said(&config, &["restore", path(&archive)]);
    let checked = said(&config, &["spool", "check", "--json"]);
    let held = |line: &str| {
        serde_json::from_str::<serde_json::Value>(line).unwrap()["live"]["held_messages"].clone()
    };
    assert_eq!(checked.lines().map(held).collect::<Vec<_>>(), [7, 7], "{checked}");
    release_all(dir, address, &sink, 14);
    let arrived: Vec<Vec<u8>> = sink.messages().into_iter().map(|message| message.content).collect();
    for one in acked {
        assert!(arrived.iter().any(|content| content.ends_with(&one.content)), "{}", one.id);
    }
}

#[test]
fn a_cut_or_changed_archive_writes_nothing() {
    let (dir, _) = stopped(LOG, 5);
    let config = dir.path().join("postrider.toml");
    let archive = dir.path().join("backup.tar.zst");
    said(&config, &["backup", path(&archive)]);
    let whole = fs::read(&archive).unwrap();
    let mut changed = whole.clone();
    changed[whole.len() / 2] ^= 1;
    let spool = dir.path().join("new");
    for bytes in [&whole[..whole.len() - 1], &whole[..whole.len() / 2], &changed, b"no archive", b""] {
        let broken = dir.path().join("broken");
        fs::write(&broken, bytes).unwrap();
        for arguments in [
            &["restore", path(&broken), "--spool", path(&spool)][..],
            &["restore", path(&broken), "--files", path(&spool)],
            &["restore", path(&broken), "--dry-run"],
        ] {
            let told = refused(&config, arguments, 65);
            let is_named = ["not a complete backup", "was not made by `postrider backup`"];
            assert!(is_named.iter().any(|words| told.contains(words)), "{told}");
            assert!(told.contains("nothing was written"), "{told}");
        }
        assert!(!spool.exists());
    }
    let told = said(&config, &["restore", path(&archive), "--spool", path(&spool), "--dry-run"]);
    assert!(told.contains("5 messages") && !spool.exists(), "{told}");
    refused(&config, &["restore", "/does/not/exist"], 66);
    let told = refused(&config, &["backup", path(&archive)], 73);
    assert!(told.contains("exists already"), "{told}");
}

#[test]
fn a_long_message_of_one_character_is_restored_where_its_size_is_permitted_and_never_loses_others() {
    let limits = "[limits]\nmax_message_size = \"100MiB\"\n";
    let slow = free_address();
    let daemon = Postrider::start(&(config(LOG, slow, slow) + limits));
    let mut client = Client::connect(daemon.address).unwrap();
    let long =
        [b"Subject: long\r\n\r\n".to_vec(), [&[b'x'; 900][..], b"\r\n"].concat().repeat(75_500)].concat();
    let long = send(&mut client, "x@slow.test", long).unwrap();
    send(&mut client, "x@slow.test", content(0, 1)).unwrap();
    let config = daemon.config();
    let (dir, _) = daemon.stop();
    let archive = dir.path().join("backup.tar.zst");
    said(&config, &["backup", path(&archive)]);
    assert!(fs::metadata(&archive).unwrap().len() < 300_000, "it is compressed well");

    let (sink, place) = (Sink::start(), tempfile::tempdir().unwrap());
    let (other, _) = elsewhere(LOG, &place.path().join("spool"), sink.address);
    let config = other.path().join("postrider.toml");
    for arguments in [&["restore", path(&archive), "--dry-run"][..], &["restore", path(&archive)]] {
        let told = refused(&config, arguments, 65);
        assert!(told.contains(&format!("not restored: {}: it has 68", long.id)), "{told}");
        assert!(told.contains("`limits.max_message_size`: raise it"), "{told}");
    }
    assert_eq!(said(&config, &["queue", "count"]), "1\n");
    fs::write(&config, fs::read_to_string(&config).unwrap() + limits).unwrap();
    let told = said(&config, &["restore", path(&archive)]);
    assert!(told.contains("1 message, on hold") && told.contains("1 were there"), "{told}");
    assert!(said(&config, &["queue", "list", "--ids"]).contains(&long.id));
}

#[test]
fn a_spool_in_use_and_one_with_other_mail_are_refused() {
    let (dir, _) = stopped(LOG, 3);
    let config = dir.path().join("postrider.toml");
    let archive = dir.path().join("backup.tar.zst");
    said(&config, &["backup", path(&archive)]);
    // The mail of the backup is there, and is not on hold.
    let told = refused(&config, &["restore", path(&archive)], 73);
    assert!(told.contains("is not empty: it has 3 messages") && told.contains("--spool"), "{told}");

    let daemon = Postrider::start("");
    let told = refused(&daemon.config(), &["restore", path(&archive)], 75);
    assert!(told.contains("stop it first"), "{told}");
    let spool = daemon.dir.path().join("data/spool");
    let told = refused(&config, &["restore", path(&archive), "--spool", path(&spool)], 69);
    assert!(told.contains("Stop the daemon that uses it"), "{told}");
}

#[test]
fn a_restore_that_is_killed_is_completed_by_the_next() {
    let (dir, acked) = stopped(LOG, 400);
    let config = dir.path().join("postrider.toml");
    let archive = dir.path().join("backup.tar.zst");
    said(&config, &["backup", path(&archive)]);
    let count = |spool: &Path| {
        let report = said(&config, &["spool", "check", "--json", "--path", path(spool)]);
        let report: serde_json::Value = serde_json::from_str(&report).unwrap();
        assert_eq!(report["is_sound"], true, "{report}");
        (report["live"]["held_messages"].as_u64().unwrap(), report["totals"]["delivered"].as_u64().unwrap())
    };
    for round in 0..4 {
        let spool = dir.path().join(format!("new{round}"));
        let mut restore = Command::new(BINARY)
            .args(["restore", path(&archive), "--spool", path(&spool)])
            .env("POSTRIDER_CONFIG", &config)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // At another place each time; the last may be over.
        let is_begun = || fs::read_dir(&spool).is_ok_and(|files| files.count() > 1);
        until("the restore writes", || is_begun() || restore.try_wait().unwrap().is_some());
        std::thread::park_timeout(std::time::Duration::from_millis(round * 15));
        let _ = restore.kill();
        restore.wait().unwrap();
        said(&config, &["restore", path(&archive), "--spool", path(&spool)]);
        assert_eq!(count(&spool), (acked.len() as u64, 1));
    }
}

#[test]
fn the_files_of_the_configuration_come_without_private_keys_unless_they_are_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(vec!["mx.test".to_owned()]).unwrap();
    fs::write(dir.path().join("cert.pem"), made.cert.pem()).unwrap();
    fs::write(dir.path().join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    fs::write(dir.path().join("list"), "a@far.test b@far.test\n").unwrap();
    let address = free_address();
    let more =
        "[tls]\ncertificate = \"cert.pem\"\nkey = \"key.pem\"\n[addresses]\ncanonical = [\"text:list\"]\n";
    let text =
        format!("hostname = \"mx.test\"\ndata_dir = \"data\"\n[[listen]]\naddress = \"{address}\"\n{more}");
    let daemon = Postrider::start_from(dir, address, &text);
    // A local program hands a message in that no daemon has accepted yet.
    let (dir, _) = daemon.stop();
    let config = dir.path().join("postrider.toml");
    let mut sendmail = Command::new(BINARY)
        .args(["sendmail", "-f", "a@far.test", "b@far.test"])
        .env("POSTRIDER_CONFIG", &config)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut sendmail.stdin.take().unwrap(), b"Subject: dropped\n\nx\n").unwrap();
    assert!(sendmail.wait().unwrap().success());

    let below = |root: &Path, name: &str| root.join(path(&dir.path().join(name)).trim_start_matches('/'));
    for (option, has_key) in [(None, false), (Some("--with-secrets"), true)] {
        let name = if has_key { "with" } else { "without" };
        let archive = dir.path().join(name).with_extension("tar.zst");
        let arguments: Vec<&str> = ["backup", path(&archive)].into_iter().chain(option).collect();
        let told = said(&config, &arguments);
        assert_eq!(told.contains("use --with-secrets"), !has_key, "{told}");
        assert_eq!(told.contains("key.pem (private key): private"), !has_key, "{told}");
        let files = dir.path().join(name);
        let told = said(&config, &["restore", path(&archive), "--files", path(&files)]);
        assert!(told.contains("written"), "{told}");
        for file in ["postrider.toml", "cert.pem", "list"] {
            assert_eq!(
                fs::read(below(&files, file)).unwrap(),
                fs::read(dir.path().join(file)).unwrap(),
                "{file}"
            );
        }
        assert_eq!(below(&files, "key.pem").exists(), has_key);
        let dropped = fs::read_to_string(only_file(&files.join("drop"))).unwrap();
        assert!(dropped.contains("Subject: dropped"), "{dropped}");
        // What is there is not overwritten.
        let again = refused(&config, &["restore", path(&archive), "--files", path(&files)], 73);
        assert!(again.contains("exists"), "{again}");
    }
}

#[test]
fn files_are_restored_only_to_a_folder_that_nobody_else_can_prepare() {
    let (dir, _) = stopped(LOG, 1);
    let config = dir.path().join("postrider.toml");
    let archive = dir.path().join("backup.tar.zst");
    said(&config, &["backup", path(&archive)]);
    let (linked, elsewhere) = (dir.path().join("linked"), dir.path().join("elsewhere"));
    fs::create_dir(&elsewhere).unwrap();
    let refuse = |folder: &Path, why: &str| {
        let told = refused(&config, &["restore", path(&archive), "--files", path(folder)], 73);
        assert!(told.contains(why), "{why}: {told}");
    };
    std::os::unix::fs::symlink(&elsewhere, &linked).unwrap();
    refuse(&linked, "is not a folder");
    let prepared = dir.path().join("prepared");
    fs::create_dir(&prepared).unwrap();
    fs::set_permissions(&prepared, fs::Permissions::from_mode(0o777)).unwrap();
    refuse(&prepared, "can be written by other users");
    fs::set_permissions(&prepared, fs::Permissions::from_mode(0o755)).unwrap();
    std::os::unix::fs::symlink(&elsewhere, prepared.join("tmp")).unwrap();
    refuse(&prepared, "is not empty");
    fs::remove_file(prepared.join("tmp")).unwrap();
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&prepared, Some(65_534), None).unwrap();
        refuse(&prepared, "belongs to another user");
        std::os::unix::fs::chown(&prepared, Some(0), None).unwrap();
    }
    said(&config, &["restore", path(&archive), "--files", path(&prepared)]);
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0, "no link was followed");
    said(&config, &["restore", path(&archive), "--files", path(&dir.path().join("new/folder"))]);
}

#[test]
fn what_the_history_knows_as_finished_after_the_backup_is_left_out() {
    let (fast, slow) = (free_address(), free_address());
    let text = config(LOG, fast, slow) + "[history]\nenabled = true\n";
    let daemon = Postrider::start(&text);
    let mut client = Client::connect(daemon.address).unwrap();
    for to in [&["x@fast.test"][..], &["x@fast.test", "y@slow.test"], &["z@slow.test"]] {
        let reply = client.send("a@far.test", to, b"Subject: s\r\n\r\nbody\r\n").unwrap();
        assert_eq!(reply.0, 250, "{}", reply.1);
    }
    until("all wait", || {
        daemon.ask(&["queue", "list", "--status", "deferred", "--ids"]).lines().count() == 3
    });
    let archive = daemon.dir.path().join("backup.tar.zst");
    daemon.ask(&["backup", path(&archive)]);
    let sink = Sink::at(fast, |_| None);
    daemon.ask(&["queue", "flush"]);
    until("two are delivered", || daemon.counter("delivered") == 2);
    // The machine loses its spool, and nothing else.
    let address = daemon.address;
    let (dir, status) = daemon.stop();
    assert!(status.success());
    fs::remove_dir_all(dir.path().join("data/spool")).unwrap();
    let told = said(&dir.path().join("postrider.toml"), &["restore", path(&archive)]);
    assert!(told.contains("restored       2 messages, on hold"), "{told}");
    assert!(told.contains("left out       1 message, and 1 recipient of others"), "{told}");
    let text = fs::read_to_string(dir.path().join("postrider.toml")).unwrap();
    let daemon = Postrider::start_from(dir, address, &text);
    assert_eq!((daemon.counter("queued"), sink.count()), (2, 2));
    let queue = daemon.ask(&["queue", "list", "--json"]);
    assert!(queue.contains("y@slow.test") && queue.contains("z@slow.test"), "{queue}");
    daemon.ask(&["queue", "release", "all"]);
    daemon.ask(&["queue", "flush"]);
    until("both are tried", || {
        daemon.ask(&["queue", "list", "--status", "deferred", "--ids"]).lines().count() == 2
    });
    assert_eq!(sink.count(), 2, "nobody gets a message twice");
    let status: serde_json::Value = serde_json::from_str(&daemon.ask(&["status", "--json"])).unwrap();
    assert_eq!(status["consistent"], true, "{status}");
}

#[test]
fn recipients_with_one_address_are_restored_one_by_one_and_so_is_what_bounced() {
    let (fast, slow) = (free_address(), free_address());
    let text = config(LOG, fast, slow) + "[history]\nenabled = true\n";
    let daemon = Postrider::start(&text);
    let mut client = Client::connect(daemon.address).unwrap();
    client.say("MAIL FROM:<a@slow.test>").unwrap();
    for notify in ["SUCCESS", "NEVER", "FAILURE"] {
        let reply = client.say(&format!("RCPT TO:<x@fast.test> NOTIFY={notify}")).unwrap();
        assert_eq!(reply.0, 250, "{}", reply.1);
    }
    client.say("DATA").unwrap();
    assert_eq!(client.say("Subject: three\r\n\r\nbody\r\n.").unwrap().0, 250);
    assert_eq!(
        client.send("a@slow.test", &["gone@fast.test"], b"Subject: b\r\n\r\nbody\r\n").unwrap().0,
        250
    );
    let waiting = |daemon: &Postrider| daemon.counter("queued");
    until("all wait", || {
        daemon.ask(&["queue", "list", "--status", "deferred", "--ids"]).lines().count() == 2
    });
    let archive = daemon.dir.path().join("backup.tar.zst");
    daemon.ask(&["backup", path(&archive)]);
    // Of the three recipients with one address, one gets the mail.
    let accepted = AtomicBool::new(false);
    let sink = Sink::at(fast, move |line| {
        let is_later =
            |line: &str| line.starts_with("RCPT TO:<x@fast.test>") && accepted.swap(true, Ordering::SeqCst);
        let reply =
            if line.starts_with("RCPT TO:<gone@") { "550 5.1.1 no such user" } else { "450 4.2.1 busy" };
        (line.starts_with("RCPT TO:<gone@") || is_later(line)).then(|| reply.to_owned())
    });
    daemon.ask(&["queue", "flush"]);
    until("one is delivered, one has bounced", || {
        (daemon.counter("delivered"), daemon.counter("bounced")) == (1, 1)
    });
    let address = daemon.address;
    let (dir, status) = daemon.stop();
    assert!(status.success() && sink.count() == 1);
    fs::remove_dir_all(dir.path().join("data/spool")).unwrap();
    let told = said(&dir.path().join("postrider.toml"), &["restore", path(&archive)]);
    assert!(told.contains("restored       2 messages, on hold"), "{told}");
    assert!(
        told.contains("left out       0 messages, and 1 recipient of others: delivered or deleted"),
        "{told}"
    );
    let text = fs::read_to_string(dir.path().join("postrider.toml")).unwrap();
    let daemon = Postrider::start_from(dir, address, &text);
    assert_eq!(waiting(&daemon), 3, "two recipients of the first message, and the one that bounced");
    let queue = daemon.ask(&["queue", "list"]);
    assert!(queue.contains("it has failed since, and its notification may be lost"), "{queue}");
    daemon.stop();
}
