//! Routes for some senders, copies (BCC), and addresses that are changed on the way out.

use crate::common::{Postrider, client::Client, free_address, sink::Sink, until};
use std::fs;

fn send(daemon: &Postrider, from: &str, to: &[&str]) {
    let mut client = Client::connect(daemon.address).unwrap();
    let reply = client.send(from, to, b"Subject: x\r\n\r\nx\r\n").unwrap();
    assert_eq!(reply.0, 250, "{}", reply.1);
}

/// Starts a daemon beside files of maps.
fn start(files: &[(&str, &str)], more: &str) -> Postrider {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(dir.path().join(name), text).unwrap();
    }
    Postrider::start_in(dir, free_address(), more)
}

fn senders(sink: &Sink) -> Vec<String> {
    let mut all: Vec<_> = sink.messages().into_iter().map(|message| message.from).collect();
    all.sort();
    all
}

#[test]
fn mail_of_some_senders_takes_a_route_of_its_own() {
    let (one, two, other) = (Sink::start(), Sink::start(), Sink::start());
    let route = |senders: &str, sink: &Sink| {
        format!("[[route]]\ndomains = [\"*\"]\n{senders}smarthost = \"{}\"\ntls = \"off\"\n", sink.address)
    };
    let routes = route("senders = [\"news.test\", \"joe@far.test\", \"<>\"]\n", &one)
        + &route("senders = [\"text:senders\"]\n", &two)
        + "[[route]]\ndomains = [\"gone.test\"]\nsenders = [\"bad.test\"]\nreject = \"550 5.7.1 not for you\"\n"
        + "[[route]]\ndomains = [\"mx.test\"]\nmaildir = \"{local}\"\n";
    let files = [("senders", "ann@far.test x\nteam.test x\n@staff.test x\n")];
    let daemon = start(&files, &(routes + &route("", &other)));
    for from in [
        "a@news.test",
        "Joe@far.test",
        "",
        "ann+x@far.test",
        "b@team.test",
        "c@staff.test",
        "ann@news.test",
        "d@far.test",
    ] {
        send(&daemon, from, &["x@b.test"]);
    }
    until("all have arrived", || one.count() + two.count() + other.count() == 8);
    assert_eq!(senders(&one), ["", "Joe@far.test", "a@news.test", "ann@news.test"]);
    assert_eq!(senders(&two), ["ann+x@far.test", "b@team.test", "c@staff.test"]);
    assert_eq!(senders(&other), ["d@far.test"]);
    let mut client = Client::connect(daemon.address).unwrap();
    client.say("MAIL FROM:<x@bad.test>").unwrap();
    assert!(client.say("RCPT TO:<x@gone.test>").unwrap().1.starts_with("550 5.7.1 not for you"));
    assert!(client.say("RCPT TO:<x@b.test>").unwrap().1.starts_with("250"));
}

#[test]
fn copies_go_to_the_addresses_that_the_configuration_has() {
    let sink = Sink::start();
    let maps = "sender_bcc = [\"text:by_sender\"]\nrecipient_bcc = [\"text:by_recipient\"]\n";
    let more = format!(
        "[addresses]\nbcc = [\"archive@mx.test\"]\n{maps}{}",
        sink.route().replace("\"*\"", "\"far.test\"")
    );
    let files = [
        ("by_sender", "boss@far.test legal@mx.test\n"),
        ("by_recipient", "joe@mx.test ann@mx.test, joe@mx.test\n"),
    ];
    let daemon = start(&files, &more);
    send(&daemon, "boss@far.test", &["x@far.test", "Joe@mx.test"]);
    for user in ["archive", "legal", "joe", "ann"] {
        until(&format!("{user} has a copy"), || daemon.mailbox(user).len() == 1);
    }
    until("the other one has it", || sink.count() == 1);
    assert_eq!(sink.messages()[0].to, ["x@far.test"]);
    send(&daemon, "other@far.test", &["x@far.test"]);
    until("the archive has it", || daemon.mailbox("archive").len() == 2);
    // Joe was a recipient already.
    assert_eq!(daemon.mailbox("joe").len(), 1);
    assert_eq!(daemon.mailbox("legal").len(), 1);
    let text = fs::read_to_string(&daemon.mailbox("joe")[0]).unwrap();
    assert!(!text.contains("archive@") && !text.contains("legal@"), "{text}");
    // A refused recipient has no copy.
    let mut client = Client::connect(daemon.address).unwrap();
    client.say("MAIL FROM:<a@far.test>").unwrap();
    fs::remove_file(daemon.dir.path().join("by_recipient")).unwrap();
    assert!(client.say("RCPT TO:<\"../x\"@mx.test>").unwrap().1.starts_with("550"));
    assert!(client.say("DATA").unwrap().1.starts_with("554"));
}

#[test]
fn a_map_of_copies_that_does_not_answer_is_a_temporary_error() {
    let more = "[addresses]\nsender_bcc = [\"map:copies\"]\n[map.copies]\nsocketmap = \"unix:none.sock\"\n";
    let daemon = start(&[], more);
    let mut client = Client::connect(daemon.address).unwrap();
    client.say("MAIL FROM:<a@far.test>").unwrap();
    assert!(client.say("RCPT TO:<joe@mx.test>").unwrap().1.starts_with("451 4.3.0"));
}

#[test]
fn addresses_are_changed_on_the_way_out_and_stay_here() {
    let sink = Sink::start();
    let route = sink.route().replace("\"*\"", "\"far.test\"");
    let generic =
        "joe@mx.test joe.smith@example.test\n@inner.test @example.test\nold@far.test new@far.test\n";
    let aliases = "list: y@far.test, ann\nowner-list: ann@inner.test\n";
    let daemon = start(
        &[("generic", generic), ("aliases", aliases)],
        &format!("[addresses]\ngeneric = [\"text:generic\"]\naliases = [\"aliases:aliases\"]\n{route}"),
    );
    send(&daemon, "joe+x@mx.test", &["old@far.test", "ann@mx.test"]);
    send(&daemon, "ann@inner.test", &["x@far.test"]);
    send(&daemon, "", &["x@far.test"]);
    until("all have left", || sink.count() == 3);
    let mut left: Vec<_> =
        sink.messages().into_iter().map(|message| (message.from, message.to.concat())).collect();
    left.sort();
    let pair = |from: &str, to: &str| (from.to_owned(), to.to_owned());
    let expected = [
        pair("", "x@far.test"),
        pair("ann@example.test", "x@far.test"),
        pair("joe.smith+x@example.test", "new@far.test"),
    ];
    assert_eq!(left, expected);
    until("the local one is there", || daemon.mailbox("ann").len() == 1);
    let text = fs::read_to_string(&daemon.mailbox("ann")[0]).unwrap();
    assert!(text.starts_with("Return-Path: <joe+x@mx.test>\n"), "{text}");
    // The owner of a list is changed, too, and `postrider test` says what leaves.
    let test = ["test", "--client", "127.0.0.1", "--from", "joe+x@mx.test", "--to", "list@mx.test"];
    let said = daemon.try_ask(&test).unwrap();
    for line in [
        "<joe+x@mx.test>, outside <joe.smith+x@example.test>",
        ", from <owner-list@mx.test>",
        "ann@mx.test by maildir:",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    send(&daemon, "joe+x@mx.test", &["list@mx.test"]);
    until("the list's mail has left", || sink.count() == 4);
    let last = sink.messages().into_iter().find(|message| message.to.concat() == "y@far.test").unwrap();
    assert_eq!(last.from, "owner-list@mx.test");
}
