//! Logins and submission (RFC 4954, RFC 6409), through the daemon.

use crate::common::{Postrider, client::Client, free_address, record::seen, servers::dovecot_auth, until};
use std::{
    fs,
    io::Write as _,
    process::{Command, Stdio},
    time::Duration,
};

const MAIL: &[u8] = b"From: jane@mx.test\r\nTo: joe@mx.test\r\nSubject: s\r\n\r\nbody\r\n";

/// `base64("\0user\0password")`.
fn plain(user: &str, password: &str) -> String {
    format!("AUTH PLAIN {}", base64(format!("\0{user}\0{password}").as_bytes()))
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let group = |chunk: &[u8]| {
        let octet = |at: usize| u32::from(*chunk.get(at).unwrap_or(&0));
        let bits = octet(0) << 16 | octet(1) << 8 | octet(2);
        let digit = |at: usize| {
            if at > chunk.len() { '=' } else { DIGITS[(bits >> (18 - 6 * at) & 63) as usize] as char }
        };
        (0..4).map(digit).collect::<String>()
    };
    bytes.chunks(3).map(group).collect()
}

/// A line of a file of users, made by `postrider auth hash`.
fn hashed(scheme: &str, user: &str, password: &str) -> String {
    let mut child = Command::new(crate::common::BINARY)
        .args(["auth", "hash", "--scheme", scheme, user])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(format!("{password}\n").as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

/// A daemon with a listener for submission, and the address of that listener.
fn submission(users: &str, more: &str) -> (Postrider, std::net::SocketAddr) {
    let (dir, address) = (tempfile::tempdir().unwrap(), free_address());
    fs::write(dir.path().join("users"), users).unwrap();
    let listen = format!("[[listen]]\naddress = \"{address}\"\nkind = \"submission\"\n");
    let auth = "[auth]\nusers = \"passwd:users\"\nallow_clear_text = true\n";
    let log = "[log]\nfile = \"mail.log\"\n[relay]\nnetworks = [\"192.0.2.0/24\"]\n";
    let daemon = Postrider::start_in(dir, free_address(), &format!("{listen}{more}{auth}{log}"));
    (daemon, address)
}

fn say(client: &mut Client, line: &str, expected: &str) {
    let (_, reply) = client.say(line).unwrap();
    assert!(reply.starts_with(expected), "{line}: {reply}");
}

#[test]
fn a_user_logs_in_and_sends_to_everywhere_and_others_do_not() {
    let users = hashed("argon2id", "jane", "secret") + &hashed("bcrypt", "joe@mx.test", "t\u{f6}p");
    let (daemon, address) = submission(&users, "");
    let mut client = Client::connect(address).unwrap();
    say(&mut client, "MAIL FROM:<jane@mx.test>", "530 5.7.0 Authentication is needed");
    say(&mut client, &plain("jane", "secret"), "235 2.7.0");
    say(&mut client, &plain("jane", "secret"), "503 5.5.1 Already authenticated");
    say(&mut client, "MAIL FROM:<joe@mx.test>", "553 5.7.1");
    // The smarthost does not exist, but the relay is permitted.
    say(&mut client, "MAIL FROM:<jane@mx.test>", "250");
    say(&mut client, "RCPT TO:<x@elsewhere.test>", "250");
    say(&mut client, "RSET", "250");
    let reply = client.send("jane+list@mx.test", &["joe@mx.test"], MAIL).unwrap();
    assert_eq!(reply.0, 250, "{}", reply.1);
    until("the mail is in the Maildir", || !daemon.mailbox("joe").is_empty());
    let text = fs::read_to_string(&daemon.mailbox("joe")[0]).unwrap();
    assert!(
        text.contains("\nDate: ") && text.contains("\nMessage-ID: <") && text.contains("with ESMTPA id "),
        "{text}"
    );
    assert!(text.contains("Received: from client.test ([127.0.0.1])"), "{text}");
    let mut client = Client::connect(address).unwrap();
    say(&mut client, &plain("JOE@mx.test", "t\u{f6}p"), "235");
    say(&mut client, "MAIL FROM:<joe@mx.test>", "250");
    // The other listener takes the login, too, but needs none for local mail.
    let mut client = Client::connect(daemon.address).unwrap();
    say(&mut client, "MAIL FROM:<x@elsewhere.test>", "250");
    say(&mut client, "RCPT TO:<joe@mx.test>", "250");
    say(&mut client, "RCPT TO:<x@elsewhere.test>", "550 5.7.1");
}

#[test]
fn what_the_program_wrote_itself_is_not_added_and_the_client_can_be_hidden() {
    let (daemon, address) = submission(&hashed("sha512-crypt", "jane", "secret"), "hide_client = true\n");
    let mut client = Client::connect(address).unwrap();
    say(&mut client, &plain("jane", "secret"), "235");
    let mail =
        b"Date: Mon, 23 Nov 2026 10:00:00 +0000\r\nMessage-ID: <own@mx.test>\r\nSubject: s\r\n\r\nbody\r\n";
    assert_eq!(client.send("jane@mx.test", &["joe@mx.test"], mail).unwrap().0, 250);
    until("the mail is in the Maildir", || !daemon.mailbox("joe").is_empty());
    let text = fs::read_to_string(&daemon.mailbox("joe")[0]).unwrap();
    assert_eq!((text.matches("Date:").count(), text.matches("Message-ID:").count()), (1, 1), "{text}");
    assert!(!text.contains("127.0.0.1") && !text.contains("client.test"), "{text}");
    let is_named = |line: &serde_json::Value| {
        line["event"] == "accepted" && line["login"] == "jane" && line.to_string().contains("127.0.0.1")
    };
    until("the log has the client", || daemon.log().iter().any(is_named));
}

#[test]
fn each_wrong_password_takes_longer_and_the_fifth_ends_the_session() {
    let (daemon, address) = submission(&hashed("scram-sha-256", "jane", "secret"), "");
    let mut client = Client::connect(address).unwrap();
    let begun = std::time::Instant::now();
    say(
        &mut client,
        &plain("jane", "Secret"),
        "535 5.7.8 Authentication failed: wrong user name or password",
    );
    assert!(begun.elapsed() >= Duration::from_secs(1));
    // Somebody who does not exist gets the same words.
    say(
        &mut client,
        &plain("nobody", "secret"),
        "535 5.7.8 Authentication failed: wrong user name or password",
    );
    say(&mut client, "AUTH PLAIN !", "501 5.5.2");
    say(&mut client, "AUTH PLAIN =", "501 5.5.2");
    say(&mut client, "AUTH CRAM-MD5", "504 5.5.4");
    say(&mut client, "AUTH LOGIN", "334 VXNlcm5hbWU6");
    say(&mut client, "*", "501 5.7.0");
    // Another's name behind the right password is no better.
    let other = format!("AUTH PLAIN {}", base64(b"joe\0jane\0secret"));
    say(&mut client, &other, "535");
    say(&mut client, &plain("jane", "secret2"), "535");
    say(&mut client, &plain("jane", "secret3"), "421 4.7.0");
    assert!(client.reply().is_err(), "the connection is closed");
    let failed: Vec<_> = daemon.log().into_iter().filter(|line| line["stage"] == "AUTH PLAIN").collect();
    assert!(
        failed
            .iter()
            .any(|line| line["login"] == "nobody" && line["client"].to_string().contains("127.0.0.1"))
    );
    let text = fs::read_to_string(daemon.dir.path().join("mail.log")).unwrap();
    assert!(!text.to_lowercase().contains("secret"), "no password is in the log: {text}");
}

#[test]
fn a_client_that_failed_too_often_cannot_log_in_with_the_right_password_either() {
    let users = "jane:{PLAIN}secret\n";
    let (daemon, address) = submission(users, "");
    daemon.reconfigure(&format!(
        "[[listen]]\naddress = \"{address}\"\nkind = \"submission\"\n[auth]\nusers = \"passwd:users\"\n\
         allow_clear_text = true\nmax_failures = 2\n"
    ));
    daemon.ask(&["reload"]);
    for password in ["x", "y"] {
        let mut client = Client::connect(address).unwrap();
        say(&mut client, &plain("jane", password), "535");
    }
    let mut client = Client::connect(address).unwrap();
    say(&mut client, &plain("jane", "secret"), "454 4.7.0");
}

#[test]
fn who_logged_in_before_does_so_while_strangers_use_up_the_checks_of_passwords() {
    let slow = hashed("bcrypt", "jane", "secret");
    let users = slow.clone() + &slow.replacen("jane", "joe", 1);
    let (daemon, address) = submission(&users, "");
    let mut known = Client::connect(address).unwrap();
    say(&mut known, &plain("jane", "secret"), "235");
    let mut known = Client::connect(address).unwrap();
    let guess = |number: usize| {
        let mut client = Client::connect_from(&format!("127.0.1.{number}"), address).unwrap();
        client.write(format!("{}\r\n", plain("joe", "wrong")).as_bytes()).unwrap();
        client
    };
    let mut strangers: Vec<_> = (1..=80).map(guess).collect();
    let told = strangers.last_mut().unwrap().reply().unwrap().1;
    assert!(told.starts_with("454 4.7.0"), "{told}");
    // The memory of passwords that were right has none of joe.
    say(&mut known, &plain("joe", "secret"), "235");
    // Only the places of the few that were checked meanwhile were free.
    let mut more: Vec<_> = (81..=120).map(guess).collect();
    let told = more.last_mut().unwrap().reply().unwrap().1;
    assert!(told.starts_with("454 4.7.0"), "{told}");
    let status = daemon.ask(&["status"]);
    assert!(status.contains("password checks of new clients"), "{status}");
}

#[test]
fn attempts_at_the_same_time_are_held_to_the_limit() {
    let (daemon, address) = submission("jane:{PLAIN}secret\n", "");
    let file = daemon.dir.path().join("postrider.toml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("[auth]\n", "[auth]\nmax_failures = 3\n")).unwrap();
    daemon.ask(&["reload"]);
    let clients: Vec<_> = (0..12).map(|_| Client::connect(address).unwrap()).collect();
    let attempt =
        |mut client: Client| std::thread::spawn(move || client.say(&plain("jane", "wrong")).unwrap().0);
    let attempts: Vec<_> = clients.into_iter().map(attempt).collect();
    let codes: Vec<u16> = attempts.into_iter().map(|thread| thread.join().unwrap()).collect();
    let count = |code: u16| codes.iter().filter(|one| **one == code).count();
    assert_eq!((count(535), count(454)), (3, 9), "{codes:?}");
    drop(daemon);
}

#[test]
fn a_changed_file_of_users_is_read_again_and_a_bad_one_changes_nothing() {
    let (daemon, address) = submission("jane:{PLAIN}old\n", "");
    let logs_in = |password: &str| {
        let mut client = Client::connect(address).unwrap();
        client.say(&plain("jane", password)).unwrap().0 == 235
    };
    assert!(logs_in("old"));
    let users = daemon.dir.path().join("users");
    fs::write(&users, "jane:{PLAIN}newer\n").unwrap();
    until("the new password is right", || logs_in("newer"));
    assert!(!logs_in("old"));
    fs::write(&users, "jane:{PLAIN}\n").unwrap();
    std::thread::park_timeout(Duration::from_millis(1100));
    assert!(logs_in("newer"));
    // The same file stops a start and a reload.
    let said = daemon.try_ask(&["config", "check"]).unwrap_err();
    assert!(said.contains("users:1:6: the password of jane cannot be used: the password is empty"), "{said}");
}

#[test]
fn mechanisms_are_those_that_every_user_can_use() {
    let offers = |users: &str| {
        let (_daemon, address) = submission(users, "");
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        // A client that speaks before the greeting is refused.
        let mut said = [0; 256];
        std::io::Read::read(&mut stream, &mut said).unwrap();
        stream.write_all(b"EHLO x\r\nQUIT\r\n").unwrap();
        let mut said = String::new();
        std::io::Read::read_to_string(&mut stream, &mut said).unwrap();
        said.lines().find_map(|line| line.strip_prefix("250-AUTH ")).unwrap_or("").to_owned()
    };
    assert_eq!(offers("a:{PLAIN}x\n"), "SCRAM-SHA-256 SCRAM-SHA-1 PLAIN LOGIN");
    assert_eq!(offers(&hashed("scram-sha-256", "a", "x")), "SCRAM-SHA-256 PLAIN LOGIN");
    assert_eq!(offers(&(hashed("scram-sha-256", "a", "x") + &hashed("argon2id", "b", "x"))), "PLAIN LOGIN");
}

#[test]
fn a_relay_takes_mail_of_its_networks_only() {
    let relay = free_address();
    let listen = format!("[[listen]]\naddress = \"{relay}\"\nkind = \"relay\"\n");
    let daemon = Postrider::start(&format!("{listen}[relay]\nnetworks = [\"192.0.2.0/24\"]\n"));
    let mut stream = std::net::TcpStream::connect(relay).unwrap();
    let mut said = String::new();
    std::io::Read::read_to_string(&mut stream, &mut said).unwrap();
    assert!(said.starts_with("554 5.7.1 "), "{said}");
    daemon.reconfigure(&format!("{listen}[relay]\nnetworks = [\"127.0.0.0/8\"]\n"));
    daemon.ask(&["reload"]);
    let mut client = Client::connect(relay).unwrap();
    say(&mut client, "MAIL FROM:<x@elsewhere.test>", "250");
    say(&mut client, "RCPT TO:<x@elsewhere.test>", "250");
}

#[test]
fn real_clients_log_in_over_tls() {
    let users = "jane:{PLAIN}secret\n";
    let (dir, address, wrapped) = (tempfile::tempdir().unwrap(), free_address(), free_address());
    fs::write(dir.path().join("users"), users).unwrap();
    let listen = format!(
        "[[listen]]\naddress = \"{address}\"\nkind = \"submission\"\n[[listen]]\naddress = \"{wrapped}\"\nkind = \"submissions\"\n"
    );
    let more = format!("{listen}[auth]\nusers = \"passwd:users\"\n[relay]\nnetworks = [\"192.0.2.0/24\"]\n");
    let daemon = Postrider::start_in(dir, free_address(), &more);
    let mut client = Client::connect(address).unwrap();
    say(&mut client, &plain("jane", "secret"), "530 5.7.0 Encryption is needed");
    let mut sent = 0;
    if let Some(mut swaks) = crate::common::program("swaks") {
        for (port, tls) in [(address, "--tls"), (wrapped, "--tls-on-connect")] {
            for mechanism in ["PLAIN", "LOGIN"] {
                let output = crate::common::program("swaks")
                    .unwrap()
                    .args(["--server", &port.to_string(), tls, "--auth", mechanism, "--auth-user", "jane"])
                    .args(["--auth-password", "secret", "--from", "jane@mx.test", "--to", "joe@mx.test"])
                    .output()
                    .unwrap();
                assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
                sent += 1;
            }
        }
        let wrong =
            swaks.args(["--server", &address.to_string(), "--tls", "--auth", "PLAIN", "--auth-user", "jane"]);
        let wrong = wrong
            .args(["--auth-password", "x", "--from", "jane@mx.test", "--to", "joe@mx.test"])
            .output()
            .unwrap();
        assert_eq!(wrong.status.code(), Some(28), "swaks: authentication failed");
    }
    if crate::common::program("msmtp").is_some() {
        for mechanism in ["plain", "login", "scram-sha-256", "scram-sha-1"] {
            let mut child = crate::common::program("msmtp")
                .unwrap()
                .args([
                    "--host=127.0.0.1",
                    &format!("--port={}", address.port()),
                    "--tls=on",
                    "--tls-starttls=on",
                ])
                .args(["--tls-certcheck=off", &format!("--auth={mechanism}"), "--user=jane"])
                .args(["--passwordeval=echo secret", "--from=jane@mx.test", "joe@mx.test"])
                .stdin(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            child.stdin.take().unwrap().write_all(MAIL).unwrap();
            let output = child.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            if said.contains("not supported") && said.contains("TLS") {
                println!("SKIPPED: msmtp {mechanism}: {said}");
                continue;
            }
            assert!(output.status.success(), "{mechanism}: {said}");
            sent += 1;
        }
    }
    if crate::common::program("gsasl").is_some() {
        for mechanism in
            ["PLAIN", "LOGIN", "SCRAM-SHA-1", "SCRAM-SHA-256", "SCRAM-SHA-1-PLUS", "SCRAM-SHA-256-PLUS"]
        {
            let output = crate::common::program("gsasl")
                .unwrap()
                .args([
                    "--client",
                    "--smtp",
                    &format!("--connect={address}"),
                    "--starttls",
                    "--x509-ca-file=",
                ])
                .args([&format!("--mechanism={mechanism}"), "--authentication-id=jane", "--password=secret"])
                // With the connection's bindings at hand it refuses itself to do without them.
                .args((!mechanism.ends_with("-PLUS")).then_some("--no-cb"))
                .stdin(Stdio::null())
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&output.stdout).into_owned()
                + &String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && said.contains("235 2.7.0"), "{mechanism}: {said}");
        }
    }
    until("every mail is delivered", || daemon.mailbox("joe").len() == sent);
}

/// A daemon that sends everything to a smarthost, where it logs in.
fn satellite(smarthost: std::net::SocketAddr, secret: &str) -> Postrider {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("isp.secret"), format!("{secret}\n")).unwrap();
    let login = "login = { user = \"jane\", secret = \"file:isp.secret\" }\n";
    let route =
        format!("[[route]]\ndomains = [\"*\"]\nsmarthost = \"{smarthost}\"\ntls = \"require\"\n{login}");
    let log = "[log]\nfile = \"mail.log\"\n[queue]\nretry_min = \"1s\"\nretry_max = \"1s\"\n";
    Postrider::start_in(dir, free_address(), &format!("{route}{log}"))
}

#[test]
fn a_smarthost_is_logged_in_to_with_the_strongest_mechanism() {
    for (users, mechanism) in [
        ("jane:{PLAIN}secret\n".to_owned(), "SCRAM-SHA-256-PLUS"),
        (hashed("scram-sha-1", "jane", "secret"), "SCRAM-SHA-1-PLUS"),
        (hashed("argon2id", "jane", "secret"), "PLAIN"),
    ] {
        let (dir, address) = (tempfile::tempdir().unwrap(), free_address());
        fs::write(dir.path().join("users"), users).unwrap();
        let listen = format!("[[listen]]\naddress = \"{address}\"\nkind = \"submission\"\n");
        let more =
            format!("{listen}[auth]\nusers = \"passwd:users\"\n[relay]\nnetworks = [\"192.0.2.0/24\"]\n");
        let hub = Postrider::start_in(dir, free_address(), &more);
        let satellite = satellite(address, "secret");
        let mut client = Client::connect(satellite.address).unwrap();
        assert_eq!(client.send("jane@mx.test", &["joe@mx.test"], MAIL).unwrap().0, 250, "{mechanism}");
        until("the mail is delivered at the hub", || !hub.mailbox("joe").is_empty());
    }
}

#[test]
fn a_smarthost_that_refuses_the_login_defers_the_mail_and_a_new_secret_sends_it() {
    let (dir, address) = (tempfile::tempdir().unwrap(), free_address());
    fs::write(dir.path().join("users"), "jane:{PLAIN}secret\n").unwrap();
    let listen = format!("[[listen]]\naddress = \"{address}\"\nkind = \"submission\"\n");
    let more = format!("{listen}[auth]\nusers = \"passwd:users\"\n[relay]\nnetworks = [\"192.0.2.0/24\"]\n");
    let hub = Postrider::start_in(dir, free_address(), &more);
    let satellite = satellite(address, "wrong");
    let mut client = Client::connect(satellite.address).unwrap();
    assert_eq!(client.send("jane@mx.test", &["joe@mx.test"], MAIL).unwrap().0, 250);
    let is_deferred = |line: &serde_json::Value| {
        let text = line.to_string();
        text.contains("cannot log in as jane") && text.contains("535 5.7.8") && !text.contains("wrong\\n")
    };
    until("the login is refused", || satellite.log().iter().any(is_deferred));
    assert_eq!(satellite.counter("queued"), 1);
    fs::write(satellite.dir.path().join("isp.secret"), "secret\n").unwrap();
    satellite.ask(&["reload"]);
    satellite.ask(&["queue", "flush"]);
    until("the mail is delivered at the hub", || !hub.mailbox("joe").is_empty());
}

#[test]
fn a_password_is_not_sent_where_there_is_no_tls() {
    let sink = crate::common::sink::Sink::start();
    let satellite = satellite(sink.address, "secret");
    let mut client = Client::connect(satellite.address).unwrap();
    assert_eq!(client.send("jane@mx.test", &["joe@elsewhere.test"], MAIL).unwrap().0, 250);
    until("the mail is deferred", || {
        satellite.log().iter().any(|line| line.to_string().contains("does not offer TLS"))
    });
}

#[test]
fn dovecot_says_who_may_log_in() {
    let dir = tempfile::tempdir().unwrap();
    let Some(running) = dovecot_auth(dir.path()) else { return };
    let address = free_address();
    let listen = format!("[[listen]]\naddress = \"{address}\"\nkind = \"submission\"\n");
    let auth = format!(
        "[auth]\nusers = \"dovecot:{}\"\nallow_clear_text = true\n",
        dir.path().join("auth").display()
    );
    let log = "[log]\nfile = \"mail.log\"\n[relay]\nnetworks = [\"192.0.2.0/24\"]\n";
    let daemon = Postrider::start(&format!("{listen}{auth}{log}"));
    let mut client = Client::connect(address).unwrap();
    say(&mut client, &plain("jane", "wrong"), "535 5.7.8");
    say(&mut client, "AUTH LOGIN", "334 VXNlcm5hbWU6");
    say(&mut client, &base64(b"joe@mx.test"), "334 UGFzc3dvcmQ6");
    say(&mut client, &base64(b"other"), "235 2.7.0");
    say(&mut client, "MAIL FROM:<jane@mx.test>", "553");
    say(&mut client, "MAIL FROM:<joe@mx.test>", "250");
    let mut client = Client::connect(address).unwrap();
    say(&mut client, "AUTH PLAIN", "334");
    say(&mut client, &base64(b"\0jane\0secret"), "235");
    assert_eq!(client.send("jane@mx.test", &["joe@mx.test"], MAIL).unwrap().0, 250);
    let failed = |line: &serde_json::Value| line["stage"] == "AUTH PLAIN" && line["login"] == "jane";
    until("the failure is in the log", || daemon.log().iter().any(failed));
    if crate::common::program("gsasl").is_some() {
        until("the mechanisms of Dovecot are offered", || {
            crate::common::client::hello(address).contains("SCRAM-SHA-256")
        });
        for (password, words) in [("secret", "235 2.7.0"), ("wrong", "535 5.7.8")] {
            let output = crate::common::program("gsasl")
                .unwrap()
                .args(["--client", "--smtp", &format!("--connect={address}"), "--no-starttls"])
                .args([
                    "--mechanism=SCRAM-SHA-256",
                    "--authentication-id=jane",
                    &format!("--password={password}"),
                ])
                .stdin(Stdio::null())
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(said.contains(words), "{said}");
        }
    }
    seen(
        "Dovecot",
        "its auth socket, for AUTH PLAIN and LOGIN",
        "235 for the right password, 535 for a wrong one",
    );
    // Without Dovecot nobody is refused for good.
    drop(running);
    until("Dovecot has ended", || {
        let mut client = Client::connect(address).unwrap();
        client.say(&plain("jane", "secret")).unwrap().1.starts_with("454 4.7.0")
    });
    let sent = daemon.try_ask(&["auth", "test", "jane"]).unwrap_err();
    assert!(sent.contains("ask Dovecot at "), "{sent}");
}

/// Greets each connection as Dovecot's auth socket does.
fn greet_as_dovecot(path: &std::path::Path) {
    let listener = std::os::unix::net::UnixListener::bind(path).unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let greeting = "VERSION\t1\t2\nMECH\tPLAIN\tplaintext\nMECH\tSCRAM-SHA-256\tmutual-auth\nSPID\t1\nCUID\t2\nCOOKIE\tabc\nDONE\n";
            let _ = std::io::Write::write_all(&mut stream, greeting.as_bytes());
            let _ = std::io::Read::read_to_end(&mut stream, &mut Vec::new());
        }
    });
}

#[test]
fn a_dovecot_that_starts_later_is_asked_again_and_its_mechanisms_stay() {
    let dir = tempfile::tempdir().unwrap();
    let (socket, address) = (dir.path().join("auth"), free_address());
    let daemon = Postrider::start(&format!(
        "[[listen]]\naddress = \"{address}\"\nkind = \"submission\"\n[auth]\nusers = \"dovecot:{}\"\n\
         allow_clear_text = true\n[relay]\nnetworks = [\"192.0.2.0/24\"]\n",
        socket.display()
    ));
    let offers_scram = || crate::common::client::hello(address).contains("SCRAM-SHA-256");
    assert!(!offers_scram());
    greet_as_dovecot(&socket);
    until("the mechanisms of Dovecot are offered", offers_scram);
    fs::remove_file(&socket).unwrap();
    daemon.ask(&["reload"]);
    assert!(offers_scram(), "a reload without Dovecot keeps them");
}

#[test]
fn a_real_dovecot_that_starts_after_the_daemon_is_asked_again() {
    let dir = tempfile::tempdir().unwrap();
    let address = free_address();
    let daemon = Postrider::start(&format!(
        "[[listen]]\naddress = \"{address}\"\nkind = \"submission\"\n[auth]\nusers = \"dovecot:{}\"\n\
         allow_clear_text = true\n[relay]\nnetworks = [\"192.0.2.0/24\"]\n",
        dir.path().join("auth").display()
    ));
    let offers_scram = || crate::common::client::hello(address).contains("SCRAM-SHA-256");
    let may_log_in = || {
        let mut client = Client::connect(address).unwrap();
        client.say(&plain("jane", "secret")).unwrap().1.starts_with("235")
    };
    assert!(!offers_scram() && !may_log_in());
    for _ in 0..2 {
        let Some(running) = dovecot_auth(dir.path()) else { return };
        until("the mechanisms of Dovecot are offered", offers_scram);
        assert!(may_log_in());
        daemon.ask(&["reload"]);
        assert!(offers_scram() && may_log_in(), "after a reload");
        drop(running);
        daemon.ask(&["reload"]);
        until("Dovecot has ended", || !may_log_in());
        assert!(offers_scram(), "without Dovecot");
    }
}

#[test]
fn a_login_without_a_domain_owns_its_name_in_the_domains_of_maps() {
    let dir = tempfile::tempdir().unwrap();
    let domains = dir.path().join("domains");
    fs::write(&domains, "hosted.test\n").unwrap();
    let more = format!(
        "[process]\nextra_paths = [\"{}\"]\n[local]\ndomains = [\"mx.test\", \"text:{}\", \"map:down\"]\n\
         [[route]]\ndomains = [\"map:down\"]\nmx = true\n[map.down]\nsocketmap = \"unix:{}\"\n",
        dir.path().display(),
        domains.display(),
        dir.path().join("nobody").display()
    );
    let (_daemon, address) = submission("bob:{PLAIN}secret\nann@else.test:{PLAIN}secret\n", &more);
    for (user, sender, reply) in [
        ("bob", "Bob+x@hosted.test", "250"),
        ("bob", "jane@hosted.test", "553 5.7.1"),
        ("bob", "bob@unknown.test", "451 4.3.0"),
        ("ann@else.test", "ann@unknown.test", "553 5.7.1"),
    ] {
        let mut client = Client::connect(address).unwrap();
        say(&mut client, &plain(user, "secret"), "235");
        say(&mut client, &format!("MAIL FROM:<{sender}>"), reply);
    }
}

#[test]
fn a_map_gives_a_login_further_addresses() {
    let dir = tempfile::tempdir().unwrap();
    let (senders, dead) = (dir.path().join("senders"), dir.path().join("nobody"));
    fs::write(&senders, "jane sales@mx.test, @else.test\njoe *\n").unwrap();
    let users = "jane:{PLAIN}secret\njoe:{PLAIN}secret\nann:{PLAIN}secret\n";
    let process = format!("[process]\nextra_paths = [\"{}\"]\n", dir.path().display());
    let (daemon, address) = submission(users, &process);
    let with = |map: &str| {
        daemon.reconfigure(&format!(
            "[[listen]]\naddress = \"{address}\"\nkind = \"submission\"\n[auth]\nusers = \"passwd:users\"\n\
             allow_clear_text = true\nsenders = \"{map}\"\n[relay]\nnetworks = [\"192.0.2.0/24\"]\n\
             [map.down]\nsocketmap = \"unix:{}\"\n",
            dead.display()
        ));
        daemon.ask(&["reload"]);
    };
    let may = |user: &str, sender: &str| {
        let mut client = Client::connect(address).unwrap();
        say(&mut client, &plain(user, "secret"), "235");
        client.say(&format!("MAIL FROM:<{sender}>")).unwrap().1
    };
    with(&format!("text:{}", senders.display()));
    for (user, sender, reply) in [
        ("jane", "jane@mx.test", "250"),
        ("jane", "Sales@MX.test", "250"),
        ("jane", "anybody@else.test", "250"),
        ("jane", "joe@mx.test", "553 5.7.1"),
        ("JOE", "anybody@anywhere.test", "250"),
        ("ann", "sales@mx.test", "553 5.7.1"),
        ("ann", "", "250"),
    ] {
        assert!(may(user, sender).starts_with(reply), "{user} {sender}: {}", may(user, sender));
    }
    // A map that is down refuses nobody for good, and lets nobody through.
    with("map:down");
    assert!(may("jane", "jane@mx.test").starts_with("250"));
    assert!(may("jane", "sales@mx.test").starts_with("451 4.3.0"));
}

#[test]
fn a_listener_without_auth_neither_offers_nor_takes_logins() {
    let users = hashed("sha512-crypt", "jane", "secret");
    let without = free_address();
    let more = format!("[[listen]]\naddress = \"{without}\"\nauth = false\n");
    let (_daemon, with) = submission(&users, &more);
    let ehlo = |address| {
        let mut client = Client::begin(address).unwrap();
        client.reply().unwrap();
        client.write(b"EHLO client.test\r\n").unwrap();
        client.lines().unwrap().iter().any(|line| line.contains("AUTH"))
    };
    assert!(ehlo(with) && !ehlo(without));
    let mut client = Client::connect(without).unwrap();
    say(&mut client, &plain("jane", "secret"), "502 5.5.1");
    say(&mut client, "MAIL FROM:<x@elsewhere.test>", "250");
}
