//! Metrics by HTTP, on the command line, and judged by Prometheus' own tool.

use crate::common::{Postrider, client::Client, free_address, sink::Sink, unpacked, until};
use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    process::{Command, Stdio},
};

/// Returns status line, header and body of a request.
fn get(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "{request} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Returns a program of the package of Prometheus.
fn promtool() -> Option<Command> {
    Some(Command::new(unpacked("prometheus")?.join("usr/bin/promtool")))
}

#[test]
fn a_scrape_counts_the_mail_and_promtool_likes_it() {
    let (hop, address) = (Sink::start(), free_address());
    let daemon = Postrider::start(&format!("[metrics]\nlisten = \"{address}\"\n{}", hop.route()));
    let mut client = Client::connect(daemon.address).unwrap();
    for _ in 0..3 {
        assert_eq!(client.send("a@b.test", &["c@d.test"], b"Subject: x\r\n\r\nx\r\n").unwrap().0, 250);
    }
    client.say("QUIT").unwrap();
    let has = |text: &str, line: &str| text.lines().any(|one| one == line);
    until("three deliveries are counted", || {
        has(&get(address, "GET /metrics"), "postrider_attempts_total{status=\"sent\"} 3")
    });
    let wanted =
        "GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.1\r\nX: x";
    let answer = get(address, wanted);
    assert!(
        answer.contains("content-type: application/openmetrics-text") && answer.ends_with("# EOF\n"),
        "{answer}"
    );
    let answer = get(address, "GET /metrics");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("text/plain; version=0.0.4"), "{head}");
    for line in [
        "postrider_messages_accepted_total{origin=\"smtp\"} 3",
        "postrider_recipients_accepted_total 3.0",
        "postrider_recipients_delivered_total 3.0",
        "postrider_recipient_imbalance 0.0",
        "postrider_client_connections_total{listener=\"mx\"} 1",
        "postrider_accept_latency_seconds_count 3",
        "postrider_rejections_total{stage=\"RCPT\",class=\"5yz\"} 0",
    ] {
        assert!(has(body, line), "{line}: {body}");
    }
    assert!(
        body.lines().any(|line| line.starts_with("postrider_certificate_expiry_timestamp_seconds ")
            && !line.ends_with(" 0.0"))
    );
    let printed = daemon.ask(&["status", "--prometheus"]);
    assert!(has(&printed, "postrider_attempts_total{status=\"sent\"} 3"), "{printed}");
    assert!(get(address, "GET /healthz").ends_with("ok\n"));
    assert!(get(address, "GET /readyz").ends_with("ok\n"));
    let head = get(address, "HEAD /metrics");
    assert!(head.starts_with("HTTP/1.1 200") && head.ends_with("\r\n\r\n"), "{head}");
    // More connections than are served, none with a whole request.
    let silent: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(address).unwrap()).collect();
    for mut stream in &silent {
        // The oldest are closed already.
        let _ = stream.write_all(b"GET /met");
    }
    assert!(get(address, "GET /healthz").ends_with("ok\n"));
    drop(silent);
    assert!(get(address, "GET /else").starts_with("HTTP/1.1 404"));
    assert!(get(address, "POST /metrics").starts_with("HTTP/1.1 405"));

    let Some(mut promtool) = promtool() else { return };
    let mut child =
        promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(body.as_bytes()).unwrap();
    let seen = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&seen.stderr);
    assert!(seen.status.success() && said.is_empty(), "{said}");
}

#[test]
fn a_daemon_that_has_become_another_user_is_scraped_and_removes_its_socket() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: only root can start a daemon that becomes another user");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let socket = dir.path().join("m.sock");
    let config = "[metrics]\nlisten = \"unix:m.sock\"\n[process]\nuser = \"nobody\"\n";
    let daemon = Postrider::start_in(dir, free_address(), config);
    let scrape = || {
        let mut stream = std::os::unix::net::UnixStream::connect(&socket).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    for _ in 0..2 {
        let answer = scrape();
        let memory = answer
            .lines()
            .find(|line| line.starts_with("process_resident_memory_bytes "))
            .unwrap_or_default();
        assert!(memory.len() > "process_resident_memory_bytes 1000000".len(), "{answer}");
        assert!(
            !answer.contains("\nprocess_open_fds 0") && !answer.contains("\nprocess_max_fds 0"),
            "{answer}"
        );
        let version = format!("postrider_build_info{{version=\"{}\",commit=\"", env!("CARGO_PKG_VERSION"));
        assert!(answer.contains(&version), "{answer}");
    }
    assert!(daemon.ask(&["status", "--prometheus"]).contains("process_resident_memory_bytes "));
    let (_dir, _) = daemon.stop();
    assert!(!socket.exists(), "a socket is removed at the end");
}

#[test]
fn promtool_accepts_the_alerts_and_each_of_their_metrics_exists() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let known: Vec<&str> = metrics::documentation().iter().map(|doc| doc.name).collect();
    for file in ["dist/prometheus.rules.yml", "dist/grafana.json"] {
        let text = std::fs::read_to_string(root.join(file)).unwrap();
        for (at, _) in text.match_indices("postrider_") {
            let name = &text[at + "postrider_".len()..];
            let name =
                &name[..name.find(|c: char| !c.is_ascii_lowercase() && c != '_').unwrap_or(name.len())];
            let is_known = |suffix: &str| known.contains(&name.strip_suffix(suffix).unwrap_or("-"));
            let suffixes = ["_total", "_bucket", "_sum", "_count"];
            assert!(known.contains(&name) || suffixes.into_iter().any(is_known), "{file}: {name}");
        }
        if file.ends_with("json") {
            serde_json::from_str::<serde_json::Value>(&text).unwrap();
        }
    }
    let Some(mut promtool) = promtool() else { return };
    let seen =
        promtool.args(["check", "rules"]).arg(root.join("dist/prometheus.rules.yml")).output().unwrap();
    assert!(seen.status.success(), "{}", String::from_utf8_lossy(&seen.stderr));
}
