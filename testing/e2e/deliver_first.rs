//! `durability = "deliver-first"`: what a client hears, what is written, and what a killed daemon finds again.

use crate::common::{Postrider, client::Client, free_address, sink::Sink, until};
use std::{
    fs,
    path::Path,
    sync::{Arc, Condvar, Mutex},
};
use tempfile::TempDir;

/// In the body of each message, and nowhere else.
const MARK: &[u8] = b"written-nowhere-else";

/// Longer than any next hop here takes.
const LONG: &str = "1m";

/// A gate that a next hop waits at before it replies to the content.
#[derive(Default)]
struct Gate {
    is_open: Mutex<bool>,
    changed: Condvar,
}

impl Gate {
    fn pass(&self) {
        drop(self.changed.wait_while(self.is_open.lock().unwrap(), |is_open| !*is_open).unwrap());
    }

    fn open(&self) {
        *self.is_open.lock().unwrap() = true;
        self.changed.notify_all();
    }
}

/// Opens the gate at the end, whatever the test finds: a thread of the next hop waits there.
struct OpenAtEnd(Arc<Gate>);

impl Drop for OpenAtEnd {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// A next hop that is asked for its reply to the content at a gate.
fn gated() -> (Sink, OpenAtEnd) {
    let gate = Arc::new(Gate::default());
    let waiting = gate.clone();
    let sink = Sink::with(move |command| {
        if command == "." {
            waiting.pass();
        }
        None
    });
    (sink, OpenAtEnd(gate))
}

/// The keys of `[spool]` come first.
fn config(timeout: &str, sink: &Sink) -> String {
    let log = "[log]\nfile = \"mail.log\"\n";
    format!("deliver_first_timeout = \"{timeout}\"\n{log}{}durability = \"deliver-first\"\n", sink.route())
}

fn send(client: &mut Client, to: &[&str]) -> String {
    let content = [b"Subject: s\r\n\r\n", MARK, b"\r\n"].concat();
    client.send("a@far.test", to, &content).map_or_else(|e| e.to_string(), |reply| reply.1)
}

/// Returns whether a file of a folder has the mark.
fn is_written(dir: &Path) -> bool {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).any(|path| match path.is_dir() {
        true => is_written(&path),
        // The control socket is not a file to read.
        false => path.is_file() && fs::read(&path).unwrap().windows(MARK.len()).any(|bytes| bytes == MARK),
    })
}

fn queued(dir: TempDir, config: &str) -> (Postrider, u64) {
    let daemon = Postrider::start_in(dir, free_address(), config);
    let count = daemon.counter("queued");
    (daemon, count)
}

#[test]
fn mail_that_the_next_hop_takes_at_once_is_never_written() {
    let sink = Sink::start();
    let daemon = Postrider::start(&config(LONG, &sink));
    let mut client = Client::connect(daemon.address).unwrap();
    for to in [&["x@else.test"][..], &["x@else.test", "y@else.test"]] {
        let reply = send(&mut client, to);
        assert!(reply.starts_with("250 2.0.0 Ok: delivered as "), "{reply}");
    }
    assert_eq!(sink.count(), 2, "before the reply");
    assert_eq!((daemon.counter("accepted"), daemon.counter("delivered")), (3, 3));
    let status = daemon.ask(&["status"]);
    assert!(status.contains("never written: 2 messages"), "{status}");
    let (dir, _) = daemon.stop();
    assert!(!is_written(&dir.path().join("data")));
    let (daemon, count) = queued(dir, &config(LONG, &sink));
    assert_eq!((count, daemon.counter("accepted"), daemon.counter("delivered")), (0, 3, 3));
    assert_eq!(sink.count(), 2);
}

#[test]
fn what_the_next_hop_does_not_take_is_stored_before_the_client_hears_of_it() {
    for reply in ["451 4.3.0 Later", "552 5.2.2 No", "CLOSE"] {
        let sink = Sink::with(move |command| (command == ".").then(|| reply.to_owned()));
        let daemon = Postrider::start(&config(LONG, &sink));
        let told = send(&mut Client::connect(daemon.address).unwrap(), &["x@else.test"]);
        assert!(told.starts_with("250 2.0.0 Ok: queued as "), "{reply}: {told}");
        let (dir, _) = daemon.kill();
        assert!(is_written(&dir.path().join("data")), "{reply}");
        // What was refused comes back to its sender, over the same route.
        let sink = Sink::start();
        let daemon = Postrider::start_in(dir, free_address(), &config(LONG, &sink));
        daemon.ask(&["queue", "flush"]);
        until("it is delivered", || sink.count() == 1);
        let from = &sink.messages()[0].from;
        assert_eq!(from, if reply.starts_with('5') { "" } else { "a@far.test" }, "{reply}");
        until("it leaves the queue", || daemon.counter("queued") == 0);
    }
}

#[test]
fn nobody_waits_for_a_next_hop_that_is_down() {
    let nobody = format!("[[route]]\ndomains = [\"*\"]\nsmarthost = \"{}\"\ntls = \"off\"\n", free_address());
    let text = format!("deliver_first_timeout = \"{LONG}\"\n{nobody}durability = \"deliver-first\"\n");
    let daemon = Postrider::start(&text);
    let mut client = Client::connect(daemon.address).unwrap();
    // The first one finds that it is down, and the second one knows.
    for _ in 0..2 {
        let told = send(&mut client, &["x@else.test"]);
        assert!(told.starts_with("250 2.0.0 Ok: queued as "), "{told}");
    }
    let (dir, _) = daemon.kill();
    assert_eq!(queued(dir, &text).1, 2);
}

#[test]
fn a_next_hop_that_takes_its_time_gets_the_message_once_and_the_client_does_not_wait() {
    let (sink, gate) = gated();
    let daemon = Postrider::start(&config("20ms", &sink));
    let told = send(&mut Client::connect(daemon.address).unwrap(), &["x@else.test"]);
    assert!(told.starts_with("250 2.0.0 Ok: queued as "), "{told}");
    assert_eq!((sink.count(), daemon.counter("queued")), (0, 1));
    gate.0.open();
    until("it leaves the queue", || daemon.counter("queued") == 0);
    assert_eq!((sink.count(), sink.transaction_count()), (1, 1));
    let (dir, _) = daemon.stop();
    let (_daemon, count) = queued(dir, &config("20ms", &sink));
    assert_eq!((count, sink.transaction_count()), (0, 1));
}

#[test]
fn a_message_is_stored_when_its_client_was_told_so_and_only_then() {
    for (timeout, reply, count) in [("20ms", "250 ", 1), (LONG, "", 0)] {
        let (sink, gate) = gated();
        let daemon = Postrider::start(&config(timeout, &sink));
        let mut client = Client::connect(daemon.address).unwrap();
        let sending = std::thread::spawn(move || send(&mut client, &["x@else.test"]));
        let told = if reply.is_empty() {
            until("the next hop is asked", || sink.transaction_count() == 1);
            None
        } else {
            Some(sending.join().unwrap())
        };
        let (dir, _) = daemon.kill();
        assert!(told.is_none_or(|told| told.starts_with(reply)));
        let nobody = Sink::with(|_| Some("421 4.3.2 Closed".to_owned()));
        assert_eq!(queued(dir, &config(timeout, &nobody)).1, count, "{timeout}");
        drop(gate);
    }
}

#[test]
fn recipients_that_are_deferred_are_tried_again_and_the_others_are_not() {
    let sink = Sink::with(|command| command.contains("<later@").then(|| "450 4.2.1 Later".to_owned()));
    let daemon = Postrider::start(&config(LONG, &sink));
    let told = send(&mut Client::connect(daemon.address).unwrap(), &["now@else.test", "later@else.test"]);
    assert!(told.starts_with("250 2.0.0 Ok: queued as "), "{told}");
    assert_eq!(sink.take()[0].to, ["now@else.test"]);
    let (dir, _) = daemon.stop();
    let sink = Sink::start();
    let daemon = Postrider::start_in(dir, free_address(), &config(LONG, &sink));
    daemon.ask(&["queue", "flush"]);
    until("it leaves the queue", || daemon.counter("queued") == 0);
    assert_eq!(sink.messages().iter().map(|one| one.to.clone()).collect::<Vec<_>>(), [["later@else.test"]]);
}

#[test]
fn a_stop_stores_what_waits_for_its_next_hop() {
    let (sink, gate) = gated();
    let daemon = Postrider::start(&config("2s", &sink));
    let mut client = Client::connect(daemon.address).unwrap();
    let sending = std::thread::spawn(move || send(&mut client, &["x@else.test"]));
    until("the next hop is asked", || sink.transaction_count() == 1);
    let (dir, exit) = std::thread::scope(|scope| {
        let stopping = scope.spawn(|| daemon.stop());
        let told = sending.join().unwrap();
        assert!(told.starts_with("250 2.0.0 Ok: queued as "), "{told}");
        gate.0.open();
        stopping.join().unwrap()
    });
    assert!(exit.success(), "{exit}");
    let (_daemon, count) = queued(dir, &config("2s", &sink));
    assert_eq!(count as usize + sink.count(), 1, "delivered, or still there");
}

#[test]
fn reports_of_success_are_sent_and_stored_with_their_message() {
    let sink = Sink::start();
    let daemon = Postrider::start(&config(LONG, &sink));
    let mut client = Client::connect(daemon.address).unwrap();
    for (line, code) in [("MAIL FROM:<a@far.test>", 250), ("RCPT TO:<x@else.test> NOTIFY=SUCCESS", 250)] {
        assert_eq!(client.say(line).unwrap().0, code, "{line}");
    }
    assert_eq!(client.say("DATA").unwrap().0, 354);
    let told = client.say("Subject: s\r\n\r\nbody\r\n.").unwrap().1;
    assert!(told.starts_with("250 2.0.0 Ok: queued as "), "{told}");
    until("the report is delivered", || sink.count() == 2);
    until("the queue is empty", || daemon.counter("queued") == 0);
    assert_eq!(sink.messages()[1].from, "");
    let (accepted, delivered) = (daemon.counter("accepted"), daemon.counter("delivered"));
    assert_eq!((accepted, delivered), (2, 2));
}

#[test]
fn mail_for_a_route_that_is_durable_or_held_is_stored() {
    let sink = Sink::start();
    let durable = sink.route().replace('*', "kept.test") + "durability = \"durable\"\n";
    let hold = "[[rule]]\nfrom = [\"held@far.test\"]\nfor = \"all\"\nhold = \"a look first\"\n";
    let text = format!("durability = \"deliver-first\"\n{durable}{}{hold}", sink.route());
    let daemon = Postrider::start(&text);
    let mut client = Client::connect(daemon.address).unwrap();
    for (to, word) in [
        (&["x@else.test"][..], "delivered"),
        (&["x@kept.test"], "queued"),
        (&["x@else.test", "x@kept.test"], "queued"),
    ] {
        let told = send(&mut client, to);
        assert!(told.contains(word), "{to:?}: {told}");
    }
    let told = client.send("held@far.test", &["x@else.test"], b"Subject: s\r\n\r\nhi\r\n").unwrap().1;
    assert!(told.contains("queued as"), "{told}");
    until("the others have left", || daemon.counter("queued") == 1);
}
