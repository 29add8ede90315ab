//! Messages whose first lines are no header, handed to Postfix and to Postrider: the same lines are header and the same are body at
//! the next hop, and the same octets are in a file in the mbox format.

use crate::common::{BINARY, Postrider, client::Client, postfix::Postfix, sink::Sink, until};
use mail::header::{ContentScanner, HeaderLine, field_name, header_line};
use std::{
    collections::BTreeMap,
    fs,
    io::Write as _,
    net::SocketAddr,
    os::unix::fs::PermissionsExt as _,
    process::{Command, Stdio},
};

/// First lines, and lines between fields.
const LINES: [&str; 26] = [
    "A: b",
    "A:b",
    "A:",
    "A : b",
    "A\t: b",
    ": b",
    " : b",
    ":",
    " b",
    "\tb",
    " A: b",
    " ",
    "\t",
    "",
    "From joe Mon Nov 23 10:00:00 2026",
    ">From joe Mon Nov 23 10:00:00 2026",
    ">>From joe",
    "From: x@y.test",
    "From",
    "no colon",
    "two words: b",
    "\u{c4}: b",
    "A\u{1}: b",
    "A\u{7f}: b",
    "-!~: b",
    "A \u{b}: b",
];

/// Each line alone, between fields, before a body, and behind each other line.
fn contents() -> Vec<String> {
    let mut all = Vec::new();
    for line in LINES {
        all.push(format!("{line}\r\nSubject: s\r\n\r\nbody\r\n"));
        all.push(format!("{line}\r\nbody\r\n"));
        all.push(format!("Subject: s\r\n{line}\r\nX: y\r\n\r\nbody\r\n"));
        all.push(format!("Subject: s\r\n{line}\r\nbody\r\n\r\nX: y\r\n"));
        for first in &LINES[3..] {
            all.push(format!("{first}\r\n{line}\r\nSubject: s\r\n\r\nbody\r\n"));
        }
    }
    all
}

/// Returns the fields that were given, and the body. Postfix takes out blanks before a colon.
fn split(content: &[u8]) -> (Vec<String>, String) {
    let mut scanner = ContentScanner::default();
    scanner.scan(content);
    let (header, body) = content.split_at(scanner.final_header_bytes());
    let mut fields: Vec<String> = Vec::new();
    for line in header.split_inclusive(|byte| *byte == b'\n').filter(|line| *line != b"\r\n") {
        let text = String::from_utf8_lossy(line).into_owned();
        match (header_line(line), field_name(line)) {
            (HeaderLine::Folded, _) => fields.last_mut().unwrap().push_str(&text),
            (_, Some(name)) => {
                let value = text.split_once(':').unwrap().1;
                fields.push(format!("{}:{value}", String::from_utf8_lossy(name)));
            }
            _ => fields.push(text),
        }
    }
    let is_added = |field: &String| {
        let name = field.split(':').next().unwrap().to_lowercase();
        ["received", "message-id", "date"].contains(&&*name) || name == "from" && !field.contains("x@y.test")
    };
    fields.retain(|field| !is_added(field));
    (fields, String::from_utf8_lossy(body).into_owned())
}

fn send(address: SocketAddr, domain: &str, contents: &[String]) {
    let mut client = Client::connect(address).unwrap();
    for (number, content) in contents.iter().enumerate() {
        let to = format!("m{number}@{domain}");
        let (code, text) = client.send("a@mx.test", &[&to], content.as_bytes()).unwrap();
        assert_eq!(code, 250, "{content:?}: {text}");
    }
}

fn arrived(sink: &Sink) -> BTreeMap<String, (Vec<String>, String)> {
    sink.messages().into_iter().map(|message| (message.to[0].clone(), split(&message.content))).collect()
}

const MAIN: &str = "myhostname = mx.test\nmynetworks = 127.0.0.0/8\nlocal_header_rewrite_clients =\nsmtputf8_enable = no\n\
    smtp_dns_support_level = disabled\n";

#[test]
fn header_and_body_are_told_apart_as_postfix_does_whatever_the_first_lines_are() {
    let dir = tempfile::tempdir().unwrap();
    let (hop, own_hop) = (Sink::start(), Sink::start());
    let main = format!("{MAIN}mydestination =\nrelayhost = [127.0.0.1]:{}\n", hop.address.port());
    let Some(postfix) = Postfix::start(dir.path(), &main, "", &[]) else { return };
    let daemon = Postrider::start(&own_hop.route());
    let all = contents();
    send(postfix.address, "smtp.test", &all);
    send(daemon.address, "smtp.test", &all);
    // A process for each message.
    let commands: Vec<_> =
        all.iter().filter(|content| content.contains("\r\nX: y") || content.len() < 40).collect();
    let link = daemon.dir.path().join("sendmail");
    std::os::unix::fs::symlink(BINARY, &link).unwrap();
    for (number, content) in commands.iter().enumerate() {
        let arguments = ["-i", "-f", "a@mx.test", &format!("m{number}@sendmail.test")];
        let text = content.replace("\r\n", "\n");
        postfix.sendmail(&arguments, text.as_bytes());
        let mut command = Command::new(&link);
        command.env("POSTRIDER_CONFIG", daemon.config()).args(arguments).stdin(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success(), "{content:?}");
    }
    let count = all.len() + commands.len();
    until("all have arrived", || hop.count() == count && own_hop.count() == count);
    let (theirs, ours) = (arrived(&hop), arrived(&own_hop));
    for (way, contents) in [("smtp", all.iter().collect()), ("sendmail", commands)] {
        for (number, content) in contents.iter().enumerate() {
            let to = format!("m{number}@{way}.test");
            assert_eq!(ours[&to], theirs[&to], "by {way}: {content:?}");
        }
    }
}

/// Returns a file without the line in front, and the fields that each program adds.
fn as_given(file: &str) -> &str {
    let (_, rest) = file.split_once("\nReceived:").unwrap();
    let end = rest.match_indices('\n').find(|(at, _)| !rest[at + 1..].starts_with([' ', '\t'])).unwrap().0;
    &rest[end + 1..]
}

#[test]
fn a_mailbox_file_has_the_octets_that_postfix_writes_but_for_quoted_lines_that_stay_quoted() {
    let dir = tempfile::tempdir().unwrap();
    let firsts =
        ["", "A: b\r\n c\r\n", "From joe x\r\n", ">From joe x\r\n", "From a\r\nFrom b\r\n", " folded\r\n"];
    let rests = [
        "Subject: s\r\n\r\nbody\r\n",
        "\r\nbody\r\n",
        "no header\r\n",
        "\r\n",
        "\r\n\r\n",
        "",
        "\r\nFrom a\r\n",
        "Subject: s\r\n\r\nx\r\n\r\nFrom a\r\n\r\n>From quoted\r\nFrom c\r\n>>From quoted\r\nFrom\r\n From x\r\nfrom y\r\n",
    ];
    let ends = ["", "\r\n", "\r\n\r\n", "From\r\n", "From \r\n"];
    let mut all = Vec::new();
    for first in firsts {
        for rest in rests {
            all.extend(ends.map(|end| format!("{first}{rest}{end}")));
        }
    }
    let at = dir.path().display();
    let boxes = dir.path().join("boxes");
    fs::create_dir(&boxes).unwrap();
    fs::set_permissions(&boxes, fs::Permissions::from_mode(0o1777)).unwrap();
    let aliases: String = (0..all.len()).map(|number| format!("m{number} {at}/boxes/m{number}\n")).collect();
    fs::write(dir.path().join("aliases"), aliases).unwrap();
    let main = format!("{MAIN}mydestination = mx.test\nalias_maps = texthash:{at}/aliases\n");
    let Some(postfix) = Postfix::start(dir.path(), &main, "", &[]) else { return };
    let daemon = Postrider::start("[[route]]\ndomains = [\"mx.test\"]\nmbox = \"data/boxes/{local}\"\n");
    send(postfix.address, "mx.test", &all);
    send(daemon.address, "mx.test", &all);
    until("all are delivered", || daemon.counter("delivered") == all.len() as u64);
    postfix.wait_until_idle();
    for (number, content) in all.iter().enumerate() {
        let name = format!("m{number}");
        let theirs = fs::read_to_string(boxes.join(&name)).unwrap();
        let ours = fs::read_to_string(daemon.dir.path().join("data/boxes").join(&name)).unwrap();
        // Postfix writes `>From ` for both `From ` and `>From `, and nobody knows what it was (mboxo).
        let expected = as_given(&theirs).replace(">From quoted", ">>From quoted");
        assert_eq!(as_given(&ours), expected, "{content:?}");
    }
}
