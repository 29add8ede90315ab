//! Mail from elsewhere is checked by SPF, DKIM and DMARC, with the records of a name server.

use crate::common::{
    Postrider,
    client::Client,
    names::{NameServer, Record},
    python_with, record,
};
use std::{fs, net::UdpSocket, process::Command};

/// Signs a message as another server would: the key's PEM file is made by `postrider dkim new`.
const SIGN: &str = r#"
import dkim, sys
selector, domain, key, path = sys.argv[1:]
message = open(path, 'rb').read()
sys.stdout.buffer.write(dkim.sign(message, selector.encode(), domain.encode(), open(key, 'rb').read()) + message)
"#;

/// Domains of senders: the server's client is 127.0.0.1.
const RECORDS: [(&str, &str); 9] = [
    ("pass.test", "v=spf1 ip4:127.0.0.0/8 -all"),
    ("fail.test", "v=spf1 ip4:192.0.2.0/24 -all"),
    ("soft.test", "v=spf1 ~all"),
    ("broken.test", "v=spf1 ip4:300.0.0.0 -all"),
    ("reject.test", "v=spf1 -all"),
    ("_dmarc.pass.test", "v=DMARC1; p=reject"),
    ("_dmarc.reject.test", "v=DMARC1; p=reject"),
    ("_dmarc.quarantine.test", "v=DMARC1; p=quarantine"),
    ("_dmarc.watch.test", "v=DMARC1; p=none"),
];

struct Server {
    daemon: Postrider,
    _names: NameServer,
}

impl Server {
    fn start(more: &[(&'static str, Record)], settings: &str) -> Self {
        let text = |(name, text): (&'static str, &str)| (name, Record::Txt(text.to_owned()));
        let records: Vec<_> = RECORDS.map(text).into_iter().chain(more.iter().cloned()).collect();
        let names = NameServer::start(UdpSocket::bind("127.0.0.1:0").unwrap(), &records);
        let address = names.address;
        let daemon = Postrider::start(&format!(
            "[relay]\nnetworks = []\n[log]\nfile = \"mail.log\"\n[dns]\nnameservers = [\"{address}\"]\n{settings}"
        ));
        Self { daemon, _names: names }
    }

    /// Sends a message to a user, and returns the reply.
    fn send(&self, from: &str, message: &[u8]) -> String {
        let mut client = Client::connect(self.daemon.address).unwrap();
        client.send(from, &["alice@mx.test"], message).unwrap().1
    }

    /// Sends a message that is taken, and returns what arrives.
    fn arrived(&self, from: &str, message: &[u8]) -> String {
        let before = self.daemon.mailbox("alice");
        let reply = self.send(from, message);
        assert!(reply.starts_with("250 "), "{reply}");
        crate::common::until("it has arrived", || self.daemon.mailbox("alice").len() > before.len());
        let new = self.daemon.mailbox("alice").into_iter().find(|file| !before.contains(file)).unwrap();
        fs::read_to_string(new).unwrap()
    }
}

/// Returns the values of the fields of this server, each on one line.
fn results(message: &str) -> Vec<String> {
    let header = message.split("\n\n").next().unwrap().replace("\n\t", " ").replace("\n ", " ");
    let fields = header.lines().filter_map(|line| line.strip_prefix("Authentication-Results: "));
    fields.map(|value| value.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

fn message(from: &str) -> Vec<u8> {
    format!("From: {from}\r\nSubject: x\r\n\r\nx\r\n").into_bytes()
}

const USERS: &str = "[local]\ndomains = [\"mx.test\"]\nusers = [\"alice\"]\n";

#[test]
fn the_results_of_all_checks_are_in_one_field_and_forged_ones_are_removed() {
    let server = Server::start(&[], &format!("{USERS}[checks]\ndmarc = \"tag\"\n"));
    let arrived = server.arrived("joe@pass.test", &message("joe@pass.test"));
    assert_eq!(
        results(&arrived),
        [
            "mx.test; spf=pass smtp.mailfrom=joe@pass.test; dkim=none; dmarc=pass header.from=pass.test policy.dmarc=reject"
        ]
    );
    let forged = b"Authentication-Results: mx.test; spf=pass\r\nauthentication-results: other.test; spf=pass\r\n\
                   Authentication-Results: (x) \"MX.TEST\" 1; dkim=pass\r\n header.d=bank.test\r\nFrom: <joe@fail.test>\r\n\r\nx\r\n";
    let arrived = server.arrived("joe@fail.test", forged);
    assert_eq!(
        results(&arrived),
        ["mx.test; spf=fail smtp.mailfrom=joe@fail.test; dkim=none; dmarc=none header.from=fail.test"]
    );
    assert!(arrived.contains("authentication-results: other.test; spf=pass"), "{arrived}");
    assert!(!arrived.contains("bank.test"), "{arrived}");
    // A notification has the name in HELO, and two addresses in From no domain.
    let arrived = server.arrived("", b"From: a@pass.test, b@fail.test\r\n\r\nx\r\n");
    let found = results(&arrived);
    assert!(found[0].starts_with("mx.test; spf=none smtp.helo="), "{found:?}");
}

#[test]
fn mail_is_rejected_only_when_its_domain_asks_for_it() {
    let checks = "[checks]\nspf = \"enforce\"\ndkim = \"tag\"\ndmarc = \"enforce\"\n\
                  [[rule]]\nheader = [\"List-Id\"]\naccept = true\n\
                  [[rule]]\ntagged = [\"dmarc-quarantine\"]\nhold = \"suspicious\"\n";
    let server = Server::start(&[], &format!("{USERS}{checks}"));
    for (from, author, wanted) in [
        ("joe@pass.test", "joe@pass.test", "250 "),
        ("joe@fail.test", "joe@pass.test", "550 5.7.23 "),
        ("joe@soft.test", "joe@soft.test", "250 "),
        ("joe@broken.test", "joe@broken.test", "250 "),
        ("joe@nowhere.test", "joe@nowhere.test", "250 "),
        ("joe@pass.test", "joe@reject.test", "550 5.7.26 "),
        ("joe@pass.test", "joe@sub.reject.test", "550 5.7.26 "),
        ("joe@pass.test", "joe@watch.test", "250 "),
        ("joe@pass.test", "joe@quarantine.test", "250 "),
        ("", "joe@reject.test", "550 5.7.26 "),
    ] {
        let reply = server.send(from, &message(author));
        assert!(reply.starts_with(wanted), "{from} {author}: {reply}");
    }
    let held = server.daemon.ask(&["queue", "list", "--status", "held"]);
    assert_eq!(held.matches("alice@mx.test").count(), 1, "{held}");
    let mut list = b"List-Id: <x>\r\n".to_vec();
    list.extend(message("joe@reject.test"));
    assert!(server.send("list@fail.test", &list).starts_with("250 "));
    let is_told = |event: &serde_json::Value| event["event"] == "rejected" && event["rule"] == "checks.dmarc";
    crate::common::until("the log names the check", || server.daemon.log().iter().any(is_told));
}

#[test]
fn signatures_of_other_servers_are_verified_whatever_the_size() {
    let Some(mut python) = python_with("dkim") else { return };
    let dir = tempfile::tempdir().unwrap();
    let (name, text) = crate::signatures::new_key(dir.path(), "pass.test", "s1", "rsa");
    let name: &'static str = Box::leak(name.into_boxed_str());
    let server = Server::start(
        &[(name, Record::Txt(text))],
        &format!(
            "{USERS}[checks]\ndkim = \"enforce\"\ndmarc = \"tag\"\n[[rule]]\nfrom = [\"partner.test\"]\n\
             unless = {{ tagged = [\"dkim-pass\"] }}\nreject = \"550 5.7.20 is signed\"\n"
        ),
    );
    let key = dir.path().join("s1.pem");
    let sign = |message: &[u8]| {
        let file = dir.path().join("message");
        fs::write(&file, message).unwrap();
        let mut python = Command::new(python.get_program());
        let out = python.args(["-c", SIGN, "s1", "pass.test"]).arg(&key).arg(&file).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        out.stdout
    };
    let mut large = message("joe@pass.test");
    (0..20_000).for_each(|number| large.extend(format!("line {number}, which is not short\r\n").bytes()));
    for plain in [message("joe@pass.test"), b"From: joe@pass.test\r\n\r\n".to_vec(), large] {
        let signed = sign(&plain);
        let found = results(&server.arrived("joe@fail.test", &signed));
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("dkim=pass header.d=pass.test header.s=s1"), "{found:?}");
        assert!(found[0].contains("dmarc=pass"), "{found:?}");
        let file = dir.path().join("signed");
        fs::write(&file, &signed).unwrap();
        let arguments =
            ["test", "--client", "203.0.113.7", "--from", "a@fail.test", "--to", "alice@mx.test", "--file"];
        let tested = server.daemon.run(&[&arguments[..], &[file.to_str().unwrap()]].concat(), "");
        let said = String::from_utf8_lossy(&tested.stdout);
        assert!(said.contains("pass: d=pass.test s=s1") && !said.contains("fail: d=pass.test"), "{said}");
        let mut changed = signed;
        changed.extend(b"more\r\n");
        let reply = server.send("joe@fail.test", &changed);
        assert!(reply.starts_with("550 5.7.20 "), "{reply}");
    }
    let partner = sign(&message("joe@partner.test"));
    assert!(server.send("joe@partner.test", &partner).starts_with("250 "));
    assert!(
        server.send("joe@partner.test", &message("joe@partner.test")).starts_with("550 5.7.20 is signed")
    );
    // What has no signature is not rejected.
    assert!(server.send("joe@fail.test", &message("joe@pass.test")).starts_with("250 "));
    let _ = python.arg("--version");
    record::seen("dkimpy", "its signatures are verified", "valid, and invalid once the mail is changed");
}

#[test]
fn nothing_is_looked_up_for_mail_of_this_site_and_a_silent_server_refuses_nothing() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let dns = format!(
        "[dns]\nnameservers = [\"{}\"]\ntimeout = \"300ms\"\nattempts = 1\n",
        silent.local_addr().unwrap()
    );
    let checks = "[checks]\nspf = \"enforce\"\ndkim = \"enforce\"\ndmarc = \"enforce\"\n";
    let daemon = Postrider::start(&format!("{dns}{USERS}{checks}"));
    let send = |daemon: &Postrider| {
        let mut client = Client::connect(daemon.address).unwrap();
        client.send("joe@fail.test", &["alice@mx.test"], &message("joe@fail.test")).unwrap()
    };
    assert_eq!(send(&daemon).0, 250);
    crate::common::until("it has arrived", || daemon.mailbox("alice").len() == 1);
    let first = fs::read_to_string(&daemon.mailbox("alice")[0]).unwrap();
    assert!(results(&first).is_empty(), "{first}");
    daemon.reconfigure(&format!("{dns}{USERS}{checks}[relay]\nnetworks = []\n"));
    daemon.ask(&["reload"]);
    assert_eq!(send(&daemon).0, 250);
    crate::common::until("it has arrived", || daemon.mailbox("alice").len() == 2);
    let seen: Vec<String> =
        daemon.mailbox("alice").iter().flat_map(|file| results(&fs::read_to_string(file).unwrap())).collect();
    assert_eq!(
        seen,
        [
            "mx.test; spf=temperror reason=\"TXT records of fail.test: no answer\" smtp.mailfrom=joe@fail.test; dkim=none; \
          dmarc=temperror reason=\"the DMARC record of fail.test could not be looked up\" header.from=fail.test"
        ]
    );
}

#[test]
fn a_test_of_a_file_says_what_the_checks_find() {
    let server = Server::start(&[], &format!("{USERS}[checks]\ndmarc = \"enforce\"\n"));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("mail");
    fs::write(&file, "From: joe@reject.test\nSubject: x\n\nx\n").unwrap();
    let arguments =
        ["test", "--client", "203.0.113.7", "--from", "joe@fail.test", "--to", "alice@mx.test", "--file"];
    let out = server.daemon.run(&[&arguments[..], &[file.to_str().unwrap()]].concat(), "");
    let said = String::from_utf8_lossy(&out.stdout);
    for wanted in ["fail: fail.test, -all", "fail: reject.test, p=reject", "550 5.7.26"] {
        assert!(said.contains(wanted), "{said}{}", String::from_utf8_lossy(&out.stderr));
    }
}
