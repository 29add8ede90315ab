//! Each condition of a rule, and routes that rules choose, through the daemon and through `postrider test`.

use crate::common::{
    Postrider,
    client::Client,
    free_address,
    sink::Sink,
    tls::{Authority, Client as TlsClient, client_config},
    until,
};
use std::{fs, process::Command};

/// Conditions that hold for a client of the first kind, and for none of the second. Each rule is for one recipient.
const CONDITIONS: [(&str, &str); 15] = [
    ("listener", "listener = [\"submission\"]"),
    ("client", "client = [\"127.0.0.0/8\"]"),
    ("client_name", "client_name = [\"*.mx.test\"]"),
    ("hello", "hello = [\"client.test\"]"),
    ("tls", "tls = true"),
    ("certificate", "certificate = [\"jane@mx.test\"]"),
    ("any-certificate", "certificate = [\"*\"]"),
    ("certificate-in-map", "certificate = [\"text:certificates\"]"),
    ("login", "login = [\"jane@mx.test\"]"),
    ("from", "from = [\"jane@mx.test\"]"),
    ("from-in-map", "from = [\"text:senders\"]"),
    ("recipients", "recipients = 1"),
    ("tagged", "tagged = [\"own\"]"),
    ("over", "over = [\"often\"]"),
    ("unless", "unless = { hello = [\"other.test\"] }"),
];

/// A rule of its own for each condition, and two for the content.
fn rules() -> String {
    let rule = |(name, condition): &(&str, &str)| {
        format!(
            "[[rule]]\nfor = \"all\"\nto = [\"{name}@mx.test\"]\n{condition}\nreject = \"550 5.7.1 by {name}\"\n"
        )
    };
    let content =
        [("size", "at = \"content\"\nsize = \"64KiB\""), ("header", "header = [\"X-Flag: /red/\"]")];
    let tag = "[[rule]]\nfor = \"all\"\nfrom = [\"mx.test\"]\ntag = [\"own\"]\n";
    let limit = "[[limit]]\nname = \"often\"\nper = \"client\"\nrecipients = \"1/h\"\n";
    let rules: String = CONDITIONS.iter().chain(&content).map(rule).collect();
    format!("{tag}{rules}{limit}")
}

/// A daemon with a listener for each kind of client. Names of addresses come from `[hosts]`; there is no DNS.
fn daemon(submission: std::net::SocketAddr) -> (Postrider, Authority) {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new(&dir.path().join("clients.pem"));
    fs::write(dir.path().join("certificates"), "jane@mx.test yes\n").unwrap();
    fs::write(dir.path().join("senders"), "jane@mx.test yes\n").unwrap();
    let address = free_address();
    let text = format!(
        "hostname = \"mx.test\"\ndata_dir = \"data\"\n\
         [[listen]]\naddress = \"{address}\"\nxclient = [\"127.0.0.0/8\"]\n\
         [[listen]]\naddress = \"{submission}\"\nkind = \"submission\"\nclient_certificates = \"ask\"\n\
         [tls]\nclient_ca_file = \"clients.pem\"\n[relay]\nnetworks = [\"192.0.2.0/24\"]\n\
         [hosts]\n\"pc.mx.test\" = [\"127.0.0.1\"]\n[dns]\nnameservers = [\"{}\"]\ntimeout = \"100ms\"\nattempts = 1\n{}",
        free_address(),
        rules()
    );
    (Postrider::start_from(dir, address, &text), authority)
}

/// Runs `postrider test` for one recipient, or several.
fn rehearse(daemon: &Postrider, arguments: &[&str], to: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(crate::common::BINARY)
        .arg("test")
        .args(arguments)
        .args(to.iter().flat_map(|to| ["--to", to]))
        .env("POSTRIDER_CONFIG", daemon.config())
        .output()
        .unwrap();
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), said(&output.stdout) + &said(&output.stderr))
}

const JANE: [&str; 12] = [
    "--listener",
    "submission",
    "--client",
    "127.0.0.1",
    "--hello",
    "client.test",
    "--certificate",
    "jane@mx.test",
    "--login",
    "jane@mx.test",
    "--from",
    "jane@mx.test",
];
const OTHER: [&str; 8] =
    ["--listener", "mx", "--client", "203.0.113.9", "--hello", "other.test", "--from", "x@else.test"];

#[test]
fn each_condition_decides_in_a_session_as_in_a_rehearsal() {
    let submission = free_address();
    let (daemon, authority) = daemon(submission);
    let jane = client_config(Some(&authority.certify("Jane", &["jane@mx.test"], "pc.test")));
    let (mut client, _) = TlsClient::starttls(submission, &jane).unwrap();
    assert!(client.say("AUTH EXTERNAL =").unwrap().starts_with("235"));
    let mut other = Client::connect(daemon.address).unwrap();
    assert_eq!(other.say("XCLIENT ADDR=203.0.113.9").unwrap().0, 220);
    other.say("EHLO other.test").unwrap();
    for (name, _) in CONDITIONS {
        let to = format!("{name}@mx.test");
        assert!(client.say("MAIL FROM:<jane@mx.test>").unwrap().starts_with("250"));
        // Rules for more than one recipient, and for what is done too often.
        let first = if name == "over" { &*to } else { "joe@mx.test" };
        assert!(client.say(&format!("RCPT TO:<{first}>")).unwrap().starts_with("250"), "{name}");
        let reply = client.say(&format!("RCPT TO:<{to}>")).unwrap();
        assert_eq!(reply, format!("550 5.7.1 by {name}"));
        client.say("RSET").unwrap();
        let (code, said) = rehearse(&daemon, &JANE, &[first, &to]);
        assert!(code == Some(65) && said.contains(&format!("550 5.7.1 by {name}")), "{name}: {said}");
        assert_eq!(other.say("MAIL FROM:<x@else.test>").unwrap().0, 250);
        assert_eq!(other.say(&format!("RCPT TO:<{to}>")).unwrap().0, 250, "{name}");
        other.say("RSET").unwrap();
        let (code, said) = rehearse(&daemon, &OTHER, &[&to]);
        assert!(code == Some(0) && said.contains("250 2.1.5"), "{name}: {said}");
        let key = name.trim_start_matches("any-").trim_end_matches("-in-map");
        let why = if name == "over" { "within" } else { key };
        assert!(
            name == "unless" || name == "over" || said.contains(&format!("no: {why}: ")),
            "{name}: {said}"
        );
    }
    let file = daemon.dir.path().join("message");
    for (name, content) in [
        ("size", format!("Subject: x\r\n\r\n{}", "0123456789\r\n".repeat(6000))),
        ("header", "X-Flag: red\r\n\r\nx\r\n".to_owned()),
    ] {
        let to = format!("{name}@mx.test");
        fs::write(&file, &content).unwrap();
        assert_eq!(
            other.send("x@else.test", &[&to], content.as_bytes()).unwrap().1,
            format!("550 5.7.1 by {name}")
        );
        assert_eq!(other.send("x@else.test", &[&to], b"Subject: x\r\n\r\nx\r\n").unwrap().0, 250);
        let with_file = [&OTHER[..], &["--file", file.to_str().unwrap()]].concat();
        let (code, said) = rehearse(&daemon, &with_file, &[&to]);
        assert!(code == Some(65) && said.contains(&format!("550 5.7.1 by {name}")), "{said}");
    }
    // `config explain` names them all.
    let explained = daemon.ask(&["config", "explain", "rules"]);
    assert!(explained.contains("certificate is jane@mx.test"), "{explained}");
}

/// Routes for rules: each leads to a sink of its own.
fn routed(filter: std::net::SocketAddr, other: std::net::SocketAddr, rules: &str) -> String {
    let route = |name: &str, domains: &str, to| {
        format!("[[route]]\nname = \"{name}\"\n{domains}smarthost = \"{to}\"\ntls = \"off\"\n")
    };
    let (filter, other) = (route("filter", "", filter), route("other", "domains = [\"far.test\"]\n", other));
    format!("[relay]\nnetworks = [\"127.0.0.0/8\"]\n[log]\nfile = \"mail.log\"\n{filter}{other}{rules}")
}

const ROUTING: &str = "[[rule]]\nfor = \"all\"\nfrom = [\"news.test\"]\nroute = \"filter\"\n\
                       [[rule]]\nfor = \"all\"\nheader = [\"X-Flag: /red/\"]\nroute = \"filter\"\n";

#[test]
fn a_rule_chooses_the_route_of_a_recipient_or_of_a_message() {
    let (filter, other) = (Sink::start(), Sink::start());
    let daemon = Postrider::start(&routed(filter.address, other.address, ROUTING));
    let mut client = Client::connect(daemon.address).unwrap();
    let send = |client: &mut Client, from: &str, to: &[&str], head: &str| {
        let reply = client.send(from, to, format!("{head}Subject: x\r\n\r\nx\r\n").as_bytes()).unwrap();
        assert_eq!(reply.0, 250, "{}", reply.1);
    };
    send(&mut client, "a@news.test", &["u@far.test", "joe@mx.test"], "");
    until("both are at the filter", || filter.messages().iter().map(|one| one.to.len()).sum::<usize>() == 2);
    send(&mut client, "a@b.test", &["u@far.test"], "");
    until("the route of the domain has it", || other.count() == 1);
    send(&mut client, "a@b.test", &["u@far.test", "joe@mx.test"], "X-Flag: red\r\n");
    until("the filter has all of it", || {
        filter.messages().iter().map(|one| one.to.len()).sum::<usize>() == 4
    });
    send(&mut client, "a@b.test", &["joe@mx.test"], "");
    until("local mail is local", || daemon.mailbox("joe").len() == 1);
    let arguments = ["--client", "127.0.0.1", "--from", "a@news.test"];
    let (code, said) = rehearse(&daemon, &arguments, &["joe@mx.test"]);
    let by = format!("joe@mx.test by smarthost:{}", filter.address);
    let yes = "yes, from: a@news.test is news.test: by the route filter";
    assert!(code == Some(0) && said.contains(&by) && said.contains(yes), "{said}");
    // A route is no right to relay.
    daemon
        .reconfigure(&routed(filter.address, other.address, ROUTING).replace("127.0.0.0/8", "192.0.2.0/24"));
    daemon.ask(&["reload"]);
    let mut client = Client::connect(daemon.address).unwrap();
    client.say("MAIL FROM:<a@news.test>").unwrap();
    assert!(client.say("RCPT TO:<u@far.test>").unwrap().1.starts_with("550 5.7.1"));
}

#[test]
fn rules_wait_and_trust_and_a_trusted_client_may_not_relay() {
    let rules = "[relay]\nnetworks = []\n\
                 [[rule]]\nfrom = [\"slow.test\"]\nat = \"mail\"\ndelay = \"5s\"\n\
                 [[rule]]\nfrom = [\"partner.test\"]\ntrust = true\n\
                 [[rule]]\nto = [\"joe@mx.test\"]\nreject = \"550 5.7.1 not for strangers\"\n";
    let daemon = Postrider::start(rules);
    let mut client = Client::connect(daemon.address).unwrap();
    for (from, to, expected) in [
        ("a@slow.test", "joe@mx.test", "550 5.7.1 not for strangers"),
        ("a@partner.test", "joe@mx.test", "250 2.1.5"),
        ("a@partner.test", "joe@far.test", "550 5.7.1 <joe@far.test>: Relay access denied"),
    ] {
        let begun = std::time::Instant::now();
        assert_eq!(client.say(&format!("MAIL FROM:<{from}>")).unwrap().0, 250);
        assert_eq!(begun.elapsed() >= std::time::Duration::from_secs(5), from == "a@slow.test", "{from}");
        let reply = client.say(&format!("RCPT TO:<{to}>")).unwrap().1;
        assert!(reply.starts_with(expected), "{reply}");
        client.say("RSET").unwrap();
        let (_, said) = rehearse(&daemon, &["--client", "203.0.113.9", "--from", from], &[to]);
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn the_chosen_route_survives_a_crash_and_mail_of_a_route_that_is_gone_takes_that_of_its_domain() {
    for backend in ["log", "queue-dirs"] {
        let (dead, other) = (free_address(), Sink::start());
        let spool = format!("backend = \"{backend}\"\n");
        let config = |rules: &str| spool.clone() + &routed(dead, other.address, rules);
        let daemon = Postrider::start(&config(ROUTING));
        let mut client = Client::connect(daemon.address).unwrap();
        let reply = client.send("a@news.test", &["u@far.test"], b"Subject: x\r\n\r\nx\r\n").unwrap();
        assert_eq!(reply.0, 250, "{}", reply.1);
        let (dir, address) = daemon.kill();
        // The rule is gone, and the decision is not.
        let daemon = Postrider::start_in(dir, address, &config(""));
        assert_eq!((daemon.counter("queued"), other.count()), (1, 0));
        let filter = Sink::at(dead, |_| None);
        daemon.ask(&["queue", "flush"]);
        until("the filter has it", || filter.count() == 1);
        drop(daemon);
        let (dead, other) = (free_address(), Sink::start());
        let config = |rules: &str| spool.clone() + &routed(dead, other.address, rules);
        let daemon = Postrider::start(&config(ROUTING));
        let mut client = Client::connect(daemon.address).unwrap();
        client.send("a@news.test", &["v@far.test"], b"Subject: y\r\n\r\ny\r\n").unwrap();
        let config = config("").replace("name = \"filter\"", "name = \"renamed\"");
        daemon.reconfigure(&config);
        daemon.ask(&["reload"]);
        daemon.ask(&["queue", "flush"]);
        until("the route of the domain has it", || other.count() == 1);
        until("nothing is queued", || daemon.counter("queued") == 0);
    }
}
