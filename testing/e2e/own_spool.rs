//! Queue groups with a spool of their own: where their mail lies, and that nothing else notices.

use crate::common::{BINARY, Postrider, client::Client, free_address, sink::Sink, until};
use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// All mail to one next hop; that for bulk.test waits in queue directories, all other in the log.
fn config(address: SocketAddr) -> String {
    format!(
        "[[route]]\ndomains = [\"bulk.test\", \"else.test\"]\nsmarthost = \"{address}\"\ntls = \"off\"\n\
         [[queue_group]]\nname = \"bulk\"\ndomains = [\"bulk.test\"]\nbackend = \"queue-dirs\"\n\
         path = \"disk2/bulk/q*\"\n"
    )
}

/// A folder with the queue directories that the pattern is to name.
fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    (0..5).for_each(|n| fs::create_dir_all(dir.path().join(format!("disk2/bulk/q{n}"))).unwrap());
    dir
}

fn start(dir: tempfile::TempDir, address: SocketAddr, next_hop: SocketAddr) -> Postrider {
    Postrider::start_in(dir, address, &config(next_hop))
}

/// The files of messages in the group's queue directories; of how many directories. The first one has a file of totals, too.
fn files(dir: &Path) -> (Vec<PathBuf>, usize) {
    let list = |dir: &Path| fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect::<Vec<_>>();
    let messages = |queue: &PathBuf| {
        let of_messages = |path: &PathBuf| !path.ends_with("totals");
        list(queue).into_iter().filter(of_messages).collect::<Vec<_>>()
    };
    let queues: Vec<_> = list(&dir.join("disk2/bulk")).iter().map(messages).collect();
    let used = queues.iter().filter(|files| !files.is_empty()).count();
    (queues.concat(), used)
}

fn command(dir: &Path, arguments: &[&str]) -> Output {
    let config = dir.join("postrider.toml");
    Command::new(BINARY).args(arguments).env("POSTRIDER_CONFIG", config).output().unwrap()
}

fn said(dir: &Path, arguments: &[&str]) -> String {
    let output = command(dir, arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn send(client: &mut Client, to: &[&str], content: &str) {
    assert_eq!(client.send("a@news.test", to, content.as_bytes()).unwrap().0, 250);
}

/// Messages of each spool, as `postrider spool check` counts them.
fn counts(dir: &Path) -> Vec<u64> {
    let lines = said(dir, &["spool", "check", "--json"]);
    let spool = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap();
    lines.lines().map(|line| spool(line)["live"]["messages"].as_u64().unwrap()).collect()
}

fn large() -> String {
    format!("Subject: large\r\n\r\n{}", "0123456789\r\n".repeat(80_000))
}

#[test]
fn a_groups_mail_lies_in_its_own_queue_directories_and_survives_a_kill() {
    let next_hop = free_address();
    let daemon = start(folder(), free_address(), next_hop);
    let mut client = Client::connect(daemon.address).unwrap();
    for n in 0..5 {
        send(&mut client, &["x@bulk.test"], &format!("Subject: b{n}\r\n\r\nhi\r\n"));
    }
    send(&mut client, &["x@bulk.test", "y@else.test"], &large());
    send(&mut client, &["y@else.test", "x@bulk.test"], "Subject: e\r\n\r\nhi\r\n");
    until("the next hop is known to be down", || daemon.ask(&["queue", "list"]).contains("refused"));
    let (found, used) = files(daemon.dir.path());
    let of = |kind: &str| found.iter().filter(|path| path.extension().is_some_and(|e| e == kind)).count();
    // The large one has chunks beside its envelope and the rest of its content.
    assert_eq!((of("env"), of("msg"), used), (6, 6, 5), "{found:?}");
    assert!(found.len() > 12, "{found:?}");
    let (dir, address) = daemon.kill();

    assert_eq!(counts(dir.path()), [1, 6]);
    assert_eq!(said(dir.path(), &["queue", "list", "--ids"]).lines().count(), 7);
    let dry: serde_json::Value =
        serde_json::from_str(&said(dir.path(), &["queue", "run", "--dry-run", "--json"])).unwrap();
    assert_eq!(dry["messages"], 7);

    let sink = Sink::at(next_hop, |_| None);
    let daemon = start(dir, address, next_hop);
    daemon.ask(&["queue", "flush"]);
    until("all have arrived", || daemon.counter("delivered") == 9);
    let wanted = large();
    assert!(sink.messages().iter().any(|message| message.content.ends_with(&wanted.as_bytes()[20..])));
    let (dir, status) = daemon.stop();
    assert!(status.success());
    assert_eq!((counts(dir.path()), files(dir.path()).0), (vec![0, 0], vec![]));
}

#[test]
fn a_queue_run_serves_every_spool_and_a_bounce_lies_beside_its_cause() {
    let next_hop = free_address();
    let daemon = start(folder(), free_address(), next_hop);
    let mut client = Client::connect(daemon.address).unwrap();
    send(&mut client, &["x@bulk.test"], "Subject: b\r\n\r\nhi\r\n");
    send(&mut client, &["y@else.test"], "Subject: e\r\n\r\nhi\r\n");
    client.send("a@else.test", &["gone@bulk.test"], b"Subject: g\r\n\r\nhi\r\n").unwrap();
    until("the next hop is known to be down", || daemon.ask(&["queue", "list"]).contains("refused"));
    let (dir, address) = daemon.kill();

    let sink = Sink::at(next_hop, |command| {
        let verdicts = [("gone@", "550 5.1.1 no such user"), ("RCPT TO:<a@", "450 4.2.0 not yet")];
        verdicts.iter().find(|(part, _)| command.contains(part)).map(|(_, reply)| (*reply).to_owned())
    });
    let ran: serde_json::Value =
        serde_json::from_str(&said(dir.path(), &["queue", "run", "--json"])).unwrap();
    assert_eq!((&ran["messages"], &ran["delivered"], &ran["failed"]), (&3.into(), &2.into(), &1.into()));
    // Its report goes to else.test, whose mail is kept in the log: but in one transaction with its cause.
    assert_eq!(counts(dir.path()), [0, 1]);
    drop(sink);

    let sink = Sink::at(next_hop, |_| None);
    let daemon = start(dir, address, next_hop);
    daemon.ask(&["queue", "flush"]);
    until("the report has arrived", || sink.count() == 1);
    assert!(String::from_utf8_lossy(&sink.messages()[0].content).contains("gone@bulk.test"));
    until("nothing is left", || counts(daemon.dir.path()) == [0, 0]);
}

#[test]
fn operators_reach_mail_in_every_spool_and_a_reload_says_what_takes_a_restart() {
    let next_hop = free_address();
    let daemon = start(folder(), free_address(), next_hop);
    let mut client = Client::connect(daemon.address).unwrap();
    send(&mut client, &["x@bulk.test"], &large());
    send(&mut client, &["y@else.test"], "Subject: e\r\n\r\nhi\r\n");
    until("the next hop is known to be down", || daemon.ask(&["queue", "list"]).contains("refused"));
    let first = daemon.ask(&["queue", "list", "--ids", "--recipient", "x@bulk.test"]);
    assert!(daemon.ask(&["queue", "show", first.trim()]).contains("Subject: large"));
    daemon.ask(&["queue", "delete", first.trim()]);
    until("its files are gone", || files(daemon.dir.path()).0.is_empty());
    daemon.reconfigure(
        &config(next_hop).replace("\"bulk.test\"]\nbackend", "\"bulk.test\", \"more.test\"]\nbackend"),
    );
    let said = daemon.ask(&["reload"]);
    assert!(said.contains("[[queue_group]]") && said.contains("needs a restart"), "{said}");
}

#[test]
fn a_groups_spool_is_converted_by_its_name() {
    let next_hop = free_address();
    let daemon = start(folder(), free_address(), next_hop);
    let mut client = Client::connect(daemon.address).unwrap();
    send(&mut client, &["x@bulk.test"], &large());
    send(&mut client, &["y@else.test"], "Subject: e\r\n\r\nhi\r\n");
    let (dir, _) = daemon.stop();
    let to = dir.path().join("disk3");
    let convert = ["spool", "convert", "--to", "log", "--into", to.to_str().unwrap(), "--group"];
    let nobody = command(dir.path(), &[&convert[..], &["nobody"]].concat());
    assert!(String::from_utf8_lossy(&nobody.stderr).contains("there is no queue group \"nobody\""));
    let text = said(dir.path(), &[&convert[..], &["bulk"]].concat());
    assert!(text.contains("1 message,") && text.contains("[[queue_group]]"), "{text}");
    let file = dir.path().join("postrider.toml");
    let old = "backend = \"queue-dirs\"\npath = \"disk2/bulk/q*\"";
    let changed = fs::read_to_string(&file).unwrap().replace(old, "backend = \"log\"\npath = \"disk3\"");
    fs::write(&file, changed).unwrap();
    assert_eq!(counts(dir.path()), [1, 1]);
}

/// Puts a message for two into both spools of a daemon that does not run. According to the log, the first
/// recipient was served.
fn in_both(dir: &Path) {
    use mail::{
        Content, Enhanced, Envelope, ForwardPath, Message, Outcome, QueueId, Recipient, ReversePath,
        UnixMillis,
    };
    use spool::{DirSettings, DirSpool, Entry, Layout, LogSettings, LogSpool, Spool};
    let mut envelope = Envelope::new(ReversePath::parse("a@news.test", false).unwrap());
    envelope.recipients = ["x@bulk.test", "y@bulk.test"]
        .map(|address| Recipient::new(ForwardPath::parse(address, false).unwrap()))
        .into();
    let content = Content::from_bytes("Subject: copied\r\n\r\nx\r\n");
    let (id, arrived) = (QueueId(5), UnixMillis::now());
    let message = Message { id, arrived, origin: "test".into(), envelope, content };
    let log = LogSettings { segment_bytes: 4 << 20, min_free_bytes: 0, ..LogSettings::default() };
    let queues = DirSettings { min_free_bytes: 0, ..DirSettings::default() };
    let mut log = LogSpool::open(&dir.join("data/spool"), log).unwrap();
    let mut queues = DirSpool::open(&dir.join("disk2/bulk/q*"), Layout::default(), queues).unwrap();
    let both: [&mut dyn Spool; 2] = [&mut log, &mut queues];
    for spool in both {
        spool.recover(&mut |_| ()).unwrap();
        spool.submit(vec![Entry::Accept(message.clone().into())]).unwrap();
    }
    let delivered = Outcome::delivered(Enhanced(2, 0, 0), "250 ok");
    log.submit(vec![Entry::Outcome { id, results: vec![(0, delivered)], last: false }]).unwrap();
    log.close();
    queues.close();
}

#[test]
fn a_message_that_two_spools_have_is_delivered_once() {
    let sink = Sink::start();
    let dir = folder();
    in_both(dir.path());
    let daemon = start(dir, free_address(), sink.address);
    until("the queue is empty", || daemon.counter("queued") == 0);
    let before = ["accepted", "delivered", "deleted"].map(|column| daemon.counter(column));
    let (dir, status) = daemon.stop();
    assert!(status.success());
    let served: Vec<Vec<String>> = sink.messages().into_iter().map(|message| message.to).collect();
    assert_eq!(served, [["y@bulk.test"]], "the log says that the first recipient was served");
    assert_eq!(counts(dir.path()), [0, 0]);
    let daemon = start(dir, free_address(), sink.address);
    let after = ["accepted", "delivered", "deleted"].map(|column| daemon.counter(column));
    assert_eq!((after, daemon.ask(&["queue", "count"]).as_str()), (before, "0\n"), "no copy is left");
    assert_eq!(sink.count(), 1);
}

#[test]
fn a_queue_run_delivers_a_message_that_two_spools_have_once() {
    let sink = Sink::start();
    let dir = folder();
    in_both(dir.path());
    let text = format!(
        "hostname = \"mx.test\"\ndata_dir = \"data\"\n[spool]\nsegment_size = \"4MiB\"\nmin_free = \"16MiB\"\n{}",
        config(sink.address)
    );
    fs::write(dir.path().join("postrider.toml"), text).unwrap();
    said(dir.path(), &["queue", "run"]);
    let served: Vec<Vec<String>> = sink.messages().into_iter().map(|message| message.to).collect();
    assert_eq!(served, [["y@bulk.test"]]);
    assert_eq!(counts(dir.path()), [0, 0]);
}

#[test]
fn the_mail_of_a_spool_whose_path_was_changed_is_never_forgotten() {
    for before in ["data/spool", "elsewhere"] {
        let dir = tempfile::tempdir().unwrap();
        let route =
            format!("[[route]]\ndomains = [\"*\"]\nsmarthost = \"{}\"\ntls = \"off\"\n", free_address());
        let path = |path: &str| format!("path = \"{path}\"\n{route}");
        let daemon = Postrider::start_in(dir, free_address(), &path(before));
        daemon.send("x@else.test");
        let config = fs::read_to_string(daemon.config()).unwrap();
        let (dir, _) = daemon.stop();
        let other = config.replace(&path(before), &path("new"));
        fs::write(dir.path().join("postrider.toml"), other).unwrap();
        for (arguments, exit) in [
            (&["serve"][..], 78),
            (&["config", "check"], 78),
            (&["doctor", "--offline"], 2),
            (&["queue", "count"], 66),
        ] {
            let output = command(dir.path(), arguments);
            let told = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
            assert_eq!(output.status.code(), Some(exit), "{arguments:?}: {told}");
            let says = format!("{before}, the spool before, has 1 message, and no key names it");
            assert!(told.contains(&says) && told.contains("in [spool]"), "{arguments:?}: {told}");
        }
        // As it is advised, and with a pattern that names the folder.
        fs::write(dir.path().join("postrider.toml"), &config).unwrap();
        said(dir.path(), &["config", "check"]);
        assert_eq!(said(dir.path(), &["queue", "count"]), "1\n");
    }
}

#[test]
fn the_mail_of_a_group_that_was_removed_or_renamed_is_never_forgotten() {
    let next_hop = free_address();
    let group = |name: &str, more: &str| {
        format!(
            "[[route]]\ndomains = [\"bulk.test\", \"else.test\"]\nsmarthost = \"{next_hop}\"\ntls = \"off\"\n\
             [[queue_group]]\nname = \"{name}\"\ndomains = [\"bulk.test\"]\n{more}\n"
        )
    };
    for keys in ["backend = \"log\"", "backend = \"queue-dirs\"", "path = \"elsewhere\""] {
        let dir = tempfile::tempdir().unwrap();
        let daemon = Postrider::start_in(dir, free_address(), &group("bulk", keys));
        let mut client = Client::connect(daemon.address).unwrap();
        send(&mut client, &["x@bulk.test"], "Subject: b\r\n\r\nhi\r\n");
        send(&mut client, &["y@else.test"], "Subject: e\r\n\r\nhi\r\n");
        let config = fs::read_to_string(daemon.config()).unwrap();
        // A reload refuses what the next start would refuse.
        for other in [String::new(), group("mass", keys).replace("elsewhere", "other")] {
            daemon.reconfigure(&other);
            let told = daemon.try_ask(&["reload"]).unwrap_err();
            let says = "has 1 message, and no [[queue_group]] names it";
            assert!(told.contains(says) && told.trim().lines().count() == 1, "{told}");
            assert!(!told.contains("reloaded"), "{told}");
        }
        fs::write(daemon.config(), &config).unwrap();
        daemon.ask(&["reload"]);
        let (dir, status) = daemon.stop();
        assert!(status.success());
        // Renamed with its spool somewhere else, without a spool of its own, and removed.
        let text = group("bulk", keys);
        let begin = text.find("[[queue_group]]").unwrap();
        for other in [group("mass", "backend = \"log\""), group("mass", ""), text[..begin].to_owned()] {
            fs::write(dir.path().join("postrider.toml"), config.replace(&text, &other)).unwrap();
            for (arguments, exit) in [
                (&["serve"][..], &[78][..]),
                (&["config", "check"], &[78]),
                // The spool of a new name is not there yet.
                (&["spool", "check"], &[65, 66]),
                (&["doctor", "--offline"], &[2]),
                (&["queue", "list"], &[65]),
                (&["queue", "count"], &[65]),
                (&["queue", "summary"], &[65]),
                (&["mailq"], &[65]),
                (&["queue", "run"], &[78]),
            ] {
                let output = command(dir.path(), arguments);
                let told = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
                assert!(exit.contains(&output.status.code().unwrap()), "{arguments:?}: {told}");
                let folder = if keys.starts_with("path") { "elsewhere" } else { "spool-bulk" };
                let says = format!("{folder} has 1 message, and no [[queue_group]] names it");
                assert!(told.contains(&says) && told.contains("`path = \""), "{arguments:?}: {told}");
                // Mail that can be shown is shown.
                let is_queue = matches!(arguments, ["queue", "list"] | ["mailq"]);
                assert!(!is_queue || told.contains("else.test"), "{arguments:?}: {told}");
            }
            let archive = dir.path().join("copy.zst");
            let _ = fs::remove_file(&archive);
            let output = command(dir.path(), &["backup", archive.to_str().unwrap()]);
            let told = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
            assert_eq!(output.status.code(), Some(65), "{told}");
            assert!(
                told.contains("queue          1 message ") && told.contains("not in the backup: "),
                "{told}"
            );
            assert!(told.contains("has 1 message, and no [[queue_group]] names it"), "{told}");
        }
        // As it is advised: another name, and the path of the spool.
        let folder = dir.path().join(if keys.starts_with("path") { "elsewhere" } else { "data/spool-bulk" });
        let backend = if keys.contains("queue-dirs") { "queue-dirs" } else { "log" };
        let moved = group("old", &format!("path = \"{}\"\nbackend = \"{backend}\"", folder.display()));
        fs::write(dir.path().join("postrider.toml"), config.replace(&text, &moved)).unwrap();
        said(dir.path(), &["config", "check"]);
        assert_eq!(counts(dir.path()), [1, 1], "{keys}");
    }
}

#[test]
fn a_spool_of_another_backend_is_named_before_a_start() {
    for (before, after) in [("queue-dirs", "log"), ("log", "queue-dirs")] {
        let group = |backend: &str| {
            format!("[[queue_group]]\nname = \"bulk\"\ndomains = [\"bulk.test\"]\nbackend = \"{backend}\"\n")
        };
        let daemon = Postrider::start(&group(before));
        daemon.reconfigure(&group(after));
        for (arguments, exit) in [(&["config", "check"][..], 78), (&["doctor", "--offline"], 2)] {
            let output = daemon.run(arguments, "");
            let told = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
            assert_eq!(output.status.code(), Some(exit), "{told}");
            let says =
                format!("data/spool-bulk has the files of the backend \"{before}\", and not of \"{after}\"");
            assert!(told.contains(&says), "{told}");
        }
        // systemd does not start it again and again.
        let (dir, _) = daemon.kill();
        let config = dir.path().join("postrider.toml");
        let served = Command::new(BINARY).args(["serve", "--config"]).arg(config).output().unwrap();
        assert_eq!(served.status.code(), Some(78), "{}", String::from_utf8_lossy(&served.stderr));
    }
}
