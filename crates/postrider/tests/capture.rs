//! `postrider serve --capture`: mail for every address is shown, and none is sent.

mod common;

use common::{client::Client, free_address, until};
use std::{
    fs,
    io::{BufRead as _, BufReader},
    net::SocketAddr,
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
        let mut child = Command::new(common::BINARY)
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
    for part in
        ["=== message ", "Subject: Your order\n", "\nThank you.\n", "Return-Path: <shop@shop.example>\n"]
    {
        until(&format!("`{part}` is shown three times"), || capture.shown().matches(part).count() == 3);
    }
    let shown = capture.shown();
    assert!(shown.contains("Delivered-To: jane@far.example\n"), "{shown}");
    let folder = dir.path().join("postrider-capture/captured");
    assert_eq!(fs::read_dir(folder.join("cur")).unwrap().count(), 3);
    assert_eq!(fs::read_dir(folder.join("new")).unwrap().count(), 0);
    let log = fs::read_to_string(dir.path().join("postrider-capture/mail.log")).unwrap();
    assert!(!log.contains("smtp:"), "{log}");
    until("it says where the mail is", || {
        let said = capture.said.lock().unwrap();
        said.contains("all mail is captured in the Maildir") && said.contains("none is sent")
    });
}

#[test]
fn capturing_takes_no_configuration() {
    let output = Command::new(common::BINARY)
        .args(["serve", "--capture", "--config", "postrider.toml"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(64));
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot be used with"), "{output:?}");
}
