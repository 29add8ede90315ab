//! Routes by recipient, and next hops that are values of maps.

use crate::common::{
    Postrider,
    client::Client,
    free_address,
    names::{NameServer, Record},
    sink::Sink,
    until,
};
use std::{
    fs,
    net::{Ipv4Addr, UdpSocket},
    process::Command,
};

fn start(files: &[(&str, &str)], more: &str) -> Postrider {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(dir.path().join(name), text).unwrap();
    }
    Postrider::start_in(dir, free_address(), more)
}

/// Sends a message to each of these recipients.
fn send(daemon: &Postrider, recipients: &[&str]) {
    for recipient in recipients {
        let mut client = Client::connect(daemon.address).unwrap();
        let reply = client.send("a@far.test", &[recipient], b"Subject: x\r\n\r\nx\r\n").unwrap();
        assert_eq!(reply.0, 250, "{recipient}: {}", reply.1);
    }
}

fn recipients(sink: &Sink) -> Vec<String> {
    let mut all: Vec<_> = sink.messages().into_iter().flat_map(|message| message.to).collect();
    all.sort();
    all
}

fn rcpt(daemon: &Postrider, recipient: &str) -> String {
    let mut client = Client::connect(daemon.address).unwrap();
    client.say("MAIL FROM:<a@far.test>").unwrap();
    client.say(&format!("RCPT TO:<{recipient}>")).unwrap().1
}

#[test]
fn mail_of_some_recipients_takes_a_route_of_its_own() {
    let (one, two, other) = (Sink::start(), Sink::start(), Sink::start());
    let routes = format!(
        "[[route]]\nrecipients = [\"joe@b.test\", \"text:chosen\"]\nsmarthost = \"{}\"\ntls = \"off\"\n\
         [[route]]\ndomains = [\"b.test\"]\nrecipients = [\"ann@*\", \"ann@c.test\"]\nsmarthost = \"{}\"\ntls = \"off\"\n\
         [[route]]\nrecipients = [\"gone@b.test\"]\nreject = \"550 5.1.6 moved\"\n\
         [[route]]\ndomains = [\"*\"]\nsmarthost = \"{}\"\ntls = \"off\"\n",
        one.address, two.address, other.address
    );
    let daemon = start(&[("chosen", "eve@c.test x\n@d.test x\n")], &routes);
    send(&daemon, &["Joe+x@B.test", "eve@c.test", "any@d.test", "ann@b.test", "ann@c.test", "jim@b.test"]);
    until("all have arrived", || one.count() + two.count() + other.count() == 6);
    assert_eq!(recipients(&one), ["Joe+x@B.test", "any@d.test", "eve@c.test"]);
    assert_eq!(recipients(&two), ["ann@b.test"]);
    assert_eq!(recipients(&other), ["ann@c.test", "jim@b.test"]);
    assert!(rcpt(&daemon, "gone@b.test").starts_with("550 5.1.6 moved"));
}

#[test]
fn the_value_of_a_map_is_the_next_hop() {
    let (smtp, hub, other) = (Sink::start(), Sink::start(), Sink::start());
    let transport = format!(
        "joe@b.test smtp:[{}]:{}\nb.test {}\n.c.test hub\nann@c.test :\nbad@b.test error:no\ntwo@b.test a.test, b.test\n",
        smtp.address.ip(),
        smtp.address.port(),
        hub.address
    );
    let routes = format!(
        "[log]\nfile = \"mail.log\"\n[[route]]\nnext_hop = [\"text:transport\"]\ntls = \"off\"\n\
         [[route]]\nname = \"hub\"\nsmarthost = \"{}\"\ntls = \"off\"\n\
         [[route]]\ndomains = [\"*\"]\nsmarthost = \"{}\"\ntls = \"off\"\n",
        hub.address, other.address
    );
    let daemon = start(&[("transport", &transport)], &routes);
    send(&daemon, &["joe+x@b.test", "jim@b.test", "x@mx.c.test", "ann@c.test", "x@c.test", "x@d.test"]);
    until("all have arrived", || smtp.count() + hub.count() + other.count() == 6);
    assert_eq!(recipients(&smtp), ["joe+x@b.test"]);
    assert_eq!(recipients(&hub), ["jim@b.test", "x@mx.c.test"]);
    assert_eq!(recipients(&other), ["ann@c.test", "x@c.test", "x@d.test"]);
    // What cannot be used is a fault of the map, and no reason to refuse mail.
    for recipient in ["bad@b.test", "two@b.test"] {
        assert!(rcpt(&daemon, recipient).starts_with("451 4.3.0"), "{}", rcpt(&daemon, recipient));
    }
    let words = ["test", "--client", "127.0.0.1", "--from", "a@far.test", "--to", "two@b.test"];
    let output = daemon.run(&words, "");
    let said = [output.stdout, output.stderr].map(|said| String::from_utf8(said).unwrap()).concat();
    assert!(said.contains("\"a.test, b.test\"") && said.contains("451 4.3.0"), "{said}");
}

#[test]
fn a_name_alone_has_its_mail_exchangers_as_in_postfix() {
    let exchanger = Sink::start();
    let names = NameServer::start(
        UdpSocket::bind("127.0.0.1:0").unwrap(),
        &[
            ("partner.test", Record::Mx(10, "mx.partner.test")),
            ("mx.partner.test", Record::A(Ipv4Addr::LOCALHOST)),
        ],
    );
    let more = format!(
        "[dns]\nnameservers = [\"{}\"]\n[delivery]\nmx_port = {}\n[[route]]\nnext_hop = [\"text:transport\"]\ntls = \"off\"\n",
        names.address,
        exchanger.address.port()
    );
    let daemon = start(&[("transport", "b.test smtp:Partner.test\nc.test relay:partner.test\n")], &more);
    send(&daemon, &["joe@b.test", "ann@c.test"]);
    until("both have arrived", || exchanger.count() == 2);
    assert_eq!(recipients(&exchanger), ["ann@c.test", "joe@b.test"]);
}

#[test]
fn the_choice_stays_with_queued_mail_when_the_map_changes() {
    let (dead, sink) = (free_address(), Sink::start());
    let ports = format!("[process]\nextra_ports = [{}]\n", sink.address.port());
    let routes = "[queue]\nretry_min = \"1s\"\nretry_max = \"1s\"\n[[route]]\nnext_hop = [\"text:transport\"]\ntls = \"off\"\n";
    let daemon = start(&[("transport", &format!("b.test {dead}\n"))], &format!("{ports}{routes}"));
    send(&daemon, &["joe@b.test"]);
    fs::write(daemon.dir.path().join("transport"), format!("b.test {}\n", sink.address)).unwrap();
    until("new mail takes the new next hop", || {
        send(&daemon, &["ann@b.test"]);
        sink.count() > 0
    });
    let late = Sink::at(dead, |_| None);
    until("the first one goes where it was to go", || recipients(&late).contains(&"joe@b.test".to_owned()));
    assert!(!recipients(&sink).contains(&"joe@b.test".to_owned()));
}

#[test]
fn where_mail_goes_is_shown_before_it_is_sent() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(
        dir.path().join("transport"),
        "joe@b.test lmtp:unix:/run/dovecot/lmtp\neve@b.test smtp:partner.test\nann@b.test error:no\n",
    )
    .unwrap();
    let config = dir.path().join("postrider.toml");
    let text = "hostname = \"mx.test\"\ndata_dir = \"data\"\n[local]\ndomains = [\"mx.test\"]\n[[route]]\nnext_hop = [\"text:transport\"]\n";
    fs::write(&config, text).unwrap();
    for (to, shown) in [
        ("joe@b.test", "lmtp:unix:/run/dovecot/lmtp"),
        ("eve@b.test", "mx:partner.test"),
        (
            "ann@b.test",
            "the next hop \"error:no\" cannot be used: write the name of a [[route]] with `reject`",
        ),
    ] {
        let output = Command::new(crate::common::BINARY)
            .args(["test", "--client", "127.0.0.1", "--from", "a@far.test", "--to", to])
            .env("POSTRIDER_CONFIG", &config)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains(shown), "{said} {}", String::from_utf8_lossy(&output.stderr));
    }
}
