//! Programs that are not ours at both ends. Those that are missing are said to be, and counted.

use crate::common::{Postrider, free_address, sink::Sink, until};
use std::{
    fs,
    io::Write as _,
    os::unix::net::UnixStream,
    path::Path,
    process::{Child, Command, Output, Stdio},
};

const LOG: &str = "[log]\nfile = \"mail.log\"\n";

/// A program in the background, ended with the test.
struct Background(Child);

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn command(name: &str) -> Option<Command> {
    crate::common::program(name)
}

/// Runs it with this input; fails the test when it fails.
fn run(mut command: Command, input: &[u8]) -> Output {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // It may end without reading all of it.
    let _ = child.stdin.take().unwrap().write_all(input);
    let output = child.wait_with_output().unwrap();
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{command:?}: {}{}", said(&output.stdout), said(&output.stderr));
    output
}

/// smtp-sink that ends after so many messages; root has to name a user it becomes.
fn smtp_sink(options: &[&str], address: std::net::SocketAddr) -> Option<Background> {
    let mut sink = command("smtp-sink")?;
    if rustix::process::geteuid().is_root() {
        sink.args(["-u", "nobody"]);
    }
    let child = sink.args(options).arg(address.to_string()).arg("100").stdout(Stdio::null()).spawn().unwrap();
    let sink = Background(child);
    until("smtp-sink listens", || std::net::TcpStream::connect(address).is_ok());
    Some(sink)
}

#[test]
fn smtp_source_to_smtp_sink_loses_nothing() {
    let Some(mut source) = command("smtp-source") else { return };
    let to = free_address();
    let Some(_sink) = smtp_sink(&[], to) else { return };
    let route = format!("[[route]]\ndomains = [\"*\"]\nsmarthost = \"{to}\"\ntls = \"off\"\n");
    let daemon = Postrider::start(&route);
    source.args(["-s", "20", "-m", "300", "-l", "3000", "-r", "2", "-f", "a@a.test", "-t", "b@b.test"]);
    run(
        {
            source.arg(daemon.address.to_string());
            source
        },
        b"",
    );
    until("each recipient is accounted for", || daemon.counter("delivered") == 600);
    assert_eq!(daemon.counter("queued"), 0);
}

#[test]
fn smtp_sinks_that_misbehave_get_what_rfc_5321_says() {
    for (options, column, text) in [
        (["-f", "rcpt"], "bounced", "500"),
        (["-r", "rcpt"], "queued", "450"),
        (["-r", "data"], "queued", "450"),
        (["-f", "."], "bounced", "500"),
        (["-q", "data"], "queued", "lost connection"),
        (["-q", "."], "queued", "lost connection"),
        (["-f", "mail"], "bounced", "500"),
    ] {
        let to = free_address();
        let Some(_sink) = smtp_sink(&options, to) else { return };
        let route = format!("[[route]]\ndomains = [\"b.test\"]\nsmarthost = \"{to}\"\ntls = \"off\"\n");
        let daemon = Postrider::start(&format!("{LOG}{route}"));
        let mut client = crate::common::client::Client::connect(daemon.address).unwrap();
        client.send("a@mx.test", &["b@b.test"], b"Subject: x\r\n\r\nx\r\n").unwrap();
        let tried =
            || daemon.log().into_iter().find(|row| row["event"] == "attempt" && row["to"] == "b@b.test");
        until("it was tried", || tried().is_some());
        let row = tried().unwrap();
        assert!(row["reply"].as_str().unwrap().contains(text), "{options:?}: {row}");
        until("the counter shows it", || daemon.counter(column) >= 1);
    }
}

#[test]
fn swaks_speaks_plain_and_starttls() {
    let Some(mut support) = command("swaks") else { return };
    let support = support.arg("--support").output().unwrap();
    let dialogs = [&[][..], &["--tls"], &["--tls", "--pipeline"], &["--protocol", "SMTP"]];
    let knows_tls = String::from_utf8_lossy(&support.stdout).contains("TLS supported");
    if !knows_tls {
        println!("SKIPPED: swaks has no TLS (Debian: apt-get install libnet-ssleay-perl)");
    }
    let dialogs = dialogs.into_iter().filter(|dialog| knows_tls || !dialog.contains(&"--tls"));
    let daemon = Postrider::start("");
    for (n, more) in dialogs.enumerate() {
        let Some(mut swaks) = command("swaks") else { return };
        swaks.args(["--server", &daemon.address.to_string(), "--from", "a@a.test", "--to", "swaks@mx.test"]);
        swaks.args(["--helo", "client.test"]).args(more);
        run(swaks, b"");
        until("it is in the Maildir", || daemon.mailbox("swaks").len() == n + 1);
    }
}

#[test]
fn msmtp_speaks_plain_and_starttls() {
    let daemon = Postrider::start("");
    let (host, port) = (daemon.address.ip().to_string(), daemon.address.port().to_string());
    for (n, tls) in
        [&["--tls=off"][..], &["--tls=on", "--tls-starttls=on", "--tls-certcheck=off"]].iter().enumerate()
    {
        let Some(mut msmtp) = command("msmtp") else { return };
        msmtp
            .args(["--host", &host, "--port", &port, "--auth=off", "--from=a@a.test"])
            .args(*tls)
            .arg("msmtp@mx.test");
        run(msmtp, "Subject: Grüße\nMIME-Version: 1.0\n\n8 bit: äöü\n".as_bytes());
        until("it is in the Maildir", || daemon.mailbox("msmtp").len() == n + 1);
    }
    let text = fs::read_to_string(&daemon.mailbox("msmtp")[0]).unwrap();
    assert!(text.ends_with("8 bit: äöü\n"), "{text}");
}

#[test]
fn pythons_smtplib_speaks_utf8_and_every_kind_of_tls() {
    let Some(mut python) = command("python3") else { return };
    let implicit = free_address();
    let daemon = Postrider::start(&format!("[[listen]]\naddress = \"{implicit}\"\ntls = \"implicit\"\n"));
    let script = format!(
        r#"
import smtplib, ssl
context = ssl.create_default_context()
context.check_hostname = False
context.verify_mode = ssl.CERT_NONE
plain = smtplib.SMTP("127.0.0.1", {plain})
plain.starttls(context=context)
plain.sendmail("zoë@a.test", ["jörg@mx.test"], "Subject: für dich\r\n\r\nüber\r\n".encode(),
               mail_options=["SMTPUTF8", "BODY=8BITMIME"])
refused = plain.sendmail("a@a.test", ["x@mx.test", "y@mx.test"], "Subject: x\r\n\r\nx\r\n")
assert refused == {{}}
plain.quit()
implicit = smtplib.SMTP_SSL("127.0.0.1", {implicit}, context=context)
implicit.sendmail("a@a.test", ["x@mx.test"], "Subject: x\r\n\r\nx\r\n")
implicit.quit()
"#,
        plain = daemon.address.port(),
        implicit = implicit.port()
    );
    python.arg("-");
    run(python, script.as_bytes());
    until("all are delivered", || daemon.counter("delivered") == 4);
    let text = fs::read_to_string(&daemon.mailbox("jörg")[0]).unwrap();
    assert!(text.contains("Return-Path: <zoë@a.test>") && text.ends_with("\nüber\n"), "{text}");
    assert!(text.contains("with UTF8SMTPS id"), "{text}");
}

#[test]
fn the_sendmail_command_hands_in_local_mail_also_while_the_daemon_is_down() {
    let sink = Sink::start();
    let daemon = Postrider::start(&sink.route());
    let address = daemon.address;
    let sendmail = |dir: &Path| {
        let link = dir.join("sendmail");
        if !link.exists() {
            std::os::unix::fs::symlink(crate::common::BINARY, &link).unwrap();
        }
        let mut sendmail = Command::new(link);
        sendmail.env("POSTRIDER_CONFIG", dir.join("postrider.toml"));
        sendmail.args(["-f", "me@mx.test", "-t"]);
        run(sendmail, b"To: a@b.test\nBcc: hidden@b.test\nSubject: local\n\nhello\n");
    };
    sendmail(daemon.dir.path());
    until("it is at the next hop", || sink.count() == 1);
    let (dir, _) = daemon.stop();
    sendmail(dir.path());
    let daemon = Postrider::start_in(dir, address, &sink.route());
    until("what was dropped is at the next hop", || sink.count() == 2);
    for received in sink.messages() {
        let text = String::from_utf8(received.content).unwrap();
        assert!(received.to.contains(&"hidden@b.test".to_owned()) && !text.contains("hidden"), "{text}");
        assert_eq!(received.from, "me@mx.test");
    }
    until("the queue is empty", || daemon.counter("queued") == 0);
}

#[test]
fn dovecot_takes_mail_by_lmtp() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: Dovecot starts as root only");
        return;
    }
    let Some(mut dovecot) = crate::common::program_in_place("dovecot") else { return };
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().display();
    fs::create_dir(dir.path().join("mail")).unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    fs::set_permissions(dir.path().join("mail"), open).unwrap();
    fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let config = format!(
        "base_dir = {at}/run\nstate_dir = {at}/run\nlog_path = {at}/log\nprotocols = lmtp\nssl = no\n\
         default_internal_user = nobody\ndefault_internal_group = nogroup\ndefault_login_user = nobody\n\
         first_valid_uid = 1\nmail_location = maildir:{at}/mail/%u\n\
         passdb {{\n  driver = static\n  args = nopassword=y\n}}\n\
         userdb {{\n  driver = static\n  args = uid=nobody gid=nogroup home={at}/mail/%u allow_all_users=yes\n}}\n\
         service lmtp {{\n  unix_listener {at}/lmtp {{\n    mode = 0666\n  }}\n}}\n"
    );
    fs::write(dir.path().join("dovecot.conf"), config).unwrap();
    let child = dovecot.arg("-F").arg("-c").arg(dir.path().join("dovecot.conf")).spawn().unwrap();
    let _dovecot = Background(child);
    until("Dovecot listens", || UnixStream::connect(dir.path().join("lmtp")).is_ok());
    let route = format!("[[route]]\ndomains = [\"b.test\"]\nlmtp = \"unix:{at}/lmtp\"\n");
    let daemon = Postrider::start(&format!("{LOG}{route}"));
    let mut client = crate::common::client::Client::connect(daemon.address).unwrap();
    for n in 0..3 {
        let content = format!("Subject: {n}\r\n\r\n.dots\r\n");
        client.send("a@a.test", &["u@b.test", "v@b.test"], content.as_bytes()).unwrap();
    }
    until("all are delivered", || daemon.counter("delivered") == 6);
    for user in ["u@b.test", "v@b.test"] {
        let mails = fs::read_dir(dir.path().join("mail").join(user).join("new")).unwrap();
        assert_eq!(mails.count(), 3, "{user}");
    }
    let by_socket = |row: &serde_json::Value| row["relay"].as_str().is_some_and(|r| r.starts_with("unix:"));
    until("the log names the socket", || daemon.log().iter().any(by_socket));
    crate::common::record::seen(
        "Dovecot",
        "LMTP over a Unix socket, two recipients",
        "a reply for each, and the mail in both Maildirs",
    );
}

#[test]
fn pflogsumm_reads_the_log_in_postfix_format() {
    let Some(mut pflogsumm) = command("pflogsumm") else { return };
    let daemon = Postrider::start("[log]\nfile = \"mail.log\"\nformat = \"postfix\"\n");
    let mut client = crate::common::client::Client::connect(daemon.address).unwrap();
    for _ in 0..3 {
        client.send("a@a.test", &["u@mx.test"], b"Message-ID: <1@a.test>\r\n\r\nx\r\n").unwrap();
    }
    until("all are delivered", || daemon.counter("delivered") == 3);
    let (dir, _) = daemon.stop();
    let output = run(
        {
            pflogsumm.arg(dir.path().join("mail.log"));
            pflogsumm
        },
        b"",
    );
    let said = String::from_utf8(output.stdout).unwrap();
    let number = |word: &str| {
        said.lines()
            .find(|l| l.trim().ends_with(word))
            .map(|l| l.split_whitespace().next().unwrap().to_owned())
    };
    assert_eq!(number("received").as_deref(), Some("3"), "{said}");
    assert_eq!(number("delivered").as_deref(), Some("3"), "{said}");
}
