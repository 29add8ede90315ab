//! `postrider doctor`, and the checks of `postrider config check` for root.

use crate::common::{
    BINARY, Postrider, free_address,
    names::{NameServer, Record},
    ports,
    sink::Sink,
};
use serde_json::Value;
use std::{
    fs::{self, Permissions},
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Output},
};

fn run(config: &Path, arguments: &[&str]) -> Output {
    Command::new(BINARY).args(arguments).env("POSTRIDER_CONFIG", config).output().unwrap()
}

/// The findings of a check, and the exit code of all.
struct Report {
    exit: i32,
    findings: Vec<Value>,
}

impl Report {
    fn of(config: &Path, more: &[&str]) -> Self {
        let arguments: Vec<&str> = ["doctor", "--json"].iter().chain(more).copied().collect();
        let output = run(config, &arguments);
        let report: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
        let exit = output.status.code().unwrap();
        let expected = if report["errors"] != 0 { 2 } else { i32::from(report["warnings"] != 0) };
        assert_eq!(exit, expected, "{report}");
        Self { exit, findings: report["findings"].as_array().unwrap().clone() }
    }

    /// Level and text of each finding of a check.
    fn about(&self, check: &str) -> Vec<(&str, &str)> {
        let is_it = |finding: &&Value| finding["check"] == check;
        let found = self.findings.iter().filter(is_it);
        found.map(|one| (one["level"].as_str().unwrap(), one["seen"].as_str().unwrap())).collect()
    }

    fn only(&self, check: &str) -> (&str, &str) {
        let found = self.about(check);
        assert_eq!(found.len(), 1, "{check}: {:?}", self.findings);
        found[0]
    }
}

fn name_server(records: &[(&'static str, Record)]) -> NameServer {
    NameServer::start(UdpSocket::bind("127.0.0.1:0").unwrap(), records)
}

fn settings(names: SocketAddr, mx_port: u16) -> String {
    format!(
        "[dns]\nnameservers = [\"{names}\"]\ntimeout = \"3s\"\nattempts = 1\n[delivery]\nmx_port = {mx_port}\n"
    )
}

fn records(reverse: &'static str) -> [(&'static str, Record); 4] {
    [
        ("mx.test", Record::A(Ipv4Addr::new(192, 0, 2, 1))),
        ("1.2.0.192.in-addr.arpa", Record::Ptr(reverse)),
        ("far.test", Record::Mx(10, "hop.test")),
        ("hop.test", Record::A(Ipv4Addr::LOCALHOST)),
    ]
}

#[test]
fn a_daemon_with_names_and_a_way_out_has_no_errors() {
    let (names, sink) = (name_server(&records("mx.test")), Sink::start());
    let daemon = Postrider::start(&settings(names.address, sink.address.port()));
    let report = Report::of(&daemon.config(), &["--domain", "far.test"]);
    assert!(report.exit < 2, "{:?}", report.findings);
    for (check, text) in [
        ("resolver", "1 MX records of far.test"),
        ("host name", "192.0.2.1 is mx.test"),
        ("port 25", "hop.test[127.0.0.1]"),
        ("listeners", "is served by postrider"),
        ("daemon", "it runs, with 0 recipients queued"),
    ] {
        let (level, seen) = report.only(check);
        assert!(level == "ok" && seen.contains(text), "{check}: {level} {seen}");
    }
    // Greeted and left: no mail was sent.
    assert_eq!((sink.connection_count(), sink.transaction_count()), (1, 0));
    for check in ["disk", "room", "limits", "kernel", "clock", "configuration", "certificates", "files"] {
        assert!(!report.about(check).is_empty(), "{check}");
    }
    let told = run(&daemon.config(), &["doctor", "--offline"]);
    let told = String::from_utf8(told.stdout).unwrap();
    assert!(!told.contains("port 25") && !told.contains("resolver"), "{told}");
    assert!(told.lines().last().unwrap().starts_with("0 errors, "), "{told}");
}

#[test]
fn a_map_that_cannot_be_used_is_an_error_without_the_network_and_in_status() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("aliases"), "root: joe\nann: :nonsense: x\n").unwrap();
    let daemon = Postrider::start_in(dir, free_address(), "[addresses]\naliases = [\"aliases:aliases\"]\n");
    let check = run(&daemon.config(), &["config", "check"]);
    assert_eq!(check.status.code(), Some(78), "{check:?}");
    let report = Report::of(&daemon.config(), &["--offline"]);
    for name in ["configuration", "daemon"] {
        let found = report.about(name);
        assert!(
            found.iter().any(|(level, seen)| *level == "error" && seen.contains("line 2, column")),
            "{name}: {found:?}"
        );
    }
    let status = daemon.ask(&["status"]);
    assert!(
        status
            .lines()
            .any(|line| line.starts_with("MAP CANNOT BE USED: ") && line.contains("line 2, column")),
        "{status}"
    );
}

#[test]
fn a_drained_listener_is_no_port_of_another_program() {
    let daemon = Postrider::start("");
    daemon.ask(&["drain"]);
    let report = Report::of(&daemon.config(), &["--offline"]);
    let (level, seen) = report.only("listeners");
    assert!(level == "ok" && seen.contains("is served by postrider"), "{level} {seen}");
    assert!(report.about("daemon").iter().any(|(level, seen)| *level == "warning" && seen.contains("421")));
}

#[test]
fn a_closed_way_out_and_a_name_of_another_are_told() {
    let (names, closed) = (name_server(&records("1.isp.test")), free_address());
    let daemon = Postrider::start(&settings(names.address, closed.port()));
    let report = Report::of(&daemon.config(), &["--domain", "far.test"]);
    let (level, seen) = report.only("port 25");
    assert!(level == "error" && seen.contains("no connection to hop.test"), "{seen}");
    let (level, seen) = report.only("host name");
    // The name of the address leads nowhere, so it is nobody's.
    assert!(level == "warning" && seen.contains("no name that leads back"), "{seen}");
    drop(names);
    let report = Report::of(&daemon.config(), &["--domain", "far.test"]);
    let (level, seen) = report.only("resolver");
    assert!(level == "error" && seen.contains("mail to other servers waits"), "{seen}");
}

#[test]
fn a_smarthost_is_connected_to_in_place_of_port_25() {
    let (names, sink) = (name_server(&records("mx.test")), Sink::start());
    let daemon = Postrider::start(&(settings(names.address, free_address().port()) + &sink.route()));
    let report = Report::of(&daemon.config(), &["--domain", "far.test"]);
    let (level, seen) = report.only("port 25");
    assert!(level == "ok" && seen.contains(&sink.address.port().to_string()), "{seen}");
}

#[test]
fn a_port_of_another_program_and_an_expired_certificate_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    let other = ports::listen(free_address());
    let mut parameters = rcgen::CertificateParams::new(vec!["mx.test".to_owned()]).unwrap();
    parameters.not_before = rcgen::date_time_ymd(2020, 1, 1);
    parameters.not_after = rcgen::date_time_ymd(2020, 3, 1);
    let key = rcgen::KeyPair::generate().unwrap();
    fs::write(dir.path().join("cert.pem"), parameters.self_signed(&key).unwrap().pem()).unwrap();
    fs::write(dir.path().join("key.pem"), key.serialize_pem()).unwrap();
    let config = dir.path().join("postrider.toml");
    let text = format!(
        "hostname = \"mx.test\"\ndata_dir = \"data\"\n[[listen]]\naddress = \"{}\"\n\
         [tls]\ncertificate = \"cert.pem\"\nkey = \"key.pem\"\n",
        other.local_addr().unwrap()
    );
    fs::write(&config, text).unwrap();
    let report = Report::of(&config, &["--offline"]);
    let (level, seen) = report.only("listeners");
    assert!(level == "error" && seen.contains(&format!("(process {})", std::process::id())), "{seen}");
    let (level, seen) = report.only("certificates");
    assert!(level == "error" && seen.contains("has expired on 2020-03-01"), "{seen}");
    let (level, seen) = report.only("daemon");
    assert!(level == "warning" && seen.contains("not running"), "{seen}");
    assert_eq!(report.exit, 2);

    fs::write(&config, "hostname = \"mx.test\"\nnonsense = 1\n").unwrap();
    let report = Report::of(&config, &["--offline"]);
    let (level, seen) = report.only("configuration");
    assert!(level == "error" && seen.contains("nonsense"), "{seen}");
    assert!(!report.about("limits").is_empty(), "the machine is checked all the same");
}

#[test]
fn root_checks_as_the_user_of_the_daemon() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: only root can become another user");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    let file = |name: &str| dir.path().join(name);
    fs::write(file("list"), "a@far.test b@far.test\n").unwrap();
    let text = "hostname = \"mx.test\"\ndata_dir = \"data\"\n[process]\nuser = \"nobody\"\n\
                [addresses]\ncanonical = [\"text:list\"]\n";
    let config = file("postrider.toml");
    fs::write(&config, text).unwrap();
    let mode = |name: &str, mode| fs::set_permissions(file(name), Permissions::from_mode(mode)).unwrap();
    mode("list", 0o644);
    mode("postrider.toml", 0o644);
    assert_eq!(Report::of(&config, &["--offline"]).only("files").0, "ok");
    let checked = run(&config, &["config", "check"]);
    assert!(checked.status.success(), "{checked:?}");

    mode("list", 0o600);
    mode("postrider.toml", 0o600);
    let report = Report::of(&config, &["--offline"]);
    let found = report.about("files");
    assert_eq!(found.iter().map(|one| one.0).collect::<Vec<_>>(), ["warning", "error"], "{found:?}");
    assert!(found[0].1.contains("not at `postrider reload`"), "{found:?}");
    assert!(
        found[1].1.contains("nobody may not read the map") && found[1].1.contains("mode 0600"),
        "{found:?}"
    );
    let checked = run(&config, &["config", "check"]);
    let told = String::from_utf8(checked.stderr).unwrap();
    assert_eq!(checked.status.code(), Some(78), "{told}");
    assert!(
        told.contains("error: nobody may not read the map") && told.contains("`setfacl -m u:nobody:r "),
        "{told}"
    );
    assert!(told.contains("warning: nobody may not read the configuration"), "{told}");

    // A folder on the way that others may not enter is named.
    mode("list", 0o644);
    fs::set_permissions(dir.path(), Permissions::from_mode(0o700)).unwrap();
    let report = Report::of(&config, &["--offline"]);
    let found = report.about("files");
    assert!(found.iter().any(|one| one.0 == "error" && one.1.contains("may not enter")), "{found:?}");
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
}
