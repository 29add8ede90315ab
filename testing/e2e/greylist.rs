//! Mail of an unknown origin has to come again (RFC 6647). The server's client is 127.0.0.1.

use crate::common::{
    Postrider,
    client::Client,
    free_address,
    names::{NameServer, Record},
    until,
};
use std::{
    fs,
    net::{Ipv4Addr, UdpSocket},
};

const STRANGERS: &str = "[relay]\nnetworks = []\n[log]\nfile = \"mail.log\"\n";

/// Returns the replies to recipients of one message.
fn replies(daemon: &Postrider, from: &str, to: &[&str]) -> Vec<String> {
    let mut client = Client::connect(daemon.address).unwrap();
    client.say(&format!("MAIL FROM:<{from}>")).unwrap();
    to.iter().map(|to| client.say(&format!("RCPT TO:<{to}>")).unwrap().1).collect()
}

fn reply(daemon: &Postrider, from: &str, to: &str) -> String {
    replies(daemon, from, &[to]).remove(0)
}

#[test]
fn mail_of_an_unknown_origin_has_to_come_again_and_is_known_after_a_restart() {
    let settings =
        format!("{STRANGERS}[checks]\ngreylist = \"all\"\n[greylist]\nwait = \"2s\"\nretry = \"1h\"\n");
    let daemon = Postrider::start(&settings);
    let said = reply(&daemon, "x@far.test", "alice@mx.test");
    assert_eq!(said.trim_end(), "451 4.7.1 Greylisted: try again in 2 seconds or later");
    until("the mail may come", || reply(&daemon, "X@far.test", "alice@mx.test").starts_with("250 "));
    // Each recipient by itself, and what is refused for another reason is refused for that.
    let said = replies(&daemon, "x@far.test", &["alice@mx.test", "bob@mx.test", "bob@elsewhere.test"]);
    assert!(said[0].starts_with("250 ") && said[1].starts_with("451 4.7.1 "), "{said:?}");
    assert!(said[2].starts_with("550 5.7.1 "), "{said:?}");
    let asked = ["test", "--client", "127.0.0.1", "--from", "y@far.test", "--to", "alice@mx.test"];
    let test = String::from_utf8(daemon.run(&asked, "").stdout).unwrap();
    assert!(test.contains("the origin is unknown: it has to come again in 2 s"), "{test}");
    let explained = daemon.ask(&["config", "explain", "checks"]);
    assert!(explained.contains("checks.greylist") && explained.contains("451 4.7.1, for 2 s"), "{explained}");
    let (dir, status) = daemon.stop();
    assert!(status.success());
    let daemon = Postrider::start_in(dir, free_address(), &settings);
    assert!(reply(&daemon, "x@far.test", "alice@mx.test").starts_with("250 "));
    assert!(reply(&daemon, "y@far.test", "alice@mx.test").starts_with("451 4.7.1 "), "the test was no mail");
}

#[test]
fn rules_spare_recipients_and_clients_and_an_alias_is_judged_once() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("aliases"), "list: ann, bob, carol\n").unwrap();
    let settings = format!(
        "{STRANGERS}[addresses]\naliases = [\"aliases:aliases\"]\n[checks]\ngreylist = \"all\"\n[greylist]\nwait = \"1s\"\n\
         [[rule]]\nto = [\"postmaster@*\"]\naccept = true\n[[rule]]\nat = \"hello\"\nhello = [\"partner.test\"]\ntrust = true\n"
    );
    let daemon = Postrider::start_in(dir, free_address(), &settings);
    assert!(reply(&daemon, "x@far.test", "postmaster@mx.test").starts_with("250 "));
    let said = replies(&daemon, "x@far.test", &["postmaster@mx.test", "ann@mx.test"]);
    assert!(
        said[1].starts_with("451 4.7.1 "),
        "what is true of one recipient is not true of the next: {said:?}"
    );
    let mut partner = Client::begin(daemon.address).unwrap();
    partner.reply().unwrap();
    partner.say("EHLO partner.test").unwrap();
    partner.say("MAIL FROM:<new@far.test>").unwrap();
    assert_eq!(partner.say("RCPT TO:<ann@mx.test>").unwrap().0, 250);
    assert!(reply(&daemon, "x@far.test", "list@mx.test").starts_with("451 4.7.1 "));
    until("the mail for the list may come", || {
        reply(&daemon, "x@far.test", "list@mx.test").starts_with("250 ")
    });
}

#[test]
fn only_suspects_wait_and_a_known_network_no_more() {
    let name = "client.far.test";
    let records = [
        ("1.0.0.127.in-addr.arpa", Record::Ptr(name)),
        (name, Record::A(Ipv4Addr::LOCALHOST)),
        ("far.test", Record::Txt("v=spf1 ip4:127.0.0.1 -all".to_owned())),
    ];
    let names = NameServer::start(UdpSocket::bind("127.0.0.1:0").unwrap(), &records);
    let daemon = Postrider::start(&format!(
        "{STRANGERS}[dns]\nnameservers = [\"{}\"]\n[checks]\ngreylist = \"suspects\"\n[greylist]\nwait = \"1s\"\nknown_after = 1\n",
        names.address
    ));
    assert!(
        reply(&daemon, "x@far.test", "alice@mx.test").starts_with("250 "),
        "its domain permits the client"
    );
    let suspect = || reply(&daemon, "x@other.test", "alice@mx.test");
    assert!(suspect().starts_with("451 4.7.1 "));
    until("the mail of the suspect may come", || suspect().starts_with("250 "));
    assert!(reply(&daemon, "z@new.test", "bob@mx.test").starts_with("250 "), "its network is known");
}
