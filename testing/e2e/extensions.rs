//! Extensions of SMTP that decide how a message leaves.

use crate::common::{
    Postrider,
    client::{Client, hello},
    free_address,
    servers::Postfix,
    sink::Sink,
    tls, until,
};
use std::{
    fs,
    net::SocketAddr,
    process::Stdio,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

const LOG: &str = "[log]\nfile = \"mail.log\"\n";
/// Nobody who connects may relay without being named or logged in.
const NO_RELAY: &str = "[relay]\nnetworks = [\"192.0.2.0/24\"]\n";

fn say(client: &mut Client, line: &str, expected: &str) {
    let (_, reply) = client.say(line).unwrap();
    assert!(reply.starts_with(expected), "{line}: {reply}");
}

/// The rest of a transaction behind MAIL; the queue id.
fn complete(client: &mut Client, to: &str, header: &str) -> String {
    say(client, &format!("RCPT TO:<{to}>"), "250");
    say(client, "DATA", "354");
    let (code, reply) = client.say(&format!("{header}Subject: s\r\n\r\nbody\r\n.")).unwrap();
    assert_eq!(code, 250, "{reply}");
    reply.rsplit(' ').next().unwrap().to_owned()
}

/// A next hop that offers these keywords, and the MAIL commands that it gets.
fn next_hop(keywords: &'static [&'static str]) -> (Sink, Arc<Mutex<Vec<String>>>) {
    let mails: Arc<Mutex<Vec<String>>> = Arc::default();
    let noted = mails.clone();
    let sink = Sink::with(move |line| {
        if line.starts_with("MAIL") {
            noted.lock().unwrap().push(line.to_owned());
        }
        let lines: String = keywords.iter().map(|keyword| format!("250-{keyword}\r\n")).collect();
        line.starts_with("EHLO").then(|| format!("250-sink.test\r\n{lines}250 PIPELINING"))
    });
    (sink, mails)
}

/// Returns whether the mailbox of the sender has a report with all of these texts.
fn is_told(daemon: &Postrider, user: &str, texts: &[&str]) -> bool {
    let files = daemon.mailbox(user);
    let mut reports = files.iter().filter_map(|file| fs::read_to_string(file).ok());
    reports.any(|text| texts.iter().all(|part| text.contains(part)))
}

/// Sends a message with REQUIRETLS over STARTTLS; none where there is no python3.
fn send_with_requiretls(to: SocketAddr, recipient: &str) -> Option<()> {
    let script = format!(
        "import smtplib, ssl\n\
         context = ssl._create_unverified_context()\n\
         smtp = smtplib.SMTP('{}', {})\n\
         smtp.starttls(context=context)\n\
         smtp.ehlo('client.test')\n\
         assert smtp.has_extn('requiretls'), smtp.esmtp_features\n\
         smtp.sendmail('a@mx.test', ['{recipient}'], b'Subject: s\\r\\n\\r\\nx\\r\\n', mail_options=['REQUIRETLS'])\n\
         smtp.quit()\n",
        to.ip(),
        to.port()
    );
    let mut python = crate::common::program("python3")?;
    let output = python.arg("-c").arg(script).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(())
}

#[test]
fn a_message_that_requires_tls_leaves_over_a_verified_connection_only() {
    let made = rcgen::generate_simple_self_signed(["hub.test".to_owned()]).unwrap();
    let (dir, address) = (tempfile::tempdir().unwrap(), free_address());
    fs::write(dir.path().join("cert.pem"), made.cert.pem()).unwrap();
    fs::write(dir.path().join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    let log = "[log]\nfile = \"mail.log\"\n";
    let hub = Postrider::start_in(
        dir,
        address,
        &format!(
            "[local]\ndomains = [\"mx.test\", \"verified.test\", \"may.test\"]\n[tls]\ncertificate = \"cert.pem\"\nkey = \"key.pem\"\n{log}"
        ),
    );
    let route = |domain: &str, host: &str, more: &str| {
        format!("[[route]]\ndomains = [\"{domain}\"]\nsmarthost = \"{host}:{}\"\n{more}", address.port())
    };
    let plain = Sink::start();
    let to_plain = format!("[[route]]\ndomains = [\"plain.test\"]\nsmarthost = \"{}\"\n", plain.address);
    let ca = format!("[tls]\nca_file = \"{}\"\n", hub.dir.path().join("cert.pem").display());
    let hosts = "[hosts]\n\"hub.test\" = [\"127.0.0.1\"]\n\"other.test\" = [\"127.0.0.1\"]\n";
    let routes = route("verified.test", "hub.test", "tls = \"verify\"\n")
        + &route("may.test", "hub.test", "")
        + &route("else.test", "other.test", "")
        + &to_plain;
    let front = Postrider::start(&format!("{routes}{ca}{hosts}{log}"));
    let Some(()) = send_with_requiretls(front.address, "joe@verified.test") else { return };
    until("the hub has delivered the message", || !hub.mailbox("joe").is_empty());
    // The message raises the level of a route, and other mail of the route keeps a connection of its own.
    send_with_requiretls(front.address, "ann@may.test").unwrap();
    let mut client = Client::connect(front.address).unwrap();
    assert_eq!(client.send("a@mx.test", &["eve@may.test"], b"Subject: s\r\n\r\nx\r\n").unwrap().0, 250);
    let is_verified = |recipient: &str| {
        let log = front.log();
        let line = log.iter().find(|line| line["to"] == recipient && line["status"] == "sent")?;
        Some(line["tls"].as_str()?.ends_with(":verified"))
    };
    until("both are delivered", || {
        is_verified("ann@may.test").is_some() && is_verified("eve@may.test").is_some()
    });
    assert_eq!((is_verified("ann@may.test"), is_verified("eve@may.test")), (Some(true), Some(false)));
    for recipient in ["joe@else.test", "joe@plain.test"] {
        send_with_requiretls(front.address, recipient).unwrap();
        let failed = |line: &serde_json::Value| line["to"] == recipient && line["dsn"] == "5.7.30";
        until("the message is returned", || front.log().iter().any(failed));
    }
    assert_eq!(plain.count(), 0);
    let returned = || front.mailbox("a").len() == 2;
    until("the sender is told", returned);
    let text = fs::read_to_string(&front.mailbox("a")[0]).unwrap();
    assert!(text.contains("Status: 5.7.30") && text.contains("REQUIRETLS"), "{text}");
}

#[test]
fn a_held_message_is_tried_at_its_release_also_after_a_restart_and_whatever_operators_do() {
    let (sink, mails) = next_hop(&["FUTURERELEASE 100 2030-01-01T00:00:00Z", "DSN"]);
    let (dir, submission) = (tempfile::tempdir().unwrap(), free_address());
    fs::write(dir.path().join("users"), "jane:{PLAIN}secret\n").unwrap();
    let more = format!(
        "[[listen]]\naddress = \"{submission}\"\nkind = \"submission\"\n{}{LOG}\
         [auth]\nusers = \"passwd:users\"\nallow_clear_text = true\n[extensions]\nmax_future_release = \"1d\"\n",
        sink.route()
    );
    let daemon = Postrider::start_in(dir, free_address(), &more);
    let mut other = Client::connect(daemon.address).unwrap();
    say(&mut other, "MAIL FROM:<jane@mx.test> HOLDFOR=5", "555 5.5.4");
    let mut client = Client::connect(submission).unwrap();
    say(&mut client, "AUTH PLAIN AGphbmUAc2VjcmV0", "235");
    say(&mut client, "MAIL FROM:<jane@mx.test> HOLDFOR=86401", "501 5.5.4");
    say(&mut client, "MAIL FROM:<jane@mx.test> HOLDFOR=86400", "250");
    let id = complete(&mut client, "joe@far.test", "");
    let shown = daemon.ask(&["queue", "show", &id]);
    assert!(shown.contains("not before 20") && shown.contains("waiting"), "{shown}");
    daemon.ask(&["queue", "retry", &id]);
    assert_eq!(daemon.ask(&["queue", "flush"]), "0 messages due now\n");
    daemon.ask(&["queue", "hold", &id]);
    daemon.ask(&["queue", "release", &id]);
    let begun = Instant::now();
    say(&mut client, "MAIL FROM:<jane@mx.test> HOLDFOR=6", "250");
    complete(&mut client, "joe@far.test", "");
    let (dir, address) = daemon.kill();
    let daemon = Postrider::start_in(dir, address, &more);
    until("the second message is released", || sink.count() > 0);
    assert!(begun.elapsed() >= Duration::from_secs(6), "it left after {:?}", begun.elapsed());
    let shown = daemon.ask(&["queue", "show", &id]);
    assert!(shown.contains("not before 20") && shown.contains("waiting"), "{shown}");
    let mail = mails.lock().unwrap().concat();
    assert!(!mail.contains("HOLD"), "{mail}");
}

#[test]
fn a_deadline_is_passed_on_or_the_sender_is_told() {
    let (keeps, mails) = next_hop(&["DELIVERBY 10", "DSN"]);
    let (keeps_not, _) = next_hop(&["DSN"]);
    let down = free_address();
    let route = |domain: &str, to: SocketAddr| {
        format!("[[route]]\ndomains = [\"{domain}\"]\nsmarthost = \"{to}\"\ntls = \"off\"\n")
    };
    let routes = [("a.test", keeps.address), ("b.test", keeps_not.address), ("c.test", down)];
    let routes: String = routes.into_iter().map(|(domain, to)| route(domain, to)).collect();
    let last = Sink::start();
    let lmtp = format!("[[route]]\ndomains = [\"d.test\"]\nlmtp = \"{}\"\n", last.address);
    let daemon = Postrider::start(&format!("{routes}{lmtp}{LOG}[extensions]\nmin_deliver_by = \"2s\"\n"));
    let mut client = Client::connect(daemon.address).unwrap();
    say(&mut client, "MAIL FROM:<a@mx.test> BY=1;R", "501 5.5.4");
    let mut send = |from: &str, by: &str, to: &str| {
        say(&mut client, &format!("MAIL FROM:<{from}@mx.test> BY={by}"), "250");
        complete(&mut client, to, "")
    };
    send("passed", "100;R", "joe@a.test");
    send("traced", "1000;NT", "joe@a.test");
    send("relayed", "1000;N", "joe@b.test");
    send("refused", "1000;R", "joe@b.test");
    send("short", "5;R", "joe@a.test");
    send("final", "1000;N", "joe@d.test");
    send("over", "2;R", "joe@c.test");
    send("late", "2;N", "joe@c.test");
    until("two deadlines are passed on", || keeps.count() == 2);
    let passed = mails.lock().unwrap().clone();
    let seconds = |line: &String| line.split("BY=").nth(1)?.split(';').next()?.parse::<i32>().ok();
    assert!(
        passed
            .iter()
            .any(|line| line.ends_with(";R") && seconds(line).is_some_and(|n| (50..=100).contains(&n))),
        "{passed:?}"
    );
    assert!(passed.iter().any(|line| line.ends_with(";NT")), "{passed:?}");
    let told = |user: &str, texts: &[&str]| until(user, || is_told(&daemon, user, texts));
    told("traced", &["Action: relayed"]);
    told("relayed", &["Action: relayed", "DELIVERBY"]);
    told("refused", &["Action: failed", "Status: 5.3.3", "DELIVERBY"]);
    told("short", &["Action: failed", "Status: 5.4.7"]);
    told("over", &["Action: failed", "Status: 5.4.7", "DELIVERBY", "Deliver-By-Date: "]);
    let is_logged =
        |row: &serde_json::Value| row["deliver_by"].as_str().is_some_and(|by| by.ends_with(";NT"));
    assert!(daemon.log().iter().any(is_logged));
    told("late", &["Action: delayed"]);
    assert_eq!((keeps_not.count(), daemon.mailbox("passed").len()), (1, 0));
    // LMTP is the end of the way: nothing was relayed.
    assert_eq!((last.count(), daemon.mailbox("final").len()), (1, 0));
    let queued = daemon.ask(&["queue", "list", "--json"]);
    assert!(queued.contains("late@mx.test") && !queued.contains("over@mx.test"), "{queued}");
}

#[test]
fn the_deadline_of_a_sender_is_neither_for_lists_nor_for_copies() {
    let (sink, mails) = next_hop(&["DSN"]);
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("aliases"), "staff: one@far.test\nowner-staff: boss\n").unwrap();
    let more = format!(
        "[local]\ndomains = [\"mx.test\"]\n[addresses]\naliases = [\"aliases:aliases\"]\nbcc = [\"copy@far.test\"]\n{}{LOG}",
        sink.route().replace("\"*\"", "\"far.test\"")
    );
    let daemon = Postrider::start_in(dir, free_address(), &more);
    let mut client = Client::connect(daemon.address).unwrap();
    say(&mut client, "MAIL FROM:<a@mx.test> BY=120;R", "250");
    say(&mut client, "RCPT TO:<own@far.test>", "250");
    complete(&mut client, "staff@mx.test", "");
    until("the list and the copy leave", || sink.count() == 2);
    until("the deadline returns the own recipient", || is_told(&daemon, "a", &["own@far.test", "5.3.3"]));
    let passed = mails.lock().unwrap().concat();
    assert!(passed.contains("owner-staff@mx.test") && !passed.contains("BY="), "{passed}");
    assert_eq!(daemon.counter("bounced"), 1);
    let told: Vec<String> =
        daemon.mailbox("boss").iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    assert!(told.is_empty(), "{told:?}");
}

#[test]
fn a_priority_is_passed_on_and_lowered_where_the_client_has_no_right_to_it() {
    let (sink, mails) = next_hop(&["MT-PRIORITY", "DSN"]);
    let chosen = "[extensions]\npriority_policy = \"MIXER\"\npriority_header = true\n";
    let daemon = Postrider::start(&format!("{}{LOG}{chosen}", sink.route()));
    let mut client = Client::connect(daemon.address).unwrap();
    say(&mut client, "MAIL FROM:<a@mx.test> MT-PRIORITY=4", "250 2.1.0");
    complete(&mut client, "joe@far.test", "MT-Priority: 9\r\n");
    say(&mut client, "MAIL FROM:<b@mx.test>", "250 2.1.0");
    complete(&mut client, "joe@far.test", "MT-Priority: -3\r\n");
    until("both leave", || sink.count() == 2);
    let passed = mails.lock().unwrap().concat();
    assert!(passed.contains("MT-PRIORITY=4") && passed.contains("MT-PRIORITY=-3"), "{passed}");
    let text: Vec<String> = sink
        .messages()
        .iter()
        .map(|message| String::from_utf8_lossy(&message.content).into_owned())
        .collect();
    assert!(text.iter().any(|text| text.contains("MT-Priority: 4\r\n") && !text.contains("MT-Priority: 9")));
    let daemon = Postrider::start(&format!("[local]\ndomains = [\"mx.test\"]\n{NO_RELAY}{LOG}{chosen}"));
    let mut client = Client::connect(daemon.address).unwrap();
    say(&mut client, "MAIL FROM:<a@far.test> MT-PRIORITY=4", "250 2.3.6");
    complete(&mut client, "joe@mx.test", "MT-Priority: 9\r\n");
    say(&mut client, "MAIL FROM:<a@far.test> MT-PRIORITY=-4", "250 2.1.0");
    complete(&mut client, "joe@mx.test", "");
    until("both arrive", || daemon.mailbox("joe").len() == 2);
    let text: String = daemon.mailbox("joe").iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    assert!(text.contains("MT-Priority: 0") && text.contains("MT-Priority: -4"), "{text}");
    assert!(!text.contains("MT-Priority: 9") && !text.contains("MT-Priority: 4"), "{text}");
}

#[test]
fn a_listed_peer_names_its_client_and_that_client_has_its_own_rights() {
    let (sink, _) = next_hop(&["DSN"]);
    let (listed, unlisted) = (free_address(), free_address());
    let more = format!(
        "[[listen]]\naddress = \"{listed}\"\nxclient = [\"127.0.0.1\"]\nxforward = [\"127.0.0.0/8\"]\n{}{NO_RELAY}{LOG}",
        sink.route()
    );
    let daemon = Postrider::start_in(tempfile::tempdir().unwrap(), unlisted, &more);
    let mut client = Client::connect(unlisted).unwrap();
    say(&mut client, "XCLIENT ADDR=192.0.2.1", "550 5.7.0");
    say(&mut client, "XFORWARD ADDR=192.0.2.1", "550 5.7.0");
    let mut client = Client::connect(listed).unwrap();
    let try_far = |client: &mut Client, expected: &str| {
        say(client, "EHLO client.test", "250");
        say(client, "MAIL FROM:<a@far.test>", "250");
        say(client, "RCPT TO:<joe@far.test>", expected);
        say(client, "RSET", "250");
    };
    try_far(&mut client, "550 5.7.1");
    for (attributes, expected) in [
        ("ADDR=192.0.2.7 NAME=friend.test", "250"),
        ("ADDR=203.0.113.1", "550 5.7.1"),
        ("ADDR=203.0.113.1 LOGIN=jane@far.test", "550 5.7.1"),
        ("LOGIN=jane@far.test", "550 5.7.1"),
        ("NAME=friend.test", "550 5.7.1"),
        ("ADDR=[UNAVAILABLE] NAME=[UNAVAILABLE]", "550 5.7.1"),
        ("ADDR=IPV6:::ffff:192.0.2.7", "250"),
    ] {
        let mut client = Client::connect(listed).unwrap();
        say(&mut client, &format!("XCLIENT {attributes}"), "220");
        say(&mut client, "MAIL FROM:<a@far.test>", "503 5.5.1");
        try_far(&mut client, expected);
    }
    let mut client = Client::connect(listed).unwrap();
    say(&mut client, "XCLIENT ADDR=203.0.113.9 NAME=spike.test HELO=spike", "220");
    say(&mut client, "MAIL FROM:<a@far.test>", "250");
    complete(&mut client, "joe@mx.test", "");
    // The named client, whose commands the peer may pass on, cannot name another one.
    for verb in ["XCLIENT", "XFORWARD"] {
        say(&mut client, &format!("{verb} ADDR=192.0.2.7"), "550 5.7.0");
    }
    let mut client = Client::connect(listed).unwrap();
    say(&mut client, "XFORWARD ADDR=198.51.100.4 NAME=first.test HELO=first SOURCE=REMOTE", "250");
    say(&mut client, "MAIL FROM:<b@far.test>", "250");
    say(&mut client, "RCPT TO:<joe@far.test>", "550 5.7.1");
    complete(&mut client, "joe@mx.test", "");
    until("both are in the log", || {
        daemon.log().iter().filter(|row| row["event"] == "accepted").count() == 2
    });
    let log: String = daemon.log().iter().map(ToString::to_string).collect();
    assert!(log.contains("203.0.113.9") && log.contains("198.51.100.4") && log.contains("spike"), "{log}");
    until("both arrive", || daemon.mailbox("joe").len() == 2 || sink.count() == 2);
    let mut text: String =
        daemon.mailbox("joe").iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    text.extend(sink.messages().iter().map(|message| String::from_utf8_lossy(&message.content).into_owned()));
    assert!(text.contains("from spike (spike.test [203.0.113.9])"), "{text}");
    assert!(text.contains("(forwarded for first (first.test [198.51.100.4]))"), "{text}");
}

#[test]
fn swaks_names_a_client_by_xclient() {
    let Some(mut swaks) = crate::common::program("swaks") else { return };
    let listed = free_address();
    let more = format!("[[listen]]\naddress = \"{listed}\"\nxclient = [\"127.0.0.1\"]\n{NO_RELAY}{LOG}");
    let daemon = Postrider::start_in(tempfile::tempdir().unwrap(), free_address(), &more);
    swaks.args(["--server", &listed.to_string(), "--from", "a@a.test", "--to", "joe@mx.test"]);
    swaks.args(["--helo", "client.test", "--xclient-name", "spike.test", "--xclient-addr", "203.0.113.9"]);
    let output = swaks.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    until("it is in the Maildir", || daemon.mailbox("joe").len() == 1);
    let text = fs::read_to_string(&daemon.mailbox("joe")[0]).unwrap();
    assert!(text.contains("from client.test (spike.test [203.0.113.9])"), "{text}");
    crate::common::record::seen(
        "swaks",
        "XCLIENT with a name and an address",
        "delivered, and `Received` names that client",
    );
}

#[test]
fn etrn_starts_the_queue_of_a_domain_for_clients_that_may() {
    let (down, other) = (free_address(), free_address());
    let route = |domain: &str, to: SocketAddr| {
        format!("[[route]]\ndomains = [\"{domain}\"]\nsmarthost = \"{to}\"\ntls = \"off\"\n")
    };
    let routes = route("queued.test", down) + &route("other.test", other) + &route("*.shared.test", other);
    let retries = "[queue]\nretry_min = \"1h\"\nretry_max = \"2h\"\n";
    let daemon = Postrider::start(&format!("{routes}{LOG}{retries}[extensions]\netrn = \"trusted\"\n"));
    let mut client = Client::connect(daemon.address).unwrap();
    assert!(hello(daemon.address).contains("250-ETRN\n"));
    say(&mut client, "ETRN queued.test", "251 2.0.0");
    for to in ["joe@queued.test", "jane@queued.test", "joe@other.test"] {
        say(&mut client, "MAIL FROM:<>", "250");
        complete(&mut client, to, "");
    }
    let has_failed =
        |to: &str| daemon.log().iter().any(|row| row["destination"].as_str().is_some_and(|d| d.contains(to)));
    until("the destinations are suspended", || {
        has_failed(&down.to_string()) && has_failed(&other.to_string())
    });
    let (back, elsewhere) = (Sink::at(down, |_| None), Sink::at(other, |_| None));
    say(&mut client, "ETRN mx.test", "459 4.7.1");
    say(&mut client, "ETRN queued.test", "253 2.0.0 Ok, 2 pending messages");
    until("the mail leaves", || back.count() == 2);
    assert_eq!(elsewhere.count(), 0, "the other domain waits");
    // The next hop of several domains is started for all, and no number is said of one.
    say(&mut client, "ETRN empty.shared.test", "250 2.0.0");
    until("the mail of the other domain leaves", || elsewhere.count() == 1);
    let closed = Postrider::start(&format!("{routes}{NO_RELAY}[extensions]\netrn = \"trusted\"\n"));
    let mut client = Client::connect(closed.address).unwrap();
    assert!(!hello(closed.address).contains("ETRN"), "nobody is offered what is refused");
    say(&mut client, "ETRN queued.test", "459 4.7.1");
    let usual = Postrider::start("");
    let mut client = Client::connect(usual.address).unwrap();
    say(&mut client, "ETRN queued.test", "502 5.5.1");
}

#[test]
fn etrn_means_subdomains_by_their_routes_and_mail_that_requires_tls() {
    let (down, secure) = (free_address(), free_address());
    let route = |domain: &str, to: SocketAddr| {
        format!("[[route]]\ndomains = [\"{domain}\"]\nsmarthost = \"{to}\"\ntls = \"may\"\n")
    };
    let routes = route("down.sub.test", down) + &route("secure.test", secure);
    let retries = "[queue]\nretry_min = \"1h\"\nretry_max = \"2h\"\n";
    let daemon = Postrider::start(&format!("{routes}{LOG}{retries}[extensions]\netrn = \"trusted\"\n"));
    let mut client = Client::connect(daemon.address).unwrap();
    say(&mut client, "MAIL FROM:<>", "250");
    complete(&mut client, "joe@down.sub.test", "");
    let (mut over_tls, _) = tls::Client::starttls(daemon.address, &tls::client_config(None)).unwrap();
    for line in ["MAIL FROM:<> REQUIRETLS", "RCPT TO:<joe@secure.test>", "DATA", "Subject: x\r\n\r\nx\r\n."] {
        assert!(over_tls.say(line).unwrap().starts_with(['2', '3']), "{line}");
    }
    let is_suspended = |to: SocketAddr| {
        let to = to.to_string();
        daemon.log().iter().any(|row| row["destination"].as_str().is_some_and(|d| d.contains(&to)))
    };
    until("both wait", || is_suspended(down) && is_suspended(secure));
    say(&mut client, "ETRN secure.test", "253 2.0.0 Ok, 1 pending messages");
    let back = Sink::at(down, |_| None);
    say(&mut client, "ETRN sub.test", "251 2.0.0");
    say(&mut client, "ETRN @sub.test", "250 2.0.0");
    until("the mail leaves", || back.count() == 1);
}

#[test]
fn vrfy_and_expn_answer_by_policy_with_the_real_users_and_aliases() {
    let start = |more: &str| {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("aliases"), "list: joe, jane, far@else.test\nfar: jürgen@else.test\n")
            .unwrap();
        let local = "[local]\ndomains = [\"mx.test\", \"closed.test\"]\nusers = [\"joe\", \"jane\"]\n\
                     [[route]]\ndomains = [\"closed.test\"]\nreject = \"550 5.1.2 closed\"\n";
        let text = format!("{local}[addresses]\naliases = [\"aliases:aliases\"]\n{more}");
        Postrider::start_in(dir, free_address(), &text)
    };
    let usual = start("");
    let mut client = Client::connect(usual.address).unwrap();
    say(&mut client, "VRFY joe", "252");
    say(&mut client, "VRFY nobody", "252");
    say(&mut client, "EXPN list", "502 5.5.1");
    let open = start("[extensions]\nvrfy = \"trusted\"\nexpn = \"trusted\"\n");
    let mut client = Client::connect(open.address).unwrap();
    say(&mut client, "VRFY joe", "250 2.1.5 <joe@mx.test>");
    say(&mut client, "VRFY <jane@mx.test>", "250 2.1.5 <jane@mx.test>");
    say(&mut client, "VRFY nobody", "550 5.1.1");
    say(&mut client, "VRFY joe@else.test", "252");
    say(&mut client, "EXPN joe", "250 2.1.5 <joe@mx.test>");
    client.write(b"EXPN list\r\n").unwrap();
    let (code, last) = client.reply().unwrap();
    let members = ["joe@mx.test", "jane@mx.test", "far@else.test"].map(|to| format!("250 2.1.5 <{to}>"));
    assert!(code == 250 && members.contains(&last), "{last}");
    say(&mut client, "EXPN nobody", "550 5.1.1");
    say(&mut client, "VRFY joe@closed.test", "550 5.1.2 closed");
    say(&mut client, "VRFY joe smtputf8", "250 2.1.5 <joe@mx.test>");
    say(&mut client, "VRFY jürgen", "553 5.6.7");
    say(&mut client, "VRFY jürgen SMTPUTF8", "550 5.1.1");
    say(&mut client, "EXPN far", "252 2.6.8");
    say(&mut client, "EXPN far SMTPUTF8", "250 2.1.5 <jürgen@else.test>");
    let closed = start(&format!("{NO_RELAY}[extensions]\nvrfy = \"trusted\"\nexpn = \"trusted\"\n"));
    let mut client = Client::connect(closed.address).unwrap();
    say(&mut client, "VRFY nobody", "252");
    say(&mut client, "EXPN list", "502 5.5.1");
}

#[test]
fn postfix_hands_on_by_xforward_the_client_that_it_was_told_by_xclient() {
    let listed = free_address();
    let more = format!("[[listen]]\naddress = \"{listed}\"\nxforward = [\"127.0.0.1\"]\n{LOG}");
    let daemon = Postrider::start_in(tempfile::tempdir().unwrap(), free_address(), &more);
    let main = format!(
        "relayhost = [127.0.0.1]:{}\nsmtp_send_xforward_command = yes\nsmtpd_authorized_xclient_hosts = 127.0.0.1\n",
        listed.port()
    );
    let Some(postfix) = Postfix::start(&main) else { return };
    let mut client = Client::connect(postfix.address).unwrap();
    say(&mut client, "XCLIENT ADDR=203.0.113.9 NAME=spike.test", "220");
    say(&mut client, "EHLO spike", "250");
    let (code, reply) = client.send("a@far.test", &["joe@mx.test"], b"Subject: s\r\n\r\nx\r\n").unwrap();
    assert_eq!(code, 250, "{reply}");
    until("it is in the Maildir", || daemon.mailbox("joe").len() == 1);
    let text = fs::read_to_string(&daemon.mailbox("joe")[0]).unwrap();
    assert!(text.contains("(forwarded for spike (spike.test [203.0.113.9]))"), "{text}");
    let names_client = |line: &serde_json::Value| line.to_string().contains("203.0.113.9");
    until("the log has the client", || daemon.log().iter().any(names_client));
    let what = "the client that Postfix was told by XCLIENT is in the log and in `Received`";
    crate::common::record::seen("Postfix", "Postfix to Postrider, with XFORWARD", what);
}
