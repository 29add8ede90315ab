//! The text log in the format of Postfix, judged by the programs that read Postfix's log.

use crate::common::{Postrider, client::Client, free_address, program, sink::Sink, unpacked, until};
use std::{
    fs,
    io::Write as _,
    net::TcpStream,
    os::unix::net::UnixDatagram,
    time::{Duration, Instant},
};

const CONFIG: &str = "\
[relay]\nnetworks = []\n\
[local]\ndomains = [\"mx.test\"]\nusers = [\"joe\"]\n\
[auth]\nusers = \"passwd:users\"\nallow_clear_text = true\n\
[log]\nformat = \"postfix\"\nfile = \"mail.log\"\n";

/// Returns the lines of the log that have a text.
fn lines(daemon: &Postrider, text: &str) -> Vec<String> {
    let log = fs::read_to_string(daemon.dir.path().join("mail.log")).unwrap_or_default();
    log.lines().filter(|line| line.contains(text)).map(str::to_owned).collect()
}

fn wait_for(daemon: &Postrider, text: &str) -> String {
    until(&format!("the log has {text}"), || !lines(daemon, text).is_empty());
    lines(daemon, text).remove(0)
}

/// Starts a daemon with a user, and a second one that relays for everybody on this machine.
fn start(config: &str) -> Postrider {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("users"), "jane:{PLAIN}secret\n").unwrap();
    Postrider::start_in(dir, free_address(), config)
}

#[test]
fn hostile_clients_have_the_lines_that_fail2ban_looks_for() {
    let daemon = start(CONFIG);
    let mut client = Client::connect(daemon.address).unwrap();
    client.say("MAIL FROM:<a@far.test>").unwrap();
    assert!(client.say("RCPT TO:<x@else.test>").unwrap().1.starts_with("550 5.7.1"));
    assert!(client.say("RCPT TO:<nobody@mx.test>").unwrap().1.starts_with("550 5.1.1"));
    client.say("RSET").unwrap();
    assert_eq!(client.say("AUTH PLAIN AGphbmUAa2FwdXR0OQ==").unwrap().0, 535);
    client.say("QUIT").unwrap();
    // A client that goes away, and one whose TLS handshake is none.
    drop(Client::connect(daemon.address).unwrap());
    let mut broken = Client::connect(daemon.address).unwrap();
    assert_eq!(broken.say("STARTTLS").unwrap().0, 220);
    let mut stream = broken.into_stream();
    stream.write_all(b"this is no handshake\r\n\r\n").unwrap();
    let mut early = TcpStream::connect(daemon.address).unwrap();
    early.write_all(b"EHLO x.test\r\nDATA\r\nSubject: early\r\n").unwrap();

    let relay = wait_for(&daemon, "Relay access denied");
    assert!(relay.contains("postfix/smtpd[") && relay.contains("]: NOQUEUE: reject: RCPT from unknown[127.0.0.1]: 550 5.7.1 <x@else.test>: Relay access denied; from=<a@far.test> to=<x@else.test> proto=ESMTP"), "{relay}");
    wait_for(
        &daemon,
        "550 5.1.1 <nobody@mx.test>: Recipient address rejected: User unknown; from=<a@far.test>",
    );
    wait_for(&daemon, "warning: unknown[127.0.0.1]: SASL PLAIN authentication failed: ");
    assert!(lines(&daemon, "kaputt9").is_empty(), "no password is in the log");
    wait_for(
        &daemon,
        "disconnect from unknown[127.0.0.1] ehlo=1 auth=0/1 mail=1 rcpt=0/2 rset=1 quit=1 commands=4/7",
    );
    wait_for(&daemon, "lost connection after EHLO from unknown[127.0.0.1]");
    wait_for(&daemon, "SSL_accept error from unknown[127.0.0.1]: ");
    drop(early);

    let Some(tree) = unpacked("fail2ban") else { return };
    let Some(mut python) = program("python3") else { return };
    // Its own address, which fail2ban's filters ignore nowhere.
    let log = daemon.dir.path().join("mail.log");
    python
        .env("PYTHONPATH", tree.join("usr/lib/python3/dist-packages"))
        .arg(tree.join("usr/bin/fail2ban-regex"));
    python
        .args(["--print-all-matched"])
        .arg(&log)
        .arg(format!("{}[mode=aggressive]", tree.join("etc/fail2ban/filter.d/postfix.conf").display()));
    let seen = python.output().unwrap();
    let said = String::from_utf8_lossy(&seen.stdout).into_owned() + &String::from_utf8_lossy(&seen.stderr);
    for matched in ["Relay access denied", "User unknown", "SASL PLAIN authentication failed"] {
        let all = said.split("Matched line(s)").nth(1).unwrap_or_else(|| panic!("{said}"));
        assert!(all.contains(matched), "{matched}: {said}");
    }
}

#[test]
fn the_life_of_deferred_returned_and_expired_mail_is_in_the_log() {
    let hop =
        Sink::with(|line| line.starts_with("RCPT TO:<bad").then(|| "550 5.1.1 no such user".to_owned()));
    let down = free_address();
    let config = format!(
        "[log]\nformat = \"postfix\"\nfile = \"mail.log\"\n[queue]\nexpire = \"15s\"\ndelay_warning = \"15s\"\n\
         [[route]]\ndomains = [\"down.test\"]\nsmarthost = \"{down}\"\n{}",
        hop.route()
    );
    let daemon = start(&config);
    let mut client = Client::connect(daemon.address).unwrap();
    let content = b"Subject: x\r\nMessage-ID: <one@far.test>\r\n\r\nx\r\n";
    for to in ["good@far.test", "bad@far.test", "first@down.test"] {
        assert_eq!(client.send("joe@mx.test", &[to], content).unwrap().0, 250);
    }
    wait_for(&daemon, "is suspended: ");
    // The destination is down already: this message is not tried, and has a line all the same.
    assert_eq!(client.send("joe@mx.test", &["second@down.test"], content).unwrap().0, 250);
    wait_for(&daemon, "to=<second@down.test>, relay=none");
    client.say("QUIT").unwrap();
    wait_for(&daemon, "status=sent");
    wait_for(&daemon, "status=bounced (550 5.1.1 no such user");
    for to in ["first", "second"] {
        let line = wait_for(&daemon, &format!("to=<{to}@down.test>, relay=none"));
        assert!(
            line.contains("postfix/error[")
                && line.contains("dsn=4.4.1, status=deferred (delivery temporarily suspended: connect to "),
            "{line}"
        );
        assert!(!line.contains("os error"), "{line}");
    }
    until("the report has left", || daemon.ask(&["queue", "count"]) == "2\n");
    daemon.ask(&["queue", "hold", "all"]);
    daemon.ask(&["queue", "release", "all"]);
    wait_for(&daemon, "Placed on hold: 2 messages");
    until("both have expired", || {
        lines(&daemon, "from=<joe@mx.test>, status=expired, returned to sender").len() == 2
    });
    until("the notifications are named", || lines(&daemon, "sender non-delivery notification: ").len() == 3);
    until("the queue is empty", || daemon.ask(&["queue", "count"]) == "0\n");
    wait_for(&daemon, "message-id=<one@far.test>");

    let Some(mut pflogsumm) = program("pflogsumm") else { return };
    let seen = pflogsumm.arg("--smtpd_stats").arg(daemon.dir.path().join("mail.log")).output().unwrap();
    assert!(seen.stderr.is_empty(), "{}", String::from_utf8_lossy(&seen.stderr));
    let said = String::from_utf8_lossy(&seen.stdout).into_owned();
    let counted = |name: &str| {
        let line = said.lines().find(|line| {
            line.trim_end().ends_with(&format!("  {name}")) || line.contains(&format!("   {name}"))
        });
        let line = line.unwrap_or_else(|| panic!("{name}: {said}"));
        line.split_whitespace().next().unwrap().parse::<u32>().unwrap()
    };
    assert!(counted("delivered") >= 1 && counted("bounced") >= 1 && counted("deferred") >= 2, "{said}");
    assert!(counted("connections") >= 1, "{said}");
}

#[test]
fn what_a_limit_refuses_is_in_the_log_and_in_the_history_with_its_addresses() {
    let daemon = start(
        "[log]\nformat = \"postfix\"\nfile = \"mail.log\"\n\
         [limits]\nmax_message_size = \"100KiB\"\nmax_recipients = 100\nmax_hops = 3\n",
    );
    let mut client = Client::connect(daemon.address).unwrap();
    assert_eq!(client.say("MAIL FROM:<big@far.test> SIZE=200000").unwrap().0, 552);
    client.say("MAIL FROM:<loop@far.test>").unwrap();
    client.say("RCPT TO:<joe@mx.test>").unwrap();
    client.say("DATA").unwrap();
    client.write(&b"Received: by x\r\n".repeat(5)).unwrap();
    assert_eq!(client.say("\r\n.").unwrap().0, 554);
    client.say("MAIL FROM:<many@far.test>").unwrap();
    for number in 0..100 {
        assert_eq!(client.say(&format!("RCPT TO:<joe+{number}@mx.test>")).unwrap().0, 250);
    }
    assert_eq!(client.say("RCPT TO:<ann@mx.test>").unwrap().0, 452);
    client.say("QUIT").unwrap();
    for (stage, code, addresses) in [
        ("MAIL", "552 5.3.4", "from=<big@far.test> proto"),
        ("DATA", "554 5.4.6", "from=<loop@far.test> to=<joe@mx.test> proto"),
        ("RCPT", "452 4.5.3", "from=<many@far.test> to=<ann@mx.test> proto"),
    ] {
        let line = wait_for(&daemon, &format!("; {addresses}"));
        let begin = format!("NOQUEUE: reject: {stage} from unknown[127.0.0.1]: {code} ");
        assert!(line.contains(&begin), "{line}");
    }
    until("the history has it", || {
        daemon.ask(&["history", "query", "--sender", "loop@far.test"]).contains("554 5.4.6")
    });
}

#[test]
fn the_system_log_gets_the_lines_of_postfix() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("syslog");
    let log = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    log.set_read_timeout(Some(crate::common::WAIT_TIMEOUT)).unwrap();
    let daemon = start(&format!("[log]\nformat = \"syslog\"\nsyslog = \"{}\"\n", path.display()));
    let mut client = Client::connect(daemon.address).unwrap();
    client.say("QUIT").unwrap();
    let mut bytes = [0; 1000];
    loop {
        let count = log.recv(&mut bytes).unwrap();
        let line = String::from_utf8_lossy(&bytes[..count]).into_owned();
        assert!(line.starts_with('<') && line.contains(" postfix/"), "{line}");
        if line.contains("disconnect from unknown[127.0.0.1] ehlo=1 quit=1 commands=2") {
            break;
        }
    }
}

#[test]
fn a_log_that_nobody_reads_delays_no_mail_and_no_stop_and_status_says_so() {
    let local = "[local]\ndomains = [\"mx.test\"]\nusers = [\"joe\"]\n[history]\nenabled = true\n";
    let made = |kind: &str| {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("unread");
        let more = match kind {
            "socket" => format!("[log]\nfile = \"mail.log\"\nsyslog = \"{}\"\n", log.display()),
            "pipe" => {
                let made = std::process::Command::new("mkfifo").arg(&log).status().unwrap();
                assert!(made.success());
                format!("[log]\nfile = \"{}\"\n", log.display())
            }
            _ => "[log]\nfile = \"/dev/full\"\n".to_owned(),
        };
        let server = (kind == "socket").then(|| UnixDatagram::bind(&log).unwrap());
        (Postrider::start_in(dir, free_address(), &format!("{local}{more}")), server)
    };
    for kind in ["socket", "pipe", "full"] {
        let (daemon, _server) = made(kind);
        let mut client = Client::connect(daemon.address).unwrap();
        // More than the socket or the pipe holds.
        for _ in 0..200 {
            assert_eq!(
                client.send("a@far.test", &["joe@mx.test"], b"Subject: x\r\n\r\nx\r\n").unwrap().0,
                250
            );
        }
        until("all are delivered", || daemon.counter("delivered") == 200);
        let found =
            || daemon.ask(&["history", "query", "--sender", "a@far.test", "--limit", "1000", "--json"]);
        until("the history has all", || found().matches("\"event\":\"completed\"").count() == 200);
        let status = || daemon.ask(&["status"]);
        let path = daemon.dir.path().display();
        let said = match kind {
            "socket" => {
                format!("EVENTS ARE NOT LOGGED: write to the system log {path}/unread: it does not read; ")
            }
            "pipe" => format!(
                "EVENTS ARE NOT LOGGED: nobody reads the delivery log {path}/unread at its other end: "
            ),
            _ => "EVENTS ARE NOT LOGGED: write the delivery log /dev/full: ".to_owned(),
        };
        until("status says so", || status().contains(&said));
        if kind == "pipe" {
            assert!(status().contains(" events in memory"), "{}", status());
        } else {
            until("status counts", || {
                status().contains(" lines lost") && status().contains("since the start")
            });
        }
        let doctor = daemon.run(&["doctor"], "");
        let told = String::from_utf8_lossy(&doctor.stdout);
        assert!(told.contains("events are not logged: "), "{doctor:?}");
        assert!(kind == "pipe" || told.contains(" lines of the logs lost since the start"), "{doctor:?}");
        assert!(daemon.ask(&["status", "--prometheus"]).contains("postrider_log_faults 1"), "{kind}");
        drop(client);
        let begun = Instant::now();
        let (_dir, status) = daemon.stop();
        assert!(
            status.success() && begun.elapsed() < Duration::from_secs(15),
            "{kind}: {:?}",
            begun.elapsed()
        );
    }
}
