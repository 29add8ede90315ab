//! Recipients that the next hop is asked for (`verify = true`), through the daemon.

use crate::common::{Postrider, client::Client, free_address, sink::Sink, until};
use std::{
    fs,
    net::{SocketAddr, TcpListener},
    process::Child,
    thread,
    time::{Duration, Instant},
};

/// The reply to RCPT in a transaction of its own.
fn rcpt(address: SocketAddr, recipient: &str) -> String {
    let mut client = Client::connect(address).unwrap();
    client.say("MAIL FROM:<sender@far.test>").unwrap();
    client.say(&format!("RCPT TO:<{recipient}>")).unwrap().1
}

/// A next hop that has the user `joe`, answers slowly for `slow`, and is too busy for `busy`.
fn next_hop() -> Sink {
    Sink::with(|command| match command {
        command if command.starts_with("MAIL") && command != "MAIL FROM:<>" => {
            Some("550 5.7.1 not you".into())
        }
        "RCPT TO:<joe@b.test>" => None,
        "RCPT TO:<full@b.test>" => Some("552 5.2.2 mailbox full".into()),
        "RCPT TO:<busy@b.test>" => Some("450 4.2.1 busy".into()),
        "RCPT TO:<slow@b.test>" => {
            thread::sleep(Duration::from_millis(500));
            None
        }
        command if command.starts_with("RCPT") => Some("550 5.1.1 who is that".into()),
        _ => None,
    })
}

fn route(target: &str) -> String {
    format!(
        "[local]\ndomains = [\"mx.test\", \"b.test\"]\n[relay]\nnetworks = []\n\
         [[route]]\ndomains = [\"b.test\"]\n{target}\nverify = true\n"
    )
}

#[test]
fn unknown_users_are_refused_at_rcpt_and_no_content_is_sent() {
    let next = next_hop();
    let daemon = Postrider::start(&route(&format!("smarthost = \"{}\"\ntls = \"off\"", next.address)));
    for (recipient, expected) in [
        ("joe@b.test", "250"),
        ("nobody@b.test", "550 5.1.1 <nobody@b.test>: Recipient address rejected: User unknown"),
        ("full@b.test", "550 5.2.2"),
        ("busy@b.test", "451 4.4.1"),
        // The next hop has no postmaster; the one of this server has the mail.
        ("postmaster@b.test", "250"),
        ("x@elsewhere.test", "550 5.7.1"),
    ] {
        let reply = rcpt(daemon.address, recipient);
        assert!(reply.starts_with(expected), "{recipient}: {reply}");
    }
    let asked = next.connection_count();
    for _ in 0..5 {
        assert!(rcpt(daemon.address, "joe@b.test").starts_with("250"));
        assert!(rcpt(daemon.address, "nobody@b.test").starts_with("550 5.1.1"));
    }
    assert_eq!(next.connection_count(), asked, "the answers are kept");
    assert_eq!((next.count(), daemon.counter("bounced")), (0, 0));
    // Who has no answer is asked for again.
    assert!(rcpt(daemon.address, "busy@b.test").starts_with("451 4.4.1"));
    assert_eq!(next.connection_count(), asked + 1);
}

#[test]
fn the_address_of_the_postmaster_is_taken_without_a_question_and_its_mail_waits() {
    let unknown = |command: &str| command.starts_with("RCPT").then(|| "550 5.1.1 who is that".into());
    let next = Sink::with(unknown);
    let target = route(&format!("smarthost = \"{}\"\ntls = \"off\"", next.address));
    let daemon = Postrider::start(&target.replace("domains = [\"b.test\"]", "domains = [\"mx.test\"]"));
    for recipient in ["postmaster", "Postmaster@mx.test"] {
        let reply = rcpt(daemon.address, recipient);
        assert!(reply.starts_with("250"), "{recipient}: {reply}");
    }
    assert_eq!(next.connection_count(), 0);
    let mut client = Client::connect(daemon.address).unwrap();
    client.send("", &["postmaster@mx.test"], b"Subject: x\r\n\r\nx\r\n").unwrap();
    until("the next hop refuses the postmaster", || daemon.ask(&["queue", "list"]).contains("who is that"));
    assert_eq!((daemon.counter("bounced"), daemon.counter("queued")), (0, 1));
}

#[test]
fn sessions_that_ask_at_once_share_one_question() {
    let next = next_hop();
    let daemon = Postrider::start(&route(&format!("smarthost = \"{}\"\ntls = \"off\"", next.address)));
    let address = daemon.address;
    let begun = Instant::now();
    let clients: Vec<_> = (0..8).map(|_| thread::spawn(move || rcpt(address, "slow@b.test"))).collect();
    for client in clients {
        assert!(client.join().unwrap().starts_with("250"));
    }
    assert_eq!(next.connection_count(), 1);
    assert!(begun.elapsed() >= Duration::from_millis(500));
}

#[test]
fn a_next_hop_that_does_not_answer_is_a_temporary_error() {
    let dead = free_address();
    let daemon = Postrider::start(&route(&format!("smarthost = \"{dead}\"\ntls = \"off\"")));
    let reply = rcpt(daemon.address, "joe@b.test");
    assert!(reply.starts_with("451 4.4.1 <joe@b.test>: cannot be verified now"), "{reply}");
    assert!(rcpt(daemon.address, "x@mx.test").starts_with("250"), "others are not concerned");
    // A server that accepts and says nothing.
    let silent = TcpListener::bind(dead).unwrap();
    let begun = Instant::now();
    let reply = rcpt(daemon.address, "joe@b.test");
    assert!(reply.starts_with("451 4.4.1"), "{reply}");
    assert!(begun.elapsed() < Duration::from_secs(150));
    drop(silent);
    let _next = Sink::at(dead, |_| None);
    until("the next hop is back", || rcpt(daemon.address, "joe@b.test").starts_with("250"));
}

#[test]
fn an_alias_of_one_user_is_asked_for_and_a_list_is_not() {
    let next = next_hop();
    let dir = tempfile::tempdir().unwrap();
    let map = "one@b.test nobody@b.test\nlist@b.test joe@b.test, nobody@b.test\nx@b.test joe@b.test\n";
    fs::write(dir.path().join("virtual"), map).unwrap();
    let more = route(&format!("smarthost = \"{}\"\ntls = \"off\"", next.address))
        + "[addresses]\nvirtual = [\"text:virtual\"]\n";
    let daemon = Postrider::start_in(dir, free_address(), &more);
    for (recipient, expected) in [
        ("one@b.test", "550 5.1.1"),
        ("list@b.test", "250"),
        ("x@b.test", "250"),
        ("eve@b.test", "550 5.1.1"),
    ] {
        let reply = rcpt(daemon.address, recipient);
        assert!(reply.starts_with(expected), "{recipient}: {reply}");
    }
}

#[test]
fn an_lmtp_listener_of_this_server_is_asked() {
    let address = free_address();
    let _back = Postrider::start(&format!(
        "[[listen]]\naddress = \"{address}\"\nkind = \"lmtp\"\n\
         [local]\ndomains = [\"mx.test\", \"b.test\"]\nusers = [\"joe\"]\n"
    ));
    let front = Postrider::start(&route(&format!("lmtp = \"{address}\"")));
    assert!(rcpt(front.address, "joe@b.test").starts_with("250"));
    assert!(rcpt(front.address, "joe+list@b.test").starts_with("250"));
    let reply = rcpt(front.address, "nobody@b.test");
    assert!(reply.starts_with("550 5.1.1"), "{reply}");
    let mut client = Client::connect(front.address).unwrap();
    assert_eq!(client.send("a@far.test", &["joe@b.test"], b"Subject: s\r\n\r\nx\r\n").unwrap().0, 250);
    until("the mail is delivered", || front.counter("delivered") == 1);
}

struct Background(Child);

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn dovecot_says_which_users_exist() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: Dovecot starts as root only");
        return;
    }
    let Some(mut dovecot) = crate::common::program_in_place("dovecot") else { return };
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().display();
    fs::create_dir(dir.path().join("mail")).unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    fs::set_permissions(dir.path().join("mail"), open).unwrap();
    fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    fs::write(dir.path().join("users"), "joe@b.test:{PLAIN}x::::::\n").unwrap();
    let config = format!(
        "base_dir = {at}/run\nstate_dir = {at}/run\nlog_path = {at}/log\nprotocols = lmtp\nssl = no\n\
         default_internal_user = nobody\ndefault_internal_group = nogroup\ndefault_login_user = nobody\n\
         first_valid_uid = 1\nmail_location = maildir:{at}/mail/%u\n\
         passdb {{\n  driver = passwd-file\n  args = {at}/users\n}}\n\
         userdb {{\n  driver = passwd-file\n  args = {at}/users\n  \
         override_fields = uid=nobody gid=nogroup home={at}/mail/%u\n}}\n\
         service lmtp {{\n  unix_listener {at}/lmtp {{\n    mode = 0666\n  }}\n}}\n"
    );
    fs::write(dir.path().join("dovecot.conf"), config).unwrap();
    let child = dovecot.arg("-F").arg("-c").arg(dir.path().join("dovecot.conf")).spawn().unwrap();
    let _dovecot = Background(child);
    let socket = dir.path().join("lmtp");
    until("Dovecot listens", || std::os::unix::net::UnixStream::connect(&socket).is_ok());
    let daemon = Postrider::start(&route(&format!("lmtp = \"unix:{at}/lmtp\"")));
    assert!(
        rcpt(daemon.address, "joe@b.test").starts_with("250"),
        "{:?}",
        fs::read_to_string(dir.path().join("log"))
    );
    let reply = rcpt(daemon.address, "nobody@b.test");
    assert!(reply.starts_with("550 5.1.1"), "{reply}");
    let mut client = Client::connect(daemon.address).unwrap();
    assert_eq!(client.send("a@far.test", &["joe@b.test"], b"Subject: s\r\n\r\nx\r\n").unwrap().0, 250);
    until("the mail is delivered", || daemon.counter("delivered") == 1);
}
