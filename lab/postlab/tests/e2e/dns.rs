//! `postlab dns-packets` as a program, with a command that waits while the test asks.

use crate::common::run;
use std::{
    io::{BufRead as _, BufReader, Read as _},
    net::UdpSocket,
    process::{Command, Stdio},
};

/// A query of this type for mail.example.test.
fn query(kind: u16) -> Vec<u8> {
    let mut packet = vec![1, 2, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    packet.extend(b"\x04mail\x07example\x04test\x00");
    packet.extend(kind.to_be_bytes());
    packet.extend([0, 1]);
    packet
}

#[test]
fn questions_are_answered_and_counted_while_the_command_runs() {
    let script = "echo $DNS_SERVER $DNS_ANSWER; read line; test \"$DNS_HOST:$DNS_PORT\" = $DNS_SERVER";
    let mut child = Command::new(env!("CARGO_BIN_EXE_postlab"))
        .args(["dns-packets", "-m", "2", "--answer", "127.0.0.9", "--", "sh", "-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    let (server, answer) = line.trim().split_once(' ').unwrap();
    assert_eq!(answer, "127.0.0.9");
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(server).unwrap();
    for kind in [15, 1, 1] {
        socket.send(&query(kind)).unwrap();
        let mut buffer = [0; 512];
        let length = socket.recv(&mut buffer).unwrap();
        assert_eq!((buffer[7], length > query(kind).len()), (1, true), "one answer");
        if kind == 1 {
            assert_eq!(buffer[length - 4..length], [127, 0, 0, 9]);
        }
    }
    // The command reads the end of its input, and ends.
    drop(child.stdin.take());
    let mut text = String::new();
    out.read_to_string(&mut text).unwrap();
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[1], ["MX", "1", "1", "0.500"], "{text}");
    assert_eq!(rows[2], ["A", "2", "1", "1.000"], "{text}");
    assert_eq!(rows[3], ["all", "3", "-", "1.500"], "{text}");
    assert!(child.wait().unwrap().success());
}

#[test]
fn resolv_conf_names_the_server_for_the_command_alone() {
    let output = run(&["dns-packets", "--resolv-conf", "--", "true"]);
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("names no port: --listen 127.0.0.53:53"), "{text}");
    let may_mount = Command::new("unshare").args(["-m", "true"]).stderr(Stdio::null()).status();
    if !may_mount.is_ok_and(|status| status.success()) {
        println!("SKIPPED: unshare -m needs root");
        return;
    }
    let before = std::fs::read("/etc/resolv.conf").unwrap_or_default();
    // An address for each process of a test, as port 53 is one only.
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let address = format!("127.53.{high}.{low}");
    let listen = format!("{address}:53");
    let asks = "cat /etc/resolv.conf; getent ahostsv4 mail.example.test";
    let output = run(&[
        "dns-packets",
        "--resolv-conf",
        "--listen",
        &listen,
        "--answer",
        "127.0.0.9",
        "--",
        "sh",
        "-c",
        asks,
    ]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.starts_with(&format!("nameserver {address}\n127.0.0.9 ")), "{text}");
    assert!(text.contains("\nA                 1"), "{text}");
    assert_eq!(std::fs::read("/etc/resolv.conf").unwrap_or_default(), before);
}
