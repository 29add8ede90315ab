//! Clients that lists in DNS have (RFC 5782) are rejected or marked. The server's client is 127.0.0.1.

use crate::common::{
    Postrider,
    client::Client,
    names::{NameServer, Record},
};
use std::net::{Ipv4Addr, UdpSocket};

/// A code that a list has for the client, with its reason.
fn listed(name: &'static str, code: [u8; 4], text: &str) -> [(&'static str, Record); 2] {
    [(name, Record::A(Ipv4Addr::from(code))), (name, Record::Txt(text.to_owned()))]
}

fn start(settings: &str) -> (Postrider, NameServer) {
    let records = [
        listed("1.0.0.127.bad.test", [127, 0, 0, 4], "see https://bad.test/?ip=127.0.0.1 {client}"),
        listed("1.0.0.127.refuses.test", [127, 255, 255, 254], "ask less"),
        listed("1.0.0.127.sold.test", [192, 0, 2, 80], ""),
        listed("1.0.0.127.good.test", [127, 0, 0, 2], ""),
        listed("far.test.domains.test", [127, 0, 1, 2], "sends spam"),
        listed("client.bad.test.domains.test", [127, 0, 1, 3], ""),
        // What lists of domains say about addresses.
        listed("192.0.2.1.domains.test", [127, 0, 1, 255], "no addresses"),
    ];
    let names = NameServer::start(UdpSocket::bind("127.0.0.1:0").unwrap(), &records.concat());
    let address = names.address;
    let daemon = Postrider::start(&format!(
        "[relay]\nnetworks = []\n[log]\nfile = \"mail.log\"\n[dns]\nnameservers = [\"{address}\"]\n{settings}"
    ));
    (daemon, names)
}

/// Returns the replies to RCPT, one for each recipient.
fn replies(daemon: &Postrider, to: &[&str]) -> Vec<String> {
    let mut client = Client::connect(daemon.address).unwrap();
    client.say("MAIL FROM:<x@far.test>").unwrap();
    to.iter().map(|to| client.say(&format!("RCPT TO:<{to}>")).unwrap().1).collect()
}

/// What `postrider test` says of a message to a user.
fn tested(daemon: &Postrider) -> String {
    let asked = ["test", "--client", "127.0.0.1", "--from", "x@far.test", "--to", "alice@mx.test"];
    String::from_utf8(daemon.run(&asked, "").stdout).unwrap()
}

#[test]
fn a_listed_client_is_rejected_with_the_reason_of_the_list_unless_a_rule_accepts() {
    let (daemon, _names) = start(
        "[checks]\ndnsbl = [\"clean.test\", \"bad.test\"]\n[[rule]]\nto = [\"postmaster@*\"]\naccept = true\n",
    );
    let said = replies(&daemon, &["alice@mx.test", "postmaster@mx.test"]);
    assert_eq!(
        said[0].trim_end(),
        "550 5.7.1 The address 127.0.0.1 is listed by bad.test: see https://bad.test/?ip=127.0.0.1 {client}"
    );
    assert!(said[1].starts_with("250 "), "{said:?}");
    let test = tested(&daemon);
    assert!(test.contains("the list bad.test") && test.contains("listed: 127.0.0.4"), "{test}");
}

#[test]
fn a_list_that_answers_with_an_error_lists_nobody() {
    let lists = "[checks]\ndnsbl = [\"refuses.test\", \"sold.test\", \"bad.test=127.0.0.5-9\"]\n";
    let (daemon, _names) = start(lists);
    let said = replies(&daemon, &["alice@mx.test"]);
    assert!(said[0].starts_with("250 "), "{said:?}");
    let test = tested(&daemon);
    for code in ["127.255.255.254", "192.0.2.80"] {
        assert!(test.contains(&format!("failed: it answers {code}")), "{test}");
    }
}

#[test]
fn silent_lists_delay_one_session_and_refuse_nobody() {
    // Nobody answers there.
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let zones: Vec<String> = (0..60).map(|number| format!("\"{number}.silent.test\"")).collect();
    let daemon = Postrider::start(&format!(
        "[relay]\nnetworks = []\n[dns]\nnameservers = [\"{}\"]\ntimeout = \"400ms\"\nattempts = 2\n[checks]\ndnsbl = [{}]\n",
        silent.local_addr().unwrap(),
        zones.join(", ")
    ));
    let asked = || {
        silent.set_nonblocking(true).unwrap();
        let mut packet = [0; 1024];
        std::iter::from_fn(|| silent.recv(&mut packet).ok()).count()
    };
    let said = replies(&daemon, &["alice@mx.test"]);
    assert!(said[0].starts_with("250 "), "{said:?}");
    assert!(asked() >= 60);
    assert!(daemon.ask(&["status"]).contains("DNS LIST FAILS: 7.silent.test lists nobody: "));
    // Lists that have failed rest.
    let said = replies(&daemon, &["alice@mx.test"]);
    assert!(said[0].starts_with("250 "), "{said:?}");
    assert_eq!(asked(), 0);
}

#[test]
fn rules_use_lists_as_any_other_condition() {
    let (daemon, _names) = start(
        "[[rule]]\ndns_list = [\"bad.test\"]\nunless = { dns_list = [\"good.test\"] }\nreject = true\n\
         [[rule]]\ndns_list = [\"bad.test=127.0.0.4\"]\nto = [\"bob@*\"]\nreject = \"554 5.7.1 no: {text}\"\n",
    );
    let said = replies(&daemon, &["alice@mx.test", "bob@mx.test"]);
    assert!(said[0].starts_with("250 ") && said[1].starts_with("554 5.7.1 no: bad.test: see "), "{said:?}");
}

#[test]
fn lists_that_agree_refuse_a_client_by_their_scores() {
    let (daemon, _names) = start(
        "[[rule]]\ndns_list = [\"bad.test\"]\nscore = 3\n[[rule]]\nto = [\"bob@*\"]\nscore = -2\n\
         [[rule]]\nmin_score = 3\nreject = \"554 5.7.1 enough\"\n\
         [[rule]]\nheader = [\"Subject: /casino/\"]\nscore = 2\n\
         [[rule]]\nat = \"content\"\nmin_score = 3\nreject = \"554 5.7.1 enough at the content\"\n",
    );
    let said = replies(&daemon, &["alice@mx.test", "bob@mx.test"]);
    assert!(said[0].starts_with("554 5.7.1 enough") && said[1].starts_with("250 "), "{said:?}");
    let send = |subject: &str| {
        let mut client = Client::connect(daemon.address).unwrap();
        client
            .send("x@far.test", &["bob@mx.test"], format!("Subject: {subject}\r\n\r\nx\r\n").as_bytes())
            .unwrap()
    };
    assert_eq!(send("hello").0, 250);
    let refused = send("casino");
    assert!(refused.0 == 554 && refused.1.contains("enough at the content"), "{refused:?}");
    let test = tested(&daemon);
    assert!(test.contains("score +3") && test.contains("the score is 3, at least 3"), "{test}");
}

#[test]
fn a_list_of_domains_has_senders_and_names_in_ehlo_and_is_not_asked_about_addresses() {
    let (daemon, _names) = start(
        "[[rule]]\nfrom_dns_list = [\"domains.test=127.0.1.2\"]\nreject = \"554 5.7.1 from: {text}\"\n\
         [[rule]]\nhello_dns_list = [\"domains.test\"]\nreject = \"554 5.7.1 hello: {text}\"\n",
    );
    let mut client = Client::connect(daemon.address).unwrap();
    let mut replies = |hello: &str, from: &str| {
        client.say(&format!("EHLO {hello}")).unwrap();
        client.say(&format!("MAIL FROM:<{from}>")).unwrap();
        let reply = client.say("RCPT TO:<alice@mx.test>").unwrap().1;
        client.say("RSET").unwrap();
        reply
    };
    assert_eq!(replies("mail.example", "x@FAR.test").trim_end(), "554 5.7.1 from: domains.test: sends spam");
    // Another sender in the same session.
    assert!(replies("mail.example", "x@near.test").starts_with("250 "));
    assert!(replies("mail.example", "").starts_with("250 "));
    assert_eq!(replies("client.bad.test", "x@near.test").trim_end(), "554 5.7.1 hello: domains.test");
    for address in ["[192.0.2.1]", "192.0.2.1"] {
        assert!(replies(address, "x@near.test").starts_with("250 "), "{address}");
    }
    let test = tested(&daemon);
    assert!(
        test.contains("the list domains.test about far.test") && test.contains("listed: 127.0.1.2"),
        "{test}"
    );
}
