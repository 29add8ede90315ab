//! `postrider serve --capture`: mail for every address is shown, and none is sent.

use crate::common::{client::Client, free_address, until};
use std::{
    fs,
    io::{BufRead as _, BufReader},
    net::{SocketAddr, TcpListener},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
};

struct Capture {
    child: Child,
    address: SocketAddr,
    shown: Arc<Mutex<String>>,
    said: Arc<Mutex<String>>,
}

fn collect(stream: impl std::io::Read + Send + 'static) -> Arc<Mutex<String>> {
    let text = Arc::new(Mutex::new(String::new()));
    let grows = text.clone();
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            *grows.lock().unwrap() += &format!("{line}\n");
        }
    });
    text
}

impl Capture {
    fn start(dir: &Path) -> Self {
        let address = free_address();
        let mut child = Command::new(crate::common::BINARY)
            .args(["serve", "--capture", "--listen", &address.to_string()])
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let shown = collect(child.stdout.take().unwrap());
        let said = collect(child.stderr.take().unwrap());
        until("it listens", || said.lock().unwrap().contains("listening on"));
        Self { child, address, shown, said }
    }

    fn shown(&self) -> String {
        self.shown.lock().unwrap().clone()
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn mail_for_every_address_is_shown_and_none_is_sent() {
    let dir = tempfile::tempdir().unwrap();
    let capture = Capture::start(dir.path());
    let mut client = Client::connect(capture.address).unwrap();
    let content = b"From: Shop <shop@shop.example>\r\nTo: jane@far.example\r\nSubject: Your order\r\n\r\nThank you.\r\n";
    let to = ["jane@far.example", "joe@localhost", "postmaster"];
    assert_eq!(client.send("shop@shop.example", &to, content).unwrap().0, 250);
    until("it is shown", || capture.shown().contains("\nThank you.\n"));
    let shown = capture.shown();
    for part in ["=== message ", "Subject: Your order\n", "Return-Path: <shop@shop.example>\n"] {
        assert_eq!(shown.matches(part).count(), 1, "{part}: {shown}");
    }
    for to in ["jane@far.example", "joe@localhost", "postmaster"] {
        assert!(shown.contains(&format!("Delivered-To: {to}")), "{shown}");
    }
    let folder = dir.path().join("postrider-capture/captured");
    let files = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let kept: Vec<_> = files.filter(|file| file.extension().is_some_and(|end| end == "eml")).collect();
    assert_eq!(kept.len(), 1);
    let text = fs::read_to_string(&kept[0]).unwrap();
    assert!(text.matches("Delivered-To: ").count() == 3 && text.ends_with("\nThank you.\n"), "{text}");
    assert_eq!(fs::read_dir(folder.join("new")).unwrap().count(), 0);
    let log = fs::read_to_string(dir.path().join("postrider-capture/mail.log")).unwrap();
    assert!(!log.contains("smtp:"), "{log}");
    until("it says where the mail is", || {
        let said = capture.said.lock().unwrap();
        said.contains("all mail is captured in ") && said.contains("none is sent")
    });
}

#[test]
fn capturing_takes_no_configuration() {
    let output = Command::new(crate::common::BINARY)
        .args(["serve", "--capture", "--config", "postrider.toml"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(64));
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot be used with"), "{output:?}");
}

#[test]
fn a_port_in_use_is_explained_and_nothing_is_left() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    for mode in [&["serve", "--capture"][..], &["serve"]] {
        let dir = tempfile::tempdir().unwrap();
        let output = Command::new(crate::common::BINARY)
            .args(mode)
            .args(["--listen", &address])
            .current_dir(dir.path())
            .env_remove("POSTRIDER_CONFIG")
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(69), "{said}");
        assert!(said.contains(&format!("(process {})", std::process::id())), "{said}");
        assert!(said.contains("--listen ADDRESS:PORT"), "{said}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "{mode:?}: {said}");
    }
}

#[test]
fn any_login_is_taken_also_by_ipv6() {
    let dir = tempfile::tempdir().unwrap();
    let capture = Capture::start(dir.path());
    let mut addresses = vec![capture.address];
    if TcpListener::bind("[::1]:0").is_ok() {
        addresses.push(format!("[::1]:{}", capture.address.port()).parse().unwrap());
    }
    for address in addresses {
        let mut client = Client::connect(address).unwrap();
        // An empty authorization identity, `shop`, and `whatever`.
        assert_eq!(client.say("AUTH PLAIN AHNob3AAd2hhdGV2ZXI=").unwrap().0, 235, "{address}");
        let reply =
            client.send("other@shop.example", &["jane@far.example"], b"Subject: x\r\n\r\nx\r\n").unwrap();
        assert_eq!(reply.0, 250, "{}", reply.1);
    }
}

#[test]
fn a_configuration_in_the_current_folder_that_is_not_read_is_told() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("postrider.toml"), "hostname = \"mx.test\"\n").unwrap();
    fs::write(dir.path().join("other.toml"), "hostnam = \"mx.test\"\n").unwrap();
    let said_by = |arguments: &[&str]| {
        let output = Command::new(crate::common::BINARY)
            .args(arguments)
            .current_dir(dir.path())
            .env_remove("POSTRIDER_CONFIG")
            .output()
            .unwrap();
        String::from_utf8(output.stderr).unwrap()
    };
    let said = |config: &str| said_by(&["serve", "--config", config]);
    let told = said("other.toml");
    assert!(told.contains("./postrider.toml is not read: other.toml is in use"), "{told}");
    for command in ["check", "show"] {
        assert!(said_by(&["config", command, "--config", "other.toml"]).contains("is not read"), "{command}");
    }
    assert!(
        !said_by(&["config", "check", "other.toml"]).contains("is not read"),
        "it is the one that is meant"
    );
    fs::write(dir.path().join("postrider.toml"), "hostnam = \"mx.test\"\n").unwrap();
    assert!(!said("postrider.toml").contains("is not read"));
    let to_daemon: [&[&str]; 10] = [
        &["status"],
        &["status", "--json"],
        &["queue", "list"],
        &["queue", "flush"],
        &["why", "0abqxshv3c000"],
        &["reload"],
        &["spool", "check"],
        &["test", "--client", "192.0.2.1", "--from", "a@far.test", "--to", "joe@mx.test"],
        &["certificate", "list"],
        &["config", "explain", "hostname"],
    ];
    for command in to_daemon {
        let told = said_by(command);
        assert_eq!(told.matches("./postrider.toml is not read").count(), 1, "{command:?}: {told}");
    }
    let named = [&["--config", "other.toml"], &["status"][..]].concat();
    assert!(!said_by(&named).contains("is not read"), "it is the one that is meant");
    // Scripts and mail programs run these in any folder.
    for command in ["mailq", "version"] {
        assert!(!said_by(&[command]).contains("is not read"), "{command}");
    }
}
