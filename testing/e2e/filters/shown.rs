//! Which mail is shown to filters, what they are told of it, and what happens behind them.

use super::fake::{Act, Fake, Packet, packet, usual};
use crate::{
    common::{Postrider, client::Client, free_address, python_with, sink::Sink, tls, until},
    signatures::{new_key, verify},
};
use std::{collections::BTreeMap, fs, net::SocketAddr, path::Path};

const CONTENT: &[u8] = b"From: joe@own.test\r\nSubject: s\r\n\r\nbody\r\n";

fn section(name: &str, filter: &Fake, more: &str) -> String {
    format!("[filter.{name}]\nmilter = \"unix:{}\"\n{more}", filter.socket.display())
}

fn send_from(client: &str, address: SocketAddr) {
    let mut client = Client::connect_from(client, address).unwrap();
    let reply = client.send("joe@own.test", &["joe@mx.test"], CONTENT).unwrap();
    assert_eq!(reply.0, 250, "{}", reply.1);
}

/// Returns how many messages a filter was shown since the last time.
fn shown(filter: &Fake) -> usize {
    filter.packets().iter().filter(|packet| packet.kind == b'E').count()
}

/// Returns the macros that came with a command, by name.
fn macros(packets: &[Packet], command: u8) -> BTreeMap<String, String> {
    let of_command = packets.iter().filter(|packet| packet.kind == b'D' && packet.data[0] == command);
    let mut all = BTreeMap::new();
    for packet in of_command {
        let text = String::from_utf8(packet.data[1..].to_vec()).unwrap();
        let words: Vec<&str> = text.split('\0').collect();
        all.extend(words.chunks_exact(2).map(|pair| (pair[0].to_owned(), pair[1].to_owned())));
    }
    all
}

/// The header fields that a filter was told, in one text.
fn header(packets: &[Packet]) -> String {
    let fields = packets.iter().filter(|packet| packet.kind == b'L');
    fields
        .map(|packet| String::from_utf8_lossy(&packet.data).replacen('\0', ":", 1).replace('\0', "\n"))
        .collect()
}

fn body(packets: &[Packet]) -> Vec<u8> {
    packets.iter().filter(|packet| packet.kind == b'B').flat_map(|packet| packet.data.clone()).collect()
}

/// Has the filter answer each message with these edits.
fn edits(filter: &Fake, edits: &[Vec<u8>]) {
    let edits = edits.concat();
    filter.act(move |packet| match packet.kind {
        b'E' => Act::Write([&edits[..], &usual(b'E')].concat()),
        _ => Act::Usual,
    });
}

#[test]
fn filters_see_the_mail_of_their_clients() {
    let dir = tempfile::tempdir().unwrap();
    let start = |name: &str| Fake::start(&dir.path().join(name));
    let (untrusted, users, all) = (start("untrusted"), start("users"), start("all"));
    let address = free_address();
    let more = format!(
        "[[listen]]\naddress = \"{address}\"\nkind = \"submission\"\n[relay]\nnetworks = [\"127.0.0.2/32\"]\n\
         [auth]\nusers = \"passwd:users\"\nallow_clear_text = true\n{}{}{}",
        section("untrusted", &untrusted, "for = \"untrusted\"\n"),
        section("users", &users, "for = \"users\"\n"),
        section("all", &all, "local = true\n")
    );
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("users"), "joe@own.test:{PLAIN}secret\n").unwrap();
    let daemon = Postrider::start_in(folder, free_address(), &more);
    let shown = || (shown(&untrusted), shown(&users), shown(&all));

    send_from("127.0.0.1", daemon.address);
    assert_eq!(shown(), (1, 0, 1), "a stranger");
    send_from("127.0.0.2", daemon.address);
    assert_eq!(shown(), (0, 1, 1), "a client of relay.networks");

    // A client with a login, over TLS: what the filters are told of it.
    let (mut client, _) = tls::Client::starttls(address, &tls::client_config(None)).unwrap();
    // "\0joe@own.test\0secret"
    let reply = client.say("AUTH PLAIN AGpvZUBvd24udGVzdABzZWNyZXQ=").unwrap();
    assert!(reply.starts_with("235"), "{reply}");
    assert!(client.say("MAIL FROM:<joe@own.test>").unwrap().starts_with("250"));
    assert!(client.say("RCPT TO:<joe@mx.test>").unwrap().starts_with("250"));
    assert!(client.say("DATA").unwrap().starts_with("354"));
    let reply = client.say("From: joe@own.test\r\nSubject: s\r\n\r\nbody\r\n.").unwrap();
    let id = reply.rsplit(' ').next().unwrap();
    // The session before may take leave late.
    let told = |filter: &Fake| filter.packets().iter().filter(|packet| packet.kind != b'Q').count();
    assert_eq!(told(&untrusted), 0);
    let packets = users.packets();
    let of_mail = macros(&packets, b'M');
    let named = |name: &str| of_mail.get(name).map(String::as_str);
    assert_eq!(named("{auth_authen}"), Some("joe@own.test"));
    assert_eq!(named("{auth_type}"), Some("PLAIN"));
    assert_eq!(named("{mail_addr}"), Some("joe@own.test"));
    let of_hello = macros(&packets, b'H');
    assert!(of_hello["{tls_version}"].starts_with("TLSv1."), "{of_hello:?}");
    assert!(of_hello["{cipher}"].starts_with("TLS"), "{of_hello:?}");
    assert_eq!(macros(&packets, b'E')["i"], id);
    assert_eq!(macros(&packets, b'R')["{rcpt_addr}"], "joe@mx.test");
    assert_eq!(all.packets().iter().filter(|packet| packet.kind == b'E').count(), 1);

    // A program of this machine, by the command and in Sendmail's name.
    let mail = "From: joe@own.test\nSubject: s\n\nbody\n";
    let output = daemon.run(&["sendmail", "-f", "joe@own.test", "joe@mx.test"], mail);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    until("the local message has arrived", || daemon.mailbox("joe").len() == 4);
    let packets = all.packets();
    assert_eq!(packets.iter().filter(|packet| packet.kind == b'E').count(), 1);
    let connect = packets.iter().find(|packet| packet.kind == b'C').unwrap();
    assert!(connect.data.starts_with(b"localhost\x004"), "{}", connect.data.escape_ascii());
    assert_eq!(body(&packets), b"body\r\n");
    assert_eq!((told(&users), told(&untrusted)), (0, 0));

    // A test asks no filter, and says so.
    let file = daemon.dir.path().join("mail");
    fs::write(&file, mail).unwrap();
    let file = file.to_str().unwrap();
    let arguments =
        ["test", "--client", "203.0.113.7", "--from", "a@b.test", "--to", "joe@mx.test", "--file", file];
    let said = String::from_utf8(daemon.run(&arguments, "").stdout).unwrap();
    let is_said = |name: &str| {
        said.lines()
            .any(|line| line.contains(&format!("filter {name} ")) && line.contains("not asked by this test"))
    };
    assert!(is_said("untrusted") && is_said("all") && !is_said("users"), "{said}");
    assert_eq!(all.packets(), []);
}

#[test]
fn macros_name_clients_whose_names_are_not_verified_as_postfix_does() {
    let dir = tempfile::tempdir().unwrap();
    let filter = Fake::start(&dir.path().join("filter"));
    // Nobody listens there.
    let names = free_address();
    let more = format!(
        "[dns]\nnameservers = [\"{names}\"]\ntimeout = \"100ms\"\nattempts = 1\n{}",
        section("all", &filter, "")
    );
    let list = packet(
        b'O',
        &[
            [6_u32, 0xff | 0x100, 0].map(u32::to_be_bytes).as_flattened(),
            &b"\0\0\0\0{client_addr} {client_name} {client_ptr} _ j\0\0\0\0\x02i {mail_addr}\0"[..],
        ]
        .concat(),
    );
    filter.act(move |packet| if packet.kind == b'O' { Act::Write(list.clone()) } else { Act::Usual });
    let daemon = Postrider::start(&more);
    send_from("127.0.0.3", daemon.address);
    let packets = filter.packets();
    let connect = packets.iter().find(|packet| packet.kind == b'C').unwrap();
    assert!(connect.data.starts_with(b"[127.0.0.3]\x004"), "{}", connect.data.escape_ascii());
    let told: Vec<_> = macros(&packets, b'C').into_iter().collect();
    let expected = [
        ("_", "unknown [127.0.0.3]"),
        ("j", "mx.test"),
        ("{client_addr}", "127.0.0.3"),
        ("{client_name}", "unknown"),
        ("{client_ptr}", "unknown"),
    ];
    assert_eq!(told, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    assert_eq!(macros(&packets, b'M')["{mail_addr}"], "joe@own.test");
}

#[test]
fn notifications_are_not_shown() {
    let dir = tempfile::tempdir().unwrap();
    let filter = Fake::start(&dir.path().join("filter"));
    let hop = Sink::with(|command| command.contains("gone@").then(|| "550 5.1.1 no such user".to_owned()));
    let daemon = Postrider::start(&format!("{}{}", hop.route(), section("all", &filter, "local = true\n")));
    let mut client = Client::connect(daemon.address).unwrap();
    client.send("joe@own.test", &["gone@far.test"], CONTENT).unwrap();
    until("the notification has arrived", || hop.count() == 1);
    assert_eq!(hop.take()[0].to, ["joe@own.test"]);
    assert_eq!(shown(&filter), 1);
}

#[test]
fn a_filter_sees_the_changes_of_rules_and_of_the_filter_before() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (Fake::start(&dir.path().join("first")), Fake::start(&dir.path().join("second")));
    let hop = Sink::start();
    let more = format!(
        "[[rule]]\nfor = \"all\"\nfrom = [\"own.test\"]\nadd_header = [\"X-Class: own\"]\n{}{}{}",
        hop.route(),
        section("first", &first, ""),
        section("second", &second, "")
    );
    let daemon = Postrider::start(&more);
    edits(
        &first,
        &[
            packet(b'i', b"\0\0\0\0X-First\0top\0"),
            packet(b'm', b"\0\0\0\x01subject\0changed\0"),
            packet(b'h', b"X-Last\0end\0"),
            packet(b'b', b"another body\r\n"),
            packet(b'+', b"<new@far.test>\0"),
            packet(b'-', b"<a@far.test>\0"),
            packet(b'e', b"<other@own.test>\0"),
        ],
    );
    edits(&second, &[packet(b'm', b"\0\0\0\x01X-Last\0\0"), packet(b'-', b"<new@far.test>\0")]);
    let mut client = Client::connect(daemon.address).unwrap();
    client.send("joe@own.test", &["a@far.test", "b@far.test"], CONTENT).unwrap();
    until("it has arrived", || hop.count() == 1);
    let before = header(&first.packets());
    assert!(before.contains("X-Class: own\n") || before.contains("X-Class:own\n"), "{before}");
    assert!(!before.contains("X-First"), "{before}");
    let packets = second.packets();
    let told = header(&packets);
    for field in ["X-First:top\n", "subject:changed\n", "X-Last:end\n"] {
        assert!(told.contains(field), "{field}: {told}");
    }
    assert!(!told.contains("Subject:s"), "{told}");
    assert_eq!(body(&packets), b"another body\r\n");
    let message = hop.take().remove(0);
    assert_eq!((&*message.from, message.to), ("other@own.test", vec!["b@far.test".to_owned()]));
    let text = String::from_utf8(message.content).unwrap();
    assert!(text.starts_with("X-First: top\r\nReceived: "), "{text}");
    assert!(!text.contains("X-Last"), "{text}");
    assert!(text.ends_with("\r\n\r\nanother body\r\n"), "{text}");
}

#[test]
fn mail_is_signed_behind_the_changes_of_filters() {
    let Some(mut python) = python_with("dkim") else { return };
    let dir = tempfile::tempdir().unwrap();
    let filter = Fake::start(&dir.path().join("filter"));
    let records = [new_key(dir.path(), "own.test", "r1", "rsa")];
    let key = |dir: &Path| dir.join("r1.pem").display().to_string();
    let hop = Sink::start();
    let daemon = Postrider::start(&format!(
        "[[sign]]\ndomains = [\"own.test\"]\nselector = \"r1\"\nkey = \"{}\"\n{}{}",
        key(dir.path()),
        hop.route(),
        section("all", &filter, "")
    ));
    let lines = |count: usize| (0..count).map(|at| format!("line {at} of a body \r\n")).collect::<String>();
    let large = [b"From: joe@own.test\r\nSubject: s\r\n\r\n", lines(20_000).as_bytes()].concat();
    let field = packet(b'm', b"\0\0\0\x01Subject\0changed\0");
    let top = packet(b'i', b"\0\0\0\0Subject\0another\0");
    let small_body = packet(b'b', b"another body  \r\n\r\n");
    let large_body: Vec<Vec<u8>> =
        lines(30_000).as_bytes().chunks(65_000).map(|piece| packet(b'b', piece)).collect();
    let mut left = Vec::new();
    for content in [CONTENT, &large] {
        for edited in [
            vec![],
            vec![field.clone()],
            vec![top.clone()],
            vec![small_body.clone()],
            [vec![field.clone()], large_body.clone()].concat(),
        ] {
            edits(&filter, &edited);
            let mut client = Client::connect(daemon.address).unwrap();
            let reply = client.send("joe@own.test", &["x@far.test"], content).unwrap();
            assert_eq!(reply.0, 250, "{}", reply.1);
            until("it has arrived", || hop.count() == 1);
            left.push(hop.take().remove(0).content);
        }
    }
    let large_bodies = left.iter().filter(|content| content.len() > 512 * 1024).count();
    assert_eq!(large_bodies, 2, "those that the filter made");
    let said = verify(&mut python, dir.path(), &records, &left);
    assert_eq!(said, (0..10).map(|number| format!("{number} pass")).collect::<Vec<_>>());
}

#[test]
fn a_refusal_at_the_end_of_the_content_is_told_with_its_sender_and_recipients() {
    let dir = tempfile::tempdir().unwrap();
    let filter = Fake::start(&dir.path().join("filter"));
    filter.act(|seen| match seen.kind {
        b'E' => Act::Write(packet(b'r', b"")),
        _ => Act::Usual,
    });
    let daemon = Postrider::start(&section("strict", &filter, ""));
    let mut client = crate::common::client::Client::connect(daemon.address).unwrap();
    let said = client.send("ann@a.test", &["joe@mx.test"], b"Subject: s\r\n\r\nbody\r\n").unwrap();
    assert_eq!(said.0, 550, "{}", said.1);
    for asked in [["--sender", "ann@a.test"], ["--recipient", "joe@mx.test"]] {
        until("the history has it", || {
            let found = daemon.try_ask(&[&["history", "query"], &asked[..]].concat());
            found.is_ok_and(|found| found.contains("550 5.7.1 Command rejected"))
        });
    }
}
