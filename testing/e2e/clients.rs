//! The clients and the mail that the daemon takes, and the refusals before it is responsible for a message.

use crate::common::{
    Postrider,
    client::{Client, hello},
    until,
};
use std::{fs, process::Output};

/// Runs `sendmail -bs` with this on its standard input, written at once.
fn bs(daemon: &Postrider, dialog: &str) -> Output {
    daemon.run(&["sendmail", "-bs"], dialog)
}

fn only_mail(daemon: &Postrider, user: &str) -> String {
    until("the mail is in the Maildir", || !daemon.mailbox(user).is_empty());
    fs::read_to_string(&daemon.mailbox(user)[0]).unwrap()
}

#[test]
fn sendmail_bs_takes_a_dialog_that_a_program_writes_at_once_with_lf_line_ends() {
    let daemon = Postrider::start("");
    let output = bs(
        &daemon,
        "EHLO x\nMAIL FROM:<a@b.test>\nRCPT TO:<jane@mx.test>\nDATA\nSubject: s\n\n..dot\nend\n.\nQUIT\n",
    );
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.starts_with("220 mx.test") && said.ends_with("\r\n221 2.0.0 Bye\r\n"), "{said}");
    assert!(only_mail(&daemon, "jane").ends_with("\nSubject: s\n\n.dot\nend\n"));
}

#[test]
fn sendmail_bs_tells_by_its_exit_code_what_was_refused_and_sends_no_refused_content() {
    let daemon = Postrider::start("[local]\ndomains = [\"mx.test\"]\nusers = [\"jane\"]\n");
    let evil = "MAIL FROM:<evil@b.test>\nRCPT TO:<jane@mx.test>\nDATA\nevil\n";
    let all_refused =
        format!("HELO x\nMAIL FROM:<a@b.test>\nRCPT TO:<nobody@mx.test>\nDATA\nRSET\n{evil}.\nQUIT\n");
    let output = bs(&daemon, &all_refused);
    assert_eq!(output.status.code(), Some(65));
    let some_refused = "HELO x\nMAIL FROM:<a@b.test>\nRCPT TO:<nobody@mx.test>\nRCPT TO:<jane@mx.test>\nDATA\n\
                        \nfor jane\n.\nQUIT\n";
    assert_eq!(bs(&daemon, some_refused).status.code(), Some(65));
    let output = bs(&daemon, "HELO x\nMAIL FROM:<a@b.test>\nRCPT TO:<jane@mx.test>\nDATA\n\nhalf of");
    assert_eq!(output.status.code(), Some(65));
    assert!(String::from_utf8(output.stderr).unwrap().contains("ended inside of a message"));
    assert!(only_mail(&daemon, "jane").ends_with("\n\nfor jane\n"));
    until("nothing is queued", || daemon.counter("queued") == 0);
    assert_eq!(daemon.mailbox("jane").len(), 1);
}

#[test]
fn a_listener_normalizes_bare_line_ends_of_trusted_clients_or_refuses_them() {
    let content = b"Subject: s\n\none\n.\n..two\rthree\r\n";
    let daemon = Postrider::start("[relay]\nnetworks = [\"127.0.0.0/8\"]\n");
    let reply = send_as_it_is(&daemon, content);
    assert_eq!(reply.0, 250, "{}", reply.1);
    assert!(only_mail(&daemon, "jane").ends_with("\nSubject: s\n\none\n.\n.two three\n"));
    let strict = Postrider::start("[relay]\nnetworks = [\"192.0.2.0/24\"]\n");
    let reply = send_as_it_is(&strict, content);
    assert_eq!(reply.0, 521, "{}", reply.1);
}

#[test]
fn an_address_that_cannot_have_a_maildir_is_refused_at_rcpt() {
    let dead = crate::common::free_address();
    let route = format!("[[route]]\ndomains = [\"else.test\"]\nsmarthost = \"{dead}\"\n");
    let daemon = Postrider::start(&route);
    let mut client = Client::connect(daemon.address).unwrap();
    client.say("MAIL FROM:<a@b.test>").unwrap();
    for (recipient, is_taken) in [
        ("\"..\"@mx.test", false),
        ("\"a/b\"@mx.test", false),
        ("a/b@mx.test", false),
        ("\".hidden\"@mx.test", false),
        ("jane+a/b@mx.test", true),
        ("a/b@else.test", true),
        ("jane@mx.test", true),
    ] {
        let (code, text) = client.say(&format!("RCPT TO:<{recipient}>")).unwrap();
        assert_eq!(code == 250, is_taken, "{recipient}: {text}");
        assert!(is_taken || text.starts_with("550 5.1.1"), "{text}");
    }
}

#[test]
fn mail_for_an_address_of_this_machine_is_local() {
    let daemon = Postrider::start(
        "[local]\ndomains = [\"mx.test\"]\nusers = [\"jane\", \"postmaster\"]\n[relay]\nnetworks = []\n",
    );
    let mut client = Client::connect(daemon.address).unwrap();
    client.say("MAIL FROM:<a@b.test>").unwrap();
    for (recipient, code) in [("joe@[127.0.0.1]", "550 5.1.1"), ("jane@[192.0.2.1]", "550 5.7.1")] {
        let (_, text) = client.say(&format!("RCPT TO:<{recipient}>")).unwrap();
        assert!(text.starts_with(code), "{recipient}: {text}");
    }
    client.say("RSET").unwrap();
    let reply =
        client.send("a@b.test", &["jane@[127.0.0.1]", "Postmaster@[127.0.0.1]"], b"\r\nx\r\n").unwrap();
    assert_eq!(reply.0, 250, "{}", reply.1);
    assert!(only_mail(&daemon, "jane").contains("\nDelivered-To: jane@mx.test\n"));
    only_mail(&daemon, "postmaster");
}

#[test]
fn mail_for_a_maildir_behind_a_symbolic_link_waits_until_the_configuration_allows_it() {
    // The sandbox permits the folder that the link leads to.
    let process = "[process]\nextra_paths = [\"elsewhere\"]\n";
    let daemon = Postrider::start(process);
    let (mail, elsewhere) = (daemon.dir.path().join("data/mail"), daemon.dir.path().join("elsewhere"));
    fs::create_dir_all(&mail).unwrap();
    fs::create_dir_all(&elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, mail.join("jane")).unwrap();
    let mut client = Client::connect(daemon.address).unwrap();
    client.send("a@b.test", &["jane@mx.test"], b"\r\nx\r\n").unwrap();
    let id = daemon.ask(&["queue", "list", "--ids"]).trim().to_owned();
    until("the first attempt has ended", || daemon.ask(&["why", &id]).contains("symbolic link"));
    let why = daemon.ask(&["why", &id]);
    assert!(why.contains("mail/jane is a symbolic link: set follow_symlinks in [local]"), "{why}");
    daemon.reconfigure(&format!("{process}[local]\nfollow_symlinks = true\n"));
    daemon.ask(&["reload"]);
    daemon.ask(&["queue", "flush"]);
    only_mail(&daemon, "jane");
    assert_eq!(fs::read_dir(elsewhere.join("new")).unwrap().count(), 1);
}

/// Sends content without a change, and CRLF.CRLF behind it.
fn send_as_it_is(daemon: &Postrider, content: &[u8]) -> (u16, String) {
    let mut client = Client::connect(daemon.address).unwrap();
    for (line, code) in [("MAIL FROM:<a@b.test>", 250), ("RCPT TO:<jane@mx.test>", 250), ("DATA", 354)] {
        assert_eq!(client.say(line).unwrap().0, code);
    }
    client.write(content).unwrap();
    client.say(".").unwrap()
}

#[test]
fn a_listener_offers_and_takes_what_its_own_keys_say() {
    let other = crate::common::free_address();
    let listener = format!(
        "[[listen]]\naddress = \"{other}\"\ndiscard_ehlo_keywords = [\"chunking\", \"dsn\"]\nmax_message_size = \"64KiB\"\n"
    );
    let daemon = Postrider::start(&listener);
    let said = hello(daemon.address);
    assert!(said.contains("CHUNKING") && said.contains("DSN") && !said.contains("SIZE 65536\n"), "{said}");
    let said = hello(other);
    assert!(!said.contains("CHUNKING") && !said.contains("DSN") && said.contains("SIZE 65536\n"), "{said}");
    let mut own = Client::connect(other).unwrap();
    own.say("EHLO x").unwrap();
    assert_eq!(own.say("MAIL FROM:<a@b.test> RET=FULL").unwrap().0, 555);
    assert_eq!(own.say("MAIL FROM:<a@b.test> SIZE=70000").unwrap().0, 552);
    assert_eq!(own.say("MAIL FROM:<a@b.test>").unwrap().0, 250);
    assert_eq!(own.say("RCPT TO:<jane@mx.test> NOTIFY=NEVER").unwrap().0, 555);
    assert_eq!(own.say("RCPT TO:<jane@mx.test>").unwrap().0, 250);
    assert_eq!(own.say("BDAT 0 LAST").unwrap().0, 502);
}

#[test]
fn content_whose_header_has_no_end_is_delivered_behind_an_empty_line_however_large_it_is() {
    let daemon = Postrider::start("");
    let mut client = Client::connect(daemon.address).unwrap();
    // More than limits.max_header_size.
    let body = "no field, and no empty line before\r\n".repeat(60_000);
    let content = format!("Subject: x\r\n{body}");
    assert_eq!(client.send("a@b.test", &["jane@mx.test"], content.as_bytes()).unwrap().0, 250);
    let delivered = format!("Subject: x\r\n\r\n{body}");
    assert!(only_mail(&daemon, "jane").replace('\n', "\r\n").ends_with(&delivered));
}
