//! Filters that are not there, hang, end, or break the protocol.

use super::fake::{Act, Fake, agreement, packet, usual};
use crate::common::{Postrider, client::Client, free_address, sink::Sink, until};
use std::path::Path;

/// The packets that are answered, in the order of a message; the letters are those of the protocol.
const ANSWERED: &[u8] = b"OCHMRTLNBE";

const TO: [&str; 2] = ["b@b.test", "c@b.test"];
const CONTENT: &[u8] = b"Subject: s\r\n\r\nbody\r\n";

/// What is said of a packet instead of an answer.
type Fault = (&'static str, fn(u8) -> Option<Act>);

/// Returns no act where the answer would be none of a fault.
const FAULTS: [Fault; 15] = [
    ("hangs", |_| Some(Act::Hang)),
    ("ends", |_| Some(Act::WriteAndClose(Vec::new()))),
    ("ends within the length", |_| Some(Act::WriteAndClose(vec![0, 0]))),
    ("ends within a packet", |_| Some(Act::WriteAndClose(vec![0, 0, 0, 9, b'c']))),
    ("hangs within a packet", |_| Some(Act::Write(vec![0, 0, 0, 9, b'c']))),
    ("sends a packet of no length", |_| Some(Act::Write(vec![0, 0, 0, 0]))),
    ("sends a packet of 4 GiB", |_| Some(Act::Write(vec![0xff; 64]))),
    ("sends an unknown answer", |_| Some(Act::Write(packet(b'!', b"x")))),
    ("sends garbage", |_| Some(Act::Write(b"220 mx.test ESMTP\r\n".repeat(10)))),
    ("answers twice", |kind| (kind != b'E').then(|| Act::Write([usual(kind), usual(b'C')].concat()))),
    ("negotiates again", |kind| (kind != b'O').then(|| Act::Write(agreement(0, 0)))),
    ("sends a positive reply", |_| Some(Act::Write(packet(b'y', b"250 2.0.0 fine\0")))),
    ("sends a reply of several commands", |_| {
        Some(Act::Write(packet(b'y', b"550 5.7.1 no\r\n250 2.0.0 fine\0")))
    }),
    ("adds a field with a line break", |_| Some(Act::Write(packet(b'h', b"X-New\0v\r\n\r\nbody\0")))),
    ("sends an edit out of turn", |kind| {
        (kind != b'E').then(|| Act::Write([packet(b'h', b"X-New\0v\0"), usual(kind)].concat()))
    }),
];

fn section(socket: &Path, more: &str) -> String {
    format!("[filter.fake]\nmilter = \"unix:{}\"\n{more}", socket.display())
}

/// Says a whole transaction, and returns the first refusal, or the reply to the content.
fn send(client: &mut Client, to: &[&str]) -> String {
    let mut refused = None;
    let mut accepted = 0;
    let mail = client.say("MAIL FROM:<a@a.test>").unwrap();
    if mail.0 != 250 {
        return mail.1;
    }
    for to in to {
        let reply = client.say(&format!("RCPT TO:<{to}>")).unwrap();
        if reply.0 == 250 {
            accepted += 1;
        } else {
            refused.get_or_insert(reply.1);
        }
    }
    if accepted == 0 {
        client.say("RSET").unwrap();
        return refused.unwrap();
    }
    assert_eq!(client.say("DATA").unwrap().0, 354);
    client.write(&[CONTENT, b".\r\n"].concat()).unwrap();
    let end = client.reply().unwrap();
    match refused {
        // A filter that was lost sees no more of the message, and none of it is taken.
        Some(refused) => {
            assert!(end.1.starts_with("451 4.7.1"), "{refused}, then {}", end.1);
            refused
        }
        None => end.1,
    }
}

/// A daemon with a filter that fails when told to.
struct Setup {
    // Ends first.
    daemon: Postrider,
    filter: Fake,
    hop: Sink,
}

impl Setup {
    fn start(more: &str) -> Self {
        let (dir, hop) = (tempfile::tempdir().unwrap(), Sink::start());
        let filter = Fake::start(&dir.path().join("filter"));
        let more = format!(
            "[limits]\nmax_message_size = \"1MiB\"\n{}{}",
            hop.route(),
            section(&filter.socket, more)
        );
        Self { daemon: Postrider::start_in(dir, free_address(), &more), filter, hop }
    }

    /// Waits until nothing is queued, and returns what has arrived: recipients and content behind the trace field.
    fn arrived(&self) -> Vec<(Vec<String>, String)> {
        until("nothing is queued", || self.daemon.counter("queued") == 0);
        let messages = self.hop.take().into_iter().map(|message| {
            let text = String::from_utf8(message.content).unwrap();
            let at = text.find("Subject: ").unwrap_or(0);
            let above = text[..at].lines().filter(|line| !line.starts_with([' ', '\t'])).count();
            assert_eq!(above, 1, "{text}");
            (message.to, text[at..].to_owned())
        });
        messages.collect()
    }
}

fn unchanged() -> Vec<(Vec<String>, String)> {
    vec![(TO.map(str::to_owned).to_vec(), String::from_utf8(CONTENT.to_vec()).unwrap())]
}

/// A message that the filter fails, one more in the same session, and one in the next.
fn fails(setup: &Setup, passes: bool, name: &str, kind: u8, act: fn(u8) -> Option<Act>) {
    if act(kind).is_none() {
        return;
    }
    let at = format!("a filter that {name} at '{}'", char::from(kind));
    setup.filter.act(move |packet| if packet.kind == kind { act(kind).unwrap() } else { Act::Usual });
    let mut client = Client::connect(setup.daemon.address).unwrap();
    let reply = send(&mut client, &TO);
    if passes {
        assert!(reply.starts_with("250 "), "{at}: {reply}");
        assert_eq!(setup.arrived(), unchanged(), "{at}");
    } else {
        assert!(reply.starts_with("451 4.7.1 "), "{at}: {reply}");
        assert_eq!(setup.arrived(), [], "{at}");
    }
    setup.filter.act(|_| Act::Usual);
    assert!(send(&mut client, &TO).starts_with("250 "), "{at}, then not");
    assert!(setup.filter.packets().iter().any(|packet| packet.kind == b'E'), "{at}, then not");
    assert_eq!(setup.arrived(), unchanged(), "{at}, then not");
}

#[test]
fn mail_waits_for_a_filter_that_fails_at_any_packet() {
    let setup = Setup::start("timeout = \"300ms\"\n");
    for (name, act) in FAULTS {
        ANSWERED.iter().for_each(|kind| fails(&setup, false, name, *kind, act));
    }
}

#[test]
fn mail_passes_a_filter_that_fails_at_any_packet_if_it_may() {
    let setup = Setup::start("timeout = \"300ms\"\non_failure = \"pass\"\n");
    for (name, act) in FAULTS {
        ANSWERED.iter().for_each(|kind| fails(&setup, true, name, *kind, act));
    }
}

/// Edits at the end of the message that are faults.
fn bad_edits() -> Vec<(&'static str, u32, Vec<u8>)> {
    let piece = packet(b'b', &vec![b'x'; 60_000]);
    vec![
        ("a field that was not negotiated", 0xfe, packet(b'h', b"X-New\0v\0")),
        ("a change that was not negotiated", 0xff ^ 0x10, packet(b'm', b"\0\0\0\x01Subject\0v\0")),
        ("a body that was not negotiated", 0xff ^ 0x02, packet(b'b', b"x")),
        ("a sender that was not negotiated", 0xff ^ 0x40, packet(b'e', b"<x@y.test>\0")),
        ("a recipient that was not negotiated", 0xff ^ 0x04, packet(b'+', b"<x@y.test>\0")),
        ("a deletion that was not negotiated", 0xff ^ 0x08, packet(b'-', b"<b@b.test>\0")),
        ("a quarantine that was not negotiated", 0xff ^ 0x20, packet(b'q', b"x\0")),
        ("a body beyond the limit", 0xff, piece.repeat(20)),
        ("a field without a value", 0xff, packet(b'h', b"X-New\0")),
        ("a field without a name", 0xff, packet(b'h', b"\0v\0")),
        ("an index that is cut off", 0xff, packet(b'i', b"\0\0\0")),
        ("a recipient of two lines", 0xff, packet(b'+', b"x@y.test\r\nDATA\0")),
        (
            "edits without an end",
            0xff,
            packet(b'h', &[b"X-New\0", &b"v".repeat(60_000)[..], b"\0"].concat()).repeat(80),
        ),
    ]
}

#[test]
fn edits_that_break_the_protocol_are_not_made() {
    for passes in [false, true] {
        let more = if passes { "on_failure = \"pass\"\n" } else { "" };
        let setup = Setup::start(more);
        for (name, actions, bytes) in bad_edits() {
            setup.filter.act(move |packet| match packet.kind {
                b'O' => Act::Write(agreement(actions, 0)),
                b'E' => Act::Write([&bytes[..], &usual(b'E')].concat()),
                _ => Act::Usual,
            });
            let mut client = Client::connect(setup.daemon.address).unwrap();
            let reply = send(&mut client, &TO);
            if passes {
                assert!(reply.starts_with("250 "), "{name}: {reply}");
                assert_eq!(setup.arrived(), unchanged(), "{name}");
            } else {
                assert!(reply.starts_with("451 4.7.1 "), "{name}: {reply}");
                assert_eq!(setup.arrived(), [], "{name}");
            }
        }
    }
}

#[test]
fn a_filter_may_come_later_and_close_connections_that_are_idle() {
    let Setup { daemon, filter, hop } = Setup::start("timeout = \"5s\"\n");
    let socket = filter.socket.clone();
    let mut client = Client::connect(daemon.address).unwrap();
    assert!(send(&mut client, &TO).starts_with("250 "));
    // The filter closes what is idle: that is no failure.
    filter.hang_up();
    assert!(send(&mut client, &TO).starts_with("250 "));
    let kinds: Vec<u8> = filter.packets().iter().map(|packet| packet.kind).collect();
    assert_eq!(kinds.iter().filter(|kind| **kind == b'E').count(), 2);
    assert_eq!(
        kinds.iter().filter(|kind| **kind == b'C').count(),
        2,
        "the filter was told of the client anew"
    );
    // It is gone.
    drop(filter);
    assert!(send(&mut client, &TO).starts_with("451 4.7.1 "));
    let is_named = || daemon.ask(&["status"]).contains("FILTER FAILS: filter fake (unix:");
    assert!(is_named());
    // It is back.
    let filter = Fake::start(&socket);
    assert!(send(&mut client, &TO).starts_with("250 "));
    assert!(!is_named());
    assert!(filter.packets().iter().any(|packet| packet.kind == b'E'));
    let setup = Setup { daemon, filter, hop };
    assert_eq!(setup.arrived().len(), 3);
}

#[test]
fn a_filter_that_is_at_work_has_the_time_anew() {
    let setup = Setup::start("timeout = \"5s\"\n");
    setup.filter.act(|packet| match packet.kind {
        b'E' => Act::Write([super::fake::packet(b'p', b"").repeat(100), usual(b'E')].concat()),
        _ => Act::Usual,
    });
    let mut client = Client::connect(setup.daemon.address).unwrap();
    assert!(send(&mut client, &TO).starts_with("250 "));
    assert_eq!(setup.arrived(), unchanged());
}
