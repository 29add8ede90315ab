//! Certificates from an authority that speaks ACME: pebble, which refuses nonces, fails validations and forgets what it
//! has seen when it is told to.

use crate::common::{
    Postrider, SetAtEnd, free_address, go_program,
    tls::{Authority, Client, client_config},
    until,
};
use serde_json::{Value, json};
use std::{
    fs,
    net::{SocketAddr, TcpStream},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};
use tempfile::TempDir;

/// Pebble, an ACME server for tests, with the DNS that it asks.
struct Pebble {
    children: Vec<Child>,
    /// The command of the authority itself, to start it again.
    command: Command,
    api: SocketAddr,
    directory: String,
    /// The address that the authority visits, whatever the challenge.
    visited: SocketAddr,
    /// Takes requests to set records.
    dns_management: SocketAddr,
}

impl Drop for Pebble {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Pebble {
    /// Starts it with its files in this folder: `authority.pem` signed its own certificate. None if it is not compiled.
    fn start(dir: &Path, more: &Value, environment: &[(&str, &str)]) -> Option<Self> {
        let (pebble, dns) = (go_program("pebble")?, go_program("pebble-challtestsrv")?);
        let authority = Authority::new(&dir.join("authority.pem"));
        authority.certify("pebble", &[], "localhost").write(&dir.join("pebble.pem"), &dir.join("pebble.key"));
        let [api, management, visited, dns_at, dns_management] = [(); 5].map(|()| free_address());
        let mut settings = json!({
            "listenAddress": api, "managementListenAddress": management,
            "certificate": dir.join("pebble.pem"), "privateKey": dir.join("pebble.key"),
            "httpPort": visited.port(), "tlsPort": visited.port(), "ocspResponderURL": "",
        });
        settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let file = dir.join("pebble.json");
        fs::write(&file, json!({ "pebble": settings }).to_string()).unwrap();
        // An older release, which Debian's Go compiles, names it otherwise.
        let help = Command::new(&dns).arg("-help").output().unwrap();
        let is_new = String::from_utf8_lossy(&help.stderr).contains("-dnsserver");
        let dns_flag = if is_new { "-dnsserver" } else { "-dns01" };
        let mut names = Command::new(dns);
        names.args([dns_flag, &dns_at.to_string(), "-management", &dns_management.to_string()]);
        names.args(["-http01", "", "-https01", "", "-tlsalpn01", "", "-doh", "", "-defaultIPv6", ""]);
        let mut authority = Command::new(pebble);
        authority.arg("-config").arg(&file).args(["-dnsserver", &dns_at.to_string()]);
        authority.envs([
            ("PEBBLE_VA_NOSLEEP", "1"),
            ("PEBBLE_AUTHZREUSE", "0"),
            ("PEBBLE_WFE_NONCEREJECT", "0"),
        ]);
        authority.envs(environment.iter().copied());
        let start = |command: &mut Command| {
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
        };
        let children = vec![start(&mut names), start(&mut authority)];
        let command = authority;
        for address in [api, dns_management] {
            until("the authority listens", || TcpStream::connect(address).is_ok());
        }
        let directory = format!("https://localhost:{}/dir", api.port());
        Some(Self { children, command, api, directory, visited, dns_management })
    }

    /// Starts the authority again: it has forgotten everything.
    fn forget(&mut self) {
        let mut old = self.children.pop().unwrap();
        old.kill().unwrap();
        old.wait().unwrap();
        self.children.push(self.command.spawn().unwrap());
        until("the authority listens again", || TcpStream::connect(self.api).is_ok());
    }

    /// The section of the configuration, with additions.
    fn section(&self, challenge: &str, more: &str) -> String {
        format!(
            "[acme]\nnames = [\"mx.test\", \"mail.mx.test\"]\ndirectory = \"{}\"\nagree_to_terms = true\n\
             ca_file = \"authority.pem\"\nchallenge = \"{challenge}\"\n{more}\n[log]\nfile = \"mail.log\"\n",
            self.directory
        )
    }

    fn daemon(&self, dir: TempDir, challenge: &str) -> Postrider {
        let listen = format!("listen = \"{}\"", self.visited);
        Postrider::start_in(dir, free_address(), &self.section(challenge, &listen))
    }
}

fn list(daemon: &Postrider) -> Value {
    serde_json::from_str(&daemon.ask(&["certificate", "list", "--json"])).unwrap()
}

fn until_obtained(daemon: &Postrider) -> Value {
    until("there is a certificate", || list(daemon)["certificates"][0]["origin"] == "acme");
    list(daemon)
}

/// Returns the folder of the one account below `data/acme`.
fn folder(daemon: &Postrider) -> PathBuf {
    let mut all = fs::read_dir(daemon.dir.path().join("data/acme")).unwrap();
    all.next().unwrap().unwrap().path()
}

/// Asserts that a client sees a certificate that is not self-signed, and returns it.
fn shown(address: SocketAddr) -> Vec<u8> {
    let (client, _) = Client::starttls(address, &client_config(None)).unwrap();
    client.certificate()
}

#[test]
fn a_certificate_is_obtained_by_http_shown_and_kept_for_the_next_start() {
    let dir = tempfile::tempdir().unwrap();
    let Some(pebble) = Pebble::start(dir.path(), &json!({}), &[]) else { return };
    let daemon = pebble.daemon(dir, "http-01");
    let listed = until_obtained(&daemon);
    assert_eq!(listed["certificates"].as_array().unwrap().len(), 1, "{listed}");
    let mut names: Vec<&str> =
        listed["certificates"][0]["names"].as_array().unwrap().iter().map(|n| n.as_str().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, ["mail.mx.test", "mx.test"]);
    let expires = listed["certificates"][0]["expires_seconds"].as_u64().unwrap();
    assert!(listed["renewal"]["due_seconds"].as_u64().unwrap() < expires, "{listed}");
    let first = shown(daemon.address);
    let text = daemon.ask(&["certificate", "list"]);
    assert!(text.contains("(acme)") && text.contains("next renewal: 2"), "{text}");
    // Nobody else reads the key, and no challenge is left open.
    for (file, mode) in [("certificate.pem", 0o600), ("account.json", 0o600)] {
        let path = folder(&daemon).join(file);
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, mode, "{file}");
    }
    let metrics = daemon.ask(&["status", "--prometheus"]);
    assert!(
        metrics.contains(&format!("postrider_certificate_expiry_timestamp_seconds {expires}")),
        "{metrics}"
    );
    assert!(metrics.contains("postrider_acme_failures 0"), "{metrics}");
    // The next start has it before the authority is asked.
    let address = daemon.address;
    let (dir, status) = daemon.stop();
    assert!(status.success());
    drop(pebble);
    let text = fs::read_to_string(dir.path().join("postrider.toml")).unwrap();
    let daemon = Postrider::start_from(dir, address, &text);
    assert_eq!(shown(daemon.address), first);
}

#[test]
fn an_authority_that_refuses_half_of_all_nonces_is_asked_again() {
    let dir = tempfile::tempdir().unwrap();
    let Some(pebble) = Pebble::start(dir.path(), &json!({}), &[("PEBBLE_WFE_NONCEREJECT", "50")]) else {
        return;
    };
    let daemon = pebble.daemon(dir, "http-01");
    until("the first attempt has ended", || {
        let renewal = &list(&daemon)["renewal"];
        renewal["obtained"] == 1 || renewal["failed"] != 0
    });
    // Also an attempt that had no luck at all may be made again.
    until("there is a certificate", || {
        list(&daemon)["certificates"][0]["origin"] == "acme"
            || daemon.try_ask(&["certificate", "renew"]).is_ok()
    });
}

#[test]
fn renewals_under_load_break_no_handshake() {
    let dir = tempfile::tempdir().unwrap();
    let Some(pebble) = Pebble::start(dir.path(), &json!({}), &[]) else { return };
    let daemon = pebble.daemon(dir, "http-01");
    until_obtained(&daemon);
    let (is_over, handshakes) = (AtomicBool::new(false), AtomicU64::new(0));
    let address = daemon.address;
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                // One configuration for all: most sessions are resumed, across renewals, too.
                let config = client_config(None);
                while !is_over.load(Ordering::Relaxed) {
                    let (mut client, said) = Client::starttls(address, &config).unwrap();
                    assert!(said.contains("250"), "{said}");
                    assert!(client.say("NOOP").unwrap().starts_with("250"));
                    handshakes.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let _end = SetAtEnd(&is_over);
        let mut seen = vec![shown(address)];
        for _ in 0..3 {
            let said = daemon.ask(&["certificate", "renew"]);
            assert!(said.starts_with("obtained a certificate for mx.test, mail.mx.test"), "{said}");
            let now = shown(address);
            assert!(!seen.contains(&now), "a renewal changes the certificate");
            seen.push(now);
        }
        let before = handshakes.load(Ordering::Relaxed);
        until("sessions go on", || handshakes.load(Ordering::Relaxed) > before + 20);
    });
    println!("{} handshakes during 3 renewals", handshakes.into_inner());
    assert_eq!(list(&daemon)["renewal"]["obtained"], 4);
}

#[test]
fn tls_alpn_convinces_the_authority_as_well() {
    let dir = tempfile::tempdir().unwrap();
    let Some(pebble) = Pebble::start(dir.path(), &json!({}), &[]) else { return };
    let daemon = pebble.daemon(dir, "tls-alpn-01");
    until_obtained(&daemon);
}

#[test]
fn a_program_makes_the_records_of_dns_and_removes_them() {
    let dir = tempfile::tempdir().unwrap();
    let Some(pebble) = Pebble::start(dir.path(), &json!({}), &[]) else { return };
    // The program runs as another user, who has to get there.
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let (hook, calls) = (dir.path().join("hook"), dir.path().join("calls"));
    let script = format!(
        "#!/bin/sh\necho \"$@\" >> {calls}\ncase $2 in present) path=set-txt;; *) path=clear-txt;; esac\n\
         exec curl -sf -d \"{{\\\"host\\\":\\\"$3.\\\",\\\"value\\\":\\\"$4\\\"}}\" http://{dns}/$path\n",
        calls = calls.display(),
        dns = pebble.dns_management
    );
    fs::write(&hook, script).unwrap();
    fs::write(&calls, "").unwrap();
    fs::set_permissions(&calls, fs::Permissions::from_mode(0o666)).unwrap();
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
    let user = if rustix::process::geteuid().is_root() { ", user = \"nobody\"" } else { "" };
    let key = format!("hook = {{ argv = [\"{}\", \"zone\"]{user} }}", hook.display());
    let section = pebble.section("dns-01", &key).replace("\"mail.mx.test\"", "\"*.mx.test\"");
    let daemon = Postrider::start_in(dir, free_address(), &section);
    let listed = until_obtained(&daemon);
    assert!(listed["certificates"][0]["names"].as_array().unwrap().contains(&json!("*.mx.test")), "{listed}");
    until("the records are removed", || fs::read_to_string(&calls).unwrap().matches("cleanup").count() == 2);
    let calls = fs::read_to_string(&calls).unwrap();
    assert_eq!(calls.matches("zone present _acme-challenge.mx.test ").count(), 2, "{calls}");
}

#[test]
fn a_failed_validation_is_explained_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let Some(pebble) = Pebble::start(dir.path(), &json!({}), &[]) else { return };
    // The authority comes to a port where nobody is.
    let section = pebble.section("http-01", &format!("listen = \"{}\"", free_address()));
    let daemon = Postrider::start_in(dir, free_address(), &section);
    until("an attempt has failed", || list(&daemon)["renewal"]["failures_in_a_row"] == 1);
    let listed = list(&daemon);
    assert_eq!(listed["certificates"][0]["origin"], "self-signed", "{listed}");
    let text = listed["renewal"]["failure"]["text"].as_str().unwrap();
    assert!(text.contains("mx.test: ") && text.contains("(connection)"), "{text}");
    let said = daemon.try_ask(&["certificate", "renew"]).unwrap_err();
    assert!(said.contains("no certificate was obtained: ") && said.contains("mx.test"), "{said}");
    let metrics = daemon.ask(&["status", "--prometheus"]);
    assert!(metrics.contains("postrider_acme_failures 2"), "{metrics}");
    daemon.send("joe@mx.test");
}

#[test]
fn an_authority_that_has_forgotten_the_account_gets_a_new_one() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut pebble) = Pebble::start(dir.path(), &json!({}), &[]) else { return };
    let daemon = pebble.daemon(dir, "http-01");
    until_obtained(&daemon);
    pebble.forget();
    let said = daemon.ask(&["certificate", "renew"]);
    assert!(said.starts_with("obtained a certificate"), "{said}");
    assert!(folder(&daemon).join("account.json.old").is_file());
}

#[test]
fn nothing_is_asked_for_that_could_not_be_kept() {
    let dir = tempfile::tempdir().unwrap();
    let Some(pebble) = Pebble::start(dir.path(), &json!({}), &[]) else { return };
    let daemon = pebble.daemon(dir, "http-01");
    until_obtained(&daemon);
    let file = folder(&daemon).join("certificate.pem");
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    let said = daemon.try_ask(&["certificate", "renew"]).unwrap_err();
    assert!(said.contains("certificate.pem: it is a folder"), "{said}");
    assert_eq!(list(&daemon)["certificates"][0]["origin"], "acme");
}

#[test]
fn an_authority_that_wants_an_account_of_its_website_gets_it() {
    let dir = tempfile::tempdir().unwrap();
    let keys = json!({
        "externalAccountBindingRequired": true,
        "externalAccountMACKeys": { "kid-1": "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W" },
    });
    let Some(pebble) = Pebble::start(dir.path(), &keys, &[]) else { return };
    let key = dir.path().join("key");
    fs::write(&key, "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W\n").unwrap();
    let external = "external_account = \"kid-1\"\nexternal_key = \"file:key\"";
    let more = format!("listen = \"{}\"\n{external}", pebble.visited);
    let daemon = Postrider::start_in(dir, free_address(), &pebble.section("http-01", &more));
    until_obtained(&daemon);
}

#[test]
fn without_acme_there_is_nothing_to_renew() {
    let daemon = Postrider::start("");
    let listed = list(&daemon);
    assert_eq!(listed["certificates"][0]["origin"], "self-signed", "{listed}");
    assert_eq!(listed["renewal"], Value::Null);
    let said = daemon.try_ask(&["certificate", "renew"]).unwrap_err();
    assert!(said.contains("add [acme]"), "{said}");
}
