//! Rules, checks, limits and policy servers, through the daemon and through `postrider test`.

use crate::common::{Postrider, client::Client, free_address, until};
use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    os::unix::net::UnixListener,
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

/// Starts a daemon beside files of maps. Without `[relay]` networks every client is untrusted.
fn start(files: &[(&str, &str)], more: &str) -> Postrider {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(dir.path().join(name), text).unwrap();
    }
    let more = format!("[relay]\nnetworks = []\n[log]\nfile = \"mail.log\"\n{more}");
    Postrider::start_in(dir, free_address(), &more)
}

/// The reply to RCPT in a transaction of its own.
fn rcpt(client: &mut Client, sender: &str, recipient: &str) -> String {
    client.say("RSET").unwrap();
    let mail = client.say(&format!("MAIL FROM:<{sender}>")).unwrap();
    if mail.0 != 250 {
        return mail.1;
    }
    client.say(&format!("RCPT TO:<{recipient}>")).unwrap().1
}

/// Waits for the line of the log about a rejection, and returns its rule.
fn rule_of(daemon: &Postrider, reply: &str) -> String {
    let find = || {
        let is_it =
            |line: &serde_json::Value| line["reply"].as_str().is_some_and(|said| said.contains(reply));
        daemon.log().into_iter().find(is_it)
    };
    until(&format!("the log has {reply}"), || find().is_some());
    find().unwrap()["rule"].as_str().unwrap_or_default().to_owned()
}

const RULES: &str = r#"
[[rule]]
to = ["abuse@*"]
accept = true
[[rule]]
name = "blocked senders"
from = ["text:blocked"]
reject = "550 5.7.1 {from} is not welcome: {text}"
[[rule]]
hello = ["*.slow.test"]
from = ["slow.test"]
defer = "451 4.7.1 later, {client}"
[[rule]]
to = ["old@mx.test"]
redirect = ["joe@mx.test"]
[[rule]]
from = ["*.news.test"]
tag = ["news"]
add_header = ["X-Class: news"]
bcc = ["archive@mx.test"]
[[rule]]
to = ["nowhere@mx.test"]
discard = "nobody reads it"
[[rule]]
header = ["Subject: /lottery/"]
unless = { tagged = ["news"] }
hold = "lottery"
[[rule]]
size = "64KiB"
reject = "552 5.3.4 Too much for {to}"
"#;

#[test]
fn rules_decide_and_the_log_names_them() {
    let daemon = start(&[("blocked", "spam.test bought addresses\n")], RULES);
    let mut client = Client::connect(daemon.address).unwrap();
    assert!(rcpt(&mut client, "x@spam.test", "abuse@mx.test").starts_with("250"));
    let reply = rcpt(&mut client, "x@spam.test", "joe@mx.test");
    assert_eq!(reply, "550 5.7.1 x@spam.test is not welcome: bought addresses");
    assert!(rule_of(&daemon, "not welcome").starts_with("rule \"blocked senders\", line "));
    // Both conditions must hold.
    assert!(rcpt(&mut client, "x@slow.test", "joe@mx.test").starts_with("250"));
    client.say("EHLO a.slow.test").unwrap();
    assert_eq!(rcpt(&mut client, "x@slow.test", "joe@mx.test"), "451 4.7.1 later, 127.0.0.1");
    assert!(rule_of(&daemon, "451 4.7.1").starts_with("rule 3, line "));
    // Relaying is refused before any rule, and by none of them permitted.
    assert!(
        rcpt(&mut client, "x@spam.test", "abuse@far.test")
            .starts_with("550 5.7.1 <abuse@far.test>: Relay access denied")
    );
    // A changed file of a map is read again.
    fs::write(daemon.dir.path().join("blocked"), "new.test x\n").unwrap();
    until("the map is read again", || {
        let mut client = Client::connect(daemon.address).unwrap();
        rcpt(&mut client, "x@new.test", "joe@mx.test").starts_with("550")
    });
    assert!(rcpt(&mut client, "x@spam.test", "joe@mx.test").starts_with("250"));
}

#[test]
fn rules_change_where_a_message_goes_and_what_it_says() {
    let daemon = start(&[("blocked", "spam.test x\n")], RULES);
    let mut client = Client::connect(daemon.address).unwrap();
    let send = |client: &mut Client, from: &str, to: &[&str], subject: &str| {
        client.send(from, to, format!("Subject: {subject}\r\n\r\nx\r\n").as_bytes()).unwrap()
    };
    assert_eq!(send(&mut client, "a@b.test", &["old@mx.test", "nowhere@mx.test"], "x").0, 250);
    until("joe has it", || daemon.mailbox("joe").len() == 1);
    assert!(daemon.mailbox("old").is_empty() && daemon.mailbox("nowhere").is_empty());
    assert_eq!(send(&mut client, "a@b.test", &["nowhere@mx.test"], "x").0, 250);
    // Two recipients, one copy, and the field once.
    assert_eq!(send(&mut client, "a@x.news.test", &["joe@mx.test", "ann@mx.test"], "lottery").0, 250);
    until("the copy", || daemon.mailbox("archive").len() == 1 && daemon.mailbox("ann").len() == 1);
    let text = fs::read_to_string(&daemon.mailbox("archive")[0]).unwrap();
    assert_eq!(text.matches("X-Class: news").count(), 1, "{text}");
    assert_eq!(send(&mut client, "a@b.test", &["joe@mx.test"], "You won the\r\n lottery").0, 250);
    until("it is held", || daemon.ask(&["queue", "count", "--status", "held"]).starts_with('1'));
    let is_held = |line: &serde_json::Value| {
        line["reason"].as_str().is_some_and(|reason| reason.contains("lottery (rule 7"))
    };
    until("the log says why", || daemon.log().iter().any(is_held));
    let log = daemon.log();
    let held = log.iter().position(is_held).unwrap();
    let is_accepted = |line: &serde_json::Value| line["event"] == "accepted" && line["id"] == log[held]["id"];
    assert!(log[..held].iter().any(is_accepted), "accepted, then held: {log:?}");
    let large = format!("Subject: x\r\n\r\n{}", "0123456789012345678901234567890123456789\r\n".repeat(2000));
    let reply = client.send("a@b.test", &["joe@mx.test"], large.as_bytes()).unwrap().1;
    assert_eq!(reply, "552 5.3.4 Too much for joe@mx.test");
}

#[test]
fn mail_of_local_programs_is_for_rules_that_are_for_all() {
    let daemon = start(
        &[],
        "[[rule]]\nto = [\"joe@mx.test\"]\nreject = true\n\
         [[rule]]\nfor = \"all\"\nto = [\"ann@mx.test\"]\nreject = \"550 5.7.1 not for ann\"\n",
    );
    let send = |to: &str| {
        let mut child = Command::new(crate::common::BINARY)
            .args(["sendmail", to])
            .env("POSTRIDER_CONFIG", daemon.config())
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(b"Subject: x\n\nx\n").unwrap();
        let output = child.wait_with_output().unwrap();
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    assert!(send("joe@mx.test").0);
    until("joe has it", || daemon.mailbox("joe").len() == 1);
    let (is_sent, said) = send("ann@mx.test");
    assert!(!is_sent && said.contains("not for ann"), "{said}");
}

#[test]
fn checks_look_at_the_name_in_ehlo_and_at_the_name_of_the_address() {
    let checks = "[checks]\nhello = \"enforce\"\nreverse_name = \"enforce\"\n";
    let daemon = start(
        &[],
        &format!("{checks}[dns]\nnameservers = [\"127.0.0.1:1\"]\ntimeout = \"200ms\"\nattempts = 1\n"),
    );
    let mut client = Client::connect(daemon.address).unwrap();
    client.say("EHLO friend").unwrap();
    assert!(rcpt(&mut client, "a@b.test", "joe@mx.test").starts_with("550 5.7.1 The name friend in EHLO"));
    assert_eq!(rule_of(&daemon, "The name friend"), "checks.hello");
    client.say("EHLO mail.b.test").unwrap();
    // The address has a name, which this machine knows.
    assert!(rcpt(&mut client, "a@b.test", "joe@mx.test").starts_with("250"));
    let arguments = ["--hello", "mail.b.test", "--from", "a@b.test", "--to", "joe@mx.test"];
    let output = Command::new(crate::common::BINARY)
        .args(["test", "--client", "203.0.113.7"])
        .args(arguments)
        .env("POSTRIDER_CONFIG", daemon.config())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    // DNS does not answer: that is no reason to reject for good.
    assert!(text.contains("450 4.7.25"), "{text}");
    daemon.reconfigure(&format!(
        "[relay]\nnetworks = []\n[log]\nfile = \"mail.log\"\n{checks}[hosts]\n\"mail.b.test\" = [\"127.0.0.1\"]\n\
         [[rule]]\nclient_name = [\"*.b.test\"]\nto = [\"secret@mx.test\"]\nreject = \"550 5.7.1 not you\"\n"
    ));
    daemon.ask(&["reload"]);
    let mut client = Client::connect(daemon.address).unwrap();
    client.say("EHLO mail.b.test").unwrap();
    assert!(rcpt(&mut client, "a@b.test", "joe@mx.test").starts_with("250"));
    assert_eq!(rcpt(&mut client, "a@b.test", "secret@mx.test"), "550 5.7.1 not you");
}

#[test]
fn limits_bound_what_a_client_may_do_and_survive_a_reload_and_a_restart() {
    let limits = "[[limit]]\nper = \"client\"\nrecipients = \"3/h\"\nreply = \"450 4.7.1 enough from {client}\"\n\
                  [[limit]]\nper = \"sender\"\nmessages = \"2/h\"\n";
    let daemon = start(&[], limits);
    let mut client = Client::connect(daemon.address).unwrap();
    for _ in 0..2 {
        assert!(rcpt(&mut client, "a@b.test", "joe@mx.test").starts_with("250"));
    }
    assert!(rcpt(&mut client, "a@b.test", "joe@mx.test").starts_with("450 4.7.1 Too much mail"));
    assert!(rcpt(&mut client, "c@b.test", "joe@mx.test").starts_with("250"));
    assert_eq!(rcpt(&mut client, "d@b.test", "joe@mx.test"), "450 4.7.1 enough from 127.0.0.1");
    assert!(rule_of(&daemon, "enough").starts_with("limit 1, line "));
    daemon.ask(&["reload"]);
    let mut client = Client::connect(daemon.address).unwrap();
    assert_eq!(rcpt(&mut client, "e@b.test", "joe@mx.test"), "450 4.7.1 enough from 127.0.0.1");
    let (address, text) = (daemon.address, fs::read_to_string(daemon.config()).unwrap());
    let (dir, status) = daemon.stop();
    assert!(status.success());
    let daemon = Postrider::start_from(dir, address, &text);
    let mut client = Client::connect(daemon.address).unwrap();
    assert_eq!(rcpt(&mut client, "f@b.test", "joe@mx.test"), "450 4.7.1 enough from 127.0.0.1");
}

#[test]
fn clients_that_connect_or_fail_too_often_are_refused_at_the_greeting() {
    let daemon = start(&[], "[[limit]]\nper = \"client\"\nfailures = \"3/h\"\n");
    let mut client = Client::connect(daemon.address).unwrap();
    for _ in 0..3 {
        assert!(rcpt(&mut client, "a@b.test", "x@far.test").starts_with("550"));
    }
    let mut refused = BufReader::new(std::net::TcpStream::connect(daemon.address).unwrap());
    let mut line = String::new();
    refused.read_line(&mut line).unwrap();
    assert!(
        line.starts_with("421 4.7.1 Too many rejected commands or failed logins from 127.0.0.1"),
        "{line}"
    );
    // The session that is open goes on.
    assert!(rcpt(&mut client, "a@b.test", "joe@mx.test").starts_with("250"));
}

/// A policy server: it counts what it is asked, and answers by the sender. Without an answer for a sender it closes.
fn policy_server(path: &Path) -> Arc<AtomicUsize> {
    let (listener, count) = (UnixListener::bind(path).unwrap(), Arc::new(AtomicUsize::new(0)));
    let asked = count.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let asked = asked.clone();
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let (mut stream, mut attributes) = (stream, Vec::new());
                let mut line = String::new();
                while reader.read_line(&mut line).is_ok_and(|count| count > 0) {
                    if line != "\n" {
                        attributes.push(line.trim_end().to_owned());
                        line.clear();
                        continue;
                    }
                    asked.fetch_add(1, Ordering::SeqCst);
                    let has = |text: &str| attributes.iter().any(|attribute| attribute == text);
                    assert!(has("request=smtpd_access_policy") && has("protocol_state=RCPT"));
                    assert!(
                        has("client_address=127.0.0.1") && has("recipient=joe@mx.test"),
                        "{attributes:?}"
                    );
                    let action = match attributes.iter().find_map(|a| a.strip_prefix("sender=")) {
                        Some("grey@b.test") => "DEFER_IF_PERMIT Greylisted",
                        Some("bad@b.test") => "REJECT 5.7.0 listed",
                        Some("named@b.test")
                            if attributes.contains(&"client_name=client.example".to_owned()) =>
                        {
                            "REJECT 5.7.0 named"
                        }
                        Some("field@b.test") => "PREPEND X-Policy: asked",
                        Some("closes@b.test") => return,
                        Some("nonsense@b.test") => "FROBNICATE",
                        _ => "DUNNO",
                    };
                    attributes.clear();
                    line.clear();
                    stream.write_all(format!("action={action}\n\n").as_bytes()).unwrap();
                }
            });
        }
    });
    count
}

#[test]
fn a_policy_server_decides_where_a_rule_asks_it() {
    let dir = tempfile::tempdir().unwrap();
    let asked = policy_server(&dir.path().join("policy.sock"));
    let more = "[relay]\nnetworks = []\n[log]\nfile = \"mail.log\"\n\
                [hosts]\n\"client.example\" = [\"127.0.0.1\"]\n\
                [policy_service.grey]\naddress = \"unix:policy.sock\"\n\
                [policy_service.gone]\naddress = \"unix:gone.sock\"\non_failure = \"pass\"\n\
                [[rule]]\nfrom = [\"b.test\"]\nask = \"gone\"\n\
                [[rule]]\nfrom = [\"b.test\"]\nask = \"grey\"\n\
                [[rule]]\nfrom = [\"b.test\"]\nto = [\"ann@mx.test\"]\nreject = \"550 5.7.1 below\"\n";
    let daemon = Postrider::start_in(dir, free_address(), more);
    let mut client = Client::connect(daemon.address).unwrap();
    for (sender, reply) in [
        ("ok@b.test", "250"),
        ("grey@b.test", "450 4.7.1 Greylisted"),
        ("bad@b.test", "554 5.7.0 listed"),
        // No rule asks for the name of the client.
        ("named@b.test", "554 5.7.0 named"),
        ("closes@b.test", "451 4.3.0"),
        ("nonsense@b.test", "451 4.3.0"),
        ("ok@b.test", "250"),
    ] {
        let said = rcpt(&mut client, sender, "joe@mx.test");
        assert!(said.starts_with(reply), "{sender}: {said}");
    }
    let before = asked.load(Ordering::SeqCst);
    assert!(rcpt(&mut client, "x@other.test", "joe@mx.test").starts_with("250"));
    assert_eq!(asked.load(Ordering::SeqCst), before, "no rule asks about this sender");
    client.say("RSET").unwrap();
    assert_eq!(client.send("field@b.test", &["joe@mx.test"], b"Subject: x\r\n\r\nx\r\n").unwrap().0, 250);
    until("joe has it", || daemon.mailbox("joe").len() == 1);
    assert!(fs::read_to_string(&daemon.mailbox("joe")[0]).unwrap().contains("X-Policy: asked"));
}

#[test]
fn a_map_that_does_not_answer_is_a_temporary_error_and_nothing_else() {
    let daemon = start(
        &[],
        "[map.down]\nsocketmap = \"unix:down.sock\"\n\
         [[rule]]\nfrom = [\"map:down\"]\nto = [\"joe@mx.test\"]\nreject = true\n",
    );
    let mut client = Client::connect(daemon.address).unwrap();
    assert!(rcpt(&mut client, "a@b.test", "joe@mx.test").starts_with("451 4.3.0"));
    assert!(rule_of(&daemon, "451 4.3.0").contains("map:down"));
    // A rule whose other conditions do not hold asks no map.
    assert!(rcpt(&mut client, "a@b.test", "ann@mx.test").starts_with("250"));
    assert!(rcpt(&mut client, "a@b.test", "joe@far.test").starts_with("550 5.7.1"));
}

#[test]
fn a_test_shows_what_the_daemon_does_and_why() {
    let daemon = start(&[("blocked", "spam.test bought addresses\n")], RULES);
    let test = |more: &[&str]| {
        let output = Command::new(crate::common::BINARY)
            .args(["test", "--client", "203.0.113.7"])
            .args(more)
            .env("POSTRIDER_CONFIG", daemon.config())
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
        (output.status.code().unwrap(), text)
    };
    let (code, text) = test(&["--from", "x@spam.test", "--to", "joe@mx.test"]);
    assert_eq!(code, 65, "{text}");
    for part in [
        "mx.test is local",
        "blocked spam.test",
        "\"bought addresses\"",
        "rule 1, line",
        "no: to: joe@mx.test is not abuse@*",
        "yes, from: x@spam.test is",
        "550 5.7.1 x@spam.test is not welcome: bought addresses   (rule \"blocked senders\", line",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let (code, text) = test(&["--from", "x@slow.test", "--hello", "a.slow.test", "--to", "joe@mx.test"]);
    assert_eq!(code, 75, "{text}");
    fs::write(daemon.dir.path().join("message"), "Subject: lottery\n\nx\n").unwrap();
    let file = daemon.dir.path().join("message");
    let (code, text) = test(&["--from", "<>", "--to", "old@mx.test", "--file", file.to_str().unwrap()]);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("joe@mx.test by maildir:") && text.contains("lottery (rule 7"), "{text}");
    for (message, reply) in [
        ("Received: x\n".repeat(51) + "\nx\n", "554 5.4.6 Too many hops"),
        (format!("Subject: x\n\n{}", "x\n".repeat(20 << 20)), "552 5.3.4 Message size exceeds"),
    ] {
        fs::write(&file, message).unwrap();
        let arguments = ["--from", "<>", "--to", "joe@mx.test", "--file", file.to_str().unwrap()];
        let (code, text) = test(&arguments);
        assert!(code == 65 && text.contains(reply), "{reply}: {text}");
    }
    let (code, text) = test(&["--listener", "submission", "--from", "a@mx.test", "--to", "x@far.test"]);
    assert!(code == 65 && text.contains("530 5.7.0"), "{text}");
    let explained = daemon.ask(&["config", "explain", "rules"]);
    assert!(explained.contains("if to is abuse@*") && explained.contains("then discard: nobody reads it"));
    assert!(explained.contains(", for untrusted clients\n"), "{explained}");
    let section = daemon.ask(&["config", "explain", "rule"]);
    assert!(section.starts_with("[[rule]]\n") && section.contains("\nrule.from: "), "{section}");
    let key = daemon.ask(&["config", "explain", "rule.certificate"]);
    assert!(key.ends_with("\nIt is not set.\n"), "{key}");
    assert!(daemon.ask(&["config", "explain", "checks"]).contains("There are no checks."));
    assert!(
        daemon.ask(&["config", "explain", "limits.max_hops"]).contains("`Received` fields of a message.")
    );
    assert!(
        daemon
            .try_ask(&["config", "explain", "limits.max_hop"])
            .unwrap_err()
            .contains("such as `limits.max_hops`")
    );
}

#[test]
fn a_real_greylisting_server_is_asked() {
    let Some(mut postgrey) = crate::common::program("postgrey") else { return };
    let dir = tempfile::tempdir().unwrap();
    let (socket, data) = (dir.path().join("grey.sock"), dir.path().join("grey"));
    fs::create_dir(&data).unwrap();
    let user = String::from_utf8(Command::new("id").arg("-un").output().unwrap().stdout).unwrap();
    let group = String::from_utf8(Command::new("id").arg("-gn").output().unwrap().stdout).unwrap();
    let _postgrey = Ended(
        postgrey
            .arg(format!("--unix={}", socket.display()))
            .arg(format!("--dbdir={}", data.display()))
            .arg(format!("--user={}", user.trim()))
            .arg(format!("--group={}", group.trim()))
            .args(["--delay=1", "--auto-whitelist-clients=0"])
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    until("postgrey listens", || std::os::unix::net::UnixStream::connect(&socket).is_ok());
    let more = format!(
        "[relay]\nnetworks = []\n[policy_service.grey]\naddress = \"unix:{}\"\n[[rule]]\nask = \"grey\"\n",
        socket.display()
    );
    let daemon = Postrider::start_in(dir, free_address(), &more);
    let mut client = Client::connect(daemon.address).unwrap();
    let first = rcpt(&mut client, "a@b.test", "joe@mx.test");
    assert!(first.starts_with("450 4.") && first.to_lowercase().contains("greylist"), "{first}");
    crate::common::record::seen("postgrey", "asked at RCPT about a new client", "450 4.x.x: greylisted");
}

/// Ends a program when it is dropped.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn trust_and_tags_of_one_recipient_do_not_judge_the_mail_of_others() {
    let daemon = start(
        &[],
        r#"
[[rule]]
to = ["abuse@*", "abuse/x@mx.test"]
trust = true
tag = ["complaint"]
[[rule]]
to = ["bob@*"]
tag = ["complaint"]
[[rule]]
header = ["Subject: /lottery/"]
unless = { tagged = ["complaint"] }
reject = "550 5.7.1 no lottery"
[[rule]]
header = ["Subject: /pills/"]
reject = "550 5.7.1 no pills"
"#,
    );
    let mut client = Client::connect(daemon.address).unwrap();
    let mut judged = |subject: &str, recipients: &[(&str, u16)]| {
        client.say("RSET").unwrap();
        client.say("MAIL FROM:<a@far.test>").unwrap();
        for (recipient, code) in recipients {
            let (found, text) = client.say(&format!("RCPT TO:<{recipient}@mx.test>")).unwrap();
            assert_eq!(found, *code, "{recipient}: {text}");
        }
        client.say("DATA").unwrap();
        client.say(&format!("Subject: {subject}\r\n\r\nx\r\n.")).unwrap().0
    };
    assert_eq!(judged("pills", &[("abuse", 250)]), 250, "trusted for its only recipient");
    assert_eq!(judged("pills", &[("joe", 250)]), 550);
    // Trust for some recipients is not trust for the message, whichever comes last.
    assert_eq!(judged("pills", &[("joe", 250), ("abuse", 250)]), 550);
    assert_eq!(judged("pills", &[("abuse", 250), ("joe", 250)]), 550);
    // A recipient that another check refuses gives nothing.
    assert_eq!(judged("pills", &[("joe", 250), ("abuse/x", 550)]), 550);
    assert_eq!(judged("lottery", &[("joe", 250), ("abuse/x", 550)]), 550);
    // Nor is a tag of some.
    assert_eq!(judged("lottery", &[("joe", 250), ("bob", 250)]), 550);
    assert_eq!(judged("lottery", &[("bob", 250), ("joe", 250)]), 550);
    assert_eq!(judged("lottery", &[("bob", 250), ("joe/x", 550)]), 250);
    assert_eq!(judged("lottery", &[("bob", 250), ("abuse", 250)]), 250, "both have it");
    assert_eq!(judged("pills", &[("abuse", 250), ("joe/x", 550)]), 250);
    assert_eq!(judged("lottery", &[("joe", 250)]), 550);
    assert_eq!(judged("lottery", &[("abuse", 250)]), 250);
}
