//! Listeners on Unix sockets, and on sockets that systemd has opened.

use crate::common::{Postrider, free_address, until};
use std::{
    fs,
    io::{BufRead as _, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::{
        fd::OwnedFd,
        unix::{
            fs::PermissionsExt as _,
            net::{UnixListener, UnixStream},
        },
    },
    path::Path,
    process::{Child, Command, Stdio},
};

const LOG: &str = "[log]\nfile = \"mail.log\"\n";
const LOCAL: &str = "[local]\ndomains = [\"mx.test\"]\nusers = [\"jane\", \"joe\"]\n";

/// Sends lines one by one; the last line of each reply, the greeting first.
fn talk(stream: impl Read + Write, lines: &[&str]) -> Vec<String> {
    let mut stream = BufReader::new(stream);
    let mut replies = Vec::new();
    for line in std::iter::once(None).chain(lines.iter().map(Some)) {
        if let Some(line) = line {
            stream.get_mut().write_all(format!("{line}\r\n").as_bytes()).unwrap();
        }
        loop {
            let mut reply = String::new();
            if stream.read_line(&mut reply).unwrap() == 0 {
                return replies;
            }
            if reply.as_bytes().get(3) != Some(&b'-') {
                replies.push(reply.trim_end().to_owned());
                break;
            }
        }
    }
    replies
}

fn connect(path: &Path) -> UnixStream {
    let stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(crate::common::WAIT_TIMEOUT)).unwrap();
    stream
}

#[test]
fn lmtp_on_a_unix_socket_takes_local_mail_only() {
    let listen = "[[listen]]\naddress = \"unix:lmtp.sock\"\nkind = \"lmtp\"\nmode = \"0600\"\n";
    let daemon = Postrider::start(&format!("{listen}{LOG}{LOCAL}"));
    let path = daemon.dir.path().join("lmtp.sock");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let lines = [
        "LHLO c.test",
        "MAIL FROM:<a@b.test>",
        "RCPT TO:<jane@mx.test>",
        "RCPT TO:<nobody@mx.test>",
        "RCPT TO:<x@elsewhere.test>",
        "DATA",
        "Subject: s\r\n\r\nx\r\n.",
        "QUIT",
    ];
    let replies = talk(connect(&path), &lines);
    for (reply, expected) in replies[3..7].iter().zip(["250 2.1.5", "550 5.1.1", "550 5.7.1", "354 "]) {
        assert!(reply.starts_with(expected), "{replies:?}");
    }
    assert!(replies[7].starts_with("250 2.0.0 Ok: queued as "), "{replies:?}");
    until("the mail is in the Maildir", || daemon.mailbox("jane").len() == 1);
    let text = fs::read_to_string(&daemon.mailbox("jane")[0]).unwrap();
    assert!(
        text.contains("Received: from c.test (local socket)") && text.contains("with LMTP id "),
        "{text}"
    );
    until("the refusal is in the log", || daemon.log().iter().any(|line| line["client"] == "unix"));
    let (_dir, status) = daemon.stop();
    assert!(status.success() && !path.exists());
}

#[test]
fn a_unix_socket_is_no_right_to_relay_and_offers_no_tls() {
    let listen = "[[listen]]\naddress = \"unix:mx.sock\"\nmax_sessions = 60\n";
    let networks = "[relay]\nnetworks = [\"127.0.0.0/8\", \"::/8\"]\n";
    let daemon = Postrider::start(&format!("{listen}{LOCAL}{networks}"));
    let path = daemon.dir.path().join("mx.sock");
    let lines = [
        "EHLO c.test",
        "STARTTLS",
        "MAIL FROM:<a@b.test>",
        "RCPT TO:<x@elsewhere.test>",
        "RCPT TO:<joe@mx.test>",
    ];
    let replies = talk(connect(&path), &lines);
    assert!(replies[2].starts_with('5') && replies[4].starts_with("550 5.7.1"), "{replies:?}");
    assert!(replies[5].starts_with("250"), "{replies:?}");
    // The limit for one client is for clients of the network; that of the listener holds.
    let streams: Vec<UnixStream> = (0..60)
        .map(|_| {
            let (mut stream, mut code) = (connect(&path), [0; 3]);
            // The session before may not have ended yet.
            until("there is room", || {
                stream.read_exact(&mut code).unwrap();
                let is_in = &code == b"220";
                if !is_in {
                    stream = connect(&path);
                }
                is_in
            });
            stream
        })
        .collect();
    let mut code = [0; 3];
    connect(&path).read_exact(&mut code).unwrap();
    assert_eq!(&code, b"421");
    drop(streams);
}

#[test]
fn a_front_hands_mail_over_by_a_unix_socket_of_this_server() {
    let listen = "[[listen]]\naddress = \"unix:lmtp.sock\"\nkind = \"lmtp\"\n";
    let back = Postrider::start(&format!("{listen}{LOCAL}"));
    let socket = back.dir.path().join("lmtp.sock");
    let route = format!(
        "{LOCAL}[[route]]\ndomains = [\"mx.test\"]\nlmtp = \"unix:{}\"\nverify = true\n",
        socket.display()
    )
    .replace("users", "#");
    let front = Postrider::start(&route);
    let mut client = crate::common::client::Client::connect(front.address).unwrap();
    assert_eq!(client.send("a@b.test", &["jane@mx.test"], b"Subject: s\r\n\r\nx\r\n").unwrap().0, 250);
    until("the mail is in the Maildir", || back.mailbox("jane").len() == 1);
    client.say("MAIL FROM:<a@b.test>").unwrap();
    assert!(client.say("RCPT TO:<nobody@mx.test>").unwrap().1.starts_with("550 5.1.1"));
}

#[test]
fn users_log_in_on_a_unix_socket_without_tls() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("users"), "jane:{PLAIN}secret\n").unwrap();
    let listen = "[[listen]]\naddress = \"unix:submit-smtp.sock\"\nkind = \"submission\"\nmode = \"0666\"\n";
    let more = format!("{listen}[auth]\nusers = \"passwd:users\"\n{LOCAL}");
    let daemon = Postrider::start_in(dir, free_address(), &more);
    let path = daemon.dir.path().join("submit-smtp.sock");
    // "\0jane\0secret"
    let lines = [
        "EHLO c.test",
        "MAIL FROM:<jane@mx.test>",
        "AUTH PLAIN AGphbmUAc2VjcmV0",
        "MAIL FROM:<jane@mx.test>",
        "RCPT TO:<x@elsewhere.test>",
    ];
    let replies = talk(connect(&path), &lines);
    assert!(replies[2].starts_with("530 5.7.0") && replies[3].starts_with("235"), "{replies:?}");
    assert!(replies[4].starts_with("250") && replies[5].starts_with("250"), "{replies:?}");
}

/// Starts the daemon as systemd does, with two sockets from number 3 on.
fn activated(dir: &Path, config: &str, first: OwnedFd, second: OwnedFd) -> Child {
    let text = format!(
        "hostname = \"mx.test\"\ndata_dir = \"data\"\n[spool]\nsegment_size = \"4MiB\"\nmin_free = \"16MiB\"\n{config}"
    );
    fs::write(dir.join("postrider.toml"), text).unwrap();
    let script = "exec 3<&0 4<&1 </dev/null >/dev/null
        export LISTEN_PID=$$ LISTEN_FDS=2 LISTEN_FDNAMES=mx:lmtp
        exec \"$0\" serve --config postrider.toml";
    Command::new("sh")
        .args(["-c", script, crate::common::BINARY])
        .current_dir(dir)
        .stdin(Stdio::from(first))
        .stdout(Stdio::from(second))
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn sockets_of_systemd_are_found_by_their_names() {
    let dir = tempfile::tempdir().unwrap();
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let address: SocketAddr = tcp.local_addr().unwrap();
    let path = dir.path().join("lmtp.sock");
    let unix = UnixListener::bind(&path).unwrap();
    let config = format!(
        "{LOCAL}[[listen]]\naddress = \"systemd:mx\"\n[[listen]]\naddress = \"systemd:lmtp\"\nkind = \"lmtp\"\n"
    );
    let mut child = activated(dir.path(), &config, tcp.into(), unix.into());
    // The kernel has the connections before the daemon listens.
    let tcp = TcpStream::connect(address).unwrap();
    tcp.set_read_timeout(Some(crate::common::WAIT_TIMEOUT)).unwrap();
    let replies = talk(tcp, &["EHLO c.test", "MAIL FROM:<a@b.test>", "RCPT TO:<jane@mx.test>", "QUIT"]);
    assert!(replies.len() == 5 && replies[3].starts_with("250"), "{replies:?}");
    let replies =
        talk(connect(&path), &["LHLO c.test", "MAIL FROM:<a@b.test>", "RCPT TO:<x@elsewhere.test>", "QUIT"]);
    assert!(replies[0].contains("LMTP") && replies[3].starts_with("550 5.7.1"), "{replies:?}");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(path.exists(), "the socket is systemd's");
}

#[test]
fn connections_to_a_socket_that_nothing_names_are_closed() {
    let dir = tempfile::tempdir().unwrap();
    let [mx, unused] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let [mx_address, unused_address] = [&mx, &unused].map(|socket| socket.local_addr().unwrap());
    let config = format!("{LOCAL}[[listen]]\naddress = \"systemd:mx\"\n");
    let mut child = activated(dir.path(), &config, mx.into(), unused.into());
    let mut client = TcpStream::connect(unused_address).unwrap();
    client.set_read_timeout(Some(crate::common::WAIT_TIMEOUT)).unwrap();
    // The end, or a reset: but no wait for a greeting.
    assert!(!matches!(std::io::Read::read(&mut client, &mut [0; 10]), Ok(1..)));
    let tcp = TcpStream::connect(mx_address).unwrap();
    tcp.set_read_timeout(Some(crate::common::WAIT_TIMEOUT)).unwrap();
    assert!(talk(tcp, &["QUIT"])[0].starts_with("220"));
    child.kill().unwrap();
    let said = String::from_utf8_lossy(&child.wait_with_output().unwrap().stderr).into_owned();
    assert!(said.contains("the socket \"lmtp\""), "{said}");
}

#[test]
fn a_socket_that_systemd_has_not_opened_stops_the_start_with_the_names_of_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let [one, two] = [(); 2].map(|()| OwnedFd::from(TcpListener::bind("127.0.0.1:0").unwrap()));
    let child = activated(dir.path(), &format!("{LOCAL}[[listen]]\naddress = \"systemd:smtp\"\n"), one, two);
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && said.contains("no socket of this name; the sockets are: mx, lmtp"),
        "{said}"
    );
}
