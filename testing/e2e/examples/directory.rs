//! The set-up of a university: a directory has people, mailbox servers and passwords.

use super::*;
use crate::common::databases::Slapd;

/// An entry of the example, with its password.
fn person(uid: &str, addresses: &[&str], host: &str) -> (String, Vec<String>) {
    let mut lines = vec![
        "objectClass: inetLocalMailRecipient".to_owned(),
        format!("uid: {uid}"),
        format!("mailHost: {host}"),
        format!("userPassword: secret of {uid}"),
    ];
    lines.extend(addresses.iter().map(|address| format!("mailLocalAddress: {address}")));
    (uid.to_owned(), lines)
}

#[test]
fn the_example_of_a_directory_sends_mail_to_each_persons_server_and_verifies_logins() {
    if !is_inside(
        "examples::directory::the_example_of_a_directory_sends_mail_to_each_persons_server_and_verifies_logins",
    ) {
        return;
    }
    let (_names, elsewhere) = (names(), sink("203.0.113.21:25"));
    let (one, two) = (sink("203.0.113.41:25"), sink("203.0.113.42:25"));
    let people = [
        person("jane", &["jane@example.edu", "jane.doe@physics.example.edu"], "imap1.example.edu"),
        person("joe", &["joe@example.edu"], "imap2.example.edu"),
        person("postmaster", &["postmaster@example.edu"], "imap2.example.edu"),
    ];
    let lines: Vec<Vec<&str>> =
        people.iter().map(|(_, lines)| lines.iter().map(String::as_str).collect()).collect();
    let people: Vec<(&str, &[&str])> =
        people.iter().zip(&lines).map(|((uid, _), lines)| (uid.as_str(), &lines[..])).collect();
    let Some(directory) = Slapd::start(&people) else { return };
    let server = format!("ldaps://{}", directory.tls);
    let own = [
        ("ldaps://ldap.example.edu", &*server),
        ("cn=postrider,ou=services,dc=example,dc=edu", "cn=admin,dc=b,dc=test"),
        ("ou=people,dc=example,dc=edu", "dc=b,dc=test"),
    ];
    let Some(machine) = machine("ldap", &[&LISTENERS[..], &own].concat(), "") else { return };
    let Some(()) = certificate(&machine, "mx.example.edu") else { return };
    machine.write("postrider/ldap.secret", "s3cret\n");
    let authority = fs::read_to_string(directory.dir.path().join("server.pem")).unwrap();
    machine.write("postrider/ldap-ca.pem", &authority);
    let _running = start(&machine, OUTSIDE);
    for (to, place) in [
        ("jane@example.edu", &one),
        ("Jane.Doe+x@Physics.example.edu", &one),
        ("joe@example.edu", &two),
        ("postmaster@example.edu", &two),
    ] {
        accepted(STRANGER, OUTSIDE, "x@far.example", to);
        until_received(place, None, to);
    }
    accepted("127.0.0.1", OUTSIDE, "cron@mx.example.edu", "root@localhost");
    until_received(&two, None, "postmaster@example.edu");
    for to in ["nobody@example.edu", "joe@physics.example.edu"] {
        let unknown = send(STRANGER, OUTSIDE, "x@far.example", to);
        assert!(unknown.0 == 550 && unknown.1.contains("5.1.1"), "{to}: {unknown:?}");
    }
    let config = tls::client_config(None);
    let log_in = |user: &str, password: &str| {
        let (mut client, _) = tls::Client::starttls(SUBMISSION.parse().unwrap(), &config).unwrap();
        let plain = data_encoding::BASE64.encode(format!("\0{user}\0{password}").as_bytes());
        let reply = client.say(&format!("AUTH PLAIN {plain}")).unwrap();
        (client, reply)
    };
    assert!(log_in("jane", "secret of joe").1.starts_with("535"));
    let (mut client, reply) = log_in("jane.doe@physics.example.edu", "secret of jane");
    assert!(reply.starts_with("235"), "{reply}");
    let own = "jane.doe@physics.example.edu";
    for (line, code) in [
        ("MAIL FROM:<joe@example.edu>".to_owned(), "553 5.7.1"),
        (format!("MAIL FROM:<{own}>"), "250"),
        ("RCPT TO:<bob@example.net>".to_owned(), "250"),
        ("DATA".to_owned(), "354"),
        (format!("From: {own}\r\nSubject: hello\r\n\r\nHello.\r\n."), "250"),
    ] {
        let reply = client.say(&line).unwrap();
        assert!(reply.starts_with(code), "{line}: {reply}");
    }
    until_received(&elsewhere, Some(own), "bob@example.net");
    drop(directory);
    // Nothing is refused for good while the directory is away.
    assert_eq!(send(STRANGER, OUTSIDE, "x@far.example", "new@example.edu").0, 451);
    assert!(log_in("jane", "secret of jane").1.starts_with("454"));
}
