//! `postrider import` with the real Postfix, Exim and Sendmail: their queues arrive once and byte for byte, and their
//! configurations are accepted.

mod configuration;
mod exim;
mod postfix;
mod sendmail;

use crate::common::{BINARY, Postrider, client::Client, free_address, sink::Sink, until};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::{Instant, SystemTime},
};
use tempfile::TempDir;

/// Returns the number of messages of each test; POSTRIDER_IMPORT_MESSAGES is for measurements.
fn message_count() -> usize {
    let given = std::env::var("POSTRIDER_IMPORT_MESSAGES").ok();
    given.and_then(|number| number.parse().ok()).unwrap_or(600)
}

/// Each message with such a number is held.
const HELD_EVERY: usize = 50;

fn recipients(number: usize) -> Vec<String> {
    let first = if number % HELD_EVERY == 7 {
        format!("held{number}@dst.test")
    } else {
        format!("b{number}@dst.test")
    };
    match number % 3 {
        0 => vec![first, format!("c{number}@other.test")],
        _ => vec![first],
    }
}

fn held_count() -> usize {
    (0..message_count()).filter(|number| number % HELD_EVERY == 7).count()
}

/// A message with lines that are easily damaged. One is larger than what the spool keeps in one piece.
fn content(number: usize) -> Vec<u8> {
    let mut content = format!(
        "From: a@src.test\r\nSubject: message {number}.\r\nMessage-ID: <{number}@src.test>\r\n\
         Date: Sat, 21 Nov 2026 06:25:54 +0000\r\nTo: b@dst.test\r\nX-Folded: a\r\n\tb\r\n c\r\n\r\n"
    )
    .into_bytes();
    content.extend_from_slice(b".\r\n..\r\n.dot at the begin\r\n\r\nFrom here on\r\n\t \r\n");
    match number % 4 {
        0 => content.extend_from_slice("käse \u{1f9c0}\r\n".as_bytes()),
        1 => content.extend_from_slice(&[b"x".repeat(900), b"\r\n\r\n\r\n".to_vec()].concat()),
        2 => content.extend_from_slice(b"no blank line at the end\r\n"),
        _ => {}
    }
    if number == 11 {
        (0..12_000).for_each(|line| {
            content.extend_from_slice(format!("line {line} of a large message\r\n").as_bytes());
        });
    }
    content
}

/// Sends all messages to a server that keeps them.
fn fill(address: SocketAddr) {
    let mut client = Client::connect(address).unwrap();
    for number in 0..message_count() {
        if number % 50 == 49 {
            client = Client::connect(address).unwrap();
        }
        let to = recipients(number);
        let to: Vec<&str> = to.iter().map(String::as_str).collect();
        let from = if number % 10 == 3 { "" } else { "a@src.test" };
        let reply = client.send(from, &to, &content(number)).unwrap();
        assert_eq!(reply.0, 250, "{}", reply.1);
    }
}

/// A message as it arrives at the next hop, by its content: the sender, and the recipients of all transactions.
type Arrivals = BTreeMap<Vec<u8>, (String, BTreeSet<String>)>;

/// Returns what arrived; no recipient may get a message twice.
fn arrivals(sink: &Sink) -> Arrivals {
    let mut all = Arrivals::new();
    for message in sink.messages() {
        let (from, to) =
            all.entry(message.content).or_insert_with(|| (message.from.clone(), BTreeSet::new()));
        assert_eq!(*from, message.from);
        for recipient in message.to {
            assert!(to.insert(recipient.clone()), "{recipient} got a message twice");
        }
    }
    all
}

fn arrived_recipients(sink: &Sink) -> usize {
    sink.messages().iter().map(|message| message.to.len()).sum()
}

fn recipient_count() -> usize {
    (0..message_count()).map(|number| recipients(number).len()).sum()
}

/// Each file below a directory: its content and when it was changed.
fn snapshot(dir: &Path) -> BTreeMap<PathBuf, (Vec<u8>, SystemTime)> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap()) {
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        if kind.is_dir() {
            all.extend(snapshot(&path));
        } else if kind.is_file() {
            all.insert(
                path.clone(),
                (fs::read(&path).unwrap(), entry.metadata().unwrap().modified().unwrap()),
            );
        }
    }
    all
}

/// A configuration for the mail that is imported, in a directory of its own.
fn configure(sink: &Sink) -> (TempDir, SocketAddr) {
    let (dir, address) = (tempfile::tempdir().unwrap(), free_address());
    let text = format!(
        "hostname = \"mx.test\"\ndata_dir = \"data\"\n[[listen]]\naddress = \"{address}\"\n[spool]\nsegment_size = \"4MiB\"\n\
         min_free = \"16MiB\"\n[queue]\nexpire = \"400d\"\ndelay_warning = \"0\"\n{}",
        sink.route()
    );
    fs::write(dir.path().join("postrider.toml"), text).unwrap();
    (dir, address)
}

fn command(dir: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(BINARY);
    command.args(arguments).env("POSTRIDER_CONFIG", dir.join("postrider.toml"));
    command
}

fn run(dir: &Path, arguments: &[&str]) -> Output {
    command(dir, arguments).output().unwrap()
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Runs an import that must succeed, and returns what it says.
fn import(dir: &Path, arguments: &[&str]) -> String {
    let output = run(dir, arguments);
    assert!(output.status.success(), "{}", said(&output));
    said(&output)
}

/// Lines of the list of imported messages.
fn listed(dir: &Path) -> usize {
    fs::read_to_string(dir.join("data/imported")).unwrap_or_default().lines().count()
}

/// Imports a queue, again and again: each run is killed as soon as it has written something, until one comes to its end.
fn import_with_kills(dir: &Path, arguments: &[&str]) -> usize {
    let mut kills = 0;
    loop {
        let before = listed(dir);
        let mut child = command(dir, arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let mut ended = None;
        until("the import writes, or ends", || {
            ended = child.try_wait().unwrap();
            ended.is_some() || listed(dir) > before
        });
        if let Some(status) = ended {
            assert!(status.success(), "{status}");
            return kills;
        }
        child.kill().unwrap();
        if !child.wait().unwrap().success() {
            kills += 1;
        }
    }
}

/// Imports the queue of a stopped server, delivers it, and returns what arrived. On the way: kills, second runs, a lost list,
/// holds.
fn imported(arguments: &[&str], queue: &Path) -> Arrivals {
    let before = snapshot(queue);
    let sink = Sink::start();
    let (dir, address) = configure(&sink);
    let begun = Instant::now();
    let rehearsed = import(dir.path(), &[arguments, &["--dry-run"]].concat());
    let messages = message_count();
    let counted = format!("{messages} messages ({} held), 0 damaged", held_count());
    assert!(rehearsed.contains(&counted), "{rehearsed}");
    assert!(!dir.path().join("data").exists(), "a rehearsal writes nothing");

    let (read, begun) = (begun.elapsed(), Instant::now());
    let kills = import_with_kills(dir.path(), arguments);
    println!(
        "{messages} messages: read in {read:?}, imported in {:?} with {kills} runs that were killed",
        begun.elapsed()
    );
    let again = import(dir.path(), arguments);
    assert!(
        again.contains(&format!(
            "imported       0 messages, 0 recipients; {messages} messages imported before"
        )),
        "{again}"
    );
    // As if the last run had been killed between the commit and the list: the spool says what it has.
    fs::remove_file(dir.path().join("data/imported")).unwrap();
    let again = import(dir.path(), arguments);
    assert!(again.contains("imported       0 messages"), "{again}");
    assert_eq!(snapshot(queue), before, "the source is as it was");
    // And as if the daemon had been started before the second run.
    fs::remove_file(dir.path().join("data/imported")).unwrap();

    let text = fs::read_to_string(dir.path().join("postrider.toml")).unwrap();
    let daemon = Postrider::start_from(dir, address, &text);
    let refused = run(daemon.dir.path(), arguments);
    assert_eq!(refused.status.code(), Some(75), "the daemon has the spool: {}", said(&refused));
    // Mail that was tried is tried again when its time has come.
    daemon.ask(&["queue", "flush"]);
    let held_recipients: usize =
        (0..message_count()).filter(|n| n % HELD_EVERY == 7).map(|n| recipients(n).len()).sum();
    until("all mail that is not held arrives", || {
        arrived_recipients(&sink) == recipient_count() - held_recipients
    });
    let held = daemon.ask(&["queue", "list", "--status", "held", "--ids"]);
    assert_eq!(held.lines().count(), held_count());
    let first = daemon.ask(&["queue", "show", held.lines().next().unwrap(), "--json"]);
    assert!(first.contains("\"origin\":\"import "), "{first}");
    daemon.ask(&["queue", "release", "all"]);
    until("held mail arrives", || daemon.counter("queued") == 0);
    assert_eq!(arrived_recipients(&sink), recipient_count());
    assert_eq!(daemon.counter("delivered"), recipient_count() as u64);
    let (dir, _) = daemon.stop();
    let again = import(dir.path(), arguments);
    assert!(again.contains("imported       0 messages"), "delivered mail is not imported again: {again}");
    arrivals(&sink)
}

/// Compares what Postrider delivered with what the other server delivers from the queue that was imported.
fn compare(ours: &Arrivals, theirs: &Arrivals) {
    assert_eq!(ours.len(), message_count());
    for (content, envelope) in theirs {
        let text = String::from_utf8_lossy(content);
        assert_eq!(ours.get(content), Some(envelope), "{}", text.chars().take(2000).collect::<String>());
    }
    assert_eq!(ours.len(), theirs.len());
}

/// A next hop at an address where nobody listened before.
fn sink_at(address: SocketAddr) -> Sink {
    Sink::at(address, |_| None)
}

#[test]
fn the_daemon_has_none_of_the_importers_in_its_program() {
    let has = |program: &str, text: &str| {
        memchr::memmem::find(&fs::read(program).unwrap(), text.as_bytes()).is_some()
    };
    let importer = env!("CARGO_BIN_EXE_postrider-import");
    // Texts of the reader, of the translation and of the writer.
    for text in ["the import has ended", "confMAX_MESSAGE_SIZE", "reject_unauth_destination"] {
        assert!(has(importer, text), "{text}");
        assert!(!has(BINARY, text), "{text}");
    }
}

#[test]
fn the_import_is_a_program_that_postrider_starts_with_its_options() {
    let dir = tempfile::tempdir().unwrap();
    let postrider = |arguments: &[&str], program: &str| {
        let output = Command::new(program).args(arguments).current_dir(dir.path()).output().unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stdout).unwrap(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    fs::write(dir.path().join("main.cf"), "mydestination = example.com\n").unwrap();
    // The value of an option may have the name of the command.
    let (code, shown, _) = postrider(&["--config", "import", "import", "postfix", ".", "-n"], BINARY);
    assert_eq!(code, Some(0));
    assert!(shown.contains("mydestination"), "{shown}");
    let direct = postrider(&["postfix", ".", "-n"], env!("CARGO_BIN_EXE_postrider-import"));
    assert_eq!((code, &shown), (direct.0, &direct.1));
    let (code, _, said) = postrider(&["import", "exim", "."], BINARY);
    assert_eq!(code, Some(66), "{said}");
    // Without the second program, the first says which one is missing.
    let alone = dir.path().join("postrider");
    fs::copy(BINARY, &alone).unwrap();
    let (code, _, said) = postrider(&["import", "postfix", "."], alone.to_str().unwrap());
    assert_eq!(code, Some(69), "{said}");
    assert!(said.contains("postrider-import"), "{said}");
}
