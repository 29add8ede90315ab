//! Listeners behind load balancers, with a delay of the greeting, and with limits of their own.

use crate::common::{Postrider, free_address, until};
use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

const LOG: &str = "[log]\nfile = \"mail.log\"\n";

/// A daemon with a second listener, and the address of that listener.
fn listener(keys: &str, more: &str) -> (Postrider, SocketAddr) {
    let address = free_address();
    let listen = format!("[[listen]]\naddress = \"{address}\"\n{keys}\n");
    (Postrider::start(&format!("{listen}{LOG}{more}")), address)
}

/// Sends bytes, and then lines one by one; the first line of each reply.
fn talk(address: SocketAddr, first: &[u8], lines: &[&str]) -> Vec<String> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(crate::common::WAIT_TIMEOUT)).unwrap();
    stream.write_all(first).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut replies = Vec::new();
    let mut reply = || {
        let mut first = None;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return first;
            }
            let is_last = line.as_bytes().get(3) != Some(&b'-');
            first.get_or_insert(line.trim_end().to_owned());
            if is_last {
                return first;
            }
        }
    };
    replies.extend(reply());
    for line in lines {
        if stream.write_all(format!("{line}\r\n").as_bytes()).is_err() {
            break;
        }
        let Some(said) = reply() else { break };
        replies.push(said);
    }
    replies
}

/// A header of version 2 for a client with an IPv4 address.
fn v2(client: [u8; 4]) -> Vec<u8> {
    let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x0c".to_vec();
    header.extend(client);
    header.extend([127, 0, 0, 1, 4, 210, 0, 25]);
    header
}

#[test]
fn a_load_balancer_names_the_client_who_is_judged_and_logged() {
    let more = "[relay]\nnetworks = [\"192.0.2.0/24\"]\n[local]\ndomains = [\"mx.test\"]\n";
    let (daemon, address) = listener("proxy = [\"127.0.0.0/8\"]", more);
    let relay = ["EHLO c.test", "MAIL FROM:<a@b.test>", "RCPT TO:<x@elsewhere.test>"];
    for (header, expected) in [
        (b"PROXY TCP4 192.0.2.9 127.0.0.1 1234 25\r\n".to_vec(), "250"),
        (b"PROXY TCP4 198.51.100.9 127.0.0.1 1234 25\r\n".to_vec(), "550 5.7.1"),
        (v2([192, 0, 2, 8]), "250"),
        (v2([198, 51, 100, 8]), "550 5.7.1"),
        // The load balancer itself is not in relay.networks.
        (b"PROXY UNKNOWN\r\n".to_vec(), "550 5.7.1"),
    ] {
        let replies = talk(address, &header, &relay);
        assert_eq!(replies.len(), 4, "{replies:?}");
        assert!(replies[3].starts_with(expected), "{header:?}: {replies:?}");
    }
    let is_logged = |line: &serde_json::Value| line["client"] == "198.51.100.9:1234";
    until("the client is in the log", || daemon.log().iter().any(is_logged));
    let replies = talk(
        address,
        b"PROXY TCP4 192.0.2.9 127.0.0.1 1234 25\r\n",
        &["EHLO c.test", "MAIL FROM:<a@b.test>", "RCPT TO:<jane@mx.test>", "DATA", "x\r\n."],
    );
    assert!(replies.last().unwrap().starts_with("250"), "{replies:?}");
    until("the mail is in the Maildir", || !daemon.mailbox("jane").is_empty());
    let text = std::fs::read_to_string(&daemon.mailbox("jane")[0]).unwrap();
    assert!(text.contains("from c.test ([192.0.2.9])"), "{text}");
}

#[test]
fn a_connection_of_a_load_balancer_without_a_header_is_closed() {
    let (_daemon, address) = listener("proxy = [\"127.0.0.1\"]", "");
    for first in [
        &b"EHLO c.test\r\nMAIL FROM:<a@b.test>\r\n"[..],
        b"PROXY TCP4 192.0.2.9 127.0.0.1 1234 25 and more and more and more and more and more and more and more and more and more\r\n",
        b"PROXY TCP4 192.0.2.9 127.0.0.1 1234 25\n\nEHLO",
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff",
        b"\r\n\r\n\0\r\nQUIT\n\x31\x11\x00\x0c............",
    ] {
        assert_eq!(talk(address, first, &[]), Vec::<String>::new(), "{first:?}");
    }
}

#[test]
fn a_header_of_somebody_else_is_no_command() {
    let listener = |delay: &str| {
        let keys = format!("proxy = [\"192.0.2.250\"]\ngreeting_delay = \"{delay}\"");
        listener(&keys, "[relay]\nnetworks = [\"192.0.2.0/24\"]\n")
    };
    // It comes before the greeting, which is refused anyway.
    let (_daemon, address) = listener("20s");
    let replies = talk(address, b"PROXY TCP4 192.0.2.9 127.0.0.1 1234 25\r\n", &[]);
    assert!(replies[0].starts_with("554 5.5.0"), "{replies:?}");
    let (_daemon, address) = listener("500ms");
    let replies = talk(address, b"", &["PROXY TCP4 192.0.2.9 127.0.0.1 1234 25", "EHLO c.test"]);
    assert!(replies[1].starts_with("500 5.5.2"), "{replies:?}");
}

#[test]
fn strangers_wait_for_the_greeting_and_who_does_not_is_refused() {
    let strangers = "[relay]\nnetworks = [\"192.0.2.0/24\"]\n";
    let (_daemon, address) = listener("greeting_delay = \"700ms\"", strangers);
    let begun = Instant::now();
    let replies = talk(address, b"", &["QUIT"]);
    assert!(replies[0].starts_with("220") && begun.elapsed() >= Duration::from_millis(700), "{replies:?}");
    let keys = "greeting_delay = \"20s\"";
    let (_daemon, address) = listener(keys, strangers);
    let replies = talk(address, b"EHLO c.test\r\n", &[]);
    assert_eq!(replies, ["554 5.5.0 SMTP protocol synchronization error"]);
    let (_daemon, address) = listener(keys, "");
    let begun = Instant::now();
    assert!(talk(address, b"", &["QUIT"])[0].starts_with("220"));
    assert!(begun.elapsed() < Duration::from_secs(20), "a client of the network does not wait");
}

#[test]
fn a_listener_has_a_limit_of_its_own() {
    let (daemon, address) = listener("max_sessions = 2", "");
    let greeting = |address| {
        let mut stream = TcpStream::connect(address).unwrap();
        let mut code = [0; 3];
        stream.read_exact(&mut code).unwrap();
        (String::from_utf8(code.to_vec()).unwrap(), stream)
    };
    let (first, second) = (greeting(address), greeting(address));
    assert_eq!((&*first.0, &*second.0), ("220", "220"));
    assert_eq!(greeting(address).0, "421");
    assert_eq!(greeting(daemon.address).0, "220", "the other listener has its own");
    drop(second);
    until("there is room again", || greeting(address).0 == "220");
}

#[test]
fn lmtp_takes_local_mail_and_replies_for_each_recipient() {
    let (daemon, address) =
        listener("kind = \"lmtp\"", "[local]\ndomains = [\"mx.test\"]\nusers = [\"jane\", \"joe\"]\n");
    let mut stream = TcpStream::connect(address).unwrap();
    let lines = "LHLO c.test\r\nMAIL FROM:<a@b.test>\r\nRCPT TO:<jane@mx.test>\r\nRCPT TO:<nobody@mx.test>\r\n\
                 RCPT TO:<x@elsewhere.test>\r\nRCPT TO:<joe@mx.test>\r\nDATA\r\n";
    let mut said = String::new();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    reader.read_line(&mut said).unwrap();
    assert!(said.starts_with("220 mx.test LMTP "), "{said}");
    stream.write_all(lines.as_bytes()).unwrap();
    while !said.contains("354") {
        reader.read_line(&mut said).unwrap();
    }
    let codes = said.matches("\n550 5.1.1").count() + 10 * said.matches("\n550 5.7.1").count();
    assert_eq!(codes, 11, "{said}");
    stream.write_all(b"Subject: s\r\n\r\nx\r\n.\r\nQUIT\r\n").unwrap();
    let mut rest = String::new();
    reader.read_to_string(&mut rest).unwrap();
    assert_eq!(rest.matches("250 2.0.0 Ok: queued as ").count(), 2, "{rest}");
    assert!(rest.contains("\r\n221 "), "{rest}");
    for user in ["jane", "joe"] {
        until("the mail is in the Maildir", || daemon.mailbox(user).len() == 1);
    }
    let text = std::fs::read_to_string(&daemon.mailbox("jane")[0]).unwrap();
    assert!(text.contains("with LMTP id "), "{text}");
}

#[test]
fn a_relay_hands_mail_over_by_lmtp() {
    let (daemon, address) = listener("kind = \"lmtp\"", "[local]\ndomains = [\"mx.test\"]\n");
    let route = format!("[[route]]\ndomains = [\"mx.test\"]\nlmtp = \"{address}\"\n");
    let front = Postrider::start(&format!("{route}{LOG}"));
    let mut client = crate::common::client::Client::connect(front.address).unwrap();
    client.send("a@b.test", &["jane@mx.test", "joe@mx.test"], b"Subject: s\r\n\r\nx\r\n").unwrap();
    for user in ["jane", "joe"] {
        until("the mail is in the Maildir", || daemon.mailbox(user).len() == 1);
    }
    until("the front's queue is empty", || front.counter("delivered") == 2);
}

#[test]
fn a_file_of_networks_says_who_may_relay() {
    let (dir, address) = (tempfile::tempdir().unwrap(), free_address());
    let file = dir.path().join("customers");
    std::fs::write(&file, "127.0.0.0/8 customer\n").unwrap();
    let more = format!(
        "[[listen]]\naddress = \"{address}\"\nkind = \"relay\"\n{LOG}[relay]\nnetworks = [\"192.0.2.0/24\", \"cidr:customers\"]\n"
    );
    let daemon = Postrider::start_in(dir, free_address(), &more);
    let lines = ["EHLO c.test", "MAIL FROM:<a@far.test>", "RCPT TO:<b@far.test>"];
    assert!(talk(address, b"", &lines)[3].starts_with("250"));
    // A file that cannot be used changes nothing; one that can does.
    std::fs::write(&file, "127.0.0.0/8 customer\n198.51.100.0/2").unwrap();
    let written = std::time::Instant::now();
    while written.elapsed() < std::time::Duration::from_secs(3) {
        assert!(talk(address, b"", &lines)[3].starts_with("250"));
    }
    std::fs::write(&file, "198.51.100.0/24 customer\n").unwrap();
    until("the network is gone", || talk(address, b"", &[])[0].starts_with("554 5.7.1"));
    // Nobody is refused because a new configuration has no such file.
    std::fs::remove_file(&file).unwrap();
    daemon.reconfigure(&more.replace("cidr:customers", "cidr:none"));
    assert!(daemon.try_ask(&["reload"]).unwrap_err().contains("none"));
}

#[test]
fn a_drained_listener_refuses_new_sessions_while_deliveries_go_on() {
    let (daemon, second) = listener("", "");
    let mut before = crate::common::client::Client::connect(daemon.address).unwrap();
    let said = daemon.ask(&["drain", "--listener", &second.to_string()]);
    assert_eq!(said, format!("{second}: new sessions get 421\n"));
    assert_eq!(talk(second, b"", &[]), ["421 4.3.2 Closed for maintenance, try again later"]);
    assert!(talk(daemon.address, b"", &[])[0].starts_with("220 "));
    let status = daemon.ask(&["status"]);
    assert!(status.contains(&format!("DRAINED: new sessions get 421 at {second};")), "{status}");

    daemon.ask(&["drain"]);
    assert!(talk(daemon.address, b"", &[])[0].starts_with("421 "));
    // A program that speaks SMTP is refused like any other client, and whoever runs it is told what does not need a session.
    let dialog = "EHLO x\nMAIL FROM:<a@b.test>\nRCPT TO:<jane@mx.test>\nDATA\nSubject: s\n\nx\n.\nQUIT\n";
    let output = daemon.run(&["sendmail", "-bs"], dialog);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(75));
    assert!(
        output.stdout.starts_with(b"421 4.3.2 ") && said.contains("`sendmail` without -bs takes mail"),
        "{said}"
    );
    let output = daemon.run(&["sendmail", "-f", "a@b.test", "jane@mx.test"], "Subject: s\n\nx\n");
    assert_eq!(output.status.code(), Some(0));
    until("mail of a program is taken", || daemon.mailbox("jane").len() == 1);
    let doctor = daemon.run(&["doctor", "--offline"], "");
    let doctor = String::from_utf8(doctor.stdout).unwrap();
    assert!(doctor.contains(&format!("new sessions get 421 at {}, {second}", daemon.address)), "{doctor}");
    // The session that had begun goes on, and its mail is delivered.
    before.send("a@far.test", &["x@mx.test"], b"Subject: x\r\n\r\nx\r\n").unwrap();
    until("it is delivered", || daemon.mailbox("x").len() == 1);

    let refused = daemon.try_ask(&["resume", "--listener", "submission"]).unwrap_err();
    assert!(refused.contains("the listeners are: "), "{refused}");
    let both = [second, daemon.address].map(|address| address.to_string());
    daemon.ask(&["resume", "--listener", &both[0], "--listener", &both[1]]);
    assert!(talk(second, b"", &[])[0].starts_with("220 "));
    let is_event = |line: &serde_json::Value| line["event"] == "listeners" && line["action"] == "resume";
    until("an event tells of it", || daemon.log().iter().any(is_event));
    assert!(!daemon.ask(&["status"]).contains("DRAINED"));
}

#[test]
fn sessions_that_are_nearly_used_up_are_named_before_the_last_one_is_taken() {
    let daemon = Postrider::start("[inbound]\nmax_sessions = 5\n");
    let open = |_| crate::common::client::Client::connect(daemon.address).unwrap();
    let three: Vec<_> = (0..3).map(open).collect();
    assert!(!daemon.ask(&["status"]).contains("USED UP"));
    let four = open(3);
    let status = daemon.ask(&["status"]);
    assert!(status.contains("NEARLY USED UP: sessions, 4 of 5 (inbound.max_sessions)"), "{status}");
    let doctor = daemon.run(&["doctor", "--offline"], "");
    let doctor = String::from_utf8(doctor.stdout).unwrap();
    assert!(doctor.contains("nearly used up: sessions, 4 of 5"), "{doctor}");
    let seen = daemon.ask(&["status", "--prometheus"]);
    assert!(seen.contains("postrider_resource_used{resource=\"sessions\"} 4"), "{seen}");
    assert!(seen.contains("postrider_resource_max{resource=\"sessions\"} 5"), "{seen}");
    for name in ["open files", "queued messages", "content memory", "DNS questions about clients"] {
        assert!(seen.contains(&format!("postrider_resource_max{{resource=\"{name}\"}}")), "{name}: {seen}");
    }
    let five = open(4);
    assert!(daemon.ask(&["status"]).contains("USED UP: sessions, 5 of 5"));
    drop((three, four, five));
    until("there is room again", || !daemon.ask(&["status"]).contains("USED UP"));
}

#[test]
fn strangers_leave_a_part_of_the_sessions_to_the_networks_that_may_relay() {
    let daemon = Postrider::start("[inbound]\nmax_sessions = 5\n[relay]\nnetworks = [\"127.0.0.2\"]\n");
    let greeting = |client: &str| {
        let stream = crate::common::session::connect_from(client, daemon.address);
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line).unwrap();
        (stream, line)
    };
    let strangers: Vec<_> = (0..4).map(|_| greeting("127.0.0.1")).collect();
    assert!(strangers.iter().all(|(_, line)| line.starts_with("220 ")));
    assert!(greeting("127.0.0.1").1.starts_with("421 4.3.2 "), "a fifth is kept");
    assert!(greeting("127.0.0.2").1.starts_with("220 "));
}

#[test]
fn strangers_who_could_log_in_leave_a_part_to_the_networks_that_may_relay_too() {
    let (dir, submission) = (tempfile::tempdir().unwrap(), free_address());
    std::fs::write(dir.path().join("users"), "jane:{PLAIN}secret\n").unwrap();
    let more = format!(
        "[inbound]\nmax_sessions = 10\n[relay]\nnetworks = [\"127.0.0.2\"]\n[[listen]]\naddress = \"{submission}\"\n\
         kind = \"submission\"\n[auth]\nusers = \"passwd:users\"\nallow_clear_text = true\n"
    );
    let daemon = Postrider::start_in(dir, free_address(), &more);
    let greeting = |client: &str, address| {
        let stream = crate::common::session::connect_from(client, address);
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line).unwrap();
        (stream, line)
    };
    let strangers: Vec<_> = (0..9).map(|_| greeting("127.0.0.1", submission)).collect();
    assert!(strangers.iter().all(|(_, line)| line.starts_with("220 ")));
    assert!(greeting("127.0.0.1", submission).1.starts_with("421 4.3.2 "), "a tenth is kept");
    assert!(greeting("127.0.0.2", daemon.address).1.starts_with("220 "));
}
