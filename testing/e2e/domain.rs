//! `postrider check DOMAIN`, asked about domains whose records are right or wrong.

use crate::common::{
    BINARY, Postrider,
    names::{NameServer, Record},
    sink::Sink,
    tls::Certified,
};
use std::{fs, net::UdpSocket, process::Command};
use tempfile::TempDir;

const HOST: &str = "mx.a.test";
const OWN: &str = "192.0.2.7";

/// A configuration that signs for a.test, and the record of its key.
struct Setup {
    dir: TempDir,
    key_record: String,
    sink: Sink,
    /// Of the mail exchangers.
    port: u16,
}

impl Setup {
    fn new() -> Self {
        let (dir, sink) = (tempfile::tempdir().unwrap(), Sink::start());
        let made = Command::new(BINARY)
            .args(["dkim", "new", "a.test", "--selector", "s1", "--kind", "ed25519", "--out", "key.pem"])
            .current_dir(dir.path())
            .output()
            .unwrap();
        let said = String::from_utf8(made.stdout).unwrap();
        let line = said.lines().find(|line| line.starts_with("s1._domainkey")).unwrap();
        let key_record = line.split('"').nth(1).unwrap().to_owned();
        let port = sink.address.port();
        Self { dir, key_record, sink, port }
    }

    /// The findings on a domain with these records: level, subject, text, and advice.
    fn check(
        &self,
        domain: &str,
        local: &str,
        records: &[(&'static str, Record)],
    ) -> (i32, Vec<[String; 4]>) {
        let mut all = records.to_vec();
        all.push((HOST, Record::A("127.0.0.1".parse().unwrap())));
        let names = NameServer::start(UdpSocket::bind("127.0.0.1:0").unwrap(), &all);
        let text = format!(
            "hostname = \"{HOST}\"\ndata_dir = \"data\"\npostmaster = \"pm@a.test\"\n[local]\ndomains = [\"{HOST}\", {local}]\n\
             [delivery]\nsource_address = \"{OWN}\"\nmx_port = {}\n[dns]\nnameservers = [\"{}\"]\n\
             [[sign]]\ndomains = [\"a.test\"]\nselector = \"s1\"\nkey = \"{}\"\n",
            self.port,
            names.address,
            self.dir.path().join("key.pem").display(),
        );
        let file = self.dir.path().join("postrider.toml");
        fs::write(&file, text).unwrap();
        let mut command = Command::new(BINARY);
        let asked = command.args(["check", domain, "--json", "--config"]).arg(&file).output().unwrap();
        let error = String::from_utf8_lossy(&asked.stderr);
        let report: serde_json::Value = serde_json::from_slice(&asked.stdout).expect(&error);
        let of = |finding: &serde_json::Value| {
            ["level", "check", "seen", "advice"]
                .map(|key| finding[key].as_str().unwrap_or_default().to_owned())
        };
        (asked.status.code().unwrap(), report["findings"].as_array().unwrap().iter().map(of).collect())
    }
}

fn txt(name: &'static str, text: &str) -> (&'static str, Record) {
    (name, Record::Txt(text.to_owned()))
}

/// Asserts that there is a finding of a level on a subject whose text and advice have these words.
fn has(findings: &[[String; 4]], [level, check, seen, advice]: [&str; 4]) {
    let is_it = |one: &&[String; 4]| {
        one[0] == level && one[1] == check && one[2].contains(seen) && one[3].contains(advice)
    };
    assert!(
        findings.iter().any(|one| is_it(&one)),
        "no {level} {check} {seen:?} {advice:?} in {findings:#?}"
    );
}

#[test]
fn a_domain_without_records_gets_each_that_it_needs() {
    let site = Setup::new();
    let (code, found) =
        site.check("a.test", "\"a.test\"", &[("a.test", Record::A("192.0.2.1".parse().unwrap()))]);
    assert_eq!(code, 2);
    has(&found, ["warning", "MX", "no MX record", "a.test. IN MX 10 mx.a.test."]);
    has(&found, ["error", "SPF", "no SPF record", "a.test. IN TXT \"v=spf1 a:mx.a.test -all\""]);
    let key = format!("s1._domainkey.a.test. IN TXT \"{}\"", site.key_record);
    has(&found, ["error", "DKIM", "NOT PUBLISHED", &key]);
    has(
        &found,
        [
            "error",
            "DMARC",
            "no DMARC record",
            "_dmarc.a.test. IN TXT \"v=DMARC1; p=none; rua=mailto:pm@a.test\"",
        ],
    );
    let (_, found) = site.check("nowhere.test", "\"a.test\"", &[]);
    has(&found, ["error", "MX", "does not exist", ""]);
    has(&found, ["error", "DKIM", "is not signed", "postrider dkim new nowhere.test --selector mail"]);
}

#[test]
fn records_that_are_right_are_ok_and_a_server_without_encryption_is_not() {
    let site = Setup::new();
    let records = [
        ("a.test", Record::Mx(10, HOST)),
        txt("a.test", "v=spf1 ip4:192.0.2.0/29 -all"),
        txt("s1._domainkey.a.test", &site.key_record),
        txt("_dmarc.a.test", "v=DMARC1; p=reject"),
        ("7.2.0.192.in-addr.arpa", Record::Ptr(HOST)),
    ];
    let (code, found) = site.check("a.test", "\"a.test\"", &records);
    has(&found, ["ok", "MX", "mail for a.test goes to mx.a.test (10)", ""]);
    has(&found, ["ok", "SPF", "192.0.2.7 may send as a.test: pass", ""]);
    has(&found, ["ok", "DKIM", "s1._domainkey.a.test is published", ""]);
    has(&found, ["ok", "DMARC", "p=reject", ""]);
    has(&found, ["error", "TLS", "does not offer STARTTLS", "certificate"]);
    assert_eq!((code, site.sink.count()), (2, 0), "no mail is sent");
}

#[test]
fn records_that_contradict_the_server_are_named_with_better_ones() {
    let site = Setup::new();
    let other = Setup::new();
    let records = [
        ("a.test", Record::Mx(5, HOST)),
        txt("a.test", "v=spf1 ip4:198.51.100.1 ~all"),
        txt("s1._domainkey.a.test", &other.key_record),
        txt("_dmarc.a.test", "v=DMARC1; p=none"),
    ];
    let (code, found) = site.check("a.test", "\"b.test\"", &records);
    assert_eq!(code, 2);
    has(&found, ["error", "MX", "does not know the domain", "add \"a.test\" to `domains` in [local]"]);
    let better = "a.test. IN TXT \"v=spf1 ip4:198.51.100.1 ip4:192.0.2.7 ~all\"";
    has(&found, ["error", "SPF", "192.0.2.7 may send as a.test: softfail", better]);
    has(&found, ["error", "DKIM", "ANOTHER KEY", &site.key_record]);
    has(&found, ["warning", "DMARC", "p=none", "p=quarantine"]);
    let twice = [
        ("a.test", Record::Mx(10, "elsewhere.test")),
        txt("a.test", "v=spf1 +all"),
        txt("a.test", "v=spf1 -all"),
        txt("_dmarc.a.test", "v=DMARC1; p=reject"),
        txt("_dmarc.a.test", "v=DMARC1; p=none"),
    ];
    let (_, found) = site.check("a.test", "\"a.test\"", &twice);
    has(&found, ["warning", "MX", "and not to this server (mx.a.test)", "IN MX 10 mx.a.test."]);
    has(&found, ["error", "MX", "elsewhere.test has no address", "remove it"]);
    has(&found, ["error", "SPF", "2 SPF records", "one record"]);
    has(&found, ["error", "DMARC", "2 DMARC records", "keep one"]);
    let (_, found) = site.check("a.test", "\"a.test\"", &[txt("a.test", "v=spf1 +all")]);
    has(&found, ["error", "SPF", "permits the whole Internet", "-all"]);
}

#[test]
fn a_certificate_that_nobody_can_verify_is_a_warning() {
    let mut setup = Setup::new();
    let [certificate, key] = ["c.pem", "k.pem"].map(|name| setup.dir.path().join(name));
    Certified::self_signed(HOST, &[HOST]).write(&certificate, &key);
    let tls = format!("[tls]\ncertificate = {certificate:?}\nkey = {key:?}\n");
    let exchanger = Postrider::start(&tls);
    setup.port = exchanger.address.port();
    let (_, found) = setup.check("a.test", "\"a.test\"", &[("a.test", Record::Mx(10, HOST))]);
    has(&found, ["warning", "TLS", "mx.a.test encrypts, and its certificate cannot be verified", "[acme]"]);
    let (_, found) = setup.check("a.test", "\"a.test\"", &[("a.test", Record::Mx(10, ""))]);
    has(&found, ["error", "MX", "takes no mail (a null MX", "IN MX 10 mx.a.test."]);
    drop(exchanger);
    let (_, found) = setup.check("a.test", "\"a.test\"", &[("a.test", Record::Mx(10, HOST))]);
    has(&found, ["warning", "TLS", "refused", "start the server there"]);
}
