//! OpenDKIM as a filter: it signs the mail of users, and verifies that of others.

use crate::{
    common::{Postrider, client::Client, program, python_with, servers::Running, sink::Sink, until},
    signatures::{new_key, verify},
};
use std::{fs, os::unix::net::UnixStream, process::Stdio};

#[test]
fn opendkim_signs_and_verifies() {
    let Some(mut opendkim) = program("opendkim") else { return };
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    let (name, record) = new_key(dir.path(), "own.test", "s1", "rsa");
    fs::write(at("keys"), format!("{name} {record}\n")).unwrap();
    fs::write(at("internal"), "127.0.0.2\n").unwrap();
    let settings = format!(
        "Mode sv\nDomain own.test\nSelector s1\nKeyFile {}\nSocket local:{}\nSyslog no\nBackground no\nAutoRestart no\n\
         InternalHosts {}\nExternalIgnoreList {}\nTestPublicKeys {}\nRequireSafeKeys no\nAlwaysAddARHeader yes\n\
         AuthservID mx.test\nCanonicalization simple/simple\n",
        at("s1.pem"),
        at("socket"),
        at("internal"),
        at("internal"),
        at("keys")
    );
    fs::write(at("opendkim.conf"), settings).unwrap();
    opendkim.args(["-f", "-x", &at("opendkim.conf")]).stdin(Stdio::null()).stdout(Stdio::null());
    let mut running = Running(opendkim.spawn().unwrap());
    until("OpenDKIM listens", || {
        assert_eq!(running.0.try_wait().unwrap(), None, "OpenDKIM ends");
        UnixStream::connect(at("socket")).is_ok()
    });
    let hop = Sink::start();
    let daemon =
        Postrider::start(&format!("{}[filter.opendkim]\nmilter = \"unix:{}\"\n", hop.route(), at("socket")));
    let send = |client: &str, content: &[u8]| {
        let mut client = Client::connect_from(client, daemon.address).unwrap();
        let reply = client.send("joe@own.test", &["x@far.test"], content).unwrap();
        assert_eq!(reply.0, 250, "{}", reply.1);
        until("it has arrived", || hop.count() == 1);
        hop.take().remove(0).content
    };
    let large = format!("From: joe@own.test\r\nSubject: large\r\n\r\n{}", "some words  \r\n".repeat(40_000));
    let given = [
        "From:  Joe\r\n\t<joe@own.test>\r\nSUBJECT:  a   b \t c  \r\nTo:x@far.test,\r\n y@far.test\r\n\r\na  b \t\r\n\r\n\r\n",
        "From: joe@own.test\r\nSubject: gr\u{fc}n\r\n\r\n.\r\n..\r\n",
        "From: joe@own.test\r\nSubject: no body\r\n\r\n",
        &large,
    ];
    let signed: Vec<Vec<u8>> = given.iter().map(|content| send("127.0.0.2", content.as_bytes())).collect();
    for content in &signed {
        assert!(content.starts_with(b"DKIM-Signature: "), "above the trace field");
        let text = String::from_utf8_lossy(&send("127.0.0.3", content)).into_owned();
        assert!(text.starts_with("Authentication-Results: mx.test;"), "{text}");
        let results = text.split("Received: ").next().unwrap();
        assert!(results.contains("dkim=pass"), "{results}");
        let forged = String::from_utf8_lossy(content).replacen("joe@own.test", "jim@own.test", 1);
        let text = String::from_utf8_lossy(&send("127.0.0.3", forged.as_bytes())).into_owned();
        assert!(!text.split("Received: ").next().unwrap().contains("dkim=pass"), "{text}");
    }
    let Some(mut python) = python_with("dkim") else { return };
    let said = verify(&mut python, dir.path(), &[(name, record)], &signed);
    assert_eq!(said, ["0 pass", "1 pass", "2 pass", "3 pass"]);
}
